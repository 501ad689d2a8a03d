//! pg-transactional-outbox's message: the whole row as one JSON object, as its own example publishes it.

use super::super::json;
use super::super::value::Value;
use super::{Column, Make, needed, time};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct PgTransactionalOutbox {
    segment: Column,
    concurrency: Column,
    metadata: Column,
    started: Column,
    finished: Column,
    locked_until: Place,
    processed_at: Place,
}

impl PgTransactionalOutbox {
    pub(super) fn new(layout: &mut Layout) -> PgTransactionalOutbox {
        PgTransactionalOutbox {
            segment: Column::new("segment", layout),
            concurrency: Column::new("concurrency", layout),
            metadata: Column::new("metadata", layout),
            started: Column::new("started_attempts", layout),
            finished: Column::new("finished_attempts", layout),
            locked_until: layout.time("locked_until"),
            processed_at: layout.time("processed_at"),
        }
    }
}

impl Make for PgTransactionalOutbox {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(needed(row, Place::EVENT_TYPE, "message_type")?);
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        out.extend_from_slice(needed(row, Place::AGGREGATE_ID, "aggregate_id")?);
        Ok(true)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        out.push("id", row.bytes(Place::ID));
        Ok(())
    }

    fn timestamp(&self, row: &Row<'_>) -> Result<Option<i64>, String> {
        row.timestamp_ms(Place::TIMESTAMP).map(Some)
    }

    fn value<'a>(&self, row: &Row<'a>, out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        out.clear();
        let plain = |name: &str, place: Place, out: &mut Vec<u8>| {
            out.extend_from_slice(name.as_bytes());
            json::write(row, place, out);
        };
        let moment = |name: &str, place: Place, out: &mut Vec<u8>| -> Result<(), String> {
            out.extend_from_slice(name.as_bytes());
            match row.time(place)? {
                Some(time) => {
                    out.push(b'"');
                    time::millis(time, out);
                    out.push(b'"');
                }
                None => out.extend_from_slice(b"null"),
            }
            Ok(())
        };
        plain("{\"id\":", Place::ID, out);
        plain(",\"aggregateType\":", Place::AGGREGATE_TYPE, out);
        plain(",\"aggregateId\":", Place::AGGREGATE_ID, out);
        plain(",\"messageType\":", Place::EVENT_TYPE, out);
        plain(",\"segment\":", self.segment.place, out);
        plain(",\"concurrency\":", self.concurrency.place, out);
        plain(",\"payload\":", Place::PAYLOAD, out);
        plain(",\"metadata\":", self.metadata.place, out);
        moment(",\"lockedUntil\":", self.locked_until, out)?;
        moment(",\"createdAt\":", Place::TIMESTAMP, out)?;
        plain(",\"startedAttempts\":", self.started.place, out);
        plain(",\"finishedAttempts\":", self.finished.place, out);
        moment(",\"processedAt\":", self.processed_at, out)?;
        out.push(b'}');
        Ok(Value::Written)
    }
}
