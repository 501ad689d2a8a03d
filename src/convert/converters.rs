//! Which bytes a key, a value and a header become: converters of Kafka Connect, formats of Debezium Server.
//!
//! A file of Kafka Connect may leave them to its worker; then only people know, and say it by flags.

use super::draft::Section;
use super::input::Form;
use super::settings::{Setting, Value};
use super::{Finding, Given, Work};
use crate::config::debezium::{self, BINARY, BYTES, CONVERTERS, HEADER_CONVERTERS, JSON, STRING};

/// Properties of converters that are known, for the nearest name.
pub const KNOWN: [&str; 11] = [
    "schemas.enable",
    "schemas.cache.size",
    "decimal.format",
    "replace.null.with.default",
    "converter.encoding",
    "converter.type",
    DELEGATE,
    "delegate.converter.type.schemas.enable",
    "delegate.converter.type.schemas.cache.size",
    "delegate.converter.type.decimal.format",
    "delegate.converter.type.replace.null.with.default",
];

/// Names the class that takes what is not bytes; its properties stand behind this name.
const DELEGATE: &str = "delegate.converter.type";

/// What is converted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Key,
    Value,
    Header,
}

/// A converter as it was said, wherever.
struct Converter {
    class: String,
    /// The setting that names it, or would.
    origin: String,
    /// Where it came from, for people.
    note: String,
    properties: Vec<(String, Setting)>,
}

/// The lines for `[outbox.debezium]`.
pub fn write(work: &mut Work, given: &Given) -> Section {
    let mut section = Section::default();
    let mut used = Vec::new();
    let sides = [
        (Side::Key, &given.key_converter),
        (Side::Value, &given.value_converter),
        (Side::Header, &given.header_converter),
    ];
    for (side, given) in sides {
        let converter = match work.form {
            Form::Connect => connect(work, side, given.as_deref(), &mut section),
            Form::Server => server(work, side),
        };
        if let Some(converter) = converter {
            used.extend(converter.properties.iter().map(|(_, setting)| setting.origin.clone()));
            emit(work, side, converter, &mut section);
        }
    }
    for (name, setting) in work.settings.take_under("server:format.") {
        if !KNOWN.contains(&name.as_str()) {
            work.unknown(setting.origin, &name, &KNOWN);
        } else if !used.contains(&setting.origin) {
            work.not_needed(setting.origin, "means nothing to the formats that are set");
        }
    }
    section
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Key => "key",
            Side::Value => "value",
            Side::Header => "header",
        }
    }
}

fn connect(work: &mut Work, side: Side, given: Option<&str>, section: &mut Section) -> Option<Converter> {
    let name = format!("{}.converter", side.name());
    let class = work.settings.take(&name);
    let properties = work.settings.take_under(&format!("{name}."));
    if let Some(setting) = class {
        let Some(class) = setting.text() else {
            let message = format!("is {}, which outboxd does not look up", setting.value.shown());
            work.lost(Finding::new(setting.origin, message).hint(flag(side)));
            return None;
        };
        if given.is_some() {
            let flag = format!("--{}-converter", side.name());
            work.not_needed(flag, format!("the file has a {name} of its own, which holds"));
        }
        return Some(Converter { class, origin: setting.origin.clone(), note: setting.origin, properties });
    }
    for (_, setting) in properties {
        work.not_needed(
            setting.origin,
            format!("without {name} the worker's own converter holds, with its own properties"),
        );
    }
    if let Some(given) = given {
        return Some(from_flag(side, given));
    }
    match side {
        Side::Key | Side::Value => {
            section.comment(format!(
                "FILL IN {name}: the worker's own holds, and this file does not tell it. StringConverter is assumed."
            ));
            let message =
                "not set: the worker's own holds, and only it tells what consumers get; StringConverter is assumed";
            work.lost(Finding::new(name, message).hint(flag(side)));
        }
        Side::Header => {
            let message = "not set: the worker's own holds; SimpleHeaderConverter, a worker's default, is assumed";
            work.differs(Finding::new(name, message).hint(flag(side)));
        }
    }
    None
}

