//! One outbox event as read from the WAL, its columns in their places.

use super::layout::Place;
use super::value::{Cell, parse_time};
use crate::column::Type;
use crate::dead_letter::{REASONS, Rejection};
use crate::lsn::Position;
use crate::record::Rejected;

/// Microseconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// One event. Everything is borrowed from the receive buffer, or from the scratch buffer of the room.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Where it stands.
    pub position: Position,
    /// When it was committed, microseconds since 2000-01-01 UTC.
    pub committed_at: i64,
    /// The number of its transaction.
    pub xid: u32,
    /// Which `[[outbox]]` block it was read by.
    pub outbox: usize,
    /// Its payload is in a second table and is not there, because of this.
    pub(super) missing: Option<&'a str>,
    pub(super) types: &'a [Type],
    pub(super) cells: &'a [Cell],
    pub(super) message: &'a [u8],
    pub(super) scratch: &'a [u8],
}

impl<'a> Row<'a> {
    /// The column's bytes; `None` when it is NULL or the table has no such column.
    #[inline]
    pub fn bytes(&self, place: Place) -> Option<&'a [u8]> {
        match &self.cells[place.0] {
            Cell::Absent | Cell::Null | Cell::Time(_) => None,
            Cell::Message(range) => Some(&self.message[range.clone()]),
            Cell::Scratch(range) => Some(&self.scratch[range.clone()]),
        }
    }

    /// Why its payload is not there, if it should be.
    pub fn missing(&self) -> Option<&'a str> {
        self.missing
    }

    /// True when it is NULL, or the table has no such column.
    pub fn is_null(&self, place: Place) -> bool {
        matches!(self.cells[place.0], Cell::Absent | Cell::Null)
    }

    /// True when the table has no such column.
    pub fn is_absent(&self, place: Place) -> bool {
        self.cells[place.0] == Cell::Absent
    }

    /// The column's type.
    pub fn type_of(&self, place: Place) -> Type {
        self.types[place.0]
    }

    /// The record's timestamp, milliseconds since 1970: this column, else (NULL, infinity) the commit time.
    pub fn timestamp_ms(&self, place: Place) -> Result<i64, String> {
        self.timestamp(place).map(unix_ms)
    }

    /// The same in microseconds since 2000.
    pub fn timestamp(&self, place: Place) -> Result<i64, String> {
        Ok(self.time(place)?.unwrap_or(self.committed_at))
    }

    /// The column alone: `None` when it is NULL, infinite or not there.
    pub fn time(&self, place: Place) -> Result<Option<i64>, String> {
        let time = match &self.cells[place.0] {
            Cell::Absent | Cell::Null => None,
            Cell::Time(time) => Some(*time),
            Cell::Message(_) | Cell::Scratch(_) => {
                let text = String::from_utf8_lossy(self.bytes(place).unwrap_or_default());
                // Blanks fill a character(n) up.
                Some(parse_time(text.trim_end_matches(' ')).ok_or_else(|| format!("\"{text}\" is not a timestamp"))?)
            }
        };
        Ok(time.filter(|time| *time != i64::MAX && *time != i64::MIN))
    }

    /// A column as text, for people; what is not UTF-8 in it is replaced.
    pub fn text(&self, place: Place) -> Option<String> {
        self.bytes(place).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The row cannot be published, for this reason.
    pub fn rejected(&self, reason: &'static str, message: String) -> Rejected {
        debug_assert!(REASONS.contains(&reason), "nobody could ask for letters with the reason {reason}");
        let Row { position, committed_at, .. } = *self;
        Rejected { position, committed_at, event: self.text(Place::ID), rejection: Rejection::new(reason, message) }
    }
}

/// Microseconds since 1970 of a PostgreSQL time.
pub fn unix_micros(pg_micros: i64) -> i64 {
    pg_micros.saturating_add(EPOCH_MICROS)
}

/// Milliseconds since 1970 of a PostgreSQL time.
pub fn unix_ms(pg_micros: i64) -> i64 {
    unix_micros(pg_micros).div_euclid(1000)
}
