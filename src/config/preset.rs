//! Well-known outboxes by one word: the table and the columns that each is usual to have.

use super::document::Reader;
use super::error::Fault;
use super::{Columns, OutboxSource, Preset, System, debezium, load, value};

/// The preset of an `[[outbox]]` block, and the columns it is usual to have; none for our own, which are in the schema.
pub(super) fn preset(reader: &mut Reader<'_, '_>) -> (Preset, Option<Columns>) {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Word {
        Outboxd,
        Debezium,
        System(System),
    }
    let mut words = vec![("outboxd", Word::Outboxd), ("debezium", Word::Debezium), ("quarkus", Word::Debezium)];
    words.extend(System::WORDS.map(|(word, system)| (word, Word::System(system))));
    let word = reader.choice("preset", &words);
    let (options, columns) = debezium::read(reader);
    if word != Word::Debezium && reader.place("debezium").is_some() {
        reader.refuse("debezium", Fault::new("needs preset = \"debezium\" or \"quarkus\""));
    }
    match word {
        Word::Outboxd => (Preset::Outboxd, None),
        Word::Debezium => (Preset::Debezium(Box::new(options)), Some(columns)),
        Word::System(system) => (Preset::System(system), Some(system.columns())),
    }
}

/// The table that is typed, or else the one that is usual for the preset.
pub(super) fn table(reader: &mut Reader<'_, '_>, preset: &Preset) -> OutboxSource {
    let table = reader.read("table", |typed| load::table_name(&value::text(typed)?)).expect("table has a default");
    let Preset::System(system) = preset else { return table };
    if reader.place("message_prefix").is_some() {
        reader.refuse("message_prefix", Fault::new("is set, and this preset is for a table"));
        return table;
    }
    if reader.place("table").is_some() {
        return table;
    }
    match system.table() {
        Some(usual) => load::table_name(usual).unwrap_or(table),
        None => {
            let fault = Fault::new("is required with this preset, whose tables have no usual name");
            reader.refuse("table", fault.hint("table = \"schema.name\""));
            table
        }
    }
}

impl Preset {
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
