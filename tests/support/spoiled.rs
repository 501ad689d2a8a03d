//! Events of which one in a hundred cannot be published, in every way there is, while the relay is killed again and
//! again: exactly these are parked, each once and with its reason, all others arrive in order; when everything is
//! mended, a retry brings all of them.
//!
//! Which events are bad, and behind which others they stand, follows from their numbers, so that what must be parked is
//! known beforehand. Each thousand of events has keys of its own for the bad ones, with few good ones among them: with
//! `park-key` about as many are parked behind a bad one as are bad.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use outboxd::config::Order;
use outboxd::dead_letter::BEHIND;
use outboxd::lsn::Lsn;
use postgres::Row;

use super::oracle::{self, Event, Fact, Truth, Verdict};
use super::reader::Reader;
use super::relay::Relay;
use super::scene::{PARTITIONS, Scene};
use super::{PATIENCE, throughout, within};

/// How a row is bad: its reason, and what is inserted as type, key, payload, headers, time and partition. Of the last
/// one, only the broker can tell.
pub const BAD: [(&str, [&str; 6]); 8] = [
    ("topic", ["'no topic'", "'k'", "'1'", "null", "now()", "null"]),
    ("key", ["current_database()", "null", "'1'", "null", "now()", "null"]),
    ("headers", ["current_database()", "'headers'", "'1'", "'[1]'", "now()", "null"]),
    ("timestamp", ["current_database()", "'timestamp'", "'1'", "null", "now() - interval '2 days'", "null"]),
    ("partition", ["current_database()", "'partition'", "'1'", "null", "now()", "99"]),
    ("too_large", ["current_database()", "'too_large'", "to_jsonb(repeat('x', 70000))", "null", "now()", "null"]),
    ("unknown_topic", ["current_database() || '.nowhere'", "'unknown_topic'", "'1'", "null", "now()", "null"]),
    (
        "refused",
        [
            "current_database()",
            "'refused'",
            "to_jsonb((select string_agg(md5(n::text), '') from generate_series(1, 1500) n))",
            "null",
            "now()",
            "null",
        ],
    ),
];

/// A scene whose outbox has a column for partitions, whose topic takes little and nothing old, and whose relay takes
/// less.
pub fn strict() -> Scene {
    let mut scene = Scene::new();
    scene.database.exec("alter table outbox add column partition int");
    scene.config = scene
        .config
        .without("outbox")
        .add("outbox", "columns = { partition = \"partition\" }")
        .set("limits.event", "64KiB")
        .set("dead_letter.unknown_topic", "park")
        .set("dead_letter.max_rate", 100);
    let settings = [("max.message.bytes", "20000"), ("message.timestamp.before.max.ms", "86400000")];
    scene.kafka.alter_topic(&scene.topic, &settings);
    scene
}

/// The topic of the events that are bad for having an unknown one.
pub fn nowhere(scene: &Scene) -> String {
    format!("{}.nowhere", scene.topic)
}

/// How many keys have good events only.
const GOOD_KEYS: usize = 51;
/// A transaction has 1 to so many rows, mostly few.
const LARGEST: f64 = 1000.0;

/// To what repeats are put down: only a kill may cause them, until all that was on its way by then has arrived again.
const KILL: &str = "kill";
const CALM: &str = "nothing, the last kill being over";
const RETRY: &str = "the retry";

/// One run of it.
pub struct Spoiled {
    /// How many events there are; one in a hundred is bad.
    pub events: usize,
    /// What becomes of those behind a parked one.
    pub order: Order,
    /// How often the relay is killed while it publishes them.
    pub kills: usize,
    /// How many of the bad ones only the broker can see, at most.
    pub refusals: usize,
}

/// An event that was committed.
struct Written {
    id: String,
    /// Of its record, once that can be published.
    key: String,
    /// The reason why it cannot.
    bad: Option<&'static str>,
    committed_by: Lsn,
}

/// The ids of events that are parked, and why.
type Parked<'e> = HashMap<&'e str, &'static str>;

impl Written {
    fn new(row: &Row, committed_by: Lsn) -> Written {
        let kind: &str = row.get(2);
        let bad = BAD.iter().map(|(bad, _)| *bad).find(|bad| *bad == kind);
        Written { id: row.get(0), key: row.get(1), bad, committed_by }
    }

