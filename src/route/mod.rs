//! Rows become records: a total function from `Row` to `Record` or `Rejected`.
//!
//! Routes are compiled once for each outbox, because what a route does not say is as that outbox has it by itself; the first
//! that matches wins, and what the outbox does by itself stands behind them all. Topic, key, headers and value are written into
//! buffers that the next row uses again; a payload that is published as it is, is not copied.

mod cloudevents;
mod debezium;
mod headers;
mod json;
mod matching;
mod object;
mod pattern;
mod preset;
mod sample;
mod system;
mod template;
mod value;

use std::sync::Arc;

use crate::config;
use crate::config::{Switch, TemplateSet, Timestamp, Unmatched};
use crate::contract::Contract as Schema;
use crate::dead_letter::{Lane, SWITCHED_OFF};
use crate::record::{Headers, Record, Rejected};
use crate::source::outbox::{Layout, Place, Row, unix_ms};
use headers::HeaderRules;
use matching::Matcher;
use pattern::Pattern;
use preset::Maker;
pub use sample::sample;
use template::Template;
use value::{Buffers, Value, ValueRules};

/// The compiled routes.
#[derive(Debug)]
pub struct Router {
    outboxes: Vec<Rulebook>,
    draft: Draft,
}

/// What becomes of the rows of one `[[outbox]]` block.
#[derive(Debug)]
struct Rulebook {
    /// The last one fits every row.
    routes: Vec<Route>,
    /// What routes leave open.
    maker: Maker,
}

/// A record in the making.
#[derive(Debug, Default)]
struct Draft {
    topic: Vec<u8>,
    /// The last one that was found valid: most topics are the same as the one before.
    valid_topic: String,
    key: Vec<u8>,
    value: Buffers,
    number: Vec<u8>,
    headers: Headers,
}

#[derive(Debug)]
struct Route {
    matches: Vec<(Place, Matcher)>,
    verdict: Verdict,
    contract: Contract,
    /// What is `None` here and below is for the maker to say.
    topic: Option<Pattern>,
    key: Option<Key>,
    partition: Option<Pattern>,
    timestamp: Option<Time>,
    headers: HeaderRules,
    value: Option<ValueRules>,
}

/// Where a key comes from.
#[derive(Debug)]
enum Key {
    Pattern(Pattern),
    Template(Template),
}

/// What becomes of a row that a route fits.
#[derive(Debug)]
enum Verdict {
    Publish,
    /// The route, as people know it, is switched off.
    SwitchedOff(String),
    /// No route of the configuration's fits.
    Unmatched,
}

/// What a row must be like.
#[derive(Debug)]
struct Contract {
    aggregate_type: Option<String>,
    require: Vec<(Place, String)>,
    schema: Option<Arc<Schema>>,
}

#[derive(Debug, Clone, Copy)]
enum Time {
    Column(Place),
    Commit,
    Now,
}

impl Router {
    /// Compiles the routes; `layout` learns which columns they need.
    pub fn new(rules: &config::Rules, outboxes: &[config::Outbox], layout: &mut Layout) -> Router {
        let default = config::Route::default();
        let compile = |outbox: &config::Outbox| {
            let concerns = |route: &&config::Route| route.outbox.as_ref().is_none_or(|source| *source == outbox.source);
            let mut routes: Vec<Route> = Vec::new();
            layout.turn_to(&outbox.columns);
            for (at, route) in rules.routes.iter().enumerate().filter(|(_, route)| concerns(route)) {
                let mut compiled = Route::new(route, rules.templates.as_ref(), layout);
                if route.switch == Switch::Off {
                    compiled.verdict = Verdict::SwitchedOff(format!("route {} of the configuration", at + 1));
                }
                routes.push(compiled);
            }
            let mut last = Route::new(&default, None, layout);
            if rules.unmatched == Unmatched::Reject {
                last.verdict = Verdict::Unmatched;
            }
            routes.push(last);
            Rulebook { routes, maker: Maker::new(outbox, layout) }
        };
        let outboxes = outboxes.iter().map(compile).collect();
        Router { outboxes, draft: Draft::default() }
    }

