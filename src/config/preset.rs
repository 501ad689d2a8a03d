//! Well-known outboxes by one word: the columns that each is usual to have.

use super::document::Reader;
use super::error::Fault;
use super::{Columns, Preset, debezium};

/// The preset of an `[[outbox]]` block, and the columns it is usual to have; none for our own, which are in the schema.
pub(super) fn preset(reader: &mut Reader<'_, '_>) -> (Preset, Option<Columns>) {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Word {
        Outboxd,
        Debezium,
    }
    let words = [("outboxd", Word::Outboxd), ("debezium", Word::Debezium), ("quarkus", Word::Debezium)];
    let word = reader.choice("preset", &words);
    let (options, columns) = debezium::read(reader);
    match word {
        Word::Outboxd => {
            if reader.place("debezium").is_some() {
                reader.refuse("debezium", Fault::new("needs preset = \"debezium\" or \"quarkus\""));
            }
            (Preset::Outboxd, None)
        }
        Word::Debezium => (Preset::Debezium(Box::new(options)), Some(columns)),
    }
}
