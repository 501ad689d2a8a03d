//! Whether the producer still knows who leads the partitions that it has records for.
//!
//! librdkafka passes over what the cluster tells of a partition with a lower leader epoch than it has seen before. A topic
//! that was deleted and made again begins at epoch 0: unless it has its former leader by chance, its records are taken to
//! a broker that refuses them, for ever. Where the producer heads comes from its statistics, who leads from the cluster.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::sink::{Failure, Whose};

/// A producer that is well has asked who leads by then: it does so with every refusal.
const ASTRAY: Duration = Duration::from_secs(5);

/// The broker that a partition's records are taken to.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    let has_records = |it: &Partition| it.msgs > it.acked_msgid;
    let of_topic = |(name, topic): (String, Topic)| {
        let partitions = topic.partitions.into_values().filter(has_records);
        partitions.map(move |it| Heading { topic: name.clone(), partition: it.partition, broker: it.broker })
    };
    Ok(statistics.topics.into_iter().flat_map(of_topic).collect())
}

/// Partitions whose records go to a broker that does not lead them, and since when.
#[derive(Debug, Default)]
pub(super) struct Astray {
    since: HashMap<(String, i32), Instant>,
}

impl Astray {
    /// Compares where the producer heads with the leader that the cluster names. What has been wrong for too long is the
    /// failure of a producer that will not find its way.
    pub(super) fn compare(
        &mut self,
        headings: Vec<Heading>,
        leader: impl Fn(&str, i32) -> Option<i32>,
        now: Instant,
    ) -> Option<Failure> {
        let mut known = std::mem::take(&mut self.since);
        let mut failure = None;
        for Heading { topic, partition, broker } in headings {
            let Some(leads) = leader(&topic, partition).filter(|leads| *leads != broker) else { continue };
            let place = (topic, partition);
            let since = known.remove(&place).unwrap_or(now);
            if now.saturating_duration_since(since) >= ASTRAY {
                let message = format!(
                    "the client takes partition {partition} to broker {broker}, although broker {leads} leads it, as \
                     happens when a topic is deleted and made again"
                );
                failure = Some(Failure { whose: Whose::World, topic: place.0.clone(), message });
            }
            self.since.insert(place, since);
        }
        failure
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
            r#"{{ "name": "x", "topics": {{ "orders": {{ "age": 1, "partitions": {{ {} }} }} }} }}"#,
            partitions.join(", ")
        );
        let mut headings = headings(json.as_bytes()).unwrap();
        headings.sort_by_key(|it| it.partition);
        assert_eq!(headings, [heading(1, 7), heading(3, 7)]);
    }

    #[test]
    fn a_leader_that_moves_is_followed_and_one_that_is_never_found_is_a_failure() {
        let (mut astray, start) = (Astray::default(), Instant::now());
        let leader = |_: &str, partition: i32| [Some(1), None, Some(2)][partition as usize];
        let mut at = |seconds: u64, headings: &[Heading]| {
            astray.compare(headings.to_vec(), leader, start + Duration::from_secs(seconds))
        };
        // Right, unknown, wrong.
        let headings = [heading(0, 1), heading(1, 9), heading(2, 1)];
        assert_eq!((at(0, &headings), at(4, &headings)), (None, None));
        let failure = at(5, &headings).expect("it is wrong for five seconds");
        assert!(failure.message.contains("partition 2 to broker 1, although broker 2 leads"), "{}", failure.message);
        // It has found its leader, and loses it again later.
        assert_eq!(at(6, &[heading(2, 2)]), None);
        assert_eq!((at(7, &headings), at(11, &headings)), (None, None));
        assert!(at(12, &headings).is_some());
    }
}
