//! What `outboxd check` asks beyond the facts every command needs: settings, role, neighbours, and a sample of rows.
//!
//! Plain SELECTs enter, plain structs leave, nothing is judged here. What a privilege hides is `None`. Nothing is
//! written, and no query reads a whole table.

mod writeback;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::ToSql;

use super::{Catalog, Place, Publication, Server, Slot, Transaction, quote_identifier, quote_literal};
use crate::config::{Outbox, OutboxSource, Writeback};
use crate::error::{Error, Result};
pub use writeback::WritebackFacts;

/// What to look at.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The slot's name.
    pub slot: &'a str,
    /// The publication's name.
    pub publication: &'a str,
    /// The outboxes; those without a table are passed over.
    pub outboxes: &'a [Outbox],
    /// Columns that routes name beside the mapped parts.
    pub route_columns: &'a BTreeSet<String>,
}

/// Everything the database said.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Survey {
    pub server: Server,
    pub setup: Setup,
    pub role: Role,
    pub slot: Option<Slot>,
    /// All slots of the cluster, ours included.
    pub slots: Vec<AnySlot>,
    pub senders: Senders,
    pub publication: Option<Publication>,
    /// In the order of `Ask::outboxes`, tables only; behind one that is joined, its second table.
    pub tables: Vec<OutboxTable>,
    pub transactions: Vec<Transaction>,
    pub spill: Option<Spill>,
    pub position_table: Option<PositionTable>,
    pub place: Option<Place>,
    pub letters: LetterStore,
}

/// How the server is set up.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Setup {
    /// The database this session is in.
    pub database: String,
    /// The TLS version of this session.
    pub tls: Option<String>,
    /// A function `aurora_version` exists.
    pub aurora: bool,
    /// A role `supabase_admin` exists.
    pub supabase: bool,
    /// WAL bytes per second since `pg_stat_wal` was last reset.
    #[serde(skip)]
    pub wal_rate: Option<f64>,
    /// The settings a check looks at, and those of the known providers.
    #[serde(skip)]
    pub settings: BTreeMap<String, Setting>,
}

/// One row of `pg_settings`.
#[derive(Debug, Clone, Default, Deserialize)]
#[allow(missing_docs)]
pub struct Setting {
    pub setting: String,
    pub unit: Option<String>,
}

/// The role of this session.
#[derive(Debug, Clone, Default, Deserialize)]
#[allow(missing_docs)]
pub struct Role {
    pub name: String,
    pub superuser: bool,
    pub replication: bool,
    pub bypass_rls: bool,
    /// Member of Amazon's `rds_replication`.
    pub rds_replication: bool,
}

/// Any slot, as far as capacity and standbys go.
#[derive(Debug, Clone, Default, Deserialize)]
#[allow(missing_docs)]
pub struct AnySlot {
    pub slot_name: String,
    pub slot_type: String,
    pub active: bool,
    pub wal_status: Option<String>,
    /// 17 and later.
    pub invalidation_reason: Option<String>,
}

/// The walsenders at work.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Senders {
    /// All of them.
    pub all: i64,
    /// Those that stream without a logical slot: physical standbys.
    pub physical: i64,
}

/// One outbox table, if it is there at all.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct OutboxTable {
    /// The schema's name, unquoted.
    pub schema: String,
    /// The table's name, unquoted.
    pub name: String,
    /// `r`, `p` (partitioned), `v`…; `None`: there is no such table.
    #[serde(default)]
    pub kind: Option<String>,
    /// Never in the WAL.
    #[serde(default)]
    pub unlogged: bool,
    /// Row-level security applies to our role here.
    #[serde(default)]
    pub row_security: bool,
    /// We may SELECT.
    #[serde(default)]
    pub readable: bool,
    /// In the table's own order.
    #[serde(default)]
    pub columns: Vec<OutboxColumn>,
    /// First columns of indexes: what can be sorted by without reading the whole table.
    #[serde(default)]
    pub indexed: Vec<String>,
    /// The leaves of a partitioned table, as `schema.name`.
    #[serde(default)]
    pub leaves: Vec<String>,
    /// Some of its newest and oldest rows; `None` when they could not be read.
    #[serde(skip)]
    pub sample: Option<Vec<SampleRow>>,
    /// `None` when its outbox has no write-back.
    #[serde(skip)]
    pub writeback: Option<WritebackFacts>,
}

