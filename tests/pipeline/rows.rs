//! The rows of the outbox that has write-back, as the database has them: which of them are marked, and how.

use std::collections::BTreeMap;

use outboxd::lsn::Lsn;
use outboxd::receipt::Fate;

use crate::dice::Dice;
use crate::server::Event;

/// The table that has it, in histories that have it at all.
pub const TABLE: &str = "first";

#[derive(Default)]
pub struct Rows {
    marked: BTreeMap<u64, Marked>,
}

struct Marked {
    /// The cluster, and the row's commit there.
    cluster: u64,
    commit: Lsn,
    rejected: Mark,
    published: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Written,
    /// Whoever wrote it was told so: standbys have it.
    Durable,
}

impl Rows {
    /// An UPDATE is committed. A row that is published stays as it is.
    pub fn mark(&mut self, event: &Event, cluster: u64, fate: &Fate) {
        let commit = event.position.commit;
        let row = self.marked.entry(event.id).or_insert(Marked {
            cluster,
            commit,
            rejected: Mark::None,
            published: Mark::None,
        });
        let mark = match fate {
            Fate::Published => &mut row.published,
            Fate::Rejected { .. } => &mut row.rejected,
        };
        if *mark == Mark::None {
            *mark = Mark::Written;
        }
    }

    /// Whoever wrote it is told so.
    pub fn told(&mut self, event: u64) {
        let Some(row) = self.marked.get_mut(&event) else { return };
        for mark in [&mut row.rejected, &mut row.published] {
            if *mark == Mark::Written {
                *mark = Mark::Durable;
            }
        }
    }

    pub fn has(&self, event: u64) -> bool {
        self.marked.contains_key(&event)
    }

    pub fn is_published(&self, event: u64) -> bool {
        self.marked.get(&event).is_some_and(|row| row.published != Mark::None)
    }

    /// The newest commit that every standby has, because somebody was told of what stands behind it in the WAL.
    pub fn durable(&self, cluster: u64) -> Lsn {
        let is_durable = |row: &&Marked| row.rejected == Mark::Durable || row.published == Mark::Durable;
        let counts = self.marked.values().filter(|row| row.cluster == cluster).filter(is_durable);
        counts.map(|row| row.commit).max().unwrap_or_default()
    }

    /// A standby takes over, which may lack what nobody was told of. True when it does.
    pub fn fail_over(&mut self, dice: &mut Dice) -> bool {
        let mut lacks = false;
        for row in self.marked.values_mut() {
            for mark in [&mut row.rejected, &mut row.published] {
                if *mark == Mark::Written && !dice.hits(30) {
                    (*mark, lacks) = (Mark::None, true);
                }
            }
        }
        self.marked.retain(|_, row| row.rejected != Mark::None || row.published != Mark::None);
        lacks
    }
}
