//! Every fault there is: its name, whom it strikes, how long it lasts.

use std::fmt;
use std::time::Duration;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Fault {
    RelayKill,
    RelayTerm,
    RelayFreeze,
    /// A second relay waits; the first is told to go.
    HandOver,
    /// A second relay waits; the first is killed.
    TakeOver,
    PostgresCrash,
    PostgresImmediate,
    PostgresFast,
    PostgresSmart,
    PostgresFreeze,
    WalsenderEnded,
    SlotStolen,
    BrokerKill,
    BrokerStop,
    BrokerPause,
    ClusterKill,
    ClusterPause,
    LeaderMove,
    /// Deleted, and made again while an event waits for it.
    TopicRemade,
    /// A topic takes less than an event needs, which is parked until somebody raises the limit.
    LimitLowered,
    /// A transaction with an event in it stays open.
    TransactionHeld,
    Wire(Side, Wire),
}

/// What is done to the connections between a relay and one of its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Wire {
    Cut,
    Reset,
    /// The open connections fall silent for good, and neither end is told.
    HalfOpen,
    LostToServer,
    LostToClient,
    Stall,
    Drip,
    Latency,
    /// Cut in the middle of a frame, wherever that falls.
    CutAtByte,
}

/// Whose connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Side {
    Postgres,
    Kafka,
    /// The relays alone are cut off from one broker: the cluster sees a healthy leader, and moves nothing.
    OneBroker,
    Both,
}

impl Fault {
    /// Each kind once.
    pub fn all() -> Vec<Fault> {
        use Wire::*;
        let mut all = vec![
            Fault::RelayKill,
            Fault::RelayTerm,
            Fault::RelayFreeze,
            Fault::HandOver,
            Fault::TakeOver,
            Fault::PostgresCrash,
            Fault::PostgresImmediate,
            Fault::PostgresFast,
            Fault::PostgresSmart,
            Fault::PostgresFreeze,
            Fault::WalsenderEnded,
            Fault::SlotStolen,
            Fault::BrokerKill,
            Fault::BrokerStop,
            Fault::BrokerPause,
            Fault::ClusterKill,
            Fault::ClusterPause,
            Fault::LeaderMove,
            Fault::TopicRemade,
            Fault::LimitLowered,
            Fault::TransactionHeld,
        ];
        for side in [Side::Postgres, Side::Kafka] {
            let wires = [Cut, Reset, HalfOpen, LostToServer, LostToClient, Stall, Drip, Latency, CutAtByte];
            all.extend(wires.map(|wire| Fault::Wire(side, wire)));
        }
        let alone = [Cut, HalfOpen, LostToServer, LostToClient, Stall];
        all.extend(alone.map(|wire| Fault::Wire(Side::OneBroker, wire)));
        all.extend([Cut, Reset, HalfOpen, Stall].map(|wire| Fault::Wire(Side::Both, wire)));
        all
    }

    /// How often it is in one shuffle of the deck: five of those that an hour must have thirty of, so that seven shuffles
    /// suffice.
    pub fn weight(self) -> usize {
        match self {
            Fault::RelayKill | Fault::RelayTerm | Fault::PostgresCrash | Fault::PostgresFast => 5,
            Fault::BrokerKill | Fault::BrokerPause | Fault::Wire(Side::Both, Wire::Cut) => 5,
            Fault::Wire(Side::Postgres | Side::Kafka, Wire::HalfOpen) => 2,
            _ => 1,
        }
    }

