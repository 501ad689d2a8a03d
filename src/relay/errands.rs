//! What is done beside the stream, regularly and in tasks: questions about topics, looks at the database, the status.

use std::time::{Duration, Instant, SystemTime};

use super::clerk::Errand;
use super::link::Link;
use super::probe::{self, Probe, Seen};
use super::session::{self, Closed};
use super::writer::{Looked, Written};
use super::{Relay, TICK};
use crate::error::{Error, Result};
use crate::lsn::Lsn;
use crate::sink::kafka::{Answer, Scope};
use crate::source::System;
use crate::source::catalog::{Claim, Place};
use crate::status::SlotFacts;

/// How often the cluster is asked about topics that events wait for, and about all topics.
const TOPICS_WAITING: Duration = Duration::from_secs(1);
const TOPICS_ALL: Duration = Duration::from_secs(60);
/// How often the position is written while events are settled.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// The writing of the position.
pub(super) struct Saving {
    due: Instant,
    under_way: bool,
    /// What was written last.
    last: Option<Save>,
}

impl Saving {
    pub(super) fn from(now: Instant) -> Saving {
        Saving { due: now + SAVE_EVERY, under_way: false, last: None }
    }

    /// What was written counts no more.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// True when the server does not know any more what it once took: it was put back to an older state.
    pub(super) fn is_forgotten(&self, place: &Place) -> bool {
        self.last.as_ref().is_some_and(|last| last.system == place.system && place.confirmed < last.confirmed)
    }
}

/// One writing of the position.
pub(super) struct Save {
    /// When its session began.
    since: Instant,
    system: System,
    confirmed: Lsn,
    /// How many events were published by then.
    published: u64,
}

/// When the regular things are due.
pub(super) struct Due {
    pub(super) probe: Instant,
    topics_waiting: Instant,
    topics_all: Instant,
    show: Instant,
}

impl Due {
    pub(super) fn from(now: Instant) -> Due {
        Due { probe: now, topics_waiting: now, topics_all: now + TOPICS_ALL, show: now }
    }
}

/// What a task ended with.
pub(super) enum Done {
    Probe(Instant, Box<std::result::Result<Probe, Closed>>),
    Topics(Vec<Answer>),
    Retired,
    /// Our name is on the slot, for the session that began then.
    Claimed(Instant, Result<()>),
    Saved(Save, Result<Claim>),
    Errand(Errand),
    Written(Box<Written>),
    Looked(Box<Looked>),
    /// Something was taken apart, which concerns nobody.
    Nothing,
    Http(Result<()>),
}

impl Relay {
    pub(super) fn done(&mut self, done: std::result::Result<Done, tokio::task::JoinError>) {
        let done = match done {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return,
        };
        match done {
            Done::Retired => self.pipeline.retired(Instant::now()),
            Done::Claimed(since, result) => self.claimed(since, result),
            Done::Saved(save, result) => self.saved(save, result),
            Done::Errand(errand) => self.errand_done(errand),
            Done::Written(written) => self.written(*written),
            Done::Looked(looked) => self.looked_at_standbys(*looked),
            Done::Nothing => {}
            Done::Topics(answers) => {
                self.question_out = false;
                let now = Instant::now();
                if let Some(failure) = self.sink.learn(answers, now) {
                    self.pipeline.broke(failure, now);
                }
            }
            Done::Http(Ok(())) => {}
            Done::Http(Err(error)) => self.fail(error),
            Done::Probe(asked, result) => {
                self.errand_out = false;
                self.probed(asked, *result);
            }
        }
    }

    fn probed(&mut self, asked: Instant, result: std::result::Result<Probe, Closed>) {
        let now = Instant::now();
        match result {
            Ok(probe) => {
                // An answer about an older session, or by another server, says nothing about this one.
                let ours = !probe.server.in_recovery && probe.server.system.is_none_or(|it| Some(it) == self.system);
                if ours && matches!(&self.link, Link::Up(live) if live.since < asked) {
                    self.pipeline.dated(probe.clock);
                    match probe.sender {
                        Seen::At(moment) => {
                            self.pipeline.proved(moment);
                            self.pipeline.heard(probe.slot.confirmed.unwrap_or_default());
                        }
                        Seen::Gone => self.pipeline.overtaken(),
                        Seen::Unasked => {}
                    }
                }
                let facts = SlotFacts {
                    at: SystemTime::now(),
                    retained_bytes: probe.slot.retained_bytes,
                    safe_bytes: probe.slot.safe_wal_size,
                    wal_status: probe.slot.wal_status.unwrap_or_default(),
                };
                self.board.slot_facts(facts, probe.server.wal_lsn);
                if let Err(error) = probe.publication {
                    self.not_probed(asked, Closed::Failed(error), now);
                }
            }
            Err(closed) => self.not_probed(asked, closed, now),
        }
    }

    fn not_probed(&mut self, asked: Instant, closed: Closed, now: Instant) {
        let Some(error) = closed.error() else { return };
        let stopping = matches!(error.sqlstate(), Some("57P01" | "57P03"));
        if closed.is_final(self.streamed) && error.sqlstate().is_none() {
            // What we found wrong ourselves is final; what the server said to this one question need not be.
            self.close(closed);
        } else if stopping && matches!(&self.link, Link::Up(live) if live.since < asked) {
            // A server that is starting up says the same, but then it has no stream for us.
            if self.pipeline.server_stopping(now) {
                tracing::info!(error = error.chain(), "PostgreSQL is shutting down");
            }
        } else {
            tracing::debug!(error = error.chain(), "the database could not be asked");
        }
    }

