//! A real standby with a failover slot: the slot passes a parked event only when the standby has its letter, and what a
//! promoted standby sends again is neither lost nor published against its letter.
//!
//! Failover slots came with PostgreSQL 17: where there is none, each test says so in one line and ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, STANDBY, Stop, Version};
use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, announce, eventually, test_name, throughout};

#[test]
fn a_letter_that_the_standby_has_not_received_holds_the_slot_and_readiness_says_so() {
    let Some(pair) = Pair::start(Copied::ByItself) else { return };
    let scene = &pair.scene;
    let mut relay = scene.relay();
    let first = scene.write("k", "1");
    scene.reader.wait_count(1, PATIENCE);
    let bad = pair.park_without_standby(&relay, || pair.standby.stop(Stop::Fast));
    let second = scene.write("k", "2");
    eventually("readiness says what is missing", PATIENCE, || names_the_standby(&relay));
    // Longer than one errand waits for the standby. PostgreSQL itself holds back what the standby has not.
    throughout("it says so as long as that lasts, and the slot stays", Duration::from_secs(4), || {
        names_the_standby(&relay) && !has_passed(scene, &bad) && scene.reader.count() == 1
    });

    pair.standby.start();
    assert!(scene.reader.wait_all(&HashSet::from([second.as_str()]), PATIENCE), "{}", relay.log());
    eventually("the slot moves on", PATIENCE, || has_passed(scene, &bad));
    relay.wait_ready();
    wait_confirmed(scene);
    let seen: Vec<String> = scene.reader.seen().iter().map(|seen| seen.id().to_string()).collect();
    assert_eq!(seen, [first, second], "in order, each once, and not the bad one");
    assert_eq!(scene.dead_letters(), [scene.wait_letter(&bad)], "parked once");
}

#[test]
fn a_relay_that_knows_both_hosts_goes_on_at_the_promoted_one_and_publishes_no_parked_event() {
    let Some(mut pair) = Pair::start(Copied::ByItself) else { return };
    let mut relay = pair.scene.relay();
    pair.wait_synchronized();
    let first = pair.scene.write("k", "1");
    let bad = write_bad(&pair.scene);
    let second = pair.scene.write("k", "2");
    // What has come through the slot, the standby has.
    let before = HashSet::from([first.as_str(), second.as_str()]);
    assert!(pair.scene.reader.wait_all(&before, PATIENCE), "{}", relay.log());
    eventually("the slot has passed it", PATIENCE, || has_passed(&pair.scene, &bad));
    pair.kill_primary();
    // Nobody can write there yet: the letter is the one that was stored on the primary.
    let letter = pair.scene.wait_letter(&bad);

    pair.standby.promote();
    let third = pair.scene.write("k", "3");
    assert!(pair.scene.reader.wait_all(&HashSet::from([third.as_str()]), PATIENCE), "{}", relay.log());
    relay.wait_ready();
    wait_confirmed(&pair.scene);
    assert_eq!(times_published(&pair.scene, &bad), 0, "{}", relay.log());
    assert_eq!(pair.scene.dead_letters(), [letter], "parked once");
}

#[test]
fn a_parked_event_that_a_promoted_server_sends_again_is_settled_by_its_letter_and_published_once() {
    let Some(mut pair) = Pair::start(Copied::WhenAsked) else { return };
    let mut relay = pair.scene.relay();
    pair.wait_synchronized();
    let bad = write_bad(&pair.scene);
    let good = pair.scene.write("k", "1");
    assert!(pair.scene.reader.wait_all(&HashSet::from([good.as_str()]), PATIENCE), "{}", relay.log());
    eventually("the slot has passed it", PATIENCE, || has_passed(&pair.scene, &bad));
    relay.sigkill();
    pair.kill_primary();
    let letter = pair.scene.wait_letter(&bad);
    pair.standby.promote();
    assert!(!has_passed(&pair.scene, &bad), "the standby's slot is older, so the row comes again");

    // Its route would publish it now.
    pair.scene.config = pair.scene.config.clone().without("route").add("route", "key = \"{id}\"");
    let relay = pair.scene.relay();
    let after = pair.scene.write("k", "2");
    assert!(pair.scene.reader.wait_all(&HashSet::from([after.as_str()]), PATIENCE), "{}", relay.log());
    wait_confirmed(&pair.scene);
    assert_eq!(times_published(&pair.scene, &bad), 0, "{}", relay.log());
    assert_eq!(pair.scene.dead_letters(), [letter], "parked once");

    pair.scene.retry_letters();
    pair.scene.wait_state(&bad, "delivered");
    pair.scene.reader.catch_up(PATIENCE);
    assert_eq!(times_published(&pair.scene, &bad), 1, "{}", relay.log());
}

