//! What `gather` found out and the verdicts are made of: plain values, `None` where something hides the answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sink::inspect;
use crate::source::System;
use crate::source::catalog::survey::Survey;
use crate::source::wire::Login;

/// Everything that was found out.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Why there is no SQL session; `None` when there is one.
    pub stopped: Option<Stop>,
    /// What the database said; `None` when it was not reached.
    pub survey: Option<Survey>,
    /// How far the replication session came.
    pub replication: Replication,
    /// What the sampled rows would become, by topic.
    pub topics: BTreeMap<String, Traffic>,
    /// What the cluster said.
    pub kafka: inspect::Facts,
    /// What it said of the topic of dead letters; `None` when they are kept elsewhere, or it was not reached.
    pub letter_topic: Option<inspect::Topic>,
}

/// Where and why a connection stopped.
#[derive(Debug, Clone)]
pub struct Stop {
    /// How far it came.
    pub step: Step,
    /// The server's or the system's words.
    pub message: String,
    /// The server's SQLSTATE, when a server spoke.
    pub sqlstate: Option<String>,
    /// The next step, when whoever failed knows it.
    pub hint: Option<String>,
}

/// The steps to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Dns,
    Tcp,
    Tls,
    Login,
    /// Logged in, and lost while asking.
    Survey,
}

impl Step {
    /// The step's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Step::Dns => "DNS",
            Step::Tcp => "TCP",
            Step::Tls => "TLS",
            Step::Login => "login",
            Step::Survey => "reading the catalog",
        }
    }
}

/// How far the replication session came.
#[derive(Debug, Clone, Default)]
pub enum Replication {
    /// `IDENTIFY_SYSTEM` answered.
    Identified {
        /// The cluster behind the walsender.
        system: System,
        /// How we proved who we are.
        login: Login,
        /// `wal_sender_timeout` as it is in that session, where it could be asked.
        sender_timeout: Option<Duration>,
    },
    /// Stopped on the way.
    Stopped(Stop),
    /// Nobody asked.
    #[default]
    Unasked,
}

/// What the sampled rows bring to one topic.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traffic {
    /// How many sampled rows go there; 0 for a topic that only the configuration names.
    pub rows: usize,
    /// The largest payload among them, in bytes.
    pub largest: i64,
    /// The age of the oldest, in seconds.
    pub oldest: Option<f64>,
    /// The age of the newest, in seconds; negative when it lies in the future.
    pub newest: Option<f64>,
}
