//! The replication stream: frames out of the receive buffer, status updates into the send queue.
//!
//! `turn` moves bytes and decides nothing; when to read is the caller's choice, because the reader's pace sets the
//! walsender's. Writing goes on while reading is off, so a status gets through under backpressure.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::BufMut;
use postgres_protocol::message::frontend;
use tokio::time::timeout;

use super::line::{Line, unexpected, violated};
use super::packet;
use super::refusal::{self, During};
use super::{Frame, inbox::Packet};
use crate::error::{Error, Result};
use crate::lsn::Lsn;
use crate::source::dial::Way;

/// A `d` packet around an `r` message: 5 bytes of header, 34 of status.
const STATUS_LEN: usize = 39;
/// How much one turn reads, so that a fast server cannot keep it from returning.
pub(super) const TURN_MAX: usize = 256 * 1024;

/// A replication stream.
#[derive(Debug)]
pub struct Stream {
    line: Line,
    slot: String,
    publication: String,
}

/// Whether a turn reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Read what there is.
    On,
    /// Only write.
    Off,
}

/// What a turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Bytes received.
    pub read: usize,
}

/// A standby status update. What is flushed counts as applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandbyStatus {
    /// The last position received.
    pub write: Lsn,
    /// The confirmed position: the server may forget everything before it.
    pub flush: Lsn,
    /// Our clock.
    pub sent_at: SystemTime,
    /// Whether the server shall answer.
    pub reply: Reply,
}

/// Whether a status update asks for an answer, which is a keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reply {
    Wanted,
    NotWanted,
}

impl Stream {
    pub(super) fn new(line: Line, slot: &str, publication: &str) -> Stream {
        Stream { line, slot: slot.to_owned(), publication: publication.to_owned() }
    }

    /// Writes what is queued and, when reading is on, reads what there is.
    ///
    /// Returns when bytes have arrived or, with reading off, when everything is written; with reading off and nothing
    /// to write it never returns. Cancel-safe: bytes read or written before the future is dropped are accounted for.
    pub async fn turn(&mut self, reading: Reading) -> Result<Turn> {
        let writing = self.line.has_unwritten();
        poll_fn(|cx| match reading {
            Reading::On => self.poll_both(cx),
            Reading::Off if writing => self
                .line
                .poll_write(cx)
                .map(|done| done.map(|()| Turn { read: 0 }).map_err(|error| self.line.lost(error))),
            Reading::Off => Poll::Pending,
        })
        .await
    }

