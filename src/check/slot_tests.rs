use super::super::Verdict::{Fail, Notice, Ok, Skipped, Warn};
use super::super::tests::{SYSTEM, assert_finding, config, facts, only, setup, slot, survey};
use super::*;
use crate::source::catalog::Holder;
use crate::source::catalog::survey::Senders;

fn mirror(confirmed: u64) -> Place {
    super::super::tests::place(confirmed)
}

#[test]
fn a_missing_slot_comes_with_the_statement_that_makes_it() {
    assert_finding(&missing("it's", 160_000), Fail, "does not exist", "slot('it''s', 'pgoutput');");
    assert_finding(&missing("outboxd", 170_000), Fail, "does not exist", "'pgoutput', failover => true);");
    let mut facts = facts();
    facts.survey.as_mut().unwrap().slot = None;
    let findings = super::super::judge(&config(), &facts).findings;
    assert_finding(only(&findings, "slot.kind"), Fail, "does not exist", "outboxd init");
    assert_finding(only(&findings, "slot.free"), Skipped, "no slot", "");
    assert_finding(only(&findings, "slot.cap"), Ok, "50.0 GiB", "");
}

#[test]
fn a_slot_of_another_kind_is_refused() {
    let judged = |slot: Slot| kind("s", &slot, "shop");
    assert_finding(&judged(slot()), Ok, "logical, pgoutput", "");
    assert_finding(&judged(Slot { kind: SlotKind::Physical, ..slot() }), Fail, "physical", "another name");
    assert_finding(&judged(Slot { plugin: Some("wal2json".into()), ..slot() }), Fail, "wal2json", "another name");
    assert_finding(
        &judged(Slot { database: Some("other".into()), ..slot() }),
        Fail,
        "belongs to database \"other\"",
        "",
    );
    assert_finding(&judged(Slot { temporary: true, ..slot() }), Fail, "temporary", "");
    assert_finding(&judged(Slot { two_phase: true, ..slot() }), Fail, "before they commit", "");
}

#[test]
fn who_holds_the_slot_is_named() {
    let held = |application_name: Option<&str>| {
        let holder = Holder {
            pid: 42,
            application_name: application_name.map(str::to_owned),
            client_addr: Some("10.0.0.7".into()),
            since: None,
        };
        free("s", &Slot { holder: Some(holder), ..slot() }, "outboxd")
    };
    assert_finding(&free("s", &slot(), "outboxd"), Ok, "nobody", "");
    assert_finding(
        &held(Some("debezium")),
        Fail,
        "pid 42, application \"debezium\", from 10.0.0.7",
        "pg_terminate_backend(42)",
    );
    assert_finding(&held(None), Fail, "pid 42", "pg_terminate_backend(42)");
    assert_finding(&held(Some("outboxd")), Notice, "stand by", "");
}

#[test]
fn a_slot_that_loses_wal_fails_before_it_is_too_late() {
    let at = |status: &str| health("s", &Slot { wal_status: Some(status.into()), ..slot() });
    assert_finding(&at("reserved"), Ok, "4.0 KiB", "");
    assert_finding(&at("extended"), Notice, "extended", "");
    assert_finding(&at("unreserved"), Fail, "next checkpoint", "max_slot_wal_keep_size = -1");
    assert_finding(&at("lost"), Fail, "lost", "outboxd init");
    for reason in ["wal_removed", "rows_removed", "wal_level_insufficient", "idle_timeout"] {
        let gone = Slot { invalidation_reason: Some(reason.into()), wal_status: Some("reserved".into()), ..slot() };
        assert_finding(&health("s", &gone), Fail, reason, "outboxd init");
    }
}

#[test]
fn the_wal_budget_is_bounded_and_not_small() {
    let capped = |megabytes| setup(&[("max_slot_wal_keep_size", megabytes, Some("MB"))]);
    assert_finding(&cap(&capped("-1"), Some(&slot())), Warn, "fills the disk", "max_slot_wal_keep_size");
    assert_finding(&cap(&capped("100"), None), Warn, "100.0 MiB", "max_slot_wal_keep_size");
    let mut busy = capped("51200");
    busy.wal_rate = Some(1024.0 * 1024.0);
    assert_finding(&cap(&busy, Some(&slot())), Ok, "50.0 GiB of WAL left, about 14 h", "");
    assert_finding(&cap(&capped("51200"), None), Ok, "50.0 GiB", "");
    assert_finding(&cap(&setup(&[]), None), Skipped, "hidden", "");
    let rds = setup(&[("max_slot_wal_keep_size", "-1", Some("MB")), ("rds.logical_replication", "1", None)]);
    assert_finding(&cap(&rds, None), Warn, "disk", "parameter group");
}

