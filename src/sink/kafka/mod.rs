//! Publishes records to Kafka and gives their tickets back.
//!
//! Records enter through `offer`, reports leave through the `Reports` mailbox. The producer is idempotent with
//! `acks=all`, never times a message out, and stops at the first refusal instead of sending what stands behind it, so
//! the records of one partition are appended in the order of their offers. A full queue is backpressure, not an error.

mod codes;
mod contact;
mod leaders;
mod reports;
mod statistics;
mod topics;
mod trial;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};

use crate::config;
use crate::config::UnknownTopic;
use crate::dead_letter::Document;
use crate::error::{Error, Result};
use crate::ledger::Ticket;
use crate::metrics::Metrics;
use crate::record::{Headers, Record};
use crate::sink::{Failure, Problem, Purge, Refused, Sink, Untried, client_config};
use crate::status::Reason;
use leaders::Astray;
pub use reports::{Complaint, Report, Reports, TopicId};
use reports::{Context, pack};
pub use topics::{Answer, Scope};
use topics::{Asked, Finding, Purpose, Topics};
use trial::Trials;

/// As large as is well below what brokers accept unless told otherwise, 1 MB: one batch is under way at a time, and half of this
/// carried a fifth to a third less to a broker that is 5 ms away. A topic that accepts less makes them smaller.
pub const BATCH_BYTES: usize = 512 * 1024;

/// Below this, batches cost throughput, one request being under way at a time.
const SMALL_BATCH: usize = 16 * 1024;
/// Smaller ones are never tried.
const TINY_BATCH: usize = 1024;

const PRODUCER_DEFAULTS: [(&str, &str); 6] = [
    ("linger.ms", "1"),
    ("compression.type", "lz4"),
    ("reconnect.backoff.max.ms", "1000"),
    // A connection that died without a word is found out by a request that gets no answer: the usual minute is too long.
    ("socket.timeout.ms", "10000"),
    ("socket.connection.setup.timeout.ms", "10000"),
    ("statistics.interval.ms", "1000"),
];

/// The producer, and what is known of its topics.
pub struct Kafka {
    config: ClientConfig,
    create_topics: Option<config::CreateTopics>,
    metrics: Metrics,
    reports: Arc<Reports>,
    producer: ThreadedProducer<Context>,
    admin: Arc<AdminClient<DefaultClientContext>>,
    topics: Topics,
    astray: Astray,
    trials: Trials,
    /// When the letters that are tried were claimed.
    trials_since: Instant,
    unknown_topic: UnknownTopic,
    /// What the user wants, and what is used.
    typed_batch_bytes: usize,
    batch_bytes: usize,
    /// What every known topic accepts.
    largest_batch: usize,
    /// So much is taken, for all that was seen, by those topics that keep their limits to themselves.
    guessed_batch: usize,
    /// Records that such a topic refused since the producer was made.
    refused: usize,
    compressed: bool,
}

/// A question about topics, to be carried to a thread that may block.
pub struct Question {
    admin: Arc<AdminClient<DefaultClientContext>>,
    create_topics: Option<config::CreateTopics>,
    topics: Vec<Asked>,
}

/// A producer that is no longer needed. Dropping it blocks for a moment.
pub struct Retired {
    _producer: ThreadedProducer<Context>,
}

impl Kafka {
    /// So many topics can be told apart.
    pub const MOST_TOPICS: usize = Topics::MOST;

    /// A producer of the first generation.
    pub fn new(
        kafka: &config::Kafka,
        limits: &config::Limits,
        unknown_topic: UnknownTopic,
        metrics: Metrics,
    ) -> Result<Kafka> {
        let config = producer_config(kafka, limits);
        let compressed = config.get("compression.type").is_some_and(|codec| codec != "none");
        let batch_bytes = config.get("batch.size").and_then(|size| size.parse().ok()).unwrap_or(BATCH_BYTES);
        let reports = Arc::new(Reports::default());
        let producer = producer(&config, batch_bytes, &reports, &metrics, 0)?;
        let (astray, trials) = (Astray::new(&config), Trials::new(&config));
        let admin = admin_config(kafka).create().map_err(misconfigured)?;
        Ok(Kafka {
            config,
            create_topics: kafka.create_topics.clone(),
            metrics,
            reports,
            producer,
            admin: Arc::new(admin),
            topics: Topics::default(),
            astray,
            trials,
            trials_since: Instant::now(),
            unknown_topic,
            typed_batch_bytes: batch_bytes,
            batch_bytes,
            largest_batch: usize::MAX,
            guessed_batch: usize::MAX,
            refused: 0,
            compressed,
        })
    }

    /// The mailbox that reports arrive in.
    pub fn reports(&self) -> Arc<Reports> {
        Arc::clone(&self.reports)
    }

