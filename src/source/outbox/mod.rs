//! Messages become steps: the relation cache and the column mapping.
//!
//! pgoutput messages enter in stream order; out come `Row`s with their position, `Mark`s, or nothing. Columns are
//! mapped by name when a `Relation` arrives, so rows cost no look-ups. A row is counted only when it is taken: the
//! same message can be read again after the sink was full, and gets the same position.

mod keep;
mod layout;
mod logical;
mod row;
mod value;

use std::collections::HashMap;

pub use keep::{Kept, block};
pub use layout::{Layout, Place};
pub(crate) use logical::Name;
pub use row::{Row, unix_micros, unix_ms};
pub use value::{Moment, parse_time};

use crate::column::Type;
use crate::config;
use crate::config::OutboxSource;
use crate::error::{Error, Result};
use crate::lsn::{Lsn, Position};
use crate::record::Rejected;
use crate::source::Encoding;
use crate::source::pgoutput::{Message, Relation, RelationColumn, Tuple};
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
    /// Other tables of the publication, as `schema.name`: their rows are counted and ignored.
    others: Vec<String>,
    relations: HashMap<u32, Table>,
    /// What stands for types that are not built in.
    known_types: HashMap<u32, u32>,
    transaction: Option<Transaction>,
    cells: Vec<Cell>,
    /// Of the cells, where no table describes them.
    types: Vec<Type>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Transaction {
    commit: Lsn,
    committed_at: i64,
    rows: u64,
}

/// A table that the server described.
#[derive(Debug)]
enum Table {
    Outbox(Mapping),
    /// Another table, whose rows are counted and ignored.
    Foreign,
    /// A table by this name that looks like an outbox and should not be in the stream: a partition, or an outbox under
    /// another name. Its rows would be events of ours that nobody maps, and must not be passed over. (Its description
    /// alone means nothing: partitions are described even when their rows come under the root's name.)
    Suspect(String),
}

