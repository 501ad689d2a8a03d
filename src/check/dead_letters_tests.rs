use super::super::Verdict::{Fail, Notice, Ok, Skipped, Warn};
use super::super::tests::{assert_finding, config, facts, only, own_tables, setup, slot, survey, topic as good_topic};
use super::*;
use crate::source::catalog::Slot;
use crate::source::catalog::survey::Senders;

static ALL: [&Needed; 4] = [&LETTER, &ATTEMPT, &PAUSE, &KNOWN_TOPIC];

fn letters(all: i64, failed: i64, keys: i64) -> Option<OpenLetters> {
    Some(OpenLetters { all, failed, oldest_failed: (failed > 0).then_some(7200.0), keys })
}

/// The tables after a change of one of them.
fn changed(name: &str, change: impl FnOnce(&mut OwnTable)) -> Vec<OwnTable> {
    let mut tables = own_tables();
    change(tables.iter_mut().find(|table| table.name == name).unwrap());
    tables
}

fn kept_in_topic() -> Config {
    let mut config = config();
    config.dead_letter.store = Store::Kafka("letters".into());
    config
}

#[test]
fn what_is_needed_is_what_the_migration_makes() {
    let made = own_tables();
    assert_eq!(made.len(), ALL.len());
    for needed in ALL {
        assert_eq!(find(&made, needed).unwrap().columns, needed.columns, "{}", needed.name);
    }
}

#[test]
fn a_table_that_is_missing_or_of_another_version_is_for_init_to_make() {
    assert_finding(&tables(&ALL, &own_tables()), Ok, "outboxd.dead_letter, outboxd.dead_letter_attempt", "");
    for needed in ALL {
        let without: Vec<OwnTable> = own_tables().into_iter().filter(|table| table.name != needed.name).collect();
        let missing = format!("table outboxd.{} does not exist", needed.name);
        assert_finding(&tables(&ALL, &without), Fail, &missing, "outboxd init");
    }
    let old = changed("dead_letter", |table| table.columns.retain(|column| column != "lane"));
    assert_finding(&tables(&ALL, &old), Fail, "outboxd.dead_letter is of another version: no \"lane\"", "outboxd init");
    let new = changed("pause", |table| table.columns.push("by".into()));
    assert_finding(&tables(&ALL, &new), Ok, "all is there", "");
}

#[test]
fn only_what_the_settings_use_must_be_there() {
    let names = |config: &Config| needed(&config.dead_letter).iter().map(|needed| needed.name).collect::<Vec<_>>();
    let mut config = config();
    assert_eq!(names(&config), ["dead_letter", "dead_letter_attempt", "pause"]);
    config.dead_letter.unknown_topic = UnknownTopic::Park;
    assert_eq!(names(&config), ["dead_letter", "dead_letter_attempt", "pause", "known_topic"]);
    assert_eq!(names(&kept_in_topic()), ["pause"]);
}

#[test]
fn a_missing_right_comes_with_its_grant() {
    let judged = |tables: &[OwnTable]| rights(&ALL, tables, "Relay");
    assert_finding(&judged(&own_tables()), Ok, "may do", "");
    assert_finding(&judged(&[]), Skipped, "no table", "");
    let hidden = changed("pause", |table| table.usage = false);
    assert_finding(&judged(&hidden), Fail, "schema outboxd", "GRANT USAGE ON SCHEMA outboxd TO \"Relay\";");
    for needed in ALL {
        for right in needed.rights {
            let lame = changed(needed.name, |table| table.rights.retain(|held| held != right));
            let lacks = format!("role lacks {right} on outboxd.{}", needed.name);
            let grant = format!("GRANT {right} ON outboxd.{} TO \"Relay\";", needed.name);
            assert_finding(&judged(&lame), Fail, &lacks, &grant);
        }
    }
    let mut bare = changed("pause", |table| table.rights.clear());
    bare[0].rights = vec!["SELECT".into(), "UPDATE".into()];
    let grants = "GRANT INSERT, DELETE ON outboxd.dead_letter TO \"Relay\"; GRANT SELECT, INSERT, DELETE ON";
    let lacks = "lacks INSERT, DELETE on outboxd.dead_letter and SELECT, INSERT, DELETE on outboxd.pause";
    assert_finding(&judged(&bare), Fail, lacks, grants);
    // The relay never changes an attempt, and the foreign key deletes as the owner.
    let enough = changed("dead_letter_attempt", |table| table.rights = vec!["SELECT".into(), "INSERT".into()]);
    assert_finding(&judged(&enough), Ok, "may do", "");
}

