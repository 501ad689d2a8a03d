use super::super::Verdict::{self, Fail, Notice, Ok, Warn};
use super::super::routing::topics;
use super::super::tests::{assert_finding, column as place, config, route, row, survey, table};
use super::*;
use crate::config::{OutboxSource, Pattern, Piece, Rules};
use crate::source::catalog::survey::SampleRow;

fn judged(change: impl FnOnce(&mut Config, &mut OutboxTable)) -> Vec<Finding> {
    let (mut config, mut table) = (config(), table());
    change(&mut config, &mut table);
    columns(&config, &Survey { tables: vec![table], ..survey() })
}

fn typed(name: &str, type_name: &str) -> Vec<Finding> {
    judged(|config, table| {
        config.outbox[0].columns.partition = (name == "partition").then(|| "partition".to_owned());
        match table.columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.type_name = type_name.into(),
            None => table.columns.push(OutboxColumn {
                name: name.into(),
                type_name: type_name.into(),
                ..OutboxColumn::default()
            }),
        }
    })
}

#[test]
fn each_part_takes_the_types_that_can_play_it() {
    for (name, type_name, verdict) in [
        ("id", "uuid", Ok),
        ("id", "text", Ok),
        ("id", "character varying", Ok),
        ("id", "bigint", Ok),
        ("id", "integer", Ok),
        ("id", "numeric", Notice),
        ("payload", "json", Ok),
        ("payload", "bytea", Ok),
        ("payload", "xml", Notice),
        ("event_type", "mood", Notice),
        ("created_at", "timestamp without time zone", Ok),
        ("created_at", "date", Fail),
        ("headers", "json", Ok),
        ("headers", "hstore", Fail),
        ("partition", "integer", Ok),
        ("partition", "text", Fail),
    ] {
        let findings = typed(name, type_name);
        assert_eq!(findings[0].verdict, verdict, "{name} {type_name}: {findings:#?}");
    }
}

#[test]
fn a_missing_column_is_named_with_those_there_are() {
    let findings = judged(|config, _| config.outbox[0].columns.payload = "body".into());
    assert_finding(
        &findings[0],
        Fail,
        "public.outbox has no column \"body\" for the payload",
        "columns = { payload = \"…\" }, one of \"id\"",
    );
    let findings = judged(|config, _| config.rules.routes.push(route(&[("tenant", "a*")], "t", place("region"))));
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert_finding(&findings[0], Fail, "a route names column \"region\"", "its columns: \"id\"");
    assert_finding(&findings[1], Notice, "a route names column \"tenant\"", "its columns: \"id\"");
    let judge = |otherwise| {
        let key = Piece::Fallback("region".into(), Pattern { pieces: vec![otherwise] });
        judged(|config, _| config.rules.routes.push(route(&[], "t", key)))
    };
    let findings = judge(Piece::Literal("none".into()));
    assert_finding(&findings[0], Notice, "lacks: a match on it fits no row, and a fallback stands", "");
    let findings = judge(place("tenant"));
    assert_finding(&findings[1], Fail, "a route names column \"tenant\"", "");
}

#[test]
fn a_route_that_takes_the_timestamp_from_no_time_fails() {
    let judge = |type_name: &str| {
        judged(|config, table| {
            let timestamp = Some(Timestamp::Column("paid_at".into()));
            config.rules.routes.push(Route { timestamp, ..Route::default() });
            table.columns.push(OutboxColumn {
                name: "paid_at".into(),
                type_name: type_name.into(),
                ..OutboxColumn::default()
            });
        })
    };
    for type_name in ["bigint", "date", "jsonb"] {
        let what = format!("timestamp from column \"paid_at\" of public.outbox, which has type {type_name}");
        assert_finding(&judge(type_name)[0], Fail, &what, "timestamp with time zone");
    }
    for type_name in ["timestamp with time zone", "timestamp without time zone", "text", "character", "name"] {
        assert_eq!(judge(type_name)[0].verdict, Ok, "{type_name}");
    }
}

#[test]
fn a_column_that_is_no_time_is_told_once_for_all_routes() {
    let findings = judged(|config, table| {
        for name in ["paid_at", "sent_at"] {
            let (name, type_name) = (name.to_owned(), "date".to_owned());
            table.columns.push(OutboxColumn { name, type_name, ..OutboxColumn::default() });
        }
        for name in ["paid_at", "sent_at", "paid_at"] {
            let timestamp = Some(Timestamp::Column(name.into()));
            config.rules.routes.push(Route { timestamp, ..route(&[("event_type", name)], "t", place("id")) });
        }
    });
    let failed = findings.iter().filter(|finding| finding.verdict == Fail);
    assert_eq!(failed.count(), 2, "{findings:#?}");
}

#[test]
fn a_column_that_a_part_hides_is_told() {
    let judge = |key: &str, id: &str| {
        judged(|config, table| {
            config.outbox[0].columns.id = id.into();
            config.rules.routes.push(route(&[], "t", place(key)));
            table.columns.push(OutboxColumn {
                name: "uuid".into(),
                type_name: "uuid".into(),
                ..OutboxColumn::default()
            });
        })
    };
    let findings = judge("id", "uuid");
    let hidden = findings.last().unwrap();
    assert_finding(
        hidden,
        Notice,
        "\"id\", which is the part that column \"uuid\" of public.outbox plays",
        "columns = { id = \"id\" }",
    );
    assert!(!judge("id", "id").iter().any(|finding| finding.message.contains("plays")));
}

