//! Columns as JSON: numbers and documents as they are, bytes in base64, everything else as a string.

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::column::Form;
use crate::source::outbox::{Place, Row};

/// A string as JSON writes it, quotes included.
pub(super) fn text(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}

/// Appends a column's value; NULL, and a column that is not there, are `null`.
pub(super) fn write(row: &Row<'_>, place: Place, out: &mut Vec<u8>) {
    let Some(bytes) = row.bytes(place) else { return out.extend_from_slice(b"null") };
    match row.type_of(place).form() {
        Form::Json => out.extend_from_slice(bytes),
        Form::Number if is_number(bytes) => out.extend_from_slice(bytes),
        Form::Boolean => out.extend_from_slice(if bytes.first() == Some(&b't') { b"true" } else { b"false" }),
        Form::Bytes => write_text(&BASE64_STANDARD.encode(bytes), out),
        Form::Number | Form::Text => write_text(&String::from_utf8_lossy(bytes), out),
    }
}

/// PostgreSQL also prints NaN and Infinity.
fn is_number(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string is JSON, and a buffer takes it");
}
