//! A seeded simulation of the whole pipeline: a scripted walsender, a scripted broker, a virtual clock, one oracle.
//!
//! Every history comes from one number. A failure prints it with the command that replays it.

#![allow(clippy::unwrap_used)]

mod broker;
mod dice;
mod server;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use dice::Dice;
use world::{Plan, World};

/// Histories in an ordinary run; `OUTBOXD_SEEDS` asks for more, `OUTBOXD_SEED` for one.
const SEEDS: u64 = 2000;

#[test]
fn nothing_is_lost_reordered_or_repeated_without_cause_in_any_history() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("OUTBOXD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OUTBOXD_SEEDS").unwrap_or(SEEDS),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let share = |thread| {
            let seeds = seeds.clone().skip(thread).step_by(threads);
            scope.spawn(move || seeds.map(history).fold(Tally::default(), Tally::add))
        };
        let shares: Vec<_> = (0..threads).map(share).collect();
        let total = shares.into_iter().map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic)));
        println!("{:?}", total.fold(Tally::default(), Tally::add));
    });
}

/// What happened in all histories together.
#[derive(Debug, Default)]
struct Tally {
    events: u64,
    offers: u64,
    rejected: u64,
    stops: u64,
    clean_stops: u64,
}

impl Tally {
    fn add(self, other: Tally) -> Tally {
        Tally {
            events: self.events + other.events,
            offers: self.offers + other.offers,
            rejected: self.rejected + other.rejected,
            stops: self.stops + other.stops,
            clean_stops: self.clean_stops + other.clean_stops,
        }
    }
}

fn history(seed: u64) -> Tally {
    let plan = Plan::roll(&mut Dice::new(!seed));
    let mut world = World::new(seed, plan);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let tail = world.log.len().saturating_sub(60);
        eprintln!("{}\n{plan:?}", world.log[tail..].join("\n"));
        eprintln!("replay it: OUTBOXD_SEED={seed} cargo test --test pipeline -- --nocapture");
        resume_unwind(panic);
    }
    Tally {
        events: world.broker.events.len() as u64,
        offers: world.broker.offers,
        rejected: world.rejected,
        stops: world.stops.len() as u64,
        clean_stops: world.stops.iter().filter(|repeats| **repeats == 0).count() as u64,
    }
}