    /// What it takes away, so that two faults which strike at once do not undo each other.
    pub fn takes(self) -> &'static [Part] {
        match self {
            Fault::RelayKill | Fault::RelayTerm | Fault::RelayFreeze => &[Part::Relay],
            Fault::PostgresCrash
            | Fault::PostgresImmediate
            | Fault::PostgresFast
            | Fault::PostgresSmart
            | Fault::PostgresFreeze
            | Fault::WalsenderEnded
            | Fault::Wire(Side::Postgres, _) => &[Part::Postgres],
            Fault::BrokerKill
            | Fault::BrokerStop
            | Fault::BrokerPause
            | Fault::ClusterKill
            | Fault::ClusterPause
            | Fault::Wire(Side::Kafka | Side::OneBroker, _) => &[Part::Kafka],
            Fault::Wire(Side::Both, _) => &[Part::Postgres, Part::Kafka],
            // These need a healthy world around them to happen at all.
            Fault::HandOver
            | Fault::TakeOver
            | Fault::SlotStolen
            | Fault::LeaderMove
            | Fault::TopicRemade
            | Fault::LimitLowered => &[Part::Relay, Part::Postgres, Part::Kafka],
            Fault::TransactionHeld => &[Part::Postgres],
        }
    }

    /// The shortest and the longest time until it is lifted. The lease of these relays is five seconds.
    pub fn lasts(self) -> (Duration, Duration) {
        let (short, long) = match self {
            Fault::RelayFreeze => (200, 7000),
            Fault::PostgresFreeze | Fault::ClusterPause => (300, 6500),
            Fault::BrokerPause => (500, 6000),
            Fault::TopicRemade | Fault::TransactionHeld => (500, 7000),
            Fault::SlotStolen | Fault::BrokerKill | Fault::BrokerStop => (500, 2000),
            Fault::RelayKill | Fault::RelayTerm | Fault::PostgresCrash | Fault::PostgresFast => (0, 1500),
            Fault::Wire(_, Wire::LostToServer | Wire::LostToClient | Wire::Stall | Wire::Drip) => (500, 7000),
            Fault::Wire(_, Wire::Latency | Wire::CutAtByte) => (500, 3000),
            // It is noticed only when the lease runs out.
            Fault::Wire(_, Wire::HalfOpen) => (0, 100),
            _ => (0, 1000),
        };
        (Duration::from_millis(short), Duration::from_millis(long))
    }

    /// What readiness must say in time, if events cannot flow for longer than that; nothing where they can.
    pub fn shows(self) -> &'static [&'static str] {
        const POSTGRES: &[&str] = &["postgres_unreachable", "postgres_silent"];
        const KAFKA: &[&str] = &["kafka_unreachable", "kafka_silent"];
        match self {
            fault if fault.ends_the_server() => POSTGRES,
            Fault::PostgresFreeze => POSTGRES,
            Fault::ClusterKill | Fault::ClusterPause => KAFKA,
            // Some events flow; if others do not for long, an operator must know all the same.
            Fault::BrokerKill | Fault::BrokerStop | Fault::BrokerPause => KAFKA,
            Fault::TopicRemade => &["topic_missing"],
            Fault::WalsenderEnded => POSTGRES,
            Fault::SlotStolen => &["postgres_unreachable", "postgres_silent", "slot_held"],
            // What the server sends still comes, until it hears nothing for too long.
            Fault::Wire(Side::Postgres, Wire::LostToServer) => &[],
            // Slow is not away.
            Fault::Wire(_, Wire::Drip | Wire::Latency) => &[],
            Fault::Wire(Side::Postgres | Side::Both, _) => POSTGRES,
            Fault::Wire(Side::Kafka | Side::OneBroker, _) => KAFKA,
            _ => &[],
        }
    }

    /// The metric that must move when readiness has to say so.
    pub fn moves(self) -> Option<Metric> {
        match self.shows().first() {
            Some(&"postgres_unreachable") => Some(Metric::SessionsOrSilence),
            Some(_) => Some(Metric::Lag),
            None => None,
        }
    }

    /// What readiness may say while it is one of two, of which one may hide what the other would show.
    pub fn may_show(self) -> impl Iterator<Item = &'static str> {
        let of_part = |part: &Part| match part {
            Part::Postgres => &["postgres_unreachable", "postgres_silent", "connecting", "fencing", "recovering"][..],
            Part::Kafka => &["kafka_unreachable", "kafka_silent", "recovering"],
            Part::Relay => &[],
        };
        self.takes().iter().flat_map(of_part).copied()
    }

    /// Within this time readiness must have said so.
    pub fn noticed(self) -> Duration {
        Duration::from_millis(match self {
            // Its connections end when they notice that the postmaster is gone.
            Fault::PostgresCrash => 3000,
            // It closes its connections.
            fault if fault.ends_the_server() => 1500,
            _ => 5000,
        })
    }

    /// True when the session with PostgreSQL surely ends by it, at once.
    pub fn ends_the_session(self) -> bool {
        self.ends_the_server()
            || self == Fault::WalsenderEnded
            || matches!(self, Fault::Wire(Side::Postgres | Side::Both, Wire::Cut | Wire::Reset))
    }

    /// True when another process has the slot afterwards.
    pub fn replaces_the_relay(self) -> bool {
        matches!(self, Fault::HandOver | Fault::TakeOver)
    }

    /// True when the relay has neither readiness nor metrics any more: there is nothing to be asked of it.
    pub fn ends_the_answers(self) -> bool {
        matches!(self, Fault::RelayKill | Fault::RelayTerm | Fault::RelayFreeze)
    }

    /// True when PostgreSQL itself ends, which closes every connection.
    pub fn ends_the_server(self) -> bool {
        use Fault::{PostgresCrash, PostgresFast, PostgresImmediate, PostgresSmart};
        matches!(self, PostgresCrash | PostgresFast | PostgresImmediate | PostgresSmart)
    }

    /// True when it is over as soon as it has struck: recovery counts from there. The others are lifted first.
    pub fn is_a_blow(self) -> bool {
        match self {
            Fault::HandOver | Fault::TakeOver | Fault::WalsenderEnded | Fault::LeaderMove => true,
            // Two brokers can do without the third.
            Fault::BrokerKill | Fault::BrokerStop | Fault::BrokerPause => true,
            Fault::Wire(_, wire) => matches!(wire, Wire::Cut | Wire::Reset | Wire::HalfOpen),
            _ => false,
        }
    }
}

/// Faults that struck together, and those of the turn before when they were not over: whatever is repeated then is put
/// down to them.
pub struct Cause(Vec<Vec<Fault>>);

