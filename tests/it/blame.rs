//! Whose failure is it: each row of the table in `src/sink/kafka/codes.rs`, as a real broker answers it.
//!
//! | code | what the broker says | whose | tested in |
//! |---|---|---|---|
//! | 10 | larger than `max.message.bytes`, compressed | the event's | here; in a crowd: `large`; under load: `topic` |
//! | 18 | larger than a segment of the topic's log | the event's | here |
//! | 32 | a timestamp outside of the topic's bounds | the event's | here |
//! | 87 | no key on a compacted topic | the event's | here |
//! | 2, 4 | corrupted; a size that cannot be | the event's | nowhere, see below |
//! | 3, -188 | no such topic | the set-up's | here; under load, and with another leader: `topic` |
//! | 17 | a topic that no client may write | the event's | here |
//! | 29, 31, -169 | a missing right, a refused password | the set-up's | here; a topic that may not be seen: `setup` |
//! | 44, 58 | | the set-up's | nowhere, see below |
//! | others | | the world's | `outage`, `network`, `cluster` |
//!
//! No broker answers a producer with 4, 44 or 58: they are for whoever reads, creates a topic or logs in (this comes to
//! us as -169). A batch that was corrupted on its way (2) is sent again by librdkafka itself.
//!
//! What is foreseen and never offered is tested in `letters::every_bad_event_is_parked_with_its_reason_…`,
//! `large::an_event_that_the_topic_cannot_take_…`, `topic::a_partition_that_was_added_…`, and here what has no key.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use outboxd::lsn::Lsn;

use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::reader::{Reader, Seen};
use crate::support::relay::{Config, Relay};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, free_port, throughout, within};

const PASSWORD: &str = "secret";
/// So many events are written together, and the bad one is the one with this number.
const EVENTS: usize = 21;
const BAD: usize = 11;
/// A topic of Kafka's own.
const INTERNAL: &str = "__transaction_state";

#[test]
fn an_event_too_large_for_its_topic_is_parked_and_its_neighbours_arrive() {
    let scene = blind(&[("max.message.bytes", "20000")]);
    let payload = incompressible(48_000);
    let bad = ["'k'", payload.as_str(), "now()"];
    assert_one_is_refused(&scene, bad, "MessageSizeTooLarge", &[("max.message.bytes", "1000000")]);
}

#[test]
fn an_event_too_large_for_a_segment_of_its_topic_is_parked_and_its_neighbours_arrive() {
    let mut scene = blind(&[("max.message.bytes", "4000000"), ("segment.bytes", "1048576")]);
    scene.config = scene.config.property("batch.size", "4000000");
    let payload = incompressible(2_000_000);
    let bad = ["'k'", payload.as_str(), "now()"];
    assert_one_is_refused(&scene, bad, "MessageBatchTooLarge", &[("max.message.bytes", "4000000")]);
}

#[test]
fn an_event_older_than_its_topic_takes_is_parked_and_its_neighbours_arrive() {
    let scene = blind(&[("message.timestamp.before.max.ms", "86400000")]);
    let bad = ["'k'", "to_jsonb(n)", "now() - interval '2 days'"];
    let mended = ("message.timestamp.before.max.ms", "9223372036854775807");
    assert_one_is_refused(&scene, bad, "InvalidTimestamp", &[mended]);
}

#[test]
fn a_record_without_a_key_on_a_compacted_topic_is_parked_and_its_neighbours_arrive() {
    let kafka = Kafka::shared();
    let thief = KeyThief::before(&kafka);
    let mut scene = prepared(&kafka);
    kafka.create_topic_with(&scene.topic, 1, &[("cleanup.policy", "compact")]);
    let config = in_one_batch(scene.config).property("compression.type", "none");
    scene.config = config.set("kafka.brokers", thief.address());
    let bad = ["''", "to_jsonb(n)", "now()"];
    let late = assert_one_is_refused(&scene, bad, "InvalidRecord", &[("cleanup.policy", "delete")]);
    assert_eq!(late.key, None, "nobody took its key");
}

