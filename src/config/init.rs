//! What `outboxd init` is asked for on its command line, laid beside the file: which table to prepare, and where the database is.
//!
//! Options enter; blocks of the document leave, and the lines that the file still lacks.

use super::document::{Block, Document};
use super::error::Fault;
use super::{Config, Outbox, Rules, preset};

/// The option that names a preset, as errors call it.
pub(super) const PRESET: &str = "--preset";
const TABLE: &str = "--table";
const URL: &str = "--url";

/// The relay's role, where no URL of the relay's own names one.
const ROLE: &str = "outboxd";

/// What was asked for. The URL may hold a password, so there is no `Debug`.
#[derive(Default)]
pub struct Asked {
    /// `--preset`
    pub preset: Option<String>,
    /// `--table`
    pub table: Option<String>,
    /// `--url`: where the database is, when nothing else says so.
    pub url: Option<String>,
}

/// What `outboxd init` works by.
#[derive(Debug)]
pub struct Plan {
    /// What was typed, and what was asked for beside it.
    pub config: Config,
    /// The lines that belong into the file and are not there; empty when there are none.
    pub missing: String,
}

impl Asked {
    /// Lays down what must be known, where it was not typed. True when the relay's own URL is the administrator's now.
    pub(super) fn suppose<'d>(&'d self, document: &mut Document<'d>) -> bool {
        // Nobody is asked there: the brokers may be written down later.
        document.suppose("kafka", "brokers", "none", "kafka.brokers");
        self.url.as_ref().is_some_and(|url| document.suppose("postgres", "url", url, URL))
    }

    /// The block that was asked for.
    pub(super) fn block(&self) -> Option<Block<'_>> {
        let preset = ("preset", self.preset.as_deref()?, PRESET);
        let table = self.table.as_deref().map(|table| ("table", table, TABLE));
        Some(Block::of([Some(preset), table].into_iter().flatten()))
    }

    /// The lines that the file lacks: of the outbox that was asked for, if it has none for that table, and of the URL.
    pub(super) fn missing(&self, outbox: Option<&Outbox>, rules: &Rules, is_url_supposed: bool) -> String {
        let mut lines = String::new();
        if is_url_supposed {
            lines += &format!("[postgres]\nurl = \"…\" # as --url, with the user {ROLE} and its password\n");
        }
        if let (Some(outbox), Some(preset)) = (outbox, &self.preset) {
            let table = toml::Value::String(outbox.source.to_string());
            let gap = if lines.is_empty() { "" } else { "\n" };
            lines += &format!("{gap}[[outbox]]\npreset = \"{preset}\"\ntable = {table}\n");
            if preset::without_topic(outbox, rules).is_some() {
                lines += "\n[[route]]\ntopic = \"…\" # where its events go\n";
            }
        }
        lines
    }
}

impl Config {
    /// The relay is not the administrator whose URL was taken to find the database.
    pub(super) fn use_own_role(&mut self) {
        let connection = &mut self.postgres.connection;
        ROLE.clone_into(&mut connection.user);
        connection.password = None;
    }
}

/// Says that one table cannot have two presets.
pub(super) fn another_preset(typed: &Outbox, asked: &Outbox) -> Fault {
    let (typed, asked, table) = (typed.preset.word(), asked.preset.word(), &typed.source);
    Fault::new(format!("{table} has preset = \"{typed}\" here, and {PRESET} says \"{asked}\""))
        .hint(format!("change this block, or leave {PRESET} out: init prepares what the file has"))
}