/// Between faults that struck in one turn.
const AND: &str = " + ";
/// Between these and those of the turn before, whose repeats may not have ended when they struck.
const BEHIND: &str = " behind ";
/// Before the number of a turn, and behind it.
const NUMBER: (char, &str) = ('#', ": ");

/// How many rows each relay has said are sent again.
#[derive(Debug, Clone, Copy, Default)]
pub struct Announced {
    pub relay: usize,
    pub survivor: usize,
}

impl Announced {
    /// What was said behind an earlier look.
    pub fn since(self, earlier: Announced) -> Announced {
        Announced { relay: self.relay - earlier.relay, survivor: self.survivor - earlier.survivor }
    }

    /// Both together.
    pub fn and(self, other: Announced) -> Announced {
        Announced { relay: self.relay + other.relay, survivor: self.survivor + other.survivor }
    }
}

impl Cause {
    /// How it is written.
    pub fn name(faults: &[Fault], before: Option<&str>) -> String {
        let names: Vec<String> = faults.iter().map(Fault::to_string).collect();
        names.join(AND) + &before.map(|before| format!("{BEHIND}{before}")).unwrap_or_default()
    }

    /// How that of one turn is told from others of the same name.
    pub fn numbered(turn: usize, name: &str) -> String {
        format!("{}{turn}{}{name}", NUMBER.0, NUMBER.1)
    }

    /// The name alone.
    pub fn unnumbered(text: &str) -> &str {
        let numbered = text.strip_prefix(NUMBER.0).and_then(|text| text.split_once(NUMBER.1));
        numbered.map_or(text, |(_, name)| name)
    }

    /// Reads what `name` wrote, numbered or not; of any other text, such as that for no fault at all, nothing.
    pub fn read(text: &str) -> Cause {
        let fault = |part: &str| Fault::all().into_iter().find(|fault| fault.to_string() == part);
        let name = Cause::unnumbered(text);
        Cause(name.split(BEHIND).map(|turn| turn.split(AND).filter_map(fault).collect()).collect())
    }

    /// True when the relay died without a word.
    pub fn is_sudden_death(&self) -> bool {
        self.0.iter().flatten().any(|fault| matches!(fault, Fault::RelayKill | Fault::TakeOver))
    }

    /// True when docs/delivery-semantics.md sets no limit to what the relay repeats: after its death, and when it starts
    /// anew beside a server whose slot went back. Otherwise it has said how much.
    pub fn is_unlimited(&self) -> bool {
        let slot_went_back =
            |turn: &Vec<Fault>| turn.contains(&Fault::RelayTerm) && turn.iter().any(|fault| fault.ends_the_server());
        self.is_sudden_death() || self.0.iter().any(slot_went_back)
    }
}

/// What an operator's dashboard shows of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// `outboxd_reconnects_total{side="postgres"}`
    Sessions,
    /// `outboxd_reconnects_total{side="postgres"}`, or the age of `outboxd_last_frame_timestamp_seconds`.
    SessionsOrSilence,
    /// `outboxd_lag_seconds`
    Lag,
}

/// A part of the world that a fault takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Relay,
    Postgres,
    Kafka,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Fault::RelayKill => "relay SIGKILL",
            Fault::RelayTerm => "relay SIGTERM",
            Fault::RelayFreeze => "relay SIGSTOP, SIGCONT",
            Fault::HandOver => "standby takes over after SIGTERM",
            Fault::TakeOver => "standby takes over after SIGKILL",
            Fault::PostgresCrash => "PostgreSQL crash (SIGKILL)",
            Fault::PostgresImmediate => "PostgreSQL immediate stop",
            Fault::PostgresFast => "PostgreSQL fast stop",
            Fault::PostgresSmart => "PostgreSQL smart, then fast stop",
            Fault::PostgresFreeze => "PostgreSQL paused",
            Fault::WalsenderEnded => "pg_terminate_backend",
            Fault::SlotStolen => "slot read by another session",
            Fault::BrokerKill => "broker kill",
            Fault::BrokerStop => "broker stop",
            Fault::BrokerPause => "broker pause",
            Fault::ClusterKill => "all brokers killed",
            Fault::ClusterPause => "all brokers paused",
            Fault::LeaderMove => "leader moved",
            Fault::TopicRemade => "topic deleted, made again",
            Fault::LimitLowered => "limit lowered below an event",
            Fault::TransactionHeld => "transaction held open",
            Fault::Wire(side, wire) => return write!(f, "{side}: {wire}"),
        };
        f.write_str(name)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Postgres => "PostgreSQL's wire",
            Side::Kafka => "Kafka's wire",
            Side::OneBroker => "one broker's wire",
            Side::Both => "both wires",
        })
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wire::Cut => "cut",
            Wire::Reset => "reset",
            Wire::HalfOpen => "half-open",
            Wire::LostToServer => "way to the server lost",
            Wire::LostToClient => "way from the server lost",
            Wire::Stall => "stalled",
            Wire::Drip => "drip",
            Wire::Latency => "latency",
            Wire::CutAtByte => "cut at a byte",
        })
    }
}
