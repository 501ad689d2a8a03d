//! `[[outbox]]`: the router's options under their own names, checked as Debezium checks them, and what the server makes of them.

use std::collections::BTreeMap;

use super::columns::{Columns, PLACEMENT, Used};
use super::draft::{Section, quoted};
use super::input::Form;
use super::routes::Router;
use super::settings::{Setting, Value};
use super::tables::Table;
use super::{Finding, Work, columns, pattern};
use crate::config::debezium;

/// How an option's value is written; what it may be, the configuration knows.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Bool,
    Word,
}

/// The router's options, in the order in which they are written.
static OPTIONS: [(&str, Shape); 18] = [
    ("table.field.event.id", Shape::Text),
    ("table.field.event.key", Shape::Text),
    ("table.field.event.type", Shape::Text),
    ("table.field.event.timestamp", Shape::Text),
    ("table.field.event.payload", Shape::Text),
    (PLACEMENT, Shape::Text),
    ("table.field.additional.missing", Shape::Word),
    ("table.op.invalid.behavior", Shape::Word),
    ("table.expand.json.payload", Shape::Bool),
    ("table.json.payload.null.behavior", Shape::Word),
    ("table.json.payload.empty.array.behavior", Shape::Word),
    ("route.by.field", Shape::Text),
    ("route.topic.regex", Shape::Text),
    ("route.topic.replacement", Shape::Text),
    ("route.tombstone.on.empty.payload", Shape::Bool),
    ("tracing.span.context.field", Shape::Text),
    ("tracing.operation.name", Shape::Text),
    ("tracing.with.context.field.only", Shape::Bool),
];

const SCHEMA_VERSION: &str = "table.field.event.schema.version";
const IN_SCHEMAS: &str = "it shows in schemas only, which records here do not carry";

/// Options of the connector that change how a column is rendered.
const RENDERING: [&str; 5] = [
    "time.precision.mode",
    "decimal.handling.mode",
    "binary.handling.mode",
    "hstore.handling.mode",
    "interval.handling.mode",
];

/// The names of options of the connector that are read here.
pub const TAKEN: [&str; 6] = [
    "time.precision.mode",
    "decimal.handling.mode",
    "binary.handling.mode",
    "hstore.handling.mode",
    "interval.handling.mode",
    "extended.headers.enabled",
];

/// Writes one `[[outbox]]` for each table, and the route that all records of Debezium Server take.
pub fn write(
    work: &mut Work,
    tables: Vec<Table>,
    routers: Vec<Router>,
    prefix: &Option<Setting>,
    converters: &Section,
) {
    let mut common = converters.clone();
    rendering(work, &mut common);
    context_headers(work, prefix, &mut common);
    let topic = |table: &Table| topic(work, prefix, table);
    let chosen: Vec<Choice> = tables.iter().map(|table| choose(&routers, topic(table).as_deref())).collect();
    let columns = columns::read(work);
    let written: Vec<Written> = routers.into_iter().map(|router| options(work, router)).collect();
    for (table, choice) in tables.into_iter().zip(chosen) {
        let mut debezium = Section::default();
        match choice {
            Choice::Router(index) => {
                let Written { section, used } = &written[index];
                debezium.append(section);
                misses(work, &columns, &table, used);
            }
            Choice::None if written.is_empty() => {}
            Choice::None => {
                let message =
                    format!("no outbox router takes {}: Debezium publishes its changes, outboxd does not", table.name);
                work.lost(Finding::new(table.note, message));
                continue;
            }
        }
        debezium.append(&common);
        let mut outbox = Section::default();
        outbox.text("table", &table.name, &table.note);
        outbox.text("preset", "debezium", "");
        work.draft.outboxes.push((outbox, debezium));
    }
    if let Some(columns) = columns {
        columns.done(work);
    }
    if work.form == Form::Server {
        let message = "Debezium Server sends records without the routed timestamp: theirs is the time of sending";
        work.draft.route.comment(format!("{message}."));
        work.draft.route.text("timestamp", "now", "");
    }
}

/// The router's options that somebody knows.
pub fn known() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name).chain(debezium::OLD_ROUTER_OPTIONS.iter().map(|(old, _)| *old))
}

/// What was made of a router, and the columns that it reads.
struct Written {
    section: Section,
    used: Vec<Used>,
}

enum Choice {
    Router(usize),
    None,
}

/// The first router that takes the topic: behind it the record is no change any more, and others leave it alone.
fn choose(routers: &[Router], topic: Option<&str>) -> Choice {
    match routers.iter().position(|router| router.when.applies(topic).unwrap_or(true)) {
        Some(index) => Choice::Router(index),
        None => Choice::None,
    }
}

/// The topic that predicates see: the connector's own, before the router.
fn topic(work: &Work, prefix: &Option<Setting>, table: &Table) -> Option<String> {
    if work.settings.get("topic.naming.strategy").is_some() || table.is_unnamed() {
        return None;
    }
    let prefix = prefix.as_ref()?.text()?;
    let delimiter =
        work.settings.get("topic.delimiter").map_or(Some(".".to_owned()), |delimiter| delimiter.value.text())?;
    Some(format!("{prefix}{delimiter}{}", table.name.replace('.', &delimiter)))
}

