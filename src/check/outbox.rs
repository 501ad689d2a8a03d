//! Verdicts about the column mapping and the keys: `outbox.*`, `route.*`.

use crate::config::{Config, Outbox, OutboxSource, Preset, Route, System, Timestamp, Unmatched};
use crate::source::catalog::survey::{OutboxColumn, OutboxTable, Survey};

use super::Finding;
use super::facts::Facts;
use super::publication::{is_source, plain_name, sql_name};
use super::routing::{Sketch, columns_named, columns_needed, routes, sketch};
use super::words;

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![order(config)];
    if let Some(survey) = &facts.survey {
        findings.extend(columns(config, survey));
    }
    findings
}

fn columns(config: &Config, survey: &Survey) -> Vec<Finding> {
    const ID: &str = "outbox.columns";
    let mut findings = Vec::new();
    for table in survey.tables.iter().filter(|table| table.kind.is_some()) {
        let Some(outbox) = config.outbox.iter().find(|outbox| is_source(outbox, table)) else { continue };
        let before = findings.len();
        findings.extend(parts(outbox).into_iter().filter_map(|(part, name)| column(table, part, name)));
        let joined = joined(outbox, survey);
        let is_unknown =
            |name: &String| ![Some(table), joined].into_iter().flatten().any(|of| find(of, name).is_some());
        let unknown = columns_named(config, outbox).into_iter().filter(is_unknown);
        let needed = columns_needed(config, outbox);
        findings.extend(unknown.map(|name| {
            let named = format!("a route names column \"{name}\", which {} lacks", plain_name(table));
            let finding = match needed.contains(&name) {
                true => Finding::fail(ID, named),
                false => Finding::notice(ID, named + ": a match on it fits no row, and a fallback stands in its place"),
            };
            finding.hint(format!("its columns: {}", names(table)))
        }));
        findings.extend(times(config, outbox, table, joined));
        if !table.readable {
            let grant = format!("GRANT SELECT ON {} TO {};", sql_name(table), words::identifier(&survey.role.name));
            let message =
                format!("rows of {} may not be read: no sample, and no recovery after a lost slot", plain_name(table));
            findings.push(Finding::notice(ID, message).hint(grant));
        }
        if findings.len() == before {
            findings.push(sampled(config, outbox, table));
        }
        findings.extend(hidden(config, outbox, table));
        findings.extend(without_source(config, outbox, table));
    }
    if survey.tables.is_empty() {
        findings.push(Finding::ok(ID, "events come as logical messages: their members show with the first event"));
    }
    findings
}

/// A record's timestamp can only be a time: a row with another type there would be parked, each of them.
fn times(config: &Config, outbox: &Outbox, table: &OutboxTable, joined: Option<&OutboxTable>) -> Vec<Finding> {
    let of = |route: &Route| match &route.timestamp {
        Some(Timestamp::Column(name)) => Some(outbox.columns.part(name).unwrap_or(name).clone()),
        Some(Timestamp::Event | Timestamp::Commit | Timestamp::Now) | None => None,
    };
    let mut named: Vec<String> = routes(config, outbox).filter_map(of).collect();
    named.sort_unstable();
    named.dedup();
    let wrong = |name: String| {
        let column = [Some(table), joined].into_iter().flatten().find_map(|of| find(of, &name))?;
        let type_name = &column.type_name;
        // Text may hold times in ISO 8601.
        let fits = Part::Timestamp.fitting().contains(&type_name.as_str()) || TEXTS.contains(&type_name.as_str());
        let message = format!(
            "a route takes the timestamp from column \"{name}\" of {}, which has type {type_name}",
            plain_name(table)
        );
        (!fits).then(|| {
            let hint =
                format!("name a column of type {}, or timestamp = \"commit\"", Part::Timestamp.fitting().join(", "));
            Finding::fail("outbox.columns", message).hint(hint)
        })
    };
    named.into_iter().filter_map(wrong).collect()
}

