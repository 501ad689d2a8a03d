//! Rows as each system inserts them, and the records that they become.

use crate::config::{self, Config, System};
use crate::dead_letter::Rejection;
use crate::lsn::Lsn;
use crate::route::Router;
use crate::source::outbox::{Layout, Outbox, Step};
use crate::source::pgoutput::{self, Message};

const INT8: u32 = 20;
const TEXT: u32 = 25;
const JSON: u32 = 114;
const BYTEA: u32 = 17;
const INT2: u32 = 21;
const UUID: u32 = 2950;
const JSONB: u32 = 3802;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const TEXTS: u32 = 1009;

/// 2000-01-02 03:04:05.678901
const COMMITTED_AT: i64 = 97_445_678_901;

/// A record that outlives its row.
#[derive(Debug, PartialEq)]
struct Made {
    topic: String,
    key: Option<String>,
    partition: Option<i32>,
    value: Option<String>,
    headers: Vec<(String, Option<String>)>,
    timestamp_ms: Option<i64>,
}

/// A column's name, type and text.
type Cell<'a> = (&'a str, u32, Option<&'a str>);

/// Makes the record of a row of this preset's table, with the routes that are typed.
fn make(preset: &str, routes: &str, columns: &[Cell<'_>]) -> Result<Made, Rejection> {
    make_of("my_outbox_items", preset, routes, columns)
}

fn make_of(table: &str, preset: &str, routes: &str, columns: &[Cell<'_>]) -> Result<Made, Rejection> {
    let text = format!(
        "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\ntable = 'app.\"{table}\"'\n\
         preset = '{preset}'\n{routes}"
    );
    let mut config = Config::from_toml(&text, "test", std::iter::empty()).unwrap_or_else(|error| panic!("{error}"));
    // A router sees rows that are joined already.
    config.outbox[0].join = None;
    let mut layout = Layout::default();
    let mut router = Router::new(&config.rules, &config.outbox, &mut layout);
    let mut outbox = Outbox::new(&config.outbox, layout);
    let begin = Message::Begin { commit_lsn: Lsn(9), committed_at: COMMITTED_AT, xid: 1 };
    assert!(matches!(outbox.read(begin, b"").unwrap(), Step::Nothing));
    let relation = relation(table, columns);
    outbox.read(pgoutput::decode(&relation).unwrap(), &relation).unwrap();
    let insert = insert(columns);
    let row = match outbox.read(pgoutput::decode(&insert).unwrap(), &insert).unwrap() {
        Step::Row(row) => row,
        other => panic!("a row, not {other:?}"),
    };
    let record = router.route(&row).map_err(|rejected| rejected.rejection)?;
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text.to_owned(),
        Ok(_) | Err(_) => format!("{bytes:?}"),
    };
    Ok(Made {
        topic: record.topic.to_owned(),
        key: record.key.map(text),
        partition: record.partition,
        value: record.value.map(text),
        headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.map(text))).collect(),
        timestamp_ms: record.timestamp_ms,
    })
}

