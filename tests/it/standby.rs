//! Two processes, one slot: one publishes, the other is ready to, and says who holds the slot.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::steady;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, Stop};
use crate::support::process::{Farewell, Process};
use crate::support::proxy::{Proxy, Way};
use crate::support::reader::Seen;
use crate::support::relay::{NOTICED, Relay};
use crate::support::scene::{ELSEWHERE, Scene};
use crate::support::workload::Running;
use crate::support::{PATIENCE, announce, eventually, throughout, within};

/// A hand-over on one machine takes no longer, from the signal to the first event of the next one: the slot is looked at
/// twice a second.
const TAKEN_OVER: Duration = Duration::from_secs(3);
/// The lease of the pairs below.
const SENDER_TIMEOUT: Duration = Duration::from_secs(4);
/// A relay speaks up every tenth of the timeout, on a busy machine later: so long before a strike the server's patience
/// may have begun.
const HEARD_BEFORE: Duration = Duration::from_secs(1);

#[test]
fn a_standby_takes_over_at_once_when_the_leader_leaves_and_when_it_is_killed() {
    let scene = Scene::new();
    let mut first = scene.relay();
    let load = steady::load(&scene, 500.0);
    let mut second = standby(&scene, &first);
    in_calm(&first);
    let told = Instant::now();
    first.sigterm();
    taken_over(told, &second);
    assert_eq!(first.wait_exit(PATIENCE), Some(0), "{}", first.log());

    let third = standby(&scene, &second);
    in_calm(&second);
    let killed = Instant::now();
    second.sigkill();
    taken_over(killed, &third);
    steady::judge(&scene, load);
}

#[test]
fn a_leader_comes_back_to_its_slot_before_its_standby_when_postgresql_was_restarted() {
    let scene = Scene::on(&Postgres::private(), &Kafka::shared());
    let mut first = scene.relay();
    let load = steady::load(&scene, 500.0);
    let second = standby(&scene, &first);
    for stop in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        first.wait_published(1.0);
        scene.postgres.restart(stop);
        first.wait_published(500.0);
        first.wait_ready();
        second.wait_standby();
    }
    assert_eq!(second.published(), 0.0);
    scene.judge(&load.stop()).assert_exactly_once();
}

#[test]
fn a_slot_that_somebody_else_holds_is_waited_for_and_the_holder_is_named() {
    let scene = Scene::new();
    let slot = scene.config.slot();
    let holder = Process::spawn(scene.database.recvlogical(slot, slot).args(["-f", "/dev/null"]), Farewell::Kill);
    let pid = within(PATIENCE, || scene.walsender()).expect("the slot is held");

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
    relay.wait_standby();
    let holder = scene.walsender().expect("the leader streams");
    relay.wait_log(&format!("the slot is held by pid {holder}"), PATIENCE);
    assert_eq!(role(leader), "leader");
    assert_eq!(relay.published(), 0.0);
    relay
}

/// Events flow and none waits: what a hand-over takes is then its own.
#[track_caller]
fn in_calm(leader: &Relay) {
    leader.wait_published(500.0);
    eventually("no event waits", PATIENCE, || leader.lag() < 0.5);
}

