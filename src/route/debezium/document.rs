//! JSON as Jackson reads it: the first document of a text, its members in order, its numbers as they are written.

use super::datum::Part;

/// Jackson goes no deeper either.
const DEEPEST: usize = 1000;

/// A document, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    Text(Part<'a>),
    List(Vec<Node<'a>>),
    Object(Vec<(Part<'a>, Node<'a>)>),
}

/// The document that a text begins with; whatever stands behind it does not count.
pub(super) fn parse(text: &[u8]) -> Option<Node<'_>> {
    Parser { text: std::str::from_utf8(text).ok()?, at: 0 }.node(0)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.peek()
    }

    fn node(&mut self, depth: usize) -> Option<Node<'a>> {
        if depth > DEEPEST {
            return None;
        }
        match self.blanks()? {
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b'"' => self.string().map(Node::Text),
            b't' => self.word("true", Node::Boolean(true)),
            b'f' => self.word("false", Node::Boolean(false)),
            b'n' => self.word("null", Node::Null),
            _ => self.number().map(Node::Number),
        }
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Option<Node<'a>> {
        self.text[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            node
        })
    }

    fn list(&mut self, depth: usize) -> Option<Node<'a>> {
        self.at += 1;
        let mut items = Vec::new();
        if self.blanks()? == b']' {
            self.at += 1;
            return Some(Node::List(items));
        }
        loop {
            items.push(self.node(depth + 1)?);
            let next = self.blanks()?;
            self.at += 1;
            match next {
                b',' => {}
                b']' => return Some(Node::List(items)),
                _ => return None,
            }
        }
    }

    /// Of members of one name, the last counts, where the first stood.
    fn object(&mut self, depth: usize) -> Option<Node<'a>> {
        self.at += 1;
        let mut members: Vec<(Part<'a>, Node<'a>)> = Vec::new();
        if self.blanks()? == b'}' {
            self.at += 1;
            return Some(Node::Object(members));
        }
        loop {
            let name = (self.blanks()? == b'"').then(|| self.string()).flatten()?;
            if self.blanks()? != b':' {
                return None;
            }
            self.at += 1;
            let node = self.node(depth + 1)?;
            match members.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = node,
                None => members.push((name, node)),
            }
            let next = self.blanks()?;
            self.at += 1;
            match next {
                b',' => {}
                b'}' => return Some(Node::Object(members)),
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<&'a str> {
        let start = self.at;
        let digits = |parser: &mut Parser<'_>| {
            let first = parser.at;
            while parser.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                parser.at += 1;
            }
            parser.at - first
        };
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let has_zero = self.peek() == Some(b'0');
        let whole = digits(self);
        if whole == 0 || (has_zero && whole > 1) {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            (digits(self) > 0).then_some(())?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            (digits(self) > 0).then_some(())?;
        }
        Some(&self.text[start..self.at])
    }

    fn string(&mut self) -> Option<Part<'a>> {
        self.at += 1;
        let start = self.at;
        let mut written: Option<Vec<u8>> = None;
        let mut kept = start;
        loop {
            match self.peek()? {
                b'"' => {
                    let last = &self.text.as_bytes()[kept..self.at];
                    self.at += 1;
                    return Some(match written {
                        None => last.into(),
                        Some(mut written) => {
                            written.extend_from_slice(last);
                            written.into()
                        }
                    });
                }
                b'\\' => {
                    let written = written.get_or_insert_default();
                    written.extend_from_slice(&self.text.as_bytes()[kept..self.at]);
                    self.at += 1;
                    self.escape(written)?;
                    kept = self.at;
                }
                ..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let escaped = self.peek()?;
        self.at += 1;
        out.push(match escaped {
            b'"' | b'\\' | b'/' => escaped,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let high = self.unit()?;
                let is_pair = (0xD800..0xDC00).contains(&high) && self.text[self.at..].starts_with("\\u");
                let before = self.at;
                if is_pair {
                    self.at += 2;
                    let low = self.unit()?;
                    if (0xDC00..0xE000).contains(&low) {
                        encode(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00), out);
                        return Some(());
                    }
                    self.at = before;
                }
                encode(high, out);
                return Some(());
            }
            _ => return None,
        });
        Some(())
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }
}

/// UTF-8, and the same for half of a surrogate pair, which is no character.
fn encode(code: u32, out: &mut Vec<u8>) {
    match char::from_u32(code) {
        Some(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        None => {
            out.extend_from_slice(&[
                0xE0 | (code >> 12) as u8,
                0x80 | (code >> 6 & 0x3F) as u8,
                0x80 | (code & 0x3F) as u8,
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_first_document_counts_and_it_must_be_strict() {
        for text in ["{\"a\":1}", "{\"a\":1} more", "{\"a\":1}{", " [1,2]", "{\"a\":[{},[],\"\\ud83d\\ude00\"]}"] {
            assert!(parse(text.as_bytes()).is_some(), "{text}");
        }
        for text in [
            "",
            "{",
            "{a:1}",
            "{'a':1}",
            "{\"a\":01}",
            "{\"a\":.5}",
            "{\"a\":1,}",
            "[1,]",
            "{\"a\":NaN}",
            "[1 2]",
            "\"\n\"",
        ] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_none());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}:,\"\\\\ue0-9.dD8a ü-]{0,40}") {
            parse(text.as_bytes());
        }
    }
}
