//! A scripted Kafka: topics that take records for good, and idempotent producers whose batches land, fail, or lose their
//! answer.
//!
//! A producer keeps what librdkafka keeps: order inside a partition, nothing behind a failure in its partition
//! (gapless), and exactly one report for each record that it took. Whatever lands is shown to the oracle at once, so a
//! violation points at the step that made it.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::{Duration, Instant};

use outboxd::ledger::Ticket;
use outboxd::record::Record;
use outboxd::sink::{Failure, Problem, Purge, Refused, Sink, Untried, Whose};

use crate::dice::Dice;
use crate::oracle::{self, Fact, Judge};
use crate::rules::{self, NO_REMARK};
use crate::server::{self, Event, Events, TOPICS};
use crate::store::Store;

const PARTITIONS: u64 = 2;
const LANES: usize = (TOPICS * PARTITIONS) as usize;
/// A producer's queue.
const QUEUE: usize = 12;
/// Batches on the wire for each partition.
const PIPELINED: usize = 2;

/// What may go wrong at the broker, each in percent of batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lost_answer: u64,
    pub world: u64,
    pub set_up: u64,
    /// In percent of offers: the producer breaks.
    pub fatal: u64,
}

/// The cluster and its topics, as the oracle sees them.
pub struct Cluster {
    pub events: Events,
    pub judge: Judge<'static>,
    pub faults: Faults,
    pub unready: [bool; TOPICS as usize],
    pub full: bool,
    /// The brokers take nothing and answer nothing until then; what is on the wire stays there.
    pub stalled_until: Instant,
    /// Refused by the broker, with its whole batch, until somebody mends it.
    pub poison: HashSet<u64>,
    /// Refused at the offer until somebody mends it.
    pub unfit: HashSet<u64>,
    /// What brokers have refused, and by which edition of the rules it was made.
    pub refused: HashSet<(u64, u64)>,
    /// Events without their payload, which should be in another table.
    pub bodiless: HashSet<u64>,
    /// Events whose payload is there, and may come too late or too early: more may have to wait than the limits allow.
    pub crowded: HashSet<u64>,
    /// All of them, from the beginning.
    pub spoiled: HashSet<u64>,
    /// The parking lot.
    pub store: Store,
    /// What processes that were told to stop have said: while the slot does not go back, it holds.
    pub farewells: Vec<Farewell>,
    pub offers: u64,
    /// What misfortunes have led to.
    pub felt: BTreeSet<&'static str>,
    /// Purged on the wire: may still be appended, out of turn.
    late: Vec<Purged>,
    orphans: Vec<Orphans>,
}

/// The end of a process that was told to stop.
pub struct Farewell {
    /// What it had settled, and nobody has offered since.
    pub settled: HashSet<u64>,
    /// How many of these may still be, by its own word.
    pub announced: u64,
}

/// The producer of one process.
pub struct Producer {
    lanes: [Lane; LANES],
    broken: bool,
    /// Reports of former producers.
    stale: Vec<Report>,
    /// Offered to this producer and not answered.
    open: HashSet<u64>,
    /// Acknowledged to this process, in this history.
    pub settled: HashSet<u64>,
    /// The dead letter that is being tried.
    trial: Option<Trial>,
    trials: VecDeque<(i64, Result<(), Failure>)>,
    rolls: Dice,
}

/// The record of a dead letter, on its way.
struct Trial {
    letter: i64,
    event: u64,
    record: oracle::Record,
}

/// A ticket's report, on its way to the pipeline.
#[derive(Debug)]
pub struct Report {
    event: u64,
    ticket: (u64, u32),
    /// `None`: acknowledged.
    pub failure: Option<Failure>,
}

impl Report {
    pub fn ticket(&self) -> Ticket {
        Ticket::from_parts(self.ticket.0, self.ticket.1)
    }
}

type Batch = Vec<Pending>;

#[derive(Debug)]
struct Pending {
    event: u64,
    ticket: (u64, u32),
    /// Of the rules that made it.
    edition: u64,
    record: oracle::Record,
}

/// What a process had on the wire to one partition when it died. It may be appended in its turn while nobody else can be
/// publishing, and out of turn like anything that was purged afterwards.
struct Orphans {
    process: u64,
    until: Instant,
    batches: VecDeque<Batch>,
}

