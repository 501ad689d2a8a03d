//! Many rows at once, with their truth: for backlogs and for transactions of a known size.

use std::collections::{BTreeMap, HashSet};

use crate::support::oracle::{Event, Truth};
use crate::support::scene::Scene;

/// Commits `rows` events over 50 keys in one transaction, each with so much text that does not compress.
#[track_caller]
pub fn write(scene: &Scene, rows: usize, payload_bytes: usize) -> Truth {
    let sql = "begin;
        with ids as materialized (select n, gen_random_uuid() as id from generate_series(1, {rows}) as n)
        insert into public.outbox (id, aggregate_type, aggregate_id, event_type, payload)
        select id, '{type}', 'key-' || n % 50, 'written', jsonb_build_object('n', n, 'padding',
               (select string_agg(md5(id::text || part), '') from generate_series(1, {parts}) as part)) from ids;
        commit";
    let sql = sql.replace("{rows}", &rows.to_string()).replace("{type}", &scene.aggregate_type);
    scene.database.exec(&sql.replace("{parts}", &(payload_bytes / 32).to_string()));
    truth(scene)
}

/// What the table holds, all of it committed by now, numbered by `n` in the payload.
#[track_caller]
pub fn truth(scene: &Scene) -> Truth {
    let mut session = scene.database.connect();
    let row = session.query_one("select pg_current_wal_insert_lsn()::text", &[]).expect("the server answers");
    let committed_by = row.get::<_, String>(0).parse().ok();
    let sql = "select aggregate_id, id::text from public.outbox where aggregate_type = $1
               order by aggregate_id, (payload ->> 'n')::bigint";
    let mut committed = BTreeMap::<String, Vec<Event>>::new();
    for row in session.query(sql, &[&scene.aggregate_type]).expect("the table is read") {
        committed.entry(row.get(0)).or_default().push(Event { id: row.get(1), committed_by });
    }
    Truth { committed, rolled_back: HashSet::new() }
}
