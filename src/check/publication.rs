//! Verdicts about what the publication sends: `pub.*`.

use crate::config::{Config, Outbox, OutboxSource};
use crate::source::catalog::survey::{OutboxTable, Survey};
use crate::source::catalog::{Publication, PublishedTable};

use super::Finding;
use super::facts::Facts;
use super::words;

/// The schema of outboxd's own tables.
const OWN_SCHEMA: &str = "outboxd";

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let Some(survey) = &facts.survey else { return Vec::new() };
    let name = config.postgres.publication.as_str();
    let Some(publication) = &survey.publication else { return vec![missing(name, &survey.tables)] };
    let mut findings = vec![exists(name, publication, &survey.tables), scope(name, publication, &survey.tables)];
    findings.extend(filter(name, publication, &config.outbox, survey));
    findings.push(partition(name, publication, &survey.tables));
    findings
}

fn missing(name: &str, tables: &[OutboxTable]) -> Finding {
    let target = match tables {
        [] => String::new(),
        tables => format!(" FOR TABLE {}", tables.iter().map(sql_name).collect::<Vec<_>>().join(", ")),
    };
    Finding::fail("pub.exists", format!("publication \"{name}\" does not exist")).hint(format!(
        "CREATE PUBLICATION {}{target} WITH (publish = 'insert', publish_via_partition_root = true);  -- before the \
         slot",
        words::identifier(name)
    ))
}

fn exists(name: &str, publication: &Publication, tables: &[OutboxTable]) -> Finding {
    const ID: &str = "pub.exists";
    let identifier = words::identifier(name);
    if !publication.insert {
        return Finding::fail(ID, format!("publication \"{name}\" sends no inserts"))
            .hint(format!("ALTER PUBLICATION {identifier} SET (publish = 'insert');"));
    }
    if let Some(absent) = tables.iter().find(|table| table.kind.is_none()) {
        return Finding::fail(ID, format!("table {} does not exist", plain_name(absent)))
            .hint("outboxd init, or mend outbox.table or outbox.join");
    }
    if let Some(wrong) = tables.iter().find(|table| !matches!(table.kind.as_deref(), Some("r" | "p"))) {
        return Finding::fail(ID, format!("{} is not a table, so nothing of it is in the WAL", plain_name(wrong)))
            .hint("name the table that the rows are written to in outbox.table");
    }
    if let Some(unlogged) = tables.iter().find(|table| table.unlogged) {
        return Finding::fail(
            ID,
            format!("table {} is unlogged, so nothing of it is in the WAL", plain_name(unlogged)),
        )
        .hint(format!("ALTER TABLE {} SET LOGGED;", sql_name(unlogged)));
    }
    match tables.iter().find(|table| !is_published(publication, table)) {
        Some(left_out) => Finding::fail(ID, format!("publication \"{name}\" lacks table {}", plain_name(left_out)))
            .hint(format!("ALTER PUBLICATION {identifier} ADD TABLE {};", sql_name(left_out))),
        None => Finding::ok(ID, format!("publication \"{name}\" sends the inserts of every outbox")),
    }
}

fn scope(name: &str, publication: &Publication, tables: &[OutboxTable]) -> Finding {
    const ID: &str = "pub.scope";
    let identifier = words::identifier(name);
    let actions = [("update", publication.update), ("delete", publication.delete), ("truncate", publication.truncate)];
    let actions: Vec<&str> = actions.iter().filter(|(_, sent)| *sent).map(|(action, _)| *action).collect();
    if let Some(finding) = own(name, publication, tables) {
        return finding;
    }
    if publication.all_tables {
        let targets: Vec<String> = tables.iter().map(sql_name).collect();
        return Finding::warn(
            ID,
            format!("publication \"{name}\" is FOR ALL TABLES: every table is decoded and sent for nothing"),
        )
        .hint(format!(
            "DROP PUBLICATION {identifier}; CREATE PUBLICATION {identifier} FOR TABLE {} WITH (publish \
             = 'insert', publish_via_partition_root = true);",
            targets.join(", ")
        ));
    }
    let ours = |published: &PublishedTable| tables.iter().any(|table| is_of(published, table));
    let others: Vec<String> = publication
        .tables
        .iter()
        .filter(|published| !ours(published))
        .map(|published| format!("{}.{}", published.schema, published.name))
        .collect();
    if let [first, rest @ ..] = others.as_slice() {
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        return Finding::warn(
            ID,
            format!("publication \"{name}\" also sends {first}{more}, decoded and sent for nothing"),
        )
        .hint(format!("ALTER PUBLICATION {identifier} DROP TABLE {first};"));
    }
    match actions.is_empty() {
        true => Finding::ok(ID, format!("publication \"{name}\" sends inserts of the outbox and nothing else")),
        false => Finding::warn(
            ID,
            format!("publication \"{name}\" also sends {}, decoded and sent for nothing", actions.join(", ")),
        )
        .hint(format!("ALTER PUBLICATION {identifier} SET (publish = 'insert');")),
    }
}

