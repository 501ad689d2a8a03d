//! What Debezium made of a case, as a file: the case itself, so that nothing else is needed to repeat it, and the records.
//!
//! What changes from run to run is replaced by a word that says so: the time at which a change was read, the id of a run, the
//! address of a Java object, the partition of a record without a key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::support::reader::Seen;

/// Stands for whatever a Java object happens to be called.
pub const ADDRESS: &str = "<address>";
const RUN_ID: &str = "<run id>";
const RUN_ID_HEADER: &str = "__debezium.context.runId";

/// A case and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fixture {
    pub case: String,
    pub recorded_with: BTreeMap<String, String>,
    /// `schema.table`.
    pub table: String,
    pub ddl: String,
    pub statements: Vec<String>,
    /// As they stand under `[outbox.debezium]`.
    pub options: BTreeMap<String, String>,
    /// As the connector had them.
    pub connector: BTreeMap<String, String>,
    pub columns: Vec<Column>,
    /// What the table held in the end, as PostgreSQL prints it.
    pub rows: Vec<Vec<Option<String>>>,
    pub records: Vec<Record>,
    /// Why the task ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub at: Stage,
    /// Class and message of each exception, the outermost first.
    pub exceptions: Vec<String>,
}

/// When a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Connect took no such configuration.
    Registration,
    /// Before any row.
    Start,
    /// At the last of the statements.
    LastStatement,
}

/// A record in its topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub topic: String,
    pub partition: Partition,
    pub key: Option<Data>,
    pub value: Option<Data>,
    pub headers: Vec<(String, Option<Data>)>,
    pub timestamp: Time,
    pub timestamp_type: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Partition {
    Of(i32),
    /// A record without a key goes anywhere.
    Said(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Time {
    At(i64),
    /// When the change was read.
    Said(String),
}

/// Bytes, as people can read them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Data {
    Text(String),
    Hex { hex: String },
}

impl Fixture {
    /// Where the fixture of a case lies.
    pub fn path(case: &str) -> PathBuf {
        directory().join(format!("{case}.json"))
    }

    /// Every fixture, by the name of its case.
    pub fn all() -> Vec<Fixture> {
        let files = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
        let mut fixtures: Vec<Fixture> = files
            .map(|path| {
                let text = std::fs::read_to_string(&path).unwrap();
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            })
            .collect();
        fixtures.sort_by(|a, b| a.case.cmp(&b.case));
        fixtures
    }

    pub fn write(&self) {
        std::fs::create_dir_all(directory()).unwrap();
        std::fs::write(Fixture::path(&self.case), serde_json::to_string_pretty(self).unwrap() + "\n").unwrap();
    }
}

impl Record {
    /// A record as it was read. Whatever is younger than `begun` has the time at which it was read from the WAL.
    pub fn of(seen: &Seen, begun_ms: i64) -> Record {
        let key = seen.key.as_deref().map(Data::of);
        let is_named_by_chance = matches!(&key, Some(Data::Text(text)) if text.contains(ADDRESS));
        let headers = seen.headers.iter().map(|(name, value)| {
            let value = value.as_deref().map(Data::of);
            (name.clone(), value.map(|value| if name == RUN_ID_HEADER { value.without_run_id() } else { value }))
        });
        Record {
            topic: seen.topic.clone(),
            partition: match key.is_none() || is_named_by_chance {
                true => Partition::Said("any".to_string()),
                false => Partition::Of(seen.partition),
            },
            value: seen.value.as_deref().map(Data::of),
            headers: headers.collect(),
            timestamp: match seen.timestamp_ms.expect("every record has a time") {
                time if time >= begun_ms => Time::Said("when it was read".to_string()),
                time => Time::At(time),
            },
            timestamp_type: if seen.appended_ms.is_some() { "LogAppendTime" } else { "CreateTime" }.to_string(),
            key,
        }
    }
}

impl Data {
    pub fn of(bytes: &[u8]) -> Data {
        match std::str::from_utf8(bytes) {
            Ok(text) => Data::Text(without_addresses(text)),
            Err(_) => Data::Hex { hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }

    fn without_run_id(self) -> Data {
        const UUID: usize = 36;
        let Data::Text(text) = self else { return self };
        let is_uuid = |part: &str| uuid::Uuid::try_parse(part).is_ok();
        let found =
            (0..text.len().saturating_sub(UUID - 1)).find(|start| text.get(*start..start + UUID).is_some_and(is_uuid));
        Data::Text(match found {
            Some(start) => format!("{}{RUN_ID}{}", &text[..start], &text[start + UUID..]),
            None => text,
        })
    }
}

/// What Java prints of an object that has nothing better to say: its class, and an address.
pub fn without_addresses(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, behind)) = rest.split_once("[B@") {
        let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        kept += before;
        kept += "[B@";
        kept += if digits > 0 { ADDRESS } else { "" };
        rest = &behind[digits..];
    }
    kept + rest
}

/// Classes and messages of a Java stack trace, the outermost first.
pub fn exceptions(trace: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in trace.lines() {
        if line.starts_with("\tat ") || line.starts_with("\t... ") {
            continue;
        }
        match (line.strip_prefix("Caused by: "), found.last_mut()) {
            (Some(cause), _) => found.push(cause.to_string()),
            (None, None) => found.push(line.to_string()),
            // A message of several lines.
            (None, Some(last)) => *last = format!("{last}\n{line}"),
        }
    }
    found.iter().map(|text| without_range(&without_addresses(text))).collect()
}

/// A broker says between which times a record's may lie, by its own clock.
fn without_range(text: &str) -> String {
    const BEFORE: &str = "The timestamp should be within ";
    match text.split_once(BEFORE) {
        Some((said, _)) => format!("{said}{BEFORE}<range>"),
        None => text.to_string(),
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debezium/fixtures")
}
