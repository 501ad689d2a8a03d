//! Events in logical messages: a JSON object whose members carry the names of columns.
//!
//! The payload is not parsed further than needed to find its end: its bytes are published as they stand.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::layout::{Layout, Place};
use super::value::{Cell, range_in};
use crate::column::Type;
use crate::config;

/// What is filled.
pub(super) struct Cells<'a> {
    pub cells: &'a mut [Cell],
    pub types: &'a mut [Type],
    pub scratch: &'a mut Vec<u8>,
}

/// Fills cells from the message's content, which lies inside `message`.
pub(super) fn read(
    content: &[u8],
    message: &[u8],
    outbox: &config::Outbox,
    layout: &Layout,
    into: Cells<'_>,
) -> Result<(), String> {
    let text = std::str::from_utf8(content).map_err(|error| format!("its content is not UTF-8: {error}"))?;
    let fill = Fill { outbox, layout, into, message };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer
        .deserialize_map(fill)
        .and_then(|()| deserializer.end())
        .map_err(|error| format!("its content is not a JSON object: {error}"))
}

struct Fill<'a> {
    outbox: &'a config::Outbox,
    layout: &'a Layout,
    into: Cells<'a>,
    message: &'a [u8],
}

impl<'de> Visitor<'de> for Fill<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the event's columns as members")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(member) = map.next_key::<Name<'de>>()? {
            let raw: &'de RawValue = map.next_value()?;
            for (place, column, _) in self.layout.columns(self.outbox) {
                if column == member.0 {
                    self.into.types[place.0] = type_of(raw.get(), place);
                    self.into.cells[place.0] = cell(raw.get(), place, self.message, self.into.scratch);
                }
            }
        }
        Ok(())
    }
}

/// The payload and the headers stay JSON; of the other members, strings are taken without quotes and escapes.
fn cell(raw: &str, place: Place, message: &[u8], scratch: &mut Vec<u8>) -> Cell {
    if raw == "null" {
        return Cell::Null;
    }
    match serde_json::from_str::<Name<'_>>(raw) {
        Ok(text) if place != Place::PAYLOAD && place != Place::HEADERS => {
            let start = scratch.len();
            scratch.extend_from_slice(text.0.as_bytes());
            Cell::Scratch(start..scratch.len())
        }
        Ok(_) | Err(_) => Cell::Message(range_in(message, raw.as_bytes())),
    }
}

/// What a member would be as a column.
fn type_of(raw: &str, place: Place) -> Type {
    let is_document = place == Place::PAYLOAD || place == Place::HEADERS;
    Type::of(match raw.as_bytes().first() {
        _ if is_document => Type::JSON,
        Some(b'"') => Type::TEXT,
        Some(b'{' | b'[') => Type::JSON,
        Some(b't' | b'f') => Type::BOOL,
        _ if raw.parse::<i64>().is_ok() => Type::INT8,
        _ if raw.contains(['.', 'e', 'E']) && raw.parse().is_ok_and(f64::is_finite) => Type::FLOAT8,
        _ => Type::NUMERIC,
    })
}

/// A JSON string, copied only when it has escapes.
pub(crate) struct Name<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name<'a>, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_an_integer_a_double_or_what_neither_holds() {
        for (raw, oid) in [
            ("7", Type::INT8),
            ("-9223372036854775808", Type::INT8),
            ("9223372036854775808", Type::NUMERIC),
            ("1.50", Type::FLOAT8),
            ("1e2", Type::FLOAT8),
            ("1e400", Type::NUMERIC),
        ] {
            assert_eq!(type_of(raw, Place::PARTITION).oid, oid, "{raw}");
        }
    }
}
