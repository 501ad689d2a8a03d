//! Which options there are, and what each may hold: names and texts enter, those that are known and valid leave.

use super::super::document::Reader;
use super::super::error::Fault;
use super::super::value;
use super::{
    BINARY, BINARY_MODES, BYTES, DECIMAL_FORMATS, DECIMAL_MODES, EMPTY_ARRAYS, HSTORE_MODES, INTERVAL_MODES, JSON,
    MISSING, NULLS, SIMPLE, STRING, TIME_MODES, java, placements,
};
use crate::spelling::nearest;

/// Options of the first years of Debezium's event router, and what they are called now.
pub(crate) const OLD_ROUTER_OPTIONS: [(&str, &str); 5] = [
    ("debezium.op.invalid.behavior", "table.op.invalid.behavior"),
    ("table.field.payload", "table.field.event.payload"),
    ("table.field.schema.version", "table.field.event.schema.version"),
    ("table.field.event.payload.id", "table.field.event.key"),
    ("table.field.payload.id", "table.field.event.key"),
];
/// Until 3.6, a switch: whether a column that is missing is an error.
const ERROR_ON_MISSING: (&str, &str) = ("table.fields.additional.error.on.missing", "table.field.additional.missing");
/// Gone; what took its place does the same with bytes.
const BYTE_BUFFER: &str = "io.debezium.converters.ByteBufferConverter";
/// What a key and a value may be converted by.
pub(crate) const CONVERTERS: &[&str] = &[STRING, JSON, BYTES, BINARY];
/// What headers may be converted by.
pub(crate) const HEADER_CONVERTERS: &[&str] = &[SIMPLE, STRING, JSON];
/// Writes arrays of bytes, and PostgreSQL's connector has buffers.
const BYTE_ARRAY: &str = "io.debezium.converters.ByteArrayConverter";

/// The options that were typed, each of them valid by itself.
pub(super) struct Options(Vec<(String, String)>);

/// What an option may hold.
#[derive(Clone, Copy)]
enum Holds {
    /// The name of a column, or another text that is not empty.
    Name,
    /// Any text.
    Text,
    Switch,
    Words(&'static [&'static str]),
    /// One of some words, but not the one that is refused: why, and what to do.
    WordsBut(&'static [&'static str], &'static str, &'static str, &'static str),
    /// A converter's class, as Kafka Connect finds it.
    Class(&'static [&'static str]),
    Regex,
    Placements,
    /// Only what holds anyway: its names, and why.
    Only(&'static [&'static str], &'static str),
    /// Nothing: why, and what to do.
    Refused(&'static str, &'static str),
}

const ROUTER: &[(&str, Holds)] = &[
    ("table.field.event.id", Holds::Name),
    ("table.field.event.key", Holds::Name),
    // Debezium never reads it.
    ("table.field.event.type", Holds::Name),
    ("table.field.event.timestamp", Holds::Name),
    ("table.field.event.payload", Holds::Name),
    // It shows in schemas only, and they are not written into records.
    ("table.field.event.schema.version", Holds::Name),
    ("table.fields.additional.placement", Holds::Placements),
    ("table.field.additional.missing", Holds::Words(&words(&MISSING))),
    // Only inserts are read, so there is nothing to warn of.
    ("table.op.invalid.behavior", Holds::Words(&["warn", "error", "fatal"])),
    ("table.expand.json.payload", Holds::Switch),
    ("table.json.payload.null.behavior", Holds::Words(&words(&NULLS))),
    ("table.json.payload.empty.array.behavior", Holds::Words(&words(&EMPTY_ARRAYS))),
    ("field.name.adjustment.mode", Holds::Only(&["none"], "Debezium loses the members that it renames")),
    ("route.by.field", Holds::Name),
    ("route.topic.regex", Holds::Regex),
    ("route.topic.replacement", Holds::Text),
    ("route.tombstone.on.empty.payload", Holds::Switch),
    ("tracing.span.context.field", Holds::Name),
    // The relay makes no span of its own.
    ("tracing.operation.name", Holds::Text),
    ("tracing.with.context.field.only", Holds::Switch),
];

