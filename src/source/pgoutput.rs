//! The decoder of pgoutput's messages, protocol version 1: bytes enter, a borrowed `Message` leaves.
//!
//! Pure, and total: any bytes give a message or a `Malformed`, never a panic. Nothing is copied.
//! The format is described in PostgreSQL's manual, "Logical Replication Message Formats".

use crate::lsn::Lsn;

/// One decoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// `B`: a transaction starts; it is sent after its commit, so the commit's LSN is known.
    Begin {
        /// The LSN of the commit record.
        commit_lsn: Lsn,
        /// Microseconds since 2000-01-01 UTC.
        committed_at: i64,
        /// The transaction's id.
        xid: u32,
    },
    /// `C`: the transaction is complete.
    Commit {
        /// The LSN of the commit record.
        commit_lsn: Lsn,
        /// The position just after the commit record: what may be confirmed.
        end_lsn: Lsn,
        /// Microseconds since 2000-01-01 UTC.
        committed_at: i64,
    },
    /// `O`: the transaction came from another node.
    Origin {
        /// The commit's LSN on that node.
        commit_lsn: Lsn,
        /// The origin's name.
        name: &'a str,
    },
    /// `R`: a table's shape, sent before its first row in a session and after each change.
    Relation(Relation<'a>),
    /// `Y`: a type that is not built in.
    Type {
        /// The type's OID.
        oid: u32,
        /// Its schema; empty for `pg_catalog`.
        schema: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// `I`: a row was inserted.
    Insert {
        /// The table's OID, as in `Relation`.
        relation: u32,
        /// The new row.
        row: Tuple<'a>,
    },
    /// `U`: a row was updated; its contents are checked and dropped.
    Update {
        /// The table's OID.
        relation: u32,
    },
    /// `D`: a row was deleted; its contents are checked and dropped.
    Delete {
        /// The table's OID.
        relation: u32,
    },
    /// `T`: tables were truncated.
    Truncate,
    /// `M`: `pg_logical_emit_message`.
    Logical {
        /// True when it belongs to the transaction around it.
        transactional: bool,
        /// The message's own LSN.
        lsn: Lsn,
        /// Who it is for.
        prefix: &'a str,
        /// What it says.
        content: &'a [u8],
    },
    /// `A` outside a stream: PostgreSQL 18 before August 2026 may send it although streaming is off (bug #19616).
    StreamAbort,
}

/// A table's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation<'a> {
    /// The table's OID.
    pub id: u32,
    /// Its schema; an empty one on the wire is `pg_catalog`.
    pub schema: &'a str,
    /// Its name.
    pub name: &'a str,
    /// How many columns `columns` yields.
    pub column_count: u16,
    columns: &'a [u8],
}

/// One column of a `Relation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationColumn<'a> {
    /// Part of the replica identity.
    pub key: bool,
    /// The column's name.
    pub name: &'a str,
    /// Its type's OID.
    pub type_oid: u32,
    /// Its type modifier, -1 when there is none.
    pub type_modifier: i32,
}

/// A row's columns, in the order of its `Relation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    /// How many columns `columns` yields.
    pub column_count: u16,
    columns: &'a [u8],
}

/// One column of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// `n`
    Null,
    /// `u`: a TOASTed value that did not change; never in an `Insert` of a healthy server.
    Unchanged,
    /// `t`: the type's text output.
    Text(&'a [u8]),
    /// `b`: the type's binary output.
    Binary(&'a [u8]),
}

/// Bytes that are not a pgoutput message: what was expected, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed pgoutput message: {expected} at byte {offset}")]
pub struct Malformed {
    /// What should have stood there.
    pub expected: &'static str,
    /// How many bytes into the message.
    pub offset: usize,
}
