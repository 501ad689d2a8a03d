//! Write-back: receipts are written into the rows' own tables, batch after batch, each until it is there.
//!
//! The pipeline's receipts enter; those that are committed go back to it, or to the clerk when they are of a letter. One UPDATE is under
//! way at a time, of one outbox, with what has gathered meanwhile. Neither an outbox whose table cannot be written nor a row that somebody
//! has locked, or that a trigger refuses, makes another one wait for long. Nothing is decided here about events, and no event
//! waits for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::clerk::await_standbys;
use super::errands::Done;
use super::link::Link;
use super::session::Wanted;
use super::{Relay, jittered};
use crate::config::OutboxSource;
use crate::error::{Error, Result};
use crate::receipt::Receipt;
use crate::source::System;
use crate::source::catalog::{Catalog, Stamp};
use crate::status::Reason;

/// So many rows are written at a time.
const BATCH: usize = 2000;
/// The pause after the first failure; later ones are longer, up to `limits.backoff`.
const AGAIN: Duration = Duration::from_millis(200);
/// An UPDATE that takes longer is spoken of.
const SLOW: Duration = Duration::from_secs(3);
/// An SQL session that nobody needs holds up a smart shutdown of the server.
const IDLE: Duration = Duration::from_secs(1);

/// So many rows of an outbox may fail alone: when there are more, it is not the rows.
const MOST_ALONE: usize = 100;

/// What is to be written.
pub(super) struct Writer {
    /// In the order of the `[[outbox]]` blocks.
    piles: Vec<Pile>,
    /// Whose turn it is.
    turn: usize,
    /// Kept from one batch to the next.
    session: Option<Session>,
    /// Whose batch is under way, and since when.
    out: Option<(usize, Instant)>,
    used: Instant,
}

/// A receipt, and whom to tell.
struct Note {
    cause: Cause,
    receipt: Box<Receipt>,
}

#[derive(Clone, Copy)]
enum Cause {
    /// The row's number in the ledger.
    Row(u64),
    /// A letter that was tried, and the cluster whose ids it speaks of.
    Letter(i64, System),
}

/// The receipts of one outbox.
struct Pile {
    notes: VecDeque<Note>,
    /// Rows that could not be written when others could.
    late: Vec<Late>,
    /// So many are written at a time.
    most: usize,
    not_before: Instant,
    /// Failures in a row, and why the last one.
    tries: u32,
    trouble: Option<Error>,
}

/// A row that somebody has locked, or that cannot be written for what it is.
struct Late {
    note: Note,
    since: Instant,
    not_before: Instant,
    tries: u32,
    /// What the server said when it was alone; `None`: it is locked.
    trouble: Option<Error>,
}

/// An SQL session on the server whose slot we have.
pub(super) struct Session {
    catalog: Catalog,
    stamps: Vec<Stamp>,
    system: System,
}

/// A batch that was written, but for rows that are locked, or was not.
pub(super) struct Written {
    outbox: usize,
    batch: Vec<Late>,
    result: Result<(Session, Vec<usize>)>,
}

impl Writer {
    pub(super) fn new(outboxes: usize, now: Instant) -> Writer {
        let pile =
            || Pile { notes: VecDeque::new(), late: Vec::new(), most: BATCH, not_before: now, tries: 0, trouble: None };
        let piles = (0..outboxes).map(|_| pile()).collect();
        Writer { piles, turn: 0, session: None, out: None, used: now }
    }

    /// Takes the receipt of a row that is in the ledger by this number.
    pub(super) fn take(&mut self, number: u64, receipt: Box<Receipt>) {
        self.piles[receipt.outbox].notes.push_back(Note { cause: Cause::Row(number), receipt });
    }

    /// Takes the receipt of a letter that was tried.
    pub(super) fn take_letter(&mut self, id: i64, system: System, receipt: Box<Receipt>) {
        self.piles[receipt.outbox].notes.push_back(Note { cause: Cause::Letter(id, system), receipt });
    }

    /// The next outbox that has something to write and may.
    fn next(&self, now: Instant) -> Option<usize> {
        let many = self.piles.len();
        let mut turns = (0..many).map(|step| (self.turn + step) % many);
        turns.find(|at| self.piles[*at].may_go(now))
    }
}

impl Pile {
    fn may_go(&self, now: Instant) -> bool {
        now >= self.not_before && (!self.notes.is_empty() || self.late.iter().any(|late| now >= late.not_before))
    }

