//! What an outbox's rows become by themselves: each part of a record, where no route says otherwise.

use super::debezium::Debezium;
use super::headers;
use super::partition_number;
use super::pattern::Pattern;
use super::system::{self, Make};
use super::value::Value;
use crate::config;
use crate::config::{DefaultHeaders, Preset};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// The maker of one outbox's records.
#[derive(Debug)]
pub(super) enum Maker {
    /// Our own record: `outbox.event.{aggregate_type}`, the event id as key, the payload as it is.
    Outboxd { topic: Pattern, key: Pattern },
    /// The record of Debezium's event router.
    Debezium(Box<Debezium>),
    /// The record of another system.
    System(Box<dyn Make>),
}

impl Maker {
    pub(super) fn new(outbox: &config::Outbox, layout: &mut Layout) -> Maker {
        match &outbox.preset {
            Preset::Outboxd => Maker::Outboxd {
                topic: Pattern::new(&config::Pattern::default_topic(), &[], layout),
                key: Pattern::new(&config::Pattern::column("id"), &[], layout),
            },
            Preset::Debezium(options) => Maker::Debezium(Box::new(Debezium::new(options, &outbox.columns, layout))),
            Preset::System(system) => Maker::System(system::maker(*system, &outbox.source, layout)),
        }
    }

    pub(super) fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Maker::Outboxd { topic, .. } => topic.write(row, out),
            Maker::Debezium(debezium) => debezium.topic(row, out),
            Maker::System(system) => system.topic(row, out),
        }
    }

    /// False when there is no key.
    pub(super) fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        match self {
            Maker::Outboxd { key, .. } => key.write(row, out).map(|()| true),
            Maker::Debezium(debezium) => debezium.key(row, out),
            Maker::System(system) => system.key(row, out),
        }
    }

    /// Those that a record has without being asked.
    pub(super) fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        match self {
            Maker::Outboxd { .. } => {
                headers::default(DefaultHeaders::All, row, out);
                Ok(())
            }
            Maker::Debezium(debezium) => debezium.headers(row, out),
            Maker::System(system) => system.headers(row, out),
        }
    }

    /// Where the preset says nothing, the column that is mapped.
    pub(super) fn partition(&self, row: &Row<'_>) -> Result<Option<i32>, String> {
        let own = match self {
            Maker::Outboxd { .. } => None,
            Maker::Debezium(debezium) => debezium.partition(row)?,
            Maker::System(system) => system.partition(row)?,
        };
        match own {
            Some(partition) => Ok(Some(partition)),
            None => row.bytes(Place::PARTITION).map(partition_number).transpose(),
        }
    }

    /// Whether the row's payload counts as none although it is not NULL.
    pub(super) fn takes_for_none(&self, row: &Row<'_>) -> bool {
        match self {
            Maker::Debezium(debezium) => debezium.takes_for_none(row),
            Maker::Outboxd { .. } | Maker::System(_) => false,
        }
    }

    /// `None` is when it is sent.
    pub(super) fn timestamp(&self, row: &Row<'_>) -> Result<Option<i64>, String> {
        match self {
            Maker::Outboxd { .. } => row.timestamp_ms(Place::TIMESTAMP).map(Some),
            Maker::Debezium(debezium) => debezium.timestamp(row),
            Maker::System(system) => system.timestamp(row),
        }
    }

    pub(super) fn value<'a>(&self, row: &Row<'a>, out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        match self {
            Maker::Outboxd { .. } => Ok(row.bytes(Place::PAYLOAD).map_or(Value::None, Value::Payload)),
            Maker::Debezium(debezium) => debezium.value(row, out),
            Maker::System(system) => system.value(row, out),
        }
    }
}
