//! A steady rate of transactions with one row each: how long an event takes from its commit to a consumer, beside records
//! that are produced without any database.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use crate::contender::{PARTITIONS, drop_slot};
use crate::debezium::{Task, Tuning};
use crate::meter::{Meter, Part, Used};
use crate::roles::{HEADERS, client, headers};
use crate::support::debezium::{STARTED, Worker};
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::process::Scratch;
use crate::support::relay::{Config, Relay};
use crate::support::{PATIENCE, eventually, within};

/// Transactions a second.
pub const RATES: [u64; 2] = [1000, 5000];
/// As `--only` names it.
pub fn name(rate: u64) -> String {
    format!("steady-{rate}")
}

/// Between warm-up and measurement, when all of the warm-up has come.
const REST: Duration = Duration::from_secs(2);
/// How long it is measured.
const SECONDS: u64 = 20;
/// Sessions that write.
const WRITERS: u64 = 4;

/// Who carries the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// Nobody: they are produced.
    Bare,
    /// The relay as it comes.
    Outboxd,
    /// Tuned for latency.
    Debezium,
}

impl Carrier {
    /// What is not measured because something warms up: connections, or a JVM.
    fn warm_up(self, rate: u64) -> WarmUp {
        match self {
            Carrier::Bare | Carrier::Outboxd => WarmUp { events: 3 * rate, rate },
            Carrier::Debezium => WarmUp { events: 150_000, rate: 5000 },
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Carrier::Bare => "a bare producer",
            Carrier::Outboxd => "outboxd",
            Carrier::Debezium => "Debezium, tuned for latency",
        })
    }
}

/// How long events took, in milliseconds: from when each was due, so that whoever holds up the writers has made them late; and from
/// when its transaction was sent, which does not count how late writers are that share two cores with everybody else.
#[derive(Debug, Clone)]
pub struct Latency {
    pub due: Times,
    pub sent_at: Times,
    /// Events a second that were sent, and that came, in the time in which they were sent.
    pub sent: f64,
    pub read: f64,
    /// Seconds of processor time for a million events, of each part.
    pub cpu: [f64; 3],
    /// The carrier's highest memory, in megabytes.
    pub peak_megabytes: f64,
}

/// Some of the times that events took, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Times {
    fn of(mut took: Vec<f64>) -> Times {
        took.sort_by(f64::total_cmp);
        let at = |part: f64| took[((took.len() - 1) as f64 * part).round() as usize];
        Times { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { p50, p99, p999, max } = self;
        write!(f, "p50 {p50:.1} ms, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1}")
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { due, sent_at, sent, read, cpu: _, peak_megabytes } = self;
        write!(f, "{sent_at} (since due: {due}), {read:.0} of {sent:.0} a second, {peak_megabytes:.0} MB")
    }
}

/// So many events, so many a second.
#[derive(Clone, Copy)]
struct WarmUp {
    events: u64,
    rate: u64,
}

/// When each event was due, when it was sent and when it was read, in nanoseconds since the beginning; its key is its number.
struct Clock {
    begun: Instant,
    rate: u64,
    /// The first ones, which are not measured.
    warm_up: WarmUp,
    /// When the first that is measured is due: a rest after all of the warm-up has come, so that what a cold carrier could
    /// not keep up with is in nobody's way.
    measured_from: OnceLock<Duration>,
    /// Events that were read.
    came: AtomicU64,
    /// No more will come: whoever waits for them gives up.
    over: AtomicBool,
    due: Vec<AtomicU64>,
    sent: Vec<AtomicU64>,
    read: Vec<AtomicU64>,
}

impl Clock {
    fn new(rate: u64, warm_up: WarmUp, events: u64) -> Clock {
        let times = || (0..events).map(|_| AtomicU64::new(0)).collect();
        let (begun, measured_from) = (Instant::now(), OnceLock::new());
        Clock {
            begun,
            rate,
            warm_up,
            measured_from,
            came: AtomicU64::new(0),
            over: AtomicBool::new(false),
            due: times(),
            sent: times(),
            read: times(),
        }
    }

