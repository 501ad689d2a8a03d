use super::super::Verdict::{self, Fail, Notice, Ok, Skipped, Warn};
use super::super::tests::{SYSTEM, assert_finding, connection, setup, survey, table};
use super::*;
use crate::source::System;
use crate::source::catalog::Slot;
use crate::source::catalog::survey::{AnySlot, PositionTable, Senders};

fn stop(step: Step, sqlstate: Option<&str>, message: &str) -> Stop {
    Stop { step, message: message.into(), sqlstate: sqlstate.map(str::to_owned), hint: None }
}

fn identified() -> Replication {
    Replication::Identified { system: SYSTEM, login: Login::ScramPlus, sender_timeout: Some(Duration::from_secs(30)) }
}

#[test]
fn a_connection_that_stops_names_its_step_and_the_way_on() {
    for (step, sqlstate, words, hint) in [
        (Step::Dns, None, "DNS failed", "host's name"),
        (Step::Tcp, None, "TCP failed", "firewall"),
        (Step::Tls, None, "TLS failed", "openssl s_client"),
        (Step::Login, Some("28P01"), "login failed", "ALTER ROLE relay PASSWORD"),
        (Step::Login, Some("28000"), "login failed", "pg_hba.conf"),
        (Step::Login, Some("3D000"), "login failed", "CREATE DATABASE shop"),
        (Step::Login, Some("53300"), "login failed", "max_connections"),
        (Step::Login, Some("57P03"), "login failed", "try again"),
        (Step::Login, Some("42501"), "login failed", "GRANT CONNECT"),
        (Step::Login, Some("XX000"), "login failed", "server's log"),
        (Step::Survey, None, "reading the catalog failed", "server's log"),
    ] {
        assert_finding(&stopped(&connection(), &stop(step, sqlstate, "x")), Fail, words, hint);
    }
    let known = Stop { hint: Some("do that".into()), ..stop(Step::Tls, None, "expired") };
    assert_finding(&stopped(&connection(), &known), Fail, "expired", "do that");
}

#[test]
fn a_connection_that_proves_nothing_is_a_warning() {
    let unasked = Replication::Unasked;
    let verified = connection();
    assert_finding(&reached(&verified, Some("TLSv1.3"), &identified()), Ok, "by SCRAM-SHA-256-PLUS over TLSv1.3", "");
    assert_finding(&reached(&verified, Some("TLSv1.3"), &unasked), Ok, "\"relay\" over TLSv1.3", "");
    let unverified = Connection { sslmode: SslMode::Require, ..connection() };
    assert_finding(&reached(&unverified, Some("TLSv1.3"), &unasked), Warn, "nothing proves", "verify-full");
    assert_finding(&reached(&unverified, None, &unasked), Warn, "in clear", "verify-full");
    for host in [Host::Unix("/run/postgresql".into(), 5432), Host::Tcp("127.0.0.1".into(), 5432)] {
        let local = Connection { hosts: vec![host], ..connection() };
        assert_finding(&reached(&local, None, &unasked), Ok, "logged in", "");
    }
}

#[test]
fn a_pooler_is_known_by_its_refusal_or_by_its_name() {
    let refused = Replication::Stopped(stop(Step::Login, Some("08P01"), "unsupported startup parameter: replication"));
    assert_finding(&pooler(&connection(), &refused).unwrap(), Fail, "a pooler refuses", "direct address");
    assert_finding(&pooler(&connection(), &identified()).unwrap(), Ok, "real walsender", "");
    for (name, port) in [("ep-1-pooler.neon.tech", 5432), ("aws.pooler.supabase.com", 5432), ("db", 6543)] {
        let suspect = Connection { hosts: vec![Host::Tcp(name.into(), port)], ..connection() };
        assert_finding(&pooler(&suspect, &identified()).unwrap(), Warn, "looks like a pooler", "direct address");
        assert_finding(
            &pooler(&suspect, &Replication::Unasked).unwrap(),
            Fail,
            "looks like a pooler",
            "direct address",
        );
    }
    assert_eq!(pooler(&connection(), &Replication::Unasked), None);
}

