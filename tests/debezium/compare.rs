//! What outboxd publishes beside what Debezium has published: every part of every record, and what was published at all.

use std::fmt;

use crate::differences::{DIFFERENCES, Difference, Part, Shows};
use crate::fixture::{Fixture, Record, Stage};

/// A difference in a record of a case, counted from 1, or in all of it.
pub struct Found {
    pub case: String,
    pub part: Part,
    record: Option<usize>,
    debezium: String,
    outboxd: String,
}

impl Found {
    fn new(fixture: &Fixture, part: Part, record: Option<usize>, debezium: String, outboxd: String) -> Found {
        Found { case: fixture.case.clone(), part, record, debezium, outboxd }
    }

    /// outboxd does not take a configuration with which Debezium begins.
    pub fn refused(fixture: &Fixture, outboxd: String) -> Found {
        Found::new(fixture, Part::Refused, None, outcome(fixture), outboxd)
    }

    /// outboxd takes a configuration with which Debezium does not begin.
    pub fn accepted(fixture: &Fixture) -> Found {
        Found::new(fixture, Part::Accepted, None, failure(fixture), "begins".to_string())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record.map(|number| format!(", record {number}")).unwrap_or_default();
        let Found { case, part, debezium, outboxd, .. } = self;
        write!(f, "{case}{record}, {part:?}\n    Debezium: {debezium}\n    outboxd:  {outboxd}")
    }
}

/// True when Debezium does not begin.
pub fn is_refused(fixture: &Fixture) -> bool {
    fixture.failure.as_ref().is_some_and(|failure| match failure.at {
        Stage::Registration | Stage::Start => true,
        Stage::LastStatement => false,
    })
}

/// All that differs in a case that both begin with.
pub fn differences(fixture: &Fixture, records: &[Record], letters: &[String]) -> Vec<Found> {
    let found = |part, record, debezium, outboxd| Found::new(fixture, part, record, debezium, outboxd);
    let mut all = Vec::new();
    if fixture.failure.is_some() && !letters.is_empty() {
        all.push(found(Part::Parked, None, failure(fixture), letters.join("; ")));
    }
    if fixture.failure.is_some() && letters.is_empty() && fixture.records.len() == records.len() {
        all.push(found(Part::GoesOn, None, failure(fixture), "nothing is wrong".to_string()));
    }
    if fixture.records.len() != records.len() {
        let outboxd = format!("{} records {records:?}, parked: {letters:?}", records.len());
        all.push(found(Part::Records, None, outcome(fixture), outboxd));
        return all;
    }
    for (number, (theirs, ours)) in fixture.records.iter().zip(records).enumerate() {
        let mut differ = |part, theirs: String, ours: String| {
            if theirs != ours {
                all.push(found(part, Some(number + 1), theirs, ours));
            }
        };
        differ(Part::Topic, theirs.topic.clone(), ours.topic.clone());
        differ(Part::Key, format!("{:?}", theirs.key), format!("{:?}", ours.key));
        differ(Part::Value, format!("{:?}", theirs.value), format!("{:?}", ours.value));
        differ(Part::Headers, format!("{:?}", theirs.headers), format!("{:?}", ours.headers));
        let time = |record: &Record| format!("{:?}, {}", record.timestamp, record.timestamp_type);
        differ(Part::Timestamp, time(theirs), time(ours));
        differ(Part::Partition, format!("{:?}", theirs.partition), format!("{:?}", ours.partition));
    }
    all
}

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Some of the fixtures.
    Some,
    /// All of them, as far as rows tell.
    Rows,
    /// All of them.
    Servers,
}

/// Fails when something differs that is not listed, or is listed and does not differ.
pub fn judge(fixtures: &[Fixture], found: &[Found], scope: Scope) {
    let of = |found: &Found| fixtures.iter().find(|fixture| fixture.case == found.case).expect("it is a fixture's");
    let is_listed =
        |found: &&Found| DIFFERENCES.iter().any(|listed| listed.covers(of(found), found.part, &found.debezium));
    let unlisted: Vec<&Found> = found.iter().filter(|found| !is_listed(found)).collect();
    let mut cases: Vec<&str> = unlisted.iter().map(|found| found.case.as_str()).collect();
    cases.dedup();
    let told: Vec<String> = unlisted.iter().map(|found| found.to_string()).collect();
    assert!(told.is_empty(), "{}\n{} of {} cases differ", told.join("\n"), cases.len(), fixtures.len());
    let is_elsewhere = |listed: &Difference| match listed.shows {
        Shows::Everywhere => false,
        Shows::InRooms => scope == Scope::Servers,
        Shows::OnServers => scope == Scope::Rows,
    };
    if scope != Scope::Some {
        let differs = |listed: &&Difference| {
            is_elsewhere(listed) || found.iter().any(|found| listed.covers(of(found), found.part, &found.debezium))
        };
        let gone: Vec<String> =
            DIFFERENCES.iter().filter(|listed| !differs(listed)).map(Difference::to_string).collect();
        assert!(gone.is_empty(), "these differ no more:\n{}", gone.join("\n"));
    }
}

/// Says how many cases each listed difference is about.
pub fn count(fixtures: &[Fixture], found: &[Found]) {
    let of = |found: &Found| fixtures.iter().find(|fixture| fixture.case == found.case).expect("it is a fixture's");
    for listed in DIFFERENCES {
        let covered = found.iter().filter(|found| listed.covers(of(found), found.part, &found.debezium));
        let mut cases: Vec<&str> = covered.map(|found| found.case.as_str()).collect();
        cases.dedup();
        println!("{:4} cases: {}", cases.len(), listed.debezium);
    }
}

fn outcome(fixture: &Fixture) -> String {
    format!("{} records {:?}{}", fixture.records.len(), fixture.records, failure(fixture))
}

fn failure(fixture: &Fixture) -> String {
    fixture.failure.as_ref().map(|failure| format!(" ends: {}", failure.exceptions.join(", by "))).unwrap_or_default()
}
