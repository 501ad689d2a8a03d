//! Messages become steps: the relation cache and the column mapping.
//!
//! pgoutput messages enter in stream order; out come `Row`s with their position, `Mark`s, or nothing. Columns are
//! mapped by name when a `Relation` arrives, so rows cost no look-ups. A row is counted only when it is taken: the
//! same message can be read again after the sink was full, and gets the same position.

mod layout;
mod logical;
mod row;
mod value;

use std::collections::HashMap;

pub use layout::{Layout, Place};
pub(crate) use logical::Name;
pub use row::{Row, unix_ms};

use crate::config;
use crate::config::OutboxSource;
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::record::Rejected;
use crate::source::Encoding;
use crate::source::pgoutput::{Message, Relation, Tuple};
use layout::Presence;
use value::{Cell, Kind};

/// What a message means for the corridor.
#[derive(Debug)]
pub enum Step<'a> {
    /// Nothing to do.
    Nothing,
    /// An event. It stays uncounted until `take`.
    Row(Row<'a>),
    /// An event that cannot be read. It stays uncounted until `take`.
    Rejected(Rejected),
    /// Everything up to here has arrived.
    Mark(Lsn),
    /// A mapped column's type is not rendered exactly from its binary form: the session must go on in text.
    TextNeeded(String),
    /// A message that is counted and otherwise ignored.
    Odd(Odd),
}

/// Messages that mean nothing to us, and that somebody may want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Odd {
    /// Stream Abort outside a stream (PostgreSQL bug #19616).
    StrayAbort,
    /// A logical message with an outbox prefix, but outside of a transaction: never published.
    NotTransactional,
}

/// The room's state: one session's relations and open transaction.
#[derive(Debug)]
pub struct Outbox {
    outboxes: Vec<config::Outbox>,
    layout: Layout,
    encoding: Encoding,
    relations: HashMap<u32, Option<Mapping>>,
    transaction: Option<Transaction>,
    cells: Vec<Cell>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Transaction {
    commit: Lsn,
    committed_at: i64,
    rows: u64,
}

/// Which columns of one table fill which places.
#[derive(Debug)]
struct Mapping {
    table: String,
    /// In column order.
    columns: Vec<MappedColumn>,
}

#[derive(Debug)]
struct MappedColumn {
    index: usize,
    place: Place,
    kind: Kind,
    name: String,
}

impl Outbox {
    /// A room for these outboxes, with the places that the routes need.
    pub fn new(outboxes: &[config::Outbox], layout: Layout) -> Outbox {
        Outbox {
            outboxes: outboxes.to_vec(),
            cells: vec![Cell::Absent; layout.len()],
            layout,
            encoding: Encoding::Binary,
            relations: HashMap::new(),
            transaction: None,
            scratch: Vec::new(),
        }
    }

    /// A new session: the server will describe its tables again, and starts with a whole transaction.
    pub fn session_started(&mut self, encoding: Encoding) {
        self.encoding = encoding;
        self.relations.clear();
        self.transaction = None;
    }

    /// True between Begin and Commit.
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// True when every mapped table seen in this session could be read in binary.
    pub fn fits_binary(&self) -> bool {
        let mut mapped = self.relations.values().flatten().peekable();
        mapped.peek().is_some() && mapped.all(|mapping| self.unreadable(mapping).is_none())
    }

