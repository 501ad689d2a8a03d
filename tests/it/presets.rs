//! The tables of other outbox systems as they are: a row inserted as each system inserts it becomes the record that its
//! consumers know, and `outboxd init` leaves the table alone.

use crate::support::kafka::Kafka;
use crate::support::postgres::Postgres;
use crate::support::reader::{Reader, Seen};
use crate::support::relay::{Relay, outboxd_with};
use crate::support::scene::{PARTITIONS, Scene};
use crate::support::{PATIENCE, eventually};

/// One system's table under the relay.
struct Stage {
    scene: Scene,
    /// A topic that only this test has.
    topic: String,
    reader: Reader,
    relay: Relay,
    /// Rows are marked as the system does.
    is_marked: bool,
}

impl Stage {
    /// With the system's DDL and what an `[[outbox]]` block says of it; `{topic}` in them and in the routes is this test's topic.
    /// `outboxd init --preset …` prepares it, and the block is the one that it prints, with what else was said.
    fn new(ddl: &str, block: &str, routes: &[&str]) -> Stage {
        Stage::below("preset", ddl, block, routes)
    }

    /// The same with a topic below this one, which the system names itself.
    fn below(above: &str, ddl: &str, block: &str, routes: &[&str]) -> Stage {
        let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
        let topic = format!("{above}.{}", scene.database.name());
        Stage::of(scene, topic, ddl, block, routes)
    }

    /// The same with events that go to this topic.
    fn of(mut scene: Scene, topic: String, ddl: &str, block: &str, routes: &[&str]) -> Stage {
        scene.database.exec(&ddl.replace("{topic}", &topic));
        let before = shape(&scene);
        assert!(!before.is_empty());
        scene.config = scene.config.without("route");
        for route in routes {
            scene.config = scene.config.add("route", &route.replace("{topic}", &topic));
        }
        let marks = if block.contains("writeback") { None } else { marks(block) };
        let is_marked = block.contains("writeback") || marks.is_some();
        let mut block: toml::Table = block.replace("{topic}", &topic).parse().expect("it is TOML");
        let printed = init_by_preset(&scene, &block);
        assert_eq!(shape(&scene), before, "init changes no table of the system's");
        block.extend(printed);
        block.extend(marks.iter().flat_map(|marks| marks.parse::<toml::Table>().expect("it is TOML")));
        scene.config = scene.config.add("outbox", &block.to_string());
        scene.kafka.create_topic(&topic, PARTITIONS);
        let reader = Reader::start(&scene.kafka, &[&topic]);
        let relay = scene.relay();
        Stage { scene, topic, reader, relay, is_marked }
    }

    /// Inserts, with `{topic}` and its last word `{name}` replaced, and reads the record.
    #[track_caller]
    fn publish(&self, insert: &str) -> Seen {
        let insert = insert.replace("{topic}", &self.topic).replace("{name}", self.scene.database.name());
        self.scene.database.exec(&insert);
        let seen = self.reader.wait_count(1, PATIENCE).remove(0);
        assert_eq!(seen.topic, self.topic);
        let told = self.checked();
        let expected = format!("a real row becomes a record of topic \"{}\" with key \"{}\"", self.topic, seen.key());
        // One that is marked is left out where the mark itself is read.
        let is_left_out = self.is_marked && told.contains("there is no row to try them on");
        assert!(told.contains(&expected) || told.contains("no row is tried") || is_left_out, "{told}");
        if self.is_marked {
            // Nobody else UPDATEs these tables.
            let sql = "select coalesce(sum(n_tup_upd), 0)::text from pg_stat_user_tables where schemaname <> 'outboxd'";
            eventually("the row is marked", PATIENCE, || self.scene.database.ask(sql).as_deref() != Some("0"));
            assert_eq!(self.relay.metric("outboxd_writeback_failures_total"), Some(0.0), "{}", self.relay.log());
        }
        seen
    }

    /// What `outboxd check` says of the columns, which must be well.
    #[track_caller]
    fn checked(&self) -> String {
        let ended = self.scene.config.run(&["check", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
        let findings = report["findings"].as_array().expect("there are findings");
        let columns = findings.iter().find(|finding| finding["id"] == "outbox.columns").expect("columns are looked at");
        assert_eq!(columns["verdict"], "ok", "{columns}");
        let failed = |finding: &&serde_json::Value| finding["id"] == "outbox.writeback" && finding["verdict"] == "fail";
        assert_eq!(findings.iter().find(failed), None);
        columns["message"].as_str().expect("it is text").to_owned()
    }
}

/// Runs `init` for the preset and the table of this block, with a file that has no block, and returns the one that it prints.
fn init_by_preset(scene: &Scene, block: &toml::Table) -> toml::Table {
    let said = |name: &str| block.get(name).map(|value| value.as_str().expect("it is text"));
    let mut arguments = vec!["init", "--preset", said("preset").expect("a block names its preset")];
    arguments.extend(said("table").into_iter().flat_map(|table| ["--table", table]));
    let ended = scene.config.run(&arguments);
    let (_, printed) = ended.assert_success().stderr.split_once("\n[[outbox]]\n").expect("the block is printed");
    printed.parse().expect("it is a block alone")
}

/// What docs/presets.md writes into the block of this preset, so that its rows are marked.
fn marks(block: &str) -> Option<String> {
    let preset = block.split('"').nth(1).expect("a block names its preset first");
    let told =
        include_str!("../../docs/presets.md").split_once("## Marking rows as the system does").expect("it is there").1;
    let line = told.lines().find(|line| line.starts_with(&format!("| `{preset}` | `{{")))?;
    Some(format!("writeback = {}", line.split('`').nth(3).expect("a value in code")))
}

/// Every table that is not ours, with its columns, types, defaults, keys and indexes.
fn shape(scene: &Scene) -> String {
    let sql = "select coalesce(string_agg(line, E'\\n' order by line), '') from (
            select format('%s.%s.%s %s %s %s', table_schema, table_name, column_name, data_type, is_nullable, column_default) as line
            from information_schema.columns where table_schema not in ('pg_catalog', 'information_schema', 'outboxd', 'outbox')
            union all select indexdef from pg_indexes where schemaname not in ('pg_catalog', 'outboxd', 'outbox')
            union all select format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) from pg_constraint
            where connamespace::regnamespace::text not in ('pg_catalog', 'information_schema', 'outboxd', 'outbox')
            union all select format('%s %s', oid::regclass, relreplident) from pg_class
            where relkind in ('r', 'p') and relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema', 'outboxd', 'outbox')
        ) as lines";
    scene.database.ask(sql).expect("it is text")
}

