//! Write-back: receipts are written into the rows' own tables, batch after batch, each until it is there.
//!
//! The pipeline's receipts enter; those that are committed go back to it, or to the clerk when they are of a letter. One UPDATE is under
//! way at a time, of one outbox, with what has gathered meanwhile. Neither an outbox whose table cannot be written nor a row that somebody
//! has locked, or that a trigger refuses, makes another one wait for long. Nothing is decided here about events, and no event
//! waits for it.

mod behind;
mod pile;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Relay;
use super::errands::Done;
use super::link::Link;
use super::session::Wanted;
use crate::config::OutboxSource;
use crate::error::{Error, Result};
use crate::lsn::Lsn;
use crate::receipt::Receipt;
use crate::source::System;
use crate::source::catalog::{Catalog, Stamp};
use crate::status::Reason;
use behind::Behind;
use pile::{Cause, Late, Note, Pile};

/// An UPDATE that takes longer is spoken of.
const SLOW: Duration = Duration::from_secs(3);
/// An SQL session that nobody needs holds up a smart shutdown of the server.
const IDLE: Duration = Duration::from_secs(1);

/// While so many receipts of letters wait, none is tried: they are in no books but these.
const MOST_LETTERS: usize = 1000;

/// What is to be written.
pub(super) struct Writer {
    /// In the order of the `[[outbox]]` blocks.
    piles: Vec<Pile>,
    /// Whose turn it is.
    turn: usize,
    /// How many of all receipts are of letters.
    letters: usize,
    /// Kept from one batch to the next.
    session: Option<Session>,
    /// Whose batch is under way, and since when.
    out: Option<(usize, Instant)>,
    /// What is written, and that standbys may not have.
    behind: Behind,
    /// They are being looked at.
    looks: bool,
    used: Instant,
}

/// An SQL session on the server whose slot we have.
pub(super) struct Session {
    catalog: Catalog,
    /// By the place of their blocks, as far as they were needed: a table that cannot be written to is no other one's concern.
    stamps: BTreeMap<usize, Stamp>,
    system: System,
}

/// A batch that was written, but for rows that are locked, or was not.
pub(super) struct Written {
    outbox: usize,
    batch: Vec<Late>,
    system: System,
    session: Option<Session>,
    result: Result<Marked>,
}

/// What came of a batch.
struct Marked {
    /// The places of those whose rows are locked, in order.
    locked: Vec<usize>,
    /// Where the WAL ended once the others were committed.
    end: Lsn,
    /// How far standbys are, if any are waited for.
    standbys: Option<Lsn>,
}

/// How far standbys are, if any are waited for.
pub(super) struct Looked {
    session: Option<Session>,
    result: Result<Option<Lsn>>,
}

impl Writer {
    pub(super) fn new(outboxes: usize, now: Instant) -> Writer {
        let piles = (0..outboxes).map(|_| Pile::new(now)).collect();
        Writer {
            piles,
            turn: 0,
            letters: 0,
            session: None,
            out: None,
            behind: Behind::new(now),
            looks: false,
            used: now,
        }
    }

    /// Takes the receipt of a row that is in the ledger by this number.
    pub(super) fn take(&mut self, number: u64, receipt: Box<Receipt>) {
        self.piles[receipt.outbox].push(Note { cause: Cause::Row(number), receipt });
    }

    /// Takes the receipt of a letter that was tried.
    pub(super) fn take_letter(&mut self, id: i64, owner: String, system: System, receipt: Box<Receipt>) {
        self.letters += 1;
        self.piles[receipt.outbox].push(Note { cause: Cause::Letter { id, owner, system }, receipt });
    }

    /// True while rows of letters that were tried do not say what became of them.
    pub(super) fn owes_letters(&self) -> bool {
        self.letters > 0
    }

    /// True when letters may be tried, as far as their rows are concerned.
    pub(super) fn has_room_for_letters(&self) -> bool {
        self.letters < MOST_LETTERS
    }

    /// The next outbox that has something to write and may.
    fn next(&self, now: Instant) -> Option<usize> {
        let many = self.piles.len();
        let mut turns = (0..many).map(|step| (self.turn + step) % many);
        turns.find(|at| self.piles[*at].may_go(now))
    }
}

