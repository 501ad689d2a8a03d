//! `outbox.writeback`: which columns of a row say that it was published, or why it was not.

use super::document::Reader;
use super::error::Fault;
use super::{Columns, OutboxSource, value};

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
pub(super) fn writeback(reader: &mut Reader<'_, '_>, source: &OutboxSource, columns: &Columns) -> Option<Writeback> {
    let mut table = reader.table("writeback")?;
    let column = table.text("column");
    let status = status(&mut table);
    let (attempts, error) = (table.text("attempts"), table.text("error"));
    let writeback = Writeback { column, status, attempts, error };
    let fault = match source {
        OutboxSource::MessagePrefix(_) => {
            Some(Fault::new("needs a table: a logical message has no row that could be written"))
        }
        OutboxSource::Table { .. } => fault(&writeback, columns),
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

fn fault(writeback: &Writeback, columns: &Columns) -> Option<Fault> {
    if writeback.column.is_none() && writeback.status.is_none() {
        return Some(Fault::new("names neither column nor status, so a published row would look like any other"));
    }
    if writeback.status.as_ref().is_some_and(|status| status.rejected.as_ref() == Some(&status.published)) {
        return Some(Fault::new("has the same word for published and rejected rows"));
    }
    let names: Vec<&str> = writeback.names().collect();
    if names.contains(&columns.id.as_str()) {
        return Some(Fault::new(format!("would write column \"{}\", which is the event's id", columns.id)));
    }
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    twice.map(|(_, name)| Fault::new(format!("names column \"{name}\" twice")))
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
            ("writeback = { column = \"id\" }", "which is the event's id"),
            ("writeback = { column = \"a\", error = \"a\" }", "names column \"a\" twice"),
            ("writeback = { colum = \"a\" }", "column"),
        ] {
            let said = read(outbox).unwrap_err();
            assert!(said.contains(words), "{outbox}: {said}");
        }
    }
}
