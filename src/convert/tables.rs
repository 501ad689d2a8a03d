//! `table.include.list`: one `[[outbox]]` per table. Names are taken, real regular expressions are refused.

use super::postgres::FILL_IN;
use super::{Finding, Work};

/// A table, and where its name came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// `schema.name`, or the words to be filled in.
    pub name: String,
    /// The setting's name.
    pub note: String,
}

/// The tables that the connector reads; never empty.
pub fn read(work: &mut Work) -> Vec<Table> {
    // Before 1.3 it was a whitelist.
    let list = work.settings.take("table.include.list").or_else(|| work.settings.take("table.whitelist"));
    let Some(setting) = list else {
        let message = "not set, so every table of the publication was taken for an outbox";
        let name = work.named("table.include.list");
        work.lost(Finding::new(&name, message).hint("name the outbox tables, one [[outbox]] for each"));
        return vec![unnamed(&format!("FILL IN: {name} is not set"))];
    };
    let Some(text) = setting.text() else {
        let message = format!("is {}, which outboxd does not look up: write the tables in", setting.value.shown());
        work.fill_in(Finding::new(&setting.origin, message));
        return vec![unnamed(&format!("FILL IN: {} is {}", setting.origin, setting.value.shown()))];
    };
    let mut tables = Vec::new();
    for item in items(&text) {
        match literal(&item) {
            Some(name) => {
                if name.chars().any(char::is_uppercase) {
                    let message = format!("Debezium ignores the case of {name}, outboxd does not");
                    let hint = "write the table's name as PostgreSQL has it";
                    work.differs(Finding::new(&setting.origin, message).hint(hint));
                }
                let table = Table { name, note: setting.origin.clone() };
                if !tables.contains(&table) {
                    tables.push(table);
                }
            }
            None => {
                let message = format!("{item} is a regular expression: outboxd reads tables by name");
                work.lost(
                    Finding::new(&setting.origin, message).hint("write one [[outbox]] for each table it matches"),
                );
                tables.push(unnamed(&format!("FILL IN: {} has {item}", setting.origin)));
            }
        }
    }
    if tables.is_empty() {
        work.lost(Finding::new(&setting.origin, "names no table"));
        tables.push(unnamed(&format!("FILL IN: {} names none", setting.origin)));
    }
    tables
}

impl Table {
    /// True when the file did not name it.
    pub fn is_unnamed(&self) -> bool {
        self.name.ends_with(FILL_IN)
    }
}

fn unnamed(note: &str) -> Table {
    Table { name: format!("public.{FILL_IN}"), note: note.to_owned() }
}

/// The members of the list; a comma behind a backslash parts nothing.
pub fn items(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut escaped = false;
    for char in text.chars() {
        match char {
            ',' if !escaped => items.push(String::new()),
            char => items.last_mut().expect("it begins with one").push(char),
        }
        escaped = char == '\\' && !escaped;
    }
    items.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

/// The name that an expression is, when it is one: `public.outbox`, `public\.outbox`.
fn literal(expression: &str) -> Option<String> {
    let mut name = String::new();
    let mut chars = expression.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(sign @ ('.' | '-' | '$' | ' ')) => name.push(sign),
                _ => return None,
            },
            // A dot matches anything, and whoever writes one in such a list means a dot.
            '.' | '_' | '-' => name.push(char),
            char if char.is_alphanumeric() => name.push(char),
            _ => return None,
        }
    }
    let parts: Vec<&str> = name.split('.').collect();
    (parts.len() == 2 && parts.iter().all(|part| !part.is_empty())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_and_expressions_are_not() {
        for (typed, name) in [
            ("public.outbox", Some("public.outbox")),
            (r"public\.outbox", Some("public.outbox")),
            ("Shop.OutboxEvent", Some("Shop.OutboxEvent")),
            ("public.outbox.*", None),
            ("public.(a|b)", None),
            ("public.outbox_[0-9]+", None),
            (r"public.\w+", None),
            ("outbox", None),
            ("db.public.outbox", None),
            ("public.", None),
            (".*outbox", None),
        ] {
            assert_eq!(literal(typed).as_deref(), name, "{typed}");
        }
    }

    #[test]
    fn the_list_is_parted_by_commas() {
        assert_eq!(items(r"a.b, c.d ,,x\,y"), ["a.b", "c.d", r"x\,y"]);
    }
}
