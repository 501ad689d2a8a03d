//! What is configured, in editions: each reload brings the next one, and every record shows the edition that made it.
//!
//! What a process was told enters, and every frame that its pipeline was shown; the edition that its next record must be of
//! leaves. Promised: rules change between transactions, and in the middle of one only for a row that waits for something
//! outside; and nothing else keeps them waiting, but a search for a record that a broker refused.

use std::time::{Duration, Instant};

use outboxd::config::{self, OutboxSource, Pattern, Piece, Route, Rules};
use outboxd::pipeline::Flow;

use crate::rows;

/// The header that shows the edition.
pub const EDITION: &str = "edition";
/// The header that shows a column which some tables have, and only text can show.
pub const REMARK: &str = "remark";
/// What stands in for it.
pub const NO_REMARK: &str = "none";
/// A row that has waited for so long waits for something outside.
const HOPELESS: Duration = Duration::from_secs(2);

/// With or without write-back for the first of them.
pub fn outboxes(writes_back: bool) -> Vec<config::Outbox> {
    let columns = config::Columns {
        aggregate_type: Some("aggregate_type".into()),
        aggregate_id: Some("aggregate_id".into()),
        ..config::Columns::bare("id", "payload")
    };
    let table = |name: &str| OutboxSource::Table { schema: "public".into(), name: name.into() };
    let mut outboxes = [table(rows::TABLE), table("second"), OutboxSource::MessagePrefix("outbox".into())]
        .map(|source| config::Outbox::of(source, columns.clone()));
    outboxes[0].writeback = writes_back.then(|| config::Writeback {
        column: Some("published_at".into()),
        status: None,
        attempts: None,
        error: Some("why".into()),
    });
    outboxes[1].join = Some(config::Join {
        schema: "public".into(),
        table: "bodies".into(),
        event_column: "id".into(),
        payload_column: "event".into(),
    });
    outboxes.into()
}

pub fn rules(edition: u64) -> Rules {
    let literal = |text: String| Pattern { pieces: vec![Piece::Literal(text)] };
    let mut headers = vec![(EDITION.to_owned(), literal(edition.to_string()))];
    if shows_remark(edition) {
        let remark = Piece::Fallback(REMARK.to_owned(), literal(NO_REMARK.to_owned()));
        headers.push((REMARK.to_owned(), Pattern { pieces: vec![remark] }));
    }
    let route = Route { key: Some(Pattern::column("aggregate_id")), headers, ..Route::default() };
    Rules { routes: vec![route], ..Rules::default() }
}

/// Some editions show the column: then a table that has it is read as text.
pub fn shows_remark(edition: u64) -> bool {
    edition % 4 == 2
}

/// What one process was told.
pub struct Told {
    in_force: u64,
    newest: u64,
    /// In force when nothing was left to be done: what was decided since then was decided by this edition or a later one.
    done: u64,
    /// A broker has refused one of its records: it may be searching.
    pub may_search: bool,
}

impl Told {
    /// A process starts with what is in its file.
    pub fn new(edition: u64) -> Told {
        Told { in_force: edition, newest: edition, done: edition, may_search: false }
    }

    pub fn reload(&mut self, edition: u64) {
        self.newest = edition;
    }

    /// The edition that the next record must be of.
    pub fn in_force(&mut self, is_reloading: bool) -> u64 {
        if !is_reloading {
            self.in_force = self.newest;
        }
        self.in_force
    }

    /// Nothing is left to be done.
    pub fn is_done(&mut self, is_reloading: bool) {
        self.done = self.in_force(is_reloading);
    }

    /// The oldest edition by which something can have been decided that is yet to be done.
    pub fn decided_by(&self) -> u64 {
        self.done
    }
}

/// How far a session was read, as its frames tell.
#[derive(Default)]
pub struct Reading {
    /// By which edition the rows of the open transaction were taken; `None` before its first one.
    transaction: Option<u64>,
    held_since: Option<Instant>,
    /// A row of this transaction waited for something outside.
    waited: bool,
}

impl Reading {
    /// A message was shown while these rules were in force. True when they are others than those of the rows before it.
    pub fn shown(&mut self, body: &[u8], flow: Flow, edition: u64, now: Instant) -> bool {
        if flow == Flow::Held {
            self.held_since.get_or_insert(now);
            self.waited |= self.is_hopeless(now);
            return false;
        }
        self.waited |= self.is_hopeless(now);
        self.held_since = None;
        match body {
            [b'B' | b'C', ..] => {
                *self = Reading::default();
                false
            }
            // Of messages, only those of the transaction.
            [b'I', ..] | [b'M', 1, ..] => {
                let before = self.transaction.replace(edition);
                let is_other = before.is_some_and(|before| before != edition);
                promised!(
                    self.waited || !is_other,
                    "rules of edition {before:?} and of {edition} made records of one transaction"
                );
                is_other
            }
            _ => false,
        }
    }

    /// True when rules must not change now.
    pub fn binds(&self, now: Instant) -> bool {
        self.transaction.is_some() && !self.is_hopeless(now)
    }

    fn is_hopeless(&self, now: Instant) -> bool {
        self.held_since.is_some_and(|since| now >= since + HOPELESS)
    }
}
