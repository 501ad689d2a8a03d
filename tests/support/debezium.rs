//! The real Debezium: Kafka Connect's standalone worker with the PostgreSQL connector and the outbox router in it, as
//! `scripts/setup race` has fetched them. What a connector is told enters, a process leaves, and what Connect says about it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::postgres::Database;
use super::process::{Farewell, Process};
use super::{PATIENCE, cache_dir, free_port, within};

/// Until a JVM with Connect and Debezium answers, on two busy cores.
pub const STARTED: Duration = Duration::from_secs(120);

/// As Kafka's own start script has it.
pub const JVM: [&str; 4] = ["-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"];

/// The options of a worker or of a connector, by name.
pub type Properties = BTreeMap<String, String>;

/// Options from pairs.
pub fn properties(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// What a connector reads.
pub struct Source<'a> {
    /// Where the outbox is.
    pub database: &'a Database,
    /// `schema.table`.
    pub table: &'a str,
    /// The replication slot; without one of that name, Debezium makes it.
    pub slot: &'a str,
    /// The publication, which is there already.
    pub publication: &'a str,
}

impl Source<'_> {
    /// A connector with the outbox router at this slot: only what it must be told. `name` is also its `topic.prefix`.
    pub fn connector(&self, name: &str) -> Properties {
        properties(&[
            ("name", name),
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("tasks.max", "1"),
            ("database.hostname", "127.0.0.1"),
            ("database.port", &self.database.server().port().to_string()),
            ("database.user", "postgres"),
            ("database.password", "unused"),
            ("database.dbname", self.database.name()),
            ("topic.prefix", name),
            ("plugin.name", "pgoutput"),
            ("slot.name", self.slot),
            ("publication.name", self.publication),
            ("publication.autocreate.mode", "disabled"),
            ("table.include.list", self.table),
            ("snapshot.mode", "no_data"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ])
    }
}

/// A running worker. It is killed when dropped; its log and its offsets stay in the directory it was started in.
pub struct Worker {
    process: Process,
    rest: u16,
    log: PathBuf,
}

/// What Connect says about a connector and its one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not yet, or no more.
    Unknown,
    /// As far as Connect can tell.
    Running,
    /// With the trace of its exception.
    Failed(String),
}

impl Worker {
    /// Starts a worker with these connectors, without waiting for anything. `more` is said to the worker itself.
    pub fn start(
        brokers: &str,
        directory: &Path,
        jvm: &[&str],
        more: &[(&str, &str)],
        connectors: &[Properties],
    ) -> Worker {
        let (home, rest, log) = (home(), free_port(), directory.join("debezium.log"));
        let mut worker = properties(&[
            ("bootstrap.servers", brokers),
            ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
            ("offset.storage.file.filename", &directory.join("offsets").display().to_string()),
            ("plugin.path", &home.join("plugins").display().to_string()),
            ("plugin.discovery", "service_load"),
            ("listeners", &format!("http://127.0.0.1:{rest}")),
        ]);
        worker.extend(properties(more));
        let mut java = Command::new("java");
        java.args(jvm);
        java.arg(format!("-Dlog4j2.configurationFile={}/tests/support/log4j2.xml", env!("CARGO_MANIFEST_DIR")));
        java.arg("-cp").arg(home.join("libs").join("*")).arg("org.apache.kafka.connect.cli.ConnectStandalone");
        java.arg(write(directory.join("worker.properties"), &worker));
        for connector in connectors {
            java.arg(write(directory.join(format!("{}.properties", connector["name"])), connector));
        }
        let output = fs::File::create(&log).unwrap();
        java.stdout(output.try_clone().unwrap()).stderr(output);
        Worker { process: Process::spawn(&mut java, Farewell::Kill), rest, log }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// True when it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.exited().is_some()
    }

    /// What it said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it takes orders.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        let ready = within(STARTED, || match self.has_ended() {
            true => Some(false),
            false => self.request("GET", "/connectors", "").is_some_and(|(status, _)| status == 200).then_some(true),
        });
        assert_eq!(ready, Some(true), "Kafka Connect does not start: {}", self.log());
    }

    /// Starts a connector in the running worker, or says why Connect would not have it.
    #[track_caller]
    pub fn add(&self, connector: &Properties) -> Result<(), String> {
        let body = serde_json::to_string(connector).unwrap();
        let (status, answer) = self
            .request("PUT", &format!("/connectors/{}/config", connector["name"]), &body)
            .unwrap_or_else(|| panic!("Kafka Connect does not answer: {}", self.log()));
        if (200..300).contains(&status) { Ok(()) } else { Err(answer) }
    }

    /// Ends a connector.
    pub fn remove(&self, name: &str) {
        self.request("DELETE", &format!("/connectors/{name}"), "");
    }

    /// How a connector fares.
    pub fn state(&self, name: &str) -> State {
        let answer = self.request("GET", &format!("/connectors/{name}/status"), "");
        let Some((200, body)) = answer else { return State::Unknown };
        let status: Value = serde_json::from_str(&body).expect("Connect speaks JSON");
        for part in [&status["tasks"][0], &status["connector"]] {
            match part["state"].as_str() {
                Some("FAILED") => return State::Failed(part["trace"].as_str().unwrap_or_default().to_string()),
                Some(_) => return State::Running,
                None => {}
            }
        }
        State::Unknown
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) {
        self.process.signal(Signal::TERM);
        assert!(self.process.wait(PATIENCE * 2).is_some(), "Kafka Connect does not end: {}", self.log());
    }

    /// Status and body of an answer; `None` while nobody answers.
    fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.rest)).ok()?;
        stream.set_read_timeout(Some(STARTED)).unwrap();
        // HTTP/1.0: the body ends with the connection, whatever its length.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split_whitespace().nth(1)?.parse().ok()?, body.to_string()))
    }
}

/// Debezium's version.
pub fn version() -> &'static str {
    named("debezium.version")
}

/// The version of Kafka Connect that it runs on.
pub fn connect_version() -> &'static str {
    named("kafka.version")
}

fn named(property: &str) -> &'static str {
    let pom = include_str!("../../scripts/debezium-pom.xml");
    let value = pom.split(&format!("<{property}>")).nth(1).expect("the pom names a version");
    value.split('<').next().expect("it ends")
}

/// What `scripts/setup race` fetched.
fn home() -> PathBuf {
    let home = cache_dir().join("debezium").join(version());
    assert!(home.exists(), "Debezium {} is missing: run scripts/setup race", version());
    home
}

/// A file as `java.util.Properties` reads it.
fn write(path: PathBuf, properties: &Properties) -> PathBuf {
    let line = |(name, value): (&String, &String)| format!("{name}={}\n", value.replace('\\', "\\\\"));
    fs::write(&path, properties.iter().map(line).collect::<String>()).unwrap();
    path
}
