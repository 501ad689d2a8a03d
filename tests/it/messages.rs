//! Events without a table: transactional logical messages flow by their prefix, all others stay where they are.

use crate::support::reader::Seen;
use crate::support::relay::Relay;
use crate::support::scene::{Letter, Scene};
use crate::support::{PATIENCE, eventually};

fn emit(prefix: &str, content: &str) -> String {
    format!("select pg_logical_emit_message(true, '{prefix}', $content${content}$content$);")
}

/// A message's content: this scene's aggregate type, one key, and these members.
fn content(scene: &Scene, members: &str) -> String {
    format!(r#"{{"aggregate_type": "{}", "aggregate_id": "k", {members}}}"#, scene.aggregate_type)
}

fn scene_of_messages() -> Scene {
    Scene::with_outboxes("", &["message_prefix = \"outbox\""])
}

#[test]
fn an_emitted_message_arrives_like_a_row() {
    let scene = scene_of_messages();
    let _relay = scene.relay();
    let emit = r#"select outbox.emit_message(current_database()::text, 'order-1', 'placed', '{"b":1e3,"a":"é😀"}',
                  '{"trace": "t1", "none": null}', 'once')"#;
    let before = now_ms(&scene);
    let id = scene.database.ask(emit).unwrap();
    // No table remembers the key: the second message has the first one's id.
    assert_eq!(scene.database.ask(emit).as_deref(), Some(id.as_str()));
    let seen = scene.reader.wait_count(2, PATIENCE);
    let after = now_ms(&scene);
    for record in &seen {
        assert_eq!((record.id(), record.key(), record.header("type")), (id.as_str(), "order-1", Some("placed")));
        assert_eq!(record.value(), r#"{"a": "é😀", "b": 1000}"#);
        assert_eq!((record.header("trace"), record.header("none")), (Some("t1"), None));
        assert!(record.headers.iter().any(|(name, value)| name == "none" && value.is_none()));
        assert!((before..=after).contains(&record.timestamp_ms.unwrap()));
        assert!(record.header("lsn").unwrap().ends_with("/1"));
    }
}

#[test]
fn the_payload_of_a_message_is_published_as_it_stands() {
    let scene = scene_of_messages();
    let _relay = scene.relay();
    let payloads = [
        "{ \"n\" :\t1e400,\n \"n\": 1 }",
        r#""a \u00e9 \ud83d\ude00 \/ string""#,
        "\"😀\"",
        "12345678901234567890.10",
        "[ ]",
        "false",
    ];
    for (n, payload) in payloads.iter().enumerate() {
        let members = format!(r#""id": {n}, "payload": {payload} , "unknown": {{"payload": 0}}"#);
        scene.database.exec(&emit("outbox", &content(&scene, &members)));
    }
    let nothing = content(&scene, r#""id": "\u0078\"y", "payload": null, "created_at": "2024-02-29T12:34:56.789Z""#);
    scene.database.exec(&emit("outbox", &nothing));
    scene.database.exec(&emit("outbox", &content(&scene, r#""id": "without payload""#)));
    let seen = scene.reader.wait_count(payloads.len() + 2, PATIENCE);
    assert_eq!(seen.iter().map(Seen::value).collect::<Vec<_>>()[..payloads.len()], payloads);
    assert_eq!(seen[3].id(), "3");
    let last = &seen[payloads.len()..];
    assert_eq!((last[0].id(), &last[0].value, last[0].timestamp_ms), ("x\"y", &None, Some(1_709_210_096_789)));
    assert_eq!((last[1].id(), &last[1].value), ("without payload", &None));
}

#[test]
fn numbers_of_a_message_are_numbers_in_debeziums_record() {
    let block = r#"message_prefix = "outbox"
        preset = "debezium"
        debezium."table.fields.additional.placement" = "n:header,f:header,n:envelope:version"
        debezium."table.expand.json.payload" = true
        debezium."value.converter" = "JsonConverter"
        debezium."value.converter.schemas.enable" = false"#;
    let mut scene = Scene::with_outboxes("", &[block]);
    let route = format!("topic = \"{}\"", scene.topic);
    scene.config = scene.config.without("route").add("route", &route);
    let _relay = scene.relay();
    let content =
        r#"{"id": "e1", "aggregatetype": "Order", "aggregateid": "42", "n": 7, "f": 1.50, "payload": {"a": 1}}"#;
    scene.database.exec(&emit("outbox", content));
    let seen = &scene.reader.wait_count(1, PATIENCE)[0];
    assert_eq!((seen.header("n"), seen.header("f")), (Some("7"), Some("1.5")));
    assert_eq!(seen.value(), r#"{"payload":{"a":1},"version":7}"#);
}

#[test]
fn a_message_without_an_id_is_parked_and_arrives_once_another_member_is_its_id() {
    let scene = scene_of_messages();
    // Nothing is tried again before the configuration is mended.
    let scene = Scene { config: scene.config.set("dead_letter.backoff.first", "1h"), ..scene };
    let mut relay = scene.relay();
    let nameless = content(&scene, r#""id": null, "number": 7, "payload": { "n" :2e0}"#);
    scene.database.exec(&emit("outbox", &content(&scene, r#""id": "before", "payload": 1"#)));
    scene.database.exec(&emit("outbox", &nameless));
    scene.database.exec(&emit("outbox", &content(&scene, r#""id": "behind", "payload": 3"#)));
    assert_parked(&scene, &mut relay, &[&nameless], "it has no id");
    assert_eq!(scene.reader.seen().iter().map(Seen::id).collect::<Vec<_>>(), ["before", "behind"]);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());

    let block = "message_prefix = \"outbox\"\ncolumns = { id = \"number\" }";
    let scene = Scene { config: scene.config.without("outbox").add("outbox", block), ..scene };
    let _relay = scene.relay();
    scene.retry_letters();
    eventually("it is delivered", PATIENCE, || scene.dead_letters()[0].state == "delivered");
    let seen = scene.reader.wait_count(3, PATIENCE);
    assert_eq!(seen.iter().map(Seen::id).collect::<Vec<_>>(), ["before", "behind", "7"]);
    assert_eq!((seen[2].key(), seen[2].value()), ("k", r#"{ "n" :2e0}"#));
}

#[test]
fn messages_that_are_no_json_objects_are_parked_as_they_stand_and_the_next_one_arrives() {
    let scene = scene_of_messages();
    let mut relay = scene.relay();
    let wrong = ["not json", "[1]", "{\"id\": 1"];
    for text in wrong {
        scene.database.exec(&emit("outbox", text));
    }
    scene.database.exec(&emit("outbox", &content(&scene, r#""id": "good", "payload": 1"#)));
    assert_parked(&scene, &mut relay, &wrong, "its content is not a JSON object");
    assert_eq!(scene.reader.seen().iter().map(Seen::id).collect::<Vec<_>>(), ["good"]);
}

/// Messages with these contents, and no others, are parked as unreadable, byte for byte and with these words. The slot
/// has passed all that was written, what can be published has arrived, and the relay is ready.
#[track_caller]
fn assert_parked(scene: &Scene, relay: &mut Relay, contents: &[&str], words: &str) {
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let letters = scene.dead_letters();
    let is_right = |letter: &Letter| letter.reason == "unreadable" && letter.message.contains(words);
    assert!(letters.iter().all(is_right), "{letters:#?}");
    let sql = "select convert_from(column_values[1], 'UTF8') from outboxd.dead_letter order by id";
    let kept = scene.database.connect().query(sql, &[]).unwrap();
    assert_eq!(kept.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), contents);
    relay.wait_log("the event is parked", PATIENCE);
    relay.wait_ready();
}

#[test]
fn messages_outside_of_a_transaction_are_counted_warned_about_once_and_never_published() {
    let scene = scene_of_messages();
    let relay = scene.relay();
    let stray = content(&scene, r#""id": "stray", "payload": 1"#);
    for _ in 0..3 {
        scene.database.exec(&emit("outbox", &stray).replace("message(true", "message(false"));
    }
    // Other prefixes are nobody's business, inside a transaction or outside.
    scene.database.exec(&emit("other", &stray).replace("message(true", "message(false"));
    // One in the middle of a transaction, which is then rolled back: it is in the WAL all the same.
    let inside = emit("outbox", &stray).replace("message(true", "message(false");
    scene.database.exec(&format!("begin; {inside} rollback"));
    scene.database.exec(&emit("outbox", &content(&scene, r#""id": "good", "payload": 2"#)));
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert_eq!(scene.reader.seen().iter().map(Seen::id).collect::<Vec<_>>(), ["good"]);
    eventually("they are counted", PATIENCE, || relay.metric("outboxd_ignored_messages_total") == Some(4.0));
    assert_eq!(relay.log().matches("was not transactional").count(), 1, "{}", relay.log());
}

#[test]
fn messages_of_other_prefixes_and_of_rolled_back_transactions_are_ignored() {
    let scene = scene_of_messages();
    let relay = scene.relay();
    let message = |prefix: &str, id: u8| emit(prefix, &content(&scene, &format!(r#""id": {id}, "payload": {id}"#)));
    scene.database.exec(&format!(
        "begin; {} {} {} {} commit; begin; {} rollback; begin; savepoint s; {} rollback to s; {} commit",
        message("outbo", 1),
        emit("other", "not even json"),
        message("outbox", 2),
        message("outbox2", 3),
        message("outbox", 4),
        message("outbox", 5),
        message("outbox", 6),
    ));
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let seen = scene.reader.seen();
    assert_eq!(seen.iter().map(Seen::id).collect::<Vec<_>>(), ["2", "6"]);
    // Every message of a transaction has its number, published or not.
    assert!(seen[0].header("lsn").unwrap().ends_with("/3"), "{:?}", seen[0].headers);
    assert_eq!(relay.metric("outboxd_ignored_messages_total"), Some(0.0));
}

#[test]
fn rows_and_messages_of_a_transaction_keep_their_order_through_a_kill_in_between() {
    let mut scene = Scene::with_outboxes("", &["table = \"public.outbox\"", "message_prefix = \"outbox\""]);
    // The message with the number 3 waits for a topic, and what stands behind it waits as well.
    let missing = format!("{}-late", scene.topic);
    let late = format!("match = {{ event_type = \"late\" }}\ntopic = \"{missing}\"\nkey = \"{{aggregate_id}}\"");
    scene.config = scene.config.without("route").add("route", &late).add("route", "key = \"{aggregate_id}\"");
    let mut relay = scene.relay();
    let row = |n: u8| {
        format!(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
             values (current_database(), 'k', 'row', '{n}');"
        )
    };
    let message = |n: u8, kind: &str| {
        emit("outbox", &content(&scene, &format!(r#""id": "m{n}", "event_type": "{kind}", "payload": {n}"#)))
    };
    scene.database.exec(&format!(
        "begin; {} {} {} {} {} commit",
        row(1),
        message(2, "message"),
        message(3, "late"),
        row(4),
        message(5, "message")
    ));
    relay.wait_unready("topic_missing", PATIENCE);
    let seen = scene.reader.wait_count(2, PATIENCE);
    assert_eq!(seen.iter().map(Seen::value).collect::<Vec<_>>(), ["1", "2"]);
    relay.sigkill();
    assert_eq!(scene.held_by_slot(), 5, "half a transaction cannot be confirmed");

    scene.kafka.create_topic(&missing, 1);
    let _relay = scene.relay();
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let seen = scene.reader.seen();
    // The whole transaction again, because none of it was confirmed; each row where it was.
    assert_eq!(seen.iter().map(Seen::value).collect::<Vec<_>>(), ["1", "2", "1", "2", "4", "5"]);
    let number = |record: &Seen| record.header("lsn").unwrap().rsplit_once('/').unwrap().1.to_string();
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), ["1", "2", "1", "2", "4", "5"]);
    let late = crate::support::reader::Reader::start(&scene.kafka, &[&missing]);
    assert_eq!(late.wait_count(1, PATIENCE).iter().map(Seen::value).collect::<Vec<_>>(), ["3"]);
}

fn now_ms(scene: &Scene) -> i64 {
    let clock = "select floor(extract(epoch from clock_timestamp()) * 1000)";
    scene.database.ask(clock).unwrap().parse().unwrap()
}
