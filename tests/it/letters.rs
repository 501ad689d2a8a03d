//! Events that cannot be published: each is parked with its reason, the line goes on, and what was mended arrives.

use std::collections::HashSet;
use std::time::Duration;

use outboxd::config::Order;

use crate::support::reader::Reader;
use crate::support::relay::Relay;
use crate::support::scene::Scene;
pub(crate) use crate::support::spoiled::strict;
use crate::support::spoiled::{BAD, Spoiled, nowhere};
use crate::support::{PATIENCE, eventually, throughout};

/// Inserts a row, in a transaction with others or alone. Answers with its id.
pub(crate) fn insert(scene: &Scene, [kind, key, payload, headers, time, partition]: [&str; 6]) -> String {
    let sql = format!(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload, headers, created_at, partition)
         values ({kind}, {key}, 'written', {payload}, {headers}, {time}, {partition}) returning id"
    );
    scene.database.ask(&sql).expect("the row has an id")
}

pub(crate) fn good(scene: &Scene) -> String {
    insert(scene, ["current_database()", "'k'", "'1'", "null", "now()", "null"])
}

/// One that is older than the topic takes, with the key of the good ones.
pub(crate) fn old(scene: &Scene) -> String {
    insert(scene, ["current_database()", "'k'", "'1'", "null", "now() - interval '2 days'", "null"])
}

fn set(ids: &[String]) -> HashSet<&str> {
    ids.iter().map(String::as_str).collect()
}

#[test]
fn every_bad_event_is_parked_with_its_reason_and_all_others_arrive_in_order() {
    let scene = strict();
    let mut relay = scene.relay();
    let mut arrive = vec![good(&scene)];
    let mut bad = Vec::new();
    for (reason, columns) in BAD {
        bad.push((reason, insert(&scene, columns)));
        arrive.push(good(&scene));
    }
    assert!(scene.reader.wait_all(&set(&arrive), PATIENCE), "{}", relay.log());
    for (reason, event) in &bad {
        assert_eq!(scene.wait_letter(event).reason, *reason, "{}", relay.log());
    }
    scene.reader.wait_confirmed(scene.database.written(), PATIENCE);
    relay.wait_ready();
    let seen: Vec<String> = scene.reader.seen().iter().map(|seen| seen.id().to_string()).collect();
    assert_eq!(seen, arrive, "in order, each once, and none of the bad ones");
    for (reason, _) in BAD {
        let metric = format!("outboxd_events_rejected_total{{reason=\"{reason}\"}}");
        assert_eq!(relay.metric(&metric), Some(1.0), "{reason}");
    }
    assert!(relay.is_running());
}

#[test]
fn what_was_mended_is_delivered_by_a_retry_with_todays_configuration() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.backoff.first", "1h");
    let bad: Vec<String> = BAD.iter().map(|(_, columns)| insert(&scene, *columns)).collect();
    let mut relay = scene.relay();
    bad.iter().for_each(|event| drop(scene.wait_letter(event)));
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());

    // Topics and limits are mended, and routes: what has no key gets one, what has no topic goes to another.
    scene.kafka.create_topic(&nowhere(&scene), 1);
    let settings = [("max.message.bytes", "1000000"), ("message.timestamp.before.max.ms", "9223372036854775807")];
    scene.kafka.alter_topic(&scene.topic, &settings);
    scene.config = scene
        .config
        .without("route")
        .add(
            "route",
            &format!("match = {{ aggregate_type = \"no topic\" }}\ntopic = \"{}\"\nkey = \"{{id}}\"", scene.topic),
        )
        .add("route", "key = \"{id}\"")
        .set("limits.event", "1MiB");
    let _relay = scene.relay();
    let ended = scene.config.run(&["dead-letters", "retry", "--all-matching", "--yes"]);
    ended.assert_success();
    let mended = |reason: &str| !matches!(reason, "headers" | "partition" | "unknown_topic");
    let arrive: Vec<String> =
        BAD.iter().zip(&bad).filter(|((reason, _), _)| mended(reason)).map(|(_, event)| event.clone()).collect();
    assert!(scene.reader.wait_all(&set(&arrive), PATIENCE), "{:#?}", scene.dead_letters());
    for event in &arrive {
        scene.wait_state(event, "delivered");
    }
    // The payload that was too large to be kept was read from the table again.
    let large = scene.reader.seen().iter().map(|seen| seen.value().len()).max();
    assert_eq!(large, Some(70_002));
}

