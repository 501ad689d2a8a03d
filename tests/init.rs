//! `outboxd init` and the catalog against a real PostgreSQL, started for this file on a Unix socket of its own.

#![allow(clippy::unwrap_used)] // a fixture that does not start is a failed test

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use outboxd::config::{
    self, ChannelBinding, Columns, Config, Connection, Host, Outbox, OutboxSource, SessionAttrs, SslMode,
};
use outboxd::error::Error;
use outboxd::init::{self, Mode};
use outboxd::lsn::Lsn;
use outboxd::source::System;
use outboxd::source::catalog::{Catalog, Claim, SlotKind, TableKind, quote_identifier, quote_literal};
use proptest::prelude::{ProptestConfig, Strategy};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio_postgres::NoTls;

const LIMIT: Duration = Duration::from_secs(10);

// ---------------------------------------------------------------------------------------------- init and its repeats

#[tokio::test]
async fn init_makes_everything_and_a_repeat_changes_nothing() {
    let db = Database::new();
    let config = db.config();
    let first = db.init(&config).await.unwrap();
    let schema = db.state();
    let slot_before = db.one("SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = current_database()");
    let second = db.init(&config).await.unwrap();
    assert_eq!(db.state(), schema);
    assert_eq!(
        db.one("SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = current_database()"),
        slot_before
    );
    assert!(first.contains("was created without a password") && !second.contains("was created without a password"));
    assert!(first.contains("committed before the slot was created are not sent"));
    assert!(first.contains(&format!("\\password \"{}\"", db.name)));

    let catalog = db.catalog().await;
    let slot = catalog.slot(&db.name).await.unwrap().unwrap();
    assert_eq!((slot.kind, slot.plugin.as_deref()), (SlotKind::Logical, Some("pgoutput")));
    assert_eq!(slot.database.as_deref(), Some(db.name.as_str()));
    assert_eq!(slot.failover, (catalog.version() >= 170_000).then_some(true));
    assert!(slot.confirmed.is_some() && slot.holder.is_none() && !slot.temporary && !slot.two_phase);
    let publication = catalog.publication("outboxd").await.unwrap().unwrap();
    assert!(publication.insert && publication.via_root && !publication.all_tables);
    assert!(!publication.update && !publication.delete && !publication.truncate);
    assert_eq!((publication.tables[0].schema.as_str(), publication.tables[0].name.as_str()), ("public", "outbox"));
    let table = catalog.table("public", "outbox").await.unwrap().unwrap();
    assert_eq!((table.kind, table.columns.len(), table.rls), (TableKind::Ordinary, 8, false));
    assert_eq!((table.columns[0].name.as_str(), table.columns[0].type_name.as_str()), ("id", "uuid"));
    assert!(catalog.slot("nobody").await.unwrap().is_none());
    assert!(catalog.publication("nobody").await.unwrap().is_none());
    assert!(catalog.table("public", "nobody").await.unwrap().is_none());
}

#[tokio::test]
async fn two_inits_at_once_are_one_after_the_other() {
    let db = Database::new();
    let config = db.config();
    let (first, second) = tokio::join!(db.init(&config), db.init(&config));
    first.unwrap();
    second.unwrap();
    assert_eq!(db.one("SELECT count(*) FROM outboxd.migration"), "5");
}

#[tokio::test]
async fn the_dry_run_pasted_into_psql_makes_what_apply_makes() {
    let (applied, pasted) = (Database::new(), Database::new());
    let role = format!("relay of {}", applied.name);
    let with_role = |db: &Database| {
        let mut config = db.config();
        config.postgres.connection.user.clone_from(&role);
        config
    };
    applied.init(&with_role(&applied)).await.unwrap();
    let mut script = Vec::new();
    // An address where nobody listens: a dry run connects to nothing.
    let nowhere = Connection { hosts: vec![Host::Unix("/nonexistent".into(), 1)], ..pasted.admin() };
    init::run(&with_role(&pasted), &nowhere, Mode::DryRun, &mut script).await.unwrap();
    let script = String::from_utf8(script).unwrap();
    for _ in 0..2 {
        pasted.psql(&script).unwrap();
        assert_eq!(pasted.state(), applied.state());
    }
    let facts = "SELECT plugin, slot_type, database = current_database(), temporary FROM pg_replication_slots \
                 WHERE slot_name = current_database()";
    assert_eq!(pasted.one(facts), applied.one(facts));
    let migrations = "SELECT string_agg(concat(version, name, checksum), ' ' ORDER BY version) FROM outboxd.migration";
    assert_eq!(pasted.one(migrations), applied.one(migrations));
}

#[tokio::test]
async fn a_script_pasted_into_the_wrong_database_does_nothing() {
    let (meant, other) = (Database::new(), Database::new());
    let mut script = Vec::new();
    init::run(&meant.config(), &meant.admin(), Mode::DryRun, &mut script).await.unwrap();
    let complaint = other.psql_without_stopping(&String::from_utf8(script).unwrap());
    assert!(complaint.contains("this is database"), "{complaint}");
    assert!(complaint.contains("the slot must not be older"), "{complaint}");
    assert_eq!(other.one("SELECT count(*) FROM pg_namespace WHERE nspname IN ('outbox', 'outboxd')"), "0");
    assert_eq!(
        other.one(&format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}'", meant.name)),
        "0"
    );
}

#[tokio::test]
async fn a_changed_migration_and_a_newer_database_are_refused() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    db.psql("UPDATE outboxd.migration SET checksum = 'x' || checksum WHERE version = 2").unwrap();
    let error = db.init(&db.config()).await.unwrap_err();
    assert!(error.is_definite() && error.chain().contains("0002_messages was applied with other"), "{}", error.chain());
    db.psql("UPDATE outboxd.migration SET checksum = substr(checksum, 2) WHERE version = 2").unwrap();
    db.init(&db.config()).await.unwrap();
    db.psql("INSERT INTO outboxd.migration VALUES (99, '0099_later', '')").unwrap();
    let error = db.init(&db.config()).await.unwrap_err();
    assert!(error.is_definite() && error.chain().contains("by a newer outboxd"), "{}", error.chain());
    assert!(error.hint_text().is_some());
}

