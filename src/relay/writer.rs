//! Write-back: receipts are written into the rows' own tables, batch after batch, each until it is there.
//!
//! The pipeline's receipts enter; the numbers of those that are committed go back to it. One UPDATE is under way at a time, of one
//! outbox, with what has gathered meanwhile; an outbox whose table cannot be written makes no other one wait for long. Nothing is
//! decided here about events, and no event waits for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::clerk::await_standbys;
use super::errands::Done;
use super::link::Link;
use super::session::Wanted;
use super::{Relay, jittered};
use crate::config::OutboxSource;
use crate::error::{Error, Result};
use crate::ledger::Receipt;
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

/// The receipts of one outbox.
struct Pile {
    receipts: VecDeque<(u64, Box<Receipt>)>,
    not_before: Instant,
    /// Failures in a row, and why the last one.
    tries: u32,
    trouble: Option<Error>,
}

/// An SQL session on the server whose slot we have.
pub(super) struct Session {
    catalog: Catalog,
    stamps: Vec<Stamp>,
    system: System,
}

/// A batch that was written, or was not.
pub(super) struct Written {
    outbox: usize,
    batch: Vec<(u64, Box<Receipt>)>,
    result: Result<Session>,
}

impl Writer {
    pub(super) fn new(outboxes: usize, now: Instant) -> Writer {
        let pile = || Pile { receipts: VecDeque::new(), not_before: now, tries: 0, trouble: None };
        let piles = (0..outboxes).map(|_| pile()).collect();
        Writer { piles, turn: 0, session: None, out: None, used: now }
    }

    pub(super) fn take(&mut self, number: u64, receipt: Box<Receipt>) {
        self.piles[receipt.outbox].receipts.push_back((number, receipt));
    }

    /// The next outbox that has something to write and may.
    fn next(&self, now: Instant) -> Option<usize> {
        let many = self.piles.len();
        let turns = (0..many).map(|step| (self.turn + step) % many);
        let may_go = |pile: &Pile| !pile.receipts.is_empty() && now >= pile.not_before;
        turns.into_iter().find(|at| may_go(&self.piles[*at]))
    }
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
        let next = pile.receipts.drain(..pile.receipts.len().min(BATCH));
        let batch: Vec<_> = next.filter(|(number, _)| pipeline.wants_written(*number)).collect();
        if batch.is_empty() {
            pile.trouble = None;
            return;
        }
        let session = self.writer.session.take().filter(|session| session.system == system);
        (self.writer.out, self.writer.turn) = (Some((outbox, now)), outbox + 1);
        self.tasks.spawn(async move {
            let receipts: Vec<&Receipt> = batch.iter().map(|(_, receipt)| &**receipt).collect();
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
            Ok(session) => {
                self.writer.session = Some(session);
                (pile.tries, pile.trouble) = (0, None);
                self.metrics.written_back(batch.len() as u64);
                for (number, _) in batch {
                    self.pipeline.written(number);
                }
            }
            Err(error) => {
                self.metrics.write_back_failed();
                tracing::warn!(error = error.chain(), rows = batch.len(), "rows cannot be marked");
                let pause = AGAIN * 2u32.saturating_pow(pile.tries.min(16));
                pile.not_before = now + jittered(pause.min(longest));
                pile.tries = pile.tries.saturating_add(1);
                pile.trouble = Some(error);
                batch.into_iter().rev().for_each(|receipt| pile.receipts.push_front(receipt));
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
        let troubles = self.writer.piles.iter().filter_map(|pile| pile.trouble.as_ref());
        let mut reasons: Vec<Reason> = troubles.map(|error| reason(error.chain(), error.hint_text())).collect();
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

/// Writes the receipts, and waits until nothing can undo that.
async fn write(
    session: Option<Session>,
    wanted: &Wanted,
    system: System,
    outbox: usize,
    receipts: &[&Receipt],
) -> Result<Session> {
    let session = match session.filter(|session| !session.catalog.is_closed()) {
        Some(session) => session,
        None => open(wanted, system).await?,
    };
    let stamp = session.stamps.iter().find(|stamp| stamp.outbox == outbox).expect("its outbox has write-back");
    session.catalog.await_visible(receipts.iter().map(|receipt| receipt.xid)).await?;
    session.catalog.write_back(stamp, receipts).await?;
    await_standbys(&session.catalog, wanted, &wanted.postgres.slot).await?;
    Ok(session)
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
