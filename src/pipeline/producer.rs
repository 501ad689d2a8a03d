//! The producer's side of the pipeline: what a failed delivery leads to.
//!
//! Stop offering → forget what is only queued, let the answers in flight land → purge the rest, wait until nothing is in
//! flight → a new producer → the server sends the rows that were lost again. The producer is always replaced: after a failure its sequence may
//! have a gap, and order is worth more than half a second.

use std::time::{Duration, Instant};

use super::letters::refusal;
use super::{Action, Pipeline, Why};
use crate::lsn::{Lsn, Position};
use crate::sink::{Failure, Purge, Whose};

/// How often a broken producer's queue is emptied while its answers land.
const PURGE_QUEUE_EVERY: Duration = Duration::from_millis(200);
/// The first pause after a failure that is not the event's.
const FIRST_REST: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Producer {
    state: State,
    /// The gravest failure of the last round, until something succeeds.
    trouble: Option<Failure>,
    /// Rows of the trouble's topic that were refused together, when it is one of them that the broker will never take.
    guilty: Vec<Position>,
    /// Rounds since something succeeded.
    rounds: u32,
    /// When what is only queued is forgotten again.
    purge_queue_at: Option<Instant>,
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
        if failure.whose == Whose::World && matches!(self.state, State::Purging { cause: Cause::LeaseLost, .. }) {
            // We have purged it ourselves, for the lease: Kafka is not to blame.
            return;
        }
        self.drain(Cause::Delivery, deadline);
        // Behind the one refusal come the failures it causes: the gravest tells the story.
        let trouble = match self.trouble.take() {
            Some(known) if known.whose >= failure.whose => self.trouble.insert(known),
            Some(_) | None => self.trouble.insert(failure.clone()),
        };
        if failure.whose == Whose::Event && failure.topic == trouble.topic {
            self.guilty.push(position);
        }
    }

    pub(super) fn broke(&mut self, failure: Failure, deadline: Instant) {
        self.drain(Cause::Delivery, deadline);
        self.trouble.get_or_insert(failure);
    }

    pub(super) fn drain(&mut self, cause: Cause, deadline: Instant) {
        match self.state {
            State::Good => {
                // What an earlier round failed for says nothing about this one.
                self.trouble = None;
                self.guilty.clear();
                self.purge_queue_at = None;
                self.state = State::Draining { cause, deadline };
            }
            // A drain for the lease can be called off, one for a failed delivery cannot. It has a deadline of its own:
            // the lease's may have passed when the slot turns out to be ours still.
            State::Draining { cause: Cause::LeaseLost, .. } => self.state = State::Draining { cause, deadline },
            State::Draining { .. } | State::Purging { .. } | State::Renewing | State::Resting { .. } => {}
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
        let leased = self.lease.is_some_and(|proof| now < proof + self.lease_lasts);
        match self.producer.state {
            State::Good => {
                if nothing_left && self.ledger.lost() == 0 {
                    self.producer.trouble = None;
                }
            }
            State::Renewing => {}
            State::Draining { cause: Cause::LeaseLost, .. } if leased => self.producer.state = State::Good,
            State::Draining { cause, deadline } if nothing_left || over(deadline) => {
                self.purge_everything(now);
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
            State::Draining { cause: Cause::Delivery, .. } => self.purge_queue(now),
            State::Draining { cause: Cause::LeaseLost, .. } | State::Purging { .. } | State::Resting { .. } => {}
        }
    }

    /// The producer is broken: what is queued would get no answer and keep the others waiting, and batches that come
    /// back from the broker are queued again.
    fn purge_queue(&mut self, now: Instant) {
        if self.producer.purge_queue_at.is_none_or(|at| now >= at) {
            self.producer.purge_queue_at = Some(now + PURGE_QUEUE_EVERY);
            // One of those that came back may be in its topic all the same.
            self.unknown_until = Some(now + self.settings.sender_timeout);
            self.actions.push_back(Action::Purge(Purge::Queued));
        }
    }

    /// The server's history is another one: forget the old one's rows, and whatever of them is still in flight.
    pub(super) fn begin_another_history(&mut self, confirmed: Lsn, now: Instant) {
        self.careful.clear();
        self.producer.guilty.clear();
        self.forget_letters(Position { commit: confirmed, row: 0 }, now);
        if self.ledger.inflight() > 0 {
            self.purge_everything(now);
            self.replace_producer(Cause::Delivery);
        }
        self.ledger.restart(confirmed);
    }

    fn purge_everything(&mut self, now: Instant) {
        if self.ledger.inflight() > 0 {
            self.unknown_until = Some(now + self.settings.sender_timeout);
        }
        self.actions.push_back(Action::Purge(Purge::Everything));
    }

    /// A producer that was replaced is taken apart: only now is it certain that it has purged what it was told to, and
    /// sends nothing more. What it had sent may land from now on: the process may have slept since that was decided.
    pub fn retired(&mut self, now: Instant) {
        self.retiring -= 1;
        self.unknown_until = self.unknown_until.map(|end| end.max(now + self.settings.sender_timeout));
    }

    fn replace_producer(&mut self, cause: Cause) {
        self.ledger.renew();
        self.careful.renewed();
        self.producer.state = State::Renewing;
        self.retiring += 1;
        self.actions.push_back(Action::NewProducer);
        if cause == Cause::LeaseLost {
            self.leave_session(Why::LeaseLost);
        }
        let guilty = std::mem::take(&mut self.producer.guilty);
        let (Some(trouble), Some(newest), Some(&position)) =
            (&self.producer.trouble, self.ledger.newest(), guilty.first())
        else {
            return;
        };
        if self.careful.refused(&trouble.topic, guilty.len(), newest) {
            // The server sends it again, and then it is parked.
            self.letters.condemned.insert(position, refusal(trouble));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(whose: Whose, topic: &str) -> Failure {
        Failure { whose, topic: topic.to_owned(), message: format!("{whose:?} of {topic}"), too_large: false }
    }

    fn at(row: u64) -> Position {
        Position { commit: Lsn(10), row }
    }

    #[test]
    fn the_gravest_failure_of_a_round_tells_the_story_and_only_its_topic_is_searched() {
        let now = Instant::now();
        let mut producer = Producer::default();
        producer.failed(failure(Whose::World, "a"), at(1), now);
        producer.failed(failure(Whose::Event, "b"), at(2), now);
        producer.failed(failure(Whose::Event, "c"), at(3), now);
        producer.failed(failure(Whose::Event, "b"), at(4), now);
        producer.failed(failure(Whose::SetUp, "b"), at(5), now);
        assert_eq!(producer.trouble(), Some(&failure(Whose::Event, "b")));
        assert_eq!(producer.guilty, [at(2), at(4)]);
    }

    #[test]
    fn an_earlier_rounds_refusal_neither_accuses_nor_hurries_the_next_round() {
        let now = Instant::now();
        let mut producer = Producer::default();
        producer.failed(failure(Whose::Event, "a"), at(1), now);
        producer.renewed(now, Duration::from_secs(10));
        assert_eq!(producer.state, State::Resting { until: now });
        producer.state = State::Good;
        producer.failed(failure(Whose::World, "b"), at(2), now);
        assert_eq!((producer.trouble(), producer.guilty.len()), (Some(&failure(Whose::World, "b")), 0));
        producer.renewed(now, Duration::from_secs(10));
        assert_eq!(producer.state, State::Resting { until: now + FIRST_REST * 2 });
    }

    #[test]
    fn rests_grow_until_something_succeeds_and_never_beyond_the_longest() {
        let now = Instant::now();
        let mut producer = Producer::default();
        let rest = |producer: &mut Producer| {
            producer.failed(failure(Whose::World, "a"), at(1), now);
            producer.renewed(now, Duration::from_secs(1));
            let State::Resting { until } = producer.state else { panic!("it rests") };
            producer.state = State::Good;
            (until - now).as_millis()
        };
        assert_eq!([0; 4].map(|_| rest(&mut producer)), [200, 400, 800, 1000]);
        producer.succeeded();
        assert_eq!(producer.trouble(), None);
        assert_eq!(rest(&mut producer), 200);
    }
}
