//! A consumer that reads topics from their beginning all along, so that nothing which was ever published is missed.
//!
//! It belongs to no group and takes every partition of every topic it was told of, as they come to exist. Beside the
//! records it keeps the confirmed positions that were sampled on the server, and the faults that struck, each with what
//! every partition held by then: in the history that the oracle judges they stand behind exactly these records, whenever
//! those were read.
//!
//! Of one broker, every partition is asked for its end: a sample stands behind what each one held at its first answer after
//! the sample, however long Kafka was away. So whatever arrived between the sample and that answer is forgiven, a few
//! milliseconds.
//!
//! In a cluster nobody can be asked: a broker that leads no more does not know it at once, be it stopped, paused and woken, or only slow
//! to hear of it, and says where the partition ended for it. There every record carries the time at which it was appended,
//! by the one clock that all processes here share, and what was appended after a sample was not there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::{Peekable, from_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use outboxd::lsn::Lsn;
use postgres::Client;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedHeaders, Header, Headers, Message};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, Timestamp, TopicPartitionList};

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
    /// Whoever has set it.
    pub timestamp_ms: Option<i64>,
    /// When the broker appended it, in clusters.
    pub appended_ms: Option<i64>,
}

impl Seen {
    /// A record as a consumer gives it.
    pub fn of(message: &impl Message<Headers = BorrowedHeaders>) -> Seen {
        let header = |header: Header<'_, &[u8]>| (header.key.to_string(), header.value.map(<[u8]>::to_vec));
        Seen {
            topic: message.topic().to_string(),
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: message.headers().map(|headers| headers.iter().map(header).collect()).unwrap_or_default(),
            timestamp_ms: message.timestamp().to_millis(),
            appended_ms: match message.timestamp() {
                Timestamp::LogAppendTime(ms) => Some(ms),
                Timestamp::CreateTime(_) | Timestamp::NotAvailable => None,
            },
        }
    }

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

    /// What `limits.event` bounds.
    pub fn bytes(&self) -> usize {
        let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + length(value)).sum();
        self.topic.len() + length(&self.key) + length(&self.value) + headers
    }

    /// True when it was appended by then.
    fn was_there_at(&self, time_ms: i64) -> bool {
        self.appended_ms.expect("in a cluster, records carry the time of their append") <= time_ms
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

/// A sampled position or a fault, and what was there by then.
struct Cut {
    fact: Fact,
    behind: Behind,
}

/// What stands before a cut.
enum Behind {
    /// All that lies below these ends.
    Ends(Ends),
    /// All that was appended by then, in milliseconds since 1970.
    Time(i64),
}

#[derive(Default)]
struct Shared {
    shelf: Mutex<Shelf>,
    grown: Condvar,
    over: AtomicBool,
}

/// What is kept of a record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Everything,
    /// Its place, its key and its event's id.
    Id,
}

/// The reading thread's handle; reading ends when it is dropped.
pub struct Reader {
    shared: Arc<Shared>,
    topics: Vec<String>,
    client: ClientConfig,
    /// For questions, which must not wait until records are read.
    asker: BaseConsumer,
    /// Records carry the time of their append.
    timed: bool,
    /// The slot's confirmed position is sampled.
    watches: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Reader {
    /// Starts to read; the topics may be created later.
    pub fn start(kafka: &Kafka, topics: &[&str]) -> Reader {
        Reader::keeping(Kept::Everything, kafka, topics)
    }

    /// The same for very many records, of which place, key and event id are kept. Not for those of a load, whose values
    /// are judged.
    pub fn of_ids(kafka: &Kafka, topics: &[&str]) -> Reader {
        Reader::keeping(Kept::Id, kafka, topics)
    }

    fn keeping(kept: Kept, kafka: &Kafka, topics: &[&str]) -> Reader {
        let mut client = kafka.client();
        client.set("group.id", "harness").set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        client.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "20");
        client.set("topic.metadata.refresh.interval.ms", "500").set("reconnect.backoff.max.ms", "500");
        let topics: Vec<String> = topics.iter().map(|topic| topic.to_string()).collect();
        let shared = Arc::<Shared>::default();
        let thread = {
            let (client, shared, topics) = (client.clone(), shared.clone(), topics.clone());
            std::thread::spawn(move || read(kept, &client, &topics, &shared))
        };
        let asker = client.create().expect("a consumer starts");
        let timed = kafka.node_count() > 1;
        Reader { shared, topics, client, asker, timed, watches: false, threads: vec![thread] }
    }

