//! The errands themselves: what the store is asked, statement by statement.

use std::time::{Duration, Instant};

use super::{BATCH, Lanes, Look, Parcel, Stock, Storing, Wanted};
use crate::config::{self, Order, UnknownTopic};
use crate::dead_letter::{Claimed, Column, DeadLetter};
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::sink::kafka::Kafka;
use crate::source::catalog::{self, Catalog, Claim, Desk, Letters, SettledLetter, Words};
use crate::source::outbox::block;

/// So many positions of letters are loaded at a time.
const PAGE: usize = 20_000;
/// The same where each says why its event was rejected, with up to `dead_letter::MESSAGE` characters.
const PAGE_OF_WORDS: usize = 4000;
/// How many old letters are deleted at a time.
const FORGET_MOST: usize = 10_000;
/// How many letters are woken at a time: far more than are tried meanwhile, so that it comes to an end.
const WAKE_MOST: usize = 10_000;
/// How long a claim lasts when its relay is gone.
pub(super) const CLAIM: Duration = Duration::from_secs(60);
/// What is claimed at a time fits into memory.
const CLAIM_BYTES: u64 = 4 << 20;
/// What PostgreSQL says when a statement took too long.
const QUERY_CANCELED: &str = "57014";
/// How often standbys are looked at.
const STANDBYS: Duration = Duration::from_millis(100);
/// How long they are waited for while something else may have to be done.
const STANDBYS_SOON: Duration = Duration::from_millis(300);
/// When it is said that they are behind.
pub(super) const STANDBYS_WITHIN: Duration = Duration::from_secs(3);
pub(super) const STANDBY_IS_LATE: &str = "a standby of synchronized_standby_slots has not received what was written";

pub(super) async fn connect(wanted: &Wanted) -> Result<Catalog> {
    Catalog::connect(&wanted.postgres.connection, wanted.limits.sql).await
}

/// Stores letters, and waits a moment until standbys have them if they are the last; where there are none to be stored, until they have
/// those that were stored `first`. Each batch waits for a place of its own: for where the WAL ends now, standbys that are late might be waited for
/// without end.
pub(super) async fn store(
    wanted: Wanted,
    desk: Desk,
    batch: Vec<Parcel>,
    first: Option<Lsn>,
    is_last: bool,
    patience: catalog::Patience,
) -> Result<Storing> {
    let catalog = connect(&wanted).await?;
    let end = match batch.is_empty() {
        true => None,
        false if keep(&catalog, &desk, &batch, patience).await? == Claim::Lost => return Ok(Storing::Lost),
        false => Some(catalog.wal_end().await?),
    };
    let within = if is_last { STANDBYS_SOON } else { Duration::ZERO };
    Ok(Storing::Done(end, standbys(&catalog, &desk.slot, end.or(first).unwrap_or_default(), within).await?))
}

async fn keep(catalog: &Catalog, desk: &Desk, batch: &[Parcel], patience: catalog::Patience) -> Result<Claim> {
    catalog.make_durable().await?;
    // A letter is tried as soon as it is stored, by whoever has the slot then. Its row must be seen by then, or it would look like one
    // that is gone, and never be marked.
    catalog.await_visible(batch.iter().filter_map(|parcel| parcel.letter.xid)).await?;
    // Letters of one history at a time: positions mean nothing without it.
    for letters in batch.chunk_by(|one, other| one.system == other.system) {
        let desk = Desk { system: letters[0].system, ..desk.clone() };
        let letters: Vec<DeadLetter> = letters.iter().map(|parcel| parcel.letter.clone()).collect();
        if catalog.store_letters(&desk, &letters, patience).await? == Claim::Lost {
            return Ok(Claim::Lost);
        }
    }
    Ok(Claim::Ours)
}

/// A slot that survives a promotion must not pass an event whose letter does not: its standbys have that first. Likewise nothing is
/// built on what a letter became before they know it.
async fn await_standbys(catalog: &Catalog, wanted: &Wanted, slot: &str, lsn: Lsn) -> Result<()> {
    match standbys(catalog, slot, lsn, STANDBYS_WITHIN.min(wanted.limits.sql)).await? {
        Some(reached) if reached < lsn => Err(Error::transient(STANDBY_IS_LATE)),
        Some(_) | None => Ok(()),
    }
}

/// How far standbys are, once they are there or time is up; `None` when none is waited for.
async fn standbys(catalog: &Catalog, slot: &str, lsn: Lsn, within: Duration) -> Result<Option<Lsn>> {
    let end = Instant::now() + within;
    loop {
        let reached = catalog.standbys_at(slot).await?;
        if reached.is_none_or(|reached| reached >= lsn) || Instant::now() >= end {
            return Ok(reached);
        }
        tokio::time::sleep(STANDBYS).await;
    }
}

/// What the store has from this position on; where standbys had to be waited for in vain, also where the WAL ended then: to be told with
/// the next try, which waits for the same. Nobody stores letters from there on meanwhile.
pub(super) async fn load(
    wanted: Wanted,
    desk: Desk,
    from: Position,
    mut end: Option<Lsn>,
) -> (Option<Lsn>, Result<Stock>) {
    let result = load_behind(&wanted, &desk, from, &mut end).await;
    (end, result)
}

