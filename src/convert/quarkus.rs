//! Quarkus' rules for a properties file: profiles, and expressions in values.
//!
//! `$$` is a dollar, `${name}` and `${name:default}` are what another property or a variable says. A property of the same file
//! is put in its place; anything else stays a reference. (SmallRye Config, `ExpressionConfigSourceInterceptor`.)

use std::collections::BTreeMap;

use super::settings::{Piece, Value};

/// Debezium Server's own profile, unless it is told another.
const ACTIVE: &str = "prod";

/// Deeper than any real nesting of properties; a circle ends here.
const DEPTH_MAX: usize = 16;

/// The properties that hold, and what their reading showed.
#[derive(Debug, Default)]
pub struct Properties {
    /// Name, the name as typed, value.
    pub values: Vec<(String, String, Value)>,
    /// Names of other profiles, as typed.
    pub other_profiles: Vec<String>,
    /// Names that another property's value refers to.
    pub referred: Vec<String>,
}

/// Applies the rules to what a file holds.
pub fn read(pairs: Vec<(String, String)>) -> Properties {
    let mut holding: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut profiled = Vec::new();
    let mut read = Properties::default();
    for (typed, value) in pairs {
        match typed.strip_prefix('%').and_then(|rest| rest.split_once('.')) {
            Some((profiles, name)) if profiles.split(',').any(|profile| profile == ACTIVE) => {
                profiled.push((plain_name(name), (typed.clone(), value)));
            }
            Some(_) => read.other_profiles.push(typed),
            None => drop(holding.insert(plain_name(&typed), (typed, value))),
        }
    }
    holding.extend(profiled);
    for (name, (typed, text)) in &holding {
        let value = Value::new(expand(text, &holding, &mut read.referred, 0));
        read.values.push((name.clone(), typed.clone(), value));
    }
    read
}

/// `DEBEZIUM_SOURCE_SLOT_NAME`, as in an environment, is `debezium.source.slot.name`.
fn plain_name(typed: &str) -> String {
    let ours = ["DEBEZIUM_", "QUARKUS_"].iter().any(|start| typed.starts_with(start));
    if ours && typed.chars().all(|char| char.is_ascii_alphanumeric() || char == '_') {
        typed.replace('_', ".").to_lowercase()
    } else {
        typed.to_owned()
    }
}

fn expand(
    text: &str,
    known: &BTreeMap<String, (String, String)>,
    referred: &mut Vec<String>,
    depth: usize,
) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        // A backslash escapes a dollar as a second dollar does.
        if let Some(before) = before.strip_suffix('\\') {
            plain.push_str(before);
            plain.push('$');
            rest = &from[1..];
            continue;
        }
        plain.push_str(before);
        if let Some(after) = from.strip_prefix("$$") {
            plain.push('$');
            rest = after;
            continue;
        }
        let Some(end) = from.strip_prefix("${").and_then(closing) else {
            plain.push('$');
            rest = &from[1..];
            continue;
        };
        let inner = &from[2..2 + end];
        rest = &from[2 + end + 1..];
        let (name, default) = match inner.split_once(':') {
            // `handler::key` is one name: a secret of a key store.
            Some((_, after)) if after.starts_with(':') => (inner, None),
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        match known.get(name).filter(|_| depth < DEPTH_MAX) {
            Some((_, value)) => {
                referred.push(name.to_owned());
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.extend(expand(value, known, referred, depth + 1));
            }
            None => {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Reference { name: name.to_owned(), default: default.map(str::to_owned) });
            }
        }
    }
    plain.push_str(rest);
    pieces.push(Piece::Text(plain));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    pieces
}

/// Where the brace that was opened closes.
fn closing(inner: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, char) in inner.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        let pairs = vec![("a".into(), text.into()), ("host".into(), "db1".into()), ("own".into(), "${own}".into())];
        read(pairs).values.into_iter().find(|(name, _, _)| name == "a").unwrap().2
    }

    #[test]
    fn a_doubled_dollar_is_one_and_an_expression_is_a_reference() {
        for (typed, text) in [
            ("outbox.event.$${routedByValue}", Some("outbox.event.${routedByValue}")),
            ("$$1", Some("$1")),
            ("$1", Some("$1")),
            ("a$", Some("a$")),
            (r"outbox.\${routedByValue}", Some("outbox.${routedByValue}")),
            ("${host}:5432", Some("db1:5432")),
            ("${open", Some("${open")),
            ("${DB_HOST}", None),
            ("${DB_HOST:localhost}", None),
            ("${own}", None),
        ] {
            assert_eq!(value(typed).text().as_deref(), text, "{typed}");
        }
        assert_eq!(value("${DB_HOST:localhost}").shown(), "${DB_HOST:localhost}");
        assert_eq!(value("${A:${B:c}}").shown(), "${A:${B:c}}");
        assert_eq!(value("${aes-gcm-nopadding::x}").references(), ["${aes-gcm-nopadding::x}"]);
        assert_eq!(value("$${a}${X}").shown(), "${a}${X}");
    }

    #[test]
    fn the_profile_of_production_holds_and_others_are_named() {
        let typed = [("%prod.a", "2"), ("a", "1"), ("%dev.a", "3"), ("%dev,prod.b", "4"), ("DEBEZIUM_SOURCE_X", "5")];
        let read = read(typed.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
        let values: Vec<(&str, &str, String)> =
            read.values.iter().map(|(name, typed, value)| (name.as_str(), typed.as_str(), value.shown())).collect();
        let expected =
            [("a", "%prod.a", "2"), ("b", "%dev,prod.b", "4"), ("debezium.source.x", "DEBEZIUM_SOURCE_X", "5")];
        assert_eq!(values, expected.map(|(name, typed, value)| (name, typed, value.to_owned())));
        assert_eq!(read.other_profiles, ["%dev.a"]);
    }
}
