use std::time::Duration;

use proptest::prelude::*;

use super::super::schema::{Initial, SECTIONS, Shape};
use super::super::{
    DefaultHeaders, Host, Match, Switch, Timestamp, Tombstone, Unmatched, ValueForm, reference, reference_markdown,
};
use super::*;

const LEAST: &str = "[postgres]\nurl = 'postgres://u@h/d'\n[kafka]\nbrokers = 'k:9092'\n";

fn load(text: &str, env: &[(&str, &str)]) -> Result<Config, Error> {
    let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Config::from_toml(text, "f.toml", env)
}

/// The least a configuration needs, and something behind it, from line 5 on.
fn with(text: &str) -> Result<Config, Error> {
    load(&format!("{LEAST}{text}"), &[])
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("must be refused").to_string()
}

fn table(schema: &str, name: &str) -> OutboxSource {
    OutboxSource::Table { schema: schema.into(), name: name.into() }
}

#[test]
fn url_and_brokers_are_enough_and_the_rest_has_the_documented_defaults() {
    let config = load(LEAST, &[]).unwrap();
    assert_eq!(config.postgres.connection.hosts, [Host::Tcp("h".into(), 5432)]);
    assert_eq!(config.postgres.slot, "outboxd");
    assert_eq!(config.postgres.publication, "outboxd");
    assert_eq!(config.postgres.sender_timeout, Duration::from_secs(30));
    let [outbox] = config.outbox.as_slice() else { panic!("one outbox") };
    assert_eq!(outbox.source, table("public", "outbox"));
    assert_eq!(outbox.columns.id, "id");
    assert_eq!(outbox.columns.aggregate_type.as_deref(), Some("aggregate_type"));
    assert_eq!(outbox.columns.aggregate_id.as_deref(), Some("aggregate_id"));
    assert_eq!(outbox.columns.event_type.as_deref(), Some("event_type"));
    assert_eq!(outbox.columns.payload, "payload");
    assert_eq!(outbox.columns.timestamp.as_deref(), Some("created_at"));
    assert_eq!(outbox.columns.headers.as_deref(), Some("headers"));
    assert_eq!(outbox.columns.partition, None);
    assert_eq!(config.kafka.brokers, "k:9092");
    assert!(config.kafka.create_topics.is_none());
    assert!(config.kafka.properties.is_empty());
    assert!(config.rules.routes.is_empty());
    assert_eq!(config.rules.unmatched, Unmatched::Default);
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:9187");
    let limits = config.limits;
    assert_eq!((limits.memory, limits.window, limits.event), (32 << 20, 100_000, 16 << 20));
    assert_eq!((limits.settle, limits.shutdown), (Duration::from_secs(30), Duration::from_secs(25)));
    assert_eq!((limits.primary_grace, limits.backoff), (Duration::from_secs(5), Duration::from_secs(2)));
    assert_eq!((limits.probe, limits.sql), (Duration::from_secs(5), Duration::from_secs(10)));
    assert_eq!(limits.slot_creation, Duration::from_secs(60));
}