#[tokio::test]
async fn a_foreign_outbox_table_is_refused_by_what_it_lacks_and_left_alone() {
    let db = Database::new();
    db.psql("CREATE TABLE public.outbox (id uuid PRIMARY KEY, event_type text, payload json, aggregate_type text)")
        .unwrap();
    let before = db.state();
    let error = db.init(&db.config()).await.unwrap_err();
    let text = error.chain();
    assert!(error.is_definite(), "{text}");
    for lacking in ["aggregate_id text", "payload jsonb", "headers jsonb", "created_at", "idempotency_key text"] {
        assert!(text.contains(lacking), "{text}");
    }
    assert!(!text.contains("id uuid") && !text.contains("event_type text"), "{text}");
    assert_eq!(db.state(), before);

    db.psql(
        "ALTER TABLE public.outbox ALTER payload TYPE jsonb, ADD aggregate_id text, ADD headers jsonb, \
         ADD created_at timestamptz DEFAULT now(), ADD idempotency_key text, ADD tenant text",
    )
    .unwrap();
    let error = db.init(&db.config()).await.unwrap_err();
    assert!(error.chain().contains("UNIQUE (event_type, idempotency_key)"), "{}", error.chain());
    db.psql("ALTER TABLE public.outbox ADD UNIQUE (idempotency_key, event_type)").unwrap();
    db.init(&db.config()).await.unwrap();
    let twice = "SELECT outbox.emit('a', '1', 't', '{}', NULL, 'k') = outbox.emit('a', '1', 't', '{}', NULL, 'k')";
    assert_eq!(db.one(twice), "t");
}

#[tokio::test]
async fn a_table_with_other_columns_is_read_as_it_is() {
    let db = Database::new();
    db.psql("CREATE TABLE public.outbox (key bigint PRIMARY KEY, body bytea)").unwrap();
    let mut config = db.config();
    config.outbox[0].columns = Columns::bare("key", "body");
    db.init(&config).await.unwrap();
    assert_eq!(db.one("SELECT count(*) FROM pg_publication_tables WHERE tablename = 'outbox'"), "1");
    assert_eq!(db.one("SELECT to_regprocedure('outbox.emit(text,text,text,jsonb,jsonb,text)') IS NULL"), "t");
}

#[tokio::test]
async fn a_configured_table_that_does_not_exist_is_named() {
    let db = Database::new();
    let mut config = db.config();
    config.outbox.push(Outbox::of(table("app", "Events"), columns()));
    let error = db.init(&config).await.unwrap_err();
    assert!(error.chain().contains(r#"outbox table "app"."Events" does not exist"#), "{}", error.chain());
    assert_eq!(db.one("SELECT to_regclass('public.outbox') IS NULL"), "t", "all of it or nothing");
}

#[tokio::test]
async fn messages_alone_need_a_publication_and_no_table() {
    let db = Database::new();
    let mut config = db.config();
    config.outbox = vec![Outbox::of(OutboxSource::MessagePrefix("outbox".into()), columns())];
    db.init(&config).await.unwrap();
    db.init(&config).await.unwrap();
    let publication = db.catalog().await.publication("outboxd").await.unwrap().unwrap();
    assert!(publication.tables.is_empty() && publication.insert && !publication.all_tables);
    assert_eq!(db.one("SELECT to_regclass('public.outbox') IS NULL"), "t");
    db.one("SELECT outbox.emit_message('order', '1', 'created', '{}')");
}

#[tokio::test]
async fn an_existing_publication_gets_missing_tables_and_keeps_its_own() {
    let db = Database::new();
    db.psql("CREATE TABLE public.other (id int); CREATE PUBLICATION outboxd FOR TABLE public.other").unwrap();
    let mut script = Vec::new();
    init::run(&db.config(), &db.admin(), Mode::DryRun, &mut script).await.unwrap();
    let said = db.psql(&String::from_utf8(script).unwrap()).unwrap();
    assert!(said.contains("publication outboxd has other options than outboxd gives"), "{said}");
    let publication = db.catalog().await.publication("outboxd").await.unwrap().unwrap();
    let names: Vec<&str> = publication.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["other", "outbox"]);
    assert!(publication.update && !publication.via_root, "options stay");
}

#[tokio::test]
async fn row_filters_and_column_lists_are_seen() {
    let db = Database::new();
    if db.catalog().await.version() < 150_000 {
        return;
    }
    db.psql(
        "CREATE TABLE public.t (id int PRIMARY KEY, a text, b text);
         CREATE PUBLICATION p FOR TABLE public.t (id, b) WHERE (id > 7) WITH (publish = 'insert')",
    )
    .unwrap();
    let publication = db.catalog().await.publication("p").await.unwrap().unwrap();
    assert_eq!(publication.tables[0].row_filter.as_deref(), Some("(id > 7)"));
    assert_eq!(publication.tables[0].columns, Some(vec!["id".to_owned(), "b".to_owned()]));
}

#[tokio::test]
async fn a_partitioned_outbox_is_published_under_its_root() {
    let db = Database::new();
    db.psql(
        "CREATE SCHEMA app;
         CREATE TABLE app.events (id bigint, body json, day date) PARTITION BY RANGE (day);
         CREATE TABLE app.events_1 PARTITION OF app.events DEFAULT",
    )
    .unwrap();
    let mut config = db.config();
    let columns = Columns::bare("id", "body");
    config.outbox.push(Outbox::of(table("app", "events"), columns));
    db.init(&config).await.unwrap();
    let catalog = db.catalog().await;
    let publication = catalog.publication("outboxd").await.unwrap().unwrap();
    let names: Vec<&str> = publication.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["events", "outbox"]);
    assert_eq!(catalog.table("app", "events").await.unwrap().unwrap().kind, TableKind::Partitioned);
    let client = db.client(&db.as_role(&db.name)).await;
    client.batch_execute("SELECT FROM app.events").await.unwrap();
}

