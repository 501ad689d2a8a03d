//! The pipeline's side of `outbox.writeback`: which rows have a receipt, and when it is written.
//!
//! Answers enter, `Action::WriteBack` leaves; a row counts for the confirmed position when the shell has said that its receipt
//! is written. Nothing waits for that: not the next offer, not a letter, not a successor. The receipts of another history are of no
//! use, because an id may be another row's there.

use super::{Action, Pipeline};
use crate::config::{self, Store};
use crate::dead_letter::DeadLetter;
use crate::ledger::{Entry, Receipt};
use crate::source::outbox::{Place, Row, place_of};

/// Which outboxes have write-back.
#[derive(Debug)]
pub(super) struct Receipts {
    /// By the place of their blocks.
    wanted: Vec<bool>,
}

impl Receipts {
    pub(super) fn new(outboxes: &[config::Outbox]) -> Receipts {
        Receipts { wanted: outboxes.iter().map(|outbox| outbox.writeback.is_some()).collect() }
    }

    /// What is to be written when the row is published.
    #[inline]
    pub(super) fn of_row(&self, row: &Row<'_>) -> Option<Box<Receipt>> {
        if !self.wanted[row.outbox] {
            return None;
        }
        Some(Box::new(Receipt { outbox: row.outbox, id: row.text(Place::ID)?, xid: row.xid, rejected: None }))
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

    /// What is to be written when the letter is stored. In the database it is written with the letter itself.
    pub(super) fn receipt_of_letter(&self, letter: &DeadLetter) -> Option<Box<Receipt>> {
        match self.settings.dead_letter.store {
            Store::Postgres => return None,
            Store::Kafka(_) => {}
        }
        let outbox = place_of(self.outbox.outboxes(), &letter.origin).filter(|outbox| self.receipts.wanted[*outbox])?;
        let (id, rejected) = (letter.event.clone()?, Some(letter.rejection.to_string()));
        Some(Box::new(Receipt { outbox, id, xid: letter.xid, rejected }))
    }

    pub(super) fn write_back(&mut self, receipt: Option<(u64, Box<Receipt>)>) {
        if let Some((number, receipt)) = receipt {
            self.actions.push_back(Action::WriteBack(number, receipt));
        }
    }
}
