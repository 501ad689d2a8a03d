//! What schemas of both dialects accept and refuse, in tables; what is said about it; what cannot be loaded.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::load::Fault;
use super::*;

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020: &str = "https://json-schema.org/draft/2020-12/schema";

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn load(files: &[(&str, &str)]) -> Result<Contract, Fault> {
    let directory = directory(files);
    Contract::load(&directory.path().join(files[0].0))
}

fn contract(schema: &str) -> Contract {
    load(&[("s.json", schema)]).unwrap_or_else(|fault| panic!("{schema}: {fault}"))
}

fn contract_in(dialect: &str, schema: &str) -> Contract {
    let schema = schema.replacen('{', &format!("{{\"$schema\": \"{dialect}\", "), 1);
    contract(&schema.replace(", }", "}"))
}

/// What is said of a payload; empty when it is good.
fn said(contract: &Contract, payload: &str) -> String {
    contract.check(payload.as_bytes()).err().map_or_else(String::new, |violation| violation.to_string())
}

/// What is said of a schema that cannot be loaded, the directory left out.
fn refused(files: &[(&str, &str)]) -> (String, Option<String>) {
    let directory = directory(files);
    let fault = Contract::load(&directory.path().join(files[0].0)).expect_err(files[0].1);
    (fault.what.replace(&format!("{}/", directory.path().display()), ""), fault.hint)
}

/// A schema with payloads that it accepts and payloads that it refuses.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

