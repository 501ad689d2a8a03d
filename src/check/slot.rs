//! Verdicts about the replication slot and what threatens it: `slot.*`.

use crate::config::Config;
use crate::lsn::Lsn;
use crate::source::System;
use crate::source::catalog::survey::{AnySlot, Setup, Survey};
use crate::source::catalog::{Place, Slot, SlotKind, quote_literal};

use super::Finding;
use super::facts::{Facts, Replication};
use super::postgres::{bytes, names, seconds, setting};
use super::provider::Provider;
use super::words;

/// Less WAL than this is used up by one busy hour.
const SMALL_CAP_BYTES: f64 = 1024.0 * 1024.0 * 1024.0;
/// A slot that is given up sooner than this does not survive a deployment that goes wrong.
const SHORT_IDLE_S: f64 = 3600.0;

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let Some(survey) = &facts.survey else { return Vec::new() };
    let (name, setup, version) = (config.postgres.slot.as_str(), &survey.setup, survey.server.version);
    let mut findings = vec![cap(setup, survey.slot.as_ref()), idle(setup), sync(setup, &survey.slots)];
    let Some(slot) = &survey.slot else {
        findings.push(missing(name, version));
        return findings;
    };
    findings.push(kind(name, slot, &setup.database));
    findings.push(free(name, slot, &config.postgres.connection.application_name));
    findings.push(health(name, slot));
    findings.push(failover(name, slot, survey));
    let system = match &facts.replication {
        Replication::Identified { system, .. } => Some(*system),
        Replication::Stopped(_) | Replication::Unasked => survey.server.system,
    };
    let decoded = survey.spill.map_or(0, |spill| spill.total_bytes);
    findings.push(place(survey.place.as_ref(), system, slot.confirmed, survey.server.wal_lsn, decoded));
    findings
}

fn missing(name: &str, version: u32) -> Finding {
    let failover = if version >= 170_000 { ", failover => true" } else { "" };
    let literal = quote_literal(name);
    Finding::fail("slot.kind", format!("replication slot \"{name}\" does not exist")).hint(format!(
        "outboxd init, or, once the publication is there: SELECT pg_create_logical_replication_slot({literal}, \
         'pgoutput'{failover});"
    ))
}

fn kind(name: &str, slot: &Slot, database: &str) -> Finding {
    let wrong = match slot.kind {
        SlotKind::Physical => Some("is physical".to_owned()),
        SlotKind::Logical if slot.plugin.as_deref() != Some("pgoutput") => {
            Some(format!("uses plugin {}, not pgoutput", slot.plugin.as_deref().unwrap_or("unknown")))
        }
        SlotKind::Logical if slot.database.as_deref() != Some(database) => {
            Some(format!("belongs to database \"{}\", not to \"{database}\"", slot.database.as_deref().unwrap_or("")))
        }
        SlotKind::Logical if slot.temporary => Some("is temporary".to_owned()),
        SlotKind::Logical if slot.two_phase => Some("decodes prepared transactions before they commit".to_owned()),
        SlotKind::Logical => None,
    };
    match wrong {
        None => Finding::ok("slot.kind", format!("slot \"{name}\" is logical, pgoutput, of database \"{database}\"")),
        Some(wrong) => Finding::fail("slot.kind", format!("slot \"{name}\" {wrong}"))
            .hint("set another name in postgres.slot and run outboxd init"),
    }
}

fn free(name: &str, slot: &Slot, application_name: &str) -> Finding {
    const ID: &str = "slot.free";
    let Some(holder) = &slot.holder else { return Finding::ok(ID, format!("nobody holds slot \"{name}\"")) };
    let message = format!("slot \"{name}\" is held by {holder}");
    if holder.application_name.as_deref() == Some(application_name) {
        // A relay of ours at work, or one that has just been killed: the next one waits behind it.
        return Finding::notice(ID, format!("{message}: a relay at work; another one would stand by"));
    }
    Finding::fail(ID, message).hint(format!("SELECT pg_terminate_backend({});  -- if it is not wanted", holder.pid))
}

