//! Who races, and how a lap is run: a copy of the slot, a topic of its own, and a look whether everything arrived.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outboxd::lsn::Lsn;
use postgres::fallible_iterator::FallibleIterator;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use uuid::Uuid;

use crate::debezium::{Task, Tuning};
use crate::meter::{Meter, Part, Used};
use crate::roles;
use crate::support::debezium::STARTED;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::process::{Farewell, Process, Scratch};
use crate::support::relay::{Config, Relay};
use crate::support::{PATIENCE, eventually, within};
use crate::workload::Workload;

/// Longer than any lap takes.
const LAP: Duration = Duration::from_secs(600);
/// Of a topic, usually.
pub const PARTITIONS: i32 = 6;
/// Whoever publishes nothing for so long has failed.
const STUCK: Duration = Duration::from_secs(120);
/// So many events pass before a JVM counts as warm, and so many before the end of the lap it is looked at for the last time:
/// behind that it only publishes what it has read before.
const WARM_UP: u64 = 125_000;
const WIND_DOWN: u64 = 100_000;

/// Who races.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Contender {
    RecvText,
    RecvBinary,
    Reader,
    Producer,
    /// With the header `id` alone: what the others cost is librdkafka's.
    ProducerIdOnly,
    ReaderAndProducer,
    Outboxd,
    /// With the headers that Debezium's router gives a record: `id`.
    OutboxdIdOnly,
    Debezium(Tuning),
    /// The middle of a tuned one's lap.
    DebeziumWarm,
}

impl Contender {
    /// The order of a round, backwards in every other one: those that are compared stand together, whichever comes first, and
    /// every relay follows somebody who has kept the broker busy, because after a rest of half a minute it costs everybody more.
    pub const ROUND: [Contender; 10] = [
        Contender::Reader,
        Contender::RecvText,
        Contender::RecvBinary,
        Contender::ProducerIdOnly,
        Contender::Producer,
        Contender::Outboxd,
        Contender::OutboxdIdOnly,
        Contender::ReaderAndProducer,
        Contender::Debezium(Tuning::Backlog),
        Contender::Debezium(Tuning::Default),
    ];

