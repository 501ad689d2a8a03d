//! The topic changes under load: it is deleted and created again, or takes less than it did. What Kafka has
//! acknowledged is Kafka's; of the rest nothing is lost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::steady;
use crate::support::kafka::Kafka;
use crate::support::oracle::{self, Fact, Record};
use crate::support::postgres::Postgres;
use crate::support::reader::Reader;
use crate::support::scene::{Letter, PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually};

#[test]
fn a_topic_deleted_and_created_again_under_load_gets_whatever_its_former_life_had_not() {
    let scene = on_a_cluster();
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    load.wait_written(1500);

    let struck = Instant::now();
    scene.kafka.delete_topic(&scene.topic);
    relay.wait_noticed(struck, "topic_missing");
    relay.wait_lag_grows();
    let confirmed = scene.confirmed();
    let former = scene.kafka.deleted_records(&scene.topic);
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    // Not the scene's: it would go on at the offsets of the former life.
    let mut reader = Reader::start(&scene.kafka, &[&scene.topic]);
    reader.watch_confirmed(&scene.database, scene.config.slot());
    reader.disturbed("topic deleted");
    relay.wait_ready();
    load.wait_written(load.written() + 7000);
    let truth = load.stop();

    // What the former life took has arrived, read or not, and came before all that the next one got.
    let mut history = former_life(&scene, &former);
    assert!(!history.is_empty());
    history.push(Fact::Confirmed(confirmed));
    let arrived: HashSet<&str> = history.iter().filter_map(id_of).collect();
    let committed = truth.committed.values().flatten().map(|event| event.id.as_str());
    let missing: HashSet<&str> = committed.filter(|id| !arrived.contains(id)).collect();
    assert!(reader.wait_all(&missing, PATIENCE), "of {} events not all have arrived", missing.len());
    reader.catch_up(PATIENCE);
    history.extend(reader.history());
    let verdict = oracle::judge(&truth, &history);
    eprintln!("{verdict}");
    verdict.assert_at_least_once();
    verdict.assert_order_was_tried();
}

/// The next life begins at leader epoch 0, and librdkafka passes over whatever it hears of a partition with a lower epoch
/// than it knows: it would ask the former leader for ever.
#[test]
fn a_topic_whose_next_life_has_another_leader_gets_its_events() {
    let kafka = Kafka::options().brokers(2).start();
    let scene = Scene { aggregate_type: "remade".into(), ..Scene::on(&Postgres::shared(), &kafka) };
    let topic = "outbox.event.remade";
    kafka.create_topic_led_by(topic, 0);
    let led_by = kafka.move_leader(topic, 0);
    let reader = Reader::start(&kafka, &[topic]);
    let mut relay = scene.relay();
    let first = scene.write("k", "1");
    assert!(reader.wait_all(&HashSet::from([first.as_str()]), PATIENCE), "{}", relay.log());

    let struck = Instant::now();
    kafka.delete_topic(topic);
    let second = scene.write("k", "2");
    relay.wait_noticed(struck, "topic_missing");
    kafka.create_topic_led_by(topic, 1 - led_by);
    let reader = Reader::start(&kafka, &[topic]);
    assert!(reader.wait_all(&HashSet::from([second.as_str()]), Duration::from_secs(30)), "{}", relay.log());
    relay.wait_ready();
    assert_eq!(relay.producers_replaced(), 1.0, "{}", relay.log());
    let named = format!("topic \\\"{topic}\\\" failed: the client takes partition 0 to broker ");
    assert!(relay.log().contains(&named), "{}", relay.log());
}

#[test]
fn a_partition_that_was_added_a_moment_ago_takes_events() {
    let mut scene = Scene::new();
    scene.config = scene.config.without("outbox").add("outbox", "columns = { partition = \"partition\" }");
    scene.database.exec("alter table outbox add column partition int");
    let mut relay = scene.relay();
    let write = |partition: i32| {
        let sql = format!(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload, partition)
             values (current_database(), 'k', 't', '1', {partition}) returning id"
        );
        scene.database.ask(&sql).expect("the row has an id")
    };
    write(PARTITIONS - 1);
    scene.reader.wait_count(1, PATIENCE);
    scene.kafka.add_partitions(&scene.topic, PARTITIONS + 1);
    write(PARTITIONS);
    let seen = scene.reader.wait_count(2, PATIENCE);
    assert_eq!(seen[1].partition, PARTITIONS, "{}", relay.log());
    relay.wait_ready();

    // An event for one that there is not is parked, and goes there as soon as there is one.
    let early = write(PARTITIONS + 1);
    let behind = write(0);
    let letter = scene.wait_letter(&early);
    assert_eq!(letter.reason, "partition", "{letter:?}");
    assert!(letter.message.contains(&format!("none is {}", PARTITIONS + 1)), "{letter:?}");
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    relay.wait_ready();
    let seen = scene.reader.seen();
    assert_eq!((seen.len(), seen[2].id()), (3, behind.as_str()));
    scene.kafka.add_partitions(&scene.topic, PARTITIONS + 2);
    scene.retry_letters();
    scene.wait_state(&early, "delivered");
    let seen = scene.reader.wait_count(4, PATIENCE);
    assert_eq!((seen[3].id(), seen[3].partition), (early.as_str(), PARTITIONS + 1), "{}", relay.log());
}

