//! When to pause: reads enter, and how long to let more bytes gather leaves.
//!
//! A walsender flushes every message by itself, and pays for each time that this wakes its reader. So while traffic is dense the
//! reader lets bytes gather, which makes the walsender faster and its own reads few and large; while it is thin, it does
//! not wait for anything. The pause must put the *thread* to sleep: one that waits in `epoll` is woken for every message,
//! whether somebody wants to read or not. What counts is how fast bytes come, pauses included, and not how many one read brings: whoever
//! reads eagerly gets little with each read, however much there is to come, and a pause makes any read a large one.

use std::time::{Duration, Instant};

use super::stream::TURN_MAX;
use crate::source::dial::Way;

/// Faster than this, in bytes and in messages a second, is dense: ten thousand small events. Few large ones are not, however
/// many bytes they have: they wake nobody often. Many tiny ones are, however few bytes they have. What comes at once, before
/// or between, is less than a transaction of a hundred rows: that one waits for nobody.
const DENSE: Limit = Limit {
    speed: Load { bytes: 8e6, messages: 10e3 },
    burst: Load { bytes: 128e3, messages: 100.0 },
    many: 40e3,
    many_at_once: 400.0,
    holds: 2.0,
};
/// So fast comes a backlog, in which nobody waits for a single event, once it has come for a tenth of a second; a halt of up to a
/// second is not the end of it.
const FLOOD: Limit = Limit {
    speed: Load { bytes: 24e6, messages: 30e3 },
    burst: Load { bytes: 2.4e6, messages: 3e3 },
    many: 100e3,
    many_at_once: 10e3,
    holds: 11.0,
};
/// How long bytes gather.
pub const GATHER: Duration = Duration::from_millis(4);
/// The same in a flood: the longer the reader sleeps, the more often a walsender finds the window shut, and then sends many
/// messages at once.
const GATHER_FLOOD: Duration = Duration::from_millis(12);
/// The same at the loopback, where no more than a window's worth is under way (`dial`). A walsender in a flood fills that in a third
/// of this time; for the rest of it its small messages join each other in its send queue, and travel in large pieces at once.
const GATHER_LOOPBACK: Duration = Duration::from_millis(6);
/// What gathers there at the most while the reader sleeps, in the window and in the send queue: with large events that takes less
/// time, and a longer sleep would only keep the server waiting, too. (Events of 4 KB: 78,000 a second in sleeps of 6 ms, 102,000 in
/// such of 2 ms, which is how long this much takes them.)
const HOLDS_LOOPBACK: f64 = 900e3;
/// The shortest sleep that is worth its waking up.
const GATHER_LEAST: Duration = Duration::from_millis(1);
/// The same at a Unix socket, which holds little: the server's 208 KiB, of which small messages fill half. Waiting for
/// longer than it takes to fill that would only keep the server waiting, too.
const GATHER_LOCAL: Duration = Duration::from_micros(200);

/// How fast bytes and messages come.
#[derive(Debug)]
pub struct Pace {
    /// How long they gather while it is dense, and in a flood.
    gather: [Duration; 2],
    /// How many bytes may gather, where that is known.
    holds: f64,
    dense: Bucket,
    flood: Bucket,
    since: Instant,
    /// Bytes that were read since the last pause began, and when that was.
    gathered: f64,
    paused: Instant,
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    bytes: f64,
    messages: f64,
}

/// How much a second is too much, of bytes and messages both or of messages alone, and how much at once is not.
#[derive(Debug, Clone, Copy)]
struct Limit {
    speed: Load,
    burst: Load,
    many: f64,
    many_at_once: f64,
    /// So many times what may come at once, and no more, is remembered: so soon is the end noticed.
    holds: f64,
}

/// Bytes and messages fill it, time drains it.
#[derive(Debug)]
struct Bucket {
    limit: Limit,
    level: Load,
    /// The same of messages alone.
    many: f64,
}

impl Bucket {
    fn new(limit: Limit) -> Bucket {
        Bucket { limit, level: Load::default(), many: 0.0 }
    }

