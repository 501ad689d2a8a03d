//! How each fault strikes, how it is lifted, and how long it takes until events flow again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::deck::Turn;
use crate::faults::{Announced, Cause, Fault, Metric, Side, Wire};
use crate::report::{Due, Struck};
use crate::stage::{LIVENESS, PROBE, SHUTDOWN, Stage, announced_by, topics};
use crate::support::kafka::Node;
use crate::support::postgres::Stop;
use crate::support::proxy::{Proxy, Way};
use crate::support::reader::Reader;
use crate::support::relay::Relay;
use crate::support::scene::PARTITIONS;
use crate::support::within;

/// A relay that is told to stop has ended within its limit, and a moment for a machine that is busy with everything else.
const ENDS_WITHIN: Duration = Duration::from_millis(SHUTDOWN.as_millis() as u64 + 1500);
/// The events that show whether all partitions flow.
const PROBES: usize = 12;

impl Stage {
    /// Strikes, waits, lifts, and measures how long an event takes that is committed afterwards.
    pub fn strike(&mut self, turn: &Turn, rounds: &[&[Reader; 2]]) -> Vec<Struck> {
        self.turns += 1;
        let (together, before) = (Cause::name(&turn.faults, None), self.unsettled.take());
        let cause = Cause::name(&turn.faults, before.as_ref().map(|(name, _)| name.as_str()));
        let cause = Cause::numbered(self.turns, &cause);
        let announced_before = self.announced();
        rounds.iter().flat_map(|readers| readers.iter()).for_each(|reader| reader.disturbed(&cause));
        let cuts: Vec<usize> = turn.faults.iter().map(|fault| self.cuts_at_bytes(*fault, turn)).collect();
        self.watch.begin();
        let begun = Instant::now();
        let mut hit: Vec<bool> = turn.faults.iter().map(|fault| self.begin(*fault, turn)).collect();
        // A server that is told to stop serves until it has: the outage begins when it is gone.
        let in_force_after = begun.elapsed();
        let blow = turn.is_a_blow();
        let at_once = blow.then(|| self.flows_after());
        within(turn.hold.saturating_sub(begun.elapsed()), || None::<()>);
        for ((fault, hit), cuts) in turn.faults.iter().zip(&mut hit).zip(cuts).rev() {
            if matches!(fault, Fault::Wire(_, Wire::CutAtByte)) {
                *hit = self.cuts_at_bytes(*fault, turn) > cuts;
            }
            self.lift(*fault, turn);
        }
        let lasted = begun.elapsed();
        let recovery = at_once.unwrap_or_else(|| self.flows_after());
        let ready_again = self.ready_after();
        self.assert_nobody_is_stranded();
        if let Some(mut first) = self.leaving.take() {
            // Of a signal there is no code.
            let expected = if turn.faults.contains(&Fault::TakeOver) { None } else { Some(0) };
            assert_eq!(first.wait_exit(ENDS_WITHIN), expected, "{}", first.log());
            self.retire(first);
        }
        // Now and then the next fault strikes before all of this one is over.
        let leaves_the_rest = before.is_none() && turn.waits_for_none;
        if !leaves_the_rest {
            assert!(self.is_settled(), "what was written is not confirmed\n{}", self.relay.log());
        }
        let mut announced = self.announced().since(announced_before);
        if leaves_the_rest {
            self.unsettled = Some((Cause::name(&turn.faults, None), announced));
        }
        if let Some((_, before)) = before {
            announced = announced.and(before);
        }
        let outage = if blow { recovery.unwrap_or(LIVENESS) } else { lasted - in_force_after };
        let struck = turn.faults.iter().map(|fault| Struck {
            fault: *fault,
            together: together.clone(),
            cause: cause.clone(),
            announced,
            lasted,
            in_force_after,
            recovery,
            ready_again,
            told: self.watch.seen(),
            due: self.due(*fault, turn, outage),
            counted: self.is_counted(*fault, turn),
        });
        struck.zip(hit).filter(|(struck, hit)| *hit || struck.is_stuck()).map(|(struck, _)| struck).collect()
    }

