//! What the relay is doing, and why events cannot flow, if they cannot: the words of readiness.

use std::time::{Duration, Instant};

use super::Relay;
use super::link::Link;
use super::session::Closed;
use crate::error::Error;
use crate::sink::Whose;
use crate::status::{Reason, Role, State};

/// Without an answer for this long, a broker counts as silent, whatever the others say.
const SILENCE: Duration = Duration::from_secs(3);
/// A server that is asked every second and sends nothing for this long is not there.
const MUTE: Duration = Duration::from_secs(4);

impl Relay {
    /// What the relay is doing, and why events cannot flow, if they cannot.
    pub(super) fn condition(&self, now: Instant) -> (State, Role, Vec<Reason>) {
        let (role, state) = match self.stands_by() {
            true => (Role::Standby, State::Standby),
            false => (Role::Leader, State::Connecting),
        };
        if self.pipeline.is_stopping() {
            return (State::Stopping, role, self.failure.iter().map(|error| told("failed", error)).collect());
        }
        if !matches!(self.link, Link::Up(_)) {
            return (state, role, self.closed.iter().map(unconnected).collect());
        }
        let mut reasons: Vec<Reason> = self.postgres_trouble(now).into_iter().chain(self.sink.reasons()).collect();
        reasons.extend(self.unclaimed.as_ref().map(unclaimed));
        reasons.extend(self.letter_reasons());
        reasons.extend(self.writer_reasons(now));
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
        (state, role, reasons)
    }

    fn postgres_trouble(&self, now: Instant) -> Option<Reason> {
        let mute = self.mute(now);
        (mute >= MUTE).then(|| Reason {
            code: "postgres_silent".into(),
            message: format!("PostgreSQL has sent nothing for {} s, although asked", mute.as_secs()),
            hint: Some(
                "see the server and the network to it; while it decodes a large transaction, it is silent too".into(),
            ),
        })
    }

    /// For how long PostgreSQL has sent nothing, although we read.
    pub(super) fn mute(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    fn kafka_trouble(&self, now: Instant) -> Option<Reason> {
        let complaint = self.reports.complaint();
        let words = complaint.as_ref().map_or_else(String::new, |complaint| format!(": {}", complaint.text));
        let reason = |code: &str, message: String, hint: &str| {
            Some(Reason { code: code.to_owned(), message, hint: Some(hint.to_owned()) })
        };
        if let Some(failure) = self.pipeline.trouble() {
            // Of what a producer fails at for good, such as a missing right, its deliveries only say that they were purged.
            let words = if failure.whose == Whose::World { words.as_str() } else { "" };
            let message = format!("delivery to topic \"{}\" failed: {}{words}", failure.topic, failure.message);
            return reason("delivery_failed", message, "outboxd check shows what the topic allows");
        }
        if complaint.as_ref().is_some_and(|complaint| complaint.login) {
            let hint = "see the sasl and ssl settings in kafka.properties";
            return reason("kafka_login", format!("Kafka refuses the login{words}"), hint);
        }
        // The oldest record is another one all the time while a backlog is worked off beside a broker that is silent.
        if let Some((broker, silent)) = self.reports.silent_broker().filter(|(_, silent)| *silent >= SILENCE) {
            let message = format!("broker {broker} has not answered for {} s{words}", silent.as_secs());
            return reason("kafka_silent", message, "see the broker, the network to it, and min.insync.replicas");
        }
        let asked = self.asking.map(|since| now.saturating_duration_since(since)).filter(|asked| *asked >= SILENCE);
        if let Some((asked, topic)) = asked.zip(self.sink.unanswered()) {
            let message =
                format!("no broker has said for {} s whether topic \"{topic}\" exists{words}", asked.as_secs());
            return reason("kafka_silent", message, "see the brokers, and the network to them");
        }
        if let Some(silent) = self.silence(now) {
            let message = format!("the oldest record on its way got no answer for {} s{words}", silent.as_secs());
            return reason("kafka_silent", message, "see whether the brokers of the topics' partitions run");
        }
        if complaint.is_some() && self.reports.brokers_up() == Some(0) {
            let hint = "see whether kafka.brokers names running brokers: outboxd check";
            return reason("kafka_unreachable", format!("no broker can be reached{words}"), hint);
        }
        None
    }

    /// For how long the oldest record on its way has had no answer, if that is too long.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        let (oldest, since) = self.oldest;
        let silent = now.saturating_duration_since(since);
        oldest.filter(|_| silent >= SILENCE).map(|_| silent)
    }
}

fn unconnected(closed: &Closed) -> Reason {
    match closed {
        Closed::Held(holder, _) => {
            Reason { code: "slot_held".into(), message: format!("the slot is held by {holder}"), hint: None }
        }
        Closed::Unreached(error) | Closed::Failed(error) => told("postgres_unreachable", error),
    }
}

/// The error's own words.
fn told(code: &str, error: &Error) -> Reason {
    Reason { code: code.to_owned(), message: error.chain(), hint: error.hint_text().map(str::to_owned) }
}

fn unclaimed(error: &Error) -> Reason {
    let hint =
        error.hint_text().unwrap_or("see who locks table outboxd.position, and the role's rights on it: outboxd check");
    Reason {
        code: "slot_unclaimed".into(),
        message: format!("our name cannot be put on the slot: {}", error.chain()),
        hint: Some(hint.to_owned()),
    }
}
