//! What is kept of a row that is rejected, and the row made again from what was kept.
//!
//! A message enters, its columns leave as the bytes that PostgreSQL prints: all of them, mapped or not, because the route
//! that is mended may need another one. What a stored letter has becomes a `Row` by today's configuration.

use super::layout::{Place, Presence};
use super::value::{self, Cell, Kind};
use super::{Outbox, Row, Table};
use crate::column::Type;
use crate::config::{self, OutboxSource};
use crate::dead_letter::{Claimed, Column, Origin, take_large};
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
            kept.not_kept.extend(take_large(&mut kept.columns));
        }
        kept
    }

    fn keep_row(&self, relation: u32, row: &Tuple<'_>, body: &[u8]) -> Kept {
        let mapping = self.relations.get(&relation).and_then(Table::mapping).expect("the row was read by its mapping");
        let (schema, name) = mapping.schema_and_name.clone();
        let mut kept = Kept { origin: Origin::Table(schema, name), columns: Vec::new(), not_kept: Vec::new() };
        let mut scratch = Vec::new();
        for ((name, kind), sent) in mapping.described.iter().zip(row.columns()) {
            scratch.clear();
            let value = match value::render(sent, Kind::of(kind.oid), body, &mut scratch) {
                Ok(Cell::Absent | Cell::Null) => None,
                Ok(Cell::Message(range)) => Some(body[range].to_vec()),
                Ok(Cell::Scratch(range)) => Some(scratch[range].to_vec()),
                Ok(Cell::Time(micros)) => Some(value::time_text(micros, kind.oid).into_bytes()),
                Err(_) => {
                    kept.not_kept.push(name.clone());
                    continue;
                }
            };
            kept.columns.push(Column { name: name.clone(), kind: *kind, value });
        }
        kept
    }

    /// The columns that were not kept of a letter, and that today's configuration reads.
    pub fn lacks(&self, letter: &Claimed) -> Vec<String> {
        if let Origin::Messages(_) = letter.origin {
            return Vec::new();
        }
        let Some(outbox) = block(&self.outboxes, &letter.origin) else { return Vec::new() };
        let is_missing = |name: &&str| letter.not_kept.iter().any(|missing| missing == name);
        let names = self.layout.columns(outbox).map(|(_, name, _)| name);
        names.filter(is_missing).map(str::to_owned).collect()
    }

    /// The row of a stored letter, as today's configuration reads it; or why it cannot be read.
    pub fn restore<'b>(&'b mut self, letter: &'b Claimed) -> Result<Row<'b>, String> {
        let Some(at) = place_of(&self.outboxes, &letter.origin) else {
            let what = match &letter.origin {
                Origin::Table(schema, name) => format!("table \"{schema}.{name}\""),
                Origin::Messages(prefix) => format!("message_prefix \"{prefix}\""),
            };
            return Err(format!("no [[outbox]] has {what} any more"));
        };
        self.cells.fill(Cell::Absent);
        self.types.fill(Type::default());
        self.scratch.clear();
        let mut message: &[u8] = &[];
        let is_kept = |name: &str| !letter.not_kept.iter().any(|missing| missing == name);
        match letter.origin {
            Origin::Messages(_) => {
                message = letter.columns.first().and_then(|column| column.value.as_deref()).unwrap_or_default();
                self.read_logical(at, message, message)?;
            }
            Origin::Table(..) => {
                for (place, name, presence) in self.layout.columns(&self.outboxes[at]) {
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
                    self.types[place.0] = column.kind;
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
        let row = self.row(letter.position, letter.committed_at, at, &self.types, message);
        if row.bytes(Place::ID).is_none() { Err("it has no id".into()) } else { Ok(row) }
    }
}

/// The `[[outbox]]` block that a letter's event was read by.
pub fn block<'a>(outboxes: &'a [config::Outbox], origin: &Origin) -> Option<&'a config::Outbox> {
    place_of(outboxes, origin).map(|at| &outboxes[at])
}

fn place_of(outboxes: &[config::Outbox], origin: &Origin) -> Option<usize> {
    outboxes.iter().position(|outbox| match (&outbox.source, origin) {
        (OutboxSource::Table { schema, name }, Origin::Table(in_schema, table)) => schema == in_schema && name == table,
        (OutboxSource::MessagePrefix(prefix), Origin::Messages(of)) => prefix == of,
        (OutboxSource::Table { .. }, Origin::Messages(_)) | (OutboxSource::MessagePrefix(_), Origin::Table(..)) => {
            false
        }
    })
}

fn keep_message(prefix: &str, content: &[u8]) -> Kept {
    let content = Column { name: CONTENT.to_owned(), kind: Type::default(), value: Some(content.to_vec()) };
    Kept { origin: Origin::Messages(prefix.to_owned()), columns: vec![content], not_kept: Vec::new() }
}

fn not_kept(column: &str) -> String {
    format!(
        "column \"{column}\" was not kept, and cannot be read from the table: the row is gone, or larger than limits.event"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Columns, Outbox};

    #[test]
    fn the_block_of_a_letter_is_that_of_its_table_or_prefix() {
        let columns = |payload: &str| Columns {
            id: "id".into(),
            aggregate_type: None,
            aggregate_id: None,
            event_type: None,
            payload: payload.into(),
            timestamp: None,
            headers: None,
            partition: None,
        };
        let outbox = |source: OutboxSource, payload: &str| Outbox::of(source, columns(payload));
        let outboxes = [
            outbox(OutboxSource::Table { schema: "public".into(), name: "outbox".into() }, "a"),
            outbox(OutboxSource::MessagePrefix("outbox".into()), "b"),
        ];
        for (origin, payload) in [
            (Origin::Table("public".into(), "outbox".into()), Some("a")),
            (Origin::Messages("outbox".into()), Some("b")),
            (Origin::Table("app".into(), "outbox".into()), None),
            (Origin::Messages("other".into()), None),
        ] {
            assert_eq!(block(&outboxes, &origin).map(|outbox| outbox.columns.payload.as_str()), payload, "{origin:?}");
        }
    }
}
