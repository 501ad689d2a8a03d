//! Positions in the WAL: `Lsn`, and `Position`, which names one row inside its transaction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A byte position in PostgreSQL's write-ahead log, printed as PostgreSQL prints it (`16/B374D848`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The position before all WAL. `START_REPLICATION … 0/0` lets the slot decide.
    pub const ZERO: Lsn = Lsn(0);

    /// Bytes from `earlier` to `self`, 0 when `self` is not ahead.
    pub fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Lsn {
    type Err = String;

    fn from_str(text: &str) -> Result<Lsn, String> {
        let parse = || {
            let (high, low) = text.split_once('/')?;
            let high = u32::from_str_radix(high, 16).ok()?;
            let low = u32::from_str_radix(low, 16).ok()?;
            Some(Lsn(u64::from(high) << 32 | u64::from(low)))
        };
        parse().ok_or_else(|| format!("\"{text}\" is not an LSN such as 16/B374D848"))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where one row stands: the commit LSN that `Begin` announced, and the row's number in its transaction.
///
/// `row` counts every `Insert` and transactional `Message` of the transaction from 1, mapped or not, so a replay of
/// the same WAL gives every row the same position. Transactions arrive in commit order, so positions only grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position {
    /// The commit LSN from `Begin`.
    pub commit: Lsn,
    /// The row's number in its transaction, from 1.
    pub row: u64,
}

impl Position {
    /// Appends it as it is printed. Every record carries it, and formatting was a seventh of what an event cost.
    pub fn write_to(self, out: &mut Vec<u8>) {
        push_hex((self.commit.0 >> 32) as u32, out);
        out.push(b'/');
        push_hex(self.commit.0 as u32, out);
        out.push(b'/');
        push_decimal(self.row, out);
    }
}

fn push_hex(value: u32, out: &mut Vec<u8>) {
    let digits = (u32::BITS - value.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| b"0123456789ABCDEF"[(value >> (digit * 4) & 0xF) as usize]));
}

fn push_decimal(mut value: u64, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b'0' + (value % 10) as u8);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out[start..].reverse();
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.commit, self.row)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_lsn_prints_and_parses_as_postgresql_does() {
        for (value, text) in [(0, "0/0"), (0x16_B374_D848, "16/B374D848"), (u64::MAX, "FFFFFFFF/FFFFFFFF")] {
            assert_eq!(Lsn(value).to_string(), text);
            assert_eq!(text.parse::<Lsn>().unwrap(), Lsn(value));
        }
        for wrong in ["", "16", "16/", "/1", "g/1", "1/100000000", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Lsn>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn positions_sort_by_commit_and_then_by_row() {
        let at = |commit, row| Position { commit: Lsn(commit), row };
        assert!(at(1, 9) < at(2, 1));
        assert!(at(2, 1) < at(2, 2));
        assert_eq!(at(0x16_B374_D848, 3).to_string(), "16/B374D848/3");
    }

    proptest! {
        #[test]
        fn a_position_is_written_as_it_is_printed(commit: u64, row: u64, bits in 0..64u32) {
            let position = Position { commit: Lsn(commit >> bits), row: row >> bits };
            let mut bytes = b"before ".to_vec();
            position.write_to(&mut bytes);
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), format!("before {position}"));
        }
    }
}
