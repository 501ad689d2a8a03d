//! Tables as the server describes them, and which of their columns fill which places.
//!
//! A `Relation` enters, a `Mapping` leaves, or the error that says which column is missing. An outbox has one table, or two
//! that are joined; what the second one fills is only what the first one leaves open.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::layout::{Layout, Place, Presence};
use super::value::{self, Cell, Kind};
use crate::column::Type;
use crate::config;
use crate::error::{Error, Result};
use crate::source::pgoutput::{Relation, RelationColumn, Tuple, Value};

/// A table that the server described.
#[derive(Debug)]
pub(super) enum Table {
    /// Its rows are events.
    Outbox(Mapping),
    /// Its rows are what the events of an outbox are joined with.
    Payloads(Mapping),
    /// Another table, whose rows are counted and ignored.
    Foreign,
    /// A table by this name that looks like an outbox and should not be in the stream: a partition, or an outbox under
    /// another name. Its rows would be events of ours that nobody maps, and must not be passed over. (Its description
    /// alone means nothing: partitions are described even when their rows come under the root's name.)
    Suspect(String),
}

impl Table {
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        match self {
            Table::Outbox(mapping) | Table::Payloads(mapping) => Some(mapping),
            Table::Foreign | Table::Suspect(_) => None,
        }
    }

    pub(super) fn mapping_mut(&mut self) -> Option<&mut Mapping> {
        match self {
            Table::Outbox(mapping) | Table::Payloads(mapping) => Some(mapping),
            Table::Foreign | Table::Suspect(_) => None,
        }
    }
}

/// A table as the server described it. Rows that wait keep theirs: the table may be altered behind them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) relation: u32,
    pub(super) schema: String,
    pub(super) name: String,
    /// Which `[[outbox]]` block it is of.
    pub(super) outbox: usize,
    pub(super) side: Side,
    /// All columns in order, mapped or not, each with its type.
    pub(super) columns: Vec<(String, Type)>,
}

/// Which of an outbox's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Events,
    Payloads,
}

impl Description {
    pub(super) fn new(relation: &Relation<'_>, known_types: &BTreeMap<u32, u32>, outbox: usize, side: Side) -> Self {
        let type_of = |column: &RelationColumn<'_>| {
            let oid = *known_types.get(&column.type_oid).unwrap_or(&column.type_oid);
            Type { oid, modifier: column.type_modifier }
        };
        Description {
            relation: relation.id,
            schema: relation.schema.to_owned(),
            name: relation.name.to_owned(),
            outbox,
            side,
            columns: relation.columns().map(|column| (column.name.to_owned(), type_of(&column))).collect(),
        }
    }

    /// For messages.
    pub(super) fn table(&self) -> String {
        format!("table \"{}.{}\"", self.schema, self.name)
    }

    fn column(&self, name: &str) -> Option<(usize, Type)> {
        self.columns.iter().position(|(known, _)| known == name).map(|at| (at, self.columns[at].1))
    }
}

/// Which columns of one table fill which places.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    pub(super) about: Arc<Description>,
    /// The type at each place.
    pub(super) types: Vec<Type>,
    /// In column order.
    pub(super) columns: Vec<MappedColumn>,
    /// The column that two tables are joined on.
    pub(super) on: Option<MappedColumn>,
}

#[derive(Debug, Clone)]
pub(super) struct MappedColumn {
    index: usize,
    place: Place,
    kind: Kind,
    pub(super) name: String,
}

/// Where rendered columns go.
pub(super) struct Into<'a> {
    pub(super) cells: &'a mut [Cell],
    pub(super) scratch: &'a mut Vec<u8>,
}

impl Mapping {
    /// A table as the server described it, mapped.
    pub(super) fn new(about: Arc<Description>, outbox: &config::Outbox, layout: &Layout) -> Result<Mapping> {
        let mut mapping = Mapping { about, types: Vec::new(), columns: Vec::new(), on: None };
        mapping.map(outbox, layout)?;
        Ok(mapping)
    }

