//! Tickets and marks become the confirmed LSN.
//!
//! Every row gets a ticket, in WAL order; every position that may be confirmed is a mark behind the tickets before it.
//! The confirmed LSN is the last mark with no unsettled ticket before it, so it never passes an unsettled row, in
//! whatever order tickets are settled. A ticket that is lost stalls the slot where everyone can see it.
//!
//! A row that is rejected gets no producer's ticket: it is settled when its dead letter is stored.
//!
//! A row with a `Receipt` is not settled by its answer alone: it counts once the receipt is written into the row's own
//! table. Whoever the producer is then, and whether there is one, does not matter to it.
//!
//! Entries outlive their session: a row that the server replays is found by its position, and is offered again only
//! when its first offer is known to have failed.

use std::collections::VecDeque;

use crate::lsn::{Lsn, Position};
use crate::receipt::Receipt;

/// So many transactions are remembered apart until the server has shown that it knows of them: a megabyte.
const UNTOLD_MAX: usize = 65_536;

/// The obligation that one row creates, towards one producer. Settled once, by value; never silently dropped.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a ticket that is not settled stalls the slot"]
pub struct Ticket {
    number: u64,
    generation: u32,
}

impl Ticket {
    /// Takes the ticket apart, to travel through a producer as plain numbers: (number, producer generation).
    pub fn into_parts(self) -> (u64, u32) {
        let parts = (self.number, self.generation);
        std::mem::forget(self);
        parts
    }

    /// Puts a ticket together again from what `into_parts` gave.
    pub fn from_parts(number: u64, generation: u32) -> Ticket {
        Ticket { number, generation }
    }

    fn number(self) -> u64 {
        self.into_parts().0
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Going on would leave the slot where it is for ever; a crash replays.
        assert!(std::thread::panicking(), "ticket {} was dropped without being settled", self.number);
    }
}

/// What a row needs on the books.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Which row.
    pub position: Position,
    /// When its transaction was committed, microseconds since 2000-01-01 UTC.
    pub committed_at: i64,
    /// Its record's bytes.
    pub bytes: u64,
    /// What its record takes of `limits.memory`.
    pub weight: u64,
}

/// A row that was answered.
#[derive(Debug)]
pub struct Answered {
    /// The row.
    pub entry: Entry,
    /// What must be written before it is settled, and the number to say so by.
    pub receipt: Option<(u64, Box<Receipt>)>,
}

/// What the ledger knows of a row that arrives, perhaps not for the first time.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Known {
    /// Never seen: it needs a ticket.
    New,
    /// Settled, or on its way: it must not be offered again.
    Held,
    /// Its offer failed: it must be offered again.
    Lost,
}

/// The books: tickets in WAL order, marks between them.
#[derive(Debug)]
pub struct Ledger {
    /// The number of the front entry.
    base: u64,
    slots: VecDeque<Slot>,
    marks: VecDeque<Mark>,
    confirmed: Lsn,
    /// Transactions that the server may not have been told of, and how many tickets each has got.
    untold: VecDeque<(Lsn, u64)>,
    /// The position of the newest ticket ever issued in this history.
    newest: Option<Position>,
    generation: u32,
    inflight: u64,
    parking: u64,
    writing: u64,
    /// What is in flight or being parked takes of memory.
    held_bytes: u64,
    /// What receipts that are to be written take of memory.
    owed_bytes: u64,
    lost: u64,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    state: State,
    /// To be written once the row is answered.
    receipt: Option<Box<Receipt>>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    InFlight,
    /// Its dead letter is being stored, whichever producer there is.
    Parking,
    /// The broker has it, or its letter is stored: its receipt is being written, whichever producer there is.
    Writing,
    Lost,
    Settled,
}

impl State {
    /// True while the row is neither in Kafka nor in the parking lot.
    fn is_open(self) -> bool {
        match self {
            State::InFlight | State::Parking | State::Lost => true,
            State::Writing | State::Settled => false,
        }
    }
}

/// `lsn` may be confirmed once all tickets numbered below `before` are settled.
#[derive(Debug)]
struct Mark {
    before: u64,
    lsn: Lsn,
}

impl Ledger {
    /// Empty books that start at the slot's confirmed position.
    pub fn new(confirmed: Lsn) -> Ledger {
        Ledger {
            base: 0,
            slots: VecDeque::new(),
            marks: VecDeque::new(),
            confirmed,
            untold: VecDeque::new(),
            newest: None,
            generation: 0,
            inflight: 0,
            parking: 0,
            writing: 0,
            held_bytes: 0,
            owed_bytes: 0,
            lost: 0,
        }
    }