    /// Answers whether there is more in it than may come at once.
    fn fill(&mut self, more: Load, seconds: f64) -> bool {
        let Limit { speed, burst, many, many_at_once, holds } = self.limit;
        let fill = |level: f64, drains: f64, more: f64, burst: f64| {
            ((level - seconds * drains).max(0.0) + more).min(holds * burst)
        };
        self.level = Load {
            bytes: fill(self.level.bytes, speed.bytes, more.bytes, burst.bytes),
            messages: fill(self.level.messages, speed.messages, more.messages, burst.messages),
        };
        self.many = fill(self.many, many, more.messages, many_at_once);
        let both = self.level.bytes > burst.bytes && self.level.messages > burst.messages;
        both || self.many > many_at_once
    }
}

impl Pace {
    /// Nothing has come yet on this way.
    pub fn new(way: Way, now: Instant) -> Pace {
        let (gather, holds) = match way {
            Way::Network => ([GATHER, GATHER_FLOOD], f64::INFINITY),
            Way::Loopback => ([GATHER, GATHER_LOOPBACK], HOLDS_LOOPBACK),
            Way::Unix => ([GATHER_LOCAL; 2], f64::INFINITY),
        };
        let (dense, flood) = (Bucket::new(DENSE), Bucket::new(FLOOD));
        Pace { gather, holds, dense, flood, since: now, gathered: 0.0, paused: now }
    }

    /// So many bytes were read just now, and so many messages were in what was read. Answers how long more should gather before
    /// the next read, if at all.
    pub fn read(&mut self, bytes: usize, messages: usize, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        let more = Load { bytes: bytes as f64, messages: messages as f64 };
        let (is_dense, is_flood) = (self.dense.fill(more, passed), self.flood.fill(more, passed));
        self.since = now;
        self.gathered += more.bytes;
        if !is_dense || bytes >= TURN_MAX {
            return None;
        }
        let took = now.saturating_duration_since(self.paused).as_secs_f64();
        let fills = (took * self.holds / self.gathered).min(1.0);
        (self.gathered, self.paused) = (0.0, now);
        Some(self.gather[usize::from(is_flood)].min(Duration::from_secs_f64(fills).max(GATHER_LEAST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::dial;

    fn far(now: Instant) -> Pace {
        Pace::new(Way::Network, now)
    }

    /// Bytes that come evenly, `rate` a second, in events of this size from `start` on, are read whenever the pace allows, at
    /// the earliest every 50 µs. Answers with the share of the time in which they gather.
    fn paused_by(pace: &mut Pace, event: f64, start: Instant, rate: f64, lasts: Duration) -> f64 {
        let (mut pauses, mut now, mut read) = (Duration::ZERO, start, 0.0);
        while now < start + lasts {
            now += Duration::from_micros(50);
            let there = (now - start).as_secs_f64() * rate;
            let messages = (there / event) as usize - (read / event) as usize;
            let pause = pace.read((there - read) as usize, messages, now).unwrap_or_default();
            pauses += pause;
            now += pause;
            read = there;
        }
        pauses.as_secs_f64() / lasts.as_secs_f64()
    }

    /// The same of small events.
    fn paused(pace: &mut Pace, start: Instant, rate: f64, lasts: Duration) -> f64 {
        paused_by(pace, 700.0, start, rate, lasts)
    }

    #[test]
    fn few_large_events_wait_for_nothing_however_many_bytes_they_have() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(paused_by(&mut far(start), 64e3, start, 100e6, second), 0.0);
        assert_eq!(paused_by(&mut far(start), 4e3, start, 30e6, second), 0.0);
        assert!(paused_by(&mut far(start), 4e3, start, 100e6, second) > 0.5);
    }

    #[test]
    fn many_tiny_events_gather_however_few_bytes_they_have() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        // Three messages each: begin, insert, commit.
        let tiny = |events: f64| paused_by(&mut far(start), 93.0, start, events * 280.0, second);
        assert_eq!(tiny(5e3), 0.0);
        assert!(tiny(20e3) > 0.9);
    }

    #[test]
    fn dense_traffic_gathers_however_small_its_reads_are_and_thin_traffic_does_not() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(paused(&mut far(start), start, 5e6, second), 0.0);
        assert!(paused(&mut far(start), start, 30e6, second) > 0.9);
    }

    #[test]
    fn only_a_flood_is_let_gather_for_long() {
        let start = Instant::now();
        let longest = |rate: f64| {
            let (mut pace, mut now, mut longest) = (far(start), start, Duration::ZERO);
            for _ in 0..1000 {
                let pause = pace.read((rate * 4e-3) as usize, (rate * 4e-3 / 700.0) as usize, now).unwrap_or_default();
                longest = longest.max(pause);
                now += Duration::from_millis(4);
            }
            longest
        };
        assert_eq!([5e6, 15e6, 40e6].map(longest), [Duration::ZERO, GATHER, GATHER_FLOOD]);
    }

    #[test]
    fn a_flood_that_halts_for_a_moment_is_a_flood_all_the_same() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = far(start);
        assert!(paused(&mut pace, start, 60e6, second * 2) > 0.9);
        let after = start + second * 2 + second / 2;
        assert_eq!(pace.read(200_000, 300, after), Some(GATHER_FLOOD));
    }

