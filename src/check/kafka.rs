//! Verdicts about the cluster and the topics: `kafka.*`.

use std::collections::BTreeMap;

use crate::config::{Config, Kafka, UnknownTopic};
use crate::sink::inspect::{Broker, Complaint, ProducerId, Reach, Step, Topic, TopicState};

use super::Finding;
use super::facts::{Facts, Traffic};
use super::words;

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let cluster = &facts.kafka;
    let mut findings: Vec<Finding> = reach(&config.kafka, &cluster.reach, &cluster.brokers).into_iter().collect();
    if cluster.reach != Reach::Reached {
        return findings;
    }
    findings.push(acl(&config.kafka, &cluster.producer_id));
    findings.push(topics(config, &cluster.topics));
    let present: Vec<Present<'_>> =
        cluster.topics.iter().filter_map(|topic| Present::of(topic, &facts.topics)).collect();
    if present.is_empty() {
        return findings;
    }
    findings.push(write(&config.kafka, &present));
    findings.push(insync(&config.kafka, &present));
    findings.push(size(config, &present));
    findings.push(cleanup(&present));
    findings.push(retention(&config.kafka, &present));
    findings.push(timestamp(&config.kafka, &present));
    findings
}

/// A topic that exists, with what the sample brings to it.
struct Present<'a> {
    name: &'a str,
    replicas: usize,
    in_sync: usize,
    may_write: Option<bool>,
    config: Option<&'a BTreeMap<String, String>>,
    traffic: Traffic,
}

