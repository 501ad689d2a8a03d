//! The error type says what happens next: a `Transient` failure is tried again, a `Definite` one needs a person.
//!
//! Messages are lowercase, without a full stop, and name the object. The cause stays in the chain. A hint is the
//! next step for whoever reads it.

use std::fmt;

/// A failure of the world (try again) or of the set-up (a person must act).
#[derive(Debug)]
pub enum Error {
    /// Network, server restart, failover: back off and try again.
    Transient(Failure),
    /// Nothing changes by trying again: stop and say what to do.
    Definite(Failure),
}

/// What failed, why, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
    code: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything that can fail in either of the two ways.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure worth trying again.
    pub fn transient(what: impl Into<String>) -> Error {
        Error::Transient(Failure::new(what.into()))
    }

    /// A failure that a person must mend.
    pub fn definite(what: impl Into<String>) -> Error {
        Error::Definite(Failure::new(what.into()))
    }

    /// Adds the next step for a person.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.failure_mut().hint = Some(hint.into());
        self
    }

    /// Keeps the cause in the chain.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.failure_mut().source = Some(cause.into());
        self
    }

    /// Keeps the server's SQLSTATE, for those who decide by it.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Error {
        self.failure_mut().code = Some(code.into());
        self
    }

    /// The next step, if a person must act.
    pub fn hint_text(&self) -> Option<&str> {
        self.failure().hint.as_deref()
    }

    /// The server's SQLSTATE, when a server reported the failure.
    pub fn sqlstate(&self) -> Option<&str> {
        self.failure().code.as_deref()
    }

    /// True when trying again cannot help.
    pub fn is_definite(&self) -> bool {
        matches!(self, Error::Definite(_))
    }

    /// The message with its causes, in one line: `what: cause: cause`.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let next = error.to_string();
            if !text.ends_with(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        text
    }

    fn failure(&self) -> &Failure {
        match self {
            Error::Transient(failure) | Error::Definite(failure) => failure,
        }
    }

    fn failure_mut(&mut self) -> &mut Failure {
        match self {
            Error::Transient(failure) | Error::Definite(failure) => failure,
        }
    }
}

impl Failure {
    fn new(what: String) -> Failure {
        Failure { what, hint: None, code: None, source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure().what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.failure().source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_what_why_and_what_to_do() {
        let error = Error::definite("replication slot \"orders\" was invalidated")
            .because(std::io::Error::other("wal_status = lost"))
            .hint("create it again")
            .code("55000");
        assert_eq!(error.chain(), "replication slot \"orders\" was invalidated: wal_status = lost");
        assert_eq!(error.hint_text(), Some("create it again"));
        assert_eq!(error.sqlstate(), Some("55000"));
        assert!(error.is_definite());
    }
}
