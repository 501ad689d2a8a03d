//! What was not kept of an event, read again from the tables that it was written to.

use super::{Catalog, quote_identifier};
use crate::column::Type;
use crate::config::Outbox;
use crate::dead_letter::Column;
use crate::error::Result;

/// As the stream's session prints values (`source/wire/login.rs`).
const PRINT_AS_STREAMED: &str = "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; \
    SET extra_float_digits = 3; SET timezone = 'UTC'; SET bytea_output = 'hex'";

impl Catalog {
    /// Reads these columns of an event, of which `kept` is known, as far as its rows are still there. Columns of a joined table have
    /// qualified names.
    pub async fn read_again(
        &self,
        outbox: &Outbox,
        kept: &[Column],
        wanted: &[String],
        most: u64,
    ) -> Result<Vec<Column>> {
        let value = |name: &str| {
            let column = kept.iter().find(|column| column.name == name)?;
            match column.kind.oid {
                Type::BYTEA => Some(hex(column.value.as_deref()?)),
                _ => String::from_utf8(column.value.clone()?).ok(),
            }
        };
        let prefix = outbox.join.as_ref().map(|join| join.qualified(""));
        let in_joined = |name: &String| prefix.as_ref().and_then(|prefix| name.strip_prefix(prefix)).map(str::to_owned);
        let own: Vec<String> = wanted.iter().filter(|name| in_joined(name).is_none()).cloned().collect();
        let joined: Vec<String> = wanted.iter().filter_map(in_joined).collect();
        let mut found = Vec::new();
        if let (Some((schema, table)), Some(id)) = (outbox.own_table(), value(&outbox.columns.id)) {
            found.extend(
                self.read_columns(schema, table, (&outbox.columns.id, By::Id), &id, &own, most)
                    .await?
                    .unwrap_or_default(),
            );
        }
        if let Some(join) = &outbox.join
            && let Some(on) = value(&join.event_column)
        {
            let key = (join.payload_column.as_str(), By::Text);
            let read = self.read_columns(&join.schema, &join.table, key, &on, &joined, most).await?;
            let qualify = |column: Column| Column { name: join.qualified(&column.name), ..column };
            found.extend(read.unwrap_or_default().into_iter().map(qualify));
        }
        Ok(found)
    }

    /// Reads columns of a table's row again, as the stream would send them; those that the table no longer has are left
    /// out. `None`: there is no such row, or more than one.
    async fn read_columns(
        &self,
        schema: &str,
        table: &str,
        (id_column, by): (&str, By),
        id: &str,
        columns: &[String],
        most: u64,
    ) -> Result<Option<Vec<Column>>> {
        let Some(found) = self.table(schema, table).await? else { return Ok(None) };
        let known = |name: &str| found.columns.iter().find(|column| column.name == name);
        let Some(key) = known(id_column) else { return Ok(None) };
        let wanted: Vec<&super::Column> = columns.iter().filter_map(|name| known(name)).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let what = format!("cannot read a row of table {schema}.{table} again");
        self.execute(&what, PRINT_AS_STREAMED, self.limit).await?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = match self.rows(&what, &select(schema, table, (key, by), &wanted), &[&id, &most]).await {
            Ok(rows) => rows,
            // The id is no value of its column's type, which was another one when the letter was stored.
            Err(error) if error.sqlstate().is_some_and(|code| code.starts_with("22")) => return Ok(None),
            Err(error) => return Err(error),
        };
        let [row] = &rows[..] else { return Ok(None) };
        if row.get::<_, i64>(0) > most {
            return Ok(None);
        }
        let read = |(at, column): (usize, &&super::Column)| Column {
            name: column.name.clone(),
            kind: column.kind,
            value: row.get(at + 1),
        };
        Ok(Some(wanted.iter().enumerate().map(read).collect()))
    }
}

/// How a row is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// By a value that came from this very column.
    Id,
    /// By the text of another column's value: the cast to this column's type may cut it, and an equal value may have another text.
    Text,
}

/// As PostgreSQL prints bytes.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The id is cast to its column's type, not the column to text, so that the table's index finds it. Values are printed
/// by `format`, which calls their type's output as the stream does; `::text` has its own ways with boolean, char and
/// inet. `IS NOT NULL` would take a composite value with a NULL in it for NULL.
fn select(schema: &str, table: &str, (id, by): (&super::Column, By), columns: &[&super::Column]) -> String {
    let key = quote_identifier(&id.name);
    let exactly = match by {
        By::Id => String::new(),
        By::Text => format!(" AND format('%s', t.{key}) = $1::text"),
    };
    let bytes = |column: &&super::Column| {
        let name = quote_identifier(&column.name);
        if column.kind.oid == Type::BYTEA {
            return format!("t.{name}::bytea");
        }
        format!("CASE WHEN t.{name} IS DISTINCT FROM NULL THEN convert_to(format('%s', t.{name}), 'UTF8') END")
    };
    let (values, names): (Vec<String>, Vec<String>) = columns
        .iter()
        .enumerate()
        .map(|(at, column)| (format!("{} AS c{at}", bytes(column)), format!("c{at}")))
        .unzip();
    let size = names.iter().map(|name| format!("coalesce(octet_length(r.{name}), 0)")).collect::<Vec<_>>().join(" + ");
    let shown = names.iter().map(|name| format!("CASE WHEN s.size <= $2::bigint THEN s.{name} END"));
    format!(
        "SELECT s.size, {} FROM (SELECT r.*, ({size})::bigint AS size FROM (SELECT {} FROM {}.{} AS t \
         WHERE t.{key} = $1::text::{}{exactly} LIMIT 2) AS r) AS s",
        shown.collect::<Vec<_>>().join(", "),
        values.join(", "),
        quote_identifier(schema),
        quote_identifier(table),
        id.type_name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_its_own_type_and_names_are_quoted() {
        let column = |name: &str, oid: u32, type_name: &str| super::super::Column {
            name: name.to_owned(),
            kind: Type::of(oid),
            type_name: type_name.to_owned(),
            not_null: false,
        };
        let (id, bytes) = (column("Id\"", 2950, "uuid"), column("raw", 17, "app.scan"));
        let sql = select("public", "out box", (&id, By::Id), &[&bytes]);
        assert!(
            sql.contains(r#"SELECT t."raw"::bytea AS c0 FROM "public"."out box" AS t WHERE t."Id""" = $1::text::uuid"#),
            "{sql}"
        );
        let sql = select("public", "outbox", (&id, By::Text), &[&id]);
        assert!(sql.contains(r#"convert_to(format('%s', t."Id"""), 'UTF8')"#), "{sql}");
        assert!(sql.contains(r#"= $1::text::uuid AND format('%s', t."Id""") = $1::text LIMIT 2"#), "{sql}");
    }

    #[test]
    fn bytes_are_asked_for_as_postgresql_prints_them() {
        assert_eq!([hex(b""), hex(b"\x00\xFFa")], [r"\x", r"\x00ff61"]);
    }
}
