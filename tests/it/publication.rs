//! The publication or the slot is gone, at the start or under a running relay: a definite error with a hint, within the
//! five seconds that any fault may take to show.
//! From PostgreSQL 18 on the server only warns of a missing publication and sends nothing: the relay ends all the same.

use crate::support::relay::{NOTICED, Relay};
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually};

#[test]
fn a_publication_dropped_under_an_idle_relay_ends_it() {
    let (scene, mut relay) = flowing(|scene| scene);
    scene.database.exec(&format!("drop publication {}", scene.database.name()));
    assert_fails(&mut relay, &[&format!("publication \\\"{}\\\"", scene.database.name()), "outboxd init"]);
}

#[test]
fn a_publication_dropped_under_a_busy_relay_is_told_by_the_stream_itself() {
    // With a probe this rare, only the server's own words can end the relay in time.
    let (scene, mut relay) = flowing(|mut scene| {
        scene.config = scene.config.set("postgres.sender_timeout", "10min").set("limits.probe", "10min");
        scene
    });
    let confirmed = scene.confirmed();
    scene.database.exec(&format!("drop publication {}", scene.database.name()));
    scene.write("after", "{}");
    assert_fails(&mut relay, &[&format!("publication \\\"{}\\\"", scene.database.name()), "outboxd init"]);
    assert!(scene.confirmed() >= confirmed);
    scene.reader.catch_up(PATIENCE);
    assert_eq!(scene.reader.count(), 1);
}

#[test]
fn a_table_taken_out_of_the_publication_ends_the_relay() {
    let (scene, mut relay) = flowing(|scene| scene);
    scene.database.exec(&format!("alter publication {} drop table public.outbox", scene.database.name()));
    assert_fails(&mut relay, &["does not send table \\\"public.outbox\\\"", "ADD TABLE"]);
}

#[test]
fn a_relay_does_not_start_without_its_publication() {
    let scene = Scene::new();
    scene.database.exec(&format!("drop publication {}", scene.database.name()));
    let mut relay = Relay::start(&scene.config);
    assert_fails(&mut relay, &["does not exist", "outboxd init creates it"]);
}

#[test]
fn a_relay_does_not_start_without_its_slot() {
    let scene = Scene::new();
    scene.database.exec(&format!("select pg_drop_replication_slot('{}')", scene.config.slot()));
    let mut relay = Relay::start(&scene.config);
    assert_fails(&mut relay, &["replication slot", "does not exist", "outboxd init creates it"]);
}

#[test]
fn a_slot_dropped_under_a_running_relay_ends_it() {
    let (scene, mut relay) = flowing(|scene| scene);
    let slot = scene.config.slot();
    let drop =
        format!("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{slot}'");
    eventually("the slot is dropped between two sessions", PATIENCE, || {
        scene.database.cut_replication(slot);
        scene.database.connect().batch_execute(&drop).is_ok()
    });
    assert_fails(&mut relay, &["replication slot", "does not exist", "outboxd init creates"]);
}

/// A scene whose first event has arrived.
fn flowing(change: impl FnOnce(Scene) -> Scene) -> (Scene, Relay) {
    let scene = change(Scene::new());
    let relay = scene.relay();
    scene.write("before", "{}");
    scene.reader.wait_count(1, PATIENCE);
    (scene, relay)
}

#[track_caller]
fn assert_fails(relay: &mut Relay, says: &[&str]) {
    assert_eq!(relay.wait_exit(NOTICED), Some(1), "{}", relay.log());
    let log = relay.log();
    let unsaid: Vec<&&str> = says.iter().filter(|words| !log.contains(**words)).collect();
    assert!(unsaid.is_empty() && log.contains("hint: "), "not said: {unsaid:?}\n{log}");
}
