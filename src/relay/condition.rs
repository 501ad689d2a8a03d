//! What the relay is doing, and why events cannot flow, if they cannot: the words of readiness.

use std::time::{Duration, Instant};

use super::Relay;
use super::link::Link;
use super::session::Closed;
use crate::source::catalog::Holder;
use crate::status::{Reason, Role, State};

/// Records in flight and no report for this long: the broker does not answer.
const SILENCE: Duration = Duration::from_secs(3);

impl Relay {
    /// What the relay is doing, and why events cannot flow, if they cannot.
    pub(super) fn condition(&self, now: Instant) -> (State, Role, Vec<Reason>) {
        if self.pipeline.is_stopping() {
            return (State::Stopping, Role::Leader, Vec::new());
        }
        match (&self.link, &self.closed) {
            (Link::Up(_), _) => {}
            (_, Some(Closed::Held(holder))) if self.last_backend_pid != Some(holder.pid) => {
                return (State::Standby, Role::Standby, vec![held(holder)]);
            }
            (_, closed) => return (State::Connecting, Role::Leader, closed.iter().map(unconnected).collect()),
        }
        let mut reasons = self.sink.reasons();
        reasons.extend(self.kafka_trouble(now));
        let state = if self.pipeline.is_fencing() {
            State::Fencing
        } else if self.pipeline.is_recovering() {
            State::Recovering
        } else if reasons.is_empty() {
            State::Streaming
        } else {
            State::Waiting
        };
        (state, Role::Leader, reasons)
    }

    fn kafka_trouble(&self, now: Instant) -> Option<Reason> {
        let complaint = self.reports.complaint();
        let words = complaint.as_ref().map_or_else(String::new, |complaint| format!(": {}", complaint.text));
        let reason = |code: &str, message: String, hint: &str| {
            Some(Reason { code: code.to_owned(), message, hint: Some(hint.to_owned()) })
        };
        if let Some(failure) = self.pipeline.trouble() {
            let message = format!("delivery to topic \"{}\" failed: {}", failure.topic, failure.message);
            return reason("delivery_failed", message, "outboxd check shows what the topic allows");
        }
        if complaint.as_ref().is_some_and(|complaint| complaint.login) {
            let hint = "see the sasl and ssl settings in kafka.properties";
            return reason("kafka_login", format!("Kafka refuses the login{words}"), hint);
        }
        if let Some(silent) = self.silence(now) {
            let message = format!("no broker has answered for {} s{words}", silent.as_secs());
            return reason("kafka_silent", message, "see whether the brokers of the topics' partitions run");
        }
        if complaint.is_some() && self.reports.brokers_up() == Some(0) {
            let hint = "see whether kafka.brokers names running brokers: outboxd check";
            return reason("kafka_unreachable", format!("no broker can be reached{words}"), hint);
        }
        None
    }

    /// For how long no report has come while some are due, if that is too long.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(self.last_report);
        (self.pipeline.ledger().inflight() > 0 && silent >= SILENCE).then_some(silent)
    }
}

fn unconnected(closed: &Closed) -> Reason {
    match closed {
        Closed::Held(holder) => held(holder),
        Closed::Unreached(error) | Closed::Failed(error) => Reason {
            code: "postgres_unreachable".into(),
            message: error.chain(),
            hint: error.hint_text().map(str::to_owned),
        },
    }
}

fn held(holder: &Holder) -> Reason {
    Reason { code: "slot_held".into(), message: format!("the slot is held by {holder}"), hint: None }
}
