//! The real binary, as a user would start it: a configuration file, a process, its log, its HTTP side.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::Value;

use super::kafka::Kafka;
use super::postgres::Database;
use super::process::{Farewell, Log, Process, Scratch, resident_bytes};
use super::{PATIENCE, eventually, free_port, log_path, test_name, within};

/// How long its HTTP server may take for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// A fault that lasts shows within this time of its strike.
pub const NOTICED: Duration = Duration::from_secs(5);

/// A configuration file in the making.
#[derive(Debug, Clone)]
pub struct Config(toml::Table);

impl Config {
    /// The usual one: slot and publication named after the database, `key = "{aggregate_id}"`, a short lease.
    pub fn new(database: &Database, kafka: &Kafka) -> Config {
        let config = Config(toml::Table::new())
            .set("postgres.url", database.url())
            .set("postgres.slot", database.name())
            .set("postgres.publication", database.name())
            .set("postgres.sender_timeout", "5s")
            .set("kafka.brokers", kafka.brokers());
        config.add("route", "key = \"{aggregate_id}\"")
    }

    /// What a file holds.
    pub fn parse(text: &str) -> Config {
        Config(text.parse().unwrap_or_else(|error| panic!("no TOML: {error}\n{text}")))
    }

    /// Sets a field by its path: `set("limits.memory", "8MiB")`. Durations and sizes are text.
    pub fn set(mut self, path: &str, value: impl Into<toml::Value>) -> Config {
        let mut steps: Vec<&str> = path.split('.').collect();
        let field = steps.pop().expect("a path has a field");
        let mut table = &mut self.0;
        for step in steps {
            let entry = table.entry(step).or_insert_with(|| toml::Table::new().into());
            table = entry.as_table_mut().expect("the path leads through tables");
        }
        table.insert(field.to_string(), value.into());
        self
    }

    /// Sets a librdkafka property.
    pub fn property(mut self, name: &str, value: &str) -> Config {
        let kafka = self.0["kafka"].as_table_mut().expect("kafka is a table");
        let properties = kafka.entry("properties").or_insert_with(|| toml::Table::new().into());
        properties.as_table_mut().expect("properties is a table").insert(name.to_string(), value.into());
        self
    }

    /// Adds a block: `add("outbox", "table = \"public.events\"")`.
    pub fn add(mut self, list: &str, block: &str) -> Config {
        let block: toml::Table = block.parse().expect("the block is TOML");
        let blocks = self.0.entry(list).or_insert_with(|| toml::Value::Array(Vec::new()));
        blocks.as_array_mut().expect("it is a list of blocks").push(block.into());
        self
    }

    /// Removes a whole section, such as the `route` that is there from the start.
    pub fn without(mut self, section: &str) -> Config {
        self.0.remove(section);
        self
    }

    /// The slot's name.
    pub fn slot(&self) -> &str {
        self.0["postgres"]["slot"].as_str().expect("it is text")
    }

    /// Runs a command of the binary with this configuration, to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let scratch = Scratch::new();
        let config = self.write(scratch.path());
        run_binary(binary().args(arguments).arg("--config").arg(config))
    }

    /// Writes the file into a directory, and says where it is.
    pub fn write(&self, directory: &Path) -> PathBuf {
        let path = directory.join("outboxd.toml");
        std::fs::write(&path, self.0.to_string()).unwrap();
        path
    }
}

/// A command that ran to its end.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Fails the test unless the exit code was 0.
    #[track_caller]
    pub fn assert_success(&self) -> &Ended {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }
}

/// Runs the binary with these arguments alone, to its end.
pub fn outboxd(arguments: &[&str]) -> Ended {
    run_binary(binary().args(arguments))
}

/// Runs the binary with these arguments and variables, without a configuration file.
pub fn outboxd_with(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    run_binary(binary().args(arguments).envs(variables.iter().copied()))
}

/// The configuration, with health and metrics at this port.
fn listening(config: &Config, http: u16) -> Config {
    config.clone().set("http.listen", format!("127.0.0.1:{http}"))
}

/// A running `outboxd run`. It is killed when dropped.
pub struct Relay {
    process: Process,
    http: u16,
    output: Arc<Mutex<String>>,
    log: Log,
    scratch: Scratch,
}

