//! Where outboxd does on purpose something else than Debezium. Whatever differs and does not stand here fails the comparison; so
//! does what stands here and does not differ any more.

use std::fmt;

use crate::fixture::Fixture;

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Topic,
    Partition,
    Key,
    Value,
    Headers,
    Timestamp,
    /// One of the two publishes a record that the other does not.
    Records,
    /// Debezium's task ends at a row, which outboxd parks.
    Parked,
    /// outboxd takes no such configuration, with which Debezium begins.
    Refused,
    /// outboxd takes a configuration with which Debezium does not begin.
    Accepted,
}

/// A difference that is meant.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    pub cases: Cases,
    pub parts: &'static [Part],
    pub debezium: &'static str,
    pub outboxd: &'static str,
    pub why: &'static str,
}

/// Which cases a difference is about.
#[derive(Debug, Clone, Copy)]
pub enum Cases {
    /// Every one.
    All,
    /// By name; a `*` at either end stands for anything.
    Named(&'static [&'static str]),
    /// With an option, whose name and value have these ends.
    With(&'static str, &'static str),
}

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        cases: Cases::All,
        parts: &[Part::Parked],
        debezium: "the task ends at a row that it cannot publish, and the rows behind it wait",
        outboxd: "the row becomes a dead letter, with its reason, and the line goes on",
        why: "one bad event never stops the line",
    },
    Difference {
        cases: Cases::With("converter.schemas.enable", "true"),
        parts: &[Part::Refused],
        debezium: "writes a schema into every record",
        outboxd: "refuses the configuration",
        why: "the WAL tells neither which columns may be NULL nor their defaults, which schemas contain",
    },
];

impl Difference {
    /// True when this is about the case.
    pub fn covers(&self, fixture: &Fixture, part: Part) -> bool {
        let is_about = match self.cases {
            Cases::All => true,
            Cases::Named(names) => names.iter().any(|name| fits(name, &fixture.case)),
            Cases::With(name, value) => {
                fixture.options.iter().any(|(option, typed)| option.ends_with(name) && typed.ends_with(value))
            }
        };
        is_about && self.parts.contains(&part)
    }
}

fn fits(pattern: &str, case: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), None) => case.ends_with(end),
        (None, Some(start)) => case.starts_with(start),
        (Some(_), Some(_)) => case.contains(pattern.trim_matches('*')),
        (None, None) => case == pattern,
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { cases, parts, debezium, outboxd, why } = self;
        write!(f, "{cases:?}, {parts:?}: Debezium: {debezium}; outboxd: {outboxd}, because {why}")
    }
}
