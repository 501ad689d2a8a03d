//! Debezium goes, outboxd comes, as docs/migrating-from-debezium.md has it: the connector's file becomes outboxd's own, `init` and
//! `check` go by while Debezium still publishes, and outboxd takes over slot and publication under a load that does not wait.
//! Nothing is lost or skipped, every record keeps its form and its partition, and only what Debezium had not confirmed comes twice.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::support::debezium::{JVM, Properties, STARTED, Source, Worker, properties};
use crate::support::kafka::Kafka;
use crate::support::oracle::{Event, Truth};
use crate::support::postgres::Postgres;
use crate::support::process::Scratch;
use crate::support::reader::Seen;
use crate::support::relay::{Config, Relay, outboxd};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, within};

/// The table of Debezium's documentation. The load writes to an outbox of outboxd's own names, which is a view of it.
const TABLE: &str = "
    create table public.outboxevent (id uuid primary key, aggregatetype varchar(255) not null,
        aggregateid varchar(255) not null, type varchar(255) not null, payload jsonb, tenant integer default 7);
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
    let (mut scene, scratch) = (scene(), Scratch::new());
    let connector = connector(&scene);
    scene.config = converted(&connector, &scratch);
    // A killed one has confirmed nothing at all before the first of these, which by default comes after a minute.
    let confirms = [("offset.flush.interval.ms", "1000")];
    let mut debezium = Worker::start(&scene.kafka.brokers(), scratch.path(), &JVM, &confirms, &[connector]);
    let reads = within(STARTED, || scene.walsender().filter(|_| !debezium.has_ended()));
    assert!(reads.is_some(), "Debezium does not read: {}", debezium.log());
    let load = scene.workload().events_per_key(usize::MAX).events_per_second(EVENTS_PER_SECOND).start(&scene.database);
    let log = debezium.log();
    assert!(within(STARTED, || (scene.reader.count() >= EVENTS_BEFORE).then_some(())).is_some(), "too slow: {log}");

    // Debezium goes on meanwhile, and what it has made stays as it is.
    let made = kept(&scene);
    scene.config.run(&["init"]).assert_success();
    assert_eq!(check(&scene), ["slot.free"], "all is there but the slot, which Debezium has");
    assert_eq!(kept(&scene), made, "init changes neither slot nor publication");
    let before_init = scene.reader.count();
    eventually("Debezium still publishes", PATIENCE, || scene.reader.count() > before_init);
    match end {
        End::Asked => debezium.stop(),
        End::Killed => drop(debezium),
    }
    eventually("the slot is free", PATIENCE, || scene.walsender().is_none());
    assert!(check(&scene).is_empty(), "and now it is free");
    let confirmed = scene.confirmed();
    scene.reader.catch_up(PATIENCE);
    let theirs = scene.reader.seen();
    let before = theirs.len();

    let mut relay = Relay::start(&scene.config);
    relay.wait_ready();
    load.wait_written(EVENTS);
    let truth = load.stop();
    let verdict = scene.judge(&truth);
    verdict.assert_order_was_tried();
    assert!(relay.published() > 0.0, "{}", relay.log());
    same_records(&theirs, &scene.reader.seen());

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
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    scene.database.exec(TABLE);
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    scene
}

/// As its documentation has it: slot and publication are its own work.
fn connector(scene: &Scene) -> Properties {
    let (slot, publication) = (scene.config.slot(), scene.config.slot());
    let source = Source { database: &scene.database, table: "public.outboxevent", slot, publication };
    let mut connector = source.connector(slot);
    connector.extend(properties(&[
        ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("publication.autocreate.mode", "filtered"),
        ("extended.headers.enabled", "false"),
        ("producer.override.bootstrap.servers", &scene.kafka.brokers()),
        ("producer.override.enable.idempotence", "true"),
        ("transforms.outbox.table.fields.additional.placement", "type:header:eventType,tenant:header"),
    ]));
    connector
}

/// The same file as outboxd's own, of which only a test needs more: a short lease.
fn converted(connector: &Properties, scratch: &Scratch) -> Config {
    let file = scratch.path().join("connector.json");
    let json = serde_json::json!({ "name": connector["name"], "config": connector });
    std::fs::write(&file, json.to_string()).unwrap();
    let ended = outboxd(&["convert", file.to_str().expect("the path is text")]);
    Config::parse(&ended.assert_success().stdout).set("postgres.sender_timeout", "5s")
}

/// What `outboxd check` finds wrong.
fn check(scene: &Scene) -> Vec<String> {
    let ended = scene.config.run(&["check"]);
    let failed = ended.stdout.lines().filter_map(|line| line.strip_prefix("fail ")?.split_whitespace().next());
    let failed: Vec<String> = failed.map(str::to_owned).collect();
    assert_eq!(ended.code, Some(i32::from(!failed.is_empty())), "{ended:#?}");
    failed
}

/// What Debezium has made: the options of its publication and of its slot.
fn kept(scene: &Scene) -> Option<String> {
    let sql = "select concat_ws('; ', p, (select string_agg(prrelid::regclass::text, ',') from pg_publication_rel where prpubid = p.oid),
                   s.plugin, s.slot_type, s.temporary)
               from pg_publication p, pg_replication_slots s where pubname = $1 and slot_name = $1";
    let row = scene.database.connect().query_one(sql, &[&scene.config.slot()]);
    row.expect("both are there").get(0)
}

/// Holds every record of outboxd's to those of Debezium's: the partition of its key, its headers by name and order, and all of it
/// where it came twice.
fn same_records(theirs: &[Seen], all: &[Seen]) {
    let place = |seen: &Seen| (seen.partition, seen.offset);
    let known: HashSet<(i32, i64)> = theirs.iter().map(place).collect();
    let ours: Vec<&Seen> = all.iter().filter(|seen| !known.contains(&place(seen))).collect();
    let keys: HashMap<&str, i32> = theirs.iter().map(|seen| (seen.key(), seen.partition)).collect();
    let by_id: HashMap<&str, &Seen> = theirs.iter().map(|seen| (seen.id(), seen)).collect();
    let names = |seen: &Seen| seen.headers.iter().map(|(name, _)| name.clone()).collect::<Vec<String>>();
    let forms: BTreeSet<Vec<String>> = theirs.iter().map(names).collect();
    assert_eq!(forms, BTreeSet::from([["id", "eventType", "tenant"].map(str::to_owned).to_vec()]));
    let mut followed = HashSet::new();
    for seen in &ours {
        assert!(forms.contains(&names(seen)), "{seen:?}");
        assert_eq!(seen.header("tenant"), Some("7"), "{seen:?}");
        if let Some(partition) = keys.get(seen.key()) {
            assert_eq!(seen.partition, *partition, "{seen:?}");
            followed.insert(seen.key());
        }
        if let Some(first) = by_id.get(seen.id()) {
            let record = |seen: &Seen| (seen.key.clone(), seen.value.clone(), seen.headers.clone(), seen.partition);
            assert_eq!(record(seen), record(first), "the same event twice is the same record");
        }
    }
    assert!(followed.len() > 10, "{} keys have records of both", followed.len());
}

fn events(truth: &Truth) -> impl Iterator<Item = &Event> {
    truth.committed.values().flatten()
}
