//! A cluster of three brokers, replication 3 and `min.insync.replicas` 2, that loses one, two and all of them under
//! load. Nothing is repeated: what is in flight stays with the producer, which finds the next leader.

use std::time::{Duration, Instant};

use crate::steady;
use crate::support::kafka::{Kafka, Node};
use crate::support::postgres::Postgres;
use crate::support::relay::{NOTICED, Relay};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, throughout, within};

#[test]
fn brokers_killed_frozen_and_restarted_under_load_lose_and_repeat_nothing() {
    let mut scene = Scene::on(&Postgres::shared(), &Kafka::options().brokers(3).proxied().start());
    // Three JVMs starting on two cores can starve a relay of the proofs that a short lease wants.
    scene.config = scene.config.set("postgres.sender_timeout", "30s");
    scene.config = scene.config.set("kafka.brokers", scene.kafka.proxied_brokers());
    let mut relay = scene.relay();
    let load = steady::load(&scene, 500.0);
    flows(&relay);

    one_is_hidden_from_the_relay_by_those_that_answer(&scene, &mut relay);
    one_freezes(&scene, &mut relay);
    a_leader_moves(&scene, &relay);
    two_die(&scene, &mut relay);
    all_are_away_for_a_minute(&scene, &mut relay);
    a_leader_is_restarted(&scene, &relay);

    assert_eq!(relay.producers_replaced(), 0.0, "{}", relay.log());
    steady::judge(&scene, load).assert_exactly_once();
}

/// Only the relay cannot reach it: the cluster has no reason to find other leaders, and the others answer.
fn one_is_hidden_from_the_relay_by_those_that_answer(scene: &Scene, relay: &mut Relay) {
    let leader = scene.kafka.leader_of(&scene.topic, 0);
    scene.reader.disturbed("broker out of reach");
    let struck = Instant::now();
    scene.kafka.node(leader).proxy().stall();
    relay.wait_noticed(struck, "kafka_silent");
    relay.wait_published(100.0);
    relay.wait_lag_grows();
    assert_eq!(scene.kafka.leader_of(&scene.topic, 0), leader, "the cluster is well");
    scene.kafka.node(leader).proxy().heal();
    flows(relay);
    relay.wait_ready();
}

/// The cluster finds other leaders, and what was sent to the frozen one does not wait until it goes on.
fn one_freezes(scene: &Scene, relay: &mut Relay) {
    let frozen = scene.kafka.node(scene.kafka.leader_of(&scene.topic, 0));
    scene.reader.disturbed("broker frozen");
    let struck = Instant::now();
    frozen.pause();
    relay.wait_noticed(struck, "kafka_silent");
    relay.wait_lag_grows();
    eventually("events flow around it", Duration::from_secs(30), || relay.lag() < 1.0);
    relay.wait_ready();
    frozen.resume();
    scene.kafka.wait_served(&scene.topic, PARTITIONS);
    flows(relay);
}

/// Nobody on call needs to know.
fn a_leader_moves(scene: &Scene, relay: &Relay) {
    scene.reader.disturbed("leader moved");
    std::thread::scope(|threads| {
        // The watch ends with it, however it ends.
        let moving = threads.spawn(|| {
            scene.kafka.move_leader(&scene.topic, 0);
            flows(relay);
        });
        while !moving.is_finished() {
            assert_eq!(relay.readiness().expect("it answers").0, 200);
        }
        moving.join().expect("the leader moves and events flow");
    });
}

/// With one gone events flow on; with two, too few replicas are in sync.
fn two_die(scene: &Scene, relay: &mut Relay) {
    scene.reader.disturbed("brokers killed");
    let errors = fails(relay, scene.kafka.node(0), Node::kill);
    assert!(errors.is_some(), "a broker that died is listed until its session ends");
    // What the first one's death holds up must not be taken for the second one's.
    let others_lead = || (0..PARTITIONS).all(|partition| scene.kafka.leader_of(&scene.topic, partition) != 0);
    eventually("the others lead", PATIENCE, others_lead);
    flows(relay);
    relay.wait_ready();
    let struck = Instant::now();
    scene.kafka.node(1).kill();
    relay.wait_noticed(struck, "kafka_silent");
    stands_still(scene, relay, Duration::from_secs(2));
    scene.kafka.node(1).start();
    relay.wait_ready();
    flows(relay);
    scene.kafka.node(0).start();
    scene.kafka.wait_served(&scene.topic, PARTITIONS);
}

fn all_are_away_for_a_minute(scene: &Scene, relay: &mut Relay) {
    scene.reader.disturbed("cluster killed");
    let struck = Instant::now();
    scene.kafka.kill();
    relay.wait_noticed(struck, "kafka_silent");
    stands_still(scene, relay, Duration::from_secs(60));
    let written = scene.written();
    scene.kafka.start();
    let started = Instant::now();
    scene.reader.wait_confirmed(written, Duration::from_secs(60));
    eprintln!(
        "what a minute had kept was delivered {:.1} s after the cluster's start",
        started.elapsed().as_secs_f64()
    );
    relay.wait_ready();
    scene.kafka.wait_served(&scene.topic, PARTITIONS);
}

/// One that stops in good order hands its partitions over first.
fn a_leader_is_restarted(scene: &Scene, relay: &Relay) {
    let leader = scene.kafka.node(scene.kafka.leader_of(&scene.topic, 0));
    scene.reader.disturbed("broker restarted");
    // In good order it is off the list at once.
    fails(relay, leader, Node::stop);
    flows(relay);
    leader.start();
    scene.kafka.wait_served(&scene.topic, PARTITIONS);
}

/// One of three that goes away need not stop anything, but it shows: the broker's errors are counted by its name, until
/// the cluster does not list it any more.
#[track_caller]
fn fails(relay: &Relay, node: &Node, strike: fn(&Node)) -> Option<f64> {
    let sample = format!("outboxd_kafka_errors_total{{broker=\"{}\"}}", node.proxy().address());
    let before = relay.metric(&sample).expect("the broker is known");
    strike(node);
    let shown = within(NOTICED, || {
        let errors = relay.metric(&sample);
        errors.is_none_or(|errors| errors > before).then_some(errors)
    });
    shown.expect("it shows")
}

/// Events arrive, and none has waited for long.
#[track_caller]
fn flows(relay: &Relay) {
    relay.wait_published(500.0);
    eventually("no event waits", PATIENCE, || relay.lag() < 1.0);
}

/// Not ready, with a lag that grows, and the slot stays where it is and ours.
#[track_caller]
fn stands_still(scene: &Scene, relay: &Relay, period: Duration) {
    let (confirmed, lag_before) = (scene.confirmed(), relay.lag());
    throughout("it is not ready", period, || relay.readiness().is_some_and(|(status, _)| status == 503));
    assert_eq!(scene.confirmed(), confirmed);
    let grown = relay.lag() - lag_before;
    assert!(grown >= period.as_secs_f64() - 1.0, "the lag has grown by {grown} s in {period:?}");
    assert!(scene.walsender().is_some(), "{}", relay.log());
}
