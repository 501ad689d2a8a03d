//! The shell: builds the rooms, carries values between them, owns tasks, backoff and shutdown.
//!
//! One loop waits for whatever comes first (bytes, reports, time, a finished task, the wish to stop), tells the
//! pipeline, and does what the pipeline asks for. It decides nothing about events.

mod board;
mod clerk;
mod condition;
mod errands;
mod farewell;
mod identity;
mod link;
mod probe;
mod session;
mod writer;

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::admin;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::metrics::{Metrics, Side, TopicMetrics};
use crate::pipeline::{Action, Ask, Flow, History, LastHolder, Oddities, Pipeline, Reload, Settings, Why};
use crate::sink::Whose;
use crate::sink::kafka::{Kafka, Report, Reports, TopicId};
use crate::source::System;
use crate::source::dial;
use crate::source::outbox::unix_ms;
use crate::source::wire::{Frame, GATHER, Pace, Reply, StandbyStatus};
use board::{Board, system_time};
use clerk::Clerk;
use errands::{Done, Due, Saving};
use identity::Predecessor;
use link::{Event, Link, Live, Patience};
use session::{Closed, Opened, Stamps, Wanted};
use writer::Writer;

/// How often time is told to the pipeline and the status is shown.
const TICK: Duration = Duration::from_millis(50);
/// How long a standby looks at the slot in one SQL session. Not for ever: such a session holds up a smart shutdown.
const STANDBY_PATIENCE: Duration = Duration::from_secs(30);
/// With so many records on their way, answers come in droves.
const MANY_INFLIGHT: u64 = 500;
/// The pause before a held slot is looked at again.
const STANDBY_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a server that is shutting down is tried again.
const RELEASED_FOR: Duration = Duration::from_secs(1);
/// How long the polite end of a session may take.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// Runs the relay until `shutdown` resolves or something is wrong for good.
///
/// What comes from `reloads` holds from the next transaction on.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>, reloads: mpsc::Receiver<Reload>) -> Result<()> {
    let metrics = Metrics::new();
    metrics.sender_timeout(config.postgres.sender_timeout);
    let listener = admin::bind(config.http.listen).await?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "health and metrics");
    }
    let (board, status) = Board::new(&config.postgres.slot);
    let mut relay = Relay::new(&config, metrics.clone(), board)?;
    // It answers until the relay's tasks end with the relay.
    let http = admin::serve(listener, status, metrics, std::future::pending());
    relay.tasks.spawn(async { Done::Http(http.await) });
    relay.run(shutdown, reloads).await
}

struct Relay {
    wanted: Wanted,
    pipeline: Pipeline,
    sink: Kafka,
    reports: Arc<Reports>,
    trial_reports: Arc<Reports>,
    clerk: Clerk,
    writer: Writer,
    metrics: Metrics,
    topics: Vec<Option<TopicMetrics>>,
    board: Board,
    link: Link,
    tasks: JoinSet<Done>,
    /// Tries to connect since the last session that held.
    tries: u32,
    streamed: bool,
    /// Our name stood on the slot once, so we have the right to put it there.
    has_claimed: bool,
    system: Option<System>,
    last_backend_pid: Option<i32>,
    /// Why there is no stream.
    closed: Option<Closed>,
    failure: Option<Error>,
    /// When the server last sent anything, or was not read from.
    heard: Instant,
    patience: Patience,
    /// The oldest record on its way, and since when it is that.
    oldest: (Option<Position>, Instant),
    /// Since when the next record waits for an answer about its topic.
    asking: Option<Instant>,
    due: Due,
    errand_out: bool,
    question_out: bool,
    saving: Saving,
    /// New rules wait for the end of a transaction.
    reloading: bool,
    /// Why our name is not on the slot, though it could be.
    unclaimed: Option<Error>,
    odd: Oddities,
}

