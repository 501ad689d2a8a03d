//! Column values as the bytes that PostgreSQL would print, whichever way the server sent them.
//!
//! Only types whose binary form we turn into exactly that text have a `Kind` of their own. For every other type the
//! session asks for text instead, so nothing is ever published that PostgreSQL would not have printed.

use std::io::Write;
use std::ops::Range;

use crate::calendar::{DAYS_TO_2000, date_of, days_of};
use crate::source::pgoutput::Value;

/// How a column's binary form becomes text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The binary form is the text: text, varchar, char(n), name, json.
    Raw,
    /// 16 bytes.
    Uuid,
    /// Two, four or eight bytes, big-endian.
    Int,
    /// One byte.
    Bool,
    /// A version byte, then the text.
    Jsonb,
    /// Published as its bytes, not as hexadecimal text.
    Bytea,
    /// Microseconds since 2000-01-01; used as a time, never as text.
    Time,
    /// Any other type: readable only as text.
    Unknown,
}

impl Kind {
    /// The kind of a built-in type, by its OID (pg_type.dat).
    pub fn of(type_oid: u32) -> Kind {
        match type_oid {
            // Not "char" (18): PostgreSQL prints its zero as nothing, and bytes above 127 in octal.
            19 | 25 | 114 | 1042 | 1043 => Kind::Raw,
            2950 => Kind::Uuid,
            20 | 21 | 23 => Kind::Int,
            16 => Kind::Bool,
            3802 => Kind::Jsonb,
            17 => Kind::Bytea,
            1114 | 1184 => Kind::Time,
            _ => Kind::Unknown,
        }
    }
}

/// Where a column's bytes are: in the message itself, or rendered into the scratch buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// The table has no such column.
    Absent,
    /// NULL.
    Null,
    /// A range of the message.
    Message(Range<usize>),
    /// A range of the scratch buffer.
    Scratch(Range<usize>),
    /// A time, in microseconds since 2000-01-01 UTC.
    Time(i64),
}

/// Renders one value of a row in `message`.
pub fn render(value: Value<'_>, kind: Kind, message: &[u8], scratch: &mut Vec<u8>) -> Result<Cell, String> {
    match value {
        Value::Null => Ok(Cell::Null),
        Value::Unchanged => Err("the server sent an insert without this column's value".into()),
        Value::Text(bytes) => match kind {
            Kind::Bytea => scratched(scratch, |out| unhex(bytes, out)),
            Kind::Raw | Kind::Uuid | Kind::Int | Kind::Bool | Kind::Jsonb | Kind::Time | Kind::Unknown => {
                Ok(Cell::Message(range_in(message, bytes)))
            }
        },
        Value::Binary(bytes) => match kind {
            Kind::Unknown => Err("the server sent a binary value of a type that is read as text only".into()),
            Kind::Raw | Kind::Bytea => Ok(Cell::Message(range_in(message, bytes))),
            Kind::Jsonb => match bytes.split_first() {
                Some((1, text)) => Ok(Cell::Message(range_in(message, text))),
                _ => Err("jsonb in an unknown binary version".into()),
            },
            Kind::Uuid => scratched(scratch, |out| {
                let uuid = bytes.try_into().map_err(|_| "a uuid that has not 16 bytes")?;
                out.extend_from_slice(&uuid_text(uuid));
                Ok(())
            }),
            Kind::Int => scratched(scratch, |out| {
                write!(out, "{}", integer(bytes).ok_or("an integer of an unknown size")?).map_err(|e| e.to_string())
            }),
            Kind::Bool => scratched(scratch, |out| {
                let letter = match bytes {
                    [0] => b'f',
                    [1] => b't',
                    _ => return Err("a boolean that is neither 0 nor 1".into()),
                };
                out.push(letter);
                Ok(())
            }),
            Kind::Time => {
                Ok(Cell::Time(i64::from_be_bytes(bytes.try_into().map_err(|_| "a timestamp that has not 8 bytes")?)))
            }
        },
    }
}

