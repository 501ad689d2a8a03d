//! The session lives and the slot moves while events do not: behind a slow broker the lease is renewed, beside a busy
//! table the WAL is let go, and neither ever confirms what is not settled.

use std::time::Duration;

use crate::bulk;
use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually, throughout};

#[test]
fn a_broker_that_is_stalled_and_then_slow_costs_neither_the_session_nor_the_place_beside_a_busy_table() {
    let kafka = Kafka::options().property("quota.window.num", "2").start();
    // About 100 events a second, of those below.
    let quota =
        ["--alter", "--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=2000000"];
    kafka.tool("kafka.admin.ConfigCommand", &quota);
    let mut scene = Scene::on(&Postgres::private(), &kafka);
    scene.config = scene.config.set("postgres.sender_timeout", "2s").set("limits.window", 100);
    scene.config = scene.config.property("compression.type", "none");
    let relay = scene.relay();
    scene.acquaint(&relay);
    scene.database.exec("create table neighbour as select 1 as n");
    let walsender = scene.walsender();

    // 24 MB are more than the buffers of the sockets and of the relay hold, so the walsender blocks.
    kafka.pause();
    let truth = bulk::write(&scene, 1200, 20_000);
    let commit = truth.committed["key-1"][0].committed_by.unwrap();
    eventually("records are in flight", PATIENCE, || relay.metric("outboxd_inflight_events") >= Some(10.0));
    throughout("the slot stays before the backlog's commit", Duration::from_secs(6), || {
        scene.database.exec("insert into neighbour select generate_series(1, 100)");
        scene.confirmed() < commit
    });
    assert_eq!(relay.metric("outboxd_reconnects_total"), Some(0.0), "{}", relay.log());

    kafka.resume();
    let before = relay.published();
    throughout("a slow broker leaves the session alone", Duration::from_secs(6), || {
        scene.database.exec("insert into neighbour select generate_series(1, 100)");
        relay.metric("outboxd_reconnects_total") == Some(0.0)
    });
    let published = relay.published() - before;
    assert!((50.0..1000.0).contains(&published), "{published} events in 6 s");

    scene.judge(&truth).assert_exactly_once();
    assert_eq!(scene.walsender(), walsender, "{}", relay.log());
}

#[test]
fn a_busy_table_outside_the_publication_never_pins_the_wal() {
    let scene = Scene::on(&Postgres::private(), &Kafka::shared());
    let relay = scene.relay();
    scene.database.exec("create table neighbour (n int, padding text)");
    let slot = scene.config.slot();
    let bytes = |from: &str| {
        let sql = format!("select pg_current_wal_lsn() - {from} from pg_replication_slots where slot_name = '{slot}'");
        scene.database.ask(&sql).unwrap().parse::<u64>().unwrap()
    };
    let start = scene.database.ask("select pg_current_wal_lsn()").unwrap();
    for _ in 0..8 {
        scene.database.exec("insert into neighbour select n, repeat(md5(n::text), 30) from generate_series(1, 8000) n");
        // The slot's oldest needed WAL moves with the list of running transactions, which a checkpoint writes.
        scene.database.exec("checkpoint");
        eventually("the slot lets the WAL go", PATIENCE, || {
            bytes("confirmed_flush_lsn") < 1024 * 1024 && bytes("restart_lsn") < 4 * 1024 * 1024
        });
    }
    assert!(bytes(&format!("'{start}'")) > 60 * 1024 * 1024, "too little was written to say anything");
    assert_eq!(relay.metric("outboxd_reconnects_total"), Some(0.0), "{}", relay.log());
}
