//! Rows become records: a total function from `Row` to `Record` or `Rejected`.
//!
//! Routes are compiled once; the first that matches wins, and the default route stands behind them all. The value is
//! the payload, byte for byte. Topic, key and headers are written into buffers that the next row uses again.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::config;
use crate::config::{DefaultHeaders, Piece};
use crate::dead_letter::Lane;
use crate::record::{Headers, Record, Rejected};
use crate::source::outbox::{Layout, Name, Place, Row};

/// The compiled routes.
#[derive(Debug)]
pub struct Router {
    routes: Vec<Route>,
    topic: Vec<u8>,
    key: Vec<u8>,
    headers: Headers,
}

#[derive(Debug)]
struct Route {
    matches: Vec<(Place, Glob)>,
    topic: Pattern,
    key: Pattern,
    default_headers: DefaultHeaders,
    headers: Vec<(String, Pattern)>,
}

/// Literals with `*` between them.
#[derive(Debug)]
struct Glob(Vec<String>);

#[derive(Debug)]
struct Pattern(Vec<CompiledPiece>);

#[derive(Debug)]
enum CompiledPiece {
    Literal(String),
    Column(Place, String),
}

impl Router {
    /// Compiles the routes; `layout` learns which columns they need.
    pub fn new(routes: &[config::Route], layout: &mut Layout) -> Router {
        let routes = routes.iter().chain([&config::Route::default()]).map(|route| Route::new(route, layout)).collect();
        Router { routes, topic: Vec::new(), key: Vec::new(), headers: Headers::default() }
    }

    /// The record of a row.
    pub fn route<'a>(&'a mut self, row: &Row<'a>) -> Result<Record<'a>, Rejected> {
        let rejected = |reason, message| row.rejected(reason, message);
        let route = self.routes.iter().find(|route| route.fits(row)).expect("the default route fits every row");
        self.topic.clear();
        self.key.clear();
        self.headers.clear();

        route.topic.write(row, &mut self.topic).map_err(|problem| rejected("topic", format!("its topic {problem}")))?;
        route.key.write(row, &mut self.key).map_err(|problem| rejected("key", format!("its key {problem}")))?;
        let topic = topic_name(&self.topic).map_err(|problem| rejected("topic", problem))?;
        route.write_headers(row, &mut self.headers).map_err(|problem| rejected("headers", problem))?;
        let timestamp_ms = row.timestamp_ms().map_err(|problem| rejected("timestamp", problem))?;
        let partition = partition(row).map_err(|problem| rejected("partition", problem))?;
        let value = row.bytes(Place::PAYLOAD);
        Ok(Record { topic, partition, key: &self.key, value, headers: &self.headers, timestamp_ms })
    }

    /// Where the row would go, as far as its route can tell, whatever else is wrong with it.
    pub fn lane(&self, row: &Row<'_>) -> Lane {
        let route = self.routes.iter().find(|route| route.fits(row)).expect("the default route fits every row");
        let written = |pattern: &Pattern| {
            let mut bytes = Vec::new();
            pattern.write(row, &mut bytes).ok().map(|()| bytes)
        };
        let topic = written(&route.topic).and_then(|bytes| topic_name(&bytes).ok().map(str::to_owned));
        Lane { topic, key: written(&route.key) }
    }
}

impl Route {
    fn new(route: &config::Route, layout: &mut Layout) -> Route {
        Route {
            matches: route.matches.iter().map(|(name, glob)| (layout.place(name), Glob::new(glob))).collect(),
            topic: Pattern::new(&route.topic, layout),
            key: Pattern::new(&route.key, layout),
            default_headers: route.default_headers,
            headers: route.headers.iter().map(|(name, p)| (name.clone(), Pattern::new(p, layout))).collect(),
        }
    }

    fn fits(&self, row: &Row<'_>) -> bool {
        self.matches.iter().all(|(place, glob)| row.bytes(*place).is_some_and(|text| glob.fits(text)))
    }

