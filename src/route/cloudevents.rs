//! A row as a CloudEvent: its attributes by patterns, into headers or into one document with the payload.

use std::ops::Range;

use super::pattern::Pattern;
use super::value::Value;
use crate::cloudevents::{Attributes, Data, Extension, ExtensionName, Time};
use crate::config;
use crate::config::ContentMode;
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct CloudEvents {
    mode: ContentMode,
    source: Pattern,
    kind: Pattern,
    subject: Option<Pattern>,
    datacontenttype: Option<String>,
    dataschema: Option<Pattern>,
    extensions: Vec<(ExtensionName, Pattern)>,
    /// `None`: that of the commit.
    time: Option<Place>,
}

/// What patterns are written into.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    extensions: Vec<Option<Range<usize>>>,
}

impl CloudEvents {
    /// `time` is where the record's timestamp is, `None` where that is the commit's.
    pub(super) fn new(
        mode: ContentMode,
        attributes: &config::CloudEvents,
        rewrites: &[(String, config::Rewrite)],
        time: Option<Place>,
        layout: &mut Layout,
    ) -> CloudEvents {
        let mut compile = |pattern: &config::Pattern| Pattern::new(pattern, rewrites, layout);
        CloudEvents {
            mode,
            source: compile(&attributes.source),
            kind: compile(&attributes.kind),
            subject: attributes.subject.as_ref().map(&mut compile),
            datacontenttype: attributes.datacontenttype.clone(),
            dataschema: attributes.dataschema.as_ref().map(&mut compile),
            extensions: attributes.extensions.iter().map(|(name, pattern)| (name.clone(), compile(pattern))).collect(),
            time,
        }
    }

    /// True where the attributes are headers.
    pub(super) fn is_binary(&self) -> bool {
        self.mode == ContentMode::Binary
    }

    /// Adds the headers; a structured event is written into the buffer. Without a payload it is an event without data.
    pub(super) fn write<'a>(
        &self,
        row: &Row<'a>,
        payload: Option<&'a [u8]>,
        headers: &mut Headers,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Value<'a>, String> {
        scratch.bytes.clear();
        scratch.extensions.clear();
        let source = required("source", &self.source, row, &mut scratch.bytes)?;
        let kind = required("type", &self.kind, row, &mut scratch.bytes)?;
        let subject = optional("subject", self.subject.as_ref(), row, &mut scratch.bytes)?;
        let dataschema = optional("dataschema", self.dataschema.as_ref(), row, &mut scratch.bytes)?;
        for (name, pattern) in &self.extensions {
            let written = optional(name.as_str(), Some(pattern), row, &mut scratch.bytes)?;
            scratch.extensions.push(written);
        }
        let bytes = |range: Range<usize>| &scratch.bytes[range];
        let written = self.extensions.iter().zip(&scratch.extensions);
        let extensions = written.filter_map(|((name, _), range)| Some((name, Extension::Text(bytes(range.clone()?)))));
        let attributes = Attributes {
            id: row.bytes(Place::ID).unwrap_or_default(),
            source: bytes(source),
            kind: bytes(kind),
            subject: subject.map(bytes),
            time: Some(Time::Micros(self.time.map_or(Ok(row.committed_at), |place| row.timestamp(place))?)),
            datacontenttype: self.datacontenttype.as_ref().map(String::as_bytes),
            dataschema: dataschema.map(bytes),
            extensions,
        };
        let written = match self.mode {
            ContentMode::Binary => {
                attributes.write_binary(headers).map(|()| payload.map_or(Value::None, Value::Payload))
            }
            ContentMode::Structured => {
                out.clear();
                let data = Data::of(payload, attributes.datacontenttype);
                attributes.write_structured(data, headers, out).map(|()| Value::Written)
            }
        };
        written.map_err(|problem| format!("it is no CloudEvent: {problem}"))
    }
}

fn required(name: &str, pattern: &Pattern, row: &Row<'_>, out: &mut Vec<u8>) -> Result<Range<usize>, String> {
    let start = out.len();
    pattern.write(row, out).map_err(|problem| format!("its CloudEvents attribute {name} {problem}"))?;
    Ok(start..out.len())
}

/// Left out where a column of it is NULL, or not there.
fn optional(
    name: &str,
    pattern: Option<&Pattern>,
    row: &Row<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<Range<usize>>, String> {
    match pattern {
        Some(pattern) if pattern.is_whole(row) => required(name, pattern, row, out).map(Some),
        Some(_) | None => Ok(None),
    }
}
