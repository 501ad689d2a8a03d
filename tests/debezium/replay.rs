//! outboxd over the fixtures: the same tables, rows and options, on real servers, some of them in two relays and all of them in
//! twelve; and what it publishes beside what Debezium has published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::compare::{self, Found, Scope};
use crate::fixture::{Fixture, Record};
use crate::record::PARTITIONS;
use crate::support::kafka::Kafka;
use crate::support::postgres::{Database, Postgres};
use crate::support::relay::{Config, Relay};
use crate::support::within;
use crate::topics::Topics;

/// A relay asks for every topic when its first row comes, and waits about a second for the answer: so there are several.
const RELAYS: usize = 12;
/// Longer than any of them takes.
const SETTLED: Duration = Duration::from_secs(300);

/// Some of each option, converter and payload, of types that are read from their binary form.
const IN_BINARY: [&str; 32] = [
    "a_column_with_capitals",
    "a_greedy_regex_is_replaced_once",
    "a_key_for_the_byte_converter",
    "a_match_of_a_part_is_none",
    "a_missing_header_column_is_ignored",
    "a_null_key_as_json",
    "a_null_key_as_text",
    "a_partition_from_int4",
    "a_partition_of_null_is_the_keys",
    "an_envelope_with_two_members",
    "an_insert_and_delete_in_one_transaction",
    "an_update_is_dropped_with_a_warning",
    "bool_in_plain_places",
    "bytea_in_plain_places",
    "bytes_as_base64",
    "bytes_as_they_are",
    "context_headers_as_json",
    "documents_expanded_from_jsonb",
    "documents_expanded_in_an_envelope",
    "documents_expanded_with_nulls",
    "empty_texts_with_tombstones_on_as_json",
    "int8_in_plain_places",
    "json_for_the_binary_converter_with_delegate",
    "keys_spread_over_partitions",
    "many_headers_in_the_order_of_the_list",
    "merged_objects_expanded_from_text",
    "rows_of_one_transaction_keep_their_order",
    "simple_headers_of_odd_texts",
    "texts_that_are_hardly_documents",
    "the_time_of_a_timestamp",
    "the_time_of_a_timestamp_3",
    "two_partitions",
];
/// Some of each type that is read as text, and of the modes of reading it.
const IN_TEXT: [&str; 32] = [
    "bit_12_in_plain_places",
    "citext_in_plain_places",
    "date_in_plain_places",
    "date_with_time_mode_isostring",
    "domain_text_in_plain_places",
    "double_in_plain_places",
    "enum_in_plain_places",
    "hstore_in_plain_places",
    "hstore_with_hstore_mode_map",
    "inet_in_plain_places",
    "int4range_in_plain_places",
    "int_array_in_plain_places",
    "interval_in_plain_places",
    "interval_with_interval_mode_string",
    "jsonb_array_in_plain_places",
    "money_in_plain_places",
    "numeric_2_in_plain_places",
    "numeric_array_in_plain_places",
    "numeric_in_plain_places",
    "numeric_with_decimal_mode_double",
    "oid_in_plain_places",
    "point_in_plain_places",
    "real_in_plain_places",
    "routed_by_an_enum",
    "text_array_in_plain_places",
    "time_3_in_plain_places",
    "time_in_plain_places",
    "timestamp_in_plain_places",
    "timestamptz_in_plain_places",
    "timetz_in_plain_places",
    "varbit_in_plain_places",
    "xml_in_plain_places",
];

#[test]
fn outboxd_publishes_some_of_what_debezium_publishes() {
    let all = Fixture::all();
    let named = |names: &[&str]| -> Vec<Fixture> {
        let of = |name: &&str| all.iter().find(|fixture| fixture.case == *name).cloned();
        names.iter().map(|name| of(name).unwrap_or_else(|| panic!("there is no case {name}"))).collect()
    };
    let parts = [named(&IN_BINARY), named(&IN_TEXT)];
    let runs = replay(&Kafka::options().production().start(), &parts.each_ref().map(Vec::as_slice), Scope::Some);
    let [in_binary, in_text] = runs.as_slice() else { panic!("there are two") };
    assert!(!in_binary.log.contains("\"Text\""), "these are read from their binary form: {}", in_binary.log);
    assert!(in_text.log.contains("\"Text\""), "{}", in_text.log);
    for (run, part) in [(in_binary, &parts[0]), (in_text, &parts[1])] {
        assert_eq!(run.fixtures.len(), part.len(), "all of them are taken");
    }
}

#[test]
#[ignore = "make test-debezium"]
fn outboxd_publishes_what_debezium_publishes() {
    let only = std::env::var("OUTBOXD_REPLAY_ONLY").unwrap_or_default();
    let fixtures: Vec<Fixture> = Fixture::all().into_iter().filter(|fixture| fixture.case.contains(&only)).collect();
    let scope = if only.is_empty() { Scope::Servers } else { Scope::Some };
    let parts: Vec<&[Fixture]> = fixtures.chunks(fixtures.len().div_ceil(RELAYS).max(1)).collect();
    replay(&Kafka::options().production().start(), &parts, scope);
}

