//! A walsender session: connect, identify, stream, send status, leave.
//!
//! Bytes enter, `Frame`s leave. The only owner of sockets to the walsender.
//!
//! ```text
//! Session::connect ──► start ──► Stream: turn · frame · consume · status ──► leave
//!   dial, login, who are you       the only loop that lasts
//! ```
//!
//! Guarantees: no frame is skipped, and unknown bytes are an error; frames are borrowed from one receive buffer, which
//! is as large as the largest frame needs; a server's error keeps its SQLSTATE and says whether trying again can help.

mod frame;
mod inbox;
mod line;
mod login;
mod pace;
mod packet;
mod refusal;
mod stream;

use std::time::Duration;

pub use frame::Frame;
pub use login::Login;
pub use pace::{GATHER, Pace};
pub use stream::{Reading, Reply, StandbyStatus, Stream, Turn};

use super::dial::{self, Dialed};
use super::{Encoding, System};
use crate::config::{Connection, Host, SessionAttrs};
use crate::error::{Error, Result};
use line::Line;
use refusal::During;

/// A replication session that is logged in and has not started to stream.
#[derive(Debug)]
pub struct Session {
    line: Line,
    login: Login,
    backend_pid: i32,
    server_version: u32,
    system: System,
}

/// What to stream.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The slot, which also decides from where.
    pub slot: &'a str,
    /// The publication: which tables.
    pub publication: &'a str,
    /// How values are sent.
    pub encoding: Encoding,
}

impl Session {
    /// Logs in on the first host that accepts us, with `wal_sender_timeout` set for this session.
    ///
    /// Under `target_session_attrs=read-write` a host in recovery is passed over.
    pub async fn connect(connection: &Connection, sender_timeout: Duration) -> Result<Session> {
        dial::open(connection, |host, dialed| Session::on_host(connection, sender_timeout, host, dialed)).await
    }

    async fn on_host(connection: &Connection, sender_timeout: Duration, host: Host, dialed: Dialed) -> Result<Session> {
        let server_end_point = dialed.server_end_point;
        let mut line = Line::new(dialed.socket, host);
        let (login, backend_pid) = login::log_in(&mut line, connection, sender_timeout, server_end_point).await?;
        let server_version = check_server(&mut line, connection).await?;
        if server_version >= 190_000 {
            // Known only to these versions, so it cannot stand in the startup message: a primary that shuts down does
            // not wait for us longer than this, even if we no longer answer.
            line.ask("SET wal_sender_shutdown_timeout = '10s'").await?;
        }
        let system = identify(&mut line).await?;
        Ok(Session { line, login, backend_pid, server_version, system })
    }

    /// Which cluster this is, and which of its histories.
    pub fn system(&self) -> System {
        self.system
    }

    /// As PostgreSQL numbers itself: 150018 is 15.18.
    pub fn server_version(&self) -> u32 {
        self.server_version
    }

    /// The walsender's process id, as `pg_stat_replication` shows it.
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// The host that accepted us.
    pub fn host(&self) -> &Host {
        self.line.host()
    }

    /// How we proved who we are.
    pub fn login(&self) -> Login {
        self.login
    }

    /// True under TLS.
    pub fn is_encrypted(&self) -> bool {
        self.line.is_encrypted()
    }

    /// A setting as it is in this session, the way `SHOW` prints it.
    pub async fn show(&mut self, setting: &str) -> Result<Option<String>> {
        Ok(self.line.ask(&format!("SHOW {setting}")).await?.into_iter().next().flatten())
    }

    /// Starts to stream from where the slot stands.
    pub async fn start(mut self, start: Start<'_>) -> Result<Stream> {
        self.line.send(|out| postgres_protocol::message::frontend::query(&start_replication(start), out)).await?;
        loop {
            let at = self.line.at();
            let packet = self.line.packet().await?;
            match packet.tag {
                b'W' => break,
                b'E' => {
                    let report = packet::report(packet.body).map_err(|error| line::violated(&at, error))?;
                    return Err(refusal::error(&at, report, During::Start { slot: start.slot }));
                }
                b'N' | b'S' => self.line.consume(),
                tag => return Err(line::unexpected(&at, tag)),
            }
        }
        self.line.consume();
        Ok(Stream::new(self.line, start.slot, start.publication))
    }
}

/// The server's version, if it is one that we can stream from and a host that `target_session_attrs` accepts.
async fn check_server(line: &mut Line, connection: &Connection) -> Result<u32> {
    let row = line.ask("SELECT current_setting('server_version_num'), pg_catalog.pg_is_in_recovery()").await?;
    let at = line.at();
    let [Some(version), Some(in_recovery)] = row.as_slice() else {
        return Err(Error::definite(format!("{at}: the server did not tell its version")));
    };
    let version: u32 =
        version.parse().map_err(|error| Error::definite(format!("{at}: version {version:?}")).because(error))?;
    if version < 140_000 {
        return Err(Error::definite(format!("{at}: PostgreSQL {} is too old", version / 10_000))
            .hint("outboxd needs PostgreSQL 14 or newer"));
    }
    match connection.session_attrs {
        SessionAttrs::ReadWrite if in_recovery == "t" => {
            Err(Error::transient(format!("{at}: the server is a standby, and target_session_attrs=read-write")))
        }
        SessionAttrs::ReadWrite | SessionAttrs::Any => Ok(version),
    }
}

async fn identify(line: &mut Line) -> Result<System> {
    let row = line.ask("IDENTIFY_SYSTEM").await?;
    let parsed = match row.as_slice() {
        [Some(id), Some(timeline), ..] => id.parse().ok().zip(timeline.parse().ok()),
        _ => None,
    };
    match parsed {
        Some((id, timeline)) => Ok(System { id, timeline }),
        None => Err(Error::definite(format!("{}: the server did not identify itself: {row:?}", line.at()))),
    }
}

fn start_replication(start: Start<'_>) -> String {
    let binary = match start.encoding {
        Encoding::Binary => "true",
        Encoding::Text => "false",
    };
    // The option holds a *list* of identifiers, so a name is quoted twice.
    let publications = literal(&identifier(start.publication));
    format!(
        "START_REPLICATION SLOT {} LOGICAL 0/0 \
         (proto_version '1', publication_names {publications}, binary '{binary}', messages 'true')",
        identifier(start.slot)
    )
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The replication grammar knows no `E''`, and a backslash stands for itself in it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_so_that_they_stay_names() {
        let start = Start { slot: "a\"b", publication: "o'r\"d", encoding: Encoding::Binary };
        assert_eq!(
            start_replication(start),
            "START_REPLICATION SLOT \"a\"\"b\" LOGICAL 0/0 \
             (proto_version '1', publication_names '\"o''r\"\"d\"', binary 'true', messages 'true')"
        );
    }

    #[test]
    fn a_session_can_be_made_and_used_by_any_thread() {
        fn assert_send(_: impl Send) {}
        #[allow(unreachable_code)]
        fn check(connection: &'static Connection, session: Session, mut stream: Stream) {
            assert_send(Session::connect(connection, Duration::ZERO));
            assert_send(session.start(Start { slot: "", publication: "", encoding: Encoding::Text }));
            assert_send(stream.turn(Reading::On));
            assert_send(stream.leave(Duration::ZERO));
        }
        let _: fn(_, _, _) = check;
    }
}
