//! The commands about dead letters, on a real store: what they find, what they change, and what they refuse.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::letter_life::{keyless, mend, old_with_key, patient};
use crate::letters::{insert, old};
use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::process::Scratch;
use crate::support::relay::Ended;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually};

/// Each command, as it is typed to begin with.
const COMMANDS: [&[&str]; 5] =
    [&["list"], &["show", "1"], &["retry", "1"], &["discard", "1", "--note", "test"], &["export"]];

/// What a list tells of a letter.
const LINE: [&str; 14] = [
    "id",
    "state",
    "reason",
    "message",
    "origin",
    "event",
    "event_type",
    "topic",
    "key",
    "position",
    "attempts",
    "attempts_left",
    "next_attempt",
    "parked_at",
];

/// What else is told of one that is shown or exported.
const PAGE: [&str; 11] = [
    "system_id",
    "timeline",
    "committed_at",
    "columns",
    "not_kept",
    "owner",
    "lease_until",
    "settled_at",
    "note",
    "noted_by",
    "history",
];

fn run(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.config.run(&[&["dead-letters"][..], arguments].concat())
}

/// What a command printed, which must be JSON and nothing else.
#[track_caller]
fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.assert_success().stdout).unwrap_or_else(|error| panic!("{error}: {ended:#?}"))
}

