//! What the race is for: what the relay must show, and whether this run did.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::contender::{Contender, Lap};
use crate::debezium::Tuning;
use crate::report::{Laps, Latencies, Spread, dearer, faster};
use crate::steady::{Carrier, Latency};
use crate::workload::Workload;

const TUNED: Contender = Contender::Debezium(Tuning::Backlog);
/// Of the relay, in every workload.
const MOST_MEGABYTES: f64 = 48.0;
/// How much dearer an event may be among ten times as many, or in one transaction with all others.
const MOST_GROWTH: f64 = 1.05;

/// What was demanded, what was measured, and whether that will do.
#[derive(Default)]
pub struct Demands(Vec<(String, String, bool)>);

impl Demands {
    /// Looks at all that was measured.
    pub fn of(
        laps: &BTreeMap<Workload, Laps>,
        latencies: &BTreeMap<u64, Latencies>,
        growth: &BTreeMap<u64, Vec<Lap>>,
    ) -> Demands {
        let mut demands = Demands::default();
        for (workload, recv, debezium) in [(Workload::ThousandRows, 1.15, 3.0), (Workload::OneRow, 1.3, 2.0)] {
            if let Some(laps) = laps.get(&workload) {
                demands.speed(workload, laps, Contender::RecvBinary, recv);
                demands.speed(workload, laps, TUNED, debezium);
            }
        }
        if let Some(laps) = laps.get(&Workload::ThousandRows) {
            demands.cost("its CPU, header `id` only", laps, Contender::OutboxdIdOnly, TUNED, 0.1);
            demands.cost("its CPU, five headers", laps, Contender::Outboxd, Contender::OutboxdIdOnly, 1.25);
        }
        demands.memory(laps, latencies);
        latencies.iter().for_each(|(rate, carriers)| demands.latency(*rate, carriers));
        demands.growth(laps, growth);
        demands
    }

    /// In Markdown.
    pub fn table(&self) -> String {
        let mut text = String::from("| demand | measured | |\n|---|---|---|\n");
        for (demand, measured, met) in &self.0 {
            writeln!(text, "| {demand} | {measured} | {} |", if *met { "met" } else { "**not met**" }).unwrap();
        }
        text
    }

    fn add(&mut self, demand: String, measured: String, met: bool) {
        self.0.push((demand, measured, met));
    }

    fn speed(&mut self, workload: Workload, laps: &Laps, rival: Contender, least: f64) {
        if let (Some(ours), Some(theirs)) = (laps.get(&Contender::Outboxd), laps.get(&rival)) {
            let ratio = faster(ours, theirs);
            let demand = format!("{}: events/s at least {least} × {rival}", workload.name());
            self.add(demand, ratio.show(2), ratio.median >= least);
        }
    }

    fn cost(&mut self, what: &str, laps: &Laps, ours: Contender, theirs: Contender, most: f64) {
        if let (Some(ours), Some(rivals)) = (laps.get(&ours), laps.get(&theirs)) {
            let ratio = dearer(ours, rivals);
            self.add(format!("{what}: at most {most} × {theirs}"), ratio.show(3), ratio.median <= most);
        }
    }

    fn memory(&mut self, laps: &BTreeMap<Workload, Laps>, latencies: &BTreeMap<u64, Latencies>) {
        let backlogs =
            laps.values().filter_map(|laps| laps.get(&Contender::Outboxd)).flatten().map(Lap::peak_megabytes);
        let steady = latencies.values().filter_map(|carriers| carriers.get(&Carrier::Outboxd)).flatten();
        let peaks: Vec<f64> = backlogs.chain(steady.map(|latency| latency.peak_megabytes)).collect();
        if !peaks.is_empty() {
            let highest = Spread::of(&peaks, |peak| *peak).highest;
            let demand = format!("peak RSS in every run: at most {MOST_MEGABYTES:.0} MB");
            self.add(demand, format!("{highest:.0} MB"), highest <= MOST_MEGABYTES);
        }
    }

    fn latency(&mut self, rate: u64, carriers: &Latencies) {
        let (Some(ours), Some(bare)) = (carriers.get(&Carrier::Outboxd), carriers.get(&Carrier::Bare)) else { return };
        let median = |latencies: &[Latency], figure: fn(&Latency) -> f64| Spread::of(latencies, figure).median;
        let (p50, bare_p50) = (median(ours, |it| it.p50), median(bare, |it| it.p50));
        let (p99, bare_p99) = (median(ours, |it| it.p99), median(bare, |it| it.p99));
        self.add(
            format!("{rate} a second: p50 within 2 ms of a bare produce"),
            format!("{p50:.1} ms, {bare_p50:.1} ms"),
            p50 <= bare_p50 + 2.0,
        );
        self.add(
            format!("{rate} a second: p99 at most 1.5 × a bare produce's and 5 ms"),
            format!("{p99:.1} ms, {bare_p99:.1} ms"),
            p99 <= 1.5 * bare_p99 + 5.0,
        );
    }

    fn growth(&mut self, laps: &BTreeMap<Workload, Laps>, growth: &BTreeMap<u64, Vec<Lap>>) {
        if let (Some((few, small)), Some((many, large))) = (growth.first_key_value(), growth.last_key_value()) {
            self.no_dearer(&format!("an event of {many}, against one of {few}"), large, small);
        }
        let ours = |workload: Workload| laps.get(&workload).and_then(|laps| laps.get(&Contender::Outboxd));
        if let (Some(one), Some(many)) = (ours(Workload::OneTransaction), ours(Workload::ThousandRows)) {
            self.no_dearer("an event in one transaction with all others, against one of 1,000 rows", one, many);
        }
    }

    fn no_dearer(&mut self, what: &str, laps: &[Lap], others: &[Lap]) {
        let ratio = dearer(laps, others);
        let demand = format!("its CPU, {what}: at most {MOST_GROWTH} ×");
        self.add(demand, ratio.show(3), ratio.median <= MOST_GROWTH);
    }
}
