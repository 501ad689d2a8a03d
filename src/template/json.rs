//! JSON in and out: text becomes values that a template reads, values become text again.
//!
//! The reader keeps the order of members and the digits of numbers; of members with the same name the last one counts.
//! Both ways are bounded: in depth, and the writer in bytes.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::number::{Node, Number};
use super::run::Run;

/// How deep documents may be nested.
const DEPTH: usize = 128;

/// An object with more members than this has an index.
const FEW: usize = 16;

/// So many bytes that are written are a unit of work.
const WRITTEN: u64 = 16;

/// Reads a document; what is wrong with it is said with its place.
pub fn parse(text: &[u8], run: &Arc<Run>) -> Result<Value, String> {
    let text = std::str::from_utf8(text).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to() + 1))?;
    let mut reader = Reader { text, at: 0, depth: 0, run };
    let found = reader.document();
    found.map(|node| node.read(run)).map_err(|what| {
        let before = &text[..text.floor_char_boundary(reader.at)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{what} at line {line}, column {column}")
    })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    run: &'a Arc<Run>,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, String> {
        let node = self.node()?;
        self.blank();
        if self.at < self.text.len() { Err("something behind the end".into()) } else { Ok(node) }
    }

    fn node(&mut self) -> Result<Node, String> {
        self.blank();
        let value = match self.peek() {
            Some(b'{') => return self.nested(Reader::object),
            Some(b'[') => return self.nested(Reader::array),
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => return self.number(),
            _ if self.skip("true") => Value::from(true),
            _ if self.skip("false") => Value::from(false),
            _ if self.skip("null") => Value::from(()),
            Some(_) => return Err("no value".into()),
            None => return Err("the end where a value belongs".into()),
        };
        Ok(Node::Value(value))
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, String>) -> Result<Node, String> {
        if self.depth == DEPTH {
            return Err(format!("more than {DEPTH} levels"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(Node::Value(value))
    }

    fn array(&mut self) -> Result<Value, String> {
        let mut elements = Vec::new();
        self.blank();
        if !self.skip("]") {
            loop {
                elements.push(self.node()?);
                if self.ends("]")? {
                    break;
                }
            }
        }
        Ok(Value::from_object(Array { elements, run: self.run.clone() }))
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut members = Members { list: Vec::new(), index: None, run: self.run.clone() };
        self.blank();
        if !self.skip("}") {
            loop {
                self.blank();
                if self.peek() != Some(b'"') {
                    return Err("no member name".into());
                }
                let name = self.string()?;
                self.blank();
                if !self.skip(":") {
                    return Err("no colon behind a member name".into());
                }
                let node = self.node()?;
                members.put(name, node);
                if self.ends("}")? {
                    break;
                }
            }
        }
        Ok(Value::from_object(members))
    }

    /// Behind an element: a comma, or the end.
    fn ends(&mut self, end: &str) -> Result<bool, String> {
        self.blank();
        if self.skip(end) {
            return Ok(true);
        }
        if self.skip(",") { Ok(false) } else { Err(format!("neither a comma nor \"{end}\"")) }
    }

    fn string(&mut self) -> Result<Value, String> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut escaped = false;
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(byte) if *byte < 0x20 => {
                    self.at = end;
                    return Err("a control character in a string".into());
                }
                Some(_) => end += 1,
                None => return Err("a string without an end".into()),
            }
        }
        let value = if escaped {
            let text: String =
                serde_json::from_str(&self.text[start..=end]).map_err(|_| "a wrong escape in a string")?;
            Value::from(text)
        } else {
            Value::from(&self.text[start + 1..end])
        };
        self.at = end + 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<Node, String> {
        let start = self.at;
        self.skip("-");
        let whole = self.digits();
        let leading_zero = whole > 1 && self.text.as_bytes()[self.at - whole] == b'0';
        let fraction = !self.skip(".") || self.digits() > 0;
        let exponent = !(self.skip("e") || self.skip("E")) || {
            let _sign = self.skip("+") || self.skip("-");
            self.digits() > 0
        };
        if whole == 0 || leading_zero || !fraction || !exponent {
            return Err("a wrong number".into());
        }
        Ok(Node::number(&self.text[start..self.at], self.run))
    }

    fn digits(&mut self) -> usize {
        let count = self.text.as_bytes()[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, word: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }
}

#[derive(Debug)]
struct Array {
    elements: Vec<Node>,
    run: Arc<Run>,
}

impl Object for Array {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.run.hand_out(self.elements.get(key.as_usize()?)?.read(&self.run))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if self.run.may(1) { Enumerator::Seq(self.elements.len()) } else { Enumerator::Empty }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.elements.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&Value::from_dyn_object(self.clone()), &self.run, f)
    }
}

#[derive(Debug)]
struct Members {
    list: Vec<(Value, Node)>,
    index: Option<HashMap<Box<str>, usize>>,
    run: Arc<Run>,
}

impl Members {
    fn put(&mut self, name: Value, node: Node) {
        let key = name.as_str().unwrap_or_default();
        if let Some(at) = self.find(key) {
            self.list[at].1 = node;
            return;
        }
        if let Some(index) = &mut self.index {
            index.insert(key.into(), self.list.len());
        }
        self.list.push((name, node));
        if self.index.is_none() && self.list.len() > FEW {
            let names = self.list.iter().enumerate();
            self.index = Some(names.map(|(at, (name, _))| (name.as_str().unwrap_or_default().into(), at)).collect());
        }
    }

    fn find(&self, key: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.list.iter().position(|(name, _)| name.as_str() == Some(key)),
        }
    }
}

