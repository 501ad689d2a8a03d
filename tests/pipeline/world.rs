//! The world around the relays: clock, network, server, broker. Every step is one roll of the dice, and after every step
//! the oracle looks at what was promised.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use outboxd::column::Type;
use outboxd::config;
use outboxd::config::{Backoff, Order, Store, UnknownTopic};
use outboxd::dead_letter::{BEHIND, Claimed, Column, DeadLetter, Lane, PAYLOAD_MISSING};
use outboxd::lsn::{Lsn, Position};
use outboxd::receipt::Fate;
use outboxd::source::System;

use crate::broker::{Cluster, Faults, Producer, oracle_key};
use crate::dice::Dice;
use crate::oracle::{Fact, Verdict};
use crate::relay::{Relay, SENDER_TIMEOUT};
use crate::rows::{self, Rows};
use crate::server::{Server, TOPICS, Transaction};

/// Which misfortunes this history has; each is how many times in `often` steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub steps: u64,
    /// From storms, which leave no time to get anything done, to long calm in between.
    pub often: u64,
    /// In percent of the steps: everybody does what there is to do, so that some of it is done in between.
    pub rounds: u64,
    /// Processes that want the slot.
    pub relays: usize,
    /// They run on one machine: that a process is gone can be seen there, and is not waited for.
    pub one_machine: bool,
    pub cuts: u64,
    pub half_opens: u64,
    pub deafness: u64,
    pub muteness: u64,
    pub server_crashes: u64,
    pub fail_overs: u64,
    /// The database goes to another cluster, where positions begin anew.
    pub relocations: u64,
    pub server_stops: u64,
    pub relay_crashes: u64,
    pub stops: u64,
    /// In percent of the questions.
    pub sql_silent: u64,
    /// The producer does not find a leader any more, and is found out.
    pub astray: u64,
    pub unready: u64,
    pub stalls: u64,
    pub poison: u64,
    pub unfit: u64,
    /// The application forgets a payload that should be in a table of its own, in percent.
    pub bodiless: u64,
    /// Somebody mends what keeps an event from being published, or gives one up.
    pub mends: u64,
    pub discards: u64,
    /// Somebody writes other rules.
    pub reloads: u64,
    /// Later events with the key of a parked one wait behind it.
    pub parks_keys: bool,
    /// One of the outboxes has write-back.
    pub writes_back: bool,
    /// Somebody locks its table.
    pub locks: u64,
    pub long_waits: u64,
    pub faults: Faults,
}

impl Plan {
    /// About half of the misfortunes, each rare or frequent.
    pub fn roll(dice: &mut Dice) -> Plan {
        let mut some = |most: u64| if dice.hits(50) { 0 } else { dice.between(1, most) };
        Plan {
            cuts: some(30),
            half_opens: some(8),
            deafness: some(8),
            muteness: some(8),
            server_crashes: some(8),
            fail_overs: some(6),
            relocations: some(20),
            server_stops: some(5),
            relay_crashes: some(8),
            stops: some(6),
            sql_silent: some(100),
            astray: some(6),
            unready: some(10),
            stalls: some(25),
            poison: some(40),
            unfit: some(25),
            mends: some(10),
            discards: some(6),
            reloads: some(40),
            locks: some(25),
            long_waits: some(20),
            bodiless: some(8),
            faults: Faults { lost_answer: some(10), world: some(10), set_up: some(5), fatal: some(3) },
            steps: dice.between(150, 700),
            often: 1000 * dice.between(2, 6),
            rounds: dice.between(20, 80),
            relays: dice.between(1, 2) as usize,
            one_machine: dice.hits(30),
            parks_keys: dice.hits(50),
            writes_back: dice.hits(50),
        }
    }
}

/// In peace everything arrives within this time, counted from the last event that somebody had to mend, and from the last letter that
/// was delivered, because letters go one after the other: a lease and a fence of three seconds each are the most of it.
const LIVENESS: Duration = Duration::from_secs(60);

/// No row that waits counts for more bytes: 100 for its message, 400 for itself.
const LARGEST_ROW: usize = 500;

