//! What is looked at all along: the memory of both relays, and what the one that suffers says of itself, in readiness and
//! in metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::faults::Metric;
use crate::support::process::resident_bytes;
use crate::support::relay::{get_at, readiness_at, sum_samples};

/// Asks a relay for its readiness again and again.
pub struct Watch(Arc<Asked>);

/// The numbers of one look at the metrics, or the highest of several.
#[derive(Debug, Clone, Copy, Default)]
struct Numbers {
    sessions_lost: f64,
    silence: f64,
    /// The lowest, and how far above the lowest before it any was.
    lag: f64,
    lag_rise: f64,
}

/// Silence and lag of this many seconds are no everyday thing.
const LONG: f64 = 2.0;

/// A probe that waits for longer than this has no answer.
const ANSWER: Duration = Duration::from_secs(1);

struct Asked {
    /// The relay's HTTP port.
    port: AtomicU16,
    /// What the metrics said when the fault began, and the highest since.
    numbers: Mutex<(Option<Numbers>, Numbers)>,
    /// When the fault began, and which reasons were seen since.
    seen: Mutex<(Instant, BTreeMap<String, Duration>)>,
}

impl Watch {
    /// Starts to ask, until it is dropped.
    pub fn start() -> Watch {
        let watch = Watch(Arc::new(Asked {
            port: AtomicU16::new(0),
            numbers: Mutex::default(),
            seen: Mutex::new((Instant::now(), BTreeMap::new())),
        }));
        let asked = Arc::downgrade(&watch.0);
        std::thread::spawn(move || {
            let mut looks = 0u32;
            while let Some(asked) = Weak::upgrade(&asked) {
                asked.ask();
                if looks.is_multiple_of(10) {
                    asked.scrape();
                }
                looks = looks.wrapping_add(1);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        watch
    }

    /// From now on the relay answers at this port.
    pub fn follow(&self, port: u16) {
        self.0.port.store(port, Ordering::Relaxed);
    }

    /// A fault strikes: what was seen before is not its doing.
    pub fn begin(&self) {
        *self.0.seen.lock().unwrap() = (Instant::now(), BTreeMap::new());
        *self.0.numbers.lock().unwrap() = (None, Numbers::default());
        self.0.scrape();
    }

    /// True when a dashboard has shown it since.
    pub fn moved(&self, metric: Metric) -> bool {
        self.0.scrape();
        let (first, highest) = *self.0.numbers.lock().unwrap();
        let sessions_lost = first.is_some_and(|first| highest.sessions_lost > first.sessions_lost);
        match metric {
            Metric::Sessions => sessions_lost,
            Metric::SessionsOrSilence => sessions_lost || highest.silence > LONG,
            Metric::Lag => highest.lag_rise > LONG,
        }
    }

    /// The reasons seen since, and how long after the strike.
    pub fn seen(&self) -> BTreeMap<String, Duration> {
        self.0.seen.lock().unwrap().1.clone()
    }
}

impl Asked {
    fn scrape(&self) {
        let Some((200, text)) = get_at(self.port.load(Ordering::Relaxed), "/metrics", ANSWER) else { return };
        let number = |name: &str| sum_samples(&text, name).unwrap_or_default();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let seen = Numbers {
            sessions_lost: number("outboxd_reconnects_total{side=\"postgres\"}"),
            silence: now - sum_samples(&text, "outboxd_last_frame_timestamp_seconds").unwrap_or(now),
            lag: number("outboxd_lag_seconds"),
            lag_rise: 0.0,
        };
        let (first, highest) = &mut *self.numbers.lock().unwrap();
        let lowest_lag = first.map_or(seen.lag, |_| highest.lag.min(seen.lag));
        first.get_or_insert(seen);
        *highest = Numbers {
            sessions_lost: highest.sessions_lost.max(seen.sessions_lost),
            silence: highest.silence.max(seen.silence),
            lag: lowest_lag,
            lag_rise: highest.lag_rise.max(seen.lag - lowest_lag),
        };
    }

    fn ask(&self) {
        let asked_at = Instant::now();
        let reasons = match readiness_at(self.port.load(Ordering::Relaxed), ANSWER) {
            None => vec!["no answer".to_string()],
            Some((200, _)) => Vec::new(),
            Some((_, body)) => {
                let reasons = body["reasons"].as_array().into_iter().flatten();
                reasons.map(|reason| reason["code"].as_str().unwrap_or("?").to_string()).collect()
            }
        };
        let mut seen = self.seen.lock().unwrap();
        let struck = seen.0;
        // An answer to a question from before the strike says nothing of it.
        if asked_at >= struck {
            for reason in reasons {
                seen.1.entry(reason).or_insert_with(|| struck.elapsed());
            }
        }
    }
}

/// Looks at the memory of both relays once a second.
#[derive(Clone)]
pub struct Memory(Arc<Watched>);

struct Watched {
    /// The one that is replaced by others.
    relay: AtomicU32,
    seen: Mutex<Resident>,
}

#[derive(Default)]
struct Resident {
    relay_highest: u64,
    survivor_highest: u64,
    survivor_last: u64,
    /// The survivor's lowest of each minute: what it does not give back.
    lowest: Vec<u64>,
}

impl Memory {
    /// Starts to look, for as long as the survivor lives.
    pub fn watch(survivor: u32) -> Memory {
        let memory = Memory(Arc::new(Watched { relay: AtomicU32::new(0), seen: Mutex::default() }));
        let (watched, started) = (memory.0.clone(), Instant::now());
        std::thread::spawn(move || {
            while let Some(now) = resident_bytes(survivor) {
                let relay = resident_bytes(watched.relay.load(Ordering::Relaxed)).unwrap_or(0);
                let minute = started.elapsed().as_secs() as usize / 60;
                let mut seen = watched.seen.lock().unwrap();
                seen.relay_highest = seen.relay_highest.max(relay);
                seen.survivor_highest = seen.survivor_highest.max(now);
                seen.survivor_last = now;
                seen.lowest.resize(minute + 1, u64::MAX);
                seen.lowest[minute] = seen.lowest[minute].min(now);
                drop(seen);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        memory
    }

    /// From now on the relay is this process.
    pub fn follow(&self, relay: u32) {
        self.0.relay.store(relay, Ordering::Relaxed);
    }

    /// The highest of the relay and of the survivor.
    pub fn highest(&self) -> (u64, u64) {
        let seen = self.0.seen.lock().unwrap();
        (seen.relay_highest, seen.survivor_highest)
    }

    /// The survivor's last.
    pub fn last(&self) -> u64 {
        self.0.seen.lock().unwrap().survivor_last
    }

    /// The median of the survivor's lowest in the five minutes from the tenth on, and in the last five; both of them from
    /// what there is in a shorter run.
    pub fn early_and_late(&self) -> [u64; 2] {
        let lowest = self.0.seen.lock().unwrap().lowest.clone();
        let early = lowest.iter().skip(10.min(lowest.len().saturating_sub(5))).take(5).copied().collect();
        let late = lowest.iter().rev().take(5).copied().collect();
        [early, late].map(|mut minutes: Vec<u64>| {
            minutes.sort_unstable();
            minutes.get(minutes.len() / 2).copied().unwrap_or(0)
        })
    }
}
