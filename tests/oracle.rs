//! The oracle is judged itself: histories that must fail, and histories that must pass.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use outboxd::lsn::Lsn;
use support::oracle::{Event, Fact, Judge, Record, Truth, UNDISTURBED, Verdict, Violation, judge};
use support::reader::Seen;
use support::workload::{is_garbled, payload};
use uuid::{Builder, Uuid};

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

/// `a3` arrives, `^a3` lands late, `!a3` is parked, `@30` is confirmed, `~crash` begins.
fn history(words: &str) -> Vec<Fact> {
    let fact = |word: &str| match word.split_at(1) {
        ("!", id) => Fact::Parked(id.to_string()),
        ("@", lsn) => Fact::Confirmed(Lsn(lsn.parse().expect("a position is a number"))),
        ("^", id) => Fact::Late(record(&id[..1], id, 0)),
        ("~", fault) => Fact::Disturbed(fault.to_string()),
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
        ("a1 a2 a3 a4 a5 b1 b2 a3 a4 a5", 3),
    ] {
        let verdict = verdict(words);
        verdict.assert_at_least_once();
        assert_eq!(verdict.duplicates, duplicates, "{words}");
    }
}

#[test]
fn a_repeat_that_ends_before_the_newest_event_is_found() {
    for words in ["a1 a2 a3 a4 a5 b1 b2 a3 a4", "a1 a2 a3 a4 a5 b1 b2 a1"] {
        assert_eq!((verdict(words).reordered, verdict(words).lost), (1, 0), "{words}");
    }
}

#[test]
fn duplicates_are_put_down_to_the_last_fault_before_them() {
    for (words, causes) in [
        ("a1 b1 a2 a2 ~crash a3 a2 a3 a4 ~cut ~stop a4 b1 b2 a5", vec![("crash", 2), (UNDISTURBED, 1), ("stop", 2)]),
        ("a1 ~crash a1 a2 ~cut a1 a2 ~crash a2 a3 a4 a5 b1 b2", vec![("crash", 2), ("cut", 2)]),
        ("a1 a2 a3 a4 a5 b1 b2 ~crash", vec![]),
    ] {
        let verdict = verdict(words);
        verdict.assert_at_least_once();
        let causes: BTreeMap<_, _> = causes.into_iter().map(|(cause, count)| (cause.to_string(), count)).collect();
        assert_eq!(verdict.duplicates_by_cause, causes, "{words}");
        assert_eq!(verdict.duplicates, causes.values().sum::<usize>(), "{words}");
    }
}

#[test]
fn a_fault_excuses_duplicates_only() {
    let verdict = verdict("a1 ~crash a2 a4 a5 b1 x1 @25");
    assert_eq!((verdict.lost, verdict.reordered, verdict.phantoms, verdict.overtaken), (2, 1, 1, 1));
}

