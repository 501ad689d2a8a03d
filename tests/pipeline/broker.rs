//! A scripted Kafka: partitions with a log, and an idempotent producer whose batches land, fail, or lose their answer.
//!
//! The producer keeps what librdkafka keeps: order inside a partition, nothing behind a failure in its partition
//! (gapless), and exactly one report for each record that it took. The log checks order as it is written, so a
//! violation points at the step that made it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use outboxd::ledger::Ticket;
use outboxd::record::Record;
use outboxd::sink::{Failure, Problem, Purge, Refused, Sink, Whose};

use crate::dice::Dice;
use crate::server::{Events, TOPICS};

pub const PARTITIONS: u64 = 2;
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
}

/// A ticket's report, on its way to the pipeline.
#[derive(Debug)]
pub struct Report {
    pub event: u64,
    pub ticket: (u64, u32),
    /// `None`: acknowledged.
    pub failure: Option<Failure>,
}

#[derive(Debug)]
struct Pending {
    event: u64,
    ticket: (u64, u32),
}

#[derive(Debug, Default)]
struct Lane {
    queued: VecDeque<Pending>,
    wire: VecDeque<Vec<Pending>>,
    reports: VecDeque<Report>,
    /// A batch of this lane failed: nothing behind it is appended.
    severed: bool,
}

/// When offers are allowed, as the world sees it.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    pub now: Instant,
    /// The end of the lease by the proofs that the pipeline was given.
    pub lease_end: Instant,
    pub fence_end: Option<Instant>,
    /// When a successor that waits one sender timeout could offer at the earliest.
    pub successor: Instant,
    /// The session is over, and what it had brought is being read.
    pub severed: bool,
}

/// The cluster, its topics, and the one producer that we have.
pub struct Broker {
    lanes: Vec<Lane>,
    broken: bool,
    /// Purged on the wire: may still be appended, out of turn.
    late: Vec<u64>,
    /// Reports of former producers.
    pub stale: Vec<Report>,
    /// Per topic and key, the number of the record appended last.
    last: HashMap<(u64, u64), u64>,
    pub written: HashSet<u64>,
    /// Offered to this producer and not answered.
    pub open: HashSet<u64>,
    /// Acknowledged to this process, in this history.
    pub settled: HashSet<u64>,
    pub gate: Option<Gate>,
    pub offers: u64,
    pub unready: [bool; TOPICS as usize],
    pub full: bool,
    /// Refused by the broker, with its whole batch, until somebody mends it.
    pub poison: HashSet<u64>,
    /// Refused at the offer until somebody mends it.
    pub unfit: HashSet<u64>,
    pub events: Events,
    pub fatal_percent: u64,
    rolls: Dice,
}

impl Broker {
    pub fn new(seed: u64) -> Broker {
        Broker {
            lanes: (0..TOPICS * PARTITIONS).map(|_| Lane::default()).collect(),
            broken: false,
            late: Vec::new(),
            stale: Vec::new(),
            last: HashMap::new(),
            written: HashSet::new(),
            open: HashSet::new(),
            settled: HashSet::new(),
            gate: None,
            offers: 0,
            unready: [false; TOPICS as usize],
            full: false,
            poison: HashSet::new(),
            unfit: HashSet::new(),
            events: Events::new(),
            fatal_percent: 0,
            rolls: Dice::new(seed ^ 0xB0B),
        }
    }

    /// A batch leaves the queue, or arrives at its broker.
    pub fn work(&mut self, faults: Faults, dice: &mut Dice) {
        let at = dice.index(self.lanes.len());
        if self.lanes[at].wire.is_empty() || dice.hits(50) {
            let lane = &mut self.lanes[at];
            if !self.broken && lane.wire.len() < PIPELINED && !lane.queued.is_empty() {
                let size = dice.between(1, lane.queued.len() as u64) as usize;
                lane.wire.push_back(lane.queued.drain(..size).collect());
            }
            return;
        }
        let batch = self.lanes[at].wire.pop_front().expect("there is one");
        let roll = dice.below(100);
        let failure = if self.lanes[at].severed {
            Some(Whose::World)
        } else if batch.iter().any(|pending| self.poison.contains(&pending.event)) {
            Some(Whose::Event)
        } else if roll < faults.lost_answer {
            self.append(&batch);
            Some(Whose::World)
        } else if roll < faults.lost_answer + faults.world {
            Some(Whose::World)
        } else if roll < faults.lost_answer + faults.world + faults.set_up {
            Some(Whose::SetUp)
        } else {
            self.append(&batch);
            None
        };
        if failure.is_some() {
            self.broken = true;
            self.lanes[at].severed = true;
        }
        let topic = format!("outbox.event.t{}", at as u64 / PARTITIONS);
        for Pending { event, ticket } in batch {
            let failure = failure.map(|whose| Failure { whose, topic: topic.clone(), message: "no".into() });
            self.lanes[at].reports.push_back(Report { event, ticket, failure });
        }
    }

    /// A report, in order for each partition and in any order across them.
    pub fn report(&mut self, dice: &mut Dice) -> Option<Report> {
        let at = dice.index(self.lanes.len());
        self.lanes[at].reports.pop_front()
    }