impl Relay {
    /// Starts it, without waiting for anything.
    pub fn start(config: &Config) -> Relay {
        let http = free_port();
        let scratch = Scratch::new();
        let path = listening(config, http).write(scratch.path());
        let mut command = binary();
        command.arg("run").arg("--config").arg(path).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command, Farewell::Kill);
        let log = Log::create(log_path(&test_name(), &format!("relay-{http}")));
        let output = Arc::<Mutex<String>>::default();
        let child = process.child_mut();
        collect(child.stdout.take().expect("stdout is piped"), output.clone(), log.writer());
        collect(child.stderr.take().expect("stderr is piped"), output.clone(), log.writer());
        Relay { process, http, output, log, scratch }
    }

    /// Waits until `/readyz` says 200.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        let ready = within(PATIENCE, || match self.process.exited() {
            Some(_) => Some(false),
            None => (self.readiness()?.0 == 200).then_some(true),
        });
        assert_eq!(ready, Some(true), "the relay is not ready: {:?}\n{}", self.readiness(), self.log());
    }

    /// Waits until it is ready as a standby.
    #[track_caller]
    pub fn wait_standby(&self) {
        eventually("it stands by, ready", PATIENCE, || {
            self.readiness().is_some_and(|(code, body)| code == 200 && body["role"] == "standby")
        });
    }

    /// Waits until `/readyz` says 503 with a reason of this code.
    #[track_caller]
    pub fn wait_unready(&self, code: &str, timeout: Duration) {
        let mut last = None;
        let found = within(timeout, || {
            last = self.readiness();
            let (status, body) = last.as_ref()?;
            let reasons = body["reasons"].as_array()?;
            (*status == 503 && reasons.iter().any(|reason| reason["code"] == code)).then_some(())
        });
        assert!(found.is_some(), "readiness never named {code}: {last:?}\n{}", self.log());
    }

    /// What an operator was promised of a fault that lasts: `/readyz` names it within five seconds of the strike, not of
    /// the moment at which the test begins to look.
    #[track_caller]
    pub fn wait_noticed(&self, struck: Instant, code: &str) {
        self.wait_unready(code, left_to_notice(struck));
    }

    /// What an operator sees of a lost session that may be back before anybody asks `/readyz`: it is counted within five
    /// seconds of the strike, and the log has the reason. It was ready when there were `before` of them.
    #[track_caller]
    pub fn wait_session_lost(&self, struck: Instant, before: f64) {
        eventually("the lost session is counted", left_to_notice(struck), || self.sessions_lost() > before);
        let named = || self.log().matches("\"reason\":\"postgres_unreachable\"").count();
        eventually("the log has the reason", PATIENCE, || named() as f64 > before);
    }

    /// The age of the oldest unsettled event is computed at scrape time: it must not freeze with the relay.
    #[track_caller]
    pub fn wait_lag_grows(&self) {
        let before = self.lag();
        eventually("the lag grows", NOTICED, || self.lag() > before + 1.0);
    }

    /// Waits until so many more events were published.
    #[track_caller]
    pub fn wait_published(&self, more: f64) {
        let before = self.published();
        eventually("events flow", PATIENCE, || self.published() >= before + more);
    }

    /// Waits until the output contains `text`.
    #[track_caller]
    pub fn wait_log(&self, text: &str, timeout: Duration) {
        let found = within(timeout, || self.output.lock().unwrap().contains(text).then_some(()));
        assert!(found.is_some(), "the relay never said \"{text}\"\n{}", self.log());
    }

    /// Everything it wrote to stdout and stderr so far.
    pub fn log(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Status and JSON of `/readyz`; `None` while nobody answers.
    pub fn readiness(&self) -> Option<(u16, Value)> {
        readiness_at(self.http, ANSWER)
    }

    /// The text of `/metrics`.
    #[track_caller]
    pub fn metrics(&self) -> String {
        self.get("/metrics").expect("the relay answers").1
    }

    /// A metric's value: the sum over its labels, or one sample when `name` has them (`outboxd_state{state="…"}`).
    #[track_caller]
    pub fn metric(&self, name: &str) -> Option<f64> {
        sum_samples(&self.metrics(), name)
    }

    /// Events that Kafka has acknowledged to it.
    #[track_caller]
    pub fn published(&self) -> f64 {
        self.metric("outboxd_events_published_total").unwrap_or_default()
    }

    /// The age of the oldest event that was read and is not settled, in seconds.
    #[track_caller]
    pub fn lag(&self) -> f64 {
        self.metric("outboxd_lag_seconds").expect("it is always there")
    }

    /// Sessions with PostgreSQL that were left or lost.
    #[track_caller]
    pub fn sessions_lost(&self) -> f64 {
        self.metric("outboxd_reconnects_total{side=\"postgres\"}").expect("it is always there")
    }

    /// Lost connections to brokers, and requests that failed or got no answer; none before the first statistics.
    pub fn kafka_errors(&self) -> f64 {
        self.metric("outboxd_kafka_errors_total").unwrap_or(0.0)
    }

    /// Producers that were replaced.
    #[track_caller]
    pub fn producers_replaced(&self) -> f64 {
        self.metric("outboxd_reconnects_total{side=\"kafka\"}").expect("it is always there")
    }

    /// For how long PostgreSQL has sent nothing, in seconds.
    #[track_caller]
    pub fn last_frame_age(&self) -> f64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
        now.as_secs_f64() - self.metric("outboxd_last_frame_timestamp_seconds").expect("it has heard something")
    }

    /// Status and body of a GET; `None` while nobody answers.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        get_at(self.http, path, ANSWER)
    }

    /// The port of its HTTP side.
    pub fn http_port(&self) -> u16 {
        self.http
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> u64 {
        resident_bytes(self.pid()).expect("the relay runs")
    }

    /// Gives it another configuration, and asks it to read that.
    pub fn reload(&mut self, config: &Config) {
        listening(config, self.http).write(self.scratch.path());
        self.process.signal(Signal::HUP);
    }

    /// Asks it to end.
    pub fn sigterm(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// Kills it, and waits for its end.
    pub fn sigkill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE).expect("a killed process ends");
    }

    /// Freezes it.
    pub fn sigstop(&mut self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn sigcont(&mut self) {
        self.process.signal(Signal::CONT);
    }

    /// Waits for its end and returns the exit code; `None` in it when a signal ended it.
    #[track_caller]
    pub fn wait_exit(&mut self, timeout: Duration) -> Option<i32> {
        let status = self.process.wait(timeout);
        let status = status.unwrap_or_else(|| panic!("the relay still runs after {timeout:?}\n{}", self.log()));
        // What it said last may still be in the pipes.
        eventually("the end of its output", PATIENCE, || Arc::strong_count(&self.output) == 1);
        status.code()
    }

    /// True while it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.exited().is_none()
    }
}