fn flag(side: Side) -> String {
    format!("say it by --{}-converter CLASS, with ,schemas.enable=false behind it where that is so", side.name())
}

/// `CLASS,name=value,…`, as people type it.
fn from_flag(side: Side, given: &str) -> Converter {
    let note = format!("--{}-converter", side.name());
    let mut words = given.split(',').map(str::trim);
    let class = words.next().unwrap_or_default().to_owned();
    let properties = words.map(|word| word.split_once('=').unwrap_or((word, ""))).map(|(name, value)| {
        (name.trim().to_owned(), Setting { origin: note.clone(), value: Value::literal(value.trim()) })
    });
    Converter { class, properties: properties.collect(), origin: note.clone(), note }
}

/// Formats stand for converters; a property for all of them gives way to one for this side.
fn server(work: &mut Work, side: Side) -> Option<Converter> {
    let name = format!("server:format.{}", side.name());
    let format = work.settings.take(&name);
    let mut properties = work.settings.take_under(&format!("{name}."));
    let (origin, note, word) = match &format {
        Some(setting) => (setting.origin.clone(), setting.origin.clone(), setting.text().unwrap_or_default()),
        None => {
            let origin = format!("debezium.format.{}", side.name());
            let note = format!("json, Debezium Server's default: {origin} is not set");
            (origin, note, "json".to_owned())
        }
    };
    let class = match (word.as_str(), side) {
        ("json" | "jsonbytearray", _) => JSON,
        ("simplestring", Side::Key | Side::Value) => STRING,
        ("binary", Side::Key | Side::Value) => BINARY,
        _ => {
            let message = format!("the format {word} has no counterpart: consumers would get other bytes");
            work.lost(Finding::new(origin, message));
            return None;
        }
    };
    for common in KNOWN.iter().filter(|_| class != STRING) {
        let own = properties.iter().any(|(name, _)| name == common);
        if let Some(setting) = work.settings.get(&format!("server:format.{common}")).filter(|_| !own) {
            properties.push(((*common).to_owned(), setting.clone()));
        }
    }
    Some(Converter { class: class.to_owned(), origin, note, properties })
}

fn emit(work: &mut Work, side: Side, converter: Converter, section: &mut Section) {
    let name = format!("{}.converter", side.name());
    let classes = match side {
        Side::Key | Side::Value => CONVERTERS,
        Side::Header => HEADER_CONVERTERS,
    };
    let class = match debezium::class(&converter.class, classes) {
        Ok(class) => class,
        Err(fault) => {
            section.comment(format!("FILL IN {name}: {}.", fault.what));
            let message = format!("{}: consumers would get other bytes", fault.what);
            return work.lost(Finding::new(converter.origin, message).hinted(fault.hint));
        }
    };
    section.text(&name, class, &converter.note);
    if class == BINARY {
        return binary(work, side, &name, converter.properties, section);
    }
    let part = Part { side, name, class, origin: converter.origin };
    properties(work, &part, converter.properties, section);
}

/// A converter of which there is a counterpart: a side's own, or its delegate.
struct Part {
    side: Side,
    /// The option that names its class here; its properties stand behind.
    name: String,
    class: &'static str,
    /// The setting that names its class there.
    origin: String,
}

fn properties(work: &mut Work, part: &Part, properties: Vec<(String, Setting)>, section: &mut Section) {
    let Part { side, name, class, origin } = part;
    let mut schemas = None;
    for (property, setting) in properties {
        let json = *class == JSON;
        match property.as_str() {
            "schemas.enable" if json => schemas = Some(setting),
            "decimal.format" | "replace.null.with.default" if json => {
                verbatim(work, section, &format!("{name}.{property}"), &setting);
            }
            "converter.encoding" if *class == STRING && !setting.is("utf-8") && !setting.is("utf8") => {
                work.lost(Finding::new(setting.origin, "text is UTF-8 here"));
            }
            "converter.encoding" | "converter.type" | "schemas.enable" | "schemas.cache.size" | "plugin.version" => {
                work.not_needed(setting.origin, format!("changes nothing with {}", short(class)));
            }
            // Without its class the property means nothing, but people leave it behind.
            property if KNOWN.contains(&property) => {
                work.not_needed(setting.origin, format!("means nothing to {}", short(class)));
            }
            property => work.unknown(setting.origin, property, &KNOWN),
        }
    }
    if *class == JSON {
        schemas_of_json(work, *side, name, schemas, origin, section);
    }
}