/// One column of an outbox table.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct OutboxColumn {
    /// Its name.
    pub name: String,
    /// Its type without modifiers, a domain's base type for a domain.
    #[serde(rename = "type")]
    pub type_name: String,
    /// NULL is refused.
    pub not_null: bool,
    /// `GENERATED ALWAYS AS`, which only PostgreSQL 18 can publish.
    pub generated: bool,
}

/// One row of the sample: what routes and limits need of it, never its payload.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SampleRow {
    /// Column → its text.
    pub columns: BTreeMap<String, Option<String>>,
    /// Seconds since its timestamp; negative when that lies in the future.
    pub age: Option<f64>,
    /// Bytes of its payload: exact for the largest few, at least this for the others.
    pub size: Option<i64>,
}

/// `pg_stat_replication_slots`
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[allow(missing_docs)]
pub struct Spill {
    pub spill_bytes: i64,
    pub total_bytes: i64,
}

/// What we may do with `outboxd.position`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[allow(missing_docs)]
pub struct PositionTable {
    pub usage: bool,
    pub select: bool,
    pub insert: bool,
    pub update: bool,
}

/// Where dead letters are kept in the database, and what is there of our slot.
#[derive(Debug, Clone, Default)]
pub struct LetterStore {
    /// The tables of schema `outboxd`.
    pub tables: Vec<OwnTable>,
    /// `None` when they cannot be read.
    pub open: Option<OpenLetters>,
    /// One while the line is paused, none otherwise; `None` when nobody can tell.
    pub pauses: Option<Vec<Pause>>,
}

/// A table of schema `outboxd`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct OwnTable {
    /// Its name, without the schema.
    pub name: String,
    /// We may use its schema.
    pub usage: bool,
    /// What we may do with it, of SELECT, INSERT, UPDATE and DELETE.
    pub rights: Vec<String>,
    /// The names of its columns.
    pub columns: Vec<String>,
}

/// The letters that are neither delivered nor discarded.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct OpenLetters {
    /// All of them.
    pub all: i64,
    /// Those that wait for a person.
    pub failed: i64,
    /// How many seconds ago the oldest of these was parked.
    pub oldest_failed: Option<f64>,
    /// How many keys of topics they have.
    pub keys: i64,
}

/// A line that stands until somebody resumes it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pause {
    /// Since so many seconds.
    pub seconds: f64,
    /// Why.
    pub message: String,
}

impl Catalog {
    /// Asks everything that `outboxd check` judges. Only a lost session is an error.
    pub async fn survey(&self, ask: &Ask<'_>) -> Result<Survey> {
        let position_table: Option<PositionTable> = self.object(POSITION_TABLE, &[]).await?;
        let place = match position_table {
            Some(table) if table.usage && table.select => self.position(ask.slot).await?,
            Some(_) | None => None,
        };
        Ok(Survey {
            server: self.server().await?,
            setup: self.setup().await?,
            role: self.object(ROLE, &[]).await?.unwrap_or_default(),
            slot: self.slot(ask.slot).await?,
            slots: self.objects(SLOTS, &[]).await?,
            senders: self.object(SENDERS, &[]).await?.unwrap_or_default(),
            publication: self.publication(ask.publication).await?,
            tables: self.outbox_tables(ask).await?,
            transactions: self.open_transactions(self.pid()).await?,
            spill: self.object(SPILL, &[&ask.slot]).await?,
            position_table,
            place,
            letters: self.letter_store(ask.slot).await?,
        })
    }

    async fn letter_store(&self, slot: &str) -> Result<LetterStore> {
        let tables: Vec<OwnTable> = self.objects(OWN_TABLES, &[]).await?;
        let is_readable = |table: &OwnTable| table.usage && table.rights.iter().any(|right| right == "SELECT");
        let has = |name: &str| tables.iter().any(|table| table.name == name && is_readable(table));
        let open = match has("dead_letter") {
            true => self.unless_hidden(self.object(OPEN_LETTERS, &[&slot]).await)?.flatten(),
            false => None,
        };
        let pauses = match has("pause") {
            true => self.unless_hidden(self.objects(PAUSES, &[&slot]).await)?,
            false => None,
        };
        Ok(LetterStore { open, pauses, tables })
    }

