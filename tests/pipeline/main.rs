//! A seeded simulation of the whole pipeline: a scripted walsender, a scripted broker, a virtual clock, one oracle.
//!
//! Every history comes from one number. A failure prints it with the command that replays it. Whatever a history must hold
//! to is `promised!`; any other panic is a defect of the simulation itself.

#![allow(clippy::unwrap_used)]

/// A promise was broken: the history ends.
macro_rules! broken {
    ($($words:tt)+) => { panic!("broken promise: {}", format_args!($($words)+)) };
}

/// Fails unless a promise was held.
macro_rules! promised {
    ($held:expr, $($words:tt)+) => { assert!($held, "broken promise: {}", format_args!($($words)+)) };
}

mod broker;
mod dice;
#[path = "../support/oracle.rs"]
#[allow(dead_code, reason = "other tests judge whole histories")]
mod oracle;
mod relay;
mod rows;
mod rules;
mod server;
mod store;
mod world;

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dice::Dice;
use oracle::UNDISTURBED;
use world::{Plan, World};

/// Histories in an ordinary run; `OUTBOXD_SEEDS` asks for more, from `OUTBOXD_FIRST_SEED` on; `OUTBOXD_SEED` for one.
const SEEDS: u64 = 10_000;
/// What misfortunes must have led to, each in one of a hundred histories at the least.
const FELT: [&str; 41] = [
    "answer lost",
    "batch stalled",
    "commit undone",
    "delivery failed",
    "delivery forbidden",
    "event parked",
    "event refused",
    "frames abandoned",
    "frames cut off",
    "frames held up",
    "keepalive inside a transaction",
    "lease lost",
    "letter delivered",
    "letter discarded",
    "letters relocated",
    "line stood",
    "orphan landed",
    "parked behind",
    "payload before its event",
    "payload behind its event",
    "payload given up",
    "payload missing",
    "predecessor seen dead",
    "predecessor waited for",
    "producer astray",
    "producer broken",
    "purged record landed",
    "queue full",
    "reload waited",
    "reload while a delivery is mended",
    "reload while letters are open",
    "remark shown",
    "rules changed inside a transaction",
    "slot went back",
    "status not heard",
    "table described anew",
    "trial given up",
    "trial refused",
    "write-back blocked",
    "write-back not heard",
    "write-back of another history",
];
/// Who asks for more than so many wants to know how far they are.
const LONG: u64 = 100_000;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

#[test]
fn nothing_is_lost_reordered_or_repeated_without_cause_in_any_history() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("OUTBOXD_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("OUTBOXD_FIRST_SEED").unwrap_or(0);
            first..first + number("OUTBOXD_SEEDS").unwrap_or(SEEDS)
        }
    };
    println!("histories {seeds:?}");
    let many = seeds.end - seeds.start >= SEEDS;
    let search = Search { seeds, failed: AtomicBool::new(false), done: AtomicU64::new(0) };
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let total = std::thread::scope(|scope| {
        let search = &search;
        let shares: Vec<_> = (0..threads).map(|thread| scope.spawn(move || search.share(thread, threads))).collect();
        let shares = shares.into_iter().map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic)));
        shares.fold(Tally::default(), Tally::add)
    });
    let took = begun.elapsed();
    println!("{total:?} in {took:.1?}");
    // A mutant that nobody catches must say so, however long it takes.
    if total.histories as u64 == SEEDS && cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(60), "every test run waits for this");
    }
    if many {
        // What is delivered in peace has met no misfortune, and one that leads to nothing has not struck.
        assert!(total.open_at_peace * 3 < total.committed * 2, "most of it was delivered in peace");
        let rare = |effect: &&str| total.felt.get(*effect).is_none_or(|histories| histories * 100 < total.histories);
        let rare: Vec<&str> = FELT.into_iter().filter(rare).collect();
        assert_eq!((rare.as_slice(), total.rejected > 0, total.clean_stops > 0), (&[][..], true, true), "{total:?}");
    }
}

/// The histories that are looked at; the first failure ends the search.
struct Search {
    seeds: Range<u64>,
    failed: AtomicBool,
    done: AtomicU64,
}

impl Search {
    /// What one of so many threads finds.
    fn share(&self, thread: usize, threads: usize) -> Tally {
        let all = self.seeds.end - self.seeds.start;
        let begun = Instant::now();
        let mut told = begun;
        let mut tally = Tally::default();
        for seed in self.seeds.clone().skip(thread).step_by(threads) {
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            let found = catch_unwind(|| history(seed)).unwrap_or_else(|panic| {
                self.failed.store(true, Ordering::Relaxed);
                resume_unwind(panic)
            });
            tally = tally.add(found);
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            if all > LONG && thread == 0 && told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                eprintln!("{done} of {all} histories, {:.0} a second", done as f64 / begun.elapsed().as_secs_f64());
            }
        }
        tally
    }
}

/// What happened in all histories together.
#[derive(Debug, Default)]
struct Tally {
    histories: usize,
    committed: usize,
    open_at_peace: usize,
    offers: u64,
    rejected: u64,
    stops: usize,
    clean_stops: usize,
    /// In how many histories each effect was felt.
    felt: BTreeMap<&'static str, usize>,
    duplicates: BTreeMap<String, usize>,
}

impl Tally {
    fn add(mut self, other: Tally) -> Tally {
        for (cause, count) in other.duplicates {
            *self.duplicates.entry(cause).or_default() += count;
        }
        for (effect, histories) in other.felt {
            *self.felt.entry(effect).or_default() += histories;
        }
        Tally {
            histories: self.histories + other.histories,
            committed: self.committed + other.committed,
            open_at_peace: self.open_at_peace + other.open_at_peace,
            offers: self.offers + other.offers,
            rejected: self.rejected + other.rejected,
            stops: self.stops + other.stops,
            clean_stops: self.clean_stops + other.clean_stops,
            felt: self.felt,
            duplicates: self.duplicates,
        }
    }
}

fn history(seed: u64) -> Tally {
    let plan = Plan::roll(&mut Dice::new(!seed));
    let mut world = World::new(seed, plan, None);
    let verdict = catch_unwind(AssertUnwindSafe(|| {
        world.run();
        let verdict = world.verdict();
        promised!(verdict.violations.is_empty(), "{verdict}");
        promised!(!verdict.duplicates_by_cause.contains_key(UNDISTURBED), "repeats without a cause: {verdict}");
        verdict
    }));
    let verdict = verdict.unwrap_or_else(|panic| {
        // The same again, and this time somebody writes it down.
        let mut world = World::new(seed, plan, Some(Vec::new()));
        catch_unwind(AssertUnwindSafe(|| world.run())).ok();
        eprintln!("{}\n{plan:?}", world.log().join("\n"));
        eprintln!("{}", reason(&*panic));
        eprintln!("replay it: OUTBOXD_SEED={seed} cargo test --test pipeline -- --nocapture");
        resume_unwind(panic);
    });
    let outside = &world.outside;
    Tally {
        histories: 1,
        committed: verdict.committed,
        open_at_peace: world.open_at_peace,
        offers: outside.cluster.offers,
        rejected: outside.rejected,
        stops: outside.stops.len(),
        clean_stops: outside.stops.iter().filter(|repeats| **repeats == 0).count(),
        felt: outside.cluster.felt.union(&outside.server.shown).map(|effect| (*effect, 1)).collect(),
        duplicates: verdict.duplicates_by_cause,
    }
}

/// The first line of what a panic says.
fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("a panic without words")
}
