//! Runs the pipeline over a recorded stream, as many times as told and with the preset or route told: whoever counts the instructions of two
//! runs learns what an event costs. Says how many allocations the second half took.

mod corridor;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use outboxd::config::{Config, Rules};

/// The system's allocator, and how often it was asked.
struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let rounds: u64 = std::env::args().nth(1).expect("how often").parse().expect("a number");
    let (outbox, rules) = match std::env::args().nth(2).as_deref() {
        Some("debezium") => (corridor::debezium(), Rules::default()),
        Some("like debezium") => (corridor::outbox(), like_debezium()),
        Some("plain route") => (corridor::outbox(), plain()),
        Some("matching route") => (corridor::outbox(), matching()),
        Some("template") => (corridor::outbox(), corridor::template()),
        _ => (corridor::outbox(), Rules::default()),
    };
    let mut corridor = corridor::Corridor::new(outbox, &rules);
    (0..rounds / 2).for_each(|_| corridor.flow());
    let warm = ASKED.load(Ordering::Relaxed);
    (0..rounds / 2).for_each(|_| corridor.flow());
    println!("{}", ASKED.load(Ordering::Relaxed) - warm);
}

/// A route that makes of our own outbox what Debezium makes of its: the same key, one header, no timestamp.
fn like_debezium() -> Rules {
    routed("key = '{aggregate_id}'\ndefault_headers = 'none'\nheaders = { id = '{id}' }\ntimestamp = 'now'")
}

/// A route that says what every record has by itself.
fn plain() -> Rules {
    routed("topic = 'outbox.event.{aggregate_type}'\nkey = '{id}'")
}

/// The same for rows of some types only, which theirs are.
fn matching() -> Rules {
    routed("match = { event_type = '*' }\ntopic = 'outbox.event.{aggregate_type}'\nkey = '{id}'")
}

fn routed(route: &str) -> Rules {
    let text = format!("postgres.url = 'postgres://u@h/d'\nkafka.brokers = 'k:9092'\n[[route]]\n{route}");
    Config::from_toml(&text, "routes", std::iter::empty()).expect("it is valid").rules
}
