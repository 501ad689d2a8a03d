//! A record's headers: the default ones, those that a route adds, and the members of the row's own headers object.

use super::object;
use super::pattern::Pattern;
use super::preset::Maker;
use crate::config;
use crate::config::DefaultHeaders;
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

/// Few and short ones, because headers are the dearest part of a send.
const PARTS: [(&str, Place); 4] = [
    ("id", Place::ID),
    ("type", Place::EVENT_TYPE),
    ("aggregate_type", Place::AGGREGATE_TYPE),
    ("aggregate_id", Place::AGGREGATE_ID),
];

#[derive(Debug)]
pub(super) struct HeaderRules {
    /// `None`: those of the maker.
    default: Option<DefaultHeaders>,
    more: Vec<(String, Pattern)>,
}

impl HeaderRules {
    pub(super) fn new(route: &config::Route, layout: &mut Layout) -> HeaderRules {
        let compile = |pattern, layout: &mut Layout| Pattern::new(pattern, &route.rewrites, layout);
        let more = route.headers.iter().map(|(name, pattern)| (name.clone(), compile(pattern, layout))).collect();
        HeaderRules { default: route.default_headers, more }
    }

    /// A NULL column gives no header.
    pub(super) fn write(&self, maker: &Maker, row: &Row<'_>, headers: &mut Headers) -> Result<(), String> {
        match self.default {
            Some(which) => default(which, row, headers),
            None => maker.headers(row, headers)?,
        }
        for (name, pattern) in &self.more {
            if !pattern.is_null(row) {
                let mut written = Ok(());
                headers.push_with(name, |bytes| written = pattern.write(row, bytes));
                written.map_err(|problem| format!("its header \"{name}\" {problem}"))?;
            }
        }
        if self.default != Some(DefaultHeaders::None)
            && let Some(object) = row.bytes(Place::HEADERS)
        {
            own_headers(object, headers).map_err(|error| format!("its headers are not a JSON object: {error}"))?;
        }
        if self.default.is_none() { maker.approve(headers) } else { Ok(()) }
    }
}

/// The headers that our own records have without being asked; a NULL column gives none.
pub(super) fn default(which: DefaultHeaders, row: &Row<'_>, headers: &mut Headers) {
    let (parts, with_position) = match which {
        DefaultHeaders::All => (&PARTS[..], true),
        DefaultHeaders::Id => (&PARTS[..1], false),
        DefaultHeaders::None => (&[][..], false),
    };
    for (name, place) in parts {
        if let Some(value) = row.bytes(*place) {
            headers.push(name, Some(value));
        }
    }
    if with_position {
        headers.push_with("lsn", |bytes| row.position.write_to(bytes));
    }
}

/// The members of the row's own headers object.
fn own_headers(members: &[u8], headers: &mut Headers) -> serde_json::Result<()> {
    object::each(members, |name, raw| object::push(headers, name, raw))
}
