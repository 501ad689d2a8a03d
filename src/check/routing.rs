//! Which topics the configuration leads to: routes and sampled rows enter, topic names with their traffic leave.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Columns, Config, Outbox, Pattern, Piece, Route, Rules};
use crate::record::Preview;
use crate::route::{Router, sample};
use crate::source::catalog::survey::{OutboxTable, SampleRow};
use crate::source::outbox::Layout;

use super::facts::Traffic;
use super::publication::is_source;

/// Every topic that a sampled row goes to, and every one that a route names without a column.
pub(super) fn topics(config: &Config, tables: &[OutboxTable]) -> BTreeMap<String, Traffic> {
    let mut topics: BTreeMap<String, Traffic> = config
        .rules
        .routes
        .iter()
        .filter_map(|route| literal(route.topic.as_ref()?))
        .map(|topic| (topic, Traffic::default()))
        .collect();
    for table in tables {
        let Some(outbox) = config.outbox.iter().find(|outbox| is_source(outbox, table)) else { continue };
        for row in table.sample.iter().flatten() {
            if let Ok(sketch) = sketch(config, outbox, row) {
                count(topics.entry(sketch.topic).or_default(), row);
            }
        }
    }
    topics
}

/// The record that a sampled row would become, as far as that does not depend on its payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sketch {
    pub(super) topic: String,
    pub(super) key: String,
}

/// Maps and routes a sampled row by the relay's own rooms, or tells why it cannot be published.
///
/// A sample holds columns as text, which is what a logical message holds, so it is read as one.
pub(super) fn sketch(config: &Config, outbox: &Outbox, row: &SampleRow) -> Result<Sketch, String> {
    // The payload is not in a sample: what depends on it is left aside.
    let known = |route: &Route| Route {
        schema: None,
        require: route.require.iter().filter(|name| *name != "payload").cloned().collect(),
        value: None,
        tombstone: None,
        key_template: None,
        header_templates: Vec::new(),
        ..route.clone()
    };
    let rules = Rules { routes: config.rules.routes.iter().map(known).collect(), ..config.rules.clone() };
    let record = sample(&rules, outbox, object(&outbox.columns, row).as_bytes(), 0);
    let Preview { topic, key, .. } = record.map_err(|rejection| rejection.message)?;
    Ok(Sketch { topic, key: key.map(|key| String::from_utf8_lossy(&key).into_owned()).unwrap_or_default() })
}

/// The row as a JSON object: text as strings, the headers as the JSON that they are.
fn object(columns: &Columns, row: &SampleRow) -> String {
    let value = |name: &str, text: &String| match serde_json::from_str(text) {
        Ok(json) if Some(name) == columns.headers.as_deref() => json,
        Ok(_) | Err(_) => serde_json::Value::String(text.clone()),
    };
    let members = row
        .columns
        .iter()
        .map(|(name, text)| (name.clone(), text.as_ref().map_or(serde_json::Value::Null, |text| value(name, text))));
    serde_json::Value::Object(members.collect()).to_string()
}

/// The columns that a sample must hold: all but the payload, which may be large and secret.
pub(super) fn columns_sampled(config: &Config, outbox: &Outbox) -> BTreeSet<String> {
    let mut sampled = columns_named(config, outbox);
    sampled.extend(outbox.columns.names().map(str::to_owned));
    // What its preset reads by its own name.
    let mut layout = Layout::default();
    Router::new(&Rules::default(), std::slice::from_ref(outbox), &mut layout);
    sampled.extend(layout.further().map(str::to_owned));
    sampled.remove(&outbox.columns.payload);
    sampled
}

/// The columns that topics, keys, headers and matches name, as this outbox spells them.
pub(super) fn columns_named(config: &Config, outbox: &Outbox) -> BTreeSet<String> {
    routes(config, outbox).flat_map(Route::names).map(|name| column(&outbox.columns, name).to_owned()).collect()
}

/// Of these, those that its table must have.
pub(super) fn columns_needed(config: &Config, outbox: &Outbox) -> BTreeSet<String> {
    routes(config, outbox).flat_map(Route::needs).map(|name| column(&outbox.columns, name).to_owned()).collect()
}

/// The routes that its rows may take.
pub(super) fn routes<'a>(config: &'a Config, outbox: &'a Outbox) -> impl Iterator<Item = &'a Route> {
    config.rules.routes.iter().filter(|route| route.outbox.as_ref().is_none_or(|source| *source == outbox.source))
}

/// A name is that of a part or, when no column plays it, of a column.
fn column<'a>(columns: &'a Columns, name: &'a str) -> &'a str {
    columns.part(name).map_or(name, String::as_str)
}

fn literal(pattern: &Pattern) -> Option<String> {
    let pieces = pattern.pieces.iter().map(|piece| match piece {
        Piece::Literal(text) => Some(text.as_str()),
        Piece::Column(_) | Piece::Fallback(..) => None,
    });
    pieces.collect()
}

fn count(traffic: &mut Traffic, row: &SampleRow) {
    traffic.rows += 1;
    traffic.largest = traffic.largest.max(row.size.unwrap_or(0));
    if let Some(age) = row.age {
        traffic.oldest = Some(traffic.oldest.map_or(age, |oldest| oldest.max(age)));
        traffic.newest = Some(traffic.newest.map_or(age, |newest| newest.min(age)));
    }
}
