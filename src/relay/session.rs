//! Opening a session: look at the slot, log in, stream, see whose name is on the slot; and putting ours there.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::identity::{self, Predecessor};
use crate::config;
use crate::config::Host;
use crate::error::{Error, Result};
use crate::lsn::Lsn;
use crate::pipeline::{Clock, LastHolder, SessionStart};
use crate::source::catalog::{Catalog, Claim, Holder, Place, Publication, PublishedTable, Slot, SlotKind};
use crate::source::wire::{Session, Start, Stream};
use crate::source::{Encoding, System, pg_micros};

/// How often a held slot is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A stream that is ours.
pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) start: SessionStart,
    pub(super) predecessor: Predecessor,
    /// The position table's row as it was found.
    pub(super) place: Option<Place>,
    pub(super) backend_pid: i32,
    pub(super) host: Host,
}

/// Why there is no stream.
pub(super) enum Closed {
    /// Another session holds the slot; and whose name stands on it.
    Held(Holder, LastHolder),
    /// The server could not be reached or did not let us in.
    Unreached(Error),
    /// The server let us in, and something failed there.
    Failed(Error),
}

impl Closed {
    /// True when only a person can help, and a process that runs need not wait for one: a server that turns us away may
    /// have its password, its certificate or its rights mended, a slot or publication that is gone stays gone.
    pub(super) fn is_final(&self, has_streamed: bool) -> bool {
        match self {
            Closed::Held(..) => false,
            Closed::Unreached(error) => error.is_definite() && !has_streamed,
            Closed::Failed(error) => error.is_definite() && !(has_streamed && error.sqlstate() == Some("42501")),
        }
    }

    /// The error behind it, if there is one.
    pub(super) fn error(&self) -> Option<&Error> {
        match self {
            Closed::Held(..) => None,
            Closed::Unreached(error) | Closed::Failed(error) => Some(error),
        }
    }
}

impl From<Error> for Closed {
    fn from(error: Error) -> Closed {
        Closed::Failed(error)
    }
}

/// What opening needs to know.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) postgres: config::Postgres,
    pub(super) outboxes: Vec<config::Outbox>,
    pub(super) limits: config::Limits,
    pub(super) dead_letter: config::DeadLetters,
    pub(super) leader: String,
}

impl Wanted {
    /// The same of this host alone.
    pub(super) fn at(&self, host: &Host) -> Wanted {
        let mut wanted = self.clone();
        wanted.postgres.connection.hosts = vec![host.clone()];
        wanted
    }
}

/// What a session that is opened proves of write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamps {
    /// All tables: a process that has not streamed yet ends where rows cannot be marked.
    Proved,
    /// None: once events flow, one table's trouble is not the stream's. The writer finds it, and says so.
    Unasked,
}

/// Opens a session, or says why there is none. A slot that another session holds is looked at again and again for as
/// long as `patience` lasts, in one and the same SQL session.
pub(super) async fn open(
    wanted: Wanted,
    encoding: Encoding,
    stamps: Stamps,
    patience: Duration,
) -> std::result::Result<Opened, Closed> {
    let Wanted { postgres, outboxes, limits, leader, .. } = &wanted;
    let catalog = Catalog::connect(&postgres.connection, limits.sql).await.map_err(Closed::Unreached)?;
    await_slot(&catalog, &wanted, patience).await?;
    let publication = catalog.publication(&postgres.publication).await?;
    let others = check_publication(publication.as_ref(), &postgres.publication, outboxes)?;
    for outbox in outboxes.iter().filter(|_| stamps == Stamps::Proved) {
        catalog.stamp(outbox).await?;
    }
    let at = Instant::now();
    let server = catalog.server().await?;
    let clock = Clock { at, shown: pg_micros(server.clock) };

    let session = Session::connect(&postgres.connection, postgres.sender_timeout).await.map_err(Closed::Unreached)?;
    let (system, backend_pid, host) = (session.system(), session.backend_pid(), session.host().clone());
    if server.system.is_some_and(|known| known != system) {
        // Several hosts, of which the two sessions found different ones: their positions must never be mixed.
        let what = "the SQL session and the replication session reached different servers";
        return Err(Closed::Unreached(Error::transient(what)));
    }
    let start = Start { slot: &postgres.slot, publication: &postgres.publication, encoding };
    let stream = timeout(postgres.connection.connect_timeout, session.start(start))
        .await
        .map_err(|_| Error::transient("the server did not start to stream in time"))??;
    let place = catalog.position(&postgres.slot).await?;
    let predecessor = identity::predecessor(place.as_ref(), leader);
    let last_holder = last_holder(predecessor);
    let asked_at = Instant::now();
    let confirmed = still_ours(&catalog, postgres, backend_pid).await?;
    let wal_end = server.wal_lsn;
    let start = SessionStart { system, wal_end, confirmed, encoding, asked_at, clock, others, last_holder };
    Ok(Opened { stream, start, predecessor, place, backend_pid, host })
}

