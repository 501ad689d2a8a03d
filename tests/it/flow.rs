//! What is committed flows, in commit order, however it was written; what is not does not.

use std::collections::HashMap;
use std::io::Write;

use crate::support::PATIENCE;
use crate::support::reader::Seen;
use crate::support::scene::Scene;
use outboxd::lsn::Lsn;

const INSERT: &str = "insert into outbox (aggregate_type, aggregate_id, event_type, payload) values";

#[test]
fn a_copy_of_ten_thousand_rows_arrives_whole_and_in_order() {
    let scene = Scene::new();
    let _relay = scene.relay();
    let mut session = scene.database.connect();
    let columns = "aggregate_type, aggregate_id, event_type, payload";
    let mut copy = session.copy_in(&format!("copy outbox ({columns}) from stdin")).unwrap();
    for n in 0..10_000 {
        writeln!(copy, "{}\tkey-{}\tcopied\t{n}", scene.aggregate_type, n % 50).unwrap();
    }
    assert_eq!(copy.finish().unwrap(), 10_000);

    let seen = settled(&scene, 10_000);
    let mut keys = HashMap::<&str, Vec<usize>>::new();
    for record in &seen {
        keys.entry(record.key()).or_default().push(record.value().parse().unwrap());
    }
    assert_eq!(keys.len(), 50);
    for (key, values) in keys {
        let first: usize = key.trim_start_matches("key-").parse().unwrap();
        assert!(values.iter().copied().eq((first..10_000).step_by(50)), "{key}: {values:?}");
    }
    let mut numbers: Vec<u64> = seen.iter().map(|record| position(record).1).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=10_000), "every row has its number in the transaction");
}

#[test]
fn the_rows_of_one_insert_arrive_in_their_order() {
    let scene = Scene::new();
    let _relay = scene.relay();
    let rows: Vec<String> = (0..200).map(|n| format!("(current_database(), 'one', 'many', '{n}')")).collect();
    scene.database.exec(&format!("{INSERT} {}", rows.join(", ")));
    scene.database.exec(&format!("{INSERT} (current_database(), 'one', 'many', '200')"));
    let seen = settled(&scene, 201);
    assert!(seen.iter().map(|record| record.value().parse::<usize>().unwrap()).eq(0..=200));
    assert!(seen.is_sorted_by_key(position));
}

#[test]
fn what_is_rolled_back_is_never_published() {
    let scene = Scene::new();
    let _relay = scene.relay();
    let row = |payload: &str| format!("{INSERT} (current_database(), 'k', 't', '\"{payload}\"');");
    let script = [
        "begin;",
        &row("rolled back"),
        "rollback; begin;",
        &row("first"),
        "savepoint outer_one;",
        &row("rolled back with the outer savepoint"),
        "savepoint inner_one;",
        &row("released into a savepoint that is rolled back"),
        "release inner_one; rollback to outer_one;",
        &row("second"),
        "savepoint kept;",
        &row("third"),
        "release kept; do $$ begin",
        &row("rolled back by an exception"),
        "raise exception 'no'; exception when others then null; end $$;",
        &row("fourth"),
        "commit; begin;",
        &row("lost with its session"),
    ];
    scene.database.exec(&script.join(" "));
    let mut failing = scene.database.connect();
    failing.batch_execute(&format!("{} select 1 / 0", row("before an error"))).unwrap_err();
    scene.database.exec(&row("last"));

    let seen = settled(&scene, 5);
    let values: Vec<&str> = seen.iter().map(Seen::value).collect();
    assert_eq!(values, ["\"first\"", "\"second\"", "\"third\"", "\"fourth\"", "\"last\""]);
}

#[test]
fn a_large_rolled_back_transaction_that_was_spilled_is_never_published() {
    let scene = Scene::new();
    scene.database.exec(&format!("alter database {} set logical_decoding_work_mem = '64kB'", scene.database.name()));
    let _relay = scene.relay();
    let many = format!("{INSERT} (current_database(), 'k', 't', to_jsonb(repeat('x', 1000)));");
    let loops = format!("do $$ begin for n in 1..3000 loop {many} end loop; end $$;");
    scene.database.exec(&format!(
        "begin; {loops} rollback;
         begin; savepoint s; {loops} rollback to s; {INSERT} (current_database(), 'k', 't', '1'); commit"
    ));
    assert_eq!(settled(&scene, 1)[0].value(), "1");
}

