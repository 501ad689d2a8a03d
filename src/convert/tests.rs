//! Whole conversions: tables of settings and what becomes of them, and what must hold for any text.

use proptest::prelude::*;

use super::*;

const SECRET: &str = "hunter2";

/// A connector of which nothing is lost.
const WHOLE: &[(&str, &str)] = &[
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("database.hostname", "db"),
    ("database.user", "dbz"),
    ("database.password", SECRET),
    ("database.dbname", "shop"),
    ("topic.prefix", "shop"),
    ("plugin.name", "pgoutput"),
    ("snapshot.mode", "no_data"),
    ("table.include.list", "public.outbox"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("transforms", "outbox"),
    ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
];

/// Settings whose values are read, and not only copied.
const CHANGED: &[&str] = &[
    "transforms.outbox.route.topic.replacement",
    "transforms.outbox.route.topic.regex",
    "transforms.outbox.table.fields.additional.placement",
    "transforms.outbox.x",
    "producer.override.sasl.jaas.config",
    "producer.override.client.id",
    "slot.name",
    "topic.creation.default.partitions",
    "topic.creation.default.a",
];

/// The connector with some settings changed; a dash takes one away.
fn with(changes: &[(&str, &str)]) -> Conversion {
    given(changes, &Given::default())
}

fn given(changes: &[(&str, &str)], given: &Given) -> Conversion {
    let mut settings: serde_json::Map<String, serde_json::Value> = serde_json::Map::new();
    for (name, value) in WHOLE.iter().chain(changes) {
        match *value {
            "-" => drop(settings.remove(*name)),
            value => drop(settings.insert((*name).to_owned(), value.into())),
        }
    }
    convert(&serde_json::to_string(&settings).unwrap(), given).unwrap()
}

/// The same as a file of Debezium Server.
fn server(changes: &[(&str, &str)]) -> Conversion {
    let mut text = String::from("debezium.sink.type=kafka\ndebezium.sink.kafka.producer.bootstrap.servers=k:9092\n");
    for (name, value) in WHOLE.iter().filter(|(name, _)| !name.ends_with("converter")) {
        let start = if name.starts_with("transforms") { "debezium." } else { "debezium.source." };
        text.push_str(&format!("{start}{name}={value}\n"));
    }
    changes.iter().for_each(|(name, value)| text.push_str(&format!("{name}={value}\n")));
    convert(&text, &Given::default()).unwrap()
}

fn names(group: &[Finding]) -> Vec<&str> {
    group.iter().map(|finding| finding.option.as_str()).collect()
}

#[test]
fn a_connector_that_is_known_in_full_loses_nothing() {
    let conversion = with(&[]);
    assert_eq!((names(&conversion.findings.lost), names(&conversion.findings.unknown)), (vec![], vec![]));
    assert!(!conversion.findings.is_loss());
}

#[test]
fn each_of_these_settings_is_a_loss() {
    for (option, value) in [
        ("plugin.name", "decoderbufs"),
        ("plugin.name", "-"),
        ("snapshot.mode", "-"),
        ("snapshot.mode", "initial"),
        ("snapshot.mode", "always"),
        ("snapshot.mode", "when_needed"),
        ("snapshot.mode", "custom"),
        ("slot.drop.on.stop", "true"),
        ("slot.stream.params", "a=b"),
        ("lsn.flush.mode", "manual"),
        ("flush.lsn.source", "false"),
        ("key.converter", "-"),
        ("value.converter", "-"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter", "io.confluent.connect.protobuf.ProtobufConverter"),
        ("value.converter", "io.debezium.converters.CloudEventsConverter"),
        ("key.converter", "org.apache.kafka.connect.converters.LongConverter"),
        ("header.converter", "com.example.Headers"),
        ("table.include.list", "public.outbox_.*"),
        ("table.include.list", "-"),
        ("skipped.operations", "c,u"),
        ("provide.transaction.metadata", "true"),
        ("exactly.once.support", "required"),
        ("column.mask.with.5.chars", "public.outbox.payload"),
        ("post.processors", "reselect"),
        ("converters", "money"),
        ("message.prefix.include.list", "outbox"),
        ("database.sslmode", "sometimes"),
        ("database.sslfactory", "org.postgresql.ssl.NonValidatingFactory"),
        ("producer.override.acks", "1"),
        ("producer.override.enable.idempotence", "false"),
        ("producer.override.delivery.timeout.ms", "120000"),
        ("producer.override.max.in.flight.requests.per.connection", "5"),
        ("producer.override.partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner"),
        ("producer.override.interceptor.classes", "com.example.Interceptor"),
        ("producer.override.sasl.mechanism", "OAUTHBEARER"),
        ("transforms.outbox.route.topic.regex", "(?=a)b"),
        ("transforms.outbox.route.topic.replacement", "${nobody}"),
        ("transforms.outbox.route.topic.replacement", "${env:TOPIC}"),
        ("transforms.outbox.table.fields.additional.placement", "type:footer"),
        ("transforms.outbox.table.fields.additional.placement", "type"),
        ("transforms.outbox.table.expand.json.payload", "maybe"),
        ("transforms.outbox.table.op.invalid.behavior", "ignore"),
        ("transforms.outbox.predicate", "p"),
        ("transforms", "-"),
        ("transforms", "outbox,more"),
    ] {
        let conversion = with(&[(option, value)]);
        assert_eq!(conversion.findings.lost.len(), 1, "{option}={value}: {:?}", conversion.findings.lost);
        let found = conversion.findings.lost[0].option.as_str();
        assert!(found.starts_with(option.trim_end_matches("-")), "{option}={value}: {found}");
        conversion.toml.parse::<toml::Table>().unwrap();
    }
}

#[test]
fn each_of_these_settings_is_only_different() {
    for (option, value) in [
        ("extended.headers.enabled", "true"),
        ("heartbeat.interval.ms", "10000"),
        ("heartbeat.action.query", "insert into heartbeat values (1)"),
        ("errors.tolerance", "all"),
        ("slot.failover", "true"),
        ("publication.autocreate.mode", "filtered"),
        ("offset.mismatch.strategy", "trust_offset"),
        ("event.processing.failure.handling.mode", "skip"),
        ("table.include.list", "public.OutboxEvent"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.table.op.invalid.behavior", "fatal"),
        ("transforms.outbox.tracing.span.context.field", "trace"),
        ("database.sslmode", "verify-full"),
    ] {
        let findings = with(&[(option, value)]).findings;
        assert!(names(&findings.differs).contains(&option), "{option}: {findings:?}");
        assert!(!findings.is_loss(), "{option}: {findings:?}");
    }
}

#[test]
fn tuning_and_what_outboxd_does_anyway_is_not_needed() {
    for (option, value) in [
        ("max.batch.size", "4096"),
        ("tasks.max", "1"),
        ("slot.drop.on.stop", "false"),
        ("lsn.flush.mode", "connector"),
        ("snapshot.max.threads", "2"),
        ("errors.log.enable", "true"),
        ("producer.override.acks", "all"),
        ("producer.override.enable.idempotence", "true"),
        ("producer.override.max.in.flight.requests.per.connection", "1"),
        ("producer.override.buffer.memory", "1000"),
        ("value.converter.schemas.enable", "false"),
        ("consumer.override.client.id", "a"),
        ("transforms.gone.type", "com.example.Gone"),
    ] {
        let findings = with(&[(option, value)]).findings;
        assert!(names(&findings.not_needed).contains(&option), "{option}: {findings:?}");
        assert!(!findings.is_loss(), "{option}: {findings:?}");
    }
}

#[test]
fn unknown_names_are_told_with_the_nearest() {
    for (option, nearest) in [
        ("slot.nmae", Some("slot.name")),
        ("databse.hostname", Some("database.hostname")),
        ("transforms.outbox.route.by.feild", Some("route.by.field")),
        ("transforms.outbox.table.expand.json.paylod", Some("table.expand.json.payload")),
        ("producer.override.linger.m", Some("linger.ms")),
        ("time.precison.mode", Some("time.precision.mode")),
        ("value.converter.schemas.enabel", Some("schemas.enable")),
        ("xyzzy", None),
    ] {
        let findings = with(&[(option, SECRET)]).findings;
        let hint = nearest.map(|name| format!("did you mean \"{name}\"?"));
        assert_eq!(names(&findings.unknown), [option]);
        assert_eq!(findings.unknown[0].hint, hint);
        assert!(findings.is_loss());
    }
}

#[test]
fn the_worker_s_converters_can_be_said() {
    let worker = Given {
        key_converter: Some("StringConverter".into()),
        value_converter: Some("org.apache.kafka.connect.json.JsonConverter,schemas.enable=false".into()),
        header_converter: Some("SimpleHeaderConverter".into()),
        history: History::HasRun,
    };
    let conversion = given(&[("key.converter", "-"), ("value.converter", "-"), ("snapshot.mode", "-")], &worker);
    assert_eq!(names(&conversion.findings.lost), Vec::<&str>::new());
    for line in [
        r#""key.converter" = "org.apache.kafka.connect.storage.StringConverter"  # --key-converter"#,
        r#""value.converter" = "org.apache.kafka.connect.json.JsonConverter"  # --value-converter"#,
        r#""value.converter.schemas.enable" = false  # --value-converter"#,
        r#""header.converter" = "org.apache.kafka.connect.storage.SimpleHeaderConverter"  # --header-converter"#,
    ] {
        assert!(conversion.toml.contains(line), "{line}\n{}", conversion.toml);
    }
    let bare = Given { value_converter: Some("JsonConverter".into()), ..Given::default() };
    assert_eq!(names(&given(&[("value.converter", "-")], &bare).findings.lost), ["--value-converter"]);
}

#[test]
fn formats_of_debezium_server_are_converters() {
    for (format, class, lost) in [
        ("simplestring", Some("org.apache.kafka.connect.storage.StringConverter"), 0),
        ("binary", Some("io.debezium.converters.BinaryDataConverter"), 0),
        ("json", Some("org.apache.kafka.connect.json.JsonConverter"), 1),
        ("jsonbytearray", Some("org.apache.kafka.connect.json.JsonConverter"), 1),
        ("avro", None, 1),
        ("protobuf", None, 1),
        ("cloudevents", None, 1),
        ("connect", None, 1),
    ] {
        let others = [("debezium.format.key", "simplestring"), ("debezium.format.header.schemas.enable", "false")];
        let conversion = server(&[&others[..], &[("debezium.format.value", format)]].concat());
        let line = class.map(|class| format!("\"value.converter\" = \"{class}\""));
        assert_eq!(conversion.toml.contains("\"value.converter\""), line.is_some(), "{format}");
        assert!(line.is_none_or(|line| conversion.toml.contains(&line)), "{format}");
        assert_eq!(conversion.findings.lost.len(), lost, "{format}: {:?}", conversion.findings.lost);
    }
    let lost = server(&[]).findings.lost;
    assert_eq!(names(&lost), ["debezium.format.key", "debezium.format.value", "debezium.format.header"]);
    assert!(!server(&[("debezium.format.schemas.enable", "false")]).findings.is_loss());
}

#[test]
fn debezium_server_has_neither_routed_partitions_nor_timestamps() {
    let outbox = "debezium.transforms.outbox.";
    let options = [
        ("debezium.format.schemas.enable", "false"),
        (&format!("{outbox}table.field.event.timestamp"), "created_at"),
        (&format!("{outbox}table.fields.additional.placement"), "shard : PARTITION"),
    ];
    let conversion = server(&options);
    assert!(!conversion.toml.contains("created_at") && !conversion.toml.contains("shard"), "{}", conversion.toml);
    assert!(conversion.toml.contains("[[route]]\n") && conversion.toml.contains("timestamp = \"now\""));
    assert!(!conversion.findings.is_loss());
    assert!(!with(&[]).toml.contains("[[route]]"));
}

#[test]
fn other_sinks_are_lost() {
    let text = "debezium.sink.type=pulsar\ndebezium.source.connector.class=PostgresConnector\n";
    let findings = convert(text, &Given::default()).unwrap().findings;
    assert!(names(&findings.lost).contains(&"debezium.sink.type"));
}

#[test]
fn other_databases_are_refused() {
    let text = r#"{"connector.class": "io.debezium.connector.mysql.MySqlConnector"}"#;
    let error = convert(text, &Given::default()).unwrap_err();
    assert!(error.what.contains("MySqlConnector") && error.hint.contains("PostgreSQL"), "{error:?}");
}

#[test]
fn predicates_choose_the_router_of_a_table() {
    let conversion = with(&[
        ("table.include.list", "public.a,public.b,public.c"),
        ("transforms", "outbox,other"),
        ("transforms.outbox.predicate", "isA"),
        ("transforms.outbox.route.topic.replacement", "for-a"),
        ("transforms.other.type", "io.debezium.transforms.outbox.EventRouter"),
        ("transforms.other.predicate", "isA"),
        ("transforms.other.negate", "true"),
        ("transforms.other.route.topic.replacement", "for-others"),
        ("predicates", "isA"),
        ("predicates.isA.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"),
        ("predicates.isA.pattern", r"shop\.public\.a"),
    ]);
    assert_eq!(names(&conversion.findings.lost), Vec::<&str>::new());
    let table: toml::Table = conversion.toml.parse().unwrap();
    let topics: Vec<&str> = table["outbox"]
        .as_array()
        .unwrap()
        .iter()
        .map(|outbox| outbox["debezium"]["route.topic.replacement"].as_str().unwrap())
        .collect();
    assert_eq!(topics, ["for-a", "for-others", "for-others"]);
}

#[test]
fn no_secret_leaves_wherever_it_stands() {
    let jaas = format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"{SECRET}\";"
    );
    for (option, value) in [
        ("database.password", SECRET),
        ("database.sslpassword", SECRET),
        ("database.initial.statements", SECRET),
        ("heartbeat.action.query", SECRET),
        ("producer.override.sasl.jaas.config", jaas.as_str()),
        ("producer.override.sasl.jaas.config", SECRET),
        ("producer.override.ssl.key.password", SECRET),
        ("producer.override.ssl.keystore.password", SECRET),
        ("producer.override.ssl.keystore.key", SECRET),
        ("producer.override.ssl.truststore.password", SECRET),
        ("producer.override.sasl.oauthbearer.client.credentials.client.secret", SECRET),
        ("value.converter.schema.registry.basic.auth.user.info", SECRET),
        ("transforms.x.secret", SECRET),
        ("signal.consumer.sasl.password", SECRET),
        ("nobody.knows.it", SECRET),
    ] {
        let conversion = with(&[(option, value)]);
        let all = format!("{}{}", conversion.toml, serde_json::to_string(&conversion.findings).unwrap());
        assert!(!all.contains(SECRET), "{option}: {all}");
    }
    let conversion = server(&[("debezium.source.database.password", &format!("${{DB_PASSWORD:{SECRET}}}"))]);
    assert!(conversion.toml.contains("${DB_PASSWORD}") && !conversion.toml.contains(SECRET), "{}", conversion.toml);
}

#[test]
fn old_names_are_known() {
    for (old, new, value) in [
        ("debezium.op.invalid.behavior", "table.op.invalid.behavior", "error"),
        ("table.field.payload", "table.field.event.payload", "body"),
        ("table.field.payload.id", "table.field.event.key", "key"),
        ("table.field.event.payload.id", "table.field.event.key", "key"),
        ("table.field.schema.version", "table.field.event.schema.version", "v"),
    ] {
        let option = format!("transforms.outbox.{old}");
        let conversion = with(&[(&option, value)]);
        let line = format!("\"{new}\" = \"{value}\"  # {option}");
        assert!(conversion.toml.contains(&line) && !conversion.findings.is_loss(), "{old}: {}", conversion.toml);
    }
    let option = "transforms.outbox.table.fields.additional.error.on.missing";
    assert!(with(&[(option, "false")]).toml.contains(r#""table.field.additional.missing" = "ignore""#));
    let findings = with(&[("topic.prefix", "-"), ("database.server.name", "shop")]).findings;
    assert!(names(&findings.not_needed).contains(&"database.server.name"));
}

proptest! {
    #[test]
    fn any_text_is_converted_or_refused(text in ".{0,200}") {
        drop(convert(&text, &Given::default()));
        drop(convert(&format!("connector.class=PostgresConnector\n{text}"), &Given::default()));
        drop(convert(&format!("apiVersion: 1\nkind: KafkaConnector\n{text}"), &Given::default()));
    }

    #[test]
    fn whatever_a_setting_holds_the_result_is_toml(
        index in 0..WHOLE.len(),
        value in r#"[ -~\n\t"\\${}:,'#é]{0,40}"#,
        option in proptest::sample::select(CHANGED),
    ) {
        let changes = [(WHOLE[index].0, value.as_str()), (option, value.as_str()), WHOLE[0]];
        let toml = with(&changes).toml;
        prop_assert!(toml.parse::<toml::Table>().is_ok(), "{toml}");
    }
}
