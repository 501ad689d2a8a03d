//! `"outbox.event.{aggregate_type}"` becomes pieces: text enters, a `Pattern` or a fault leaves.

use std::fmt;
use std::str::Chars;

use super::error::Fault;
use super::{Pattern, Piece};

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Pattern, Fault> {
        let mut chars = text.chars();
        let pattern = pieces(text, &mut chars, Depth::Outside)?;
        debug_assert!(chars.as_str().is_empty(), "outside of places only the end ends");
        Ok(pattern)
    }

    /// The text of one without places, which is the same for every row.
    pub(super) fn constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The texts that stand in it, also those that stand for a NULL.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut texts = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => texts.push(text.as_str()),
                Piece::Fallback(_, otherwise) => texts.extend(otherwise.texts()),
                Piece::Column(_) => {}
            }
        }
        texts
    }
}

/// Where pieces stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// To the end of the text.
    Outside,
    /// Behind the `|` of a place, to its `}`.
    Fallback,
}

fn pieces(text: &str, chars: &mut Chars<'_>, depth: Depth) -> Result<Pattern, Fault> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    loop {
        let Some(char) = chars.next() else {
            if depth == Depth::Fallback {
                return Err(unbalanced(text, "a \"{\" without its \"}\""));
            }
            break;
        };
        match char {
            '{' if chars.as_str().starts_with('{') => literal.extend(chars.next()),
            '}' if depth == Depth::Fallback => break,
            '}' if chars.as_str().starts_with('}') => literal.extend(chars.next()),
            '{' => {
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(place(text, chars)?);
            }
            '}' => return Err(unbalanced(text, "a \"}\" without its \"{\"")),
            char => literal.push(char),
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(Pattern { pieces })
}

/// As it would be typed.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Piece::Column(name) => write!(f, "{{{name}}}")?,
                Piece::Fallback(name, otherwise) => write!(f, "{{{name}|{otherwise}}}")?,
            }
        }
        Ok(())
    }
}

/// What stands behind a `{`, up to its `}`.
fn place(text: &str, chars: &mut Chars<'_>) -> Result<Piece, Fault> {
    let rest = chars.as_str();
    let Some(end) = rest.find(['{', '}', '|']).filter(|end| !rest[*end..].starts_with('{')) else {
        return Err(unbalanced(text, "a \"{\" without its \"}\""));
    };
    let name = &rest[..end];
    if name.trim() != name || name.is_empty() {
        return Err(Fault::new(format!("\"{text}\" has a place without a column's name"))
            .hint("write {name}, without spaces; for example {aggregate_id}"));
    }
    let has_fallback = rest[end..].starts_with('|');
    *chars = rest[end + 1..].chars();
    Ok(match has_fallback {
        true => Piece::Fallback(name.to_owned(), pieces(text, chars, Depth::Fallback)?),
        false => Piece::Column(name.to_owned()),
    })
}

fn unbalanced(text: &str, what: &str) -> Fault {
    Fault::new(format!("\"{text}\" has {what}"))
        .hint("{name} stands for a column, {name|text} for text where that is NULL; write {{ and }} for the braces themselves")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn literal(text: &str) -> Piece {
        Piece::Literal(text.into())
    }

    fn place(name: &str) -> Piece {
        Piece::Column(name.into())
    }

    fn or(name: &str, pieces: Vec<Piece>) -> Piece {
        Piece::Fallback(name.into(), Pattern { pieces })
    }

    #[test]
    fn text_and_places_become_pieces() {
        for (text, pieces) in [
            ("", vec![]),
            ("orders", vec![literal("orders")]),
            ("{id}", vec![place("id")]),
            ("outbox.event.{aggregate_type}", vec![literal("outbox.event."), place("aggregate_type")]),
            ("{a}{b}", vec![place("a"), place("b")]),
            ("{a}-{b}.x", vec![place("a"), literal("-"), place("b"), literal(".x")]),
            ("a{{b}}c", vec![literal("a{b}c")]),
            ("{{{id}}}", vec![literal("{"), place("id"), literal("}")]),
            ("{order no}é", vec![place("order no"), literal("é")]),
            ("{tenant|default}.x", vec![or("tenant", vec![literal("default")]), literal(".x")]),
            ("{a|}", vec![or("a", vec![])]),
            ("{a|{b|c{d}}e}", vec![or("a", vec![or("b", vec![literal("c"), place("d")]), literal("e")])]),
            ("a|b", vec![literal("a|b")]),
        ] {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(pattern.pieces, pieces, "{text}");
            assert_eq!(pattern.to_string(), text);
        }
    }

    #[test]
    fn braces_must_balance_and_name_a_column() {
        for (text, what) in [
            ("{id", r#""{id" has a "{" without its "}""#),
            ("{", r#""{" has a "{" without its "}""#),
            ("{a{b}", r#""{a{b}" has a "{" without its "}""#),
            ("id}", r#""id}" has a "}" without its "{""#),
            ("{{id}", r#""{{id}" has a "}" without its "{""#),
            ("{}", r#""{}" has a place without a column's name"#),
            ("{ id }", r#""{ id }" has a place without a column's name"#),
            ("{|x}", r#""{|x}" has a place without a column's name"#),
            ("{a|x", r#""{a|x" has a "{" without its "}""#),
            ("{a|{b}", r#""{a|{b}" has a "{" without its "}""#),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().what, what);
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "[a{}|é ]{0,20}") {
            if let Ok(pattern) = Pattern::parse(&text) {
                prop_assert_eq!(Pattern::parse(&pattern.to_string()).unwrap(), pattern);
            }
        }
    }
}