/// A relay of which nothing is known.
const ELSEWHERE: u64 = u64::MAX;

/// All that is not a relay.
pub struct Outside {
    pub dice: Dice,
    pub now: Instant,
    born: Instant,
    pub limits: config::Limits,
    pub dead_letter: config::DeadLetters,
    /// Of the rules in the file that relays read when they start, and when they are told.
    pub edition: u64,
    pub server: Server,
    pub cluster: Cluster,
    /// The rows of the outbox that has write-back; `None`: none has.
    pub rows: Option<Rows>,
    /// Their table is locked: nobody else writes to it.
    pub locked_until: Instant,
    /// So many transactions were found marked, up to where the slot stood.
    marked: usize,
    /// Who the position table says may still be publishing; `None` after a clean leave.
    pub holder: Option<u64>,
    /// Processes that ended where the others can see it.
    pub gone: HashSet<u64>,
    /// How often a question over SQL gets no answer, in percent.
    pub sql_silent: u64,
    /// How often a payload is forgotten, in percent.
    bodiless: u64,
    /// What each stop said that the next start repeats.
    pub stops: Vec<u64>,
    pub rejected: u64,
    /// Letters that were handed to the store, by cluster, topic and key, and position.
    handed: Vec<(u64, Lane, Position)>,
    /// How often something moved on its way to the topic and back.
    pub moves: u64,
    /// What happened, when somebody wants to read it.
    log: Option<Vec<String>>,
}

