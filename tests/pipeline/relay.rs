//! One relay process: the pipeline under test, its producer, its end of a session, and the shell that carries out what
//! the pipeline decides.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use outboxd::config::Order;
use outboxd::dead_letter::{Claimed, DeadLetter, Outcome};
use outboxd::lsn::{Lsn, Position};
use outboxd::pipeline::{
    Action, Ask, Clock, Flow, History, LastHolder, Loaded, Pipeline, Reload, SessionStart, Settings, Why,
};
use outboxd::receipt::Receipt;
use outboxd::sink::{Failure, Purge, Whose};
use outboxd::source::System;

use crate::broker::{Door, Farewell, Gate, LAND_WITHIN, Producer};
use crate::oracle::Fact;
use crate::rules::{Reading, Told, outboxes, rules};
use crate::server::OwnedFrame;
use crate::store;
use crate::world::Outside;

pub const SENDER_TIMEOUT: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(2);
/// Frames that fit into the buffers between the walsender and us.
const BUFFERED: usize = 6;

/// The process.
pub struct Relay {
    pub pipeline: Pipeline,
    pub producer: Producer,
    /// Its name in the position table.
    name: u64,
    link: Option<Link>,
    connect_at: Instant,
    probe_at: Instant,
    producer_ready_at: Option<Instant>,
    /// When producers that were replaced are taken apart.
    retiring: Vec<Instant>,
    /// The last proof that the slot was ours.
    lease: Option<Instant>,
    /// The history that it knows.
    system: Option<System>,
    /// What it had confirmed when the oracle last looked.
    confirmed: Lsn,
    /// Nothing of ours reaches the server until then.
    deaf_until: Instant,
    /// Nothing of the server's reaches us until then.
    mute_until: Instant,
    /// The last question over SQL had no answer.
    sql_silent: bool,
    /// Something that was to be done may have been left for later.
    behind: bool,
    /// Since when it offers nothing, because its producer is to be replaced or its lease has ended.
    draining_since: Option<Instant>,
    /// The lease had run out when the drain was looked at: nobody may let anything land any more.
    let_go: bool,
    /// The slot's history is not the one that it knew: what is on its way is of no use.
    forgets: bool,
    /// Settled since the slot last went back.
    settled: HashSet<u64>,
    told: Told,
    clerk: Clerk,
    /// What is to be written back.
    receipts: VecDeque<(u64, Box<Receipt>)>,
    /// When the next of it is tried.
    write_at: Instant,
    /// When it was told to stop.
    stopping: Option<Instant>,
    /// It has said goodbye.
    ended: bool,
}

/// What is to be done at the store of dead letters.
#[derive(Default)]
struct Clerk {
    letters: VecDeque<(u64, System, DeadLetter)>,
    load: Option<(u64, Position)>,
    settle: VecDeque<Settling>,
    claimed: VecDeque<Claimed>,
    /// When they must have been tried: long before somebody else may.
    claimed_until: Option<Instant>,
    /// It is written down that the line stands.
    paused: bool,
}

/// A letter that was tried.
struct Settling {
    id: i64,
    owner: String,
    outcome: Outcome,
    /// What its row is to say first, and the history that it is a row of.
    receipt: Option<(System, Box<Receipt>)>,
}

/// The relay's end of a session.
struct Link {
    serial: u64,
    fence_end: Instant,
    inbox: VecDeque<OwnedFrame>,
    /// When a status update of ours last reached the server.
    heard: Instant,
    reading: Reading,
    /// Half-open: nothing travels any more, and neither end learns of the other's.
    abandoned: bool,
}