    /// The mapping of a row that waited: the table's, or one of its own if the table was described anew since.
    pub(super) fn of<'m>(
        about: &Arc<Description>,
        relations: &'m BTreeMap<u32, Table>,
        outboxes: &[config::Outbox],
        layout: &Layout,
    ) -> Cow<'m, Mapping> {
        match relations.get(&about.relation).and_then(Table::mapping) {
            Some(mapping) if Arc::ptr_eq(&mapping.about, about) => Cow::Borrowed(mapping),
            Some(_) | None => {
                let mapping = Mapping::new(about.clone(), &outboxes[about.outbox], layout);
                Cow::Owned(mapping.expect("what was mapped once can be mapped again"))
            }
        }
    }

    /// Finds the column of each place.
    pub(super) fn map(&mut self, outbox: &config::Outbox, layout: &Layout) -> Result<()> {
        self.types = vec![Type::default(); layout.len()];
        self.columns.clear();
        match self.about.side {
            Side::Events => self.map_each(layout.columns(outbox), layout)?,
            Side::Payloads => self.map_each(layout.joined(outbox), layout)?,
        }
        self.columns.sort_by_key(|column| (column.index, column.place));
        self.on = match &outbox.join {
            Some(join) => Some(self.map_on(match self.about.side {
                Side::Events => &join.event_column,
                Side::Payloads => &join.payload_column,
            })?),
            None => None,
        };
        Ok(())
    }

    fn map_each<'a>(
        &mut self,
        wanted: impl Iterator<Item = (Place, &'a str, Presence)>,
        layout: &Layout,
    ) -> Result<()> {
        for (place, name, presence) in wanted {
            match (self.about.column(name), presence) {
                (Some((index, kind)), _) => {
                    let how = kind_of(kind.oid, place).ok_or_else(|| no_time(&self.about, name, layout.name(place)))?;
                    self.types[place.0] = kind;
                    self.columns.push(MappedColumn { index, place, kind: how, name: name.to_owned() });
                }
                (None, Presence::Required) => {
                    let part = layout.name(place);
                    return Err(missing(
                        &self.about,
                        name,
                        &format!("mapped as the {part}"),
                        &format!("columns.{part}"),
                    ));
                }
                (None, Presence::Optional) => {}
            }
        }
        Ok(())
    }

    fn map_on(&self, name: &str) -> Result<MappedColumn> {
        let Some((index, kind)) = self.about.column(name) else {
            return Err(missing(&self.about, name, "what join is on", "join.on"));
        };
        Ok(MappedColumn { index, place: Place::PAYLOAD, kind: Kind::of(kind.oid), name: name.to_owned() })
    }

    /// The first column whose binary form does not give what is needed of it.
    pub(super) fn unreadable(&self, layout: &Layout) -> Option<String> {
        let is_unreadable = |column: &MappedColumn, is_time: bool| match column.kind {
            Kind::Time => !is_time,
            Kind::Unknown => true,
            Kind::Raw | Kind::Uuid | Kind::Int | Kind::Bool | Kind::Jsonb | Kind::Bytea => false,
        };
        let mapped = self.columns.iter().find(|column| is_unreadable(column, layout.is_time(column.place)));
        let column = mapped.or(self.on.as_ref().filter(|on| is_unreadable(on, false)))?;
        Some(format!("column \"{}\" of {}", column.name, self.about.table()))
    }

    /// Renders the row's columns into their places; answers with what is wrong with one of them, if that is the event's fault.
    #[inline]
    pub(super) fn fill(&self, row: &Tuple<'_>, message: &[u8], into: Into<'_>) -> Result<Option<String>> {
        let (mut values, mut read, mut value) = (row.columns(), 0, Value::Null);
        for column in &self.columns {
            while read <= column.index {
                value = values.next().ok_or_else(|| self.short(column))?;
                read += 1;
            }
            match value::render(value, column.kind, message, into.scratch) {
                Ok(cell) => into.cells[column.place.0] = cell,
                Err(problem) => return Ok(Some(self.problem(column, &problem))),
            }
        }
        Ok(None)
    }

    /// The same for a joined row, whose message is another one: only what is open is filled, and all of it is copied.
    pub(super) fn fill_open(
        &self,
        row: &Tuple<'_>,
        message: &[u8],
        types: &mut [Type],
        into: Into<'_>,
    ) -> Result<Option<String>> {
        let mut found = vec![Cell::Absent; into.cells.len()];
        let problem = self.fill(row, message, Into { cells: &mut found, scratch: into.scratch })?;
        for (place, cell) in found.into_iter().enumerate() {
            if into.cells[place] != Cell::Absent {
                continue;
            }
            types[place] = self.types[place];
            into.cells[place] = match cell {
                Cell::Message(range) => {
                    let start = into.scratch.len();
                    into.scratch.extend_from_slice(&message[range]);
                    Cell::Scratch(start..into.scratch.len())
                }
                Cell::Absent | Cell::Null | Cell::Scratch(_) | Cell::Time(_) => cell,
            };
        }
        Ok(problem)
    }

    /// What the row is joined on: `None` when that is NULL, or what is wrong with it.
    pub(super) fn on(&self, row: &Tuple<'_>, message: &[u8]) -> Result<std::result::Result<Option<Vec<u8>>, String>> {
        let on = self.on.as_ref().expect("only rows of a joined outbox are asked");
        let Some(value) = row.columns().nth(on.index) else { return Err(self.short(on)) };
        let mut scratch = Vec::new();
        Ok(match value::render(value, on.kind, message, &mut scratch) {
            Ok(Cell::Absent | Cell::Null) => Ok(None),
            Ok(Cell::Message(range)) => Ok(Some(message[range].to_vec())),
            Ok(Cell::Scratch(range)) => Ok(Some(scratch[range].to_vec())),
            Ok(Cell::Time(_)) => Err(self.problem(on, "a time that was not sent as text")),
            Err(problem) => Err(self.problem(on, &problem)),
        })
    }

    fn problem(&self, column: &MappedColumn, problem: &str) -> String {
        format!("column \"{}\" of {}: {problem}", column.name, self.about.table())
    }

    fn short(&self, column: &MappedColumn) -> Error {
        Error::definite(format!("a row of {} came without its column \"{}\"", self.about.table(), column.name))
    }
}

