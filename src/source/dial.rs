//! Sockets to PostgreSQL, for the walsender session and for SQL alike: TCP or Unix, then TLS as `sslmode` asks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::config::{Connection, Host};
use crate::error::{Error, Result};

/// An open connection on which no startup message has been sent yet.
#[derive(Debug)]
pub struct Dialed {
    /// The bytes' way.
    pub socket: Socket,
    /// Under TLS: the hash of the server's certificate, for SCRAM-SHA-256-PLUS (RFC 5929, tls-server-end-point).
    pub server_end_point: Option<Vec<u8>>,
}

/// The three ways to a server.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Opens a connection to one host.
pub async fn dial(_connection: &Connection, host: &Host) -> Result<Dialed> {
    let failed = |error: io::Error| Error::transient("cannot connect").because(error);
    let socket = match host {
        Host::Tcp(name, port) => Socket::Tcp(TcpStream::connect((name.as_str(), *port)).await.map_err(failed)?),
        Host::Unix(directory, port) => {
            Socket::Unix(UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await.map_err(failed)?)
        }
    };
    Ok(Dialed { socket, server_end_point: None })
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
