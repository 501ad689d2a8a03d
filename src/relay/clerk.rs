//! The way to the store of dead letters: one errand at a time, so that what the store is asked shows all that it was given.
//!
//! The pipeline's wishes enter (store, load, settle, pause); what came of them goes back to the pipeline. Now and then letters
//! that are due are claimed, and handed to the pipeline one after the other. Nothing is decided here about events.

mod counter;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::errands::Done;
use super::link::Link;
use super::session::Wanted;
use super::{Relay, jittered};
use crate::config::{self, Order, UnknownTopic};
use crate::dead_letter::{Claimed, Column, DeadLetter, KnownLetter, OpenLane, Outcome, Rejection};
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::pipeline::{Loaded, Pipeline};
use crate::receipt::Receipt;
use crate::sink::{Failure, Untried, Whose};
use crate::source::System;
use crate::source::catalog::{self, Claim, Desk, LetterCounts, SettledLetter};
use crate::status::{DeadLetters, Reason};
use counter::{
    CLAIM, Looking, STANDBY_IS_LATE, STANDBYS_WITHIN, complete, connect, load, recall, remember, settle, store, wake,
};

/// So many letters are stored, settled or claimed at a time.
const BATCH: usize = 200;
const BATCH_BYTES: u64 = 8 << 20;
/// How often the store is looked at while letters are open, and while none is.
const LOOK_OPEN: Duration = Duration::from_secs(1);
const LOOK_EMPTY: Duration = Duration::from_secs(5);
/// How often letters are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// How often old letters are deleted.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// The pause after an errand that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the outcome of a try waits for the row to say it, too. Whoever dies in between has both to do again, not one of them to forget.
const ROW_WITHIN: Duration = Duration::from_secs(5);
/// How long a letter that could not be tried waits.
const PUT_BACK: Duration = Duration::from_secs(5);

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
    /// By whose walsender's server; and where the WAL ended then.
    pid: i32,
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
    /// By whose walsender's server.
    pid: i32,
    end: Lsn,
    /// Lanes that were open then, or had a letter since.
    open: Vec<OpenLane>,
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

    /// Rows are published again that stand before letters whose delivery nobody has written down. Their key's order wants them
    /// delivered again, behind these.
    pub(super) fn undo_outcomes(&mut self) {
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
                Kind::Store | Kind::Load => ("stored", "see the database; nothing is lost, rejected events wait"),
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

    /// Writes letters into their topic, each until it is there.
    fn write_letters(&mut self, topic: &str, now: Instant) {
        let (slot, pipeline) = (&self.wanted.postgres.slot, &self.pipeline);
        if now < self.clerk.not_before {
            return;
        }
        self.clerk.letters.retain(|parcel| parcel.sent.is_some() || pipeline.wants_stored(parcel.number));
        let generation = self.sink.trial_generation();
        for parcel in self.clerk.letters.iter_mut().filter(|parcel| parcel.sent != Some(generation)) {
            parcel.sent = None;
        }
        for at in 0..self.clerk.letters.len() {
            if self.clerk.one_by_one && self.clerk.letters.iter().any(|parcel| parcel.sent.is_some()) {
                return;
            }
            let parcel = &mut self.clerk.letters[at];
            if parcel.sent.is_some() {
                continue;
            }
            let trouble = match self.sink.write_letter(topic, parcel.number, &parcel.letter.document(slot)) {
                Ok(()) => {
                    parcel.sent = Some(self.sink.trial_generation());
                    continue;
                }
                Err(Untried::Unknown) => {
                    self.clerk.not_before = now + AGAIN;
                    return;
                }
                Err(Untried::Later) => {
                    self.clerk.not_before = now + AGAIN;
                    let trouble = Error::transient(format!("topic \"{topic}\" cannot be written"));
                    self.clerk.troubles.insert(Kind::Store, trouble);
                    return;
                }
                Err(Untried::Never(problem)) => {
                    if problem.reason == "too_large" {
                        parcel.letter.leave_large_out();
                    }
                    Error::transient(problem.message)
                }
            };
            self.clerk.not_before = now + AGAIN;
            self.clerk.troubles.insert(Kind::Store, trouble);
        }
    }

    /// What became of records that were sent apart from the others: trials, or letters on their way to their topic.
    pub(super) fn sent_apart(&mut self, number: i64, result: std::result::Result<(), Failure>) {
        if self.wanted.dead_letter.store == config::Store::Postgres {
            return self.pipeline.tried(number, result);
        }
        match result {
            Ok(()) => {
                self.clerk.troubles.remove(&Kind::Store);
                let number = number.cast_unsigned();
                self.clerk.letters.retain(|parcel| parcel.number != number);
                self.clerk.one_by_one &= !self.clerk.letters.is_empty();
                self.pipeline.stored(number);
            }
            Err(failure) => {
                // A broker refuses a whole batch: whose fault it is shows when one is alone.
                let was_alone = self.clerk.letters.iter().filter(|parcel| parcel.sent.is_some()).count() == 1;
                // What else that producer had is gone with it.
                self.clerk.letters.iter_mut().for_each(|parcel| parcel.sent = None);
                let number = number.cast_unsigned();
                let refused = self.clerk.letters.iter_mut().find(|parcel| parcel.number == number);
                if let Some(parcel) = refused.filter(|_| failure.whose == Whose::Event) {
                    if was_alone && failure.too_large {
                        parcel.letter.leave_large_out();
                    }
                    self.clerk.one_by_one = true;
                }
                self.clerk.not_before = Instant::now() + AGAIN;
                let trouble = format!("topic \"{}\" does not take them: {}", failure.topic, failure.message);
                self.clerk.troubles.insert(Kind::Store, Error::transient(trouble));
            }
        }
    }

    /// Hands the next claimed letter to the pipeline, and sends the next errand out.
    pub(super) fn keep_clerk_busy(&mut self, now: Instant) {
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
        let others_wait = !self.settled(1, now).is_empty() || self.clerk.has_more(&self.pipeline);
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
    pub(super) fn unknown_topics_anew(&mut self) {
        let settings = &self.wanted.dead_letter;
        let (wanted, is_in_database) = (settings.unknown_topic, settings.store == config::Store::Postgres);
        self.clerk.recall = is_in_database && wanted == UnknownTopic::Park && self.sink.unknown_topic() != wanted;
        match self.clerk.recall {
            // While events waited, nobody wrote this down for those that come after us.
            true => self.clerk.topics.extend(self.sink.seen_topics()),
            false => self.sink.set_unknown_topic(wanted),
        }
    }

    fn recalled(&mut self, topics: Vec<String>) {
        self.sink.existed(topics);
        if std::mem::take(&mut self.clerk.recall) {
            self.sink.set_unknown_topic(UnknownTopic::Park);
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
        let stored = |parcel: &Parcel| parcel.stored.filter(|stored| stored.pid == desk.pid);
        let first = self.clerk.letters.iter().find_map(stored).map(|stored| stored.end);
        let others = self.clerk.letters.iter().filter(|parcel| stored(parcel).is_none());
        let batch: Vec<Parcel> = others.take(most).take_while(fits).cloned().collect();
        if batch.is_empty() && first.is_none() {
            return false;
        }
        let (desk, wanted, patience) = (desk.clone(), wanted.clone(), self.patience_with_letters());
        self.errand(async move {
            let numbers = batch.iter().map(|parcel| parcel.number).collect();
            let (pid, result) = (desk.pid, store(wanted, desk, batch, first, patience).await);
            Errand::Stored(pid, numbers, result)
        });
        self.clerk.stored_last = true;
        true
    }

    fn send_clerk_to_look(&mut self, desk: Desk, wanted: Wanted, now: Instant) {
        match &self.clerk.pause {
            Pause::ToWrite(message) => {
                let message = message.clone();
                self.errand(async move {
                    Errand::Paused(desk.pid, async { connect(&wanted).await?.pause(&desk, &message).await }.await)
                });
            }
            Pause::ToDelete => {
                self.errand(async move {
                    Errand::Unpaused(async { connect(&wanted).await?.resume(&desk.slot).await.map(drop) }.await)
                });
            }
            Pause::None | Pause::Written if now >= self.clerk.look_at => {
                self.clerk.claims += 1;
                if self.clerk.claimed.is_empty() {
                    self.clerk.claimed_until = now + CLAIM / 2;
                }
                let may_go_live = self.pipeline.has_parked_lanes();
                self.clerk.unsure.take_if(|unsure| !may_go_live || unsure.pid != desk.pid);
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
            Pause::None | Pause::Written => {}
        }
    }

    fn errand(&mut self, errand: impl Future<Output = Errand> + Send + 'static) {
        (self.clerk.out, self.clerk.stored_last) = (true, false);
        self.tasks.spawn(async { Done::Errand(errand.await) });
    }

    /// Who writes, and where; `None` while the slot is not ours.
    fn desk(&self) -> Option<(Desk, Wanted)> {
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

    fn settled(&self, most: usize, now: Instant) -> Vec<SettledLetter> {
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

    /// The clerk is back.
    pub(super) fn errand_done(&mut self, errand: Errand) {
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
        if matches!(&self.link, Link::Up(live) if live.backend_pid == pid) {
            self.pipeline.overtaken();
        }
    }

    /// They are in the database; those that standbys have, too, are done.
    fn letters_stored(&mut self, pid: i32, numbers: &[u64], storing: Storing, now: Instant) {
        let Storing::Done(end, standbys) = storing else { return self.claim_lost(pid, now) };
        let stored = end.map(|end| Stored { pid, end, since: now });
        for parcel in self.clerk.letters.iter_mut().filter(|parcel| numbers.contains(&parcel.number)) {
            parcel.stored = stored;
            if let (Some(unsure), Some(lane)) = (&mut self.clerk.unsure, parcel.lane()) {
                unsure.open.push(lane);
            }
        }
        let have = |stored: Stored| stored.pid == pid && standbys.is_none_or(|standbys| stored.end <= standbys);
        let is_done = |parcel: &&Parcel| parcel.stored.is_some_and(have);
        let done: Vec<u64> = self.clerk.letters.iter().filter(is_done).map(|parcel| parcel.number).collect();
        if done.is_empty() {
            return;
        }
        self.clerk.letters.retain(|parcel| !is_done(&parcel));
        self.clerk.one_by_one &= !self.clerk.letters.is_empty();
        for number in &done {
            self.pipeline.stored(*number);
        }
        if let Some(counts) = &mut self.board.status.dead_letters {
            counts.pending += done.len() as u64;
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
            true => {
                open.extend(self.clerk.unsure.take().into_iter().flat_map(|unsure| unsure.open));
                self.pipeline.lanes_open(&open);
            }
            false if self.clerk.unsure.is_none() => {
                tracing::debug!(%end, "keys may go live once standbys have what was written");
                self.clerk.unsure = Some(Unsure { pid, end, open });
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
            || self.clerk.unsure.is_some();
        self.clerk.look_at = now + if is_busy { LOOK_OPEN } else { LOOK_EMPTY };
        if !look.claimed.is_empty() {
            self.sink.begin_trials(now);
        }
        self.clerk.completed = None;
        self.clerk.claimed.extend(look.claimed);
    }
}

/// What PostgreSQL says of a table that there is not.
const UNDEFINED_TABLE: &str = "42P01";
/// What an operator can do when too many keys are parked.
const HINT_KEYS: &str =
    "see outboxd dead-letters list; retry or discard what is parked, or raise dead_letter.max_parked_keys";
/// What an operator can do when the line stands.
const HINT: &str = "see outboxd dead-letters list, mend the cause, then outboxd resume";
