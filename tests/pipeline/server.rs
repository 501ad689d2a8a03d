//! A scripted PostgreSQL: a WAL of committed transactions, a slot, and a walsender that speaks pgoutput.
//!
//! The model is what the relay may rely on and no more: transactions in commit order, those whose commit lies before
//! the slot's position are skipped, tables are described before their first row in a session and after each change,
//! keepalives come between and inside transactions, answered questions and unasked ones look alike.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use outboxd::column::Type;
use outboxd::dead_letter::Column;
use outboxd::lsn::{Lsn, Position};
use outboxd::source::wire::Frame;
use outboxd::source::{Encoding, System};

use crate::dice::Dice;

/// All events ever committed; an event's id is its index.
pub type Events = Vec<Event>;

/// Topics, each fed by its own aggregate type.
pub const TOPICS: u64 = 2;
pub const KEYS: u64 = 4;

/// One committed event, as the application meant it.
#[derive(Debug, Clone)]
pub struct Event {
    /// Also its id in the table.
    pub id: u64,
    pub topic: u64,
    pub key: u64,
    pub position: Position,
    /// The table had the column that only text can show.
    pub has_remark: bool,
    /// Its payload is a row of another table.
    pub joined: bool,
    /// Where its row is; `None`: it is a logical message.
    pub table: Option<&'static str>,
    /// Lost in a failover.
    pub void: bool,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    pub commit: Lsn,
    pub end: Lsn,
    items: Vec<Item>,
    /// The tables as it left them.
    catalog: Catalog,
}

impl Transaction {
    /// How many rows and messages it has.
    pub fn rows(&self) -> usize {
        self.items.len()
    }

    /// The ids of its events.
    pub fn events(&self) -> impl Iterator<Item = u64> + '_ {
        self.items.iter().filter_map(|item| match item {
            Item::Row { event, .. } | Item::Message { event } => Some(*event),
            Item::Body { .. } | Item::Foreign(_) | Item::ForeignMessage | Item::Loose => None,
        })
    }
}

#[derive(Debug, Clone)]
enum Item {
    /// A row of an outbox table, as the table was then.
    Row { event: u64, table: Table },
    /// The payload of such a row, where that has none itself.
    Body { event: u64, table: Table },
    /// A logical message with the outbox prefix.
    Message { event: u64 },
    /// A row of a table that is published and not an outbox.
    Foreign(Table),
    /// A logical message for somebody else.
    ForeignMessage,
    /// A message outside of the transaction, sent while it was open.
    Loose,
}

/// The tables of the publication. Re-creating one takes the next oid; a failover forgets which oids were taken, so
/// that an oid can be another table's afterwards.
#[derive(Debug, Clone, Copy)]
struct Catalog {
    tables: [Table; 4],
    next_oid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    name: &'static str,
    oid: u32,
    shape: Shape,
}

/// A type of somebody's own: nobody knows its binary form.
const MOOD: u32 = 16385;
/// What its column says.
pub const REMARK: &str = "happy";
/// The table that is no outbox, among the tables.
const FOREIGN: usize = 2;
/// The outbox whose payloads are in a table of their own, and that one.
const JOINED: &str = "second";
const BODIES: usize = 3;

/// What ALTER TABLE did to an outbox table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Widened,
    /// The aggregate id is numeric: readable in text only.
    Numeric,
}

impl Catalog {
    fn new() -> Catalog {
        let table = |name, oid| Table { name, oid, shape: Shape::Plain };
        let tables = [table("first", 500), table(JOINED, 501), table("foreign", 502), table("bodies", 503)];
        Catalog { tables, next_oid: 504 }
    }

    /// A table, perhaps altered or dropped and created again just now.
    fn table(&mut self, index: usize, dice: &mut Dice) -> Table {
        let table = &mut self.tables[index];
        if index != FOREIGN && dice.once_in(20) {
            let shapes = [Shape::Plain, Shape::Widened, Shape::Numeric, Shape::Plain];
            table.shape = shapes[dice.index(shapes.len())];
        }
        if dice.once_in(10) {
            self.create_again(index);
        }
        self.tables[index]
    }

    fn create_again(&mut self, index: usize) {
        self.tables[index].oid = self.next_oid;
        self.next_oid += 1;
    }
}