    /// The regular things: questions about topics, probes, the status.
    pub(super) fn keep_up(&mut self, now: Instant) {
        if now < self.due.show {
            return;
        }
        self.due.show = now + TICK;
        // A broker keeps silent about a topic that is gone: ask for it, rather than wait for the round.
        let silent = self.silence(now).is_some();
        let all = now >= self.due.topics_all || silent;
        self.sink.records_wait(silent);
        let scope = if all { Scope::All } else { Scope::Waiting };
        if !self.question_out
            && now >= self.due.topics_waiting
            && let Some(question) = self.sink.question(scope)
        {
            self.question_out = true;
            self.due.topics_waiting = now + TOPICS_WAITING;
            if scope == Scope::All {
                self.due.topics_all = now + TOPICS_ALL;
            }
            self.tasks.spawn_blocking(move || Done::Topics(question.ask()));
        }
        if !self.errand_out && now >= self.due.probe && self.streamed {
            self.send_probe(now);
        }
        self.send_save(now);
        self.count_oddities();
        self.show(now);
        let (silent, received) = (self.mute(now), self.pipeline.received());
        self.patience.heard(received);
        if matches!(self.link, Link::Up(_)) && self.patience.is_over(silent) {
            self.patience.was_over(received);
            // SQL may prove the slot to be ours all the while: only the way from the server to us is dead.
            let silent = humantime::format_duration(Duration::from_secs(silent.as_secs()));
            self.lost(Error::transient(format!("PostgreSQL has sent nothing for {silent}, although asked")));
        }
    }

    fn send_probe(&mut self, now: Instant) {
        self.errand_out = true;
        // Often enough to renew the lease while keepalives wait unread behind rows.
        let sender_timeout = self.wanted.postgres.sender_timeout;
        self.due.probe = now + self.wanted.limits.probe.min(sender_timeout / 6);
        // Only the host that streams can say whether it is shutting down.
        let (wanted, backend_pid) = match &self.link {
            Link::Up(live) => (self.wanted.at(&live.host), Some(live.backend_pid)),
            Link::Down { .. } | Link::Opening(_) | Link::Leaving(..) => (self.wanted.clone(), None),
        };
        self.tasks.spawn(async move {
            let within = (sender_timeout / 3).max(Duration::from_secs(1));
            let late = || Err(Closed::Unreached(Error::transient("the database did not answer in time")));
            let result = tokio::time::timeout(within, probe::probe(wanted, backend_pid)).await;
            Done::Probe(now, Box::new(result.unwrap_or_else(|_| late())))
        });
    }

    /// The fence has ended: puts our name on the slot.
    pub(super) fn send_claim(&mut self) {
        let (Link::Up(live), Some(system)) = (&self.link, self.system) else { return };
        let (since, backend_pid, wanted) = (live.since, live.backend_pid, self.wanted.at(&live.host));
        self.tasks.spawn(async move { Done::Claimed(since, session::claim(wanted, system, backend_pid).await) });
    }

    fn claimed(&mut self, since: Instant, result: Result<()>) {
        if !matches!(&self.link, Link::Up(live) if live.since == since) {
            return;
        }
        match result {
            Ok(()) => {
                self.has_claimed = true;
                self.unclaimed = None;
                self.pipeline.claimed();
            }
            // A right that is missing from the start does not come by waiting.
            Err(error) if error.is_definite() && !self.has_claimed => self.fail(error),
            Err(error) => {
                tracing::warn!(error = error.chain(), "cannot put our name on the slot");
                self.unclaimed = Some(error);
                self.pipeline.claim_failed(Instant::now());
            }
        }
    }

    /// Writes the position when events were settled since it was last written: a keepalive alone is no reason to write
    /// WAL. While we wait for the one before us, its name stands there, and the position is its own.
    fn send_save(&mut self, now: Instant) {
        let (Link::Up(live), Some(system)) = (&self.link, self.system) else { return };
        let (published, confirmed) = (self.board.status.published, self.pipeline.confirmed());
        let news = self.saving.last.as_ref().map_or(0, |last| last.published) < published;
        if self.saving.under_way || !news || now < self.saving.due || self.pipeline.is_fencing() {
            return;
        }
        (self.saving.under_way, self.saving.due) = (true, now + SAVE_EVERY);
        let (save, wanted) = (Save { since: live.since, system, confirmed, published }, self.wanted.at(&live.host));
        self.tasks.spawn(async move {
            let result = session::save(wanted, save.system, save.confirmed).await;
            Done::Saved(save, result)
        });
    }

    fn saved(&mut self, save: Save, result: Result<Claim>) {
        self.saving.under_way = false;
        match result {
            Ok(Claim::Ours) => self.saving.last = Some(save),
            Ok(Claim::Lost) if matches!(&self.link, Link::Up(live) if live.since == save.since) => {
                self.pipeline.overtaken();
            }
            Ok(Claim::Lost) => {}
            // Events flow all the same; what suffers is what people and a successor read there.
            Err(error) => tracing::warn!(error = error.chain(), "the position cannot be written"),
        }
    }

    fn count_oddities(&mut self) {
        let odd = self.pipeline.oddities();
        if odd.not_transactional > 0 && self.odd.not_transactional == 0 {
            tracing::warn!(
                "a logical message with an outbox prefix was not transactional: such messages are never published"
            );
        }
        for _ in self.odd.stray_aborts..odd.stray_aborts {
            self.metrics.stray_stream_abort();
        }
        for _ in self.odd.not_transactional..odd.not_transactional {
            self.metrics.ignored_message();
        }
        self.odd = odd;
    }
}
