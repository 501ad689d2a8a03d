//! The tables: medians with their spread, and ratios inside the run.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

use crate::contender::{Contender, Lap};
use crate::debezium::Tuning;
use crate::demands::Demands;
use crate::meter::Part;
use crate::place;
use crate::plot;
use crate::steady::{Carrier, Latency};
use crate::workload::Workload;

/// Laps over one backlog.
pub type Laps = BTreeMap<Contender, Vec<Lap>>;
/// What was measured at one steady rate.
pub type Latencies = BTreeMap<Carrier, Vec<Latency>>;

/// Every lap, and every measurement at a steady rate.
#[derive(Default)]
pub struct Report {
    pub laps: BTreeMap<Workload, Laps>,
    pub latencies: BTreeMap<u64, Latencies>,
    pub growth: BTreeMap<Size, Vec<Lap>>,
    /// The relay's highest memory in every lap, counted or not, in megabytes.
    pub peaks: Vec<f64>,
    /// Parts that broke off: their rounds are fewer.
    pub failed: Vec<String>,
}

/// Backlogs of different sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    Usual,
    TenTimes,
    /// Twice the usual, in one transaction.
    AtOnce,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Size::Usual => "the usual backlog",
            Size::TenTimes => "ten times the usual",
            Size::AtOnce => "twice the usual, in one transaction",
        })
    }
}

impl Report {
    /// A lap was run that is not counted.
    pub fn warmed_up(&mut self, contender: Contender, lap: &Lap) {
        if contender.is_ours() {
            self.peaks.push(lap.peak_megabytes());
        }
    }

    /// A lap was run.
    pub fn add(&mut self, workload: Workload, contender: Contender, lap: Lap) {
        self.warmed_up(contender, &lap);
        self.laps.entry(workload).or_default().entry(contender).or_default().push(lap);
    }

    /// A steady rate was measured.
    pub fn add_latency(&mut self, rate: u64, carrier: Carrier, latency: Latency) {
        if carrier == Carrier::Outboxd {
            self.peaks.push(latency.peak_megabytes);
        }
        self.latencies.entry(rate).or_default().entry(carrier).or_default().push(latency);
    }

    /// Laps of outboxd over a backlog of this size.
    pub fn add_growth(&mut self, size: Size, lap: Lap) {
        self.warmed_up(Contender::Outboxd, &lap);
        self.growth.entry(size).or_default().push(lap);
    }

