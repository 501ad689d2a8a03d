//! Routes on a real table: which rows they are for, and every part of the record that they make, also when an event comes from
//! a dead letter.

use crate::support::PATIENCE;
use crate::support::reader::Seen;
use crate::support::scene::Scene;

const TABLE: &str = "create table public.events (
        id bigint primary key, aggregate_type text, aggregate_id text, event_type text, payload jsonb, tenant text, shard int2,
        amount numeric(12, 2), ok bool, raw bytea, small real, happened_at timestamptz, note varchar(20))";
const BLOCK: &str = "table = \"public.events\"\ncolumns = { timestamp = \"\", headers = \"\" }";
const EVERYTHING: &str =
    "insert into public.events values (1, 'OrderEvent', '42', 'order.paid', '{\"n\": 1.10}', null, 3, 12.50, true,
        '\\x00ff', 'NaN', '2026-11-16 04:06:00.5+00', E'a\"\\u00e9')";
const ENVELOPE: &str = "value = \"envelope\"
        envelope = { amount = \"amount\", note = \"note\", ok = \"ok\", raw = \"raw\", shard = \"shard\", small = \"small\", tenant = \"tenant\" }";
const ENVELOPED: &str = "{\"payload\":{\"n\": 1.10},\"amount\":12.50,\"note\":\"a\\\"é\",\"ok\":true,\"raw\":\"AP8=\",\"shard\":3,\
        \"small\":\"NaN\",\"tenant\":null}";

/// With these routes, all of which lead to the scene's topic.
fn scene(routes: &[&str]) -> Scene {
    let mut scene = Scene::with_outboxes(TABLE, &[BLOCK]);
    scene.config = scene.config.without("route");
    for route in routes {
        scene.config = scene.config.add("route", &format!("topic = \"{}\"\n{route}", scene.topic));
    }
    scene
}

fn one(scene: &Scene) -> Seen {
    scene.reader.wait_count(1, PATIENCE).remove(0)
}

#[test]
fn a_route_makes_every_part_of_a_record_from_any_column() {
    let scene = scene(&[&format!(
        "match = {{ event_type = [\"order.*\", \"user.*\"], aggregate_type = {{ regex = \"Event$\" }} }}
         key = \"{{tenant|nobody}}/{{domain}}\"
         partition = \"{{shard}}\"
         timestamp = \"{{happened_at}}\"
         default_headers = \"none\"
         headers = {{ amount = \"{{amount}}\", tenant = \"{{tenant}}\", traceparent = \"{{note}}\" }}
         rewrite = {{ domain = {{ column = \"aggregate_type\", regex = \"(.*)Event\", with = \"$1\" }} }}
         {ENVELOPE}"
    )]);
    let _relay = scene.relay();
    scene.database.exec(EVERYTHING);
    let seen = one(&scene);
    assert_eq!((seen.key(), seen.partition), ("nobody/Order", 3));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_500));
    assert_eq!(seen.value(), ENVELOPED);
    let headers: Vec<_> = seen.headers.iter().map(|(name, _)| (name.as_str(), seen.header(name))).collect();
    assert_eq!(headers, [("amount", Some("12.50")), ("traceparent", Some("a\"é"))], "NULL is no header");
}

#[test]
fn a_parked_event_becomes_the_same_record_with_numbers_as_numbers() {
    let mut scene = scene(&[&format!("enabled = false\nkey = \"{{aggregate_id}}\"\n{ENVELOPE}")]);
    let mut relay = scene.relay();
    scene.database.exec(EVERYTHING);
    let letter = scene.wait_letter("1");
    assert_eq!((letter.reason.as_str(), letter.state.as_str()), ("switched_off", "pending"));
    assert!(letter.message.contains("route 1 of the configuration is switched off"), "{}", letter.message);
    relay.sigterm();
    relay.wait_exit(PATIENCE);

    let route = format!("topic = \"{}\"\nkey = \"{{aggregate_id}}\"\n{ENVELOPE}", scene.topic);
    scene.config = scene.config.without("route").add("route", &route);
    let _relay = scene.relay();
    scene.retry_letters();
    let seen = one(&scene);
    assert_eq!((seen.key(), seen.value()), ("42", ENVELOPED));
    scene.wait_state("1", "delivered");
}

#[test]
fn what_is_unknown_or_breaks_its_contract_is_parked_and_the_rest_flows() {
    let mut scene = scene(&[
        "match = { event_type = \"order.*\" }\naggregate_type = \"order\"\nrequire = [\"payload\", \"tenant\"]",
        "match = { event_type = { is = \"user.left\" } }\ntombstone = \"empty\"",
    ]);
    scene.config = scene.config.set("registry.unmatched", "reject");
    let _relay = scene.relay();
    scene.database.exec(
        "insert into public.events (id, aggregate_type, event_type, payload, tenant) values
             (1, 'order', 'order.paid', '{}', 't'), (2, 'Order', 'order.paid', '{}', 't'), (3, 'order', 'order.paid', null, 't'),
             (4, 'order', 'order.paid', '{}', null), (5, 'x', 'user.joined', '{}', 't'), (6, 'x', 'user.left', null, 't')",
    );
    let arrived: Vec<String> = scene.reader.wait_count(2, PATIENCE).iter().map(|seen| seen.id().to_owned()).collect();
    assert!(arrived.contains(&"1".to_owned()) && arrived.contains(&"6".to_owned()), "{arrived:?}");
    for (event, reason, message) in [
        ("2", "contract", "its aggregate type is \"Order\", and must be \"order\""),
        ("3", "contract", "its payload is NULL, and must not be"),
        ("4", "contract", "its tenant is NULL, and must not be"),
        ("5", "unmatched", "no [[route]] matches event type \"user.joined\""),
    ] {
        let letter = scene.wait_letter(event);
        assert_eq!((letter.reason.as_str(), letter.message.as_str()), (reason, message));
    }
}

#[test]
fn a_template_renders_value_key_and_headers_and_an_error_names_its_place() {
    let mut scene = scene(&["template = \"order\"\nkey_template = \"key\"\nheader_templates = { total = \"total\" }"]);
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write(
        "order.j2",
        "{\"n\":{{ payload.n | tojson }},\n \"amount\":{{ amount | tojson }},\"at\":\"{{ happened_at | iso }}\"}",
    );
    write("key.j2", "{{ tenant | default('nobody', true) }}/{{ aggregate_id }}");
    write("total.j2", "{{ payload.lines | length }}");
    scene.config = scene.config.set("templates.directory", directory.path().to_str().unwrap());
    let _relay = scene.relay();
    scene.database.exec(
        "insert into public.events (id, aggregate_type, aggregate_id, payload, amount, happened_at) values
             (1, 'x', 'a', '{\"n\": 1.10, \"lines\": [1, 2]}', 12.50, '2026-11-16 04:06:00.5+00'), (2, 'x', 'b', '{\"lines\": []}', 1, now()),
             (3, 'x', 'c', '{\"n\": 12345678901234567890, \"lines\": []}', null, '2026-11-16 05:06:00+01')",
    );
    let seen = scene.reader.wait_count(2, PATIENCE);
    let first = seen.iter().find(|seen| seen.id() == "1").unwrap();
    assert_eq!(first.value(), "{\"n\":1.10,\n \"amount\":12.50,\"at\":\"2026-11-16T04:06:00.5Z\"}");
    assert_eq!((first.key(), first.header("total")), ("nobody/a", Some("2")));
    let third = seen.iter().find(|seen| seen.id() == "3").unwrap();
    assert_eq!(third.value(), "{\"n\":12345678901234567890,\n \"amount\":null,\"at\":\"2026-11-16T04:06:00Z\"}");
    let letter = scene.wait_letter("2");
    assert_eq!(letter.reason, "value");
    assert!(letter.message.contains("template \"order\", line 1, column "), "{}", letter.message);
    assert!(letter.message.contains("payload.n"), "{}", letter.message);
}

#[test]
fn a_payload_that_breaks_its_schema_is_parked_with_the_path_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let schema = directory.path().join("order.json");
    let text = r#"{"type": "object", "required": ["lines"], "properties": {"lines": {"items": {"type": "object",
        "properties": {"price": {"type": "number", "minimum": 0}}}}}}"#;
    std::fs::write(&schema, text).unwrap();
    let scene = scene(&[&format!("schema = \"{}\"", schema.display())]);
    let _relay = scene.relay();
    scene.database.exec(
        "insert into public.events (id, aggregate_type, payload) values (1, 'x', '{\"lines\": [{\"price\": 1}]}'),
             (2, 'x', '{\"lines\": [{\"price\": 1}, {\"price\": -1}]}'), (3, 'x', '{}'), (4, 'x', null)",
    );
    let mut arrived: Vec<String> =
        scene.reader.wait_count(2, PATIENCE).iter().map(|seen| seen.id().to_owned()).collect();
    arrived.sort();
    assert_eq!(arrived, ["1", "4"], "no payload is a tombstone, unless require says otherwise");
    let letter = scene.wait_letter("2");
    assert_eq!(letter.reason, "schema");
    assert!(letter.message.contains("/lines/1/price"), "{}", letter.message);
    assert!(scene.wait_letter("3").message.contains("lines"));
}

