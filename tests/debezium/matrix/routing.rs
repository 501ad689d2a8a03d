//! Where a record goes: the topic, the key, the partition; and which changes become records at all.

use crate::case::{As, Case};

pub fn cases() -> Vec<Case> {
    let mut cases = topics();
    cases.extend(routed_by());
    cases.extend(illegal_topics());
    cases.extend(keys_and_ids());
    cases.extend(changes());
    cases.extend(tables());
    cases
}

fn routed(name: &str, regex: &str, replacement: &str) -> Case {
    Case::new(name).set("route.topic.regex", regex).set("route.topic.replacement", replacement)
}

fn topics() -> Vec<Case> {
    vec![
        Case::new("by_default_the_topic_is_outbox_event_and_the_type")
            .row(&[])
            .row(&[("aggregatetype", "'{case}.Upper-1_x'")]),
        routed("a_constant_topic", ".*", "constant.{case}").row(&[]),
        routed("a_named_group", "shop-(?<what>.*)", "events.${what}")
            .rows("aggregatetype", &["'shop-{case}'", "'shop-'||'{case}'||'-more'"]),
        routed("numbered_groups", "([a-z_]+)-([0-9]+)", "$2.$1.$0").rows("aggregatetype", &["'{case}-7'"]),
        routed("no_match_leaves_the_type_as_it_is", "shop-(?<what>.*)", "events.${what}")
            .rows("aggregatetype", &["'{case}'"]),
        routed("a_match_of_a_part_is_none", "a_match", "events").rows("aggregatetype", &["'{case}'"]),
        routed("escapes_in_a_replacement", "(?<it>.*)", "out\\.\\e\\vent\\-${it}\\_").row(&[]),
        routed("an_absent_group_is_empty", "(shop-)?(?<it>.*)", "events.$1${it}")
            .rows("aggregatetype", &["'{case}'", "'shop-{case}'"]),
        routed("a_group_of_two_digits_that_is_not_there", "(.*)", "events.$10").row(&[]),
        routed("a_regex_that_ignores_case", "(?i)SHOP-(?<it>.*)", "events.${it}")
            .rows("aggregatetype", &["'Shop-{case}'"]),
        routed("a_regex_with_lookahead", "(?=shop)(?<it>.*)", "events.${it}")
            .rows("aggregatetype", &["'shop-{case}'", "'other-{case}'"]),
        routed("a_regex_with_a_backreference", "(\\w+)-\\1", "events.$1")
            .rows("aggregatetype", &["'{case}-{case}'", "'{case}-other'"]),
        routed("a_possessive_regex", "([a-z_]++)(.*)", "events.$1.$2").rows("aggregatetype", &["'{case}-1'"]),
        routed("a_regex_of_classes", "(?<it>\\p{Lower}\\p{Punct}\\p{javaLowerCase}[\\w&&[^0-9]]+)", "events.${it}")
            .row(&[]),
        routed("a_shorter_alternative_is_replaced_first", "shop|shop.*", "events")
            .rows("aggregatetype", &["'shop.{case}'"]),
        routed("a_reluctant_group_is_replaced_empty", "(?<it>.*?)", "events.${it}-").row(&[]),
        routed("a_greedy_regex_is_replaced_once", "[a-z_]*", "events.$0").row(&[]),
        routed("a_comment_mode_regex", "(?x) (?<it> .* ) # all of it", "events.${it}").row(&[]),
        routed("a_quoted_regex", "\\Qshop.\\E(?<it>.*)", "events.${it}")
            .rows("aggregatetype", &["'shop.{case}'", "'shopX{case}'"]),
        routed("a_regex_where_a_dot_takes_line_breaks", "(?s)(?<it>[a-z_]+).*", "events.${it}")
            .rows("aggregatetype", &["e'{case}\\nmore'"]),
        routed("a_group_that_is_unknown", "(?<it>.*)", "events.${other}").fatal(&[]),
        routed("a_group_by_number_that_is_unknown", ".*", "events.$1").fatal(&[]),
        routed("a_replacement_that_ends_in_a_dollar", ".*", "events$").fatal(&[]),
        routed("a_replacement_that_ends_in_a_backslash", ".*", "events\\").fatal(&[]),
        routed("an_invalid_regex", "(", "events").refused(),
        routed("an_empty_regex", "", "events.{case}").row(&[]),
        routed("an_empty_replacement", ".*", "").fatal(&[]),
    ]
}

