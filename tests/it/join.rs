//! Payloads in a second table: events and payload rows in either order become one record, or a letter that says what is missing.

use std::collections::{BTreeMap, HashSet};

use crate::support::PATIENCE;
use crate::support::oracle::{Event, Truth};
use crate::support::scene::Scene;

const DDL: &str = "
    create table events (id uuid primary key default gen_random_uuid(), aggregate_type text not null default current_database(),
        aggregate_id text not null, event_type text not null default 'written', headers jsonb, body uuid,
        created_at timestamptz not null default now());
    create table bodies (id text primary key, payload jsonb, tenant text);
    create table plain (id uuid primary key default gen_random_uuid(), aggregate_type text not null default current_database(),
        aggregate_id text not null, event_type text not null default 'written', headers jsonb, payload jsonb,
        created_at timestamptz not null default now())";

/// Events whose payloads are in `bodies`, found by a uuid and its text.
const JOINED: &str = "table = \"public.events\"\njoin = { table = \"public.bodies\", on = \"body = id\" }";

fn scene() -> Scene {
    Scene::with_outboxes(DDL, &[JOINED, "table = \"public.plain\""])
}

/// A uuid that ends in this number.
fn body(n: usize) -> String {
    format!("00000000-0000-0000-0000-{n:012}")
}

/// What has arrived, as key and value.
fn arrived(scene: &Scene, count: usize) -> Vec<(String, String)> {
    let seen = scene.reader.wait_count(count, PATIENCE);
    seen.iter().map(|seen| (seen.key().to_owned(), seen.value().to_owned())).collect()
}

#[test]
fn events_get_their_payloads_in_either_order_and_in_the_order_of_their_rows() {
    let mut scene = scene();
    scene.config = scene
        .config
        .without("route")
        .add("route", "key = \"{aggregate_id}\"\nheaders = { tenant = \"{tenant|none}\" }");
    let _relay = scene.relay();
    let event =
        |key: &str, n: usize| format!("insert into events (aggregate_id, body) values ('{key}', '{}');", body(n));
    let payload = |n: usize| format!("insert into bodies values ('{}', '{n}', 'tenant-{n}');", body(n));
    let plain = |key: &str, n: usize| format!("insert into plain (aggregate_id, payload) values ('{key}', '{n}');");
    // One key, so that what arrives is in one order.
    scene.database.exec(&format!("begin; {} {} commit", event("k", 1), payload(1)));
    scene.database.exec(&format!("begin; {} {} commit", payload(2), event("k", 2)));
    let rows = [
        event("k", 4),
        plain("k", 5),
        payload(3),
        event("k", 3),
        event("k", 4),
        plain("k", 6),
        payload(4),
        plain("k", 7),
    ];
    scene.database.exec(&format!("begin; {} commit", rows.concat()));
    let expected = ["1", "2", "4", "5", "3", "4", "6", "7"].map(|value| ("k".to_owned(), value.to_owned()));
    assert_eq!(arrived(&scene, expected.len()), expected);
    let seen = scene.reader.seen();
    assert_eq!([seen[0].header("tenant"), seen[3].header("tenant")], [Some("tenant-1"), Some("none")]);
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert!(scene.dead_letters().is_empty());
}

#[test]
fn a_relay_that_is_killed_among_ten_thousand_pairs_loses_and_reorders_nothing() {
    const PAIRS: usize = 10_000;
    let scene = scene();
    let mut relay = scene.relay();
    let make = "create table made as select n, gen_random_uuid() as id, gen_random_uuid() as body from generate_series(1, {n}) as n;
        create index on made (n)";
    scene.database.exec(&make.replace("{n}", &(2 * PAIRS).to_string()));
    let events = "insert into events (id, aggregate_id, body) select id, 'key-' || n % 50, body from made where n between {from} and {to} order by n;";
    let bodies =
        "insert into bodies select body, jsonb_build_object('n', n, 'padding', repeat(md5(id::text), 20)) from made
        where n between {from} and {to} order by n desc;";
    for (at, statements) in [[events, bodies], [bodies, events]].into_iter().enumerate() {
        let fill = |sql: &str| {
            sql.replace("{from}", &(at * PAIRS + 1).to_string()).replace("{to}", &((at + 1) * PAIRS).to_string())
        };
        scene.database.exec(&format!("begin; {} {} commit", fill(statements[0]), fill(statements[1])));
        scene.reader.wait_count(at * PAIRS + 500, PATIENCE);
        scene.reader.disturbed("relay crash");
        relay.sigkill();
        relay = scene.relay();
    }
    let truth = truth(&scene);
    scene.judge(&truth).assert_order_was_tried();
    for seen in scene.reader.seen() {
        let sql = format!(
            "select payload::text from bodies join events on events.body::text = bodies.id where events.id = '{}'",
            seen.id()
        );
        // Each of them would take minutes.
        if seen.id().starts_with("00") {
            assert_eq!(scene.database.ask(&sql).as_deref(), Some(seen.value()));
        }
    }
    assert!(scene.dead_letters().is_empty(), "{:#?}", scene.dead_letters().first());
}

