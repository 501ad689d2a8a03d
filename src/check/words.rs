//! Numbers as people read them.

/// `1.5 GiB`, `900 bytes`.
pub(super) fn bytes(count: f64) -> String {
    let units = [(1024f64.powi(4), "TiB"), (1024f64.powi(3), "GiB"), (1024f64.powi(2), "MiB"), (1024.0, "KiB")];
    match units.into_iter().find(|(size, _)| count.abs() >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", count / size),
        None => format!("{count:.0} bytes"),
    }
}

/// `3 d`, `7 h`, `12 min`, `40 s`: one unit is enough to act upon.
pub(super) fn duration(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    match units.into_iter().find(|(size, _)| seconds >= 2.0 * size) {
        Some((size, unit)) => format!("{:.0} {unit}", seconds / size),
        None => format!("{seconds:.0} s"),
    }
}

/// `"a", "b" and 3 more`: enough to recognise them.
pub(super) fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 8;
    let quoted: Vec<String> = names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    match quoted.len().checked_sub(SHOWN) {
        None | Some(0) => quoted.join(", "),
        Some(more) => format!("{} and {more} more", quoted[..SHOWN].join(", ")),
    }
}

/// An identifier as SQL wants it, quoted only where it must be, so that hints read well.
pub(super) fn identifier(name: &str) -> String {
    let mut characters = name.chars();
    let plain = characters.next().is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && characters.all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_say_them() {
        assert_eq!(bytes(900.0), "900 bytes");
        assert_eq!(bytes(1536.0 * 1024.0 * 1024.0), "1.5 GiB");
        assert_eq!(duration(40.0), "40 s");
        assert_eq!(duration(7.0 * 3600.0), "7 h");
        assert_eq!(duration(3.0 * 86_400.0), "3 d");
    }

    #[test]
    fn a_long_list_is_cut() {
        assert_eq!(list(["a", "b"]), "\"a\", \"b\"");
        assert!(list(vec!["a"; 11]).ends_with("\"a\" and 3 more"));
    }

    #[test]
    fn an_identifier_is_quoted_only_where_sql_needs_it() {
        for (name, sql) in [("outbox", "outbox"), ("Out\"box", "\"Out\"\"box\""), ("a-b", "\"a-b\""), ("1a", "\"1a\"")]
        {
            assert_eq!(identifier(name), sql);
        }
    }
}
