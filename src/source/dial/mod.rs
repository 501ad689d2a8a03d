//! Sockets to PostgreSQL, for the walsender session and for SQL alike: TCP or Unix, then TLS as `sslmode` asks.
//!
//! A `Connection` enters, a `Dialed` on which nothing has been said yet leaves. `open` also carries the rules that span
//! dialing and login: hosts in order, libpq's second try with or without TLS, and one `connect_timeout` per host.
//! Every failure names the host and the step: name, TCP, TLS, login.

mod certificate;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::config::{Connection, Host, SslMode};
use crate::error::{Error, Result};

/// An open connection on which no startup message has been sent yet.
#[derive(Debug)]
pub struct Dialed {
    /// The bytes' way.
    pub socket: Socket,
    /// Under TLS: the hash of the server's certificate, for SCRAM-SHA-256-PLUS (RFC 5929, tls-server-end-point).
    /// None without TLS, and for certificates whose signature has no hash of its own (Ed25519).
    pub server_end_point: Option<Vec<u8>>,
}

/// The three ways to a server.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How far the server is: it decides at what pace it is best read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Over a network, for all we know.
    Network,
    /// Over this machine's loopback, where `WINDOW` bytes may be under way.
    Loopback,
    /// Over a Unix socket.
    Unix,
}

/// What a server behind the loopback may send ahead. What it may not send yet gathers in its own send queue, where small messages
/// join each other (`wire/pace.rs`). More is not granted where `net.core.rmem_max` has its usual value, and no more is needed
/// where a round trip takes no time; a network must be filled, so there the system sizes the buffer as it sees fit.
pub const WINDOW: u32 = 208 * 1024;

/// Dials the hosts in order and logs in on the first that lets us; `login` is asked for each connection made.
///
/// A transient failure passes to the next host, a definite one ends the search: as in libpq, a host that is there and
/// refuses us is not hidden behind the next one. `connect_timeout` holds for each host, login included.
///
/// libpq's second tries: `allow` goes from plain to TLS when pg_hba.conf refuses us (28000), `prefer` from TLS to plain
/// for the same reason or when the handshake fails. A wrong password (28P01) is wrong on either and not sent again.
pub async fn open<T, F>(connection: &Connection, login: impl Fn(Host, Dialed) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut failures = Vec::new();
    for host in &connection.hosts {
        match timeout(connection.connect_timeout, open_host(connection, host, &login)).await {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(failure @ Error::Definite(_))) => return Err(failure),
            Ok(Err(failure @ Error::Transient(_))) => failures.push(failure),
            Err(_) => {
                let (at, waited) = (address(host), humantime::format_duration(connection.connect_timeout));
                failures.push(Error::transient(format!("{at}: no login within {waited} (connect_timeout)")));
            }
        }
    }
    Err(all_failed(failures))
}

