//! A load whose truth is known for certain: transactions of mixed size over many keys, some rolled back, some with a
//! savepoint rolled back, from several connections at once.
//!
//! Each key is written by one connection only, and each row carries a number that grows per key. So the commit order
//! per key is the order of those numbers, and what was committed is what the table holds afterwards: nothing depends on
//! what a client believes about a commit whose answer was lost. A payload follows from its event's id: one byte of
//! another row in it shows.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;
use outboxd::lsn::Lsn;
use postgres::error::SqlState;
use postgres::{Client, SimpleQueryMessage};
use serde_json::Value;
use uuid::{Builder, Uuid};

use super::oracle::{Event, Truth};
use super::postgres::{Database, Postgres};
use super::{PATIENCE, eventually};

/// The rows of a large transaction.
const LARGE: RangeInclusive<usize> = 2_000..=4_000;

/// What is written, and how fast.
#[derive(Debug, Clone)]
pub struct Workload {
    keys: usize,
    events_per_key: usize,
    connections: usize,
    events_per_second: Option<f64>,
    one_large_in: Option<usize>,
    aggregate_type: String,
    seed: u64,
}

impl Workload {
    /// 50 keys, at least 100 events each, from 4 connections, as fast as possible.
    pub fn new(aggregate_type: &str) -> Workload {
        let aggregate_type = aggregate_type.to_string();
        let seed = fastrand::u64(..);
        Workload {
            keys: 50,
            events_per_key: 100,
            connections: 4,
            events_per_second: None,
            one_large_in: None,
            aggregate_type,
            seed,
        }
    }

    /// Over how many aggregate ids.
    pub fn keys(mut self, keys: usize) -> Workload {
        self.keys = keys;
        self
    }

    /// How many committed events each key gets at least, before the load ends by itself; `usize::MAX` for never.
    pub fn events_per_key(mut self, events: usize) -> Workload {
        self.events_per_key = events;
        self
    }

    /// A steady rate over all connections.
    pub fn events_per_second(mut self, rate: f64) -> Workload {
        self.events_per_second = Some(rate);
        self
    }

    /// One transaction in so many, by chance, has thousands of rows.
    pub fn one_large_in(mut self, transactions: usize) -> Workload {
        self.one_large_in = Some(transactions);
        self
    }

    /// The same choices again: a failed test prints its seed.
    pub fn seed(mut self, seed: u64) -> Workload {
        self.seed = seed;
        self
    }

    /// Writes it all, and returns what happened.
    pub fn run(self, database: &Database) -> Truth {
        self.start(database).finish()
    }

    /// Starts writing beside the test. The load outlasts restarts of the server.
    pub fn start(self, database: &Database) -> Running {
        eprintln!("workload seed {}", self.seed);
        let over = Arc::new(AtomicBool::new(false));
        let written = Arc::new(AtomicUsize::new(0));
        let writers = (0..self.connections).map(|index| {
            let mut writer = Writer {
                load: self.clone(),
                server: database.server().clone(),
                database: database.name().to_string(),
                rng: Rng::with_seed(self.seed.wrapping_add(index as u64)),
                keys: (index..self.keys).step_by(self.connections).map(|key| Key::new(format!("key-{key}"))).collect(),
                session: None,
                attempted: HashMap::new(),
                unanswered: Vec::new(),
            };
            let (over, written) = (over.clone(), written.clone());
            std::thread::spawn(move || {
                writer.write_until(&over, &written);
                writer.attempted
            })
        });
        let writers = writers.collect();
        let (server, database) = (database.server().clone(), database.name().to_string());
        Running { server, database, aggregate_type: self.aggregate_type, over, written, writers }
    }
}

/// True when an event of a load has another value than the load wrote. A JSON object without an `id` was not written by a
/// load: a test that plays the relay itself publishes such in a load's name.
pub fn is_garbled(id: &str, value: Option<&[u8]>) -> bool {
    let Some(id) = Uuid::parse_str(id).ok().filter(|id| id.get_version_num() == LOAD) else { return false };
    let Ok(Value::Object(found)) = serde_json::from_slice(value.unwrap_or_default()) else { return true };
    let number = found.get("n").and_then(Value::as_u64);
    found.contains_key("id") && number.is_none_or(|number| value != Some(payload(id, number).as_bytes()))
}

