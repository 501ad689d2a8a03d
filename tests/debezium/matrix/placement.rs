//! `table.fields.additional.placement`, the schema's version, and the record's time.

use crate::case::{As, Case};

pub fn cases() -> Vec<Case> {
    let mut cases = placements();
    cases.extend(partitions());
    cases.extend(versions());
    cases.extend(times());
    cases.extend(defaults());
    cases
}

fn placed(name: &str, placement: &str) -> Case {
    Case::new(name).value(As::Json).place(placement)
}

fn placements() -> Vec<Case> {
    let ignore = |case: Case| case.set("table.field.additional.missing", "ignore");
    vec![
        placed("a_header_by_its_own_name", "type:header").rows("type", &["'A'", "''", "null"]),
        placed("a_header_with_an_alias", "type:header:eventType").row(&[]),
        placed("an_envelope_by_its_own_name", "type:envelope").rows("type", &["'A'", "null"]),
        placed("an_envelope_with_an_alias", "type:envelope:eventType").row(&[]),
        placed("an_envelope_with_two_members", "type:envelope:eventType,aggregatetype:envelope").row(&[]),
        placed("an_envelope_as_text", "type:envelope:eventType").value(As::Text).rows("type", &["'A'", "null"]),
        placed("an_envelope_with_schema", "type:envelope:eventType").value(As::Schema).rows("type", &["'A'", "null"]),
        placed("the_first_type_names_the_schema_of_all", "type:envelope:eventType")
            .value(As::Schema)
            .rows("aggregatetype", &["'{case}'", "'{case}.2'"]),
        placed("an_envelope_around_null", "type:envelope:eventType").rows("payload", &["null"]),
        placed("an_envelope_around_null_with_schema", "type:envelope").value(As::Schema).rows("payload", &["null"]),
        placed("an_envelope_around_bytes", "type:envelope")
            .column("payload", "bytea")
            .rows("payload", &["'\\x00ff'", "null"]),
        placed("an_envelope_with_an_odd_alias", "type:envelope:the type.ü").row(&[]),
        placed("an_envelope_whose_alias_is_payload", "type:envelope:payload").fatal(&[]),
        placed("an_envelope_with_one_alias_twice", "type:envelope:x,aggregatetype:envelope:x").fatal(&[]),
        placed("one_column_in_all_places", "p:header,p:envelope,p:partition,p:header:again,p:envelope:member")
            .column("p", "int4")
            .rows("p", &["0", "1", "2"]),
        placed("blanks_and_capitals_in_a_placement", " type : HEADER : eventType ,aggregatetype: Envelope ").row(&[]),
        placed("a_header_called_id", "type:header:id").row(&[]),
        placed("the_id_as_a_second_header", "id:header").row(&[]),
        placed("the_payload_as_header_and_member", "payload:header,payload:envelope:copy").row(&[]),
        placed("a_required_column_with_schema", "x:envelope")
            .column("x", "text not null")
            .value(As::Schema)
            .rows("x", &["'x'"]),
        placed("a_missing_header_column", "missing:header").fatal(&[]),
        placed("a_missing_envelope_column", "missing:envelope").fatal(&[]),
        placed("a_missing_partition_column", "missing:partition").fatal(&[]),
        ignore(placed("a_missing_header_column_is_ignored", "missing:header,type:header")).row(&[]),
        ignore(placed("a_missing_envelope_column_is_ignored", "missing:envelope,type:envelope")).row(&[]),
        ignore(placed("the_only_envelope_column_is_missing_and_ignored", "missing:envelope")).row(&[]),
        ignore(placed("a_missing_partition_column_is_ignored", "missing:partition")).row(&[]),
        placed("missing_columns_are_an_error_in_capitals", "missing:header")
            .set("table.field.additional.missing", "ERROR")
            .fatal(&[]),
        placed("an_unknown_behaviour_for_missing_columns", "type:header")
            .set("table.field.additional.missing", "warn")
            .refused(),
        placed("the_old_name_for_missing_columns_is_ignored", "missing:header")
            .set("table.fields.additional.error.on.missing", "false")
            .fatal(&[]),
        placed("the_old_name_for_the_key_is_ignored", "type:header")
            .column("k", "text")
            .set("table.field.event.payload.id", "k")
            .rows("k", &["'other'"]),
        placed("an_unknown_placement", "type:footer").fatal(&[]),
        placed("a_placement_of_one_part", "type").refused(),
        placed("a_placement_of_four_parts", "type:header:a:b").refused(),
        placed("an_empty_placement", "").refused(),
        placed("a_placement_that_ends_in_a_comma", "type:header,").row(&[]),
        placed("a_placement_with_an_empty_part", "type:header,,aggregateid:header").refused(),
        placed("a_placement_with_an_empty_alias", "type:header:").row(&[]),
        placed(
            "many_headers_in_the_order_of_the_list",
            "type:header:z,aggregateid:header:a,aggregatetype:header:m,type:header:z",
        )
        .row(&[]),
    ]
}

