//! The tables: medians with their spread, and ratios inside the run.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::contender::{Contender, Lap};
use crate::meter::Part;
use crate::plot;
use crate::steady::{Carrier, Latency};
use crate::workload::Workload;

/// Every lap, and every measurement at a steady rate.
#[derive(Default)]
pub struct Report {
    laps: BTreeMap<Workload, BTreeMap<Contender, Vec<Lap>>>,
    latencies: BTreeMap<u64, BTreeMap<Carrier, Vec<Latency>>>,
}

impl Report {
    /// A lap was run.
    pub fn add(&mut self, workload: Workload, contender: Contender, lap: Lap) {
        self.laps.entry(workload).or_default().entry(contender).or_default().push(lap);
    }

    /// A steady rate was measured.
    pub fn add_latency(&mut self, rate: u64, carrier: Carrier, latency: Latency) {
        self.latencies.entry(rate).or_default().entry(carrier).or_default().push(latency);
    }

    /// All tables, in Markdown.
    pub fn tables(&self) -> String {
        let mut text = String::new();
        for (workload, contenders) in &self.laps {
            writeln!(text, "\n### {}\n", workload.describe()).unwrap();
            text.push_str(
                "| who | events/s | × `pg_recvlogical`, binary | its CPU s per million | walsender's | broker's | peak RSS |\n\
                 |---|---:|---:|---:|---:|---:|---:|\n",
            );
            let yardstick = contenders.get(&Contender::RecvBinary).map(|laps| rate(laps).median);
            for (contender, laps) in contenders {
                let rate = rate(laps);
                let ratio = yardstick.map_or_else(String::new, |yardstick| format!("{:.2}", rate.median / yardstick));
                let cpu = |part| Spread::of(laps, |lap| lap.cpu_per_million(part)).show(1);
                writeln!(
                    text,
                    "| {contender} | {} | {ratio} | {} | {} | {} | {} MB |",
                    rate.show(0),
                    cpu(Part::Contender),
                    cpu(Part::Walsender),
                    cpu(Part::Broker),
                    Spread::of(laps, Lap::peak_megabytes).show(0)
                )
                .unwrap();
            }
        }
        for (rate, carriers) in &self.latencies {
            writeln!(text, "\n### {rate} transactions of one row a second: milliseconds from commit to consumer\n")
                .unwrap();
            text.push_str(
                "| who | p50 | p99 | p99.9 | max | kept up with, a second |\n|---|---:|---:|---:|---:|---:|\n",
            );
            for (carrier, latencies) in carriers {
                let figure = |figure: fn(&Latency) -> f64, digits| Spread::of(latencies, figure).show(digits);
                writeln!(
                    text,
                    "| {carrier} | {} | {} | {} | {} | {} |",
                    figure(|latency| latency.p50, 1),
                    figure(|latency| latency.p99, 1),
                    figure(|latency| latency.p999, 1),
                    figure(|latency| latency.max, 0),
                    figure(|latency| latency.rate, 0),
                )
                .unwrap();
            }
        }
        text
    }

    /// Events a second as bars, one group for each workload.
    pub fn plot(&self) -> String {
        let bar = |(contender, laps): (&Contender, &Vec<Lap>)| plot::Bar {
            label: contender.to_string(),
            value: rate(laps).median,
            low: rate(laps).lowest,
            high: rate(laps).highest,
            is_ours: matches!(contender, Contender::Outboxd | Contender::OutboxdIdOnly),
        };
        // A bare producer is not slowed down by any database: beside it nothing else could be told apart.
        let shown = |contender: &Contender| *contender != Contender::Producer;
        let groups = self.laps.iter().map(|(workload, contenders)| plot::Group {
            title: workload.describe(),
            bars: contenders.iter().filter(|(contender, _)| shown(contender)).map(bar).collect(),
        });
        plot::svg(&groups.collect::<Vec<_>>())
    }
}

fn rate(laps: &[Lap]) -> Spread {
    Spread::of(laps, Lap::events_per_second)
}

/// A median, and the lowest and highest around it.
struct Spread {
    median: f64,
    lowest: f64,
    highest: f64,
}

impl Spread {
    fn of<T>(laps: &[T], figure: impl Fn(&T) -> f64) -> Spread {
        let mut figures: Vec<f64> = laps.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let (lowest, highest) = (figures[0], figures[figures.len() - 1]);
        Spread { median: figures[figures.len() / 2], lowest, highest }
    }

    fn show(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.lowest, self.highest)
    }
}