/// `None` when the type cannot play its part at all.
fn kind_of(type_oid: u32, place: Place) -> Option<Kind> {
    match Kind::of(type_oid) {
        Kind::Time => Some(Kind::Time),
        _ if place == Place::TIMESTAMP => None,
        kind => Some(kind),
    }
}

fn no_time(about: &Description, name: &str, part: &str) -> Error {
    let table = about.table();
    Error::definite(format!("column \"{name}\" of {table} cannot be the {part}: it is not a timestamp"))
        .hint(format!("name a timestamp column in [[outbox]] columns.{part}, or \"\" for the commit time"))
}

fn missing(about: &Description, name: &str, purpose: &str, field: &str) -> Error {
    let table = about.table();
    Error::definite(format!("{table} has no column \"{name}\", which is {purpose}")).hint(format!(
        "the WAL describes each row by the table as it was: name a column that it had then in [[outbox]] {field}, at least until \
         these rows are published; a column put back helps later rows only"
    ))
}

/// A table of ours came under a name that is not configured.
pub(super) fn renamed(known: &Description, relation: &Relation<'_>) -> Error {
    let (schema, name) = (relation.schema, relation.name);
    let (what, field) = match known.side {
        Side::Events => ("outbox", "table"),
        Side::Payloads => ("joined", "join.table"),
    };
    let known = known.table();
    Error::definite(format!("{what} {known} is now called \"{schema}.{name}\", which is not configured")).hint(format!(
        "name it in [[outbox]] {field}: the WAL keeps the name that the table had, also after it is renamed back"
    ))
}

/// Rows of a table came that may be ours under another name.
pub(super) fn unexpected(table: &str) -> Error {
    Error::definite(format!("the stream has rows of table \"{table}\", which looks like an outbox and is none")).hint(
        "an outbox that was renamed, or a partition while publish_via_partition_root was off: name it in [[outbox]] table, \
         at least until these rows are published. If it is another table: add it to the publication, then its rows are \
         ignored",
    )
}
