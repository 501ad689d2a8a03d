//! What the system catalogs say. Columns that only newer servers have are read through `to_jsonb`, so that one query
//! serves every version.

use std::fmt;
use std::time::SystemTime;

use tokio_postgres::types::PgLsn;

use super::Catalog;
use crate::column::Type;
use crate::error::Result;
use crate::lsn::Lsn;
use crate::source::System;

/// The server behind the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `server_version_num`: 150013.
    pub version: u32,
    /// Which cluster and history it is; `None` when the role may not ask.
    pub system: Option<System>,
    /// A standby.
    pub in_recovery: bool,
    /// The end of its WAL; on a standby, of what it has replayed.
    pub wal_lsn: Lsn,
    /// What its clock showed.
    pub clock: SystemTime,
}

/// A row of `pg_replication_slots`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The output plugin; `None` for a physical slot.
    pub plugin: Option<String>,
    /// The database it decodes; `None` for a physical slot.
    pub database: Option<String>,
    /// Logical or physical.
    pub kind: SlotKind,
    /// Gone with the session that made it.
    pub temporary: bool,
    /// Decodes prepared transactions.
    pub two_phase: bool,
    /// Synchronised to standbys; `None` before PostgreSQL 17.
    pub failover: Option<bool>,
    /// `confirmed_flush_lsn`
    pub confirmed: Option<Lsn>,
    /// `restart_lsn`; `None` once the slot has lost its WAL.
    pub restart: Option<Lsn>,
    /// `wal_status`: reserved, extended, unreserved, lost.
    pub wal_status: Option<String>,
    /// Bytes until the slot is in danger; `None` when unlimited or lost.
    pub safe_wal_size: Option<i64>,
    /// Why it was invalidated; `None` when it was not, and before PostgreSQL 17.
    pub invalidation_reason: Option<String>,
    /// The WAL it keeps on disk.
    pub retained_bytes: u64,
    /// Who streams from it.
    pub holder: Option<Holder>,
}

/// The two kinds of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SlotKind {
    Logical,
    Physical,
}

/// Who streams from a slot. Without `pg_read_all_stats` only pid and application are known of other roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process on the server.
    pub pid: i32,
    /// `application_name`
    pub application_name: Option<String>,
    /// `client_addr`; `None` for a Unix socket too.
    pub client_addr: Option<String>,
    /// `backend_start`, in UTC.
    pub since: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}", self.pid)?;
        if let Some(name) = &self.application_name {
            write!(f, ", application \"{name}\"")?;
        }
        if let Some(address) = &self.client_addr {
            write!(f, ", from {address}")?;
        }
        match &self.since {
            Some(since) => write!(f, ", since {since}"),
            None => Ok(()),
        }
    }
}

/// A publication and what it sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Sends inserts.
    pub insert: bool,
    /// Sends updates.
    pub update: bool,
    /// Sends deletes.
    pub delete: bool,
    /// Sends truncates.
    pub truncate: bool,
    /// Sends a partition's rows under the root's name.
    pub via_root: bool,
    /// Made `FOR ALL TABLES`.
    pub all_tables: bool,
    /// The tables it sends, however they came in: by name, by schema, or all.
    pub tables: Vec<PublishedTable>,
}

/// A table in a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTable {
    /// The schema's name.
    pub schema: String,
    /// The table's name.
    pub name: String,
    /// Only rows that fit are sent; 15 and newer.
    pub row_filter: Option<String>,
    /// The columns that are sent; `None` before PostgreSQL 15, where all are.
    pub columns: Option<Vec<String>>,
}

/// A table as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Ordinary or partitioned.
    pub kind: TableKind,
    /// In their order, without dropped ones.
    pub columns: Vec<Column>,
    /// Row-level security is on: reads by a role without BYPASSRLS fail.
    pub rls: bool,
}

/// What can be an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TableKind {
    Ordinary,
    Partitioned,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type as the stream tells it: of a domain, the one below it.
    pub kind: Type,
    /// Its type as SQL writes it: `character varying(20)`.
    pub type_name: String,
    /// NULL is refused.
    pub not_null: bool,
}

/// An open transaction that others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its process; `None` when it is prepared and waits for COMMIT PREPARED.
    pub pid: Option<i32>,
    /// The application's name, or that of the prepared transaction.
    pub name: Option<String>,
    /// How long it has been open.
    pub age_seconds: Option<i64>,
    /// When its last statement began, in UTC.
    pub query_start: Option<String>,
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or_default();
        match self.pid {
            Some(pid) => write!(f, "pid {pid} (application \"{name}\"")?,
            None => write!(f, "prepared transaction '{name}' (")?,
        }
        if let Some(age) = self.age_seconds {
            write!(f, "{}open for {age} s", if self.pid.is_some() { ", " } else { "" })?;
        }
        if let Some(start) = &self.query_start {
            write!(f, ", last statement at {start}")?;
        }
        f.write_str(")")
    }
}