    /// What an operator must have seen, if events could not flow for this long and there is a relay to be asked. Of two
    /// faults one may hide what the other would show; one that lasts while the other only strikes is what the time is of.
    fn due(&self, fault: Fault, turn: &Turn, outage: Duration) -> Option<Due> {
        let within = turn.faults.iter().map(|fault| fault.noticed()).max().expect("there is one");
        let is_asked = !turn.faults.iter().any(|fault| fault.ends_the_answers());
        let must_show = !fault.shows().is_empty() && fault.is_a_blow() == turn.is_a_blow() && outage > within;
        let metrics = || turn.faults.iter().filter_map(|fault| fault.moves());
        (is_asked && must_show).then(|| Due {
            reasons: match turn.faults.len() {
                1 => fault.shows().to_vec(),
                _ => turn.faults.iter().flat_map(|fault| fault.may_show()).collect(),
            },
            within,
            moved: metrics().any(|metric| self.watch.moved(metric)),
        })
    }

    /// Whether a metric has counted a session that surely ended, however short that was; `None` where none did, or nobody
    /// is there to be asked.
    fn is_counted(&self, fault: Fault, turn: &Turn) -> Option<bool> {
        let is_asked = !turn.faults.iter().any(|fault| fault.ends_the_answers() || fault.replaces_the_relay());
        (is_asked && fault.ends_the_session()).then(|| self.watch.moved(Metric::Sessions))
    }

    /// How long events take that are committed now, for all partitions; `None` when that is too long.
    fn flows_after(&mut self) -> Option<Duration> {
        let started = Instant::now();
        let sql = format!(
            "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
             select '{PROBE}', n, 'probe', '{{}}' from generate_series(1, {PROBES}) n returning id::text"
        );
        let rows = self.database.connect().query(&sql, &[]).expect("the server takes events");
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
        self.probes.wait_all(&ids, LIVENESS).then(|| started.elapsed())
    }

    /// How long until readiness is back; `None` when that is too long.
    fn ready_after(&self) -> Option<Duration> {
        let started = Instant::now();
        let ready = |relay: &Relay| relay.readiness().is_some_and(|(status, _)| status == 200);
        within(LIVENESS, || (ready(&self.relay) && ready(&self.survivor)).then(|| started.elapsed()))
    }

    /// Waits until all that was written by now is published and confirmed: what is repeated later is not this fault's.
    fn is_settled(&self) -> bool {
        let written = self.database.written();
        let confirmed = |slot: &String| self.database.confirmed(slot).is_some_and(|confirmed| confirmed >= written);
        within(LIVENESS, || self.slots().iter().all(confirmed).then_some(())).is_some()
    }

    /// Makes it happen; false when it turns out that it did not.
    fn begin(&mut self, fault: Fault, turn: &Turn) -> bool {
        match fault {
            Fault::RelayKill => {
                assert!(self.relay.is_running(), "it ended by itself\n{}", self.relay.log());
                self.relay.sigkill();
            }
            Fault::RelayTerm => {
                self.relay.sigterm();
                assert_eq!(self.relay.wait_exit(ENDS_WITHIN), Some(0), "{}", self.relay.log());
            }
            Fault::RelayFreeze => self.relay.sigstop(),
            Fault::HandOver | Fault::TakeOver => self.replace(fault),
            Fault::PostgresCrash => self.postgres.stop(Stop::Kill),
            Fault::PostgresImmediate => self.postgres.stop(Stop::Immediate),
            Fault::PostgresFast => self.postgres.stop(Stop::Fast),
            Fault::PostgresSmart => {
                self.postgres.begin_stop(Stop::Smart);
                within(Duration::from_millis(300 + turn.chance % 700), || None::<()>);
                self.postgres.stop(Stop::Fast);
            }
            Fault::PostgresFreeze => self.postgres.pause(),
            Fault::WalsenderEnded => return self.database.cut_replication(self.config.slot()),
            Fault::SlotStolen => return self.steal(turn.hold),
            Fault::BrokerKill => self.broker(turn).kill(),
            Fault::BrokerStop => self.broker(turn).stop(),
            Fault::BrokerPause => self.broker(turn).pause(),
            Fault::ClusterKill => self.kafka.kill(),
            Fault::ClusterPause => self.kafka.pause(),
            Fault::LeaderMove => {
                let topic = &topics(&self.aggregate_type())[0];
                self.kafka.move_leader(topic, (turn.chance % PARTITIONS as u64) as i32);
            }
            Fault::TopicRemade => self.delete_topic(),
            Fault::LimitLowered => self.lower_limit(),
            Fault::TransactionHeld => self.hold_transaction(),
            Fault::Wire(side, wire) => {
                let open = self.proxies(side, turn).iter().map(|proxy| proxy.connections()).sum::<usize>();
                self.proxies(side, turn).into_iter().for_each(|proxy| disturb(proxy, wire, turn));
                return open > 0;
            }
        }
        true
    }