    /// What has no topic or no key is in nobody's way.
    fn has_lane(&self) -> bool {
        !matches!(self.bad, Some("topic" | "key"))
    }
}

impl Spoiled {
    /// Writes, kills, waits, judges, mends, retries and judges again. Answers with a line for people.
    #[track_caller]
    pub fn run(&self) -> String {
        let started = Instant::now();
        let mut scene = self.set_up();
        let mut relay = Relay::start(&scene.config);
        let events = self.write(&scene, &mut relay);
        let parked = self.parked(&events);
        self.assert_parked(&scene, &relay, &events, &parked);

        relay.sigterm();
        assert_eq!(relay.wait_exit(PATIENCE), Some(0), "{}", relay.log());
        scene.reader.disturbed(RETRY);
        mend(&mut scene);
        let mut relay = scene.relay();
        scene.retry_letters();
        let verdict = self.assert_delivered(&scene, &relay, &events, &parked);
        relay.wait_ready();
        let (letters, seconds) = (parked.len(), started.elapsed().as_secs());
        let (order, refused) = (self.order_text(), parked.values().filter(|reason| **reason == "refused").count());
        format!(
            "spoiled, {order}: {letters} parked of {} events, {refused} of them refused by the broker, {} kills, all \
             delivered when mended, {seconds} s: {verdict}",
            self.events, self.kills
        )
    }

    fn set_up(&self) -> Scene {
        let mut scene = strict();
        // A lease that no busy machine loses, and nothing is tried again before it is mended.
        scene.config = scene
            .config
            .set("dead_letter.order", self.order_text())
            .set("dead_letter.backoff.first", "1h")
            .set("postgres.sender_timeout", "30s");
        scene.database.exec(&bad_table());
        let mut reader = Reader::of_ids(&scene.kafka, &[&scene.topic, &nowhere(&scene)]);
        reader.watch_confirmed(&scene.database, scene.config.slot());
        scene.reader = reader;
        scene
    }