    #[test]
    fn one_large_transaction_in_calm_traffic_is_no_flood() {
        let start = Instant::now();
        for rows in [200, 1000, 2000] {
            let (mut pace, mut now, mut left) = (far(start), start, rows * 600);
            while left > 0 {
                let read = left.min(150_000);
                left -= read;
                let pause = pace.read(read, read / 600, now).unwrap_or_default();
                assert!(pause <= GATHER, "{rows} rows wait for {pause:?}");
                now += pause;
            }
        }
    }

    #[test]
    fn what_comes_at_once_and_alone_waits_for_nothing() {
        let start = Instant::now();
        let mut pace = far(start);
        for burst in 0..100 {
            let at = start + Duration::from_millis(20) * burst;
            assert_eq!((pace.read(60_000, 80, at), pace.read(60_000, 80, at)), (None, None));
        }
    }

    #[test]
    fn a_hiccup_in_thin_traffic_and_the_end_of_a_flood_leave_no_pauses_behind() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = far(start);
        assert!(paused(&mut pace, start, 100e6, second) > 0.5);
        assert!(paused(&mut pace, start + second, 5e6, second) < 0.05);
        let later = start + second * 3;
        assert_eq!(pace.read(150_000, 200, later), Some(GATHER), "a stall of 30 ms");
        assert!(paused(&mut pace, later + GATHER, 5e6, second) < 0.02);
    }

    #[test]
    fn nobody_pauses_while_there_is_more_to_read() {
        let mut pace = far(Instant::now());
        assert!((0..10).all(|_| pace.read(TURN_MAX, 300, Instant::now()).is_none()));
    }

    #[test]
    fn a_flood_behind_the_loopback_fills_the_window_and_gathers_behind_it() {
        let start = Instant::now();
        let mut pace = Pace::new(Way::Loopback, start);
        assert!(paused(&mut pace, start, 60e6, Duration::from_secs(1)) > 0.9);
        let pause = pace.read(200_000, 900, start + Duration::from_secs(1)).expect("this is a flood");
        assert!(pause.as_secs_f64() * 60e6 > 1.5 * f64::from(dial::WINDOW), "{pause:?}");
        assert!(pause < GATHER_FLOOD, "nobody waits longer than that takes");
    }

    #[test]
    fn large_events_behind_the_loopback_are_let_gather_for_less_time() {
        // Turn after turn, as often as there is more to read.
        let longest = |event: usize, rate: f64| {
            let start = Instant::now();
            let (mut pace, mut now, mut read, mut longest) =
                (Pace::new(Way::Loopback, start), start, 0, Duration::ZERO);
            while now < start + Duration::from_secs(1) {
                now += Duration::from_micros(50);
                let there = ((now - start).as_secs_f64() * rate) as usize;
                let turn = (there - read).min(TURN_MAX);
                read += turn;
                let pause = pace.read(turn, turn / event, now).unwrap_or_default();
                longest = longest.max(if now > start + Duration::from_millis(500) { pause } else { Duration::ZERO });
                now += pause;
            }
            longest.as_secs_f64() * 1e3
        };
        assert_eq!(longest(620, 100e6), 6.0);
        let (fast, faster) = (longest(4200, 400e6), longest(60_000, 3e9));
        assert!((1.9..2.6).contains(&fast) && faster <= 1.0, "{fast} ms, {faster} ms");
    }

    #[test]
    fn a_unix_socket_is_read_before_it_is_full() {
        let now = Instant::now();
        let mut pace = Pace::new(Way::Unix, now);
        let pause = (0..10).find_map(|_| pace.read(60_000, 80, now)).expect("this is dense");
        let (fastest, holds) = (250e6, 104e3);
        assert!(pause.as_secs_f64() * fastest < holds / 2.0, "{pause:?}");
    }
}