#[test]
fn transactions_arrive_in_the_order_of_their_commits() {
    let scene = Scene::new();
    let _relay = scene.relay();
    let (mut a, mut b) = (scene.database.connect(), scene.database.connect());
    for round in 0..20 {
        let row = |who: &str| format!("{INSERT} (current_database(), 'k', 't', '\"{who}{round}\"')");
        a.batch_execute(&format!("begin; {}", row("a1-"))).unwrap();
        b.batch_execute(&format!("begin; {}", row("b1-"))).unwrap();
        a.batch_execute(&row("a2-")).unwrap();
        b.batch_execute(&format!("{}; commit", row("b2-"))).unwrap();
        a.batch_execute("commit").unwrap();
    }
    let seen = settled(&scene, 80);
    let expected = (0..20).flat_map(|round| ["b1", "b2", "a1", "a2"].map(|who| format!("\"{who}-{round}\"")));
    assert!(seen.iter().map(Seen::value).eq(expected), "{:?}", seen.iter().map(Seen::value).collect::<Vec<_>>());
    assert!(seen.is_sorted_by_key(position));
    assert_eq!(seen.iter().map(|record| position(record).1).collect::<Vec<_>>(), [1, 2].repeat(40));
}

#[test]
fn rows_of_other_tables_in_the_publication_are_counted_and_not_published() {
    let scene = Scene::new();
    scene.database.exec(&format!(
        "create table business (id int, note text);
         alter publication {} add table business",
        scene.config.slot()
    ));
    let _relay = scene.relay();
    let row = |payload: u8| format!("{INSERT} (current_database(), 'k', 't', '{payload}');");
    let business = "insert into business values (1, 'a'), (2, 'b');";
    scene.database.exec(&format!("begin; {business} {} {business} {} commit; {business}", row(1), row(2)));
    scene.database.exec(&row(3));
    let seen = settled(&scene, 3);
    let shown: Vec<(&str, u64)> = seen.iter().map(|record| (record.value(), position(record).1)).collect();
    assert_eq!(shown, [("1", 3), ("2", 6), ("3", 1)]);
}

#[test]
fn several_outboxes_share_one_order() {
    let scene = Scene::with_outboxes(
        "create schema shop; create schema bank;
         create table shop.\"Events\" (number bigint generated always as identity, kind text default current_database(),
             who text, body json);
         create table bank.outbox (id uuid default gen_random_uuid(), aggregate_type varchar default current_database(),
             aggregate_id int, event_type text, payload bytea, headers json, created_at timestamp)",
        &[
            "table = \"shop.Events\"
             columns = { id = \"number\", aggregate_type = \"kind\", aggregate_id = \"who\", event_type = \"\",
                         payload = \"body\", timestamp = \"\", headers = \"\" }",
            "table = \"bank.outbox\"",
        ],
    );
    let _relay = scene.relay();
    let shop = |n: u8| format!("insert into shop.\"Events\" (who, body) values ('7', '{n}');");
    let bank =
        |n: u8| format!("insert into bank.outbox (aggregate_id, payload, headers) values (7, '{n}', '{{\"n\":{n}}}');");
    scene.database.exec(&format!("begin; {}{}{}{} commit", shop(1), bank(2), shop(3), bank(4)));
    scene.database.exec(&bank(5));
    scene.database.exec(&shop(6));
    let seen = settled(&scene, 6);
    assert_eq!(seen.iter().map(Seen::value).collect::<Vec<_>>(), ["1", "2", "3", "4", "5", "6"]);
    let from_bank: Vec<Option<&str>> = seen.iter().map(|record| record.header("n")).collect();
    assert_eq!(from_bank, [None, Some("2"), None, Some("4"), Some("5"), None]);
}