#[test]
fn everything_can_be_set() {
    let config = with(
        r#"create_topics = { partitions = 6, replication = 3, config = { "retention.ms" = 1000, "cleanup.policy" = "compact" } }
        properties = { "linger.ms" = 5, "enable.ssl.certificate.verification" = true }
        [[outbox]]
        table = '"My Shop"."Out.Box"'
        columns = { id = "event_id", timestamp = "", headers = "", partition = "shard" }
        [[outbox]]
        message_prefix = "shop"
        [[route]]
        match = { event_type = "order.*", region = "" }
        topic = "orders.{region}"
        key = "{aggregate_id}"
        headers = { tenant = "{tenant_id}", kind = "order" }
        [[route]]
        [http]
        listen = "[::]:80"
        [limits]
        memory = 67108864
        shutdown = "1m 30s"
        "#,
    )
    .unwrap();
    let topics = config.kafka.create_topics.unwrap();
    assert_eq!((topics.partitions, topics.replication), (6, 3));
    assert_eq!(topics.config["retention.ms"], "1000");
    assert_eq!(topics.config["cleanup.policy"], "compact");
    assert_eq!(config.kafka.properties["linger.ms"].reveal(), "5");
    assert_eq!(config.kafka.properties["enable.ssl.certificate.verification"].reveal(), "true");
    assert_eq!(config.outbox[0].source, table("My Shop", "Out.Box"));
    assert_eq!(config.outbox[0].columns.id, "event_id");
    assert_eq!(config.outbox[0].columns.timestamp, None);
    assert_eq!(config.outbox[0].columns.headers, None);
    assert_eq!(config.outbox[0].columns.partition.as_deref(), Some("shard"));
    assert_eq!(config.outbox[1].source, OutboxSource::MessagePrefix("shop".into()));
    let routes = &config.rules.routes;
    assert!(
        matches!(&routes[0].matches[..], [(name, Match::Glob(glob)), (_, Match::Is(_))] if name == "event_type" && glob == "order.*")
    );
    assert_eq!(typed(&routes[0].topic), "orders.{region}");
    assert_eq!(typed(&routes[0].key), "{aggregate_id}");
    let names: Vec<&str> = routes[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tenant", "kind"], "headers keep the order typed");
    assert_eq!((&routes[1].topic, &routes[1].key), (&None, &None), "what is not typed is for the outbox to say");
    assert_eq!(config.http.listen.port(), 80);
    assert_eq!(config.limits.memory, 64 << 20);
    assert_eq!(config.limits.shutdown, Duration::from_secs(90));
}

#[test]
fn what_is_wrong_is_said_with_line_field_and_what_is_allowed() {
    const NAMES: &str = "hint: a topic's name has letters, digits, \".\", \"_\" and \"-\"";
    for (text, expected) in [
        (
            "slott = 1",
            "f.toml:5: unknown field \"kafka.slott\"\n  hint: known here: brokers, create_topics, properties",
        ),
        ("broker = 1", "f.toml:5: unknown field \"kafka.broker\"\n  hint: did you mean \"brokers\"?"),
        ("\n[limit]", "f.toml:6: unknown field \"limit\"\n  hint: did you mean \"limits\"?"),
        (
            "[telemetry]",
            "f.toml:5: unknown field \"telemetry\"\n  hint: known here: postgres, outbox, kafka, route, registry, templates, dead_letter, http, log, limits",
        ),
        (
            "[outbox]\ntable = 'x'",
            "f.toml:5: outbox: expected an array of tables, got a table\n  hint: write [[outbox]]",
        ),
        ("[[limits]]", "f.toml:5: limits: expected a table, got an array\n  hint: write [limits]"),
        (
            "[[outbox]]\nlabel = 'x'",
            "f.toml:6: unknown field \"outbox.label\"\n  hint: known here: table, message_prefix, preset, debezium, columns, join, writeback",
        ),
        ("[limits]\nsettle = 5", "f.toml:6: limits.settle: expected a duration such as \"5s\", got an integer"),
        (
            "[limits]\nsettle = 'soon'",
            "f.toml:6: limits.settle: \"soon\" is not a duration\n  hint: a number and a unit (ms, s, m, h), for example \"500ms\", \"5s\" or \"1m 30s\"",
        ),
        ("[limits]\nshutdown = '0s'", "f.toml:6: limits.shutdown: must be from 100ms to 1d, not 0s"),
        (
            "[limits]\nmemory = '12 parsecs'",
            "f.toml:6: limits.memory: \"12 parsecs\" is not a size\n  hint: a whole number and a unit (KiB, MiB, GiB, kB, MB, GB, or none for bytes), for example \"32MiB\"",
        ),
        ("[limits]\nevent = '1B'", "f.toml:6: limits.event: must be from 1KiB to 1GiB, not 1B"),
        ("[limits]\nmemory = true", "f.toml:6: limits.memory: expected a size such as \"32MiB\", got a boolean"),
        (
            "[limits]\n\nmemory = '2MiB'",
            "f.toml:7: limits.memory: limits.event (16777216 bytes) is above limits.memory (2097152 bytes)\n  hint: one event must fit into the memory: lower limits.event or raise limits.memory",
        ),
        ("[limits]\nwindow = 0", "f.toml:6: limits.window: must be from 1 to 10000000"),
        ("[limits]\nwindow = 1.5", "f.toml:6: limits.window: expected a whole number, got a float"),
        ("[limits]\nwindow = 99999999999999999999", "f.toml:6: limits.window: must be from 1 to 10000000"),
        (
            "[http]\nlisten = 'localhost:80'",
            "f.toml:6: http.listen: \"localhost:80\" is not an address to listen on\n  hint: an IP address and a port, for example \"127.0.0.1:9187\", \"0.0.0.0:9187\" or \"[::]:9187\"",
        ),
        ("[[outbox]]\ntable = ''", "f.toml:6: outbox.table: must not be empty"),
        ("[[outbox]]\ntable = \"a\\u0000\"", "f.toml:6: outbox.table: must not contain a NUL character"),
        (
            "[[outbox]]\ntable = 'a.b.c'",
            "f.toml:6: outbox.table: \"a.b.c\" is not a table's name\n  hint: schema.name, or name alone for the schema public; a name with a dot in double quotes",
        ),
        (
            "[[outbox]]\nmessage_prefix = 'outboxd'",
            "f.toml:6: outbox.message_prefix: the prefix \"outboxd\" is reserved for the relay's own heartbeats",
        ),
        (
            "[[outbox]]\ntable = 'a'\nmessage_prefix = 'b'",
            "f.toml:5: outbox: has both a table and a message_prefix\n  hint: write one [[outbox]] block for each",
        ),
        (
            "[[outbox]]\ntable = 'a'\n[[outbox]]\ntable = 'public.a'",
            "f.toml:7: outbox: a block above has the same table or message_prefix",
        ),
        ("[[outbox]]\ncolumns = { id = '' }", "f.toml:6: outbox.columns.id: must not be empty"),
        ("[[outbox]]\ncolumns = { payload = '' }", "f.toml:6: outbox.columns.payload: must not be empty"),
        (
            "[[outbox]]\ncolumns = { idd = 'x' }",
            "f.toml:6: unknown field \"outbox.columns.idd\"\n  hint: did you mean \"id\"?",
        ),
        ("[[outbox]]\ncolumns = 'id'", "f.toml:6: outbox.columns: expected a table, got a string"),
        (
            "create_topics = {}",
            "f.toml:5: kafka.create_topics.partitions is required\n  hint: set partitions in kafka.create_topics\nerror: f.toml:5: kafka.create_topics.replication is required\n  hint: set replication in kafka.create_topics",
        ),
        (
            "properties = { acks = 1 }",
            "f.toml:5: kafka.properties.acks: refused: the slot moves forward only on acks=all, which the relay sets\n  hint: remove it",
        ),
        (
            "properties = { 'bootstrap.servers' = 'x' }",
            "f.toml:5: kafka.properties.bootstrap.servers: refused: it has a field of its own\n  hint: use kafka.brokers",
        ),
        (
            "[kafka.properties]\nsecurity.protocol = 'x'",
            "f.toml:6: kafka.properties.security: expected text or { file = \"…\" }, got a table\n  hint: a name with dots needs quotes: \"security.protocol\" = …",
        ),
        (
            "properties = { x = [1] }",
            "f.toml:5: kafka.properties.x: expected a string, a number or a boolean, got an array",
        ),
        (
            "properties = { '' = 'x' }",
            "f.toml:5: kafka.properties.: a name must not be empty, nor contain a NUL character",
        ),
        (
            "properties = { x = { file = '/nowhere' } }",
            "f.toml:5: kafka.properties.x: cannot read /nowhere: No such file or directory (os error 2)",
        ),
        (
            "[[route]]\nkey = '{id'",
            "f.toml:6: route.key: \"{id\" has a \"{\" without its \"}\"\n  hint: {name} stands for a column, {name|text} for text where that is NULL; write {{ and }} for the braces themselves",
        ),
        ("[[route]]\nkey = ''", "f.toml:6: route.key: must not be empty"),
        ("[[route]]\nmatch = 'x'", "f.toml:6: route.match: expected a table, got a string"),
        (
            "[[route]]\nmatch = { a = 1 }",
            "f.toml:6: route.match.a: expected a glob, a list, { is = … } or { regex = … }, got an integer",
        ),
        (
            "[[route]]\nheaders = { a = '{}' }",
            "f.toml:6: route.headers.a: \"{}\" has a place without a column's name\n  hint: write {name}, without spaces; for example {aggregate_id}",
        ),
        (
            "[[route]]\ndefault_headers = 'some'",
            "f.toml:6: route.default_headers: \"some\" is not one of the choices\n  hint: \"all\" or \"id\" or \"none\"",
        ),
        (
            "[[route]]\n[[route]]",
            "f.toml:6: route: is never reached: a route above matches every row\n  hint: move the route without match to the end",
        ),
        ("[limits\n", "f.toml:5: not valid TOML: unclosed table, expected `]`"),
        ("brokers = 'x'", "f.toml:5: not valid TOML: duplicate key"),
    ] {
        assert_eq!(refusal(with(text)), expected, "{text}");
    }
    assert_eq!(
        refusal(with("[[route]]\ntopic = 'a/{id}'")),
        format!("f.toml:6: route.topic: \"a/{{id}}\" cannot be a topic's name\n  {NAMES}")
    );
}

#[test]
fn a_wrong_postgres_section_is_told_line_by_line() {
    let text = "brokers = 'x'\n[postgres]\nurl = 'postgres://u@h/d?sslmod=x'\nslot = 'Orders'\nslott = 'x'\nsender_timeout = '999ms'\n\
                password = 'a'\npassword_file = 'b'\n[kafka]\nbrokers = 'a,,b'\n";
    assert_eq!(
        refusal(load(text, &[])),
        "f.toml:1: unknown field \"brokers\"\n  hint: brokers belongs under [kafka]\n\
         error: f.toml:3: postgres.url: unknown parameter \"sslmod\"\n  hint: did you mean \"sslmode\"?\n\
         error: f.toml:4: postgres.slot: \"Orders\" is not a slot's name\n  hint: lower-case letters, digits and _, at most 63 of them\n\
         error: f.toml:5: unknown field \"postgres.slott\"\n  hint: did you mean \"slot\"?\n\
         error: f.toml:6: postgres.sender_timeout: must be from 1s to 1d, not 999ms\n\
         error: f.toml:8: postgres.password_file: password is set as well\n  hint: keep one of the two\n\
         error: f.toml:10: kafka.brokers: has an empty place between its commas\n  hint: host:port,host:port"
    );
}

#[test]
fn what_is_required_is_asked_for() {
    let hints = [
        "postgres.url is required\n  hint: set url under [postgres], or the variable OUTBOXD_POSTGRES__URL",
        "kafka.brokers is required\n  hint: set brokers under [kafka], or the variable OUTBOXD_KAFKA__BROKERS",
    ];
    let missing = format!("f.toml: {}\nerror: f.toml: {}", hints[0], hints[1]);
    assert_eq!(refusal(load("", &[])), missing);
    assert_eq!(
        refusal(load("[kafka]\n[postgres]\n", &[])),
        format!("f.toml:1: {}\nerror: f.toml:2: {}", hints[1], hints[0])
    );
    assert_eq!(refusal(Config::build(None, std::iter::empty(), None)), hints.join("\nerror: "));
}

#[test]
fn variables_win_over_the_file_and_can_stand_alone() {
    let env = [
        ("OUTBOXD_POSTGRES__URL", "postgres://v@w/x"),
        ("OUTBOXD_POSTGRES__PASSWORD", "from the environment"),
        ("OUTBOXD_KAFKA__BROKERS", "other:9092"),
        ("OUTBOXD_KAFKA__PROPERTIES", "{ 'linger.ms' = 7 }"),
        ("OUTBOXD_KAFKA__CREATE_TOPICS", "{ partitions = 1, replication = 1 }"),
        ("OUTBOXD_LIMITS__MEMORY", "64MiB"),
        ("OUTBOXD_LIMITS__WINDOW", "500"),
        ("OUTBOXD_LIMITS__SHUTDOWN", "5s"),
        ("OUTBOXD_HTTP__LISTEN", "0.0.0.0:1"),
        ("OUTBOXD_OUTBOX__TABLE", "shop.events"),
        ("OUTBOXD_OUTBOX__COLUMNS", "{ id = 'uid' }"),
        ("OUTBOXD_ROUTE__KEY", "{aggregate_id}"),
        ("OUTBOXD_LOG", "debug"),
        ("OUTBOXD_CONFIG", "x"),
        ("OUTBOXD_PORT_9187_TCP_PROTO", "tcp"),
        ("HOME", "/"),
    ];
    let pairs = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    for config in [load(LEAST, &env).unwrap(), Config::build(None, pairs, None).unwrap().config] {
        assert_eq!(config.postgres.connection.user, "v");
        assert_eq!(config.postgres.connection.password, Some(Secret::new("from the environment")));
        assert_eq!(config.kafka.brokers, "other:9092");
        assert_eq!(config.kafka.properties["linger.ms"].reveal(), "7");
        assert_eq!(config.kafka.create_topics.unwrap().partitions, 1);
        assert_eq!((config.limits.memory, config.limits.window), (64 << 20, 500));
        assert_eq!(config.limits.shutdown, Duration::from_secs(5));
        assert_eq!(config.http.listen.port(), 1);
        assert_eq!(config.outbox[0].source, table("shop", "events"));
        assert_eq!(config.outbox[0].columns.id, "uid");
        assert_eq!(typed(&config.rules.routes[0].key), "{aggregate_id}");
        assert_eq!(config.rules.routes[0].topic, None);
    }
}

#[test]
fn a_wrong_variable_is_named() {
    for (name, value, expected) in [
        (
            "OUTBOXD_KAFKA__BROKER",
            "x",
            "OUTBOXD_KAFKA__BROKER: no such field\n  hint: did you mean OUTBOXD_KAFKA__BROKERS?",
        ),
        (
            "OUTBOXD_TELEMETRY__ENDPOINT",
            "x",
            "OUTBOXD_TELEMETRY__ENDPOINT: no such field\n  hint: a variable is OUTBOXD_<SECTION>__<FIELD>, for example OUTBOXD_KAFKA__BROKERS",
        ),
        ("OUTBOXD_LIMITS__WINDOW", "many", "OUTBOXD_LIMITS__WINDOW: limits.window: \"many\" is not a whole number"),
        ("OUTBOXD_LIMITS__EVENT", "1B", "OUTBOXD_LIMITS__EVENT: limits.event: must be from 1KiB to 1GiB, not 1B"),
        ("OUTBOXD_KAFKA__BROKERS", "", "OUTBOXD_KAFKA__BROKERS: kafka.brokers: must not be empty"),
        (
            "OUTBOXD_POSTGRES__URL",
            "x",
            "OUTBOXD_POSTGRES__URL: postgres.url: neither a url nor keywords with values\n  hint: postgres://user@host:5432/dbname, or host=… user=… dbname=…",
        ),
        (
            "OUTBOXD_KAFKA__PROPERTIES",
            "'x'",
            "OUTBOXD_KAFKA__PROPERTIES: kafka.properties: expected a table, got a string",
        ),
        (
            "OUTBOXD_KAFKA__CREATE_TOPICS",
            "{ partitions = 0, replication = 1 }",
            "OUTBOXD_KAFKA__CREATE_TOPICS: kafka.create_topics.partitions: must be from 1 to 100000",
        ),
    ] {
        assert_eq!(refusal(load(LEAST, &[(name, value)])), expected);
    }
    let two = format!("{LEAST}[[outbox]]\ntable = 'a'\n[[outbox]]\ntable = 'b'\n");
    assert_eq!(
        refusal(load(&two, &[("OUTBOXD_OUTBOX__TABLE", "c")])),
        "OUTBOXD_OUTBOX__TABLE: there are 2 [[outbox]] blocks\n  hint: a variable sets a block's field where there is one block, or none"
    );
}

#[test]
fn the_password_comes_from_the_first_place_that_has_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "from file\n").unwrap();
    let path = file.path().to_str().unwrap();
    let password = |text: &str, env: &[(&str, &str)]| {
        let config = load(&format!("[kafka]\nbrokers = 'k'\n[postgres]\n{text}"), env).unwrap();
        config.postgres.connection.password.map(|secret| secret.reveal().to_owned())
    };
    let pg = ("PGPASSWORD", "from pg");
    assert_eq!(password("url = 'postgres://u@h'", &[]), None);
    assert_eq!(password("url = 'postgres://u@h'", &[pg]).unwrap(), "from pg");
    assert_eq!(password("url = 'postgres://u:url@h'", &[pg]).unwrap(), "url");
    assert_eq!(password("url = 'postgres://u:url@h'\npassword = 'own'", &[pg]).unwrap(), "own");
    assert_eq!(password(&format!("url = 'postgres://u:url@h'\npassword_file = '{path}'"), &[pg]).unwrap(), "from file");
    let own = ("OUTBOXD_POSTGRES__PASSWORD", "variable");
    assert_eq!(password("url = 'postgres://u@h'\npassword_file = '/nowhere'", &[own]).unwrap(), "variable");
    let own = ("OUTBOXD_POSTGRES__PASSWORD_FILE", path);
    assert_eq!(password("url = 'postgres://u@h'\npassword = 'own'", &[own]).unwrap(), "from file");
}