/// The next one publishes, soon after the signal.
#[track_caller]
fn taken_over(signalled: Instant, next: &Relay) {
    eventually("the standby publishes", PATIENCE, || next.published() > 0.0);
    let took = signalled.elapsed();
    eprintln!("handed over in {took:?}");
    assert!(took < TAKEN_OVER, "{took:?}\n{}", next.log());
    assert_eq!(next.metric("outboxd_leader"), Some(1.0), "{}", next.metrics());
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
         values ('{slot}', 1, 1, '0/0', '{ELSEWHERE}', 6000, false, now(), now())"
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

#[test]
fn a_standby_publishes_within_the_sender_timeout_and_five_seconds_after_the_leader_died_elsewhere() {
    let mut pair = Pair::new();
    pair.load.wait_written(1000);
    pair.scene.move_leader_elsewhere();
    let died = Instant::now();
    pair.first.sigkill();
    pair.second.wait_noticed(died, "fencing");
    assert_eq!(pair.second.published(), 0.0);
    pair.followed_after(died, SENDER_TIMEOUT, NOTICED);
}

#[test]
fn a_standby_that_can_see_its_leader_dead_waits_only_for_the_server_when_no_end_of_the_connection_tells_it() {
    let mut pair = Pair::new();
    pair.load.wait_written(1000);
    let died = pair.host_dies();
    pair.followed_after(died, SENDER_TIMEOUT - HEARD_BEFORE, HEARD_BEFORE + NOTICED);
}

/// The server lets go when it has not heard the leader for its timeout. That says nothing about what the leader has
/// heard: while only the way to the server is lost, frames come until that moment, each of them proves the lease, and what
/// was offered then may land for one more timeout. A host that died looks the same from here, so the successor waits.
#[test]
fn a_standby_waits_two_timeouts_for_a_leader_elsewhere_when_no_end_of_the_connection_tells_of_its_death() {
    let mut pair = Pair::new();
    pair.load.wait_written(1000);
    pair.scene.move_leader_elsewhere();
    let died = pair.host_dies();
    pair.second.wait_unready("fencing", SENDER_TIMEOUT + NOTICED);
    assert_eq!(pair.second.published(), 0.0);
    pair.followed_after(died, SENDER_TIMEOUT * 2 - HEARD_BEFORE, HEARD_BEFORE + NOTICED);
}

#[test]
fn a_leader_whose_connection_is_half_open_and_its_standby_never_publish_at_once() {
    let pair = Pair::new();
    pair.load.wait_written(1000);
    pair.proxy.abandon();
    // New connections work, so SQL proves the lease until the server has waited long enough, and then either of them may
    // be the next to lead.
    eventually("the leader has noticed", SENDER_TIMEOUT + NOTICED, || pair.first.sessions_lost() >= 1.0);
    pair.first.wait_log("\"reason\":\"postgres_unreachable\"", PATIENCE);
    pair.goes_on();
}

#[test]
fn a_leader_that_is_not_heard_any_more_is_followed_by_its_standby_in_order() {
    let pair = Pair::new();
    pair.load.wait_written(1000);
    // Rows reach it, so events flow until the server lets go.
    pair.follows(Way::ToServer, SENDER_TIMEOUT + NOTICED);
}

#[test]
fn a_leader_that_hears_nothing_any_more_is_followed_by_its_standby_in_order() {
    let pair = Pair::new();
    pair.load.wait_written(1000);
    pair.follows(Way::ToClient, NOTICED);
}

#[test]
fn a_leader_whose_walsender_is_terminated_and_its_standby_never_publish_at_once() {
    let mut pair = Pair::new();
    pair.load.wait_written(500);
    for round in 1..=6 {
        // The leader comes back at once, unless it is cut off: then the standby takes the slot, and waits.
        pair.proxy.refuse(round % 2 == 0);
        let cut = within(PATIENCE, || pair.scene.walsender()).expect("somebody streams");
        pair.scene.database.exec(&format!("select pg_terminate_backend({cut})"));
        eventually("the slot is taken", PATIENCE, || pair.scene.walsender().is_some_and(|pid| pid != cut));
        pair.proxy.refuse(false);
        pair.load.wait_written(pair.load.written() + 300);
    }
    eventually("the standby publishes", PATIENCE, || pair.second.published() > 0.0);
    pair.first.wait_ready();
    pair.second.wait_ready();
    pair.goes_on();
}

#[test]
fn a_leader_that_comes_back_after_its_successor_died_in_the_repeat_tears_no_hole_into_it() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("postgres.sender_timeout", "5s");
    let proxy = Proxy::start(scene.postgres.port());
    let mut first = Relay::start(&scene.config.clone().set("postgres.url", scene.url_through(&proxy)));
    first.wait_ready();
    // It knows its topic: otherwise its lease may end before it has asked.
    let known = scene.acquaint(&first);
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    // What it publishes from here on, it cannot confirm.
    proxy.lose(Way::ToServer);
    let mut session = scene.database.connect();
    for n in 1..=100 {
        let kind = if n == 50 { "late" } else { "t" };
        let row = format!("(current_database(), 'k', '{kind}', jsonb_build_array({n}))");
        let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, payload) values";
        session.batch_execute(&format!("{insert} {row}")).unwrap();
    }
    let before = scene.reader.wait_count(known + 60, PATIENCE).len() - known;
    // It repeats the first 49, and waits for ever for the topic of the next one.
    let late = "match = { event_type = \"late\" }\ntopic = \"nowhere\"";
    let config = scene.config.clone().without("route").add("route", late).add("route", "key = \"{aggregate_id}\"");
    let mut second = Relay::start(&config);
    second.wait_unready("topic_missing", PATIENCE);
    second.sigkill();
    proxy.heal();
    first.wait_ready();
    scene.write("k", "[101]");
    let number = |seen: &Seen| seen.value().trim_matches(['[', ']']).split(',').next().unwrap().parse().unwrap();
    let seen = scene
        .reader
        .wait_for("the last one", PATIENCE, |seen| seen[known..].last().is_some_and(|it| number(it) == 101));
    let numbers: Vec<usize> = seen.iter().skip(known).map(number).collect();
    let again = numbers.iter().rposition(|n| *n == 1).expect("the first one is repeated");
    assert!(again >= before && numbers[..again].iter().copied().eq(1..=again), "{numbers:?}");
    assert!(numbers[again..].iter().copied().eq(1..=101), "the repeat has a hole: {numbers:?}");
    assert_eq!(first.metric("outboxd_slot_moves_total"), Some(0.0));
}

