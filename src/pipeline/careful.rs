//! Careful mode: after a broker refused a batch, find the guilty record without harming its neighbours.
//!
//! A broker refuses a whole batch and does not say which record it disliked. So the topic's records, up to the newest
//! one offered before the refusal, are offered few at a time, half as many after each refusal, until one fails alone.

use std::collections::VecDeque;

use crate::lsn::Position;
use crate::record::Rejected;
use crate::source::outbox::Row;

#[derive(Debug)]
pub(super) struct Careful {
    topic: String,
    /// The last row that may have been part of the refused batch.
    until: Position,
    /// How many of the topic's records may be in flight.
    limit: usize,
    inflight: VecDeque<Position>,
    /// The id of the record offered last.
    event: String,
}

impl Careful {
    /// The next round, after these rows of the topic were refused; or the guilty one.
    pub(super) fn after(
        before: Option<Careful>,
        topic: &str,
        guilty: &[Position],
        newest: Position,
    ) -> Result<Careful, Rejected> {
        let (limit, until, event) = match before {
            Some(before) if before.topic == topic && before.limit == 1 => {
                let position = guilty[0];
                return Err(Rejected { position, event: before.event, reason: "refused", message: String::new() });
            }
            Some(before) if before.topic == topic => (before.limit / 2, before.until.max(newest), before.event),
            Some(_) | None => (guilty.len() / 2, newest, String::new()),
        };
        Ok(Careful { topic: topic.to_owned(), until, limit: limit.max(1), inflight: VecDeque::new(), event })
    }

    /// True while this row must wait. Ends careful mode behind its last row.
    pub(super) fn holds(careful: &mut Option<Careful>, topic: &str, position: Position) -> bool {
        let Some(state) = careful else { return false };
        if position <= state.until {
            return state.topic == topic && state.inflight.len() >= state.limit;
        }
        let busy = !state.inflight.is_empty();
        if !busy {
            *careful = None;
        }
        busy
    }

    pub(super) fn offered(&mut self, topic: &str, row: &Row<'_>) {
        if self.topic == topic {
            self.inflight.push_back(row.position);
            self.event = row.id();
        }
    }

    pub(super) fn answered(&mut self, position: Position) {
        self.inflight.retain(|inflight| *inflight != position);
    }
}
