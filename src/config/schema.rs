//! The one source of truth: every section and field with its kind, bounds, default and meaning.
//!
//! `document` refuses what is not here, `load` takes its defaults and bounds from here, `reference` prints it.

/// One section of the file.
#[derive(Debug)]
pub(super) struct Section {
    pub name: &'static str,
    pub shape: Shape,
    pub meaning: &'static str,
    pub fields: &'static [Field],
}

/// How often a section may stand in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `[name]`
    Once,
    /// `[[name]]`
    Many,
}

/// One field of a section, or of a table inside it.
#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Initial,
    pub meaning: &'static str,
}

/// What a field may hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// Text that is never printed.
    Secret,
    /// The path of a file.
    File,
    /// With the least and the most.
    Duration(&'static str, &'static str),
    /// With the least and the most.
    Size(&'static str, &'static str),
    /// With the least and the most.
    Integer(i64, i64),
    Address,
    Pattern,
    Boolean,
    /// Texts.
    List,
    /// A table whose members are fields.
    Table(&'static [Field]),
    /// A table whose members the user names; what each holds.
    Map(&'static str),
}

/// What holds when a field is not set. Texts are TOML.
#[derive(Debug, Clone, Copy)]
pub(super) enum Initial {
    /// Must be set, for example like this.
    Required(&'static str),
    /// Not set, and could be set like this.
    Unset(&'static str),
    /// This value.
    Is(&'static str),
}

impl Kind {
    /// What the reference calls it.
    pub fn name(self) -> String {
        match self {
            Kind::Text => "text".into(),
            Kind::Secret => "text, secret".into(),
            Kind::File => "file".into(),
            Kind::Duration(min, max) => format!("duration, {min} to {max}"),
            Kind::Size(min, max) => format!("size, {min} to {max}"),
            Kind::Integer(min, max) => format!("integer, {min} to {max}"),
            Kind::Address => "address".into(),
            Kind::Pattern => "pattern".into(),
            Kind::Boolean => "true or false".into(),
            Kind::List => "list of texts".into(),
            Kind::Table(_) => "table".into(),
            Kind::Map(holds) => format!("table, name = {holds}"),
        }
    }
}

impl Initial {
    /// The value that holds when nothing is typed.
    pub fn value(self) -> Option<&'static str> {
        match self {
            Initial::Is(toml) => Some(toml),
            Initial::Required(_) | Initial::Unset(_) => None,
        }
    }

    /// A value for the reference to show.
    pub fn shown(self) -> &'static str {
        match self {
            Initial::Is(toml) | Initial::Required(toml) | Initial::Unset(toml) => toml,
        }
    }
}

/// The section of that name.
pub(super) fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// The names of fields, for suggestions.
pub(super) fn names(fields: &'static [Field]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

const fn field(name: &'static str, kind: Kind, default: Initial, meaning: &'static str) -> Field {
    Field { name, kind, default, meaning }
}

use self::Initial::{Is, Required, Unset};

pub(super) static SECTIONS: [Section; 10] = [
    Section {
        name: "postgres",
        shape: Shape::Once,
        meaning: "The source database, and what of it is ours.",
        fields: &POSTGRES,
    },
    Section {
        name: "outbox",
        shape: Shape::Many,
        meaning: "One block per outbox table or logical-message prefix. Without any block: the table public.outbox.",
        fields: &OUTBOX,
    },
    Section { name: "kafka", shape: Shape::Once, meaning: "Where the records go.", fields: &KAFKA },
    Section {
        name: "route",
        shape: Shape::Many,
        meaning: "Which record a row becomes. The first route that matches wins; behind them all stands one that \
                  matches every row, with the defaults below.",
        fields: &ROUTE,
    },
    Section {
        name: "registry",
        shape: Shape::Once,
        meaning: "Which events are known: the routes say what each must be.",
        fields: &REGISTRY,
    },
    Section { name: "templates", shape: Shape::Once, meaning: "The templates that routes name.", fields: &TEMPLATES },
    Section {
        name: "dead_letter",
        shape: Shape::Once,
        meaning: "What happens to an event that cannot be published.",
        fields: &DEAD_LETTER,
    },
    Section { name: "http", shape: Shape::Once, meaning: "Health and metrics.", fields: &HTTP },
    Section { name: "log", shape: Shape::Once, meaning: "What is logged.", fields: &LOG },
    Section {
        name: "limits",
        shape: Shape::Once,
        meaning: "Every queue, batch and wait has its bound here.",
        fields: &LIMITS,
    },
];

static POSTGRES: [Field; 6] = [
    field(
        "url",
        Kind::Secret,
        Required(r#""postgres://outboxd@db1,db2/app?sslmode=verify-full""#),
        "Where PostgreSQL is: a libpq URL or keyword/value string. Several hosts are tried in order, for failover.",
    ),
    field(
        "password",
        Kind::Secret,
        Unset(r#""…""#),
        "The role's password; better given by password_file or OUTBOXD_POSTGRES__PASSWORD.",
    ),
    field(
        "password_file",
        Kind::File,
        Unset(r#""/run/secrets/pg""#),
        "A file that holds the password; a line break at its end is dropped.",
    ),
    field(
        "slot",
        Kind::Text,
        Is(r#""outboxd""#),
        "The replication slot: the relay's place in the WAL. One per relay; a-z, 0-9 and _, at most 63.",
    ),
    field("publication", Kind::Text, Is(r#""outboxd""#), "The publication that holds the outbox tables."),
    field(
        "sender_timeout",
        Kind::Duration("1s", "1d"),
        Is(r#""30s""#),
        "wal_sender_timeout of our connection: after this long without an answer the server gives the slot away. \
         The relay stops publishing after two thirds of it.",
    ),
];

static OUTBOX: [Field; 7] = [
    field(
        "table",
        Kind::Text,
        Is(r#""public.outbox""#),
        "The table, as schema.name (public without a schema); the exact names, a name with a dot in double quotes. \
         Either this or message_prefix.",
    ),
    field(
        "message_prefix",
        Kind::Text,
        Unset(r#""outbox""#),
        "The prefix of transactional logical messages (pg_logical_emit_message) that are events. The prefix outboxd \
         is reserved.",
    ),
    field(
        "preset",
        Kind::Text,
        Is(r#""outboxd""#),
        "Whose table it is: \"outboxd\", \"debezium\", \"quarkus\", or the word of another system, such as \"eventuate\" or \"cap\" \
         (presets.md has them all). It says which columns there are and which record a row becomes, where columns and routes say nothing \
         else; for \"quarkus\" and another system's, also which table, where none is named.",
    ),
    field(
        "debezium",
        Kind::Map("text, true or false"),
        Unset(r#"{ "table.fields.additional.placement" = "type:header:eventType" }"#),
        "With preset = \"debezium\": options of Debezium's outbox event router, its converters and what else changes its records, under \
         Debezium's own names.",
    ),
    field(
        "columns",
        Kind::Table(&COLUMNS),
        Unset(""),
        "Which column (or member of a logical message) plays which part. An empty name says that there is none.",
    ),
    field(
        "join",
        Kind::Table(&JOIN),
        Unset(""),
        "A second table that holds the payloads: columns.payload is a column of it, and so is every further column that a route names \
         and the first table does not have. Both rows are inserted in one transaction, in either order.",
    ),
    field(
        "writeback",
        Kind::Table(&WRITEBACK),
        Unset(""),
        "Columns of the table that say what became of a row. When not set, the relay writes nothing into the table. A row counts \
         for the slot's position only once this is committed.",
    ),
];

static JOIN: [Field; 2] = [
    field("table", Kind::Text, Required(r#""public.payloads""#), "The table of payloads, written as table above."),
    field(
        "on",
        Kind::Text,
        Required(r#""payload_id""#),
        "The column that both tables have, or \"column of the events = column of the payloads\". Values are compared as text.",
    ),
];

static WRITEBACK: [Field; 6] = [
    field(
        "column",
        Kind::Text,
        Unset(r#""published_at""#),
        "A timestamp column, set to the server's time when the row is published. This or status, or both.",
    ),
    field(
        "status",
        Kind::Text,
        Unset(r#""status""#),
        "A column that holds a word, a number or a boolean for each outcome.",
    ),
    field("published", Kind::Text, Unset(r#""SENT""#), "What status is set to when the row is published."),
    field(
        "rejected",
        Kind::Text,
        Unset(r#""FAILED""#),
        "What status is set to when the row cannot be published; without it, a rejected row keeps what it has.",
    ),
    field(
        "attempts",
        Kind::Text,
        Unset(r#""attempts""#),
        "A number: how often the row was tried and rejected. A larger one is left as it is.",
    ),
    field(
        "error",
        Kind::Text,
        Unset(r#""last_error""#),
        "A text: why the row was rejected last. Emptied when the row is published.",
    ),
];

static COLUMNS: [Field; 8] = [
    field("id", Kind::Text, Is(r#""id""#), "The event's id: uuid, text or bigint. Always there, never NULL."),
    field("aggregate_type", Kind::Text, Is(r#""aggregate_type""#), "What kind of thing the event is about."),
    field("aggregate_id", Kind::Text, Is(r#""aggregate_id""#), "Which thing the event is about."),
    field("event_type", Kind::Text, Is(r#""event_type""#), "What happened."),
    field("payload", Kind::Text, Is(r#""payload""#), "The record's value, byte for byte. Always there."),
    field("timestamp", Kind::Text, Is(r#""created_at""#), "The record's timestamp; without it, the commit time."),
    field("headers", Kind::Text, Is(r#""headers""#), "A JSON object whose members become headers."),
    field("partition", Kind::Text, Unset(r#""partition""#), "The record's partition; without it, by the key."),
];

static KAFKA: [Field; 3] = [
    field("brokers", Kind::Text, Required(r#""kafka-1:9092,kafka-2:9092""#), "The brokers to ask first, host:port."),
    field(
        "create_topics",
        Kind::Table(&CREATE_TOPICS),
        Unset(""),
        "How a missing topic is created. When not set, none is created: the relay waits for it and says so.",
    ),
    field(
        "properties",
        Kind::Map("text or { file = path }"),
        Unset(r#"{ "security.protocol" = "SASL_SSL", "compression.type" = "zstd" }"#),
        "Any librdkafka property; those that would break a promise are refused. Names in quotes.",
    ),
];

static CREATE_TOPICS: [Field; 3] = [
    field("partitions", Kind::Integer(1, 100_000), Required("6"), "How many partitions a new topic has."),
    field("replication", Kind::Integer(1, 1000), Required("3"), "How many brokers hold each of them."),
    field("config", Kind::Map("text"), Unset("{}"), "The topic's own settings, for example \"retention.ms\"."),
];

static ROUTE: [Field; 21] = [
    field(
        "match",
        Kind::Map("glob, list of globs, { is = text } or { regex = text }"),
        Unset(r#"{ event_type = "order.*" }"#),
        "Which rows: part or column = glob (* is any run of characters, and all else stands for itself); all must match. A list matches when one of it does; a \
         regex is looked for anywhere in the text. When not set: every row.",
    ),
    field("outbox", Kind::Text, Unset(r#""public.outbox""#), "Rows of this table or message_prefix only."),
    field(
        "enabled",
        Kind::Boolean,
        Is("true"),
        "A route that is switched off publishes nothing: what it matches is parked as switched_off, and published when a \
         reload or restart has switched it on.",
    ),
    field("topic", Kind::Pattern, Is(r#""outbox.event.{aggregate_type}""#), "The record's topic."),
    field(
        "key",
        Kind::Pattern,
        Is(r#""{id}""#),
        "The record's key. Events keep their order per key: {aggregate_id} keeps the order within an aggregate, \
         {id} keeps none.",
    ),
    field(
        "partition",
        Kind::Pattern,
        Unset(r#""{shard|0}""#),
        "The record's partition; without it the outbox's partition column, and without that by the key.",
    ),
    field(
        "timestamp",
        Kind::Text,
        Is(r#""event""#),
        "The record's timestamp: \"event\" for the outbox's timestamp column, and the commit time where that is NULL; \"commit\" \
         for the commit time; \"now\" for when it is sent; or \"{column}\".",
    ),
    field(
        "default_headers",
        Kind::Text,
        Is(r#""all""#),
        "Which headers a record has without being asked: \"all\" for id, type, aggregate_type, aggregate_id, lsn and the members of \
         the row's own headers; \"id\" for id and those members, which costs less; \"none\".",
    ),
    field("headers", Kind::Map("pattern"), Unset(r#"{ tenant = "{tenant_id}" }"#), "Headers beside the default ones."),
    field(
        "template",
        Kind::Text,
        Unset(r#""order-v2""#),
        "A template that renders the value: order-v2.j2 in templates.directory. Instead of value.",
    ),
    field("key_template", Kind::Text, Unset(r#""order-key""#), "A template that renders the key. Instead of key."),
    field(
        "header_templates",
        Kind::Map("template"),
        Unset(r#"{ total = "order-total" }"#),
        "Headers that templates render, beside the other ones.",
    ),
    field(
        "rewrite",
        Kind::Map("{ column = name, regex = text, with = text }"),
        Unset(r#"{ domain = { column = "aggregate_type", regex = "Event$", with = "" } }"#),
        "Values for patterns: {domain} is then the column's text with what the regex finds first replaced; $1 and ${name} stand for \
         its groups. Text in which it finds nothing stays as it is.",
    ),
    field(
        "value",
        Kind::Text,
        Is(r#""payload""#),
        "The record's value: \"payload\", byte for byte; \"envelope\", a JSON object with the payload and other columns; \
         \"cloudevents-binary\" or \"cloudevents-structured\", a CloudEvent 1.0.",
    ),
    field(
        "cloudevents",
        Kind::Table(&CLOUDEVENTS),
        Unset(""),
        "The attributes of a CloudEvent beside id, which is the event's, and time: the record's timestamp, and the outbox's own where that is \
         when it is sent.",
    ),
    field(
        "envelope",
        Kind::Map("part or column"),
        Unset(r#"{ type = "event_type", tenant = "tenant_id" }"#),
        "With value = \"envelope\": the members beside payload.",
    ),
    field(
        "tombstone",
        Kind::Text,
        Unset(r#""empty""#),
        "Which payload makes a record without a value: \"null\", or \"empty\" for text of nothing but blanks as well. When not set, a \
         NULL is published as no value where the value is the payload, and without data or as null in every other form.",
    ),
    field(
        "trace",
        Kind::Text,
        Unset(r#""tracingspancontext""#),
        "A column that holds a W3C trace context: a traceparent, properties or a JSON object. It becomes the headers traceparent, \
         tracestate and baggage.",
    ),
    field(
        "schema",
        Kind::File,
        Unset(r#""schemas/order.json""#),
        "A JSON Schema (2020-12 or draft-07) that the payload must fit; else the event is parked, with the path in the payload.",
    ),
    field(
        "aggregate_type",
        Kind::Text,
        Unset(r#""order""#),
        "What the event's aggregate type must be; else the event is parked.",
    ),
    field(
        "require",
        Kind::List,
        Unset(r#"["payload", "tenant_id"]"#),
        "Parts and columns that must not be NULL; else the event is parked.",
    ),
];

static CLOUDEVENTS: [Field; 6] = [
    field("source", Kind::Pattern, Is(r#""/{aggregate_type}""#), "Where it happened: a URI reference."),
    field("type", Kind::Pattern, Is(r#""{event_type}""#), "What happened."),
    field(
        "subject",
        Kind::Pattern,
        Is(r#""{aggregate_id}""#),
        "What it is about; left out where a column of it is NULL.",
    ),
    field("datacontenttype", Kind::Text, Is(r#""application/json""#), "The payload's media type; empty for none."),
    field(
        "dataschema",
        Kind::Pattern,
        Unset(r#""https://shop.example/order.json""#),
        "The payload's schema: an absolute URI.",
    ),
    field(
        "extensions",
        Kind::Map("pattern"),
        Unset(r#"{ tenant = "{tenant_id}" }"#),
        "Further attributes; left out where a column of them is NULL.",
    ),
];

static REGISTRY: [Field; 1] = [field(
    "unmatched",
    Kind::Text,
    Is(r#""default""#),
    "An event that no [[route]] matches: \"default\" lets it go where its outbox leads, \"reject\" parks it.",
)];

static TEMPLATES: [Field; 2] = [
    field(
        "directory",
        Kind::File,
        Is(r#""templates""#),
        "Where they are: a template's name is its file's without .j2. They can include each other, and nothing else.",
    ),
    field(
        "contexts",
        Kind::Map("file"),
        Unset(r#"{ "https://schema.org/" = "schema.jsonld" }"#),
        "Which file of the directory stands for the IRI of a JSON-LD context. Others are never fetched.",
    ),
];

static DEAD_LETTER: [Field; 9] = [
    field(
        "store",
        Kind::Text,
        Is(r#""postgres""#),
        "Where dead letters are kept: \"postgres\", in schema outboxd of the source database; or \"kafka\", in a topic, where \
         they can only be read: no attempts, no park-key, no retry.",
    ),
    field("topic", Kind::Text, Is(r#""outboxd.dead-letters""#), "The topic of dead letters, for store = \"kafka\"."),
    field(
        "unknown_topic",
        Kind::Text,
        Is(r#""wait""#),
        "An event whose topic does not exist: \"wait\" for the topic, or \"park\" the event when the relay has never seen \
         that topic.",
    ),
    field(
        "max_attempts",
        Kind::Integer(1, 1_000_000),
        Is("25"),
        "How often an event is tried, the first time included, before its letter waits for a person.",
    ),
    field(
        "backoff",
        Kind::Table(&BACKOFF),
        Unset(""),
        "The pauses between attempts; up to half of each is left to chance.",
    ),
    field(
        "order",
        Kind::Text,
        Is(r#""skip""#),
        "What becomes of later events with the key of a parked one: \"skip\" publishes them, so that the parked one may \
         arrive after them; \"park-key\" parks them behind it.",
    ),
    field(
        "max_parked_keys",
        Kind::Integer(1, 10_000_000),
        Is("10000"),
        "With order = \"park-key\": how many keys may be parked. When one more would be, the relay pauses.",
    ),
    field(
        "max_rate",
        Kind::Integer(1, 100),
        Is("20"),
        "In percent: when more than so many of the latest events are rejected, and at least 100 of them, the relay pauses \
         instead of parking the day. 100 never pauses.",
    ),
    field(
        "retention",
        Kind::Duration("1h", "3650d"),
        Is(r#""7d""#),
        "How long letters that were delivered or discarded are kept.",
    ),
];

static BACKOFF: [Field; 3] = [
    field("first", Kind::Duration("100ms", "1d"), Is(r#""1s""#), "The pause after the first attempt."),
    field("factor", Kind::Integer(1, 100), Is("2"), "Each pause is so many times the one before."),
    field("max", Kind::Duration("100ms", "30d"), Is(r#""1h""#), "The longest pause."),
];

static HTTP: [Field; 1] = [field(
    "listen",
    Kind::Address,
    Is(r#""127.0.0.1:9187""#),
    "Where /healthz, /readyz and /metrics answer. Loopback unless told otherwise.",
)];

static LOG: [Field; 1] = [field(
    "level",
    Kind::Text,
    Unset(r#""outboxd=debug""#),
    "What is logged, as --log takes it. It weighs more than the command line, and changes with a reload.",
)];

static LIMITS: [Field; 11] = [
    field(
        "memory",
        Kind::Size("1MiB", "1024GiB"),
        Is(r#""32MiB""#),
        "What records in flight take of memory, overhead included: twice their bytes, 800 for each, 250 for each header. One \
         that takes more than all of it passes alone.",
    ),
    field(
        "window",
        Kind::Integer(1, 10_000_000),
        Is("100000"),
        "Events from the oldest unanswered to the newest: what one stuck partition can hold up.",
    ),
    field("event", Kind::Size("1KiB", "1GiB"), Is(r#""16MiB""#), "The largest row; at most limits.memory."),
    field(
        "join",
        Kind::Integer(1, 10_000_000),
        Is("10000"),
        "With outbox.join: rows of one transaction that may wait, events for their payloads and payloads for their events, each so \
         many. Together they take at most limits.memory once more, 400 bytes for each counted beside its own. An event whose payload is not among them is parked.",
    ),
    field(
        "settle",
        Kind::Duration("100ms", "1d"),
        Is(r#""30s""#),
        "How long records in flight may take to be answered after a failed delivery.",
    ),
    field(
        "shutdown",
        Kind::Duration("100ms", "1d"),
        Is(r#""25s""#),
        "How long SIGTERM may take to settle what is in flight.",
    ),
    field(
        "primary_grace",
        Kind::Duration("100ms", "1d"),
        Is(r#""5s""#),
        "How long a primary that shuts down waits for us, even when Kafka is down.",
    ),
    field(
        "backoff",
        Kind::Duration("100ms", "1d"),
        Is(r#""2s""#),
        "The longest pause between two tries to connect, and before a producer that failed is replaced again.",
    ),
    field(
        "probe",
        Kind::Duration("100ms", "1d"),
        Is(r#""5s""#),
        "How often a fresh SQL connection asks how the database is.",
    ),
    field("sql", Kind::Duration("100ms", "1d"), Is(r#""10s""#), "How long one SQL statement of ours may take."),
    field(
        "slot_creation",
        Kind::Duration("100ms", "1d"),
        Is(r#""60s""#),
        "How long init waits for the slot: its creation waits for every open transaction.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeValue;

    fn check(path: &str, fields: &'static [Field]) {
        for field in fields {
            let path = format!("{path}.{}", field.name);
            assert!(field.meaning.ends_with('.'), "{path}: a meaning is a sentence");
            match field.kind {
                Kind::Table(members) => check(&path, members),
                _ => assert!(DeValue::parse(field.default.shown()).is_ok(), "{path}: {:?}", field.default),
            }
        }
    }

    #[test]
    fn every_field_has_a_meaning_and_a_value_that_is_toml() {
        for section in &SECTIONS {
            check(section.name, section.fields);
        }
    }
}
