//! The way to the store of dead letters: one errand at a time, so that what the store is asked shows all that it was given.
//!
//! The pipeline's wishes enter (store, load, settle, pause); what came of them goes back to the pipeline. Now and then letters
//! that are due are claimed, and handed to the pipeline one after the other. Nothing is decided here about events.

mod back;
mod counter;
mod sent;
mod topic;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::Relay;
use super::session::Wanted;
use crate::config::Order;
use crate::dead_letter::{Claimed, Column, DeadLetter, KnownLetter, OpenLane, Outcome, Rejection};
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::pipeline::Pipeline;
use crate::receipt::Receipt;
use crate::source::System;
use crate::source::catalog::{Claim, LetterCounts};
use crate::status::Reason;
use counter::{STANDBYS_WITHIN, settle};

/// So many letters are stored, settled or claimed at a time.
const BATCH: usize = 200;
/// How often the store is looked at while letters are open.
const LOOK_OPEN: Duration = Duration::from_secs(1);
/// The pause after an errand that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the outcome of a try waits for the row to say it, too. Whoever dies in between has both to do again, not one of them to forget.
const ROW_WITHIN: Duration = Duration::from_secs(5);

/// What is to be done at the store.
pub(super) struct Clerk {
    letters: VecDeque<Parcel>,
    load: Option<(u64, Position)>,
    /// For what standbys are waited for with this question, which was asked before.
    load_behind: Option<((u64, Position), Lsn)>,
    /// For what standbys are waited for until parked keys may go live.
    unsure: Option<Unsure>,
    settle: Vec<Settling>,
    /// Topics to be remembered.
    topics: Vec<String>,
    pause: Pause,
    claimed: VecDeque<Claimed>,
    /// When they must have been tried: long before somebody else may.
    claimed_until: Instant,
    claims: u64,
    out: bool,
    /// The last errand was to store letters: whatever else waits has its turn.
    stored_last: bool,
    /// A letter could not be stored for what is in it: nobody else is to wait for it.
    one_by_one: bool,
    not_before: Instant,
    look_at: Instant,
    count_at: Instant,
    forget_at: Instant,
    /// The configuration is another one since letters were stored that wait for that, the last of them with this number.
    wake: Option<u64>,
    /// Events for unknown topics are parked once it is known which topics have existed.
    recall: bool,
    /// Why the last errand of each kind failed.
    troubles: BTreeMap<Kind, Error>,
    /// What was not kept of this claimed letter was looked for.
    completed: Option<i64>,
}

/// A letter to be stored.
#[derive(Clone)]
struct Parcel {
    number: u64,
    /// The history of its position.
    system: System,
    letter: DeadLetter,
    /// On its way to the topic of letters, by this producer.
    sent: Option<u32>,
    /// It is in the database, and standbys are waited for.
    stored: Option<Stored>,
}

/// A letter in the database that standbys may not have yet.
#[derive(Clone, Copy)]
struct Stored {
    /// Where the WAL ended then, in the history of its position.
    end: Lsn,
    since: Instant,
}

struct Settling {
    id: i64,
    owner: String,
    outcome: Outcome,
    attempts: u32,
    /// Its row is to say it, too.
    row: Option<Unmarked>,
}

/// A row that does not say yet what became of its letter.
#[derive(Clone, Copy)]
struct Unmarked {
    /// Nobody waits for it any longer than this.
    until: Instant,
    system: System,
}

/// Whether it is written down that the line stands.
#[derive(Debug, PartialEq, Eq)]
enum Pause {
    None,
    ToWrite(String),
    Written,
    ToDelete,
}

/// What an errand is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Store,
    Load,
    Settle,
    Look,
    Wake,
    Remember,
    Recall,
    Pause,
    Complete,
}

/// What an errand came back with.
pub(super) enum Errand {
    /// These letters, by whose walsender.
    Stored(i32, Vec<u64>, Result<Storing>),
    /// Likewise, for this question.
    Loaded((u64, Position), Option<Lsn>, Result<Stock>),
    /// So many, from the oldest on.
    Settled(i32, usize, Result<Claim>),
    /// Up to this one, and whether there may be more of them.
    Woken(i32, u64, Result<(Claim, bool)>),
    /// So many, from the oldest on.
    Remembered(usize, Result<()>),
    /// The topics that have existed.
    Recalled(Result<Vec<String>>),
    Paused(i32, Result<Claim>),
    Unpaused(Result<()>),
    /// By whose walsender.
    Looked(i32, Box<Result<Look>>),
    /// What was not kept of this letter.
    Completed(i64, Result<Vec<Column>>),
}

