//! `outbox.writeback`: which columns of a row say that it was published, or why it was not.

use super::document::Reader;
use super::error::Fault;
use super::{Columns, Join, OutboxSource, Preset, value};

/// The parts of an event that a column can be mapped to.
const PARTS: [&str; 8] =
    ["id", "payload", "aggregate_type", "aggregate_id", "event_type", "timestamp", "headers", "partition"];

/// What is written into a row's own table once the row is published, or rejected. A `column` or a `status`, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writeback {
    /// `column`: a timestamp, set when the row is published.
    pub column: Option<String>,
    /// `status`, with its words.
    pub status: Option<StatusColumn>,
    /// `attempts`: one more for each time that the row is rejected.
    pub attempts: Option<String>,
    /// `error`: why it was rejected last.
    pub error: Option<String>,
}

/// A column that holds a word for each outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusColumn {
    /// `status`
    pub name: String,
    /// `published`
    pub published: String,
    /// `rejected`; `None`: a rejected row keeps the word that it has.
    pub rejected: Option<String>,
}

impl Writeback {
    /// True when a rejected row says that it is.
    pub fn marks_rejected(&self) -> bool {
        let has_word = self.status.as_ref().is_some_and(|status| status.rejected.is_some());
        has_word || self.attempts.is_some() || self.error.is_some()
    }

