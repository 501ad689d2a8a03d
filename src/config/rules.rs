//! `[[route]]` and `[registry]` become `Rules`: what was typed of each route, checked by itself and against the outboxes.

use std::fmt;
use std::sync::Arc;

use regex::bytes::Regex;
use toml::de::{DeTable, DeValue};

use super::document::{Document, Reader};
use super::error::{Fault, Problems};
use super::{
    ContentMode, DefaultHeaders, Match, Outbox, OutboxSource, Pattern, Piece, Route, Rules, Switch, TemplateFiles,
    TemplateSet, Timestamp, Tombstone, Unmatched, ValueForm, attributes, partition_number, rewrite, value,
};
use crate::contract::Contract;
use crate::template::Templates;

/// Kafka takes no longer name for a topic.
const TOPIC_BYTES_MAX: usize = 249;

/// Reads all routes.
pub(super) fn rules(document: &mut Document<'_>, outboxes: &[Outbox], most: u64, problems: &mut Problems) -> Rules {
    let choices = [("default", Unmatched::Default), ("reject", Unmatched::Reject)];
    let unmatched = document.once("registry", problems).choice("unmatched", &choices);
    let mut routes: Vec<Route> = Vec::new();
    for block in document.take("route") {
        let mut reader = Reader::new("route", block, problems);
        let route = route(&mut reader, outboxes);
        let hides =
            |earlier: &Route| earlier.is_catch_all() && (earlier.outbox.is_none() || earlier.outbox == route.outbox);
        if routes.iter().any(hides) {
            reader.refuse_block(
                Fault::new("is never reached: a route above matches every row")
                    .hint("move the route without match to the end"),
            );
        }
        routes.push(route);
    }
    let templates = templates(document.once("templates", problems), &routes, most);
    Rules { routes, unmatched, templates: templates.map(|templates| TemplateSet { templates, most }) }
}

/// Where templates are, whether routes name one or not.
pub(super) fn template_files(reader: &mut Reader<'_, '_>, most: u64) -> TemplateFiles {
    let directory = reader.path("directory").expect("it has a default");
    let contexts = reader.map("contexts", |_, typed| value::text(typed)).into_iter().collect();
    TemplateFiles { directory, contexts, most }
}

/// Compiles the directory of templates, if a route names one of them.
fn templates(mut reader: Reader<'_, '_>, routes: &[Route], most: u64) -> Option<Arc<Templates>> {
    let TemplateFiles { directory, contexts, .. } = template_files(&mut reader, most);
    let mut names = routes.iter().flat_map(Route::templates).peekable();
    names.peek()?;
    match Templates::load(&directory, names, &contexts) {
        Ok(templates) => Some(Arc::new(templates)),
        Err(fault) => {
            reader.refuse("directory", Fault::new(fault.to_string()));
            None
        }
    }
}

fn route(reader: &mut Reader<'_, '_>, outboxes: &[Outbox]) -> Route {
    let topic = reader.typed_pattern("topic");
    if let Some(Err(fault)) = topic.as_ref().map(topic_name) {
        reader.refuse("topic", fault);
    }
    let partition = reader.typed_pattern("partition");
    if let Some(fault) = partition.as_ref().and_then(no_partition) {
        reader.refuse("partition", fault);
    }
    let switch = if reader.boolean("enabled") { Switch::On } else { Switch::Off };
    let defaults = [("all", DefaultHeaders::All), ("id", DefaultHeaders::Id), ("none", DefaultHeaders::None)];
    let route = Route {
        outbox: reader.read("outbox", |typed| outbox(&value::text(typed)?, outboxes)),
        matches: reader.map("match", |_, typed| matching(typed)),
        switch,
        topic,
        key: reader.typed_pattern("key"),
        partition,
        timestamp: reader.place("timestamp").and_then(|_| reader.read("timestamp", timestamp)),
        default_headers: reader.typed_choice("default_headers", &defaults),
        headers: reader.map("headers", |_, typed| Pattern::parse(&value::any_text(typed)?)),
        key_template: key_template(reader),
        header_templates: reader.map("header_templates", |_, typed| value::text(typed)),
        rewrites: reader.map("rewrite", |_, typed| rewrite::read(typed)),
        value: value_form(reader),
        trace: reader.text("trace"),
        schema: schema(reader),
        tombstone: reader.typed_choice("tombstone", &[("null", Tombstone::Null), ("empty", Tombstone::Empty)]),
        aggregate_type: reader.text("aggregate_type"),
        require: reader.list("require"),
    };
    for (field, fault) in attributes::doubled(&route) {
        reader.refuse(field, fault);
    }
    route
}

