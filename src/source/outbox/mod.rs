//! Messages become steps: the relation cache and the column mapping.
//!
//! pgoutput messages enter in stream order; out come `Row`s with their position, `Mark`s, or nothing. Columns are
//! mapped by name when a `Relation` arrives, so rows cost no look-ups. A row is counted only when it is taken: the
//! same message can be read again after the sink was full, and gets the same position.
//!
//! Where payloads are in a second table, an event waits for its own, and every row of the transaction behind it waits as well:
//! rows leave in the order of their positions. Such rows are counted and taken when they come, and shown when they may leave.

mod forgotten;
mod join;
mod keep;
mod layout;
mod logical;
mod mapping;
mod row;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use join::Waiting;
pub use keep::{Kept, block, payload_column, place_of};
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
use crate::source::pgoutput::{self, Message, Relation, Tuple};
use join::{Joins, Payload, PayloadRow};
use layout::Presence;
use mapping::{Description, Into, Mapping, Side, Table, renamed, unexpected};
use value::Cell;

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

/// Where a row is read from.
#[derive(Debug, Clone, Copy)]
pub enum Given<'b> {
    /// A message as it comes, and the bytes it was decoded from.
    Message(&'b Message<'b>, &'b [u8]),
    /// A row that waited.
    Waiting(&'b Waiting),
}

impl Given<'_> {
    /// False for what begins, ends or describes rows.
    #[inline]
    pub fn may_be_a_row(&self) -> bool {
        matches!(self, Given::Message(Message::Insert { .. } | Message::Logical { .. }, _) | Given::Waiting(_))
    }

    /// True for an event that a limit has parted from its payload row: its letter finds that by SQL.
    pub fn is_given_up(&self) -> bool {
        match self {
            Given::Message(..) => false,
            Given::Waiting(row) => row.is_given_up(),
        }
    }
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
    relations: BTreeMap<u32, Table>,
    /// What stands for types that are not built in.
    known_types: BTreeMap<u32, u32>,
    transaction: Option<Transaction>,
    /// What waits of the open transaction, where an outbox is joined.
    joins: Option<Box<Joins>>,
    cells: Vec<Cell>,
    /// Of the cells, where no table describes them.
    types: Vec<Type>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Transaction {
    commit: Lsn,
    committed_at: i64,
    xid: u32,
    rows: u64,
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
            relations: BTreeMap::new(),
            known_types: BTreeMap::new(),
            transaction: None,
            joins: Joins::new(outboxes),
            scratch: Vec::new(),
        }
    }

    /// The same, with bounds for what waits.
    pub fn within(mut self, limits: &config::Limits) -> Outbox {
        if let Some(joins) = &mut self.joins {
            joins.limit(limits.join, limits.memory);
        }
        self
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
        if let Some(joins) = &mut self.joins {
            joins.clear();
        }
    }

    /// The outboxes that it was made for.
    pub fn outboxes(&self) -> &[config::Outbox] {
        &self.outboxes
    }

    /// True between Begin and Commit.
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// The open transaction's number; 0 when there is none.
    pub fn xid(&self) -> u32 {
        self.transaction.as_ref().map_or(0, |open| open.xid)
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
        for mapping in self.relations.values_mut().filter_map(Table::mapping_mut) {
            let outbox = &self.outboxes[mapping.about.outbox];
            mapping.map(outbox, &self.layout).expect("what an outbox must have does not change with the routes");
        }
        match self.encoding {
            Encoding::Binary => {
                let mut mapped = self.relations.values().filter_map(Table::mapping);
                mapped.find_map(|mapping| mapping.unreadable(&self.layout)).or_else(|| self.unreadable_among_waiting())
            }
            Encoding::Text => None,
        }
    }

    /// Rows that wait may be of a table as it was before it was altered.
    fn unreadable_among_waiting(&self) -> Option<String> {
        self.joins.as_ref()?.descriptions().find_map(|about| {
            Mapping::of(about, &self.relations, &self.outboxes, &self.layout).unreadable(&self.layout)
        })
    }

    /// True when every mapped table seen in this session could be read in binary.
    pub fn fits_binary(&self) -> bool {
        let mut mapped = self.relations.values().filter_map(Table::mapping).peekable();
        mapped.peek().is_some() && mapped.all(|mapping| mapping.unreadable(&self.layout).is_none())
    }

    /// True while rows wait.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.joins.as_ref().is_some_and(|joins| joins.is_waiting())
    }

    /// The transaction has no further rows: what is missing now stays so.
    pub fn end_waiting(&mut self) {
        if let Some(joins) = &mut self.joins {
            joins.end();
        }
    }

    /// The next row that waited and may leave, to be shown and then `released`, or `put_back`. Before each message, until there is
    /// none: what comes later must not pass it.
    pub fn next_waiting(&mut self) -> Option<Waiting> {
        self.joins.as_mut()?.pop(&self.outboxes)
    }

    /// It could not leave, and is the next again.
    pub fn put_back(&mut self, row: Waiting) {
        self.joins.as_mut().expect("it waited").put_back(row);
    }

    /// It has left.
    pub fn released(&mut self, row: Waiting) {
        self.joins.as_mut().expect("it waited").released(row);
    }

    /// Reads what is given.
    #[inline]
    pub fn give<'b>(&'b mut self, given: Given<'b>) -> Result<Step<'b>> {
        match given {
            Given::Message(message, body) => self.read(*message, body),
            Given::Waiting(row) => self.show(row),
        }
    }

    /// Reads one message; `body` is the bytes it was decoded from.
    pub fn read<'b>(&'b mut self, message: Message<'b>, body: &'b [u8]) -> Result<Step<'b>> {
        match message {
            Message::Begin { commit_lsn, committed_at, xid } => {
                self.transaction = Some(Transaction { commit: commit_lsn, committed_at, xid, rows: 0 });
                Ok(Step::Nothing)
            }
            Message::Commit { commit_lsn: _, end_lsn, committed_at: _ } => {
                self.transaction = None;
                if let Some(joins) = &mut self.joins {
                    assert!(!joins.is_waiting(), "what waits leaves before its commit is read");
                    joins.clear();
                }
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
        let known = self.relations.get(&relation.id).and_then(Table::mapping);
        let Some((outbox, side)) = self.find(relation) else {
            if let Some(known) = known {
                return Err(renamed(&known.about, relation));
            }
            let table = self.judge(relation);
            self.relations.insert(relation.id, table);
            return Ok(Step::Nothing);
        };
        let about = Description::new(relation, &self.known_types, outbox, side);
        // Rows that wait are read by the description that they came with.
        let about = match known {
            Some(known) if *known.about == about => known.about.clone(),
            Some(_) | None => Arc::new(about),
        };
        let mapping = Mapping::new(about, &self.outboxes[outbox], &self.layout)?;
        let unreadable = mapping.unreadable(&self.layout);
        let table = match side {
            Side::Events => Table::Outbox(mapping),
            Side::Payloads => Table::Payloads(mapping),
        };
        self.relations.insert(relation.id, table);
        Ok(match (self.encoding, unreadable) {
            (Encoding::Binary, Some(column)) => Step::TextNeeded(column),
            (Encoding::Binary, None) | (Encoding::Text, _) => Step::Nothing,
        })
    }

    /// Which `[[outbox]]` block has this table, and for what.
    fn find(&self, relation: &Relation<'_>) -> Option<(usize, Side)> {
        let wanted = (relation.schema, relation.name);
        self.outboxes.iter().enumerate().find_map(|(at, outbox)| {
            let is_own = outbox.own_table() == Some(wanted);
            let is_joined = outbox.joined_table() == Some(wanted);
            is_own.then_some((at, Side::Events)).or(is_joined.then_some((at, Side::Payloads)))
        })
    }

    /// What a table that is no configured outbox is: one that has all columns of an outbox, and is not published under
    /// this name, may be an outbox in disguise.
    fn judge(&self, relation: &Relation<'_>) -> Table {
        let name = format!("{}.{}", relation.schema, relation.name);
        let has = |wanted: &str| relation.columns().any(|column| column.name == wanted);
        let required = |(_, _, presence): &(Place, &str, Presence)| *presence == Presence::Required;
        let looks_like = |outbox: &config::Outbox| {
            outbox.own_table().is_some()
                && self.layout.columns(outbox).filter(required).all(|(_, column, _)| has(column))
                && outbox.join.as_ref().is_none_or(|join| has(&join.event_column))
        };
        if !self.others.contains(&name) && self.outboxes.iter().any(looks_like) {
            Table::Suspect(name)
        } else {
            Table::Foreign
        }
    }

    fn insert<'b>(&'b mut self, relation: u32, tuple: &Tuple<'b>, body: &'b [u8]) -> Result<Step<'b>> {
        let (position, committed_at) = self.next_position()?;
        let mapping = match self.relations.get(&relation) {
            Some(Table::Outbox(mapping)) => mapping,
            Some(Table::Payloads(mapping)) => {
                let (about, joins) = (mapping.about.clone(), self.joins.as_mut().expect("the table is joined"));
                if let Ok(Some(value)) = mapping.on(tuple, body)? {
                    joins.offer((about.outbox, value), PayloadRow { about, body: body.to_vec() });
                }
                count(&mut self.transaction);
                return Ok(Step::Nothing);
            }
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
        if let Some(joins) = &mut self.joins
            && (mapping.on.is_some() || joins.is_waiting())
        {
            let payload = wanted(mapping, tuple, body)?;
            let about = Some(mapping.about.clone());
            joins.push(Waiting { position, committed_at, body: body.to_vec(), about, payload }, &self.outboxes);
            count(&mut self.transaction);
            return Ok(Step::Nothing);
        }
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let into = Into { cells: &mut self.cells, scratch: &mut self.scratch };
        let problem = mapping.fill(tuple, body, into)?;
        let row = self.row(position, committed_at, mapping.about.outbox, &mapping.types, body);
        Ok(row_or_reject(row, problem))
    }

    /// The row that waited, as it would have been read when it came, with the columns of its payload row.
    fn show<'b>(&'b mut self, waiting: &'b Waiting) -> Result<Step<'b>> {
        let Waiting { position, committed_at, body, about, payload } = waiting;
        let Some(about) = about else {
            let (prefix, content) = message_in(body);
            let outbox = self.prefixed(prefix).expect("it was found by its prefix");
            return Ok(self.event(outbox, prefix, content, (*position, *committed_at, body)));
        };
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let (outboxes, layout) = (&self.outboxes, &self.layout);
        let own = Mapping::of(about, &self.relations, outboxes, layout);
        self.types.copy_from_slice(&own.types);
        let into = Into { cells: &mut self.cells, scratch: &mut self.scratch };
        let mut problem = own.fill(&tuple_in(body), body, into)?;
        if let (None, Payload::Found(joined)) = (&problem, payload) {
            let mapping = Mapping::of(&joined.about, &self.relations, outboxes, layout);
            let into = Into { cells: &mut self.cells, scratch: &mut self.scratch };
            problem = mapping.fill_open(&tuple_in(&joined.body), &joined.body, &mut self.types, into)?;
        }
        let row = self.row(*position, *committed_at, about.outbox, &self.types, body);
        Ok(row_or_reject(Row { missing: waiting.missing(), ..row }, problem))
    }

    fn logical<'b>(&'b mut self, prefix: &str, content: &[u8], body: &'b [u8]) -> Result<Step<'b>> {
        let (position, committed_at) = self.next_position()?;
        let Some(outbox) = self.prefixed(prefix) else {
            self.take();
            return Ok(Step::Nothing);
        };
        if let Some(joins) = self.joins.as_mut().filter(|joins| joins.is_waiting()) {
            let payload = Payload::Own;
            let row = Waiting { position, committed_at, body: body.to_vec(), about: None, payload };
            joins.push(row, &self.outboxes);
            self.take();
            return Ok(Step::Nothing);
        }
        Ok(self.event(outbox, prefix, content, (position, committed_at, body)))
    }

    /// The event in a logical message.
    fn event<'b>(
        &'b mut self,
        outbox: usize,
        prefix: &str,
        content: &[u8],
        (position, committed_at, body): (Position, i64, &'b [u8]),
    ) -> Step<'b> {
        self.cells.fill(Cell::Absent);
        self.scratch.clear();
        let problem = self.read_logical(outbox, content, body).err();
        let problem = problem.map(|problem| format!("logical message with prefix \"{prefix}\": {problem}"));
        row_or_reject(self.row(position, committed_at, outbox, &self.types, body), problem)
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
        let (xid, cells, scratch) = (self.xid(), &self.cells[..], &self.scratch[..]);
        Row { position, committed_at, xid, outbox, missing: None, types, cells, message, scratch }
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

