//! The limits, as programs of their own, so that what they use can be told apart: a reader that only reads, and a producer
//! that only produces. The race starts itself again in one of these roles.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use outboxd::config::Config;
use outboxd::lsn::Lsn;
use outboxd::source::Encoding;
use outboxd::source::wire::{Frame, Reading, Reply, Session, StandbyStatus, Start};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

/// The relay's own measures: a read of so much means that more is on its way, and then it pauses for a moment.
const DENSE_BYTES: usize = 32 * 1024;
const GATHER: Duration = Duration::from_millis(1);

/// A program in one of the roles.
type Role = fn(&[String]);

/// The role of this name.
pub fn find(name: &str) -> Option<Role> {
    match name {
        "reader" => Some(reader),
        "producer" => Some(producer),
        _ => None,
    }
}

/// `reader CONFIG EVENTS`: reads so many rows from the slot, and does nothing with them.
fn reader(arguments: &[String]) {
    let [config, events] = arguments else { panic!("reader CONFIG EVENTS") };
    let events: u64 = events.parse().unwrap();
    let config = Config::load(Some(Path::new(config)), std::iter::empty()).expect("the configuration is right");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let postgres = &config.postgres;
        let session = Session::connect(&postgres.connection, postgres.sender_timeout).await.expect("a session");
        let start = Start { slot: &postgres.slot, publication: &postgres.publication, encoding: Encoding::Binary };
        let mut stream = session.start(start).await.expect("a stream");
        let (mut rows, mut received, mut told) = (0, Lsn::ZERO, Instant::now());
        while rows < events {
            let turn = stream.turn(Reading::On).await.expect("the stream goes on");
            while let Some(frame) = stream.frame().expect("frames are whole") {
                if let Frame::Data { wal_end, body, .. } = frame {
                    rows += u64::from(body.first() == Some(&b'I'));
                    received = received.max(wal_end);
                }
                stream.consume();
            }
            if told.elapsed() > Duration::from_secs(1) {
                told = Instant::now();
                let (sent_at, reply) = (SystemTime::now(), Reply::NotWanted);
                stream.status(StandbyStatus { write: received, flush: Lsn::ZERO, sent_at, reply });
            }
            if turn.read >= DENSE_BYTES {
                tokio::time::sleep(GATHER).await;
            }
        }
    });
}

/// `producer BROKERS TOPIC EVENTS FILE`: sends so many records, whose values are the lines of a file, again and again.
fn producer(arguments: &[String]) {
    let [brokers, topic, events, file] = arguments else { panic!("producer BROKERS TOPIC EVENTS FILE") };
    let events: u64 = events.parse().unwrap();
    let values = std::fs::read_to_string(file).unwrap();
    let values: Vec<&str> = values.lines().collect();
    let mut client = ClientConfig::new();
    producer_settings(&mut client, brokers);
    let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = client.create().unwrap();
    for number in 0..events {
        let key = (number % 1000).to_string();
        let mut value = values[number as usize % values.len()];
        loop {
            let record = BaseRecord::to(topic).key(&key).payload(value).headers(headers(number, &key));
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), record)) => {
                    value = record.payload.expect("it has one");
                    std::thread::sleep(GATHER);
                }
                Err((error, _)) => panic!("{error}"),
            }
        }
    }
    while producer.in_flight_count() > 0 {
        std::thread::sleep(GATHER);
    }
}

/// As the relay's own producer is set up.
pub fn producer_settings(client: &mut ClientConfig, brokers: &str) {
    client.set("bootstrap.servers", brokers).set("acks", "all").set("enable.idempotence", "true");
    client.set("enable.gapless.guarantee", "true").set("statistics.interval.ms", "1000");
    client.set("max.in.flight", "1").set("linger.ms", "1").set("compression.type", "lz4").set("batch.size", "262144");
    client.set("partitioner", "murmur2_random").set("queue.buffering.max.messages", "50000");
}

/// As many as the relay's records have.
pub fn headers(number: u64, key: &str) -> OwnedHeaders {
    let id = format!("{number:032x}");
    let headers = [
        ("id", id.as_str()),
        ("type", "order.paid"),
        ("aggregate_type", "order"),
        ("aggregate_id", key),
        ("lsn", "0/1536410/1"),
    ];
    headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |headers, (key, value)| {
        headers.insert(Header { key, value: Some(*value) })
    })
}
