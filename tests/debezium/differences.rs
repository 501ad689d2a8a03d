//! Where outboxd does on purpose something else than Debezium. Whatever differs and does not stand here fails the comparison; so
//! does what stands here and does not differ any more. `docs/migrating-from-debezium.md` has the same list, for people.

use std::fmt;

use crate::fixture::Fixture;

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Topic,
    Partition,
    Key,
    Value,
    Headers,
    Timestamp,
    /// One of the two publishes a record that the other does not.
    Records,
    /// Debezium's task ends at a row, which outboxd parks.
    Parked,
    /// Debezium's task ends where outboxd finds nothing wrong.
    GoesOn,
    /// outboxd takes no such configuration, with which Debezium begins.
    Refused,
    /// outboxd takes a configuration with which Debezium does not begin.
    Accepted,
}

/// A difference that is meant.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    pub cases: Cases,
    pub parts: &'static [Part],
    pub debezium: &'static str,
    pub outboxd: &'static str,
    pub why: &'static str,
    /// One of these stands in what Debezium has published; empty: anything.
    pub marks: &'static [&'static str],
    /// Where it shows.
    pub shows: Shows,
}

/// Which cases a difference is about.
#[derive(Debug, Clone, Copy)]
pub enum Cases {
    /// Every one.
    All,
    /// By name; a `*` at either end stands for anything.
    Named(&'static [&'static str]),
    /// With an option, whose name and value have these ends.
    With(&'static str, &'static str),
}

/// Where a difference shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// Wherever rows are published.
    Everywhere,
    /// Only in what the rooms make of rows: on servers its schemas are refused, or its topic is not there.
    InRooms,
    /// Only where changes come from a server.
    OnServers,
}

use Cases::{All, Named, With};
use Part::{Accepted, GoesOn, Headers, Key, Parked, Partition, Records, Refused, Timestamp, Value};

const fn rows(
    cases: Cases,
    parts: &'static [Part],
    debezium: &'static str,
    outboxd: &'static str,
    why: &'static str,
) -> Difference {
    Difference { cases, parts, debezium, outboxd, why, marks: &[], shows: Shows::Everywhere }
}

impl Difference {
    /// Only where Debezium has published one of these.
    const fn marked(mut self, marks: &'static [&'static str]) -> Difference {
        self.marks = marks;
        self
    }

    /// Only in what the rooms make of rows.
    const fn in_rooms(mut self) -> Difference {
        self.shows = Shows::InRooms;
        self
    }

    /// Only where changes come from a server.
    const fn on_servers(mut self) -> Difference {
        self.shows = Shows::OnServers;
        self
    }
}