fn headers(seen: &Seen) -> Vec<(&str, Option<&str>)> {
    seen.headers.iter().map(|(name, _)| (name.as_str(), seen.header(name))).collect()
}

fn some<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<(&'a str, Option<&'a str>)> {
    pairs.iter().map(|(name, value)| (*name, Some(*value))).collect()
}

#[test]
fn eventuate_messages_go_to_their_destination() {
    let stage = Stage::new(
        "create schema eventuate; set search_path to eventuate;
         CREATE TABLE message (
              id VARCHAR(255) PRIMARY KEY,
              destination TEXT NOT NULL,
              headers TEXT NOT NULL,
              payload TEXT NOT NULL,
              published SMALLINT DEFAULT 0,
              message_partition SMALLINT,
              creation_time BIGINT
         );
         CREATE INDEX message_published_idx ON message(published, id);",
        "preset = \"eventuate\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into eventuate.message(id, destination, headers, payload, creation_time, published, message_partition)
           values('0000018f-1', '{topic}',
             '{"PARTITION_ID":"order-7","event-aggregate-type":"Order","event-type":"OrderPaid","event-aggregate-id":"order-7","ID":"0000018f-1"}',
             '{"total":"1.10","note":"é \"x\""}', 1794801960000, 0, null)"#,
    );
    assert_eq!(seen.key(), "order-7");
    assert_eq!(
        seen.value(),
        concat!(
            r#"{"payload":"{\"total\":\"1.10\",\"note\":\"é \\\"x\\\"\"}","headers":{"PARTITION_ID":"order-7","#,
            r#""event-aggregate-type":"Order","event-type":"OrderPaid","event-aggregate-id":"order-7","ID":"0000018f-1"}}"#
        )
    );
    assert_eq!(headers(&seen), []);
}

#[test]
fn eventuate_tables_with_json_columns_and_a_suffix_are_read_as_well() {
    let stage = Stage::new(
        "CREATE TABLE message0 (
              id VARCHAR(1000) PRIMARY KEY,
              destination TEXT NOT NULL,
              headers JSON NOT NULL,
              payload JSON NOT NULL,
              published SMALLINT DEFAULT 0,
              creation_time BIGINT
         )",
        "preset = \"eventuate\"\ntable = \"message0\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into message0(id, destination, headers, payload, creation_time, published)
           values('1', '{topic}', '{"ID": "1"}', '{"n" :1.10}', 1794801960000, 0)"#,
    );
    assert_eq!((seen.key(), seen.value()), ("1", r#"{"payload":"{\"n\" :1.10}","headers":{"ID": "1"}}"#));
}

#[test]
fn goharvest_rows_are_records_with_their_headers() {
    let stage = Stage::new(
        "CREATE TABLE outbox (
           id                  BIGSERIAL PRIMARY KEY,
           create_time         TIMESTAMP WITH TIME ZONE NOT NULL,
           kafka_topic         VARCHAR(249) NOT NULL,
           kafka_key           VARCHAR(100) NOT NULL,
           kafka_value         VARCHAR(10000),
           kafka_header_keys   TEXT[] NOT NULL,
           kafka_header_values TEXT[] NOT NULL,
           leader_id           UUID
         )",
        "preset = \"goharvest\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
           values ('2020-01-01', '{topic}', 'k é', 'the value', array['plain', 'with "quotes", \ and {braces}', 'NULL', ''],
                   array['a b', E'line\nbreak,\ttab', 'null', ''])"#,
    );
    assert_eq!((seen.key(), seen.value()), ("k é", "the value"));
    assert!(seen.timestamp_ms > Some(1_700_000_000_000), "when it is sent, not when it was written");
    let expected =
        [("plain", "a b"), ("with \"quotes\", \\ and {braces}", "line\nbreak,\ttab"), ("NULL", "null"), ("", "")];
    assert_eq!(headers(&seen), some(&expected));
    stage.scene.database.exec(&format!(
        "insert into outbox (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)
         values (now(), '{}', 'k', '{{}}', '{{}}'), (now(), 'x', 'k', '{{a}}', '{{}}')",
        stage.topic
    ));
    let seen = stage.reader.wait_count(2, PATIENCE).into_iter().find(|seen| seen.key() == "k").expect("it arrives");
    assert_eq!((seen.value, seen.headers), (None, vec![]), "NULL is a tombstone");
    let letter = stage.scene.wait_letter("3");
    assert_eq!(letter.reason, "headers");
    assert!(letter.message.starts_with("its headers have more names than values"), "{}", letter.message);
    assert!(stage.relay.log().contains("\"Text\""), "arrays are read as text");
}

