//! `outboxd.dead_letter`, people's side: looks letters up, sends them on another try, discards them, ends a pause.
//!
//! A `Filter` enters as parameters, never as SQL text. What people write does not depend on who the leader is. Letters
//! that a relay works on are left to it; those whose lease is over are nobody's.

use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Catalog;
use super::letters::{about, columns, origin, position, saturated, seconds, storable};
use crate::dead_letter::{Column, Lane, Origin};
use crate::error::Result;
use crate::lsn::Position;
use crate::source::System;

/// Which letters: those that fit everything that is given.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Their numbers; empty: any.
    pub ids: Vec<i64>,
    /// Their states; empty: any.
    pub states: Vec<String>,
    /// Why they were last rejected.
    pub reason: Option<String>,
    /// Where they were to go.
    pub topic: Option<String>,
    /// The event's type.
    pub event_type: Option<String>,
    /// The event's id.
    pub event: Option<String>,
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
    /// Parked longer ago than this.
    pub older_than: Option<Duration>,
    /// Parked since then.
    pub newer_than: Option<Duration>,
}

/// Letters that have the same state, reason, topic and type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LetterGroup {
    pub state: String,
    pub reason: String,
    pub topic: Option<String>,
    pub event_type: Option<String>,
    pub count: u64,
    /// When the oldest of them was parked.
    pub oldest: SystemTime,
}

/// What a list shows of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterLine {
    /// Its number in the store.
    pub id: i64,
    /// pending, retrying, delivered, failed or discarded.
    pub state: String,
    /// Why it was last rejected, in a word.
    pub reason: String,
    /// Why it was last rejected, in a sentence.
    pub message: String,
    /// Where the event was written.
    pub origin: Origin,
    /// The event's id, where it has one.
    pub event: Option<String>,
    /// The event's type, where it has one.
    pub event_type: Option<String>,
    /// Where it was to go, as far as its route could tell.
    pub lane: Lane,
    /// Where the event stands in the WAL.
    pub position: Position,
    /// How often it was tried.
    pub attempts: u32,
    /// How often the relay will still try by itself.
    pub attempts_left: u32,
    /// When it is due, while it is pending.
    pub next_attempt: SystemTime,
    /// When it was stored.
    pub parked_at: SystemTime,
}

/// All there is about a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterPage {
    /// What a list shows of it.
    pub line: LetterLine,
    /// The history that its position belongs to.
    pub system: System,
    /// When the event was committed.
    pub committed_at: SystemTime,
    /// The row as it was read.
    pub columns: Vec<Column>,
    /// Columns that only the table has.
    pub not_kept: Vec<String>,
    /// The relay that works on it, while it is retrying.
    pub owner: Option<String>,
    /// Until when it is the owner's.
    pub lease_until: Option<SystemTime>,
    /// When it was delivered or discarded.
    pub settled_at: Option<SystemTime>,
    /// Why it was discarded.
    pub note: Option<String>,
    /// Who discarded it.
    pub noted_by: Option<String>,
    /// In their order.
    pub attempts: Vec<Attempt>,
}

/// One try to publish a letter's event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// When its end was written down.
    pub at: SystemTime,
    /// Why it was rejected, in a word; `delivered` when it was not.
    pub reason: String,
    /// Why it was rejected, in a sentence.
    pub message: String,
}

/// What a command has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// How many letters.
    pub count: u64,
    /// The last of them: the next call's `after`. `None` when there was none left.
    pub last: Option<i64>,
}

impl Catalog {
    /// How many letters fit, by state, reason, topic and type; the largest group first.
    pub async fn letter_groups(&self, slot: &str, filter: &Filter) -> Result<Vec<LetterGroup>> {
        let sql = format!(
            "SELECT d.state, d.reason, d.topic, d.event_type, count(*), min(d.parked_at) \
             FROM outboxd.dead_letter AS d WHERE {FITS} GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4"
        );
        let terms = Terms::new(slot, filter);
        let rows = self.rows(&about("group", slot), &sql, &terms.and(&[])).await?;
        Ok(rows.iter().map(group).collect())
    }

    /// The letters that fit and have a higher number than `after`, in the order of their numbers, at most `most`.
    pub async fn list_letters(&self, slot: &str, filter: &Filter, after: i64, most: usize) -> Result<Vec<LetterLine>> {
        let sql = format!(
            "SELECT {LINE} FROM outboxd.dead_letter AS d WHERE {FITS} AND d.id > $11 \
             ORDER BY d.id LIMIT $12"
        );
        let (terms, most) = (Terms::new(slot, filter), saturated(most));
        let rows = self.rows(&about("list", slot), &sql, &terms.and(&[&after, &most])).await?;
        Ok(rows.iter().map(line).collect())
    }

