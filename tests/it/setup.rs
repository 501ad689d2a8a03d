//! The set-up is wrong. What cannot mend itself ends the relay at its start, with a message, a hint and the right exit
//! code; what somebody may be mending on Kafka's side is waited for, and `/readyz` names it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::reader::Reader;
use crate::support::relay::{Config, Ended, Relay};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually, throughout, unique_name};

const NOTICED: Duration = Duration::from_secs(10);

#[test]
fn a_role_without_replication_is_told_how_to_get_it() {
    let (scene, role) = scene_with_a_role();
    scene.database.exec(&format!("alter role {role} noreplication"));
    let ended = run(scene.config.clone());
    assert_fails(&ended, 1, &["replication", &format!("ALTER ROLE \"{role}\" REPLICATION")]);
    scene.database.exec(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_role_that_may_not_write_its_name_ends_the_start_and_is_not_waited_for() {
    let (scene, role) = scene_with_a_role();
    scene.database.exec(&format!("revoke update on outboxd.position from {role}"));
    let ended = run(scene.config.clone());
    assert_fails(&ended, 1, &["cannot claim the position of slot", "permission denied", "outboxd init"]);
    scene.database.exec(&format!("drop owned by {role}; drop role {role}"));
}

/// A relay with a role of its own, made by `init`.
fn scene_with_a_role() -> (Scene, String) {
    let mut scene = Scene::new();
    let role = unique_name();
    let url = scene.database.url().replace("postgres@", &format!("{role}@"));
    scene.config = scene.config.set("postgres.url", url);
    scene.config.run(&["init", "--url", &scene.database.url()]).assert_success();
    (scene, role)
}

#[test]
fn a_wrong_password_a_refusing_hba_and_an_unknown_database_end_the_start_with_a_hint() {
    let postgres = Postgres::options()
        .hba("host all locked 127.0.0.1/32 reject")
        .hba("host all all 127.0.0.1/32 scram-sha-256")
        .start();
    postgres.exec("postgres", "create role relay login replication password 'right'; create role locked login");
    let scene = Scene::bare(&postgres, &Kafka::shared());
    let at = |user: &str, database: &str| format!("postgres://{user}@127.0.0.1:{}/{database}", postgres.port());
    let name = scene.database.name();

    let ended = run(scene.config.clone().set("postgres.url", at("relay:wrong", name)));
    assert_fails(&ended, 1, &["password authentication failed", "postgres.password_file"]);
    assert!(!ended.stderr.contains("wrong@") && !ended.stderr.contains(":wrong"), "{}", ended.stderr);
    let ended = run(scene.config.clone().set("postgres.url", at("relay", name)));
    assert_fails(&ended, 1, &["password", "postgres.password_file"]);
    let ended = run(scene.config.clone().set("postgres.url", at("locked", name)));
    assert_fails(&ended, 1, &["pg_hba.conf", "\"locked\""]);
    let ended = run(scene.config.clone().set("postgres.url", at("relay:right", "nowhere")));
    assert_fails(&ended, 1, &["database \"nowhere\" does not exist", "postgres.url"]);
}

#[test]
fn a_server_that_does_not_write_logical_wal_is_named_by_init_and_has_no_slot_for_run() {
    let postgres = Postgres::options().setting("wal_level", "replica").start();
    let scene = Scene::bare(&postgres, &Kafka::shared());
    let ended = scene.config.run(&["init"]);
    assert_fails(&ended, 1, &["wal_level", "ALTER SYSTEM SET wal_level = logical", "restart"]);
    assert_fails(&run(scene.config.clone()), 1, &["replication slot", "does not exist", "outboxd init"]);
}

#[test]
fn init_makes_its_slot_while_others_change_the_catalog() {
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = scene.database.connect();
            while !over.load(Ordering::Relaxed) {
                session.batch_execute("create table passing (n int); drop table passing").unwrap();
            }
        });
        let inits = (0..10).map(|n| {
            let slot = format!("{}_{n}", scene.config.slot());
            scene.config.clone().set("postgres.slot", slot).run(&["init"])
        });
        let failed = inits.map(|ended| (ended.code, ended.stderr)).find(|(code, _)| *code != Some(0));
        over.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
}

