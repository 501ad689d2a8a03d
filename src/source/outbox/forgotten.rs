//! The values whose latest payload row was forgotten: an event behind it must not take a later one.
//!
//! Values enter; whether one of them is among those that entered leaves. Guarantees: what entered is found, in every process alike, since a
//! replay must find the same again. Of one that did not enter it may be said that it did, which costs a letter: about once in 500 million
//! questions for each 800,000 values. All are remembered until the transaction ends, because several events may share a payload row: also
//! those that have had their event.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::join::Value;

/// What a part has room for: 4 MiB.
const SLOTS: usize = 1 << 20;
/// With more of them in a part, too many would have to be looked at.
const MOST: usize = SLOTS / 4 * 3;

#[derive(Debug)]
pub(super) struct Forgotten {
    /// Half of each value's hash, as near behind the place that the other half says as there was room; zero where there is none.
    parts: Vec<Vec<u32>>,
    /// How many are in the last part.
    held: usize,
    /// What the latest of them was forgotten for.
    pub(super) limit: &'static str,
}

impl Default for Forgotten {
    fn default() -> Forgotten {
        Forgotten { parts: vec![vec![0; SLOTS]], held: 0, limit: "" }
    }
}

impl Forgotten {
    pub(super) fn add(&mut self, value: &Value, limit: &'static str) {
        self.limit = limit;
        if self.may_have(value) {
            return;
        }
        if self.held == MOST {
            self.parts.push(vec![0; SLOTS]);
            self.held = 0;
        }
        let (home, half) = halves(value);
        let part = self.parts.last_mut().expect("there is a part");
        let free = seat(part, home, half);
        part[free] = half;
        self.held += 1;
    }

    pub(super) fn may_have(&self, value: &Value) -> bool {
        let (home, half) = halves(value);
        self.parts.iter().any(|part| part[seat(part, home, half)] == half)
    }

    /// What it takes of memory beside its first part.
    pub(super) fn bytes(&self) -> u64 {
        ((self.parts.len() - 1) * SLOTS * size_of::<u32>()) as u64
    }
}

/// Where this half is in the part, or would be.
fn seat(part: &[u32], home: usize, half: u32) -> usize {
    let is_it = |at: &usize| part[*at] == half || part[*at] == 0;
    (home..SLOTS).chain(0..home).find(is_it).expect("a part is never full")
}

/// A place, and what stands there: never zero.
fn halves(value: &Value) -> (usize, u32) {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let hash = hasher.finish();
    ((hash >> 32) as usize % SLOTS, (hash as u32).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(n: u64) -> Value {
        (0, n.to_be_bytes().to_vec())
    }

    #[test]
    fn of_millions_of_events_whose_payload_rows_follow_them_at_once_none_is_given_up() {
        const PAIRS: u64 = 3_000_000;
        const KEPT: u64 = 10_000;
        let mut forgotten = Forgotten::default();
        for n in 0..PAIRS {
            assert!(!forgotten.may_have(&value(n)), "event {n} waits for the row behind it");
            if n >= KEPT {
                forgotten.add(&value(n - KEPT), "limits.join");
            }
        }
        assert!((0..PAIRS - KEPT).step_by(1009).all(|n| forgotten.may_have(&value(n))));
        assert_eq!((forgotten.parts.len(), forgotten.bytes()), (4, 12 << 20), "four bytes for each, and some room");
        // What is forgotten again takes no more.
        let held = forgotten.held;
        (0..PAIRS - KEPT).step_by(1009).for_each(|n| forgotten.add(&value(n), "limits.join"));
        assert_eq!(forgotten.held, held);
    }
}
