//! The specification's own examples (`tests/data/cloudevents`), in both modes, and what it forbids.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../tests/data/cloudevents/", $name))
    };
}

type Extensions<'a> = std::vec::IntoIter<(&'a ExtensionName, Extension<'a>)>;

fn plain<'a>() -> Attributes<'a, Extensions<'a>> {
    Attributes {
        id: b"1",
        source: b"/orders",
        kind: b"order.paid",
        subject: None,
        time: None,
        datacontenttype: None,
        dataschema: None,
        extensions: Vec::new().into_iter(),
    }
}

/// The attributes of a JSON document; those that are null are unset.
fn attributes<'a>(
    document: &'a Map<String, Value>,
    names: &'a [(ExtensionName, &'a Value)],
) -> Attributes<'a, Extensions<'a>> {
    let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::as_bytes);
    let value = |value: &'a Value| match value {
        Value::String(text) => Extension::Text(text.as_bytes()),
        Value::Number(number) => Extension::Integer(number.as_i64().unwrap().try_into().unwrap()),
        other => Extension::Boolean(other.as_bool().unwrap()),
    };
    let extensions: Vec<_> = names.iter().map(|(name, given)| (name, value(given))).collect();
    Attributes {
        id: text("id").unwrap(),
        source: text("source").unwrap(),
        kind: text("type").unwrap(),
        subject: text("subject"),
        time: text("time").map(Time::Text),
        datacontenttype: text("datacontenttype"),
        dataschema: text("dataschema"),
        extensions: extensions.into_iter(),
    }
}

fn object(json: &str) -> Map<String, Value> {
    let mut members: Map<String, Value> = serde_json::from_str(json).unwrap();
    members.retain(|_, value| !value.is_null());
    members
}

/// Whatever is not an attribute of the core.
fn extensions(document: &Map<String, Value>) -> Vec<(ExtensionName, &Value)> {
    document.iter().filter_map(|(name, value)| Some((ExtensionName::new(name).ok()?, value))).collect()
}

fn sorted(headers: &Headers) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.to_owned(), value.map_or("NULL".into(), text))).collect();
    headers.sort();
    headers
}

/// The headers of an example, Kafka's prefix put for HTTP's, and the value.
fn message(text: &str) -> (Vec<(String, String)>, &str) {
    let (headers, value) = text.split_once("\n\n").unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let name = name.strip_prefix("ce-").map_or_else(|| name.to_owned(), |name| format!("ce_{name}"));
        Some((name, value.trim_matches('"').to_owned()))
    };
    let mut headers: Vec<_> = headers.lines().filter_map(header).collect();
    headers.sort();
    (headers, value.trim_end_matches('\n'))
}

fn structured(attributes: &Attributes<'_, Extensions<'_>>, data: Data<'_>) -> Result<String, String> {
    let (mut headers, mut out) = (Headers::default(), b"before".to_vec());
    // A lifetime for both.
    fn write<'a>(
        attributes: &Attributes<'a, Extensions<'a>>,
        data: Data<'a>,
        headers: &mut Headers,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        attributes.write_structured(data, headers, out)
    }
    if let Err(problem) = write(attributes, data, &mut headers, &mut out) {
        assert!(headers.is_empty() && out == b"before", "nothing is written of what is refused");
        return Err(problem);
    }
    let content_type = "application/cloudevents+json; charset=UTF-8";
    assert_eq!(sorted(&headers), [("content-type".to_owned(), content_type.to_owned())]);
    Ok(String::from_utf8(out.split_off(6)).unwrap())
}

fn binary(attributes: &Attributes<'_, Extensions<'_>>) -> Result<Vec<(String, String)>, String> {
    let mut headers = Headers::default();
    match attributes.write_binary(&mut headers) {
        Ok(()) => Ok(sorted(&headers)),
        Err(problem) => {
            assert!(headers.is_empty(), "nothing is written of what is refused");
            Err(problem)
        }
    }
}