#[test]
fn a_key_with_a_parked_event_waits_behind_it_and_goes_live_again() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.order", "park-key").set("dead_letter.unknown_topic", "wait");
    let _relay = scene.relay();
    let first = good(&scene);
    let bad = old(&scene);
    let behind: Vec<String> = (0..20).map(|_| good(&scene)).collect();
    let other = insert(&scene, ["current_database()", "'other'", "'1'", "null", "now()", "null"]);
    assert!(scene.reader.wait_all(&HashSet::from([first.as_str(), other.as_str()]), PATIENCE));
    assert_eq!(scene.wait_letter(&behind[19]).reason, "behind");
    throughout("nothing of the key passes", Duration::from_secs(2), || scene.reader.count() == 2);

    scene.kafka.alter_topic(&scene.topic, &[("message.timestamp.before.max.ms", "9223372036854775807")]);
    scene.config.run(&["dead-letters", "retry", "--all-matching", "--yes"]).assert_success();
    let late = good(&scene);
    let all: Vec<String> = [vec![first, bad], behind, vec![late]].concat();
    assert!(scene.reader.wait_all(&set(&all), PATIENCE), "{:#?}", scene.dead_letters());
    let seen = scene.reader.seen();
    let seen: Vec<&str> = seen.iter().filter(|seen| seen.key() == "k").map(|seen| seen.id()).collect();
    assert_eq!(seen, all, "in order, each once");
    eventually("the key is live again", PATIENCE, || {
        let event = good(&scene);
        scene.reader.wait_all(&HashSet::from([event.as_str()]), PATIENCE);
        scene.dead_letters().iter().all(|letter| letter.event.as_deref() != Some(event.as_str()))
    });
}

#[test]
fn twenty_thousand_events_with_one_in_a_hundred_bad_survive_kills_and_all_arrive_when_mended() {
    Spoiled { events: 20_000, order: Order::Skip, kills: 5, refusals: 20 }.run();
}

#[test]
fn twenty_thousand_events_with_bad_ones_and_those_behind_them_survive_kills_and_all_arrive_in_order_when_mended() {
    Spoiled { events: 20_000, order: Order::ParkKey, kills: 5, refusals: 20 }.run();
}

#[test]
fn a_day_of_bad_events_is_not_parked_the_relay_pauses_and_a_person_resumes_it() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("dead_letter.max_rate", 20);
    let mut relay = scene.relay();
    let bad = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         select current_database(), null, 'written', '1' from generate_series(1, 500)";
    scene.database.exec(bad);
    relay.wait_unready("paused", PATIENCE);
    eventually("what was rejected before is parked", PATIENCE, || scene.dead_letters().len() == 100);
    let last = scene.write("k", "1");
    throughout("nothing more is parked", Duration::from_secs(2), || scene.dead_letters().len() == 100);
    // A pause outlives the process.
    relay.sigkill();
    let mut relay = Relay::start(&scene.config);
    relay.wait_unready("paused", PATIENCE);
    let ended = scene.config.run(&["resume"]);
    assert!(ended.assert_success().stdout.contains("20 %"), "{}", ended.stdout);
    assert!(scene.reader.wait_all(&HashSet::from([last.as_str()]), PATIENCE), "{}", relay.log());
    eventually("the others are parked", PATIENCE, || scene.dead_letters().len() == 500);
    relay.wait_ready();
    assert!(scene.config.run(&["resume"]).assert_success().stdout.contains("not paused"));
}

#[test]
fn a_store_that_cannot_be_written_holds_the_slot_and_says_so() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    let mut session = scene.database.connect();
    let mut lock = session.transaction().unwrap();
    lock.batch_execute("lock table outboxd.dead_letter in exclusive mode").unwrap();
    scene.database.exec(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         values (current_database(), null, 'written', '1')",
    );
    let good = scene.write("k", "1");
    assert!(scene.reader.wait_all(&HashSet::from([good.as_str()]), PATIENCE), "the line goes on: {}", relay.log());
    relay.wait_unready("dead_letter_store", PATIENCE);
    let after = scene.database.written();
    throughout("the slot stays before it", Duration::from_secs(1), || {
        scene.database.confirmed(scene.config.slot()).is_some_and(|confirmed| confirmed < after)
    });
    lock.rollback().unwrap();
    eventually("it is parked", PATIENCE, || scene.dead_letters().len() == 1);
    scene.reader.wait_confirmed(scene.database.written(), PATIENCE);
    relay.wait_ready();
}

