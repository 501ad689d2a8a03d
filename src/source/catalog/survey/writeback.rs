//! What stands between an outbox and its write-back.

use serde::Deserialize;

use super::super::Catalog;
use crate::config::{Outbox, OutboxSource};
use crate::error::Result;

/// What was found out about one table that has write-back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct WritebackFacts {
    /// What is wrong with its columns or words, and what to do.
    #[serde(skip)]
    pub problem: Option<(String, Option<String>)>,
    /// Columns that we may not UPDATE.
    pub denied: Vec<String>,
    /// An index on the id alone is unique; of a partitioned table, one that begins with it.
    pub unique: bool,
    /// Publications that publish UPDATEs of a table without replica identity: the server refuses them.
    pub blind: Vec<String>,
    /// Triggers that run whenever a row is marked.
    pub triggers: Vec<String>,
}

impl Catalog {
    /// Asks about the write-back of an outbox; `None` when it has none, or no table.
    pub(super) async fn writeback_facts(&self, outbox: &Outbox) -> Result<Option<WritebackFacts>> {
        let (Some(writeback), OutboxSource::Table { schema, name }) = (&outbox.writeback, &outbox.source) else {
            return Ok(None);
        };
        let written: Vec<&str> = writeback.names().collect();
        let facts = self.object(FACTS, &[schema, name, &written, &outbox.columns.id]).await?;
        let Some(facts): Option<WritebackFacts> = facts else { return Ok(None) };
        let rehearsed = match self.stamp(outbox).await {
            Ok(Some(stamp)) if facts.denied.is_empty() => self.rehearse(&stamp).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        let problem = match rehearsed {
            Ok(()) => None,
            Err(error) if self.is_closed() => return Err(error),
            Err(error) => Some((error.chain(), error.hint_text().map(str::to_owned))),
        };
        Ok(Some(WritebackFacts { problem, ..facts }))
    }
}

const FACTS: &str = "SELECT jsonb_build_object( \
    'denied', (SELECT coalesce(jsonb_agg(a.attname), '[]') FROM pg_attribute AS a \
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname::text = ANY ($3::text[]) \
        AND NOT has_column_privilege(c.oid, a.attnum, 'UPDATE')), \
    'triggers', (SELECT coalesce(jsonb_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_trigger AS t \
      WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 16 <> 0 \
        AND (t.tgattr = '' OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid \
            AND a.attnum = ANY (t.tgattr::int2[]) AND a.attname::text = ANY ($3::text[])))), \
    'unique', EXISTS (SELECT FROM pg_index AS i \
      JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
      WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND a.attname::text = $4 \
        AND (i.indnkeyatts = 1 OR c.relkind = 'p')), \
    'blind', (SELECT coalesce(jsonb_agg(DISTINCT p.pubname), '[]') FROM pg_publication AS p \
      JOIN pg_publication_tables AS pt ON pt.pubname = p.pubname \
      JOIN pg_namespace AS pn ON pn.nspname = pt.schemaname \
      JOIN pg_class AS pc ON pc.relnamespace = pn.oid AND pc.relname = pt.tablename \
      CROSS JOIN (SELECT c.oid AS relid WHERE c.relkind = 'r' \
                  UNION SELECT tree.relid::oid FROM pg_partition_tree(c.oid) AS tree WHERE tree.isleaf) AS leaf \
      JOIN pg_class AS lc ON lc.oid = leaf.relid \
      WHERE p.pubupdate \
        AND (pc.oid = leaf.relid OR pc.oid IN (SELECT up.relid::oid FROM pg_partition_ancestors(leaf.relid) AS up)) \
        AND lc.relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = lc.oid \
            AND CASE lc.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)))::text \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE n.nspname::text = $1 AND c.relname::text = $2 AND c.relkind IN ('r', 'p')";
