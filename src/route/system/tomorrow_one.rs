//! tomorrow-one's record: the row's own headers, its number in eight bytes, and the source, if a route names it.
//!
//! `x-source` stands in no column, and there is no default for it. Consumers of the system's library read it if it is there, so a record
//! without it is one that they know; one with a name that we made up would tell them of a producer that they do not.

use super::super::object;
use super::{Column, Make, not_an_object};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// Members for the system's own tracing, which it does not publish.
const INTERNAL: &str = "_internal_:";

#[derive(Debug)]
pub(super) struct TomorrowOne {
    topic: Column,
    headers: Column,
}

impl TomorrowOne {
    pub(super) fn new(layout: &mut Layout) -> TomorrowOne {
        TomorrowOne { topic: Column::new("topic", layout), headers: Column::new("headers", layout) }
    }
}

impl Make for TomorrowOne {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(self.topic.needed(row)?);
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let key = row.bytes(Place::AGGREGATE_ID);
        out.extend_from_slice(key.unwrap_or_default());
        Ok(key.is_some())
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        if let Some(members) = self.headers.bytes(row) {
            let visited = object::each(members, |name, raw| {
                if !name.starts_with(INTERNAL) {
                    object::push(out, name, raw);
                }
            });
            visited.map_err(|error| not_an_object("headers column", &error))?;
        }
        let id = String::from_utf8_lossy(row.bytes(Place::ID).unwrap_or_default());
        let sequence: i64 =
            id.parse().map_err(|_| format!("its id \"{id}\" is not a number, as x-sequence needs it"))?;
        out.push("x-sequence", Some(&sequence.to_be_bytes()));
        Ok(())
    }
}
