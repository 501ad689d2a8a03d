//! A throw-away Apache Kafka from the jars in the cache: KRaft, one node that is broker and controller, or a cluster of
//! such nodes.

mod node;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::MetadataPartition;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

pub use self::node::Node;
use self::node::{archive_classes, in_parallel, java, succeed};
use super::process::Scratch;
use super::proxy::Proxy;
use super::{PATIENCE, eventually, test_name, within};

/// How a private broker differs from the usual one.
#[derive(Debug, Clone)]
pub struct Options {
    brokers: i32,
    proxied: bool,
    listeners: Vec<String>,
    properties: BTreeMap<String, String>,
    speed: Speed,
}

/// What a broker's JVM is set up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// A quick start and little memory, as tests want it.
    QuickStart,
    /// The settings of Kafka's own start script.
    Production,
}

impl Default for Options {
    fn default() -> Options {
        let (listeners, properties) = (Vec::new(), BTreeMap::new());
        Options { brokers: 1, proxied: false, listeners, properties, speed: Speed::QuickStart }
    }
}

impl Options {
    /// A cluster of this many nodes: topics have a replica on each, and `min.insync.replicas` is a majority.
    pub fn brokers(mut self, brokers: i32) -> Options {
        self.brokers = brokers;
        self
    }

    /// A second plain listener for each node, advertised at a proxy of its own: `Kafka::proxied_brokers`. The harness's
    /// own clients keep to the direct one.
    pub fn proxied(mut self) -> Options {
        self.proxied = true;
        self
    }

    /// With the JVM's settings of Kafka's own start script, for measurements.
    pub fn production(mut self) -> Options {
        self.speed = Speed::Production;
        self
    }

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

    /// Starts every node and waits until all of them answer.
    pub fn start(self) -> Arc<Kafka> {
        Arc::new(Kafka::start_new(&self, &test_name()))
    }
}

/// One broker or a cluster; what is done to it is done to every node.
pub struct Kafka {
    nodes: Vec<Node>,
    /// Ends behind the nodes.
    _alone: Option<Alone>,
}

/// The right to run a cluster: several of them at once would starve everybody else on two cores.
struct Alone;

static CLUSTER_RUNS: Mutex<bool> = Mutex::new(false);
static CLUSTER_ENDED: Condvar = Condvar::new();

impl Alone {
    fn wait() -> Alone {
        let runs = CLUSTER_RUNS.lock().unwrap();
        *CLUSTER_ENDED.wait_while(runs, |runs| *runs).unwrap() = true;
        Alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        *CLUSTER_RUNS.lock().unwrap() = false;
        CLUSTER_ENDED.notify_one();
    }
}

impl Kafka {
    /// The broker that cheap tests of this process share.
    pub fn shared() -> Arc<Kafka> {
        static SHARED: OnceLock<Arc<Kafka>> = OnceLock::new();
        SHARED.get_or_init(|| Arc::new(Kafka::start_new(&Options::default(), "shared"))).clone()
    }

    /// A broker for one test, which may stop, kill or freeze it.
    pub fn private() -> Arc<Kafka> {
        Options::default().start()
    }

    /// The usual settings, to be changed before `start`.
    pub fn options() -> Options {
        Options::default()
    }

