//! What happened: every fault, every verdict, memory; as a line while it runs, as a table at the end.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::faults::{Announced, Cause, Fault, Side, Wire};
use crate::support::oracle::Verdict;
use crate::watch::Memory;

/// True for the faults that count under some name.
type Kind = fn(Fault) -> bool;

/// What an hour must have thirty of.
const WANTED: [(&str, Kind); 8] = [
    ("relay SIGKILL", |fault| fault == Fault::RelayKill),
    ("relay SIGTERM", |fault| fault == Fault::RelayTerm),
    ("PostgreSQL crash", |fault| fault == Fault::PostgresCrash),
    ("PostgreSQL fast stop", |fault| fault == Fault::PostgresFast),
    ("broker kill", |fault| fault == Fault::BrokerKill),
    ("broker pause", |fault| fault == Fault::BrokerPause),
    ("half-open", |fault| matches!(fault, Fault::Wire(_, Wire::HalfOpen))),
    ("both sides cut", |fault| fault == Fault::Wire(Side::Both, Wire::Cut)),
];

/// How a soak ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    InTime,
    /// In the middle of a fault.
    Broken,
}

/// A fault that struck and was lifted.
#[derive(Debug)]
pub struct Struck {
    pub fault: Fault,
    /// All that struck in the same turn.
    pub together: String,
    /// These, and those of the turn before when they were not over, numbered: what repeats are put down to.
    pub cause: String,
    /// What the relays said would be sent again.
    pub announced: Announced,
    pub lasted: Duration,
    /// How long it took to strike.
    pub in_force_after: Duration,
    /// Until events committed after it were readable; `None` when that took too long.
    pub recovery: Option<Duration>,
    /// Until both relays were ready after that; `None` when that took too long.
    pub ready_again: Option<Duration>,
    /// What `/readyz` said of it, and how long after the strike.
    pub told: BTreeMap<String, Duration>,
    /// What `/readyz` and a metric had to show of it, if they had to.
    pub due: Option<Due>,
    /// Whether the session that it ended was counted, if it ended one.
    pub counted: Option<bool>,
}

/// A fault stopped events for longer than readiness may be wrong about it.
#[derive(Debug)]
pub struct Due {
    /// The reasons of which one had to be given.
    pub reasons: Vec<&'static str>,
    /// By then.
    pub within: Duration,
    /// A metric has moved.
    pub moved: bool,
}

impl Struck {
    /// It had to show, and readiness did not say so in time or no metric has moved.
    fn was_hidden(&self) -> bool {
        self.due.as_ref().is_some_and(|due| {
            let mut told = due.reasons.iter().filter_map(|reason| self.told.get(*reason));
            !(due.moved && told.any(|after| *after <= self.in_force_after + due.within))
        })
    }

    fn is_one_of_two(&self) -> bool {
        self.together.contains(" + ")
    }

    /// Events, or readiness, did not come back in time.
    pub fn is_stuck(&self) -> bool {
        self.recovery.is_none() || self.ready_again.is_none()
    }
}

/// A round that was judged.
pub struct Judged {
    pub relay: Verdict,
    pub survivor: Verdict,
    /// How long the rest took to arrive; `None` when it did not within the time that liveness allows.
    pub drained: Option<Duration>,
    /// What both relays said, when it did not.
    pub unfinished: Option<String>,
}

/// The sums of all rounds.
#[derive(Debug, Default)]
struct Total {
    rounds: usize,
    committed: usize,
    lost: usize,
    reordered: usize,
    phantoms: usize,
    overtaken: usize,
    /// Confirmed positions that were held against the events, in the round that had fewest.
    samples: usize,
    /// The events of the key that had fewest in any round.
    fewest_per_key: usize,
    violations: usize,
    unfinished: usize,
    slowest_drain: Duration,
    /// Of the relay that is killed, by the faults that were last.
    duplicates: BTreeMap<String, usize>,
    /// Of the one that is not.
    survivor_duplicates: BTreeMap<String, usize>,
}

/// The book that is kept.
pub struct Report {
    seed: u64,
    rate: f64,
    directory: PathBuf,
    story: File,
    struck: Vec<Struck>,
    total: Total,
    /// The survivor's, around the tenth minute and at the end.
    memory: [u64; 2],
    elapsed: Duration,
}

