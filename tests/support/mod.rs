//! The harness: real servers, the real binary, a load with a known truth, a reader, and the oracle.
//!
//! Test crates take it in with `#[path = "../support/mod.rs"] mod support;`. Cheap tests share one PostgreSQL and one
//! Kafka per test process (`Scene::new()`), with a database, a slot and a topic of their own; disruptive ones start
//! private servers. Whatever a test starts is ended when it is dropped; what is left when the process ends, however it
//! ends, is ended by the watchdog. Nothing here sleeps for a fixed time: wait with `eventually`.

#![allow(dead_code, reason = "the harness offers more than any one test crate uses")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

pub mod debezium;
pub mod kafka;
pub mod oracle;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod reader;
pub mod relay;
pub mod scene;
pub mod spoiled;
pub mod workload;

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Long enough for anything that is going to happen, on two busy cores.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds; fails the test after `timeout`, naming `what`.
#[track_caller]
pub fn eventually(what: &str, timeout: Duration, mut condition: impl FnMut() -> bool) {
    assert!(within(timeout, || condition().then_some(())).is_some(), "not within {timeout:?}: {what}");
}

/// Asks `question` until it has an answer, or `timeout` is over.
pub fn within<T>(timeout: Duration, mut question: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(answer) = question() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that `condition` keeps holding for `period`; fails the test at the first moment it does not.
#[track_caller]
pub fn throughout(what: &str, period: Duration, mut condition: impl FnMut() -> bool) {
    assert!(within(period, || (!condition()).then_some(())).is_none(), "did not hold for {period:?}: {what}");
}

/// Says what whoever runs the tests must read. Unlike `eprintln!` it is not kept from them when the test passes.
pub fn announce(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("stderr is open");
}

/// A free port below the ephemeral range: there, a client that keeps connecting to a stopped server would sooner or
/// later be given the server's own port as its local one, and connect to itself.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap();
    let given = given.get_or_insert_default();
    loop {
        let port = fastrand::u16(15_000..32_000);
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
}

/// A name that no other test of this process has, made from the test's own: fit for databases, slots and topics.
pub fn unique_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let test = test_name().rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let short: String = test.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(44).collect();
    format!("{short}_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Where a server's log goes: the owner is a test, or `shared`.
pub fn log_path(owner: &str, server: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logs");
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(format!("{owner}.{server}.log"))
}

/// The directory that `scripts/setup` fills with servers.
pub fn cache_dir() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/cache-dir");
    let output = Command::new(script).output().expect("scripts/cache-dir runs");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The name of the running test: libtest gives it to the thread.
pub fn test_name() -> String {
    std::thread::current().name().unwrap_or("unnamed").replace("::", ".")
}