const CONNECTOR: &[(&str, Holds)] = &[
    ("topic.prefix", Holds::Name),
    ("extended.headers.enabled", Holds::Switch),
    ("time.precision.mode", Holds::WordsBut(&words(&TIME_MODES), "structured", NO_STRUCTURES, OTHER_TIMES)),
    ("decimal.handling.mode", Holds::Words(&words(&DECIMAL_MODES))),
    ("binary.handling.mode", Holds::Words(&words(&BINARY_MODES))),
    ("interval.handling.mode", Holds::Words(&words(&INTERVAL_MODES))),
    ("hstore.handling.mode", Holds::Words(&words(&HSTORE_MODES))),
    // Every type is published here; what would be unavailable is never asked for: inserts have all values.
    ("include.unknown.datatypes", Holds::Switch),
    ("unavailable.value.placeholder", Holds::Text),
    ("money.fraction.digits", Holds::Only(&["2"], "amounts of money are published with the two digits that they have")),
    ("column.mask.*", Holds::Refused(AS_THEY_ARE, TO_CHANGE)),
    ("column.truncate.*", Holds::Refused(AS_THEY_ARE, TO_CHANGE)),
    ("converters", Holds::Refused("it names Java classes that read columns, and there is no Java here", TO_CHANGE)),
    (
        "post.processors",
        Holds::Refused("it names Java classes that change records, and there is no Java here", TO_CHANGE),
    ),
    ("column.exclude.list", Holds::Refused(NAMED_COLUMNS, TO_HIDE)),
    ("column.include.list", Holds::Refused(NAMED_COLUMNS, TO_HIDE)),
];

const NO_STRUCTURES: &str = "times are published as numbers or texts, and not taken apart into members";
const OTHER_TIMES: &str = "for texts \"isostring\", for numbers any of the others: see docs/migrating-from-debezium.md";
const AS_THEY_ARE: &str = "columns are published as they are";
const TO_CHANGE: &str =
    "write the table's columns as they shall be published, or write the value with a template in a [[route]]";
const NAMED_COLUMNS: &str = "a column is published here only where an option names it";
const TO_HIDE: &str = "remove it; for a column that must not even be read, give the publication a list of columns";

const CONVERTER: &[(&str, Holds)] = &[
    ("", Holds::Class(CONVERTERS)),
    (".schemas.enable", Holds::Switch),
    (".schemas.cache.size", Holds::Text),
    (".decimal.format", Holds::Words(&words(&DECIMAL_FORMATS))),
    // The WAL has no defaults.
    (".replace.null.with.default", Holds::Switch),
    (".converter.encoding", Holds::Only(&["utf-8", "utf8"], "PostgreSQL and Kafka speak UTF-8 here")),
    (".converter.type", Holds::Text),
    (".delegate.converter.type", Holds::Words(&[STRING, JSON])),
    (".delegate.converter.type.schemas.enable", Holds::Switch),
    (".delegate.converter.type.schemas.cache.size", Holds::Text),
    (".delegate.converter.type.decimal.format", Holds::Words(&words(&DECIMAL_FORMATS))),
    (".delegate.converter.type.replace.null.with.default", Holds::Switch),
];

const fn words<T: Copy, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = choices[at].0;
        at += 1;
    }
    words
}

/// Whether an option may hold this text, as far as the option alone tells: for those who write such options.
pub(crate) fn check(name: &str, text: &str) -> Result<(), Fault> {
    let known = known();
    let (_, holds) = known.iter().find(|(option, _)| option == name).ok_or_else(|| unknown(name, &known))?;
    holds.check(text.to_owned()).map(drop)
}

/// All options, by name.
fn known() -> Vec<(String, Holds)> {
    let fixed = ROUTER.iter().chain(CONNECTOR).map(|(name, holds)| ((*name).to_owned(), *holds));
    let converters = ["key.converter", "value.converter", "header.converter"].into_iter().flat_map(|part| {
        CONVERTER.iter().map(move |(property, holds)| match (part, *property) {
            ("header.converter", "") => (part.to_owned(), Holds::Class(HEADER_CONVERTERS)),
            _ => (format!("{part}{property}"), *holds),
        })
    });
    fixed.chain(converters).collect()
}

impl Options {
    /// Reads the table; what is wrong with one option is told at its line.
    pub(super) fn read(reader: &mut Reader<'_, '_>) -> Options {
        let known = known();
        Options(reader.map("debezium", |name, typed| {
            let Some((_, holds)) = known.iter().find(|(option, _)| is_of(option, name)) else {
                return Err(unknown(name, &known));
            };
            holds.check(value::scalar_text(typed)?)
        }))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(option, _)| option == name).map(|(_, text)| text.as_str())
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// One of some words; the first, when none was typed.
    pub(super) fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> T {
        let typed = self.text(name).map(str::to_ascii_lowercase);
        let found = words.iter().find(|(word, _)| Some(*word) == typed.as_deref());
        found.unwrap_or(&words[0]).1
    }
}

