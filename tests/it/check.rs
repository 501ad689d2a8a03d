//! `outboxd check` against real servers: what is broken is found, named, and mended by its own hint.

use std::sync::Arc;

use outboxd::check::{self, Finding, Report, Strictness, Verdict};
use outboxd::config::Config;
use outboxd::init;
use outboxd::source::catalog::Catalog;
use outboxd::source::catalog::survey::Ask;

use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres, Version};
use crate::support::process::{Farewell, Process};
use crate::support::{PATIENCE, eventually, within};

/// A database that `init` has set up, and the relay's configuration for it.
struct SetUp {
    database: Database,
    kafka: Arc<Kafka>,
}

impl SetUp {
    /// On the shared servers.
    fn new() -> SetUp {
        SetUp::on(&Postgres::shared())
    }

    fn on(server: &Arc<Postgres>) -> SetUp {
        let set_up = SetUp::bare(server);
        let admin = set_up.parsed(&set_up.text(&set_up.database.url(), ""));
        let (config, mut printed) = (set_up.config(), Vec::new());
        let done = init::run(&config, &admin.postgres.connection, init::Mode::Apply, &mut printed);
        block_on(done).unwrap_or_else(|error| panic!("{}", error.chain()));
        set_up
    }

    /// Without `init`, but with the role.
    fn bare(server: &Arc<Postgres>) -> SetUp {
        let set_up = SetUp { database: server.database(), kafka: Kafka::shared() };
        set_up.database.exec(&format!("create role {} login replication", set_up.role()));
        set_up
    }

    fn role(&self) -> String {
        format!("{}_relay", self.database.name())
    }

    fn topic(&self) -> String {
        format!("outbox.event.{}", self.database.name())
    }

    fn url(&self) -> String {
        self.database.url().replace("postgres@", &format!("{}@", self.role()))
    }

    fn text(&self, url: &str, more: &str) -> String {
        let (slot, brokers) = (self.database.name(), self.kafka.brokers());
        format!("[postgres]\nurl = \"{url}\"\nslot = \"{slot}\"\n[kafka]\nbrokers = \"{brokers}\"\n{more}")
    }

    fn parsed(&self, text: &str) -> Config {
        Config::from_toml(text, "test", std::iter::empty()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn config(&self) -> Config {
        self.parsed(&self.text(&self.url(), ""))
    }

    fn check(&self) -> Report {
        self.check_with("")
    }

    fn check_with(&self, more: &str) -> Report {
        block_on(check::run(&self.parsed(&self.text(&self.url(), more))))
    }

    /// Writes an event about an aggregate that only this test has.
    fn emit(&self) {
        let sql = format!("select outbox.emit('{}', '1', 'order.placed', '{{}}')", self.database.name());
        self.database.exec(&sql);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[track_caller]
fn finding<'a>(report: &'a Report, id: &str) -> &'a Finding {
    let worst = report.findings.iter().filter(|finding| finding.id == id).max_by_key(|finding| finding.verdict);
    worst.unwrap_or_else(|| panic!("{id} says nothing"))
}

#[track_caller]
fn assert_finding<'a>(report: &'a Report, id: &str, verdict: Verdict, words: &str) -> &'a Finding {
    let found = finding(report, id);
    assert!(found.verdict == verdict && found.message.contains(words), "{}", report.text(check::Colour::Plain));
    found
}

