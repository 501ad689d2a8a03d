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
    /// A topic takes less than an event needs, until somebody raises its limit and starts the relay again.
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
            fault if fault.ends_the_answers() => &["no answer", "stopping"],
            // What the server sends still comes, until it hears nothing for too long.
            Fault::Wire(Side::Postgres, Wire::LostToServer) => &[],
            Fault::Wire(side, Wire::HalfOpen | Wire::LostToServer | Wire::LostToClient | Wire::Stall) => match side {
                Side::Postgres | Side::Both => POSTGRES,
                Side::Kafka | Side::OneBroker => KAFKA,
            },
            _ => &[],
        }
    }

    /// The metric that must move when readiness has to say so. A process that is gone has none.
    pub fn moves(self) -> Option<Metric> {
        match self.shows().first() {
            Some(&"postgres_unreachable") => Some(Metric::SessionsOrSilence),
            _ if self.ends_the_answers() => None,
            None => None,
            Some(_) => Some(Metric::Lag),
        }
    }

    /// Within this time readiness must have said so.
    pub fn noticed(self) -> Duration {
        Duration::from_millis(match self {
            Fault::RelayKill | Fault::RelayTerm => 500,
            // Its connections end when they notice that the postmaster is gone.
            Fault::PostgresCrash => 3000,
            // It closes its connections.
            fault if fault.ends_the_server() => 1500,
            // Five seconds, with some slack for a machine that is busy with everything else.
            _ => 5500,
        })
    }

    /// True when it may repeat events by itself: a process that dies, or whose lease ends while records are on their way.
    fn may_repeat(self) -> bool {
        use Wire::{HalfOpen, Stall};
        match self {
            Fault::RelayKill | Fault::TakeOver | Fault::RelayFreeze | Fault::LimitLowered => true,
            Fault::Wire(Side::Both, wire) => matches!(wire, HalfOpen | Stall),
            _ => false,
        }
    }

    /// True when it strikes the relay that suffers, and nothing else.
    fn is_the_relays(self) -> bool {
        use Fault::{HandOver, LimitLowered, RelayFreeze, RelayKill, RelayTerm, SlotStolen, TakeOver, TopicRemade};
        matches!(
            self,
            HandOver | LimitLowered | RelayFreeze | RelayKill | RelayTerm | SlotStolen | TakeOver | TopicRemade
        )
    }

    /// True when the relay has neither readiness nor metrics any more, which shows all the better.
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

/// Faults that struck together, or one before the other was over: whatever is repeated then is put down to them.
pub struct Cause(Vec<Fault>);

/// Between faults that struck in one turn.
const AND: &str = " + ";
/// Between these and those of the turn before, whose repeats may not have ended when they struck.
const BEHIND: &str = " behind ";

impl Cause {
    /// How it is written.
    pub fn name(faults: &[Fault], before: Option<&str>) -> String {
        let names: Vec<String> = faults.iter().map(Fault::to_string).collect();
        names.join(AND) + &before.map(|before| format!("{BEHIND}{before}")).unwrap_or_default()
    }

    /// Reads what `name` wrote; of any other text, such as that for no fault at all, nothing.
    pub fn read(name: &str) -> Cause {
        let parts = name.split(BEHIND).flat_map(|turn| turn.split(AND));
        Cause(parts.filter_map(|part| Fault::all().into_iter().find(|fault| fault.to_string() == part)).collect())
    }

    /// Only those that reach a relay whose process nobody touches.
    pub fn of_the_survivor(mut self) -> Cause {
        self.0.retain(|fault| !fault.is_the_relays());
        self
    }

    /// True when the relay died without a word.
    pub fn is_sudden_death(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault, Fault::RelayKill | Fault::TakeOver))
    }

    /// What docs/delivery-semantics.md allows: deaths, lost leases, a stop that cannot end in time, and both servers away.
    pub fn may_repeat(&self) -> bool {
        let Cause(faults) = self;
        let away = |part: Part| faults.iter().any(|fault| fault.takes().contains(&part));
        let several = faults.len() > 1;
        faults.iter().any(|fault| fault.may_repeat())
            || several && (faults.contains(&Fault::RelayTerm) || away(Part::Postgres) && away(Part::Kafka))
    }
}

/// What an operator's dashboard shows of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
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