#[test]
fn a_refusal_of_pg_hba_explains_its_trap() {
    let refused =
        Replication::Stopped(stop(Step::Login, Some("28000"), "no pg_hba.conf entry for replication connection"));
    assert_finding(&hba(&connection(), &refused).unwrap(), Fail, "no pg_hba.conf entry", "hostssl shop relay");
    let unprivileged = Replication::Stopped(stop(Step::Login, Some("42501"), "must be superuser or replication role"));
    assert_finding(&hba(&connection(), &unprivileged).unwrap(), Ok, "let in", "");
    let other = Replication::Stopped(stop(Step::Login, Some("53300"), "too many walsenders"));
    assert_finding(&hba(&connection(), &other).unwrap(), Fail, "too many walsenders", "log");
    assert_finding(&hba(&connection(), &identified()).unwrap(), Ok, "let in", "");
}

#[test]
fn both_sessions_must_reach_the_same_primary() {
    let server = survey().server;
    assert_finding(&same_server(&server, &identified()).unwrap(), Ok, "same primary", "");
    let elsewhere =
        Replication::Identified { system: System { id: 8, timeline: 1 }, login: Login::Trust, sender_timeout: None };
    assert_finding(
        &same_server(&server, &elsewhere).unwrap(),
        Fail,
        "system 7, replication reaches system 8",
        "direct address",
    );
    let standby = Server { in_recovery: true, ..server.clone() };
    assert_finding(&same_server(&standby, &identified()).unwrap(), Fail, "standby", "read-write");
    let hidden = Server { system: None, ..server };
    assert_finding(&same_server(&hidden, &identified()).unwrap(), Skipped, "does not tell", "");
}

#[test]
fn wal_level_is_judged_by_what_the_version_needs() {
    let at = |level| setup(&[("wal_level", level, None)]);
    assert_finding(&wal_level(150_008, &at("logical")), Ok, "logical", "");
    assert_finding(
        &wal_level(180_000, &at("replica")),
        Fail,
        "needs a restart",
        "ALTER SYSTEM SET wal_level = logical",
    );
    assert_finding(&wal_level(190_000, &at("replica")), Ok, "effective replica", "");
    assert_finding(&wal_level(190_000, &at("minimal")), Fail, "minimal", "replica");
    let raised = setup(&[("wal_level", "replica", None), ("effective_wal_level", "logical", None)]);
    assert_finding(&wal_level(190_001, &raised), Ok, "effective logical", "");
    let rds = setup(&[("wal_level", "replica", None), ("rds.logical_replication", "0", None)]);
    assert_finding(&wal_level(160_000, &rds), Fail, "replica", "rds.logical_replication = 1");
    let cloud = setup(&[("wal_level", "replica", None), ("cloudsql.logical_decoding", "off", None)]);
    assert_finding(&wal_level(160_000, &cloud), Fail, "replica", "cloudsql.logical_decoding=on");
}

#[test]
fn the_role_may_replicate_and_no_more() {
    let own = Role { name: "relay".into(), ..Role::default() };
    assert_finding(&role(&own, Provider::Own), Fail, "may not replicate", "ALTER ROLE relay REPLICATION;");
    assert_finding(&role(&own, Provider::Rds), Fail, "may not replicate", "GRANT rds_replication TO relay;");
    assert_finding(&role(&Role { replication: true, ..own.clone() }, Provider::Own), Ok, "may replicate", "");
    assert_finding(&role(&Role { rds_replication: true, ..own.clone() }, Provider::Rds), Ok, "may replicate", "");
    assert_finding(&role(&Role { superuser: true, ..own }, Provider::Own), Warn, "superuser", "--dry-run");
}

#[test]
fn the_position_table_must_be_there_and_writable() {
    let all = PositionTable { usage: true, select: true, insert: true, update: true };
    let with = |table| privileges(&Survey { position_table: table, ..survey() });
    assert_finding(&with(Some(all)), Ok, "writable", "");
    assert_finding(&with(None), Fail, "does not exist", "outboxd init");
    assert_finding(&with(Some(PositionTable { usage: false, ..all })), Fail, "schema outboxd", "GRANT USAGE");
    let read_only = PositionTable { insert: false, update: false, ..all };
    assert_finding(
        &with(Some(read_only)),
        Fail,
        "INSERT, UPDATE",
        "GRANT INSERT, UPDATE ON outboxd.position TO relay;",
    );
}

