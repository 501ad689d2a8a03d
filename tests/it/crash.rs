//! The relay dies, is told to go, or loses its connection: nothing is lost, nothing reordered, and only a death repeats.

use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually};

#[test]
fn a_relay_killed_under_load_loses_and_reorders_nothing() {
    let scene = Scene::new();
    let load = scene.workload().start(&scene.database);
    for written in [500, 1500, 2500, 3500] {
        let mut relay = scene.relay();
        load.wait_written(written);
        relay.sigkill();
    }
    let _relay = scene.relay();
    let verdict = scene.judge(&load.finish());
    verdict.assert_order_was_tried();
}

#[test]
fn a_relay_told_to_stop_under_load_repeats_nothing_when_it_starts_again() {
    let scene = Scene::new();
    let load = scene.workload().start(&scene.database);
    for written in [500, 1500, 2500, 3500] {
        let mut relay = scene.relay();
        load.wait_written(written);
        relay.sigterm();
        assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    }
    let _relay = scene.relay();
    scene.judge(&load.finish()).assert_exactly_once();
}

#[test]
fn a_cut_replication_connection_repeats_nothing() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    let load = scene.workload().events_per_second(2500.0).start(&scene.database);
    for (cuts, written) in [(1.0, 500), (2.0, 1500), (3.0, 2500), (4.0, 3500)] {
        load.wait_written(written);
        relay.wait_ready();
        eventually("the walsender is cut", PATIENCE, || scene.database.cut_replication(scene.config.slot()));
        let lost = || relay.metric("outboxd_reconnects_total{side=\"postgres\"}");
        eventually("the relay has noticed", PATIENCE, || lost() >= Some(cuts));
    }
    scene.judge(&load.finish()).assert_exactly_once();
}
