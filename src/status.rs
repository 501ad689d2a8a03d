//! What the relay says about itself: one snapshot, read by health, metrics and `outboxd status`.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::lsn::Lsn;

/// A snapshot of the relay. Ages are computed by whoever reads it, so that they grow while the relay is stuck.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What the relay is doing.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// Publisher, or waiting behind another one.
    pub role: Role,
    /// Why events cannot flow now; empty when they can.
    pub reasons: Vec<Reason>,
    /// The slot's name.
    pub slot: String,
    /// The last mark with nothing unsettled before it: what the server was told.
    pub confirmed: Lsn,
    /// The last position received from the server.
    pub received: Lsn,
    /// The server's end of WAL, from the stream or from SQL, whichever is ahead.
    pub server: Lsn,
    /// The commit time of the oldest unsettled event.
    pub oldest_unsettled: Option<SystemTime>,
    /// Records offered and not yet answered.
    pub inflight_events: u64,
    /// Their bytes, as accounted against `limits.memory`.
    pub inflight_bytes: u64,
    /// What the database last said about the slot.
    pub slot_facts: Option<SlotFacts>,
    /// Events acknowledged since the process started.
    pub published: u64,
}

/// What the relay is doing; also the label of `outboxd_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No session with PostgreSQL yet, or none any more.
    Connecting,
    /// Another process holds the slot.
    Standby,
    /// The slot is ours, the last holder left without a mark: one sender timeout passes before the first offer.
    Fencing,
    /// Events flow, or would.
    Streaming,
    /// Events wait for something outside: a topic, a right, a password, the broker.
    Waiting,
    /// A delivery failed: in-flight answers land, then a new producer starts.
    Recovering,
    /// On the way out.
    Stopping,
}

impl State {
    /// All states, for the metric's label.
    pub const ALL: [State; 7] = [
        State::Connecting,
        State::Standby,
        State::Fencing,
        State::Streaming,
        State::Waiting,
        State::Recovering,
        State::Stopping,
    ];

    /// The state's name, as metrics, logs and JSON show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Connecting => "connecting",
            State::Standby => "standby",
            State::Fencing => "fencing",
            State::Streaming => "streaming",
            State::Waiting => "waiting",
            State::Recovering => "recovering",
            State::Stopping => "stopping",
        }
    }
}

/// Publisher, or waiting behind another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Role {
    Leader,
    Standby,
}

/// One reason why events cannot flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A stable word for machines: `postgres_unreachable`, `topic_missing`, …
    pub code: String,
    /// A sentence for people, naming the object.
    pub message: String,
    /// The next step, when a person must act.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

/// What `pg_replication_slots` says about our slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotFacts {
    /// When the database was asked.
    pub at: SystemTime,
    /// End of WAL minus `restart_lsn`: what the slot keeps on disk.
    pub retained_bytes: u64,
    /// `safe_wal_size`; `None` when unlimited.
    pub safe_bytes: Option<i64>,
    /// `wal_status`: reserved, extended, unreserved, lost.
    pub wal_status: String,
}
