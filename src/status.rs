//! What the relay says about itself: one snapshot, read by health, metrics and `outboxd status`.
//!
//! A snapshot enters, with the time it is read at; readiness, ages and lag leave. No clock, no I/O.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::lsn::Lsn;

/// A snapshot of the relay. Ages are computed by whoever reads it, so that they grow while the relay is stuck.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What the relay is doing.
    pub state: State,
    /// Since when.
    #[serde(with = "rfc3339")]
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
    #[serde(with = "rfc3339::option")]
    pub oldest_unsettled: Option<SystemTime>,
    /// Records offered and not yet answered.
    pub inflight_events: u64,
    /// Their bytes, as accounted against `limits.memory`.
    pub inflight_bytes: u64,
    /// Published rows, and rejected ones, whose write-back is not committed.
    #[serde(default)]
    pub unmarked_events: u64,
    /// What the database last said about the slot.
    pub slot_facts: Option<SlotFacts>,
    /// Events acknowledged since the process started.
    pub published: u64,
    /// How many dead letters the store has, once it was asked.
    #[serde(default)]
    pub dead_letters: Option<DeadLetters>,
}

impl Status {
    /// True when events can flow, or when this one could take over: what `/readyz` and `outboxd_ready` say.
    pub fn ready(&self) -> bool {
        match self.state {
            State::Streaming => self.reasons.is_empty(),
            State::Standby => true,
            State::Connecting | State::Fencing | State::Waiting | State::Recovering | State::Stopping => false,
        }
    }

    /// Why events do not flow through this process: never empty when it is not ready.
    pub fn obstacles(&self) -> Vec<Reason> {
        if self.reasons.is_empty() && !self.ready() { vec![self.state.reason()] } else { self.reasons.clone() }
    }

    /// How long the state has lasted.
    pub fn state_age(&self, now: SystemTime) -> Duration {
        age(self.since, now)
    }

    /// The age of the oldest unsettled event, 0 when there is none.
    pub fn lag(&self, now: SystemTime) -> Duration {
        self.oldest_unsettled.map_or(Duration::ZERO, |commit| age(commit, now))
    }

    /// WAL between the confirmed position and the server's end of WAL; `None` until both are known, and where another
    /// process moves the former.
    pub fn lag_bytes(&self) -> Option<u64> {
        let known = self.role == Role::Leader && self.confirmed != Lsn::ZERO && self.server != Lsn::ZERO;
        known.then(|| self.server.bytes_since(self.confirmed))
    }

    /// The snapshot as it is at `now`.
    pub fn report(&self, now: SystemTime) -> Report {
        Report {
            ready: self.ready(),
            state_seconds: self.state_age(now).as_secs_f64(),
            lag_seconds: self.lag(now).as_secs_f64(),
            lag_bytes: self.lag_bytes(),
            status: Status { reasons: self.obstacles(), ..self.clone() },
        }
    }
}

/// A status with its ages: what `/api/v1/status` answers and `outboxd status` reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `Status::ready`
    pub ready: bool,
    /// `Status::state_age`
    pub state_seconds: f64,
    /// `Status::lag`
    pub lag_seconds: f64,
    /// `Status::lag_bytes`
    pub lag_bytes: Option<u64>,
    /// The snapshot, its reasons completed by `Status::obstacles`.
    #[serde(flatten)]
    pub status: Status,
}

/// What the relay is doing; also the label of `outboxd_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No session with PostgreSQL yet, or none any more.
    Connecting,
    /// Another process holds the slot.
    Standby,
    /// The slot is ours, but not yet our name on it: after a holder that left without a mark, one sender timeout passes.
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

    /// What keeps events from flowing in this state, when the relay has nothing more exact to say.
    fn reason(self) -> Reason {
        let message = match self {
            State::Connecting => "no session with PostgreSQL yet",
            State::Standby => "another process holds the slot",
            State::Fencing => {
                "our name is not on the slot yet; a last holder that left without a mark is given one sender timeout"
            }
            State::Streaming => "events flow",
            State::Waiting => "events wait for Kafka",
            State::Recovering => "a delivery failed: open answers land before a new producer starts",
            State::Stopping => "the relay is on its way out",
        };
        Reason { code: self.name().into(), message: message.into(), hint: None }
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
    #[serde(with = "rfc3339")]
    pub at: SystemTime,
    /// End of WAL minus `restart_lsn`: what the slot keeps on disk.
    pub retained_bytes: u64,
    /// `safe_wal_size`; `None` when unlimited.
    pub safe_bytes: Option<i64>,
    /// `wal_status`: reserved, extended, unreserved, lost.
    pub wal_status: String,
}