#[test]
fn what_init_has_set_up_passes() {
    let set_up = SetUp::new();
    set_up.emit();
    set_up.kafka.create_topic(&set_up.topic(), 3);
    let report = set_up.check();
    let failed: Vec<&Finding> = report.findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(report.exit_code(Strictness::Lenient), 0);
    for id in [
        "pg.reach",
        "pg.pooler",
        "pg.hba",
        "pg.same_server",
        "pg.sender_timeout",
        "pg.role",
        "pg.wal_level",
        "pg.privileges",
        "pub.exists",
        "pub.scope",
        "slot.kind",
        "slot.free",
    ] {
        assert_finding(&report, id, Verdict::Ok, "");
    }
    assert_finding(&report, "outbox.columns", Verdict::Ok, "public.outbox: 7 mapped columns");
    assert_finding(&report, "route.order", Verdict::Notice, "the default route");
    assert_finding(&report, "kafka.topics", Verdict::Ok, "every topic exists");
    assert_finding(&report, "kafka.write", Verdict::Ok, "");
    assert_finding(&report, "kafka.acl", Verdict::Ok, "");
    // The harness has one broker, and no limit on the WAL that slots keep.
    assert_finding(&report, "kafka.insync", Verdict::Warn, "one replica");
    assert_finding(&report, "slot.cap", Verdict::Warn, "fills the disk");
    assert_eq!(report.exit_code(Strictness::Strict), 1);
}

#[test]
fn a_bare_server_with_wal_level_replica_lacks_everything() {
    let set_up = SetUp::bare(&Postgres::options().setting("wal_level", "replica").start());
    let report = set_up.check();
    assert_eq!(report.exit_code(Strictness::Lenient), 1);
    assert_finding(&report, "pg.reach", Verdict::Ok, "");
    let level = assert_finding(&report, "pg.wal_level", Verdict::Fail, "replica");
    assert!(level.hint.as_ref().unwrap().contains("ALTER SYSTEM SET wal_level = logical"), "{level:?}");
    assert_finding(&report, "pub.exists", Verdict::Fail, "publication \"outboxd\" does not exist");
    assert_finding(&report, "slot.kind", Verdict::Fail, "does not exist");
    assert_finding(&report, "pg.privileges", Verdict::Fail, "outboxd.position does not exist");
    assert_finding(&report, "slot.free", Verdict::Skipped, "there is no slot");
}

#[test]
fn a_hint_pasted_by_the_owner_mends_what_it_is_about() {
    let set_up = SetUp::new();
    let role = set_up.role();
    for (damage, id, words) in [
        (format!("alter role {role} noreplication"), "pg.role", "may not replicate"),
        ("alter publication outboxd drop table public.outbox".to_string(), "pub.exists", "lacks table public.outbox"),
        ("alter publication outboxd set (publish = 'update')".to_string(), "pub.exists", "sends no inserts"),
        (format!("revoke update on outboxd.position from {role}"), "pg.privileges", "lacks UPDATE"),
        (format!("revoke usage on schema outboxd from {role}"), "pg.privileges", "schema outboxd"),
        ("alter table outbox set unlogged".to_string(), "pub.exists", "unlogged"),
        (format!("revoke select on outbox from {role}"), "outbox.columns", "may not be read"),
        (
            "alter table outbox drop constraint outbox_pkey, alter id drop not null".to_string(),
            "outbox.columns",
            "may be NULL",
        ),
    ] {
        // A published table cannot be made unlogged by newer servers; without the publication it can.
        if words == "unlogged" {
            set_up.database.exec("alter publication outboxd drop table public.outbox");
        }
        set_up.database.exec(&damage);
        let report = set_up.check();
        let found = finding(&report, id);
        assert!(found.verdict > Verdict::Skipped && found.message.contains(words), "{damage}: {found:#?}");
        set_up.database.exec(found.hint.as_ref().unwrap());
        if words == "unlogged" {
            set_up.database.exec("alter publication outboxd add table public.outbox");
        }
        let mended = set_up.check();
        assert_eq!(finding(&mended, id).verdict, Verdict::Ok, "{damage}: {:#?}", finding(&mended, id));
    }
}

