//! A payload as the validator reads it: borrowed where it can be, with numbers as they were written.
//!
//! A reader of its own, because a parsed `serde_json::Value` has already rounded long numbers and refuses `1e400`, which
//! is JSON. Nesting is limited to 128, as `serde_json` limits it. Of members with the same name the last one counts, as
//! for most consumers.

use std::borrow::Cow;
use std::collections::HashSet;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object};
use serde_json::Value;

use super::number::Written;

/// How deep arrays and objects may stand in each other, so that no payload exhausts the stack.
const DEPTH: usize = 128;

/// What a payload says.
#[derive(Debug, Default)]
pub(super) enum Document<'a> {
    #[default]
    Null,
    Boolean(bool),
    Number(Written<'a>),
    Text(Cow<'a, str>),
    Array(Vec<Document<'a>>),
    /// Sorted by name, each name once.
    Object(Vec<Member<'a>>),
}

type Member<'a> = (Cow<'a, str>, Document<'a>);

/// Why bytes are not JSON, and at which of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub at: usize,
    pub what: &'static str,
}

/// Reads a payload.
pub(super) fn parse(payload: &[u8]) -> Result<Document<'_>, Broken> {
    let text = str::from_utf8(payload).map_err(|error| Broken { at: error.valid_up_to(), what: "not UTF-8" })?;
    let mut reader = Reader { text, at: 0 };
    let document = reader.value(0)?;
    match reader.next_sign() {
        None => Ok(document),
        Some(_) => Err(reader.broken("something behind the end of the value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn broken(&self, what: &'static str) -> Broken {
        Broken { at: self.at, what }
    }

    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is no white space; it stays to be read.
    fn next_sign(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.here() {
            self.at += 1;
        }
        self.here()
    }

    fn value(&mut self, depth: usize) -> Result<Document<'a>, Broken> {
        match self.next_sign() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => Ok(Document::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Document::Boolean(true)),
            Some(b'f') => self.word("false", Document::Boolean(false)),
            Some(b'n') => self.word("null", Document::Null),
            Some(_) => Err(self.broken("no value begins so")),
            None => Err(self.broken("it ends where a value is expected")),
        }
    }

    fn word(&mut self, word: &str, document: Document<'a>) -> Result<Document<'a>, Broken> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.broken("no value begins so"));
        }
        self.at += word.len();
        Ok(document)
    }

    fn array(&mut self, depth: usize) -> Result<Document<'a>, Broken> {
        self.enter(depth)?;
        let mut items = Vec::new();
        if self.next_sign() == Some(b']') {
            self.at += 1;
            return Ok(Document::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.ends_with(b']')? {
                return Ok(Document::Array(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Document<'a>, Broken> {
        self.enter(depth)?;
        let mut members = Vec::new();
        if self.next_sign() == Some(b'}') {
            self.at += 1;
            return Ok(Document::Object(members));
        }
        loop {
            if self.next_sign() != Some(b'"') {
                return Err(self.broken("a member's name is expected, in quotes"));
            }
            let name = self.string()?;
            if self.next_sign() != Some(b':') {
                return Err(self.broken("a colon is expected"));
            }
            self.at += 1;
            members.push((name, self.value(depth)?));
            if self.ends_with(b'}')? {
                break;
            }
        }
        members.sort_by(|(one, _): &Member<'a>, (other, _)| one.cmp(other));
        members.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Ok(Document::Object(members))
    }

    fn enter(&mut self, depth: usize) -> Result<(), Broken> {
        if depth >= DEPTH {
            return Err(self.broken("nested too deep"));
        }
        self.at += 1;
        Ok(())
    }

    /// Behind an item: true at the end, false when another one follows.
    fn ends_with(&mut self, end: u8) -> Result<bool, Broken> {
        match self.next_sign() {
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(sign) if sign == end => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Err(self.broken("a comma or the end is expected")),
            None => Err(self.broken("it ends too early")),
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Broken> {
        let start = self.at;
        let mut escaped = false;
        self.at += 1;
        loop {
            match self.here() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 2;
                }
                Some(0x00..=0x1F) => return Err(self.broken("a control character in a text")),
                Some(_) => self.at += 1,
                None => {
                    self.at = self.text.len();
                    return Err(self.broken("it ends within a text"));
                }
            }
        }
        self.at += 1;
        if !escaped {
            return Ok(Cow::Borrowed(&self.text[start + 1..self.at - 1]));
        }
        // A backslash may stand before a part of a character; then no slice of text begins there.
        let text = self.text.get(start..self.at);
        let broken = Broken { at: start, what: "an escape that is none in a text" };
        text.and_then(|text| serde_json::from_str(text).ok()).map(Cow::Owned).ok_or(broken)
    }

    fn number(&mut self) -> Result<Document<'a>, Broken> {
        let start = self.at;
        self.at += usize::from(self.here() == Some(b'-'));
        match self.here() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.here() {
            self.at += 1;
            self.at += usize::from(matches!(self.here(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(Document::Number(Written(&self.text[start..self.at])))
    }

    fn digits(&mut self) -> Result<(), Broken> {
        let start = self.at;
        while self.here().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.broken("a digit is expected")) } else { Ok(()) }
    }
}

impl Document<'_> {
    fn equals(&self, expected: &Value) -> bool {
        match (self, expected) {
            (Document::Null, Value::Null) => true,
            (Document::Boolean(one), Value::Bool(other)) => one == other,
            (Document::Number(one), Value::Number(other)) => one.equals(other),
            (Document::Text(one), Value::String(other)) => one == other,
            (Document::Array(one), Value::Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.equals(other))
            }
            (Document::Object(one), Value::Object(other)) => {
                let same = |(name, one): &Member<'_>| other.get(&**name).is_some_and(|other| one.equals(other));
                one.len() == other.len() && one.iter().all(same)
            }
            _ => false,
        }
    }

    /// Appends bytes that are the same for equal values, and only for them.
    fn write_canonical(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend_from_slice(&text.len().to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        match self {
            Document::Null => out.push(b'n'),
            Document::Boolean(value) => out.push(if *value { b't' } else { b'f' }),
            Document::Number(number) => {
                out.push(b'0');
                number.write_canonical(out);
            }
            Document::Text(value) => {
                out.push(b'"');
                text(out, value);
            }
            Document::Array(items) => {
                out.push(b'[');
                items.iter().for_each(|item| item.write_canonical(out));
                out.push(b']');
            }
            Document::Object(members) => {
                out.push(b'{');
                for (name, value) in members {
                    out.push(b'"');
                    text(out, name);
                    value.write_canonical(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// The representation that validators are compiled for.
pub(super) struct Payload;

impl Json for Payload {
    type Node<'a> = &'a Document<'a>;
    type PreparedKey = String;
    type StringBuffer = Document<'static>;

    // A lookup halves the members at each step; walking them is as cheap up to twice their number.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Document<'static>, string: &str, f: impl FnOnce(Self::Node<'_>) -> T) -> T {
        *buffer = Document::Text(Cow::Owned(string.to_owned()));
        f(buffer)
    }
}

impl<'a> Node<'a, Payload> for &'a Document<'a> {
    type Object = &'a [Member<'a>];
    type Array = &'a [Document<'a>];
    type Number = Written<'a>;

    fn as_object(&self) -> Option<&'a [Member<'a>]> {
        if let Document::Object(members) = self { Some(members) } else { None }
    }

    fn as_array(&self) -> Option<&'a [Document<'a>]> {
        if let Document::Array(items) = self { Some(items) } else { None }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        if let Document::Text(text) = self { Some(Cow::Borrowed(text)) } else { None }
    }

    fn as_number(&self) -> Option<Written<'a>> {
        if let Document::Number(number) = self { Some(*number) } else { None }
    }

    fn as_boolean(&self) -> Option<bool> {
        if let Document::Boolean(value) = self { Some(*value) } else { None }
    }

    fn is_null(&self) -> bool {
        matches!(self, Document::Null)
    }

    fn json_type(&self) -> JsonType {
        match self {
            Document::Null => JsonType::Null,
            Document::Boolean(_) => JsonType::Boolean,
            Document::Number(_) => JsonType::Number,
            Document::Text(_) => JsonType::String,
            Document::Array(_) => JsonType::Array,
            Document::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.equals(expected)
    }

    /// Never the value: it is only asked for to be shown, and a violation shows no part of a payload.
    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(&Value::Null)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Document<'a>>(self) as usize))
    }
}

impl<'a> Object<'a, Payload> for &'a [Member<'a>] {
    type Node = &'a Document<'a>;
    type MemberName = &'a str;
    type MembersIter = std::iter::Map<std::slice::Iter<'a, Member<'a>>, fn(&'a Member<'a>) -> (&'a str, Self::Node)>;

    fn len(&self) -> usize {
        <[Member<'a>]>::len(self)
    }

    fn get(&self, key: &String) -> Option<&'a Document<'a>> {
        let found = self.binary_search_by(|(name, _)| (**name).cmp(key.as_str())).ok()?;
        Some(&self[found].1)
    }

    fn members(&self) -> Self::MembersIter {
        self.iter().map(|(name, value)| (name, value))
    }
}

impl<'a> Array<'a, Payload> for &'a [Document<'a>] {
    type Node = &'a Document<'a>;
    type ElementsIter = std::slice::Iter<'a, Document<'a>>;

    fn len(&self) -> usize {
        <[Document<'a>]>::len(self)
    }

    fn elements(&self) -> Self::ElementsIter {
        self.iter()
    }

    fn is_unique(&self) -> bool {
        let mut seen = HashSet::new();
        self.iter().all(|item| {
            let mut form = Vec::new();
            item.write_canonical(&mut form);
            seen.insert(form)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_json_is_refused_where_it_breaks() {
        let nested = "[".repeat(128);
        for (text, at) in [
            ("", 0),
            ("  ", 2),
            ("nul", 0),
            ("{\"a\" 1}", 5),
            ("{\"a\":1,}", 7),
            ("[1 2]", 3),
            ("[1,]", 3),
            ("\"a", 2),
            ("\"a\\", 3),
            ("\"\n\"", 1),
            ("\"\\x\"", 0),
            ("\"\\ü\"", 0),
            ("\"\\ud800\"", 0),
            ("01", 1),
            ("-", 1),
            ("1.", 2),
            ("1e", 2),
            ("+1", 0),
            ("{} {}", 3),
            ("\u{feff}{}", 0),
            (&nested, 127),
        ] {
            assert_eq!(parse(text.as_bytes()).map(|_| ()).unwrap_err().at, at, "{text}");
        }
        assert_eq!(parse(b"\"a\xff\"").unwrap_err(), Broken { at: 2, what: "not UTF-8" });
    }

    #[test]
    fn the_last_of_members_with_one_name_counts() {
        let document = parse(br#"{"b": 1, "a": 2, "b": 3, "\u0062": 4, "c": 5}"#).unwrap();
        assert!(document.equals(&serde_json::json!({"a": 2, "b": 4, "c": 5})));
    }

    /// Text that is JSON, or nearly.
    fn nearly_json() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"b\"",
            "\"\\u00e4\\n\"",
            "\"ü\"",
            "1",
            "-0",
            "2.50",
            "1e5",
            "-3E-2",
            "true",
            "false",
            "null",
            " ",
            "\n",
            "\"",
            "\\",
            "0",
            ".",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(".{0,3}", inner, 0..6).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_reads(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let document = parse(text.as_bytes()).unwrap();
            prop_assert!(document.equals(&value), "{text}");
            let (mut once, mut again) = (Vec::new(), Vec::new());
            document.write_canonical(&mut once);
            parse(value.to_string().as_bytes()).unwrap().write_canonical(&mut again);
            prop_assert_eq!(once, again);
        }

        #[test]
        fn it_refuses_what_serde_json_refuses(text in nearly_json()) {
            let ours = parse(text.as_bytes());
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => prop_assert!(ours.is_ok_and(|document| document.equals(&value)), "{text}"),
                Err(error) => prop_assert!(ours.is_err(), "{text}: {error}"),
            }
        }

        #[test]
        fn it_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(parse(&bytes).is_ok(), serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }
}
