//! YAML as a tree: text enters, documents leave. Scalars keep the text that was typed, except those that Kubernetes reads as
//! booleans.

use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::Unreadable;

/// Deeper than any real document; what is recursive here stays off the stack's end.
const DEPTH_MAX: usize = 64;

/// What aliases may add: a few of them in each other would fill any memory.
const ALIASED_MAX: usize = 100_000;

/// A node of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Text; `None` for null.
    Scalar(Option<String>),
    /// In order, keys different.
    Mapping(Vec<(Node, Node)>),
    /// In order.
    Sequence(Vec<Node>),
}

impl Node {
    /// The member of a mapping.
    pub fn get(&self, name: &str) -> Option<&Node> {
        let Node::Mapping(members) = self else { return None };
        members.iter().find(|(key, _)| key.text().as_deref() == Some(name)).map(|(_, value)| value)
    }

    /// A scalar's text; `None` for null, and for what is no scalar.
    pub fn text(&self) -> Option<String> {
        match self {
            Node::Scalar(text) => text.clone(),
            Node::Mapping(_) | Node::Sequence(_) => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Node::Scalar(_) => 1,
            Node::Mapping(members) => 1 + members.iter().map(|(key, value)| key.size() + value.size()).sum::<usize>(),
            Node::Sequence(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
        }
    }
}

/// The documents of a text.
pub fn documents(text: &str) -> Result<Vec<Node>, Unreadable> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, line) = match event {
            Ok((event, span)) => (event, span.start.line()),
            Err(error) => return Err(refuse(error.marker().line(), error.info())),
        };
        builder.take(event).map_err(|what| refuse(line, what))?;
    }
    Ok(builder.documents)
}

/// Nested members as dotted names, as Quarkus reads `application.yaml`.
pub fn flat(document: &Node) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    flatten("", document, &mut pairs);
    pairs
}

fn refuse(line: usize, what: &str) -> Unreadable {
    Unreadable::new(format!("not valid YAML at line {line}: {what}"), "mend it, or convert another file")
}

/// Makes nodes of the parser's events.
#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    /// Collections that are open, each with its anchor and the nodes in it: keys and values in turn for a mapping.
    open: Vec<(Open, usize, Vec<Node>)>,
    anchors: BTreeMap<usize, Node>,
    aliased: usize,
}

#[derive(Clone, Copy)]
enum Open {
    Mapping,
    Sequence,
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, _) => self.finish(anchor, Node::Scalar(scalar(&text, style))),
            Event::MappingStart(anchor, _) => self.begin(Open::Mapping, anchor)?,
            Event::SequenceStart(anchor, _) => self.begin(Open::Sequence, anchor)?,
            Event::MappingEnd | Event::SequenceEnd => {
                let (open, anchor, nodes) = self.open.pop().ok_or("something ends that never began")?;
                let node = match open {
                    Open::Mapping => mapping(nodes)?,
                    Open::Sequence => Node::Sequence(nodes),
                };
                self.finish(anchor, node);
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or("an alias stands inside of what it names")?;
                self.aliased += node.size();
                if self.aliased > ALIASED_MAX {
                    return Err("its aliases stand for too much");
                }
                self.finish(0, node);
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, open: Open, anchor: usize) -> Result<(), &'static str> {
        if self.open.len() == DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        self.open.push((open, anchor, Vec::new()));
        Ok(())
    }

    fn finish(&mut self, anchor: usize, node: Node) {
        // The parser counts anchors from 1.
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some((_, _, nodes)) => nodes.push(node),
            None => self.documents.push(node),
        }
    }
}

fn mapping(nodes: Vec<Node>) -> Result<Node, &'static str> {
    let mut members = Vec::with_capacity(nodes.len() / 2);
    let mut keys = BTreeSet::new();
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        if key.text().is_some_and(|key| !keys.insert(key)) {
            return Err("a mapping has a key twice");
        }
        members.push((key, value));
    }
    Ok(Node::Mapping(members))
}

fn flatten(path: &str, node: &Node, pairs: &mut Vec<(String, String)>) {
    match node {
        Node::Mapping(members) => {
            for (key, value) in members {
                let path = match (path, key.text()) {
                    // `~` stands for the parent itself.
                    (path, None) => path.to_owned(),
                    ("", Some(key)) => key,
                    (path, Some(key)) => format!("{path}.{key}"),
                };
                flatten(&path, value, pairs);
            }
        }
        Node::Sequence(items) => {
            let items: Vec<String> = items.iter().filter_map(Node::text).collect();
            pairs.push((path.to_owned(), items.join(",")));
        }
        Node::Scalar(text) => pairs.extend(text.clone().map(|text| (path.to_owned(), text))),
    }
}

/// A scalar's text; `None` for null.
fn scalar(text: &str, style: ScalarStyle) -> Option<String> {
    if style != ScalarStyle::Plain {
        return Some(text.to_owned());
    }
    // Kubernetes reads YAML 1.1, where these are booleans; as text of a setting they are `true` and `false`.
    match text {
        "" | "~" | "null" | "Null" | "NULL" => None,
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "True" | "TRUE" => Some("true".into()),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" | "False" | "FALSE" => Some("false".into()),
        text => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_application_yaml_have_dotted_names() {
        let documents =
            documents("debezium:\n  format:\n    ~: x\n    key: json\n  list: [a, b]\n\"%dev\":\n  a: 1\n").unwrap();
        let expected =
            [("debezium.format", "x"), ("debezium.format.key", "json"), ("debezium.list", "a,b"), ("%dev.a", "1")];
        assert_eq!(flat(&documents[0]), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_alias_is_what_it_names() {
        let documents = documents("a: &x {b: 1}\nc: *x\n---\nd: &y [1]\ne: *y\n").unwrap();
        assert_eq!(flat(&documents[0]), [("a.b".into(), "1".into()), ("c.b".into(), "1".into())]);
        assert_eq!(flat(&documents[1]), [("d".into(), "1".into()), ("e".into(), "1".into())]);
    }

    #[test]
    fn what_would_fill_the_memory_or_the_stack_is_refused() {
        let bomb: String = (1..10).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
            format!("{text}a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(","))
        });
        for (text, message) in [
            (bomb, "its aliases stand for too much"),
            ("[".repeat(DEPTH_MAX + 1), "it is nested too deeply"),
            ("a: 1\na: 2\n".to_owned(), "a mapping has a key twice"),
            ("a: &x [*x]\n".to_owned(), "an alias stands inside of what it names"),
        ] {
            let error = documents(&text).unwrap_err();
            assert!(error.what.ends_with(message), "{error:?}");
        }
    }
}
