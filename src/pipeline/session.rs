//! The session's side of the pipeline: whose the slot is, for how long, and when to leave it.
//!
//! The slot is the lock: PostgreSQL lets one session stream from it. Whatever the walsender sends proves that it had the
//! slot when it sent it, so the relay asks for a keepalive every second or more often, and stops offering when two thirds
//! of `sender_timeout` have passed since the last frame was *sent*. What was offered may land until the whole time has passed.
//! Whoever takes a slot that was not left cleanly waits out the whole time, counted from a later moment: when the
//! former walsender was gone. So the two never publish at once.

use std::time::{Duration, Instant};

use super::{Action, Ask, Cause, Flow, Pipeline, Why};
use crate::lsn::Lsn;
use crate::source::{Encoding, System};

/// How often the confirmed position is reported while it moves.
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// A walsender that shuts down asks again as soon as it is answered: answers without news are spaced.
const ANSWER_EVERY: Duration = Duration::from_millis(50);
/// How long after a failed claim the next one is tried.
const CLAIM_AGAIN: Duration = Duration::from_secs(1);
/// So many requests in a row without data or progress mean that the server waits for us to let it go.
const PINGS_OF_A_STOPPING_SERVER: u32 = 8;

/// What a session starts with.
#[derive(Debug, Clone)]
pub struct SessionStart {
    /// Which cluster, which history.
    pub system: System,
    /// The server's end of WAL.
    pub wal_end: Lsn,
    /// The slot's confirmed position.
    pub confirmed: Lsn,
    /// How values are sent.
    pub encoding: Encoding,
    /// When the stream was asked for: the lease's first proof.
    pub asked_at: Instant,
    /// What the server's clock showed.
    pub clock: Clock,
    /// Tables of the publication that are no outbox, as `schema.name`.
    pub others: Vec<String>,
    /// Whose name stood on the slot.
    pub last_holder: LastHolder,
}

/// Who may have published from the slot last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastHolder {
    /// We ourselves: nobody has since.
    Ours,
    /// Another relay, or nobody yet.
    NotOurs,
}

/// A moment of ours that lies before one of the server's: what the server dates later than `shown` happened later than
/// `at`, by as much.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// When the server was asked for its time.
    pub at: Instant,
    /// What it answered, microseconds since 2000-01-01 UTC.
    pub shown: i64,
}

impl Clock {
    /// The earliest moment that the server's date can mean.
    fn earliest(&self, server_date: i64) -> Option<Instant> {
        let micros = u64::try_from(server_date.checked_sub(self.shown)?).ok()?;
        self.at.checked_add(Duration::from_micros(micros))
    }
}

/// What a session begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// What is known of rows holds.
    Same,
    /// Everything that the slot does not know of is sent and published again.
    Another,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) fence: Fence,
    pub(super) received: Lsn,
    /// Requests for an answer since the last data or progress.
    pings: u32,
    /// Since when the next row waits.
    pub(super) held_since: Option<Instant>,
    /// An action to leave was given.
    pub(super) left: bool,
    clock: Clock,
    ask_at: Instant,
    answer_wanted: bool,
    reported_at: Instant,
    reported: Lsn,
    release_at: Option<Instant>,
    /// The date of the newest commit that was read, by the server's clock.
    newest_commit: i64,
}

/// Whether the slot's last holder can still be publishing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fence {
    /// Nothing is known yet, or the claim is being written.
    Unclaimed,
    /// Then the slot can be claimed.
    Until(Instant),
    Open,
}

impl Fence {
    pub(super) fn is_open(self) -> bool {
        matches!(self, Fence::Open)
    }
}

impl Session {
    pub(super) fn data(&mut self, flow: Flow, wal_end: Lsn, now: Instant) {
        match flow {
            Flow::Taken => {
                self.held_since = None;
                self.received = self.received.max(wal_end);
                self.pings = 0;
            }
            Flow::Held => {
                self.held_since.get_or_insert(now);
            }
        }
    }

    pub(super) fn read_commit(&mut self, committed_at: i64) {
        self.newest_commit = self.newest_commit.max(committed_at);
    }