/// The database server.
pub struct Server {
    epoch: Instant,
    pub system: System,
    pub transactions: Vec<Transaction>,
    pub wal_end: Lsn,
    /// The slot's confirmed position, and what of it a crash leaves.
    pub confirmed: Lsn,
    durable: Lsn,
    catalog: Catalog,
    sessions: u64,
    pub session: Option<Walsender>,
    /// Its shutdown waits for the walsender.
    pub stopping: bool,
    /// What a relay was shown that it could misunderstand.
    pub shown: BTreeSet<&'static str>,
}

/// One streaming session.
pub struct Walsender {
    /// Which connection it serves.
    pub serial: u64,
    encoding: Encoding,
    cursor: usize,
    /// The next item of the open transaction; `None` between transactions.
    item: Option<usize>,
    described: Vec<Table>,
    sent: Lsn,
    answers: u64,
    heard: Instant,
    pinged: bool,
}

/// A frame that owns its bytes.
#[derive(Debug, Clone)]
pub enum OwnedFrame {
    Data { wal_end: Lsn, sent: Instant, sent_at: i64, body: Vec<u8> },
    Keepalive { wal_end: Lsn, sent: Instant, sent_at: i64, reply_requested: bool },
}

impl OwnedFrame {
    pub fn frame(&self) -> Frame<'_> {
        match self {
            OwnedFrame::Data { wal_end, sent: _, sent_at, body } => {
                Frame::Data { wal_end: *wal_end, sent_at: *sent_at, body }
            }
            OwnedFrame::Keepalive { wal_end, sent: _, sent_at, reply_requested } => {
                Frame::Keepalive { wal_end: *wal_end, sent_at: *sent_at, reply_requested: *reply_requested }
            }
        }
    }
}

impl Server {
    pub fn new(epoch: Instant) -> Server {
        let start = Lsn(1000);
        Server {
            epoch,
            system: System { id: 7, timeline: 1 },
            transactions: Vec::new(),
            wal_end: start,
            confirmed: start,
            durable: start,
            catalog: Catalog::new(),
            sessions: 0,
            session: None,
            stopping: false,
            shown: BTreeSet::new(),
        }
    }

    /// The application commits something. So many of a hundred payloads in a table of their own are forgotten; answers with their
    /// events.
    pub fn commit(&mut self, bodiless: u64, events: &mut Events, dice: &mut Dice) -> Vec<u64> {
        let commit = Lsn(self.wal_end.0 + dice.between(1, 40));
        let end = Lsn(commit.0 + dice.between(1, 10));
        let count = if dice.once_in(12) { dice.between(8, 40) } else { dice.below(5) };
        let mut items = Vec::new();
        let first = events.len();
        for _ in 0..count {
            let item = match dice.below(12) {
                0 => Item::Foreign(self.catalog.table(FOREIGN, dice)),
                1 => Item::ForeignMessage,
                2 => Item::Loose,
                3 => Item::Message { event: events.len() as u64 },
                _ => {
                    let outbox = usize::from(dice.once_in(3));
                    let table = self.catalog.table(outbox, dice);
                    Item::Row { event: events.len() as u64, table }
                }
            };
            if let Item::Row { event: id, .. } | Item::Message { event: id } = item {
                let (topic, key) = (dice.below(TOPICS), dice.below(KEYS));
                let has_remark = matches!(item, Item::Row { table, .. } if table.shape == Shape::Widened);
                let table = table_of(&item).map(|table| table.name);
                let (position, joined) = (Position { commit, row: 0 }, table == Some(JOINED));
                events.push(Event { id, topic, key, position, has_remark, joined, table, void: false });
            }
            items.push(item);
        }
        let forgotten = self.add_bodies(&mut items, &events[first..], bodiless, dice);
        let counted = items.iter().filter(|item| !matches!(item, Item::Loose));
        for (row, item) in (1..).zip(counted) {
            if let Item::Row { event, .. } | Item::Message { event } = item {
                events[*event as usize].position.row = row;
            }
        }
        self.transactions.push(Transaction { commit, end, items, catalog: self.catalog });
        self.wal_end = end;
        forgotten
    }

