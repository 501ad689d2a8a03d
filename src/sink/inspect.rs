//! What `outboxd check` asks Kafka: a configuration and topic names enter, plain structs leave, nothing is judged here.
//!
//! Nothing is published and no topic is created. What a right hides is `None`. Every wait is bounded by the caller's
//! timeout, also when no broker answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::{FromClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::metadata::Metadata;
use rdkafka::producer::{Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, Statistics};

use super::client_config;
use super::describe::{Description, Replicas, describe_topics};
use crate::config::Kafka;

/// Everything the cluster said.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Whether any broker talked to us, and if not, why.
    pub reach: Reach,
    /// The cluster's brokers, at the addresses they advertise.
    pub brokers: Vec<Broker>,
    /// Whether an idempotent producer got its id.
    pub producer_id: ProducerId,
    /// What was asked for, in that order.
    pub topics: Vec<Topic>,
}

/// How far the connection came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// A broker answered a request.
    Reached,
    /// librdkafka refuses the configuration itself.
    Misconfigured(String),
    /// No broker answered; the complaints of librdkafka, each once.
    Unreached(Vec<Complaint>),
    /// Nobody asked.
    #[default]
    Unasked,
}

/// One error that librdkafka reported on the way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// Where it happened.
    pub step: Step,
    /// librdkafka's words.
    pub text: String,
}

/// The steps to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Step {
    Dns,
    Tcp,
    Tls,
    Login,
    Other,
}

/// One broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: i32,
    /// `host:port` as advertised.
    pub address: String,
    /// It answered at that address.
    pub answered: bool,
}

/// The right to produce idempotently, as `InitProducerId` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProducerId {
    /// The cluster gave an id: IDEMPOTENT_WRITE on the cluster, or (Kafka 2.8 and later) WRITE on some topic.
    Granted,
    /// It refused.
    Refused(String),
    /// No answer in time.
    #[default]
    Unknown,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Whether it is there for us.
    pub state: TopicState,
    /// WRITE is allowed to us, in the broker's own words; `None` when it does not tell.
    pub may_write: Option<bool>,
    /// The topic's configuration; `None` when we may not read it.
    pub config: Option<BTreeMap<String, String>>,
}

/// Whether a topic is there for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicState {
    /// It exists.
    Present {
        /// How many partitions it has.
        partitions: usize,
        /// The fewest replicas of any of them.
        replicas: usize,
        /// The fewest in-sync replicas of any of them.
        in_sync: usize,
    },
    /// There is none of this name, or the cluster will not say so to us.
    Missing,
    /// We may not even DESCRIBE it, and so not WRITE either.
    Forbidden,
    /// Anything else.
    Failed(String),
}

/// Asks everything; what does not answer within `timeout` is reported as not answering.
pub async fn inspect(kafka: &Kafka, topics: &BTreeSet<String>, timeout: Duration) -> Facts {
    let config = client_config(kafka);
    let names: Vec<String> = topics.iter().cloned().collect();
    // librdkafka's calls block their thread.
    let asked = tokio::task::spawn_blocking({
        let config = config.clone();
        move || ask(config, &names, timeout)
    });
    let mut facts = match asked.await {
        Ok(facts) => facts,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    if facts.reach == Reach::Reached {
        configs(&config, &mut facts, timeout).await;
    }
    facts
}

fn ask(mut config: ClientConfig, topics: &[String], timeout: Duration) -> Facts {
    let deadline = Instant::now() + timeout;
    config.set("enable.idempotence", "true").set("statistics.interval.ms", "100");
    let watch = Watch::default();
    let heard = Arc::clone(&watch.0);
    let producer = match ThreadedProducer::<Watch>::from_config_and_context(&config, watch) {
        Ok(producer) => producer,
        Err(error) => return Facts { reach: Reach::Misconfigured(reason(&error)), ..Facts::default() },
    };
    let Some(metadata) = await_metadata(&producer, &heard, deadline) else {
        let complaints = lock(&heard).complaints.iter().cloned().collect();
        return Facts { reach: Reach::Unreached(complaints), ..Facts::default() };
    };
    let brokers = metadata.brokers().iter().map(|broker| Broker {
        id: broker.id(),
        address: format!("{}:{}", broker.host(), broker.port()),
        answered: false,
    });
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let topics = match names.is_empty() {
        true => Vec::new(),
        false => match describe_topics(producer.client(), &names, timeout) {
            Ok(descriptions) => descriptions.into_iter().map(topic).collect(),
            // Not every cluster has a controller to ask; which topics there are is known already.
            Err(_) => names.iter().map(|name| listed(name, &metadata)).collect(),
        },
    };
    Facts {
        reach: Reach::Reached,
        brokers: brokers.collect(),
        producer_id: await_producer_id(&heard, deadline),
        topics,
    }
}

/// Waits for the first answer of any broker; a refused login ends the wait, because it will be refused again.
fn await_metadata(producer: &ThreadedProducer<Watch>, heard: &Mutex<Heard>, deadline: Instant) -> Option<Metadata> {
    let mut patience = Duration::from_secs(1);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Ok(metadata) = producer.client().fetch_metadata(None, patience.min(left)) {
            return Some(metadata);
        }
        let refused = lock(heard).complaints.iter().any(|complaint| complaint.step == Step::Login);
        if refused || Instant::now() >= deadline {
            return None;
        }
        patience = (patience * 2).min(Duration::from_secs(60));
        // Without any broker the answer is an error at once.
        std::thread::sleep(Duration::from_millis(50).min(left));
    }
}