    /// What is written next: one that failed alone, those that were locked, or the next ones.
    fn take(&mut self, now: Instant) -> Vec<Late> {
        let is_due = |late: &Late| now >= late.not_before;
        if let Some(at) = self.late.iter().position(|late| is_due(late) && late.trouble.is_some()) {
            return vec![self.late.remove(at)];
        }
        let locked: Vec<Late> = self.late.extract_if(.., |late| is_due(late)).take(self.most).collect();
        if !locked.is_empty() {
            return locked;
        }
        let next = self.notes.drain(..self.notes.len().min(self.most));
        next.map(|note| Late { note, since: now, not_before: now, tries: 0, trouble: None }).collect()
    }

    /// A batch failed: whether one row alone is to blame shows when it is alone.
    fn failed(&mut self, mut batch: Vec<Late>, error: Error, now: Instant, longest: Duration) {
        let alone = self.late.iter().filter(|late| late.trouble.is_some()).count();
        if is_of_rows(&error) && alone < MOST_ALONE {
            if let [_] = batch[..] {
                let mut late = batch.remove(0);
                tracing::warn!(id = late.note.receipt.id, error = error.chain(), "a row cannot be marked");
                late.put_off(now, longest);
                late.trouble = Some(error);
                return self.late.push(late);
            }
            self.most = batch.len().div_ceil(2);
        } else {
            tracing::warn!(error = error.chain(), rows = batch.len(), "rows cannot be marked");
            self.not_before = now + pause(self.tries, longest);
            self.tries = self.tries.saturating_add(1);
            self.trouble = Some(error);
        }
        batch.into_iter().rev().for_each(|late| self.notes.push_front(late.note));
    }
}

impl Late {
    fn put_off(&mut self, now: Instant, longest: Duration) {
        self.not_before = now + pause(self.tries, longest);
        self.tries = self.tries.saturating_add(1);
    }
}

/// True when the server has refused what is in a row, or what its triggers made of it, rather than us.
fn is_of_rows(error: &Error) -> bool {
    const NOT_OF_ROWS: [&str; 7] = ["08", "25", "28", "40", "53", "57", "58"];
    const PERMISSION: &str = "42501";
    error.sqlstate().is_some_and(|code| code != PERMISSION && !NOT_OF_ROWS.iter().any(|class| code.starts_with(class)))
}

fn pause(tries: u32, longest: Duration) -> Duration {
    jittered((AGAIN * 2u32.saturating_pow(tries.min(16))).min(longest))
}

impl Relay {
    /// Sends the next batch out.
    pub(super) fn keep_writer_busy(&mut self, now: Instant) {
        if self.writer.out.is_some() {
            return;
        }
        if now >= self.writer.used + IDLE {
            self.writer.session = None;
        }
        let (Some(outbox), Some(system)) = (self.writer.next(now), self.system) else { return };
        let wanted = match &self.link {
            Link::Up(live) => self.wanted.at(&live.host),
            // What is written is true whoever has the slot; only the server must be the same.
            Link::Down { .. } | Link::Opening(_) | Link::Leaving(..) => self.wanted.clone(),
        };
        let (pile, pipeline) = (&mut self.writer.piles[outbox], &self.pipeline);
        let mut batch = pile.take(now);
        batch.retain(|late| match late.note.cause {
            Cause::Row(number) => pipeline.wants_written(number),
            Cause::Letter(_, of) => of == system,
        });
        if batch.is_empty() {
            pile.trouble = None;
            return;
        }
        let session = self.writer.session.take().filter(|session| session.system == system);
        (self.writer.out, self.writer.turn) = (Some((outbox, now)), outbox + 1);
        self.tasks.spawn(async move {
            let receipts: Vec<&Receipt> = batch.iter().map(|late| &*late.note.receipt).collect();
            let result = write(session, &wanted, system, outbox, &receipts).await;
            Done::Written(Written { outbox, batch, result })
        });
    }

    /// A batch is back.
    pub(super) fn written(&mut self, written: Written) {
        let Written { outbox, batch, result } = written;
        let (now, longest) = (Instant::now(), self.wanted.limits.backoff);
        (self.writer.out, self.writer.used) = (None, now);
        let pile = &mut self.writer.piles[outbox];
        match result {
            Ok((session, locked)) => {
                self.writer.session = Some(session);
                (pile.tries, pile.trouble, pile.most) = (0, None, (pile.most * 2).min(BATCH));
                self.metrics.written_back((batch.len() - locked.len()) as u64);
                for (at, mut late) in batch.into_iter().enumerate() {
                    if locked.contains(&at) {
                        late.put_off(now, longest);
                        late.trouble = None;
                        pile.late.push(late);
                        continue;
                    }
                    match late.note.cause {
                        Cause::Row(number) => drop(self.pipeline.written(number)),
                        Cause::Letter(id, _) => self.clerk.row_written(id),
                    }
                }
            }
            Err(error) => {
                self.metrics.write_back_failed();
                pile.failed(batch, error, now, longest);
            }
        }
    }

