//! What happens to the WAL happens to us: a transaction that pins it, one of ten thousand subtransactions, a disk full of it.

use std::time::Instant;

use crate::bulk;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, Stop};
use crate::support::process::Mount;
use crate::support::relay::NOTICED;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, announce, eventually};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

#[test]
fn a_transaction_held_through_a_gigabyte_of_wal_pins_the_wal_not_the_events_and_check_names_its_pid() {
    let scene = Scene::on(&Postgres::private(), &Kafka::shared());
    let relay = scene.relay();
    scene.database.exec("checkpoint");
    let slot = scene.config.slot();
    let restart = || {
        let sql = format!("select restart_lsn from pg_replication_slots where slot_name = '{slot}'");
        scene.database.ask(&sql).unwrap().parse::<outboxd::lsn::Lsn>().unwrap()
    };

    let mut held = scene.database.connect();
    let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                  values (current_database(), 'held', 't', '\"held\"')";
    held.batch_execute(&format!("begin; {insert}")).unwrap();
    let pid: i32 = held.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let begun = scene.written();
    for n in 0..10 {
        scene
            .database
            .exec("select pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) from generate_series(1, 110)");
        scene.database.exec("checkpoint");
        scene.write("flowing", &n.to_string());
    }
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert_eq!(scene.reader.count(), 10, "events flow beside it");
    assert!(restart() <= begun, "the slot needs the WAL from {begun} on, and keeps only that from {}", restart());
    eventually("the pinned WAL is shown", PATIENCE, || relay.metric("outboxd_slot_retained_bytes") > Some(GIB));
    // What was settled a moment ago is shown with the next tick.
    eventually("nothing lags", NOTICED, || relay.lag() == 0.0);

    // `check` speaks of what is older than a minute.
    let aged = format!("select 1 from pg_stat_activity where pid = {pid} and now() - xact_start > interval '61 s'");
    eventually("it is old", PATIENCE * 2, || scene.database.ask(&aged).is_some());
    let said = scene.config.run(&["check"]).stdout;
    assert!(said.contains(&format!("pid {pid}")) && said.contains("restart_lsn"), "{said}");

    held.batch_execute("commit").unwrap();
    assert_eq!(scene.reader.wait_count(11, PATIENCE)[10].value(), "\"held\"");
    eventually("the WAL is let go", PATIENCE, || {
        // The list of running transactions, which a checkpoint writes, is what moves it.
        scene.database.exec("checkpoint");
        restart() > begun && relay.metric("outboxd_slot_retained_bytes") < Some(GIB / 10.0)
    });
}

#[test]
fn a_transaction_of_ten_thousand_subtransactions_arrives_without_those_that_were_rolled_back() {
    let scene = Scene::new();
    // Spilled to disk in many pieces.
    scene.database.exec(&format!("alter database {} set logical_decoding_work_mem = '64kB'", scene.database.name()));
    let _relay = scene.relay();
    scene.database.exec(
        "do $$ begin for n in 1..10000 loop
             begin
                 insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                 values (current_database(), 'key-' || n % 50, 't', jsonb_build_object('n', n));
                 if n % 7 = 0 then raise exception 'no'; end if;
             exception when raise_exception then null;
             end;
         end loop; end $$",
    );
    let truth = bulk::truth(&scene);
    assert_eq!(truth.committed.values().map(Vec::len).sum::<usize>(), 10_000 - 10_000 / 7);
    let verdict = scene.judge(&truth);
    verdict.assert_exactly_once();
    verdict.assert_order_was_tried();
}

#[test]
fn a_server_that_dies_of_a_full_wal_disk_loses_and_repeats_nothing_once_it_has_room() {
    let postgres = Postgres::options().setting("restart_after_crash", "off").start();
    let scene = Scene::on(&postgres, &Kafka::shared());
    postgres.stop(Stop::Fast);
    let Some(disk) = Mount::tmpfs(&postgres.directory().join("data/pg_wal"), 112) else {
        announce("NOT RUN: a full WAL disk, because a tmpfs cannot be mounted here");
        return;
    };
    postgres.start();
    scene.database.exec("create table neighbour (n int, padding text)");
    let mut relay = scene.relay();
    let load = scene.workload().events_per_second(1500.0).start(&scene.database);
    load.wait_written(1000);
    let write = "insert into neighbour select n, repeat(md5(n::text), 30) from generate_series(1, 5000) n";
    eventually("the disk is full", PATIENCE, || {
        if let Ok(mut session) = postgres.try_connect(scene.database.name()) {
            session.batch_execute(write).ok();
        }
        postgres.has_stopped()
    });
    relay.wait_noticed(Instant::now(), "postgres_unreachable");
    assert!(relay.sessions_lost() >= 1.0, "{}", relay.log());
    assert!(postgres.log().contains("No space left on device"), "{}", postgres.log());
    disk.resize(1024);
    postgres.start();
    relay.wait_ready();
    let verdict = scene.judge(&load.finish());
    verdict.assert_exactly_once();
    verdict.assert_order_was_tried();
}