/// The version of the ids that loads give: nobody else gives such.
const LOAD: usize = 8;

/// An event's payload, as `jsonb` prints it. All but the number follows from the id.
pub fn payload(id: Uuid, number: u64) -> String {
    let mut rng = Rng::with_seed(id.as_u128() as u64);
    // Mostly small, sometimes out of line in TOAST.
    let length = if rng.u8(..) < 3 { rng.usize(10_000..60_000) } else { rng.usize(0..400) };
    let padding: String = (0..length).map(|_| rng.alphanumeric()).collect();
    format!(r#"{{"n": {number}, "id": "{id}", "padding": "{padding}"}}"#)
}

/// A load that is being written.
pub struct Running {
    server: Arc<Postgres>,
    database: String,
    aggregate_type: String,
    over: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    writers: Vec<JoinHandle<Attempts>>,
}

impl Running {
    /// How many committed events were acknowledged so far.
    pub fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// Waits until this many committed events were acknowledged.
    #[track_caller]
    pub fn wait_written(&self, count: usize) {
        eventually(&format!("{count} events written"), PATIENCE, || self.written() >= count);
    }

    /// True when every writer has written its share.
    pub fn is_over(&self) -> bool {
        self.writers.iter().all(JoinHandle::is_finished)
    }

    /// Lets every writer write its share, and asks the database what is true.
    #[track_caller]
    pub fn finish(self) -> Truth {
        eventually("the load ends", PATIENCE * 3, || self.is_over());
        self.stop()
    }

    /// Ends the load now, and asks the database what is true.
    pub fn stop(mut self) -> Truth {
        self.over.store(true, Ordering::Relaxed);
        let mut attempts = Attempts::new();
        for writer in self.writers.drain(..) {
            attempts.extend(writer.join().expect("a writer works"));
        }
        let sql = "select aggregate_id::text, id::text from public.outbox where aggregate_type = $1";
        let mut session = self.server.connect(&self.database);
        let rows = session.query(sql, &[&self.aggregate_type]).expect("the table is read");
        // By now whatever is in the table is surely committed.
        let end = session.query_one("select pg_current_wal_insert_lsn()::text", &[]).expect("the server has a WAL");
        let end: Lsn = end.get::<_, String>(0).parse().expect("PostgreSQL prints an LSN");
        let mut numbered = BTreeMap::<String, BTreeMap<u64, Event>>::new();
        for row in rows {
            let (key, id): (String, String) = (row.get(0), row.get(1));
            let (number, committed_by) = attempts.remove(&id).expect("nobody else writes these rows");
            let committed_by = committed_by.or(Some(end));
            numbered.entry(key).or_default().insert(number, Event { id, committed_by });
        }
        let committed = numbered.into_iter().map(|(key, events)| (key, events.into_values().collect())).collect();
        Truth { committed, rolled_back: attempts.into_keys().collect() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Every id that was ever sent: its number, and the position by which its commit was complete, if the writer learned it.
type Attempts = HashMap<String, (u64, Option<Lsn>)>;

struct Key {
    name: String,
    number: u64,
    committed: usize,
}

impl Key {
    fn new(name: String) -> Key {
        Key { name, number: 0, committed: 0 }
    }
}

struct Writer {
    load: Workload,
    server: Arc<Postgres>,
    database: String,
    rng: Rng,
    keys: Vec<Key>,
    session: Option<Client>,
    attempted: Attempts,
    /// Events whose commit was asked for and not yet answered: if it happened, it has by the next answer.
    unanswered: Vec<String>,
}

/// One transaction, ready to be sent.
#[derive(Default)]
struct Script {
    sql: String,
    /// Ids that will be committed, with the index of their key.
    kept: Vec<(String, usize)>,
}

impl Writer {
    fn write_until(&mut self, over: &AtomicBool, written: &AtomicUsize) {
        let started = Instant::now();
        let mut own = 0;
        while !over.load(Ordering::Relaxed) && self.keys.iter().any(|key| key.committed < self.load.events_per_key) {
            let script = self.next_script();
            // After a lost connection the next session starts only once the server answers again: by then the old
            // session and whatever it was committing are gone, so no commit of this key can come late.
            let answer = self.send(&script.sql);
            let (ids, keys): (Vec<String>, Vec<usize>) = script.kept.into_iter().unzip();
            self.unanswered.extend(ids);
            if let Some(lsn) = answer {
                for id in self.unanswered.drain(..) {
                    self.attempted.get_mut(&id).expect("it was sent").1 = Some(lsn);
                }
                keys.iter().for_each(|key| self.keys[*key].committed += 1);
                written.fetch_add(keys.len(), Ordering::Relaxed);
                own += keys.len();
            }
            if let Some(rate) = self.load.events_per_second {
                let due = Duration::from_secs_f64(own as f64 * self.load.connections as f64 / rate);
                // Behind a large transaction that is long: not without a look at whether it is over.
                while started.elapsed() < due && !over.load(Ordering::Relaxed) {
                    std::thread::sleep(due.saturating_sub(started.elapsed()).min(Duration::from_millis(100)));
                }
            }
        }
    }

    /// One transaction in ten is rolled back; one in five rolls back a savepoint. Both still use up numbers.
    fn next_script(&mut self) -> Script {
        let mut script = Script { sql: "begin;".to_string(), kept: Vec::new() };
        let large = self.load.one_large_in.is_some_and(|others| self.rng.usize(..others) == 0);
        for _ in 0..self.rng.usize(if large { LARGE } else { 1..=12 }) {
            let kept = self.insert(&mut script.sql);
            script.kept.push(kept);
        }
        if self.rng.u8(..) < 51 {
            script.sql.push_str("savepoint s;");
            for _ in 0..self.rng.usize(1..=3) {
                self.insert(&mut script.sql);
            }
            script.sql.push_str("rollback to s;");
            let kept = self.insert(&mut script.sql);
            script.kept.push(kept);
        }
        match self.rng.u8(..) < 25 {
            true => {
                script.sql.push_str("rollback;");
                script.kept.clear();
            }
            false => script.sql.push_str("commit;"),
        }
        script.sql.push_str("select pg_current_wal_insert_lsn()");
        script
    }

    fn insert(&mut self, sql: &mut String) -> (String, usize) {
        let index = self.rng.usize(..self.keys.len());
        let key = &mut self.keys[index];
        key.number += 1;
        let id = Builder::from_custom_bytes(self.rng.u128(..).to_be_bytes()).into_uuid();
        let (aggregate_type, name, number) = (&self.load.aggregate_type, &key.name, key.number);
        sql.push_str(&format!(
            "insert into public.outbox (id, aggregate_type, aggregate_id, event_type, payload) values \
             ('{id}', '{aggregate_type}', '{name}', 'written', '{}');",
            payload(id, number)
        ));
        let id = id.to_string();
        self.attempted.insert(id.clone(), (number, None));
        (id, index)
    }

    /// Sends a script; the position after its end, or `None` when the connection was lost on the way.
    fn send(&mut self, sql: &str) -> Option<Lsn> {
        if self.session.is_none() {
            std::thread::sleep(Duration::from_millis(20));
            self.session = self.server.try_connect(&self.database).ok();
        }
        match self.session.as_mut()?.simple_query(sql) {
            Ok(answer) => {
                let row = answer.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0),
                    _ => None,
                });
                Some(row.expect("the position was asked for").parse().expect("PostgreSQL prints an LSN"))
            }
            Err(error) if error.as_db_error().is_some_and(|error| !is_passing(error.code())) => {
                panic!("the load is refused: {error:?}")
            }
            Err(_) => {
                self.session = None;
                None
            }
        }
    }
}

/// The server stops or starts (57P), or has no room (53) and has undone the transaction, or dies of it.
fn is_passing(code: &SqlState) -> bool {
    ["57P", "53"].iter().any(|class| code.code().starts_with(class))
}
