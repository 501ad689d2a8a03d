use std::time::{Duration, SystemTime};

use super::*;
use crate::config::{Connection, Match, Pattern, Piece, Route};
use crate::lsn::Lsn;
use crate::sink::inspect;
use crate::source::System;
use crate::source::catalog::survey::{
    LetterStore, OpenLetters, OutboxColumn, OutboxTable, OwnTable, PositionTable, Role, SampleRow, Senders, Setting,
    Setup, Survey,
};
use crate::source::catalog::{Place, Publication, PublishedTable, Server, Slot, SlotKind};
use crate::source::wire::Login;
use facts::{Replication, Step, Stop};

pub(super) const SYSTEM: System = System { id: 7, timeline: 1 };

/// A configuration of the defaults.
pub(super) fn config() -> Config {
    let text = r#"
        [postgres]
        url = "postgres://relay@db1/shop?sslmode=verify-full&channel_binding=require"
        [kafka]
        brokers = "kafka:9092"
    "#;
    Config::from_toml(text, "test", std::iter::empty()).unwrap()
}

pub(super) fn connection() -> Connection {
    config().postgres.connection
}

/// A database where everything is as it should be.
pub(super) fn survey() -> Survey {
    Survey {
        server: Server {
            version: 180_006,
            system: Some(SYSTEM),
            in_recovery: false,
            wal_lsn: Lsn(0x2000),
            clock: SystemTime::UNIX_EPOCH,
        },
        setup: setup(&[
            ("wal_level", "logical", None),
            ("max_replication_slots", "10", None),
            ("max_wal_senders", "10", None),
            ("max_slot_wal_keep_size", "51200", Some("MB")),
            ("idle_replication_slot_timeout", "0", Some("s")),
            ("synchronized_standby_slots", "", None),
            ("synchronous_standby_names", "", None),
            ("logical_decoding_work_mem", "65536", Some("kB")),
            ("output_plugin_libraries", "pgoutput, test_decoding", None),
        ]),
        role: Role { name: "relay".into(), replication: true, ..Role::default() },
        slot: Some(slot()),
        slots: Vec::new(),
        senders: Senders::default(),
        publication: Some(publication()),
        tables: vec![table()],
        transactions: Vec::new(),
        spill: None,
        position_table: Some(PositionTable { usage: true, select: true, insert: true, update: true }),
        place: None,
        letters: LetterStore { tables: own_tables(), open: Some(OpenLetters::default()), pauses: Some(Vec::new()) },
    }
}

/// The tables of letters as the migrations make them, with every right.
pub(super) fn own_tables() -> Vec<OwnTable> {
    let migration = include_str!("../../migrations/0004_dead_letters.sql");
    let is_column = |line: &&str| line.strip_prefix("    ").is_some_and(|line| line.starts_with(char::is_lowercase));
    let table = |text: &str| {
        let (name, body) = text.split_once(" (\n").unwrap();
        let (body, _) = body.split_once("\n);").unwrap();
        let columns = body.lines().filter(is_column).filter_map(|line| line.split_whitespace().next());
        OwnTable {
            name: name.to_owned(),
            usage: true,
            rights: ["SELECT", "INSERT", "UPDATE", "DELETE"].map(str::to_owned).into(),
            columns: columns.map(str::to_owned).collect(),
        }
    };
    let mut tables: Vec<OwnTable> = migration.split("CREATE TABLE outboxd.").skip(1).map(table).collect();
    let later = include_str!("../../migrations/0005_letter_types.sql").split("ALTER TABLE outboxd.").skip(1);
    for (name, added) in later.map(|text| text.split_once(" ADD COLUMN ").unwrap()) {
        let table = tables.iter_mut().find(|table| table.name == name).unwrap();
        table.columns.push(added.split_whitespace().next().unwrap().to_owned());
    }
    tables
}

pub(super) fn setup(settings: &[(&str, &str, Option<&str>)]) -> Setup {
    let settings = settings.iter().map(|(name, setting, unit)| {
        ((*name).to_owned(), Setting { setting: (*setting).to_owned(), unit: unit.map(str::to_owned) })
    });
    Setup { database: "shop".into(), tls: Some("TLSv1.3".into()), settings: settings.collect(), ..Setup::default() }
}

pub(super) fn slot() -> Slot {
    Slot {
        plugin: Some("pgoutput".into()),
        database: Some("shop".into()),
        kind: SlotKind::Logical,
        temporary: false,
        two_phase: false,
        failover: Some(true),
        confirmed: Some(Lsn(0x1000)),
        restart: Some(Lsn(0x800)),
        wal_status: Some("reserved".into()),
        safe_wal_size: Some(50 << 30),
        invalidation_reason: None,
        retained_bytes: 4096,
        holder: None,
    }
}

