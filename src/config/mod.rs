//! What was typed becomes what is valid: one TOML file and `OUTBOXD_…` variables enter, a `Config` leaves.
//!
//! ```text
//! file, variables ─► document (values, each with its place) ─► load ─► Config
//!                        ▲                                       │
//!                     schema ─► reference                 value, connection,
//!              (every field, default, meaning)        pattern, properties (pure)
//! ```
//!
//! Every default lives in `schema`. A wrong value is refused with file, line, field and the nearest known name, before
//! anything is connected. No secret is ever printed: not by `Debug`, not in an error, not in the reference.
//! Each room takes its own slice (`&config::Kafka`), never the whole.

mod attributes;
mod connection;
pub mod debezium;
mod document;
mod error;
mod init;
mod join;
mod load;
mod pattern;
mod preset;
mod properties;
mod reference;
mod reload;
mod rewrite;
mod rules;
mod schema;
mod system;
mod value;
mod writeback;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cloudevents::ExtensionName;
use crate::contract::Contract;
use crate::template::Templates;
pub use debezium::Debezium;
pub use error::Error;
pub use init::{Asked, Plan};
pub use load::{DEFAULT_FILE, environment};
pub use preset::preset_words;
pub use reference::{reference, reference_markdown};
pub use system::{System, Topic};
pub use writeback::{StatusColumn, Writeback};

/// The whole configuration, valid by construction.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[postgres]`
    pub postgres: Postgres,
    /// `[[outbox]]`: never empty; without any block, the table `public.outbox`.
    pub outbox: Vec<Outbox>,
    /// `[kafka]`
    pub kafka: Kafka,
    /// `[[route]]` and `[registry]`
    pub rules: Rules,
    /// `[dead_letter]`
    pub dead_letter: DeadLetters,
    /// `[http]`
    pub http: Http,
    /// `log.level`, in the language of tracing's filters; over what the command line says.
    pub log: Option<String>,
    /// `[limits]`
    pub limits: Limits,
}

/// `[postgres]`: the source database, and what of it is ours.
#[derive(Debug, Clone)]
pub struct Postgres {
    /// `url`, with the secrets of `password`/`password_file` merged in.
    pub connection: Connection,
    /// `slot`
    pub slot: String,
    /// `publication`
    pub publication: String,
    /// `sender_timeout`: `wal_sender_timeout` of our connection; the lease is two thirds of it.
    pub sender_timeout: Duration,
}

/// Where PostgreSQL is and how to log in: a libpq URL, parsed.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Tried in order; the first that accepts read-write sessions wins.
    pub hosts: Vec<Host>,
    /// `user`; libpq's default (the operating system's user name) is already applied.
    pub user: String,
    /// From the URL, `password`, `password_file` or the environment.
    pub password: Option<Secret>,
    /// `dbname`; defaults to the user, as in libpq.
    pub dbname: String,
    /// `sslmode`
    pub sslmode: SslMode,
    /// `sslrootcert`; without it the system's trust store.
    pub sslrootcert: Option<PathBuf>,
    /// `sslcert` and `sslkey`, always both.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// `channel_binding=require` refuses plain SCRAM.
    pub channel_binding: ChannelBinding,
    /// `target_session_attrs`
    pub session_attrs: SessionAttrs,
    /// `application_name`, `outboxd` by default.
    pub application_name: String,
    /// `connect_timeout`, for each host, TLS and login included; 10 s by default.
    pub connect_timeout: Duration,
}

/// One address of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name or address, and a port.
    Tcp(String, u16),
    /// The directory of a Unix socket, and the port that names the file in it.
    Unix(PathBuf, u16),
}

/// libpq's `sslmode`, with libpq's meanings. `prefer` is the default, as in libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// libpq's `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ChannelBinding {
    Disable,
    Prefer,
    Require,
}

/// libpq's `target_session_attrs`, as far as a relay can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SessionAttrs {
    Any,
    ReadWrite,
}

/// One `[[outbox]]` block: a table or a message prefix, and which column plays which part.
#[derive(Debug, Clone)]
pub struct Outbox {
    /// `table` or `message_prefix`
    pub source: OutboxSource,
    /// `preset`
    pub preset: Preset,
    /// `columns`, over those of the preset.
    pub columns: Columns,
    /// `join`: where the payload is, if not in the events' own table.
    pub join: Option<Join>,
    /// `writeback`
    pub writeback: Option<Writeback>,
}

impl Outbox {
    /// An outbox like our own, with these columns.
    pub fn of(source: OutboxSource, columns: Columns) -> Outbox {
        Outbox { source, preset: Preset::Outboxd, columns, join: None, writeback: None }
    }

