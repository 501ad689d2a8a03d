//! What a run costs: processor time and memory of the processes that take part, read from `/proc` while they run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Part {
    Contender,
    Walsender,
    Broker,
}

impl Part {
    /// All of them, in the order of the tables.
    pub const ALL: [Part; 3] = [Part::Contender, Part::Walsender, Part::Broker];
}

/// What each has used.
#[derive(Debug, Clone, Default)]
pub struct Used {
    /// Seconds of processor time since the meter started.
    pub cpu_seconds: BTreeMap<Part, f64>,
    /// The contender's highest resident memory, in bytes.
    pub peak_bytes: u64,
}

impl Used {
    /// What a million events cost, in seconds of processor time, when so many cost this.
    pub fn cpu_per_million(&self, part: Part, events: u64) -> f64 {
        self.cpu_seconds.get(&part).copied().unwrap_or(0.0) * 1e6 / events as f64
    }

    /// The contender's highest memory, in megabytes.
    pub fn peak_megabytes(&self) -> f64 {
        self.peak_bytes as f64 / 1e6
    }

    /// What was used since another moment.
    pub fn since(&self, other: &Used) -> Used {
        let less = |(part, seconds): (&Part, &f64)| (*part, seconds - other.cpu_seconds.get(part).unwrap_or(&0.0));
        Used { cpu_seconds: self.cpu_seconds.iter().map(less).collect(), peak_bytes: self.peak_bytes }
    }
}

/// Looks at processes until it is read.
pub struct Meter {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    watched: Mutex<Vec<Watched>>,
}

struct Watched {
    part: Part,
    pid: u32,
    /// When the watch began, and last.
    first: f64,
    last: f64,
    peak_bytes: u64,
}

impl Meter {
    /// Starts to look.
    pub fn start() -> Meter {
        let shared = Arc::<Shared>::default();
        let looking = shared.clone();
        let thread = std::thread::spawn(move || {
            while !looking.over.load(Ordering::Relaxed) {
                looking.look();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Meter { shared, thread }
    }

    /// Watches a process that has just been started: it owes all that it has used.
    pub fn watch(&self, part: Part, pid: u32) {
        self.watch_since(part, pid, 0.0);
    }

    /// Watches a process that runs already.
    pub fn watch_from_now(&self, part: Part, pid: u32) {
        self.watch_since(part, pid, cpu_seconds(pid).unwrap_or(0.0));
    }

    fn watch_since(&self, part: Part, pid: u32, first: f64) {
        self.shared.watched.lock().unwrap().push(Watched { part, pid, first, last: first, peak_bytes: 0 });
    }

    /// What was used until now.
    pub fn used(&self) -> Used {
        self.shared.look();
        let mut used = Used::default();
        for watched in self.shared.watched.lock().unwrap().iter() {
            *used.cpu_seconds.entry(watched.part).or_default() += watched.last - watched.first;
            if watched.part == Part::Contender {
                used.peak_bytes += watched.peak_bytes;
            }
        }
        used
    }

    /// The same, at the end.
    pub fn read(self) -> Used {
        let used = self.used();
        self.shared.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        used
    }
}

impl Shared {
    fn look(&self) {
        for watched in self.watched.lock().unwrap().iter_mut() {
            watched.last = cpu_seconds(watched.pid).unwrap_or(watched.last);
            watched.peak_bytes = peak_bytes(watched.pid).unwrap_or(watched.peak_bytes);
        }
    }
}

/// Processor time of a process so far; `None` when it is gone.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // User and system time, in the kernel's hundredths of a second.
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// The highest resident memory of a process so far; `None` when it is gone.
fn peak_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}
