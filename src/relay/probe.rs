//! A look at the database from outside the stream, by a fresh connection each time.
//!
//! Fresh, because a server in smart shutdown lets old sessions be and turns new ones away, and because a session kept
//! open would itself hold up that shutdown. The probe proves that our walsender has the slot (the lease, while frames
//! wait unread) and sees the slot's facts. It writes nothing, so a lock or a missing right cannot keep it from that.

use std::time::Instant;

use super::session::{Closed, Wanted, check_publication, usable};
use crate::error::Result;
use crate::pipeline::Clock;
use crate::source::catalog::{Catalog, Server, Slot};
use crate::source::pg_micros;

/// What the database said.
pub(super) struct Probe {
    pub(super) server: Server,
    pub(super) clock: Clock,
    pub(super) slot: Slot,
    /// Whether our walsender still has the slot.
    pub(super) sender: Seen,
    /// Whether the publication sends what it should.
    pub(super) publication: Result<()>,
}

/// What was seen of our walsender.
pub(super) enum Seen {
    /// There is no session to ask for.
    Unasked,
    /// It had the slot at this moment, or later: a successor's wait begins when it has not.
    At(Instant),
    /// It has not.
    Gone,
}

/// Asks after the slot, and whether our walsender, if we have one, holds it.
pub(super) async fn probe(wanted: Wanted, backend_pid: Option<i32>) -> std::result::Result<Probe, Closed> {
    let (postgres, limits) = (&wanted.postgres, &wanted.limits);
    let catalog = Catalog::connect(&postgres.connection, limits.sql).await.map_err(Closed::Unreached)?;
    let at = Instant::now();
    let server = catalog.server().await?;
    let clock = Clock { at, shown: pg_micros(server.clock) };
    let asked = Instant::now();
    let slot = usable(catalog.slot(&postgres.slot).await?, &postgres.slot, &postgres.connection.dbname)?;
    // Not whether our walsender runs: one that met an error runs on, and has let go of the slot.
    let sender = match backend_pid {
        Some(pid) if slot.holder.as_ref().is_some_and(|holder| holder.pid == pid) => Seen::At(asked),
        Some(_) => Seen::Gone,
        None => Seen::Unasked,
    };
    let publication = catalog.publication(&postgres.publication).await.and_then(|publication| {
        check_publication(publication.as_ref(), &postgres.publication, &wanted.outboxes).map(drop)
    });
    Ok(Probe { server, clock, slot, sender, publication })
}