/// The columns of a table, each with the type at the bottom of its domains, whose name the stream tells; the modifier is the column's own
/// there, too.
const COLUMNS: &str = "WITH RECURSIVE layer AS ( \
         SELECT attnum, atttypid AS type FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped \
         UNION ALL SELECT layer.attnum, t.typbasetype FROM layer JOIN pg_type AS t ON t.oid = layer.type \
         WHERE t.typtype = 'd') \
     SELECT a.attname::text, n.nspname::text, t.typname::text, a.atttypid, a.atttypmod, \
         format_type(a.atttypid, a.atttypmod), a.attnotnull \
     FROM pg_attribute AS a JOIN layer ON layer.attnum = a.attnum \
     JOIN pg_type AS t ON t.oid = layer.type AND t.typtype <> 'd' \
     JOIN pg_namespace AS n ON n.oid = t.typnamespace \
     WHERE a.attrelid = $1 ORDER BY a.attnum";

impl Catalog {
    /// Asks who and where the server is.
    pub async fn server(&self) -> Result<Server> {
        // The insertion timeline, as IDENTIFY_SYSTEM tells it: after a promotion the control file's is old until the
        // next checkpoint.
        let sql = "WITH head AS (SELECT pg_is_in_recovery() AS standby) \
             SELECT standby, \
                CASE WHEN standby THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, \
                CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE') \
                     THEN (SELECT system_identifier FROM pg_control_system()) END, \
                CASE WHEN NOT standby THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer \
                     WHEN has_function_privilege('pg_control_checkpoint()', 'EXECUTE') \
                     THEN (SELECT timeline_id FROM pg_control_checkpoint()) END, \
                clock_timestamp() \
             FROM head";
        let rows = self.rows("cannot ask the server who it is", sql, &[]).await?;
        let row = rows.first().expect("a query without a table gives one row");
        let system = row.get::<_, Option<i64>>(2).zip(row.get::<_, Option<i32>>(3));
        Ok(Server {
            version: self.version(),
            system: system.map(|(id, timeline)| System { id: id.cast_unsigned(), timeline: timeline.cast_unsigned() }),
            in_recovery: row.get(0),
            wal_lsn: row.get::<_, Option<PgLsn>>(1).map_or(Lsn::ZERO, lsn),
            clock: row.get(4),
        })
    }

    /// A setting's value as `SHOW` prints it; `None` when this server does not know it.
    pub async fn setting(&self, name: &str) -> Result<Option<String>> {
        let what = format!("cannot read the setting {name}");
        let row = self.row(&what, "SELECT current_setting($1, true)", &[&name]).await?;
        Ok(row.and_then(|row| row.get(0)))
    }

