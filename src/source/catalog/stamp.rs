//! Write-back: what became of rows, written into their own tables.
//!
//! An `[[outbox]]` block with `writeback` enters; its `Stamp` leaves, proved by the server as far as that takes no lock, or what is wrong
//! with the set-up. Guarantees: only the named columns are written; a published row is never written again, so that no
//! rejection covers it and whatever is repeated changes nothing; a row that is gone is no failure, and one that cannot be seen yet is not
//! taken for one; nobody's row is waited for.

mod sql;

use std::time::{Duration, Instant};

use super::letters::storable;
use super::{Catalog, Column, quote_identifier};
use crate::config::{Outbox, OutboxSource, Writeback};
use crate::error::{Error, Result};
use crate::receipt::{Fate, Receipt};
pub use sql::Stamp;
use sql::Unfit;

/// What PostgreSQL says when a right is missing.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// How soon transactions that cannot be seen are looked at again, first and at last.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// The type whose text is not what the stream has.
const BYTEA: u32 = 17;

impl Catalog {
    /// How the rows of an outbox are written to; `None` when it has no write-back.
    pub async fn stamp(&self, outbox: &Outbox) -> Result<Option<Stamp>> {
        let (Some(writeback), OutboxSource::Table { schema, name }) = (&outbox.writeback, &outbox.source) else {
            return Ok(None);
        };
        self.refuse_columns(schema, name, writeback).await?;
        let Some(table) = self.table(schema, name).await? else {
            let what = format!("table {schema}.{name}, which has write-back, does not exist");
            return Err(Error::definite(what).hint("create it, or mend outbox.table"));
        };
        let is_bytes = |column: &Column| column.name == outbox.columns.id && column.kind.oid == BYTEA;
        if table.columns.iter().any(is_bytes) {
            let id = &outbox.columns.id;
            let what = format!("column \"{id}\" of table {schema}.{name} is bytea, by which no row is found");
            return Err(Error::definite(what).hint("write-back needs an id of another type"));
        }
        let stamp = Stamp::new((schema, name), &table.columns, &outbox.columns.id, writeback);
        let stamp = stamp.map_err(|unfit| match unfit {
            Unfit::Lacks(column) => Error::definite(format!("table {schema}.{name} has no column \"{column}\""))
                .hint("create it, or name another one in outbox.writeback"),
            Unfit::NeverNull(column) => {
                let what = format!(
                    "column \"{column}\" of table {schema}.{name} is NOT NULL, so that no row looks unpublished"
                );
                let hint = format!(
                    "ALTER TABLE {}.{} ALTER COLUMN {} DROP NOT NULL; or set outbox.writeback.status",
                    quote_identifier(schema),
                    quote_identifier(name),
                    quote_identifier(column)
                );
                Error::definite(what).hint(hint)
            }
        })?;
        self.prove(&stamp).await?;
        Ok(Some(stamp))
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

    /// Writes receipts into their rows, all or none but for those that somebody else has locked: the places of these. Their transactions
    /// can be seen.
    pub async fn write_back(&self, stamp: &Stamp, receipts: &[&Receipt]) -> Result<Vec<usize>> {
        let ids: Vec<&str> = receipts.iter().map(|receipt| receipt.id.as_str()).collect();
        let fates = receipts.iter().map(|receipt| match &receipt.fate {
            Fate::Published => (None, 0),
            Fate::Rejected { why, attempts } => (Some(storable(why)), i32::try_from(*attempts).unwrap_or(i32::MAX)),
        });
        let (why, attempts): (Vec<_>, Vec<i32>) = fates.unzip();
        let what = format!("cannot write to rows of table {}", stamp.table());
        let written = self.rows(&what, &stamp.receipts(), &[&ids, &why, &attempts]).await?;
        let mut is_left = vec![true; ids.len()];
        written.iter().flat_map(|row| row.get::<_, Vec<i64>>(0)).for_each(|place| is_left[index(place)] = false);
        let left: Vec<usize> = (0..ids.len()).filter(|at| is_left[*at]).collect();
        if left.is_empty() {
            return Ok(left);
        }
        // Published before, gone, or locked.
        let ids: Vec<&str> = left.iter().map(|at| ids[*at]).collect();
        let open = self.rows(&what, &stamp.left(), &[&ids]).await?;
        let mut locked: Vec<usize> = open.iter().map(|row| left[index(row.get(0))]).collect();
        locked.sort_unstable();
        Ok(locked)
    }

    /// Lets the server plan the UPDATE, which shows what rights, types and row security say of it. Waits for locks of the whole table.
    pub async fn rehearse(&self, stamp: &Stamp) -> Result<()> {
        let nothing: (&[&str], &[Option<&str>], &[i32]) = (&[], &[], &[]);
        let what = format!("rows of table {} cannot be written to", stamp.table());
        let sql = format!("EXPLAIN {}", stamp.receipts());
        self.rows(&what, &sql, &[&nothing.0, &nothing.1, &nothing.2]).await.map(drop)
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
        let hint = "see the columns' types, and the words in outbox.writeback";
        let row = self.row(&what, &stamp.proof(), &[]).await.map_err(|error| match error.sqlstate() {
            Some(code) if code != INSUFFICIENT_PRIVILEGE && (code.starts_with("22") || code.starts_with("42")) => {
                Error::definite(error.chain()).hint(hint)
            }
            Some(_) | None => error,
        })?;
        let wrong: Vec<String> = row.map(|row| row.get(0)).unwrap_or_default();
        match wrong.first() {
            None => Ok(()),
            Some(word) => Err(Error::definite(format!("{what} as configured: {word}")).hint(hint)),
        }
    }
}

/// SQL counts from 1.
fn index(place: i64) -> usize {
    usize::try_from(place - 1).expect("places begin with 1")
}