    /// The mailbox that the reports of trials arrive in.
    pub fn trial_reports(&self) -> Arc<Reports> {
        self.trials.reports()
    }

    /// Letters were claimed: what was known of topics before may have been mended.
    pub fn begin_trials(&mut self, now: Instant) {
        self.trials_since = now;
    }

    /// What became of trials since the last time: letters, and why they failed.
    pub fn take_trials(&mut self) -> Vec<(i64, std::result::Result<(), Failure>)> {
        self.trials.take()
    }

    /// A producer of trials that has failed, to be taken apart where that may block.
    pub fn failed_trials(&mut self) -> Option<Retired> {
        self.trials.failed()
    }

    /// Writes a dead letter into its topic; its number comes back as a trial's does.
    pub fn write_letter(&mut self, topic: &str, number: u64, letter: &Document) -> std::result::Result<(), Untried> {
        let mut headers = Headers::default();
        letter.headers.iter().for_each(|(name, value)| headers.push(name, Some(value.as_bytes())));
        let record = Record {
            topic,
            partition: None,
            key: Some(letter.key.as_bytes()),
            value: Some(letter.value.as_bytes()),
            headers: &headers,
            timestamp_ms: None,
        };
        self.send_apart(&record, number.cast_signed(), Purpose::Keep)
    }

    fn send_apart(&mut self, record: &Record<'_>, letter: i64, purpose: Purpose) -> std::result::Result<(), Untried> {
        let parks_unknown = self.unknown_topic == UnknownTopic::Park && purpose == Purpose::Trial;
        let Some((topic, finding, was_seen)) = self.topics.look(record.topic, purpose) else {
            return Err(Untried::Never(one_too_many(record.topic)));
        };
        let verdict = match finding {
            Finding::Exists(accepts) => accepts.problem(record, self.compressed, now_ms()).map(Untried::Never),
            Finding::Missing if parks_unknown && !was_seen => Some(Untried::Never(unknown(record.topic))),
            Finding::Unasked | Finding::Missing | Finding::Forbidden(_) | Finding::Unanswered(_) => {
                Some(Untried::Later)
            }
        };
        if let Some(verdict) = verdict {
            // It may have been mended since the cluster was asked: that is why somebody tries.
            return Err(if self.topics.is_fresh(topic, self.trials_since) { verdict } else { Untried::Unknown });
        }
        self.trials.offer(record, letter, topic, self.batch_bytes, &self.metrics)
    }

    /// Which producer letters are given to: what another one had gets no answer.
    pub fn trial_generation(&self) -> u32 {
        self.trials.generation()
    }

    /// Gives up the trial that is on its way, which may land all the same, and its producer.
    pub fn abandon_trial(&mut self) -> Option<Retired> {
        self.trials.abandon()
    }

    /// Forgets records; their tickets come back as failed. Those in flight may land all the same.
    pub fn purge(&self, purge: Purge) {
        // Waiting for every broker's thread could block ours for as long as a name server is silent.
        let queued = PurgeConfig::default().queue().non_blocking();
        self.producer.purge(match purge {
            Purge::Queued => queued,
            Purge::Everything => queued.inflight(),
        });
    }

    /// The row at the front will come again, to whoever has the slot then, or is for another topic now: it will say what it waits for.
    pub fn wait_for_none(&mut self) {
        self.topics.wait_for_none();
    }

    /// A record of the producer's has got its answer.
    pub fn answered(&mut self, report: &Report) {
        self.topics.answered(report.topic, report.number(), report.outcome.is_ok());
    }

    /// A delivery failed for what the topic is: ask again before the next offer.
    pub fn doubt(&mut self, topic: TopicId) {
        self.topics.doubt(topic);
    }

    /// The broker will never take this record of the topic's, or never in such a batch.
    pub fn refused(&mut self, topic: TopicId) {
        self.refused += usize::from(!self.topics.tells_limit(topic));
    }

    /// Puts a new producer in the place of the old one.
    pub fn renew(&mut self, generation: u32) -> Result<Retired> {
        if std::mem::take(&mut self.refused) > 1 {
            // Several together: the batch may have been too large, and nobody may tell us how large it may be.
            self.guessed_batch = (self.batch_bytes / 2).max(TINY_BATCH);
            tracing::warn!(
                bytes = self.guessed_batch,
                "batches get smaller, because a topic refused one and its limits are hidden from us: \
                 grant DescribeConfigs on it to the relay's user"
            );
        }
        self.batch_bytes = self.typed_batch_bytes.min(self.largest_batch).min(self.guessed_batch).max(1);
        if self.batch_bytes < SMALL_BATCH {
            tracing::warn!(bytes = self.batch_bytes, "a topic's max.message.bytes makes all batches this small");
        }
        let fresh = producer(&self.config, self.batch_bytes, &self.reports, &self.metrics, generation)?;
        self.topics.renewed();
        self.astray.forget();
        self.reports.renewed(generation);
        Ok(Retired { _producer: std::mem::replace(&mut self.producer, fresh) })
    }