    async fn setup(&self) -> Result<Setup> {
        let mut setup: Setup = self.object(SETUP, &[]).await?.unwrap_or_default();
        let settings: Vec<(String, Setting)> = self.objects(SETTINGS, &[]).await?;
        setup.settings = settings.into_iter().collect();
        setup.wal_rate = self.unless_hidden(self.object(WAL_RATE, &[]).await)?.flatten().flatten();
        Ok(setup)
    }

    async fn outbox_tables(&self, ask: &Ask<'_>) -> Result<Vec<OutboxTable>> {
        let mut tables = Vec::new();
        for outbox in ask.outboxes {
            let joined = match outbox.joined_table() {
                Some((schema, name)) => Some(self.outbox_table(schema, name).await?),
                None => None,
            };
            if let OutboxSource::Table { schema, name } = &outbox.source {
                let mut table = self.outbox_table(schema, name).await?;
                if let Some(sql) = sample_sql(&table, outbox, joined.as_ref(), ask.route_columns) {
                    table.sample = self.unless_hidden(self.objects(&sql, &[]).await)?;
                }
                table.writeback = self.writeback_facts(outbox).await?;
                tables.push(table);
            }
            tables.extend(joined);
        }
        Ok(tables)
    }

    async fn outbox_table(&self, schema: &str, name: &str) -> Result<OutboxTable> {
        let table: OutboxTable = self.object(TABLE, &[&schema, &name]).await?.unwrap_or_default();
        Ok(OutboxTable { schema: schema.to_owned(), name: name.to_owned(), ..table })
    }

    /// The rows of a query that gives one JSON text each.
    async fn objects<T: DeserializeOwned>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<T>> {
        let rows = self.rows("cannot survey the database", sql, parameters).await?;
        let parsed = rows.iter().map(|row| serde_json::from_str(row.get(0)));
        parsed.collect::<std::result::Result<_, _>>().map_err(|error| {
            Error::definite("cannot survey the database: its answer has an unknown shape").because(error)
        })
    }

    async fn object<T: DeserializeOwned>(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Option<T>> {
        Ok(self.objects(sql, parameters).await?.into_iter().next())
    }

    /// `None` when the server refused this one question, or was too slow to answer it, and goes on talking to us.
    fn unless_hidden<T>(&self, answer: Result<T>) -> Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.sqlstate().is_some() && !self.is_closed() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

const SETUP: &str = "SELECT jsonb_build_object('database', current_database(), \
    'tls', (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl), \
    'aurora', EXISTS (SELECT FROM pg_proc WHERE proname = 'aurora_version'), \
    'supabase', EXISTS (SELECT FROM pg_roles WHERE rolname = 'supabase_admin'))::text";

const SETTINGS: &str = "SELECT jsonb_build_array(name, jsonb_build_object('setting', setting, 'unit', unit))::text \
    FROM pg_settings WHERE name IN ('wal_level', 'effective_wal_level', 'max_replication_slots', 'max_wal_senders', \
        'max_slot_wal_keep_size', 'idle_replication_slot_timeout', 'synchronized_standby_slots', \
        'synchronous_standby_names', 'logical_decoding_work_mem', 'output_plugin_libraries') \
    OR split_part(name, '.', 1) IN ('rds', 'cloudsql', 'azure', 'neon')";

const WAL_RATE: &str = "SELECT coalesce(to_jsonb((wal_bytes / \
    greatest(extract(epoch FROM now() - stats_reset), 1))::float8), 'null')::text FROM pg_stat_wal";

const ROLE: &str = "SELECT jsonb_build_object('name', rolname, 'superuser', rolsuper, 'replication', rolreplication, \
    'bypass_rls', rolbypassrls, 'rds_replication', EXISTS (SELECT FROM pg_roles AS g \
        WHERE g.rolname = 'rds_replication' AND pg_has_role(g.oid, 'MEMBER')))::text \
    FROM pg_roles WHERE rolname = current_user";

const SLOTS: &str = "SELECT to_jsonb(s)::text FROM pg_replication_slots AS s";

// A session that has not begun to stream may be anybody's, our own too. Without pg_read_all_stats the state is hidden.
const SENDERS: &str = "SELECT jsonb_build_object('all', count(*), 'physical', count(*) FILTER (WHERE \
    coalesce(r.state, 'streaming') IN ('catchup', 'streaming') AND NOT EXISTS \
    (SELECT FROM pg_replication_slots AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')))::text \
    FROM pg_stat_replication AS r";

// pg_class is joined by name: resolving a name needs USAGE on its schema, which a relay may lack.
const TABLE: &str = "SELECT jsonb_build_object('schema', n.nspname, 'name', c.relname, 'kind', c.relkind, \
    'unlogged', c.relpersistence = 'u', 'row_security', row_security_active(c.oid), \
    'readable', has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), \
    'columns', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'not_null', a.attnotnull, \
        'generated', a.attgenerated <> '', \
        'type', format_type(CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, NULL)) \
        ORDER BY a.attnum), '[]') \
      FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid \
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), \
    'indexed', (SELECT coalesce(jsonb_agg(a.attname), '[]') FROM pg_index AS i \
      JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
      WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL), \
    'leaves', (SELECT coalesce(jsonb_agg(ln.nspname || '.' || l.relname), '[]') FROM pg_partition_tree(c.oid) AS p \
      JOIN pg_class AS l ON l.oid = p.relid JOIN pg_namespace AS ln ON ln.oid = l.relnamespace WHERE p.isleaf))::text \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE n.nspname::text = $1 AND c.relname::text = $2";

