//! The row generator that demo, tests and benchmark share: a small shop that writes orders and their events.
//!
//! A `Shape` enters, transactions leave, as data and as SQL. The same shape gives the same transactions for ever.
//! Events of one order carry its version: committed ones count 1, 2, 3 … without a gap, so a reader can tell what is
//! missing, repeated or out of order from the events alone. A version that is rolled back is given to a later event.

use std::fmt::Write;
use std::ops::RangeInclusive;

use fastrand::Rng;

/// The shop's own table, written in the same transactions as the outbox.
pub const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS public.orders (
    id          bigint PRIMARY KEY,
    version     bigint NOT NULL,
    total_cents bigint NOT NULL
);
";

/// The aggregate type of every event.
pub const AGGREGATE_TYPE: &str = "order";

/// What the transactions look like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The same seed gives the same transactions.
    pub seed: u64,
    /// How many orders the events are about.
    pub orders: u32,
    /// Events in a transaction, from and to.
    pub events: RangeInclusive<u32>,
    /// About how long a payload is, from and to.
    pub payload_bytes: RangeInclusive<usize>,
    /// How many transactions of a hundred are rolled back.
    pub rollback_percent: u8,
}

/// Makes one transaction after the other.
#[derive(Debug)]
pub struct Workload {
    shape: Shape,
    rng: Rng,
    /// The last committed version of each order.
    versions: Vec<u64>,
}

/// Business rows and their events, to be written together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// In the order of writing.
    pub events: Vec<Event>,
    /// What becomes of them.
    pub ending: Ending,
}

/// One change of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which order: the aggregate id.
    pub order: u32,
    /// The order's version after this event, from 1.
    pub version: u64,
    /// What the order now costs.
    pub total_cents: u32,
    /// Fills the payload up to its length.
    pub note: String,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its events must arrive.
    Commit,
    /// Its events must never be seen.
    Rollback,
}

impl Workload {
    /// Starts at the first transaction of this shape.
    pub fn new(shape: Shape) -> Workload {
        let versions = vec![0; shape.orders.max(1) as usize];
        Workload { rng: Rng::with_seed(shape.seed), versions, shape }
    }

    /// The next transaction.
    pub fn transaction(&mut self) -> Transaction {
        let count = self.rng.u32(self.shape.events.clone());
        let events: Vec<Event> = (0..count).map(|_| self.event()).collect();
        let ending = if self.rng.u8(0..100) < self.shape.rollback_percent { Ending::Rollback } else { Ending::Commit };
        if ending == Ending::Rollback {
            events.iter().for_each(|event| self.versions[event.order as usize] -= 1);
        }
        Transaction { events, ending }
    }

    fn event(&mut self) -> Event {
        let order = self.rng.usize(0..self.versions.len());
        self.versions[order] += 1;
        let mut event = Event {
            order: u32::try_from(order).expect("there are at most u32::MAX orders"),
            version: self.versions[order],
            total_cents: self.rng.u32(100..100_000),
            note: String::new(),
        };
        let length = self.rng.usize(self.shape.payload_bytes.clone());
        let missing = length.saturating_sub(event.payload().len());
        let sentence = self.rng.usize(0..NOTES.len());
        event.note = NOTES.iter().cycle().skip(sentence).flat_map(|note| note.chars()).take(missing).collect();
        event
    }
}

/// What notes are made of; nothing that JSON or SQL would have to escape.
const NOTES: [&str; 4] = [
    "please ring twice; ",
    "leave it with the neighbour if nobody answers; ",
    "mind the dog, she only wants to play; ",
    "second floor, the door on the left; ",
];

impl Event {
    /// What happened: an order is placed, and then changes.
    pub fn event_type(&self) -> &'static str {
        match self.version {
            1 => "order.placed",
            version if version % 2 == 0 => "order.changed",
            _ => "order.paid",
        }
    }

    /// The payload, a JSON object.
    pub fn payload(&self) -> String {
        let Event { order, version, total_cents, note } = self;
        format!(
            r#"{{"order": {order}, "version": {version}, "total_cents": {total_cents}, "delivery_note": "{note}"}}"#
        )
    }
}

impl Transaction {
    /// The transaction as SQL: each event beside the business row that it tells of.
    pub fn sql(&self) -> String {
        let mut sql = String::from("BEGIN;\n");
        for event in &self.events {
            event.write_sql(&mut sql);
        }
        sql.push_str(match self.ending {
            Ending::Commit => "COMMIT;\n",
            Ending::Rollback => "ROLLBACK;\n",
        });
        sql
    }
}

impl Event {
    fn write_sql(&self, sql: &mut String) {
        let Event { order, version, total_cents, .. } = self;
        let (event_type, payload) = (self.event_type(), self.payload());
        write!(
            sql,
            "INSERT INTO public.orders VALUES ({order}, {version}, {total_cents})
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, total_cents = excluded.total_cents;
SELECT outbox.emit('{AGGREGATE_TYPE}', '{order}', '{event_type}', '{payload}');
"
        )
        .expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn shape() -> Shape {
        Shape { seed: 7, orders: 20, events: 1..=4, payload_bytes: 150..=300, rollback_percent: 10 }
    }

    fn take(shape: Shape, count: usize) -> Vec<Transaction> {
        let mut workload = Workload::new(shape);
        (0..count).map(|_| workload.transaction()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_transactions_and_another_seed_gives_others() {
        assert_eq!(take(shape(), 100), take(shape(), 100));
        assert_ne!(take(shape(), 100), take(Shape { seed: 8, ..shape() }, 100));
    }

    #[test]
    fn committed_versions_of_an_order_count_from_one_without_a_gap() {
        let mut last: HashMap<u32, u64> = HashMap::new();
        let transactions = take(shape(), 2000);
        let rolled_back = transactions.iter().filter(|transaction| transaction.ending == Ending::Rollback).count();
        assert!((100..300).contains(&rolled_back), "{rolled_back} of 2000 at 10 percent");
        for event in transactions.iter().filter(|t| t.ending == Ending::Commit).flat_map(|t| &t.events) {
            let version = last.entry(event.order).or_default();
            *version += 1;
            assert_eq!(event.version, *version);
        }
        assert_eq!(last.len(), 20);
    }

    #[test]
    fn sizes_keep_to_the_shape_and_payloads_are_json() {
        for transaction in take(shape(), 500) {
            assert!((1..=4).contains(&transaction.events.len()));
            for event in transaction.events {
                let payload = event.payload();
                assert!((150..=300).contains(&payload.len()), "{}", payload.len());
                let json: serde_json::Value = serde_json::from_str(&payload).unwrap();
                assert_eq!(json["version"], event.version);
            }
        }
    }

    #[test]
    fn a_transaction_writes_its_orders_and_its_events_between_begin_and_its_ending() {
        let event = Event { order: 3, version: 1, total_cents: 250, note: "ring".into() };
        let sql = Transaction { events: vec![event], ending: Ending::Rollback }.sql();
        assert_eq!(
            sql,
            "BEGIN;
INSERT INTO public.orders VALUES (3, 1, 250)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, total_cents = excluded.total_cents;
SELECT outbox.emit('order', '3', 'order.placed', '{\"order\": 3, \"version\": 1, \"total_cents\": 250, \"delivery_note\": \"ring\"}');
ROLLBACK;
"
        );
    }
}
