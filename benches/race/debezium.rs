//! Debezium on Kafka Connect with its outbox router: as it comes, tuned for a backlog, and tuned for latency.

use std::path::Path;

use crate::support::debezium::{JVM, Properties, Source, Worker, properties};
use crate::support::postgres::Database;

/// How it is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tuning {
    /// Only what it must be told.
    Default,
    /// Large batches and queues, few and large requests.
    Backlog,
    /// Nothing waits for company.
    Latency,
}

/// What it reads and where it writes.
pub struct Task<'a> {
    pub database: &'a Database,
    pub brokers: &'a str,
    pub slot: &'a str,
    pub publication: &'a str,
    pub topic: &'a str,
}

impl Task<'_> {
    /// Starts it in a directory of this slot's inside `directory`, which its log and offsets stay in.
    pub fn start(&self, tuning: Tuning, directory: &Path) -> Worker {
        let jvm = match tuning {
            Tuning::Default | Tuning::Latency => JVM.as_slice(),
            Tuning::Backlog => &["-Xms2g", "-Xmx2g", "-XX:+UseParallelGC"],
        };
        let directory = directory.join(self.slot);
        std::fs::create_dir_all(&directory).unwrap();
        Worker::start(self.brokers, &directory, jvm, &[], &[self.connector(tuning)])
    }

    fn connector(&self, tuning: Tuning) -> Properties {
        let Task { database, slot, publication, .. } = *self;
        let mut connector = Source { database, table: "public.outbox", slot, publication }.connector("race");
        connector.extend(properties(&[
            ("skipped.operations", "u,d,t"),
            ("transforms.outbox.table.field.event.key", "aggregate_id"),
            ("transforms.outbox.table.field.event.type", "event_type"),
            ("transforms.outbox.route.by.field", "aggregate_type"),
            ("transforms.outbox.route.topic.replacement", self.topic),
        ]));
        if tuning != Tuning::Default {
            connector.extend(properties(&[
                // What the router does not look at.
                ("column.exclude.list", "public.outbox.created_at,public.outbox.headers"),
                ("header.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ]));
        }
        connector.extend(match tuning {
            Tuning::Default => Properties::new(),
            Tuning::Backlog => properties(&[
                ("extended.headers.enabled", "false"),
                ("max.batch.size", "16384"),
                ("max.queue.size", "65536"),
                ("poll.interval.ms", "10"),
                ("producer.override.acks", "all"),
                ("producer.override.enable.idempotence", "true"),
                ("producer.override.compression.type", "lz4"),
                ("producer.override.max.in.flight.requests.per.connection", "5"),
                ("producer.override.linger.ms", "10"),
                ("producer.override.batch.size", "524288"),
                ("producer.override.buffer.memory", "134217728"),
            ]),
            Tuning::Latency => properties(&[
                ("extended.headers.enabled", "false"),
                ("poll.interval.ms", "1"),
                ("producer.override.acks", "all"),
                ("producer.override.enable.idempotence", "true"),
                ("producer.override.max.in.flight.requests.per.connection", "5"),
                ("producer.override.linger.ms", "1"),
            ]),
        });
        connector
    }
}
