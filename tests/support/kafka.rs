//! A throw-away Apache Kafka broker: KRaft, one node that is broker and controller, from the jars in the cache.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::types::RDKafkaErrorCode;
use rustix::process::Signal;

use super::process::{Farewell, Log, Process, Scratch};
use super::{PATIENCE, cache_dir, free_port, log_path, test_name, unique_name, within};

/// How a private broker differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    listeners: Vec<String>,
    properties: BTreeMap<String, String>,
}

impl Options {
    /// A line of `server.properties`, over the usual one.
    pub fn property(mut self, name: &str, value: &str) -> Options {
        self.properties.insert(name.to_string(), value.to_string());
        self
    }

    /// One more listener, of this protocol (`SASL_PLAINTEXT`, `SSL`, …), at `Kafka::address(protocol)`.
    pub fn listener(mut self, protocol: &str) -> Options {
        self.listeners.push(protocol.to_string());
        self
    }

    /// A `SASL_PLAINTEXT` listener that knows these users and passwords and gives them no rights. The plain listener
    /// may do everything; rights are given with `Kafka::allow`.
    pub fn sasl(self, users: &[(&str, &str)]) -> Options {
        let users: String = users.iter().map(|(name, password)| format!(" user_{name}=\"{password}\"")).collect();
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        self.listener("SASL_PLAINTEXT")
            .property("sasl.enabled.mechanisms", "PLAIN")
            .property("listener.name.sasl_plaintext.plain.sasl.jaas.config", &format!("{module}{users};"))
            .property("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
            .property("super.users", "User:ANONYMOUS")
    }

    /// Starts the broker and waits until it answers.
    pub fn start(self) -> Arc<Kafka> {
        Arc::new(Kafka::start_new(self, log_path(&test_name(), "kafka")))
    }
}

/// A running (or stopped) broker with its own directory and ports. It ends when dropped.
pub struct Kafka {
    process: Mutex<Option<Process>>,
    port: u16,
    listeners: BTreeMap<String, u16>,
    cluster: String,
    log: Log,
    scratch: Scratch,
}

impl Kafka {
    /// The broker that cheap tests of this process share.
    pub fn shared() -> Arc<Kafka> {
        static SHARED: OnceLock<Arc<Kafka>> = OnceLock::new();
        let start = || Arc::new(Kafka::start_new(Options::default(), log_path("shared", "kafka")));
        SHARED.get_or_init(start).clone()
    }

    /// A broker for one test, which may stop, kill or freeze it.
    pub fn private() -> Arc<Kafka> {
        Options::default().start()
    }

    /// The usual settings, to be changed before `start`.
    pub fn options() -> Options {
        Options::default()
    }

    /// The plain listener, for `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Another listener, for `bootstrap.servers`.
    #[track_caller]
    pub fn address(&self, protocol: &str) -> String {
        format!("127.0.0.1:{}", self.listeners[protocol])
    }

    /// The start of any client's configuration: this broker, and silence on stderr.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.brokers()).set("reconnect.backoff.max.ms", "500");
        config.set_log_level(RDKafkaLogLevel::Emerg);
        config
    }

