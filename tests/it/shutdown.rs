//! Somebody wants to stop: the primary, which must not wait for Kafka, or the relay, which repeats only what it must.

use std::time::{Duration, Instant};

use crate::bulk;
use crate::support::kafka::Kafka;
use crate::support::oracle::{Event, Truth};
use crate::support::postgres::{Postgres, Stop};
use crate::support::proxy::{Proxy, Way};
use crate::support::reader::{Reader, Seen};
use crate::support::relay::{Config, Relay};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually};

const GRACE: Duration = Duration::from_secs(4);
/// What a stop takes beside the grace, which counts from the moment at which the relay knows: a probe is refused (one
/// is due every 0.8 s, a sixth of the sender's timeout) or eight pings have come, 50 ms apart, behind the server's
/// checkpoint. When the relay has left, the server's processes end.
const MARGIN: Duration = Duration::from_secs(2);

#[test]
fn a_primary_that_shuts_down_waits_for_kafka_no_longer_than_the_grace() {
    let (postgres, kafka) = (Postgres::private(), Kafka::private());
    let mut scene = unwatched(&postgres, &kafka);
    scene.config = scene.config.set("limits.primary_grace", "4s");
    let mut relay = scene.relay();
    let mut written = Vec::new();
    for how in [Stop::Fast, Stop::Smart] {
        // With Kafka there, the last answers come at once and nobody waits for the grace.
        written.extend(write(&scene, 20));
        let took = stop(&postgres, how);
        assert!(took < GRACE, "a stop ({how:?}) took {took:?}\n{}", relay.log());
        postgres.start();
        relay.wait_ready();

        kafka.pause();
        written.extend(write(&scene, 20));
        in_flight(&relay, 20);
        let before = relay.sessions_lost();
        let took = stop(&postgres, how);
        assert!(took < GRACE + MARGIN, "a stop ({how:?}) took {took:?}\n{}", relay.log());
        relay.wait_noticed(Instant::now(), "postgres_unreachable");
        assert!(relay.sessions_lost() > before, "{}", relay.metrics());
        kafka.resume();
        postgres.start();
        relay.wait_ready();
    }
    // They have one key, so whatever is repeated stands before the last one.
    written.extend(write(&scene, 1));
    let last = written.last().map(String::as_str);
    let seen = scene.reader.wait_for("the last one", PATIENCE, |seen| seen.last().map(Seen::id) == last);
    let ids: Vec<&str> = seen.iter().map(Seen::id).collect();
    assert_eq!(ids, written, "each event once, in order\n{}", relay.log());
}

#[test]
fn a_smart_stop_under_load_lets_the_writers_finish_and_is_not_held_up_by_the_relay() {
    let postgres = Postgres::private();
    let mut scene = unwatched(&postgres, &Kafka::shared());
    scene.config = scene.config.set("limits.primary_grace", "4s");
    let mut relay = scene.relay();
    // The writers go on for longer than the grace.
    let load = scene.workload().events_per_second(600.0).start(&scene.database);
    load.wait_written(500);
    postgres.begin_stop(Stop::Smart);
    relay.wait_log("PostgreSQL is shutting down", PATIENCE);
    eventually("the writers finish", PATIENCE, || load.is_over());
    eventually("the server stops", GRACE + MARGIN, || postgres.has_stopped());
    relay.wait_noticed(Instant::now(), "postgres_unreachable");
    // As long as somebody writes, the server does not wait for us, and events flow.
    scene.reader.wait_count(load.written(), Duration::from_secs(5));
    postgres.start();
    relay.wait_ready();
    let verdict = scene.judge(&load.finish());
    verdict.assert_exactly_once();
    verdict.assert_order_was_tried();
}

#[test]
fn a_relay_told_to_stop_while_idle_leaves_at_once_and_in_good_order() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    scene.write("k", "{}");
    scene.reader.wait_count(1, PATIENCE);
    relay.sigterm();
    assert_eq!(relay.wait_exit(Duration::from_secs(3)), Some(0), "{}", relay.log());
    assert_eq!(scene.database.ask(&left_cleanly(&scene)).as_deref(), Some("t"));
    assert!(!relay.log().contains("WARN"), "{}", relay.log());
}

