//! A scripted PostgreSQL: a WAL of committed transactions, a slot, and a walsender that speaks pgoutput.
//!
//! The model is what the relay may rely on and no more: transactions in commit order, those whose commit lies before
//! the slot's position are skipped, tables are described before their first row in a session and after each change,
//! keepalives come between and inside transactions, answered questions and unasked ones look alike.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use outboxd::lsn::{Lsn, Position};
use outboxd::source::wire::Frame;
use outboxd::source::{Encoding, System};

use crate::dice::Dice;

/// All events ever committed, by id.
pub type Events = HashMap<u64, Event>;

/// Topics, each fed by its own aggregate type.
pub const TOPICS: u64 = 2;
const KEYS: u64 = 4;

/// One committed event, as the application meant it.
#[derive(Debug, Clone)]
pub struct Event {
    /// Also its id in the table.
    pub id: u64,
    pub topic: u64,
    pub key: u64,
    /// Its number among the events of its topic and key, from 1, in commit order.
    pub number: u64,
    pub position: Position,
    /// Lost in a failover: neither expected nor forbidden any more.
    pub void: bool,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    pub commit: Lsn,
    pub end: Lsn,
    items: Vec<Item>,
}

impl Transaction {
    /// The ids of its events.
    pub fn events(&self) -> impl Iterator<Item = u64> + '_ {
        self.items.iter().filter_map(|item| match item {
            Item::Row { event, .. } | Item::Message { event } => Some(*event),
            Item::Foreign | Item::ForeignMessage | Item::Loose => None,
        })
    }
}

#[derive(Debug, Clone)]
enum Item {
    /// A row of outbox table `table`, which then had `shape`.
    Row { event: u64, table: u32, shape: Shape },
    /// A logical message with the outbox prefix.
    Message { event: u64 },
    /// A row of a table that is published and not an outbox.
    Foreign,
    /// A logical message for somebody else.
    ForeignMessage,
    /// A message outside of the transaction, sent while it was open.
    Loose,
}

/// What ALTER TABLE did to an outbox table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    Plain,
    Widened,
    /// The aggregate id is numeric: readable in text only.
    Numeric,
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
    shapes: [Shape; 2],
    numbers: HashMap<(u64, u64), u64>,
    next_event: u64,
    pub session: Option<Walsender>,
    /// Its shutdown waits for the walsender.
    pub stopping: bool,
}