#[test]
fn a_null_key_is_parked_before_the_offer_and_an_empty_one_is_a_key_for_a_compacted_topic() {
    let scene = prepared(&Kafka::shared());
    scene.kafka.create_topic_with(&scene.topic, 1, &[("cleanup.policy", "compact")]);
    let relay = scene.relay();
    let [null, empty, full] = ["null", "''", "'k'"].map(|key| {
        let sql = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                   values (current_database(), {key}, 'written', '1') returning id";
        scene.database.ask(&sql.replace("{key}", key)).expect("the row has an id")
    });
    assert_eq!(scene.wait_letter(&null).reason, "key");
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert_eq!(ids(&scene.reader.seen()), [empty, full], "{}", relay.log());
    assert_eq!((scene.dead_letters().len(), relay.producers_replaced()), (1, 0.0), "{}", relay.log());
}

#[test]
fn a_topic_that_was_never_created_holds_the_line_and_parks_nothing() {
    let scene = prepared(&Kafka::shared());
    let mut relay = scene.relay();
    let (events, first) = write_some(&scene);
    assert_waits(&scene, &relay, "topic_missing", &[&scene.topic], first);
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    assert_all_arrive(&scene, &scene.reader, &events);
    relay.wait_ready();
}

#[test]
fn a_topic_deleted_in_mid_flow_is_waited_for_even_where_unknown_ones_are_parked() {
    let mut scene = Scene::new();
    scene.config = scene.config.set("dead_letter.unknown_topic", "park");
    let mut relay = scene.relay();
    scene.write("k", "0");
    scene.reader.wait_count(1, PATIENCE);
    delete_topic(&scene);
    let (events, first) = write_some(&scene);
    assert_waits(&scene, &relay, "topic_missing", &[&scene.topic], first);
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    // Not the scene's: it would go on at the offsets of the former life.
    let reader = Reader::start(&scene.kafka, &[&scene.topic]);
    assert_all_arrive(&scene, &reader, &events);
    relay.wait_ready();
}

#[test]
fn a_refused_password_and_each_missing_right_are_named_and_waited_for() {
    let kafka = guarded();
    let scene = prepared(&kafka);
    kafka.create_topic(&scene.topic, PARTITIONS);
    let (events, first) = write_some(&scene);
    let start = |password: &str| Relay::start(&log_in(&kafka, scene.config.clone(), "newcomer", password));

    let mut stranger = start("wrong");
    assert_waits(&scene, &stranger, "kafka_login", &["refuses the login"], first);
    stranger.sigkill();
    assert_eq!(scene.held_by_slot(), events.len() as i64, "{}", stranger.log());

    let topic = scene.topic.as_str();
    let mut relay = start(PASSWORD);
    kafka.allow("newcomer", "Describe", &["--topic", topic]);
    // Whoever may write no topic at all gets no producer id. Then one may be had, and the topic still not be written.
    assert_waits(&scene, &relay, "delivery_failed", &[topic, "Cluster authorization failed"], first);
    kafka.allow("newcomer", "IdempotentWrite", &["--cluster"]);
    assert_waits(&scene, &relay, "delivery_failed", &[topic, "Topic authorization failed"], first);
    kafka.allow("newcomer", "Write", &["--topic", topic]);
    assert_all_arrive(&scene, &scene.reader, &events);
    relay.wait_ready();
}

