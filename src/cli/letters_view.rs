//! How dead letters are shown: pure text and JSON from what the store knows of them.
//!
//! Bytes are text where they are text. Others are `\x…` for people, as PostgreSQL prints them, and `{"hex": "…"}`
//! in JSON. What an event brings with it cannot control a terminal.

use std::time::{Duration, SystemTime};

use outboxd::dead_letter::{Column, Origin, Rejection, hex};
use outboxd::record::Preview;
use outboxd::source::catalog::{Attempt, LetterGroup, LetterLine, LetterPage};
use serde::Serialize;
use serde_json::{Value, json};

use super::letters_json::{self, members, one_line};
use super::view::{age, bytes};

/// The first second that RFC 3339 has no name for: the year 10000.
const TIME_END: Duration = Duration::from_secs(253_402_300_800);

/// What is done with letters, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Deed {
    /// The relay is to try them again.
    Retry,
    /// They are never to be published.
    Discard,
}

impl Deed {
    /// As in "cannot be …".
    pub fn done(self) -> &'static str {
        match self {
            Deed::Retry => "retried",
            Deed::Discard => "discarded",
        }
    }
}

/// What `list` shows.
pub struct Listing<'a> {
    /// Whose letters.
    pub slot: &'a str,
    /// All that match, counted.
    pub groups: &'a [LetterGroup],
    /// One page of them, in the order of their numbers.
    pub letters: &'a [LetterLine],
    /// Behind which letter the next page starts, if there is one.
    pub next: Option<i64>,
}

impl Listing<'_> {
    /// The counts, then a line per letter.
    pub fn text(&self, now: SystemTime) -> String {
        if self.groups.is_empty() {
            return format!("slot \"{}\" has no such dead letters\n", self.slot);
        }
        let mut text = group_table(self.groups, now);
        if !self.letters.is_empty() {
            text.push('\n');
            text.push_str(&letter_table(self.letters, now));
        }
        if let Some(next) = self.next {
            text.push_str(&format!("\nthere are more: --after {next} shows the next ones\n"));
        }
        text
    }

    /// One JSON object in one line.
    pub fn json(&self) -> String {
        let groups: Value = self.groups.iter().map(letters_json::group).collect();
        let letters: Value = self.letters.iter().map(letters_json::line).collect();
        one_line(&json!({ "groups": groups, "letters": letters, "next": self.next }))
    }
}

/// What a change would do.
pub struct Plan<'a> {
    /// What is done.
    pub deed: Deed,
    /// To which letters.
    pub groups: &'a [LetterGroup],
}

impl Plan<'_> {
    /// How many letters it is about.
    pub fn count(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// The counts, then a sentence.
    pub fn text(&self, now: SystemTime) -> String {
        let count = self.count();
        if count == 0 {
            return format!("no letters would be {}: none match\n", self.deed.done());
        }
        let table = group_table(self.groups, now);
        let busy = self.groups.iter().any(|group| group.state == "retrying");
        let busy = if busy { ", but for those that a relay is just trying" } else { "" };
        format!("{table}\n{} would be {}{busy}\n", letters(count), self.deed.done())
    }

    /// One JSON object in one line.
    pub fn json(&self) -> String {
        let groups: Value = self.groups.iter().map(letters_json::group).collect();
        one_line(&json!({ "would": self.deed, "letters": self.count(), "groups": groups }))
    }
}

/// What a change has done.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// What was done.
    pub deed: Deed,
    /// To how many letters.
    pub changed: u64,
    /// How many were meant, and left as they are.
    pub left: u64,
    /// How they ended, if that was waited for.
    pub ends: Option<Ends>,
}

/// How letters ended, by their states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// They are in Kafka.
    pub delivered: u64,
    /// They wait for a person.
    pub failed: u64,
    /// Somebody discarded them.
    pub discarded: u64,
    /// They were delivered or discarded, and are not kept any more.
    pub forgotten: u64,
}

