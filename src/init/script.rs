//! The script: the SQL files of this directory and of `migrations/`, with the configuration's names in their places.

use std::time::Duration;

use crate::config::{Config, Outbox, OutboxSource, Preset};
use crate::error::{Error, Result};
use crate::source::catalog::{quote_identifier, quote_literal};

/// Applied in this order, each once; a file that was released is never changed.
const MIGRATIONS: [Migration; 5] = [
    Migration { version: 1, name: "0001_relay", body: include_str!("../../migrations/0001_relay.sql") },
    Migration { version: 2, name: "0002_messages", body: include_str!("../../migrations/0002_messages.sql") },
    Migration { version: OUTBOX, name: "0003_outbox", body: include_str!("../../migrations/0003_outbox.sql") },
    Migration { version: 4, name: "0004_dead_letters", body: include_str!("../../migrations/0004_dead_letters.sql") },
    Migration { version: 5, name: "0005_letter_types", body: include_str!("../../migrations/0005_letter_types.sql") },
];

/// The migration that only a configuration with our own outbox table needs.
const OUTBOX: u32 = 3;

/// The columns that migration makes.
const OUR_COLUMNS: [&str; 8] =
    ["id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "created_at", "idempotency_key"];

/// PostgreSQL cuts longer names off, and then means another object.
const NAME_BYTES_MAX: usize = 63;

struct Migration {
    version: u32,
    name: &'static str,
    body: &'static str,
}

/// What is run, in order.
pub(super) struct Script {
    /// One transaction.
    pub(super) setup: Vec<Step>,
    /// After its commit: a slot cannot be made in a transaction that has written.
    pub(super) slot: Step,
    /// What the DBA who pastes it reads first.
    pub(super) heading: String,
    /// What the person reads at the end.
    pub(super) afterwards: String,
}

/// Some statements with one purpose.
pub(super) struct Step {
    /// For the script's reader.
    pub(super) title: String,
    /// For an error: what cannot be done.
    pub(super) what: &'static str,
    /// The rights that it takes.
    needs: &'static str,
    /// The statements, ending in a newline.
    pub(super) sql: String,
}

impl Script {
    pub(super) fn new(config: &Config) -> Result<Script> {
        let postgres = &config.postgres;
        let role = &postgres.connection.user;
        for (field, name) in [("user", role), ("publication", &postgres.publication), ("slot", &postgres.slot)] {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let why = format!("postgres.{field} {name:?} is not a name of 1 to {NAME_BYTES_MAX} bytes");
                return Err(Error::definite(why));
            }
        }
        let fill = |template: &str| {
            template
                .replace("{database}", &literal(&postgres.connection.dbname))
                .replace("{newest}", &MIGRATIONS[MIGRATIONS.len() - 1].version.to_string())
                .replace("{role}", &literal(role))
                .replace("{publication}", &literal(&postgres.publication))
                .replace("{slot}", &literal(&postgres.slot))
                .replace("{timeout}", &quote_literal(&milliseconds(config.limits.slot_creation)))
                .replace("{tables}", &array(&config.outbox))
                .replace("{written_tables}", &texts(written(&config.outbox).map(|(table, _)| table)))
                .replace("{written_columns}", &texts(written(&config.outbox).map(|(_, column)| column.to_owned())))
        };
        let mut setup = vec![BEGIN.with(fill(include_str!("begin.sql")))];
        let ours = config.outbox.iter().any(is_ours);
        let wanted = MIGRATIONS.iter().filter(|migration| migration.version != OUTBOX || ours);
        setup.extend(wanted.map(Migration::step));
        setup.push(ROLE.with(fill(include_str!("role.sql"))));
        setup.push(PUBLISH.with(fill(include_str!("publication.sql"))));
        setup.push(COMMIT.with("COMMIT;\n".to_owned()));
        Ok(Script {
            heading: format!(
                "For psql, connected to database \"{}\" as a superuser, or as its owner with CREATEROLE and REPLICATION.",
                postgres.connection.dbname
            ),
            setup,
            slot: SLOT.with(fill(include_str!("slot.sql"))),
            afterwards: afterwards(role, &config.outbox),
        })
    }
}

impl Step {
    /// Adds what the administrator can do: about a right that is missing, about somebody in the way.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error.sqlstate() {
            Some("42501") => error.hint(format!("this step needs {}", self.needs)),
            Some("55P03") => {
                error.hint("another session holds a lock on it: if that is another init, wait for its end")
            }
            _ => error,
        }
    }
}

/// A step without its statements.
struct Purpose {
    title: &'static str,
    what: &'static str,
    needs: &'static str,
}

impl Purpose {
    fn with(&self, sql: String) -> Step {
        Step { title: self.title.to_owned(), what: self.what, needs: self.needs, sql }
    }
}