/// How many dead letters there are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DeadLetters {
    pub pending: u64,
    pub retrying: u64,
    pub delivered: u64,
    pub failed: u64,
    pub discarded: u64,
    /// When the oldest was parked that is neither delivered nor discarded.
    #[serde(with = "rfc3339::option")]
    pub oldest: Option<SystemTime>,
}

impl DeadLetters {
    /// Each state's name and how many are in it.
    pub fn by_state(&self) -> [(&'static str, u64); 5] {
        let DeadLetters { pending, retrying, delivered, failed, discarded, .. } = *self;
        [
            ("pending", pending),
            ("retrying", retrying),
            ("delivered", delivered),
            ("failed", failed),
            ("discarded", discarded),
        ]
    }
}

/// Clocks of two machines differ: what lies ahead of `now` has no age.
fn age(then: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}

/// Times as people and other programs read them: `2026-11-16T04:30:00.123Z`.
mod rfc3339 {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_millis(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        humantime::parse_rfc3339(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    pub mod option {
        use super::*;

        pub fn serialize<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
            match time {
                Some(time) => super::serialize(time, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| humantime::parse_rfc3339(&text).map_err(D::Error::custom)).transpose()
        }
    }
}

#[cfg(test)]
impl Status {
    /// A healthy relay with two events in flight, the older committed at the epoch.
    pub(crate) fn example() -> Status {
        let at = SystemTime::UNIX_EPOCH;
        Status {
            state: State::Streaming,
            since: at,
            role: Role::Leader,
            reasons: vec![],
            slot: "orders".into(),
            confirmed: Lsn(1000),
            received: Lsn(2000),
            server: Lsn(3000),
            oldest_unsettled: Some(at),
            inflight_events: 2,
            inflight_bytes: 900,
            unmarked_events: 0,
            slot_facts: Some(SlotFacts {
                at,
                retained_bytes: 5000,
                safe_bytes: Some(7000),
                wal_status: "reserved".into(),
            }),
            published: 7,
            dead_letters: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: SystemTime = SystemTime::UNIX_EPOCH;

    fn status(state: State, reasons: Vec<Reason>) -> Status {
        Status { state, reasons, oldest_unsettled: Some(START + Duration::from_millis(1500)), ..Status::example() }
    }

    fn reason(code: &str) -> Reason {
        Reason { code: code.into(), message: "a sentence".into(), hint: Some("a step".into()) }
    }

    #[test]
    fn only_a_clear_stream_and_a_standby_are_ready_and_all_others_say_why() {
        for state in State::ALL {
            let (silent, outspoken) = (status(state, vec![]), status(state, vec![reason("topic_missing")]));
            assert_eq!(silent.ready(), matches!(state, State::Streaming | State::Standby), "{state:?}");
            assert_eq!(outspoken.ready(), state == State::Standby, "{state:?}");
            assert_eq!(outspoken.obstacles(), [reason("topic_missing")]);
            if silent.ready() {
                assert_eq!(silent.obstacles(), []);
            } else {
                assert_eq!(silent.obstacles()[0].code, state.name());
            }
        }
    }

    #[test]
    fn ages_grow_with_the_clock_and_never_below_zero() {
        let status = status(State::Streaming, vec![]);
        assert_eq!(status.lag(START), Duration::ZERO);
        assert_eq!(status.lag(START + Duration::from_secs(60)), Duration::from_millis(58_500));
        assert_eq!(status.state_age(START + Duration::from_secs(60)), Duration::from_secs(60));
        assert_eq!(Status { oldest_unsettled: None, ..status }.lag(START + Duration::from_secs(60)), Duration::ZERO);
    }

    #[test]
    fn lag_in_bytes_is_unknown_until_both_ends_are_known() {
        let status = status(State::Streaming, vec![]);
        assert_eq!(status.lag_bytes(), Some(2000));
        assert_eq!(Status { confirmed: Lsn::ZERO, ..status.clone() }.lag_bytes(), None);
        assert_eq!(Status { server: Lsn::ZERO, ..status.clone() }.lag_bytes(), None);
        assert_eq!(Status { server: Lsn(500), ..status }.lag_bytes(), Some(0));
    }

    #[test]
    fn a_report_survives_json_and_shows_times_as_people_read_them() {
        let report = status(State::Waiting, vec![]).report(START + Duration::from_secs(2));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["oldest_unsettled"], "1970-01-01T00:00:01.500Z");
        assert_eq!(json["lag_seconds"], 0.5);
        assert_eq!(json["confirmed"], "0/3E8");
        assert_eq!(json["reasons"][0]["code"], "waiting");
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
    }
}
