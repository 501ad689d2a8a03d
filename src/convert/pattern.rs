//! The router's topic pattern: a Java expression that must compile here, and a replacement that may name only its groups.

use std::collections::BTreeMap;

use regex::Regex;

use super::settings::Setting;
use super::{Finding, Work};

const REGEX: (&str, &str) = ("route.topic.regex", "(?<routedByValue>.*)");
const REPLACEMENT: (&str, &str) = ("route.topic.replacement", "outbox.event.${routedByValue}");

/// The options that cannot be used as they are; why is told.
pub fn check(work: &mut Work, options: &BTreeMap<String, Setting>) -> Vec<&'static str> {
    let read = |(name, default): (&str, &str)| match options.get(name) {
        Some(setting) => (setting.origin.clone(), setting.value.text()),
        None => (name.to_owned(), Some(default.to_owned())),
    };
    let ((origin, pattern), (replacement_origin, replacement)) = (read(REGEX), read(REPLACEMENT));
    let (Some(pattern), Some(replacement)) = (pattern, replacement) else { return Vec::new() };
    let both = vec![REGEX.0, REPLACEMENT.0];
    let Some(regex) = whole(&pattern) else {
        let message = "outboxd cannot compile this Java expression: it has no look-around, back references, possessive quantifiers \
                       or atomic groups";
        work.lost(Finding::new(origin, message).hint("write it without, or say topics by [[route]]"));
        return both;
    };
    let missing: Vec<String> = groups(&replacement).into_iter().filter(|group| !has(&regex, group)).collect();
    for group in &missing {
        let message =
            format!("names the group \"{group}\", which route.topic.regex does not have: Debezium fails, too");
        work.lost(Finding::new(&replacement_origin, message));
    }
    if missing.is_empty() { Vec::new() } else { both }
}

/// A pattern for the whole of a text, as Java's `matches()`; `None` when it does not compile here, or into something else.
pub fn whole(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok().filter(|_| !means_otherwise(pattern))
}

/// True for what compiles here and means something else in Java: possessive quantifiers, `--` and `~~` in a class, `\<`, `\>`.
fn means_otherwise(pattern: &str) -> bool {
    let mut chars = pattern.chars().peekable();
    let (mut quantified, mut depth) = (false, 0_usize);
    while let Some(char) = chars.next() {
        let next = chars.peek().copied();
        match char {
            '\\' if matches!(next, Some('<' | '>')) => return true,
            '\\' => {
                chars.next();
                quantified = false;
            }
            '[' => depth += 1,
            ']' => {
                depth = depth.saturating_sub(1);
                quantified = false;
            }
            '-' | '~' if depth > 0 && next == Some(char) => return true,
            '+' if depth == 0 && quantified => return true,
            '*' | '+' | '?' | '}' if depth == 0 => quantified = true,
            _ => quantified = false,
        }
    }
    false
}

fn has(regex: &Regex, group: &str) -> bool {
    match group.parse::<usize>() {
        Ok(number) => number < regex.captures_len(),
        Err(_) => regex.capture_names().flatten().any(|name| name == group),
    }
}

/// The groups that a replacement of Java's `Matcher` names: `${name}` and `$1`; a backslash takes the next sign as it is.
fn groups(replacement: &str) -> Vec<String> {
    let mut groups = Vec::new();
    let mut chars = replacement.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', _) => drop(chars.next()),
            ('$', Some('{')) => groups.push(chars.by_ref().skip(1).take_while(|char| *char != '}').collect()),
            // More digits belong to the number only while there is such a group; the first one must name one.
            ('$', Some(digit)) if digit.is_ascii_digit() => groups.push(digit.to_string()),
            _ => {}
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_replacement_are_found_as_java_finds_them() {
        for (replacement, expected) in [
            ("outbox.event.${routedByValue}", &["routedByValue"][..]),
            ("$1.$2", &["1", "2"]),
            (r"\$1.\\$3", &["3"]),
            ("plain", &[]),
            ("a$", &[]),
        ] {
            assert_eq!(groups(replacement), expected, "{replacement}");
        }
    }

    #[test]
    fn what_only_java_compiles_is_refused() {
        for (pattern, compiles) in [
            ("(?<routedByValue>.*)", true),
            (r"(\w+)\.(\d+)", true),
            ("[a-z&&[^x]]+", true),
            ("a(?=b)", false),
            ("(?<!a)b", false),
            (r"(a)\1", false),
            ("a*+", false),
            ("(?>a)", false),
            ("a++b", false),
            ("a{2}+", false),
            ("[a-z--b]", false),
            (r"a\<b", false),
            ("(a+)+b*?", true),
            (r"\++[*+]+", true),
            (r"\Qa.b\E", false),
            ("(", false),
        ] {
            assert_eq!(whole(pattern).is_some(), compiles, "{pattern}");
        }
    }
}