fn health(name: &str, slot: &Slot) -> Finding {
    const ID: &str = "slot.health";
    const LOST: &str =
        "rows since then were not sent: DROP the slot, run outboxd init, and publish what the table still holds";
    if let Some(reason) = &slot.invalidation_reason {
        return Finding::fail(ID, format!("slot \"{name}\" was invalidated: {reason}")).hint(LOST);
    }
    let retained = words::bytes(slot.retained_bytes as f64);
    match slot.wal_status.as_deref() {
        Some("lost") => Finding::fail(ID, format!("slot \"{name}\" has lost its WAL (wal_status = lost)")).hint(LOST),
        Some("unreserved") => Finding::fail(
            ID,
            format!("slot \"{name}\" loses its WAL at the next checkpoint (unreserved, {retained})"),
        )
        .hint("let the relay confirm now, or: ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf();"),
        Some("extended") => {
            Finding::notice(ID, format!("slot \"{name}\" keeps {retained}, more than max_wal_size (extended)"))
        }
        Some(_) | None => Finding::ok(ID, format!("slot \"{name}\" keeps {retained} of WAL")),
    }
}

fn cap(setup: &Setup, slot: Option<&Slot>) -> Finding {
    const ID: &str = "slot.cap";
    let hint = Provider::of(setup).slot_cap();
    let Some(cap) = bytes(setup, "max_slot_wal_keep_size") else {
        return Finding::skipped(ID, "max_slot_wal_keep_size is hidden from this role");
    };
    if cap < 0.0 {
        return Finding::warn(
            ID,
            "max_slot_wal_keep_size = -1: one stuck reader fills the disk and stops the database",
        )
        .hint(hint);
    }
    let safe = slot.and_then(|slot| slot.safe_wal_size).map_or(cap, |safe| safe as f64);
    let time = match setup.wal_rate {
        Some(rate) if rate >= 1.0 => format!(", about {} at the average rate", words::duration(safe.max(0.0) / rate)),
        Some(_) | None => String::new(),
    };
    let message = format!("a stalled relay has {} of WAL left{time}", words::bytes(safe));
    if cap < SMALL_CAP_BYTES { Finding::warn(ID, message).hint(hint) } else { Finding::ok(ID, message) }
}

fn idle(setup: &Setup) -> Finding {
    const ID: &str = "slot.idle";
    let Some(timeout) = seconds(setup, "idle_replication_slot_timeout") else {
        return Finding::ok(ID, "this server keeps idle slots");
    };
    let loss =
        format!("a pause of the relay longer than {} loses the slot at the next checkpoint", words::duration(timeout));
    match timeout {
        timeout if timeout <= 0.0 => Finding::ok(ID, "idle slots are kept (idle_replication_slot_timeout = 0)"),
        timeout if timeout < SHORT_IDLE_S => Finding::warn(ID, loss)
            .hint("ALTER SYSTEM SET idle_replication_slot_timeout = '1d'; SELECT pg_reload_conf();"),
        _ => Finding::notice(ID, loss),
    }
}

fn failover(name: &str, slot: &Slot, survey: &Survey) -> Finding {
    const ID: &str = "slot.failover";
    match (slot.failover, has_standby(survey)) {
        (_, false) => Finding::ok(ID, "no physical standby is known here"),
        (Some(true), true) => Finding::ok(ID, format!("slot \"{name}\" is marked for failover")),
        (Some(false), true) => {
            let more = Provider::of(&survey.setup).failover();
            Finding::warn(
                ID,
                format!(
                    "there is a standby, and slot \"{name}\" would not follow a failover to it"
                ),
            )
            .hint(format!(
                "while no relay runs: psql 'dbname={} replication=database' -c 'ALTER_REPLICATION_SLOT {} (FAILOVER \
                 true)'; {more}",
                survey.setup.database,
                words::identifier(name)
            ))
        }
        (None, true) => Finding::warn(
            ID,
            "there is a standby, and before PostgreSQL 17 a slot does not follow a failover to it",
        )
        .hint(
            "after a failover: outboxd init, then publish the rows committed in between; or upgrade to PostgreSQL 17",
        ),
    }
}