    /// One node, counted from 0.
    #[track_caller]
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The plain listeners, for `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        self.list(Node::address)
    }

    /// The listeners behind the proxies, for `kafka.brokers` of a relay.
    #[track_caller]
    pub fn proxied_brokers(&self) -> String {
        self.list(|node| node.proxy().address())
    }

    /// The proxy of each node.
    #[track_caller]
    pub fn proxies(&self) -> Vec<&Proxy> {
        self.nodes.iter().map(Node::proxy).collect()
    }

    /// Other listeners, for `bootstrap.servers`.
    #[track_caller]
    pub fn address(&self, protocol: &str) -> String {
        self.list(|node| node.listener(protocol))
    }

    /// The start of any client's configuration: these brokers, and silence on stderr.
    pub fn client(&self) -> ClientConfig {
        node::client(&self.brokers())
    }

    /// A consumer of no group that reads every partition of a topic from its beginning, with whatever else it needs.
    #[track_caller]
    pub fn consumer_of_all(&self, topic: &str, partitions: i32, properties: &[(&str, &str)]) -> BaseConsumer {
        let mut client = self.client();
        client.set("group.id", "harness").set("enable.auto.commit", "false");
        for (name, value) in properties {
            client.set(*name, *value);
        }
        let consumer: BaseConsumer = client.create().expect("a consumer starts");
        let mut places = TopicPartitionList::new();
        for partition in 0..partitions {
            places.add_partition_offset(topic, partition, Offset::Beginning).expect("the offset is valid");
        }
        consumer.assign(&places).expect("partitions can be assigned");
        consumer
    }

    /// Creates a topic.
    #[track_caller]
    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[]);
    }

    /// Creates a topic with settings such as `max.message.bytes`, and waits until every partition is served and all its
    /// replicas are in sync: a busy broker refuses the first records of a topic that it has just announced.
    #[track_caller]
    pub fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let replicas = i32::try_from(self.node_count()).expect("a cluster is small");
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        topic.config.extend(settings);
        self.create(&topic);
    }

    /// Creates a topic with one partition, led by the node with this index.
    #[track_caller]
    pub fn create_topic_led_by(&self, name: &str, leader: usize) {
        let replicas = self.replicas_from(leader);
        self.create(&NewTopic::new(name, 1, TopicReplication::Variable(&[&replicas])));
    }

    #[track_caller]
    fn create(&self, topic: &NewTopic<'_>) {
        let results = block_on(self.admin().create_topics([topic], &options())).expect("the broker answers");
        assert_eq!(results, [Ok(topic.name.to_string())]);
        self.wait_served(topic.name, topic.num_partitions);
    }

    /// All nodes' ids, the one that Kafka is to prefer first.
    fn replicas_from(&self, leader: usize) -> Vec<i32> {
        (0..self.node_count()).map(|step| self.nodes[(leader + step) % self.node_count()].id()).collect()
    }

    /// Gives a topic more partitions.
    #[track_caller]
    pub fn add_partitions(&self, name: &str, partitions: i32) {
        let more = NewPartitions::new(name, partitions as usize);
        let results = block_on(self.admin().create_partitions([&more], &options())).expect("the broker answers");
        assert_eq!(results, [Ok(name.to_string())]);
        self.wait_served(name, partitions);
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

    /// The index of the node that leads a partition, once one does.
    #[track_caller]
    pub fn leader_of(&self, topic: &str, partition: i32) -> usize {
        let admin = self.admin();
        let led_by = |leader| self.nodes.iter().position(|node| node.id() == leader);
        let leader = within(PATIENCE, || led_by(partition_of(&admin, topic, partition, MetadataPartition::leader)?));
        leader.unwrap_or_else(|| panic!("nobody leads partition {partition} of {topic}"))
    }

    /// Makes another node the leader of a partition, and the one that Kafka prefers; returns its index.
    #[track_caller]
    pub fn move_leader(&self, topic: &str, partition: i32) -> usize {
        let next = (self.leader_of(topic, partition) + 1) % self.node_count();
        let replicas = self.replicas_from(next);
        let scratch = Scratch::new();
        let plan = scratch.path().join("plan.json");
        let moved = format!(r#"{{"topic":"{topic}","partition":{partition},"replicas":{replicas:?}}}"#);
        fs::write(&plan, format!(r#"{{"version":1,"partitions":[{moved}]}}"#)).unwrap();
        let arguments = ["--execute", "--reassignment-json-file", plan.to_str().expect("the path is text")];
        self.tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", &arguments);
        let partition_text = partition.to_string();
        let arguments = ["--election-type", "preferred", "--topic", topic, "--partition", &partition_text];
        self.tool("org.apache.kafka.tools.LeaderElectionCommand", &arguments);
        eventually("the leader has moved", PATIENCE, || self.leader_of(topic, partition) == next);
        next
    }

    /// Runs one of Kafka's own command line tools against these brokers.
    #[track_caller]
    pub fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let brokers = self.brokers();
        succeed(java().arg(class).args(["--bootstrap-server", &brokers]).args(arguments))
    }

    /// What the files of a topic's deleted partitions hold, as Kafka's own tool prints it. They stay for a minute,
    /// beside those of the topic's next life.
    #[track_caller]
    pub fn deleted_records(&self, topic: &str) -> String {
        let directories =
            self.nodes.iter().flat_map(|node| fs::read_dir(node.directory().join("log")).unwrap().flatten());
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let deleted = directories.map(|entry| entry.path()).filter(|path| {
            let name = name(path);
            name.starts_with(&format!("{topic}-")) && name.ends_with("-delete")
        });
        let segments = deleted.flat_map(|path| fs::read_dir(path).unwrap().flatten()).map(|entry| entry.path());
        let logs = segments.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let files: Vec<String> = logs.map(|path| path.display().to_string()).collect();
        let mut dump = java();
        succeed(dump.args(["org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", &files.join(",")]))
    }

    /// Ends every node in good order.
    pub fn stop(&self) {
        in_parallel(&self.nodes, Node::stop);
    }

    /// Ends every node at once.
    pub fn kill(&self) {
        in_parallel(&self.nodes, Node::kill);
    }

    /// Starts every node that does not run: same directories, same ports, same cluster.
    pub fn start(&self) {
        in_parallel(&self.nodes, |node| {
            if !node.is_running() {
                node.start();
            }
        });
    }

    /// Freezes every node.
    pub fn pause(&self) {
        self.nodes.iter().for_each(Node::pause);
    }

    /// Lets frozen nodes go on.
    pub fn resume(&self) {
        self.nodes.iter().for_each(Node::resume);
    }

    fn list(&self, address: impl Fn(&Node) -> String) -> String {
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Waits until every partition of a topic is served and all its replicas are in sync.
    #[track_caller]
    pub fn wait_served(&self, topic: &str, partitions: i32) {
        let admin = self.admin();
        let replicated =
            |partition| partition_of(&admin, topic, partition, |found| found.isr().len()) == Some(self.node_count());
        let served = |partition| admin.inner().fetch_watermarks(topic, partition, Duration::from_secs(1)).is_ok();
        let ready = |partition| replicated(partition) && served(partition);
        eventually(&format!("topic {topic} is served"), PATIENCE, || (0..partitions).all(ready));
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("a client starts")
    }

    fn start_new(options: &Options, owner: &str) -> Kafka {
        archive_classes();
        let alone = (options.brokers > 1).then(Alone::wait);
        let kafka = Kafka { nodes: Node::quorum(options, owner), _alone: alone };
        kafka.start();
        kafka
    }
}

/// What the cluster says about a partition; `None` while it cannot tell.
fn partition_of<T>(
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
    partition: i32,
    fact: impl Fn(&MetadataPartition) -> T,
) -> Option<T> {
    let metadata = admin.inner().fetch_metadata(Some(topic), Duration::from_secs(1)).ok()?;
    metadata.topics().first()?.partitions().iter().find(|found| found.id() == partition).map(fact)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts").block_on(future)
}