#[test]
fn who_holds_the_slot_is_named_with_its_pid() {
    let set_up = SetUp::new();
    let slot = set_up.database.name();
    let mut command = set_up.database.recvlogical(slot, "outboxd");
    let holder = Process::spawn(command.args(["-f", "/dev/null"]), Farewell::Kill);
    let pid = within(PATIENCE, || set_up.database.walsender(slot)).expect("the slot is held");
    let report = set_up.check();
    let held =
        assert_finding(&report, "slot.free", Verdict::Fail, &format!("pid {pid}, application \"pg_recvlogical\""));
    assert!(held.hint.as_ref().unwrap().contains(&format!("pg_terminate_backend({pid})")), "{held:?}");
    drop(holder);
}

#[test]
fn an_open_transaction_is_seen_with_its_pid_and_its_age_unless_that_is_hidden() {
    let set_up = SetUp::new();
    let mut session = set_up.database.connect();
    let mut transaction = session.transaction().unwrap();
    transaction.batch_execute("create table slow ()").unwrap();
    let pid: i32 = transaction.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let seen = || {
        let config = set_up.config();
        let survey = block_on(async {
            let catalog = Catalog::connect(&config.postgres.connection, config.limits.sql).await.unwrap();
            let ask = Ask { slot: "x", publication: "x", outboxes: &[], route_columns: &Default::default() };
            catalog.survey(&ask).await.unwrap_or_else(|error| panic!("{}", error.chain()))
        });
        survey.transactions.into_iter().find(|transaction| transaction.pid == Some(pid)).unwrap()
    };
    assert!(seen().age_seconds.is_some(), "{:?}", seen());
    set_up.database.exec(&format!("revoke pg_read_all_stats from {}", set_up.role()));
    assert_eq!(seen().age_seconds, None);
    assert_finding(&set_up.check(), "pg.long_xact", Verdict::Notice, "hidden");
}

#[test]
fn a_partitioned_outbox_must_arrive_under_its_own_name() {
    let set_up = SetUp::new();
    set_up.database.exec(
        "alter publication outboxd drop table outbox;
         drop table outbox;
         create table outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
            headers jsonb, created_at timestamptz not null, primary key (id, created_at))
            partition by range (created_at);
         create table outbox_all partition of outbox for values from ('2000-01-01') to ('2100-01-01');
         alter publication outboxd add table outbox;
         alter publication outboxd set (publish_via_partition_root = false)",
    );
    let report = set_up.check();
    assert_finding(&report, "pub.exists", Verdict::Ok, "");
    let split = assert_finding(&report, "pub.partition", Verdict::Fail, "public.outbox");
    set_up.database.exec(split.hint.as_ref().unwrap());
    let report = set_up.check();
    assert_finding(&report, "pub.partition", Verdict::Ok, "root");
    assert_finding(&report, "pub.exists", Verdict::Ok, "");
    assert_finding(&report, "pub.scope", Verdict::Ok, "");
}

#[test]
fn a_filter_of_rows_or_columns_is_found() {
    if Version::wanted() == Version::V14 {
        return; // knows neither
    }
    let set_up = SetUp::new();
    set_up.database.exec("alter publication outboxd set table outbox where (event_type <> 'secret')");
    assert_finding(&set_up.check(), "pub.filter", Verdict::Warn, "(event_type <> 'secret'::text)");
    set_up.database.exec("alter publication outboxd set table outbox (id, event_type, aggregate_type, aggregate_id)");
    assert_finding(&set_up.check(), "pub.filter", Verdict::Fail, "is not in the publication's column list");
}

#[test]
fn a_relay_that_commits_wait_for_is_found() {
    let server = Postgres::options()
        .setting("synchronous_commit", "off")
        .setting("synchronous_standby_names", "'ANY 1 (*)'")
        .start();
    assert_finding(&SetUp::bare(&server).check(), "pg.sync_commit", Verdict::Fail, "block every commit");
}