    /// Reads one message; `body` is the bytes it was decoded from.
    pub fn read<'b>(&'b mut self, message: Message<'b>, body: &'b [u8]) -> Result<Step<'b>> {
        match message {
            Message::Begin { commit_lsn, committed_at, xid: _ } => {
                self.transaction = Some(Transaction { commit: commit_lsn, committed_at, rows: 0 });
                Ok(Step::Nothing)
            }
            Message::Commit { commit_lsn: _, end_lsn, committed_at: _ } => {
                self.transaction = None;
                // The mark is the commit's *end* LSN: confirming its start would replay this transaction.
                Ok(Step::Mark(end_lsn))
            }
            Message::Relation(relation) => self.relation(&relation),
            Message::Insert { relation, row } => self.insert(relation, &row, body),
            Message::Logical { transactional: true, lsn: _, prefix, content } => self.logical(prefix, content, body),
            Message::Logical { transactional: false, lsn: _, prefix, content: _ } => Ok(match self.prefixed(prefix) {
                Some(_) => Step::Odd(Odd::NotTransactional),
                None => Step::Nothing,
            }),
            Message::StreamAbort => Ok(Step::Odd(Odd::StrayAbort)),
            Message::Origin { .. }
            | Message::Type { .. }
            | Message::Update { .. }
            | Message::Delete { .. }
            | Message::Truncate => Ok(Step::Nothing),
        }
    }

    /// The row that `read` gave is accounted for: the next one gets the next number.
    pub fn take(&mut self) {
        self.transaction.as_mut().expect("a row is read inside a transaction").rows += 1;
    }

    fn relation(&mut self, relation: &Relation<'_>) -> Result<Step<'static>> {
        let outbox = self.outboxes.iter().find(|outbox| match &outbox.source {
            OutboxSource::Table { schema, name } => schema == relation.schema && name == relation.name,
            OutboxSource::MessagePrefix(_) => false,
        });
        let Some(outbox) = outbox else {
            if let Some(Some(known)) = self.relations.get(&relation.id) {
                return Err(renamed(&known.table, relation));
            }
            self.relations.insert(relation.id, None);
            return Ok(Step::Nothing);
        };
        let mapping = map_columns(relation, &outbox.columns, &self.layout)?;
        let unreadable = self.unreadable(&mapping);
        self.relations.insert(relation.id, Some(mapping));
        Ok(match (self.encoding, unreadable) {
            (Encoding::Binary, Some(column)) => Step::TextNeeded(column),
            (Encoding::Binary, None) | (Encoding::Text, _) => Step::Nothing,
        })
    }

    /// The first column whose binary form does not give what is needed of it.
    fn unreadable(&self, mapping: &Mapping) -> Option<String> {
        let column = mapping.columns.iter().find(|column| match column.kind {
            Kind::Time => !self.layout.is_time(column.place),
            Kind::Unknown => true,
            Kind::Raw | Kind::Uuid | Kind::Int | Kind::Bool | Kind::Jsonb | Kind::Bytea => false,
        })?;
        Some(format!("column \"{}\" of {}", column.name, mapping.table))
    }

    fn insert<'b>(&'b mut self, relation: u32, tuple: &Tuple<'b>, body: &'b [u8]) -> Result<Step<'b>> {
        let (position, committed_at) = self.next_position()?;
        let Some(mapping) = self.relations.get(&relation) else {
            return Err(Error::definite(format!("the server sent a row of table {relation} without its description")));
        };
        let Some(mapping) = mapping else {
            self.take();
            return Ok(Step::Nothing);
        };
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let mut wanted = mapping.columns.iter().peekable();
        for (index, value) in tuple.columns().enumerate() {
            while let Some(column) = wanted.next_if(|column| column.index == index) {
                match value::render(value, column.kind, body, &mut self.scratch) {
                    Ok(cell) => self.cells[column.place.0] = cell,
                    Err(problem) => {
                        let message = format!("column \"{}\" of {}: {problem}", column.name, mapping.table);
                        return Ok(Step::Rejected(self.rejected(position, committed_at, body, message)));
                    }
                }
            }
        }
        if let Some(column) = wanted.next() {
            let what = format!("a row of {} came without its column \"{}\"", mapping.table, column.name);
            return Err(Error::definite(what));
        }
        Ok(self.row_or_reject(position, committed_at, body))
    }

    fn logical<'b>(&'b mut self, prefix: &str, content: &[u8], body: &'b [u8]) -> Result<Step<'b>> {
        let (position, committed_at) = self.next_position()?;
        let Some(outbox) = self.prefixed(prefix) else {
            self.take();
            return Ok(Step::Nothing);
        };
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let columns = &self.outboxes[outbox].columns;
        match logical::read(content, body, columns, &self.layout, &mut self.cells, &mut self.scratch) {
            Ok(()) => Ok(self.row_or_reject(position, committed_at, body)),
            Err(problem) => {
                let message = format!("logical message with prefix \"{prefix}\": {problem}");
                Ok(Step::Rejected(self.rejected(position, committed_at, body, message)))
            }
        }
    }

    fn row_or_reject<'b>(&'b self, position: Position, committed_at: i64, body: &'b [u8]) -> Step<'b> {
        let row = self.row(position, committed_at, body);
        match row.bytes(Place::ID) {
            Some(_) => Step::Row(row),
            None => Step::Rejected(self.rejected(position, committed_at, body, "it has no id".into())),
        }
    }

    fn row<'b>(&'b self, position: Position, committed_at: i64, message: &'b [u8]) -> Row<'b> {
        Row { position, committed_at, cells: &self.cells, message, scratch: &self.scratch }
    }

    fn rejected(&self, position: Position, committed_at: i64, body: &[u8], message: String) -> Rejected {
        let event = self.row(position, committed_at, body).id();
        Rejected { position, event, reason: "unreadable", message }
    }

    fn next_position(&self) -> Result<(Position, i64)> {
        match &self.transaction {
            Some(open) => Ok((Position { commit: open.commit, row: open.rows + 1 }, open.committed_at)),
            None => Err(Error::definite("the server sent a row outside of a transaction")),
        }
    }

    fn prefixed(&self, prefix: &str) -> Option<usize> {
        self.outboxes.iter().position(|outbox| match &outbox.source {
            OutboxSource::MessagePrefix(wanted) => wanted == prefix,
            OutboxSource::Table { .. } => false,
        })
    }
}

