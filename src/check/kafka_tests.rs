use super::super::Verdict::{Fail, Notice, Ok, Skipped, Warn};
use super::super::tests::{assert_finding, config, facts, only, topic};
use super::*;
use crate::config::{CreateTopics, Secret};

/// Judges one topic after a change of its configuration and traffic.
fn judged(id: &str, settings: &[(&str, &str)], traffic: Traffic) -> Finding {
    let mut facts = facts();
    let mut topic = topic("orders");
    for (name, value) in settings {
        topic.config.as_mut().unwrap().insert((*name).to_owned(), (*value).to_owned());
    }
    facts.kafka.topics = vec![topic];
    facts.topics = BTreeMap::from([("orders".to_owned(), traffic)]);
    only(&judge(&config(), &facts), id).clone()
}

fn aged(oldest: f64, newest: f64) -> Traffic {
    Traffic { rows: 2, largest: 500, oldest: Some(oldest), newest: Some(newest) }
}

fn with_state(state: TopicState) -> Topic {
    Topic { state, may_write: None, config: None, ..topic("orders") }
}

#[test]
fn the_step_that_came_furthest_explains_why_no_broker_answers() {
    let complaint = |step, text: &str| Complaint { step, text: text.into() };
    let complaints =
        vec![complaint(Step::Tcp, "connection refused"), complaint(Step::Login, "SASL authentication error")];
    let unreached = |complaints| reach(&config().kafka, &Reach::Unreached(complaints), &[]).unwrap();
    assert_finding(&unreached(complaints), Fail, "login failed: SASL", "sasl.password");
    assert_finding(
        &unreached(vec![complaint(Step::Tls, "certificate verify failed")]),
        Fail,
        "TLS failed",
        "ssl.ca.location",
    );
    assert_finding(&unreached(vec![complaint(Step::Dns, "unknown host")]), Fail, "DNS failed", "kafka.brokers");
    assert_finding(&unreached(vec![complaint(Step::Tcp, "refused")]), Fail, "TCP failed", "firewall");
    assert_finding(&unreached(vec![complaint(Step::Other, "odd")]), Fail, "connection failed", "kafka.properties");
    assert_finding(&unreached(vec![]), Fail, "answered in time", "security.protocol");
    let wrong = reach(&config().kafka, &Reach::Misconfigured("linger.ms: Invalid value".into()), &[]);
    assert_finding(&wrong.unwrap(), Fail, "linger.ms", "kafka.properties");
    assert_eq!(reach(&config().kafka, &Reach::Unasked, &[]), None);
}

#[test]
fn a_broker_that_is_silent_at_its_advertised_address_fails() {
    let broker = |id, answered| Broker { id, address: format!("kafka-{id}:9092"), answered };
    let judged = |brokers: &[Broker]| reach(&config().kafka, &Reach::Reached, brokers).unwrap();
    assert_finding(&judged(&[broker(1, true), broker(2, true)]), Ok, "kafka-1:9092, kafka-2:9092", "");
    assert_finding(
        &judged(&[broker(1, true), broker(2, false)]),
        Fail,
        "broker 2 at kafka-2:9092",
        "advertised.listeners",
    );
}

#[test]
fn a_refused_producer_comes_with_the_acl_that_lets_it_in() {
    let mut kafka = config().kafka;
    assert_finding(&acl(&kafka, &ProducerId::Granted), Ok, "let in", "");
    assert_finding(&acl(&kafka, &ProducerId::Unknown), Skipped, "no producer id", "");
    kafka.properties.insert("sasl.username".into(), Secret::new("relay"));
    let refused = acl(&kafka, &ProducerId::Refused("Cluster authorization failed".into()));
    assert_finding(&refused, Fail, "Cluster authorization failed", "User:relay --operation IdempotentWrite");
}

#[test]
fn a_topic_is_there_or_will_be_or_is_missed() {
    let mut config = config();
    assert_finding(&topics(&config, &[topic("a"), topic("b")]), Ok, "lead to: \"a\", \"b\"", "");
    assert_finding(&topics(&config, &[]), Skipped, "no topic is known", "");
    assert_finding(
        &topics(&config, &[with_state(TopicState::Forbidden)]),
        Fail,
        "may not describe",
        "--operation Write",
    );
    assert_finding(
        &topics(&config, &[with_state(TopicState::Failed("invalid topic".into()))]),
        Fail,
        "invalid topic",
        "name",
    );
    let missing = [with_state(TopicState::Missing)];
    assert_finding(
        &topics(&config, &missing),
        Fail,
        "would wait: \"orders\"",
        "kafka-topics.sh --bootstrap-server kafka:9092 --create --topic orders",
    );
    config.dead_letter.unknown_topic = UnknownTopic::Park;
    assert_finding(&topics(&config, &missing), Fail, "would be parked: \"orders\"", "kafka-topics.sh");
    config.kafka.create_topics = Some(CreateTopics { partitions: 6, replication: 3, config: BTreeMap::new() });
    assert_finding(&topics(&config, &missing), Notice, "created with the first event", "");
}