/// One JSON object per line.
#[track_caller]
fn lines_of(ended: &Ended) -> Vec<Value> {
    let lines = ended.assert_success().stdout.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn events_of(letters: &[Value]) -> Vec<&str> {
    letters.iter().map(|letter| letter["event"].as_str().expect("it has an id")).collect()
}

#[track_caller]
fn list_of(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// Scripts rely on them; there may be more.
#[track_caller]
fn assert_members(value: &Value, names: &[&str]) {
    let missing: Vec<&&str> = names.iter().filter(|name| value.get(**name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {value}");
}

/// Refused, with nothing on stdout that a script could take for an answer.
#[track_caller]
fn assert_refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{ended:#?}");
    let missing: Vec<&&str> = words.iter().filter(|word| !ended.stderr.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in: {}", ended.stderr);
}

/// The number of the event's letter, once it is parked.
#[track_caller]
fn number(scene: &Scene, event: &str) -> String {
    scene.wait_letter(event).id.to_string()
}

/// The bytes that `show --payload` writes, which need not be text.
#[track_caller]
fn payload(scene: &Scene, number: &str) -> Vec<u8> {
    let scratch = Scratch::new();
    let mut show = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    show.args(["dead-letters", "show", number, "--payload", "--config"]).arg(scene.config.write(scratch.path()));
    let output = show.stdin(Stdio::null()).output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Everything that the store has of letters, to see that nothing was changed.
#[track_caller]
fn store(scene: &Scene) -> Option<String> {
    scene.database.ask("select string_agg(d::text, ' ' order by d.id) from outboxd.dead_letter as d")
}

#[test]
fn every_filter_finds_its_letters_in_a_list_and_in_an_export() {
    let scene = patient();
    let _relay = scene.relay();
    let nowhere = format!("'{}_nowhere'", scene.aggregate_type);
    let events = [
        old(&scene),
        keyless(&scene),
        insert(&scene, ["'no topic'", "'k'", "'1'", "null", "now()", "null"]),
        insert(&scene, [&nowhere, "'n'", "'1'", "null", "now()", "null"]),
    ];
    events.iter().for_each(|event| drop(scene.wait_letter(event)));
    let [stale, without_key, invalid, astray] = events.each_ref().map(String::as_str);
    scene.database.exec(&format!(
        "update outboxd.dead_letter set parked_at = parked_at - interval '2 hours' where event_id = '{without_key}';
         update outboxd.dead_letter set state = 'failed' where event_id = '{invalid}'"
    ));
    let topic = scene.topic.as_str();
    let filters: [(&[&str], &[&str]); 13] = [
        (&[], &[stale, without_key, invalid, astray]),
        (&["--reason", "timestamp"], &[stale]),
        (&["--reason", "unknown_topic"], &[astray]),
        (&["--topic", topic], &[stale, without_key]),
        (&["--event-type", "cancelled"], &[without_key]),
        (&["--key", "k"], &[stale, invalid]),
        (&["--event", stale], &[stale]),
        (&["--older-than", "1h"], &[without_key]),
        (&["--newer-than", "1h"], &[stale, invalid, astray]),
        (&["--state", "failed"], &[invalid]),
        (&["--state", "failed", "--state", "pending"], &[stale, without_key, invalid, astray]),
        (&["--topic", topic, "--key", "k"], &[stale]),
        (&["--reason", "timestamp", "--event-type", "cancelled"], &[]),
    ];
    for (filter, expected) in filters {
        let listed = json_of(&run(&scene, &[&["list", "--json"][..], filter].concat()));
        assert_eq!(events_of(list_of(&listed["letters"])), expected, "{filter:?}");
        let counted: u64 = list_of(&listed["groups"]).iter().filter_map(|group| group["count"].as_u64()).sum();
        assert_eq!(counted, expected.len() as u64, "{filter:?}");
        let exported = lines_of(&run(&scene, &[&["export"][..], filter].concat()));
        assert_eq!(events_of(&exported), expected, "{filter:?}");
    }
}

#[test]
fn a_list_counts_first_and_goes_on_page_by_page() {
    let scene = patient();
    let _relay = scene.relay();
    let mut events: Vec<String> = (0..3).map(|_| old(&scene)).collect();
    events.push(keyless(&scene));
    events.iter().for_each(|event| drop(scene.wait_letter(event)));

    let text = run(&scene, &["list"]).assert_success().stdout.clone();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..2], ["state", "reason"], "{text}");
    assert_eq!((&lines[1][..2], &lines[1][3..5]), (&["pending", "timestamp"][..], &["written", "3"][..]), "{text}");
    assert_eq!((&lines[2][..2], &lines[2][3..5]), (&["pending", "key"][..], &["cancelled", "1"][..]), "{text}");
    assert!(lines[3].is_empty() && lines[4][..2] == ["id", "age"] && lines.len() == 9, "{text}");

    let first = json_of(&run(&scene, &["list", "--json", "--limit", "3"]));
    assert_eq!(events_of(list_of(&first["letters"])), events[..3]);
    let last = number(&scene, &events[2]);
    assert_eq!(first["next"].to_string(), last);
    let rest = json_of(&run(&scene, &["list", "--json", "--limit", "3", "--after", &last]));
    assert_eq!(events_of(list_of(&rest["letters"])), events[3..]);
    assert_eq!(rest["next"], Value::Null);
    let text = run(&scene, &["list", "--limit", "3"]).assert_success().stdout.clone();
    assert!(text.contains(&format!("--after {last} ")), "{text}");
    let none = run(&scene, &["list", "--reason", "headers"]);
    assert!(none.assert_success().stdout.contains("no such dead letters"), "{none:?}");
}

#[test]
fn every_command_that_speaks_json_says_all_it_knows() {
    let scene = patient();
    let _relay = scene.relay();
    let [stale, without_key] = [old(&scene), keyless(&scene)].map(|event| number(&scene, &event));

    let list = json_of(&run(&scene, &["list", "--json"]));
    assert_members(&list, &["groups", "letters", "next"]);
    assert_members(&list["groups"][0], &["state", "reason", "topic", "event_type", "count", "oldest"]);
    assert_members(&list["letters"][0], &LINE);
    let letter = &list["letters"][0];
    assert_eq!(letter["origin"], json!({ "schema": "public", "table": "outbox" }));
    assert_eq!((&letter["topic"], &letter["key"]), (&json!(scene.topic), &json!("k")));
    assert_eq!((&letter["attempts"], &letter["state"]), (&json!(1), &json!("pending")));

    let show = json_of(&run(&scene, &["show", &stale, "--json"]));
    assert_members(&show, &[&LINE[..], &PAGE[..], &["payload_column", "now"][..]].concat());
    let record = ["topic", "partition", "key", "headers", "timestamp_ms", "value_bytes", "bytes"];
    assert_members(&show["now"]["record"], &record);
    assert_members(&show["history"][0], &["number", "at", "reason", "message"]);
    let rejected = json_of(&run(&scene, &["show", &without_key, "--json"]));
    assert_members(&rejected["now"]["rejected"], &["reason", "message"]);
    for letter in lines_of(&run(&scene, &["export"])) {
        assert_members(&letter, &[&LINE[..], &PAGE[..]].concat());
    }

    let plan = json_of(&run(&scene, &["retry", &stale, "--dry-run", "--json"]));
    assert_members(&plan, &["would", "letters", "groups"]);
    let retried = json_of(&run(&scene, &["retry", &stale, "--json"]));
    assert_members(&retried, &["deed", "changed", "left", "ends"]);
    let discarded = json_of(&run(&scene, &["discard", &without_key, "--note", "test", "--json"]));
    assert_members(&discarded, &["deed", "changed", "left", "ends"]);
    assert_eq!([&retried["deed"], &discarded["deed"]], [&json!("retry"), &json!("discard")]);
    assert_eq!([&retried["changed"], &discarded["changed"]], [&json!(1), &json!(1)]);
    let resumed = json_of(&scene.config.run(&["resume", "--json"]));
    assert_members(&resumed, &["slot", "resumed", "pause"]);
    assert_eq!((&resumed["slot"], &resumed["resumed"]), (&json!(scene.config.slot()), &json!(false)));
}

#[test]
fn a_letter_is_shown_with_every_attempt_and_the_record_as_it_would_be_sent_now() {
    let mut scene = patient();
    let _relay = scene.relay();
    let event = keyless(&scene);
    let id = number(&scene, &event);
    run(&scene, &["retry", &id]).assert_success();
    eventually("it is tried again", PATIENCE, || scene.wait_letter(&event).attempts == 2);

    let shown = json_of(&run(&scene, &["show", &id, "--json"]));
    let history = list_of(&shown["history"]);
    assert_eq!(history.len(), 2, "{shown}");
    for (number, attempt) in (1..).zip(history) {
        assert_eq!((&attempt["number"], &attempt["reason"]), (&json!(number), &json!("key")));
        assert!(attempt["message"].to_string().contains("aggregate_id"), "{attempt}");
    }
    let at = |attempt: &Value| attempt["at"].as_str().expect("it has a time").to_string();
    assert!(at(&history[0]) < at(&history[1]), "{shown}");
    assert_eq!(shown["now"]["rejected"]["reason"], "key");
    let text = run(&scene, &["show", &id]).assert_success().stdout.clone();
    for words in [at(&history[0]), at(&history[1]), "it would be rejected now, too: key".into()] {
        assert!(text.contains(&words), "no \"{words}\" in {text}");
    }

    // By another route it could be published.
    let route = "key = \"{event_type}\"\nheaders = { kind = \"{event_type}\" }";
    scene.config = scene.config.without("route").add("route", route);
    let shown = json_of(&run(&scene, &["show", &id, "--json"]));
    let record = &shown["now"]["record"];
    assert_eq!((&record["topic"], &record["key"]), (&json!(scene.topic), &json!("cancelled")), "{shown}");
    assert_eq!((&record["value_bytes"], &record["partition"]), (&json!(1), &Value::Null), "{shown}");
    for (name, value) in [("id", event.as_str()), ("kind", "cancelled")] {
        assert!(list_of(&record["headers"]).contains(&json!({ "name": name, "value": value })), "{shown}");
    }
    let text = run(&scene, &["show", &id]).assert_success().stdout.clone();
    for words in ["the record as it would be sent now", "header kind", "\npayload, 1 B\n1\n"] {
        assert!(text.contains(words), "no \"{words}\" in {text}");
    }
}

#[test]
fn a_payload_of_bytes_is_written_to_the_byte() {
    let ddl = "create table raw (id int primary key, aggregate_type text default current_database(), aggregate_id text,
                                 payload bytea)";
    let block = "table = \"raw\"\ncolumns = { event_type = \"\", timestamp = \"\", headers = \"\" }";
    let mut scene = Scene::with_outboxes(ddl, &[block]);
    scene.config = scene.config.set("dead_letter.backoff.first", "1h");
    let _relay = scene.relay();
    let bytes: Vec<u8> = (0..=255).collect();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    scene.database.exec(&format!("insert into raw (id, payload) values (1, decode('{hex}', 'hex')), (2, null)"));
    let [full, null] = ["1", "2"].map(|event| number(&scene, event));
    assert_eq!(payload(&scene, &full), bytes);
    assert_eq!(payload(&scene, &null), b"");

    let shown = json_of(&run(&scene, &["show", &full, "--json"]));
    assert_eq!((&shown["columns"]["id"], &shown["columns"]["payload"]), (&json!("1"), &json!({ "hex": hex })));
    let shown = json_of(&run(&scene, &["show", &null, "--json"]));
    assert_eq!(shown["columns"].get("payload"), Some(&Value::Null));
}

#[test]
fn a_payload_is_written_as_it_was_read_or_from_the_table_when_it_was_not_kept() {
    let scene = patient();
    let _relay = scene.relay();
    let small = r#"'{"b": [1, 2.50], "é": "a\tb"}'"#;
    let kept = insert(&scene, ["current_database()", "null", small, "null", "now()", "null"]);
    let large = "to_jsonb(repeat('x', 70000))";
    let large = insert(&scene, ["current_database()", "'k'", large, "null", "now()", "null"]);
    let [kept_id, large_id] = [&kept, &large].map(|event| number(&scene, event));
    let [small, large] = [&kept, &large].map(|event| {
        let sql = format!("select payload from outbox where id = '{event}'");
        scene.database.ask(&sql).expect("it has a payload")
    });
    assert_eq!(payload(&scene, &kept_id), small.as_bytes());
    assert_eq!(payload(&scene, &large_id), large.as_bytes());
    let shown = run(&scene, &["show", &large_id]).assert_success().stdout.clone();
    assert!(shown.contains("not kept; ") && shown.contains("in the table's row"), "{shown}");

    scene.database.exec("delete from outbox");
    assert_eq!(payload(&scene, &kept_id), small.as_bytes());
    assert_refused(&run(&scene, &["show", &large_id, "--payload"]), 1, &["was not kept", "backup"]);
    let shown = json_of(&run(&scene, &["show", &large_id, "--json"]));
    assert_eq!((&shown["not_kept"], &shown["columns"]["payload"]), (&json!(["payload"]), &Value::Null));
    assert_eq!(shown["now"]["rejected"]["reason"], "unreadable");
}

#[test]
fn a_retry_is_of_the_letters_that_are_named_and_of_no_others() {
    let scene = patient();
    let _relay = scene.relay();
    let events = ["a", "b", "c"].map(|key| old_with_key(&scene, key));
    let ids = events.each_ref().map(|event| number(&scene, event));
    mend(&scene);
    let ended = run(&scene, &["retry", &ids[0], &ids[1]]);
    assert!(ended.assert_success().stdout.starts_with("2 letters are to be retried"), "{ended:?}");
    for event in &events[..2] {
        scene.wait_state(event, "delivered");
    }
    let waits = "select state || ' ' || attempts || ' ' || (next_attempt > clock_timestamp()) from outboxd.dead_letter
                 order by id desc limit 1";
    assert_eq!(scene.database.ask(waits).as_deref(), Some("pending 1 true"));

    // One that cannot be retried any more keeps the others from it.
    let refused = run(&scene, &["retry", &ids[2], &ids[0]]);
    assert_refused(&refused, 1, &[&format!("dead letter {} is delivered", ids[0]), "nothing was changed"]);
    assert_eq!(scene.database.ask(waits).as_deref(), Some("pending 1 true"));
}

#[test]
fn all_that_match_are_changed_only_when_somebody_agrees() {
    let scene = patient();
    let _relay = scene.relay();
    for event in [old(&scene), keyless(&scene)] {
        scene.wait_letter(&event);
    }
    let before = store(&scene);
    for deed in [&["retry"][..], &["discard", "--note", "test"][..]] {
        let with = |more: &[&str]| run(&scene, &[deed, more].concat());
        assert_refused(&with(&["--all-matching"]), 2, &["--yes", "no terminal", "2 letters would be"]);
        let planned = with(&["--all-matching", "--reason", "key", "--dry-run"]);
        assert!(planned.assert_success().stdout.contains("1 letter would be"), "{planned:?}");
        let planned = json_of(&with(&["--all-matching", "--dry-run", "--json"]));
        assert_eq!((&planned["would"], &planned["letters"]), (&json!(deed[0]), &json!(2)), "{planned}");
        let matched = with(&["--all-matching", "--yes", "--key", "nobody"]);
        assert!(matched.assert_success().stdout.contains("nothing was changed"), "{matched:?}");
    }
    assert_eq!(store(&scene), before, "nothing was changed so far");

    let ended = run(&scene, &["discard", "--all-matching", "--reason", "key", "--yes", "--note", "test"]);
    assert!(ended.assert_success().stdout.starts_with("1 letter is discarded"), "{ended:?}");
    let states: Vec<String> = scene.dead_letters().into_iter().map(|letter| letter.state).collect();
    assert_eq!(states, ["pending", "discarded"]);
}

#[test]
fn a_rate_paces_the_change_of_many_letters() {
    let scene = patient();
    let _relay = scene.relay();
    let events: Vec<String> = (0..5).map(|_| keyless(&scene)).collect();
    events.iter().for_each(|event| drop(scene.wait_letter(event)));
    let begun = Instant::now();
    let ended = run(&scene, &["discard", "--all-matching", "--yes", "--note", "slowly", "--rate", "2"]);
    assert!(ended.assert_success().stdout.starts_with("5 letters are discarded"), "{ended:?}");
    assert!(begun.elapsed() >= Duration::from_secs(2), "it took {:?}", begun.elapsed());
    // Two at once, two a second later, the last one two seconds later, less what the first ones took.
    let spread = "select extract(epoch from max(settled_at) - min(settled_at)) from outboxd.dead_letter";
    let spread: f64 = scene.database.ask(spread).unwrap().parse().unwrap();
    assert!(spread > 1.0, "{spread} s from the first to the last");
}

#[test]
fn whoever_waits_for_a_retry_is_told_how_it_ended() {
    let scene = patient();
    let _relay = scene.relay();
    for key in ["a", "b"] {
        scene.wait_letter(&old_with_key(&scene, key));
    }
    let hopeless = number(&scene, &keyless(&scene));
    mend(&scene);
    let ended = run(&scene, &["retry", "--all-matching", "--reason", "timestamp", "--yes", "--wait"]);
    assert!(ended.assert_success().stdout.ends_with("\n2 delivered, 0 failed\n"), "{ended:?}");
    let states: Vec<String> = scene.dead_letters().into_iter().map(|letter| letter.state).collect();
    assert_eq!(states, ["delivered", "delivered", "pending"], "it has waited");

    // Who retries it says how often it is tried from then on.
    let once = scene.config.clone().set("dead_letter.max_attempts", 1);
    let ended = once.run(&["dead-letters", "retry", &hopeless, "--wait", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let summary: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&summary["changed"], &summary["left"]), (&json!(1), &json!(0)), "{summary}");
    assert_eq!((&summary["ends"]["delivered"], &summary["ends"]["failed"]), (&json!(0), &json!(1)), "{summary}");
}

#[test]
fn a_discarded_letter_says_who_gave_it_up_and_why_and_nobody_can_change_it() {
    let scene = patient();
    let _relay = scene.relay();
    let id = number(&scene, &keyless(&scene));
    assert_refused(&run(&scene, &["discard", &id]), 2, &["--note"]);
    assert_refused(&run(&scene, &["discard", "--all-matching", "--yes"]), 2, &["--note"]);
    assert_refused(&run(&scene, &["discard", &id, "--note", ""]), 2, &["--note"]);
    run(&scene, &["discard", &id, "--note", "duplicate, ticket 4711"]).assert_success();

    let shown = json_of(&run(&scene, &["show", &id, "--json"]));
    assert_eq!((&shown["state"], &shown["note"]), (&json!("discarded"), &json!("duplicate, ticket 4711")));
    assert!(shown["noted_by"].as_str().is_some_and(|person| person.contains('@')), "{shown}");
    assert!(shown["settled_at"].is_string(), "{shown}");
    let settled = store(&scene);
    let id = id.as_str();
    for arguments in [&["retry", id][..], &["discard", id, "--note", "again"][..]] {
        assert_refused(&run(&scene, arguments), 1, &[&format!("dead letter {id} is discarded")]);
    }
    assert_eq!(store(&scene), settled);
}

#[test]
fn an_export_is_a_line_of_json_for_each_letter_with_its_whole_row() {
    let scene = patient();
    let _relay = scene.relay();
    let events = [old(&scene), keyless(&scene)];
    events.iter().for_each(|event| drop(scene.wait_letter(event)));
    let exported = run(&scene, &["export"]);
    let letters = lines_of(&exported);
    assert_eq!(events_of(&letters), events);
    let columns = [&letters[0]["columns"], &letters[1]["columns"]];
    assert_eq!(columns.map(|columns| &columns["id"]), [&json!(events[0]), &json!(events[1])]);
    assert_eq!(columns.map(|columns| &columns["payload"]), [&json!("1"), &json!("1")]);
    assert_eq!(columns.map(|columns| &columns["aggregate_id"]), [&json!("k"), &Value::Null]);
    // Columns that no part of an event is mapped to are kept, too.
    assert_eq!(columns[0].get("idempotency_key"), Some(&Value::Null));
    let reasons = [0, 1].map(|at: usize| &letters[at]["history"][0]["reason"]);
    assert_eq!(reasons, [&json!("timestamp"), &json!("key")]);

    let scratch = Scratch::new();
    let file = scratch.path().join("letters.jsonl");
    let ended = run(&scene, &["export", "--output", file.to_str().unwrap()]);
    assert_eq!(ended.assert_success().stdout, "", "it is in the file");
    assert_eq!(fs::read_to_string(&file).unwrap(), exported.stdout);
    let nowhere = scratch.path().join("nowhere/letters.jsonl");
    assert_refused(&run(&scene, &["export", "--output", nowhere.to_str().unwrap()]), 1, &["cannot write to"]);
}

#[test]
fn what_cannot_be_meant_is_refused_with_words_that_help() {
    let scene = Scene::new();
    let slot = scene.config.slot();
    let refused: [(&[&str], i32, &[&str]); 11] = [
        (&["show", "4711"], 1, &["dead letter 4711 does not exist", slot, "outboxd dead-letters list"]),
        (&["retry", "4711"], 1, &["dead letter 4711 does not exist", slot, "outboxd dead-letters list"]),
        (&["discard", "4711", "--note", "test"], 1, &["dead letter 4711 does not exist", slot]),
        (&["show", "first"], 2, &["invalid value 'first'"]),
        (&["retry", "0"], 2, &["invalid value '0'"]),
        (&["list", "--reason", "keys"], 2, &["invalid value 'keys'", "timestamp", "unknown_topic"]),
        (&["list", "--state", "open"], 2, &["invalid value 'open'", "pending", "discarded"]),
        (&["export", "--older-than", "soon"], 2, &["invalid value 'soon'", "--older-than"]),
        (&["retry", "--reason", "key"], 2, &["--all-matching"]),
        (&["retry", "1", "--reason", "key"], 2, &["cannot be used with"]),
        (&["retry", "--all-matching", "--yes", "--state", "delivered"], 1, &["delivered cannot be retried", "failed"]),
    ];
    for (arguments, code, words) in refused {
        assert_refused(&run(&scene, arguments), code, words);
    }
}

#[test]
fn a_database_without_the_tables_is_told_what_makes_them() {
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    for command in COMMANDS {
        assert_refused(&run(&scene, command), 1, &["outboxd.dead_letter", "outboxd init"]);
    }
    assert_refused(&scene.config.run(&["resume"]), 1, &["outboxd.pause", "outboxd init"]);
}

#[test]
fn letters_that_are_kept_in_a_topic_are_not_looked_for_in_the_database() {
    let mut scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    scene.config = scene.config.set("dead_letter.store", "kafka").set("dead_letter.topic", "parked");
    for command in COMMANDS {
        assert_refused(&run(&scene, command), 1, &["topic \"parked\"", "can only be read there"]);
    }
}
