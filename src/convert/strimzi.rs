//! Strimzi's `KafkaConnector`, also among other documents of a file: YAML enters, a connector's settings leave.

use super::yaml::Node;
use super::{Finding, Unreadable, input};
use crate::spelling::nearest;

const KIND: &str = "KafkaConnector";
const SPEC: [&str; 9] =
    ["class", "tasksMax", "config", "pause", "state", "autoRestart", "version", "listOffsets", "alterOffsets"];

/// What a `KafkaConnector` says.
#[derive(Debug, Default)]
pub struct Connector {
    /// `metadata.name`
    pub name: Option<String>,
    /// `spec.class` and `spec.tasksMax` as a connector's own file calls them, and `spec.config`; each with its path.
    pub config: Vec<(String, String, String)>,
    /// Fields of `spec` that nobody knows.
    pub unknown: Vec<Finding>,
    /// Fields of `spec` that are Strimzi's business.
    pub operator: Vec<String>,
}

/// The one connector among the documents.
pub fn connector<'d>(documents: &'d [Node]) -> Result<Connector, Unreadable> {
    let items = |document: &'d Node| match document.get("items") {
        Some(Node::Sequence(items)) => items.iter().collect(),
        _ => vec![document],
    };
    let is_connector = |document: &&Node| document.get("kind").and_then(Node::text).is_some_and(|kind| kind == KIND);
    let found: Vec<&Node> = documents.iter().flat_map(items).filter(is_connector).collect();
    match found.as_slice() {
        [one] => read(one),
        [] => Err(Unreadable::new("no document of this YAML is a KafkaConnector", input::EXPECTED)),
        several => {
            let names: Vec<String> = several.iter().map(|one| name(one).unwrap_or_default()).collect();
            Err(Unreadable::new(
                format!("the file holds {} connectors: {}", several.len(), names.join(", ")),
                "convert them one by one",
            ))
        }
    }
}

fn read(document: &Node) -> Result<Connector, Unreadable> {
    let Some(Node::Mapping(spec)) = document.get("spec") else {
        return Err(Unreadable::new("the KafkaConnector has no spec", input::EXPECTED));
    };
    let mut connector = Connector { name: name(document), ..Connector::default() };
    for (key, value) in spec {
        let key = key.text().unwrap_or_default();
        match (key.as_str(), value) {
            ("class", value) => connector.add("connector.class", "spec.class", value)?,
            ("tasksMax", value) => connector.add("tasks.max", "spec.tasksMax", value)?,
            ("config", Node::Mapping(config)) => {
                for (key, value) in config {
                    let key = key.text().unwrap_or_default();
                    connector.add(&key, &key, value)?;
                }
            }
            ("config", value) if value.text().is_none() => {}
            ("config", _) => return Err(Unreadable::new("spec.config is no mapping", input::EXPECTED)),
            (key, _) if SPEC.contains(&key) => connector.operator.push(format!("spec.{key}")),
            (key, _) => {
                let finding = Finding::new(format!("spec.{key}"), "nobody knows this name");
                connector.unknown.push(match nearest(key, &SPEC) {
                    Some(name) => finding.hint(format!("did you mean \"{name}\"?")),
                    None => finding,
                });
            }
        }
    }
    Ok(connector)
}

impl Connector {
    fn add(&mut self, name: &str, origin: &str, value: &Node) -> Result<(), Unreadable> {
        match value {
            Node::Mapping(_) | Node::Sequence(_) => {
                return Err(Unreadable::new(format!("{origin} is no text"), input::EXPECTED));
            }
            _ => self.config.extend(value.text().map(|value| (name.to_owned(), origin.to_owned(), value))),
        }
        Ok(())
    }
}

fn name(document: &Node) -> Option<String> {
    document.get("metadata")?.get("name")?.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::yaml;

    fn read_connector(text: &str) -> Result<Connector, Unreadable> {
        connector(&yaml::documents(text)?)
    }

    #[test]
    fn scalars_keep_their_text_and_booleans_are_those_of_kubernetes() {
        let text = "kind: KafkaConnector\nmetadata: {name: a}\nspec:\n  tasksMax: 1\n  autoRestart: {enabled: true}\n  config:\n    \
                    a: 0.10\n    b: \"yes\"\n    c: yes\n    d: ~\n    e: |\n      x\n      y\n    f: 'it''s'\n";
        let connector = read_connector(text).unwrap();
        let config: Vec<(&str, &str)> =
            connector.config.iter().map(|(name, _, value)| (name.as_str(), value.as_str())).collect();
        let expected = [("tasks.max", "1"), ("a", "0.10"), ("b", "yes"), ("c", "true"), ("e", "x\ny\n"), ("f", "it's")];
        assert_eq!(config, expected);
        assert_eq!((connector.name.as_deref(), connector.operator), (Some("a"), vec!["spec.autoRestart".to_owned()]));
    }

    #[test]
    fn the_connector_is_found_among_other_documents_and_in_lists() {
        for text in [
            "kind: Secret\n---\nkind: KafkaConnector\nspec: {class: x}\n---\nkind: KafkaTopic\n",
            "kind: List\nitems:\n- kind: Secret\n- kind: KafkaConnector\n  spec: {class: x}\n",
        ] {
            assert_eq!(read_connector(text).unwrap().config[0].2, "x");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_it() {
        for (text, message) in [
            ("kind: Secret\ndata: s3cret\n", "no document of this YAML is a KafkaConnector"),
            ("kind: KafkaConnector\n", "the KafkaConnector has no spec"),
            ("kind: KafkaConnector\nspec: {config: {a: [s3cret]}}\n", "a is no text"),
            ("kind: KafkaConnector\nspec: {config: s3cret}\n", "spec.config is no mapping"),
            ("kind: [s3cret\nkind: a\n", "not valid YAML at line"),
            (
                "kind: KafkaConnector\nmetadata: {name: a}\n---\nkind: KafkaConnector\nmetadata: {name: b}\n",
                "the file holds 2 connectors: a, b",
            ),
        ] {
            let error = read_connector(text).unwrap_err();
            assert!(error.what.starts_with(message) && !error.what.contains("s3cret"), "{text}: {error:?}");
        }
    }
}