impl Outside {
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>8} ms  {}", (self.now - self.born).as_millis(), what()));
        }
    }

    /// A moment within so many milliseconds.
    pub fn later(&mut self, within_ms: u64) -> Instant {
        self.now + Duration::from_millis(self.dice.below(within_ms))
    }

    /// A relay says that this event cannot be published, by the rules of this edition or a later one: it must be right.
    pub fn reject(&mut self, letter: &DeadLetter, system: System, edition: u64) {
        let id: u64 = letter.event.as_deref().expect("every event has an id").parse().expect("a number");
        let known = &self.cluster.events[id as usize];
        promised!(letter.position == known.position, "rejected {letter:?}, which is {known:?}");
        let topic = format!("outbox.event.t{}", known.topic);
        promised!(letter.lane.topic.as_ref() == Some(&topic), "parked for another topic: {letter:?}");
        if letter.rejection.reason == BEHIND {
            promised!(self.dead_letter.order == Order::ParkKey, "parked behind another one: {letter:?}");
            let is_before = |(cluster, lane, position): &(u64, Lane, Position)| {
                *lane == letter.lane && (*cluster != system.id || *position < letter.position)
            };
            promised!(self.handed.iter().any(is_before), "parked behind nothing: {letter:?}");
            self.cluster.felt("parked behind");
        } else if letter.rejection.reason == PAYLOAD_MISSING && letter.rejection.message.contains("limits.") {
            promised!(self.cluster.crowded.contains(&id), "few rows had to wait: {letter:?}");
            self.cluster.felt("payload given up");
        } else {
            promised!(self.cluster.spoiled.contains(&id), "rejected an innocent: {letter:?}");
        }
        if letter.rejection.reason == PAYLOAD_MISSING {
            self.cluster.felt("payload missing");
        }
        if letter.rejection.reason == "refused" {
            promised!(letter.rejection.message.contains(&topic), "rejected without naming the topic: {letter:?}");
            let is_so = |(event, by): &(u64, u64)| *event == id && *by >= edition;
            promised!(
                self.cluster.refused.iter().any(is_so),
                "rejected for what rules before edition {edition} made of it: {letter:?}"
            );
        }
        self.cluster.felt("event parked");
        self.handed.push((system.id, letter.lane.clone(), letter.position));
        self.rejected += 1;
    }

    /// A relay was told that the letter of this event is stored.
    pub fn parked(&mut self, id: &str) {
        let fact = match self.dead_letter.order {
            Order::ParkKey => Fact::Shelved(id.to_owned()),
            Order::Skip => Fact::Parked(id.to_owned()),
        };
        self.cluster.judge.observe(&fact);
    }

    /// A person gives an event up.
    fn discard(&mut self) {
        if let Some(event) = self.cluster.store.discard(&mut self.dice) {
            self.note(|| format!("event {event} is discarded"));
            self.cluster.felt("letter discarded");
            self.cluster.judge.observe(&Fact::Parked(event.to_string()));
        }
    }

    /// A column that was not kept of a letter is looked for in its table, or in that of payloads.
    pub fn complete(&self, letter: &mut Claimed, name: String) {
        let found = match name.as_str() {
            "public.bodies.payload" => {
                let id = letter.columns.iter().find(|column| column.name == "id").and_then(|id| id.value.clone());
                let id = id.expect("a row has an id");
                let event: u64 = std::str::from_utf8(&id).expect("text").parse().expect("a number");
                let is_there = !self.cluster.bodiless.contains(&event);
                is_there.then(|| Column { name, kind: Type::of(Type::JSONB), value: Some(id) })
            }
            // Nothing else was ever there.
            _ if name.starts_with("public.bodies.") => None,
            _ => Some(self.server.read_again(name)),
        };
        if let Some(column) = found {
            letter.not_kept.retain(|missing| *missing != column.name);
            letter.columns.push(column);
        }
    }

    /// What kept an event from being published is mended.
    fn mend(&mut self) {
        let Cluster { poison, unfit, bodiless, .. } = &mut self.cluster;
        for spoiled in [poison, unfit, bodiless] {
            if let Some(event) = spoiled.iter().min().copied() {
                spoiled.remove(&event);
            }
        }
        self.cluster.store.pause = None;
    }

    /// The same, for all that are parked.
    fn mend_parked(&mut self) {
        let Cluster { poison, unfit, bodiless, store, .. } = &mut self.cluster;
        [poison, unfit, bodiless].into_iter().for_each(|spoiled| spoiled.retain(|event| !store.has(*event)));
    }

    fn commit(&mut self) {
        let first = self.cluster.events.len();
        let bodiless = self.server.commit(self.bodiless, &mut self.cluster.events, &mut self.dice);
        self.cluster.spoiled.extend(&bodiless);
        self.cluster.bodiless.extend(bodiless);
        let rows = self.server.transactions.last().map_or(0, Transaction::rows);
        if rows > self.limits.join || rows * LARGEST_ROW > self.limits.memory as usize {
            let joined = self.cluster.events[first..].iter().filter(|event| event.joined);
            self.cluster.crowded.extend(joined.map(|event| event.id));
        }
        for event in &self.cluster.events[first..] {
            let key = oracle_key(&format!("outbox.event.t{}", event.topic), &event.key.to_string());
            // The server skips a transaction whose commit lies before the slot's position.
            let passed = Lsn(event.position.commit.0 + 1);
            self.cluster.judge.committed(key, event.id.to_string(), Some(passed));
        }
        self.excuse();
    }

    /// Where later events may pass a parked one, order does not bind those that may come to be parked.
    fn excuse(&mut self) {
        if self.dead_letter.order == Order::Skip {
            let Cluster { spoiled, crowded, judge, .. } = &mut self.cluster;
            spoiled.union(crowded).for_each(|event| judge.exempt(&event.to_string()));
        }
    }

    /// True when the event has a row that can be marked.
    pub fn has_row(&self, event: u64) -> bool {
        self.rows.is_some() && self.cluster.events[event as usize].table == Some(rows::TABLE)
    }

    /// Somebody's lock keeps this event's row from being written to.
    pub fn is_locked(&self, event: u64) -> bool {
        self.now < self.locked_until && self.has_row(event)
    }

    /// An UPDATE says what became of the event: its row, if it is still there, is marked.
    pub fn write_back(&mut self, event: u64, fate: &Fate) {
        let known = &self.cluster.events[event as usize];
        let arrived = self.cluster.judge.has_arrived(&event.to_string());
        promised!(
            arrived || *fate != Fate::Published || known.void,
            "the row of event {event} says that it is published"
        );
        if let Some(rows) = self.rows.as_mut().filter(|_| !known.void) {
            rows.mark(known, self.server.system.id, fate);
        }
    }

    /// No row of the outbox that has write-back lies before a confirmed position and is not marked.
    pub fn judge_rows(&mut self, confirmed: Lsn) {
        let Some(rows) = &self.rows else { return };
        let passed = self.server.transactions[self.marked..].iter().take_while(|it| it.commit < confirmed);
        for transaction in passed {
            for event in transaction.events().filter(|event| self.has_row(*event)) {
                promised!(rows.has(event), "{confirmed} is confirmed, and the row of event {event} is not marked");
            }
            self.marked += 1;
        }
    }

    /// In the end every row says what became of it.
    fn judge_all_rows(&self) {
        let Some(rows) = &self.rows else { return };
        let events = self.server.transactions.iter().flat_map(|transaction| transaction.events());
        for event in events.filter(|event| self.has_row(*event)) {
            let is_marked = rows.is_published(event) || rows.has(event) && self.cluster.store.discards(event);
            promised!(is_marked, "the row of event {event} is not marked in the end");
        }
    }

    pub fn disturb(&mut self, fault: &str) {
        self.note(|| fault.to_string());
        self.cluster.disturbed(fault);
    }
}

