//! What became of a row is written into its own table: no confirmed position passes a row that is not marked, and no event
//! waits for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outboxd::lsn::Lsn;

use crate::letters::{good, insert, old};
use crate::steady;
use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::reader::{Reader, Seen};
use crate::support::relay::Relay;
use crate::support::scene::Scene;
use crate::support::spoiled::strict;
use crate::support::{PATIENCE, eventually, throughout, unique_name};

/// Our own outbox, whose rows are marked in one column.
fn marked() -> Scene {
    let mut scene = Scene::new();
    scene.database.exec("alter table public.outbox add column published_at timestamptz");
    scene.config = scene.config.add("outbox", "writeback = { column = \"published_at\" }");
    scene.config.run(&["init"]).assert_success();
    scene
}

fn unmarked(scene: &Scene) -> String {
    scene.database.ask("select count(*) from public.outbox where published_at is null").expect("a number")
}

#[track_caller]
fn wait_marked(scene: &Scene) {
    eventually("every row is marked", PATIENCE, || unmarked(scene) == "0");
}

/// Looks again and again which rows are not marked, each time behind a look at the slot.
struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Lsn, Vec<String>)>>,
}

impl Watch {
    fn start(scene: &Scene) -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let (mut session, slot, is_over) = (scene.database.connect(), scene.config.slot().to_owned(), over.clone());
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let sql = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1";
                let confirmed: String = session.query_one(sql, &[&slot]).unwrap().get(0);
                let rows = session.query("select id::text from public.outbox where published_at is null", &[]).unwrap();
                samples.push((confirmed.parse().unwrap(), rows.iter().map(|row| row.get(0)).collect()));
            }
            samples
        });
        Watch { over, thread }
    }

    /// No position passed a row that was not marked afterwards. Where a row stands is told by its record.
    #[track_caller]
    fn judge(self, seen: &[Seen]) {
        self.over.store(true, Ordering::Relaxed);
        let samples = self.thread.join().unwrap();
        let commits: HashMap<&str, Lsn> = seen.iter().map(|seen| (seen.id(), commit_of(seen))).collect();
        let mut compared = 0;
        for (confirmed, ids) in &samples {
            for commit in ids.iter().filter_map(|id| commits.get(id.as_str())) {
                assert!(commit >= confirmed, "{confirmed} was confirmed, and a row of {commit} was not marked");
                compared += 1;
            }
        }
        assert!(compared > 100 && samples.len() > 20, "{compared} rows in {} looks", samples.len());
    }
}

#[test]
fn a_relay_killed_under_load_leaves_no_published_row_unmarked_behind_the_slot() {
    let scene = marked();
    let watch = Watch::start(&scene);
    let load = steady::load(&scene, 1000.0);
    for _ in 0..4 {
        let mut relay = scene.relay();
        relay.wait_published(500.0);
        relay.sigkill();
    }
    let relay = scene.relay();
    steady::judge(&scene, load);
    wait_marked(&scene);
    watch.judge(&scene.reader.seen());
    assert_eq!(relay.metric("outboxd_writeback_failures_total"), Some(0.0), "{}", relay.log());
    eventually("nothing is owed", PATIENCE, || relay.metric("outboxd_writeback_events") == Some(0.0));
}

#[test]
fn a_relay_told_to_stop_under_load_marks_all_that_it_published_and_repeats_nothing() {
    let scene = marked();
    let load = steady::load(&scene, 1000.0);
    for _ in 0..3 {
        let mut relay = scene.relay();
        relay.wait_published(500.0);
        relay.sigterm();
        assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
        assert!(!relay.log().contains("publish these rows again"), "{}", relay.log());
    }
    let _relay = scene.relay();
    steady::judge(&scene, load).assert_exactly_once();
    wait_marked(&scene);
}

