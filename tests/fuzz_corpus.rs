//! Runs the committed corpus of every fuzz target through that target's promise, on any compiler.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../fuzz/promises.rs"]
mod promises;

type Promise = fn(&[u8]);

/// Every fuzz target, by the name of its file and of its corpus.
const TARGETS: &[(&str, Promise)] = &[("pgoutput", promises::pgoutput)];

fn names(directory: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = format!("fuzz/corpus/{target}");
    let read = |name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&directory).join(&name);
        (name, fs::read(path).unwrap())
    };
    names(&directory).into_iter().map(read).collect()
}

#[test]
fn every_target_keeps_its_promise_on_its_corpus() {
    for (target, promise) in TARGETS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "the corpus of {target} is empty");
        for (name, bytes) in corpus {
            // The harness prints this only when the promise below is broken.
            println!("fuzz/corpus/{target}/{name}");
            promise(&bytes);
        }
    }
}

#[test]
fn every_target_is_run_here() {
    let targets: Vec<_> = TARGETS.iter().map(|(target, _)| format!("{target}.rs")).collect();
    assert_eq!(names("fuzz/fuzz_targets"), targets);
}

#[test]
fn the_corpus_of_pgoutput_has_every_tag() {
    let corpus = corpus("pgoutput");
    for tag in b"BCORYIUDTMA" {
        assert!(corpus.iter().any(|(_, bytes)| bytes.first() == Some(tag)), "no message {}", tag.escape_ascii());
    }
}
