//! Brighter's record: its message headers and those of CloudEvents in Kafka's headers, then the bag.

use super::super::object;
use super::{Column, Make, not_an_object, time};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// Names of the bag that Brighter keeps for itself.
const RESERVED: [&str; 10] = [
    "MessageId",
    "MessageType",
    "Topic",
    "CorrelationId",
    "TimeStamp",
    "PartitionKey",
    "ContentType",
    "ReplyTo",
    "x-delay",
    "HandledCount",
];

#[derive(Debug)]
pub(super) struct Brighter {
    topic: Column,
    message_type: Column,
    content_type: Column,
    correlation_id: Column,
    partition_key: Column,
    reply_to: Column,
    bag: Column,
    /// Tables of version 9 have none of those below.
    spec_version: Column,
    kind: Column,
    source: Column,
    optional: [(&'static str, Column); 5],
}

impl Brighter {
    pub(super) fn new(layout: &mut Layout) -> Brighter {
        let mut column = |name| Column::new(name, layout);
        Brighter {
            topic: column("topic"),
            message_type: column("messagetype"),
            content_type: column("contenttype"),
            correlation_id: column("correlationid"),
            partition_key: column("partitionkey"),
            reply_to: column("replyto"),
            bag: column("headerbag"),
            spec_version: column("specversion"),
            kind: column("type"),
            source: column("source"),
            optional: [
                ("ce_subject", column("subject")),
                ("ce_dataschema", column("dataschema")),
                ("ce_traceparent", column("traceparent")),
                ("ce_tracestate", column("tracestate")),
                ("baggage", column("baggage")),
            ],
        }
    }

    fn push_bag(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let Some(bag) = self.bag.bytes(row).filter(|bag| !bag.is_empty()) else { return Ok(()) };
        let visited = object::each(bag, |name, raw| match raw {
            _ if RESERVED.contains(&name) => {}
            // As .NET prints them.
            "true" => out.push(name, Some(b"True")),
            "false" => out.push(name, Some(b"False")),
            _ => object::push(out, name, raw),
        });
        visited.map_err(|error| not_an_object("headerbag", &error))
    }
}

impl Make for Brighter {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(self.topic.needed(row)?);
        Ok(())
    }

    /// An empty key is none: Brighter's consumers do not tell them apart, and all events would come to one partition.
    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        out.extend_from_slice(self.partition_key.bytes(row).unwrap_or_default());
        Ok(!out.is_empty())
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let time = row.time(Place::TIMESTAMP)?.unwrap_or(row.committed_at);
        let filled = |column: &Column| column.bytes(row).filter(|bytes| !bytes.is_empty());
        let push = |name: &str, value: Option<&[u8]>, out: &mut Headers| {
            if value.is_some() {
                out.push(name, value);
            }
        };
        let id = row.bytes(Place::ID);
        out.push("MessageType", Some(filled(&self.message_type).unwrap_or(b"MT_EVENT")));
        out.push("Topic", Some(self.topic.bytes(row).unwrap_or_default()));
        out.push("MessageId", id);
        out.push_with("TimeStamp", |bytes| time::invariant(time, bytes));
        push("ContentType", filled(&self.content_type), out);
        push("CorrelationId", filled(&self.correlation_id), out);
        push("PartitionKey", filled(&self.partition_key), out);
        push("ReplyTo", filled(&self.reply_to), out);
        out.push("x-delay", Some(b"0"));
        out.push("HandledCount", Some(b"0"));
        out.push("ce_id", id);
        out.push("ce_specversion", Some(filled(&self.spec_version).unwrap_or(b"1.0")));
        out.push("ce_type", Some(self.kind.bytes(row).unwrap_or_default()));
        out.push("ce_source", Some(filled(&self.source).unwrap_or(b"http://goparamore.io/")));
        out.push_with("ce_time", |bytes| time::millis(time, bytes));
        for (name, column) in &self.optional {
            push(name, filled(column), out);
        }
        push("content-type", filled(&self.content_type), out);
        self.push_bag(row, out)
    }
}