/// Where a process runs, and when it is started again.
struct Post {
    relay: Option<Relay>,
    restart_at: Instant,
}

pub struct World {
    plan: Plan,
    pub outside: Outside,
    /// Events that were still to be delivered when the misfortunes ended.
    pub open_at_peace: usize,
    posts: Vec<Post>,
    started: u64,
}

impl World {
    pub fn new(seed: u64, plan: Plan, log: Option<Vec<String>>) -> World {
        let mut dice = Dice::new(seed);
        let now = Instant::now();
        let limits = config::Limits {
            memory: dice.between(1600, 16_000),
            window: dice.between(2, 40) as usize,
            event: 1 << 20,
            join: dice.between(1, 30) as usize,
            settle: Duration::from_millis(dice.between(5, 500)),
            shutdown: Duration::from_millis(2500),
            primary_grace: Duration::from_millis(500),
            backoff: Duration::from_secs(1),
            probe: Duration::from_secs(5),
            sql: Duration::from_secs(10),
            slot_creation: Duration::from_secs(60),
        };
        let dead_letter = config::DeadLetters {
            store: Store::Postgres,
            unknown_topic: UnknownTopic::Wait,
            max_attempts: 25,
            backoff: Backoff { first: Duration::from_secs(1), factor: 2, max: Duration::from_secs(60) },
            order: if plan.parks_keys { Order::ParkKey } else { Order::Skip },
            max_parked_keys: dice.between(1, 3) as usize,
            max_rate: 100,
            retention: Duration::from_secs(3600),
        };
        let outside = Outside {
            dice,
            now,
            born: now,
            limits,
            dead_letter,
            edition: 0,
            server: Server::new(now),
            cluster: Cluster::new(plan.faults, !plan.parks_keys, now),
            rows: plan.writes_back.then(Rows::default),
            locked_until: now,
            marked: 0,
            holder: None,
            gone: HashSet::new(),
            sql_silent: plan.sql_silent,
            bodiless: plan.bodiless,
            stops: Vec::new(),
            rejected: 0,
            handed: Vec::new(),
            moves: 0,
            log,
        };
        let posts = (0..plan.relays).map(|_| Post { relay: None, restart_at: now }).collect();
        World { plan, outside, open_at_peace: 0, posts, started: 0 }
    }

    /// The whole history: misfortunes, then peace, in which everything must arrive or be parked; then what is parked is mended,
    /// and must arrive, too.
    pub fn run(&mut self) {
        for _ in 0..self.plan.steps {
            self.misfortune();
            if self.outside.dice.hits(self.plan.rounds) { self.round() } else { self.step() }
        }
        self.open_at_peace = self.outside.cluster.judge.open();
        self.make_peace();
        self.go_on_until(World::is_confirmed);
        self.outside.mend_parked();
        self.go_on_until(World::is_complete);
        self.outside.judge_all_rows();
        self.leave_cleanly();
    }

