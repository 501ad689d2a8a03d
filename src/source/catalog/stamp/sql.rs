//! The UPDATEs of write-back, made from a table's columns and the configuration's words.

use crate::config::{StatusColumn, Writeback};
use crate::source::catalog::{Column, quote_identifier, quote_literal};

/// Columns of a table that are generated, or part of the partition key of some level, above it or below, each with what it is.
///
/// A column that an expression of a key names depends on its table internally, as those that stand in the key alone.
///
/// The catalog is asked, and not `pg_partition_tree`, which would wait for whoever has locked a partition.
pub(super) const UNWRITABLE: &str = "WITH RECURSIVE below AS ( \
        SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
        WHERE n.nspname::text = $1 AND c.relname::text = $2 \
        UNION ALL SELECT i.inhrelid FROM pg_inherits AS i JOIN below ON i.inhparent = below.oid), \
     above AS ( \
        SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
        WHERE n.nspname::text = $1 AND c.relname::text = $2 \
        UNION ALL SELECT i.inhparent FROM pg_inherits AS i JOIN above ON i.inhrelid = above.oid), \
     tree AS (SELECT oid FROM below UNION SELECT oid FROM above) \
     SELECT a.attname::text, \
        CASE WHEN a.attgenerated <> '' THEN 'is generated' ELSE 'is part of a partition key' END \
     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
     WHERE n.nspname::text = $1 AND c.relname::text = $2 AND (a.attgenerated <> '' OR EXISTS ( \
        SELECT FROM tree JOIN pg_partitioned_table AS k ON k.partrelid = tree.oid \
        JOIN pg_attribute AS same ON same.attrelid = tree.oid AND same.attname = a.attname \
        WHERE same.attnum = ANY (k.partattrs::int2[]) OR EXISTS (SELECT FROM pg_depend AS d \
            WHERE d.classid = 'pg_class'::regclass AND d.objid = tree.oid AND d.objsubid = same.attnum \
              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = tree.oid AND d.refobjsubid = 0 \
              AND d.deptype = 'i')))";

/// Those of the given transactions that others cannot see yet. A number of 32 bits means the one that is nearest to the
/// newest: what is in the WAL may still be newer than all that has ended.
pub(super) const INVISIBLE: &str = "WITH now AS MATERIALIZED ( \
        SELECT pg_current_snapshot() AS snapshot, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS newest), \
     given AS (SELECT x.xid, now.snapshot, now.newest, (x.xid - now.newest) & 4294967295 AS ahead \
        FROM unnest($1::bigint[]) AS x (xid) CROSS JOIN now) \
     SELECT given.xid FROM given WHERE NOT pg_visible_in_snapshot( \
        (given.newest + given.ahead - CASE WHEN given.ahead >= 2147483648 THEN 4294967296 ELSE 0 END)::text::xid8, \
        given.snapshot)";

/// Why a table cannot be written back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit<'a> {
    /// It has no such column.
    Lacks(&'a str),
    /// Only whether this column is NULL would tell which rows are published, and it never is.
    NeverNull(&'a str),
}

/// How the rows of one outbox are written to: names and words as SQL has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    schema: String,
    name: String,
    id: Target,
    column: Option<Target>,
    status: Option<Words>,
    attempts: Option<Target>,
    error: Option<Target>,
}

/// A column, quoted, and its type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    name: String,
    type_name: String,
    not_null: bool,
}

/// The status column, and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Words {
    name: String,
    type_name: String,
    published: String,
    rejected: Option<String>,
}

impl Words {
    /// Expressions, each NULL or what is wrong with a word.
    fn wrong(&self) -> Vec<String> {
        let type_name = &self.type_name;
        let is_text = format!(
            "(SELECT t.typcategory = 'S' FROM pg_type AS t WHERE t.oid = {}::regtype)",
            quote_literal(type_name)
        );
        let cut = |word: &String| {
            let (value, literal) = (value(word, type_name), quote_literal(word));
            format!(
                "CASE WHEN {is_text} AND {value}::text <> {literal} THEN '\"' || {literal} || '\" becomes \"' || {value}::text || '\"' END"
            )
        };
        let same = self.rejected.as_ref().map(|rejected| {
            let (published, rejected) = (value(&self.published, type_name), value(rejected, type_name));
            format!("CASE WHEN {published} = {rejected} THEN 'published and rejected are the same value' END")
        });
        std::iter::once(&self.published).chain(&self.rejected).map(cut).chain(same).collect()
    }
}

/// A word as a value of its column's type.
fn value(word: &str, type_name: &str) -> String {
    format!("{}::{type_name}", quote_literal(word))
}

