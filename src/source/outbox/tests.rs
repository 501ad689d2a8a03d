//! What a message leads to, whoever is asked for its columns.

use super::*;

mod join;

const UUID: u32 = 2950;
const TEXT: u32 = 25;
const INT8: u32 = 20;
const JSON: u32 = 114;
const JSONB: u32 = 3802;
const BYTEA: u32 = 17;
const NUMERIC: u32 = 1700;
const TIMESTAMPTZ: u32 = 1184;

/// A value as the server sends it.
#[derive(Clone, Copy)]
enum Sent<'a> {
    Null,
    Text(&'a [u8]),
    Binary(&'a [u8]),
}
use Sent::{Binary, Null, Text};

/// What a message led to, in a form that outlives it.
#[derive(Debug, PartialEq)]
enum Seen {
    Nothing,
    Row(u64, Vec<Option<Vec<u8>>>, std::result::Result<i64, String>),
    Rejected(u64, String, String),
    Mark(Lsn),
    TextNeeded(String),
    Odd(Odd),
}

impl Seen {
    fn part(&self, place: Place) -> Option<&str> {
        let Seen::Row(_, cells, _) = self else { panic!("a row, not {self:?}") };
        cells[place.0].as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap())
    }

    fn number(&self) -> u64 {
        match self {
            Seen::Row(number, ..) | Seen::Rejected(number, ..) => *number,
            other => panic!("a row, not {other:?}"),
        }
    }
}

fn columns() -> config::Columns {
    config::Columns {
        id: "id".into(),
        aggregate_type: None,
        aggregate_id: None,
        event_type: None,
        payload: "payload".into(),
        timestamp: None,
        headers: None,
        partition: None,
    }
}

fn table(name: &str, columns: config::Columns) -> config::Outbox {
    config::Outbox::of(OutboxSource::Table { schema: "app".into(), name: name.into() }, columns)
}

fn prefix(columns: config::Columns) -> config::Outbox {
    config::Outbox::of(OutboxSource::MessagePrefix("outbox".into()), columns)
}

fn simple() -> Outbox {
    let mut outbox = Outbox::new(&[table("outbox", columns()), prefix(columns())], Layout::default());
    begin(&mut outbox);
    outbox
}

fn begin(outbox: &mut Outbox) {
    let begin = Message::Begin { commit_lsn: Lsn(77), committed_at: 1_000_000, xid: 1 };
    assert!(matches!(outbox.read(begin, b"").unwrap(), Step::Nothing));
}

fn relation(id: u32, name: &str, columns: &[(&str, u32)]) -> Vec<u8> {
    let mut body = [b"R", &id.to_be_bytes()[..], b"app\0", name.as_bytes(), b"\0d"].concat();
    body.extend((columns.len() as u16).to_be_bytes());
    for (name, oid) in columns {
        body.extend([b"\0", name.as_bytes(), b"\0", &oid.to_be_bytes()[..], &[0xFF; 4]].concat());
    }
    body
}

