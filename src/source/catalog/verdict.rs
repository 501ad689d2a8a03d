//! What a failed statement means: try again, or ask a person. One table from SQLSTATE to verdict and hint.

use std::io;

use tokio_postgres::error::DbError;

use crate::error::Error;

use Verdict::{Again, Stop};

/// How a session ended, or what a statement was answered.
#[derive(Debug, Clone)]
pub(super) struct Said {
    verdict: Verdict,
    code: Option<String>,
    message: String,
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Again,
    Stop,
}

/// SQLSTATE or its beginning → verdict and hint; the first that fits. What is not listed needs a person.
const VERDICTS: [(&str, Verdict, &str); 18] = [
    ("08P01", Stop, "if the address is that of a connection pooler, use the server's own address"),
    ("08", Again, ""),
    ("25006", Again, ""), // read-only: a standby, or a primary on its way down
    ("40", Again, ""),
    ("53", Again, ""),
    ("55006", Again, ""), // object in use
    ("55P03", Again, ""), // lock not available
    ("57P04", Stop, "the database was dropped: correct postgres.url"),
    ("57", Again, ""),
    ("58", Again, ""),
    ("XX", Again, ""), // the server stumbled, as over a table that is being dropped
    ("28P01", Stop, "set it in psql with \\password, and put the same into postgres.password_file"),
    ("28000", Stop, "the role must exist with LOGIN, and pg_hba.conf needs a line for this role, database and address"),
    ("3D000", Stop, "create the database, or correct postgres.url"),
    ("42501", Stop, "run `outboxd init` as a superuser or the database's owner: it grants what the relay needs"),
    ("42P01", Stop, "run `outboxd init`"),
    ("3F000", Stop, "run `outboxd init`"),
    ("55000", Stop, "if this is about wal_level: ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL"),
];

impl Said {
    /// Reads the driver's error.
    pub(super) fn of(error: &tokio_postgres::Error) -> Said {
        match error.as_db_error() {
            Some(error) => Said::by_server(error),
            None => Said::by_driver(error),
        }
    }

    /// As an error of the house; `what` is what was being done.
    pub(super) fn error(self, what: impl Into<String>) -> Error {
        let mut error = match self.verdict {
            Again => Error::transient(what),
            Stop => Error::definite(what),
        };
        error = error.because(self.message);
        if let Some(code) = self.code {
            error = error.code(code);
        }
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    fn by_server(error: &DbError) -> Said {
        let code = error.code().code();
        let (verdict, hint) = VERDICTS
            .iter()
            .find(|(prefix, _, _)| code.starts_with(prefix))
            .map_or((Stop, ""), |(_, verdict, hint)| (*verdict, *hint));
        let hint = error.hint().unwrap_or(hint);
        let mut message = error.message().to_owned();
        if let Some(detail) = error.detail() {
            message = format!("{message} ({detail})");
        }
        Said {
            verdict,
            code: Some(code.to_owned()),
            message,
            hint: Some(hint).filter(|hint| !hint.is_empty()).map(str::to_owned),
        }
    }

    /// Without a word of the server: a cut connection is worth another try; what the driver refuses (a password that
    /// is missing, text that cannot be sent, an answer it cannot read) is not.
    fn by_driver(error: &tokio_postgres::Error) -> Said {
        let cause = std::error::Error::source(error);
        let verdict = match cause.map(|cause| cause.downcast_ref::<io::Error>()) {
            None => Again,
            Some(Some(error)) if error.kind() != io::ErrorKind::InvalidInput => Again,
            Some(_) => Stop,
        };
        let message = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
        let hint = message.ends_with("password missing").then(|| {
            "the server asks for a password: set postgres.password_file, or OUTBOXD_POSTGRES__PASSWORD".to_owned()
        });
        Said { verdict, code: None, message, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fitting_line_decides_so_exceptions_stand_before_their_class() {
        for (at, (prefix, _, _)) in VERDICTS.iter().enumerate() {
            let hidden = VERDICTS[..at].iter().find(|(earlier, _, _)| prefix.starts_with(earlier));
            assert!(hidden.is_none(), "{prefix} stands behind {hidden:?} and is never reached");
        }
    }
}
