//! What the clerk is sent with: the errand whose turn it is.

use std::time::{Duration, Instant};

use super::counter::{CLAIM, Looking, complete, connect, load, recall, remember, settle, store, wake};
use super::{BATCH, Errand, Kind, LOOK_OPEN, Parcel, Pause, Settling, Unmarked};
use crate::config::{self, UnknownTopic};
use crate::dead_letter::Outcome;
use crate::relay::errands::Done;
use crate::relay::link::Link;
use crate::relay::session::Wanted;
use crate::relay::{Relay, jittered};
use crate::source::catalog::{self, Desk, SettledLetter};

/// So much of letters is stored at a time, or one.
const BATCH_BYTES: u64 = 8 << 20;
/// How often letters are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// How often old letters are deleted.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// How long a letter that could not be tried waits.
const PUT_BACK: Duration = Duration::from_secs(5);

impl Relay {
    /// Hands the next claimed letter to the pipeline, and sends the next errand out.
    pub(in crate::relay) fn keep_clerk_busy(&mut self, now: Instant) {
        self.try_letters(now);
        if let Some(failed) = self.sink.failed_trials() {
            self.tasks.spawn_blocking(move || {
                drop(failed);
                Done::Nothing
            });
        }
        if let config::Store::Kafka(topic) = &self.wanted.dead_letter.store {
            let topic = topic.clone();
            self.write_letters(&topic, now);
        }
        self.note_topics();
        if self.clerk.out || now < self.clerk.not_before || !self.clerk.has_work(&self.pipeline, now) {
            return;
        }
        let Some((desk, wanted)) = self.desk() else { return };
        let is_in_database = wanted.dead_letter.store == config::Store::Postgres;
        self.clerk.wake.take_if(|_| !is_in_database);
        // Whoever parks all the time must not keep others from being tried.
        let is_late = now >= self.clerk.look_at + LOOK_OPEN;
        let others_wait =
            !self.settled(1, now).is_empty() || self.clerk.has_more(&self.pipeline) || now >= self.clerk.look_at;
        let may_store = is_in_database && !is_late && !(self.clerk.stored_last && others_wait);
        if let Some(question) = self.clerk.load {
            let end = self.clerk.load_behind.filter(|(of, _)| *of == question).map(|(_, end)| end);
            self.errand(async move {
                let (end, result) = load(wanted, desk, question.1, end).await;
                Errand::Loaded(question, end, result)
            });
        } else if !self.clerk.troubles.contains_key(&Kind::Settle) && self.send_outcomes(&desk, &wanted)
            || may_store && self.send_letters(&desk, &wanted)
            || !is_late && self.send_outcomes(&desk, &wanted)
        {
        } else if let Some(letter) = self.clerk.incomplete(&self.pipeline).filter(|_| !is_late) {
            let (columns, letter) = (self.pipeline.lacks(letter), letter.clone());
            self.errand(async move { Errand::Completed(letter.id, complete(wanted, &letter, columns).await) });
        } else if let Some(last) = self.clerk.may_wake().filter(|_| !is_late) {
            self.errand(async move { Errand::Woken(desk.pid, last, wake(wanted, desk).await) });
        } else if !is_late && self.clerk.recall {
            self.errand(async move { Errand::Recalled(recall(wanted, desk).await) });
        } else if !is_late && !self.clerk.topics.is_empty() {
            let topics = self.clerk.topics.clone();
            self.errand(async move { Errand::Remembered(topics.len(), remember(wanted, desk, topics).await) });
        } else {
            self.send_clerk_to_look(desk, wanted, now);
        }
    }

    /// Sends the clerk with what became of letters; false when there is nothing. It comes first, because whoever is not told that
    /// a letter is delivered delivers it again, unless it cannot be written.
    fn send_outcomes(&mut self, desk: &Desk, wanted: &Wanted) -> bool {
        let settled = self.settled(BATCH, Instant::now());
        let (many, desk, wanted) = (settled.len(), desk.clone(), wanted.clone());
        if many > 0 {
            self.errand(async move { Errand::Settled(desk.pid, many, settle(wanted, desk, settled).await) });
        }
        many > 0
    }

    /// Where events for unknown topics are parked, it matters which topics have existed, also to those that come after us.
    fn note_topics(&mut self) {
        let news = self.sink.take_news();
        let settings = &self.wanted.dead_letter;
        if settings.unknown_topic == UnknownTopic::Park && settings.store == config::Store::Postgres {
            self.clerk.topics.extend(news);
        }
    }

    /// What becomes of events for unknown topics may be something else now.
    pub(in crate::relay) fn unknown_topics_anew(&mut self) {
        let settings = &self.wanted.dead_letter;
        let (wanted, is_in_database) = (settings.unknown_topic, settings.store == config::Store::Postgres);
        self.clerk.recall = is_in_database && wanted == UnknownTopic::Park && self.sink.unknown_topic() != wanted;
        match self.clerk.recall {
            // While events waited, nobody wrote this down for those that come after us.
            true => self.clerk.topics.extend(self.sink.seen_topics()),
            false => self.sink.set_unknown_topic(wanted),
        }
    }

    /// Hands claimed letters to the pipeline, one after the other.
    fn try_letters(&mut self, now: Instant) {
        while !self.pipeline.is_trying()
            && let Some(letter) = self.clerk.claimed.pop_front()
        {
            if now >= self.clerk.claimed_until {
                self.put_back(letter);
                continue;
            }
            let is_whole = self.clerk.completed == Some(letter.id) || self.pipeline.lacks(&letter).is_empty();
            if !is_whole || !self.pipeline.try_again(&letter, now, &mut self.sink) {
                self.clerk.claimed.push_front(letter);
                return;
            }
        }
    }