impl<'a> Present<'a> {
    fn of(topic: &'a Topic, traffic: &BTreeMap<String, Traffic>) -> Option<Present<'a>> {
        match topic.state {
            TopicState::Present { replicas, in_sync, .. } => Some(Present {
                name: &topic.name,
                replicas,
                in_sync,
                may_write: topic.may_write,
                config: topic.config.as_ref(),
                traffic: traffic.get(&topic.name).cloned().unwrap_or_default(),
            }),
            TopicState::Missing | TopicState::Forbidden | TopicState::Failed(_) => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.config?.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    /// The broker keeps the record's own timestamp, rather than the time of its arrival.
    fn keeps_timestamps(&self) -> bool {
        self.text("message.timestamp.type").is_none_or(|kind| kind == "CreateTime")
    }
}

fn reach(kafka: &Kafka, reach: &Reach, brokers: &[Broker]) -> Option<Finding> {
    const ID: &str = "kafka.reach";
    match reach {
        Reach::Unasked => None,
        Reach::Misconfigured(reason) => Some(
            Finding::fail(ID, format!("librdkafka refuses the configuration: {reason}")).hint("mend kafka.properties"),
        ),
        Reach::Unreached(complaints) => Some(unreached(kafka, complaints)),
        Reach::Reached => {
            let silent: Vec<String> = brokers
                .iter()
                .filter(|broker| !broker.answered)
                .map(|broker| format!("broker {} at {}", broker.id, broker.address))
                .collect();
            Some(if silent.is_empty() {
                let addresses: Vec<&str> = brokers.iter().map(|broker| broker.address.as_str()).collect();
                Finding::ok(ID, format!("every broker answers at its advertised address: {}", addresses.join(", ")))
            } else {
                Finding::fail(ID, format!("no answer at the advertised address of {}", silent.join(", ")))
                    .hint("let this host reach those addresses, or mend advertised.listeners of the brokers")
            })
        }
    }
}

fn unreached(kafka: &Kafka, complaints: &[Complaint]) -> Finding {
    // The step that came furthest says most: behind a refused login, a broker that is down is a detail.
    let Some(complaint) = complaints.iter().max_by_key(|complaint| match complaint.step {
        Step::Other => 0,
        Step::Dns => 1,
        Step::Tcp => 2,
        Step::Tls => 3,
        Step::Login => 4,
    }) else {
        return Finding::fail("kafka.reach", format!("no broker of {} answered in time", kafka.brokers))
            .hint("check kafka.brokers, the firewall, and whether the listener expects TLS (security.protocol)");
    };
    let (step, hint) = match complaint.step {
        Step::Dns => ("DNS", "check the names in kafka.brokers"),
        Step::Tcp => {
            ("TCP", "check kafka.brokers, the firewall, and whether the listener expects TLS (security.protocol)")
        }
        Step::Tls => {
            ("TLS", "check ssl.ca.location, ssl.certificate.location and the broker's certificate in kafka.properties")
        }
        Step::Login => ("login", "check sasl.mechanism, sasl.username and sasl.password in kafka.properties"),
        Step::Other => ("connection", "check kafka.brokers and kafka.properties"),
    };
    Finding::fail("kafka.reach", format!("{step} failed: {}", complaint.text)).hint(hint)
}

fn acl(kafka: &Kafka, producer_id: &ProducerId) -> Finding {
    const ID: &str = "kafka.acl";
    match producer_id {
        ProducerId::Granted => Finding::ok(ID, "an idempotent producer is let in"),
        ProducerId::Refused(reason) => {
            Finding::fail(ID, format!("no idempotent producer is let in: {reason}")).hint(format!(
                "kafka-acls.sh --bootstrap-server {} --add --allow-principal {} --operation IdempotentWrite --cluster",
                kafka.brokers,
                principal(kafka)
            ))
        }
        ProducerId::Unknown => Finding::skipped(ID, "the cluster gave no producer id in time, and no refusal"),
    }
}

fn topics(config: &Config, topics: &[Topic]) -> Finding {
    const ID: &str = "kafka.topics";
    if topics.is_empty() {
        return Finding::skipped(ID, "no topic is known yet: every topic depends on a column, and no row was read");
    }
    let named = |wanted: fn(&TopicState) -> bool| -> Vec<&str> {
        topics.iter().filter(|topic| wanted(&topic.state)).map(|topic| topic.name.as_str()).collect()
    };
    let forbidden = named(|state| *state == TopicState::Forbidden);
    if let [first, ..] = forbidden.as_slice() {
        return Finding::fail(ID, format!("we may not describe, and so not write, {}", words::list(&forbidden)))
            .hint(write_acl(&config.kafka, first));
    }
    let failed = topics.iter().find_map(|topic| match &topic.state {
        TopicState::Failed(reason) => Some((&topic.name, reason)),
        TopicState::Present { .. } | TopicState::Missing | TopicState::Forbidden => None,
    });
    if let Some((name, reason)) = failed {
        return Finding::fail(ID, format!("topic \"{name}\": {reason}")).hint("check the topic's name in [[route]]");
    }
    let missing = named(|state| *state == TopicState::Missing);
    match (missing.as_slice(), &config.kafka.create_topics) {
        ([], _) => {
            let names = words::list(topics.iter().map(|topic| &topic.name));
            Finding::ok(ID, format!("every topic exists that routes and sampled rows lead to: {names}"))
        }
        (_, Some(_)) => Finding::notice(ID, format!("will be created with the first event: {}", words::list(&missing))),
        ([first, ..], None) => {
            let fate = match config.dead_letter.unknown_topic {
                UnknownTopic::Wait => "wait",
                UnknownTopic::Park => "be parked",
            };
            Finding::fail(ID, format!("no such topic, so their events would {fate}: {}", words::list(&missing)))
                .hint(create(&config.kafka, first))
        }
    }
}

fn write(kafka: &Kafka, topics: &[Present<'_>]) -> Finding {
    const ID: &str = "kafka.write";
    let with = |right| topics.iter().filter(move |topic| topic.may_write == right).map(|topic| topic.name);
    if let Some(first) = with(Some(false)).next() {
        return Finding::fail(ID, format!("we may describe but not write {}", words::list(with(Some(false)))))
            .hint(write_acl(kafka, first));
    }
    match with(None).next() {
        None => Finding::ok(ID, "the brokers allow us to write to every topic"),
        Some(_) => {
            let message = format!("the brokers do not tell our rights on {}", words::list(with(None)));
            Finding::skipped(ID, format!("{message}, and nothing is written to find out"))
        }
    }
}

fn insync(kafka: &Kafka, topics: &[Present<'_>]) -> Finding {
    const ID: &str = "kafka.insync";
    let needed =
        |topic: &Present<'_>| topic.number("min.insync.replicas").and_then(|count| usize::try_from(count).ok());
    let Some(unread) = topics.iter().map(needed).collect::<Option<Vec<usize>>>() else { return hidden(ID, topics) };
    let rows: Vec<(&Present<'_>, usize)> = topics.iter().zip(unread).collect();
    if let Some((topic, needed)) = rows.iter().find(|(topic, needed)| topic.in_sync < *needed) {
        let message = format!(
            "topic \"{}\" has {} of {needed} in-sync replicas: every write is refused now",
            topic.name, topic.in_sync
        );
        return Finding::fail(ID, message).hint("start the missing brokers");
    }
    if let Some((topic, _)) = rows.iter().find(|(topic, _)| topic.replicas < 2) {
        return Finding::warn(
            ID,
            format!("topic \"{}\" has one replica: acknowledged events die with its disk", topic.name),
        )
        .hint(
            "kafka-reassign-partitions.sh, to three replicas; or create the topic again with --replication-factor 3",
        );
    }
    if let Some((topic, _)) = rows.iter().find(|(_, needed)| *needed < 2) {
        return Finding::warn(
            ID,
            format!("topic \"{}\" has min.insync.replicas = 1: one disk may hold the only copy", topic.name),
        )
        .hint(alter(kafka, topic.name, "min.insync.replicas=2"));
    }
    match rows.iter().find(|(topic, needed)| *needed >= topic.replicas) {
        Some((topic, needed)) => {
            let message =
                format!("topic \"{}\" needs all of its {needed} replicas: one broker down stops it", topic.name);
            Finding::warn(ID, message).hint(alter(kafka, topic.name, "min.insync.replicas=2"))
        }
        None => Finding::ok(ID, "every acknowledged event is on two disks or more"),
    }
}

fn size(config: &Config, topics: &[Present<'_>]) -> Finding {
    const ID: &str = "kafka.size";
    let ours = i64::try_from(config.limits.event).unwrap_or(i64::MAX);
    let read = |bytes: i64| words::bytes(bytes as f64);
    if let Some(topic) = topics.iter().find(|topic| topic.traffic.largest > ours) {
        let largest = topic.traffic.largest;
        return Finding::fail(
            ID,
            format!("a row for topic \"{}\" has {}, more than limits.event", topic.name, read(largest)),
        )
        .hint(format!("in [limits]: event = {}, and memory at least as much", largest * 2));
    }
    let too_large = topics.iter().find_map(|topic| {
        let limit = topic.number("max.message.bytes")?;
        (topic.traffic.largest > limit).then_some((topic, limit))
    });
    if let Some((topic, limit)) = too_large {
        let largest = topic.traffic.largest;
        return Finding::fail(
            ID,
            format!("a row for topic \"{}\" has {}, and the topic takes {}", topic.name, read(largest), read(limit)),
        )
        .hint(alter(&config.kafka, topic.name, &format!("max.message.bytes={}", largest * 2)));
    }
    if topics.iter().any(|topic| topic.config.is_none()) {
        return hidden(ID, topics);
    }
    let largest = topics.iter().map(|topic| topic.traffic.largest).max().unwrap_or(0);
    let smallest = topics.iter().filter_map(|topic| topic.number("max.message.bytes")).min().unwrap_or(ours).min(ours);
    Finding::ok(ID, format!("the largest sampled payload has {}, {} are taken", read(largest), read(smallest)))
}

fn cleanup(topics: &[Present<'_>]) -> Finding {
    const ID: &str = "kafka.cleanup";
    if topics.iter().any(|topic| topic.config.is_none()) {
        return hidden(ID, topics);
    }
    let compacted: Vec<&str> = topics
        .iter()
        .filter(|topic| topic.text("cleanup.policy").is_some_and(|policy| policy.contains("compact")))
        .map(|topic| topic.name)
        .collect();
    match compacted.is_empty() {
        true => Finding::ok(ID, "no topic is compacted"),
        false => Finding::notice(
            ID,
            format!("compacted, so only the last event of each key is kept: {}", words::list(&compacted)),
        ),
    }
}

fn retention(kafka: &Kafka, topics: &[Present<'_>]) -> Finding {
    const ID: &str = "kafka.retention";
    if topics.iter().any(|topic| topic.config.is_none()) {
        return hidden(ID, topics);
    }
    let outlived = topics.iter().find_map(|topic| {
        let kept = topic.number("retention.ms").filter(|kept| *kept >= 0)? as f64 / 1000.0;
        let deletes = topic.text("cleanup.policy").is_none_or(|policy| policy.contains("delete"));
        let oldest = topic.traffic.oldest.filter(|oldest| *oldest > kept && deletes && topic.keeps_timestamps())?;
        Some((topic, oldest, kept))
    });
    match outlived {
        None => Finding::ok(ID, "no sampled row is older than its topic keeps events"),
        Some((topic, oldest, kept)) => Finding::warn(
            ID,
            format!(
                "a row for topic \"{}\" is {} old, and the topic keeps {}: once published it is soon deleted",
                topic.name,
                words::duration(oldest),
                words::duration(kept)
            ),
        )
        .hint(alter(kafka, topic.name, &format!("retention.ms={:.0}", (oldest * 2.0 * 1000.0).ceil()))),
    }
}

fn timestamp(kafka: &Kafka, topics: &[Present<'_>]) -> Finding {
    const ID: &str = "kafka.timestamp";
    if topics.iter().any(|topic| topic.config.is_none()) {
        return hidden(ID, topics);
    }
    for topic in topics.iter().filter(|topic| topic.keeps_timestamps()) {
        // Kafka 3.6 split the one bound in two; 4.0 dropped the old name.
        let bound = |name: &str| {
            let bound = topic.number(name).or_else(|| topic.number("message.timestamp.difference.max.ms"));
            bound.map(|milliseconds| milliseconds as f64 / 1000.0)
        };
        let ahead = topic.traffic.newest.map_or(0.0, |newest| -newest);
        let behind = topic.traffic.oldest.unwrap_or(0.0);
        if let Some(after) = bound("message.timestamp.after.max.ms").filter(|after| ahead > *after) {
            let message = format!(
                "a row for topic \"{}\" is {} in the future, and the topic takes {}",
                topic.name,
                words::duration(ahead),
                words::duration(after)
            );
            return Finding::fail(ID, message).hint(alter(
                kafka,
                topic.name,
                &format!("message.timestamp.after.max.ms={:.0}", ahead * 2000.0),
            ));
        }
        if let Some(before) = bound("message.timestamp.before.max.ms").filter(|before| behind > *before) {
            let message = format!(
                "a row for topic \"{}\" is {} old, and the topic refuses what is older than {}",
                topic.name,
                words::duration(behind),
                words::duration(before)
            );
            return Finding::warn(ID, message).hint(alter(
                kafka,
                topic.name,
                &format!("message.timestamp.before.max.ms={:.0}", behind * 2000.0),
            ));
        }
    }
    Finding::ok(ID, "every sampled row's timestamp is within its topic's bounds")
}

fn hidden(id: &'static str, topics: &[Present<'_>]) -> Finding {
    let hidden: Vec<&str> = topics.iter().filter(|topic| topic.config.is_none()).map(|topic| topic.name).collect();
    Finding::skipped(id, format!("we may not read the configuration of {}", words::list(&hidden)))
}

/// The command that creates a topic.
pub(super) fn create(kafka: &Kafka, topic: &str) -> String {
    let brokers = &kafka.brokers;
    format!(
        "kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions 6 --replication-factor 3"
    )
}

/// The command that changes a topic's setting.
pub(super) fn alter(kafka: &Kafka, topic: &str, setting: &str) -> String {
    let brokers = &kafka.brokers;
    format!(
        "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {topic} \
         --add-config {setting}"
    )
}

/// The command that lets us write to a topic, and see how it is set.
pub(super) fn write_acl(kafka: &Kafka, topic: &str) -> String {
    let (brokers, principal) = (&kafka.brokers, principal(kafka));
    format!(
        "kafka-acls.sh --bootstrap-server {brokers} --add --allow-principal {principal} --operation Write \
         --operation DescribeConfigs --topic {topic}"
    )
}

/// Whom the cluster knows us as, where the configuration tells. A user's name is no secret, unlike other properties.
fn principal(kafka: &Kafka) -> String {
    format!("User:{}", kafka.properties.get("sasl.username").map_or("NAME", |user| user.reveal()))
}

#[cfg(test)]
#[path = "kafka_tests.rs"]
mod tests;