#[test]
fn a_property_can_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "s3cret\r\n").unwrap();
    let path = file.path().display();
    let config = with(&format!("properties = {{ 'sasl.password' = {{ file = '{path}' }} }}")).unwrap();
    assert_eq!(config.kafka.properties["sasl.password"].reveal(), "s3cret");
    fs::write(file.path(), "\n").unwrap();
    let refused = refusal(with(&format!("properties = {{ 'sasl.password' = {{ file = '{path}' }} }}")));
    assert_eq!(refused, format!("f.toml:5: kafka.properties.sasl.password: {path} is empty"));
}

#[test]
fn a_named_file_must_be_there_and_the_default_one_need_not() {
    let refused = refusal(Config::load(Some(Path::new("/nowhere/x.toml")), std::iter::empty()));
    assert_eq!(
        refused,
        "/nowhere/x.toml: cannot read the configuration: No such file or directory (os error 2)\n  hint: outboxd config prints a file to start from"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), LEAST).unwrap();
    assert!(Config::load(Some(file.path()), std::iter::empty()).is_ok());
    // The tests' working directory is the repository, which has no outboxd.toml of its own.
    let env = [("OUTBOXD_POSTGRES__URL", "postgres://u@h"), ("OUTBOXD_KAFKA__BROKERS", "k")];
    let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    assert!(Config::load(None, env).is_ok());
}