#[test]
fn tomorrow_one_records_carry_their_sequence_and_source() {
    let stage = Stage::new(
        "CREATE SEQUENCE IF NOT EXISTS outbox_kafka_id_seq;
         CREATE TABLE IF NOT EXISTS outbox_kafka (
             id              BIGINT PRIMARY KEY DEFAULT nextval('outbox_kafka_id_seq'::regclass),
             created         TIMESTAMP WITHOUT TIME ZONE NOT NULL,
             processed       TIMESTAMP WITHOUT TIME ZONE NULL,
             topic           CHARACTER VARYING(128) NOT NULL,
             key             CHARACTER VARYING(128) NULL,
             value           BYTEA NOT NULL,
             headers         JSONB NULL
         );
         CREATE INDEX idx_outbox_kafka_not_processed ON outbox_kafka (id) WHERE processed IS NULL;",
        "preset = \"tomorrow-one\"",
        &["match = { key = \"named\" }\nheaders = { x-source = \"shop\" }"],
    );
    let insert = r#"insert into outbox_kafka (id, created, topic, key, value, headers)
           values (72623859790382856, now(), '{topic}', 'k', '\x0a00ff', '{"x-value-type": "shop.Paid", "_internal_:traceId": "1"}')"#;
    let seen = stage.publish(insert);
    assert_eq!((seen.key(), seen.value.as_deref()), ("k", Some(&[0x0a, 0x00, 0xff][..])));
    let header = |name: &str, value: &[u8]| (name.to_owned(), Some(value.to_vec()));
    let expected = [header("x-value-type", b"shop.Paid"), header("x-sequence", &[1, 2, 3, 4, 5, 6, 7, 8])];
    assert_eq!(seen.headers, expected, "a source that nobody named is not made up");
    let named = insert.replace("72623859790382856", "258").replace("'k'", "'named'").replace("{topic}", &stage.topic);
    stage.scene.database.exec(&named);
    let seen = stage.reader.wait_count(2, PATIENCE).into_iter().find(|seen| seen.key() == "named").expect("it arrives");
    let expected = [expected[0].clone(), header("x-sequence", &[0, 0, 0, 0, 0, 0, 1, 2]), header("x-source", b"shop")];
    assert_eq!(seen.headers, expected);
}

