//! Every metric's name, help and handle.
//!
//! Counts enter through handles on the hot path; what the relay says about itself (`Status`), what librdkafka says
//! (`KafkaStatistics`) and what the kernel says (`/proc/self`) are turned into samples at scrape time, so that ages
//! grow while the relay is stuck. Text in Prometheus' format leaves. No position, id or key is ever a label.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

use crate::status::{Role, State, Status};

/// The content type of `Metrics::render`.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// From a local commit to a minute behind a slow broker.
const PUBLISH_BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The values of `wal_status`, for its label.
const WAL_STATUS: [&str; 4] = ["reserved", "extended", "unreserved", "lost"];

/// All handles of one process; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

struct Handles {
    registry: Registry,
    events_published: IntCounterVec,
    events_rejected: IntCounterVec,
    bytes_published: IntCounter,
    publish_seconds: Histogram,
    reconnects: IntCounterVec,
    slot_moves: IntCounter,
    stray_stream_aborts: IntCounter,
    ignored_messages: IntCounter,
    writeback_rows: IntCounter,
    writeback_failures: IntCounter,
    /// These three join a scrape once they are known.
    last_ack: Gauge,
    last_frame: Gauge,
    sender_timeout: Gauge,
    kafka: Mutex<KafkaStatistics>,
}

/// What is counted per topic: ask for it once per topic and keep it.
#[derive(Clone)]
pub struct TopicMetrics {
    events: IntCounter,
    bytes: IntCounter,
    seconds: Histogram,
}

/// The two sides that can be lost and found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Postgres,
    Kafka,
}

/// What librdkafka last said about its queue and its brokers. A new producer counts from zero again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KafkaStatistics {
    /// Messages in the producer's queue (`msg_cnt`).
    pub queue_messages: u64,
    /// Their bytes (`msg_size`).
    pub queue_bytes: u64,
    /// The brokers the producer knows.
    pub brokers: Vec<BrokerStatistics>,
}

/// What librdkafka last said about one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerStatistics {
    /// `host:port`
    pub name: String,
    /// Median round trip of the last interval (`rtt.p50`); `None` when nothing was asked.
    pub round_trip_p50: Option<Duration>,
    /// 99th percentile of the last interval (`rtt.p99`).
    pub round_trip_p99: Option<Duration>,
    /// Failed transmissions and receptions, and requests without an answer (`txerrs` + `rxerrs` + `req_timeouts`).
    pub errors: u64,
    /// Requests sent again (`txretries`).
    pub retries: u64,
}

