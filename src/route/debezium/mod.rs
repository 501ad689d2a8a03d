//! The record of Debezium's outbox event router: a row enters, the same topic, key, value, headers, partition and time leave that
//! Debezium and Kafka Connect's converters would have made of it.
//!
//! ```text
//! column's text ─► datum (a value of Kafka Connect) ─► expand (a JSON document) ─► text, simple, json (the converters)
//! ```
//!
//! What is on purpose otherwise stands in `docs/migrating-from-debezium.md`.

mod array;
mod datum;
mod decimal;
mod document;
mod expand;
mod json;
mod number;
mod simple;
mod text;
mod time;
mod topic;

use datum::Datum;
use expand::Unfit;
use topic::Topic;

use super::value::Value;
use crate::config::debezium::{Converter, Destination, Expansion, Missing, Modes};
use crate::config::{self, Tombstone};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row, unix_micros};
use crate::trace;

/// The router with its options, compiled.
#[derive(Debug)]
pub(super) struct Debezium {
    topic: Topic,
    key: Converter,
    value: Converter,
    header: Converter,
    modes: Modes,
    /// Those that every record has, as they are written.
    context: Vec<(&'static str, Vec<u8>)>,
    trace: Option<Place>,
    headers: Vec<Placed>,
    members: Vec<Placed>,
    partition: Vec<Placed>,
    missing: Missing,
    expansion: Option<Expansion>,
    unfit: Unfit,
    tombstone: Tombstone,
    has_time: bool,
}

/// A column that goes somewhere beside the payload, and what it is called there.
#[derive(Debug)]
struct Placed {
    place: Place,
    column: String,
    name: String,
}

impl Debezium {
    pub(super) fn new(options: &config::Debezium, columns: &config::Columns, layout: &mut Layout) -> Debezium {
        let (mut headers, mut members, mut partition) = (Vec::new(), Vec::new(), Vec::new());
        for placement in &options.placements {
            let column = placement.column.clone();
            let placed = |name: &str, layout: &mut Layout| Placed {
                place: layout.column(&column),
                column: column.clone(),
                name: name.to_owned(),
            };
            match &placement.to {
                Destination::Header(name) => headers.push(placed(name, layout)),
                Destination::Envelope(name) => members.push(placed(name, layout)),
                Destination::Partition => partition.push(placed("", layout)),
            }
        }
        Debezium {
            topic: Topic::new(&options.topic),
            key: options.key.clone(),
            value: options.value.clone(),
            header: options.header.clone(),
            modes: options.modes,
            context: options.context.as_deref().map(|prefix| context(prefix, &options.header)).unwrap_or_default(),
            trace: options.trace.as_deref().map(|column| layout.column(column)),
            headers,
            members,
            partition,
            missing: options.missing,
            expansion: options.expansion,
            unfit: if writes_text(&options.value) { Unfit::Left } else { Unfit::Expanded },
            tombstone: options.tombstone,
            has_time: columns.timestamp.is_some(),
        }
    }

    pub(super) fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match row.bytes(Place::AGGREGATE_TYPE) {
            Some(route) => {
                self.topic.write(route, out);
                Ok(())
            }
            None => Err("follows from a column that is NULL".to_owned()),
        }
    }

