//! `route.cloudevents`: TOML enters, the attributes of a CloudEvent leave. Those that are the same for every row are held to
//! the specification here, by the room that writes them for each row; and no header of the route may be one once more.

use toml::de::DeValue;

use super::document::Reader;
use super::error::Fault;
use super::{CloudEvents, ContentMode, Pattern, Route, ValueForm, value};
use crate::cloudevents::{Attributes, Data, Extension, ExtensionName};

const TEXT: &str = "text without control characters";

/// One extension, or none.
type Extensions<'a> = std::option::IntoIter<(&'a ExtensionName, Extension<'a>)>;

/// Reads the table; `mode` is how the event travels, where the value is one.
pub(super) fn read(reader: &mut Reader<'_, '_>, mode: Option<ContentMode>) -> CloudEvents {
    let name = |name: &str| ExtensionName::new(name).map_err(Fault::new);
    let extension =
        |typed_name: &str, typed: &DeValue<'_>| Ok((name(typed_name)?, Pattern::parse(&value::any_text(typed)?)?));
    let attributes = CloudEvents {
        source: reader.pattern("source"),
        kind: reader.pattern("type"),
        subject: Some(reader.pattern("subject")),
        datacontenttype: reader.read("datacontenttype", value::any_text).filter(|text| !text.is_empty()),
        dataschema: reader.typed_pattern("dataschema"),
        extensions: reader.map("extensions", extension).into_iter().map(|(_, extension)| extension).collect(),
    };
    for (field, fault) in mode.into_iter().flat_map(|mode| faults(&attributes, mode)) {
        reader.refuse(field, fault);
    }
    attributes
}

/// What the specification has against attributes that are the same for every row. Each is tried in an event of which nothing
/// else is wrong; what depends on the row is tried with each row.
fn faults(attributes: &CloudEvents, mode: ContentMode) -> Vec<(&'static str, Fault)> {
    let CloudEvents { source, kind, subject, datacontenttype, dataschema, extensions } = attributes;
    let parts = impossible(attributes);
    let subject = subject.as_ref().and_then(Pattern::constant).map(str::as_bytes);
    let datacontenttype = datacontenttype.as_ref().map(String::as_bytes);
    let dataschema = dataschema.as_ref().and_then(Pattern::constant).map(str::as_bytes);
    let source = source.constant().unwrap_or("/").as_bytes();
    let kind = kind.constant().unwrap_or("e").as_bytes();
    let tried = [
        ("source", "for example \"/orders\" or \"https://shop.example/orders\"", Attributes { source, ..event(None) }),
        ("type", TEXT, Attributes { kind, ..event(None) }),
        ("subject", TEXT, Attributes { subject, ..event(None) }),
        (
            "datacontenttype",
            "for example \"application/json\"; empty for none",
            Attributes { datacontenttype, ..event(None) },
        ),
        ("dataschema", "for example \"https://shop.example/order.json\"", Attributes { dataschema, ..event(None) }),
    ];
    let extensions = extensions.iter().map(|(name, pattern)| {
        let text = pattern.constant().map(|text| (name, Extension::Text(text.as_bytes())));
        ("extensions", TEXT, event(text))
    });
    let faults = tried.into_iter().chain(extensions).filter_map(|(field, hint, event)| {
        let problem = judge(&event, mode).err()?;
        // The field is named by its path already.
        let what = problem.strip_prefix(field).map_or(problem.as_str(), str::trim_start);
        Some((field, Fault::new(what).hint(hint)))
    });
    faults.chain(parts).collect()
}

/// What stands beside columns, and makes the attribute wrong whatever they bring.
fn impossible(attributes: &CloudEvents) -> Vec<(&'static str, Fault)> {
    let CloudEvents { source, kind, subject, datacontenttype: _, dataschema, extensions } = attributes;
    let uris = [("source", Some(source)), ("dataschema", dataschema.as_ref())]
        .map(|part| (part, is_no_uri as fn(char) -> bool));
    let texts = [("type", Some(kind)), ("subject", subject.as_ref())].into_iter();
    let texts = texts.chain(extensions.iter().map(|(_, pattern)| ("extensions", Some(pattern))));
    let texts = texts.map(|part| (part, char::is_control as fn(char) -> bool));
    let faults = uris.into_iter().chain(texts).filter_map(|((field, pattern), is_wrong)| {
        // One that is the same for every row has been judged as a whole.
        let pattern = pattern.filter(|pattern| pattern.constant().is_none())?;
        let wrong = pattern.texts().into_iter().flat_map(str::chars).find(|char| is_wrong(*char))?;
        let what =
            format!("\"{}\" has {}, which it cannot have", pattern.to_string().escape_debug(), wrong.escape_unicode());
        Some((field, Fault::new(what).hint("what a column brings is checked with each row")))
    });
    faults.collect()
}

