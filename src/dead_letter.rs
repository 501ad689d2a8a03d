//! An event that cannot be published now: what is kept of it, so that it can be later.
//!
//! A `DeadLetter` is what the pipeline hands to the store. It is stored before the row's ticket is settled, so that an
//! event is at any time in Kafka, in the parking lot, or still in front of the slot. Pure values, no I/O.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::column::Type;
use crate::lsn::Position;
use crate::receipt::Fate;

/// A column up to this size is kept of an event that is too large as a whole.
pub const SMALL: usize = 4096;
/// So many characters are kept of what is said of an event: it may quote a whole column.
pub const MESSAGE: usize = 1000;

/// What is stored of a rejected event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it stands in the WAL.
    pub position: Position,
    /// When it was committed, microseconds since 2000-01-01 UTC.
    pub committed_at: i64,
    /// Where it was written.
    pub origin: Origin,
    /// Its id, where it has one.
    pub event: Option<String>,
    /// Its type, where it has one.
    pub event_type: Option<String>,
    /// Where it was to go, as far as its route could tell.
    pub lane: Lane,
    /// The row as it was read.
    pub columns: Vec<Column>,
    /// Columns that are too large to be kept, or that the relay cannot read: only the table has them.
    pub not_kept: Vec<String>,
    /// Why it was rejected.
    pub rejection: Rejection,
    /// The number of the transaction that inserted its row, where that is to be marked.
    pub xid: Option<u32>,
}

impl DeadLetter {
    /// What it takes of memory until it is stored.
    pub fn weight(&self) -> u64 {
        let column = |column: &Column| column.name.len() + column.value.as_ref().map_or(0, Vec::len) + 100;
        let columns: usize = self.columns.iter().map(column).sum();
        1000 + (columns + self.rejection.message.len()) as u64
    }

    /// Leaves large columns out, for whoever does not take them: only the table has them then. False when there are none, and of
    /// a message, which is nowhere else.
    pub fn leave_large_out(&mut self) -> bool {
        if let Origin::Messages(_) = self.origin {
            return false;
        }
        let large = take_large(&mut self.columns);
        let is_any = !large.is_empty();
        self.not_kept.extend(large);
        is_any
    }

    /// Escapes characters beyond ASCII, which not every database takes. False when there are none.
    pub fn make_plain(&mut self) -> bool {
        let mut is_changed = false;
        let texts = [&mut self.event, &mut self.event_type].into_iter().flatten().chain([&mut self.rejection.message]);
        for text in texts.filter(|text| !text.is_ascii()) {
            *text = text.escape_default().to_string();
            is_changed = true;
        }
        is_changed
    }

    /// What is written of it where letters are kept in a topic.
    pub fn document(&self, slot: &str) -> Document {
        let column = |column: &Column| (column.name.clone(), readable(column.value.as_deref()));
        let columns: Map<String, Value> = self.columns.iter().map(column).collect();
        let origin = match &self.origin {
            Origin::Table(schema, name) => format!("{schema}.{name}"),
            Origin::Messages(prefix) => prefix.clone(),
        };
        let Rejection { reason, message } = &self.rejection;
        let value = json!({
            "slot": slot, "position": self.position.to_string(), "origin": origin, "event": self.event,
            "event_type": self.event_type, "topic": self.lane.topic, "key": readable(self.lane.key.as_deref()),
            "reason": reason, "message": message, "columns": columns, "not_kept": self.not_kept,
        });
        let key = self.event.clone().unwrap_or_else(|| self.position.to_string());
        let headers = vec![("reason", reason.to_string()), ("message", message.clone()), ("origin", origin)];
        Document { key, value: value.to_string(), headers }
    }
}

/// A dead letter as a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The event's id, or its position where it has none.
    pub key: String,
    /// A JSON object.
    pub value: String,
    /// What to know without reading the value.
    pub headers: Vec<(&'static str, String)>,
}

/// Takes the large columns away. Answers with their names.
pub fn take_large(columns: &mut Vec<Column>) -> Vec<String> {
    let is_large = |column: &mut Column| column.value.as_ref().is_some_and(|value| value.len() > SMALL);
    columns.extract_if(.., is_large).map(|column| column.name).collect()
}

/// Text where the bytes are text, else `{"hex": "…"}`.
pub fn readable(value: Option<&[u8]>) -> Value {
    match value.map(|value| std::str::from_utf8(value).map_err(|_| value)) {
        None => Value::Null,
        Some(Ok(text)) => json!(text),
        Some(Err(value)) => json!({ "hex": hex(value) }),
    }
}

