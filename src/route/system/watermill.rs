//! watermill's record: the message's uuid and metadata as headers, its payload as it is, no key.
//!
//! A row of the SQL publisher is the message itself; one of the forwarder is an envelope, which says where it goes.

use base64::prelude::{BASE64_STANDARD, Engine};

use super::super::object;
use super::super::value::Value;
use super::{Column, Make, NO_TOPIC, needed, not_an_object};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// The header that watermill's consumers take the message's uuid from.
const UUID: &str = "_watermill_message_uuid";

/// A row is a message.
#[derive(Debug)]
pub(super) struct Watermill {
    /// That of the table; `None` when its name does not tell.
    topic: Option<String>,
    metadata: Column,
}

impl Watermill {
    pub(super) fn new(topic: Option<String>, layout: &mut Layout) -> Watermill {
        Watermill { topic, metadata: Column::new("metadata", layout) }
    }
}

impl Make for Watermill {
    fn topic(&self, _row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(self.topic.as_ref().ok_or(NO_TOPIC)?.as_bytes());
        Ok(())
    }

    fn key(&self, _row: &Row<'_>, _out: &mut Vec<u8>) -> Result<bool, String> {
        Ok(false)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        out.push(UUID, row.bytes(Place::ID));
        match self.metadata.bytes(row) {
            Some(metadata) => push_metadata(metadata, out),
            None => Ok(()),
        }
    }
}

/// A row is an envelope around a message.
#[derive(Debug)]
pub(super) struct Forwarder;

/// What is in an envelope, as it stands.
#[derive(Default)]
struct Envelope<'a> {
    topic: Option<&'a str>,
    uuid: Option<&'a str>,
    payload: Option<&'a str>,
    metadata: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    fn of(row: &Row<'a>) -> Result<Envelope<'a>, String> {
        let text = needed(row, Place::PAYLOAD, "payload").map_err(|problem| format!("it {problem}"))?;
        let mut envelope = Envelope::default();
        let visited = object::each(text, |name, raw| match name {
            "destination_topic" => envelope.topic = Some(raw),
            "uuid" => envelope.uuid = Some(raw),
            "payload" => envelope.payload = Some(raw),
            "metadata" => envelope.metadata = Some(raw),
            _ => {}
        });
        visited.map_err(|error| not_an_object("payload, the forwarder's envelope,", &error))?;
        Ok(envelope)
    }
}

impl Make for Forwarder {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let envelope = Envelope::of(row).map_err(|problem| format!("is not known: {problem}"))?;
        let topic = envelope.topic.and_then(object::string).filter(|topic| !topic.is_empty());
        let topic = topic.ok_or(
            "needs destination_topic in the forwarder's envelope, which has none; for a table without the forwarder: \
             preset = \"watermill\"",
        )?;
        out.extend_from_slice(topic.as_bytes());
        Ok(())
    }

    fn key(&self, _row: &Row<'_>, _out: &mut Vec<u8>) -> Result<bool, String> {
        Ok(false)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let envelope = Envelope::of(row)?;
        let uuid = envelope.uuid.and_then(object::string).ok_or("the forwarder's envelope has no uuid")?;
        out.push(UUID, Some(uuid.as_bytes()));
        match envelope.metadata {
            Some(metadata) => push_metadata(metadata.as_bytes(), out),
            None => Ok(()),
        }
    }

    fn value<'a>(&self, row: &Row<'a>, out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        let Some(payload) = Envelope::of(row)?.payload.filter(|raw| *raw != "null") else { return Ok(Value::None) };
        let encoded = object::string(payload).ok_or("the payload in the forwarder's envelope is not a string")?;
        out.clear();
        let decoded = BASE64_STANDARD.decode_vec(encoded.as_bytes(), out);
        decoded.map_err(|error| format!("the payload in the forwarder's envelope is not base64: {error}"))?;
        Ok(Value::Written)
    }
}

fn push_metadata(metadata: &[u8], out: &mut Headers) -> Result<(), String> {
    let mut is_taken = false;
    let visited = object::each(metadata, |name, raw| {
        is_taken |= name == UUID;
        object::push(out, name, raw);
    });
    visited.map_err(|error| not_an_object("metadata", &error))?;
    if is_taken { Err(format!("its metadata has {UUID}, which is the name of a header")) } else { Ok(()) }
}