impl Report {
    /// Starts a new book.
    pub fn new(seed: u64, rate: f64) -> Report {
        let directory = crate::directory();
        let story = File::create(directory.join("story.log")).unwrap();
        // What an earlier run left must not be taken for this one's.
        for earlier in ["relays.log", "report.md"] {
            fs::remove_file(directory.join(earlier)).ok();
        }
        eprintln!("soak seed {seed}; every fault is told in {}", directory.join("story.log").display());
        Report {
            seed,
            rate,
            directory,
            story,
            struck: Vec::new(),
            total: Total::default(),
            memory: [0; 2],
            elapsed: Duration::ZERO,
        }
    }

    /// A fault was lifted, and events flow again.
    pub fn add(&mut self, struck: Struck) {
        let Struck { fault, cause, lasted, recovery, ready_again, told, due, announced, counted, .. } = &struck;
        let ended = format!("lasted {lasted:.1?}, recovered in {recovery:.1?}, ready {ready_again:.1?} later");
        let seen = format!("told {told:.1?}, due {due:?}, counted {counted:?}, {announced:?}");
        writeln!(self.story, "{} {fault} [{cause}] {ended}, {seen}", now()).unwrap();
        self.struck.push(struck);
    }

    /// True when the last fault was not recovered from.
    pub fn is_stuck(&self) -> bool {
        self.struck.last().is_some_and(Struck::is_stuck)
    }

    /// A round ended.
    pub fn judge(&mut self, judged: Judged) {
        let total = &mut self.total;
        let least = |known: usize, now: usize| if total.rounds == 0 { now } else { known.min(now) };
        total.samples = least(total.samples, judged.relay.samples.min(judged.survivor.samples));
        total.fewest_per_key = least(total.fewest_per_key, judged.relay.fewest_per_key);
        total.rounds += 1;
        total.committed += judged.relay.committed;
        total.unfinished += usize::from(judged.drained.is_none());
        total.slowest_drain = total.slowest_drain.max(judged.drained.unwrap_or_default());
        for (name, verdict, duplicates) in [
            ("relay", &judged.relay, &mut total.duplicates),
            ("survivor", &judged.survivor, &mut total.survivor_duplicates),
        ] {
            total.lost += verdict.lost;
            total.reordered += verdict.reordered;
            total.phantoms += verdict.phantoms;
            total.overtaken += verdict.overtaken;
            total.violations += verdict.violations.len();
            for (cause, count) in &verdict.duplicates_by_cause {
                *duplicates.entry(cause.clone()).or_default() += count;
            }
            writeln!(self.story, "{} round {}, {name}: {verdict}", now(), total.rounds).unwrap();
            if !verdict.violations.is_empty() {
                eprintln!("round {}, {name}: {verdict}", total.rounds);
            }
        }
        if let Some(log) = judged.unfinished {
            writeln!(self.story, "not all of it arrived; the relays say:\n{log}").unwrap();
        }
    }

    /// One line, now and then, for whoever watches.
    pub fn progress(&self, elapsed: Duration, events: usize, memory: &Memory) {
        let Total { lost, reordered, rounds, .. } = self.total;
        let (minutes, seconds, faults) = (elapsed.as_secs() / 60, elapsed.as_secs() % 60, self.struck.len());
        let last = self.struck.last().map(|struck| struck.together.as_str()).unwrap_or_default();
        eprintln!(
            "{minutes:02}:{seconds:02}  faults {faults}  events {events}  judged rounds {rounds}: lost {lost} \
             reordered {reordered}  survivor {} MB  last: {last}",
            megabytes(memory.last())
        );
    }

    /// Makes the table, prints it, and writes it to `report.md`.
    pub fn finish(mut self, elapsed: Duration, memory: Memory, ended: Ended) -> Report {
        (self.memory, self.elapsed) = (memory.early_and_late(), elapsed);
        let mut table = self.render(&memory);
        if ended == Ended::Broken {
            table += "\n**The soak broke off**: the sums are those of the rounds that were judged until then.\n";
        }
        fs::write(self.directory.join("report.md"), &table).unwrap();
        eprintln!("{table}");
        self
    }

