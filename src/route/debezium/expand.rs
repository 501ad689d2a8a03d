//! `table.expand.json.payload`: a text that is a JSON document enters, the document leaves, as Debezium makes a struct of it.
//!
//! Debezium finds a schema first, and then puts the document into it. So members that are null may vanish, objects in one array
//! all have the members of each other, and a document without a schema (an array of several types) stays a text. What loses or
//! stops something there does not here: numbers keep their digits, arrays at the top are expanded, members of two types are as
//! they are.

use super::datum::{Datum, Part};
use super::document::{self, Node};
use super::number;
use crate::config::debezium::{Expansion, Members};

/// What a document has, as far as it decides what is written.
#[derive(Debug, Clone, PartialEq)]
enum Shape<'a> {
    /// What has nothing inside, and of which type.
    Leaf(Leaf),
    List(Box<Shape<'a>>),
    Object(Vec<(Part<'a>, Shape<'a>)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Null,
    Text,
    Boolean,
    Int,
    Long,
    Double,
    /// Of an empty array, whatever else there may be.
    Nothing,
}

/// There is no schema for it.
struct Refused;

/// The document in a text, or the text.
pub(super) fn expand(text: Part<'_>, how: Expansion) -> Datum<'_> {
    if !matches!(text.first(), Some(b'{' | b'[')) {
        return Datum::Text(text);
    }
    let expanded = match text.borrowed() {
        Some(bytes) => tree(bytes, how),
        None => tree(&text, how).map(Datum::into_owned),
    };
    expanded.unwrap_or(Datum::Text(text))
}

/// True when Debezium finds no struct for an expanded document, and leaves the text to whoever can do with it.
pub(super) fn is_beyond_debezium(datum: &Datum<'_>) -> bool {
    match datum {
        Datum::Struct(members) => members.iter().any(|(_, member)| has_unfit(member)),
        _ => true,
    }
}

fn has_unfit(datum: &Datum<'_>) -> bool {
    let kind = |datum: &Datum<'_>| match datum {
        Datum::Integer(value) if i32::try_from(*value).is_ok() => 1,
        Datum::Integer(_) => 2,
        Datum::Double(_) | Datum::Written(_) => 3,
        Datum::Boolean(_) => 4,
        Datum::List(_) => 5,
        Datum::Struct(_) => 6,
        _ => 7,
    };
    match datum {
        Datum::Written(text) => !text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')),
        Datum::Struct(members) => members.iter().any(|(_, member)| has_unfit(member)),
        Datum::List(items) => {
            // What all of them have under one name must be of one type.
            let mut seen: Vec<(&Part<'_>, u8)> = Vec::new();
            let structs = items.iter().filter_map(|item| match item {
                Datum::Struct(members) => Some(members),
                _ => None,
            });
            let differs =
                structs.flatten().filter(|(_, member)| *member != Datum::Null).any(|(name, member)| {
                    match seen.iter().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known != kind(member),
                        None => {
                            seen.push((name, kind(member)));
                            false
                        }
                    }
                });
            differs || items.iter().any(has_unfit)
        }
        _ => false,
    }
}

fn tree(text: &[u8], how: Expansion) -> Option<Datum<'_>> {
    let node = document::parse(text)?;
    let shape = match &node {
        Node::List(items) if items.is_empty() => Shape::List(Box::new(Shape::Leaf(Leaf::Nothing))),
        node => shape(node, how).ok()??,
    };
    Some(datum(node, &shape, how))
}

/// `None` for what vanishes.
fn shape<'a>(node: &Node<'a>, how: Expansion) -> Result<Option<Shape<'a>>, Refused> {
    Ok(Some(match node {
        Node::Null if how.nulls == Members::Ignored => return Ok(None),
        Node::List(items) if items.is_empty() && how.empty_arrays == Members::Ignored => return Ok(None),
        Node::List(items) => Shape::List(Box::new(element(items, how)?)),
        Node::Object(members) => {
            let mut shapes = Vec::new();
            for (name, member) in members {
                match shape(member, how)? {
                    Some(_) if name.is_empty() => return Err(Refused),
                    Some(shape) => shapes.push((name.clone(), shape)),
                    None => {}
                }
            }
            Shape::Object(shapes)
        }
        leaf => Shape::Leaf(Leaf::of(leaf)),
    }))
}