    /// Samples the slot's confirmed position from now on, whenever it has moved.
    pub fn watch_confirmed(&mut self, database: &Database, slot: &str) {
        let (server, name, slot) = (database.server().clone(), database.name().to_string(), slot.to_string());
        let (shared, topics) = (self.shared.clone(), self.topics.clone());
        let consumer: BaseConsumer = self.client.create().expect("a consumer starts");
        let timed = self.timed;
        self.watches = true;
        self.threads.push(std::thread::spawn(move || {
            let mut session = None;
            let mut last = None;
            let mut unplaced = Vec::new();
            while !shared.over.load(Ordering::Relaxed) {
                let sample = confirmed(&mut session, &server, &name, &slot);
                if let Some(lsn) = sample.filter(|_| sample != last) {
                    last = sample;
                    let fact = Fact::Confirmed(lsn);
                    if timed {
                        shared.shelf.lock().unwrap().cuts.push(Cut { fact, behind: Behind::Time(now_ms()) });
                    } else {
                        unplaced.push((fact, Ends::new()));
                    }
                }
                // The ends are read after the position: whatever it rests on is below them.
                let placed = read_ends(&consumer, &topics, &mut unplaced);
                let cuts = placed.into_iter().map(|(fact, ends)| Cut { fact, behind: Behind::Ends(ends) });
                shared.shelf.lock().unwrap().cuts.extend(cuts);
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
        let fact = Fact::Disturbed(fault.to_string());
        if self.timed {
            return self.shared.shelf.lock().unwrap().cuts.push(Cut { fact, behind: Behind::Time(now_ms()) });
        }
        let ends = super::within(ENDS_WITHIN, || ends_of(&self.asker, &self.topics));
        let mut shelf = self.shared.shelf.lock().unwrap();
        let ends = ends.unwrap_or_else(|| shelf.reached.clone());
        shelf.cuts.push(Cut { fact, behind: Behind::Ends(ends) });
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
        super::eventually("reading to the end", timeout, || self.shared.shelf.lock().unwrap().has_read(&ends));
    }

    /// Waits until a sampled confirmed position of at least `lsn` has its place in the history.
    #[track_caller]
    pub fn wait_confirmed(&self, lsn: Lsn, timeout: Duration) {
        let confirms = |cut: &Cut| matches!(cut.fact, Fact::Confirmed(confirmed) if confirmed >= lsn);
        super::eventually(&format!("{lsn} is confirmed"), timeout, || {
            let shelf = self.shared.shelf.lock().unwrap();
            shelf.cuts.iter().any(|cut| confirms(cut) && shelf.has_reached(cut))
        });
        if self.timed {
            self.catch_up(timeout);
        }
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
        for Cut { fact, behind } in shelf.cuts.iter().filter(|cut| shelf.has_reached(cut)) {
            match behind {
                Behind::Ends(ends) => {
                    for ((topic, partition), end) in ends {
                        let Some(records) = partitions.get_mut(&(topic.as_str(), *partition)) else { continue };
                        history.extend(from_fn(|| records.next_if(|seen| seen.offset < *end)).map(Seen::fact));
                    }
                }
                Behind::Time(time) => {
                    for records in partitions.values_mut() {
                        history.extend(from_fn(|| records.next_if(|seen| seen.was_there_at(*time))).map(Seen::fact));
                    }
                }
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
    /// True when all that stands before it was read. By time that is known only of a reader that has caught up.
    fn has_reached(&self, cut: &Cut) -> bool {
        match &cut.behind {
            Behind::Ends(ends) => self.has_read(ends),
            Behind::Time(_) => true,
        }
    }

    fn has_read(&self, ends: &Ends) -> bool {
        ends.iter().all(|(place, end)| *end == 0 || self.reached.get(place).is_some_and(|reached| reached >= end))
    }
}

/// How often a consumer is looked at that may have stopped for good.
const STUCK: Duration = Duration::from_secs(5);

/// What a consumer had read and what there was to read, when it was last looked at.
struct Look {
    at: Instant,
    reached: Ends,
    /// `None` when nobody answered.
    ends: Option<Ends>,
}

impl Look {
    fn now(consumer: &BaseConsumer, topics: &[String], shared: &Shared) -> Look {
        let ends = ends_of(consumer, topics);
        Look { at: Instant::now(), reached: shared.shelf.lock().unwrap().reached.clone(), ends }
    }

    /// True when something that was there at this look is still not read at the next, and nothing else of its partition; or
    /// when nobody has answered either time: there may be a broker all the same.
    fn is_stuck(&self, next: &Look) -> bool {
        let Some(ends) = &self.ends else { return next.ends.is_none() };
        ends.iter().any(|(place, end)| {
            let [before, now] = [self, next].map(|look| look.reached.get(place).copied().unwrap_or(0));
            before == now && now < *end
        })
    }
}

fn read(kept: Kept, client: &ClientConfig, topics: &[String], shared: &Shared) {
    let start = || client.create::<BaseConsumer>().expect("a consumer starts");
    let mut consumer = start();
    let mut assigned = 0;
    let mut looked = None::<Instant>;
    let mut look = Look { at: Instant::now(), reached: Ends::new(), ends: Some(Ends::new()) };
    while !shared.over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() > Duration::from_millis(if assigned == 0 { 50 } else { 500 })) {
            assigned = assign(&consumer, topics, assigned, &look.reached);
            looked = Some(Instant::now());
        }
        // A librdkafka consumer does not come through every change of leaders: in an hour of faults one stopped for good.
        if look.at.elapsed() > STUCK {
            let next = Look::now(&consumer, topics, shared);
            if look.is_stuck(&next) {
                super::announce(&format!("a reader of {} has stopped: another one goes on", topics.join(", ")));
                (consumer, assigned) = (start(), 0);
            }
            look = next;
        }
        // Errors are outages, which tests cause on purpose: the consumer heals by itself.
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            let mut seen = Seen::of(&message);
            if kept == Kept::Id {
                seen.headers.retain(|(name, _)| name == "id");
                seen.value = None;
            }
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

/// Takes every partition there is, keeping the place in those it has, or that another one had; returns their number.
fn assign(consumer: &BaseConsumer, topics: &[String], before: usize, reached: &Ends) -> usize {
    let Some(partitions) = partitions_of(consumer, topics) else { return before };
    if partitions.len() <= before {
        return before;
    }
    let held = consumer.assignment().expect("an assignment can be read");
    let mut fresh = TopicPartitionList::new();
    for (topic, partition) in &partitions {
        if held.find_partition(topic, *partition).is_none() {
            let reached = reached.get(&(topic.clone(), *partition));
            let offset = reached.map_or(Offset::Beginning, |reached| Offset::Offset(*reached));
            fresh.add_partition_offset(topic, *partition, offset).expect("the offset is valid");
        }
    }
    consumer.incremental_assign(&fresh).expect("partitions can be assigned");
    partitions.len()
}

/// The partitions there are: none of a topic that does not exist, `None` while the broker cannot tell.
fn partitions_of(consumer: &BaseConsumer, topics: &[String]) -> Option<Vec<Place>> {
    let mut partitions = Vec::new();
    for topic in topics {
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(1)).ok()?;
        for found in metadata.topics() {
            match found.error().map(RDKafkaErrorCode::from) {
                None => partitions.extend(found.partitions().iter().map(|p| (topic.clone(), p.id()))),
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
    places.into_iter().map(|place| end_of(consumer, &place).map(|end| (place, end))).collect()
}

/// Reads the ends that samples still lack, as far as they can be had now; those that have all of them leave.
fn read_ends(consumer: &BaseConsumer, topics: &[String], samples: &mut Vec<(Fact, Ends)>) -> Vec<(Fact, Ends)> {
    if samples.is_empty() {
        return Vec::new();
    }
    let Some(places) = partitions_of(consumer, topics) else { return Vec::new() };
    for place in &places {
        let mut lacking = samples.iter_mut().filter(|(_, ends)| !ends.contains_key(place)).peekable();
        if lacking.peek().is_some()
            && let Some(end) = end_of(consumer, place)
        {
            lacking.for_each(|(_, ends)| ends.extend([(place.clone(), end)]));
        }
    }
    samples.extract_if(.., |(_, ends)| places.iter().all(|place| ends.contains_key(place))).collect()
}

fn end_of(consumer: &BaseConsumer, (topic, partition): &Place) -> Option<i64> {
    consumer.fetch_watermarks(topic, *partition, Duration::from_secs(1)).ok().map(|(_, end)| end)
}

/// The clock that the brokers look at, too.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
    i64::try_from(since.as_millis()).expect("it is not that late")
}
