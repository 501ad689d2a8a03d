//! The receipts of one outbox: what is written next, and what becomes of that which could not be written.
//!
//! Receipts enter, batches leave and come back written, locked or failed. Guarantees: a batch that fails is made smaller, so that a row that
//! is to blame, or takes too long, is alone in the end and waits by itself; rows that wait have their turn between the others, and never
//! before each of them; whichever of two receipts of a row is written last, the row says what became of it last.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::super::jittered;
use crate::error::Error;
use crate::receipt::{Fate, Receipt};
use crate::source::System;

/// So many rows are written at a time.
pub(super) const BATCH: usize = 2000;
/// The pause after the first failure; later ones are longer.
const AGAIN: Duration = Duration::from_millis(200);
/// The longest pause of a row that the server refuses.
const LONGEST_ALONE: Duration = Duration::from_secs(60);
/// So many rows may be refused, each alone: when there are more, it is not the rows.
const MOST_ALONE: usize = 1000;

/// A receipt, and whom to tell.
pub(super) struct Note {
    pub(super) cause: Cause,
    pub(super) receipt: Box<Receipt>,
}

pub(super) enum Cause {
    /// The row's number in the ledger.
    Row(u64),
    /// A letter that was tried.
    Letter {
        id: i64,
        /// By which claim.
        owner: String,
        /// The cluster whose ids it speaks of.
        system: System,
    },
}

/// A receipt on its way, perhaps not for the first time.
pub(super) struct Late {
    pub(super) note: Note,
    pub(super) since: Instant,
    not_before: Instant,
    tries: u32,
    /// What the server said when it was alone; `None`: it is locked.
    pub(super) trouble: Option<Error>,
}

pub(super) struct Pile {
    notes: VecDeque<Note>,
    /// Rows that could not be written when others could.
    late: Vec<Late>,
    /// When the next of them is due.
    late_at: Option<Instant>,
    late_had_its_turn: bool,
    /// So many are written at a time.
    most: usize,
    not_before: Instant,
    /// Failures in a row, and why the last one.
    tries: u32,
    pub(super) trouble: Option<Error>,
}

/// Whose fault it is that a batch failed.
enum Blame {
    /// What is in a row, or what triggers make of it.
    Row,
    /// It took too long, which fewer rows may not.
    Time,
    World,
}

impl Pile {
    pub(super) fn new(now: Instant) -> Pile {
        Pile {
            notes: VecDeque::new(),
            late: Vec::new(),
            late_at: None,
            late_had_its_turn: false,
            most: BATCH,
            not_before: now,
            tries: 0,
            trouble: None,
        }
    }

    pub(super) fn push(&mut self, note: Note) {
        if let (Cause::Letter { .. }, Some(attempts)) = (&note.cause, attempts(&note.receipt)) {
            let others = self.late.iter_mut().map(|late| &mut late.note).chain(&mut self.notes);
            for other in others.filter(|other| other.receipt.id == note.receipt.id) {
                other.receipt.learn(attempts, &note.receipt.fate);
            }
        }
        self.notes.push_back(note);
    }

    /// Receipts that were under way when their letters were tried again say what came of that.
    fn agree(&mut self) {
        let of_letter = |note: &&Note| matches!(note.cause, Cause::Letter { .. });
        let mut newest: HashMap<&str, (u32, &Fate)> = HashMap::new();
        for receipt in
            self.late.iter().map(|late| &late.note).chain(&self.notes).filter(of_letter).map(|it| &it.receipt)
        {
            if let Some(tries) = attempts(receipt) {
                let known = newest.entry(&receipt.id).or_insert((tries, &receipt.fate));
                if tries > known.0 {
                    *known = (tries, &receipt.fate);
                }
            }
        }
        let newest: HashMap<String, (u32, Fate)> =
            newest.into_iter().map(|(id, (tries, fate))| (id.to_owned(), (tries, fate.clone()))).collect();
        for receipt in self.late.iter_mut().map(|late| &mut late.note.receipt) {
            if let Some((tries, fate)) = newest.get(&receipt.id) {
                receipt.learn(*tries, fate);
            }
        }
    }

