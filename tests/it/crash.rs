//! The relay dies, is told to go, or loses its connection: nothing is lost, nothing reordered, and only a death repeats.

use std::time::{Duration, Instant};

use crate::steady;
use crate::support::relay::Relay;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually, throughout};

#[test]
fn a_relay_killed_under_load_loses_and_reorders_nothing() {
    let scene = Scene::new();
    let load = steady::load(&scene, 1000.0);
    for _ in 0..4 {
        let mut relay = scene.relay();
        relay.wait_published(500.0);
        relay.sigkill();
    }
    let _relay = scene.relay();
    steady::judge(&scene, load);
}

#[test]
fn a_relay_told_to_stop_under_load_repeats_nothing_when_it_starts_again() {
    let scene = Scene::new();
    let load = steady::load(&scene, 1000.0);
    for _ in 0..4 {
        let mut relay = scene.relay();
        relay.wait_published(500.0);
        relay.sigterm();
        assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    }
    let _relay = scene.relay();
    steady::judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_cut_replication_connection_repeats_nothing() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    for cuts in [0.0, 1.0, 2.0, 3.0] {
        relay.wait_published(500.0);
        let struck = Instant::now();
        assert!(scene.database.cut_replication(scene.config.slot()), "{}", relay.log());
        relay.wait_session_lost(struck, cuts);
        relay.wait_ready();
    }
    steady::judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_walsender_that_is_terminated_again_and_again_repeats_nothing() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("limits.backoff", "200ms");
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    relay.wait_published(500.0);
    for _ in 0..20 {
        eventually("the walsender is cut", PATIENCE, || scene.database.cut_replication(scene.config.slot()));
    }
    relay.wait_ready();
    assert!(relay.sessions_lost() >= 1.0, "{}", relay.log());
    steady::judge(&scene, load).assert_exactly_once();
    // Nobody but us has moved the slot.
    assert_eq!(relay.metric("outboxd_slot_moves_total"), Some(0.0), "{}", relay.log());
}

#[test]
fn a_relay_frozen_for_less_than_its_lease_repeats_nothing() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("postgres.sender_timeout", "30s");
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    for _ in 0..3 {
        relay.wait_published(500.0);
        relay.sigstop();
        assert!(relay.readiness().is_none(), "nobody answers for five seconds, which is how long we ask");
        relay.sigcont();
        relay.wait_ready();
    }
    steady::judge(&scene, load).assert_exactly_once();
    assert_eq!(relay.metric("outboxd_reconnects_total"), Some(0.0), "{}", relay.log());
}

#[test]
fn relays_killed_at_any_moment_of_their_lives_lose_and_reorder_nothing() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("postgres.sender_timeout", "1s");
    let load = steady::load(&scene, 1000.0);
    let seed = fastrand::u64(..);
    eprintln!("kills by seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for life in 0..15 {
        // Every third one finds the name of a relay that may live, and dies in the wait for it, or a little later.
        if life % 3 == 2 {
            scene.move_leader_elsewhere();
        }
        let mut relay = Relay::start(&scene.config);
        let life = Duration::from_millis(rng.u64(0..1500));
        throughout("it lives", life, || relay.is_running());
        // Every other one is told to go, and is killed on the way out.
        if rng.bool() {
            relay.sigterm();
            let leaving = Duration::from_millis(rng.u64(0..200));
            crate::support::within(leaving, || (!relay.is_running()).then_some(()));
        }
        relay.sigkill();
    }
    let _relay = scene.relay();
    steady::judge(&scene, load);
}