/// A record that its producer has given up.
struct Purged {
    process: u64,
    at: Instant,
    record: oracle::Record,
}

#[derive(Debug, Default)]
struct Lane {
    queued: VecDeque<Pending>,
    wire: VecDeque<Batch>,
    reports: VecDeque<Report>,
    /// A batch of this lane failed: nothing behind it is appended.
    severed: bool,
}

impl Lane {
    fn fail(&mut self, batch: impl IntoIterator<Item = Pending>, whose: Whose) {
        self.reports.extend(batch.into_iter().map(|Pending { event, ticket, record, .. }| {
            let failure = Failure { whose, topic: record.place.0, message: "no".into(), too_large: false };
            Report { event, ticket, failure: Some(failure) }
        }));
    }
}

/// When offers are allowed, as the world sees it.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    pub now: Instant,
    /// The end of the lease by the proofs that the pipeline was given.
    pub lease_end: Instant,
    pub fence_end: Instant,
    /// When a successor that waits one sender timeout could offer at the earliest.
    pub successor: Instant,
    /// The session is over, and what it had brought is being read.
    pub severed: bool,
    /// Of the rules that make records.
    pub edition: u64,
}

impl Cluster {
    pub fn new(faults: Faults, settles_delivered: bool, now: Instant) -> Cluster {
        Cluster {
            events: Events::new(),
            judge: Judge::default(),
            faults,
            unready: [false; TOPICS as usize],
            full: false,
            stalled_until: now,
            poison: HashSet::new(),
            unfit: HashSet::new(),
            refused: HashSet::new(),
            bodiless: HashSet::new(),
            crowded: HashSet::new(),
            spoiled: HashSet::new(),
            store: Store::new(settles_delivered),
            farewells: Vec::new(),
            offers: 0,
            felt: BTreeSet::new(),
            late: Vec::new(),
            orphans: Vec::new(),
        }
    }

    /// A fault begins: the oracle puts repeats down to it.
    pub fn disturbed(&mut self, fault: &str) {
        self.judge.observe(&Fact::Disturbed(fault.to_string()));
    }

    /// A misfortune has led to this.
    pub fn felt(&mut self, effect: &'static str) {
        self.felt.insert(effect);
    }

    /// What nobody waits for any more is appended after all: a record that was purged on the wire, or a batch whose
    /// process is gone.
    pub fn land_late(&mut self, now: Instant, dice: &mut Dice) {
        if !self.late.is_empty() {
            let purged = self.late.swap_remove(dice.index(self.late.len()));
            self.judge.observe(&Fact::Late(purged.record));
            self.felt("purged record landed");
        }
        for Orphans { process, until: at, batches } in self.orphans.extract_if(.., |orphans| now >= orphans.until) {
            let records = batches.into_iter().flatten().map(|pending| pending.record);
            self.late.extend(records.map(|record| Purged { process, at, record }));
        }
        self.orphans.retain(|orphans| !orphans.batches.is_empty());
        if !self.orphans.is_empty() {
            let at = dice.index(self.orphans.len());
            let batch = self.orphans[at].batches.pop_front().expect("none is empty");
            if self.is_poisoned(&batch) || dice.once_in(4) {
                // Nothing behind a failure is appended.
                self.orphans[at].batches.clear();
            } else {
                self.append(batch);
                self.felt("orphan landed");
            }
        }
    }

    /// A producer of this process is taken apart: until now, it may have sent what it was told to purge.
    pub fn retired(&mut self, process: u64, now: Instant) {
        self.late.iter_mut().filter(|purged| purged.process == process).for_each(|purged| purged.at = now);
    }

    /// True while what this process purged lately is on its way.
    pub fn may_land(&self, process: u64, now: Instant) -> bool {
        self.late.iter().any(|purged| purged.process == process && now < purged.at + LAND_WITHIN)
    }

    fn is_poisoned(&self, batch: &Batch) -> bool {
        !self.poison.is_empty() && batch.iter().any(|pending| self.poison.contains(&pending.event))
    }