    fn go_on_until(&mut self, is_done: impl Fn(&World) -> bool) {
        let (mut since, mut rejected) = (self.outside.now, self.outside.rejected);
        let mut letters = self.outside.cluster.store.open().count();
        while !is_done(self) {
            self.round();
            let mut relays = self.posts.iter().filter_map(|post| post.relay.as_ref());
            if relays.any(|relay| relay.pipeline.paused().is_some()) {
                // Too many keys are parked: somebody sees to that.
                self.outside.mend_parked();
            }
            let Outside { now, rejected: parked, .. } = self.outside;
            let open = self.outside.cluster.store.open().count();
            if parked > rejected || open < letters {
                (since, rejected) = (now, parked);
            }
            letters = open;
            promised!(now < since + LIVENESS, "not delivered within {LIVENESS:?}: {}", self.describe());
        }
    }

    /// The oracle's last word.
    pub fn verdict(&mut self) -> Verdict {
        std::mem::take(&mut self.outside.cluster.judge).finish()
    }

    /// The last things that happened.
    pub fn log(&self) -> &[String] {
        let log = self.outside.log.as_deref().unwrap_or_default();
        &log[log.len().saturating_sub(60)..]
    }

    fn make_peace(&mut self) {
        self.outside.note(|| "peace".into());
        let Plan { relays, one_machine, parks_keys, writes_back, .. } = self.plan;
        self.plan = Plan { relays, one_machine, parks_keys, writes_back, ..Plan::default() };
        let Outside { cluster, server, now, sql_silent, bodiless, locked_until, .. } = &mut self.outside;
        (*sql_silent, *bodiless, *locked_until) = (0, 0, *now);
        cluster.faults = Faults::default();
        cluster.unready = [false; TOPICS as usize];
        cluster.full = false;
        cluster.store.pause = None;
        cluster.stalled_until = *now;
        server.stopping = false;
        for relay in self.posts.iter_mut().filter_map(|post| post.relay.as_mut()) {
            relay.deafen(*now);
            relay.mute(*now);
        }
        if self.outside.server.transactions.is_empty() {
            self.outside.commit();
        }
    }

    fn is_confirmed(&self) -> bool {
        let server = &self.outside.server;
        let linked = self.posts.iter().filter_map(|post| post.relay.as_ref()).any(Relay::is_linked);
        linked && server.confirmed >= server.wal_end
    }

    fn is_complete(&self) -> bool {
        let cluster = &self.outside.cluster;
        let mut relays = self.posts.iter().filter_map(|post| post.relay.as_ref());
        let is_reloading = relays.any(|relay| relay.pipeline.is_reloading());
        self.is_confirmed() && cluster.judge.open() == 0 && cluster.store.open().count() == 0 && !is_reloading
    }

    /// A clean stop confirms all, so the next start publishes nothing again.
    fn leave_cleanly(&mut self) {
        self.outside.note(|| "clean stop".into());
        let stops = self.outside.stops.len();
        let now = self.outside.now;
        let mut relays = self.posts.iter_mut().filter_map(|post| post.relay.as_mut());
        relays.find(|relay| relay.is_linked()).expect("complete means streaming").stop(now);
        let end = now + self.outside.limits.shutdown + Duration::from_secs(1);
        while self.outside.stops.len() == stops {
            promised!(self.outside.now < end, "no end of a clean stop: {}", self.describe());
            self.round();
        }
        let (repeats, offers) = (self.outside.stops[stops], self.outside.cluster.offers);
        // Long enough for the next one to start.
        let end = self.outside.now + Duration::from_secs(8);
        while self.outside.now < end {
            self.round();
        }
        let offered = self.outside.cluster.offers - offers;
        promised!(repeats > 0 || offered == 0, "{offered} events were offered again after a clean stop");
    }