fn partitions() -> Vec<Case> {
    let by = |name: &str, kind: &str| Case::new(name).column("p", kind).place("p:partition");
    vec![
        by("a_partition_from_int4", "int4").rows("p", &["2", "0", "1", "1"]),
        by("a_partition_with_an_alias", "int4").place("p:partition:alias").rows("p", &["2", "0"]),
        by("a_partition_of_null_is_the_keys", "int4").rows("p", &["null", "2", "null"]),
        by("a_partition_of_null_with_a_default", "int4 default 0").row(&[]).rows("p", &["null", "1"]),
        by("a_partition_from_int2", "int2").fatal(&[("p", "1")]),
        by("a_partition_from_int8", "int8").fatal(&[("p", "1")]),
        by("a_partition_from_text", "text").fatal(&[("p", "'1'")]),
        by("a_partition_from_int8_of_null", "int8").fatal(&[("p", "null")]),
        by("a_negative_partition", "int4").fatal(&[("p", "-1")]),
        by("a_partition_that_is_not_there", "int4")
            .connector("producer.override.max.block.ms", "4000")
            .row(&[("p", "1")])
            .fatal(&[("p", "99")]),
        by("two_partitions", "int4")
            .column("q", "int4")
            .place("p:partition,q:partition")
            .row(&[("p", "0"), ("q", "2")]),
    ]
}

fn versions() -> Vec<Case> {
    let versioned = |name: &str, kind: &str| {
        let case = Case::new(name).column("v", kind).set("table.field.event.schema.version", "v");
        case.value(As::Schema).place("type:envelope")
    };
    vec![
        versioned("a_schema_version", "int4").rows("v", &["1", "2", "1"]),
        versioned("a_schema_version_without_schemas", "int4").value(As::Json).rows("v", &["1"]),
        versioned("a_schema_version_of_a_wider_type_without_schemas", "int8").value(As::Json).fatal(&[("v", "1")]),
        versioned("a_schema_version_without_an_envelope", "int4").place("type:header").rows("v", &["1"]),
        versioned("a_schema_version_of_null", "int4").rows("v", &["null"]),
        versioned("a_schema_version_of_a_wider_type", "int8").fatal(&[("v", "1")]),
        versioned("a_schema_version_of_a_narrower_type", "int2").fatal(&[("v", "1")]),
        Case::new("a_missing_schema_version")
            .set("table.field.event.schema.version", "missing")
            .value(As::Schema)
            .place("type:envelope")
            .fatal(&[]),
        Case::new("a_missing_schema_version_without_an_envelope")
            .set("table.field.event.schema.version", "missing")
            .row(&[]),
        versioned("one_schema_version_of_two_shapes", "int4")
            .column("payload", "text")
            .set("table.expand.json.payload", "true")
            .row(&[("v", "1"), ("payload", "'{\"a\":1}'")])
            .fatal(&[("v", "1"), ("payload", "'{\"b\":\"two\"}'")]),
    ]
}