#[tokio::test]
async fn odd_names_are_only_names() {
    let db = Database::new();
    let odd = r#"Ünï"q'u\e $outboxd$ {slot}; --"#;
    db.psql(&format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.{name} (\"ID\" uuid PRIMARY KEY, \"Body\" json)",
        schema = quote_identifier(odd),
        name = quote_identifier(&format!("t {odd}"))
    ))
    .unwrap();
    let mut config = db.config();
    config.postgres.connection.user = format!("{} {odd}", db.name);
    config.postgres.publication = format!("p {odd}");
    let columns = Columns::bare("ID", "Body");
    config.outbox = vec![Outbox::of(table(odd, &format!("t {odd}")), columns)];
    db.init(&config).await.unwrap();
    db.init(&config).await.unwrap();
    let catalog = db.catalog().await;
    let publication = catalog.publication(&format!("p {odd}")).await.unwrap().unwrap();
    assert_eq!((publication.tables[0].schema.as_str(), &publication.tables[0].name), (odd, &format!("t {odd}")));
    assert_eq!(catalog.table(odd, &format!("t {odd}")).await.unwrap().unwrap().columns[0].name, "ID");
    assert!(catalog.has_role(&config.postgres.connection.user).await.unwrap());
    let relay = Catalog::connect(&db.as_role(&config.postgres.connection.user), LIMIT).await.unwrap();
    assert!(relay.position(&db.name).await.unwrap().is_none());

    config.postgres.publication = "p".repeat(64);
    assert!(db.init(&config).await.unwrap_err().to_string().contains("63 bytes"));
}

