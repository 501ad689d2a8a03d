//! Which topics the configuration leads to: routes and sampled rows enter, topic names with their traffic leave.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Columns, Config, Outbox, Pattern, Piece, Route};
use crate::source::catalog::survey::{OutboxTable, SampleRow};

use super::facts::Traffic;
use super::publication::is_source;

/// The default route's topic, as `interface` of the configuration has it.
const DEFAULT_TOPIC: (&str, &str) = ("outbox.event.", "aggregate_type");

/// Every topic that a sampled row goes to, and every one that a route names without a column.
pub(super) fn topics(config: &Config, tables: &[OutboxTable]) -> BTreeMap<String, Traffic> {
    let mut topics: BTreeMap<String, Traffic> = config
        .routes
        .iter()
        .filter_map(|route| literal(&route.topic))
        .map(|topic| (topic, Traffic::default()))
        .collect();
    for table in tables {
        let Some(outbox) = config.outbox.iter().find(|outbox| is_source(outbox, table)) else { continue };
        for row in table.sample.iter().flatten() {
            let route = config.routes.iter().find(|route| is_match(route, &outbox.columns, row));
            let topic = match route {
                Some(route) => rendered(&route.topic, &outbox.columns, row),
                None => rendered(&default_topic(), &outbox.columns, row),
            };
            if let Some(topic) = topic {
                count(topics.entry(topic).or_default(), row);
            }
        }
    }
    topics
}

/// The columns that topics, keys, headers and matches name, as this outbox spells them.
pub(super) fn columns_named(config: &Config, outbox: &Outbox) -> BTreeSet<String> {
    let patterns = config.routes.iter().flat_map(|route| {
        [&route.topic, &route.key].into_iter().chain(route.headers.iter().map(|(_, pattern)| pattern))
    });
    let places = patterns.flat_map(|pattern| &pattern.pieces).filter_map(|piece| match piece {
        Piece::Column(name) => Some(name),
        Piece::Literal(_) => None,
    });
    let matched = config.routes.iter().flat_map(|route| route.matches.keys());
    places.chain(matched).map(|name| column(&outbox.columns, name).to_owned()).collect()
}

/// A name is that of a part or, when no part has it, of a column.
fn column<'a>(columns: &'a Columns, name: &'a str) -> &'a str {
    let part = match name {
        "id" => Some(&columns.id),
        "payload" => Some(&columns.payload),
        "aggregate_type" => columns.aggregate_type.as_ref(),
        "aggregate_id" => columns.aggregate_id.as_ref(),
        "event_type" => columns.event_type.as_ref(),
        "timestamp" => columns.timestamp.as_ref(),
        "headers" => columns.headers.as_ref(),
        "partition" => columns.partition.as_ref(),
        _ => None,
    };
    part.map_or(name, String::as_str)
}

fn value<'a>(columns: &Columns, row: &'a SampleRow, name: &str) -> Option<&'a str> {
    row.columns.get(column(columns, name))?.as_deref()
}

fn is_match(route: &Route, columns: &Columns, row: &SampleRow) -> bool {
    route.matches.iter().all(|(name, glob)| value(columns, row, name).is_some_and(|text| fits(glob, text)))
}

fn rendered(pattern: &Pattern, columns: &Columns, row: &SampleRow) -> Option<String> {
    let pieces = pattern.pieces.iter().map(|piece| match piece {
        Piece::Literal(text) => Some(text.as_str()),
        Piece::Column(name) => value(columns, row, name),
    });
    pieces.collect()
}

fn literal(pattern: &Pattern) -> Option<String> {
    let pieces = pattern.pieces.iter().map(|piece| match piece {
        Piece::Literal(text) => Some(text.as_str()),
        Piece::Column(_) => None,
    });
    pieces.collect()
}

fn default_topic() -> Pattern {
    let (prefix, column) = DEFAULT_TOPIC;
    Pattern { pieces: vec![Piece::Literal(prefix.to_owned()), Piece::Column(column.to_owned())] }
}

/// `*` stands for any run of characters.
fn fits(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(tail, &rest[at..]))
        }),
    }
}

fn count(traffic: &mut Traffic, row: &SampleRow) {
    traffic.rows += 1;
    traffic.largest = traffic.largest.max(row.size.unwrap_or(0));
    if let Some(age) = row.age {
        traffic.oldest = Some(traffic.oldest.map_or(age, |oldest| oldest.max(age)));
        traffic.newest = Some(traffic.newest.map_or(age, |newest| newest.min(age)));
    }
}