fn insert(id: u32, values: &[Sent<'_>]) -> Vec<u8> {
    let mut body = [b"I", &id.to_be_bytes()[..], b"N", &(values.len() as u16).to_be_bytes()].concat();
    for value in values {
        let (tag, bytes) = match value {
            Null => {
                body.push(b'n');
                continue;
            }
            Text(bytes) => (b't', bytes),
            Binary(bytes) => (b'b', bytes),
        };
        body.push(tag);
        body.extend((bytes.len() as u32).to_be_bytes());
        body.extend_from_slice(bytes);
    }
    body
}

fn logical(transactional: bool, prefix: &str, content: &str) -> Vec<u8> {
    let head = [b"M", &[u8::from(transactional)][..], &[0; 8], prefix.as_bytes(), b"\0"].concat();
    [&head[..], &(content.len() as u32).to_be_bytes(), content.as_bytes()].concat()
}

fn try_read(outbox: &mut Outbox, body: &[u8]) -> Result<Seen> {
    let places = outbox.layout.len();
    Ok(match outbox.read(pgoutput::decode(body).unwrap(), body)? {
        Step::Nothing => Seen::Nothing,
        Step::Row(row) => {
            let cells = (0..places).map(|place| row.bytes(Place(place)).map(<[u8]>::to_vec)).collect();
            Seen::Row(row.position.row, cells, row.timestamp_ms(Place::TIMESTAMP))
        }
        Step::Rejected(Rejected { position, event, rejection, .. }) => {
            Seen::Rejected(position.row, event.unwrap_or_default(), rejection.message)
        }
        Step::Mark(lsn) => Seen::Mark(lsn),
        Step::TextNeeded(column) => Seen::TextNeeded(column),
        Step::Odd(odd) => Seen::Odd(odd),
    })
}

/// Reads a message, and counts its row.
fn read(outbox: &mut Outbox, body: &[u8]) -> Seen {
    let seen = try_read(outbox, body).unwrap();
    if matches!(seen, Seen::Row(..)) {
        outbox.take();
    }
    seen
}

#[test]
fn columns_are_found_by_name_wherever_they_stand() {
    let wide = config::Columns { aggregate_type: Some("kind".into()), ..columns() };
    let mut layout = Layout::default();
    let tenant = layout.place("tenant");
    let nowhere = layout.place("nowhere");
    let mut outbox = Outbox::new(&[table("outbox", columns()), table("other", wide)], layout);
    begin(&mut outbox);
    let first = [("payload", JSON), ("noise", NUMERIC), ("tenant", TEXT), ("id", INT8)];
    assert_eq!(read(&mut outbox, &relation(5, "outbox", &first)), Seen::Nothing);
    assert_eq!(
        read(&mut outbox, &relation(6, "other", &[("kind", TEXT), ("id", TEXT), ("payload", TEXT)])),
        Seen::Nothing
    );
    let seen = read(
        &mut outbox,
        &insert(5, &[Binary(b"{}"), Binary(b"\0\0\0"), Binary(b"acme"), Binary(&9_i64.to_be_bytes())]),
    );
    let parts = [Place::ID, Place::PAYLOAD, tenant, nowhere, Place::AGGREGATE_TYPE].map(|place| seen.part(place));
    assert_eq!(parts, [Some("9"), Some("{}"), Some("acme"), None, None]);
    let seen = read(&mut outbox, &insert(6, &[Binary(b"order"), Binary(b"x-1"), Null]));
    let parts = [Place::ID, Place::PAYLOAD, tenant, nowhere, Place::AGGREGATE_TYPE].map(|place| seen.part(place));
    assert_eq!(parts, [Some("x-1"), None, None, None, Some("order")]);
    assert_eq!(seen.number(), 2);
}

#[test]
fn one_column_may_play_several_parts() {
    let both = config::Columns { aggregate_id: Some("id".into()), ..columns() };
    let mut outbox = Outbox::new(&[table("outbox", both)], Layout::default());
    begin(&mut outbox);
    read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)]));
    let seen = read(&mut outbox, &insert(5, &[Binary(b"a"), Binary(b"b")]));
    assert_eq!((seen.part(Place::ID), seen.part(Place::AGGREGATE_ID)), (Some("a"), Some("a")));
}

#[test]
fn a_missing_mapped_column_is_named_with_its_part() {
    let mapped = config::Columns { aggregate_id: Some("order_id".into()), ..columns() };
    let mut outbox = Outbox::new(&[table("outbox", mapped)], Layout::default());
    let error = try_read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)])).unwrap_err();
    assert!(error.is_definite());
    assert_eq!(
        error.to_string(),
        "table \"app.outbox\" has no column \"order_id\", which is mapped as the aggregate_id"
    );
    assert!(error.hint_text().is_some_and(|hint| hint.contains("[[outbox]] columns.aggregate_id")));
}

#[test]
fn a_column_that_vanishes_in_mid_stream_is_an_error_and_an_unmapped_one_is_not() {
    let mut outbox = simple();
    read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("extra", NUMERIC), ("payload", TEXT)]));
    assert_eq!(read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)])), Seen::Nothing);
    assert_eq!(read(&mut outbox, &insert(5, &[Binary(b"1"), Binary(b"p")])).part(Place::PAYLOAD), Some("p"));
    assert!(try_read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("body", TEXT)])).is_err());
}

#[test]
fn a_renamed_table_is_an_error_unless_its_new_name_is_an_outbox_too() {
    let shape = [("id", TEXT), ("payload", TEXT)];
    let mut outbox = simple();
    read(&mut outbox, &relation(5, "outbox", &shape));
    let error = try_read(&mut outbox, &relation(5, "outbox_old", &shape)).unwrap_err();
    let text = "outbox table \"app.outbox\" is now called \"app.outbox_old\", which is not configured";
    assert_eq!(error.to_string(), text);
    let mut outbox = Outbox::new(&[table("a", columns()), table("b", columns())], Layout::default());
    read(&mut outbox, &relation(5, "a", &shape));
    assert_eq!(read(&mut outbox, &relation(5, "b", &shape)), Seen::Nothing);
}