impl Errand {
    fn kind(&self) -> Kind {
        match self {
            Errand::Stored(..) => Kind::Store,
            Errand::Loaded(..) => Kind::Load,
            Errand::Settled(..) => Kind::Settle,
            Errand::Woken(..) => Kind::Wake,
            Errand::Remembered(..) => Kind::Remember,
            Errand::Recalled(_) => Kind::Recall,
            Errand::Paused(..) | Errand::Unpaused(_) => Kind::Pause,
            Errand::Looked(..) => Kind::Look,
            Errand::Completed(..) => Kind::Complete,
        }
    }
}

/// What the store has, at a session's start.
pub(super) struct Stock {
    letters: Vec<KnownLetter>,
    until: Option<Position>,
    lanes: Vec<OpenLane>,
    pause: Option<String>,
    /// They have existed.
    topics: Vec<String>,
}

/// What a look at the store has shown.
pub(super) struct Look {
    claimed: Vec<Claimed>,
    lanes: Option<Lanes>,
    pause: Option<String>,
    counts: Option<LetterCounts>,
}

/// Which lanes are open.
struct Lanes {
    open: Vec<OpenLane>,
    /// Standbys know of all others once they have what was written up to here; and whether they do.
    end: Lsn,
    known: bool,
}

/// What standbys are waited for with, until keys may go live.
struct Unsure {
    end: Lsn,
    /// Lanes that were open then, or had a letter since.
    open: HashSet<OpenLane>,
}

/// What came of storing letters.
pub(super) enum Storing {
    Lost,
    /// Where the WAL ended then, if there were any; and how far standbys are, if one is waited for.
    Done(Option<Lsn>, Option<Lsn>),
}

impl Parcel {
    fn lane(&self) -> Option<OpenLane> {
        let lane = self.letter.lane.clone();
        Some(OpenLane { topic: lane.topic?, key: lane.key?, first: None })
    }
}

impl Clerk {
    pub(super) fn new(now: Instant) -> Clerk {
        Clerk {
            letters: VecDeque::new(),
            load: None,
            load_behind: None,
            unsure: None,
            settle: Vec::new(),
            topics: Vec::new(),
            pause: Pause::None,
            claimed: VecDeque::new(),
            claimed_until: now,
            claims: 0,
            out: false,
            stored_last: false,
            one_by_one: false,
            not_before: now,
            look_at: now,
            count_at: now,
            forget_at: now,
            wake: None,
            recall: false,
            troubles: BTreeMap::new(),
            completed: None,
        }
    }

    /// The row of a letter that was tried says what became of it.
    pub(super) fn row_written(&mut self, letter: i64, owner: &str) {
        let is_it = |settling: &&mut Settling| settling.id == letter && settling.owner == owner;
        for settling in self.settle.iter_mut().filter(is_it) {
            settling.row = None;
        }
    }

    /// The configuration is another one: letters may need other columns, and those that waited for it need not wait any longer.
    pub(super) fn look_again(&mut self) {
        self.completed = None;
        self.wake_all();
        for settling in self.settle.iter_mut().filter(|settling| matches!(settling.outcome, Outcome::Waits(_))) {
            settling.outcome = Outcome::PutBack;
        }
    }

    /// Letters that waited for their route to be switched on are due at once, up to the last one that was parked by now.
    pub(super) fn wake_all(&mut self) {
        self.wake = Some(self.letters.back().map_or(0, |parcel| parcel.number));
    }

    /// True when standbys have not had a letter for so long that people should know.
    fn waits_long(&self, now: Instant) -> bool {
        let is_long = |stored: Stored| now.duration_since(stored.since) >= STANDBYS_WITHIN;
        self.letters.iter().filter_map(|parcel| parcel.stored).any(is_long)
    }

    /// Whether letters can be woken, because all that were parked by the former configuration are stored; and the last of those.
    fn may_wake(&self) -> Option<u64> {
        self.wake.filter(|last| self.letters.front().is_none_or(|parcel| parcel.number > *last))
    }

    /// The next letter to be tried, while nobody has looked in the table for what was not kept of it.
    fn incomplete(&self, pipeline: &Pipeline) -> Option<&Claimed> {
        self.claimed.front().filter(|letter| self.completed != Some(letter.id) && !pipeline.lacks(letter).is_empty())
    }

    fn has_more(&self, pipeline: &Pipeline) -> bool {
        self.recall || self.may_wake().is_some() || !self.topics.is_empty() || self.incomplete(pipeline).is_some()
    }

    fn has_work(&self, pipeline: &Pipeline, now: Instant) -> bool {
        let has_pause = matches!(self.pause, Pause::ToWrite(_) | Pause::ToDelete);
        let has_letters = !self.letters.is_empty() || !self.settle.is_empty();
        self.load.is_some() || has_letters || self.has_more(pipeline) || has_pause || now >= self.look_at
    }
}

impl Relay {
    pub(super) fn park(&mut self, number: u64, letter: DeadLetter) {
        self.metrics.rejected(letter.rejection.reason);
        let event = letter.event.as_deref().unwrap_or("without id");
        let Rejection { reason, message } = &letter.rejection;
        tracing::warn!(event, position = %letter.position, reason, error = message, "the event is parked");
        let system = self.system.expect("rows come in a session");
        self.clerk.letters.push_back(Parcel { number, system, letter, sent: None, stored: None });
    }

