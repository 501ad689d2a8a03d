//! The topic: the route's value enters, and leaves as `Matcher.replaceFirst` would have left it.

use crate::config::debezium::{self, Piece, TopicRegex};

#[derive(Debug)]
pub(super) struct Topic {
    regex: Option<TopicRegex>,
    replacement: Vec<Piece>,
}

impl Topic {
    pub(super) fn new(topic: &debezium::Topic) -> Topic {
        Topic { regex: topic.regex.clone(), replacement: topic.replacement.clone() }
    }

    /// What does not match is the topic itself.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let Some(TopicRegex { whole, first }) = &self.regex else {
            return match has_line_break(value) {
                true => out.extend_from_slice(value),
                false => self.replace(|_| value, out),
            };
        };
        let Some(found) = whole.is_match(value).then(|| first.captures(value)).flatten() else {
            return out.extend_from_slice(value);
        };
        let all = found.get_match();
        out.extend_from_slice(&value[..all.start()]);
        self.replace(|group| found.get(group).map_or(&b""[..], |group| group.as_bytes()), out);
        out.extend_from_slice(&value[all.end()..]);
    }

    fn replace<'a>(&self, group: impl Fn(usize) -> &'a [u8], out: &mut Vec<u8>) {
        for piece in &self.replacement {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Group(number) => out.extend_from_slice(group(*number)),
            }
        }
    }
}

/// What a dot does not take in Java: the ends of lines, Unicode's among them.
fn has_line_break(value: &[u8]) -> bool {
    let unicode = |at: usize| match value[at] {
        0xC2 => value.get(at + 1) == Some(&0x85),
        0xE2 => matches!(value.get(at + 1..at + 3), Some([0x80, 0xA8 | 0xA9])),
        _ => false,
    };
    (0..value.len()).any(|at| matches!(value[at], b'\n' | b'\r') || (value[at] >= 0xC2 && unicode(at)))
}