/// Columns that no route can name, because a name of theirs is that of a part which another column plays.
fn hidden(config: &Config, outbox: &Outbox, table: &OutboxTable) -> Vec<Finding> {
    let mut named: Vec<&str> = routes(config, outbox).flat_map(Route::names).collect();
    named.sort_unstable();
    named.dedup();
    let hides = |name: &str| outbox.columns.part(name).filter(|column| *column != name && find(table, name).is_some());
    let told = |name: &str, column: &str| {
        let message = format!(
            "a route names \"{name}\", which is the part that column \"{column}\" of {} plays, not the column called \"{name}\"",
            plain_name(table)
        );
        Finding::notice("outbox.columns", message)
            .hint(format!("if that column is meant: columns = {{ {name} = \"{name}\" }}"))
    };
    named.into_iter().filter_map(|name| Some(told(name, hides(name)?))).collect()
}

/// tomorrow-one's consumers tell producers apart by a header that stands in no column.
fn without_source(config: &Config, outbox: &Outbox, table: &OutboxTable) -> Option<Finding> {
    const HEADER: &str = "x-source";
    let is_named = |route: &Route| {
        let rendered = route.header_templates.iter().map(|(name, _)| name);
        route.headers.iter().map(|(name, _)| name).chain(rendered).any(|name| name == HEADER)
    };
    let wants = matches!(outbox.preset, Preset::System(System::TomorrowOne));
    (wants && !routes(config, outbox).any(is_named)).then(|| {
        let message =
            format!("no route gives the events of {} the header {HEADER}, and they go without", plain_name(table));
        let hint =
            "if consumers look at it, in a [[route]]: headers = { x-source = \"…\" }, the system's own eventSource";
        Finding::warn("outbox.columns", message).hint(hint)
    })
}

/// The mapping tried on real rows, by the rooms that the relay uses.
fn sampled(config: &Config, outbox: &Outbox, table: &OutboxTable) -> Finding {
    const ID: &str = "outbox.columns";
    let fit = format!("{}: {} mapped columns, each of a fitting type", plain_name(table), parts(outbox).len());
    if outbox.preset.is_led_by_payload() {
        return Finding::ok(ID, format!("{fit}; no row is tried, because where it goes stands in its payload"));
    }
    let mut first = None;
    for row in table.sample.iter().flatten() {
        match sketch(config, outbox, row) {
            Ok(sketch) => {
                first.get_or_insert(sketch);
            }
            Err(problem) => {
                let id = row.columns.get(&outbox.columns.id).cloned().flatten().unwrap_or_default();
                let message = format!("row {id} of {} could not be published: {problem}", plain_name(table));
                let hint = "such an event is parked: correct what writes it, or the routes and columns it needs";
                return Finding::warn(ID, message).hint(hint);
            }
        }
    }
    match first {
        None if outbox.join.is_some() => {
            Finding::ok(ID, format!("{fit}; there is no row to try them on whose payload row an index finds"))
        }
        None => Finding::ok(ID, format!("{fit}; there is no row to try them on")),
        Some(Sketch { topic, key }) => {
            Finding::ok(ID, format!("{fit}; a real row becomes a record of topic \"{topic}\" with key \"{key}\""))
        }
    }
}

/// The second table of an outbox, if it has one that was looked for.
pub(super) fn joined<'a>(outbox: &Outbox, survey: &'a Survey) -> Option<&'a OutboxTable> {
    let wanted = outbox.joined_table()?;
    survey.tables.iter().find(|table| (table.schema.as_str(), table.name.as_str()) == wanted)
}

/// Types of text.
const TEXTS: [&str; 4] = ["text", "character varying", "character", "name"];

/// What a column is for, and so which types it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Id,
    Text(&'static str),
    Payload,
    Timestamp,
    Headers,
    Partition,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Id => "id",
            Part::Text(name) => name,
            Part::Payload => "payload",
            Part::Timestamp => "timestamp",
            Part::Headers => "headers",
            Part::Partition => "partition",
        }
    }

    /// Types that are rendered exactly.
    fn fitting(self) -> &'static [&'static str] {
        match self {
            Part::Id => &["uuid", "text", "character varying", "character", "bigint", "integer", "smallint"],
            Part::Text(_) => {
                &["text", "character varying", "character", "name", "uuid", "bigint", "integer", "smallint"]
            }
            Part::Payload => &["json", "jsonb", "text", "character varying", "bytea"],
            Part::Timestamp => &["timestamp with time zone", "timestamp without time zone"],
            Part::Headers => &["json", "jsonb", "text", "character varying"],
            Part::Partition => &["integer", "smallint", "bigint"],
        }
    }

    /// Whether any other type will do by its text.
    fn takes_any_text(self) -> bool {
        match self {
            Part::Id | Part::Text(_) | Part::Payload => true,
            Part::Timestamp | Part::Headers | Part::Partition => false,
        }
    }
}