#[tokio::test]
async fn whatever_is_quoted_postgresql_reads_back() {
    let db = Database::new();
    let client = db.client(&db.admin()).await;
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    let any_text = proptest::string::string_regex("[^\\x00]{1,15}|['\"\\\\$:;-]{1,15}|\\PC{0,15}").unwrap();
    let mut texts = Vec::new();
    for _ in 0..300 {
        texts.push(any_text.new_tree(&mut runner).unwrap().current());
    }
    for (conforming, text) in texts.iter().flat_map(|text| [("on", text), ("off", text)]) {
        client.batch_execute(&format!("SET standard_conforming_strings = {conforming}")).await.unwrap();
        let literal = quote_literal(text);
        let read = client.query_one(&format!("SELECT {literal}, quote_literal({literal})"), &[]).await.unwrap();
        assert_eq!(read.get::<_, &str>(0), text, "{literal}");
        assert_eq!(read.get::<_, &str>(1), literal, "as PostgreSQL itself quotes");
        if !text.is_empty() && text.len() <= 63 {
            let row = client.query_one(&format!("SELECT 1 AS {}", quote_identifier(text)), &[]).await.unwrap();
            assert_eq!(row.columns()[0].name(), text);
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- rights

#[tokio::test]
async fn the_relays_role_can_do_its_work_and_nothing_else() {
    let db = Database::new();
    db.psql("CREATE TABLE public.invoice (id int); INSERT INTO public.invoice VALUES (1)").unwrap();
    db.init(&db.config()).await.unwrap();
    db.one("SELECT outbox.emit('order', '1', 'created', '{}')");
    let role = db.as_role(&db.name);
    let relay = Catalog::connect(&role, LIMIT).await.unwrap();

    let server = relay.server().await.unwrap();
    assert!(server.version >= 140_000 && !server.in_recovery && server.wal_lsn > Lsn::ZERO);
    let system = server.system.unwrap();
    assert_eq!(system.id.to_string(), db.one("SELECT system_identifier FROM pg_control_system()"));
    assert_eq!(system.timeline, 1);
    assert_eq!(relay.setting("wal_level").await.unwrap().as_deref(), Some("logical"));
    assert_eq!(relay.setting("no.such").await.unwrap(), None);
    assert_eq!(relay.setting("search_path").await.unwrap().as_deref(), Some("\"\""));
    assert_eq!(relay.setting("row_security").await.unwrap().as_deref(), Some("off"));
    assert_eq!(relay.setting("statement_timeout").await.unwrap().as_deref(), Some("10s"));
    assert!(relay.slot(&db.name).await.unwrap().is_some());
    // It has the right, but no walsender.
    assert_eq!(relay.claim(&db.name, system, "one", Duration::from_secs(30), 1).await.unwrap(), Claim::Lost);
    assert_eq!(relay.position(&db.name).await.unwrap(), None);

    let client = db.client(&role).await;
    assert_eq!(client.query("SELECT * FROM public.outbox", &[]).await.unwrap().len(), 1);
    for refused in [
        "SELECT * FROM public.invoice",
        "DELETE FROM public.outbox",
        "INSERT INTO public.outbox (event_type) VALUES ('x')",
        "DELETE FROM outboxd.position",
        "UPDATE outboxd.migration SET version = 1",
        "CREATE TABLE outboxd.mine (id int)",
        "CREATE ROLE another",
    ] {
        let error = client.batch_execute(refused).await.expect_err(refused);
        assert_eq!(error.code().unwrap().code(), "42501", "{refused}");
    }
    // It can stream: the walsender lets it in, and it may read the slot.
    let peek = "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(current_database()::name, NULL, NULL, \
                'proto_version', '1', 'publication_names', 'outboxd') WHERE get_byte(data, 0) = ascii('I')";
    assert_eq!(client.query_one(peek, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn without_pg_read_all_stats_less_is_known_and_nothing_fails() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    let role = quote_identifier(&db.name);
    db.psql(&format!("CREATE ROLE \"other {name}\" LOGIN REPLICATION", name = db.name)).unwrap();
    let mut stream = db.stream(&format!("other {}", db.name));
    let knowing = Catalog::connect(&db.as_role(&db.name), LIMIT).await.unwrap();
    let holder = until(async || knowing.slot(&db.name).await.unwrap().unwrap().holder).await;
    assert!(holder.since.is_some());

    db.psql(&format!("REVOKE pg_read_all_stats FROM {role}")).unwrap();
    let unknowing = Catalog::connect(&db.as_role(&db.name), LIMIT).await.unwrap();
    let seen = unknowing.slot(&db.name).await.unwrap().unwrap().holder.unwrap();
    assert_eq!((seen.pid, seen.since.is_none()), (holder.pid, true));
    assert_eq!(seen.application_name.as_deref(), Some("pg_recvlogical"));
    assert!(unknowing.server().await.is_ok());
    stream.kill().unwrap();
    stream.wait().unwrap();
    until(async || unknowing.slot(&db.name).await.unwrap().unwrap().holder.is_none().then_some(())).await;
}

#[tokio::test]
async fn an_administrator_without_the_rights_is_told_what_is_missing() {
    let db = Database::new();
    let name = &db.name;
    // Before PostgreSQL 16 only a superuser gives REPLICATION; a database's owner prepares the rest.
    db.psql(&format!("CREATE ROLE \"dba {name}\" LOGIN; ALTER DATABASE \"{name}\" OWNER TO \"dba {name}\"")).unwrap();
    let dba = db.as_role(&format!("dba {name}"));
    let mut seen = Vec::new();
    for remedy in [
        format!("GRANT CREATE ON SCHEMA public TO \"dba {name}\""),
        format!("ALTER ROLE \"dba {name}\" CREATEROLE"),
        format!("CREATE ROLE \"{name}\" LOGIN REPLICATION"),
        format!("ALTER ROLE \"dba {name}\" REPLICATION"),
    ] {
        if let Err(error) = init::run(&db.config(), &dba, Mode::Apply, &mut Vec::new()).await {
            assert!(error.is_definite(), "{}", error.chain());
            assert!(error.hint_text().is_some(), "{}", error.chain());
            seen.push(format!("{} -> {}", error.chain(), error.hint_text().unwrap()));
        }
        db.psql(&remedy).unwrap();
    }
    init::run(&db.config(), &dba, Mode::Apply, &mut Vec::new()).await.unwrap();
    let seen = seen.join("\n");
    for expected in ["CREATEROLE", "LOGIN REPLICATION", "cannot create the replication slot"] {
        assert!(seen.contains(expected), "{seen}");
    }
}

#[tokio::test]
async fn an_administrator_who_is_the_relay_needs_no_new_role() {
    let db = Database::new();
    let mut config = db.config();
    config.postgres.connection.user = "postgres".into();
    let said = db.init(&config).await.unwrap();
    assert!(!said.contains("was created without a password"));
}

#[tokio::test]
async fn on_rds_replication_comes_through_a_role() {
    // A server of its own: the marker role is visible in every database.
    let server = Server::start("");
    let db = Database::on(&server);
    db.psql("CREATE ROLE rds_replication").unwrap();
    db.init(&db.config()).await.unwrap();
    db.init(&db.config()).await.unwrap();
    let member = format!(
        "SELECT pg_has_role('{0}', 'rds_replication', 'MEMBER'), rolreplication FROM pg_roles WHERE rolname = '{0}'",
        db.name
    );
    assert_eq!(db.one(&member), "t|f");
}

// --------------------------------------------------------------------------------------------------------------- slot

#[tokio::test]
async fn a_slot_that_waits_for_a_transaction_names_it_and_leaves_nothing_half_made() {
    // A server of its own: its open transaction would hold up every other test's slot.
    let server = Server::start("");
    let db = Database::on(&server);
    db.psql("CREATE TABLE public.t (id int)").unwrap();
    let holder = db.client(&Connection { application_name: "nightly report".into(), ..db.admin() }).await;
    holder.batch_execute("BEGIN; INSERT INTO public.t VALUES (1)").await.unwrap();
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut config = db.config();
    config.limits.slot_creation = Duration::from_secs(3);
    config.limits.sql = Duration::from_secs(2);
    let mut out = Vec::new();
    let started = Instant::now();
    let error = init::run(&config, &db.admin(), Mode::Apply, &mut out).await.unwrap_err();
    assert!(started.elapsed() >= Duration::from_secs(3), "its own limit, not that of an ordinary statement");
    let text = error.to_string();
    assert!(error.is_definite() && text.contains(&format!("pid {pid} (application \"nightly report\"")), "{text}");
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains(&format!("-- waiting for pid {pid} ")), "{out}");
    assert_eq!(db.one("SELECT count(*) FROM pg_replication_slots"), "0");

    // Everything else is there; once the transaction ends, a repeat makes the slot.
    config.limits.slot_creation = Duration::from_secs(30);
    let (mut again, admin) = (Vec::new(), db.admin());
    let (made, ended) = tokio::join!(init::run(&config, &admin, Mode::Apply, &mut again), async {
        let observer = db.client(&db.admin()).await;
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted";
        until(async || (observer.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1).then_some(())).await;
        holder.batch_execute("COMMIT").await
    });
    ended.unwrap();
    made.unwrap();
    assert_eq!(db.one("SELECT count(*) FROM pg_replication_slots"), "1");
}

#[tokio::test]
async fn without_logical_wal_the_setting_is_named() {
    let server = Server::start("-c wal_level=replica");
    let db = Database::on(&server);
    let error = db.init(&db.config()).await.unwrap_err();
    assert!(error.is_definite() && error.chain().contains("wal_level"), "{}", error.chain());
    assert!(error.hint_text().unwrap().contains("ALTER SYSTEM SET wal_level = logical"));
    assert_eq!(db.one("SELECT count(*) FROM pg_replication_slots"), "0");
}

#[tokio::test]
async fn a_slot_of_another_kind_is_refused() {
    let db = Database::new();
    db.psql("SELECT pg_create_logical_replication_slot(current_database()::name, 'test_decoding')").unwrap();
    let error = db.init(&db.config()).await.unwrap_err();
    assert!(error.is_definite() && error.chain().contains("plugin test_decoding"), "{}", error.chain());
    db.psql("SELECT pg_drop_replication_slot(current_database()::name)").unwrap();

    let other = Database::new();
    other.psql(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", db.name)).unwrap();
    let error = db.init(&db.config()).await.unwrap_err();
    assert!(error.chain().contains(&format!("database {}", other.name)), "{}", error.chain());
}

// -------------------------------------------------------------------------------------------------- emit and messages

#[tokio::test]
async fn one_key_emitted_by_many_sessions_at_once_is_one_event() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    for (isolation, may_fail) in [("READ COMMITTED", false), ("REPEATABLE READ", true)] {
        let sessions: Vec<_> = (0..20)
            .map(|_| {
                let (admin, key) = (db.admin(), isolation);
                tokio::spawn(async move {
                    let client = client(&admin).await;
                    client.batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT 1")).await.unwrap();
                    let emit = "SELECT outbox.emit('order', '1', 'created', '{}', NULL, $1)::text";
                    let emitted = client.query_one(emit, &[&key]).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    client.batch_execute("COMMIT").await.unwrap();
                    emitted.map(|row| row.get::<_, String>(0))
                })
            })
            .collect();
        let mut ids = Vec::new();
        for session in sessions {
            match session.await.unwrap() {
                Ok(id) => ids.push(id),
                Err(error) => {
                    assert!(may_fail, "{error:?}");
                    assert_eq!(error.code().unwrap().code(), "40001", "the caller repeats its transaction");
                }
            }
        }
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(db.one(&format!("SELECT id FROM public.outbox WHERE idempotency_key = '{isolation}'")), ids[0]);
    }
}

#[tokio::test]
async fn a_key_whose_holder_rolls_back_is_free_again() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    let (holder, waiter) = (db.client(&db.admin()).await, db.client(&db.admin()).await);
    let emit = "SELECT outbox.emit('order', '1', 'created', '{}', NULL, 'k')::text";
    holder.batch_execute("BEGIN").await.unwrap();
    let lost: String = holder.query_one(emit, &[]).await.unwrap().get(0);
    let (waited, rolled_back) = tokio::join!(waiter.query_one(emit, &[]), async {
        let blocked =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let observer = db.client(&db.admin()).await;
        until(async || (observer.query_one(blocked, &[]).await.unwrap().get::<_, i64>(0) == 1).then_some(())).await;
        holder.batch_execute("ROLLBACK").await
    });
    rolled_back.unwrap();
    let id: String = waited.unwrap().get(0);
    assert_ne!(id, lost);
    assert_eq!(db.one("SELECT id FROM public.outbox"), id);
}

#[tokio::test]
async fn savepoints_take_their_events_and_keys_back() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    db.psql(
        "BEGIN;
         SELECT outbox.emit('order', '1', 'kept', '{}', NULL, 'k');
         SAVEPOINT s;
         SELECT outbox.emit('order', '1', 'undone', '{}', NULL, 'k');
         ROLLBACK TO s;
         SELECT outbox.emit('order', '1', 'undone', '{\"second\": 1}', NULL, 'k');
         SELECT outbox.emit('order', '1', 'kept', '{\"ignored\": 1}', NULL, 'k');
         SELECT outbox.emit('order', '1', 'kept', '{}');
         SELECT outbox.emit('order', '1', 'kept', '{}', '{\"h\": 1}');
         COMMIT",
    )
    .unwrap();
    let events = "SELECT string_agg(event_type || payload::text, ' ' ORDER BY created_at) FROM public.outbox";
    assert_eq!(db.one(events), "kept{} undone{\"second\": 1} kept{} kept{}");
}

#[tokio::test]
async fn ids_are_version_7_and_sort_by_time() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    let form = "SELECT bool_and(id::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$') \
                FROM (SELECT outbox.uuidv7() AS id FROM generate_series(1, 2000)) AS made";
    assert_eq!(db.one(form), "t");
    // The first 60 bits are time; they never go back, and two ids are never the same.
    let order = "SELECT bool_and(prefix >= before), count(DISTINCT id) FROM (SELECT id, prefix, lag(prefix, 1, '') OVER (ORDER BY n) AS before \
                 FROM (SELECT n, id, left(replace(id::text, '-', ''), 15) AS prefix \
                       FROM (SELECT n, outbox.uuidv7() AS id FROM generate_series(1, 5000) AS n OFFSET 0) AS a) AS b) AS c";
    assert_eq!(db.one(order), "t|5000");
    let now = "SELECT abs(extract(epoch FROM clock_timestamp()) * 1000 \
               - ('x' || lpad(left(replace(outbox.uuidv7()::text, '-', ''), 12), 16, '0'))::bit(64)::bigint) < 1000";
    assert_eq!(db.one(now), "t");
}

#[tokio::test]
async fn a_hostile_search_path_changes_nothing() {
    let db = Database::new();
    db.psql(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz';
         CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz';
         CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid';
         CREATE FUNCTION evil.no(integer, integer) RETURNS integer LANGUAGE sql AS 'SELECT 0';
         CREATE OPERATOR evil.| (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.no);
         CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
         CREATE TABLE evil.outbox (id int);
         ALTER DATABASE :\"DBNAME\" SET search_path = evil, pg_catalog, public;",
    )
    .unwrap();
    db.init(&db.config()).await.unwrap();
    let mut script = Vec::new();
    init::run(&db.config(), &db.admin(), Mode::DryRun, &mut script).await.unwrap();
    db.psql(&String::from_utf8(script).unwrap()).unwrap();
    let emitted = "SELECT outbox.emit('order', '1', 'created', '{}', NULL, 'k') OPERATOR(pg_catalog.=) outbox.emit('order', '1', 'created', '{}', NULL, 'k')";
    assert_eq!(db.one(emitted), "t");
    db.one("SELECT outbox.emit_message('order', '1', 'created', '{}', NULL, 'k')");
    db.psql("INSERT INTO public.outbox (event_type) VALUES ('plain')").unwrap();
    assert_eq!(db.one("SELECT count(*) FROM public.outbox WHERE created_at > '2020-01-01' AND id IS NOT NULL"), "2");
    assert_eq!(db.one("SELECT count(*) FROM evil.outbox"), "0");
    let catalog = db.catalog().await;
    assert!(catalog.slot(&db.name).await.unwrap().is_some());
    assert!(catalog.table("public", "outbox").await.unwrap().is_some());
}

#[tokio::test]
async fn a_message_carries_the_payload_as_jsonb_prints_it() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    let payload = r#"{"a": 1.50, "b": [null, "ü \"quoted\" \\u0041"], "big": 12345678901234567890123}"#;
    let id = db.one(&format!("SELECT outbox.emit_message('order', '7', 'created', {})", quote_literal(payload)));
    let plain = db.one("SELECT outbox.emit_message(NULL, NULL, 'bare', NULL)");
    let (first, again) = (
        db.one("SELECT outbox.emit_message('order', '7', 'paid', '{}', '{\"h\": 1}', 'key')"),
        db.one("SELECT outbox.emit_message('order', '7', 'paid', '{}', '{\"h\": 1}', 'key')"),
    );
    assert_eq!(first, again, "consumers recognise the repeat");
    assert_eq!((&first[14..15], plain.len()), ("8", 36));
    let peek = "SELECT convert_from(data, 'UTF8') FROM pg_logical_slot_peek_binary_changes(current_database()::name, NULL, NULL, \
                'proto_version', '1', 'publication_names', 'outboxd', 'messages', 'true') WHERE get_byte(data, 0) = ascii('M') LIMIT 1";
    // The message's head holds NUL bytes, so the text is cut out by position: 'M', flags, LSN, "outbox\0", length.
    let text = db.one(&peek.replace("data, 'UTF8'", "substring(data FROM 22), 'UTF8'"));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let printed = db.one(&format!("SELECT {}::jsonb::text", quote_literal(payload)));
    assert!(text.contains(&format!("\"payload\" : {printed},")), "{text}");
    assert_eq!(value["id"].as_str(), Some(id.as_str()));
    let members: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["aggregate_id", "aggregate_type", "created_at", "event_type", "headers", "id", "payload"]);
    let error = db.psql("SELECT outbox.emit_message('a', 'b', NULL, '{}')").unwrap_err();
    assert!(error.contains("an event needs an event_type"), "{error}");
}