impl Relay {
    /// Sends the next batch out, or somebody to look at the standbys.
    pub(super) fn keep_writer_busy(&mut self, now: Instant) {
        if self.writer.out.is_some() || self.writer.looks {
            return;
        }
        if now >= self.writer.used + IDLE {
            self.writer.session = None;
        }
        let Some(system) = self.system else { return };
        for cause in self.writer.behind.left(system) {
            self.writer.letters -= usize::from(matches!(cause, Cause::Letter { .. }));
        }
        let next = self.next_batch(system, now);
        if next.is_none() && !self.writer.behind.is_due(now) {
            return;
        }
        let wanted = match &self.link {
            Link::Up(live) => self.wanted.at(&live.host),
            // What is written is true whoever has the slot; only the server must be the same.
            Link::Down { .. } | Link::Opening(_) | Link::Leaving(..) => self.wanted.clone(),
        };
        let session = self.writer.session.take().filter(|session| session.system == system);
        let Some((outbox, batch)) = next else {
            // A session of looks alone is not kept for longer than one that nobody uses: it would hold up a smart shutdown, too.
            if session.is_none() {
                self.writer.used = now;
            }
            self.writer.looks = true;
            self.tasks.spawn(async move { Done::Looked(Box::new(look(session, &wanted, system).await)) });
            return;
        };
        (self.writer.out, self.writer.turn) = (Some((outbox, now)), outbox + 1);
        self.tasks.spawn(async move {
            let receipts: Vec<&Receipt> = batch.iter().map(|late| &*late.note.receipt).collect();
            let (session, result) = write(session, &wanted, system, outbox, &receipts).await;
            Done::Written(Box::new(Written { outbox, batch, system, session, result }))
        });
    }

    /// The next batch of what is still of use, and whose it is.
    fn next_batch(&mut self, system: System, now: Instant) -> Option<(usize, Vec<Late>)> {
        while let Some(outbox) = self.writer.next(now) {
            let (pile, pipeline, letters) = (&mut self.writer.piles[outbox], &self.pipeline, &mut self.writer.letters);
            let mut batch = pile.take(now);
            batch.retain(|late| match &late.note.cause {
                Cause::Row(number) => pipeline.wants_written(*number),
                Cause::Letter { system: of, .. } => {
                    *letters -= usize::from(*of != system);
                    *of == system
                }
            });
            if !batch.is_empty() {
                return Some((outbox, batch));
            }
            pile.trouble = None;
        }
        None
    }

    /// A batch is back.
    pub(super) fn written(&mut self, written: Written) {
        let Written { outbox, batch, system, session, result } = written;
        let (now, longest) = (Instant::now(), self.wanted.limits.backoff);
        (self.writer.out, self.writer.used, self.writer.session) = (None, now, session);
        let pile = &mut self.writer.piles[outbox];
        let Marked { locked: places, end, standbys } = match result {
            Ok(marked) => marked,
            Err(error) => {
                self.metrics.write_back_failed();
                return pile.failed(batch, error, now, longest);
            }
        };
        self.metrics.written_back((batch.len() - places.len()) as u64);
        let (mut locked, mut causes) = (Vec::new(), Vec::new());
        let mut places = places.into_iter().peekable();
        for (at, late) in batch.into_iter().enumerate() {
            if places.next_if_eq(&at).is_some() {
                locked.push(late);
                continue;
            }
            causes.push(late.note.cause);
        }
        pile.written(locked, now, longest);
        self.writer.behind.push(system, end, causes, now);
        self.standbys_reached(standbys, now);
    }

    /// Somebody has looked at the standbys.
    pub(super) fn looked_at_standbys(&mut self, looked: Looked) {
        let now = Instant::now();
        (self.writer.looks, self.writer.session) = (false, looked.session);
        match looked.result {
            Ok(standbys) => self.standbys_reached(standbys, now),
            Err(error) => {
                tracing::warn!(error = error.chain(), "the standbys of the slot cannot be looked at");
                self.writer.behind.put_off(now + IDLE);
            }
        }
    }

    /// What standbys have, or nobody waits for, counts as written.
    fn standbys_reached(&mut self, standbys: Option<Lsn>, now: Instant) {
        for cause in self.writer.behind.reached(standbys, now) {
            match cause {
                Cause::Row(number) => drop(self.pipeline.written(number)),
                Cause::Letter { id, owner, .. } => {
                    self.writer.letters -= 1;
                    self.clerk.row_written(id, &owner);
                }
            }
        }
    }

