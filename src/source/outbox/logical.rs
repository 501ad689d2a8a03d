//! Events in logical messages: a JSON object whose members carry the names of columns.
//!
//! The payload is not parsed further than needed to find its end: its bytes are published as they stand.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::layout::{Layout, Place};
use super::value::{Cell, range_in};
use crate::config;

/// Fills `cells` from the message's content, which lies inside `message`.
pub(super) fn read(
    content: &[u8],
    message: &[u8],
    columns: &config::Columns,
    layout: &Layout,
    cells: &mut [Cell],
    scratch: &mut Vec<u8>,
) -> Result<(), String> {
    let text = std::str::from_utf8(content).map_err(|error| format!("its content is not UTF-8: {error}"))?;
    let fill = Fill { columns, layout, cells, scratch, message };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer
        .deserialize_map(fill)
        .and_then(|()| deserializer.end())
        .map_err(|error| format!("its content is not a JSON object: {error}"))
}

struct Fill<'a> {
    columns: &'a config::Columns,
    layout: &'a Layout,
    cells: &'a mut [Cell],
    scratch: &'a mut Vec<u8>,
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
            for (place, column, _) in self.layout.columns(self.columns) {
                if column == member.0 {
                    self.cells[place.0] = cell(raw.get(), place, self.message, self.scratch);
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