#[test]
fn a_wrong_configuration_ends_with_code_2_and_names_the_field() {
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    assert_fails(&run(scene.config.clone().set("postgres.slott", "x")), 2, &["slott", "slot"]);
    assert_fails(&run(scene.config.clone().set("limits.memory", "many")), 2, &["limits.memory"]);
    assert_fails(&run(scene.config.clone().property("acks", "0")), 2, &["acks"]);
}

#[test]
fn an_unknown_topic_is_waited_for_and_flows_when_created() {
    let scene = without_topic(&Kafka::shared(), |config| config);
    let mut relay = scene.relay();
    let id = scene.write("k", "{}");
    relay.wait_unready("topic_missing", NOTICED);
    assert!(reasons(&relay).contains(&scene.topic), "{}", reasons(&relay));
    throughout("it waits", Duration::from_secs(1), || relay.is_running());
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].id(), id);
    relay.wait_ready();
}

#[test]
fn a_topic_deleted_under_the_relay_is_waited_for_and_flows_when_created_again() {
    let scene = Scene::new();
    let mut relay = scene.relay();
    scene.write("k", "{}");
    scene.reader.wait_count(1, PATIENCE);
    scene.kafka.delete_topic(&scene.topic);
    // The broker may take records for a moment longer: until it has put the partitions aside.
    let kept = |name: &str| name.starts_with(&scene.topic) && !name.ends_with("-delete");
    eventually("the partitions are gone", PATIENCE, || {
        let mut partitions = std::fs::read_dir(scene.kafka.node(0).directory().join("log")).unwrap().flatten();
        !partitions.any(|partition| kept(&partition.file_name().to_string_lossy()))
    });
    let ids: Vec<String> = (0..20).map(|n| scene.write("k", &format!("{{\"n\": {n}}}"))).collect();
    relay.wait_unready("topic_missing", NOTICED);
    assert!(reasons(&relay).contains(&scene.topic), "{}", reasons(&relay));
    scene.kafka.create_topic(&scene.topic, PARTITIONS);
    let reader = Reader::start(&scene.kafka, &[&scene.topic]);
    let seen = reader.wait_count(ids.len(), PATIENCE);
    assert_eq!(seen.iter().map(|seen| seen.id()).collect::<Vec<_>>(), ids, "{}", relay.log());
    relay.wait_ready();
}

#[test]
fn a_topic_deleted_behind_its_last_event_is_not_made_again_and_no_reason_to_wait() {
    let kafka = Kafka::private();
    let scene = without_topic(&kafka, creating_topics);
    let mut relay = scene.relay();
    let exists = |topic: &str| {
        let client: BaseConsumer = kafka.client().create().unwrap();
        let cluster = client.fetch_metadata(None, PATIENCE).unwrap();
        cluster.topics().iter().any(|known| known.name() == topic)
    };
    let other = "insert into outbox (aggregate_type, aggregate_id, event_type, payload) values
                 ('other', 'k', 'made', '{}')";
    scene.database.exec(other);
    scene.write("k", "{}");
    scene.reader.wait_count(1, PATIENCE);
    eventually("both are settled", PATIENCE, || relay.published() == 2.0);
    kafka.delete_topic("outbox.event.other");
    // A broker that is silent makes the relay ask for every topic that it knows, again and again.
    kafka.pause();
    let struck = Instant::now();
    scene.write("k", "{}");
    relay.wait_noticed(struck, "kafka_silent");
    throughout("it asks", Duration::from_secs(2), || reasons(&relay).contains("kafka_silent"));
    kafka.resume();
    scene.reader.wait_count(2, PATIENCE);
    relay.wait_ready();
    let ready = || relay.readiness().is_some_and(|(status, _)| status == 200);
    throughout("it is gone, and nobody waits", Duration::from_secs(3), || ready() && !exists("outbox.event.other"));
    // Until the next event comes.
    scene.database.exec(other);
    eventually("it is made again", PATIENCE, || exists("outbox.event.other"));
    eventually("it is settled", PATIENCE, || relay.published() == 4.0);
}

#[test]
fn a_missing_topic_is_created_where_that_is_wanted() {
    let scene = without_topic(&Kafka::shared(), creating_topics);
    let _relay = scene.relay();
    let ids: Vec<String> = (0..20).map(|n| scene.write(&format!("key-{n}"), "{}")).collect();
    let seen = scene.reader.wait_count(ids.len(), PATIENCE);
    assert!(seen.iter().all(|seen| seen.partition < 3) && seen.iter().any(|seen| seen.partition > 0));
}

