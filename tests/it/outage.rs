//! A server goes away while events flow, and comes back: readiness says which, lag grows, and nothing is repeated,
//! because what is in flight stays with the producer and replayed rows are known by their position.

use std::time::{Duration, Instant};

use crate::steady;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, Stop};
use crate::support::scene::Scene;

#[test]
fn postgresql_restarted_in_every_way_under_load_loses_and_repeats_nothing() {
    let scene = Scene::on(&Postgres::private(), &Kafka::shared());
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    relay.wait_published(500.0);
    for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        let before = relay.sessions_lost();
        let struck = struck(matches!(how, Stop::Fast), || scene.postgres.stop(how));
        relay.wait_noticed(struck, "postgres_unreachable");
        assert!(relay.sessions_lost() > before, "{}", relay.log());
        scene.postgres.start();
        relay.wait_ready();
        relay.wait_published(500.0);
    }
    steady::judge(&scene, load).assert_exactly_once();
}

#[test]
fn postgresql_frozen_under_load_for_less_than_the_lease_shows_and_loses_and_repeats_nothing() {
    let mut scene = Scene::on(&Postgres::private(), &Kafka::shared());
    // The lease is two thirds of it, far beyond the moment at which silence shows.
    scene.config = scene.config.set("postgres.sender_timeout", "30s");
    let mut relay = scene.relay();
    let load = steady::load(&scene, 1000.0);
    relay.wait_published(500.0);
    let struck = Instant::now();
    let frozen = Frozen::new(&scene.postgres);
    relay.wait_noticed(struck, "postgres_silent");
    assert!(relay.last_frame_age() >= 3.5, "{}", relay.metrics());
    drop(frozen);
    relay.wait_ready();
    relay.wait_published(500.0);
    steady::judge(&scene, load).assert_exactly_once();
    assert_eq!(relay.metric("outboxd_reconnects_total"), Some(0.0), "{}", relay.log());
}

#[test]
fn kafka_restarted_killed_and_frozen_under_load_loses_and_repeats_nothing() {
    let scene = Scene::on(&Postgres::private(), &Kafka::private());
    let mut relay = scene.relay();
    let load = steady::load(&scene, 500.0);
    relay.wait_published(300.0);
    let disturbances: [fn(&Kafka); 3] = [Kafka::stop, Kafka::kill, Kafka::pause];
    for (round, disturb) in disturbances.into_iter().enumerate() {
        let struck = struck(round == 0, || disturb(&scene.kafka));
        relay.wait_noticed(struck, "kafka_silent");
        relay.wait_lag_grows();
        match round {
            2 => scene.kafka.resume(),
            _ => scene.kafka.start(),
        }
        relay.wait_ready();
        relay.wait_published(300.0);
    }

    // Both at once: the nearer one is named first.
    scene.kafka.kill();
    let struck = Instant::now();
    scene.postgres.stop(Stop::Immediate);
    relay.wait_noticed(struck, "postgres_unreachable");
    scene.postgres.start();
    relay.wait_unready("kafka_silent", Duration::from_secs(15));
    scene.kafka.start();
    relay.wait_ready();
    relay.wait_published(300.0);
    steady::judge(&scene, load).assert_exactly_once();
}

/// A server that goes on when this is dropped: a test that fails meanwhile would wait for ever for those who ask it.
struct Frozen<'a>(&'a Postgres);

impl<'a> Frozen<'a> {
    fn new(server: &'a Postgres) -> Frozen<'a> {
        server.pause();
        Frozen(server)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// Strikes, and says when: what is stopped in good order serves until its end.
fn struck(in_good_order: bool, strike: impl FnOnce()) -> Instant {
    let told = Instant::now();
    strike();
    if in_good_order { Instant::now() } else { told }
}
