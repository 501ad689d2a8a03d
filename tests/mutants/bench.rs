//! A copy of the pure rooms and of the simulation, in which mutants are built.

use std::fmt;
use std::process::Command;

use crate::rooms::Rooms;
use crate::table::Mutant;

/// As in a release, only what is promised is checked: a mutant must not be caught by an overflow.
const PROFILE: &str = "[profile.dev]\ndebug = false\ndebug-assertions = false\noverflow-checks = false";

/// So often a search goes on.
const STUMBLES: usize = 20;

/// One place where mutants are built and run, one after the other.
pub struct Bench {
    rooms: Rooms,
}

/// What the simulation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A promise was broken at this seed, or an assertion of the rooms.
    Caught { seed: u64, promise: String },
    /// It fell over something else: that proves nothing.
    Stumbled { seed: u64, words: String },
    /// Every history passed.
    Survived,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Caught { seed, promise } => write!(f, "caught at seed {seed}: {promise}"),
            Outcome::Stumbled { seed, words } => write!(f, "STUMBLED at seed {seed}: {words}"),
            Outcome::Survived => write!(f, "SURVIVED"),
        }
    }
}

impl Bench {
    pub fn new(name: &str) -> Bench {
        Bench { rooms: Rooms::new(&format!("mutant-{name}")) }
    }

    /// Puts the mutant into the copy; without one, the copy is as the product is.
    pub fn prepare(&self, mutant: Option<&Mutant>) {
        self.rooms.lay_out(&["tests/pipeline", "tests/support/oracle.rs"], PROFILE);
        if let Some(mutant) = mutant {
            self.rooms.replace(mutant.file, mutant.text, mutant.instead);
        }
        let built = self.cargo(&["--no-run"]).output().unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{:?} is no program:\n{said}", mutant.map(|mutant| mutant.name));
    }

    /// Lets the simulation look for a broken promise in so many histories. A defect may also make a room panic, or the
    /// simulation: the search goes on behind such a history.
    pub fn search(&self, seeds: u64) -> Outcome {
        let mut first = 0;
        for _ in 0..STUMBLES {
            match self.simulate(first, seeds - first) {
                Outcome::Stumbled { seed, .. } if seed + 1 < seeds => first = seed + 1,
                outcome => return outcome,
            }
        }
        self.simulate(first, seeds - first)
    }

    /// Simulates so many histories.
    pub fn simulate(&self, first: u64, seeds: u64) -> Outcome {
        let mut run = self.cargo(&[]);
        run.env("OUTBOXD_FIRST_SEED", first.to_string()).env("OUTBOXD_SEEDS", seeds.to_string());
        let output = run.env("RUST_BACKTRACE", "0").output().unwrap();
        if output.status.success() {
            return Outcome::Survived;
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // The line before the command that replays it says why. Without one, every promise was held, and only too little happened.
        let Some((before, after)) = said.split_once("\nreplay it: OUTBOXD_SEED=") else { return Outcome::Survived };
        let seed = after.split(' ').next().and_then(|seed| seed.parse().ok()).expect("a seed is a number");
        let why = before.lines().last().unwrap_or_default();
        // What the rooms assert of themselves is judged too; the simulation has no such assertions.
        let asserted = why.starts_with("assertion ").then_some(why);
        match why.strip_prefix("broken promise: ").or(asserted) {
            Some(promise) => Outcome::Caught { seed, promise: promise.to_string() },
            None => Outcome::Stumbled { seed, words: why.to_string() },
        }
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = self.rooms.cargo(&["test"]);
        cargo.args(["--test", "pipeline"]).args(arguments).env_remove("OUTBOXD_SEED");
        cargo
    }
}
