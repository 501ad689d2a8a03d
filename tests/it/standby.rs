//! Two processes, one slot: one publishes, the other is ready to, and says who holds the slot.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::postgres::Version;
use crate::support::process::{Farewell, Process};
use crate::support::relay::Relay;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually, throughout};

/// A hand-over on one machine takes no longer: the slot is looked at twice a second.
const TAKEN_OVER: Duration = Duration::from_secs(3);

#[test]
fn a_standby_takes_over_at_once_when_the_leader_leaves_and_when_it_is_killed() {
    let scene = Scene::new();
    let mut first = scene.relay();
    let load = scene.workload().start(&scene.database);
    let mut second = standby(&scene, &first);
    load.wait_written(1000);
    first.sigterm();
    assert_eq!(first.wait_exit(PATIENCE), Some(0), "{}", first.log());
    published(&second);

    let third = standby(&scene, &second);
    second.sigkill();
    published(&third);
    let verdict = scene.judge(&load.finish());
    verdict.assert_order_was_tried();
}

#[test]
fn a_slot_that_somebody_else_holds_is_waited_for_and_the_holder_is_named() {
    let scene = Scene::new();
    let slot = scene.config.slot();
    let mut command = Command::new(Version::Distro.bin().expect("it is installed").join("pg_recvlogical"));
    command.arg("-d").arg(scene.database.url()).args(["--slot", slot, "--start", "-f", "/dev/null"]);
    command.args(["-o", "proto_version=1", "-o", &format!("publication_names={slot}")]);
    let holder = Process::spawn(&mut command, Farewell::Kill);
    let pid = format!("select active_pid from pg_replication_slots where slot_name = '{slot}'");
    eventually("the slot is held", PATIENCE, || scene.database.ask(&pid).is_some());
    let pid = scene.database.ask(&pid).unwrap();

    let mut relay = Relay::start(&scene.config);
    relay.wait_log(&format!("held by pid {pid}, application \\\"pg_recvlogical\\\""), PATIENCE);
    let (code, body) = relay.readiness().unwrap();
    assert_eq!((code, &body["role"]), (200, &Value::from("standby")));
    assert!(relay.is_running());

    drop(holder);
    eventually("the relay leads", TAKEN_OVER, || role(&relay) == "leader");
    scene.write("after", "{}");
    scene.reader.wait_count(1, TAKEN_OVER);
}

/// Starts a second relay, which finds the slot taken.
#[track_caller]
fn standby(scene: &Scene, leader: &Relay) -> Relay {
    let relay = Relay::start(&scene.config);
    eventually("the second one stands by, ready", PATIENCE, || {
        relay.readiness().is_some_and(|(code, body)| code == 200 && body["role"] == "standby")
    });
    relay.wait_log("the slot is held by pid", PATIENCE);
    assert_eq!(role(leader), "leader");
    assert_eq!(relay.metric("outboxd_events_published_total").unwrap_or_default(), 0.0);
    relay
}

#[track_caller]
fn published(relay: &Relay) {
    eventually("the standby publishes", TAKEN_OVER, || relay.metric("outboxd_events_published_total") > Some(0.0));
}

fn role(relay: &Relay) -> String {
    let body = relay.readiness().map(|(_, body)| body).unwrap_or_default();
    body["role"].as_str().unwrap_or_default().to_string()
}

#[test]
fn a_holder_that_may_live_is_waited_for_through_reconnects_and_restarts() {
    let scene = Scene::new();
    let slot = scene.config.slot();
    scene.database.exec(&format!(
        "insert into outboxd.position (slot, system_id, timeline, confirmed, leader, sender_timeout_ms, left_cleanly,
             claimed_at, updated_at)
         values ('{slot}', 1, 1, '0/0', 'elsewhere/7/1/another-boot/1', 6000, false, now(), now())"
    ));
    let silent = || scene.reader.count() == 0;
    let mut relay = Relay::start(&scene.config);
    relay.wait_unready("fencing", PATIENCE);
    scene.write("k", "1");
    throughout("the other may be publishing", Duration::from_secs(4), silent);
    scene.database.cut_replication(slot);
    throughout("a reconnect does not end the wait", Duration::from_secs(4), silent);
    relay.wait_unready("fencing", PATIENCE);
    relay.sigkill();
    let mut relay = Relay::start(&scene.config);
    relay.wait_unready("fencing", PATIENCE);
    throughout("nor does a crash", Duration::from_secs(4), silent);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0));
    let mut relay = Relay::start(&scene.config);
    relay.wait_unready("fencing", PATIENCE);
    throughout("nor does a clean stop", Duration::from_secs(4), silent);
    scene.reader.wait_count(1, PATIENCE);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0));
    // It has published, and left in good order: nobody is waited for any more.
    scene.relay();
}