fn map_columns(relation: &Relation<'_>, columns: &config::Columns, layout: &Layout) -> Result<Mapping> {
    let table = format!("table \"{}.{}\"", relation.schema, relation.name);
    let mut mapped = Vec::new();
    for (place, name, presence) in layout.columns(columns) {
        let found = relation.columns().enumerate().find(|(_, column)| column.name == name);
        match (found, presence) {
            (Some((index, column)), _) => {
                let kind = kind_of(column.type_oid, place).ok_or_else(|| {
                    let part = layout.name(place);
                    Error::definite(format!("column \"{name}\" of {table} cannot be the {part}: it is not a timestamp"))
                        .hint(format!(
                            "name a timestamp column in [[outbox]] columns.{part}, or \"\" for the commit time"
                        ))
                })?;
                mapped.push(MappedColumn { index, place, kind, name: name.to_owned() });
            }
            (None, Presence::Required) => {
                let part = layout.name(place);
                return Err(Error::definite(format!(
                    "{table} has no column \"{name}\", which is mapped as the {part}"
                ))
                .hint(format!(
                    "the WAL describes each row by the table as it was: name a column that it had then in [[outbox]] \
                     columns.{part}, at least until these rows are published; a column put back helps later rows only"
                )));
            }
            (None, Presence::Optional) => {}
        }
    }
    mapped.sort_by_key(|column| (column.index, column.place));
    Ok(Mapping { table, columns: mapped })
}

/// `None` when the type cannot play its part at all.
fn kind_of(type_oid: u32, place: Place) -> Option<Kind> {
    match Kind::of(type_oid) {
        Kind::Time => Some(Kind::Time),
        _ if place == Place::TIMESTAMP => None,
        kind => Some(kind),
    }
}

fn renamed(known: &str, relation: &Relation<'_>) -> Error {
    let (schema, name) = (relation.schema, relation.name);
    Error::definite(format!("outbox {known} is now called \"{schema}.{name}\", which is not configured"))
        .hint("name it in [[outbox]] table: the WAL keeps the name that the table had, also after it is renamed back")
}
