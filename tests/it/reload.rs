//! SIGHUP on a running relay: what was parked because its route was off, events for unknown topics, files beside the configuration,
//! what is logged, and the numbers of dead letters.

use std::path::Path;

use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually, relay::Config};

const TABLE: &str =
    "create table public.events (id bigint primary key, aggregate_type text default 'x', aggregate_id text,
        event_type text, payload jsonb default '{}')";
const BLOCK: &str = "table = \"public.events\"\ncolumns = { timestamp = \"\", headers = \"\" }";

/// With these routes, all of which lead to the scene's topic and keep the order of an aggregate.
fn scene(routes: &[&str]) -> Scene {
    let mut scene = Scene::with_outboxes(TABLE, &[BLOCK]);
    scene.config = routed(&scene, routes);
    scene
}

/// The scene's configuration with other routes.
fn routed(scene: &Scene, routes: &[&str]) -> Config {
    let route = |config: Config, route: &&str| {
        let topic = if route.contains("topic = ") { String::new() } else { format!("topic = \"{}\"\n", scene.topic) };
        config.add("route", &format!("key = \"{{aggregate_id}}\"\n{topic}{route}"))
    };
    routes.iter().fold(scene.config.clone().without("route"), route)
}

/// Inserts events of these numbers, in one transaction, for five aggregates.
fn insert(scene: &Scene, numbers: std::ops::RangeInclusive<u32>, event_type: &str) {
    let (first, last) = (numbers.start(), numbers.end());
    scene.database.exec(&format!(
        "insert into public.events (id, aggregate_id, event_type) select n, n % 5, '{event_type}' from generate_series({first}, {last}) as n"
    ));
}

const ORDERS_OFF: &str = "match = { event_type = \"order\" }\nenabled = false";
const ORDERS_ON: &str = "match = { event_type = \"order\" }";
const THE_REST: &str = "";

#[test]
fn a_busy_route_that_is_switched_off_stops_no_other_and_a_reload_that_switches_it_on_publishes_all_in_order() {
    let mut scene = scene(&[ORDERS_OFF, THE_REST]);
    scene.config = scene
        .config
        .set("dead_letter.backoff.first", "1h")
        .set("dead_letter.backoff.max", "1h")
        .set("dead_letter.max_attempts", 1);
    let mut relay = scene.relay();
    insert(&scene, 1..=300, "order");
    insert(&scene, 301..=301, "user");
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].id(), "301");
    eventually("all orders are parked", PATIENCE, || scene.dead_letters().len() == 300);
    for letter in scene.dead_letters() {
        let found = (letter.reason.as_str(), letter.state.as_str(), letter.attempts);
        assert_eq!(found, ("switched_off", "pending", 0), "{letter:?}");
    }

    scene.config = routed(&scene, &[ORDERS_ON, THE_REST]);
    relay.reload(&scene.config);
    let seen = scene.reader.wait_count(301, PATIENCE);
    for key in ["0", "1", "2", "3", "4"] {
        let ids = seen.iter().filter(|seen| seen.key() == key && seen.id() != "301");
        let ids: Vec<u32> = ids.map(|seen| seen.id().parse().unwrap()).collect();
        assert!(ids.len() == 60 && ids.is_sorted(), "{ids:?}");
    }
    scene.wait_state("300", "delivered");
}

#[test]
fn what_is_tried_while_its_route_is_off_spends_no_attempt_and_keeps_its_keys_order_with_park_key() {
    let mut scene = scene(&[ORDERS_OFF, THE_REST]);
    scene.config = scene
        .config
        .set("dead_letter.backoff.first", "100ms")
        .set("dead_letter.backoff.max", "200ms")
        .set("dead_letter.max_attempts", 2)
        .set("dead_letter.order", "park-key");
    let mut relay = scene.relay();
    insert(&scene, 1..=20, "order");
    scene.wait_letter("20");
    let due = || {
        let sql = "select extract(epoch from next_attempt)::float8 from outboxd.dead_letter where event_id = '1'";
        scene.database.connect().query_one(sql, &[]).unwrap().get::<_, f64>(0)
    };
    for _ in 0..4 {
        let before = due();
        eventually("it is tried again", PATIENCE, || due() > before);
    }
    for letter in scene.dead_letters() {
        assert_eq!((letter.attempts, letter.state == "failed"), (0, false), "{letter:?}");
    }

    // What nobody sees otherwise is told by a level that a reload brings.
    let waits = "a dead letter waits";
    assert!(!relay.log().contains(waits));
    relay.reload(&scene.config.clone().set("log.level", "outboxd=debug"));
    relay.wait_log(waits, PATIENCE);

    scene.config = routed(&scene, &[ORDERS_ON, THE_REST]);
    relay.reload(&scene.config);
    insert(&scene, 21..=40, "order");
    let seen = scene.reader.wait_count(40, PATIENCE);
    for key in ["0", "1", "2", "3", "4"] {
        let ids: Vec<u32> =
            seen.iter().filter(|seen| seen.key() == key).map(|seen| seen.id().parse().unwrap()).collect();
        assert!(ids.len() == 8 && ids.is_sorted(), "{ids:?}");
    }
}