/// Letters and positions must not come back to whoever writes them.
fn own(name: &str, publication: &Publication, tables: &[OutboxTable]) -> Option<Finding> {
    const ID: &str = "pub.scope";
    if let Some(own) = tables.iter().find(|table| table.schema == OWN_SCHEMA) {
        let message = format!("outbox {} is outboxd's own: a rejected letter would be a letter again", plain_name(own));
        return Some(Finding::fail(ID, message).hint("name the table that applications write to in outbox.table"));
    }
    let own: Vec<String> = publication
        .tables
        .iter()
        .filter(|published| published.schema == OWN_SCHEMA)
        .map(|published| format!("{OWN_SCHEMA}.{}", words::identifier(&published.name)))
        .collect();
    // A publication of all tables has no list to take them from.
    if own.is_empty() || publication.all_tables {
        return None;
    }
    let own = own.join(", ");
    let message = format!("publication \"{name}\" sends {own}, outboxd's own: what it writes there comes back to it");
    Some(Finding::warn(ID, message).hint(format!("ALTER PUBLICATION {} DROP TABLE {own};", words::identifier(name))))
}

fn filter(name: &str, publication: &Publication, outboxes: &[Outbox], survey: &Survey) -> Vec<Finding> {
    const ID: &str = "pub.filter";
    let mut findings = Vec::new();
    for table in &survey.tables {
        let Some(published) = publication.tables.iter().find(|published| is_of(published, table)) else { continue };
        if let Some(filter) = &published.row_filter {
            let message = format!("publication \"{name}\" sends only rows of {} where {filter}", plain_name(table));
            findings.push(Finding::warn(ID, message).hint(format!(
                "ALTER PUBLICATION {} SET TABLE {};  -- without WHERE, if all are wanted",
                words::identifier(name),
                sql_name(table)
            )));
        }
        for column in outboxes.iter().flat_map(|outbox| mapped(outbox, table)) {
            let left_out = published.columns.as_ref().is_some_and(|sent| sent.iter().all(|sent| sent != column));
            let exists = table.columns.iter().find(|known| known.name == column);
            // Generated columns are not sent before 18, whatever the list says.
            let generated = exists.is_some_and(|column| column.generated) && survey.server.version < 180_000;
            if exists.is_some() && (left_out || generated) {
                let why = if generated {
                    "is generated, and generated columns are not sent before PostgreSQL 18"
                } else {
                    "is not in the publication's column list"
                };
                findings.push(Finding::fail(ID, format!("column \"{column}\" of {} {why}", plain_name(table))).hint(
                    format!(
                        "ALTER PUBLICATION {} SET TABLE {};  -- without a column list; or map another column",
                        words::identifier(name),
                        sql_name(table)
                    ),
                ));
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(ID, format!("publication \"{name}\" leaves out no row and no mapped column")));
    }
    findings
}

fn partition(name: &str, publication: &Publication, tables: &[OutboxTable]) -> Finding {
    const ID: &str = "pub.partition";
    let partitioned = tables.iter().find(|table| table.kind.as_deref() == Some("p"));
    match partitioned {
        None => Finding::ok(ID, "no outbox is partitioned"),
        Some(_) if publication.via_root => Finding::ok(ID, "partitions arrive under the name of their root"),
        // Under their own names no outbox knows them, so that their rows would be passed over in silence.
        Some(table) => Finding::fail(
            ID,
            format!("rows of {} arrive under their partitions' names, which no outbox is mapped to", plain_name(table)),
        )
        .hint(format!("ALTER PUBLICATION {} SET (publish_via_partition_root = true);", words::identifier(name))),
    }
}

/// The columns that this block maps of this table.
fn mapped<'a>(outbox: &'a Outbox, table: &OutboxTable) -> Vec<&'a str> {
    let payload = outbox.columns.payload.as_str();
    match &outbox.join {
        Some(join) if is_source(outbox, table) => {
            // One column may play several parts; only the payload's own is elsewhere.
            let own = outbox.columns.names().filter(|name| *name != payload);
            own.chain([join.event_column.as_str()]).collect()
        }
        Some(join) if (join.schema.as_str(), join.table.as_str()) == (&table.schema, &table.name) => {
            vec![payload, &join.payload_column]
        }
        None if is_source(outbox, table) => outbox.columns.names().collect(),
        Some(_) | None => Vec::new(),
    }
}

/// True when this block is about this table.
pub(super) fn is_source(outbox: &Outbox, table: &OutboxTable) -> bool {
    match &outbox.source {
        OutboxSource::Table { schema, name } => *schema == table.schema && *name == table.name,
        OutboxSource::MessagePrefix(_) => false,
    }
}

/// `schema.name`, for messages.
pub(super) fn plain_name(table: &OutboxTable) -> String {
    format!("{}.{}", table.schema, table.name)
}

/// `schema.name`, for statements.
pub(super) fn sql_name(table: &OutboxTable) -> String {
    format!("{}.{}", words::identifier(&table.schema), words::identifier(&table.name))
}

fn is_published(publication: &Publication, table: &OutboxTable) -> bool {
    // Without the root's name, a partitioned table is there when all its leaves are.
    let has = |name: &str| {
        publication.tables.iter().any(|published| format!("{}.{}", published.schema, published.name) == name)
    };
    has(&plain_name(table))
        || (!table.leaves.is_empty() && table.kind.as_deref() == Some("p") && table.leaves.iter().all(|leaf| has(leaf)))
}

/// True when this is the table, or one of its partitions.
fn is_of(published: &PublishedTable, table: &OutboxTable) -> bool {
    let name = format!("{}.{}", published.schema, published.name);
    name == plain_name(table) || table.leaves.contains(&name)
}

#[cfg(test)]
#[path = "publication_tests.rs"]
mod tests;
