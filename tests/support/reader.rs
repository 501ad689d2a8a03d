//! A consumer that reads topics from their beginning all along, so that nothing which was ever published is missed.
//!
//! It belongs to no group and takes every partition of every topic it was told of, as they come to exist. Beside the
//! records it keeps the confirmed positions that were sampled on the server, and the faults that struck, each with what
//! every partition held by then: in the history that the oracle judges they stand behind exactly these records, whenever
//! those were read.
//!
//! A sample keeps its place however long Kafka is away: it stands behind what each partition held at its first answer
//! after the sample. So whatever reached a partition between the sample and that answer is forgiven: the few milliseconds
//! of a question while Kafka is well, and after an outage, in which nothing arrives, the moment until we were answered.
//! A broker that leads no more does not know it at once, be it stopped, woken from a pause, or only slow to hear of it, and
//! says where the partition ended for it: an answer counts when the same broker is said to lead two seconds later. Otherwise the next
//! leader is asked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::{Peekable, from_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outboxd::lsn::Lsn;
use postgres::Client;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::kafka::Kafka;
use super::oracle::{Fact, Record};
use super::postgres::{Database, Postgres};
use super::workload;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Seen {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: Option<i64>,
}

impl Seen {
    /// The key as text; empty without one.
    pub fn key(&self) -> &str {
        self.key.as_deref().map_or("", |key| std::str::from_utf8(key).expect("the key is text"))
    }

    /// The value as text; empty without one.
    pub fn value(&self) -> &str {
        self.value.as_deref().map_or("", |value| std::str::from_utf8(value).expect("the value is text"))
    }

    /// A header's value as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        Some(std::str::from_utf8(value.as_deref()?).expect("the header is text"))
    }

    /// The event id, from its header; empty without one.
    pub fn id(&self) -> &str {
        self.header("id").unwrap_or_default()
    }

    /// What the oracle is told of it.
    pub fn fact(&self) -> Fact {
        let place = (self.topic.clone(), self.partition);
        let id = match workload::is_garbled(self.id(), self.value.as_deref()) {
            true => format!("{} with a value that is not its own", self.id()),
            false => self.id().to_string(),
        };
        Fact::Arrived(Record { place, key: self.key().to_string(), id })
    }
}

/// After this time every broker of a cluster knows who leads.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
/// How long a fault may wait until Kafka says what it has by then.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A topic and one of its partitions.
type Place = (String, i32);
/// Where a partition ends: everything below the offset is in the topic.
type Ends = HashMap<Place, i64>;

#[derive(Default)]
struct Shelf {
    seen: Vec<Seen>,
    /// What else happened.
    cuts: Vec<Cut>,
    /// The next offset to be read.
    reached: Ends,
}

/// A confirmed position that has no place in the history yet.
struct Sample {
    lsn: Lsn,
    answers: HashMap<Place, Answer>,
}

/// What a broker said of a partition.
#[derive(Clone, Copy)]
struct Answer {
    end: i64,
    leader: i32,
    at: Instant,
}

/// A partition, and who is said to lead it.
struct Led {
    place: Place,
    leader: i32,
}

/// A sampled position or a fault, and where each partition ended by then.
struct Cut {
    fact: Fact,
    ends: Ends,
    /// When these were asked for.
    at: Instant,
}

#[derive(Default)]
struct Shared {
    shelf: Mutex<Shelf>,
    grown: Condvar,
    over: AtomicBool,
}