    fn refuse(&mut self, batch: &Batch) {
        let guilty = batch.iter().filter(|pending| self.poison.contains(&pending.event));
        self.refused.extend(guilty.map(|pending| (pending.event, pending.edition)));
    }

    fn append(&mut self, batch: Batch) {
        for pending in batch {
            self.judge.observe(&Fact::Arrived(pending.record));
        }
    }

    fn check(&mut self, event: &Event, record: &Record<'_>, gate: Gate) {
        let position = header(record, "lsn");
        promised!(position == Some(&event.position.to_string()), "offered with position {position:?}: {event:?}");
        promised!(record.value == Some(event.id.to_string().as_bytes()), "offered with another value: {event:?}");
        promised!(
            header(record, rules::EDITION) == Some(&gate.edition.to_string()),
            "made by other rules than those of edition {}: {event:?}",
            gate.edition
        );
        let remark = if event.has_remark { server::REMARK } else { NO_REMARK };
        let remark = rules::shows_remark(gate.edition).then_some(remark);
        promised!(header(record, rules::REMARK) == remark, "offered without its remark: {event:?}");
        if remark == Some(server::REMARK) {
            self.felt("remark shown");
        }
        promised!(!event.void || gate.severed, "offered out of another history: {event:?}");
        promised!(gate.now < gate.lease_end, "offered without the lease: {event:?}");
        promised!(gate.now >= gate.fence_end, "offered before the fence opened: {event:?}");
        promised!(gate.now < gate.successor, "offered when a successor could have: {event:?}");
    }
}

impl Producer {
    pub fn new(seed: u64) -> Producer {
        Producer {
            lanes: Default::default(),
            broken: false,
            stale: Vec::new(),
            open: HashSet::new(),
            settled: HashSet::new(),
            trial: None,
            trials: VecDeque::new(),
            rolls: Dice::new(seed),
        }
    }

    /// The record of a letter arrives at its broker, or not.
    fn work_trial(&mut self, cluster: &mut Cluster, dice: &mut Dice) {
        let Some(Trial { letter, event, record }) = self.trial.take() else { return };
        let Faults { lost_answer, world, .. } = cluster.faults;
        let roll = dice.below(100);
        let failure = |whose| Failure { whose, topic: record.place.0.clone(), message: "no".into(), too_large: false };
        let result = if cluster.poison.contains(&event) {
            cluster.felt("trial refused");
            Err(failure(Whose::Event))
        } else if roll < lost_answer + world {
            if roll < lost_answer {
                cluster.judge.observe(&Fact::Arrived(record.clone()));
            }
            cluster.disturbed("failed trial");
            Err(failure(Whose::World))
        } else {
            cluster.judge.observe(&Fact::Arrived(record.clone()));
            cluster.felt("letter delivered");
            Ok(())
        };
        self.trials.push_back((letter, result));
    }

    /// What became of a trial.
    pub fn tried(&mut self) -> Option<(i64, Result<(), Failure>)> {
        self.trials.pop_front()
    }

    /// The trial is given up; its record may land all the same.
    pub fn abandon(&mut self, process: u64, at: Instant, cluster: &mut Cluster) {
        self.trials.clear();
        if let Some(trial) = self.trial.take() {
            cluster.felt("trial given up");
            cluster.disturbed("trial given up");
            cluster.late.push(Purged { process, at, record: trial.record });
        }
    }

