//! `route.rewrite`: a value that patterns can show by a name of its own. TOML enters, a `Rewrite` leaves, whose replacement
//! names only groups that its expression has.

use regex::bytes::Regex;
use toml::de::DeValue;

use super::error::Fault;
use super::rules::{compile, member};
use super::{Rewrite, value};

const DOLLAR: &str = "a dollar sign itself is $$";

/// Reads one member of the table.
pub(super) fn read(typed: &DeValue<'_>) -> Result<Rewrite, Fault> {
    let hint = "write { column = \"aggregate_type\", regex = \"Event$\", with = \"\" }";
    let DeValue::Table(table) = typed else { return Err(value::expected("a table", typed).hint(hint)) };
    match (table.len(), member(table, "column"), member(table, "regex"), member(table, "with")) {
        (3, Some(column), Some(regex), Some(with)) => {
            let (column, regex) = (value::text(column)?, compile(&value::text(regex)?)?);
            let with = value::any_text(with)?;
            check(&with, &regex)?;
            Ok(Rewrite { column, regex, with })
        }
        _ => Err(Fault::new("has not the members column, regex and with").hint(hint)),
    }
}

/// Reads the replacement as the `regex` crate does, which takes a group that is not there for an empty text.
fn check(with: &str, regex: &Regex) -> Result<(), Fault> {
    let mut rest = with;
    while let Some((_, behind)) = rest.split_once('$') {
        rest = match behind.chars().next() {
            Some('$') => &behind[1..],
            Some('{') => {
                let Some((name, after)) = behind[1..].split_once('}') else {
                    return Err(Fault::new(format!("with = \"{with}\" has a ${{ without its }}")).hint(DOLLAR));
                };
                known(name, with, regex)?;
                after
            }
            Some(_) | None => {
                let end = behind.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
                let (name, after) = behind.split_at(end.unwrap_or(behind.len()));
                // Before anything else a dollar sign is itself.
                if !name.is_empty() {
                    known(name, with, regex)?;
                }
                after
            }
        };
    }
    Ok(())
}

fn known(name: &str, with: &str, regex: &Regex) -> Result<(), Fault> {
    if is_group(name, regex) {
        return Ok(());
    }
    let fault = Fault::new(format!("with = \"{with}\" names the group \"{name}\", which the regex has not"));
    let mut cuts = (1..name.len()).rev().filter_map(|end| name.split_at_checked(end));
    if let Some((group, more)) = cuts.find(|(group, _)| is_group(group, regex)) {
        let why = "without braces a name goes on as far as letters, digits and \"_\" do";
        return Err(fault.hint(format!("write ${{{group}}}{more}: {why}")));
    }
    let groups = regex.capture_names().enumerate().map(|(number, name)| match name {
        Some(name) => format!("${{{name}}}"),
        None => format!("${number}"),
    });
    Err(fault.hint(format!("known here: {}; {DOLLAR}", groups.collect::<Vec<_>>().join(", "))))
}

fn is_group(name: &str, regex: &Regex) -> bool {
    match name.parse::<usize>() {
        Ok(number) => number < regex.captures_len(),
        Err(_) => regex.capture_names().flatten().any(|known| known == name),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_replacement_names_groups_that_are_there() {
        let regex = Regex::new(r"^(\w+)\.(?<what>\w+)$").unwrap();
        for with in
            ["", "x", "$1", "${1}_v2", "$what.$0", "${2}-$$3", "$$nope", "$$${what}s", "US$", "$ 5", "$-", "é$1é"]
        {
            assert_eq!(check(with, &regex), Ok(()), "{with}");
        }
        for (with, group, hint) in [
            ("$1_v2", "1_v2", "write ${1}_v2: without braces a name goes on"),
            ("a.$whatever", "whatever", "write ${what}ever: "),
            ("$$$12", "12", "write ${1}2: "),
            ("${1_v2}", "1_v2", "write ${1}_v2: "),
            ("$3", "3", "known here: $0, $1, ${what}; a dollar sign itself is $$"),
            ("${nope}", "nope", "known here: $0, $1, ${what}; "),
            ("${}", "", "known here: "),
            ("$99999999999999999999999", "99999999999999999999999", "known here: "),
        ] {
            let fault = check(with, &regex).unwrap_err();
            let what = format!("with = \"{with}\" names the group \"{group}\", which the regex has not");
            assert_eq!(fault.what, what);
            assert!(fault.hint.as_ref().is_some_and(|told| told.starts_with(hint)), "{with}: {fault:?}");
        }
        let open = check("$1.${what", &regex).unwrap_err();
        assert_eq!(open.what, "with = \"$1.${what\" has a ${ without its }");
    }

    proptest! {
        /// With groups that are never empty, what is taken for a reference always shows.
        #[test]
        fn what_is_accepted_is_what_the_regex_crate_expands(with in "[$1-3a{}_ ]{0,10}") {
            let regex = Regex::new("(Q)(?<a>Q)").unwrap();
            if check(&with, &regex).is_ok() {
                let shown = regex.replace(b"QQ", with.as_bytes()).iter().filter(|byte| **byte == b'Q').count();
                // "$$" is no reference, nor is a dollar sign before something else.
                let plain = with.replace("$$", "");
                let begins = |behind: &&str| behind.starts_with(['{', '1', '2', 'a']);
                prop_assert_eq!(shown, plain.split('$').skip(1).filter(begins).count(), "{}", with);
            }
        }
    }
}
