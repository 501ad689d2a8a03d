//! The record that a dead letter would become now: for people who look at one, without a relay.

use crate::config;
use crate::dead_letter::{Claimed, Rejection};
use crate::route::Router;
use crate::source::outbox::{Layout, Outbox};

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

/// The letter's record by this configuration, or why there is none.
pub fn preview(outboxes: &[config::Outbox], rules: &config::Rules, letter: &Claimed) -> Result<Preview, Rejection> {
    let mut layout = Layout::default();
    let mut router = Router::new(rules, outboxes, &mut layout);
    let mut outbox = Outbox::new(outboxes, layout);
    let row = outbox.restore(letter).map_err(|message| Rejection { reason: "unreadable", message })?;
    let record = router.route(&row).map_err(|rejected| rejected.rejection)?;
    Ok(Preview {
        topic: record.topic.to_owned(),
        partition: record.partition,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec))).collect(),
        timestamp_ms: record.timestamp_ms,
    })
}
