//! The stage: PostgreSQL and three brokers behind proxies, the relay that suffers, the relay that survives, the load.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::aside::{ASIDE, Stranded};
use crate::faults::Announced;
use crate::report::Judged;
use crate::support::kafka::Kafka;
use crate::support::oracle::{self, Truth};
use crate::support::postgres::{Database, Postgres};
use crate::support::proxy::Proxy;
use crate::support::reader::Reader;
use crate::support::relay::{Config, Relay};
use crate::support::scene::PARTITIONS;
use crate::support::workload::{Running, Workload};
use crate::support::{PATIENCE, within};
use crate::watch::{Memory, Watch};

/// When the faults stop, everything is delivered within this time.
pub const LIVENESS: Duration = Duration::from_secs(60);
/// `limits.shutdown` of both relays.
pub const SHUTDOWN: Duration = Duration::from_secs(5);
/// So many judged rounds keep their topics.
const KEPT: usize = 2;
/// One transaction in so many is a large one.
const LARGE_ONES: usize = 5_000;
/// The aggregate type of the events that measure recovery.
pub const PROBE: &str = "probe";

/// All that takes part. Fields are dropped in this order: clients first, servers last.
pub struct Stage {
    pub relay: Relay,
    /// It was told to go, or killed, while its successor stood by.
    pub leaving: Option<Relay>,
    pub survivor: Relay,
    /// The events that a fault of their own holds back.
    pub stranded: Option<Stranded>,
    /// The fault before this one, when it struck before all was over.
    pub unsettled: Option<(String, Announced)>,
    /// How many rows relays that have ended said would be sent again.
    pub announced_before: usize,
    /// Faults, or pairs of them, that struck so far.
    pub turns: usize,
    pub probes: Reader,
    pub config: Config,
    pub watch: Watch,
    /// The highest memory of both relays.
    pub memory: Memory,
    rate: f64,
    rounds: usize,
    /// Rounds whose topics are still there, though judged.
    tidied: VecDeque<String>,
    written_before: usize,
    pub wire: Proxy,
    pub database: Database,
    pub postgres: Arc<Postgres>,
    pub kafka: Arc<Kafka>,
}

/// Some minutes of load, judged together.
pub struct Round {
    aggregate_type: String,
    load: Running,
    /// What the relay published, and what the survivor did.
    pub readers: [Reader; 2],
    started: Instant,
}

/// A round whose load has ended and has arrived.
pub struct Closed {
    aggregate_type: String,
    truth: Truth,
    pub readers: [Reader; 2],
    drained: Option<Duration>,
    unfinished: Option<String>,
}

impl Round {
    /// How long it lasts already.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Stage {
    /// Starts servers, proxies and both relays.
    pub fn set_up(rate: f64) -> Stage {
        let postgres = Postgres::options().setting("max_wal_size", "512MB").start();
        let kafka = Kafka::options().brokers(3).proxied().start();
        let database = postgres.database();
        let wire = Proxy::start(postgres.port());
        let config =
            Config::new(&database, &kafka).set("limits.shutdown", humantime::format_duration(SHUTDOWN).to_string());
        let survivor = config.clone().set("postgres.slot", format!("{}_survivor", database.name()));
        let survivor = survivor
            .without("route")
            .add("route", &format!("key = \"{{aggregate_id}}\"\ntopic = \"{}\"", topics("{aggregate_type}")[1]));
        for config in [&config, &survivor] {
            config.run(&["init"]).assert_success();
        }
        let [config, survivor] = [config, survivor].map(|config| {
            config.set("postgres.url", database.url_through(&wire)).set("kafka.brokers", kafka.proxied_brokers())
        });
        [PROBE, ASIDE].iter().flat_map(|kind| topics(kind)).for_each(|topic| kafka.create_topic(&topic, PARTITIONS));
        let probes = Reader::start(&kafka, &[&topics(PROBE)[0]]);
        let (mut relay, mut survivor) = (Relay::start(&config), Relay::start(&survivor));
        relay.wait_ready();
        survivor.wait_ready();
        let memory = Memory::watch(survivor.pid());
        let stage = Stage {
            relay,
            leaving: None,
            stranded: None,
            unsettled: None,
            announced_before: 0,
            turns: 0,
            survivor,
            probes,
            config,
            watch: Watch::start(),
            memory,
            rate,
            rounds: 0,
            tidied: VecDeque::new(),
            written_before: 0,
            wire,
            database,
            postgres,
            kafka,
        };
        stage.follow();
        stage
    }

    /// Starts the load of a new round, into topics of its own.
    pub fn open_round(&mut self) -> Round {
        self.rounds += 1;
        let aggregate_type = self.aggregate_type();
        let slots = self.slots();
        let readers = [0, 1].map(|side| {
            let topic = &topics(&aggregate_type)[side];
            self.kafka.create_topic(topic, PARTITIONS);
            let mut reader = Reader::start(&self.kafka, &[topic]);
            reader.watch_confirmed(&self.database, &slots[side]);
            reader
        });
        let load = Workload::new(&aggregate_type).events_per_key(usize::MAX).events_per_second(self.rate);
        let load = load.one_large_in(LARGE_ONES);
        let load = load.start(&self.database);
        Round { aggregate_type, load, readers, started: Instant::now() }
    }

