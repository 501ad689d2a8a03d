//! Write-back: what became of rows, written into their own tables.
//!
//! `[[outbox]]` blocks with `writeback` enter; `Stamp`s leave, each proved by the server as far as that takes no lock, or what is wrong
//! with the set-up. Guarantees: only the named columns are written; a published row is never written again, so that no
//! rejection covers it and whatever is repeated changes nothing; a row that is gone is no failure, and one that cannot be seen yet is not
//! taken for one.

mod sql;

use std::time::{Duration, Instant};

use super::letters::storable;
use super::{Catalog, Column};
use crate::config::{Outbox, OutboxSource, Writeback};
use crate::error::{Error, Result};
use crate::ledger::Receipt;
pub use sql::Stamp;

/// What PostgreSQL says when a right is missing.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// How soon transactions that cannot be seen are looked at again, first and at last.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// The type whose text is not what the stream has.
const BYTEA: u32 = 17;

impl Catalog {
    /// How the rows of each outbox that has write-back are written to.
    pub async fn stamps(&self, outboxes: &[Outbox]) -> Result<Vec<Stamp>> {
        let mut stamps = Vec::new();
        for (at, outbox) in outboxes.iter().enumerate() {
            if let (Some(writeback), OutboxSource::Table { schema, name }) = (&outbox.writeback, &outbox.source) {
                self.refuse_columns(schema, name, writeback).await?;
                let Some(table) = self.table(schema, name).await? else {
                    return Err(Error::definite(format!(
                        "table {schema}.{name}, which has write-back, does not exist"
                    ))
                    .hint("create it, or mend outbox.table"));
                };
                let is_bytes = |column: &Column| column.name == outbox.columns.id && column.kind.oid == BYTEA;
                if table.columns.iter().any(is_bytes) {
                    let id = &outbox.columns.id;
                    let what = format!("column \"{id}\" of table {schema}.{name} is bytea, by which no row is found");
                    return Err(Error::definite(what).hint("write-back needs an id of another type"));
                }
                let stamp = Stamp::new(at, (schema, name), &table.columns, &outbox.columns.id, writeback);
                let stamp = stamp.map_err(|column| {
                    Error::definite(format!("table {schema}.{name} has no column \"{column}\""))
                        .hint("create it, or name another one in outbox.writeback")
                })?;
                self.prove(&stamp).await?;
                stamps.push(stamp);
            }
        }
        Ok(stamps)
    }

    /// Waits until every row of these transactions can be seen in this session.
    ///
    /// A transaction is in the WAL, and so in Kafka, before others see it: for a moment, and for as long as it waits for a
    /// synchronous standby. Until then its rows look like rows that are gone.
    pub async fn await_visible(&self, xids: impl Iterator<Item = u32>) -> Result<()> {
        let mut open: Vec<i64> = xids.map(i64::from).collect();
        open.sort_unstable();
        open.dedup();
        let (end, mut pause) = (Instant::now() + self.limit, FIRST_LOOK);
        loop {
            let rows = self.rows("cannot ask for open transactions", sql::INVISIBLE, &[&open]).await?;
            open = rows.iter().map(|row| row.get(0)).collect();
            if open.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                let what = format!("{} transactions are in the WAL, and their rows cannot be seen yet", open.len());
                return Err(Error::transient(what).hint("see whether they wait for a synchronous standby"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Writes receipts into their rows, all or none. Their transactions can be seen.
    pub async fn write_back(&self, stamp: &Stamp, receipts: &[&Receipt]) -> Result<()> {
        let ids: Vec<&str> = receipts.iter().map(|receipt| receipt.id.as_str()).collect();
        let rejected: Vec<_> = receipts.iter().map(|receipt| receipt.rejected.as_deref().map(storable)).collect();
        let what = format!("cannot write to rows of table {}", stamp.table());
        self.affected(&what, &stamp.receipts(), &[&ids, &rejected]).await.map(drop)
    }

    /// Columns that nobody can write, or that must not change: the row would leave its partition.
    async fn refuse_columns(&self, schema: &str, table: &str, writeback: &Writeback) -> Result<()> {
        let what = format!("cannot look at the columns of table {schema}.{table}");
        for row in self.rows(&what, sql::UNWRITABLE, &[&schema, &table]).await? {
            let (name, why): (String, &str) = (row.get(0), row.get(1));
            if writeback.names().any(|written| written == name) {
                let what = format!("column \"{name}\" of table {schema}.{table} {why}, and cannot be written back");
                return Err(Error::definite(what).hint("name another column in outbox.writeback"));
            }
        }
        Ok(())
    }

    /// What a word or a column cannot be is found here; a missing right only when a row is written.
    async fn prove(&self, stamp: &Stamp) -> Result<()> {
        let what = format!("rows of table {} cannot be written to", stamp.table());
        self.rows(&what, &stamp.casts(), &[]).await.map(drop).map_err(|error| match error.sqlstate() {
            Some(code) if code != INSUFFICIENT_PRIVILEGE && (code.starts_with("22") || code.starts_with("42")) => {
                // Without its code: whoever stores letters would look for the fault in them.
                Error::definite(error.chain()).hint("see the columns' types, and the words in outbox.writeback")
            }
            Some(_) | None => error,
        })
    }
}
