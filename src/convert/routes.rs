//! The chain of transforms: which of them are outbox routers, and for which topics. All others are lost.

use regex::bytes::Regex;

use super::settings::Setting;
use super::{Finding, Work};
use crate::config::debezium::java;

const ROUTER: &str = "io.debezium.transforms.outbox.EventRouter";
const TOPIC_MATCHES: &str = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches";

/// What to use instead of other people's transforms, by the end of their class.
static INSTEAD: [(&str, &str); 13] = [
    (".RegexRouter", "say the topic by route.topic.replacement, or by topic in a [[route]]"),
    (".ByLogicalTableRouter", "say the topic by route.topic.replacement, or by topic in a [[route]]"),
    (".TimestampRouter", "a topic cannot depend on the time here; say it by topic in a [[route]]"),
    (".InsertHeader", "write the header into headers of a [[route]]"),
    (".InsertHeader$Value", "write the header into headers of a [[route]]"),
    (".HeaderFrom$Value", "place the column as a header: table.fields.additional.placement"),
    (".HeaderFrom$Key", "place the column as a header: table.fields.additional.placement"),
    (".Filter", "outboxd drops no event: write none that is not wanted, or give it a topic of its own in a [[route]]"),
    (".ValueToKey", "name the key's column by table.field.event.key"),
    (".ExtractField$Value", "name the payload's column by table.field.event.payload"),
    (".DecodeLogicalDecodingMessageContent", "an [[outbox]] with message_prefix reads logical messages"),
    (".InsertField$Value", "place the column into the envelope, or render the value by a template"),
    (".ReplaceField$Value", "render the value by a template of a [[route]]"),
];

/// What it is good for depends on where it stands.
const UNWRAP: &str = ".ExtractNewRecordState";
const UNWRAP_BEHIND: &str = "behind the outbox router it does nothing: leave it out";
const UNWRAP_BEFORE: &str =
    "unusual before the outbox router, which needs the envelope; outboxd does the router's part: leave it out";

/// Where a transform stands in the chain.
#[derive(Clone, Copy)]
enum Stand {
    /// An outbox router comes later.
    Before,
    /// All of them were before.
    Behind,
    /// There is none.
    Alone,
}

/// One outbox router of the chain.
#[derive(Debug)]
pub struct Router {
    /// Its options, without their common start.
    pub options: Vec<(String, Setting)>,
    /// For which topics of the connector.
    pub when: When,
}

/// For which topics of the connector a transform works.
#[derive(Debug)]
pub enum When {
    /// For all.
    Always,
    /// For those that match the whole of it, or for the others.
    Topic {
        /// The pattern, for the whole name.
        matches: Regex,
        /// `negate`
        negated: bool,
    },
    /// Nobody can tell; said already.
    Unclear,
}

/// The outbox routers, in order.
pub fn read(work: &mut Work) -> Vec<Router> {
    let chain = work.settings.take("transforms");
    let predicates = work.settings.take("predicates").map(|list| list.list()).unwrap_or_default();
    let mut routers = Vec::new();
    let aliases = chain.as_ref().map(Setting::list).unwrap_or_default();
    let is_router = |alias: &String| {
        let class = work.settings.get(&format!("transforms.{alias}.type")).and_then(Setting::text);
        class.is_some_and(|class| is_class(&class, ROUTER))
    };
    let last_router = aliases.iter().rposition(is_router);
    for (at, alias) in aliases.iter().enumerate() {
        let stand = match last_router {
            Some(last) if at < last => Stand::Before,
            Some(_) => Stand::Behind,
            None => Stand::Alone,
        };
        let start = format!("transforms.{alias}.");
        let class = work.settings.take(&format!("{start}type"));
        let predicate = work.settings.take(&format!("{start}predicate"));
        let negated = work.settings.take(&format!("{start}negate")).is_some_and(|negate| negate.is("true"));
        let options = work.settings.take_under(&start);
        match class.as_ref().map(|class| (class, class.text().unwrap_or_default())) {
            Some((_, class)) if is_class(&class, ROUTER) => {
                let when = match predicate {
                    None => When::Always,
                    Some(predicate) => when(work, &predicate, negated),
                };
                routers.push(Router { options, when });
            }
            Some((setting, class)) => other(work, setting, alias, &class, predicate.is_some(), stand),
            None => work.lost(Finding::new(format!("{start}type"), "not set: nobody knows what this transform does")),
        }
    }
    for alias in predicates {
        work.settings.take_under(&format!("predicates.{alias}."));
    }
    for (_, setting) in
        work.settings.take_under("transforms.").into_iter().chain(work.settings.take_under("predicates."))
    {
        work.not_needed(setting.origin, "belongs to no transform or predicate that is in use");
    }
    if routers.is_empty() {
        let message = format!(
            "none of them is {ROUTER}: Debezium publishes changes of tables, outboxd publishes events of an outbox"
        );
        let origin = chain.map_or("transforms".to_owned(), |chain| chain.origin);
        work.lost(Finding::new(origin, message));
    }
    routers
}

impl When {
    /// Whether it works for this topic; `None` when nobody can tell.
    pub fn applies(&self, topic: Option<&str>) -> Option<bool> {
        match self {
            When::Always => Some(true),
            When::Topic { matches, negated } => Some(matches.is_match(topic?.as_bytes()) != *negated),
            When::Unclear => None,
        }
    }
}

/// Connect takes the class's name alone as well.
fn is_class(typed: &str, class: &str) -> bool {
    class == typed || class.rsplit('.').next() == Some(typed)
}

fn other(work: &mut Work, setting: &Setting, alias: &str, class: &str, conditional: bool, stand: Stand) {
    let under = if conditional { ", under a predicate," } else { "" };
    let finding = Finding::new(&setting.origin, format!("the transform {alias} ({class}){under} has no counterpart"));
    work.lost(match instead(class, stand) {
        Some(instead) => finding.hint(instead),
        None => finding,
    });
}

fn instead(class: &str, stand: Stand) -> Option<&'static str> {
    match stand {
        Stand::Before if class.ends_with(UNWRAP) => Some(UNWRAP_BEFORE),
        Stand::Behind if class.ends_with(UNWRAP) => Some(UNWRAP_BEHIND),
        Stand::Before | Stand::Behind | Stand::Alone => {
            INSTEAD.iter().find(|(end, _)| class.ends_with(end)).map(|(_, instead)| *instead)
        }
    }
}

fn when(work: &mut Work, predicate: &Setting, negated: bool) -> When {
    let alias = predicate.text().unwrap_or_default();
    let class = work.settings.get(&format!("predicates.{alias}.type")).and_then(Setting::text).unwrap_or_default();
    let expression = work.settings.get(&format!("predicates.{alias}.pattern")).and_then(|pattern| pattern.value.text());
    let hint = "write one [[outbox]] for each table that is to be published";
    if !is_class(&class, TOPIC_MATCHES) {
        let message = format!("the predicate {alias} ({class}) has no counterpart");
        work.lost(Finding::new(&predicate.origin, message).hint(hint));
        return When::Unclear;
    }
    match expression.as_deref().map(java::whole) {
        Some(Ok(matches)) => When::Topic { matches, negated },
        Some(Err(fault)) => {
            let message = format!("the pattern of the predicate {alias} {}", fault.what);
            work.lost(Finding::new(&predicate.origin, message).hint(hint));
            When::Unclear
        }
        None => {
            let message = format!("the predicate {alias} has no pattern that can be read here");
            work.lost(Finding::new(&predicate.origin, message).hint(hint));
            When::Unclear
        }
    }
}