#[test]
fn a_slot_that_lost_its_wal_is_found() {
    let server = Postgres::options().setting("max_slot_wal_keep_size", "1MB").setting("min_wal_size", "32MB").start();
    let set_up = SetUp::on(&server);
    assert_finding(&set_up.check(), "slot.cap", Verdict::Warn, "of WAL left");
    let status = format!("select wal_status from pg_replication_slots where slot_name = '{}'", set_up.database.name());
    eventually("the slot is lost", PATIENCE, || {
        set_up.database.exec("create table filler (); drop table filler; select pg_switch_wal(); checkpoint");
        set_up.database.ask(&status).as_deref() == Some("lost")
    });
    assert_finding(&set_up.check(), "slot.health", Verdict::Fail, "slot");
}

#[test]
fn a_slot_of_a_restored_database_is_found() {
    let set_up = SetUp::new();
    let system = set_up.database.ask("select system_identifier from pg_control_system()").unwrap();
    let mirror = |system: &str, confirmed: &str| {
        let slot = set_up.database.name();
        set_up.database.exec(&format!(
            "delete from outboxd.position;
             insert into outboxd.position values ('{slot}', {system}, 1, '{confirmed}', 'x', 30000, true, now(), now())"
        ));
        set_up.check()
    };
    assert_finding(&mirror(&system, "F/0"), "slot.place", Verdict::Fail, "restored from a backup");
    assert_finding(&mirror("42", "0/1"), "slot.place", Verdict::Fail, "another cluster");
    assert_finding(&mirror(&system, "0/1"), "slot.place", Verdict::Warn, "made it anew");
}

#[test]
fn a_connection_that_fails_names_the_step() {
    let set_up = SetUp::new();
    let port = set_up.database.server().port().to_string();
    for (wrong, step, words) in [
        (set_up.url().replace("127.0.0.1", "no-such-host.invalid"), "DNS failed", ""),
        (set_up.url().replace(&port, "1"), "TCP failed", "refused"),
        (set_up.url().replace(&format!("/{}", set_up.database.name()), "/nowhere"), "login failed", "nowhere"),
        (set_up.url().replace(&set_up.role(), "nobody_at_all"), "login failed", "nobody_at_all"),
    ] {
        let report = block_on(check::run(&set_up.parsed(&set_up.text(&wrong, ""))));
        let reach = assert_finding(&report, "pg.reach", Verdict::Fail, step);
        assert!(reach.message.contains(words) && reach.hint.is_some(), "{reach:#?}");
        assert_finding(&report, "slot.kind", Verdict::Skipped, "PostgreSQL was not reached");
        assert_finding(&report, "kafka.reach", Verdict::Ok, "");
    }
}

#[test]
fn a_wrong_password_is_named_and_never_shown() {
    let server = Postgres::options().hba("host all all 127.0.0.1/32 scram-sha-256").start();
    let set_up = SetUp::bare(&server);
    set_up.database.exec(&format!("alter role {} password 'right'", set_up.role()));
    let with = |password: &str| {
        let url = set_up.url().replace('@', &format!(":{password}@"));
        block_on(check::run(&set_up.parsed(&set_up.text(&url, ""))))
    };
    let refused = with("hunter2");
    let reach = assert_finding(&refused, "pg.reach", Verdict::Fail, "login failed");
    assert!(reach.hint.as_ref().unwrap().contains("password"), "{reach:#?}");
    assert!(!refused.json().contains("hunter2"), "{}", refused.json());
    assert_finding(&with("right"), "pg.reach", Verdict::Ok, "by SCRAM-SHA-256");
}

#[test]
fn a_role_without_replication_is_told_from_a_closed_door() {
    let set_up = SetUp::new();
    set_up.database.exec(&format!("alter role {} noreplication", set_up.role()));
    let report = set_up.check();
    assert_finding(&report, "pg.role", Verdict::Fail, "may not replicate");
    assert_finding(&report, "pg.hba", Verdict::Ok, "the role may not replicate");
    assert_finding(&report, "pg.same_server", Verdict::Skipped, "no replication session");
}

