//! Which form a text has, by its content, and its settings under Connect's names.

use serde_json::Value as Json;

use super::settings::{Setting, Settings, Value};
use super::{Finding, Findings, Unreadable, Work, java_properties, quarkus, strimzi, yaml};

/// What can be converted.
pub const EXPECTED: &str = "expected is a Debezium connector for PostgreSQL: Kafka Connect's JSON ({\"name\": …, \"config\": {…}} or the \
                            config alone), a connector's .properties file, Debezium Server's application.properties, or Strimzi's KafkaConnector";

const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";

/// Where the connector runs, which decides what its settings mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In Kafka Connect: JSON, a standalone worker's file, or Strimzi.
    Connect,
    /// In Debezium Server.
    Server,
}

/// A text that was read.
#[derive(Debug)]
pub struct Read {
    /// Where the connector runs.
    pub form: Form,
    /// What the file is, for people.
    pub title: String,
    /// Its settings.
    pub settings: Settings,
    /// What the reading showed.
    pub findings: Findings,
}

/// Reads a text of any form.
pub fn read(text: &str) -> Result<Read, Unreadable> {
    let text = text.trim_start_matches('\u{feff}');
    let line = |start: &str| text.lines().any(|line| line.starts_with(start));
    let opens = |name: &str| text.lines().any(|line| line.trim_end() == name);
    if text.trim_start().starts_with('{') {
        return json(text);
    }
    if line("apiVersion:") && line("kind:") {
        return kafka_connector(text);
    }
    if opens("debezium:") || opens("quarkus:") {
        let documents = yaml::documents(text)?;
        return Ok(server(documents.iter().flat_map(yaml::flat).collect(), "an application.yaml of Debezium Server"));
    }
    let pairs = java_properties::parse(text)?;
    let is_server = |name: &str| {
        let name = name.strip_prefix('%').and_then(|rest| Some(rest.split_once('.')?.1)).unwrap_or(name);
        ["debezium.", "quarkus.debezium.", "DEBEZIUM_"].iter().any(|start| name.starts_with(start))
    };
    if pairs.iter().any(|(name, _)| name == "connector.class") {
        let settings = connect(pairs.into_iter().map(|(name, value)| (name.clone(), name, value)));
        return Ok(connect_read("a connector's properties file", None, settings));
    }
    if pairs.iter().any(|(name, _)| is_server(name)) {
        return Ok(server(pairs, "an application.properties of Debezium Server"));
    }
    Err(Unreadable::new("this is no connector's configuration", EXPECTED))
}

/// Refuses a connector that reads no PostgreSQL.
pub fn check_class(work: &mut Work) -> Result<(), Unreadable> {
    let Some(class) = work.settings.take("connector.class") else {
        return Err(Unreadable::new("connector.class is not set", EXPECTED));
    };
    match class.text().unwrap_or_default().as_str() {
        CLASS | "PostgresConnector" | "Postgres" => Ok(()),
        // A class is no secret, and names the connector that is meant.
        other => Err(Unreadable::new(format!("{} is {other}, not {CLASS}", class.origin), EXPECTED)),
    }
}

fn json(text: &str) -> Result<Read, Unreadable> {
    let refuse = |what: String| Unreadable::new(what, EXPECTED);
    let document: Json = serde_json::from_str(text)
        .map_err(|error| refuse(format!("not valid JSON at line {}, column {}", error.line(), error.column())))?;
    let Json::Object(mut members) = document else { return Err(refuse("this JSON is no object".into())) };
    let mut findings = Findings::default();
    let mut name = None;
    if let Some(config) = members.remove("config").filter(|_| !members.contains_key("connector.class")) {
        name = members.remove("name").and_then(|name| name.as_str().map(str::to_owned));
        for member in members.keys() {
            findings.not_needed.push(Finding::new(member, "not part of the connector's configuration"));
        }
        let Json::Object(config) = config else { return Err(refuse("config is no object".into())) };
        members = config;
    }
    if !members.contains_key("connector.class") {
        return Err(refuse("this JSON has no connector.class".into()));
    }
    let mut pairs = Vec::new();
    for (name, value) in members {
        let text = match value {
            Json::String(text) => text,
            Json::Number(number) => number.to_string(),
            Json::Bool(flag) => flag.to_string(),
            Json::Null => continue,
            Json::Array(_) | Json::Object(_) => return Err(refuse(format!("{name} is neither text nor a number"))),
        };
        pairs.push((name.clone(), name, text));
    }
    let mut read = connect_read("a connector of Kafka Connect", name, connect(pairs.into_iter()));
    read.findings = findings;
    Ok(read)
}

fn kafka_connector(text: &str) -> Result<Read, Unreadable> {
    let connector = strimzi::connector(&yaml::documents(text)?)?;
    let mut read = connect_read("a KafkaConnector of Strimzi", connector.name, connect(connector.config.into_iter()));
    read.findings.unknown = connector.unknown;
    for field in connector.operator {
        read.findings.not_needed.push(Finding::new(field, "Strimzi's own; outboxd is run by whatever runs it"));
    }
    Ok(read)
}