fn times() -> Vec<Case> {
    let timed = |name: &str, kind: &str| Case::new(name).column("at", kind).set("table.field.event.timestamp", "at");
    const TIMES: &[&str] = &["'2024-02-29 12:34:56.789012'", "'2024-02-29 12:34:56'", "'1970-01-01 00:00:00'", "null"];
    vec![
        timed("the_time_of_a_timestamp", "timestamp").rows("at", TIMES),
        timed("the_time_of_a_timestamp_0", "timestamp(0)").rows("at", TIMES),
        timed("the_time_of_a_timestamp_3", "timestamp(3)").rows("at", TIMES),
        timed("the_time_of_a_timestamp_6", "timestamp(6)").rows("at", TIMES),
        timed("the_time_in_microseconds", "timestamp(3)").set("time.precision.mode", "microseconds").rows("at", TIMES),
        timed("the_time_in_nanoseconds", "timestamp").set("time.precision.mode", "nanoseconds").rows("at", TIMES),
        timed("the_time_in_adaptive_microseconds", "timestamp")
            .set("time.precision.mode", "adaptive_time_microseconds")
            .rows("at", TIMES),
        timed("the_time_of_null_with_a_default", "timestamp default '2024-01-01 00:00:00'")
            .row(&[])
            .row(&[("at", "null")]),
        timed("a_required_time", "timestamp not null").row(&[("at", "'2024-02-29 12:34:56.789012'")]),
        timed("the_time_as_connect_has_it", "timestamp(3)")
            .set("time.precision.mode", "connect")
            .fatal(&[("at", TIMES[0])]),
        timed("the_time_as_text", "timestamp").set("time.precision.mode", "isostring").fatal(&[("at", TIMES[0])]),
        timed("the_time_of_timestamptz", "timestamptz").fatal(&[("at", "'2024-02-29 12:34:56Z'")]),
        timed("the_time_of_timestamptz_that_is_null", "timestamptz").fatal(&[("at", "null")]),
        timed("the_time_of_a_number", "int8").fatal(&[("at", "1709210096789")]),
        timed("the_time_of_a_date", "date").fatal(&[("at", "'2024-02-29'")]),
        timed("a_time_before_1970", "timestamp").row(&[("at", TIMES[0])]).fatal(&[("at", "'1969-12-31 23:59:58'")]),
        timed("a_time_one_millisecond_before_1970", "timestamp(3)").row(&[("at", "'1969-12-31 23:59:59.999'")]),
        timed("a_time_microseconds_before_1970", "timestamp").row(&[("at", "'1969-12-31 23:59:59.999999'")]),
        timed("a_time_far_ahead", "timestamp").row(&[("at", TIMES[0])]).fatal(&[("at", "'2124-02-29 12:34:56'")]),
        timed("a_time_that_is_infinite", "timestamp").row(&[("at", TIMES[0])]).fatal(&[("at", "'infinity'")]),
        Case::new("a_missing_time").set("table.field.event.timestamp", "missing").fatal(&[]),
        Case::new("without_a_time_it_is_that_of_reading").row(&[]),
    ]
}