#[test]
fn an_event_for_a_topic_of_kafkas_own_is_parked_and_arrives_when_the_route_is_mended() {
    let kafka = guarded();
    let scene = prepared(&kafka);
    kafka.create_topic(&scene.topic, 1);
    kafka.create_topic(INTERNAL, 1);
    let mended = log_in(&kafka, scene.config.clone(), "writer", PASSWORD);
    let astray = format!("match = {{ aggregate_id = \"astray\" }}\ntopic = \"{INTERNAL}\"\nkey = \"{{aggregate_id}}\"");
    let wrong = mended.clone().without("route").add("route", &astray).add("route", "key = \"{aggregate_id}\"");
    let mut relay = Relay::start(&wrong);
    let [before, astray, after] = ["k", "astray", "k"].map(|key| scene.write(key, "1"));
    let letter = scene.wait_letter(&astray);
    assert_eq!((letter.reason.as_str(), letter.message.contains(INTERNAL)), ("refused", true), "{letter:?}");
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert_eq!(ids(&scene.reader.seen()), [&before, &after], "{}", relay.log());
    relay.sigkill();
    let mut relay = Relay::start(&mended);
    relay.wait_ready();
    scene.retry_letters();
    scene.wait_state(&astray, "delivered");
    assert_eq!(ids(&scene.reader.wait_count(3, PATIENCE)), [&before, &after, &astray]);
}

/// Writes events around a bad one, whose key, payload and time are these; the broker refuses it with this code. It
/// alone is parked; all others arrive in order, each once. When the topic is mended it arrives, too, and is returned.
#[track_caller]
fn assert_one_is_refused(scene: &Scene, bad: [&str; 3], code: &str, mended: &[(&str, &str)]) -> Seen {
    let mut relay = scene.relay();
    let (bad, others) = write_among_others(scene, bad);
    let letter = scene.wait_letter(&bad);
    let says = format!("topic \"{}\" refused it: ", scene.topic);
    assert_eq!(letter.reason, "refused", "{letter:?}");
    assert!(letter.message.starts_with(&says) && letter.message.contains(code), "{letter:?}");
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert_eq!(ids(&scene.reader.seen()), others, "{}", relay.log());
    assert_eq!(scene.dead_letters().len(), 1, "{:#?}", scene.dead_letters());
    relay.wait_ready();
    // One that is refused alone is refused twice. More of it is a search among others of its batch.
    assert!(relay.producers_replaced() > 2.0, "nobody was refused with it\n{}", relay.log());

    scene.kafka.alter_topic(&scene.topic, mended);
    scene.retry_letters();
    scene.wait_state(&bad, "delivered");
    let mut seen = scene.reader.wait_count(EVENTS, PATIENCE);
    assert_eq!((seen.len(), seen[EVENTS - 1].id()), (EVENTS, bad.as_str()), "{}", relay.log());
    seen.remove(EVENTS - 1)
}

/// In one transaction. Answers with the bad one's id and, in order, with those of the others.
#[track_caller]
fn write_among_others(scene: &Scene, [key, payload, time]: [&str; 3]) -> (String, Vec<String>) {
    let sql = format!(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
         select current_database(), case n when {BAD} then {key} else 'k' end, 'written',
                case n when {BAD} then {payload} else to_jsonb(n) end, case n when {BAD} then {time} else now() end
         from generate_series(1, {EVENTS}) n order by n returning id::text"
    );
    let rows = scene.database.connect().query(&sql, &[]).unwrap();
    let mut ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let bad = ids.remove(BAD - 1);
    (bad, ids)
}

/// SQL of a payload of about so many bytes, most of which are left when it is compressed.
fn incompressible(bytes: usize) -> String {
    format!("to_jsonb((select string_agg(md5(m::text), '') from generate_series(1, {}) m))", bytes / 32)
}

/// Events of one key. Answers with their ids, and with a position that the slot reaches once the first is settled.
#[track_caller]
fn write_some(scene: &Scene) -> (Vec<String>, Lsn) {
    let first = scene.write("k", "1");
    let written = scene.written();
    let others = (2..=20).map(|n| scene.write("k", &n.to_string()));
    (std::iter::once(first).chain(others).collect(), written)
}

