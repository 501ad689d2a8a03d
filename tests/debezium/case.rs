//! One case of the matrix: a table, rows, and the options of Debezium. It is written down once, and then set up for the real
//! Debezium by `record` and for outboxd by `replay`.

use std::collections::BTreeMap;

pub const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";
pub const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
pub const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
pub const SIMPLE: &str = "org.apache.kafka.connect.storage.SimpleHeaderConverter";
pub const BINARY: &str = "io.debezium.converters.BinaryDataConverter";

/// Slots and tables are named after their case, and PostgreSQL's names end here; a type of the case needs a few more.
const LONGEST: usize = 58;

/// How a part of the record becomes bytes.
#[derive(Debug, Clone, Copy)]
pub enum As {
    /// `StringConverter`.
    Text,
    /// `JsonConverter` without schemas.
    Json,
    /// `JsonConverter` with schemas.
    Schema,
    /// Any other converter, by its class.
    Class(&'static str),
}

/// What Debezium is expected to do; when it does something else, nothing is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// So many records, and goes on.
    Publishes(usize),
    /// So many records, and stops at the last row.
    StopsBehind(usize),
    /// Does not begin.
    Refuses,
}

/// A table, its rows, and the options.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    schema: String,
    before: String,
    columns: Vec<(String, String)>,
    key: Option<String>,
    statements: Vec<String>,
    rows: usize,
    fatal: bool,
    outcome: Option<Outcome>,
    /// As they stand under `[outbox.debezium]`.
    options: BTreeMap<String, String>,
    /// Of the connector alone: outboxd has no such thing.
    connector: BTreeMap<String, String>,
}

impl Case {
    /// The usual table of Debezium's documentation, without rows; everything as text, and no context headers.
    pub fn new(name: impl Into<String>) -> Case {
        let name = name.into();
        assert!(name.len() <= LONGEST, "{name} is too long for a slot");
        let columns = [
            ("id", "uuid"),
            ("aggregatetype", "text"),
            ("aggregateid", "text"),
            ("type", "text"),
            ("payload", "jsonb"),
        ];
        let case = Case {
            name,
            schema: "public".to_string(),
            before: String::new(),
            columns: columns.map(|(name, kind)| (name.to_string(), kind.to_string())).to_vec(),
            key: Some("id".to_string()),
            statements: Vec::new(),
            rows: 0,
            fatal: false,
            outcome: None,
            options: BTreeMap::new(),
            connector: BTreeMap::new(),
        };
        case.set("extended.headers.enabled", "false").key(As::Text).value(As::Text).header(As::Class(SIMPLE))
    }

    /// An option, as it stands under `[outbox.debezium]`.
    pub fn set(mut self, name: &str, value: &str) -> Case {
        self.options.insert(name.to_string(), value.replace("{case}", &self.name));
        self
    }

    /// An option that only Kafka Connect has.
    pub fn connector(mut self, name: &str, value: &str) -> Case {
        self.connector.insert(name.to_string(), value.to_string());
        self
    }

    /// `table.fields.additional.placement`.
    pub fn place(self, placement: &str) -> Case {
        self.set("table.fields.additional.placement", placement)
    }

    pub fn key(self, how: As) -> Case {
        self.convert("key", how)
    }

    pub fn value(self, how: As) -> Case {
        self.convert("value", how)
    }

    pub fn header(self, how: As) -> Case {
        self.convert("header", how)
    }

    fn convert(self, part: &str, how: As) -> Case {
        let name = format!("{part}.converter");
        let schemas = format!("{name}.schemas.enable");
        match how {
            As::Text => self.set(&name, STRING),
            As::Json => self.set(&name, JSON).set(&schemas, "false"),
            As::Schema => self.set(&name, JSON).set(&schemas, "true"),
            As::Class(class) => self.set(&name, class),
        }
    }

    /// Adds a column, or gives one another type; whatever may stand behind a column's name in SQL.
    pub fn column(mut self, name: &str, kind: &str) -> Case {
        let kind = kind.replace("{case}", &self.name);
        match self.columns.iter_mut().find(|(found, _)| found == name) {
            Some((_, found)) => *found = kind,
            None => self.columns.push((name.to_string(), kind)),
        }
        self
    }

    /// A table without this column.
    pub fn without(mut self, name: &str) -> Case {
        self.columns.retain(|(found, _)| found != name);
        self
    }

    /// A table without a primary key, so that any column may be NULL.
    pub fn without_key(mut self) -> Case {
        self.key = None;
        self
    }

    /// What the table needs before it can be made.
    pub fn before(mut self, sql: &str) -> Case {
        self.before = self.filled(sql);
        self
    }