/// No URI has it, wherever it stands.
fn is_no_uri(char: char) -> bool {
    char.is_control() || !char.is_ascii() || " \"<>\\^`{|}".contains(char)
}

/// An event of which nothing is wrong.
fn event<'a>(extension: Option<(&'a ExtensionName, Extension<'a>)>) -> Attributes<'a, Extensions<'a>> {
    Attributes {
        id: b"1",
        source: b"/",
        kind: b"e",
        subject: None,
        time: None,
        datacontenttype: None,
        dataschema: None,
        extensions: extension.into_iter(),
    }
}

/// Writes it as it would be written for a row, to nowhere.
fn judge<'a>(event: &Attributes<'a, Extensions<'a>>, mode: ContentMode) -> Result<(), String> {
    match mode {
        ContentMode::Binary => event.write_binary(&mut Default::default()),
        ContentMode::Structured => event.write_structured(Data::Absent, &mut Default::default(), &mut Vec::new()),
    }
}

/// Headers of a route whose value is a CloudEvent, which has them already. An extension may be a header, too, if nothing else says it.
pub(super) fn doubled(route: &Route) -> Vec<(&'static str, Fault)> {
    let Some(ValueForm::CloudEvents(mode, attributes)) = &route.value else { return Vec::new() };
    let has = |wanted: &str| attributes.extensions.iter().any(|(name, _)| name.as_str() == wanted);
    // Without one of the attributes, the payload's type may be each row's own.
    let is_free = |name: &str| {
        *mode == ContentMode::Binary
            && attributes.datacontenttype.is_none()
            && name.eq_ignore_ascii_case("content-type")
    };
    let patterns = route.headers.iter().map(|(name, _)| ("headers", name));
    let rendered = route.header_templates.iter().map(|(name, _)| ("header_templates", name));
    let faults = patterns.chain(rendered).filter(|(_, name)| !is_free(name)).filter_map(|(field, name)| {
        let hint = instead(name, *mode, has)?;
        Some((field, Fault::new(format!("\"{name}\" is a header that a CloudEvent has by itself")).hint(hint)))
    });
    faults.collect()
}

