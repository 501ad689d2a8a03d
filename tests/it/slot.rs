//! Somebody takes the slot from us, moves it, or lets it fall: the holder is named, what is missing is said, and a slot
//! that is lost ends the relay with the way out.

use std::time::Duration;

use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::process::{Farewell, Process, Scratch};
use crate::support::relay::{NOTICED, Relay};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, throughout};

/// What the relay says when the slot stands where no relay has taken it.
const MOVED: &str = "somebody else moved the slot";
const MOVES: &str = "outboxd_slot_moves_total";

#[test]
fn a_thief_of_the_slot_is_named_and_what_it_read_is_said_to_be_missing() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    scene.write("k", "\"before\"");
    scene.reader.wait_count(1, PATIENCE);

    let (thief, loot) = steal(&scene);
    let pid = holder(&scene).expect("the thief holds the slot").0;
    relay.wait_log(&format!("held by pid {pid}, application \\\"pg_recvlogical\\\""), NOTICED);
    let (code, body) = relay.readiness().unwrap();
    assert_eq!((code, &body["role"], &body["reasons"][0]["code"]), (200, &"standby".into(), &"slot_held".into()));
    assert_eq!(relay.metric("outboxd_leader"), Some(0.0));
    scene.write("k", "\"stolen\"");
    let read = || {
        let bytes = std::fs::read(loot.path().join("loot")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains("stolen")
    };
    eventually("the thief has read the event", PATIENCE, read);
    let end = scene.written();
    eventually("the thief has confirmed it", PATIENCE, || scene.confirmed() >= end);
    drop(thief);

    eventually("the relay leads again", PATIENCE, || relay.metric("outboxd_leader") == Some(1.0));
    relay.wait_ready();
    relay.wait_log(MOVED, PATIENCE);
    assert_eq!(relay.metric(MOVES), Some(1.0));
    scene.write("k", "\"after\"");
    let seen = scene.reader.wait_count(2, PATIENCE);
    assert_eq!(seen[1].value(), "\"after\"", "what a thief has taken cannot be sent");
}

#[test]
fn a_relay_whose_walsender_let_go_of_the_slot_and_runs_on_does_not_take_it_for_its_own() {
    // Rows wait for a topic that is missing, so nothing is read, not even what the server says of the error.
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    scene.config.run(&["init"]).assert_success();
    let relay = Relay::start(&scene.config);
    scene.write("k", "\"held\"");
    relay.wait_unready("topic_missing", PATIENCE);
    let before = scene.walsender().expect("it streams");
    scene.database.exec(&format!("select pg_cancel_backend({before})"));
    // Until the relay looks at the slot and leaves, that walsender waits for commands, in state "startup".
    eventually("the relay has the slot again", PATIENCE, || scene.walsender().is_some_and(|pid| pid != before));
    assert_eq!(relay.sessions_lost(), 1.0);
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].value(), "\"held\"");
}

#[test]
fn a_position_table_that_is_locked_costs_neither_the_lease_nor_the_facts_of_the_slot() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("postgres.sender_timeout", "3s").set("limits.sql", "2s");
    let mut relay = scene.relay();
    scene.write("k", "1");
    scene.reader.wait_count(1, PATIENCE);
    let mut locker = scene.database.connect();
    locker.batch_execute("begin; lock table outboxd.position in share mode").unwrap();
    // A row waits for its topic, so only SQL proves that the slot is ours.
    let missing = format!("{}-missing", scene.topic);
    scene.database.exec(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         values (current_database() || '-missing', 'k', 't', '1')",
    );
    relay.wait_unready("topic_missing", PATIENCE);
    relay.wait_log("the position cannot be written", PATIENCE);
    let before = relay.metric("outboxd_slot_retained_bytes");
    scene.database.exec("create table neighbour as select n, repeat('x', 100) from generate_series(1, 10000) n");
    throughout("the session is kept", Duration::from_secs(6), || relay.sessions_lost() == 0.0);
    assert!(relay.metric("outboxd_slot_retained_bytes") > before, "{}", relay.metrics());

    // Another one cannot put its name there, and says so.
    relay.sigkill();
    let mut relay = Relay::start(&scene.config);
    relay.wait_unready("slot_unclaimed", PATIENCE);
    assert_eq!(scene.reader.count(), 1);
    locker.batch_execute("commit").unwrap();
    scene.kafka.create_topic(&missing, 1);
    relay.wait_ready();
}

