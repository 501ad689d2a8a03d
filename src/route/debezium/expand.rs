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

/// What becomes of a document that Debezium finds a schema for, and then no struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is expanded as it is.
    Expanded,
    /// It stays a text: JSON is better than what Java prints of it, and Debezium leaves it, too.
    Left,
}

/// The document in a text, or the text.
pub(super) fn expand(text: Part<'_>, how: Expansion, unfit: Unfit) -> Datum<'_> {
    if !matches!(text.first(), Some(b'{' | b'[')) {
        return Datum::Text(text);
    }
    let expanded = match text.borrowed() {
        Some(bytes) => tree(bytes, how, unfit),
        None => tree(&text, how, unfit).map(Datum::into_owned),
    };
    expanded.unwrap_or(Datum::Text(text))
}

fn tree(text: &[u8], how: Expansion, unfit: Unfit) -> Option<Datum<'_>> {
    let node = document::parse(text)?;
    let shape = match &node {
        Node::List(items) if items.is_empty() => Shape::List(Box::new(Shape::Leaf(Leaf::Nothing))),
        node => shape(node, how).ok()??,
    };
    let is_struct = || matches!(node, Node::Object(_)) && fits(&node, &shape, how);
    (unfit == Unfit::Expanded || is_struct()).then(|| datum(node, &shape, how))
}

/// True when a value of this shape holds all of a node.
fn fits(node: &Node<'_>, shape: &Shape<'_>, how: Expansion) -> bool {
    match (node, shape) {
        (Node::Null, _) => true,
        (Node::Number(text), Shape::Leaf(leaf)) => Leaf::of(node) == *leaf && !is_beyond_64_bits(text),
        (Node::Boolean(_) | Node::Text(_), Shape::Leaf(leaf)) => Leaf::of(node) == *leaf,
        (Node::List(items), Shape::List(element)) => items.iter().all(|item| fits(item, element, how)),
        (Node::Object(members), Shape::Object(shapes)) => {
            members.iter().all(|(name, member)| match shapes.iter().find(|(known, _)| known == name) {
                Some((_, shape)) => fits(member, shape, how),
                None => matches!(self::shape(member, how), Ok(None)),
            })
        }
        _ => false,
    }
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
        match (first, shape(item, how)) {
            // Of arrays in an array, the first alone makes the schema: the others need none of their own.
            (Node::List(_), Ok(_)) => {}
            (Node::List(_), Err(Refused)) if fits(item, &merged, how) => {}
            (_, Ok(shape)) => shape.into_iter().for_each(|shape| merged.merge(shape)),
            (_, Err(Refused)) => return Err(Refused),
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
            Datum::List(items.into_iter().map(|item| self::item(item, element, how)).collect())
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

/// An element of an array. What an array in it has and the first one has not, Debezium loses.
fn item<'a>(node: Node<'a>, element: &Shape<'a>, how: Expansion) -> Datum<'a> {
    let own = match &node {
        Node::List(_) if !fits(&node, element, how) => shape(&node, how).ok().flatten(),
        _ => None,
    };
    match own {
        Some(own) => {
            let mut shape = element.clone();
            shape.merge(own);
            datum(node, &shape, how)
        }
        None => datum(node, element, how),
    }
}

fn is_beyond_64_bits(number: &str) -> bool {
    !number.contains(['.', 'e', 'E']) && number.parse::<i64>().is_err()
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
        let datum = expand(text.as_bytes().into(), Expansion { nulls, empty_arrays }, Unfit::Expanded);
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
            (r#"{"a":[[1],[null],[]]}"#, r#"{"a":[[1],[null],[]]}"#),
            (r#"{"a":[[[1]],[[]],[null]]}"#, r#"{"a":[[[1]],[[]],[null]]}"#),
            (r#"{"a":[[{"x":1,"z":2}],[{"x":3},null]]}"#, r#"{"a":[[{"x":1,"z":2}],[{"x":3,"z":null},null]]}"#),
            (r#"{"a":[[{"x":1}],[{"x":2,"n":null,"e":[]}]]}"#, r#"{"a":[[{"x":1}],[{"x":2}]]}"#),
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
            (r#"{"a":[[{"x":1}],[{"x":2,"y":3}]]}"#, r#"{"a":[[{"x":1}],[{"x":2,"y":3}]]}"#),
            (r#"{"a":[[1],["x"],[[2]],[{"y":3}]]}"#, r#"{"a":[[1],["x"],[[2]],[{"y":3}]]}"#),
            (r#"{"a":[[{"x":1}],[{"y":[1,"s"]}]]}"#, r#""{\"a\":[[{\"x\":1}],[{\"y\":[1,\"s\"]}]]}""#),
        ] {
            assert_eq!(expanded(text, Members::Ignored, Members::Ignored), expected);
        }
    }

    #[test]
    fn a_document_without_a_struct_stays_a_text_where_text_is_written() {
        let how = Expansion { nulls: Members::Ignored, empty_arrays: Members::Ignored };
        for (text, is_left) in [
            (r#"{"a":[[1],[null]],"b":[{"x":1},{"y":null}]}"#, false),
            (r#"{"a":[{"x":{"p":1}},{"x":{"q":2}}]}"#, false),
            (r#"{"a":[[1],["x"]]}"#, true),
            (r#"{"a":[[1],[3000000000]]}"#, true),
            (r#"{"a":[[{"x":1}],[{"x":2,"y":3}]]}"#, true),
            (r#"{"a":[{"x":[1]},{"x":["s"]}]}"#, true),
            (r#"{"a":[{"x":1},{"x":"s"}]}"#, true),
            (r#"{"a":99999999999999999999}"#, true),
            ("[1,2]", true),
        ] {
            let datum = expand(text.as_bytes().into(), how, Unfit::Left);
            assert_eq!(matches!(datum, Datum::Text(_)), is_left, "{text}");
        }
    }

    #[test]
    fn nulls_and_empty_arrays_stay_when_they_shall() {
        let text = r#"{"n":null,"e":[],"l":[null]}"#;
        assert_eq!(expanded(text, Members::Kept, Members::Kept), text);
        assert_eq!(expanded(text, Members::Kept, Members::Ignored), r#"{"n":null,"l":[null]}"#);
    }
}
