//! The errands themselves: what the store is asked, statement by statement.

use std::time::{Duration, Instant};

use super::{BATCH, Look, Parcel, Stock, Wanted};
use crate::config::{Order, UnknownTopic};
use crate::dead_letter::{Claimed, Column, DeadLetter};
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::sink::kafka::Kafka;
use crate::source::catalog::{self, Catalog, Claim, Desk, Letters, SettledLetter};
use crate::source::outbox::block;

/// So many positions of letters are loaded at a time.
const PAGE: usize = 20_000;
/// How many old letters are deleted at a time.
const FORGET_MOST: usize = 10_000;
/// How long a claim lasts when its relay is gone.
pub(super) const CLAIM: Duration = Duration::from_secs(60);
/// What is claimed at a time fits into memory.
const CLAIM_BYTES: u64 = 4 << 20;
/// What PostgreSQL says when a statement took too long.
const QUERY_CANCELED: &str = "57014";
/// How often standbys are looked at.
const STANDBYS: Duration = Duration::from_millis(100);
/// When it is said that they are behind.
const STANDBYS_WITHIN: Duration = Duration::from_secs(3);

pub(super) async fn connect(wanted: &Wanted) -> Result<Catalog> {
    Catalog::connect(&wanted.postgres.connection, wanted.limits.sql).await
}

pub(super) async fn store(
    wanted: Wanted,
    desk: Desk,
    batch: Vec<Parcel>,
    patience: catalog::Patience,
) -> Result<Claim> {
    let catalog = connect(&wanted).await?;
    catalog.make_durable().await?;
    // Letters of one history at a time: positions mean nothing without it.
    for letters in batch.chunk_by(|one, other| one.system == other.system) {
        let desk = Desk { system: letters[0].system, ..desk.clone() };
        let letters: Vec<DeadLetter> = letters.iter().map(|parcel| parcel.letter.clone()).collect();
        if catalog.store_letters(&desk, &letters, patience).await? == Claim::Lost {
            return Ok(Claim::Lost);
        }
    }
    await_standbys(&catalog, &wanted, &desk.slot).await?;
    Ok(Claim::Ours)
}

/// A slot that survives a promotion must not pass an event whose letter, or whose row as it was written back, does not: its
/// standbys have that first. Likewise nothing is built on what a letter became before they know it.
pub(in crate::relay) async fn await_standbys(catalog: &Catalog, wanted: &Wanted, slot: &str) -> Result<()> {
    let lsn: Lsn = catalog.wal_end().await?;
    let end = Instant::now() + STANDBYS_WITHIN.min(wanted.limits.sql);
    while !catalog.standbys_have(slot, lsn).await? {
        if Instant::now() >= end {
            return Err(Error::transient("a standby of synchronized_standby_slots has not received what was written"));
        }
        tokio::time::sleep(STANDBYS).await;
    }
    Ok(())
}

pub(super) async fn load(wanted: Wanted, desk: Desk, from: Position) -> Result<Stock> {
    let catalog = connect(&wanted).await?;
    let of = match wanted.dead_letter.order {
        Order::ParkKey => Letters::Undelivered,
        Order::Skip => Letters::All,
    };
    let mut letters = catalog.letters_from(&desk, from, PAGE, of).await?;
    let until = letters.last().filter(|_| letters.len() == PAGE).map(|last| last.position);
    // Of the last position there may be another one, of another history.
    letters.retain(|letter| until.is_none_or(|until| letter.position < until));
    let lanes = match wanted.dead_letter.order {
        Order::ParkKey => catalog.open_lanes(&desk).await?,
        Order::Skip => Vec::new(),
    };
    let pause = catalog.is_paused(&desk.slot).await?;
    let topics = match wanted.dead_letter.unknown_topic {
        UnknownTopic::Park => catalog.known_topics(&desk.slot, Kafka::MOST_TOPICS).await?,
        UnknownTopic::Wait => Vec::new(),
    };
    // The slot passes the rows of these letters.
    if !letters.is_empty() {
        await_standbys(&catalog, &wanted, &desk.slot).await?;
    }
    Ok(Stock { letters, until, lanes, pause, topics })
}

pub(super) async fn remember(wanted: Wanted, desk: Desk, topics: Vec<String>) -> Result<()> {
    connect(&wanted).await?.know_topics(&desk.slot, &topics).await
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
    pub(super) lanes: bool,
    pub(super) order: Order,
    pub(super) count: bool,
    /// Delete letters before this position that were settled so long ago.
    pub(super) forget: Option<(Lsn, Duration)>,
}

impl Looking {
    pub(super) async fn at(self, wanted: Wanted, desk: Desk) -> Result<Look> {
        let catalog = connect(&wanted).await?;
        let lanes = match self.lanes {
            // A key that goes live must not be found parked by whoever follows.
            true => {
                let open = catalog.open_lanes(&desk).await?;
                await_standbys(&catalog, &wanted, &desk.slot).await.is_ok().then_some(open)
            }
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