    /// The next whole frame in the buffer; it stays there until `consume`.
    #[inline]
    pub fn frame(&mut self) -> Result<Option<Frame<'_>>> {
        while let Some(Packet { tag: b'S', .. }) = self.peek()? {
            self.line.consume(); // a setting was reloaded: nothing to us
        }
        match self.peek()? {
            Some(Packet { tag: b'd', body }) => match packet::copy_data(body) {
                Ok(frame) => Ok(Some(frame)),
                Err(error) => Err(violated(&self.line.at(), error)),
            },
            Some(packet) => self.not_data(packet).map(Some),
            None => Ok(None),
        }
    }

    /// Drops the frame that `frame` shows.
    #[inline]
    pub fn consume(&mut self) {
        self.line.consume();
    }

    /// How far the server is.
    pub fn way(&self) -> Way {
        self.line.way()
    }

    /// Bytes received and not yet consumed.
    pub fn buffered(&self) -> usize {
        self.line.inbox.buffered()
    }

    /// Queues a status update; the next turn writes it. One that is still waiting is replaced, its question kept.
    pub fn status(&mut self, status: StandbyStatus) {
        let out = &mut self.line.outgoing;
        // The queue holds nothing but status updates, so what is not a multiple of one is the rest of one under way.
        let begun = out.len() % STATUS_LEN;
        let asked = out.len() > begun && out.last() == Some(&1);
        out.truncate(begun);
        let reply = match status.reply {
            Reply::Wanted => 1,
            Reply::NotWanted => u8::from(asked),
        };
        out.put_u8(b'd');
        out.put_u32(STATUS_LEN as u32 - 1);
        out.put_u8(b'r');
        for lsn in [status.write, status.flush, status.flush] {
            out.put_u64(lsn.0);
        }
        out.put_i64(postgres_clock(status.sent_at));
        out.put_u8(reply);
    }

    /// Writes what is queued, ends the stream in good order and closes the connection.
    ///
    /// When this returns without error the server has read the last status. What it still sends is dropped.
    pub async fn leave(mut self, within: Duration) -> Result<()> {
        let at = self.line.at();
        match timeout(within, self.end_copy()).await {
            // The server's part is done: that the good-bye arrives makes no difference.
            Ok(Ok(())) => drop(timeout(within, self.line.terminate()).await),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let waited = humantime::format_duration(within);
                return Err(Error::transient(format!("{at}: the server did not end the stream within {waited}")));
            }
        }
        Ok(())
    }

    async fn end_copy(&mut self) -> Result<()> {
        frontend::copy_done(&mut self.line.outgoing);
        let at = self.line.at();
        loop {
            while let Some(packet) = self.peek()? {
                match packet.tag {
                    b'Z' => return Ok(()),
                    b'E' => return Err(self.refused(packet.body)),
                    b'd' | b'c' | b'C' | b'N' | b'S' => self.line.consume(),
                    tag => return Err(unexpected(&at, tag)),
                }
            }
            // Both at once: a server that is blocked on sending would not read our CopyDone.
            poll_fn(|cx| self.poll_both(cx)).await?;
        }
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<Result<Turn>> {
        // A failed write is left to the read: a server that hangs up has said why, and that is still to be read.
        drop(self.line.poll_write(cx));
        let mut read = 0;
        // TLS hands out one record at a time, and a read takes a part of what there is, so take what follows as well.
        while read < TURN_MAX {
            match self.line.poll_read(cx) {
                Poll::Ready(Ok(count)) if count > 0 => read += count,
                // What was read goes first; the end and an error come again with the next turn.
                _ if read > 0 => break,
                Poll::Ready(Ok(_)) => return Poll::Ready(Err(self.line.closed())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.line.lost(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(Turn { read }))
    }

    #[inline]
    fn peek(&self) -> Result<Option<Packet<'_>>> {
        self.line.inbox.peek().map_err(|error| violated(&self.line.at(), error))
    }

    /// Everything but data, keepalives and settings.
    #[cold]
    fn not_data<'a>(&self, packet: Packet<'a>) -> Result<Frame<'a>> {
        let at = self.line.at();
        match packet.tag {
            b'N' => {
                let report = packet::report(packet.body).map_err(|error| violated(&at, error))?;
                let text = |bytes| str::from_utf8(bytes).unwrap_or("(not UTF-8)");
                Ok(Frame::Notice { code: text(report.code), message: text(report.message) })
            }
            b'E' => Err(self.refused(packet.body)),
            // A server that shuts down sends CommandComplete without CopyDone.
            b'c' | b'C' => Err(Error::transient(format!("{at}: the server ended the replication stream"))),
            tag => Err(unexpected(&at, tag)),
        }
    }

    #[cold]
    fn refused(&self, body: &[u8]) -> Error {
        let at = self.line.at();
        match packet::report(body) {
            Ok(report) => {
                refusal::error(&at, report, During::Stream { slot: &self.slot, publication: &self.publication })
            }
            Err(error) => violated(&at, error),
        }
    }
}