    pub(super) fn may_go(&self, now: Instant) -> bool {
        now >= self.not_before && (!self.notes.is_empty() || self.late_at.is_some_and(|at| now >= at))
    }

    /// Those that were not written when others were.
    pub(super) fn late(&self) -> &[Late] {
        &self.late
    }

    /// All that is to be written and was not refused.
    pub(super) fn hopeful(&self) -> impl Iterator<Item = &Note> {
        let locked = self.late.iter().filter(|late| late.trouble.is_none()).map(|late| &late.note);
        locked.chain(&self.notes)
    }

    /// What is written next: one that failed alone, or those that were locked, in turn with all others.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Late> {
        let late_may_go = self.late_at.is_some_and(|at| now >= at);
        self.late_had_its_turn = late_may_go && (!self.late_had_its_turn || self.notes.is_empty());
        if !self.late_had_its_turn {
            let next = self.notes.drain(..self.notes.len().min(self.most));
            return next.map(|note| Late { note, since: now, not_before: now, tries: 0, trouble: None }).collect();
        }
        let is_due = |late: &Late| now >= late.not_before;
        let batch = match self.late.iter().position(|late| is_due(late) && late.trouble.is_some()) {
            Some(at) => vec![self.late.remove(at)],
            None => self.late.extract_if(.., |late| is_due(late)).take(self.most).collect(),
        };
        self.find_next_late();
        batch
    }

    /// The batch is written, but for those that are locked.
    pub(super) fn written(&mut self, locked: Vec<Late>, now: Instant, longest: Duration) {
        (self.tries, self.trouble, self.most) = (0, None, (self.most * 2).min(BATCH));
        let is_any = !locked.is_empty();
        for mut late in locked {
            late.trouble = None;
            late.put_off(now, longest);
            self.late.push(late);
        }
        if is_any {
            self.agree();
        }
        self.find_next_late();
    }

    /// Nothing of the batch is written.
    pub(super) fn failed(&mut self, mut batch: Vec<Late>, error: Error, now: Instant, longest: Duration) {
        let blame = Blame::of(&error);
        let alone = self.late.iter().filter(|late| late.trouble.is_some()).count();
        if batch.len() > 1 {
            self.most = batch.len().div_ceil(2);
        } else if alone < MOST_ALONE {
            let mut late = batch.remove(0);
            let longest = match blame {
                Blame::World => return self.stand(vec![late], error, now, longest),
                // What the database's encoding has not is told without it, once.
                Blame::Row if late.note.receipt.fate.make_plain() => return self.notes.push_front(late.note),
                Blame::Row => LONGEST_ALONE,
                Blame::Time => longest,
            };
            tracing::warn!(id = late.note.receipt.id, error = error.chain(), "a row cannot be marked");
            late.put_off(now, longest);
            late.trouble = Some(error);
            self.late.push(late);
            self.agree();
            return self.find_next_late();
        }
        match blame {
            // Whose fault it is shows when it is alone.
            Blame::Row if batch.len() > 1 => self.put_back(batch),
            Blame::Row | Blame::Time | Blame::World => self.stand(batch, error, now, longest),
        }
    }

    fn stand(&mut self, batch: Vec<Late>, error: Error, now: Instant, longest: Duration) {
        tracing::warn!(error = error.chain(), rows = batch.len(), "rows cannot be marked");
        self.not_before = now + pause(self.tries, longest);
        self.tries = self.tries.saturating_add(1);
        self.trouble = Some(error);
        self.put_back(batch);
    }

    fn put_back(&mut self, batch: Vec<Late>) {
        batch.into_iter().rev().for_each(|late| self.notes.push_front(late.note));
    }

    fn find_next_late(&mut self) {
        self.late_at = self.late.iter().map(|late| late.not_before).min();
    }
}

impl Receipt {
    /// The same row was rejected since, or before. That it is published, nothing takes back.
    fn learn(&mut self, tries: u32, fate: &Fate) {
        if attempts(self).is_some_and(|own| own < tries) {
            self.fate = fate.clone();
        }
    }
}