/// Two digits for each byte.
pub fn hex(value: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    value.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]).collect()
}

/// Where an event was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A table, by schema and name.
    Table(String, String),
    /// Logical messages with this prefix.
    Messages(String),
}

/// Topic and key: what order is promised for. Each is unknown where the route could not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lane {
    /// The topic's name.
    pub topic: Option<String>,
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
}

/// One column as it was read: the bytes that PostgreSQL prints, `bytea` as its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// As the table calls it.
    pub name: String,
    /// As the table has it; unknown in letters of before types were kept.
    pub kind: Type,
    /// `None` is NULL.
    pub value: Option<Vec<u8>>,
}

/// Why an event was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// A stable word for machines, the label of `outboxd_events_rejected_total`.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

impl Rejection {
    /// A message that is too long for people is cut.
    pub fn new(reason: &'static str, mut message: String) -> Rejection {
        if let Some((end, _)) = message.char_indices().nth(MESSAGE) {
            message.truncate(end);
            // In ASCII, which every database can hold.
            message.push_str("...");
            message.shrink_to_fit();
        }
        Rejection { reason, message }
    }

    /// True when something is wrong with the event, which a try has shown. What only waits has not been tried.
    pub fn is_fault(&self) -> bool {
        !matches!(self.reason, BEHIND | SWITCHED_OFF)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// The reasons that a rejection can have: no room gives another, because filters and documents know these alone.
pub const REASONS: [&str; 16] = [
    BEHIND,
    "contract",
    "headers",
    "key",
    "partition",
    PAYLOAD_MISSING,
    "refused",
    "schema",
    SWITCHED_OFF,
    "timestamp",
    "too_large",
    "topic",
    "unknown_topic",
    "unmatched",
    "unreadable",
    "value",
];

/// Nothing is wrong with the event: an earlier one of its key is parked, and order is kept.
pub const BEHIND: &str = "behind";

/// Nothing is wrong with the event: its route is switched off.
pub const SWITCHED_OFF: &str = "switched_off";

/// The row of a second table that has its payload is not there.
pub const PAYLOAD_MISSING: &str = "payload_missing";

/// That there is a letter of a row which may come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLetter {
    /// Where the row stands.
    pub position: Position,
    /// The letter is of this cluster, as in `Claimed`; in another one its position may be another row's.
    pub is_current: bool,
    /// The event's id, which tells.
    pub event: Option<String>,
    /// What its row is to say, where it says anything.
    pub fate: Fate,
}

/// A topic and a key with a letter that is neither delivered nor discarded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpenLane {
    /// The topic's name.
    pub topic: String,
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The oldest such letter; `None` when it is another cluster's, and so before all rows of this one.
    pub first: Option<Position>,
}

/// A letter that the relay has claimed, to publish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its number in the store.
    pub id: i64,
    /// By which claim: a number alone may mean another letter, after a failover.
    pub owner: String,
    /// How often it was tried so far.
    pub attempts: u32,
    /// The letter is of this cluster: its position can be compared with others, whatever the timeline, because a letter comes
    /// behind its event in the WAL, and no server has the one without the other.
    pub is_current: bool,
    /// Where it was to go when it was parked.
    pub lane: Lane,
    /// Where it was written.
    pub origin: Origin,
    /// The event's id.
    pub event: Option<String>,
    /// Where it stands in the WAL.
    pub position: Position,
    /// When it was committed, microseconds since 2000-01-01 UTC.
    pub committed_at: i64,
    /// The row as it was read.
    pub columns: Vec<Column>,
    /// Columns that were not kept, and could not be read again from the table.
    pub not_kept: Vec<String>,
}

/// What became of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in Kafka.
    Delivered,
    /// It was rejected again: one attempt more.
    Rejected(Rejection),
    /// It is not to be published for now: no attempt, and tried again when the configuration is another one.
    Waits(Rejection),
    /// It could not be tried: nobody's fault, and no attempt.
    PutBack,
}

