//! Who races, and how a lap is run: a copy of the slot, a topic of its own, and a look whether everything arrived.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outboxd::lsn::Lsn;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use uuid::Uuid;

use crate::debezium::{Task, Tuning};
use crate::meter::{Meter, Part, Used};
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::process::{Farewell, Process, Scratch};
use crate::support::relay::{Config, Relay};
use crate::support::{PATIENCE, eventually, within};
use crate::workload::Workload;

/// Longer than any lap takes.
const LAP: Duration = Duration::from_secs(600);
/// Of every topic.
pub const PARTITIONS: i32 = 6;
/// Until a JVM with Debezium reads.
const STARTED: Duration = Duration::from_secs(120);
/// Whoever publishes nothing for so long has failed.
const STUCK: Duration = Duration::from_secs(120);

/// Who races.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Contender {
    RecvText,
    RecvBinary,
    Reader,
    Producer,
    ReaderAndProducer,
    Outboxd,
    /// With the headers that Debezium's router gives a record: `id`.
    OutboxdIdOnly,
    Debezium(Tuning),
}

impl Contender {
    /// The limits and the relay, in the order of the table.
    pub const USUAL: [Contender; 7] = [
        Contender::RecvText,
        Contender::RecvBinary,
        Contender::Reader,
        Contender::Producer,
        Contender::ReaderAndProducer,
        Contender::Outboxd,
        Contender::OutboxdIdOnly,
    ];
    /// The incumbent.
    pub const DEBEZIUM: [Contender; 2] = [Contender::Debezium(Tuning::Default), Contender::Debezium(Tuning::Backlog)];

    /// True for those that publish events of a database.
    pub fn is_a_relay(self) -> bool {
        matches!(self, Contender::Outboxd | Contender::OutboxdIdOnly | Contender::Debezium(_))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Contender::RecvText => "pg_recvlogical, text",
            Contender::RecvBinary => "pg_recvlogical, binary",
            Contender::Reader => "a reader that pauses",
            Contender::Producer => "a bare producer",
            Contender::ReaderAndProducer => "both at once",
            Contender::Outboxd => "outboxd",
            Contender::OutboxdIdOnly => "outboxd, header id only",
            Contender::Debezium(Tuning::Default) => "Debezium, as it comes",
            Contender::Debezium(_) => "Debezium, tuned",
        })
    }
}

/// One run of one contender.
#[derive(Debug, Clone)]
pub struct Lap {
    events: u64,
    took: Duration,
    used: Used,
}

impl Lap {
    /// How fast it was.
    pub fn events_per_second(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }

    /// What a million events cost, in seconds of processor time.
    pub fn cpu_per_million(&self, part: Part) -> f64 {
        self.used.cpu_seconds.get(&part).copied().unwrap_or(0.0) * 1e6 / self.events as f64
    }

    /// The contender's highest memory, in megabytes.
    pub fn peak_megabytes(&self) -> f64 {
        self.used.peak_bytes as f64 / 1e6
    }
}

impl fmt::Display for Lap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, cpu) = (self.events_per_second(), self.cpu_per_million(Part::Contender));
        write!(f, "{rate:.0} events/s, {cpu:.1} CPU s per million, {:.0} MB", self.peak_megabytes())
    }
}

/// A backlog, and where it goes.
pub struct Track {
    events: u64,
    config: Config,
    database: Database,
    kafka: Arc<Kafka>,
    /// The end of the backlog.
    end: Lsn,
    laps: AtomicUsize,
    scratch: Scratch,
}

impl Track {
    /// Writes the backlog behind a slot.
    pub fn load(workload: Workload, asked: u64, postgres: &Arc<Postgres>, kafka: &Arc<Kafka>) -> Track {
        let database = postgres.database();
        let config = Config::new(&database, kafka).set("postgres.sender_timeout", "60s");
        config.run(&["init"]).assert_success();
        let events = workload.events(asked);
        workload.write(&database, events);
        database.exec("checkpoint");
        let rows = database.connect().query("select payload::text from public.outbox limit 1000", &[]).unwrap();
        let values: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let (end, scratch) = (database.written(), Scratch::new());
        std::fs::write(scratch.path().join("values"), values.join("\n")).unwrap();
        Track { events, config, database, kafka: kafka.clone(), end, laps: AtomicUsize::new(0), scratch }
    }