    /// Payloads of joined events, mostly near them, before or behind.
    fn add_bodies(&mut self, items: &mut Vec<Item>, events: &[Event], bodiless: u64, dice: &mut Dice) -> Vec<u64> {
        let mut forgotten = Vec::new();
        for id in events.iter().filter(|event| event.joined).map(|event| event.id) {
            if dice.hits(bodiless) {
                forgotten.push(id);
                continue;
            }
            let is_its = |item: &Item| matches!(item, Item::Row { event, .. } if *event == id);
            let own = items.iter().position(is_its).expect("its row is there");
            let near = (own + dice.index(7)).saturating_sub(3).min(items.len());
            let at = if dice.once_in(8) { dice.index(items.len() + 1) } else { near };
            self.shown.insert(if at > own { "payload behind its event" } else { "payload before its event" });
            let table = self.catalog.table(BODIES, dice);
            items.insert(at, Item::Body { event: id, table });
        }
        forgotten
    }

    /// Somebody else writes WAL.
    pub fn unrelated(&mut self, dice: &mut Dice) {
        self.wal_end = Lsn(self.wal_end.0 + dice.between(1, 100));
    }

    /// The slot reaches the disk, as at a checkpoint.
    pub fn checkpoint(&mut self) {
        self.durable = self.confirmed;
    }

    /// Everything that was not on disk is gone; WAL that was sent was on disk.
    pub fn crash(&mut self) {
        self.session = None;
        self.stopping = false;
        self.confirmed = self.durable;
    }

    /// A standby takes over: its slot may be older, its WAL may end earlier, and LSNs are used again. It has this commit.
    pub fn fail_over(&mut self, has: Lsn, events: &mut Events, dice: &mut Dice) {
        self.crash();
        let is_kept = |transaction: &&Transaction| transaction.commit < self.confirmed || transaction.commit <= has;
        let kept = self.transactions.iter().filter(is_kept).count();
        let keep = kept + dice.index(self.transactions.len() - kept + 1);
        for id in self.transactions.drain(keep..).flat_map(|lost| lost.events().collect::<Vec<_>>()) {
            events[id as usize].void = true;
        }
        // Tables that were created in what is lost are created again, and not in the same order.
        self.catalog = self.transactions.last().map_or_else(Catalog::new, |last| last.catalog);
        self.catalog.create_again(dice.index(self.catalog.tables.len()));
        let end = self.transactions.last().map_or(Lsn::ZERO, |transaction| transaction.end);
        self.wal_end = end.max(self.confirmed);
        self.system.timeline += 1;
    }

    /// The database is restored in another cluster, with a new slot.
    pub fn relocate(&mut self) {
        let relocated = Server::new(self.epoch);
        let system = System { id: self.system.id + 1, ..relocated.system };
        let shown = std::mem::take(&mut self.shown);
        *self = Server { system, sessions: self.sessions, shown, ..relocated };
    }

    /// A column that was not kept of a letter, read from its table: only one can be missing.
    pub fn read_again(&self, name: String) -> Column {
        Column { name, kind: Type::of(MOOD), value: Some(REMARK.into()) }
    }

    /// A walsender starts where the slot stands. `None` while another one holds the slot.
    pub fn start(&mut self, encoding: Encoding, now: Instant) -> Option<u64> {
        if self.session.is_some() {
            return None;
        }
        let cursor = self.transactions.iter().take_while(|transaction| transaction.commit < self.confirmed).count();
        self.sessions += 1;
        self.session = Some(Walsender {
            serial: self.sessions,
            encoding,
            cursor,
            item: None,
            described: Vec::new(),
            sent: self.confirmed,
            answers: 0,
            heard: now,
            pinged: false,
        });
        Some(self.sessions)
    }

    /// True while the walsender of this connection runs.
    pub fn serves(&self, serial: u64) -> bool {
        self.session.as_ref().is_some_and(|session| session.serial == serial)
    }

    /// A status update arrives.
    pub fn hear(&mut self, serial: u64, confirmed: Lsn, reply_wanted: bool, now: Instant) {
        let Some(session) = self.session.as_mut().filter(|session| session.serial == serial) else { return };
        session.heard = now;
        session.pinged = false;
        session.answers += u64::from(reply_wanted);
        self.confirmed = self.confirmed.max(confirmed);
    }