    /// One thing happens that nobody wished for.
    fn misfortune(&mut self) {
        let plan = self.plan;
        let outside = &mut self.outside;
        let mut strikes = |often: u64| often > 0 && outside.dice.below(plan.often) < often;
        let (cut, half_open, deaf, mute) =
            (strikes(plan.cuts), strikes(plan.half_opens), strikes(plan.deafness), strikes(plan.muteness));
        let (server_crash, fail_over) = (strikes(plan.server_crashes), strikes(plan.fail_overs));
        let relocation = strikes(plan.relocations);
        let (server_stop, relay_crash) = (strikes(plan.server_stops), strikes(plan.relay_crashes));
        let (stop, long_wait) = (strikes(plan.stops), strikes(plan.long_waits));
        let (astray, unready, stall) = (strikes(plan.astray), strikes(plan.unready), strikes(plan.stalls));
        let (poison, unfit) = (strikes(plan.poison), strikes(plan.unfit));
        let (mend, discard, reload) = (strikes(plan.mends), strikes(plan.discards), strikes(plan.reloads));
        let lock = strikes(plan.locks) && plan.writes_back;
        if cut {
            outside.disturb("cut");
            outside.server.session = None;
            self.truncate();
        }
        if server_crash {
            self.server_crash();
        }
        if fail_over {
            self.fail_over();
        }
        // Nobody does that before everything has been read.
        if relocation && self.outside.server.confirmed >= self.outside.server.wal_end {
            self.relocate();
        }
        let at = self.outside.dice.index(self.posts.len());
        if relay_crash && let Some(relay) = self.posts[at].relay.take() {
            self.outside.disturb("relay crash");
            self.end(relay);
            self.posts[at].restart_at = self.outside.later(2000);
        }
        if let Some(relay) = &mut self.posts[at].relay {
            trouble(relay, &mut self.outside, [half_open, deaf, mute, stop, astray]);
        }
        if server_stop {
            self.server_stop();
        }
        if unready {
            let Outside { dice, cluster, .. } = &mut self.outside;
            cluster.unready[dice.index(TOPICS as usize)] ^= true;
            cluster.full = dice.once_in(3);
            if cluster.full || cluster.unready.contains(&true) {
                self.outside.disturb("unready");
            }
        }
        if stall {
            self.outside.disturb("broker stall");
            self.outside.cluster.stalled_until = self.outside.later(9000);
        }
        if poison || unfit {
            self.spoil(poison);
        }
        if lock {
            self.outside.disturb("table locked");
            self.outside.locked_until = self.outside.later(4000);
        }
        if mend {
            self.outside.mend();
        }
        if discard {
            self.outside.discard();
        }
        if reload {
            self.reload(at);
        }
        if long_wait {
            self.outside.disturb("long wait");
            let wait = self.outside.dice.between(50, 4000);
            self.wait(wait);
        }
    }

    /// One thing happens that is nobody's fault.
    fn step(&mut self) {
        let at = self.outside.dice.index(self.posts.len());
        let roll = self.outside.dice.below(100);
        self.act(at, roll);
        if self.outside.dice.hits(70) {
            self.shell(at);
        }
        self.judge();
    }

    fn act(&mut self, at: usize, roll: u64) {
        let outside = &mut self.outside;
        match (roll, &mut self.posts[at].relay) {
            (0..4, _) => outside.commit(),
            (4..6, _) => outside.server.unrelated(&mut outside.dice),
            (6..8, _) => outside.server.checkpoint(),
            (8..20, _) => {
                let wait = outside.dice.between(1, 120);
                self.wait(wait);
            }
            (20..38, Some(relay)) => relay.receive(outside),
            (38..55, Some(relay)) => relay.read(outside),
            (55..78, Some(relay)) => relay.produce(outside),
            (78..92, Some(relay)) => relay.report(outside),
            (92..94, Some(relay)) => relay.stale(outside),
            (94..96, _) => outside.cluster.land_late(outside.now, &mut outside.dice),
            (96.., _) => self.start(at),
            (_, None) => {}
        }
    }

