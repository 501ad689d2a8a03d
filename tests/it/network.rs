//! The network between the relay and its servers does what networks do, under load: every kind of broken connection
//! loses and reorders nothing, repeats nothing unless both sides are away beyond the lease, and shows in readiness.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::steady::{self, judge};
use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::proxy::{Proxy, Way};
use crate::support::relay::{NOTICED, Relay, left_to_notice};
use crate::support::scene::Scene;
use crate::support::workload::Running;
use crate::support::{PATIENCE, eventually, throughout};

/// A scene whose relay reaches PostgreSQL through a proxy. Where the lease is not what is tried, it is long: two busy
/// cores may keep everybody from answering for seconds.
fn behind_a_proxy(sender_timeout: &str) -> (Scene, Proxy) {
    proxied(Scene::new(), sender_timeout)
}

fn proxied(mut scene: Scene, sender_timeout: &str) -> (Scene, Proxy) {
    let proxy = Proxy::start(scene.postgres.port());
    let url = scene.url_through(&proxy);
    scene.config = scene.config.set("postgres.url", url).set("postgres.sender_timeout", sender_timeout);
    // Many disturbances in a row would make the pauses between tries long.
    scene.config = scene.config.set("limits.backoff", "200ms");
    (scene, proxy)
}

/// Light enough for what a proxy lets through.
fn load(scene: &Scene) -> Running {
    steady::load(scene, 700.0)
}

