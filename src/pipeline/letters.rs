//! The pipeline's side of dead letters: which rows are parked, which keys wait behind them, which letters are tried again,
//! and when so much is rejected that the line must stand.
//!
//! Rejected rows enter, and what the store says; `Action`s leave. Guarantees: a row is settled by its letter only when that is
//! stored; a row whose letter is stored is not published, whatever it would be now; a key with an open letter goes live again
//! only when the store has shown that none is left; a letter is tried only behind everything before it, one at a time,
//! while the slot is ours.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::{Action, Flow, Pipeline};
use crate::config::{self, Order, Store};
use crate::dead_letter::{
    Claimed, DeadLetter, KnownLetter, Lane, OpenLane, Outcome, PAYLOAD_MISSING, Rejection, SWITCHED_OFF,
};
use crate::ledger::{Answered, Entry};
use crate::lsn::{Lsn, Position};
use crate::receipt::Fate;
use crate::record::Rejected;
use crate::sink::{Failure, Sink, Untried, Whose};
use crate::source::outbox::Given;

/// How long after a failed load the next one is tried.
const LOAD_AGAIN: Duration = Duration::from_secs(1);
/// How long a trial may take: less than half of what its claim lasts.
const TRIAL: Duration = Duration::from_secs(20);
/// Fewer rejected events than this are no outage, whatever their share.
const FEW: u64 = 100;
/// Of so many events the share is taken; older ones count half.
const LATEST: u64 = 1000;

/// What the store has, as far as rows may come again.
#[derive(Debug)]
pub struct Loaded {
    /// Which question this answers.
    pub serial: u64,
    /// Letters from the asked position on, in order.
    pub letters: Vec<KnownLetter>,
    /// There are more letters from here on.
    pub until: Option<Position>,
    /// Topics and keys with open letters.
    pub lanes: Vec<OpenLane>,
    /// The line stands, because of this.
    pub pause: Option<String>,
}

#[derive(Debug)]
pub(super) struct Letters {
    settings: config::DeadLetters,
    shelf: Shelf,
    pub(super) lanes: Lanes,
    rate: Rate,
    pause: Option<Pause>,
    /// Rows that the broker refused when they were alone.
    pub(super) condemned: BTreeMap<Position, Rejection>,
    /// Letters that the store is to take, by their number there.
    pending: BTreeMap<u64, Pending>,
    handed: u64,
    trial: Option<Trial>,
    /// Lanes of this claim in which a letter was not delivered: those behind it must not pass it.
    halted: Halted,
}

#[derive(Debug, Default)]
struct Halted {
    owner: String,
    lanes: HashSet<Vec<u8>>,
}

/// A letter on its way to the store.
#[derive(Debug)]
struct Pending {
    /// The row's number in the ledger.
    row: u64,
    lane: Option<Vec<u8>>,
}

/// The letter that is being tried.
#[derive(Debug)]
struct Trial {
    id: i64,
    owner: String,
    attempts: u32,
    lane: Option<Vec<u8>>,
    /// The outbox and the id of its row, where that says what became of it.
    row: Option<(usize, String)>,
    /// Nobody waits for its answer any longer than this.
    deadline: Instant,
}

/// Why nothing more is parked.
#[derive(Debug)]
struct Pause {
    why: Why,
    /// The row at which the line stands therefore, once it has come to one.
    at: Option<Position>,
    /// How many rows there had been when it began.
    rows: u64,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Too much is rejected: a person must look.
    Rate,
    /// Too many keys are parked: the line goes on when one is not any more.
    Keys,
}

impl Letters {
    pub(super) fn new(settings: config::DeadLetters) -> Letters {
        let shelf = Shelf::new(&settings.store);
        let lanes = Lanes { most: settings.max_parked_keys, ..Lanes::default() };
        Letters {
            settings,
            shelf,
            lanes,
            rate: Rate::default(),
            pause: None,
            condemned: BTreeMap::new(),
            pending: BTreeMap::new(),
            handed: 0,
            trial: None,
            halted: Halted::default(),
        }
    }