#[test]
fn a_payload_that_becomes_a_tombstone_is_held_to_no_schema() {
    let directory = tempfile::tempdir().unwrap();
    let schema = directory.path().join("object.json");
    std::fs::write(&schema, r#"{"type": "object"}"#).unwrap();
    let schema = format!("schema = \"{}\"", schema.display());
    let table =
        "create table public.events (id bigint primary key, aggregatetype text, aggregateid text, payload text)";
    let ours = "table = \"public.events\"
        columns = { aggregate_type = \"aggregatetype\", aggregate_id = \"aggregateid\", event_type = \"\", timestamp = \"\", headers = \"\" }";
    let debezium =
        "table = \"public.events\"\npreset = \"debezium\"\ndebezium = { \"route.tombstone.on.empty.payload\" = true }";
    for (block, tombstone) in [(ours, "tombstone = \"empty\""), (debezium, "")] {
        let mut scene = Scene::with_outboxes(table, &[block]);
        let route = format!("topic = \"{}\"\n{schema}\n{tombstone}", scene.topic);
        scene.config = scene.config.without("route").add("route", &route);
        let _relay = scene.relay();
        scene.database.exec("insert into public.events values (1, 'x', 'k', '[1]'), (2, 'x', 'k', ' ')");
        let seen = one(&scene);
        assert_eq!((seen.header("id"), &seen.value), (Some("2"), &None));
        assert_eq!(scene.wait_letter("1").reason, "schema");
    }
}

#[test]
fn a_cloudevents_time_is_the_records_timestamp_where_that_stays_the_same() {
    let scene = scene(&["value = \"cloudevents-binary\"\ntimestamp = \"commit\""]);
    let _relay = scene.relay();
    scene.database.exec(EVERYTHING);
    let seen = one(&scene);
    let millis = seen.timestamp_ms.expect("it has one") % 1000;
    let time = seen.header("ce_time").expect("it is a CloudEvent");
    let fraction = time.split_once('.').map_or("0", |(_, rest)| rest.trim_end_matches('Z'));
    assert!(format!("{fraction:0<3}").starts_with(&format!("{millis:03}")), "{time}, {:?}", seen.timestamp_ms);
}

#[test]
fn an_event_travels_as_a_cloudevent_in_both_modes() {
    let attributes = "cloudevents = { source = \"/shop/{aggregate_type}\", extensions = { tenant = \"{tenant}\", shard = \"{shard}\" } }";
    let scene = scene(&[
        &format!(
            "match = {{ event_type = \"binary\" }}\nvalue = \"cloudevents-binary\"\ndefault_headers = \"none\"\n{attributes}"
        ),
        &format!(
            "value = \"cloudevents-structured\"\ntimestamp = \"{{happened_at}}\"\ndefault_headers = \"none\"\n{attributes}"
        ),
    ]);
    let _relay = scene.relay();
    scene.database.exec(
        "insert into public.events (id, aggregate_type, aggregate_id, event_type, payload, shard, happened_at) values
             (1, 'order', '42', 'binary', '{\"n\": 1.10}', 3, now()),
             (2, 'order', '42', 'structured', '{\"n\": 1.10}', 3, '2026-11-16 04:06:00.5+00')",
    );
    let seen = scene.reader.wait_count(2, PATIENCE);
    let binary = seen.iter().find(|seen| seen.header("ce_id") == Some("1")).unwrap();
    let names: Vec<&str> = binary.headers.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        ["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_subject", "ce_time", "ce_shard", "content-type"];
    assert_eq!(names, expected, "tenant is NULL");
    assert_eq!((binary.header("ce_source"), binary.header("ce_subject")), (Some("/shop/order"), Some("42")));
    assert_eq!(binary.value(), "{\"n\": 1.10}");
    let structured = seen.iter().find(|seen| seen.header("ce_id").is_none()).unwrap();
    assert_eq!(structured.header("content-type"), Some("application/cloudevents+json; charset=UTF-8"));
    let expected = "{\"specversion\":\"1.0\",\"id\":\"2\",\"source\":\"/shop/order\",\"type\":\"structured\",\"subject\":\"42\",\
        \"datacontenttype\":\"application/json\",\"time\":\"2026-11-16T04:06:00.5Z\",\"shard\":\"3\",\"data\":{\"n\": 1.10}}";
    assert_eq!(structured.value(), expected);
}

#[test]
fn each_outbox_has_routes_of_its_own() {
    let table = |name: &str| format!("create table public.{name} (id text primary key, payload text)");
    let block = |name: &str| {
        format!(
            "table = \"public.{name}\"\ncolumns = {{ aggregate_type = \"\", aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\" }}"
        )
    };
    let mut scene = Scene::with_outboxes(&format!("{};{}", table("a"), table("b")), &[&block("a"), &block("b")]);
    let route = |outbox: &str| format!("outbox = \"{outbox}\"\ntopic = \"{}\"\nkey = \"{outbox}\"", scene.topic);
    let (first, second) = (route("b"), route("a"));
    scene.config = scene.config.without("route").add("route", &first).add("route", &second);
    let _relay = scene.relay();
    scene.database.exec("insert into public.a values ('1', ' '); insert into public.b values ('2', '')");
    let mut keys: Vec<(String, String)> =
        scene.reader.wait_count(2, PATIENCE).iter().map(|seen| (seen.id().to_owned(), seen.key().to_owned())).collect();
    keys.sort();
    assert_eq!(keys, [("1".to_owned(), "a".to_owned()), ("2".to_owned(), "b".to_owned())]);
}

#[test]
fn a_reload_swaps_routes_and_refuses_what_needs_a_restart() {
    let mut scene = scene(&["key = \"old\""]);
    let mut relay = scene.relay();
    let insert = |id: u32| {
        scene.database.exec(&format!(
            "insert into public.events (id, aggregate_type, payload, amount) values ({id}, 'x', '{{}}', 1.50)"
        ));
    };
    insert(1);
    scene.reader.wait_count(1, PATIENCE);

    // Another route, which needs a column that cannot be read from its binary form.
    let route = format!("topic = \"{}\"\nkey = \"new {{amount}}\"", scene.topic);
    let mended = scene.config.clone().without("route").add("route", &route).set("log.level", "outboxd=debug");
    relay.reload(&mended);
    relay.wait_log("the configuration was reloaded", PATIENCE);
    insert(2);
    let seen = scene.reader.wait_count(2, PATIENCE);
    assert_eq!((seen[0].key(), seen[1].key()), ("old", "new 1.50"));

    // What is wrong, or cannot change, changes nothing.
    for (config, told) in [
        (mended.clone().add("route", "topics = \"x\""), "unknown field \\\"route.topics\\\""),
        (
            mended.clone().set("postgres.slot", "other").set("limits.window", 7),
            "postgres.slot, limits.window needs a restart",
        ),
    ] {
        relay.reload(&config);
        relay.wait_log(told, PATIENCE);
    }
    insert(3);
    assert_eq!(scene.reader.wait_count(3, PATIENCE)[2].key(), "new 1.50");
    scene.config = mended;
    relay.sigterm();
    assert_eq!(relay.wait_exit(PATIENCE), Some(0));
}

#[test]
fn a_row_that_waits_for_its_topic_in_the_middle_of_a_transaction_is_freed_by_a_reload() {
    let mut scene = scene(&["match = { event_type = \"good\" }"]);
    scene.config = scene.config.add("route", "topic = \"nobody.made.this\"");
    let mut relay = scene.relay();
    scene.database.exec(
        "insert into public.events (id, aggregate_type, event_type, payload) values (1, 'x', 'good', '{}'), (2, 'x', 'lost', '{}')",
    );
    relay.wait_unready("topic_missing", PATIENCE);
    let route = format!("topic = \"{}\"", scene.topic);
    let mended = scene.config.clone().without("route").add("route", &route);
    relay.reload(&mended);
    scene.reader.wait_count(2, PATIENCE);
    relay.wait_ready();
    scene.config = mended;
}

#[test]
fn an_event_without_a_payload_is_a_cloudevent_without_data_and_a_template_renders_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("t.j2"), "{{ aggregate_id }}: {{ payload is none }}").unwrap();
    let form =
        |kind: &str, form: &str| format!("match = {{ event_type = \"{kind}\" }}\n{form}\ndefault_headers = \"none\"");
    let routes = [
        form("binary", "value = \"cloudevents-binary\""),
        form("structured", "value = \"cloudevents-structured\""),
        form("tombstone", "value = \"cloudevents-structured\"\ntombstone = \"null\""),
        form("envelope", "value = \"envelope\"\nenvelope = { shard = \"shard\" }"),
        form("template", "template = \"t\""),
    ];
    let mut scene = scene(&routes.each_ref().map(String::as_str));
    scene.config = scene.config.set("templates.directory", directory.path().to_str().unwrap());
    let _relay = scene.relay();
    scene.database.exec(
        "insert into public.events (id, aggregate_type, aggregate_id, event_type, shard)
             select n, 'order', n, kind, 3
             from unnest(array['binary', 'structured', 'tombstone', 'envelope', 'template']) with ordinality as k (kind, n)",
    );
    let seen = scene.reader.wait_count(5, PATIENCE);
    // Without headers of its own, a record is known by its key, which is the id.
    let of = |id: &str| seen.iter().find(|seen| seen.key() == id).unwrap();
    let binary = of("1");
    assert_eq!(
        (binary.value.as_deref(), binary.header("ce_id"), binary.header("ce_type")),
        (None, Some("1"), Some("binary"))
    );
    assert_eq!((binary.header("ce_source"), binary.header("ce_subject")), (Some("/order"), Some("1")));
    let structured = of("2");
    assert_eq!(structured.header("content-type"), Some("application/cloudevents+json; charset=UTF-8"));
    let document: serde_json::Value = serde_json::from_str(structured.value()).unwrap();
    assert_eq!((&document["id"], &document["type"], document.get("data")), (&"2".into(), &"structured".into(), None));
    assert_eq!((of("3").value.as_deref(), of("3").headers.len()), (None, 0), "a tombstone that was asked for");
    assert_eq!((of("4").value(), of("5").value()), ("{\"payload\":null,\"shard\":3}", "5: true"));
}

