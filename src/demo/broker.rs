//! The embedded broker: librdkafka's own mock, which speaks Kafka's protocol on a loopback port of this process.
//!
//! Any client can connect. It keeps the newest events only and promises nothing; it is here to be looked at.

use std::fmt;

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::error::{Error, Result};

const PARTITIONS: i32 = 3;

/// The broker and its one topic.
pub(super) struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
    topic: String,
}

/// A consumer at the topic's beginning.
pub(super) struct Reader(StreamConsumer);

/// An event as a consumer sees it.
pub(super) struct Arrival<'a>(BorrowedMessage<'a>);

impl Broker {
    pub(super) fn start(topic: &str) -> Result<Broker> {
        let cluster = MockCluster::new(1).map_err(failed)?;
        cluster.create_topic(topic, PARTITIONS, 1).map_err(failed)?;
        Ok(Broker { cluster, topic: topic.to_owned() })
    }

    pub(super) fn address(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn reader(&self) -> Result<Reader> {
        let consumer: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.address())
            .set("group.id", "outboxd-demo")
            .set("enable.auto.commit", "false")
            .create()
            .map_err(failed)?;
        let mut partitions = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            partitions.add_partition_offset(&self.topic, partition, Offset::Beginning).map_err(failed)?;
        }
        consumer.assign(&partitions).map_err(failed)?;
        Ok(Reader(consumer))
    }
}

impl Reader {
    /// The next event, whenever it comes.
    pub(super) async fn next(&self) -> Result<Arrival<'_>> {
        self.0.recv().await.map(Arrival).map_err(failed)
    }
}

impl fmt::Display for Arrival<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let message = &self.0;
        writeln!(f, "  partition {}, offset {}", message.partition(), message.offset())?;
        writeln!(f, "    key      {}", text(message.key()))?;
        write!(f, "    headers ")?;
        for header in message.headers().into_iter().flat_map(|headers| headers.iter()) {
            write!(f, " {}={}", header.key, text(header.value))?;
        }
        write!(f, "\n    value    {}", text(message.payload()))
    }
}

fn failed(error: KafkaError) -> Error {
    Error::definite("the embedded broker failed").because(error)
}