#[test]
fn a_leader_that_became_a_standby_has_no_lag_and_leaves_at_once() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.postgres.port());
    let mut first = Relay::start(&scene.config.clone().set("postgres.url", scene.url_through(&proxy)));
    first.wait_ready();
    // It reads an event, and cannot settle it.
    let missing = format!("{}-missing", scene.topic);
    scene.database.exec(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         values (current_database() || '-missing', 'k', 't', '1')",
    );
    first.wait_unready("topic_missing", PATIENCE);
    let mut second = standby(&scene, &first);
    proxy.refuse(true);
    proxy.cut();
    second.wait_unready("topic_missing", PATIENCE);
    scene.kafka.create_topic(&missing, 1);
    second.wait_ready();
    eventually("the second one publishes it", PATIENCE, || second.published() == 1.0);
    proxy.refuse(false);
    eventually("the first one stands by", PATIENCE, || role(&first) == "standby");
    assert_eq!((first.lag(), first.metric("outboxd_leader")), (0.0, Some(0.0)), "{}", first.metrics());
    assert_eq!(first.metric("outboxd_lag_bytes"), None, "{}", first.metrics());
    first.sigterm();
    assert_eq!(first.wait_exit(TAKEN_OVER), Some(0), "{}", first.log());
    assert!(!first.log().contains("publish these rows again"), "{}", first.log());
}

/// What cannot be fenced in this mode: the frozen process has queued what its client sends when it wakes.
#[test]
fn a_leader_frozen_beyond_its_lease_loses_nothing_and_what_it_reorders_is_reported() {
    let mut pair = Pair::new();
    pair.load.wait_written(1000);
    pair.first.sigstop();
    eventually("the standby publishes", PATIENCE, || pair.second.published() > 500.0);
    pair.first.sigcont();
    eventually("the woken one stands by", PATIENCE, || role(&pair.first) == "standby");
    pair.load.wait_written(10_000);
    let verdict = pair.scene.verdict(&pair.load.stop());
    let (reordered, duplicates) = (verdict.reordered, verdict.duplicates);
    announce(&format!("REPORTED APART: a leader woken beyond its lease: reordered {reordered}, repeated {duplicates}"));
    assert_eq!((verdict.lost, verdict.phantoms, verdict.overtaken), (0, 0, 0), "{verdict}");
}

/// Two relays on one slot under load: the first leads and reaches PostgreSQL through a proxy, the second stands by.
struct Pair {
    first: Relay,
    second: Relay,
    proxy: Proxy,
    load: Running,
    scene: Scene,
}

impl Pair {
    #[track_caller]
    fn new() -> Pair {
        let mut scene = Scene::new();
        scene.config = scene.config.set("postgres.sender_timeout", format!("{}s", SENDER_TIMEOUT.as_secs()));
        let proxy = Proxy::start(scene.postgres.port());
        let mut first = Relay::start(&scene.config.clone().set("postgres.url", scene.url_through(&proxy)));
        first.wait_ready();
        let load = steady::load(&scene, 1000.0);
        let second = standby(&scene, &first);
        Pair { first, second, proxy, load, scene }
    }

    /// The first one's host dies: nobody ends its connections, so the server knows of nothing. Says when.
    fn host_dies(&mut self) -> Instant {
        let died = Instant::now();
        self.proxy.stall();
        self.first.sigkill();
        died
    }

    /// The second one publishes, not earlier than it may and not much later.
    #[track_caller]
    fn followed_after(mut self, died: Instant, wait: Duration, margin: Duration) {
        eventually("the standby publishes", PATIENCE, || self.second.published() > 0.0);
        let took = died.elapsed();
        eprintln!("followed after {took:?}");
        assert!(wait <= took && took < wait + margin, "{took:?}\n{}", self.second.log());
        self.second.wait_ready();
        assert_eq!(self.second.metric("outboxd_leader"), Some(1.0), "{}", self.second.metrics());
        self.judge();
    }

    /// A way between the first one and the server is lost: it says so within this time. The second one leads, after the
    /// server's timeout and its own wait, and the first one stands by when the way is back.
    #[track_caller]
    fn follows(mut self, lost: Way, noticed: Duration) {
        self.proxy.lose(lost);
        self.first.wait_unready("postgres_unreachable", noticed);
        assert!(self.first.sessions_lost() >= 1.0, "{}", self.first.log());
        eventually("the second one publishes", PATIENCE, || self.second.published() > 0.0);
        self.second.wait_ready();
        self.proxy.heal();
        eventually("the first one stands by", PATIENCE, || role(&self.first) == "standby");
        let leads = [&self.first, &self.second].map(|relay| relay.metric("outboxd_leader"));
        assert_eq!(leads, [Some(0.0), Some(1.0)]);
        self.goes_on();
    }

    /// Whoever leads now, events go on.
    #[track_caller]
    fn goes_on(self) {
        let published = || self.first.published() + self.second.published();
        let before = published();
        eventually("events flow", PATIENCE, || published() > before + 500.0);
        self.judge();
    }

    #[track_caller]
    fn judge(self) {
        self.load.wait_written(10_000);
        self.scene.judge(&self.load.stop()).assert_order_was_tried();
    }
}
