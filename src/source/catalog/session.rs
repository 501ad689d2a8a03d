//! An SQL session: dialled and logged in to the first host that will have us, settings made, driver running.

use std::future::{Ready, poll_fn, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::Severity;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Connection as Driver, SimpleQueryMessage};
use tracing::{debug, warn};

use super::Catalog;
use super::verdict::Said;
use crate::config::{self, Connection, Host, SessionAttrs};
use crate::error::{Error, Result};
use crate::source::dial::{self, Dialed, Socket};

/// How long server and session may take to say goodbye to each other.
const GOODBYE: Duration = Duration::from_secs(1);

/// Opens a session on the first host that will have us. A read-only server, where that will not do, gives way to the
/// next one.
pub(super) async fn connect(connection: &Connection, limit: Duration) -> Result<Catalog> {
    dial::open(connection, |host, dialed| log_in(connection, host, dialed, limit)).await
}

async fn log_in(connection: &Connection, host: Host, dialed: Dialed, limit: Duration) -> Result<Catalog> {
    let what = &format!("cannot open an SQL session on {}", dial::address(&host));
    let Dialed { socket, server_end_point } = dialed;
    let mut config = tokio_postgres::Config::new();
    config.user(&connection.user).dbname(&connection.dbname).application_name(&connection.application_name);
    // The socket comes as `sslmode` wants it; "direct" keeps the driver from asking the server for TLS once more.
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    config.channel_binding(match connection.channel_binding {
        config::ChannelBinding::Disable => tokio_postgres::config::ChannelBinding::Disable,
        config::ChannelBinding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
        config::ChannelBinding::Require => tokio_postgres::config::ChannelBinding::Require,
    });
    if let Some(password) = &connection.password {
        config.password(password.reveal());
    }
    let (client, driver) =
        config.connect_raw(socket, AsDialed(server_end_point)).await.map_err(|error| refused(what, &host, error))?;
    let (ended, end) = watch::channel(None);
    // The one task outside of `relay`: the driver must be polled while a query waits, and a query is awaited in many
    // places. It ends when its `Catalog` is dropped.
    tokio::spawn(drive(driver, ended));
    let mut catalog = Catalog { client, end, limit, version: 0, pid: 0 };
    settle(&mut catalog, connection.session_attrs, what).await?;
    Ok(catalog)
}

/// What broke the socket during login may be TLS: only `dial` can tell whether that is worth another try.
fn refused(what: &str, host: &Host, error: tokio_postgres::Error) -> Error {
    let said = Said::of(&error);
    match error.into_source().map(|cause| cause.downcast::<io::Error>()) {
        Some(Ok(cause)) if cause.kind() != io::ErrorKind::InvalidInput => dial::lost(host, *cause),
        Some(_) | None => said.error(what),
    }
}

/// Makes the session's settings (a name on the slot must not be lost in a crash of the server), and learns what it is: its server's version, its pid, and whether it may write.
async fn settle(catalog: &mut Catalog, attrs: SessionAttrs, what: &str) -> Result<()> {
    let limit_ms = catalog.limit.as_millis();
    let sql = format!(
        "SET search_path = ''; SET row_security = off; SET statement_timeout = {limit_ms}; \
         SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SELECT current_setting('server_version_num'), pg_backend_pid(), \
                pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on', \
                set_config('synchronous_commit', \
                           replace(current_setting('synchronous_commit'), 'off', 'local'), false)",
        // Half: so that a wait for a lock is reported as one.
        limit_ms / 2,
        limit_ms * 6,
    );
    let messages = match catalog.client.simple_query(&sql).await {
        Ok(messages) => messages,
        Err(error) => return Err(catalog.failed(what, error).await),
    };
    let facts = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((row.get(0)?.parse().ok()?, row.get(1)?.parse().ok()?, row.get(2)? == "t"))
        }
        _ => None,
    });
    let Some((version, pid, read_only)) = facts else {
        return Err(Error::definite(format!("{what}: the server does not say its version")));
    };
    (catalog.version, catalog.pid) = (version, pid);
    match (attrs, read_only) {
        (SessionAttrs::ReadWrite, true) => Err(Error::transient(format!("{what}: the server is read-only"))),
        (SessionAttrs::ReadWrite, false) | (SessionAttrs::Any, _) => Ok(()),
    }
}

/// Runs until the session ends, or until its `Catalog` is dropped and the server has been told goodbye: a socket that
/// just closes is a line in the server's log.
async fn drive(mut driver: Driver<Socket, AsDialedStream>, ended: watch::Sender<Option<Said>>) {
    tokio::select! {
        end = carry(&mut driver) => {
            ended.send_replace(end);
        }
        () = ended.closed() => {
            timeout(GOODBYE, carry(&mut driver)).await.ok();
        }
    }
}

/// Carries the session's bytes to its end, and logs the server's warnings. `None` when we ended it.
async fn carry(driver: &mut Driver<Socket, AsDialedStream>) -> Option<Said> {
    loop {
        match poll_fn(|cx| driver.poll_message(cx)).await? {
            Ok(AsyncMessage::Notice(notice)) => match notice.parsed_severity() {
                Some(Severity::Warning) => warn!(hint = notice.hint(), "postgresql: {}", notice.message()),
                _ => debug!(hint = notice.hint(), "postgresql: {}", notice.message()),
            },
            Ok(_) => {}
            Err(error) => return Some(Said::of(&error)),
        }
    }
}

/// Hands the dialled socket through as if TLS were made here, so that SCRAM can bind to the channel.
struct AsDialed(Option<Vec<u8>>);

struct AsDialedStream {
    socket: Socket,
    server_end_point: Option<Vec<u8>>,
}

impl TlsConnect<Socket> for AsDialed {
    type Stream = AsDialedStream;
    type Error = io::Error;
    type Future = Ready<io::Result<AsDialedStream>>;

    fn connect(self, socket: Socket) -> Self::Future {
        ready(Ok(AsDialedStream { socket, server_end_point: self.0 }))
    }
}

impl TlsStream for AsDialedStream {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.server_end_point {
            Some(hash) => ChannelBinding::tls_server_end_point(hash.clone()),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for AsDialedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

/// A write into a session that the server has ended fails before the server's last words are read, and they would be
/// lost. So writing never fails: reading tells the end, and why.
impl AsyncWrite for AsDialedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf).map(|written| Ok(written.unwrap_or(buf.len())))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map(|_| Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
