//! The shell: builds the rooms, carries values between them, owns tasks, backoff and shutdown.
//!
//! One loop waits for whatever comes first (bytes, reports, time, a finished task, the wish to stop), tells the
//! pipeline, and does what the pipeline asks for. It decides nothing about events.

mod board;
mod identity;
mod link;
mod probe;
mod session;

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::admin;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::metrics::{Metrics, Side, TopicMetrics};
use crate::pipeline::{Action, Ask, Flow, Pipeline, Purge, Settings, Why};
use crate::sink::kafka::{Finding, Kafka, Report, Reports, Scope, TopicId};
use crate::source::System;
use crate::source::catalog::{Catalog, Holder};
use crate::source::outbox::unix_ms;
use crate::source::wire::{Frame, Reply, StandbyStatus};
use crate::status::{Reason, Role, SlotFacts, State};
use board::{Board, system_time};
use link::{Event, Link, Live};
use probe::{Errand, Probe};
use session::{Closed, Opened, Wanted};

/// How often time is told to the pipeline and the status is shown.
const TICK: Duration = Duration::from_millis(50);
/// How often a standby looks whether the slot is free.
const STANDBY_LOOK: Duration = Duration::from_millis(500);
/// How often the cluster is asked about topics that events wait for, and about all topics.
const TOPICS_WAITING: Duration = Duration::from_secs(1);
const TOPICS_ALL: Duration = Duration::from_secs(60);
/// How often the position is written while events are settled.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Records in flight and no report for this long: the broker does not answer.
const SILENCE: Duration = Duration::from_secs(3);
/// How long the polite end of a session may take.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// Runs the relay until `shutdown` resolves or something is wrong for good.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<()> {
    let metrics = Metrics::new();
    metrics.sender_timeout(config.postgres.sender_timeout);
    let listener = admin::bind(config.http.listen).await?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "health and metrics");
    }
    let (board, status) = Board::new(&config.postgres.slot);
    let (http_ends, http_end) = oneshot::channel::<()>();
    let mut relay = Relay::new(&config, metrics.clone(), board)?;
    let http = admin::serve(listener, status, metrics, async {
        http_end.await.unwrap_or_default();
    });
    relay.tasks.spawn(async { Done::Http(http.await) });
    let result = relay.run(shutdown).await;
    drop(http_ends);
    result
}

struct Relay {
    wanted: Wanted,
    pipeline: Pipeline,
    sink: Kafka,
    reports: Arc<Reports>,
    metrics: Metrics,
    topics: Vec<Option<TopicMetrics>>,
    board: Board,
    link: Link,
    tasks: JoinSet<Done>,
    /// Tries to connect since the last session that held.
    tries: u32,
    streamed: bool,
    system: Option<System>,
    last_backend_pid: Option<i32>,
    /// Why there is no stream.
    closed: Option<Closed>,
    failure: Option<Error>,
    last_report: Instant,
    due: Due,
    errand_out: bool,
    question_out: bool,
    saved: (Instant, crate::lsn::Lsn),
    odd: crate::pipeline::Oddities,
}

/// When the regular things are due.
struct Due {
    probe: Instant,
    topics_waiting: Instant,
    topics_all: Instant,
    show: Instant,
}

/// What a task ended with.
enum Done {
    Probe(Instant, Result<Probe>),
    Topics(Vec<(String, Finding)>),
    Retired,
    Http(Result<()>),
}

impl Relay {
    fn new(config: &Config, metrics: Metrics, board: Board) -> Result<Relay> {
        let settings = Settings { sender_timeout: config.postgres.sender_timeout, limits: config.limits.clone() };
        let sink = Kafka::new(&config.kafka, &config.limits, metrics.clone())?;
        let now = Instant::now();
        Ok(Relay {
            wanted: Wanted {
                postgres: config.postgres.clone(),
                outboxes: config.outbox.clone(),
                limits: config.limits.clone(),
                leader: identity::own_name(),
            },
            pipeline: Pipeline::new(&config.outbox, &config.routes, &config.postgres.publication, settings),
            reports: sink.reports(),
            sink,
            metrics,
            topics: Vec::new(),
            board,
            link: Link::Down { until: now },
            tasks: JoinSet::new(),
            tries: 0,
            streamed: false,
            system: None,
            last_backend_pid: None,
            closed: None,
            failure: None,
            last_report: now,
            due: Due { probe: now, topics_waiting: now, topics_all: now + TOPICS_ALL, show: now },
            errand_out: false,
            question_out: false,
            saved: (now, crate::lsn::Lsn::ZERO),
            odd: crate::pipeline::Oddities::default(),
        })
    }

