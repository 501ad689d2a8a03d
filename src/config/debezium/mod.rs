//! `[outbox.debezium]`: the options of Debezium's outbox event router, of its converters, and of the connector as far as they
//! change a record, under Debezium's own names; out come typed options, and the columns that they name.

pub(crate) mod java;
mod option;

use regex::bytes::Regex;

use self::option::Options;
use super::document::Reader;
use super::error::Fault;
use super::{Columns, rules};

pub(crate) use option::{CONVERTERS, HEADER_CONVERTERS, OLD_ROUTER_OPTIONS, check, class, no_counterpart};

/// What was set of Debezium's options.
#[derive(Debug, Clone)]
pub struct Debezium {
    /// `route.topic.regex` and `route.topic.replacement`
    pub topic: Topic,
    /// `table.fields.additional.placement`, in the order typed.
    pub placements: Vec<Placement>,
    /// `table.field.additional.missing`
    pub missing: Missing,
    /// `table.expand.json.payload`, and how.
    pub expansion: Option<Expansion>,
    /// `route.tombstone.on.empty.payload`
    pub tombstone: super::Tombstone,
    /// `key.converter`
    pub key: Converter,
    /// `value.converter`
    pub value: Converter,
    /// `header.converter`
    pub header: Converter,
    /// How columns are read.
    pub modes: Modes,
    /// `topic.prefix`, when `extended.headers.enabled`.
    pub context: Option<String>,
    /// `tracing.span.context.field`, when it was typed.
    pub trace: Option<String>,
}

/// How the topic follows from the value of `route.by.field`.
#[derive(Debug, Clone)]
pub struct Topic {
    /// `None` for `.*` in a group or in none, which needs no regular expression.
    pub regex: Option<TopicRegex>,
    /// `route.topic.replacement`
    pub replacement: Vec<Piece>,
}

/// Java's `matches` and `replaceFirst`, which look for different things.
#[derive(Debug, Clone)]
pub struct TopicRegex {
    /// Fits when the whole value does.
    pub whole: Regex,
    /// What is then replaced.
    pub first: Regex,
}

/// A piece of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// This text.
    Literal(String),
    /// What this group has matched.
    Group(usize),
}

/// A column that goes somewhere beside the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The column's own name.
    pub column: String,
    /// Where it goes.
    pub to: Destination,
}

/// Where a column goes, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A header of this name.
    Header(String),
    /// A member of the value, of this name.
    Envelope(String),
    /// The partition.
    Partition,
}

/// What becomes of a row without a placed column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// It cannot be published.
    #[default]
    Error,
    /// It is published without it.
    Ignore,
}

/// How a JSON document becomes the value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expansion {
    /// `table.json.payload.null.behavior`: what becomes of members that are null.
    pub nulls: Members,
    /// `table.json.payload.empty.array.behavior`: what becomes of members that are empty arrays.
    pub empty_arrays: Members,
}

/// What becomes of members that say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Members {
    /// They vanish.
    Ignored,
    /// They stay.
    Kept,
}

/// How a part of the record becomes bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Converter {
    /// `StringConverter`
    Text,
    /// `SimpleHeaderConverter`
    Simple,
    /// `JsonConverter` without schemas.
    Json(DecimalFormat),
    /// `ByteArrayConverter`
    Bytes,
    /// `BinaryDataConverter`: bytes as they are, everything else by its delegate.
    Binary(Option<Box<Converter>>),
}

/// `decimal.format` of a `JsonConverter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecimalFormat {
    /// The unscaled number's bytes.
    Base64,
    /// A number.
    Numeric,
}