fn misses(work: &mut Work, columns: &Option<Columns>, table: &Table, used: &[Used]) {
    if let Some(columns) = columns.as_ref().filter(|_| !table.is_unnamed()) {
        columns.judge(work, &table.name, used);
    }
}

/// The columns that a router reads, by its options or without.
fn used(options: &BTreeMap<String, Setting>) -> Vec<Used> {
    let mapped = [
        ("table.field.event.id", Some("id")),
        ("table.field.event.key", Some("aggregateid")),
        ("table.field.event.payload", Some("payload")),
        ("table.field.event.timestamp", None),
        ("route.by.field", Some("aggregatetype")),
    ];
    let mapped = mapped.into_iter().filter_map(|(option, usual)| {
        let typed = options.get(option).map_or(usual.map(str::to_owned), Setting::text);
        Some(Used { column: typed?, option, may_be_missing: false })
    });
    let placed = options.get(PLACEMENT).and_then(|setting| debezium::placements(&setting.value.text()?).ok());
    let may_be_missing = options.get("table.field.additional.missing").is_some_and(|setting| setting.is("ignore"));
    let placed = placed.into_iter().flatten();
    mapped.chain(placed.map(|placement| Used { column: placement.column, option: PLACEMENT, may_be_missing })).collect()
}

fn options(work: &mut Work, router: Router) -> Written {
    let mut options: BTreeMap<String, Setting> = router.options.into_iter().collect();
    let mut section = Section::default();
    old_names(work, &mut options, &mut section);
    if let Some(version) = options.remove("plugin.version") {
        work.not_needed(version.origin, "outboxd has the router built in");
    }
    if let Some(version) = options.remove(SCHEMA_VERSION) {
        work.not_needed(version.origin, IN_SCHEMAS);
    }
    if let Some(mode) = options.remove("field.name.adjustment.mode") {
        if mode.is("none") {
            work.not_needed(mode.origin, "members of a payload keep their names");
        } else {
            work.lost(Finding::new(mode.origin, "members of a payload keep their names here"));
        }
    }
    if work.form == Form::Server {
        server(work, &mut options);
    } else {
        timestamp(work, options.get("table.field.event.timestamp"));
    }
    let used = used(&options);
    let mut wrong = pattern::check(work, &options);
    if options.get(PLACEMENT).is_some_and(|setting| !placements_are_known(work, setting)) {
        wrong.push(PLACEMENT);
    }
    for name in wrong {
        if let Some(setting) = options.remove(name) {
            section.off(
                name,
                &quoted(&setting.value.shown()),
                &format!("FILL IN: {} does not work here", setting.origin),
            );
        }
    }
    for (name, shape) in &OPTIONS {
        if let Some(setting) = options.remove(*name) {
            option(work, &mut section, name, *shape, &setting);
        }
    }
    let known: Vec<&str> = known().collect();
    for (name, setting) in options {
        work.unknown(setting.origin, &name, &known);
    }
    Written { section, used }
}

fn option(work: &mut Work, section: &mut Section, name: &str, shape: Shape, setting: &Setting) {
    let Some(text) = setting.value.text() else {
        section.off(name, "\"\"", &format!("FILL IN: {} is {}", setting.origin, setting.value.shown()));
        return work.lost(pattern::not_looked_up(setting));
    };
    if let Err(fault) = debezium::check(name, &text) {
        let finding = Finding::new(&setting.origin, format!("{}, so it is left out", fault.what));
        return work.lost(finding.hinted(fault.hint));
    }
    let word = text.trim().to_lowercase();
    match shape {
        Shape::Bool => section.raw(name, &word, &setting.origin),
        Shape::Word => section.text(name, &word, &setting.origin),
        Shape::Text => section.text(name, &text, &setting.origin),
    }
    if name == "table.op.invalid.behavior" && word == "fatal" {
        work.differs(Finding::new(
            &setting.origin,
            "an UPDATE of a row stops Debezium; outboxd reads inserts only, and goes on",
        ));
    }
    if name.starts_with("tracing.") {
        let message = "outboxd carries the trace context to the headers and makes no spans of its own";
        work.differs(Finding::new(&setting.origin, message));
    }
}

