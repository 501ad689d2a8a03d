//! The record that a dead letter would become now: for people who look at one, without a relay.

use crate::config;
use crate::dead_letter::{Claimed, Rejection};
use crate::record::Preview;
use crate::route::Router;
use crate::source::outbox::{Layout, Outbox};

/// The letter's record by this configuration, or why there is none.
pub fn preview(outboxes: &[config::Outbox], rules: &config::Rules, letter: &Claimed) -> Result<Preview, Rejection> {
    let mut layout = Layout::default();
    let mut router = Router::new(rules, outboxes, &mut layout);
    let mut outbox = Outbox::new(outboxes, layout);
    let row = outbox.restore(letter)?;
    router.route(&row).map(Preview::from).map_err(|rejected| rejected.rejection)
}

/// The columns that were not kept of a letter, and that its record would need.
pub fn lacks(outboxes: &[config::Outbox], rules: &config::Rules, letter: &Claimed) -> Vec<String> {
    let mut layout = Layout::default();
    Router::new(rules, outboxes, &mut layout);
    Outbox::new(outboxes, layout).lacks(letter)
}