    /// The names of all columns that are written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let status = self.status.as_ref().map(|status| &status.name);
        [self.column.as_ref(), status, self.attempts.as_ref(), self.error.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// The block's `writeback`, if it has one that is valid.
pub(super) fn writeback(
    reader: &mut Reader<'_, '_>,
    source: &OutboxSource,
    preset: &Preset,
    columns: &Columns,
    join: Option<&Join>,
) -> Option<Writeback> {
    let mut table = reader.table("writeback")?;
    let column = table.text("column");
    let status = status(&mut table);
    let (attempts, error) = (table.text("attempts"), table.text("error"));
    let writeback = Writeback { column, status, attempts, error };
    let fault = match source {
        OutboxSource::MessagePrefix(_) => {
            Some(Fault::new("needs a table: a logical message has no row that could be written"))
        }
        OutboxSource::Table { .. } => fault(&writeback).or_else(|| overwritten(&writeback, preset, columns, join)),
    };
    if let Some(fault) = fault {
        reader.refuse("writeback", fault);
        return None;
    }
    Some(writeback)
}

fn status(table: &mut Reader<'_, '_>) -> Option<StatusColumn> {
    let name = table.text("status");
    let published = table.read("published", value::scalar_text);
    let rejected = table.read("rejected", value::scalar_text);
    match (name, published) {
        (Some(name), Some(published)) => Some(StatusColumn { name, published, rejected }),
        (Some(_), None) => {
            table.refuse("status", Fault::new("needs the word of a published row").hint("published = \"…\""));
            None
        }
        (None, published) => {
            for (field, is_set) in [("published", published.is_some()), ("rejected", rejected.is_some())] {
                if is_set {
                    table.refuse(field, Fault::new("needs the column that holds it").hint("status = \"…\""));
                }
            }
            None
        }
    }
}

fn fault(writeback: &Writeback) -> Option<Fault> {
    if writeback.column.is_none() && writeback.status.is_none() {
        return Some(Fault::new("names neither column nor status, so a published row would look like any other"));
    }
    if writeback.status.as_ref().is_some_and(|status| status.rejected.as_ref() == Some(&status.published)) {
        return Some(Fault::new("has the same word for published and rejected rows"));
    }
    let names: Vec<&str> = writeback.names().collect();
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    twice.map(|(_, name)| Fault::new(format!("names column \"{name}\" twice")))
}

/// Why a mark would stand where the event does.
fn overwritten(writeback: &Writeback, preset: &Preset, columns: &Columns, join: Option<&Join>) -> Option<Fault> {
    let trace = match preset {
        Preset::Debezium(debezium) => debezium.trace.as_deref(),
        Preset::Outboxd | Preset::System(_) => None,
    };
    let is_joined_by = |name: &str| join.is_some_and(|join| join.event_column == name);
    // The payloads of a join are in the other table, which no mark is written into.
    let part = |name: &str| {
        let mut parts = PARTS.into_iter().filter(|part| *part != "payload" || join.is_none());
        parts.find(|part| columns.part(part).is_some_and(|column| column == name))
    };
    writeback.names().find_map(|name| {
        let fault = |what: &str| Fault::new(format!("would write column \"{name}\", which {what}"));
        let hint = "a mark needs a column of its own";
        match part(name) {
            Some(part @ ("id" | "payload")) => Some(fault(&format!("is the event's {part}")).hint(hint)),
            Some(part) => {
                let hint = format!("{hint}; columns = {{ {part} = \"\" }} says that there is no {part}");
                Some(fault(&format!("is the event's {part}")).hint(hint))
            }
            None if trace == Some(name) => Some(fault("holds the event's trace context").hint(hint)),
            None if is_joined_by(name) => Some(fault("says where the event's payload is").hint(hint)),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, StatusColumn, Writeback};

    fn read(outbox: &str) -> Result<Option<Writeback>, String> {
        let text =
            format!("[postgres]\nurl = \"postgres://a@b/c\"\n[kafka]\nbrokers = \"b:1\"\n[[outbox]]\n{outbox}\n");
        match Config::from_toml(&text, "o.toml", std::iter::empty()) {
            Ok(config) => Ok(config.outbox[0].writeback.clone()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_timestamp_or_words_or_both_are_written_back() {
        let column = Writeback { column: Some("published_at".into()), status: None, attempts: None, error: None };
        assert_eq!(read("writeback = { column = \"published_at\" }"), Ok(Some(column)));
        assert_eq!(read(""), Ok(None));
        let all = read(
            "writeback = { column = \"at\", status = \"state\", published = 2, rejected = -1, attempts = \"tries\", error = \"why\" }",
        );
        let status = StatusColumn { name: "state".into(), published: "2".into(), rejected: Some("-1".into()) };
        let all = all.unwrap().unwrap();
        assert_eq!(all.names().collect::<Vec<_>>(), ["at", "state", "tries", "why"]);
        assert_eq!(all.status, Some(status));
        let done = read("writeback = { status = \"done\", published = true }").unwrap().unwrap();
        assert_eq!(done.status.unwrap().published, "true");
    }

    #[test]
    fn what_cannot_be_written_back_is_refused_with_its_reason() {
        for (outbox, words) in [
            ("message_prefix = \"m\"\nwriteback = { column = \"a\" }", "needs a table"),
            ("writeback = { attempts = \"tries\" }", "neither column nor status"),
            ("writeback = { status = \"state\" }", "needs the word of a published row"),
            ("writeback = { column = \"a\", rejected = \"no\" }", "needs the column that holds it"),
            ("writeback = { status = \"s\", published = \"x\", rejected = \"x\" }", "the same word"),
            ("writeback = { column = \"id\" }", "would write column \"id\", which is the event's id"),
            ("writeback = { column = \"a\", error = \"a\" }", "names column \"a\" twice"),
            ("writeback = { colum = \"a\" }", "column"),
        ] {
            let said = read(outbox).unwrap_err();
            assert!(said.contains(words), "{outbox}: {said}");
        }
    }

    #[test]
    fn no_mark_stands_where_a_part_of_the_event_does() {
        let join = "join = { table = \"bodies\", on = \"body = id\" }";
        let trace = "preset = \"debezium\"\ndebezium = { \"tracing.span.context.field\" = \"context\" }";
        let columns = "columns = { partition = \"shard\" }";
        for (outbox, mark, words) in [
            ("", "column = \"payload\"", "would write column \"payload\", which is the event's payload"),
            ("", "column = \"created_at\"", "columns = { timestamp = \"\" } says that there is no timestamp"),
            ("", "status = \"headers\", published = \"x\"", "the event's headers"),
            ("", "column = \"at\", attempts = \"aggregate_id\"", "the event's aggregate_id"),
            ("", "column = \"at\", error = \"event_type\"", "the event's event_type"),
            ("", "column = \"at\", error = \"aggregate_type\"", "the event's aggregate_type"),
            (columns, "column = \"at\", attempts = \"shard\"", "the event's partition"),
            ("preset = \"cap\"", "column = \"Content\"", "the event's payload"),
            (trace, "column = \"aggregatetype\"", "the event's aggregate_type"),
            (trace, "column = \"context\"", "holds the event's trace context"),
            (join, "column = \"body\"", "says where the event's payload is"),
        ] {
            let said = read(&format!("{outbox}\nwriteback = {{ {mark} }}")).unwrap_err();
            assert!(said.contains(words), "{outbox} {mark}: {said}");
        }
        for (outbox, mark) in [
            ("columns = { timestamp = \"\" }", "column = \"created_at\""),
            // The payload of a join is a column of the other table.
            (join, "column = \"payload\""),
        ] {
            assert!(read(&format!("{outbox}\nwriteback = {{ {mark} }}")).is_ok(), "{outbox} {mark}");
        }
    }

    /// `docs/presets.md` has a line for each system that marks its rows.
    #[test]
    fn the_marks_of_every_known_system_load() {
        let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/presets.md")).unwrap();
        let (_, told) = document.split_once("## Marking rows as the system does").unwrap();
        let section = told.split("\n## ").next().unwrap_or_default();
        let mut count = 0;
        for line in section.lines() {
            let parts: Vec<&str> = line.split('`').collect();
            let ["| ", preset, " | ", marks, ..] = parts.as_slice() else { continue };
            let outbox = format!("preset = \"{preset}\"\ntable = \"x\"\nwriteback = {marks}\n[[route]]\ntopic = \"t\"");
            let said = read(&outbox);
            assert!(matches!(said, Ok(Some(_))), "{outbox}: {said:?}");
            count += 1;
        }
        assert_eq!(count, 12);
    }
}