impl Holds {
    fn check(self, text: String) -> Result<String, Fault> {
        match self {
            Holds::Text => Ok(text),
            Holds::Name if text.is_empty() => Err(Fault::new("must not be empty")),
            Holds::Name => Ok(text),
            Holds::Switch => word(&text, &["true", "false"]),
            Holds::Words(words) => word(&text, words),
            Holds::WordsBut(_, refused, why, instead) if text.trim().eq_ignore_ascii_case(refused) => {
                Holds::Refused(why, instead).check(text)
            }
            Holds::WordsBut(words, ..) => word(&text, words),
            Holds::Class(classes) => class(&text, classes).map(str::to_owned),
            Holds::Regex => java::regex(&text).map(|_| text),
            Holds::Placements => placements(&text).map(|_| text),
            Holds::Only(names, _) if names.iter().any(|name| text.trim().eq_ignore_ascii_case(name)) => Ok(text),
            Holds::Only(names, why) => {
                Err(Fault::new(format!("refused: {why}")).hint(format!("only \"{}\"", names[0])))
            }
            Holds::Refused(why, instead) => Err(Fault::new(format!("refused: {why}")).hint(instead)),
        }
    }
}

/// As Debezium reads words: blanks around them and capitals do not count.
fn word(text: &str, words: &[&str]) -> Result<String, Fault> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(text.trim()));
    found
        .map(|word| (*word).to_owned())
        .ok_or_else(|| Fault::new(format!("\"{text}\" is not one of the choices")).hint(listed(words)))
}

fn listed(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(" or ")
}

/// As Kafka Connect finds a plugin: by its class, by the class's own name, or by what is left of it without the kind of plugin.
pub(crate) fn class(text: &str, classes: &[&'static str]) -> Result<&'static str, Fault> {
    let typed = text.trim();
    let is_meant = |class: &str| {
        let simple = class.rsplit('.').next().unwrap_or(class);
        let kind = simple.trim_end_matches("Converter").trim_end_matches("Header");
        [class, simple, kind].iter().any(|name| name.eq_ignore_ascii_case(typed))
    };
    let is_fit = |class: &&&'static str| is_meant(class) || (**class == BINARY && is_meant(BYTE_BUFFER));
    classes.iter().find(is_fit).copied().ok_or_else(|| no_counterpart(typed, classes))
}

/// Why a converter is none of these, and what is like it.
pub(crate) fn no_counterpart(typed: &str, classes: &[&str]) -> Fault {
    let fault = Fault::new(format!("\"{typed}\" has no counterpart"));
    let has = |word: &str| typed.to_lowercase().contains(word);
    if has("avro") || has("protobuf") || has("jsonschema") {
        fault.hint(
            "outboxd speaks to no schema registry; let consumers read JSON, or write the bytes into a bytea payload",
        )
    } else if has("cloudevents") {
        fault.hint("value = \"cloudevents-structured\" or \"cloudevents-binary\" in a [[route]] makes CloudEvents")
    } else if typed == BYTE_ARRAY && classes.contains(&BINARY) {
        fault.hint(format!(
            "it leaves every bytea of PostgreSQL's to its delegate; \"{BYTES}\" does not, nor \"{BINARY}\", whose delegate \
             is for whatever is not bytes"
        ))
    } else {
        fault.hint(listed(classes))
    }
}

/// True for the option itself, or one of its family where it ends in a star.
fn is_of(option: &str, name: &str) -> bool {
    option.strip_suffix('*').map_or(option == name, |start| name.starts_with(start))
}

fn unknown(name: &str, known: &[(String, Holds)]) -> Fault {
    // As a connector's file has it, with its transform's alias.
    let bare = name.strip_prefix("transforms.").and_then(|rest| rest.split_once('.')).map(|(_, bare)| bare);
    let option = bare.unwrap_or(name);
    // Whoever left one behind has the records of today's Debezium, which does without it; whoever runs an old one has not.
    let mut old_names = OLD_ROUTER_OPTIONS.into_iter().chain([ERROR_ON_MISSING]);
    if let Some((_, now)) = old_names.find(|(old, _)| *old == option) {
        let fault = Fault::new("is an old name, which Debezium ignores today");
        return fault.hint(format!("write \"{now}\" if your Debezium reads it, and remove it if not"));
    }
    let fault = Fault::new("is no option of the event router, of a converter, or that changes a record");
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).filter(|name| !name.ends_with('*')).collect();
    match (bare.filter(|bare| names.contains(bare)), nearest(option, &names)) {
        (Some(bare), _) => fault.hint(format!("write \"{bare}\": here it stands without transforms and an alias")),
        (None, Some(near)) => fault.hint(format!("did you mean \"{near}\"?")),
        (None, None) => fault
            .hint("options of the connection, the slot and the producer have fields of their own: see outboxd config"),
    }
}