impl Relay {
    fn new(config: &Config, metrics: Metrics, board: Board) -> Result<Relay> {
        let (limits, dead_letter) = (config.limits.clone(), config.dead_letter.clone());
        let settings = Settings { sender_timeout: config.postgres.sender_timeout, limits, dead_letter };
        let sink = Kafka::new(&config.kafka, &config.limits, config.dead_letter.unknown_topic, metrics.clone())?;
        let now = Instant::now();
        Ok(Relay {
            wanted: Wanted {
                postgres: config.postgres.clone(),
                outboxes: config.outbox.clone(),
                limits: config.limits.clone(),
                dead_letter: config.dead_letter.clone(),
                leader: identity::own_name(),
            },
            pipeline: Pipeline::new(&config.outbox, &config.rules, &config.postgres.publication, settings),
            reports: sink.reports(),
            trial_reports: sink.trial_reports(),
            clerk: Clerk::new(now),
            writer: Writer::new(config.outbox.len(), now),
            sink,
            metrics,
            topics: Vec::new(),
            board,
            link: Link::Down { until: now },
            tasks: JoinSet::new(),
            tries: 0,
            streamed: false,
            has_claimed: false,
            system: None,
            last_backend_pid: None,
            closed: None,
            failure: None,
            heard: now,
            patience: Patience::new(config.postgres.sender_timeout),
            oldest: (None, now),
            asking: None,
            due: Due::from(now),
            errand_out: false,
            question_out: false,
            saving: Saving::from(now),
            reloading: false,
            unclaimed: None,
            odd: Oddities::default(),
        })
    }