fn await_producer_id(heard: &Mutex<Heard>, deadline: Instant) -> ProducerId {
    loop {
        let seen = lock(heard).producer_id.clone();
        if seen != ProducerId::Unknown || Instant::now() >= deadline {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads the topics' configurations, and asks each broker something at its advertised address.
async fn configs(config: &ClientConfig, facts: &mut Facts, timeout: Duration) {
    let Ok(admin) = AdminClient::<DefaultClientContext>::from_config(config) else { return };
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let topics: Vec<ResourceSpecifier<'_>> =
        facts.topics.iter().map(|topic| ResourceSpecifier::Topic(&topic.name)).collect();
    let answers = match topics.is_empty() {
        true => Vec::new(),
        false => admin.describe_configs(&topics, &options).await.unwrap_or_default(),
    };
    let mut read: BTreeMap<String, BTreeMap<String, String>> =
        answers.into_iter().filter_map(|answer| answer.ok().and_then(entries)).collect();
    for topic in &mut facts.topics {
        topic.config = read.remove(&topic.name);
    }
    // All requests are under way before the first is awaited, so that dead brokers cost one timeout together.
    let resources: Vec<[ResourceSpecifier<'_>; 1]> =
        facts.brokers.iter().map(|broker| [ResourceSpecifier::Broker(broker.id)]).collect();
    let questions: Vec<_> = resources.iter().map(|broker| admin.describe_configs(broker, &options)).collect();
    for (broker, question) in facts.brokers.iter_mut().zip(questions) {
        // A refusal is an answer too.
        broker.answered = match question.await {
            Ok(_) => true,
            Err(KafkaError::AdminOp(code)) => is_answer(code),
            Err(_) => false,
        };
    }
}

/// librdkafka's own codes are negative and say that nobody answered; that a broker cannot do it, it has said itself.
fn is_answer(code: RDKafkaErrorCode) -> bool {
    code as i32 > 0 || code == RDKafkaErrorCode::UnsupportedFeature
}

fn entries(resource: ConfigResource) -> Option<(String, BTreeMap<String, String>)> {
    match resource.specifier {
        OwnedResourceSpecifier::Topic(name) => {
            let entries = resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
            let entries: BTreeMap<String, String> = entries.collect();
            // A refusal arrives as a topic without any entry.
            (!entries.is_empty()).then_some((name, entries))
        }
        OwnedResourceSpecifier::Group(_) | OwnedResourceSpecifier::Broker(_) => None,
    }
}

fn topic(described: Description) -> Topic {
    let state = state(described.error, &described.partitions);
    Topic { name: described.topic, state, may_write: described.may_write, config: None }
}

fn listed(name: &str, metadata: &Metadata) -> Topic {
    let state = match metadata.topics().iter().find(|topic| topic.name() == name) {
        Some(topic) => {
            let replicas = topic
                .partitions()
                .iter()
                .map(|partition| Replicas { all: partition.replicas().len(), in_sync: partition.isr().len() });
            state(topic.error().map(RDKafkaErrorCode::from), &replicas.collect::<Vec<_>>())
        }
        None => TopicState::Missing,
    };
    Topic { name: name.to_owned(), state, may_write: None, config: None }
}

fn state(error: Option<RDKafkaErrorCode>, partitions: &[Replicas]) -> TopicState {
    match error {
        None => TopicState::Present {
            partitions: partitions.len(),
            replicas: partitions.iter().map(|partition| partition.all).min().unwrap_or(0),
            in_sync: partitions.iter().map(|partition| partition.in_sync).min().unwrap_or(0),
        },
        Some(RDKafkaErrorCode::UnknownTopicOrPartition) => TopicState::Missing,
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => TopicState::Forbidden,
        Some(code) => TopicState::Failed(code.to_string()),
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reason(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, reason, name, _) => format!("{name}: {reason}"),
        KafkaError::ClientCreation(reason) => reason.clone(),
        other => other.to_string(),
    }
}

/// Listens to librdkafka while the questions are under way.
#[derive(Default)]
struct Watch(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    complaints: BTreeSet<Complaint>,
    producer_id: ProducerId,
}

impl ClientContext for Watch {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn stats(&self, statistics: Statistics) {
        if statistics.eos.is_some_and(|eos| eos.idemp_state == "Assigned") {
            lock(&self.0).producer_id = ProducerId::Granted;
        }
    }

    fn error(&self, error: KafkaError, text: &str) {
        let mut heard = lock(&self.0);
        let code = error.rdkafka_error_code();
        if code == Some(RDKafkaErrorCode::Fatal) || code == Some(RDKafkaErrorCode::ClusterAuthorizationFailed) {
            heard.producer_id = ProducerId::Refused(text.to_owned());
        }
        if code != Some(RDKafkaErrorCode::AllBrokersDown) {
            // "(after 301ms in state …)" makes one complaint look like many.
            let text = text.split(" (after ").next().unwrap_or(text);
            heard.complaints.insert(Complaint { step: step(code, text), text: text.to_owned() });
        }
    }
}

impl ProducerContext for Watch {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

fn step(code: Option<RDKafkaErrorCode>, text: &str) -> Step {
    match code {
        Some(RDKafkaErrorCode::Resolve) => Step::Dns,
        Some(RDKafkaErrorCode::SSL) => Step::Tls,
        Some(RDKafkaErrorCode::Authentication) => Step::Login,
        Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::OperationTimedOut) => {
            if text.contains("SSL") { Step::Tls } else { Step::Tcp }
        }
        Some(_) | None => Step::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use rdkafka::mocking::MockCluster;

    fn kafka(brokers: &str, properties: &[(&str, &str)]) -> Kafka {
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
        Kafka { brokers: brokers.to_owned(), create_topics: None, properties: properties.collect() }
    }

    async fn asked(kafka: &Kafka, topics: &[&str], timeout: Duration) -> Facts {
        inspect(kafka, &topics.iter().map(|topic| (*topic).to_owned()).collect(), timeout).await
    }

    #[tokio::test]
    async fn a_cluster_tells_its_brokers_and_topics_and_gives_a_producer_id() {
        let cluster = MockCluster::new(3).unwrap();
        cluster.create_topic("orders", 4, 3).unwrap();
        let kafka = kafka(&cluster.bootstrap_servers(), &[]);
        let facts = asked(&kafka, &["missing", "orders"], Duration::from_secs(3)).await;
        assert_eq!(facts.reach, Reach::Reached, "{facts:#?}");
        assert_eq!(facts.brokers.len(), 3);
        assert_eq!(facts.producer_id, ProducerId::Granted);
        let states: Vec<(&str, &TopicState)> = facts.topics.iter().map(|topic| (&*topic.name, &topic.state)).collect();
        let present = TopicState::Present { partitions: 4, replicas: 3, in_sync: 3 };
        assert_eq!(states, [("missing", &TopicState::Missing), ("orders", &present)]);
        // The mock neither knows configurations nor rights, and says so.
        assert_eq!((&facts.topics[1].config, facts.topics[1].may_write), (&None, None));
        assert!(facts.brokers.iter().all(|broker| broker.answered), "{:?}", facts.brokers);
    }

    #[tokio::test]
    async fn no_topics_is_no_question() {
        let cluster = MockCluster::new(1).unwrap();
        let facts = asked(&kafka(&cluster.bootstrap_servers(), &[]), &[], Duration::from_secs(5)).await;
        assert_eq!((facts.reach, facts.topics), (Reach::Reached, Vec::new()));
    }

    #[tokio::test]
    async fn a_closed_port_and_an_unknown_name_are_told_apart() {
        for (brokers, step) in [("127.0.0.1:1", Step::Tcp), ("no-such-host.invalid:9092", Step::Dns)] {
            let facts = asked(&kafka(brokers, &[]), &["orders"], Duration::from_secs(2)).await;
            let Reach::Unreached(complaints) = &facts.reach else { panic!("{facts:#?}") };
            assert!(complaints.iter().any(|complaint| complaint.step == step), "{complaints:#?}");
        }
    }

    #[tokio::test]
    async fn a_property_that_librdkafka_refuses_is_named() {
        let facts = asked(&kafka("127.0.0.1:1", &[("linger.ms", "soon")]), &[], Duration::from_secs(1)).await;
        assert!(matches!(&facts.reach, Reach::Misconfigured(reason) if reason.contains("linger.ms")), "{facts:#?}");
    }

    #[tokio::test]
    async fn a_client_with_tls_and_a_listener_without_is_a_matter_of_tls() {
        let cluster = MockCluster::new(1).unwrap();
        let kafka = kafka(&cluster.bootstrap_servers(), &[("security.protocol", "ssl")]);
        let facts = asked(&kafka, &[], Duration::from_secs(2)).await;
        let Reach::Unreached(complaints) = &facts.reach else { panic!("{facts:#?}") };
        assert!(complaints.iter().any(|complaint| complaint.step == Step::Tls), "{complaints:#?}");
    }
}
