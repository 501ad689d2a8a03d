//! The connector's options that no other file here takes, by a table: what becomes of each, and why.

use super::input::Form;
use super::settings::Setting;
use super::{Finding, History, Work, router};

/// What becomes of an option.
enum Fate {
    /// There is nothing to set.
    NotNeeded(&'static str),
    /// outboxd does it otherwise, and nothing is lost.
    Differs(&'static str),
    /// Nothing to say for these values; for any other it differs.
    DiffersUnless(&'static [&'static str], &'static str),
    /// It has no counterpart.
    Lost(&'static str),
    /// Nothing to say for these values; any other is lost.
    LostUnless(&'static [&'static str], &'static str),
}

use Fate::{Differs, DiffersUnless, Lost, LostUnless, NotNeeded};

const TUNING: &str = "tuning: [limits] bounds every queue and wait";
const SNAPSHOT: &str = "outboxd takes no snapshots";
const CHANGES: &str = "concerns topics of changes, which outboxd does not make";
const POSITION: &str = "the slot alone keeps the position";
const RETRY: &str = "outboxd tries again for as long as it takes";
const WATCHED: &str = "outboxd has metrics and a status of its own";
const DRIVER: &str = "tuning of the JDBC driver";

/// A name that ends in `*` covers all that start so; the first that covers holds.
static OPTIONS: &[(&str, Fate)] = &[
    // Kafka Connect's own.
    ("tasks.max", NotNeeded("one relay reads a slot")),
    ("tasks.max.enforce", NotNeeded("one relay reads a slot")),
    ("connector.plugin.version", NotNeeded("there is no plugin")),
    ("config.action.reload", NotNeeded("outboxd reads secrets when it starts")),
    (
        "errors.tolerance",
        DiffersUnless(&["none"], "a record that fails is dropped by Connect; outboxd parks it as a dead letter"),
    ),
    ("errors.*", NotNeeded(RETRY)),
    ("exactly.once.support", LostUnless(&["requested"], "outboxd delivers at least once")),
    ("transaction.boundary*", NotNeeded("outboxd sends without transactions")),
    ("offsets.storage.topic", NotNeeded(POSITION)),
    ("topic.creation.*", NotNeeded("belongs to no group that is in use")),
    // The connection.
    ("database.sslfactory", Lost("a Java class has no counterpart; sslmode and sslrootcert say whom to trust")),
    ("database.sslpassword", Lost("outboxd reads keys without a password: decrypt it, readable by outboxd alone")),
    (
        "database.initial.statements",
        Lost("outboxd runs no statements of yours: alter role … set … does it for every session"),
    ),
    ("database.ssl", NotNeeded("sslmode says it")),
    ("database.tcpKeepAlive", NotNeeded(DRIVER)),
    ("database.connection.timeout.ms", NotNeeded(DRIVER)),
    ("database.query.timeout.ms", NotNeeded(DRIVER)),
    ("database.connection.factory.class", NotNeeded(DRIVER)),
    ("database.history*", NotNeeded("a PostgreSQL connector has none")),
    ("schema.history.internal*", NotNeeded("a PostgreSQL connector has none")),
    ("database.socketTimeout", NotNeeded(DRIVER)),
    ("database.loginTimeout", NotNeeded(DRIVER)),
    ("database.currentSchema", NotNeeded(DRIVER)),
    ("driver.*", NotNeeded(DRIVER)),
    ("connection.validation.timeout.ms", NotNeeded(DRIVER)),
    ("query.fetch.size", NotNeeded(DRIVER)),
    ("read.only", NotNeeded("outboxd writes to its own schema only")),
    // Slot, publication, position.
    (
        "slot.drop.on.stop",
        LostUnless(
            &["false"],
            "Debezium drops the slot when it stops, and with it the position: set it to false before",
        ),
    ),
    (
        "slot.failover",
        NotNeeded("outboxd init makes failover slots from PostgreSQL 17 on; one that is taken over stays as it is"),
    ),
    ("slot.stream.params", LostUnless(&[""], "outboxd says itself what the server is to send")),
    ("slot.max.retries", NotNeeded(RETRY)),
    ("slot.retry.delay.ms", NotNeeded(RETRY)),
    ("slot.seek.to.known.offset.on.start", NotNeeded(POSITION)),
    ("internal.slot.seek.to.known.offset.on.start", NotNeeded(POSITION)),
    ("create.slot.command.timeout", NotNeeded("limits.slot_creation says how long outboxd init waits")),
    (
        "offset.mismatch.strategy",
        DiffersUnless(&["trust_slot"], "outboxd has no position of its own: the slot's always holds"),
    ),
    (
        "lsn.flush.mode",
        LostUnless(
            &["connector", "connector_and_driver"],
            "somebody else confirms positions; outboxd confirms what is acknowledged, which moves the slot",
        ),
    ),
    (
        "flush.lsn.source",
        LostUnless(
            &["true"],
            "somebody else confirms positions; outboxd confirms what is acknowledged, which moves the slot",
        ),
    ),
    ("lsn.flush.timeout.*", NotNeeded(TUNING)),
    ("status.update.interval.ms", NotNeeded("postgres.sender_timeout says it")),
    ("xmin.fetch.interval.ms", NotNeeded(POSITION)),
    ("publish.via.partition.root", NotNeeded("a property of the publication, which stays as it is")),
    ("replica.identity.autoset.values", NotNeeded("inserts need no replica identity")),
    ("offset.*", NotNeeded(POSITION)),
    // Which changes.
    ("table.exclude.list", NotNeeded("the tables that are read are named")),
    ("table.blacklist", NotNeeded("the tables that are read are named")),
    ("table.ignore.builtin", NotNeeded("the tables that are read are named")),
    ("schema.include.list", NotNeeded("the tables that are read are named")),
    ("schema.exclude.list", NotNeeded("the tables that are read are named")),
    ("schema.whitelist", NotNeeded("the tables that are read are named")),
    ("schema.blacklist", NotNeeded("the tables that are read are named")),
    ("database.include.list", NotNeeded("a slot belongs to one database")),
    ("database.exclude.list", NotNeeded("a slot belongs to one database")),
    ("column.mask.*", Lost("columns are published as they are")),
    ("column.truncate.*", Lost("columns are published as they are")),
    ("column.propagate.source.type", NotNeeded("there are no schemas to add it to")),
    ("datatype.propagate.source.type", NotNeeded("there are no schemas to add it to")),
    ("tombstones.on.delete", NotNeeded("the outbox router drops them")),
    ("skip.messages.without.change", NotNeeded("an insert always is a change")),
    ("message.key.columns", NotNeeded("the outbox router makes the key")),
    (
        "message.prefix.include.list",
        Lost(
            "Debezium publishes these logical messages to its own topic; an [[outbox]] with message_prefix publishes them as events",
        ),
    ),
    (
        "message.prefix.exclude.list",
        NotNeeded("outboxd publishes logical messages only when an [[outbox]] names their prefix"),
    ),
    ("schema.refresh.mode", NotNeeded("the stream itself says what a table looks like")),
    (
        "include.unknown.datatypes",
        DiffersUnless(&["false"], "columns of types that Debezium does not know are read as text"),
    ),
    ("unavailable.value.placeholder", NotNeeded("an insert always has all its values")),
    ("toasted.value.placeholder", NotNeeded("an insert always has all its values")),
    ("money.fraction.digits", LostUnless(&["2"], "money is written with two digits")),
    // Snapshots; their mode is judged apart.
    ("snapshot.*", NotNeeded(SNAPSHOT)),
    ("incremental.snapshot.*", NotNeeded(SNAPSHOT)),
    ("legacy.snapshot.max.threads", NotNeeded(SNAPSHOT)),
    ("internal.legacy.snapshot.max.threads", NotNeeded(SNAPSHOT)),
    ("streaming.delay.ms", NotNeeded(SNAPSHOT)),
    // Records beside events.
    (
        "heartbeat.interval.ms",
        DiffersUnless(&["0"], "outboxd makes no heartbeat records: the server's keepalives move the slot"),
    ),
    (
        "heartbeat.action.query",
        Differs("outboxd runs no statement: the server's keepalives move the slot, also when nothing is written"),
    ),
    ("heartbeat.topics.prefix", NotNeeded("outboxd makes no heartbeat records")),
    ("topic.heartbeat.prefix", NotNeeded("outboxd makes no heartbeat records")),
    ("topic.heartbeat.name", NotNeeded("outboxd makes no heartbeat records")),
    (
        "provide.transaction.metadata",
        LostUnless(&["false"], "Debezium publishes transactions to a topic of their own, and outboxd none"),
    ),
    ("transaction.metadata.factory", NotNeeded(CHANGES)),
    ("topic.transaction", NotNeeded(CHANGES)),
    ("signal.data.collection", Lost("signals, such as snapshots on demand, have no counterpart")),
    ("signal.enabled.channels", DiffersUnless(&["source", ""], "outboxd listens to no signals")),
    ("signal.*", NotNeeded("outboxd listens to no signals")),
    (
        "notification.enabled.channels",
        LostUnless(&["", "log", "jmx", "log,jmx", "jmx,log"], "Debezium publishes notifications, and outboxd none"),
    ),
    ("notification.*", NotNeeded("outboxd sends no notifications")),
    // Forms of what the router hardly shows.
    ("topic.naming.strategy", NotNeeded(CHANGES)),
    ("topic.delimiter", NotNeeded(CHANGES)),
    ("topic.cache.size", NotNeeded(CHANGES)),
    ("topic.regex", NotNeeded(CHANGES)),
    ("topic.replacement", NotNeeded(CHANGES)),
    ("topic.key.*", NotNeeded(CHANGES)),
    ("schema.name.adjustment.mode", NotNeeded("names of schemas are not published")),
    ("sanitize.field.names", LostUnless(&["false"], "columns keep their names here, also in the envelope")),
    ("field.name.adjustment.mode", LostUnless(&["none"], "columns keep their names here, also in the envelope")),
    ("sourceinfo.struct.maker", NotNeeded(CHANGES)),
    ("source.struct.version", NotNeeded(CHANGES)),
    ("include.schema.changes", NotNeeded(CHANGES)),
    ("include.schema.comments", NotNeeded(CHANGES)),
    ("post.processors", Lost("a post processor changes rows before the router sees them, and has no counterpart")),
    ("converters", Lost("a converter of columns changes what is published, and has no counterpart")),
    // Failures and tuning.
    (
        "event.processing.failure.handling.mode",
        DiffersUnless(&["fail"], "a change that cannot be read is dropped by Debezium; outboxd stops and says so"),
    ),
    (
        "event.converting.failure.handling.mode",
        DiffersUnless(
            &["fail"],
            "a value that cannot be read is left out by Debezium; outboxd parks the event as a dead letter",
        ),
    ),
    ("custom.retriable.exception", NotNeeded(RETRY)),
    ("retriable.restart.connector.wait.ms", NotNeeded(RETRY)),
    ("max.batch.size", NotNeeded(TUNING)),
    ("max.queue.size", NotNeeded(TUNING)),
    ("max.queue.size.in.bytes", NotNeeded(TUNING)),
    ("queue.provider.type", NotNeeded(TUNING)),
    ("poll.interval.ms", NotNeeded(TUNING)),
    ("executor.shutdown.timeout.ms", NotNeeded(TUNING)),
    ("record.processing.*", NotNeeded(TUNING)),
    ("task.management.timeout.ms", NotNeeded(TUNING)),
    ("memory.management.*", NotNeeded(TUNING)),
    ("guardrail.*", NotNeeded("the tables that are read are named")),
    ("log.position.check.enable", NotNeeded(POSITION)),
    ("multi.partition.mode", NotNeeded("a slot belongs to one database")),
    ("custom.metric.tags", NotNeeded(WATCHED)),
    ("custom.sanitize.pattern", NotNeeded("outboxd never prints a secret")),
    ("advanced.metrics.enable", NotNeeded(WATCHED)),
    ("statistics.metrics.enabled", NotNeeded(WATCHED)),
    ("openlineage.integration.*", DiffersUnless(&["false"], "outboxd reports nothing to OpenLineage")),
];

/// Of Debezium Server alone, behind `debezium.`.
static SERVER: &[(&str, Fate)] = &[
    ("api.enabled", NotNeeded("outboxd has an HTTP interface of its own")),
    ("api.port", NotNeeded("outboxd has an HTTP interface of its own")),
    ("termination.wait", NotNeeded("limits.shutdown says how long a stop may take")),
    ("engine.factory", NotNeeded("there is no engine to choose")),
    ("consumer", NotNeeded("debezium.sink.type says it")),
];

/// Names that other files take, for the nearest name.
const TAKEN: [&str; 33] = [
    "name",
    "connector.class",
    "transforms",
    "predicates",
    "key.converter",
    "value.converter",
    "header.converter",
    "database.hostname",
    "database.port",
    "database.user",
    "database.password",
    "database.dbname",
    "database.sslmode",
    "database.sslcert",
    "database.sslkey",
    "database.sslrootcert",
    "database.server.name",
    "database.targetServerType",
    "database.ApplicationName",
    "database.connectTimeout",
    "topic.prefix",
    "slot.name",
    "plugin.name",
    "publication.name",
    "publication.autocreate.mode",
    "table.include.list",
    "table.whitelist",
    "column.include.list",
    "column.exclude.list",
    "column.whitelist",
    "column.blacklist",
    "snapshot.mode",
    "skipped.operations",
];

/// Judges everything that is left.
pub fn judge(work: &mut Work, history: History) {
    snapshot(work, history);
    skipped(work);
    aliases(work, "converters");
    aliases(work, "post.processors");
    for (name, setting) in work.settings.take_rest() {
        let (name, table) = match name.strip_prefix("server:") {
            Some(name) => (name.to_owned(), SERVER),
            None => (name, OPTIONS),
        };
        match table.iter().find(|(rule, _)| covers(rule, &name)) {
            Some((_, fate)) => apply(work, fate, setting),
            None => {
                let known: Vec<&str> = known(work.form).collect();
                work.unknown(setting.origin, &name, &known);
            }
        }
    }
}

/// All names that somebody knows.
pub fn known(form: Form) -> impl Iterator<Item = &'static str> {
    let server: &[(&str, Fate)] = match form {
        Form::Server => SERVER,
        Form::Connect => &[],
    };
    OPTIONS.iter().chain(server).map(|(name, _)| *name).chain(TAKEN).chain(router::TAKEN)
}

fn covers(rule: &str, name: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == rule,
    }
}

fn apply(work: &mut Work, fate: &Fate, setting: Setting) {
    let is_one = |words: &[&str]| words.iter().any(|word| setting.is(word));
    let default = "says what outboxd does anyway";
    match fate {
        NotNeeded(why) => work.not_needed(setting.origin, *why),
        Differs(why) => work.differs(Finding::new(setting.origin, *why)),
        Lost(why) => work.lost(Finding::new(setting.origin, *why)),
        DiffersUnless(words, _) | LostUnless(words, _) if is_one(words) => work.not_needed(setting.origin, default),
        DiffersUnless(_, why) => work.differs(Finding::new(setting.origin, *why)),
        LostUnless(_, why) => work.lost(Finding::new(setting.origin, *why)),
    }
}

/// Rows that were there before are published by Debezium's first start, or by each.
fn snapshot(work: &mut Work, history: History) {
    let setting = work.settings.take("snapshot.mode");
    let mode =
        setting.as_ref().map_or("initial".to_owned(), |setting| setting.text().unwrap_or_default().to_lowercase());
    let option = setting.map_or(work.named("snapshot.mode"), |setting| setting.origin);
    match (mode.as_str(), history) {
        ("no_data" | "never", _) => work.not_needed(option, SNAPSHOT),
        ("initial" | "exported", History::HasRun) => {
            work.not_needed(option, "the first snapshot is done, as --has-run says")
        }
        ("when_needed", History::HasRun) => work.differs(Finding::new(
            option,
            "when its slot is lost, Debezium publishes all rows; outboxd stops and says so",
        )),
        ("initial" | "exported" | "when_needed", History::Unknown) => {
            let message = "Debezium's first start publishes the rows that are in the table already, outboxd's does not";
            work.lost(
                Finding::new(option, message)
                    .hint("--has-run says that Debezium has done so, and that its slot is taken over"),
            );
        }
        ("always", _) => work.lost(Finding::new(option, "Debezium publishes all rows at every start, outboxd never")),
        ("initial_only", _) => {
            work.lost(Finding::new(option, "Debezium publishes the rows in the table and stops; outboxd does neither"))
        }
        _ => work.lost(Finding::new(
            option,
            "which rows Debezium publishes at its start cannot be told; outboxd publishes none",
        )),
    }
}

fn skipped(work: &mut Work) {
    let Some(setting) = work.settings.take("skipped.operations") else { return };
    if setting.list().iter().any(|operation| operation == "c") {
        return work.lost(Finding::new(setting.origin, "inserts are skipped: Debezium publishes no event at all"));
    }
    work.not_needed(setting.origin, "outboxd publishes inserts only");
}

/// What is set for each of a list of names (`converters=a`, `a.type=…`) goes with the list.
fn aliases(work: &mut Work, list: &str) {
    let aliases = work.settings.get(list).map(Setting::list).unwrap_or_default();
    for alias in aliases {
        for (_, setting) in work.settings.take_under(&format!("{alias}.")) {
            work.not_needed(setting.origin, format!("belongs to {list}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_table_can_be_reached() {
        for (index, (name, _)) in OPTIONS.iter().enumerate() {
            let plain = name.trim_end_matches('*');
            let earlier = OPTIONS[..index].iter().find(|(rule, _)| covers(rule, plain));
            assert!(earlier.is_none(), "{name} is hidden by {}", earlier.unwrap().0);
            assert!(!TAKEN.contains(name) && !router::TAKEN.contains(name), "{name} is taken elsewhere");
        }
    }
}