    /// The client of this connection has ended it.
    pub fn let_go(&mut self, serial: u64) {
        if self.serves(serial) {
            self.session = None;
        }
    }

    /// The walsender gives up on a client that it has not heard for too long.
    pub fn expire(&mut self, sender_timeout: Duration, now: Instant) {
        if self.session.as_ref().is_some_and(|session| now >= session.heard + sender_timeout) {
            self.session = None;
        }
    }

    /// What the server's clock shows: it is not ours.
    pub fn clock(&self, now: Instant) -> i64 {
        now.duration_since(self.epoch).as_micros() as i64 - 86_400_000_000
    }

    /// What the walsender sends next, if anything.
    pub fn send(
        &mut self,
        events: &Events,
        sender_timeout: Duration,
        now: Instant,
        dice: &mut Dice,
    ) -> Option<OwnedFrame> {
        let sent_at = self.clock(now);
        let session = self.session.as_mut()?;
        let next = self.transactions.get(session.cursor);
        if session.answers > 0 {
            session.answers -= 1;
            return Some(OwnedFrame::Keepalive { wal_end: session.sent, sent: now, sent_at, reply_requested: false });
        }
        if !session.pinged && (now >= session.heard + sender_timeout / 2 || self.stopping) {
            session.pinged = true;
            return Some(OwnedFrame::Keepalive { wal_end: session.sent, sent: now, sent_at, reply_requested: true });
        }
        // Unasked: between transactions up to the next commit, inside one without meaning.
        if dice.once_in(10) && !session.pinged {
            let inside = session.item.is_some();
            let limit = if inside { self.wal_end } else { next.map_or(self.wal_end, |next| next.commit) };
            let limit = limit.max(session.sent);
            let wal_end = if dice.hits(50) { limit } else { Lsn(dice.between(session.sent.0, limit.0)) };
            if inside {
                self.shown.insert("keepalive inside a transaction");
            } else {
                session.sent = wal_end;
            }
            return Some(OwnedFrame::Keepalive { wal_end, sent: now, sent_at, reply_requested: false });
        }
        let transaction = next?;
        let body = match session.item {
            Some(_) if dice.once_in(60) => Bytes::new(b'Y').u32(16390).text("public").text("mood").0,
            Some(_) if dice.once_in(60) => Bytes::new(b'A').u32(700).u32(701).0,
            None => {
                session.item = Some(0);
                Bytes::new(b'B').lsn(transaction.commit).i64(5).u32(700).0
            }
            Some(at) if at == transaction.items.len() => {
                session.item = None;
                session.cursor += 1;
                session.sent = session.sent.max(transaction.end);
                Bytes::new(b'C').u8(0).lsn(transaction.commit).lsn(transaction.end).i64(5).0
            }
            Some(at) => {
                let item = &transaction.items[at];
                match table_of(item) {
                    Some(table) if !session.described.contains(&table) => {
                        let known = session.described.len();
                        session.described.retain(|known| known.oid != table.oid);
                        if session.described.len() < known {
                            self.shown.insert("table described anew");
                        }
                        session.described.push(table);
                        relation(table)
                    }
                    Some(_) | None => {
                        session.item = Some(at + 1);
                        item_body(item, events, session.encoding)
                    }
                }
            }
        };
        Some(OwnedFrame::Data { wal_end: session.sent, sent: now, sent_at, body })
    }
}

fn table_of(item: &Item) -> Option<Table> {
    match item {
        Item::Row { table, .. } | Item::Body { table, .. } | Item::Foreign(table) => Some(*table),
        Item::Message { .. } | Item::ForeignMessage | Item::Loose => None,
    }
}

fn relation(Table { name, oid, shape }: Table) -> Vec<u8> {
    let numeric = if shape == Shape::Numeric { 1700 } else { 25 };
    let mut columns = match name {
        "bodies" => vec![("event", numeric)],
        _ => vec![("id", 20), ("aggregate_type", 25), ("aggregate_id", numeric)],
    };
    if name != JOINED {
        columns.push(("payload", 3802));
    }
    if shape == Shape::Widened {
        // What a joined table has under the same name would be the event's.
        columns.insert(1, (if name == "bodies" { "note" } else { "remark" }, MOOD));
    }
    let head = Bytes::new(b'R').u32(oid).text("public").text(name).u8(b'd').u16(columns.len() as u16);
    columns.iter().fold(head, |bytes, (name, oid)| bytes.u8(0).text(name).u32(*oid).u32(u32::MAX)).0
}

