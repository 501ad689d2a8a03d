//! django-outbox-pattern's message: the row's own headers beside the body, and a topic from a destination of STOMP.

use super::super::object;
use super::{Column, Make, not_an_object, time};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct DjangoOutboxPattern {
    destination: Column,
    headers: Column,
}

impl DjangoOutboxPattern {
    pub(super) fn new(layout: &mut Layout) -> DjangoOutboxPattern {
        DjangoOutboxPattern { destination: Column::new("destination", layout), headers: Column::new("headers", layout) }
    }
}

impl Make for DjangoOutboxPattern {
    /// `/topic/orders.v1` is the topic `orders.v1`, `/exchange/shop/orders.v1` is `shop.orders.v1`.
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let destination = self.destination.needed(row)?;
        let kinds: [&[u8]; 3] = [b"/topic/", b"/queue/", b"/exchange/"];
        let name = kinds.iter().find_map(|kind| destination.strip_prefix(*kind)).unwrap_or(destination);
        out.extend(name.iter().map(|byte| if *byte == b'/' { b'.' } else { *byte }));
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        out.extend_from_slice(row.bytes(Place::ID).unwrap_or_default());
        Ok(true)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let before = out.len();
        if let Some(members) = self.headers.bytes(row) {
            let visited = object::each(members, |name, raw| object::push(out, name, raw));
            visited.map_err(|error| not_an_object("headers column", &error))?;
        }
        if out.len() > before {
            return Ok(());
        }
        // A row that Django did not save itself.
        let time = row.time(Place::TIMESTAMP)?.unwrap_or(row.committed_at);
        out.push("dop-msg-id", row.bytes(Place::ID));
        out.push("dop-msg-destination", self.destination.bytes(row));
        out.push("dop-msg-type", Some(b"Published"));
        out.push_with("dop-msg-sent-time", |bytes| time::micros_with_offset(time, bytes));
        Ok(())
    }

    fn timestamp(&self, row: &Row<'_>) -> Result<Option<i64>, String> {
        row.timestamp_ms(Place::TIMESTAMP).map(Some)
    }
}
