//! What must hold for any bytes, one function per fuzz target. The targets look for bytes that break a promise;
//! `tests/fuzz_corpus.rs` keeps the bytes found so far from breaking it again.

use outboxd::source::pgoutput::{Message, decode};

/// Any bytes give a message whose columns can all be read, or an error that points into the bytes.
pub fn pgoutput(bytes: &[u8]) {
    match decode(bytes) {
        Ok(Message::Insert { row, .. }) => assert_eq!(row.columns().count(), usize::from(row.column_count)),
        Ok(Message::Relation(table)) => assert_eq!(table.columns().count(), usize::from(table.column_count)),
        Ok(_) => {}
        Err(malformed) => assert!(malformed.offset <= bytes.len(), "{malformed}, of {}", bytes.len()),
    }
}