const BEGIN: Purpose = Purpose {
    title: "One init at a time, in the right database, and never backwards.",
    what: "cannot prepare the schema outboxd",
    needs: "CREATE on the database, and the ownership of schema outboxd where it exists",
};
const MIGRATE: Purpose = Purpose {
    title: "A migration.",
    what: "cannot apply the migrations",
    needs: "CREATE on the database and on schema public (GRANT CREATE ON SCHEMA public TO ...)",
};
const ROLE: Purpose = Purpose {
    title: "The relay's role, with the least it needs.",
    what: "cannot prepare the relay's role",
    needs: "CREATEROLE, and the ownership of the outbox tables and of schema outboxd",
};
const PUBLISH: Purpose = Purpose {
    title: "The publication: inserts only; partitions under their root's name.",
    what: "cannot prepare the publication",
    needs: "CREATE on the database, and the ownership of the publication and of the outbox tables",
};
const COMMIT: Purpose = Purpose { title: "All of it, or nothing.", what: "cannot commit", needs: "" };
const SLOT: Purpose = Purpose {
    title: "The slot. It waits until every transaction that is open now has ended.",
    what: "cannot create the replication slot",
    needs: "the attribute REPLICATION: run the slot's statements as the relay's role, or as a superuser",
};

impl Migration {
    fn step(&self) -> Step {
        // The body goes in last: no other placeholder is looked for inside of it.
        let sql = include_str!("migration.sql")
            .replace("{version}", &self.version.to_string())
            .replace("{name}", &quote_literal(self.name))
            .replace("{body}", self.body);
        Step { title: format!("Migration {}; skipped where it was applied.", self.name), ..MIGRATE.with(sql) }
    }
}

/// A table is ours to make when it has our name and no column is mapped that ours does not have; any other is
/// somebody's own, to be read as it is.
fn is_ours(outbox: &Outbox) -> bool {
    let OutboxSource::Table { schema, name } = &outbox.source else { return false };
    matches!(outbox.preset, Preset::Outboxd)
        && (schema.as_str(), name.as_str()) == ("public", "outbox")
        && outbox.join.is_none()
        && outbox.columns.names().all(|name| OUR_COLUMNS.contains(&name))
}

/// The tables as an array of qualified, quoted names.
fn array(outbox: &[Outbox]) -> String {
    texts(outbox.iter().flat_map(Outbox::tables).map(qualified))
}

/// Each column that is written back, behind its table.
fn written(outbox: &[Outbox]) -> impl Iterator<Item = (String, &str)> {
    outbox.iter().flat_map(|outbox| {
        let columns = outbox.writeback.iter().flat_map(|writeback| writeback.names());
        columns.filter_map(|column| Some((outbox.own_table().map(qualified)?, column)))
    })
}

fn qualified((schema, name): (&str, &str)) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

fn texts(texts: impl Iterator<Item = String>) -> String {
    format!("ARRAY[{}]::text[]", texts.map(|text| literal(&text)).collect::<Vec<_>>().join(", "))
}

/// A literal for a template: what closes the dollar quotes around it or looks like a placeholder is spelled in hex.
fn literal(value: &str) -> String {
    let quoted = quote_literal(value);
    if !quoted.contains(['$', '{']) {
        return quoted;
    }
    let escaped = quoted.replace('$', "\\x24").replace('{', "\\x7b");
    if escaped.starts_with('E') { escaped } else { format!("E{escaped}") }
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn afterwards(role: &str, outbox: &[Outbox]) -> String {
    let mut lines = vec![
        "Rows committed before the slot was created are not sent: the relay starts here.".to_owned(),
        format!("Next: give the relay's role a password if it is new, in psql: \\password {}", quote_identifier(role)),
    ];
    if outbox.iter().any(is_ours) {
        lines.push("      let the application write: GRANT INSERT, SELECT ON public.outbox TO ...".to_owned());
    }
    lines.push("      prove the set-up: outboxd check".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_on_disk_is_applied_in_order() {
        let mut on_disk: Vec<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        on_disk.sort();
        let known: Vec<String> = MIGRATIONS.iter().map(|migration| format!("{}.sql", migration.name)).collect();
        assert_eq!(on_disk, known);
        for (place, migration) in (1..).zip(&MIGRATIONS) {
            assert_eq!(migration.version, place);
            assert!(migration.name.starts_with(&format!("{place:04}_")), "{}", migration.name);
        }
    }

    #[test]
    fn a_migration_survives_every_terminal_and_its_own_quoting() {
        for Migration { name, body, .. } in MIGRATIONS {
            assert!(body.is_ascii() && !body.contains('\t') && !body.contains('\r'), "{name}");
            assert!(!body.contains("$migration$") && !body.contains("$outboxd$"), "{name}");
            assert!(body.ends_with('\n'), "{name}");
        }
    }
}