#[test]
fn a_short_idle_timeout_is_a_trap() {
    let after = |value, unit| idle(&setup(&[("idle_replication_slot_timeout", value, Some(unit))]));
    assert_finding(&after("0", "s"), Ok, "kept", "");
    assert_finding(&after("300", "s"), Warn, "5 min", "idle_replication_slot_timeout");
    assert_finding(&after("5", "min"), Warn, "5 min", "idle_replication_slot_timeout");
    assert_finding(&after("172800", "s"), Notice, "2 d", "");
    assert_finding(&idle(&setup(&[])), Ok, "keeps idle slots", "");
}

#[test]
fn a_slot_beside_a_standby_should_follow_a_failover() {
    let beside = |physical, failover_flag| {
        let survey = Survey { senders: Senders { all: 1, physical }, ..survey() };
        failover("s", &Slot { failover: failover_flag, ..slot() }, &survey)
    };
    assert_finding(&beside(0, Some(false)), Ok, "no physical standby", "");
    assert_finding(&beside(1, Some(true)), Ok, "marked", "");
    assert_finding(&beside(1, Some(false)), Warn, "would not follow", "ALTER_REPLICATION_SLOT s (FAILOVER true)");
    assert_finding(&beside(1, None), Warn, "before PostgreSQL 17", "upgrade");
    let by_slot = Survey { slots: vec![AnySlot { slot_type: "physical".into(), ..AnySlot::default() }], ..survey() };
    assert_finding(&failover("s", &Slot { failover: Some(false), ..slot() }, &by_slot), Warn, "would not follow", "");
}

#[test]
fn a_dead_standby_in_the_list_stops_the_stream() {
    let standby = |name: &str, active| AnySlot {
        slot_name: name.into(),
        slot_type: "physical".into(),
        active,
        wal_status: None,
        invalidation_reason: None,
    };
    let listed = setup(&[("synchronized_standby_slots", "sb1, \"sb2\"", None)]);
    assert_finding(&sync(&setup(&[]), &[]), Ok, "no standby", "");
    assert_finding(&sync(&listed, &[standby("sb1", true), standby("sb2", true)]), Ok, "sb1, sb2", "");
    assert_finding(&sync(&listed, &[standby("sb1", true)]), Fail, "sb2 (does not exist)", "synchronized_standby_slots");
    assert_finding(&sync(&listed, &[standby("sb1", false), standby("sb2", true)]), Fail, "sb1 (inactive)", "");
    let lost = AnySlot { invalidation_reason: Some("wal_removed".into()), ..standby("sb1", true) };
    assert_finding(&sync(&listed, &[lost, standby("sb2", true)]), Fail, "sb1 (invalidated)", "");
    let logical = AnySlot { slot_type: "logical".into(), ..standby("sb1", true) };
    assert_finding(&sync(&listed, &[logical, standby("sb2", true)]), Fail, "sb1 (not physical)", "");
}

#[test]
fn the_mirror_tells_a_restored_or_another_database() {
    let judged =
        |mirror: &Place, system, slot, server, decoded| place(Some(mirror), system, slot, Lsn(server), decoded);
    let at = |lsn| Some(Lsn(lsn));
    assert_finding(&place(None, Some(SYSTEM), at(1), Lsn(9), 0), Ok, "nothing was confirmed", "");
    assert_finding(&judged(&mirror(0), Some(SYSTEM), at(1), 9, 0), Ok, "nothing was confirmed", "");
    assert_finding(&judged(&mirror(5), Some(SYSTEM), at(7), 9, 1), Warn, "somebody else moved the slot from 0/5", "");
    let left_open = Place { left_cleanly: false, ..mirror(5) };
    assert_finding(&judged(&left_open, Some(SYSTEM), at(7), 9, 1), Ok, "slot at 0/7", "");
    assert_finding(&judged(&left_open, Some(SYSTEM), at(7), 9, 0), Warn, "created again", "compare the table");
    assert_finding(&judged(&mirror(5), Some(SYSTEM), at(3), 9, 1), Notice, "repeated", "");
    assert_finding(&judged(&mirror(5), Some(SYSTEM), at(3), 4, 1), Fail, "restored from a backup", "compare the table");
    assert_finding(&judged(&mirror(5), None, at(7), 9, 1), Skipped, "hidden", "");
    assert_finding(&judged(&mirror(5), Some(SYSTEM), None, 9, 1), Skipped, "no confirmed position", "");
    let other = System { id: 8, timeline: 1 };
    assert_finding(&judged(&mirror(5), Some(other), at(7), 9, 1), Fail, "another cluster", "outboxd.position");
    // A promotion starts a new history, in which LSNs may be used again.
    let promoted = System { timeline: 2, ..SYSTEM };
    assert_finding(&judged(&mirror(5), Some(promoted), at(3), 4, 1), Notice, "promoted", "");
}