/// Microseconds since 2000-01-01 UTC, PostgreSQL's epoch.
fn postgres_clock(time: SystemTime) -> i64 {
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
    match time.duration_since(epoch) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Host;
    use crate::source::dial::Socket;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let line = Line::new(Socket::Unix(ours), Host::Tcp("db".into(), 5432));
        (Stream::new(line, "orders", "events"), theirs)
    }

    fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn keepalive(lsn: u64) -> Vec<u8> {
        packet(b'd', &[&b"k"[..], &lsn.to_be_bytes(), &[0; 9]].concat())
    }

    fn status(flush: u64, reply: Reply) -> StandbyStatus {
        let sent_at = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_801);
        StandbyStatus { write: Lsn(9), flush: Lsn(flush), sent_at, reply }
    }

    #[tokio::test]
    async fn settings_are_dropped_and_notices_are_frames() {
        let (mut stream, mut server) = pair();
        let notice = packet(b'N', b"SWARNING\0C55000\0Mskipped loading publication\0\0");
        server.write_all(&[packet(b'S', b"TimeZone\0UTC\0"), notice, keepalive(7)].concat()).await.unwrap();
        assert_eq!(stream.turn(Reading::On).await.unwrap().read, stream.buffered());
        assert_eq!(
            stream.frame().unwrap(),
            Some(Frame::Notice { code: "55000", message: "skipped loading publication" })
        );
        stream.consume();
        assert_eq!(
            stream.frame().unwrap(),
            Some(Frame::Keepalive { wal_end: Lsn(7), sent_at: 0, reply_requested: false })
        );
        stream.consume();
        assert_eq!(stream.frame().unwrap(), None);
        assert_eq!(stream.buffered(), 0);
    }

    #[tokio::test]
    async fn the_end_of_the_stream_is_transient_and_unknown_packets_are_definite() {
        for (bytes, definite) in
            [(packet(b'c', b""), false), (packet(b'C', b"COPY 0\0"), false), (packet(b'?', b""), true)]
        {
            let (mut stream, mut server) = pair();
            server.write_all(&bytes).await.unwrap();
            stream.turn(Reading::On).await.unwrap();
            assert_eq!(stream.frame().unwrap_err().is_definite(), definite);
        }
    }

    #[tokio::test]
    async fn the_reason_for_hanging_up_is_read_although_writing_fails() {
        let (mut stream, mut server) = pair();
        server.write_all(&packet(b'E', b"C57P01\0Mterminating\0\0")).await.unwrap();
        drop(server);
        stream.status(status(1, Reply::Wanted));
        stream.turn(Reading::On).await.unwrap();
        assert_eq!(stream.frame().unwrap_err().sqlstate(), Some("57P01"));
        assert!(!stream.turn(Reading::On).await.unwrap_err().is_definite());
    }

    #[tokio::test]
    async fn a_waiting_status_is_replaced_and_its_question_kept() {
        let (mut stream, mut server) = pair();
        stream.status(status(1, Reply::Wanted));
        stream.status(status(2, Reply::NotWanted));
        assert_eq!(stream.turn(Reading::Off).await.unwrap(), Turn { read: 0 });
        let mut bytes = [0; STATUS_LEN];
        server.read_exact(&mut bytes).await.unwrap();
        let lsns = [9u64, 2, 2].map(u64::to_be_bytes).concat();
        let expected = packet(b'd', &[&b"r"[..], &lsns, &1_000_000u64.to_be_bytes(), &[1]].concat());
        assert_eq!(bytes.as_slice(), expected);
        assert!(!stream.line.has_unwritten());
    }

    #[tokio::test]
    async fn a_status_under_way_is_finished_before_the_next() {
        let (mut stream, _server) = pair();
        stream.status(status(1, Reply::NotWanted));
        let first = stream.line.outgoing.clone();
        bytes::Buf::advance(&mut stream.line.outgoing, 10);
        stream.status(status(2, Reply::NotWanted));
        stream.status(status(3, Reply::NotWanted));
        assert_eq!(stream.line.outgoing[..29], first[10..]);
        assert_eq!(stream.line.outgoing.len(), 29 + STATUS_LEN);
        assert_eq!(stream.line.outgoing[29 + 14..29 + 22], 3u64.to_be_bytes());
    }

    #[tokio::test]
    async fn leaving_drops_what_still_comes_and_waits_for_the_server() {
        let (mut stream, mut server) = pair();
        stream.status(status(1, Reply::NotWanted));
        let answers = [keepalive(7), packet(b'c', b""), packet(b'C', b"COPY 0\0"), packet(b'Z', b"I")].concat();
        server.write_all(&answers).await.unwrap();
        stream.leave(Duration::from_secs(5)).await.unwrap();
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard.len(), STATUS_LEN + 10);
        assert!(heard.ends_with(b"c\0\0\0\x04X\0\0\0\x04"), "CopyDone, then Terminate");

        let (stream, _silent) = pair();
        assert!(!stream.leave(Duration::from_millis(10)).await.unwrap_err().is_definite());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), tag in any::<u8>()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
            let _guard = runtime.enter();
            let (mut stream, _server) = pair();
            stream.line.inbox.room().extend_from_slice(&[packet(tag, &bytes), bytes].concat());
            while let Ok(Some(_)) = stream.frame() {
                stream.consume();
            }
        }
    }
}