/// The reading thread's handle; reading ends when it is dropped.
pub struct Reader {
    shared: Arc<Shared>,
    topics: Vec<String>,
    client: ClientConfig,
    /// For questions, which must not wait until records are read.
    asker: BaseConsumer,
    /// After which time a leader is known by all.
    known_within: Duration,
    /// The slot's confirmed position is sampled.
    watches: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Reader {
    /// Starts to read; the topics may be created later.
    pub fn start(kafka: &Kafka, topics: &[&str]) -> Reader {
        let mut client = kafka.client();
        client.set("group.id", "harness").set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        client.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "20");
        client.set("topic.metadata.refresh.interval.ms", "500").set("reconnect.backoff.max.ms", "500");
        let topics: Vec<String> = topics.iter().map(|topic| topic.to_string()).collect();
        let shared = Arc::<Shared>::default();
        let consumer: BaseConsumer = client.create().expect("a consumer starts");
        let thread = {
            let (shared, topics) = (shared.clone(), topics.clone());
            std::thread::spawn(move || read(&consumer, &topics, &shared))
        };
        let asker = client.create().expect("a consumer starts");
        // Where there is but one broker, nobody else can lead.
        let known_within = if kafka.node_count() > 1 { KNOWN_WITHIN } else { Duration::ZERO };
        Reader { shared, topics, client, asker, known_within, watches: false, threads: vec![thread] }
    }

    /// Samples the slot's confirmed position from now on, whenever it has moved.
    pub fn watch_confirmed(&mut self, database: &Database, slot: &str) {
        let (server, name, slot) = (database.server().clone(), database.name().to_string(), slot.to_string());
        let (shared, topics) = (self.shared.clone(), self.topics.clone());
        let consumer: BaseConsumer = self.client.create().expect("a consumer starts");
        let known_within = self.known_within;
        self.watches = true;
        self.threads.push(std::thread::spawn(move || {
            let mut session = None;
            let mut last = None;
            let mut unplaced = Vec::new();
            while !shared.over.load(Ordering::Relaxed) {
                let sample = confirmed(&mut session, &server, &name, &slot);
                if let Some(lsn) = sample.filter(|_| sample != last) {
                    last = sample;
                    unplaced.push(Sample { lsn, answers: HashMap::new() });
                }
                // The ends are read after the position: whatever it rests on is below them.
                let placed = place_samples(&consumer, &topics, &mut unplaced, known_within);
                shared.shelf.lock().unwrap().cuts.extend(placed);
                std::thread::sleep(Duration::from_millis(20));
            }
        }));
    }

    /// True when the slot's confirmed position is sampled.
    pub fn watches(&self) -> bool {
        self.watches
    }

    /// Whatever is repeated from here on is this fault's, which strikes now: what Kafka has by now is not, read or not.
    pub fn disturbed(&self, fault: &str) {
        let ends = super::within(ENDS_WITHIN, || ends_of(&self.asker, &self.topics));
        let mut shelf = self.shared.shelf.lock().unwrap();
        let ends = ends.unwrap_or_else(|| shelf.reached.clone());
        shelf.cuts.push(Cut { fact: Fact::Disturbed(fault.to_string()), ends, at: Instant::now() });
    }

    /// How many records were read so far.
    pub fn count(&self) -> usize {
        self.shared.shelf.lock().unwrap().seen.len()
    }