    pub(super) fn load_letters(&mut self, serial: u64, from: Position) {
        self.clerk.load = Some((serial, from));
    }

    pub(super) fn settle_letter(
        &mut self,
        id: i64,
        owner: String,
        attempts: u32,
        outcome: Outcome,
        receipt: Option<Box<Receipt>>,
    ) {
        match &outcome {
            Outcome::Delivered => tracing::info!(letter = id, "a dead letter is delivered"),
            Outcome::Rejected(Rejection { reason, message }) => {
                tracing::warn!(letter = id, reason, error = message, "a dead letter is rejected again");
            }
            Outcome::Waits(Rejection { reason, .. }) => tracing::debug!(letter = id, reason, "a dead letter waits"),
            Outcome::PutBack => {}
        }
        let row = receipt.zip(self.system).map(|(receipt, system)| {
            self.writer.take_letter(id, owner.clone(), system, receipt);
            Unmarked { until: Instant::now() + ROW_WITHIN, system }
        });
        self.clerk.settle.push(Settling { id, owner, outcome, attempts, row });
    }

    /// Positions are another history's. Rows are published again that stand before letters whose delivery nobody has written down:
    /// their key's order wants them delivered again, behind these.
    pub(super) fn begin_history(&mut self) {
        self.clerk.unsure = None;
        if self.wanted.dead_letter.order == Order::ParkKey {
            self.clerk.settle.iter_mut().for_each(|settling| settling.outcome.undo());
        }
    }

    fn put_back(&mut self, letter: Claimed) {
        let Claimed { id, owner, attempts, .. } = letter;
        self.clerk.settle.push(Settling { id, owner, attempts, outcome: Outcome::PutBack, row: None });
    }

    pub(super) fn pause(&mut self, message: String) {
        tracing::error!(error = message, hint = HINT, "the line stands");
        self.clerk.pause = Pause::ToWrite(message);
    }

    pub(super) fn unpause(&mut self) {
        tracing::info!("the line goes on");
        // It may be on its way to be written.
        self.clerk.pause = Pause::ToDelete;
    }

    /// Before the process ends: what became of letters is written down, and those that were only claimed are put back, so that
    /// a successor neither repeats nor waits for them.
    pub(super) async fn settle_before_leaving(&mut self, within: Duration) {
        self.write_rows_of_letters(within / 2).await;
        while let Some(letter) = self.clerk.claimed.pop_front() {
            self.put_back(letter);
        }
        let Some((desk, wanted)) = self.desk().filter(|_| !self.clerk.settle.is_empty()) else { return };
        self.clerk.settle.iter_mut().for_each(|settling| settling.row = None);
        let all = self.settled(usize::MAX, Instant::now());
        match tokio::time::timeout(within / 2, settle(wanted, desk, all)).await {
            Ok(Ok(Claim::Ours | Claim::Lost)) => {}
            Ok(Err(error)) => tracing::warn!(error = error.chain(), "what became of dead letters cannot be written"),
            Err(_) => tracing::warn!("what became of dead letters could not be written in time"),
        }
    }

    /// Why events do not flow, as far as dead letters are concerned.
    pub(super) fn letter_reasons(&self) -> Vec<Reason> {
        let hint = if self.pipeline.waits_for_keys() { HINT_KEYS } else { HINT };
        let paused = self.pipeline.paused().map(|message| Reason {
            code: "paused".into(),
            message: message.to_owned(),
            hint: Some(hint.into()),
        });
        let trouble = self.clerk.troubles.iter().next().map(|(kind, error)| {
            let (what, hint) = match kind {
                Kind::Store => ("stored", "see the database; nothing is lost, rejected events wait"),
                Kind::Load => ("read", "see the database; nothing is lost, no event flows until they are"),
                Kind::Recall => ("asked which topics have existed", "see the database; events for unknown topics wait"),
                Kind::Settle | Kind::Look | Kind::Wake | Kind::Remember | Kind::Pause | Kind::Complete => {
                    ("looked after", "see the database; events flow, dead letters wait to be tried")
                }
            };
            Reason {
                code: "dead_letter_store".into(),
                message: format!("dead letters cannot be {what}: {}", error.chain()),
                hint: Some(error.hint_text().unwrap_or(hint).to_owned()),
            }
        });
        paused.into_iter().chain(trouble).collect()
    }
}

/// What an operator can do when too many keys are parked.
const HINT_KEYS: &str =
    "see outboxd dead-letters list; retry or discard what is parked, or raise dead_letter.max_parked_keys";
/// What an operator can do when the line stands.
const HINT: &str = "see outboxd dead-letters list, mend the cause, then outboxd resume";