#[test]
fn topics_are_derived_from_the_rows_and_their_limits_held_against_them() {
    let set_up = SetUp::new();
    assert_finding(&set_up.check(), "kafka.topics", Verdict::Skipped, "no topic is known yet");
    set_up.emit();
    let missing = set_up.check();
    let missing = assert_finding(&missing, "kafka.topics", Verdict::Fail, &set_up.topic());
    assert!(missing.hint.as_ref().unwrap().contains("--create --topic"), "{missing:?}");
    let settings = [("max.message.bytes", "2000"), ("retention.ms", "86400000"), ("cleanup.policy", "compact,delete")];
    set_up.kafka.create_topic_with(&set_up.topic(), 1, &settings);
    let name = set_up.database.name();
    set_up.database.exec(&format!(
        "insert into outbox (aggregate_type, event_type, payload, created_at) values
            ('{name}', 'large', to_jsonb(repeat('x', 5000)), now()),
            ('{name}', 'old', '{{}}', now() - interval '3 days'),
            ('{name}', 'odd', '{{}}', 'infinity')"
    ));
    let report = set_up.check();
    assert_finding(&report, "kafka.size", Verdict::Fail, "4.9 KiB");
    assert_finding(&report, "kafka.retention", Verdict::Warn, "3 d old, and the topic keeps 24 h");
    assert_finding(&report, "kafka.cleanup", Verdict::Notice, &set_up.topic());
    assert_finding(&report, "kafka.timestamp", Verdict::Ok, "");
    set_up.database.exec(&format!(
        "insert into outbox (aggregate_type, event_type, payload, created_at)
         values ('{name}', 'early', '{{}}', now() + interval '3 days')"
    ));
    assert_finding(&set_up.check(), "kafka.timestamp", Verdict::Fail, "3 d in the future");
}

#[test]
fn a_column_that_a_route_names_must_be_there() {
    let set_up = SetUp::new();
    let route = "[[route]]\ntopic = \"t.{tenant}\"\nkey = \"{aggregate_id}\"\n";
    let report = set_up.check_with(route);
    assert_finding(&report, "outbox.columns", Verdict::Fail, "column \"tenant\"");
    assert_finding(&report, "route.order", Verdict::Ok, "");
    set_up.database.exec("alter table outbox add tenant text");
    assert_finding(&set_up.check_with(route), "outbox.columns", Verdict::Ok, "");
}

#[test]
fn a_right_to_describe_is_told_from_a_right_to_write() {
    let mut set_up = SetUp::new();
    let topic = set_up.topic();
    set_up.emit();
    let kafka = Kafka::options().sasl(&[("relay", "secret")]).start();
    kafka.create_topic(&topic, 1);
    set_up.kafka = kafka.clone();
    let with_password = |password: &str| {
        let properties = format!(
            "\"security.protocol\" = \"SASL_PLAINTEXT\", \"sasl.mechanism\" = \"PLAIN\", \
             \"sasl.username\" = \"relay\", \"sasl.password\" = \"{password}\""
        );
        let text = set_up.text(&set_up.url(), &format!("properties = {{ {properties} }}\n"));
        let text = text.replace(&kafka.brokers(), &kafka.address("SASL_PLAINTEXT"));
        block_on(check::run(&set_up.parsed(&text)))
    };
    let refused = with_password("hunter2");
    let reach = assert_finding(&refused, "kafka.reach", Verdict::Fail, "login failed");
    assert!(!refused.json().contains("hunter2") && reach.hint.is_some(), "{reach:#?}");

    let nothing = with_password("secret");
    assert_finding(&nothing, "kafka.acl", Verdict::Fail, "authorization failed");
    assert_finding(&nothing, "kafka.topics", Verdict::Fail, "may not describe");
    assert_finding(&nothing, "kafka.write", Verdict::Skipped, "");

    kafka.allow("relay", "Describe", &["--topic", &topic]);
    let eyes_only = with_password("secret");
    assert_finding(&eyes_only, "kafka.topics", Verdict::Ok, "");
    assert_finding(&eyes_only, "kafka.insync", Verdict::Skipped, "may not read the configuration");
    let write = assert_finding(&eyes_only, "kafka.write", Verdict::Fail, "describe but not write");
    assert!(write.hint.as_ref().unwrap().contains("--allow-principal User:relay --operation Write"), "{write:#?}");

    kafka.allow("relay", "Write", &["--topic", &topic]);
    kafka.allow("relay", "DescribeConfigs", &["--topic", &topic]);
    let allowed = with_password("secret");
    for id in ["kafka.acl", "kafka.topics", "kafka.write"] {
        assert_finding(&allowed, id, Verdict::Ok, "");
    }
    assert_finding(&allowed, "kafka.insync", Verdict::Warn, "one replica");
}

