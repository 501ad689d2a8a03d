//! sbmt-outbox's record: the payload, five headers of its own, and what the row's options say over them.

use std::borrow::Cow;

use super::super::{object, partition_number};
use super::{Column, Make, NO_TOPIC, not_an_object, time};
use crate::config::OutboxSource;
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// The headers that every record has, in order.
const OWN: [&str; 5] = ["Outbox-Name", "Idempotency-Key", "Sequence-ID", "Created-At", "Dispatched-At"];

#[derive(Debug)]
pub(super) struct SbmtOutbox {
    /// `my_outbox_item` for the table `my_outbox_items`; `None` when the table is named otherwise.
    name: Option<String>,
    uuid: Column,
    options: Column,
}

/// What a row's options say, as it stands.
#[derive(Default)]
struct Options<'a> {
    key: Option<Cow<'a, str>>,
    partition: Option<&'a str>,
    partition_key: Option<&'a str>,
    timestamp: Option<&'a str>,
    headers: Option<&'a str>,
}

impl SbmtOutbox {
    pub(super) fn new(source: &OutboxSource, layout: &mut Layout) -> SbmtOutbox {
        let name = match source {
            OutboxSource::Table { name, .. } if name.ends_with("_items") => name.strip_suffix('s').map(str::to_owned),
            OutboxSource::Table { .. } | OutboxSource::MessagePrefix(_) => None,
        };
        SbmtOutbox { name, uuid: Column::new("uuid", layout), options: Column::new("options", layout) }
    }

    fn options<'a>(&self, row: &Row<'a>) -> Result<Options<'a>, String> {
        let mut options = Options::default();
        let Some(object) = self.options.bytes(row) else { return Ok(options) };
        let set = |raw: &'a str| Some(raw).filter(|raw| *raw != "null");
        let visited = object::each(object, |name, raw| match name {
            "key" => options.key = object::text(raw),
            "partition" => options.partition = set(raw),
            "partition_key" => options.partition_key = set(raw),
            "timestamp" => options.timestamp = set(raw),
            "headers" => options.headers = set(raw),
            _ => {}
        });
        visited.map_err(|error| not_an_object("options column", &error))?;
        Ok(options)
    }

    fn push_own(&self, name: &str, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        match name {
            "Outbox-Name" => {
                if let Some(own) = &self.name {
                    out.push(name, Some(own.as_bytes()));
                }
            }
            "Idempotency-Key" => {
                let uuid = self.uuid.needed(row).map_err(|problem| format!("its header {name} {problem}"))?;
                out.push(name, Some(uuid));
            }
            "Sequence-ID" => out.push(name, row.bytes(Place::ID)),
            "Created-At" => match row.time(Place::TIMESTAMP)? {
                Some(time) => out.push_with(name, |bytes| time::micros_with_offset(time, bytes)),
                None => out.push(name, None),
            },
            // The commit stands for "now": the same row gives the same record whenever it is sent again.
            _ => out.push_with(name, |bytes| time::micros_with_offset(row.committed_at, bytes)),
        }
        Ok(())
    }
}

impl Make for SbmtOutbox {
    fn topic(&self, _row: &Row<'_>, _out: &mut Vec<u8>) -> Result<(), String> {
        Err(NO_TOPIC.to_owned())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let options = self.options(row).map_err(|problem| format!("is not known: {problem}"))?;
        if options.partition_key.is_some() && options.partition.is_none() {
            return Err(
                "is not all that chooses its partition: options.partition_key is hashed by another algorithm in \
                 sbmt-outbox; write key = \"…\" in a [[route]]"
                    .to_owned(),
            );
        }
        out.extend_from_slice(options.key.as_deref().unwrap_or_default().as_bytes());
        Ok(options.key.is_some())
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let over = self.options(row)?.headers.unwrap_or("{}").as_bytes();
        let mut said = [None; OWN.len()];
        let visited = object::each(over, |name, raw| {
            if let Some(at) = OWN.iter().position(|own| *own == name) {
                said[at] = Some(raw);
            }
        });
        visited.map_err(|error| not_an_object("options.headers", &error))?;
        for (name, said) in OWN.iter().zip(said) {
            match said {
                Some(raw) => object::push(out, name, raw),
                None => self.push_own(name, row, out)?,
            }
        }
        let visited = object::each(over, |name, raw| {
            if !OWN.contains(&name) {
                object::push(out, name, raw);
            }
        });
        visited.map_err(|error| not_an_object("options.headers", &error))
    }

    fn partition(&self, row: &Row<'_>) -> Result<Option<i32>, String> {
        self.options(row)?.partition.map(|raw| partition_number(raw.as_bytes())).transpose()
    }

    fn timestamp(&self, row: &Row<'_>) -> Result<Option<i64>, String> {
        let not_one = |raw: &str| format!("its options.timestamp {raw} is not a count of milliseconds");
        self.options(row)?.timestamp.map(|raw| raw.parse().map_err(|_| not_one(raw))).transpose()
    }
}
