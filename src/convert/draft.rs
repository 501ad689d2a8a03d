//! The `outboxd.toml` as it grows: lines by section, each with the setting it came from; text leaves.

use std::fmt::Write;

/// Longer lines have their comment above them.
const WIDTH: usize = 120;

/// What will be written.
#[derive(Debug)]
pub struct Draft {
    title: String,
    /// `[postgres]`
    pub postgres: Section,
    /// `[kafka]`
    pub kafka: Section,
    /// `[kafka.properties]`
    pub properties: Section,
    /// `[limits]`
    pub limits: Section,
    /// One `[[outbox]]` and its `[outbox.debezium]` per table.
    pub outboxes: Vec<(Section, Section)>,
    /// `[[route]]`
    pub route: Section,
}

/// The lines of a section.
#[derive(Debug, Default, Clone)]
pub struct Section(Vec<Line>);

#[derive(Debug, Clone)]
enum Line {
    Comment(String),
    Field {
        name: String,
        value: String,
        note: String,
    },
    /// A line that a person may make a field.
    Off {
        name: String,
        value: String,
        note: String,
    },
}

impl Section {
    /// A line of text for people.
    pub fn comment(&mut self, text: impl AsRef<str>) {
        self.0.push(Line::Comment(one_line(text.as_ref())));
    }

    /// `name = "text"`, and where it came from.
    pub fn text(&mut self, name: &str, text: &str, note: &str) {
        self.raw(name, &quoted(text), note);
    }

    /// `name = value`, with a value that is TOML already.
    pub fn raw(&mut self, name: &str, value: &str, note: &str) {
        self.0.push(Line::Field { name: key(name), value: value.to_owned(), note: one_line(note) });
    }

    /// The same as a comment.
    pub fn off(&mut self, name: &str, value: &str, note: &str) {
        self.0.push(Line::Off { name: key(name), value: value.to_owned(), note: one_line(note) });
    }

    /// Appends another's lines.
    pub fn append(&mut self, other: &Section) {
        self.0.extend(other.0.iter().cloned());
    }

    fn write(&self, header: &str, out: &mut String) {
        if self.0.is_empty() {
            return;
        }
        write!(out, "\n{header}\n").expect("a String takes everything");
        for line in &self.0 {
            let (line, note) = match line {
                Line::Comment(text) => (format!("# {text}"), ""),
                Line::Field { name, value, note } => (format!("{name} = {value}"), note.as_str()),
                Line::Off { name, value, note } => (format!("# {name} = {value}"), note.as_str()),
            };
            let written = match note {
                "" => writeln!(out, "{line}"),
                note if line.chars().count() + note.chars().count() + 4 > WIDTH => writeln!(out, "# {note}\n{line}"),
                note => writeln!(out, "{line}  # {note}"),
            };
            written.expect("a String takes everything");
        }
    }
}

impl Draft {
    /// An empty one, made from a file that people know as `title`.
    pub fn new(title: &str) -> Draft {
        Draft {
            title: one_line(title),
            postgres: Section::default(),
            kafka: Section::default(),
            properties: Section::default(),
            limits: Section::default(),
            outboxes: Vec::new(),
            route: Section::default(),
        }
    }

    /// The file.
    pub fn toml(&self) -> String {
        let mut out = format!(
            "# Made by outboxd convert from {}.\n# Behind each line stands the setting it came from. Lines marked FILL IN need a hand.\n",
            self.title
        );
        self.postgres.write("[postgres]", &mut out);
        self.kafka.write("[kafka]", &mut out);
        self.properties.write("[kafka.properties]", &mut out);
        for (outbox, debezium) in &self.outboxes {
            outbox.write("[[outbox]]", &mut out);
            debezium.write("[outbox.debezium]", &mut out);
        }
        self.route.write("[[route]]", &mut out);
        self.limits.write("[limits]", &mut out);
        out
    }
}

/// A name with dots stands in quotes.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_' || char == '-');
    if bare { name.to_owned() } else { quoted(name) }
}

/// A basic string of TOML.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                write!(out, "\\u{:04X}", u32::from(control)).expect("a String takes everything");
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// What a comment can hold: a line break in it would begin a line of TOML.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back_as_it_was() {
        for text in
            ["", "plain", "a\"b\\c", "line\nbreak\r\ttab", "\u{0}\u{7f}\u{1b}", "${routedByValue}", "é😀", "'#'"]
        {
            let toml = format!("{} = {}", key(text), quoted(text));
            let table: toml::Table = toml.parse().unwrap();
            assert_eq!(table[text].as_str(), Some(text), "{toml}");
        }
    }

    #[test]
    fn nothing_in_a_comment_becomes_a_field() {
        let mut draft = Draft::new("a\nb = 1");
        draft.postgres.comment("x\n[kafka]");
        draft.postgres.text("slot", "s", "from\nurl = 2");
        draft.postgres.off("password_file", "\"x\"", "y\u{85}z");
        let table: toml::Table = draft.toml().parse().unwrap();
        assert_eq!(table.len(), 1);
        assert_eq!(table["postgres"].as_table().unwrap().len(), 1);
    }

    #[test]
    fn a_long_line_has_its_comment_above() {
        let mut draft = Draft::new("a");
        draft.kafka.text("brokers", &"b".repeat(110), "bootstrap.servers");
        assert!(draft.toml().contains("[kafka]\n# bootstrap.servers\nbrokers = "), "{}", draft.toml());
    }
}