    /// What the cluster should be asked now; `None` when there is nothing to ask.
    pub fn question(&self, scope: Scope) -> Option<Question> {
        let topics = self.topics.doubtful(scope);
        let admin = Arc::clone(&self.admin);
        (!topics.is_empty()).then(|| Question { admin, create_topics: self.create_topics.clone(), topics })
    }

    /// The cluster's answer. Answers with what the producer fails at without ever saying so: it does not find a
    /// partition's leader any more.
    pub fn learn(&mut self, answers: Vec<Answer>, now: Instant) -> Option<Failure> {
        let failure = self.reports.take_headings().and_then(|headings| {
            // What the cluster said earlier does not count: a leader may have moved since.
            let answers: HashMap<&str, &Answer> = answers.iter().map(|answer| (answer.topic(), answer)).collect();
            self.astray.compare(headings, |topic, partition| answers.get(topic)?.leader(partition), now)
        });
        self.topics.learn(answers, now);
        self.largest_batch = self.topics.smallest_limit().unwrap_or(usize::MAX);
        if self.topics.all_tell_limits() {
            self.guessed_batch = usize::MAX;
        }
        failure
    }

    /// These topics have existed, by the word of somebody who remembers: one that is gone is waited for.
    pub fn existed(&mut self, topics: Vec<String>) {
        self.topics.existed(topics);
    }

    /// The topics to remember: they were shown for the first time since this was last asked.
    pub fn take_news(&mut self) -> Vec<String> {
        self.topics.take_news()
    }

    /// What becomes of records for topics that do not exist.
    pub fn unknown_topic(&self) -> UnknownTopic {
        self.unknown_topic
    }

    /// The same, from now on.
    pub fn set_unknown_topic(&mut self, unknown_topic: UnknownTopic) {
        self.unknown_topic = unknown_topic;
    }

    /// The topics that have existed.
    pub fn seen_topics(&self) -> Vec<String> {
        self.topics.seen()
    }

    /// Whether records get no answer. While that is so, somebody should look where the producer heads.
    pub fn records_wait(&mut self, waiting: bool) {
        self.reports.want_headings(waiting);
        if !waiting {
            self.astray.forget();
        }
    }

    /// The topic's name.
    pub fn topic_name(&self, id: TopicId) -> &str {
        self.topics.name(id)
    }

    /// The topic that the next record is for, while nobody has said whether it exists.
    pub fn unanswered(&self) -> Option<&str> {
        self.topics.unanswered()
    }

    /// Why records wait.
    pub fn reasons(&self) -> Vec<Reason> {
        self.topics.reasons()
    }
}

impl Question {
    /// Asks, and waits for the answers. Blocks its thread.
    pub fn ask(self) -> Vec<Answer> {
        topics::look_up(&self.admin, self.topics, self.create_topics.as_ref())
    }
}

impl Sink for Kafka {
    fn offer(&mut self, record: &Record<'_>, ticket: Ticket) -> std::result::Result<(), Refused> {
        let Some((topic, finding)) = self.topics.get(record.topic) else {
            return Err(Refused::Event(ticket, one_too_many(record.topic)));
        };
        let accepts = match finding {
            Finding::Exists(accepts) => accepts,
            Finding::Missing if self.unknown_topic == UnknownTopic::Park => {
                return Err(match self.topics.is_given_up(topic) {
                    true => Refused::Event(ticket, unknown(record.topic)),
                    false => Refused::Unready(ticket),
                });
            }
            Finding::Unasked | Finding::Missing | Finding::Forbidden(_) | Finding::Unanswered(_) => {
                return Err(Refused::Unready(ticket));
            }
        };
        if let Some(problem) = accepts.problem(record, self.compressed, now_ms()) {
            // Partitions are added, and limits raised: the cluster is asked once more before an event is called wrong.
            return Err(match self.topics.second_look(topic, Instant::now()) {
                true => Refused::Unready(ticket),
                false => Refused::Event(ticket, problem),
            });
        }
        if self.largest_batch.max(1) < self.batch_bytes {
            // A batch that the topic refuses for its size would take innocent records down with it.
            return Err(Refused::Fatal(ticket, "a topic accepts smaller batches only".into()));
        }
        if self.topics.holds(topic, record) {
            return Err(Refused::Full(ticket));
        }
        let (number, generation) = ticket.into_parts();
        match send(&self.producer, record, pack(number, topic)) {
            Ok(()) => {
                self.topics.offered(topic, record, number);
                Ok(())
            }
            Err(error) => {
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownTopic) {
                    self.topics.doubt(topic);
                }
                Err(refused(error, Ticket::from_parts(number, generation)))
            }
        }
    }

    fn try_again(&mut self, record: &Record<'_>, letter: i64) -> std::result::Result<(), Untried> {
        self.send_apart(record, letter, Purpose::Trial)
    }
}

