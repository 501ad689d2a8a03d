//! What is to be written into a row's own table, with `outbox.writeback`: a receipt. Written twice, it changes nothing.

/// What is to be written into a row once it is published, or its dead letter is stored or tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Which `[[outbox]]` block the row was read by.
    pub outbox: usize,
    /// The row's id, as text.
    pub id: String,
    /// The number of the transaction that inserted it: the WAL shows a row before others can see it. `None`: that is long ago.
    pub xid: Option<u32>,
    /// What became of the row.
    pub fate: Fate,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is in Kafka.
    Published,
    /// It has a dead letter.
    Rejected {
        /// The reason and the message of the last try.
        why: String,
        /// How often it was tried.
        attempts: u32,
    },
}

impl Receipt {
    /// What it takes of memory until it is written, with its place in the books and in a queue.
    pub fn weight(&self) -> u64 {
        let why = match &self.fate {
            Fate::Published => 0,
            Fate::Rejected { why, .. } => why.len(),
        };
        150 + (self.id.len() + why) as u64
    }
}

impl Fate {
    /// Leaves nothing but ASCII in it, which every database can hold; false when there is nothing else already.
    pub fn make_plain(&mut self) -> bool {
        match self {
            Fate::Rejected { why, .. } if !why.is_ascii() => {
                let plain = |c: char| if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() };
                *why = why.chars().map(plain).collect();
                true
            }
            Fate::Rejected { .. } | Fate::Published => false,
        }
    }
}