/// How often a rejected row was tried.
fn attempts(receipt: &Receipt) -> Option<u32> {
    match &receipt.fate {
        Fate::Published => None,
        Fate::Rejected { attempts, .. } => Some(*attempts),
    }
}

impl Late {
    fn put_off(&mut self, now: Instant, longest: Duration) {
        self.not_before = now + pause(self.tries, longest);
        self.tries = self.tries.saturating_add(1);
    }
}

impl Blame {
    fn of(error: &Error) -> Blame {
        /// Connections, transactions, rights, names, resources, states, operators, the server itself: what concerns one row concerns all.
        const WORLD: [&str; 10] = ["08", "25", "28", "40", "42", "53", "55", "57", "58", "XX"];
        /// A statement that took too long, or waited too long for a lock.
        const TIME: [&str; 2] = ["57014", "55P03"];
        match error.sqlstate() {
            None => Blame::World,
            Some(code) if TIME.contains(&code) => Blame::Time,
            Some(code) if WORLD.iter().any(|class| code.starts_with(class)) => Blame::World,
            Some(_) => Blame::Row,
        }
    }
}

fn pause(tries: u32, longest: Duration) -> Duration {
    jittered((AGAIN * 2u32.saturating_pow(tries.min(16))).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::Fate;

    const LONGEST: Duration = Duration::from_secs(2);

    fn pile(rows: u64, now: Instant) -> Pile {
        let mut pile = Pile::new(now);
        (0..rows).for_each(|number| pile.push(note(number, Fate::Published)));
        pile
    }

    fn note(number: u64, fate: Fate) -> Note {
        let receipt = Box::new(Receipt { outbox: 0, id: number.to_string(), xid: None, fate });
        Note { cause: Cause::Row(number), receipt }
    }

    fn ids(batch: &[Late]) -> Vec<&str> {
        batch.iter().map(|late| late.note.receipt.id.as_str()).collect()
    }

    fn refused(code: &'static str) -> Error {
        Error::transient("no").code(code)
    }

    /// Writes until nothing can be written at once, where these rows fail with this code, wherever they are. How many batches it took.
    fn write(pile: &mut Pile, bad: &[&str], code: &'static str, now: Instant) -> (usize, Vec<String>) {
        let mut written = Vec::new();
        for batches in 0.. {
            if !pile.may_go(now) {
                return (batches, written);
            }
            let batch = pile.take(now);
            if ids(&batch).iter().any(|id| bad.contains(id)) {
                pile.failed(batch, refused(code), now, LONGEST);
            } else {
                written.extend(batch.iter().map(|late| late.note.receipt.id.clone()));
                pile.written(Vec::new(), now, LONGEST);
            }
        }
        unreachable!("it comes to an end")
    }

    #[test]
    fn a_row_that_is_refused_is_alone_after_a_few_batches_and_all_others_are_written() {
        let now = Instant::now();
        let mut pile = pile(5000, now);
        let (batches, written) = write(&mut pile, &["1234", "1235", "4000"], "23514", now);
        assert_eq!((written.len(), pile.late().len()), (4997, 3));
        assert!(pile.late().iter().all(|late| late.trouble.is_some()) && batches < 100, "{batches}");
        // Each comes again by itself, and is not asked for more than once a minute in the end.
        let (mut later, most) = (now, pile.most);
        for _ in 0..20 {
            later += LONGEST_ALONE;
            let (batches, written) = write(&mut pile, &["1234", "1235", "4000"], "23514", later);
            assert_eq!((batches, written.len(), pile.most), (3, 0, most));
        }
        assert_eq!(write(&mut pile, &[], "", later + LONGEST_ALONE).1.len(), 3);
    }

    #[test]
    fn what_takes_too_long_is_tried_with_fewer_rows_until_it_does_not() {
        let mut now = Instant::now();
        let mut pile = pile(4000, now);
        let mut largest = BATCH;
        while pile.may_go(now) {
            let batch = pile.take(now);
            match batch.len() {
                many if many > 300 => pile.failed(batch, refused("57014"), now, LONGEST),
                many => {
                    largest = many;
                    break;
                }
            }
            now += LONGEST;
        }
        assert!((100..=300).contains(&largest), "{largest}");
    }

    #[test]
    fn rows_that_wait_do_not_keep_others_from_being_written() {
        let now = Instant::now();
        let mut pile = pile(10, now);
        pile.most = 1;
        // However soon the one that fails is due again.
        let mut written = 0;
        for step in 0..40_u32 {
            let batch = pile.take(now + LONGEST_ALONE * step);
            match ids(&batch)[..] {
                ["0"] => pile.failed(batch, refused("P0001"), now + LONGEST_ALONE * step, LONGEST),
                [] => break,
                _ => {
                    written += batch.len();
                    pile.written(Vec::new(), now, LONGEST);
                    pile.most = 1;
                }
            }
        }
        assert_eq!(written, 9);
    }

    #[test]
    fn locked_rows_wait_together_and_an_outage_costs_no_row_its_place() {
        let now = Instant::now();
        let mut pile = pile(3, now);
        let mut batch = pile.take(now);
        let locked = batch.split_off(1);
        pile.written(locked, now, LONGEST);
        assert!(!pile.may_go(now) && pile.may_go(now + LONGEST));
        let batch = pile.take(now + LONGEST);
        assert_eq!(ids(&batch), ["1", "2"]);
        pile.failed(batch, Error::transient("the connection is gone"), now + LONGEST, LONGEST);
        assert!(pile.trouble.is_some() && !pile.may_go(now + LONGEST));
        let one = pile.take(now + LONGEST * 2);
        assert_eq!(ids(&one), ["1"]);
        pile.failed(one, Error::transient("the connection is gone"), now + LONGEST * 2, LONGEST);
        assert_eq!((ids(&pile.take(now + LONGEST * 3)), pile.late().len()), (vec!["1"], 0));
    }

    #[test]
    fn an_older_rejection_that_is_written_late_does_not_cover_a_newer_one() {
        let rejected = |attempts: u32| Fate::Rejected { why: format!("try {attempts}"), attempts };
        let tried = |attempts: u32| {
            let system = System { id: 1, timeline: 1 };
            Note { cause: Cause::Letter { id: 1, owner: "me".into(), system }, ..note(1, rejected(attempts)) }
        };
        let now = Instant::now();
        let fates = |pile: &Pile| {
            let notes = pile.late().iter().map(|late| &late.note).chain(&pile.notes);
            notes.map(|note| note.receipt.fate.clone()).collect::<Vec<_>>()
        };
        // One waits already, one is under way, one is new, and all are locked: each has its own pauses from then on.
        let mut pile = Pile::new(now);
        pile.push(note(1, rejected(1)));
        let waits = pile.take(now);
        pile.written(waits, now, LONGEST);
        pile.push(tried(2));
        assert_eq!(fates(&pile), [rejected(2), rejected(2)]);
        let under_way = pile.take(now);
        pile.push(tried(3));
        pile.written(under_way, now, LONGEST);
        assert_eq!(fates(&pile), [rejected(3), rejected(3), rejected(3)]);
        // Nothing takes back that a row is published, and one that is refused alone is no exception.
        let mut pile = Pile::new(now);
        pile.push(note(1, Fate::Published));
        pile.push(note(1, rejected(1)));
        pile.most = 1;
        let first = pile.take(now);
        pile.written(first, now, LONGEST);
        let alone = pile.take(now);
        pile.push(tried(2));
        pile.failed(alone, refused("23514"), now, LONGEST);
        assert_eq!(fates(&pile), [Fate::Published, rejected(2), rejected(2)]);
    }

    #[test]
    fn words_that_the_database_cannot_hold_are_told_in_ascii() {
        let now = Instant::now();
        let mut pile = Pile::new(now);
        pile.push(note(1, Fate::Rejected { why: "a … b".into(), attempts: 1 }));
        let batch = pile.take(now);
        pile.failed(batch, refused("22P05"), now, LONGEST);
        let batch = pile.take(now);
        assert_eq!(batch[0].note.receipt.fate, Fate::Rejected { why: "a \\u{2026} b".into(), attempts: 1 });
        pile.failed(batch, refused("22P05"), now, LONGEST);
        assert_eq!(pile.late().len(), 1);
    }
}