    /// The one that is meant by a table's name or a message prefix, as they are typed into the file.
    pub fn find<'a>(outboxes: &'a [Outbox], text: &str) -> Option<&'a Outbox> {
        let named = [load::table_name(text).ok(), Some(OutboxSource::MessagePrefix(text.to_owned()))];
        named.into_iter().flatten().find_map(|source| outboxes.iter().find(|outbox| outbox.source == source))
    }

    /// The table of its events, by schema and name; none for messages.
    pub fn own_table(&self) -> Option<(&str, &str)> {
        match &self.source {
            OutboxSource::Table { schema, name } => Some((schema, name)),
            OutboxSource::MessagePrefix(_) => None,
        }
    }

    /// The second table, which has the payloads.
    pub fn joined_table(&self) -> Option<(&str, &str)> {
        self.join.as_ref().map(|join| (join.schema.as_str(), join.table.as_str()))
    }

    /// All tables that it is read from.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own_table().into_iter().chain(self.joined_table())
    }
}

/// `join`: the second table, in which the payloads are. Both rows are written in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The schema of `table`, unquoted.
    pub schema: String,
    /// The name of `table`, unquoted.
    pub table: String,
    /// `on`: the column of the events' table that says which payload is theirs.
    pub event_column: String,
    /// `on`: the column of the payloads' table that it is compared with, as text.
    pub payload_column: String,
}

impl Join {
    /// What a column of the payloads' table is called where both rows stand together, as in a dead letter.
    pub fn qualified(&self, column: &str) -> String {
        format!("{}.{}.{column}", self.schema, self.table)
    }
}

/// Whose table it is, and so which record its rows become where no route says otherwise.
#[derive(Debug, Clone, Default)]
pub enum Preset {
    /// Our own.
    #[default]
    Outboxd,
    /// That of Debezium's outbox event router, with its options.
    Debezium(Box<Debezium>),
    /// That of another system.
    System(System),
}

/// Where an outbox's events are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxSource {
    /// `table = "schema.name"`; without a schema, `public`.
    Table {
        /// The schema's name, unquoted.
        schema: String,
        /// The table's name, unquoted.
        name: String,
    },
    /// `message_prefix = "outbox"`: transactional logical messages with this prefix.
    MessagePrefix(String),
}

/// As it is typed into the file.
impl fmt::Display for OutboxSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |name: &str| match name.contains(['.', '"']) {
            true => format!("\"{}\"", name.replace('"', "\"\"")),
            false => name.to_owned(),
        };
        match self {
            OutboxSource::Table { schema, name } => write!(f, "{}.{}", quoted(schema), quoted(name)),
            OutboxSource::MessagePrefix(prefix) => f.write_str(prefix),
        }
    }
}

/// Which column (or member of a logical message) plays which part.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The event's id: uuid, text or bigint. Always there, never NULL.
    pub id: String,
    /// What kind of thing the event is about.
    pub aggregate_type: Option<String>,
    /// Which thing the event is about.
    pub aggregate_id: Option<String>,
    /// What happened.
    pub event_type: Option<String>,
    /// The value's bytes.
    pub payload: String,
    /// The record's timestamp; `None`: the commit time.
    pub timestamp: Option<String>,
    /// A JSON object whose members become headers.
    pub headers: Option<String>,
    /// The record's partition; `None`: by the key.
    pub partition: Option<String>,
}

impl Columns {
    /// A table in which these two play a part, and no other column does.
    pub fn bare(id: &str, payload: &str) -> Columns {
        Columns {
            id: id.to_owned(),
            aggregate_type: None,
            aggregate_id: None,
            event_type: None,
            payload: payload.to_owned(),
            timestamp: None,
            headers: None,
            partition: None,
        }
    }

    /// The column that plays this part; none where no column does, or where it is no part's name.
    pub fn part(&self, name: &str) -> Option<&String> {
        match name {
            "id" => Some(&self.id),
            "payload" => Some(&self.payload),
            "aggregate_type" => self.aggregate_type.as_ref(),
            "aggregate_id" => self.aggregate_id.as_ref(),
            "event_type" => self.event_type.as_ref(),
            "timestamp" => self.timestamp.as_ref(),
            "headers" => self.headers.as_ref(),
            "partition" => self.partition.as_ref(),
            _ => None,
        }
    }