/// Its first producer had to make way for one with smaller batches: once nothing of it can land any more, nobody need wait.
#[test]
fn a_relay_whose_producer_was_replaced_a_while_ago_leaves_in_good_order() {
    let scene = Scene::new();
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "100000")]);
    let mut relay = scene.relay();
    scene.write("k", "{}");
    scene.reader.wait_count(1, PATIENCE);
    assert_eq!(relay.producers_replaced(), 1.0, "{}", relay.log());
    std::thread::sleep(Duration::from_secs(6));
    relay.sigterm();
    assert_eq!(relay.wait_exit(Duration::from_secs(3)), Some(0), "{}", relay.log());
    assert_eq!(scene.database.ask(&left_cleanly(&scene)).as_deref(), Some("t"), "{}", relay.log());
}

#[test]
fn a_relay_told_to_stop_inside_a_large_transaction_reads_to_its_end_and_repeats_nothing() {
    let kafka = Kafka::private();
    let mut scene = Scene::on(&Postgres::shared(), &kafka);
    scene.config = scene.config.set("limits.window", 100);
    let mut relay = flowing(&scene);
    kafka.pause();
    let mut truth = bulk::write(&scene, 5000, 100);
    in_flight(&relay, 100);
    let told = Instant::now();
    relay.sigterm();
    relay.wait_noticed(told, "stopping");
    assert_eq!(relay.metric("outboxd_state{state=\"stopping\"}"), Some(1.0), "{}", relay.metrics());
    kafka.resume();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    assert!(!relay.log().contains("publish these rows again"), "{}", relay.log());
    let _relay = scene.relay();
    let last = Event { id: scene.write("last", "{}"), committed_by: Some(scene.written()) };
    truth.committed.insert("last".to_string(), vec![last]);
    // What the second relay may repeat has arrived by then, in whichever partition.
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    scene.judge(&truth).assert_exactly_once();
}

#[test]
fn a_relay_told_to_stop_while_kafka_is_away_leaves_in_time_and_says_what_will_be_repeated() {
    let kafka = Kafka::private();
    let mut scene = Scene::on(&Postgres::shared(), &kafka);
    scene.config = scene.config.set("limits.shutdown", "4s");
    let mut relay = flowing(&scene);
    kafka.pause();
    bulk::write(&scene, 10, 100);
    in_flight(&relay, 10);
    relay.sigterm();
    assert_eq!(relay.wait_exit(Duration::from_secs(5)), Some(0), "{}", relay.log());
    assert!(relay.log().contains("\"repeats\":10"), "{}", relay.log());

    // A second signal does not wait at all.
    kafka.resume();
    relay = flowing(&scene);
    kafka.pause();
    scene.write("k", "{}");
    in_flight(&relay, 1);
    relay.sigterm();
    relay.wait_log("a second signal ends at once", PATIENCE);
    relay.sigterm();
    assert_eq!(relay.wait_exit(Duration::from_secs(2)), Some(143), "{}", relay.log());

    kafka.resume();
    let _relay = scene.relay();
    scene.write("last", "{}");
    let written = scene.database.ask("select string_agg(id::text, ' ') from public.outbox").unwrap();
    scene
        .reader
        .wait_for("every event", PATIENCE, |seen| written.split(' ').all(|id| seen.iter().any(|seen| seen.id() == id)));
}

#[test]
fn a_relay_that_cannot_tell_its_last_position_says_so_all_along_and_counts_what_repeats() {
    let mut scene = Scene::new();
    let (proxy, mut relay, mut truth, told) = told_to_stop_unheard(&mut scene, "10s");
    assert_eq!(relay.wait_exit(Duration::from_secs(12)), Some(0), "{}", relay.log());
    let took = told.elapsed();
    assert!(took > Duration::from_secs(7), "it has not waited for the server\n{}", relay.log());
    assert!(took < Duration::from_millis(10_500), "it took {took:?}, and may take 10 s\n{}", relay.log());
    // What is still on its way to the server finds nobody there.
    end_walsender(&scene);
    proxy.heal();
    let (counted, repeated) = repeats(&scene, &relay, &mut truth);
    assert!(counted.is_some() && is_told(counted, repeated), "{repeated} repeated, {counted:?}\n{}", relay.log());
}

