//! CAP's record: what its content has under `Headers` as headers, what it has under `Value` as value.

use super::super::object;
use super::super::value::Value;
use super::{Column, Make, needed, not_an_object};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct Cap {
    status: Column,
}

/// A message's two members, as they stand.
#[derive(Default)]
struct Content<'a> {
    headers: Option<&'a str>,
    value: Option<&'a str>,
}

impl Cap {
    pub(super) fn new(layout: &mut Layout) -> Cap {
        Cap { status: Column::new("StatusName", layout) }
    }
}

impl<'a> Content<'a> {
    fn of(row: &Row<'a>) -> Result<Content<'a>, String> {
        let text = needed(row, Place::PAYLOAD, "Content").map_err(|problem| format!("it {problem}"))?;
        let mut content = Content::default();
        let visited = object::each(text, |name, raw| match name {
            // The application may name members its own way.
            "Headers" | "headers" => content.headers = Some(raw),
            "Value" | "value" => content.value = Some(raw),
            _ => {}
        });
        visited.map_err(|error| not_an_object("Content", &error))?;
        Ok(content)
    }

    fn each_header(&self, visit: impl FnMut(&str, &'a str)) -> Result<(), String> {
        let headers = self.headers.ok_or("its Content has no Headers")?;
        object::each(headers.as_bytes(), visit).map_err(|error| not_an_object("Content's Headers", &error))
    }
}

impl Make for Cap {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(needed(row, Place::EVENT_TYPE, "Name")?);
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let (mut key, mut id) = (None, None);
        let content = Content::of(row).map_err(|problem| format!("is not known: {problem}"))?;
        let visited = content.each_header(|name, raw| match name {
            "cap-kafka-key" => key = object::text(raw).filter(|key| !key.is_empty()),
            "cap-msg-id" => id = object::text(raw),
            _ => {}
        });
        visited.map_err(|problem| format!("is not known: {problem}"))?;
        let key = key.or(id).ok_or("needs a header cap-kafka-key or cap-msg-id, and there is neither")?;
        out.extend_from_slice(key.as_bytes());
        Ok(true)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        if self.status.bytes(row) == Some(b"Delayed") {
            return Err("it is for later (\"StatusName\" is Delayed), and outboxd publishes at once".to_owned());
        }
        Content::of(row)?.each_header(|name, raw| object::push(out, name, raw))
    }

    fn value<'a>(&self, row: &Row<'a>, _out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        Ok(match Content::of(row)?.value {
            None | Some("null") => Value::None,
            Some(raw) => Value::Payload(raw.as_bytes()),
        })
    }
}