impl Outcome {
    /// What was delivered must be delivered again: the events before it, of the same key, are published once more.
    pub fn undo(&mut self) {
        if *self == Outcome::Delivered {
            *self = Outcome::PutBack;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::Lsn;

    fn letter(origin: Origin) -> DeadLetter {
        let column = |name: &str, bytes: usize| Column {
            name: name.into(),
            kind: Type::default(),
            value: Some(vec![b'x'; bytes]),
        };
        DeadLetter {
            position: Position { commit: Lsn(1), row: 1 },
            committed_at: 0,
            origin,
            event: Some("7".into()),
            event_type: Some("paid".into()),
            lane: Lane::default(),
            columns: vec![column("id", 1), column("payload", SMALL + 1), column("note", SMALL)],
            not_kept: Vec::new(),
            rejection: Rejection { reason: "too_large", message: "no".into() },
            xid: None,
        }
    }

    /// The words that a source gives as a reason, its tests aside.
    fn reasons_in(source: &str) -> Vec<String> {
        let code = source.split("#[cfg(test)]").next().unwrap();
        let code: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
        let made = regex::Regex::new(r#"(?:rejected\( ?|reason: )"([a-z_]+)""#).unwrap();
        made.captures_iter(&code).map(|found| found[1].to_owned()).collect()
    }

    fn sources(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn every_reason_that_a_room_gives_can_be_asked_for_and_is_in_the_documents() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
        let is_source = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.ends_with(".rs") && !name.contains("tests") && !path.iter().any(|part| part == "tests")
        };
        let mut made: Vec<String> = sources(&root.join("src"))
            .iter()
            .filter(|path| is_source(path))
            .flat_map(|path| reasons_in(&read(path)))
            .collect();
        made.extend([BEHIND, PAYLOAD_MISSING, SWITCHED_OFF].map(str::to_owned));
        made.sort();
        made.dedup();
        assert_eq!(made, REASONS, "what the rooms give, and what dead-letters --reason takes");
        let table = read(&root.join("docs/dead-letters.md"));
        let table = table.split("### Reasons").nth(1).unwrap().split("\n\n").nth(1).unwrap();
        let mut told: Vec<&str> = table.lines().skip(2).filter_map(|line| line.split('`').nth(1)).collect();
        told.sort_unstable();
        assert_eq!(told, REASONS, "docs/dead-letters.md has a line for each");
    }

    #[test]
    fn a_message_that_quotes_a_whole_column_is_cut_between_characters_and_counts() {
        let cut = |message: &str| Rejection::new("topic", message.to_owned()).message;
        let most = "ü".repeat(MESSAGE);
        assert_eq!(
            [cut("no"), cut(&most), cut(&format!("{most}üü"))],
            ["no".to_owned(), most.clone(), most.clone() + "..."]
        );
        let (short, mut long) = (letter(Origin::Messages("outbox".into())), letter(Origin::Messages("outbox".into())));
        long.rejection = Rejection::new("topic", "x".repeat(100_000));
        assert_eq!(long.weight() - short.weight(), MESSAGE as u64 + 1);
        assert!(long.rejection.message.capacity() < 2 * MESSAGE);
    }

    #[test]
    fn only_large_columns_of_a_row_are_left_out_and_named() {
        let mut row = letter(Origin::Table("public".into(), "outbox".into()));
        assert!(row.leave_large_out());
        assert_eq!((row.columns.len(), row.not_kept.as_slice()), (2, &["payload".to_owned()][..]));
        assert!(!row.leave_large_out(), "there is nothing left to leave out");
    }

    #[test]
    fn nothing_of_a_message_is_left_out_because_it_is_nowhere_else() {
        let mut message = letter(Origin::Messages("outbox".into()));
        assert!(!message.leave_large_out());
        assert_eq!((message.columns.len(), message.not_kept.len()), (3, 0));
    }

    #[test]
    fn text_beyond_ascii_is_escaped_and_columns_stay_as_they_are() {
        let mut row = letter(Origin::Table("public".into(), "outbox".into()));
        assert!(!row.make_plain());
        row.event_type = Some("5 €".into());
        assert!(row.make_plain());
        assert_eq!((row.event_type.as_deref(), row.columns.len()), (Some("5 \\u{20ac}"), 3));
    }

    #[test]
    fn a_letter_in_a_topic_is_a_json_object_with_the_reason_beside_it() {
        let mut row = letter(Origin::Table("public".into(), "outbox".into()));
        row.columns.push(Column { name: "raw".into(), kind: Type::default(), value: Some(vec![0xFF]) });
        let Document { key, value, headers } = row.document("orders");
        let value: Value = serde_json::from_str(&value).unwrap();
        assert_eq!((key.as_str(), headers[0].1.as_str()), ("7", "too_large"));
        assert_eq!((&value["slot"], &value["columns"]["raw"]["hex"]), (&json!("orders"), &json!("ff")));
    }
}