#[test]
fn a_server_that_forgot_what_we_saved_is_taken_for_an_older_state_of_itself() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    scene.write("k", "1");
    scene.reader.wait_count(1, PATIENCE);
    let saved = "select confirmed::text from outboxd.position where confirmed > '0/0'";
    eventually("the position is saved", PATIENCE, || scene.database.ask(saved).is_some());
    // As if it had been restored in place, timeline and all.
    scene.database.exec("update outboxd.position set confirmed = '0/1'");
    assert!(scene.database.cut_replication(scene.config.slot()));
    relay.wait_log("the server was put back to an older state", PATIENCE);
    scene.write("k", "2");
    scene.reader.wait_count(2, PATIENCE);
    relay.wait_ready();
}

#[test]
fn a_slot_that_was_moved_while_no_relay_ran_is_said_at_the_next_start_and_by_check() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    scene.write("k", "\"before\"");
    scene.reader.wait_count(1, PATIENCE);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    // Untouched, it is nobody's alarm.
    let mut relay = scene.relay();
    assert_eq!(relay.metric(MOVES), Some(0.0), "{}", relay.log());
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());

    scene.write("k", "\"skipped\"");
    let slot = scene.config.slot();
    scene.database.exec(&format!("select pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
    let said = scene.config.run(&["check"]).stdout;
    assert!(said.contains("somebody else moved the slot"), "{said}");
    let relay = scene.relay();
    relay.wait_log(MOVED, PATIENCE);
    assert_eq!(relay.metric(MOVES), Some(1.0));
}

#[test]
fn a_slot_that_is_invalidated_under_the_relay_ends_it_with_the_way_out() {
    let postgres = Postgres::options().setting("max_slot_wal_keep_size", "'16MB'").start();
    let scene = Scene::on(&postgres, &Kafka::shared());
    let mut relay = scene.relay();
    // The line stands behind an event whose topic is missing, and the slot falls behind.
    scene
        .database
        .exec("insert into outbox (aggregate_type, aggregate_id, event_type, payload) values ('x', 'k', 't', '1')");
    relay.wait_unready("topic_missing", PATIENCE);
    scene.database.exec("create table neighbour (n int, padding text)");
    let write = "insert into neighbour select n, repeat(md5(n::text), 30) from generate_series(1, 8000) n";
    let lost = "outboxd_slot_wal_status{wal_status=\"unreserved\"}";
    eventually("the last warning is given", PATIENCE, || {
        scene.database.exec(write);
        relay.metric(lost) == Some(1.0)
    });
    assert!(relay.metric("outboxd_slot_safe_bytes") < Some(0.0), "{}", relay.metrics());
    scene.database.exec("checkpoint");
    assert_eq!(relay.wait_exit(NOTICED), Some(1), "{}", relay.log());
    let (log, slot) = (relay.log(), scene.config.slot());
    for words in ["was invalidated (wal_status = lost)", "hint: ", &format!("pg_drop_replication_slot('{slot}')")] {
        assert!(log.contains(words), "never said \"{words}\"\n{log}");
    }

    // The way out is the one that the hint names; what is missing is said once more.
    scene.database.exec(&format!("select pg_drop_replication_slot('{slot}')"));
    scene.config.run(&["init"]).assert_success();
    let relay = scene.relay();
    relay.wait_log(MOVED, PATIENCE);
    scene.write("k", "\"after\"");
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].value(), "\"after\"");
}

/// Ends our walsender and has `pg_recvlogical` take the slot before the relay comes back; its output is the loot.
fn steal(scene: &Scene) -> (Process, Scratch) {
    let slot = scene.config.slot();
    let scratch = Scratch::new();
    for _ in 0..50 {
        let mut command = scene.database.recvlogical(slot, slot);
        command.args(["--no-loop", "-s", "1", "-F", "1", "-f"]).arg(scratch.path().join("loot"));
        scene.database.cut_replication(slot);
        let mut thief = Process::spawn(&mut command, Farewell::Kill);
        let taken = || match (thief.exited(), holder(scene)) {
            (Some(_), _) => Some(false),
            (None, Some((_, name))) if name == "pg_recvlogical" => Some(true),
            (None, _) => None,
        };
        if crate::support::within(Duration::from_secs(10), taken) == Some(true) {
            return (thief, scratch);
        }
    }
    panic!("the relay was always faster than the thief");
}

/// Pid and application of the slot's holder.
fn holder(scene: &Scene) -> Option<(String, String)> {
    let sql = "select active_pid || ' ' || application_name from pg_replication_slots
               join pg_stat_activity on pid = active_pid where slot_name = '{slot}'";
    let text = scene.database.ask(&sql.replace("{slot}", scene.config.slot()))?;
    text.split_once(' ').map(|(pid, name)| (pid.to_string(), name.to_string()))
}
