//! The records of other outbox systems, as the consumers of each know them: one maker for each.
//!
//! A row enters, a part of its record leaves. What a system's own relay takes from its configuration and not from the row
//! (a topic, the name of a source) comes from a `[[route]]`; an event that has no topic without it is rejected, and told which line
//! to write.

mod array;
mod brighter;
mod cap;
mod django_outbox_pattern;
mod event;
mod eventuate;
mod goharvest;
mod pg_transactional_outbox;
mod sbmt_outbox;
mod time;
mod tomorrow_one;
mod watermill;

use std::fmt;

use super::value::Value;
use crate::config::{OutboxSource, System, Topic};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// What one system's rows become.
pub(super) trait Make: fmt::Debug + Send + Sync {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String>;

    /// False when there is no key.
    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String>;

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String>;

    fn partition(&self, _row: &Row<'_>) -> Result<Option<i32>, String> {
        Ok(None)
    }

    /// `None` is when it is sent: most systems leave it to their producer.
    fn timestamp(&self, _row: &Row<'_>) -> Result<Option<i64>, String> {
        Ok(None)
    }

    /// The payload as it is, unless the system has another one.
    fn value<'a>(&self, row: &Row<'a>, _out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        Ok(row.bytes(Place::PAYLOAD).map_or(Value::None, Value::Payload))
    }
}

/// The maker for a system's table.
pub(super) fn maker(system: System, source: &OutboxSource, layout: &mut Layout) -> Box<dyn Make> {
    match system {
        System::Eventuate => Box::new(eventuate::Eventuate::new(layout)),
        System::Watermill => Box::new(watermill::Watermill::new(topic(system, source), layout)),
        System::WatermillForwarder => Box::new(watermill::Forwarder),
        System::Goharvest => Box::new(goharvest::Goharvest::new(layout)),
        System::TomorrowOne => Box::new(tomorrow_one::TomorrowOne::new(layout)),
        System::Brighter => Box::new(brighter::Brighter::new(layout)),
        System::Cap => Box::new(cap::Cap::new(layout)),
        System::PgTransactionalOutbox => Box::new(pg_transactional_outbox::PgTransactionalOutbox::new(layout)),
        System::DjangoOutboxPattern => Box::new(django_outbox_pattern::DjangoOutboxPattern::new(layout)),
        System::SbmtOutbox => Box::new(sbmt_outbox::SbmtOutbox::new(source, layout)),
        System::Openg2p => Box::new(event::Event::openg2p(layout)),
        System::OutboxEvents => Box::new(event::Event::outbox_events()),
        System::Doorito => Box::new(event::Event::doorito(layout)),
        System::Yantra => Box::new(event::Event::yantra()),
        System::DjangoAutomate => Box::new(event::Event::django_automate(topic(system, source))),
    }
}

/// The topic of all rows, where the table's name tells it.
fn topic(system: System, source: &OutboxSource) -> Option<String> {
    match source {
        OutboxSource::Table { name, .. } => match system.topic(name) {
            Topic::Table(topic) => Some(topic),
            Topic::Row | Topic::Route => None,
        },
        OutboxSource::MessagePrefix(_) => None,
    }
}

/// A column that no part names.
#[derive(Debug, Clone, Copy)]
struct Column {
    place: Place,
    name: &'static str,
}

impl Column {
    fn new(name: &'static str, layout: &mut Layout) -> Column {
        Column { place: layout.column(name), name }
    }

    /// Its bytes; `None` when it is NULL, or the table has none.
    fn bytes<'a>(&self, row: &Row<'a>) -> Option<&'a [u8]> {
        row.bytes(self.place)
    }

    /// Its bytes, or that they are missing.
    fn needed<'a>(&self, row: &Row<'a>) -> Result<&'a [u8], String> {
        needed(row, self.place, self.name)
    }
}

fn needed<'a>(row: &Row<'a>, place: Place, name: &str) -> Result<&'a [u8], String> {
    row.bytes(place).ok_or_else(|| match row.is_absent(place) {
        true => format!("needs column \"{name}\", which it has not"),
        false => format!("needs column \"{name}\", which is NULL"),
    })
}

/// What is said of a topic that only a route can name.
const NO_TOPIC: &str = "stands in no column: write topic = \"…\" in a [[route]]";

/// Says that a column does not hold what it should.
fn not_an_object(name: &str, error: &serde_json::Error) -> String {
    format!("its {name} is not a JSON object: {error}")
}

#[cfg(test)]
mod tests;
