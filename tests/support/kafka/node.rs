//! One node of a throw-away Apache Kafka, broker and controller at once: its directory, ports, log and process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rustix::process::Signal;

use super::super::process::{Farewell, Log, Process, Scratch};
use super::super::proxy::Proxy;
use super::super::{PATIENCE, cache_dir, free_port, log_path, unique_name, within};
use super::{Options, Speed};

/// A running (or stopped) node with its own directory and ports. It ends when dropped.
pub struct Node {
    id: i32,
    process: Mutex<Option<Process>>,
    port: u16,
    controller: u16,
    listeners: BTreeMap<String, u16>,
    /// With the port of the listener behind it.
    proxy: Option<(Proxy, u16)>,
    cluster: String,
    speed: Speed,
    log: Log,
    scratch: Scratch,
}

impl Node {
    /// Makes the nodes of one cluster, formatted and not started; their logs are named after the owner.
    pub(super) fn quorum(options: &Options, owner: &str) -> Vec<Node> {
        // 22 characters of base64 are a UUID for Kafka; of the last one only two bits count.
        let cluster: String = (0..21).map(|_| fastrand::alphanumeric()).chain(['A']).collect();
        let node = |id| Node {
            id,
            process: Mutex::new(None),
            port: free_port(),
            controller: free_port(),
            listeners: options.listeners.iter().map(|protocol| (protocol.clone(), free_port())).collect(),
            proxy: options.proxied.then(free_port).map(|port| (Proxy::start(port), port)),
            cluster: cluster.clone(),
            speed: options.speed,
            log: Log::create(log_path(owner, &format!("kafka-{id}"))),
            scratch: Scratch::new(),
        };
        let nodes: Vec<Node> = (1..=options.brokers).map(node).collect();
        let voters: Vec<String> =
            nodes.iter().map(|node| format!("{}@127.0.0.1:{}", node.id, node.controller)).collect();
        in_parallel(&nodes, |node| node.format(options, &voters));
        nodes
    }

    /// Its `node.id`, which counts from 1.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The plain listener.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Another listener.
    #[track_caller]
    pub fn listener(&self, protocol: &str) -> String {
        format!("127.0.0.1:{}", self.listeners[protocol])
    }

    /// The proxy before it, if it was asked for.
    #[track_caller]
    pub fn proxy(&self) -> &Proxy {
        &self.proxy.as_ref().expect("it was started with a proxy").0
    }