/// What all elements of an array have; they must be of one kind.
fn element<'a>(items: &[Node<'a>], how: Expansion) -> Result<Shape<'a>, Refused> {
    let mut present = items.iter().filter(|item| **item != Node::Null).peekable();
    let Some(first) = present.peek().copied() else {
        return match (items.is_empty(), how.nulls) {
            (true, _) => Ok(Shape::Leaf(Leaf::Nothing)),
            (false, Members::Kept) => Ok(Shape::Leaf(Leaf::Null)),
            (false, Members::Ignored) => Err(Refused),
        };
    };
    let kind = Leaf::of(first);
    // Of arrays in an array, Debezium looks at the first alone.
    let Some(mut merged) = shape(first, how)? else { return Err(Refused) };
    for item in present {
        let is_same = match (first, item) {
            (Node::Object(_), Node::Object(_)) | (Node::List(_), Node::List(_)) => true,
            (Node::Object(_) | Node::List(_), _) | (_, Node::Object(_) | Node::List(_)) => false,
            (_, item) => Leaf::of(item) == kind,
        };
        if !is_same {
            return Err(Refused);
        }
        if let Some(shape) = shape(item, how)? {
            merged.merge(shape);
        }
    }
    Ok(merged)
}

impl<'a> Shape<'a> {
    /// Takes over what the other one has and this one has not.
    fn merge(&mut self, other: Shape<'a>) {
        match (self, other) {
            (Shape::Object(members), Shape::Object(others)) => {
                for (name, shape) in others {
                    match members.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => known.merge(shape),
                        None => members.push((name, shape)),
                    }
                }
            }
            (Shape::List(element), Shape::List(other)) => element.merge(*other),
            (known @ Shape::Leaf(Leaf::Null | Leaf::Nothing), other) => *known = other,
            (Shape::Leaf(_) | Shape::List(_) | Shape::Object(_), _) => {}
        }
    }
}

impl Leaf {
    fn of(node: &Node<'_>) -> Leaf {
        match node {
            Node::Null | Node::List(_) | Node::Object(_) => Leaf::Null,
            Node::Boolean(_) => Leaf::Boolean,
            Node::Text(_) => Leaf::Text,
            Node::Number(text) if text.contains(['.', 'e', 'E']) => Leaf::Double,
            Node::Number(text) if text.parse::<i32>().is_ok() => Leaf::Int,
            Node::Number(text) if text.parse::<i64>().is_ok() => Leaf::Long,
            Node::Number(_) => Leaf::Double,
        }
    }
}

fn datum<'a>(node: Node<'a>, shape: &Shape<'a>, how: Expansion) -> Datum<'a> {
    match (node, shape) {
        (Node::Null, _) => Datum::Null,
        (Node::Boolean(value), _) => Datum::Boolean(value),
        (Node::Text(text), _) => Datum::Text(text),
        (Node::Number(text), _) => numeral(text),
        (Node::List(items), Shape::List(element)) => {
            Datum::List(items.into_iter().map(|item| datum(item, element, how)).collect())
        }
        (Node::Object(members), Shape::Object(shapes)) => {
            let mut members: Vec<_> = members.into_iter().map(|(name, node)| (name, Some(node))).collect();
            let mut take = |name: &Part<'_>| {
                let found = members.iter_mut().find(|(known, _)| known == name);
                found.and_then(|(_, node)| node.take()).unwrap_or(Node::Null)
            };
            Datum::Struct(shapes.iter().map(|(name, shape)| (name.clone(), datum(take(name), shape, how))).collect())
        }
        // Members of two types.
        (node @ (Node::List(_) | Node::Object(_)), _) => match self::shape(&node, how) {
            Ok(Some(shape)) => datum(node, &shape, how),
            Ok(None) | Err(Refused) => Datum::Null,
        },
    }
}