#[test]
fn a_topic_of_letters_must_be_there_writable_and_not_compacted() {
    let kafka = config().kafka;
    let judged = |found: Topic| topic(&kafka, "letters", Some(&found));
    let with = |name: &str, value: &str| {
        let mut found = good_topic("letters");
        found.config.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
        judged(found)
    };
    let in_state = |state| judged(Topic { state, may_write: None, config: None, ..good_topic("letters") });
    assert_finding(&with("retention.ms", "-1"), Ok, "takes letters and keeps them", "");
    assert_finding(&with("retention.ms", "604800000"), Notice, "deletes letters after 7 d", "retention.ms=-1");
    assert_finding(&with("cleanup.policy", "compact,delete"), Warn, "compacted", "cleanup.policy=delete");
    assert_finding(&in_state(TopicState::Missing), Fail, "does not exist", "--create --topic letters");
    assert_finding(&in_state(TopicState::Forbidden), Fail, "may not describe", "--operation Write");
    assert_finding(&in_state(TopicState::Failed("odd".into())), Fail, "odd", "dead_letter.topic");
    let alone = TopicState::Present { partitions: 1, replicas: 1, in_sync: 1 };
    assert_finding(&judged(Topic { state: alone, ..good_topic("letters") }), Warn, "one replica", "reassign");
    let may_write = |may_write| judged(Topic { may_write, ..good_topic("letters") });
    assert_finding(&may_write(Some(false)), Fail, "describe but not write topic \"letters\"", "--operation Write");
    assert_finding(&may_write(None), Skipped, "do not tell", "");
    assert_finding(&judged(Topic { config: None, ..good_topic("letters") }), Skipped, "configuration", "");
    assert_finding(&topic(&kafka, "letters", None), Skipped, "Kafka was not reached", "");
}

#[test]
fn letters_in_a_topic_are_judged_there_and_their_pause_in_the_database() {
    let mut facts = facts();
    facts.letter_topic = Some(good_topic("letters"));
    let findings = judge(&kept_in_topic(), &facts);
    let store: Vec<&Finding> = findings.iter().filter(|finding| finding.id == "letters.store").collect();
    let [in_topic, in_database] = store.as_slice() else { panic!("{store:#?}") };
    assert_finding(in_topic, Notice, "topic \"letters\"", "");
    assert_finding(in_database, Ok, "need of the database: outboxd.pause", "");
    assert_finding(only(&findings, "letters.open"), Ok, "none is tried again", "");
    assert_finding(only(&findings, "letters.failover"), Ok, "no promotion", "");
    facts.survey = None;
    assert_finding(only(&judge(&kept_in_topic(), &facts), "letters.store"), Notice, "topic \"letters\"", "");
}

#[test]
fn letters_that_were_stored_before_they_went_to_a_topic_are_not_forgotten() {
    assert_finding(&left_behind(letters(3, 0, 1)), Warn, "3 open letters are in outboxd.dead_letter", "postgres");
    assert_finding(&left_behind(letters(0, 0, 0)), Ok, "in a topic", "");
    assert_finding(&left_behind(None), Ok, "in a topic", "");
}