fn value_form(reader: &mut Reader<'_, '_>) -> Option<ValueForm> {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Word {
        Payload,
        Envelope,
        CloudEvents(ContentMode),
    }
    let words = [
        ("payload", Word::Payload),
        ("envelope", Word::Envelope),
        ("cloudevents-binary", Word::CloudEvents(ContentMode::Binary)),
        ("cloudevents-structured", Word::CloudEvents(ContentMode::Structured)),
    ];
    let word = reader.typed_choice("value", &words);
    let members = reader.map("envelope", |_, typed| value::text(typed));
    if word != Some(Word::Envelope) && reader.place("envelope").is_some() {
        reader.refuse("envelope", Fault::new("is set, and value is not \"envelope\"").hint("value = \"envelope\""));
    }
    if members.iter().any(|(name, _)| name == "payload") {
        reader.refuse("envelope", Fault::new("has a member payload, which is the payload itself"));
    }
    let mode = match word {
        Some(Word::CloudEvents(mode)) => Some(mode),
        Some(Word::Payload | Word::Envelope) | None => None,
    };
    let attributes = match reader.table("cloudevents") {
        Some(mut table) => attributes::read(&mut table, mode),
        None => attributes::read(&mut reader.empty_table("cloudevents"), mode),
    };
    if mode.is_none() && reader.place("cloudevents").is_some() {
        let hint = "value = \"cloudevents-binary\" or \"cloudevents-structured\"";
        reader.refuse("cloudevents", Fault::new("is set, and value is not a CloudEvent").hint(hint));
    }
    if let Some(name) = reader.text("template") {
        if word.is_some() {
            reader.refuse("template", Fault::new("is set, and so is value").hint("keep one of the two"));
        }
        return Some(ValueForm::Template(name));
    }
    Some(match word? {
        Word::Payload => ValueForm::Payload,
        Word::Envelope => ValueForm::Envelope(members),
        Word::CloudEvents(mode) => ValueForm::CloudEvents(mode, attributes),
    })
}

fn key_template(reader: &mut Reader<'_, '_>) -> Option<String> {
    let name = reader.text("key_template");
    if name.is_some() && reader.place("key").is_some() {
        reader.refuse("key_template", Fault::new("is set, and so is key").hint("keep one of the two"));
    }
    name
}

fn schema(reader: &mut Reader<'_, '_>) -> Option<Arc<Contract>> {
    let place = reader.place("schema").unwrap_or(reader.start());
    reader.read("schema", |typed| {
        let path = place.path(&value::text(typed)?);
        Contract::load(&path).map(Arc::new).map_err(|fault| {
            let told = Fault::new(fault.what);
            fault.hint.into_iter().fold(told, Fault::hint)
        })
    })
}

/// The configured outbox of this name.
fn outbox(text: &str, outboxes: &[Outbox]) -> Result<OutboxSource, Fault> {
    Outbox::find(outboxes, text).map(|outbox| outbox.source.clone()).ok_or_else(|| {
        let known: Vec<String> = outboxes.iter().map(|outbox| outbox.source.to_string()).collect();
        Fault::new(format!("no [[outbox]] has the table or message_prefix \"{text}\""))
            .hint(format!("known: {}", known.join(", ")))
    })
}

fn matching(typed: &DeValue<'_>) -> Result<Match, Fault> {
    match typed {
        DeValue::String(text) => Ok(glob(text)),
        DeValue::Array(items) => match items.is_empty() {
            true => Err(Fault::new("is an empty list, which nothing matches")),
            false => items.iter().map(|item| matching(item.get_ref())).collect::<Result<_, _>>().map(Match::Any),
        },
        DeValue::Table(table) => match (table.len(), member(table, "is"), member(table, "regex")) {
            (1, Some(text), None) => value::any_text(text).map(Match::Is),
            (1, None, Some(text)) => compile(&value::text(text)?).map(Match::Regex),
            _ => Err(Fault::new("is a table with other members than one of is and regex")
                .hint("write { is = \"text\" } or { regex = \"text\" }")),
        },
        other => Err(value::expected("a glob, a list, { is = … } or { regex = … }", other)),
    }
}

fn glob(text: &str) -> Match {
    if text.contains('*') { Match::Glob(text.to_owned()) } else { Match::Is(text.to_owned()) }
}

pub(super) fn member<'a, 'd>(table: &'a DeTable<'d>, name: &str) -> Option<&'a DeValue<'d>> {
    table.get(name).map(|typed| typed.get_ref())
}