/// The relay waits: `/readyz` has a reason of this code with all these words, the slot stays before this position, and
/// nothing is parked.
#[track_caller]
fn assert_waits(scene: &Scene, relay: &Relay, code: &str, words: &[&str], first: Lsn) {
    let mut last = String::new();
    let named = within(PATIENCE, || {
        last = told(relay, code)?;
        words.iter().all(|word| last.contains(*word)).then_some(())
    });
    assert!(named.is_some(), "{code} never said {words:?}, but at last \"{last}\"\n{}", relay.log());
    throughout("the slot stays", Duration::from_millis(500), || scene.confirmed() < first);
    assert_eq!(scene.dead_letters(), []);
}

/// What `/readyz` says for this code, while it says so.
fn told(relay: &Relay, code: &str) -> Option<String> {
    let (status, body) = relay.readiness()?;
    let reason = body["reasons"].as_array()?.iter().find(|reason| reason["code"] == code)?;
    (status == 503).then(|| reason["message"].as_str().unwrap_or_default().to_string())
}

/// Exactly these arrive, in order, each once; the slot passes them, and none was parked.
#[track_caller]
fn assert_all_arrive(scene: &Scene, reader: &Reader, events: &[String]) {
    reader.wait_count(events.len(), PATIENCE);
    let end = scene.written();
    eventually("the slot passes them", PATIENCE, || scene.confirmed() >= end);
    reader.catch_up(PATIENCE);
    assert_eq!(ids(&reader.seen()), events);
    assert_eq!(scene.dead_letters(), []);
}

fn ids(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(Seen::id).collect()
}

/// Deletes the scene's topic, and waits until the broker takes no more for it: it does for a moment longer, until it
/// has put the partitions aside.
#[track_caller]
fn delete_topic(scene: &Scene) {
    scene.kafka.delete_topic(&scene.topic);
    let kept = |name: &str| name.starts_with(&scene.topic) && !name.ends_with("-delete");
    eventually("the partitions are gone", PATIENCE, || {
        let mut partitions = std::fs::read_dir(scene.kafka.node(0).directory().join("log")).unwrap().flatten();
        !partitions.any(|partition| kept(&partition.file_name().to_string_lossy()))
    });
}

/// A scene without its topic.
fn prepared(kafka: &Arc<Kafka>) -> Scene {
    let scene = Scene::bare(&Postgres::shared(), kafka);
    scene.config.run(&["init"]).assert_success();
    scene
}

/// A scene whose topic has one partition and these settings, which are hidden from the relay: what they forbid, only
/// the broker can see.
fn blind(settings: &[(&str, &str)]) -> Scene {
    let kafka = guarded();
    let mut scene = prepared(&kafka);
    kafka.create_topic_with(&scene.topic, 1, settings);
    scene.config = in_one_batch(log_in(&kafka, scene.config, "writer", PASSWORD));
    scene
}

/// What one transaction writes goes into one batch; letters are tried again when a person asks for it, or much later.
fn in_one_batch(config: Config) -> Config {
    config.property("linger.ms", "50").set("dead_letter.backoff.first", "10s")
}

fn log_in(kafka: &Kafka, config: Config, user: &str, password: &str) -> Config {
    let config = config.set("kafka.brokers", kafka.address("SASL_PLAINTEXT"));
    let config = config.property("security.protocol", "SASL_PLAINTEXT").property("sasl.mechanism", "PLAIN");
    config.property("sasl.username", user).property("sasl.password", password)
}

/// A broker with a user who may write every topic and read no settings, and one who may do nothing. Those tests of this
/// file that run at the same time share it.
fn guarded() -> Arc<Kafka> {
    static GUARDED: Mutex<Weak<Kafka>> = Mutex::new(Weak::new());
    let mut known = GUARDED.lock().unwrap();
    known.upgrade().unwrap_or_else(|| {
        let kafka = Kafka::options().sasl(&[("writer", PASSWORD), ("newcomer", PASSWORD)]).start();
        kafka.allow("writer", "Write", &["--topic", "*"]);
        *known = Arc::downgrade(&kafka);
        kafka
    })
}