#[test]
fn no_secret_is_ever_printed() {
    let secret = "hunter2";
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), secret).unwrap();
    let path = file.path().display();
    let lines = [
        format!("url = 'postgres://u:{secret}@h/d'"),
        format!("url = 'postgres://u:x/{secret}@h/d'"),
        format!("url = 'postgres://u:{secret}@h/d?sslmode={secret}'"),
        format!("url = 'postgres://u:{secret}@h:x/d'"),
        format!("url = {{ a = '{secret}' }}"),
        format!("url = ['{secret}']"),
        format!("url = 'postgres://u:{secret}@h/d"),
        format!("url = \"postgres://u:\\{secret}@h/d\""),
        format!("url = postgres://u:{secret}@h/d"),
        format!("url = '{secret}'"),
        format!("password = '{secret}'"),
        format!("password = \"\\u0000{secret}\""),
        format!("password = \"{secret}"),
        format!("password = {secret}"),
        format!("password = ['{secret}']"),
        format!("password = '{secret}'\npassword_file = '{path}'"),
        format!("password = '{secret}'\npassword = '{secret}'"),
        format!("password_file = '{path}'\nslott = 1"),
    ];
    let properties = [
        format!("{{ 'sasl.password' = '{secret}' }}"),
        format!("{{ 'sasl.password' = ['{secret}'] }}"),
        format!("{{ 'sasl.password' = {{ fil = '{secret}' }} }}"),
        format!("{{ 'sasl.password' = {{ file = '{path}' }} }}"),
        format!("{{ 'sasl.password' = '{secret} }}"),
        format!("{{ 'sasl.password' = {secret} }}"),
        format!("{{ 'acks' = '{secret}', partitioner = '{secret}', 'max.in.flight' = '{secret}' }}"),
    ];
    let check = |text: &str, env: &[(&str, &str)]| {
        let shown = match load(text, env) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error}\n{error:?}"),
        };
        assert!(!shown.contains(secret), "{text} {env:?}: {shown}");
    };
    for line in lines {
        check(&format!("[postgres]\n{line}\n"), &[]);
        check(&format!("{line}\n[postgres]\nurl = 'postgres://u@h'\n[kafka]\nbrokers = 'k'"), &[]);
        check(&format!("[kafka]\nbrokers = 'k'\n[postgres]\nurl = 'postgres://u@h'\n{line}"), &[]);
        if let Some(value) = line.strip_prefix("url = ") {
            check(LEAST, &[("OUTBOXD_POSTGRES__URL", value.trim_matches(['\'', '"']))]);
        }
    }
    for line in properties {
        check(&format!("{LEAST}properties = {line}"), &[]);
        check(LEAST, &[("OUTBOXD_KAFKA__PROPERTIES", &line)]);
    }
    check(LEAST, &[("PGPASSWORD", secret), ("OUTBOXD_POSTGRES__PASWORD", secret)]);
}

#[test]
fn every_field_of_the_schema_is_read() {
    for section in &SECTIONS {
        for field in section.fields {
            let mut text = String::from("[postgres]\nurl = 'postgres://u@h'\n[kafka]\nbrokers = 'k'\n");
            // No field may hold a date, so whoever reads one must refuse it.
            let date = format!("{} = 2026-01-01\n", field.name);
            match (section.shape, field.default) {
                (Shape::Many, _) => text.push_str(&format!("[[{}]]\n{date}", section.name)),
                (Shape::Once, Initial::Required(_)) => {
                    text = text.replace(&format!("{} = '", field.name), &format!("{date}#"))
                }
                (Shape::Once, _) if text.contains(&format!("[{}]", section.name)) => {
                    let header = format!("[{}]\n", section.name);
                    text = text.replace(&header, &format!("{header}{date}"));
                }
                (Shape::Once, _) => text.push_str(&format!("[{}]\n{date}", section.name)),
            }
            let refused = refusal(load(&text, &[]));
            assert!(refused.contains(&format!(": {}.{}: expected ", section.name, field.name)), "{text}: {refused}");
        }
    }
}