    /// The record of a row.
    pub fn route<'a>(&'a mut self, row: &Row<'a>) -> Result<Record<'a>, Rejected> {
        let rejected = |reason, message| row.rejected(reason, message);
        let Rulebook { routes, maker } = &self.outboxes[row.outbox];
        let route = find(routes, row);
        let Draft { topic, valid_topic, key, value, number, headers } = &mut self.draft;
        route.judge(maker, row)?;
        topic.clear();
        route.write_topic(maker, row, topic).map_err(|problem| rejected("topic", format!("its topic {problem}")))?;
        key.clear();
        let has_key = route.write_key(maker, row, key);
        let has_key = has_key.map_err(|problem| rejected("key", format!("its key {problem}")))?;
        if topic.is_empty() || topic.as_slice() != valid_topic.as_bytes() {
            let name = topic_name(topic).map_err(|problem| rejected("topic", problem))?;
            valid_topic.clear();
            valid_topic.push_str(name);
        }
        headers.clear();
        route.headers.write(maker, row, headers).map_err(|problem| rejected("headers", problem))?;
        let timestamp_ms = route.timestamp(maker, row).map_err(|problem| rejected("timestamp", problem))?;
        let partition = route.partition(maker, row, number).map_err(|problem| rejected("partition", problem))?;
        let made = match &route.value {
            Some(rules) => rules.write(maker, row, headers, value),
            None => maker.value(row, &mut value.value),
        };
        let value = match made.map_err(|problem| rejected("value", problem))? {
            Value::None => None,
            Value::Payload(bytes) => Some(bytes),
            Value::Written => Some(value.value.as_slice()),
        };
        let key = has_key.then_some(key.as_slice());
        Ok(Record { topic: valid_topic, partition, key, value, headers, timestamp_ms })
    }

    /// Where the row would go, as far as its route can tell, whatever else is wrong with it.
    pub fn lane(&self, row: &Row<'_>) -> Lane {
        let Rulebook { routes, maker } = &self.outboxes[row.outbox];
        let route = find(routes, row);
        if let Verdict::Unmatched = route.verdict {
            return Lane::default();
        }
        let (mut topic, mut key) = (Vec::new(), Vec::new());
        let topic =
            route.write_topic(maker, row, &mut topic).ok().and_then(|()| topic_name(&topic).ok().map(str::to_owned));
        let has_key = route.write_key(maker, row, &mut key) == Ok(true);
        Lane { topic, key: has_key.then_some(key) }
    }
}

fn find<'r>(routes: &'r [Route], row: &Row<'_>) -> &'r Route {
    match routes {
        [only] => only,
        routes => routes.iter().find(|route| route.fits(row)).expect("the last route fits every row"),
    }
}

impl Route {
    fn new(route: &config::Route, templates: Option<&TemplateSet>, layout: &mut Layout) -> Route {
        let timestamp = route.timestamp.as_ref().map(|timestamp| match timestamp {
            Timestamp::Event => Time::Column(Place::TIMESTAMP),
            Timestamp::Commit => Time::Commit,
            Timestamp::Now => Time::Now,
            Timestamp::Column(name) => Time::Column(layout.place(name)),
        });
        // A CloudEvent's time does not change when it is sent again.
        let time = match timestamp {
            Some(Time::Column(place)) => Some(place),
            Some(Time::Commit) => None,
            Some(Time::Now) | None => Some(Place::TIMESTAMP),
        };
        let pattern = |typed: &Option<config::Pattern>, layout: &mut Layout| {
            typed.as_ref().map(|typed| Pattern::new(typed, &route.rewrites, layout))
        };
        Route {
            matches: route.matches.iter().map(|(name, rule)| (layout.place(name), Matcher::new(rule))).collect(),
            verdict: Verdict::Publish,
            contract: Contract {
                aggregate_type: route.aggregate_type.clone(),
                require: route.require.iter().map(|name| (layout.place(name), name.clone())).collect(),
                schema: route.schema.clone(),
            },
            topic: pattern(&route.topic, layout),
            key: match &route.key_template {
                Some(name) => Some(Key::Template(Template::new(templates, name, layout))),
                None => pattern(&route.key, layout).map(Key::Pattern),
            },
            partition: pattern(&route.partition, layout),
            timestamp,
            headers: HeaderRules::new(route, templates, layout),
            value: ValueRules::new(route, templates, time, layout),
        }
    }