impl Object for Members {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.run.hand_out(self.list[self.find(key)?].1.read(&self.run))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if !self.run.may(1 + self.list.len() as u64) {
            return Enumerator::Empty;
        }
        self.mapped_enumerator(|this| Box::new(this.list.iter().map(|(name, _)| name.clone())))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.list.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&Value::from_dyn_object(self.clone()), &self.run, f)
    }
}

/// A document that becomes text in passing (`"x" ~ payload`) is JSON, too.
fn shown(value: &Value, run: &Run, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if run.stopped().is_some() {
        return Ok(());
    }
    match write(value, None, run) {
        Ok(text) => f.write_str(&text),
        // The engine makes a `String` of it, and panics at an error.
        Err(error) => {
            run.stop(|| error.detail().unwrap_or("it cannot be written").to_owned());
            Ok(())
        }
    }
}

/// The value as JSON, on one line or indented by so many spaces.
pub fn write(value: &Value, indent: Option<usize>, run: &Run) -> Result<String, Error> {
    let mut writer = Writer { out: String::new(), indent, depth: 0, run };
    writer.value(value)?;
    run.pay(1 + writer.out.len() as u64 / WRITTEN)?;
    Ok(writer.out)
}

struct Writer<'a> {
    out: String,
    indent: Option<usize>,
    depth: usize,
    run: &'a Run,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        if self.out.len() > self.run.most {
            return Err(failed(format!("JSON of more than {} bytes", self.run.most)));
        }
        if let Some(number) = value.downcast_object_ref::<Number>() {
            self.out.push_str(number.text());
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.array(value)?,
            ValueKind::Map => self.object(value)?,
            ValueKind::Undefined => return Err(undefined(value)),
            ValueKind::Bytes => return Err(failed("bytes are no JSON: use b64encode".into())),
            // The iterator of an invalid value is the way to the error that it holds.
            kind => return Err(value.try_iter().err().unwrap_or_else(|| failed(format!("{kind} is no JSON")))),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            return write!(self.out, "{value}").map_err(Error::from);
        }
        let number = f64::try_from(value.clone())?;
        match self.run.spelling(number) {
            Some(text) => self.out.push_str(text.as_str().unwrap_or_default()),
            None if number.is_finite() => write!(self.out, "{number:?}")?,
            None => return Err(failed(format!("{number} is no JSON"))),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut rest = text;
        while let Some(at) = rest.find(|sign: char| sign < ' ' || sign == '"' || sign == '\\') {
            self.out.push_str(&rest[..at]);
            match rest.as_bytes()[at] {
                b'"' => self.out.push_str("\\\""),
                b'\\' => self.out.push_str("\\\\"),
                b'\n' => self.out.push_str("\\n"),
                b'\r' => self.out.push_str("\\r"),
                b'\t' => self.out.push_str("\\t"),
                0x08 => self.out.push_str("\\b"),
                0x0c => self.out.push_str("\\f"),
                control => self.out.push_str(&format!("\\u{control:04x}")),
            }
            rest = &rest[at + 1..];
        }
        self.out.push_str(rest);
        self.out.push('"');
    }

    fn array(&mut self, value: &Value) -> Result<(), Error> {
        self.open('[')?;
        let mut count = 0;
        // Our own elements are read without a detour: two numbers may be the same, written in two ways.
        if let Some(array) = value.downcast_object_ref::<Array>() {
            for node in &array.elements {
                self.item(&mut count);
                self.node(node)?;
            }
        } else {
            for element in value.try_iter()?.checked() {
                self.item(&mut count);
                self.value(&element?)?;
            }
        }
        self.close(']', count);
        Ok(())
    }

    fn object(&mut self, value: &Value) -> Result<(), Error> {
        self.open('{')?;
        let mut count = 0;
        if let Some(members) = value.downcast_object_ref::<Members>() {
            for (name, node) in &members.list {
                self.item(&mut count);
                self.name(name)?;
                self.node(node)?;
            }
        } else {
            for name in value.try_iter()?.checked() {
                let name = name?;
                let member = value.get_item(&name)?;
                self.item(&mut count);
                self.name(&name)?;
                self.value(&member)?;
            }
        }
        self.close('}', count);
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<(), Error> {
        match node {
            Node::Value(value) => self.value(value),
            Node::Decimal(_, text) => {
                self.out.push_str(text.as_str().unwrap_or_default());
                Ok(())
            }
        }
    }

    fn name(&mut self, name: &Value) -> Result<(), Error> {
        let text = name.as_str().ok_or_else(|| failed(format!("{} is no name of a JSON member", name.kind())))?;
        self.string(text);
        self.out.push_str(if self.indent.is_some() { ": " } else { ":" });
        Ok(())
    }

    fn open(&mut self, sign: char) -> Result<(), Error> {
        if self.depth == DEPTH {
            return Err(failed(format!("JSON of more than {DEPTH} levels")));
        }
        self.depth += 1;
        self.out.push(sign);
        Ok(())
    }

    fn item(&mut self, count: &mut usize) {
        if *count > 0 {
            self.out.push(',');
        }
        *count += 1;
        self.line();
    }

    fn close(&mut self, sign: char, count: usize) {
        self.depth -= 1;
        if count > 0 {
            self.line();
        }
        self.out.push(sign);
    }

    fn line(&mut self) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * self.depth));
        }
    }
}

/// The error that names the variable: the engine gives it to whoever wants something of an undefined value.
pub fn undefined(value: &Value) -> Error {
    value.get_attr("").err().unwrap_or_else(|| Error::from(ErrorKind::UndefinedError))
}

fn failed(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}
