//! The record that an event would become, without a server: its columns enter as a JSON object.

use super::Router;
use crate::config;
use crate::config::{Outbox, OutboxSource, Rules};
use crate::dead_letter::Rejection;
use crate::lsn::Lsn;
use crate::record::Preview;
use crate::source::outbox::{self, Layout, Step};
use crate::source::pgoutput::Message;

/// Maps and routes an event of this outbox by the relay's own rooms, or tells why it would be parked.
///
/// What a JSON object holds is what a logical message holds, so it is read as one. It counts as committed at this time,
/// microseconds since 2000-01-01 UTC.
pub fn sample(rules: &Rules, outbox: &Outbox, event: &[u8], committed_at: i64) -> Result<Preview, Rejection> {
    const PREFIX: &str = "sample";
    let mut layout = Layout::default();
    // By the outbox's own name: routes go by it, and so do topics and headers of some presets.
    let mut router = Router::new(rules, std::slice::from_ref(outbox), &mut layout);
    // A sample has its payload with it, wherever that is else.
    let source = OutboxSource::MessagePrefix(PREFIX.to_owned());
    let outboxes = [config::Outbox { source, join: None, ..outbox.clone() }];
    let mut reader = outbox::Outbox::new(&outboxes, layout);
    let begin = Message::Begin { commit_lsn: Lsn::ZERO, committed_at, xid: 0 };
    let message = Message::Logical { transactional: true, lsn: Lsn::ZERO, prefix: PREFIX, content: event };
    let unreadable = |message: String| Rejection { reason: "unreadable", message };
    reader.read(begin, &[]).map_err(|error| unreadable(error.chain()))?;
    match reader.read(message, event).map_err(|error| unreadable(error.chain()))? {
        Step::Row(row) => router.route(&row).map(Preview::from).map_err(|rejected| rejected.rejection),
        Step::Rejected(rejected) => Err(rejected.rejection),
        Step::Nothing | Step::Mark(_) | Step::TextNeeded(_) | Step::Odd(_) => {
            Err(unreadable("it is no event".to_owned()))
        }
    }
}