    /// True when rows can be told from those that have letters.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.shelf.loading, Loading::Done)
    }

    /// Whether the row has a letter, and what that says.
    pub(super) fn of(&mut self, position: Position, event: impl FnOnce() -> Option<String>) -> Shelved {
        if self.shelf.letters.is_empty() && self.shelf.until.is_none() {
            return Shelved::Nothing;
        }
        if self.shelf.until.is_some_and(|until| position >= until) {
            self.shelf.loading = Loading::Wanted { from: position, not_before: None };
            return Shelved::Unknown;
        }
        let Some(known) = self.shelf.letters.get(&position) else { return Shelved::Nothing };
        // In another history the position may have been another row's.
        let same = known.is_current || known.event.is_some() && known.event == event();
        if same { Shelved::Letter(known.fate.clone()) } else { Shelved::Nothing }
    }

    /// The row has passed: from now on the ledger knows.
    pub(super) fn pass(&mut self, position: Position) {
        self.condemned.remove(&position);
        self.shelf.letters.remove(&position);
    }

    /// Another history, or another relay's part of this one: nothing that is known of letters counts.
    pub(super) fn forget(&mut self, from: Position) {
        self.shelf.forget(from);
        self.lanes.parked.clear();
        self.lanes.newest = Position::default();
        self.condemned.clear();
        self.pending.clear();
        self.pause = None;
        self.rate = Rate::default();
    }

    /// True while a letter is being tried.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Why the line stands, if it does.
    pub(super) fn pause(&self) -> Option<&str> {
        self.pause.as_ref().map(|pause| pause.message.as_str())
    }
}

/// What the store has of a row.
pub(super) enum Shelved {
    /// Nobody knows yet.
    Unknown,
    Nothing,
    Letter(Fate),
}

/// What the store has of rows that may come again.
#[derive(Debug)]
struct Shelf {
    loading: Loading,
    letters: BTreeMap<Position, KnownLetter>,
    /// What the store has from here on is not loaded yet.
    until: Option<Position>,
    serial: u64,
    /// Nothing can be read from it.
    is_write_only: bool,
}

#[derive(Debug)]
enum Loading {
    Wanted { from: Position, not_before: Option<Instant> },
    Asked { from: Position },
    Done,
}

impl Shelf {
    fn new(store: &Store) -> Shelf {
        let is_write_only = matches!(store, Store::Kafka(_));
        let mut shelf =
            Shelf { loading: Loading::Done, letters: BTreeMap::new(), until: None, serial: 0, is_write_only };
        shelf.forget(Position::default());
        shelf
    }

    fn forget(&mut self, from: Position) {
        self.letters.clear();
        self.until = None;
        self.serial += 1;
        self.loading = match self.is_write_only {
            true => Loading::Done,
            false => Loading::Wanted { from, not_before: None },
        };
    }
}

/// Topics and keys whose events are parked, with `order = "park-key"`.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// By the topic, a zero and the key: the first letter of each.
    parked: HashMap<Vec<u8>, Position>,
    most: usize,
    /// The newest row that was parked.
    newest: Position,
    scratch: Vec<u8>,
}

impl Lanes {
    /// True when the row must be parked behind another one. What stands before a lane's first letter may pass.
    pub(super) fn holds(&mut self, topic: &str, key: Option<&[u8]>, position: Position) -> bool {
        if self.parked.is_empty() {
            return false;
        }
        let Some(key) = key else { return false };
        self.scratch.clear();
        name_lane(topic, key, &mut self.scratch);
        self.parked.get(&self.scratch).is_some_and(|first| position > *first)
    }

    /// Whether a letter of this lane may be parked: its key is parked already, or there is room for one more.
    fn has_room(&self, lane: &[u8]) -> bool {
        self.parked.contains_key(lane) || self.parked.len() < self.most
    }

    fn park(&mut self, lane: Vec<u8>, position: Position) {
        self.newest = self.newest.max(position);
        let first = self.parked.entry(lane).or_insert(position);
        *first = position.min(*first);
    }
}

/// The name of a topic's key.
fn lane_name(topic: &str, key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(topic.len() + 1 + key.len());
    name_lane(topic, key, &mut name);
    name
}

fn name_lane(topic: &str, key: &[u8], name: &mut Vec<u8>) {
    name.extend_from_slice(topic.as_bytes());
    name.push(0);
    name.extend_from_slice(key);
}

/// The share of rejected events among the latest.
#[derive(Debug, Default)]
struct Rate {
    /// How many rows there had been when counting began.
    since: u64,
    rejected: u64,
    /// A person has said that it shall go on: until the share has fallen, it is not looked at.
    accepted: bool,
}