    async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut asked_to_stop = false;
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let reports = Arc::clone(&self.reports);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                () = &mut shutdown, if !asked_to_stop => {
                    asked_to_stop = true;
                    tracing::info!("asked to stop: the open transaction is read to its end and settled");
                    self.pipeline.stop(Instant::now());
                }
                () = reports.arrived() => {}
                event = self.link.event() => self.linked(event),
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done),
                _ = ticker.tick() => {}
            }
            let now = Instant::now();
            reports.take(&mut batch);
            self.settle(&mut batch, now);
            self.read_frames(now);
            self.pipeline.tick(now);
            while let Some(action) = self.pipeline.next_action() {
                if self.act(action, now).is_break() {
                    return self.goodbye().await;
                }
            }
            self.keep_up(now);
        }
    }

    fn settle(&mut self, batch: &mut Vec<Report>, now: Instant) {
        if batch.is_empty() {
            return;
        }
        self.last_report = now;
        let clock = SystemTime::now();
        self.metrics.acked_at(clock);
        for report in batch.drain(..) {
            match report.outcome {
                Ok(()) => {
                    if let Some(entry) = self.pipeline.acked(report.ticket()) {
                        let committed = system_time(unix_ms(entry.committed_at));
                        let took = clock.duration_since(committed).unwrap_or_default();
                        self.topic(report.topic).published(entry.bytes, took);
                        self.board.status.published += 1;
                    }
                }
                Err(ref failure) => self.pipeline.failed(report.ticket(), failure.clone(), now),
            }
        }
    }

    fn read_frames(&mut self, now: Instant) {
        let Link::Up(live) = &mut self.link else { return };
        live.held = false;
        let mut wal_end = self.board.status.server;
        let result = loop {
            match live.stream.frame() {
                Ok(Some(frame)) => {
                    wal_end = wal_end.max(seen_end(&frame));
                    match self.pipeline.frame(frame, now, &mut self.sink) {
                        Ok(Flow::Taken) => live.stream.consume(),
                        Ok(Flow::Held) => {
                            live.held = true;
                            break Ok(());
                        }
                        Err(error) => break Err((error, Broken::Pipeline)),
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err((error, Broken::Stream)),
            }
        };
        self.board.status.server = wal_end;
        match result {
            Ok(()) => {}
            Err((error, Broken::Pipeline)) => self.fail(error),
            Err((error, Broken::Stream)) => self.lost(error),
        }
    }

    fn act(&mut self, action: Action, now: Instant) -> ControlFlow<()> {
        match action {
            Action::Status(ask) => self.send_status(ask, now),
            Action::Reconnect(why) => self.reconnect(why),
            Action::Purge(Purge::Queued) => self.sink.purge_queued(),
            Action::Purge(Purge::Everything) => self.sink.purge_everything(),
            Action::NewProducer => self.renew_producer(now),
            Action::Reject(rejected) => {
                self.metrics.rejected(rejected.reason);
                self.fail(rejected.into());
            }
            Action::Stop { repeats } => {
                if repeats > 0 {
                    tracing::warn!(repeats, "the next start will publish these rows again");
                }
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn send_status(&mut self, ask: Ask, now: Instant) {
        let (write, flush) = (self.pipeline.received(), self.pipeline.confirmed());
        let Link::Up(live) = &mut self.link else { return };
        let reply = match ask {
            Ask::Reply => Reply::Wanted,
            Ask::Nothing => Reply::NotWanted,
        };
        live.stream.status(StandbyStatus { write, flush, sent_at: SystemTime::now(), reply });
        if ask == Ask::Reply {
            self.pipeline.asked(now);
        }
    }

    fn reconnect(&mut self, why: Why) {
        let (reason, pause) = match &why {
            Why::Text(column) => (format!("{column} is read as text"), Duration::ZERO),
            Why::Replay => ("rows whose delivery failed are sent again".to_owned(), Duration::ZERO),
            Why::Release => ("PostgreSQL is shutting down and waits for us".to_owned(), Duration::from_secs(1)),
            Why::LeaseLost => ("nobody proved that the slot is still ours".to_owned(), Duration::from_secs(1)),
        };
        tracing::warn!(reason, "leaving the replication session");
        self.send_status(Ask::Nothing, Instant::now());
        self.pipeline.session_lost();
        self.metrics.reconnected(Side::Postgres);
        let link = std::mem::replace(&mut self.link, Link::Down { until: Instant::now() });
        if let Link::Up(live) = link {
            self.link = Link::Leaving(Box::pin(live.stream.leave(LEAVE_WITHIN)), pause);
        }
    }

    fn renew_producer(&mut self, now: Instant) {
        if let Some(trouble) = self.pipeline.trouble() {
            tracing::warn!(topic = trouble.topic, error = trouble.message, "a delivery failed: starting a new producer");
        }
        self.metrics.reconnected(Side::Kafka);
        match self.sink.renew(self.pipeline.ledger().generation()) {
            Ok(retired) => {
                self.tasks.spawn_blocking(move || {
                    drop(retired);
                    Done::Retired
                });
                self.pipeline.producer_ready(now);
            }
            Err(error) => self.fail(error),
        }
    }

    fn linked(&mut self, event: Event) {
        match event {
            Event::Due => {
                let opening = session::open(self.wanted.clone(), self.pipeline.encoding());
                self.link = Link::Opening(Box::pin(opening));
            }
            Event::Opened(result) => match *result {
                Ok(opened) => self.opened(opened),
                Err(closed) => self.not_opened(closed),
            },
            Event::Turned(Ok(turn)) => {
                if turn.read > 0 {
                    self.metrics.frame_at(SystemTime::now());
                }
            }
            Event::Turned(Err(error)) => self.lost(error),
            Event::Left(result, pause) => {
                if let Err(error) = result {
                    tracing::info!(error = error.chain(), "the session did not end in good order");
                }
                self.link = Link::Down { until: Instant::now() + pause };
            }
        }
    }

    fn opened(&mut self, opened: Opened) {
        let Opened { stream, start, predecessor, backend_pid, host } = opened;
        let now = Instant::now();
        tracing::info!(
            host, slot = self.wanted.postgres.slot, confirmed = %start.confirmed, system = %start.system,
            encoding = ?start.encoding, ?predecessor, "replication started"
        );
        self.system = Some(start.system);
        self.closed = None;
        self.streamed = true;
        self.last_backend_pid = Some(backend_pid);
        self.pipeline.session_started(start, now);
        self.pipeline.claimed(predecessor, now);
        self.due.probe = now;
        self.link = Link::Up(Live { stream, backend_pid, since: now, held: false, gather_until: None });
    }

    fn not_opened(&mut self, closed: Closed) {
        let pause = match &closed {
            Closed::Held(_) => STANDBY_LOOK,
            Closed::Failed(error) if error.is_definite() && !(self.streamed && is_waited_for(error)) => {
                let Closed::Failed(error) = closed else { unreachable!("it was matched as failed") };
                self.link = Link::Down { until: Instant::now() + self.wanted.limits.shutdown };
                return self.fail(error);
            }
            Closed::Failed(error) => {
                tracing::warn!(error = error.chain(), "no replication session");
                self.backoff()
            }
        };
        self.closed = Some(closed);
        self.link = Link::Down { until: Instant::now() + pause };
    }

    /// The stream broke. What is in flight stays with the producer.
    fn lost(&mut self, error: Error) {
        let Link::Up(live) = &self.link else { return };
        if live.since.elapsed() > self.wanted.limits.backoff {
            self.tries = 0;
        }
        self.metrics.reconnected(Side::Postgres);
        self.pipeline.session_lost();
        let pause = self.backoff();
        self.link = Link::Down { until: Instant::now() + pause };
        if error.is_definite() && !is_waited_for(&error) {
            return self.fail(error);
        }
        tracing::warn!(error = error.chain(), "the replication stream broke");
        self.closed = Some(Closed::Failed(error));
    }

    /// Something is wrong for good: what is in flight is settled, then the process ends with this error.
    fn fail(&mut self, error: Error) {
        if self.failure.is_none() {
            tracing::error!(error = error.chain(), hint = error.hint_text().unwrap_or_default(), "stopping");
            self.failure = Some(error);
            self.pipeline.halt(Instant::now());
        }
    }

    fn backoff(&mut self) -> Duration {
        let longest = Duration::from_millis(100) * 2u32.saturating_pow(self.tries.min(16));
        self.tries += 1;
        // Half of it by chance, so that relays that lost the same server do not come back together.
        longest.min(self.wanted.limits.backoff).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn done(&mut self, done: std::result::Result<Done, tokio::task::JoinError>) {
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
                self.probed(asked, result);
            }
        }
    }

    fn probed(&mut self, asked: Instant, result: Result<Probe>) {
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
            Err(error) if error.is_definite() && !is_waited_for(&error) => self.fail(error),
            Err(error) => {
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
    fn keep_up(&mut self, now: Instant) {
        if now < self.due.show {
            return;
        }
        self.due.show = now + TICK;
        let scope = if now >= self.due.topics_all { Scope::All } else { Scope::Waiting };
        if !self.question_out
            && now >= self.due.topics_waiting
            && let Some(question) = self.sink.question(scope)
        {
            self.question_out = true;
            self.due.topics_waiting = now + TOPICS_WAITING;
            self.due.topics_all = now + TOPICS_ALL;
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
        self.tasks.spawn(async move { Done::Probe(now, probe::probe(wanted, Errand { backend_pid, save }).await) });
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

    fn show(&mut self, now: Instant) {
        let (state, role, reasons) = self.condition(now);
        let ledger = self.pipeline.ledger();
        let status = &mut self.board.status;
        status.confirmed = self.pipeline.confirmed();
        status.received = self.pipeline.received();
        status.server = status.server.max(status.received);
        status.oldest_unsettled = ledger.oldest().map(|entry| system_time(unix_ms(entry.committed_at)));
        status.inflight_events = ledger.inflight();
        status.inflight_bytes = ledger.inflight_bytes();
        if ledger.inflight() == 0 {
            self.last_report = now;
        }
        self.board.state(state, role, reasons);
        self.board.show();
    }

    /// What the relay is doing, and why events cannot flow, if they cannot.
    fn condition(&self, now: Instant) -> (State, Role, Vec<Reason>) {
        if self.pipeline.is_stopping() {
            return (State::Stopping, Role::Leader, Vec::new());
        }
        match (&self.link, &self.closed) {
            (Link::Up(_), _) => {}
            (_, Some(Closed::Held(holder))) if self.last_backend_pid != Some(holder.pid) => {
                return (State::Standby, Role::Standby, Vec::new());
            }
            (_, closed) => return (State::Connecting, Role::Leader, vec![unconnected(closed.as_ref())]),
        }
        let mut reasons = self.sink.reasons();
        reasons.extend(self.kafka_trouble(now));
        let state = if self.pipeline.is_fencing(now) {
            State::Fencing
        } else if self.pipeline.is_recovering() {
            State::Recovering
        } else if reasons.is_empty() {
            State::Streaming
        } else {
            State::Waiting
        };
        (state, Role::Leader, reasons)
    }

    fn kafka_trouble(&self, now: Instant) -> Option<Reason> {
        let silent = now.saturating_duration_since(self.last_report);
        let complaint = self.reports.complaint();
        let words = complaint.as_ref().map_or_else(String::new, |complaint| format!(": {}", complaint.text));
        let reason = |code: &str, message: String, hint: &str| {
            Some(Reason { code: code.to_owned(), message, hint: Some(hint.to_owned()) })
        };
        if let Some(failure) = self.pipeline.trouble() {
            let message = format!("delivery to topic \"{}\" failed: {}", failure.topic, failure.message);
            return reason("delivery_failed", message, "outboxd check shows what the topic allows");
        }
        if complaint.as_ref().is_some_and(|complaint| complaint.login) {
            let hint = "see the sasl and ssl settings in kafka.properties";
            return reason("kafka_login", format!("Kafka refuses the login{words}"), hint);
        }
        if self.pipeline.ledger().inflight() > 0 && silent >= SILENCE {
            let message = format!("no broker has answered for {} s{words}", silent.as_secs());
            return reason("kafka_silent", message, "see whether the brokers of the topics' partitions run");
        }
        if complaint.is_some() && self.reports.brokers_up() == Some(0) {
            let hint = "see whether kafka.brokers names running brokers: outboxd check";
            return reason("kafka_unreachable", format!("no broker can be reached{words}"), hint);
        }
        None
    }

    fn topic(&mut self, id: TopicId) -> &TopicMetrics {
        let index = id.index();
        if self.topics.len() <= index {
            self.topics.resize(index + 1, None);
        }
        self.topics[index].get_or_insert_with(|| self.metrics.topic(self.sink.topic_name(id)))
    }

    /// The last status, the end of the stream, the mark that lets a successor start at once.
    async fn goodbye(mut self) -> Result<()> {
        self.send_status(Ask::Nothing, Instant::now());
        let within = (self.wanted.limits.shutdown / 10).max(Duration::from_millis(200));
        let link = std::mem::replace(&mut self.link, Link::Down { until: Instant::now() });
        if let Link::Up(live) = link
            && let Err(error) = live.stream.leave(within).await
        {
            tracing::warn!(error = error.chain(), "the session did not end in good order");
        }
        if let (Some(system), 0) = (self.system, self.pipeline.ledger().inflight()) {
            match tokio::time::timeout(within, self.leave_mark(system)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(error = error.chain(), "no clean-leave mark: a successor will wait"),
                Err(_) => tracing::warn!("no clean-leave mark in time: a successor will wait"),
            }
        }
        tracing::info!(confirmed = %self.pipeline.confirmed(), published = self.board.status.published, "stopped");
        match self.failure {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn leave_mark(&self, system: System) -> Result<()> {
        let postgres = &self.wanted.postgres;
        let catalog = Catalog::connect(&postgres.connection, self.wanted.limits.sql).await?;
        catalog.leave(&postgres.slot, &self.wanted.leader, system, self.pipeline.confirmed()).await?;
        Ok(())
    }
}

/// Where reading broke.
enum Broken {
    Stream,
    Pipeline,
}

/// Failures of the set-up that a running relay waits for, because somebody may be mending them: a changed password, a
/// right taken away, a host that pg_hba does not admit. A missing slot or publication is not among them.
fn is_waited_for(error: &Error) -> bool {
    matches!(error.sqlstate(), Some("28P01" | "28000" | "42501" | "3D000"))
}

fn seen_end(frame: &Frame<'_>) -> crate::lsn::Lsn {
    match frame {
        Frame::Data { wal_end, .. } | Frame::Keepalive { wal_end, .. } => *wal_end,
        Frame::Notice { .. } => crate::lsn::Lsn::ZERO,
    }
}

fn unconnected(closed: Option<&Closed>) -> Reason {
    let (message, hint) = match closed {
        None => ("no session with PostgreSQL yet".to_owned(), None),
        Some(Closed::Held(holder)) => (held_by(holder), None),
        Some(Closed::Failed(error)) => (error.chain(), error.hint_text().map(str::to_owned)),
    };
    Reason { code: "postgres_unreachable".into(), message, hint }
}

fn held_by(holder: &Holder) -> String {
    format!("the slot is held by {holder}")
}