    /// All tables, in Markdown.
    pub fn tables(&self) -> String {
        let mut text = format!("{}\n\n{}", place::describe(), Demands::of(self).table());
        if !self.failed.is_empty() {
            writeln!(text, "\nBroke off, and may have fewer rounds: {}.", self.failed.join(", ")).unwrap();
        }
        for (workload, contenders) in &self.laps {
            let rounds = contenders.values().map(Vec::len).min().unwrap_or(0);
            writeln!(text, "\n### {}, {rounds} rounds\n", workload.describe()).unwrap();
            text.push_str(
                "| who | events/s | × `pg_recvlogical`, binary | × Debezium, tuned | × the same, once warm | its CPU s per \
                 million | walsender's | broker's | peak RSS |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            );
            let rivals = [Contender::RecvBinary, Contender::Debezium(Tuning::Backlog), Contender::DebeziumWarm];
            for (contender, laps) in contenders {
                let ratios = rivals
                    .map(|rival| contenders.get(&rival).map_or(String::new(), |rival| faster(laps, rival).show(2)));
                writeln!(
                    text,
                    "| {contender} | {} | {} | {} | {} |",
                    rate(laps).show(0),
                    ratios.join(" | "),
                    costs(laps, Lap::cpu_per_million, 1),
                    Spread::of(laps, Lap::peak_megabytes).show(0) + " MB"
                )
                .unwrap();
            }
        }
        self.write_latencies(&mut text);
        self.write_growth(&mut text);
        text
    }

    fn write_latencies(&self, text: &mut String) {
        for (rate, carriers) in &self.latencies {
            let rounds = carriers.values().map(Vec::len).min().unwrap_or(0);
            let title = format!(
                "{rate} transactions of one row a second: milliseconds from when each was sent, and when it was due, to a consumer"
            );
            writeln!(text, "\n### {title}, {rounds} rounds\n").unwrap();
            text.push_str(
                "| who | p50 | p99 | p99.9 | max | since due, p50 | p99 | p99.9 | sent a second | came a second | \
                 its CPU s per million | walsender's | broker's | peak RSS |\n\
                 |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            );
            for (carrier, latencies) in carriers {
                let figure = |figure: fn(&Latency) -> f64, digits| Spread::of(latencies, figure).show(digits);
                let used = match carrier {
                    // It runs inside of the harness, whose own work cannot be told apart.
                    Carrier::Bare => "– | – | – | –".to_owned(),
                    Carrier::Outboxd | Carrier::Debezium => format!(
                        "{} | {} MB",
                        costs(latencies, |latency, part| latency.cpu[part as usize], 1),
                        figure(|latency| latency.peak_megabytes, 0)
                    ),
                };
                writeln!(
                    text,
                    "| {carrier} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {used} |",
                    figure(|latency| latency.sent_at.p50, 1),
                    figure(|latency| latency.sent_at.p99, 1),
                    figure(|latency| latency.sent_at.p999, 1),
                    figure(|latency| latency.sent_at.max, 0),
                    figure(|latency| latency.due.p50, 1),
                    figure(|latency| latency.due.p99, 1),
                    figure(|latency| latency.due.p999, 1),
                    figure(|latency| latency.sent, 0),
                    figure(|latency| latency.read, 0),
                )
                .unwrap();
            }
        }
    }

    fn write_growth(&self, text: &mut String) {
        if self.growth.is_empty() {
            return;
        }
        text.push_str(
            "\n### outboxd over backlogs of different sizes, 500-byte events, else in transactions of 1,000 rows\n\n",
        );
        text.push_str(
            "| backlog | events/s | its CPU s per million | walsender's | broker's | peak RSS |\n|---|---:|---:|---:|---:|---:|\n",
        );
        for (size, laps) in &self.growth {
            let cpu = costs(laps, Lap::cpu_per_million, 2);
            let peak = Spread::of(laps, Lap::peak_megabytes).show(0);
            writeln!(text, "| {size} | {} | {} | {peak} MB |", rate(laps).show(0), cpu).unwrap();
        }
    }

    /// Events a second as bars, one group for each workload.
    pub fn plot(&self) -> String {
        let bar = |(contender, laps): (&Contender, &Vec<Lap>)| plot::Bar {
            label: contender.to_string(),
            value: rate(laps).median,
            low: rate(laps).lowest,
            high: rate(laps).highest,
            is_ours: contender.is_ours(),
        };
        // A bare producer is not slowed down by any database: beside it nothing else could be told apart.
        let shown = |contender: &Contender| !matches!(contender, Contender::Producer | Contender::ProducerIdOnly);
        let groups = self.laps.iter().map(|(workload, contenders)| plot::Group {
            title: workload.describe(),
            bars: contenders.iter().filter(|(contender, _)| shown(contender)).map(bar).collect(),
        });
        plot::svg(&groups.collect::<Vec<_>>())
    }
}

/// What each part has cost, one cell after the other.
fn costs<T>(laps: &[T], cost: impl Fn(&T, Part) -> f64, digits: usize) -> String {
    Part::ALL.map(|part| Spread::of(laps, |lap| cost(lap, part)).show(digits)).join(" | ")
}

fn rate(laps: &[Lap]) -> Spread {
    Spread::of(laps, Lap::events_per_second)
}

/// How many times as fast, lap by lap: the machine's mood is the same in one round.
pub fn faster(laps: &[Lap], rivals: &[Lap]) -> Spread {
    Spread::of_ratios(laps, rivals, Lap::events_per_second)
}

/// How many times as much of the relay's own processor, lap by lap.
pub fn dearer(laps: &[Lap], rivals: &[Lap]) -> Spread {
    Spread::of_ratios(laps, rivals, |lap| lap.cpu_per_million(Part::Contender))
}

/// A median, and the lowest and highest around it.
pub struct Spread {
    pub median: f64,
    lowest: f64,
    pub highest: f64,
}

impl Spread {
    /// Of one figure, over all laps.
    pub fn of<T>(laps: &[T], figure: impl Fn(&T) -> f64) -> Spread {
        let mut figures: Vec<f64> = laps.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let (lowest, highest) = (figures[0], figures[figures.len() - 1]);
        let median = (figures[(figures.len() - 1) / 2] + figures[figures.len() / 2]) / 2.0;
        Spread { median, lowest, highest }
    }

    /// Of the ratio of a figure to a rival's of the same round.
    pub fn of_ratios<T>(laps: &[T], rivals: &[T], figure: impl Fn(&T) -> f64) -> Spread {
        let ratios: Vec<f64> = laps.iter().zip(rivals).map(|(lap, rival)| figure(lap) / figure(rival)).collect();
        Spread::of(&ratios, |ratio| *ratio)
    }

    /// As `1.23 (1.20–1.31)`.
    pub fn show(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.lowest, self.highest)
    }
}