    /// All there is about one letter, if there is such a letter.
    pub async fn letter(&self, slot: &str, id: i64) -> Result<Option<LetterPage>> {
        let what = format!("cannot read dead letter {id} of slot \"{slot}\"");
        let sql = format!(
            "SELECT {LINE}, d.system_id, d.timeline, d.committed_at, d.column_names, d.column_values, \
                 d.column_types, d.not_kept, \
                 d.owner, d.lease_until, d.settled_at, d.note, d.noted_by \
             FROM outboxd.dead_letter AS d WHERE d.slot = $1 AND d.id = $2"
        );
        let Some(row) = self.row(&what, &sql, &[&slot, &id]).await? else { return Ok(None) };
        let sql = "SELECT a.number, a.at, a.reason, a.message FROM outboxd.dead_letter_attempt AS a \
                   WHERE a.letter = $1 ORDER BY a.number";
        let attempts = self.rows(&what, sql, &[&id]).await?;
        Ok(Some(page(&row, attempts.iter().map(attempt).collect())))
    }

    /// Lets letters be tried at once, `attempts` times more: those that fit, have a higher number than `after`, and are
    /// pending, failed, or of a relay that is gone. At most `most`, in the order of their numbers.
    pub async fn retry_letters(
        &self,
        slot: &str,
        filter: &Filter,
        after: i64,
        most: usize,
        attempts: u32,
    ) -> Result<Changed> {
        let change = "state = 'pending', next_attempt = clock_timestamp(), attempts_left = $13::integer, \
                      owner = NULL, lease_until = NULL";
        let (most, attempts) = (saturated(most), i32::try_from(attempts).unwrap_or(i32::MAX));
        let terms = Terms::new(slot, filter);
        self.change(&about("retry", slot), change, &terms.and(&[&after, &most, &attempts])).await
    }

    /// Gives letters up for good, with who decided it and why: those that fit, have a higher number than `after`, and
    /// are pending, failed, or of a relay that is gone. At most `most`, in the order of their numbers.
    pub async fn discard_letters(
        &self,
        slot: &str,
        filter: &Filter,
        after: i64,
        most: usize,
        note: &str,
        by: &str,
    ) -> Result<Changed> {
        let change = "state = 'discarded', settled_at = clock_timestamp(), note = $13::text, noted_by = $14::text, \
                      owner = NULL, lease_until = NULL";
        let (most, note, by) = (saturated(most), storable(note), storable(by));
        let terms = Terms::new(slot, filter);
        self.change(&about("discard", slot), change, &terms.and(&[&after, &most, &note, &by])).await
    }

    /// Ends the pause of a relay; since when it was, and why. `None`: it was not paused.
    pub async fn resume(&self, slot: &str) -> Result<Option<(SystemTime, String)>> {
        let sql = "DELETE FROM outboxd.pause WHERE slot = $1 RETURNING since, message";
        let row = self.row(&format!("cannot resume slot \"{slot}\""), sql, &[&slot]).await?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }

    /// Letters are locked in the order of their ids, as the relay does, so that nobody waits in a circle.
    async fn change(&self, what: &str, change: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Changed> {
        let sql = format!(
            "WITH chosen AS MATERIALIZED (SELECT d.id FROM outboxd.dead_letter AS d \
                 WHERE {FITS} AND d.id > $11 AND {NOBODYS} ORDER BY d.id LIMIT $12 FOR UPDATE), \
             changed AS (UPDATE outboxd.dead_letter AS d SET {change} FROM chosen WHERE d.id = chosen.id \
                 RETURNING d.id) \
             SELECT count(*), max(changed.id) FROM changed"
        );
        let row = self.row(what, &sql, parameters).await?;
        let changed = |row: Row| Changed { count: row.get::<_, i64>(0).cast_unsigned(), last: row.get(1) };
        Ok(row.map(changed).unwrap_or_default())
    }
}

/// A letter, as `d`, fits a filter; `$1` to `$10` are `Terms`.
const FITS: &str = "d.slot = $1 \
    AND (cardinality($2::bigint[]) = 0 OR d.id = ANY ($2::bigint[])) \
    AND (cardinality($3::text[]) = 0 OR d.state = ANY ($3::text[])) \
    AND ($4::text IS NULL OR d.reason = $4) AND ($5::text IS NULL OR d.topic = $5) \
    AND ($6::text IS NULL OR d.event_type = $6) AND ($7::text IS NULL OR d.event_id = $7) \
    AND ($8::bytea IS NULL OR d.key = $8) \
    AND ($9::float8 IS NULL OR d.parked_at < (SELECT clock_timestamp()) - make_interval(secs => $9)) \
    AND ($10::float8 IS NULL OR d.parked_at > (SELECT clock_timestamp()) - make_interval(secs => $10))";

/// A letter, as `d`, is open and no relay works on it.
const NOBODYS: &str = "(d.state IN ('pending', 'failed') \
    OR d.state = 'retrying' AND d.lease_until < (SELECT clock_timestamp()))";

/// The columns that `line` reads.
const LINE: &str = "d.id, d.state, d.reason, d.message, d.origin_schema, d.origin_name, d.event_id, d.event_type, \
    d.topic, d.key, d.commit_lsn, d.row_number, d.attempts, d.attempts_left, d.next_attempt, d.parked_at";

/// How many those are.
const LINE_LENGTH: usize = 16;

/// A filter as `FITS` takes it.
struct Terms<'a> {
    slot: &'a str,
    filter: &'a Filter,
    older_than: Option<f64>,
    newer_than: Option<f64>,
}

