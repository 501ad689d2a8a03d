//! Names and values as SQL text, for statements that take no parameters. Nothing else in the program quotes SQL.
//!
//! Whatever enters, PostgreSQL reads back exactly that (a NUL apart, which no SQL text can carry and the driver
//! refuses).

/// `name` as an identifier: always quoted, so that no keyword and no upper case is a special case.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `value` as a string literal, read the same whatever `standard_conforming_strings` says.
pub fn quote_literal(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_doubled() {
        assert_eq!(quote_identifier(r#"odd "Name""#), r#""odd ""Name""""#);
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal(r"a\'b"), r"E'a\\''b'");
    }
}
