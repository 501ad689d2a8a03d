//! A record's headers: the default ones, those that a route adds, and the members of the row's own headers object.

use super::object;
use super::pattern::Pattern;
use super::preset::Maker;
use super::template::Template;
use crate::config;
use crate::config::{DefaultHeaders, TemplateSet};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};
use crate::trace::push_trace;

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
    rendered: Vec<(String, Template)>,
    trace: Option<Place>,
}

impl HeaderRules {
    pub(super) fn new(route: &config::Route, templates: Option<&TemplateSet>, layout: &mut Layout) -> HeaderRules {
        let compile = |pattern, layout: &mut Layout| Pattern::new(pattern, &route.rewrites, layout);
        let more = route.headers.iter().map(|(name, pattern)| (name.clone(), compile(pattern, layout))).collect();
        let render = |name: &String, layout: &mut Layout| Template::new(templates, name, layout);
        let rendered = route.header_templates.iter();
        HeaderRules {
            default: route.default_headers,
            more,
            rendered: rendered.map(|(header, name)| (header.clone(), render(name, layout))).collect(),
            trace: route.trace.as_ref().map(|name| layout.place(name)),
        }
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
        for (name, template) in &self.rendered {
            let mut written = Ok(());
            headers.push_with(name, |bytes| written = template.write(row, bytes));
            written.map_err(|problem| format!("its header \"{name}\" cannot be rendered: {problem}"))?;
        }
        if let Some(context) = self.trace.and_then(|place| row.bytes(place)) {
            push_trace(context, headers);
        }
        if self.default != Some(DefaultHeaders::None)
            && let Some(object) = row.bytes(Place::HEADERS)
        {
            own_headers(object, headers).map_err(|error| format!("its headers are not a JSON object: {error}"))?;
        }
        Ok(())
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
            headers.push_constant(name, |bytes| bytes.extend_from_slice(value));
        }
    }
    if with_position {
        headers.push_constant("lsn", |bytes| row.position.write_to(bytes));
    }
}

/// The members of the row's own headers object.
fn own_headers(members: &[u8], headers: &mut Headers) -> serde_json::Result<()> {
    object::each(members, |name, raw| object::push(headers, name, raw))
}
