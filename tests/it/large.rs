//! Many rows in one transaction, and rows that are too large: memory stays flat, and nothing is lost.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use uuid::Uuid;

use crate::bulk;
use crate::support::kafka::Kafka;
use crate::support::oracle::{Fact, Judge, Record};
use crate::support::postgres::Postgres;
use crate::support::reader::Seen;
use crate::support::relay::Relay;
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, within};

const MIB: u64 = 1024 * 1024;
/// Of the one large transaction.
const ROWS: u64 = 1_000_000;
const KEYS: u64 = 100;
/// Of one that a relay is killed in: so many that it is not through with them before it dies.
const ROWS_OF_A_COPY: usize = 40_000;
/// The number of the large event among two hundred.
const LARGE_ONE: u64 = 101;

#[test]
fn a_transaction_of_a_million_rows_runs_in_flat_memory() {
    let (scene, topic) = unread(Scene::new());
    let relay = scene.relay();
    scene.database.exec(&format!(
        "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload)
         select lpad(to_hex(n), 32, '0')::uuid, 'bulk', 'key-' || n % {KEYS}, 'made', to_jsonb(n)
         from generate_series(0, {ROWS} - 1) as n"
    ));
    let written = scene.written();

    let (mut early, mut late, mut slowest) = (0, 0, Duration::ZERO);
    let confirmed = within(Duration::from_secs(120), || {
        let asked = Instant::now();
        let published = relay.metric("outboxd_events_published_total").unwrap_or_default();
        slowest = slowest.max(asked.elapsed());
        let peak = if published < ROWS as f64 / 4.0 { &mut early } else { &mut late };
        *peak = relay.rss_bytes().max(*peak);
        (scene.confirmed() >= written).then_some(())
    });
    assert!(confirmed.is_some(), "{} of {written}\n{}", scene.confirmed(), relay.log());
    eprintln!("resident: {} MiB in the first quarter, {} MiB after it", early / MIB, late / MIB);
    assert!(slowest < Duration::from_secs(2), "whoever asks a busy relay waits for {slowest:?}");
    assert!(late < 96 * MIB, "the relay took {} MiB", late / MIB);
    assert!(late < early + 16 * MIB, "memory grew with the transaction: {} to {} MiB", early / MIB, late / MIB);
    assert_each_row_once_in_order(&scene, &topic);
}

/// Events go to a topic of their own, which this also answers with: the reader would keep them all in memory.
fn unread(scene: Scene) -> (Scene, String) {
    let topic = format!("{}-bulk", scene.topic);
    scene.kafka.create_topic(&topic, PARTITIONS);
    let block = format!("topic = \"{topic}\"\nkey = \"{{aggregate_id}}\"");
    // While a walsender is busy it reads our questions every half of its timeout only: the usual one of tests is too
    // short for a busy machine.
    let config = scene.config.without("route").add("route", &block).set("postgres.sender_timeout", "30s");
    (Scene { config, ..scene }, topic)
}

#[test]
fn a_relay_killed_inside_a_large_transaction_tears_no_hole_into_it() {
    let kafka = Kafka::private();
    let mut scene = Scene::on(&Postgres::shared(), &kafka);
    scene.config = scene.config.set("limits.window", 1000);
    let mut truth = None;
    for published in [1500.0, 5000.0, 8500.0] {
        let mut relay = scene.relay();
        truth.get_or_insert_with(|| bulk::write(&scene, ROWS_OF_A_COPY, 100));
        eventually("a part is published", PATIENCE, || relay.published() >= published);
        // So that it dies with a part of it on the way.
        kafka.pause();
        scene.reader.disturbed("killed inside a transaction");
        relay.sigkill();
        kafka.resume();
        assert!(
            scene.held_by_slot() >= ROWS_OF_A_COPY as i64,
            "the slot stands before a transaction until all of it is settled"
        );
    }
    let _relay = scene.relay();
    scene.judge(&truth.expect("it was written")).assert_order_was_tried();
}

#[test]
fn a_server_that_decodes_without_a_word_for_longer_than_the_timeout_gets_through() {
    let mut scene = Scene::on(&Postgres::private(), &Kafka::shared());
    scene.config = scene.config.set("postgres.sender_timeout", "1s").set("limits.backoff", "200ms");
    let relay = scene.relay();
    let version: u32 = scene.database.ask("show server_version_num").unwrap().parse().unwrap();
    // As many rows as this machine needs to be silent for long. Newer servers speak now and then.
    for (count, rows) in [400_000, 800_000, 1_600_000, 3_200_000, 6_400_000].into_iter().enumerate() {
        // A table that is written anew is decoded, and passed over before the output plugin sees it.
        scene.database.exec(&format!(
            "drop materialized view if exists rewritten;
             create materialized view rewritten as select n from generate_series(1, {rows}) n with no data;
             refresh materialized view rewritten"
        ));
        let id = scene.write("k", "{}");
        // Every session begins anew, and has twice the time of the one before.
        let seen = scene.reader.wait_count(count + 1, Duration::from_secs(180));
        assert_eq!(seen[count].id(), id);
        let left = relay.log().matches("\"error\":\"PostgreSQL has sent nothing").count();
        eprintln!("{rows} rows: {left} sessions were left for their silence");
        if left > 0 || version >= 160_000 {
            return;
        }
    }
    panic!("the server was never silent for long: more rows\n{}", relay.log());
}