impl Stamp {
    /// The stamp for a table with these columns; or what is wrong with one.
    pub(super) fn new<'a>(
        table: (&str, &str),
        columns: &[Column],
        id: &'a str,
        writeback: &'a Writeback,
    ) -> Result<Stamp, Unfit<'a>> {
        let target = |name: &'a str| -> Result<Target, Unfit<'a>> {
            let column = columns.iter().find(|column| column.name == name).ok_or(Unfit::Lacks(name))?;
            let Column { type_name, not_null, .. } = column;
            Ok(Target { name: quote_identifier(name), type_name: type_name.clone(), not_null: *not_null })
        };
        let optional = |name: &'a Option<String>| name.as_deref().map(target).transpose();
        let words = |status: &'a StatusColumn| -> Result<Words, Unfit<'a>> {
            let Target { name, type_name, .. } = target(&status.name)?;
            Ok(Words { name, type_name, published: status.published.clone(), rejected: status.rejected.clone() })
        };
        let column = optional(&writeback.column)?;
        if let (Some(name), Some(Target { not_null: true, .. }), None) = (&writeback.column, &column, &writeback.status)
        {
            return Err(Unfit::NeverNull(name));
        }
        Ok(Stamp {
            schema: table.0.to_owned(),
            name: table.1.to_owned(),
            id: target(id)?,
            column,
            status: writeback.status.as_ref().map(words).transpose()?,
            attempts: optional(&writeback.attempts)?,
            error: optional(&writeback.error)?,
        })
    }

    /// The table, for people.
    pub(super) fn table(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Fails where a word, a time, a number or a text is no value of its column's type; answers with the words that their column cuts,
    /// or makes one. No table is touched, so that nobody's lock is waited for.
    pub(super) fn proof(&self) -> String {
        let mut casts = vec![format!("NULL::text::{}", self.id.type_name)];
        let column = self.column.iter().map(|column| format!("now()::{}", column.type_name));
        let attempts =
            self.attempts.iter().map(|Target { type_name, .. }| format!("greatest(NULL::{type_name}, 1)::{type_name}"));
        let error = self.error.iter().map(|error| format!("'x: y'::text::{}", error.type_name));
        casts.extend(column.chain(attempts).chain(error));
        let wrong: Vec<String> = self.status.iter().flat_map(Words::wrong).collect();
        let wrong =
            if wrong.is_empty() { "ARRAY[]::text[]".to_owned() } else { format!("ARRAY[{}]", wrong.join(", ")) };
        format!("SELECT array_remove({wrong}, NULL), {}", casts.join(", "))
    }

    /// Takes ids and, for each, why it was rejected and how often it was tried; answers with the places, from 1, of those whose rows
    /// were written, in arrays.
    ///
    /// Rows are locked before they are written, and none is waited for: an application that holds a row neither stops the
    /// others nor finds itself in a deadlock. Of several receipts of one row, the one that says that it is published counts, or the one with
    /// the most attempts, or the last.
    /// A row that somebody else changed just now is locked and not found again: its turn comes with those that are left.
    pub(super) fn receipts(&self) -> String {
        let (table, unpublished) = (self.quoted(), self.is_unpublished());
        let (id, type_name) = (&self.id.name, &self.id.type_name);
        format!(
            "WITH given AS MATERIALIZED (SELECT g.id::{type_name} AS id, bool_or(g.why IS NULL) AS published, \
                 (array_agg(g.why ORDER BY g.attempts DESC, g.place DESC) FILTER (WHERE g.why IS NOT NULL))[1] AS why, \
                 max(g.attempts) AS attempts, array_agg(g.place) AS places \
                 FROM unnest($1::text[], $2::text[], $3::integer[]) WITH ORDINALITY AS g (id, why, attempts, place) \
                 GROUP BY g.id), \
             locked AS MATERIALIZED (SELECT t.tableoid AS relation, t.ctid AS tuple, given.* \
                 FROM {table} AS t JOIN given ON t.{id} = given.id WHERE {unpublished} \
                 FOR NO KEY UPDATE OF t SKIP LOCKED) \
             UPDATE {table} AS t SET {} FROM locked AS w \
             WHERE t.tableoid = w.relation AND t.ctid = w.tuple AND {unpublished} RETURNING w.places",
            self.assignments().join(", ")
        )
    }

    /// Takes ids; answers with the places, from 1, of those whose rows are there and not published.
    pub(super) fn left(&self) -> String {
        format!(
            "SELECT g.place FROM unnest($1::text[]) WITH ORDINALITY AS g (id, place) \
             WHERE EXISTS (SELECT FROM {} AS t WHERE t.{} = g.id::{} AND {})",
            self.quoted(),
            self.id.name,
            self.id.type_name,
            self.is_unpublished()
        )
    }

    fn quoted(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }

    /// Casts are explicit: an explicit one cuts a text that is too long for its column.
    fn assignments(&self) -> Vec<String> {
        let either = |name: &str, published: &str, rejected: &str| {
            format!("{name} = CASE WHEN w.published THEN {published} ELSE {rejected} END")
        };
        let column = self
            .column
            .as_ref()
            .map(|Target { name, type_name, .. }| either(name, &format!("now()::{type_name}"), &format!("t.{name}")));
        let status = self.status.as_ref().map(|Words { name, type_name, published, rejected }| {
            let rejected = rejected.as_ref().map_or_else(|| format!("t.{name}"), |word| value(word, type_name));
            either(name, &value(published, type_name), &rejected)
        });
        let attempts = self.attempts.as_ref().map(|Target { name, type_name, .. }| {
            either(name, &format!("t.{name}"), &format!("greatest(t.{name}, w.attempts)::{type_name}"))
        });
        let error = self.error.as_ref().map(|Target { name, type_name, not_null }| {
            let none = if *not_null { "''" } else { "NULL" };
            either(name, &format!("{none}::{type_name}"), &format!("w.why::{type_name}"))
        });
        [column, status, attempts, error].into_iter().flatten().collect()
    }

    /// Publishing wins: whoever finds a row published leaves it as it is.
    fn is_unpublished(&self) -> String {
        match (&self.status, &self.column) {
            (Some(Words { name, type_name, published, .. }), _) => {
                format!("t.{name} IS DISTINCT FROM {}", value(published, type_name))
            }
            (None, Some(Target { name, .. })) => format!("t.{name} IS NULL"),
            (None, None) => unreachable!("the configuration names one of the two"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Type;

    fn stamp() -> Stamp {
        let column = |name: &str, type_name: &str, not_null| Column {
            name: name.to_owned(),
            kind: Type::default(),
            type_name: type_name.to_owned(),
            not_null,
        };
        let columns = [
            column("Id", "uuid", true),
            column("at", "timestamp with time zone", false),
            column("state", "character varying(8)", true),
            column("tries", "smallint", false),
            column("why", "character varying(255)", true),
        ];
        let status =
            StatusColumn { name: "state".into(), published: "it's out".into(), rejected: Some("FAILED".into()) };
        let writeback = Writeback {
            column: Some("at".into()),
            status: Some(status),
            attempts: Some("tries".into()),
            error: Some("why".into()),
        };
        let without = Stamp::new(("app", "out box"), &columns[..4], "Id", &writeback);
        assert_eq!(without, Err(Unfit::Lacks("why")));
        // A status tells which rows are published, whatever the time says; nothing else does.
        let only = Writeback { column: Some("why".into()), status: None, attempts: None, error: None };
        assert_eq!(Stamp::new(("app", "out box"), &columns, "Id", &only), Err(Unfit::NeverNull("why")));
        let both = Writeback { column: only.column, error: None, ..writeback.clone() };
        assert!(Stamp::new(("app", "out box"), &columns, "Id", &both).is_ok());
        Stamp::new(("app", "out box"), &columns, "Id", &writeback).unwrap()
    }

    #[test]
    fn only_named_columns_of_unpublished_rows_are_written_and_found_by_the_ids_own_type() {
        let sql = stamp().receipts();
        for part in [
            r#"SELECT g.id::uuid AS id"#,
            r#"FROM "app"."out box" AS t JOIN given ON t."Id" = given.id WHERE t."state" IS DISTINCT FROM 'it''s out'::character varying(8)"#,
            r#"UPDATE "app"."out box" AS t SET "at" = CASE WHEN w.published THEN now()::timestamp with time zone ELSE t."at" END"#,
            r#""state" = CASE WHEN w.published THEN 'it''s out'::character varying(8) ELSE 'FAILED'::character varying(8) END"#,
            r#"THEN t."tries" ELSE greatest(t."tries", w.attempts)::smallint END"#,
            r#"THEN ''::character varying(255) ELSE w.why::character varying(255) END"#,
            r#"FROM locked AS w WHERE t.tableoid = w.relation AND t.ctid = w.tuple AND t."state" IS DISTINCT FROM 'it''s out'::character varying(8)"#,
        ] {
            assert!(sql.contains(part), "{part}\n{sql}");
        }
    }
}
