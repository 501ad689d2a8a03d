//! What the clerk comes back with.

use std::time::{Duration, Instant};

use super::counter::STANDBY_IS_LATE;
use super::{AGAIN, Errand, Kind, LOOK_OPEN, Lanes, Look, Parcel, Pause, Stock, Stored, Storing, Unsure};
use crate::config::UnknownTopic;
use crate::dead_letter::Column;
use crate::error::{Error, Result};
use crate::pipeline::Loaded;
use crate::relay::Relay;
use crate::relay::link::Link;
use crate::source::catalog::{Claim, LetterCounts};
use crate::status::DeadLetters;

/// How often the store is looked at while no letter is open.
const LOOK_EMPTY: Duration = Duration::from_secs(5);
/// What PostgreSQL says of a table that there is not.
const UNDEFINED_TABLE: &str = "42P01";

impl Relay {
    /// The clerk is back.
    pub(in crate::relay) fn errand_done(&mut self, errand: Errand) {
        let (now, kind) = (Instant::now(), errand.kind());
        self.clerk.out = false;
        let trouble = match errand {
            Errand::Stored(pid, numbers, result) => {
                let result = result.inspect_err(|error| self.not_stored(&numbers, error));
                result.map(|storing| self.letters_stored(pid, &numbers, storing, now)).err()
            }
            Errand::Loaded(question, end, result) => {
                self.clerk.load_behind = end.map(|end| (question, end));
                self.letters_loaded(question.0, result, now)
            }
            Errand::Settled(pid, many, result) => result.map(|claim| self.forget_settled(pid, many, claim, now)).err(),
            Errand::Woken(pid, last, result) => {
                result.map(|(claim, is_more)| self.woken(pid, last, claim, is_more, now)).err()
            }
            Errand::Recalled(result) => result.map(|topics| self.recalled(topics)).err(),
            Errand::Remembered(many, result) => result.map(|()| drop(self.clerk.topics.drain(..many))).err(),
            Errand::Paused(pid, result) => result
                .map(|claim| match claim {
                    Claim::Lost => self.claim_lost(pid, now),
                    Claim::Ours if matches!(self.clerk.pause, Pause::ToWrite(_)) => self.clerk.pause = Pause::Written,
                    Claim::Ours => {}
                })
                .err(),
            Errand::Unpaused(result) => result
                .map(|()| {
                    if self.clerk.pause == Pause::ToDelete {
                        self.clerk.pause = Pause::None
                    }
                })
                .err(),
            Errand::Looked(pid, result) => (*result).map(|look| self.looked(pid, look, now)).err(),
            Errand::Completed(id, result) => result.map(|columns| self.complete(id, columns)).err(),
        };
        match trouble {
            None if kind == Kind::Store && self.clerk.waits_long(now) => {
                if self.clerk.troubles.insert(kind, Error::transient(STANDBY_IS_LATE)).is_none() {
                    tracing::warn!("{STANDBY_IS_LATE}: the slot waits before the first dead letter that it lacks");
                }
            }
            None => drop(self.clerk.troubles.remove(&kind)),
            Some(error) => {
                tracing::warn!(error = error.chain(), "the store of dead letters cannot be reached");
                self.clerk.not_before = now + AGAIN;
                if kind == Kind::Look {
                    // Others get their turn.
                    self.clerk.look_at = now + LOOK_OPEN;
                }
                let is_missing = error.sqlstate() == Some(UNDEFINED_TABLE);
                let error = if is_missing { error.hint("outboxd init creates it") } else { error };
                self.clerk.troubles.insert(kind, error);
            }
        }
        // Nobody waits for these any more.
        if self.clerk.letters.is_empty() {
            self.clerk.troubles.remove(&Kind::Store);
        }
        if self.clerk.settle.is_empty() {
            self.clerk.troubles.remove(&Kind::Settle);
        }
        if self.clerk.claimed.is_empty() {
            self.clerk.troubles.remove(&Kind::Complete);
        }
        if matches!(self.clerk.pause, Pause::None | Pause::Written) {
            self.clerk.troubles.remove(&Kind::Pause);
        }
        if !self.clerk.recall {
            self.clerk.troubles.remove(&Kind::Recall);
        }
    }

    /// The table has been asked for what was not kept of a letter.
    fn complete(&mut self, id: i64, columns: Vec<Column>) {
        if let Some(letter) = self.clerk.claimed.front_mut().filter(|letter| letter.id == id) {
            letter.not_kept.retain(|name| !columns.iter().any(|column| column.name == *name));
            letter.columns.extend(columns);
            self.clerk.completed = Some(id);
        }
    }

    /// Nothing was written, because the slot is not ours by this walsender. In another session since, it is simply tried again.
    fn claim_lost(&mut self, pid: i32, now: Instant) {
        self.clerk.not_before = now + AGAIN;
        if self.is_session_of(pid) {
            self.pipeline.overtaken();
        }
    }

    fn is_session_of(&self, pid: i32) -> bool {
        matches!(&self.link, Link::Up(live) if live.backend_pid == pid)
    }