#[test]
fn rows_and_messages_that_are_no_events_count_in_the_row_numbers() {
    let mut outbox = simple();
    read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)]));
    read(&mut outbox, &relation(6, "foreign", &[("a", NUMERIC)]));
    assert_eq!(read(&mut outbox, &insert(6, &[Binary(b"\0")])), Seen::Nothing);
    assert_eq!(read(&mut outbox, &logical(true, "somebody", "x")), Seen::Nothing);
    assert_eq!(read(&mut outbox, &logical(false, "outbox", "x")), Seen::Odd(Odd::NotTransactional));
    assert_eq!(read(&mut outbox, &logical(false, "somebody", "x")), Seen::Nothing);
    let row = insert(5, &[Binary(b"1"), Binary(b"p")]);
    assert_eq!(read(&mut outbox, &row).number(), 3);
    assert_eq!(read(&mut outbox, &logical(true, "outbox", "{\"id\": 1, \"payload\": 2}")).number(), 4);
    let commit = [b"C\0", &77_u64.to_be_bytes()[..], &90_u64.to_be_bytes(), &[0; 8]].concat();
    assert_eq!(read(&mut outbox, &commit), Seen::Mark(Lsn(90)));
    begin(&mut outbox);
    assert_eq!(read(&mut outbox, &row).number(), 1);
}

#[test]
fn rows_of_an_outbox_under_another_name_are_not_passed_over_and_those_of_other_tables_are() {
    let shape = [("id", TEXT), ("payload", TEXT)];
    let mut outbox = simple();
    outbox.session_started(Encoding::Binary, vec!["app.archive".into()]);
    begin(&mut outbox);
    let row = |table| insert(table, &[Binary(b"1"), Binary(b"p")]);
    read(&mut outbox, &relation(5, "outbox", &shape));
    // A partition is described even when its rows come as its root's.
    read(&mut outbox, &relation(6, "outbox_2026", &shape));
    read(&mut outbox, &relation(7, "orders", &[("id", TEXT), ("total", TEXT)]));
    read(&mut outbox, &relation(8, "archive", &shape));
    assert_eq!(read(&mut outbox, &row(7)), Seen::Nothing, "it does not look like an outbox");
    assert_eq!(read(&mut outbox, &row(8)), Seen::Nothing, "it is in the publication by this name");
    assert_eq!(read(&mut outbox, &row(5)).number(), 3);
    let error = try_read(&mut outbox, &row(6)).unwrap_err();
    assert!(error.to_string().contains("rows of table \"app.outbox_2026\", which looks like an outbox"), "{error}");
}

#[test]
fn a_row_that_is_not_taken_is_read_again_with_the_same_number() {
    let mut outbox = simple();
    read(&mut outbox, &relation(5, "outbox", &[("id", INT8), ("payload", TEXT)]));
    let (row, message) =
        (insert(5, &[Binary(&7_i64.to_be_bytes()), Null]), logical(true, "outbox", "{\"id\": \"\\n\"}"));
    for body in [&row, &message] {
        let first = try_read(&mut outbox, body).unwrap();
        assert_eq!(try_read(&mut outbox, body).unwrap(), first);
        assert_eq!(read(&mut outbox, body), first);
    }
    assert_eq!(read(&mut outbox, &row).number(), 3);
}

#[test]
fn a_type_that_is_not_read_in_binary_asks_for_text_and_only_there() {
    let mut outbox = simple();
    let numeric = relation(5, "outbox", &[("id", NUMERIC), ("payload", TEXT)]);
    let needed = Seen::TextNeeded("column \"id\" of table \"app.outbox\"".into());
    assert_eq!(read(&mut outbox, &numeric), needed);
    assert!(!outbox.fits_binary());
    outbox.session_started(Encoding::Text, Vec::new());
    assert!(!outbox.fits_binary(), "nothing is known of a session that has described no table");
    begin(&mut outbox);
    assert_eq!(read(&mut outbox, &numeric), Seen::Nothing);
    assert!(!outbox.fits_binary());
    assert_eq!(read(&mut outbox, &insert(5, &[Text(b"1.50"), Null])).part(Place::ID), Some("1.50"));
    assert_eq!(read(&mut outbox, &relation(5, "outbox", &[("id", INT8), ("payload", TEXT)])), Seen::Nothing);
    assert!(outbox.fits_binary());
}