#[test]
fn the_examples_of_the_json_format_come_out_as_they_are() {
    for (json, http) in [
        (example!("xml.json"), Some(example!("xml.http"))),
        (example!("json.json"), Some(example!("json.http"))),
        (example!("string.json"), Some(example!("string.http"))),
        (example!("github.json"), None),
    ] {
        let document = object(json);
        let names = extensions(&document);
        let mut attributes = attributes(&document, &names);
        let data = match (&document["data"], attributes.datacontenttype) {
            (Value::String(text), Some(_)) => text.clone(),
            (value, _) => value.to_string(),
        };
        let data = Data::of(Some(data.as_bytes()), attributes.datacontenttype);
        let written = structured(&attributes, data).unwrap();
        assert_eq!(object(&written), document, "{written}");

        let Some(http) = http else { continue };
        // The fourth example has no media type in JSON, and has the implied one in binary mode.
        attributes.datacontenttype = attributes.datacontenttype.or(Some(b"application/json"));
        assert_eq!(binary(&attributes).unwrap(), message(http).0, "{http}");
    }
}

#[test]
fn the_example_with_binary_data_has_it_in_base64() {
    let mut document = object(example!("binary.json"));
    // A placeholder stands where the data would be.
    let (headers, raw) = message(example!("binary.http"));
    document.insert("data_base64".into(), "Li4ucmF3IGJpbmFyeSBieXRlcy4uLg==".into());
    let names = extensions(&document);
    let attributes = attributes(&document, &names);
    let data = Data::of(Some(raw.as_bytes()), attributes.datacontenttype);
    assert_eq!(object(&structured(&attributes, data).unwrap()), document);
    assert_eq!(binary(&attributes).unwrap(), headers);
}

#[test]
fn the_example_of_the_kafka_binding_has_these_headers() {
    let attributes = Attributes {
        id: b"1234-1234-1234",
        source: b"/mycontext/subcontext",
        kind: b"com.example.someevent",
        time: Some(Time::Micros(576_215_784_000_000)),
        datacontenttype: Some(b"application/avro"),
        ..plain()
    };
    assert_eq!(binary(&attributes).unwrap(), message(example!("kafka.http")).0);
    let document = object(&structured(&attributes, Data::Absent).unwrap());
    assert_eq!(document["time"], "2018-04-05T03:56:24Z");
    assert!(!document.contains_key("data") && !document.contains_key("data_base64"));
}

#[test]
fn headers_come_in_one_order_and_unset_attributes_have_none() {
    let tenant = ExtensionName::new("tenant").unwrap();
    let attributes = Attributes {
        subject: Some("o-7 ü".as_bytes()),
        time: Some(Time::Text(b"2018-04-05T17:31:00Z")),
        datacontenttype: Some(b"application/json"),
        dataschema: Some(b"https://example.com/order"),
        extensions: vec![(&tenant, Extension::Boolean(true))].into_iter(),
        ..plain()
    };
    let mut headers = Headers::default();
    attributes.write_binary(&mut headers).unwrap();
    let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
    let expected = "ce_specversion ce_id ce_source ce_type ce_subject ce_time ce_dataschema ce_tenant content-type";
    assert_eq!(names.join(" "), expected);
    let names: Vec<_> = binary(&plain()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.join(" "), "ce_id ce_source ce_specversion ce_type");
    assert_eq!(
        structured(&attributes, Data::Json(b"1")).unwrap(),
        "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/orders\",\"type\":\"order.paid\",\"subject\":\"o-7 ü\",\
         \"dataschema\":\"https://example.com/order\",\"datacontenttype\":\"application/json\",\
         \"time\":\"2018-04-05T17:31:00Z\",\"tenant\":true,\"data\":1}"
    );
}