    /// Few and short ones, because headers are the dearest part of a send. A NULL column gives no header.
    fn write_headers(&self, row: &Row<'_>, headers: &mut Headers) -> Result<(), String> {
        let parts = [
            ("id", Place::ID),
            ("type", Place::EVENT_TYPE),
            ("aggregate_type", Place::AGGREGATE_TYPE),
            ("aggregate_id", Place::AGGREGATE_ID),
        ];
        let (parts, with_position) = match self.default_headers {
            DefaultHeaders::All => (&parts[..], true),
            DefaultHeaders::Id => (&parts[..1], false),
        };
        for (name, place) in parts {
            if let Some(value) = row.bytes(*place) {
                headers.push(name, Some(value));
            }
        }
        if with_position {
            headers.push_with("lsn", |bytes| row.position.write_to(bytes));
        }
        for (name, pattern) in &self.headers {
            if !pattern.is_null(row) {
                let mut written = Ok(());
                headers.push_with(name, |bytes| written = pattern.write(row, bytes));
                written.map_err(|problem| format!("its header \"{name}\" {problem}"))?;
            }
        }
        if let Some(object) = row.bytes(Place::HEADERS) {
            own_headers(object, headers).map_err(|error| format!("its headers are not a JSON object: {error}"))?;
        }
        Ok(())
    }
}

impl Pattern {
    fn new(pattern: &config::Pattern, layout: &mut Layout) -> Pattern {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => CompiledPiece::Literal(text.clone()),
            Piece::Column(name) => CompiledPiece::Column(layout.place(name), name.clone()),
        };
        Pattern(pattern.pieces.iter().map(piece).collect())
    }

    fn write(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        for piece in &self.0 {
            match piece {
                CompiledPiece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                CompiledPiece::Column(place, name) => match row.bytes(*place) {
                    Some(bytes) => out.extend_from_slice(bytes),
                    None if row.is_absent(*place) => return Err(format!("needs column \"{name}\", which it has not")),
                    None => return Err(format!("needs column \"{name}\", which is NULL")),
                },
            }
        }
        Ok(())
    }

    fn is_null(&self, row: &Row<'_>) -> bool {
        self.0.iter().any(|piece| match piece {
            CompiledPiece::Literal(_) => false,
            CompiledPiece::Column(place, _) => row.bytes(*place).is_none() && !row.is_absent(*place),
        })
    }
}

impl Glob {
    fn new(text: &str) -> Glob {
        Glob(text.split('*').map(str::to_owned).collect())
    }