#[test]
fn places_are_counted_only_where_one_is_needed() {
    let limits = |slots, senders| setup(&[("max_replication_slots", slots, None), ("max_wal_senders", senders, None)]);
    let with = |slot: Option<Slot>, setup| {
        capacity(&Survey {
            slot,
            slots: vec![AnySlot::default(); 3],
            senders: Senders { all: 2, physical: 0 },
            setup,
            ..survey()
        })
    };
    assert_finding(&with(None, limits("3", "10")), Fail, "max_replication_slots: none", "max_replication_slots = 8");
    assert_finding(&with(None, limits("4", "10")), Warn, "only one", "restart");
    assert_finding(&with(None, limits("10", "2")), Fail, "max_wal_senders: none", "restart");
    assert_finding(&with(None, limits("10", "10")), Ok, "7 of max_replication_slots", "");
    let existing = survey().slot;
    assert_finding(&with(existing.clone(), limits("3", "10")), Ok, "8 of max_wal_senders", "");
    let holder = crate::source::catalog::Holder { pid: 1, application_name: None, client_addr: None, since: None };
    let held = existing.map(|slot| Slot { holder: Some(holder), ..slot });
    assert_finding(&with(held, limits("3", "2")), Ok, "have their places", "");
}

#[test]
fn an_unpatched_server_is_told_from_a_hidden_setting() {
    let list = |value| setup(&[("output_plugin_libraries", value, None)]);
    assert_finding(&plugin(180_005, &list("pgoutput, test_decoding")), Ok, "pgoutput", "");
    assert_finding(&plugin(180_005, &list("\"pgoutput\"")), Ok, "pgoutput", "");
    assert_finding(&plugin(180_005, &list("wal2json")), Fail, "lacks pgoutput", "output_plugin_libraries");
    for (old, new) in
        [(140_023, 140_024), (150_018, 150_019), (160_014, 160_015), (170_010, 170_011), (180_004, 180_005)]
    {
        assert_finding(&plugin(old, &setup(&[])), Warn, "CVE-2026-6471", "August 2026");
        assert_finding(&plugin(new, &setup(&[])), Skipped, "hidden", "");
    }
    assert_finding(&plugin(190_000, &setup(&[])), Skipped, "hidden", "");
}

#[test]
fn minors_with_known_faults_are_named() {
    for (number, verdict, words) in [
        (130_009, Fail, "13.9 is too old"),
        (140_022, Notice, "14.22"),
        (140_023, Ok, "14.23"),
        (150_017, Notice, "shuts down"),
        (150_018, Ok, "15.18"),
        (170_009, Notice, "shuts down"),
        (170_010, Ok, "17.10"),
        (180_003, Notice, "shuts down"),
        (180_004, Notice, "#19616"),
        (180_006, Ok, "18.6"),
        (190_000, Ok, "19.0"),
    ] {
        assert_finding(&minor(number), verdict, words, "");
    }
}

#[test]
fn a_commit_must_not_wait_for_the_relay() {
    for (names, verdict) in [
        (Some(""), Ok),
        (Some("standby1, standby2"), Ok),
        (Some("FIRST 2 (standby1, standby2)"), Ok),
        (Some("outboxd2"), Ok),
        (Some("outboxd"), Fail),
        (Some("OutboxD"), Fail),
        (Some("standby1, \"outboxd\""), Fail),
        (Some("2 (standby1, outboxd)"), Fail),
        (Some("FIRST 1 (standby1,outboxd)"), Fail),
        (Some("ANY 1 (outboxd, standby1)"), Fail),
        (Some("*"), Fail),
        (Some("ANY 1 (*)"), Fail),
        (Some("first 1 (standby1, *)"), Fail),
        (None, Skipped),
    ] {
        assert_eq!(sync_commit(names, "outboxd").verdict, verdict, "{names:?}");
    }
    assert_finding(&sync_commit(Some("*"), "outboxd"), Fail, "Kafka outage would block every commit", "instead of *");
    assert_finding(&sync_commit(Some("outboxd"), "outboxd"), Fail, "our application_name", "another application_name");
}

