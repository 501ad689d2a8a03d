//! A copy of the pure rooms, as a package of its own that needs neither Kafka's client nor an async runtime: it compiles
//! in seconds, can be changed, and can be measured alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rooms that are pure; `sink` and `source` only as far as they are.
const LIB: &str = "
pub mod calendar;
pub mod cloudevents;
pub mod column;
pub mod config;
pub mod contract;
pub mod dead_letter;
pub mod error;
pub mod ledger;
pub mod lsn;
pub mod pipeline;
pub mod receipt;
pub mod record;
pub mod route;
pub mod sink;
pub mod source;
pub mod spelling;
pub mod template;
pub mod trace;
";

/// What is left out of the copy: file, text, what stands there instead.
const LEFT_OUT: [(&str, &str, &str); 6] = [
    // A hundred crates that no route of a copy needs.
    ("src/template/mod.rs", "mod jsonld;\n", JSON_LD),
    ("src/sink/mod.rs", "mod client;\nmod describe;\npub mod inspect;\npub mod kafka;\n", ""),
    ("src/sink/mod.rs", "pub use client::client_config;\n", ""),
    ("src/source/mod.rs", "pub mod catalog;\n", ""),
    ("src/source/mod.rs", "pub mod dial;\n", ""),
    ("src/source/mod.rs", "pub mod wire;\n", "#[path = \"wire/frame.rs\"]\npub mod wire;\n"),
];

/// Templates without JSON-LD.
const JSON_LD: &str = "
mod jsonld {
    #[derive(Debug, Default)]
    pub struct Contexts;
    impl Contexts {
        pub fn new<F>(_: F, _: &std::collections::BTreeMap<String, String>) -> Result<Contexts, (String, String)> {
            Ok(Contexts)
        }
    }
    pub fn add_to(_: &mut minijinja::Environment<'static>, _: Contexts) {}
}
";

/// The crates that the pure rooms use, as `Cargo.toml` names them.
const CRATES: [&str; 14] = [
    "base64",
    "humantime",
    "jiff",
    "jsonschema",
    "minijinja",
    "regex",
    "ring",
    "serde",
    "serde_json",
    "strsim",
    "thiserror",
    "toml",
    "uuid",
    "whoami",
];

/// The copy.
pub struct Rooms {
    package: PathBuf,
}

impl Rooms {
    /// A place for a copy of this name, among the target's temporary files.
    pub fn new(name: &str) -> Rooms {
        Rooms { package: Path::new(env!("CARGO_TARGET_TMPDIR")).join("rooms").join(name) }
    }

    /// Makes the copy anew, with these files and directories of the product beside it, and this profile in its manifest.
    pub fn lay_out(&self, beside: &[&str], profile: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::remove_dir_all(&self.package).ok();
        for part in ["src", "Cargo.lock"].iter().chain(beside) {
            copy(&root.join(part), &self.package.join(part));
        }
        fs::write(self.package.join("src/lib.rs"), LIB).unwrap();
        fs::remove_file(self.package.join("src/main.rs")).unwrap();
        let product = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        fs::write(self.package.join("Cargo.toml"), manifest(&product, profile)).unwrap();
        for (file, text, instead) in LEFT_OUT {
            self.replace(file, text, instead);
        }
    }

    /// Puts something in the place of a text that stands there exactly once.
    pub fn replace(&self, file: &str, text: &str, instead: &str) {
        let path = self.package.join(file);
        let source = fs::read_to_string(&path).unwrap();
        let found = source.matches(text).count();
        assert_eq!(found, 1, "{file} has {found} times what is to be replaced:\n{text}");
        fs::write(&path, source.replace(text, instead)).unwrap();
    }

    /// Cargo, in the copy.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).args(["--offline", "--quiet"]).current_dir(&self.package);
        // Not next to the product's own: cargo would wait for whoever builds there.
        cargo.env("CARGO_TARGET_DIR", self.target());
        cargo
    }

    /// Where the copy is.
    #[allow(dead_code, reason = "not every test looks into it")]
    pub fn package(&self) -> &Path {
        &self.package
    }

    /// Where its programs are.
    pub fn target(&self) -> PathBuf {
        self.package.with_extension("target")
    }
}

/// A manifest with the crates that the rooms use, in the product's versions.
fn manifest(product: &str, profile: &str) -> String {
    let line = |wanted: &&str| {
        let start = format!("{wanted} = ");
        product.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {wanted} in Cargo.toml"))
    };
    let crates: Vec<&str> = CRATES.iter().map(line).collect();
    format!(
        "[package]\nname = \"outboxd\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{}\n\n{profile}\n\n\
         [workspace]\n",
        crates.join("\n")
    )
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a copy lies in a directory")).unwrap();
    if !from.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}
