//! The table: medians with their spread, and ratios inside the run.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::contender::{Contender, Lap};
use crate::meter::Part;
use crate::workload::Workload;

/// Every lap.
#[derive(Default)]
pub struct Report {
    laps: BTreeMap<Workload, BTreeMap<Contender, Vec<Lap>>>,
}

impl Report {
    /// A lap was run.
    pub fn add(&mut self, workload: Workload, contender: Contender, lap: Lap) {
        self.laps.entry(workload).or_default().entry(contender).or_default().push(lap);
    }

    /// The table of every workload.
    pub fn finish(&self) -> String {
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
        text
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
    fn of(laps: &[Lap], figure: impl Fn(&Lap) -> f64) -> Spread {
        let mut figures: Vec<f64> = laps.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let (lowest, highest) = (figures[0], figures[figures.len() - 1]);
        Spread { median: figures[figures.len() / 2], lowest, highest }
    }

    fn show(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.lowest, self.highest)
    }
}
