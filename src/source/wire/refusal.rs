//! What a server's error means for us: one table from SQLSTATE to transient or definite, with the next step.
//!
//! Codes decide, and where one code stands for two faults, a word that no translation changes (`wal_level`,
//! `pg_hba.conf`): the server may speak any language.

use super::packet::Report;
use crate::config::Connection;
use crate::error::Error;

/// What the server was doing for us when it refused.
#[derive(Debug, Clone, Copy)]
pub(super) enum During<'a> {
    /// The startup message and the authentication.
    Login(&'a Connection),
    /// A question of our own (`IDENTIFY_SYSTEM` and the like).
    Question,
    /// `START_REPLICATION`, for this slot.
    Start {
        /// The slot's name.
        slot: &'a str,
    },
    /// Sending changes.
    Stream {
        /// The slot's name.
        slot: &'a str,
        /// The publication's name.
        publication: &'a str,
    },
}

enum Class {
    Transient,
    Definite,
}

/// The error for a server's report; `at` names the host.
pub(super) fn error(at: &str, report: Report<'_>, during: During<'_>) -> Error {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (code, message) = (text(report.code), text(report.message));
    let (class, hint) = verdict(&code, &message, during);
    let what = format!("{at}: {message}");
    let mut error = match class {
        Class::Transient => Error::transient(what),
        Class::Definite => Error::definite(what),
    };
    if !report.detail.is_empty() {
        error = error.because(text(report.detail));
    }
    if let Some(hint) = hint.or_else(|| (!report.hint.is_empty()).then(|| text(report.hint))) {
        error = error.hint(hint);
    }
    error.code(code)
}

fn verdict(code: &str, message: &str, during: During<'_>) -> (Class, Option<String>) {
    let definite = |hint: String| (Class::Definite, Some(hint));
    match (during, code) {
        (During::Login(_), "28P01") => {
            definite("correct the password in postgres.url, postgres.password or postgres.password_file".into())
        }
        (During::Login(to), "28000") if message.contains("pg_hba.conf") => definite(format!(
            "add a line to pg_hba.conf for database \"{}\" and user \"{}\", then SELECT pg_reload_conf(); the word \
             replication there matches physical connections only",
            to.dbname, to.user
        )),
        (During::Login(to), "3D000") => {
            definite(format!("correct the database name in postgres.url, or CREATE DATABASE \"{}\"", to.dbname))
        }
        (During::Login(to), "42501") if message.contains(&format!("\"{}\"", to.dbname)) => {
            definite(format!("GRANT CONNECT ON DATABASE \"{}\" TO \"{}\"", to.dbname, to.user))
        }
        (During::Login(to), "42501") => definite(format!(
            "ALTER ROLE \"{user}\" REPLICATION (on Amazon RDS: GRANT rds_replication TO \"{user}\")",
            user = to.user
        )),
        // pgbouncer's refusal of `replication=database`, or of a setting that comes with it.
        (During::Login(_), "08P01") => definite(
            "this looks like a connection pooler, which does not pass replication on: use PostgreSQL's direct address"
                .into(),
        ),
        (During::Start { .. }, "42704") => definite("outboxd init creates the slot".into()),
        (During::Start { .. } | During::Stream { .. }, "55000") if message.contains("wal_level") => {
            definite("ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL".into())
        }
        (During::Start { slot }, "55000") | (During::Stream { slot, .. }, "55000" | "58P01") => definite(format!(
            "the WAL that slot \"{slot}\" needs is gone, so events may be missing: after \
             SELECT pg_drop_replication_slot('{slot}'), outboxd init creates it anew"
        )),
        (During::Stream { publication, .. }, "42704") => {
            definite(format!("outboxd init creates publication \"{publication}\""))
        }
        (During::Login(_) | During::Question | During::Start { .. } | During::Stream { .. }, _) => (class(code), None),
    }
}

/// Without a row of its own: is it the world's fault (connection, resources, operator, system, internal)?
fn class(code: &str) -> Class {
    match code {
        // The slot is active for another process: the caller waits for it.
        "55006" => Class::Transient,
        _ if ["08", "40", "53", "57", "58", "XX"].iter().any(|class| code.starts_with(class)) => Class::Transient,
        _ => Class::Definite,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{ChannelBinding, SessionAttrs, SslMode};

    fn connection() -> Connection {
        Connection {
            hosts: Vec::new(),
            user: "relay".into(),
            password: None,
            dbname: "shop".into(),
            sslmode: SslMode::Prefer,
            sslrootcert: None,
            client_cert: None,
            channel_binding: ChannelBinding::Prefer,
            session_attrs: SessionAttrs::ReadWrite,
            application_name: "outboxd".into(),
            connect_timeout: Duration::from_secs(10),
        }
    }

    #[test]
    fn each_fault_of_the_set_up_has_its_next_step() {
        let connection = connection();
        let login = During::Login(&connection);
        let start = During::Start { slot: "orders" };
        let stream = During::Stream { slot: "orders", publication: "events" };
        for (during, code, message, hint) in [
            (login, "28P01", "", "postgres.password_file"),
            (login, "28000", "kein pg_hba.conf-Eintrag", "database \"shop\" and user \"relay\""),
            (login, "3D000", "", "CREATE DATABASE \"shop\""),
            (
                login,
                "42501",
                "must be superuser or replication role to start walsender",
                "ALTER ROLE \"relay\" REPLICATION",
            ),
            (login, "42501", "permission denied for database \"shop\"", "GRANT CONNECT"),
            (login, "08P01", "unsupported startup parameter: replication", "direct address"),
            (start, "42704", "replication slot \"orders\" does not exist", "outboxd init"),
            (start, "55000", "logical decoding requires wal_level >= logical", "ALTER SYSTEM SET wal_level"),
            (start, "55000", "can no longer get changes from replication slot", "pg_drop_replication_slot('orders')"),
            (stream, "58P01", "requested WAL segment has already been removed", "pg_drop_replication_slot('orders')"),
            (stream, "42704", "publication \"events\" does not exist", "publication \"events\""),
        ] {
            let report = Report { code: code.as_bytes(), message: message.as_bytes(), ..Report::default() };
            let error = error("db1:5432", report, during);
            assert!(error.is_definite(), "{code} {message}");
            assert_eq!(error.sqlstate(), Some(code));
            assert!(error.hint_text().unwrap_or_default().contains(hint), "{code}: {:?}", error.hint_text());
        }
    }

    #[test]
    fn the_world_s_faults_are_transient() {
        let connection = connection();
        for code in ["57P03", "57P01", "53300", "08006", "XX000", "55006", "40001"] {
            for during in [During::Login(&connection), During::Question, During::Start { slot: "orders" }] {
                let report = Report { code: code.as_bytes(), message: b"no", ..Report::default() };
                assert!(!error("db1:5432", report, during).is_definite(), "{code}");
            }
        }
    }

    #[test]
    fn the_server_s_own_detail_and_hint_are_kept() {
        let report = Report { code: b"0A000", message: b"cannot", detail: b"because of that", hint: b"do this" };
        let error = error("db1:5432", report, During::Question);
        assert_eq!(error.chain(), "db1:5432: cannot: because of that");
        assert_eq!(error.hint_text(), Some("do this"));
    }
}