    /// A batch leaves the queue, or arrives at its broker; false when there was none.
    pub fn work(&mut self, cluster: &mut Cluster, now: Instant, dice: &mut Dice) -> bool {
        if self.trial.is_some() && now >= cluster.stalled_until && dice.hits(4) {
            self.work_trial(cluster, dice);
            return true;
        }
        let lane = &mut self.lanes[dice.index(LANES)];
        if lane.wire.is_empty() || dice.hits(50) {
            let sends = !self.broken && lane.wire.len() < PIPELINED && !lane.queued.is_empty();
            if sends {
                let size = dice.between(1, lane.queued.len() as u64) as usize;
                lane.wire.push_back(lane.queued.drain(..size).collect());
            }
            return sends;
        }
        if now < cluster.stalled_until {
            cluster.felt("batch stalled");
            return false;
        }
        let batch = lane.wire.pop_front().expect("there is one");
        let Faults { lost_answer, world, set_up, .. } = cluster.faults;
        let roll = dice.below(100);
        let failure = if lane.severed {
            Some(Whose::World)
        } else if cluster.is_poisoned(&batch) {
            cluster.refuse(&batch);
            Some(Whose::Event)
        } else if roll < lost_answer + world {
            Some(Whose::World)
        } else if roll < lost_answer + world + set_up {
            Some(Whose::SetUp)
        } else {
            None
        };
        let Some(whose) = failure else {
            let report = |pending: &Pending| Report { event: pending.event, ticket: pending.ticket, failure: None };
            lane.reports.extend(batch.iter().map(report));
            cluster.append(batch);
            return true;
        };
        if !lane.severed {
            let lost_answer = whose == Whose::World && roll < lost_answer;
            if lost_answer {
                batch.iter().for_each(|pending| cluster.judge.observe(&Fact::Arrived(pending.record.clone())));
            }
            cluster.disturbed(if lost_answer { "lost answer" } else { "failed delivery" });
            cluster.felt(match whose {
                Whose::World if lost_answer => "answer lost",
                Whose::World => "delivery failed",
                Whose::SetUp => "delivery forbidden",
                Whose::Event => "event refused",
            });
        }
        self.broken = true;
        lane.severed = true;
        lane.fail(batch, whose);
        true
    }

    /// A report, in order for each partition and in any order across them.
    pub fn report(&mut self, generation: u32, dice: &mut Dice) -> Option<Report> {
        let report = self.lanes[dice.index(LANES)].reports.pop_front()?;
        if report.ticket.1 == generation {
            self.open.remove(&report.event);
        }
        Some(report)
    }

    /// The pipeline has counted this report. Answers with its event.
    pub fn settle(&mut self, report: &Report) -> u64 {
        self.settled.insert(report.event);
        report.event
    }

    /// A former producer's report comes after all.
    pub fn stale(&mut self, dice: &mut Dice) -> Option<Report> {
        let at = dice.index(self.stale.len());
        (!self.stale.is_empty()).then(|| self.stale.swap_remove(at))
    }

    pub fn purge(&mut self, purge: Purge, process: u64, at: Instant, cluster: &mut Cluster) {
        for lane in &mut self.lanes {
            let mut gone: Batch = Vec::new();
            if purge == Purge::Everything {
                gone.extend(lane.wire.drain(..).flatten());
                let copy = |pending: &Pending| Purged { process, at, record: pending.record.clone() };
                cluster.late.extend(gone.iter().map(copy));
            }
            gone.extend(lane.queued.drain(..));
            lane.fail(gone, Whose::World);
        }
        // What is purged and not reported as appended must not be followed by what was queued behind it.
        self.broken = true;
    }

    /// Another producer; what the old one has not reported comes late or never.
    pub fn renew(&mut self, process: u64, at: Instant, cluster: &mut Cluster) {
        for lane in &mut self.lanes {
            let gone = lane.wire.drain(..).flatten();
            cluster.late.extend(gone.map(|pending| Purged { process, at, record: pending.record }));
            self.stale.extend(lane.reports.drain(..));
            *lane = Lane::default();
        }
        self.broken = false;
        self.open.clear();
    }

    /// The process is gone, with all that it knew; what it had sent may still be appended, in order until then.
    pub fn orphan(mut self, process: u64, cluster: &mut Cluster, until: Instant) {
        self.abandon(process, until, cluster);
        for lane in self.lanes.into_iter().filter(|lane| !lane.severed) {
            cluster.orphans.push(Orphans { process, until, batches: lane.wire });
        }
    }

    /// True while a broker has not answered for something.
    pub fn is_sending(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.wire.is_empty())
    }

    /// True while a broker has not answered for a dead letter.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// True while something is on its way.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// True when this event is on its way here.
    pub fn has(&self, event: u64) -> bool {
        self.open.contains(&event)
    }
}

/// How long what a dead process had sent may take to land, and how long what a living one has purged keeps it from leaving a
/// clean mark, though that may land at any time: less than a successor waits.
pub const LAND_WITHIN: Duration = Duration::from_secs(2);