    fn fits(&self, text: &[u8]) -> bool {
        let (first, rest) = self.0.split_first().expect("splitting gives at least one part");
        let Some(mut text) = text.strip_prefix(first.as_bytes()) else { return false };
        let Some((last, middle)) = rest.split_last() else { return text.is_empty() };
        for part in middle {
            let Some(at) = find(text, part.as_bytes()) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(last.as_bytes())
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { Some(0) } else { text.windows(part.len()).position(|window| window == part) }
}

/// Kafka's rule for topic names.
fn topic_name(bytes: &[u8]) -> Result<&str, String> {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let valid = (1..=249).contains(&bytes.len()) && bytes != b"." && bytes != b".." && bytes.iter().all(legal);
    std::str::from_utf8(bytes).ok().filter(|_| valid).ok_or_else(|| {
        format!(
            "\"{}\" is not a valid topic name (letters, digits, . _ -, at most 249)",
            String::from_utf8_lossy(bytes)
        )
    })
}

fn partition(row: &Row<'_>) -> Result<Option<i32>, String> {
    let Some(bytes) = row.bytes(Place::PARTITION) else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<i32>() {
        Ok(partition) if partition >= 0 => Ok(Some(partition)),
        Ok(_) | Err(_) => Err(format!("its partition \"{text}\" is not a partition number")),
    }
}

/// The members of the row's own headers object: strings without their quotes, null as a header without a value,
/// everything else as its JSON text.
fn own_headers(object: &[u8], headers: &mut Headers) -> serde_json::Result<()> {
    struct Members<'a>(&'a mut Headers);
    impl<'de> Visitor<'de> for Members<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
            while let Some((name, raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                match serde_json::from_str::<Name<'_>>(raw.get()) {
                    Ok(text) => self.0.push(&name.0, Some(text.0.as_bytes())),
                    Err(_) if raw.get() == "null" => self.0.push(&name.0, None),
                    Err(_) => self.0.push(&name.0, Some(raw.get().as_bytes())),
                }
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(object);
    deserializer.deserialize_any(Members(headers))?;
    deserializer.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dead_letter::Rejection;
    use crate::lsn::Lsn;
    use crate::source::outbox::{Outbox, Step};
    use crate::source::pgoutput::Message;

    /// A record that outlives its row.
    #[derive(Debug, PartialEq)]
    struct Made {
        topic: String,
        partition: Option<i32>,
        key: String,
        value: Option<String>,
        headers: Vec<(String, Option<String>)>,
        timestamp_ms: i64,
    }

    impl Made {
        fn header(&self, wanted: &str) -> Option<&str> {
            self.headers.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.as_deref())
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn pattern(pieces: &[&str]) -> config::Pattern {
        let piece = |text: &&str| match text.strip_prefix('$') {
            Some(column) => Piece::Column(column.to_owned()),
            None => Piece::Literal((*text).to_owned()),
        };
        config::Pattern { pieces: pieces.iter().map(piece).collect() }
    }

    fn matching(column: &str, glob: &str, topic: &str) -> config::Route {
        let matches = [(column.to_owned(), glob.to_owned())].into();
        config::Route { matches, topic: pattern(&[topic]), ..config::Route::default() }
    }

    /// Routes an event whose columns are the members of a JSON object.
    fn route(routes: &[config::Route], event: &str) -> Result<Made, Rejected> {
        let part = |name: &str| Some(name.to_owned());
        let columns = config::Columns {
            id: "id".into(),
            aggregate_type: part("aggregate_type"),
            aggregate_id: part("aggregate_id"),
            event_type: part("event_type"),
            payload: "payload".into(),
            timestamp: part("created_at"),
            headers: part("headers"),
            partition: part("partition"),
        };
        let outbox = config::Outbox { source: config::OutboxSource::MessagePrefix("o".into()), columns };
        let mut layout = Layout::default();
        let mut router = Router::new(routes, &mut layout);
        let mut outbox = Outbox::new(&[outbox], layout);
        let begin = Message::Begin { commit_lsn: Lsn(0x16_0000_00AB), committed_at: 2_000, xid: 1 };
        assert!(matches!(outbox.read(begin, b"").unwrap(), Step::Nothing));
        let content = event.as_bytes();
        let message = Message::Logical { transactional: true, lsn: Lsn(1), prefix: "o", content };
        let Step::Row(row) = outbox.read(message, content).unwrap() else { panic!("{event} is a row") };
        let record = router.route(&row)?;
        Ok(Made {
            topic: record.topic.to_owned(),
            partition: record.partition,
            key: text(record.key),
            value: record.value.map(text),
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.map(text))).collect(),
            timestamp_ms: record.timestamp_ms,
        })
    }

    #[test]
    fn without_routes_an_event_becomes_the_default_record() {
        let event = r#"{"id": "e-1", "aggregate_type": "order", "aggregate_id": 7, "event_type": "paid",
            "payload": {"n": 1e400}, "headers": {"trace": "t"}}"#;
        let some = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let expected = Made {
            topic: "outbox.event.order".into(),
            partition: None,
            key: "e-1".into(),
            value: Some(r#"{"n": 1e400}"#.into()),
            headers: vec![
                some("id", "e-1"),
                some("type", "paid"),
                some("aggregate_type", "order"),
                some("aggregate_id", "7"),
                some("lsn", "16/AB/1"),
                some("trace", "t"),
            ],
            timestamp_ms: 946_684_800_002,
        };
        assert_eq!(route(&[], event).unwrap(), expected);
    }

    #[test]
    fn a_route_with_the_id_alone_keeps_the_headers_that_were_asked_for() {
        let headers = vec![("tenant".to_owned(), pattern(&["t"]))];
        let routes = [config::Route { default_headers: DefaultHeaders::Id, headers, ..config::Route::default() }];
        let event = r#"{"id": 1, "aggregate_type": "a", "event_type": "e", "payload": 1, "headers": {"trace": "x"}}"#;
        let made = route(&routes, event).unwrap();
        let names: Vec<_> = made.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["id", "tenant", "trace"]);
    }

