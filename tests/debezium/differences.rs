//! Where outboxd does on purpose something else than Debezium. Whatever differs and does not stand here fails the comparison; so
//! does what stands here and does not differ any more.

use std::fmt;

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
    /// The cases, by name; a `*` at either end stands for anything.
    pub cases: &'static str,
    pub part: Part,
    pub debezium: &'static str,
    pub outboxd: &'static str,
    pub why: &'static str,
}

/// All of them.
pub const DIFFERENCES: &[Difference] = &[Difference {
    cases: "*",
    part: Part::Parked,
    debezium: "the task ends at a row that it cannot publish, and the rows behind it wait",
    outboxd: "the row becomes a dead letter, with its reason, and the line goes on",
    why: "one bad event never stops the line",
}];

impl Difference {
    /// True when this is about the case.
    pub fn covers(&self, case: &str, part: Part) -> bool {
        let fits = match (self.cases.strip_prefix('*'), self.cases.strip_suffix('*')) {
            (Some(end), None) => case.ends_with(end),
            (None, Some(start)) => case.starts_with(start),
            (Some(_), Some(_)) => case.contains(self.cases.trim_matches('*')),
            (None, None) => case == self.cases,
        };
        fits && part == self.part
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { cases, part, debezium, outboxd, why } = self;
        write!(f, "{cases}, {part:?}: Debezium: {debezium}; outboxd: {outboxd}, because {why}")
    }
}
