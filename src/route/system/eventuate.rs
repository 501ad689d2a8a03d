//! Eventuate Tram's message: everything in the value, the key from its headers.

use super::super::object;
use super::super::value::Value;
use super::{Column, Make, needed, not_an_object};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct Eventuate {
    destination: Column,
    headers: Column,
    published: Column,
}

impl Eventuate {
    pub(super) fn new(layout: &mut Layout) -> Eventuate {
        Eventuate {
            destination: Column::new("destination", layout),
            headers: Column::new("headers", layout),
            published: Column::new("published", layout),
        }
    }
}

impl Make for Eventuate {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(self.destination.needed(row)?);
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let (mut partition_id, mut id) = (None, None);
        let visited = object::each(self.headers.needed(row)?, |name, raw| match name {
            "PARTITION_ID" => partition_id = object::text(raw),
            "ID" => id = object::text(raw),
            _ => {}
        });
        visited.map_err(|error| format!("needs headers that are a JSON object: {error}"))?;
        let key = partition_id.or(id).ok_or("needs a header PARTITION_ID or ID, and there is neither")?;
        out.extend_from_slice(key.as_bytes());
        Ok(true)
    }

    /// All of them are in the value.
    fn headers(&self, row: &Row<'_>, _out: &mut Headers) -> Result<(), String> {
        match self.published.bytes(row) {
            None | Some(b"0" | b"f") => Ok(()),
            Some(_) => Err(
                "it was written as published already, and Eventuate does not send such a message; on PostgreSQL 15 \
                 and later the publication can leave it out: WHERE (published = 0)"
                    .to_owned(),
            ),
        }
    }

    fn value<'a>(&self, row: &Row<'a>, out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        let headers =
            needed(row, self.headers.place, self.headers.name).map_err(|problem| format!("its value {problem}"))?;
        let mut has_id = false;
        let visited = object::each(headers, |name, _| has_id |= name == "ID");
        visited.map_err(|error| not_an_object("headers column", &error))?;
        if !has_id {
            return Err("its headers have no ID, which consumers need; the ID that Eventuate's CDC makes of a dbid depends on its \
                 configuration, and is not made here"
                .to_owned());
        }
        out.clear();
        out.extend_from_slice(b"{\"payload\":");
        match row.bytes(Place::PAYLOAD) {
            Some(payload) => {
                let text =
                    std::str::from_utf8(payload).map_err(|error| format!("its payload is not UTF-8: {error}"))?;
                serde_json::to_writer(&mut *out, text).expect("a string is JSON, and a buffer takes it");
            }
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"headers\":");
        out.extend_from_slice(headers.trim_ascii());
        out.push(b'}');
        Ok(Value::Written)
    }
}