    fn order_text(&self) -> &'static str {
        match self.order {
            Order::Skip => "skip",
            Order::ParkKey => "park-key",
        }
    }

    /// A million take longer than what other tests wait for.
    fn patience(&self) -> Duration {
        PATIENCE + Duration::from_micros(500) * u32::try_from(self.events).expect("they can be counted")
    }

    #[track_caller]
    fn wait(&self, what: &str, relay: &Relay, mut condition: impl FnMut() -> bool) {
        let holds = within(self.patience(), || condition().then_some(()));
        assert!(holds.is_some(), "not within {:?}: {what}\n{}", self.patience(), relay.log());
    }

    /// Writes all events, no faster than they can be published, and kills the relay at random moments meanwhile.
    #[track_caller]
    fn write(&self, scene: &Scene, relay: &mut Relay) -> Vec<Written> {
        let seed = fastrand::u64(..);
        eprintln!("spoiled by seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut kills: Vec<usize> = (0..self.kills).map(|_| rng.usize(1..=self.events)).collect();
        kills.sort_unstable_by_key(|at| Reverse(*at));
        let mut session = scene.database.connect();
        let insert = session.prepare(&self.insert()).expect("the statement is right");
        let mut events = Vec::with_capacity(self.events);
        let mut repeats_until = None::<Lsn>;
        while events.len() < self.events {
            let rows = LARGEST.powf(rng.f64()).ceil() as usize;
            let last = (events.len() + rows).min(self.events) - 1;
            let numbers = [events.len(), last].map(|number| number as i64);
            let rows = session.query(&insert, &[&numbers[0], &numbers[1]]).expect("the server takes events");
            let end = session.query_one("select pg_current_wal_insert_lsn()::text", &[]).expect("there is a WAL");
            let end: Lsn = end.get::<_, &str>(0).parse().expect("PostgreSQL prints an LSN");
            events.extend(rows.iter().map(|row| Written::new(row, end)));
            // What is parked is never read, but it is less than a tenth.
            let read = || scene.reader.count() + self.events / 10;
            self.wait("the relay keeps up with the load", relay, || read() >= events.len());
            if repeats_until.take_if(|until| scene.confirmed() >= *until).is_some() {
                scene.reader.disturbed(CALM);
            }
            while kills.pop_if(|at| *at <= events.len()).is_some() {
                let life = Duration::from_millis(rng.u64(0..50));
                repeats_until = Some(kill(scene, relay, life));
            }
        }
        events
    }

    /// Writes the events from one number to another in one transaction. Answers with their ids, their keys, and how
    /// they are bad.
    fn insert(&self) -> String {
        let refused = BAD.len() - 1;
        // One in so many thousands has an event that the broker refuses, the first of its key that is bad.
        let every = (self.events / 1000 / self.refusals.max(1)).max(1);
        format!(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload, headers, created_at, partition)
             select coalesce(bad.aggregate_type, current_database()),
                    case when place = 37 and bad.kind = 'key' then null
                         when place = 37 and bad.kind = 'unknown_topic' then 'nowhere-' || thousand
                         when place = 37 and bad.kind = 'refused' then 'refused-' || thousand
                         when place in (7, 37, 57) then 'spoiled-' || thousand || '-' || hundred / 4
                         when place in (47, 87) then 'refused-' || thousand
                         else 'key-' || n % {GOOD_KEYS} end,
                    coalesce(bad.kind, 'good'), coalesce(bad.payload, to_jsonb(n)), bad.headers,
                    coalesce(bad.created_at, now()), bad.partition
             from generate_series($1::bigint, $2::bigint) as n
             cross join lateral (select n / 1000 as thousand, n % 1000 / 100 as hundred, n % 100 as place) as spot
             left join bad on place = 37 and bad.number = case
                 when hundred = 9 and thousand % {every} = 0 and thousand / {every} < {refusals} then {refused}
                 else (hundred + thousand) % {refused} end
             order by n
             returning id::text, coalesce(aggregate_id, event_type), event_type",
            refusals = self.refusals
        )
    }

    /// What must be parked.
    fn parked<'e>(&self, events: &'e [Written]) -> Parked<'e> {
        let (mut parked, mut closed) = (Parked::new(), HashSet::<&str>::new());
        for event in events {
            let reason = match event.bad {
                // Of these there is no record, for which one could look who is parked before it.
                Some(reason @ ("topic" | "key" | "headers")) => reason,
                Some(_) | None if closed.contains(event.key.as_str()) => BEHIND,
                Some(reason) => reason,
                None => continue,
            };
            parked.insert(event.id.as_str(), reason);
            if self.order == Order::ParkKey && event.has_lane() {
                closed.insert(event.key.as_str());
            }
        }
        parked
    }

    /// Everything is settled: the bad ones and those behind them are parked, and have not arrived; all others have.
    #[track_caller]
    fn assert_parked(&self, scene: &Scene, relay: &Relay, events: &[Written], parked: &Parked<'_>) {
        let published = || events.iter().filter(|event| !parked.contains_key(event.id.as_str()));
        self.wait_arrived(scene, relay, published());
        scene.reader.wait_confirmed(scene.written(), self.patience());
        assert_letters(scene, parked, "pending", 0);
        // A parked event that arrives is a stranger to this truth.
        let truth = truth(published());
        let long = truth.committed.values().filter(|events| events.len() >= 100).count();
        assert!(long >= 50, "too few events to judge order: {long} keys have 100");
        judge(&truth, &scene.reader.history());
    }

    /// Everything has arrived, what has a lane in order where that is kept.
    #[track_caller]
    fn assert_delivered(&self, scene: &Scene, relay: &Relay, events: &[Written], parked: &Parked<'_>) -> Verdict {
        self.wait("all letters are delivered", relay, || count_letters(scene, "delivered") >= parked.len());
        self.wait_arrived(scene, relay, events.iter());
        scene.reader.wait_confirmed(scene.written(), self.patience());
        scene.reader.catch_up(self.patience());
        assert_letters(scene, parked, "delivered", 1);
        let letters = events.iter().filter(|event| parked.contains_key(event.id.as_str()));
        let letters = letters.map(|event| match self.order {
            Order::ParkKey if event.has_lane() => Fact::Shelved(event.id.clone()),
            Order::ParkKey | Order::Skip => Fact::Parked(event.id.clone()),
        });
        let history: Vec<Fact> = letters.chain(scene.reader.history()).collect();
        judge(&truth(events.iter()), &history)
    }

    #[track_caller]
    fn wait_arrived<'e>(&self, scene: &Scene, relay: &Relay, events: impl Iterator<Item = &'e Written>) {
        let ids: HashSet<&str> = events.map(|event| event.id.as_str()).collect();
        let all = scene.reader.wait_all(&ids, self.patience());
        assert!(all, "of {} events, not all have arrived\n{}", ids.len(), relay.log());
    }
}

