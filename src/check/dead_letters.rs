//! Verdicts about where dead letters are kept, and about those that are there: `letters.*`.

use crate::config::{Config, DeadLetters, Kafka, Order, Store, UnknownTopic};
use crate::sink::inspect::{Topic, TopicState};
use crate::source::catalog::survey::{AnySlot, OpenLetters, OwnTable, Pause, Setup, Survey};

use super::Finding;
use super::facts::Facts;
use super::kafka::{alter, create, write_acl};
use super::postgres::{names, setting};
use super::provider::Provider;
use super::slot::has_standby;
use super::words;

/// From this share of `max_parked_keys` on, in percent, it is time to look at the parked keys.
const MANY_KEYS: i64 = 80;

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let settings = &config.dead_letter;
    let mut findings = Vec::new();
    if let Store::Kafka(name) = &settings.store {
        findings.push(topic(&config.kafka, name, facts.letter_topic.as_ref()));
    }
    let Some(survey) = &facts.survey else { return findings };
    let (store, needed) = (&survey.letters, needed(settings));
    findings.push(tables(&needed, &store.tables));
    findings.push(rights(&needed, &store.tables, &survey.role.name));
    findings.push(match &settings.store {
        Store::Postgres => open(store.open),
        Store::Kafka(_) => left_behind(store.open),
    });
    findings.push(pause(store.pauses.as_deref()));
    findings.push(keys(settings, store.open));
    findings.push(match &settings.store {
        Store::Postgres => failover(&config.postgres.slot, survey),
        Store::Kafka(_) => Finding::ok("letters.failover", "letters are in a topic, which no promotion concerns"),
    });
    findings
}

/// A table of ours, the columns that our statements name, and the rights that they take.
///
/// An identity column's sequence takes none, and what a foreign key reads and deletes, it does as the table's owner.
struct Needed {
    name: &'static str,
    columns: &'static [&'static str],
    rights: &'static [&'static str],
}

static LETTER: Needed = Needed {
    name: "dead_letter",
    columns: &[
        "id",
        "slot",
        "system_id",
        "timeline",
        "commit_lsn",
        "row_number",
        "committed_at",
        "origin_schema",
        "origin_name",
        "event_id",
        "event_type",
        "topic",
        "key",
        "lane",
        "column_names",
        "column_values",
        "size",
        "not_kept",
        "reason",
        "message",
        "state",
        "attempts",
        "attempts_left",
        "next_attempt",
        "owner",
        "lease_until",
        "parked_at",
        "settled_at",
        "note",
        "noted_by",
        "column_types",
    ],
    rights: &["SELECT", "INSERT", "UPDATE", "DELETE"],
};
static ATTEMPT: Needed = Needed {
    name: "dead_letter_attempt",
    columns: &["letter", "number", "at", "reason", "message"],
    rights: &["SELECT", "INSERT"],
};
static PAUSE: Needed =
    Needed { name: "pause", columns: &["slot", "since", "message"], rights: &["SELECT", "INSERT", "DELETE"] };
static KNOWN_TOPIC: Needed = Needed { name: "known_topic", columns: &["slot", "topic"], rights: &["SELECT", "INSERT"] };

/// A pause is written down wherever letters are; the rest only with letters in the database.
fn needed(settings: &DeadLetters) -> Vec<&'static Needed> {
    match (&settings.store, settings.unknown_topic) {
        (Store::Kafka(_), _) => vec![&PAUSE],
        (Store::Postgres, UnknownTopic::Wait) => vec![&LETTER, &ATTEMPT, &PAUSE],
        (Store::Postgres, UnknownTopic::Park) => vec![&LETTER, &ATTEMPT, &PAUSE, &KNOWN_TOPIC],
    }
}

fn find<'a>(tables: &'a [OwnTable], needed: &Needed) -> Option<&'a OwnTable> {
    tables.iter().find(|table| table.name == needed.name)
}

