//! The PostgreSQL side: the WAL stream (`wire` → `pgoutput` → `outbox`) and plain SQL (`catalog`).

pub mod catalog;
pub mod dial;
pub mod outbox;
pub mod pgoutput;
pub mod wire;

use std::fmt;

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