/// What is left of the five seconds within which a fault must show.
#[track_caller]
pub fn left_to_notice(struck: Instant) -> Duration {
    NOTICED.checked_sub(struck.elapsed()).expect("the test looks in time")
}

/// Status and JSON of `/readyz` of the relay with this HTTP port; `None` while nobody answers.
pub fn readiness_at(port: u16, patience: Duration) -> Option<(u16, Value)> {
    let (status, body) = get_at(port, "/readyz", patience)?;
    Some((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
}

/// Status and body of a GET at this port; `None` while nobody answers.
pub fn get_at(port: u16, path: &str, patience: Duration) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(patience)).unwrap();
    // HTTP/1.0: the body ends with the connection, whatever its length.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split_whitespace().nth(1)?.parse().ok()?, body.to_string()))
}

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    // What the person running the tests has set must not reach the relay under test.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OUTBOXD_")) {
        command.env_remove(name);
    }
    command
}

fn run_binary(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Copies a pipe, line by line, into memory and into the log file.
fn collect(pipe: impl Read + Send + 'static, output: Arc<Mutex<String>>, mut log: File) {
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            log.write_all(&line).ok();
            output.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
}

/// A metric's value in the text of `/metrics`, as `Relay::metric` has it.
pub fn sum_samples(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let found = sample == name || sample.split_once('{').is_some_and(|(bare, _)| bare == name);
        found.then(|| value.parse::<f64>().expect("a sample is a number"))
    });
    samples.reduce(|a, b| a + b)
}

#[test]
fn samples_are_found_by_name_and_summed_over_labels() {
    let text = "# HELP x a\nx{topic=\"a\"} 1\nx{topic=\"b\"} 2\nxy 5\ny 7\n";
    assert_eq!(sum_samples(text, "x"), Some(3.0));
    assert_eq!(sum_samples(text, "x{topic=\"b\"}"), Some(2.0));
    assert_eq!(sum_samples(text, "y"), Some(7.0));
    assert_eq!(sum_samples(text, "z"), None);
}
