//! The oracle: what was committed and what was observed enter, a verdict leaves. Pure, so that tests on real servers
//! and simulated histories are judged by the same lines: `judge` takes a whole history, a `Judge` walks beside one.
//!
//! Per key the committed events are numbered 1..n in commit order, parked ones removed. Then
//! - each record read has a number at most one above the previous one of its key (a replay repeats a suffix and walks
//!   on; a gap, a swap or a replay with a hole does not), and n is reached;
//! - every committed event arrives in its turn or is parked, and nothing else does;
//! - a confirmed position never passes an event that is not settled.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use outboxd::lsn::Lsn;

/// What really happened in the database.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Key → its committed events in commit order, and in insertion order inside a transaction.
    pub committed: BTreeMap<String, Vec<Event>>,
    /// Ids of rows that were written and rolled back.
    pub rolled_back: HashSet<String>,
}

/// One committed event.
#[derive(Debug, Clone)]
pub struct Event {
    /// The event's id.
    pub id: String,
    /// A position by which its commit was surely complete; `None` when nobody knows (the answer to COMMIT was lost).
    pub committed_by: Option<Lsn>,
}

/// One thing that was observed. A history lists them so that whatever was settled before a `Confirmed` stands before it.
#[derive(Debug, Clone)]
pub enum Fact {
    /// A record was read, in the order of its partition.
    Arrived(Record),
    /// A copy that its producer had given up on the network landed after all. Order does not bind it, and it settles
    /// nothing: nobody was told of it, so its event must be sent again.
    Late(Record),
    /// A dead letter was stored for this event, and nobody waits for it any more.
    Parked(String),
    /// A dead letter was stored for this event, which will arrive in its turn all the same: a position may pass it.
    Shelved(String),
    /// The server's `confirmed_flush_lsn` was seen to be this.
    Confirmed(Lsn),
    /// A fault of this name begins: what is repeated from now on is put down to it.
    Disturbed(String),
}

/// A record as far as the oracle looks at it.
#[derive(Debug, Clone)]
pub struct Record {
    /// Topic and partition.
    pub place: (String, i32),
    /// The record's key.
    pub key: String,
    /// The event id it carries; no event's when its value is known to be another's.
    pub id: String,
}

/// What the oracle says. `violations` is empty exactly when every promise held.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Committed events.
    pub committed: usize,
    /// The events of the key that has fewest.
    pub fewest_per_key: usize,
    /// Committed events that neither arrived in their turn nor were parked.
    pub lost: usize,
    /// Records that arrived too early for their key, and keys whose last record is an old one.
    pub reordered: usize,
    /// Records of rows that were rolled back or never written.
    pub phantoms: usize,
    /// Events that a confirmed position had passed before they were settled.
    pub overtaken: usize,
    /// Confirmed positions that were held against the events: without any, nothing can be found overtaken.
    pub samples: usize,
    /// Records beyond the first of their event: allowed at least once, counted always.
    pub duplicates: usize,
    /// The same by the last fault that had begun when they arrived; `UNDISTURBED` before the first one.
    pub duplicates_by_cause: BTreeMap<String, usize>,
    /// Every broken promise, in the order found.
    pub violations: Vec<Violation>,
}

/// The cause of duplicates that arrived before any fault.
pub const UNDISTURBED: &str = "none";

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The event never arrived and is not parked.
    Lost { key: String, number: usize, id: String },
    /// The event arrived although an earlier one of its key was next.
    Reordered { key: String, previous: usize, number: usize, id: String },
    /// The last record of the key is an old one: a repeat ended before it had come to the newest.
    Unfinished { key: String, last: usize, newest: usize },
    /// A row arrived that was rolled back.
    RolledBack { id: String },
    /// A record arrived that nobody wrote.
    Stranger { key: String, id: String },
    /// A record carries another key than its event.
    WrongKey { id: String, expected: String, found: String },
    /// The records of one key lie in two partitions, where no order exists between them.
    Scattered { key: String, first: (String, i32), second: (String, i32) },
    /// The confirmed position passed an event that was not settled.
    Overtaken { confirmed: Lsn, id: String, committed_by: Lsn },
}

/// Judges a complete history: the load has ended and the relay had its time to deliver the rest.
pub fn judge(truth: &Truth, history: &[Fact]) -> Verdict {
    let mut judge = Judge::default();
    for (key, events) in &truth.committed {
        for event in events {
            judge.committed(key, &event.id, event.committed_by);
        }
    }
    judge.rolled_back.extend(truth.rolled_back.iter().map(|id| Cow::from(id.as_str())));
    // A parked event is exempt from order from the beginning: it was on its way to be parked.
    for fact in history {
        if let Fact::Parked(id) = fact {
            judge.exempt(id);
        }
    }
    history.iter().for_each(|fact| judge.observe(fact));
    judge.finish()
}

