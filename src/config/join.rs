//! `outbox.join`: the second table of an outbox, as typed or as its preset has it, and what two blocks cannot share.

use super::document::Reader;
use super::error::Fault;
use super::{Join, Outbox, OutboxSource, Preset, load, value};

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
    let (event, payload) = text.split_once('=').unwrap_or((text, text));
    match (event.trim(), payload.trim()) {
        ("", _) | (_, "") => Err(Fault::new(format!("\"{text}\" names no column"))
            .hint("a column that both tables have, or \"column of the events = column of the payloads\"")),
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