/// All events, by key, in the order in which they were inserted.
fn truth(scene: &Scene) -> Truth {
    let mut session = scene.database.connect();
    let committed_by = Some(scene.written());
    let mut committed = BTreeMap::<String, Vec<Event>>::new();
    let sql = "select aggregate_id, events.id::text from events join made on made.id = events.id order by n";
    for row in session.query(sql, &[]).expect("the table is read") {
        committed.entry(row.get(0)).or_default().push(Event { id: row.get(1), committed_by });
    }
    Truth { committed, rolled_back: HashSet::new() }
}

#[test]
fn an_event_without_its_payload_is_parked_and_delivered_once_that_is_there() {
    let scene = scene();
    let relay = scene.relay();
    let insert = format!("insert into events (aggregate_id, body) values ('k', '{}') returning id", body(1));
    let lonely = scene.database.ask(&insert).expect("it has an id");
    let null = scene.database.ask("insert into events (aggregate_id) values ('k') returning id").expect("it has an id");
    scene.database.exec("insert into plain (aggregate_id, payload) values ('k', '3')");
    assert_eq!(arrived(&scene, 1), [("k".to_owned(), "3".to_owned())], "one bad event never stops the line");
    let letter = scene.wait_letter(&lonely);
    assert_eq!(letter.reason, "payload_missing");
    let expected = format!("its payload row (public.bodies, id = {}) is not in its transaction", body(1));
    assert_eq!(letter.message, expected);
    assert_eq!(scene.wait_letter(&null).reason, "payload_missing");
    assert_eq!(relay.metric("outboxd_events_rejected_total{reason=\"payload_missing\"}"), Some(2.0));
    let show = || scene.config.run(&["dead-letters", "show", &letter.id.to_string()]);
    assert!(show().stdout.contains("public.bodies.payload"), "{}", show().stdout);
    scene.retry_letters();
    let tried =
        crate::support::within(PATIENCE, || Some(scene.wait_letter(&lonely)).filter(|letter| letter.attempts > 1));
    assert_eq!(tried.expect("it is tried").reason, "payload_missing", "it is still not there");
    scene.database.exec(&format!("insert into bodies values ('{}', '{{\"late\": true}}', 'acme')", body(1)));
    assert!(show().stdout.contains("public.bodies.payload  not kept; 14 B in the table's row"), "{}", show().stdout);
    scene.retry_letters();
    scene.wait_state(&lonely, "delivered");
    let seen = scene.reader.wait_count(2, PATIENCE).remove(1);
    assert_eq!((seen.id(), seen.value()), (lonely.as_str(), "{\"late\": true}"));
    assert_eq!(scene.wait_letter(&null).reason, "payload_missing");
}

#[test]
fn a_key_that_is_repeated_is_repeated_with_what_its_letter_had_delivered() {
    let mut scene = scene();
    scene.config = scene.config.set("dead_letter.order", "park-key");
    let mut relay = scene.relay();
    // The second event waits for its topic, and the slot before it.
    scene.database.exec(&format!(
        "begin; insert into events (aggregate_id, body) values ('k', '{}');
         insert into plain (aggregate_type, aggregate_id, payload) values (current_database() || '.later', 'x', '2'); commit",
        body(1)
    ));
    let lonely = scene.database.ask("select id from events").expect("it is there");
    assert_eq!(scene.wait_letter(&lonely).reason, "payload_missing");
    scene.database.exec(&format!("insert into bodies values ('{}', '1', 't')", body(1)));
    scene.retry_letters();
    scene.wait_state(&lonely, "delivered");
    scene.reader.disturbed("relay crash");
    relay.sigkill();
    let _relay = scene.relay();
    // Its row comes again, and has no payload in its transaction.
    let seen = scene.reader.wait_count(2, PATIENCE);
    assert!(seen.iter().all(|seen| seen.id() == lonely && seen.value() == "1"), "{seen:?}");
    scene.wait_state(&lonely, "delivered");
    scene.kafka.create_topic(&format!("{}.later", scene.topic), 1);
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    assert_eq!(scene.dead_letters().len(), 1, "one event, one letter");
}