/// Reads the topic from its beginning to its end, and lets the oracle judge.
#[track_caller]
fn assert_each_row_once_in_order(scene: &Scene, topic: &str) {
    let consumer = scene.kafka.consumer_of_all(topic, PARTITIONS, &[("queued.max.messages.kbytes", "8192")]);
    let end = |partition| consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap().1;
    assert_eq!((0..PARTITIONS).map(end).sum::<i64>(), ROWS as i64, "as many records as rows");
    let mut judge = Judge::default();
    for number in 0..ROWS {
        let id = Uuid::from_u128(number.into()).to_string();
        judge.committed(format!("key-{}", number % KEYS), id, None);
    }
    for _ in 0..ROWS {
        let record = consumer.poll(PATIENCE).expect("there is one more").unwrap();
        judge.observe(&Fact::Arrived(judged(&record)));
    }
    judge.finish().assert_exactly_once();
}

/// A record as the oracle sees it; its value is the number in its id.
fn judged(record: &BorrowedMessage<'_>) -> Record {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.expect("it is there").to_vec()).unwrap();
    let id = text(record.headers().and_then(|headers| headers.iter().find(|header| header.key == "id")?.value));
    let number: u64 = text(record.payload()).parse().unwrap();
    assert_eq!(Uuid::parse_str(&id).unwrap().as_u128(), u128::from(number), "the value of {id}");
    Record { place: (record.topic().to_string(), record.partition()), key: text(record.key()), id }
}

#[test]
fn an_event_above_the_limit_is_parked_and_arrives_once_the_limit_is_raised() {
    let scene = Scene::new();
    // Nothing is tried again before the limit is raised.
    let config = scene.config.set("limits.event", "64KiB").set("dead_letter.backoff.first", "1h");
    let scene = Scene { config, ..scene };
    let mut relay = scene.relay();
    let large = write_around_a_large_one(&scene, 100_000);
    assert_parked(&scene, &mut relay, &large, "too_large", &["more than limits.event = 65536"]);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());

    let scene = Scene { config: scene.config.set("limits.event", "128KiB"), ..scene };
    let _relay = scene.relay();
    scene.retry_letters();
    assert_delivered(&scene, &large);
}

/// Not refused by the client for the few bytes that Kafka adds.
#[test]
fn an_event_of_exactly_the_limit_is_published() {
    let scene = Scene::new();
    let route = format!("topic = \"{}\"\nkey = \"{{aggregate_id}}\"\ndefault_headers = \"id\"", scene.topic);
    let config = scene.config.without("route").add("route", &route);
    let scene = Scene { config: config.set("limits.event", "64KiB"), ..scene };
    let relay = scene.relay();
    scene.write("key", "\"x\"");
    let overhead = scene.reader.wait_count(1, PATIENCE)[0].bytes() - 3;
    let payload = format!("\"{}\"", "x".repeat(64 * 1024 - overhead - 2));
    scene.write("key", &payload);
    assert_eq!(scene.reader.wait_count(2, PATIENCE)[1].bytes(), 64 * 1024, "{}", relay.log());
}

#[test]
fn an_event_that_the_topic_cannot_take_is_parked_and_arrives_once_the_topic_is_altered() {
    let scene = Scene::new();
    // Uncompressed, so that its size is known before it is offered.
    let scene = Scene { config: scene.config.property("compression.type", "none"), ..scene };
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "50000")]);
    let mut relay = scene.relay();
    let large = write_around_a_large_one(&scene, 100_000);
    assert_parked(&scene, &mut relay, &large, "too_large", &["max.message.bytes of topic", "is 50000"]);

    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "200000")]);
    scene.retry_letters();
    assert_delivered(&scene, &large);
}

#[test]
fn an_event_that_the_broker_refuses_is_found_among_its_neighbours_and_parked_alone() {
    let scene = Scene::new();
    let scene = Scene { config: scene.config.set("limits.settle", "2s"), ..scene };
    // Compressed, only the broker can tell that it is too large.
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "50000")]);
    let mut relay = scene.relay();
    let large = write_around_a_large_one(&scene, 100_000);
    assert_parked(&scene, &mut relay, &large, "refused", &["refused it"]);

    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "200000")]);
    scene.retry_letters();
    assert_delivered(&scene, &large);
}

#[test]
fn an_event_that_fits_once_compressed_is_published() {
    let scene = Scene::new();
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "50000")]);
    let _relay = scene.relay();
    scene.database.exec(
        "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
         values (current_database(), 'k', 'large', to_jsonb(repeat('x', 500000)))",
    );
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].value().len(), 500_002);
}