fn judge(dialect: &str, cases: &[Case<'_>]) {
    for (schema, good, bad) in cases {
        let contract = contract_in(dialect, schema);
        for payload in *good {
            assert_eq!(said(&contract, payload), "", "{dialect}: {schema} accepts {payload}");
        }
        for payload in *bad {
            assert!(contract.check(payload.as_bytes()).is_err(), "{dialect}: {schema} refuses {payload}");
        }
    }
}

const BOTH: &[Case<'_>] = &[
    ("{}", &["1", "null", "{}", "[]"], &["", "x"]),
    (
        r#"{"type": "integer"}"#,
        &["1", "-0", "1.0", "1e2", "1e400", "123456789012345678901234567890"],
        &["1.5", "1e-1", "\"1\"", "null"],
    ),
    (r#"{"type": "number"}"#, &["1", "1.5", "1e400", "-1e-400"], &["\"1\"", "true"]),
    (r#"{"type": ["string", "null"]}"#, &["\"\"", "null"], &["0", "[]"]),
    (r#"{"type": "boolean"}"#, &["true", "false"], &["0", "\"true\""]),
    (r#"{"type": "object"}"#, &["{}"], &["[]", "null"]),
    (r#"{"type": "array"}"#, &["[]"], &["{}"]),
    (
        r#"{"enum": [1, "a", null, {"x": [1.0]}]}"#,
        &["1", "1.0", "\"a\"", "null", "{\"x\":[1]}"],
        &["2", "\"b\"", "false", "{\"x\":[2]}", "{\"x\":[1],\"y\":1}"],
    ),
    (r#"{"const": 12}"#, &["12", "12.0", "1.2e1", "120e-1"], &["12.5", "\"12\"", "12.00000000000001", "1e400"]),
    (
        r#"{"const": 9007199254740993}"#,
        &["9007199254740993", "9007199254740993.0"],
        &["9007199254740992", "9007199254740994"],
    ),
    (r#"{"required": ["a", "b"]}"#, &[r#"{"a":1,"b":null}"#, "1"], &["{}", r#"{"a":1}"#]),
    (r#"{"properties": {"a": {"type": "string"}}}"#, &["{}", r#"{"a":"x"}"#, r#"{"b":1}"#, "[]"], &[r#"{"a":1}"#]),
    (r#"{"properties": {"a": {}}, "additionalProperties": false}"#, &["{}", r#"{"a":1}"#], &[r#"{"a":1,"b":2}"#]),
    (
        r#"{"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}"#,
        &[r#"{"a":"x","b":2}"#],
        &[r#"{"b":"x"}"#],
    ),
    (
        r#"{"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false}"#,
        &[r#"{"x-a":1}"#, "{}"],
        &[r#"{"x-a":"1"}"#, r#"{"y":1}"#],
    ),
    (r#"{"propertyNames": {"pattern": "^[a-z]+$"}}"#, &[r#"{"abc":1}"#, "{}"], &[r#"{"A":1}"#]),
    (
        r#"{"minProperties": 1, "maxProperties": 2}"#,
        &[r#"{"a":1}"#, r#"{"a":1,"a":2,"b":3}"#],
        &["{}", r#"{"a":1,"b":2,"c":3}"#],
    ),
    (r#"{"minLength": 2, "maxLength": 3}"#, &["\"äö\"", "\"🦀🦀🦀\"", "\"\\u00e4b\"", "1"], &["\"ä\"", "\"abcd\""]),
    (r#"{"pattern": "^\\d{3}$"}"#, &["\"123\"", "1"], &["\"12\"", "\"1234\""]),
    (
        r#"{"minimum": 0, "exclusiveMaximum": 100}"#,
        &["0", "-0.0", "99.99", "1e-400"],
        &["-1", "100", "1e400", "-1e400", "-1e-400", "100.0"],
    ),
    (r#"{"exclusiveMinimum": 0}"#, &["1e-400", "1e400", "5e-324"], &["0", "-0", "0e400", "-1e-400"]),
    (
        r#"{"maximum": 18446744073709551615}"#,
        &["18446744073709551615", "18446744073709551615.0"],
        &["18446744073709551616", "123456789012345678901234567890"],
    ),
    (r#"{"multipleOf": 0.01}"#, &["1.15", "19.99", "0", "4.35"], &["1.155", "1e-400"]),
    (
        r#"{"multipleOf": 7}"#,
        &["14", "7000000000000000000000000000007", "0"],
        &["15", "7000000000000000000000000000008", "0.7"],
    ),
    (r#"{"minItems": 1, "maxItems": 2}"#, &["[1]", "[1,2]"], &["[]", "[1,2,3]"]),
    (
        r#"{"uniqueItems": true}"#,
        &[
            "[1,2]",
            r#"[1,true,"1",[1],{"a":1}]"#,
            "[1e400,1e401]",
            "[123456789012345678901234567890,123456789012345678901234567891]",
        ],
        &["[1,1.0]", r#"[{"a":1,"b":2},{"b":2,"a":1.0}]"#, "[1e400,10e399]"],
    ),
    (r#"{"contains": {"const": 1}}"#, &["[0,1]"], &["[]", "[0]"]),
    (r#"{"items": {"type": "integer"}}"#, &["[1,2]", "[]"], &["[1,\"2\"]"]),
    (r#"{"allOf": [{"minimum": 1}, {"maximum": 2}]}"#, &["1", "2"], &["0", "3"]),
    (r#"{"anyOf": [{"type": "string"}, {"minimum": 5}]}"#, &["\"x\"", "5"], &["4"]),
    (r#"{"oneOf": [{"minimum": 5}, {"maximum": 7}]}"#, &["4", "8"], &["6"]),
    (r#"{"not": {"type": "null"}}"#, &["1"], &["null"]),
    (
        r#"{"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"required": ["y"]}}"#,
        &[r#"{"k":"a","x":1}"#, r#"{"k":"b","y":1}"#, r#"{"y":1}"#],
        &[r#"{"k":"a","y":1}"#, r#"{"k":"b","x":1}"#],
    ),
    (
        r##"{"definitions": {"n": {"minimum": 1}}, "properties": {"a": {"$ref": "#/definitions/n"}}}"##,
        &[r#"{"a":1}"#],
        &[r#"{"a":0}"#],
    ),
    (
        r##"{"$defs": {"n": {"minimum": 1}}, "properties": {"a": {"$ref": "#/$defs/n"}}}"##,
        &[r#"{"a":1}"#],
        &[r#"{"a":0}"#],
    ),
    (
        r##"{"properties": {"next": {"$ref": "#"}}, "additionalProperties": false}"##,
        &[r#"{"next":{"next":{}}}"#],
        &[r#"{"next":{"next":{"x":1}}}"#],
    ),
    (
        r##"{"$id": "https://example.com/a.json", "properties": {"n": {"$ref": "a.json"}}, "required": ["x"]}"##,
        &[r#"{"x":1}"#, r#"{"x":1,"n":{"x":2}}"#],
        &[r#"{"x":1,"n":{}}"#],
    ),
    (r#"{"format": "uuid", "type": "string"}"#, &["\"no uuid\""], &["1"]),
    (r#"{"contentEncoding": "base64", "contentMediaType": "application/json"}"#, &["\"§\""], &[]),
    (r#"{"unknown": 1, "requried": ["a"]}"#, &["{}"], &[]),
];

#[test]
fn both_dialects_judge_alike_where_they_are_alike() {
    judge(DRAFT_2020, BOTH);
    judge(DRAFT_7, BOTH);
}

#[test]
fn draft_2020_12_has_keywords_that_draft_07_has_not() {
    let cases: &[Case<'_>] = &[
        (
            r#"{"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false}"#,
            &["[1,\"a\"]", "[1]", "[]"],
            &["[\"a\"]", "[1,\"a\",2]"],
        ),
        (r#"{"dependentRequired": {"card": ["address"]}}"#, &["{}", r#"{"card":1,"address":2}"#], &[r#"{"card":1}"#]),
        (r#"{"dependentSchemas": {"card": {"required": ["address"]}}}"#, &["{}"], &[r#"{"card":1}"#]),
        (
            r#"{"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}, "unevaluatedProperties": false}"#,
            &[r#"{"a":1,"b":2}"#],
            &[r#"{"a":1,"b":2,"c":3}"#],
        ),
        (r#"{"prefixItems": [{}], "unevaluatedItems": false}"#, &["[1]"], &["[1,2]"]),
        (
            r#"{"contains": {"const": 1}, "minContains": 2, "maxContains": 3}"#,
            &["[1,1]", "[1,0,1,1]"],
            &["[1]", "[1,1,1,1]"],
        ),
        (r##"{"$defs": {"n": {"$anchor": "n", "minimum": 1}}, "$ref": "#n", "maximum": 5}"##, &["1", "5"], &["0", "6"]),
        (
            r##"{"$dynamicAnchor": "node", "properties": {"next": {"$dynamicRef": "#node"}}, "unevaluatedProperties": false}"##,
            &[r#"{"next":{}}"#],
            &[r#"{"next":{"x":1}}"#],
        ),
    ];
    judge(DRAFT_2020, cases);
    let without = contract(r#"{"prefixItems": [{"type": "integer"}]}"#);
    assert!(without.check(b"[\"a\"]").is_err(), "without $schema it is 2020-12");
    let ignored: &[Case<'_>] = &[
        (r#"{"prefixItems": [{"type": "integer"}]}"#, &["[\"a\"]"], &[]),
        (r#"{"dependentRequired": {"card": ["address"]}}"#, &[r#"{"card":1}"#], &[]),
        (r#"{"unevaluatedProperties": false}"#, &[r#"{"a":1}"#], &[]),
    ];
    judge(DRAFT_7, ignored);
}

#[test]
fn draft_07_has_keywords_that_draft_2020_12_has_not() {
    let cases: &[Case<'_>] = &[
        (
            r#"{"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": false}"#,
            &["[1,\"a\"]", "[1]"],
            &["[\"a\"]", "[1,\"a\",2]"],
        ),
        (
            r#"{"dependencies": {"card": ["address"], "x": {"required": ["y"]}}}"#,
            &["{}", r#"{"card":1,"address":2}"#],
            &[r#"{"card":1}"#, r#"{"x":1}"#],
        ),
        // What stands beside a reference does not count.
        (
            r##"{"definitions": {"n": {"minimum": 1}}, "properties": {"a": {"$ref": "#/definitions/n", "maximum": 5}}}"##,
            &[r#"{"a":6}"#],
            &[r#"{"a":0}"#],
        ),
        (
            r##"{"definitions": {"n": {"$id": "#n", "minimum": 1}}, "properties": {"a": {"$ref": "#n"}}}"##,
            &[r#"{"a":1}"#],
            &[r#"{"a":0}"#],
        ),
    ];
    judge(DRAFT_7, cases);
}

#[test]
fn a_boolean_is_a_schema() {
    assert_eq!(said(&contract("true"), "1"), "");
    assert_eq!(said(&contract("false"), "1"), "at the root: expected nothing here (false)");
}

#[test]
fn a_violation_says_where_which_keyword_and_what_was_expected() {
    let order = r#"{"type": "object", "required": ["id", "items"], "additionalProperties": false,
        "properties": {
            "id": {"type": "string", "pattern": "^o-[0-9]+$", "maxLength": 9},
            "state": {"enum": ["new", "paid", null]},
            "items": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {
                "type": "object", "properties": {"price": {"type": ["number", "null"], "minimum": 0, "multipleOf": 0.01}}}},
            "a/b~c": {"const": 1},
            "pay": {"oneOf": [{"required": ["card"], "properties": {"card": {"type": "string"}}}, {"required": ["iban", "bic"]}]}},
        "dependentRequired": {"state": ["pay"]}}"#;
    let contract = contract(order);
    for (payload, expected) in [
        (r#"{}"#, r#"at the root: expected the member "id" (required), and 1 more"#),
        (r#"[]"#, "at the root: expected the type object (type)"),
        (
            r#"{"id":"o-1","items":[{}],"x":1,"y":{}}"#,
            r#"at the root: expected no member "x", "y" (additionalProperties)"#,
        ),
        (r#"{"id":7,"items":[{}]}"#, "at /id: expected the type string (type)"),
        (r#"{"id":"7","items":[{}]}"#, r#"at /id: expected a text that matches "^o-[0-9]+$" (pattern)"#),
        (r#"{"id":"o-12345678","items":[{}]}"#, "at /id: expected at most 9 characters (maxLength)"),
        (r#"{"id":"o-1","items":[]}"#, "at /items: expected at least 1 item (minItems)"),
        (r#"{"id":"o-1","items":[{},{}]}"#, "at /items: expected no two equal items (uniqueItems)"),
        (
            r#"{"id":"o-1","items":[{"price":-1},{"price":0.001},{"price":"x"}]}"#,
            "at /items/0/price: expected at least 0 (minimum), and 2 more",
        ),
        (r#"{"id":"o-1","items":[{"price":0.001}]}"#, "at /items/0/price: expected a multiple of 0.01 (multipleOf)"),
        (r#"{"id":"o-1","items":[{"price":"x"}]}"#, "at /items/0/price: expected the type null, number (type)"),
        (r#"{"id":"o-1","items":[{}],"a/b~c":2}"#, "at /a~1b~0c: expected 1 (const)"),
        (
            r#"{"id":"o-1","items":[{}],"state":"old","pay":{"card":""}}"#,
            r#"at /state: expected one of "new", "paid", null (enum)"#,
        ),
        (r#"{"id":"o-1","items":[{}],"state":"new"}"#, r#"at the root: expected the member "pay" (dependentRequired)"#),
        (
            r#"{"id":"o-1","items":[{}],"pay":{"card":1}}"#,
            "at /pay: expected a match with one of 2 alternatives; the nearest expects the type string at /card (oneOf)",
        ),
        (
            r#"{"id":"o-1","items":[{}],"pay":{"card":"","iban":"","bic":""}}"#,
            "at /pay: expected a match with one alternative only (oneOf)",
        ),
        ("{\"id\":\"o-1\",\n  \"items\": [}", "not JSON at line 2 column 13: no value begins so"),
        ("", "not JSON at line 1 column 1: it ends where a value is expected"),
        ("ä", "not JSON at line 1 column 1: no value begins so"),
    ] {
        assert_eq!(said(&contract, payload), expected, "{payload}");
    }
    assert_eq!(contract.check(b"{\"a\": \xff}").unwrap_err().to_string(), "not JSON at line 1 column 7: not UTF-8");
}

#[test]
fn a_violation_is_one_bounded_line_without_a_value_of_the_payload() {
    let contract = contract(
        r#"{"properties": {"secret": {"maxLength": 1}, "n": {"maximum": 1}}, "additionalProperties": {"type": "object",
            "properties": {"a": {}}, "additionalProperties": false}}"#,
    );
    let secret = "S3CRET".repeat(1000);
    assert_eq!(
        said(&contract, &format!(r#"{{"secret":"{secret}"}}"#)),
        "at /secret: expected at most 1 character (maxLength)"
    );
    assert_eq!(said(&contract, r#"{"n":1e400}"#), "at /n: expected at most 1 (maximum)");
    let name = "a\\nb\\u2028\\u0007ü".repeat(500);
    let text = said(&contract, &format!(r#"{{"{name}":{{"{name}":1,"{name}2":1}}, "x":1}}"#));
    assert!(text.chars().count() <= 300 && !text.contains(char::is_control), "{text}");
    assert!(text.starts_with("at …") && text.ends_with("… (additionalProperties), and 1 more"), "{text}");
}

#[test]
fn long_numbers_beyond_the_schemas_own_precision_are_compared_as_doubles() {
    let long = contract(r#"{"const": 123456789012345678901234567890}"#);
    assert_eq!(said(&long, "123456789012345678901234567890"), "");
    assert_eq!(said(&long, "123456789012345678901234567891"), "", "the schema's own number was rounded");
    assert_ne!(said(&long, "123456789012999999999999999999"), "");
    assert_eq!(said(&contract(r#"{"maximum": 12}"#), "12.000000000000000000001"), "", "a fraction is a double");
    let (what, _) = refused(&[("s.json", r#"{"maximum": 1e400}"#)]);
    assert_eq!(what, "schema s.json: it is not JSON: number out of range at line 1 column 17");
}

#[test]
fn a_schema_may_refer_to_files_below_its_own_directory() {
    let files = [
        (
            "order.json",
            r#"{"properties": {"total": {"$ref": "types/money.json"}, "n": {"$ref": "my%20types.json#/$defs/n"}}}"#,
        ),
        ("types/money.json", r#"{"required": ["amount"], "properties": {"by": {"$ref": "../party.json#/$defs/p"}}}"#),
        ("party.json", r#"{"$defs": {"p": {"type": "string"}}}"#),
        ("my types.json", r#"{"$defs": {"n": {"type": "integer"}}}"#),
    ];
    for id in [
        "",
        r#""$id": "https://example.com/schemas/order.json","#,
        r#""$id": "order.json","#,
        r#""$id": "https://example.com","#,
    ] {
        let mut files = files;
        let order = files[0].1.replacen('{', &format!("{{{id}"), 1);
        files[0].1 = &order;
        let contract = load(&files).unwrap();
        assert_eq!(said(&contract, r#"{"total":{"amount":1,"by":"x"},"n":1}"#), "", "{id}");
        assert_eq!(said(&contract, r#"{"total":{}}"#), r#"at /total: expected the member "amount" (required)"#);
        assert_eq!(
            said(&contract, r#"{"total":{"amount":1,"by":2}}"#),
            "at /total/by: expected the type string (type)"
        );
        assert_eq!(said(&contract, r#"{"n":"x"}"#), "at /n: expected the type integer (type)");
    }
}

#[test]
fn files_that_refer_to_each_other_are_read_once() {
    let contract = load(&[
        ("a.json", r#"{"properties": {"b": {"$ref": "b.json"}}, "additionalProperties": false}"#),
        ("b.json", r#"{"properties": {"a": {"$ref": "a.json"}}, "additionalProperties": false}"#),
    ])
    .unwrap();
    assert_eq!(said(&contract, r#"{"b":{"a":{"b":{}}}}"#), "");
    assert_ne!(said(&contract, r#"{"b":{"a":{"b":{"c":1}}}}"#), "");
}

#[test]
fn a_schema_that_refers_to_itself_for_ever_is_survived() {
    for schema in [
        r##"{"$ref": "#"}"##,
        r##"{"allOf": [{"$ref": "#"}]}"##,
        r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}"##,
    ] {
        if let Ok(contract) = load(&[("s.json", schema)]) {
            assert_eq!(said(&contract, r#"{"a": [1]}"#), "", "{schema}");
        }
    }
}

#[test]
fn the_deepest_payload_fits_a_threads_stack() {
    let contract = contract(
        r##"{"$defs": {"n": {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#/$defs/n"}, "unevaluatedItems": false, "type": "array"}]}},
            "$ref": "#/$defs/n"}"##,
    );
    // A test's thread has 2 MiB, as the runtime's have.
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(127), "]".repeat(127));
    assert_eq!(said(&contract, &nested("1")), "");
    assert!(said(&contract, &nested("true")).starts_with("at the root: expected a match with one of 2 alternatives"));
}

#[test]
fn no_reference_leaves_the_directory_or_the_machine() {
    for (reference, why) in [
        ("https://example.com/x.json", "it is not below the directory of the schema"),
        ("http://127.0.0.1:1/x.json", "it is not below the directory of the schema"),
        ("//example.com/x.json", "it is not below the directory of the schema"),
        ("file:///etc/hostname", "it is not below the directory of the schema"),
        ("/etc/hostname", "it is not below the directory of the schema"),
        ("../outside.json", "it is not below the directory of the schema"),
        ("../../outside.json", "it is not below the directory of the schema"),
        ("%2e%2e/outside.json", "it is not below the directory of the schema"),
        ("x/../../outside.json", "it is not below the directory of the schema"),
        ("link.json", "it is not below the directory of the schema"),
        ("linked/outside.json", "it is not below the directory of the schema"),
        ("missing.json", "it cannot be read: No such file or directory (os error 2)"),
        ("types", "it is not a file"),
        ("urn:example:x", "it is not below the directory of the schema"),
    ] {
        let directory = directory(&[("outside.json", "{}"), ("in/types/x.json", "{}")]);
        let inside = directory.path().join("in");
        symlink("../outside.json", inside.join("link.json")).unwrap();
        symlink("..", inside.join("linked")).unwrap();
        let path = inside.join("s.json");
        fs::write(&path, format!(r#"{{"properties": {{"a": {{"$ref": "{reference}#/$defs/n"}}}}}}"#)).unwrap();
        let fault = Contract::load(&path).unwrap_err();
        let expected = format!("schema {}: its reference \"", path.display());
        assert!(fault.what.starts_with(&expected), "{reference}: {fault}");
        assert!(fault.what.contains(reference), "{reference} is not named: {fault}");
        assert!(fault.what.ends_with(why), "{reference}: {fault}");
        assert!(fault.hint.unwrap().contains("below its own directory"));
    }
}

#[test]
fn the_directory_itself_may_be_reached_by_links_as_kubernetes_mounts_it() {
    let directory =
        directory(&[("..data-1/s.json", r#"{"$ref": "n.json"}"#), ("..data-1/n.json", r#"{"type": "integer"}"#)]);
    let inside = directory.path();
    symlink("..data-1", inside.join("..data")).unwrap();
    symlink("..data/s.json", inside.join("s.json")).unwrap();
    symlink("..data/n.json", inside.join("n.json")).unwrap();
    let contract = Contract::load(&inside.join("s.json")).unwrap();
    assert_ne!(said(&contract, "\"x\""), "");
}

#[test]
fn a_schema_that_is_wrong_is_refused_with_the_place() {
    for (files, what) in [
        (
            &[("s.json", r#"{"properties": {"a": {"type": "strin"}}}"#)][..],
            "it is not valid at /properties/a/type: expected a match with one of 2 alternatives",
        ),
        (
            &[("s.json", r#"{"properties": {"a": {"minLength": -1}}}"#)],
            "it is not valid at /properties/a/minLength: expected at least 0",
        ),
        (&[("s.json", r#"{"properties": {"a": {"pattern": "("}}}"#)], "it is not valid at /properties/a/pattern: "),
        (
            &[("s.json", r#"{"properties": {"a": {"pattern": "^(?!x)"}}}"#)],
            "it is not valid at /properties/a/pattern: ",
        ),
        (&[("s.json", r#"{"required": "a"}"#)], "it is not valid at /required: expected the type array"),
        (&[("s.json", "[]")], "it is not valid at its root: expected the type"),
        (&[("s.json", "{\"type\":\n 1,}")], "it is not JSON: trailing comma at line 2 column 4"),
        (&[("s.json", "")], "it is not JSON: EOF while parsing a value at line 1 column 0"),
        (&[("s.json", r##"{"$ref": "#/$defs/x"}"##)], "its reference to \"/$defs/x\" leads nowhere"),
        (&[("s.json", r##"{"$ref": "#x"}"##)], "its reference to \"x\" leads nowhere"),
        (
            &[("s.json", r#"{"$ref": "n.json"}"#), ("n.json", r#"{"type": 1}"#)],
            "its reference \"n.json\" cannot be followed: it is not valid at /type: expected",
        ),
        (
            &[("s.json", r#"{"$ref": "n.json"}"#), ("n.json", "{")],
            "its reference \"n.json\" cannot be followed: it is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            &[("s.json", r#"{"$schema": "http://json-schema.org/draft-04/schema#"}"#)],
            "its $schema \"http://json-schema.org/draft-04/schema#\" is not supported",
        ),
        (
            &[("s.json", r#"{"$schema": "https://json-schema.org/draft/2019-09/schema"}"#)],
            "its $schema \"https://json-schema.org/draft/2019-09/schema\" is not supported",
        ),
        (
            &[("s.json", r#"{"$schema": "https://example.com/own"}"#)],
            "its $schema \"https://example.com/own\" is not supported",
        ),
        (
            &[("s.json", r#"{"$defs": {"a": {"$id": "a", "$schema": "http://json-schema.org/draft-06/schema#"}}}"#)],
            "its $schema \"http://json-schema.org/draft-06/schema#\" is not supported",
        ),
        (
            &[
                ("s.json", r#"{"$ref": "n.json"}"#),
                ("n.json", r#"{"$schema": "http://json-schema.org/draft-04/schema#"}"#),
            ],
            "its reference \"n.json\" cannot be followed: its $schema",
        ),
    ] {
        let (said, _) = refused(files);
        assert!(said.starts_with(&format!("schema s.json: {what}")), "{}: {said}", files[0].1);
    }
    assert!(refused(&[("s.json", r#"{"$schema": "x"}"#)]).1.unwrap().contains("draft/2020-12"));
}

#[test]
fn odd_names_of_a_schema_are_survived() {
    for id in [
        "",
        "#",
        "#x",
        "a b",
        "urn:x",
        "urn:example:a",
        "https://",
        "https://example.com",
        "http://[",
        "1:2",
        "a.json#",
        "a.json#x",
        ":",
        "json-schema:///",
        "%",
        "\\u0000",
    ] {
        for dialect in [DRAFT_7, DRAFT_2020] {
            for more in ["", r##", "properties": {"a": {"$ref": "#"}}"##, r#", "$ref": "n.json""#] {
                let schema = format!(r#"{{"$schema": "{dialect}", "$id": "{id}"{more}}}"#);
                if let Ok(contract) = load(&[("s.json", &schema), ("n.json", "{}")]) {
                    assert_eq!(said(&contract, "{}"), "", "{schema}");
                }
            }
        }
    }
}

#[test]
fn only_files_of_a_bounded_size_are_read() {
    let directory = directory(&[("large.json", &" ".repeat((4 << 20) + 1))]);
    let say = |name: &str| Contract::load(&directory.path().join(name)).unwrap_err().what;
    assert!(say("large.json").ends_with("it is larger than 4 MiB"));
    assert!(say("absent.json").ends_with("it cannot be read: No such file or directory (os error 2)"));
    assert!(say("").ends_with("it is not a file"));
    assert!(Contract::load(Path::new("absent/s.json")).is_err());
}

#[test]
fn a_contract_goes_where_the_router_goes() {
    fn travels<T: Send + Sync + std::fmt::Debug>() {}
    travels::<Contract>();
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let contract = contract(r#"{"type": "object"}"#);
        let refused = contract.check(&bytes).is_err();
        prop_assert_eq!(refused, !serde_json::from_slice::<serde_json::Value>(&bytes).is_ok_and(|value| value.is_object()));
    }

    #[test]
    fn any_number_is_judged_without_a_panic(text in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,22})?") {
        let contract = contract(r#"{"type": "integer", "minimum": -5, "exclusiveMaximum": 5.5, "multipleOf": 0.3, "enum": [1, 2.5]}"#);
        let line = said(&contract, &text);
        prop_assert!(line.chars().count() <= 300);
    }
}
