//! A walsender session: connect, identify, stream, send status, leave.
//!
//! Bytes enter, `Frame`s leave. The only owner of sockets to the walsender.

use crate::lsn::Lsn;

/// One message of the replication stream, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `w`: WAL data, here one pgoutput message.
    Data {
        /// Where the data starts; 0/0 for messages that have no place of their own.
        start: Lsn,
        /// The server's end of WAL when it sent this.
        wal_end: Lsn,
        /// The pgoutput message.
        body: &'a [u8],
    },
    /// `k`: how far the server has decoded and sent.
    Keepalive {
        /// Everything before this position has been sent.
        wal_end: Lsn,
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
