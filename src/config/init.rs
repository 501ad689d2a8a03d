//! What `outboxd init` is asked for on its command line, laid beside the file: which table to prepare, and where the database is.
//!
//! Options enter; blocks of the document leave, and the lines that the file still lacks.

use super::document::{Block, Document, Lack};
use super::error::Fault;
use super::{Config, Outbox, OutboxSource, Rules, load, preset};

/// The option that names a preset, as errors call it.
pub(super) const PRESET: &str = "--preset";
const TABLE: &str = "--table";
const URL: &str = "--url";

/// The relay's role, where no URL of the relay's own names one.
const ROLE: &str = "outboxd";

/// The outbox of a configuration that says nothing of one.
const DEFAULT: &str = "public.outbox";

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

/// What was laid down because nobody typed it.
#[derive(Debug, Default)]
pub(super) struct Supposed {
    /// The relay's own URL is the administrator's now.
    pub url: Option<Lack>,
    /// There are no brokers.
    pub brokers: Option<Lack>,
    /// A relay by this configuration reads the default outbox, which a first block ends.
    pub reads_default: bool,
}

impl Asked {
    /// Lays down what must be known, where it was not typed.
    pub(super) fn suppose<'d>(&'d self, document: &mut Document<'d>) -> Supposed {
        let has_outbox = document.has("outbox");
        // Nobody is asked there: the brokers may be written down later.
        let brokers = document.suppose("kafka", "brokers", "none", "kafka.brokers");
        // Without a preset nothing says what is to be prepared, and a slot in the wrong database keeps WAL there.
        let url = self.preset.as_ref().and(self.url.as_ref());
        let url = url.and_then(|url| document.suppose("postgres", "url", url, URL));
        let reads_default = !has_outbox && (document.has_file() || url.is_none());
        Supposed { url, brokers, reads_default }
    }

    /// What says where the database is, beside the configuration.
    pub(super) fn further(&self) -> Option<&'static str> {
        self.preset.as_ref().map(|_| URL)
    }

    /// The block that was asked for.
    pub(super) fn block(&self) -> Option<Block<'_>> {
        let preset = ("preset", self.preset.as_deref()?, PRESET);
        let table = self.table.as_deref().map(|table| ("table", table, TABLE));
        Some(Block::of([Some(preset), table].into_iter().flatten()))
    }

    /// The lines that the file lacks, so that a relay can start: where the servers are, the outbox that was asked for, if the
    /// file has none for that table, and a topic for each outbox that has none.
    pub(super) fn missing(
        &self,
        supposed: &Supposed,
        added: Option<&Outbox>,
        outboxes: &[Outbox],
        rules: &Rules,
    ) -> String {
        let mut parts = Vec::new();
        if let Some(lack) = supposed.url {
            let line = format!("url = \"…\" # as --url, with the user {ROLE} and its password\n");
            parts.push(heading("postgres", lack) + &line);
        }
        if let Some(lack) = supposed.brokers {
            parts.push(heading("kafka", lack) + "brokers = \"…\" # host:port,host:port\n");
        }
        if let (Some(outbox), Some(preset)) = (added, &self.preset) {
            if supposed.reads_default && load::table_name(DEFAULT).is_ok_and(|default| default != outbox.source) {
                parts.push(format!(
                    "# {DEFAULT}, read until now, needs a block of its own from here on, or is not read any more:\n\
                     # [[outbox]]\n# table = \"{DEFAULT}\"\n"
                ));
            }
            let table = toml::Value::String(outbox.source.to_string());
            parts.push(format!("[[outbox]]\npreset = \"{preset}\"\ntable = {table}\n"));
        }
        for outbox in outboxes.iter().filter(|outbox| preset::without_topic(outbox, rules).is_some()) {
            parts.push(format!("[[route]]\n{}\ntopic = \"…\" # where its events go\n", preset::route_of(outbox)));
        }
        parts.join("\n")
    }
}

/// The section that a field goes into; the file may have it.
fn heading(section: &str, lack: Lack) -> String {
    match lack {
        Lack::Section => format!("[{section}]\n"),
        Lack::Field => format!("# in [{section}], which is there:\n"),
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

/// Says that one table cannot have two presets; both are told by the words that were typed, of which some mean the same.
pub(super) fn another_preset(table: &OutboxSource, typed: &str, asked: &str) -> Fault {
    Fault::new(format!("{table} has preset = \"{typed}\" here, and {PRESET} says \"{asked}\""))
        .hint(format!("change this block, or leave {PRESET} out: init prepares what the file has"))
}
