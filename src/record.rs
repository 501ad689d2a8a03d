//! What goes to Kafka, and what cannot: `Record` and `Rejected`.

use crate::dead_letter::Rejection;
use crate::lsn::Position;

/// One record as it will be published, borrowed from the row it was made of.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The topic's name, valid by Kafka's rules.
    pub topic: &'a str,
    /// The partition, when the row chose one; otherwise the key decides.
    pub partition: Option<i32>,
    /// The key's bytes; without a key any partition will do.
    pub key: Option<&'a [u8]>,
    /// The value's bytes; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: &'a Headers,
    /// Milliseconds since 1970-01-01 UTC; `None` is when it is sent.
    pub timestamp_ms: Option<i64>,
}

/// A record that outlives its row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Preview {
    pub topic: String,
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: Option<i64>,
}

impl From<Record<'_>> for Preview {
    fn from(record: Record<'_>) -> Preview {
        Preview {
            topic: record.topic.to_owned(),
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec))).collect(),
            timestamp_ms: record.timestamp_ms,
        }
    }
}

impl Record<'_> {
    /// Its bytes as they travel, without Kafka's framing.
    pub fn bytes(&self) -> u64 {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        (self.topic.len() + length(self.key) + length(self.value) + self.headers.bytes()) as u64
    }

    /// What the record takes of memory while it is in flight, at the most: its bytes wait once as they are and once in a
    /// batch, and the heap keeps room around them. librdkafka's own limit counts value bytes only.
    pub fn weight(&self) -> u64 {
        800 + self.headers.len() as u64 * 250 + self.bytes() * 2
    }
}

/// Headers in two buffers, which are used again for the next record.
#[derive(Debug, Default)]
pub struct Headers {
    /// One behind the other, as their values.
    names: String,
    values: Vec<u8>,
    spans: Vec<Span>,
    /// The bytes of names that never change, which are not copied.
    constant: usize,
}

/// Where a header's name and value end; they begin where the ones before end.
#[derive(Debug, Clone, Copy)]
struct Span {
    constant: Option<&'static str>,
    name: usize,
    value: usize,
    null: bool,
}

impl Headers {
    /// Forgets all headers, keeps the memory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.values.clear();
        self.spans.clear();
        self.constant = 0;
    }

    /// Adds a header whose name never changes.
    pub fn push_constant(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.values);
        self.constant += name.len();
        let (constant, name) = (Some(name), self.names.len());
        self.spans.push(Span { constant, name, value: self.values.len(), null: false });
    }

    /// Adds a header; `None` is a header without a value.
    pub fn push(&mut self, name: &str, value: Option<&[u8]>) {
        self.push_with(name, |values| values.extend_from_slice(value.unwrap_or_default()));
        if value.is_none() {
            self.nullify();
        }
    }

    /// The header that was added last has no value after all.
    pub fn nullify(&mut self) {
        if let Some(span) = self.spans.last_mut() {
            span.null = true;
        }
    }

    /// Adds a header whose value `write` appends.
    pub fn push_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.names.push_str(name);
        write(&mut self.values);
        self.spans.push(Span { constant: None, name: self.names.len(), value: self.values.len(), null: false });
    }

    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let (mut name, mut value) = (0, 0);
        self.spans.iter().map(move |span| {
            let written = span.constant.unwrap_or_else(|| &self.names[name..span.name]);
            let header = (written, (!span.null).then(|| &self.values[value..span.value]));
            (name, value) = (span.name, span.value);
            header
        })
    }

    fn bytes(&self) -> usize {
        self.constant + self.names.len() + self.values.len()
    }
}

/// An event that cannot be published: which one, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Where it stands in the WAL.
    pub position: Position,
    /// When it was committed, microseconds since 2000-01-01 UTC.
    pub committed_at: i64,
    /// Its id, where it has one.
    pub event: Option<String>,
    /// Why.
    pub rejection: Rejection,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_in_order_and_null_is_not_empty() {
        let mut headers = Headers::default();
        headers.push("gone", Some(b"x"));
        headers.clear();
        headers.push("a", Some(b"1"));
        headers.push("b", None);
        headers.push("", Some(b""));
        headers.push_constant("always", |bytes| bytes.push(b'2'));
        headers.push_with("c", |bytes| bytes.extend_from_slice("ü".as_bytes()));
        let seen: Vec<_> = headers.iter().collect();
        let expected = [
            ("a", Some(&b"1"[..])),
            ("b", None),
            ("", Some(&b""[..])),
            ("always", Some(b"2")),
            ("c", Some("ü".as_bytes())),
        ];
        assert_eq!(seen, expected);
        assert_eq!(headers.bytes(), 13);
    }
}