impl Rate {
    /// One more of so many rows is rejected. True when that is too many, in percent.
    fn reject(&mut self, rows: u64, most: u64) -> bool {
        let seen = rows.saturating_sub(self.since) + 1;
        if seen > LATEST {
            self.since = rows - LATEST / 2;
            // Once for each time that so many have passed: yesterday's are forgotten.
            self.rejected >>= (seen / LATEST).min(63);
        }
        let seen = rows.saturating_sub(self.since) + 1;
        let too_many = (self.rejected + 1) * 100 > seen * most;
        // Not before there is enough to judge by.
        self.accepted &= too_many || seen < LATEST / 2;
        if too_many && self.rejected >= FEW && !self.accepted {
            return true;
        }
        self.rejected += 1;
        false
    }
}

impl Pipeline {
    /// A row is rejected: it is parked, or held while it cannot be.
    pub(super) fn park(
        &mut self,
        rejected: Rejected,
        lane: Lane,
        event_type: Option<String>,
        given: Given<'_>,
    ) -> Flow {
        let Rejected { position, committed_at, event, rejection } = rejected;
        // What is tried stands before everything that was not: a row that was refused must not wait for a key that only such a
        // try can free.
        self.letters.pause.take_if(|pause| pause.why == Why::Keys && pause.at.is_some_and(|at| position < at));
        if let Some(pause) = &mut self.letters.pause {
            pause.at = Some(position);
            return Flow::Held;
        }
        let kept = self.outbox.keep(given, self.settings.limits.event);
        let is_marked = self.row_of_letter(&kept.origin, event.as_ref()).is_some();
        let letter = DeadLetter {
            position,
            committed_at,
            origin: kept.origin,
            event,
            event_type,
            lane,
            columns: kept.columns,
            not_kept: kept.not_kept,
            rejection,
            xid: is_marked.then(|| self.outbox.xid()),
        };
        let weight = letter.weight();
        if self.ledger.is_full(weight, self.settings.limits.memory) {
            return Flow::Held;
        }
        let lane = self.letters.lane_of(&letter);
        let rows = self.ledger.rows();
        if let Some((why, message)) = self.letters.obstacle(&letter, given, lane.as_deref(), rows) {
            if why == Why::Rate {
                // It outlives the process; too many keys are found again.
                self.actions.push_back(Action::Pause(message.clone()));
            }
            self.letters.pause = Some(Pause { why, at: Some(position), rows, message });
            return Flow::Held;
        }
        let receipt = self.receipt_of_letter(&letter);
        let row = self.ledger.park(Entry { position, committed_at, bytes: 0, weight }, receipt);
        self.letters.condemned.remove(&position);
        self.letters.handed += 1;
        let number = self.letters.handed;
        if let Some(lane) = &lane {
            self.letters.lanes.park(lane.clone(), position);
        }
        self.letters.pending.insert(number, Pending { row, lane });
        self.actions.push_back(Action::Park(number, Box::new(letter)));
        Flow::Taken
    }

    /// A row has passed. If it is the one at which the line stood, or if many have passed since a pause of former times, what
    /// was wrong is mended.
    pub(super) fn passed(&mut self, position: Position) {
        let rows = self.ledger.rows();
        let is_over = |pause: &mut Pause| match pause.at {
            Some(at) => position >= at,
            None => rows >= pause.rows + LATEST,
        };
        if let Some(pause) = self.letters.pause.take_if(is_over) {
            self.letters.rate = Rate::default();
            if pause.why == Why::Rate {
                self.actions.push_back(Action::Unpause);
            }
        }
    }

    /// A person has said that the line shall go on.
    pub fn resumed(&mut self) {
        if self.letters.pause.take().is_some() {
            self.letters.rate = Rate { since: self.ledger.rows(), rejected: 0, accepted: true };
        }
    }

    /// Why the line stands, if it does: too much is rejected, or too many keys are parked.
    pub fn paused(&self) -> Option<&str> {
        self.letters.pause()
    }

    /// True when it stands until a key is free again.
    pub fn waits_for_keys(&self) -> bool {
        self.letters.pause.as_ref().is_some_and(|pause| pause.why == Why::Keys)
    }

    /// The letter of this number is stored. Answers with the row's entry unless it is of another history.
    pub fn stored(&mut self, number: u64) -> Option<Entry> {
        let pending = self.letters.pending.remove(&number)?;
        let Answered { entry, receipt } = self.ledger.parked(pending.row)?;
        self.write_back(receipt);
        Some(entry)
    }

    /// True while the letter of this number is to be stored: those of another history are not.
    pub fn wants_stored(&self, number: u64) -> bool {
        self.letters.pending.contains_key(&number)
    }