#[test]
fn the_sender_timeout_is_the_one_asked_for() {
    let thirty = Duration::from_secs(30);
    let real = |timeout| Replication::Identified { system: SYSTEM, login: Login::Trust, sender_timeout: timeout };
    assert_finding(&sender_timeout(thirty, &real(Some(thirty))), Ok, "30 s", "");
    assert_finding(&sender_timeout(thirty, &real(None)), Ok, "30 s", "");
    assert_finding(&sender_timeout(thirty, &Replication::Unasked), Ok, "30 s", "");
    assert_finding(&sender_timeout(thirty, &real(Some(Duration::ZERO))), Warn, "for ever", "sender_timeout");
    assert_finding(&sender_timeout(Duration::ZERO, &Replication::Unasked), Warn, "for ever", "sender_timeout");
    assert_finding(&sender_timeout(thirty, &real(Some(thirty * 2))), Warn, "60 s in our session", "direct address");
}

#[test]
fn a_long_transaction_is_named_with_pid_and_age() {
    let role = Role { name: "relay".into(), ..Role::default() };
    let open = |pid, name: &str, age| Transaction { pid, name: Some(name.into()), age_seconds: age, query_start: None };
    assert_finding(&long_xact(&[], &role), Ok, "older than a minute", "");
    assert_finding(&long_xact(&[open(Some(7), "shop", Some(59))], &role), Ok, "older than a minute", "");
    let two = [open(Some(7), "shop", Some(90)), open(Some(8), "batch", Some(4000)), open(Some(9), "x", None)];
    assert_finding(
        &long_xact(&two, &role),
        Warn,
        "pid 8 (application \"batch\", open for 4000 s",
        "pg_terminate_backend(8)",
    );
    let prepared = [open(None, "it's", Some(90))];
    assert_finding(&long_xact(&prepared, &role), Warn, "prepared transaction", "ROLLBACK PREPARED 'it''s'");
    let hidden = [open(Some(7), "shop", None)];
    assert_finding(&long_xact(&hidden, &role), Notice, "hidden", "GRANT pg_read_all_stats TO relay;");
}

#[test]
fn much_spilling_asks_for_memory() {
    let role = Role { name: "relay".into(), ..Role::default() };
    let setup = survey().setup;
    let spilled = |spill_bytes, total_bytes| Some(Spill { spill_bytes, total_bytes });
    assert_finding(&spill(None, &role, &setup), Ok, "nothing decoded", "");
    assert_finding(&spill(spilled(0, 0), &role, &setup), Ok, "nothing decoded", "");
    assert_finding(&spill(spilled(10, 100), &role, &setup), Ok, "10 %", "");
    assert_finding(&spill(spilled(50, 100), &role, &setup), Warn, "50 %", "logical_decoding_work_mem = '256MB'");
}

#[test]
fn row_security_matters_to_a_role_that_it_filters() {
    let secured = Survey {
        tables: vec![crate::source::catalog::survey::OutboxTable { row_security: true, ..table() }],
        ..survey()
    };
    assert_finding(&rls(&secured), Warn, "public.outbox", "ALTER ROLE relay BYPASSRLS;");
    let bypassing = Survey { role: Role { bypass_rls: true, ..secured.role.clone() }, ..secured };
    assert_finding(&rls(&bypassing), Ok, "hides no row", "");
    assert_eq!(rls(&survey()).verdict, Verdict::Ok);
}

#[test]
fn settings_come_in_the_units_the_server_names() {
    let setup =
        setup(&[("a", "64", Some("MB")), ("b", "2", Some("min")), ("c", "1500", Some("ms")), ("d", "-1", Some("MB"))]);
    assert_eq!(bytes(&setup, "a"), Some(64.0 * 1024.0 * 1024.0));
    assert_eq!(seconds(&setup, "b"), Some(120.0));
    assert_eq!(seconds(&setup, "c"), Some(1.5));
    assert!(bytes(&setup, "d").unwrap() < 0.0);
    assert_eq!(bytes(&setup, "e"), None);
}