#[test]
fn a_partitioned_outbox_flows_and_so_does_a_partition_attached_later() {
    let scene = Scene::with_outboxes(
        "create table parted (id int, aggregate_type text default current_database(), aggregate_id text default 'k',
             payload text) partition by list (id);
         create table parted_1 partition of parted for values in (1);
         create table parted_rest partition of parted for values in (2, 3) partition by list (id);
         create table parted_2 partition of parted_rest for values in (2);
         -- Another order of columns, and a hole where one was dropped.
         create table parted_3 (gone int, payload text, aggregate_id text default 'k', id int,
             aggregate_type text default current_database());
         alter table parted_3 drop gone;
         insert into parted_3 (id, payload) values (3, 'before it was attached');
         create table parted_4 (payload text, id int, aggregate_id text default 'k',
             aggregate_type text default current_database())",
        &["table = \"public.parted\"\ncolumns = { event_type = \"\", timestamp = \"\", headers = \"\" }"],
    );
    let _relay = scene.relay();
    scene.database.exec("insert into parted (id, payload) values (1, 'one'), (2, 'two')");
    scene.database.exec("alter table parted_rest attach partition parted_3 for values in (3)");
    scene.database.exec("insert into parted (id, payload) values (3, 'three')");
    scene.database.exec("alter table parted attach partition parted_4 for values in (4)");
    scene.database.exec("insert into parted (id, payload) values (4, 'four'), (1, 'one again')");
    // Straight into a partition, which is published as its root.
    scene.database.exec("insert into parted_2 (id, payload) values (2, 'two again')");
    let seen = settled(&scene, 6);
    let values: Vec<&str> = seen.iter().map(Seen::value).collect();
    assert_eq!(values, ["one", "two", "three", "four", "one again", "two again"]);
}

#[test]
fn an_outbox_that_is_tidied_up_publishes_nothing_more() {
    let scene = Scene::new();
    // Even where the publication sends it all.
    scene
        .database
        .exec(&format!("alter publication {} set (publish = 'insert, update, delete, truncate')", scene.config.slot()));
    let _relay = scene.relay();
    scene.database.exec(&format!("{INSERT} (current_database(), 'k', 't', '1'), (current_database(), 'k', 't', '2')"));
    scene.database.exec("update outbox set payload = '3'");
    scene.database.exec("update outbox set id = gen_random_uuid() where payload = '3'");
    scene.database.exec(&format!("begin; delete from outbox; {INSERT} (current_database(), 'k', 't', '4'); commit"));
    scene.database.exec("truncate outbox");
    scene.database.exec(&format!(
        "begin; {INSERT} (current_database(), 'k', 't', '5'); delete from outbox; {INSERT} (current_database(), 'k', 't', '6');
         truncate outbox; commit"
    ));
    let seen = settled(&scene, 5);
    assert_eq!(seen.iter().map(Seen::value).collect::<Vec<_>>(), ["1", "2", "4", "5", "6"]);
}

#[test]
fn emit_writes_an_event_once_for_its_idempotency_key() {
    let scene = Scene::new();
    let _relay = scene.relay();
    let emit = |key: &str, payload: &str| {
        format!(
            "select outbox.emit(current_database()::text, 'order-1', 'placed', '{payload}', '{{\"trace\": \"t1\"}}', {key})::text"
        )
    };
    let first = scene.database.ask(&emit("'k1'", "1")).unwrap();
    assert_eq!(scene.database.ask(&emit("'k1'", "2")), Some(first.clone()));
    // At the same time: the second waits for the first, and gets its id.
    let (mut one, mut other) = (scene.database.connect(), scene.database.connect());
    one.batch_execute("begin").unwrap();
    let id = |session: &mut postgres::Client, sql: &str| session.query_one(sql, &[]).unwrap().get::<_, String>(0);
    let second = id(&mut one, &emit("'k2'", "3"));
    let waiting = std::thread::spawn({
        let sql = emit("'k2'", "4");
        move || id(&mut other, &sql)
    });
    let blocked = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    crate::support::eventually("the second waits", PATIENCE, || scene.database.ask(blocked).is_some());
    one.batch_execute("commit").unwrap();
    assert_eq!(waiting.join().unwrap(), second);
    let third = scene.database.ask(&emit("null", "5")).unwrap();

    let seen = settled(&scene, 3);
    let shown: Vec<(&str, &str, &str)> =
        seen.iter().map(|record| (record.id(), record.key(), record.value())).collect();
    assert_eq!(shown, [(first.as_str(), "order-1", "1"), (&second, "order-1", "3"), (&third, "order-1", "5")]);
    assert!(seen.iter().all(|record| record.header("trace") == Some("t1")));
}

/// Waits until everything written so far is confirmed, and returns what was read by then: exactly `count` records.
#[track_caller]
fn settled(scene: &Scene, count: usize) -> Vec<Seen> {
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    let seen = scene.reader.seen();
    assert_eq!(seen.len(), count, "{:?}", seen.iter().map(Seen::value).take(50).collect::<Vec<_>>());
    seen
}

/// Where the `lsn` header says the row stands: its commit, and its number in the transaction.
fn position(record: &Seen) -> (Lsn, u64) {
    let (commit, row) = record.header("lsn").unwrap().rsplit_once('/').unwrap();
    (commit.parse().unwrap(), row.parse().unwrap())
}
