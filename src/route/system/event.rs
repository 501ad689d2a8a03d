//! Outboxes whose events have a name of their own for each part, and no record in Kafka yet: the payload as it is, the parts as
//! headers, and the thing that the event is about as key.

use super::super::value::Value;
use super::{Column, Make, NO_TOPIC, needed, time};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// Our own names for the parts.
const PARTS: [(&str, Place); 4] = [
    ("id", Place::ID),
    ("type", Place::EVENT_TYPE),
    ("aggregate_type", Place::AGGREGATE_TYPE),
    ("aggregate_id", Place::AGGREGATE_ID),
];

/// The names that the publisher of `outbox_events` gives them.
const ATTRIBUTES: [(&str, Place); 4] = [
    ("event_id", Place::ID),
    ("event_type", Place::EVENT_TYPE),
    ("aggregate_type", Place::AGGREGATE_TYPE),
    ("aggregate_id", Place::AGGREGATE_ID),
];

#[derive(Debug)]
pub(super) struct Event {
    topic: Topic,
    key: (Place, &'static str),
    headers: &'static [(&'static str, Place)],
    /// A further column that is a header of the same name.
    further: Option<Column>,
    created_at: Created,
    payload: Payload,
}

#[derive(Debug)]
enum Topic {
    /// `outbox.event.` and the kind of thing that it is about.
    Aggregate,
    Column(Column),
    /// That of the table.
    Table(String),
    /// A route names it.
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
enum Created {
    Header,
    NoHeader,
}

#[derive(Debug, PartialEq, Eq)]
enum Payload {
    Needed,
    /// Without one, the record is a tombstone.
    Optional,
}

impl Event {
    fn of_aggregate(headers: &'static [(&'static str, Place)]) -> Event {
        Event {
            topic: Topic::Aggregate,
            key: (Place::AGGREGATE_ID, "aggregate_id"),
            headers,
            further: None,
            created_at: Created::NoHeader,
            payload: Payload::Optional,
        }
    }

    pub(super) fn openg2p(layout: &mut Layout) -> Event {
        Event {
            topic: Topic::Column(Column::new("topic_id", layout)),
            key: (Place::AGGREGATE_ID, "internal_record_id"),
            further: Some(Column::new("change_request_id", layout)),
            payload: Payload::Needed,
            ..Event::of_aggregate(&PARTS)
        }
    }

    pub(super) fn outbox_events() -> Event {
        Event { created_at: Created::Header, payload: Payload::Needed, ..Event::of_aggregate(&ATTRIBUTES) }
    }

    pub(super) fn doorito(layout: &mut Layout) -> Event {
        Event { further: Some(Column::new("idempotency_key", layout)), ..Event::of_aggregate(&PARTS) }
    }

    pub(super) fn yantra() -> Event {
        Event::of_aggregate(&PARTS)
    }

    pub(super) fn django_automate(topic: Option<String>) -> Event {
        let topic = topic.map_or(Topic::Unknown, Topic::Table);
        Event { topic, key: (Place::ID, "id"), ..Event::of_aggregate(&PARTS[..1]) }
    }
}

impl Make for Event {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match &self.topic {
            Topic::Aggregate => {
                out.extend_from_slice(b"outbox.event.");
                out.extend_from_slice(needed(row, Place::AGGREGATE_TYPE, "aggregate_type")?);
            }
            Topic::Column(column) => out.extend_from_slice(column.needed(row)?),
            Topic::Table(topic) => out.extend_from_slice(topic.as_bytes()),
            Topic::Unknown => return Err(NO_TOPIC.to_owned()),
        }
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let (place, name) = self.key;
        out.extend_from_slice(needed(row, place, name)?);
        Ok(true)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let further = self.further.iter().map(|column| (column.name, column.place));
        for (name, place) in self.headers.iter().copied().chain(further) {
            if let Some(value) = row.bytes(place) {
                out.push(name, Some(value));
            }
        }
        if self.created_at == Created::Header {
            let time = row.time(Place::TIMESTAMP)?.unwrap_or(row.committed_at);
            out.push_with("created_at", |bytes| time::shortest(time, bytes));
        }
        Ok(())
    }

    fn timestamp(&self, row: &Row<'_>) -> Result<Option<i64>, String> {
        row.timestamp_ms(Place::TIMESTAMP).map(Some)
    }

    fn value<'a>(&self, row: &Row<'a>, _out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        match row.bytes(Place::PAYLOAD) {
            // A sample of rows has no payloads.
            None if self.payload == Payload::Needed && !row.is_absent(Place::PAYLOAD) => {
                Err("its payload is NULL, and must not be".to_owned())
            }
            Some(b"null") if self.payload == Payload::Needed => Err("its payload is null, and must not be".to_owned()),
            None => Ok(Value::None),
            Some(payload) => Ok(Value::Payload(payload)),
        }
    }
}