    /// One lap.
    pub fn run(&self, contender: Contender) -> Lap {
        let slot = format!("lap_{}", self.laps.fetch_add(1, Ordering::Relaxed));
        let topic = format!("race.{slot}");
        let master = self.config.slot();
        self.database.exec(&format!("select pg_copy_logical_replication_slot('{master}', '{slot}')"));
        self.kafka.create_topic(&topic, PARTITIONS);
        let meter = Meter::start();
        meter.watch_from_now(Part::Broker, self.kafka.node(0).pid());
        let took = match contender {
            Contender::RecvText => self.race(&meter, &slot, &mut [self.recvlogical(&slot, "false")]),
            Contender::RecvBinary => self.race(&meter, &slot, &mut [self.recvlogical(&slot, "true")]),
            Contender::Reader => self.race(&meter, &slot, &mut [self.reader(&slot)]),
            Contender::Producer => self.race(&meter, "", &mut [self.producer(&topic)]),
            Contender::ReaderAndProducer => self.race(&meter, &slot, &mut [self.reader(&slot), self.producer(&topic)]),
            Contender::Outboxd => self.outboxd(&meter, &slot, &topic, ""),
            Contender::OutboxdIdOnly => self.outboxd(&meter, &slot, &topic, "default_headers = \"id\""),
            Contender::Debezium(tuning) => self.debezium(&meter, &slot, &topic, tuning),
        };
        let (events, took) = took;
        let lap = Lap { events, took, used: meter.read() };
        match contender {
            Contender::RecvText | Contender::RecvBinary | Contender::Reader => {}
            _ => self.assert_all_arrived(&topic),
        }
        drop_slot(&self.database, &slot);
        self.kafka.delete_topic(&topic);
        lap
    }

    /// Starts programs, the first of which reads from the slot if there is one, and waits for their ends.
    fn race(&self, meter: &Meter, slot: &str, programs: &mut [Command]) -> (u64, Duration) {
        let mut begun = Instant::now();
        let start = |program: &mut Command| Process::spawn(program.stdout(Stdio::null()), Farewell::Kill);
        let mut running: Vec<Process> = programs.iter_mut().map(start).collect();
        running.iter().for_each(|process| meter.watch(Part::Contender, process.id()));
        if !slot.is_empty() {
            self.watch_walsender(meter, slot, || running[0].exited().is_some());
            begun = Instant::now();
        }
        for process in &mut running {
            let ended = process.wait(LAP).expect("a lap ends");
            assert!(ended.success(), "{ended}");
        }
        (self.events, begun.elapsed())
    }

    fn outboxd(&self, meter: &Meter, slot: &str, topic: &str, more: &str) -> (u64, Duration) {
        let route = format!("topic = \"{topic}\"\nkey = \"{{aggregate_id}}\"\n{more}");
        let config = self.config.clone().without("route").add("route", &route).set("postgres.slot", slot);
        let mut relay = Relay::start(&config);
        meter.watch(Part::Contender, relay.pid());
        self.watch_walsender(meter, slot, || !relay.is_running());
        let begun = Instant::now();
        relay.wait_ready();
        let all = || (relay.published() >= self.events as f64).then(|| begun.elapsed());
        // Asking costs the relay something, too.
        let took = within(LAP, || {
            std::thread::sleep(Duration::from_millis(40));
            all()
        });
        let took = took.unwrap_or_else(|| panic!("{} of {}\n{}", relay.published(), self.events, relay.log()));
        relay.sigterm();
        assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
        (self.events, took)
    }

