//! Every type of id and payload, and every part of a record: what is in the table is what is in the topic, to the byte.

use crate::support::reader::Seen;
use crate::support::relay::Config;
use crate::support::scene::Scene;
use crate::support::{PATIENCE, eventually};

/// A payload as it is typed in SQL, and the value that must arrive.
type Sample = (String, Option<Vec<u8>>);

const ID_TYPES: [(&str, &str); 5] = [
    ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD38{}"),
    ("text", "é😀 \"{}\""),
    ("varchar", "v-{}"),
    ("bigint", "-922337203685477{}"),
    ("int", "-214748{}"),
];

const JSON: [&str; 9] = [
    r#"{"n": 1e400}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"s":"\u00e9\ud83d\ude00\t\/"}"#,
    r#"{"😀" :"𝄞"}"#,
    " { \"spaced\" :\n\t[ ] } ",
    r#"[123456789012345678901234567890.12345678901234567890, 1e-20, 1.10, -0]"#,
    r#""""#,
    "null",
    "{}",
];

const TEXTS: [&str; 6] = ["", " ", "😀𝄞é", "line\nbreak\t\\x00", "{not json", "null"];

fn json() -> Vec<Sample> {
    JSON.iter().map(|text| (quoted(text), Some(text.as_bytes().to_vec()))).collect()
}