pub(super) fn publication() -> Publication {
    Publication {
        insert: true,
        update: false,
        delete: false,
        truncate: false,
        via_root: true,
        all_tables: false,
        tables: vec![published("public", "outbox")],
    }
}

pub(super) fn published(schema: &str, name: &str) -> PublishedTable {
    PublishedTable { schema: schema.into(), name: name.into(), row_filter: None, columns: None }
}

pub(super) fn table() -> OutboxTable {
    let columns = [
        ("id", "uuid"),
        ("aggregate_type", "text"),
        ("aggregate_id", "text"),
        ("event_type", "text"),
        ("payload", "jsonb"),
        ("created_at", "timestamp with time zone"),
        ("headers", "jsonb"),
    ];
    let column = |(name, type_name): (&str, &str)| OutboxColumn {
        name: name.into(),
        type_name: type_name.into(),
        not_null: true,
        generated: false,
    };
    OutboxTable {
        schema: "public".into(),
        name: "outbox".into(),
        kind: Some("r".into()),
        readable: true,
        columns: columns.map(column).into(),
        indexed: vec!["id".into()],
        sample: Some(vec![row("order", 60.0, 500)]),
        ..OutboxTable::default()
    }
}

pub(super) fn row(aggregate_type: &str, age: f64, size: i64) -> SampleRow {
    let columns =
        [("id", "7"), ("aggregate_type", aggregate_type), ("aggregate_id", "1"), ("event_type", "order.placed")];
    let columns = columns.map(|(name, text)| (name.to_owned(), Some(text.to_owned())));
    SampleRow { columns: columns.into(), age: Some(age), size: Some(size) }
}

pub(super) fn route(matches: &[(&str, &str)], topic: &str, key: Piece) -> Route {
    let matches = matches.iter().map(|(name, glob)| ((*name).to_owned(), Match::Glob((*glob).to_owned()))).collect();
    let topic = Some(Pattern { pieces: vec![Piece::Literal(topic.into())] });
    Route { matches, topic, key: Some(Pattern { pieces: vec![key] }), ..Route::default() }
}

pub(super) fn column(name: &str) -> Piece {
    Piece::Column(name.into())
}

pub(super) fn place(confirmed: u64) -> Place {
    Place {
        system: SYSTEM,
        confirmed: Lsn(confirmed),
        leader: "a".into(),
        left_cleanly: true,
        sender_timeout: Duration::from_secs(30),
        updated_at: SystemTime::UNIX_EPOCH,
    }
}

pub(super) fn topic(name: &str) -> inspect::Topic {
    let config = [
        ("min.insync.replicas", "2"),
        ("max.message.bytes", "1048588"),
        ("cleanup.policy", "delete"),
        ("retention.ms", "604800000"),
        ("message.timestamp.type", "CreateTime"),
        ("message.timestamp.before.max.ms", "9223372036854775807"),
        ("message.timestamp.after.max.ms", "3600000"),
    ];
    inspect::Topic {
        name: name.into(),
        state: inspect::TopicState::Present { partitions: 6, replicas: 3, in_sync: 3 },
        may_write: Some(true),
        config: Some(config.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
    }
}

/// Everything as it should be.
pub(super) fn facts() -> Facts {
    let survey = survey();
    Facts {
        stopped: None,
        topics: routing::topics(&config(), &survey.tables),
        survey: Some(survey),
        replication: Replication::Identified {
            system: SYSTEM,
            login: Login::ScramPlus,
            sender_timeout: Some(Duration::from_secs(30)),
        },
        kafka: inspect::Facts {
            reach: inspect::Reach::Reached,
            brokers: vec![inspect::Broker { id: 1, address: "kafka-1:9092".into(), answered: true }],
            producer_id: inspect::ProducerId::Granted,
            topics: vec![topic("outbox.event.order")],
        },
        letter_topic: None,
    }
}

/// The finding of one check among several.
#[track_caller]
pub(super) fn only<'a>(findings: &'a [Finding], id: &str) -> &'a Finding {
    let found: Vec<&Finding> = findings.iter().filter(|finding| finding.id == id).collect();
    assert_eq!(found.len(), 1, "{id}: {findings:#?}");
    found[0]
}

/// Asserts a verdict, words of its message, and words of its hint.
#[track_caller]
pub(super) fn assert_finding(finding: &Finding, verdict: Verdict, message: &str, hint: &str) {
    assert_eq!(finding.verdict, verdict, "{finding:#?}");
    assert!(verdict < Verdict::Warn || finding.hint.is_some(), "{finding:#?} says no way on");
    assert!(finding.message.contains(message), "{finding:#?} lacks {message:?}");
    assert!(finding.hint.as_deref().unwrap_or_default().contains(hint), "{finding:#?} lacks the hint {hint:?}");
}

