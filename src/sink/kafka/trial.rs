//! The producer of trials: one dead letter at a time, apart from all other records, so that what a broker refuses concerns
//! nobody else. It is made with the first letter, and anew after each failure.

use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::producer::ThreadedProducer;

use super::codes::is_for_size;
use super::reports::{Context, Reports, TopicId, pack};
use super::{Retired, producer, send};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::sink::{Failure, Problem, Untried};

/// Trials, and what comes of them.
pub(super) struct Trials {
    config: ClientConfig,
    producer: Option<ThreadedProducer<Context>>,
    reports: Arc<Reports>,
    /// Of the producer: what an older one reports is of a trial that was given up.
    generation: u32,
    /// It takes nothing more.
    failed: Option<Retired>,
}

impl Trials {
    /// None yet; the producer will be like the other one, without its statistics.
    pub(super) fn new(config: &ClientConfig) -> Trials {
        let mut config = config.clone();
        config.set("statistics.interval.ms", "0").set("linger.ms", "0");
        Trials { config, producer: None, reports: Arc::new(Reports::default()), generation: 0, failed: None }
    }

    /// The mailbox that reports arrive in.
    pub(super) fn reports(&self) -> Arc<Reports> {
        Arc::clone(&self.reports)
    }

    /// Sends the record of this letter.
    pub(super) fn offer(
        &mut self,
        record: &Record<'_>,
        letter: i64,
        topic: TopicId,
        batch_bytes: usize,
        metrics: &Metrics,
    ) -> Result<(), Untried> {
        if self.producer.is_none() {
            self.generation += 1;
            let made = producer(&self.config, batch_bytes, &self.reports, metrics, self.generation);
            let made =
                made.inspect_err(|error| tracing::warn!(letter, error = error.chain(), "no producer for dead letters"));
            self.producer = Some(made.map_err(|_| Untried::Later)?);
            self.reports.renewed(self.generation);
        }
        let number = u64::try_from(letter).expect("the store counts from one");
        let producer = self.producer.as_ref().expect("it was made just now");
        send(producer, record, pack(number, topic)).map_err(|error| {
            if error.rdkafka_error_code().is_some_and(is_for_size) {
                return Untried::Never(Problem { reason: "too_large", message: error.to_string() });
            }
            tracing::warn!(letter, error = error.to_string(), "a dead letter cannot be sent");
            // A new one asks the cluster anew, for example which partitions there are.
            self.fail();
            Untried::Later
        })
    }

    /// Which producer sends: what was given to another one gets no answer.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// What became of trials since the last time: letters, and why they failed.
    pub(super) fn take(&mut self) -> Vec<(i64, Result<(), Failure>)> {
        let mut reports = Vec::new();
        self.reports.take(&mut reports);
        reports.retain(|report| report.is_of(self.generation));
        if reports.iter().any(|report| report.outcome.is_err()) {
            self.fail();
        }
        reports.into_iter().map(|report| (report.number().cast_signed(), report.outcome)).collect()
    }

    /// A producer that has failed, to be taken apart where that may block.
    pub(super) fn failed(&mut self) -> Option<Retired> {
        self.failed.take()
    }

    /// It takes nothing more after a failure, and has nothing on its way.
    fn fail(&mut self) {
        if let Some(producer) = self.producer.take() {
            self.failed = Some(Retired { _producer: producer });
        }
    }

    /// Gives up what is on its way; it may land all the same.
    pub(super) fn abandon(&mut self) -> Option<Retired> {
        self.generation += 1;
        self.producer.take().map(|producer| Retired { _producer: producer })
    }
}
