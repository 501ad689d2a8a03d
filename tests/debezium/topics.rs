//! Every record of every topic of a broker, whatever the topics are called: where an outbox routes to is what is to be found out.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::kafka::Kafka;
use crate::support::reader::Seen;
use crate::support::{PATIENCE, eventually};

/// Reads on from where it was.
pub struct Topics {
    consumer: BaseConsumer,
    assigned: HashSet<(String, i32)>,
    seen: Vec<Seen>,
}

impl Topics {
    pub fn of(kafka: &Kafka) -> Topics {
        let mut client = kafka.client();
        client.set("group.id", "harness").set("enable.auto.commit", "false").set("fetch.wait.max.ms", "20");
        client.set("enable.partition.eof", "false").set("fetch.error.backoff.ms", "50");
        Topics { consumer: client.create().expect("a consumer starts"), assigned: HashSet::new(), seen: Vec::new() }
    }

    /// Takes in new topics, and reads what is there.
    pub fn read(&mut self) -> &[Seen] {
        let metadata = self.consumer.fetch_metadata(None, PATIENCE).expect("the broker answers");
        let mut fresh = TopicPartitionList::new();
        for topic in metadata.topics().iter().filter(|topic| !topic.name().starts_with("__")) {
            for partition in topic.partitions() {
                if self.assigned.insert((topic.name().to_string(), partition.id())) {
                    fresh.add_partition_offset(topic.name(), partition.id(), Offset::Beginning).expect("it is valid");
                }
            }
        }
        self.consumer.incremental_assign(&fresh).expect("partitions can be assigned");
        while let Some(message) = self.consumer.poll(Duration::from_millis(300)) {
            // A topic that was just made has no leader for a moment.
            let Ok(message) = message else { continue };
            self.seen.push(Seen::of(&message));
        }
        &self.seen
    }

    /// Reads until everything was read that the topics hold now.
    #[track_caller]
    pub fn read_to_end(&mut self) -> &[Seen] {
        self.read();
        let end = |(topic, partition): &(String, i32)| {
            let (_, end) = self.consumer.fetch_watermarks(topic, *partition, PATIENCE).expect("the broker answers");
            usize::try_from(end).expect("it is not negative")
        };
        let all: usize = self.assigned.iter().map(end).sum();
        eventually("everything is read", PATIENCE, || self.read().len() >= all);
        &self.seen
    }

    /// The topics that were found.
    pub fn names(&self) -> BTreeSet<&str> {
        self.assigned.iter().map(|(topic, _)| topic.as_str()).collect()
    }

    /// The records of a case: those of topics with its name in theirs, unless another case's longer name is in it too.
    pub fn of_case<'a>(seen: &'a [Seen], case: &str, cases: &[&str]) -> Vec<&'a Seen> {
        let longest =
            |topic: &str| cases.iter().filter(|name| topic.contains(*name)).max_by_key(|name| name.len()).copied();
        let mut found: Vec<&Seen> = seen.iter().filter(|seen| longest(&seen.topic) == Some(case)).collect();
        let id = |seen: &&Seen| seen.headers.iter().find(|(name, _)| name == "id").and_then(|(_, id)| id.clone());
        found.sort_by_key(|seen| (id(seen), seen.topic.clone(), seen.partition, seen.offset));
        found
    }
}