    /// True when somebody has committed within the grace: a server in smart shutdown lets its sessions go on for as long
    /// as they like, and does not wait for us yet. A commit of the future only tells that a clock was set.
    fn is_written(&self, grace: Duration, now: Instant) -> bool {
        self.clock.earliest(self.newest_commit).is_some_and(|commit| commit <= now && now < commit + grace)
    }
}

impl Pipeline {
    /// The slot streams to us. Rows wait until `claimed`.
    pub fn session_started(&mut self, start: SessionStart, now: Instant) -> History {
        self.session_lost();
        let same = self.history.is_none_or(|history| history == start.system);
        // A server whose WAL ends before what it once sent was put back to an older state.
        let sent = self.ledger.newest().map_or(Lsn::ZERO, |newest| newest.commit);
        let went_back = sent.max(self.reached) > start.wal_end;
        // What another relay published meanwhile ended anywhere: going on behind what *we* remember would leave a hole
        // in its repeat.
        let ours = start.last_holder == LastHolder::Ours;
        let history = if same && ours && !went_back {
            self.ledger.resume(start.confirmed);
            History::Same
        } else {
            self.begin_another_history(start.confirmed, now);
            self.reached = start.confirmed;
            History::Another
        };
        self.history = Some(start.system);
        self.outbox.session_started(start.encoding, start.others);
        self.told = start.confirmed;
        self.ledger.told(start.confirmed);
        self.renew_lease(start.asked_at);
        self.session = Some(Session {
            fence: Fence::Unclaimed,
            received: start.confirmed,
            pings: 0,
            held_since: None,
            left: false,
            clock: start.clock,
            ask_at: now,
            answer_wanted: false,
            reported_at: now,
            reported: start.confirmed,
            release_at: None,
            newest_commit: i64::MIN,
        });
        history
    }

    /// The position table names us as the slot's holder: nobody else can be publishing.
    pub fn claimed(&mut self) {
        if let Some(session) = &mut self.session {
            session.fence = Fence::Open;
        }
    }

