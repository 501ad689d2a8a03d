//! What a template sees of a row: its columns by their names.
//!
//! Columns are borrowed until a template reads them; only those that it names are copied. A JSON column is parsed when
//! it is first read, and once.

use std::sync::{Arc, OnceLock};

use minijinja::value::{Object, Value};
use minijinja::{Error, ErrorKind, State};

use super::json;
use super::run::Run;

/// Under which the filters find what belongs to this rendering: no template can write this name.
const RUN: &str = "\0run";

/// The columns of one row.
#[derive(Debug, Clone, Default)]
pub struct Columns<'a>(pub Vec<(&'a str, Typed<'a>)>);

/// A column's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Typed<'a> {
    /// The table has no such column: undefined.
    Absent,
    /// NULL: none.
    Null,
    /// Text, and everything that is only known as text.
    Text(&'a str),
    /// A document; an error when it is read and is none.
    Json(&'a [u8]),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
    /// Bytes: to be encoded, or hashed.
    Bytes(&'a [u8]),
}

impl<'a> Typed<'a> {
    /// A payload that was kept as text: documents often are.
    pub fn payload(text: &'a str) -> Typed<'a> {
        match text.trim_ascii_start().as_bytes().first() {
            Some(b'{' | b'[') => Typed::Json(text.as_bytes()),
            Some(_) | None => Typed::Text(text),
        }
    }
}

/// The context of one rendering.
#[derive(Debug)]
pub struct Row {
    names: Arc<[Box<str>]>,
    cells: Vec<Cell>,
    run: Arc<Run>,
}

#[derive(Debug)]
enum Cell {
    Absent,
    Value(Value),
    Json(Box<[u8]>, OnceLock<Value>),
}

impl Row {
    /// Keeps the columns that are named.
    pub fn new(columns: &Columns<'_>, names: &Arc<[Box<str>]>, run: Arc<Run>) -> Row {
        let typed = |name: &str| columns.0.iter().find(|(column, _)| *column == name).map(|(_, typed)| *typed);
        let cells = names.iter().map(|name| Cell::new(typed(name).unwrap_or(Typed::Absent))).collect();
        Row { names: names.clone(), cells, run }
    }

    fn read(&self, at: usize) -> Option<Value> {
        match &self.cells[at] {
            Cell::Absent => None,
            Cell::Value(value) => Some(value.clone()),
            Cell::Json(text, parsed) => Some(parsed.get_or_init(|| self.document(at, text)).clone()),
        }
    }

    fn document(&self, at: usize, text: &[u8]) -> Value {
        json::parse(text, &self.run).unwrap_or_else(|what| {
            let message = format!("column \"{}\" is not JSON: {what}", self.names[at]);
            Value::from(Error::new(ErrorKind::InvalidOperation, message))
        })
    }
}

impl Cell {
    fn new(typed: Typed<'_>) -> Cell {
        match typed {
            Typed::Absent => Cell::Absent,
            Typed::Null => Cell::Value(Value::from(())),
            Typed::Text(text) => Cell::Value(Value::from(text)),
            Typed::Json(text) => Cell::Json(text.into(), OnceLock::new()),
            Typed::Integer(number) => Cell::Value(Value::from(number)),
            Typed::Boolean(truth) => Cell::Value(Value::from(truth)),
            Typed::Bytes(bytes) => Cell::Value(Value::from_bytes(bytes.to_vec())),
        }
    }
}

impl Object for Row {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match self.names.iter().position(|name| **name == *key) {
            Some(at) => self.run.hand_out(self.read(at)?),
            None => (key == RUN).then(|| Value::from_dyn_object(self.run.clone())),
        }
    }
}

/// What belongs to the rendering that a filter is part of.
pub fn run_of(state: &State<'_, '_>) -> Result<Arc<Run>, Error> {
    let found = state.lookup(RUN).and_then(|value| value.downcast_object::<Run>());
    found.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "no row is being rendered"))
}
