//! Rows of the open transaction that wait: events for their payload in a second table, and all rows behind them.
//!
//! Owned copies of messages enter, and leave in the order of their positions, each event with its payload row or with why there
//! is none. What is found follows from the stream alone: of several payload rows with the same value, an event gets the latest
//! before it, or else the first behind it; if that was not kept, none. Rows and bytes are bounded; what goes beyond is said, not dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::forgotten::Forgotten;
use super::mapping::Description;
use crate::config;
use crate::lsn::Position;

/// What a row takes of memory beside its message: its place in the queue and in the maps, with the value that it is found by.
const ROW: u64 = 400;

/// A row that waits for its turn.
#[derive(Debug)]
pub struct Waiting {
    pub(super) position: Position,
    /// When it was committed, microseconds since 2000-01-01 UTC.
    pub(super) committed_at: i64,
    /// The message that it came in.
    pub(super) body: Vec<u8>,
    /// The table as it was then; none for a logical message.
    pub(super) about: Option<Arc<Description>>,
    pub(super) payload: Payload,
}

/// What a row still needs.
#[derive(Debug)]
pub(super) enum Payload {
    /// Nothing: it only waits for those before it.
    Own,
    /// A row with this value.
    Wanted(Value),
    Found(Arc<PayloadRow>),
    /// There is none, because of this.
    Missing(String),
    /// It could not be waited for or was not kept, because of this: the table has it.
    GivenUp(String),
}

/// What two rows are joined on: the outbox, and the column's text.
pub(super) type Value = (usize, Vec<u8>);

/// A row of a joined table.
#[derive(Debug)]
pub(super) struct PayloadRow {
    pub(super) about: Arc<Description>,
    pub(super) body: Vec<u8>,
}

/// The rows that wait, of one transaction.
#[derive(Debug)]
pub(super) struct Joins {
    limits: Limits,
    /// In the order of their positions.
    queue: VecDeque<Waiting>,
    /// The number of the first in the queue, of all that ever waited.
    first: u64,
    /// Who waits for a value, by their numbers, in order.
    wanted: HashMap<Value, VecDeque<u64>>,
    payloads: Payloads,
    /// What all of them take of memory: `ROW` for each in the queue and each in the order of payloads, and every message once; and what
    /// remembers the forgotten ones, beside its first part.
    bytes: u64,
    /// The transaction has no further rows.
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    rows: usize,
    bytes: u64,
}

/// The payload rows that came, whether an event has asked for them or not: several events may share one.
#[derive(Debug, Default)]
struct Payloads {
    /// The latest of each value, with its number.
    latest: HashMap<Value, (u64, Arc<PayloadRow>)>,
    /// All of them, oldest first; one that is not the latest of its value any more is only a number here.
    order: VecDeque<(u64, Value)>,
    count: u64,
    forgotten: Option<Forgotten>,
}

impl Waiting {
    /// Why it has no payload, if it should have one.
    pub(super) fn missing(&self) -> Option<&str> {
        match &self.payload {
            Payload::Missing(why) | Payload::GivenUp(why) => Some(why),
            Payload::Own | Payload::Wanted(_) | Payload::Found(_) => None,
        }
    }

    /// True when it has no payload only because of a limit.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.payload, Payload::GivenUp(_))
    }
}

impl Joins {
    /// `None` when no outbox is joined: then nothing ever waits.
    pub(super) fn new(outboxes: &[config::Outbox]) -> Option<Box<Joins>> {
        outboxes.iter().any(|outbox| outbox.join.is_some()).then(|| {
            Box::new(Joins {
                limits: Limits { rows: usize::MAX, bytes: u64::MAX },
                queue: VecDeque::new(),
                first: 0,
                wanted: HashMap::new(),
                payloads: Payloads::default(),
                bytes: 0,
                ended: false,
            })
        })
    }

    pub(super) fn limit(&mut self, rows: usize, bytes: u64) {
        self.limits = Limits { rows, bytes };
    }

    /// Another transaction, or another session: nothing of this one counts.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.wanted.clear();
        self.payloads = Payloads::default();
        (self.bytes, self.ended) = (0, false);
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The tables of all that waits, each as it was when its row came; one may come several times.
    pub(super) fn descriptions(&self) -> impl Iterator<Item = &Arc<Description>> {
        let own = self.queue.iter().filter_map(|row| row.about.as_ref());
        let found = self.queue.iter().filter_map(|row| match &row.payload {
            Payload::Found(found) => Some(&found.about),
            Payload::Own | Payload::Wanted(_) | Payload::Missing(_) | Payload::GivenUp(_) => None,
        });
        own.chain(found).chain(self.payloads.latest.values().map(|(_, row)| &row.about))
    }

    /// No payload comes any more: what is still wanted is missing.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// A row that waits, behind all others.
    pub(super) fn push(&mut self, mut row: Waiting, outboxes: &[config::Outbox]) {
        self.bytes += ROW + row.body.len() as u64;
        if let Payload::Wanted(value) = &row.payload {
            if let Some((_, found)) = self.payloads.latest.get(value) {
                row.payload = Payload::Found(found.clone());
            } else if let Some(limit) = self.payloads.forgot(value) {
                let why = format!("is not among those that were kept: more came before it than {limit} allows");
                row.payload = Payload::GivenUp(missing(&outboxes[value.0], &value.1, &why));
            } else {
                let number = self.first + self.queue.len() as u64;
                self.wanted.entry(value.clone()).or_default().push_back(number);
            }
        }
        self.queue.push_back(row);
        self.forget();
    }

