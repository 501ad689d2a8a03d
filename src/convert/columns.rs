//! `column.include.list` and `column.exclude.list`: what Debezium takes out of a row before the router sees it.
//!
//! outboxd reads whole rows. A column that the router would have missed is there, and that a person must know.

use regex::bytes::Regex;

use super::settings::Setting;
use super::{Finding, Work};
use crate::config::debezium::java;

/// Where columns are placed as headers, members and partitions.
pub const PLACEMENT: &str = "table.fields.additional.placement";

/// The columns that reach the router.
pub struct Columns {
    origin: String,
    expressions: Vec<Regex>,
    /// Whether those that match are taken out, or all others.
    excluded: bool,
}

/// A column that the router reads, and by which option.
pub struct Used {
    /// The column's own name.
    pub column: String,
    /// `table.field.event.key`, or the option of placements.
    pub option: &'static str,
    /// Whether the router does without it.
    pub may_be_missing: bool,
}

/// The list, if there is one. Before 1.3 lists were white and black.
pub fn read(work: &mut Work) -> Option<Columns> {
    let names = [
        ("column.include.list", false),
        ("column.whitelist", false),
        ("column.exclude.list", true),
        ("column.blacklist", true),
    ];
    let mut lists = Vec::new();
    for (name, excluded) in names {
        lists.extend(work.settings.take(name).map(|setting| (setting, excluded)));
    }
    let mut found = None;
    for (setting, excluded) in lists {
        match compiled(&setting) {
            Ok(expressions) => found = Some(Columns { origin: setting.origin, expressions, excluded }),
            Err(why) => {
                let message = format!("{why}, so nobody can tell here which columns the router misses");
                work.lost(Finding::new(setting.origin, message).hint(format!("leave them out of {PLACEMENT}")));
            }
        }
    }
    found
}

impl Columns {
    /// Tells which of the columns that the router reads of this table never reach it.
    pub fn judge(&self, work: &mut Work, table: &str, used: &[Used]) {
        for Used { column, option, may_be_missing } in used {
            let name = format!("{table}.{column}");
            if self.expressions.iter().any(|expression| expression.is_match(name.as_bytes())) != self.excluded {
                continue;
            }
            let message = format!("takes {name} away, which {option} names");
            let finding = match may_be_missing {
                true => Finding::new(&self.origin, format!("{message}: records have it here, and Debezium's have not"))
                    .hint(format!("take it out of {option}")),
                false => {
                    Finding::new(&self.origin, format!("{message}: Debezium stops at such a row, outboxd publishes it"))
                }
            };
            match may_be_missing {
                true => work.lost(finding),
                false => work.differs(finding),
            }
        }
    }

    /// Nothing was to be said of the list.
    pub fn done(self, work: &mut Work) {
        let told = work.findings.lost.iter().chain(&work.findings.differs);
        if !told.into_iter().any(|finding| finding.option == self.origin) {
            work.not_needed(self.origin, "takes no column away that the router reads");
        }
    }
}

/// The expressions of a list, each for a whole `schema.table.column` in any case; a comma behind a backslash parts nothing.
fn compiled(setting: &Setting) -> Result<Vec<Regex>, String> {
    let Some(text) = setting.value.text() else {
        return Err(format!("is {}, which outboxd does not look up", setting.value.shown()));
    };
    let expressions = super::tables::items(&text).into_iter();
    expressions.map(|item| java::whole(&format!("(?i){item}")).map_err(|fault| fault.what)).collect()
}