#[test]
fn a_trace_context_travels_from_a_column_to_the_headers() {
    let scene = scene(&["trace = \"tenant\""]);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let _relay = scene.relay();
    scene.database.exec(&format!(
        "insert into public.events (id, aggregate_type, payload, tenant) values (1, 'x', '{{}}', '{parent}'),
             (2, 'x', '{{}}', '{{\"traceparent\": \"{parent}\", \"tracestate\": \"vendor=1\"}}'), (3, 'x', '{{}}', null)"
    ));
    let seen = scene.reader.wait_count(3, PATIENCE);
    let of = |id: &str| {
        let seen = seen.iter().find(|seen| seen.id() == id).unwrap();
        (seen.header("traceparent"), seen.header("tracestate"))
    };
    assert_eq!([of("1"), of("2"), of("3")], [(Some(parent), None), (Some(parent), Some("vendor=1")), (None, None)]);
}

#[test]
fn a_context_file_stands_for_its_iri_in_the_relay_and_in_the_preview() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("person.jsonld", r#"{"@context": {"name": "http://schema.org/name"}}"#);
    write("person.j2", "{{ payload | jsonld_expand }}");
    let mut scene = scene(&["template = \"person\""]);
    let iri = "https://json-ld.org/contexts/person.jsonld";
    let contexts: toml::Table = format!("\"{iri}\" = \"person.jsonld\"").parse().unwrap();
    scene.config = scene
        .config
        .set("templates.directory", directory.path().to_str().unwrap())
        .set("templates.contexts", toml::Value::Table(contexts));
    let _relay = scene.relay();
    let payload = format!("{{\"name\": \"Ann\", \"@context\": \"{iri}\"}}");
    scene
        .database
        .exec(&format!("insert into public.events (id, aggregate_type, payload) values (1, 'x', '{payload}')"));
    let expanded = r#"[{"http://schema.org/name":[{"@value":"Ann"}]}]"#;
    assert_eq!(one(&scene).value(), expanded);

    let row = directory.path().join("row.json");
    std::fs::write(&row, format!("{{\"id\": 1, \"payload\": {payload}}}")).unwrap();
    let preview = |config: &crate::support::relay::Config| {
        config.run(&["render", "--template", "person", "--row", row.to_str().unwrap()])
    };
    assert_eq!(preview(&scene.config).assert_success().stdout, expanded);
    let without = preview(&scene.config.clone().set("templates.contexts", toml::Table::new()));
    assert!(without.stderr.contains("JSON-LD: "), "a context that is not mapped is not known: {}", without.stderr);
}