    /// The names of all columns that play a part.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let optional = [
            &self.aggregate_type,
            &self.aggregate_id,
            &self.event_type,
            &self.timestamp,
            &self.headers,
            &self.partition,
        ];
        [&self.id, &self.payload].into_iter().chain(optional.into_iter().flatten()).map(String::as_str)
    }
}

/// `[kafka]`: where the records go.
#[derive(Debug, Clone)]
pub struct Kafka {
    /// `brokers`
    pub brokers: String,
    /// `create_topics`: `None` (the default) waits for a missing topic.
    pub create_topics: Option<CreateTopics>,
    /// `properties`: librdkafka's own, checked against the ones that would break a promise. Values may be secrets.
    pub properties: BTreeMap<String, Secret>,
}

/// How a missing topic is created.
#[derive(Debug, Clone)]
pub struct CreateTopics {
    /// `partitions`
    pub partitions: i32,
    /// `replication`
    pub replication: i32,
    /// `config`
    pub config: BTreeMap<String, String>,
}

/// What turns rows into records: all that a reload may change of it.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// `[[route]]`: in the order typed; behind them stands the route that an outbox has by itself, which is not listed here.
    pub routes: Vec<Route>,
    /// `registry.unmatched`
    pub unmatched: Unmatched,
    /// `[templates]`, where a route names one.
    pub templates: Option<TemplateSet>,
}

/// The templates of all routes.
#[derive(Debug, Clone)]
pub struct TemplateSet {
    /// Compiled.
    pub templates: Arc<Templates>,
    /// The largest thing that one may write: `limits.event`.
    pub most: u64,
}

/// `[templates]`: where they are, and what bounds them. For whoever renders one without a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFiles {
    /// `directory`
    pub directory: PathBuf,
    /// `contexts`: IRI → file of the directory.
    pub contexts: BTreeMap<String, String>,
    /// `limits.event`
    pub most: u64,
}

/// What becomes of a row that no `[[route]]` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmatched {
    /// It goes where its outbox leads by itself.
    #[default]
    Default,
    /// It is parked.
    Reject,
}

/// One `[[route]]`: which rows, and the record they become. What is not set is as the row's outbox has it by itself.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// `outbox`: rows of this one only.
    pub outbox: Option<OutboxSource>,
    /// `match`: all must match.
    pub matches: Vec<(String, Match)>,
    /// `enabled`
    pub switch: Switch,
    /// `topic`
    pub topic: Option<Pattern>,
    /// `key`
    pub key: Option<Pattern>,
    /// `partition`
    pub partition: Option<Pattern>,
    /// `timestamp`
    pub timestamp: Option<Timestamp>,
    /// `default_headers`
    pub default_headers: Option<DefaultHeaders>,
    /// `headers`: name → pattern, beside the default ones.
    pub headers: Vec<(String, Pattern)>,
    /// `key_template`: the key's, instead of a pattern.
    pub key_template: Option<String>,
    /// `header_templates`: name → template, beside the other headers.
    pub header_templates: Vec<(String, String)>,
    /// `rewrite`: name → a value that patterns can show.
    pub rewrites: Vec<(String, Rewrite)>,
    /// `value`
    pub value: Option<ValueForm>,
    /// `tombstone`: without it, a row without a payload has no value only where that would be the payload.
    pub tombstone: Option<Tombstone>,
    /// `trace`: a column that holds a trace context.
    pub trace: Option<String>,
    /// `schema`: what the payload must be like.
    pub schema: Option<Arc<Contract>>,
    /// `aggregate_type`: what the row's must be.
    pub aggregate_type: Option<String>,
    /// `require`: parts and columns that must not be NULL.
    pub require: Vec<String>,
}

impl Route {
    /// True when every row of some outbox comes this far and no further.
    pub fn is_catch_all(&self) -> bool {
        self.matches.is_empty()
    }