impl<'a> Terms<'a> {
    fn new(slot: &'a str, filter: &'a Filter) -> Terms<'a> {
        let (older_than, newer_than) = (filter.older_than.map(seconds), filter.newer_than.map(seconds));
        Terms { slot, filter, older_than, newer_than }
    }

    /// `$1` to `$10`, then `more`.
    fn and<'b>(&'b self, more: &[&'b (dyn ToSql + Sync)]) -> Vec<&'b (dyn ToSql + Sync)> {
        let filter = self.filter;
        let mut all: Vec<&'b (dyn ToSql + Sync)> = vec![
            &self.slot,
            &filter.ids,
            &filter.states,
            &filter.reason,
            &filter.topic,
            &filter.event_type,
            &filter.event,
            &filter.key,
            &self.older_than,
            &self.newer_than,
        ];
        all.extend_from_slice(more);
        all
    }
}

fn group(row: &Row) -> LetterGroup {
    LetterGroup {
        state: row.get(0),
        reason: row.get(1),
        topic: row.get(2),
        event_type: row.get(3),
        count: row.get::<_, i64>(4).cast_unsigned(),
        oldest: row.get(5),
    }
}

fn line(row: &Row) -> LetterLine {
    LetterLine {
        id: row.get(0),
        state: row.get(1),
        reason: row.get(2),
        message: row.get(3),
        origin: origin(row.get(4), row.get(5)),
        event: row.get(6),
        event_type: row.get(7),
        lane: Lane { topic: row.get(8), key: row.get(9) },
        position: position(row.get(10), row.get(11)),
        attempts: row.get::<_, i32>(12).cast_unsigned(),
        attempts_left: row.get::<_, i32>(13).cast_unsigned(),
        next_attempt: row.get(14),
        parked_at: row.get(15),
    }
}

fn page(row: &Row, attempts: Vec<Attempt>) -> LetterPage {
    LetterPage {
        line: line(row),
        system: System {
            id: row.get::<_, i64>(LINE_LENGTH).cast_unsigned(),
            timeline: row.get::<_, i32>(LINE_LENGTH + 1).cast_unsigned(),
        },
        committed_at: row.get(LINE_LENGTH + 2),
        columns: columns(row.get(LINE_LENGTH + 3), row.get(LINE_LENGTH + 4), row.get(LINE_LENGTH + 5)),
        not_kept: row.get(LINE_LENGTH + 6),
        owner: row.get(LINE_LENGTH + 7),
        lease_until: row.get(LINE_LENGTH + 8),
        settled_at: row.get(LINE_LENGTH + 9),
        note: row.get(LINE_LENGTH + 10),
        noted_by: row.get(LINE_LENGTH + 11),
        attempts,
    }
}

fn attempt(row: &Row) -> Attempt {
    Attempt { number: row.get::<_, i32>(0).cast_unsigned(), at: row.get(1), reason: row.get(2), message: row.get(3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_as_many_columns_as_a_page_counts() {
        assert_eq!(LINE.split(", ").count(), LINE_LENGTH);
    }

    #[test]
    fn a_filter_gives_a_value_to_each_of_its_parameters() {
        let filter = Filter::default();
        let terms = Terms::new("slot", &filter);
        let own = terms.and(&[]);
        for number in 1..=own.len() {
            assert!(FITS.contains(&format!("${number}")), "${number} is not used");
        }
        assert!(!FITS.contains(&format!("${}", own.len() + 1)));
        assert_eq!(terms.and(&[&1_i64]).len(), own.len() + 1);
    }
}
