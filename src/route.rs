//! Rows become records: a total function from `Row` to `Record` or `Rejected`.
//!
//! Routes are compiled once; the first that matches wins, and the default route stands behind them all. The value is
//! the payload, byte for byte. Topic, key and headers are written into buffers that the next row uses again.

use std::fmt;
use std::io::Write;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::config;
use crate::config::Piece;
use crate::record::{Headers, Record, Rejected};
use crate::source::outbox::{Layout, Name, Place, Row};

/// The compiled routes.
#[derive(Debug)]
pub struct Router {
    routes: Vec<Route>,
    topic: Vec<u8>,
    key: Vec<u8>,
    headers: Headers,
}

#[derive(Debug)]
struct Route {
    matches: Vec<(Place, Glob)>,
    topic: Pattern,
    key: Pattern,
    headers: Vec<(String, Pattern)>,
}

/// Literals with `*` between them.
#[derive(Debug)]
struct Glob(Vec<String>);

#[derive(Debug)]
struct Pattern(Vec<CompiledPiece>);

#[derive(Debug)]
enum CompiledPiece {
    Literal(String),
    Column(Place, String),
}

impl Router {
    /// Compiles the routes; `layout` learns which columns they need.
    pub fn new(routes: &[config::Route], layout: &mut Layout) -> Router {
        let routes = routes.iter().chain([&config::Route::default()]).map(|route| Route::new(route, layout)).collect();
        Router { routes, topic: Vec::new(), key: Vec::new(), headers: Headers::default() }
    }

    /// The record of a row.
    pub fn route<'a>(&'a mut self, row: &Row<'a>) -> Result<Record<'a>, Rejected> {
        let rejected = |reason, message| Rejected { position: row.position, event: row.id(), reason, message };
        let route = self.routes.iter().find(|route| route.fits(row)).expect("the default route fits every row");
        self.topic.clear();
        self.key.clear();
        self.headers.clear();

        route.topic.write(row, &mut self.topic).map_err(|problem| rejected("topic", format!("its topic {problem}")))?;
        route.key.write(row, &mut self.key).map_err(|problem| rejected("key", format!("its key {problem}")))?;
        let topic = topic_name(&self.topic).map_err(|problem| rejected("topic", problem))?;
        route.write_headers(row, &mut self.headers).map_err(|problem| rejected("headers", problem))?;
        let timestamp_ms = row.timestamp_ms().map_err(|problem| rejected("timestamp", problem))?;
        let partition = partition(row).map_err(|problem| rejected("partition", problem))?;
        let value = row.bytes(Place::PAYLOAD);
        Ok(Record { topic, partition, key: &self.key, value, headers: &self.headers, timestamp_ms })
    }
}

impl Route {
    fn new(route: &config::Route, layout: &mut Layout) -> Route {
        Route {
            matches: route.matches.iter().map(|(name, glob)| (layout.place(name), Glob::new(glob))).collect(),
            topic: Pattern::new(&route.topic, layout),
            key: Pattern::new(&route.key, layout),
            headers: route.headers.iter().map(|(name, p)| (name.clone(), Pattern::new(p, layout))).collect(),
        }
    }

    fn fits(&self, row: &Row<'_>) -> bool {
        self.matches.iter().all(|(place, glob)| row.bytes(*place).is_some_and(|text| glob.fits(text)))
    }

