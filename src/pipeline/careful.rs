//! Careful mode: after a broker refused a batch, find the guilty record without harming its neighbours.
//!
//! A broker refuses a whole batch and does not say which record it disliked. So the topic's records, up to the newest
//! one offered before the refusal, are offered few at a time, half as many after each refusal, until one fails alone.
//! Twice as many may follow whenever all that was offered has arrived. Each topic is searched on its own: a refusal in one does not undo what is known of another.

use crate::lsn::Position;

/// The topics that are searched.
#[derive(Debug, Default)]
pub(super) struct Careful(Vec<Search>);

#[derive(Debug)]
struct Search {
    topic: String,
    /// The last row that may have been part of the refused batch.
    until: Position,
    /// How many of the topic's records may be in flight.
    limit: usize,
    inflight: Vec<Position>,
}

impl Careful {
    /// True while no topic is searched.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }

    /// So many rows of the topic were refused together. True when there was one alone, which is to blame.
    pub(super) fn refused(&mut self, topic: &str, together: usize, newest: Position) -> bool {
        let limit = (together / 2).max(1);
        match self.0.iter_mut().find(|search| search.topic == topic) {
            Some(search) if search.limit == 1 => return true,
            Some(search) => (search.limit, search.until) = (search.limit / 2, newest),
            None => self.0.push(Search { topic: topic.to_owned(), until: newest, limit, inflight: Vec::new() }),
        }
        false
    }

    /// True while this row must wait. A search ends behind its last row.
    pub(super) fn holds(&mut self, topic: &str, position: Position) -> bool {
        self.0.retain(|search| position <= search.until || !search.inflight.is_empty());
        let search = self.0.iter().find(|search| search.topic == topic);
        search.is_some_and(|search| position > search.until || search.inflight.len() >= search.limit)
    }

    pub(super) fn offered(&mut self, topic: &str, position: Position) {
        if let Some(search) = self.0.iter_mut().find(|search| search.topic == topic) {
            search.inflight.push(position);
        }
    }

    pub(super) fn answered(&mut self, position: Position) {
        for search in &mut self.0 {
            let before = search.inflight.len();
            search.inflight.retain(|inflight| *inflight != position);
            if before > 0 && search.inflight.is_empty() {
                search.limit = search.limit.saturating_mul(2);
            }
        }
    }

    /// A new producer has nothing in flight.
    pub(super) fn renewed(&mut self) {
        self.0.iter_mut().for_each(|search| search.inflight.clear());
    }

    /// Another history: no row of the old one counts.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::Lsn;

    fn at(row: u64) -> Position {
        Position { commit: Lsn(10), row }
    }

    /// Offers rows of the topic until one must wait; answers with how many were taken.
    fn fill(careful: &mut Careful, topic: &str, rows: std::ops::RangeInclusive<u64>) -> u64 {
        let taken = rows.take_while(|row| {
            let free = !careful.holds(topic, at(*row));
            if free {
                careful.offered(topic, at(*row));
            }
            free
        });
        taken.count() as u64
    }

    #[test]
    fn a_refused_batch_is_halved_until_the_guilty_record_is_alone() {
        let mut careful = Careful::default();
        assert_eq!(fill(&mut careful, "a", 1..=9), 9);
        assert!(!careful.refused("a", 9, at(9)));
        for (limit, refused) in [(4, false), (2, false), (1, true)] {
            careful.renewed();
            assert_eq!(fill(&mut careful, "a", 1..=9), limit);
            assert_eq!(careful.refused("a", limit as usize, at(9)), refused);
        }
    }

    #[test]
    fn topics_are_searched_side_by_side() {
        let mut careful = Careful::default();
        assert!(!careful.refused("a", 2, at(9)));
        assert!(!careful.refused("b", 8, at(9)));
        assert_eq!((fill(&mut careful, "a", 1..=9), fill(&mut careful, "b", 1..=9)), (1, 4));
        assert_eq!(fill(&mut careful, "c", 1..=9), 9);
        assert!(!careful.refused("b", 4, at(9)));
        careful.renewed();
        assert_eq!((fill(&mut careful, "a", 1..=9), fill(&mut careful, "b", 1..=9)), (1, 2));
        assert!(careful.refused("a", 1, at(9)));
    }

    #[test]
    fn what_a_former_producer_had_in_flight_holds_nobody_back() {
        let mut careful = Careful::default();
        assert!(!careful.refused("a", 2, at(9)));
        assert_eq!(fill(&mut careful, "a", 1..=9), 1);
        // The world failed, not the event: the same row comes again.
        careful.renewed();
        assert_eq!(fill(&mut careful, "a", 1..=9), 1);
    }

    #[test]
    fn the_search_ends_behind_its_last_row_once_everything_is_answered() {
        let mut careful = Careful::default();
        assert!(!careful.refused("a", 2, at(3)));
        assert_eq!(fill(&mut careful, "a", 1..=3), 1);
        careful.answered(at(1));
        assert_eq!(fill(&mut careful, "a", 2..=3), 2, "one went well: two may follow");
        careful.answered(at(2));
        assert!(careful.holds("a", at(4)), "row 3 may still be refused");
        assert!(!careful.holds("b", at(4)), "another topic is not suspected");
        careful.answered(at(3));
        assert_eq!(fill(&mut careful, "a", 4..=50), 47);
    }
}
