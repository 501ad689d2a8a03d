//! Nothing happens, for long: the session stays, and the relay writes nothing by itself.

use std::time::Duration;

use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually, throughout};

/// What ten minutes are at the default timeout of 30 s: thirty leases.
const TEN_MINUTES: Duration = Duration::from_secs(40);

#[test]
fn an_idle_database_keeps_its_session_for_many_lease_periods_and_is_not_written_to() {
    // Nor by the server itself, if that can be helped.
    let postgres = Postgres::options().setting("autovacuum", "off").start();
    let mut scene = Scene::on(&postgres, &Kafka::shared());
    scene.config = scene.config.set("postgres.sender_timeout", "2s");
    let mut relay = scene.relay();
    let wal = || scene.database.ask("select pg_current_wal_insert_lsn() - '0/0'").unwrap().parse::<u64>().unwrap();
    let position = || scene.database.ask("select confirmed || ' ' || updated_at from outboxd.position").unwrap();
    // One event, whose position is written once: the keepalives behind it are no reason to write again.
    scene.write("k", "1");
    eventually("the position is written", PATIENCE, || !position().starts_with("0/0 "));
    let (walsender_before, wal_before, position_before) = (scene.walsender(), wal(), position());

    throughout("the relay is ready", TEN_MINUTES, || relay.readiness().is_some_and(|(code, _)| code == 200));

    assert!(relay.is_running());
    assert_eq!(scene.walsender(), walsender_before);
    assert_eq!(position(), position_before);
    assert_eq!(relay.metric("outboxd_reconnects_total").unwrap_or_default(), 0.0, "{}", relay.log());
    // The server itself notes running transactions now and then.
    assert!(wal() - wal_before < 4096, "{} bytes of WAL", wal() - wal_before);
}
