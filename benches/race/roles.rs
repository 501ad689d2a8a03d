//! The limits, as programs of their own, so that what they use can be told apart: a reader that only reads, a producer that
//! only produces, and both at once, which is all that a relay must do at the least. The race starts itself again in one of
//! these roles.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use outboxd::config::Config;
use outboxd::lsn::Lsn;
use outboxd::sink::kafka::BATCH_BYTES;
use outboxd::source::Encoding;
use outboxd::source::wire::{Frame, Pace, Reading, Reply, Session, StandbyStatus, Start};
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, config::FromClientConfigAndContext};
use uuid::Uuid;

/// How long a producer waits for more rows, or for room.
const PAUSE: Duration = Duration::from_millis(1);

/// As many as the backlog has.
const KEYS: usize = 1000;

/// As the relay's default record has.
pub const HEADERS: usize = 5;

/// A program in one of the roles.
type Role = fn(&[String]);

/// The role of this name.
pub fn find(name: &str) -> Option<Role> {
    match name {
        "reader" => Some(reader),
        "producer" => Some(producer),
        "both" => Some(both),
        _ => None,
    }
}

/// `reader CONFIG EVENTS`: reads so many rows from the slot, and does nothing with them.
fn reader(arguments: &[String]) {
    let [config, events] = arguments else { panic!("reader CONFIG EVENTS") };
    read(config, events.parse().unwrap(), &AtomicU64::new(0));
}

/// `producer BROKERS TOPIC EVENTS VALUES HEADERS TIME`: sends so many records, whose values are the lines of a file, again and
/// again, with so many headers, and writes how long it took to send all but the first, which a new client needs some time for.
fn producer(arguments: &[String]) {
    let [brokers, topic, events, values, many, time] = arguments else {
        panic!("producer BROKERS TOPIC EVENTS VALUES HEADERS TIME")
    };
    let (events, many) = (events.parse().unwrap(), many.parse().unwrap());
    let took = produce(brokers, topic, events, values, many, &AtomicU64::new(u64::MAX));
    std::fs::write(time, took.as_nanos().to_string()).unwrap();
}

/// `both CONFIG BROKERS TOPIC EVENTS VALUES`: reads so many rows and sends as many records, none before its row was read.
fn both(arguments: &[String]) {
    let [config, brokers, topic, events, values] = arguments else { panic!("both CONFIG BROKERS TOPIC EVENTS VALUES") };
    let (events, read_so_far) = (events.parse().unwrap(), AtomicU64::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| read(config, events, &read_so_far));
        threads.spawn(|| produce(brokers, topic, events, values, HEADERS, &read_so_far));
    });
}

/// As the relay reads: all there is, and a pause while traffic is dense. Says how many rows it has read.
fn read(config: &str, events: u64, rows: &AtomicU64) {
    let config = Config::load(Some(Path::new(config)), std::iter::empty()).expect("the configuration is right");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let postgres = &config.postgres;
        let session = Session::connect(&postgres.connection, postgres.sender_timeout).await.expect("a session");
        let start = Start { slot: &postgres.slot, publication: &postgres.publication, encoding: Encoding::Binary };
        let mut stream = session.start(start).await.expect("a stream");
        let mut pace = Pace::new(stream.way(), Instant::now());
        let (mut received, mut told) = (Lsn::ZERO, Instant::now());
        while rows.load(Ordering::Relaxed) < events {
            let turn = stream.turn(Reading::On).await.expect("the stream goes on");
            let (mut fresh, mut messages) = (0, 0);
            while let Some(frame) = stream.frame().expect("frames are whole") {
                messages += 1;
                if let Frame::Data { wal_end, body, .. } = frame {
                    fresh += u64::from(body.first() == Some(&b'I'));
                    received = received.max(wal_end);
                }
                stream.consume();
            }
            rows.fetch_add(fresh, Ordering::Relaxed);
            if told.elapsed() > Duration::from_secs(1) {
                told = Instant::now();
                let (sent_at, reply) = (SystemTime::now(), Reply::NotWanted);
                stream.status(StandbyStatus { write: received, flush: Lsn::ZERO, sent_at, reply });
            }
            if let Some(pause) = pace.read(turn.read, messages, Instant::now()) {
                std::thread::sleep(pause);
            }
        }
    });
}

/// Key and value of the record of this number.
pub fn contents<'a>(number: u64, values: &[&'a str]) -> (usize, &'a str) {
    let number = usize::try_from(number).expect("it fits");
    (number % KEYS, values[number % values.len()])
}

/// Sends records, never more than are allowed by now. Answers with the time from the answer to the first one to the last.
fn produce(brokers: &str, topic: &str, events: u64, values: &str, many: usize, allowed: &AtomicU64) -> Duration {
    let values = std::fs::read_to_string(values).unwrap();
    let values: Vec<&str> = values.lines().collect();
    let producer = ThreadedProducer::from_config_and_context(&client(brokers), AllTaken).unwrap();
    let mut begun = Instant::now();
    let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
    for number in 1..=events {
        while number > allowed.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
        let (key, value) = contents(number, &values);
        let key = &keys[key];
        let mut record = BaseRecord::to(topic).key(key).payload(value).headers(headers(number, key, many));
        while let Err((error, refused)) = producer.send(record) {
            assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            std::thread::sleep(PAUSE);
            record = refused;
        }
        if number == 1 {
            wait_for_all(&producer);
            begun = Instant::now();
        }
    }
    wait_for_all(&producer);
    begun.elapsed()
}

fn wait_for_all(producer: &ThreadedProducer<AllTaken>) {
    while producer.in_flight_count() > 0 {
        std::thread::sleep(PAUSE);
    }
}

/// Whoever loses a record has not produced it.
struct AllTaken;

impl ClientContext for AllTaken {}

impl ProducerContext for AllTaken {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        assert!(result.is_ok(), "a record was not delivered");
    }
}

/// A producer of the same guarantees and batches as the relay's, and as many records at once, without what the relay adds to be
/// safe: five requests may be under way.
pub fn client(brokers: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers).set("acks", "all").set("enable.idempotence", "true");
    client.set("linger.ms", "1").set("compression.type", "lz4").set("batch.size", BATCH_BYTES.to_string());
    client.set("partitioner", "murmur2_random").set("queue.buffering.max.messages", "12000");
    client
}

/// As many as the relay's records have.
pub fn headers(number: u64, key: &str, many: usize) -> OwnedHeaders {
    let mut id = Uuid::encode_buffer();
    let headers: [_; HEADERS] = [
        ("id", &*Uuid::from_u128(u128::from(number)).hyphenated().encode_lower(&mut id)),
        ("type", "order.paid"),
        ("aggregate_type", "order"),
        ("aggregate_id", key),
        ("lsn", "0/1536410/1"),
    ];
    headers[..many].iter().fold(OwnedHeaders::new_with_capacity(many), |headers, (key, value)| {
        headers.insert(Header { key, value: Some(*value) })
    })
}