/// Which columns of one table fill which places.
#[derive(Debug)]
struct Mapping {
    table: String,
    schema_and_name: (String, String),
    /// Which `[[outbox]]` block it is.
    outbox: usize,
    /// The type at each place.
    types: Vec<Type>,
    /// In column order.
    columns: Vec<MappedColumn>,
    /// All columns in order, mapped or not, each with its type.
    described: Vec<(String, Type)>,
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
            types: vec![Type::default(); layout.len()],
            layout,
            encoding: Encoding::Binary,
            others: Vec::new(),
            relations: HashMap::new(),
            known_types: HashMap::new(),
            transaction: None,
            scratch: Vec::new(),
        }
    }

    /// A new session: the server will describe its tables again, and starts with a whole transaction.
    ///
    /// `others` are the tables of the publication that are no outbox, as `schema.name`.
    pub fn session_started(&mut self, encoding: Encoding, others: Vec<String>) {
        self.encoding = encoding;
        self.others = others;
        self.relations.clear();
        self.known_types.clear();
        self.transaction = None;
    }

    /// The outboxes that it was made for.
    pub fn outboxes(&self) -> &[config::Outbox] {
        &self.outboxes
    }

    /// True between Begin and Commit.
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// True when nothing was taken yet of the open transaction, or none is open.
    pub fn is_between_transactions(&self) -> bool {
        self.transaction.as_ref().is_none_or(|open| open.rows == 0)
    }

    /// Other places from the next row on: the tables that the server described are mapped anew. Answers with a column that
    /// cannot be read from its binary form, if this session is one of those.
    pub fn lay_out(&mut self, layout: Layout) -> Option<String> {
        self.cells = vec![Cell::Absent; layout.len()];
        self.types = vec![Type::default(); layout.len()];
        self.layout = layout;
        for table in self.relations.values_mut() {
            if let Table::Outbox(mapping) = table {
                let outbox = &self.outboxes[mapping.outbox];
                mapping.map(outbox, &self.layout).expect("what an outbox must have does not change with the routes");
            }
        }
        let mut mapped = self.relations.values().filter_map(Table::mapping);
        match self.encoding {
            Encoding::Binary => mapped.find_map(|mapping| self.unreadable(mapping)),
            Encoding::Text => None,
        }
    }

    /// True when every mapped table seen in this session could be read in binary.
    pub fn fits_binary(&self) -> bool {
        let mut mapped = self.relations.values().filter_map(Table::mapping).peekable();
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
            Message::Type { oid, schema, name } => {
                match Type::named(schema, name) {
                    Some(known) => drop(self.known_types.insert(oid, known)),
                    None => drop(self.known_types.remove(&oid)),
                }
                Ok(Step::Nothing)
            }
            Message::Origin { .. } | Message::Update { .. } | Message::Delete { .. } | Message::Truncate => {
                Ok(Step::Nothing)
            }
        }
    }

    /// The row that `read` gave is accounted for: the next one gets the next number.
    pub fn take(&mut self) {
        count(&mut self.transaction);
    }

    fn relation(&mut self, relation: &Relation<'_>) -> Result<Step<'static>> {
        let outbox = self.outboxes.iter().position(|outbox| match &outbox.source {
            OutboxSource::Table { schema, name } => schema == relation.schema && name == relation.name,
            OutboxSource::MessagePrefix(_) => false,
        });
        let Some(outbox) = outbox else {
            if let Some(known) = self.relations.get(&relation.id).and_then(Table::mapping) {
                return Err(renamed(&known.table, relation));
            }
            let table = self.judge(relation);
            self.relations.insert(relation.id, table);
            return Ok(Step::Nothing);
        };
        let mapping = Mapping::new(relation, &self.known_types, outbox, &self.outboxes[outbox], &self.layout)?;
        let unreadable = self.unreadable(&mapping);
        self.relations.insert(relation.id, Table::Outbox(mapping));
        Ok(match (self.encoding, unreadable) {
            (Encoding::Binary, Some(column)) => Step::TextNeeded(column),
            (Encoding::Binary, None) | (Encoding::Text, _) => Step::Nothing,
        })
    }

    /// What a table that is no configured outbox is: one that has all columns of an outbox, and is not published under
    /// this name, may be an outbox in disguise.
    fn judge(&self, relation: &Relation<'_>) -> Table {
        let name = format!("{}.{}", relation.schema, relation.name);
        let has = |wanted: &str| relation.columns().any(|column| column.name == wanted);
        let looks_like = |outbox: &config::Outbox| {
            let table = matches!(outbox.source, OutboxSource::Table { .. });
            let mut required = self.layout.columns(outbox).filter(|(_, _, presence)| *presence == Presence::Required);
            table && required.all(|(_, column, _)| has(column))
        };
        if !self.others.contains(&name) && self.outboxes.iter().any(looks_like) {
            Table::Suspect(name)
        } else {
            Table::Foreign
        }
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
        let mapping = match self.relations.get(&relation) {
            Some(Table::Outbox(mapping)) => mapping,
            Some(Table::Foreign) => {
                count(&mut self.transaction);
                return Ok(Step::Nothing);
            }
            Some(Table::Suspect(name)) => return Err(unexpected(name)),
            None => {
                let what = format!("the server sent a row of table {relation} without its description");
                return Err(Error::definite(what));
            }
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
                        let row = self.row(position, committed_at, mapping.outbox, &mapping.types, body);
                        return Ok(Step::Rejected(row.rejected("unreadable", message)));
                    }
                }
            }
        }
        if let Some(column) = wanted.next() {
            let what = format!("a row of {} came without its column \"{}\"", mapping.table, column.name);
            return Err(Error::definite(what));
        }
        Ok(row_or_reject(self.row(position, committed_at, mapping.outbox, &mapping.types, body)))
    }

    fn logical<'b>(&'b mut self, prefix: &str, content: &[u8], body: &'b [u8]) -> Result<Step<'b>> {
        let (position, committed_at) = self.next_position()?;
        let Some(outbox) = self.prefixed(prefix) else {
            self.take();
            return Ok(Step::Nothing);
        };
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let read = self.read_logical(outbox, content, body);
        let row = self.row(position, committed_at, outbox, &self.types, body);
        Ok(match read {
            Ok(()) => row_or_reject(row),
            Err(problem) => {
                let message = format!("logical message with prefix \"{prefix}\": {problem}");
                Step::Rejected(row.rejected("unreadable", message))
            }
        })
    }

    /// Fills the cells from a logical message's content, which lies inside `message`.
    fn read_logical(&mut self, outbox: usize, content: &[u8], message: &[u8]) -> std::result::Result<(), String> {
        self.types.fill(Type::default());
        let into = logical::Cells { cells: &mut self.cells, types: &mut self.types, scratch: &mut self.scratch };
        logical::read(content, message, &self.outboxes[outbox], &self.layout, into)
    }

    fn row<'b>(
        &'b self,
        position: Position,
        committed_at: i64,
        outbox: usize,
        types: &'b [Type],
        message: &'b [u8],
    ) -> Row<'b> {
        Row { position, committed_at, outbox, types, cells: &self.cells, message, scratch: &self.scratch }
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