/// Stands between a relay and the broker, and takes the key of every record whose key is empty: no route makes a record
/// without a key, which a compacted topic refuses.
struct KeyThief {
    port: u16,
    over: Arc<AtomicBool>,
}

impl KeyThief {
    fn before(kafka: &Kafka) -> KeyThief {
        let address = kafka.node(0).address();
        let broker: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address has a port");
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port can be bound");
        let over = Arc::<AtomicBool>::default();
        let ended = over.clone();
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // Without a broker the client is let go, and comes again.
                forward(client, broker, port).ok();
            }
        });
        KeyThief { port, over }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for KeyThief {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // It waits for the next connection.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
    }
}

fn forward(client: TcpStream, broker: u16, port: u16) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", broker))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || carry(from, to, take_keys));
    std::thread::spawn(move || carry(server, client, |answer| advertise(answer, broker, port)));
    Ok(())
}

/// Carries requests or answers, which begin with their length, until one end is closed; then both are.
fn carry(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut carry_one = || -> io::Result<()> {
        let mut message = vec![0u8; 4];
        from.read_exact(&mut message)?;
        let length = u32::from_be_bytes([message[0], message[1], message[2], message[3]]) as usize;
        message.resize(4 + length, 0);
        from.read_exact(&mut message[4..])?;
        change(&mut message[4..]);
        to.write_all(&message)
    };
    while carry_one().is_ok() {}
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}

/// Puts our port in the place of the broker's, wherever the cluster says where the broker is.
fn advertise(answer: &mut [u8], broker: u16, port: u16) {
    let [said, meant] = [broker, port].map(|port| [&b"127.0.0.1"[..], &i32::from(port).to_be_bytes()].concat());
    for start in 0..answer.len() {
        if answer[start..].starts_with(&said) {
            answer[start..start + meant.len()].copy_from_slice(&meant);
        }
    }
}

/// In a request to produce an uncompressed batch, makes a key of length 0 one of length -1, which is none.
fn take_keys(request: &mut [u8]) {
    const PRODUCE: [u8; 2] = [0, 0];
    if !request.starts_with(&PRODUCE) {
        return;
    }
    let batch = find_batch(request).expect("librdkafka sends one batch in a request");
    let (mut at, mut took) = (RECORDS_AT, false);
    while at < batch.len() {
        let length = read_varint(batch, &mut at) >> 1;
        let next = at + usize::try_from(length).expect("a record is small");
        // Attributes; then the time and the offset.
        at += 1;
        read_varint(batch, &mut at);
        read_varint(batch, &mut at);
        if batch[at] == 0 {
            // As the protocol encodes -1.
            batch[at] = 1;
            took = true;
        }
        at = next;
    }
    if took {
        let sum = crc32c(&batch[CRC_AT + 4..]).to_be_bytes();
        batch[CRC_AT..CRC_AT + 4].copy_from_slice(&sum);
    }
}

/// Where things are in a batch: its offset, then the length of what follows, an epoch, the format's version, the sum.
const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const RECORDS_AT: usize = 61;

/// The last part of the request, but for a few empty fields: it has offset 0, version 2, and its length fits.
fn find_batch(request: &mut [u8]) -> Option<&mut [u8]> {
    let end = |start: usize| {
        let length: [u8; 4] = request[start + LENGTH_AT..start + LENGTH_AT + 4].try_into().expect("it has four bytes");
        start + LENGTH_AT + 4 + u32::from_be_bytes(length) as usize
    };
    let fits = |start: &usize| {
        let is_batch = request[*start..].starts_with(&[0; LENGTH_AT]) && request[start + MAGIC_AT] == 2;
        is_batch && (request.len().saturating_sub(8)..=request.len()).contains(&end(*start))
    };
    let start = (0..request.len().saturating_sub(RECORDS_AT)).find(fits)?;
    let end = end(start);
    Some(&mut request[start..end])
}

fn read_varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0u64, 0u32);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
    !bytes.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn the_checksum_is_the_one_that_everybody_knows() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}