fn connect(triples: impl Iterator<Item = (String, String, String)>) -> Settings {
    let mut settings = Settings::default();
    for (name, origin, value) in triples {
        settings.insert(name, Setting { origin, value: Value::connect(&value) });
    }
    settings
}

fn connect_read(what: &str, name: Option<String>, mut settings: Settings) -> Read {
    let in_file = settings.take("name").and_then(|name| name.text());
    let title = match name.or(in_file) {
        Some(name) => format!("{what}, \"{name}\""),
        None => what.to_owned(),
    };
    Read { form: Form::Connect, title, settings, findings: Findings::default() }
}

/// Debezium Server's names become those of a connector's file; what only the server has keeps the start `server:`.
fn server(pairs: Vec<(String, String)>, title: &str) -> Read {
    let properties = quarkus::read(pairs);
    let mut findings = Findings::default();
    for name in properties.other_profiles {
        let finding = Finding::new(name, "holds only in its own profile, and is left out");
        findings.lost.push(
            finding.hint("Debezium Server runs with the profile prod unless told otherwise; write in what holds"),
        );
    }
    let mut settings = Settings::default();
    for (name, origin, value) in properties.values {
        if origin.starts_with('%') {
            findings
                .differs
                .push(Finding::new(&origin, "taken as set: prod is the profile that Debezium Server runs with"));
        }
        let renamed = [
            ("debezium.source.", ""),
            ("quarkus.debezium.", ""),
            ("debezium.sink.kafka.producer.", "producer.override."),
            ("debezium.transforms", "transforms"),
            ("debezium.predicates", "predicates"),
            ("debezium.", "server:"),
        ]
        .iter()
        .find_map(|(start, ours)| Some(format!("{ours}{}", name.strip_prefix(start)?)));
        match renamed {
            Some(renamed) => settings.insert(renamed, Setting { origin, value }),
            None if name.starts_with("quarkus.") => {
                findings.not_needed.push(Finding::new(origin, "Quarkus' own: outboxd has its own logs and HTTP"));
            }
            None if properties.referred.contains(&name) => {}
            None => settings.insert(format!("server:{name}"), Setting { origin, value }),
        }
    }
    settings.take("name");
    Read { form: Form::Server, title: title.to_owned(), settings, findings }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS_LINE: &str = "connector.class=io.debezium.connector.postgresql.PostgresConnector";

    #[test]
    fn the_form_is_seen_by_the_content() {
        let wrapped = r#"{"name": "a", "config": {"connector.class": "X", "tasks.max": 1, "b": true, "c": null}}"#;
        for (text, form, title) in [
            (wrapped, Form::Connect, "a connector of Kafka Connect, \"a\""),
            (r#" {"connector.class": "X", "name": "b"}"#, Form::Connect, "a connector of Kafka Connect, \"b\""),
            (CLASS_LINE, Form::Connect, "a connector's properties file"),
            ("\u{feff}connector.class X", Form::Connect, "a connector's properties file"),
            ("debezium.sink.type=kafka", Form::Server, "an application.properties of Debezium Server"),
            ("%prod.debezium.sink.type: kafka", Form::Server, "an application.properties of Debezium Server"),
            ("DEBEZIUM_SINK_TYPE=kafka", Form::Server, "an application.properties of Debezium Server"),
            ("debezium:\n  sink:\n    type: kafka\n", Form::Server, "an application.yaml of Debezium Server"),
            (
                "apiVersion: kafka.strimzi.io/v1\nkind: KafkaConnector\nspec: {class: X}\n",
                Form::Connect,
                "a KafkaConnector of Strimzi",
            ),
        ] {
            let read = read(text).unwrap();
            assert_eq!((read.form, read.title.as_str()), (form, title), "{text}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_what_was_expected() {
        for (text, what) in [
            ("", "this is no connector's configuration"),
            ("bootstrap.servers=a:9092\n", "this is no connector's configuration"),
            ("{", "not valid JSON at line 1, column 1"),
            ("{} s3cret", "not valid JSON at line 1, column 4"),
            (r#"{"a": "s3cret"}"#, "this JSON has no connector.class"),
            (r#"{"name": "a", "config": ["s3cret"]}"#, "config is no object"),
            (r#"{"connector.class": ["s3cret"]}"#, "connector.class is neither text nor a number"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.what.as_str(), error.hint.as_str()), (what, EXPECTED), "{text}");
        }
    }

    #[test]
    fn names_of_the_server_become_those_of_a_connector() {
        let text = "debezium.source.slot.name=a\ndebezium.transforms.o.type=b\ndebezium.sink.kafka.producer.acks=all\n\
                    debezium.format.key=json\nhost=db\ndebezium.source.database.hostname=${host}\nmine=1\nquarkus.log.level=INFO\n";
        let mut read = read(text).unwrap();
        let names: Vec<String> = read.settings.take_rest().into_iter().map(|(name, _)| name).collect();
        let expected = [
            "database.hostname",
            "producer.override.acks",
            "server:format.key",
            "server:mine",
            "slot.name",
            "transforms.o.type",
        ];
        assert_eq!(names, expected);
        assert_eq!(read.findings.not_needed[0].option, "quarkus.log.level");
    }
}