/// Stores letters of a slot, each with a key of its own; the first few of them wait for a person.
fn park(set_up: &SetUp, slot: &str, many: u32, failed: u32) {
    set_up.database.exec(&format!(
        "insert into outboxd.dead_letter (slot, system_id, timeline, commit_lsn, row_number, committed_at, origin_name,
            topic, key, column_names, column_values, not_kept, reason, message, state, attempts, attempts_left,
            next_attempt)
         select '{slot}', 1, 1, '0/1', n, now(), 'outbox', 'orders', int4send(n), '{{}}', '{{}}', '{{}}', 'refused',
            'x', case when n <= {failed} then 'failed' else 'pending' end, 1, 1, now()
         from generate_series(1, {many}) as n"
    ));
}

#[test]
fn a_right_on_letters_that_the_relay_lacks_is_named_with_its_grant() {
    let set_up = SetUp::new();
    let role = set_up.role();
    let park_unknown = "[dead_letter]\nunknown_topic = \"park\"\n";
    let report = set_up.check_with(park_unknown);
    for id in ["letters.store", "letters.rights", "letters.open", "letters.pause", "letters.keys"] {
        assert_finding(&report, id, Verdict::Ok, "");
    }
    for (damage, words) in [
        ("delete on outboxd.dead_letter", "lacks DELETE on outboxd.dead_letter"),
        ("select, insert on outboxd.pause", "lacks SELECT, INSERT on outboxd.pause"),
        ("insert on outboxd.known_topic", "lacks INSERT on outboxd.known_topic"),
        ("usage on schema outboxd", "may not use schema outboxd"),
    ] {
        set_up.database.exec(&format!("revoke {damage} from {role}"));
        let report = set_up.check_with(park_unknown);
        let found = assert_finding(&report, "letters.rights", Verdict::Fail, words);
        set_up.database.exec(found.hint.as_ref().unwrap());
        assert_finding(&set_up.check_with(park_unknown), "letters.rights", Verdict::Ok, "");
    }
}

#[test]
fn tables_of_letters_that_are_missing_or_of_another_version_are_found() {
    let set_up = SetUp::new();
    set_up.database.exec("drop table outboxd.dead_letter_attempt");
    let report = set_up.check();
    let gone = assert_finding(&report, "letters.store", Verdict::Fail, "outboxd.dead_letter_attempt does not exist");
    assert_eq!(gone.hint.as_deref(), Some("outboxd init"));
    set_up.database.exec("alter table outboxd.dead_letter drop column lane");
    let report = set_up.check();
    assert_finding(&report, "letters.store", Verdict::Fail, "of another version: no \"lane\"");
    assert_finding(&report, "letters.open", Verdict::Skipped, "cannot be read");
}

