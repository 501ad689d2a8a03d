//! Well-known outboxes by one word: the table and the columns that each is usual to have.

use super::document::Reader;
use super::error::{Fault, Place};
use super::{Columns, Outbox, OutboxSource, Preset, Route, Rules, System, Topic, debezium, init, load, value};

/// Every word that `preset` takes.
pub fn preset_words() -> Vec<&'static str> {
    ["outboxd", "debezium", "quarkus"].into_iter().chain(System::WORDS.map(|(word, _)| word)).collect()
}

/// What an `[[outbox]]` block is by its preset's word, where nothing else is typed.
pub(super) struct Usual {
    /// None where the schema's default is meant.
    pub columns: Option<Columns>,
    table: Table,
}

/// Which table a preset is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    /// The schema's default, or logical messages.
    Any,
    /// This one.
    Usual(&'static str),
    /// One that must be named.
    Typed,
}

/// The preset of an `[[outbox]]` block, and what is usual with it.
pub(super) fn preset(reader: &mut Reader<'_, '_>) -> (Preset, Usual) {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Word {
        Outboxd,
        Debezium,
        Quarkus,
        System(System),
    }
    let mut words = vec![("outboxd", Word::Outboxd), ("debezium", Word::Debezium), ("quarkus", Word::Quarkus)];
    words.extend(System::WORDS.map(|(word, system)| (word, Word::System(system))));
    let word = reader.choice("preset", &words);
    let (options, columns) = debezium::read(reader);
    if !matches!(word, Word::Debezium | Word::Quarkus) && reader.place("debezium").is_some() {
        reader.refuse("debezium", Fault::new("needs preset = \"debezium\" or \"quarkus\""));
    }
    match word {
        Word::Outboxd => (Preset::Outboxd, Usual { columns: None, table: Table::Any }),
        Word::Debezium => (Preset::Debezium(Box::new(options)), Usual { columns: Some(columns), table: Table::Any }),
        Word::Quarkus => {
            // OutboxEvent, which Hibernate does not quote.
            let usual = Usual { columns: Some(columns), table: Table::Usual("outboxevent") };
            (Preset::Debezium(Box::new(options)), usual)
        }
        Word::System(system) => {
            let table = system.table().map_or(Table::Typed, Table::Usual);
            (Preset::System(system), Usual { columns: Some(system.columns()), table })
        }
    }
}

/// The preset's word as it is typed, or else the one that holds: what it became does not tell `quarkus` from `debezium`.
pub(super) fn typed_word(reader: &mut Reader<'_, '_>) -> String {
    // One that is no text is refused already.
    reader.read("preset", |typed| Ok(value::text(typed).unwrap_or_default())).unwrap_or_default()
}

/// The table that is typed, or else the one that is usual for the preset.
pub(super) fn table(reader: &mut Reader<'_, '_>, usual: &Usual) -> OutboxSource {
    let table = reader.read("table", |typed| load::table_name(&value::text(typed)?)).expect("table has a default");
    if usual.table != Table::Any && reader.place("message_prefix").is_some() {
        reader.refuse("message_prefix", Fault::new("is set, and this preset is for a table"));
        return table;
    }
    match usual.table {
        Table::Usual(usual) if reader.place("table").is_none() => load::table_name(usual).unwrap_or(table),
        Table::Typed if reader.place("table").is_none() => {
            let hint = match reader.place("preset") {
                Some(Place::Variable(init::PRESET)) => "--table schema.name",
                _ => "table = \"schema.name\"",
            };
            let fault = Fault::new("is required with this preset, whose tables have no usual name");
            reader.refuse("table", fault.hint(hint));
            table
        }
        Table::Any | Table::Usual(_) | Table::Typed => table,
    }
}

/// Why none of an outbox's events could go anywhere: its preset does not know the topic, and no route names one.
pub(super) fn without_topic(outbox: &Outbox, rules: &Rules) -> Option<Fault> {
    let (Preset::System(system), OutboxSource::Table { name, .. }) = (&outbox.preset, &outbox.source) else {
        return None;
    };
    let concerns = |route: &&Route| route.outbox.as_ref().is_none_or(|source| *source == outbox.source);
    let is_named = rules.routes.iter().filter(concerns).any(|route| route.topic.is_some());
    if system.topic(name) != Topic::Route || is_named {
        return None;
    }
    let what =
        format!("nothing says to which topic the events of {} go, and no column of that table does", outbox.source);
    let fault = Fault::new(what);
    // One that names no outbox would take the events of all others along.
    let line = format!("add a [[route]] with {} and topic = \"…\"", route_of(outbox));
    Some(match system {
        System::Watermill => fault.hint(format!(
            "a table of watermill's is called watermill_<topic>; for one that is not, or whose name PostgreSQL cut off: {line}"
        )),
        _ => fault.hint(format!("{line}, as in the system's own configuration")),
    })
}

/// What a route says that is for this outbox alone.
pub(super) fn route_of(outbox: &Outbox) -> String {
    format!("outbox = {}", toml::Value::String(outbox.source.to_string()))
}

impl Preset {
    /// The word for it in `preset`.
    pub fn word(&self) -> &'static str {
        match self {
            Preset::Outboxd => "outboxd",
            Preset::Debezium(_) => "debezium",
            Preset::System(system) => {
                let word = System::WORDS.iter().find(|(_, known)| known == system);
                word.expect("each system has a word").0
            }
        }
    }

    /// True when the events of one thing share a key by themselves, so that they keep their order.
    pub fn keeps_order(&self) -> bool {
        match self {
            Preset::Outboxd => false,
            Preset::Debezium(_) => true,
            Preset::System(system) => system.keeps_order(),
        }
    }

    /// True when an event's topic or key stand inside its payload.
    pub fn is_led_by_payload(&self) -> bool {
        match self {
            Preset::Outboxd | Preset::Debezium(_) => false,
            Preset::System(system) => system.is_led_by_payload(),
        }
    }
}