#[test]
fn json_is_embedded_byte_for_byte() {
    for (json, embedded) in [
        (r#"{"b": 1e400,  "a":1.0, "a":123456789012345678901234567890}"#, None),
        ("\"\\u00e4\\/\"", None),
        ("null", None),
        (" [1,\n 2]\n", Some("[1,\n 2]")),
    ] {
        let written = structured(&plain(), Data::of(Some(json.as_bytes()), None)).unwrap();
        assert!(written.ends_with(&format!(",\"data\":{}}}", embedded.unwrap_or(json))), "{written}");
    }
    for broken in ["", "{", "{} {}", "nul", "\u{feff}1"] {
        let problem = structured(&plain(), Data::Json(broken.as_bytes())).unwrap_err();
        assert!(problem.starts_with("data is to be JSON and is not: "), "{problem}");
    }
    assert!(structured(&plain(), Data::Json(b"\"\xff\"")).is_err());
    assert!(structured(&plain(), Data::Text(b"\xff")).is_err());
}

#[test]
fn the_media_type_says_how_data_is_carried() {
    let data = |media: Option<&str>, bytes: &'static [u8]| match Data::of(Some(bytes), media.map(str::as_bytes)) {
        Data::Absent => "absent",
        Data::Json(_) => "json",
        Data::Text(_) => "text",
        Data::Bytes(_) => "bytes",
    };
    for (media, expected) in [
        (None, "json"),
        (Some("application/json"), "json"),
        (Some("Text/JSON; charset=utf-8"), "json"),
        (Some("application/vnd.order.v1+json"), "json"),
        (Some("application/jsonl"), "bytes"),
        (Some("application/xml"), "text"),
        (Some("image/svg+XML"), "text"),
        (Some("text/plain;charset=utf-8"), "text"),
        (Some("application/avro"), "bytes"),
        (Some("application/octet-stream"), "bytes"),
    ] {
        assert_eq!(data(media, b"1"), expected, "{media:?}");
    }
    assert_eq!(data(Some("text/plain"), b"\xff"), "bytes");
    assert!(matches!(Data::of(None, Some(b"application/json")), Data::Absent));
    for (bytes, expected) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
    {
        let written = structured(&plain(), Data::Bytes(bytes.as_bytes())).unwrap();
        assert!(written.ends_with(&format!(",\"data_base64\":\"{expected}\"}}")), "{written}");
    }
    let all: Vec<u8> = (0..=255).collect();
    assert!(
        structured(&plain(), Data::Bytes(&all)).unwrap().ends_with("+fr7/P3+/w==\"}"),
        "it is the alphabet with + and /"
    );
}

#[test]
fn what_the_specification_forbids_is_refused() {
    let long = [b'a'; 200];
    for (attributes, problem) in [
        (Attributes { id: b"", ..plain() }, "id is empty"),
        (Attributes { source: b"", ..plain() }, "source is empty"),
        (Attributes { kind: b"", ..plain() }, "type is empty"),
        (Attributes { subject: Some(b""), ..plain() }, "subject is empty"),
        (Attributes { id: b"a\nb", ..plain() }, "id has the character U+000A, which is not allowed"),
        (Attributes { id: "a\u{85}".as_bytes(), ..plain() }, "id has the character U+0085, which is not allowed"),
        (Attributes { kind: "\u{fdd0}".as_bytes(), ..plain() }, "type has the character U+FDD0, which is not allowed"),
        (
            Attributes { kind: "\u{1ffff}".as_bytes(), ..plain() },
            "type has the character U+1FFFF, which is not allowed",
        ),
        (Attributes { subject: Some(b"\xff"), ..plain() }, "subject is not UTF-8"),
        (Attributes { source: b"a b", ..plain() }, "source \"a b\" is not a URI reference"),
        (Attributes { dataschema: Some(b"order.json"), ..plain() }, "dataschema \"order.json\" is not an absolute URI"),
        (
            Attributes { dataschema: Some(b"https://a/b#c"), ..plain() },
            "dataschema \"https://a/b#c\" is not an absolute URI",
        ),
        (Attributes { datacontenttype: Some(b"json"), ..plain() }, "datacontenttype \"json\" is not a media type"),
        (Attributes { time: Some(Time::Text(b"today")), ..plain() }, "time \"today\" is not a time of RFC 3339"),
        (Attributes { time: Some(Time::Micros(i64::MAX)), ..plain() }, "time is not between the years 0000 and 9999"),
        (
            Attributes { dataschema: Some(&long), ..plain() },
            &format!("dataschema \"{}…\" is not an absolute URI", "a".repeat(60)),
        ),
    ] {
        assert_eq!(binary(&attributes).unwrap_err(), problem);
        assert_eq!(structured(&attributes, Data::Absent).unwrap_err(), problem);
    }
    let tenant = ExtensionName::new("tenant").unwrap();
    let extensions = vec![(&tenant, Extension::Text(b"a\0"))].into_iter();
    assert!(binary(&Attributes { extensions, ..plain() }).unwrap_err().starts_with("tenant has the character U+0000"));
    let within = Attributes { datacontenttype: Some(b"Application/CloudEvents+json"), ..plain() };
    assert!(binary(&within).unwrap_err().contains("says that an event is structured"));
    assert!(structured(&within, Data::Absent).is_ok());
}

