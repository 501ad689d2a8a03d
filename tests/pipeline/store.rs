//! The store of dead letters, as the database has it: letters by position, claims with a lease, and people who mend or discard.

use std::time::{Duration, Instant};

use outboxd::dead_letter::{Claimed, DeadLetter, KnownLetter, OpenLane, Outcome};
use outboxd::lsn::{Lsn, Position};
use outboxd::receipt::Fate;
use outboxd::source::System;

use crate::dice::Dice;

/// How long a claim lasts when its relay is gone.
pub const LEASE: Duration = Duration::from_secs(25);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(300);

/// What the table holds. A letter's number is its place, from one.
#[derive(Default)]
pub struct Store {
    letters: Vec<Stored>,
    pub pause: Option<String>,
    /// A row that comes again is settled by its letter, though that was delivered.
    settles_delivered: bool,
    claims: u64,
}

pub struct Stored {
    letter: DeadLetter,
    system: System,
    /// The event, by its id.
    pub event: u64,
    pub state: State,
    owner: String,
    lease_until: Instant,
    due: Instant,
    /// Whoever stored it was told so: standbys have it.
    durable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Pending,
    Retrying,
    Delivered,
    Discarded,
    /// Undone by a failover.
    Gone,
}

impl Stored {
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Pending | State::Retrying)
    }

    /// Letters of former clusters are older than all of this one.
    fn age(&self) -> (u64, Position) {
        (self.system.id, self.letter.position)
    }

    fn lane(&self) -> Option<(&str, &[u8])> {
        self.letter.lane.topic.as_deref().zip(self.letter.lane.key.as_deref())
    }
}

impl Store {
    pub fn new(settles_delivered: bool) -> Store {
        Store { settles_delivered, ..Store::default() }
    }

    /// Takes letters, each once.
    pub fn take(&mut self, system: System, letter: &DeadLetter, now: Instant) {
        let known = |stored: &Stored| {
            stored.state != State::Gone && stored.system == system && stored.letter.position == letter.position
        };
        if let Some(stored) = self.letters.iter_mut().find(|stored| known(stored)) {
            // A key that is repeated is repeated as a whole.
            if stored.state == State::Delivered {
                (stored.state, stored.due) = (State::Pending, now);
            }
            return;
        }
        let event = letter.event.as_deref().expect("every event has an id").parse().expect("a number");
        self.letters.push(Stored {
            letter: letter.clone(),
            system,
            event,
            state: State::Pending,
            owner: String::new(),
            lease_until: now,
            due: now,
            durable: false,
        });
    }

    /// Whoever stored these is told so.
    pub fn told(&mut self, position: Position) {
        self.letters
            .iter_mut()
            .filter(|stored| stored.letter.position == position)
            .for_each(|stored| stored.durable = true);
    }

    /// The newest commit that every standby has, because somebody was told that its letter is stored.
    pub fn durable(&self, system: System) -> Lsn {
        let counts = |stored: &&Stored| stored.durable && stored.state != State::Gone && stored.system.id == system.id;
        let durable = self.letters.iter().filter(counts);
        durable.map(|stored| stored.letter.position.commit).max().unwrap_or_default()
    }

    /// A standby takes over, which may lack what nobody was told of, and lacks what these events led to.
    pub fn fail_over(&mut self, is_void: impl Fn(u64) -> bool, dice: &mut Dice) {
        for stored in self.letters.iter_mut().filter(|stored| !stored.durable) {
            if is_void(stored.event) || dice.hits(50) {
                stored.state = State::Gone;
            }
        }
    }

    /// True when the event's row is settled by its letter.
    pub fn has(&self, event: u64) -> bool {
        self.letters.iter().filter(|stored| self.settles(stored)).any(|stored| stored.event == event)
    }

    /// True when a person has given the event up.
    pub fn discards(&self, event: u64) -> bool {
        self.letters.iter().any(|stored| stored.event == event && stored.state == State::Discarded)
    }

    fn settles(&self, stored: &Stored) -> bool {
        match stored.state {
            State::Gone => false,
            State::Delivered => self.settles_delivered,
            State::Pending | State::Retrying | State::Discarded => true,
        }
    }

