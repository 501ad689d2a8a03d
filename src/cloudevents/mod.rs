//! CloudEvents 1.0.2 for Kafka: the attributes of an event become headers, or one JSON document with its data.
//!
//! Borrowed attributes and data enter; headers and the document are appended to the caller's buffers, nothing else is kept.
//! What the specification forbids is refused before anything is written. In binary mode the value is the data as it is,
//! and no data is no value, a tombstone on compacted topics.
//!
//! Sources: the core specification (`spec.md`), the Kafka protocol binding and the JSON event format, all version 1.0.2.

mod check;
mod time;

use serde_json::value::RawValue;

use crate::record::Headers;

pub use time::write_time;

/// The `content-type` of a structured event.
const STRUCTURED: &[u8] = b"application/cloudevents+json; charset=UTF-8";

/// How the receiver tells a structured event from a binary one: the beginning of its `content-type`.
const RESERVED: &str = "application/cloudevents";

/// What is known about an event besides its data. `E` gives the extensions, each name once.
#[derive(Debug, Clone)]
pub struct Attributes<'a, E> {
    /// Identifies the event within its source; not empty.
    pub id: &'a [u8],
    /// Where the event happened: a URI reference, not empty.
    pub source: &'a [u8],
    /// The kind of event (`type`); not empty.
    pub kind: &'a [u8],
    /// What the event is about; not empty where it is given.
    pub subject: Option<&'a [u8]>,
    /// When it happened.
    pub time: Option<Time<'a>>,
    /// The media type of the data. Without one, structured data is JSON.
    pub datacontenttype: Option<&'a [u8]>,
    /// The schema of the data: an absolute URI.
    pub dataschema: Option<&'a [u8]>,
    /// Further attributes.
    pub extensions: E,
}

/// A point in time.
#[derive(Debug, Clone, Copy)]
pub enum Time<'a> {
    /// Microseconds since 2000-01-01 UTC, PostgreSQL's count.
    Micros(i64),
    /// As RFC 3339 writes it.
    Text(&'a [u8]),
}

/// The name of an extension attribute, found valid once and used for every event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionName {
    header: String,
}

/// The value of an extension attribute.
#[derive(Debug, Clone, Copy)]
pub enum Extension<'a> {
    /// A text without control characters; a URI, a timestamp or base64 is one, too.
    Text(&'a [u8]),
    /// A whole number.
    Integer(i32),
    /// True or false.
    Boolean(bool),
}

