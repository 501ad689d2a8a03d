//! `outbox.join`: the second table of an outbox, as typed or as its preset has it, and what two blocks cannot share.

use super::document::Reader;
use super::error::Fault;
use super::{Join, Outbox, OutboxSource, Pattern, Preset, Route, Rules, load, value};

/// The parts of an event that are columns of its own table, and of no second one.
const OWN_PARTS: [&str; 7] =
    ["id", "aggregate_type", "aggregate_id", "event_type", "timestamp", "headers", "partition"];

/// What is typed, over what is usual for the preset: there the second table stands beside the first.
pub(super) fn read(reader: &mut Reader<'_, '_>, preset: &Preset, source: &OutboxSource) -> Option<Join> {
    let usual = match (preset, source) {
        (Preset::System(system), OutboxSource::Table { schema, .. }) => system.join(schema),
        (Preset::System(_), OutboxSource::MessagePrefix(_)) | (Preset::Outboxd | Preset::Debezium(_), _) => None,
    };
    let Some(mut typed) = reader.table("join") else { return usual };
    let table = typed.read("table", |typed| load::table_name(&value::text(typed)?));
    let on = typed.read("on", |typed| columns(&value::text(typed)?));
    if let OutboxSource::MessagePrefix(_) = source {
        reader.refuse("join", Fault::new("needs a table: a logical message has its payload with it"));
        return None;
    }
    let (Some(OutboxSource::Table { schema, name: table }), Some((event_column, payload_column))) = (table, on) else {
        return None;
    };
    Some(Join { schema, table, event_column, payload_column })
}

/// `column`, or `column of the events = column of the payloads`.
fn columns(text: &str) -> Result<(String, String), Fault> {
    let hint = "a column that both tables have, or \"column of the events = column of the payloads\"";
    let (event, payload) = text.split_once('=').unwrap_or((text, text));
    match (event.trim(), payload.trim()) {
        ("", _) | (_, "") => Err(Fault::new(format!("\"{text}\" names no column")).hint(hint)),
        (_, payload) if payload.contains('=') => {
            Err(Fault::new(format!("\"{text}\" has more than one \"=\"")).hint(hint))
        }
        (event, payload) => Ok((event.to_owned(), payload.to_owned())),
    }
}

/// Why a block cannot stand beside those above it: a table is one block's, and for one purpose.
pub(super) fn clash(above: &[Outbox], outbox: &Outbox) -> Option<Fault> {
    let mut blocks = above.iter().chain([outbox]);
    let is_joined = |of: &Outbox| above.iter().chain([outbox]).any(|block| block.joined_table() == of.own_table());
    if blocks.any(|of| of.own_table().is_some() && is_joined(of)) {
        return Some(
            Fault::new("a table that is joined is an outbox itself")
                .hint("outbox.join names the table of payloads: its rows are no events"),
        );
    }
    let joined = outbox.joined_table()?;
    let is_shared = above.iter().filter_map(Outbox::joined_table).any(|other| other == joined);
    is_shared.then(|| Fault::new("a block above joins the same table").hint("one table of payloads for each outbox"))
}

/// Why keys cannot be parked: of an event without its payload row nobody knows the key, if topic, key or route depend on that row.
/// Which table has a column shows only later, but what an outbox maps is its own.
pub(super) fn unknown_lane(rules: &Rules, outboxes: &[Outbox]) -> Option<Fault> {
    outboxes.iter().find_map(|outbox| {
        let join = outbox.join.as_ref()?;
        let mapped = |name: &str| outbox.columns.names().any(|column| column == name) && name != outbox.columns.payload;
        let is_own_part = |name: &str| OWN_PARTS.contains(&name) && outbox.columns.part(name).is_some();
        let is_own = |name: &&str| is_own_part(name) || mapped(name) || *name == join.event_column;
        let concerns = |route: &&Route| route.outbox.as_ref().is_none_or(|source| *source == outbox.source);
        let mut names = rules.routes.iter().filter(concerns).flat_map(lane_names);
        let name = match outbox.preset.is_led_by_payload() {
            true => "payload",
            false => names.find(|name| !is_own(name))?,
        };
        let what = format!(
            "\"park-key\" does not know the key of an event whose payload row is missing: its topic, key or match may depend on \
             that row, by \"{name}\""
        );
        let hint = "name parts in them that are mapped to columns of the events' own table, as columns = { aggregate_id = \"…\" } and \
             key = \"{aggregate_id}\"; or order = \"skip\"";
        Some(Fault::new(what).hint(hint))
    })
}

/// What a route's topic, key and match read. What a template reads is not known before it runs.
fn lane_names(route: &Route) -> impl Iterator<Item = &str> {
    let column = |name| {
        let rewritten = route.rewrites.iter().find(|(rewritten, _)| rewritten == name);
        rewritten.map_or(name, |(_, rewrite)| rewrite.column.as_str())
    };
    let shown = [&route.topic, &route.key].into_iter().flatten().flat_map(Pattern::names).map(column);
    let matched = route.matches.iter().map(|(name, _)| name.as_str());
    shown.chain(matched).chain(route.key_template.iter().map(|_| "key_template"))
}