    /// Fails the test when a promise was broken, or nothing was tried.
    #[track_caller]
    pub fn assert_nothing_broken(&self) {
        let Total { committed, violations, unfinished, .. } = self.total;
        assert!(committed > 1000 && !self.struck.is_empty(), "too little happened to say anything");
        assert!(self.total.samples > 0, "in some round no confirmed position was seen");
        let broken = (violations, self.unexplained(), unfinished, self.hidden() + self.uncounted(), self.stuck());
        assert_eq!(broken, (0, vec![], 0, 0, 0), "see {}", self.directory.join("story.log").display());
    }

    /// Fails the test when it took this long and says little all the same.
    #[track_caller]
    pub fn assert_enough_was_tried(&self, minutes: f64) {
        let rate = self.events_per_second();
        assert!(rate >= 0.9 * self.rate, "only {rate:.0} events a second were written");
        assert!(
            self.total.fewest_per_key >= 100,
            "too few events to judge order, a key has {}",
            self.total.fewest_per_key
        );
        if minutes >= 20.0 {
            let [early, late] = self.memory;
            assert!(late <= early + early / 10, "the survivor grew from {early} to {late} bytes");
        }
        if minutes >= 60.0 {
            assert!(self.struck.len() >= 500, "only {} faults", self.struck.len());
            assert!(self.must_show() >= 30, "only {} faults had to show", self.must_show());
            for (name, is_it) in WANTED {
                let times = self.struck.iter().filter(|struck| is_it(struck.fault)).count();
                assert!(times >= 30, "{name}: only {times}");
            }
        }
    }

    fn events_per_second(&self) -> f64 {
        self.total.committed as f64 / self.elapsed.as_secs_f64()
    }

    fn stuck(&self) -> usize {
        self.struck.iter().filter(|struck| struck.is_stuck()).count()
    }

    fn must_show(&self) -> usize {
        self.struck.iter().filter(|struck| struck.due.is_some()).count()
    }

    fn hidden(&self) -> usize {
        self.struck.iter().filter(|struck| struck.was_hidden()).count()
    }

    fn uncounted(&self) -> usize {
        self.struck.iter().filter(|struck| struck.counted == Some(false)).count()
    }

    /// Turns after which more was repeated than may be, with how much.
    fn unexplained(&self) -> Vec<String> {
        let announced: BTreeMap<&str, Announced> =
            self.struck.iter().map(|struck| (struck.cause.as_str(), struck.announced)).collect();
        let announced = |cause: &str| announced.get(cause).copied().unwrap_or_default();
        let own = self.total.duplicates.iter();
        let own = own.filter(|(cause, count)| !Cause::read(cause).is_unlimited() && **count > announced(cause).relay);
        let survivors = self.total.survivor_duplicates.iter();
        let survivors = survivors.filter(|(cause, count)| **count > announced(cause).survivor);
        let own = own.map(|(cause, count)| format!("{cause} {count}"));
        own.chain(survivors.map(|(cause, count)| format!("{cause} {count} (survivor)"))).collect()
    }

    fn render(&self, memory: &Memory) -> String {
        let mut kinds = BTreeMap::<Fault, Vec<&Struck>>::new();
        self.struck.iter().for_each(|struck| kinds.entry(struck.fault).or_default().push(struck));
        let mut text = String::from(
            "| fault | times | recovery p50 | p99 | ready again after that, p99 | `/readyz` said so | reasons seen |\n\
             |---|---:|---:|---:|---:|---:|---|\n",
        );
        for (fault, struck) in &kinds {
            let times = struck.len();
            let told = struck.iter().filter(|struck| !struck.told.is_empty()).count();
            let [median, worst, ready] = times_of(struck);
            let reasons = reasons(struck);
            writeln!(text, "| {fault} | {times} | {median:.1?} | {worst:.1?} | {ready:.1?} | {told} | {reasons} |")
                .unwrap();
        }
        let all: Vec<&Struck> = self.struck.iter().collect();
        let ([median, worst, ready], times) = (times_of(&all), all.len());
        writeln!(text, "| **all** | **{times}** | {median:.1?} | {worst:.1?} | {ready:.1?} | | |\n").unwrap();
        self.render_sums(&mut text, memory);
        text
    }

