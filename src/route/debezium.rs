//! The record of Debezium's outbox event router.

use super::value::Value;
use crate::config;
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// The router with its options, compiled.
#[derive(Debug)]
pub(super) struct Debezium {}

impl Debezium {
    pub(super) fn new(_options: &config::Debezium, _layout: &mut Layout) -> Debezium {
        Debezium {}
    }

    pub(super) fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let Some(route) = row.bytes(Place::AGGREGATE_TYPE) else { return Err("is NULL".to_owned()) };
        out.extend_from_slice(b"outbox.event.");
        out.extend_from_slice(route);
        Ok(())
    }

    pub(super) fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let key = row.bytes(Place::AGGREGATE_ID);
        out.extend_from_slice(key.unwrap_or_default());
        Ok(key.is_some())
    }

    pub(super) fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        out.push("id", row.bytes(Place::ID));
        Ok(())
    }

    pub(super) fn partition(&self, _row: &Row<'_>) -> Result<Option<i32>, String> {
        Ok(None)
    }

    pub(super) fn timestamp(&self, _row: &Row<'_>) -> Result<Option<i64>, String> {
        Ok(None)
    }

    pub(super) fn value<'a>(&self, row: &Row<'a>, _out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        Ok(row.bytes(Place::PAYLOAD).map_or(Value::None, Value::Payload))
    }
}