    /// What the store has was asked for, and this is it.
    pub fn letters_loaded(&mut self, loaded: Loaded) {
        let letters = &mut self.letters;
        if loaded.serial != letters.shelf.serial {
            return;
        }
        for letter in loaded.letters {
            if letter.is_current {
                letters.lanes.newest = letters.lanes.newest.max(letter.position);
            }
            letters.shelf.letters.insert(letter.position, letter);
        }
        // There is a letter, too: a row before it must not wait for a key that only such a letter can free.
        letters.lanes.newest = letters.lanes.newest.max(loaded.until.unwrap_or_default());
        letters.shelf.until = loaded.until;
        letters.shelf.loading = Loading::Done;
        if letters.settings.order == Order::ParkKey {
            for OpenLane { topic, key, first } in loaded.lanes {
                letters.lanes.park(lane_name(&topic, &key), first.unwrap_or_default());
            }
        }
        if let Some(message) = loaded.pause {
            self.stands(message);
        }
    }

    /// The line stood when another process left it, and nobody has said since that it shall go on.
    pub fn stands(&mut self, message: String) {
        let rows = self.ledger.rows();
        self.letters.pause.get_or_insert(Pause { why: Why::Rate, at: None, rows, message });
    }

    /// The store could not be asked.
    pub fn letters_not_loaded(&mut self, serial: u64, now: Instant) {
        let shelf = &mut self.letters.shelf;
        if let Loading::Asked { from } = shelf.loading
            && serial == shelf.serial
        {
            shelf.loading = Loading::Wanted { from, not_before: Some(now + LOAD_AGAIN) };
        }
    }

    /// The topics and keys that have open letters, as the store has just shown them: all others go live again, but for those
    /// whose letter is on its way there.
    pub fn lanes_open(&mut self, open: &[OpenLane]) {
        let letters = &mut self.letters;
        if !letters.is_loaded() {
            return;
        }
        let mut parked = HashMap::new();
        for OpenLane { topic, key, .. } in open {
            let lane = lane_name(topic, key);
            if let Some(first) = letters.lanes.parked.get(&lane) {
                parked.insert(lane, *first);
            }
        }
        for lane in letters.pending.values().filter_map(|pending| pending.lane.as_ref()) {
            if let Some(first) = letters.lanes.parked.get(lane) {
                parked.insert(lane.clone(), *first);
            }
        }
        letters.lanes.parked = parked;
        letters.go_on_if_there_is_room();
    }

    /// Other numbers from now on; store and order stay. Why the line stands is judged anew by them.
    pub(super) fn set_letters(&mut self, settings: config::DeadLetters) {
        let letters = &mut self.letters;
        let is_raised = settings.max_rate > letters.settings.max_rate;
        letters.lanes.most = settings.max_parked_keys;
        letters.settings = settings.clone();
        self.settings.dead_letter = settings;
        letters.go_on_if_there_is_room();
        // The row at which it stands comes again and is judged by what was counted; of a former process's pause nothing is known but that
        // a person thinks otherwise now.
        if is_raised && letters.pause.take_if(|pause| pause.why == Why::Rate).is_some() {
            self.actions.push_back(Action::Unpause);
        }
    }

    /// True while the store should be asked which lanes are open.
    pub fn has_parked_lanes(&self) -> bool {
        !self.letters.lanes.parked.is_empty()
    }

    /// Letters before this position may be claimed now, to be tried; `None` when none may be.
    pub fn may_try(&self, now: Instant) -> Option<Position> {
        let free = self.letters.trial.is_none() && self.letters.is_loaded() && self.stopping.is_none();
        (free && self.is_ours(now)).then(|| self.ledger.frontier())
    }

    /// The columns that were not kept of a letter, and without which it cannot be tried.
    pub fn lacks(&self, letter: &Claimed) -> Vec<String> {
        match letter.not_kept.is_empty() {
            true => Vec::new(),
            false => self.outbox.lacks(letter),
        }
    }

    /// What the server is known to have read that we confirmed: it sends nothing before that again, unless it crashes.
    pub fn told(&self) -> Lsn {
        self.told
    }