    /// Before the process ends, what the rows of tried letters are to say is written once, as far as they are neither locked nor refused.
    pub(super) async fn write_rows_of_letters(&mut self, within: Duration) {
        let now = tokio::time::Instant::now();
        let (half, end) = (now + within / 2, now + within);
        while self.writer.out.is_some() {
            match tokio::time::timeout_at(half, self.tasks.join_next()).await {
                Ok(Some(done)) => self.done(done),
                Ok(None) | Err(_) => break,
            }
        }
        let Some(system) = self.system else { return };
        for (outbox, pile) in self.writer.piles.iter().enumerate() {
            let is_letter = |note: &&Note| matches!(note.cause, Cause::Letter { system: of, .. } if of == system);
            let receipts: Vec<&Receipt> = pile.hopeful().filter(is_letter).map(|note| &*note.receipt).collect();
            if receipts.is_empty() {
                continue;
            }
            match tokio::time::timeout_at(end, write(None, &self.wanted, system, outbox, &receipts)).await {
                Ok((_, Ok(_))) => {}
                Ok((_, Err(error))) => {
                    tracing::warn!(error = error.chain(), "the rows of dead letters cannot be marked");
                }
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
            let (refused, locked): (Vec<&Late>, Vec<&Late>) =
                pile.late().iter().partition(|late| late.trouble.is_some());
            if let Some((late, error)) = refused.first().and_then(|late| Some((late, late.trouble.as_ref()?))) {
                let words =
                    format!("{} cannot, among them \"{}\": {}", refused.len(), late.note.receipt.id, error.chain());
                reasons.push(reason(words, error.hint_text()));
            }
            if let Some(late) = locked.iter().find(|late| now >= late.since + SLOW) {
                let (many, id) = (locked.len(), &late.note.receipt.id);
                let words =
                    format!("{many} are locked by others, or kept as they are by a trigger, among them \"{id}\"");
                reasons.push(reason(words, None));
            }
        }
        if self.writer.behind.since().is_some_and(|since| now >= since + SLOW) {
            let words = "a standby of synchronized_standby_slots has not received marks that are written";
            reasons
                .push(reason(words.to_owned(), Some("see the standbys, and how far they are in pg_replication_slots")));
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
const HINT: &str = "events flow until limits.window of them stand behind the first such row, marked or not; see who locks the table, and \
                    what its constraints and triggers say";

/// Writes the receipts. What came of that; and the session, unless something is wrong with it, or with what it knows of the table.
async fn write(
    session: Option<Session>,
    wanted: &Wanted,
    system: System,
    outbox: usize,
    receipts: &[&Receipt],
) -> (Option<Session>, Result<Marked>) {
    let mut session = match usable(session, wanted, system).await {
        Ok(session) => session,
        Err(error) => return (None, Err(error)),
    };
    let result = session.write(wanted, outbox, receipts).await;
    let is_sound = match &result {
        Ok(_) => true,
        Err(error) => {
            error.sqlstate().is_some_and(|code| code.starts_with("22") || code.starts_with("23") || code == RAISED)
        }
    };
    (is_sound.then_some(session), result)
}

/// Looks how far standbys are.
async fn look(session: Option<Session>, wanted: &Wanted, system: System) -> Looked {
    let session = match usable(session, wanted, system).await {
        Ok(session) => session,
        Err(error) => return Looked { session: None, result: Err(error) },
    };
    let result = session.catalog.standbys_at(&wanted.postgres.slot).await;
    Looked { session: result.is_ok().then_some(session), result }
}

/// What a trigger says that refuses a row.
const RAISED: &str = "P0001";

impl Session {
    async fn write(&mut self, wanted: &Wanted, outbox: usize, receipts: &[&Receipt]) -> Result<Marked> {
        let stamp = match self.stamps.remove(&outbox) {
            Some(stamp) => stamp,
            None => self.catalog.stamp(&wanted.outboxes[outbox]).await?.expect("its outbox has write-back"),
        };
        let stamp = &*self.stamps.entry(outbox).or_insert(stamp);
        self.catalog.await_visible(receipts.iter().filter_map(|receipt| receipt.xid)).await?;
        let locked = self.catalog.write_back(stamp, receipts).await?;
        let (end, standbys) = (self.catalog.wal_end().await?, self.catalog.standbys_at(&wanted.postgres.slot).await?);
        Ok(Marked { locked, end, standbys })
    }
}

/// The session that there is, or a new one.
async fn usable(session: Option<Session>, wanted: &Wanted, system: System) -> Result<Session> {
    match session.filter(|session| !session.catalog.is_closed()) {
        Some(session) => Ok(session),
        None => open(wanted, system).await,
    }
}

async fn open(wanted: &Wanted, system: System) -> Result<Session> {
    let catalog = Catalog::connect(&wanted.postgres.connection, wanted.limits.sql).await?;
    // Without the right to ask, the name of the host must do.
    if catalog.server().await?.system.is_some_and(|found| found != system) {
        return Err(Error::transient("the SQL session and the replication session reached different servers"));
    }
    catalog.make_durable().await?;
    Ok(Session { catalog, stamps: BTreeMap::new(), system })
}