    /// Looks for a replication slot.
    pub async fn slot(&self, name: &str) -> Result<Option<Slot>> {
        let sql = "SELECT s.plugin::text, s.database::text, s.slot_type, s.temporary, s.two_phase, \
                (to_jsonb(s) ->> 'failover')::boolean, s.confirmed_flush_lsn, s.restart_lsn, s.wal_status, \
                s.safe_wal_size, to_jsonb(s) ->> 'invalidation_reason', \
                greatest(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
                                              ELSE pg_current_wal_lsn() END, s.restart_lsn), 0)::bigint, \
                s.active_pid, nullif(a.application_name, ''), host(a.client_addr), \
                to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"') \
             FROM pg_replication_slots AS s LEFT JOIN pg_stat_activity AS a ON a.pid = s.active_pid \
             WHERE s.slot_name::text = $1";
        let what = format!("cannot look for replication slot \"{name}\"");
        let row = self.row(&what, sql, &[&name]).await?;
        Ok(row.map(|row| Slot {
            plugin: row.get(0),
            database: row.get(1),
            kind: if row.get::<_, &str>(2) == "logical" { SlotKind::Logical } else { SlotKind::Physical },
            temporary: row.get(3),
            two_phase: row.get(4),
            failover: row.get(5),
            confirmed: row.get::<_, Option<PgLsn>>(6).map(lsn),
            restart: row.get::<_, Option<PgLsn>>(7).map(lsn),
            wal_status: row.get(8),
            safe_wal_size: row.get(9),
            invalidation_reason: row.get(10),
            retained_bytes: row.get::<_, Option<i64>>(11).unwrap_or(0).cast_unsigned(),
            holder: row.get::<_, Option<i32>>(12).map(|pid| Holder {
                pid,
                application_name: row.get(13),
                client_addr: row.get(14),
                since: row.get(15),
            }),
        }))
    }

    /// Looks for a publication.
    pub async fn publication(&self, name: &str) -> Result<Option<Publication>> {
        let what = format!("cannot look for publication \"{name}\"");
        let sql = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, puballtables \
                   FROM pg_publication WHERE pubname::text = $1";
        let Some(row) = self.row(&what, sql, &[&name]).await? else { return Ok(None) };
        let sql = "SELECT schemaname::text, tablename::text, to_jsonb(t) ->> 'rowfilter', \
                CASE WHEN to_jsonb(t) ? 'attnames' \
                     THEN ARRAY(SELECT jsonb_array_elements_text(to_jsonb(t) -> 'attnames')) END \
             FROM pg_publication_tables AS t WHERE pubname::text = $1 ORDER BY 1, 2";
        let tables = self.rows(&what, sql, &[&name]).await?;
        let table = |row: &tokio_postgres::Row| PublishedTable {
            schema: row.get(0),
            name: row.get(1),
            row_filter: row.get(2),
            columns: row.get(3),
        };
        Ok(Some(Publication {
            insert: row.get(0),
            update: row.get(1),
            delete: row.get(2),
            truncate: row.get(3),
            via_root: row.get(4),
            all_tables: row.get(5),
            tables: tables.iter().map(table).collect(),
        }))
    }

    /// Looks for a table; views and the like are none.
    pub async fn table(&self, schema: &str, name: &str) -> Result<Option<Table>> {
        let what = format!("cannot look for table {schema}.{name}");
        let sql = "SELECT c.oid, c.relkind = 'p', c.relrowsecurity FROM pg_class AS c \
                   JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                   WHERE n.nspname::text = $1 AND c.relname::text = $2 AND c.relkind IN ('r', 'p')";
        let Some(row) = self.row(&what, sql, &[&schema, &name]).await? else { return Ok(None) };
        let columns = self.rows(&what, COLUMNS, &[&row.get::<_, u32>(0)]).await?;
        let column = |row: &tokio_postgres::Row| Column {
            name: row.get(0),
            kind: Type { oid: Type::named(row.get(1), row.get(2)).unwrap_or(row.get(3)), modifier: row.get(4) },
            type_name: row.get(5),
            not_null: row.get(6),
        };
        Ok(Some(Table {
            kind: if row.get(1) { TableKind::Partitioned } else { TableKind::Ordinary },
            columns: columns.iter().map(column).collect(),
            rls: row.get(2),
        }))
    }

    /// The transactions that were open when the statement of `pid` began, and that it therefore may have to wait for.
    /// Those it waits for at this moment come first.
    pub async fn open_transactions(&self, pid: i32) -> Result<Vec<Transaction>> {
        // A transaction holds a lock on its own id; the walk over pg_locks sees those of every role.
        let sql = "SELECT l.pid, coalesce(a.application_name, p.gid), \
                extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::bigint, \
                to_char(a.query_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"') \
             FROM pg_locks AS l \
             LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid \
             LEFT JOIN pg_prepared_xacts AS p ON l.pid IS NULL AND p.transaction = l.transactionid \
             LEFT JOIN pg_stat_activity AS waiting ON waiting.pid = $1 \
             WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted \
               AND l.pid IS DISTINCT FROM $1 AND l.pid IS DISTINCT FROM pg_backend_pid() \
               AND (l.pid = ANY (pg_blocking_pids($1)) \
                    OR coalesce(coalesce(a.xact_start, p.prepared) <= waiting.query_start, true)) \
             ORDER BY l.pid = ANY (pg_blocking_pids($1)) DESC NULLS LAST, 3 DESC NULLS LAST, 1";
        let rows = self.rows("cannot list the open transactions", sql, &[&pid]).await?;
        let transaction = |row: &tokio_postgres::Row| Transaction {
            pid: row.get(0),
            name: row.get(1),
            age_seconds: row.get(2),
            query_start: row.get(3),
        };
        Ok(rows.iter().map(transaction).collect())
    }

    /// True when a role of this name exists.
    pub async fn has_role(&self, name: &str) -> Result<bool> {
        let what = format!("cannot look for role \"{name}\"");
        Ok(self.row(&what, "SELECT FROM pg_roles WHERE rolname::text = $1", &[&name]).await?.is_some())
    }
}

fn lsn(lsn: PgLsn) -> Lsn {
    Lsn(lsn.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_named_with_what_is_known_of_it() {
        let mut holder = Holder {
            pid: 42,
            application_name: Some("outboxd".to_owned()),
            client_addr: Some("10.0.0.7".to_owned()),
            since: Some("2026-11-16 04:00:00 UTC".to_owned()),
        };
        let sentence = "pid 42, application \"outboxd\", from 10.0.0.7, since 2026-11-16 04:00:00 UTC";
        assert_eq!(holder.to_string(), sentence);
        (holder.application_name, holder.client_addr, holder.since) = (None, None, None);
        assert_eq!(holder.to_string(), "pid 42");
    }
}