#[test]
fn connections_to_postgresql_cut_and_reset_under_load_repeat_nothing() {
    let (scene, proxy) = behind_a_proxy("30s");
    let mut relay = scene.relay();
    let load = load(&scene);
    let disturbances: [fn(&Proxy); 2] = [Proxy::cut, Proxy::reset];
    for disturb in disturbances.into_iter().cycle().take(8) {
        relay.wait_published(1.0);
        let before = relay.sessions_lost();
        let struck = Instant::now();
        disturb(&proxy);
        relay.wait_session_lost(struck, before);
        relay.wait_ready();
    }
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_stream_cut_at_any_byte_repeats_nothing() {
    let (scene, proxy) = behind_a_proxy("30s");
    let mut relay = scene.relay();
    let load = load(&scene);
    for _ in 0..20 {
        relay.wait_published(1.0);
        let before = relay.sessions_lost();
        // Within the frames of some transactions, or in the middle of a large one.
        proxy.cut_after(Way::ToClient, fastrand::u64(1..30_000));
        eventually("the stream is cut", PATIENCE, || relay.sessions_lost() > before);
        proxy.heal();
        relay.wait_ready();
    }
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_login_cut_at_any_byte_is_tried_again() {
    let (scene, proxy) = behind_a_proxy("30s");
    let mut relay = scene.relay();
    let load = load(&scene);
    for way in [Way::ToClient, Way::ToServer] {
        // Logins, questions and their answers take some thousand bytes: the last ones are cut in the stream.
        for bytes in (0..20).map(|step| step * step * 15) {
            let before = proxy.cut_at_bytes();
            proxy.cut_after(way, bytes);
            proxy.cut();
            eventually("a try is cut", PATIENCE, || proxy.cut_at_bytes() > before);
        }
    }
    let struck = Instant::now();
    proxy.cut_after(Way::Both, 0);
    proxy.cut();
    relay.wait_noticed(struck, "postgres_unreachable");
    proxy.heal();
    relay.wait_ready();
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_half_open_stream_shows_at_once_is_given_up_with_its_walsender_and_repeats_nothing() {
    let (scene, proxy) = behind_a_proxy("10s");
    let mut relay = scene.relay();
    let load = load(&scene);
    relay.wait_published(1.0);
    let struck = Instant::now();
    proxy.abandon();
    // New connections work, so SQL proves the lease for as long as the walsender waits for us.
    relay.wait_noticed(struck, "postgres_silent");
    assert!(relay.last_frame_age() >= 3.5, "{}", relay.metrics());
    eventually("the session is given up", PATIENCE, || relay.sessions_lost() == 1.0);
    // Nobody is at the other end: the next session waits for no farewell, which would take three seconds.
    let lost = Instant::now();
    relay.wait_ready();
    let took = lost.elapsed();
    assert!(took < Duration::from_secs(2), "ready again after {took:?}\n{}", relay.log());
    relay.wait_published(1.0);
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_direction_to_or_from_postgresql_that_is_lost_repeats_nothing() {
    let lease = Duration::from_secs(10);
    // A server of its own: neighbours that write make a walsender speak unasked.
    let (scene, proxy) = proxied(Scene::on(&Postgres::private(), &Kafka::shared()), "10s");
    let mut relay = scene.relay();
    // The walsender does not hear us, and has nothing to say unless asked.
    let struck = Instant::now();
    proxy.lose(Way::ToServer);
    relay.wait_noticed(struck, "postgres_silent");
    proxy.heal();
    relay.wait_ready();
    let load = load(&scene);
    relay.wait_published(1.0);
    // It is not heard: events stay away.
    let (struck, before) = (Instant::now(), relay.sessions_lost());
    proxy.lose(Way::ToClient);
    relay.wait_noticed(struck, "postgres_silent");
    assert!(relay.last_frame_age() >= 3.5, "{}", relay.metrics());
    relay.wait_unready("postgres_unreachable", lease);
    proxy.heal();
    relay.wait_ready();
    relay.wait_published(1.0);
    // It does not hear us, but has rows to say: events flow, and readiness is right to say so, until it gives us up.
    let struck = Instant::now();
    proxy.lose(Way::ToServer);
    relay.wait_published(1000.0);
    assert_eq!(relay.readiness().map(|(status, _)| status), Some(200));
    relay.wait_unready("postgres_unreachable", (lease + NOTICED).saturating_sub(struck.elapsed()));
    proxy.heal();
    relay.wait_ready();
    assert!(relay.sessions_lost() >= before + 2.0, "{}", relay.log());
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_stall_of_postgresql_costs_the_session_only_beyond_the_lease_and_repeats_nothing() {
    let (scene, proxy) = behind_a_proxy("10s");
    let mut relay = scene.relay();
    let load = load(&scene);
    relay.wait_published(1.0);
    proxy.stall();
    throughout("the session is kept", Duration::from_secs(2), || relay.sessions_lost() == 0.0);
    proxy.heal();
    relay.wait_published(1.0);
    assert_eq!(relay.sessions_lost(), 0.0, "{}", relay.log());

    let struck = Instant::now();
    proxy.stall();
    relay.wait_noticed(struck, "postgres_silent");
    assert!(relay.last_frame_age() >= 3.5, "{}", relay.metrics());
    relay.wait_unready("postgres_unreachable", PATIENCE);
    assert_eq!(relay.sessions_lost(), 1.0, "{}", relay.log());
    proxy.heal();
    relay.wait_ready();
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_slow_network_to_postgresql_costs_neither_the_session_nor_readiness() {
    let (scene, proxy) = behind_a_proxy("30s");
    let relay = scene.relay();
    let load = load(&scene);
    let calm = || relay.sessions_lost() == 0.0 && relay.readiness().is_some_and(|(code, _)| code == 200);
    relay.wait_published(1.0);
    proxy.latency(Duration::from_millis(200));
    throughout("late bytes are no fault", Duration::from_secs(3), calm);
    proxy.heal();
    // Far less than is written: the walsender is blocked, its keepalives wait behind rows.
    proxy.drip(1000, Duration::from_millis(20));
    throughout("few bytes are no fault", Duration::from_secs(6), calm);
    proxy.heal();
    judge(&scene, load).assert_exactly_once();
    assert_eq!(relay.sessions_lost(), 0.0, "{}", relay.log());
}

/// A request without an answer is given up after 10 s (`socket.timeout.ms`), for which librdkafka looks once a second;
/// then come a connection and an answer.
const READY_AGAIN: Duration = Duration::from_secs(15);

/// A scene whose relay reaches Kafka through a proxy.
fn on_proxied(kafka: &Arc<Kafka>) -> Scene {
    let mut scene = Scene::on(&Postgres::shared(), kafka);
    scene.config = scene.config.set("kafka.brokers", kafka.proxied_brokers()).set("postgres.sender_timeout", "30s");
    scene
}

#[test]
fn a_network_to_kafka_disturbed_in_every_way_loses_and_repeats_nothing() {
    let kafka = Kafka::options().proxied().start();
    let scene = on_proxied(&kafka);
    let proxy = kafka.node(0).proxy();
    let mut relay = scene.relay();
    let load = load(&scene);
    let short: [fn(&Proxy); 4] = [
        Proxy::cut,
        Proxy::reset,
        |proxy| proxy.cut_after(Way::ToServer, fastrand::u64(1..30_000)),
        |proxy| proxy.cut_after(Way::ToClient, fastrand::u64(1..500)),
    ];
    for disturb in short.into_iter().cycle().take(12) {
        relay.wait_published(1.0);
        let (before, errors) = (proxy.accepted(), relay.kafka_errors());
        let struck = Instant::now();
        disturb(proxy);
        // A connection that is back before anything is late is no matter of readiness.
        eventually("the lost connection is counted", left_to_notice(struck), || relay.kafka_errors() > errors);
        eventually("the relay connects again", PATIENCE, || proxy.accepted() > before);
        proxy.heal();
        relay.wait_ready();
    }
    let lasting: [fn(&Proxy); 4] =
        [|proxy| proxy.lose(Way::ToServer), |proxy| proxy.lose(Way::ToClient), Proxy::stall, Proxy::abandon];
    for disturb in lasting {
        relay.wait_published(1.0);
        let struck = Instant::now();
        disturb(proxy);
        relay.wait_noticed(struck, "kafka_silent");
        relay.wait_lag_grows();
        // What was abandoned does not heal: the relay itself gives it up.
        proxy.heal();
        relay.wait_ready();
        let took = struck.elapsed();
        assert!(took < READY_AGAIN, "ready again {took:?} after the strike\n{}", relay.log());
    }
    proxy.latency(Duration::from_millis(200));
    relay.wait_published(1000.0);
    proxy.heal();
    // Less than is written.
    proxy.drip(2000, Duration::from_millis(20));
    relay.wait_published(1000.0);
    proxy.heal();
    // Only a lost session or producer could repeat anything, and there was neither.
    assert_eq!(relay.metric("outboxd_reconnects_total"), Some(0.0), "{}", relay.log());
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn a_topic_that_no_broker_tells_of_shows_in_time() {
    let kafka = Kafka::options().proxied().start();
    let scene = on_proxied(&kafka);
    let mut relay = scene.relay();
    scene.write("k", "1");
    scene.reader.wait_count(1, PATIENCE);
    // Nothing is on its way, so nobody owes an answer; the next event is for a topic that the relay has to ask about.
    let another = format!("{}-another", scene.topic);
    kafka.create_topic(&another, 1);
    let struck = Instant::now();
    kafka.node(0).proxy().stall();
    scene.database.exec(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         values (current_database() || '-another', 'k', 't', '2')",
    );
    relay.wait_noticed(struck, "kafka_silent");
    kafka.node(0).proxy().heal();
    eventually("the event arrives", PATIENCE, || relay.published() == 2.0);
    relay.wait_ready();
}

#[test]
fn both_networks_disturbed_at_once_within_the_lease_repeat_nothing() {
    let kafka = Kafka::options().proxied().start();
    let (scene, postgres) = proxied(on_proxied(&kafka), "30s");
    let both = [&postgres, kafka.node(0).proxy()];
    let heal = || both.into_iter().for_each(Proxy::heal);
    let mut relay = scene.relay();
    let load = load(&scene);
    let cuts: [fn(&Proxy); 3] =
        [Proxy::cut, Proxy::reset, |proxy| proxy.cut_after(Way::ToClient, fastrand::u64(1..500))];
    for disturb in cuts.into_iter().cycle().take(6) {
        relay.wait_published(1.0);
        let before = relay.sessions_lost();
        let struck = Instant::now();
        both.into_iter().for_each(disturb);
        relay.wait_session_lost(struck, before);
        heal();
        relay.wait_ready();
    }
    let lost = relay.sessions_lost();
    // A stall that ends before anybody is late, networks that are slow, and one that lets through less than is written.
    let slow: [fn(&Proxy); 3] = [
        Proxy::stall,
        |proxy| proxy.latency(Duration::from_millis(200)),
        |proxy| proxy.drip(2000, Duration::from_millis(20)),
    ];
    for disturb in slow {
        relay.wait_published(1.0);
        both.into_iter().for_each(disturb);
        throughout("the session is kept", Duration::from_secs(2), || relay.sessions_lost() == lost);
        heal();
    }
    // Where nothing comes from PostgreSQL, nothing may be on its way to Kafka.
    for (way, reason) in [(Way::ToServer, "kafka_silent"), (Way::ToClient, "postgres_silent")] {
        relay.wait_published(1.0);
        let struck = Instant::now();
        both.into_iter().for_each(|proxy| proxy.lose(way));
        relay.wait_noticed(struck, reason);
        match way {
            Way::ToClient => assert!(relay.last_frame_age() >= 3.5, "{}", relay.metrics()),
            Way::ToServer | Way::Both => relay.wait_lag_grows(),
        }
        heal();
        relay.wait_ready();
    }
    assert_eq!(relay.sessions_lost(), lost, "{}", relay.log());
    assert_eq!(relay.producers_replaced(), 0.0, "{}", relay.log());
    judge(&scene, load).assert_exactly_once();
}

#[test]
fn both_networks_silent_beyond_the_lease_lose_and_reorder_nothing() {
    let kafka = Kafka::options().proxied().start();
    let (scene, postgres) = proxied(on_proxied(&kafka), "8s");
    let broker = kafka.node(0).proxy();
    let mut relay = scene.relay();
    let load = load(&scene);
    for disturb in [Proxy::stall, Proxy::abandon, Proxy::stall] {
        relay.wait_published(1.0);
        let struck = Instant::now();
        disturb(broker);
        wait_unanswered(&relay);
        disturb(&postgres);
        relay.wait_noticed(struck, "kafka_silent");
        relay.wait_unready("postgres_unreachable", PATIENCE);
        broker.heal();
        postgres.heal();
        relay.wait_ready();
    }
    // What was in flight when the lease ended in a stall was given up with its producer: it may repeat.
    let producers = relay.producers_replaced();
    assert!(producers >= 2.0, "{producers} producers were replaced\n{}", relay.log());
    judge(&scene, load);
}

/// Until records are in flight that the broker does not answer any more: what was shown as in flight when it fell silent may
/// have been answered a moment before.
fn wait_unanswered(relay: &Relay) {
    let (mut answered, mut since) = (relay.published(), Instant::now());
    eventually("records are in flight, and get no answer", PATIENCE, || {
        let now = relay.published();
        if now != answered {
            (answered, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(500) && relay.metric("outboxd_inflight_events") > Some(0.0)
    });
}

#[test]
fn a_stream_that_is_dead_only_towards_the_relay_is_left_after_one_timeout() {
    let (scene, proxy) = behind_a_proxy("8s");
    let mut relay = scene.relay();
    let load = load(&scene);
    relay.wait_published(1.0);
    let struck = Instant::now();
    proxy.deafen();
    // What we write arrives, and SQL proves all the while that the slot is ours: only the kernel would give up, much later.
    relay.wait_noticed(struck, "postgres_silent");
    eventually("the session is left", Duration::from_secs(10), || relay.sessions_lost() == 1.0);
    assert!(struck.elapsed() >= Duration::from_secs(7), "it was left too early");
    relay.wait_ready();
    relay.wait_published(1.0);
    judge(&scene, load).assert_exactly_once();
}