fn parts(outbox: &Outbox) -> Vec<(Part, &str)> {
    let columns = &outbox.columns;
    let optional = [
        (Part::Text("aggregate_type"), &columns.aggregate_type),
        (Part::Text("aggregate_id"), &columns.aggregate_id),
        (Part::Text("event_type"), &columns.event_type),
        (Part::Timestamp, &columns.timestamp),
        (Part::Headers, &columns.headers),
        (Part::Partition, &columns.partition),
    ];
    let optional = optional.into_iter().filter_map(|(part, name)| Some((part, name.as_deref()?)));
    // Where payloads are in a second table, that is looked at by itself.
    let payload = outbox.join.is_none().then_some((Part::Payload, columns.payload.as_str()));
    std::iter::once((Part::Id, columns.id.as_str())).chain(payload).chain(optional).collect()
}

/// What is wrong with the payload's column, wherever that is.
pub(super) fn payload(table: &OutboxTable, name: &str) -> Option<Finding> {
    column(table, Part::Payload, name)
}

fn column(table: &OutboxTable, part: Part, name: &str) -> Option<Finding> {
    const ID: &str = "outbox.columns";
    let (of, role) = (plain_name(table), part.name());
    let Some(column) = find(table, name) else {
        return Some(
            Finding::fail(ID, format!("{of} has no column \"{name}\" for the {role}"))
                .hint(format!("in [[outbox]]: columns = {{ {role} = \"…\" }}, one of {}", names(table))),
        );
    };
    let type_name = &column.type_name;
    if !part.fitting().contains(&type_name.as_str()) {
        let message = format!("{of}: column \"{name}\" for the {role} has type {type_name}");
        return Some(match part.takes_any_text() {
            true => Finding::notice(
                ID,
                format!("{message}: its text is used, and the stream runs in text, which is slower"),
            ),
            false => Finding::fail(ID, message).hint(format!("map a column of type {}", part.fitting().join(", "))),
        });
    }
    if part == Part::Id && !column.not_null {
        return Some(
            Finding::warn(
                ID,
                format!("{of}: column \"{name}\" for the id may be NULL, and such an event cannot be published"),
            )
            .hint(format!(
                "ALTER TABLE {} ALTER COLUMN {} SET NOT NULL;",
                sql_name(table),
                words::identifier(name)
            )),
        );
    }
    None
}

pub(super) fn find<'a>(table: &'a OutboxTable, name: &str) -> Option<&'a OutboxColumn> {
    table.columns.iter().find(|column| column.name == name)
}

pub(super) fn names(table: &OutboxTable) -> String {
    words::list(table.columns.iter().map(|column| &column.name))
}

/// A key that holds the event's id is different for every event, so nothing orders the events of one aggregate.
fn order(config: &Config) -> Finding {
    const ID: &str = "route.order";
    let by_itself = |of: Option<&OutboxSource>| {
        let mut concerned = config.outbox.iter().filter(|outbox| of.is_none_or(|source| *source == outbox.source));
        concerned.any(|outbox| !outbox.preset.keeps_order())
    };
    let by_id = |route: &Route| match &route.key {
        Some(key) => key.names().contains(&"id"),
        None => by_itself(route.outbox.as_ref()),
    };
    let routes = &config.rules.routes;
    let everything = routes.iter().position(|route| route.is_catch_all() && route.outbox.is_none());
    let used = &routes[..everything.map_or(routes.len(), |at| at + 1)];
    let unordered: Vec<String> =
        used.iter().enumerate().filter(|(_, route)| by_id(route)).map(|(at, _)| format!("route {}", at + 1)).collect();
    let is_caught = everything.is_some() || config.rules.unmatched == Unmatched::Reject;
    let default = (!is_caught && by_itself(None)).then(|| "the default route".to_owned());
    let unordered: Vec<String> = unordered.into_iter().chain(default).collect();
    if unordered.is_empty() {
        return Finding::ok(ID, "events with the same key keep their order, and no key holds the event's id");
    }
    Finding::notice(
        ID,
        format!("{}: the key holds the event's id, so the events of one aggregate have no order", unordered.join(", ")),
    )
    .hint("in [[route]]: key = \"{aggregate_id}\"")
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
