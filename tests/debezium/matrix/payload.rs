//! The value: expansion of JSON documents of every kind, tombstones, and converters that fit a payload or do not.

use crate::case::{As, BINARY, BYTES, Case, JSON, STRING};

pub fn cases() -> Vec<Case> {
    let mut cases = expansions();
    cases.extend(fatal_expansions());
    cases.extend(tombstones());
    cases.extend(converters());
    cases
}

/// Documents as they are written, each of which Debezium survives.
const DOCUMENTS: &[&str] = &[
    r#"{}"#,
    r#"{"a":1}"#,
    r#"{ "z" : 1 , "a" : 2 , "m" : 3 }"#,
    r#"{"s":"text","t":true,"f":false,"i":1,"l":3000000000,"d":1.10,"e":1e3,"n":null,"last":0}"#,
    r#"{"a":{"b":{"c":"deep","n":null},"e":{}}}"#,
    r#"{"big":9223372036854775807,"small":-9223372036854775808,"i":2147483647,"j":2147483648,"k":-2147483648,"l":-2147483649}"#,
    r#"{"d":0.1,"e":1e-7,"f":123456789.123456789,"g":1e21,"h":-0.0,"i":-0,"j":1.0,"k":100.0,"l":1e25,"m":12345678901234567890.5}"#,
    r#"{"u":"é😀\u00e9\ud83d\ude00","c":"\u0001\t\n\"\\\/\b\f\r","del":"\u007f","ls":"\u2028","lt":"<&>'"}"#,
    r#"{"é😀":1,"a.b":2,"c d":3,"1x":4,"$":5,"_":6}"#,
    r#"{"empty":[],"ints":[1,2],"strings":["x",""],"bools":[true,false],"doubles":[1.5,2.5],"nested":[[1,2],[3]]}"#,
    r#"{"longs":[3000000000,3000000001]}"#,
    r#"{"nulls":[null,1,null],"texts":[null,"x"]}"#,
    r#"{"a":[{"x":1},{"x":2}]}"#,
    r#"{"a":[{"x":null},{"x":1}]}"#,
    r#"{"a":[{},{}]}"#,
    r#"{"a":{"b":[]},"c":[[]]}"#,
    r#"{"outer":{"list":[{"k":"v"}],"n":null,"e":[]},"tail":"end"}"#,
];

/// Objects of several shapes in one array, whose schemas Debezium merges in the order of a Java hash set. That order was the same
/// in every JVM tried here, all of one version and machine; whether another has it was not tried.
const MERGED: &[&str] = &[
    r#"{"a":[{"x":1},{"y":"two"}]}"#,
    r#"{"a":[{"x":1,"y":2,"z":3},{"z":4,"w":5}]}"#,
    r#"{"a":[{"x":1,"n":null},{"x":2}]}"#,
    r#"{"a":[{"x":{"p":1}},{"x":{"q":2}}]}"#,
    r#"{"a":[{"x":[]},{"x":[1]}]}"#,
    r#"{"a":[{"deep":[{"x":1},{"y":2}]}]}"#,
    r#"{"a":[{"alpha":1,"beta":true},{"gamma":"c"},{"alpha":2,"delta":1.5}]}"#,
    r#"{"a":[{"id":1,"name":"n"},{"id":2,"name":"m","note":"x"}]}"#,
    r#"{"a":[{"id":1,"note":"x"},{"id":2}]}"#,
];

/// Arrays in arrays, of which Debezium looks at the first alone.
const NESTED: &[&str] = &[
    r#"{"m":[[1],[null]]}"#,
    r#"{"m":[[1],[],null,[2,3]]}"#,
    r#"{"m":[[[1]],[[]],[null]]}"#,
    r#"{"a":[[{"x":1,"z":"s"}],[{"x":2},null]]}"#,
    r#"{"a":[[{"x":1}],[{"x":2,"n":null,"e":[]}]]}"#,
    r#"{"a":[[{"x":1},{"y":2}],[]]}"#,
    r#"{"a":[[null],[1]]}"#,
];