fn routed_by() -> Vec<Case> {
    let by = |name: &str, kind: &str| Case::new(name).column("x", kind).set("route.by.field", "x");
    vec![
        by("routed_by_a_text", "text").rows("x", &["'{case}'"]),
        by("routed_by_a_varchar", "varchar(60)").rows("x", &["'{case}'"]),
        by("routed_by_an_enum", "{case}_t").before("create type {case}_t as enum ('{case}')").rows("x", &["'{case}'"]),
        by("routed_by_citext", "citext").before("create extension if not exists citext").rows("x", &["'{case}.Mixed'"]),
        by("routed_by_a_uuid", "uuid")
            .set("route.topic.replacement", "{case}.${routedByValue}")
            .rows("x", &["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
        by("routed_by_a_domain", "{case}_t").before("create domain {case}_t as text").rows("x", &["'{case}'"]),
        by("routed_by_the_id", "text")
            .set("route.by.field", "id")
            .set("route.topic.replacement", "{case}.${routedByValue}")
            .row(&[]),
        by("routed_by_a_char_with_blanks", "char(60)").fatal(&[("x", "'{case}'")]),
        by("routed_by_a_number", "int4").fatal(&[("x", "7")]),
        by("routed_by_null", "text").row(&[("x", "'{case}'")]).fatal(&[("x", "null")]),
        by("routed_by_null_with_a_default", "text default '{case}'").row(&[]).fatal(&[("x", "null")]),
        Case::new("routed_by_a_missing_column").set("route.by.field", "missing").fatal(&[]),
        by("routed_by_an_empty_text", "text")
            .set("route.topic.replacement", "{case}.${routedByValue}")
            .rows("x", &["''"]),
        by("routed_by_timestamptz", "timestamptz").fatal(&[("x", "'2024-02-29 12:34:56Z'")]),
    ]
}

fn illegal_topics() -> Vec<Case> {
    let named = |name: &str, value: &str| Case::new(name).row(&[]).fatal(&[("aggregatetype", value)]);
    vec![
        named("a_topic_with_a_blank", "'a b'"),
        named("a_topic_with_an_umlaut", "'ärger'"),
        named("a_topic_with_a_line_break", "e'a\\nb'"),
        named("a_topic_that_is_too_long", "repeat('x', 250)"),
        Case::new("a_topic_of_a_dot")
            .set("route.topic.replacement", "${routedByValue}")
            .fatal(&[("aggregatetype", "'.'")]),
    ]
}

fn keys_and_ids() -> Vec<Case> {
    vec![
        Case::new("keys_spread_over_partitions")
            .rows("aggregateid", &["'a'", "'b'", "'c'", "'d'", "'e'", "'f'", "'g'", "''", "'é😀'"]),
        Case::new("json_keys_spread_by_their_quoted_bytes")
            .key(As::Json)
            .rows("aggregateid", &["'a'", "'b'", "'c'", "'d'", "'é😀'"]),
        Case::new("keys_with_schemas_spread_by_all_their_bytes")
            .key(As::Schema)
            .rows("aggregateid", &["'a'", "'b'", "'c'", "'d'"]),
        Case::new("a_null_key_as_text").rows("aggregateid", &["null"]),
        Case::new("a_null_key_as_json").key(As::Json).rows("aggregateid", &["null"]),
        Case::new("a_null_key_with_schema").key(As::Schema).rows("aggregateid", &["null"]),
        Case::new("a_required_key_with_schema").column("aggregateid", "text not null").key(As::Schema).row(&[]),
        Case::new("the_key_is_the_id").set("table.field.event.key", "id").row(&[]),
        Case::new("the_key_is_the_id_with_schema").set("table.field.event.key", "id").key(As::Schema).row(&[]),
        Case::new("the_key_is_the_payload").set("table.field.event.key", "payload").row(&[]),
        Case::new("a_missing_key_column").set("table.field.event.key", "missing").fatal(&[]),
        Case::new("a_key_column_of_another_case").set("table.field.event.key", "AggregateId").fatal(&[]),
        Case::new("columns_that_differ_only_in_capitals").column("AggregateId", "text").row(&[]).refused(),
        Case::new("a_column_with_capitals")
            .without("aggregateid")
            .column("AggregateId", "text")
            .set("table.field.event.key", "AggregateId")
            .rows("AggregateId", &["'k'"]),
        Case::new("the_id_is_another_column")
            .column("event_id", "int8")
            .set("table.field.event.id", "event_id")
            .rows("event_id", &["42", "null"]),
        Case::new("the_id_is_null").without_key().row(&[("id", "null")]),
        Case::new("a_missing_id_column").set("table.field.event.id", "missing").fatal(&[]),
        Case::new("the_type_column_need_not_exist").without("type").set("table.field.event.type", "missing").row(&[]),
        Case::new("a_missing_payload_column").set("table.field.event.payload", "missing").fatal(&[]),
        Case::new("the_payload_is_another_column")
            .column("body", "text")
            .set("table.field.event.payload", "body")
            .rows("body", &["'raw text'"]),
    ]
}

fn changes() -> Vec<Case> {
    let update = "update {table} set type = 'Changed'";
    vec![
        Case::new("an_update_is_dropped_with_a_warning").row(&[]).sql(update).row(&[]),
        Case::new("an_update_is_dropped_with_an_error").set("table.op.invalid.behavior", "error").row(&[]).sql(update).row(&[]),
        Case::new("an_update_is_fatal").set("table.op.invalid.behavior", "fatal").row(&[]).fatal_sql(update),
        Case::new("an_update_is_fatal_in_capitals").set("table.op.invalid.behavior", " FATAL ").row(&[]).fatal_sql(update),
        Case::new("an_unknown_behaviour_for_updates").set("table.op.invalid.behavior", "ignore").refused(),
        Case::new("a_delete_is_dropped").row(&[]).sql("delete from {table}").row(&[]),
        Case::new("a_delete_is_dropped_even_when_updates_are_fatal")
            .set("table.op.invalid.behavior", "fatal")
            .row(&[])
            .sql("delete from {table}")
            .row(&[]),
        Case::new("an_insert_and_delete_in_one_transaction")
            .sql("begin; insert into {table} values ('00000000-0000-4000-8000-00000000000a', '{case}', 'k', 't', '{}'); delete from {table}; commit")
            .row(&[])
            .publishes(2),
        Case::new("an_update_of_the_primary_key_publishes_again")
            .row(&[])
            .sql("update {table} set id = '00000000-0000-4000-8000-0000000000ff'")
            .row(&[])
            .publishes(3),
        Case::new("a_truncate_is_dropped").row(&[]).sql("truncate {table}").row(&[]),
        Case::new("rows_of_one_transaction_keep_their_order")
            .sql("insert into {table} select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, '{case}', 'one', 't', jsonb_build_object('n', n) from generate_series(1, 12) n")
            .publishes(12),
    ]
}

fn tables() -> Vec<Case> {
    vec![
        Case::new("a_table_in_another_schema").schema("shop").value(As::Schema).place("type:envelope").row(&[]),
        Case::new("a_table_without_a_primary_key").without_key().row(&[]),
        Case::new("a_required_payload_with_schema").column("payload", "jsonb not null").value(As::Schema).row(&[]),
        Case::new("a_varchar_payload_with_schema").column("payload", "varchar(99)").value(As::Schema).row(&[]),
        Case::new("a_large_payload").column("payload", "text").row(&[("payload", "repeat('0123456789', 300)")]),
        Case::new("a_generated_column_counts_as_missing")
            .column("x", "text generated always as ('x' || aggregateid) stored")
            .place("x:header")
            .fatal(&[]),
        Case::new("a_tracing_column_without_telemetry").column("tracingspancontext", "text").rows(
            "tracingspancontext",
            &["'traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'", "null"],
        ),
        Case::new("tracing_options_without_telemetry")
            .column("trace", "text")
            .set("tracing.span.context.field", "trace")
            .set("tracing.operation.name", "relay")
            .set("tracing.with.context.field.only", "false")
            .rows("trace", &["'traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'", "null"]),
        Case::new("context_headers_come_first").set("extended.headers.enabled", "true").place("type:header").row(&[]),
        Case::new("context_headers_as_json")
            .set("extended.headers.enabled", "true")
            .header(As::Json)
            .place("type:header")
            .row(&[]),
        Case::new("context_headers_with_schema").set("extended.headers.enabled", "true").header(As::Schema).row(&[]),
        Case::new("an_unknown_option_is_ignored").set("table.field.unheard.of", "x").row(&[]),
    ]
}
