//! The corridor's decisions: decoder, outbox, route and ledger as one state machine.
//!
//! Frames, answers, losses and the passing of time enter; `Action`s and the confirmed LSN leave. There is no I/O, no
//! clock and no waiting here, so a simulator can attack everything that is decided: what is offered and when, what a
//! failed delivery leads to, when the relay must fall silent, when it may leave.
//!
//! Guarantees: a row is offered to at most one producer at a time, in WAL order; nothing is confirmed before all rows
//! ahead of it are settled; nothing is offered without the lease.

mod careful;
mod join;
mod letters;
mod preview;
mod producer;
mod receipts;
mod session;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config;
use crate::dead_letter::{BEHIND, DeadLetter, Lane, Outcome, PAYLOAD_MISSING};
use crate::error::{Error, Result};
use crate::ledger::{Answered, Entry, Known, Ledger, Ticket};
use crate::lsn::{Lsn, Position};
use crate::receipt::{Fate, Receipt};
use crate::record::Rejected;
use crate::route::Router;
use crate::sink::{Failure, Purge, Refused, Sink, Whose};
use crate::source::outbox::{Given, Layout, Odd, Outbox, Place, Row, Step};
pub use crate::source::outbox::{block, payload_column};
use crate::source::pgoutput;
use crate::source::wire::Frame;
use crate::source::{Encoding, System};
use careful::Careful;
pub use letters::Loaded;
use letters::{Letters, Shelved, too_large};
pub use preview::{lacks, preview};
use producer::{Cause, Producer};
use receipts::Receipts;
use session::Session;
pub use session::{Clock, History, LastHolder, SessionStart};

/// How long a stop waits for a row that cannot be offered, while nothing is in flight.
const HOPELESS: Duration = Duration::from_secs(2);

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It is dealt with: show the next one.
    Taken,
    /// Not now: show the same frame again after an answer or a tick.
    Held,
}

/// What must be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a status update with `confirmed()` and `received()`.
    Status(Ask),
    /// Leave the session, politely where somebody listens, and open another one.
    Reconnect(Why),
    /// Make the producer forget records.
    Purge(Purge),
    /// The fence has ended: put our name on the slot, then call `claimed` or `claim_failed`.
    Claim,
    /// Replace the producer; then call `producer_ready`, and `retired` once the old one is taken apart.
    NewProducer,
    /// Store this dead letter, then call `stored` with its number.
    Park(u64, Box<DeadLetter>),
    /// Write this receipt into the row's table, however often it takes; then call `written` with its number.
    WriteBack(u64, Box<Receipt>),
    /// Ask the store for letters from this position on, and for open lanes; then call `letters_loaded` or `letters_not_loaded`.
    LoadLetters {
        /// To be told with the answer.
        serial: u64,
        /// Where the rows begin that may come again.
        from: Position,
    },
    /// Write down what became of a letter that was tried.
    SettleLetter {
        /// The letter's number in the store.
        id: i64,
        /// By which claim.
        owner: String,
        /// How often it was tried before.
        attempts: u32,
        /// What became of it.
        outcome: Outcome,
        /// What is to be written into its row before.
        receipt: Option<Box<Receipt>>,
    },
    /// Take the producer of trials apart, with what it has; then call `retired`.
    AbandonTrial,
    /// The line stands for this reason, until a person says otherwise: write it down, then call `resumed` when that is gone.
    Pause(String),
    /// The line goes on: what was written down counts no more.
    Unpause,
    /// Send the last status, say goodbye and end the process. What the server was heard to have read then decides
    /// `repeats()`.
    Stop,
}

/// Whether a status update asks for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The server's answer, a keepalive, renews the lease.
    Reply,
    /// No answer wanted.
    Nothing,
}

/// Why the session must be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// This column cannot be read from its binary form.
    Text(String),
    /// Rows whose delivery failed must be sent again by the server.
    Replay,
    /// The server wants to shut down and waits for us.
    Release,
    /// Nobody proved for too long that the slot is still ours.
    LeaseLost,
    /// The slot is not ours any more.
    Overtaken,
}

/// The bounds and times that the pipeline needs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `postgres.sender_timeout`
    pub sender_timeout: Duration,
    /// `[limits]`
    pub limits: config::Limits,
    /// `[dead_letter]`
    pub dead_letter: config::DeadLetters,
}

impl Settings {
    /// How long the relay may offer after the last proof that the slot is its own.
    fn lease(&self) -> Duration {
        self.sender_timeout * 2 / 3
    }

    /// How often the server is asked for that proof: silence shall show within seconds, whatever the timeout.
    fn question(&self) -> Duration {
        (self.sender_timeout / 10).min(Duration::from_secs(1))
    }
}

/// Counts of things that are no events of the corridor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Stream Aborts outside a stream.
    pub stray_aborts: u64,
    /// Logical messages with an outbox prefix outside of a transaction.
    pub not_transactional: u64,
}

/// The state machine.
#[derive(Debug)]
pub struct Pipeline {
    settings: Settings,
    /// How long the relay may offer after the last proof that the slot is its own.
    lease_lasts: Duration,
    publication: String,
    outbox: Outbox,
    router: Router,
    ledger: Ledger,
    history: Option<System>,
    /// The slot's position when the last session started: what the server knows for certain.
    told: Lsn,
    /// How far former sessions of this history had come.
    reached: Lsn,
    session: Option<Session>,
    encoding: Encoding,
    /// When the last answered question was asked.
    lease: Option<Instant>,
    producer: Producer,
    careful: Careful,
    letters: Letters,
    receipts: Receipts,
    /// Rows of letters that were tried do not say yet what became of them.
    owes_letters: bool,
    stopping: Option<Stopping>,
    /// What shall hold from the next transaction on.
    reload: Option<Box<Reload>>,
    /// Records were purged in flight, or will be: until then they may land.
    unknown_until: Option<Instant>,
    /// Producers that were replaced and may still send what they had.
    retiring: u32,
    oddities: Oddities,
    actions: VecDeque<Action>,
}

/// What of the configuration can change while the relay runs.
#[derive(Debug, Clone)]
pub struct Reload {
    /// `[[route]]`, `[registry]` and `[templates]`
    pub rules: config::Rules,
    /// `[dead_letter]`; where letters are and in which order they go is not read.
    pub dead_letter: config::DeadLetters,
}

#[derive(Debug)]
struct Stopping {
    deadline: Instant,
    /// Read on to the end of the open transaction, so that a restart repeats nothing.
    reading: bool,
    /// `Action::Stop` was given.
    done: bool,
}

impl Pipeline {
    /// A pipeline without a session, its producer ready.
    pub fn new(outboxes: &[config::Outbox], rules: &config::Rules, publication: &str, settings: Settings) -> Self {
        let mut layout = Layout::default();
        let router = Router::new(rules, outboxes, &mut layout);
        Pipeline {
            letters: Letters::new(settings.dead_letter.clone()),
            receipts: Receipts::new(outboxes),
            owes_letters: false,
            lease_lasts: settings.lease(),
            publication: publication.to_owned(),
            outbox: Outbox::new(outboxes, layout).within(&settings.limits),
            settings,
            router,
            ledger: Ledger::new(Lsn::ZERO),
            history: None,
            told: Lsn::ZERO,
            reached: Lsn::ZERO,
            session: None,
            encoding: Encoding::Binary,
            lease: None,
            producer: Producer::default(),
            careful: Careful::default(),
            stopping: None,
            reload: None,
            unknown_until: None,
            retiring: 0,
            oddities: Oddities::default(),
            actions: VecDeque::new(),
        }
    }