/// NULL where the column has a default.
fn defaults() -> Vec<Case> {
    let all = "x:header,x:envelope";
    let with = |name: &str, kind: &str| placed(name, all).column("x", kind).rows("x", &["default", "null"]);
    vec![
        with("null_in_text_with_a_constant_default", "text default 'constant'"),
        with("null_in_an_integer_with_a_constant_default", "int4 default 7"),
        with("null_in_a_bigint_with_a_constant_default", "int8 default 7"),
        with("null_in_a_boolean_with_a_constant_default", "bool default true"),
        with("null_in_a_numeric_with_a_constant_default", "numeric default 1.5"),
        with("null_in_a_scaled_numeric_with_a_constant_default", "numeric(10,2) default 1.5"),
        with("null_in_a_double_with_a_constant_default", "float8 default 1.5"),
        with("null_in_jsonb_with_a_constant_default", "jsonb default '{\"b\":1,\"a\":2}'"),
        with("null_in_a_uuid_with_a_constant_default", "uuid default 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"),
        with("null_in_a_date_with_a_constant_default", "date default '2024-02-29'"),
        with("null_in_a_timestamp_with_a_constant_default", "timestamp default '2024-02-29 12:34:56.789'"),
        with("null_in_timestamptz_with_a_constant_default", "timestamptz default '2024-02-29 12:34:56.789Z'"),
        with("null_in_bytea_with_a_constant_default", "bytea default '\\x00ff'"),
        with("null_in_an_array_with_a_constant_default", "text[] default '{a,b}'"),
        with("null_in_an_enum_with_a_constant_default", "{case}_t default 'sad'")
            .before("create type {case}_t as enum ('sad', 'happy')"),
        with("null_with_a_default_of_null", "text default null"),
        placed("null_in_text_with_a_function_default", all).column("x", "text default lower('A')").rows("x", &["null"]),
        placed("null_in_jsonb_with_a_function_default", all)
            .column("x", "jsonb default jsonb_build_object()")
            .rows("x", &["null"]),
        placed("null_in_an_integer_with_a_function_default", all)
            .column("x", "int4 default random()")
            .rows("x", &["null"]),
        placed("null_in_timestamptz_with_a_function_default", all)
            .column("x", "timestamptz default now()")
            .rows("x", &["null"]),
        placed("null_in_a_timestamp_with_a_function_default", all)
            .column("x", "timestamp default localtimestamp")
            .rows("x", &["null"]),
        placed("null_in_a_date_with_a_function_default", all)
            .column("x", "date default current_date")
            .rows("x", &["null"]),
        placed("null_in_a_uuid_with_a_function_default", all)
            .column("x", "uuid default gen_random_uuid()")
            .rows("x", &["null"]),
        placed("null_in_a_boolean_with_a_function_default", all)
            .column("x", "bool default (random() > 2)")
            .rows("x", &["null"]),
        placed("null_in_bytea_with_a_function_default", all)
            .column("x", "bytea default decode('00', 'hex')")
            .rows("x", &["null"]),
        placed("a_default_with_schema", "x:envelope")
            .column("x", "text default 'constant'")
            .value(As::Schema)
            .rows("x", &["default", "null"]),
        placed("a_function_default_with_schema", "x:envelope")
            .column("x", "text default lower('A')")
            .value(As::Schema)
            .rows("x", &["null"]),
        Case::new("a_null_key_with_a_default").column("aggregateid", "text default 'k'").rows("aggregateid", &["null"]),
        Case::new("a_null_key_with_a_default_and_schema")
            .column("aggregateid", "text default 'k'")
            .key(As::Schema)
            .rows("aggregateid", &["null"]),
        Case::new("a_null_id_with_a_default")
            .without_key()
            .column("id", "uuid default gen_random_uuid()")
            .rows("id", &["null"]),
        Case::new("a_null_payload_with_a_default").column("payload", "jsonb default '{}'").rows("payload", &["null"]),
        Case::new("a_null_payload_with_a_default_is_no_tombstone")
            .column("payload", "jsonb default '{}'")
            .set("route.tombstone.on.empty.payload", "true")
            .rows("payload", &["null"]),
        Case::new("a_null_payload_with_a_function_default_is_one")
            .column("payload", "text default lower('A')")
            .set("route.tombstone.on.empty.payload", "true")
            .rows("payload", &["null"]),
        Case::new("a_null_route_with_a_function_default")
            .column("aggregatetype", "text default lower('A')")
            .fatal(&[("aggregatetype", "null")]),
    ]
}
