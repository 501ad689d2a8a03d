//! `outboxd convert`: a Debezium connector's configuration becomes an `outboxd.toml`, and a list of what it does not carry over.
//!
//! Text enters; text and findings leave. Nothing is read, connected or logged here, and no secret ever leaves: of a password
//! only the fact that there is one, or the reference that stands for it. What an option may hold, `config` is asked.
//!
//! ```text
//! text ─► input ─► Settings (Connect's names) ─► postgres, tables, router, converters, kafka ─► Draft ─► TOML
//!         │                                          │ take what they understand
//!         java_properties, quarkus, yaml, strimzi    ▼
//!                                                  options: the rest, by a table ─► Findings
//! ```

mod columns;
mod converters;
mod draft;
mod input;
mod java_properties;
mod kafka;
mod options;
mod pattern;
mod postgres;
mod quarkus;
mod router;
mod routes;
mod settings;
mod strimzi;
mod tables;
mod yaml;

use serde::Serialize;

use crate::spelling::{nearest, without_salt};
use draft::Draft;
use input::Form;
use settings::Settings;

/// What the file alone does not say.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The worker's `key.converter`: a class, and `,name=value` for each of its properties.
    pub key_converter: Option<String>,
    /// The worker's `value.converter`, likewise.
    pub value_converter: Option<String>,
    /// The worker's `header.converter`, likewise.
    pub header_converter: Option<String>,
    /// Whether the connector has been at work.
    pub history: History,
}

/// Whether the connector has been at work: then its first snapshot is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// Nobody said so.
    #[default]
    Unknown,
    /// It has run, and its slot is taken over.
    HasRun,
}

/// What became of a file.
#[derive(Debug)]
pub struct Conversion {
    /// A complete `outboxd.toml`.
    pub toml: String,
    /// What it does not carry over.
    pub findings: Findings,
}

/// What a person should know, by weight.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Must be written into the TOML by hand before it can be used.
    pub fill_in: Vec<Finding>,
    /// Would be lost, or would change what consumers get.
    pub lost: Vec<Finding>,
    /// Names that nobody knows.
    pub unknown: Vec<Finding>,
    /// Behaves differently, and nothing is lost.
    pub differs: Vec<Finding>,
    /// Has no counterpart because none is needed.
    pub not_needed: Vec<Finding>,
}

/// One thing a person should know.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The setting's name as the file has it.
    pub option: String,
    /// What about it.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Why a text is no connector's configuration. Never quotes the text: a secret may stand there.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub hint: String,
}

/// What the rooms work on: settings not yet understood, and what was made of the others.
struct Work {
    form: Form,
    settings: Settings,
    draft: Draft,
    findings: Findings,
}

/// Converts the text of a connector's configuration, whatever its form.
pub fn convert(text: &str, given: &Given) -> Result<Conversion, Unreadable> {
    let read = input::read(text)?;
    let mut work =
        Work { form: read.form, settings: read.settings, draft: Draft::new(&read.title), findings: read.findings };
    input::check_class(&mut work)?;
    postgres::write(&mut work);
    kafka::write(&mut work);
    let tables = tables::read(&mut work);
    let converters = converters::write(&mut work, given);
    let routers = routes::read(&mut work);
    let prefix = postgres::topic_prefix(&mut work);
    router::write(&mut work, tables, routers, &prefix, &converters);
    options::judge(&mut work, given.history);
    Ok(Conversion { toml: work.draft.toml(), findings: work.findings })
}

impl Findings {
    /// True when the TOML would not give what the connector gave.
    pub fn is_loss(&self) -> bool {
        !self.lost.is_empty() || !self.unknown.is_empty()
    }
}

impl Finding {
    fn new(option: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { option: without_salt(&option.into()).to_owned(), message: message.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Finding {
        self.hinted(Some(hint.into()))
    }

    fn hinted(mut self, hint: Option<String>) -> Finding {
        self.hint = hint;
        self
    }
}

impl Unreadable {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Unreadable {
        Unreadable { what: what.into(), hint: hint.into() }
    }
}

impl Work {
    fn fill_in(&mut self, finding: Finding) {
        note(&mut self.findings.fill_in, finding);
    }

    fn lost(&mut self, finding: Finding) {
        note(&mut self.findings.lost, finding);
    }

    fn differs(&mut self, finding: Finding) {
        note(&mut self.findings.differs, finding);
    }

    fn not_needed(&mut self, option: impl Into<String>, message: impl Into<String>) {
        note(&mut self.findings.not_needed, Finding::new(option, message));
    }

    /// What the file would call an option of the connector that it does not have.
    fn named(&self, option: &str) -> String {
        match self.form {
            Form::Connect => option.to_owned(),
            Form::Server => format!("debezium.source.{option}"),
        }
    }

    /// Notes a name that nobody knows, with the nearest that somebody does.
    fn unknown(&mut self, option: impl Into<String>, typed: &str, known: &[&str]) {
        let finding = Finding::new(option, "nobody knows this name");
        let whole: Vec<&str> = known.iter().copied().filter(|name| !name.ends_with('*')).collect();
        self.findings.unknown.push(match nearest(typed, &whole) {
            Some(name) => finding.hint(format!("did you mean \"{name}\"?")),
            None => finding,
        });
    }
}

/// Two routers, or two converters, may show the same thing.
fn note(group: &mut Vec<Finding>, finding: Finding) {
    if !group.contains(&finding) {
        group.push(finding);
    }
}

#[cfg(test)]
mod tests;