#[test]
fn unmapped_columns_and_foreign_tables_never_ask_for_text() {
    let mut outbox = simple();
    let shape = [("id", TEXT), ("payload", TEXT), ("price", NUMERIC)];
    assert_eq!(read(&mut outbox, &relation(5, "outbox", &shape)), Seen::Nothing);
    assert_eq!(read(&mut outbox, &relation(6, "foreign", &[("price", NUMERIC)])), Seen::Nothing);
}

#[test]
fn a_time_is_read_in_binary_unless_a_pattern_shows_it() {
    let timed = config::Columns { timestamp: Some("at".into()), ..columns() };
    let shape = [("id", TEXT), ("payload", TEXT), ("at", TIMESTAMPTZ)];
    let mut outbox = Outbox::new(&[table("outbox", timed.clone())], Layout::default());
    assert_eq!(read(&mut outbox, &relation(5, "outbox", &shape)), Seen::Nothing);
    for shown in ["timestamp", "at"] {
        let mut layout = Layout::default();
        layout.place(shown);
        let mut outbox = Outbox::new(&[table("outbox", timed.clone())], layout);
        let seen = read(&mut outbox, &relation(5, "outbox", &shape));
        assert_eq!(seen, Seen::TextNeeded("column \"at\" of table \"app.outbox\"".into()), "{shown}");
    }
    let error = try_read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT), ("at", INT8)]));
    let text = "column \"at\" of table \"app.outbox\" cannot be the timestamp: it is not a timestamp";
    assert_eq!(error.unwrap_err().to_string(), text);
}

#[test]
fn the_timestamp_is_the_columns_or_else_the_commits() {
    let timed = config::Columns { timestamp: Some("at".into()), ..columns() };
    let mut outbox = Outbox::new(&[table("outbox", timed.clone()), prefix(timed)], Layout::default());
    begin(&mut outbox);
    read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT), ("at", TIMESTAMPTZ)]));
    let committed = 946_684_801_000;
    for (value, expected) in [
        (Binary(&1_500_i64.to_be_bytes()), Ok(946_684_800_001)),
        (Binary(&(-1_i64).to_be_bytes()), Ok(946_684_799_999)),
        (Binary(&i64::MAX.to_be_bytes()), Ok(committed)),
        (Binary(&i64::MIN.to_be_bytes()), Ok(committed)),
        (Null, Ok(committed)),
        (Text(b"1970-01-01 00:00:00.007+00"), Ok(7)),
        (Text(b"1970-01-01T00:00:00.007Z    "), Ok(7)),
        (Text(b"infinity"), Ok(committed)),
        (Text(b"-infinity"), Ok(committed)),
        (Text(b"soon"), Err("\"soon\" is not a timestamp".to_owned())),
    ] {
        let Seen::Row(_, _, time) = read(&mut outbox, &insert(5, &[Binary(b"1"), Null, value])) else { panic!() };
        assert_eq!(time, expected);
    }
    for (member, expected) in
        [("", committed), (", \"at\": null", committed), (", \"at\": \"1970-01-01T00:00:01Z\"", 1000)]
    {
        let message = logical(true, "outbox", &format!("{{\"id\": 1{member}}}"));
        let Seen::Row(_, _, time) = read(&mut outbox, &message) else { panic!() };
        assert_eq!(time, Ok(expected), "{member}");
    }
}

#[test]
fn payloads_arrive_byte_for_byte_in_either_encoding() {
    let json = "{\"a\": 1e400, \"a\": \"\\u00e9\\n😀\", \"b\":[ ]}";
    let binary_jsonb = [b"\x01", json.as_bytes()].concat();
    for (oid, sent, expected) in [
        (JSON, Binary(json.as_bytes()), Some(json.as_bytes())),
        (JSON, Text(json.as_bytes()), Some(json.as_bytes())),
        (JSONB, Binary(&binary_jsonb), Some(json.as_bytes())),
        (JSONB, Text(json.as_bytes()), Some(json.as_bytes())),
        (TEXT, Binary(b""), Some(&b""[..])),
        (TEXT, Text(b""), Some(b"")),
        (TEXT, Binary("😀\r\n\t".as_bytes()), Some("😀\r\n\t".as_bytes())),
        (BYTEA, Binary(b"\0\xFF\\x"), Some(b"\0\xFF\\x")),
        (BYTEA, Text(b"\\x00ff5c78"), Some(b"\0\xFF\\x")),
        (BYTEA, Binary(b""), Some(b"")),
        (BYTEA, Text(b"\\x"), Some(b"")),
        (JSONB, Null, None),
    ] {
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", oid)]));
        let Seen::Row(_, cells, _) = read(&mut outbox, &insert(5, &[Binary(b"1"), sent])) else { panic!() };
        assert_eq!(cells[Place::PAYLOAD.0].as_deref(), expected, "{oid}");
    }
}

