//! What is done beside the stream, regularly and in tasks: questions about topics, looks at the database, the status.

use std::time::{Duration, Instant, SystemTime};

use super::link::Link;
use super::probe::{self, Errand, Probe, Seen};
use super::session::{self, Closed};
use super::{Relay, TICK};
use crate::error::{Error, Result};
use crate::lsn::Lsn;
use crate::sink::kafka::{Finding, Scope};
use crate::source::System;
use crate::source::catalog::Claim;
use crate::status::SlotFacts;

/// How often the cluster is asked about topics that events wait for, and about all topics.
const TOPICS_WAITING: Duration = Duration::from_secs(1);
const TOPICS_ALL: Duration = Duration::from_secs(60);
/// How often the position is written while events are settled.
const SAVE_EVERY: Duration = Duration::from_secs(10);

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
    Topics(Vec<(String, Finding)>),
    Retired,
    /// Our name is on the slot, for the session that began then.
    Claimed(Instant, Result<()>),
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
            Done::Retired => {}
            Done::Claimed(since, result) => self.claimed(since, result),
            Done::Topics(findings) => {
                self.question_out = false;
                self.sink.learn(findings);
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
                        Seen::At(moment) => self.pipeline.proved(moment),
                        Seen::Gone => self.pipeline.overtaken(),
                        Seen::Unasked => {}
                    }
                    match probe.saved {
                        Some(Claim::Ours) => self.saved = (now, self.saving),
                        Some(Claim::Lost) => self.pipeline.overtaken(),
                        None => {}
                    }
                }
                let facts = SlotFacts {
                    at: SystemTime::now(),
                    retained_bytes: probe.slot.retained_bytes,
                    safe_bytes: probe.slot.safe_wal_size,
                    wal_status: probe.slot.wal_status.unwrap_or_default(),
                };
                self.board.slot_facts(facts, probe.server.wal_lsn);
            }
            // What we found wrong ourselves is final; what the server said to this one question need not be.
            Err(closed) if closed.is_final(self.streamed) && closed.error().is_some_and(|e| e.sqlstate().is_none()) => {
                self.close(closed);
            }
            Err(closed) => {
                let Some(error) = closed.error() else { return };
                let stopping = matches!(error.sqlstate(), Some("57P01" | "57P03"));
                // A server that is starting up says the same, but then it has no stream for us.
                if stopping && matches!(&self.link, Link::Up(live) if live.since < asked) {
                    if self.pipeline.server_stopping(now) {
                        tracing::info!(error = error.chain(), "PostgreSQL is shutting down");
                    }
                } else {
                    tracing::debug!(error = error.chain(), "the database could not be asked");
                }
            }
        }
    }

    /// The regular things: questions about topics, probes, the status.
    pub(super) fn keep_up(&mut self, now: Instant) {
        if now < self.due.show {
            return;
        }
        self.due.show = now + TICK;
        // A broker keeps silent about a topic that is gone: ask for it, rather than wait for the round.
        let all = now >= self.due.topics_all || self.silence(now).is_some();
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
        self.count_oddities();
        self.show(now);
        let (silent, published) = (self.mute(now), self.board.status.published);
        if matches!(self.link, Link::Up(_)) && self.patience.is_over(silent, published) {
            self.patience.was_over(published);
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
        let mut wanted = self.wanted.clone();
        let mut errand = Errand { backend_pid: None, save: None };
        if let Link::Up(live) = &self.link {
            errand.backend_pid = Some(live.backend_pid);
            // Only the host that streams can say whether it is shutting down.
            wanted.postgres.connection.hosts = vec![live.host.clone()];
            // While we wait for the one before us, its name stands there, and the position is its own.
            errand.save = if self.pipeline.is_fencing() { None } else { self.position_to_save(now) };
        }
        self.tasks.spawn(async move {
            let within = (sender_timeout / 3).max(Duration::from_secs(1));
            let late = || Err(Closed::Unreached(Error::transient("the database did not answer in time")));
            let result = tokio::time::timeout(within, probe::probe(wanted, errand)).await;
            Done::Probe(now, Box::new(result.unwrap_or_else(|_| late())))
        });
    }

    /// The fence has ended: puts our name on the slot.
    pub(super) fn send_claim(&mut self) {
        let (Link::Up(live), Some(system)) = (&self.link, self.system) else { return };
        let (since, backend_pid, mut wanted) = (live.since, live.backend_pid, self.wanted.clone());
        wanted.postgres.connection.hosts = vec![live.host.clone()];
        self.tasks.spawn(async move { Done::Claimed(since, session::claim(wanted, system, backend_pid).await) });
    }

    fn claimed(&mut self, since: Instant, result: Result<()>) {
        if !matches!(&self.link, Link::Up(live) if live.since == since) {
            return;
        }
        match result {
            Ok(()) => {
                self.has_claimed = true;
                self.pipeline.claimed();
            }
            // A right that is missing from the start does not come by waiting.
            Err(error) if error.is_definite() && !self.has_claimed => self.fail(error),
            Err(error) => {
                tracing::warn!(error = error.chain(), "cannot put our name on the slot");
                self.pipeline.claim_failed(Instant::now());
            }
        }
    }

    /// The position, when events were settled since it was last written: a keepalive alone is no reason to write WAL.
    fn position_to_save(&mut self, now: Instant) -> Option<(System, Lsn)> {
        let (saved_at, published) = self.saved;
        if self.board.status.published == published || now < saved_at + SAVE_EVERY {
            return None;
        }
        self.saving = self.board.status.published;
        self.system.map(|system| (system, self.pipeline.confirmed()))
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
