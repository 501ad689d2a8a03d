//! Runs the real Debezium over the matrix, and writes what it publishes into `fixtures`.
//!
//! Every case has a table, a publication, a slot and a connector of its own; a handful at a time run in one worker of Kafka
//! Connect. The rows are written before the connector starts, behind its slot; the one that ends a task comes when all others
//! have arrived, so that nothing depends on what was under way.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::case::{Case, Outcome};
use crate::fixture::{Column, Failure, Fixture, Record, Stage, exceptions};
use crate::matrix;
use crate::support::debezium::{self, Source, State, Worker};
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::process::Scratch;
use crate::support::reader::Seen;
use crate::support::{PATIENCE, announce, eventually};
use crate::topics::Topics;

/// So many connectors share the worker's time.
const AT_ONCE: usize = 24;
/// A case that has not done by then what it is expected to do does something else.
const DONE: Duration = Duration::from_secs(90);
/// What was not expected at all comes within this time, or is not seen.
const UNEXPECTED: Duration = Duration::from_secs(2);
/// Of every topic.
pub const PARTITIONS: i32 = 3;

#[test]
#[ignore = "make record-debezium"]
fn record() {
    let only = std::env::var("OUTBOXD_RECORD_ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|part| !part.is_empty()).collect();
    let wanted = |case: &Case| only.is_empty() || only.iter().any(|part| case.name.contains(part));
    let cases: Vec<Case> = matrix::cases().into_iter().filter(wanted).collect();
    let studio = Studio::open();
    let mut refused = Vec::new();
    for (number, batch) in cases.chunks(AT_ONCE).enumerate() {
        let begun = Instant::now();
        refused.extend(studio.record(batch));
        let done = (number * AT_ONCE + batch.len(), cases.len(), begun.elapsed());
        announce(&format!("{} of {} cases, the last {} in {:.0?}", done.0, done.1, batch.len(), done.2));
    }
    assert!(refused.is_empty(), "{} not as expected:\n{}", refused.len(), refused.join("\n"));
}

/// Servers, and a worker of Kafka Connect.
struct Studio {
    worker: Worker,
    database: Database,
    kafka: Arc<Kafka>,
    recorded_with: BTreeMap<String, String>,
    begun_ms: i64,
    _scratch: Scratch,
}

impl Studio {
    fn open() -> Studio {
        let postgres = Postgres::options().start();
        let kafka = Kafka::options().production().start();
        let (database, scratch) = (postgres.database(), Scratch::new());
        // Nothing is published yet, so nothing can be in another database's time zone.
        let mut worker = Worker::start(&kafka.brokers(), scratch.path(), &debezium::JVM, &[], &[]);
        worker.wait_ready();
        let java = Command::new("java").arg("--version").output().expect("java starts").stdout;
        let java = String::from_utf8_lossy(&java).lines().next().unwrap_or_default().to_string();
        let recorded_with = [
            ("debezium", debezium::version().to_string()),
            ("kafka connect", debezium::connect_version().to_string()),
            ("postgres", database.ask("show server_version").expect("it has a version")),
            ("java", java),
        ];
        let recorded_with = recorded_with.map(|(name, value)| (name.to_string(), value)).into();
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
        let begun_ms = i64::try_from(begun.as_millis()).expect("it is not that late");
        Studio { worker, database, kafka, recorded_with, begun_ms, _scratch: scratch }
    }

    /// Records these cases, and says which did something else than expected.
    fn record(&self, cases: &[Case]) -> Vec<String> {
        let mut registrations = HashMap::new();
        for case in cases {
            self.lay_out(case);
            if let Err(refusal) = self.worker.add(&self.connector(case)) {
                registrations.insert(case.name.clone(), refusal);
            }
        }
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut topics = Topics::of(&self.kafka);
        let mut read = || -> HashMap<String, Vec<Seen>> {
            let seen = topics.read();
            let of = |name: &str| Topics::of_case(seen, name, &names).into_iter().cloned().collect();
            names.iter().map(|name| (name.to_string(), of(name))).collect()
        };
        let mut open: Vec<&Case> = cases.iter().filter(|case| !registrations.contains_key(&case.name)).collect();
        let mut told: Vec<&str> = Vec::new();
        let deadline = Instant::now() + DONE;
        let mut stage: HashMap<String, Stage> = HashMap::new();
        while !open.is_empty() && Instant::now() < deadline {
            let found = read();
            open.retain(|case| {
                let count = found[&case.name].len();
                let has_failed = matches!(self.worker.state(&case.name), State::Failed(_));
                let is_told = told.contains(&case.name.as_str());
                if has_failed {
                    stage.insert(case.name.clone(), if is_told { Stage::LastStatement } else { Stage::Start });
                }
                match case.outcome() {
                    _ if has_failed => false,
                    Outcome::Publishes(records) => count < records,
                    Outcome::Refuses => true,
                    Outcome::StopsBehind(records) => {
                        if count >= records && !is_told && self.reads(case) {
                            self.database.exec(case.statements().last().expect("it has rows"));
                            told.push(
                                cases.iter().find(|other| other.name == case.name).expect("it is one").name.as_str(),
                            );
                        }
                        true
                    }
                }
            });
        }
        std::thread::sleep(UNEXPECTED);
        let found = read();
        let mut refused = Vec::new();
        for case in cases {
            let failure = match (registrations.remove(&case.name), self.worker.state(&case.name)) {
                (Some(refusal), _) => Some(Failure { at: Stage::Registration, exceptions: vec![message(&refusal)] }),
                (None, State::Failed(trace)) => {
                    let at = stage.get(&case.name).copied().unwrap_or(Stage::LastStatement);
                    Some(Failure { at, exceptions: exceptions(&trace) })
                }
                (None, State::Running | State::Unknown) => None,
            };
            let records: Vec<Record> = found[&case.name].iter().map(|seen| Record::of(seen, self.begun_ms)).collect();
            match is_as_expected(case.outcome(), records.len(), failure.as_ref()) {
                true => self.fixture(case, records, failure).write(),
                false => refused.push(format!("{}: {:?}, but {records:#?}\n{failure:#?}", case.name, case.outcome())),
            }
        }
        for case in cases {
            self.worker.remove(&case.name);
        }
        for case in cases {
            let free = || self.database.connect().execute("select pg_drop_replication_slot($1)", &[&case.name]).is_ok();
            eventually("the slot is free", PATIENCE, free);
        }
        // Hundreds of cases have more topics than a small broker can bear.
        topics.names().iter().for_each(|topic| self.kafka.delete_topic(topic));
        refused
    }

    /// The table, its publication, its slot, and all statements but one that ends the task.
    fn lay_out(&self, case: &Case) {
        let Case { name, .. } = case;
        self.database.exec(&case.ddl());
        self.database.exec(&format!("create publication {name} for table {}", case.table()));
        self.database.exec(&format!("select pg_create_logical_replication_slot('{name}', 'pgoutput')"));
        let statements = match case.outcome() {
            Outcome::StopsBehind(_) => case.statements().split_last().expect("it has rows").1,
            Outcome::Publishes(_) | Outcome::Refuses => case.statements(),
        };
        statements.iter().for_each(|statement| self.database.exec(statement));
    }

    fn connector(&self, case: &Case) -> BTreeMap<String, String> {
        let (table, slot) = (case.table(), case.name.as_str());
        let mut connector = Source { database: &self.database, table: &table, slot, publication: slot }.connector(slot);
        connector.extend(debezium::properties(&[
            ("poll.interval.ms", "50"),
            ("topic.creation.default.partitions", &PARTITIONS.to_string()),
            ("topic.creation.default.replication.factor", "1"),
        ]));
        connector.extend(case.connector_options());
        connector
    }

    /// True once the connector reads from its slot.
    fn reads(&self, case: &Case) -> bool {
        self.database.walsender(&case.name).is_some()
    }

    fn fixture(&self, case: &Case, records: Vec<Record>, failure: Option<Failure>) -> Fixture {
        let (columns, rows) = self.table(case);
        Fixture {
            case: case.name.clone(),
            recorded_with: self.recorded_with.clone(),
            table: case.table(),
            ddl: case.ddl(),
            statements: case.statements().to_vec(),
            options: case.options().clone(),
            connector: case.connector_options(),
            columns,
            rows,
            records,
            failure,
        }
    }

    fn table(&self, case: &Case) -> (Vec<Column>, Vec<Vec<Option<String>>>) {
        let sql = "select attname::text, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
                   from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
                   where attrelid = $1::text::regclass and attnum > 0 order by attnum";
        let mut session = self.database.connect();
        let columns = session.query(sql, &[&case.table()]).expect("the table is there");
        let columns: Vec<Column> = columns
            .iter()
            .map(|row| Column { name: row.get(0), kind: row.get(1), required: row.get(2), default: row.get(3) })
            .collect();
        let rows =
            session.simple_query(&format!("select * from {} order by ctid", case.table())).expect("it can be read");
        let rows = rows.iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => {
                Some((0..columns.len()).map(|column| row.get(column).map(str::to_string)).collect())
            }
            _ => None,
        });
        let rows = rows.collect();
        (columns, rows)
    }
}

fn is_as_expected(outcome: Outcome, records: usize, failure: Option<&Failure>) -> bool {
    match (outcome, failure.map(|failure| failure.at)) {
        (Outcome::Publishes(expected), None) => records == expected,
        (Outcome::StopsBehind(expected), Some(Stage::LastStatement)) => records == expected,
        (Outcome::Refuses, Some(Stage::Registration | Stage::Start)) => records == 0,
        _ => false,
    }
}

/// What Connect said, without the JSON around it.
fn message(answer: &str) -> String {
    let answer: Option<serde_json::Value> = serde_json::from_str(answer).ok();
    answer.and_then(|answer| Some(answer["message"].as_str()?.to_string())).unwrap_or_default()
}
