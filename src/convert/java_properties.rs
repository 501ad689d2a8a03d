//! `java.util.Properties`: text enters, names and values leave, in order.
//!
//! As `Properties.load(Reader)` reads it: comments, continuation lines, escapes, and `=`, `:` or blanks between name and value.

use super::Unreadable;

const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// Reads a properties file.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, Unreadable> {
    logical_lines(text).iter().map(|line| pair(line)).collect()
}

/// Lines without comments and blank ones, continued ones joined.
fn logical_lines(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for natural in text.split('\n') {
        let content = natural.trim_start_matches(BLANKS);
        // Behind a backslash nothing is a comment, and an empty line ends the value.
        let mut line = match open.take() {
            Some(line) => line + content,
            None if content.is_empty() || content.starts_with(['#', '!']) => continue,
            None => content.to_owned(),
        };
        if line.chars().rev().take_while(|char| *char == '\\').count() % 2 == 1 {
            line.pop();
            open = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(open);
    lines.retain(|line| !line.is_empty());
    lines
}

fn pair(line: &str) -> Result<(String, String), Unreadable> {
    let mut escaped = false;
    let end = line.find(|char: char| {
        let ends = !escaped && (char == '=' || char == ':' || BLANKS.contains(&char));
        escaped = char == '\\' && !escaped;
        ends
    });
    let (name, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches(BLANKS);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(BLANKS);
    Ok((unescape(name)?, unescape(value)?))
}

fn unescape(text: &str) -> Result<String, Unreadable> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let char = match char {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    units.push(unicode(&mut chars)?);
                    continue;
                }
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend(char.encode_utf16(&mut [0; 2]).iter());
    }
    Ok(String::from_utf16_lossy(&units))
}

fn unicode(chars: &mut std::str::Chars<'_>) -> Result<u16, Unreadable> {
    let digits = chars.as_str().get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let Some(unit) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) else {
        return Err(Unreadable::new("a \\u in the properties is not followed by four hexadecimal digits", "mend it"));
    };
    *chars = chars.as_str()[4..].chars();
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_read_as_java_reads_it() {
        for (line, name, value) in [
            ("a=b", "a", "b"),
            ("a:b", "a", "b"),
            ("a b", "a", "b"),
            ("  a \t=  b ", "a", "b "),
            ("a = = b", "a", "= b"),
            ("a : = b", "a", "= b"),
            ("a", "a", ""),
            ("a=", "a", ""),
            ("=b", "", "b"),
            (r"a\ b\=c\:d = e", "a b=c:d", "e"),
            (r"a=\t\n\r\f\\\q\ ", "a", "\t\n\r\u{c}\\q "),
            (r"a=\u00e9\uD83D\uDE00", "a", "é😀"),
            (r"regex=public\\.outbox", "regex", r"public\.outbox"),
            ("a=b#c!d", "a", "b#c!d"),
            ("a=b\\\n   c", "a", "bc"),
            ("a=b\\\r\n\t # c", "a", "b# c"),
            ("a=b\\\\\nc=d", "a", "b\\"),
            ("a=b\\", "a", "b"),
            ("a\\\n=b", "a", "b"),
        ] {
            let pairs = parse(line).unwrap();
            assert_eq!(pairs[0], (name.to_owned(), value.to_owned()), "{line:?}");
        }
    }

    #[test]
    fn comments_and_blank_lines_say_nothing() {
        let text = "# a=1\n ! b=2\n\n \t\n# goes on \\\nc=3\rd=4\r\n\\\n";
        let names: Vec<String> = parse(text).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["c", "d"]);
    }

    #[test]
    fn an_escape_that_java_refuses_is_refused_without_repeating_the_line() {
        for text in [r"password=\u12", r"password=\uzzzz", r"password=\u12é4"] {
            assert!(!parse(text).unwrap_err().what.contains("password"), "{text}");
        }
    }
}