#[test]
fn letters_in_a_topic_carry_the_row_and_the_reason() {
    let mut scene = Scene::new();
    let letters = format!("{}.letters", scene.topic);
    scene.config = scene.config.set("dead_letter.store", "kafka").set("dead_letter.topic", letters.as_str());
    let reader = Reader::start(&scene.kafka, &[&letters]);
    let relay = scene.relay();
    let sql = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         values (current_database(), null, 'written', '{\"n\": 1}') returning id";
    let event = scene.database.ask(sql).expect("an id");
    let good = scene.write("k", "1");
    assert!(scene.reader.wait_all(&HashSet::from([good.as_str()]), PATIENCE), "{}", relay.log());
    relay.wait_unready("dead_letter_store", PATIENCE);
    scene.kafka.create_topic(&letters, 1);
    let seen = reader.wait_count(1, PATIENCE);
    assert_eq!((seen[0].key(), seen[0].header("reason")), (event.as_str(), Some("key")));
    let letter: serde_json::Value = serde_json::from_str(seen[0].value()).unwrap();
    assert_eq!((letter["columns"]["payload"].as_str(), letter["reason"].as_str()), (Some("{\"n\": 1}"), Some("key")));
    scene.reader.wait_confirmed(scene.database.written(), PATIENCE);
}

#[test]
fn a_discarded_event_is_a_mark_with_a_note_and_opens_its_key() {
    let mut scene = strict();
    scene.config = scene.config.set("dead_letter.order", "park-key").set("dead_letter.unknown_topic", "wait");
    let _relay = scene.relay();
    let bad = old(&scene);
    let behind = good(&scene);
    let letter = scene.wait_letter(&bad);
    assert_eq!(scene.wait_letter(&behind).reason, "behind");
    let refused = scene.config.run(&["dead-letters", "discard", &letter.id.to_string()]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let ended = scene.config.run(&["dead-letters", "discard", &letter.id.to_string(), "--note", "ticket 7"]);
    ended.assert_success();
    assert!(scene.reader.wait_all(&HashSet::from([behind.as_str()]), PATIENCE), "{:#?}", scene.dead_letters());
    scene.wait_state(&bad, "discarded");
    let shown = scene.config.run(&["dead-letters", "show", &letter.id.to_string(), "--json"]);
    assert!(shown.assert_success().stdout.contains("ticket 7"), "{}", shown.stdout);
}

#[test]
fn a_standby_that_takes_over_finds_what_was_parked_and_publishes_none_of_it() {
    let scene = strict();
    let mut first = scene.relay();
    let bad: Vec<String> = (0..5).map(|_| insert(&scene, BAD[1].1)).collect();
    let good: Vec<String> = (0..5).map(|_| good(&scene)).collect();
    assert!(scene.reader.wait_all(&set(&good), PATIENCE));
    bad.iter().for_each(|event| drop(scene.wait_letter(event)));
    first.sigkill();
    // Its route would publish them now.
    let mended =
        scene.config.clone().without("route").add("route", "key = \"{id}\"").set("dead_letter.backoff.first", "1h");
    let mut second = Relay::start(&mended);
    second.wait_ready();
    scene.reader.wait_confirmed(scene.database.written(), PATIENCE);
    // A retry is readable before it is written down: read in this order, the two can only agree when nothing else published.
    eventually("only retries have published them", PATIENCE, || {
        let delivered = scene.dead_letters().iter().filter(|letter| letter.state == "delivered").count();
        scene.reader.catch_up(PATIENCE);
        scene.reader.seen().iter().filter(|seen| bad.iter().any(|event| event == seen.id())).count() == delivered
    });
    assert_eq!(scene.dead_letters().len(), 5, "nobody parks them twice");
}