#[test]
fn a_good_set_up_passes_with_a_word_about_order() {
    let mut facts = facts();
    // The default route is the one thing worth a word.
    let report = judge(&config(), &facts);
    let not_ok: Vec<&Finding> = report.findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
    assert!(matches!(not_ok.as_slice(), [Finding { id: "route.order", verdict: Verdict::Notice, .. }]), "{not_ok:#?}");
    assert_eq!(report.exit_code(Strictness::Strict), 0);
    // Every id speaks exactly once, in order.
    let ids: Vec<&str> = report.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(ids, IDS);
    facts.survey = None;
    facts.stopped =
        Some(Stop { step: Step::Tcp, message: "db1:5432: cannot connect".into(), sqlstate: None, hint: None });
    facts.replication = Replication::Unasked;
    assert_eq!(judge(&config(), &facts).exit_code(Strictness::Lenient), 1);
}

#[test]
fn what_was_not_reached_is_skipped_and_says_so() {
    let facts = Facts {
        stopped: Some(Stop {
            step: Step::Dns,
            message: "db1:5432: the host name does not resolve".into(),
            sqlstate: None,
            hint: None,
        }),
        kafka: inspect::Facts { reach: inspect::Reach::Unreached(Vec::new()), ..inspect::Facts::default() },
        ..Facts::default()
    };
    let report = judge(&config(), &facts);
    assert_finding(only(&report.findings, "pg.reach"), Verdict::Fail, "DNS failed: db1:5432", "name in postgres.url");
    assert_finding(only(&report.findings, "slot.health"), Verdict::Skipped, "PostgreSQL was not reached", "");
    assert_finding(only(&report.findings, "kafka.reach"), Verdict::Fail, "no broker of kafka:9092", "kafka.brokers");
    assert_finding(only(&report.findings, "kafka.topics"), Verdict::Skipped, "Kafka was not reached", "");
    assert!(IDS.iter().all(|id| report.findings.iter().any(|finding| finding.id == *id)));
}

#[test]
fn the_text_is_aligned_and_coloured_only_when_told_so() {
    let report = Report {
        findings: vec![
            Finding::ok("pg.reach", "logged in"),
            Finding::fail("pg.wal_level", "wal_level = replica").hint("ALTER SYSTEM SET wal_level = logical;"),
        ],
    };
    let plain = "\
ok      pg.reach      logged in
fail    pg.wal_level  wal_level = replica
                      hint: ALTER SYSTEM SET wal_level = logical;
1 ok, 0 notice, 0 warn, 1 fail, 0 skip
";
    assert_eq!(report.text(Colour::Plain), plain);
    let coloured = report.text(Colour::Ansi);
    assert!(coloured.starts_with("\x1b[32mok    \x1b[0m  pg.reach"), "{coloured:?}");
}

#[test]
fn the_json_is_stable() {
    let report = Report {
        findings: vec![
            Finding::ok("pg.reach", "in"),
            Finding::warn("slot.cap", "-1").hint("set it"),
            Finding::skipped("pg.hba", "x"),
        ],
    };
    let expected = serde_json::json!({
        "verdict": "warn",
        "counts": { "ok": 1, "notice": 0, "warn": 1, "fail": 0, "skipped": 1 },
        "findings": [
            { "id": "pg.reach", "verdict": "ok", "message": "in" },
            { "id": "slot.cap", "verdict": "warn", "message": "-1", "hint": "set it" },
            { "id": "pg.hba", "verdict": "skipped", "message": "x" },
        ],
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&report.json()).unwrap(), expected);
}

#[test]
fn only_a_failure_fails_unless_strict() {
    let with = |verdict| Report { findings: vec![Finding::new("pg.reach", verdict, "x")] };
    for (verdict, lenient, strict) in [
        (Verdict::Ok, 0, 0),
        (Verdict::Skipped, 0, 0),
        (Verdict::Notice, 0, 0),
        (Verdict::Warn, 0, 1),
        (Verdict::Fail, 1, 1),
    ] {
        assert_eq!(with(verdict).exit_code(Strictness::Lenient), lenient, "{verdict:?}");
        assert_eq!(with(verdict).exit_code(Strictness::Strict), strict, "{verdict:?}");
    }
}

#[test]
fn the_document_and_the_code_know_the_same_checks() {
    let document = include_str!("../../docs/checks.md");
    let documented: Vec<&str> =
        document.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    assert_eq!(documented, IDS);
}
