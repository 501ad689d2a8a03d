//! PostgreSQL 18 may send a Stream Abort although streaming is off (bug #19616): when a transaction that is already
//! aborted, with subtransactions, is thrown out of the decoder's memory. It is counted, and events flow.

use crate::bulk;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Postgres, Version};
use crate::support::scene::Scene;

#[test]
fn an_aborted_transaction_that_outgrows_the_decoder_s_memory_is_passed_over() {
    let postgres = Postgres::options().setting("logical_decoding_work_mem", "64kB").start();
    let scene = Scene::on(&postgres, &Kafka::shared());
    // The decoder must meet it when it is long aborted, so the relay starts afterwards.
    for _ in 0..5 {
        scene.database.exec(&aborted(&scene));
    }
    let truth = bulk::write(&scene, 500, 500);
    let relay = scene.relay();
    scene.judge(&truth).assert_exactly_once();
    let strays = relay.metric("outboxd_stray_stream_aborts_total").unwrap_or_default();
    eprintln!("{strays} stray aborts on {:?}", Version::wanted());
    assert_eq!(relay.metric("outboxd_reconnects_total").unwrap_or_default(), 0.0, "{}", relay.log());
    match Version::wanted() {
        Version::V18 => assert!(strays > 0.0, "18.4 has the bug, and this test should meet it"),
        Version::V14 | Version::V17 => assert_eq!(strays, 0.0),
        Version::Distro => {}
    }
}

/// Rolled back as a whole: it outgrows the memory by its own rows while a subtransaction's are still there.
fn aborted(scene: &Scene) -> String {
    let rows = |count: usize| {
        format!(
            "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
             select '{}', 'key', 'aborted', jsonb_build_object('padding', repeat('x', 400))
             from generate_series(1, {count});",
            scene.aggregate_type
        )
    };
    format!("begin; {} savepoint a; {} release a; {} rollback", rows(50), rows(20), rows(200))
}