/// A uuid in lower case, with hyphens. Nearly every event has one.
fn uuid_text(uuid: &[u8; 16]) -> [u8; 36] {
    const PAIRS: [[u8; 2]; 256] = {
        let (digits, mut pairs, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
        while byte < 256 {
            pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
            byte += 1;
        }
        pairs
    };
    const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
    let mut text = [b'-'; 36];
    for (byte, at) in uuid.iter().zip(PLACES) {
        [text[at], text[at + 1]] = PAIRS[usize::from(*byte)];
    }
    text
}

/// Where `part`, a slice of `whole`, stands in it.
pub fn range_in(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    debug_assert!(part.is_empty() || start + part.len() <= whole.len(), "a part lies inside the whole");
    // An empty slice may point anywhere.
    if part.is_empty() { 0..0 } else { start..start + part.len() }
}

/// Parses `2026-11-16 04:06:00.123456+00` (or with `T`, `Z`, `+01:30`, BC) to microseconds since 2000-01-01 UTC.
/// `infinity` and `-infinity` are PostgreSQL's own extremes. A time without a zone is taken as UTC.
pub fn parse_time(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (text, before_christ) = match text.strip_suffix(" BC") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (date, rest) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-');
    let mut number = || date.next()?.parse::<i64>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    let year = if before_christ { 1 - year } else { year };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(-5000..=300_000).contains(&year) {
        return None;
    }
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    let micros = clock_micros(clock)?;
    let offset = match zone.split_at_checked(1) {
        None | Some(("Z", "")) => 0,
        Some(("+", zone)) => clock_micros(zone)?,
        Some(("-", zone)) => -clock_micros(zone)?,
        Some(_) => return None,
    };
    let midnight = (days_of(year, month, day) - DAYS_TO_2000).checked_mul(86_400_000_000)?;
    midnight.checked_add(micros - offset)
}

/// `HH[:MM[:SS[.ffffff]]]` in microseconds.
fn clock_micros(text: &str) -> Option<i64> {
    let mut micros = 0;
    let mut parts = text.splitn(3, ':');
    let whole = |part: &str| (!part.is_empty() && part.len() <= 2).then(|| part.parse::<u32>().ok()).flatten();
    micros += i64::from(whole(parts.next()?)?) * 3_600_000_000;
    micros += i64::from(parts.next().map_or(Some(0), whole)?) * 60_000_000;
    let (seconds, fraction) = match parts.next() {
        None => ("0", ""),
        Some(text) => text.split_once('.').unwrap_or((text, "")),
    };
    micros += i64::from(whole(seconds)?) * 1_000_000;
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = format!("{fraction:0<6}");
    Some(micros + digits[..6].parse::<i64>().ok()?)
}

/// A time as PostgreSQL prints it, in ISO style and UTC; the type tells whether with a zone. `parse_time` reads it.
pub fn time_text(micros: i64, type_oid: u32) -> String {
    match micros {
        i64::MAX => return "infinity".to_owned(),
        i64::MIN => return "-infinity".to_owned(),
        _ => {}
    }
    let Moment { year, month, day, hours, minutes, seconds, micros } = Moment::of(micros);
    let (year, era) = if year <= 0 { (1 - year, " BC") } else { (year, "") };
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    let (fraction, zone) = (fraction.trim_end_matches('0'), if type_oid == 1184 { "+00" } else { "" });
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}{fraction}{zone}{era}")
}

/// A time's parts, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Moment {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hours: i64,
    pub minutes: i64,
    pub seconds: i64,
    pub micros: i64,
}

impl Moment {
    /// The parts of a time in microseconds since 2000-01-01.
    pub fn of(time: i64) -> Moment {
        const DAY: i64 = 86_400_000_000;
        let (year, month, day) = date_of(time.div_euclid(DAY) + DAYS_TO_2000);
        let (seconds, micros) = (time.rem_euclid(DAY) / 1_000_000, time.rem_euclid(1_000_000));
        Moment { year, month, day, hours: seconds / 3600, minutes: seconds / 60 % 60, seconds: seconds % 60, micros }
    }
}

fn scratched(scratch: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>) -> Result<Cell, String> {
    let start = scratch.len();
    write(scratch)?;
    Ok(Cell::Scratch(start..scratch.len()))
}

fn integer(bytes: &[u8]) -> Option<i64> {
    match *bytes {
        [a, b] => Some(i64::from(i16::from_be_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_be_bytes([a, b, c, d]))),
        _ => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
    }
}