/// JsonConverter wraps everything with its schema unless told not to.
fn schemas_of_json(
    work: &mut Work,
    side: Side,
    name: &str,
    schemas: Option<Setting>,
    origin: &str,
    section: &mut Section,
) {
    let property = format!("{name}.schemas.enable");
    match schemas {
        Some(setting) if setting.is("false") => section.raw(&property, "false", &setting.origin),
        Some(setting) => {
            section.raw(&property, "false", &format!("not as in {}: outboxd writes no schemas", setting.origin));
            wrapped(work, &setting.origin, side);
        }
        None => {
            section.raw(&property, "false", "not as JsonConverter's default: outboxd writes no schemas");
            wrapped(work, origin, side);
        }
    }
}

fn wrapped(work: &mut Work, option: &str, side: Side) {
    let message = format!(
        "each {} comes with its schema, {{\"schema\":…,\"payload\":…}}; outboxd writes the payload alone",
        side.name()
    );
    let finding = Finding::new(option, message);
    work.lost(finding.hint("set schemas.enable=false first, and let the consumers follow"));
}

/// BinaryDataConverter has nothing of its own but a delegate.
fn binary(work: &mut Work, side: Side, name: &str, of_both: Vec<(String, Setting)>, section: &mut Section) {
    let (mut delegate, mut own) = (Vec::new(), Vec::new());
    let mut named = None;
    for (property, setting) in of_both {
        match property.strip_prefix(DELEGATE) {
            Some("") => named = Some(setting),
            Some(behind) if behind.starts_with('.') => delegate.push((behind[1..].to_owned(), setting)),
            _ => own.push((property, setting)),
        }
    }
    let part = |name: String, class, origin| Part { side, name, class, origin };
    properties(work, &part(name.to_owned(), BINARY, String::new()), own, section);
    let Some(named) = named else {
        for (_, setting) in delegate {
            work.not_needed(setting.origin, format!("without {name}.{DELEGATE} there is no delegate"));
        }
        return;
    };
    let name = format!("{name}.{DELEGATE}");
    let typed = named.value.shown();
    match [JSON, STRING, BYTES].into_iter().find(|class| *class == typed.trim()) {
        Some(BYTES) => {
            let message = "what is not bytes fails with this delegate, as it does without any";
            work.not_needed(named.origin, message);
            properties(work, &part(name, BYTES, String::new()), delegate, section);
        }
        Some(class) => {
            section.text(&name, class, &named.origin);
            properties(work, &part(name, class, named.origin), delegate, section);
        }
        None => {
            let fault = debezium::no_counterpart(typed.trim(), &[STRING, JSON]);
            section.comment(format!("FILL IN {name}: {}.", fault.what));
            let message = format!("{}: consumers would get other bytes", fault.what);
            work.lost(Finding::new(named.origin, message).hinted(fault.hint));
        }
    }
}

fn verbatim(work: &mut Work, section: &mut Section, name: &str, setting: &Setting) {
    let Some(text) = setting.text() else {
        return work.lost(Finding::new(&setting.origin, "is a reference, which outboxd does not look up"));
    };
    if let Err(fault) = debezium::check(name, &text) {
        let finding = Finding::new(&setting.origin, format!("{}, so it is left out", fault.what));
        return work.lost(finding.hinted(fault.hint));
    }
    match text.to_lowercase().as_str() {
        word @ ("true" | "false") => section.raw(name, word, &setting.origin),
        _ => section.text(name, &text, &setting.origin),
    }
}

fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}