impl Summary {
    /// Nothing that was waited for has failed.
    pub fn is_good(&self) -> bool {
        self.ends.as_ref().is_none_or(|ends| ends.failed == 0)
    }

    /// A line for each thing that is to be said.
    pub fn text(&self) -> String {
        let mut text = match (self.changed, self.left) {
            (0, 0) => "no letters match: nothing was changed\n".to_owned(),
            (count, _) => format!("{}\n", changed(count, self.deed)),
        };
        match self.left {
            0 => {}
            1 => text.push_str("1 letter was left as it is: a relay is just trying it, or it was settled meanwhile\n"),
            left => text.push_str(&format!(
                "{left} letters were left as they are: a relay is just trying them, or they were settled meanwhile\n"
            )),
        }
        if let Some(ends) = &self.ends {
            text.push_str(&ends.text());
        }
        text
    }

    /// One JSON object in one line.
    pub fn json(&self) -> String {
        one_line(self)
    }
}

impl Ends {
    fn text(&self) -> String {
        let mut text = format!("{} delivered, {} failed", self.delivered, self.failed);
        for (count, name) in [(self.discarded, "discarded"), (self.forgotten, "settled and not kept any more")] {
            if count > 0 {
                text.push_str(&format!(", {count} {name}"));
            }
        }
        text.push('\n');
        if self.failed > 0 {
            text.push_str("  hint: outboxd dead-letters list --state failed says why\n");
        }
        text
    }
}

/// What `show` shows.
pub struct Sheet<'a> {
    /// Whose letter.
    pub slot: &'a str,
    /// The letter.
    pub page: &'a LetterPage,
    /// What was not kept of it, and was read again from the table.
    pub again: &'a [Column],
    /// Which column is the payload, where that is known.
    pub payload: Option<&'a str>,
    /// The record as it would be sent now, or why it would be rejected.
    pub preview: &'a Result<Preview, Rejection>,
}

impl Sheet<'_> {
    /// A sentence, then a paragraph for each side of it; the payload, which may be long, comes last.
    pub fn text(&self, now: SystemTime) -> String {
        let mut text = format!("dead letter {} is {}\n", self.page.line.id, self.page.line.state);
        text.push_str(&aligned(&facts(self.page, now)));
        if !self.page.attempts.is_empty() {
            text.push_str(&format!("\nattempts\n{}", attempts(self.page)));
        }
        text.push_str(&format!("\ncolumns\n{}", aligned(&self.columns())));
        match self.preview {
            Ok(record) => text.push_str(&format!("\nthe record as it would be sent now\n{}", aligned(&sent(record)))),
            Err(Rejection { reason, message }) => {
                text.push_str(&format!("\nit would be rejected now, too: {reason}: {}\n", safe(message)));
            }
        }
        if let Some(value) = self.kept_payload() {
            text.push_str(&payload(value));
        }
        text
    }

    /// One JSON object in one line.
    pub fn json(&self) -> String {
        let mut letter = letters_json::page(self.page, self.slot);
        letter.extend(members([("payload_column", json!(self.payload)), ("now", letters_json::preview(self.preview))]));
        one_line(&letter)
    }

    fn columns(&self) -> Vec<(String, String)> {
        let size = |value: &[u8]| bytes(value.len() as u64);
        let kept = self.page.columns.iter().map(|column| match &column.value {
            None => (safe(&column.name), "NULL".to_owned()),
            Some(value) if self.payload == Some(column.name.as_str()) => {
                (safe(&column.name), format!("{}, at the end", size(value)))
            }
            Some(value) => (safe(&column.name), in_line(value)),
        });
        let not_kept = self.page.not_kept.iter().map(|name| {
            let again = self.again.iter().find(|column| column.name == *name);
            let text = match again.map(|column| &column.value) {
                None => "not kept".to_owned(),
                Some(None) => "not kept; NULL in the table's row".to_owned(),
                Some(Some(value)) => format!("not kept; {} in the table's row", size(value)),
            };
            (safe(name), text)
        });
        kept.chain(not_kept).collect()
    }

    fn kept_payload(&self) -> Option<&[u8]> {
        let name = self.payload?;
        self.page.columns.iter().find(|column| column.name == name)?.value.as_deref()
    }
}