/// 200 small events over 10 keys, a large one in the middle of them, all in one transaction; returns the large one's id.
fn write_around_a_large_one(scene: &Scene, bytes: usize) -> String {
    let row = "insert into outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
               select current_database(), 'key-' || n % 10, 'small', to_jsonb(n), now() from generate_series";
    let large = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                 select current_database(), 'key-1', 'large', jsonb_build_array(101, string_agg(md5(n::text), ''))
                 from generate_series(1, {count}) as n returning id";
    let large = large.replace("{count}", &(bytes / 32).to_string());
    let mut session = scene.database.connect();
    let mut transaction = session.transaction().unwrap();
    transaction.batch_execute(&format!("{row}(1, 100) as n")).unwrap();
    let id = transaction.query_one(&format!("with large as ({large}) select id::text from large"), &[]).unwrap().get(0);
    transaction.batch_execute(&format!("{row}(102, 200) as n")).unwrap();
    transaction.commit().unwrap();
    id
}

/// The large event alone is parked, with this reason and these words. The slot has passed it, all others have arrived,
/// and the relay is ready.
#[track_caller]
fn assert_parked(scene: &Scene, relay: &mut Relay, large: &str, reason: &str, words: &[&str]) {
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let letters = scene.dead_letters();
    let [letter] = letters.as_slice() else { panic!("not one letter, but {letters:#?}") };
    assert_eq!((letter.event.as_deref(), letter.reason.as_str()), (Some(large), reason), "{letter:?}");
    for words in words {
        assert!(letter.message.contains(words), "never said \"{words}\": {letter:?}");
    }
    relay.wait_log(&format!("\"event\":\"{large}\""), PATIENCE);
    relay.wait_ready();
    assert_arrived(scene, None);
}

/// The large event has arrived with the payload that it has in the table, behind those that passed it.
#[track_caller]
fn assert_delivered(scene: &Scene, large: &str) {
    scene.wait_state(large, "delivered");
    scene.reader.catch_up(PATIENCE);
    assert_arrived(scene, Some(LARGE_ONE));
    let payload = scene.database.ask(&format!("select payload from outbox where id = '{large}'"));
    let seen = scene.reader.seen();
    let record = seen.iter().find(|record| record.id() == large).expect("it arrived");
    assert!(payload.as_deref() == Some(record.value()), "another payload");
}

/// Every number from 1 to 200 but the large event's has arrived once, each key in order, and then the `late` one.
#[track_caller]
fn assert_arrived(scene: &Scene, late: Option<u64>) {
    let seen = scene.reader.seen();
    for key in 0..10 {
        let numbers = (1..=200).filter(|n| *n != LARGE_ONE).chain(late);
        let expected: Vec<u64> = numbers.filter(|n| n % 10 == key).collect();
        let arrived: Vec<u64> = seen.iter().filter(|record| record.key() == format!("key-{key}")).map(number).collect();
        assert_eq!(arrived, expected, "key-{key}");
    }
}

fn number(record: &Seen) -> u64 {
    let value = record.value().trim_start_matches('[');
    value.split(',').next().unwrap().parse().unwrap()
}

/// A broker that takes some, and stops, keeps the queue full: that takes no more memory than was allowed, and not much less.
#[test]
fn a_queue_that_is_full_of_small_or_large_events_takes_the_memory_that_it_may() {
    const ALLOWED: u64 = 32 * MIB;
    let kafka = Kafka::private();
    let text = |bytes: u32| {
        let words =
            format!("select string_agg(md5((n * 10000 + m)::text), '') from generate_series(1, {bytes} / 32) as m");
        (format!("to_jsonb(({words}))"), "null".to_owned())
    };
    let many_headers = "(select jsonb_object_agg('h' || m, m) from generate_series(1, 20) as m)".to_owned();
    let cases = [
        ("500 bytes", text(500), 100_000),
        ("4,000 bytes", text(4_000), 30_000),
        ("60,000 bytes", text(60_000), 3_000),
        ("twenty headers", ("to_jsonb(n)".to_owned(), many_headers), 50_000),
    ];
    for (what, (payload, headers), events) in cases {
        let (scene, _) = unread(Scene::on(&Postgres::shared(), &kafka));
        let relay = scene.relay();
        let idle = relay.rss_bytes();
        scene.database.exec(&format!(
            "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, headers)
             select lpad(to_hex(n), 32, '0')::uuid, 'bulk', 'key-' || n % {KEYS}, 'made', {payload}, {headers}
             from generate_series(1, {events}) as n"
        ));
        let (mut peak, mut fullest) = (0, 0.0);
        let done = within(Duration::from_secs(60), || {
            kafka.node(0).pause();
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(30));
                peak = relay.rss_bytes().max(peak);
                fullest = relay.metric("outboxd_inflight_bytes").unwrap_or_default().max(fullest);
            }
            kafka.node(0).resume();
            std::thread::sleep(Duration::from_millis(100));
            (relay.published() >= f64::from(events)).then_some(())
        });
        assert!(done.is_some(), "{} of {events} events\n{}", relay.published(), relay.log());
        assert!(fullest > ALLOWED as f64 * 0.9, "{what}: the queue was never full: {fullest}");
        let took = peak.saturating_sub(idle);
        eprintln!("a queue full of events with {what}: {} MB", took / 1_000_000);
        assert!((ALLOWED / 3..=ALLOWED).contains(&took), "events with {what} took {took} bytes of memory");
    }
}
