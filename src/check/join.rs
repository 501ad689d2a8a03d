//! Verdicts about second tables that hold the payloads: `outbox.join`.

use crate::config::{Config, Join, Outbox};
use crate::source::catalog::survey::{OutboxTable, Survey};

use super::Finding;
use super::facts::Facts;
use super::outbox::{find, joined, names, payload};
use super::publication::{is_source, plain_name, sql_name};
use super::words;

const ID: &str = "outbox.join";

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let Some(survey) = &facts.survey else { return Vec::new() };
    let joins = config.outbox.iter().filter_map(|outbox| Some((outbox, outbox.join.as_ref()?)));
    let mut findings: Vec<Finding> = joins.flat_map(|(outbox, join)| tables(outbox, join, survey)).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(ID, "every event has its payload in its own row"));
    }
    findings
}

/// A table that does not exist is found with the publication.
fn tables(outbox: &Outbox, join: &Join, survey: &Survey) -> Vec<Finding> {
    let Some(payloads) = joined(outbox, survey).filter(|table| table.kind.is_some()) else { return Vec::new() };
    let Some(events) = survey.tables.iter().find(|table| is_source(outbox, table) && table.kind.is_some()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    findings.extend(payload(payloads, &outbox.columns.payload).map(|finding| Finding { id: ID, ..finding }));
    findings.extend(on(events, &join.event_column));
    findings.extend(on(payloads, &join.payload_column));
    if findings.is_empty() {
        findings.push(again(payloads, join, survey));
    }
    findings
}

fn on(table: &OutboxTable, column: &str) -> Option<Finding> {
    if find(table, column).is_some() {
        return None;
    }
    let message = format!("{} has no column \"{column}\", which join is on", plain_name(table));
    let hint = "in [[outbox]]: join = { table = \"…\", on = \"column of the events = column of the payloads\" }";
    Some(Finding::fail(ID, message).hint(format!("{hint}, one of {}", names(table))))
}

/// An event that was parked without its payload is completed by SQL.
fn again(table: &OutboxTable, Join { event_column, payload_column, .. }: &Join, survey: &Survey) -> Finding {
    if !table.readable {
        let grant = format!("GRANT SELECT ON {} TO {};", sql_name(table), words::identifier(&survey.role.name));
        let message = format!(
            "rows of {} may not be read: an event that is parked without its payload stays parked",
            plain_name(table)
        );
        return Finding::warn(ID, message).hint(grant);
    }
    if !table.indexed.contains(payload_column) {
        let message = format!(
            "{} has no index on \"{payload_column}\": the payload of a parked event is looked for in the whole table",
            plain_name(table)
        );
        let column = words::identifier(payload_column);
        return Finding::warn(ID, message)
            .hint(format!("CREATE INDEX CONCURRENTLY ON {} ({column});", sql_name(table)));
    }
    Finding::ok(ID, format!("payloads are in {}, where {event_column} = {payload_column}", plain_name(table)))
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
