//! Rows and the records that routes make of them.

use super::*;
use crate::config::{DefaultHeaders, Piece};
use crate::dead_letter::Rejection;
use crate::lsn::Lsn;
use crate::source::outbox::{Outbox, Step};
use crate::source::pgoutput::Message;

/// A record that outlives its row.
#[derive(Debug, PartialEq)]
struct Made {
    topic: String,
    partition: Option<i32>,
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(String, Option<String>)>,
    timestamp_ms: Option<i64>,
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
    let matches = vec![(column.to_owned(), config::Match::Glob(glob.to_owned()))];
    config::Route { matches, topic: Some(pattern(&[topic])), ..config::Route::default() }
}

/// Routes an event whose columns are the members of a JSON object.
fn route(routes: &[config::Route], event: &str) -> Result<Made, Rejected> {
    route_by(&config::Rules { routes: routes.to_vec(), ..config::Rules::default() }, event)
}

fn route_by(rules: &config::Rules, event: &str) -> Result<Made, Rejected> {
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
    let source = config::OutboxSource::MessagePrefix("o".into());
    let outboxes = [config::Outbox::of(source, columns)];
    let mut layout = Layout::default();
    let mut router = Router::new(rules, &outboxes, &mut layout);
    let mut outbox = Outbox::new(&outboxes, layout);
    let begin = Message::Begin { commit_lsn: Lsn(0x16_0000_00AB), committed_at: 2_000, xid: 1 };
    assert!(matches!(outbox.read(begin, b"").unwrap(), Step::Nothing));
    let content = event.as_bytes();
    let message = Message::Logical { transactional: true, lsn: Lsn(1), prefix: "o", content };
    let Step::Row(row) = outbox.read(message, content).unwrap() else { panic!("{event} is a row") };
    let record = router.route(&row)?;
    Ok(Made {
        topic: record.topic.to_owned(),
        partition: record.partition,
        key: record.key.map(text),
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
        key: Some("e-1".into()),
        value: Some(r#"{"n": 1e400}"#.into()),
        headers: vec![
            some("id", "e-1"),
            some("type", "paid"),
            some("aggregate_type", "order"),
            some("aggregate_id", "7"),
            some("lsn", "16/AB/1"),
            some("trace", "t"),
        ],
        timestamp_ms: Some(946_684_800_002),
    };
    assert_eq!(route(&[], event).unwrap(), expected);
}

#[test]
fn a_route_with_the_id_alone_keeps_the_headers_that_were_asked_for() {
    let headers = vec![("tenant".to_owned(), pattern(&["t"]))];
    let routes = [config::Route { default_headers: Some(DefaultHeaders::Id), headers, ..config::Route::default() }];
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
    both.matches.push(("tenant".into(), config::Match::Glob("ac*".into())));
    let topic = |event: &str| route(std::slice::from_ref(&both), event).unwrap().topic;
    assert_eq!(topic(r#"{"id": 1, "aggregate_type": "a", "event_type": "paid", "tenant": "acme"}"#), "both");
    assert_eq!(topic(r#"{"id": 1, "aggregate_type": "a", "event_type": "paid", "tenant": "b"}"#), "outbox.event.a");
}

#[test]
fn patterns_take_any_column_and_say_which_one_is_missing() {
    let routes = [config::Route {
        topic: Some(pattern(&["t-", "$tenant", ".", "$event_type"])),
        key: Some(pattern(&["$aggregate_id", "/", "$region"])),
        headers: vec![("who".into(), pattern(&["<", "$tenant", ">"])), ("when".into(), pattern(&["$timestamp"]))],
        ..config::Route::default()
    }];
    let event = |rest: &str| format!(r#"{{"id": 1, "event_type": "e", "aggregate_id": "k"{rest}}}"#);
    let full = event(r#", "tenant": "x", "region": "", "created_at": "1970-01-01T00:00:01Z""#);
    let made = route(&routes, &full).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref(), made.timestamp_ms), ("t-x.e", Some("k/"), Some(1000)));
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
        let routes = [config::Route { topic: Some(pattern(&["$name"])), ..config::Route::default() }];
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
        route(&[], &event).map(|made| made.timestamp_ms.unwrap()).map_err(|rejected| rejected.rejection.reason)
    };
    assert_eq!(time("\"2026-11-16 04:06:00.123456+00\""), Ok(1_794_801_960_123));
    assert_eq!(time("\"infinity\""), Ok(946_684_800_002));
    assert_eq!(time("null"), Ok(946_684_800_002));
    assert_eq!(time("\"yesterday\""), Err("timestamp"));
    assert_eq!(time("17"), Err("timestamp"));
}

#[test]
fn a_row_that_no_route_is_for_is_parked_where_the_registry_says_so() {
    let rules = config::Rules {
        routes: vec![matching("event_type", "order.*", "orders")],
        unmatched: config::Unmatched::Reject,
        templates: None,
    };
    let known = r#"{"id": 1, "event_type": "order.paid"}"#;
    assert_eq!(route_by(&rules, known).unwrap().topic, "orders");
    let rejected = route_by(&rules, r#"{"id": 1, "event_type": "user.left"}"#).unwrap_err().rejection;
    assert_eq!(
        (rejected.reason, rejected.message.as_str()),
        ("unmatched", "no [[route]] matches event type \"user.left\"")
    );
    let rejected = route_by(&rules, r#"{"id": 1}"#).unwrap_err().rejection;
    assert_eq!(rejected.message, "no [[route]] matches an event without a type");
}

#[test]
fn a_route_that_is_switched_off_parks_what_it_matches() {
    let off = config::Route { switch: config::Switch::Off, ..matching("event_type", "a", "x") };
    let routes = [off, matching("event_type", "*", "rest")];
    let rejected = route(&routes, r#"{"id": 1, "event_type": "a"}"#).unwrap_err().rejection;
    let message = "route 1 of the configuration is switched off (enabled = false)";
    assert_eq!((rejected.reason, rejected.message.as_str()), ("switched_off", message));
    assert_eq!(route(&routes, r#"{"id": 1, "event_type": "b"}"#).unwrap().topic, "rest");
}

#[test]
fn a_row_that_breaks_its_contract_is_rejected() {
    let contract = config::Route {
        aggregate_type: Some("order".into()),
        require: vec!["payload".into(), "tenant".into()],
        ..config::Route::default()
    };
    let event = |rest: &str| format!(r#"{{"id": 1, "aggregate_type": "order"{rest}}}"#);
    for (event, message) in [
        (r#"{"id": 1, "aggregate_type": "user"}"#.to_owned(), "its aggregate type is \"user\", and must be \"order\""),
        (r#"{"id": 1}"#.to_owned(), "its aggregate type is NULL, and must be \"order\""),
        (event(r#", "payload": null, "tenant": 1"#), "its payload is NULL, and must not be"),
        (event(r#", "payload": {}"#), "its tenant is NULL, and must not be"),
    ] {
        let rejected = route(std::slice::from_ref(&contract), &event).unwrap_err().rejection;
        assert_eq!((rejected.reason, rejected.message.as_str()), ("contract", message), "{event}");
    }
    assert!(route(&[contract], &event(r#", "payload": {}, "tenant": 1"#)).is_ok());
}

#[test]
fn what_is_null_has_a_fallback_and_what_is_rewritten_has_a_name() {
    let fallback = |name: &str, otherwise: &[&str]| Piece::Fallback(name.to_owned(), pattern(otherwise));
    let regex = regex::bytes::Regex::new("^(?<name>.*)Event$").unwrap();
    let rewrite = config::Rewrite { column: "aggregate_type".into(), regex, with: "${name}s".into() };
    let routes = [config::Route {
        topic: Some(pattern(&["$domain"])),
        key: Some(config::Pattern { pieces: vec![fallback("tenant", &["$region"])] }),
        headers: vec![
            ("a".into(), config::Pattern { pieces: vec![fallback("tenant", &["none"])] }),
            ("b".into(), config::Pattern { pieces: vec![fallback("nowhere", &["$region"])] }),
        ],
        rewrites: vec![("domain".into(), rewrite)],
        ..config::Route::default()
    }];
    let made = route(&routes, r#"{"id": 1, "aggregate_type": "orderEvent", "tenant": null, "region": "eu"}"#).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("orders", Some("eu")));
    assert_eq!((made.header("a"), made.header("b")), (Some("none"), Some("eu")));
    let made = route(&routes, r#"{"id": 1, "aggregate_type": "order", "tenant": "t", "region": null}"#).unwrap();
    assert_eq!((made.topic.as_str(), made.key.as_deref()), ("order", Some("t")));
    assert_eq!((made.header("a"), made.header("b")), (Some("t"), None), "a fallback that is NULL is no header");
}

#[test]
fn an_envelope_keeps_numbers_and_documents_as_they_are() {
    let members = [("type", "event_type"), ("n \"", "n"), ("ok", "ok"), ("doc", "doc"), ("no", "nowhere")];
    let members = members.map(|(name, column)| (name.to_owned(), column.to_owned()));
    let envelope =
        config::Route { value: Some(config::ValueForm::Envelope(members.into())), ..config::Route::default() };
    let event = r#"{"id": 1, "aggregate_type": "a", "event_type": "e\u00e9\"", "payload": {"x": 1.10},
        "n": 12345678901234567890.10, "ok": true, "doc": [1, {}]}"#;
    let expected =
        r#"{"payload":{"x": 1.10},"type":"eé\"","n \"":12345678901234567890.10,"ok":true,"doc":[1, {}],"no":null}"#;
    assert_eq!(route(&[envelope], event).unwrap().value.as_deref(), Some(expected));
}

#[test]
fn a_row_without_a_payload_has_the_value_that_its_form_has_without_one_unless_it_is_to_be_a_tombstone() {
    let template = [("t".to_owned(), "{{ id }} {{ payload is none }}".to_owned())];
    let templates = Arc::new(crate::template::Templates::from_sources(template).unwrap());
    let ce = |mode| {
        let source = config::CloudEvents {
            source: pattern(&["/x"]),
            kind: pattern(&["$event_type"]),
            subject: None,
            datacontenttype: Some("application/json".into()),
            dataschema: None,
            extensions: Vec::new(),
        };
        config::ValueForm::CloudEvents(mode, source)
    };
    let envelope = config::ValueForm::Envelope(vec![("n".into(), "n".into())]);
    let document = r#"{"specversion":"1.0","id":"1","source":"/x","type":"e","datacontenttype":"application/json","time":"2000-01-01T00:00:00.002Z"}"#;
    let binary = ["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "content-type"];
    for (form, made_without, headers, of_a_tombstone) in [
        (config::ValueForm::Payload, None, &[][..], &[][..]),
        (envelope, Some(r#"{"payload":null,"n":7}"#), &[], &[]),
        (config::ValueForm::Template("t".into()), Some("1 true"), &[], &[]),
        (ce(config::ContentMode::Structured), Some(document), &["content-type"], &[]),
        (ce(config::ContentMode::Binary), None, &binary, &binary),
    ] {
        let made = |tombstone| {
            let route = config::Route {
                value: Some(form.clone()),
                tombstone,
                default_headers: Some(DefaultHeaders::None),
                ..config::Route::default()
            };
            let templates = Some(TemplateSet { templates: templates.clone(), most: 1000 });
            let rules = config::Rules { routes: vec![route], templates, ..config::Rules::default() };
            let event = r#"{"id": 1, "aggregate_type": "a", "event_type": "e", "n": 7, "payload": null}"#;
            let made = route_by(&rules, event).unwrap();
            (made.value, made.headers.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        let without = (made_without.map(str::to_owned), headers.iter().map(|name| (*name).to_owned()).collect());
        let tombstone = (None, of_a_tombstone.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(made(None), without, "{form:?}");
        for setting in [config::Tombstone::Null, config::Tombstone::Empty] {
            assert_eq!(made(Some(setting)), tombstone, "{form:?}");
        }
    }
}

#[test]
fn the_timestamp_is_a_columns_the_commits_or_the_brokers() {
    let event =
        r#"{"id": 1, "aggregate_type": "a", "created_at": "1970-01-01T00:00:01Z", "at": "1970-01-01T00:00:02Z"}"#;
    for (timestamp, expected) in [
        (Timestamp::Event, Some(1000)),
        (Timestamp::Column("at".into()), Some(2000)),
        (Timestamp::Commit, Some(946_684_800_002)),
        (Timestamp::Now, None),
    ] {
        let routes = [config::Route { timestamp: Some(timestamp), ..config::Route::default() }];
        assert_eq!(route(&routes, event).unwrap().timestamp_ms, expected);
    }
}

#[test]
fn a_partition_pattern_weighs_more_than_the_column() {
    let partition = Some(pattern(&["1", "$shard"]));
    let routes = [config::Route { partition, ..config::Route::default() }];
    let made = |rest: &str| {
        let event = format!(r#"{{"id": 1, "aggregate_type": "a", "partition": 7{rest}}}"#);
        route(&routes, &event).map(|made| made.partition).map_err(|rejected| rejected.rejection.message)
    };
    assert_eq!(made(r#", "shard": 2"#), Ok(Some(12)));
    assert_eq!(made(r#", "shard": null"#), Ok(None), "NULL leaves it to the key");
    assert_eq!(made(r#", "shard": "x""#), Err("its partition \"1x\" is not a partition number".into()));
    assert_eq!(made(""), Err("its partition needs column \"shard\", which it has not".into()));
}
