//! Whole conversions: tables of settings and what becomes of them, and what must hold for any text.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::*;
use crate::config::{Config, Host, debezium};

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
        ("column.truncate.to.5.chars", "public.outbox.payload"),
        ("money.fraction.digits", "3"),
        ("time.precision.mode", "structured"),
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
        ("transforms.outbox.route.topic.replacement", "bad topic/${routedByValue}"),
        ("transforms.outbox.route.topic.replacement", ""),
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
        ("slot.failover", "true"),
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
    assert!(names(&findings.fill_in).contains(&"debezium.sink.kafka.producer.bootstrap.servers"));
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
        ("column.mask.hash.SHA-256.with.salt.hunter2", "public.outbox.name"),
        ("colum.mask.hash.SHA-256.with.salt.hunter2", "public.outbox.name"),
        ("transforms.outbox.column.mask.hash.SHA-256.with.salt.hunter2", "public.outbox.name"),
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
    ] {
        let option = format!("transforms.outbox.{old}");
        let Conversion { toml, findings } = with(&[(&option, value)]);
        // As today's Debezium does without them, and for those with an older one to take in.
        let line = format!("\n# \"{new}\" = \"{value}\"");
        assert!(toml.contains(&line) && !toml.contains(&format!("\n\"{new}\"")), "{old}: {toml}");
        let told = findings.differs.iter().find(|finding| finding.option == option).unwrap();
        assert!(told.message.contains(new) && told.message.contains("today's Debezium ignores it"), "{told:?}");
        assert!(told.hint.as_ref().unwrap().contains(&format!("uncomment {new}")) && !findings.is_loss(), "{told:?}");
        let both = with(&[(&option, value), (&format!("transforms.outbox.{new}"), "warn")]);
        assert!(both.toml.contains(&format!("\n\"{new}\" = \"warn\"")), "{}", both.toml);
        assert!(names(&both.findings.not_needed).contains(&option.as_str()));
    }
    let option = "transforms.outbox.table.field.schema.version";
    assert!(names(&with(&[(option, "v")]).findings.not_needed).contains(&option));
    let option = "transforms.outbox.table.fields.additional.error.on.missing";
    assert!(with(&[(option, "false")]).toml.contains(r#""table.field.additional.missing" = "ignore""#));
    let findings = with(&[("topic.prefix", "-"), ("database.server.name", "shop")]).findings;
    assert!(names(&findings.not_needed).contains(&"database.server.name"));
}

/// Names that hold what an installation calls its own: any text, of which not all is a name here.
const OWN_NAMES: [&str; 5] =
    ["slot.name", "publication.name", "database.port", "database.hostname", "producer.override.bootstrap.servers"];

/// What is tried of every option: nothing, what is often there, what is wrong everywhere, and what only a worker looks up.
const ANYTHING: [&str; 10] =
    ["", " ", "true", "FALSE", "1", "-1", "nonsense", "org.example.Class", "a.b", "${file:/run/x.properties:y}"];

/// Words and texts of single options.
const WORDS: &[(&str, &[&str])] = &[
    (
        "time.precision.mode",
        &[
            "adaptive",
            "Adaptive_Time_Microseconds",
            "connect",
            "isostring",
            "microseconds",
            "nanoseconds",
            "structured",
        ],
    ),
    ("decimal.handling.mode", &["precise", " double ", "STRING"]),
    ("binary.handling.mode", &["bytes", "base64", "base64-url-safe", "hex"]),
    ("hstore.handling.mode", &["json", "map"]),
    ("interval.handling.mode", &["numeric", "string"]),
    ("extended.headers.enabled", &["true", "false"]),
    ("topic.prefix", &["-", "", "${env:PREFIX}"]),
    ("snapshot.mode", &["always", "initial", "initial_only", "no_data", "never", "when_needed", "configuration_based"]),
    ("plugin.name", &["pgoutput", "decoderbufs", "-"]),
    ("table.include.list", &["public.a,public.b", r"public\.a", ".*", "-", ""]),
    ("column.exclude.list", &["public.outbox.shard", "public.outbox.payload", "(?=x)y"]),
    ("column.include.list", &["public.outbox.(id|payload)"]),
    ("topic.creation.default.partitions", &["6", "-1"]),
    ("topic.creation.default.replication.factor", &["3", "-1"]),
    ("topic.creation.default.cleanup.policy", &["compact"]),
    ("producer.override.compression.type", &["none", "gzip", "snappy", "lz4", "zstd"]),
    ("producer.override.compression.zstd.level", &["6"]),
    ("producer.override.max.request.size", &["1048576", "33554432", "99999999999"]),
    ("producer.override.security.protocol", &["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
    ("producer.override.sasl.mechanism", &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"]),
    ("producer.override.ssl.endpoint.identification.algorithm", &["", "https"]),
    ("producer.override.ssl.truststore.location", &["/t.jks", "/t.p12", "/t.pem"]),
    ("producer.override.ssl.truststore.type", &["JKS", "PKCS12", "PEM"]),
    ("producer.override.ssl.keystore.location", &["/t.jks", "/t.p12", "/t.pem"]),
    ("producer.override.ssl.keystore.type", &["JKS", "PKCS12", "PEM"]),
    ("transforms.outbox.table.field.additional.missing", &["error", "IGNORE"]),
    ("transforms.outbox.table.op.invalid.behavior", &["warn", "error", "fatal"]),
    ("transforms.outbox.table.json.payload.null.behavior", &["ignore", "optional_bytes"]),
    ("transforms.outbox.table.json.payload.empty.array.behavior", &["ignore", "optional_string"]),
    ("transforms.outbox.field.name.adjustment.mode", &["none", "avro", "avro_unicode"]),
    (
        "transforms.outbox.table.fields.additional.placement",
        &[
            "type:header",
            "a:HEADER:b, c:envelope",
            "shard:partition",
            "a:header:",
            "a:header,",
            "a:envelope:payload",
            "a:envelope,b:envelope:a",
            "a",
            "a:b:c:d",
            ":header",
        ],
    ),
    (
        "transforms.outbox.route.topic.regex",
        &[
            "(.*)",
            r"\Qa.b\E(?<routedByValue>.*)",
            r"(?<routedByValue>\p{javaLowerCase}+)",
            r"\p{javaMirrored}",
            "(?<kind>a)",
            "(?=a)b",
            "a++",
            r"(a)\1",
            "(",
        ],
    ),
    (
        "transforms.outbox.route.topic.replacement",
        &[
            "${routedByValue}.events",
            "$1",
            "${kind}",
            "$2",
            r"\$1",
            "$",
            "${open",
            "${env:TOPIC}.${routedByValue}",
            "a/${routedByValue}",
            "..",
        ],
    ),
];

/// Every option that is known with everything that is tried of it.
fn choices() -> Vec<(String, String)> {
    let sides = ["key.converter", "value.converter", "header.converter"];
    let properties = sides.iter().flat_map(|side| converters::KNOWN.map(|property| format!("{side}.{property}")));
    let known = options::known(Form::Connect).map(|name| name.replace('*', "x"));
    let known = known.chain(router::known().map(|name| format!("transforms.outbox.{name}")));
    let known = known.chain(kafka::known().map(|name| format!("producer.override.{}", name.replace('*', "x"))));
    let known = known.chain(properties).filter(|name| !["connector.class", "transforms"].contains(&name.as_str()));
    let known = known.filter(|name| !OWN_NAMES.contains(&name.as_str()));
    let mut choices: Vec<(String, String)> =
        known.flat_map(|name| ANYTHING.map(|value| (name.clone(), value.to_owned()))).collect();
    for (name, words) in WORDS {
        choices.extend(words.iter().map(|word| ((*name).to_owned(), (*word).to_owned())));
    }
    let known = debezium::CONVERTERS.iter().chain(debezium::HEADER_CONVERTERS).copied();
    let debezium_s = ["io.debezium.converters.ByteBufferConverter", "io.debezium.converters.ByteArrayConverter"];
    let classes = known.chain(debezium_s).flat_map(|class| {
        let simple = class.rsplit('.').next().unwrap_or_default();
        [class, simple, simple.trim_end_matches("Converter")]
    });
    let delegate = ".delegate.converter.type";
    for class in classes.chain(["-", "io.confluent.connect.avro.AvroConverter"]) {
        for side in sides {
            choices.push((side.to_owned(), class.to_owned()));
            choices.push((format!("{side}{delegate}"), class.to_owned()));
        }
    }
    choices
}

/// The configuration's own loader, which need not read the same text twice.
#[derive(Default)]
struct Loader(HashSet<String>);

impl Loader {
    /// Converts, and says what the loader has against the result.
    fn refusal(&mut self, changes: &[(String, String)]) -> Option<String> {
        let changes: Vec<(&str, &str)> = changes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let Conversion { toml, findings } = with(&changes);
        if !self.0.insert(toml.clone()) {
            return None;
        }
        let error = Config::from_toml(&toml, "outboxd.toml", std::iter::empty()).err()?;
        Some(format!("{changes:?}, lost {:?}: {error}\n{toml}", findings.lost))
    }
}

#[test]
fn whatever_an_option_holds_alone_or_among_others_the_result_loads() {
    let (choices, mut loader) = (choices(), Loader::default());
    let refused: Vec<String> =
        choices.iter().filter_map(|choice| loader.refusal(std::slice::from_ref(choice))).collect();
    assert!(refused.is_empty(), "{} of {}:\n{}", refused.len(), choices.len(), refused.join("\n\n"));
    for converter in ["key.converter", "value.converter"] {
        for property in choices.iter().filter(|(name, _)| name.starts_with(&format!("{converter}."))) {
            for class in ["io.debezium.converters.ByteBufferConverter", "JsonConverter"] {
                let changes = [(converter.to_owned(), class.to_owned()), property.clone()];
                assert_eq!(loader.refusal(&changes), None);
            }
        }
    }
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let loader = std::cell::RefCell::new(loader);
    let several = proptest::collection::vec(proptest::sample::select(choices), 2..=12);
    let tried = runner.run(&several, |changes| {
        let refusal = loader.borrow_mut().refusal(&changes);
        prop_assert!(refusal.is_none(), "{}", refusal.unwrap_or_default());
        Ok(())
    });
    tried.unwrap();
}

#[test]
fn a_converter_is_carried_over_as_the_one_that_the_configuration_has() {
    const BINARY: &str = "io.debezium.converters.BinaryDataConverter";
    for class in ["BinaryDataConverter", "ByteBufferConverter"] {
        let conversion = with(&[("value.converter", &format!("io.debezium.converters.{class}"))]);
        let line = format!("\"value.converter\" = \"{BINARY}\"");
        assert!(conversion.toml.contains(&line) && !conversion.findings.is_loss(), "{class}: {}", conversion.toml);
    }
    // PostgreSQL's connector has buffers, which this one leaves to its delegate.
    let lost = with(&[("value.converter", "io.debezium.converters.ByteArrayConverter")]).findings.lost;
    assert!(lost[0].hint.as_ref().unwrap().starts_with("it leaves every bytea of PostgreSQL's to its delegate"));
    let delegate = "value.converter.delegate.converter.type";
    for (class, schemas, line, lost) in [
        ("org.apache.kafka.connect.storage.StringConverter", "-", true, &[][..]),
        ("org.apache.kafka.connect.json.JsonConverter", "false", true, &[]),
        ("org.apache.kafka.connect.json.JsonConverter", "true", true, &["schemas.enable"]),
        // A delegate's default is a JsonConverter's own.
        ("org.apache.kafka.connect.json.JsonConverter", "-", true, &[""]),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", "-", false, &[]),
        ("io.confluent.connect.avro.AvroConverter", "-", false, &[""]),
    ] {
        let own = format!("{delegate}.schemas.enable");
        let changes = [("value.converter", BINARY), (delegate, class), (&own, schemas)];
        let conversion = with(&changes);
        assert_eq!(conversion.toml.contains(&format!("\"{delegate}\" = \"{class}\"")), line, "{class}");
        let json = class.ends_with("JsonConverter");
        assert_eq!(conversion.toml.contains(&format!("\"{own}\" = false")), json, "{class}: {}", conversion.toml);
        let told: Vec<&str> = names(&conversion.findings.lost)
            .into_iter()
            .map(|option| option.strip_prefix(delegate).unwrap().trim_start_matches('.'))
            .collect();
        assert_eq!(told, lost, "{class} {schemas}");
    }
}

#[test]
fn a_converter_s_short_names_are_the_configuration_s() {
    let alias = [("key.converter", "String"), ("value.converter", "Json"), ("value.converter.schemas.enable", "false")];
    let conversion = with(&alias);
    assert_eq!(names(&conversion.findings.lost), Vec::<&str>::new());
    assert!(conversion.toml.contains(&format!("\"value.converter\" = \"{}\"", debezium::JSON)), "{}", conversion.toml);
    for (side, class) in [
        ("value.converter", "ByteArray"),
        ("value.converter", "ByteBuffer"),
        ("value.converter", "ByteBufferConverter"),
        ("value.converter", "Simple"),
        ("value.converter", "LongConverter"),
        ("value.converter", "io.debezium.converters.ByteArrayConverter"),
        ("header.converter", "Simple"),
        ("header.converter", "ByteArray"),
        ("header.converter", "Avro"),
    ] {
        let hint = debezium::check(side, class).err().map(|fault| fault.hint);
        let lost = with(&[(side, class)]).findings.lost.into_iter().next().map(|finding| finding.hint);
        assert_eq!(lost, hint, "{side}={class}");
    }
}

#[test]
fn what_java_means_by_an_expression_is_carried_over() {
    for pattern in
        [r"\Qa.b\E(?<routedByValue>.*)", r"(?<routedByValue>\p{javaLowerCase}+)", "(?<routedByValue>[a-z&&[^x]]+)"]
    {
        let conversion = with(&[("transforms.outbox.route.topic.regex", pattern)]);
        assert!(!conversion.findings.is_loss(), "{pattern}: {:?}", conversion.findings.lost);
        let table: toml::Table = conversion.toml.parse().unwrap();
        assert_eq!(table["outbox"][0]["debezium"]["route.topic.regex"].as_str(), Some(pattern));
    }
}

#[test]
fn a_column_that_debezium_takes_away_before_the_router_is_told() {
    let placement = ("transforms.outbox.table.fields.additional.placement", "shard:header,Tenant:envelope");
    let missing = "transforms.outbox.table.field.additional.missing";
    let exclude = "column.exclude.list";
    for (list, columns, behaviour, lost, differs) in [
        (exclude, "public.outbox.shard", "ignore", 1, 0),
        (exclude, r"public\.outbox\.(shard|tenant)", "ignore", 2, 0),
        (exclude, "public.outbox.shard", "error", 0, 1),
        (exclude, "public.outbox.payload,public.outbox.note", "ignore", 0, 1),
        (exclude, "public.outbox.note,public.other.shard", "ignore", 0, 0),
        ("column.blacklist", "PUBLIC.OUTBOX.SHARD", "ignore", 1, 0),
        ("column.include.list", "public.outbox.(id|aggregate.*|payload|shard|tenant)", "ignore", 0, 0),
        ("column.include.list", "public.outbox.(id|aggregate.*|payload)", "ignore", 2, 0),
        (exclude, "(?!note).*", "ignore", 1, 0),
        (exclude, "${file:/run/x:y}", "ignore", 1, 0),
    ] {
        let findings = with(&[placement, (missing, behaviour), (list, columns)]).findings;
        let told = |group: &[Finding]| names(group).into_iter().filter(|option| *option == list).count();
        let counts = (told(&findings.lost), told(&findings.differs), told(&findings.not_needed));
        assert_eq!(counts, (lost, differs, usize::from(lost + differs == 0)), "{list}={columns}: {findings:?}");
    }
}

#[test]
fn what_a_filter_and_an_unwrapping_transform_mean_here_is_told_by_where_they_stand() {
    let (filter, unwrap) = ("io.debezium.transforms.Filter", "io.debezium.transforms.ExtractNewRecordState");
    for (chain, class, told) in [
        ("outbox,x", filter, "outboxd drops no event"),
        ("x,outbox", filter, "outboxd drops no event"),
        ("outbox,x", unwrap, "behind the outbox router it does nothing"),
        ("x,outbox", unwrap, "unusual before the outbox router"),
    ] {
        let findings = with(&[("transforms", chain), ("transforms.x.type", class)]).findings;
        assert_eq!(names(&findings.lost), ["transforms.x.type"], "{chain}");
        let hint = findings.lost[0].hint.as_deref().unwrap_or_default();
        assert!(hint.starts_with(told) && findings.is_loss(), "{chain} {class}: {hint}");
    }
    let alone = with(&[("transforms", "x"), ("transforms.x.type", unwrap)]).findings;
    assert_eq!(alone.lost.iter().find(|lost| lost.option == "transforms.x.type").unwrap().hint, None);
}

#[test]
fn an_ipv6_host_is_one_that_the_configuration_takes() {
    let v6 = |host: &str, port| Host::Tcp(host.to_owned(), port);
    for (typed, port, hosts) in [
        ("::1", "-", vec![v6("::1", 5432)]),
        ("::1", "6432", vec![v6("::1", 6432)]),
        ("2001:db8:0:0:0:0:0:1,db", "-", vec![v6("2001:db8:0:0:0:0:0:1", 5432), v6("db", 5432)]),
        ("[::1]", "-", vec![v6("::1", 5432)]),
    ] {
        let toml = with(&[("database.hostname", typed), ("database.port", port)]).toml;
        let config = Config::from_toml(&toml, "outboxd.toml", std::iter::empty()).unwrap();
        assert_eq!(config.postgres.connection.hosts, hosts, "{typed}");
    }
}

#[test]
fn an_expression_that_chooses_a_router_is_java_s() {
    let conversion = with(&[
        ("transforms.outbox.predicate", "is"),
        ("transforms.outbox.type", "EventRouter"),
        ("predicates", "is"),
        ("predicates.is.type", "TopicNameMatches"),
        ("predicates.is.pattern", r"\Qshop.public.\Eoutbox"),
    ]);
    assert!(!conversion.findings.is_loss(), "{:?}", conversion.findings.lost);
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
