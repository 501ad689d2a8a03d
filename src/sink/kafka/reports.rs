//! The way back: delivery reports, librdkafka's complaints and its statistics, from its threads to the relay's task.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::ProducerContext;
use tokio::sync::Notify;

use super::codes::{is_for_size, whose};
use super::leaders::{self, Heading};
use super::statistics::Statistics;
use crate::ledger::Ticket;
use crate::metrics::Metrics;
use crate::sink::Failure;

/// A topic's number among those that were offered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicId(pub(super) u16);

impl TopicId {
    /// The number, for tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What became of one record.
#[derive(Debug)]
pub struct Report {
    number: u64,
    generation: u32,
    /// Where it went.
    pub topic: TopicId,
    /// Acknowledged by all in-sync replicas, or not.
    pub outcome: Result<(), Failure>,
}

impl Report {
    /// True when the producer of this generation made it.
    pub fn is_of(&self, generation: u32) -> bool {
        self.generation == generation
    }

    /// What it was sent with.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The obligation that this report answers.
    pub fn ticket(&self) -> Ticket {
        Ticket::from_parts(self.number, self.generation)
    }
}

/// What the client library last complained about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// A refused login: nothing will ever be reported until it is mended.
    pub login: bool,
    /// The library's words.
    pub text: String,
}

/// The mailbox between librdkafka's threads and the relay.
#[derive(Debug, Default)]
pub struct Reports {
    queue: Mutex<Vec<Report>>,
    arrived: Notify,
    /// The producer whose complaints count: an older one's are about what was taken from it.
    generation: AtomicU32,
    complaint: Mutex<Option<Complaint>>,
    brokers_up: Mutex<Option<usize>>,
    silent_broker: Mutex<Option<(String, Duration)>>,
    /// Somebody wants to know where the producer heads. It is much to read when there are many topics.
    heading_wanted: AtomicBool,
    headings: Mutex<Option<Vec<Heading>>>,
}

impl Reports {
    /// Waits until there are reports to take.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Swaps the reports that came since the last time into `into`, which should be empty.
    pub fn take(&self, into: &mut Vec<Report>) {
        std::mem::swap(&mut *lock(&self.queue), into);
    }

    /// The last complaint since something was delivered.
    pub fn complaint(&self) -> Option<Complaint> {
        lock(&self.complaint).clone()
    }

    /// How many brokers are connected, once the statistics have told.
    pub fn brokers_up(&self) -> Option<usize> {
        *lock(&self.brokers_up)
    }

    /// The broker that has records of ours and has been silent for longest, and for how long, once the statistics tell.
    pub fn silent_broker(&self) -> Option<(String, Duration)> {
        lock(&self.silent_broker).clone()
    }

    /// Whether the statistics should tell from now on where the producer heads.
    pub(super) fn want_headings(&self, wanted: bool) {
        if self.heading_wanted.swap(wanted, Ordering::Relaxed) && !wanted {
            lock(&self.headings).take();
        }
    }

    /// Where the producer heads, if the statistics have told since the last time.
    pub(super) fn take_headings(&self) -> Option<Vec<Heading>> {
        lock(&self.headings).take()
    }

    /// A new producer begins with nothing to complain about.
    pub(super) fn renewed(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
        lock(&self.complaint).take();
        lock(&self.silent_broker).take();
        lock(&self.headings).take();
    }

    fn push(&self, report: Report) {
        if report.outcome.is_ok() {
            lock(&self.complaint).take();
        }
        let mut queue = lock(&self.queue);
        queue.push(report);
        let first = queue.len() == 1;
        drop(queue);
        if first {
            self.arrived.notify_one();
        }
    }
}

/// A ticket's number and its topic, in the 64 bits that librdkafka carries for us.
pub(super) fn pack(number: u64, topic: TopicId) -> usize {
    assert!(number < 1 << 48, "ticket {number} does not fit beside its topic");
    (number << 16 | u64::from(topic.0)) as usize
}

fn unpack(opaque: usize) -> (u64, TopicId) {
    (opaque as u64 >> 16, TopicId((opaque & 0xFFFF) as u16))
}

/// One producer's callbacks.
pub(super) struct Context {
    pub(super) reports: Arc<Reports>,
    pub(super) metrics: Metrics,
    pub(super) generation: u32,
}

impl Context {
    fn is_current(&self) -> bool {
        self.reports.generation.load(Ordering::Relaxed) == self.generation
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let (number, topic) = unpack(opaque);
        let outcome = match result {
            Ok(_) => Ok(()),
            Err((error, message)) => {
                let whose = whose(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown));
                let too_large = error.rdkafka_error_code().is_some_and(is_for_size);
                Err(Failure { whose, topic: message.topic().to_owned(), message: error.to_string(), too_large })
            }
        };
        self.reports.push(Report { number, generation: self.generation, topic, outcome });
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if !self.is_current() {
            return;
        }
        let login = error.rdkafka_error_code() == Some(RDKafkaErrorCode::Authentication);
        let mut complaint = lock(&self.reports.complaint);
        // Behind every refused login comes "all brokers are down", which must not hide it.
        if login || !complaint.as_ref().is_some_and(|known| known.login) {
            *complaint = Some(Complaint { login, text: reason.to_owned() });
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        if !self.is_current() {
            return;
        }
        let unreadable = |error| tracing::debug!(%error, "the statistics of librdkafka cannot be read");
        if self.reports.heading_wanted.load(Ordering::Relaxed) {
            let headings = leaders::headings(statistics).map_err(unreadable).ok();
            let mut known = lock(&self.reports.headings);
            // What is forgotten under this lock is not to come back.
            if self.is_current() && self.reports.heading_wanted.load(Ordering::Relaxed) {
                *known = headings;
            }
        }
        let statistics = match Statistics::read(statistics) {
            Ok(statistics) => statistics,
            Err(error) => return unreadable(error),
        };
        let up = statistics.brokers_up();
        *lock(&self.reports.brokers_up) = Some(up);
        if up > 0 {
            lock(&self.reports.complaint).take_if(|complaint| complaint.login);
        }
        *lock(&self.reports.silent_broker) = statistics.silent_broker();
        self.metrics.kafka(statistics.summary());
    }
}

/// librdkafka's log lines. It repeats itself while a broker is away, so what it calls errors are changes we report
/// ourselves: here they are for whoever turns them on.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        // A producer's fatal error is an outcome that the pipeline deals with, and every purge makes one.
        RDKafkaLogLevel::Emerg if facility == "FATAL" => tracing::info!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::info!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(target: "librdkafka", facility, "{message}");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking thread left behind is still a list of reports.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_and_its_topic_travel_through_one_number() {
        for (number, topic) in [(0, 0), (1, 7), ((1 << 48) - 1, u16::MAX)] {
            assert_eq!(unpack(pack(number, TopicId(topic))), (number, TopicId(topic)));
        }
    }
}
