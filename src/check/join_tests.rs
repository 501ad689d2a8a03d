use super::super::Verdict::{Fail, Notice, Ok, Warn};
use super::super::tests::{assert_finding, config, facts, only, published, table};
use super::*;
use crate::source::catalog::survey::OutboxColumn;

/// Two tables that are joined as they should be, changed.
fn judged(change: impl FnOnce(&mut Survey)) -> Vec<Finding> {
    let (mut config, mut facts, mut events) = (config(), facts(), table());
    config.outbox[0].join = Some(Join {
        schema: "public".into(),
        table: "bodies".into(),
        event_column: "body_id".into(),
        payload_column: "id".into(),
    });
    let column = |name: &str, type_name: &str| OutboxColumn {
        name: name.into(),
        type_name: type_name.into(),
        not_null: true,
        generated: false,
    };
    events.columns.retain(|column| column.name != "payload");
    events.columns.push(column("body_id", "uuid"));
    let columns = vec![column("id", "uuid"), column("payload", "jsonb"), column("tenant", "text")];
    let payloads = OutboxTable { name: "bodies".into(), columns, sample: None, ..table() };
    let survey = facts.survey.as_mut().unwrap();
    survey.tables = vec![events, payloads];
    survey.publication.as_mut().unwrap().tables.push(published("public", "bodies"));
    change(survey);
    super::super::judge(&config, &facts).findings
}

#[test]
fn two_tables_that_fit_are_told_with_what_joins_them() {
    let findings = judged(|_| {});
    assert_finding(only(&findings, ID), Ok, "payloads are in public.bodies, where body_id = id", "");
    for id in ["outbox.columns", "pub.exists", "pub.scope", "pub.filter"] {
        assert_eq!(only(&findings, id).verdict, Ok, "{findings:#?}");
    }
    let findings = super::super::judge(&config(), &facts()).findings;
    assert_finding(only(&findings, ID), Ok, "every event has its payload in its own row", "");
}

#[test]
fn the_columns_of_a_join_must_be_there() {
    let without = |at: usize, name: &'static str| {
        let findings = judged(|survey| survey.tables[at].columns.retain(|column| column.name != name));
        only(&findings, ID).clone()
    };
    let found = without(1, "payload");
    assert_finding(&found, Fail, "public.bodies has no column \"payload\" for the payload", "columns = {");
    assert_finding(
        &without(1, "id"),
        Fail,
        "public.bodies has no column \"id\", which join is on",
        "one of \"payload\"",
    );
    assert_finding(&without(0, "body_id"), Fail, "public.outbox has no column \"body_id\"", "join = {");
    let findings = judged(|survey| survey.tables[1].columns[1].type_name = "xml".into());
    assert_finding(only(&findings, ID), Notice, "has type xml", "");
}

#[test]
fn a_parked_event_must_find_its_payload_later() {
    let findings = judged(|survey| survey.tables[1].readable = false);
    assert_finding(only(&findings, ID), Warn, "stays parked", "GRANT SELECT ON public.bodies TO relay;");
    let findings = judged(|survey| survey.tables[1].indexed.clear());
    assert_finding(only(&findings, ID), Warn, "no index on \"id\"", "CREATE INDEX CONCURRENTLY ON public.bodies (id);");
}

#[test]
fn a_joined_table_must_be_published_with_its_columns() {
    let findings = judged(|survey| drop(survey.publication.as_mut().unwrap().tables.pop()));
    assert_finding(only(&findings, "pub.exists"), Fail, "public.bodies", "ADD TABLE public.bodies");
    let findings = judged(|survey| survey.tables[1].kind = None);
    assert_finding(only(&findings, "pub.exists"), Fail, "table public.bodies does not exist", "outbox.join");
    let findings = judged(|survey| {
        survey.publication.as_mut().unwrap().tables[1].columns = Some(vec!["id".into(), "tenant".into()]);
    });
    assert_finding(only(&findings, "pub.filter"), Fail, "column \"payload\" of public.bodies is not in", "SET TABLE");
}
