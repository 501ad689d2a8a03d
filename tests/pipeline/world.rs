//! The world around one pipeline: clock, network, server, broker, and the relay's shell. Every step is one roll of the
//! dice, and after every step the oracle looks at what was promised.

use std::time::{Duration, Instant};

use outboxd::config;
use outboxd::config::{OutboxSource, Pattern, Piece};
use outboxd::ledger::Ticket;
use outboxd::lsn::Lsn;
use outboxd::pipeline::{Action, Ask, Clock, Flow, Pipeline, SessionStart, Settings};

use crate::broker::{Broker, Faults, Gate};
use crate::dice::Dice;
use crate::server::{OwnedFrame, Server, TOPICS};

const SENDER_TIMEOUT: Duration = Duration::from_secs(3);

/// Which misfortunes this history has; each is how many times in 1000 steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub steps: u64,
    pub cuts: u64,
    pub server_crashes: u64,
    pub fail_overs: u64,
    pub relay_crashes: u64,
    pub stops: u64,
    pub deafness: u64,
    pub server_stops: u64,
    pub unready: u64,
    pub poison: u64,
    pub unfit: u64,
    pub long_waits: u64,
    pub fatal_percent: u64,
    pub faults: Faults,
}

impl Plan {
    /// About half of the misfortunes, each rare or frequent.
    pub fn roll(dice: &mut Dice) -> Plan {
        let mut some = |most: u64| if dice.hits(50) { 0 } else { dice.between(1, most) };
        Plan {
            cuts: some(30),
            server_crashes: some(8),
            fail_overs: some(6),
            relay_crashes: some(8),
            stops: some(6),
            deafness: some(8),
            server_stops: some(5),
            unready: some(10),
            poison: some(15),
            unfit: some(4),
            long_waits: some(20),
            fatal_percent: some(3),
            faults: Faults { lost_answer: some(10), world: some(10), set_up: some(5) },
            steps: dice.between(150, 700),
        }
    }
}

/// A relay on another machine, of which nothing is known.
const ELSEWHERE: u64 = u64::MAX;

/// The process: a pipeline and what its shell knows.
struct Relay {
    pipeline: Pipeline,
    link: Option<Link>,
    connect_at: Instant,
    /// Its name in the position table.
    name: u64,
    producer_ready_at: Option<Instant>,
    lease: Option<Instant>,
}

/// The relay's end of a session.
struct Link {
    claim_at: Option<Instant>,
    fence_end: Option<Instant>,
    frame: Option<OwnedFrame>,
    /// When a status update of ours last reached the server.
    heard: Instant,
    /// The server has let go: the end of the stream comes as the next frame.
    severed: bool,
}

