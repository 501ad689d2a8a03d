//! The rows of the outbox that has write-back, as the database has them: which of them are marked as published.
//!
//! A row that has a dead letter is marked with the letter, in one statement: that is the store's to say.

use std::collections::BTreeMap;

use outboxd::lsn::Lsn;

use crate::dice::Dice;
use crate::server::Event;

/// The table that has it, in histories that have it at all.
pub const TABLE: &str = "first";

#[derive(Default)]
pub struct Rows {
    published: BTreeMap<u64, Published>,
}

struct Published {
    /// The cluster, and the row's commit there.
    cluster: u64,
    commit: Lsn,
    /// Whoever wrote it was told so: standbys have it.
    durable: bool,
}

impl Rows {
    /// An UPDATE is committed. A row that is marked stays as it is.
    pub fn publish(&mut self, event: &Event, cluster: u64) {
        let commit = event.position.commit;
        self.published.entry(event.id).or_insert(Published { cluster, commit, durable: false });
    }

    /// Whoever wrote it is told so.
    pub fn told(&mut self, event: u64) {
        if let Some(row) = self.published.get_mut(&event) {
            row.durable = true;
        }
    }

    pub fn has(&self, event: u64) -> bool {
        self.published.contains_key(&event)
    }

    /// The newest commit that every standby has, because somebody was told of what stands behind it in the WAL.
    pub fn durable(&self, cluster: u64) -> Lsn {
        let counts = self.published.values().filter(|row| row.durable && row.cluster == cluster);
        counts.map(|row| row.commit).max().unwrap_or_default()
    }

    /// A standby takes over, which may lack what nobody was told of. True when it does.
    pub fn fail_over(&mut self, dice: &mut Dice) -> bool {
        let many = self.published.len();
        self.published.retain(|_, row| row.durable || dice.hits(30));
        self.published.len() < many
    }
}
