//! A column as Kafka Connect has it after Debezium: the text that PostgreSQL prints and its type enter, a typed value leaves.

use std::borrow::Cow;
use std::ops::Deref;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine};

use super::{array, decimal, time};
use crate::column::Type;
use crate::config::debezium::{BinaryMode, DecimalMode, HstoreMode, Modes};

/// Bytes of the row, or made of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part<'a>(Cow<'a, [u8]>);

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Datum<'a> {
    Null,
    /// A string: UTF-8, and halves of surrogate pairs that a JSON document may have.
    Text(Part<'a>),
    Boolean(bool),
    Integer(i64),
    Float(f32),
    Double(f64),
    Bytes(Part<'a>),
    /// `bit(n)`, as its digits.
    Bits(Part<'a>),
    /// With its scale: as many digits behind the point.
    Decimal(Part<'a>),
    /// `numeric` without a scale.
    FreeDecimal(Part<'a>),
    /// A number of a JSON document that no type of Connect holds, as it is written there.
    Written(Part<'a>),
    /// `java.util.Date` in its three parts: days, and milliseconds of a day or of all time.
    Date(i64),
    Time(i64),
    Timestamp(i64),
    /// As it is printed, x and y.
    Point(Part<'a>, f64, f64),
    List(Vec<Datum<'a>>),
    Map(Vec<(String, Option<String>)>),
    Struct(Vec<(Part<'a>, Datum<'a>)>),
}

impl<'a> Part<'a> {
    /// The bytes where they lie in the row.
    pub(super) fn borrowed(&self) -> Option<&'a [u8]> {
        match self.0 {
            Cow::Borrowed(bytes) => Some(bytes),
            Cow::Owned(_) => None,
        }
    }
}

impl Deref for Part<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> From<&'a [u8]> for Part<'a> {
    fn from(bytes: &'a [u8]) -> Part<'a> {
        Part(Cow::Borrowed(bytes))
    }
}

impl<'a> From<&'a str> for Part<'a> {
    fn from(text: &'a str) -> Part<'a> {
        Part(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<Vec<u8>> for Part<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Part(Cow::Owned(bytes))
    }
}

impl From<String> for Part<'_> {
    fn from(text: String) -> Self {
        Part(Cow::Owned(text.into_bytes()))
    }
}

impl<'a> Datum<'a> {
    /// Reads what PostgreSQL prints of a value that is not NULL.
    #[inline]
    pub(super) fn read(bytes: &'a [u8], kind: Type, modes: &Modes) -> Result<Datum<'a>, String> {
        match kind.oid {
            // uuid, text, varchar, jsonb, json
            2950 | Type::TEXT | 1043 | Type::JSONB | Type::JSON => Ok(Datum::Text(bytes.into())),
            _ => Datum::read_other(bytes, kind, modes),
        }
    }

    fn read_other(bytes: &'a [u8], kind: Type, modes: &Modes) -> Result<Datum<'a>, String> {
        let text = || std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned());
        let odd = |what: &str| format!("\"{}\" is not {what}", String::from_utf8_lossy(bytes));
        Ok(match kind.oid {
            Type::BOOL => Datum::Boolean(bytes.first() == Some(&b't')),
            20 | 21 | 23 | 26 => Datum::Integer(text()?.parse().map_err(|_| odd("an integer"))?),
            700 => Datum::Float(text()?.parse().map_err(|_| odd("a number"))?),
            701 => Datum::Double(text()?.parse().map_err(|_| odd("a number"))?),
            Type::NUMERIC => numeric(bytes, kind.modifier, modes.decimal),
            // money
            790 => scaled(decimal::money(text()?).into(), modes.decimal),
            Type::BYTEA => binary(bytes, modes.binary),
            1082 => time::date(text()?, modes.time).ok_or_else(|| odd("a date"))?,
            1083 => time::time(text()?, kind.modifier, modes.time).ok_or_else(|| odd("a time"))?,
            1114 => time::timestamp(text()?, kind.modifier, modes.time).ok_or_else(|| odd("a timestamp"))?,
            1184 => time::zoned_timestamp(text()?, kind.modifier).ok_or_else(|| odd("a timestamp"))?,
            1266 => time::zoned_time(text()?).ok_or_else(|| odd("a time"))?,
            1186 => time::interval(text()?, modes.interval).ok_or_else(|| odd("an interval"))?,
            // bit(1) and varbit(1) are booleans.
            1560 if bytes.len() == 1 => Datum::Boolean(bytes == b"1"),
            1562 if kind.modifier == 1 => Datum::Boolean(bytes == b"1"),
            1560 | 1562 => Datum::Bits(bytes.into()),
            600 => {
                let (x, y) = point(text()?).ok_or_else(|| odd("a point"))?;
                Datum::Point(bytes.into(), x, y)
            }
            Type::HSTORE => {
                let pairs = array::hstore(text()?).ok_or_else(|| odd("an hstore"))?;
                match modes.hstore {
                    HstoreMode::Map => Datum::Map(pairs),
                    HstoreMode::Json => Datum::Text(array::hstore_json(&pairs).into()),
                }
            }
            _ => match kind.element() {
                Some(element) => array::read(text()?, element, modes)?,
                None => Datum::Text(bytes.into()),
            },
        })
    }

    /// True for what counts as an empty payload: Java's `trim` leaves nothing of it.
    pub(super) fn is_blank(&self) -> bool {
        match self {
            Datum::Null => true,
            Datum::Text(text) => text.iter().all(|byte| *byte <= b' '),
            _ => false,
        }
    }

    /// The same, with nothing borrowed.
    pub(super) fn into_owned<'b>(self) -> Datum<'b> {
        let own = |part: Part<'_>| Part(Cow::Owned(part.0.into_owned()));
        match self {
            Datum::Null => Datum::Null,
            Datum::Text(text) => Datum::Text(own(text)),
            Datum::Boolean(value) => Datum::Boolean(value),
            Datum::Integer(value) => Datum::Integer(value),
            Datum::Float(value) => Datum::Float(value),
            Datum::Double(value) => Datum::Double(value),
            Datum::Bytes(bytes) => Datum::Bytes(own(bytes)),
            Datum::Bits(digits) => Datum::Bits(own(digits)),
            Datum::Decimal(text) => Datum::Decimal(own(text)),
            Datum::FreeDecimal(text) => Datum::FreeDecimal(own(text)),
            Datum::Written(text) => Datum::Written(own(text)),
            Datum::Date(days) => Datum::Date(days),
            Datum::Time(millis) => Datum::Time(millis),
            Datum::Timestamp(millis) => Datum::Timestamp(millis),
            Datum::Point(text, x, y) => Datum::Point(own(text), x, y),
            Datum::List(items) => Datum::List(items.into_iter().map(Datum::into_owned).collect()),
            Datum::Map(pairs) => Datum::Map(pairs),
            Datum::Struct(members) => {
                Datum::Struct(members.into_iter().map(|(name, member)| (own(name), member.into_owned())).collect())
            }
        }
    }
}

/// True when what Kafka Connect has of a column of this type are bytes, a decimal's among them.
pub(super) fn is_bytes(kind: Type, modes: &Modes) -> bool {
    match kind.oid {
        Type::BYTEA => modes.binary == BinaryMode::Bytes,
        Type::NUMERIC => modes.decimal == DecimalMode::Precise && kind.modifier >= 0,
        // money
        790 => modes.decimal == DecimalMode::Precise,
        1560 | 1562 => kind.modifier != 1,
        _ => false,
    }
}

fn binary(bytes: &[u8], mode: BinaryMode) -> Datum<'_> {
    match mode {
        BinaryMode::Bytes => Datum::Bytes(bytes.into()),
        BinaryMode::Base64 => Datum::Text(BASE64_STANDARD.encode(bytes).into()),
        BinaryMode::Base64UrlSafe => Datum::Text(BASE64_URL_SAFE.encode(bytes).into()),
        BinaryMode::Hex => Datum::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()),
    }
}

fn numeric(bytes: &[u8], modifier: i32, mode: DecimalMode) -> Datum<'_> {
    let is_finite = bytes.last().is_some_and(u8::is_ascii_digit);
    match (mode, modifier) {
        (DecimalMode::Precise, _) if !is_finite => Datum::Null,
        (DecimalMode::Precise, ..0) => Datum::FreeDecimal(bytes.into()),
        (DecimalMode::String, _) if !is_finite => Datum::Text(special(bytes).into()),
        (mode, _) => scaled(bytes.into(), mode),
    }
}

fn scaled(text: Part<'_>, mode: DecimalMode) -> Datum<'_> {
    match mode {
        DecimalMode::Precise => Datum::Decimal(text),
        DecimalMode::String => Datum::Text(text),
        DecimalMode::Double => Datum::Double(String::from_utf8_lossy(&text).parse().unwrap_or(f64::NAN)),
    }
}

/// What Debezium calls a number that is none.
fn special(bytes: &[u8]) -> &'static str {
    match bytes.first() {
        Some(b'N') => "NAN",
        Some(b'-') => "NEGATIVE_INFINITY",
        _ => "POSITIVE_INFINITY",
    }
}

/// Bits as bytes: the last digit is the first bit, and zeros at the end are left out.
pub(super) fn bits(digits: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = digits
        .rchunks(8)
        .map(|chunk| chunk.iter().fold(0, |byte, digit| byte << 1 | u8::from(*digit == b'1')))
        .collect();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

fn point(text: &str) -> Option<(f64, f64)> {
    let (x, y) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some((x.parse().ok()?, y.parse().ok()?))
}