#[test]
fn the_reference_is_valid_and_shows_the_defaults() {
    let bare = reference();
    assert!(refusal(load(&bare, &[])).contains("postgres.url is required"));
    let uncomment = |skip: &[&str]| {
        let field = |line: &&str| line.starts_with(|char: char| char.is_ascii_lowercase() || char == '[');
        let kept = |line: &&str| !skip.iter().any(|name| line.starts_with(&format!("{name} = ")));
        let lines = bare.lines().map(|line| match line.strip_prefix('#').filter(field) {
            Some(field) if kept(&field) => field,
            Some(_) | None => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let config = load(
        &uncomment(&[
            "password_file",
            "message_prefix",
            "topic",
            "envelope",
            "cloudevents",
            "schema",
            "template",
            "key_template",
            "header_templates",
            "debezium",
            "join",
            "writeback",
        ]),
        &[],
    )
    .unwrap();
    let defaults = load(LEAST, &[]).unwrap();
    assert_eq!(format!("{:?}", config.limits), format!("{:?}", defaults.limits));
    assert_eq!(format!("{:?}", config.outbox), format!("{:?}", defaults.outbox));
    assert_eq!(config.postgres.sender_timeout, defaults.postgres.sender_timeout);
    assert_eq!(config.kafka.create_topics.unwrap().replication, 3);
    assert_eq!(typed(&config.rules.routes[0].key), "{id}");
    let least = bare.replace("#url = ", "url = ").replace("#brokers = ", "brokers = ");
    assert_eq!(load(&least, &[]).unwrap().postgres.connection.hosts.len(), 2);
}

#[test]
fn payloads_may_be_in_a_second_table() {
    let join = |text: &str| load(&format!("{LEAST}\n{text}"), &[]).unwrap().outbox.remove(0).join.unwrap();
    let same = join("[[outbox]]\njoin = { table = 'bodies', on = 'body_id' }");
    assert_eq!((same.schema.as_str(), same.table.as_str()), ("public", "bodies"));
    assert_eq!((same.event_column.as_str(), same.payload_column.as_str()), ("body_id", "body_id"));
    let other = join("[[outbox]]\njoin = { table = 'app.bodies', on = ' body = id ' }");
    assert_eq!((other.event_column.as_str(), other.payload_column.as_str()), ("body", "id"));
    assert_eq!(other.qualified("payload"), "app.bodies.payload");
    // A preset has its own, beside its table; what is typed weighs more.
    let usual = join("[[outbox]]\npreset = 'openg2p'\ntable = 'registry.outgoing_raw_data'");
    assert_eq!(usual.qualified(&usual.payload_column), "registry.outgoing_raw_data_payloads.change_request_id");
    let typed = join("[[outbox]]\npreset = 'openg2p'\njoin = { table = 'x', on = 'y' }");
    assert_eq!(typed.qualified(&typed.payload_column), "public.x.y");
    assert_eq!(load(LEAST, &[]).unwrap().limits.join, 10_000);
}

#[test]
fn a_second_table_is_one_outboxs_and_no_outbox() {
    for (text, expected) in [
        ("message_prefix = 'x'\njoin = { table = 'a', on = 'b' }", "outbox.join: needs a table"),
        ("join = { table = 'a' }", "outbox.join.on is required"),
        ("join = { on = 'a' }", "outbox.join.table is required"),
        ("join = { table = 'a.b.c', on = 'x' }", "outbox.join.table: \"a.b.c\" is not a table's name"),
        ("join = { table = 'a', on = 'x =' }", "outbox.join.on: \"x =\" names no column"),
        ("join = { table = 'a', on = 'x == y' }", "outbox.join.on: \"x == y\" has more than one \"=\""),
        ("join = { table = 'a', on = 'x = y = z' }", "has more than one \"=\""),
        ("table = 'a'\njoin = { table = 'public.a', on = 'x' }", "a table that is joined is an outbox itself"),
        ("join = { table = 'a', on = 'x' }\n[[outbox]]\ntable = 'a'", "a table that is joined is an outbox itself"),
        (
            "table = 'a'\njoin = { table = 'c', on = 'x' }\n[[outbox]]\ntable = 'b'\njoin = { table = 'c', on = 'y' }",
            "a block above joins the same table",
        ),
    ] {
        let told = refusal(load(&format!("{LEAST}\n[[outbox]]\n{text}"), &[]));
        assert!(told.contains(expected), "{text}: {told}");
    }
}

#[test]
fn keys_are_not_parked_where_only_the_second_table_may_tell_them() {
    let read = |route: &str| {
        load(
            &format!(
                "{LEAST}\n[[outbox]]\njoin = {{ table = 'bodies', on = 'body = id' }}\ncolumns = {{ aggregate_id = 'customer' }}\n\
                 [[outbox]]\ntable = 'plain'\n[dead_letter]\norder = 'park-key'\n[[route]]\n{route}"
            ),
            &[],
        )
    };
    for own in [
        "key = '{aggregate_id}'",
        "key = '{customer}'\ntopic = 't.{event_type|none}'\nmatch = { aggregate_type = 'x' }\n[[route]]\nkey = '{body}'",
        "key = '{who}'\nrewrite = { who = { column = 'customer', regex = 'x', with = '' } }",
        "key = '{aggregate_id}'\nheaders = { tenant = '{tenant|none}' }",
        "key = '{tenant}'\noutbox = 'plain'\n[[route]]\nkey = '{aggregate_id}'",
    ] {
        assert!(read(own).is_ok(), "{own}: {}", refusal(read(own)));
    }
    for (foreign, by) in [
        ("key = '{tenant|none}'", "tenant"),
        ("key = '{aggregate_id}'\ntopic = 't.{tenant}'", "tenant"),
        ("key = '{aggregate_id}'\nmatch = { tenant = 'a' }\n[[route]]\nkey = '{aggregate_id}'", "tenant"),
        ("key = '{who}'\nrewrite = { who = { column = 'payload', regex = 'x', with = '' } }", "payload"),
    ] {
        let told = refusal(read(foreign));
        assert!(told.contains("dead_letter.order: \"park-key\" does not know the key"), "{foreign}: {told}");
        assert!(told.contains(&format!("by \"{by}\"")) && told.contains("order = \"skip\""), "{foreign}: {told}");
        assert!(
            load(&format!("{LEAST}\n[[outbox]]\njoin = {{ table = 'b', on = 'x' }}\n[[route]]\n{foreign}"), &[])
                .is_ok()
        );
    }
}

#[test]
fn the_sample_is_valid() {
    let config = load(include_str!("../../../config/outboxd.toml"), &[]).unwrap();
    assert_eq!(typed(&config.rules.routes[0].key), "{aggregate_id}");
    let field = |line: &&str| line.starts_with(['[', '"']) || line.split(' ').nth(1) == Some("=");
    let lines = include_str!("../../../config/outboxd.toml").lines();
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix("# ").filter(field).unwrap_or(line)).collect();
    let all = lines.join("\n").replace("password_file", "password").replace("{ file = \"/run/secrets/kafka\" }", "'x'");
    let config = load(&all, &[]).unwrap();
    assert_eq!(config.outbox[0].source, table("shop", "events"));
    assert!(config.kafka.create_topics.is_some());
    assert_eq!(config.kafka.properties.len(), 4);
}

/// Regenerate with `OUTBOXD_BLESS=1 cargo test config`.
#[test]
fn the_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let expected = reference_markdown();
    if std::env::var_os("OUTBOXD_BLESS").is_some() {
        fs::write(path, &expected).unwrap();
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(written == expected, "docs/configuration.md is stale; OUTBOXD_BLESS=1 cargo test config writes it anew");
}

#[test]
fn the_examples_of_the_document_are_valid() {
    let markdown = reference_markdown();
    let examples: Vec<&str> =
        markdown.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 7);
    for example in examples {
        let example = example.replace("{ file = \"/run/secrets/kafka\" }", "'x'");
        // Each shows some sections; the two urls are alternatives.
        for url in example.lines().filter(|line| line.starts_with("url")).map(Some).chain([None]) {
            let text = match (url, example.contains("[kafka]")) {
                (Some(url), _) => format!("[postgres]\n{url}\n[kafka]\nbrokers = 'k'"),
                (None, _) if example.starts_with("url") => continue,
                (None, true) => format!("[postgres]\nurl = 'postgres://u@h'\n{example}"),
                (None, false) => format!("{LEAST}{example}"),
            };
            load(&text, &[]).unwrap_or_else(|error| panic!("{text}\n{error}"));
        }
    }
}

fn toml_like() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("[postgres]".to_owned()),
        Just("[[outbox]]".to_owned()),
        Just("[kafka]".to_owned()),
        Just("[[route]]".to_owned()),
        Just("[limits]".to_owned()),
        "(url|slot|table|columns|match|topic|key|memory|window|properties|create_topics|headers) = ('\\PC{0,12}'|[0-9]{1,20}|\\{ [a-z]{1,3} = '\\PC{0,5}' \\}|true|\\[\\])",
        "\\PC{0,20}",
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text in toml_like(), value in "\\PC{0,20}") {
        let variables = ["OUTBOXD_KAFKA__PROPERTIES", "OUTBOXD_LIMITS__WINDOW", "OUTBOXD_ROUTE__KEY", "OUTBOXD_A__B"];
        for variable in variables {
            drop(load(&text, &[(variable, &value)]).map_err(|error| error.to_string()));
        }
    }
}