#[tokio::test]
async fn an_application_emits_with_insert_and_select_and_not_without() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    let app = format!("app {}", db.name);
    db.psql(&format!("CREATE ROLE {} LOGIN", quote_identifier(&app))).unwrap();
    let client = db.client(&db.as_role(&app)).await;
    let emit = "SELECT outbox.emit('order', '1', 'created', '{}', NULL, 'k')";
    assert_eq!(client.batch_execute(emit).await.unwrap_err().code().unwrap().code(), "42501");
    db.psql(&format!("GRANT INSERT, SELECT ON public.outbox TO {}", quote_identifier(&app))).unwrap();
    client.batch_execute(emit).await.unwrap();
    client.batch_execute("SELECT outbox.emit_message('order', '1', 'created', '{}')").await.unwrap();
}

// ---------------------------------------------------------------------------------------------------------- the place

#[tokio::test]
async fn the_place_belongs_to_the_last_who_claimed_it() {
    let db = Database::new();
    db.init(&db.config()).await.unwrap();
    let catalog = db.catalog().await;
    let (old, new) = (System { id: u64::MAX - 1, timeline: 1 }, System { id: u64::MAX - 1, timeline: 2 });
    // The name of one who had a walsender.
    let name = |leader: &str| {
        let sql = format!(
            "INSERT INTO outboxd.position VALUES ('s', -2, 1, '0/0', '{leader}', 30000, false, now(), now())
             ON CONFLICT (slot) DO UPDATE SET leader = '{leader}', left_cleanly = false, updated_at = clock_timestamp()"
        );
        db.psql(&sql).unwrap();
    };
    name("one");
    assert_eq!(catalog.save("s", "one", old, Lsn(7)).await.unwrap(), Claim::Ours);
    let seen = catalog.position("s").await.unwrap().unwrap();
    assert_eq!((seen.system, seen.confirmed, seen.leader.as_str(), seen.left_cleanly), (old, Lsn(7), "one", false));
    name("two");
    assert_eq!(catalog.save("s", "one", old, Lsn(8)).await.unwrap(), Claim::Lost);
    assert_eq!(catalog.leave("s", "one", old, Lsn(8)).await.unwrap(), Claim::Lost);
    // Without the slot, a claim that comes late takes nobody's name away.
    assert_eq!(catalog.claim("s", old, "one", Duration::from_secs(30), 1).await.unwrap(), Claim::Lost);
    let now = catalog.position("s").await.unwrap().unwrap();
    assert_eq!((now.system, now.confirmed, now.leader.as_str(), now.left_cleanly), (old, Lsn(7), "two", false));
    assert_eq!(catalog.leave("s", "two", new, Lsn(u64::MAX)).await.unwrap(), Claim::Ours);
    let left = catalog.position("s").await.unwrap().unwrap();
    assert_eq!((left.system, left.confirmed, left.left_cleanly), (new, Lsn(u64::MAX), true));
    assert!(left.updated_at > now.updated_at);
    // A save that was on its way when its leader left does not take the mark back.
    assert_eq!(catalog.save("s", "two", new, Lsn(9)).await.unwrap(), Claim::Lost);
    assert_eq!(catalog.position("s").await.unwrap().unwrap(), left);
}