const ANYWHERE: &[Part] = &[Key, Partition, Value, Headers];

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    rows(
        All,
        &[Parked],
        "the task ends at a row that it cannot publish, and the rows behind it wait",
        "the row becomes a dead letter, with its reason, and the line goes on",
        "one bad event never stops the line",
    ),
    rows(
        Named(&["an_update_is_fatal*"]),
        &[GoesOn],
        "with `table.op.invalid.behavior=fatal` the task ends at an update of a row",
        "an update is not read",
        "only inserts are events, and a row that is marked after its event was sent must not stop the line",
    )
    .on_servers(),
    rows(
        Named(&["an_update_of_the_primary_key_publishes_again"]),
        &[Records],
        "an update of the primary key is a delete and an insert, and is published again",
        "an update is not read",
        "only inserts are events",
    )
    .on_servers(),
    // What is refused.
    rows(
        With("converter.schemas.enable", "true"),
        &[Refused],
        "`JsonConverter` with `schemas.enable=true` (which is what it does unless told otherwise) writes a schema into every record",
        "the configuration is refused; `schemas.enable=false` must be set",
        "the WAL tells neither which columns may be NULL nor their defaults, and schemas contain both",
    ),
    rows(
        Named(&["json_for_the_binary_converter_with_schemas", "bytes_for_the_binary_converter_with_delegate"]),
        &[Refused],
        "a `JsonConverter` as delegate of `BinaryDataConverter` writes schemas unless told otherwise",
        "the configuration is refused; `schemas.enable=false` must be set for the delegate, too",
        "the WAL does not tell what a schema contains",
    ),
    rows(
        Named(&[
            "a_number_for_the_long_converter",
            "a_number_for_the_integer_converter",
            "headers_for_the_byte_converter",
            "bytes_for_debeziums_byte_array_converter",
        ]),
        &[Refused],
        "any converter on the class path can be named",
        "`StringConverter`, `JsonConverter`, `ByteArrayConverter` and `BinaryDataConverter` for key and value; \
         `SimpleHeaderConverter`, `StringConverter` and `JsonConverter` for headers",
        "these are the ones in use",
    ),
    rows(
        With("converter.encoding", "ISO-8859-1"),
        &[Refused],
        "`StringConverter` writes any encoding",
        "only UTF-8",
        "nothing else is lossless",
    ),
    rows(
        Named(&["a_regex_with_lookahead", "a_regex_with_a_backreference", "a_possessive_regex"]),
        &[Refused],
        "`route.topic.regex` has look-around, back-references, possessive quantifiers, atomic groups, the flags `d`, `u` and `U`, \
         the flags `s` and `x` for a group, `\\0`, `\\c`, `\\G`, `\\h`, `\\H`, `\\N`, `\\R`, `\\v`, `\\V`, `\\X`, `\\Z`, `\\p{In…}`, and \
         `\\p{java…}` other than `javaLowerCase`, `javaUpperCase` and `javaWhitespace`",
        "they are refused at the start",
        "expressions here take linear time, whatever a row holds",
    ),
    rows(
        Named(&[
            "an_unknown_option_is_ignored",
            "the_old_name_for_missing_columns_is_ignored",
            "the_old_name_for_the_key_is_ignored",
        ]),
        &[Refused],
        "an option that is not known is ignored",
        "it is refused, with the nearest known one",
        "a slip of the pen must not change records silently",
    ),
    rows(
        With("field.name.adjustment.mode", ""),
        &[Refused],
        "`field.name.adjustment.mode` renames members of an expanded document, and loses their values",
        "the option is refused",
        "values must not be lost",
    ),
    rows(
        Named(&[
            "an_empty_replacement",
            "a_group_that_is_unknown",
            "a_group_by_number_that_is_unknown",
            "a_replacement_that_ends_in_a_dollar",
            "a_replacement_that_ends_in_a_backslash",
            "an_unknown_placement",
            "an_envelope_whose_alias_is_payload",
            "an_envelope_with_one_alias_twice",
        ]),
        &[Refused],
        "a replacement or placement that can never work is found at the first row, and ends the task",
        "it is refused at the start",
        "the earlier the better",
    ),
    rows(
        Named(&[
            "a_missing_id_column",
            "a_missing_key_column",
            "a_missing_payload_column",
            "a_missing_time",
            "a_key_column_of_another_case",
            "routed_by_a_missing_column",
            "the_time_of_a_number",
            "the_time_of_a_date",
        ]),
        &[Refused],
        "a column that is missing, or that cannot be the time, is found at the first row, and ends the task",
        "it is refused at the start",
        "the earlier the better",
    ),
    rows(
        Named(&["bytes_for_the_byte_buffer_converter"]),
        &[Accepted],
        "does not know `io.debezium.converters.ByteBufferConverter` any more",
        "takes it for `BinaryDataConverter`",
        "that took its place, and does the same with bytes",
    ),
    rows(
        Named(&["columns_that_differ_only_in_capitals"]),
        &[Accepted],
        "does not begin with a table that has two columns whose names differ only in capitals",
        "begins",
        "PostgreSQL tells them apart, too",
    ),
    // What the WAL does not tell.
    rows(
        Named(&[
            "null_in_*",
            "null_members_without_replaced_defaults",
            "a_default_with_schema",
            "a_function_default_with_schema",
        ]),
        &[Value, Headers],
        "NULL in a column with a DEFAULT is read as that default, or as zero, the empty text or 1970 where the default is a function",
        "NULL is NULL",
        "it was written on purpose, and no default is what the row holds",
    ),
    rows(
        Named(&["a_null_key_with_a_default*", "a_null_payload_with_a_default*"]),
        &[Key, Partition, Value],
        "NULL as key or payload is read as the default of its column, and is then no tombstone",
        "NULL is NULL: no key, and a tombstone",
        "what was written is what is published",
    ),
    rows(
        Named(&["the_id_is_null", "a_null_id_with_a_default", "the_id_is_another_column"]),
        &[Records],
        "an event without an id is published, with a header `id` that is null or made up",
        "the row becomes a dead letter",
        "nobody can tell such an event from a repetition of it",
    ),
    rows(
        Named(&["domain_numeric_in_*", "domain_timestamp_in_*"]),
        ANYWHERE,
        "a domain over `numeric(p,s)` has that scale, and one over `timestamp(p)` or `time(p)` that precision",
        "it has none, as `numeric`: `{\"scale\":1,\"value\":\"Cw==\"}`, and as `timestamp`: microseconds",
        "the WAL names the type below a domain, without its scale or precision",
    ),
    // What Debezium does not publish, and outboxd does.
    rows(
        Named(&["the_time_of_timestamptz*", "the_time_as_connect_has_it", "the_time_as_text"]),
        &[Records],
        "ends at an event's time that is a `timestamptz`, or under a `time.precision.mode` without numbers",
        "takes the time",
        "a timestamp is a timestamp",
    ),
    rows(
        Named(&["a_time_before_1970", "a_time_that_is_infinite"]),
        &[Records],
        "ends at an event's time before 1970, and at one that is infinite",
        "the record has the time at which it is sent, as if the column were NULL",
        "Kafka cannot hold such a time, and the event is none the worse for it",
    ),
    rows(
        Named(&["the_time_*", "a_time_microseconds_before_1970"]),
        &[Timestamp],
        "an event's time at the first millisecond of 1970 is 0",
        "it is 1",
        "Kafka's C client takes 0 for no time at all",
    )
    .marked(&["At(0)"])
    .on_servers(),
    rows(
        Named(&["a_partition_from_*"]),
        &[Records],
        "ends at a partition from a column that is not an `int4`",
        "takes any number",
        "a number is a number",
    ),
    rows(
        Named(&["routed_by_a_number"]),
        &[Records],
        "ends at a route from a column that is not text",
        "takes what PostgreSQL prints of it",
        "any topic that is valid will do",
    )
    .in_rooms(),
    rows(
        Named(&["an_unknown_type_*"]),
        &[Records, Value, Headers],
        "a column of a type that it does not know counts as missing, or is bytes with `include.unknown.datatypes`",
        "it is what PostgreSQL prints of it",
        "text is what all other such types are",
    ),
    rows(
        Named(&["null_text_for_the_byte_converter", "null_text_for_the_binary_converter"]),
        &[Records],
        "`ByteArrayConverter`, and `BinaryDataConverter` without a delegate, end the task at a NULL in a column that is not bytes",
        "a tombstone, as under every other converter",
        "there are no bytes to be wrong",
    ),
    rows(
        Named(&["a_schema_version_of_*", "a_missing_schema_version", "one_schema_version_of_two_shapes"]),
        &[Records],
        "ends at a schema's version that is not an `int4`, is missing, or belongs to two shapes",
        "(without schemas) publishes",
        "there is no version to be wrong",
    ),
    // What Debezium makes unreadable.
    rows(
        Named(&["bytea_in_*", "bytes_*", "empty_bytes_*", "bit_*", "varbit_*", "an_envelope_around_bytes*"]),
        ANYWHERE,
        "`StringConverter` prints bytes as `java.nio.HeapByteBuffer[…]` or `[B@…`",
        "bytes as they are, bits as their digits",
        "the address of an object says nothing",
    )
    .marked(&["HeapByteBuffer", "[B@", "Of(", "any"]),
    rows(
        Named(&["numeric_in_*", "point_in_*"]),
        ANYWHERE,
        "`StringConverter` prints a `numeric` without a scale, and a point, as `Struct{…[B@…}`",
        "what PostgreSQL prints of them",
        "the address of an object is no value",
    )
    .marked(&["[B@", "Of(", "any"]),
    rows(
        Named(&["name_in_*"]),
        ANYWHERE,
        "a column of type `name` is always NULL",
        "it is its text",
        "values must not be lost",
    )
    .marked(&["None", "null", "any", "Of("]),
    rows(
        Named(&["int_array_in_*"]),
        ANYWHERE,
        "an array of arrays is an array of nulls",
        "it is what it is",
        "values must not be lost",
    )
    .marked(&["null,null", "null, null", "any", "Of("]),
    rows(
        Named(&["numeric_with_negative_scale"]),
        &[Value, Headers],
        "a scale below zero is read as one of 2046, with as many zeros",
        "a scale of zero",
        "the number is the same",
    ),
    rows(
        Named(&["*_with_time_mode_connect"]),
        ANYWHERE,
        "under `time.precision.mode=connect` headers lose the date of whatever is before 1970-01-02, and `StringConverter` counts \
         days before 1582 by the Julian calendar",
        "headers keep the date, and the calendar is that of PostgreSQL",
        "values must not be lost",
    )
    .marked(&["00:00:00.000Z", "23:59:59.999Z", "UTC 1\"", "Of("]),
    rows(
        Named(&["an_interval_that_a_double_cannot_hold"]),
        &[Value, Headers],
        "an interval is counted in doubles, and cut: 1.001 seconds are 1000999",
        "they are 1001000",
        "it is what was written",
    ),
    rows(
        Named(&["time_array_in_*"]),
        ANYWHERE,
        "an array of `time` loses its microseconds",
        "keeps them",
        "digits must not be lost",
    ),
    rows(
        Named(&["double_with_many_digits"]),
        &[Value, Headers],
        "Java before 19 prints some numbers with more digits than they need: `1.9999999999999998E23`",
        "as Java 19 and later: `2.0E23`",
        "it is the same number",
    ),
    // Documents.
    rows(
        Named(&["documents_expanded_*", "odd_documents_expanded_*"]),
        &[Value],
        "numbers of an expanded document that a double cannot hold are rounded: `123456789.123456789` to `1.2345678912345679E8`, \
         `1e400` to the text `Infinity`",
        "they stay as they are written",
        "digits must not be lost",
    )
    .marked(&["1.2345678912345679E8", "Infinity", ":1.0}", "=1.0}"]),
    rows(
        Named(&["documents_expanded_with_empty_arrays", "documents_expanded_with_nulls_and_empty_arrays"]),
        &[Value],
        "`table.json.payload.empty.array.behavior` is not known before 3.7",
        "it does what 3.7 does",
        "it is the newer one",
    ),
    rows(
        Named(&["merged_objects_expanded_*"]),
        &[Value],
        "objects in one array get the members of each other, as null, in an order that follows from the JVM; of objects inside them, \
         only the members of one",
        "in the order in which they first appear, and inside of them as well",
        "an order that changes from run to run cannot be kept, and values must not be lost",
    ),
    rows(
        Named(&["nested_objects_expanded_*", "nested_arrays_expanded_with_nulls"]),
        &[Value],
        "in an array of arrays, objects have only those members that objects of the first of these arrays have",
        "they have their own as well; where `StringConverter` writes it, the document stays as it is",
        "values must not be lost",
    ),
    rows(
        Named(&[
            "an_array_at_the_top_*",
            "an_array_of_objects_at_the_top_expanded",
            "an_empty_array_at_the_top_*",
            "a_big_integer_*",
            "members_of_two_types_expanded",
            "members_of_two_types_in_nested_arrays_expanded",
            "members_of_two_types_in_inner_arrays_expanded",
        ]),
        &[Records, Value],
        "an array at the top, an integer beyond 64 bits, and members of two types end the task; an empty array at the top is a text",
        "they are expanded as they are",
        "they are JSON",
    ),
    // Headers.
    rows(
        With("extended.headers.enabled", "true"),
        &[Headers],
        "`extended.headers.enabled` is on by default, and has a header `__debezium.context.runId`, another one in each run",
        "off by default, and without that header",
        "what is different each time says nothing about an event",
    ),
    rows(
        With("tracing.span.context.field", ""),
        &[Headers],
        "`tracing.span.context.field` has an effect only with telemetry on the class path, and then makes spans",
        "when the option is set, `traceparent`, `tracestate` and `baggage` of that column become headers, as they are",
        "the trace goes on, and a relay is no part of it",
    ),
];

impl Difference {
    /// As the guide has it.
    pub fn row(&self) -> String {
        format!("| {} | {} | {} |", self.debezium, self.outboxd, self.why)
    }

    /// True when this is about the case, and about what Debezium has published there.
    pub fn covers(&self, fixture: &Fixture, part: Part, debezium: &str) -> bool {
        let is_about = match self.cases {
            All => true,
            Named(names) => names.iter().any(|name| fits(name, &fixture.case)),
            With(name, value) => {
                fixture.options.iter().any(|(option, typed)| option.ends_with(name) && typed.ends_with(value))
            }
        };
        let is_marked = self.marks.is_empty() || self.marks.iter().any(|mark| debezium.contains(mark));
        is_about && self.parts.contains(&part) && is_marked
    }
}

fn fits(pattern: &str, case: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), None) => case.ends_with(end),
        (None, Some(start)) => case.starts_with(start),
        (Some(_), Some(_)) => case.contains(pattern.trim_matches('*')),
        (None, None) => case == pattern,
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { cases, parts, debezium, outboxd, why, .. } = self;
        write!(f, "{cases:?}, {parts:?}: Debezium: {debezium}; outboxd: {outboxd}, because {why}")
    }
}
