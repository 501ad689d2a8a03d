//! A copy of the pure rooms and of the simulation, as a package of its own that needs neither Kafka's client nor an async
//! runtime, so that a mutant compiles in seconds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use crate::table::Mutant;

/// The rooms that the simulation needs; `sink` and `source` only as far as they are pure.
const LIB: &str = "
pub mod config;
pub mod error;
pub mod ledger;
pub mod lsn;
pub mod pipeline;
pub mod record;
pub mod route;
pub mod sink;
pub mod source;
";

/// What is left out of the copy: file, text, what stands there instead.
const LEFT_OUT: [(&str, &str, &str); 5] = [
    ("src/sink/mod.rs", "mod client;\nmod describe;\npub mod inspect;\npub mod kafka;\n", ""),
    ("src/sink/mod.rs", "pub use client::client_config;\n", ""),
    ("src/source/mod.rs", "pub mod catalog;\n", ""),
    ("src/source/mod.rs", "pub mod dial;\n", ""),
    ("src/source/mod.rs", "pub mod wire;\n", "#[path = \"wire/frame.rs\"]\npub mod wire;\n"),
];

/// The crates that the pure rooms use, as `Cargo.toml` names them.
const CRATES: [&str; 8] = ["humantime", "serde", "serde_json", "strsim", "thiserror", "toml", "uuid", "whoami"];

/// So often a search goes on.
const STUMBLES: usize = 20;

/// One place where mutants are built and run, one after the other.
pub struct Bench {
    package: PathBuf,
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
        let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants").join(name);
        Bench { package }
    }

    /// Puts the mutant into the copy; without one, the copy is as the product is.
    pub fn prepare(&self, mutant: Option<&Mutant>) {
        self.lay_out(mutant);
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
        // The line before the command that replays it says why.
        let (before, after) =
            said.split_once("\nreplay it: OUTBOXD_SEED=").unwrap_or_else(|| panic!("no seed:\n{said}"));
        let seed = after.split(' ').next().and_then(|seed| seed.parse().ok()).expect("a seed is a number");
        let why = before.lines().last().unwrap_or_default();
        // What the rooms assert of themselves is judged too; the simulation has no such assertions.
        let asserted = why.starts_with("assertion ").then_some(why);
        match why.strip_prefix("broken promise: ").or(asserted) {
            Some(promise) => Outcome::Caught { seed, promise: promise.to_string() },
            None => Outcome::Stumbled { seed, words: why.to_string() },
        }
    }

    fn lay_out(&self, mutant: Option<&Mutant>) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::remove_dir_all(&self.package).ok();
        for part in ["src", "tests/pipeline"] {
            copy(&root.join(part), &self.package.join(part));
        }
        fs::create_dir_all(self.package.join("tests/support")).unwrap();
        for file in ["tests/support/oracle.rs", "Cargo.lock"] {
            fs::copy(root.join(file), self.package.join(file)).unwrap();
        }
        fs::write(self.package.join("src/lib.rs"), LIB).unwrap();
        fs::remove_file(self.package.join("src/main.rs")).unwrap();
        fs::write(self.package.join("Cargo.toml"), manifest(&fs::read_to_string(root.join("Cargo.toml")).unwrap()))
            .unwrap();
        for (file, text, instead) in LEFT_OUT {
            self.replace(file, text, instead);
        }
        if let Some(mutant) = mutant {
            self.replace(mutant.file, mutant.text, mutant.instead);
        }
    }

    /// Exactly once, or the table is out of date.
    fn replace(&self, file: &str, text: &str, instead: &str) {
        let path = self.package.join(file);
        let source = fs::read_to_string(&path).unwrap();
        let found = source.matches(text).count();
        assert_eq!(found, 1, "{file} has {found} times what is to be replaced:\n{text}");
        fs::write(&path, source.replace(text, instead)).unwrap();
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--offline", "--quiet", "--test", "pipeline"]).args(arguments).current_dir(&self.package);
        cargo.env_remove("OUTBOXD_SEED");
        // Not next to the product's own: cargo would wait for whoever builds there.
        cargo.env("CARGO_TARGET_DIR", self.package.with_extension("target"));
        cargo
    }
}

/// A manifest with the crates that the rooms use, in the product's versions. As in a release, only what is promised is
/// checked: a mutant must not be caught by an overflow.
fn manifest(product: &str) -> String {
    let line = |wanted: &&str| {
        let start = format!("{wanted} = ");
        product.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {wanted} in Cargo.toml"))
    };
    let crates: Vec<&str> = CRATES.iter().map(line).collect();
    format!(
        "[package]\nname = \"outboxd\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{}\n\n\
         [profile.dev]\ndebug = false\ndebug-assertions = false\noverflow-checks = false\n\n[workspace]\n",
        crates.join("\n")
    )
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