const SPILL: &str = "SELECT to_jsonb(s)::text FROM pg_stat_replication_slots AS s WHERE s.slot_name::text = $1";

const POSITION_TABLE: &str = "SELECT jsonb_build_object('usage', has_schema_privilege(n.oid, 'USAGE'), \
    'select', has_table_privilege(c.oid, 'SELECT'), 'insert', has_table_privilege(c.oid, 'INSERT'), \
    'update', has_table_privilege(c.oid, 'UPDATE'))::text \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE n.nspname = 'outboxd' AND c.relname = 'position'";

const OWN_TABLES: &str = "SELECT jsonb_build_object('name', c.relname, \
    'usage', has_schema_privilege(n.oid, 'USAGE'), \
    'rights', (SELECT coalesce(jsonb_agg(r.name), '[]') \
      FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r (name) \
      WHERE has_table_privilege(c.oid, r.name)), \
    'columns', (SELECT coalesce(jsonb_agg(a.attname), '[]') FROM pg_attribute AS a \
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE n.nspname = 'outboxd' AND c.relkind IN ('r', 'p')";

// Only open letters are read, which have an index of their own: those that are settled may be many.
const OPEN_LETTERS: &str = "SELECT jsonb_build_object('all', count(*), \
    'failed', count(*) FILTER (WHERE d.state = 'failed'), \
    'oldest_failed', extract(epoch FROM clock_timestamp() - min(d.parked_at) FILTER (WHERE d.state = 'failed')), \
    'keys', count(DISTINCT d.lane))::text \
    FROM outboxd.dead_letter AS d WHERE d.slot = $1 AND d.state IN ('pending', 'retrying', 'failed')";

const PAUSES: &str = "SELECT jsonb_build_object('message', p.message, \
    'seconds', extract(epoch FROM clock_timestamp() - p.since))::text FROM outboxd.pause AS p WHERE p.slot = $1";

