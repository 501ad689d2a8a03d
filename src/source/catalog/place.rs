//! `outboxd.position`: how far the relay of each slot got, who it is, and whether it left in good order.
//!
//! Only the process that holds the slot claims, and only the one named as leader may write on: a relay that was
//! overtaken learns it from `save`. Nothing is written on its own account, so an idle database stays idle.

use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use tokio_postgres::types::PgLsn;

use super::Catalog;
use crate::error::Result;
use crate::lsn::Lsn;
use crate::source::System;

/// A row of the position table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The history that `confirmed` belongs to.
    pub system: System,
    /// Everything before it is settled; `0/0` when the leader has saved nothing yet.
    pub confirmed: Lsn,
    /// Who claimed the slot last.
    pub leader: String,
    /// How long the leader may go on publishing after its session broke.
    pub sender_timeout: Duration,
    /// The leader said goodbye: a successor need not wait until it is surely dead.
    pub left_cleanly: bool,
    /// When the row was last written.
    pub updated_at: SystemTime,
}

/// Whether the row is still the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Written.
    Ours,
    /// Another leader has claimed the slot since: nothing was written.
    Lost,
}

/// What the leader does after this write.
enum Leader {
    Stays,
    Leaves,
}

impl Catalog {
    /// The row of `slot`, if any relay ever claimed it.
    pub async fn position(&self, slot: &str) -> Result<Option<Place>> {
        let sql = "SELECT system_id, timeline, confirmed, leader, left_cleanly, updated_at, sender_timeout_ms \
                   FROM outboxd.position WHERE slot = $1";
        Ok(self.row(&about("read", slot), sql, &[&slot]).await?.as_ref().map(place))
    }

    /// Makes `leader` the owner of the row, if the walsender `pid` has the slot: a claim that was held up on its way must
    /// not take the name of whoever came next from it. It is asked again once nobody else writes the row.
    ///
    /// System and LSN of an existing row stay, as the pair that was saved; `system` is for a row that is new.
    pub async fn claim(
        &self,
        slot: &str,
        system: System,
        leader: &str,
        sender_timeout: Duration,
        pid: i32,
    ) -> Result<Claim> {
        let sql = "INSERT INTO outboxd.position AS p \
                   (slot, system_id, timeline, confirmed, leader, sender_timeout_ms, left_cleanly, claimed_at, updated_at) \
                   SELECT $1, $2, $3, '0/0', $4, $5, false, clock_timestamp(), clock_timestamp() \
                   WHERE EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS s \
                                 WHERE s.slot_name::text = $1::text AND s.active_pid = $6) \
                   ON CONFLICT (slot) DO UPDATE \
                   SET leader = excluded.leader, sender_timeout_ms = excluded.sender_timeout_ms, left_cleanly = false, \
                       claimed_at = excluded.claimed_at, updated_at = excluded.updated_at \
                   WHERE EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS s \
                                 WHERE s.slot_name::text = $1::text AND s.active_pid = $6) \
                   RETURNING p.slot";
        let timeout = i64::try_from(sender_timeout.as_millis()).unwrap_or(i64::MAX);
        let (id, timeline) = columns(system);
        let row = self.row(&about("claim", slot), sql, &[&slot, &id, &timeline, &leader, &timeout, &pid]).await?;
        Ok(if row.is_some() { Claim::Ours } else { Claim::Lost })
    }

    /// Writes how far `leader` got.
    pub async fn save(&self, slot: &str, leader: &str, system: System, confirmed: Lsn) -> Result<Claim> {
        self.write(&about("save", slot), slot, leader, system, confirmed, Leader::Stays).await
    }

    /// The last save, with the mark that lets a successor start at once.
    pub async fn leave(&self, slot: &str, leader: &str, system: System, confirmed: Lsn) -> Result<Claim> {
        self.write(&about("leave", slot), slot, leader, system, confirmed, Leader::Leaves).await
    }

    async fn write(
        &self,
        what: &str,
        slot: &str,
        leader: &str,
        system: System,
        confirmed: Lsn,
        then: Leader,
    ) -> Result<Claim> {
        // A save that was held up on its way must not take back the mark of a leader that has left since.
        let sql = "UPDATE outboxd.position SET system_id = $3, timeline = $4, confirmed = $5, left_cleanly = $6, \
                   updated_at = clock_timestamp() \
                   WHERE slot = $1 AND leader = $2 AND ($6 OR NOT left_cleanly) RETURNING slot";
        let (id, timeline) = columns(system);
        let confirmed = PgLsn::from(confirmed.0);
        let left_cleanly = matches!(then, Leader::Leaves);
        let row = self.row(what, sql, &[&slot, &leader, &id, &timeline, &confirmed, &left_cleanly]).await?;
        Ok(if row.is_some() { Claim::Ours } else { Claim::Lost })
    }
}

fn about(verb: &str, slot: &str) -> String {
    format!("cannot {verb} the position of slot \"{slot}\"")
}

/// The table's columns are signed, as `pg_control_system()` is: the same bits.
fn columns(system: System) -> (i64, i32) {
    (system.id.cast_signed(), system.timeline.cast_signed())
}

fn place(row: &Row) -> Place {
    Place {
        system: System { id: row.get::<_, i64>(0).cast_unsigned(), timeline: row.get::<_, i32>(1).cast_unsigned() },
        confirmed: Lsn(row.get::<_, PgLsn>(2).into()),
        leader: row.get(3),
        left_cleanly: row.get(4),
        updated_at: row.get(5),
        sender_timeout: Duration::from_millis(row.get::<_, i64>(6).unsigned_abs()),
    }
}
