//! Java's regular expressions and replacements: what was typed for `java.util.regex` enters, what the `regex` crate understands
//! and means the same leaves; what it has no counterpart for is refused.

use regex::bytes::Regex;

use super::Piece;
use crate::config::error::Fault;

/// What a dot is in Java: anything but the end of a line.
const DOT: &str = r"[^\n\r\x{85}\x{2028}\x{2029}]";

/// What Java calls a class by name, as the `regex` crate writes it. Without a flag, Java means ASCII.
const CLASSES: [(&str, &str); 16] = [
    ("Lower", "a-z"),
    ("Upper", "A-Z"),
    ("ASCII", r"\x{0}-\x{7f}"),
    ("Alpha", "a-zA-Z"),
    ("Digit", "0-9"),
    ("Alnum", "a-zA-Z0-9"),
    ("Punct", r"!-/:-@\[-`{-~"),
    ("Graph", "!-~"),
    ("Print", r"\x20-~"),
    ("Blank", r"\x20\t"),
    ("Cntrl", r"\x{0}-\x{1f}\x{7f}"),
    ("XDigit", "0-9a-fA-F"),
    ("Space", r"\x20\t\n\x{b}\x{c}\r"),
    ("javaLowerCase", r"\p{Lowercase}"),
    ("javaUpperCase", r"\p{Uppercase}"),
    ("javaWhitespace", r"\p{White_Space}--[\x{a0}\x{2007}\x{202f}]"),
];

/// A regular expression that finds what Java's finds.
pub(crate) fn regex(typed: &str) -> Result<Regex, Fault> {
    compile(typed, &translate(typed)?)
}

/// The same, for all of a text or nothing.
pub(crate) fn whole(typed: &str) -> Result<Regex, Fault> {
    compile(typed, &format!(r"\A(?:{})\z", translate(typed)?))
}

/// True for `.*` by itself or as a group: it takes any text without the end of a line.
pub(super) fn is_all(typed: &str) -> bool {
    let group = typed.strip_prefix('(').and_then(|rest| rest.strip_suffix(".*)"));
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let named = |open: &str| open.strip_prefix("?<").and_then(|rest| rest.strip_suffix('>')).is_some_and(is_name);
    typed == ".*" || group.is_some_and(|open| open.is_empty() || named(open))
}

fn compile(typed: &str, translated: &str) -> Result<Regex, Fault> {
    Regex::new(translated).map_err(|error| {
        // Its own message draws a picture of several lines; the last one says what is wrong.
        let what = error.to_string();
        let what = what.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Fault::new(format!("\"{typed}\" is not a regular expression: {what}"))
    })
}

fn unsupported(what: &str) -> Fault {
    Fault::new(format!("has {what}, which is not supported here"))
        .hint("write it without look-around, back-references, possessive quantifiers and atomic groups")
}

/// Where the translation stands.
struct Translation<'a> {
    rest: &'a str,
    out: String,
    /// How deep inside brackets.
    classes: usize,
    dot_takes_all: bool,
    comments: bool,
}

fn translate(typed: &str) -> Result<String, Fault> {
    let mut at = Translation { rest: typed, out: String::new(), classes: 0, dot_takes_all: false, comments: false };
    while let Some(char) = at.rest.chars().next() {
        at.step(char)?;
    }
    Ok(at.out)
}

