//! What the race is for: what the relay must show, and whether this run did.

use std::fmt::Write;

use crate::contender::{Contender, Lap};
use crate::debezium::Tuning;
use crate::report::{Latencies, Report, Size, Spread, dearer, faster};
use crate::steady::{Carrier, Latency, RATES};
use crate::workload::Workload;

/// Over the whole lap, as everybody is measured, and without the part in which a JVM is slow.
const TUNED: [Contender; 2] = [Contender::Debezium(Tuning::Backlog), Contender::DebeziumWarm];
/// Of the relay, in every run.
const MOST_MEGABYTES: f64 = 48.0;
/// How much dearer an event may be among ten times as many, or in one transaction with all others.
const MOST_GROWTH: f64 = 1.05;
/// How much more memory they may take: what is allocated in which order, differs by so much.
const MOST_MEMORY: f64 = 1.15;
/// A steady rate that was not kept says nothing.
const KEPT: f64 = 0.98;

/// What was demanded, what was measured, and whether that will do; `None` where it was not measured.
#[derive(Default)]
pub struct Demands(Vec<(String, Option<(String, bool)>)>);

impl Demands {
    /// Looks at all that was measured.
    pub fn of(report: &Report) -> Demands {
        let mut demands = Demands::default();
        for (workload, recv, debezium) in [(Workload::ThousandRows, 1.15, 3.0), (Workload::OneRow, 1.3, 2.0)] {
            demands.speed(report, workload, Contender::RecvBinary, recv);
            TUNED.into_iter().for_each(|rival| demands.speed(report, workload, rival, debezium));
        }
        for workload in Workload::ALL {
            for rival in TUNED {
                // Not every lap is long enough to have a warm part, and Debezium knows no Unix sockets.
                let may_be_missing = rival == Contender::DebeziumWarm || workload == Workload::UnixSocket;
                if !may_be_missing || laps(report, workload, rival).is_some() {
                    demands.cost(report, workload, "header `id` only", [Contender::OutboxdIdOnly, rival], 0.1);
                }
            }
            demands.cost(report, workload, "five headers", [Contender::Outboxd, Contender::OutboxdIdOnly], 1.25);
        }
        demands.memory(&report.peaks);
        RATES.into_iter().for_each(|rate| demands.latency(rate, report.latencies.get(&rate)));
        for (size, what) in [(Size::TenTimes, "among ten times as many"), (Size::AtOnce, "in one transaction with all")]
        {
            demands.growth(report, size, what);
        }
        demands
    }

    /// In Markdown.
    pub fn table(&self) -> String {
        let mut text = String::from("| demand | measured | |\n|---|---|---|\n");
        for (demand, measured) in &self.0 {
            let (measured, met) = match measured {
                Some((measured, true)) => (measured.as_str(), "met"),
                Some((measured, false)) => (measured.as_str(), "**not met**"),
                None => ("", "not measured"),
            };
            writeln!(text, "| {demand} | {measured} | {met} |").unwrap();
        }
        text
    }

    fn add(&mut self, demand: String, measured: Option<(String, bool)>) {
        self.0.push((demand, measured));
    }

    fn speed(&mut self, report: &Report, workload: Workload, rival: Contender, least: f64) {
        let ratio = laps(report, workload, Contender::Outboxd)
            .zip(laps(report, workload, rival))
            .map(|(ours, theirs)| faster(ours, theirs));
        let demand = format!("{}: events/s at least {least} × {rival}", workload.name());
        self.add(demand, ratio.map(|ratio| (ratio.show(2), ratio.median >= least)));
    }

    fn cost(&mut self, report: &Report, workload: Workload, what: &str, [ours, theirs]: [Contender; 2], most: f64) {
        let ratio =
            laps(report, workload, ours).zip(laps(report, workload, theirs)).map(|(ours, theirs)| dearer(ours, theirs));
        let demand = format!("{}: its CPU, {what}, at most {most} × {theirs}", workload.name());
        self.add(demand, ratio.map(|ratio| (ratio.show(3), ratio.median <= most)));
    }

    fn memory(&mut self, peaks: &[f64]) {
        let highest = peaks.iter().copied().reduce(f64::max);
        let demand = format!("peak RSS in every lap, warming up included: at most {MOST_MEGABYTES:.0} MB");
        self.add(demand, highest.map(|highest| (format!("{highest:.0} MB"), highest <= MOST_MEGABYTES)));
    }

    fn latency(&mut self, rate: u64, carriers: Option<&Latencies>) {
        let of = |carrier| carriers.and_then(|carriers| carriers.get(&carrier));
        let both = of(Carrier::Outboxd).zip(of(Carrier::Bare));
        let median = |latencies: &[Latency], figure: fn(&Latency) -> f64| Spread::of(latencies, figure).median;
        let kept = |latencies: &[Latency]| median(latencies, |it| it.sent) >= KEPT * rate as f64;
        let judge = |figure: fn(&Latency) -> f64, most: fn(f64) -> f64| {
            both.map(|(ours, bare)| {
                let (took, took_bare) = (median(ours, figure), median(bare, figure));
                let met = took <= most(took_bare) && kept(ours) && kept(bare);
                (format!("{took:.1} ms, {took_bare:.1} ms"), met)
            })
        };
        let p50 = judge(|it| it.sent_at.p50, |bare| bare + 2.0);
        let p99 = judge(|it| it.sent_at.p99, |bare| 1.5 * bare + 5.0);
        self.add(format!("{rate} a second: p50 within 2 ms of a bare produce"), p50);
        self.add(format!("{rate} a second: p99 at most 1.5 × a bare produce's and 5 ms"), p99);
    }

    fn growth(&mut self, report: &Report, size: Size, what: &str) {
        let both = report.growth.get(&size).zip(report.growth.get(&Size::Usual));
        let cost = both.map(|(laps, usual)| dearer(laps, usual));
        let demand = format!("its CPU, an event {what}: at most {MOST_GROWTH} ×");
        self.add(demand, cost.map(|ratio| (ratio.show(3), ratio.median <= MOST_GROWTH)));
        let memory = both.map(|(laps, usual)| Spread::of_ratios(laps, usual, Lap::peak_megabytes));
        let demand = format!("its memory, {what}: at most {MOST_MEMORY} ×");
        self.add(demand, memory.map(|ratio| (ratio.show(2), ratio.median <= MOST_MEMORY)));
    }
}

fn laps(report: &Report, workload: Workload, contender: Contender) -> Option<&Vec<Lap>> {
    report.laps.get(&workload)?.get(&contender)
}