impl Verdict {
    /// Fails the test unless every promise of at-least-once delivery held.
    #[track_caller]
    pub fn assert_at_least_once(&self) {
        assert!(self.violations.is_empty(), "{self}");
    }

    /// Fails the test unless every promise held and nothing came twice.
    #[track_caller]
    pub fn assert_exactly_once(&self) {
        self.assert_at_least_once();
        assert_eq!(self.duplicates, 0, "{self}");
    }

    /// Fails the test when its load was too light to say anything about order.
    #[track_caller]
    pub fn assert_order_was_tried(&self) {
        assert!(self.fewest_per_key >= 100, "too few events to judge order, a key has {}", self.fewest_per_key);
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "committed {}, lost {}, reordered {}, phantoms {}, overtaken {}, duplicates {}",
            self.committed, self.lost, self.reordered, self.phantoms, self.overtaken, self.duplicates
        )?;
        if !self.duplicates_by_cause.is_empty() {
            let causes = self.duplicates_by_cause.iter().map(|(cause, count)| format!("{cause} {count}"));
            write!(f, " ({})", causes.collect::<Vec<_>>().join(", "))?;
        }
        const SHOWN: usize = 20;
        for violation in self.violations.iter().take(SHOWN) {
            write!(f, "\n  {violation:?}")?;
        }
        match self.violations.len().checked_sub(SHOWN) {
            Some(more) if more > 0 => write!(f, "\n  and {more} more"),
            Some(_) | None => Ok(()),
        }
    }
}

/// The oracle at work: what is committed and what is observed enter as they happen.
#[derive(Debug, Default)]
pub struct Judge<'a> {
    events: Vec<Entry<'a>>,
    ids: HashMap<Cow<'a, str>, usize>,
    keys: Vec<Key<'a>>,
    key_names: HashMap<Cow<'a, str>, usize>,
    rolled_back: HashSet<Cow<'a, str>>,
    /// Events with a known commit position that no confirmed position has passed yet.
    ahead: BTreeSet<(Lsn, usize)>,
    /// Events that are neither settled nor void.
    open: usize,
    /// The fault that began last.
    fault: Option<String>,
    verdict: Verdict,
}

/// What is known about one committed event.
#[derive(Debug)]
struct Entry<'a> {
    id: Cow<'a, str>,
    key: usize,
    /// Its place among the events of its key, from 0.
    index: usize,
    committed_by: Option<Lsn>,
    arrived: usize,
    settled: bool,
    /// Stored as a dead letter.
    shelved: bool,
    /// Parked or void: order does not wait for it, nor bind it.
    exempt: bool,
    void: bool,
}

/// One key's events, and how far they were read.
#[derive(Debug)]
struct Key<'a> {
    name: Cow<'a, str>,
    events: Vec<usize>,
    /// The index behind the event last read.
    next: usize,
    place: Option<(String, i32)>,
}

impl<'a> Judge<'a> {
    /// An event was committed, behind all others of its key. `committed_by` as in `Event`.
    pub fn committed(&mut self, key: impl Into<Cow<'a, str>>, id: impl Into<Cow<'a, str>>, committed_by: Option<Lsn>) {
        let (key, id) = (key.into(), id.into());
        let number = self.events.len();
        assert!(self.ids.insert(id.clone(), number).is_none(), "event id {id} is not unique");
        let key = *self.key_names.entry(key).or_insert_with_key(|name| {
            self.keys.push(Key { name: name.clone(), events: Vec::new(), next: 0, place: None });
            self.keys.len() - 1
        });
        let index = self.keys[key].events.len();
        self.keys[key].events.push(number);
        self.ahead.extend(committed_by.map(|lsn| (lsn, number)));
        self.open += 1;
        self.events.push(Entry {
            id,
            key,
            index,
            committed_by,
            arrived: 0,
            settled: false,
            shelved: false,
            exempt: false,
            void: false,
        });
    }

    /// The commit was lost with the server's history: the event is neither expected nor forbidden any more.
    pub fn void(&mut self, id: &str) {
        let number = self.ids[id];
        let event = &mut self.events[number];
        self.open -= usize::from(!event.settled && !event.void);
        (event.exempt, event.void) = (true, true);
        if let Some(lsn) = event.committed_by {
            self.ahead.remove(&(lsn, number));
        }
    }

    /// Something was observed.
    pub fn observe(&mut self, fact: &Fact) {
        match fact {
            Fact::Arrived(record) => {
                if let Some(number) = self.landed(record) {
                    self.settle(number);
                    self.in_order(number);
                }
            }
            Fact::Late(record) => {
                self.landed(record);
            }
            Fact::Parked(id) => {
                self.exempt(id);
                if let Some(number) = self.ids.get(id.as_str()) {
                    self.settle(*number);
                }
            }
            Fact::Shelved(id) => {
                if let Some(number) = self.ids.get(id.as_str()) {
                    self.events[*number].shelved = true;
                }
            }
            Fact::Confirmed(lsn) => self.confirmed(*lsn),
            Fact::Disturbed(fault) => self.fault = Some(fault.clone()),
        }
    }