#[test]
fn an_event_whose_letter_the_standby_never_received_is_parked_again_after_its_promotion() {
    let Some(mut pair) = Pair::start(Copied::WhenAsked) else { return };
    let mut relay = pair.scene.relay();
    pair.wait_synchronized();
    let bad = pair.park_without_standby(&relay, || {
        // The standby can still be told how far the slot is: that comes by a connection of its own.
        pair.proxy.abandon();
        eventually("no WAL reaches the standby", PATIENCE, || pair.proxy.connections() == 0);
    });
    throughout("the slot stays before it", Duration::from_secs(3), || !has_passed(&pair.scene, &bad));
    pair.standby.exec("postgres", COPY_SLOTS);
    pair.kill_primary();
    assert!(pair.scene.dead_letters().is_empty(), "the letter is lost, or this test shows nothing");

    pair.standby.promote();
    let good = pair.scene.write("k", "1");
    assert!(pair.scene.reader.wait_all(&HashSet::from([good.as_str()]), PATIENCE), "{}", relay.log());
    let letter = pair.scene.wait_letter(&bad);
    relay.wait_ready();
    wait_confirmed(&pair.scene);
    assert_eq!(pair.scene.dead_letters(), [letter], "parked once");
    assert_eq!(times_published(&pair.scene, &bad), 0, "{}", relay.log());
}

#[test]
fn a_key_goes_live_again_although_the_standby_is_always_later_than_a_look_at_the_store_waits() {
    let Some(mut pair) = Pair::start(Copied::ByItself) else { return };
    pair.scene.config = pair.scene.config.clone().set("dead_letter.order", "park-key");
    let scene = &pair.scene;
    scene.kafka.alter_topic(&scene.topic, &[("message.timestamp.before.max.ms", "86400000")]);
    let relay = scene.relay();
    let bad = write(scene, "'k'", "now() - interval '2 days'");
    scene.wait_letter(&bad);
    // Both ways, while something is written at all times.
    pair.proxy.latency(Duration::from_secs(2));
    let mut busy = scene.database.connect();
    std::thread::spawn(move || {
        let messages = "do $$ begin for n in 1..10000 loop
            perform pg_logical_emit_message(true, '', ''); commit; perform pg_sleep(0.02);
        end loop; end $$";
        // Until the server is stopped.
        busy.batch_execute(messages).ok();
    });
    // Far more than are stored at a time: none waits until standbys have those before it.
    let many = "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
                select current_database(), 'k', 'written', '1' from generate_series(1, 3000)";
    scene.database.exec(many);
    eventually("all behind it are parked", Duration::from_secs(30), || {
        scene.database.ask("select count(*)::text from outboxd.dead_letter").as_deref() == Some("3001")
    });
    scene.kafka.alter_topic(&scene.topic, &[("message.timestamp.before.max.ms", "9223372036854775807")]);
    scene.retry_letters();
    scene.wait_state(&bad, "delivered");
    eventually("the key is live again", Duration::from_secs(90), || {
        // Longer than what a look found needs to be known there. The session above outlasts this.
        std::thread::sleep(Duration::from_secs(8));
        let event = write(scene, "'k'", "now()");
        assert!(scene.reader.wait_all(&HashSet::from([event.as_str()]), PATIENCE), "{}", relay.log());
        scene.dead_letters().iter().all(|letter| letter.event.as_deref() != Some(event.as_str()))
    });
}

/// Run on a standby that does not do it by itself.
const COPY_SLOTS: &str = "select pg_sync_replication_slots()";

/// How the standby comes to the relay's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// As in operation: a worker of the standby follows the slot.
    ByItself,
    /// Only when the test says so: it knows then how old the standby's copy is.
    WhenAsked,
}

/// A primary whose failover slots wait for its standby, the standby behind a proxy, and a scene on the primary. Its
/// relay knows both hosts.
struct Pair {
    scene: Scene,
    standby: Arc<Postgres>,
    proxy: Proxy,
    primary: Arc<Postgres>,
    copied: Copied,
}