    /// A schema other than `public`.
    pub fn schema(mut self, schema: &str) -> Case {
        self.schema = schema.to_string();
        self.before = format!("create schema if not exists {schema}");
        self
    }

    /// A row: these columns as SQL, the others as usual.
    pub fn row(mut self, values: &[(&str, &str)]) -> Case {
        self.rows += 1;
        let number = self.rows;
        let usual = |column: &str| match column {
            "id" => Some(format!("'00000000-0000-4000-8000-{number:012}'")),
            "aggregatetype" => Some("'{case}'".to_string()),
            "aggregateid" => Some(format!("'a-{number}'")),
            "type" => Some("'Created'".to_string()),
            "payload" => Some("'{\"a\": 1}'".to_string()),
            _ => None,
        };
        let written: Vec<(&str, String)> = self
            .columns
            .iter()
            .filter_map(|(column, _)| {
                let given = values.iter().find(|(name, _)| name == column).map(|(_, value)| value.to_string());
                Some((column.as_str(), given.or_else(|| usual(column))?))
            })
            .collect();
        assert!(
            values.iter().all(|(name, _)| written.iter().any(|(column, _)| column == name)),
            "{}: {values:?}",
            self.name
        );
        let names: Vec<String> = written.iter().map(|(name, _)| quoted(name)).collect();
        let values: Vec<&str> = written.iter().map(|(_, value)| value.as_str()).collect();
        let sql = format!("insert into {{table}} ({}) values ({})", names.join(", "), values.join(", "));
        self.statements.push(self.filled(&sql));
        self
    }

    /// One row for each of these values of a column.
    pub fn rows(self, column: &str, values: &[&str]) -> Case {
        values.iter().fold(self, |case, value| case.row(&[(column, value)]))
    }

    /// A statement that is no insert, and that nothing is published of.
    pub fn sql(mut self, sql: &str) -> Case {
        self.statements.push(self.filled(sql));
        self
    }

    /// The row that Debezium's task ends at.
    pub fn fatal(mut self, values: &[(&str, &str)]) -> Case {
        self.fatal = true;
        self.row(values)
    }

    /// A statement that Debezium's task ends at.
    pub fn fatal_sql(mut self, sql: &str) -> Case {
        self.fatal = true;
        self.rows += 1;
        self.sql(sql)
    }

    /// Debezium does not begin with such options.
    pub fn refused(mut self) -> Case {
        self.outcome = Some(Outcome::Refuses);
        self
    }

    /// Another number of records than there are rows.
    pub fn publishes(mut self, records: usize) -> Case {
        self.outcome = Some(if self.fatal { Outcome::StopsBehind(records) } else { Outcome::Publishes(records) });
        self
    }

    /// What Debezium is expected to do.
    pub fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(match self.fatal {
            true => Outcome::StopsBehind(self.rows - 1),
            false => Outcome::Publishes(self.rows),
        })
    }

    /// `schema.table`.
    pub fn table(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    pub fn ddl(&self) -> String {
        let mut columns: Vec<String> =
            self.columns.iter().map(|(name, kind)| format!("{} {kind}", quoted(name))).collect();
        columns.extend(self.key.as_ref().map(|key| format!("primary key ({key})")));
        let before = if self.before.is_empty() { String::new() } else { format!("{};\n", self.before) };
        format!("{before}create table {} ({})", self.table(), columns.join(", "))
    }

    /// In the order in which they are run. With `StopsBehind`, the task ends at the last one.
    pub fn statements(&self) -> &[String] {
        &self.statements
    }

    pub fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// The same options where a connector has them: the router's behind its alias.
    pub fn connector_options(&self) -> BTreeMap<String, String> {
        let placed = self.options.iter().map(|(name, value)| match is_the_connectors(name) {
            true => (name.clone(), value.clone()),
            false => (format!("transforms.outbox.{name}"), value.clone()),
        });
        placed.chain(self.connector.clone()).collect()
    }

    fn filled(&self, sql: &str) -> String {
        sql.replace("{table}", &self.table()).replace("{case}", &self.name)
    }
}

/// Options of the connector that change how a column is rendered; all others are the router's.
fn is_the_connectors(option: &str) -> bool {
    const OF_ITS_OWN: [&str; 8] = [
        "binary.handling.mode",
        "decimal.handling.mode",
        "extended.headers.enabled",
        "hstore.handling.mode",
        "include.unknown.datatypes",
        "interval.handling.mode",
        "time.precision.mode",
        "unavailable.value.placeholder",
    ];
    OF_ITS_OWN.contains(&option) || ["key.", "value.", "header."].iter().any(|part| option.starts_with(part))
}

/// A name that need not be quoted stays as people write it.
fn quoted(name: &str) -> String {
    match name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        true => name.to_string(),
        false => format!("\"{name}\""),
    }
}