    async fn run(mut self, shutdown: impl Future<Output = ()>, mut reloads: mpsc::Receiver<Reload>) -> Result<()> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut asked_to_stop = false;
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (reports, trial_reports) = (Arc::clone(&self.reports), Arc::clone(&self.trial_reports));
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                () = &mut shutdown, if !asked_to_stop => {
                    asked_to_stop = true;
                    tracing::info!("asked to stop: the open transaction is read to its end and settled");
                    self.stop(Instant::now());
                }
                () = reports.arrived() => {}
                () = trial_reports.arrived() => {
                    for (letter, result) in self.sink.take_trials() {
                        self.sent_apart(letter, result);
                    }
                }
                Some(reload) = reloads.recv() => self.reload(reload, Instant::now()),
                event = self.link.event() => self.linked(event),
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done),
                _ = ticker.tick() => {}
            }
            let now = Instant::now();
            reports.take(&mut batch);
            self.settle(&mut batch, now);
            self.read_frames(now);
            self.pipeline.owes_letters(self.writer.owes_letters());
            self.pipeline.tick(now);
            while let Some(action) = self.pipeline.next_action() {
                if self.act(action, now).is_break() {
                    // The goodbye may take a while, and somebody may ask.
                    self.show(now);
                    return self.goodbye().await;
                }
            }
            // Behind what the old rules wanted done.
            if self.reloading && !self.pipeline.is_reloading() {
                self.reloaded();
            }
            self.keep_clerk_busy(now);
            self.keep_writer_busy(now);
            self.keep_up(now);
            self.gather();
            // There is always more to read in a backlog: whoever asks for health or metrics has a turn, too.
            tokio::task::yield_now().await;
        }
    }

    /// Lets bytes, or answers, come together where they come in droves. This stops the thread, and all that it does, for a
    /// moment: nothing less keeps it from being woken for each of them.
    fn gather(&mut self) {
        let Link::Up(live) = &mut self.link else { return };
        let waits_for_answers = live.held && self.pipeline.ledger().inflight() >= MANY_INFLIGHT;
        if let Some(pause) = live.gather.take().or(waits_for_answers.then_some(GATHER)) {
            std::thread::sleep(pause);
        }
    }

    fn reload(&mut self, reload: Reload, now: Instant) {
        self.wanted.dead_letter = reload.dead_letter.clone();
        self.pipeline.reload(reload, now);
        self.reloading = true;
    }

    /// The pipeline has taken the new rules.
    fn reloaded(&mut self) {
        self.reloading = false;
        // The row that waited for a topic may be for another one now, and a letter may need other columns.
        self.sink.wait_for_none();
        self.clerk.look_again();
        self.unknown_topics_anew();
        tracing::info!("the configuration was reloaded");
    }

    fn stop(&mut self, now: Instant) {
        self.pipeline.stop(now);
        if self.stands_by() {
            // Another process has the slot: there is nothing to tell any more.
            self.pipeline.halt(now);
        }
    }

    fn settle(&mut self, batch: &mut Vec<Report>, now: Instant) {
        if batch.is_empty() {
            return;
        }
        let (clock, generation) = (SystemTime::now(), self.pipeline.ledger().generation());
        if batch.iter().any(|report| report.outcome.is_ok()) {
            self.metrics.acked_at(clock);
        }
        for report in batch.drain(..) {
            let is_current = report.is_of(generation);
            if is_current {
                self.sink.answered(&report);
            }
            let (topic, ticket) = (report.topic, report.ticket());
            match report.outcome {
                Ok(()) => {
                    if let Some(entry) = self.pipeline.acked(ticket) {
                        let committed = system_time(unix_ms(entry.committed_at));
                        let took = clock.duration_since(committed).unwrap_or_default();
                        self.topic(topic).published(entry.bytes, took);
                        self.board.status.published += 1;
                    }
                }
                Err(failure) => {
                    match failure.whose {
                        Whose::SetUp => self.sink.doubt(topic),
                        Whose::Event if is_current => self.sink.refused(topic),
                        Whose::Event | Whose::World => {}
                    }
                    self.pipeline.failed(ticket, failure, now);
                }
            }
        }
    }

    fn read_frames(&mut self, now: Instant) {
        let Link::Up(live) = &mut self.link else { return };
        if self.failure.is_some() {
            live.held = true;
            return;
        }
        live.held = false;
        let mut wal_end = self.board.status.server;
        let result = loop {
            match live.stream.frame() {
                Ok(Some(frame)) => {
                    wal_end = wal_end.max(seen_end(&frame));
                    if let Frame::Notice { code, message } = frame {
                        tracing::warn!(code, "PostgreSQL says: {message}");
                    }
                    match self.pipeline.frame(frame, now, &mut self.sink) {
                        Ok(Flow::Taken) => {
                            live.messages += 1;
                            live.stream.consume();
                        }
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
        if live.read > 0 {
            live.gather = live.pace.read(std::mem::take(&mut live.read), std::mem::take(&mut live.messages), now);
        }
        match result {
            Ok(()) => {}
            Err((error, Broken::Pipeline)) => {
                live.held = true;
                self.fail(error);
            }
            Err((error, Broken::Stream)) => self.lost(error),
        }
    }

    fn act(&mut self, action: Action, now: Instant) -> ControlFlow<()> {
        match action {
            Action::Status(ask) => self.send_status(ask),
            Action::Reconnect(why) => self.reconnect(why),
            Action::Purge(purge) => self.sink.purge(purge),
            Action::Claim => self.send_claim(),
            Action::NewProducer => self.renew_producer(now),
            Action::Park(number, letter) => self.park(number, *letter),
            Action::WriteBack(number, receipt) => self.writer.take(number, receipt),
            Action::LoadLetters { serial, from } => self.load_letters(serial, from),
            Action::SettleLetter { id, owner, attempts, outcome, receipt } => {
                self.settle_letter(id, owner, attempts, outcome, receipt)
            }
            Action::AbandonTrial => self.abandon_trial(),
            Action::Pause(message) => self.pause(message),
            Action::Unpause => self.unpause(),
            Action::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn send_status(&mut self, ask: Ask) {
        let (write, flush) = (self.pipeline.received(), self.pipeline.confirmed());
        let Link::Up(live) = &mut self.link else { return };
        let reply = match ask {
            Ask::Reply => Reply::Wanted,
            Ask::Nothing => Reply::NotWanted,
        };
        live.stream.status(StandbyStatus { write, flush, sent_at: SystemTime::now(), reply });
    }

    fn reconnect(&mut self, why: Why) {
        let reason = match &why {
            Why::Text(column) => format!("{column} is read as text"),
            Why::Replay => "rows whose delivery failed are sent again".to_owned(),
            Why::Release => "PostgreSQL is shutting down and waits for us".to_owned(),
            Why::Overtaken => "the slot is not ours any more".to_owned(),
            Why::LeaseLost => "nobody proved that the slot is still ours".to_owned(),
        };
        tracing::warn!(reason, "leaving the replication session");
        self.forget_tries();
        self.send_status(Ask::Nothing);
        self.session_lost();
        self.metrics.reconnected(Side::Postgres);
        let link = std::mem::replace(&mut self.link, Link::Down { until: Instant::now() });
        if let Link::Up(live) = link {
            if !matches!(why, Why::Replay | Why::Text(_)) {
                self.closed = Some(Closed::Failed(Error::transient(&reason)));
            }
            let leave = |pause| Link::Leaving(Box::pin(live.stream.leave(LEAVE_WITHIN)), pause);
            match why {
                // Nobody listens at the other end, or somebody whom it does not concern: a farewell would only take time.
                Why::LeaseLost => {}
                // A walsender that lets go for an error of its own would meet it again at once.
                Why::Overtaken => self.link = Link::Down { until: Instant::now() + self.backoff() },
                Why::Release => self.link = leave(RELEASED_FOR),
                Why::Replay | Why::Text(_) => self.link = leave(Duration::ZERO),
            }
        }
        self.show(Instant::now());
    }

    fn renew_producer(&mut self, now: Instant) {
        let unknown = self.pipeline.ledger().lost();
        match self.pipeline.trouble() {
            Some(trouble) => tracing::warn!(
                topic = trouble.topic,
                error = trouble.message,
                unknown,
                "a delivery failed: starting a new producer"
            ),
            None => tracing::warn!(unknown, "what was on its way is given up: starting a new producer"),
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

    fn abandon_trial(&mut self) {
        let retired = self.sink.abandon_trial();
        self.tasks.spawn_blocking(move || {
            drop(retired);
            Done::Retired
        });
    }

    fn linked(&mut self, event: Event) {
        match event {
            Event::Due => {
                let patience = match &self.closed {
                    // The first look tells who holds it; then one session looks on for a while.
                    Some(Closed::Held(..)) => STANDBY_PATIENCE,
                    Some(Closed::Unreached(_) | Closed::Failed(_)) | None => Duration::ZERO,
                };
                let stamps = if self.streamed { Stamps::Unasked } else { Stamps::Proved };
                let opening = session::open(self.wanted.clone(), self.pipeline.encoding(), stamps, patience);
                self.link = Link::Opening(Box::pin(opening));
            }
            Event::Opened(result) => match *result {
                Ok(opened) => self.opened(opened),
                Err(closed) => self.not_opened(closed),
            },
            Event::Turned(Ok(turn)) => {
                if turn.read > 0 {
                    self.heard = Instant::now();
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
        let Opened { stream, mut start, predecessor, place, backend_pid, host } = opened;
        let now = Instant::now();
        tracing::info!(
            host = dial::address(&host), slot = self.wanted.postgres.slot, confirmed = %start.confirmed, system = %start.system,
            encoding = ?start.encoding, ?predecessor, "replication started"
        );
        let own = (self.system == Some(start.system)).then(|| self.pipeline.confirmed());
        let settled = identity::settled(place.as_ref(), &self.wanted.leader, start.system, own);
        if let Some(settled) = settled.filter(|settled| *settled < start.confirmed) {
            self.moved(settled, start.confirmed);
        }
        if place.as_ref().is_some_and(|place| self.saving.is_forgotten(place)) {
            tracing::warn!("the server was put back to an older state: what we remember of it counts no more");
            start.last_holder = LastHolder::NotOurs;
            self.saving.forget();
        }
        if self.system != Some(start.system) {
            self.patience = Patience::new(self.wanted.postgres.sender_timeout);
        }
        // Not what it was: the server may be another one, or an older state of itself.
        self.board.status.server = start.wal_end;
        self.system = Some(start.system);
        self.closed = None;
        self.streamed = true;
        self.last_backend_pid = Some(backend_pid);
        if self.pipeline.session_started(start, now) == History::Another {
            self.begin_history();
        }
        match predecessor {
            Predecessor::Ourselves => self.pipeline.claimed(),
            Predecessor::Gone => self.pipeline.unfenced(now),
            Predecessor::MayLive(timeout) => self.pipeline.fenced(timeout, now),
        }
        if predecessor != Predecessor::Ourselves {
            // Whoever was there before may have had another configuration.
            self.clerk.wake_all();
        }
        self.due.probe = now;
        self.heard = now;
        self.link = Link::Up(Box::new(Live {
            pace: Pace::new(stream.way(), now),
            stream,
            backend_pid,
            host,
            since: now,
            held: false,
            read: 0,
            messages: 0,
            gather: None,
        }));
    }

    /// The slot stands where no relay has taken it. It cannot be taken back: events go on from here, and a person must
    /// know which ones are missing.
    fn moved(&self, from: Lsn, to: Lsn) {
        self.metrics.slot_moved();
        tracing::error!(
            slot = self.wanted.postgres.slot, %from, %to,
            hint = "find out who read from the slot, moved it or made it anew; events committed in between that are not \
                    in Kafka must be inserted again",
            "somebody else moved the slot: events committed between the two positions are not published"
        );
    }

    fn not_opened(&mut self, closed: Closed) {
        let pause = match &closed {
            Closed::Held(..) => STANDBY_PAUSE,
            Closed::Unreached(error) | Closed::Failed(error) => {
                tracing::warn!(error = error.chain(), "no replication session");
                self.backoff()
            }
        };
        self.link = Link::Down { until: Instant::now() + pause };
        self.close(closed);
        if self.pipeline.is_stopping() {
            self.stop(Instant::now());
        }
    }

    /// The stream broke. What is in flight stays with the producer.
    fn lost(&mut self, error: Error) {
        if !matches!(self.link, Link::Up(_)) {
            return;
        }
        self.forget_tries();
        self.metrics.reconnected(Side::Postgres);
        self.session_lost();
        let pause = self.backoff();
        self.link = Link::Down { until: Instant::now() + pause };
        tracing::warn!(error = error.chain(), "the replication stream broke");
        self.close(Closed::Failed(error));
        // Nobody may be told that events flow, not even until the next tick.
        self.show(Instant::now());
    }

    /// What rows waited for, they will say again.
    fn session_lost(&mut self) {
        self.pipeline.session_lost();
        self.sink.wait_for_none();
        self.unclaimed = None;
    }

    /// True when another relay has the slot and its name on it: whatever we had not settled is settled by that one.
    fn is_followed(&self) -> bool {
        self.stands_by() && matches!(&self.closed, Some(Closed::Held(_, LastHolder::NotOurs)))
    }

    /// True when another process has the slot.
    fn stands_by(&self) -> bool {
        let held =
            |closed: &Closed| matches!(closed, Closed::Held(holder, _) if self.last_backend_pid != Some(holder.pid));
        !matches!(self.link, Link::Up(_)) && self.closed.as_ref().is_some_and(held)
    }

    /// Keeps why there is no stream, or ends with it.
    fn close(&mut self, closed: Closed) {
        match closed {
            Closed::Unreached(error) | Closed::Failed(error) if closed.is_final(self.streamed) => self.fail(error),
            Closed::Held(..) | Closed::Unreached(_) | Closed::Failed(_) => self.closed = Some(closed),
        }
    }

    /// Something is wrong for good: what is in flight is settled, then the process ends with this error.
    fn fail(&mut self, error: Error) {
        if self.failure.is_none() {
            tracing::error!(error = error.chain(), hint = error.hint_text().unwrap_or_default(), "stopping");
            self.failure = Some(error);
            self.pipeline.halt(Instant::now());
        }
    }

    /// A session that held for a while makes up for the tries before it.
    fn forget_tries(&mut self) {
        if matches!(&self.link, Link::Up(live) if live.since.elapsed() > self.wanted.limits.backoff) {
            self.tries = 0;
        }
    }

    fn backoff(&mut self) -> Duration {
        let longest = Duration::from_millis(100) * 2u32.saturating_pow(self.tries.min(16));
        self.tries += 1;
        jittered(longest.min(self.wanted.limits.backoff))
    }

    fn show(&mut self, now: Instant) {
        let (followed, (state, role, reasons)) = (self.is_followed(), self.condition(now));
        let ledger = self.pipeline.ledger();
        let status = &mut self.board.status;
        status.confirmed = self.pipeline.confirmed();
        status.received = self.pipeline.received();
        status.server = status.server.max(status.received);
        let oldest_unsettled = ledger.oldest().filter(|_| !followed);
        status.oldest_unsettled = oldest_unsettled.map(|entry| system_time(unix_ms(entry.committed_at)));
        status.inflight_events = ledger.inflight();
        status.inflight_bytes = ledger.held_bytes() + ledger.owed_bytes();
        status.unmarked_events = ledger.writing();
        let oldest = ledger.oldest_sent().map(|entry| entry.position);
        if oldest != self.oldest.0 {
            self.oldest = (oldest, now);
        }
        self.asking = self.sink.unanswered().map(|_| self.asking.unwrap_or(now));
        if matches!(&self.link, Link::Up(live) if live.held) {
            self.heard = now;
        }
        self.board.state(state, role, reasons);
        self.board.show();
    }

    fn topic(&mut self, id: TopicId) -> &TopicMetrics {
        let index = id.index();
        if self.topics.len() <= index {
            self.topics.resize(index + 1, None);
        }
        self.topics[index].get_or_insert_with(|| self.metrics.topic(self.sink.topic_name(id)))
    }
}

/// Where reading broke.
enum Broken {
    Stream,
    Pipeline,
}

/// Half of it by chance, so that relays that lost the same server do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

fn seen_end(frame: &Frame<'_>) -> Lsn {
    match frame {
        Frame::Data { wal_end, .. } | Frame::Keepalive { wal_end, .. } => *wal_end,
        Frame::Notice { .. } => Lsn::ZERO,
    }
}