#[test]
fn events_for_a_topic_that_does_not_exist_are_parked_or_waited_for_as_the_last_reload_says() {
    let scene = scene(&["match = { event_type = \"good\" }", "topic = \"nobody.made.this.either\""]);
    let mut relay = scene.relay();
    let [park, wait] = ["park", "wait"].map(|word| scene.config.clone().set("dead_letter.unknown_topic", word));
    insert(&scene, 1..=1, "good");
    scene.reader.wait_count(1, PATIENCE);
    insert(&scene, 2..=2, "lost");
    relay.wait_unready("topic_missing", PATIENCE);

    relay.reload(&park);
    assert_eq!(scene.wait_letter("2").reason, "unknown_topic");
    relay.wait_ready();
    insert(&scene, 3..=3, "good");
    scene.reader.wait_count(2, PATIENCE);
    // A successor knows which topics have existed.
    let known = || {
        let sql = "select count(*) from outboxd.known_topic where slot = $1 and topic = $2";
        let row = scene.database.connect().query_one(sql, &[&scene.config.slot(), &scene.topic]).unwrap();
        row.get::<_, i64>(0) == 1
    };
    eventually("the topic is remembered", PATIENCE, known);

    relay.reload(&wait);
    relay.wait_log("the configuration was reloaded", PATIENCE);
    eventually("the second reload holds", PATIENCE, || {
        relay.log().matches("the configuration was reloaded").count() == 2
    });
    insert(&scene, 4..=4, "lost");
    relay.wait_unready("topic_missing", PATIENCE);
    relay.reload(&park);
    assert_eq!(scene.wait_letter("4").reason, "unknown_topic");
    relay.wait_ready();
}

#[test]
fn letters_are_stored_although_the_topics_that_have_existed_cannot_be_read() {
    let scene = scene(&[THE_REST]);
    let mut relay = scene.relay();
    scene.database.exec("alter table outboxd.known_topic rename to away");
    relay.reload(&scene.config.clone().set("dead_letter.unknown_topic", "park"));
    relay.wait_unready("dead_letter_store", PATIENCE);
    let (_, told) = relay.readiness().expect("the relay answers");
    assert!(told["reasons"].to_string().contains("cannot be asked which topics have existed"), "{told}");
    for id in 1..=3 {
        scene.database.exec(&format!("insert into public.events (id, event_type) values ({id}, 'bad')"));
        assert_eq!(scene.wait_letter(&id.to_string()).reason, "key");
    }
    relay.reload(&scene.config.clone().set("dead_letter.unknown_topic", "wait"));
    relay.wait_ready();
}

#[test]
fn a_reload_reads_schemas_and_templates_anew_and_takes_other_numbers_for_letters() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let schema = |member: &str| write("order.json", &format!("{{\"required\": [\"{member}\"]}}"));
    schema("a");
    write("order.j2", "first {{ payload.a }}");
    let path = |name: &str| Path::new(directory.path()).join(name).display().to_string();
    let mut scene = scene(&[&format!("schema = \"{}\"\ntemplate = \"order\"", path("order.json"))]);
    scene.config = scene.config.set("templates.directory", directory.path().to_str().unwrap());
    let mut relay = scene.relay();
    let event = |id: u32, payload: &str| {
        let sql = format!("insert into public.events (id, aggregate_id, payload) values ({id}, 'k', '{payload}')");
        scene.database.exec(&sql);
    };
    event(1, "{\"a\": 1}");
    assert_eq!(scene.reader.wait_count(1, PATIENCE)[0].value(), "first 1");
    event(2, "{\"b\": 2}");
    let letter = scene.wait_letter("2");
    assert!(letter.reason == "schema" && letter.message.contains("\"a\""), "{letter:?}");
    assert_eq!(letter.state, "pending");

    schema("b");
    write("order.j2", "second {{ payload.b }}");
    relay.reload(&scene.config.clone().set("dead_letter.max_attempts", 1));
    relay.wait_log("the configuration was reloaded", PATIENCE);
    event(3, "{\"a\": 3}");
    let letter = scene.wait_letter("3");
    assert!(letter.reason == "schema" && letter.message.contains("\"b\""), "{letter:?}");
    assert_eq!(letter.state, "failed", "one attempt is all it has now");
    event(4, "{\"b\": 4}");
    let values = || scene.reader.seen().iter().map(|seen| seen.value().to_owned()).collect::<Vec<_>>();
    eventually("the new template renders", PATIENCE, || values().contains(&"second 4".to_owned()));
}
