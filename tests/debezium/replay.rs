//! outboxd over the fixtures: the same tables, rows and options, on real servers, in one relay; and what it publishes beside what
//! Debezium has published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::compare::{self, Found};
use crate::fixture::{Fixture, Record};
use crate::record::PARTITIONS;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::relay::{Config, Relay};
use crate::support::{PATIENCE, eventually};
use crate::topics::Topics;

/// So many outboxes at once: a small broker bears their topics.
const AT_ONCE: usize = 160;

#[test]
fn outboxd_publishes_what_debezium_publishes() {
    let only = std::env::var("OUTBOXD_REPLAY_ONLY").unwrap_or_default();
    let fixtures: Vec<Fixture> = Fixture::all().into_iter().filter(|fixture| fixture.case.contains(&only)).collect();
    let kafka = Kafka::options().production().start();
    let mut found: Vec<Found> = Vec::new();
    for batch in fixtures.chunks(AT_ONCE) {
        found.extend(Stand::new(&kafka, batch).compare());
    }
    compare::judge(&fixtures, &found, only.is_empty());
}

/// A database with the tables of some fixtures.
struct Stand<'a> {
    fixtures: &'a [Fixture],
    database: Database,
    kafka: Arc<Kafka>,
}

impl<'a> Stand<'a> {
    fn new(kafka: &Arc<Kafka>, fixtures: &'a [Fixture]) -> Stand<'a> {
        let database = Postgres::shared().database();
        fixtures.iter().for_each(|fixture| database.exec(&fixture.ddl));
        Stand { fixtures, database, kafka: kafka.clone() }
    }

    fn compare(&self) -> Vec<Found> {
        let mut found = Vec::new();
        // What Debezium does not begin with would keep the others from beginning, too.
        let (refused, begun): (Vec<&Fixture>, Vec<&Fixture>) = self.fixtures.iter().partition(|f| compare::is_refused(f));
        found.extend(refused.into_iter().filter(|fixture| self.refusal(fixture).is_none()).map(Found::accepted));
        let mut running = begun;
        if self.config(&running).run(&["init"]).code != Some(0) {
            running.retain(|fixture| match self.refusal(fixture) {
                None => true,
                Some(outboxd) => {
                    found.push(Found::refused(fixture, outboxd));
                    false
                }
            });
            self.config(&running).run(&["init"]).assert_success();
        }
        found.extend(self.run(&running));
        found
    }

    /// Why outboxd does not take the options of this fixture, if it does not.
    fn refusal(&self, fixture: &Fixture) -> Option<String> {
        let (slot, publication) = (fixture.case.as_str(), fixture.case.as_str());
        let config = self.config(&[fixture]).set("postgres.slot", slot).set("postgres.publication", publication);
        let ended = config.run(&["init"]);
        self.database.exec(&format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{slot}';
             drop publication if exists {publication}"
        ));
        (ended.code != Some(0)).then_some(ended.stderr)
    }

    /// All rows through one relay.
    fn run(&self, fixtures: &[&Fixture]) -> Vec<Found> {
        let config = self.config(fixtures);
        let mut relay = Relay::start(&config);
        relay.wait_ready();
        let begun_ms = now_ms();
        for statement in fixtures.iter().flat_map(|fixture| &fixture.statements) {
            self.database.exec(statement);
        }
        let end = self.database.written();
        eventually("all of it is settled", PATIENCE, || self.database.confirmed(config.slot()) >= Some(end));
        let mut topics = Topics::of(&self.kafka);
        let seen = topics.read().to_vec();
        let names: Vec<&str> = self.fixtures.iter().map(|fixture| fixture.case.as_str()).collect();
        let letters = self.letters();
        let compare = |fixture: &&Fixture| {
            let records = Topics::of_case(&seen, &fixture.case, &names);
            let records: Vec<Record> = records.into_iter().map(|seen| Record::of(seen, begun_ms)).collect();
            compare::differences(fixture, &records, letters.get(&fixture.case).map(Vec::as_slice).unwrap_or_default())
        };
        let found = fixtures.iter().flat_map(compare).collect();
        drop(relay);
        topics.names().iter().for_each(|topic| self.kafka.delete_topic(topic));
        found
    }

    /// Why rows were parked, by their table.
    fn letters(&self) -> BTreeMap<String, Vec<String>> {
        let sql = "select origin_name, reason || ': ' || message from outboxd.dead_letter order by id";
        let rows = self.database.connect().query(sql, &[]).expect("the dead letters can be read");
        let mut letters = BTreeMap::<String, Vec<String>>::new();
        rows.iter().for_each(|row| letters.entry(row.get(0)).or_default().push(row.get(1)));
        letters
    }

    fn config(&self, fixtures: &[&Fixture]) -> Config {
        let topics: toml::Table = format!("partitions = {PARTITIONS}\nreplication = 1").parse().expect("it is TOML");
        let config = Config::new(&self.database, &self.kafka).without("route").set("kafka.create_topics", topics);
        fixtures.iter().fold(config, |config, fixture| config.add("outbox", &block(fixture)))
    }
}

/// `[[outbox]]`, with the options as Debezium has them.
fn block(fixture: &Fixture) -> String {
    let mut options: toml::Table =
        fixture.options.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    // Of the connector's name: here it stands only in headers and in the names of schemas.
    options.insert("topic.prefix".to_string(), fixture.case.clone().into());
    let mut block = toml::Table::new();
    block.insert("table".to_string(), fixture.table.clone().into());
    block.insert("preset".to_string(), "debezium".into());
    block.insert("debezium".to_string(), options.into());
    block.to_string()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
    i64::try_from(since.as_millis()).expect("it is not that late")
}
