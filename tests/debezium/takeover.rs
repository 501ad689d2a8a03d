//! Debezium goes, outboxd comes: on the slot and the publication that Debezium has made for itself, under a load that does not
//! wait. Nothing is lost or skipped, every key stays in its partition, and only what Debezium had not confirmed comes twice.

use std::collections::{HashMap, HashSet};

use crate::support::debezium::{JVM, STARTED, Source, Worker, properties};
use crate::support::kafka::Kafka;
use crate::support::oracle::{Event, Truth};
use crate::support::postgres::Postgres;
use crate::support::process::Scratch;
use crate::support::relay::Relay;
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, within};

/// The table of Debezium's documentation. The load writes to an outbox of outboxd's own names, which is a view of it.
const TABLE: &str = "
    create table public.outboxevent (id uuid primary key, aggregatetype varchar(255) not null,
        aggregateid varchar(255) not null, type varchar(255) not null, payload jsonb);
    create view public.outbox as
        select id, aggregatetype as aggregate_type, aggregateid as aggregate_id, type as event_type, payload
        from public.outboxevent";
/// Enough that both have something to do, and that order can be judged.
const EVENTS_BEFORE: usize = 4000;
const EVENTS: usize = 12_000;
const EVENTS_PER_SECOND: f64 = 800.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Asked,
    Killed,
}

#[test]
#[ignore = "make test-debezium"]
fn outboxd_takes_over_from_a_debezium_that_was_stopped() {
    take_over(End::Asked);
}

#[test]
#[ignore = "make test-debezium"]
fn outboxd_takes_over_from_a_debezium_that_was_killed() {
    take_over(End::Killed);
}

fn take_over(end: End) {
    let scene = scene();
    let scratch = Scratch::new();
    let mut debezium = debezium(&scene, &scratch);
    let reads = within(STARTED, || scene.walsender().filter(|_| !debezium.has_ended()));
    assert!(reads.is_some(), "Debezium does not read: {}", debezium.log());
    let load = scene.workload().events_per_key(usize::MAX).events_per_second(EVENTS_PER_SECOND).start(&scene.database);
    let log = debezium.log();
    assert!(within(STARTED, || (scene.reader.count() >= EVENTS_BEFORE).then_some(())).is_some(), "too slow: {log}");
    match end {
        End::Asked => debezium.stop(),
        End::Killed => drop(debezium),
    }
    eventually("the slot is free", PATIENCE, || scene.walsender().is_none());
    let (confirmed, before) = (scene.confirmed(), scene.reader.count());

    scene.config.run(&["init"]).assert_success();
    let mut relay = Relay::start(&scene.config);
    relay.wait_ready();
    load.wait_written(EVENTS);
    let truth = load.stop();
    let verdict = scene.judge(&truth);
    verdict.assert_order_was_tried();
    assert!(relay.published() > 0.0, "{}", relay.log());

    // What came twice is the tail that Debezium had not confirmed, and nothing else.
    let tail: HashSet<&str> = events(&truth)
        .filter(|event| event.committed_by.is_none_or(|committed_by| committed_by > confirmed))
        .map(|event| event.id.as_str())
        .collect();
    let mut times = HashMap::<String, usize>::new();
    scene.reader.seen().iter().for_each(|seen| *times.entry(seen.id().to_string()).or_default() += 1);
    let repeated: Vec<&String> = times.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id).collect();
    eprintln!("{end:?}: Debezium published {before}, {} came twice, outboxd {}", repeated.len(), relay.published());
    assert!(repeated.iter().all(|id| tail.contains(id.as_str())), "{repeated:?} were confirmed up to {confirmed}");
    assert!(repeated.len() < before, "Debezium had confirmed some of it");
    // What the server sends again, outboxd publishes: it cannot know that Debezium has, but it does so once.
    assert_eq!(verdict.duplicates, repeated.len(), "nothing came three times");
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
}

fn scene() -> Scene {
    let mut scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    scene.database.exec(TABLE);
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    let outbox = "table = \"public.outboxevent\"
                  columns = { aggregate_type = \"aggregatetype\", aggregate_id = \"aggregateid\", event_type = \"type\",
                              timestamp = \"\", headers = \"\" }";
    let route = "topic = \"outbox.event.{aggregatetype}\"\nkey = \"{aggregateid}\"\ndefault_headers = \"id\"";
    scene.config = scene.config.without("route").add("outbox", outbox).add("route", route);
    scene
}

/// As its documentation has it: slot and publication are its own work.
fn debezium(scene: &Scene, scratch: &Scratch) -> Worker {
    let (slot, publication) = (scene.config.slot(), scene.config.slot());
    let source = Source { database: &scene.database, table: "public.outboxevent", slot, publication };
    let mut connector = source.connector(slot);
    connector.extend(properties(&[
        ("publication.autocreate.mode", "filtered"),
        ("extended.headers.enabled", "false"),
        ("producer.override.enable.idempotence", "true"),
    ]));
    // A killed one has confirmed nothing at all before the first of these, which by default comes after a minute.
    let confirms = [("offset.flush.interval.ms", "1000")];
    Worker::start(&scene.kafka.brokers(), scratch.path(), &JVM, &confirms, &[connector])
}

fn events(truth: &Truth) -> impl Iterator<Item = &Event> {
    truth.committed.values().flatten()
}