fn relation(table: &str, columns: &[Cell<'_>]) -> Vec<u8> {
    let mut body = [b"R", &1u32.to_be_bytes()[..], b"app\0", table.as_bytes(), b"\0d"].concat();
    body.extend((columns.len() as u16).to_be_bytes());
    for (name, oid, _) in columns {
        body.extend([b"\0", name.as_bytes(), b"\0", &oid.to_be_bytes()[..], &[0xFF; 4]].concat());
    }
    body
}

fn insert(columns: &[Cell<'_>]) -> Vec<u8> {
    let mut body = [b"I", &1u32.to_be_bytes()[..], b"N", &(columns.len() as u16).to_be_bytes()].concat();
    for (_, _, text) in columns {
        match text {
            Some(text) => body.extend([b"t", &(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()),
            None => body.push(b'n'),
        }
    }
    body
}

/// The row with some of its columns changed.
fn with<'a>(columns: &[Cell<'a>], changes: &[(&str, Option<&'a str>)]) -> Vec<Cell<'a>> {
    let mut columns = columns.to_vec();
    for (changed, text) in changes {
        let column = columns.iter_mut().find(|(name, _, _)| name == changed).expect("the column is there");
        column.2 = *text;
    }
    columns
}

fn rejection(preset: &str, routes: &str, columns: &[Cell<'_>]) -> (&'static str, String) {
    let Rejection { reason, message } = make(preset, routes, columns).unwrap_err();
    (reason, message)
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
}

const EVENTUATE: [Cell<'_>; 7] = [
    ("id", TEXT, Some("0-1")),
    ("destination", TEXT, Some("Order")),
    ("headers", TEXT, Some(r#"{"ID":"0-1","PARTITION_ID":"7","event-type":"Paid","n":1.10}"#)),
    ("payload", TEXT, Some("{\"é\":\"\\n\"}\n")),
    ("published", INT2, Some("0")),
    ("message_partition", INT2, None),
    ("creation_time", INT8, Some("1794801960000")),
];

#[test]
fn eventuate_puts_payload_and_headers_into_the_value() {
    let made = make("eventuate", "", &EVENTUATE).unwrap();
    let value = concat!(
        r#"{"payload":"{\"é\":\"\\n\"}\n","#,
        r#""headers":{"ID":"0-1","PARTITION_ID":"7","event-type":"Paid","n":1.10}}"#
    );
    let expected = Made {
        topic: "Order".into(),
        key: Some("7".into()),
        partition: None,
        value: Some(value.into()),
        headers: vec![],
        timestamp_ms: None,
    };
    assert_eq!(made, expected);
    let unkeyed = with(&EVENTUATE, &[("headers", Some(r#" {"ID":"a\u0062"} "#)), ("published", None)]);
    let made = make("eventuate", "", &unkeyed).unwrap();
    assert_eq!(made.key.as_deref(), Some("ab"));
    assert!(made.value.unwrap().ends_with(r#","headers":{"ID":"a\u0062"}}"#));
}

#[test]
fn a_route_that_says_which_payload_is_none_leaves_the_others_to_the_preset() {
    let usual = make("eventuate", "", &EVENTUATE).unwrap();
    for tombstone in ["null", "empty"] {
        let route = format!("[[route]]\ntombstone = '{tombstone}'");
        assert_eq!(make("eventuate", &route, &EVENTUATE).unwrap(), usual);
    }
    let blank = with(&EVENTUATE, &[("payload", Some(" "))]);
    assert_eq!(make("eventuate", "[[route]]\ntombstone = 'empty'", &blank).unwrap().value, None);
    assert!(make("eventuate", "[[route]]\ntombstone = 'null'", &blank).unwrap().value.is_some());
}

#[test]
fn an_eventuate_message_that_cannot_be_one_is_rejected() {
    for (column, text, reason, message) in [
        ("destination", Some("a b"), "topic", "is not a valid topic name"),
        ("headers", Some("{"), "key", "its key needs headers that are a JSON object: EOF"),
        ("headers", Some("[1]"), "key", "its key needs headers that are a JSON object: invalid type"),
        ("headers", Some("{}"), "key", "its key needs a header PARTITION_ID or ID, and there is neither"),
        ("headers", Some(r#"{"PARTITION_ID":"7"}"#), "value", "its headers have no ID"),
        ("headers", None, "key", "its key needs column \"headers\", which is NULL"),
        ("published", Some("1"), "headers", "published already"),
    ] {
        let (found, words) = rejection("eventuate", "", &with(&EVENTUATE, &[(column, text)]));
        assert_eq!(found, reason, "{words}");
        assert!(words.contains(message), "{words}");
    }
}

const GOHARVEST: [Cell<'_>; 8] = [
    ("id", INT8, Some("12")),
    ("create_time", TIMESTAMPTZ, Some("2026-11-16 04:06:00+00")),
    ("kafka_topic", TEXT, Some("orders")),
    ("kafka_key", TEXT, Some("k")),
    ("kafka_value", TEXT, Some("v")),
    ("kafka_header_keys", TEXTS, Some(r#"{a,"b c",a}"#)),
    ("kafka_header_values", TEXTS, Some(r#"{"q\"\\,é",NULL,""}"#)),
    ("leader_id", UUID, None),
];

#[test]
fn goharvest_has_a_column_for_every_part() {
    let made = make("goharvest", "", &GOHARVEST).unwrap();
    let mut expected = headers(&[("a", "q\"\\,é"), ("b c", ""), ("a", "")]);
    expected[1].1 = None;
    assert_eq!(made.headers, expected);
    assert_eq!((made.topic.as_str(), made.key.as_deref(), made.value.as_deref()), ("orders", Some("k"), Some("v")));
    assert_eq!((made.timestamp_ms, made.partition), (None, None));
    let bare = [("kafka_value", None), ("kafka_header_keys", Some("{}")), ("kafka_header_values", Some("{}"))];
    let made = make("goharvest", "", &with(&GOHARVEST, &bare)).unwrap();
    assert_eq!((made.value, made.headers), (None, vec![]));
}

#[test]
fn goharvest_headers_that_do_not_pair_are_rejected() {
    for (keys, values, message) in [
        ("{a}", "{}", "more names than values"),
        ("{}", "{a}", "more values than names"),
        ("{NULL}", "{a}", "its kafka_header_keys has a NULL"),
        ("{{a}}", "{a}", "its kafka_header_keys is not an array of texts"),
        ("{a}", "x", "its kafka_header_values \"x\" is not an array"),
    ] {
        let row = with(&GOHARVEST, &[("kafka_header_keys", Some(keys)), ("kafka_header_values", Some(values))]);
        let (reason, words) = rejection("goharvest", "", &row);
        assert_eq!(reason, "headers");
        assert!(words.contains(message), "{words}");
    }
    let (reason, words) = rejection("goharvest", "", &with(&GOHARVEST, &[("kafka_key", None)]));
    assert_eq!((reason, words.as_str()), ("key", "its key needs column \"kafka_key\", which is NULL"));
}

const TOMORROW_ONE: [Cell<'_>; 7] = [
    ("id", INT8, Some("258")),
    ("created", TIMESTAMP, Some("2026-11-16 04:06:00")),
    ("processed", TIMESTAMP, None),
    ("topic", TEXT, Some("orders")),
    ("key", TEXT, Some("k")),
    ("value", BYTEA, Some("\\x00ff")),
    ("headers", JSONB, Some(r#"{"x-value-type": "a.B", "_internal_:t": "1"}"#)),
];
const SOURCE: &str = "[[route]]\nheaders = { x-source = 'shop' }";

#[test]
fn tomorrow_one_numbers_its_records_in_eight_bytes() {
    let made = make("tomorrow-one", SOURCE, &TOMORROW_ONE).unwrap();
    let expected = [("x-value-type", "a.B"), ("x-sequence", "[0, 0, 0, 0, 0, 0, 1, 2]"), ("x-source", "shop")];
    assert_eq!(made.headers, headers(&expected));
    assert_eq!((made.key.as_deref(), made.value.as_deref()), (Some("k"), Some("[0, 255]")));
    let made = make("tomorrow-one", SOURCE, &with(&TOMORROW_ONE, &[("key", None), ("headers", None)])).unwrap();
    assert_eq!((made.key, made.headers.len(), made.timestamp_ms), (None, 2, None));
}

#[test]
fn tomorrow_one_goes_without_a_source_that_no_route_names() {
    let made = make("tomorrow-one", "", &TOMORROW_ONE).unwrap();
    let expected = [("x-value-type", "a.B"), ("x-sequence", "[0, 0, 0, 0, 0, 0, 1, 2]")];
    assert_eq!((made.topic.as_str(), made.headers), ("orders", headers(&expected)));
    let (_, words) = rejection("tomorrow-one", SOURCE, &with(&TOMORROW_ONE, &[("headers", Some("3"))]));
    assert!(words.starts_with("its headers column is not a JSON object: invalid type"), "{words}");
    let text = [("id", TEXT, Some("a")), TOMORROW_ONE[1], TOMORROW_ONE[3], TOMORROW_ONE[4], TOMORROW_ONE[5]];
    let (_, words) = rejection("tomorrow-one", SOURCE, &text);
    assert_eq!(words, "its id \"a\" is not a number, as x-sequence needs it");
}

const CAP: [Cell<'_>; 8] = [
    ("Id", INT8, Some("77")),
    ("Version", TEXT, Some("v1")),
    ("Name", TEXT, Some("shop.paid")),
    ("Content", TEXT, Some(r#"{"Headers":{"cap-callback-name":null,"cap-msg-id":"77","n":1},"Value":{"N":1.10}}"#)),
    ("Retries", INT8, Some("0")),
    ("Added", TIMESTAMP, Some("2026-11-16 04:06:00")),
    ("ExpiresAt", TIMESTAMP, None),
    ("StatusName", TEXT, Some("Scheduled")),
];

#[test]
fn cap_sends_its_headers_and_its_value_alone() {
    let made = make("cap", "", &CAP).unwrap();
    let mut expected = headers(&[("cap-callback-name", ""), ("cap-msg-id", "77"), ("n", "1")]);
    expected[0].1 = None;
    assert_eq!(made.headers, expected);
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("shop.paid", Some("77")));
    assert_eq!((made.value.as_deref(), made.timestamp_ms), (Some(r#"{"N":1.10}"#), None));
    for (content, key, value) in [
        (r#"{"Headers":{"cap-msg-id":"1","cap-kafka-key":"k"},"Value":"text"}"#, "k", Some("\"text\"")),
        (r#"{"Headers":{"cap-kafka-key":"","cap-msg-id":"1"},"Value":null}"#, "1", None),
        (r#"{"value":2,"headers":{"cap-msg-id":"1"}}"#, "1", Some("2")),
    ] {
        let made = make("cap", "", &with(&CAP, &[("Content", Some(content))])).unwrap();
        assert_eq!((made.key.as_deref(), made.value.as_deref()), (Some(key), value), "{content}");
    }
}

#[test]
fn cap_content_that_is_none_is_rejected() {
    for (content, message) in [
        (None, "its key is not known: it needs column \"Content\", which is NULL"),
        (Some("{"), "its key is not known: its Content is not a JSON object: EOF"),
        (Some("{}"), "its key is not known: its Content has no Headers"),
        (Some(r#"{"Headers":3}"#), "its key is not known: its Content's Headers is not a JSON object"),
        (Some(r#"{"Headers":{}}"#), "its key needs a header cap-kafka-key or cap-msg-id, and there is neither"),
    ] {
        let (reason, words) = rejection("cap", "", &with(&CAP, &[("Content", content)]));
        assert_eq!(reason, "key");
        assert!(words.starts_with(message), "{words}");
    }
    let (_, words) = rejection("cap", "", &with(&CAP, &[("StatusName", Some("Delayed"))]));
    assert!(words.starts_with("it is for later"), "{words}");
}

const WATERMILL: [Cell<'_>; 5] = [
    ("offset", INT8, Some("1")),
    ("uuid", TEXT, Some("u-1")),
    ("created_at", TIMESTAMP, Some("2026-11-16 04:06:00")),
    ("payload", JSON, Some(r#"{"n" :1.10}"#)),
    ("metadata", JSON, Some(r#"{"name":"Paid"}"#)),
];
const TO_ORDERS: &str = "[[route]]\ntopic = 'orders'";
/// No row has this column.
const ELSEWHERE: &str = "[[route]]\nmatch = { nowhere = 'x' }\ntopic = 'elsewhere'";

#[test]
fn watermill_sends_a_message_where_the_route_says() {
    let made = make("watermill", TO_ORDERS, &WATERMILL).unwrap();
    let expected = Made {
        topic: "orders".into(),
        key: None,
        partition: None,
        value: Some(r#"{"n" :1.10}"#.into()),
        headers: headers(&[("_watermill_message_uuid", "u-1"), ("name", "Paid")]),
        timestamp_ms: None,
    };
    assert_eq!(made, expected);
    let made = make("watermill", TO_ORDERS, &with(&WATERMILL, &[("payload", None), ("metadata", None)])).unwrap();
    assert_eq!((made.value, made.headers.len()), (None, 1));
    let (reason, words) = rejection("watermill", ELSEWHERE, &WATERMILL);
    assert_eq!(
        (reason, words.as_str()),
        ("topic", "its topic stands in no column: write topic = \"…\" in a [[route]]")
    );
    let taken = with(&WATERMILL, &[("metadata", Some(r#"{"_watermill_message_uuid":"x"}"#))]);
    let (_, words) = rejection("watermill", TO_ORDERS, &taken);
    assert!(words.contains("its metadata has _watermill_message_uuid"), "{words}");
    let (_, words) = rejection("watermill", TO_ORDERS, &with(&WATERMILL, &[("metadata", Some("[]"))]));
    assert!(words.starts_with("its metadata is not a JSON object"), "{words}");
}

#[test]
fn watermill_names_its_tables_after_their_topics() {
    let topic = |table: &str, routes| make_of(table, "watermill", routes, &WATERMILL).map(|made| made.topic);
    assert_eq!(topic("watermill_shop.orders", "").as_deref(), Ok("shop.orders"));
    assert_eq!(topic("watermill_shop.orders", TO_ORDERS).as_deref(), Ok("orders"));
    // PostgreSQL cuts longer names off at 63 bytes: then the rest of the topic is not known.
    let long = format!("watermill_{}", "t".repeat(53));
    assert!(topic(&long[..62], "").is_ok());
    assert_eq!(topic(&long, ELSEWHERE).unwrap_err().reason, "topic");
}

#[test]
fn a_table_whose_topic_nobody_knows_is_refused_at_start_with_the_line_to_write() {
    let base = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\n";
    let read = |more: &str| Config::from_toml(&format!("{base}{more}"), "f.toml", std::iter::empty());
    let long = format!("watermill_{}", "t".repeat(53));
    for (preset, table) in [("sbmt-outbox", "my_outbox_items"), ("watermill", "messages"), ("watermill", &long)] {
        let block = format!("preset = '{preset}'\ntable = '{table}'\n");
        let told = read(&block).unwrap_err().to_string();
        let what = format!("f.toml:5: outbox: nothing says to which topic the events of public.{table} go");
        let hint = format!("add a [[route]] with outbox = \"public.{table}\" and topic = \"…\"");
        assert!(told.starts_with(&what) && told.contains(&hint), "{told}");
        assert!(read(&format!("{block}[[route]]\nkey = 'x'")).is_err(), "a route that names none does not help");
        assert!(read(&format!("{block}{TO_ORDERS}")).is_ok() && read(&format!("{block}{ELSEWHERE}")).is_ok());
    }
}

#[test]
fn a_sample_of_rows_goes_to_the_topic_of_their_table() {
    let text = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\ntable = 'watermill_orders'\n\
                preset = 'watermill'\n[[route]]\noutbox = 'watermill_orders'\nkey = 'k'";
    let config = Config::from_toml(text, "test", std::iter::empty()).unwrap();
    let event = br#"{"uuid": "u", "payload": {}}"#;
    let made = crate::route::sample(&config.rules, &config.outbox[0], event, 0).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("orders", Some(&b"k"[..])));
}

#[test]
fn watermills_forwarder_opens_its_envelope() {
    let make = |envelope: Option<&str>| make("watermill-forwarder", "", &with(&WATERMILL, &[("payload", envelope)]));
    let envelope = r#"{"destination_topic":"orders","uuid":"m-1","payload":"AP8=","metadata":{"name":"Paid"}}"#;
    let made = make(Some(envelope)).unwrap();
    assert_eq!((made.topic.as_str(), made.key, made.value.as_deref()), ("orders", None, Some("[0, 255]")));
    assert_eq!(made.headers, headers(&[("_watermill_message_uuid", "m-1"), ("name", "Paid")]));
    let value = |payload: &str| {
        let envelope = format!(r#"{{"destination_topic":"o","uuid":"m","payload":{payload},"metadata":null}}"#);
        make(Some(&envelope)).unwrap().value
    };
    assert_eq!((value("null"), value("\"\"").as_deref()), (None, Some("")));
    for (envelope, message) in [
        (None, "its topic is not known: it needs column \"payload\", which is NULL"),
        (Some("{"), "its topic is not known: its payload, the forwarder's envelope, is not a JSON object"),
        (Some("{}"), "its topic needs destination_topic in the forwarder's envelope, which has none"),
        (Some(r#"{"destination_topic":"o"}"#), "the forwarder's envelope has no uuid"),
        (
            Some(r#"{"destination_topic":"o","uuid":"m","payload":"?"}"#),
            "the payload in the forwarder's envelope is not base64",
        ),
        (
            Some(r#"{"destination_topic":"o","uuid":"m","payload":{}}"#),
            "the payload in the forwarder's envelope is not a string",
        ),
    ] {
        let words = make(envelope).unwrap_err().message;
        assert!(words.starts_with(message), "{words}");
    }
}

const BRIGHTER: [Cell<'_>; 20] = [
    ("id", INT8, Some("1")),
    ("messageid", TEXT, Some("m-1")),
    ("topic", TEXT, Some("orders")),
    ("messagetype", TEXT, Some("MT_EVENT")),
    ("timestamp", TIMESTAMPTZ, Some("2026-11-16 04:06:07.1239+00")),
    ("correlationid", TEXT, Some("c")),
    ("replyto", TEXT, Some("")),
    ("contenttype", TEXT, Some("application/json")),
    ("partitionkey", TEXT, Some("p")),
    ("dispatched", TIMESTAMPTZ, None),
    ("headerbag", TEXT, Some(r#"{"s":"x","n":1.5,"b":true,"Topic":"no"}"#)),
    ("body", TEXT, Some("{}")),
    ("source", TEXT, Some("http://shop/")),
    ("type", TEXT, Some("paid")),
    ("dataschema", TEXT, None),
    ("subject", TEXT, Some("s")),
    ("traceparent", TEXT, Some("")),
    ("tracestate", TEXT, None),
    ("baggage", TEXT, Some("a=b")),
    ("specversion", TEXT, Some("1.0")),
];

#[test]
fn brighter_has_its_own_headers_those_of_cloudevents_and_the_bag() {
    let made = make("brighter", "", &BRIGHTER).unwrap();
    let expected = [
        ("MessageType", "MT_EVENT"),
        ("Topic", "orders"),
        ("MessageId", "m-1"),
        ("TimeStamp", "11/16/2026 04:06:07"),
        ("ContentType", "application/json"),
        ("CorrelationId", "c"),
        ("PartitionKey", "p"),
        ("x-delay", "0"),
        ("HandledCount", "0"),
        ("ce_id", "m-1"),
        ("ce_specversion", "1.0"),
        ("ce_type", "paid"),
        ("ce_source", "http://shop/"),
        ("ce_time", "2026-11-16T04:06:07.123Z"),
        ("ce_subject", "s"),
        ("baggage", "a=b"),
        ("content-type", "application/json"),
        ("s", "x"),
        ("n", "1.5"),
        ("b", "True"),
    ];
    assert_eq!(made.headers, headers(&expected));
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("orders", Some("p")));
    assert_eq!((made.value.as_deref(), made.timestamp_ms), (Some("{}"), None));
}

#[test]
fn a_brighter_table_of_version_9_and_nulls_will_do() {
    let old = with(&BRIGHTER[..12], &[("partitionkey", None), ("timestamp", None), ("headerbag", None)]);
    let made = make("brighter", "", &old).unwrap();
    assert_eq!(made.key, None);
    let header = |wanted: &str| made.headers.iter().find(|(name, _)| name == wanted).unwrap().1.as_deref();
    assert_eq!(header("ce_source"), Some("http://goparamore.io/"));
    assert_eq!((header("ce_type"), header("ce_specversion")), (Some(""), Some("1.0")));
    assert_eq!(header("TimeStamp"), Some("01/02/2000 03:04:05"), "the commit's");
    let (_, words) = rejection("brighter", "", &with(&BRIGHTER, &[("headerbag", Some("nothing"))]));
    assert!(words.starts_with("its headerbag is not a JSON object"), "{words}");
    let (_, words) = rejection("brighter", "", &with(&BRIGHTER, &[("topic", None)]));
    assert_eq!(words, "its topic needs column \"topic\", which is NULL");
}

const SBMT: [Cell<'_>; 6] = [
    ("id", INT8, Some("5")),
    ("uuid", UUID, Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    ("event_key", TEXT, Some("e")),
    ("options", JSONB, None),
    ("payload", BYTEA, Some("\\x61")),
    ("created_at", TIMESTAMP, Some("2026-11-16 04:06:00.5")),
];

#[test]
fn sbmt_merges_the_rows_headers_over_its_five() {
    let made = make("sbmt-outbox", TO_ORDERS, &SBMT).unwrap();
    let five = [
        ("Outbox-Name", "my_outbox_item"),
        ("Idempotency-Key", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("Sequence-ID", "5"),
        ("Created-At", "2026-11-16T04:06:00.500000+00:00"),
        ("Dispatched-At", "2000-01-02T03:04:05.678901+00:00"),
    ];
    assert_eq!(made.headers, headers(&five));
    assert_eq!((made.key, made.partition, made.value.as_deref()), (None, None, Some("a")));
    let options = r#"{"key": "k", "partition": 3, "timestamp": 1794801960000, "topic": "ignored",
        "headers": {"more": "1", "Sequence-ID": "other"}}"#;
    let made = make("sbmt-outbox", TO_ORDERS, &with(&SBMT, &[("options", Some(options))])).unwrap();
    let mut expected = headers(&five);
    expected[2].1 = Some("other".into());
    expected.push(("more".into(), Some("1".into())));
    assert_eq!(made.headers, expected);
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("orders", Some("k")));
    assert_eq!((made.partition, made.timestamp_ms), (Some(3), Some(1_794_801_960_000)));
}

#[test]
fn sbmt_options_that_cannot_be_followed_are_rejected() {
    for (options, reason, message) in [
        ("[]", "key", "its key is not known: its options column is not a JSON object"),
        (r#"{"partition_key": "p"}"#, "key", "write key = \"…\" in a [[route]]"),
        (r#"{"headers": 1}"#, "headers", "its options.headers is not a JSON object"),
        (r#"{"partition": -1}"#, "partition", "its partition \"-1\" is not a partition number"),
        (r#"{"timestamp": "now"}"#, "timestamp", "its options.timestamp \"now\" is not a count of milliseconds"),
    ] {
        let (found, words) = rejection("sbmt-outbox", TO_ORDERS, &with(&SBMT, &[("options", Some(options))]));
        assert_eq!(found, reason, "{words}");
        assert!(words.contains(message), "{words}");
    }
    let (reason, words) = rejection("sbmt-outbox", ELSEWHERE, &SBMT);
    assert_eq!(
        (reason, words.as_str()),
        ("topic", "its topic stands in no column: write topic = \"…\" in a [[route]]")
    );
}

const PG: [Cell<'_>; 13] = [
    ("id", UUID, Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    ("aggregate_type", TEXT, Some("movie")),
    ("aggregate_id", TEXT, Some("m\"1")),
    ("message_type", TEXT, Some("movie_created")),
    ("segment", TEXT, None),
    ("concurrency", TEXT, Some("sequential")),
    ("payload", JSONB, Some(r#"{"n": 1.10}"#)),
    ("metadata", JSONB, Some(r#"{"k": 1}"#)),
    ("locked_until", TIMESTAMPTZ, Some("1970-01-01 00:00:00+00")),
    ("created_at", TIMESTAMPTZ, Some("2026-11-16 04:06:00.123456+00")),
    ("processed_at", TIMESTAMPTZ, None),
    ("started_attempts", INT2, Some("0")),
    ("finished_attempts", INT2, Some("0")),
];

#[test]
fn pg_transactional_outbox_sends_the_whole_message() {
    let made = make("pg-transactional-outbox", "", &PG).unwrap();
    let value = concat!(
        r#"{"id":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","aggregateType":"movie","aggregateId":"m\"1","#,
        r#""messageType":"movie_created","segment":null,"concurrency":"sequential","payload":{"n": 1.10},"#,
        r#""metadata":{"k": 1},"lockedUntil":"1970-01-01T00:00:00.000Z","createdAt":"2026-11-16T04:06:00.123Z","#,
        r#""startedAttempts":0,"finishedAttempts":0,"processedAt":null}"#
    );
    let expected = Made {
        topic: "movie_created".into(),
        key: Some("m\"1".into()),
        partition: None,
        value: Some(value.into()),
        headers: headers(&[("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]),
        timestamp_ms: Some(1_794_801_960_123),
    };
    assert_eq!(made, expected);
    let (reason, words) = rejection("pg-transactional-outbox", "", &with(&PG, &[("locked_until", Some("soon"))]));
    assert_eq!((reason, words.as_str()), ("value", "\"soon\" is not a timestamp"));
}

const DJANGO: [Cell<'_>; 5] = [
    ("id", UUID, Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    ("destination", TEXT, Some("/topic/orders.v1")),
    ("body", JSONB, Some(r#"{"n": 1}"#)),
    ("added", TIMESTAMPTZ, Some("2026-11-16 04:06:00+00")),
    ("headers", JSONB, Some(r#"{"dop-msg-id": "x", "dop-msg-type": "Published"}"#)),
];

#[test]
fn django_outbox_pattern_has_the_rows_headers_and_a_topic_from_its_destination() {
    let made = make("django-outbox-pattern", "", &DJANGO).unwrap();
    assert_eq!(made.headers, headers(&[("dop-msg-id", "x"), ("dop-msg-type", "Published")]));
    assert_eq!((made.topic.as_str(), made.value.as_deref()), ("orders.v1", Some(r#"{"n": 1}"#)));
    let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    assert_eq!((made.key.as_deref(), made.timestamp_ms), (Some(id), Some(1_794_801_960_000)));
    let bare = with(&DJANGO, &[("headers", Some("{}")), ("destination", Some("/exchange/shop/a.b"))]);
    let made = make("django-outbox-pattern", "", &bare).unwrap();
    let filled = [
        ("dop-msg-id", id),
        ("dop-msg-destination", "/exchange/shop/a.b"),
        ("dop-msg-type", "Published"),
        ("dop-msg-sent-time", "2026-11-16T04:06:00.000000+00:00"),
    ];
    assert_eq!((made.topic.as_str(), made.headers), ("shop.a.b", headers(&filled)));
    let (_, words) = rejection("django-outbox-pattern", "", &with(&DJANGO, &[("headers", Some("[]"))]));
    assert!(words.starts_with("its headers column is not a JSON object"), "{words}");
}

const EVENTS: [Cell<'_>; 6] = [
    ("id", UUID, Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    ("event_type", TEXT, Some("order.paid")),
    ("aggregate_type", TEXT, Some("order")),
    ("aggregate_id", TEXT, Some("42")),
    ("payload_json", JSONB, Some("{}")),
    ("created_at", TIMESTAMPTZ, Some("2026-11-16 04:06:00.5+00")),
];

#[test]
fn outbox_events_have_their_attributes_as_headers() {
    let made = make("outbox-events", "", &EVENTS).unwrap();
    let expected = [
        ("event_id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("event_type", "order.paid"),
        ("aggregate_type", "order"),
        ("aggregate_id", "42"),
        ("created_at", "2026-11-16T04:06:00.5Z"),
    ];
    assert_eq!(made.headers, headers(&expected));
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("outbox.event.order", Some("42")));
    for (column, text, message) in [
        ("payload_json", None, "its payload is NULL, and must not be"),
        ("payload_json", Some("null"), "its payload is null, and must not be"),
        ("aggregate_id", None, "its key needs column \"aggregate_id\", which is NULL"),
        ("aggregate_type", None, "its topic needs column \"aggregate_type\", which is NULL"),
    ] {
        let (_, words) = rejection("outbox-events", "", &with(&EVENTS, &[(column, text)]));
        assert_eq!(words, message);
    }
}

#[test]
fn events_without_a_record_of_their_own_have_ours() {
    let mut row = EVENTS.to_vec();
    row[4].0 = "payload";
    let id = ("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    let parts = [id, ("type", "order.paid"), ("aggregate_type", "order"), ("aggregate_id", "42")];
    let made = make("yantra", "", &row).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("outbox.event.order", Some("42")));
    assert_eq!((made.headers, made.timestamp_ms), (headers(&parts), Some(1_794_801_960_500)));
    row.push(("idempotency_key", TEXT, Some("i")));
    let made = make("doorito", "", &row).unwrap();
    assert_eq!(made.headers, headers(&[&parts[..], &[("idempotency_key", "i")]].concat()));
    let made = make("django-automate", TO_ORDERS, &row).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref(), made.headers), ("orders", Some(id.1), headers(&[id])));
    let made = make_of("automate_core_outboxitem", "django-automate", "", &row).unwrap();
    assert_eq!(made.topic, "outbox.event.automate_core_outboxitem");
}

#[test]
fn openg2p_goes_to_the_topic_of_its_row() {
    let row = [
        ("outgest_id", TEXT, Some("o-1")),
        ("change_request_id", TEXT, Some("c-1")),
        ("internal_record_id", TEXT, Some("r-1")),
        ("register_id", TEXT, Some("farmers")),
        ("data_model_id", TEXT, Some("dci")),
        ("topic_id", TEXT, Some("t-1")),
        ("changed_at", TIMESTAMP, Some("2026-11-16 04:06:00")),
        ("raw_data_json", JSONB, Some("{}")),
    ];
    let made = make("openg2p", "", &row).unwrap();
    let expected = [
        ("id", "o-1"),
        ("type", "dci"),
        ("aggregate_type", "farmers"),
        ("aggregate_id", "r-1"),
        ("change_request_id", "c-1"),
    ];
    assert_eq!(made.headers, headers(&expected));
    assert_eq!((made.topic.as_str(), made.key.as_deref(), made.value.as_deref()), ("t-1", Some("r-1"), Some("{}")));
    let (_, words) = rejection("openg2p", "", &with(&row, &[("raw_data_json", None)]));
    assert_eq!(words, "its payload is NULL, and must not be");
}

#[test]
fn what_a_route_says_weighs_more_than_the_system() {
    let route = "[[route]]\ntopic = 'other'\nkey = '{destination}'\ndefault_headers = 'id'\nvalue = 'payload'\ntimestamp = 'commit'";
    let made = make("eventuate", route, &EVENTUATE).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("other", Some("Order")));
    assert_eq!(made.value.as_deref(), EVENTUATE[3].2);
    assert_eq!((made.headers, made.timestamp_ms), (headers(&[("id", "0-1")]), Some(946_782_245_678)));
}

#[test]
fn every_word_is_a_preset_with_its_own_columns_and_table() {
    for (word, system) in System::WORDS {
        let base = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\n";
        let read = |block: &str| Config::from_toml(&format!("{base}{block}"), "f.toml", std::iter::empty());
        let config =
            read(&format!("preset = '{word}'\ntable = 't'\ncolumns = {{ id = 'other' }}\n{TO_ORDERS}")).unwrap();
        assert!(matches!(config.outbox[0].preset, config::Preset::System(found) if found == system), "{word}");
        assert_eq!(config.outbox[0].columns.id, "other");
        match read(&format!("preset = '{word}'")) {
            Ok(config) => {
                let config::OutboxSource::Table { schema, name } = &config.outbox[0].source else { panic!("{word}") };
                assert!(!schema.is_empty() && !name.is_empty());
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("outbox.table: is required with this preset"), "{text}");
                assert!(["watermill", "brighter", "sbmt-outbox"].contains(&word), "{word}");
            }
        }
    }
}

#[test]
fn the_usual_tables_are_those_that_the_systems_make() {
    for (word, table) in [
        ("outboxd", "public.outbox"),
        ("debezium", "public.outbox"),
        ("quarkus", "public.outboxevent"),
        ("django-automate", "public.automate_core_outboxitem"),
        ("doorito", "public.outbox_event"),
    ] {
        let text =
            format!("[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\npreset = '{word}'");
        let config = Config::from_toml(&text, "f.toml", std::iter::empty()).unwrap();
        assert_eq!(config.outbox[0].source.to_string(), table, "{word}");
    }
}

#[test]
fn every_word_that_the_command_line_takes_is_one_of_the_file() {
    for word in config::preset_words() {
        let text = format!(
            "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\npreset = '{word}'\ntable = 't'\n{TO_ORDERS}"
        );
        let config = Config::from_toml(&text, "f.toml", std::iter::empty()).unwrap_or_else(|error| panic!("{error}"));
        let read = config.outbox[0].preset.word();
        assert_eq!(read, if word == "quarkus" { "debezium" } else { word });
    }
}

#[test]
fn a_preset_that_is_misspelt_is_told_with_the_nearest_word() {
    let base = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\n";
    let told = |word: &str| {
        Config::from_toml(&format!("{base}preset = '{word}'"), "f.toml", std::iter::empty()).unwrap_err().to_string()
    };
    let line = "f.toml:6: outbox.preset: \"watermil\" is not one of the choices\n  hint: did you mean \"watermill\"?";
    assert_eq!(told("watermil"), line);
    assert!(told("kafka").contains("\"eventuate\" or "), "{}", told("kafka"));
}

#[test]
fn a_preset_of_a_table_takes_no_prefix_and_no_options_of_debezium() {
    let base = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\npreset = 'cap'\n";
    let refused =
        |more: &str| Config::from_toml(&format!("{base}{more}"), "f.toml", std::iter::empty()).unwrap_err().to_string();
    let words = refused("message_prefix = 'x'");
    assert!(words.contains("outbox.message_prefix: is set, and this preset is for a table"), "{words}");
    let words = refused("debezium = { a = 'b' }");
    assert!(words.contains("needs preset = \"debezium\" or \"quarkus\""), "{words}");
}

#[test]
fn keys_that_keep_the_order_of_a_thing_may_be_parked_together() {
    let read = |preset: &str| {
        let text = format!(
            "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n[[outbox]]\npreset = '{preset}'\n[[route]]\ntopic = 't'\n\
             [dead_letter]\norder = 'park-key'"
        );
        Config::from_toml(&text, "f.toml", std::iter::empty())
    };
    for preset in ["goharvest", "eventuate", "debezium", "yantra"] {
        assert!(read(preset).is_ok(), "{preset}");
    }
    for preset in ["outboxd", "cap", "watermill-forwarder", "django-outbox-pattern"] {
        assert!(read(preset).unwrap_err().to_string().contains("park-key"), "{preset}");
    }
}

#[test]
fn the_document_has_every_word_and_its_examples_are_valid() {
    let document = include_str!("../../../docs/presets.md");
    for (word, _) in System::WORDS {
        assert!(document.contains(&format!("\n| `{word}` | ")), "{word}");
    }
    let base = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'\n";
    let examples = document.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let examples: Vec<&str> = examples.collect();
    assert_eq!(examples.len(), 6);
    for example in examples {
        let read = Config::from_toml(&format!("{base}{example}"), "presets.md", std::iter::empty());
        assert!(read.is_ok(), "{example}{}", read.unwrap_err());
    }
}

#[test]
fn a_part_that_no_column_plays_leaves_its_name_to_the_column_that_has_it() {
    let row = [
        ("id", UUID, Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        ("aggregatetype", TEXT, Some("order")),
        ("aggregateid", TEXT, Some("42")),
        ("type", TEXT, Some("OrderPaid")),
        ("timestamp", TIMESTAMP, Some("2026-11-16 04:06:00.5")),
        ("payload", TEXT, Some("{}")),
        ("partition", TEXT, Some("eu")),
    ];
    let route = "[[route]]\ntimestamp = '{timestamp}'\nkey = '{partition}'\nheaders = { at = '{timestamp}', of = '{aggregate_id}' }";
    let made = make("quarkus", route, &row).unwrap();
    assert_eq!((made.key.as_deref(), made.timestamp_ms), (Some("eu"), Some(1_794_801_960_500)));
    assert!(made.headers.contains(&("at".into(), Some("2026-11-16 04:06:00.5".into()))), "{:?}", made.headers);
    assert!(made.headers.contains(&("of".into(), Some("42".into()))), "a part that a column plays is that column");
    assert_eq!(make("quarkus", "", &row).unwrap().partition, None, "a column does not play a part by its name");
}