    /// Waits until the event of this number is due.
    fn wait(&self, number: u64) -> Duration {
        let after = |many: u64, rate: u64| Duration::from_secs_f64(many as f64 / rate as f64);
        let due = match number.checked_sub(self.warm_up.events) {
            None => after(number, self.warm_up.rate),
            Some(many) => {
                while self.came.load(Ordering::Relaxed) < self.warm_up.events {
                    self.rest();
                }
                *self.measured_from.get_or_init(|| self.begun.elapsed() + REST) + after(many, self.rate)
            }
        };
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        due
    }

    fn sent(&self, number: u64, due: Duration) {
        self.due[number as usize].store(due.as_nanos() as u64, Ordering::Relaxed);
        self.stamp(&self.sent, number);
    }

    fn stamp(&self, times: &[AtomicU64], number: u64) {
        times[number as usize].store(self.begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Waits until it is measured.
    fn wait_measured(&self) {
        while self.measured_from.get().is_none_or(|from| self.begun.elapsed() < *from) {
            self.rest();
        }
    }

    fn rest(&self) {
        assert!(!self.over.load(Ordering::Relaxed), "no more events come");
        std::thread::sleep(Duration::from_millis(5));
    }

    fn latency(&self, used: &Used) -> Latency {
        let time = |times: &[AtomicU64], number: usize| times[number].load(Ordering::Relaxed) as f64 / 1e6;
        let (first, last) = (self.warm_up.events as usize, self.sent.len() - 1);
        let (begin, end) = (time(&self.sent, first), time(&self.sent, last));
        let seconds = (end - begin) / 1e3;
        let came = (0..=last).map(|number| time(&self.read, number)).filter(|at| (begin..=end).contains(at)).count();
        let since = |begin: &[AtomicU64]| {
            let took = (first..=last).map(|number| time(&self.read, number) - time(begin, number));
            Times::of(took.collect())
        };
        let (due, sent_at, many) = (since(&self.due), since(&self.sent), last + 1 - first);
        let (sent, read) = (many as f64 / seconds, came as f64 / seconds);
        let cpu = Part::ALL.map(|part| used.cpu_per_million(part, many as u64));
        Latency { due, sent_at, sent, read, cpu, peak_megabytes: used.peak_megabytes() }
    }
}

/// Writes at a steady rate, and reads what comes of it.
pub fn run(carrier: Carrier, rate: u64, postgres: &Arc<Postgres>, kafka: &Arc<Kafka>) -> Latency {
    let database = postgres.database();
    let topic = format!("steady.{}", database.name());
    kafka.create_topic(&topic, PARTITIONS);
    let scratch = Scratch::new();
    let config = Config::new(&database, kafka).set("postgres.sender_timeout", "30s").without("route");
    let config = config.add("route", &format!("topic = \"{topic}\"\nkey = \"{{aggregate_id}}\""));
    config.run(&["init"]).assert_success();
    let (mut relay, mut debezium) = (None, None);
    match carrier {
        Carrier::Bare => drop_slot(&database, config.slot()),
        Carrier::Outboxd => relay.insert(Relay::start(&config)).wait_ready(),
        Carrier::Debezium => {
            let (slot, publication) = (config.slot(), config.slot());
            let task = Task { database: &database, brokers: &kafka.brokers(), slot, publication, topic: &topic };
            let worker = debezium.insert(task.start(Tuning::Latency, scratch.path()));
            let reads = within(STARTED, || database.walsender(slot));
            assert!(reads.is_some(), "Debezium does not read\n{}", worker.log());
        }
    }
    let meter = Meter::start();
    let carriers = relay.iter().map(Relay::pid).chain(debezium.iter().map(Worker::id));
    carriers.for_each(|pid| meter.watch_from_now(Part::Contender, pid));
    meter.watch_from_now(Part::Broker, kafka.node(0).pid());
    if carrier != Carrier::Bare {
        let pid = database.walsender(config.slot()).expect("somebody reads from the slot");
        meter.watch_from_now(Part::Walsender, pid.parse().expect("a pid is a number"));
    }
    let warm_up = carrier.warm_up(rate);
    let clock = Clock::new(rate, warm_up, warm_up.events + SECONDS * rate);
    let before = std::thread::scope(|threads| {
        let (database, clock, meter) = (&database, &clock, &meter);
        let before = threads.spawn(|| {
            clock.wait_measured();
            meter.used()
        });
        let reading = threads.spawn(|| read(kafka, &topic, clock));
        // A bare producer has the same neighbours, whose events nobody reads.
        let stamps = carrier != Carrier::Bare;
        (0..WRITERS).for_each(|writer| drop(threads.spawn(move || write(database, clock, writer, stamps))));
        if carrier == Carrier::Bare {
            produce(kafka, &topic, clock);
        }
        if reading.join().is_err() {
            let log = relay.iter().map(Relay::log).chain(debezium.iter().map(Worker::log)).collect::<String>();
            panic!("{carrier} does not carry every event\n{log}");
        }
        before.join().expect("it was measured")
    });
    let used = meter.read().since(&before);
    drop((relay, debezium));
    if carrier != Carrier::Bare {
        drop_slot(&database, config.slot());
    }
    kafka.delete_topic(&topic);
    clock.latency(&used)
}

/// The payload of every event: 500 bytes, some of which do not compress.
fn payload(number: u64) -> String {
    let noise = format!("{:032x}", u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
    format!("{{\"order\": {number}, \"note\": \"{noise}{}\"}}", "please ring twice; mind the dog; ".repeat(13))
}

/// The transactions whose turn it is: every so many.
fn write(database: &Database, clock: &Clock, writer: u64, stamps: bool) {
    let mut session = database.connect();
    let insert = session
        .prepare(
            "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
             values ('order', $1, 'order.paid', $2::text::jsonb)",
        )
        .unwrap();
    for number in (writer..clock.sent.len() as u64).step_by(WRITERS as usize) {
        let due = clock.wait(number);
        if stamps {
            clock.sent(number, due);
        }
        session.execute(&insert, &[&number.to_string(), &payload(number)]).unwrap();
    }
}

fn produce(kafka: &Kafka, topic: &str, clock: &Clock) {
    let producer: ThreadedProducer<DefaultProducerContext> = client(&kafka.brokers()).create().unwrap();
    for number in 0..clock.sent.len() as u64 {
        clock.sent(number, clock.wait(number));
        let (key, payload) = (number.to_string(), payload(number));
        let record = BaseRecord::to(topic).key(&key).payload(&payload).headers(headers(number, &key, HEADERS));
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    eventually("all is delivered", PATIENCE, || producer.in_flight_count() == 0);
}

/// However reading ends, nobody waits for more.
struct Over<'c>(&'c Clock);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Reads until every event has come.
fn read(kafka: &Kafka, topic: &str, clock: &Clock) {
    let _over = Over(clock);
    let consumer = kafka.consumer_of_all(topic, PARTITIONS, &[]);
    while clock.came.load(Ordering::Relaxed) < clock.read.len() as u64 {
        let Some(record) = consumer.poll(2 * PATIENCE) else {
            panic!("{} of {} events have come", clock.came.load(Ordering::Relaxed), clock.read.len());
        };
        let record = record.unwrap();
        let number: u64 = std::str::from_utf8(record.key().expect("the key is its number")).unwrap().parse().unwrap();
        // A repeat would not be the first to come.
        if clock.read[number as usize].load(Ordering::Relaxed) == 0 {
            clock.stamp(&clock.read, number);
            clock.came.fetch_add(1, Ordering::Relaxed);
        }
    }
}