#[test]
fn a_missing_right_is_waited_for_and_a_wrong_password_of_kafka_is_named() {
    let kafka = Kafka::options().sasl(&[("relay", "right")]).start();
    let scene = without_topic(&kafka, |config| log_in(&kafka, config, "right"));
    kafka.create_topic(&scene.topic, PARTITIONS);
    let id = scene.write("k", "{}");

    let mut stranger = Relay::start(&log_in(&kafka, scene.config.clone(), "wrong"));
    stranger.wait_unready("kafka_login", NOTICED);
    assert!(stranger.is_running() && !stranger.log().contains("\"wrong\""));
    drop(stranger);

    let mut relay = Relay::start(&scene.config);
    relay.wait_unready("topic_forbidden", NOTICED);
    assert!(reasons(&relay).contains(&scene.topic), "{}", reasons(&relay));
    kafka.allow("relay", "Describe", &["--topic", &scene.topic]);
    relay.wait_unready("delivery_failed", NOTICED);
    assert!(reasons(&relay).contains(&scene.topic), "{}", reasons(&relay));
    kafka.allow("relay", "Write", &["--topic", &scene.topic]);
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].id(), id, "{}", relay.log());
    relay.wait_ready();
    scene.reader.catch_up(PATIENCE);
    assert_eq!(scene.reader.count(), 1);
}

#[test]
fn a_small_limit_that_is_hidden_from_us_costs_a_few_producers_and_not_one_with_every_batch() {
    let kafka = Kafka::options().sasl(&[("relay", "right")]).start();
    let scene = without_topic(&kafka, |config| log_in(&kafka, config, "right"));
    let scene = Scene { config: scene.config.property("compression.type", "none"), ..scene };
    kafka.create_topic(&scene.topic, 1);
    kafka.alter_topic(&scene.topic, &[("max.message.bytes", "100000")]);
    kafka.allow("relay", "Write", &["--topic", &scene.topic]);
    let relay = scene.relay();
    let kind = &scene.aggregate_type;
    let mut replaced = Vec::new();
    for wave in 1..=4 {
        scene.database.exec(&format!(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
             select '{kind}', 'key', 'made', to_jsonb(repeat('x', 500)) from generate_series(1, 2000)"
        ));
        scene.reader.wait_count(wave * 2000, PATIENCE);
        replaced.push(relay.producers_replaced());
    }
    assert!(replaced[0] > 0.0, "no batch was too large");
    assert_eq!(replaced[3], replaced[1], "{replaced:?}");
    relay.wait_log("grant DescribeConfigs", PATIENCE);
}

fn log_in(kafka: &Kafka, config: Config, password: &str) -> Config {
    let config = config.set("kafka.brokers", kafka.address("SASL_PLAINTEXT"));
    let config = config.property("security.protocol", "SASL_PLAINTEXT").property("sasl.mechanism", "PLAIN");
    config.property("sasl.username", "relay").property("sasl.password", password)
}

/// A scene that is prepared but for its topic.
fn without_topic(kafka: &std::sync::Arc<Kafka>, change: impl FnOnce(Config) -> Config) -> Scene {
    let mut scene = Scene::bare(&Postgres::shared(), kafka);
    scene.config.run(&["init"]).assert_success();
    scene.config = change(scene.config);
    scene
}

fn creating_topics(config: Config) -> Config {
    config.set("kafka.create_topics.partitions", 3).set("kafka.create_topics.replication", 1)
}

fn run(config: Config) -> Ended {
    config.set("http.listen", "127.0.0.1:0").run(&["run"])
}

fn reasons(relay: &Relay) -> String {
    relay.readiness().map(|(_, body)| body["reasons"].to_string()).unwrap_or_default()
}

#[track_caller]
fn assert_fails(ended: &Ended, code: i32, says: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:#?}");
    let unsaid: Vec<&&str> = says.iter().filter(|words| !ended.stderr.contains(**words)).collect();
    assert!(unsaid.is_empty(), "not said: {unsaid:?}\n{}", ended.stderr);
    assert!(code == 2 || ended.stderr.contains("hint: "), "{}", ended.stderr);
}