/// One process's way to the cluster, while the gate is as it is.
pub struct Door<'a> {
    pub producer: &'a mut Producer,
    pub cluster: &'a mut Cluster,
    pub gate: Gate,
}

impl Sink for Door<'_> {
    fn offer(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), Refused> {
        let Door { producer, cluster, gate } = self;
        let id: u64 = header(record, "id").expect("of every record").parse().expect("a number");
        let Some(event) = cluster.events.get(id as usize).cloned() else {
            broken!("{id} was offered and never committed")
        };
        cluster.check(&event, record, *gate);
        promised!(!producer.open.contains(&id), "offered while in flight: {event:?}");
        promised!(!cluster.store.has(id) || gate.severed, "offered although it is parked: {event:?}");
        promised!(!producer.settled.contains(&id), "offered again after its acknowledgement: {event:?}");
        for farewell in cluster.farewells.iter_mut().filter(|farewell| farewell.settled.contains(&id)) {
            promised!(farewell.announced > 0, "more is repeated than a stop had announced: {event:?}");
            farewell.settled.remove(&id);
            farewell.announced -= 1;
        }
        let topic = event.topic;
        // One that is undone may still be read from a session that is over; it is nobody's repeat.
        cluster.offers += u64::from(!event.void);

        if cluster.unready[topic as usize] {
            return Err(Refused::Unready(ticket));
        }
        if producer.broken {
            return Err(Refused::Fatal(ticket, "the producer is broken".into()));
        }
        if cluster.unfit.contains(&id) {
            let problem = Problem { reason: "too_large", message: "larger than the topic takes".into() };
            return Err(Refused::Event(ticket, problem));
        }
        if cluster.full || producer.open.len() >= QUEUE {
            cluster.felt("queue full");
            return Err(Refused::Full(ticket));
        }
        if producer.rolls.hits(cluster.faults.fatal) {
            producer.broken = true;
            cluster.disturbed("broken producer");
            cluster.felt("producer broken");
            return Err(Refused::Fatal(ticket, "the producer has just broken".into()));
        }
        producer.open.insert(id);
        let record = landing(record, id);
        let lane = &mut producer.lanes[(topic * PARTITIONS) as usize + record.place.1 as usize];
        lane.queued.push_back(Pending { event: id, ticket: ticket.into_parts(), edition: gate.edition, record });
        Ok(())
    }

    fn try_again(&mut self, record: &Record<'_>, letter: i64) -> Result<(), Untried> {
        let Door { producer, cluster, gate } = self;
        let id: u64 = header(record, "id").expect("of every record").parse().expect("a number");
        let event = cluster.events[id as usize].clone();
        cluster.check(&event, record, *gate);
        promised!(!producer.open.contains(&id), "tried while in flight: {event:?}");
        promised!(producer.trial.is_none(), "two letters are tried at once");
        if cluster.unready[event.topic as usize] {
            return Err(Untried::Later);
        }
        if cluster.unfit.contains(&id) {
            cluster.felt("trial refused");
            let problem = Problem { reason: "too_large", message: "larger than the topic takes".into() };
            return Err(Untried::Never(problem));
        }
        producer.trial = Some(Trial { letter, event: id, record: landing(record, id) });
        Ok(())
    }
}

/// A record as the oracle will see it.
fn landing(record: &Record<'_>, id: u64) -> oracle::Record {
    let key = String::from_utf8_lossy(record.key.unwrap_or_default());
    let place = (record.topic.to_owned(), partition_of(&key) as i32);
    oracle::Record { key: oracle_key(record.topic, &key), id: id.to_string(), place }
}

fn partition_of(key: &str) -> u64 {
    key.bytes().map(u64::from).sum::<u64>() % PARTITIONS
}

/// Order is promised for each key of each topic.
pub fn oracle_key(topic: &str, key: &str) -> String {
    [topic, "/", key].concat()
}

fn header<'r>(record: &Record<'r>, wanted: &str) -> Option<&'r str> {
    let (_, value) = record.headers.iter().find(|(name, _)| *name == wanted)?;
    Some(std::str::from_utf8(value.expect("with a value")).expect("text"))
}