#[test]
fn events_flow_while_the_table_is_locked_and_the_slot_stands_until_it_is_not() {
    let scene = marked();
    (0..100).for_each(|n| drop(scene.write(&format!("k{n}"), "{}")));
    let before = scene.confirmed();
    let mut holder = scene.database.connect();
    holder.batch_execute("begin; lock table public.outbox in share mode").unwrap();
    let struck = Instant::now();
    let mut relay = Relay::start(&scene.config);
    scene.reader.wait_count(100, PATIENCE);
    eventually("all are owed", PATIENCE, || relay.metric("outboxd_writeback_events") == Some(100.0));
    relay.wait_unready("writeback", PATIENCE);
    eprintln!("noticed after {:?}", struck.elapsed());
    let (_, body) = relay.readiness().expect("it answers");
    assert!(body.to_string().contains("public.outbox"), "{body}");
    throughout("the slot stands", Duration::from_secs(2), || scene.confirmed() <= before.max(first_commit(&scene)));
    assert_eq!(unmarked(&scene), "100");
    holder.batch_execute("rollback").unwrap();
    relay.wait_ready();
    wait_marked(&scene);
    let end = scene.written();
    eventually("the slot goes on", PATIENCE, || scene.confirmed() >= end);
    assert_eq!(scene.reader.count(), 100, "nothing was repeated");
}

/// Where the first event was committed.
fn first_commit(scene: &Scene) -> Lsn {
    scene.reader.seen().iter().map(commit_of).min().expect("there are events")
}

fn commit_of(seen: &Seen) -> Lsn {
    let position = seen.header("lsn").expect("a record has a position");
    let (commit, _) = position.rsplit_once('/').expect("a commit and a row");
    commit.parse().unwrap()
}

#[test]
fn a_row_that_cannot_be_seen_yet_is_not_taken_for_one_that_is_gone() {
    let postgres = Postgres::private();
    let mut scene = Scene::on(&postgres, &Kafka::shared());
    scene.database.exec("alter table outbox add published_at timestamptz, add why text, add partition int");
    let block = "columns = { partition = \"partition\" }\nwriteback = { column = \"published_at\", error = \"why\" }";
    scene.config = scene.config.add("outbox", block);
    scene.config.run(&["init"]).assert_success();
    let mut relay = scene.relay();
    // What is committed is in the WAL, and waits to be seen until a standby has it, which there is none.
    let set = |value: &str| {
        postgres.exec("postgres", &format!("alter system set synchronous_standby_names = '{value}'"));
        postgres.exec("postgres", "select pg_reload_conf()");
    };
    set("nobody");
    let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, payload, partition) values
        (current_database(), 'k', 'e', '1', null), (current_database(), 'k', 'e', '1', 99)";
    let mut application = scene.database.connect();
    let waits = std::thread::spawn(move || application.batch_execute(insert).unwrap());
    scene.reader.wait_count(1, PATIENCE);
    assert_eq!(unmarked(&scene), "0", "nobody sees the rows");
    let is_owed = || relay.metric("outboxd_writeback_events") == Some(1.0);
    eventually("the published one is owed", PATIENCE, is_owed);
    throughout("it is owed", Duration::from_secs(2), is_owed);
    set("");
    waits.join().unwrap();
    let marked =
        || scene.database.ask("select count(*) from outbox where published_at is not null or why like 'partition: %'");
    eventually("both rows are marked", PATIENCE, || marked().as_deref() == Some("2"));
    relay.wait_ready();
}

/// Status words, attempts and the last error, beside a scene whose topic takes little.
fn worded() -> Scene {
    let mut scene = strict();
    scene.database.exec(
        "alter table outbox add status varchar(10) not null default 'PENDING', add attempts smallint,
             add last_error varchar(40), add processed_at timestamp",
    );
    let block = r#"
        columns = { partition = "partition" }
        writeback.column = "processed_at"
        writeback.status = "status"
        writeback.published = "SENT"
        writeback.rejected = "FAILED"
        writeback.attempts = "attempts"
        writeback.error = "last_error"
    "#;
    scene.config = scene.config.without("outbox").add("outbox", block).set("dead_letter.backoff.first", "1h");
    scene.config.run(&["init"]).assert_success();
    scene
}

fn row(scene: &Scene, id: &str) -> String {
    let sql = format!(
        "select concat_ws('|', status, coalesce(attempts::text, '-'), coalesce(last_error, '-'),
             case when processed_at is null then 'open' else 'done' end) from outbox where id = '{id}'"
    );
    scene.database.ask(&sql).expect("the row is there")
}

#[track_caller]
fn wait_row(scene: &Scene, id: &str, expected: &str) {
    eventually(&format!("the row says {expected}"), PATIENCE, || {
        let said = row(scene, id);
        said == expected || {
            eprintln!("{said}");
            false
        }
    });
}

