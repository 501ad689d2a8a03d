//! A connector's settings under Connect's names, each with the name that the file gave it; taken out as they are understood.
//!
//! A value is text with references in it (`${file:/x:key}`), which only the worker could resolve.

use std::collections::BTreeMap;

/// All settings not yet taken.
#[derive(Debug, Default)]
pub struct Settings(BTreeMap<String, Setting>);

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name in the file.
    pub origin: String,
    /// What it is set to.
    pub value: Value,
}

/// Text with references.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Value(Vec<Piece>);

/// A piece of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is.
    Text(String),
    /// What stands between `${` and `}`: the name, and what to take when nothing has it.
    Reference {
        /// `file:/run/secrets/x:password`, `DB_HOST`.
        name: String,
        /// Behind the colon of `${DB_HOST:localhost}`.
        default: Option<String>,
    },
}

impl Settings {
    /// Adds a setting; the last of two with one name holds.
    pub fn insert(&mut self, name: impl Into<String>, setting: Setting) {
        self.0.insert(name.into(), setting);
    }

    /// Takes a setting out.
    pub fn take(&mut self, name: &str) -> Option<Setting> {
        self.0.remove(name)
    }

    /// Looks at a setting.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    /// Takes out all whose name starts so; the names come without that start.
    pub fn take_under(&mut self, start: &str) -> Vec<(String, Setting)> {
        let taken: Vec<(String, Setting)> = self.0.extract_if(.., |name, _| name.starts_with(start)).collect();
        taken.into_iter().map(|(name, setting)| (name[start.len()..].to_owned(), setting)).collect()
    }

    /// Takes out all that are left.
    pub fn take_rest(&mut self) -> Vec<(String, Setting)> {
        std::mem::take(&mut self.0).into_iter().collect()
    }
}

impl Setting {
    /// The value when it is nothing but text, without blanks around it.
    pub fn text(&self) -> Option<String> {
        self.value.text().map(|text| text.trim().to_owned())
    }

    /// True when it is this word, whatever its case.
    pub fn is(&self, word: &str) -> bool {
        self.text().is_some_and(|text| text.eq_ignore_ascii_case(word))
    }

    /// The members of a list with commas, none of them empty.
    pub fn list(&self) -> Vec<String> {
        let text = self.text().unwrap_or_default();
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }
}

impl Value {
    /// Text alone.
    pub fn literal(text: impl Into<String>) -> Value {
        Value(vec![Piece::Text(text.into())])
    }

    /// Made of these pieces.
    pub fn new(pieces: Vec<Piece>) -> Value {
        Value(pieces)
    }

    /// A value of Kafka Connect: `${provider:key}` and `${provider:path:key}` are references, `${routedByValue}` is text.
    pub fn connect(text: &str) -> Value {
        let mut pieces = Vec::new();
        let (mut from, mut at) = (0, 0);
        while let Some(start) = text[at..].find("${").map(|start| start + at) {
            let Some(end) = text[start..].find('}').map(|end| end + start) else { break };
            let name = &text[start + 2..end];
            at = end + 1;
            if name.contains(':') {
                pieces.push(Piece::Text(text[from..start].to_owned()));
                pieces.push(Piece::Reference { name: name.to_owned(), default: None });
                from = at;
            }
        }
        pieces.push(Piece::Text(text[from..].to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Value(pieces)
    }

    /// The text when there is no reference in it.
    pub fn text(&self) -> Option<String> {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => Some(text.as_str()),
                Piece::Reference { .. } => None,
            })
            .collect()
    }

    /// The references in it, as typed but without their defaults: those of a password are passwords.
    pub fn references(&self) -> Vec<String> {
        let names = self.0.iter().filter_map(|piece| match piece {
            Piece::Reference { name, .. } => Some(format!("${{{name}}}")),
            Piece::Text(_) => None,
        });
        names.collect()
    }

    /// Text and references, as the file has them; for values that are no secrets.
    pub fn shown(&self) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Reference { name, default: Some(default) } => format!("${{{name}:{default}}}"),
            Piece::Reference { name, default: None } => format!("${{{name}}}"),
        });
        pieces.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_a_worker_have_a_colon() {
        for (typed, text, references) in [
            ("plain", Some("plain"), &[][..]),
            ("outbox.${routedByValue}", Some("outbox.${routedByValue}"), &[]),
            ("${file:/run/x.properties:pw}", None, &["${file:/run/x.properties:pw}"]),
            ("${env:A}.${routedByValue}.${secrets:ns/name:key}", None, &["${env:A}", "${secrets:ns/name:key}"]),
            ("${open", Some("${open"), &[]),
            ("", Some(""), &[]),
        ] {
            let value = Value::connect(typed);
            assert_eq!(value.text().as_deref(), text, "{typed}");
            assert_eq!(value.references(), references, "{typed}");
            assert_eq!(value.shown(), typed);
        }
    }

    #[test]
    fn a_default_is_never_among_the_references() {
        let piece = Piece::Reference { name: "DB_PASSWORD".into(), default: Some("s3cret".into()) };
        assert_eq!(Value::new(vec![piece]).references(), ["${DB_PASSWORD}"]);
    }
}