    /// Sends the clerk with letters to be stored; false when there are none.
    fn send_letters(&mut self, desk: &Desk, wanted: &Wanted) -> bool {
        let pipeline = &self.pipeline;
        self.clerk.letters.retain(|parcel| pipeline.wants_stored(parcel.number));
        let (mut bytes, most) = (0, if self.clerk.one_by_one { 1 } else { BATCH });
        let fits = |parcel: &&Parcel| {
            let first = bytes == 0;
            bytes += parcel.letter.weight();
            first || bytes <= BATCH_BYTES
        };
        let others = self.clerk.letters.iter().filter(|parcel| parcel.stored.is_none());
        let batch: Vec<Parcel> = others.clone().take(most).take_while(fits).cloned().collect();
        let first = self.clerk.letters.iter().find_map(|parcel| parcel.stored).map(|stored| stored.end);
        if batch.is_empty() && first.is_none() {
            return false;
        }
        // With the last of them standbys are waited for.
        let (is_last, patience) = (others.count() == batch.len(), self.patience_with_letters());
        let (desk, wanted) = (desk.clone(), wanted.clone());
        self.errand(async move {
            let numbers = batch.iter().map(|parcel| parcel.number).collect();
            let (pid, result) = (desk.pid, store(wanted, desk, batch, first, is_last, patience).await);
            Errand::Stored(pid, numbers, result)
        });
        self.clerk.stored_last = true;
        true
    }

    fn send_clerk_to_look(&mut self, desk: Desk, wanted: Wanted, now: Instant) {
        // Not for ever before a look: that the line goes on may not be possible to write, and a person says it there.
        let is_turn = !self.clerk.troubles.contains_key(&Kind::Pause) || now < self.clerk.look_at;
        match &self.clerk.pause {
            Pause::ToWrite(message) if is_turn => {
                let message = message.clone();
                self.errand(async move {
                    Errand::Paused(desk.pid, async { connect(&wanted).await?.pause(&desk, &message).await }.await)
                });
            }
            Pause::ToDelete if is_turn => {
                self.errand(async move {
                    Errand::Unpaused(async { connect(&wanted).await?.resume(&desk.slot).await.map(drop) }.await)
                });
            }
            _ if now >= self.clerk.look_at => {
                self.clerk.claims += 1;
                if self.clerk.claimed.is_empty() {
                    self.clerk.claimed_until = now + CLAIM / 2;
                }
                let may_go_live = self.pipeline.has_parked_lanes();
                self.clerk.unsure.take_if(|_| !may_go_live);
                let is_in_database = wanted.dead_letter.store == config::Store::Postgres;
                let is_idle = self.clerk.claimed.is_empty() && self.clerk.settle.is_empty();
                let may_claim = is_in_database && is_idle && self.writer.has_room_for_letters();
                let look = Looking {
                    owner: format!("{}#{}", desk.leader, self.clerk.claims),
                    before: self.pipeline.may_try(now).filter(|_| may_claim),
                    lanes: may_go_live,
                    behind: self.clerk.unsure.as_ref().map(|unsure| unsure.end),
                    order: self.wanted.dead_letter.order,
                    count: is_in_database && now >= self.clerk.count_at,
                    forget: (is_in_database && now >= self.clerk.forget_at)
                        .then_some((self.pipeline.told(), self.wanted.dead_letter.retention)),
                };
                if look.count {
                    self.clerk.count_at = now + COUNT_EVERY;
                }
                if look.forget.is_some() {
                    self.clerk.forget_at = now + FORGET_EVERY;
                }
                self.errand(async move { Errand::Looked(desk.pid, Box::new(look.at(wanted, desk).await)) });
            }
            _ => {}
        }
    }

    fn errand(&mut self, errand: impl Future<Output = Errand> + Send + 'static) {
        (self.clerk.out, self.clerk.stored_last) = (true, false);
        self.tasks.spawn(async { Done::Errand(errand.await) });
    }

    /// Who writes, and where; `None` while the slot is not ours.
    pub(super) fn desk(&self) -> Option<(Desk, Wanted)> {
        let (Link::Up(live), Some(system)) = (&self.link, self.system) else { return None };
        if self.pipeline.is_fencing() {
            return None;
        }
        let (slot, leader) = (self.wanted.postgres.slot.clone(), self.wanted.leader.clone());
        Some((Desk { slot, leader, system, pid: live.backend_pid }, self.wanted.at(&live.host)))
    }

    fn patience_with_letters(&self) -> catalog::Patience {
        let settings = &self.wanted.dead_letter;
        let (first, longest) = (jittered(settings.backoff.pause(1)), jittered(settings.backoff.max));
        catalog::Patience { attempts: settings.max_attempts, first, longest }
    }

    pub(super) fn settled(&self, most: usize, now: Instant) -> Vec<SettledLetter> {
        let backoff = self.wanted.dead_letter.backoff;
        let is_elsewhere = |row: Unmarked| Some(row.system) != self.system;
        let settled = |settling: &Settling| {
            let mut outcome = settling.outcome.clone();
            if settling.row.is_some_and(is_elsewhere) {
                // Nobody marks its row any more: it is tried again, and its row marked then.
                outcome.undo();
            }
            let pause = match outcome {
                Outcome::PutBack => PUT_BACK,
                Outcome::Waits(_) => jittered(backoff.max),
                Outcome::Delivered | Outcome::Rejected(_) => jittered(backoff.pause(settling.attempts + 1)),
            };
            SettledLetter { id: settling.id, owner: settling.owner.clone(), outcome, pause }
        };
        let may_go = |settling: &&Settling| settling.row.is_none_or(|row| now >= row.until || is_elsewhere(row));
        self.clerk.settle.iter().take_while(may_go).take(most).map(settled).collect()
    }
}
