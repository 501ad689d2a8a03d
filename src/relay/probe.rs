//! A look at the database from outside the stream, by a fresh connection each time.
//!
//! Fresh, because a server in smart shutdown lets old sessions be and turns new ones away, and because a session kept
//! open would itself hold up that shutdown. The probe proves that our walsender still runs (the lease, while frames
//! wait unread), sees the slot's facts, and writes the position when it is due.

use std::time::Instant;

use super::session::{Closed, Wanted, check_publication, pg_micros, usable};
use crate::error::Result;
use crate::lsn::Lsn;
use crate::pipeline::Clock;
use crate::source::System;
use crate::source::catalog::{Catalog, Claim, Sender, Server, Slot};

/// What the database said.
pub(super) struct Probe {
    pub(super) server: Server,
    pub(super) clock: Clock,
    pub(super) slot: Slot,
    /// Whether our walsender still runs.
    pub(super) sender: Seen,
    /// Whether the position was written.
    pub(super) saved: Option<Claim>,
}

/// What was seen of our walsender.
pub(super) enum Seen {
    /// There is no session to ask for.
    Unasked,
    /// It ran at this moment.
    At(Instant),
    /// It is gone.
    Gone,
}

/// What to ask and to write.
pub(super) struct Errand {
    /// Our walsender.
    pub(super) backend_pid: Option<i32>,
    /// The position to write.
    pub(super) save: Option<(System, Lsn)>,
}

pub(super) async fn probe(wanted: Wanted, errand: Errand) -> std::result::Result<Probe, Closed> {
    let (postgres, limits) = (&wanted.postgres, &wanted.limits);
    let catalog = Catalog::connect(&postgres.connection, limits.sql).await.map_err(Closed::Unreached)?;
    let sender = match errand.backend_pid {
        Some(pid) => seen(&catalog, pid).await?,
        None => Seen::Unasked,
    };
    let at = Instant::now();
    let server = catalog.server().await?;
    let clock = Clock { at, shown: pg_micros(server.clock) };
    let slot = usable(catalog.slot(&postgres.slot).await?, &postgres.slot, &postgres.connection.dbname)?;
    let publication = catalog.publication(&postgres.publication).await?;
    check_publication(publication.as_ref(), &postgres.publication, &wanted.outboxes)?;
    let saved = match errand.save {
        Some((system, confirmed)) => Some(catalog.save(&postgres.slot, &wanted.leader, system, confirmed).await?),
        None => None,
    };
    Ok(Probe { server, clock, slot, sender, saved })
}

/// That the walsender runs proves that it had the slot when we asked: a successor's wait begins when it is gone.
async fn seen(catalog: &Catalog, pid: i32) -> Result<Seen> {
    let asked = Instant::now();
    Ok(match catalog.sender(pid).await? {
        Sender::Gone => Seen::Gone,
        Sender::Alive { .. } => Seen::At(asked),
    })
}