/// As Java has it, unless digits would be lost.
fn numeral(text: &str) -> Datum<'_> {
    if !text.contains(['.', 'e', 'E']) {
        return text.parse().map_or(Datum::Written(text.into()), Datum::Integer);
    }
    match text.parse::<f64>() {
        Ok(value) if significant(text) == significant(&number::double(value)) => Datum::Double(value),
        Ok(_) | Err(_) => Datum::Written(text.into()),
    }
}

/// Digits without zeros around them, and where the point is.
fn significant(text: &str) -> (String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let leading = digits.len() - digits.trim_start_matches('0').len();
    let digits = digits.trim_matches('0').to_owned();
    match digits.is_empty() {
        true => (digits, 0),
        false => {
            let point = exponent.parse::<i64>().unwrap_or(i64::MAX / 2) + whole.len() as i64 - leading as i64;
            (digits, point)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;
    use crate::config::debezium::DecimalFormat;

    fn expanded(text: &str, nulls: Members, empty_arrays: Members) -> String {
        let mut out = Vec::new();
        let datum = expand(text.as_bytes().into(), Expansion { nulls, empty_arrays });
        json::write(&datum, DecimalFormat::Base64, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_document_becomes_what_debezium_makes_of_it() {
        for (text, expected) in [
            (r#"{ "z" : 1 , "a" : 1.10 }"#, r#"{"z":1,"a":1.1}"#),
            (r#"{"n":null,"e":[],"o":{"n":null}}"#, r#"{"o":{}}"#),
            (r#"{"a":[{"x":1},{"y":[]},{"z":null,"x":2}]}"#, r#"{"a":[{"x":1},{"x":null},{"x":2}]}"#),
            (r#"{"a":[{"x":[]},{"x":[1]}]}"#, r#"{"a":[{"x":[]},{"x":[1]}]}"#),
            (r#"{"a":[1,"x"]}"#, r#""{\"a\":[1,\"x\"]}""#),
            (r#"{"a":[[],[1]]}"#, r#""{\"a\":[[],[1]]}""#),
            ("42", r#""42""#),
        ] {
            assert_eq!(expanded(text, Members::Ignored, Members::Ignored), expected);
        }
    }

    #[test]
    fn nothing_is_lost_where_debezium_loses_or_stops() {
        for (text, expected) in [
            ("[1,2]", "[1,2]"),
            ("[]", "[]"),
            (r#"{"a":99999999999999999999}"#, r#"{"a":99999999999999999999}"#),
            (r#"{"a":0.12345678901234567890}"#, r#"{"a":0.12345678901234567890}"#),
            (r#"{"a":1e400}"#, r#"{"a":1e400}"#),
            (r#"{"a":[{"x":1},{"x":"s"}]}"#, r#"{"a":[{"x":1},{"x":"s"}]}"#),
            (r#"{"a":[{"x":1},{"x":{"y":2}}]}"#, r#"{"a":[{"x":1},{"x":{"y":2}}]}"#),
            (r#"{"a":[{"x":{"p":1}},{"x":{"q":2}}]}"#, r#"{"a":[{"x":{"p":1,"q":null}},{"x":{"p":null,"q":2}}]}"#),
        ] {
            assert_eq!(expanded(text, Members::Ignored, Members::Ignored), expected);
        }
    }

    #[test]
    fn nulls_and_empty_arrays_stay_when_they_shall() {
        let text = r#"{"n":null,"e":[],"l":[null]}"#;
        assert_eq!(expanded(text, Members::Kept, Members::Kept), text);
        assert_eq!(expanded(text, Members::Kept, Members::Ignored), r#"{"n":null,"l":[null]}"#);
    }
}
