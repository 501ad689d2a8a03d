//! The oracle is judged itself: histories that must fail, and histories that must pass.

#[path = "support/oracle.rs"]
#[allow(dead_code)]
mod oracle;

use oracle::{Event, Fact, Record, Truth, Verdict, Violation, judge};
use outboxd::lsn::Lsn;

/// Key `a` with events a1..a5 at positions 10..50, key `b` with b1..b2 at 15 and 25; x1 was rolled back.
fn truth() -> Truth {
    let events = |key: &str, positions: &[u64]| {
        let event = |(i, lsn): (usize, &u64)| Event { id: format!("{key}{}", i + 1), committed_by: Some(Lsn(*lsn)) };
        (key.to_string(), positions.iter().enumerate().map(event).collect())
    };
    Truth {
        committed: [events("a", &[10, 20, 30, 40, 50]), events("b", &[15, 25])].into(),
        rolled_back: ["x1".to_string()].into(),
    }
}

/// `a3` arrives, `!a3` is parked, `@30` is confirmed.
fn history(words: &str) -> Vec<Fact> {
    let fact = |word: &str| match word.split_at(1) {
        ("!", id) => Fact::Parked(id.to_string()),
        ("@", lsn) => Fact::Confirmed(Lsn(lsn.parse().expect("a position is a number"))),
        (key, _) => Fact::Arrived(record(key, word, 0)),
    };
    words.split_whitespace().map(fact).collect()
}

fn record(key: &str, id: &str, partition: i32) -> Record {
    Record { place: ("t".to_string(), partition), key: key.to_string(), id: id.to_string() }
}

fn verdict(words: &str) -> Verdict {
    judge(&truth(), &history(words))
}

#[test]
fn a_plain_history_passes() {
    let verdict = verdict("a1 b1 a2 @20 a3 b2 a4 a5 @50");
    verdict.assert_exactly_once();
    assert_eq!((verdict.committed, verdict.fewest_per_key), (7, 2));
}

#[test]
fn a_contiguous_replay_passes_and_its_duplicates_are_counted() {
    for (words, duplicates) in [
        ("a1 b1 a2 a3 a2 a3 a4 a5 b2", 2),
        ("a1 a2 a3 b1 b2 a1 a2 a3 a4 b1 b2 a5", 5),
        ("a1 a2 a3 a3 a2 a3 a4 a5 b1 b2", 3),
        ("a1 a2 a3 a4 a5 b1 b2 a3 a4", 2),
    ] {
        let verdict = verdict(words);
        verdict.assert_at_least_once();
        assert_eq!(verdict.duplicates, duplicates, "{words}");
    }
}

#[test]
fn a_gap_fails_as_a_loss() {
    let verdict = verdict("a1 a2 a4 a5 b1 b2");
    assert_eq!((verdict.lost, verdict.reordered), (1, 1));
    assert!(verdict.violations.contains(&Violation::Lost { key: "a".into(), number: 3, id: "a3".into() }));
}

#[test]
fn a_missing_end_fails_as_a_loss() {
    let verdict = verdict("a1 a2 a3 a4 b1 b2");
    assert_eq!((verdict.lost, verdict.reordered, verdict.violations.len()), (1, 0, 1));
}

#[test]
fn a_swap_fails_as_reordered() {
    let verdict = verdict("a1 a3 a2 a4 a5 b1 b2");
    assert_eq!((verdict.lost, verdict.reordered), (0, 2));
    let early = Violation::Reordered { key: "a".into(), previous: 1, number: 3, id: "a3".into() };
    assert_eq!(verdict.violations[0], early);
}

#[test]
fn a_replay_that_is_not_contiguous_fails() {
    for words in ["a1 a2 a3 a4 a2 a4 a5 b1 b2", "a1 a2 a3 a4 a2 a5 b1 b2", "a1 a2 a1 a3 a4 a5 b1 b2"] {
        let verdict = verdict(words);
        assert_eq!((verdict.lost, verdict.reordered), (0, 1), "{words}");
    }
}

#[test]
fn a_rolled_back_event_fails_as_a_phantom() {
    let verdict = verdict("a1 a2 x1 a3 a4 a5 b1 b2");
    assert_eq!(verdict.violations, [Violation::RolledBack { id: "x1".into() }]);
    assert_eq!(verdict.phantoms, 1);
}

#[test]
fn an_event_that_nobody_wrote_fails_as_a_phantom() {
    let verdict = verdict("a1 a2 y7 a3 a4 a5 b1 b2");
    assert_eq!(verdict.violations, [Violation::Stranger { key: "y".into(), id: "y7".into() }]);
}

#[test]
fn a_confirmed_position_past_an_unsettled_row_fails_even_when_the_row_arrives_later() {
    let verdict = verdict("a1 b1 a2 @30 a3 b2 a4 a5 @50");
    assert_eq!((verdict.lost, verdict.overtaken), (0, 2));
    let passed = |id: &str, at| Violation::Overtaken { confirmed: Lsn(30), id: id.into(), committed_by: Lsn(at) };
    assert_eq!(verdict.violations, [passed("b2", 25), passed("a3", 30)]);
}

#[test]
fn a_confirmed_position_just_before_an_unsettled_row_passes() {
    verdict("a1 b1 a2 @24 b2 @29 a3 a4 a5 @50").assert_exactly_once();
}

#[test]
fn a_row_whose_commit_position_is_unknown_cannot_be_overtaken_but_can_be_lost() {
    let mut truth = truth();
    truth.committed.get_mut("a").unwrap()[2].committed_by = None;
    judge(&truth, &history("a1 b1 a2 b2 @30 a3 a4 a5")).assert_at_least_once();
    assert_eq!(judge(&truth, &history("a1 b1 a2 b2 @30")).lost, 3);
}

#[test]
fn a_dead_letter_settles_its_event_and_leaves_the_order_of_the_others() {
    verdict("a1 b1 !a2 @20 a3 a4 a5 b2 @50").assert_exactly_once();
    verdict("a1 b1 a3 a4 a5 b2 !a2").assert_exactly_once();
    assert_eq!(verdict("a1 b1 b2 !a2 a4 a3 a5").reordered, 2);
    assert_eq!(verdict("a1 b1 @20 !a2 a3 a4 a5 b2").overtaken, 1);
}

#[test]
fn a_key_in_two_partitions_fails() {
    let mut facts = history("a1 a2 a3 a4 b1 b2");
    facts.push(Fact::Arrived(record("a", "a5", 1)));
    let (first, second) = (("t".into(), 0), ("t".into(), 1));
    assert_eq!(judge(&truth(), &facts).violations, [Violation::Scattered { key: "a".into(), first, second }]);
}

#[test]
fn a_record_with_the_key_of_another_event_fails() {
    let mut facts = history("a1 a2 a3 a4 a5 b1");
    facts.push(Fact::Arrived(record("a", "b2", 0)));
    let wrong = Violation::WrongKey { id: "b2".into(), expected: "b".into(), found: "a".into() };
    assert_eq!(judge(&truth(), &facts).violations, [wrong]);
}

#[test]
fn a_load_too_light_to_judge_order_is_refused() {
    let light = std::panic::catch_unwind(|| verdict("a1 a2 a3 a4 a5 b1 b2").assert_order_was_tried());
    assert!(light.is_err());
}