    /// One frame of the stream.
    pub fn frame(&mut self, frame: Frame<'_>, now: Instant, sink: &mut impl Sink) -> Result<Flow> {
        let Some(session) = &mut self.session else { return Ok(Flow::Held) };
        if session.left {
            return Ok(Flow::Held);
        }
        match frame {
            Frame::Keepalive { wal_end, sent_at, reply_requested } => {
                self.keepalive(wal_end, sent_at, reply_requested, now);
                Ok(Flow::Taken)
            }
            Frame::Notice { code, message } => self.notice(code, message),
            Frame::Data { wal_end, sent_at, body } => {
                self.sent(sent_at, now);
                let flow = self.data(body, now, sink)?;
                if let Some(session) = &mut self.session {
                    session.data(flow, wal_end, now);
                }
                Ok(flow)
            }
        }
    }

    /// The broker has the row. Answers with its entry unless the ticket is a former producer's.
    pub fn acked(&mut self, ticket: Ticket) -> Option<Entry> {
        let Answered { entry, receipt } = self.ledger.settle(ticket)?;
        self.producer.succeeded();
        self.careful.answered(entry.position);
        self.write_back(receipt);
        Some(entry)
    }

    /// The row's delivery failed.
    pub fn failed(&mut self, ticket: Ticket, failure: Failure, now: Instant) {
        let Some(entry) = self.ledger.lose(ticket) else { return };
        self.producer.failed(failure, entry.position, now + self.settings.limits.settle);
    }

    /// The producer is broken, and will never say so of what it has.
    pub fn broke(&mut self, failure: Failure, now: Instant) {
        self.producer.broke(failure, now + self.settings.limits.settle);
    }

    /// The new producer stands.
    pub fn producer_ready(&mut self, now: Instant) {
        self.producer.renewed(now, self.settings.limits.backoff);
    }

    /// Time has passed. Call it before `next_action`, after every other input.
    pub fn tick(&mut self, now: Instant) {
        self.tick_lease(now);
        self.tick_producer(now);
        self.tick_session(now);
        self.tick_letters(now);
        if self.reload.is_some() {
            self.tick_reload(now);
        }
        self.tick_stopping(now);
    }

    /// What must be done, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A person wants the process to end.
    pub fn stop(&mut self, now: Instant) {
        self.stop_by(now, true);
    }

    /// Something is wrong for good: settle what is in flight, read nothing more.
    pub fn halt(&mut self, now: Instant) {
        self.stop_by(now, false);
    }

    /// The last mark with nothing unsettled before it.
    pub fn confirmed(&self) -> Lsn {
        self.ledger.confirmed()
    }

    /// How far the stream was read, never behind `confirmed`.
    pub fn received(&self) -> Lsn {
        self.session.as_ref().map_or(Lsn::ZERO, |session| session.received).max(self.confirmed())
    }

    /// How the next session must ask for values.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The books, to look at.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What was counted beside events.
    pub fn oddities(&self) -> Oddities {
        self.oddities
    }

    /// The failure that the producer is being replaced for, until something succeeds again.
    pub fn trouble(&self) -> Option<&Failure> {
        self.producer.trouble()
    }

    /// True while a failed delivery is being mended.
    pub fn is_recovering(&self) -> bool {
        !self.producer.is_good()
    }