#[test]
fn a_rejected_row_says_why_and_how_often_and_is_published_with_its_letter() {
    let scene = worded();
    let mut relay = scene.relay();
    let (fine, bad) = (good(&scene), old(&scene));
    let wrong = insert(&scene, ["current_database()", "'p'", "'1'", "null", "now()", "99"]);
    wait_row(&scene, &fine, "SENT|-|-|done");
    let error = scene.wait_letter(&bad).message;
    let why = |message: &str| format!("timestamp: {message}").chars().take(40).collect::<String>();
    wait_row(&scene, &bad, &format!("FAILED|1|{}|open", why(&error)));
    eventually("the other one says why", PATIENCE, || row(&scene, &wrong).starts_with("FAILED|1|partition: "));
    scene.retry_letters();
    eventually("it is tried again", PATIENCE, || row(&scene, &bad).starts_with("FAILED|2|timestamp: "));
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());

    let settings = [("message.timestamp.before.max.ms", "9223372036854775807")];
    scene.kafka.alter_topic(&scene.topic, &settings);
    let _relay = scene.relay();
    scene.retry_letters();
    scene.wait_state(&bad, "delivered");
    assert_eq!(row(&scene, &bad), "SENT|2|-|done", "before its letter");
    eventually("the other is tried again", PATIENCE, || row(&scene, &wrong).starts_with("FAILED|3|partition: "));
    eventually("its letter says so, too", PATIENCE, || {
        let letter = scene.wait_letter(&wrong);
        (letter.state.as_str(), letter.attempts) == ("pending", 3)
    });
    let letter = scene.wait_letter(&wrong).id.to_string();
    scene.config.run(&["dead-letters", "discard", &letter, "--note", "given up", "--yes"]).assert_success();
    scene.wait_state(&wrong, "discarded");
    assert!(row(&scene, &wrong).starts_with("FAILED|3|partition: "), "a discarded one is left as it is");
    let end = scene.written();
    eventually("the slot passes all of them", PATIENCE, || scene.confirmed() >= end);
}

#[test]
fn a_row_whose_letter_is_in_a_topic_is_marked_before_the_slot_passes_it() {
    let mut scene = worded();
    let topic = format!("{}.letters", scene.aggregate_type);
    scene.kafka.create_topic(&topic, 1);
    scene.config = scene.config.without("dead_letter").set("dead_letter.store", "kafka");
    scene.config = scene.config.set("dead_letter.topic", topic.as_str()).set("dead_letter.max_rate", 100);
    let letters = Reader::start(&scene.kafka, &[&topic]);
    let _relay = scene.relay();
    let (bad, fine) = (old(&scene), good(&scene));
    letters.wait_count(1, PATIENCE);
    wait_row(&scene, &fine, "SENT|-|-|done");
    eventually("the row says so", PATIENCE, || row(&scene, &bad).starts_with("FAILED|1|timestamp: "));
    let end = scene.written();
    eventually("the slot passes it", PATIENCE, || scene.confirmed() >= end);
}

#[test]
fn rows_of_partitions_are_marked_and_a_column_of_any_partition_key_is_refused() {
    let ddl = "create table events (id uuid default gen_random_uuid(), aggregate_type text default current_database(),
            aggregate_id text default 'k', event_type text default 'e', payload jsonb default '1', headers jsonb,
            created_at timestamptz default now(), region text default 'north', state text default 'new', published_at timestamptz,
            primary key (id, created_at, region)) partition by range (created_at);
        create table events_all partition of events for values from (minvalue) to (maxvalue) partition by list (region);
        create table events_north partition of events_all for values in ('north');
        create table events_rest partition of events_all default";
    let outbox = |writeback: &str| format!("table = \"public.events\"\nwriteback = {{ {writeback} }}");
    let scene = Scene::with_outboxes(ddl, &[&outbox("column = \"published_at\"")]);
    {
        let _relay = scene.relay();
        scene.database.exec("insert into events (region) select unnest(array['north', 'south', 'south'])");
        scene.reader.wait_count(3, PATIENCE);
        let open = || scene.database.ask("select count(*) from events where published_at is null");
        eventually("all are marked", PATIENCE, || open().as_deref() == Some("0"));
        scene.config.run(&["check"]).assert_success();
    }
    // An expression of a key counts as well.
    scene.database.exec(
        "create table events_keyed (like events including defaults) partition by list (lower(state));
         create table events_keyed_all partition of events_keyed default",
    );
    let publication = scene.config.slot();
    scene.database.exec(&format!("alter publication {publication} add table events_keyed"));
    // So does one above the table that is named.
    scene.database.exec(
        "create table events_apart (like events including defaults) partition by list (region);
         create table events_leaf partition of events_apart for values in ('north')",
    );
    scene.database.exec(&format!("alter publication {publication} add table events_leaf"));
    for (table, writeback, column) in [
        ("events_leaf", "status = \"region\", published = \"south\"", "region"),
        ("events", "status = \"region\", published = \"south\"", "region"),
        ("events", "column = \"created_at\" }\ncolumns = { timestamp = \"\"", "created_at"),
        ("events_keyed", "column = \"published_at\", status = \"state\", published = \"x\"", "state"),
    ] {
        let block = outbox(writeback).replace("public.events", &format!("public.{table}"));
        let config = scene.config.clone().without("outbox").add("outbox", &block);
        let said = format!("column \"{column}\" of table public.{table} is part of a partition key");
        let checked = config.run(&["check"]);
        assert!(checked.code == Some(1) && checked.stdout.contains(&said), "{}", checked.stdout);
        let ran = config.set("http.listen", "127.0.0.1:0").run(&["run"]);
        assert!(ran.code == Some(1) && ran.stderr.contains(&said), "{}", ran.stderr);
    }
}