impl Metrics {
    /// Fresh handles in a registry of their own.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let counter = |name, help| register(&registry, IntCounter::new(name, help));
        let counters = |name, help, labels| register(&registry, IntCounterVec::new(Opts::new(name, help), labels));
        let gauge = |name, help| Gauge::new(name, help).expect("names in this file are valid");
        let publish = HistogramOpts::new("outboxd_publish_seconds", "Time from an event's commit to the broker's ack.");
        let handles = Handles {
            events_published: counters("outboxd_events_published_total", "Events the broker acknowledged.", &["topic"]),
            events_rejected: counters("outboxd_events_rejected_total", "Events that cannot be published.", &["reason"]),
            bytes_published: counter(
                "outboxd_bytes_published_total",
                "Bytes of their records, without Kafka's framing.",
            ),
            publish_seconds: register(&registry, Histogram::with_opts(publish.buckets(PUBLISH_BUCKETS.into()))),
            reconnects: counters("outboxd_reconnects_total", "Connections that were lost and made again.", &["side"]),
            slot_moves: counter(
                "outboxd_slot_moves_total",
                "Times the slot was found ahead of all that relays had settled: events in between are not published.",
            ),
            stray_stream_aborts: counter(
                "outboxd_stray_stream_aborts_total",
                "Stream Abort messages outside a stream (PostgreSQL bug 19616), ignored.",
            ),
            ignored_messages: counter(
                "outboxd_ignored_messages_total",
                "Non-transactional logical messages with an outbox prefix, never published.",
            ),
            writeback_rows: counter("outboxd_writeback_rows_total", "Receipts written into rows of outbox tables."),
            writeback_failures: counter(
                "outboxd_writeback_failures_total",
                "Batches of them that failed, and were tried again.",
            ),
            last_ack: gauge("outboxd_last_ack_timestamp_seconds", "When the broker last acknowledged an event."),
            last_frame: gauge("outboxd_last_frame_timestamp_seconds", "When PostgreSQL last sent anything."),
            sender_timeout: gauge("outboxd_wal_sender_timeout_seconds", "wal_sender_timeout of our connection."),
            kafka: Mutex::default(),
            registry,
        };
        // A counter that appears with its first event hides that event from rate() and increase().
        for side in [Side::Postgres, Side::Kafka] {
            handles.reconnects.with_label_values(&[side.name()]);
        }
        Metrics(Arc::new(handles))
    }

    /// The handle for one topic's events.
    pub fn topic(&self, topic: &str) -> TopicMetrics {
        TopicMetrics {
            events: self.0.events_published.with_label_values(&[topic]),
            bytes: self.0.bytes_published.clone(),
            seconds: self.0.publish_seconds.clone(),
        }
    }

    /// An event could not be published; `reason` is one of a few words.
    pub fn rejected(&self, reason: &'static str) {
        self.0.events_rejected.with_label_values(&[reason]).inc();
    }

    /// A lost connection was made again.
    pub fn reconnected(&self, side: Side) {
        self.0.reconnects.with_label_values(&[side.name()]).inc();
    }

    /// The slot was found ahead of all that relays had settled.
    pub fn slot_moved(&self) {
        self.0.slot_moves.inc();
    }

    /// A Stream Abort came outside a stream.
    pub fn stray_stream_abort(&self) {
        self.0.stray_stream_aborts.inc();
    }

    /// A non-transactional message with an outbox prefix was passed over.
    pub fn ignored_message(&self) {
        self.0.ignored_messages.inc();
    }

    /// So many receipts were written into their rows.
    pub fn written_back(&self, rows: u64) {
        self.0.writeback_rows.inc_by(rows);
    }

    /// A batch of them could not be written.
    pub fn write_back_failed(&self) {
        self.0.writeback_failures.inc();
    }

    /// The broker acknowledged something.
    pub fn acked_at(&self, now: SystemTime) {
        self.0.last_ack.set(unix_seconds(now));
    }

    /// PostgreSQL sent something.
    pub fn frame_at(&self, now: SystemTime) {
        self.0.last_frame.set(unix_seconds(now));
    }

    /// The session's `wal_sender_timeout`, against which the age of the last frame is judged.
    pub fn sender_timeout(&self, timeout: Duration) {
        self.0.sender_timeout.set(timeout.as_secs_f64());
    }

    /// Keeps librdkafka's latest statistics for the next scrape.
    pub fn kafka(&self, statistics: KafkaStatistics) {
        *self.0.kafka.lock().expect("nobody panics while holding the statistics") = statistics;
    }

    /// All samples in Prometheus' text format, as of `now`.
    pub fn render(&self, status: &Status, now: SystemTime) -> String {
        let scrape = Scrape(Registry::new());
        scrape.build();
        scrape.status(status, now);
        scrape.known([&self.0.last_ack, &self.0.last_frame, &self.0.sender_timeout]);
        scrape.kafka(&self.0.kafka.lock().expect("nobody panics while holding the statistics"));
        if let Some(usage) = Usage::read() {
            scrape.process(&usage);
        }
        let mut families = self.0.registry.gather();
        families.extend(scrape.0.gather());
        TextEncoder::new().encode_to_string(&families).expect("samples are numbers, and a string takes all of them")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl TopicMetrics {
    /// The broker acknowledged one event of this many bytes, this long after its commit.
    pub fn published(&self, bytes: u64, since_commit: Duration) {
        self.events.inc();
        self.bytes.inc_by(bytes);
        self.seconds.observe(since_commit.as_secs_f64());
    }
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Postgres => "postgres",
            Side::Kafka => "kafka",
        }
    }
}