    /// True while the slot is ours but its last holder may still be publishing.
    pub fn is_fencing(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.fence.is_open())
    }

    /// True when nothing that we offered can still land behind a successor's records.
    pub fn may_hand_over(&self, now: Instant) -> bool {
        let nothing_on_its_way = self.ledger.is_idle() && !self.is_trying();
        nothing_on_its_way && self.retiring == 0 && self.unknown_until.is_none_or(|end| now >= end)
    }

    /// These rules hold from the next transaction on.
    pub fn reload(&mut self, reload: Reload, now: Instant) {
        self.reload = Some(Box::new(reload));
        self.tick_reload(now);
    }

    /// True while rules wait for the open transaction to end.
    pub fn is_reloading(&self) -> bool {
        self.reload.is_some()
    }

    /// Rules change between transactions, while no topic is searched for a guilty row that is on its way: what is searched must
    /// come again as it was. A row that waits for something outside, as a topic that does not exist, may wait for just this. A
    /// search with nothing on its way begins anew if something is refused again.
    fn tick_reload(&mut self, now: Instant) {
        let is_held = |session: &Session| session.held_since.is_some_and(|since| now >= since + HOPELESS);
        let is_boundary = self.session.as_ref().is_none_or(is_held) || self.outbox.is_between_transactions();
        if !is_boundary || !(self.careful.is_idle() || self.ledger.inflight() == 0) {
            return;
        }
        let Some(reload) = self.reload.take() else { return };
        self.careful.clear();
        self.letters.condemned.clear();
        let Reload { rules, dead_letter } = *reload;
        let mut layout = Layout::default();
        self.router = Router::new(&rules, self.outbox.outboxes(), &mut layout);
        self.set_letters(dead_letter);
        if let Some(column) = self.outbox.lay_out(layout) {
            self.encoding = Encoding::Text;
            self.leave_session(Why::Text(column));
        }
    }

    /// True once `stop` or `halt` was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Until when a server that is slow to read the last status may be waited for; `None` when there is nothing to tell.
    pub fn tells_until(&self) -> Option<Instant> {
        self.stopping.as_ref().filter(|stopping| stopping.reading).map(|stopping| stopping.deadline)
    }

    /// Rows that the next start will publish again, for all that is known of what the server has read.
    pub fn repeats(&self) -> u64 {
        self.ledger.repeats(self.told)
    }

    fn data(&mut self, body: &[u8], now: Instant, sink: &mut impl Sink) -> Result<Flow> {
        let reads_on = |stopping: &Stopping| stopping.reading && self.outbox.in_transaction();
        if !self.stopping.as_ref().is_none_or(reads_on) {
            return Ok(Flow::Held);
        }
        let message = pgoutput::decode(body).map_err(|error| {
            Error::definite("the server sent a message that cannot be decoded")
                .because(error)
                .hint("please report it with the PostgreSQL version; the slot stays before it, nothing is lost")
        })?;
        // What waited stands before it.
        if self.outbox.is_waiting() && self.release(&message, now, sink)? == Flow::Held {
            return Ok(Flow::Held);
        }
        self.step(Given::Message(&message, body), now, sink)
    }

    /// What is given is read, and what it means is done or held. Inlined, because every message comes this way.
    #[inline(always)]
    fn step(&mut self, given: Given<'_>, now: Instant, sink: &mut impl Sink) -> Result<Flow> {
        let may_offer = given.may_be_a_row() && self.may_offer(now);
        match self.outbox.give(given)? {
            Step::Nothing => Ok(Flow::Taken),
            Step::Mark(lsn) => {
                self.mark(lsn);
                if self.reload.is_some() {
                    self.tick_reload(now);
                }
                if self.encoding == Encoding::Text && self.outbox.fits_binary() {
                    self.encoding = Encoding::Binary;
                }
                Ok(Flow::Taken)
            }
            Step::Odd(Odd::StrayAbort) => {
                self.oddities.stray_aborts += 1;
                Ok(Flow::Taken)
            }
            Step::Odd(Odd::NotTransactional) => {
                self.oddities.not_transactional += 1;
                Ok(Flow::Taken)
            }
            Step::TextNeeded(column) => {
                self.encoding = Encoding::Text;
                self.leave_session(Why::Text(column));
                Ok(Flow::Held)
            }
            Step::Rejected(rejected) => {
                let Rejected { position, committed_at, ref event, .. } = rejected;
                let flow = match self.ledger.known(position) {
                    Known::Held => Flow::Taken,
                    Known::New if !may_offer || self.ledger.span() >= self.settings.limits.window => Flow::Held,
                    Known::Lost if !may_offer => Flow::Held,
                    Known::New | Known::Lost => match self.letters.of(position, || event.clone()) {
                        Shelved::Unknown => Flow::Held,
                        Shelved::Letter(fate) => {
                            let origin = self.outbox.keep(given, self.settings.limits.event).origin;
                            let receipt = self.receipt_of(&origin, event.as_ref(), fate);
                            self.pass(position, committed_at, receipt)
                        }
                        Shelved::Nothing => self.park(rejected, Lane::default(), None, given),
                    },
                };
                self.take_if(flow, position, given)
            }
            Step::Row(row) => {
                if let Some(session) = &mut self.session {
                    session.read_commit(row.committed_at);
                }
                let Row { position, committed_at, .. } = row;
                let flow = match self.ledger.known(position) {
                    Known::Held => Flow::Taken,
                    Known::New if !may_offer || self.ledger.span() >= self.settings.limits.window => Flow::Held,
                    Known::Lost if !may_offer => Flow::Held,
                    Known::New | Known::Lost => match self.letters.of(position, || row.text(Place::ID)) {
                        Shelved::Unknown => Flow::Held,
                        Shelved::Letter(fate) => {
                            let receipt = self.receipts.of_row(&row, fate);
                            self.pass(position, committed_at, receipt)
                        }
                        Shelved::Nothing => {
                            let desk = Desk {
                                router: &mut self.router,
                                ledger: &mut self.ledger,
                                careful: &mut self.careful,
                                letters: &mut self.letters,
                                receipts: &self.receipts,
                                producer: &mut self.producer,
                                limits: &self.settings.limits,
                            };
                            match desk.offer(&row, now, sink) {
                                Ok(flow) => flow,
                                Err(rejected) => {
                                    let (lane, event_type) = (self.router.lane(&row), row.text(Place::EVENT_TYPE));
                                    self.park(rejected, lane, event_type, given)
                                }
                            }
                        }
                    },
                };
                self.take_if(flow, position, given)
            }
        }
    }

    /// A row whose dead letter is stored already.
    fn pass(&mut self, position: Position, committed_at: i64, receipt: Option<Box<Receipt>>) -> Flow {
        let weight = receipt.as_ref().map_or(0, |receipt| receipt.weight());
        if weight > 0 && self.ledger.is_full(weight, self.settings.limits.memory) {
            return Flow::Held;
        }
        self.letters.pass(position);
        let entry = Entry { position, committed_at, bytes: 0, weight: 0 };
        let Answered { receipt, .. } = self.ledger.pass(entry, receipt);
        self.write_back(receipt);
        Flow::Taken
    }

    fn take_if(&mut self, flow: Flow, position: Position, given: Given<'_>) -> Result<Flow> {
        if flow == Flow::Taken {
            match given {
                Given::Message(..) => self.outbox.take(),
                // It was counted when it came.
                Given::Waiting(_) => {}
            }
            if self.letters.pause().is_some() {
                self.passed(position);
            }
        }
        Ok(flow)
    }

    /// True while nobody else can be publishing.
    fn is_ours(&self, now: Instant) -> bool {
        let open = self.session.as_ref().is_some_and(|session| session.fence.is_open());
        open && self.lease.is_some_and(|asked| now < asked + self.lease_lasts)
    }

    fn may_offer(&self, now: Instant) -> bool {
        self.is_ours(now) && self.producer.is_good() && self.letters.is_loaded()
    }

    fn notice(&mut self, code: &str, message: &str) -> Result<Flow> {
        // From PostgreSQL 18 on, pgoutput goes on without a missing publication, and then sends nothing at all.
        if code == "55000" && message.contains(&self.publication) {
            return Err(Error::definite(format!("publication \"{}\" is missing: {message}", self.publication)).hint(
                "outboxd init creates it. If it exists: it was created after the slot's position, and rows \
                     committed before that are not in the stream; only a new slot goes on from here",
            ));
        }
        Ok(Flow::Taken)
    }

    fn stop_by(&mut self, now: Instant, reading: bool) {
        // The goodbye itself takes a moment.
        let deadline = now + self.settings.limits.shutdown * 4 / 5;
        match &mut self.stopping {
            Some(stopping) => stopping.reading &= reading,
            None => self.stopping = Some(Stopping { deadline, reading, done: false }),
        }
    }

    fn tick_stopping(&mut self, now: Instant) {
        if self.stopping.as_ref().is_none_or(|stopping| stopping.done) {
            return;
        }
        let repeats = self.repeats();
        let Some(stopping) = &mut self.stopping else { return };
        let reads = match &self.session {
            // A row that waits this long waits for something outside: there is no end to read on to.
            Some(session) => stopping.reading && session.held_since.is_none_or(|since| now < since + HOPELESS),
            None => false,
        };
        // What was settled after a session broke is told in another one.
        let untold = stopping.reading && self.session.is_none() && repeats > 0;
        let nothing_open = self.ledger.is_idle() && self.ledger.writing() == 0;
        let owes = self.owes_letters
            || self.actions.iter().any(|action| matches!(action, Action::SettleLetter { receipt: Some(_), .. }));
        let settled = nothing_open && !owes && !self.letters.is_trying() && !self.producer.is_renewing() && !untold;
        if (settled && !(reads && self.outbox.in_transaction())) || now >= stopping.deadline {
            stopping.done = true;
            self.actions.push_back(Action::Stop);
        }
    }
}

/// What offering a row touches.
struct Desk<'p> {
    router: &'p mut Router,
    ledger: &'p mut Ledger,
    careful: &'p mut Careful,
    letters: &'p mut Letters,
    receipts: &'p Receipts,
    producer: &'p mut Producer,
    limits: &'p config::Limits,
}

