//! Whether the producer still knows who leads the partitions that it has records for.
//!
//! librdkafka passes over what the cluster tells of a partition with a lower leader epoch than it has seen before. A topic
//! that was deleted and made again begins at epoch 0: unless it has its former leader by chance, its records are taken to
//! a broker that refuses them, for ever. Where the producer heads comes from its statistics, who leads from the cluster.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use serde::Deserialize;

use crate::sink::{Failure, Whose};

/// A producer that is well asks who leads with every refusal, and as soon as it has given a silent broker up.
const SLACK: Duration = Duration::from_secs(5);
/// What tells how long it waits for one, in milliseconds. Every producer of ours has them set.
const GIVEN_UP_AFTER: [&str; 2] = ["socket.timeout.ms", "socket.connection.setup.timeout.ms"];

/// The broker that a partition's records are taken to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Heading {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) broker: i32,
}

/// The part of the statistics that tells it.
#[derive(Debug, Deserialize)]
struct Statistics {
    topics: HashMap<String, Topic>,
}

#[derive(Debug, Deserialize)]
struct Topic {
    partitions: HashMap<String, Partition>,
}

#[derive(Debug, Deserialize)]
struct Partition {
    partition: i32,
    broker: i32,
    /// Records taken since the beginning, and the number of the last one acknowledged. Of those that wait between two
    /// tries, no queue tells.
    msgs: u64,
    acked_msgid: u64,
}

/// Where every partition with records is headed. Others may be behind the times: nobody needs to know who leads them.
pub(super) fn headings(statistics: &[u8]) -> serde_json::Result<Vec<Heading>> {
    let statistics: Statistics = serde_json::from_slice(statistics)?;
    // A partition that was gone for a moment counts its records from the beginning, and its answers not.
    let is_headed = |it: &Partition| it.msgs != it.acked_msgid;
    let of_topic = |(name, topic): (String, Topic)| {
        let partitions = topic.partitions.into_values().filter(is_headed);
        partitions.map(move |it| Heading { topic: name.clone(), partition: it.partition, broker: it.broker })
    };
    Ok(statistics.topics.into_iter().flat_map(of_topic).collect())
}

/// Records that go to a broker that does not lead their partition, and since when.
#[derive(Debug)]
pub(super) struct Astray {
    /// A producer that is well has found the leader by then.
    patience: Duration,
    since: HashMap<Heading, Instant>,
}

impl Astray {
    /// Of producers with these settings.
    pub(super) fn new(config: &ClientConfig) -> Astray {
        let set = |name| config.get(name).and_then(|text| text.parse().ok());
        let given_up = GIVEN_UP_AFTER.into_iter().filter_map(set).max().unwrap_or_default();
        Astray { patience: Duration::from_millis(given_up) + SLACK, since: HashMap::new() }
    }

    /// Compares where the producer heads with the leader that the cluster names. What has been wrong for too long is the
    /// failure of a producer that will not find its way.
    pub(super) fn compare(
        &mut self,
        headings: Vec<Heading>,
        leader: impl Fn(&str, i32) -> Option<i32>,
        now: Instant,
    ) -> Option<Failure> {
        let known = std::mem::take(&mut self.since);
        let mut failure = None;
        for heading in headings {
            let Heading { topic, partition, broker } = &heading;
            let Some(leads) = leader(topic, *partition).filter(|leads| leads != broker) else { continue };
            let since = known.get(&heading).copied().unwrap_or(now);
            if now.saturating_duration_since(since) >= self.patience {
                let message = format!(
                    "the client takes partition {partition} to broker {broker}, although broker {leads} leads it, as \
                     happens when a topic is deleted and made again"
                );
                failure = Some(Failure { whose: Whose::World, topic: topic.clone(), message, too_large: false });
            }
            self.since.insert(heading, since);
        }
        failure
    }

    /// The producer is well, or another one.
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading(partition: i32, broker: i32) -> Heading {
        Heading { topic: "orders".into(), partition, broker }
    }

    #[test]
    fn only_partitions_with_records_head_anywhere() {
        let partition = |id: i32, taken: u64, acknowledged: u64| {
            format!(
                r#""{id}": {{ "partition": {id}, "broker": 7, "leader": 7, "msgq_cnt": 0, "msgs": {taken},
                   "acked_msgid": {acknowledged} }}"#
            )
        };
        let partitions = [partition(0, 0, 0), partition(1, 1, 0), partition(2, 9, 9), partition(3, 9, 8)];
        let json = format!(
            r#"{{ "brokers": {{}}, "topics": {{ "orders": {{ "age": 1, "partitions": {{ {} }} }} }} }}"#,
            partitions.join(", ")
        );
        let mut headings = headings(json.as_bytes()).unwrap();
        headings.sort_by_key(|it| it.partition);
        assert_eq!(headings, [heading(1, 7), heading(3, 7)]);
    }

    #[test]
    fn a_leader_that_moves_is_followed_and_one_that_is_never_found_is_a_failure() {
        let mut config = ClientConfig::new();
        config.set("socket.timeout.ms", "3000").set("socket.connection.setup.timeout.ms", "10000");
        let (mut astray, start) = (Astray::new(&config), Instant::now());
        let leader = |_: &str, partition: i32| [Some(1), None, Some(2)][partition as usize];
        let mut at = |seconds: u64, headings: &[Heading]| {
            astray.compare(headings.to_vec(), leader, start + Duration::from_secs(seconds))
        };
        // Right, unknown, wrong.
        let headings = [heading(0, 1), heading(1, 9), heading(2, 1)];
        assert_eq!((at(0, &headings), at(14, &headings)), (None, None));
        let failure = at(15, &headings).expect("it was wrong for longer than a silent broker is waited for");
        assert!(failure.message.contains("partition 2 to broker 1, although broker 2 leads"), "{}", failure.message);
        // It has found its leader, and loses it again later.
        assert_eq!(at(16, &[heading(2, 2)]), None);
        assert_eq!((at(17, &headings), at(31, &headings)), (None, None));
        assert!(at(32, &headings).is_some());
        // Wrong twice, but not in the same way.
        assert_eq!((at(33, &[heading(2, 3)]), at(47, &[heading(2, 3)])), (None, None));
    }
}