/// One streaming session.
pub struct Walsender {
    encoding: Encoding,
    cursor: usize,
    /// The next item of the open transaction; `None` between transactions.
    item: Option<usize>,
    described: HashMap<u32, Shape>,
    sent: Lsn,
    answers: u64,
    pub heard: Instant,
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
            shapes: [Shape::Plain; 2],
            numbers: HashMap::new(),
            next_event: 1,
            session: None,
            stopping: false,
        }
    }

    /// The application commits something.
    pub fn commit(&mut self, events: &mut Events, dice: &mut Dice) {
        let commit = Lsn(self.wal_end.0 + dice.between(1, 40));
        let end = Lsn(commit.0 + dice.between(1, 10));
        let count = if dice.once_in(12) { dice.between(8, 40) } else { dice.below(5) };
        let mut items = Vec::new();
        let mut row = 0;
        for _ in 0..count {
            let item = match dice.below(12) {
                0 => Item::Foreign,
                1 => Item::ForeignMessage,
                2 => Item::Loose,
                3 => Item::Message { event: 0 },
                _ => {
                    let table = dice.below(2) as u32;
                    if dice.once_in(20) {
                        let shapes = [Shape::Plain, Shape::Widened, Shape::Numeric, Shape::Plain];
                        self.shapes[table as usize] = shapes[dice.index(shapes.len())];
                    }
                    Item::Row { event: 0, table, shape: self.shapes[table as usize] }
                }
            };
            row += u64::from(!matches!(item, Item::Loose));
            items.push(match item {
                Item::Row { table, shape, .. } => {
                    Item::Row { event: self.event(events, dice, Position { commit, row }), table, shape }
                }
                Item::Message { .. } => Item::Message { event: self.event(events, dice, Position { commit, row }) },
                Item::Foreign | Item::ForeignMessage | Item::Loose => item,
            });
        }
        self.transactions.push(Transaction { commit, end, items });
        self.wal_end = end;
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

    /// A standby takes over: its slot may be older, its WAL may end earlier, and LSNs are used again.
    pub fn fail_over(&mut self, events: &mut Events, dice: &mut Dice) {
        self.crash();
        let kept = self.transactions.iter().filter(|transaction| transaction.commit < self.confirmed).count();
        let keep = kept + dice.index(self.transactions.len() - kept + 1);
        for transaction in self.transactions.drain(keep..) {
            for id in transaction.events() {
                events.get_mut(&id).unwrap().void = true;
            }
        }
        self.numbers.clear();
        for event in self.transactions.iter().flat_map(Transaction::events).map(|id| &events[&id]) {
            self.numbers.insert((event.topic, event.key), event.number);
        }
        let end = self.transactions.last().map_or(Lsn::ZERO, |transaction| transaction.end);
        self.wal_end = end.max(self.confirmed);
        self.system.timeline += 1;
    }

    /// A walsender starts where the slot stands. `None` while another one holds the slot.
    pub fn start(&mut self, encoding: Encoding, now: Instant) -> Option<()> {
        if self.session.is_some() {
            return None;
        }
        let cursor = self.transactions.iter().take_while(|transaction| transaction.commit < self.confirmed).count();
        self.session = Some(Walsender {
            encoding,
            cursor,
            item: None,
            described: HashMap::new(),
            sent: self.confirmed,
            answers: 0,
            heard: now,
            pinged: false,
        });
        Some(())
    }

    /// A status update arrives.
    pub fn hear(&mut self, confirmed: Lsn, reply_wanted: bool, now: Instant) {
        let Some(session) = &mut self.session else { return };
        session.heard = now;
        session.pinged = false;
        session.answers += u64::from(reply_wanted);
        self.confirmed = self.confirmed.max(confirmed);
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
            if !inside {
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
                    Some((table, shape)) if session.described.get(&table) != Some(&shape) => {
                        session.described.insert(table, shape);
                        relation(table, shape)
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

    fn event(&mut self, events: &mut Events, dice: &mut Dice, position: Position) -> u64 {
        let id = self.next_event;
        self.next_event += 1;
        let (topic, key) = (dice.below(TOPICS), dice.below(KEYS));
        let number = self.numbers.entry((topic, key)).or_default();
        *number += 1;
        events.insert(id, Event { id, topic, key, number: *number, position, void: false });
        id
    }
}

fn table_of(item: &Item) -> Option<(u32, Shape)> {
    match item {
        Item::Row { table, shape, .. } => Some((*table, *shape)),
        Item::Foreign => Some((9, Shape::Plain)),
        Item::Message { .. } | Item::ForeignMessage | Item::Loose => None,
    }
}

fn relation(table: u32, shape: Shape) -> Vec<u8> {
    let name = ["first", "second"].get(table as usize).copied().unwrap_or("foreign");
    let aggregate_id = if shape == Shape::Numeric { 1700 } else { 25 };
    let mut columns = vec![("id", 20), ("aggregate_type", 25), ("aggregate_id", aggregate_id), ("payload", 3802)];
    if shape == Shape::Widened {
        columns.insert(1, ("remark", 16385));
    }
    let head = Bytes::new(b'R').u32(500 + table).text("public").text(name).u8(b'd').u16(columns.len() as u16);
    columns.iter().fold(head, |bytes, (name, oid)| bytes.u8(0).text(name).u32(*oid).u32(u32::MAX)).0
}

fn item_body(item: &Item, events: &Events, encoding: Encoding) -> Vec<u8> {
    match item {
        Item::Row { event, table, shape } => insert(&events[event], *table, *shape, encoding),
        Item::Message { event } => {
            let Event { id, topic, key, number, .. } = &events[event];
            let content = format!(
                "{{\"id\": {id}, \"aggregate_type\": \"t{topic}\", \"aggregate_id\": \"{key}\", \"payload\": {number}}}"
            );
            Bytes::new(b'M').u8(1).lsn(Lsn(1)).text("outbox").counted(content.as_bytes()).0
        }
        Item::Foreign => Bytes::new(b'I').u32(509).u8(b'N').u16(4).raw(b"nnnn").0,
        Item::ForeignMessage => Bytes::new(b'M').u8(1).lsn(Lsn(1)).text("other").counted(b"x").0,
        Item::Loose => Bytes::new(b'M').u8(0).lsn(Lsn(1)).text("outbox").counted(b"x").0,
    }
}

fn insert(event: &Event, table: u32, shape: Shape, encoding: Encoding) -> Vec<u8> {
    let (aggregate_type, aggregate_id) = (format!("t{}", event.topic), event.key.to_string());
    let payload = event.number.to_string();
    let columns = 4 + u16::from(shape == Shape::Widened);
    let mut bytes = Bytes::new(b'I').u32(500 + table).u8(b'N').u16(columns);
    match encoding {
        Encoding::Binary => {
            bytes = bytes.u8(b'b').counted(&event.id.to_be_bytes());
            if shape == Shape::Widened {
                bytes = bytes.u8(b'b').counted(b"\xFF\xFF");
            }
            bytes = bytes.u8(b'b').counted(aggregate_type.as_bytes()).u8(b'b').counted(aggregate_id.as_bytes());
            bytes.u8(b'b').counted(&[b"\x01", payload.as_bytes()].concat()).0
        }
        Encoding::Text => {
            bytes = bytes.u8(b't').counted(event.id.to_string().as_bytes());
            if shape == Shape::Widened {
                bytes = bytes.u8(b'n');
            }
            bytes = bytes.u8(b't').counted(aggregate_type.as_bytes()).u8(b't').counted(aggregate_id.as_bytes());
            bytes.u8(b't').counted(payload.as_bytes()).0
        }
    }
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