    /// Ends the round's load, and lets all of it arrive. Its readers read on: when server and relay die together, what was
    /// confirmed a while ago is repeated.
    pub fn close_round(&mut self, round: Round) -> Closed {
        let Round { aggregate_type, load, readers, .. } = round;
        let truth = load.stop();
        let expected: HashSet<&str> = truth.committed.values().flatten().map(|event| event.id.as_str()).collect();
        self.written_before += expected.len();
        let stopped = Instant::now();
        let left = || LIVENESS.saturating_sub(stopped.elapsed());
        let end = self.database.written();
        let confirmed = |slot: &String| within(left(), || (self.database.confirmed(slot)? >= end).then_some(()));
        let arrived = readers.iter().all(|reader| reader.wait_all(&expected, left()))
            && self.slots().iter().all(|slot| confirmed(slot).is_some());
        let drained = arrived.then(|| stopped.elapsed());
        let unfinished = (!arrived).then(|| self.relay.log() + &self.survivor.log());
        Closed { aggregate_type, truth, readers, drained, unfinished }
    }

    /// Asks the oracle, who takes his time while the next round goes on.
    pub fn judge_round(&mut self, closed: Closed) -> JoinHandle<Judged> {
        let Closed { aggregate_type, truth, readers, drained, unfinished } = closed;
        readers.iter().for_each(|reader| reader.catch_up(PATIENCE));
        self.tidy(aggregate_type);
        std::thread::spawn(move || {
            let [relay, survivor] = readers.map(|reader| oracle::judge(&truth, &reader.history()));
            Judged { relay, survivor, drained, unfinished }
        })
    }

    /// The aggregate type of the round's events.
    pub fn aggregate_type(&self) -> String {
        format!("round-{}", self.rounds)
    }

    /// The relay's, and the survivor's.
    pub fn slots(&self) -> [String; 2] {
        [self.config.slot().to_string(), format!("{}_survivor", self.config.slot())]
    }

    /// What both relays said at last.
    pub fn keep_logs(&self) {
        keep_log(&self.relay);
        keep_log(&self.survivor);
    }

    /// How many events were written in all rounds.
    pub fn events_written(&self, round: &Round) -> usize {
        self.written_before + round.load.written()
    }

    /// Another process in the place of the relay, which has ended.
    pub fn replace_relay(&mut self) {
        let ended = std::mem::replace(&mut self.relay, Relay::start(&self.config));
        self.retire(ended);
        self.follow();
    }

    /// A relay has ended: what it said stays.
    pub fn retire(&mut self, relay: Relay) {
        self.announced_before += announced_by(&relay);
        keep_log(&relay);
    }

    /// Memory and readiness are those of the relay that runs now.
    pub fn follow(&self) {
        self.memory.follow(self.relay.pid());
        self.watch.follow(self.relay.http_port());
    }

    /// What was judged is not needed any more: an hour of it would fill a disk, and a broker that starts looks at all of its
    /// topics. They stay for a while, empty: a relay may be sent back further than we look.
    fn tidy(&mut self, aggregate_type: String) {
        self.database.exec(&format!("delete from public.outbox where aggregate_type = '{aggregate_type}'"));
        topics(&aggregate_type)
            .iter()
            .for_each(|topic| self.kafka.alter_topic(topic, &[("retention.ms", "1000"), ("segment.ms", "1000")]));
        self.tidied.push_back(aggregate_type);
        if self.tidied.len() > KEPT {
            let oldest = self.tidied.pop_front().expect("there are some");
            topics(&oldest).iter().for_each(|topic| self.kafka.delete_topic(topic));
        }
    }
}

/// Where the relay publishes these events, and where the survivor does.
pub fn topics(aggregate_type: &str) -> [String; 2] {
    [format!("outbox.event.{aggregate_type}"), format!("survivor.{aggregate_type}")]
}

/// How many rows a relay has said are sent again: by the next start, when it ended, or by its own next producer, because
/// they were on their way when it gave the last one up.
pub fn announced_by(relay: &Relay) -> usize {
    let field = |line: &str| {
        let name = if line.contains("will publish these rows again") {
            "\"repeats\":"
        } else if line.contains("starting a new producer") {
            "\"unknown\":"
        } else {
            return 0;
        };
        let number = line.split(name).nth(1).and_then(|rest| rest.split([',', '}']).next()?.parse::<usize>().ok());
        number.unwrap_or_else(|| panic!("it does not say how many: {line}"))
    };
    relay.log().lines().map(field).sum()
}

/// A relay that has ended takes its log with it, unless somebody keeps it.
fn keep_log(relay: &Relay) {
    let path = crate::directory().join("relays.log");
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(relay.log().as_bytes()).unwrap();
}