#[test]
fn letters_that_wait_for_a_person_a_pause_and_many_parked_keys_are_told() {
    let set_up = SetUp::new();
    let slot = set_up.database.name();
    let park_key = "[dead_letter]\norder = \"park-key\"\nmax_parked_keys = 5\n[[route]]\nkey = \"{aggregate_id}\"\n";
    park(&set_up, slot, 3, 0);
    park(&set_up, "another_slot", 9, 9);
    let report = set_up.check_with(park_key);
    assert_finding(&report, "letters.open", Verdict::Ok, "3 letters are open");
    assert_finding(&report, "letters.keys", Verdict::Ok, "3 keys are parked, and 5 may be");
    set_up.database.exec("delete from outboxd.dead_letter");
    park(&set_up, slot, 4, 1);
    set_up.database.exec(&format!("insert into outboxd.pause (slot, message) values ('{slot}', 'so many')"));
    let report = set_up.check_with(park_key);
    assert_finding(&report, "letters.open", Verdict::Warn, "1 of 4 open letters wait for a person");
    assert_finding(&report, "letters.keys", Verdict::Warn, "4 keys are parked, and 5 may be");
    assert_finding(&report, "letters.pause", Verdict::Warn, "so many");
    assert_eq!(finding(&report, "letters.store").verdict, Verdict::Ok);
    set_up.database.exec("update outboxd.dead_letter set state = 'delivered'; delete from outboxd.pause");
    let report = set_up.check_with(park_key);
    for id in ["letters.open", "letters.keys", "letters.pause"] {
        assert_finding(&report, id, Verdict::Ok, "");
    }
}

#[test]
fn a_topic_of_letters_must_be_there_and_not_compacted() {
    let set_up = SetUp::new();
    let topic = format!("letters.{}", set_up.database.name());
    let in_topic = format!("[dead_letter]\nstore = \"kafka\"\ntopic = \"{topic}\"\n");
    let report = set_up.check_with(&in_topic);
    let missing = assert_finding(&report, "letters.store", Verdict::Fail, &format!("\"{topic}\" does not exist"));
    assert!(missing.hint.as_ref().unwrap().contains(&format!("--create --topic {topic}")), "{missing:?}");
    // It is none of the topics that events go to.
    assert_finding(&report, "kafka.topics", Verdict::Skipped, "no topic is known yet");
    set_up.kafka.create_topic_with(&topic, 1, &[("cleanup.policy", "compact")]);
    assert_finding(&set_up.check_with(&in_topic), "letters.store", Verdict::Warn, "is compacted");
    set_up.kafka.alter_topic(&topic, &[("cleanup.policy", "delete")]);
    // The harness has one broker.
    eventually("the topic is not compacted", PATIENCE, || {
        finding(&set_up.check_with(&in_topic), "letters.store").message.contains("has one replica")
    });
    set_up.database.exec("drop table outboxd.dead_letter_attempt, outboxd.pause");
    assert_finding(&set_up.check_with(&in_topic), "letters.store", Verdict::Fail, "outboxd.pause does not exist");
}

#[test]
fn a_publication_with_outboxds_own_tables_is_found() {
    let set_up = SetUp::new();
    set_up.database.exec("alter publication outboxd add table outboxd.dead_letter, outboxd.position");
    let report = set_up.check();
    let own = assert_finding(&report, "pub.scope", Verdict::Warn, "sends outboxd.dead_letter, outboxd.position");
    set_up.database.exec(own.hint.as_ref().unwrap());
    assert_finding(&set_up.check(), "pub.scope", Verdict::Ok, "");
}

#[test]
fn a_failover_slot_that_waits_for_no_standby_may_lose_letters() {
    if !matches!(Version::wanted(), Version::V17 | Version::V18) {
        return; // may know no failover slots
    }
    let set_up = SetUp::on(&Postgres::private());
    assert_finding(&set_up.check(), "letters.failover", Verdict::Ok, "no physical standby");
    set_up.database.exec("select pg_create_physical_replication_slot('standby')");
    assert_finding(&set_up.check(), "letters.failover", Verdict::Warn, "may lose the latest letters");
    set_up.database.exec("alter system set synchronized_standby_slots = 'standby'");
    set_up.database.exec("select pg_reload_conf()");
    eventually("the stream waits for the standby", PATIENCE, || {
        finding(&set_up.check(), "letters.failover").verdict == Verdict::Ok
    });
}