/// Puts our name on the slot, if the walsender with this pid still holds it.
pub(super) async fn claim(wanted: Wanted, system: System, backend_pid: i32) -> Result<()> {
    let (postgres, limits) = (&wanted.postgres, &wanted.limits);
    let catalog = Catalog::connect(&postgres.connection, limits.sql).await?;
    let (slot, sender_timeout) = (&postgres.slot, postgres.sender_timeout);
    match catalog.claim(slot, system, &wanted.leader, sender_timeout, backend_pid).await? {
        Claim::Ours => still_ours(&catalog, postgres, backend_pid).await.map(drop),
        Claim::Lost => Err(Error::transient("the slot is not ours any more")),
    }
}

/// Writes how far we got, if our name is still on the slot.
pub(super) async fn save(wanted: Wanted, system: System, confirmed: Lsn) -> Result<Claim> {
    let catalog = Catalog::connect(&wanted.postgres.connection, wanted.limits.sql).await?;
    catalog.save(&wanted.postgres.slot, &wanted.leader, system, confirmed).await
}

/// The slot's position, which nobody else moves while our walsender holds it.
async fn still_ours(catalog: &Catalog, postgres: &config::Postgres, backend_pid: i32) -> Result<Lsn> {
    let slot = usable(catalog.slot(&postgres.slot).await?, &postgres.slot, &postgres.connection.dbname)?;
    match slot.holder {
        Some(holder) if holder.pid == backend_pid => Ok(slot.confirmed.unwrap_or(Lsn::ZERO)),
        Some(_) | None => Err(Error::transient("the slot is not ours any more")),
    }
}

