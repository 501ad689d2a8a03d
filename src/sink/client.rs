//! How every client of ours begins: the brokers and properties as typed.

use rdkafka::ClientConfig;

use crate::config::Kafka;

/// The client's configuration as typed: brokers and properties. Every client of ours starts from it.
pub fn client_config(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &kafka.brokers).set("client.id", "outboxd");
    for (name, value) in &kafka.properties {
        config.set(name, value.reveal());
    }
    config
}