#[test]
fn a_verdict_tells_its_duplicates_by_cause() {
    let clean = "committed 7, lost 0, reordered 0, phantoms 0, overtaken 0, duplicates 0";
    assert_eq!(verdict("a1 a2 a3 a4 a5 b1 b2").to_string(), clean);
    let repeats = "committed 7, lost 0, reordered 0, phantoms 0, overtaken 0, duplicates 3 (crash 2, cut 1)";
    assert_eq!(verdict("a1 a2 ~crash a1 a2 a3 ~cut a3 a4 a5 b1 b2").to_string(), repeats);
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
fn a_late_copy_is_counted_and_is_not_bound_by_order() {
    let verdict = verdict("a1 a2 a3 ^a1 a4 ^b2 a5 b1 b2 @50 ^b1");
    verdict.assert_at_least_once();
    assert_eq!(verdict.duplicates, 3);
}

#[test]
fn a_late_copy_does_not_settle_its_event() {
    for (words, expected) in [
        ("a1 a2 a3 a4 a5 ^b2 b1", (1, 0, 0)),
        ("a1 a2 a3 a4 a5 b1 ^b2", (1, 0, 0)),
        ("a1 a2 a3 a4 a5 b1 ^b2 @25 b2", (0, 0, 1)),
        // Nor does it stand in the row for the next one.
        ("a1 a2 ^a3 a4 a5 b1 b2", (1, 1, 0)),
    ] {
        let verdict = verdict(words);
        assert_eq!((verdict.lost, verdict.reordered, verdict.overtaken), expected, "{words}");
    }
}

#[test]
fn a_late_copy_with_another_key_or_in_another_place_fails() {
    let wrong_key = Violation::WrongKey { id: "b2".into(), expected: "b".into(), found: "a".into() };
    let (first, second) = (("t".into(), 0), ("t".into(), 1));
    let scattered = Violation::Scattered { key: "b".into(), first, second };
    for (late, violation) in [(record("a", "b2", 0), wrong_key), (record("b", "b2", 1), scattered)] {
        let mut facts = history("a1 a2 a3 a4 a5 b1 b2");
        facts.push(Fact::Late(late));
        assert_eq!(judge(&truth(), &facts).violations, [violation]);
    }
}

/// A record of a load's event, as the reader has it.
fn seen(id: Uuid, value: Option<&str>) -> Seen {
    Seen {
        topic: "t".to_string(),
        partition: 0,
        offset: 0,
        key: Some(b"k".to_vec()),
        value: value.map(|value| value.as_bytes().to_vec()),
        headers: vec![("id".to_string(), Some(id.to_string().into_bytes()))],
        timestamp_ms: None,
        appended_ms: None,
    }
}

#[test]
fn one_byte_of_another_row_in_a_loads_payload_fails_as_a_phantom_and_a_loss() {
    let [id, other] = [1, 2].map(|n| Builder::from_custom_bytes([n; 16]).into_uuid());
    let event = Event { id: id.to_string(), committed_by: None };
    let truth = Truth { committed: [("k".to_string(), vec![event])].into(), ..Truth::default() };
    let written = payload(id, 7);
    judge(&truth, &[seen(id, Some(&written)).fact()]).assert_exactly_once();

    let stale = format!("{}{}", &written[..written.len() - 10], &payload(other, 7)[..10]);
    let swapped = written.replace(&id.to_string(), &other.to_string());
    let (cut, longer) = (&written[..written.len() - 1], format!("{written} "));
    for value in [Some(payload(other, 7).as_str()), Some(&stale), Some(&swapped), Some(cut), Some(&longer), None] {
        let verdict = judge(&truth, &[seen(id, value).fact()]);
        assert_eq!((verdict.phantoms, verdict.lost), (1, 1), "{value:?}");
    }
}

#[test]
fn what_no_load_has_written_is_not_looked_into() {
    let load = Builder::from_custom_bytes([1; 16]).into_uuid().to_string();
    assert!(!is_garbled(&load, Some(b"{}")));
    for id in ["7", "", &Uuid::from_u128(1).to_string()] {
        assert!(!is_garbled(id, Some(b"\xff")) && !is_garbled(id, None), "{id}");
    }
}

/// Key `a` with a1..a4; a3 and a4 were lost in a failover, a5 came after it at a position that was used before.
fn after_a_failover(before: &str, after: &str) -> Verdict {
    let mut judge = Judge::default();
    for (id, lsn) in [("a1", 10), ("a2", 20), ("a3", 30), ("a4", 40)] {
        judge.committed("a", id, Some(Lsn(lsn)));
    }
    history(before).iter().for_each(|fact| judge.observe(fact));
    ["a3", "a4"].iter().for_each(|id| judge.void(id));
    judge.committed("a", "a5", Some(Lsn(30)));
    history(after).iter().for_each(|fact| judge.observe(fact));
    judge.finish()
}

#[test]
fn a_lost_commit_is_neither_expected_nor_forbidden() {
    for (before, after) in
        [("a1 a2 a3 a4", "@29 a5 @40"), ("a1 a2 a3 @30", "a2 a5 @40"), ("a1 a2", "a5"), ("a1", "a4 a2 a3 a5")]
    {
        let verdict = after_a_failover(before, after);
        assert!(verdict.violations.is_empty(), "{before} | {after}: {verdict}");
        assert_eq!(verdict.committed, 3);
    }
    for (before, after, expected) in [
        ("a1 a2 a3 a4", "", (1, 0, 0)),
        ("a1 a2 a3 a4", "a1 a5", (0, 1, 0)),
        ("a1", "a5", (1, 1, 0)),
        ("a1 a2 a3 @30", "@30 a5", (0, 0, 1)),
    ] {
        let verdict = after_a_failover(before, after);
        assert_eq!((verdict.lost, verdict.reordered, verdict.overtaken), expected, "{before} | {after}");
    }
}

#[test]
fn a_judge_that_walks_along_points_at_the_step() {
    let mut judge = Judge::default();
    judge.committed("a", "a1", Some(Lsn(10)));
    judge.committed("a", "a2", Some(Lsn(20)));
    judge.observe(&history("a1")[0]);
    assert_eq!((judge.so_far().violations.len(), judge.open()), (0, 1));
    judge.observe(&history("@20")[0]);
    assert_eq!((judge.so_far().overtaken, judge.open()), (1, 1));
    judge.observe(&history("a2")[0]);
    assert_eq!((judge.open(), judge.finish().lost), (0, 0));
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