    /// Everybody does what there is to do. Time passes slowly meanwhile, and fast when all that is left is to wait for the
    /// end of a lease or a fence.
    fn round(&mut self) {
        let before = self.outside.moves;
        for at in 0..self.posts.len() {
            self.start(at);
            for _ in 0..self.outside.dice.between(2, 12) {
                let roll = self.outside.dice.between(20, 93);
                self.act(at, roll);
            }
            self.shell(at);
        }
        let relays = self.posts.iter().filter_map(|post| post.relay.as_ref());
        let in_flight = relays.map(|relay| &relay.producer).any(Producer::is_busy);
        let outside = &mut self.outside;
        if outside.dice.once_in(4) {
            outside.server.checkpoint();
            outside.cluster.land_late(outside.now, &mut outside.dice);
        }
        let busy = outside.moves > before || in_flight && outside.now >= outside.cluster.stalled_until;
        let wait = outside.dice.between(1, if busy { 10 } else { 200 });
        self.wait(wait);
        self.judge();
    }

    /// A process that ended is started again, in its time.
    fn start(&mut self, at: usize) {
        let (post, outside) = (&mut self.posts[at], &mut self.outside);
        if post.relay.is_none() && outside.now >= post.restart_at {
            self.started += 1;
            outside.note(|| format!("relay {} starts", self.started));
            post.relay = Some(Relay::new(self.started, outside));
        }
    }

    /// Time passes. A lone relay may be held up meanwhile, as a stopped process is. Where two want the slot both must
    /// keep time: one that sleeps through the end of its lease cannot be fenced.
    fn wait(&mut self, milliseconds: u64) {
        let end = self.outside.now + Duration::from_millis(milliseconds);
        while self.outside.now < end {
            let step = if self.posts.len() > 1 { Duration::from_millis(100) } else { Duration::MAX };
            self.outside.now = end.min(self.outside.now.checked_add(step).unwrap_or(end));
            self.outside.server.expire(SENDER_TIMEOUT, self.outside.now);
            if self.posts.len() > 1 {
                (0..self.posts.len()).for_each(|at| self.shell(at));
            }
        }
    }

    fn shell(&mut self, at: usize) {
        let Post { relay, restart_at } = &mut self.posts[at];
        if let Some(running) = relay {
            running.shell(&mut self.outside);
        }
        if let Some(ended) = relay.take_if(|relay| relay.has_ended()) {
            *restart_at = self.outside.later(2000);
            self.end(ended);
        }
    }

    fn end(&mut self, relay: Relay) {
        if self.plan.one_machine {
            self.outside.gone.insert(relay.name());
        }
        relay.end(&mut self.outside);
    }

    fn server_crash(&mut self) {
        self.outside.disturb("server crash");
        let confirmed = self.outside.server.confirmed;
        self.outside.server.crash();
        if self.outside.server.confirmed < confirmed {
            self.outside.cluster.felt("slot went back");
        }
        self.slot_went_back();
        self.truncate();
    }

    fn fail_over(&mut self) {
        self.outside.disturb("fail over");
        let Outside { server, cluster, rows, marked, dice, .. } = &mut self.outside;
        let marks = rows.as_ref().map_or(Lsn::ZERO, |rows| rows.durable(server.system.id));
        server.fail_over(cluster.store.durable(server.system).max(marks), &mut cluster.events, dice);
        if rows.as_mut().is_some_and(|rows| rows.fail_over(dice)) {
            cluster.felt.insert("write-back undone");
        }
        *marked = 0;
        cluster.store.fail_over(|event| cluster.events[event as usize].void, dice);
        for event in cluster.events.iter().filter(|event| event.void) {
            cluster.judge.void(&event.id.to_string());
            cluster.felt.insert("commit undone");
        }
        // The position table may have been older there.
        if dice.hits(50) {
            self.outside.holder = Some(ELSEWHERE);
        }
        self.slot_went_back();
        self.truncate();
    }

