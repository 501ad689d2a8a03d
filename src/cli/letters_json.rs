//! Dead letters as JSON, for `--json` and `export`.
//!
//! Bytes are text where they are text, else `{"hex": "…"}`.

use outboxd::dead_letter::{Column, Origin, Rejection, readable};
use outboxd::record::Preview;
use outboxd::source::catalog::{Attempt, LetterGroup, LetterLine, LetterPage};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::letters_view::{size, time};

/// So many letters that are alike.
pub fn group(group: &LetterGroup) -> Value {
    json!({
        "state": group.state,
        "reason": group.reason,
        "topic": group.topic,
        "event_type": group.event_type,
        "count": group.count,
        "oldest": time(group.oldest),
    })
}

/// What a list says of a letter.
pub fn line(line: &LetterLine) -> Map<String, Value> {
    let origin = match &line.origin {
        Origin::Table(schema, table) => json!({ "schema": schema, "table": table }),
        Origin::Messages(prefix) => json!({ "message_prefix": prefix }),
    };
    members([
        ("id", json!(line.id)),
        ("state", json!(line.state)),
        ("reason", json!(line.reason)),
        ("message", json!(line.message)),
        ("origin", origin),
        ("event", json!(line.event)),
        ("event_type", json!(line.event_type)),
        ("topic", json!(line.lane.topic)),
        ("key", readable(line.lane.key.as_deref())),
        ("position", json!(line.position.to_string())),
        ("attempts", json!(line.attempts)),
        ("attempts_left", json!(line.attempts_left)),
        ("next_attempt", json!(time(line.next_attempt))),
        ("parked_at", json!(time(line.parked_at))),
    ])
}

/// A line's members, and all others.
pub fn page(page: &LetterPage, slot: &str) -> Map<String, Value> {
    let column = |column: &Column| (column.name.clone(), readable(column.value.as_deref()));
    let attempt = |attempt: &Attempt| {
        let Attempt { number, at, reason, message } = attempt;
        json!({ "number": number, "at": time(*at), "reason": reason, "message": message })
    };
    let mut letter = line(&page.line);
    letter.extend(members([
        ("slot", json!(slot)),
        // JavaScript would round the number.
        ("system_id", json!(page.system.id.to_string())),
        ("timeline", json!(page.system.timeline)),
        ("committed_at", json!(time(page.committed_at))),
        ("columns", Value::Object(page.columns.iter().map(column).collect())),
        ("not_kept", json!(page.not_kept)),
        ("owner", json!(page.owner)),
        ("lease_until", json!(page.lease_until.map(time))),
        ("settled_at", json!(page.settled_at.map(time))),
        ("note", json!(page.note)),
        ("noted_by", json!(page.noted_by)),
        ("history", page.attempts.iter().map(attempt).collect()),
    ]));
    letter
}

/// What would become of a letter now.
pub fn preview(preview: &Result<Preview, Rejection>) -> Value {
    // A list: a name may occur more than once.
    let header =
        |(name, content): &(String, Option<Vec<u8>>)| json!({ "name": name, "value": readable(content.as_deref()) });
    match preview {
        Ok(record) => json!({ "record": {
            "topic": record.topic,
            "partition": record.partition,
            "key": readable(record.key.as_deref()),
            "headers": record.headers.iter().map(header).collect::<Value>(),
            "timestamp_ms": record.timestamp_ms,
            "value_bytes": record.value.as_ref().map(Vec::len),
            "bytes": size(record),
        } }),
        Err(Rejection { reason, message }) => json!({ "rejected": { "reason": reason, "message": message } }),
    }
}

/// An object of these members.
pub fn members<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// One JSON value in one line.
pub fn one_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps with text keys are JSON") + "\n"
}