/// A physical standby is connected, or has a slot.
pub(super) fn has_standby(survey: &Survey) -> bool {
    survey.senders.physical > 0 || survey.slots.iter().any(|slot| slot.slot_type == "physical")
}

fn sync(setup: &Setup, slots: &[AnySlot]) -> Finding {
    const ID: &str = "slot.sync";
    let listed = names(setting(setup, "synchronized_standby_slots").unwrap_or_default());
    let ailing: Vec<String> = listed
        .iter()
        .filter_map(|name| match slots.iter().find(|slot| slot.slot_name == *name) {
            None => Some(format!("{name} (does not exist)")),
            Some(slot) if slot.slot_type != "physical" => Some(format!("{name} (not physical)")),
            Some(slot) if slot.invalidation_reason.is_some() || slot.wal_status.as_deref() == Some("lost") => {
                Some(format!("{name} (invalidated)"))
            }
            Some(slot) if !slot.active => Some(format!("{name} (inactive)")),
            Some(_) => None,
        })
        .collect();
    match (listed.is_empty(), ailing.is_empty()) {
        (true, _) => Finding::ok(ID, "the stream waits for no standby"),
        (false, true) => {
            Finding::ok(ID, format!("every slot of synchronized_standby_slots works: {}", listed.join(", ")))
        }
        (false, false) => {
            Finding::fail(ID, format!("synchronized_standby_slots holds the stream back: {}", ailing.join(", "))).hint(
                "start those standbys, or take them out: ALTER SYSTEM SET synchronized_standby_slots = ''; \
                 SELECT pg_reload_conf();",
            )
        }
    }
}

/// The mirror may lag behind the slot (it is not written for keepalives); it can never be ahead of the server.
fn place(mirror: Option<&Place>, now: Option<System>, slot: Option<Lsn>, server: Lsn, decoded: i64) -> Finding {
    const ID: &str = "slot.place";
    const GAP: &str = "compare the table with the topic, publish what is missing, then, while no relay runs: \
                       DELETE FROM outboxd.position;";
    let Some(mirror) = mirror.filter(|mirror| mirror.confirmed != Lsn::ZERO) else {
        return Finding::ok(ID, "nothing was confirmed yet");
    };
    let Some(now) = now else { return Finding::skipped(ID, "the system's identifier is hidden from this role") };
    let confirmed = mirror.confirmed;
    if mirror.system.id != now.id {
        let message =
            format!("the position table speaks of {}, this is {now}: another cluster, or a new one", mirror.system);
        return Finding::fail(ID, message).hint(GAP);
    }
    if mirror.system.timeline == now.timeline && server < confirmed {
        let message = format!(
            "the server's WAL ends at {server}, before {confirmed}, which was confirmed: restored from a backup"
        );
        return Finding::fail(ID, message).hint(GAP);
    }
    match slot {
        Some(slot) if mirror.system.timeline != now.timeline => Finding::notice(
            ID,
            format!("promoted since the last confirmed event: slot at {slot}, mirror at {confirmed}"),
        ),
        Some(slot) if slot < confirmed => Finding::notice(
            ID,
            format!("the slot went back from {confirmed} to {slot}: events in between are repeated"),
        ),
        Some(slot) if slot > confirmed && mirror.left_cleanly => Finding::warn(
            ID,
            format!("somebody else moved the slot from {confirmed}, where the last relay left it, to {slot}, or made it anew: \
                     events in between are missing"),
        )
        .hint(GAP),
        Some(slot) if slot > confirmed && decoded == 0 => Finding::warn(
            ID,
            format!(
                "nothing was ever read from this slot, yet events up to {confirmed} were confirmed: if it was \
                 created again, events up to {slot} are missing"
            ),
        )
        .hint(GAP),
        Some(slot) => Finding::ok(ID, format!("slot at {slot}, last confirmed event at {confirmed}")),
        None => Finding::skipped(ID, "the slot has no confirmed position"),
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
