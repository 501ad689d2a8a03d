//! The UPDATEs of write-back, made from a table's columns and the configuration's words.

use crate::config::{StatusColumn, Writeback};
use crate::source::catalog::{Column, quote_identifier, quote_literal};

/// Columns of a table that are generated, or part of the partition key of some level, each with what it is.
///
/// A column that an expression of a key names depends on its table internally, as those that stand in the key alone.
pub(super) const UNWRITABLE: &str = "SELECT a.attname::text, \
        CASE WHEN a.attgenerated <> '' THEN 'is generated' ELSE 'is part of a partition key' END \
     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
     WHERE n.nspname::text = $1 AND c.relname::text = $2 AND (a.attgenerated <> '' OR EXISTS ( \
        SELECT FROM pg_partition_tree(c.oid) AS p JOIN pg_partitioned_table AS k ON k.partrelid = p.relid \
        JOIN pg_attribute AS same ON same.attrelid = p.relid AND same.attname = a.attname \
        WHERE same.attnum = ANY (k.partattrs::int2[]) OR EXISTS (SELECT FROM pg_depend AS d \
            WHERE d.classid = 'pg_class'::regclass AND d.objid = p.relid AND d.objsubid = same.attnum \
              AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p.relid AND d.refobjsubid = 0 \
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

/// How the rows of one outbox are written to: names and words as SQL has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Which `[[outbox]]` block they are of.
    pub outbox: usize,
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

/// The status column, and its words as values of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Words {
    name: String,
    published: String,
    rejected: Option<String>,
}

/// Where an UPDATE finds, in a relation `w`, what became of rows.
struct Found<'a> {
    from: String,
    /// Which of them are meant.
    which: &'a str,
    /// The row's id as text; NULL for those of other tables.
    id: String,
    /// Why the row was rejected; NULL when it was published.
    rejected: &'a str,
    tries: Tries<'a>,
}

/// What becomes of the attempts.
enum Tries<'a> {
    /// So many more.
    More(&'a str),
    /// One, where there was none: a receipt may be written again.
    AtLeastOne,
}

impl Stamp {
    /// The stamp for a table with these columns; or the name of one that it lacks.
    pub(super) fn new<'a>(
        at: usize,
        table: (&str, &str),
        columns: &[Column],
        id: &'a str,
        writeback: &'a Writeback,
    ) -> Result<Stamp, &'a str> {
        let target = |name: &'a str| -> Result<Target, &'a str> {
            let column = columns.iter().find(|column| column.name == name).ok_or(name)?;
            let Column { type_name, not_null, .. } = column;
            Ok(Target { name: quote_identifier(name), type_name: type_name.clone(), not_null: *not_null })
        };
        let optional = |name: &'a Option<String>| name.as_deref().map(target).transpose();
        let words = |status: &'a StatusColumn| -> Result<Words, &'a str> {
            let Target { name, type_name, .. } = target(&status.name)?;
            let word = |word: &String| format!("{}::{type_name}", quote_literal(word));
            Ok(Words { name, published: word(&status.published), rejected: status.rejected.as_ref().map(word) })
        };
        Ok(Stamp {
            outbox: at,
            schema: table.0.to_owned(),
            name: table.1.to_owned(),
            id: target(id)?,
            column: optional(&writeback.column)?,
            status: writeback.status.as_ref().map(words).transpose()?,
            attempts: optional(&writeback.attempts)?,
            error: optional(&writeback.error)?,
        })
    }

    /// The table, for people.
    pub(super) fn table(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Fails where a word, a time, a number or a text is no value of its column's type. No table is touched, so that nobody's lock
    /// is waited for.
    pub(super) fn casts(&self) -> String {
        let cast = |value: &str, target: &Option<Target>| {
            target.as_ref().map(|Target { type_name, .. }| format!("{value}::{type_name}"))
        };
        let words = self.status.iter().flat_map(|Words { published, rejected, .. }| {
            std::iter::once(published).chain(rejected).cloned().collect::<Vec<_>>()
        });
        let id = format!("NULL::text::{}", self.id.type_name);
        let others = [cast("now()", &self.column), cast("1", &self.attempts), cast("'x: y'::text", &self.error)];
        let all: Vec<String> = std::iter::once(id).chain(words).chain(others.into_iter().flatten()).collect();
        format!("SELECT {}", all.join(", "))
    }

    /// Takes ids and, for each, why it was rejected.
    pub(super) fn receipts(&self) -> String {
        self.update(&Found {
            from: "unnest($1::text[], $2::text[]) AS w (id, rejected)".to_owned(),
            which: "true",
            id: "w.id".to_owned(),
            rejected: "w.rejected",
            tries: Tries::AtLeastOne,
        })
    }

    /// Writes that rows have letters now. `letters` has of each letter its origin, `event_id`, reason and message, and the
    /// attempts that it was stored with.
    pub(in crate::source::catalog) fn stored(&self, letters: &str) -> String {
        self.update(&Found {
            from: format!("{letters} AS w"),
            which: "true",
            id: self.id_of_letter(),
            rejected: "w.reason || ': ' || w.message",
            tries: Tries::More("w.attempts"),
        })
    }

    /// Writes what the tries of letters led to. `letters` has of each the same, and `outcome`.
    pub(in crate::source::catalog) fn settled(&self, letters: &str) -> String {
        self.update(&Found {
            from: format!("{letters} AS w"),
            which: "w.outcome <> 'put back'",
            id: self.id_of_letter(),
            rejected: "CASE WHEN w.outcome = 'rejected' THEN w.reason || ': ' || w.message END",
            tries: Tries::More("CASE WHEN w.outcome = 'rejected' THEN 1 ELSE 0 END"),
        })
    }

    /// An id of another table need not be a value of this one's type.
    fn id_of_letter(&self) -> String {
        let (schema, name) = (quote_literal(&self.schema), quote_literal(&self.name));
        format!("CASE WHEN w.origin_schema = {schema} AND w.origin_name = {name} THEN w.event_id END")
    }

    fn update(&self, found: &Found<'_>) -> String {
        let Found { from, which, id, .. } = found;
        let table = format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name));
        format!(
            "UPDATE {table} AS t SET {} FROM {from} WHERE {which} AND t.{} = ({id})::{} AND {}",
            self.assignments(found).join(", "),
            self.id.name,
            self.id.type_name,
            self.is_unpublished()
        )
    }

    /// Casts are explicit: an explicit one cuts a text that is too long for its column.
    fn assignments(&self, found: &Found<'_>) -> Vec<String> {
        let Found { rejected, tries, .. } = found;
        let either = |name: &str, published: &str, else_rejected: &str| {
            format!("{name} = CASE WHEN ({rejected}) IS NULL THEN {published} ELSE {else_rejected} END")
        };
        let column = self
            .column
            .as_ref()
            .map(|Target { name, type_name, .. }| either(name, &format!("now()::{type_name}"), &format!("t.{name}")));
        let status = self.status.as_ref().map(|Words { name, published, rejected }| {
            either(name, published, rejected.as_ref().unwrap_or(&format!("t.{name}")))
        });
        let attempts = self.attempts.as_ref().map(|Target { name, type_name, .. }| {
            let many = match tries {
                Tries::More(more) => format!("coalesce(t.{name}, 0) + ({more})"),
                Tries::AtLeastOne => format!("greatest(t.{name}, 1)"),
            };
            either(name, &format!("t.{name}"), &format!("({many})::{type_name}"))
        });
        let error = self.error.as_ref().map(|Target { name, type_name, not_null }| {
            let none = if *not_null { "''" } else { "NULL" };
            either(name, &format!("{none}::{type_name}"), &format!("({rejected})::{type_name}"))
        });
        [column, status, attempts, error].into_iter().flatten().collect()
    }

    /// Publishing wins: whoever finds a row published leaves it as it is.
    fn is_unpublished(&self) -> String {
        match (&self.status, &self.column) {
            (Some(Words { name, published, .. }), _) => format!("t.{name} IS DISTINCT FROM {published}"),
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
        let without = Stamp::new(0, ("app", "out box"), &columns[..4], "Id", &writeback);
        assert_eq!(without, Err("why"));
        Stamp::new(0, ("app", "out box"), &columns, "Id", &writeback).unwrap()
    }

    #[test]
    fn only_named_columns_of_unpublished_rows_are_written_and_found_by_the_ids_own_type() {
        let sql = stamp().receipts();
        for part in [
            r#"UPDATE "app"."out box" AS t SET "at" = CASE WHEN (w.rejected) IS NULL THEN now()::timestamp with time zone ELSE t."at" END"#,
            r#""state" = CASE WHEN (w.rejected) IS NULL THEN 'it''s out'::character varying(8) ELSE 'FAILED'::character varying(8) END"#,
            r#"THEN t."tries" ELSE (greatest(t."tries", 1))::smallint END"#,
            r#"THEN ''::character varying(255) ELSE (w.rejected)::character varying(255) END"#,
            r#"WHERE true AND t."Id" = (w.id)::uuid AND t."state" IS DISTINCT FROM 'it''s out'::character varying(8)"#,
        ] {
            assert!(sql.contains(part), "{part}\n{sql}");
        }
    }

    #[test]
    fn a_letters_id_is_read_as_the_tables_only_when_the_letter_is_of_that_table() {
        let sql = stamp().settled("written");
        let id = "(CASE WHEN w.origin_schema = 'app' AND w.origin_name = 'out box' THEN w.event_id END)::uuid";
        assert!(sql.contains(id) && sql.contains("FROM written AS w WHERE w.outcome <> 'put back' AND"), "{sql}");
        assert!(stamp().stored("stored").contains(r#"(coalesce(t."tries", 0) + (w.attempts))::smallint"#));
    }
}