#[test]
fn the_right_to_describe_is_not_the_right_to_write() {
    let with = |may_write| {
        let mut facts = facts();
        facts.kafka.topics = vec![Topic { may_write, ..topic("orders") }];
        only(&judge(&config(), &facts), "kafka.write").clone()
    };
    assert_finding(&with(Some(true)), Ok, "allow us to write to every topic", "");
    assert_finding(&with(Some(false)), Fail, "describe but not write \"orders\"", "--operation Write");
    assert_finding(&with(None), Skipped, "do not tell", "");
}

#[test]
fn acknowledged_events_are_on_two_disks() {
    let with = |replicas, in_sync, needed: &str| {
        let mut facts = facts();
        let mut topic = topic("orders");
        topic.state = TopicState::Present { partitions: 6, replicas, in_sync };
        topic.config.as_mut().unwrap().insert("min.insync.replicas".into(), needed.into());
        facts.kafka.topics = vec![topic];
        only(&judge(&config(), &facts), "kafka.insync").clone()
    };
    assert_finding(&with(3, 3, "2"), Ok, "two disks", "");
    assert_finding(&with(3, 1, "2"), Fail, "1 of 2 in-sync", "start the missing brokers");
    assert_finding(&with(1, 1, "1"), Warn, "one replica", "replication-factor 3");
    assert_finding(&with(3, 3, "1"), Warn, "min.insync.replicas = 1", "--add-config min.insync.replicas=2");
    assert_finding(&with(3, 3, "3"), Warn, "one broker down stops it", "min.insync.replicas=2");
}

#[test]
fn the_largest_row_must_fit() {
    let of = |largest| Traffic { rows: 1, largest, ..Traffic::default() };
    assert_finding(&judged("kafka.size", &[], of(500)), Ok, "500 bytes, 1.0 MiB are taken", "");
    assert_finding(
        &judged("kafka.size", &[], of(20_000_000)),
        Fail,
        "more than limits.event",
        "event = 40000000, and memory",
    );
    let small = [("max.message.bytes", "1000")];
    assert_finding(
        &judged("kafka.size", &small, of(5000)),
        Fail,
        "the topic takes 1000 bytes",
        "max.message.bytes=10000",
    );
}

#[test]
fn a_compacted_topic_keeps_only_the_last_event() {
    assert_finding(&judged("kafka.cleanup", &[], aged(1.0, 1.0)), Ok, "no topic", "");
    assert_finding(
        &judged("kafka.cleanup", &[("cleanup.policy", "compact,delete")], aged(1.0, 1.0)),
        Notice,
        "\"orders\"",
        "",
    );
}

#[test]
fn a_row_older_than_the_retention_is_soon_deleted() {
    let eight_days = aged(8.0 * 86_400.0, 0.0);
    assert_finding(&judged("kafka.retention", &[], aged(60.0, 0.0)), Ok, "no sampled row", "");
    assert_finding(
        &judged("kafka.retention", &[], eight_days.clone()),
        Warn,
        "8 d old, and the topic keeps 7 d",
        "retention.ms=1382400000",
    );
    for keeps in [("retention.ms", "-1"), ("message.timestamp.type", "LogAppendTime"), ("cleanup.policy", "compact")] {
        assert_eq!(judged("kafka.retention", &[keeps], eight_days.clone()).verdict, Ok, "{keeps:?}");
    }
}

#[test]
fn a_timestamp_out_of_bounds_is_refused_under_either_name_of_the_bound() {
    assert_eq!(judged("kafka.timestamp", &[], aged(60.0, 0.0)).verdict, Ok);
    assert_finding(
        &judged("kafka.timestamp", &[], aged(0.0, -7200.0)),
        Fail,
        "2 h in the future",
        "after.max.ms=14400000",
    );
    let bounded = [("message.timestamp.before.max.ms", "86400000")];
    assert_finding(
        &judged("kafka.timestamp", &bounded, aged(259_200.0, 0.0)),
        Warn,
        "3 d old",
        "before.max.ms=518400000",
    );
    let append = [("message.timestamp.type", "LogAppendTime")];
    assert_eq!(judged("kafka.timestamp", &append, aged(0.0, -7200.0)).verdict, Ok);
    // Before Kafka 3.6 one bound held for both sides.
    let mut facts = facts();
    let old = [("message.timestamp.type", "CreateTime"), ("message.timestamp.difference.max.ms", "1000")];
    let old = old.map(|(name, value)| (name.to_owned(), value.to_owned()));
    facts.kafka.topics = vec![Topic { config: Some(old.into()), ..topic("orders") }];
    facts.topics = BTreeMap::from([("orders".to_owned(), aged(0.0, -7200.0))]);
    assert_eq!(only(&judge(&config(), &facts), "kafka.timestamp").verdict, Fail);
}

#[test]
fn a_configuration_that_may_not_be_read_is_skipped() {
    let mut facts = facts();
    facts.kafka.topics = vec![Topic { config: None, ..topic("orders") }];
    let findings = judge(&config(), &facts);
    for id in ["kafka.insync", "kafka.size", "kafka.cleanup", "kafka.retention", "kafka.timestamp"] {
        assert_finding(only(&findings, id), Skipped, "configuration of \"orders\"", "");
    }
}