    /// Creates a topic.
    #[track_caller]
    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[]);
    }

    /// Creates a topic with settings such as `max.message.bytes`.
    #[track_caller]
    pub fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        topic.config.extend(settings);
        let results = block_on(self.admin().create_topics([&topic], &options())).expect("the broker answers");
        assert_eq!(results, [Ok(name.to_string())]);
    }

    /// Deletes a topic, and waits until it is gone.
    #[track_caller]
    pub fn delete_topic(&self, name: &str) {
        let admin = self.admin();
        let results = block_on(admin.delete_topics(&[name], &options())).expect("the broker answers");
        assert_eq!(results, [Ok(name.to_string())]);
        let gone = within(PATIENCE, || {
            let metadata = admin.inner().fetch_metadata(Some(name), PATIENCE).ok()?;
            metadata.topics().iter().all(|topic| topic.error().is_some()).then_some(())
        });
        assert!(gone.is_some(), "topic {name} is still there");
    }

    /// Changes the settings of a topic. Settings not named go back to their defaults.
    #[track_caller]
    pub fn alter_topic(&self, name: &str, settings: &[(&str, &str)]) {
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(name));
        change.entries.extend(settings.iter().copied());
        let results = block_on(self.admin().alter_configs([&change], &options())).expect("the broker answers");
        let refused: Vec<&RDKafkaErrorCode> =
            results.iter().filter_map(|result| result.as_ref().err()).map(|(_, code)| code).collect();
        assert!(refused.is_empty(), "topic {name}: {refused:?}");
    }

    /// Gives a SASL user rights: `allow("relay", "Write", &["--topic", "orders"])`.
    #[track_caller]
    pub fn allow(&self, user: &str, operation: &str, resource: &[&str]) {
        let principal = format!("User:{user}");
        let mut arguments = vec!["--add", "--allow-principal", &principal, "--operation", operation];
        arguments.extend(resource);
        self.tool("org.apache.kafka.tools.AclCommand", &arguments);
    }

    /// Runs one of Kafka's own command line tools against this broker.
    #[track_caller]
    pub fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let brokers = self.brokers();
        succeed(java().arg(class).args(["--bootstrap-server", &brokers]).args(arguments))
    }

    /// Ends the broker in good order.
    pub fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// Ends the broker at once.
    pub fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Starts the stopped broker again: same directory, same ports, same cluster.
    pub fn start(&self) {
        self.start_with(java());
    }

    /// Freezes the broker.
    pub fn pause(&self) {
        self.process.lock().unwrap().as_mut().expect("the broker runs").signal(Signal::STOP);
    }

    /// Lets a frozen broker go on.
    pub fn resume(&self) {
        self.process.lock().unwrap().as_mut().expect("the broker runs").signal(Signal::CONT);
    }

    /// The broker's process id.
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().as_ref().expect("the broker runs").id()
    }

    /// What the broker logged so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// The broker's own directory.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
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
        let cluster = within(PATIENCE, || self.admin().inner().fetch_cluster_id(Duration::from_secs(1)));
        assert_eq!(cluster.as_deref(), Some(self.cluster.as_str()), "another broker answers at {}", self.brokers());
        *self.process.lock().unwrap() = Some(process);
    }

    fn end(&self, signal: Signal) {
        let mut process = self.process.lock().unwrap();
        let mut ending = process.take().expect("the broker runs");
        ending.signal(signal);
        assert!(ending.wait(PATIENCE).is_some(), "Kafka did not stop");
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("a client starts")
    }

    fn start_new(options: Options, log: PathBuf) -> Kafka {
        // 22 characters of base64 are a UUID for Kafka; of the last one only two bits count.
        let cluster: String = (0..21).map(|_| fastrand::alphanumeric()).chain(['A']).collect();
        let listeners = options.listeners.iter().map(|protocol| (protocol.clone(), free_port())).collect();
        let (scratch, port, process) = (Scratch::new(), free_port(), Mutex::new(None));
        let kafka = Kafka { process, port, listeners, cluster, log: Log::create(log), scratch };
        let properties = kafka.scratch.path().join("server.properties");
        fs::write(&properties, kafka.properties(&options)).unwrap();
        let id = kafka.cluster.as_str();
        succeed(java().args(["kafka.tools.StorageTool", "format", "-t", id, "-c"]).arg(properties));
        kafka.archive_classes();
        kafka.start();
        kafka
    }

    /// From an archive of its loaded classes Kafka starts in half the time; the first broker on a machine writes it.
    fn archive_classes(&self) {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        let archive = class_archive();
        if archive.exists() {
            return;
        }
        let (written, staged) = (self.scratch.path().join("classes"), archive.with_extension(unique_name()));
        self.start_with(java_with(&format!("-XX:ArchiveClassesAtExit={}", written.display())));
        self.stop();
        fs::create_dir_all(archive.parent().expect("it has one")).unwrap();
        fs::copy(&written, &staged).and_then(|_| fs::rename(&staged, &archive)).unwrap();
    }

    fn properties(&self, options: &Options) -> String {
        let controller = free_port();
        let mut listeners = format!("PLAINTEXT://{}", self.brokers());
        for (protocol, port) in &self.listeners {
            listeners.push_str(&format!(",{protocol}://127.0.0.1:{port}"));
        }
        let protocols = ["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"].map(|name| format!("{name}:{name}"));
        let own = [
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            ("controller.quorum.voters", &format!("1@127.0.0.1:{controller}")),
            ("controller.listener.names", "CONTROLLER"),
            ("listeners", &format!("{listeners},CONTROLLER://127.0.0.1:{controller}")),
            ("advertised.listeners", &listeners),
            ("listener.security.protocol.map", &format!("CONTROLLER:PLAINTEXT,{}", protocols.join(","))),
            ("log.dirs", &self.scratch.path().join("log").display().to_string()),
            ("auto.create.topics.enable", "false"),
            ("group.initial.rebalance.delay.ms", "0"),
        ];
        let mut properties: BTreeMap<String, String> =
            own.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        for topic in ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"] {
            for name in ["replication.factor", "num.partitions", "min.isr"] {
                properties.insert(format!("{topic}.{name}"), "1".to_string());
            }
        }
        properties.extend(options.properties.clone());
        properties.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }
}

/// A JVM with Kafka's jars, small and quick to start.
fn java() -> Command {
    // Without the archive, or with one of another JVM, it starts all the same.
    java_with(&format!("-XX:SharedArchiveFile={}", class_archive().display()))
}

fn java_with(option: &str) -> Command {
    let libs = cache_dir().join("kafka").join(version()).join("libs");
    assert!(libs.exists(), "Apache Kafka {} is missing: run scripts/setup test", version());
    let mut command = Command::new("java");
    command.args(["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", option]);
    command.arg(format!("-Dlog4j2.configurationFile={}/tests/support/log4j2.xml", env!("CARGO_MANIFEST_DIR")));
    command.arg("-cp").arg(libs.join("*"));
    command
}

fn class_archive() -> PathBuf {
    cache_dir().join(format!("template/kafka-{}.jsa", version()))
}

fn version() -> &'static str {
    let version = include_str!("../../scripts/kafka-pom.xml").split("kafka.version>").nth(1);
    version.expect("the pom names a version").trim_end_matches("</")
}

fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("java starts");
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}: {stdout}{}", String::from_utf8_lossy(&stderr));
    stdout
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts").block_on(future)
}
