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

use crate::meter::{Meter, Part, Used};
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::process::{Farewell, Process, Scratch};
use crate::support::relay::{Config, Relay};
use crate::support::{PATIENCE, eventually, within};
use crate::workload::Workload;

/// Longer than any lap takes.
const LAP: Duration = Duration::from_secs(600);
const PARTITIONS: i32 = 6;

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
}

impl Contender {
    /// All of them, in the order of the table.
    pub const ALL: [Contender; 6] = [
        Contender::RecvText,
        Contender::RecvBinary,
        Contender::Reader,
        Contender::Producer,
        Contender::ReaderAndProducer,
        Contender::Outboxd,
    ];
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
        meter.watch(Part::Broker, self.kafka.node(0).pid());
        let begun = Instant::now();
        let took = match contender {
            Contender::RecvText => self.race(&meter, &slot, &mut [self.recvlogical(&slot, "false")]),
            Contender::RecvBinary => self.race(&meter, &slot, &mut [self.recvlogical(&slot, "true")]),
            Contender::Reader => self.race(&meter, &slot, &mut [self.reader(&slot)]),
            Contender::Producer => self.race(&meter, &slot, &mut [self.producer(&topic)]),
            Contender::ReaderAndProducer => self.race(&meter, &slot, &mut [self.reader(&slot), self.producer(&topic)]),
            Contender::Outboxd => self.outboxd(&meter, &slot, &topic, begun),
        };
        let lap = Lap { events: self.events, took, used: meter.read() };
        match contender {
            Contender::RecvText | Contender::RecvBinary | Contender::Reader => {}
            Contender::Producer | Contender::ReaderAndProducer | Contender::Outboxd => self.assert_all_arrived(&topic),
        }
        let free = || self.database.connect().execute("select pg_drop_replication_slot($1)", &[&slot]).is_ok();
        eventually("the slot is free", PATIENCE, free);
        self.kafka.delete_topic(&topic);
        lap
    }

    /// Starts programs, and waits for their ends.
    fn race(&self, meter: &Meter, slot: &str, programs: &mut [Command]) -> Duration {
        let begun = Instant::now();
        let start = |program: &mut Command| Process::spawn(program.stdout(Stdio::null()), Farewell::Kill);
        let mut running: Vec<Process> = programs.iter_mut().map(start).collect();
        running.iter().for_each(|process| meter.watch(Part::Contender, process.id()));
        self.watch_walsender(meter, slot, || running[0].exited().is_some());
        for process in &mut running {
            let ended = process.wait(LAP).expect("a lap ends");
            assert!(ended.success(), "{ended}");
        }
        begun.elapsed()
    }

    fn outboxd(&self, meter: &Meter, slot: &str, topic: &str, begun: Instant) -> Duration {
        let route = format!("topic = \"{topic}\"\nkey = \"{{aggregate_id}}\"");
        let config = self.config.clone().without("route").add("route", &route).set("postgres.slot", slot);
        let mut relay = Relay::start(&config);
        meter.watch(Part::Contender, relay.pid());
        self.watch_walsender(meter, slot, || false);
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
        took
    }

    /// The walsender is known once the slot has one; a program that only produces has none.
    fn watch_walsender(&self, meter: &Meter, slot: &str, mut over: impl FnMut() -> bool) {
        let found = within(Duration::from_secs(2), || match self.database.walsender(slot) {
            Some(pid) => Some(Some(pid)),
            None => over().then_some(None),
        });
        if let Some(Some(pid)) = found {
            meter.watch(Part::Walsender, pid.parse().expect("a pid is a number"));
        }
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

    /// Reads the topic to its end: every event is there.
    fn assert_all_arrived(&self, topic: &str) {
        let mut client = self.kafka.client();
        client.set("group.id", "race").set("enable.auto.commit", "false");
        let consumer: BaseConsumer = client.create().unwrap();
        let (mut places, mut left) = (TopicPartitionList::new(), 0);
        for partition in 0..PARTITIONS {
            places.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
            left += consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap().1;
        }
        consumer.assign(&places).unwrap();
        let mut ids = HashSet::new();
        for _ in 0..left {
            let record = consumer.poll(PATIENCE).expect("there is one more").unwrap();
            let headers = record.headers().expect("every record has headers");
            let id = headers.iter().find(|header| header.key == "id").and_then(|header| header.value);
            ids.insert(id.expect("every record has its id").to_vec());
        }
        assert_eq!(ids.len() as u64, self.events, "events in {topic}");
    }
}

/// This program again, in a role.
fn role(name: &str, arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(name).args(arguments);
    command
}
