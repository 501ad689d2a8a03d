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
    /// Whether our walsender still runs.
    pub(super) sender: Seen,
    /// Whether the position was written.
    pub(super) saved: Option<Claim>,
}

/// What was seen of our walsender.
pub(super) enum Seen {
    /// There is no session to ask for.
    Unasked,
    /// It runs, and was listening to us at this moment.
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
    let server = catalog.server().await?;
    let slot = usable(catalog.slot(&postgres.slot).await?, &postgres.slot, &postgres.connection.dbname)?;
    let publication = catalog.publication(&postgres.publication).await?;
    check_publication(publication.as_ref(), &postgres.publication, &wanted.outboxes)?;
    let saved = match errand.save {
        Some((system, confirmed)) => Some(catalog.save(&postgres.slot, &wanted.leader, system, confirmed).await?),
        None => None,
    };
    Ok(Probe { server, slot, sender, saved })
}

/// The time of our last status update that the walsender has read, by the time that we wrote into it; or, where the
/// role may not see that, the time of asking whether the walsender still runs.
async fn seen(catalog: &Catalog, pid: i32) -> Result<Seen> {
    let (asked, asked_by_clock) = (Instant::now(), SystemTime::now());
    Ok(match catalog.sender(pid).await? {
        Sender::Gone => Seen::Gone,
        Sender::Alive { heard_at: None } => Seen::At(asked),
        Sender::Alive { heard_at: Some(heard_at) } => {
            let age = asked_by_clock.duration_since(heard_at).unwrap_or_default();
            Seen::At(asked.checked_sub(age).unwrap_or(asked))
        }
    })
}