/// Up to 1000 rows: the newest 900 and the oldest 100 by an indexed id, or any when no index can order them. Of a joined outbox those that
/// have a payload row. `None` when they cannot be read, or payload rows not by an index.
fn sample_sql(
    table: &OutboxTable,
    outbox: &Outbox,
    joined: Option<&OutboxTable>,
    route_columns: &BTreeSet<String>,
) -> Option<String> {
    let is_readable = |table: &OutboxTable| table.readable && matches!(table.kind.as_deref(), Some("r" | "p"));
    if !is_readable(table) {
        return None;
    }
    let from = qualified(table);
    let parts = &outbox.columns;
    let column = |name: &str| table.columns.iter().find(|column| column.name == name);
    let joined = match (&outbox.join, joined) {
        (Some(join), Some(joined)) => {
            let key = joined.columns.iter().find(|column| column.name == join.payload_column)?;
            if !is_readable(joined) || !joined.indexed.contains(&key.name) {
                return None;
            }
            column(&join.event_column)?;
            Some((joined, join_sql(joined, key, &join.event_column)))
        }
        (Some(_), None) | (None, _) => None,
    };
    let has = |name: &str| joined.as_ref().is_some_and(|(of, _)| of.columns.iter().any(|column| column.name == name));
    let rows = if table.indexed.contains(&parts.id) {
        let id = quote_identifier(&parts.id);
        format!(
            "(SELECT * FROM {from} ORDER BY {id} DESC LIMIT 900) UNION ALL \
             (SELECT * FROM {from} ORDER BY {id} LIMIT 100)"
        )
    } else {
        format!("SELECT * FROM {from} LIMIT 1000")
    };
    let mapped = [&parts.aggregate_type, &parts.aggregate_id, &parts.event_type].into_iter().flatten();
    // What both tables have is the first one's, but for the payload, which is in no sample.
    let place = |name: &str| match (column(name), has(name) && *name != parts.payload) {
        (Some(_), _) => Some("s"),
        (None, true) => Some("j"),
        (None, false) => None,
    };
    let texts: BTreeSet<&String> = mapped.chain(route_columns).collect();
    let text =
        |name: &&String| Some(format!("{}, {}.{}::text", quote_literal(name), place(name)?, quote_identifier(name)));
    let texts: Vec<String> = texts.iter().filter_map(text).collect();
    let age = match parts.timestamp.as_deref().and_then(column) {
        Some(at) if at.type_name == "timestamp with time zone" => age_sql("now()", &at.name),
        Some(at) if at.type_name == "timestamp without time zone" => age_sql("now() AT TIME ZONE 'UTC'", &at.name),
        Some(_) | None => "NULL".to_owned(),
    };
    // Sorting by the stored size detoasts nothing; only the largest few are then measured in full.
    let (payloads, row) = joined.as_ref().map_or((table, "s"), |(joined, _)| (*joined, "j"));
    let (stored, exact) = match payloads.columns.iter().find(|column| column.name == parts.payload) {
        Some(payload) => {
            let name = quote_identifier(&payload.name);
            let text = if payload.type_name == "bytea" { "" } else { "::text" };
            (format!("pg_column_size({row}.{name})"), format!("octet_length({row}.{name}{text})"))
        }
        None => ("0".to_owned(), "0".to_owned()),
    };
    Some(format!(
        "WITH sample AS ({rows}) SELECT jsonb_build_object('columns', jsonb_build_object({}), 'age', {age}, 'size', \
         CASE WHEN row_number() OVER (ORDER BY {stored} DESC NULLS LAST) <= 20 THEN {exact} ELSE {stored} END)::text \
         FROM sample AS s{}{}",
        texts.join(", "),
        joined.map(|(_, sql)| sql).unwrap_or_default(),
        as_inserted(table, outbox, route_columns)
    ))
}

/// Leaves out rows that were marked where a route reads the mark: they are not as they were inserted.
fn as_inserted(table: &OutboxTable, outbox: &Outbox, route_columns: &BTreeSet<String>) -> String {
    let reads = |writeback: &&Writeback| writeback.names().any(|name| route_columns.contains(name));
    let Some(writeback) = outbox.writeback.as_ref().filter(reads) else { return String::new() };
    let column = |name: &str| table.columns.iter().find(|column| column.name == name);
    match (&writeback.status, &writeback.column) {
        (Some(status), _) => {
            let Some(OutboxColumn { name, type_name, .. }) = column(&status.name) else { return String::new() };
            let word = |word: &String| {
                format!("s.{} IS DISTINCT FROM {}::{type_name}", quote_identifier(name), quote_literal(word))
            };
            let words: Vec<String> = std::iter::once(&status.published).chain(&status.rejected).map(word).collect();
            format!(" WHERE {}", words.join(" AND "))
        }
        (None, Some(column)) => format!(" WHERE s.{} IS NULL", quote_identifier(column)),
        (None, None) => String::new(),
    }
}

/// One payload row of each event. The event's value is cast, not the column, so that an index finds it.
fn join_sql(joined: &OutboxTable, key: &OutboxColumn, event_column: &str) -> String {
    format!(
        " JOIN LATERAL (SELECT * FROM {} AS p WHERE p.{} = s.{}::text::{} LIMIT 1) AS j ON true",
        qualified(joined),
        quote_identifier(&key.name),
        quote_identifier(event_column),
        key.type_name
    )
}

fn qualified(table: &OutboxTable) -> String {
    format!("{}.{}", quote_identifier(&table.schema), quote_identifier(&table.name))
}

/// An infinite timestamp has no age, and JSON has no infinity.
fn age_sql(now: &str, column: &str) -> String {
    let name = quote_identifier(column);
    format!("CASE WHEN isfinite(s.{name}) THEN extract(epoch FROM {now} - s.{name}) END")
}
