use super::super::Verdict::{Fail, Ok, Skipped, Warn};
use super::super::tests::{assert_finding, config, facts, only, publication, published, survey, table};
use super::*;
use crate::source::catalog::survey::OutboxColumn;

#[test]
fn a_missing_publication_comes_with_the_statement_that_makes_it() {
    let hint = "CREATE PUBLICATION outboxd FOR TABLE public.outbox WITH (publish = 'insert', \
                publish_via_partition_root = true);";
    assert_finding(&missing("outboxd", &[table()]), Fail, "does not exist", hint);
    assert_finding(&missing("Odd", &[]), Fail, "does not exist", "CREATE PUBLICATION \"Odd\" WITH");
    let mut facts = facts();
    facts.survey.as_mut().unwrap().publication = None;
    let findings = super::super::judge(&config(), &facts).findings;
    assert_finding(only(&findings, "pub.scope"), Skipped, "no publication", "");
}

#[test]
fn every_outbox_must_be_in_the_publication() {
    let judged = |publication: Publication, table: OutboxTable| exists("p", &publication, &[table]);
    assert_finding(&judged(publication(), table()), Ok, "every outbox", "");
    assert_finding(
        &judged(Publication { insert: false, ..publication() }, table()),
        Fail,
        "no inserts",
        "SET (publish = 'insert')",
    );
    let empty = Publication { tables: vec![published("public", "orders")], ..publication() };
    assert_finding(&judged(empty, table()), Fail, "lacks table public.outbox", "ADD TABLE public.outbox");
    assert_finding(
        &judged(publication(), OutboxTable { kind: None, ..table() }),
        Fail,
        "does not exist",
        "outboxd init",
    );
    assert_finding(&judged(publication(), OutboxTable { kind: Some("v".into()), ..table() }), Fail, "not a table", "");
    assert_finding(&judged(publication(), OutboxTable { unlogged: true, ..table() }), Fail, "unlogged", "SET LOGGED");
    let partitioned = OutboxTable { kind: Some("p".into()), leaves: vec!["public.outbox_1".into()], ..table() };
    let leaves = Publication { tables: vec![published("public", "outbox_1")], via_root: false, ..publication() };
    assert_finding(&judged(leaves, partitioned), Ok, "every outbox", "");
}

#[test]
fn what_is_sent_for_nothing_is_a_warning() {
    let judged = |publication: Publication| scope("p", &publication, &[table()]);
    assert_finding(&judged(publication()), Ok, "nothing else", "");
    assert_finding(
        &judged(Publication { all_tables: true, ..publication() }),
        Warn,
        "ALL TABLES",
        "DROP PUBLICATION p; CREATE",
    );
    let more = Publication {
        tables: vec![published("public", "outbox"), published("public", "orders"), published("public", "users")],
        ..publication()
    };
    assert_finding(&judged(more), Warn, "public.orders and 1 more", "DROP TABLE public.orders");
    let all = Publication { update: true, delete: true, truncate: true, ..publication() };
    assert_finding(&judged(all), Warn, "update, delete, truncate", "SET (publish = 'insert')");
}

#[test]
fn what_outboxd_writes_itself_must_not_come_back_to_it() {
    let tables = ["public.outbox", "outboxd.dead_letter", "public.orders", "outboxd.position"];
    let tables = tables.map(|name| name.split_once('.').unwrap()).map(|(schema, name)| published(schema, name)).into();
    let sent = Publication { tables, ..publication() };
    let hint = "ALTER PUBLICATION p DROP TABLE outboxd.dead_letter, outboxd.position;";
    assert_finding(&scope("p", &sent, &[table()]), Warn, "outboxd's own", hint);
    let all = Publication { all_tables: true, ..sent };
    assert_finding(&scope("p", &all, &[table()]), Warn, "ALL TABLES", "CREATE PUBLICATION p FOR TABLE public.outbox");
    let letters = OutboxTable { schema: "outboxd".into(), name: "dead_letter".into(), ..table() };
    assert_finding(&scope("p", &publication(), &[letters]), Fail, "outbox outboxd.dead_letter", "outbox.table");
}

#[test]
fn a_filter_that_hides_rows_or_mapped_columns_is_told() {
    let judged = |published: PublishedTable, table: OutboxTable, version| {
        let mut survey = survey();
        survey.tables = vec![table];
        survey.server.version = version;
        filter("p", &Publication { tables: vec![published], ..publication() }, &config().outbox, &survey)
    };
    let all = published("public", "outbox");
    assert_finding(&judged(all.clone(), table(), 150_008)[0], Ok, "no row and no mapped column", "");
    let rows = PublishedTable { row_filter: Some("(tenant = 1)".into()), ..all.clone() };
    assert_finding(&judged(rows, table(), 150_008)[0], Warn, "(tenant = 1)", "SET TABLE public.outbox");
    let names = |left_out: &str| {
        table().columns.into_iter().map(|column| column.name).filter(|name| name != left_out).collect::<Vec<_>>()
    };
    let columns = PublishedTable { columns: Some(names("payload")), ..all.clone() };
    assert_finding(&judged(columns, table(), 150_008)[0], Fail, "\"payload\" of public.outbox is not in", "SET TABLE");
    let generated = |column: OutboxColumn| OutboxColumn { generated: column.name == "aggregate_id", ..column };
    let computed = OutboxTable { columns: table().columns.into_iter().map(generated).collect(), ..table() };
    assert_finding(
        &judged(all.clone(), computed.clone(), 170_000)[0],
        Fail,
        "\"aggregate_id\" of public.outbox is generated",
        "",
    );
    assert_finding(&judged(all, computed, 180_000)[0], Ok, "no mapped column", "");
}

#[test]
fn partitions_must_arrive_under_their_roots_name() {
    let partitioned = OutboxTable { kind: Some("p".into()), ..table() };
    let apart = Publication { via_root: false, ..publication() };
    assert_finding(&partition("p", &apart, &[table()]), Ok, "no outbox is partitioned", "");
    assert_finding(
        &partition("p", &publication(), std::slice::from_ref(&partitioned)),
        Ok,
        "under the name of their root",
        "",
    );
    assert_finding(
        &partition("p", &apart, &[partitioned]),
        Fail,
        "partitions' names",
        "publish_via_partition_root = true",
    );
}
