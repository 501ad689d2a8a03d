//! The oracle: what was committed and what was observed enter, a verdict leaves. Pure, so that tests on real servers
//! and simulated histories are judged by the same lines.
//!
//! Per key the committed events are numbered 1..n in commit order, parked ones removed. Then
//! - each record read has a number at most one above the previous one of its key (a replay repeats a suffix and walks
//!   on; a gap, a swap or a replay with a hole does not), and n is reached;
//! - every committed event arrives or is parked, and nothing else does;
//! - a confirmed position never passes an event that is not settled.

use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// A dead letter was stored for this event.
    Parked(String),
    /// The server's `confirmed_flush_lsn` was seen to be this.
    Confirmed(Lsn),
}

/// A record as far as the oracle looks at it.
#[derive(Debug, Clone)]
pub struct Record {
    /// Topic and partition.
    pub place: (String, i32),
    /// The record's key.
    pub key: String,
    /// The event id it carries.
    pub id: String,
}

/// What the oracle says. `violations` is empty exactly when every promise held.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Committed events.
    pub committed: usize,
    /// The events of the key that has fewest.
    pub fewest_per_key: usize,
    /// Committed events that neither arrived nor were parked.
    pub lost: usize,
    /// Records that arrived too early for their key.
    pub reordered: usize,
    /// Records of rows that were rolled back or never written.
    pub phantoms: usize,
    /// Confirmed positions that had passed an unsettled event.
    pub overtaken: usize,
    /// Records beyond the first of their event: allowed at least once, counted always.
    pub duplicates: usize,
    /// Every broken promise, in the order found.
    pub violations: Vec<Violation>,
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The event never arrived and is not parked.
    Lost { key: String, number: usize, id: String },
    /// The event arrived although an earlier one of its key was next.
    Reordered { key: String, previous: usize, number: usize, id: String },
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
    let mut judge = Judge::new(truth, history);
    for fact in history {
        match fact {
            Fact::Arrived(record) => judge.arrived(record),
            Fact::Parked(id) => judge.settle(id),
            Fact::Confirmed(lsn) => judge.confirmed(*lsn),
        }
    }
    judge.finish(truth)
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

/// What is known about one committed event while the history is walked.
struct Entry<'a> {
    key: &'a str,
    /// 1..n among the events of its key that are never parked; `None` for a parked one, which is exempt from order.
    number: Option<usize>,
    arrived: usize,
    settled: bool,
}

struct Judge<'a> {
    entries: HashMap<&'a str, Entry<'a>>,
    rolled_back: &'a HashSet<String>,
    /// Key → the number last read.
    previous: HashMap<&'a str, usize>,
    places: HashMap<&'a str, &'a (String, i32)>,
    /// Events with a known commit position, latest first: the next one a confirmed position can overtake is the last.
    unsettled: Vec<(Lsn, &'a str)>,
    verdict: Verdict,
}

impl<'a> Judge<'a> {
    fn new(truth: &'a Truth, history: &'a [Fact]) -> Judge<'a> {
        let parked: HashSet<&str> = history
            .iter()
            .filter_map(|fact| match fact {
                Fact::Parked(id) => Some(id.as_str()),
                Fact::Arrived(_) | Fact::Confirmed(_) => None,
            })
            .collect();
        let mut entries = HashMap::new();
        let mut unsettled = Vec::new();
        for (key, events) in &truth.committed {
            let mut number = 0;
            for event in events {
                let numbered = !parked.contains(event.id.as_str());
                number += usize::from(numbered);
                let entry = Entry { key, number: numbered.then_some(number), arrived: 0, settled: false };
                assert!(entries.insert(event.id.as_str(), entry).is_none(), "event id {} is not unique", event.id);
                unsettled.extend(event.committed_by.map(|lsn| (lsn, event.id.as_str())));
            }
        }
        unsettled.sort_unstable_by(|a, b| b.cmp(a));
        let verdict = Verdict {
            committed: entries.len(),
            fewest_per_key: truth.committed.values().map(Vec::len).min().unwrap_or(0),
            ..Verdict::default()
        };
        let rolled_back = &truth.rolled_back;
        Judge { entries, rolled_back, previous: HashMap::new(), places: HashMap::new(), unsettled, verdict }
    }

    fn arrived(&mut self, record: &'a Record) {
        let Some(entry) = self.entries.get_mut(record.id.as_str()) else {
            self.verdict.phantoms += 1;
            self.verdict.violations.push(match self.rolled_back.contains(&record.id) {
                true => Violation::RolledBack { id: record.id.clone() },
                false => Violation::Stranger { key: record.key.clone(), id: record.id.clone() },
            });
            return;
        };
        entry.settled = true;
        entry.arrived += 1;
        self.verdict.duplicates += usize::from(entry.arrived > 1);
        let (key, number) = (entry.key, entry.number);
        if record.key != key {
            let (id, expected, found) = (record.id.clone(), key.to_string(), record.key.clone());
            self.verdict.violations.push(Violation::WrongKey { id, expected, found });
        }
        let first = *self.places.entry(key).or_insert(&record.place);
        if *first != record.place {
            let (key, first, second) = (key.to_string(), first.clone(), record.place.clone());
            self.verdict.violations.push(Violation::Scattered { key, first, second });
        }
        if let Some(number) = number {
            self.in_order(key, number, &record.id);
        }
    }

    fn in_order(&mut self, key: &'a str, number: usize, id: &str) {
        let previous = self.previous.insert(key, number).unwrap_or(0);
        if number > previous + 1 {
            self.verdict.reordered += 1;
            let (key, id) = (key.to_string(), id.to_string());
            self.verdict.violations.push(Violation::Reordered { key, previous, number, id });
        }
    }

    fn settle(&mut self, id: &str) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.settled = true;
        }
    }

    fn confirmed(&mut self, confirmed: Lsn) {
        while let Some((committed_by, id)) = self.unsettled.pop_if(|(lsn, _)| *lsn <= confirmed) {
            if !self.entries[id].settled {
                self.verdict.overtaken += 1;
                self.verdict.violations.push(Violation::Overtaken { confirmed, id: id.to_string(), committed_by });
            }
        }
    }

    fn finish(mut self, truth: &Truth) -> Verdict {
        for (key, events) in &truth.committed {
            for (index, event) in events.iter().enumerate() {
                if !self.entries[event.id.as_str()].settled {
                    self.verdict.lost += 1;
                    let (key, number, id) = (key.clone(), index + 1, event.id.clone());
                    self.verdict.violations.push(Violation::Lost { key, number, id });
                }
            }
        }
        self.verdict
    }
}