pub(super) fn compile(text: &str) -> Result<Regex, Fault> {
    Regex::new(text).map_err(|error| {
        // Its own message draws a picture of several lines; the last one says what is wrong.
        let what = error.to_string();
        let what = what.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Fault::new(format!("\"{text}\" is not a regular expression: {what}"))
            .hint("the syntax is that of Rust's regex crate: no look-around, no back-references")
    })
}

fn timestamp(typed: &DeValue<'_>) -> Result<Timestamp, Fault> {
    let text = value::text(typed)?;
    Ok(match text.as_str() {
        "event" => Timestamp::Event,
        "commit" => Timestamp::Commit,
        "now" => Timestamp::Now,
        _ => match Pattern::parse(&text)?.pieces.as_slice() {
            [Piece::Column(name)] => Timestamp::Column(name.clone()),
            _ => {
                return Err(Fault::new(format!("\"{text}\" is not one of the choices"))
                    .hint("\"event\", \"commit\", \"now\" or \"{column}\""));
            }
        },
    })
}

/// Every event id is a key of its own: nothing would ever be parked behind anything.
pub(super) fn keyed_by_id(rules: &Rules, outboxes: &[Outbox]) -> Option<Fault> {
    let is_id = |name: &str| name == "id" || outboxes.iter().any(|outbox| outbox.columns.id == name);
    let by_itself = |of: Option<&OutboxSource>| {
        let mut concerned = outboxes.iter().filter(|outbox| of.is_none_or(|source| *source == outbox.source));
        concerned.any(|outbox| !outbox.preset.keeps_order())
    };
    let by_id = |route: &Route| match &route.key {
        Some(key) => key.names().into_iter().any(is_id),
        None => by_itself(route.outbox.as_ref()),
    };
    let is_caught = rules.unmatched == Unmatched::Reject || rules.routes.iter().any(Route::is_catch_all);
    (rules.routes.iter().any(by_id) || !is_caught && by_itself(None)).then(|| {
        Fault::new("\"park-key\" keeps the order of a key, and with the event id as key every event has its own")
            .hint("set key = \"{aggregate_id}\" in every [[route]], and one [[route]] without match at the end")
    })
}

/// Why a partition that is the same for every row is none.
fn no_partition(partition: &Pattern) -> Option<Fault> {
    let is_wrong = match partition.constant() {
        Some(text) => partition_number(text).is_none(),
        // Whatever a column brings, it brings no number with this beside it.
        None => partition.texts().into_iter().flat_map(str::chars).any(|char| !char.is_ascii_digit() && char != '+'),
    };
    let fault = Fault::new(format!("\"{partition}\" is not a partition number"));
    is_wrong.then(|| fault.hint("a whole number, 0 or more, or a column of such: \"{shard}\""))
}

/// What stands in a topic's pattern must be what Kafka allows; what a column brings is checked with each row.
pub(super) fn topic_name(topic: &Pattern) -> Result<(), Fault> {
    topic_pieces(topic)?;
    topic.constant().map_or(Ok(()), whole_topic)
}

fn topic_pieces(topic: &Pattern) -> Result<(), Fault> {
    let mut texts = Vec::new();
    for piece in &topic.pieces {
        match piece {
            Piece::Literal(text) => texts.push(text.as_str()),
            Piece::Fallback(_, otherwise) => topic_pieces(otherwise)?,
            Piece::Column(_) => {}
        }
    }
    topic_texts(&texts, topic)
}

/// Texts that are part of a topic's name, whatever stands between them; `shown` is how the name was typed.
pub(super) fn topic_texts(texts: &[&str], shown: impl fmt::Display) -> Result<(), Fault> {
    let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
    let hint = if !texts.iter().all(|text| text.chars().all(allowed)) {
        "a topic's name has letters, digits, \".\", \"_\" and \"-\""
    } else if texts.iter().map(|text| text.len()).sum::<usize>() > TOPIC_BYTES_MAX {
        "a topic's name has at most 249 characters"
    } else {
        return Ok(());
    };
    Err(Fault::new(format!("\"{shown}\" cannot be a topic's name")).hint(hint))
}

/// A topic's name of which no row changes anything.
pub(super) fn whole_topic(name: &str) -> Result<(), Fault> {
    match name {
        "" | "." | ".." => Err(Fault::new(format!("\"{name}\" cannot be a topic's name"))
            .hint("Kafka has no topic whose name is empty, \".\" or \"..\"")),
        _ => Ok(()),
    }
}
