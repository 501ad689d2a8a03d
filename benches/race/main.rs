//! The race: outboxd and the limits of this machine, on one backlog, one after the other.
//!
//! `make bench` loads a backlog into a real PostgreSQL once for each workload, gives every contender its own copy of the
//! slot and its own topic on a real Apache Kafka, lets them run in turns, as many rounds as told, looks whether every event
//! arrived, and prints medians with their spread. Then events come at a steady rate, and it is measured how long they take.
//! Machines swing: only ratios of one run mean anything.

#![allow(clippy::unwrap_used, reason = "a panic is how a benchmark fails")]

// The limits get their memory from where the relay gets it.
#[path = "../../src/heap.rs"]
mod heap;
#[path = "../../tests/support/mod.rs"]
mod support;

mod contender;
mod debezium;
mod demands;
mod meter;
mod place;
mod plot;
mod report;
mod roles;
mod steady;
mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use contender::{Contender, Track};
use debezium::Tuning;
use report::{Report, Size};
use steady::Carrier;
use support::announce;
use support::kafka::Kafka;
use support::postgres::Postgres;
use workload::Workload;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some((name, rest)) = arguments.split_first()
        && let Some(role) = roles::find(name)
    {
        role(rest);
        return ExitCode::SUCCESS;
    }
    let options = Options::parse(&arguments);
    let mut report = Report::default();
    for name in every_part().into_iter().filter(|name| options.wants(name)) {
        // A run takes two hours: what one part could not show does not cost the others.
        if catch_unwind(AssertUnwindSafe(|| run(&name, &options, &mut report))).is_err() {
            report.failed.push(name);
        }
        write(&report, &options);
    }
    println!("{}\nthis table, and its plot beside it: {}", report.tables(), write(&report, &options).display());
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The names of all that is measured, as `--only` takes them, in the order in which it is.
fn every_part() -> Vec<String> {
    let backlogs = Workload::ALL.map(|workload| workload.name().to_string());
    backlogs.into_iter().chain(steady::RATES.map(steady::name)).chain([GROWTH.to_string()]).collect()
}

fn run(part: &str, options: &Options, report: &mut Report) {
    if let Some(workload) = Workload::ALL.into_iter().find(|workload| workload.name() == part) {
        race(workload, options, report);
    } else if let Some(rate) = steady::RATES.into_iter().find(|rate| steady::name(*rate) == part) {
        keep_pace(rate, options, report);
    } else {
        grow(options, report);
    }
}

/// Writes what there is so far, a part of the race beside the whole.
fn write(report: &Report, options: &Options) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("race");
    std::fs::create_dir_all(&directory).unwrap();
    let name = if options.only.is_empty() { "report".to_string() } else { options.only.join("+") };
    let table = directory.join(&name).with_extension("md");
    std::fs::write(&table, report.tables()).unwrap();
    std::fs::write(table.with_extension("svg"), report.plot()).unwrap();
    table
}

/// A server that is not busy with itself.
fn postgres() -> Arc<Postgres> {
    let settings =
        [("max_wal_size", "8GB"), ("shared_buffers", "256MB"), ("autovacuum", "off"), ("checkpoint_timeout", "1h")];
    settings.iter().fold(Postgres::options(), |options, (name, value)| options.setting(name, value)).start()
}

/// One backlog, which everybody carries in turn, forwards and backwards.
fn race(workload: Workload, options: &Options, report: &mut Report) {
    let kafka = Kafka::options().production();
    let kafka = if workload.distance().is_some() { kafka.proxied().start() } else { kafka.start() };
    let postgres = postgres();
    let track = Track::load(workload, options.events, &postgres, &kafka);
    let mut contenders = Contender::ROUND.to_vec();
    contenders.retain(|contender| !options.relays_only || contender.is_a_relay());
    contenders.retain(|contender| match contender {
        Contender::Debezium(_) if !options.debezium => false,
        // It knows no Unix sockets.
        Contender::Debezium(_) if workload == Workload::UnixSocket => false,
        Contender::RecvText | Contender::RecvBinary | Contender::Reader | Contender::Debezium(Tuning::Default) => {
            !workload.is_about_kafka()
        }
        _ => true,
    });
    // A broker that has just been started needs four times as much for the same records: this is not counted.
    for contender in [Contender::Producer, Contender::Outboxd, Contender::ReaderAndProducer, Contender::OutboxdIdOnly] {
        let (lap, _) = track.run(contender);
        announce(&format!("{}, warming up: {contender} {lap}", workload.name()));
        report.warmed_up(contender, &lap);
    }
    for round in 1..=options.rounds {
        for contender in &contenders {
            let (lap, warm) = track.run(*contender);
            for (who, lap) in [(*contender, Some(lap)), (Contender::DebeziumWarm, warm)] {
                if let Some(lap) = lap {
                    announce(&format!("{}, round {round}: {who} {lap}", workload.name()));
                    report.add(workload, who, lap);
                }
            }
        }
        contenders.reverse();
    }
}

/// The same rate for everybody in turn.
fn keep_pace(rate: u64, options: &Options, report: &mut Report) {
    let (postgres, kafka) = (postgres(), Kafka::options().production().start());
    let mut carriers = vec![Carrier::Bare, Carrier::Outboxd, Carrier::Debezium];
    carriers.retain(|carrier| *carrier != Carrier::Debezium || options.debezium);
    steady::run(Carrier::Bare, rate, &postgres, &kafka);
    for round in 1..=options.rounds {
        for carrier in carriers.clone() {
            let latency = steady::run(carrier, rate, &postgres, &kafka);
            announce(&format!("{}, round {round}: {carrier} {latency}", steady::name(rate)));
            report.add_latency(rate, carrier, latency);
        }
        carriers.reverse();
    }
}

/// Ten times as much must cost ten times as much, and no more memory; and so must one large transaction.
fn grow(options: &Options, report: &mut Report) {
    let kafka = Kafka::options().production().start();
    let mut tracks =
        [(Size::Usual, options.events), (Size::TenTimes, options.events * 10), (Size::AtOnce, options.events)].map(
            |(size, events)| {
                let workload = if size == Size::AtOnce { Workload::OneTransaction } else { Workload::ThousandRows };
                (size, Track::load(workload, events, &postgres(), &kafka))
            },
        );
    // The first lap warms the broker up.
    report.warmed_up(Contender::Outboxd, &tracks[0].1.run(Contender::Outboxd).0);
    for round in 1..=options.rounds {
        for (size, track) in &tracks {
            let (lap, _) = track.run(Contender::Outboxd);
            announce(&format!("{GROWTH}, round {round}: {size}, {lap}"));
            report.add_growth(*size, lap);
        }
        tracks.reverse();
    }
}

/// As `--only` names the comparison of backlogs.
const GROWTH: &str = "growth";

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
        let mut options = Options { events: 500_000, rounds: 5, only: Vec::new(), debezium: false, relays_only: false };
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
        assert!(options.rounds > 0, "--rounds takes 1 or more");
        assert!(options.events > 0 && options.events.is_multiple_of(2000), "--events takes multiples of 2000");
        let known = every_part();
        assert!(options.only.iter().all(|name| known.contains(name)), "--only takes {}", known.join(","));
        options
    }

    /// True for what `--only` names, or for everything.
    fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == workload)
    }
}