    /// A record that was purged on the wire is appended after all.
    pub fn land_late(&mut self, dice: &mut Dice) {
        if !self.late.is_empty() {
            let at = dice.index(self.late.len());
            let event = self.late.swap_remove(at);
            self.written.insert(event);
        }
    }

    pub fn purge(&mut self, purge: Purge) {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let mut gone: Vec<Pending> = Vec::new();
            if purge == Purge::Everything {
                gone.extend(lane.wire.drain(..).flatten());
                self.late.extend(gone.iter().map(|pending| pending.event));
            }
            gone.extend(lane.queued.drain(..));
            let topic = format!("outbox.event.t{}", at as u64 / PARTITIONS);
            lane.reports.extend(gone.into_iter().map(|Pending { event, ticket }| {
                let failure = Failure { whose: Whose::World, topic: topic.clone(), message: "purged".into() };
                Report { event, ticket, failure: Some(failure) }
            }));
        }
        // What is purged and not reported as appended must not be followed by what was queued behind it.
        self.broken = true;
    }

    /// Another producer; what the old one has not reported comes late or never.
    pub fn renew(&mut self) {
        for lane in &mut self.lanes {
            self.late.extend(lane.wire.iter().flatten().map(|pending| pending.event));
            self.stale.extend(lane.reports.drain(..));
            *lane = Lane::default();
        }
        self.broken = false;
        self.open.clear();
    }

    /// The process is gone, with all that it knew; what it had sent may still be appended, in order.
    pub fn forget(&mut self, dice: &mut Dice) {
        for at in 0..self.lanes.len() {
            let landing = dice.index(self.lanes[at].wire.len() + 1);
            let poison = |pending: &Pending| self.poison.contains(&pending.event);
            let batches: Vec<Vec<Pending>> = self.lanes[at].wire.drain(..).collect();
            let sound = batches.iter().take(landing).take_while(|batch| !batch.iter().any(poison)).count();
            if !self.lanes[at].severed {
                batches[..sound].iter().for_each(|batch| self.append(batch));
            }
        }
        self.renew();
        self.stale.clear();
        self.settled.clear();
    }

    /// Another history begins: of the keys' numbers only those that it kept count.
    pub fn open_history(&mut self) {
        for ((topic, key), last) in &mut self.last {
            let kept = self.events.values().filter(|event| (event.topic, event.key) == (*topic, *key) && !event.void);
            *last = (*last).min(kept.map(|event| event.number).max().unwrap_or(0));
        }
    }

    fn append(&mut self, batch: &[Pending]) {
        for pending in batch {
            let event = &self.events[&pending.event];
            self.written.insert(event.id);
            if event.void {
                continue;
            }
            let last = self.last.entry((event.topic, event.key)).or_default();
            assert!(event.number <= *last + 1, "order: {event:?} follows number {last} of its key");
            *last = event.number;
        }
    }
}

impl Sink for Broker {
    fn offer(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), Refused> {
        let header = |wanted: &str| {
            let (_, value) = record.headers.iter().find(|(name, _)| *name == wanted).expect("a header of every record");
            String::from_utf8(value.expect("with a value").to_vec()).expect("text")
        };
        let id: u64 = header("id").parse().expect("a number");
        let event = self.events.get(&id).expect("only committed events are offered");
        assert_eq!(header("lsn"), event.position.to_string(), "position of {event:?}");
        assert_eq!(record.topic, format!("outbox.event.t{}", event.topic));
        assert_eq!(record.key, event.key.to_string().as_bytes());
        assert_eq!(record.value, Some(event.number.to_string().as_bytes()));

        let gate = self.gate.expect("an offer without a session");
        assert!(!event.void || gate.severed, "{event:?} is not in this history");
        assert!(gate.now < gate.lease_end, "{event:?} was offered without the lease");
        assert!(gate.fence_end.is_some_and(|end| gate.now >= end), "{event:?} was offered before the fence opened");
        assert!(gate.now < gate.successor, "{event:?} was offered when a successor could have offered it");
        assert!(!self.open.contains(&id), "{event:?} was offered while it is in flight");
        assert!(!self.settled.contains(&id), "{event:?} was offered again after its acknowledgement");
        self.offers += 1;

        if self.unready[event.topic as usize] {
            return Err(Refused::Unready(ticket));
        }
        if self.broken {
            return Err(Refused::Fatal(ticket, "the producer is broken".into()));
        }
        if self.unfit.contains(&id) {
            let problem = Problem { reason: "too_large", message: "larger than the topic takes".into() };
            return Err(Refused::Event(ticket, problem));
        }
        if self.full || self.open.len() >= QUEUE {
            return Err(Refused::Full(ticket));
        }
        if self.rolls.hits(self.fatal_percent) {
            self.broken = true;
            return Err(Refused::Fatal(ticket, "the producer has just broken".into()));
        }
        self.open.insert(id);
        let lane = event.topic * PARTITIONS + event.key % PARTITIONS;
        self.lanes[lane as usize].queued.push_back(Pending { event: id, ticket: ticket.into_parts() });
        Ok(())
    }
}
