//! What an event costs in the pure rooms, in instructions: a number that a noisy machine does not change, so that a change
//! which makes the corridor slower shows.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/rooms.rs"]
mod rooms;

use std::fs;
use std::path::Path;
use std::process::Command;

use rooms::Rooms;

/// Instructions per event, from the decoder to the settled ticket, as last measured. A change that makes it less writes the
/// lesser one here.
const COMMITTED: f64 = 4301.0;
/// The same of an event whose value is rendered by a template.
const TEMPLATE: f64 = 45_637.0;
/// How much more is a regression, and how much less must be written down.
const TOLERATED: f64 = 0.05;
/// The same with a route that gives our record Debezium's key and its one header.
const LIKE_DEBEZIUM: f64 = 3855.0;
/// The same with a route that says what holds by itself, and with one that is for some types besides.
const PLAIN: f64 = 4314.0;
const MATCHING: f64 = 4412.0;
/// How much more an event may cost that is published as Debezium would.
const DEBEZIUM: f64 = 1.03;
/// Events in the recorded stream, as `corridor.rs` has it.
const EVENTS: u64 = 30;
/// How often the stream flows in each of two runs.
const FEW: u64 = 100;
const MANY: u64 = 1100;

/// On the processors that the figure was taken on.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_event_costs_no_more_instructions_than_it_did() {
    let rooms = Rooms::new("instructions");
    rooms.lay_out(&["tests/instructions"], "[profile.release]\ncodegen-units = 1");
    // The program lies where cargo looks for programs.
    let program = rooms.package().join("src/bin/measure");
    fs::create_dir(program.parent().unwrap()).unwrap();
    fs::rename(rooms.package().join("tests/instructions"), &program).unwrap();
    fs::rename(program.join("measure.rs"), program.join("main.rs")).unwrap();
    let built = rooms.cargo(&["build", "--release", "--bin", "measure"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = rooms.target().join("release/measure");

    let kinds = ["outboxd", "debezium", "like debezium", "plain route", "matching route"];
    let [each, debezium, like, plain, matching] = kinds.map(|kind| {
        let (cost, allocations) = cost(&program, kind);
        // Queues still double once or twice.
        assert!(allocations < 10, "{kind}: {allocations} allocations by {} events", MANY / 2 * EVENTS);
        cost
    });
    let (template, _) = cost(&program, "template");
    println!("{each:.1} instructions per event, {debezium:.1} as Debezium would, {template:.1} with a template");
    println!(
        "{like:.1} with Debezium's key and header, {plain:.1} with a plain route, {matching:.1} with one that matches"
    );
    for (each, committed) in
        [(each, COMMITTED), (template, TEMPLATE), (like, LIKE_DEBEZIUM), (plain, PLAIN), (matching, MATCHING)]
    {
        let change = each / committed - 1.0;
        assert!(change.abs() <= TOLERATED, "{each:.1} instructions per event, where it was {committed}");
    }
    assert!(
        debezium <= each * DEBEZIUM,
        "{debezium:.1} instructions per event as Debezium would, and {each:.1} as ours"
    );
    // What a route does not use costs nothing: it says what would hold without it.
    assert!(plain <= each * 1.01, "{plain:.1} instructions per event with a plain route, and {each:.1} without one");
}

/// Instructions per event, and the allocations of the second half of many rounds.
fn cost(program: &Path, what: &str) -> (f64, u64) {
    // What the start costs is in both.
    let [(less, _), (more, allocations)] = [FEW, MANY].map(|rounds| run(program, what, rounds));
    ((more - less) as f64 / ((MANY - FEW) * EVENTS) as f64, allocations)
}

/// How many instructions it took, and how many allocations its second half.
fn run(program: &Path, what: &str, rounds: u64) -> (u64, u64) {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([&rounds.to_string(), what]);
    let output = valgrind.output().expect("valgrind is installed: scripts/setup test");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let count = count.unwrap_or_else(|| panic!("valgrind does not say how many instructions:\n{said}"));
    (count, String::from_utf8_lossy(&output.stdout).trim().parse().unwrap())
}