    /// The templates that it names.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        let value = match &self.value {
            Some(ValueForm::Template(name)) => Some(name),
            Some(ValueForm::Payload | ValueForm::Envelope(_) | ValueForm::CloudEvents(..)) | None => None,
        };
        let headers = self.header_templates.iter().map(|(_, name)| name);
        value.into_iter().chain(&self.key_template).chain(headers).map(String::as_str)
    }

    /// The names of parts and columns that it reads, but for those that only templates name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.read_with(Pattern::names, Pattern::names).chain(self.matches.iter().map(|(name, _)| name.as_str()))
    }

    /// Of these, those that a table must have: no match fits what it lacks, a fallback stands there instead, and an event has no
    /// attribute of it.
    pub fn needs(&self) -> impl Iterator<Item = &str> {
        self.read_with(Pattern::needs, |_| Vec::new())
    }

    /// What it reads of each row that it fits; `optional` are attributes that a CloudEvent need not have.
    fn read_with<'a>(
        &'a self,
        of: fn(&'a Pattern) -> Vec<&'a str>,
        optional: fn(&'a Pattern) -> Vec<&'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let timestamp = match &self.timestamp {
            Some(Timestamp::Column(name)) => Some(name.as_str()),
            Some(Timestamp::Event | Timestamp::Commit | Timestamp::Now) | None => None,
        };
        let (envelope, attributes) = match &self.value {
            Some(ValueForm::Envelope(members)) => (members.as_slice(), None),
            Some(ValueForm::CloudEvents(_, attributes)) => (&[][..], Some(attributes)),
            Some(ValueForm::Payload | ValueForm::Template(_)) | None => (&[][..], None),
        };
        let attributes = attributes.into_iter().flat_map(move |attributes| {
            let CloudEvents { source, kind, subject, datacontenttype: _, dataschema, extensions } = attributes;
            let extensions = extensions.iter().map(|(_, pattern)| pattern);
            let optional = subject.iter().chain(dataschema).chain(extensions).flat_map(optional);
            [source, kind].into_iter().flat_map(of).chain(optional)
        });
        let patterns = [&self.topic, &self.key, &self.partition].into_iter().flatten();
        let shown = patterns.chain(self.headers.iter().map(|(_, pattern)| pattern)).flat_map(of).chain(attributes);
        // What is rewritten has a name of its own.
        let column = |name| match self.rewrites.iter().find(|(rewritten, _)| rewritten == name) {
            Some((_, rewrite)) => rewrite.column.as_str(),
            None => name,
        };
        shown
            .map(column)
            .chain(self.require.iter().map(String::as_str))
            .chain(self.trace.as_deref())
            .chain(self.aggregate_type.iter().map(|_| "aggregate_type"))
            .chain(envelope.iter().map(|(_, column)| column.as_str()))
            .chain(timestamp)
    }
}

/// Whether a route publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// It does.
    #[default]
    On,
    /// What it matches is parked until it does.
    Off,
}

/// What a column's text must be.
#[derive(Debug, Clone)]
pub enum Match {
    /// This, to the letter.
    Is(String),
    /// Literals with `*` between them, which stands for any run of characters.
    Glob(String),
    /// Found anywhere in it.
    Regex(regex::bytes::Regex),
    /// One of these.
    Any(Vec<Match>),
}

/// A column's value with a part of it replaced.
#[derive(Debug, Clone)]
pub struct Rewrite {
    /// The part or column that is read.
    pub column: String,
    /// What is replaced, where it is found first.
    pub regex: regex::bytes::Regex,
    /// What with: `$1` and `${name}` stand for its groups.
    pub with: String,
}

/// Where a record's timestamp comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timestamp {
    /// The outbox's timestamp column; the commit time when it is NULL or there is none.
    Event,
    /// The commit time.
    Commit,
    /// When it is sent.
    Now,
    /// This column; the commit time when it is NULL.
    Column(String),
}

/// What a record's value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueForm {
    /// The payload, byte for byte.
    Payload,
    /// A JSON object with the payload and these columns beside it: member → part or column.
    Envelope(Vec<(String, String)>),
    /// A CloudEvent.
    CloudEvents(ContentMode, CloudEvents),
    /// What this template makes of the row.
    Template(String),
}

/// How a CloudEvent travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentMode {
    /// Attributes are headers, the value is the payload.
    Binary,
    /// Attributes and payload are one JSON document.
    Structured,
}

/// `cloudevents`: the attributes beside `id` and `time`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudEvents {
    /// `source`
    pub source: Pattern,
    /// `type`
    pub kind: Pattern,
    /// `subject`
    pub subject: Option<Pattern>,
    /// `datacontenttype`
    pub datacontenttype: Option<String>,
    /// `dataschema`
    pub dataschema: Option<Pattern>,
    /// `extensions`: name → pattern.
    pub extensions: Vec<(ExtensionName, Pattern)>,
}

/// Which payload is a record without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstone {
    /// NULL.
    Null,
    /// NULL, and text of nothing but blanks.
    Empty,
}

/// Which headers a record has without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultHeaders {
    /// `id`, `type`, `aggregate_type`, `aggregate_id` and `lsn`.
    #[default]
    All,
    /// `id`, which consumers need to recognise a repeat.
    Id,
    /// None: not even the members of the row's own headers.
    None,
}