/// bytea's text output under `bytea_output = hex`, which our sessions set.
fn unhex(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let digits = text.strip_prefix(b"\\x").filter(|digits| digits.len() % 2 == 0).ok_or("bytea that is not in hex")?;
    let digit = |byte: u8| (byte as char).to_digit(16).ok_or("bytea with a digit that is not hexadecimal");
    for pair in digits.chunks_exact(2) {
        out.push((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(value: Value<'_>, kind: Kind, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut scratch = b"before".to_vec();
        Ok(match render(value, kind, message, &mut scratch)? {
            Cell::Message(range) => message[range].to_vec(),
            Cell::Scratch(range) => scratch[range].to_vec(),
            other => format!("{other:?}").into_bytes(),
        })
    }

    #[test]
    fn binary_values_read_as_postgresql_prints_them() {
        let table: [(Kind, &[u8], &str); 11] = [
            (Kind::Raw, b"na\xc3\xafve \xf0\x9f\x98\x80", "naïve 😀"),
            (Kind::Raw, b"", ""),
            (Kind::Jsonb, b"\x01{\"a\": 1e400}", "{\"a\": 1e400}"),
            (Kind::Bytea, b"raw", "raw"),
            (
                Kind::Uuid,
                b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef",
                "01234567-89ab-cdef-0123-456789abcdef",
            ),
            (Kind::Int, &[0xff, 0xfe], "-2"),
            (Kind::Int, &[0x7f, 0xff, 0xff, 0xff], "2147483647"),
            (Kind::Int, &[0x80, 0, 0, 0, 0, 0, 0, 0], "-9223372036854775808"),
            (Kind::Bool, &[1], "t"),
            (Kind::Bool, &[0], "f"),
            (Kind::Time, &[0, 0, 0, 0, 0, 0, 0, 7], "Time(7)"),
        ];
        for (kind, bytes, text) in table {
            assert_eq!(shown(Value::Binary(bytes), kind, bytes).unwrap(), text.as_bytes(), "{kind:?}");
        }
    }

    #[test]
    fn binary_values_of_the_wrong_size_are_refused() {
        for (kind, bytes) in [
            (Kind::Jsonb, &b""[..]),
            (Kind::Jsonb, b"\x02{}"),
            (Kind::Uuid, b"short"),
            (Kind::Int, b"123"),
            (Kind::Bool, b"\x02"),
            (Kind::Time, b"1234"),
        ] {
            assert!(shown(Value::Binary(bytes), kind, bytes).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn text_values_are_as_they_are_but_bytea_becomes_its_bytes() {
        assert_eq!(shown(Value::Text(b"12"), Kind::Int, b"12").unwrap(), b"12");
        assert_eq!(shown(Value::Text(b"\\x00ffAB"), Kind::Bytea, b"").unwrap(), b"\x00\xff\xab");
        assert_eq!(shown(Value::Text(b"\\x"), Kind::Bytea, b"").unwrap(), b"");
        for wrong in [&b"00"[..], b"\\x0", b"\\x0g"] {
            assert!(shown(Value::Text(wrong), Kind::Bytea, wrong).is_err());
        }
    }

    #[test]
    fn times_are_parsed_in_every_form_postgresql_writes() {
        let table = [
            ("2000-01-01 00:00:00+00", 0),
            ("2000-01-01 00:00:00", 0),
            ("1999-12-31 23:59:59.999999+00", -1),
            ("2000-01-01T00:00:00Z", 0),
            ("2000-01-01 05:30:00+05:30", 0),
            ("1999-12-31 20:00:00-04", 0),
            ("1970-01-01 00:00:00+00", -946_684_800_000_000),
            ("0001-12-31 00:00:00+00 BC", -63_082_368_000_000_000),
            ("infinity", i64::MAX),
            ("-infinity", i64::MIN),
        ];
        for (text, micros) in table {
            assert_eq!(parse_time(text), Some(micros), "{text}");
        }
        assert_eq!(parse_time("2026-11-16T04:06:00.5+01:30"), parse_time("2026-11-16 02:36:00.500000+00"));
        for wrong in [
            "",
            "now",
            "2000-01-01",
            "2000-13-01 00:00:00",
            "2000-01-01 00:00:00+",
            "2000-01-01 0:0:0.x",
            "2000-1-1 1:2:3:4",
            "299999-01-01 00:00:00",
            "294277-01-09 99:00:00-99",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_uuid_reads_as_its_own_crate_writes_it(bytes: [u8; 16]) {
            let text = shown(Value::Binary(&bytes), Kind::Uuid, &bytes).unwrap();
            prop_assert_eq!(text, uuid::Uuid::from_bytes(bytes).to_string().into_bytes());
        }

        #[test]
        fn no_text_makes_the_time_parser_panic(text in "[0-9TZ: .+BC-]{0,40}|\\PC{0,20}") {
            parse_time(&text);
        }

        #[test]
        fn no_bytes_make_a_value_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 0..7usize) {
            let kind = [Kind::Raw, Kind::Uuid, Kind::Int, Kind::Bool, Kind::Jsonb, Kind::Bytea, Kind::Time][kind];
            drop(shown(Value::Binary(&bytes), kind, &bytes));
            drop(shown(Value::Text(&bytes), kind, &bytes));
        }
    }
}