/// The data of a structured event.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// None: the document has no member for it.
    Absent,
    /// JSON, which becomes part of the document byte for byte.
    Json(&'a [u8]),
    /// UTF-8, which becomes a JSON string.
    Text(&'a [u8]),
    /// Anything else, in base64.
    Bytes(&'a [u8]),
}

impl ExtensionName {
    /// Lower-case letters and digits; not the name of an attribute of the core. The specification advises no more than 20.
    pub fn new(name: &str) -> Result<ExtensionName, String> {
        const TAKEN: [&str; 9] =
            ["id", "source", "specversion", "type", "subject", "time", "datacontenttype", "dataschema", "data"];
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            return Err(format!("\"{name}\" is not a name for an attribute (letters a to z and digits)"));
        }
        if TAKEN.contains(&name) {
            return Err(format!("\"{name}\" is an attribute of its own, not an extension"));
        }
        Ok(ExtensionName { header: format!("ce_{name}") })
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.header[3..]
    }
}

impl<'a> Data<'a> {
    /// Data by its declared media type: JSON (also without one), text, or else bytes.
    pub fn of(data: Option<&'a [u8]>, datacontenttype: Option<&[u8]>) -> Data<'a> {
        let Some(data) = data else { return Data::Absent };
        match datacontenttype.map(Media::of) {
            None | Some(Media::Json) => Data::Json(data),
            Some(Media::Text) if str::from_utf8(data).is_ok() => Data::Text(data),
            Some(Media::Text | Media::Other) => Data::Bytes(data),
        }
    }
}

enum Media {
    Json,
    Text,
    Other,
}

impl Media {
    /// Parameters and the case of letters do not count.
    fn of(content_type: &[u8]) -> Media {
        let media = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let mut halves = media.splitn(2, |byte| *byte == b'/');
        let (kind, subtype) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        let suffix = subtype.rsplit(|byte| *byte == b'+').next().unwrap_or_default();
        let is = |text: &[u8], word: &str| text.eq_ignore_ascii_case(word.as_bytes());
        match () {
            () if is(suffix, "json") => Media::Json,
            () if is(kind, "text") || is(suffix, "xml") => Media::Text,
            () => Media::Other,
        }
    }
}

impl<'a, E> Attributes<'a, E>
where
    E: Iterator<Item = (&'a ExtensionName, Extension<'a>)> + Clone,
{
    /// Binary mode: every attribute is a header. The record's value is the data as it is.
    pub fn write_binary(&self, headers: &mut Headers) -> Result<(), String> {
        self.check()?;
        let reserved = |media: &[u8]| {
            media.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED.as_bytes()))
        };
        if self.datacontenttype.is_some_and(reserved) {
            return Err(format!("datacontenttype begins with {RESERVED}, which says that an event is structured"));
        }
        headers.push("ce_specversion", Some(b"1.0"));
        headers.push("ce_id", Some(self.id));
        headers.push("ce_source", Some(self.source));
        headers.push("ce_type", Some(self.kind));
        if let Some(subject) = self.subject {
            headers.push("ce_subject", Some(subject));
        }
        if let Some(time) = self.time {
            headers.push_with("ce_time", |out| time.write(out));
        }
        if let Some(schema) = self.dataschema {
            headers.push("ce_dataschema", Some(schema));
        }
        for (name, value) in self.extensions.clone() {
            headers.push_with(&name.header, |out| value.write_plain(out));
        }
        if let Some(content_type) = self.datacontenttype {
            headers.push("content-type", Some(content_type));
        }
        Ok(())
    }

    /// Structured mode: the document is appended to `out` as the record's value.
    pub fn write_structured(&self, data: Data<'a>, headers: &mut Headers, out: &mut Vec<u8>) -> Result<(), String> {
        self.check()?;
        let data = data.checked()?;
        headers.push("content-type", Some(STRUCTURED));
        out.extend_from_slice(br#"{"specversion":"1.0","id":"#);
        write_string(self.id, out);
        let mut member = |name: &str, value: &[u8]| {
            write_name(name, out);
            write_string(value, out);
        };
        member("source", self.source);
        member("type", self.kind);
        if let Some(subject) = self.subject {
            member("subject", subject);
        }
        if let Some(schema) = self.dataschema {
            member("dataschema", schema);
        }
        if let Some(content_type) = self.datacontenttype {
            member("datacontenttype", content_type);
        }
        if let Some(time) = self.time {
            // No sign of a valid time needs an escape.
            out.extend_from_slice(br#","time":""#);
            time.write(out);
            out.push(b'"');
        }
        for (name, value) in self.extensions.clone() {
            write_name(name.as_str(), out);
            match value {
                Extension::Text(text) => write_string(text, out),
                Extension::Integer(_) | Extension::Boolean(_) => value.write_plain(out),
            }
        }
        data.write(out);
        out.push(b'}');
        Ok(())
    }

    /// What the specification says about each attribute.
    fn check(&self) -> Result<(), String> {
        check::required("id", self.id)?;
        check::required("source", self.source)?;
        check::uri_reference("source", self.source)?;
        check::required("type", self.kind)?;
        self.subject.map_or(Ok(()), |subject| check::required("subject", subject))?;
        self.dataschema.map_or(Ok(()), |schema| check::absolute_uri("dataschema", schema))?;
        self.datacontenttype.map_or(Ok(()), |media| check::media_type("datacontenttype", media))?;
        match self.time {
            None => {}
            Some(Time::Micros(micros)) => time::check_micros(micros)?,
            Some(Time::Text(text)) => time::check_text(text)?,
        }
        for (name, value) in self.extensions.clone() {
            if let Extension::Text(text) = value {
                check::text(name.as_str(), text)?;
            }
        }
        Ok(())
    }
}

impl Time<'_> {
    /// Appends a time that was found valid.
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Time::Micros(micros) => write_time(micros, out),
            Time::Text(text) => out.extend_from_slice(text),
        }
    }
}

impl Extension<'_> {
    fn write_plain(self, out: &mut Vec<u8>) {
        use std::io::Write;
        match self {
            Extension::Text(text) => out.extend_from_slice(text),
            Extension::Integer(number) => write!(out, "{number}").expect("a vector takes everything"),
            Extension::Boolean(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        }
    }
}

impl<'a> Data<'a> {
    /// The same data; JSON without the white space around it, which a document inside another has not.
    fn checked(self) -> Result<Data<'a>, String> {
        match self {
            Data::Absent | Data::Bytes(_) => Ok(self),
            Data::Text(text) => match str::from_utf8(text) {
                Ok(_) => Ok(self),
                Err(_) => Err("data is to be a text and is not UTF-8".to_owned()),
            },
            Data::Json(json) => match serde_json::from_slice::<&'a RawValue>(json) {
                Ok(raw) => Ok(Data::Json(raw.get().as_bytes())),
                Err(error) => Err(format!("data is to be JSON and is not: {error}")),
            },
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Data::Absent => {}
            Data::Json(json) => {
                write_name("data", out);
                out.extend_from_slice(json);
            }
            Data::Text(text) => {
                write_name("data", out);
                write_string(text, out);
            }
            Data::Bytes(bytes) => {
                write_name("data_base64", out);
                out.push(b'"');
                write_base64(bytes, out);
                out.push(b'"');
            }
        }
    }
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A JSON string of bytes that were found to be UTF-8.
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    let text = str::from_utf8(text).expect("every text is checked before it is written");
    serde_json::to_writer(out, text).expect("a vector takes everything");
}

/// With padding, as RFC 4648 has it.
fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let sign = |shift: u32| SIGNS[(bits >> shift & 63) as usize];
        let padded = |index: usize, shift: u32| if chunk.len() > index { sign(shift) } else { b'=' };
        out.extend_from_slice(&[sign(18), sign(12), padded(1, 6), padded(2, 0)]);
    }
}

#[cfg(test)]
mod tests;