#[tokio::test]
async fn without_init_the_place_says_what_to_do() {
    let db = Database::new();
    let error = db.catalog().await.position("s").await.unwrap_err();
    assert!(error.is_definite() && error.hint_text() == Some("run `outboxd init`"), "{}", error.chain());
}

// ------------------------------------------------------------------------------------------------------------ session

#[tokio::test]
async fn the_reason_of_a_session_ended_by_the_server_reaches_the_next_query() {
    let db = Database::new();
    let catalog = db.catalog().await;
    db.psql(&format!("SELECT pg_terminate_backend({}, 5000)", catalog.pid())).unwrap();
    let error = catalog.setting("wal_level").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.is_definite()), (Some("57P01"), false), "{}", error.chain());
    assert!(catalog.is_closed());

    let catalog = db.catalog().await;
    let (error, ended) = tokio::join!(catalog.execute("cannot sleep", "SELECT pg_sleep(20)", LIMIT), async {
        let client = db.client(&db.admin()).await;
        client.batch_execute(&format!("SELECT pg_terminate_backend({}, 5000)", catalog.pid())).await
    });
    ended.unwrap();
    assert_eq!(error.unwrap_err().sqlstate(), Some("57P01"));
    for _ in 0..2 {
        let idle = db.catalog().await;
        let client = db.client(&db.admin()).await;
        client.batch_execute(&format!("SELECT pg_terminate_backend({}, 5000)", idle.pid())).await.unwrap();
        until(async || idle.is_closed().then_some(())).await;
        assert_eq!(idle.setting("wal_level").await.unwrap_err().sqlstate(), Some("57P01"));
        assert_eq!(idle.setting("wal_level").await.unwrap_err().sqlstate(), Some("57P01"));
    }
}

#[tokio::test]
async fn a_dropped_catalog_ends_its_session() {
    let db = Database::new();
    let catalog = db.catalog().await;
    let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {}", catalog.pid());
    assert_eq!(db.one(&alive), "1");
    drop(catalog);
    until(async || (db.one(&alive) == "0").then_some(())).await;
}