    /// Tries to publish a letter that was claimed. What becomes of it is told by `Action::SettleLetter`, now or later. False when
    /// nobody knows yet what its topic takes: try it again in a moment.
    pub fn try_again(&mut self, letter: &Claimed, now: Instant, sink: &mut impl Sink) -> bool {
        let trial = Trial {
            row: self.row_of_letter(&letter.origin, letter.event.as_ref()),
            ..self.letters.trial_of(letter, now)
        };
        let is_halted = trial.lane.as_ref().is_some_and(|lane| self.letters.halted.lanes.contains(lane));
        let may_try = self.may_try(now).is_some_and(|before| !letter.is_current || letter.position < before);
        if is_halted || !may_try {
            self.settle_letter(trial, Outcome::PutBack);
            return true;
        }
        match self.offer_letter(letter, sink) {
            Ok(()) => self.letters.trial = Some(trial),
            Err(Some(outcome)) => self.settle_letter(trial, outcome),
            Err(None) => return false,
        }
        true
    }

    /// Routes the letter anew and offers it; or says what became of it, if anybody knows.
    fn offer_letter(&mut self, letter: &Claimed, sink: &mut impl Sink) -> Result<(), Option<Outcome>> {
        let rejected = |reason, message| Err(Some(Outcome::Rejected(Rejection::new(reason, message))));
        let row = match self.outbox.restore(letter) {
            Ok(row) => row,
            Err(rejection) => return Err(Some(Outcome::Rejected(rejection))),
        };
        let record = match self.router.route(&row) {
            Ok(record) => record,
            Err(Rejected { rejection, .. }) if rejection.reason == SWITCHED_OFF => {
                return Err(Some(Outcome::Waits(rejection)));
            }
            Err(Rejected { rejection, .. }) => return Err(Some(Outcome::Rejected(rejection))),
        };
        if let Some(message) = too_large(record.bytes(), self.settings.limits.event) {
            return rejected("too_large", message);
        }
        match sink.try_again(&record, letter.id) {
            Ok(()) => Ok(()),
            Err(Untried::Unknown) => Err(None),
            Err(Untried::Later) => Err(Some(Outcome::PutBack)),
            Err(Untried::Never(problem)) => rejected(problem.reason, problem.message),
        }
    }

    /// The trial of this letter has come to its end.
    pub fn tried(&mut self, id: i64, result: Result<(), Failure>) {
        let Some(trial) = self.letters.trial.take_if(|trial| trial.id == id) else { return };
        let outcome = match result {
            Ok(()) => Outcome::Delivered,
            Err(failure) => match failure.whose {
                Whose::Event => Outcome::Rejected(refusal(&failure)),
                Whose::SetUp | Whose::World => Outcome::PutBack,
            },
        };
        self.settle_letter(trial, outcome);
    }

    fn settle_letter(&mut self, trial: Trial, outcome: Outcome) {
        let Trial { id, owner, attempts, lane, row, deadline: _ } = trial;
        if outcome != Outcome::Delivered {
            self.letters.halted.lanes.extend(lane);
        }
        let fate = match &outcome {
            Outcome::Delivered => Some(Fate::Published),
            Outcome::Rejected(rejection) => Some(Fate::Rejected { why: rejection.to_string(), attempts: attempts + 1 }),
            Outcome::Waits(_) | Outcome::PutBack => None,
        };
        let receipt = fate.and_then(|fate| self.receipt(row, None, fate));
        self.actions.push_back(Action::SettleLetter { id, owner, attempts, outcome, receipt });
    }

    pub(super) fn tick_letters(&mut self, now: Instant) {
        let is_ours = self.is_ours(now);
        let shelf = &mut self.letters.shelf;
        if let Loading::Wanted { from, not_before } = shelf.loading
            && is_ours
            && not_before.is_none_or(|at| now >= at)
        {
            shelf.loading = Loading::Asked { from };
            self.actions.push_back(Action::LoadLetters { serial: shelf.serial, from });
        }
        // Nothing may land after the server may have let go of the slot. Whoever has it then finds the letter claimed, and
        // tries it when the claim has run out.
        let let_go = self.lease.is_none_or(|asked| now >= asked + self.settings.sender_timeout);
        if let Some(trial) = self.letters.trial.take_if(|trial| let_go || now >= trial.deadline) {
            self.give_trial_up(trial, now);
        }
    }

    /// What is being tried may land or not, and nobody will tell: what else was claimed of its lane must not pass it.
    fn give_trial_up(&mut self, trial: Trial, now: Instant) {
        self.letters.halted.lanes.extend(trial.lane);
        self.unknown_until = Some(now + self.settings.sender_timeout);
        self.retiring += 1;
        self.actions.push_back(Action::AbandonTrial);
    }

