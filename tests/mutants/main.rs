//! Proof that the simulation can find bugs: each mutant is a small defect, put into a copy of the pure rooms that is
//! compiled apart, and within `SEEDS` histories `tests/pipeline` must find a promise that it breaks. Product code has no
//! switches for this.
//!
//! A mutant whose text is no longer found in the sources fails the run: somebody must say what the defect looks like now.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bench;
#[path = "../support/rooms.rs"]
mod rooms;
mod table;

use std::sync::Mutex;
use std::time::Instant;

use bench::{Bench, Outcome};
use table::{MUTANTS, Mutant};

/// Within so many histories each mutant must be caught.
const SEEDS: u64 = 10_000;

#[test]
fn every_mutant_is_caught_by_the_simulation() {
    let wanted = std::env::var("OUTBOXD_MUTANT").ok();
    let mutants: Vec<&Mutant> = MUTANTS
        .iter()
        .filter(|mutant| wanted.as_ref().is_none_or(|name| mutant.name.contains(name.as_str())))
        .collect();
    assert!(!mutants.is_empty(), "there is no mutant of this name");
    let control = Bench::new("control");
    control.prepare(None);

    // A mutant is built by one core at a time; two benches keep two cores busy.
    let left = Mutex::new(mutants.iter());
    let survivors = Mutex::new(Vec::new());
    println!("{:<66} {:>7}  outcome", "mutant", "seconds");
    let work = &|bench: Bench| {
        loop {
            let Some(mutant) = left.lock().unwrap().next() else { return };
            let begun = Instant::now();
            bench.prepare(Some(mutant));
            let outcome = bench.search(SEEDS);
            println!("{:<66} {:>7.1}  {:.120}", mutant.name, begun.elapsed().as_secs_f64(), outcome.to_string());
            match outcome {
                // A history that fails without the mutant too proves nothing.
                Outcome::Caught { seed, .. } => {
                    assert_eq!(control.simulate(seed, 1), Outcome::Survived, "without a mutant");
                }
                Outcome::Stumbled { .. } | Outcome::Survived => survivors.lock().unwrap().push(mutant.name),
            }
        }
    };
    std::thread::scope(|scope| {
        for bench in ["one", "two"] {
            scope.spawn(move || work(Bench::new(bench)));
        }
    });
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "not caught: {survivors:#?}");
}