#[test]
fn letters_that_wait_for_a_person_are_counted() {
    assert_finding(&open(letters(0, 0, 0)), Ok, "no letter is open", "");
    assert_finding(&open(letters(7, 0, 7)), Ok, "7 letters are open", "");
    let waiting = "2 of 7 open letters wait for a person, the oldest parked 2 h ago";
    assert_finding(&open(letters(7, 2, 7)), Warn, waiting, "outboxd dead-letters list --state failed");
    assert_finding(&open(None), Skipped, "cannot be read", "");
}

#[test]
fn a_pause_is_told_with_its_reason_and_the_way_on() {
    let paused = [Pause { seconds: 600.0, message: "more than 20 % are rejected:\u{1b}[2J \"key\"".into() }];
    let found = pause(Some(&paused));
    assert_finding(&found, Warn, "paused for 10 min: more than 20 % are rejected: [2J \"key\"", "outboxd resume");
    assert_finding(&pause(Some(&[])), Ok, "not paused", "");
    assert_finding(&pause(None), Skipped, "cannot be read", "");
}

#[test]
fn parked_keys_are_told_before_the_line_stands() {
    let judged = |parked: i64, most: usize| {
        let settings = DeadLetters { order: Order::ParkKey, max_parked_keys: most, ..config().dead_letter };
        keys(&settings, letters(parked, 0, parked))
    };
    assert_finding(&judged(79, 100), Ok, "79 keys are parked, and 100 may be", "");
    assert_finding(&judged(80, 100), Warn, "then the line stands", "max_parked_keys");
    assert_finding(&judged(100, 100), Warn, "the line stands at the next one", "max_parked_keys");
    assert_finding(&judged(0, 1), Ok, "0 keys", "");
    assert_finding(&judged(1, 1), Warn, "at the next one", "dead-letters list");
    let settings = DeadLetters { order: Order::ParkKey, ..config().dead_letter };
    assert_finding(&keys(&settings, None), Skipped, "cannot be read", "");
    let skipping = DeadLetters { max_parked_keys: 1, ..config().dead_letter };
    assert_finding(&keys(&skipping, letters(9, 0, 9)), Ok, "order = \"skip\"", "");
}

#[test]
fn a_slot_that_is_promoted_without_its_letters_is_told() {
    let standby = |name: &str, active| AnySlot {
        slot_name: name.into(),
        slot_type: "physical".into(),
        active,
        ..AnySlot::default()
    };
    let beside = |settings: &[(&str, &str, Option<&str>)], slots: Vec<AnySlot>| {
        let senders = Senders { all: 1, physical: 1 };
        failover("s", &Survey { setup: setup(settings), slots, senders, ..survey() })
    };
    let lost = "a promotion may lose the latest letters";
    let slots = || vec![standby("sb1", true), standby("gone", false), standby("sb2", true)];
    let hint = "SET synchronized_standby_slots = 'sb1', 'sb2'; SELECT";
    assert_finding(&beside(&[], slots()), Warn, lost, hint);
    assert_finding(&beside(&[("synchronized_standby_slots", "", None)], slots()), Warn, lost, hint);
    assert_finding(&beside(&[], Vec::new()), Warn, lost, "primary_slot_name");
    assert_finding(&beside(&[("rds.logical_replication", "1", None)], slots()), Warn, lost, "parameter group");
    assert_finding(&beside(&[("synchronized_standby_slots", "sb1", None)], slots()), Ok, "before the slot", "");
    let synchronous = beside(&[("synchronous_standby_names", "FIRST 1 (a)", None)], slots());
    assert_finding(&synchronous, Notice, "promote no other one", "");
    assert_finding(&failover("s", &survey()), Ok, "no physical standby", "");
    let left = Survey { slot: Some(Slot { failover: Some(false), ..slot() }), slots: slots(), ..survey() };
    assert_finding(&failover("s", &left), Skipped, "see slot.failover", "");
    assert_finding(&failover("s", &Survey { slot: None, ..survey() }), Skipped, "no slot", "");
}