#[test]
fn a_name_of_an_extension_is_letters_and_digits_and_not_taken() {
    for name in ["a", "0", "comexampleextension1", "partitionkey", "morethantwentycharactersisonlyadvice"] {
        assert_eq!(ExtensionName::new(name).unwrap().as_str(), name);
    }
    for name in
        ["", "A", "a_b", "a-b", "data_base64", "ä", "data", "id", "type", "time", "specversion", "datacontenttype"]
    {
        assert!(ExtensionName::new(name).is_err(), "{name}");
    }
}

#[test]
fn a_source_is_a_uri_reference() {
    // The first six are the specification's; then those of RFC 3986, sections 1.1.2 and 5.4.
    for good in [
        "https://github.com/cloudevents",
        "mailto:cncf-wg-serverless@lists.cncf.io",
        "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
        "/cloudevents/spec/pull/123",
        "/sensors/tn-1234567/alerts",
        "1-555-123-4567",
        "ftp://ftp.is.co.za/rfc/rfc1808.txt",
        "ldap://[2001:db8::7]/c=GB?objectClass?one",
        "news:comp.infosystems.www.servers.unix",
        "tel:+1-816-555-1212",
        "telnet://192.0.2.16:80/",
        "g:h",
        "./g",
        "//g",
        "?y",
        "g?y#s",
        "#s",
        ";x",
        "../..",
        "http:g",
        "https://user:pw@example.com:8080/a%20b?c=/?#d/?",
        "//example.com:",
        "a/b:c",
    ] {
        assert_eq!(check::uri_reference("source", good.as_bytes()), Ok(()), "{good}");
    }
    for bad in [
        "a b", "1:2", ":a", "a%2", "a%zz", "a#b#c", "ä", "<a>", "a\\b", "{a}", "a|b", "//[::1", "//[]", "//a:b/",
        "a[1]", "\"", "a^b",
    ] {
        assert!(check::uri_reference("source", bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_media_type_has_two_halves_and_parameters() {
    for good in
        ["application/json", "text/plain; charset=utf-8", "application/vnd.a.b+json;v=1;q=\"a;\\\"b\"", "a/b ; c=d"]
    {
        assert_eq!(check::media_type("m", good.as_bytes()), Ok(()), "{good}");
    }
    for bad in [
        "",
        "json",
        "/json",
        "application/",
        "a/b/c",
        "a b/c",
        "a/b;",
        "a/b; c",
        "a/b;c=",
        "a/b;c=\"d",
        "a/b;=d",
        "a/ü",
        "a/b; c=d e",
    ] {
        assert!(check::media_type("m", bad.as_bytes()).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_give_a_document(
        id in prop::collection::vec(any::<u8>(), 0..12), source in "[a-z:/?#@\\[\\]%0-9]{0,12}", subject in ".{0,8}",
        media in "[a-z/;=\" ]{0,10}", data in prop::collection::vec(any::<u8>(), 0..24), micros in any::<i64>(),
    ) {
        let attributes = Attributes {
            id: &id, source: source.as_bytes(), subject: Some(subject.as_bytes()), time: Some(Time::Micros(micros)),
            datacontenttype: Some(media.as_bytes()), ..plain()
        };
        let attributes = if media.len() % 2 == 0 { attributes } else { Attributes { id: b"1", datacontenttype: None, time: None, ..attributes } };
        let written = structured(&attributes, Data::of(Some(&data), attributes.datacontenttype));
        if let Ok(written) = written {
            let document = object(&written);
            prop_assert_eq!(document["source"].as_str(), Some(&*source));
            prop_assert_eq!(document["subject"].as_str(), Some(&*subject));
            prop_assert!(binary(&attributes).is_ok());
        }
    }

    #[test]
    fn text_comes_back_as_it_was(text in ".{0,20}") {
        let written = structured(&plain(), Data::Text(text.as_bytes())).unwrap();
        let document = object(&written);
        prop_assert_eq!(document["data"].as_str(), Some(&*text));
    }
}