/// A letter in one line of JSON, with all its columns.
pub fn export_line(page: &LetterPage, slot: &str) -> String {
    one_line(&letters_json::page(page, slot))
}

/// What `outboxd resume` says.
pub fn resumed(slot: &str, pause: Option<(SystemTime, &str)>, now: SystemTime) -> String {
    match pause {
        Some((since, message)) => {
            format!("resumed: slot \"{slot}\" was paused since {}: {}\n", when(since, now), safe(message))
        }
        None => format!("slot \"{slot}\" is not paused\n"),
    }
}

/// The same as one JSON object in one line.
pub fn resumed_json(slot: &str, pause: Option<(SystemTime, &str)>) -> String {
    let pause = pause.map(|(since, message)| json!({ "since": time(since), "message": message }));
    one_line(&json!({ "slot": slot, "resumed": pause.is_some(), "pause": pause }))
}

/// So many letters.
pub fn letters(count: u64) -> String {
    match count {
        1 => "1 letter".into(),
        count => format!("{count} letters"),
    }
}

/// What has happened to so many letters.
pub fn changed(count: u64, deed: Deed) -> String {
    let is = if count == 1 { "is" } else { "are" };
    match deed {
        Deed::Retry => format!("{} {is} to be retried by the relay", letters(count)),
        Deed::Discard => format!("{} {is} discarded", letters(count)),
    }
}

fn group_table(groups: &[LetterGroup], now: SystemTime) -> String {
    let head = [
        ("state", Align::Left),
        ("reason", Align::Left),
        ("topic", Align::Left),
        ("event type", Align::Left),
        ("letters", Align::Right),
        ("oldest", Align::Left),
    ];
    let row = |group: &LetterGroup| {
        [
            group.state.clone(),
            clip(&group.reason, 20),
            known(group.topic.as_deref(), 60),
            known(group.event_type.as_deref(), 40),
            group.count.to_string(),
            age_of(group.oldest, now),
        ]
    };
    table(head, &groups.iter().map(row).collect::<Vec<_>>())
}

fn letter_table(letters: &[LetterLine], now: SystemTime) -> String {
    let head = [
        ("id", Align::Right),
        ("age", Align::Left),
        ("state", Align::Left),
        ("attempts", Align::Right),
        ("topic", Align::Left),
        ("key", Align::Left),
        ("event", Align::Left),
        ("message", Align::Left),
    ];
    let row = |letter: &LetterLine| {
        let key = letter.lane.key.as_deref().map(in_line);
        [
            letter.id.to_string(),
            age_of(letter.parked_at, now),
            letter.state.clone(),
            letter.attempts.to_string(),
            known(letter.lane.topic.as_deref(), 40),
            known(key.as_deref(), 36),
            known(letter.event.as_deref(), 36),
            clip(&format!("{}: {}", letter.reason, letter.message), 120),
        ]
    };
    table(head, &letters.iter().map(row).collect::<Vec<_>>())
}