#[test]
fn more_rows_than_may_wait_are_parked_and_healed_by_their_table() {
    let mut scene = scene();
    scene.config = scene.config.set("limits.join", 10);
    let _relay = scene.relay();
    let keys: Vec<String> = (1..=300).map(body).collect();
    let events: String =
        keys.iter().map(|key| format!("insert into events (aggregate_id, body) values ('k', '{key}');")).collect();
    let bodies: String = keys.iter().map(|key| format!("insert into bodies values ('{key}', '1', 't');")).collect();
    scene.database.exec(&format!("begin; {events} {bodies} commit"));
    scene.reader.wait_count(300, PATIENCE);
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let letters = scene.dead_letters();
    assert_eq!(letters.len(), 290, "ten may wait: {letters:#?}");
    assert!(letters.iter().all(|letter| letter.reason == "payload_missing" && letter.message.contains("limits.join")));
}

/// An event and its payload row in one transaction, whose table has this name.
fn pair(n: usize, bodies: &str) -> String {
    format!(
        "insert into events (aggregate_id, body) values ('k', '{0}'); insert into {bodies} values ('{0}', '{n}', 't');",
        body(n)
    )
}

#[test]
fn a_joined_table_that_comes_under_another_name_stops_the_relay() {
    // Without probes, which would find the table gone from the publication first.
    let scene = scene();
    let config = scene.config.set("postgres.sender_timeout", "1h").set("limits.probe", "1h");
    let scene = Scene { config, ..scene };
    let mut relay = scene.relay();
    scene.database.exec(&format!("begin; {} commit", pair(1, "bodies")));
    assert_eq!(arrived(&scene, 1), [("k".to_owned(), "1".to_owned())]);
    scene.database.exec(&format!("begin; alter table bodies rename to elsewhere; {} commit", pair(2, "elsewhere")));
    assert_eq!(relay.wait_exit(PATIENCE), Some(1), "{}", relay.log());
    let words = "joined table \\\"public.bodies\\\" is now called \\\"public.elsewhere\\\", which is not configured";
    assert!(relay.log().contains(words), "{}", relay.log());
    assert!(scene.dead_letters().is_empty());
}

#[test]
fn a_joined_table_that_is_renamed_before_its_first_row_stops_the_relay_and_heals_what_was_parked_meanwhile() {
    let scene = scene();
    let mut relay = scene.relay();
    // Nothing in the stream tells what the table was called before: a probe does.
    scene.database.exec(&format!("begin; alter table bodies rename to elsewhere; {} commit", pair(1, "elsewhere")));
    assert_eq!(relay.wait_exit(PATIENCE), Some(1), "{}", relay.log());
    assert!(relay.log().contains("does not send table \\\"public.bodies\\\""), "{}", relay.log());
    scene.database.exec("alter table elsewhere rename to bodies");
    let _relay = scene.relay();
    let event = scene.database.ask("select id from events").expect("it is there");
    assert_eq!(scene.wait_letter(&event).reason, "payload_missing");
    scene.retry_letters();
    scene.wait_state(&event, "delivered");
    assert_eq!(arrived(&scene, 1), [("k".to_owned(), "1".to_owned())]);
}

#[test]
fn init_publishes_both_tables_and_check_proves_them() {
    let mut scene = scene();
    scene.config = scene.config.without("route").add("route", "topic = \"{tenant}\"\nkey = \"{aggregate_id}\"");
    let tables = "select string_agg(tablename, ' ' order by tablename) from pg_publication_tables where pubname = '{}'";
    let tables = scene.database.ask(&tables.replace("{}", scene.config.slot()));
    assert_eq!(tables.as_deref(), Some("bodies events plain"));
    let check = || scene.config.run(&["check"]).stdout;
    let told = check();
    assert!(told.contains("payloads are in public.bodies, where body = id"), "{told}");
    assert!(!told.contains("also sends"), "{told}");
    // A row without its payload row is no row to try: whether it ever gets one, nobody knows.
    scene.database.exec(&format!("insert into events (aggregate_id, body) values ('lonely', '{}')", body(1)));
    let none = "there is no row to try them on whose payload row an index finds";
    assert!(check().contains(none), "{}", check());
    scene.database.exec(&format!(
        "insert into events (aggregate_id, body) values ('whole', '{0}'); insert into bodies values ('{0}', '2', 'acme')",
        body(2)
    ));
    let told = check();
    assert!(told.contains("a real row becomes a record of topic \"acme\" with key \"whole\""), "{told}");
    scene.database.exec("alter table bodies drop constraint bodies_pkey");
    let told = check();
    assert!(told.contains("public.bodies has no index on \"id\"") && told.contains(none), "{told}");
    scene.database.exec("alter table bodies rename payload to content");
    let told = check();
    assert!(told.contains("public.bodies has no column \"payload\" for the payload"), "{told}");
    scene.database.exec(&format!("alter publication {} drop table bodies", scene.config.slot()));
    let ended = scene.config.run(&["run"]);
    assert!(ended.stderr.contains("does not send table \"public.bodies\""), "{}", ended.stderr);
}