pub struct World {
    pub dice: Dice,
    plan: Plan,
    now: Instant,
    born: Instant,
    limits: config::Limits,
    pub server: Server,
    pub broker: Broker,
    relay: Option<Relay>,
    restart_at: Instant,
    /// Who the position table says may still be publishing; `None` after a clean leave.
    holder: Option<u64>,
    relays: u64,
    /// Nothing of the relay's reaches the server until then.
    deaf_until: Instant,
    /// The server's timeline that the relay knows.
    timeline: u32,
    /// Transactions already looked at by the oracle.
    judged: usize,
    confirmed: Lsn,
    pub rejected: u64,
    pub stops: Vec<u64>,
    pub log: Vec<String>,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let mut dice = Dice::new(seed);
        let now = Instant::now();
        let limits = config::Limits {
            memory: dice.between(600, 6000),
            window: dice.between(2, 40) as usize,
            event: 1 << 20,
            settle: Duration::from_millis(dice.between(5, 500)),
            shutdown: Duration::from_millis(2500),
            primary_grace: Duration::from_millis(500),
            backoff: Duration::from_secs(1),
            probe: Duration::from_secs(5),
            sql: Duration::from_secs(10),
            slot_creation: Duration::from_secs(60),
        };
        let mut broker = Broker::new(seed);
        broker.fatal_percent = plan.fatal_percent;
        World {
            dice,
            plan,
            now,
            born: now,
            limits,
            server: Server::new(now),
            broker,
            relay: None,
            restart_at: now,
            holder: None,
            relays: 0,
            deaf_until: now,
            timeline: 1,
            judged: 0,
            confirmed: Lsn::ZERO,
            rejected: 0,
            stops: Vec::new(),
            log: Vec::new(),
        }
    }

    /// The whole history: misfortunes, then peace, in which everything must arrive.
    pub fn run(&mut self) {
        for _ in 0..self.plan.steps {
            self.misfortune();
            self.step();
            self.judge();
        }
        self.make_peace();
        let mut rounds = 0;
        while !self.is_complete() {
            rounds += 1;
            assert!(rounds < 60_000, "liveness: {}", self.describe());
            self.step();
            self.judge();
        }
        self.leave_cleanly();
    }

    fn make_peace(&mut self) {
        self.note("peace");
        self.plan = Plan::default();
        self.broker.fatal_percent = 0;
        self.broker.unready = [false; TOPICS as usize];
        self.broker.full = false;
        self.deaf_until = self.now;
        self.server.stopping = false;
        if self.server.transactions.is_empty() {
            self.server.commit(&mut self.broker.events, &mut self.dice);
        }
    }

    fn is_complete(&self) -> bool {
        // The oracle saw every event of the transactions that it has judged in the log; the slot keeps no WAL.
        let arrived = self.judged == self.server.transactions.len();
        self.relay.is_some() && arrived && self.server.confirmed >= self.server.wal_end
    }

    /// A clean stop confirms all, so the next start publishes nothing again.
    fn leave_cleanly(&mut self) {
        self.note("clean stop");
        let stops = self.stops.len();
        let now = self.now;
        self.relay.as_mut().expect("complete means running").pipeline.stop(now);
        for _ in 0..2000 {
            if self.stops.len() > stops {
                break;
            }
            self.step();
            self.judge();
        }
        if self.stops.get(stops) != Some(&0) {
            assert!(self.stops.len() > stops, "a clean stop did not end: {}", self.describe());
            return;
        }
        let offers = self.broker.offers;
        for _ in 0..300 {
            self.step();
            self.judge();
        }
        assert_eq!(self.broker.offers, offers, "something was offered again after a clean stop");
    }

    /// One thing happens that nobody wished for.
    fn misfortune(&mut self) {
        let plan = self.plan;
        let mut strikes = |often: u64| self.dice.below(1000) < often;
        let (cut, server_crash, fail_over) =
            (strikes(plan.cuts), strikes(plan.server_crashes), strikes(plan.fail_overs));
        let (relay_crash, stop, deaf) = (strikes(plan.relay_crashes), strikes(plan.stops), strikes(plan.deafness));
        let (server_stop, unready, poison) = (strikes(plan.server_stops), strikes(plan.unready), strikes(plan.poison));
        let (unfit, long_wait) = (strikes(plan.unfit), strikes(plan.long_waits));
        if cut {
            self.cut();
        }
        if server_crash {
            self.note("server crash");
            self.holder = Some(ELSEWHERE);
            self.server.crash();
            self.forget_a_clean_stop();
        }
        if fail_over {
            self.fail_over();
        }
        if relay_crash && self.relay.is_some() {
            self.note("relay crash");
            self.end_relay();
            self.holder = Some(ELSEWHERE);
            self.broker.forget(&mut self.dice);
        }
        if stop && let Some(relay) = &mut self.relay {
            relay.pipeline.stop(self.now);
            self.note("stop");
        }
        if deaf {
            self.deaf_until = self.now + Duration::from_millis(self.dice.between(100, 6000));
            self.note("deaf");
        }
        if server_stop {
            self.server.stopping = true;
            self.note("server stopping");
            if self.dice.hits(50)
                && let Some(relay) = &mut self.relay
            {
                relay.pipeline.server_stopping(self.now);
            }
        }
        if unready {
            let topic = self.dice.index(TOPICS as usize);
            self.broker.unready[topic] ^= true;
            self.broker.full = self.dice.once_in(3);
        }
        if poison || unfit {
            let newest = self.broker.events.len() as u64;
            let id = self.dice.between(newest.saturating_sub(5), newest + 3);
            if !self.broker.written.contains(&id) && !self.broker.open.contains(&id) {
                let list = if poison { &mut self.broker.poison } else { &mut self.broker.unfit };
                list.insert(id);
                self.note(&format!("event {id} will be refused"));
            }
        }
        if long_wait {
            self.now += Duration::from_millis(self.dice.between(50, 4000));
            self.note("long wait");
        }
    }

    /// One thing happens that is nobody's fault.
    fn step(&mut self) {
        self.server.expire(SENDER_TIMEOUT, self.now);
        match self.dice.below(100) {
            // In peace nothing is written any more.
            0..4 if self.plan.steps > 0 => {
                self.server.commit(&mut self.broker.events, &mut self.dice);
            }
            4..6 if self.plan.steps > 0 => self.server.unrelated(&mut self.dice),
            6..8 => self.server.checkpoint(),
            8..20 => self.now += Duration::from_millis(self.dice.between(1, 120)),
            20..55 => self.frame(),
            55..78 => self.broker.work(self.plan.faults, &mut self.dice),
            78..92 => self.report(),
            92..94 => self.stale(),
            94..96 => self.prove(),
            _ => self.shell(),
        }
        if self.dice.hits(70) {
            self.shell();
        }
    }

    /// The next frame, or the one that waits, is shown to the pipeline.
    fn frame(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        let Some(link) = &mut relay.link else { return };
        if link.frame.is_none() {
            if self.server.session.is_none() || link.severed {
                relay.link = None;
                relay.pipeline.session_lost();
                relay.connect_at = self.now + Duration::from_millis(self.dice.below(300));
                return;
            }
            link.frame = self.server.send(&self.broker.events, SENDER_TIMEOUT, self.now, &mut self.dice);
        }
        let Some(frame) = link.frame.take() else { return };
        let (OwnedFrame::Data { sent, .. } | OwnedFrame::Keepalive { sent, .. }) = &frame;
        relay.lease = relay.lease.max(Some(*sent));
        let lease_end = relay.lease.expect("a session has a lease") + SENDER_TIMEOUT * 2 / 3;
        let successor = link.heard + SENDER_TIMEOUT * 2;
        let (fence_end, severed) = (link.fence_end, link.severed);
        self.broker.gate = Some(Gate { now: self.now, lease_end, fence_end, successor, severed });
        let flow = relay.pipeline.frame(frame.frame(), self.now, &mut self.broker);
        self.broker.gate = None;
        match flow {
            Ok(Flow::Taken) => {}
            Ok(Flow::Held) => link.frame = Some(frame),
            Err(error) => panic!("{}", error.chain()),
        }
    }

    fn report(&mut self) {
        let Some(report) = self.broker.report(&mut self.dice) else { return };
        let Some(relay) = &mut self.relay else { return };
        let ticket = Ticket::from_parts(report.ticket.0, report.ticket.1);
        if relay.pipeline.ledger().generation() == report.ticket.1 {
            self.broker.open.remove(&report.event);
        }
        match report.failure {
            None => {
                if relay.pipeline.acked(ticket).is_some() {
                    self.broker.settled.insert(report.event);
                }
            }
            Some(failure) => relay.pipeline.failed(ticket, failure, self.now),
        }
    }

    /// A former producer's report comes after all.
    fn stale(&mut self) {
        self.broker.land_late(&mut self.dice);
        let Some(relay) = &mut self.relay else { return };
        if self.broker.stale.is_empty() {
            return;
        }
        let at = self.dice.index(self.broker.stale.len());
        let report = self.broker.stale.swap_remove(at);
        let ticket = Ticket::from_parts(report.ticket.0, report.ticket.1);
        match report.failure {
            None => assert!(relay.pipeline.acked(ticket).is_none(), "a former producer's answer counted"),
            Some(failure) => relay.pipeline.failed(ticket, failure, self.now),
        }
    }

    /// SQL is asked whether our walsender is still there.
    fn prove(&mut self) {
        let (Some(relay), Some(walsender)) = (&mut self.relay, &self.server.session) else { return };
        if relay.link.as_ref().is_some_and(|link| !link.severed) {
            // The walsender lives; it lets go one timeout after it heard us.
            relay.pipeline.proved(walsender.heard);
            relay.lease = relay.lease.max(Some(walsender.heard));
        }
    }

    /// What the relay's shell does on its own: start, connect, claim, tick, act.
    fn shell(&mut self) {
        if self.relay.is_none() && self.now >= self.restart_at {
            self.start_relay();
        }
        let Some(relay) = &mut self.relay else { return };
        if relay.link.is_none() && self.now >= relay.connect_at {
            self.connect();
        }
        let Some(relay) = &mut self.relay else { return };
        if let Some(link) = &mut relay.link
            && link.claim_at.is_some_and(|at| self.now >= at)
        {
            link.claim_at = None;
            if self.holder.is_none_or(|holder| holder == relay.name) {
                relay.pipeline.claimed();
                link.fence_end = Some(self.now);
                self.holder = Some(relay.name);
            } else {
                relay.pipeline.fenced(SENDER_TIMEOUT, self.now);
                link.fence_end = Some(self.now + SENDER_TIMEOUT);
            }
        }
        if relay.producer_ready_at.is_some_and(|at| self.now >= at) {
            relay.producer_ready_at = None;
            relay.pipeline.producer_ready(self.now);
        }
        relay.pipeline.tick(self.now);
        while let Some(action) = self.relay.as_mut().and_then(|relay| relay.pipeline.next_action()) {
            self.act(action);
        }
    }

    fn start_relay(&mut self) {
        let settings = Settings { sender_timeout: SENDER_TIMEOUT, limits: self.limits.clone() };
        self.relays += 1;
        self.note(&format!("relay {} starts, the holder is {:?}", self.relays, self.holder));
        self.relay = Some(Relay {
            pipeline: Pipeline::new(&outboxes(), &[route()], "outboxd", settings),
            link: None,
            connect_at: self.now,
            name: self.relays,
            producer_ready_at: None,
            lease: None,
        });
    }

    fn connect(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        let encoding = relay.pipeline.encoding();
        if self.now < self.deaf_until || self.server.stopping && self.dice.hits(80) {
            relay.connect_at = self.now + Duration::from_millis(500);
            return;
        }
        self.server.stopping = false;
        if self.server.start(encoding, self.now).is_none() {
            relay.connect_at = self.now + Duration::from_millis(500);
            return;
        }
        // Another history: what was unconfirmed in the old one is sent again.
        if self.timeline != self.server.system.timeline {
            self.timeline = self.server.system.timeline;
            self.broker.settled.clear();
        }
        let (wal_end, confirmed) = (self.server.wal_end, self.server.confirmed);
        let clock = Clock { at: self.now, shown: self.server.clock(self.now) };
        let start = SessionStart {
            system: self.server.system,
            wal_end,
            confirmed,
            encoding,
            asked_at: self.now,
            clock,
            others: vec!["public.foreign".into()],
        };
        relay.pipeline.session_started(start, self.now);
        relay.lease = relay.lease.max(Some(self.now));
        let claim_at = Some(self.now + Duration::from_millis(self.dice.below(100)));
        relay.link = Some(Link { claim_at, fence_end: None, frame: None, heard: self.now, severed: false });
        self.note(&format!("session at {confirmed} in {encoding:?}"));
    }

    fn act(&mut self, action: Action) {
        if !matches!(action, Action::Status(_)) {
            self.note(&format!("{action:?}"));
        }
        let Some(relay) = &mut self.relay else { return };
        match action {
            Action::Status(ask) => {
                let Some(link) = &mut relay.link else { return };
                assert!(relay.pipeline.received() >= relay.pipeline.confirmed());
                if self.now >= self.deaf_until && !link.severed {
                    link.heard = self.now;
                    self.server.hear(relay.pipeline.confirmed(), ask == Ask::Reply, self.now);
                }
            }
            Action::Reconnect(_) => {
                let Some(link) = relay.link.take() else { return };
                if self.now >= self.deaf_until && !link.severed {
                    self.server.hear(relay.pipeline.confirmed(), false, self.now);
                    self.server.session = None;
                }
                relay.pipeline.session_lost();
                relay.connect_at = self.now + Duration::from_millis(self.dice.below(300));
            }
            Action::Claim if self.dice.once_in(4) => relay.pipeline.claim_failed(self.now),
            Action::Claim => {
                self.holder = Some(relay.name);
                relay.pipeline.claimed();
            }
            Action::Purge(purge) => self.broker.purge(purge),
            Action::NewProducer => {
                self.broker.renew();
                relay.producer_ready_at = Some(self.now + Duration::from_millis(self.dice.below(300)));
            }
            Action::Reject(rejected) => {
                let id: u64 = rejected.event.parse().expect("an id");
                let known = self.broker.events.get(&id).expect("a committed event");
                assert_eq!(rejected.position, known.position, "{rejected:?}");
                // Refused before the offer, or by the broker, which names no event: then the search found it.
                if !self.broker.unfit.remove(&id) {
                    assert!(self.broker.poison.remove(&id), "{rejected:?} is innocent");
                    assert!(rejected.message.contains(&format!("t{}", known.topic)), "{rejected:?}");
                }
                self.rejected += 1;
                relay.pipeline.halt(self.now);
            }
            Action::Stop { repeats } => self.stopped(repeats),
        }
    }

    fn stopped(&mut self, repeats: u64) {
        let Some(relay) = &mut self.relay else { return };
        let (confirmed, name) = (relay.pipeline.confirmed(), relay.name);
        let reached = self.now >= self.deaf_until
            && relay.link.as_ref().is_some_and(|link| !link.severed)
            && self.server.session.is_some();
        if reached {
            self.server.hear(confirmed, false, self.now);
            self.server.session = None;
        }
        self.stops.push(repeats);
        // With everything confirmed and said, the next process must not repeat anything: `settled` stays.
        let settled = std::mem::take(&mut self.broker.settled);
        self.broker.forget(&mut self.dice);
        if repeats == 0 && self.server.confirmed >= confirmed {
            self.broker.settled = settled;
        }
        if reached && self.holder == Some(name) {
            self.holder = None;
        }
        self.end_relay();
    }

    fn end_relay(&mut self) {
        let Some(relay) = self.relay.take() else { return };
        // A dead process closes its sockets; a deaf network does not tell.
        if relay.link.is_some() && self.now >= self.deaf_until {
            self.server.session = None;
        }
        self.restart_at = self.now + Duration::from_millis(self.dice.below(2000));
        self.confirmed = Lsn::ZERO;
    }

    /// The slot went back while no process remembers what is settled.
    fn forget_a_clean_stop(&mut self) {
        if self.relay.is_none() {
            self.broker.settled.clear();
        }
        self.sever();
    }

    fn fail_over(&mut self) {
        self.note("fail over");
        self.server.fail_over(&mut self.broker.events, &mut self.dice);
        self.broker.open_history();
        self.judged = 0;
        self.holder = Some(ELSEWHERE);
        self.sever();
    }

    fn cut(&mut self) {
        self.note("cut");
        self.server.session = None;
        self.sever();
    }

    fn sever(&mut self) {
        if let Some(link) = self.relay.as_mut().and_then(|relay| relay.link.as_mut()) {
            link.severed = true;
            // Frames that were received already may still be shown.
            if self.dice.hits(50) {
                link.frame = None;
            }
        }
    }

    /// The oracle: what must hold after every step.
    fn judge(&mut self) {
        let Some(relay) = &self.relay else { return };
        let pipeline = &relay.pipeline;
        let (ledger, limits) = (pipeline.ledger(), &self.limits);
        assert!(ledger.span() <= limits.window, "window");
        assert!(ledger.inflight_bytes() <= limits.memory || ledger.inflight() == 1, "memory");
        let confirmed = pipeline.confirmed();
        assert!(confirmed >= self.confirmed || self.judged == 0, "confirmed went back");
        if relay.link.is_some() || self.judged > 0 {
            assert!(confirmed <= self.server.wal_end || self.stale_history(), "confirmed what was never sent");
        }
        self.confirmed = confirmed;
        if self.stale_history() {
            return;
        }
        while let Some(transaction) = self.server.transactions.get(self.judged)
            && transaction.commit < confirmed.max(self.server.confirmed)
        {
            for id in transaction.events() {
                assert!(self.broker.written.contains(&id), "loss: {:?} was confirmed", self.broker.events[&id]);
            }
            self.judged += 1;
        }
    }

    /// The relay has not heard of the failover yet.
    fn stale_history(&self) -> bool {
        self.relay.as_ref().is_some_and(|relay| match &relay.link {
            Some(link) => link.severed,
            None => true,
        })
    }

    fn note(&mut self, what: &str) {
        self.log.push(format!("{:>8} ms  {what}", (self.now - self.born).as_millis()));
    }

    pub fn describe(&self) -> String {
        let relay = self.relay.as_ref();
        format!(
            "slot {}, {} events, {} written, recovering {:?}, trouble {:?}, ledger {:?}, poison {:?}",
            self.server.confirmed,
            self.broker.events.len(),
            self.broker.written.len(),
            relay.map(|relay| relay.pipeline.is_recovering()),
            relay.map(|relay| relay.pipeline.trouble()),
            relay.map(|relay| (relay.pipeline.ledger().lost(), relay.pipeline.ledger().inflight())),
            self.broker.poison,
        )
    }
}

fn outboxes() -> Vec<config::Outbox> {
    let columns = config::Columns {
        id: "id".into(),
        aggregate_type: Some("aggregate_type".into()),
        aggregate_id: Some("aggregate_id".into()),
        event_type: None,
        payload: "payload".into(),
        timestamp: None,
        headers: None,
        partition: None,
    };
    let table = |name: &str| OutboxSource::Table { schema: "public".into(), name: name.into() };
    [table("first"), table("second"), OutboxSource::MessagePrefix("outbox".into())]
        .map(|source| config::Outbox { source, columns: columns.clone() })
        .into()
}

fn route() -> config::Route {
    config::Route { key: Pattern { pieces: vec![Piece::Column("aggregate_id".into())] }, ..config::Route::default() }
}