    fn lift(&mut self, fault: Fault, turn: &Turn) {
        match fault {
            Fault::RelayKill | Fault::RelayTerm => self.replace_relay(),
            Fault::RelayFreeze => self.relay.sigcont(),
            Fault::PostgresCrash | Fault::PostgresImmediate | Fault::PostgresFast | Fault::PostgresSmart => {
                self.postgres.start()
            }
            Fault::PostgresFreeze => self.postgres.resume(),
            Fault::BrokerKill | Fault::BrokerStop => self.broker(turn).start(),
            Fault::BrokerPause => self.broker(turn).resume(),
            Fault::ClusterKill => self.kafka.start(),
            Fault::ClusterPause => self.kafka.resume(),
            Fault::TopicRemade | Fault::LimitLowered | Fault::TransactionHeld => self.free(fault),
            Fault::Wire(side, _) => self.proxies(side, turn).into_iter().for_each(Proxy::heal),
            Fault::HandOver | Fault::TakeOver | Fault::WalsenderEnded | Fault::SlotStolen | Fault::LeaderMove => {}
        }
    }

    /// A second relay stands by, and the first one goes.
    fn replace(&mut self, fault: Fault) {
        let standby = Relay::start(&self.config);
        standby.wait_standby();
        let mut first = std::mem::replace(&mut self.relay, standby);
        self.follow();
        match fault {
            Fault::HandOver => first.sigterm(),
            _ => first.sigkill(),
        }
        self.leaving = Some(first);
    }

    /// Another session reads the slot again and again (without moving it) from the moment our walsender is ended. True
    /// when it was first at least once.
    fn steal(&mut self, hold: Duration) -> bool {
        let slot = self.config.slot();
        let peek = format!(
            "select count(*) from pg_logical_slot_peek_binary_changes('{slot}', null, null, 'proto_version', '1',
                 'publication_names', '{}')",
            self.database.name()
        );
        let mut thief = self.database.connect();
        self.database.cut_replication(slot);
        let mut stolen = false;
        within(hold, || {
            stolen |= thief.batch_execute(&peek).is_ok();
            None::<()>
        });
        stolen
    }

    fn broker(&self, turn: &Turn) -> &Node {
        self.kafka.node(turn.chance as usize % self.kafka.node_count())
    }

    fn proxies(&self, side: Side, turn: &Turn) -> Vec<&Proxy> {
        let brokers = self.kafka.proxies();
        match side {
            Side::Postgres => vec![&self.wire],
            Side::Kafka => brokers,
            Side::OneBroker => vec![brokers[turn.chance as usize % brokers.len()]],
            Side::Both => brokers.into_iter().chain([&self.wire]).collect(),
        }
    }

    /// Of the proxies that a fault disturbs.
    fn cuts_at_bytes(&self, fault: Fault, turn: &Turn) -> usize {
        let Fault::Wire(side, _) = fault else { return 0 };
        self.proxies(side, turn).into_iter().map(Proxy::cut_at_bytes).sum()
    }

    fn announced(&self) -> Announced {
        Announced { relay: self.announced_before + announced_by(&self.relay), survivor: announced_by(&self.survivor) }
    }
}

fn disturb(proxy: &Proxy, wire: Wire, turn: &Turn) {
    match wire {
        Wire::Cut => proxy.cut(),
        Wire::Reset => proxy.reset(),
        Wire::HalfOpen => proxy.abandon(),
        Wire::LostToServer => proxy.lose(Way::ToServer),
        Wire::LostToClient => proxy.lose(Way::ToClient),
        Wire::Stall => proxy.stall(),
        Wire::Drip => proxy.drip(2000, Duration::from_millis(50)),
        Wire::Latency => proxy.latency(Duration::from_millis(20 + turn.chance % 200)),
        Wire::CutAtByte => proxy.cut_after(Way::ToClient, turn.chance % 5_000),
    }
}