    /// A JVM is slow at first. Neither time nor processor are counted until a quarter of the events has come.
    fn debezium(&self, meter: &Meter, slot: &str, topic: &str, tuning: Tuning) -> (u64, Duration) {
        let task = Task { database: &self.database, kafka: &self.kafka, slot, publication: self.config.slot(), topic };
        let mut debezium = task.start(tuning, self.scratch.path());
        let pid = debezium.id();
        self.watch_walsender(meter, slot, || debezium.exited().is_some());
        let consumer = self.consumer();
        let mut wait_for = |events: u64| {
            let (mut before, mut moved) = (0, Instant::now());
            let now = within(LAP, || {
                std::thread::sleep(Duration::from_millis(40));
                let now = published(&consumer, topic);
                if now > before {
                    (before, moved) = (now, Instant::now());
                }
                let log = || task.log(self.scratch.path());
                assert!(debezium.exited().is_none() && moved.elapsed() < STUCK, "{now} of {events}\n{}", log());
                (now >= events).then_some(now)
            });
            now.expect("a lap ends")
        };
        let warm = wait_for(self.events / 4);
        let begun = Instant::now();
        meter.watch_from_now(Part::Contender, pid);
        wait_for(self.events);
        (self.events - warm, begun.elapsed())
    }

    /// The clock starts when the slot has its walsender, whoever reads.
    fn watch_walsender(&self, meter: &Meter, slot: &str, mut over: impl FnMut() -> bool) {
        let found = within(STARTED, || match self.database.walsender(slot) {
            Some(pid) => Some(Some(pid)),
            None => over().then_some(None),
        });
        let pid = found.flatten().expect("somebody reads from the slot");
        meter.watch(Part::Walsender, pid.parse().expect("a pid is a number"));
    }

    fn recvlogical(&self, slot: &str, binary: &str) -> Command {
        let mut command = self.database.recvlogical(slot, self.config.slot());
        command.args(["-o", &format!("binary={binary}"), "--no-loop", "-f", "/dev/null"]);
        command.args(["--endpos", &self.end.to_string()]);
        command
    }

    fn reader(&self, slot: &str) -> Command {
        let config = self.config.clone().set("postgres.slot", slot).write(self.scratch.path());
        role("reader", &[config.display().to_string(), self.events.to_string()])
    }

    fn producer(&self, topic: &str) -> Command {
        let values: PathBuf = self.scratch.path().join("values");
        let events = self.events.to_string();
        role("producer", &[self.kafka.brokers(), topic.to_string(), events, values.display().to_string()])
    }

    fn consumer(&self) -> BaseConsumer {
        let mut client = self.kafka.client();
        client.set("group.id", "race").set("enable.auto.commit", "false");
        client.create().unwrap()
    }

    /// Reads the topic to its end: every event is there.
    fn assert_all_arrived(&self, topic: &str) {
        let consumer = self.consumer();
        let mut places = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            places.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        let records = published(&consumer, topic);
        consumer.assign(&places).unwrap();
        let mut ids = HashSet::new();
        for _ in 0..records {
            let record = consumer.poll(PATIENCE).expect("there is one more").unwrap();
            let headers = record.headers().expect("every record has headers");
            let id = headers.iter().find(|header| header.key == "id").and_then(|header| header.value);
            ids.insert(Uuid::try_parse_ascii(id.expect("every record has its id")).expect("it is a UUID"));
        }
        assert_eq!(ids.len() as u64, self.events, "events in {topic}");
    }
}

/// How many records a topic has.
fn published(consumer: &BaseConsumer, topic: &str) -> u64 {
    let end = |partition| consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap().1 as u64;
    (0..PARTITIONS).map(end).sum()
}

/// Drops a slot as soon as nobody reads from it.
pub fn drop_slot(database: &Database, slot: &str) {
    let free = || database.connect().execute("select pg_drop_replication_slot($1)", &[&slot]).is_ok();
    eventually("the slot is free", PATIENCE, free);
}

/// This program again, in a role.
fn role(name: &str, arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(name).args(arguments);
    command
}