fn typed(pattern: &Option<Pattern>) -> String {
    pattern.as_ref().map(Pattern::to_string).unwrap_or_default()
}

fn rules(text: &str) -> Result<Rules, String> {
    with(text).map(|config| config.rules).map_err(|error| error.to_string())
}

#[test]
fn a_route_says_which_rows_and_what_they_become() {
    let rules = rules(
        r#"
        [registry]
        unmatched = "reject"
        [[route]]
        outbox = "outbox"
        enabled = false
        match = { event_type = ["a", "b.*"], tenant = { regex = "^x" }, region = { is = "*" } }
        topic = "t.{domain|none}"
        partition = "{shard}"
        timestamp = "{happened_at}"
        default_headers = "none"
        rewrite = { domain = { column = "aggregate_type", regex = "(.*)Event", with = "$1" } }
        value = "envelope"
        envelope = { type = "event_type" }
        tombstone = "empty"
        aggregate_type = "order"
        require = ["payload", "tenant"]
        "#,
    )
    .unwrap();
    let route = &rules.routes[0];
    assert_eq!((rules.unmatched, route.switch), (Unmatched::Reject, Switch::Off));
    assert_eq!(route.outbox, Some(table("public", "outbox")));
    assert_eq!(route.timestamp, Some(Timestamp::Column("happened_at".into())));
    assert_eq!(route.value, Some(ValueForm::Envelope(vec![("type".into(), "event_type".into())])));
    assert_eq!((route.default_headers, route.tombstone), (Some(DefaultHeaders::None), Some(Tombstone::Empty)));
    let mut names: Vec<&str> = route.names().collect();
    names.sort_unstable();
    names.dedup();
    let expected = ["aggregate_type", "event_type", "happened_at", "payload", "region", "shard", "tenant"];
    assert_eq!(names, expected, "domain is no column");
}

#[test]
fn a_route_that_cannot_be_meant_is_refused_with_what_to_write() {
    for (route, what) in [
        ("outbox = \"shop.other\"", "no [[outbox]] has the table or message_prefix \"shop.other\""),
        ("match = { a = [] }", "is an empty list"),
        ("match = { a = { regex = \"(\" } }", "is not a regular expression: unclosed group"),
        ("match = { a = { glob = \"x\" } }", "write { is = \"text\" } or { regex = \"text\" }"),
        ("timestamp = \"later\"", "\"event\", \"commit\", \"now\" or \"{column}\""),
        ("rewrite = { a = { column = \"b\" } }", "has not the members column, regex and with"),
        ("envelope = { a = \"b\" }", "value is not \"envelope\""),
        ("value = \"envelope\"\nenvelope = { payload = \"b\" }", "has a member payload"),
        ("value = \"avro\"", "\"payload\" or \"envelope\" or \"cloudevents-binary\""),
        ("cloudevents = { source = \"x\" }", "value is not a CloudEvent"),
        (
            "value = \"cloudevents-binary\"\ncloudevents = { extensions = { Tenant = \"x\" } }",
            "\"Tenant\" is not a name",
        ),
        ("schema = \"nowhere.json\"", "nowhere.json"),
        (
            r#"rewrite = { x = { column = "event_type", regex = '^(\w+)\.(\w+)$', with = "$1_v2" } }"#,
            "route.rewrite.x: with = \"$1_v2\" names the group \"1_v2\", which the regex has not\n  hint: write ${1}_",
        ),
        (
            "value = \"cloudevents-binary\"\nheaders = { ce_id = \"dup\", content-type = \"x/y\" }",
            "route.headers: \"content-type\" is a header that a CloudEvent has by itself",
        ),
        ("template = \"a\"\nvalue = \"payload\"", "is set, and so is value"),
        ("key_template = \"a\"\nkey = \"{id}\"", "is set, and so is key"),
        ("template = \"nowhere\"", "templates.directory: "),
        ("enabled = \"no\"", "true or false"),
        ("require = \"payload\"", "a list of texts"),
        ("topics = \"a\"", "did you mean \"topic\"?"),
    ] {
        let told = rules(&format!("[[route]]\n{route}")).unwrap_err();
        assert!(told.contains(what), "{route}: {told}");
    }
    let rewrite = r#"rewrite = { x = { column = "event_type", regex = '^(\w+)\.(\w+)$', with = "${1}_v2" } }"#;
    assert!(rules(&format!("[[route]]\n{rewrite}\ntopic = \"shop.{{x}}.z\"")).is_ok());
    let told = rules("[registry]\nunmatched = \"drop\"").unwrap_err();
    assert!(told.contains("\"default\" or \"reject\""), "{told}");
}