#[test]
fn tomorrow_one_without_a_source_is_a_warning() {
    let judge = |headers: &[&str]| {
        judged(|config, _| {
            config.outbox[0].preset = Preset::System(System::TomorrowOne);
            let headers = headers.iter().map(|name| ((*name).to_owned(), Pattern::column("id"))).collect();
            config.rules.routes.push(Route { headers, ..Route::default() });
        })
    };
    let warned = |headers: &[&str]| judge(headers).iter().any(|finding| finding.message.contains("x-source"));
    assert!(warned(&["x-other"]) && !warned(&["x-source"]));
    assert_finding(judge(&[]).last().unwrap(), Warn, "the header x-source", "headers = { x-source");
}

#[test]
fn an_id_that_may_be_null_is_a_warning() {
    let findings = judged(|_, table| table.columns[0].not_null = false);
    assert_finding(&findings[0], Warn, "may be NULL", "ALTER TABLE public.outbox ALTER COLUMN id SET NOT NULL;");
}

#[test]
fn a_table_that_may_not_be_read_still_streams() {
    let findings = judged(|_, table| (table.readable, table.sample) = (false, None));
    assert_finding(&findings[0], Notice, "may not be read", "GRANT SELECT ON public.outbox TO relay;");
}

#[test]
fn messages_have_no_columns_to_check() {
    let findings = columns(&config(), &Survey { tables: Vec::new(), ..survey() });
    assert_finding(&findings[0], Ok, "logical messages", "");
}

#[test]
fn a_key_with_the_events_id_is_told() {
    let with = |routes| order(&Config { rules: Rules { routes, ..Rules::default() }, ..config() });
    let hint = "key = \"{aggregate_id}\"";
    assert_finding(&with(vec![]), Notice, "the default route", hint);
    let some = || route(&[("event_type", "order.*")], "orders", place("aggregate_id"));
    let rest = || route(&[], "rest", place("aggregate_id"));
    assert_finding(&with(vec![some()]), Notice, "the default route: the key", hint);
    assert_eq!(with(vec![some(), rest()]).verdict, Verdict::Ok);
    let by_id = route(&[("event_type", "user.*")], "users", place("id"));
    assert_finding(&with(vec![some(), by_id.clone(), rest()]), Notice, "route 2: the key", hint);
    // Behind a route that takes everything, nothing arrives.
    assert_eq!(with(vec![rest(), by_id]).verdict, Verdict::Ok);
}

#[test]
fn topics_come_from_the_routes_and_the_sampled_rows() {
    let mut config = config();
    config.rules.routes = vec![route(&[("event_type", "user.*")], "users", place("id"))];
    let mut table = table();
    let mut user = row("user", 10.0, 10);
    user.columns.insert("event_type".into(), Some("user.created".into()));
    let mut untyped = row("", 1.0, 1);
    untyped.columns.insert("aggregate_type".into(), None);
    table.sample = Some(vec![row("order", 60.0, 500), row("order", -5.0, 900), user, untyped]);
    let topics = topics(&config, &[table]);
    let names: Vec<&str> = topics.keys().map(String::as_str).collect();
    assert_eq!(names, ["outbox.event.order", "users"]);
    let orders = &topics["outbox.event.order"];
    assert_eq!((orders.rows, orders.largest, orders.oldest, orders.newest), (2, 900, Some(60.0), Some(-5.0)));
    assert_eq!(topics["users"].rows, 1);
}

#[test]
fn the_mapping_is_tried_on_real_rows() {
    let with = |sample: Vec<SampleRow>| judged(|_, table| table.sample = Some(sample)).remove(0);
    assert_finding(&with(vec![]), Ok, "there is no row to try them on", "");
    let found = "a real row becomes a record of topic \"outbox.event.order\" with key \"7\"";
    assert_finding(&with(vec![row("order", 60.0, 500)]), Ok, found, "");
    let why = "row 7 of public.outbox could not be published: \"outbox.event.what is this\" is not a valid topic name";
    assert_finding(&with(vec![row("order", 1.0, 1), row("what is this", 1.0, 1)]), Warn, why, "is parked");
    let mut headers = row("order", 1.0, 1);
    headers.columns.insert("headers".into(), Some("[1]".into()));
    assert_finding(&with(vec![headers]), Warn, "its headers are not a JSON object", "is parked");
}

#[test]
fn a_topic_named_in_a_route_counts_without_any_row() {
    let mut config = config();
    config.rules.routes = vec![route(&[], "all", place("id"))];
    config.rules.routes[0].topic = Some(Pattern { pieces: vec![Piece::Literal("all".into())] });
    config.outbox[0].source = OutboxSource::MessagePrefix("outbox".into());
    assert_eq!(topics(&config, &[]).keys().collect::<Vec<_>>(), ["all"]);
}
