//! What is kept of a row that is rejected, and the row made again from what was kept.
//!
//! A message enters, its columns leave as the bytes that PostgreSQL prints: all of them, mapped or not, because the route
//! that is mended may need another one. What a stored letter has becomes a `Row` by today's configuration.

use super::join::Payload;
use super::layout::{Place, Presence};
use super::mapping::{Description, Table};
use super::value::{self, Cell, Kind};
use super::{Given, Outbox, Row, Waiting, message_in, tuple_in};
use crate::column::Type;
use crate::config::{self, OutboxSource};
use crate::dead_letter::{Claimed, Column, Origin, PAYLOAD_MISSING, Rejection, take_large};
use crate::source::pgoutput::{Message, Tuple};

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
    /// All that is said of an event; of one with more than `most` bytes, the small columns only.
    pub fn keep(&self, given: Given<'_>, most: u64) -> Kept {
        let mut kept = match given {
            Given::Message(Message::Insert { relation, row }, body) => {
                let table = self.relations.get(relation).and_then(Table::mapping);
                keep_row(&table.expect("the row was read by its mapping").about, row, body)
            }
            Given::Message(Message::Logical { prefix, content, .. }, _) => keep_message(prefix, content),
            Given::Message(..) => panic!("what is rejected is a row or a message that was read before"),
            Given::Waiting(waiting) => self.keep_waiting(waiting),
        };
        let size = |column: &Column| column.value.as_ref().map_or(0, Vec::len);
        // A message is nowhere else.
        let is_row = matches!(kept.origin, Origin::Table(..));
        if is_row && kept.columns.iter().map(size).sum::<usize>() as u64 > most {
            kept.not_kept.extend(take_large(&mut kept.columns));
        }
        kept
    }

    /// Both rows of a joined event: the columns of the second one by their qualified names.
    fn keep_waiting(&self, Waiting { body, about, payload, .. }: &Waiting) -> Kept {
        let Some(about) = about else {
            let (prefix, content) = message_in(body);
            return keep_message(prefix, content);
        };
        let mut kept = keep_row(about, &tuple_in(body), body);
        let outbox = &self.outboxes[about.outbox];
        let Some(join) = &outbox.join else { return kept };
        match payload {
            Payload::Own | Payload::Wanted(_) => {}
            Payload::Missing(_) | Payload::GivenUp(_) => kept.not_kept.push(join.qualified(&outbox.columns.payload)),
            Payload::Found(row) => {
                let Kept { columns, not_kept, .. } = keep_row(&row.about, &tuple_in(&row.body), &row.body);
                let qualify = |column: Column| Column { name: join.qualified(&column.name), ..column };
                kept.columns.extend(columns.into_iter().map(qualify));
                kept.not_kept.extend(not_kept.iter().map(|name| join.qualified(name)));
            }
        }
        kept
    }

    /// The columns that were not kept of a letter, and that today's configuration reads.
    pub fn lacks(&self, letter: &Claimed) -> Vec<String> {
        if let Origin::Messages(_) = letter.origin {
            return Vec::new();
        }
        let Some(outbox) = block(&self.outboxes, &letter.origin) else { return Vec::new() };
        let is_missing = |name: &str| letter.not_kept.iter().any(|missing| missing == name);
        let own = self.layout.columns(outbox).map(|(_, name, _)| name.to_owned()).filter(|name| is_missing(name));
        let Some(join) = &outbox.join else { return own.collect() };
        let has = |name: &str| letter.columns.iter().any(|column| column.name == name);
        // Of a payload row that never came, nobody knows which columns it has.
        let never_came =
            is_missing(&join.qualified(&outbox.columns.payload)) && !has(&join.qualified(&join.payload_column));
        // The payload is the second table's, whatever the first one calls by its name.
        let joined = self.layout.joined(outbox).filter(|(place, name, _)| *place == Place::PAYLOAD || !has(name));
        let joined = joined.map(|(_, name, _)| join.qualified(name)).filter(|name| never_came || is_missing(name));
        own.chain(joined).collect()
    }

    /// The row of a stored letter, as today's configuration reads it; or why it cannot be read.
    pub fn restore<'b>(&'b mut self, letter: &'b Claimed) -> Result<Row<'b>, Rejection> {
        let unreadable = |message: String| Rejection::new("unreadable", message);
        let Some(at) = place_of(&self.outboxes, &letter.origin) else {
            let what = match &letter.origin {
                Origin::Table(schema, name) => format!("table \"{schema}.{name}\""),
                Origin::Messages(prefix) => format!("message_prefix \"{prefix}\""),
            };
            return Err(unreadable(format!("no [[outbox]] has {what} any more")));
        };
        self.cells.fill(Cell::Absent);
        self.types.fill(Type::default());
        self.scratch.clear();
        let mut message: &[u8] = &[];
        match letter.origin {
            Origin::Messages(_) => {
                message = letter.columns.first().and_then(|column| column.value.as_deref()).unwrap_or_default();
                self.read_logical(at, message, message).map_err(unreadable)?;
            }
            Origin::Table(..) => self.restore_columns(at, letter)?,
        }
        let row = self.row(letter.position, letter.committed_at, at, &self.types, message);
        if row.bytes(Place::ID).is_none() { Err(unreadable("it has no id".into())) } else { Ok(row) }
    }

    fn restore_columns(&mut self, at: usize, letter: &Claimed) -> Result<(), Rejection> {
        let outbox = &self.outboxes[at];
        let into = &mut Restored { cells: &mut self.cells, types: &mut self.types, scratch: &mut self.scratch };
        for (place, name, presence) in self.layout.columns(outbox) {
            let rejected = |message: String| Rejection::new("unreadable", message);
            into.place(place, name, presence, letter).map_err(rejected)?;
        }
        let Some(join) = &outbox.join else { return Ok(()) };
        for (place, name, presence) in self.layout.joined(outbox) {
            // What the events' own table has weighs more.
            if into.cells[place.0] == Cell::Absent {
                let rejected = |message: String| Rejection::new(PAYLOAD_MISSING, message);
                into.place(place, &join.qualified(name), presence, letter).map_err(rejected)?;
            }
        }
        Ok(())
    }
}