    /// The database goes to another cluster, letters and all.
    fn relocate(&mut self) {
        self.outside.disturb("relocation");
        let Outside { server, cluster, marked, .. } = &mut self.outside;
        server.relocate();
        *marked = 0;
        if cluster.store.open().next().is_some() {
            cluster.felt("letters relocated");
        }
        self.slot_went_back();
        self.truncate();
    }

    /// What was said of repeats until now was said of another position.
    fn slot_went_back(&mut self) {
        self.outside.cluster.farewells.clear();
        self.posts.iter_mut().filter_map(|post| post.relay.as_mut()).for_each(Relay::slot_went_back);
    }

    fn server_stop(&mut self) {
        self.outside.disturb("server stop");
        self.outside.server.stopping = true;
        for relay in self.posts.iter_mut().filter_map(|post| post.relay.as_mut()) {
            if self.outside.dice.hits(50) {
                relay.pipeline.server_stopping(self.outside.now);
            }
        }
    }

    /// A record that its topic will not take: by the broker's word, or at the offer.
    fn spoil(&mut self, poison: bool) {
        let Outside { cluster, dice, .. } = &mut self.outside;
        let newest = cluster.events.len() as u64;
        let id = dice.between(newest.saturating_sub(5), newest + 3);
        let relays = || self.posts.iter().filter_map(|post| post.relay.as_ref());
        // What has landed once can land again.
        if !cluster.judge.has_arrived(&id.to_string()) && !relays().any(|relay| relay.producer.has(id)) {
            if poison { &mut cluster.poison } else { &mut cluster.unfit }.insert(id);
            cluster.spoiled.insert(id);
            self.outside.excuse();
            self.outside.disturb("refused event");
        }
    }

    /// Somebody writes other rules, and tells one of the processes.
    fn reload(&mut self, at: usize) {
        let outside = &mut self.outside;
        outside.edition += 1;
        outside.dead_letter.max_parked_keys = outside.dice.between(1, 3) as usize;
        let edition = outside.edition;
        outside.note(|| format!("reload of edition {edition}"));
        if let Some(relay) = &mut self.posts[at].relay {
            relay.reload(outside);
        }
    }

    fn truncate(&mut self) {
        for relay in self.posts.iter_mut().filter_map(|post| post.relay.as_mut()) {
            relay.truncate(&mut self.outside);
        }
    }

    /// What must hold after every step.
    fn judge(&mut self) {
        for relay in self.posts.iter_mut().filter_map(|post| post.relay.as_mut()) {
            relay.judge(&mut self.outside);
        }
        self.outside.judge_rows(self.outside.server.confirmed);
        let Outside { cluster, server, .. } = &mut self.outside;
        cluster.judge.observe(&Fact::Confirmed(server.confirmed));
        if let Some(violation) = cluster.judge.so_far().violations.first() {
            broken!("{violation:?}\n{}", cluster.judge.so_far());
        }
    }

    fn describe(&self) -> String {
        let Outside { server, cluster, .. } = &self.outside;
        let relays = self.posts.iter().filter_map(|post| post.relay.as_ref()).map(Relay::describe);
        format!(
            "slot {} of {}, {} events, {} open, {} parked, poison {:?}\n{}",
            server.confirmed,
            server.wal_end,
            cluster.events.len(),
            cluster.judge.open(),
            cluster.store.open().count(),
            cluster.poison,
            relays.collect::<Vec<_>>().join("\n")
        )
    }
}

fn trouble(relay: &mut Relay, outside: &mut Outside, [half_open, deaf, mute, stop, astray]: [bool; 5]) {
    if half_open {
        outside.disturb("half-open");
        relay.abandon();
    }
    if deaf {
        outside.disturb("deaf");
        relay.deafen(outside.now + Duration::from_millis(outside.dice.between(100, 6000)));
    }
    if mute {
        outside.disturb("mute");
        relay.mute(outside.now + Duration::from_millis(outside.dice.between(100, 6000)));
    }
    if stop {
        outside.disturb("stop");
        relay.stop(outside.now);
    }
    if astray {
        outside.disturb("producer astray");
        relay.astray(outside);
    }
}
