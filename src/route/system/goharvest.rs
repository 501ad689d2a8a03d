//! goharvest's record: every part in a column of its own, headers in two arrays.

use super::array::Elements;
use super::{Column, Make, needed};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct Goharvest {
    topic: Column,
    keys: Column,
    values: Column,
}

impl Goharvest {
    pub(super) fn new(layout: &mut Layout) -> Goharvest {
        Goharvest {
            topic: Column::new("kafka_topic", layout),
            keys: Column::new("kafka_header_keys", layout),
            values: Column::new("kafka_header_values", layout),
        }
    }

    fn elements<'a>(&self, row: &Row<'a>, column: &Column) -> Result<Elements<'a>, String> {
        let name = column.name;
        // Without the column there are no headers.
        let array = column.bytes(row).unwrap_or(b"{}");
        Elements::new(array).map_err(|problem| format!("its {name} {problem}"))
    }
}

impl Make for Goharvest {
    fn topic(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(self.topic.needed(row)?);
        Ok(())
    }

    fn key(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        out.extend_from_slice(needed(row, Place::AGGREGATE_ID, "kafka_key")?);
        Ok(true)
    }

    fn headers(&self, row: &Row<'_>, out: &mut Headers) -> Result<(), String> {
        let mut values = self.elements(row, &self.values)?;
        for key in self.elements(row, &self.keys)? {
            let key = key.map_err(|problem| format!("its {} {problem}", self.keys.name))?;
            let key = key.ok_or_else(|| format!("its {} has a NULL, which is no name", self.keys.name))?;
            let value = values.next().transpose().map_err(|problem| format!("its {} {problem}", self.values.name))?;
            let value = value.ok_or_else(|| self.uneven("more names than values"))?;
            out.push(&key, value.as_deref().map(str::as_bytes));
        }
        if values.next().is_some() { Err(self.uneven("more values than names")) } else { Ok(()) }
    }
}

impl Goharvest {
    fn uneven(&self, how: &str) -> String {
        format!("its headers have {how}: {} and {} differ in length", self.keys.name, self.values.name)
    }
}