impl Relay {
    pub fn new(name: u64, outside: &Outside) -> Relay {
        let (limits, dead_letter) = (outside.limits.clone(), outside.dead_letter.clone());
        let (edition, now) = (outside.edition, outside.now);
        let settings = Settings { sender_timeout: SENDER_TIMEOUT, limits, dead_letter };
        Relay {
            pipeline: Pipeline::new(&outboxes(outside.rows.is_some()), &rules(edition), "outboxd", settings),
            producer: Producer::new(name),
            name,
            link: None,
            connect_at: now,
            probe_at: now,
            producer_ready_at: None,
            retiring: Vec::new(),
            lease: None,
            system: None,
            confirmed: Lsn::ZERO,
            deaf_until: now,
            mute_until: now,
            sql_silent: false,
            behind: false,
            draining_since: None,
            let_go: false,
            forgets: false,
            settled: HashSet::new(),
            told: Told::new(edition),
            clerk: Clerk::default(),
            receipts: VecDeque::new(),
            write_at: now,
            stopping: None,
            ended: false,
        }
    }

    /// As the position table has it.
    pub fn name(&self) -> u64 {
        self.name
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Its file has changed, and it is told so.
    pub fn reload(&mut self, outside: &mut Outside) {
        self.told.in_force(self.pipeline.is_reloading());
        self.told.reload(outside.edition);
        let reload = Reload { rules: rules(outside.edition), dead_letter: outside.dead_letter.clone() };
        self.pipeline.reload(reload, outside.now);
        if self.pipeline.is_reloading() {
            outside.cluster.felt("reload waited");
        }
        if self.pipeline.is_recovering() {
            outside.cluster.felt("reload while a delivery is mended");
        }
        if outside.cluster.store.open().next().is_some() {
            outside.cluster.felt("reload while letters are open");
        }
    }

    pub fn stop(&mut self, now: Instant) {
        self.stopping.get_or_insert(now);
        self.pipeline.stop(now);
    }

    pub fn deafen(&mut self, until: Instant) {
        self.deaf_until = until;
    }

    pub fn mute(&mut self, until: Instant) {
        self.mute_until = until;
    }

    pub fn abandon(&mut self) {
        if let Some(link) = &mut self.link {
            link.abandoned = true;
        }
    }

    /// The connection broke: of what was on its way to us, the end may be missing.
    pub fn truncate(&mut self, outside: &mut Outside) {
        if let Some(link) = &mut self.link {
            let kept = outside.dice.index(BUFFERED);
            if kept < link.inbox.len() {
                link.inbox.truncate(kept);
                outside.cluster.felt("frames cut off");
            }
        }
    }

    /// What the walsender writes enters the buffers, whether it can travel on or not.
    pub fn receive(&mut self, outside: &mut Outside) {
        let Some(link) = self.link.as_mut().filter(|link| !link.abandoned) else { return };
        if !outside.server.serves(link.serial) {
            return;
        }
        for _ in 0..outside.dice.between(1, 3) {
            if link.inbox.len() < BUFFERED {
                let frame =
                    outside.server.send(&outside.cluster.events, SENDER_TIMEOUT, outside.now, &mut outside.dice);
                link.inbox.extend(frame);
            }
        }
    }

    /// Frames are shown to the pipeline, or the end of the stream.
    pub fn read(&mut self, outside: &mut Outside) {
        for _ in 0..outside.dice.between(1, 3) {
            let Some(link) = &mut self.link else { return };
            let waits = !link.inbox.is_empty();
            if link.abandoned || outside.now < self.mute_until {
                if waits {
                    outside.cluster.felt(if link.abandoned { "frames abandoned" } else { "frames held up" });
                }
                return;
            }
            let severed = !outside.server.serves(link.serial);
            let Some(frame) = link.inbox.front() else {
                if severed {
                    self.link = None;
                    self.pipeline.session_lost();
                    self.connect_at = outside.later(300);
                }
                return;
            };
            let (OwnedFrame::Data { sent, .. } | OwnedFrame::Keepalive { sent, .. }) = frame;
            self.lease = self.lease.max(Some(*sent));
            let edition = self.told.in_force(self.pipeline.is_reloading());
            let gate = gate(self.lease, link, severed, edition, outside.now);
            let mut door = Door { producer: &mut self.producer, cluster: &mut outside.cluster, gate };
            let flow = match self.pipeline.frame(frame.frame(), outside.now, &mut door) {
                Ok(flow) => flow,
                Err(error) => broken!("the relay failed: {}", error.chain()),
            };
            if let OwnedFrame::Data { body, .. } = frame
                && link.reading.shown(body, flow, edition, outside.now)
            {
                outside.cluster.felt("rules changed inside a transaction");
            }
            if flow == Flow::Held {
                return self.watch(outside.now);
            }
            link.inbox.pop_front();
            outside.moves += 1;
            self.judge_reload(outside.now);
        }
    }

    /// One thing is done at the store of dead letters, if SQL answers; what was done may not be heard of.
    fn errand(&mut self, outside: &mut Outside) {
        let pipeline = &self.pipeline;
        self.clerk.letters.retain(|(number, ..)| pipeline.wants_stored(*number));
        let Some(link) = &self.link else { return };
        if self.pipeline.is_fencing() || !self.sql_works(outside.now) || outside.dice.hits(outside.sql_silent) {
            return;
        }
        let (Some(system), severed) = (self.system, !outside.server.serves(link.serial)) else { return };
        let heard = !outside.dice.once_in(8);
        let ours = outside.holder == Some(self.name) && system == outside.server.system;
        if let Some((serial, from)) = self.clerk.load.take() {
            if !heard || !ours {
                return self.pipeline.letters_not_loaded(serial, outside.now);
            }
            let store = &mut outside.cluster.store;
            let mut letters = store.from(system, from);
            // A successor waits until standbys have what it goes by.
            letters.iter().for_each(|letter| store.told(letter.position));
            let most = outside.dice.between(1, 6) as usize;
            let until = letters.get(most).map(|letter| letter.position);
            letters.retain(|letter| until.is_none_or(|until| letter.position < until));
            let (lanes, pause) = (store.lanes(system), store.pause.clone());
            self.clerk.paused = pause.is_some();
            letters.iter().filter_map(|letter| letter.event.as_deref()).for_each(|event| outside.parked(event));
            self.pipeline.letters_loaded(Loaded { serial, letters, until, lanes, pause });
        } else if let Some((number, of, letter)) = self.clerk.letters.front() {
            if !ours {
                return self.pipeline.overtaken();
            }
            outside.cluster.store.take(*of, letter, outside.now);
            if heard {
                let (number, id, position) = (*number, letter.event.clone().expect("an id"), letter.position);
                outside.cluster.store.told(position);
                outside.parked(&id);
                self.clerk.letters.pop_front();
                promised!(self.pipeline.stored(number).is_some(), "a letter that was wanted is of no use");
            }
        } else if let Some(Settling { id, owner, outcome, receipt }) = self.clerk.settle.front_mut() {
            if receipt.take_if(|(of, _)| *of != system).is_some() {
                return outcome.undo();
            }
            if !ours {
                return;
            }
            if let Some((_, row)) = receipt {
                // It says the same as its letter, and before it.
                let event = id_of(row);
                if !outside.is_locked(event) {
                    outside.write_back(event, &row.fate);
                    if heard {
                        outside.rows.as_mut().expect("there is a table").told(event);
                        *receipt = None;
                    }
                }
                return;
            }
            outside.cluster.store.settle(*id, owner, outcome, outside.now);
            if heard {
                self.clerk.settle.pop_front();
            }
        } else if ours && heard && !severed {
            self.look(system, outside);
        }
    }

    /// Some receipts are written, if SQL answers; what was written may not be heard of.
    fn write_back(&mut self, outside: &mut Outside) {
        let (pipeline, many) = (&self.pipeline, self.receipts.len());
        self.receipts.retain(|(number, _)| pipeline.wants_written(*number));
        if self.receipts.len() < many {
            outside.cluster.felt("write-back of another history");
        }
        let reaches = self.system == Some(outside.server.system) && self.sql_works(outside.now);
        let may_write = reaches && outside.now >= self.write_at;
        if self.receipts.is_empty() || !may_write || outside.server.stopping || outside.dice.hits(outside.sql_silent) {
            return;
        }
        if outside.now < outside.locked_until {
            return outside.cluster.felt("write-back blocked");
        }
        let many = outside.dice.between(1, self.receipts.len() as u64) as usize;
        let batch: Vec<(u64, u64)> = self.receipts.iter().take(many).map(|(number, it)| (*number, id_of(it))).collect();
        self.receipts.iter().take(many).for_each(|(_, it)| outside.write_back(id_of(it), &it.fate));
        if outside.dice.once_in(3) {
            self.write_at = outside.later(1000);
            return outside.cluster.felt("write-back not heard");
        }
        for (number, event) in batch {
            outside.rows.as_mut().expect("there is a table").told(event);
            self.receipts.pop_front();
            promised!(self.pipeline.written(number).is_some(), "a receipt that was wanted is of no use");
        }
    }

    /// Claims letters that are due, and looks which keys are parked and whether the line may go on.
    fn look(&mut self, system: System, outside: &mut Outside) {
        let store = &mut outside.cluster.store;
        if self.pipeline.has_parked_lanes() {
            self.pipeline.lanes_open(&store.lanes(system));
        }
        if self.clerk.paused && store.pause.is_none() {
            self.clerk.paused = false;
            self.pipeline.resumed();
        }
        if self.clerk.claimed.is_empty()
            && let Some(before) = self.pipeline.may_try(outside.now)
        {
            self.clerk.claimed = store.claim(self.name, system, before, outside.now).into();
            self.clerk.claimed_until = Some(outside.now + store::LEASE / 2);
        }
    }

    /// The next claimed letter is handed to the pipeline.
    fn try_again(&mut self, outside: &mut Outside) {
        if self.pipeline.is_trying() {
            return;
        }
        let Some(link) = &self.link else { return };
        let Some(mut letter) = self.clerk.claimed.pop_front() else { return };
        if self.clerk.claimed_until.is_some_and(|end| outside.now >= end) {
            return {
                let Claimed { id, owner, .. } = letter;
                self.clerk.settle.push_back(Settling { id, owner, outcome: Outcome::PutBack, receipt: None })
            };
        }
        for name in self.pipeline.lacks(&letter) {
            outside.complete(&mut letter, name);
        }
        let edition = self.told.in_force(self.pipeline.is_reloading());
        let gate = gate(self.lease, link, !outside.server.serves(link.serial), edition, outside.now);
        let mut door = Door { producer: &mut self.producer, cluster: &mut outside.cluster, gate };
        promised!(self.pipeline.try_again(&letter, outside.now, &mut door), "everything is known of topics");
    }

    /// The producer sends, or a broker takes what it sent.
    pub fn produce(&mut self, outside: &mut Outside) {
        outside.moves += u64::from(self.producer.work(&mut outside.cluster, outside.now, &mut outside.dice));
    }

    /// A report of the producer comes.
    pub fn report(&mut self, outside: &mut Outside) {
        if let Some((letter, result)) = self.producer.tried() {
            outside.moves += 1;
            self.pipeline.tried(letter, result);
        }
        let Some(report) = self.producer.report(self.pipeline.ledger().generation(), &mut outside.dice) else { return };
        outside.moves += 1;
        match &report.failure {
            None => {
                if self.pipeline.acked(report.ticket()).is_some() {
                    self.settled.insert(self.producer.settle(&report));
                }
            }
            Some(failure) => {
                self.told.may_search |= failure.whose == Whose::Event;
                self.pipeline.failed(report.ticket(), failure.clone(), outside.now);
            }
        }
        self.watch(outside.now);
    }

    /// The producer takes records to a broker that does not lead them.
    pub fn astray(&mut self, outside: &mut Outside) {
        if self.pipeline.ledger().inflight() > 0 {
            outside.cluster.felt("producer astray");
        }
        let failure = Failure {
            whose: Whose::World,
            topic: "t0".into(),
            message: "another broker leads".into(),
            too_large: false,
        };
        self.pipeline.broke(failure, outside.now);
        promised!(self.pipeline.is_recovering(), "a producer that is lost is kept");
        self.watch(outside.now);
    }

    /// A former producer's report comes after all.
    pub fn stale(&mut self, outside: &mut Outside) {
        let Some(report) = self.producer.stale(&mut outside.dice) else { return };
        match &report.failure {
            None => promised!(self.pipeline.acked(report.ticket()).is_none(), "a former producer's answer counted"),
            Some(failure) => self.pipeline.failed(report.ticket(), failure.clone(), outside.now),
        }
    }

    /// SQL is asked whether our walsender is still there, if it answers.
    fn probe(&mut self, outside: &mut Outside) {
        self.probe_at = outside.now + SENDER_TIMEOUT / 6;
        let Some(link) = &self.link else { return };
        if !self.sql_works(outside.now) {
            return;
        }
        let was_silent = std::mem::replace(&mut self.sql_silent, outside.dice.hits(outside.sql_silent));
        if self.sql_silent {
            if !was_silent {
                outside.disturb("SQL silent");
            }
            return;
        }
        if outside.server.serves(link.serial) {
            self.pipeline.proved(outside.now);
            self.pipeline.heard(outside.server.confirmed);
            self.lease = self.lease.max(Some(outside.now));
        } else {
            self.pipeline.overtaken();
        }
    }

    /// What the shell does on its own: connect, tick, act.
    pub fn shell(&mut self, outside: &mut Outside) {
        if self.link.is_none() && outside.now >= self.connect_at {
            self.connect(outside);
        }
        for _ in self.retiring.extract_if(.., |at| outside.now >= *at) {
            outside.cluster.retired(self.name, outside.now);
            self.pipeline.retired(outside.now);
        }
        if self.producer_ready_at.is_some_and(|at| outside.now >= at) {
            self.producer_ready_at = None;
            self.pipeline.producer_ready(outside.now);
        }
        if outside.now >= self.probe_at {
            self.probe(outside);
        }
        self.errand(outside);
        self.try_again(outside);
        self.write_back(outside);
        let calm = !self.pipeline.is_recovering() && !self.behind;
        self.pipeline.owes_letters(self.owes_letters());
        self.pipeline.tick(outside.now);
        // A session that is to be left may not have been left yet.
        if !self.behind {
            self.judge_reload(outside.now);
        }
        self.watch(outside.now);
        // As it was when it was decided: what is done later may find another session.
        self.let_go |= self.lease.is_none_or(|proof| outside.now >= proof + SENDER_TIMEOUT);
        self.let_go &= self.draining_since.is_some();
        // What is to be done is done at once, or a moment later.
        self.behind = outside.dice.once_in(10);
        while !(self.behind && outside.dice.hits(50)) {
            let Some(action) = self.pipeline.next_action() else {
                return self.told.is_done(self.pipeline.is_reloading());
            };
            if calm && action == Action::Reconnect(Why::LeaseLost) {
                let lease_end = self.lease.map(|proof| proof + LEASE);
                promised!(
                    lease_end.is_none_or(|end| outside.now >= end),
                    "the slot was left though it was proved ours"
                );
            }
            self.act(action, outside);
            if self.ended {
                return;
            }
        }
    }

    /// Only the rest of a transaction keeps new rules waiting, or the search for a record that a broker refused.
    fn judge_reload(&self, now: Instant) {
        let may_wait = self.told.may_search || self.link.as_ref().is_some_and(|link| link.reading.binds(now));
        promised!(may_wait || !self.pipeline.is_reloading(), "a reload waits for nothing: {}", self.describe());
    }

    fn connect(&mut self, outside: &mut Outside) {
        self.connect_at = outside.now + Duration::from_millis(500);
        let encoding = self.pipeline.encoding();
        let away = outside.server.stopping && outside.dice.hits(80);
        if away || !self.sql_works(outside.now) {
            return;
        }
        outside.server.stopping = false;
        let Some(serial) = outside.server.start(encoding, outside.now) else { return };
        let (system, wal_end, confirmed) = (outside.server.system, outside.server.wal_end, outside.server.confirmed);
        let last_holder = if outside.holder == Some(self.name) { LastHolder::Ours } else { LastHolder::NotOurs };
        // Another history, or another relay's part of this one: what is unconfirmed is sent again.
        if self.system != Some(system) || last_holder == LastHolder::NotOurs {
            self.system = Some(system);
            self.producer.settled.clear();
            self.settled.clear();
            self.confirmed = Lsn::ZERO;
        }
        let clock = Clock { at: outside.now, shown: outside.server.clock(outside.now) };
        let others = vec!["public.foreign".into()];
        let asked_at = outside.now;
        let start = SessionStart { system, wal_end, confirmed, encoding, asked_at, clock, others, last_holder };
        outside.note(|| format!("relay {}: session at {confirmed} in {encoding:?}", self.name));
        let generation = self.pipeline.ledger().generation();
        let history = self.pipeline.session_started(start, outside.now);
        if history == History::Another && outside.dead_letter.order == Order::ParkKey {
            self.clerk.settle.iter_mut().for_each(|settling| settling.outcome.undo());
        }
        // Another producer at once: what the old one has on its way belongs to another history.
        self.forgets = self.pipeline.ledger().generation() != generation;
        self.lease = self.lease.max(Some(outside.now));
        let fence_end = match outside.holder {
            Some(holder) if holder == self.name => {
                self.pipeline.claimed();
                outside.now
            }
            Some(holder) if !outside.gone.contains(&holder) => {
                outside.cluster.felt("predecessor waited for");
                self.pipeline.fenced(SENDER_TIMEOUT, outside.now);
                outside.now + SENDER_TIMEOUT
            }
            Some(_) => {
                outside.cluster.felt("predecessor seen dead");
                self.pipeline.unfenced(outside.now);
                outside.now
            }
            None => {
                self.pipeline.unfenced(outside.now);
                outside.now
            }
        };
        self.link = Some(Link {
            serial,
            fence_end,
            inbox: VecDeque::new(),
            heard: outside.now,
            reading: Reading::default(),
            abandoned: false,
        });
    }

    fn act(&mut self, action: Action, outside: &mut Outside) {
        if !matches!(action, Action::Status(_)) {
            outside.note(|| format!("relay {}: {action:?}", self.name));
        }
        match action {
            Action::Status(ask) => {
                promised!(self.pipeline.received() >= self.pipeline.confirmed(), "confirmed what was not received");
                self.tell(ask, outside);
            }
            Action::Reconnect(why) => {
                // Whoever takes the slot meanwhile repeats what was not confirmed yet.
                match why {
                    Why::Text(_) => outside.disturb("change to text"),
                    Why::LeaseLost => {
                        let inflight = self.pipeline.ledger().inflight();
                        promised!(inflight == 0, "a lost slot was left with {inflight} records in flight");
                        outside.cluster.felt("lease lost");
                    }
                    Why::Replay | Why::Release | Why::Overtaken => {}
                }
                self.leave(outside);
                self.pipeline.session_lost();
                self.connect_at = match why {
                    Why::Text(_) | Why::Replay => outside.later(50),
                    Why::Release | Why::Overtaken | Why::LeaseLost => outside.now + Duration::from_secs(1),
                };
            }
            Action::Claim => {
                let reached = self.sql_works(outside.now)
                    && self.link.as_ref().is_some_and(|link| outside.server.serves(link.serial));
                if reached && !outside.dice.once_in(4) {
                    outside.holder = Some(self.name);
                    self.pipeline.claimed();
                } else {
                    self.pipeline.claim_failed(outside.now);
                }
            }
            Action::Purge(purge) => self.purge(purge, outside),
            Action::NewProducer => {
                self.producer.renew(self.name, outside.now, &mut outside.cluster);
                self.producer_ready_at = Some(outside.later(300));
                self.retiring.push(outside.later(300));
            }
            Action::Park(number, letter) => {
                let system = self.system.expect("rows come in a session");
                outside.reject(&letter, system, self.told.decided_by());
                self.clerk.letters.push_back((number, system, *letter));
            }
            Action::WriteBack(number, receipt) => {
                promised!(outside.has_row(id_of(&receipt)), "no row of {receipt:?} can be marked");
                self.receipts.push_back((number, receipt));
            }
            Action::LoadLetters { serial, from } => self.clerk.load = Some((serial, from)),
            Action::SettleLetter { id, owner, outcome, receipt, .. } => {
                let receipt = receipt.map(|receipt| (self.system.expect("letters are tried in a session"), receipt));
                self.clerk.settle.push_back(Settling { id, owner, outcome, receipt });
            }
            Action::AbandonTrial => {
                self.producer.abandon(self.name, outside.now, &mut outside.cluster);
                self.retiring.push(outside.later(300));
            }
            Action::Pause(message) => {
                self.clerk.paused = true;
                outside.cluster.store.pause = Some(message);
            }
            Action::Unpause => {
                self.clerk.paused = false;
                outside.cluster.store.pause = None;
            }
            Action::Stop => self.stopped(outside),
        }
    }

    /// What is on its way is not given up at once, unless it is of no use any more.
    fn purge(&mut self, purge: Purge, outside: &mut Outside) {
        if purge == Purge::Everything && !std::mem::take(&mut self.forgets) && self.producer.is_sending() {
            let at_once = self.draining_since.is_none_or(|since| since == outside.now);
            promised!(self.let_go || !at_once, "what was on its way was given up at once");
        }
        self.producer.purge(purge, self.name, outside.now, &mut outside.cluster);
    }

    fn watch(&mut self, now: Instant) {
        self.draining_since = self.pipeline.is_recovering().then(|| self.draining_since.unwrap_or(now));
    }

    /// A status update, if it reaches the walsender.
    fn tell(&mut self, ask: Ask, outside: &mut Outside) {
        let Some(link) = self.link.as_mut().filter(|link| !link.abandoned) else { return };
        if outside.now < self.deaf_until {
            outside.cluster.felt("status not heard");
        } else if outside.server.serves(link.serial) {
            link.heard = outside.now;
            outside.server.hear(link.serial, self.pipeline.confirmed(), ask == Ask::Reply, outside.now);
        }
    }

    /// The last status, and the end of the session, if they reach the walsender. True when its own goodbye reaches us.
    fn leave(&mut self, outside: &mut Outside) -> bool {
        self.tell(Ask::Nothing, outside);
        let Some(link) = self.link.take().filter(|link| !link.abandoned) else { return false };
        let serves = outside.server.serves(link.serial);
        if outside.now >= self.deaf_until {
            outside.server.let_go(link.serial);
        }
        serves && self.sql_works(outside.now)
    }

    /// Rows of letters wait to be marked, on the server whose slot it has.
    fn owes_letters(&self) -> bool {
        let is_here = |settling: &Settling| settling.receipt.as_ref().is_some_and(|(of, _)| Some(*of) == self.system);
        self.link.is_some() && self.clerk.settle.iter().any(is_here)
    }

    /// The slot is where it was a while ago: what was settled since then, and before, may be sent again.
    pub fn slot_went_back(&mut self) {
        self.settled.clear();
    }

    fn stopped(&mut self, outside: &mut Outside) {
        let is_late = self.stopping.is_none_or(|since| outside.now >= since + outside.limits.shutdown * 4 / 5);
        promised!(is_late || self.pipeline.ledger().writing() == 0, "a stop left rows unmarked, and had time");
        promised!(is_late || !self.owes_letters(), "a stop left rows of letters unmarked, and had time");
        if self.pipeline.ledger().inflight() > 0 {
            self.producer.purge(Purge::Everything, self.name, outside.now, &mut outside.cluster);
        }
        let current = self.system == Some(outside.server.system);
        if self.leave(outside) {
            self.pipeline.heard(self.pipeline.confirmed());
        }
        if self.sql_works(outside.now) && current {
            self.pipeline.heard(outside.server.confirmed);
        }
        let announced = self.pipeline.repeats();
        outside.stops.push(announced);
        if self.sql_works(outside.now) && self.pipeline.may_hand_over(outside.now) && outside.holder == Some(self.name)
        {
            let unknown = !self.retiring.is_empty() || outside.cluster.may_land(self.name, outside.now);
            promised!(
                !unknown && !self.producer.is_trying(),
                "its successor will not wait, and what it purged may still land"
            );
            outside.holder = None;
        }
        let settled = std::mem::take(&mut self.settled);
        outside.cluster.farewells.push(Farewell { settled, announced });
        self.ended = true;
    }

    /// The process is gone. Its sockets are closed; a network that carries nothing does not tell.
    pub fn end(mut self, outside: &mut Outside) {
        if let Some(link) = self.link.take().filter(|link| outside.now >= self.deaf_until && !link.abandoned) {
            outside.server.let_go(link.serial);
        }
        // A living one would have given up by the end of its lease what no broker had answered for. And where everybody
        // can see that it is gone, nobody waits for that: it lands before the next one publishes, or out of turn.
        let landed = if outside.gone.contains(&self.name) { outside.now } else { outside.now + LAND_WITHIN };
        let until = self.lease.map_or(landed, |proof| landed.min(proof + SENDER_TIMEOUT));
        self.producer.orphan(self.name, &mut outside.cluster, until);
    }

    /// What must hold after every step, beside what the oracle knows.
    pub fn judge(&mut self, outside: &mut Outside) {
        let (ledger, limits) = (self.pipeline.ledger(), &outside.limits);
        promised!(ledger.span() <= limits.window, "window");
        let (on_their_way, held, owed) =
            (ledger.inflight() + ledger.parking(), ledger.held_bytes(), ledger.owed_bytes());
        promised!(held + owed <= limits.memory || on_their_way <= 1, "memory");
        let largest = self.receipts.iter().map(|(_, receipt)| receipt.weight()).max().unwrap_or(0);
        promised!(owed <= (limits.memory - 1) + largest, "memory that receipts take");
        if self.pipeline.paused().is_some() {
            outside.cluster.felt("line stood");
        }
        let confirmed = self.pipeline.confirmed();
        promised!(confirmed >= self.confirmed, "confirmed went back");
        self.confirmed = confirmed;
        // What a relay has confirmed counts before the server hears of it, while they speak of the same history.
        if self.link.as_ref().is_some_and(|link| outside.server.serves(link.serial)) {
            promised!(confirmed <= outside.server.wal_end, "confirmed what was never sent");
            outside.judge_rows(confirmed);
            outside.cluster.judge.observe(&Fact::Confirmed(confirmed));
        }
    }

    pub fn describe(&self) -> String {
        let (pipeline, ledger) = (&self.pipeline, self.pipeline.ledger());
        format!(
            "relay {}: linked {}, recovering {}, trouble {:?}, lost {}, in flight {}, parking {}, writing {}, paused {:?}, trying {}, reloading {}",
            self.name,
            self.link.is_some(),
            pipeline.is_recovering(),
            pipeline.trouble(),
            ledger.lost(),
            ledger.inflight(),
            ledger.parking(),
            ledger.writing(),
            pipeline.paused(),
            pipeline.is_trying(),
            pipeline.is_reloading()
        )
    }

    fn sql_works(&self, now: Instant) -> bool {
        now >= self.deaf_until && now >= self.mute_until
    }
}

/// When offers are allowed, by the proofs that the pipeline was given.
fn gate(lease: Option<Instant>, link: &Link, severed: bool, edition: u64, now: Instant) -> Gate {
    let lease_end = lease.expect("a session has a lease") + LEASE;
    Gate { now, lease_end, fence_end: link.fence_end, successor: link.heard + SENDER_TIMEOUT * 2, severed, edition }
}

fn id_of(receipt: &Receipt) -> u64 {
    receipt.id.parse().expect("a number")
}