#[test]
fn a_missing_right_shows_in_readiness_and_heals_when_it_is_granted() {
    let mut scene = marked();
    let role = unique_name();
    let url = scene.database.url().replace("postgres@", &format!("{role}@"));
    scene.config = scene.config.set("postgres.url", url);
    scene.config.run(&["init", "--url", &scene.database.url()]).assert_success();
    let granted = |column: &str| {
        let sql = format!("select has_column_privilege('{role}', 'public.outbox', '{column}', 'UPDATE')::text");
        scene.database.ask(&sql).expect("it is known")
    };
    assert_eq!(
        (granted("published_at").as_str(), granted("payload").as_str()),
        ("true", "false"),
        "no more than needed"
    );
    let mut relay = scene.relay();
    scene.write("k", "1");
    wait_marked(&scene);

    scene.database.exec(&format!("revoke update (published_at) on public.outbox from {role}"));
    let checked = scene.config.run(&["check"]);
    assert!(checked.stdout.contains("GRANT UPDATE (published_at) ON public.outbox"), "{}", checked.stdout);
    let struck = Instant::now();
    scene.write("k", "2");
    relay.wait_noticed(struck, "writeback");
    let (_, body) = relay.readiness().expect("it answers");
    assert!(body.to_string().contains("permission denied") && body.to_string().contains("outboxd init"), "{body}");
    scene.reader.wait_count(2, PATIENCE);
    assert_eq!(unmarked(&scene), "1");
    scene.database.exec(&format!("grant update (published_at) on public.outbox to {role}"));
    relay.wait_ready();
    wait_marked(&scene);
    assert!(relay.metric("outboxd_writeback_failures_total") > Some(0.0));
    drop(relay);
    scene.database.exec(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_number_or_a_boolean_is_a_status_like_a_word() {
    let table = |name: &str, status: &str| {
        format!(
            "create table {name} (id bigint generated always as identity primary key,
                 aggregate_type text default current_database(), aggregate_id text default 'k', event_type text,
                 payload jsonb default '1', headers jsonb, created_at timestamptz default now(), state {status});"
        )
    };
    let enumerated = "create type mood as enum ('new', 'sent');";
    let ddl =
        [enumerated, &table("numbered", "smallint default 0"), &table("flagged", "boolean"), &table("named", "mood")];
    let block = |name: &str, word: &str| {
        format!("table = \"{name}\"\nwriteback = {{ status = \"state\", published = {word} }}")
    };
    let blocks = [block("numbered", "1"), block("flagged", "true"), block("named", "\"sent\"")];
    let scene = Scene::with_outboxes(&ddl.concat(), &blocks.each_ref().map(String::as_str));
    let mut relay = scene.relay();
    scene.database.exec(
        "insert into numbered default values; insert into flagged default values; insert into named default values",
    );
    scene.reader.wait_count(3, PATIENCE);
    for (name, expected) in [("numbered", "1"), ("flagged", "true"), ("named", "sent")] {
        let state = || scene.database.ask(&format!("select state::text from {name}"));
        eventually("it is marked", PATIENCE, || state().as_deref() == Some(expected));
    }
    // A word that the column cannot hold ends the start.
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    let wrong = scene.config.clone().without("outbox").add("outbox", &block("named", "\"gone\""));
    let ran = wrong.set("http.listen", "127.0.0.1:0").run(&["run"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("gone"), "{}", ran.stderr);
}

#[test]
fn a_row_that_is_gone_is_no_failure_and_one_that_is_marked_stays_as_it_is() {
    let scene = marked();
    let kept = scene.write("k", "1");
    let gone = scene.write("k", "2");
    scene.database.exec(&format!("update outbox set published_at = 'epoch' where id = '{kept}'"));
    scene.database.exec(&format!("delete from outbox where id = '{gone}'"));
    let relay = scene.relay();
    scene.reader.wait_count(2, PATIENCE);
    let end = scene.written();
    eventually("both are confirmed", PATIENCE, || scene.confirmed() >= end);
    assert_eq!(relay.metric("outboxd_writeback_failures_total"), Some(0.0), "{}", relay.log());
    let sql = "select count(*) from outbox where published_at = 'epoch'";
    assert_eq!(scene.database.ask(sql).as_deref(), Some("1"), "it was marked before");
}

#[test]
fn a_row_that_somebody_locks_is_the_only_one_that_waits_and_nobody_runs_into_a_deadlock() {
    let scene = marked();
    let ids: Vec<String> = (0..50).map(|n| scene.write(&format!("k{n}"), "{}")).collect();
    let mut holder = scene.database.connect();
    let mut transaction = holder.transaction().unwrap();
    let lock = |id: &str| format!("update public.outbox set headers = '{{}}' where id = '{id}'");
    transaction.batch_execute(&lock(&ids[25])).unwrap();
    let mut relay = Relay::start(&scene.config);
    eventually("all others are marked", PATIENCE, || unmarked(&scene) == "1");
    // Whoever takes the rows in another order than we do waits for nobody.
    transaction.batch_execute(&lock(&ids[10])).unwrap();
    relay.wait_unready("writeback", PATIENCE);
    let (_, body) = relay.readiness().expect("it answers");
    assert!(body.to_string().contains("locked by others") && body.to_string().contains(&ids[25]), "{body}");
    let end = scene.written();
    assert!(scene.confirmed() < end, "the slot stands before it");
    assert_eq!(relay.metric("outboxd_writeback_failures_total"), Some(0.0), "{}", relay.log());
    transaction.commit().unwrap();
    relay.wait_ready();
    wait_marked(&scene);
    eventually("the slot goes on", PATIENCE, || scene.confirmed() >= end);
}

#[test]
fn a_row_that_a_trigger_refuses_is_named_and_holds_up_no_other() {
    let scene = marked();
    scene.database.exec(
        "create function public.refuse() returns trigger language plpgsql as
             $$ begin if old.aggregate_id = 'bad' then raise 'not this one'; end if; return new; end $$;
         create trigger refuse before update on public.outbox for each row execute function public.refuse()",
    );
    let checked = scene.config.run(&["check"]);
    assert!(checked.stdout.contains("\"refuse\" runs each time that a row is marked"), "{}", checked.stdout);
    (0..50).for_each(|n| drop(scene.write(&format!("k{n}"), "{}")));
    let bad = scene.write("bad", "{}");
    (50..100).for_each(|n| drop(scene.write(&format!("k{n}"), "{}")));
    let mut relay = Relay::start(&scene.config);
    eventually("all others are marked", PATIENCE, || unmarked(&scene) == "1");
    relay.wait_unready("writeback", PATIENCE);
    let (_, body) = relay.readiness().expect("it answers");
    assert!(body.to_string().contains("not this one") && body.to_string().contains(&bad), "{body}");
    let end = scene.written();
    assert!(scene.confirmed() < end, "the slot stands before it");
    scene.database.exec("drop trigger refuse on public.outbox");
    relay.wait_ready();
    wait_marked(&scene);
    eventually("the slot goes on", PATIENCE, || scene.confirmed() >= end);
}

#[test]
fn letters_are_stored_and_tried_while_the_table_that_is_written_back_is_locked() {
    let scene = worded();
    let bad = old(&scene);
    let mut holder = scene.database.connect();
    holder.batch_execute("begin; lock table public.outbox in share row exclusive mode").unwrap();
    let mut relay = Relay::start(&scene.config);
    scene.wait_letter(&bad);
    assert_eq!(row(&scene, &bad), "PENDING|-|-|open");
    scene.retry_letters();
    let tried = || {
        let sql = format!("select attempts from outboxd.dead_letter where event_id = '{bad}'");
        scene.database.ask(&sql).expect("it is there")
    };
    eventually("it is tried while the table is locked", PATIENCE, || tried() == "2");
    relay.wait_unready("writeback", PATIENCE);
    holder.batch_execute("rollback").unwrap();
    relay.wait_ready();
    eventually("the row says how often", PATIENCE, || row(&scene, &bad).starts_with("FAILED|2|timestamp: "));
}

#[test]
fn words_that_their_column_would_cut_and_tables_that_nobody_can_write_are_found_before() {
    let mut scene = Scene::new();
    scene.database.exec(
        "alter table outbox add status varchar(4), add tries text, add done boolean, add marked timestamptz not null default 'epoch'",
    );
    let ran = |scene: &Scene, block: &str, said: &str| {
        let config = scene.config.clone().without("outbox").add("outbox", block);
        let checked = config.run(&["check"]);
        assert!(checked.code == Some(1) && checked.stdout.contains(said), "{said}\n{}", checked.stdout);
        config
    };
    for (block, said) in [
        ("writeback = { status = \"status\", published = \"PUBLISHED\" }", "\"PUBLISHED\" becomes \"PUBL\""),
        ("writeback = { status = \"done\", published = \"true\", rejected = \"t\" }", "are the same value"),
        ("writeback = { status = \"status\", published = \"ok\", attempts = \"tries\" }", "GREATEST"),
        ("writeback = { column = \"marked\" }", "column \"marked\" of table public.outbox is NOT NULL"),
    ] {
        let config = ran(&scene, block, said);
        let ended = config.set("http.listen", "127.0.0.1:0").run(&["run"]);
        assert!(ended.code == Some(1) && ended.stderr.contains(said), "{said}\n{}", ended.stderr);
    }
    // Row security applies to whoever is neither the table's owner nor exempt.
    let role = unique_name();
    let url = scene.database.url().replace("postgres@", &format!("{role}@"));
    let block = "writeback = { status = \"status\", published = \"ok\" }";
    scene.config = scene.config.without("outbox").add("outbox", block).set("postgres.url", url);
    scene.config.run(&["init", "--url", &scene.database.url()]).assert_success();
    scene.config.run(&["check"]).assert_success();
    scene.database.exec("alter table outbox enable row level security");
    ran(&scene, block, "row-level security");
    scene.database.exec(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_table_that_cannot_be_written_any_more_is_no_other_ones_concern() {
    let table = |name: &str| {
        format!(
            "create table {name} (id uuid primary key default gen_random_uuid(), aggregate_type text default current_database(),
                 aggregate_id text default 'k', event_type text default 'e', payload jsonb default '1', headers jsonb,
                 created_at timestamptz default now(), done timestamptz);"
        )
    };
    let block = |name: &str| format!("table = \"{name}\"\nwriteback = {{ column = \"done\" }}");
    let scene = Scene::with_outboxes(&[table("one"), table("two")].concat(), &[&block("one"), &block("two")]);
    let mut relay = scene.relay();
    let open = |name: &str| scene.database.ask(&format!("select count(*) from {name} where done is null"));
    scene.database.exec("insert into one default values; insert into two default values");
    eventually("both are marked", PATIENCE, || {
        open("one").as_deref() == Some("0") && open("two").as_deref() == Some("0")
    });
    scene.database.exec("alter table two rename column done to did; insert into two default values");
    relay.wait_unready("writeback", PATIENCE);
    scene.database.exec("insert into one default values");
    eventually("the other one is marked", PATIENCE, || open("one").as_deref() == Some("0"));
    // Nor when a session is opened anew.
    assert!(scene.database.cut_replication(scene.config.slot()));
    relay.wait_log("the replication stream broke", PATIENCE);
    scene.database.exec("insert into one default values");
    eventually("the other one is marked again", PATIENCE, || open("one").as_deref() == Some("0"));
    relay.wait_unready("writeback", PATIENCE);
    scene.database.exec("alter table two rename column did to done");
    relay.wait_ready();
    eventually("and this one", PATIENCE, || open("two").as_deref() == Some("0"));
}

#[test]
fn a_letter_is_not_stored_before_its_row_can_be_seen_so_that_no_retry_takes_the_row_for_one_that_is_gone() {
    let postgres = Postgres::private();
    let standby = postgres.standby(postgres.port(), Postgres::options());
    let mut scene = Scene::on(&postgres, &Kafka::shared());
    scene.database.exec("alter table outbox add published_at timestamptz");
    scene.config = scene.config.add("outbox", "writeback = { column = \"published_at\" }");
    scene.config = scene.config.set("dead_letter.unknown_topic", "park").set("dead_letter.max_rate", 100);
    scene.config.run(&["init"]).assert_success();
    let mut relay = scene.relay();
    let set = |value: &str| {
        postgres.exec("postgres", &format!("alter system set synchronous_standby_names = '{value}'"));
        postgres.exec("postgres", "select pg_reload_conf()");
    };
    set("*");
    standby.exec("postgres", "select pg_wal_replay_pause()");
    // What is committed is in the WAL, here and there, and waits to be seen until the standby has replayed it.
    let insert = "set synchronous_commit = remote_apply;
        insert into outbox (aggregate_type, aggregate_id, event_type, payload) values (current_database() || '.late', 'k', 'e', '1')";
    let mut application = scene.database.connect();
    let waits = std::thread::spawn(move || application.batch_execute(insert).unwrap());
    relay.wait_log("the event is parked", PATIENCE);
    throughout("its letter waits", Duration::from_secs(3), || scene.dead_letters().is_empty());
    standby.exec("postgres", "select pg_wal_replay_resume()");
    waits.join().unwrap();
    let event = scene.database.ask("select id from outbox").expect("it can be seen");
    scene.wait_letter(&event);
    scene.kafka.create_topic(&format!("{}.late", scene.topic), 1);
    scene.wait_state(&event, "delivered");
    assert_eq!(unmarked(&scene), "0", "before its letter");
    relay.wait_ready();
    set("");
}

#[test]
fn a_stop_waits_for_the_rows_of_letters_that_were_tried() {
    let scene = worded();
    let mut relay = scene.relay();
    let bad = old(&scene);
    eventually("the row says why", PATIENCE, || row(&scene, &bad).starts_with("FAILED|1|timestamp: "));
    let end = scene.written();
    eventually("the slot passes it", PATIENCE, || scene.confirmed() >= end);
    let mut holder = scene.database.connect();
    let mut transaction = holder.transaction().unwrap();
    transaction.batch_execute(&format!("update outbox set headers = '{{}}' where id = '{bad}'")).unwrap();
    scene.retry_letters();
    relay.wait_log("a dead letter is rejected again", PATIENCE);
    relay.sigterm();
    relay.wait_log("asked to stop", PATIENCE);
    throughout("it waits", Duration::from_secs(2), || relay.readiness().is_some());
    transaction.rollback().unwrap();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    assert!(row(&scene, &bad).starts_with("FAILED|2|timestamp: "), "{}", row(&scene, &bad));
}

#[test]
fn what_a_letter_quotes_of_its_event_is_cut() {
    let scene = worded();
    let relay = scene.relay();
    let bad = insert(&scene, ["repeat('no topic ', 6000)", "'k'", "'1'", "null", "now()", "null"]);
    let message = scene.wait_letter(&bad).message;
    assert!(message.len() < 1010 && message.ends_with("..."), "{message}");
    eventually("its row says so", PATIENCE, || row(&scene, &bad).starts_with("FAILED|1|topic: "));
    drop(relay);
}

/// How long the relay takes to confirm a backlog, with marks and without. Run it with `--release`.
#[test]
#[ignore = "a measurement, for docs/performance.md"]
fn what_marks_cost() {
    const EVENTS: u32 = 200_000;
    let lap = |scene: &Scene| {
        let insert = "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
            select current_database(), n::text, 'e', jsonb_build_object('text', repeat('x', 450)) from generate_series(1, 1000) as n";
        let mut session = scene.database.connect();
        (0..EVENTS / 1000).for_each(|_| session.batch_execute(insert).unwrap());
        let end = scene.written();
        let begun = Instant::now();
        let relay = Relay::start(&scene.config);
        eventually("all are confirmed", PATIENCE * 4, || scene.confirmed() >= end);
        let rate = f64::from(EVENTS) / begun.elapsed().as_secs_f64();
        assert_eq!(relay.metric("outboxd_writeback_failures_total"), Some(0.0), "{}", relay.log());
        rate
    };
    for round in 1..=3 {
        let (plain, marked) = (lap(&Scene::new()), lap(&marked()));
        println!("round {round}: {plain:.0} events/s, marked {marked:.0}, {:.2} of it", marked / plain);
    }
}