#[test]
fn a_relay_told_to_stop_does_not_wait_for_a_walsender_that_is_gone() {
    let mut scene = Scene::new();
    let (proxy, mut relay, mut truth, _) = told_to_stop_unheard(&mut scene, "30s");
    // Its last words never arrive, and the way to the server is free again.
    end_walsender(&scene);
    proxy.heal();
    assert_eq!(relay.wait_exit(Duration::from_secs(10)), Some(0), "{}", relay.log());
    // It may have been back in time to tell its position after all.
    let (counted, repeated) = repeats(&scene, &relay, &mut truth);
    assert!(is_told(counted, repeated), "{repeated} repeated, {counted:?}\n{}", relay.log());
}

/// Nobody reads from the relay any more.
#[track_caller]
fn end_walsender(scene: &Scene) {
    eventually("the walsender is gone", PATIENCE, || {
        scene.database.cut_replication(scene.config.slot());
        scene.walsender().is_none()
    });
}

/// A relay that has published what the server does not know of, because nothing reaches it, and that is told to stop.
#[track_caller]
fn told_to_stop_unheard(scene: &mut Scene, shutdown: &str) -> (Proxy, Relay, Truth, Instant) {
    let proxy = Proxy::start(scene.postgres.port());
    let config = scene.config.clone().set("postgres.url", scene.url_through(&proxy));
    scene.config = config.set("limits.shutdown", shutdown).set("postgres.sender_timeout", "60s");
    let mut relay = flowing(scene);
    proxy.lose(Way::ToServer);
    let truth = bulk::write(scene, 300, 10);
    eventually("all is published", PATIENCE, || relay.published() >= 301.0);
    let told = Instant::now();
    relay.sigterm();
    relay.wait_noticed(told, "stopping");
    (proxy, relay, truth, told)
}

/// Whether what was repeated is what was counted beforehand, where anything was: something, and no more.
fn is_told(counted: Option<usize>, repeated: usize) -> bool {
    counted.map_or(repeated == 0, |counted| (1..=counted).contains(&repeated))
}

/// How many rows the ended relay said that its next start would repeat, and how many another one repeats.
#[track_caller]
fn repeats(scene: &Scene, ended: &Relay, truth: &mut Truth) -> (Option<usize>, usize) {
    let log = ended.log();
    let counted = log.split("\"repeats\":").nth(1).map(|rest| rest.split(',').next().unwrap().parse().unwrap());
    let _relay = scene.relay();
    let last = Event { id: scene.write("last", "{}"), committed_by: Some(scene.written()) };
    truth.committed.insert("last".to_string(), vec![last]);
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    (counted, scene.judge(truth).duplicates)
}

/// A relay that knows its topic, every partition of it, and has nothing in flight.
#[track_caller]
fn flowing(scene: &Scene) -> Relay {
    let relay = scene.relay();
    scene.acquaint(&relay);
    relay
}

/// Waits until so many records are with Kafka, unanswered.
#[track_caller]
fn in_flight(relay: &Relay, records: u32) {
    let enough = || relay.metric("outboxd_inflight_events") >= Some(records.into());
    eventually("records are in flight", PATIENCE, enough);
}

/// Like any scene, but without the session that samples the slot: a smart stop would wait for it.
fn unwatched(postgres: &std::sync::Arc<Postgres>, kafka: &std::sync::Arc<Kafka>) -> Scene {
    let database = postgres.database();
    let config = Config::new(&database, kafka);
    config.run(&["init"]).assert_success();
    let aggregate_type = database.name().to_string();
    let topic = format!("outbox.event.{aggregate_type}");
    kafka.create_topic(&topic, PARTITIONS);
    let reader = Reader::start(kafka, &[&topic]);
    Scene { reader, config, topic, aggregate_type, database, postgres: postgres.clone(), kafka: kafka.clone() }
}

/// Writes so many events of one key, and returns their ids.
fn write(scene: &Scene, count: usize) -> Vec<String> {
    (0..count).map(|n| scene.write("k", &format!("{{\"n\": {n}}}"))).collect()
}

fn stop(postgres: &Postgres, how: Stop) -> Duration {
    let begun = Instant::now();
    postgres.stop(how);
    begun.elapsed()
}

fn left_cleanly(scene: &Scene) -> String {
    format!("select left_cleanly from outboxd.position where slot = '{}'", scene.config.slot())
}