    /// Before the process ends, what the rows of tried letters are to say is written once; their letters say it in any case.
    pub(super) async fn write_rows_of_letters(&mut self, within: Duration) {
        let Some(system) = self.system else { return };
        for (outbox, pile) in self.writer.piles.iter().enumerate() {
            let is_letter = |note: &&Note| matches!(note.cause, Cause::Letter(_, of) if of == system);
            let notes = pile.late.iter().map(|late| &late.note).chain(&pile.notes).filter(is_letter);
            let receipts: Vec<&Receipt> = notes.map(|note| &*note.receipt).collect();
            if receipts.is_empty() {
                continue;
            }
            let written = write(None, &self.wanted, system, outbox, &receipts);
            match tokio::time::timeout(within, written).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(error = error.chain(), "the rows of dead letters cannot be marked"),
                Err(_) => tracing::warn!("the rows of dead letters could not be marked in time"),
            }
        }
    }

    /// Why rows are not marked, if they are not.
    pub(super) fn writer_reasons(&self, now: Instant) -> Vec<Reason> {
        let reason = |words: String, hint: Option<&str>| Reason {
            code: "writeback".into(),
            message: format!("published rows cannot be marked, so the slot stands: {words}"),
            hint: Some(hint.unwrap_or(HINT).to_owned()),
        };
        let mut reasons = Vec::new();
        for pile in &self.writer.piles {
            reasons.extend(pile.trouble.iter().map(|error| reason(error.chain(), error.hint_text())));
            if let Some((late, error)) = pile.late.iter().find_map(|late| Some((late, late.trouble.as_ref()?))) {
                let many = pile.late.iter().filter(|late| late.trouble.is_some()).count();
                let words = format!("{many} cannot, among them \"{}\": {}", late.note.receipt.id, error.chain());
                reasons.push(reason(words, error.hint_text()));
            }
            let locked = pile.late.iter().filter(|late| late.trouble.is_none());
            if let Some(late) = locked.clone().find(|late| now >= late.since + SLOW) {
                let id = &late.note.receipt.id;
                reasons.push(reason(format!("{} are locked by others, among them \"{id}\"", locked.count()), None));
            }
        }
        // Somebody's lock is waited for longer than an operator may be left in the dark.
        if let Some((outbox, since)) = self.writer.out.filter(|(_, since)| now >= *since + SLOW)
            && self.writer.piles[outbox].trouble.is_none()
        {
            let seconds = (now - since).as_secs();
            let what = match &self.wanted.outboxes[outbox].source {
                OutboxSource::Table { schema, name } => format!("an UPDATE of table {schema}.{name}"),
                OutboxSource::MessagePrefix(_) => unreachable!("a message has no row"),
            };
            reasons.push(reason(format!("{what} takes {seconds} s already"), None));
        }
        reasons
    }
}

/// What an operator can do when nobody has said anything better.
const HINT: &str = "events flow; see who locks the table, and what its constraints and triggers say";

/// Writes the receipts, and waits until nothing can undo that. The places of those whose rows are locked.
async fn write(
    session: Option<Session>,
    wanted: &Wanted,
    system: System,
    outbox: usize,
    receipts: &[&Receipt],
) -> Result<(Session, Vec<usize>)> {
    let session = match session.filter(|session| !session.catalog.is_closed()) {
        Some(session) => session,
        None => open(wanted, system).await?,
    };
    let stamp = session.stamps.iter().find(|stamp| stamp.outbox == outbox).expect("its outbox has write-back");
    session.catalog.await_visible(receipts.iter().filter_map(|receipt| receipt.xid)).await?;
    let locked = session.catalog.write_back(stamp, receipts).await?;
    await_standbys(&session.catalog, wanted, &wanted.postgres.slot).await?;
    Ok((session, locked))
}

async fn open(wanted: &Wanted, system: System) -> Result<Session> {
    let catalog = Catalog::connect(&wanted.postgres.connection, wanted.limits.sql).await?;
    // Without the right to ask, the name of the host must do.
    if catalog.server().await?.system.is_some_and(|found| found != system) {
        return Err(Error::transient("the SQL session and the replication session reached different servers"));
    }
    catalog.make_durable().await?;
    let stamps = catalog.stamps(&wanted.outboxes).await?;
    Ok(Session { catalog, stamps, system })
}