/// The ways of being bad as a table, but for the keys.
fn bad_table() -> String {
    let rows = BAD.iter().enumerate().map(|(number, (kind, columns))| {
        let [aggregate_type, _, payload, headers, created_at, partition] = columns;
        format!("({number}, '{kind}', {aggregate_type}, {payload}, {headers}, {created_at}, {partition})")
    });
    format!(
        "create table bad as
         select number, kind, aggregate_type::text, payload::jsonb, headers::jsonb, created_at, partition::int
         from (values {}) as bad (number, kind, aggregate_type, payload, headers, created_at, partition)",
        rows.collect::<Vec<_>>().join(", ")
    )
}

/// Kills the relay when it has lived a little longer, and starts another one. Answers with the position behind all that
/// the dead one may have published.
#[track_caller]
fn kill(scene: &Scene, relay: &mut Relay, life: Duration) -> Lsn {
    throughout("the relay lives", life, || relay.is_running());
    scene.reader.disturbed(KILL);
    relay.sigkill();
    *relay = Relay::start(&scene.config);
    scene.written()
}

/// Topics, limits and routes are mended: what has no key gets one, what has no topic goes to another, what has headers
/// or a partition that nobody understands does without.
fn mend(scene: &mut Scene) {
    scene.kafka.create_topic(&nowhere(scene), PARTITIONS);
    scene.kafka.alter_topic(&scene.topic, &[]);
    let topic =
        format!("match = {{ event_type = \"topic\" }}\ntopic = \"{}\"\nkey = \"{{aggregate_id}}\"", scene.topic);
    scene.config = scene
        .config
        .clone()
        .without("outbox")
        .add("outbox", "columns = { headers = \"\" }")
        .without("route")
        .add("route", &topic)
        .add("route", "match = { event_type = \"key\" }\nkey = \"{event_type}\"")
        .add("route", "key = \"{aggregate_id}\"")
        .set("limits.event", "1MiB")
        .set("dead_letter.backoff.first", "1s");
}

fn truth<'e>(events: impl Iterator<Item = &'e Written>) -> Truth {
    let mut truth = Truth::default();
    for Written { id, key, committed_by, .. } in events {
        let event = Event { id: id.clone(), committed_by: Some(*committed_by) };
        truth.committed.entry(key.clone()).or_default().push(event);
    }
    truth
}

/// Fails the test unless every promise was kept, and nothing was repeated but for a kill.
#[track_caller]
fn judge(truth: &Truth, history: &[Fact]) -> Verdict {
    let verdict = oracle::judge(truth, history);
    eprintln!("{verdict}");
    verdict.assert_at_least_once();
    assert!(verdict.duplicates_by_cause.keys().all(|cause| cause == KILL), "{verdict}");
    assert!(verdict.samples > 0, "no confirmed position was held against the events");
    verdict
}

#[track_caller]
fn count_letters(scene: &Scene, state: &str) -> usize {
    let slot = scene.config.slot();
    let sql = format!("select count(*) from outboxd.dead_letter where slot = '{slot}' and state = '{state}'");
    scene.database.ask(&sql).expect("they are counted").parse().expect("a count is a number")
}

/// The letters are those of these events, one of each, with these reasons, and were tried so often since they were
/// parked.
#[track_caller]
fn assert_letters(scene: &Scene, parked: &Parked<'_>, state: &str, tries: i32) {
    let mut missing = parked.clone();
    for letter in scene.dead_letters() {
        let event = letter.event.as_deref().expect("every event has an id");
        let Some(reason) = missing.remove(event) else {
            panic!("parked twice, or although nothing is wrong with it: {letter:#?}")
        };
        let attempts = i32::from(reason != BEHIND) + tries;
        let found = (letter.reason.as_str(), letter.state.as_str(), letter.attempts);
        assert_eq!(found, (reason, state, attempts), "{letter:#?}");
    }
    assert!(missing.is_empty(), "not parked: {missing:#?}");
}
