//! The pipeline's side of `outbox.writeback`: which rows have a receipt, and when it is written.
//!
//! Answers enter, `Action::WriteBack` leaves; a row counts for the confirmed position when the shell has said that its receipt
//! is written. Nothing waits for that: not the next offer, not a letter, not a successor. The receipts of another history are of no
//! use, because an id may be another row's there. A row that comes again and has its letter already gets its receipt again:
//! whoever stored the letter may have died before the receipt was written.

use super::{Action, Pipeline};
use crate::config;
use crate::dead_letter::{DeadLetter, Origin};
use crate::ledger::Entry;
use crate::receipt::{Fate, Receipt};
use crate::source::outbox::{Place, Row, place_of};

/// Which outboxes have write-back, by the place of their blocks.
#[derive(Debug)]
pub(super) struct Receipts {
    published: Vec<bool>,
    /// Rejected rows say so, too.
    rejected: Vec<bool>,
}

impl Receipts {
    pub(super) fn new(outboxes: &[config::Outbox]) -> Receipts {
        let says_why =
            |outbox: &config::Outbox| outbox.writeback.as_ref().is_some_and(config::Writeback::marks_rejected);
        Receipts {
            published: outboxes.iter().map(|outbox| outbox.writeback.is_some()).collect(),
            rejected: outboxes.iter().map(says_why).collect(),
        }
    }

    #[inline]
    fn wants(&self, outbox: usize, fate: &Fate) -> bool {
        match fate {
            Fate::Published => self.published[outbox],
            Fate::Rejected { .. } => self.rejected[outbox],
        }
    }

    /// What is to be written once this has become of the row.
    #[inline]
    pub(super) fn of_row(&self, row: &Row<'_>, fate: Fate) -> Option<Box<Receipt>> {
        if !self.wants(row.outbox, &fate) {
            return None;
        }
        Some(Box::new(Receipt { outbox: row.outbox, id: row.text(Place::ID)?, xid: Some(row.xid), fate }))
    }
}

impl Pipeline {
    /// This receipt is written, durably. Answers with the row's entry unless it is of another history.
    pub fn written(&mut self, number: u64) -> Option<Entry> {
        self.ledger.written(number)
    }

    /// True while this receipt is to be written: those of another history are not.
    pub fn wants_written(&self, number: u64) -> bool {
        self.ledger.is_writing(number)
    }

    /// Whether receipts that came with `Action::SettleLetter` are still to be written: they are in no ledger, and a stop waits for
    /// them. Say it before `tick`.
    pub fn owes_letters(&mut self, owes: bool) {
        self.owes_letters = owes;
    }

    /// What is to be written when the letter is stored.
    pub(super) fn receipt_of_letter(&self, letter: &DeadLetter) -> Option<Box<Receipt>> {
        let attempts = u32::from(letter.rejection.is_fault());
        let fate = Fate::Rejected { why: letter.rejection.to_string(), attempts };
        self.receipt_of(&letter.origin, letter.event.as_ref(), fate)
    }

    /// What is to be written into a row of the open transaction.
    pub(super) fn receipt_of(&self, origin: &Origin, event: Option<&String>, fate: Fate) -> Option<Box<Receipt>> {
        let xid = Some(self.outbox.xid());
        let row = self.row_of_letter(origin, event);
        self.receipt(row, xid, fate)
    }

    /// What is to be written into a row, if that is to say what became of it.
    pub(super) fn receipt(&self, row: Option<(usize, String)>, xid: Option<u32>, fate: Fate) -> Option<Box<Receipt>> {
        let (outbox, id) = row.filter(|(outbox, _)| self.receipts.wants(*outbox, &fate))?;
        Some(Box::new(Receipt { outbox, id, xid, fate }))
    }

    /// The outbox and the id of a letter's row.
    pub(super) fn row_of_letter(&self, origin: &Origin, event: Option<&String>) -> Option<(usize, String)> {
        let outbox = place_of(self.outbox.outboxes(), origin).filter(|outbox| self.receipts.published[*outbox])?;
        Some((outbox, event?.clone()))
    }

    pub(super) fn write_back(&mut self, receipt: Option<(u64, Box<Receipt>)>) {
        if let Some((number, receipt)) = receipt {
            self.actions.push_back(Action::WriteBack(number, receipt));
        }
    }
}
