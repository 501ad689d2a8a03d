//! Rows that waited for their payload leave before the next message is read, in the order of their positions.

use std::time::Instant;

use super::{Flow, Pipeline};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::outbox::Given;
use crate::source::pgoutput::Message;

impl Pipeline {
    /// Lets go of everything that may leave before this message. `Held`: the first of it cannot leave now, and stays the first.
    #[cold]
    pub(super) fn release(&mut self, message: &Message<'_>, now: Instant, sink: &mut impl Sink) -> Result<Flow> {
        if let Message::Commit { .. } = message {
            self.outbox.end_waiting();
        }
        while let Some(row) = self.outbox.next_waiting() {
            match self.step(Given::Waiting(&row), now, sink) {
                Ok(Flow::Taken) => self.outbox.released(row),
                held_or_failed => {
                    self.outbox.put_back(row);
                    return held_or_failed;
                }
            }
        }
        Ok(Flow::Taken)
    }
}
