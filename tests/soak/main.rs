//! The soak: the real binary under a steady load, with every fault that we can cause, at random, for as long as told.
//!
//! `make soak MINUTES=60` mixes them; `cargo test --test soak` causes a dozen of them. Two relays carry the same events
//! from two slots: one that is killed, stopped, frozen and replaced like everything else, and one, the survivor, that
//! nobody ends, so that its memory can be watched. The oracle judges both, round by round; when a round ends its faults
//! stop, and all of it must have arrived within a minute.
//!
//! Before that, by itself: a million events of which one in a hundred is bad, under kills, in each order.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod aside;
mod deck;
mod faults;
mod report;
mod stage;
mod strike;
mod watch;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deck::Deck;
use outboxd::config::Order;
use report::{Ended, Judged, Report};
use stage::{Closed, Stage};
use support::announce;
use support::reader::Reader;
use support::spoiled::Spoiled;

/// How long a round lasts: as long as the records of the round fit into the harness's memory comfortably.
const ROUND: Duration = Duration::from_secs(120);

#[test]
#[ignore = "make soak"]
fn soak() {
    let minutes = number("OUTBOXD_SOAK_MINUTES", 10.0);
    let rate = number("OUTBOXD_SOAK_RATE", 2000.0);
    let seed = number("OUTBOXD_SOAK_SEED", f64::from(fastrand::u32(..))) as u64;
    let duration = Duration::from_secs_f64(minutes * 60.0);
    let only = std::env::var("OUTBOXD_SOAK_ONLY").unwrap_or_default();
    let only: Vec<String> =
        only.split(';').map(str::trim).filter(|name| !name.is_empty()).map(str::to_string).collect();
    let everything = only.is_empty();
    let report = run(Deck::endless(seed, only), rate, |elapsed| elapsed >= duration);
    report.assert_nothing_broken();
    if everything {
        report.assert_enough_was_tried(minutes);
    }
}

#[test]
#[ignore = "make soak"]
fn a_million_events_with_one_in_a_hundred_bad_survive_kills_and_all_arrive_when_mended() {
    a_million(Order::Skip);
}

#[test]
#[ignore = "make soak"]
fn a_million_events_with_bad_ones_and_those_behind_them_survive_kills_and_all_arrive_in_order_when_mended() {
    a_million(Order::ParkKey);
}

fn a_million(order: Order) {
    let events = number("OUTBOXD_SOAK_EVENTS", 1_000_000.0) as usize;
    announce(&Spoiled { events, order, kills: 30, refusals: 100 }.run());
}

#[test]
fn a_dozen_faults_at_random_under_load_lose_and_reorder_nothing() {
    run(Deck::of(12, fastrand::u64(..)), 300.0, |_| false).assert_nothing_broken();
}

/// What the environment says, or else the usual.
fn number(name: &str, usual: f64) -> f64 {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| panic!("{name} is \"{text}\", not a number")),
        _ => usual,
    }
}

/// Strikes until the deck is empty or `enough`, and writes the table.
fn run(mut deck: Deck, rate: f64, enough: impl Fn(Duration) -> bool) -> Report {
    let mut report = Report::new(deck.seed(), rate);
    let mut stage = Stage::set_up(rate);
    let mut round = stage.open_round();
    let mut closed = None::<Closed>;
    let mut before_the_judge = VecDeque::new();
    let started = Instant::now();
    let mut broken = None;
    // Behind a relay that is stuck, nothing can be learned any more.
    while let Some(turn) = deck.draw().filter(|_| !enough(started.elapsed()) && !report.is_stuck()) {
        let readers: Vec<&[Reader; 2]> = closed.iter().map(|closed| &closed.readers).chain([&round.readers]).collect();
        match catch_unwind(AssertUnwindSafe(|| stage.strike(&turn, &readers))) {
            Ok(struck) => struck.into_iter().for_each(|struck| report.add(struck)),
            Err(panic) => {
                broken = Some(panic);
                break;
            }
        }
        while let Some(judged) = before_the_judge.pop_front_if(|judging: &mut JoinHandle<Judged>| judging.is_finished())
        {
            report.judge(judged.join().expect("the oracle has a verdict"));
        }
        report.progress(started.elapsed(), stage.events_written(&round), &stage.memory);
        if round.age() >= ROUND {
            let next = stage.open_round();
            let last = stage.close_round(std::mem::replace(&mut round, next));
            before_the_judge.extend(closed.replace(last).map(|closed| stage.judge_round(closed)));
        }
    }
    let elapsed = started.elapsed();
    if let Some(panic) = broken {
        // What was found until then is told first; the fault may be in force still, so the rounds have no end.
        stage.keep_logs();
        report.finish(elapsed, stage.memory.clone(), Ended::Broken);
        resume_unwind(panic);
    }
    let last = stage.close_round(round);
    for closed in closed.into_iter().chain([last]) {
        before_the_judge.push_back(stage.judge_round(closed));
    }
    stage.keep_logs();
    for judged in before_the_judge {
        report.judge(judged.join().expect("the oracle has a verdict"));
    }
    report.finish(elapsed, stage.memory.clone(), Ended::InTime)
}

/// Where the table and the story of the faults go: `target/soak`, and beside it for the tests' dozen.
fn directory() -> PathBuf {
    let name = if std::env::var_os("OUTBOXD_SOAK_MINUTES").is_some() { "soak" } else { "soak-of-a-dozen" };
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