    /// Letters that are neither delivered nor discarded.
    pub fn open(&self) -> impl Iterator<Item = &Stored> {
        self.letters.iter().filter(|stored| stored.is_open())
    }

    pub fn from(&self, system: System, from: Position) -> Vec<KnownLetter> {
        let settles = |stored: &&Stored| self.settles(stored) && stored.letter.position >= from;
        let alive = self.letters.iter().filter(settles);
        let known = |stored: &Stored| KnownLetter {
            position: stored.letter.position,
            is_current: stored.system.id == system.id,
            event: stored.letter.event.clone(),
            fate: match stored.state {
                State::Delivered => Fate::Published,
                _ => Fate::Rejected { why: stored.letter.rejection.to_string(), attempts: 1 },
            },
        };
        let mut known: Vec<KnownLetter> = alive.map(known).collect();
        known.sort_by_key(|letter| letter.position);
        known
    }

    pub fn lanes(&self, system: System) -> Vec<OpenLane> {
        let mut lanes: Vec<OpenLane> = Vec::new();
        let mut open: Vec<&Stored> = self.open().collect();
        open.sort_by_key(|stored| stored.age());
        for stored in open {
            let Some((topic, key)) = stored.lane() else { continue };
            if !lanes.iter().any(|lane| lane.topic == topic && lane.key == key) {
                let first = (stored.system.id == system.id).then_some(stored.letter.position);
                lanes.push(OpenLane { topic: topic.to_owned(), key: key.to_vec(), first });
            }
        }
        lanes
    }

    /// Claims what is due, of each lane from its oldest open letter on.
    pub fn claim(&mut self, name: u64, system: System, before: Position, now: Instant) -> Vec<Claimed> {
        self.claims += 1;
        let owner = format!("{name}#{}", self.claims);
        let mut blocked: Vec<(String, Vec<u8>)> = Vec::new();
        let mut claimed = Vec::new();
        let mut open: Vec<(usize, &mut Stored)> =
            self.letters.iter_mut().enumerate().filter(|(_, stored)| stored.is_open()).collect();
        open.sort_by_key(|(_, stored)| stored.age());
        for (at, stored) in open {
            let lane = stored.lane().map(|(topic, key)| (topic.to_owned(), key.to_vec()));
            let current = stored.system.id == system.id;
            let due = match stored.state {
                State::Pending => now >= stored.due,
                _ => now >= stored.lease_until,
            };
            let free = lane.as_ref().is_none_or(|lane| !blocked.contains(lane));
            if !due || !free || (current && stored.letter.position >= before) {
                blocked.extend(lane);
                continue;
            }
            (stored.state, stored.owner, stored.lease_until) = (State::Retrying, owner.clone(), now + LEASE);
            claimed.push(Claimed {
                id: at as i64 + 1,
                owner: owner.clone(),
                attempts: 1,
                is_current: current,
                lane: stored.letter.lane.clone(),
                origin: stored.letter.origin.clone(),
                event: stored.letter.event.clone(),
                position: stored.letter.position,
                committed_at: stored.letter.committed_at,
                columns: stored.letter.columns.clone(),
                not_kept: stored.letter.not_kept.clone(),
            });
        }
        claimed
    }

    /// Writes what became of a try, if the claim still stands.
    pub fn settle(&mut self, id: i64, owner: &str, outcome: &Outcome, now: Instant) {
        let stored = &mut self.letters[id as usize - 1];
        if stored.state != State::Retrying || stored.owner != owner {
            return;
        }
        stored.due = now + PAUSE;
        stored.state = match outcome {
            Outcome::Delivered => State::Delivered,
            Outcome::Rejected(_) | Outcome::Waits(_) | Outcome::PutBack => State::Pending,
        };
    }

    /// A person gives one up. Answers with its event.
    pub fn discard(&mut self, dice: &mut Dice) -> Option<u64> {
        let mut open: Vec<&mut Stored> =
            self.letters.iter_mut().filter(|it| it.state == State::Pending && it.durable).collect();
        if open.is_empty() {
            return None;
        }
        let at = dice.index(open.len());
        open[at].state = State::Discarded;
        Some(open[at].event)
    }
}
