//! What most tests need: a database with an outbox, a topic, a reader on it, and the configuration of a relay.

use std::collections::HashSet;
use std::sync::Arc;

use outboxd::lsn::Lsn;

use super::kafka::Kafka;
use super::oracle::{self, Fact, Truth, Verdict};
use super::postgres::{Database, Postgres};
use super::proxy::Proxy;
use super::reader::Reader;
use super::relay::{Config, Relay};
use super::workload::Workload;
use super::{PATIENCE, eventually};

/// The partitions of a scene's topic: enough that order between keys is not kept by accident.
pub const PARTITIONS: i32 = 6;

/// The name of a relay that runs elsewhere, for all that this machine can tell.
pub const ELSEWHERE: &str = "elsewhere/7/1/another-boot/1";

/// One test's world. Change `config` before the first relay starts.
pub struct Scene {
    /// Reads the topic all along.
    pub reader: Reader,
    /// The relay's configuration.
    pub config: Config,
    /// `outbox.event.<aggregate_type>`, where the default route publishes.
    pub topic: String,
    /// The aggregate type of this test's rows.
    pub aggregate_type: String,
    /// Prepared by `outboxd init`.
    pub database: Database,
    /// Where the database is.
    pub postgres: Arc<Postgres>,
    /// Where the topic is.
    pub kafka: Arc<Kafka>,
}

/// A dead letter, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its number, by which people name it.
    pub id: i64,
    /// The event's id, where it has one.
    pub event: Option<String>,
    /// `pending`, `retrying`, `delivered`, `failed` or `discarded`.
    pub state: String,
    /// Why it was last rejected, in a word.
    pub reason: String,
    /// Why it was last rejected, in a sentence.
    pub message: String,
    /// How often it was tried.
    pub attempts: i32,
}

impl Scene {
    /// On the shared servers, for tests that leave them alone.
    pub fn new() -> Scene {
        Scene::on(&Postgres::shared(), &Kafka::shared())
    }

    /// On these servers: `Scene::on(&Postgres::private(), &Kafka::shared())`.
    pub fn on(postgres: &Arc<Postgres>, kafka: &Arc<Kafka>) -> Scene {
        let scene = Scene::bare(postgres, kafka);
        scene.config.run(&["init"]).assert_success();
        scene.kafka.create_topic(&scene.topic, PARTITIONS);
        scene
    }

    /// On the shared servers, with outbox tables of the test's own: `ddl` makes them, each block of `[[outbox]]` maps one.
    pub fn with_outboxes(ddl: &str, blocks: &[&str]) -> Scene {
        let mut scene = Scene::bare(&Postgres::shared(), &Kafka::shared());
        scene.database.exec(ddl);
        scene.config = blocks.iter().fold(scene.config, |config, block| config.add("outbox", block));
        scene.config.run(&["init"]).assert_success();
        scene.kafka.create_topic(&scene.topic, PARTITIONS);
        scene
    }

    /// Without `outboxd init` and without the topic: a database and a configuration, nothing else.
    pub fn bare(postgres: &Arc<Postgres>, kafka: &Arc<Kafka>) -> Scene {
        let database = postgres.database();
        let config = Config::new(&database, kafka);
        let aggregate_type = database.name().to_string();
        let topic = format!("outbox.event.{aggregate_type}");
        let mut reader = Reader::start(kafka, &[&topic]);
        reader.watch_confirmed(&database, config.slot());
        Scene { reader, config, topic, aggregate_type, database, postgres: postgres.clone(), kafka: kafka.clone() }
    }

    /// Starts a relay and waits until it is ready.
    #[track_caller]
    pub fn relay(&self) -> Relay {
        let mut relay = Relay::start(&self.config);
        relay.wait_ready();
        relay
    }

    /// The database's URL, by way of a proxy before its server.
    pub fn url_through(&self, proxy: &Proxy) -> String {
        self.database.url_through(proxy)
    }

    /// Whoever leads seems to run on another host, so that nobody here can see whether it is dead.
    #[track_caller]
    pub fn move_leader_elsewhere(&self) {
        let sql = format!("update outboxd.position set leader = '{ELSEWHERE}', left_cleanly = false");
        self.database.exec(&sql);
    }

    /// The usual load on this scene's outbox.
    pub fn workload(&self) -> Workload {
        Workload::new(&self.aggregate_type)
    }

    /// Writes one committed event with this JSON payload, and returns its id.
    #[track_caller]
    pub fn write(&self, aggregate_id: &str, payload: &str) -> String {
        let sql = "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload) values
                   ('{type}', '{id}', 'written', $json${payload}$json$) returning id";
        let sql = sql.replace("{type}", &self.aggregate_type).replace("{id}", aggregate_id);
        self.database.ask(&sql.replace("{payload}", payload)).expect("the row has an id")
    }

    /// Writes events until the relay's producer has been answered in every partition: before that, one record of each is under
    /// way at most. Answers with how many.
    #[track_caller]
    pub fn acquaint(&self, relay: &Relay) -> usize {
        const EVENTS: usize = 8 * PARTITIONS as usize;
        let before = relay.published();
        (0..EVENTS).for_each(|n| drop(self.write(&format!("first-{n}"), "{}")));
        eventually("the first events are published", PATIENCE, || {
            let published = relay.published() - before;
            published >= EVENTS as f64 && relay.metric("outboxd_inflight_events") == Some(0.0)
        });
        EVENTS
    }