impl Pair {
    /// `None`, and a line that says why, where PostgreSQL is too old.
    fn start(copied: Copied) -> Option<Pair> {
        let Some(version) = Version::with_failover_slots() else {
            let why = "PostgreSQL is too old for failover slots (17; scripts/setup matrix installs it)";
            announce(&format!("{} tries nothing: {why}", test_name()));
            return None;
        };
        let options = Postgres::options().version(version);
        let primary = options.clone().setting("synchronized_standby_slots", &format!("'{STANDBY}'")).start();
        let proxy = Proxy::start(primary.port());
        let worker = match copied {
            Copied::ByItself => "on",
            Copied::WhenAsked => "off",
        };
        let standby = primary.standby(proxy.port(), options.setting("sync_replication_slots", worker));
        let mut scene = Scene::on(&primary, &Kafka::shared());
        let hosts = [&primary, &standby].map(|server| format!("127.0.0.1:{}", server.port())).join(",");
        scene.config = scene
            .config
            .set("postgres.url", format!("postgres://postgres@{hosts}/{}", scene.database.name()))
            .set("limits.sql", "2s")
            .set("limits.backoff", "200ms")
            .set("dead_letter.backoff.first", "1h");
        Some(Pair { scene, standby, proxy, primary, copied })
    }

    /// Waits until the standby has the relay's slot, and would keep it through a promotion.
    #[track_caller]
    fn wait_synchronized(&self) {
        let slot = self.scene.config.slot();
        let kept = format!("select synced and not temporary from pg_replication_slots where slot_name = '{slot}'");
        let mut standby = self.standby.connect("postgres");
        eventually("the standby has the slot", PATIENCE, || {
            // It takes the slot when that needs nothing older than the standby still has, which the slot learns from
            // these; a worker looks at once when it is told of new settings, otherwise now and then.
            self.primary.exec("postgres", "select pg_log_standby_snapshot()");
            let look = match self.copied {
                Copied::ByItself => "select pg_reload_conf()",
                Copied::WhenAsked => COPY_SLOTS,
            };
            // The slot may be ahead of the standby for a moment, which is an error.
            standby.batch_execute(look).ok();
            standby.query_opt(&kept, &[]).unwrap().is_some_and(|row| row.get(0))
        });
    }

    /// Writes a bad event that the standby has; its letter is stored when `cut_off` has cut the standby off. Answers
    /// with the event's id.
    #[track_caller]
    fn park_without_standby(&self, relay: &Relay, cut_off: impl FnOnce()) -> String {
        let mut session = self.scene.database.connect();
        let mut lock = session.transaction().unwrap();
        lock.batch_execute("lock table outboxd.dead_letter in exclusive mode").unwrap();
        let event = write_bad(&self.scene);
        relay.wait_log("the event is parked", PATIENCE);
        cut_off();
        lock.rollback().unwrap();
        self.scene.wait_letter(&event);
        event
    }

    /// From now on the scene's database is what the standby has of it.
    fn kill_primary(&mut self) {
        self.primary.stop(Stop::Kill);
        self.scene.database = self.standby.database_named(self.scene.database.name());
        self.scene.postgres = self.standby.clone();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // What a killed server leaves in shared memory goes with its next start and stop.
        if self.primary.has_stopped() && !std::thread::panicking() {
            self.primary.start();
        }
    }
}

/// Writes an event without the key that its route wants. Answers with its id.
#[track_caller]
fn write_bad(scene: &Scene) -> String {
    write(scene, "null", "now()")
}

/// Answers with the event's id.
#[track_caller]
fn write(scene: &Scene, key: &str, time: &str) -> String {
    let sql = format!(
        "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
         values (current_database(), {key}, 'written', '1', {time}) returning id"
    );
    scene.database.ask(&sql).expect("the row has an id")
}

/// True when the slot stands behind the commit of the parked event.
#[track_caller]
fn has_passed(scene: &Scene, event: &str) -> bool {
    let sql = format!(
        "select s.confirmed_flush_lsn > d.commit_lsn from outboxd.dead_letter as d
         join pg_replication_slots as s on s.slot_name = d.slot where d.event_id = '{event}'"
    );
    scene.database.ask(&sql).as_deref() == Some("t")
}

/// Waits until the slot stands behind all that is written, and all of it is read.
#[track_caller]
fn wait_confirmed(scene: &Scene) {
    let end = scene.written();
    eventually("all of it is confirmed", PATIENCE, || scene.confirmed() >= end);
    scene.reader.catch_up(PATIENCE);
}

fn times_published(scene: &Scene, event: &str) -> usize {
    scene.reader.seen().iter().filter(|seen| seen.id() == event).count()
}

fn names_the_standby(relay: &Relay) -> bool {
    let Some((code, body)) = relay.readiness() else { return false };
    code == 503 && body["reasons"].to_string().contains("synchronized_standby_slots")
}
