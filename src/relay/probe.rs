//! A look at the database from outside the stream, by a fresh connection each time.
//!
//! Fresh, because a server in smart shutdown lets old sessions be and turns new ones away, and because a session kept
//! open would itself hold up that shutdown. The probe proves that our walsender still runs (the lease, while frames
//! wait unread), sees the slot's facts, and writes the position when it is due.

use std::time::{Instant, SystemTime};

use super::session::{Closed, Wanted, check_publication, usable};
use crate::error::Result;
use crate::lsn::Lsn;
use crate::source::System;
use crate::source::catalog::{Catalog, Claim, Sender, Server, Slot};

/// What the database said.
pub(super) struct Probe {
    pub(super) server: Server,
    pub(super) slot: Slot,
    /// A moment at which the server was still listening to our walsender session.
    pub(super) proof: Option<Instant>,
    /// The position that was written.
    pub(super) saved: Option<Lsn>,
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
    let proof = match errand.backend_pid {
        Some(pid) => proof(&catalog, pid).await?,
        None => None,
    };
    let server = catalog.server().await?;
    let slot = usable(catalog.slot(&postgres.slot).await?, &postgres.slot, &postgres.connection.dbname)?;
    let publication = catalog.publication(&postgres.publication).await?;
    check_publication(publication.as_ref(), &postgres.publication, &wanted.outboxes)?;
    let saved = match errand.save {
        Some((system, confirmed)) => {
            let claim = catalog.save(&postgres.slot, &wanted.leader, system, confirmed).await?;
            (claim == Claim::Ours).then_some(confirmed)
        }
        None => None,
    };
    Ok(Probe { server, slot, proof, saved })
}

/// The time of our last status update that the walsender has read, by the time that we wrote into it; or, where the
/// role may not see that, the time of asking whether the walsender still runs.
async fn proof(catalog: &Catalog, pid: i32) -> Result<Option<Instant>> {
    let (asked, asked_by_clock) = (Instant::now(), SystemTime::now());
    Ok(match catalog.sender(pid).await? {
        Sender::Gone => None,
        Sender::Alive { heard_at: None } => Some(asked),
        Sender::Alive { heard_at: Some(heard_at) } => {
            asked.checked_sub(asked_by_clock.duration_since(heard_at).unwrap_or_default())
        }
    })
}
