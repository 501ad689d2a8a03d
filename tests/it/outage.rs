//! A server goes away while events flow, and comes back: readiness says which, lag grows, and nothing is repeated,
//! because what is in flight stays with the producer and replayed rows are known by their position.

use std::time::Duration;

use crate::support::eventually;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, Stop};
use crate::support::relay::Relay;
use crate::support::scene::Scene;

/// Within this time an outage shows in `/readyz`.
const NOTICED: Duration = Duration::from_secs(5);

#[test]
fn postgresql_restarted_in_every_way_under_load_loses_and_repeats_nothing() {
    let scene = Scene::on(&Postgres::private(), &Kafka::shared());
    let mut relay = scene.relay();
    let load = scene.workload().start(&scene.database);
    for (how, written) in [(Stop::Fast, 500), (Stop::Immediate, 1500), (Stop::Kill, 2500)] {
        load.wait_written(written);
        scene.postgres.stop(how);
        relay.wait_unready("postgres_unreachable", NOTICED);
        scene.postgres.start();
        relay.wait_ready();
    }
    let verdict = scene.judge(&load.finish());
    verdict.assert_exactly_once();
    verdict.assert_order_was_tried();
}

#[test]
fn kafka_restarted_killed_and_frozen_under_load_loses_and_repeats_nothing() {
    let scene = Scene::on(&Postgres::private(), &Kafka::private());
    let mut relay = scene.relay();
    let load = scene.workload().events_per_key(usize::MAX).events_per_second(500.0).start(&scene.database);
    let disturbances: [fn(&Kafka); 3] = [Kafka::stop, Kafka::kill, Kafka::pause];
    for (round, disturb) in disturbances.into_iter().enumerate() {
        load.wait_written(load.written() + 300);
        disturb(&scene.kafka);
        relay.wait_unready("kafka_silent", NOTICED);
        lag_grows(&relay);
        match round {
            2 => scene.kafka.resume(),
            _ => scene.kafka.start(),
        }
        relay.wait_ready();
    }

    // Both at once: the nearer one is named first.
    scene.kafka.kill();
    scene.postgres.stop(Stop::Immediate);
    relay.wait_unready("postgres_unreachable", NOTICED);
    scene.postgres.start();
    relay.wait_unready("kafka_silent", Duration::from_secs(15));
    scene.kafka.start();
    relay.wait_ready();

    load.wait_written(load.written() + 300);
    let verdict = scene.judge(&load.stop());
    verdict.assert_exactly_once();
    verdict.assert_order_was_tried();
}

/// The age of the oldest unsettled event is computed at scrape time: it must not freeze with the relay.
#[track_caller]
fn lag_grows(relay: &Relay) {
    let lag = || relay.metric("outboxd_lag_seconds").expect("it is always there");
    let before = lag();
    eventually("the lag grows", NOTICED, || lag() > before + 1.0);
}