    /// What is known of the row at `position`.
    pub fn known(&self, position: Position) -> Known {
        if position.commit < self.confirmed {
            // Settled, if not by us then by whoever held the slot before. A server that crashed may send it again; the
            // slot will be told that it need not, so a repeat of it might never come to its end.
            return Known::Held;
        }
        if self.newest.is_none_or(|newest| position > newest) {
            return Known::New;
        }
        match self.find(position) {
            Some(index) if self.slots[index].state == State::Lost => Known::Lost,
            // Not in the books any more: settled and behind the oldest open ticket.
            Some(_) | None => Known::Held,
        }
    }

    /// Issues the ticket of a row that is new or lost.
    pub fn issue(&mut self, entry: Entry, receipt: Option<Box<Receipt>>) -> Ticket {
        let number = self.enter(Slot { entry, state: State::InFlight, receipt });
        self.inflight += 1;
        self.held_bytes += entry.weight;
        Ticket { number, generation: self.generation }
    }

    /// A row that is new or lost has a dead letter, which is being stored. Answers with the number to say so by.
    pub fn park(&mut self, entry: Entry, receipt: Option<Box<Receipt>>) -> u64 {
        let number = self.enter(Slot { entry, state: State::Parking, receipt });
        self.parking += 1;
        self.held_bytes += entry.weight;
        number
    }

    /// The dead letter of this number is stored. Answers with the row, or `None` when it is of another history.
    pub fn parked(&mut self, number: u64) -> Option<Answered> {
        let slot = self.slot_mut(number)?;
        assert_eq!(slot.state, State::Parking, "row {} was parked twice", slot.entry.position);
        slot.state = State::Settled;
        let (entry, receipt) = (slot.entry, slot.receipt.take());
        self.parking -= 1;
        self.held_bytes -= entry.weight;
        Some(self.answered(number, entry, receipt))
    }

    /// The receipt of this number is written. Answers with the row's entry, or `None` when it is of another history.
    pub fn written(&mut self, number: u64) -> Option<Entry> {
        let slot = self.slot_mut(number)?;
        assert_eq!(slot.state, State::Writing, "the receipt of row {} was written twice", slot.entry.position);
        slot.state = State::Settled;
        let entry = slot.entry;
        self.writing -= 1;
        self.owed_bytes -= entry.weight;
        self.advance();
        Some(entry)
    }