/// What jsonb makes of the same documents.
fn jsonb() -> Vec<Sample> {
    let huge = format!(r#"{{"n": 1{}}}"#, "0".repeat(400));
    let printed = [
        huge.as_str(),
        r#"{"a": 2}"#,
        r#"{"s": "é😀\t/"}"#,
        r#"{"😀": "𝄞"}"#,
        r#"{"spaced": []}"#,
        "[123456789012345678901234567890.12345678901234567890, 0.00000000000000000001, 1.10, 0]",
        r#""""#,
        "null",
        "{}",
    ];
    JSON.iter().zip(printed).map(|(text, printed)| (quoted(text), Some(printed.as_bytes().to_vec()))).collect()
}

fn text() -> Vec<Sample> {
    TEXTS.iter().map(|text| (quoted(text), Some(text.as_bytes().to_vec()))).collect()
}

fn bytea() -> Vec<Sample> {
    let all: Vec<u8> = (0..=255).collect();
    let samples = [vec![], vec![0], b"\\x00".to_vec(), "😀".as_bytes().to_vec(), all];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    samples.into_iter().map(|bytes| (format!("'\\x{}'", hex(&bytes)), Some(bytes))).collect()
}

fn quoted(text: &str) -> String {
    format!("$sample${text}$sample$")
}

/// One table for each pair of types, one row for each sample and one with NULL.
struct Matrix {
    ddl: String,
    blocks: Vec<String>,
    inserts: String,
    /// Aggregate id, id as PostgreSQL prints it, value.
    expected: Vec<(String, String, Option<Vec<u8>>)>,
}

impl Matrix {
    fn new() -> Matrix {
        let mut matrix =
            Matrix { ddl: String::new(), blocks: Vec::new(), inserts: String::new(), expected: Vec::new() };
        for (id_type, id) in ID_TYPES {
            for (payload_type, mut samples) in
                [("json", json()), ("jsonb", jsonb()), ("text", text()), ("bytea", bytea())]
            {
                samples.push(("NULL".to_string(), None));
                matrix.add(id_type, id, payload_type, samples);
            }
        }
        matrix
    }

    fn add(&mut self, id_type: &str, id: &str, payload_type: &str, samples: Vec<Sample>) {
        let table = format!("events_{id_type}_{payload_type}");
        self.ddl.push_str(&format!(
            "create table {table} (event_id {id_type}, kind text default current_database(), who text,
                 what varchar(20) default 'tried', odd numeric default 1.50, body {payload_type});"
        ));
        self.blocks.push(format!(
            "table = \"public.{table}\"
             columns = {{ id = \"event_id\", aggregate_type = \"kind\", aggregate_id = \"who\", event_type = \"what\",
                          payload = \"body\", timestamp = \"\", headers = \"\" }}"
        ));
        for (number, (literal, value)) in samples.into_iter().enumerate() {
            let (id, who) = (id.replace("{}", &format!("{:04}", 1000 + number)), format!("{table}-{number}"));
            self.inserts.push_str(&format!(
                "insert into {table} (event_id, who, body) values ({}, '{who}', {literal});",
                quoted(&id)
            ));
            let printed = if id_type == "uuid" { id.to_lowercase() } else { id };
            self.expected.push((who, printed, value));
        }
    }

    fn scene(&self) -> Scene {
        Scene::with_outboxes(&self.ddl, &self.blocks.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn write_and_compare(&self, scene: &Scene) -> Vec<Seen> {
        scene.database.exec(&self.inserts);
        let seen = scene.reader.wait_count(self.expected.len(), PATIENCE);
        assert_eq!(seen.len(), self.expected.len());
        for (who, id, value) in &self.expected {
            let record = seen.iter().find(|record| record.key() == who).expect("every row has its record");
            assert_eq!(record.value, *value, "{who}: {:?}", record.value.as_deref().map(String::from_utf8_lossy));
            assert_eq!((record.id(), record.header("type")), (id.as_str(), Some("tried")), "{who}");
        }
        seen
    }
}

#[test]
fn every_id_and_payload_type_arrives_byte_for_byte() {
    let matrix = Matrix::new();
    let scene = matrix.scene();
    let relay = scene.relay();
    matrix.write_and_compare(&scene);
    assert_eq!(sessions(&relay.log()), ["Binary"]);
}

#[test]
fn every_id_and_payload_type_arrives_byte_for_byte_in_a_session_of_text() {
    let matrix = Matrix::new();
    let mut scene = matrix.scene();
    scene.config = route(&scene.config, "key = \"{aggregate_id}\"\nheaders = { odd = \"{odd}\" }");
    let relay = scene.relay();
    let seen = matrix.write_and_compare(&scene);
    assert!(seen.iter().all(|record| record.header("odd") == Some("1.50")));
    assert_eq!(sessions(&relay.log()), ["Binary", "Text"]);
}

#[test]
fn a_payload_of_a_megabyte_arrives_byte_for_byte() {
    let tables = ["json", "jsonb", "text", "bytea"].map(|kind| {
        let ddl = format!(
            "create table big_{kind} (id int, aggregate_type text default current_database(), payload {kind});"
        );
        let columns = "{ aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\" }";
        (ddl, format!("table = \"public.big_{kind}\"\ncolumns = {columns}"))
    });
    let (ddl, blocks): (Vec<String>, Vec<String>) = tables.into_iter().unzip();
    let mut scene = Scene::with_outboxes(&ddl.concat(), &blocks.iter().map(String::as_str).collect::<Vec<_>>());
    scene.config = scene.config.without("route");
    let _relay = scene.relay();
    let digits = "(select string_agg(md5(n::text), '') from generate_series(1, 31000) as n)";
    scene.database.exec(&format!(
        "insert into big_json values (1, current_database(), ('\"' || {digits} || '\"')::json);
         insert into big_jsonb values (2, current_database(), ('\"' || {digits} || '\"')::jsonb);
         insert into big_text values (3, current_database(), {digits});
         insert into big_bytea values (4, current_database(), decode({digits} || {digits}, 'hex'))"
    ));
    let out_of_line = "select count(*) from pg_class c join pg_class t on t.oid = c.reltoastrelid
                       where c.relname like 'big_%' and pg_relation_size(t.oid) > 900000";
    assert_eq!(scene.database.ask(out_of_line).as_deref(), Some("4"));

    let digits = scene.database.ask(&format!("select {digits}")).unwrap();
    let seen = scene.reader.wait_count(4, PATIENCE);
    let value = |key: &str| seen.iter().find(|record| record.key() == key).unwrap().value.as_deref().unwrap();
    assert!(value("1") == format!("\"{digits}\"").as_bytes(), "json differs");
    assert!(value("2") == format!("\"{digits}\"").as_bytes(), "jsonb differs");
    assert!(value("3") == digits.as_bytes(), "text differs");
    let hex: String = value("4").iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(hex == format!("{digits}{digits}"), "bytea differs");
}

#[test]
fn a_record_carries_its_event_in_key_headers_and_timestamp() {
    let scene = Scene::new();
    let witness = Witness::new(&scene);
    let _relay = scene.relay();
    scene.database.exec(
        r#"insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at) values
           ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', current_database(), 'order-7', 'order.placed', '{}', null,
            '1970-01-01 00:00:00.001Z'),
           ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', current_database(), 'order-7', 'order.paid', null,
            '{"a": null, "b": -1.50, "c": "tab\t\"é😀\"", "d": {"e": [true]}, "f": false, "g": "", "": "h"}',
            '2024-02-29 12:34:56.789999+02')"#,
    );
    let seen = scene.reader.wait_count(2, PATIENCE);
    let commit = witness.commits()[0].lsn.clone();

    let headers = |record: &Seen| {
        let text = |value: &Option<Vec<u8>>| value.as_ref().map(|bytes| String::from_utf8(bytes.clone()).unwrap());
        record.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect::<Vec<_>>()
    };
    let expect = |members: &[(&str, Option<&str>)]| {
        members.iter().map(|(name, value)| (name.to_string(), value.map(str::to_string))).collect::<Vec<_>>()
    };
    assert_eq!((seen[0].key(), seen[0].value(), seen[0].timestamp_ms), ("order-7", "{}", Some(1)));
    assert_eq!(
        headers(&seen[0]),
        expect(&[
            ("id", Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
            ("type", Some("order.placed")),
            ("aggregate_type", Some(&scene.aggregate_type)),
            ("aggregate_id", Some("order-7")),
            ("lsn", Some(&format!("{commit}/1"))),
        ])
    );
    assert_eq!((seen[1].key(), &seen[1].value, seen[1].timestamp_ms), ("order-7", &None, Some(1_709_202_896_789)));
    assert_eq!(
        headers(&seen[1])[4..],
        // jsonb orders members by the length of their names.
        expect(&[
            ("lsn", Some(&format!("{commit}/2"))),
            ("", Some("h")),
            ("a", None),
            ("b", Some("-1.50")),
            ("c", Some("tab\t\"é😀\"")),
            ("d", Some(r#"{"e": [true]}"#)),
            ("f", Some("false")),
            ("g", Some("")),
        ])
    );
}

#[test]
fn without_a_time_of_its_own_an_event_has_the_time_of_its_commit() {
    let scene = Scene::with_outboxes(
        "create table timed (id int, aggregate_type text default current_database(), payload text, happened timestamptz);
         create table local (id int, aggregate_type text default current_database(), payload text, happened timestamp)",
        &["table = \"timed\"\ncolumns = { aggregate_id = \"\", event_type = \"\", timestamp = \"happened\", headers = \"\" }",
          "table = \"local\"\ncolumns = { aggregate_id = \"\", event_type = \"\", timestamp = \"happened\", headers = \"\" }"],
    );
    let scene = Scene { config: scene.config.without("route"), ..scene };
    let witness = Witness::new(&scene);
    let _relay = scene.relay();
    for insert in [
        "insert into timed (id, happened) values (1, null)",
        "insert into timed (id, happened) values (2, 'infinity')",
        "insert into local (id, happened) values (3, null)",
        "insert into timed (id, happened) values (4, '2020-01-01 00:00:00.0019Z')",
        "insert into local (id, happened) values (5, '2020-01-01 00:00:00.0019')",
    ] {
        scene.database.exec(insert);
    }
    let seen = scene.reader.wait_count(5, PATIENCE);
    let time = |id: &str| seen.iter().find(|record| record.key() == id).unwrap().timestamp_ms.unwrap();
    let commits: Vec<i64> = witness.commits().iter().map(|commit| commit.time_ms).collect();
    assert_eq!([time("1"), time("2"), time("3")], commits[..3]);
    assert_eq!([time("4"), time("5")], [1_577_836_800_001, 1_577_836_800_001]);
}

#[test]
fn a_partition_column_decides_the_partition_and_an_event_for_none_of_them_is_parked() {
    let scene = Scene::with_outboxes(
        "create table placed (id int, aggregate_type text default current_database(), payload text, place smallint)",
        &["table = \"placed\"
           columns = { aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\", partition = \"place\" }"],
    );
    let scene = Scene { config: route(&scene.config, "key = \"21\""), ..scene };
    let mut relay = scene.relay();
    scene.database.exec("insert into placed (id, place) select n, n from generate_series(0, 5) as n");
    scene.database.exec("insert into placed (id, place) values (6, null)");
    let seen = scene.reader.wait_count(7, PATIENCE);
    let mut partitions: Vec<(i32, i32)> =
        seen.iter().map(|record| (record.id().parse().unwrap(), record.partition)).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 0)]);

    scene.database.exec("insert into placed (id, place) values (7, 6), (8, 5)");
    let letter = scene.wait_letter("7");
    assert_eq!(letter.reason, "partition", "{letter:?}");
    assert!(letter.message.contains("has 6 partitions, none is 6"), "{letter:?}");
    scene.reader.wait_confirmed(scene.written(), PATIENCE);
    relay.wait_ready();
    let seen = scene.reader.seen();
    assert_eq!((seen.len(), seen[7].id(), seen[7].partition), (8, "8", 5));
}

#[test]
fn the_default_key_is_the_event_id_and_lands_where_java_puts_it() {
    // The vectors of Apache Kafka's UtilsTest.testMurmur2, and the partition of six that its default partitioner takes.
    let vectors: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ];
    let scene = Scene::with_outboxes(
        "create table named (id text, aggregate_type text default current_database(), payload text)",
        &["table = \"public.named\"
           columns = { aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\" }"],
    );
    let scene = Scene { config: scene.config.without("route"), ..scene };
    let _relay = scene.relay();
    for (key, _) in vectors {
        scene.database.exec(&format!("insert into named (id, payload) values ('{key}', '')"));
    }
    let seen = scene.reader.wait_count(vectors.len(), PATIENCE);
    for (key, hash) in vectors {
        let record = seen.iter().find(|record| record.key() == key).expect("the id is the key");
        assert_eq!(record.topic, format!("outbox.event.{}", scene.database.name()));
        assert_eq!((record.id(), record.partition), (key, (hash & i32::MAX) % 6), "{key}");
    }
}

#[test]
fn patterns_take_any_column_and_the_first_route_that_matches_wins() {
    let scene = Scene::with_outboxes(
        "create table patterned (id bigint, kind text default current_database(), stream text, tenant varchar(10),
             \"odd name\" int, fine boolean, note text, payload text)",
        &["table = \"public.patterned\"
           columns = { aggregate_type = \"kind\", aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\" }"],
    );
    let block = r#"
        match = { tenant = "a*e" }
        topic = "outbox.{stream}.{aggregate_type}"
        key = "{tenant}/{odd name}"
        headers = { state = "{fine}:{id}", braces = "{{{tenant}}}", note = "<{note}>" }"#;
    let config = route(&scene.config, block).add("route", "key = \"other\"");
    let scene = Scene { config, ..scene };
    let _relay = scene.relay();
    scene.database.exec(
        "insert into patterned (id, stream, tenant, \"odd name\", fine, note) values
             (1, 'event', 'acme', -7, true, ''), (2, 'event', 'abe', 8, false, null), (3, 'nowhere', 'beta', 9, true, 'x')",
    );
    let mut seen = scene.reader.wait_count(3, PATIENCE);
    seen.sort_by_key(|record| record.id().to_string());
    let shown: Vec<_> = seen
        .iter()
        .map(|record| (record.key(), record.header("state"), record.header("braces"), record.header("note")))
        .collect();
    assert_eq!(
        shown,
        [
            ("acme/-7", Some("t:1"), Some("{acme}"), Some("<>")),
            // Without a note there is no such header.
            ("abe/8", Some("f:2"), Some("{abe}"), None),
            ("other", None, None, None),
        ]
    );
}

#[test]
fn types_that_only_postgresql_can_print_are_read_as_text_for_as_long_as_they_stand() {
    let scene = Scene::with_outboxes(
        "create type mood as enum ('calm', 'Stormy night');
         create domain code as text check (value <> '');
         create table printed (id code, aggregate_type text default current_database(), payload text,
             amount numeric, mood mood, address inet, span interval, score float8, at timestamptz, days date[])",
        &["table = \"public.printed\"
           columns = { aggregate_id = \"\", event_type = \"\", timestamp = \"at\", headers = \"\" }"],
    );
    let columns = ["amount", "mood", "address", "span", "score", "timestamp", "days"];
    let headers = columns.map(|column| format!("{column} = \"{{{column}}}\"")).join(", ");
    let scene = Scene { config: route(&scene.config, &format!("headers = {{ {headers} }}")), ..scene };
    let relay = scene.relay();
    let insert =
        "insert into printed values ('{id}', current_database(), 'p', 1e20 + 1.10, 'Stormy night', '10.0.0.1/8',
                  '1 day 02:03', 0.1::float8 + 0.2, '2024-02-29 12:34:56.789+02', '{2024-02-29}')";
    scene.database.exec(&insert.replace("{id}", "one"));
    let seen = scene.reader.wait_count(1, PATIENCE);
    let shown: Vec<Option<&str>> = columns.iter().map(|column| seen[0].header(column)).collect();
    let printed = [
        "100000000000000000001.10",
        "Stormy night",
        "10.0.0.1/8",
        "1 day 02:03:00",
        "0.30000000000000004",
        "2024-02-29 10:34:56.789+00",
        "{2024-02-29}",
    ];
    assert_eq!(shown, printed.map(Some));
    assert_eq!((seen[0].key(), seen[0].timestamp_ms), ("one", Some(1_709_202_896_789)));
    assert_eq!(sessions(&relay.log()), ["Binary", "Text"]);

    // All columns become text but one: still not readable in binary, and the next session knows.
    for column in ["amount", "mood", "address", "span", "score", "days"] {
        scene.database.exec(&format!("alter table printed alter {column} type text"));
    }
    scene.database.exec("alter table printed alter at type text using to_char(at, 'YYYY')");
    scene.database.exec("alter table printed rename at to year; alter table printed add at timestamptz");
    scene.database.exec("insert into printed (id, payload) values ('two', 'p')");
    scene.reader.wait_count(2, PATIENCE);
    eventually("the session is cut", PATIENCE, || scene.database.cut_replication(scene.config.slot()));
    eventually("another session", PATIENCE, || sessions(&relay.log()).len() == 3);
    assert_eq!(sessions(&relay.log()), ["Binary", "Text", "Text"]);
}

#[test]
fn a_column_changed_back_to_a_type_we_print_makes_the_next_session_binary() {
    let scene = Scene::with_outboxes(
        "create table altered (id text, aggregate_type text default current_database(), payload text)",
        &["table = \"public.altered\"
           columns = { aggregate_id = \"\", event_type = \"\", timestamp = \"\", headers = \"\" }"],
    );
    let scene = Scene { config: scene.config.without("route"), ..scene };
    let relay = scene.relay();
    let insert = |id: &str| {
        scene.database.exec(&format!("insert into altered values ('{id}', current_database(), '3.10')"));
        scene.reader.wait_for(id, PATIENCE, |seen| seen.iter().any(|record| record.id() == id));
    };
    insert("1");
    scene.database.exec("alter table altered alter payload type numeric using payload::numeric");
    insert("2");
    assert_eq!(sessions(&relay.log()), ["Binary", "Text"]);
    scene.database.exec("alter table altered alter payload type text");
    insert("3");
    // Otherwise the server would begin again with the transaction that had the numeric column.
    let written = scene.written();
    eventually("everything is confirmed", PATIENCE, || scene.confirmed() >= written);
    eventually("the session is cut", PATIENCE, || scene.database.cut_replication(scene.config.slot()));
    insert("4");
    assert_eq!(sessions(&relay.log()), ["Binary", "Text", "Binary"]);
    let seen = scene.reader.seen();
    assert_eq!(seen.iter().map(|record| (record.id(), record.value())).collect::<Vec<_>>(), {
        [("1", "3.10"), ("2", "3.10"), ("3", "3.10"), ("4", "3.10")]
    });
}

/// The configuration with this route in the place of those it has.
fn route(config: &Config, block: &str) -> Config {
    config.clone().without("route").add("route", block)
}

/// How the sessions so far asked for values, from the relay's log.
fn sessions(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|line| Some(line.get("encoding")?.as_str()?.to_string())).collect()
}

/// A second slot on the same publication: what PostgreSQL itself says of the transactions since it was made.
struct Witness<'a> {
    scene: &'a Scene,
    slot: String,
}

struct Commit {
    lsn: String,
    time_ms: i64,
}

impl<'a> Witness<'a> {
    fn new(scene: &'a Scene) -> Witness<'a> {
        let slot = format!("{}_w", scene.config.slot());
        scene.database.exec(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        Witness { scene, slot }
    }

    /// LSN and time of the commits with events, from their Begin messages.
    fn commits(&self) -> Vec<Commit> {
        let sql = format!(
            "select data from pg_logical_slot_peek_binary_changes('{}', null, null,
                 'proto_version', '1', 'publication_names', '{}')",
            self.slot,
            self.scene.database.name()
        );
        let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
        let (mut begin, mut commits) = (None, Vec::new());
        for row in self.scene.database.connect().query(&sql, &[]).unwrap() {
            let message: &[u8] = row.get(0);
            match message[0] {
                b'B' => {
                    let lsn = outboxd::lsn::Lsn(number(&message[1..9]).cast_unsigned()).to_string();
                    begin = Some(Commit { lsn, time_ms: (number(&message[9..17]) + 946_684_800_000_000) / 1000 });
                }
                b'I' => commits.extend(begin.take()),
                _ => {}
            }
        }
        commits
    }
}