/// Each part through a relay of its own; what differs on purpose may differ, and nothing else.
fn replay<'a>(kafka: &Arc<Kafka>, parts: &[&'a [Fixture]], scope: Scope) -> Vec<Run<'a>> {
    let fixtures: Vec<Fixture> = parts.concat();
    create_topics(kafka, &fixtures);
    let mut found = Vec::new();
    let mut runs = Vec::new();
    std::thread::scope(|threads| {
        let stands: Vec<_> = parts.iter().map(|part| threads.spawn(|| Stand::new(kafka, part).run())).collect();
        for (refused, run) in stands.into_iter().map(|stand| stand.join().expect("a stand ends")) {
            found.extend(refused);
            runs.push(run);
        }
    });
    let names: Vec<&str> = fixtures.iter().map(|fixture| fixture.case.as_str()).collect();
    let mut topics = Topics::of(kafka);
    let seen = topics.read_to_end();
    for Run { fixtures, letters, begun_ms, .. } in &runs {
        for fixture in fixtures {
            let records = Topics::of_case(seen, &fixture.case, &names);
            let records: Vec<Record> = records.into_iter().map(|seen| Record::of(seen, *begun_ms)).collect();
            let letters = letters.get(&fixture.case).map_or(&[][..], Vec::as_slice);
            found.extend(compare::differences(fixture, &records, letters));
        }
    }
    compare::judge(&fixtures, &found, scope);
    runs
}

/// Fixtures whose rows a relay has settled.
struct Run<'a> {
    fixtures: Vec<&'a Fixture>,
    /// Why rows were parked, by the name of their table.
    letters: BTreeMap<String, Vec<String>>,
    begun_ms: i64,
    /// What the relay said.
    log: String,
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

    /// Lets a relay carry the rows of all that it takes; says what it does not take, or should not.
    fn run(&self) -> (Vec<Found>, Run<'a>) {
        let mut found = Vec::new();
        // What Debezium does not begin with would keep the others from beginning, too.
        let (refused, begun): (Vec<&'a Fixture>, Vec<&'a Fixture>) =
            self.fixtures.iter().partition(|f| compare::is_refused(f));
        found.extend(refused.into_iter().filter(|fixture| self.refusal(fixture).is_none()).map(Found::accepted));
        let all_are_taken = self.config(&begun).run(&["init"]).code == Some(0);
        let mut running = begun;
        running.retain(|fixture| match all_are_taken && !is_never_carried(fixture) {
            true => true,
            false => match self.refusal(fixture) {
                None => true,
                Some(outboxd) => {
                    found.push(Found::refused(fixture, outboxd));
                    false
                }
            },
        });
        self.config(&running).run(&["init"]).assert_success();
        let run = self.carry(running);
        (found, run)
    }

    /// Why outboxd does not take the options of this fixture, if it does not.
    fn refusal(&self, fixture: &Fixture) -> Option<String> {
        let (slot, publication) = (fixture.case.as_str(), fixture.case.as_str());
        let config = self.config(&[fixture]).set("postgres.slot", slot).set("postgres.publication", publication);
        let mut ended = config.run(&["init"]);
        // A column that is missing is found by whoever asks.
        if ended.code == Some(0) && is_never_carried(fixture) {
            ended = config.run(&["check"]);
            ended.stderr.push_str(&ended.stdout);
        }
        self.database.exec(&format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{slot}';
             drop publication if exists {publication}"
        ));
        (ended.code != Some(0)).then_some(ended.stderr)
    }

    /// All rows through one relay.
    fn carry(&self, fixtures: Vec<&'a Fixture>) -> Run<'a> {
        let config = self.config(&fixtures);
        let mut relay = Relay::start(&config);
        relay.wait_ready();
        let begun_ms = now_ms();
        for statement in fixtures.iter().flat_map(|fixture| &fixture.statements) {
            self.database.exec(statement);
        }
        let end = self.database.written();
        let settled = within(SETTLED, || match relay.is_running() {
            true => (self.database.confirmed(config.slot()) >= Some(end)).then_some(true),
            false => Some(false),
        });
        assert_eq!(settled, Some(true), "not all of it is settled: {}", relay.log());
        Run { fixtures, letters: self.letters(), begun_ms, log: relay.log() }
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
        let config = Config::new(&self.database, &self.kafka).without("route");
        // Many rows here are bad on purpose: that is no reason to pause. And a topic that Debezium did not write to is one more.
        let config = config.set("dead_letter.max_rate", 100).set("dead_letter.unknown_topic", "park");
        fixtures.iter().fold(config, |config, fixture| config.add("outbox", &block(fixture)))
    }
}

/// Those that Debezium wrote to. A busy broker takes its time for each, so several are made at once.
fn create_topics(kafka: &Kafka, fixtures: &[Fixture]) {
    let published = fixtures.iter().flat_map(|fixture| &fixture.records).map(|record| record.topic.clone());
    // Where Debezium publishes nothing, outboxd may.
    let usual = fixtures.iter().filter(|fixture| is_never_carried(fixture)).map(|f| format!("outbox.event.{}", f.case));
    let topics: BTreeSet<String> = published.chain(usual).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    std::thread::scope(|threads| {
        for part in topics.chunks(topics.len().div_ceil(8).max(1)) {
            threads.spawn(|| part.iter().for_each(|topic| kafka.create_topic(topic, PARTITIONS)));
        }
    });
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

/// True when Debezium's task ends at the first row.
fn is_never_carried(fixture: &Fixture) -> bool {
    fixture.failure.is_some() && fixture.records.is_empty()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
    i64::try_from(since.as_millis()).expect("it is not that late")
}