    /// A copy of what was read so far, in reading order.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.shelf.lock().unwrap().seen.clone()
    }

    /// Waits until all these event ids were read; false when that took too long.
    pub fn wait_all(&self, ids: &HashSet<&str>, timeout: Duration) -> bool {
        let (mut missing, mut looked_at) = (ids.clone(), 0);
        let all = super::within(timeout, || {
            let shelf = self.shared.shelf.lock().unwrap();
            for seen in &shelf.seen[looked_at..] {
                missing.remove(seen.id());
            }
            looked_at = shelf.seen.len();
            missing.is_empty().then_some(())
        });
        all.is_some()
    }

    /// Waits until at least `count` records were read, and returns them all.
    #[track_caller]
    pub fn wait_count(&self, count: usize, timeout: Duration) -> Vec<Seen> {
        self.wait_for(&format!("{count} records"), timeout, |seen| seen.len() >= count)
    }

    /// Waits until what was read satisfies `condition`, and returns it.
    #[track_caller]
    pub fn wait_for(&self, what: &str, timeout: Duration, condition: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let deadline = Instant::now() + timeout;
        let mut shelf = self.shared.shelf.lock().unwrap();
        while !condition(&shelf.seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not read within {timeout:?}: {what}; {} records were", shelf.seen.len());
            shelf = self.shared.grown.wait_timeout(shelf, left).unwrap().0;
        }
        shelf.seen.clone()
    }

    /// Waits until the reader has caught up with the topics as they are now.
    #[track_caller]
    pub fn catch_up(&self, timeout: Duration) {
        let ends = super::within(timeout, || ends_of(&self.asker, &self.topics)).expect("the broker answers");
        super::eventually("reading to the end", timeout, || self.shared.shelf.lock().unwrap().has_reached(&ends));
    }

    /// Waits until a sampled confirmed position of at least `lsn` has its place in the history.
    #[track_caller]
    pub fn wait_confirmed(&self, lsn: Lsn, timeout: Duration) {
        let confirms = |cut: &Cut| matches!(cut.fact, Fact::Confirmed(confirmed) if confirmed >= lsn);
        super::eventually(&format!("{lsn} is confirmed"), timeout, || {
            let shelf = self.shared.shelf.lock().unwrap();
            shelf.cuts.iter().any(|cut| confirms(cut) && shelf.has_reached(&cut.ends))
        });
    }

    /// What the oracle judges: records, each partition's in their order, and between them faults and sampled positions,
    /// each behind all that was published by then.
    pub fn history(&self) -> Vec<Fact> {
        let shelf = self.shared.shelf.lock().unwrap();
        let mut partitions = BTreeMap::<(&str, i32), Peekable<_>>::new();
        for (index, seen) in shelf.seen.iter().enumerate() {
            partitions.entry((&seen.topic, seen.partition)).or_insert_with(|| {
                let of = move |other: &&Seen| other.partition == seen.partition && other.topic == seen.topic;
                shelf.seen[index..].iter().filter(of).peekable()
            });
        }
        let mut history = Vec::with_capacity(shelf.seen.len() + shelf.cuts.len());
        // A sample whose records are still to be read comes too late to be judged.
        let mut cuts: Vec<&Cut> = shelf.cuts.iter().filter(|cut| shelf.has_reached(&cut.ends)).collect();
        // A sample is placed when its answers count, which may be after the next fault.
        cuts.sort_by_key(|cut| cut.at);
        for Cut { fact, ends, .. } in cuts {
            for ((topic, partition), end) in ends {
                let Some(records) = partitions.get_mut(&(topic.as_str(), *partition)) else { continue };
                history.extend(from_fn(|| records.next_if(|seen| seen.offset < *end)).map(Seen::fact));
            }
            history.push(fact.clone());
        }
        history.extend(partitions.into_values().flatten().map(Seen::fact));
        history
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a reading thread failed");
            }
        }
    }
}

impl Shelf {
    fn has_reached(&self, ends: &Ends) -> bool {
        ends.iter().all(|(place, end)| *end == 0 || self.reached.get(place).is_some_and(|reached| reached >= end))
    }
}

fn read(consumer: &BaseConsumer, topics: &[String], shared: &Shared) {
    let mut assigned = 0;
    let mut looked = None::<Instant>;
    while !shared.over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() > Duration::from_millis(if assigned == 0 { 50 } else { 500 })) {
            assigned = assign(consumer, topics, assigned);
            looked = Some(Instant::now());
        }
        // Errors are outages, which tests cause on purpose: the consumer heals by itself.
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            let headers = message.headers().map(|headers| {
                let header = headers.iter().map(|h| (h.key.to_string(), h.value.map(<[u8]>::to_vec)));
                header.collect()
            });
            let seen = Seen {
                topic: message.topic().to_string(),
                partition: message.partition(),
                offset: message.offset(),
                key: message.key().map(<[u8]>::to_vec),
                value: message.payload().map(<[u8]>::to_vec),
                headers: headers.unwrap_or_default(),
                timestamp_ms: message.timestamp().to_millis(),
            };
            let mut shelf = shared.shelf.lock().unwrap();
            shelf.reached.insert((seen.topic.clone(), seen.partition), seen.offset + 1);
            shelf.seen.push(seen);
            shared.grown.notify_all();
        }
    }
}