    fn write_topic(&self, maker: &Maker, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match &self.topic {
            Some(pattern) => pattern.write(row, out),
            None => maker.topic(row, out),
        }
    }

    /// False when there is no key.
    fn write_key(&self, maker: &Maker, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        match &self.key {
            Some(Key::Pattern(pattern)) => pattern.write(row, out).map(|()| true),
            Some(Key::Template(template)) => {
                let rendered = template.write(row, out).map(|()| true);
                rendered.map_err(|problem| format!("cannot be rendered: {problem}"))
            }
            None => maker.key(row, out),
        }
    }

    fn fits(&self, row: &Row<'_>) -> bool {
        self.matches.iter().all(|(place, rule)| row.bytes(*place).is_some_and(|text| rule.fits(text)))
    }

    /// Whether the row may be published at all.
    fn judge(&self, maker: &Maker, row: &Row<'_>) -> Result<(), Rejected> {
        match &self.verdict {
            Verdict::Publish => {}
            Verdict::SwitchedOff(route) => {
                return Err(row.rejected(SWITCHED_OFF, format!("{route} is switched off (enabled = false)")));
            }
            Verdict::Unmatched => {
                let what = row
                    .text(Place::EVENT_TYPE)
                    .map_or("an event without a type".to_owned(), |name| format!("event type \"{name}\""));
                return Err(row.rejected("unmatched", format!("no [[route]] matches {what}")));
            }
        }
        let Contract { aggregate_type, require, schema } = &self.contract;
        if let Some(wanted) = aggregate_type
            && row.bytes(Place::AGGREGATE_TYPE) != Some(wanted.as_bytes())
        {
            let found = row.text(Place::AGGREGATE_TYPE).map_or("NULL".to_owned(), |found| format!("\"{found}\""));
            return Err(row.rejected("contract", format!("its aggregate type is {found}, and must be \"{wanted}\"")));
        }
        if let Some((_, name)) = require.iter().find(|(place, _)| row.is_null(*place)) {
            return Err(row.rejected("contract", format!("its {name} is NULL, and must not be")));
        }
        match (schema, row.bytes(Place::PAYLOAD)) {
            (Some(schema), Some(payload)) if !self.takes_for_none(maker, row) => {
                schema.check(payload).map_err(|violation| row.rejected("schema", format!("its payload {violation}")))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Whether the row's payload counts as none although it is not NULL.
    fn takes_for_none(&self, maker: &Maker, row: &Row<'_>) -> bool {
        match &self.value {
            Some(rules) => rules.takes_for_none(maker, row),
            None => maker.takes_for_none(row),
        }
    }

    fn timestamp(&self, maker: &Maker, row: &Row<'_>) -> Result<Option<i64>, String> {
        match self.timestamp {
            Some(Time::Column(place)) => row.timestamp_ms(place).map(Some),
            Some(Time::Commit) => Ok(Some(unix_ms(row.committed_at))),
            Some(Time::Now) => Ok(None),
            None => maker.timestamp(row),
        }
    }

    fn partition(&self, maker: &Maker, row: &Row<'_>, number: &mut Vec<u8>) -> Result<Option<i32>, String> {
        match &self.partition {
            None => maker.partition(row),
            Some(pattern) if pattern.is_null(row) => Ok(None),
            Some(pattern) => {
                number.clear();
                pattern.write(row, number).map_err(|problem| format!("its partition {problem}"))?;
                partition_number(number).map(Some)
            }
        }
    }
}

fn partition_number(bytes: &[u8]) -> Result<i32, String> {
    let text = String::from_utf8_lossy(bytes);
    config::partition_number(&text).ok_or_else(|| format!("its partition \"{text}\" is not a partition number"))
}

/// Kafka's rule for topic names.
fn topic_name(bytes: &[u8]) -> Result<&str, String> {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let valid = (1..=249).contains(&bytes.len()) && bytes != b"." && bytes != b".." && bytes.iter().all(legal);
    std::str::from_utf8(bytes).ok().filter(|_| valid).ok_or_else(|| {
        format!(
            "\"{}\" is not a valid topic name (letters, digits, . _ -, at most 249)",
            String::from_utf8_lossy(bytes)
        )
    })
}

#[cfg(test)]
mod tests;
