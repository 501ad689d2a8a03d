//! The PostgreSQL side: the WAL stream (`wire` → `pgoutput` → `outbox`) and plain SQL (`catalog`).

pub mod catalog;
pub mod dial;
pub mod outbox;
pub mod pgoutput;
pub mod wire;

use std::fmt;
use std::time::{Duration, SystemTime};

/// How a session asks pgoutput to send column values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Types' binary output: cheaper for the server and for us.
    Binary,
    /// Types' text output: for columns whose binary form we do not render exactly.
    Text,
}

/// `IDENTIFY_SYSTEM`'s answer: which cluster this is, and which of its histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// The cluster's identifier.
    pub id: u64,
    /// Its timeline; a promotion starts a new one, and LSNs may be used again there.
    pub timeline: u32,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system {} timeline {}", self.id, self.timeline)
    }
}

/// A time as PostgreSQL counts it: microseconds since 2000-01-01 UTC.
pub fn pg_micros(time: SystemTime) -> i64 {
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    match time.duration_since(epoch) {
        Ok(after) => micros(after),
        Err(before) => -micros(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_times_are_counted_as_the_wal_counts_them() {
        let at = |secs: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        assert_eq!(pg_micros(at(946_684_801)), 1_000_000);
        assert_eq!(pg_micros(at(946_684_799)), -1_000_000);
    }
}
