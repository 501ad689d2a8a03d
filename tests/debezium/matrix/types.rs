//! Every type of column in every place: as key, header, member of the envelope, and payload, under each converter.

use crate::case::{As, Case, SIMPLE};

/// A type: its name here, in SQL, what must be made before it, and values of it.
struct Type {
    name: &'static str,
    sql: &'static str,
    before: &'static str,
    values: &'static [&'static str],
}

const fn of(name: &'static str, sql: &'static str, values: &'static [&'static str]) -> Type {
    Type { name, sql, before: "", values }
}

const fn made(name: &'static str, sql: &'static str, before: &'static str, values: &'static [&'static str]) -> Type {
    Type { name, sql, before, values }
}

const TIMES: &[&str] = &[
    "'2024-02-29 12:34:56.789012'",
    "'2024-02-29 12:34:56'",
    "'2024-02-29 12:34:00'",
    "'1970-01-01 00:00:00'",
    "'1969-12-31 23:59:59.999999'",
    "'0001-01-01 00:00:00'",
    "'9999-12-31 23:59:59.5'",
    "null",
];
const DOUBLES: &[&str] = &[
    "'1.1'",
    "'1'",
    "'100'",
    "'0'",
    "'-0'",
    "'0.001'",
    "'0.0001'",
    "'9999999'",
    "'12345678.9'",
    "'1e21'",
    "'-1.5e-7'",
    "'NaN'",
    "'Infinity'",
    "'-Infinity'",
    "null",
];
const NUMBERS: &[&str] = &["'1.10'", "'-0.5'", "'0'", "'1'", "'100'", "'12345678.99'", "'-128.00'", "'2.56'", "null"];

const TYPES: &[Type] = &[
    of("uuid", "uuid", &["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "null"]),
    of(
        "text",
        "text",
        &[
            "'plain'",
            "''",
            "' é😀\"quoted\"\\/'",
            "e'line\\nbreak\\ttab\\u0001\\u007f\\u2028'",
            "'null'",
            "'42'",
            "'{\"a\": 1}'",
            "null",
        ],
    ),
    of("varchar", "varchar(20)", &["'v-1'", "''", "null"]),
    of("char", "char(8)", &["'ab'", "''", "null"]),
    of("name", "name", &["'n-1'", "null"]),
    of("int2", "int2", &["7", "-32768", "32767", "null"]),
    of("int4", "int4", &["7", "-2147483648", "2147483647", "null"]),
    of("int8", "int8", &["7", "-9223372036854775808", "9223372036854775807", "null"]),
    of("oid", "oid", &["7", "4294967295", "null"]),
    of("bool", "bool", &["true", "false", "null"]),
    of("numeric_2", "numeric(10,2)", NUMBERS),
    of("numeric_0", "numeric(30,0)", &["'1'", "'-1'", "'255'", "'123456789012345678901234567890'", "null"]),
    of(
        "numeric",
        "numeric",
        &["'1.10'", "'1'", "'100'", "'1e20'", "'0.000001'", "'-12345678901234567890.123456789'", "'NaN'", "null"],
    ),
    of("money", "money", &["'12.34'", "'-1'", "null"]),
    of(
        "real",
        "real",
        &["'1.1'", "'1'", "'-0'", "'0.001'", "'16777217'", "'1e20'", "'3.4e38'", "'NaN'", "'Infinity'", "null"],
    ),
    of("double", "double precision", DOUBLES),
    of("date", "date", &["'2024-02-29'", "'1970-01-01'", "'1969-12-31'", "'0001-01-01'", "'9999-12-31'", "null"]),
    of("time", "time", &["'12:34:56.789012'", "'12:34:56'", "'00:00'", "'23:59:59.999999'", "null"]),
    of("time_0", "time(0)", &["'12:34:56'", "null"]),
    of("time_3", "time(3)", &["'12:34:56.789'", "null"]),
    of("timetz", "timetz", &["'12:34:56.789012+02'", "'12:34:56-11:30'", "'00:00Z'", "null"]),
    of("timestamp", "timestamp", TIMES),
    of("timestamp_0", "timestamp(0)", TIMES),
    of("timestamp_3", "timestamp(3)", TIMES),
    of("timestamp_6", "timestamp(6)", TIMES),
    of(
        "timestamptz",
        "timestamptz",
        &[
            "'2024-02-29 12:34:56.789012+02'",
            "'2024-02-29 12:34:56+00'",
            "'1969-12-31 23:59:59.999999Z'",
            "'0001-01-01 00:00:00Z'",
            "'infinity'",
            "'-infinity'",
            "null",
        ],
    ),
    of("timestamptz_0", "timestamptz(0)", &["'2024-02-29 12:34:56+02'", "null"]),
    of("timestamptz_3", "timestamptz(3)", &["'2024-02-29 12:34:56.7+02'", "'2024-02-29 12:34:56Z'", "null"]),
    of(
        "interval",
        "interval",
        &["'1 day'", "'1 year 2 months -3 days 04:05:06.789'", "'-00:00:01'", "'1 month'", "'0'", "null"],
    ),
    of("json", "json", &["'{\"a\" :1,\"a\":2}'", "'[1, 2]'", "'\"s\"'", "'null'", "null"]),
    of("jsonb", "jsonb", &["'{\"b\":1,\"a\":[1.10,2]}'", "'[]'", "'\"s\"'", "'null'", "null"]),
    of("bytea", "bytea", &["'\\x'", "'\\x00ff10'", "'text'", "null"]),
    made("enum", "{case}_t", "create type {case}_t as enum ('sad', 'so so', 'happy')", &["'happy'", "'so so'", "null"]),
    made("domain_text", "{case}_t", "create domain {case}_t as varchar(40)", &["'d-1'", "null"]),
    made("domain_int", "{case}_t", "create domain {case}_t as int4 check (value > 0)", &["7", "null"]),
    made("domain_numeric", "{case}_t", "create domain {case}_t as numeric(10,2)", &["'1.10'", "null"]),
    made(
        "domain_timestamp",
        "{case}_t",
        "create domain {case}_t as timestamp(3)",
        &["'2024-02-29 12:34:56.789'", "null"],
    ),
    made("citext", "citext", "create extension if not exists citext", &["'MiXed'", "null"]),
    made(
        "hstore",
        "hstore",
        "create extension if not exists hstore",
        &["'a=>1, b=>NULL, \"c d\"=>\"e\\\"f\"'", "''", "null"],
    ),
    made("ltree", "ltree", "create extension if not exists ltree", &["'Top.Science'", "null"]),
    of("xml", "xml", &["'<a b=\"c\">é</a>'", "null"]),
    of("inet", "inet", &["'192.168.0.1'", "'192.168.0.0/24'", "'::1'", "null"]),
    of("cidr", "cidr", &["'10.0.0.0/8'", "null"]),
    of("macaddr", "macaddr", &["'08:00:2b:01:02:03'", "null"]),
    of("bit_1", "bit(1)", &["b'1'", "b'0'", "null"]),
    of("bit_8", "bit(8)", &["b'10000001'", "b'00000000'", "null"]),
    of("bit_12", "bit(12)", &["b'100000000011'", "null"]),
    of("varbit", "varbit(16)", &["b'101'", "b'1111111100000001'", "null"]),
    of("varbit_1", "varbit(1)", &["b'1'", "b'0'", "null"]),
    of("text_array", "text[]", &["'{a,\"b c\",NULL,\"\\\"\"}'", "'{}'", "null"]),
    of("int_array", "int4[]", &["'{1,2,NULL}'", "'{}'", "'{{1,2},{3,4}}'", "null"]),
    of("bigint_array", "int8[]", &["'{9223372036854775807}'", "null"]),
    of("uuid_array", "uuid[]", &["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", "null"]),
    of("bool_array", "bool[]", &["'{t,f,NULL}'", "null"]),
    of("double_array", "float8[]", &["'{1.1,2}'", "null"]),
    of("numeric_array", "numeric(10,2)[]", &["'{1.10,2}'", "null"]),
    of("date_array", "date[]", &["'{2024-02-29}'", "null"]),
    of("timestamptz_array", "timestamptz[]", &["'{2024-02-29 12:34:56+02}'", "null"]),
    of("int4range_array", "int4range[]", &["'{\"[1,5)\",empty,NULL}'", "null"]),
    of("tstzrange_array", "tstzrange[]", &["array['[2024-02-29 12:34:56+02,)'::tstzrange]", "null"]),
    of("time_array", "time[]", &["'{12:34:56.789012}'", "null"]),
    of("timestamp_array", "timestamp[]", &["'{2024-02-29 12:34:56.789012}'", "null"]),
    made(
        "hstore_array",
        "hstore[]",
        "create extension if not exists hstore",
        &["array['a=>1, b=>NULL'::hstore, '', null]", "'{}'", "null"],
    ),
    of("jsonb_array", "jsonb[]", &["array['{\"a\":1}'::jsonb]", "null"]),
    of("int4range", "int4range", &["'[1,5)'", "'empty'", "null"]),
    of("tstzrange", "tstzrange", &["'[2024-02-29 12:34:56+02,)'", "null"]),
    of("point", "point", &["'(1.5,-2)'", "null"]),
    of("tsvector", "tsvector", &["'a fat cat'", "null"]),
];

/// A mode of the connector and the types it is about.
const MODES: &[(&str, &str, &[&str])] = &[
    ("decimal.handling.mode", "string", &["numeric", "numeric_2", "numeric_0", "money"]),
    ("decimal.handling.mode", "double", &["numeric", "numeric_2", "numeric_0", "money"]),
    ("binary.handling.mode", "base64", &["bytea"]),
    ("binary.handling.mode", "base64-url-safe", &["bytea"]),
    ("binary.handling.mode", "hex", &["bytea"]),
    ("hstore.handling.mode", "map", &["hstore", "hstore_array"]),
    ("interval.handling.mode", "string", &["interval"]),
    ("time.precision.mode", "adaptive_time_microseconds", &["date", "time", "time_3", "timestamp", "timestamp_3"]),
    ("time.precision.mode", "connect", &["date", "time", "timestamp", "timestamp_3", "timestamptz"]),
    ("time.precision.mode", "isostring", &["date", "time", "timetz", "timestamp", "timestamp_3", "timestamptz"]),
    ("time.precision.mode", "microseconds", &["date", "time", "timestamp", "timestamp_3"]),
    ("time.precision.mode", "nanoseconds", &["date", "time", "timestamp_3"]),
];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = TYPES.iter().flat_map(Type::cases).collect();
    for (option, mode, types) in MODES {
        for found in TYPES.iter().filter(|found| types.contains(&found.name)) {
            let short = option.split('.').next().expect("it has a first word");
            let mode_name = mode.replace("adaptive_time_microseconds", "adaptive_micros").replace('-', "_");
            let name = format!("{}_with_{short}_mode_{mode_name}", found.name);
            cases.push(found.plain(&name).set(option, mode));
            cases.push(found.json(&format!("{name}_json")).set(option, mode));
        }
    }
    cases.extend(odd());
    cases
}

impl Type {
    fn cases(&self) -> [Case; 4] {
        let name = |places: &str| format!("{}_in_{places}_places", self.name);
        [self.plain(&name("plain")), self.json(&name("json")), self.text(&name("text")), self.schema(&name("schema"))]
    }

    fn table(&self, name: &str) -> Case {
        Case::new(name).before(self.before).column("x", self.sql)
    }

    /// What most people have: text keys, simple headers, JSON values.
    fn plain(&self, name: &str) -> Case {
        let case = self.table(name).key(As::Text).value(As::Json).header(As::Class(SIMPLE));
        case.set("table.field.event.key", "x").place("x:header,x:header:again,x:envelope:member").rows("x", self.values)
    }

    fn json(&self, name: &str) -> Case {
        let case = self.table(name).key(As::Json).value(As::Schema).header(As::Json);
        case.set("table.field.event.key", "x").place("x:envelope,x:header:again").rows("x", self.values)
    }

    fn text(&self, name: &str) -> Case {
        let case = self.table(name).key(As::Schema).value(As::Text).header(As::Text);
        let case = case.set("table.field.event.key", "x").set("table.field.event.payload", "x");
        case.place("x:header").rows("x", self.values)
    }

    fn schema(&self, name: &str) -> Case {
        let case = self.table(name).value(As::Json).header(As::Schema).set("table.field.event.payload", "x");
        case.place("x:header").rows("x", self.values)
    }
}

/// Values that may end a task, each by itself.
fn odd() -> Vec<Case> {
    let odd = |name: &str, sql: &str| {
        Case::new(name).column("x", sql).value(As::Json).place("x:header,x:envelope").row(&[("x", "null")])
    };
    vec![
        odd("numeric_with_scale_nan", "numeric(10,2)").row(&[("x", "'NaN'")]),
        odd("numeric_infinity", "numeric").row(&[("x", "'Infinity'")]),
        odd("numeric_nan_as_double", "numeric").set("decimal.handling.mode", "double").row(&[("x", "'NaN'")]),
        odd("numeric_nan_as_string", "numeric").set("decimal.handling.mode", "string").row(&[("x", "'NaN'")]),
        odd("numeric_with_negative_scale", "numeric(10,-2)").row(&[("x", "'12345'")]),
        odd("date_infinity", "date").row(&[("x", "'infinity'")]),
        odd("date_minus_infinity", "date").row(&[("x", "'-infinity'")]),
        odd("date_before_christ", "date").row(&[("x", "'0044-03-15 BC'")]),
        odd("timestamp_infinity", "timestamp").row(&[("x", "'infinity'")]),
        odd("timestamp_minus_infinity", "timestamp").row(&[("x", "'-infinity'")]),
        odd("timestamp_3_infinity", "timestamp(3)").row(&[("x", "'infinity'")]),
        odd("timestamp_before_christ", "timestamp").row(&[("x", "'0044-03-15 12:00:00 BC'")]),
        odd("timestamptz_before_christ", "timestamptz").row(&[("x", "'0044-03-15 12:00:00Z BC'")]),
        odd("timestamp_with_nanoseconds_out_of_range", "timestamp")
            .set("time.precision.mode", "nanoseconds")
            .row(&[("x", "'9999-12-31 00:00:00'")]),
        odd("an_interval_that_a_double_cannot_hold", "interval")
            .rows("x", &["'1.001 s'", "'-00:00:01.001'", "'2.5 s'"]),
        odd("an_hstore_beyond_16_bits", "hstore")
            .before("create extension if not exists hstore")
            .row(&[("x", "'\"a😀\"=>\"é😀\"'")]),
        odd("time_at_the_end_of_the_day", "time").row(&[("x", "'24:00:00'")]),
        odd("double_with_many_digits", "double precision").rows(
            "x",
            &[
                "'2e-3'",
                "'4.9e-324'",
                "'1.7976931348623157e308'",
                "'2e23'",
                "'1.0e23'",
                "'0.1'",
                "'123456789012345680'",
            ],
        ),
        odd("null_members_without_replaced_defaults", "text default 'constant'")
            .set("value.converter.replace.null.with.default", "false"),
        odd("decimals_as_json_numbers", "numeric(10,2)")
            .set("value.converter.decimal.format", "NUMERIC")
            .rows("x", &["'1.10'", "'100'"]),
        odd("variable_decimals_as_json_numbers", "numeric")
            .set("value.converter.decimal.format", "NUMERIC")
            .rows("x", &["'1.10'"]),
        Case::new("an_unknown_type_counts_as_missing")
            .column("x", "int4multirange")
            .place("x:header")
            .fatal(&[("x", "'{[1,5)}'")]),
        odd("an_unknown_type_that_is_included", "int4multirange")
            .set("include.unknown.datatypes", "true")
            .row(&[("x", "'{[1,5)}'")]),
    ]
}