async fn load_behind(wanted: &Wanted, desk: &Desk, from: Position, end: &mut Option<Lsn>) -> Result<Stock> {
    let catalog = connect(wanted).await?;
    let of = match wanted.dead_letter.order {
        Order::ParkKey => Letters::Undelivered,
        Order::Skip => Letters::All,
    };
    let marks_rejected =
        |outbox: &config::Outbox| outbox.writeback.as_ref().is_some_and(config::Writeback::marks_rejected);
    let (words, page) = match wanted.outboxes.iter().any(marks_rejected) {
        true => (Words::Wanted, PAGE_OF_WORDS),
        false => (Words::Left, PAGE),
    };
    let mut letters = catalog.letters_from(desk, from, page, of, words).await?;
    let until = letters.last().filter(|_| letters.len() == page).map(|last| last.position);
    // Of the last position there may be another one, of another history.
    letters.retain(|letter| until.is_none_or(|until| letter.position < until));
    let lanes = match wanted.dead_letter.order {
        Order::ParkKey => catalog.open_lanes(desk).await?,
        Order::Skip => Vec::new(),
    };
    let pause = catalog.is_paused(&desk.slot).await?;
    let topics = match wanted.dead_letter.unknown_topic {
        UnknownTopic::Park => known_topics(&catalog, desk).await?,
        UnknownTopic::Wait => Vec::new(),
    };
    // The slot passes the rows of these letters.
    if !letters.is_empty() {
        let lsn = match *end {
            Some(lsn) => lsn,
            None => *end.insert(catalog.wal_end().await?),
        };
        await_standbys(&catalog, wanted, &desk.slot, lsn).await?;
    }
    Ok(Stock { letters, until, lanes, pause, topics })
}

pub(super) async fn recall(wanted: Wanted, desk: Desk) -> Result<Vec<String>> {
    known_topics(&connect(&wanted).await?, &desk).await
}

async fn known_topics(catalog: &Catalog, desk: &Desk) -> Result<Vec<String>> {
    catalog.known_topics(&desk.slot, Kafka::MOST_TOPICS).await
}

pub(super) async fn remember(wanted: Wanted, desk: Desk, topics: Vec<String>) -> Result<()> {
    connect(&wanted).await?.know_topics(&desk.slot, &topics).await
}

/// Makes letters due that waited for another configuration. Answers with whether there may be more of them.
pub(super) async fn wake(wanted: Wanted, desk: Desk) -> Result<(Claim, bool)> {
    let (claim, many) = connect(&wanted).await?.wake_letters(&desk, WAKE_MOST).await?;
    Ok((claim, many == WAKE_MOST))
}

pub(super) async fn settle(wanted: Wanted, desk: Desk, settled: Vec<SettledLetter>) -> Result<Claim> {
    let catalog = connect(&wanted).await?;
    catalog.make_durable().await?;
    catalog.settle_letters(&desk, &settled).await
}

/// What to look for.
pub(super) struct Looking {
    pub(super) owner: String,
    /// Claim letters before this position.
    pub(super) before: Option<Position>,
    /// Say which lanes are open; standbys were waited for up to here.
    pub(super) lanes: bool,
    pub(super) behind: Option<Lsn>,
    pub(super) order: Order,
    pub(super) count: bool,
    /// Delete letters before this position that were settled so long ago.
    pub(super) forget: Option<(Lsn, Duration)>,
}

impl Looking {
    pub(super) async fn at(self, wanted: Wanted, desk: Desk) -> Result<Look> {
        let catalog = connect(&wanted).await?;
        let lanes = match self.lanes {
            true => Some(look_at_lanes(&catalog, &desk, self.behind).await?),
            false => None,
        };
        let pause = catalog.is_paused(&desk.slot).await?;
        let counts = match self.count {
            true => Some(catalog.count_letters(&desk.slot).await?),
            false => None,
        };
        if let Some((confirmed, older_than)) = self.forget {
            catalog.forget_letters(&desk, confirmed, older_than, FORGET_MOST).await?;
        }
        // Last, so that nothing that fails keeps what was claimed from being tried.
        let claimed = match self.before {
            Some(before) => {
                let (owner, failed_block) = (self.owner.as_str(), self.order == Order::ParkKey);
                let claim =
                    catalog::Wanted { most: BATCH, bytes: CLAIM_BYTES, lease: CLAIM, before, owner, failed_block };
                catalog.claim_letters(&desk, &claim).await?
            }
            None => Vec::new(),
        };
        Ok(Look { claimed, lanes, pause, counts })
    }
}

/// The open lanes, and whether standbys know of all that are not: where that was asked before, of those that were not open then.
async fn look_at_lanes(catalog: &Catalog, desk: &Desk, behind: Option<Lsn>) -> Result<Lanes> {
    let open = catalog.open_lanes(desk).await?;
    let end = match behind {
        Some(end) => end,
        None => catalog.wal_end().await?,
    };
    let reached = standbys(catalog, &desk.slot, end, STANDBYS_SOON).await?;
    Ok(Lanes { open, end, known: reached.is_none_or(|reached| reached >= end) })
}

/// Reads these columns of a letter's row from its tables, as far as they are still there.
pub(super) async fn complete(wanted: Wanted, letter: &Claimed, columns: Vec<String>) -> Result<Vec<Column>> {
    let Some(outbox) = block(&wanted.outboxes, &letter.origin) else { return Ok(Vec::new()) };
    let catalog = connect(&wanted).await?;
    match catalog.read_again(outbox, &letter.columns, &columns, wanted.limits.event).await {
        Ok(columns) => Ok(columns),
        Err(error) if error.sqlstate().is_some_and(|code| code.starts_with("42") || code == QUERY_CANCELED) => {
            // A missing right, or a table that is searched for too long: that is no outage, and must come to an end.
            tracing::warn!(
                letter = letter.id,
                error = error.chain(),
                "what was not kept cannot be read from the table"
            );
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