    /// Ends it in good order.
    pub fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Starts it again: same directory, same ports, same cluster. In a cluster it answers once a majority is up.
    pub fn start(&self) {
        self.start_with(match self.speed {
            Speed::QuickStart => java(),
            Speed::Production => java_with(&["-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]),
        });
    }

    /// Freezes it.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// True from its start to its end; a frozen node counts as running.
    pub fn is_running(&self) -> bool {
        self.process.lock().unwrap().is_some()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().as_ref().expect("the broker runs").id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Its own directory.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn signal(&self, signal: Signal) {
        self.process.lock().unwrap().as_mut().expect("the broker runs").signal(signal);
    }

    fn end(&self, signal: Signal) {
        let mut ending = self.process.lock().unwrap().take().expect("the broker runs");
        ending.signal(signal);
        assert!(ending.wait(PATIENCE).is_some(), "Kafka did not stop: {}", self.log());
    }

    fn start_with(&self, mut command: Command) {
        command.arg("kafka.Kafka").arg(self.scratch.path().join("server.properties"));
        command.stdout(self.log.writer()).stderr(self.log.writer());
        let said_before = self.log().matches("Kafka Server started").count();
        let mut process = Process::spawn(&mut command, Farewell::Kill);
        let answered = within(PATIENCE, || match process.exited() {
            Some(_) => Some(false),
            None => (self.log().matches("Kafka Server started").count() > said_before).then_some(true),
        });
        assert_eq!(answered, Some(true), "Kafka does not start: {}", self.log());
        // A broker of somebody else on our port would answer with another cluster's id.
        // A client asks once, when it connects, and a node may answer before it knows: ask with a new one each time.
        let cluster = within(PATIENCE, || {
            let asking: BaseConsumer = client(&self.address()).create().expect("a client starts");
            asking.client().fetch_cluster_id(Duration::from_secs(1))
        });
        assert_eq!(cluster.as_deref(), Some(self.cluster.as_str()), "another broker answers at {}", self.address());
        *self.process.lock().unwrap() = Some(process);
    }

    fn format(&self, options: &Options, voters: &[String]) {
        let properties = self.scratch.path().join("server.properties");
        fs::write(&properties, self.properties(options, voters)).unwrap();
        succeed(java().args(["kafka.tools.StorageTool", "format", "-t", &self.cluster, "-c"]).arg(properties));
    }

    fn properties(&self, options: &Options, voters: &[String]) -> String {
        let mut listeners = format!("PLAINTEXT://{}", self.address());
        for (protocol, port) in &self.listeners {
            listeners.push_str(&format!(",{protocol}://127.0.0.1:{port}"));
        }
        let mut advertised = listeners.clone();
        if let Some((proxy, port)) = &self.proxy {
            listeners.push_str(&format!(",PROXIED://127.0.0.1:{port}"));
            advertised.push_str(&format!(",PROXIED://{}", proxy.address()));
        }
        let protocols = ["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"].map(|name| format!("{name}:{name}"));
        let own = [
            ("process.roles", "broker,controller"),
            ("node.id", &self.id.to_string()),
            ("controller.quorum.voters", &voters.join(",")),
            ("controller.listener.names", "CONTROLLER"),
            ("listeners", &format!("{listeners},CONTROLLER://127.0.0.1:{}", self.controller)),
            ("advertised.listeners", &advertised),
            (
                "listener.security.protocol.map",
                &format!("CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT,{}", protocols.join(",")),
            ),
            ("log.dirs", &self.scratch.path().join("log").display().to_string()),
            ("auto.create.topics.enable", "false"),
            ("group.initial.rebalance.delay.ms", "0"),
        ];
        let cluster: &[(&str, &str)] = if voters.len() > 1 { &CLUSTER } else { &[] };
        let (replicas, in_sync) = (voters.len().to_string(), (voters.len() / 2 + 1).to_string());
        let mut properties: BTreeMap<String, String> =
            own.iter().chain(cluster).map(|(name, value)| (name.to_string(), value.to_string())).collect();
        for topic in ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"] {
            properties.insert(format!("{topic}.num.partitions"), "1".to_string());
            properties.insert(format!("{topic}.replication.factor"), replicas.clone());
            properties.insert(format!("{topic}.min.isr"), in_sync.clone());
        }
        properties.insert("default.replication.factor".to_string(), replicas);
        properties.insert("min.insync.replicas".to_string(), in_sync);
        properties.extend(options.properties.clone());
        properties.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }
}

/// Tests wait for the cluster to notice: that a broker is gone, that one lags, that leaders are not where they belong. And only
/// the time of a record's append tells when it was there, whoever leads.
const CLUSTER: [(&str, &str); 7] = [
    ("log.message.timestamp.type", "LogAppendTime"),
    ("broker.session.timeout.ms", "3000"),
    ("broker.heartbeat.interval.ms", "500"),
    ("replica.lag.time.max.ms", "5000"),
    ("auto.leader.rebalance.enable", "true"),
    ("leader.imbalance.check.interval.seconds", "5"),
    ("unclean.leader.election.enable", "false"),
];

/// From an archive of its loaded classes Kafka starts in half the time; the first use on a machine writes it.
pub(super) fn archive_classes() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let archive = class_archive();
    if archive.exists() {
        return;
    }
    let node = Node::quorum(&Options::default(), "archive").remove(0);
    let (written, staged) = (node.directory().join("classes"), archive.with_extension(unique_name()));
    node.start_with(quick_java(&format!("-XX:ArchiveClassesAtExit={}", written.display())));
    node.stop();
    fs::create_dir_all(archive.parent().expect("it has one")).unwrap();
    fs::copy(&written, &staged).and_then(|_| fs::rename(&staged, &archive)).unwrap();
}

/// Does something with every node at once: a majority must be up before the first one answers.
pub(super) fn in_parallel(nodes: &[Node], work: impl Fn(&Node) + Sync) {
    std::thread::scope(|scope| {
        for node in nodes {
            scope.spawn(|| work(node));
        }
    });
}

/// The start of any client's configuration: these brokers, and silence on stderr.
pub(super) fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("reconnect.backoff.max.ms", "500");
    config.set_log_level(RDKafkaLogLevel::Emerg);
    config
}

/// A JVM with Kafka's jars, small and quick to start.
pub(super) fn java() -> Command {
    // Without the archive, or with one of another JVM, it starts all the same.
    quick_java(&format!("-XX:SharedArchiveFile={}", class_archive().display()))
}

fn quick_java(option: &str) -> Command {
    java_with(&["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", option])
}

fn java_with(options: &[&str]) -> Command {
    let libs = cache_dir().join("kafka").join(version()).join("libs");
    assert!(libs.exists(), "Apache Kafka {} is missing: run scripts/setup test", version());
    let mut command = Command::new("java");
    command.args(options);
    command.arg(format!("-Dlog4j2.configurationFile={}/tests/support/log4j2.xml", env!("CARGO_MANIFEST_DIR")));
    command.arg("-cp").arg(libs.join("*"));
    command
}

fn class_archive() -> PathBuf {
    cache_dir().join(format!("template/kafka-{}.jsa", version()))
}

fn version() -> &'static str {
    let version = include_str!("../../../scripts/kafka-pom.xml").split("kafka.version>").nth(1);
    version.expect("the pom names a version").trim_end_matches("</")
}

pub(super) fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("java starts");
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}: {stdout}{}", String::from_utf8_lossy(&stderr));
    stdout
}