#[test]
fn what_is_the_same_for_every_row_and_can_never_work_is_refused_at_the_start() {
    let long = "x".repeat(250);
    for (route, what) in [
        ("partition = 'x'", "route.partition: \"x\" is not a partition number\n  hint: a whole number"),
        ("partition = '-1'", "route.partition: \"-1\" is not a partition number"),
        ("partition = '2147483648'", "is not a partition number"),
        ("topic = 'a b'", "route.topic: \"a b\" cannot be a topic's name\n  hint: a topic's name has letters"),
        ("topic = '..'", "route.topic: \"..\" cannot be a topic's name\n  hint: Kafka has no topic"),
        (&format!("topic = '{long}'"), "cannot be a topic's name\n  hint: a topic's name has at most 249 characters"),
        (&format!("topic = '{{a}}{long}'"), "at most 249 characters"),
        (&format!("topic = '{{a|{long}}}'"), "at most 249 characters"),
    ] {
        let told = rules(&format!("[[route]]\n{route}")).unwrap_err();
        assert!(told.contains(what), "{route}: {told}");
    }
    for route in [
        "partition = '0'",
        "partition = '2147483647'",
        "partition = '{shard}'",
        "partition = '1{shard}'",
        "topic = '{a|.}'",
        "topic = '.{a}'",
        &format!("topic = '{}'", &long[1..]),
    ] {
        assert!(rules(&format!("[[route]]\n{route}")).is_ok(), "{route}");
    }
    let told = refusal(with("[dead_letter]\nstore = 'kafka'\ntopic = '..'"));
    assert!(told.contains("dead_letter.topic: \"..\" cannot be a topic's name"), "{told}");
}

#[test]
fn a_route_behind_one_that_takes_all_rows_of_its_outbox_is_never_reached() {
    let blocks = "[[outbox]]\ntable = \"a\"\n[[outbox]]\ntable = \"b\"\n";
    let routes = |first: &str, second: &str| rules(&format!("{blocks}[[route]]\n{first}\n[[route]]\n{second}"));
    assert!(routes("outbox = \"a\"", "outbox = \"b\"").is_ok());
    assert!(routes("outbox = \"a\"", "topic = \"x\"").is_ok());
    for (first, second) in [("", "outbox = \"a\""), ("outbox = \"a\"", "outbox = \"a\""), ("", "")] {
        assert!(routes(first, second).unwrap_err().contains("is never reached"), "{first} before {second}");
    }
}

#[test]
fn a_relative_path_leads_from_the_files_directory_and_in_a_variable_from_the_working_directory() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("secrets/pg", "from file\n");
    write("secrets/kafka", "of kafka\n");
    write("schemas/order.json", "{}");
    write("templates/order.j2", "{{ id }}");
    write(
        "outboxd.toml",
        "[postgres]\nurl = 'postgres://u@h/d?sslmode=verify-full&sslrootcert=ca.pem&sslcert=a.crt&sslkey=/etc/a.key'\n\
         password_file = 'secrets/pg'\n\
         [kafka]\nbrokers = 'k'\nproperties = { 'sasl.password' = { file = 'secrets/kafka' } }\n\
         [[route]]\nschema = 'schemas/order.json'\ntemplate = 'order'\n",
    );
    let path = directory.path().join("outboxd.toml");
    let load = |env: &[(&str, &str)]| {
        Config::load(Some(&path), env.iter().map(|(name, value)| (name.to_string(), value.to_string())))
    };
    let config = load(&[]).unwrap();
    let connection = &config.postgres.connection;
    assert_eq!(connection.password.as_ref().map(Secret::reveal), Some("from file"));
    assert_eq!(connection.sslrootcert, Some(directory.path().join("ca.pem")));
    assert_eq!(connection.client_cert, Some((directory.path().join("a.crt"), "/etc/a.key".into())));
    assert_eq!(config.kafka.properties["sasl.password"].reveal(), "of kafka");
    assert!(config.rules.routes[0].schema.is_some() && config.rules.templates.is_some());
    let told = refusal(load(&[("OUTBOXD_POSTGRES__PASSWORD_FILE", "secrets/pg")]));
    assert!(
        told.starts_with("OUTBOXD_POSTGRES__PASSWORD_FILE: postgres.password_file: cannot read secrets/pg: "),
        "{told}"
    );
}

/// What `init` works by, with this file and these options.
fn plan(text: Option<&str>, env: &[(&str, &str)], asked: &Asked) -> Result<Plan, Error> {
    let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Config::build(text.map(|text| (DEFAULT_FILE.to_owned(), text.to_owned())), env, Some(asked))
}

fn asked(preset: &str, table: Option<&str>) -> Asked {
    Asked { preset: Some(preset.into()), table: table.map(str::to_owned), url: None }
}

#[test]
fn init_adds_the_table_that_it_is_asked_for_and_says_which_lines_are_missing() {
    let Plan { config, missing } = plan(Some(LEAST), &[], &asked("cap", None)).unwrap();
    assert_eq!(config.outbox.iter().map(|outbox| outbox.source.to_string()).collect::<Vec<_>>(), ["cap.published"]);
    let was_read = "# public.outbox, read until now, needs a block of its own from here on, or is not read any more:\n\
                    # [[outbox]]\n# table = \"public.outbox\"\n\n";
    assert_eq!(missing, format!("{was_read}[[outbox]]\npreset = \"cap\"\ntable = \"cap.published\"\n"));
    // What is printed is what a file can hold.
    assert_eq!(with(&missing).unwrap().outbox.len(), 1);
    assert_eq!(with(&missing.replace("# [[", "[[").replace("# table", "table")).unwrap().outbox.len(), 2);
    // That is the default table itself.
    assert!(!plan(Some(LEAST), &[], &asked("goharvest", None)).unwrap().missing.contains('#'));
    let table = "app.\"watermill_a.b\"";
    let Plan { config, missing } = plan(Some(LEAST), &[], &asked("watermill", Some(table))).unwrap();
    assert_eq!(config.outbox[0].source, self::table("app", "watermill_a.b"));
    assert_eq!(with(&missing).unwrap().outbox[0].source, self::table("app", "watermill_a.b"), "{missing}");
    let text = format!("{LEAST}[[outbox]]\ntable = 'mine'\n[[route]]\noutbox = 'cap.published'\ntopic = 'x'\n");
    let Plan { config, missing } = plan(Some(&text), &[], &asked("cap", None)).unwrap();
    assert_eq!(config.outbox.len(), 2, "those of the file stay");
    assert!(missing.starts_with("[[outbox]]"), "the default was not read: {missing}");
}