/// Such of them whose other arrays have members that the first one has not.
const NESTED_WITH_MORE: &[&str] = &[r#"{"a":[[{"x":1}],[{"x":2,"y":3}]]}"#, r#"{"a":[[{"x":1}],[{"y":3},{"z":4}]]}"#];

/// Documents that are left as they are, or that only `json` and `text` can hold.
const ODD_DOCUMENTS: &[&str] = &[
    r#"{"a":1,"a":2}"#,
    r#"{"a":1,"b":2,"a":3}"#,
    r#"{"a":[1,"x"]}"#,
    r#"{"a":[1,2.0]}"#,
    r#"{"a":[1,3000000000]}"#,
    r#"{"a":[null]}"#,
    r#"{"a":[[],[1]]}"#,
    r#"{"a":[true,1]}"#,
    r#"{"a":[{"x":1},2]}"#,
    r#"{"":1}"#,
    r#"{"a":1e400}"#,
    r#"{"a":-1e400}"#,
    r#"{"a":"\u0000"}"#,
    r#"{"a":"\ud83d"}"#,
    r#"{"a":1.0000000000000000000001}"#,
    r#""scalar""#,
    r#"42"#,
    r#"true"#,
    r#"null"#,
];

/// What only `text` can hold.
const TEXTS: &[&str] = &[
    r#""#,
    r#" "#,
    r#" {"a":1}"#,
    "\n{\"a\":1}",
    r#"{"a":1} "#,
    r#"{"a":1} trailing"#,
    r#"{"a":1}{"b":2}"#,
    r#"{"a":1"#,
    r#"{'a':1}"#,
    r#"{a:1}"#,
    r#"{"a":NaN}"#,
    r#"{"a":01}"#,
    r#"{"a":.5}"#,
    r#"{"a":1,}"#,
    r#"{"a":1/*c*/}"#,
    "{\"a\":\"line\nbreak\"}",
    r#"[1,2"#,
    r#"not json"#,
];

fn literals(documents: &[&str]) -> Vec<String> {
    documents.iter().map(|document| format!("$json${document}$json$")).collect()
}

fn with(case: Case, documents: &[&str]) -> Case {
    let literals = literals(documents);
    case.rows("payload", &literals.iter().map(String::as_str).collect::<Vec<_>>())
}

fn expanded(name: &str, kind: &str) -> Case {
    Case::new(name).column("payload", kind).value(As::Json).set("table.expand.json.payload", "true")
}

fn expansions() -> Vec<Case> {
    let keeps_nulls = |case: Case| case.set("table.json.payload.null.behavior", "optional_bytes");
    let keeps_empties = |case: Case| case.set("table.json.payload.empty.array.behavior", "optional_string");
    let placed = |case: Case| case.place("type:envelope:eventType");
    vec![
        with(expanded("documents_expanded_from_text", "text"), DOCUMENTS),
        with(expanded("documents_expanded_from_json", "json"), DOCUMENTS),
        with(expanded("documents_expanded_from_varchar", "varchar(400)"), DOCUMENTS),
        // What jsonb makes of 1e25 is fatal, and has a case of its own.
        with(expanded("documents_expanded_from_jsonb", "jsonb"), &[&DOCUMENTS[..6], &DOCUMENTS[7..]].concat()),
        with(expanded("documents_expanded_with_schemas", "text").value(As::Schema), DOCUMENTS),
        with(expanded("documents_expanded_as_text", "text").value(As::Text), DOCUMENTS),
        with(placed(expanded("documents_expanded_in_an_envelope", "text")), DOCUMENTS),
        with(placed(expanded("documents_expanded_in_an_envelope_with_schema", "text").value(As::Schema)), DOCUMENTS),
        with(keeps_nulls(expanded("documents_expanded_with_nulls", "text")), DOCUMENTS),
        with(keeps_nulls(expanded("documents_expanded_with_nulls_and_schemas", "text").value(As::Schema)), DOCUMENTS),
        with(keeps_nulls(placed(expanded("documents_expanded_with_nulls_in_an_envelope", "text"))), DOCUMENTS),
        with(keeps_empties(expanded("documents_expanded_with_empty_arrays", "text")), DOCUMENTS),
        with(keeps_empties(keeps_nulls(expanded("documents_expanded_with_nulls_and_empty_arrays", "text"))), DOCUMENTS),
        with(expanded("merged_objects_expanded_from_text", "text"), MERGED),
        with(expanded("merged_objects_expanded_from_jsonb", "jsonb"), MERGED),
        with(expanded("merged_objects_expanded_with_schemas", "text").value(As::Schema), MERGED),
        with(expanded("merged_objects_expanded_as_text", "text").value(As::Text), MERGED),
        with(placed(expanded("merged_objects_expanded_in_an_envelope", "text")), MERGED),
        with(keeps_nulls(expanded("merged_objects_expanded_with_nulls", "text")), MERGED),
        with(keeps_empties(expanded("merged_objects_expanded_with_empty_arrays", "text")), MERGED),
        with(expanded("nested_arrays_expanded_from_text", "text"), NESTED),
        with(expanded("nested_arrays_expanded_as_text", "text").value(As::Text), NESTED),
        // With nulls, the last one's first array is of bytes, and the task ends at a number.
        with(keeps_nulls(expanded("nested_arrays_expanded_with_nulls", "text")), &NESTED[..6]),
        with(expanded("nested_objects_expanded_from_text", "text"), NESTED_WITH_MORE),
        with(expanded("nested_objects_expanded_as_text", "text").value(As::Text), NESTED_WITH_MORE),
        with(expanded("odd_documents_expanded_from_text", "text"), ODD_DOCUMENTS),
        with(expanded("odd_documents_expanded_from_json", "json"), ODD_DOCUMENTS),
        with(expanded("odd_documents_expanded_with_schemas", "text").value(As::Schema), ODD_DOCUMENTS),
        with(expanded("odd_documents_expanded_as_text", "text").value(As::Text), ODD_DOCUMENTS),
        with(keeps_nulls(expanded("odd_documents_expanded_with_nulls", "text")), ODD_DOCUMENTS),
        with(placed(expanded("odd_documents_expanded_in_an_envelope", "text")), ODD_DOCUMENTS),
        with(expanded("texts_that_are_hardly_documents", "text"), TEXTS),
        with(placed(expanded("texts_that_are_hardly_documents_in_an_envelope", "text")), TEXTS),
        with(Case::new("documents_left_alone_as_text").column("payload", "text"), DOCUMENTS),
        with(Case::new("documents_left_alone_as_json").column("payload", "text").value(As::Json), DOCUMENTS),
        with(Case::new("odd_documents_left_alone_as_json").column("payload", "text").value(As::Json), ODD_DOCUMENTS),
        with(Case::new("jsonb_left_alone_as_text"), DOCUMENTS),
        with(Case::new("jsonb_left_alone_with_schema").value(As::Schema), &DOCUMENTS[..3]),
        with(Case::new("texts_left_alone_as_json").column("payload", "text").value(As::Json), TEXTS),
        expanded("a_null_payload_expanded", "jsonb").rows("payload", &["null"]),
        expanded("a_null_payload_expanded_with_schema", "jsonb").value(As::Schema).rows("payload", &["null"]),
        expanded("bytes_expanded", "bytea").rows("payload", &["'{\"a\":1}'"]),
        expanded("a_number_expanded", "int4").rows("payload", &["1"]),
        expanded("a_uuid_expanded", "uuid").rows("payload", &["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
        with(expanded("names_adjusted_for_avro", "text").set("field.name.adjustment.mode", "avro"), &DOCUMENTS[7..10]),
        with(
            expanded("names_adjusted_for_avro_unicode", "text").set("field.name.adjustment.mode", "avro_unicode"),
            &DOCUMENTS[8..10],
        ),
        expanded("an_unknown_behaviour_for_nulls", "text").set("table.json.payload.null.behavior", "keep").refused(),
        with(
            expanded("nulls_kept_in_capitals", "text").set("table.json.payload.null.behavior", "OPTIONAL_BYTES"),
            &DOCUMENTS[3..5],
        ),
        with(
            expanded("expansion_switched_on_in_capitals", "text").set("table.expand.json.payload", "TRUE"),
            &DOCUMENTS[1..2],
        ),
        expanded("a_switch_that_is_neither_on_nor_off", "text").set("table.expand.json.payload", "yes").refused(),
        with(
            expanded("the_schema_of_the_first_type_with_expansion", "text").value(As::Schema).place("type:envelope"),
            &DOCUMENTS[..2],
        )
        .row(&[("aggregatetype", "'{case}.2'"), ("payload", "'{\"a\":2}'")]),
    ]
}

fn fatal_expansions() -> Vec<Case> {
    let fatal = |name: &str, document: &str| {
        let case = expanded(name, "text").row(&[("payload", "'{\"a\":1}'")]);
        case.fatal(&[("payload", &literals(&[document])[0])])
    };
    let survived = |name: &str, document: &str| with(expanded(name, "text").value(As::Text), &[document]);
    const CONFLICT: &str = r#"{"a":[{"x":1},{"x":"s"}]}"#;
    const NESTED_CONFLICT: &str = r#"{"a":[[1],["x"]]}"#;
    const INNER_CONFLICT: &str = r#"{"a":[{"x":[1]},{"x":["s"]}]}"#;
    const BIG: &str = r#"{"a":99999999999999999999}"#;
    vec![
        fatal("an_array_at_the_top_expanded", "[1,2]"),
        fatal("an_array_of_objects_at_the_top_expanded", r#"[{"a":1}]"#),
        fatal("a_big_integer_expanded", BIG),
        fatal("members_of_two_types_expanded", CONFLICT),
        fatal("members_of_two_types_in_nested_arrays_expanded", NESTED_CONFLICT),
        fatal("members_of_two_types_in_inner_arrays_expanded", INNER_CONFLICT),
        survived("members_of_two_types_in_nested_arrays_as_text", NESTED_CONFLICT),
        survived("members_of_two_types_in_inner_arrays_as_text", INNER_CONFLICT),
        with(
            expanded("members_of_two_types_as_text_by_a_delegate", "text")
                .value(As::Class(BINARY))
                .set("value.converter.delegate.converter.type", STRING),
            &[CONFLICT, NESTED_CONFLICT, BIG, "[1,2]"],
        ),
        survived("an_array_at_the_top_expanded_as_text", "[1,2]"),
        survived("a_big_integer_expanded_as_text", BIG),
        survived("members_of_two_types_expanded_as_text", CONFLICT),
        with(expanded("an_empty_array_at_the_top_expanded", "text"), &["[]"]),
        with(expanded("an_empty_array_at_the_top_with_schemas", "text").value(As::Schema), &["[]"]),
        with(expanded("a_mixed_array_at_the_top_expanded", "text"), &[r#"[1,"x"]"#, "[null]", r#"[[],[1]]"#]),
        expanded("an_empty_array_at_the_top_in_an_envelope", "text")
            .place("type:envelope")
            .row(&[])
            .fatal(&[("payload", "'[]'")]),
        expanded("an_array_at_the_top_in_an_envelope", "text")
            .place("type:envelope")
            .row(&[])
            .fatal(&[("payload", "'[1,2]'")]),
        expanded("a_big_integer_in_jsonb", "jsonb").row(&[]).fatal(&[("payload", "'{\"a\":1e25}'")]),
        with(expanded("jsonb_numbers_expanded", "jsonb"), &[r#"{"a":1e3,"b":1.10,"c":1e-7,"d":-0.0,"e":100.0}"#]),
    ]
}

fn tombstones() -> Vec<Case> {
    const EMPTY: &[&str] = &["null", "''", "e' \\t\\n\\u0001'", "e'\\u00a0'", "e'\\u2003'", "'{}'", "'null'", "' x '"];
    let mut cases = Vec::new();
    for (how, short) in [(As::Text, "text"), (As::Json, "json"), (As::Schema, "schema")] {
        for (option, word) in [("true", "on"), ("false", "off")] {
            let of = |what: &str, kind: &str| {
                let case = Case::new(format!("{what}_with_tombstones_{word}_as_{short}")).column("payload", kind);
                case.set("route.tombstone.on.empty.payload", option).value(how)
            };
            cases.push(of("empty_texts", "text").rows("payload", EMPTY));
            cases.push(of("empty_texts_in_envelopes", "text").place("type:envelope").rows("payload", EMPTY));
            cases.push(of("empty_jsonb", "jsonb").rows("payload", &["null", "'{}'", "'[]'", "'\"\"'", "'null'"]));
            cases.push(of("empty_bytes", "bytea").rows("payload", &["null", "''", "' '"]));
        }
        cases.push(
            Case::new(format!("empty_documents_expanded_to_tombstones_as_{short}"))
                .column("payload", "text")
                .set("table.expand.json.payload", "true")
                .set("route.tombstone.on.empty.payload", "true")
                .value(how)
                .rows("payload", EMPTY),
        );
    }
    cases.push(
        Case::new("empty_base64_with_tombstones_on")
            .column("payload", "bytea")
            .set("binary.handling.mode", "base64")
            .set("route.tombstone.on.empty.payload", "true")
            .rows("payload", &["''", "'\\x00'", "null"]),
    );
    cases.push(
        Case::new("blank_char_with_tombstones_on")
            .column("payload", "char(4)")
            .set("route.tombstone.on.empty.payload", "true")
            .rows("payload", &["''", "'x'"]),
    );
    cases.push(
        Case::new("numbers_with_tombstones_on")
            .column("payload", "int4")
            .set("route.tombstone.on.empty.payload", "true")
            .rows("payload", &["0", "null"]),
    );
    cases
}

fn converters() -> Vec<Case> {
    let bytes = |name: &str| Case::new(name).column("payload", "bytea").value(As::Class(BYTES));
    let binary = |name: &str| Case::new(name).value(As::Class(BINARY));
    let delegate = |case: Case, class: &str| case.set("value.converter.delegate.converter.type", class);
    let to_json = |case: Case, part: &str| {
        let option = format!("{part}.converter.delegate.converter.type");
        case.set(&option, JSON).set(&format!("{option}.schemas.enable"), "false")
    };
    const RAW: &[&str] = &["'\\x00ff10'", "'\\x'", "'text'", "null"];
    vec![
        to_json(binary("hex_for_the_binary_converter_with_delegate"), "value")
            .column("payload", "bytea")
            .set("binary.handling.mode", "hex")
            .rows("payload", RAW),
        to_json(binary("decimals_for_the_binary_converter"), "value")
            .column("payload", "numeric(10,2)")
            .rows("payload", &["'1.10'", "'NaN'", "null"]),
        to_json(binary("numerics_for_the_binary_converter"), "value")
            .column("payload", "numeric")
            .rows("payload", &["'1.10'", "'NaN'", "null"]),
        to_json(binary("decimals_as_text_for_the_binary_converter"), "value")
            .column("payload", "numeric(10,2)")
            .set("decimal.handling.mode", "string")
            .rows("payload", &["'1.10'", "null"]),
        to_json(binary("money_for_the_binary_converter"), "value")
            .column("payload", "money")
            .rows("payload", &["'1.10'", "null"]),
        to_json(binary("bits_for_the_binary_converter"), "value")
            .column("payload", "bit(12)")
            .rows("payload", &["b'100000000011'", "null"]),
        to_json(binary("a_bit_for_the_binary_converter"), "value")
            .column("payload", "bit(1)")
            .rows("payload", &["b'1'", "null"]),
        to_json(binary("varbits_for_the_binary_converter"), "value")
            .column("payload", "varbit")
            .rows("payload", &["b'101'", "null"]),
        to_json(Case::new("a_bytea_key_for_the_binary_converter").key(As::Class(BINARY)), "key")
            .column("k", "bytea")
            .set("table.field.event.key", "k")
            .rows("k", &["'\\x00ff'", "null"]),
        to_json(Case::new("a_text_key_for_the_binary_converter").key(As::Class(BINARY)), "key")
            .rows("aggregateid", &["'k'", "null"]),
        binary("null_text_for_the_binary_converter").column("payload", "text").fatal(&[("payload", "null")]),
        Case::new("bytes_for_the_byte_buffer_converter")
            .column("payload", "bytea")
            .value(As::Class("io.debezium.converters.ByteBufferConverter"))
            .refused(),
        to_json(Case::new("bytes_for_debeziums_byte_array_converter"), "value")
            .column("payload", "bytea")
            .value(As::Class("io.debezium.converters.ByteArrayConverter"))
            .rows("payload", RAW),
        Case::new("converters_by_their_simple_names")
            .key(As::Class("StringConverter"))
            .value(As::Class("JsonConverter"))
            .set("value.converter.schemas.enable", "false")
            .header(As::Class("SimpleHeaderConverter"))
            .place("type:header")
            .row(&[]),
        Case::new("converters_by_their_shortest_names")
            .key(As::Class("String"))
            .value(As::Class("Json"))
            .set("value.converter.schemas.enable", "false")
            .header(As::Class("Simple"))
            .place("type:header")
            .row(&[]),
        Case::new("a_text_in_utf8_by_another_name")
            .set("key.converter.converter.encoding", "UTF8")
            .rows("aggregateid", &["'é'", "'😀'"]),
        bytes("bytes_as_they_are").rows("payload", RAW),
        bytes("bytes_as_they_are_with_tombstones").set("route.tombstone.on.empty.payload", "true").rows("payload", RAW),
        bytes("text_for_the_byte_converter").column("payload", "text").fatal(&[]),
        bytes("null_text_for_the_byte_converter").column("payload", "text").fatal(&[("payload", "null")]),
        bytes("null_text_as_a_tombstone_for_the_byte_converter")
            .column("payload", "text")
            .set("route.tombstone.on.empty.payload", "true")
            .rows("payload", &["null"]),
        bytes("an_envelope_for_the_byte_converter").place("type:envelope").fatal(&[("payload", "'x'")]),
        bytes("base64_for_the_byte_converter").set("binary.handling.mode", "base64").fatal(&[("payload", "'x'")]),
        bytes("a_key_for_the_byte_converter")
            .column("k", "bytea")
            .set("table.field.event.key", "k")
            .key(As::Class(BYTES))
            .row(&[("k", "'\\x00ff'"), ("payload", "'x'")])
            .row(&[("k", "null"), ("payload", "'x'")]),
        Case::new("a_text_key_for_the_byte_converter").key(As::Class(BYTES)).fatal(&[]),
        Case::new("headers_for_the_byte_converter").header(As::Class(BYTES)).fatal(&[]),
        bytes("bytes_as_base64").set("binary.handling.mode", "base64").value(As::Text).rows("payload", RAW),
        bytes("bytes_as_base64_url_safe")
            .set("binary.handling.mode", "base64-url-safe")
            .value(As::Text)
            .rows("payload", &["'\\xfbff'"]),
        bytes("bytes_as_hex").set("binary.handling.mode", "hex").value(As::Text).rows("payload", RAW),
        bytes("bytes_as_hex_in_json").set("binary.handling.mode", "hex").value(As::Json).rows("payload", RAW),
        bytes("an_unknown_binary_mode").set("binary.handling.mode", "octal").refused(),
        binary("bytes_for_the_binary_converter").column("payload", "bytea").rows("payload", RAW),
        binary("text_for_the_binary_converter").fatal(&[]),
        delegate(binary("json_for_the_binary_converter_with_delegate"), JSON)
            .set("value.converter.delegate.converter.type.schemas.enable", "false")
            .rows("payload", &["'{\"a\": 1}'", "null"]),
        delegate(binary("json_for_the_binary_converter_with_schemas"), JSON).rows("payload", &["'{\"a\": 1}'", "null"]),
        delegate(binary("text_for_the_binary_converter_with_delegate"), STRING)
            .rows("payload", &["'{\"a\": 1}'", "null"]),
        delegate(binary("bytes_for_the_binary_converter_with_delegate"), JSON)
            .column("payload", "bytea")
            .rows("payload", RAW),
        delegate(binary("an_envelope_for_the_binary_converter"), JSON)
            .set("value.converter.delegate.converter.type.schemas.enable", "false")
            .place("type:envelope:eventType")
            .row(&[]),
        Case::new("a_number_for_the_long_converter")
            .column("k", "int8")
            .set("table.field.event.key", "k")
            .key(As::Class("org.apache.kafka.connect.converters.LongConverter"))
            .rows("k", &["42", "-1", "null"]),
        Case::new("a_number_for_the_integer_converter")
            .column("k", "int4")
            .set("table.field.event.key", "k")
            .key(As::Class("org.apache.kafka.connect.converters.IntegerConverter"))
            .rows("k", &["42", "-1", "null"]),
        Case::new("a_text_in_another_encoding")
            .key(As::Text)
            .set("key.converter.converter.encoding", "ISO-8859-1")
            .rows("aggregateid", &["'é'", "'😀'"]),
        Case::new("a_converter_that_is_unknown").value(As::Class("org.example.NoConverter")).refused(),
        Case::new("json_headers_without_schemas")
            .header(As::Json)
            .place("type:header,aggregateid:header")
            .rows("type", &["'A \"quoted\"'", "null"]),
        Case::new("json_headers_with_schemas").header(As::Schema).place("type:header").rows("type", &["'A'", "null"]),
        Case::new("text_headers").header(As::Text).place("type:header").rows("type", &["'A \"quoted\"'", "''", "null"]),
        Case::new("simple_headers_of_odd_texts").place("type:header").rows(
            "type",
            &["'A \"quoted\"'", "''", "' b '", "'null'", "'true'", "'12'", "'{\"a\":1}'", "'é😀'", "e'a\\nb'"],
        ),
    ]
}