#[inline(always)]
fn row_or_reject(row: Row<'_>, problem: Option<String>) -> Step<'_> {
    if problem.is_none() && row.bytes(Place::ID).is_some() { Step::Row(row) } else { unreadable(&row, problem) }
}

#[cold]
fn unreadable<'b>(row: &Row<'b>, problem: Option<String>) -> Step<'b> {
    Step::Rejected(row.rejected("unreadable", problem.unwrap_or_else(|| "it has no id".into())))
}

/// What a row must wait for.
fn wanted(mapping: &Mapping, row: &Tuple<'_>, message: &[u8]) -> Result<Payload> {
    let Some(on) = &mapping.on else { return Ok(Payload::Own) };
    Ok(match mapping.on(row, message)? {
        Ok(Some(value)) => Payload::Wanted((mapping.about.outbox, value)),
        Ok(None) => Payload::Missing(format!("its column \"{}\" is NULL, so that it has no payload row", on.name)),
        Err(problem) => Payload::Missing(problem),
    })
}

/// The row in a message that was read before.
fn tuple_in(body: &[u8]) -> Tuple<'_> {
    match pgoutput::decode(body) {
        Ok(Message::Insert { row, .. }) => row,
        Ok(_) | Err(_) => panic!("what waits with a table is a row"),
    }
}

/// The prefix and content of a message that was read before.
fn message_in(body: &[u8]) -> (&str, &[u8]) {
    match pgoutput::decode(body) {
        Ok(Message::Logical { prefix, content, .. }) => (prefix, content),
        Ok(_) | Err(_) => panic!("what waits without a table is a message"),
    }
}

#[cfg(test)]
mod tests;