/// Those of `wanted` that are not among what there is.
fn lacking(wanted: &[&'static str], there: &[String]) -> Vec<&'static str> {
    wanted.iter().copied().filter(|wanted| there.iter().all(|name| name != wanted)).collect()
}

/// Our role may not read the table of migrations, so that their version shows in the columns.
fn tables(needed: &[&Needed], tables: &[OwnTable]) -> Finding {
    const ID: &str = "letters.store";
    for needed in needed {
        let Some(table) = find(tables, needed) else {
            return Finding::fail(ID, format!("table outboxd.{} does not exist", needed.name)).hint("outboxd init");
        };
        let lacking = lacking(needed.columns, &table.columns);
        if !lacking.is_empty() {
            let lacking = words::list(&lacking);
            return Finding::fail(ID, format!("table outboxd.{} is of another version: no {lacking}", needed.name))
                .hint("outboxd init, by the version of outboxd that is to run");
        }
    }
    let names: Vec<String> = needed.iter().map(|needed| format!("outboxd.{}", needed.name)).collect();
    Finding::ok(ID, format!("all is there that letters need of the database: {}", names.join(", ")))
}

fn rights(needed: &[&Needed], tables: &[OwnTable], role: &str) -> Finding {
    const ID: &str = "letters.rights";
    let role = words::identifier(role);
    let found: Vec<(&Needed, &OwnTable)> =
        needed.iter().filter_map(|needed| Some((*needed, find(tables, needed)?))).collect();
    if found.is_empty() {
        return Finding::skipped(ID, "there is no table to have rights on");
    }
    if found.iter().any(|(_, table)| !table.usage) {
        return Finding::fail(ID, "role may not use schema outboxd")
            .hint(format!("GRANT USAGE ON SCHEMA outboxd TO {role};"));
    }
    let lacking: Vec<String> = found
        .iter()
        .map(|(needed, table)| (lacking(needed.rights, &table.rights), needed.name))
        .filter(|(rights, _)| !rights.is_empty())
        .map(|(rights, name)| format!("{} ON outboxd.{name}", rights.join(", ")))
        .collect();
    if lacking.is_empty() {
        return Finding::ok(ID, "the role may do with letters whatever the relay and its commands do");
    }
    let grants: Vec<String> = lacking.iter().map(|right| format!("GRANT {right} TO {role};")).collect();
    Finding::fail(ID, format!("role lacks {}", lacking.join(" and ").replace(" ON ", " on "))).hint(grants.join(" "))
}

fn topic(kafka: &Kafka, name: &str, topic: Option<&Topic>) -> Finding {
    const ID: &str = "letters.store";
    let Some(topic) = topic else { return Finding::skipped(ID, "Kafka was not reached") };
    let replicas = match &topic.state {
        TopicState::Present { replicas, .. } => *replicas,
        // kafka.create_topics makes those of events only.
        TopicState::Missing => {
            return Finding::fail(ID, format!("topic \"{name}\" does not exist, so rejected events would wait"))
                .hint(create(kafka, name));
        }
        TopicState::Forbidden => {
            return Finding::fail(ID, format!("we may not describe, and so not write, topic \"{name}\""))
                .hint(write_acl(kafka, name));
        }
        TopicState::Failed(reason) => {
            return Finding::fail(ID, format!("topic \"{name}\": {reason}")).hint("check dead_letter.topic");
        }
    };
    if topic.may_write == Some(false) {
        return Finding::fail(ID, format!("we may describe but not write topic \"{name}\""))
            .hint(write_acl(kafka, name));
    }
    let Some(settings) = &topic.config else {
        return Finding::skipped(ID, format!("we may not read the configuration of topic \"{name}\""));
    };
    if settings.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
        let message = format!("topic \"{name}\" is compacted: of letters with the same event id only the last is kept");
        return Finding::warn(ID, message).hint(alter(kafka, name, "cleanup.policy=delete"));
    }
    if replicas < 2 {
        return Finding::warn(ID, format!("topic \"{name}\" has one replica: letters die with its disk"))
            .hint("kafka-reassign-partitions.sh, to three replicas");
    }
    if topic.may_write.is_none() {
        return Finding::skipped(ID, format!("the brokers do not tell our rights on topic \"{name}\""));
    }
    match settings.get("retention.ms").and_then(|text| text.parse::<f64>().ok()) {
        Some(kept_ms) if kept_ms >= 0.0 => {
            let kept = words::duration(kept_ms / 1000.0);
            Finding::notice(ID, format!("topic \"{name}\" deletes letters after {kept}, whether they were read or not"))
                .hint(alter(kafka, name, "retention.ms=-1"))
        }
        Some(_) | None => Finding::ok(ID, format!("topic \"{name}\" takes letters and keeps them")),
    }
}

fn open(letters: Option<OpenLetters>) -> Finding {
    const ID: &str = "letters.open";
    match letters {
        None => Finding::skipped(ID, "outboxd.dead_letter cannot be read"),
        Some(OpenLetters { all: 0, .. }) => Finding::ok(ID, "no letter is open"),
        Some(OpenLetters { all, failed: 0, .. }) => {
            Finding::ok(ID, format!("{all} letters are open, which the relay tries by itself"))
        }
        Some(OpenLetters { all, failed, oldest_failed, .. }) => {
            let age = words::duration(oldest_failed.unwrap_or_default());
            let message = format!("{failed} of {all} open letters wait for a person, the oldest parked {age} ago");
            Finding::warn(ID, message).hint("outboxd dead-letters list --state failed, then retry or discard")
        }
    }
}

/// With letters in a topic, nobody tries those that were stored in the database before.
fn left_behind(letters: Option<OpenLetters>) -> Finding {
    const ID: &str = "letters.open";
    match letters {
        Some(OpenLetters { all, .. }) if all > 0 => Finding::warn(
            ID,
            format!("{all} open letters are in outboxd.dead_letter, where nobody tries them with store = \"kafka\""),
        )
        .hint("in [dead_letter]: store = \"postgres\", until they are delivered or discarded"),
        Some(_) | None => Finding::ok(ID, "letters are in a topic, where none is tried again"),
    }
}

fn pause(pauses: Option<&[Pause]>) -> Finding {
    const ID: &str = "letters.pause";
    match pauses {
        None => Finding::skipped(ID, "outboxd.pause cannot be read"),
        Some([]) => Finding::ok(ID, "the line is not paused"),
        Some([pause, ..]) => {
            // It may hold what an event brought, and a terminal obeys control characters.
            let why = pause.message.replace(char::is_control, " ");
            Finding::warn(ID, format!("the line is paused for {}: {why}", words::duration(pause.seconds)))
                .hint("mend the cause, or accept that these events are parked, then: outboxd resume")
        }
    }
}

fn keys(settings: &DeadLetters, letters: Option<OpenLetters>) -> Finding {
    const ID: &str = "letters.keys";
    const HINT: &str = "outboxd dead-letters list, then retry or discard; or raise dead_letter.max_parked_keys";
    match settings.order {
        Order::Skip => return Finding::ok(ID, "no key is ever parked (order = \"skip\")"),
        Order::ParkKey => {}
    }
    let Some(OpenLetters { keys, .. }) = letters else {
        return Finding::skipped(ID, "outboxd.dead_letter cannot be read");
    };
    let most = i64::try_from(settings.max_parked_keys).unwrap_or(i64::MAX);
    let message = format!("{keys} keys are parked, and {most} may be (dead_letter.max_parked_keys)");
    if keys >= most {
        Finding::warn(ID, format!("{message}: the line stands at the next one")).hint(HINT)
    } else if keys.saturating_mul(100) >= most.saturating_mul(MANY_KEYS) {
        Finding::warn(ID, format!("{message}: then the line stands")).hint(HINT)
    } else {
        Finding::ok(ID, message)
    }
}

/// A slot that is synchronised to a standby may pass an event whose letter is not there yet.
fn failover(name: &str, survey: &Survey) -> Finding {
    const ID: &str = "letters.failover";
    let setup = &survey.setup;
    let lists = |name: &str| !names(setting(setup, name).unwrap_or_default()).is_empty();
    let Some(slot) = &survey.slot else { return Finding::skipped(ID, "there is no slot") };
    if !has_standby(survey) {
        Finding::ok(ID, "no physical standby is known here")
    } else if slot.failover != Some(true) {
        Finding::skipped(ID, format!("slot \"{name}\" does not follow a failover: see slot.failover"))
    } else if lists("synchronized_standby_slots") {
        Finding::ok(ID, "a letter is on the standbys of synchronized_standby_slots before the slot passes its event")
    } else if lists("synchronous_standby_names") {
        let message = "a letter is on synchronous standbys before the slot passes its event: promote no other one";
        Finding::notice(ID, message)
    } else {
        let message = format!(
            "slot \"{name}\" follows a failover, and synchronized_standby_slots is empty: a promotion may lose the \
             latest letters, and their events with them"
        );
        Finding::warn(ID, message).hint(synchronise(setup, &survey.slots))
    }
}

/// Only slots that are in use are named: one that is not would hold the stream back.
fn synchronise(setup: &Setup, slots: &[AnySlot]) -> String {
    let provider = Provider::of(setup);
    if provider != Provider::Own {
        return format!("set synchronized_standby_slots; {}", provider.failover());
    }
    let used = slots.iter().filter(|slot| slot.slot_type == "physical" && slot.active);
    let used: Vec<&str> = used.map(|slot| slot.slot_name.as_str()).collect();
    match used.is_empty() {
        true => "give each standby a slot (primary_slot_name), and name it in synchronized_standby_slots".to_owned(),
        false => format!(
            "ALTER SYSTEM SET synchronized_standby_slots = {}; SELECT pg_reload_conf();",
            used.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
        ),
    }
}

#[cfg(test)]
#[path = "dead_letters_tests.rs"]
mod tests;