#[tokio::test]
async fn refusals_are_definite_with_a_hint_and_absence_is_transient() {
    let db = Database::new();
    let refused = |connection: Connection| async move {
        let error = Catalog::connect(&connection, LIMIT).await.err().expect("a refusal");
        assert!(error.is_definite() && error.hint_text().is_some(), "{}", error.chain());
        error
    };
    assert_eq!(refused(Connection { dbname: "nobody".into(), ..db.admin() }).await.sqlstate(), Some("3D000"));
    assert_eq!(refused(Connection { user: "nobody".into(), ..db.admin() }).await.sqlstate(), Some("28000"));
    db.psql("CREATE ROLE needs_password LOGIN PASSWORD 'right'").unwrap();
    let login = |password: Option<&str>| Connection {
        user: "needs_password".into(),
        password: password.map(config::Secret::new),
        ..db.admin()
    };
    assert_eq!(refused(login(Some("wrong"))).await.sqlstate(), Some("28P01"));
    assert!(refused(login(None)).await.chain().contains("password missing"));
    assert!(Catalog::connect(&login(Some("right")), LIMIT).await.is_ok());
    let error = Catalog::connect(&db.nowhere(), LIMIT).await.err().expect("nobody listens");
    assert!(!error.is_definite(), "{}", error.chain());
}

#[tokio::test]
async fn the_first_host_that_may_write_wins() {
    let db = Database::new();
    let with_dead_host = Connection { hosts: [db.nowhere().hosts, db.admin().hosts].concat(), ..db.admin() };
    assert!(Catalog::connect(&with_dead_host, LIMIT).await.is_ok());
    db.psql("ALTER DATABASE :\"DBNAME\" SET default_transaction_read_only = on").unwrap();
    let error = Catalog::connect(&with_dead_host, LIMIT).await.err().expect("read-only");
    assert!(!error.is_definite() && error.to_string().contains("read-only"), "{}", error.chain());
    assert!(Catalog::connect(&Connection { session_attrs: SessionAttrs::Any, ..with_dead_host }, LIMIT).await.is_ok());
}

#[tokio::test]
async fn under_tls_the_password_is_bound_to_the_channel() {
    let server = Server::start("tls");
    let db = Database::on(&server);
    db.psql("CREATE ROLE needs_password LOGIN PASSWORD 'right'").unwrap();
    let port = db.one("SELECT current_setting('port')").parse().unwrap();
    let connection = Connection {
        hosts: vec![Host::Tcp("localhost".into(), port)],
        user: "needs_password".into(),
        password: Some(config::Secret::new("right")),
        sslmode: SslMode::VerifyFull,
        sslrootcert: Some(server.directory.join("server.crt")),
        channel_binding: ChannelBinding::Require,
        ..db.admin()
    };
    let catalog = Catalog::connect(&connection, LIMIT).await.unwrap();
    let encrypted = format!("SELECT ssl FROM pg_stat_ssl WHERE pid = {}", catalog.pid());
    assert_eq!(db.one(&encrypted), "t");
    // Without TLS there is nothing to bind to, and "require" will not have it.
    let plain = Connection { sslmode: SslMode::Disable, ..connection };
    assert!(Catalog::connect(&plain, LIMIT).await.err().expect("a refusal").is_definite());
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended() {
    let db = Database::new();
    let catalog = Catalog::connect(&db.admin(), Duration::from_millis(300)).await.unwrap();
    let error = catalog.execute("cannot sleep", "SELECT pg_sleep(20)", Duration::from_secs(10)).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.is_definite()), (Some("57014"), false), "{}", error.chain());
    db.psql("CREATE TABLE public.t ()").unwrap();
    let holder = db.client(&db.admin()).await;
    holder.batch_execute("BEGIN; LOCK TABLE public.t").await.unwrap();
    let error = catalog.execute("cannot lock", "SELECT FROM public.t", LIMIT).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.is_definite()), (Some("55P03"), false), "{}", error.chain());
}

// ------------------------------------------------------------------------------------------------------------ fixture

/// A PostgreSQL server on a Unix socket. A shell holds it and ends it when this process is gone, however it went.
struct Server {
    directory: PathBuf,
    shell: Mutex<Child>,
}

const KEEPER: &str = r#"
trap '' INT
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
PATH="${OUTBOXD_TEST_PG_BIN:-$bin}:$PATH"
dir=$(mktemp -d /tmp/outboxd-init.XXXXXX) || exit 1
cd "$dir"
export LC_ALL=C TZ=UTC
initdb -D data -U postgres -A trust -E UTF8 --no-sync >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
options=$1 port=5432
if [ "$1" = tls ]; then
  openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -addext basicConstraints=critical,CA:FALSE -keyout server.key -out server.crt 2>/dev/null
  chmod 600 server.key && chmod 755 . && chmod 644 server.crt
  port=$(shuf -i 20000-29999 -n 1)
  options="-c ssl=on -c ssl_cert_file=$dir/server.crt -c ssl_key_file=$dir/server.key -c listen_addresses=localhost"
fi
cat >data/pg_hba.conf <<HBA
host all all all scram-sha-256
local all needs_password scram-sha-256
local all all trust
HBA
postgres -D data -k "$dir" -c listen_addresses= -c wal_level=logical -c fsync=off -c max_connections=200 \
  -c max_replication_slots=60 -c max_wal_senders=20 -c log_min_messages=fatal -p $port $options >server.log 2>&1 &
pid=$!
until psql -h "$dir" -p $port -U postgres -c 'SELECT 1' >/dev/null 2>&1; do
  kill -0 $pid 2>/dev/null || { cat server.log >&2; exit 1; }
  sleep 0.05
done
[ $port = 5432 ] || ln -s .s.PGSQL.$port .s.PGSQL.5432
echo "$dir"
cat >/dev/null
kill -QUIT $pid
wait $pid
cd / && rm -rf "$dir"
"#;

impl Server {
    fn shared() -> &'static Server {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Server::start(""))
    }

    fn start(options: &str) -> Server {
        // PostgreSQL refuses to run as root.
        let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let mut command = if root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let mut shell = command
            .args(["-c", KEEPER, "keeper", options])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/")
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "PostgreSQL did not start");
        Server { directory: line.trim_end().into(), shell: Mutex::new(shell) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut shell = self.shell.lock().unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}

/// A fresh database; its name is also that of its slot and of its relay's role.
struct Database {
    directory: PathBuf,
    name: String,
}

impl Database {
    fn new() -> Database {
        Database::on(Server::shared())
    }

