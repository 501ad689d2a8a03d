//! A table changes under the running relay: what is not mapped may come and go, what is mapped must be there.

use postgres::Client;

use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::reader::Seen;
use crate::support::relay::{Config, Relay};
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually};

/// Values are one word: the columns behind them come and go.
fn scene_of(columns: &str) -> Scene {
    let ddl = format!("create table events ({columns}, aggregate_type text default current_database(), note text)");
    Scene::with_outboxes(&ddl, &[BLOCK])
}

const BLOCK: &str = "table = \"public.events\"
                     columns = { aggregate_id = \"\", event_type = \"what\", timestamp = \"\", headers = \"\" }";

const COLUMNS: &str = "id text, what text default 'happened', payload text";

fn keyed(scene: Scene) -> Scene {
    let config = scene.config.without("route").add("route", "key = \"one\"");
    Scene { config, ..scene }
}

#[test]
fn columns_that_are_not_mapped_come_and_go_under_a_running_relay() {
    let scene = keyed(scene_of(COLUMNS));
    let relay = scene.relay();
    insert(&scene, "1");
    for (n, change) in [
        "add extra int",
        "add filled text not null default 'x'",
        "rename note to remark",
        "drop extra",
        "alter filled type varchar(5)",
        "drop remark, add remark numeric, add constraint positive check (remark > 0)",
        "replica identity full",
        "set (fillfactor = 50)",
    ]
    .iter()
    .enumerate()
    {
        scene.database.exec(&format!("alter table events {change}"));
        insert(&scene, &(n + 2).to_string());
    }
    scene.database.exec(
        "begin; insert into events (id, payload) values ('a', 'a'); alter table events drop filled;
                         insert into events (id, payload) values ('b', 'b'); commit",
    );
    assert_arrived(&scene, &["1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b"]);
    assert_eq!(relay.sessions_lost(), 0.0);
}

#[test]
fn mapped_columns_change_their_types_under_a_running_relay() {
    let scene = keyed(scene_of("id uuid, what text default 'happened', payload json"));
    let relay = scene.relay();
    let ids = ["0", "1", "2", "3"].map(|n| format!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd38000{n}"));
    let insert = |id: &str| {
        let sql = r#"insert into events (id, payload) values ('{id}', '{"b":1,  "a":2}')"#;
        scene.database.exec(&sql.replace("{id}", id));
    };
    insert(&ids[0]);
    scene.database.exec("alter table events alter what type varchar(20)");
    insert(&ids[1]);
    scene.database.exec("alter table events alter payload type jsonb");
    insert(&ids[2]);
    scene.database.exec("alter table events alter id type text");
    insert(&ids[3]);
    scene.database.exec("alter table events alter payload type text");
    insert("any id");
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let seen = scene.reader.seen();
    let shown: Vec<(&str, &str)> = seen.iter().map(|record| (record.id(), record.value())).collect();
    let (typed, printed) = (r#"{"b":1,  "a":2}"#, r#"{"a": 2, "b": 1}"#);
    assert_eq!(
        shown,
        [
            (ids[0].as_str(), typed),
            (&ids[1], typed),
            (&ids[2], printed),
            (&ids[3], printed),
            // Rows rewritten by ALTER are no events; new ones are taken as they are typed.
            ("any id", typed),
        ]
    );
    assert!(seen.iter().all(|record| record.header("type") == Some("happened")));
    assert_eq!(relay.sessions_lost(), 0.0);
}

#[test]
fn a_table_altered_under_load_loses_reorders_and_repeats_nothing() {
    let scene = Scene::new();
    scene.database.exec("create type word as enum ('written')");
    let relay = scene.relay();
    let load = scene.workload().start(&scene.database);
    // To a type that needs a session of text, and back; more columns, and fewer.
    for (written, change) in [
        (500, "alter event_type type word using event_type::word"),
        (1500, "add extra int default 7"),
        (2500, "alter event_type type text"),
        (3500, "drop extra, alter payload type json"),
    ] {
        load.wait_written(written);
        scene.database.exec(&format!("alter table outbox {change}"));
    }
    scene.judge(&load.finish()).assert_exactly_once();
    assert!(
        relay.log().contains("column \\\"event_type\\\" of table \\\"public.outbox\\\" is read as text"),
        "{}",
        relay.log()
    );
}

#[test]
fn a_table_renamed_away_and_back_goes_on() {
    let scene = keyed(scene_of(COLUMNS));
    let _relay = scene.relay();
    insert(&scene, "1");
    scene.database.exec("alter table events rename to elsewhere; alter table elsewhere rename to events");
    insert(&scene, "2");
    // In one transaction: a relay that sees the table gone from the publication stops.
    scene
        .database
        .exec("create schema other; alter table events set schema other; alter table other.events set schema public");
    insert(&scene, "3");
    assert_arrived(&scene, &["1", "2", "3"]);
}

#[test]
fn a_row_written_under_another_name_while_no_relay_ran_is_not_passed_over() {
    let scene = keyed(scene_of(COLUMNS));
    scene.database.exec("alter table events rename to elsewhere");
    scene.database.exec("insert into elsewhere (id, payload) values ('2', '2')");
    scene.database.exec("alter table elsewhere rename to events");
    insert(&scene, "3");
    let mut relay = Relay::start(&scene.config);
    assert_eq!(relay.wait_exit(PATIENCE), Some(1), "{}", relay.log());
    assert!(
        relay.log().contains("rows of table \\\"public.elsewhere\\\", which looks like an outbox"),
        "{}",
        relay.log()
    );
    assert_eq!(scene.reader.count(), 0);
}

#[test]
fn a_row_written_under_another_name_stops_the_relay_until_that_name_is_configured() {
    // Without probes, which would find the table gone from the publication first.
    let scene = keyed(scene_of(COLUMNS));
    let config = scene.config.set("postgres.sender_timeout", "1h").set("limits.probe", "1h");
    let scene = Scene { config, ..scene };
    let mut relay = scene.relay();
    insert(&scene, "1");
    assert_arrived(&scene, &["1"]);
    scene
        .database
        .exec("alter table events rename to elsewhere; insert into elsewhere (id, payload) values ('2', '2')");
    assert_stopped(&scene, &mut relay, "\\\"public.events\\\" is now called \\\"public.elsewhere\\\"");

    let config = scene.config.clone().without("outbox").add("outbox", &BLOCK.replace("events", "elsewhere"));
    let scene = Scene { config, ..scene };
    let _relay = scene.relay();
    scene.database.exec("insert into elsewhere (id, payload) values ('3', '3')");
    assert_arrived(&scene, &["1", "2", "3"]);
}

#[test]
fn a_mapped_column_that_vanished_stops_the_relay_before_the_first_row_without_it() {
    let scene = keyed(scene_of(COLUMNS));
    let mut relay = scene.relay();
    insert(&scene, "1");
    // Nothing was written without it: nothing is wrong.
    scene.database.exec("alter table events drop what; alter table events add what text default 'again'");
    insert(&scene, "2");
    assert_arrived(&scene, &["1", "2"]);
    scene.database.exec("alter table events rename what to which");
    insert(&scene, "3");
    let words = "table \\\"public.events\\\" has no column \\\"what\\\", which is mapped as the event_type";
    assert_stopped(&scene, &mut relay, words);

    let scene = Scene { config: mapped(&scene.config, "event_type = \"which\""), ..scene };
    let mut relay = scene.relay();
    insert(&scene, "4");
    assert_arrived(&scene, &["1", "2", "3", "4"]);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
}

#[test]
fn a_row_written_without_a_mapped_column_passes_only_under_another_mapping() {
    let scene = keyed(scene_of(COLUMNS));
    let mut relay = scene.relay();
    insert(&scene, "1");
    assert_arrived(&scene, &["1"]);
    scene.database.exec("alter table events drop payload; insert into events (id, note) values ('2', 'noted')");
    let words = "table \\\"public.events\\\" has no column \\\"payload\\\", which is mapped as the payload";
    assert_stopped(&scene, &mut relay, words);
    // Put back, the column is there for later rows only: the WAL describes each row by the table as it was.
    scene.database.exec("alter table events add payload text");
    assert_stopped(&scene, &mut Relay::start(&scene.config), words);

    let passing = Scene { config: mapped(&scene.config, "payload = \"note\", event_type = \"what\""), ..scene };
    let mut relay = passing.relay();
    assert_arrived(&passing, &["1", "noted"]);
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
    let scene = Scene { config: mapped(&passing.config, "event_type = \"what\""), ..passing };
    let _relay = scene.relay();
    insert(&scene, "3");
    assert_arrived(&scene, &["1", "noted", "3"]);
}

#[test]
fn init_makes_its_slot_while_others_change_tables() {
    let scene = Scene::bare(&Postgres::private(), &Kafka::shared());
    let database = &scene.database;
    let waits_for = |session: &mut Client| {
        let pid: i32 = session.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
        let sql = format!("select pid from pg_stat_activity where {pid} = any (pg_blocking_pids(pid))");
        eventually("init waits", PATIENCE, || database.ask(&sql).is_some());
    };
    // A slot waits twice for those that run: what is committed in between is decoded and thrown away.
    let (mut first, mut second) = (database.connect(), database.connect());
    first.batch_execute("begin; select pg_current_xact_id()").unwrap();
    let config = scene.config.clone();
    let init = std::thread::spawn(move || config.run(&["init"]));
    waits_for(&mut first);
    second.batch_execute("begin; select pg_current_xact_id()").unwrap();
    first.batch_execute("commit").unwrap();
    waits_for(&mut second);
    database.exec("create table changed (id int); alter table changed add note text; drop table changed");
    second.batch_execute("commit").unwrap();
    init.join().unwrap().assert_success();
}

/// The configuration with these parts of an event in the place of those it has.
fn mapped(config: &Config, parts: &str) -> Config {
    config.clone().without("outbox").add("outbox", &BLOCK.replace("event_type = \"what\"", parts))
}

fn insert(scene: &Scene, payload: &str) {
    scene.database.exec(&format!("insert into events (id, payload) values ('{payload}', '{payload}')"));
}

/// Waits until everything is confirmed: exactly these values arrived, in this order.
#[track_caller]
fn assert_arrived(scene: &Scene, values: &[&str]) {
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let seen = scene.reader.seen();
    assert_eq!(seen.iter().map(Seen::value).collect::<Vec<_>>(), values, "{seen:?}");
}

/// The relay ends with exit code 1 and these words, and the slot still holds the row that it could not take.
#[track_caller]
fn assert_stopped(scene: &Scene, relay: &mut Relay, words: &str) {
    assert_eq!(relay.wait_exit(PATIENCE), Some(1), "{}", relay.log());
    assert!(relay.log().contains(words), "{}", relay.log());
    assert_eq!(scene.held_by_slot(), 1);
}
