//! Text with places for columns, compiled: a row enters, bytes leave.

use regex::bytes::Regex;

use crate::config;
use crate::config::{Piece, Rewrite};
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct Pattern(Vec<Compiled>);

#[derive(Debug)]
enum Compiled {
    Literal(String),
    Column(Column),
}

#[derive(Debug)]
struct Column {
    place: Place,
    name: String,
    rewrite: Option<(Regex, String)>,
    otherwise: Option<Pattern>,
}

impl Pattern {
    /// `rewrites` are names that stand for a rewritten column.
    pub(super) fn new(pattern: &config::Pattern, rewrites: &[(String, Rewrite)], layout: &mut Layout) -> Pattern {
        let mut column = |name: &String, otherwise: Option<&config::Pattern>| {
            let rewrite = rewrites.iter().find(|(rewritten, _)| rewritten == name).map(|(_, rewrite)| rewrite);
            let name = rewrite.map_or(name, |rewrite| &rewrite.column);
            Compiled::Column(Column {
                place: layout.place(name),
                name: name.clone(),
                rewrite: rewrite.map(|rewrite| (rewrite.regex.clone(), rewrite.with.clone())),
                otherwise: otherwise.map(|otherwise| Pattern::new(otherwise, rewrites, layout)),
            })
        };
        let pieces = pattern.pieces.iter().map(|piece| match piece {
            Piece::Literal(text) => Compiled::Literal(text.clone()),
            Piece::Column(name) => column(name, None),
            Piece::Fallback(name, otherwise) => column(name, Some(otherwise)),
        });
        Pattern(pieces.collect())
    }

    /// Appends the text, or says which column is missing.
    pub(super) fn write(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        for piece in &self.0 {
            match piece {
                Compiled::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Compiled::Column(column) => column.write(row, out)?,
            }
        }
        Ok(())
    }

    /// True when no column of it is missing, or something stands in for those that are.
    pub(super) fn is_whole(&self, row: &Row<'_>) -> bool {
        self.0.iter().all(|piece| match piece {
            Compiled::Literal(_) => true,
            Compiled::Column(column) => {
                row.bytes(column.place).is_some()
                    || column.otherwise.as_ref().is_some_and(|otherwise| otherwise.is_whole(row))
            }
        })
    }

    /// True when a column of it is NULL, and nothing stands in for it.
    pub(super) fn is_null(&self, row: &Row<'_>) -> bool {
        self.0.iter().any(|piece| match piece {
            Compiled::Literal(_) => false,
            Compiled::Column(column) => match &column.otherwise {
                None => row.bytes(column.place).is_none() && !row.is_absent(column.place),
                Some(otherwise) => row.bytes(column.place).is_none() && otherwise.is_null(row),
            },
        })
    }
}

impl Column {
    fn write(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let name = &self.name;
        match (row.bytes(self.place), &self.rewrite, &self.otherwise) {
            (Some(bytes), None, _) => out.extend_from_slice(bytes),
            (Some(bytes), Some((regex, with)), _) => out.extend_from_slice(&regex.replace(bytes, with.as_bytes())),
            (None, _, Some(otherwise)) => otherwise.write(row, out)?,
            (None, _, None) if row.is_absent(self.place) => {
                return Err(format!("needs column \"{name}\", which it has not"));
            }
            (None, _, None) => return Err(format!("needs column \"{name}\", which is NULL")),
        }
        Ok(())
    }
}