fn item_body(item: &Item, events: &Events, encoding: Encoding) -> Vec<u8> {
    match item {
        Item::Row { event, table } => insert(&events[*event as usize], *table, encoding),
        Item::Body { event, table } => body(*event, *table, encoding),
        Item::Message { event } => {
            let Event { id, topic, key, .. } = &events[*event as usize];
            let content = format!(
                "{{\"id\": {id}, \"aggregate_type\": \"t{topic}\", \"aggregate_id\": \"{key}\", \"payload\": {id}}}"
            );
            Bytes::new(b'M').u8(1).lsn(Lsn(1)).text("outbox").counted(content.as_bytes()).0
        }
        Item::Foreign(table) => Bytes::new(b'I').u32(table.oid).u8(b'N').u16(4).raw(b"nnnn").0,
        Item::ForeignMessage => Bytes::new(b'M').u8(1).lsn(Lsn(1)).text("other").counted(b"x").0,
        Item::Loose => Bytes::new(b'M').u8(0).lsn(Lsn(1)).text("outbox").counted(b"x").0,
    }
}

fn insert(event: &Event, table: Table, encoding: Encoding) -> Vec<u8> {
    let (id, topic, key) = (event.id.to_string(), format!("t{}", event.topic), event.key.to_string());
    let id = match encoding {
        Encoding::Binary => event.id.to_be_bytes().to_vec(),
        Encoding::Text => id.into_bytes(),
    };
    let mut values = vec![id, topic.into_bytes(), key.into_bytes()];
    if table.name != JOINED {
        values.push(json(event.id, encoding));
    }
    row(&values, table, encoding)
}

fn body(event: u64, table: Table, encoding: Encoding) -> Vec<u8> {
    row(&[event.to_string().into_bytes(), json(event, encoding)], table, encoding)
}

/// The payload of an event, as jsonb.
fn json(event: u64, encoding: Encoding) -> Vec<u8> {
    let version: &[u8] = match encoding {
        Encoding::Binary => b"\x01",
        Encoding::Text => b"",
    };
    [version, event.to_string().as_bytes()].concat()
}

/// A table that is widened has a column more.
fn row(values: &[Vec<u8>], Table { name: _, oid, shape }: Table, encoding: Encoding) -> Vec<u8> {
    let tag = match encoding {
        Encoding::Binary => b'b',
        Encoding::Text => b't',
    };
    let columns = values.len() as u16 + u16::from(shape == Shape::Widened);
    let head = Bytes::new(b'I').u32(oid).u8(b'N').u16(columns);
    values
        .iter()
        .enumerate()
        .fold(head, |bytes, (at, value)| {
            let bytes = bytes.u8(tag).counted(value);
            match (at, shape, encoding) {
                (0, Shape::Widened, Encoding::Binary) => bytes.u8(b'b').counted(b"\xFF\xFF"),
                (0, Shape::Widened, Encoding::Text) => bytes.u8(b't').counted(REMARK.as_bytes()),
                _ => bytes,
            }
        })
        .0
}

/// Writes a message as the server does.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(tag: u8) -> Bytes {
        Bytes(vec![tag])
    }

    fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(self, value: u8) -> Bytes {
        self.raw(&[value])
    }

    fn u16(self, value: u16) -> Bytes {
        self.raw(&value.to_be_bytes())
    }

    fn u32(self, value: u32) -> Bytes {
        self.raw(&value.to_be_bytes())
    }

    fn i64(self, value: i64) -> Bytes {
        self.raw(&value.to_be_bytes())
    }

    fn lsn(self, lsn: Lsn) -> Bytes {
        self.raw(&lsn.0.to_be_bytes())
    }

    fn text(self, text: &str) -> Bytes {
        self.raw(text.as_bytes()).u8(0)
    }

    fn counted(self, bytes: &[u8]) -> Bytes {
        self.u32(bytes.len() as u32).raw(bytes)
    }
}