/// What Debezium ignores today makes no difference to its records, so it makes none here; who runs an old one must know.
fn old_names(work: &mut Work, options: &mut BTreeMap<String, Setting>, section: &mut Section) {
    for (old, new) in debezium::OLD_ROUTER_OPTIONS {
        let Some(setting) = options.remove(old) else { continue };
        if options.contains_key(new) {
            work.not_needed(setting.origin, format!("an old name of {new}, which is set as well"));
        } else if new == SCHEMA_VERSION {
            work.not_needed(setting.origin, IN_SCHEMAS);
        } else {
            let note = format!("{}: an old name, which Debezium ignores today", setting.origin);
            section.off(new, &quoted(&setting.value.shown()), &note);
            let message = format!(
                "an old name of {new}: today's Debezium ignores it, and so does this; one that still obeys it makes other records"
            );
            let hint = format!("uncomment {new} if yours obeys it");
            work.differs(Finding::new(setting.origin, message).hint(hint));
        }
    }
    let Some(mut old) = options.remove("table.fields.additional.error.on.missing") else { return };
    if options.contains_key("table.field.additional.missing") {
        return work
            .not_needed(old.origin, "the name before 3.6 of table.field.additional.missing, which is set as well");
    }
    let message = "since 3.6 Debezium ignores this name; taken as table.field.additional.missing";
    work.differs(Finding::new(&old.origin, message));
    old.value = match old.text().as_deref() {
        Some("true") => Value::literal("error"),
        Some("false") => Value::literal("ignore"),
        _ => old.value,
    };
    options.insert("table.field.additional.missing".to_owned(), old);
}

/// Debezium Server's Kafka sink hands on neither partition nor timestamp.
fn server(work: &mut Work, options: &mut BTreeMap<String, Setting>) {
    if let Some(timestamp) = options.remove("table.field.event.timestamp") {
        let message = "Debezium Server ignores the routed timestamp, so it is left out";
        let hint = "to have it obeyed, put it into [outbox.debezium] and take the [[route]] away";
        work.differs(Finding::new(timestamp.origin, message).hint(hint));
    }
    let Some(setting) = options.get_mut(PLACEMENT) else { return };
    let Some(text) = setting.value.text() else { return };
    let is_partition =
        |item: &&str| item.split(':').nth(1).is_some_and(|place| place.trim().eq_ignore_ascii_case("partition"));
    let (partitions, kept): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_partition);
    if partitions.is_empty() {
        return;
    }
    let message = format!("Debezium Server ignores a routed partition, so {} is left out", partitions.join(",").trim());
    setting.value = Value::literal(kept.join(","));
    let finding = Finding::new(&setting.origin, message);
    if kept.is_empty() {
        options.remove(PLACEMENT);
    }
    work.differs(finding.hint("put it back to have records in that partition"));
}

fn timestamp(work: &mut Work, column: Option<&Setting>) {
    match column {
        Some(setting) => work.differs(Finding::new(
            &setting.origin,
            "a timestamptz or bigint column fails in Debezium; outboxd takes its time",
        )),
        None => work.differs(Finding::new(
            "table.field.event.timestamp",
            "not set: Debezium's records carry the time at which it read the change, outboxd's the time at which they are sent",
        )),
    }
}

/// True when they can be used as they are; why not is told.
fn placements_are_known(work: &mut Work, setting: &Setting) -> bool {
    let Some(text) = setting.value.text() else { return true };
    let judged = debezium::placements(&text).and_then(|placements| debezium::members(&placements));
    let Err(fault) = judged else { return true };
    work.lost(Finding::new(&setting.origin, format!("{}: Debezium fails, too", fault.what)).hinted(fault.hint));
    false
}

fn rendering(work: &mut Work, section: &mut Section) {
    for name in RENDERING {
        if let Some(setting) = work.settings.take(name) {
            option(work, section, name, Shape::Word, &setting);
        }
    }
}

/// Debezium adds headers about itself since 3.2; outboxd only when told.
fn context_headers(work: &mut Work, prefix: &Option<Setting>, section: &mut Section) {
    let name = "extended.headers.enabled";
    let switch = work.settings.take(name);
    let prefix = prefix.as_ref().and_then(|prefix| Some((prefix.value.text()?, prefix.origin.clone())));
    let prefix = prefix.filter(|(prefix, _)| !prefix.is_empty());
    if let Some(setting) = switch.as_ref().filter(|setting| setting.is("true")) {
        let Some((prefix, origin)) = prefix else {
            section.off(name, "true", &setting.origin);
            section.off("topic.prefix", "\"\"", "FILL IN: the context headers hold it");
            let message = "not readable here: the context headers hold it, so they are left out";
            return work.lost(Finding::new(work.named("topic.prefix"), message));
        };
        option(work, section, name, Shape::Bool, setting);
        section.text("topic.prefix", &prefix, &origin);
        let message = "outboxd sends the context headers but one: __debezium.context.runId, another one in each run";
        return work.differs(Finding::new(&setting.origin, message));
    }
    if let Some(setting) = &switch {
        option(work, section, name, Shape::Bool, setting);
    } else {
        let message =
            "not set: Debezium 3.2 and later add headers about themselves (__debezium.context.…), outboxd does not";
        let finding = Finding::new(work.named(name), message);
        work.differs(finding.hint("uncomment extended.headers.enabled and topic.prefix to send them"));
        section.comment("Debezium 3.2 and later add headers about themselves (__debezium.context.…); with these lines outboxd does, too.");
        section.off(name, "true", "");
        if let Some((prefix, origin)) = &prefix {
            section.off("topic.prefix", &quoted(prefix), origin);
        }
    }
    if let Some((_, origin)) = prefix {
        work.not_needed(
            origin,
            "names no topic of an outbox, only those of changes, heartbeats and the context headers",
        );
    }
}