/// Waits until the slot is usable and free, and whoever may want it back has had the time to take it.
async fn await_slot(catalog: &Catalog, wanted: &Wanted, patience: Duration) -> std::result::Result<(), Closed> {
    let Wanted { postgres, limits, leader, .. } = wanted;
    let end = Instant::now() + patience;
    let (mut was_held, mut free_since) = (false, None);
    loop {
        let slot = usable(catalog.slot(&postgres.slot).await?, &postgres.slot, &postgres.connection.dbname)?;
        match slot.holder {
            Some(holder) if Instant::now() >= end => {
                let place = catalog.position(&postgres.slot).await?;
                return Err(Closed::Held(holder, last_holder(identity::predecessor(place.as_ref(), leader))));
            }
            Some(_) => (was_held, free_since) = (true, None),
            None => {
                let free_since = free_since.get_or_insert_with(Instant::now);
                let place = catalog.position(&postgres.slot).await?;
                // A leader that only reconnects is away for a moment, and for as long as it backs off when the server
                // was away. Whoever took the slot from it then would have to wait until it is surely silent, which takes
                // no longer than that.
                let courtesy = match identity::predecessor(place.as_ref(), leader) {
                    Predecessor::MayLive(_) if was_held => LOOK_EVERY,
                    Predecessor::MayLive(silent_after) => limits.backoff.min(silent_after) + LOOK_EVERY,
                    Predecessor::Ourselves | Predecessor::Gone => Duration::ZERO,
                };
                if free_since.elapsed() >= courtesy {
                    return Ok(());
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn last_holder(predecessor: Predecessor) -> LastHolder {
    match predecessor {
        Predecessor::Ourselves => LastHolder::Ours,
        Predecessor::Gone | Predecessor::MayLive(_) => LastHolder::NotOurs,
    }
}

/// A slot that we can stream from, or what is wrong with it.
pub(super) fn usable(slot: Option<Slot>, name: &str, database: &str) -> Result<Slot> {
    let Some(slot) = slot else {
        return Err(Error::definite(format!("replication slot \"{name}\" does not exist"))
            .hint("outboxd init creates it; events committed before that are not sent"));
    };
    if slot.kind != SlotKind::Logical || slot.plugin.as_deref() != Some("pgoutput") {
        let plugin = slot.plugin.as_deref().unwrap_or("none, it is physical");
        return Err(Error::definite(format!(
            "replication slot \"{name}\" has the output plugin {plugin}, not pgoutput"
        ))
        .hint("set postgres.slot to another name and run outboxd init"));
    }
    if slot.two_phase {
        return Err(Error::definite(format!("replication slot \"{name}\" was made for two-phase commits"))
            .hint("set postgres.slot to another name and run outboxd init"));
    }
    if slot.database.as_deref().is_some_and(|of| of != database) {
        let of = slot.database.unwrap_or_default();
        return Err(Error::definite(format!("replication slot \"{name}\" belongs to database \"{of}\""))
            .hint(format!("connect to \"{of}\", or set postgres.slot to another name and run outboxd init")));
    }
    let lost = slot.wal_status.as_deref() == Some("lost");
    if lost || slot.invalidation_reason.is_some() {
        let why = slot.invalidation_reason.as_deref().unwrap_or("wal_status = lost");
        return Err(Error::definite(format!("replication slot \"{name}\" was invalidated ({why})")).hint(format!(
            "events since its last position are not in the WAL any more: drop it with \
             SELECT pg_drop_replication_slot('{name}'), run outboxd init, and republish what is missing from the table"
        )));
    }
    Ok(slot)
}

/// The publication sends the inserts of every outbox table under its own name, or what is missing. Answers with the
/// other tables that it sends.
pub(super) fn check_publication(
    publication: Option<&Publication>,
    name: &str,
    outboxes: &[config::Outbox],
) -> Result<Vec<String>> {
    let Some(publication) = publication else {
        return Err(Error::definite(format!("publication \"{name}\" does not exist"))
            .hint("outboxd init creates it; rows committed while it was missing are not in the stream"));
    };
    if !publication.insert {
        return Err(Error::definite(format!("publication \"{name}\" does not publish inserts"))
            .hint(format!("ALTER PUBLICATION \"{name}\" SET (publish = 'insert')")));
    }
    for (schema, table) in outboxes.iter().flat_map(config::Outbox::tables) {
        let listed = publication.tables.iter().any(|listed| listed.schema == *schema && listed.name == *table);
        if !listed {
            return Err(Error::definite(format!("publication \"{name}\" does not send table \"{schema}.{table}\""))
                .hint(format!(
                    "ALTER PUBLICATION \"{name}\" ADD TABLE \"{schema}\".\"{table}\"; for a partitioned table also \
                     ALTER PUBLICATION \"{name}\" SET (publish_via_partition_root = true)"
                )));
        }
    }
    let is_ours = |listed: &&PublishedTable| {
        outboxes.iter().flat_map(config::Outbox::tables).any(|table| table == (&listed.schema, &listed.name))
    };
    let others = publication.tables.iter().filter(|listed| !is_ours(listed));
    Ok(others.map(|listed| format!("{}.{}", listed.schema, listed.name)).collect())
}