    fn on(server: &Server) -> Database {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let database = Database { directory: server.directory.clone(), name: name.clone() };
        psql(&database.directory, "postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"), "1").unwrap();
        database
    }

    fn admin(&self) -> Connection {
        self.as_role("postgres")
    }

    fn nowhere(&self) -> Connection {
        Connection { hosts: vec![Host::Unix(self.directory.clone(), 1)], ..self.admin() }
    }

    fn as_role(&self, user: &str) -> Connection {
        Connection {
            hosts: vec![Host::Unix(self.directory.clone(), 5432)],
            user: user.into(),
            password: None,
            dbname: self.name.clone(),
            sslmode: SslMode::Prefer,
            sslrootcert: None,
            client_cert: None,
            channel_binding: ChannelBinding::Prefer,
            session_attrs: SessionAttrs::ReadWrite,
            application_name: "outboxd".into(),
            connect_timeout: LIMIT,
        }
    }

    fn config(&self) -> Config {
        Config {
            postgres: config::Postgres {
                connection: self.as_role(&self.name),
                slot: self.name.clone(),
                publication: "outboxd".into(),
                sender_timeout: Duration::from_secs(30),
            },
            outbox: vec![Outbox::of(table("public", "outbox"), columns())],
            kafka: config::Kafka { brokers: "none:9092".into(), create_topics: None, properties: BTreeMap::new() },
            rules: outboxd::config::Rules::default(),
            log: None,
            dead_letter: config::DeadLetters {
                store: config::Store::Postgres,
                unknown_topic: config::UnknownTopic::Wait,
                max_attempts: 25,
                backoff: config::Backoff { first: Duration::from_secs(1), factor: 2, max: Duration::from_secs(3600) },
                order: config::Order::Skip,
                max_parked_keys: 10_000,
                max_rate: 20,
                retention: Duration::from_secs(7 * 86_400),
            },
            http: config::Http { listen: ([127, 0, 0, 1], 0).into() },
            limits: config::Limits {
                memory: 32 << 20,
                window: 100_000,
                event: 16 << 20,
                join: 10_000,
                settle: Duration::from_secs(30),
                shutdown: Duration::from_secs(25),
                primary_grace: Duration::from_secs(5),
                backoff: Duration::from_secs(10),
                probe: Duration::from_secs(5),
                sql: LIMIT,
                slot_creation: Duration::from_secs(60),
            },
        }
    }

    async fn init(&self, config: &Config) -> Result<String, Error> {
        let mut out = Vec::new();
        init::run(config, &self.admin(), Mode::Apply, &mut out).await?;
        Ok(String::from_utf8(out).unwrap())
    }

    async fn catalog(&self) -> Catalog {
        Catalog::connect(&self.admin(), LIMIT).await.unwrap()
    }

    async fn client(&self, connection: &Connection) -> tokio_postgres::Client {
        client(connection).await
    }

    /// Standard error of a script that must succeed, or of one that failed.
    fn psql(&self, sql: &str) -> Result<String, String> {
        psql(&self.directory, &self.name, sql, "1").map(|(_, err)| err)
    }

    fn psql_without_stopping(&self, sql: &str) -> String {
        psql(&self.directory, &self.name, sql, "0").unwrap().1
    }

    fn one(&self, sql: &str) -> String {
        psql(&self.directory, &self.name, sql, "1").unwrap().0.trim_end().to_owned()
    }

    /// Everything that init makes, rights included, as text for comparison.
    fn state(&self) -> String {
        let mine = "NOT IN ('pg_catalog', 'information_schema', 'pg_toast')";
        self.one(&format!(
            "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
                SELECT concat_ws(' ', 'schema', nspname, nspacl) AS line FROM pg_namespace WHERE nspname {mine}
                UNION ALL SELECT concat_ws(' ', 'relation', oid::regclass, relkind, relacl, obj_description(oid, 'pg_class'))
                    FROM pg_class WHERE relnamespace::regnamespace::text {mine}
                UNION ALL SELECT concat_ws(' ', 'column', attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod),
                        attnotnull, pg_get_expr(adbin, adrelid), col_description(attrelid, attnum))
                    FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
                    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                    WHERE attnum > 0 AND relnamespace::regnamespace::text {mine}
                UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
                    FROM pg_constraint WHERE connamespace::regnamespace::text {mine}
                UNION ALL SELECT concat_ws(' ', pg_get_functiondef(oid), proacl)
                    FROM pg_proc WHERE pronamespace::regnamespace::text {mine}
                UNION ALL SELECT (to_jsonb(p) - 'oid')::text FROM pg_publication AS p
                UNION ALL SELECT to_jsonb(t)::text FROM pg_publication_tables AS t
                UNION ALL SELECT (to_jsonb(r) - 'oid')::text FROM pg_roles AS r
                    WHERE oid IN (SELECT (aclexplode(relacl)).grantee FROM pg_class)
             ) AS lines"
        ))
    }

    /// Somebody who streams from the slot.
    fn stream(&self, user: &str) -> Child {
        Command::new("pg_recvlogical")
            .args([
                "-U",
                user,
                "-d",
                &self.name,
                "-S",
                &self.name,
                "--start",
                "--no-loop",
                "-f",
                "/dev/null",
                "-s",
                "1",
            ])
            .args(["-o", "proto_version=1", "-o", "publication_names=outboxd", "-h"])
            .arg(&self.directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

fn psql(directory: &Path, database: &str, sql: &str, stop: &str) -> Result<(String, String), String> {
    let mut psql = Command::new("psql")
        .args(["-XqAt", "-U", "postgres", "-d", database, "-v", &format!("ON_ERROR_STOP={stop}"), "-h"])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = psql.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok((text(output.stdout), text(output.stderr))) } else { Err(text(output.stderr)) }
}

async fn client(connection: &Connection) -> tokio_postgres::Client {
    let Host::Unix(directory, port) = &connection.hosts[0] else { panic!("the fixture uses Unix sockets") };
    let mut config = tokio_postgres::Config::new();
    config.host_path(directory).port(*port).user(&connection.user).dbname(&connection.dbname);
    let (client, driver) = config.application_name(&connection.application_name).connect(NoTls).await.unwrap();
    tokio::spawn(driver);
    client
}

async fn until<T>(mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = ready().await {
            return value;
        }
        assert!(Instant::now() < deadline, "it never came true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn table(schema: &str, name: &str) -> OutboxSource {
    OutboxSource::Table { schema: schema.into(), name: name.into() }
}

fn columns() -> Columns {
    Columns {
        aggregate_type: Some("aggregate_type".into()),
        aggregate_id: Some("aggregate_id".into()),
        event_type: Some("event_type".into()),
        timestamp: Some("created_at".into()),
        headers: Some("headers".into()),
        ..Columns::bare("id", "payload")
    }
}