#[test]
fn a_route_that_init_prints_is_for_its_own_outbox() {
    let text = format!("{LEAST}[[outbox]]\ntable = 'public.outbox'\n");
    let Plan { missing, .. } = plan(Some(&text), &[], &asked("sbmt-outbox", Some("a.\"b.items\""))).unwrap();
    let config = load(&(text + &missing.replace('…', "orders")), &[]).unwrap();
    assert_eq!(config.rules.routes[0].outbox, Some(table("a", "b.items")), "{missing}");
    assert_eq!(config.rules.routes.len(), 1);
}

#[test]
fn init_prints_whatever_the_relay_cannot_start_without() {
    // The block is there, and no route.
    let text = format!("{LEAST}[[outbox]]\npreset = 'sbmt-outbox'\ntable = 'items'\n");
    for asked in [asked("sbmt-outbox", Some("items")), Asked::default()] {
        let Plan { missing, .. } = plan(Some(&text), &[], &asked).unwrap();
        assert_eq!(missing, "[[route]]\noutbox = \"public.items\"\ntopic = \"…\" # where its events go\n");
        assert!(load(&(text.clone() + &missing.replace('…', "orders")), &[]).is_ok());
    }
    // Without a file, or with one that lacks all of this, the lines are a file that works.
    let url = Some("postgres://dba:secret@h/shop".to_owned());
    let by_url = Asked { url, ..asked("sbmt-outbox", Some("items")) };
    for text in [None, Some("")] {
        let Plan { missing, .. } = plan(text, &[], &by_url).unwrap();
        let filled = missing.replacen('…', "postgres://u@h/d", 1).replacen('…', "k:9092", 1).replacen('…', "orders", 1);
        assert_eq!(load(&filled, &[]).unwrap().outbox[0].source, table("public", "items"), "{missing}");
        assert_eq!(missing.contains("public.outbox"), text.is_some(), "{missing}");
    }
    // A section must not stand there twice.
    let Plan { missing, .. } = plan(Some("[postgres]\nslot = 's'\n[kafka]\n"), &[], &by_url).unwrap();
    assert!(missing.starts_with("# in [postgres], which is there:\nurl = "), "{missing}");
    assert!(missing.contains("\n# in [kafka], which is there:\nbrokers = "), "{missing}");
    assert!(!missing.contains("\n[kafka]"), "{missing}");
}

#[test]
fn only_a_preset_makes_the_administrators_url_the_relays() {
    let asked = |preset: Option<&str>, url: Option<&str>| Asked {
        preset: preset.map(str::to_owned),
        url: url.map(str::to_owned),
        table: None,
    };
    let url = "postgres://dba@h/shop";
    let told = "postgres.url is required\n  hint: set url under [postgres], or the variable OUTBOXD_POSTGRES__URL";
    assert_eq!(refusal(plan(None, &[], &asked(None, Some(url)))), told);
    assert_eq!(refusal(plan(None, &[], &asked(None, None))), told);
    assert_eq!(refusal(plan(None, &[], &asked(Some("cap"), None))), format!("{told}, or --url"));
    assert!(plan(None, &[], &asked(Some("cap"), Some(url))).is_ok());
}

#[test]
fn init_prints_nothing_where_the_file_has_the_block_and_refuses_another_one() {
    let text = format!("{LEAST}[[outbox]]\npreset = 'cap'\ncolumns = {{ id = 'Key' }}\n");
    let Plan { config, missing } = plan(Some(&text), &[], &asked("cap", Some("cap.published"))).unwrap();
    assert_eq!((config.outbox.len(), config.outbox[0].columns.id.as_str(), missing.as_str()), (1, "Key", ""));
    let quarkus = format!("{LEAST}[[outbox]]\npreset = 'quarkus'\n");
    let told = refusal(plan(Some(&quarkus), &[], &asked("yantra", Some("outboxevent"))));
    assert!(told.contains("has preset = \"quarkus\" here, and --preset says \"yantra\""), "{told}");
    assert!(plan(Some(&quarkus), &[], &asked("debezium", Some("outboxevent"))).is_ok(), "they mean the same");
    let told = refusal(plan(Some(&text), &[], &asked("brighter", Some("cap.published"))));
    assert!(
        told.contains(
            "outboxd.toml:5: outbox: cap.published has preset = \"cap\" here, and --preset says \"brighter\""
        ),
        "{told}"
    );
}

#[test]
fn init_needs_no_file_when_a_url_says_where() {
    let by_url =
        Asked { url: Some("postgres://dba:secret@h/shop".into()), ..asked("sbmt-outbox", Some("order_items")) };
    let Plan { config, missing } = plan(None, &[], &by_url).unwrap();
    let Connection { user, password, dbname, .. } = &config.postgres.connection;
    assert_eq!((user.as_str(), password, dbname.as_str()), ("outboxd", &None, "shop"));
    assert!(missing.starts_with("[postgres]\nurl = ") && missing.contains("\ntopic = \"…\""), "{missing}");
    assert!(!missing.contains("secret") && !missing.contains("dba"), "{missing}");
    let own = [("OUTBOXD_POSTGRES__URL", "postgres://relay@h/shop")];
    let Plan { config, missing } = plan(None, &own, &by_url).unwrap();
    assert_eq!(config.postgres.connection.user, "relay");
    assert!(missing.starts_with("[kafka]\nbrokers = "), "{missing}");
}

#[test]
fn what_init_is_asked_for_is_held_to_the_same_rules_as_a_file() {
    for (preset, table, told) in [
        ("kap", None, "--preset: outbox.preset: \"kap\" is not one of the choices\n  hint: did you mean \"cap\"?"),
        (
            "brighter",
            None,
            "--preset: outbox.table: is required with this preset, whose tables have no usual name\n  hint: --table schema.name",
        ),
        ("cap", Some("a.b.c"), "--table: outbox.table: \"a.b.c\" is not a table's name"),
    ] {
        let found = refusal(plan(Some(LEAST), &[], &asked(preset, table)));
        assert!(found.starts_with(told), "{found}");
    }
}