/// Opens a connection to one host, the way `sslmode` tries first.
pub async fn dial(connection: &Connection, host: &Host) -> Result<Dialed> {
    match (host, connection.sslmode) {
        (Host::Unix(..), _) | (Host::Tcp(..), SslMode::Disable | SslMode::Allow) => dial_plain(host).await,
        (Host::Tcp(name, port), SslMode::Prefer) => match offer_tls(connection, host, name, *port).await? {
            Offer::Taken(dialed) => Ok(dialed),
            Offer::Declined(stream) => Ok(Dialed { socket: Socket::Tcp(stream), server_end_point: None }),
            Offer::Broken(_) => dial_plain(host).await,
        },
        (Host::Tcp(..), SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => dial_tls(connection, host).await,
    }
}

/// A host as people write it: `db1:5432`, or the socket's file.
pub fn address(host: &Host) -> String {
    match host {
        Host::Tcp(name, port) if name.contains(':') => format!("[{name}]:{port}"),
        Host::Tcp(name, port) => format!("{name}:{port}"),
        Host::Unix(directory, port) => socket_file(directory, *port).display().to_string(),
    }
}

/// The failure of an open connection: transient, unless TLS says that one side will never accept the other.
///
/// Under TLS 1.3 the server's opinion of our certificate arrives only here, with the first bytes read.
pub fn lost(host: &Host, error: io::Error) -> Error {
    tls::refused(host, &error)
        .unwrap_or_else(|| Error::transient(format!("connection to {} lost", address(host))).because(error))
}

impl Socket {
    /// True under TLS.
    pub fn is_encrypted(&self) -> bool {
        match self {
            Socket::Tls(_) => true,
            Socket::Tcp(_) | Socket::Unix(_) => false,
        }
    }

    /// How far the other side is.
    pub fn way(&self) -> Way {
        let tcp = |stream: &TcpStream| match stream.peer_addr() {
            Ok(address) if is_loopback(address) => Way::Loopback,
            Ok(_) | Err(_) => Way::Network,
        };
        match self {
            Socket::Tcp(stream) => tcp(stream),
            Socket::Tls(stream) => tcp(stream.get_ref().0),
            Socket::Unix(_) => Way::Unix,
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

async fn open_host<T, F>(connection: &Connection, host: &Host, login: &impl Fn(Host, Dialed) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let dialed = dial(connection, host).await?;
    let encrypted = dialed.socket.is_encrypted();
    let outcome = login(host.clone(), dialed).await;
    match (host, connection.sslmode, &outcome) {
        (Host::Tcp(name, port), SslMode::Allow, Err(refused)) if refused.sqlstate() == Some("28000") => {
            match offer_tls(connection, host, name, *port).await? {
                Offer::Taken(dialed) => login(host.clone(), dialed).await,
                Offer::Declined(_) | Offer::Broken(_) => outcome,
            }
        }
        (Host::Tcp(..), SslMode::Prefer, Err(refused)) if encrypted && refused.sqlstate() == Some("28000") => {
            login(host.clone(), dial_plain(host).await?).await
        }
        _ => outcome,
    }
}

fn all_failed(mut failures: Vec<Error>) -> Error {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let each: Vec<String> = failures.iter().map(Error::chain).collect();
    let error = Error::transient(format!("no host accepts us: {}", each.join("; ")));
    match failures.iter().find_map(Error::sqlstate) {
        Some(code) => error.code(code),
        None => error,
    }
}

async fn dial_plain(host: &Host) -> Result<Dialed> {
    let socket = match host {
        Host::Tcp(name, port) => Socket::Tcp(connect_tcp(name, *port).await?),
        Host::Unix(directory, port) => {
            let file = socket_file(directory, *port);
            let stream = UnixStream::connect(&file).await;
            Socket::Unix(stream.map_err(|error| {
                Error::transient(format!("cannot connect to the socket {}", file.display())).because(error)
            })?)
        }
    };
    Ok(Dialed { socket, server_end_point: None })
}

async fn dial_tls(connection: &Connection, host: &Host) -> Result<Dialed> {
    let Host::Tcp(name, port) = host else { return dial_plain(host).await };
    match offer_tls(connection, host, name, *port).await? {
        Offer::Taken(dialed) => Ok(dialed),
        Offer::Broken(error) => Err(error),
        Offer::Declined(_) => {
            Err(Error::definite(format!("{}: the server does not support TLS, and sslmode demands it", address(host)))
                .hint("set ssl = on in the server's postgresql.conf, or sslmode=prefer in postgres.url"))
        }
    }
}

/// What came of asking the server for TLS.
enum Offer {
    Taken(Dialed),
    Declined(TcpStream),
    Broken(Error),
}

async fn offer_tls(connection: &Connection, host: &Host, name: &str, port: u16) -> Result<Offer> {
    // The configuration first: a wrong file is a definite error in every mode, never a reason to go on in plain.
    let connector = tls::connector(connection)?;
    let mut stream = connect_tcp(name, port).await?;
    match tls::request(&mut stream).await.map_err(|error| {
        Error::transient(format!("{}: the server gave no proper answer to the TLS request", address(host)))
            .because(error)
    })? {
        tls::Answer::Declined => Ok(Offer::Declined(stream)),
        tls::Answer::Accepted => Ok(match tls::handshake(&connector, stream, host, name).await {
            Ok(dialed) => Offer::Taken(dialed),
            Err(error) => Offer::Broken(error),
        }),
    }
}

async fn connect_tcp(name: &str, port: u16) -> Result<TcpStream> {
    let unknown = || Error::transient(format!("{name}:{port}: the host name does not resolve"));
    let addresses: Vec<SocketAddr> = lookup_host((name, port)).await.map_err(|e| unknown().because(e))?.collect();
    let mut failure = unknown();
    for address in addresses {
        match connect_address(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                failure = Error::transient(format!("{name}:{port}: cannot connect to {address}")).because(error);
            }
        }
    }
    Err(failure)
}

async fn connect_address(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    if is_loopback(address) {
        // Before connecting: behind that the window would stay as small as it begins.
        socket.set_recv_buffer_size(WINDOW)?;
    }
    socket.connect(address).await
}

fn socket_file(directory: &std::path::Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_as_people_write_it() {
        assert_eq!(address(&Host::Tcp("db1".into(), 5432)), "db1:5432");
        assert_eq!(address(&Host::Tcp("::1".into(), 5432)), "[::1]:5432");
        assert_eq!(address(&Host::Unix("/run/postgresql".into(), 5433)), "/run/postgresql/.s.PGSQL.5433");
    }

    #[test]
    fn when_all_hosts_fail_every_one_is_named_and_a_server_code_is_kept() {
        let starting = Error::transient("b:5432: the database system is starting up").code("57P03");
        let error = all_failed(vec![Error::transient("a:5432: cannot connect"), starting]);
        assert_eq!(
            error.chain(),
            "no host accepts us: a:5432: cannot connect; b:5432: the database system is starting up"
        );
        assert_eq!(error.sqlstate(), Some("57P03"));
        assert!(!error.is_definite());
    }
}