    #[test]
    fn null_parts_give_no_header_and_a_null_payload_is_a_tombstone() {
        let made = route(&[], r#"{"id": 1, "aggregate_type": "a", "event_type": null, "payload": null}"#).unwrap();
        let names: Vec<_> = made.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, made.value), (vec!["id", "aggregate_type", "lsn"], None));
    }

    #[test]
    fn the_first_route_that_matches_wins_and_the_default_stands_behind_them() {
        let routes = [matching("event_type", "order.*", "orders"), matching("tenant", "*", "tenants")];
        for (event, topic) in [
            (r#"{"id": 1, "aggregate_type": "a", "event_type": "order.paid", "tenant": "x"}"#, "orders"),
            (r#"{"id": 1, "aggregate_type": "a", "event_type": "order", "tenant": ""}"#, "tenants"),
            (r#"{"id": 1, "aggregate_type": "a", "event_type": null, "tenant": null}"#, "outbox.event.a"),
            (r#"{"id": 1, "aggregate_type": "a"}"#, "outbox.event.a"),
        ] {
            assert_eq!(route(&routes, event).unwrap().topic, topic, "{event}");
        }
    }

    #[test]
    fn all_columns_of_a_match_must_fit() {
        let mut both = matching("event_type", "paid", "both");
        both.matches.insert("tenant".into(), "ac*".into());
        let topic = |event: &str| route(std::slice::from_ref(&both), event).unwrap().topic;
        assert_eq!(topic(r#"{"id": 1, "aggregate_type": "a", "event_type": "paid", "tenant": "acme"}"#), "both");
        assert_eq!(topic(r#"{"id": 1, "aggregate_type": "a", "event_type": "paid", "tenant": "b"}"#), "outbox.event.a");
    }

    #[test]
    fn patterns_take_any_column_and_say_which_one_is_missing() {
        let routes = [config::Route {
            topic: pattern(&["t-", "$tenant", ".", "$event_type"]),
            key: pattern(&["$aggregate_id", "/", "$region"]),
            headers: vec![("who".into(), pattern(&["<", "$tenant", ">"])), ("when".into(), pattern(&["$timestamp"]))],
            ..config::Route::default()
        }];
        let event = |rest: &str| format!(r#"{{"id": 1, "event_type": "e", "aggregate_id": "k"{rest}}}"#);
        let full = event(r#", "tenant": "x", "region": "", "created_at": "1970-01-01T00:00:01Z""#);
        let made = route(&routes, &full).unwrap();
        assert_eq!((made.topic.as_str(), made.key.as_str(), made.timestamp_ms), ("t-x.e", "k/", 1000));
        assert_eq!((made.header("who"), made.header("when")), (Some("<x>"), Some("1970-01-01T00:00:01Z")));
        for (rest, reason, message) in [
            ("", "topic", "its topic needs column \"tenant\", which it has not"),
            (r#", "tenant": null"#, "topic", "its topic needs column \"tenant\", which is NULL"),
            (r#", "tenant": "x""#, "key", "its key needs column \"region\", which it has not"),
            (r#", "tenant": "x", "region": null"#, "key", "its key needs column \"region\", which is NULL"),
            (
                r#", "tenant": "x", "region": "r""#,
                "headers",
                "its header \"when\" needs column \"timestamp\", which it has not",
            ),
        ] {
            let rejected = route(&routes, &event(rest)).unwrap_err();
            let Rejection { reason: found, message: words } = &rejected.rejection;
            assert_eq!((*found, words.as_str(), rejected.event.as_deref()), (reason, message, Some("1")));
            assert_eq!(rejected.position.to_string(), "16/AB/1");
        }
        let null = event(r#", "tenant": "x", "region": "r", "created_at": null"#);
        assert_eq!(route(&routes, &null).unwrap().header("when"), None);
    }

    #[test]
    fn a_topic_name_that_kafka_would_not_take_is_rejected() {
        let long = "x".repeat(250 - "outbox.event.".len());
        for name in ["a b", "ü", "a/b", "a\\n", long.as_str()] {
            let rejected = route(&[], &format!(r#"{{"id": 1, "aggregate_type": "{name}"}}"#)).unwrap_err();
            assert_eq!(rejected.rejection.reason, "topic", "{name}");
            assert!(rejected.rejection.message.contains("is not a valid topic name"), "{rejected:?}");
        }
        for name in ["", ".", ".."] {
            let routes = [config::Route { topic: pattern(&["$name"]), ..config::Route::default() }];
            assert!(route(&routes, &format!(r#"{{"id": 1, "name": "{name}"}}"#)).is_err(), "{name}");
        }
        assert!(route(&[], &format!(r#"{{"id": 1, "aggregate_type": "{}"}}"#, &long[1..])).is_ok());
        assert!(route(&[], r#"{"id": 1, "aggregate_type": "A-z_0.9"}"#).is_ok());
    }

    #[test]
    fn the_events_own_headers_keep_their_exact_text() {
        let own = r#"{"s": "a\"\u00e9\n😀", "n": 1e400, "z": null, "o": {"k": [1, 2]}, "b": true, "": "", "s": "again",
            "\u0061": -0.10}"#;
        let event = format!(r#"{{"id": 1, "aggregate_type": "a", "headers": {own}}}"#);
        let made = route(&[], &event).unwrap();
        let own: Vec<_> = made.headers[3..].iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let expected = [
            ("s", Some("a\"é\n😀")),
            ("n", Some("1e400")),
            ("z", None),
            ("o", Some(r#"{"k": [1, 2]}"#)),
            ("b", Some("true")),
            ("", Some("")),
            ("s", Some("again")),
            ("a", Some("-0.10")),
        ];
        assert_eq!(own, expected);
    }

    #[test]
    fn headers_that_are_no_object_are_rejected_and_null_is_none() {
        for headers in ["[1]", "\"text\"", "12", "true"] {
            let event = format!(r#"{{"id": 1, "aggregate_type": "a", "headers": {headers}}}"#);
            let rejected = route(&[], &event).unwrap_err();
            assert_eq!(rejected.rejection.reason, "headers");
            assert!(rejected.rejection.message.starts_with("its headers are not a JSON object"), "{rejected:?}");
        }
        for headers in ["null", "{}"] {
            let event = format!(r#"{{"id": 1, "aggregate_type": "a", "headers": {headers}}}"#);
            assert_eq!(route(&[], &event).unwrap().headers.len(), 3);
        }
    }

    #[test]
    fn the_partition_column_chooses_the_partition() {
        let partition = |value: &str| {
            let event = format!(r#"{{"id": 1, "aggregate_type": "a", "partition": {value}}}"#);
            route(&[], &event).map(|made| made.partition).map_err(|rejected| rejected.rejection.message)
        };
        assert_eq!(partition("0"), Ok(Some(0)));
        assert_eq!(partition("\"2147483647\""), Ok(Some(i32::MAX)));
        assert_eq!(partition("null"), Ok(None));
        for wrong in ["-1", "2147483648", "\"\"", "\"a\"", "1.0"] {
            let message = format!("its partition \"{}\" is not a partition number", wrong.trim_matches('"'));
            assert_eq!(partition(wrong), Err(message));
        }
    }

    #[test]
    fn a_wrong_timestamp_is_rejected_and_an_infinite_one_is_the_commits() {
        let time = |value: &str| {
            let event = format!(r#"{{"id": 1, "aggregate_type": "a", "created_at": {value}}}"#);
            route(&[], &event).map(|made| made.timestamp_ms).map_err(|rejected| rejected.rejection.reason)
        };
        assert_eq!(time("\"2026-11-16 04:06:00.123456+00\""), Ok(1_794_801_960_123));
        assert_eq!(time("\"infinity\""), Ok(946_684_800_002));
        assert_eq!(time("null"), Ok(946_684_800_002));
        assert_eq!(time("\"yesterday\""), Err("timestamp"));
        assert_eq!(time("17"), Err("timestamp"));
    }

    #[test]
    fn globs_match_whole_texts() {
        for (glob, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*b*", "abc", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("**", "x", true),
            ("order.*", "order", false),
            ("*.paid", "order.paid.paid", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(Glob::new(glob).fits(text.as_bytes()), fits, "{glob} on {text}");
        }
    }

    fn naive(glob: &[u8], text: &[u8]) -> bool {
        match glob.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some((byte, rest)) => text.split_first().is_some_and(|(first, text)| first == byte && naive(rest, text)),
        }
    }

    proptest! {
        #[test]
        fn globs_agree_with_a_naive_matcher(glob in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(Glob::new(&glob).fits(text.as_bytes()), naive(glob.as_bytes(), text.as_bytes()));
        }
    }
}