#[test]
fn what_a_limit_lowered_under_load_shuts_out_is_parked_and_arrives_once_it_is_raised() {
    let scene = on_a_cluster();
    let scene = Scene { config: scene.config.set("limits.settle", "2s"), ..scene };
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    load.wait_written(1500);

    scene.reader.disturbed("limit lowered");
    let struck = Instant::now();
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "20000")]);
    // While the guilty one is searched for.
    relay.wait_noticed(struck, "delivery_failed");
    eventually("the producer is replaced", PATIENCE, || relay.producers_replaced() >= 1.0);
    eventually("one is parked", PATIENCE, || !scene.dead_letters().is_empty());
    let passed = "select confirmed_flush_lsn > commit_lsn from outboxd.dead_letter
                  join pg_replication_slots on slot_name = slot order by id limit 1";
    eventually("the slot passes it", PATIENCE, || scene.database.ask(passed).as_deref() == Some("t"));
    scene.reader.catch_up(PATIENCE);
    let parked = scene.dead_letters();
    let first = parked[0].event.as_deref().expect("the load's events have ids");
    assert!(!scene.reader.seen().iter().any(|seen| seen.id() == first), "event {first} was published");

    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "1000000")]);
    scene.retry_letters();
    relay.wait_ready();
    load.wait_written(load.written() + 7000);
    let verdict = scene.judge_with_letters(&load.stop());
    verdict.assert_order_was_tried();
    verdict.assert_exactly_once();
    eventually("all letters are delivered", PATIENCE, || {
        scene.dead_letters().iter().all(|letter| letter.state == "delivered")
    });
    assert_only_large_ones_were_parked(&scene);
}

/// Each parked event is one that the broker refused, and really is too large.
#[track_caller]
fn assert_only_large_ones_were_parked(scene: &Scene) {
    let letters = scene.dead_letters();
    let is_refused = |letter: &Letter| letter.reason == "refused" && letter.message.contains("refused it");
    assert!(letters.iter().all(is_refused), "{letters:#?}");
    let large = "select count(*) from outboxd.dead_letter join outbox on outbox.id::text = event_id
                 where length(payload::text) > 19000";
    assert_eq!(scene.database.ask(large), Some(letters.len().to_string()), "{letters:#?}");
}

/// Three replicas of every partition.
fn on_a_cluster() -> Scene {
    let scene = Scene::on(&Postgres::shared(), &Kafka::options().brokers(3).start());
    // Three JVMs on two cores can starve a relay of the proofs that a short lease wants.
    Scene { config: scene.config.set("postgres.sender_timeout", "30s"), ..scene }
}

/// The records in the printed files of deleted partitions, which have replicas. The tool shows no values of headers, so an
/// event is known by its key and its number there.
fn former_life(scene: &Scene, dump: &str) -> Vec<Fact> {
    let sql = "select aggregate_id::text, (payload::text::json ->> 'n')::bigint, id::text from outbox";
    let rows = scene.database.connect().query(sql, &[]).unwrap();
    let ids: HashMap<(String, i64), String> = rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    let mut partition = 0;
    let mut facts = BTreeMap::new();
    for line in dump.lines() {
        if let Some((_, file)) = line.split_once(&format!("{}-", scene.topic)).filter(|_| line.starts_with("Dumping "))
        {
            partition = file.split('.').next().unwrap_or_default().parse().expect("the directory has a number");
        }
        let Some((head, rest)) = line.split_once(" key: ") else { continue };
        let Some((key, payload)) = rest.split_once(" payload: ") else { continue };
        let offset = head.split_once("offset: ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<i64>().ok());
        let payload: Value = serde_json::from_str(payload).expect("the payload is JSON");
        let number = payload["n"].as_i64().expect("the load numbers its events");
        let id = ids.get(&(key.to_string(), number)).cloned().unwrap_or_else(|| format!("{key}/{number}"));
        let record = Record { place: (scene.topic.clone(), partition), key: key.to_string(), id };
        facts.insert((partition, offset.expect("a record has an offset")), Fact::Arrived(record));
    }
    facts.into_values().collect()
}

fn id_of(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::Arrived(record) | Fact::Late(record) => Some(record.id.as_str()),
        Fact::Parked(_) | Fact::Shelved(_) | Fact::Confirmed(_) | Fact::Disturbed(_) => None,
    }
}