/// Text with `{column}` places; `{{` and `}}` stand for the braces themselves.
///
/// A name is that of a part (`id`, `aggregate_type`, …) or, when no part has it, of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The pieces in order; two neighbouring literals never occur.
    pub pieces: Vec<Piece>,
}

/// One piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as typed.
    Literal(String),
    /// The named column's text.
    Column(String),
    /// The same or, where that is NULL or missing, what stands behind it.
    Fallback(String, Pattern),
}

impl Pattern {
    /// Where events go that no route names a topic for.
    pub fn default_topic() -> Pattern {
        let pieces = vec![Piece::Literal("outbox.event.".to_owned()), Piece::Column("aggregate_type".to_owned())];
        Pattern { pieces }
    }

    /// One column's text.
    pub fn column(name: &str) -> Pattern {
        Pattern { pieces: vec![Piece::Column(name.to_owned())] }
    }

    /// The names of the parts and columns that it shows.
    pub fn names(&self) -> Vec<&str> {
        self.collect(|name, otherwise| [vec![name], otherwise.names()].concat())
    }

    /// Of these, those in whose place nothing else stands.
    pub fn needs(&self) -> Vec<&str> {
        self.collect(|_, otherwise| otherwise.needs())
    }

    fn collect<'a>(&'a self, of_fallback: impl Fn(&'a str, &'a Pattern) -> Vec<&'a str>) -> Vec<&'a str> {
        let names = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(_) => Vec::new(),
            Piece::Column(name) => vec![name.as_str()],
            Piece::Fallback(name, otherwise) => of_fallback(name, otherwise),
        });
        names.flatten().collect()
    }
}

/// The partition that a text names: none when it is no number, or one below 0.
pub(crate) fn partition_number(text: &str) -> Option<i32> {
    text.parse::<i32>().ok().filter(|number| *number >= 0)
}

/// `[dead_letter]`: what happens to an event that cannot be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetters {
    /// `store`, and `topic` where that is Kafka.
    pub store: Store,
    /// `unknown_topic`
    pub unknown_topic: UnknownTopic,
    /// `max_attempts`: the first time included.
    pub max_attempts: u32,
    /// `backoff`
    pub backoff: Backoff,
    /// `order`
    pub order: Order,
    /// `max_parked_keys`
    pub max_parked_keys: usize,
    /// `max_rate`, in percent.
    pub max_rate: u64,
    /// `retention`
    pub retention: Duration,
}

/// Where dead letters are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// In schema `outboxd` of the source database.
    Postgres,
    /// In this topic, where they can only be read.
    Kafka(String),
}

/// What becomes of an event whose topic does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownTopic {
    /// It waits for the topic.
    Wait,
    /// It is parked, when the topic was never seen.
    Park,
}

/// What becomes of later events with the key of a parked one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// They are published.
    Skip,
    /// They are parked behind it.
    ParkKey,
}

/// The pauses between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// `first`
    pub first: Duration,
    /// `factor`
    pub factor: u32,
    /// `max`
    pub max: Duration,
}

impl Backoff {
    /// The longest pause after so many attempts, before chance shortens it.
    pub fn pause(&self, attempts: u32) -> Duration {
        let factor = self.factor.saturating_pow(attempts.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// `[http]`: health and metrics.
#[derive(Debug, Clone)]
pub struct Http {
    /// `listen`; loopback by default.
    pub listen: SocketAddr,
}

/// `[limits]`: every queue, batch and wait.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `memory`: bytes of records in flight, headers and overhead included; 32 MiB.
    pub memory: u64,
    /// `window`: tickets from the oldest open to the newest; 100000.
    pub window: usize,
    /// `event`: the largest row; 16 MiB.
    pub event: u64,
    /// `join`: rows of one transaction that wait for their payload, or for their event; 10000.
    pub join: usize,
    /// `settle`: how long in-flight records may take to be answered after a failed delivery; 30 s.
    pub settle: Duration,
    /// `shutdown`: how long SIGTERM may take; 25 s.
    pub shutdown: Duration,
    /// `primary_grace`: how long a primary that shuts down waits for us; 5 s.
    pub primary_grace: Duration,
    /// `backoff`: the longest pause between two tries to connect; 2 s.
    pub backoff: Duration,
    /// `probe`: how often a fresh SQL connection asks how the database is; 5 s.
    pub probe: Duration,
    /// `sql`: how long one SQL statement of ours may take; 10 s.
    pub sql: Duration,
    /// `slot_creation`: how long `init` waits for the slot; 60 s.
    pub slot_creation: Duration,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps text that must not be shown.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for whoever must send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
