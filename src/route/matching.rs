//! Which rows a route is for: a column's bytes enter, yes or no leaves.

use regex::bytes::Regex;

use crate::config::Match;

/// What a column's text must be.
#[derive(Debug)]
pub(super) enum Matcher {
    Is(String),
    /// Literals with `*` between them.
    Glob(Vec<String>),
    Regex(Regex),
    Any(Vec<Matcher>),
}

impl Matcher {
    pub(super) fn new(rule: &Match) -> Matcher {
        match rule {
            Match::Is(text) => Matcher::Is(text.clone()),
            Match::Glob(text) => Matcher::Glob(text.split('*').map(str::to_owned).collect()),
            Match::Regex(regex) => Matcher::Regex(regex.clone()),
            Match::Any(rules) => Matcher::Any(rules.iter().map(Matcher::new).collect()),
        }
    }

    pub(super) fn fits(&self, text: &[u8]) -> bool {
        match self {
            Matcher::Is(wanted) => text == wanted.as_bytes(),
            Matcher::Glob(parts) => glob_fits(parts, text),
            Matcher::Regex(regex) => regex.is_match(text),
            Matcher::Any(rules) => rules.iter().any(|rule| rule.fits(text)),
        }
    }
}

fn glob_fits(parts: &[String], text: &[u8]) -> bool {
    let (first, rest) = parts.split_first().expect("splitting gives at least one part");
    let Some(mut text) = text.strip_prefix(first.as_bytes()) else { return false };
    let Some((last, middle)) = rest.split_last() else { return text.is_empty() };
    for part in middle {
        let Some(at) = find(text, part.as_bytes()) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last.as_bytes())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { Some(0) } else { text.windows(part.len()).position(|window| window == part) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rule_is_exact_a_list_a_glob_or_a_regex() {
        let list = Match::Any(vec![Match::Is("a".into()), Match::Glob("b.*".into())]);
        let regex = Match::Regex(Regex::new("^o.*d$").unwrap());
        for (rule, fits, fits_not) in [
            (Match::Is("a*".into()), "a*", "ab"),
            (list.clone(), "a", "c"),
            (list, "b.c", "b"),
            (regex.clone(), "order.paid", "order.paid!"),
            (Match::Regex(Regex::new("paid").unwrap()), "order.paid.x", "order"),
        ] {
            let matcher = Matcher::new(&rule);
            assert!(matcher.fits(fits.as_bytes()) && !matcher.fits(fits_not.as_bytes()), "{rule:?}");
        }
        assert!(!Matcher::new(&regex).fits(&[0xFF]));
    }

    fn glob_of(text: &str) -> Matcher {
        Matcher::new(&Match::Glob(text.to_owned()))
    }

    #[test]
    fn globs_match_whole_texts() {
        for (glob, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*b*", "abc", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("**", "x", true),
            ("order.*", "order", false),
            ("*.paid", "order.paid.paid", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(glob_of(glob).fits(text.as_bytes()), fits, "{glob} on {text}");
        }
    }

    fn naive(glob: &[u8], text: &[u8]) -> bool {
        match glob.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some((byte, rest)) => text.split_first().is_some_and(|(first, text)| first == byte && naive(rest, text)),
        }
    }

    proptest! {
        #[test]
        fn globs_agree_with_a_naive_matcher(glob in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(glob_of(&glob).fits(text.as_bytes()), naive(glob.as_bytes(), text.as_bytes()));
        }
    }
}