#[test]
fn cap_sends_headers_and_value_of_its_content() {
    let stage = Stage::new(
        r#"CREATE SCHEMA IF NOT EXISTS "cap";
           CREATE TABLE IF NOT EXISTS "cap"."published"(
               "Id" BIGINT PRIMARY KEY NOT NULL,
               "Version" VARCHAR(20) NOT NULL,
               "Name" VARCHAR(200) NOT NULL,
               "Content" TEXT NULL,
               "Retries" INT NOT NULL,
               "Added" TIMESTAMP NOT NULL,
               "ExpiresAt" TIMESTAMP NULL,
               "StatusName" VARCHAR(50) NOT NULL
           );"#,
        "preset = \"cap\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into "cap"."published" ("Id","Version","Name","Content","Retries","Added","ExpiresAt","StatusName")
           values (7188, 'v1', '{topic}', '{"Headers":{"cap-callback-name":null,"cap-msg-id":"7188","cap-corr-id":"7188","cap-corr-seq":"0","cap-msg-name":"{topic}","cap-msg-type":"Order","cap-senttime":"11/16/2026 4:06:00 AM"},"Value":{"Id":1,"Total":12.50}}',
                   0, now(), null, 'Scheduled')"#,
    );
    assert_eq!((seen.key(), seen.value()), ("7188", r#"{"Id":1,"Total":12.50}"#));
    let expected = [
        ("cap-callback-name", None),
        ("cap-msg-id", Some("7188")),
        ("cap-corr-id", Some("7188")),
        ("cap-corr-seq", Some("0")),
        ("cap-msg-name", Some(stage.topic.as_str())),
        ("cap-msg-type", Some("Order")),
        ("cap-senttime", Some("11/16/2026 4:06:00 AM")),
    ];
    assert_eq!(headers(&seen), expected);
    // CAP's own marks are updates, which are not read.
    stage.scene.database.exec(r#"update "cap"."published" set "StatusName" = 'Succeeded', "Retries" = 1"#);
    stage.scene.database.exec(&format!(
        r#"insert into "cap"."published" values (2, 'v1', '{0}', '{{"Headers":{{"cap-msg-id":"2","cap-kafka-key":"k"}},"Value":null}}', 0, now(), null, 'Scheduled')"#,
        stage.topic
    ));
    let seen = stage.reader.wait_count(2, PATIENCE);
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().any(|seen| seen.key() == "k" && seen.value.is_none()));
    assert!(stage.checked().contains("no row is tried"));
}

const WATERMILL: &str = r#"CREATE TABLE IF NOT EXISTS "watermill_{}" (
    "offset" BIGSERIAL,
    "uuid" VARCHAR(36) NOT NULL,
    "created_at" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "payload" JSON DEFAULT NULL,
    "metadata" JSON DEFAULT NULL,
    "transaction_id" xid8 NOT NULL,
    PRIMARY KEY ("transaction_id", "offset")
);"#;

#[test]
fn watermill_messages_go_where_the_route_says() {
    let stage = Stage::new(
        &WATERMILL.replace("{}", "shop.orders"),
        "preset = \"watermill\"\ntable = 'public.\"watermill_shop.orders\"'",
        &["topic = \"{topic}\""],
    );
    let seen = stage.publish(
        r#"INSERT INTO "watermill_shop.orders" (uuid, payload, metadata, transaction_id)
           VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"n" :1.10}', '{"name":"OrderPaid","é":"ü"}', pg_current_xact_id())"#,
    );
    assert_eq!((seen.key.as_deref(), seen.value()), (None, r#"{"n" :1.10}"#));
    let expected =
        [("_watermill_message_uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), ("name", "OrderPaid"), ("é", "ü")];
    assert_eq!(headers(&seen), some(&expected));
}

#[test]
fn watermill_tables_name_their_topic() {
    let table = "preset = \"watermill\"\ntable = 'public.\"watermill_{topic}\"'";
    let stage = Stage::new(&WATERMILL.replace("{}", "{topic}"), table, &[]);
    let seen = stage.publish(
        r#"INSERT INTO "watermill_{topic}" (uuid, payload, metadata, transaction_id)
           VALUES ('u-1', '{"n" :1.10}', '{"name":"OrderPaid"}', pg_current_xact_id())"#,
    );
    assert_eq!((seen.key.as_deref(), seen.value()), (None, r#"{"n" :1.10}"#));
    assert_eq!(headers(&seen), some(&[("_watermill_message_uuid", "u-1"), ("name", "OrderPaid")]));
}

#[test]
fn watermills_forwarder_is_replaced() {
    let stage = Stage::new(&WATERMILL.replace("{}", "forwarder_topic"), "preset = \"watermill-forwarder\"", &[]);
    let seen = stage.publish(
        r#"INSERT INTO "watermill_forwarder_topic" (uuid, payload, metadata, transaction_id) VALUES ('row-uuid',
           '{"destination_topic":"{topic}","uuid":"message-uuid","payload":"eyJuIjoxfQD/","metadata":{"name":"OrderPaid"}}', '{}', pg_current_xact_id())"#,
    );
    assert_eq!((seen.key.as_deref(), seen.value.as_deref()), (None, Some(&b"{\"n\":1}\0\xff"[..])));
    assert_eq!(headers(&seen), some(&[("_watermill_message_uuid", "message-uuid"), ("name", "OrderPaid")]));
}

#[test]
fn a_queue_of_watermill_with_bytes_is_read_as_well() {
    let stage = Stage::new(
        r#"CREATE TABLE IF NOT EXISTS "watermill_jobs" (
             "offset" SERIAL PRIMARY KEY,
             "uuid" VARCHAR(36) NOT NULL,
             "payload" BYTEA DEFAULT NULL,
             "metadata" JSON DEFAULT NULL,
             "acked" BOOLEAN NOT NULL DEFAULT FALSE,
             "created_at" TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP
           );"#,
        "preset = \"watermill\"\ntable = \"watermill_jobs\"",
        &["topic = \"{topic}\""],
    );
    let seen = stage.publish(r#"INSERT INTO "watermill_jobs" (uuid, payload, metadata) VALUES ('u', '\x00ff', null)"#);
    assert_eq!(seen.value.as_deref(), Some(&[0, 255][..]));
    assert_eq!(headers(&seen), some(&[("_watermill_message_uuid", "u")]));
}

#[test]
fn brighter_messages_have_all_their_headers() {
    let stage = Stage::new(
        "CREATE TABLE IF NOT EXISTS Outbox
         (
             Id bigserial PRIMARY KEY,
             MessageId character varying(255) UNIQUE NOT NULL,
             Topic character varying(255) NULL,
             MessageType character varying(32) NULL,
             Timestamp timestamptz NULL,
             CorrelationId character varying(255) NULL,
             ReplyTo character varying(255) NULL,
             ContentType character varying(128) NULL,
             PartitionKey character varying(128) NULL,
             WorkflowId character varying(255) NULL,
             JobId character varying(255) NULL,
             Dispatched timestamptz NULL,
             HeaderBag text NULL,
             Body text NULL,
             Source character varying (255) NULL,
             Type character varying (255) NULL,
             DataSchema character varying (255) NULL,
             Subject character varying (255) NULL,
             TraceParent character varying (255) NULL,
             TraceState character varying (255) NULL,
             Baggage text NULL,
             DataRef character varying (255) NULL,
             SpecVersion character varying (255) NULL
         );",
        "preset = \"brighter\"\ntable = \"outbox\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into outbox (messageid, messagetype, topic, timestamp, correlationid, replyto, contenttype, partitionkey, workflowid,
             jobid, headerbag, body, source, type, dataschema, subject, traceparent, tracestate, baggage)
           values ('m-1', 'MT_EVENT', '{topic}', '2026-11-16 05:06:07.8+01', 'c-1', '', 'application/json', 'p-1', '', '',
             '{"tenant":"acme","retry":3,"vip":false}', '{"greeting":"hello"}', 'http://goparamore.io/', 'shop.greeting', null, null,
             '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', null, '')"#,
    );
    assert_eq!((seen.key(), seen.value()), ("p-1", r#"{"greeting":"hello"}"#));
    let expected = [
        ("MessageType", "MT_EVENT"),
        ("Topic", stage.topic.as_str()),
        ("MessageId", "m-1"),
        ("TimeStamp", "11/16/2026 04:06:07"),
        ("ContentType", "application/json"),
        ("CorrelationId", "c-1"),
        ("PartitionKey", "p-1"),
        ("x-delay", "0"),
        ("HandledCount", "0"),
        ("ce_id", "m-1"),
        ("ce_specversion", "1.0"),
        ("ce_type", "shop.greeting"),
        ("ce_source", "http://goparamore.io/"),
        ("ce_time", "2026-11-16T04:06:07.800Z"),
        ("ce_traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("content-type", "application/json"),
        ("tenant", "acme"),
        ("retry", "3"),
        ("vip", "False"),
    ];
    assert_eq!(headers(&seen), some(&expected));
}

#[test]
fn a_table_of_brighter_9_with_bytes_is_read_as_well() {
    let stage = Stage::new(
        "CREATE TABLE greetings (Id BIGSERIAL PRIMARY KEY, MessageId UUID UNIQUE NOT NULL, Topic VARCHAR(255), MessageType VARCHAR(32),
             Timestamp timestamptz, CorrelationId uuid, ReplyTo VARCHAR(255), ContentType VARCHAR(128), Dispatched timestamptz,
             HeaderBag TEXT, Body bytea)",
        "preset = \"brighter\"\ntable = \"greetings\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into greetings (messageid, topic, messagetype, timestamp, headerbag, body) values
           ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{topic}', 'MT_COMMAND', '2026-11-16 04:06:07+00', '{}', '\x00ff')"#,
    );
    assert_eq!((seen.key.as_deref(), seen.value.as_deref()), (None, Some(&[0, 255][..])));
    let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    assert_eq!((seen.header("MessageId"), seen.header("ce_id")), (Some(id), Some(id)));
    assert_eq!(
        (seen.header("MessageType"), seen.header("ce_source")),
        (Some("MT_COMMAND"), Some("http://goparamore.io/"))
    );
    assert_eq!(seen.headers.len(), 11);
}

#[test]
fn sbmt_items_have_their_five_headers_and_those_of_their_options() {
    let stage = Stage::new(
        "CREATE TABLE my_outbox_items (
           id           bigserial PRIMARY KEY,
           uuid         uuid      NOT NULL,
           event_name   varchar   NOT NULL,
           event_key    varchar   NOT NULL,
           bucket       integer   NOT NULL,
           status       integer   NOT NULL DEFAULT 0,
           options      jsonb,
           payload      bytea     NOT NULL,
           errors_count integer   NOT NULL DEFAULT 0,
           error_log    text,
           processed_at timestamp,
           created_at   timestamp NOT NULL,
           updated_at   timestamp NOT NULL
         );
         CREATE UNIQUE INDEX ON my_outbox_items (uuid);
         CREATE INDEX ON my_outbox_items (status, id, bucket) INCLUDE (errors_count);
         CREATE INDEX ON my_outbox_items (event_name, event_key, id);
         CREATE INDEX ON my_outbox_items (created_at);",
        "preset = \"sbmt-outbox\"\ntable = \"my_outbox_items\"",
        &["match = { event_name = \"order_created\" }\ntopic = \"{topic}\""],
    );
    let seen = stage.publish(
        r#"insert into my_outbox_items (uuid, event_name, event_key, bucket, options, payload, created_at, updated_at)
           values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'order_created', '42', 3,
                   '{"key": "order-42", "partition": 4, "headers": {"tenant": "acme", "Outbox-Name": "other"}}', '\x0a00',
                   '2026-11-16 04:06:00.5', '2026-11-16 04:06:00.5')"#,
    );
    assert_eq!((seen.key(), seen.partition, seen.value.as_deref()), ("order-42", 4, Some(&[10, 0][..])));
    let mut found = headers(&seen);
    let dispatched = found.remove(4);
    assert!(dispatched.0 == "Dispatched-At" && dispatched.1.is_some_and(|time| time.len() == 32), "{dispatched:?}");
    let expected = [
        ("Outbox-Name", "other"),
        ("Idempotency-Key", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("Sequence-ID", "1"),
        ("Created-At", "2026-11-16T04:06:00.500000+00:00"),
        ("tenant", "acme"),
    ];
    assert_eq!(found, some(&expected));
    stage.scene.database.exec(
        "insert into my_outbox_items (uuid, event_name, event_key, bucket, payload, created_at, updated_at)
         values (gen_random_uuid(), 'unknown', '1', 0, '', now(), now())",
    );
    let letter = stage.scene.wait_letter("2");
    let message = "its topic stands in no column: write topic = \"…\" in a [[route]]";
    assert_eq!((letter.reason.as_str(), letter.message.as_str()), ("topic", message));
}

#[test]
fn pg_transactional_outbox_sends_the_row_as_its_message() {
    let stage = Stage::new(
        "CREATE TABLE public.outbox (
           id uuid PRIMARY KEY,
           aggregate_type TEXT NOT NULL,
           aggregate_id TEXT NOT NULL,
           message_type TEXT NOT NULL,
           segment TEXT,
           concurrency TEXT NOT NULL DEFAULT 'sequential',
           payload JSONB NOT NULL,
           metadata JSONB,
           locked_until TIMESTAMPTZ NOT NULL DEFAULT to_timestamp(0),
           created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
           processed_at TIMESTAMPTZ,
           abandoned_at TIMESTAMPTZ,
           started_attempts smallint NOT NULL DEFAULT 0,
           finished_attempts smallint NOT NULL DEFAULT 0
         );
         ALTER TABLE public.outbox ADD CONSTRAINT outbox_concurrency_check CHECK (concurrency IN ('sequential', 'parallel'));
         CREATE INDEX outbox_segment_idx ON public.outbox (segment);
         CREATE INDEX outbox_created_at_idx ON public.outbox (created_at);
         CREATE INDEX outbox_processed_at_idx ON public.outbox (processed_at);
         CREATE INDEX outbox_abandoned_at_idx ON public.outbox (abandoned_at);
         CREATE INDEX outbox_locked_until_idx ON public.outbox (locked_until);",
        "preset = \"pg-transactional-outbox\"",
        &[],
    );
    let seen = stage.publish(
        r#"INSERT INTO public.outbox (id, aggregate_type, aggregate_id, message_type, segment, concurrency, payload, metadata, created_at)
           VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'movie', 'm-1', '{topic}', 'm-1', 'sequential', '{"n": 1.10}', null,
                   '2026-11-16 04:06:00.123456+00')"#,
    );
    let value = concat!(
        r#"{"id":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","aggregateType":"movie","aggregateId":"m-1","messageType":"{topic}","#,
        r#""segment":"m-1","concurrency":"sequential","payload":{"n": 1.10},"metadata":null,"#,
        r#""lockedUntil":"1970-01-01T00:00:00.000Z","createdAt":"2026-11-16T04:06:00.123Z","startedAttempts":0,"#,
        r#""finishedAttempts":0,"processedAt":null}"#
    );
    assert_eq!((seen.key(), seen.value()), ("m-1", value.replace("{topic}", &stage.topic).as_str()));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_123));
    assert_eq!(headers(&seen), some(&[("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]));
    let log = stage.relay.log();
    assert!(
        log.contains("\"Binary\"") && !log.contains("\"Text\""),
        "its times are read from their binary form: {log}"
    );
}

#[test]
fn django_outbox_pattern_comes_from_its_destination() {
    let stage = Stage::new(
        "CREATE TABLE published (
           id          uuid         NOT NULL PRIMARY KEY,
           version     varchar(100) NULL,
           destination varchar(255) NOT NULL,
           body        jsonb        NOT NULL,
           added       timestamp with time zone NOT NULL,
           expires_at  timestamp with time zone NOT NULL,
           retry       integer      NOT NULL CHECK (retry >= 0),
           status      integer      NOT NULL,
           headers     jsonb        NOT NULL
         );
         CREATE INDEX published_added_1 ON published (added);
         CREATE INDEX published_status_27c9ec_btree ON published (status);",
        "preset = \"django-outbox-pattern\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into published values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', null, '/topic/{topic}', '{"message": "é"}',
             '2026-11-16 04:06:00+00', now() + interval '1 day', 0, 1,
             '{"dop-msg-id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "dop-msg-type": "Published"}')"#,
    );
    assert_eq!((seen.key(), seen.value()), ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", r#"{"message": "é"}"#));
    let expected = [("dop-msg-id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), ("dop-msg-type", "Published")];
    assert_eq!(headers(&seen), some(&expected));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_000));
}

#[test]
fn outbox_events_have_their_attributes() {
    let stage = Stage::new(
        "create table outbox_events (id uuid primary key, event_type text not null, aggregate_type text not null,
             aggregate_id uuid not null, payload_json jsonb not null, created_at timestamptz not null default now(),
             published_at timestamptz, attempt_count int not null default 0, last_error text)",
        "preset = \"outbox-events\"",
        &["match = { event_type = \"license_status_changed\" }\naggregate_type = \"license\"\ntopic = \"{topic}\""],
    );
    let seen = stage.publish(
        r#"insert into outbox_events (id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
           values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'license_status_changed', 'license', 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
                   '{"status": "verified"}', '2026-11-16 04:06:00.25+00')"#,
    );
    assert_eq!((seen.key(), seen.value()), ("b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", r#"{"status": "verified"}"#));
    let expected = [
        ("event_id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("event_type", "license_status_changed"),
        ("aggregate_type", "license"),
        ("aggregate_id", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("created_at", "2026-11-16T04:06:00.25Z"),
    ];
    assert_eq!(headers(&seen), some(&expected));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_250));
    // The publisher's marks are its own.
    let null = "insert into outbox_events (id, event_type, aggregate_type, aggregate_id, payload_json)
        values ('c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'license_status_changed', 'license', gen_random_uuid(), 'null')";
    stage.scene.database.exec(&format!("update outbox_events set published_at = now(), attempt_count = 1; {null}"));
    let letter = stage.scene.wait_letter("c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
    assert_eq!((letter.reason.as_str(), letter.message.as_str()), ("value", "its payload is null, and must not be"));
    assert_eq!(stage.reader.wait_count(1, PATIENCE).len(), 1);
}

#[test]
fn doorito_events_carry_their_idempotency_key() {
    let stage = Stage::new(
        "create table outbox_event (created_at timestamptz not null, updated_at timestamptz not null, id uuid primary key,
             aggregate_type varchar(100) not null, aggregate_id varchar(100) not null, event_type varchar(100) not null,
             payload jsonb not null, status varchar(20) not null, idempotency_key varchar(255) not null,
             attempts integer not null check (attempts >= 0), max_attempts integer not null check (max_attempts >= 0),
             next_attempt_at timestamptz, delivered_at timestamptz, error_message text not null,
             constraint unique_event_type_idempotency_key unique (event_type, idempotency_key));
         create index idx_outbox_pending_next on outbox_event (next_attempt_at) where status = 'pending'",
        "preset = \"doorito\"",
        &["topic = \"{topic}\""],
    );
    let seen = stage.publish(
        r#"insert into outbox_event values (now(), now(), 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'UploadFile', '12', 'file.stored',
             '{"size": 1}', 'pending', 'UploadFile:12', 0, 5, now(), null, '')"#,
    );
    assert_eq!((seen.key(), seen.value()), ("12", r#"{"size": 1}"#));
    let expected = [
        ("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("type", "file.stored"),
        ("aggregate_type", "UploadFile"),
        ("aggregate_id", "12"),
        ("idempotency_key", "UploadFile:12"),
    ];
    assert_eq!(headers(&seen), some(&expected));
}

#[test]
fn yantra_messages_are_events_of_their_execution() {
    let stage = Stage::new(
        "CREATE TABLE outbox_messages (
             id              UUID PRIMARY KEY,
             aggregate_id    VARCHAR(255) NOT NULL,  -- execution_id
             aggregate_type  VARCHAR(50) NOT NULL,   -- 'workflow_execution'
             event_type      VARCHAR(50) NOT NULL,   -- 'workflow.triggered'
             payload         JSONB NOT NULL,         -- Job details
             status          VARCHAR(20) NOT NULL,   -- 'pending', 'processed', 'failed'
             created_at      TIMESTAMP NOT NULL,
             processed_at    TIMESTAMP
         );
         CREATE INDEX idx_outbox_status_created ON outbox_messages(status, created_at) WHERE status = 'pending';
         CREATE INDEX idx_outbox_aggregate ON outbox_messages(aggregate_id, aggregate_type);",
        "preset = \"yantra\"",
        &["topic = \"{topic}\""],
    );
    let seen = stage.publish(
        r#"insert into outbox_messages (id, aggregate_id, aggregate_type, event_type, payload, status, created_at)
           values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'x-1', 'workflow_execution', 'workflow.triggered', '{"workflow_id": "w"}',
                   'pending', '2026-11-16 04:06:00')"#,
    );
    assert_eq!((seen.key(), seen.value()), ("x-1", r#"{"workflow_id": "w"}"#));
    let expected = [
        ("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("type", "workflow.triggered"),
        ("aggregate_type", "workflow_execution"),
        ("aggregate_id", "x-1"),
    ];
    assert_eq!(headers(&seen), some(&expected));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_000));
}

#[test]
fn a_column_of_partitions_counts_with_every_preset() {
    let stage = Stage::new(
        "create table outbox_messages (id uuid primary key, aggregate_id text, aggregate_type text, event_type text, payload jsonb,
             status text, created_at timestamp, processed_at timestamp, shard int)",
        "preset = \"yantra\"\ncolumns = { partition = \"shard\" }",
        &["topic = \"{topic}\""],
    );
    stage.publish(
        "insert into outbox_messages
         select gen_random_uuid(), 'one key', 'w', 't', '1', 'pending', now(), null, shard from unnest(array[1, 3]) as shard",
    );
    let mut partitions: Vec<i32> = stage.reader.wait_count(2, PATIENCE).iter().map(|seen| seen.partition).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [1, 3]);
}

#[test]
fn django_automate_items_go_where_the_route_says() {
    let stage = Stage::new(
        "create table outbox (id uuid primary key, status varchar(20) not null, payload jsonb not null,
             attempt_count integer not null, max_attempts integer not null, next_attempt_at timestamptz not null,
             last_error text not null, lease_owner varchar(255) not null, lease_expires_at timestamptz,
             created_at timestamptz not null, updated_at timestamptz not null)",
        // With the name and the columns of ours, and still not ours to make.
        "preset = \"django-automate\"\ntable = \"public.outbox\"",
        &["topic = \"{topic}\""],
    );
    let seen = stage.publish(
        r#"insert into outbox values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'PENDING', '{"job": 1}', 0, 5, now(), '',
             '', null, '2026-11-16 04:06:00+00', now())"#,
    );
    assert_eq!((seen.key(), seen.value()), ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", r#"{"job": 1}"#));
    assert_eq!(headers(&seen), some(&[("id", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_000));
}

#[test]
fn django_automate_items_go_to_a_topic_of_their_table_by_themselves() {
    // As the system's first migration makes it.
    let ddl = "create table automate_core_outboxitem (id bigint not null primary key generated by default as identity,
             tenant_id varchar(64) not null, status varchar(32) not null, kind varchar(64) not null, payload jsonb not null,
             idempotency_key varchar(128), priority integer not null, attempt_count integer not null, max_attempts integer not null,
             next_attempt_at timestamptz not null, lease_owner varchar(128), lease_expires_at timestamptz,
             last_error_code varchar(128), last_error_message text, created_at timestamptz not null, updated_at timestamptz not null)";
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    let topic = "outbox.event.automate_core_outboxitem".to_owned();
    // With the words and columns of that version.
    let marks = "{ status = \"status\", published = \"DONE\", rejected = \"DLQ\", attempts = \"attempt_count\", error = \"last_error_message\" }";
    let block = format!("preset = \"django-automate\"\nwriteback = {marks}");
    let stage = Stage::of(scene, topic, ddl, &block, &[]);
    let seen = stage.publish(
        r#"insert into automate_core_outboxitem (tenant_id, status, kind, payload, priority, attempt_count, max_attempts,
             next_attempt_at, created_at, updated_at)
           values ('t', 'PENDING', 'event', '{"job": 1}', 100, 0, 15, now(), '2026-11-16 04:06:00+00', now())"#,
    );
    assert_eq!((seen.key(), seen.value()), ("1", r#"{"job": 1}"#));
    assert_eq!(headers(&seen), some(&[("id", "1")]));
}

#[test]
fn init_says_which_table_is_missing_and_which_one_may_be_meant() {
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    scene.database.exec("create schema app; create table app.\"Published\" (id int)");
    let ended = scene.config.run(&["init", "--preset", "django-outbox-pattern"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("outbox table \"public\".\"published\" does not exist"), "{}", ended.stderr);
    assert!(ended.stderr.contains("or --table: there is app.\"Published\""), "{}", ended.stderr);
    assert!(!ended.stderr.contains("[[outbox]]\n"), "nothing is prepared that lines could be for: {}", ended.stderr);
}

#[test]
fn init_by_preset_needs_no_configuration_file() {
    let scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
    let database = &scene.database;
    database.exec("create schema cap; create table cap.published (\"Id\" bigint primary key)");
    let own = [("OUTBOXD_POSTGRES__SLOT", database.name()), ("OUTBOXD_POSTGRES__PUBLICATION", database.name())];
    let arguments = ["init", "--preset", "cap", "--url", &database.url()];
    let dry = outboxd_with(&[&arguments[..], &["--dry-run"]].concat(), &own);
    assert!(
        dry.assert_success().stdout.contains("CREATE PUBLICATION") && dry.stderr.contains("[[outbox]]"),
        "{dry:#?}"
    );
    assert_eq!(database.ask("select count(*) from pg_publication").as_deref(), Some("0"));
    let ended = outboxd_with(&arguments, &own);
    assert!(ended.assert_success().stderr.contains("preset = \"cap\"\ntable = \"cap.published\""), "{ended:#?}");
    let published = "select string_agg(schemaname || '.' || tablename, ',') from pg_publication_tables";
    assert_eq!(database.ask(published).as_deref(), Some("cap.published"));
    assert_eq!(database.ask("select has_table_privilege('outboxd', 'cap.published', 'select')").as_deref(), Some("t"));
    let again = outboxd_with(&arguments, &own);
    again.assert_success();
    assert_eq!(
        database.ask("select to_regclass('public.outbox') is null").as_deref(),
        Some("t"),
        "our own table is not made"
    );
}

#[test]
fn openg2p_rows_go_to_their_topic() {
    let stage = Stage::new(
        "create table outgoing_raw_data (outgest_id varchar primary key, change_request_id varchar, internal_record_id varchar,
             register_id varchar, data_model_id varchar, topic_id varchar, changed_by varchar, changed_at timestamp,
             approved_by varchar, approved_at timestamp, changed_by_partner_id varchar, transformation_status varchar,
             publish_status varchar);
         create table outgoing_raw_data_payloads (change_request_id varchar primary key, raw_data_json jsonb, raw_data_xml text)",
        // Both tables by one word.
        "preset = \"openg2p\"",
        &[],
    );
    let seen = stage.publish(
        r#"begin;
           insert into outgoing_raw_data values ('o-1', 'c-1', 'r-1', 'farmers', 'dci', '{topic}', 'ann', '2026-11-16 04:06:00', 'bob',
               '2026-11-16 04:07:00', null, 'PENDING', null);
           insert into outgoing_raw_data_payloads values ('c-1', '{"name": "Ann"}', '<name>Ann</name>');
           commit"#,
    );
    assert_eq!((seen.key(), seen.value()), ("r-1", r#"{"name": "Ann"}"#));
    let expected = [
        ("id", "o-1"),
        ("type", "dci"),
        ("aggregate_type", "farmers"),
        ("aggregate_id", "r-1"),
        ("change_request_id", "c-1"),
    ];
    assert_eq!(headers(&seen), some(&expected));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_000));
}

/// Where the router sends what says nothing else.
const OUTBOX_EVENT: &str = "outbox.event";

#[test]
fn debezium_events_are_what_its_documentation_says() {
    let stage = Stage::below(
        OUTBOX_EVENT,
        "create table public.outboxevent (id uuid not null primary key, aggregatetype character varying(255) not null,
             aggregateid character varying(255) not null, type character varying(255) not null, payload jsonb)",
        "preset = \"debezium\"\ntable = \"public.outboxevent\"",
        &[],
    );
    let seen = stage.publish(
        r#"insert into outboxevent values ('406c07f3-26f0-4eea-a50c-109940064b8f', '{name}', '1', 'OrderCreated',
             '{"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action", "totalPrice": 39.98}], "customerId": 123}')"#,
    );
    let value =
        r#"{"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action", "totalPrice": 39.98}], "customerId": 123}"#;
    assert_eq!((seen.key(), seen.value()), ("1", value));
    assert_eq!(headers(&seen), some(&[("id", "406c07f3-26f0-4eea-a50c-109940064b8f")]));
    assert!(seen.timestamp_ms > Some(1_700_000_000_000), "when it is sent");
    let insert = "insert into outboxevent values (gen_random_uuid(), '{name}', '2', 'OrderDeleted', null);
        update outboxevent set type = 'Seen'; delete from outboxevent";
    stage.scene.database.exec(&insert.replace("{name}", stage.scene.database.name()));
    let seen = stage.reader.wait_count(2, PATIENCE);
    assert!(seen.iter().any(|seen| seen.key() == "2" && seen.value.is_none()), "NULL is a tombstone");
    assert!(stage.checked().contains("there is no row to try them on"));
    assert_eq!(stage.reader.seen().len(), 2, "updates and deletes are no events");
}

#[test]
fn debezium_options_place_columns_and_expand_the_payload() {
    let stage = Stage::below(
        OUTBOX_EVENT,
        "create table shop_outbox (id uuid primary key, kind text not null, of text not null, type text, payload jsonb, v int4)",
        r#"preset = "debezium"
           table = "public.shop_outbox"
           debezium."route.by.field" = "kind"
           debezium."table.field.event.key" = "of"
           debezium."table.fields.additional.placement" = "type:header:eventType,v:envelope:version"
           debezium."table.expand.json.payload" = true
           debezium."value.converter" = "JsonConverter"
           debezium."value.converter.schemas.enable" = false"#,
        &[],
    );
    let seen = stage.publish(
        r#"insert into shop_outbox values ('406c07f3-26f0-4eea-a50c-109940064b8f', '{name}', 'k é', 'Paid',
             '{"total": 1.10, "note": null}', 3)"#,
    );
    assert_eq!((seen.key(), seen.value()), ("k é", r#"{"payload":{"total":1.1},"version":3}"#));
    assert_eq!(headers(&seen), some(&[("id", "406c07f3-26f0-4eea-a50c-109940064b8f"), ("eventType", "Paid")]));
    assert!(stage.relay.log().contains("\"Binary\"") && !stage.relay.log().contains("\"Text\""));
}

#[test]
fn quarkus_events_are_read_although_they_are_gone_at_once() {
    let stage = Stage::below(
        OUTBOX_EVENT,
        "create table OutboxEvent (
             id                 uuid         not null,
             aggregatetype      varchar(255) not null,
             aggregateid        varchar(255) not null,
             type               varchar(255) not null,
             timestamp          timestamp    not null,
             payload            varchar(8000),
             tracingspancontext varchar(256),
             primary key (id)
         )",
        r#"preset = "quarkus"
           table = "public.outboxevent"
           debezium."table.field.event.timestamp" = "timestamp"
           debezium."table.fields.additional.placement" = "type:header:eventType"
           debezium."tracing.span.context.field" = "tracingspancontext""#,
        &[],
    );
    // As the extension does with remove-after-insert, which is on unless told otherwise.
    let insert = r#"begin;
        insert into OutboxEvent (aggregateid, aggregatetype, payload, timestamp, tracingspancontext, type, id)
            values ('7', '{name}', '{"id":7,"note":"é"}', '2026-11-16 04:06:00.123456',
                    e'#Mon Nov 16 04:06:00 UTC 2026\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n',
                    'OrderPaid', '406c07f3-26f0-4eea-a50c-109940064b8f');
        delete from OutboxEvent where id = '406c07f3-26f0-4eea-a50c-109940064b8f';
        commit"#;
    stage.scene.database.exec(&insert.replace("{name}", stage.scene.database.name()));
    let seen = stage.reader.wait_count(1, PATIENCE).remove(0);
    assert_eq!(seen.topic, stage.topic);
    assert_eq!((seen.key(), seen.value()), ("7", r#"{"id":7,"note":"é"}"#));
    assert_eq!(seen.timestamp_ms, Some(1_794_801_960_123));
    let expected = [
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("id", "406c07f3-26f0-4eea-a50c-109940064b8f"),
        ("eventType", "OrderPaid"),
    ];
    assert_eq!(headers(&seen), some(&expected));
    assert!(stage.checked().contains("there is no row to try them on"));
    let log = stage.relay.log();
    assert!(log.contains("\"Binary\"") && !log.contains("\"Text\""), "its time is read from its binary form: {log}");
}
