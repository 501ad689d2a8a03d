//! Where records go, and everything that names `rdkafka`.

mod client;
mod describe;
pub mod inspect;
pub mod kafka;

pub use client::client_config;

use crate::ledger::Ticket;
use crate::record::Record;

/// Takes records, gives tickets back: at once when it refuses, later through a report when it has taken one.
pub trait Sink {
    /// Offers one record. Once taken, its ticket comes back in exactly one report.
    fn offer(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), Refused>;

    /// Offers the record of a dead letter, by itself, so that a refusal concerns nobody else. Once taken, its number comes back
    /// in exactly one report, unless the trial is abandoned.
    fn try_again(&mut self, record: &Record<'_>, letter: i64) -> Result<(), Untried>;
}

/// Why the record of a dead letter was not taken.
#[derive(Debug)]
pub enum Untried {
    /// The cluster is being asked what the topic takes now: in a moment it is known.
    Unknown,
    /// The topic cannot be written as things are.
    Later,
    /// It cannot be published as things are.
    Never(Problem),
}

/// Why a record was not taken. The ticket always comes back.
#[derive(Debug)]
pub enum Refused {
    /// Later: the queue is full.
    Full(Ticket),
    /// Later: the topic is not known yet, does not exist, or may not be written. The sink says which.
    Unready(Ticket),
    /// Never: this event cannot be published.
    Event(Ticket, Problem),
    /// Not by this producer: it is broken.
    Fatal(Ticket, String),
}

/// Why one event cannot be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A stable word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// What a producer must forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge {
    /// Records that were not sent to a broker yet. A gapless producer is broken by it, if it was not before.
    Queued,
    /// Those in flight too; their outcome is unknown.
    Everything,
}

/// A delivery that failed after the record was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whose failure it is.
    pub whose: Whose,
    /// The record's topic.
    pub topic: String,
    /// What the broker or the client library said.
    pub message: String,
    /// It was refused for its size.
    pub too_large: bool,
}

/// Whose failure a failed delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// Network, broker, client library: try again.
    World,
    /// A missing topic or right: somebody must act, then try again.
    SetUp,
    /// The broker will never take this event, or one of its batch.
    Event,
}