    /// The same, when the history is another one.
    pub(super) fn forget_letters(&mut self, from: Position, now: Instant) {
        self.letters.forget(from);
        if self.letters.settings.order == Order::ParkKey {
            for action in &mut self.actions {
                if let Action::SettleLetter { outcome, .. } = action {
                    outcome.undo();
                }
            }
        }
        if let Some(trial) = self.letters.trial.take() {
            self.give_trial_up(trial, now);
        }
    }

    /// True while a letter is being tried.
    pub fn is_trying(&self) -> bool {
        self.letters.is_trying()
    }
}

impl Letters {
    /// A line that stands for too many keys goes on when there is room for one.
    fn go_on_if_there_is_room(&mut self) {
        if self.lanes.parked.len() < self.lanes.most {
            self.pause.take_if(|pause| pause.why == Why::Keys);
        }
    }

    fn trial_of(&mut self, letter: &Claimed, now: Instant) -> Trial {
        if self.halted.owner != letter.owner {
            self.halted = Halted { owner: letter.owner.clone(), lanes: HashSet::new() };
        }
        let lane = letter.lane.topic.as_ref().zip(letter.lane.key.as_ref()).map(|(topic, key)| lane_name(topic, key));
        Trial {
            id: letter.id,
            owner: letter.owner.clone(),
            attempts: letter.attempts,
            lane,
            row: None,
            deadline: now + TRIAL,
        }
    }

    fn lane_of(&self, letter: &DeadLetter) -> Option<Vec<u8>> {
        let (topic, key) = letter.lane.topic.as_ref().zip(letter.lane.key.as_ref())?;
        (self.settings.order == Order::ParkKey).then(|| lane_name(topic, key))
    }

    /// Why the line must stand rather than park this one.
    fn obstacle(
        &mut self,
        letter: &DeadLetter,
        given: Given<'_>,
        lane: Option<&[u8]>,
        rows: u64,
    ) -> Option<(Why, String)> {
        let most = self.settings.max_parked_keys;
        // What was parked further on is tried only behind this one: to wait for that would be to wait for ever. A successor finds
        // such letters too.
        let replays = letter.position < self.lanes.newest;
        if lane.is_some_and(|lane| !replays && !self.lanes.has_room(lane)) {
            return Some((Why::Keys, format!("{most} keys are parked, which is dead_letter.max_parked_keys")));
        }
        // What was given up heals by itself, however much of it one large transaction has, where letters are tried again.
        let is_tried = self.settings.store == Store::Postgres && self.settings.max_attempts > 1;
        let is_fault = match letter.rejection.reason {
            PAYLOAD_MISSING => !(is_tried && given.is_given_up()),
            _ => letter.rejection.is_fault(),
        };
        if is_fault && self.rate.reject(rows, self.settings.max_rate) {
            let Rejection { reason, message } = &letter.rejection;
            let most = self.settings.max_rate;
            let message = format!(
                "more than {most} % of the latest events are rejected (dead_letter.max_rate), the next one for \"{reason}\": \
                 {message}"
            );
            return Some((Why::Rate, message));
        }
        None
    }
}

/// What a broker's refusal of an event that was alone is written down as.
pub(super) fn refusal(failure: &Failure) -> Rejection {
    let message = format!("topic \"{}\" refused it: {}", failure.topic, failure.message);
    Rejection::new("refused", message)
}

/// What is wrong with an event of so many bytes, if that is too much.
pub(super) fn too_large(bytes: u64, most: u64) -> Option<String> {
    (bytes > most).then(|| format!("it takes {bytes} bytes, more than limits.event = {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these events are parked before the line stands; each `true` is a bad one.
    fn parked(events: impl IntoIterator<Item = bool>) -> usize {
        let mut rate = Rate::default();
        let bad = (0..).zip(events).filter(|(_, is_bad)| *is_bad);
        bad.take_while(|(row, _)| !rate.reject(*row, 20)).count()
    }

    #[test]
    fn a_hundred_bad_events_are_no_outage_nor_is_a_share_below_the_limit() {
        assert_eq!(parked([true; 500]), 100);
        assert_eq!(parked((0..100_000).map(|n| n % 6 == 5)), 16_666);
        assert!(parked((0..100_000).map(|n| n % 4 == 3)) < 400);
    }

    #[test]
    fn what_was_rejected_yesterday_is_forgotten() {
        let monday = (0..1000).map(|n| n % 6 == 5);
        let week = std::iter::repeat_n(false, 1_000_000);
        let friday = [true; 50];
        assert_eq!(parked(monday.chain(week).chain(friday)), 216);
    }
}
