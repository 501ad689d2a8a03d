//! One socket with its two buffers: what was received and what is still to be written.
//!
//! `Session` talks on it in questions and answers, `Stream` in both directions at once.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::inbox::{Inbox, Packet};
use super::packet;
use super::refusal::{self, During};
use crate::config::Host;
use crate::error::{Error, Result};
use crate::source::dial::{self, Socket, Way};

/// How much one read takes: less than what waits in a flood. A read that its caller left more room for counts as the last one
/// (tokio), and what a server sends once there is room in the window again would wait until after the next pause.
const READ: usize = 64 * 1024;

/// An open connection to the server.
#[derive(Debug)]
pub(super) struct Line {
    host: Host,
    socket: Socket,
    pub inbox: Inbox,
    pub outgoing: BytesMut,
    /// Bytes that TLS has taken and may not have sent.
    unflushed: bool,
}

impl Line {
    pub fn new(socket: Socket, host: Host) -> Line {
        Line { host, socket, inbox: Inbox::new(), outgoing: BytesMut::new(), unflushed: false }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The host, for messages.
    pub fn at(&self) -> String {
        dial::address(&self.host)
    }

    pub fn way(&self) -> Way {
        self.socket.way()
    }

    pub fn is_encrypted(&self) -> bool {
        self.socket.is_encrypted()
    }

    /// Writes one message of ours.
    pub async fn send(&mut self, write: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Result<()> {
        write(&mut self.outgoing).map_err(|error| {
            Error::definite(format!("{}: a name or password cannot be sent to PostgreSQL", self.at())).because(error)
        })?;
        std::future::poll_fn(|cx| self.poll_write(cx)).await.map_err(|error| self.lost(error))
    }

    /// The next packet, waited for; `consume` drops it.
    pub async fn packet(&mut self) -> Result<Packet<'_>> {
        while self.inbox.peek().map_err(|error| violated(&self.at(), error))?.is_none() {
            let read = self.socket.read_buf(self.inbox.room()).await;
            if read.map_err(|error| self.lost(error))? == 0 {
                return Err(self.closed());
            }
        }
        let packet = self.inbox.peek().map_err(|error| violated(&dial::address(&self.host), error))?;
        Ok(packet.expect("the loop ends when one is there"))
    }

    pub fn consume(&mut self) {
        self.inbox.consume();
    }

    /// Asks by simple query: the first row of the answer, empty when there is none.
    pub async fn ask(&mut self, question: &str) -> Result<Vec<Option<String>>> {
        self.send(|out| frontend::query(question, out)).await?;
        let at = self.at();
        let mut row = None;
        loop {
            let packet = self.packet().await?;
            match packet.tag {
                b'D' if row.is_none() => {
                    row = Some(packet::data_row(packet.body).map_err(|error| violated(&at, error))?);
                }
                b'E' => {
                    let report = packet::report(packet.body).map_err(|error| violated(&at, error))?;
                    return Err(refusal::error(&at, report, During::Question));
                }
                b'Z' => {
                    self.consume();
                    return Ok(row.unwrap_or_default());
                }
                b'T' | b'D' | b'C' | b'S' | b'N' => {}
                tag => return Err(unexpected(&at, tag)),
            }
            self.consume();
        }
    }

    /// Says good-bye and closes; the server's side needs no answer.
    pub async fn terminate(mut self) -> io::Result<()> {
        frontend::terminate(&mut self.outgoing);
        std::future::poll_fn(|cx| self.poll_write(cx)).await?;
        self.socket.shutdown().await
    }

    /// Ready when everything is written.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.outgoing))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.advance(written);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once; ready with 0 at the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        pin!(self.socket.read_buf(&mut self.inbox.room().limit(READ))).poll(cx)
    }

    pub fn has_unwritten(&self) -> bool {
        self.unflushed || !self.outgoing.is_empty()
    }

    pub fn lost(&self, error: io::Error) -> Error {
        dial::lost(&self.host, error)
    }

    pub fn closed(&self) -> Error {
        Error::transient(format!("{}: the server closed the connection", self.at()))
    }
}

/// Bytes that break the protocol.
pub(super) fn violated(at: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::definite(format!("{at}: the server does not keep to PostgreSQL's protocol"))
        .because(error)
        .hint("make sure that the address is PostgreSQL's own")
}

/// A packet that has no place here.
pub(super) fn unexpected(at: &str, tag: u8) -> Error {
    violated(at, io::Error::other(format!("unexpected message of type {:?}", char::from(tag))))
}
