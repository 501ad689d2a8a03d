//! What the replication stream is made of.

use crate::lsn::Lsn;

/// One message of the replication stream, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `w`: WAL data, here one pgoutput message.
    Data {
        /// The server's end of WAL when it sent this.
        wal_end: Lsn,
        /// When the server sent it, by its own clock: microseconds since 2000-01-01 UTC.
        sent_at: i64,
        /// The pgoutput message.
        body: &'a [u8],
    },
    /// `k`: how far the server has decoded and sent.
    Keepalive {
        /// Everything before this position has been sent.
        wal_end: Lsn,
        /// When the server sent it, by its own clock: microseconds since 2000-01-01 UTC.
        sent_at: i64,
        /// The server wants an answer now.
        reply_requested: bool,
    },
    /// A `NoticeResponse` inside the stream.
    Notice {
        /// SQLSTATE.
        code: &'a str,
        /// The primary message.
        message: &'a str,
    },
}
