//! Receipts that are written, and that the standbys of a failover slot may not have yet.
//!
//! Batches enter, each with where the WAL ended once it was written; what they were the receipts of leaves when the standbys have
//! come that far. Each waits for its own place: for where the WAL ends at the moment, standbys that are a few seconds behind would be
//! waited for without end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::pile::Cause;
use crate::lsn::Lsn;
use crate::source::System;

/// How often standbys are looked at while nothing else is to be written.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Behind {
    /// In the order in which they were written, and so of their places.
    batches: VecDeque<Batch>,
    look_at: Instant,
}

struct Batch {
    /// Places of another cluster, or of another timeline, are no places of this one.
    system: System,
    end: Lsn,
    since: Instant,
    causes: Vec<Cause>,
}

impl Behind {
    pub(super) fn new(now: Instant) -> Behind {
        Behind { batches: VecDeque::new(), look_at: now }
    }

    pub(super) fn push(&mut self, system: System, end: Lsn, causes: Vec<Cause>, now: Instant) {
        self.batches.push_back(Batch { system, end, since: now, causes });
    }

    /// Standbys were looked at: whose receipts they have, all of which are let go. `None`: nobody is waited for.
    pub(super) fn reached(&mut self, place: Option<Lsn>, now: Instant) -> Vec<Cause> {
        self.look_at = now + LOOK_EVERY;
        let ready = self.batches.iter().take_while(|batch| place.is_none_or(|place| batch.end <= place)).count();
        self.batches.drain(..ready).flat_map(|batch| batch.causes).collect()
    }

    /// What was written elsewhere, where nobody looks any more.
    pub(super) fn left(&mut self, system: System) -> Vec<Cause> {
        let left = self.batches.iter().take_while(|batch| batch.system != system).count();
        self.batches.drain(..left).flat_map(|batch| batch.causes).collect()
    }

    /// True when somebody is waited for and it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.batches.is_empty() && now >= self.look_at
    }

    /// Nobody could look.
    pub(super) fn put_off(&mut self, until: Instant) {
        self.look_at = until;
    }

    /// Since when the oldest of them waits.
    pub(super) fn since(&self) -> Option<Instant> {
        self.batches.front().map(|batch| batch.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: System = System { id: 1, timeline: 1 };

    fn rows(causes: &[Cause]) -> Vec<u64> {
        let number = |cause: &Cause| match cause {
            Cause::Row(number) => *number,
            Cause::Letter { .. } => unreachable!("there are none"),
        };
        causes.iter().map(number).collect()
    }

    #[test]
    fn receipts_are_let_go_behind_a_standby_that_never_reaches_the_end_of_the_wal() {
        let start = Instant::now();
        let mut behind = Behind::new(start);
        let mut seen = Vec::new();
        for second in 0..60_u32 {
            let now = start + Duration::from_secs(1) * second;
            behind.push(HERE, Lsn(u64::from(second) * 100 + 50), vec![Cause::Row(u64::from(second))], now);
            // Four seconds behind, all the time.
            seen.extend(rows(&behind.reached(Some(Lsn(u64::from(second.saturating_sub(4)) * 100)), now)));
            assert!(behind.since().is_some_and(|since| now <= since + Duration::from_secs(5)) && !behind.is_due(now));
        }
        assert_eq!(seen, (0..55).collect::<Vec<_>>());
        assert_eq!(rows(&behind.reached(None, start)).len(), 5, "where nobody is waited for");
    }

    #[test]
    fn what_was_written_on_another_server_waits_for_nobody_here() {
        let now = Instant::now();
        let mut behind = Behind::new(now);
        let promoted = System { timeline: 2, ..HERE };
        behind.push(HERE, Lsn(900), vec![Cause::Row(1)], now);
        behind.push(promoted, Lsn(100), vec![Cause::Row(2)], now);
        assert_eq!(rows(&behind.left(promoted)), [1]);
        assert_eq!(rows(&behind.reached(Some(Lsn(100)), now)), [2]);
    }
}