/// What says the attribute that this header is; none where it is no attribute's.
fn instead(header: &str, mode: ContentMode, has_extension: impl Fn(&str) -> bool) -> Option<String> {
    let header = header.to_ascii_lowercase();
    let attribute = match (header.as_str(), mode) {
        ("content-type", ContentMode::Binary) => "datacontenttype",
        ("content-type", ContentMode::Structured) => {
            let hint = "it says that the event is structured; the payload's is datacontenttype in cloudevents";
            return Some(hint.to_owned());
        }
        (header, ContentMode::Binary) => header.strip_prefix("ce_")?,
        (_, ContentMode::Structured) => return None,
    };
    Some(match attribute {
        "id" => "it is the event's id: columns = { id = \"…\" } of the [[outbox]] names its column".to_owned(),
        "time" => "it is the record's time: timestamp = \"…\" of the [[route]] says which".to_owned(),
        "specversion" => "it is always 1.0".to_owned(),
        "source" | "type" | "subject" | "datacontenttype" | "dataschema" => {
            format!("cloudevents = {{ {attribute} = \"…\" }} says it")
        }
        extension if has_extension(extension) => {
            format!("cloudevents = {{ extensions = {{ {extension} = \"…\" }} }} says it")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    /// What is said of a route; nothing when it is taken.
    fn said(route: &str) -> String {
        let text = format!("[postgres]\nurl = \"postgres://a@b/c\"\n[kafka]\nbrokers = \"b:1\"\n[[route]]\n{route}\n");
        Config::from_toml(&text, "o.toml", std::iter::empty()).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn an_attribute_that_no_event_can_have_is_refused_at_the_start() {
        for mode in ["binary", "structured"] {
            for (attributes, expected) in [
                ("dataschema = 'rel/uri'", "dataschema: \"rel/uri\" is not an absolute URI\n  hint: for example"),
                ("source = '/x y'", "source: \"/x y\" is not a URI reference\n  hint: for example"),
                ("datacontenttype = 'nonsense'", "datacontenttype: \"nonsense\" is not a media type\n  hint: for "),
                ("type = \"a\\u0007\"", "type: has the character U+0007"),
                ("subject = \"a\\u0007\"", "subject: has the character U+0007"),
                ("extensions = { tenant = \"a\\u0007\" }", "extensions: tenant has the character U+0007"),
                ("source = '/my shop/{id}'", "source: \"/my shop/{id}\" has \\u{20}, which it cannot have"),
                ("source = '{a|/my shop}'", "source: \"{a|/my shop}\" has \\u{20}"),
                ("type = \"{a}\\u0007\"", "type: \"{a}\\u{7}\" has \\u{7}"),
            ] {
                let told = said(&format!("value = 'cloudevents-{mode}'\ncloudevents = {{ {attributes} }}"));
                assert!(told.contains(&format!("route.cloudevents.{expected}")), "{attributes}: {told}");
                assert!(!told.contains("\nerror: "), "{attributes}: {told}");
            }
            for attributes in [
                "",
                "source = '/x', type = 'a b', subject = 's', dataschema = 'https://x/y'",
                "source = '{a}', dataschema = '{b}', extensions = { tenant = '{c}', region = '' }",
                "datacontenttype = ''",
                "datacontenttype = 'text/plain; charset=utf-8'",
            ] {
                let told = said(&format!("value = 'cloudevents-{mode}'\ncloudevents = {{ {attributes} }}"));
                assert_eq!(told, "", "{attributes}");
            }
        }
        // Only in binary mode is it the record's own.
        let reserved = "cloudevents = { datacontenttype = 'application/cloudevents+json' }";
        let told = said(&format!("value = 'cloudevents-binary'\n{reserved}"));
        assert!(told.contains("datacontenttype: begins with application/cloudevents"), "{told}");
        assert_eq!(said(&format!("value = 'cloudevents-structured'\n{reserved}")), "");
    }

    #[test]
    fn no_header_is_an_attribute_of_the_cloudevent_once_more() {
        for (header, hint) in [
            ("ce_id", "columns = { id = \"…\" }"),
            ("CE_Id", "columns = { id = \"…\" }"),
            ("ce_time", "timestamp = \"…\""),
            ("ce_specversion", "it is always 1.0"),
            ("ce_source", "cloudevents = { source = \"…\" }"),
            ("Content-Type", "cloudevents = { datacontenttype = \"…\" }"),
        ] {
            let told = said(&format!("value = 'cloudevents-binary'\nheaders = {{ {header} = 'x', other = 'y' }}"));
            let what = format!("route.headers: \"{header}\" is a header that a CloudEvent has by itself\n  hint: ");
            assert!(told.contains(&what) && told.contains(hint) && !told.contains("other"), "{header}: {told}");
        }
        let both = "headers = { ce_id = 'x', content-type = 'y' }";
        let told = said(&format!("value = 'cloudevents-structured'\n{both}"));
        assert!(told.contains("\"content-type\" is a header") && told.contains("the payload's is"), "{told}");
        assert!(!told.contains("ce_id"), "{told}");
        let rendered = said("value = 'cloudevents-binary'\nheader_templates = { content-type = 't' }");
        assert!(rendered.contains("route.header_templates: \"content-type\""), "{rendered}");
        assert_eq!(said(both), "", "of another value they are headers like others");
        let own = "cloudevents = { datacontenttype = '' }\nheaders = { content-type = '{media}' }";
        assert_eq!(said(&format!("value = 'cloudevents-binary'\n{own}")), "", "each row's own");
        assert_eq!(said("value = 'cloudevents-binary'\nheaders = { tenant = 'x', cegid = 'y' }"), "");
        let tenant = "value = 'cloudevents-binary'\nheader_templates = { ce_tenant = 't', ce_trace_id = 't' }";
        assert!(!said(tenant).contains("by itself"), "nothing else says these");
        let told = said(&format!("{tenant}\ncloudevents = {{ extensions = {{ tenant = 'x' }} }}"));
        assert!(told.contains("\"ce_tenant\" is a header") && told.contains("{ extensions = { tenant ="), "{told}");
    }
}