impl Translation<'_> {
    fn step(&mut self, char: char) -> Result<(), Fault> {
        let rest = &self.rest[char.len_utf8()..];
        match char {
            '\\' => return self.escape(),
            '[' => {
                self.classes += 1;
                self.take(1);
                // Where Java has a bracket that closes nothing, it is itself.
                return Ok(());
            }
            ']' if self.classes > 0 => self.classes -= 1,
            _ if self.classes > 0 => {}
            '.' if !self.dot_takes_all => {
                self.out.push_str(DOT);
                self.rest = rest;
                return Ok(());
            }
            '#' if self.comments => {
                self.rest = rest.find('\n').map_or("", |end| &rest[end..]);
                return Ok(());
            }
            '(' if rest.starts_with('?') => return self.group(),
            '*' | '+' | '?' | '}' if rest.starts_with('+') => return Err(unsupported("a possessive quantifier")),
            _ => {}
        }
        self.take(1);
        Ok(())
    }

    /// Copies so many characters.
    fn take(&mut self, characters: usize) {
        let end = self.rest.char_indices().nth(characters).map_or(self.rest.len(), |(at, _)| at);
        self.out.push_str(&self.rest[..end]);
        self.rest = &self.rest[end..];
    }

    /// `(?` and what follows.
    fn group(&mut self) -> Result<(), Fault> {
        let inside = &self.rest[2..];
        match inside.chars().next() {
            Some('=' | '!') => Err(unsupported("a look-ahead")),
            Some('>') => Err(unsupported("an atomic group")),
            Some('<') if inside[1..].starts_with(['=', '!']) => Err(unsupported("a look-behind")),
            Some(':') => {
                self.take(3);
                Ok(())
            }
            Some('<') => {
                self.take(inside.find('>').map_or(usize::MAX, |end| end + 3));
                Ok(())
            }
            _ => self.flags(inside.split([')', ':']).next().unwrap_or_default()),
        }
    }

    fn flags(&mut self, flags: &str) -> Result<(), Fault> {
        let mut on = true;
        for flag in flags.chars() {
            match flag {
                '-' => on = false,
                's' => self.dot_takes_all = on,
                'x' => self.comments = on,
                'i' | 'm' => {}
                _ => return Err(unsupported(&format!("the flag {flag}"))),
            }
        }
        // Scoped to a group they would end with it; nobody routes like that.
        if self.rest[2 + flags.len()..].starts_with(':') && flags.contains(['s', 'x']) {
            return Err(unsupported("the flags s and x for a group"));
        }
        self.take(3 + flags.chars().count());
        Ok(())
    }

    /// A backslash and what follows.
    fn escape(&mut self) -> Result<(), Fault> {
        let Some(escaped) = self.rest[1..].chars().next() else { return Err(Fault::new("ends in a backslash")) };
        let rest = &self.rest[1 + escaped.len_utf8()..];
        let ascii = |class: &str, negated: bool| format!("[{}{class}]", if negated { "^" } else { "" });
        let (written, rest) = match escaped {
            'd' | 'D' => (ascii("0-9", escaped == 'D'), rest),
            'w' | 'W' => (ascii("a-zA-Z_0-9", escaped == 'W'), rest),
            's' | 'S' => (ascii(r"\x20\t\n\x{b}\x{c}\r", escaped == 'S'), rest),
            't' | 'n' | 'r' | 'f' | 'a' | 'A' | 'z' | 'b' | 'B' | 'x' | 'u' => (format!("\\{escaped}"), rest),
            'e' => (r"\x{1b}".to_owned(), rest),
            'p' | 'P' => self.property(escaped == 'P', rest)?,
            'Q' => {
                let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
                (regex::escape(quoted), rest)
            }
            '1'..='9' | 'k' => return Err(unsupported("a back-reference")),
            _ if escaped.is_ascii_alphanumeric() => return Err(unsupported(&format!("\\{escaped}"))),
            _ => (format!("\\x{{{:x}}}", escaped as u32), rest),
        };
        self.out.push_str(&written);
        let consumed = self.rest.len() - rest.len();
        self.rest = &self.rest[consumed..];
        Ok(())
    }

    fn property<'r>(&self, negated: bool, rest: &'r str) -> Result<(String, &'r str), Fault> {
        let Some((name, rest)) = rest.strip_prefix('{').and_then(|inside| inside.split_once('}')) else {
            // One letter: the same categories in both.
            let end = rest.chars().next().map_or(0, char::len_utf8);
            return Ok((format!("\\{}{}", if negated { 'P' } else { 'p' }, &rest[..end]), &rest[end..]));
        };
        let class = CLASSES.iter().find(|(java, _)| *java == name).map(|(_, class)| *class);
        Ok(match class {
            Some(class) => (format!("[{}{class}]", if negated { "^" } else { "" }), rest),
            None if name.starts_with("java") => return Err(unsupported(&format!("\\p{{{name}}}"))),
            None => {
                let name = name.strip_prefix("Is").unwrap_or(name);
                (format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }), rest)
            }
        })
    }
}