    /// They are in the database; those that standbys have, too, are done.
    fn letters_stored(&mut self, pid: i32, numbers: &[u64], storing: Storing, now: Instant) {
        let Storing::Done(end, standbys) = storing else { return self.claim_lost(pid, now) };
        let stored = end.map(|end| Stored { end, since: now });
        for parcel in self.clerk.letters.iter_mut().filter(|parcel| numbers.contains(&parcel.number)) {
            parcel.stored = stored;
            if let (Some(unsure), Some(lane)) = (&mut self.clerk.unsure, parcel.lane()) {
                unsure.open.insert(lane);
            }
        }
        self.clerk.one_by_one &= self.clerk.letters.iter().any(|parcel| parcel.stored.is_none());
        if let Some(counts) = &mut self.board.status.dead_letters {
            counts.pending += numbers.len() as u64;
        }
        let have = |stored: Stored| standbys.is_none_or(|standbys| stored.end <= standbys);
        let is_done = |parcel: &&Parcel| parcel.stored.is_some_and(have);
        let done: Vec<u64> = self.clerk.letters.iter().filter(is_done).map(|parcel| parcel.number).collect();
        if done.is_empty() {
            return;
        }
        self.clerk.letters.retain(|parcel| !is_done(&parcel));
        for number in &done {
            self.pipeline.stored(*number);
        }
        // Those that are due at once are claimed soon.
        self.clerk.look_at = self.clerk.look_at.min(now + LOOK_OPEN);
    }

    /// What a letter holds may be more than the server takes: then it is tried alone, and at last with less.
    fn not_stored(&mut self, numbers: &[u64], error: &Error) {
        if !error.sqlstate().is_some_and(|code| code.starts_with("22") || code.starts_with("54")) {
            return;
        }
        self.clerk.one_by_one = true;
        if let [number] = numbers
            && let Some(parcel) = self.clerk.letters.iter_mut().find(|parcel| parcel.number == *number)
        {
            tracing::warn!(position = %parcel.letter.position, "the dead letter is stored without what the server does not take");
            if !parcel.letter.make_plain() {
                parcel.letter.leave_large_out();
            }
        }
    }

    fn letters_loaded(&mut self, serial: u64, result: Result<Stock>, now: Instant) -> Option<Error> {
        if self.clerk.load.is_some_and(|(wanted, _)| wanted == serial) {
            self.clerk.load = None;
        }
        match result {
            Ok(Stock { letters, until, lanes, pause, topics }) => {
                self.sink.existed(topics);
                if pause.is_some() {
                    self.clerk.pause = Pause::Written;
                }
                self.pipeline.letters_loaded(Loaded { serial, letters, until, lanes, pause });
                None
            }
            Err(error) => {
                self.pipeline.letters_not_loaded(serial, now);
                // A table that is missing does not come by waiting.
                if error.sqlstate() == Some(UNDEFINED_TABLE) {
                    self.fail(error.hint("outboxd init creates it"));
                    return None;
                }
                Some(error)
            }
        }
    }

    fn recalled(&mut self, topics: Vec<String>) {
        self.sink.existed(topics);
        if std::mem::take(&mut self.clerk.recall) {
            self.sink.set_unknown_topic(UnknownTopic::Park);
        }
    }

    fn woken(&mut self, pid: i32, last: u64, claim: Claim, is_more: bool, now: Instant) {
        match claim {
            Claim::Lost => self.claim_lost(pid, now),
            Claim::Ours => {
                // There may have been another reload meanwhile.
                self.clerk.wake.take_if(|wanted| !is_more && *wanted == last);
                self.clerk.look_at = now;
            }
        }
    }

    fn forget_settled(&mut self, pid: i32, many: usize, claim: Claim, now: Instant) {
        match claim {
            // Others may have come since.
            Claim::Ours => drop(self.clerk.settle.drain(..many)),
            Claim::Lost => self.claim_lost(pid, now),
        }
        self.clerk.look_at = now;
    }

    /// A key that goes live must not be found parked by whoever follows: standbys know first that its last letter is settled.
    fn lanes_shown(&mut self, pid: i32, Lanes { mut open, end, known }: Lanes) {
        match known {
            // Of a session that has ended, and so perhaps of another server.
            _ if !self.is_session_of(pid) => {}
            true => {
                open.extend(self.clerk.unsure.take().into_iter().flat_map(|unsure| unsure.open));
                self.pipeline.lanes_open(&open);
            }
            false if self.clerk.unsure.is_none() => {
                tracing::debug!(%end, "keys may go live once standbys have what was written");
                self.clerk.unsure = Some(Unsure { end, open: open.into_iter().collect() });
            }
            false => {}
        }
    }

    fn looked(&mut self, pid: i32, look: Look, now: Instant) {
        if let Some(lanes) = look.lanes {
            self.lanes_shown(pid, lanes);
        }
        match look.pause {
            None if self.clerk.pause == Pause::Written => {
                self.clerk.pause = Pause::None;
                tracing::info!("a person has said that the line shall go on");
                self.pipeline.resumed();
            }
            // What is to be deleted was there when this was asked.
            Some(_) if self.clerk.pause == Pause::ToDelete => {}
            Some(message) if self.clerk.pause == Pause::None || self.pipeline.paused().is_none() => {
                self.clerk.pause = Pause::Written;
                self.pipeline.stands(message);
            }
            Some(_) | None => {}
        }
        if let Some(LetterCounts { pending, retrying, delivered, failed, discarded, oldest }) = look.counts {
            let counts = DeadLetters { pending, retrying, delivered, failed, discarded, oldest };
            self.board.status.dead_letters = Some(counts);
        }
        let is_open = |letters: &DeadLetters| letters.pending + letters.retrying > 0;
        let is_busy = self.board.status.dead_letters.as_ref().is_some_and(is_open)
            || self.pipeline.paused().is_some()
            || self.pipeline.has_parked_lanes();
        self.clerk.look_at = now + if is_busy { LOOK_OPEN } else { LOOK_EMPTY };
        if !look.claimed.is_empty() {
            self.sink.begin_trials(now);
        }
        self.clerk.completed = None;
        self.clerk.claimed.extend(look.claimed);
    }
}