    /// Few and short ones, because headers are the dearest part of a send. A NULL column gives no header.
    fn write_headers(&self, row: &Row<'_>, headers: &mut Headers) -> Result<(), String> {
        let parts = [
            ("id", Place::ID),
            ("type", Place::EVENT_TYPE),
            ("aggregate_type", Place::AGGREGATE_TYPE),
            ("aggregate_id", Place::AGGREGATE_ID),
        ];
        for (name, place) in parts {
            if let Some(value) = row.bytes(place) {
                headers.push(name, Some(value));
            }
        }
        headers.push_with("lsn", |bytes| {
            write!(bytes, "{}", row.position).expect("a vector takes all that is written to it");
        });
        for (name, pattern) in &self.headers {
            if !pattern.is_null(row) {
                let mut written = Ok(());
                headers.push_with(name, |bytes| written = pattern.write(row, bytes));
                written.map_err(|problem| format!("its header \"{name}\" {problem}"))?;
            }
        }
        if let Some(object) = row.bytes(Place::HEADERS) {
            own_headers(object, headers).map_err(|error| format!("its headers are not a JSON object: {error}"))?;
        }
        Ok(())
    }
}

impl Pattern {
    fn new(pattern: &config::Pattern, layout: &mut Layout) -> Pattern {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => CompiledPiece::Literal(text.clone()),
            Piece::Column(name) => CompiledPiece::Column(layout.place(name), name.clone()),
        };
        Pattern(pattern.pieces.iter().map(piece).collect())
    }

    fn write(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        for piece in &self.0 {
            match piece {
                CompiledPiece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                CompiledPiece::Column(place, name) => match row.bytes(*place) {
                    Some(bytes) => out.extend_from_slice(bytes),
                    None if row.is_absent(*place) => return Err(format!("needs column \"{name}\", which it has not")),
                    None => return Err(format!("needs column \"{name}\", which is NULL")),
                },
            }
        }
        Ok(())
    }

    fn is_null(&self, row: &Row<'_>) -> bool {
        self.0.iter().any(|piece| match piece {
            CompiledPiece::Literal(_) => false,
            CompiledPiece::Column(place, _) => row.bytes(*place).is_none() && !row.is_absent(*place),
        })
    }
}

impl Glob {
    fn new(text: &str) -> Glob {
        Glob(text.split('*').map(str::to_owned).collect())
    }

    fn fits(&self, text: &[u8]) -> bool {
        let (first, rest) = self.0.split_first().expect("splitting gives at least one part");
        let Some(mut text) = text.strip_prefix(first.as_bytes()) else { return false };
        let Some((last, middle)) = rest.split_last() else { return text.is_empty() };
        for part in middle {
            let Some(at) = find(text, part.as_bytes()) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(last.as_bytes())
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { Some(0) } else { text.windows(part.len()).position(|window| window == part) }
}

/// Kafka's rule for topic names.
fn topic_name(bytes: &[u8]) -> Result<&str, String> {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let valid = (1..=249).contains(&bytes.len()) && bytes != b"." && bytes != b".." && bytes.iter().all(legal);
    std::str::from_utf8(bytes).ok().filter(|_| valid).ok_or_else(|| {
        format!(
            "\"{}\" is not a valid topic name (letters, digits, . _ -, at most 249)",
            String::from_utf8_lossy(bytes)
        )
    })
}

fn partition(row: &Row<'_>) -> Result<Option<i32>, String> {
    let Some(bytes) = row.bytes(Place::PARTITION) else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<i32>() {
        Ok(partition) if partition >= 0 => Ok(Some(partition)),
        Ok(_) | Err(_) => Err(format!("its partition \"{text}\" is not a partition number")),
    }
}

/// The members of the row's own headers object: strings without their quotes, null as a header without a value,
/// everything else as its JSON text.
fn own_headers(object: &[u8], headers: &mut Headers) -> serde_json::Result<()> {
    struct Members<'a>(&'a mut Headers);
    impl<'de> Visitor<'de> for Members<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
            while let Some((name, raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                match serde_json::from_str::<Name<'_>>(raw.get()) {
                    Ok(text) => self.0.push(&name.0, Some(text.0.as_bytes())),
                    Err(_) if raw.get() == "null" => self.0.push(&name.0, None),
                    Err(_) => self.0.push(&name.0, Some(raw.get().as_bytes())),
                }
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(object);
    deserializer.deserialize_any(Members(headers))?;
    deserializer.end()
}
