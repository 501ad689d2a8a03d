//! The race: outboxd and the limits of this machine, on one backlog, one after the other.
//!
//! `make bench` loads a backlog into a real PostgreSQL once for each workload, gives every contender its own copy of the
//! slot and its own topic on a real Apache Kafka, lets them run in turns, as many rounds as told, looks whether every event
//! arrived, and prints medians with their spread. Then events come at a steady rate, and it is measured how long they take.
//! Machines swing: only ratios of one run mean anything.

#![allow(clippy::unwrap_used, reason = "a panic is how a benchmark fails")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod contender;
mod debezium;
mod meter;
mod plot;
mod report;
mod roles;
mod steady;
mod workload;

use std::path::Path;

use contender::{Contender, Track};
use report::Report;
use steady::Carrier;
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
        race(workload, &options, &mut report);
    }
    for rate in steady::RATES.into_iter().filter(|rate| options.wants(&format!("steady-{rate}"))) {
        keep_pace(rate, &options, &mut report);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("race");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("report.md"), report.tables()).unwrap();
    std::fs::write(directory.join("race.svg"), report.plot()).unwrap();
    println!("{}\nthis table and its plot: {}", report.tables(), directory.display());
}

/// One backlog, which everybody carries in turn.
fn race(workload: Workload, options: &Options, report: &mut Report) {
    let postgres = Postgres::options().setting("max_wal_size", "8GB").setting("shared_buffers", "256MB").start();
    let kafka = Kafka::private();
    let track = Track::load(workload, options.events, &postgres, &kafka);
    let incumbent = Contender::DEBEZIUM.into_iter().filter(|_| options.debezium);
    let contenders: Vec<Contender> = Contender::USUAL.into_iter().chain(incumbent).collect();
    let contenders = contenders.into_iter().filter(|contender| !options.relays_only || contender.is_a_relay());
    for round in 1..=options.rounds {
        for contender in contenders.clone() {
            let lap = track.run(contender);
            announce(&format!("{}, round {round}: {contender} {lap}", workload.name()));
            report.add(workload, contender, lap);
        }
    }
}

/// The same rate for everybody in turn.
fn keep_pace(rate: u64, options: &Options, report: &mut Report) {
    let (postgres, kafka) = (Postgres::private(), Kafka::private());
    for round in 1..=options.rounds {
        for carrier in [Carrier::Bare, Carrier::Outboxd, Carrier::Debezium] {
            if carrier == Carrier::Debezium && !options.debezium {
                continue;
            }
            let latency = steady::run(carrier, rate, &postgres, &kafka);
            announce(&format!("steady-{rate}, round {round}: {carrier} {latency}"));
            report.add_latency(rate, carrier, latency);
        }
    }
}

/// What `make bench` was told.
struct Options {
    events: u64,
    rounds: usize,
    only: Vec<String>,
    /// With the incumbent, for which `scripts/setup race` is needed.
    debezium: bool,
    /// Without the limits.
    relays_only: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Options {
        let mut options = Options { events: 300_000, rounds: 5, only: Vec::new(), debezium: false, relays_only: false };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
            match name.as_str() {
                "--events" => options.events = value().parse().unwrap(),
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--only" => options.only = value().split(',').map(str::to_string).collect(),
                "--debezium" => options.debezium = true,
                "--relays-only" => options.relays_only = true,
                _ => panic!("unknown option {name}: there are --events, --rounds, --only, --debezium, --relays-only"),
            }
        }
        options
    }

    /// True for what `--only` names, or for everything.
    fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload)
    }
}