    /// The dead letters of the scene's slot, in the order of their numbers.
    #[track_caller]
    pub fn dead_letters(&self) -> Vec<Letter> {
        let sql = "select id, event_id, state, reason, message, attempts from outboxd.dead_letter
                   where slot = $1 order by id";
        let rows = self.database.connect().query(sql, &[&self.config.slot()]);
        let rows = rows.unwrap_or_else(|error| panic!("the dead letters cannot be read: {error:?}"));
        let letter = |row: &postgres::Row| Letter {
            id: row.get(0),
            event: row.get(1),
            state: row.get(2),
            reason: row.get(3),
            message: row.get(4),
            attempts: row.get(5),
        };
        rows.iter().map(letter).collect()
    }

    /// Waits until the event is parked, and returns its letter.
    #[track_caller]
    pub fn wait_letter(&self, event: &str) -> Letter {
        let letter = super::within(PATIENCE, || self.letter_of(event));
        letter.unwrap_or_else(|| panic!("event {event} is not parked within {PATIENCE:?}: {:#?}", self.dead_letters()))
    }

    /// Waits until the event's letter has come to this state.
    #[track_caller]
    pub fn wait_state(&self, event: &str, state: &str) {
        let found = super::within(PATIENCE, || self.letter_of(event).filter(|letter| letter.state == state));
        assert!(found.is_some(), "not {state} within {PATIENCE:?}: {event}, {:#?}", self.letter_of(event));
    }

    /// A person wants every open letter to be tried at once. One that is being tried just then is left as it is, and
    /// comes to its turn by itself.
    #[track_caller]
    pub fn retry_letters(&self) {
        self.config.run(&["dead-letters", "retry", "--all-matching", "--yes"]).assert_success();
    }

    #[track_caller]
    fn letter_of(&self, event: &str) -> Option<Letter> {
        self.dead_letters().into_iter().find(|letter| letter.event.as_deref() == Some(event))
    }

    /// Waits until everything committed has arrived, reads to the end, and lets the oracle judge. Fails the test when
    /// a promise was broken; the verdict is returned for what else a test wants to know.
    #[track_caller]
    pub fn judge(&self, truth: &Truth) -> Verdict {
        let verdict = self.verdict(truth);
        verdict.assert_at_least_once();
        verdict
    }

    /// The same where events were parked with `order = "skip"`, and have been delivered since: no order binds them to what
    /// passed them meanwhile. When each was parked, the history does not tell; so confirmed positions are held against
    /// the others only.
    #[track_caller]
    pub fn judge_with_letters(&self, truth: &Truth) -> Verdict {
        self.wait_arrived(truth);
        let parked = self.dead_letters().into_iter().filter_map(|letter| letter.event).map(Fact::Parked);
        let verdict = self.ask_oracle(truth, &parked.chain(self.reader.history()).collect::<Vec<_>>());
        verdict.assert_at_least_once();
        verdict
    }

    /// The oracle's verdict, printed and not yet held against anybody: for faults that the design does not promise to
    /// survive in order.
    #[track_caller]
    pub fn verdict(&self, truth: &Truth) -> Verdict {
        self.wait_arrived(truth);
        self.ask_oracle(truth, &self.reader.history())
    }

    /// Waits until everything committed has arrived, and reads to the end.
    #[track_caller]
    fn wait_arrived(&self, truth: &Truth) {
        let expected: HashSet<&str> = truth.committed.values().flatten().map(|event| event.id.as_str()).collect();
        assert!(self.reader.wait_all(&expected, PATIENCE), "not everything has arrived within {PATIENCE:?}");
        if self.walsender().is_some() {
            // A relay that repeats is judged when it has come to the end of it.
            let end = self.written();
            super::eventually("all of it is confirmed", PATIENCE, || self.confirmed() >= end);
        }
        self.reader.catch_up(PATIENCE);
    }

    #[track_caller]
    fn ask_oracle(&self, truth: &Truth, history: &[Fact]) -> Verdict {
        let verdict = oracle::judge(truth, history);
        eprintln!("{verdict}");
        assert!(verdict.samples > 0 || !self.reader.watches(), "no confirmed position was held against the events");
        verdict
    }

    /// The end of what was written so far: once this is confirmed, all of it is.
    #[track_caller]
    pub fn written(&self) -> Lsn {
        self.database.written()
    }

    /// How many rows and messages the slot still holds, asked of the slot itself: for when the relay has ended.
    #[track_caller]
    pub fn held_by_slot(&self) -> i64 {
        let slot = self.config.slot();
        let sql = format!(
            "select count(*) from pg_logical_slot_peek_binary_changes('{slot}', null, null, 'proto_version', '1',
                 'publication_names', '{slot}', 'messages', 'true') where chr(get_byte(data, 0)) in ('I', 'M')"
        );
        let mut session = self.database.connect();
        // The walsender of a relay that just ended may have the slot for a moment longer.
        let row = super::within(PATIENCE, || session.query_one(&sql, &[]).ok());
        row.expect("the slot can be read").get(0)
    }

    /// The pid of the walsender that streams from the slot.
    #[track_caller]
    pub fn walsender(&self) -> Option<String> {
        self.database.walsender(self.config.slot())
    }

    /// The server's view of the slot's confirmed position.
    #[track_caller]
    pub fn confirmed(&self) -> Lsn {
        self.database.confirmed(self.config.slot()).expect("the slot is there")
    }
}
