//! What is done beside the stream, regularly and in tasks: questions about topics, looks at the database, the status.

use std::time::{Duration, Instant, SystemTime};

use super::link::Link;
use super::probe::{self, Errand, Probe};
use super::session::Closed;
use super::{Relay, TICK};
use crate::error::Result;
use crate::sink::kafka::{Finding, Scope};
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
                if let Some(proof) = probe.proof {
                    self.pipeline.proved(proof);
                }
                if let Some(saved) = probe.saved {
                    self.saved = (now, saved);
                }
                let facts = SlotFacts {
                    at: SystemTime::now(),
                    retained_bytes: probe.slot.retained_bytes,
                    safe_bytes: probe.slot.safe_wal_size,
                    wal_status: probe.slot.wal_status.unwrap_or_default(),
                };
                self.board.slot_facts(facts, probe.server.wal_lsn);
            }
            Err(closed) if closed.is_final(self.streamed) => self.close(closed),
            Err(closed) => {
                let Some(error) = closed.error() else { return };
                let stopping = matches!(error.sqlstate(), Some("57P01" | "57P03"));
                // A server that is starting up says the same, but then it has no stream for us.
                if stopping && matches!(&self.link, Link::Up(live) if live.since < asked) {
                    tracing::info!(error = error.chain(), "PostgreSQL is shutting down");
                    self.pipeline.server_stopping(now);
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
    }

    fn send_probe(&mut self, now: Instant) {
        self.errand_out = true;
        // Often enough to renew the lease while frames wait unread.
        self.due.probe = now + self.wanted.limits.probe.min(self.wanted.postgres.sender_timeout / 6);
        let backend_pid = match &self.link {
            Link::Up(live) => Some(live.backend_pid),
            Link::Down { .. } | Link::Opening(_) | Link::Leaving(..) => None,
        };
        let (saved_at, saved) = self.saved;
        let confirmed = self.pipeline.confirmed();
        let due = self.board.status.published > 0 && confirmed > saved && now >= saved_at + SAVE_EVERY;
        let save = self.system.filter(|_| due && backend_pid.is_some()).map(|system| (system, confirmed));
        let wanted = self.wanted.clone();
        self.tasks
            .spawn(async move { Done::Probe(now, Box::new(probe::probe(wanted, Errand { backend_pid, save }).await)) });
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