    /// False when there is no key.
    #[inline]
    pub(super) fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let key = self.datum(row, Place::AGGREGATE_ID)?;
        if self.has_no_bytes(row, Place::AGGREGATE_ID, &self.key, &key) {
            return Ok(false);
        }
        convert(&self.key, &key, out)
    }

    pub(super) fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        for (name, value) in &self.context {
            out.push(name, Some(value));
        }
        if let Some(column) = self.trace.and_then(|place| row.bytes(place)) {
            trace::push_trace(column, out);
        }
        self.header("id", &self.datum(row, Place::ID)?, out)?;
        for placed in &self.headers {
            if self.is_present(row, placed)? {
                self.header(&placed.name, &self.datum(row, placed.place)?, out)?;
            }
        }
        Ok(())
    }

    /// Of several columns, the last one counts.
    pub(super) fn partition(&self, row: &Row<'_>) -> Result<Option<i32>, String> {
        let mut partition = None;
        for placed in &self.partition {
            if self.is_present(row, placed)? {
                partition = row.bytes(placed.place).map(super::partition_number).transpose()?;
            }
        }
        Ok(partition)
    }

    /// When it is sent, unless a column says otherwise; what Kafka cannot hold does not count.
    pub(super) fn timestamp(&self, row: &Row<'_>) -> Result<Option<i64>, String> {
        if !self.has_time {
            return Ok(None);
        }
        // Truncated as Java does: a moment before 1970 is 1970.
        let millis = row.time(Place::TIMESTAMP)?.map(|time| unix_micros(time) / 1000);
        Ok(millis.filter(|millis| *millis >= 0))
    }

    pub(super) fn value<'a>(&self, row: &Row<'a>, out: &mut Vec<u8>) -> Result<Value<'a>, String> {
        let payload = self.datum(row, Place::PAYLOAD)?;
        if self.is_none(&payload) {
            return Ok(Value::None);
        }
        if self.members.is_empty() && self.has_no_bytes(row, Place::PAYLOAD, &self.value, &payload) {
            return Ok(Value::None);
        }
        let payload = match (self.expansion, payload) {
            (Some(how), Datum::Text(text)) => expand::expand(text, how, self.unfit),
            (_, payload) => payload,
        };
        let value = if self.members.is_empty() { payload } else { self.envelope(row, payload)? };
        let raw = match (&self.value, &value) {
            (Converter::Text, Datum::Text(bytes) | Datum::Bytes(bytes)) => bytes.borrowed(),
            (Converter::Bytes | Converter::Binary(_), Datum::Bytes(bytes)) => bytes.borrowed(),
            _ => None,
        };
        if let Some(bytes) = raw {
            return Ok(Value::Payload(bytes));
        }
        out.clear();
        Ok(if convert(&self.value, &value, out)? { Value::Written } else { Value::None })
    }

    /// Whether the payload becomes a tombstone.
    pub(super) fn takes_for_none(&self, row: &Row<'_>) -> bool {
        self.datum(row, Place::PAYLOAD).is_ok_and(|payload| self.is_none(&payload))
    }

    fn is_none(&self, payload: &Datum<'_>) -> bool {
        self.tombstone == Tombstone::Empty && payload.is_blank()
    }

    fn envelope<'a>(&self, row: &Row<'a>, payload: Datum<'a>) -> Result<Datum<'a>, String> {
        let mut members = vec![("payload".into(), payload)];
        for placed in &self.members {
            if self.is_present(row, placed)? {
                members.push((placed.name.clone().into(), self.datum(row, placed.place)?));
            }
        }
        Ok(Datum::Struct(members))
    }

    /// Whether the row has the column; without it, it may not be published, unless the column may be missing.
    fn is_present(&self, row: &Row<'_>, placed: &Placed) -> Result<bool, String> {
        match (row.is_absent(placed.place), self.missing) {
            (false, _) => Ok(true),
            (true, Missing::Ignore) => Ok(false),
            (true, Missing::Error) => Err(format!("its table has no column \"{}\"", placed.column)),
        }
    }

    #[inline]
    fn datum<'a>(&self, row: &Row<'a>, place: Place) -> Result<Datum<'a>, String> {
        match row.bytes(place) {
            Some(bytes) => Datum::read(bytes, row.type_of(place), &self.modes),
            None => Ok(Datum::Null),
        }
    }

    /// `BinaryDataConverter` hands a NULL on to its delegate, which may write a word for it, unless the column is one of bytes.
    fn has_no_bytes(&self, row: &Row<'_>, place: Place, converter: &Converter, datum: &Datum<'_>) -> bool {
        matches!(converter, Converter::Binary(_))
            && *datum == Datum::Null
            && datum::is_bytes(row.type_of(place), &self.modes)
    }

    fn header(&self, name: &str, datum: &Datum<'_>, out: &mut Headers) -> Result<(), String> {
        let mut written = Ok(true);
        out.push_with(name, |bytes| written = convert(&self.header, datum, bytes));
        if !written? {
            out.nullify();
        }
        Ok(())
    }
}

/// The headers that Debezium has of itself, without the id of a run, which is another one each time.
fn context(prefix: &str, converter: &Converter) -> Vec<(&'static str, Vec<u8>)> {
    let named = [
        ("__debezium.context.connectorLogicalName", prefix),
        ("__debezium.context.taskId", "0"),
        ("__debezium.context.connectorName", "postgresql"),
    ];
    let written = |text: &str| {
        let mut out = Vec::new();
        convert(converter, &Datum::Text(text.as_bytes().into()), &mut out).expect("text fits every header");
        out
    };
    named.map(|(name, text)| (name, written(text))).to_vec()
}

/// True when `StringConverter` writes what is not bytes.
fn writes_text(converter: &Converter) -> bool {
    match converter {
        Converter::Text => true,
        Converter::Binary(Some(delegate)) => writes_text(delegate),
        Converter::Simple | Converter::Json(_) | Converter::Bytes | Converter::Binary(None) => false,
    }
}

/// Appends what a converter makes of a value; false when that is nothing.
#[inline]
fn convert(converter: &Converter, datum: &Datum<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
    match (converter, datum) {
        (Converter::Json(decimals), datum) => json::write(datum, *decimals, out),
        (_, Datum::Null) => match converter {
            Converter::Binary(Some(delegate)) => return convert(delegate, datum, out),
            _ => return Ok(false),
        },
        (Converter::Text, datum) => text::write(datum, out),
        (Converter::Simple, datum) => simple::write(datum, out),
        (Converter::Bytes | Converter::Binary(_), Datum::Bytes(bytes)) => out.extend_from_slice(bytes),
        (Converter::Bytes | Converter::Binary(_), Datum::Bits(digits)) => out.extend(datum::bits(digits)),
        (Converter::Binary(Some(delegate)), datum) => return convert(delegate, datum, out),
        (Converter::Bytes, _) => return Err("is not bytes, which are all that ByteArrayConverter takes".to_owned()),
        (Converter::Binary(None), _) => {
            return Err("is not bytes, and BinaryDataConverter has no delegate for anything else".to_owned());
        }
    }
    Ok(true)
}