fn one_too_many(topic: &str) -> Problem {
    let message = format!("its topic \"{topic}\" is one too many: {} are known", Topics::MOST);
    Problem { reason: "topic", message }
}

fn unknown(topic: &str) -> Problem {
    Problem { reason: "unknown_topic", message: format!("topic \"{topic}\" does not exist") }
}

/// Hands a record to a producer, with the number that its report brings back.
fn send(
    producer: &ThreadedProducer<Context>,
    record: &Record<'_>,
    opaque: usize,
) -> std::result::Result<(), KafkaError> {
    let mut message = BaseRecord::with_opaque_to(record.topic, opaque).headers(headers(record));
    if let Some(key) = record.key {
        message = message.key(key);
    }
    if let Some(timestamp_ms) = record.timestamp_ms {
        // librdkafka takes 0 for "now".
        message = message.timestamp(timestamp_ms.max(1));
    }
    if let Some(value) = record.value {
        message = message.payload(value);
    }
    if let Some(partition) = record.partition {
        message = message.partition(partition);
    }
    producer.send(message).map_err(|(error, _)| error)
}

fn headers(record: &Record<'_>) -> OwnedHeaders {
    let headers = OwnedHeaders::new_with_capacity(record.headers.len());
    record.headers.iter().fold(headers, |headers, (key, value)| headers.insert(Header { key, value }))
}

fn refused(error: KafkaError, ticket: Ticket) -> Refused {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::QueueFull) => Refused::Full(ticket),
        Some(RDKafkaErrorCode::UnknownTopic) => Refused::Unready(ticket),
        Some(code @ RDKafkaErrorCode::MessageSizeTooLarge) => {
            let problem = Problem { reason: "refused", message: code.to_string() };
            Refused::Event(ticket, problem)
        }
        // The cluster has that partition, as we know: only the producer has not heard of it, and a new one would.
        Some(_) | None => Refused::Fatal(ticket, error.to_string()),
    }
}

fn producer(
    config: &ClientConfig,
    batch_bytes: usize,
    reports: &Arc<Reports>,
    metrics: &Metrics,
    generation: u32,
) -> Result<ThreadedProducer<Context>> {
    let context = Context { reports: Arc::clone(reports), metrics: metrics.clone(), generation };
    let mut config = config.clone();
    config.set("batch.size", batch_bytes.to_string());
    ThreadedProducer::from_config_and_context(&config, context).map_err(misconfigured)
}

fn producer_config(kafka: &config::Kafka, limits: &config::Limits) -> ClientConfig {
    let mut config = client_config(kafka);
    // Defaults that a user may change with kafka.properties …
    for (key, value) in PRODUCER_DEFAULTS {
        if config.get(key).is_none() {
            config.set(key, value);
        }
    }
    // … and what the promises rest on, which is refused there.
    config
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("enable.gapless.guarantee", "true")
        // A partition that knows nothing of a producer takes any sequence number. With two batches under way, the first
        // may be refused (a topic just created, too few replicas) and the second taken; the client then believes that
        // the first was taken too, and reports it as delivered.
        .set("max.in.flight", "1")
        .set("message.timeout.ms", "0")
        .set("partitioner", "murmur2_random")
        .set("allow.auto.create.topics", "false")
        // The pipeline has looked at the size; this only must not be in its way, Kafka's framing included.
        .set("message.max.bytes", (limits.event * 2 + (1 << 20)).min(1_000_000_000).to_string())
        // The pipeline accounts for memory; these two only must not be in its way.
        .set("queue.buffering.max.messages", (limits.window + 1).min(10_000_000).to_string())
        .set("queue.buffering.max.kbytes", "2147483647");
    config
}

/// For questions about topics, each of which waits as long as its socket does.
fn admin_config(kafka: &config::Kafka) -> ClientConfig {
    let mut config = client_config(kafka);
    if config.get("socket.timeout.ms").is_none() {
        config.set("socket.timeout.ms", topics::ANSWER_WITHIN.as_millis().to_string());
    }
    config
}

fn misconfigured(error: KafkaError) -> Error {
    Error::definite("the Kafka client refuses its configuration")
        .because(error)
        .hint("see kafka.brokers and kafka.properties; outboxd config explains them")
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