fn count(transaction: &mut Option<Transaction>) {
    transaction.as_mut().expect("a row is read inside a transaction").rows += 1;
}

fn row_or_reject(row: Row<'_>) -> Step<'_> {
    match row.bytes(Place::ID) {
        Some(_) => Step::Row(row),
        None => Step::Rejected(row.rejected("unreadable", "it has no id".into())),
    }
}

impl Table {
    fn mapping(&self) -> Option<&Mapping> {
        match self {
            Table::Outbox(mapping) => Some(mapping),
            Table::Foreign | Table::Suspect(_) => None,
        }
    }
}

impl Mapping {
    /// A table as the server described it, mapped.
    fn new(
        relation: &Relation<'_>,
        known_types: &HashMap<u32, u32>,
        at: usize,
        outbox: &config::Outbox,
        layout: &Layout,
    ) -> Result<Mapping> {
        let type_of = |column: &RelationColumn<'_>| {
            let oid = *known_types.get(&column.type_oid).unwrap_or(&column.type_oid);
            Type { oid, modifier: column.type_modifier }
        };
        let mut mapping = Mapping {
            table: format!("table \"{}.{}\"", relation.schema, relation.name),
            schema_and_name: (relation.schema.to_owned(), relation.name.to_owned()),
            outbox: at,
            types: Vec::new(),
            columns: Vec::new(),
            described: relation.columns().map(|column| (column.name.to_owned(), type_of(&column))).collect(),
        };
        mapping.map(outbox, layout)?;
        Ok(mapping)
    }

    /// Finds the column of each place.
    fn map(&mut self, outbox: &config::Outbox, layout: &Layout) -> Result<()> {
        let table = &self.table;
        self.types = vec![Type::default(); layout.len()];
        self.columns.clear();
        for (place, name, presence) in layout.columns(outbox) {
            let found = self.described.iter().enumerate().find(|(_, (described, _))| described == name);
            match (found, presence) {
                (Some((index, (_, kind))), _) => {
                    let how = kind_of(kind.oid, place).ok_or_else(|| {
                        let part = layout.name(place);
                        Error::definite(format!(
                            "column \"{name}\" of {table} cannot be the {part}: it is not a timestamp"
                        ))
                        .hint(format!(
                            "name a timestamp column in [[outbox]] columns.{part}, or \"\" for the commit time"
                        ))
                    })?;
                    self.types[place.0] = *kind;
                    self.columns.push(MappedColumn { index, place, kind: how, name: name.to_owned() });
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
        self.columns.sort_by_key(|column| (column.index, column.place));
        Ok(())
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

fn renamed(known: &str, relation: &Relation<'_>) -> Error {
    let (schema, name) = (relation.schema, relation.name);
    Error::definite(format!("outbox {known} is now called \"{schema}.{name}\", which is not configured"))
        .hint("name it in [[outbox]] table: the WAL keeps the name that the table had, also after it is renamed back")
}

fn unexpected(table: &str) -> Error {
    Error::definite(format!("the stream has rows of table \"{table}\", which looks like an outbox and is none")).hint(
        "an outbox that was renamed, or a partition while publish_via_partition_root was off: name it in [[outbox]] table, \
         at least until these rows are published. If it is another table: add it to the publication, then its rows are \
         ignored",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::pgoutput;

    const UUID: u32 = 2950;
    const TEXT: u32 = 25;
    const INT8: u32 = 20;
    const JSON: u32 = 114;
    const JSONB: u32 = 3802;
    const BYTEA: u32 = 17;
    const NUMERIC: u32 = 1700;
    const TIMESTAMPTZ: u32 = 1184;

    /// A value as the server sends it.
    #[derive(Clone, Copy)]
    enum Sent<'a> {
        Null,
        Text(&'a [u8]),
        Binary(&'a [u8]),
    }
    use Sent::{Binary, Null, Text};

    /// What a message led to, in a form that outlives it.
    #[derive(Debug, PartialEq)]
    enum Seen {
        Nothing,
        Row(u64, Vec<Option<Vec<u8>>>, std::result::Result<i64, String>),
        Rejected(u64, String, String),
        Mark(Lsn),
        TextNeeded(String),
        Odd(Odd),
    }

    impl Seen {
        fn part(&self, place: Place) -> Option<&str> {
            let Seen::Row(_, cells, _) = self else { panic!("a row, not {self:?}") };
            cells[place.0].as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap())
        }

        fn number(&self) -> u64 {
            match self {
                Seen::Row(number, ..) | Seen::Rejected(number, ..) => *number,
                other => panic!("a row, not {other:?}"),
            }
        }
    }

    fn columns() -> config::Columns {
        config::Columns {
            id: "id".into(),
            aggregate_type: None,
            aggregate_id: None,
            event_type: None,
            payload: "payload".into(),
            timestamp: None,
            headers: None,
            partition: None,
        }
    }

    fn table(name: &str, columns: config::Columns) -> config::Outbox {
        config::Outbox::of(OutboxSource::Table { schema: "app".into(), name: name.into() }, columns)
    }

    fn prefix(columns: config::Columns) -> config::Outbox {
        config::Outbox::of(OutboxSource::MessagePrefix("outbox".into()), columns)
    }

    fn simple() -> Outbox {
        let mut outbox = Outbox::new(&[table("outbox", columns()), prefix(columns())], Layout::default());
        begin(&mut outbox);
        outbox
    }

    fn begin(outbox: &mut Outbox) {
        let begin = Message::Begin { commit_lsn: Lsn(77), committed_at: 1_000_000, xid: 1 };
        assert!(matches!(outbox.read(begin, b"").unwrap(), Step::Nothing));
    }

    fn relation(id: u32, name: &str, columns: &[(&str, u32)]) -> Vec<u8> {
        let mut body = [b"R", &id.to_be_bytes()[..], b"app\0", name.as_bytes(), b"\0d"].concat();
        body.extend((columns.len() as u16).to_be_bytes());
        for (name, oid) in columns {
            body.extend([b"\0", name.as_bytes(), b"\0", &oid.to_be_bytes()[..], &[0xFF; 4]].concat());
        }
        body
    }

    fn insert(id: u32, values: &[Sent<'_>]) -> Vec<u8> {
        let mut body = [b"I", &id.to_be_bytes()[..], b"N", &(values.len() as u16).to_be_bytes()].concat();
        for value in values {
            let (tag, bytes) = match value {
                Null => {
                    body.push(b'n');
                    continue;
                }
                Text(bytes) => (b't', bytes),
                Binary(bytes) => (b'b', bytes),
            };
            body.push(tag);
            body.extend((bytes.len() as u32).to_be_bytes());
            body.extend_from_slice(bytes);
        }
        body
    }

    fn logical(transactional: bool, prefix: &str, content: &str) -> Vec<u8> {
        let head = [b"M", &[u8::from(transactional)][..], &[0; 8], prefix.as_bytes(), b"\0"].concat();
        [&head[..], &(content.len() as u32).to_be_bytes(), content.as_bytes()].concat()
    }

    fn try_read(outbox: &mut Outbox, body: &[u8]) -> Result<Seen> {
        let places = outbox.layout.len();
        Ok(match outbox.read(pgoutput::decode(body).unwrap(), body)? {
            Step::Nothing => Seen::Nothing,
            Step::Row(row) => {
                let cells = (0..places).map(|place| row.bytes(Place(place)).map(<[u8]>::to_vec)).collect();
                Seen::Row(row.position.row, cells, row.timestamp_ms(Place::TIMESTAMP))
            }
            Step::Rejected(Rejected { position, event, rejection, .. }) => {
                Seen::Rejected(position.row, event.unwrap_or_default(), rejection.message)
            }
            Step::Mark(lsn) => Seen::Mark(lsn),
            Step::TextNeeded(column) => Seen::TextNeeded(column),
            Step::Odd(odd) => Seen::Odd(odd),
        })
    }

    /// Reads a message, and counts its row.
    fn read(outbox: &mut Outbox, body: &[u8]) -> Seen {
        let seen = try_read(outbox, body).unwrap();
        if matches!(seen, Seen::Row(..)) {
            outbox.take();
        }
        seen
    }

    #[test]
    fn columns_are_found_by_name_wherever_they_stand() {
        let wide = config::Columns { aggregate_type: Some("kind".into()), ..columns() };
        let mut layout = Layout::default();
        let tenant = layout.place("tenant");
        let nowhere = layout.place("nowhere");
        let mut outbox = Outbox::new(&[table("outbox", columns()), table("other", wide)], layout);
        begin(&mut outbox);
        let first = [("payload", JSON), ("noise", NUMERIC), ("tenant", TEXT), ("id", INT8)];
        assert_eq!(read(&mut outbox, &relation(5, "outbox", &first)), Seen::Nothing);
        assert_eq!(
            read(&mut outbox, &relation(6, "other", &[("kind", TEXT), ("id", TEXT), ("payload", TEXT)])),
            Seen::Nothing
        );
        let seen = read(
            &mut outbox,
            &insert(5, &[Binary(b"{}"), Binary(b"\0\0\0"), Binary(b"acme"), Binary(&9_i64.to_be_bytes())]),
        );
        let parts = [Place::ID, Place::PAYLOAD, tenant, nowhere, Place::AGGREGATE_TYPE].map(|place| seen.part(place));
        assert_eq!(parts, [Some("9"), Some("{}"), Some("acme"), None, None]);
        let seen = read(&mut outbox, &insert(6, &[Binary(b"order"), Binary(b"x-1"), Null]));
        let parts = [Place::ID, Place::PAYLOAD, tenant, nowhere, Place::AGGREGATE_TYPE].map(|place| seen.part(place));
        assert_eq!(parts, [Some("x-1"), None, None, None, Some("order")]);
        assert_eq!(seen.number(), 2);
    }

    #[test]
    fn one_column_may_play_several_parts() {
        let both = config::Columns { aggregate_id: Some("id".into()), ..columns() };
        let mut outbox = Outbox::new(&[table("outbox", both)], Layout::default());
        begin(&mut outbox);
        read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)]));
        let seen = read(&mut outbox, &insert(5, &[Binary(b"a"), Binary(b"b")]));
        assert_eq!((seen.part(Place::ID), seen.part(Place::AGGREGATE_ID)), (Some("a"), Some("a")));
    }

    #[test]
    fn a_missing_mapped_column_is_named_with_its_part() {
        let mapped = config::Columns { aggregate_id: Some("order_id".into()), ..columns() };
        let mut outbox = Outbox::new(&[table("outbox", mapped)], Layout::default());
        let error = try_read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)])).unwrap_err();
        assert!(error.is_definite());
        assert_eq!(
            error.to_string(),
            "table \"app.outbox\" has no column \"order_id\", which is mapped as the aggregate_id"
        );
        assert!(error.hint_text().is_some_and(|hint| hint.contains("[[outbox]] columns.aggregate_id")));
    }

    #[test]
    fn a_column_that_vanishes_in_mid_stream_is_an_error_and_an_unmapped_one_is_not() {
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("extra", NUMERIC), ("payload", TEXT)]));
        assert_eq!(read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)])), Seen::Nothing);
        assert_eq!(read(&mut outbox, &insert(5, &[Binary(b"1"), Binary(b"p")])).part(Place::PAYLOAD), Some("p"));
        assert!(try_read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("body", TEXT)])).is_err());
    }

    #[test]
    fn a_renamed_table_is_an_error_unless_its_new_name_is_an_outbox_too() {
        let shape = [("id", TEXT), ("payload", TEXT)];
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &shape));
        let error = try_read(&mut outbox, &relation(5, "outbox_old", &shape)).unwrap_err();
        let text = "outbox table \"app.outbox\" is now called \"app.outbox_old\", which is not configured";
        assert_eq!(error.to_string(), text);
        let mut outbox = Outbox::new(&[table("a", columns()), table("b", columns())], Layout::default());
        read(&mut outbox, &relation(5, "a", &shape));
        assert_eq!(read(&mut outbox, &relation(5, "b", &shape)), Seen::Nothing);
    }

    #[test]
    fn rows_and_messages_that_are_no_events_count_in_the_row_numbers() {
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)]));
        read(&mut outbox, &relation(6, "foreign", &[("a", NUMERIC)]));
        assert_eq!(read(&mut outbox, &insert(6, &[Binary(b"\0")])), Seen::Nothing);
        assert_eq!(read(&mut outbox, &logical(true, "somebody", "x")), Seen::Nothing);
        assert_eq!(read(&mut outbox, &logical(false, "outbox", "x")), Seen::Odd(Odd::NotTransactional));
        assert_eq!(read(&mut outbox, &logical(false, "somebody", "x")), Seen::Nothing);
        let row = insert(5, &[Binary(b"1"), Binary(b"p")]);
        assert_eq!(read(&mut outbox, &row).number(), 3);
        assert_eq!(read(&mut outbox, &logical(true, "outbox", "{\"id\": 1, \"payload\": 2}")).number(), 4);
        let commit = [b"C\0", &77_u64.to_be_bytes()[..], &90_u64.to_be_bytes(), &[0; 8]].concat();
        assert_eq!(read(&mut outbox, &commit), Seen::Mark(Lsn(90)));
        begin(&mut outbox);
        assert_eq!(read(&mut outbox, &row).number(), 1);
    }

    #[test]
    fn rows_of_an_outbox_under_another_name_are_not_passed_over_and_those_of_other_tables_are() {
        let shape = [("id", TEXT), ("payload", TEXT)];
        let mut outbox = simple();
        outbox.session_started(Encoding::Binary, vec!["app.archive".into()]);
        begin(&mut outbox);
        let row = |table| insert(table, &[Binary(b"1"), Binary(b"p")]);
        read(&mut outbox, &relation(5, "outbox", &shape));
        // A partition is described even when its rows come as its root's.
        read(&mut outbox, &relation(6, "outbox_2026", &shape));
        read(&mut outbox, &relation(7, "orders", &[("id", TEXT), ("total", TEXT)]));
        read(&mut outbox, &relation(8, "archive", &shape));
        assert_eq!(read(&mut outbox, &row(7)), Seen::Nothing, "it does not look like an outbox");
        assert_eq!(read(&mut outbox, &row(8)), Seen::Nothing, "it is in the publication by this name");
        assert_eq!(read(&mut outbox, &row(5)).number(), 3);
        let error = try_read(&mut outbox, &row(6)).unwrap_err();
        assert!(error.to_string().contains("rows of table \"app.outbox_2026\", which looks like an outbox"), "{error}");
    }

    #[test]
    fn a_row_that_is_not_taken_is_read_again_with_the_same_number() {
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &[("id", INT8), ("payload", TEXT)]));
        let (row, message) =
            (insert(5, &[Binary(&7_i64.to_be_bytes()), Null]), logical(true, "outbox", "{\"id\": \"\\n\"}"));
        for body in [&row, &message] {
            let first = try_read(&mut outbox, body).unwrap();
            assert_eq!(try_read(&mut outbox, body).unwrap(), first);
            assert_eq!(read(&mut outbox, body), first);
        }
        assert_eq!(read(&mut outbox, &row).number(), 3);
    }

    #[test]
    fn a_type_that_is_not_read_in_binary_asks_for_text_and_only_there() {
        let mut outbox = simple();
        let numeric = relation(5, "outbox", &[("id", NUMERIC), ("payload", TEXT)]);
        let needed = Seen::TextNeeded("column \"id\" of table \"app.outbox\"".into());
        assert_eq!(read(&mut outbox, &numeric), needed);
        assert!(!outbox.fits_binary());
        outbox.session_started(Encoding::Text, Vec::new());
        assert!(!outbox.fits_binary(), "nothing is known of a session that has described no table");
        begin(&mut outbox);
        assert_eq!(read(&mut outbox, &numeric), Seen::Nothing);
        assert!(!outbox.fits_binary());
        assert_eq!(read(&mut outbox, &insert(5, &[Text(b"1.50"), Null])).part(Place::ID), Some("1.50"));
        assert_eq!(read(&mut outbox, &relation(5, "outbox", &[("id", INT8), ("payload", TEXT)])), Seen::Nothing);
        assert!(outbox.fits_binary());
    }

    #[test]
    fn unmapped_columns_and_foreign_tables_never_ask_for_text() {
        let mut outbox = simple();
        let shape = [("id", TEXT), ("payload", TEXT), ("price", NUMERIC)];
        assert_eq!(read(&mut outbox, &relation(5, "outbox", &shape)), Seen::Nothing);
        assert_eq!(read(&mut outbox, &relation(6, "foreign", &[("price", NUMERIC)])), Seen::Nothing);
    }

    #[test]
    fn a_time_is_read_in_binary_unless_a_pattern_shows_it() {
        let timed = config::Columns { timestamp: Some("at".into()), ..columns() };
        let shape = [("id", TEXT), ("payload", TEXT), ("at", TIMESTAMPTZ)];
        let mut outbox = Outbox::new(&[table("outbox", timed.clone())], Layout::default());
        assert_eq!(read(&mut outbox, &relation(5, "outbox", &shape)), Seen::Nothing);
        for shown in ["timestamp", "at"] {
            let mut layout = Layout::default();
            layout.place(shown);
            let mut outbox = Outbox::new(&[table("outbox", timed.clone())], layout);
            let seen = read(&mut outbox, &relation(5, "outbox", &shape));
            assert_eq!(seen, Seen::TextNeeded("column \"at\" of table \"app.outbox\"".into()), "{shown}");
        }
        let error = try_read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT), ("at", INT8)]));
        let text = "column \"at\" of table \"app.outbox\" cannot be the timestamp: it is not a timestamp";
        assert_eq!(error.unwrap_err().to_string(), text);
    }

    #[test]
    fn the_timestamp_is_the_columns_or_else_the_commits() {
        let timed = config::Columns { timestamp: Some("at".into()), ..columns() };
        let mut outbox = Outbox::new(&[table("outbox", timed.clone()), prefix(timed)], Layout::default());
        begin(&mut outbox);
        read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT), ("at", TIMESTAMPTZ)]));
        let committed = 946_684_801_000;
        for (value, expected) in [
            (Binary(&1_500_i64.to_be_bytes()), Ok(946_684_800_001)),
            (Binary(&(-1_i64).to_be_bytes()), Ok(946_684_799_999)),
            (Binary(&i64::MAX.to_be_bytes()), Ok(committed)),
            (Binary(&i64::MIN.to_be_bytes()), Ok(committed)),
            (Null, Ok(committed)),
            (Text(b"1970-01-01 00:00:00.007+00"), Ok(7)),
            (Text(b"infinity"), Ok(committed)),
            (Text(b"-infinity"), Ok(committed)),
            (Text(b"soon"), Err("\"soon\" is not a timestamp".to_owned())),
        ] {
            let Seen::Row(_, _, time) = read(&mut outbox, &insert(5, &[Binary(b"1"), Null, value])) else { panic!() };
            assert_eq!(time, expected);
        }
        for (member, expected) in
            [("", committed), (", \"at\": null", committed), (", \"at\": \"1970-01-01T00:00:01Z\"", 1000)]
        {
            let message = logical(true, "outbox", &format!("{{\"id\": 1{member}}}"));
            let Seen::Row(_, _, time) = read(&mut outbox, &message) else { panic!() };
            assert_eq!(time, Ok(expected), "{member}");
        }
    }

    #[test]
    fn payloads_arrive_byte_for_byte_in_either_encoding() {
        let json = "{\"a\": 1e400, \"a\": \"\\u00e9\\n😀\", \"b\":[ ]}";
        let binary_jsonb = [b"\x01", json.as_bytes()].concat();
        for (oid, sent, expected) in [
            (JSON, Binary(json.as_bytes()), Some(json.as_bytes())),
            (JSON, Text(json.as_bytes()), Some(json.as_bytes())),
            (JSONB, Binary(&binary_jsonb), Some(json.as_bytes())),
            (JSONB, Text(json.as_bytes()), Some(json.as_bytes())),
            (TEXT, Binary(b""), Some(&b""[..])),
            (TEXT, Text(b""), Some(b"")),
            (TEXT, Binary("😀\r\n\t".as_bytes()), Some("😀\r\n\t".as_bytes())),
            (BYTEA, Binary(b"\0\xFF\\x"), Some(b"\0\xFF\\x")),
            (BYTEA, Text(b"\\x00ff5c78"), Some(b"\0\xFF\\x")),
            (BYTEA, Binary(b""), Some(b"")),
            (BYTEA, Text(b"\\x"), Some(b"")),
            (JSONB, Null, None),
        ] {
            let mut outbox = simple();
            read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", oid)]));
            let Seen::Row(_, cells, _) = read(&mut outbox, &insert(5, &[Binary(b"1"), sent])) else { panic!() };
            assert_eq!(cells[Place::PAYLOAD.0].as_deref(), expected, "{oid}");
        }
    }

    #[test]
    fn ids_read_the_same_in_either_encoding_and_none_is_rejected() {
        let uuid = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 7];
        for (oid, sent, expected) in [
            (UUID, Binary(&uuid[..]), "01234567-89ab-cdef-0001-020304050607"),
            (UUID, Text(b"01234567-89ab-cdef-0001-020304050607"), "01234567-89ab-cdef-0001-020304050607"),
            (INT8, Binary(&i64::MIN.to_be_bytes()), "-9223372036854775808"),
            (INT8, Text(b"42"), "42"),
            (TEXT, Binary("schlüssel".as_bytes()), "schlüssel"),
            (TEXT, Binary(b""), ""),
        ] {
            let mut outbox = simple();
            read(&mut outbox, &relation(5, "outbox", &[("id", oid), ("payload", TEXT)]));
            assert_eq!(read(&mut outbox, &insert(5, &[sent, Null])).part(Place::ID), Some(expected));
        }
        let mut outbox = simple();
        read(&mut outbox, &relation(5, "outbox", &[("id", INT8), ("payload", TEXT)]));
        let seen = read(&mut outbox, &insert(5, &[Null, Binary(b"p")]));
        assert_eq!(seen, Seen::Rejected(1, String::new(), "it has no id".into()));
        let seen = read(&mut outbox, &insert(5, &[Binary(b"odd"), Binary(b"p")]));
        let text = "column \"id\" of table \"app.outbox\": an integer of an unknown size";
        assert_eq!(seen, Seen::Rejected(1, String::new(), text.into()));
    }

    #[test]
    fn a_logical_message_gives_its_payload_as_it_stands() {
        let table = [
            (
                "{\"id\": \"a\\u0062\\\"\", \"payload\": {\"x\" : [1e400,{\"payload\": 2}]} }",
                "ab\"",
                Some("{\"x\" : [1e400,{\"payload\": 2}]}"),
            ),
            ("{\"id\": 12345678901234567890, \"payload\": \"text\\n\"}", "12345678901234567890", Some("\"text\\n\"")),
            ("{\"id\": \"\", \"payload\": null}", "", None),
            ("{\"payload\": 1, \"id\": 1, \"payload\": 2, \"other\": {\"id\": 3}}", "1", Some("2")),
            ("{\"\\u0069d\": true, \"payload\": \"😀\"}", "true", Some("\"😀\"")),
        ];
        for (content, id, payload) in table {
            let mut outbox = simple();
            let seen = read(&mut outbox, &logical(true, "outbox", content));
            assert_eq!((seen.part(Place::ID), seen.part(Place::PAYLOAD)), (Some(id), payload), "{content}");
        }
    }

    #[test]
    fn a_logical_message_that_cannot_be_read_is_rejected_with_what_is_known_of_it() {
        let mut outbox = simple();
        for (content, event, problem) in [
            ("{\"payload\": 1}", "", "it has no id"),
            ("{\"id\": null}", "", "it has no id"),
            ("", "", "its content is not a JSON object"),
            ("[1]", "", "its content is not a JSON object"),
            ("{\"id\": 1} x", "1", "its content is not a JSON object"),
            ("{\"id\": 1, \"payload\": {", "1", "its content is not a JSON object"),
        ] {
            let Seen::Rejected(number, id, message) = read(&mut outbox, &logical(true, "outbox", content)) else {
                panic!("{content} was not rejected")
            };
            assert_eq!((number, &id[..]), (1, event), "{content}");
            assert!(message.contains(problem), "{message}");
        }
    }

    #[test]
    fn what_no_healthy_server_sends_is_a_definite_error() {
        let mut outbox = simple();
        let row = insert(5, &[Binary(b"1"), Null]);
        let told = try_read(&mut outbox, &row).unwrap_err();
        assert_eq!(told.to_string(), "the server sent a row of table 5 without its description");
        read(&mut outbox, &relation(5, "outbox", &[("id", TEXT), ("payload", TEXT)]));
        let told = try_read(&mut outbox, &insert(5, &[Binary(b"1")])).unwrap_err();
        assert_eq!(told.to_string(), "a row of table \"app.outbox\" came without its column \"payload\"");
        outbox.session_started(Encoding::Binary, Vec::new());
        let told = try_read(&mut outbox, &row).unwrap_err();
        assert_eq!(told.to_string(), "the server sent a row outside of a transaction");
        begin(&mut outbox);
        let told = try_read(&mut outbox, &row).unwrap_err();
        assert_eq!(told.to_string(), "the server sent a row of table 5 without its description");
    }
}