    /// Events that have neither arrived in their turn nor been parked.
    pub fn open(&self) -> usize {
        self.open
    }

    /// True when a record of this event has been seen.
    pub fn has_arrived(&self, id: &str) -> bool {
        self.ids.get(id).is_some_and(|number| self.events[*number].arrived > 0)
    }

    /// What was found so far; losses are known at the end only.
    pub fn so_far(&self) -> &Verdict {
        &self.verdict
    }

    /// The history is complete: what has not arrived is lost.
    pub fn finish(mut self) -> Verdict {
        self.verdict.committed = self.events.iter().filter(|event| !event.void).count();
        self.verdict.fewest_per_key = self.keys.iter().map(|key| key.events.len()).min().unwrap_or(0);
        self.keys.sort_by(|a, b| a.name.cmp(&b.name));
        for key in &self.keys {
            let events = key.events.iter().map(|number| &self.events[*number]);
            for event in events.filter(|event| !event.settled && !event.void) {
                self.verdict.lost += 1;
                let (key, number, id) = (key.name.to_string(), event.index + 1, event.id.to_string());
                self.verdict.violations.push(Violation::Lost { key, number, id });
            }
            // A repeat that ends before the newest event leaves whoever keeps the last record with an old one.
            let newest = key.events.iter().rposition(|number| !self.events[*number].exempt);
            if let Some(newest) = newest.filter(|index| self.events[key.events[*index]].settled && key.next <= *index) {
                self.verdict.reordered += 1;
                let (key, last, newest) = (key.name.to_string(), key.next, newest + 1);
                self.verdict.violations.push(Violation::Unfinished { key, last, newest });
            }
        }
        self.verdict
    }

    /// A record is in its topic. Answers with its event unless nobody wrote that, or it is void.
    fn landed(&mut self, record: &Record) -> Option<usize> {
        let Some(&number) = self.ids.get(record.id.as_str()) else {
            self.verdict.phantoms += 1;
            self.verdict.violations.push(match self.rolled_back.contains(record.id.as_str()) {
                true => Violation::RolledBack { id: record.id.clone() },
                false => Violation::Stranger { key: record.key.clone(), id: record.id.clone() },
            });
            return None;
        };
        if self.events[number].void {
            return None;
        }
        let event = &mut self.events[number];
        event.arrived += 1;
        if event.arrived > 1 {
            self.verdict.duplicates += 1;
            let cause = self.fault.as_deref().unwrap_or(UNDISTURBED);
            match self.verdict.duplicates_by_cause.get_mut(cause) {
                Some(count) => *count += 1,
                None => drop(self.verdict.duplicates_by_cause.insert(cause.to_string(), 1)),
            }
        }
        let key = &mut self.keys[event.key];
        if record.key != key.name {
            let (id, expected, found) = (record.id.clone(), key.name.to_string(), record.key.clone());
            self.verdict.violations.push(Violation::WrongKey { id, expected, found });
        }
        let first = key.place.get_or_insert_with(|| record.place.clone());
        if *first != record.place {
            let (key, first, second) = (key.name.to_string(), first.clone(), record.place.clone());
            self.verdict.violations.push(Violation::Scattered { key, first, second });
        }
        Some(number)
    }

    fn in_order(&mut self, number: usize) {
        let event = &self.events[number];
        if event.exempt {
            return;
        }
        let key = &mut self.keys[event.key];
        let passed = key.events.get(key.next..event.index).unwrap_or_default();
        if passed.iter().any(|number| !self.events[*number].exempt) {
            let count = |events: &[usize]| events.iter().filter(|number| !self.events[**number].exempt).count();
            let (previous, number) = (count(&key.events[..key.next]), count(&key.events[..=event.index]));
            let (key, id) = (key.name.to_string(), event.id.to_string());
            self.verdict.reordered += 1;
            self.verdict.violations.push(Violation::Reordered { key, previous, number, id });
        }
        key.next = event.index + 1;
    }

    /// Order neither waits for this event nor binds it any more.
    pub fn exempt(&mut self, id: &str) {
        if let Some(number) = self.ids.get(id) {
            self.events[*number].exempt = true;
        }
    }

    fn settle(&mut self, number: usize) {
        let event = &mut self.events[number];
        self.open -= usize::from(!event.settled);
        event.settled = true;
    }

    fn confirmed(&mut self, confirmed: Lsn) {
        self.verdict.samples += 1;
        while let Some(&(committed_by, number)) = self.ahead.first()
            && committed_by <= confirmed
        {
            self.ahead.pop_first();
            let event = &self.events[number];
            if !event.settled && !event.shelved {
                self.verdict.overtaken += 1;
                self.verdict.violations.push(Violation::Overtaken {
                    confirmed,
                    id: event.id.to_string(),
                    committed_by,
                });
            }
        }
    }
}