    /// A payload row: those who wait for it have it, and it is kept for those who come.
    pub(super) fn offer(&mut self, value: Value, row: PayloadRow) {
        self.bytes += ROW + row.body.len() as u64;
        let row = Arc::new(row);
        for number in self.wanted.remove(&value).into_iter().flatten() {
            self.queue[(number - self.first) as usize].payload = Payload::Found(row.clone());
        }
        let number = self.payloads.count;
        self.payloads.count += 1;
        self.payloads.order.push_back((number, value.clone()));
        if let Some((_, former)) = self.payloads.latest.insert(value, (number, row)) {
            self.let_go(former);
        }
        self.forget();
    }

    /// The next row, if it has all it needs or waits for nothing more. Then say `released`, or `put_back`.
    pub(super) fn pop(&mut self, outboxes: &[config::Outbox]) -> Option<Waiting> {
        let first = self.queue.front()?;
        if let Payload::Wanted(value) = &first.payload {
            let value = value.clone();
            let verdict = self.verdict(&outboxes[value.0], &value.1)?;
            self.give_up(&value, verdict);
        }
        self.first += 1;
        self.queue.pop_front()
    }

    /// Not now: it is the first again.
    pub(super) fn put_back(&mut self, row: Waiting) {
        self.first -= 1;
        self.queue.push_front(row);
    }

    /// It is dealt with.
    pub(super) fn released(&mut self, row: Waiting) {
        self.bytes -= ROW + row.body.len() as u64;
        match row.payload {
            Payload::Found(payload) => self.let_go(payload),
            Payload::Own | Payload::Wanted(_) | Payload::Missing(_) | Payload::GivenUp(_) => {}
        }
    }

    /// Why the first, which wants this, must not wait any longer; `None` when it may.
    fn verdict(&self, outbox: &config::Outbox, value: &[u8]) -> Option<Payload> {
        if self.ended {
            return Some(Payload::Missing(missing(outbox, value, "is not in its transaction")));
        }
        let limit = if self.queue.len() > self.limits.rows {
            "limits.join"
        } else if self.bytes > self.limits.bytes {
            "limits.memory"
        } else {
            return None;
        };
        let why = format!("had not come when more rows waited behind it than {limit} allows");
        Some(Payload::GivenUp(missing(outbox, value, &why)))
    }

    fn give_up(&mut self, value: &Value, verdict: Payload) {
        if let Some(numbers) = self.wanted.get_mut(value) {
            // The first in the queue is the first who waits.
            numbers.pop_front();
            if numbers.is_empty() {
                self.wanted.remove(value);
            }
        }
        if let Some(first) = self.queue.front_mut() {
            first.payload = verdict;
        }
    }

    /// Payload rows go first, the oldest of them, when there is too much: most of those have had their event.
    fn forget(&mut self) {
        // What is larger than all of the memory passes alone, unless an event waits: that would be given up for it.
        let spared = usize::from(self.wanted.is_empty());
        loop {
            let limit = match self.payloads.order.len() {
                rows if rows > self.limits.rows => "limits.join",
                rows if rows > spared && self.bytes > self.limits.bytes => "limits.memory",
                _ => return,
            };
            let Some((number, value)) = self.payloads.order.pop_front() else { return };
            self.bytes -= ROW;
            if self.payloads.latest.get(&value).is_some_and(|(latest, _)| *latest == number)
                && let Some((_, row)) = self.payloads.latest.remove(&value)
            {
                self.let_go(row);
                let forgotten = self.payloads.forgotten.get_or_insert_default();
                self.bytes -= forgotten.bytes();
                forgotten.add(&value, limit);
                self.bytes += forgotten.bytes();
            }
        }
    }

    /// The books are right, and within their bounds.
    #[cfg(test)]
    pub(super) fn audit(&self) {
        let found = self.queue.iter().filter_map(|row| match &row.payload {
            Payload::Found(row) => Some(row),
            Payload::Own | Payload::Wanted(_) | Payload::Missing(_) | Payload::GivenUp(_) => None,
        });
        let rows = found.chain(self.payloads.latest.values().map(|(_, row)| row));
        let rows: HashMap<_, u64> = rows.map(|row| (Arc::as_ptr(row), row.body.len() as u64)).collect();
        let waiting: u64 = self.queue.iter().map(|row| ROW + row.body.len() as u64).sum();
        let kept = ROW * self.payloads.order.len() as u64 + rows.values().sum::<u64>();
        let forgotten = self.payloads.forgotten.as_ref().map_or(0, Forgotten::bytes);
        assert_eq!(self.bytes, waiting + kept + forgotten);
        assert!(self.queue.len() <= self.limits.rows + 1 && self.payloads.order.len() <= self.limits.rows);
        let wanting = self.queue.iter().filter(|row| matches!(row.payload, Payload::Wanted(_))).count();
        assert_eq!(self.wanted.values().map(VecDeque::len).sum::<usize>(), wanting);
    }

    fn let_go(&mut self, row: Arc<PayloadRow>) {
        if let Some(row) = Arc::into_inner(row) {
            self.bytes -= row.body.len() as u64;
        }
    }
}

impl Payloads {
    /// The limit for which the latest row of this value may have been forgotten.
    fn forgot(&self, value: &Value) -> Option<&'static str> {
        self.forgotten.as_ref().filter(|forgotten| forgotten.may_have(value)).map(|forgotten| forgotten.limit)
    }
}

/// What is said of an event whose payload row is not there.
fn missing(outbox: &config::Outbox, value: &[u8], why: &str) -> String {
    let join = outbox.join.as_ref().expect("only a joined outbox wants payload rows");
    let config::Join { schema, table, payload_column, .. } = join;
    format!("its payload row ({schema}.{table}, {payload_column} = {}) {why}", String::from_utf8_lossy(value))
}
