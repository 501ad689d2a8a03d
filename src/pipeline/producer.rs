//! The producer's side of the pipeline: what a failed delivery leads to.
//!
//! Stop offering → let the answers in flight land → purge the rest, wait until nothing is in flight → a new producer →
//! the server sends the rows that were lost again. The producer is always replaced: after a failure its sequence may
//! have a gap, and order is worth more than half a second.

use std::time::{Duration, Instant};

use super::careful::Careful;
use super::{Action, Pipeline, Purge, Why};
use crate::lsn::{Lsn, Position};
use crate::sink::{Failure, Whose};

/// The first pause after a failure that is not the event's.
const FIRST_REST: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Producer {
    state: State,
    /// The gravest failure since something succeeded.
    trouble: Option<Failure>,
    /// Failures of this round that are some event's.
    guilty: Vec<Position>,
    /// Rounds since something succeeded.
    rounds: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Good,
    /// No offers; answers in flight may land until the deadline.
    Draining { cause: Cause, deadline: Instant },
    /// Purged; the answers to that come until the deadline.
    Purging { cause: Cause, deadline: Instant },
    /// A new producer is being made.
    Renewing,
    /// A pause, so that a lasting failure does not become a storm.
    Resting { until: Instant },
}

/// Why the producer is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Delivery,
    LeaseLost,
}

impl Producer {
    pub(super) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    pub(super) fn is_renewing(&self) -> bool {
        self.state == State::Renewing
    }

    pub(super) fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref()
    }

    pub(super) fn succeeded(&mut self) {
        if self.is_good() {
            self.trouble = None;
            self.rounds = 0;
        }
    }

    pub(super) fn failed(&mut self, failure: Failure, position: Position, deadline: Instant) {
        if failure.whose == Whose::Event {
            self.guilty.push(position);
        }
        // Behind the one refusal come the failures it causes: the gravest tells the story.
        if self.trouble.as_ref().is_none_or(|known| known.whose < failure.whose) {
            self.trouble = Some(failure);
        }
        self.drain(Cause::Delivery, deadline);
    }

    pub(super) fn broke(&mut self, topic: &str, message: String, deadline: Instant) {
        self.trouble.get_or_insert(Failure { whose: Whose::World, topic: topic.to_owned(), message });
        self.drain(Cause::Delivery, deadline);
    }

    pub(super) fn drain(&mut self, cause: Cause, deadline: Instant) {
        if self.is_good() {
            self.state = State::Draining { cause, deadline };
        }
    }

    pub(super) fn renewed(&mut self, now: Instant, longest_rest: Duration) {
        let events_fault = self.trouble.as_ref().is_none_or(|trouble| trouble.whose == Whose::Event);
        let rest = if events_fault { Duration::ZERO } else { FIRST_REST * 2u32.saturating_pow(self.rounds.min(16)) };
        self.rounds += 1;
        self.state = State::Resting { until: now + rest.min(longest_rest) };
    }
}

impl Pipeline {
    pub(super) fn tick_producer(&mut self, now: Instant) {
        let nothing_left = self.ledger.inflight() == 0;
        // Nothing may land after the server may have let go of the slot, whatever the drain is for.
        let lease_end = self.lease.map(|asked| asked + self.settings.sender_timeout);
        let over = |deadline: Instant| now >= lease_end.map_or(deadline, |end| deadline.min(end));
        match self.producer.state {
            State::Good | State::Renewing => {}
            State::Draining { cause, deadline } if nothing_left || over(deadline) => {
                self.actions.push_back(Action::Purge(Purge::Everything));
                let deadline = now + self.settings.limits.settle;
                self.producer.state = State::Purging { cause, deadline };
                self.tick_producer(now);
            }
            State::Purging { cause, deadline } if nothing_left || now >= deadline => self.replace_producer(cause),
            State::Resting { until } if now >= until => {
                self.producer.state = State::Good;
                if self.ledger.lost() > 0 {
                    self.leave_session(Why::Replay);
                }
            }
            State::Draining { .. } | State::Purging { .. } | State::Resting { .. } => {}
        }
    }

    /// The server's history is another one: forget the old one's rows, and whatever of them is still in flight.
    pub(super) fn begin_another_history(&mut self, confirmed: Lsn) {
        self.careful = None;
        if self.ledger.inflight() > 0 {
            self.actions.push_back(Action::Purge(Purge::Everything));
            self.replace_producer(Cause::Delivery);
        }
        self.ledger.restart(confirmed);
    }

    fn replace_producer(&mut self, cause: Cause) {
        self.ledger.renew();
        self.producer.state = State::Renewing;
        self.actions.push_back(Action::NewProducer);
        if cause == Cause::LeaseLost {
            self.leave_session(Why::LeaseLost);
        }
        let guilty = std::mem::take(&mut self.producer.guilty);
        let (Some(trouble), Some(newest)) = (&self.producer.trouble, self.ledger.newest()) else { return };
        if trouble.whose != Whose::Event || guilty.is_empty() {
            return;
        }
        match Careful::after(self.careful.take(), &trouble.topic, &guilty, newest) {
            Ok(careful) => self.careful = Some(careful),
            Err(mut rejected) => {
                rejected.message = format!("topic \"{}\" refused it: {}", trouble.topic, trouble.message);
                self.actions.push_back(Action::Reject(rejected));
            }
        }
    }
}
