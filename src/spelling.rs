//! Names that were mistyped: a name enters, and those that somebody knows; the one that was meant leaves, if one can be told.
//! And names that others have changed since.

/// Options of the first years of Debezium's event router, and what they are called now.
pub const OLD_ROUTER_OPTIONS: [(&str, &str); 5] = [
    ("debezium.op.invalid.behavior", "table.op.invalid.behavior"),
    ("table.field.payload", "table.field.event.payload"),
    ("table.field.schema.version", "table.field.event.schema.version"),
    ("table.field.event.payload.id", "table.field.event.key"),
    ("table.field.payload.id", "table.field.event.key"),
];

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