/// What the connector reads columns as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// `time.precision.mode`
    pub time: TimeMode,
    /// `decimal.handling.mode`
    pub decimal: DecimalMode,
    /// `binary.handling.mode`
    pub binary: BinaryMode,
    /// `interval.handling.mode`
    pub interval: IntervalMode,
    /// `hstore.handling.mode`
    pub hstore: HstoreMode,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeMode {
    Adaptive,
    AdaptiveTimeMicroseconds,
    Connect,
    Isostring,
    Microseconds,
    Nanoseconds,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecimalMode {
    Precise,
    Double,
    String,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryMode {
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalMode {
    Numeric,
    String,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HstoreMode {
    Json,
    Map,
}

pub(crate) const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";
pub(crate) const SIMPLE: &str = "org.apache.kafka.connect.storage.SimpleHeaderConverter";
pub(crate) const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
pub(crate) const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
pub(crate) const BINARY: &str = "io.debezium.converters.BinaryDataConverter";

const TIME_MODES: [(&str, TimeMode); 6] = [
    ("adaptive", TimeMode::Adaptive),
    ("adaptive_time_microseconds", TimeMode::AdaptiveTimeMicroseconds),
    ("connect", TimeMode::Connect),
    ("isostring", TimeMode::Isostring),
    ("microseconds", TimeMode::Microseconds),
    ("nanoseconds", TimeMode::Nanoseconds),
];
const DECIMAL_MODES: [(&str, DecimalMode); 3] =
    [("precise", DecimalMode::Precise), ("double", DecimalMode::Double), ("string", DecimalMode::String)];
const BINARY_MODES: [(&str, BinaryMode); 4] = [
    ("bytes", BinaryMode::Bytes),
    ("base64", BinaryMode::Base64),
    ("base64-url-safe", BinaryMode::Base64UrlSafe),
    ("hex", BinaryMode::Hex),
];
const INTERVAL_MODES: [(&str, IntervalMode); 2] =
    [("numeric", IntervalMode::Numeric), ("string", IntervalMode::String)];
const HSTORE_MODES: [(&str, HstoreMode); 2] = [("json", HstoreMode::Json), ("map", HstoreMode::Map)];
const DECIMAL_FORMATS: [(&str, DecimalFormat); 2] =
    [("base64", DecimalFormat::Base64), ("numeric", DecimalFormat::Numeric)];
const NULLS: [(&str, Members); 2] = [("ignore", Members::Ignored), ("optional_bytes", Members::Kept)];
const EMPTY_ARRAYS: [(&str, Members); 2] = [("ignore", Members::Ignored), ("optional_string", Members::Kept)];
const MISSING: [(&str, Missing); 2] = [("error", Missing::Error), ("ignore", Missing::Ignore)];

/// Reads the options, and the columns that they name.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> (Debezium, Columns) {
    let options = Options::read(reader);
    let mut faults = Vec::new();
    let mut converter = |name: &str, usual: Converter| {
        Converter::read(&options, name, usual).unwrap_or_else(|fault| {
            faults.push(fault.of(name));
            Converter::Text
        })
    };
    let (key, value) = (converter("key.converter", Converter::Text), converter("value.converter", Converter::Text));
    let header = converter("header.converter", Converter::Simple);
    let topic = Topic::read(&options).unwrap_or_else(|fault| {
        faults.push(fault);
        Topic { regex: None, replacement: Vec::new() }
    });
    let context = options.is_on("extended.headers.enabled").then(|| match options.text("topic.prefix") {
        Some(prefix) => prefix.to_owned(),
        None => {
            faults.push(
                Fault::new("extended.headers.enabled is true, and there is no topic.prefix to put into the headers")
                    .hint("set \"topic.prefix\" as in the connector"),
            );
            String::new()
        }
    });
    let placements = options.text("table.fields.additional.placement").and_then(|list| placements(list).ok());
    let debezium = Debezium {
        topic,
        placements: placements.unwrap_or_default(),
        missing: options.choice("table.field.additional.missing", &MISSING),
        expansion: options.is_on("table.expand.json.payload").then(|| Expansion {
            nulls: options.choice("table.json.payload.null.behavior", &NULLS),
            empty_arrays: options.choice("table.json.payload.empty.array.behavior", &EMPTY_ARRAYS),
        }),
        tombstone: match options.is_on("route.tombstone.on.empty.payload") {
            true => super::Tombstone::Empty,
            false => super::Tombstone::Null,
        },
        key,
        value,
        header,
        modes: Modes {
            time: options.choice("time.precision.mode", &TIME_MODES),
            decimal: options.choice("decimal.handling.mode", &DECIMAL_MODES),
            binary: options.choice("binary.handling.mode", &BINARY_MODES),
            interval: options.choice("interval.handling.mode", &INTERVAL_MODES),
            hstore: options.choice("hstore.handling.mode", &HSTORE_MODES),
        },
        context,
        trace: options.text("tracing.span.context.field").map(str::to_owned),
    };
    faults.extend(members(&debezium.placements).err().map(|fault| fault.of("table.fields.additional.placement")));
    faults.into_iter().for_each(|fault| reader.refuse("debezium", fault));
    (debezium, columns(&options))
}

fn columns(options: &Options) -> Columns {
    let named = |option: &str, usual: &str| options.text(option).unwrap_or(usual).to_owned();
    Columns {
        aggregate_type: Some(named("route.by.field", "aggregatetype")),
        aggregate_id: Some(named("table.field.event.key", "aggregateid")),
        event_type: Some(named("table.field.event.type", "type")),
        timestamp: options.text("table.field.event.timestamp").map(str::to_owned),
        ..Columns::bare(&named("table.field.event.id", "id"), &named("table.field.event.payload", "payload"))
    }
}

/// No two members of the envelope may have one name.
pub(crate) fn members(placements: &[Placement]) -> Result<(), Fault> {
    let mut names = vec!["payload"];
    let is_twice = placements.iter().any(|placement| match &placement.to {
        Destination::Envelope(alias) if names.contains(&alias.as_str()) => true,
        Destination::Envelope(alias) => {
            names.push(alias);
            false
        }
        Destination::Header(_) | Destination::Partition => false,
    });
    let hint = "the payload is called payload; give each of the others an alias of its own";
    if is_twice { Err(Fault::new("gives one name to two members of the envelope").hint(hint)) } else { Ok(()) }
}

impl Topic {
    fn read(options: &Options) -> Result<Topic, Fault> {
        let typed = options.text("route.topic.regex").unwrap_or("(?<routedByValue>.*)");
        let replacement = options.text("route.topic.replacement").unwrap_or("outbox.event.${routedByValue}");
        let (Ok(first), Ok(whole)) = (java::regex(typed), java::whole(typed)) else {
            // Its own line has told that already.
            return Ok(Topic { regex: None, replacement: Vec::new() });
        };
        let replacement = topic_replacement(typed, &first, replacement);
        let replacement = replacement.map_err(|fault| fault.of("route.topic.replacement"))?;
        let is_all = java::is_all(typed);
        Ok(Topic { regex: (!is_all).then_some(TopicRegex { whole, first }), replacement })
    }
}

/// The replacement as Java reads it for this expression; refused where no topic that Kafka takes can come of it.
pub(crate) fn topic_replacement(expression: &str, regex: &Regex, typed: &str) -> Result<Vec<Piece>, Fault> {
    let pieces = java::replacement(typed, regex)?;
    let literals = pieces.iter().filter_map(|piece| match piece {
        Piece::Literal(text) => Some(text.as_str()),
        Piece::Group(_) => None,
    });
    let texts: Vec<&str> = literals.collect();
    rules::topic_texts(&texts, typed)?;
    // Only an expression that surely takes all of a value leaves nothing of it behind the replacement.
    if java::is_all(expression) && texts.len() == pieces.len() {
        rules::whole_topic(&texts.concat())?;
    }
    Ok(pieces)
}

impl Converter {
    fn read(options: &Options, name: &str, usual: Converter) -> Result<Converter, Fault> {
        let Some(class) = options.text(name) else { return Ok(usual) };
        match class {
            STRING => Ok(Converter::Text),
            SIMPLE => Ok(Converter::Simple),
            BYTES => Ok(Converter::Bytes),
            JSON => match options.text(&format!("{name}.schemas.enable")) {
                Some(_) if !options.is_on(&format!("{name}.schemas.enable")) => {
                    Ok(Converter::Json(options.choice(&format!("{name}.decimal.format"), &DECIMAL_FORMATS)))
                }
                Some(_) => Err(Fault::new("schemas are not written into records").hint(without_schemas(name))),
                None => Err(Fault::new("without schemas.enable, Kafka Connect writes a schema into every record")
                    .hint(without_schemas(name))),
            },
            BINARY => {
                let delegate = format!("{name}.delegate.converter.type");
                match options.text(&delegate) {
                    Some(_) => Converter::read(options, &delegate, Converter::Text)
                        .map(|delegate| Converter::Binary(Some(Box::new(delegate)))),
                    None => Ok(Converter::Binary(None)),
                }
            }
            // Its own line has told that already.
            _ => Ok(usual),
        }
    }
}

fn without_schemas(name: &str) -> String {
    format!("set \"{name}.schemas.enable\" = false here, and read records without schemas")
}

/// `column:placement[:alias]`, separated by commas.
pub(crate) fn placements(list: &str) -> Result<Vec<Placement>, Fault> {
    let hint =
        "column:placement or column:placement:alias, separated by commas; a placement is header, envelope or partition";
    // As Java splits: what is empty at the end does not count.
    let list = list.trim_end_matches(',');
    list.split(',').map(|typed| placement(typed).map_err(|fault| fault.hint(hint))).collect()
}

fn placement(typed: &str) -> Result<Placement, Fault> {
    let typed = typed.trim();
    let parts: Vec<&str> = typed.trim_end_matches(':').split(':').map(str::trim).collect();
    let (column, to, alias) = match parts.as_slice() {
        [column, to] => (*column, *to, *column),
        [column, to, alias] => (*column, *to, *alias),
        _ => return Err(Fault::new(format!("\"{typed}\" is not a placement"))),
    };
    let to = match to.to_ascii_lowercase().as_str() {
        "header" => Destination::Header(alias.to_owned()),
        "envelope" => Destination::Envelope(alias.to_owned()),
        "partition" => Destination::Partition,
        _ => return Err(Fault::new(format!("\"{to}\" is no placement"))),
    };
    if column.is_empty() {
        return Err(Fault::new(format!("\"{typed}\" names no column")));
    }
    Ok(Placement { column: column.to_owned(), to })
}

#[cfg(test)]
mod tests;