    /// The position table names nobody who can be publishing: the slot can be claimed. Not before the session has
    /// started: our own name in the table tells the next one that what we remember holds.
    pub fn unfenced(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.fence = Fence::Until(now);
        }
    }

    /// The position table names a holder that may still be publishing. Its name stays there until the fence ends, so
    /// that whoever comes next, be it ourselves after a reconnect, waits for it as well.
    pub fn fenced(&mut self, timeout: Duration, now: Instant) {
        if let Some(session) = &mut self.session {
            session.fence = Fence::Until(now + timeout.max(self.settings.sender_timeout));
        }
    }

    /// The claim that was asked for could not be written: it is asked for again.
    pub fn claim_failed(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.fence = Fence::Until(now + CLAIM_AGAIN);
        }
    }

    /// The server's clock, looked at again: clocks drift and are set.
    pub fn dated(&mut self, clock: Clock) {
        if let Some(session) = &mut self.session {
            session.clock = clock;
        }
    }

    /// The stream is gone. What is in flight stays valid: the producer goes on.
    pub fn session_lost(&mut self) {
        self.reached = self.reached.max(self.received());
        self.session = None;
        // What was decided for a session must not be done to the next one: a claim would end that one's wait.
        self.actions.retain(|action| match action {
            Action::Status(_) | Action::Reconnect(_) | Action::Claim => false,
            Action::Purge(_) | Action::NewProducer | Action::Stop => true,
            Action::WriteBack(..) => true,
            Action::Park(..) | Action::LoadLetters { .. } | Action::SettleLetter { .. } | Action::AbandonTrial => true,
            Action::Pause(_) | Action::Unpause => true,
        });
    }

    /// SQL proved that at this time our walsender still had the slot.
    pub fn proved(&mut self, at: Instant) {
        if self.session.is_some() {
            self.renew_lease(at);
        }
    }

    /// The slot itself shows it, or the end of the stream: the server has read that we confirmed this. That a status was
    /// sent proves nothing.
    pub fn heard(&mut self, confirmed: Lsn) {
        self.told = self.told.max(confirmed);
        self.ledger.told(confirmed);
    }

    /// Our walsender has let go of the slot, or another process has put its name on the slot.
    pub fn overtaken(&mut self) {
        self.leave_session(Why::Overtaken);
    }

    /// The server is shutting down: let it go within the grace, even when the sink does not answer. False when that was
    /// known.
    pub fn server_stopping(&mut self, now: Instant) -> bool {
        let Some(session) = self.session.as_mut().filter(|session| session.release_at.is_none()) else { return false };
        session.release_at = Some(now + self.settings.limits.primary_grace);
        true
    }

    pub(super) fn keepalive(&mut self, wal_end: Lsn, sent_at: i64, reply_requested: bool, now: Instant) {
        // Inside a transaction the position is not a mark: rows before it may still come.
        if !self.outbox.in_transaction() {
            self.mark(wal_end);
        }
        let confirmed = self.ledger.confirmed();
        let session = self.session.as_mut().expect("frames come in a session");
        session.received = session.received.max(wal_end);
        if reply_requested {
            session.answer_wanted = true;
            session.pings = if confirmed > session.reported { 0 } else { session.pings + 1 };
            if session.pings >= PINGS_OF_A_STOPPING_SERVER {
                self.server_stopping(now);
            }
        }
        self.sent(sent_at, now);
    }

    /// The walsender had the slot when it sent this: by the date of sending, because it may have waited long in a buffer
    /// and its walsender be gone since.
    pub(super) fn sent(&mut self, sent_at: i64, now: Instant) {
        if let Some(proof) = self.session.as_ref().and_then(|session| session.clock.earliest(sent_at)) {
            self.renew_lease(proof.min(now));
        }
    }

    /// Everything up to here has arrived. While our name is not on the slot it is not ours to move: whoever comes back to
    /// it, or follows us, would find it moved by nobody.
    pub(super) fn mark(&mut self, lsn: Lsn) {
        if self.session.as_ref().is_some_and(|session| session.fence.is_open()) {
            self.ledger.mark(lsn);
        }
    }

    pub(super) fn leave_session(&mut self, why: Why) {
        if let Some(session) = self.session.as_mut().filter(|session| !session.left) {
            session.left = true;
            self.actions.push_back(Action::Reconnect(why));
        }
    }

    pub(super) fn tick_lease(&mut self, now: Instant) {
        let Some(asked) = self.lease else { return };
        if now < asked + self.lease_lasts || !self.producer.is_good() {
            return;
        }
        if self.ledger.inflight() > 0 {
            // What was offered may land until the server lets go of the slot; a successor waits longer than that.
            self.producer.drain(Cause::LeaseLost, asked + self.settings.sender_timeout);
        } else {
            self.leave_session(Why::LeaseLost);
        }
    }

    pub(super) fn tick_session(&mut self, now: Instant) {
        let confirmed = self.ledger.confirmed();
        let (question, grace) = (self.settings.question(), self.settings.limits.primary_grace);
        let nothing_open = self.ledger.is_idle() && self.ledger.writing() == 0;
        let stopping = self.stopping.is_some();
        let Some(session) = self.session.as_mut().filter(|session| !session.left) else { return };
        if session.release_at.is_some_and(|at| now >= at) {
            let unsettled = !nothing_open || session.held_since.is_some() || !session.fence.is_open();
            if unsettled && !session.is_written(grace, now) {
                return self.leave_session(Why::Release);
            }
            if !unsettled {
                // Nothing keeps the server: it ends the stream itself, or is not stopping after all.
                session.release_at = None;
            }
        }
        if matches!(session.fence, Fence::Until(end) if now >= end) && !stopping {
            session.fence = Fence::Unclaimed;
            self.actions.push_back(Action::Claim);
        }
        let news = confirmed > session.reported;
        let since = now.saturating_duration_since(session.reported_at);
        let ask = if now >= session.ask_at { Ask::Reply } else { Ask::Nothing };
        let answer = session.answer_wanted && (news || since >= ANSWER_EVERY);
        if ask == Ask::Reply || answer || (news && since >= REPORT_EVERY) {
            session.reported = confirmed;
            session.reported_at = now;
            session.answer_wanted = false;
            if ask == Ask::Reply {
                session.ask_at = now + question;
            }
            self.actions.push_back(Action::Status(ask));
        }
    }

    fn renew_lease(&mut self, at: Instant) {
        self.lease = Some(self.lease.map_or(at, |known| known.max(at)));
    }
}
