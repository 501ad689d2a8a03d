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
const SEEDS: u64 = 3000;

#[test]
fn nothing_is_lost_reordered_or_repeated_without_cause_in_any_history() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("OUTBOXD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("OUTBOXD_SEEDS").unwrap_or(SEEDS),
    };
    let (mut events, mut rejected) = (0, 0);
    for seed in seeds {
        let world = history(seed);
        events += world.broker.events.len();
        rejected += world.rejected;
    }
    println!("{events} events, {rejected} of them rejected");
}

fn history(seed: u64) -> World {
    let plan = Plan::roll(&mut Dice::new(!seed));
    let mut world = World::new(seed, plan);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let tail = world.log.len().saturating_sub(60);
        eprintln!("{}\n{plan:?}", world.log[tail..].join("\n"));
        eprintln!("replay it: OUTBOXD_SEED={seed} cargo test --test pipeline -- --nocapture");
        resume_unwind(panic);
    }
    world
}