/// The samples made for one scrape; what is not known is left out.
struct Scrape(Registry);

impl Scrape {
    fn build(&self) {
        let build = self.gauges("outboxd_build_info", "The running version; always 1.", &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
    }

    fn status(&self, status: &Status, now: SystemTime) {
        let state = self.gauges("outboxd_state", "1 for the relay's present state, 0 for all others.", &["state"]);
        for each in State::ALL {
            state.with_label_values(&[each.name()]).set(flag(each == status.state));
        }
        self.gauge("outboxd_ready", "1 when events can flow, or on a standby.", flag(status.ready()));
        let leads = status.role == Role::Leader && status.state != State::Connecting;
        self.gauge("outboxd_leader", "1 while this one has the slot.", flag(leads));
        self.gauge(
            "outboxd_lag_seconds",
            "Age of the oldest unsettled event, 0 when there is none.",
            status.lag(now).as_secs_f64(),
        );
        if let Some(bytes) = status.lag_bytes() {
            self.integer("outboxd_lag_bytes", "WAL between the confirmed position and the server's end.", bytes as i64);
        }
        self.integer("outboxd_inflight_events", "Records offered and not yet answered.", status.inflight_events as i64);
        self.integer("outboxd_inflight_bytes", "What they take of limits.memory.", status.inflight_bytes as i64);
        let help = "Events that are published or parked, and not yet marked in their table (outbox.writeback).";
        self.integer("outboxd_writeback_events", help, status.unmarked_events as i64);
        self.integer("outboxd_confirmed_lsn", "The confirmed position as a number.", status.confirmed.0 as i64);
        if let Some(letters) = &status.dead_letters {
            let by_state = self.gauges("outboxd_dead_letters", "Dead letters in the store.", &["state"]);
            for (state, many) in letters.by_state() {
                by_state.with_label_values(&[state]).set(many as f64);
            }
            let age = letters.oldest.map_or(0.0, |parked| now.duration_since(parked).unwrap_or_default().as_secs_f64());
            let help = "Age of the oldest dead letter that is neither delivered nor discarded, 0 when there is none.";
            self.gauge("outboxd_dead_letter_oldest_seconds", help, age);
        }
        let Some(slot) = &status.slot_facts else { return };
        self.integer("outboxd_slot_retained_bytes", "WAL the slot keeps on disk.", slot.retained_bytes as i64);
        if let Some(bytes) = slot.safe_bytes {
            self.integer(
                "outboxd_slot_safe_bytes",
                "WAL that can be written before the slot is lost; absent when unlimited.",
                bytes,
            );
        }
        let health = self.gauges("outboxd_slot_wal_status", "1 for the slot's present wal_status.", &["wal_status"]);
        for each in WAL_STATUS {
            health.with_label_values(&[each]).set(flag(each == slot.wal_status));
        }
    }

    fn kafka(&self, statistics: &KafkaStatistics) {
        self.integer(
            "outboxd_kafka_queue_messages",
            "Messages in librdkafka's queue.",
            statistics.queue_messages as i64,
        );
        self.integer("outboxd_kafka_queue_bytes", "Bytes in librdkafka's queue.", statistics.queue_bytes as i64);
        let round_trip = self.gauges(
            "outboxd_kafka_round_trip_seconds",
            "Round trip to a broker over the last interval.",
            &["broker", "percentile"],
        );
        let errors = self.counters(
            "outboxd_kafka_errors_total",
            "Lost connections, failed and unanswered requests.",
            &["broker"],
        );
        let retries = self.counters("outboxd_kafka_retries_total", "Requests sent again.", &["broker"]);
        for broker in &statistics.brokers {
            for (percentile, value) in [("50", broker.round_trip_p50), ("99", broker.round_trip_p99)] {
                if let Some(value) = value {
                    round_trip.with_label_values(&[broker.name.as_str(), percentile]).set(value.as_secs_f64());
                }
            }
            errors.with_label_values(&[&broker.name]).inc_by(broker.errors);
            retries.with_label_values(&[&broker.name]).inc_by(broker.retries);
        }
    }

    fn process(&self, usage: &Usage) {
        let cpu =
            register(&self.0, prometheus::Counter::new("process_cpu_seconds_total", "User and system CPU time spent."));
        cpu.inc_by(usage.cpu_seconds);
        self.gauge("process_resident_memory_bytes", "Resident memory.", usage.resident_bytes);
        self.gauge("process_open_fds", "Open file descriptors.", usage.open_fds);
        self.gauge("process_start_time_seconds", "When the process started.", usage.start_seconds);
    }

    /// The gauges that have been set.
    fn known(&self, gauges: [&Gauge; 3]) {
        for gauge in gauges.into_iter().filter(|gauge| gauge.get() > 0.0) {
            register(&self.0, Ok(gauge.clone()));
        }
    }

    fn gauge(&self, name: &str, help: &str, value: f64) {
        register(&self.0, Gauge::new(name, help)).set(value);
    }

    fn integer(&self, name: &str, help: &str, value: i64) {
        register(&self.0, IntGauge::new(name, help)).set(value);
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        register(&self.0, GaugeVec::new(Opts::new(name, help), labels))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        register(&self.0, IntCounterVec::new(Opts::new(name, help), labels))
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("names and labels in this file are valid");
    registry.register(Box::new(collector.clone())).expect("names in this file are unique");
    collector
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What the kernel says about this process.
struct Usage {
    cpu_seconds: f64,
    resident_bytes: f64,
    open_fds: f64,
    start_seconds: f64,
}

impl Usage {
    /// `None` where there is no `/proc`.
    fn read() -> Option<Usage> {
        // The unit of times in /proc: Linux shows 100 per second to programs on every architecture we build for.
        const TICKS: f64 = 100.0;
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // proc(5): the second field, the name in parentheses, may hold spaces; fields are numbered from 1.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Usage {
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            resident_bytes: 1024.0 * number_after("/proc/self/status", "VmRSS:")?,
            open_fds: std::fs::read_dir("/proc/self/fd").ok()?.count() as f64,
            start_seconds: number_after("/proc/stat", "btime ")? + field(22)? / TICKS,
        })
    }
}

/// The number that follows `name` at the start of a line.
fn number_after(path: &str, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::lsn::Lsn;
    use crate::status::SlotFacts;

    const START: SystemTime = UNIX_EPOCH;

    /// Metrics in which everything has happened once.
    fn eventful() -> Metrics {
        let metrics = Metrics::new();
        metrics.topic("orders").published(613, Duration::from_millis(3));
        metrics.rejected("too_large");
        metrics.reconnected(Side::Kafka);
        metrics.slot_moved();
        metrics.stray_stream_abort();
        metrics.ignored_message();
        metrics.acked_at(START + Duration::from_secs(5));
        metrics.frame_at(START + Duration::from_secs(6));
        metrics.sender_timeout(Duration::from_secs(30));
        metrics.kafka(KafkaStatistics {
            queue_messages: 4,
            queue_bytes: 2000,
            brokers: vec![BrokerStatistics {
                name: "kafka-1:9092".into(),
                round_trip_p50: Some(Duration::from_millis(2)),
                round_trip_p99: Some(Duration::from_millis(20)),
                errors: 1,
                retries: 2,
            }],
        });
        metrics
    }

    #[test]
    fn a_scrape_holds_every_metric_of_the_interface() {
        let text = eventful().render(&Status::example(), START + Duration::from_secs(9));
        for sample in [
            "outboxd_events_published_total{topic=\"orders\"} 1\n",
            "outboxd_events_rejected_total{reason=\"too_large\"} 1\n",
            "outboxd_bytes_published_total 613\n",
            "outboxd_publish_seconds_bucket{le=\"0.001\"} 0\n",
            "outboxd_publish_seconds_bucket{le=\"0.005\"} 1\n",
            "outboxd_publish_seconds_bucket{le=\"60\"} 1\n",
            "outboxd_lag_bytes 2000\n",
            "outboxd_lag_seconds 9\n",
            "outboxd_inflight_events 2\n",
            "outboxd_inflight_bytes 900\n",
            "outboxd_confirmed_lsn 1000\n",
            "outboxd_slot_retained_bytes 5000\n",
            "outboxd_slot_safe_bytes 7000\n",
            "outboxd_slot_wal_status{wal_status=\"reserved\"} 1\n",
            "outboxd_slot_wal_status{wal_status=\"lost\"} 0\n",
            "outboxd_state{state=\"streaming\"} 1\n",
            "outboxd_state{state=\"waiting\"} 0\n",
            "outboxd_ready 1\n",
            "outboxd_leader 1\n",
            "outboxd_reconnects_total{side=\"kafka\"} 1\n",
            "outboxd_reconnects_total{side=\"postgres\"} 0\n",
            "outboxd_kafka_round_trip_seconds{broker=\"kafka-1:9092\",percentile=\"50\"} 0.002\n",
            "outboxd_kafka_round_trip_seconds{broker=\"kafka-1:9092\",percentile=\"99\"} 0.02\n",
            "outboxd_kafka_queue_messages 4\n",
            "outboxd_kafka_queue_bytes 2000\n",
            "outboxd_kafka_errors_total{broker=\"kafka-1:9092\"} 1\n",
            "outboxd_kafka_retries_total{broker=\"kafka-1:9092\"} 2\n",
            "outboxd_slot_moves_total 1\n",
            "outboxd_stray_stream_aborts_total 1\n",
            "outboxd_ignored_messages_total 1\n",
            "outboxd_wal_sender_timeout_seconds 30\n",
            "outboxd_last_ack_timestamp_seconds 5\n",
            "outboxd_last_frame_timestamp_seconds 6\n",
            concat!("outboxd_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n"),
        ] {
            assert!(text.contains(sample), "{sample} is missing in\n{text}");
        }
    }

    #[test]
    fn lag_grows_between_two_scrapes_of_one_snapshot() {
        let metrics = Metrics::new();
        let at = |seconds| metrics.render(&Status::example(), START + Duration::from_secs(seconds));
        assert!(at(10).contains("\noutboxd_lag_seconds 10\n"));
        assert!(at(70).contains("\noutboxd_lag_seconds 70\n"));
    }

    #[test]
    fn what_is_unknown_is_absent() {
        let facts = SlotFacts { safe_bytes: None, ..Status::example().slot_facts.unwrap() };
        let unlimited = Metrics::new().render(&Status { slot_facts: Some(facts), ..Status::example() }, START);
        assert!(!unlimited.contains("outboxd_slot_safe_bytes"));
        assert!(unlimited.contains("outboxd_slot_retained_bytes 5000\n"));
        let fresh = Status { slot_facts: None, confirmed: Lsn::ZERO, ..Status::example() };
        let text = Metrics::new().render(&fresh, START);
        for unknown in ["slot_retained", "slot_safe", "slot_wal_status", "lag_bytes", "last_ack_timestamp_seconds"] {
            assert!(!text.contains(&format!("outboxd_{unknown}")), "{unknown} is in\n{text}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_measured() {
        let usage = Usage::read().unwrap();
        assert!(usage.resident_bytes > 1e6 && usage.open_fds >= 3.0 && usage.cpu_seconds >= 0.0);
        let age = unix_seconds(SystemTime::now()) - usage.start_seconds;
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
    }

    #[test]
    fn promtool_finds_nothing_to_say() {
        let Ok(mut promtool) = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
        else {
            return eprintln!("promtool is not installed");
        };
        let text = eventful().render(&Status::example(), START);
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