    /// True for this project's relay.
    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Outboxd | Contender::OutboxdIdOnly)
    }

    /// True for those that publish events of a database.
    pub fn is_a_relay(self) -> bool {
        self.is_ours() || matches!(self, Contender::Debezium(_))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Contender::RecvText => "pg_recvlogical, text",
            Contender::RecvBinary => "pg_recvlogical, binary",
            Contender::Reader => "a reader that pauses",
            Contender::Producer => "a bare producer",
            Contender::ProducerIdOnly => "a bare producer, id only",
            Contender::ReaderAndProducer => "reader and producer at once",
            Contender::Outboxd => "outboxd",
            Contender::OutboxdIdOnly => "outboxd, header id only",
            Contender::Debezium(Tuning::Default) => "Debezium, as it comes",
            Contender::Debezium(_) => "Debezium, tuned",
            Contender::DebeziumWarm => "Debezium, tuned, once warm",
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
    /// From another moment of the same lap to this one.
    fn since(&self, other: &Lap) -> Lap {
        Lap { events: self.events - other.events, took: self.took - other.took, used: self.used.since(&other.used) }
    }

    /// How fast it was.
    pub fn events_per_second(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }

    /// What a million events cost, in seconds of processor time.
    pub fn cpu_per_million(&self, part: Part) -> f64 {
        self.used.cpu_per_million(part, self.events)
    }

    /// The contender's highest memory, in megabytes.
    pub fn peak_megabytes(&self) -> f64 {
        self.used.peak_megabytes()
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
    workload: Workload,
    events: u64,
    /// What must have arrived of it.
    truth: Sum,
    config: Config,
    database: Database,
    kafka: Arc<Kafka>,
    /// Where the contenders find it.
    brokers: String,
    /// The end of the backlog.
    end: Lsn,
    laps: AtomicUsize,
    scratch: Scratch,
}

impl Track {
    /// Writes the backlog behind a slot.
    pub fn load(workload: Workload, asked: u64, postgres: &Arc<Postgres>, kafka: &Arc<Kafka>) -> Track {
        let database = postgres.database();
        let brokers = match workload.distance() {
            Some(distance) => {
                kafka.proxies().iter().for_each(|proxy| proxy.latency(distance));
                kafka.proxied_brokers()
            }
            None => kafka.brokers(),
        };
        let config = Config::new(&database, kafka)
            .set("postgres.url", workload.url(&database))
            .set("postgres.sender_timeout", "60s")
            .set("kafka.brokers", brokers.as_str());
        config.run(&["init"]).assert_success();
        let events = workload.events(asked);
        workload.write(&database, events);
        database.exec("checkpoint");
        // Not as many as there are keys, so that every key meets every value.
        let rows = database.connect().query("select payload::text from public.outbox limit 997", &[]).unwrap();
        let values: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let (end, scratch) = (database.written(), Scratch::new());
        std::fs::write(scratch.path().join("values"), values.join("\n")).unwrap();
        let truth = Sum::of_the_table(&database);
        assert_eq!(truth.records, events, "the backlog is as large as it was to be");
        let (kafka, laps) = (kafka.clone(), AtomicUsize::new(0));
        Track { workload, events, truth, config, database, kafka, brokers, end, laps, scratch }
    }

    /// One lap, and the part of it in which a tuned JVM was warm.
    pub fn run(&self, contender: Contender) -> (Lap, Option<Lap>) {
        let slot = format!("lap_{}", self.laps.fetch_add(1, Ordering::Relaxed));
        let topic = format!("race.{}.{slot}", self.database.name());
        let master = self.config.slot();
        self.database.exec(&format!("select pg_copy_logical_replication_slot('{master}', '{slot}')"));
        self.kafka.create_topic(&topic, self.workload.partitions());
        // What the last one has left to be written is not this one's burden.
        assert!(Command::new("sync").status().is_ok_and(|status| status.success()));
        let (meter, mut warm) = (Meter::start(), None);
        let took = match contender {
            Contender::RecvText => self.read(&meter, &slot, self.recvlogical(&slot, "false")),
            Contender::RecvBinary => self.read(&meter, &slot, self.recvlogical(&slot, "true")),
            Contender::Reader => self.read(&meter, &slot, self.reader(&slot)),
            Contender::Producer => self.produce(&meter, &topic, roles::HEADERS),
            Contender::ProducerIdOnly => self.produce(&meter, &topic, 1),
            Contender::ReaderAndProducer => self.read(&meter, &slot, self.both(&slot, &topic)),
            Contender::Outboxd => self.outboxd(&meter, &slot, &topic, ""),
            Contender::OutboxdIdOnly => self.outboxd(&meter, &slot, &topic, "default_headers = \"id\""),
            Contender::Debezium(tuning) => self.debezium(&meter, &slot, &topic, tuning, &mut warm),
            Contender::DebeziumWarm => unreachable!("it is a part of another lap"),
        };
        let lap = Lap { events: self.events, took, used: meter.read() };
        match contender {
            Contender::RecvText | Contender::RecvBinary | Contender::Reader => {}
            Contender::Producer | Contender::ReaderAndProducer => {
                assert_eq!(self.arrived(&topic), self.sent(roles::HEADERS), "every record is in {topic} once");
            }
            Contender::ProducerIdOnly => {
                assert_eq!(self.arrived(&topic), self.sent(1), "every record is in {topic} once")
            }
            Contender::Outboxd | Contender::OutboxdIdOnly | Contender::Debezium(_) | Contender::DebeziumWarm => {
                let arrived = self.arrived(&topic);
                let headers = match contender {
                    Contender::OutboxdIdOnly | Contender::Debezium(Tuning::Backlog) => self.events,
                    Contender::Outboxd => 5 * self.events,
                    _ => arrived.headers,
                };
                let truth = Sum { headers, ..self.truth };
                assert_eq!(arrived, truth, "every event is in {topic} once, with its value and its headers");
            }
        }
        drop_slot(&self.database, &slot);
        self.kafka.delete_topic(&topic);
        (lap, warm)
    }

    /// Starts a program that reads from the slot, and waits for its end.
    fn read(&self, meter: &Meter, slot: &str, program: Command) -> Duration {
        let mut process = start(program);
        self.watch(meter, slot, process.id(), || process.exited().is_some());
        let begun = Instant::now();
        wait(&mut process);
        begun.elapsed()
    }

    /// Starts a program that only produces. It says itself how long that took.
    fn produce(&self, meter: &Meter, topic: &str, headers: usize) -> Duration {
        let (values, time) = (self.values(), self.scratch.path().join("time").display().to_string());
        let (events, headers) = (self.events.to_string(), headers.to_string());
        let arguments = [self.brokers.clone(), topic.to_string(), events, values, headers, time.clone()];
        let mut process = start(role("producer", &arguments));
        meter.watch_from_now(Part::Broker, self.kafka.node(0).pid());
        meter.watch_from_now(Part::Contender, process.id());
        wait(&mut process);
        let nanos = std::fs::read_to_string(time).unwrap().parse().unwrap();
        Duration::from_nanos(nanos)
    }

    fn outboxd(&self, meter: &Meter, slot: &str, topic: &str, more: &str) -> Duration {
        let route = format!("topic = \"{topic}\"\nkey = \"{{aggregate_id}}\"\n{more}");
        let config = self.config.clone().without("route").add("route", &route).set("postgres.slot", slot);
        let mut relay = Relay::start(&config);
        let pid = relay.pid();
        self.watch(meter, slot, pid, || !relay.is_running());
        let begun = Instant::now();
        relay.wait_ready();
        let all = || (relay.published() >= self.events as f64).then(|| begun.elapsed());
        // Asking costs the relay something, too.
        let took = within(LAP, || {
            std::thread::sleep(Duration::from_millis(50));
            all()
        });
        let took = took.unwrap_or_else(|| panic!("{} of {}\n{}", relay.published(), self.events, relay.log()));
        relay.sigterm();
        assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
        took
    }

    /// A JVM is slow at first: `warm` is the part of a tuned one's lap in which it is not, if the lap is long enough to tell.
    fn debezium(&self, meter: &Meter, slot: &str, topic: &str, tuning: Tuning, warm: &mut Option<Lap>) -> Duration {
        let (database, brokers, publication) = (&self.database, self.brokers.as_str(), self.config.slot());
        let task = Task { database, brokers, slot, publication, topic };
        let mut debezium = task.start(tuning, self.scratch.path());
        let pid = debezium.id();
        self.watch(meter, slot, pid, || debezium.has_ended());
        let begun = Instant::now();
        let consumer = self.consumer();
        let mut wait_for = |events: u64| {
            let (mut before, mut moved) = (0, Instant::now());
            let now = within(LAP, || {
                // Asking the broker costs it something: rarely, until the end is near.
                let is_near = before >= events - events / 10;
                std::thread::sleep(Duration::from_millis(if is_near { 50 } else { 250 }));
                let now = self.published(&consumer, topic);
                if now > before {
                    (before, moved) = (now, Instant::now());
                }
                let goes_on = !debezium.has_ended() && moved.elapsed() < STUCK;
                assert!(goes_on, "{now} of {events}\n{}", debezium.log());
                (now >= events).then_some(now)
            });
            now.expect("a lap ends")
        };
        // Where all comes in one transaction, most of the work is done before the first event comes, for everybody.
        let tells = self.workload != Workload::OneTransaction && self.events >= 2 * (WARM_UP + WIND_DOWN);
        if tells && tuning == Tuning::Backlog {
            let [cold, hot] = [WARM_UP, self.events - WIND_DOWN].map(|events| Lap {
                events: wait_for(events),
                took: begun.elapsed(),
                used: meter.used(),
            });
            *warm = Some(hot.since(&cold));
        }
        wait_for(self.events);
        begun.elapsed()
    }

    /// Clock and meters start when the slot has its walsender, whoever reads: what a contender and the broker have used
    /// before is not counted.
    fn watch(&self, meter: &Meter, slot: &str, contender: u32, mut over: impl FnMut() -> bool) {
        let found = within(STARTED, || match self.database.walsender(slot) {
            Some(pid) => Some(Some(pid)),
            None => over().then_some(None),
        });
        let pid = found.flatten().expect("somebody reads from the slot");
        meter.watch(Part::Walsender, pid.parse().expect("a pid is a number"));
        meter.watch_from_now(Part::Contender, contender);
        meter.watch_from_now(Part::Broker, self.kafka.node(0).pid());
    }

    fn recvlogical(&self, slot: &str, binary: &str) -> Command {
        let mut command = Database::recvlogical_at(&self.workload.url(&self.database), slot, self.config.slot());
        command.args(["-o", &format!("binary={binary}"), "--no-loop", "-f", "/dev/null"]);
        command.args(["--endpos", &self.end.to_string()]);
        command
    }

    fn reader(&self, slot: &str) -> Command {
        let config = self.config.clone().set("postgres.slot", slot).write(self.scratch.path());
        role("reader", &[config.display().to_string(), self.events.to_string()])
    }

    fn both(&self, slot: &str, topic: &str) -> Command {
        let config = self.config.clone().set("postgres.slot", slot).write(self.scratch.path());
        let (config, events) = (config.display().to_string(), self.events.to_string());
        role("both", &[config, self.brokers.clone(), topic.to_string(), events, self.values()])
    }

    /// How many records a topic has.
    fn published(&self, consumer: &BaseConsumer, topic: &str) -> u64 {
        let end = |partition| consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap().1 as u64;
        (0..self.workload.partitions()).map(end).sum()
    }

    fn values(&self) -> String {
        self.scratch.path().join("values").display().to_string()
    }

    fn consumer(&self) -> BaseConsumer {
        let mut client = self.kafka.client();
        client.set("group.id", "race").set("enable.auto.commit", "false");
        client.create().unwrap()
    }

    /// What the roles send, as they number it.
    fn sent(&self, headers: usize) -> Sum {
        let values = std::fs::read_to_string(self.values()).unwrap();
        let values: Vec<&str> = values.lines().collect();
        let mut sum = Sum::default();
        for number in 1..=self.events {
            let (key, value) = roles::contents(number, &values);
            sum.add(Uuid::from_u128(u128::from(number)), key.to_string().as_bytes(), value.as_bytes(), headers);
        }
        sum
    }

    /// Reads the topic to its end.
    fn arrived(&self, topic: &str) -> Sum {
        let consumer = self.kafka.consumer_of_all(topic, self.workload.partitions(), &[]);
        let records = self.published(&consumer, topic);
        let mut sum = Sum::default();
        for _ in 0..records {
            let record = consumer.poll(PATIENCE).expect("there is one more").unwrap();
            let headers = record.headers().expect("every record has headers");
            let id = headers.iter().find(|header| header.key == "id").and_then(|header| header.value);
            let id = Uuid::try_parse_ascii(id.expect("every record has its id")).expect("it is a UUID");
            sum.add(id, record.key().unwrap_or_default(), record.payload().unwrap_or_default(), headers.count());
        }
        sum
    }
}

/// What a topic or a table holds, in three numbers that cannot all be right when something is missing, there twice, or not
/// what it should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    records: u64,
    /// Of ids, keys and values, a number for each record, added up.
    contents: u64,
    headers: u64,
}

impl Sum {
    fn add(&mut self, id: Uuid, key: &[u8], value: &[u8], headers: usize) {
        let mut hasher = DefaultHasher::new();
        (id.as_u128(), key, value).hash(&mut hasher);
        self.records += 1;
        self.contents = self.contents.wrapping_add(hasher.finish());
        self.headers += headers as u64;
    }

    fn of_the_table(database: &Database) -> Sum {
        let mut session = database.connect();
        let sql = "select id::text, aggregate_id, payload::text from public.outbox";
        let mut rows = session.query_raw(sql, std::iter::empty::<i32>()).unwrap();
        let mut sum = Sum::default();
        while let Some(row) = rows.next().unwrap() {
            let [id, key, value]: [&str; 3] = [0, 1, 2].map(|column| row.get(column));
            sum.add(Uuid::parse_str(id).unwrap(), key.as_bytes(), value.as_bytes(), 0);
        }
        sum
    }
}

fn start(mut program: Command) -> Process {
    Process::spawn(program.stdout(Stdio::null()), Farewell::Kill)
}

fn wait(process: &mut Process) {
    let ended = process.wait(LAP).expect("a lap ends");
    assert!(ended.success(), "{ended}");
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