/// A replacement as `Matcher.replaceFirst` reads it, for the groups of this expression.
pub(crate) fn replacement(typed: &str, regex: &Regex) -> Result<Vec<Piece>, Fault> {
    let groups = regex.captures_len();
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = typed;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        let group = match char {
            '\\' => {
                let Some(escaped) = rest.chars().next() else { return Err(Fault::new("ends in a backslash")) };
                literal.push(escaped);
                rest = &rest[escaped.len_utf8()..];
                continue;
            }
            '$' => reference(&mut rest, regex, groups)?,
            _ => {
                literal.push(char);
                continue;
            }
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Group(group));
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// What stands behind a dollar: a name in braces, or a number that is as long as there are such groups.
fn reference(rest: &mut &str, regex: &Regex, groups: usize) -> Result<usize, Fault> {
    if let Some(inside) = rest.strip_prefix('{') {
        let (name, behind) = inside.split_once('}').ok_or_else(|| Fault::new("has a ${ without its }"))?;
        *rest = behind;
        let found = regex.capture_names().position(|known| known == Some(name));
        return found.ok_or_else(|| {
            let known: Vec<&str> = regex.capture_names().flatten().collect();
            Fault::new(format!("route.topic.regex has no group \"{name}\"")).suggest(name, &known)
        });
    }
    let digit = |text: &str| text.chars().next().and_then(|char| char.to_digit(10)).map(|digit| digit as usize);
    let Some(mut number) = digit(rest) else {
        return Err(
            Fault::new("has a $ that is followed by neither {name} nor a number").hint("a dollar itself is \\$")
        );
    };
    *rest = &rest[1..];
    if number >= groups {
        return Err(Fault::new(format!("route.topic.regex has no group {number}")));
    }
    while let Some(longer) = digit(rest).map(|digit| number * 10 + digit).filter(|longer| *longer < groups) {
        number = longer;
        *rest = &rest[1..];
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(typed: &str, text: &str) -> bool {
        whole(typed).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn what_java_means_is_what_is_found() {
        for (typed, text, expected) in [
            (".*", "a b", true),
            (".*", "a\nb", false),
            (".*", "a\u{2028}b", false),
            ("(?s).*", "a\nb", true),
            (r"\w+", "aé", false),
            (r"\d", "٣", false),
            (r"\Qa.b\E.", "a.bc", true),
            (r"\Qa.b\E.", "axbc", false),
            (r"(?x) a b # more", "ab", true),
            (r"\p{Lower}\p{Punct}[\w&&[^0-9]]+", "a_bc", true),
            (r"\p{Lower}\p{Punct}[\w&&[^0-9]]+", "a_b1", false),
            (r"a\-b\_", "a-b_", true),
            (r"\p{L}+", "äß", true),
            ("shop|shop.*", "shop.x", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(finds(typed, text), expected, "{typed} {text:?}");
        }
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        for typed in [
            "(?=a)b",
            "(?!a)b",
            "(?<=a)b",
            "(?<!a)b",
            "(?>a)b",
            r"(a)\1",
            r"(?<n>a)\k<n>",
            "a++",
            "a*+",
            "a{2}+",
            "(?d)a",
            "(?u)a",
            "(?U)a",
            "(?s:a)",
            "(?x:a)",
            r"\Ra",
            r"\Xa",
            r"\Na",
            r"\Ga",
            r"a\Z",
            r"\ha",
            r"\Ha",
            r"\va",
            r"\Va",
            r"\cA",
            r"\07",
            r"\p{javaMirrored}",
            r"\p{InGreek}",
            "(",
            "a\\",
        ] {
            assert!(regex(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn only_a_group_of_anything_needs_no_expression() {
        for (typed, expected) in [
            (".*", true),
            ("(.*)", true),
            ("(?<it>.*)", true),
            ("(?i)(.*)", false),
            ("(?<it>.+)", false),
            ("(?:.*)", false),
        ] {
            assert_eq!(is_all(typed), expected, "{typed}");
        }
    }

    #[test]
    fn replacements_are_read_as_java_reads_them() {
        let regex = regex("(?<a>x)(y)").unwrap();
        let (text, group) = (|text: &str| Piece::Literal(text.to_owned()), Piece::Group);
        for (typed, expected) in [
            ("", vec![]),
            ("t", vec![text("t")]),
            ("${a}-$2$0", vec![group(1), text("-"), group(2), group(0)]),
            ("$10.$29", vec![group(1), text("0."), group(2), text("9")]),
            (r"\$1\\\e", vec![text("$1\\e")]),
        ] {
            assert_eq!(replacement(typed, &regex).unwrap(), expected, "{typed}");
        }
        for typed in ["$", "$x", "${b}", "${a", "$3", "\\"] {
            assert!(replacement(typed, &regex).is_err(), "{typed}");
        }
    }
}
