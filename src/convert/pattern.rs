//! The router's topic pattern, a Java expression and a replacement: tried as the configuration will read them.

use std::collections::BTreeMap;

use super::settings::Setting;
use super::{Finding, Work};
use crate::config::debezium::{java, topic_replacement};

const REGEX: (&str, &str) = ("route.topic.regex", "(?<routedByValue>.*)");
const REPLACEMENT: (&str, &str) = ("route.topic.replacement", "outbox.event.${routedByValue}");

/// The options that cannot be used as they are; why is told. One without the other would mean something else, so both go.
pub fn check(work: &mut Work, options: &BTreeMap<String, Setting>) -> Vec<&'static str> {
    let both = vec![REGEX.0, REPLACEMENT.0];
    let unread: Vec<&Setting> =
        both.iter().filter_map(|name| options.get(*name)).filter(|setting| setting.value.text().is_none()).collect();
    for setting in &unread {
        work.lost(not_looked_up(setting));
    }
    if !unread.is_empty() {
        return both;
    }
    let read = |(name, default): (&str, &str)| match options.get(name) {
        Some(setting) => (setting.origin.clone(), setting.value.text().unwrap_or_default()),
        None => (name.to_owned(), default.to_owned()),
    };
    let ((origin, pattern), (replacement_origin, replacement)) = (read(REGEX), read(REPLACEMENT));
    let (origin, fault) = match java::regex(&pattern) {
        Err(fault) => (origin, fault),
        Ok(regex) => match topic_replacement(&pattern, &regex, &replacement) {
            Err(fault) => (replacement_origin, fault),
            Ok(_) => return Vec::new(),
        },
    };
    let hint = fault.hint.map_or("say the topic by topic in a [[route]]".to_owned(), |hint| {
        format!("{hint}; or say the topic by topic in a [[route]]")
    });
    work.lost(Finding::new(origin, fault.what).hint(hint));
    both
}

/// A value that only the worker could look up.
pub fn not_looked_up(setting: &Setting) -> Finding {
    let shown = setting.value.shown();
    Finding::new(&setting.origin, format!("is {shown}, which outboxd does not look up: write the value in"))
}