    /// True while the receipt of this number is to be written: those of another history are not.
    pub fn is_writing(&self, number: u64) -> bool {
        let index = number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.slots.get(index)).is_some_and(|slot| slot.state == State::Writing)
    }

    /// A row that is new or lost has its dead letter already, and counts once its receipt is written, if it has one.
    pub fn pass(&mut self, entry: Entry, receipt: Option<Box<Receipt>>) -> Answered {
        let number = self.enter(Slot { entry, state: State::Settled, receipt: None });
        self.answered(number, entry, receipt)
    }

    fn enter(&mut self, slot: Slot) -> u64 {
        let entry = slot.entry;
        match self.known(entry.position) {
            Known::New => {
                self.newest = Some(entry.position);
                match self.untold.back_mut() {
                    Some((commit, rows)) if *commit == entry.position.commit => *rows += 1,
                    _ => self.tell_of(entry.position.commit),
                }
                self.slots.push_back(slot);
                self.next() - 1
            }
            Known::Lost => {
                let index = self.find(entry.position).expect("a lost row is in the books");
                self.lost -= 1;
                self.slots[index] = slot;
                self.base + index as u64
            }
            Known::Held => panic!("row {} was offered while it is held", entry.position),
        }
    }

    /// Takes back a ticket whose row the sink refused: the row counts as lost until it is offered again.
    pub fn withdraw(&mut self, ticket: Ticket) {
        self.lose(ticket);
    }

    /// The broker has it, durably. Answers with the row, or `None` when the ticket is a former producer's.
    pub fn settle(&mut self, ticket: Ticket) -> Option<Answered> {
        let number = ticket.number;
        let (entry, receipt) = self.leave_flight(ticket, State::Settled)?;
        Some(self.answered(number, entry, receipt))
    }

    /// A row that is settled but for its receipt, if it has one.
    #[inline]
    fn answered(&mut self, number: u64, entry: Entry, receipt: Option<Box<Receipt>>) -> Answered {
        match receipt {
            None => {
                self.advance();
                Answered { entry, receipt: None }
            }
            Some(receipt) => {
                self.owe(number, &receipt);
                Answered { entry, receipt: Some((number, receipt)) }
            }
        }
    }

    /// The row counts once its receipt is written.
    fn owe(&mut self, number: u64, receipt: &Receipt) {
        let weight = receipt.weight();
        if let Some(slot) = self.slot_mut(number) {
            slot.state = State::Writing;
            slot.entry.weight = weight;
        }
        self.writing += 1;
        self.owed_bytes += weight;
        self.advance();
    }

    /// The offer failed. Answers with the row's entry, or `None` when the ticket is a former producer's.
    pub fn lose(&mut self, ticket: Ticket) -> Option<Entry> {
        let (entry, _) = self.leave_flight(ticket, State::Lost)?;
        self.lost += 1;
        Some(entry)
    }

    /// A new producer takes over: what its predecessor has not answered is lost, and late answers are ignored.
    pub fn renew(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.state == State::InFlight) {
            slot.state = State::Lost;
            self.lost += 1;
            self.held_bytes -= slot.entry.weight;
        }
        self.inflight = 0;
        self.generation += 1;
    }

    /// Everything received so far ends at `lsn`.
    pub fn mark(&mut self, lsn: Lsn) {
        // A replay passes positions that are marked already.
        if lsn <= self.newest_mark() {
            return;
        }
        let before = self.next();
        match self.marks.back_mut() {
            Some(last) if last.before == before => last.lsn = lsn,
            _ => self.marks.push_back(Mark { before, lsn }),
        }
        self.advance();
    }

    /// A session starts in the same history, at the slot's position. Rows of transactions before it were confirmed by
    /// whoever held the slot meanwhile, and will not be sent again.
    pub fn resume(&mut self, confirmed: Lsn) {
        // A slot that went back is told again what is confirmed.
        let confirmed = self.confirmed.max(confirmed);
        for slot in &mut self.slots {
            if slot.state == State::Lost && slot.entry.position.commit < confirmed {
                slot.state = State::Settled;
                self.lost -= 1;
            }
        }
        self.advance();
        self.confirmed = confirmed.max(self.confirmed);
    }

    /// Another history: LSNs may be used again, so nothing known of the old one holds.
    pub fn restart(&mut self, confirmed: Lsn) {
        let (base, generation) = (self.next(), self.generation);
        *self = Ledger { base, generation, ..Ledger::new(confirmed) };
    }

    /// The last mark with no unsettled ticket before it.
    pub fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// Tickets from the oldest open one to the newest.
    pub fn span(&self) -> usize {
        self.slots.len()
    }

    /// Offered and not yet answered.
    pub fn inflight(&self) -> u64 {
        self.inflight
    }

    /// Rejected, and not yet stored as dead letters.
    pub fn parking(&self) -> u64 {
        self.parking
    }

    /// Published or stored as dead letters, with a receipt that is not yet written.
    pub fn writing(&self) -> u64 {
        self.writing
    }

    /// True when nothing is on its way, neither to the broker nor to the parking lot.
    pub fn is_idle(&self) -> bool {
        self.inflight + self.parking == 0
    }

    /// True when so much more would be too much. What finds no room has its turn when nothing else is on its way, whatever receipts
    /// are owed: one of them may be owed for as long as somebody holds its row. Alone they may not take all of the memory.
    pub fn is_full(&self, weight: u64, most: u64) -> bool {
        self.owed_bytes >= most || !self.is_idle() && self.held_bytes + self.owed_bytes + weight > most
    }

    /// What is on its way takes of memory.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// What receipts that are to be written take of memory.
    pub fn owed_bytes(&self) -> u64 {
        self.owed_bytes
    }

    /// Everything before this position was read and is settled, but for receipts.
    pub fn frontier(&self) -> Position {
        let behind = |newest: Position| Position { row: newest.row + 1, ..newest };
        let read = self.newest.map_or(Position::default(), behind);
        let end = read.max(Position { commit: self.confirmed, row: 0 });
        self.oldest_open().map_or(end, |oldest| oldest.entry.position)
    }

    /// How many rows have ever been entered.
    pub fn rows(&self) -> u64 {
        self.next()
    }

    /// Rows whose offer failed: only a replay brings them back.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn tell_of(&mut self, commit: Lsn) {
        if self.untold.len() == UNTOLD_MAX
            && let Some((_, rows)) = self.untold.pop_front()
            && let Some(next) = self.untold.front_mut()
        {
            // From here on they are counted as one: rather too many repeats than too few.
            next.1 += rows;
        }
        self.untold.push_back((commit, 1));
    }

    /// The server knows of everything before `lsn`.
    pub fn told(&mut self, lsn: Lsn) {
        while self.untold.front().is_some_and(|(commit, _)| *commit < lsn) {
            self.untold.pop_front();
        }
    }

    /// Rows that got a ticket and that a server which was told `lsn` would send again.
    pub fn repeats(&self, lsn: Lsn) -> u64 {
        self.untold.iter().filter(|(commit, _)| *commit >= lsn).map(|(_, rows)| rows).sum()
    }

    /// The oldest row that is not settled.
    pub fn oldest(&self) -> Option<Entry> {
        self.slots.front().map(|slot| slot.entry)
    }

    /// The oldest row that is neither in Kafka nor in the parking lot, while it is on its way to the broker and not to the
    /// store of dead letters.
    pub fn oldest_sent(&self) -> Option<Entry> {
        self.oldest_open().filter(|slot| slot.state == State::InFlight).map(|slot| slot.entry)
    }

    /// The front one, unless receipts are to be written.
    fn oldest_open(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.state.is_open())
    }

    /// The newest row that ever got a ticket.
    pub fn newest(&self) -> Option<Position> {
        self.newest
    }

    /// The producer generation whose answers count.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    fn newest_mark(&self) -> Lsn {
        self.marks.back().map_or(self.confirmed, |mark| mark.lsn.max(self.confirmed))
    }

    fn find(&self, position: Position) -> Option<usize> {
        self.slots.binary_search_by_key(&position, |slot| slot.entry.position).ok()
    }

    fn slot_mut(&mut self, number: u64) -> Option<&mut Slot> {
        let index = usize::try_from(number.checked_sub(self.base)?).expect("the window fits in memory");
        Some(self.slots.get_mut(index).expect("an entry stays until it is settled"))
    }

    #[inline]
    fn leave_flight(&mut self, ticket: Ticket, state: State) -> Option<(Entry, Option<Box<Receipt>>)> {
        if ticket.generation != self.generation {
            ticket.into_parts();
            return None;
        }
        let slot = self.slot_mut(ticket.number())?;
        assert_eq!(slot.state, State::InFlight, "row {} was answered twice", slot.entry.position);
        slot.state = state;
        let (entry, receipt) = (slot.entry, slot.receipt.take());
        self.inflight -= 1;
        self.held_bytes -= entry.weight;
        Some((entry, receipt))
    }

    #[inline]
    fn advance(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == State::Settled) {
            self.slots.pop_front();
            self.base += 1;
        }
        while self.marks.front().is_some_and(|mark| mark.before <= self.base) {
            let mark = self.marks.pop_front().expect("there is a front");
            self.confirmed = self.confirmed.max(mark.lsn);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::receipt::Fate;

    fn entry(commit: u64, row: u64) -> Entry {
        Entry { position: Position { commit: Lsn(commit), row }, committed_at: 0, bytes: 1, weight: 10 }
    }

    fn receipt(id: &str) -> Box<Receipt> {
        Box::new(Receipt { outbox: 0, id: id.to_owned(), xid: Some(1), fate: Fate::Published })
    }

    #[test]
    fn a_row_with_a_receipt_counts_once_that_is_written_whoever_the_producer_is() {
        let mut ledger = Ledger::new(Lsn(5));
        let (first, second) = (ledger.issue(entry(10, 1), Some(receipt("1"))), ledger.issue(entry(20, 1), None));
        ledger.mark(Lsn(25));
        let (number, written) = ledger.settle(first).unwrap().receipt.expect("it has one");
        assert!(ledger.settle(second).is_some_and(|answered| answered.receipt.is_none()));
        assert_eq!((written.id.as_str(), ledger.confirmed(), ledger.writing()), ("1", Lsn(5), 1));
        assert_eq!(ledger.frontier(), Position { commit: Lsn(20), row: 2 }, "letters need not wait for it");
        assert!(ledger.is_idle() && ledger.held_bytes() == 0 && ledger.owed_bytes() > 0);
        ledger.renew();
        ledger.resume(Lsn(5));
        assert_eq!((ledger.known(entry(10, 1).position), ledger.lost()), (Known::Held, 0));
        assert!(ledger.is_writing(number) && ledger.written(number).is_some());
        assert_eq!((ledger.confirmed(), ledger.owed_bytes(), ledger.span()), (Lsn(25), 0, 0));
        assert!(!ledger.is_writing(number) && ledger.written(number).is_none());
    }

    #[test]
    fn a_letter_with_a_receipt_and_another_history_are_no_exceptions() {
        let mut ledger = Ledger::new(Lsn(5));
        let parked = ledger.park(entry(10, 1), Some(receipt("1")));
        ledger.mark(Lsn(15));
        let (number, _) = ledger.parked(parked).unwrap().receipt.expect("it has one");
        assert_eq!((ledger.confirmed(), ledger.parking(), ledger.writing()), (Lsn(5), 0, 1));
        ledger.restart(Lsn(40));
        assert_eq!((ledger.is_writing(number), ledger.written(number).is_some(), ledger.writing()), (false, false, 0));
    }

    #[test]
    fn what_must_pass_alone_does_not_wait_for_a_row_that_somebody_holds() {
        const MOST: u64 = 1000;
        let mut ledger = Ledger::new(Lsn(5));
        let owe = |ledger: &mut Ledger, commit| {
            let ticket = ledger.issue(entry(commit, 1), Some(receipt("1")));
            assert!(ledger.settle(ticket).is_some());
        };
        owe(&mut ledger, 10);
        assert!(!ledger.is_full(MOST, MOST), "nothing is on its way");
        let large = ledger.issue(Entry { weight: MOST, ..entry(20, 1) }, None);
        assert!(ledger.is_full(1, MOST));
        ledger.settle(large);
        let large = ledger.park(Entry { weight: MOST, ..entry(30, 1) }, None);
        assert!(ledger.is_full(1, MOST));
        ledger.parked(large);
        // What is owed is in memory, too, and has a bound of its own.
        (4..9).for_each(|commit| owe(&mut ledger, commit * 10));
        assert!(ledger.owed_bytes() < MOST && !ledger.is_full(MOST, MOST));
        owe(&mut ledger, 90);
        assert!(ledger.owed_bytes() >= MOST && ledger.is_full(1, MOST));
    }

    #[test]
    fn what_a_predecessor_had_settled_is_held_when_the_slot_goes_back() {
        let mut ledger = Ledger::new(Lsn(30));
        // The server crashed, and the slot stands where it stood on disk.
        ledger.resume(Lsn(5));
        assert_eq!(ledger.known(entry(10, 1).position), Known::Held);
        assert_eq!(ledger.known(entry(30, 1).position), Known::New);
        // In another history the position means something else.
        ledger.restart(Lsn(5));
        assert_eq!(ledger.known(entry(10, 1).position), Known::New);
    }

    #[test]
    fn a_row_that_was_lost_behind_a_slot_that_went_on_and_back_holds_nobody_up() {
        let mut ledger = Ledger::new(Lsn(5));
        let ticket = ledger.issue(entry(10, 1), None);
        // Somebody moved the slot, and a crash put it back: the row will be sent again, and is not needed.
        ledger.resume(Lsn(30));
        ledger.lose(ticket);
        ledger.resume(Lsn(5));
        assert_eq!((ledger.known(entry(10, 1).position), ledger.lost(), ledger.span()), (Known::Held, 0, 0));
    }

    #[test]
    fn confirmed_stops_at_the_gap_whatever_was_acked_behind_it() {
        let mut ledger = Ledger::new(Lsn(5));
        let tickets: Vec<_> = (1..=3)
            .map(|n| {
                let ticket = ledger.issue(entry(n * 10, 1), None);
                ledger.mark(Lsn(n * 10 + 5));
                ticket
            })
            .collect();
        let mut tickets = tickets.into_iter();
        let (first, second, third) = (tickets.next().unwrap(), tickets.next().unwrap(), tickets.next().unwrap());
        ledger.settle(third);
        ledger.settle(first);
        assert_eq!(ledger.confirmed(), Lsn(15));
        ledger.lose(second);
        assert_eq!((ledger.confirmed(), ledger.lost(), ledger.inflight()), (Lsn(15), 1, 0));
        assert_eq!(ledger.known(entry(20, 1).position), Known::Lost);
        assert_eq!(ledger.known(entry(30, 1).position), Known::Held);
        let again = ledger.issue(entry(20, 1), None);
        ledger.settle(again);
        assert_eq!((ledger.confirmed(), ledger.span()), (Lsn(35), 0));
    }

    #[test]
    fn more_transactions_than_are_remembered_apart_are_counted_together_and_none_is_forgotten() {
        let mut ledger = Ledger::new(Lsn(0));
        let transactions = UNTOLD_MAX as u64 + 3;
        for commit in 1..=transactions {
            let ticket = ledger.issue(entry(commit * 10, 1), None);
            ledger.settle(ticket);
        }
        assert_eq!((ledger.untold.len(), ledger.repeats(Lsn(0))), (UNTOLD_MAX, transactions));
        // The oldest three went into the fourth: until the server knows of that one, all four are counted.
        ledger.told(Lsn(40));
        assert_eq!(ledger.repeats(Lsn(40)), transactions);
        ledger.told(Lsn(41));
        assert_eq!(ledger.repeats(Lsn(41)), transactions - 4);
    }

    #[test]
    fn a_mark_behind_open_tickets_waits_for_them() {
        let mut ledger = Ledger::new(Lsn(5));
        let ticket = ledger.issue(entry(10, 1), None);
        ledger.mark(Lsn(50));
        ledger.mark(Lsn(60));
        assert_eq!(ledger.confirmed(), Lsn(5));
        ledger.settle(ticket);
        assert_eq!(ledger.confirmed(), Lsn(60));
        ledger.mark(Lsn(70));
        assert_eq!(ledger.confirmed(), Lsn(70));
    }

    #[test]
    fn rows_repeat_by_what_the_server_was_told() {
        let mut ledger = Ledger::new(Lsn(5));
        for row in 1..=2 {
            let ticket = ledger.issue(entry(20, row), None);
            ledger.settle(ticket);
        }
        ledger.resume(Lsn(5));
        ledger.mark(Lsn(15));
        assert_eq!((ledger.confirmed(), ledger.repeats(Lsn(15))), (Lsn(15), 2));
        ledger.mark(Lsn(25));
        assert_eq!((ledger.confirmed(), ledger.repeats(Lsn(25)), ledger.repeats(Lsn(5))), (Lsn(25), 0, 2));
        ledger.told(Lsn(25));
        assert_eq!(ledger.repeats(Lsn(5)), 0);
    }

    #[test]
    fn a_former_producers_answer_is_ignored() {
        let mut ledger = Ledger::new(Lsn(5));
        let late = ledger.issue(entry(10, 1), None);
        ledger.mark(Lsn(15));
        ledger.renew();
        assert!(ledger.settle(late).is_none());
        assert_eq!((ledger.confirmed(), ledger.lost()), (Lsn(5), 1));
        let again = ledger.issue(entry(10, 1), None);
        assert!(ledger.settle(again).is_some());
        assert_eq!(ledger.confirmed(), Lsn(15));
    }

    #[test]
    fn rows_that_another_holder_confirmed_are_not_waited_for() {
        let mut ledger = Ledger::new(Lsn(5));
        let ticket = ledger.issue(entry(10, 1), None);
        ledger.mark(Lsn(15));
        ledger.lose(ticket);
        ledger.resume(Lsn(40));
        assert_eq!((ledger.confirmed(), ledger.span(), ledger.lost()), (Lsn(40), 0, 0));
    }

    #[test]
    fn another_history_starts_with_empty_books_and_may_use_positions_again() {
        let mut ledger = Ledger::new(Lsn(5));
        ledger.issue(entry(100, 1), None).into_parts();
        ledger.mark(Lsn(110));
        ledger.renew();
        ledger.restart(Lsn(40));
        assert_eq!(ledger.confirmed(), Lsn(40));
        assert_eq!(ledger.known(entry(50, 1).position), Known::New);
        let ticket = ledger.issue(entry(50, 1), None);
        ledger.mark(Lsn(60));
        ledger.settle(ticket);
        assert_eq!(ledger.confirmed(), Lsn(60));
    }

    #[test]
    #[should_panic(expected = "dropped without being settled")]
    fn a_dropped_ticket_fails_loudly() {
        let mut ledger = Ledger::new(Lsn(5));
        drop(ledger.issue(entry(10, 1), None));
    }

    /// The plain truth, computed by looking at everything every time.
    struct Naive {
        rows: Vec<bool>,
        marks: Vec<(usize, Lsn)>,
        start: Lsn,
    }

    impl Naive {
        fn confirmed(&self) -> Lsn {
            let settled = self.rows.iter().take_while(|settled| **settled).count();
            self.marks.iter().filter(|(before, _)| *before <= settled).map(|(_, lsn)| *lsn).max().unwrap_or(self.start)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// With a receipt, or without.
        Row(bool),
        Mark,
        Settle(usize),
        Written(usize),
        Lose(usize),
        OfferLost(usize),
        Renew,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<bool>().prop_map(Step::Row),
            3 => Just(Step::Mark),
            6 => any::<usize>().prop_map(Step::Settle),
            3 => any::<usize>().prop_map(Step::Written),
            1 => any::<usize>().prop_map(Step::Lose),
            2 => any::<usize>().prop_map(Step::OfferLost),
            1 => Just(Step::Renew),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn the_ledger_agrees_with_a_naive_model(steps in steps()) {
            let start = Lsn(1);
            let mut ledger = Ledger::new(start);
            let mut naive = Naive { rows: vec![], marks: vec![], start };
            let mut commits: Vec<u64> = vec![];
            let mut receipts: Vec<Option<Box<Receipt>>> = vec![];
            let mut writing: Vec<(usize, u64)> = vec![];
            let mut inflight: Vec<(usize, (u64, u32))> = vec![];
            let mut lost: Vec<usize> = vec![];
            for (time, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Row(with_receipt) => {
                        let index = naive.rows.len();
                        naive.rows.push(false);
                        commits.push(10 * time as u64 + 2);
                        receipts.push(with_receipt.then(|| receipt("7")));
                        inflight.push((index, ledger.issue(entry(commits[index], 1), receipts[index].clone()).into_parts()));
                    }
                    Step::Mark => {
                        let lsn = Lsn(10 * time as u64 + 5);
                        ledger.mark(lsn);
                        naive.marks.push((naive.rows.len(), lsn));
                    }
                    Step::Settle(pick) if !inflight.is_empty() => {
                        let (index, (number, generation)) = inflight.swap_remove(pick % inflight.len());
                        let answered = ledger.settle(Ticket::from_parts(number, generation)).unwrap();
                        prop_assert_eq!(answered.receipt.is_some(), receipts[index].is_some());
                        match answered.receipt {
                            Some((number, _)) => writing.push((index, number)),
                            None => naive.rows[index] = true,
                        }
                    }
                    Step::Written(pick) if !writing.is_empty() => {
                        let (index, number) = writing.swap_remove(pick % writing.len());
                        prop_assert!(ledger.is_writing(number) && ledger.written(number).is_some());
                        naive.rows[index] = true;
                    }
                    Step::Lose(pick) if !inflight.is_empty() => {
                        let (index, (number, generation)) = inflight.swap_remove(pick % inflight.len());
                        prop_assert!(ledger.lose(Ticket::from_parts(number, generation)).is_some());
                        lost.push(index);
                    }
                    Step::OfferLost(pick) if !lost.is_empty() => {
                        let index = lost.swap_remove(pick % lost.len());
                        inflight.push((index, ledger.issue(entry(commits[index], 1), receipts[index].clone()).into_parts()));
                    }
                    Step::Renew => {
                        ledger.renew();
                        lost.extend(inflight.drain(..).map(|(index, _)| index));
                    }
                    Step::Settle(_) | Step::Written(_) | Step::Lose(_) | Step::OfferLost(_) => {}
                }
                prop_assert_eq!(ledger.confirmed(), naive.confirmed());
                prop_assert_eq!(ledger.inflight(), inflight.len() as u64);
                let owed = writing.len() as u64 * receipt("7").weight();
                prop_assert_eq!((ledger.owed_bytes(), ledger.writing()), (owed, writing.len() as u64));
                prop_assert_eq!(ledger.held_bytes(), 10 * inflight.len() as u64);
                prop_assert_eq!(ledger.lost(), lost.len() as u64);
                for (index, commit) in commits.iter().enumerate() {
                    let known = ledger.known(entry(*commit, 1).position);
                    prop_assert_eq!(known == Known::Lost, lost.contains(&index));
                    prop_assert!(known != Known::New);
                }
            }
        }
    }
}
