//! Debezium on Kafka Connect with its outbox router: as it comes, tuned for a backlog, and tuned for latency.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::postgres::Database;
use crate::support::process::{Farewell, Process};
use crate::support::{cache_dir, free_port};

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
    /// Starts it in this directory, which its log and offsets stay in.
    pub fn start(&self, tuning: Tuning, directory: &Path) -> Process {
        let home = home();
        let worker = properties(&[
            ("bootstrap.servers", self.brokers),
            ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ("offset.storage.file.filename", &directory.join(format!("{}.offsets", self.slot)).display().to_string()),
            ("plugin.path", &home.join("plugins").display().to_string()),
            ("plugin.discovery", "service_load"),
            ("listeners", &format!("http://127.0.0.1:{}", free_port())),
        ]);
        let (worker_file, connector_file) =
            (directory.join("worker.properties"), directory.join("debezium.properties"));
        fs::write(&worker_file, worker).unwrap();
        fs::write(&connector_file, self.connector(tuning)).unwrap();
        let log = fs::File::create(directory.join("debezium.log")).unwrap();
        let mut java = Command::new("java");
        java.args(match tuning {
            // As Kafka's own start script has it.
            Tuning::Default | Tuning::Latency => {
                ["-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"].as_slice()
            }
            Tuning::Backlog => &["-Xms2g", "-Xmx2g", "-XX:+UseParallelGC"],
        });
        java.arg(format!("-Dlog4j2.configurationFile={}/tests/support/log4j2.xml", env!("CARGO_MANIFEST_DIR")));
        java.arg("-cp").arg(home.join("libs").join("*")).arg("org.apache.kafka.connect.cli.ConnectStandalone");
        java.args([worker_file, connector_file]).stdout(log.try_clone().unwrap()).stderr(log);
        Process::spawn(&mut java, Farewell::Kill)
    }

    /// What it said.
    pub fn log(&self, directory: &Path) -> String {
        fs::read_to_string(directory.join("debezium.log")).unwrap_or_default()
    }

    fn connector(&self, tuning: Tuning) -> String {
        let port = self.database.server().port().to_string();
        let mut text = properties(&[
            ("name", "race"),
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("tasks.max", "1"),
            ("database.hostname", "127.0.0.1"),
            ("database.port", &port),
            ("database.user", "postgres"),
            ("database.password", "unused"),
            ("database.dbname", self.database.name()),
            ("topic.prefix", "race"),
            ("plugin.name", "pgoutput"),
            ("slot.name", self.slot),
            ("publication.name", self.publication),
            ("publication.autocreate.mode", "disabled"),
            ("table.include.list", "public.outbox"),
            ("snapshot.mode", "no_data"),
            ("skipped.operations", "u,d,t"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.table.field.event.key", "aggregate_id"),
            ("transforms.outbox.table.field.event.type", "event_type"),
            ("transforms.outbox.route.by.field", "aggregate_type"),
            ("transforms.outbox.route.topic.replacement", self.topic),
        ]);
        if tuning != Tuning::Default {
            text += &properties(&[
                // What the router does not look at.
                ("column.exclude.list", "public.outbox.created_at,public.outbox.headers"),
                ("header.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ]);
        }
        text += &match tuning {
            Tuning::Default => String::new(),
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
        };
        text
    }
}

/// What `scripts/setup race` fetched.
fn home() -> PathBuf {
    let pom = include_str!("../../scripts/debezium-pom.xml");
    let version = pom.split("debezium.version>").nth(1).expect("the pom names a version").trim_end_matches("</");
    let home = cache_dir().join("debezium").join(version);
    assert!(home.exists(), "Debezium {version} is missing: run scripts/setup race");
    home
}

fn properties(pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(String::new(), |mut text, (name, value)| {
        writeln!(text, "{name}={value}").unwrap();
        text
    })
}
