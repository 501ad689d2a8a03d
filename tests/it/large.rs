//! Many rows in one transaction, and rows that are too large: memory stays flat, and nothing is skipped.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::reader::Seen;
use crate::support::relay::Relay;
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, within};

const MIB: u64 = 1024 * 1024;

#[test]
fn a_transaction_of_a_million_rows_runs_in_flat_memory() {
    const ROWS: i64 = 1_000_000;
    let scene = Scene::new();
    // Not the reader's topic: a million records are counted here, not read.
    let topic = format!("{}-bulk", scene.topic);
    scene.kafka.create_topic(&topic, PARTITIONS);
    let block = format!("topic = \"{topic}\"\nkey = \"{{aggregate_id}}\"");
    // While a walsender is busy it reads our questions every half of its timeout only: the usual one of tests is too
    // short for a busy machine.
    let config = scene.config.without("route").add("route", &block).set("postgres.sender_timeout", "30s");
    let scene = Scene { config, ..scene };
    let relay = scene.relay();
    scene.database.exec(&format!(
        "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload)
         select gen_random_uuid(), 'bulk', 'key-' || n % 100, 'made', to_jsonb(n) from generate_series(1, {ROWS}) as n"
    ));
    let written = scene.written();

    let consumer: BaseConsumer = scene.kafka.client().set("group.id", "count").create().unwrap();
    let (mut early, mut late) = (0, 0);
    let confirmed = within(Duration::from_secs(120), || {
        let published = relay.metric("outboxd_events_published_total").unwrap_or_default();
        let peak = if published < ROWS as f64 / 4.0 { &mut early } else { &mut late };
        *peak = relay.rss_bytes().max(*peak);
        (scene.confirmed() >= written).then_some(())
    });
    assert!(confirmed.is_some(), "{} of {written}\n{}", scene.confirmed(), relay.log());
    eprintln!("resident: {} MiB in the first quarter, {} MiB after it", early / MIB, late / MIB);
    assert!(late < 96 * MIB, "the relay took {} MiB", late / MIB);
    assert!(late < early + 16 * MIB, "memory grew with the transaction: {} to {} MiB", early / MIB, late / MIB);
    assert_eq!(count(&consumer, &topic), ROWS, "every row once");
}

#[test]
fn an_event_above_the_limit_stops_the_relay_until_the_limit_is_raised() {
    let scene = Scene::new();
    let scene = Scene { config: scene.config.set("limits.event", "64KiB"), ..scene };
    let mut relay = scene.relay();
    let large = write_around_a_large_one(&scene, 100_000);
    let words = format!("event {large} at ");
    assert_stopped(&scene, &mut relay, &[&words, "more than limits.event = 65536"]);

    let scene = Scene { config: scene.config.set("limits.event", "128KiB"), ..scene };
    let _relay = scene.relay();
    assert_everything_arrived(&scene);
}

#[test]
fn an_event_that_the_topic_cannot_take_stops_the_relay_until_the_topic_is_altered() {
    let scene = Scene::new();
    // Uncompressed, so that its size is known before it is offered.
    let scene = Scene { config: scene.config.property("compression.type", "none"), ..scene };
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "50000")]);
    let mut relay = scene.relay();
    let large = write_around_a_large_one(&scene, 100_000);
    let words = format!("event {large} at ");
    assert_stopped(&scene, &mut relay, &[&words, "max.message.bytes of topic", "is 50000"]);

    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "200000")]);
    let _relay = scene.relay();
    assert_everything_arrived(&scene);
}

#[test]
fn an_event_that_the_broker_refuses_is_found_among_its_neighbours() {
    let scene = Scene::new();
    let scene = Scene { config: scene.config.set("limits.settle", "2s"), ..scene };
    // Compressed, only the broker can tell that it is too large.
    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "50000")]);
    let mut relay = scene.relay();
    let large = write_around_a_large_one(&scene, 100_000);
    let words = format!("event {large} at ");
    assert_stopped(&scene, &mut relay, &[&words, "refused it"]);

    scene.kafka.alter_topic(&scene.topic, &[("max.message.bytes", "200000")]);
    let _relay = scene.relay();
    assert_everything_arrived(&scene);
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

/// The relay ended with exit code 1 and these words, with the slot before the transaction and nothing of the large
/// event's key published behind it.
#[track_caller]
fn assert_stopped(scene: &Scene, relay: &mut Relay, words: &[&str]) {
    assert_eq!(relay.wait_exit(PATIENCE), Some(1), "{}", relay.log());
    for words in words {
        assert!(relay.log().contains(words), "never said \"{words}\"\n{}", relay.log());
    }
    assert_eq!(scene.held_by_slot(), 200);
    scene.reader.catch_up(PATIENCE);
    let behind = |record: &Seen| record.key() == "key-1" && number(record) > 101;
    assert!(!scene.reader.seen().iter().any(behind), "an event overtook the refused one");
}

/// Every number from 1 to 200, each key in order; the relay was stopped once, so a key may have begun again once.
#[track_caller]
fn assert_everything_arrived(scene: &Scene) {
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let seen = scene.reader.seen();
    for key in 0..10 {
        let expected: Vec<u64> = (1..=200).filter(|n| n % 10 == key).collect();
        let numbers: Vec<u64> = seen.iter().filter(|record| record.key() == format!("key-{key}")).map(number).collect();
        let again = numbers.iter().rposition(|n| *n == expected[0]).expect("the first of the key arrived");
        assert_eq!(numbers[again..], expected, "key-{key}");
        assert!(expected.starts_with(&numbers[..again]), "key-{key} before the stop: {numbers:?}");
    }
}

fn number(record: &Seen) -> u64 {
    let value = record.value().trim_start_matches('[');
    value.split(',').next().unwrap().parse().unwrap()
}

fn count(consumer: &BaseConsumer, topic: &str) -> i64 {
    let end = |partition| consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap().1;
    (0..PARTITIONS).map(end).sum()
}
