//! Names that were mistyped: a name enters, and those that somebody knows; the one that was meant leaves, if one can be told.

/// The known name that a slip of the fingers could have meant: at most a third of its letters differ.
pub fn nearest<'k>(typed: &str, known: &[&'k str]) -> Option<&'k str> {
    let typed = typed.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&typed, &name.to_lowercase());
    let best = known.iter().copied().min_by_key(|name| distance(name))?;
    (distance(best) <= (best.chars().count() / 3).max(1)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_slip_away() {
        let known = ["url", "password", "password_file", "slot", "publication"];
        for (typed, expected) in [
            ("slott", Some("slot")),
            ("Slot", Some("slot")),
            ("pasword_file", Some("password_file")),
            ("ulr", Some("url")),
            ("lot", Some("slot")),
            ("registry", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &known), expected, "{typed}");
        }
    }
}