impl Desk<'_> {
    fn offer(self, row: &Row<'_>, now: Instant, sink: &mut impl Sink) -> std::result::Result<Flow, Rejected> {
        if let Some(why) = row.missing() {
            return Err(row.rejected(PAYLOAD_MISSING, why.to_owned()));
        }
        let record = self.router.route(row)?;
        let (bytes, weight) = (record.bytes(), record.weight());
        if self.letters.lanes.holds(record.topic, record.key, row.position) {
            return Err(row.rejected(BEHIND, "an earlier event of its key is parked".into()));
        }
        if let Some(rejection) = self.letters.condemned.get(&row.position) {
            return Err(row.rejected(rejection.reason, rejection.message.clone()));
        }
        if let Some(message) = too_large(bytes, self.limits.event) {
            return Err(row.rejected("too_large", message));
        }
        let full = self.ledger.is_full(weight, self.limits.memory);
        if full || self.careful.holds(record.topic, row.position) {
            return Ok(Flow::Held);
        }
        let entry = Entry { position: row.position, committed_at: row.committed_at, bytes, weight };
        let ticket = self.ledger.issue(entry, self.receipts.of_row(row, Fate::Published));
        match sink.offer(&record, ticket) {
            Ok(()) => {
                self.careful.offered(record.topic, row.position);
                Ok(Flow::Taken)
            }
            Err(Refused::Full(ticket) | Refused::Unready(ticket)) => {
                self.ledger.withdraw(ticket);
                Ok(Flow::Held)
            }
            Err(Refused::Event(ticket, problem)) => {
                self.ledger.withdraw(ticket);
                Err(row.rejected(problem.reason, problem.message))
            }
            Err(Refused::Fatal(ticket, message)) => {
                self.ledger.withdraw(ticket);
                let failure =
                    Failure { whose: Whose::World, topic: record.topic.to_owned(), message, too_large: false };
                self.producer.broke(failure, now + self.limits.settle);
                Ok(Flow::Held)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Columns, OutboxSource};
    use crate::dead_letter::{Claimed, KnownLetter, OpenLane};
    use crate::sink::{Problem, Untried};

    /// Takes everything, or refuses everything in one way; keeps the tickets.
    #[derive(Default)]
    struct Shelf {
        taken: VecDeque<(u64, u32)>,
        tried: Vec<i64>,
        refuse: Option<fn(Ticket) -> Refused>,
    }

    impl Sink for Shelf {
        fn offer(&mut self, _: &crate::record::Record<'_>, ticket: Ticket) -> std::result::Result<(), Refused> {
            match self.refuse {
                Some(refuse) => Err(refuse(ticket)),
                None => {
                    self.taken.push_back(ticket.into_parts());
                    Ok(())
                }
            }
        }

        fn try_again(&mut self, _: &crate::record::Record<'_>, letter: i64) -> std::result::Result<(), Untried> {
            self.tried.push(letter);
            Ok(())
        }
    }

    struct Bench {
        pipeline: Pipeline,
        shelf: Shelf,
        start: Instant,
        now: Instant,
    }

    impl Bench {
        /// A pipeline without a session; sender_timeout is 30 s, so that the lease is 20 s.
        fn idle() -> Bench {
            Bench::with(config::Store::Kafka("letters".into()), config::Order::Skip)
        }

        fn with(store: config::Store, order: config::Order) -> Bench {
            let columns = Columns { aggregate_type: Some("kind".into()), ..Columns::bare("id", "payload") };
            let table = OutboxSource::Table { schema: "app".into(), name: "outbox".into() };
            let events = OutboxSource::Table { schema: "app".into(), name: "events".into() };
            let mut outboxes = [OutboxSource::MessagePrefix("o".into()), table, events]
                .map(|source| config::Outbox::of(source, columns.clone()));
            outboxes[2].join = Some(config::Join {
                schema: "app".into(),
                table: "bodies".into(),
                event_column: "body".into(),
                payload_column: "key".into(),
            });
            let seconds = Duration::from_secs;
            let limits = config::Limits {
                memory: 1 << 20,
                window: 3,
                event: 4096,
                join: 4,
                settle: seconds(5),
                shutdown: seconds(25),
                primary_grace: seconds(5),
                backoff: seconds(10),
                probe: seconds(5),
                sql: seconds(10),
                slot_creation: seconds(60),
            };
            let dead_letter = config::DeadLetters {
                store,
                unknown_topic: config::UnknownTopic::Wait,
                max_attempts: 25,
                backoff: config::Backoff { first: seconds(1), factor: 2, max: seconds(3600) },
                order,
                max_parked_keys: 2,
                max_rate: 20,
                retention: seconds(3600),
            };
            let settings = Settings { sender_timeout: seconds(30), limits, dead_letter };
            let pipeline = Pipeline::new(&outboxes, &config::Rules::default(), "outboxd", settings);
            let start = Instant::now();
            Bench { pipeline, shelf: Shelf::default(), start, now: start }
        }

        /// A pipeline that may offer.
        fn ready() -> Bench {
            let mut bench = Bench::idle();
            bench.session(100);
            bench.pipeline.claimed();
            bench
        }

        /// A delivery failed, what was queued is purged, and the other record is answered.
        fn after_a_failure() -> Bench {
            let mut bench = Bench::ready();
            bench.begin(200);
            (0..2).for_each(|_| assert_eq!(bench.row(), Flow::Taken));
            bench.fail(Whose::World);
            assert_eq!(bench.actions(), [Action::Purge(Purge::Queued)]);
            bench.ack();
            bench
        }

        fn session(&mut self, confirmed: u64) {
            self.session_after(LastHolder::Ours, confirmed);
        }

        fn session_after(&mut self, last_holder: LastHolder, confirmed: u64) {
            self.session_at(last_holder, confirmed, 9999);
        }

        fn session_at(&mut self, last_holder: LastHolder, confirmed: u64, wal_end: u64) {
            let system = System { id: 1, timeline: 1 };
            let (wal_end, confirmed, encoding) = (Lsn(wal_end), Lsn(confirmed), self.pipeline.encoding());
            let clock = Clock { at: self.now, shown: self.server_clock() };
            let (asked_at, others) = (self.now, Vec::new());
            let start = SessionStart { system, wal_end, confirmed, encoding, asked_at, clock, others, last_holder };
            self.pipeline.session_started(start, self.now);
        }

        /// The server's clock is not ours.
        fn server_clock(&self) -> i64 {
            (self.now - self.start).as_micros() as i64 - 86_400_000_000
        }

        fn at(&mut self, seconds: f64) -> &mut Bench {
            self.now = self.start + Duration::from_secs_f64(seconds);
            self
        }

        fn data(&mut self, body: &[u8]) -> Result<Flow> {
            let frame = Frame::Data { wal_end: Lsn(1), sent_at: i64::MIN, body };
            self.pipeline.frame(frame, self.now, &mut self.shelf)
        }

        fn begin(&mut self, commit: u64) -> Flow {
            self.begin_dated(commit, 0)
        }

        fn begin_dated(&mut self, commit: u64, date: i64) -> Flow {
            self.data(&[b"B", &commit.to_be_bytes()[..], &date.to_be_bytes(), &[0; 4]].concat()).unwrap()
        }

        fn row(&mut self) -> Flow {
            let content = br#"{"id": 1, "kind": "a", "payload": 2}"#;
            let head = [b"M\x01", &[0; 8][..], b"o\0", &(content.len() as u32).to_be_bytes()].concat();
            self.data(&[&head[..], content].concat()).unwrap()
        }

        fn commit(&mut self, end: u64) -> Flow {
            self.data(&[b"C\0", &[0; 8][..], &end.to_be_bytes(), &[0; 8]].concat()).unwrap()
        }

        fn keepalive(&mut self, wal_end: u64, reply_requested: bool) {
            self.keepalive_sent(wal_end, self.now, reply_requested);
        }

        fn keepalive_sent(&mut self, wal_end: u64, sent: Instant, reply_requested: bool) {
            let sent_at = self.server_clock() - (self.now - sent).as_micros() as i64;
            let frame = Frame::Keepalive { wal_end: Lsn(wal_end), sent_at, reply_requested };
            assert_eq!(self.pipeline.frame(frame, self.now, &mut self.shelf).unwrap(), Flow::Taken);
        }

        fn ack(&mut self) {
            let (number, generation) = self.shelf.taken.pop_front().expect("something was taken");
            assert!(self.pipeline.acked(Ticket::from_parts(number, generation)).is_some());
        }

        fn fail(&mut self, whose: Whose) {
            let (number, generation) = self.shelf.taken.pop_front().expect("something was taken");
            let failure = Failure { whose, topic: "outbox.event.a".into(), message: "no".into(), too_large: false };
            self.pipeline.failed(Ticket::from_parts(number, generation), failure, self.now);
        }

        /// The store has these.
        fn load(&mut self, letters: Vec<KnownLetter>, lanes: Vec<OpenLane>) {
            self.pipeline.letters_loaded(Loaded { serial: 2, letters, until: None, lanes, pause: None });
        }

        /// What the next start repeats, once the server has read the last status.
        fn repeats_when_told(&mut self) -> u64 {
            self.pipeline.heard(self.pipeline.confirmed());
            self.pipeline.repeats()
        }

        /// Everything but status updates.
        fn actions(&mut self) -> Vec<Action> {
            self.pipeline.tick(self.now);
            std::iter::from_fn(|| self.pipeline.next_action())
                .filter(|action| !matches!(action, Action::Status(_)))
                .collect()
        }
    }

    #[test]
    fn a_row_waits_until_the_slot_is_claimed_and_its_last_holder_is_gone() {
        let mut bench = Bench::idle();
        bench.session(100);
        assert_eq!((bench.begin(200), bench.row()), (Flow::Taken, Flow::Held));
        bench.pipeline.fenced(Duration::from_secs(30), bench.now);
        for second in 1..=10 {
            bench.at(f64::from(second) * 2.9);
            bench.pipeline.proved(bench.now);
            assert_eq!((bench.row(), bench.pipeline.is_fencing()), (Flow::Held, true));
        }
        assert_eq!(bench.at(30.0).actions(), [Action::Claim]);
        assert_eq!((bench.row(), bench.actions()), (Flow::Held, vec![]));
        bench.pipeline.claim_failed(bench.now);
        assert_eq!(bench.at(31.0).actions(), [Action::Claim]);
        bench.pipeline.claimed();
        assert_eq!((bench.row(), bench.pipeline.is_fencing()), (Flow::Taken, false));
        bench.ack();
    }

    #[test]
    fn a_keepalive_renews_the_lease_from_when_the_server_sent_it() {
        let mut bench = Bench::ready();
        assert_eq!(bench.begin(200), Flow::Taken);
        let sent = bench.at(3.0).now;
        bench.at(19.9).keepalive_sent(150, sent, false);
        assert_eq!(bench.at(22.9).row(), Flow::Taken, "it was sent at 3 s, and read late");
        assert_eq!(bench.at(23.0).row(), Flow::Held, "two thirds of 30 s after it was sent");
        bench.keepalive_sent(150, sent, false);
        assert_eq!(bench.row(), Flow::Held, "an old one proves nothing new");
        bench.pipeline.proved(bench.now);
        assert_eq!(bench.row(), Flow::Taken);
        (0..2).for_each(|_| bench.ack());
    }

    #[test]
    fn a_stop_without_a_session_waits_for_one_to_tell_what_was_settled_meanwhile() {
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!((bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken));
        bench.pipeline.session_lost();
        bench.ack();
        bench.pipeline.stop(bench.now);
        assert_eq!(bench.at(1.0).actions(), [], "the server would send the row again");
        bench.session(100);
        assert_eq!((bench.actions().last(), bench.repeats_when_told()), (Some(&Action::Stop), 0));
    }

    #[test]
    fn a_stop_that_finds_no_session_in_time_says_what_will_repeat() {
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!((bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken));
        bench.pipeline.session_lost();
        bench.ack();
        bench.pipeline.stop(bench.now);
        let deadline = bench.pipeline.settings.limits.shutdown.as_secs_f64();
        assert_eq!((bench.at(deadline).actions(), bench.pipeline.repeats()), (vec![Action::Stop], 1));
    }

    #[test]
    fn a_relay_that_takes_the_slot_back_from_another_does_not_go_on_behind_what_it_published_itself() {
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!([bench.row(), bench.row(), bench.row()], [Flow::Taken; 3]);
        (0..3).for_each(|_| bench.ack());
        bench.pipeline.session_lost();
        // The other one published the first row again, and died: the second must follow it, not the fourth.
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.claimed();
        bench.begin(200);
        assert_eq!((bench.row(), bench.shelf.taken.len()), (Flow::Taken, 1));
        bench.ack();
    }

    #[test]
    fn what_a_predecessor_settled_is_not_repeated_in_part_when_the_slot_went_back() {
        let mut bench = Bench::ready();
        bench.pipeline.session_lost();
        // The slot had stood at 300, was put back by a crash, and goes forward again with our next word.
        bench.session_after(LastHolder::Ours, 300);
        bench.pipeline.session_lost();
        bench.session_after(LastHolder::Ours, 100);
        bench.pipeline.claimed();
        bench.begin(200);
        assert_eq!((bench.row(), bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken, Flow::Taken));
        assert_eq!((bench.shelf.taken.len(), bench.pipeline.confirmed()), (0, Lsn(300)));
        // A server that was restored uses the positions again, for other rows.
        bench.pipeline.session_lost();
        bench.session_at(LastHolder::Ours, 100, 250);
        bench.pipeline.claimed();
        bench.begin(200);
        assert_eq!((bench.row(), bench.shelf.taken.len()), (Flow::Taken, 1));
        bench.ack();
    }

    #[test]
    fn the_slot_stays_where_it_is_until_our_name_is_on_it() {
        let mut bench = Bench::idle();
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.fenced(Duration::from_secs(30), bench.now);
        bench.keepalive(150, false);
        assert_eq!(bench.pipeline.confirmed(), Lsn(100));
        bench.pipeline.claimed();
        bench.keepalive(160, false);
        assert_eq!(bench.pipeline.confirmed(), Lsn(160));
    }

    #[test]
    fn what_was_decided_for_a_session_is_not_done_to_the_next_one() {
        let mut bench = Bench::idle();
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.unfenced(bench.now);
        bench.pipeline.tick(bench.now);
        bench.pipeline.session_lost();
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.fenced(Duration::from_secs(30), bench.now);
        assert_eq!(bench.pipeline.next_action(), None);
    }

    #[test]
    fn a_drain_for_the_lease_is_called_off_when_the_slot_proves_to_be_ours() {
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!(bench.row(), Flow::Taken);
        assert_eq!(bench.at(20.0).actions(), []);
        assert!(bench.pipeline.is_recovering());
        bench.at(22.0).keepalive(150, false);
        bench.pipeline.tick(bench.now);
        assert!(!bench.pipeline.is_recovering());
        assert_eq!(bench.row(), Flow::Taken);
        (0..2).for_each(|_| bench.ack());
        assert_eq!(bench.pipeline.ledger().lost(), 0);
    }

    #[test]
    fn without_the_lease_what_is_in_flight_may_land_until_the_server_lets_go() {
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!((bench.row(), bench.row()), (Flow::Taken, Flow::Taken));
        assert_eq!(bench.at(19.9).actions(), []);
        assert_eq!(bench.at(20.0).row(), Flow::Held);
        assert_eq!(bench.at(29.9).actions(), []);
        bench.ack();
        assert_eq!(bench.at(30.0).actions(), [Action::Purge(Purge::Everything)]);
        bench.fail(Whose::World);
        assert_eq!(bench.actions(), [Action::NewProducer, Action::Reconnect(Why::LeaseLost)]);
        assert_eq!(bench.pipeline.ledger().lost(), 1);
        assert_eq!(bench.pipeline.trouble(), None, "what we purged ourselves is no failure of Kafka's");
    }

    #[test]
    fn without_the_lease_and_with_nothing_in_flight_the_session_is_left_at_once() {
        let mut bench = Bench::ready();
        assert_eq!(bench.at(20.0).actions(), [Action::Reconnect(Why::LeaseLost)]);
        assert_eq!(bench.at(21.0).actions(), []);
        assert_eq!(bench.begin(200), Flow::Held, "a session that is left gives nothing more");
    }

    #[test]
    fn a_server_that_waits_for_us_is_let_go_within_the_grace_though_kafka_is_down() {
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!((bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken));
        for ping in 0..8 {
            bench.at(f64::from(ping) * 0.1).keepalive(210, true);
            assert_eq!(bench.actions(), []);
        }
        assert_eq!(bench.at(5.6).actions(), []);
        assert_eq!(bench.at(5.7).actions(), [Action::Reconnect(Why::Release)]);
        bench.ack();
        assert_eq!(bench.pipeline.confirmed(), Lsn(210));
    }

    #[test]
    fn a_server_in_smart_shutdown_is_not_left_while_somebody_commits() {
        let mut bench = Bench::ready();
        bench.pipeline.server_stopping(bench.now);
        for second in 0..=2 {
            bench.at(f64::from(second) * 4.0);
            bench.pipeline.proved(bench.now);
            let commit = 200 + 10 * second as u64;
            bench.begin_dated(commit, bench.server_clock());
            assert_eq!((bench.row(), bench.commit(commit + 1), bench.actions()), (Flow::Taken, Flow::Taken, vec![]));
        }
        assert_eq!(bench.at(12.9).actions(), [], "a grace after the last commit, at 8 s");
        assert_eq!(bench.at(13.0).actions(), [Action::Reconnect(Why::Release)]);
        (0..3).for_each(|_| bench.ack());
    }

    #[test]
    fn pings_with_data_or_progress_between_them_let_nobody_go() {
        let mut bench = Bench::ready();
        for round in 1..20 {
            bench.keepalive(100, true);
            assert_eq!((bench.begin(round * 1000), bench.commit(round * 1000 + 1)), (Flow::Taken, Flow::Taken));
        }
        bench.pipeline.proved(bench.start + Duration::from_secs(10));
        assert_eq!(bench.at(10.0).actions(), []);
    }

    #[test]
    fn a_keepalive_inside_a_transaction_is_answered_and_is_no_mark() {
        let mut bench = Bench::ready();
        bench.keepalive(150, false);
        assert_eq!(bench.pipeline.confirmed(), Lsn(150));
        bench.begin(200);
        bench.keepalive(300, false);
        assert_eq!((bench.pipeline.confirmed(), bench.pipeline.received()), (Lsn(150), Lsn(300)));
        bench.commit(210);
        assert_eq!(bench.pipeline.confirmed(), Lsn(210));
    }

    #[test]
    fn a_stop_between_transactions_reads_nothing_more() {
        let mut bench = Bench::ready();
        bench.begin(200);
        bench.row();
        bench.commit(210);
        bench.pipeline.stop(bench.now);
        assert_eq!((bench.begin(300), bench.actions()), (Flow::Held, vec![]));
        bench.ack();
        assert_eq!((bench.actions(), bench.pipeline.repeats()), (vec![Action::Stop], 1), "nobody has heard of it yet");
        assert_eq!((bench.actions(), bench.pipeline.confirmed(), bench.repeats_when_told()), (vec![], Lsn(210), 0));
    }

    #[test]
    fn a_stop_inside_a_transaction_reads_it_to_its_end_and_a_halt_does_not() {
        let mut bench = Bench::ready();
        bench.begin(200);
        bench.row();
        bench.ack();
        bench.pipeline.stop(bench.now);
        assert_eq!((bench.actions(), bench.row(), bench.commit(210)), (vec![], Flow::Taken, Flow::Taken));
        bench.ack();
        assert_eq!((bench.actions(), bench.repeats_when_told()), (vec![Action::Stop], 0));

        let mut bench = Bench::ready();
        bench.begin(200);
        bench.row();
        bench.ack();
        bench.pipeline.stop(bench.now);
        bench.pipeline.halt(bench.now);
        assert_eq!(bench.row(), Flow::Held);
        assert_eq!((bench.actions(), bench.repeats_when_told()), (vec![Action::Stop], 1));
    }

    #[test]
    fn a_stop_ends_in_time_whatever_does_not_answer() {
        let mut bench = Bench::ready();
        bench.begin(200);
        bench.row();
        bench.pipeline.stop(bench.now);
        bench.pipeline.proved(bench.start + Duration::from_secs(19));
        assert_eq!(bench.at(19.9).actions(), []);
        assert_eq!((bench.at(20.0).actions(), bench.repeats_when_told()), (vec![Action::Stop], 1));
    }

    #[test]
    fn a_refused_row_is_offered_again_at_the_same_place_and_nothing_behind_it() {
        let mut bench = Bench::ready();
        bench.begin(200);
        for refuse in [Refused::Full, Refused::Unready] {
            bench.shelf.refuse = Some(refuse);
            assert_eq!((bench.row(), bench.row()), (Flow::Held, Flow::Held));
        }
        bench.shelf.refuse = None;
        assert_eq!((bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken));
        assert_eq!(bench.pipeline.ledger().newest().map(|position| position.row), Some(1));
        bench.ack();
        assert_eq!(bench.pipeline.confirmed(), Lsn(210));
    }

    #[test]
    fn a_broken_producer_is_replaced_and_what_it_lost_is_sent_again_and_nothing_else() {
        let mut bench = Bench::ready();
        bench.begin(200);
        (0..2).for_each(|_| assert_eq!(bench.row(), Flow::Taken));
        bench.shelf.refuse = Some(|ticket| Refused::Fatal(ticket, "broken".into()));
        assert_eq!(bench.row(), Flow::Held);
        bench.shelf.refuse = None;
        assert_eq!((bench.row(), bench.pipeline.is_recovering()), (Flow::Held, true));
        assert_eq!(bench.actions(), [Action::Purge(Purge::Queued)]);
        bench.ack();
        assert_eq!(bench.actions(), []);
        bench.fail(Whose::World);
        assert_eq!(bench.actions(), [Action::Purge(Purge::Everything), Action::NewProducer]);
        bench.pipeline.producer_ready(bench.now);
        assert_eq!(bench.at(0.19).actions(), []);
        assert_eq!(bench.at(0.2).actions(), [Action::Reconnect(Why::Replay)]);
        bench.pipeline.session_lost();
        bench.session(100);
        bench.pipeline.claimed();
        bench.begin(200);
        (0..3).for_each(|_| assert_eq!(bench.row(), Flow::Taken));
        assert_eq!(bench.shelf.taken.len(), 2, "the first row was settled before");
        bench.commit(210);
        (0..2).for_each(|_| bench.ack());
        assert_eq!((bench.pipeline.confirmed(), bench.pipeline.trouble()), (Lsn(210), None));
    }

    #[test]
    fn what_a_broken_producer_had_queued_may_land_so_nothing_is_handed_over_for_a_while() {
        let bench = Bench::after_a_failure();
        assert_eq!(bench.pipeline.ledger().inflight(), 0);
        let timeout = bench.pipeline.settings.sender_timeout;
        assert!(!bench.pipeline.may_hand_over(bench.now + timeout - Duration::from_millis(1)));
        assert!(bench.pipeline.may_hand_over(bench.now + timeout));
    }

    #[test]
    fn what_a_replaced_producer_had_may_land_until_long_after_it_is_taken_apart() {
        let mut bench = Bench::after_a_failure();
        assert_eq!(bench.actions(), [Action::Purge(Purge::Everything), Action::NewProducer]);
        // Nobody knows how long a thread sleeps between what was decided and what is done.
        let timeout = bench.pipeline.settings.sender_timeout;
        let woken = bench.now + timeout * 2;
        assert!(!bench.pipeline.may_hand_over(woken));
        bench.pipeline.retired(woken);
        assert!(!bench.pipeline.may_hand_over(woken + timeout - Duration::from_millis(1)));
        assert!(bench.pipeline.may_hand_over(woken + timeout));
    }

    /// A pipeline that may offer, whose letters go to the database, where there are none yet.
    fn with_letters(order: config::Order) -> Bench {
        let mut bench = Bench::with(config::Store::Postgres, order);
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.claimed();
        let from = Position { commit: Lsn(100), row: 0 };
        assert_eq!(bench.actions(), [Action::LoadLetters { serial: 2, from }]);
        bench.begin(200);
        assert_eq!(bench.row(), Flow::Held, "nobody knows whether it has a letter");
        bench.load(Vec::new(), Vec::new());
        bench
    }

    fn too_large(ticket: Ticket) -> Refused {
        Refused::Event(ticket, Problem { reason: "too_large", message: "no".into() })
    }

    #[test]
    fn a_rejected_row_is_settled_when_its_letter_is_stored_and_the_line_goes_on_meanwhile() {
        let mut bench = with_letters(config::Order::Skip);
        bench.shelf.refuse = Some(too_large);
        assert_eq!(bench.row(), Flow::Taken);
        bench.shelf.refuse = None;
        assert_eq!((bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken));
        let [Action::Park(1, letter)] = &bench.actions()[..] else { panic!("one letter") };
        assert_eq!(
            (letter.event.as_deref(), letter.rejection.reason, letter.columns.len()),
            (Some("1"), "too_large", 1)
        );
        assert_eq!(letter.lane.topic.as_deref(), Some("outbox.event.a"));
        bench.ack();
        assert_eq!(bench.pipeline.confirmed(), Lsn(100));
        assert!(bench.pipeline.stored(1).is_some());
        assert_eq!((bench.pipeline.confirmed(), bench.pipeline.stored(1).is_none()), (Lsn(210), true));
    }

    #[test]
    fn a_row_that_has_a_letter_is_not_published_whatever_it_would_be_now() {
        let mut bench = Bench::with(config::Store::Postgres, config::Order::Skip);
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.claimed();
        bench.actions();
        let letter = |row, is_current, event: &str| KnownLetter {
            position: Position { commit: Lsn(200), row },
            is_current,
            event: Some(event.into()),
            fate: Fate::Published,
        };
        // In another history, the position alone tells nothing.
        bench.load(vec![letter(1, true, "?"), letter(2, false, "1"), letter(3, false, "?")], Vec::new());
        bench.begin(200);
        assert_eq!([bench.row(), bench.row(), bench.row()], [Flow::Taken; 3]);
        assert_eq!((bench.shelf.taken.len(), bench.commit(210)), (1, Flow::Taken));
        bench.ack();
        assert_eq!(bench.pipeline.confirmed(), Lsn(210));
    }

    #[test]
    fn with_park_key_later_rows_wait_behind_the_parked_one_until_the_store_has_none() {
        let mut bench = with_letters(config::Order::ParkKey);
        bench.shelf.refuse = Some(too_large);
        assert_eq!(bench.row(), Flow::Taken);
        bench.shelf.refuse = None;
        assert_eq!(bench.row(), Flow::Taken);
        let reasons: Vec<_> = bench
            .actions()
            .into_iter()
            .map(|action| match action {
                Action::Park(_, letter) => letter.rejection.reason,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((reasons, bench.shelf.taken.len()), (vec!["too_large", BEHIND], 0));
        bench.pipeline.stored(1);
        bench.pipeline.lanes_open(&[]);
        assert_eq!((bench.row(), bench.shelf.taken.len()), (Flow::Taken, 0), "the second is on its way to the store");
        bench.pipeline.stored(2);
        bench.pipeline.stored(3);
        bench.pipeline.lanes_open(&[]);
        assert_eq!((bench.row(), bench.shelf.taken.len()), (Flow::Taken, 1));
        bench.ack();
    }

    #[test]
    fn a_trial_that_is_given_up_with_its_history_is_passed_by_none_of_its_claim() {
        let mut bench = with_letters(config::Order::ParkKey);
        bench.shelf.refuse = Some(too_large);
        assert_eq!((bench.row(), bench.row(), bench.commit(210)), (Flow::Taken, Flow::Taken, Flow::Taken));
        bench.shelf.refuse = None;
        let claimed: Vec<Claimed> = bench
            .actions()
            .into_iter()
            .filter_map(|action| match action {
                Action::Park(number, letter) => Some((number, letter)),
                _ => None,
            })
            .map(|(number, letter)| Claimed {
                id: number.cast_signed(),
                owner: "claim".into(),
                attempts: 1,
                is_current: true,
                lane: letter.lane,
                origin: letter.origin,
                event: letter.event,
                position: letter.position,
                committed_at: letter.committed_at,
                columns: letter.columns,
                not_kept: letter.not_kept,
            })
            .collect();
        let [first, second] = &claimed[..] else { panic!("two letters of one key") };
        for number in 1..=2 {
            bench.pipeline.stored(number);
        }
        assert!(bench.pipeline.try_again(first, bench.now, &mut bench.shelf));
        assert_eq!(bench.shelf.tried, [1]);

        bench.pipeline.session_lost();
        bench.session_after(LastHolder::NotOurs, 300);
        bench.pipeline.claimed();
        let from = Position { commit: Lsn(300), row: 0 };
        assert_eq!(bench.actions(), [Action::AbandonTrial, Action::LoadLetters { serial: 3, from }]);
        let (letters, lanes) = (Vec::new(), Vec::new());
        bench.pipeline.letters_loaded(Loaded { serial: 3, letters, until: None, lanes, pause: None });
        assert_eq!(bench.pipeline.may_try(bench.now), Some(Position { commit: Lsn(300), row: 0 }));
        assert!(bench.pipeline.try_again(second, bench.now, &mut bench.shelf));
        assert_eq!(bench.shelf.tried, [1], "the first may land after it");
        assert!(matches!(&bench.actions()[..], [Action::SettleLetter { id: 2, outcome: Outcome::PutBack, .. }]));
    }

    /// A reload that changes numbers of letters only.
    fn reload(bench: &mut Bench, change: impl FnOnce(&mut config::DeadLetters)) {
        let mut dead_letter = bench.pipeline.settings.dead_letter.clone();
        change(&mut dead_letter);
        bench.pipeline.reload(Reload { rules: config::Rules::default(), dead_letter }, bench.now);
    }

    #[test]
    fn a_line_that_stands_for_too_much_is_judged_anew_when_a_reload_raises_max_rate() {
        let mut bench = with_letters(config::Order::Skip);
        bench.shelf.refuse = Some(too_large);
        for number in 1..=100 {
            assert_eq!(bench.row(), Flow::Taken);
            bench.pipeline.stored(number);
        }
        bench.actions();
        let stands = |bench: &mut Bench, percent: &str| {
            assert_eq!(bench.row(), Flow::Held);
            let [Action::Pause(message)] = &bench.actions()[..] else { panic!("the line stands") };
            assert!(message.starts_with(percent), "{message}");
        };
        stands(&mut bench, "more than 20 %");
        bench.pipeline.session_lost();
        reload(&mut bench, |letters| letters.max_rate = 10);
        assert_eq!((bench.actions(), bench.pipeline.paused().is_some()), (vec![], true), "a lower limit frees nobody");
        reload(&mut bench, |letters| letters.max_rate = 50);
        assert_eq!((bench.actions(), bench.pipeline.paused()), (vec![Action::Unpause], None));
        bench.session(100);
        bench.pipeline.claimed();
        bench.begin(200);
        (0..100).for_each(|_| assert_eq!(bench.row(), Flow::Taken));
        stands(&mut bench, "more than 50 %");
        bench.at(2.0);
        reload(&mut bench, |letters| letters.max_rate = 100);
        assert_eq!(bench.actions(), [Action::Unpause]);
        assert_eq!(bench.row(), Flow::Taken);
        assert!(matches!(&bench.actions()[..], [Action::Park(101, _)]));
    }

    #[test]
    fn a_line_that_stands_for_too_many_keys_goes_on_when_a_reload_raises_max_parked_keys() {
        let mut bench = Bench::with(config::Store::Postgres, config::Order::ParkKey);
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.claimed();
        bench.actions();
        let lane = |key: &str| OpenLane { topic: "a".into(), key: key.into(), first: None };
        bench.load(Vec::new(), vec![lane("x"), lane("y")]);
        bench.begin(200);
        bench.shelf.refuse = Some(too_large);
        assert_eq!((bench.row(), bench.pipeline.waits_for_keys()), (Flow::Held, true));
        reload(&mut bench, |letters| letters.max_rate = 100);
        assert!(bench.pipeline.waits_for_keys(), "that is another number");
        reload(&mut bench, |letters| letters.max_parked_keys = 3);
        assert_eq!(bench.pipeline.paused(), None);
        assert_eq!(bench.row(), Flow::Taken);
        assert!(matches!(&bench.actions()[..], [Action::Park(1, _)]), "and nothing was written of a pause");
    }

    /// A table's description, all of text.
    fn described(oid: u32, name: &str, columns: &[&str]) -> Vec<u8> {
        let head = [b"R", &oid.to_be_bytes()[..], b"app\0", name.as_bytes(), b"\0d"].concat();
        let column = |name: &&str| [b"\0", name.as_bytes(), b"\0", &25_u32.to_be_bytes(), &[0xFF; 4]].concat();
        let columns: Vec<u8> =
            (columns.len() as u16).to_be_bytes().into_iter().chain(columns.iter().flat_map(column)).collect();
        [head, columns].concat()
    }

    fn inserted(oid: u32, values: &[&str]) -> Vec<u8> {
        let value = |text: &&str| [b"b", &(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
        let head = [b"I", &oid.to_be_bytes()[..], b"N", &(values.len() as u16).to_be_bytes()].concat();
        head.into_iter().chain(values.iter().flat_map(value)).collect()
    }

    /// Shows a frame, and stores every letter at once. Answers with what else is to be done.
    fn shown(bench: &mut Bench, frame: &[u8], stored: &mut u64) -> (Flow, Vec<Action>) {
        let flow = bench.data(frame).unwrap();
        let mut actions = bench.actions();
        for action in actions.extract_if(.., |action| matches!(action, Action::Park(..))) {
            let Action::Park(number, letter) = action else { continue };
            assert_eq!(letter.rejection.reason, PAYLOAD_MISSING);
            bench.pipeline.stored(number);
            *stored = number;
        }
        (flow, actions)
    }

    #[test]
    fn events_that_are_given_up_for_limits_join_do_not_stop_the_line_and_those_without_a_payload_do() {
        let mut bench = with_letters(config::Order::Skip);
        let mut stored = 0;
        for table in [described(5, "events", &["id", "kind", "body"]), described(6, "bodies", &["key", "payload"])] {
            assert_eq!(bench.data(&table).unwrap(), Flow::Taken);
        }
        // The payloads come behind all events, more than may wait.
        for n in 0..500 {
            let event = inserted(5, &[&n.to_string(), "a", &n.to_string()]);
            assert_eq!(shown(&mut bench, &event, &mut stored), (Flow::Taken, vec![]), "event {n}");
        }
        assert_eq!(shown(&mut bench, &inserted(6, &["499", "p"]), &mut stored), (Flow::Taken, vec![]));
        assert_eq!((stored, bench.pipeline.paused()), (496, None), "four may wait");
        let commit = |end: u64| [b"C\0", &[0; 8][..], &end.to_be_bytes(), &[0; 8]].concat();
        while shown(&mut bench, &commit(210), &mut stored).0 == Flow::Held {}
        bench.ack();
        while bench.pipeline.paused().is_none() && stored < 1000 {
            let place = 300 + stored;
            bench.begin(place);
            bench.data(&inserted(5, &["1", "a", "nowhere"])).unwrap();
            shown(&mut bench, &commit(place), &mut stored);
        }
        let why = bench.pipeline.paused().unwrap_or("it goes on");
        assert!(why.contains("more than 20 %") && why.contains("is not in its transaction"), "{why}");
    }

    #[test]
    fn a_row_before_letters_that_are_not_loaded_yet_waits_for_no_key() {
        let mut bench = Bench::with(config::Store::Postgres, config::Order::ParkKey);
        bench.session_after(LastHolder::NotOurs, 100);
        bench.pipeline.claimed();
        bench.actions();
        let lane = |key: &str| OpenLane { topic: "a".into(), key: key.into(), first: None };
        let (lanes, until) = (vec![lane("x"), lane("y")], Some(Position { commit: Lsn(300), row: 1 }));
        bench.pipeline.letters_loaded(Loaded { serial: 2, letters: Vec::new(), until, lanes, pause: None });
        bench.begin(200);
        bench.shelf.refuse = Some(too_large);
        assert_eq!(bench.row(), Flow::Taken, "what frees a key may stand behind it");
        assert!(matches!(&bench.actions()[..], [Action::Park(1, _)]));
    }

    #[test]
    fn a_full_window_holds_the_next_row_until_the_oldest_is_settled() {
        let mut bench = Bench::ready();
        bench.begin(200);
        (0..3).for_each(|_| assert_eq!(bench.row(), Flow::Taken));
        assert_eq!(bench.row(), Flow::Held);
        bench.ack();
        assert_eq!(bench.row(), Flow::Taken);
        (0..3).for_each(|_| bench.ack());
    }

    #[test]
    fn a_column_that_needs_text_changes_the_session_and_binary_comes_back_when_it_can() {
        let relation = |oid: u32| {
            let column = |name: &[u8], oid: u32| [b"\0", name, b"\0", &oid.to_be_bytes()[..], &[0xFF; 4]].concat();
            let columns = [column(b"id", oid), column(b"kind", 25), column(b"payload", 25)].concat();
            [&b"R\0\0\0\x05app\0outbox\0d\0\x03"[..], &columns].concat()
        };
        let mut bench = Bench::ready();
        bench.begin(200);
        assert_eq!(bench.data(&relation(1700)).unwrap(), Flow::Held);
        let column = "column \"id\" of table \"app.outbox\"".to_owned();
        assert_eq!(bench.actions(), [Action::Reconnect(Why::Text(column))]);
        bench.session(100);
        bench.begin(200);
        assert_eq!(bench.data(&relation(1700)).unwrap(), Flow::Taken);
        bench.commit(210);
        assert_eq!(bench.pipeline.encoding(), Encoding::Text);
        bench.begin(300);
        assert_eq!(bench.data(&relation(20)).unwrap(), Flow::Taken);
        bench.commit(310);
        assert_eq!((bench.pipeline.encoding(), bench.actions()), (Encoding::Binary, vec![]));
    }

    #[test]
    fn a_missing_publication_is_a_definite_error_and_other_notices_are_not() {
        let mut bench = Bench::ready();
        let mut notice =
            |code, message| bench.pipeline.frame(Frame::Notice { code, message }, bench.now, &mut bench.shelf);
        assert_eq!(notice("55000", "something else").unwrap(), Flow::Taken);
        assert!(notice("55000", "skipped loading publication \"outboxd\"").unwrap_err().is_definite());
    }
}
