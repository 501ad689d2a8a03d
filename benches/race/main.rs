//! The race: outboxd and the limits of this machine, on one backlog, one after the other.
//!
//! `make bench` loads a backlog into a real PostgreSQL once for each workload, gives every contender its own copy of the
//! slot and its own topic on a real Apache Kafka, lets them run in turns, as many rounds as told, looks whether every event
//! arrived, and prints medians with their spread. Machines swing: only ratios of one run mean anything.

#![allow(clippy::unwrap_used, reason = "a panic is how a benchmark fails")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod contender;
mod meter;
mod report;
mod roles;
mod workload;

use contender::{Contender, Track};
use report::Report;
use support::announce;
use support::kafka::Kafka;
use support::postgres::Postgres;
use workload::Workload;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some((name, rest)) = arguments.split_first()
        && let Some(role) = roles::find(name)
    {
        return role(rest);
    }
    let options = Options::parse(&arguments);
    let mut report = Report::default();
    for workload in Workload::ALL.into_iter().filter(|workload| options.wants(workload.name())) {
        let postgres = Postgres::options().setting("max_wal_size", "8GB").setting("shared_buffers", "256MB").start();
        let kafka = Kafka::private();
        let track = Track::load(workload, options.events, &postgres, &kafka);
        for round in 1..=options.rounds {
            for contender in Contender::ALL {
                let lap = track.run(contender);
                announce(&format!("{}, round {round}: {contender} {lap}", workload.name()));
                report.add(workload, contender, lap);
            }
        }
    }
    println!("{}", report.finish());
}

/// What `make bench` was told.
struct Options {
    events: u64,
    rounds: usize,
    only: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Options {
        let mut options = Options { events: 300_000, rounds: 5, only: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
            match name.as_str() {
                "--events" => options.events = value.parse().unwrap(),
                "--rounds" => options.rounds = value.parse().unwrap(),
                "--only" => options.only = value.split(',').map(str::to_string).collect(),
                _ => panic!("unknown option {name}; there are --events, --rounds and --only"),
            }
        }
        options
    }

    fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload)
    }
}