/// What is known of a letter beside its columns and attempts.
fn facts(page: &LetterPage, now: SystemTime) -> Vec<(String, String)> {
    let LetterPage { line, .. } = page;
    let origin = match &line.origin {
        Origin::Table(schema, table) => format!("table {}.{}", safe(schema), safe(table)),
        Origin::Messages(prefix) => format!("logical messages with prefix {}", safe(prefix)),
    };
    let due = (line.state == "pending").then(|| when(line.next_attempt, now));
    let lease = page
        .lease_until
        .map(|until| format!("by {} until {}", safe(page.owner.as_deref().unwrap_or("a relay")), when(until, now)));
    let note = page
        .note
        .as_ref()
        .map(|note| format!("{} ({})", safe(note), safe(page.noted_by.as_deref().unwrap_or("nobody knows who"))));
    let facts = [
        ("rejected", Some(format!("{}: {}", safe(&line.reason), safe(&line.message)))),
        ("event", line.event.as_deref().map(safe)),
        ("event type", line.event_type.as_deref().map(safe)),
        ("topic", line.lane.topic.as_deref().map(safe)),
        ("key", line.lane.key.as_deref().map(in_line)),
        ("origin", Some(origin)),
        ("position", Some(format!("{}, {}", line.position, page.system))),
        ("committed", Some(when(page.committed_at, now))),
        ("parked", Some(when(line.parked_at, now))),
        ("attempts", Some(format!("{}, {} left", line.attempts, line.attempts_left))),
        ("next attempt", due),
        ("in work", lease),
        ("settled", page.settled_at.map(|settled| when(settled, now))),
        ("note", note),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn attempts(page: &LetterPage) -> String {
    let line = |attempt: &Attempt| {
        let what = format!("{}: {}", attempt.reason, attempt.message);
        (attempt.number.to_string(), format!("{}  {}", time(attempt.at), safe(what.trim_end_matches(": "))))
    };
    aligned(&page.attempts.iter().map(line).collect::<Vec<_>>())
}

/// A record, with its value, for people.
pub fn record(record: &Preview) -> String {
    let lines = sent(record);
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let value = record.value.as_deref().map(in_line).map(|value| format!("  {value}\n"));
    lines.iter().map(|(name, text)| format!("  {name:<width$}  {text}\n")).chain(value).collect()
}

fn sent(record: &Preview) -> Vec<(String, String)> {
    let value = match &record.value {
        Some(value) => bytes(value.len() as u64),
        None => "NULL, a tombstone".into(),
    };
    let mut lines = vec![
        ("topic".to_owned(), safe(&record.topic)),
        ("partition".to_owned(), record.partition.map_or("by the key".into(), |partition| partition.to_string())),
        ("key".to_owned(), record.key.as_deref().map_or_else(|| "none".to_owned(), in_line)),
        ("timestamp".to_owned(), record.timestamp_ms.map_or_else(|| "when it is sent".to_owned(), time_of_record)),
        ("value".to_owned(), value),
        ("size".to_owned(), bytes(size(record))),
    ];
    lines.extend(
        record
            .headers
            .iter()
            .map(|(name, value)| (format!("header {}", safe(name)), value.as_deref().map_or("NULL".into(), in_line))),
    );
    lines
}

/// Its bytes as they travel, without Kafka's framing.
pub fn size(record: &Preview) -> u64 {
    let header = |(name, value): &(String, Option<Vec<u8>>)| name.len() + value.as_ref().map_or(0, Vec::len);
    let headers: usize = record.headers.iter().map(header).sum();
    let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    (record.topic.len() + length(&record.key) + length(&record.value) + headers) as u64
}

/// The exact bytes: as they are, where a terminal shows them so.
fn payload(value: &[u8]) -> String {
    let is_plain = |sign: char| !sign.is_control() || sign == '\n' || sign == '\t';
    let size = bytes(value.len() as u64);
    match std::str::from_utf8(value) {
        Ok(text) if text.chars().all(is_plain) => format!("\npayload, {size}\n{text}\n"),
        Ok(_) | Err(_) => format!("\npayload, {size}, in hexadecimal\n{}\n", hex(value)),
    }
}

#[derive(Debug, Clone, Copy)]
enum Align {
    Left,
    Right,
}

/// Rows in aligned columns under their names.
fn table<const N: usize>(head: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let titles = head.map(|(title, _)| title.to_owned());
    let lines: Vec<&[String; N]> = [&titles].into_iter().chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for line in lines {
        let cells = (0..N).map(|column| match (head[column].1, widths[column]) {
            (Align::Left, width) => format!("{:<width$}", line[column]),
            (Align::Right, width) => format!("{:>width$}", line[column]),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Indented lines of names and values.
fn aligned(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    lines.iter().map(|(name, value)| format!("  {name:<width$}  {value}\n")).collect()
}

fn known(text: Option<&str>, most: usize) -> String {
    text.map_or("-".into(), |text| clip(text, most))
}

/// At most so many characters, in one line.
fn clip(text: &str, most: usize) -> String {
    let text = safe(text);
    match text.chars().count() {
        length if length > most => text.chars().take(most - 1).chain(['…']).collect(),
        _ => text,
    }
}

/// Bytes in one line.
fn in_line(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => safe(text),
        Err(_) => format!("\\x{}", hex(value)),
    }
}

/// Text in one line that leaves the terminal alone: control characters are escaped.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign.is_control() {
            true => safe.extend(sign.escape_default()),
            false => safe.push(sign),
        }
    }
    safe
}

/// A time as machines write it.
pub fn time(time: SystemTime) -> String {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since < TIME_END => humantime::format_rfc3339_millis(time).to_string(),
        Ok(_) | Err(_) => "beyond all calendars".into(),
    }
}

/// A time, and how far away it is.
fn when(then: SystemTime, now: SystemTime) -> String {
    match then.duration_since(now) {
        Ok(ahead) if !ahead.is_zero() => format!("{} (in {})", time(then), age(ahead.as_secs_f64())),
        Ok(_) | Err(_) => format!("{} ({} ago)", time(then), age_of(then, now)),
    }
}

/// Clocks of two machines differ: what lies ahead has no age.
fn age_of(then: SystemTime, now: SystemTime) -> String {
    age(now.duration_since(then).unwrap_or_default().as_secs_f64())
}

/// A record's timestamp is what the event says, and may be any number.
fn time_of_record(timestamp_ms: i64) -> String {
    match u64::try_from(timestamp_ms).map(Duration::from_millis) {
        Ok(since) if since < TIME_END => time(SystemTime::UNIX_EPOCH + since),
        Ok(_) | Err(_) => format!("{timestamp_ms} ms since 1970"),
    }
}

#[cfg(test)]
mod tests {
    use outboxd::dead_letter::Lane;
    use outboxd::lsn::{Lsn, Position};
    use outboxd::source::System;

    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    /// Three days later.
    fn now() -> SystemTime {
        AT + Duration::from_secs(3 * 86_400)
    }

    fn line() -> LetterLine {
        LetterLine {
            id: 9,
            state: "failed".into(),
            reason: "too_large".into(),
            message: "too big".into(),
            origin: Origin::Table("public".into(), "outbox".into()),
            event: Some("e1".into()),
            event_type: Some("order.created".into()),
            lane: Lane { topic: Some("orders".into()), key: Some(b"o-1".to_vec()) },
            position: Position { commit: Lsn(0xAB), row: 3 },
            attempts: 25,
            attempts_left: 0,
            next_attempt: AT,
            parked_at: AT,
        }
    }

    fn hostile_line() -> LetterLine {
        LetterLine {
            id: 17,
            state: "pending".into(),
            reason: "behind".into(),
            message: "a\u{1b}[31m\nb".into(),
            event: None,
            event_type: None,
            lane: Lane::default(),
            attempts: 0,
            parked_at: now() - Duration::from_secs(10),
            ..line()
        }
    }

    fn groups() -> Vec<LetterGroup> {
        let group = |line: &LetterLine, count: u64| LetterGroup {
            state: line.state.clone(),
            reason: line.reason.clone(),
            topic: line.lane.topic.clone(),
            event_type: line.event_type.clone(),
            count,
            oldest: line.parked_at,
        };
        vec![group(&line(), 12), group(&hostile_line(), 1)]
    }

    fn column(name: &str, value: Option<&[u8]>) -> Column {
        Column { name: name.into(), kind: outboxd::column::Type::default(), value: value.map(Into::into) }
    }

    fn page() -> LetterPage {
        let attempt = |number: u32, reason: &str, message: &str| Attempt {
            number,
            at: AT,
            reason: reason.into(),
            message: message.into(),
        };
        LetterPage {
            line: line(),
            system: System { id: u64::MAX, timeline: 1 },
            committed_at: AT,
            columns: vec![
                column("id", Some(b"e1")),
                column("payload", Some(b"{\"a\":1}")),
                column("tenant", None),
                column("raw", Some(b"\x00\xff")),
            ],
            not_kept: vec!["blob".into()],
            owner: None,
            lease_until: None,
            settled_at: None,
            note: None,
            noted_by: None,
            attempts: vec![attempt(1, "too_large", "too big"), attempt(2, "delivered", "")],
        }
    }

    fn preview() -> Preview {
        Preview {
            topic: "orders".into(),
            partition: None,
            key: Some(b"o-1".to_vec()),
            value: Some(b"{\"a\":1}".to_vec()),
            headers: vec![("id".into(), Some(b"e1".to_vec())), ("x".into(), None)],
            timestamp_ms: Some(0),
        }
    }

    fn parsed(text: &str) -> Value {
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_list_counts_first_and_then_has_a_line_for_each_letter() {
        let (groups, letters) = (groups(), [line(), hostile_line()]);
        let listing = Listing { slot: "orders", groups: &groups, letters: &letters, next: Some(17) };
        let expected = "\
state    reason     topic   event type     letters  oldest
failed   too_large  orders  order.created       12  3 d
pending  behind     -       -                    1  10 s

id  age   state    attempts  topic   key  event  message
 9  3 d   failed         25  orders  o-1  e1     too_large: too big
17  10 s  pending         0  -       -    -      behind: a\\u{1b}[31m\\nb

there are more: --after 17 shows the next ones
";
        assert_eq!(listing.text(now()), expected);
        let last = Listing { next: None, letters: &[], ..listing };
        assert!(last.text(now()).ends_with("  10 s\n"), "{}", last.text(now()));
        let none = Listing { groups: &[], ..last };
        assert_eq!(none.text(now()), "slot \"orders\" has no such dead letters\n");
    }

    #[test]
    fn a_list_in_json_has_groups_letters_and_where_to_go_on() {
        let binary = LetterLine { lane: Lane { topic: None, key: Some(vec![0xFF, 0x0A]) }, ..line() };
        let (groups, letters) = (groups(), [line(), binary]);
        let listing = Listing { slot: "orders", groups: &groups, letters: &letters, next: Some(9) };
        let json = parsed(&listing.json());
        assert_eq!(json["groups"][0]["count"], 12);
        assert_eq!(json["groups"][1]["topic"], Value::Null);
        assert_eq!(json["groups"][0]["oldest"], "1970-01-01T00:00:00.000Z");
        assert_eq!(json["letters"][0]["key"], "o-1");
        assert_eq!(json["letters"][0]["origin"], json!({ "schema": "public", "table": "outbox" }));
        assert_eq!(json["letters"][0]["position"], "0/AB/3");
        assert_eq!(json["letters"][1]["key"], json!({ "hex": "ff0a" }));
        assert_eq!(json["next"], 9);
        assert_eq!(parsed(&Listing { next: None, ..listing }.json())["next"], Value::Null);
    }

    #[test]
    fn a_plan_says_what_would_be_done_to_how_many() {
        let groups = groups();
        let plan = Plan { deed: Deed::Retry, groups: &groups };
        assert_eq!(plan.count(), 13);
        assert!(plan.text(now()).ends_with("\n\n13 letters would be retried\n"), "{}", plan.text(now()));
        let json = parsed(&plan.json());
        assert_eq!((&json["would"], &json["letters"]), (&json!("retry"), &json!(13)));

        let busy = [LetterGroup { state: "retrying".into(), count: 1, ..groups[0].clone() }];
        let text = Plan { deed: Deed::Discard, groups: &busy }.text(now());
        assert!(text.ends_with("1 letter would be discarded, but for those that a relay is just trying\n"), "{text}");
        let none = Plan { deed: Deed::Discard, groups: &[] };
        assert_eq!(none.text(now()), "no letters would be discarded: none match\n");
    }

    #[test]
    fn a_summary_says_what_was_done_what_was_left_and_how_it_ended() {
        let summary = |deed, changed, left, ends| Summary { deed, changed, left, ends };
        let retried = summary(Deed::Retry, 2, 0, None);
        assert_eq!(retried.text(), "2 letters are to be retried by the relay\n");
        assert_eq!(retried.json(), "{\"deed\":\"retry\",\"changed\":2,\"left\":0,\"ends\":null}\n");
        let discarded = summary(Deed::Discard, 1, 1, None).text();
        assert!(discarded.starts_with("1 letter is discarded\n1 letter was left as it is: "), "{discarded}");
        let left = summary(Deed::Discard, 0, 3, None).text();
        assert!(left.starts_with("0 letters are discarded\n3 letters were left as they are: "), "{left}");
        assert_eq!(summary(Deed::Retry, 0, 0, None).text(), "no letters match: nothing was changed\n");

        let good = summary(Deed::Retry, 3, 0, Some(Ends { delivered: 2, discarded: 1, ..Ends::default() }));
        assert!(good.is_good() && good.text().ends_with("\n2 delivered, 0 failed, 1 discarded\n"), "{}", good.text());
        let bad = summary(Deed::Retry, 3, 0, Some(Ends { delivered: 2, failed: 1, ..Ends::default() }));
        assert!(!bad.is_good() && bad.text().contains("\n2 delivered, 1 failed\n  hint: "), "{}", bad.text());
        assert_eq!(parsed(&bad.json())["ends"]["failed"], 1);
    }

    #[test]
    fn a_sheet_shows_the_letter_its_attempts_its_columns_the_record_and_the_exact_payload() {
        let (page, preview) = (page(), Ok(preview()));
        let again = [column("blob", Some(&[b'x'; 3072]))];
        let sheet = Sheet { slot: "orders", page: &page, again: &again, payload: Some("payload"), preview: &preview };
        let expected = "\
dead letter 9 is failed
  rejected    too_large: too big
  event       e1
  event type  order.created
  topic       orders
  key         o-1
  origin      table public.outbox
  position    0/AB/3, system 18446744073709551615 timeline 1
  committed   1970-01-01T00:00:00.000Z (3 d ago)
  parked      1970-01-01T00:00:00.000Z (3 d ago)
  attempts    25, 0 left

attempts
  1  1970-01-01T00:00:00.000Z  too_large: too big
  2  1970-01-01T00:00:00.000Z  delivered

columns
  id       e1
  payload  7 B, at the end
  tenant   NULL
  raw      \\x00ff
  blob     not kept; 3.0 KiB in the table's row

the record as it would be sent now
  topic      orders
  partition  by the key
  key        o-1
  timestamp  1970-01-01T00:00:00.000Z
  value      7 B
  size       21 B
  header id  e1
  header x   NULL

payload, 7 B
{\"a\":1}
";
        assert_eq!(sheet.text(now()), expected);
        let json = parsed(&sheet.json());
        assert_eq!(json["now"]["record"]["headers"][1], json!({ "name": "x", "value": null }));
        assert_eq!((&json["now"]["record"]["bytes"], &json["payload_column"]), (&json!(21), &json!("payload")));
    }

    #[test]
    fn a_sheet_names_the_rejection_the_lease_the_next_attempt_and_the_note() {
        let later = now() + Duration::from_secs(300);
        let rejected = Err(Rejection { reason: "topic", message: "its topic is not valid".into() });
        let text = |page: &LetterPage| {
            let sheet = Sheet { slot: "orders", page, again: &[], payload: None, preview: &rejected };
            sheet.text(now())
        };
        let pending = LetterLine { state: "pending".into(), next_attempt: later, ..line() };
        let pending = text(&LetterPage { line: pending, ..page() });
        assert!(pending.contains("\n  next attempt  1970-01-04T00:05:00.000Z (in 5 min)\n"), "{pending}");
        assert!(pending.contains("\n  payload  {\"a\":1}\n"), "{pending}");
        assert!(pending.contains("\n  blob     not kept\n"), "{pending}");
        assert!(pending.ends_with("\nit would be rejected now, too: topic: its topic is not valid\n"), "{pending}");

        let owned = LetterPage { owner: Some("relay-1".into()), lease_until: Some(later), ..page() };
        assert!(text(&owned).contains("by relay-1 until 1970-01-04T00:05:00.000Z (in 5 min)\n"), "{}", text(&owned));
        let noted = LetterPage { note: Some("a test".into()), noted_by: Some("ann@host".into()), ..page() };
        assert!(text(&noted).contains("  a test (ann@host)\n"), "{}", text(&noted));
    }

    #[test]
    fn an_exported_letter_has_every_column_in_one_line() {
        let json = parsed(&export_line(&page(), "orders"));
        assert_eq!(json["slot"], "orders");
        let columns = json!({ "id": "e1", "payload": "{\"a\":1}", "tenant": null, "raw": { "hex": "00ff" } });
        assert_eq!(json["columns"], columns);
        assert_eq!((&json["id"], &json["not_kept"]), (&json!(9), &json!(["blob"])));
        assert_eq!(json["system_id"], "18446744073709551615");
        assert_eq!(json["history"][1]["reason"], "delivered");
        assert_eq!(json["settled_at"], Value::Null);
    }

    #[test]
    fn a_payload_is_shown_as_it_is_unless_a_terminal_would_obey_it() {
        assert_eq!(payload("a\n\tü".as_bytes()), "\npayload, 5 B\na\n\tü\n");
        assert_eq!(payload(b"\x1b[2J"), "\npayload, 4 B, in hexadecimal\n1b5b324a\n");
        assert_eq!(payload(b"\xff"), "\npayload, 1 B, in hexadecimal\nff\n");
    }

    #[test]
    fn text_from_outside_stays_in_its_line_and_within_its_width() {
        assert_eq!(in_line(b"a\tb"), "a\\tb");
        assert_eq!(in_line(b"\xff\x0a"), "\\xff0a");
        for (text, most, shown) in [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("äöüß", 4, "äöüß"), ("", 1, "")] {
            assert_eq!(clip(text, most), shown);
        }
        assert_eq!(known(None, 3), "-");
    }

    #[test]
    fn times_that_no_calendar_has_are_no_disaster() {
        for (timestamp_ms, text) in [
            (1_794_801_960_123, "2026-11-16T04:06:00.123Z"),
            (-1, "-1 ms since 1970"),
            (i64::MAX, "9223372036854775807 ms since 1970"),
        ] {
            assert_eq!(time_of_record(timestamp_ms), text);
        }
        assert_eq!(time(AT - Duration::from_secs(1)), "beyond all calendars");
        assert_eq!(time(AT + TIME_END), "beyond all calendars");
    }

    #[test]
    fn a_resumed_relay_is_told_since_when_and_why_it_was_paused() {
        let pause = Some((AT, "30 % of the latest events were rejected"));
        let expected = "resumed: slot \"orders\" was paused since 1970-01-01T00:00:00.000Z (3 d ago): \
                        30 % of the latest events were rejected\n";
        assert_eq!(resumed("orders", pause, now()), expected);
        assert_eq!(resumed("orders", None, now()), "slot \"orders\" is not paused\n");
        let json = parsed(&resumed_json("orders", pause));
        assert_eq!((&json["resumed"], &json["pause"]["since"]), (&json!(true), &json!("1970-01-01T00:00:00.000Z")));
        assert_eq!(parsed(&resumed_json("orders", None))["pause"], Value::Null);
    }
}
