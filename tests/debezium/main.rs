//! outboxd beside the real Debezium, case by case: what Debezium publishes is recorded once (`make record-debezium`) and kept in
//! `fixtures`; outboxd must publish the same from the same rows and options.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod case;
mod compare;
mod differences;
mod fixture;
mod matrix;
mod pure;
mod record;
mod replay;
mod takeover;
mod topics;

use std::collections::BTreeSet;

use differences::DIFFERENCES;
use fixture::Fixture;

#[test]
fn every_case_has_its_fixture_and_every_fixture_its_case() {
    let fixtures = Fixture::all();
    let recorded: BTreeSet<&str> = fixtures.iter().map(|fixture| fixture.case.as_str()).collect();
    let cases = matrix::cases();
    let named: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(named.len(), cases.len(), "no two cases have one name");
    assert_eq!(recorded, named, "make record-debezium records what is missing; what is left over can go");
    for (case, fixture) in cases.iter().filter_map(|case| Some((case, fixtures.iter().find(|f| f.case == case.name)?)))
    {
        let now = (case.table(), case.ddl(), case.statements(), case.options());
        let then = (fixture.table.clone(), fixture.ddl.clone(), &*fixture.statements, &fixture.options);
        assert_eq!(now, then, "{} has changed: make record-debezium", case.name);
    }
}

#[test]
fn the_guide_lists_every_difference_and_no_other() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/migrating-from-debezium.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let rows: Vec<String> = DIFFERENCES.iter().map(|listed| listed.row()).collect();
    let head = "| Debezium | outboxd | why |\n|---|---|---|\n";
    let table = guide.split_once(head).expect("the guide has the table").1;
    let table: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(table, rows, "the guide should have:\n{}", rows.join("\n"));
}
