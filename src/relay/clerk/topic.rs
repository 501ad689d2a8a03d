//! Letters that go into a topic instead of the database: no errands, records of the producer that tries letters.

use std::time::Instant;

use super::{AGAIN, Kind};
use crate::config;
use crate::error::Error;
use crate::relay::Relay;
use crate::sink::{Failure, Untried, Whose};

impl Relay {
    /// Writes letters into their topic, each until it is there.
    pub(super) fn write_letters(&mut self, topic: &str, now: Instant) {
        let (slot, pipeline) = (&self.wanted.postgres.slot, &self.pipeline);
        if now < self.clerk.not_before {
            return;
        }
        self.clerk.letters.retain(|parcel| parcel.sent.is_some() || pipeline.wants_stored(parcel.number));
        let generation = self.sink.trial_generation();
        for parcel in self.clerk.letters.iter_mut().filter(|parcel| parcel.sent != Some(generation)) {
            parcel.sent = None;
        }
        for at in 0..self.clerk.letters.len() {
            if self.clerk.one_by_one && self.clerk.letters.iter().any(|parcel| parcel.sent.is_some()) {
                return;
            }
            let parcel = &mut self.clerk.letters[at];
            if parcel.sent.is_some() {
                continue;
            }
            let trouble = match self.sink.write_letter(topic, parcel.number, &parcel.letter.document(slot)) {
                Ok(()) => {
                    parcel.sent = Some(self.sink.trial_generation());
                    continue;
                }
                Err(Untried::Unknown) => {
                    self.clerk.not_before = now + AGAIN;
                    return;
                }
                Err(Untried::Later) => {
                    self.clerk.not_before = now + AGAIN;
                    let trouble = Error::transient(format!("topic \"{topic}\" cannot be written"));
                    self.clerk.troubles.insert(Kind::Store, trouble);
                    return;
                }
                Err(Untried::Never(problem)) => {
                    if problem.reason == "too_large" {
                        parcel.letter.leave_large_out();
                    }
                    Error::transient(problem.message)
                }
            };
            self.clerk.not_before = now + AGAIN;
            self.clerk.troubles.insert(Kind::Store, trouble);
        }
    }

    /// What became of records that were sent apart from the others: trials, or letters on their way to their topic.
    pub(in crate::relay) fn sent_apart(&mut self, number: i64, result: std::result::Result<(), Failure>) {
        if self.wanted.dead_letter.store == config::Store::Postgres {
            return self.pipeline.tried(number, result);
        }
        match result {
            Ok(()) => {
                self.clerk.troubles.remove(&Kind::Store);
                let number = number.cast_unsigned();
                self.clerk.letters.retain(|parcel| parcel.number != number);
                self.clerk.one_by_one &= !self.clerk.letters.is_empty();
                self.pipeline.stored(number);
            }
            Err(failure) => {
                // A broker refuses a whole batch: whose fault it is shows when one is alone.
                let was_alone = self.clerk.letters.iter().filter(|parcel| parcel.sent.is_some()).count() == 1;
                // What else that producer had is gone with it.
                self.clerk.letters.iter_mut().for_each(|parcel| parcel.sent = None);
                let number = number.cast_unsigned();
                let refused = self.clerk.letters.iter_mut().find(|parcel| parcel.number == number);
                if let Some(parcel) = refused.filter(|_| failure.whose == Whose::Event) {
                    if was_alone && failure.too_large {
                        parcel.letter.leave_large_out();
                    }
                    self.clerk.one_by_one = true;
                }
                self.clerk.not_before = Instant::now() + AGAIN;
                let trouble = format!("topic \"{}\" does not take them: {}", failure.topic, failure.message);
                self.clerk.troubles.insert(Kind::Store, Error::transient(trouble));
            }
        }
    }
}
