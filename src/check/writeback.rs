//! Verdicts about `outbox.writeback`.

use crate::config::{Config, Outbox};
use crate::source::catalog::survey::{OutboxTable, Survey, WritebackFacts};

use super::Finding;
use super::facts::Facts;
use super::publication::{is_source, plain_name, sql_name};
use super::words;

const ID: &str = "outbox.writeback";

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let Some(survey) = &facts.survey else { return Vec::new() };
    if config.outbox.iter().all(|outbox| outbox.writeback.is_none()) {
        return vec![Finding::ok(ID, "no outbox has write-back: the relay writes nothing into its tables")];
    }
    let mut findings = Vec::new();
    for table in &survey.tables {
        let Some(outbox) = config.outbox.iter().find(|outbox| is_source(outbox, table)) else { continue };
        if let Some(facts) = &table.writeback {
            findings.extend(of_table(outbox, table, facts, survey));
        }
    }
    findings
}

fn of_table(outbox: &Outbox, table: &OutboxTable, facts: &WritebackFacts, survey: &Survey) -> Vec<Finding> {
    let (of, sql) = (plain_name(table), sql_name(table));
    if let Some((problem, hint)) = &facts.problem {
        let finding = Finding::fail(ID, problem);
        return vec![match hint {
            Some(hint) => finding.hint(hint),
            None => finding,
        }];
    }
    let mut findings = Vec::new();
    if !facts.denied.is_empty() {
        let columns: Vec<String> = facts.denied.iter().map(|name| words::identifier(name)).collect();
        let grant =
            format!("GRANT UPDATE ({}) ON {sql} TO {};", columns.join(", "), words::identifier(&survey.role.name));
        let message = format!("role \"{}\" may not UPDATE {} of {of}", survey.role.name, words::list(&facts.denied));
        findings.push(Finding::fail(ID, message).hint(grant));
    }
    if !facts.blind.is_empty() {
        let message = format!(
            "publication {} publishes UPDATEs of {of}, which has no replica identity: the server refuses them",
            words::list(&facts.blind)
        );
        findings.push(Finding::fail(ID, message).hint(format!(
            "ALTER PUBLICATION {} SET (publish = 'insert'); or give {sql} a primary key",
            words::identifier(&facts.blind[0])
        )));
    }
    let id = &outbox.columns.id;
    if !table.indexed.iter().any(|indexed| indexed == id) {
        let message = format!("{of}: no index begins with \"{id}\", so each write-back reads the whole table");
        findings.push(
            Finding::warn(ID, message).hint(format!("CREATE UNIQUE INDEX ON {sql} ({});", words::identifier(id))),
        );
    } else if !facts.unique {
        let message = format!("{of}: \"{id}\" is not unique, and rows that share an id are marked together");
        findings.push(Finding::notice(ID, message));
    }
    if !facts.triggers.is_empty() {
        let message = format!("{of}: {} runs each time that a row is marked", words::list(&facts.triggers));
        let hint = "it runs in the relay's session, which has no search_path: its function must name schemas or set one; one that \
                    writes an outbox row makes an event of every mark";
        findings.push(Finding::notice(ID, message).hint(hint));
    }
    if findings.is_empty() {
        let written = outbox.writeback.iter().flat_map(|writeback| writeback.names());
        findings.push(Finding::ok(ID, format!("{of}: {} can be written", words::list(written))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Notice, Ok, Warn};
    use super::super::tests::{assert_finding, config, survey, table};
    use super::*;
    use crate::config::Writeback;

    fn judged(change: impl FnOnce(&mut OutboxTable, &mut WritebackFacts)) -> Vec<Finding> {
        let (mut config, mut table) = (config(), table());
        config.outbox[0].writeback =
            Some(Writeback { column: Some("published_at".into()), status: None, attempts: None, error: None });
        let mut facts = WritebackFacts { unique: true, ..WritebackFacts::default() };
        table.indexed = vec!["id".into()];
        change(&mut table, &mut facts);
        table.writeback = Some(facts);
        judge(&config, &Facts { survey: Some(Survey { tables: vec![table], ..survey() }), ..Facts::default() })
    }

    #[test]
    fn what_keeps_rows_from_being_marked_is_named_with_its_cure() {
        assert_finding(&judged(|_, _| {})[0], Ok, "\"published_at\" can be written", "");
        let denied = judged(|_, facts| facts.denied = vec!["published_at".into()]);
        assert_finding(
            &denied[0],
            Fail,
            "may not UPDATE \"published_at\"",
            "GRANT UPDATE (published_at) ON public.outbox",
        );
        let blind = judged(|_, facts| facts.blind = vec!["everything".into()]);
        assert_finding(&blind[0], Fail, "publication \"everything\" publishes UPDATEs", "ALTER PUBLICATION everything");
        let wrong =
            judged(|_, facts| facts.problem = Some(("column \"x\" is generated".into(), Some("another".into()))));
        assert_finding(&wrong[0], Fail, "is generated", "another");
    }

    #[test]
    fn an_id_without_an_index_is_a_warning_and_one_that_is_shared_a_notice() {
        let slow = judged(|table, _| table.indexed.clear());
        assert_finding(&slow[0], Warn, "reads the whole table", "CREATE UNIQUE INDEX ON public.outbox (id)");
        assert_eq!(judged(|_, facts| facts.unique = false)[0].verdict, Notice);
        let triggers = judged(|_, facts| facts.triggers = vec!["touch".into()]);
        assert_finding(&triggers[0], Notice, "\"touch\" runs each time", "search_path");
    }
}
