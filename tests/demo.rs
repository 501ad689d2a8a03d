//! `outboxd demo` as a newcomer runs it: the real binary, ended in every way that people and systems end programs.
//!
//! Every test ends in the same question: is a process, a directory or a port left?

#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The promise, first build aside.
const FIRST_EVENT: Duration = Duration::from_secs(15);
/// How long the demo may take to end and to clean up.
const END: Duration = Duration::from_secs(20);

/// The promise is for a machine that does not make six databases at once: the test that measures runs alone.
static MACHINE: RwLock<()> = RwLock::new(());

#[test]
fn events_flow_within_fifteen_seconds_and_all_of_them_arrive() {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let mut demo = Demo::start(&["--for", "5s", "--rate", "100"]);
    demo.wait_for("headers  id=");
    assert!(demo.started.elapsed() < FIRST_EVENT, "the first event came after {:?}", demo.started.elapsed());
    assert!(demo.ended().success(), "{}", demo.output);
    for shown in
        ["psql 'postgres://", "kcat -C -q -b 127.0.0.1:", "type=order.", "lsn=", "confirmed ", "nothing is left"]
    {
        assert!(demo.output.contains(shown), "{shown} is not in\n{}", demo.output);
    }
    let (written, published) = demo.totals();
    assert_eq!(written, published, "{}", demo.output);
    assert!(written > 100, "{}", demo.output);
    demo.assert_nothing_is_left();
}

#[test]
fn every_polite_signal_ends_the_demo_with_success() {
    let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    for signal in ["INT", "TERM", "HUP"] {
        let mut demo = Demo::start(&[]);
        demo.wait_for("headers  id=");
        demo.signal(signal);
        assert!(demo.ended().success(), "SIG{signal}\n{}", demo.output);
        let (written, published) = demo.totals();
        assert!(written == published && written > 0, "SIG{signal}\n{}", demo.output);
        demo.assert_nothing_is_left();
    }
}

#[test]
fn a_demo_that_is_ended_before_its_first_event_leaves_nothing_either() {
    let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    for delay in [0, 100, 500, 1000, 1500] {
        let mut demo = Demo::start(&[]);
        demo.wait_for("a throw-away PostgreSQL");
        thread::sleep(Duration::from_millis(delay));
        demo.signal("INT");
        assert!(demo.ended().success(), "after {delay} ms\n{}", demo.output);
        demo.assert_nothing_is_left();
    }
}

#[test]
fn a_killed_demo_takes_its_server_along() {
    let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    for moment in ["a throw-away PostgreSQL", "headers  id="] {
        let mut demo = Demo::start(&[]);
        demo.wait_for(moment);
        demo.signal("KILL");
        assert!(!demo.ended().success());
        demo.assert_nothing_is_left();
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_demo() {
    let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let mut demo = Demo::start(&[]);
    demo.wait_for("headers  id=");
    demo.close_screen();
    assert!(demo.ended().success());
    demo.assert_nothing_is_left();
}

#[test]
fn a_taken_port_and_a_second_demo_are_no_obstacle() {
    let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    // Somebody else's listener serves as well as ours.
    let listener = TcpListener::bind("127.0.0.1:9187");
    let mut demos = [Demo::start(&["--for", "2s"]), Demo::start(&["--for", "2s"])];
    for demo in &mut demos {
        assert!(demo.ended().success(), "{}", demo.output);
        assert!(demo.output.contains("(port 9187 is taken)"), "{}", demo.output);
        assert!(demo.totals().1 > 0, "{}", demo.output);
        demo.assert_nothing_is_left();
    }
    drop(listener);
}

/// A running demo with a directory of its own for its files.
struct Demo {
    child: Child,
    lines: Option<Receiver<String>>,
    output: String,
    temporary: TempDir,
    started: Instant,
}

impl Demo {
    fn start(args: &[&str]) -> Demo {
        let temporary = tempfile::tempdir().unwrap();
        // Under root, the server runs as somebody else.
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o777)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
        command.arg("demo").args(args).env("TMPDIR", temporary.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Demo { child, lines: Some(lines), output: String::new(), temporary, started: Instant::now() }
    }

    fn wait_for(&mut self, text: &str) {
        while !self.output.contains(text) {
            let line = self.lines.as_ref().unwrap().recv_timeout(END);
            let line = line.unwrap_or_else(|error| panic!("{text} did not appear ({error}):\n{}", self.output));
            self.output.push_str(&line);
            self.output.push('\n');
        }
    }

    /// The reading thread ends with the next line, and the pipe with it.
    fn close_screen(&mut self) {
        self.lines = None;
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; `output` is complete then.
    fn ended(&mut self) -> ExitStatus {
        let status = eventually("the demo ends", || self.child.try_wait().unwrap());
        for line in self.lines.iter().flatten() {
            self.output.push_str(&line);
            self.output.push('\n');
        }
        status
    }

    /// Events written and events published, as the last lines say.
    fn totals(&self) -> (u64, u64) {
        let line = self.output.lines().find(|line| line.contains(" events written in ")).unwrap_or_default();
        let number = |word: &str| word.replace(',', "").parse().unwrap_or_else(|_| panic!("{line:?}\n{}", self.output));
        let words: Vec<&str> = line.split(' ').collect();
        let published = words.iter().position(|word| *word == "published;").map(|place| words[place - 1]);
        (number(words[0]), number(published.unwrap_or_default()))
    }

    fn assert_nothing_is_left(&self) {
        let directory = self.temporary.path();
        eventually("the directory is removed", || fs::read_dir(directory).unwrap().next().is_none().then_some(()));
        eventually("all processes are gone", || processes_of(directory).is_empty().then_some(()));
        for address in self.output.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':') {
            if address.starts_with("127.0.0.1:") && !address.ends_with(":9187") {
                assert!(TcpStream::connect(address).is_err(), "{address} is still open\n{}", self.output);
            }
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

/// Processes that name the directory or work in it.
fn processes_of(directory: &Path) -> Vec<String> {
    let text = directory.to_str().unwrap();
    let belongs = |process: &Path| {
        let holds = |file: &str| {
            let bytes = fs::read(process.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(text)
        };
        let inside = fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.to_string_lossy().contains(text));
        inside || holds("cmdline") || holds("environ")
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(|process| belongs(process)).map(|process| process.display().to_string()).collect()
}

fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + END;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {END:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
