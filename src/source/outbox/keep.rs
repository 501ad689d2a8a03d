//! What is kept of a row that is rejected, and the row made again from what was kept.
//!
//! A message enters, its columns leave as the bytes that PostgreSQL prints: all of them, mapped or not, because the route
//! that is mended may need another one. What a stored letter has becomes a `Row` by today's configuration.

use super::layout::{Place, Presence};
use super::value::{self, Cell, Kind};
use super::{Outbox, Row, Table, logical};
use crate::config::OutboxSource;
use crate::dead_letter::{Claimed, Column, Origin, SMALL};
use crate::source::pgoutput::{self, Message, Tuple};

/// What a logical message's whole content is called among columns.
const CONTENT: &str = "content";

/// What is kept of an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it was written.
    pub origin: Origin,
    /// The row as it was read.
    pub columns: Vec<Column>,
    /// Columns that were too large, or whose type cannot be read from this session.
    pub not_kept: Vec<String>,
}

impl Outbox {
    /// All that the message in `body` says of its event; of one with more than `most` bytes, the small columns only.
    pub fn keep(&self, body: &[u8], most: u64) -> Kept {
        let mut kept = match pgoutput::decode(body) {
            Ok(Message::Insert { relation, row }) => self.keep_row(relation, &row, body),
            Ok(Message::Logical { prefix, content, .. }) => keep_message(prefix, content),
            Ok(_) | Err(_) => panic!("what is rejected is a row or a message that was read before"),
        };
        let size = |column: &Column| column.value.as_ref().map_or(0, Vec::len);
        // A message is nowhere else.
        let is_row = matches!(kept.origin, Origin::Table(..));
        if is_row && kept.columns.iter().map(size).sum::<usize>() as u64 > most {
            let large = kept.columns.extract_if(.., |column| size(column) > SMALL);
            kept.not_kept.extend(large.map(|column| column.name));
        }
        kept
    }

    fn keep_row(&self, relation: u32, row: &Tuple<'_>, body: &[u8]) -> Kept {
        let mapping = self.relations.get(&relation).and_then(Table::mapping).expect("the row was read by its mapping");
        let (schema, name) = mapping.schema_and_name.clone();
        let mut kept = Kept { origin: Origin::Table(schema, name), columns: Vec::new(), not_kept: Vec::new() };
        let mut scratch = Vec::new();
        for ((name, type_oid), sent) in mapping.described.iter().zip(row.columns()) {
            scratch.clear();
            let value = match value::render(sent, Kind::of(*type_oid), body, &mut scratch) {
                Ok(Cell::Absent | Cell::Null) => None,
                Ok(Cell::Message(range)) => Some(body[range].to_vec()),
                Ok(Cell::Scratch(range)) => Some(scratch[range].to_vec()),
                Ok(Cell::Time(micros)) => Some(value::time_text(micros, *type_oid).into_bytes()),
                Err(_) => {
                    kept.not_kept.push(name.clone());
                    continue;
                }
            };
            kept.columns.push(Column { name: name.clone(), value });
        }
        kept
    }

    /// The columns that were not kept of a letter, and that today's configuration reads.
    pub fn lacks(&self, letter: &Claimed) -> Vec<String> {
        let Origin::Table(schema, name) = &letter.origin else { return Vec::new() };
        let source = OutboxSource::Table { schema: schema.clone(), name: name.clone() };
        let Some(outbox) = self.outboxes.iter().find(|outbox| outbox.source == source) else { return Vec::new() };
        let is_missing = |name: &&str| letter.not_kept.iter().any(|missing| missing == name);
        let names = self.layout.columns(&outbox.columns).map(|(_, name, _)| name);
        names.filter(is_missing).map(str::to_owned).collect()
    }

    /// The row of a stored letter, as today's configuration reads it; or why it cannot be read.
    pub fn restore<'b>(&'b mut self, letter: &'b Claimed) -> Result<Row<'b>, String> {
        let (what, outbox) = match &letter.origin {
            Origin::Table(schema, name) => {
                let source = OutboxSource::Table { schema: schema.clone(), name: name.clone() };
                (format!("table \"{schema}.{name}\""), self.outboxes.iter().find(|outbox| outbox.source == source))
            }
            Origin::Messages(prefix) => {
                (format!("message_prefix \"{prefix}\""), self.prefixed(prefix).map(|at| &self.outboxes[at]))
            }
        };
        let Some(outbox) = outbox else { return Err(format!("no [[outbox]] has {what} any more")) };
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let mut message: &[u8] = &[];
        let is_kept = |name: &str| !letter.not_kept.iter().any(|missing| missing == name);
        match letter.origin {
            Origin::Messages(_) => {
                message = letter.columns.first().and_then(|column| column.value.as_deref()).unwrap_or_default();
                let (cells, scratch) = (&mut self.cells, &mut self.scratch);
                logical::read(message, message, &outbox.columns, &self.layout, cells, scratch)?;
            }
            Origin::Table(..) => {
                for (place, name, presence) in self.layout.columns(&outbox.columns) {
                    if !is_kept(name) {
                        // Without it the record would be another one: no payload is a tombstone.
                        return Err(not_kept(name));
                    }
                    let column = match letter.columns.iter().find(|column| column.name == name) {
                        Some(column) => column,
                        None if presence == Presence::Optional => continue,
                        None => {
                            return Err(format!("it was kept without a column \"{name}\": the table had none then"));
                        }
                    };
                    self.cells[place.0] = match &column.value {
                        Some(value) => {
                            let start = self.scratch.len();
                            self.scratch.extend_from_slice(value);
                            Cell::Scratch(start..self.scratch.len())
                        }
                        None => Cell::Null,
                    };
                }
            }
        }
        let row = self.row(letter.position, letter.committed_at, message);
        if row.bytes(Place::ID).is_none() { Err("it has no id".into()) } else { Ok(row) }
    }
}

fn keep_message(prefix: &str, content: &[u8]) -> Kept {
    let content = Column { name: CONTENT.to_owned(), value: Some(content.to_vec()) };
    Kept { origin: Origin::Messages(prefix.to_owned()), columns: vec![content], not_kept: Vec::new() }
}

fn not_kept(column: &str) -> String {
    format!(
        "column \"{column}\" was not kept, and cannot be read from the table: the row is gone, or larger than limits.event"
    )
}
