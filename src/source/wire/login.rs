//! The startup message and the authentication, up to the server's `ReadyForQuery`.
//!
//! `channel_binding` holds as in libpq: `require` accepts SCRAM-SHA-256-PLUS and nothing weaker. The server's own proof
//! at the end of SCRAM is verified before anything else it says is believed.

use std::time::Duration;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::frontend;

use super::line::{Line, unexpected, violated};
use super::packet::{self, Authentication};
use super::refusal::{self, During};
use crate::config::{ChannelBinding, Connection};
use crate::error::{Error, Result};

/// How we proved who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// The server asked for nothing: trust, peer or a client certificate.
    Trust,
    /// The password as it is.
    Cleartext,
    /// The password's MD5 hash.
    Md5,
    /// SCRAM-SHA-256.
    Scram,
    /// SCRAM-SHA-256-PLUS: bound to the TLS connection, so nobody can stand in between.
    ScramPlus,
}

/// Logs in for replication from the configured database; gives the kind of login and the walsender's process id.
pub(super) async fn log_in(
    line: &mut Line,
    connection: &Connection,
    sender_timeout: Duration,
    server_end_point: Option<Vec<u8>>,
) -> Result<(Login, i32)> {
    let sender_timeout_ms = sender_timeout.as_millis().to_string();
    let parameters = [
        ("user", connection.user.as_str()),
        ("database", connection.dbname.as_str()),
        ("application_name", connection.application_name.as_str()),
        ("replication", "database"),
        ("wal_sender_timeout", sender_timeout_ms.as_str()),
        // Values in text form must not depend on how the role or the database is set up.
        ("client_encoding", "UTF8"),
        ("datestyle", "ISO"),
        ("intervalstyle", "postgres"),
        ("extra_float_digits", "3"),
        ("timezone", "UTC"),
        ("bytea_output", "hex"),
        ("search_path", ""),
        // A missing publication is only a warning since PostgreSQL 18: it must reach us.
        ("client_min_messages", "warning"),
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        ("idle_session_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
    ];
    line.send(|out| frontend::startup_message(parameters, out)).await?;
    let login = authenticate(line, connection, server_end_point).await?;
    let backend_pid = until_ready(line, connection).await?;
    Ok((login, backend_pid))
}

async fn authenticate(line: &mut Line, to: &Connection, server_end_point: Option<Vec<u8>>) -> Result<Login> {
    let mut login = Login::Trust;
    loop {
        match request(line, to).await? {
            Authentication::Done => break,
            Authentication::Cleartext => {
                login = Login::Cleartext;
                refuse_unbound(line, to, login)?;
                let password = password(line, to)?;
                line.send(|out| frontend::password_message(password, out)).await?;
            }
            Authentication::Md5(salt) => {
                login = Login::Md5;
                refuse_unbound(line, to, login)?;
                let hash = md5_hash(to.user.as_bytes(), password(line, to)?, salt);
                line.send(|out| frontend::password_message(hash.as_bytes(), out)).await?;
            }
            Authentication::Sasl(offered) => {
                login = scram(line, to, &offered, server_end_point.clone()).await?;
            }
            Authentication::SaslContinue(_) | Authentication::SaslFinal(_) => return Err(unexpected(&line.at(), b'R')),
            Authentication::Unsupported(method) => {
                return Err(Error::definite(format!("{}: the server asks for {method}", line.at()))
                    .hint("pg_hba.conf must ask for scram-sha-256, md5, password, cert, peer or trust"));
            }
        }
    }
    refuse_unbound(line, to, login)?;
    Ok(login)
}

/// The whole SCRAM exchange; returns once the server has proved that it knows the password too.
async fn scram(
    line: &mut Line,
    to: &Connection,
    offered: &[String],
    server_end_point: Option<Vec<u8>>,
) -> Result<Login> {
    let offers = |mechanism| offered.iter().any(|name| name == mechanism);
    let (login, mechanism, binding) = match (server_end_point, to.channel_binding) {
        (Some(hash), ChannelBinding::Prefer | ChannelBinding::Require) if offers(SCRAM_SHA_256_PLUS) => {
            (Login::ScramPlus, SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(hash))
        }
        // We could have bound: a server that could too now learns that somebody took its offer away.
        (Some(_), ChannelBinding::Prefer | ChannelBinding::Require) => {
            (Login::Scram, SCRAM_SHA_256, sasl::ChannelBinding::unrequested())
        }
        (Some(_), ChannelBinding::Disable) | (None, _) => {
            (Login::Scram, SCRAM_SHA_256, sasl::ChannelBinding::unsupported())
        }
    };
    refuse_unbound(line, to, login)?;
    if !offers(mechanism) {
        return Err(Error::definite(format!("{}: the server offers {} only", line.at(), offered.join(", ")))
            .hint("outboxd speaks SCRAM-SHA-256 and SCRAM-SHA-256-PLUS"));
    }
    let mut scram = ScramSha256::new(password(line, to)?, binding);
    line.send(|out| frontend::sasl_initial_response(mechanism, scram.message(), out)).await?;
    let Authentication::SaslContinue(challenge) = request(line, to).await? else {
        return Err(unexpected(&line.at(), b'R'));
    };
    scram.update(&challenge).map_err(|error| violated(&line.at(), error))?;
    line.send(|out| frontend::sasl_response(scram.message(), out)).await?;
    let Authentication::SaslFinal(proof) = request(line, to).await? else {
        return Err(unexpected(&line.at(), b'R'));
    };
    scram.finish(&proof).map_err(|error| {
        Error::definite(format!("{}: the server does not know the password it asked for", line.at()))
            .because(error)
            .hint("somebody may stand between this machine and PostgreSQL; sslmode=verify-full would tell")
    })?;
    Ok(login)
}

/// The server's next `R` packet.
async fn request(line: &mut Line, to: &Connection) -> Result<Authentication> {
    let at = line.at();
    let packet = line.packet().await?;
    let request = match packet.tag {
        b'R' => packet::authentication(packet.body).map_err(|error| violated(&at, error))?,
        b'E' => {
            let report = packet::report(packet.body).map_err(|error| violated(&at, error))?;
            return Err(refusal::error(&at, report, During::Login(to)));
        }
        tag => return Err(unexpected(&at, tag)),
    };
    line.consume();
    Ok(request)
}

/// What follows the authentication: settings, the backend's key, and that it is ready.
async fn until_ready(line: &mut Line, to: &Connection) -> Result<i32> {
    let at = line.at();
    let mut backend_pid = 0;
    loop {
        let packet = line.packet().await?;
        match packet.tag {
            b'K' => backend_pid = packet::backend_pid(packet.body).map_err(|error| violated(&at, error))?,
            b'S' | b'N' => {}
            b'Z' => {
                line.consume();
                return Ok(backend_pid);
            }
            b'E' => {
                let report = packet::report(packet.body).map_err(|error| violated(&at, error))?;
                return Err(refusal::error(&at, report, During::Login(to)));
            }
            tag => return Err(unexpected(&at, tag)),
        }
        line.consume();
    }
}

/// `channel_binding=require` and a login that is not bound.
fn refuse_unbound(line: &Line, to: &Connection, login: Login) -> Result<()> {
    match (to.channel_binding, login) {
        (ChannelBinding::Disable | ChannelBinding::Prefer, _) | (ChannelBinding::Require, Login::ScramPlus) => Ok(()),
        (ChannelBinding::Require, Login::Trust | Login::Cleartext | Login::Md5 | Login::Scram) => {
            let why = match line.is_encrypted() {
                true => "the server did not ask for SCRAM-SHA-256-PLUS",
                false => "the connection is not encrypted",
            };
            Err(Error::definite(format!("{}: channel_binding=require, but {why}", line.at()))
                .hint("use sslmode=require or stronger, and scram-sha-256 in pg_hba.conf"))
        }
    }
}

fn password<'a>(line: &Line, to: &'a Connection) -> Result<&'a [u8]> {
    match &to.password {
        Some(password) => Ok(password.reveal().as_bytes()),
        None => Err(Error::definite(format!("{}: the server asks for a password and none is configured", line.at()))
            .hint("set postgres.password_file, postgres.password or OUTBOXD_POSTGRES__PASSWORD")),
    }
}