#[test]
fn ids_read_the_same_in_either_encoding_and_none_is_rejected() {
    let uuid = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 7];
    for (oid, sent, expected) in [
        (UUID, Binary(&uuid[..]), "01234567-89ab-cdef-0001-020304050607"),
        (UUID, Text(b"01234567-89ab-cdef-0001-020304050607"), "01234567-89ab-cdef-0001-020304050607"),
        (INT8, Binary(&i64::MIN.to_be_bytes()), "-9223372036854775808"),
        (INT8, Text(b"42"), "42"),
        (TEXT, Binary("schlüssel".as_bytes()), "schlüssel"),
        (TEXT, Binary(b""), ""),
    ] {
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &[("id", oid), ("payload", TEXT)]));
        assert_eq!(read(&mut outbox, &insert(5, &[sent, Null])).part(Place::ID), Some(expected));
    }
    let mut outbox = simple();
    read(&mut outbox, &relation(5, "outbox", &[("id", INT8), ("payload", TEXT)]));
    let seen = read(&mut outbox, &insert(5, &[Null, Binary(b"p")]));
    assert_eq!(seen, Seen::Rejected(1, String::new(), "it has no id".into()));
    let seen = read(&mut outbox, &insert(5, &[Binary(b"odd"), Binary(b"p")]));
    let text = "column \"id\" of table \"app.outbox\": an integer of an unknown size";
    assert_eq!(seen, Seen::Rejected(1, String::new(), text.into()));
}

#[test]
fn a_logical_message_gives_its_payload_as_it_stands() {
    let table = [
        (
            "{\"id\": \"a\\u0062\\\"\", \"payload\": {\"x\" : [1e400,{\"payload\": 2}]} }",
            "ab\"",
            Some("{\"x\" : [1e400,{\"payload\": 2}]}"),
        ),
        ("{\"id\": 12345678901234567890, \"payload\": \"text\\n\"}", "12345678901234567890", Some("\"text\\n\"")),
        ("{\"id\": \"\", \"payload\": null}", "", None),
        ("{\"payload\": 1, \"id\": 1, \"payload\": 2, \"other\": {\"id\": 3}}", "1", Some("2")),
        ("{\"\\u0069d\": true, \"payload\": \"😀\"}", "true", Some("\"😀\"")),
    ];
    for (content, id, payload) in table {
        let mut outbox = simple();
        let seen = read(&mut outbox, &logical(true, "outbox", content));
        assert_eq!((seen.part(Place::ID), seen.part(Place::PAYLOAD)), (Some(id), payload), "{content}");
    }
}

#[test]
fn a_logical_message_that_cannot_be_read_is_rejected_with_what_is_known_of_it() {
    let mut outbox = simple();
    for (content, event, problem) in [
        ("{\"payload\": 1}", "", "it has no id"),
        ("{\"id\": null}", "", "it has no id"),
        ("", "", "its content is not a JSON object"),
        ("[1]", "", "its content is not a JSON object"),
        ("{\"id\": 1} x", "1", "its content is not a JSON object"),
        ("{\"id\": 1, \"payload\": {", "1", "its content is not a JSON object"),
    ] {
        let Seen::Rejected(number, id, message) = read(&mut outbox, &logical(true, "outbox", content)) else {
            panic!("{content} was not rejected")
        };
        assert_eq!((number, &id[..]), (1, event), "{content}");
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn what_no_healthy_server_sends_is_a_definite_error() {
    let mut outbox = simple();
    let row = insert(5, &[Binary(b"1"), Null]);
    let told = try_read(&mut outbox, &row).unwrap_err();
    assert_eq!(told.to_string(), "the server sent a row of table 5 without its description");
    read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)]));
    let told = try_read(&mut outbox, &insert(5, &[Binary(b"1")])).unwrap_err();
    assert_eq!(told.to_string(), "a row of table \"app.outbox\" came without its column \"payload\"");
    outbox.session_started(Encoding::Binary, Vec::new());
    let told = try_read(&mut outbox, &row).unwrap_err();
    assert_eq!(told.to_string(), "the server sent a row outside of a transaction");
    begin(&mut outbox);
    let told = try_read(&mut outbox, &row).unwrap_err();
    assert_eq!(told.to_string(), "the server sent a row of table 5 without its description");
}
