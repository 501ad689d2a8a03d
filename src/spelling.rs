//! Names that were mistyped: a name enters, and those that somebody knows; the one that was meant leaves, if one can be told.
//! And names that nobody may read in full.

/// The known name that a slip of the fingers could have meant: at most a third of its letters differ.
pub fn nearest<'k>(typed: &str, known: &[&'k str]) -> Option<&'k str> {
    let typed = typed.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&typed, &name.to_lowercase());
    let best = known.iter().copied().min_by_key(|name| distance(name))?;
    (distance(best) <= (best.chars().count() / 3).max(1)).then_some(best)
}

/// A name without the secret that some of Debezium's end in: `column.mask.hash.SHA-256.with.salt.<salt>`, also as a variable's name.
pub fn without_salt(name: &str) -> &str {
    const SALT: &str = ".with.salt.";
    let dotted = name.to_ascii_lowercase().replace('_', ".");
    dotted.find(SALT).map_or(name, |at| &name[..at + SALT.len()])
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

    #[test]
    fn a_salt_is_cut_off_its_name() {
        for (name, shown) in [
            ("column.mask.hash.SHA-256.with.salt.s.3", "column.mask.hash.SHA-256.with.salt."),
            ("column.mask.hash.v2.SHA-256.With.Salt.é", "column.mask.hash.v2.SHA-256.With.Salt."),
            (
                "DEBEZIUM_SOURCE_COLUMN_MASK_HASH_SHA_256_WITH_SALT_S",
                "DEBEZIUM_SOURCE_COLUMN_MASK_HASH_SHA_256_WITH_SALT_",
            ),
            ("É.column.mask.with.5.chars", "É.column.mask.with.5.chars"),
        ] {
            assert_eq!(without_salt(name), shown);
        }
    }
}