/// The slot's confirmed position; `None` while there is no server or no slot.
fn confirmed(session: &mut Option<Client>, server: &Postgres, database: &str, slot: &str) -> Option<Lsn> {
    if session.is_none() {
        *session = server.try_connect(database).ok();
    }
    let sql = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1";
    match session.as_mut()?.query_opt(sql, &[&slot]) {
        Ok(row) => row?.get::<_, Option<String>>(0)?.parse().ok(),
        Err(_) => {
            *session = None;
            None
        }
    }
}

/// Takes every partition there is, keeping the place in those it has; returns their number.
fn assign(consumer: &BaseConsumer, topics: &[String], before: usize) -> usize {
    let Some(partitions) = partitions_of(consumer, topics) else { return before };
    if partitions.len() <= before {
        return before;
    }
    let held = consumer.assignment().expect("an assignment can be read");
    let mut fresh = TopicPartitionList::new();
    for Led { place: (topic, partition), .. } in &partitions {
        if held.find_partition(topic, *partition).is_none() {
            fresh.add_partition_offset(topic, *partition, Offset::Beginning).expect("the offset is valid");
        }
    }
    consumer.incremental_assign(&fresh).expect("partitions can be assigned");
    partitions.len()
}

/// The partitions there are: none of a topic that does not exist, `None` while the broker cannot tell.
fn partitions_of(consumer: &BaseConsumer, topics: &[String]) -> Option<Vec<Led>> {
    let mut partitions = Vec::new();
    for topic in topics {
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(1)).ok()?;
        for found in metadata.topics() {
            match found.error().map(RDKafkaErrorCode::from) {
                None => {
                    let led = found.partitions().iter();
                    partitions.extend(led.map(|p| Led { place: (topic.clone(), p.id()), leader: p.leader() }));
                }
                Some(RDKafkaErrorCode::UnknownTopicOrPartition) => {}
                Some(_) => return None,
            }
        }
    }
    Some(partitions)
}

/// Where the partitions end now; `None` while the broker cannot tell.
fn ends_of(consumer: &BaseConsumer, topics: &[String]) -> Option<Ends> {
    let places = partitions_of(consumer, topics)?;
    places.into_iter().map(|Led { place, .. }| end_of(consumer, &place).map(|end| (place, end))).collect()
}

/// Reads the ends that samples still lack, as far as they can be had now; those whose answers all count leave.
fn place_samples(
    consumer: &BaseConsumer,
    topics: &[String],
    samples: &mut Vec<Sample>,
    known_within: Duration,
) -> Vec<Cut> {
    if samples.is_empty() {
        return Vec::new();
    }
    let Some(partitions) = partitions_of(consumer, topics) else { return Vec::new() };
    let now = Instant::now();
    // Who leads now is known by all only of an answer that is this old.
    let is_old = |answer: &Answer| now.duration_since(answer.at) >= known_within;
    for Led { place, leader } in &partitions {
        let is_wrong = |answer: &Answer| is_old(answer) && answer.leader != *leader;
        let mut lacking = samples.iter_mut().filter(|sample| sample.answers.get(place).is_none_or(is_wrong)).peekable();
        if lacking.peek().is_some()
            && let Some(end) = end_of(consumer, place)
        {
            let answer = Answer { end, leader: *leader, at: now };
            for sample in lacking {
                sample.answers.insert(place.clone(), answer);
            }
        }
    }
    let counts = |sample: &Sample, led: &Led| {
        sample.answers.get(&led.place).is_some_and(|answer| is_old(answer) && answer.leader == led.leader)
    };
    let placed = samples.extract_if(.., |sample| partitions.iter().all(|led| counts(sample, led)));
    let cut = |Sample { lsn, answers }: Sample| Cut {
        fact: Fact::Confirmed(lsn),
        at: answers.values().map(|answer| answer.at).max().unwrap_or(now),
        ends: answers.into_iter().map(|(place, answer)| (place, answer.end)).collect(),
    };
    placed.map(cut).collect()
}

fn end_of(consumer: &BaseConsumer, (topic, partition): &Place) -> Option<i64> {
    consumer.fetch_watermarks(topic, *partition, Duration::from_secs(1)).ok().map(|(_, end)| end)
}