/// Where columns of a letter go.
struct Restored<'a> {
    cells: &'a mut [Cell],
    types: &'a mut [Type],
    scratch: &'a mut Vec<u8>,
}

impl Restored<'_> {
    fn place(&mut self, place: Place, name: &str, presence: Presence, letter: &Claimed) -> Result<(), String> {
        if letter.not_kept.iter().any(|missing| missing == name) {
            // Without it the record would be another one: no payload is a tombstone.
            return Err(not_kept(name));
        }
        let column = match letter.columns.iter().find(|column| column.name == name) {
            Some(column) => column,
            None if presence == Presence::Optional => return Ok(()),
            None => return Err(format!("it was kept without a column \"{name}\": the table had none then")),
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
        Ok(())
    }
}

fn keep_row(about: &Description, row: &Tuple<'_>, body: &[u8]) -> Kept {
    let origin = Origin::Table(about.schema.clone(), about.name.clone());
    let mut kept = Kept { origin, columns: Vec::new(), not_kept: Vec::new() };
    let mut scratch = Vec::new();
    for ((name, kind), sent) in about.columns.iter().zip(row.columns()) {
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

/// What the payload is called among a letter's columns.
pub fn payload_column(outbox: &config::Outbox) -> String {
    let payload = &outbox.columns.payload;
    outbox.join.as_ref().map_or_else(|| payload.clone(), |join| join.qualified(payload))
}

/// The `[[outbox]]` block that a letter's event was read by.
pub fn block<'a>(outboxes: &'a [config::Outbox], origin: &Origin) -> Option<&'a config::Outbox> {
    place_of(outboxes, origin).map(|at| &outboxes[at])
}

/// The place of that block.
pub fn place_of(outboxes: &[config::Outbox], origin: &Origin) -> Option<usize> {
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
        "column \"{column}\" was not kept, and cannot be read from the table: the row is gone or was never there, or is larger than limits.event"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Columns, Outbox};

    #[test]
    fn the_block_of_a_letter_is_that_of_its_table_or_prefix() {
        let outbox = |source: OutboxSource, payload: &str| Outbox::of(source, Columns::bare("id", payload));
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
