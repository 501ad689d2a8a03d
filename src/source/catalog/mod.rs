//! The SQL side of PostgreSQL: facts about server, slot, publication and tables, the position table, and dead letters.
//!
//! A `Connection` enters, facts leave. Every session has an empty `search_path`, row security off (a filtered read
//! fails instead of lying) and a limit on every statement and lock. Everything works with the rights that `init`
//! grants; what needs `pg_read_all_stats` is `None` without it. Failures carry their SQLSTATE, also when the server
//! ended the session between two statements.

mod again;
mod facts;
mod letters;
mod mail;
mod place;
mod quote;
mod session;
mod stamp;
pub mod survey;
mod verdict;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

pub use facts::{Column, Holder, Publication, PublishedTable, Server, Slot, SlotKind, Table, TableKind, Transaction};
pub use letters::{Desk, LetterCounts, Letters, Patience, SettledLetter, Wanted, Words};
pub use mail::{Attempt, Changed, Filter, LetterGroup, LetterLine, LetterPage};
pub use place::{Claim, Place};
pub use quote::{quote_identifier, quote_literal};
pub use stamp::Stamp;

use crate::config::Connection;
use crate::error::{Error, Result};

/// How long the server's last words may take from the driver to a failed query: they are already in the process.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An open SQL session.
pub struct Catalog {
    client: Client,
    end: watch::Receiver<Option<verdict::Said>>,
    limit: Duration,
    version: u32,
    pid: i32,
}

impl Catalog {
    /// Opens a session on the first host that will have us; `limit` bounds each statement.
    pub async fn connect(connection: &Connection, limit: Duration) -> Result<Catalog> {
        session::connect(connection, limit).await
    }

    /// The server's version as `server_version_num` has it: 150013.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The session's own process on the server.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// True when the session is over and only a new one can help.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements that take no parameters and give no rows, within `limit` rather than the session's own.
    pub async fn execute(&self, what: &str, sql: &str, limit: Duration) -> Result<()> {
        self.answer(what, self.client.batch_execute(sql), limit).await
    }

    async fn rows(&self, what: &str, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.answer(what, self.client.query(sql, parameters), self.limit).await
    }

    async fn row(&self, what: &str, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        self.answer(what, self.client.query_opt(sql, parameters), self.limit).await
    }

    /// How many rows a statement wrote.
    async fn affected(&self, what: &str, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.answer(what, self.client.execute(sql, parameters), self.limit).await
    }

    /// The server ends a statement that takes longer than its timeout and says so; twice the limit is for a server
    /// that says nothing any more.
    async fn answer<T>(
        &self,
        what: &str,
        asked: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
        limit: Duration,
    ) -> Result<T> {
        match timeout(limit * 2, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(what, error).await),
            Err(_) => Err(Error::transient(format!("{what}: the server gave no answer within {:?}", limit * 2))),
        }
    }

    /// A query on a dead session only hears "closed"; why it died (57P01: the server shuts down) was told the driver.
    async fn failed(&self, what: &str, error: tokio_postgres::Error) -> Error {
        if error.is_closed() {
            let mut end = self.end.clone();
            if let Ok(Ok(said)) = timeout(LAST_WORDS, end.wait_for(Option::is_some)).await
                && let Some(said) = said.clone()
            {
                return said.error(what);
            }
        }
        verdict::Said::of(&error).error(what)
    }
}