    fn render_sums(&self, text: &mut String, memory: &Memory) {
        let total = &self.total;
        let survivors = total.survivor_duplicates.values().sum::<usize>();
        let own = total.duplicates.values().sum::<usize>();
        let is_death = |cause: &str| Cause::read(cause).is_sudden_death();
        let by_death = total.duplicates.iter().filter(|(cause, _)| is_death(cause)).map(|(_, n)| n).sum::<usize>();
        let deaths = self.struck.iter().filter(|struck| is_death(&struck.fault.to_string())).count();
        let pairs = self.struck.iter().filter(|struck| struck.is_one_of_two()).count();
        let events = self.events_per_second();
        let [early, late] = self.memory.map(megabytes);
        let odd = self.unexplained().join(", ");
        let lines = [
            format!("- seed {}, {:.1} minutes, {} rounds", self.seed, self.elapsed.as_secs_f64() / 60.0, total.rounds),
            format!("- faults {}, of these {pairs} in pairs", self.struck.len()),
            format!(
                "- events {}, {events:.0} a second of {} asked for, each carried by two relays",
                total.committed, self.rate
            ),
            format!(
                "- duplicates of the relay: {own}; after its {deaths} sudden deaths {by_death}, {} for each",
                by_death / deaths.max(1)
            ),
            format!("- by cause: {}", causes(&total.duplicates)),
            format!(
                "- duplicates of the survivor, whose process nobody touched: {survivors}; by cause: {}",
                causes(&total.survivor_duplicates)
            ),
            format!(
                "- turns with more duplicates than the relays had announced, deaths apart: {}",
                if odd.is_empty() { "none" } else { &odd }
            ),
            format!(
                "- after the faults of a round the rest had arrived and was confirmed within {:.1?} at most",
                total.slowest_drain
            ),
            format!(
                "- highest RSS: relay {} MB, survivor {} MB",
                megabytes(memory.highest().0),
                megabytes(memory.highest().1)
            ),
            format!(
                "- the survivor's lowest RSS of a minute, median of five: from the tenth {early} MB, at the end {late} MB"
            ),
            format!("- stuck {}, rounds that did not finish {}", self.stuck(), total.unfinished),
            format!(
                "- faults that `/readyz` had to name and a metric to show {}; not so in time {}",
                self.must_show(),
                self.hidden()
            ),
            format!(
                "- sessions that a fault ended at once {}; not counted by a metric {}",
                self.struck.iter().filter(|struck| struck.counted.is_some()).count(),
                self.uncounted()
            ),
            format!("- phantoms {}, confirmed too early {}", total.phantoms, total.overtaken),
            format!("- lost {}", total.lost),
            format!("- reordered {}", total.reordered),
        ];
        text.push_str(&lines.join("\n"));
        text.push('\n');
    }
}

/// Median and 99th percentile of recovery, and the latter of readiness.
fn times_of(struck: &[&Struck]) -> [Duration; 3] {
    let recovery = |struck: &Struck| struck.recovery;
    let ready_again = |struck: &Struck| struck.ready_again;
    [percentile(struck, recovery, 0.5), percentile(struck, recovery, 0.99), percentile(struck, ready_again, 0.99)]
}

fn percentile(struck: &[&Struck], time: impl Fn(&Struck) -> Option<Duration>, p: f64) -> Duration {
    let mut times: Vec<Duration> = struck.iter().map(|struck| time(struck).unwrap_or(Duration::MAX)).collect();
    times.sort_unstable();
    times.get((times.len().saturating_sub(1) as f64 * p).round() as usize).copied().unwrap_or_default()
}

/// The reasons by how many of the faults showed them.
fn reasons(struck: &[&Struck]) -> String {
    let mut seen = BTreeMap::<&str, usize>::new();
    struck.iter().flat_map(|struck| struck.told.keys()).for_each(|code| *seen.entry(code).or_default() += 1);
    seen.iter().map(|(code, times)| format!("{code} {times}")).collect::<Vec<_>>().join(", ")
}

/// All turns of one name together.
fn causes(duplicates: &BTreeMap<String, usize>) -> String {
    let mut names = BTreeMap::<&str, usize>::new();
    duplicates.iter().for_each(|(cause, count)| *names.entry(Cause::unnumbered(cause)).or_default() += count);
    let mut causes: Vec<(&str, usize)> = names.into_iter().collect();
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let causes: Vec<String> = causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    if causes.is_empty() { "no causes".to_string() } else { causes.join(", ") }
}

fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}

fn now() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}
