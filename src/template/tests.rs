use proptest::prelude::*;

use super::*;

/// Renders one template with these columns.
fn rendered(source: &str, columns: &[(&str, Typed<'_>)]) -> Result<String, String> {
    among(&[("t", source)], columns)
}

/// Renders the first of some templates.
fn among(sources: &[(&str, &str)], columns: &[(&str, Typed<'_>)]) -> Result<String, String> {
    let named = |(name, source): &(&str, &str)| ((*name).to_owned(), (*source).to_owned());
    let templates = Templates::from_sources(sources.iter().map(named)).map_err(|problem| problem.to_string())?;
    let mut out = b"before ".to_vec();
    let rendered = templates.render(sources[0].0, &Columns(columns.to_vec()), &mut out, 10_000);
    let text = String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_owned();
    match rendered {
        Ok(()) => Ok(text),
        Err(problem) => {
            assert_eq!(text, "", "a problem leaves nothing behind");
            Err(problem.to_string())
        }
    }
}

/// Renders with this payload.
fn with_payload(source: &str, payload: &str) -> Result<String, String> {
    rendered(source, &[("payload", Typed::Json(payload.as_bytes()))])
}

fn assert_renders(source: &str, payload: &str, expected: &str) {
    assert_eq!(with_payload(source, payload).as_deref(), Ok(expected), "{source}");
}

fn assert_fails(source: &str, payload: &str, expected: &str) {
    assert_eq!(with_payload(source, payload).as_deref().map_err(String::as_str), Err(expected), "{source}");
}

#[test]
fn every_column_is_a_variable_of_its_kind() {
    let columns = [
        ("id", Typed::Text("e-1")),
        ("payload", Typed::Json(br#"{"a": {"b": [1, "x"]}}"#)),
        ("version", Typed::Integer(7)),
        ("live", Typed::Boolean(true)),
        ("tenant", Typed::Null),
        ("raw", Typed::Bytes(b"\x00\xff")),
        ("gone", Typed::Absent),
    ];
    for (source, expected) in [
        ("{{ id }} {{ payload.a.b[1] }} {{ version + 1 }} {{ live }} {{ raw | b64encode }}", "e-1 x 8 true AP8="),
        ("{{ tenant is none }} {{ tenant is defined }} {{ tenant }}", "true true null"),
        ("{{ gone is defined }} {{ gone | default('-') }} {{ tenant or 'none' }}", "false - none"),
        (
            "{{ payload }} {{ payload.a.b | length }} {{ [1, none, 'x', {'k': true}] }}",
            r#"{"a":{"b":[1,"x"]}} 2 [1,null,"x",{"k":true}]"#,
        ),
        ("{% if live %}{% set id = 'mine' %}{% endif %}{{ id }}", "mine"),
        ("{% if not live %}{% set id = 'mine' %}{% endif %}{{ id }}", "e-1"),
    ] {
        assert_eq!(rendered(source, &columns).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn numbers_come_out_as_they_went_in_wherever_they_are_printed() {
    let payload = r#"{"a": 1.10, "b": 1.1, "c": 1e400, "d": 12345678901234567890, "e": [1.10, 1.1, 1.100], "f": 1E+2,
        "g": 0.1000000000000000055, "h": -0, "i": 100.00, "j": 1.0}"#;
    assert_renders("{{ payload | tojson }}", payload, &payload.replace([' ', '\n'], ""));
    for (name, text) in [
        ("a", "1.10"),
        ("b", "1.1"),
        ("c", "1e400"),
        ("d", "12345678901234567890"),
        ("f", "1E+2"),
        ("g", "0.1000000000000000055"),
        ("h", "-0"),
        ("i", "100.00"),
        ("j", "1.0"),
        ("e", "[1.10,1.1,1.100]"),
    ] {
        assert_renders(&format!("{{{{ payload.{name} | tojson }}}}"), payload, text);
        assert_renders(&format!("{{{{ payload.{name} }}}}"), payload, text);
        assert_renders(&format!("{{{{ {{'x': payload.{name}}} | tojson }}}}"), payload, &format!("{{\"x\":{text}}}"));
        assert_renders(&format!("{{{{ payload.{name} | string }}}}"), payload, text);
    }
    assert_renders("{% for x in payload.e %}{{ x }} {% endfor %}", payload, "1.10 1.1 1.100 ");
    assert_renders("{{ payload.a }}{{ payload.b }}{{ payload.a }}", payload, "1.101.11.10");
}

#[test]
fn numbers_are_numbers_to_compare_and_to_calculate_with() {
    let payload = r#"{"total": 99.90, "list": [3.50, 1, 2.0], "big": 12345678901234567890}"#;
    assert_renders(
        "{{ payload.total < 100 }} {{ payload.total == 99.9 }} {{ payload.total * 2 }}",
        payload,
        "true true 199.8",
    );
    assert_renders("{{ payload.list | sort }} {{ payload.list | sum }}", payload, "[1,2.0,3.50] 6.5");
    assert_renders("{{ payload.big + 1 }} {{ payload.big > 5 }}", payload, "12345678901234567891 true");
    assert_renders("{{ payload.total is number }} {{ payload.total | round | int }}", payload, "true 100");
    // What stands before the point is kept to the last digit.
    let long = r#"{"x": 12345678901234567890.9, "y": 1e23, "z": 1e99}"#;
    assert_renders(
        "{{ payload.x | int }} {{ payload.y | int }}",
        long,
        "12345678901234567890 100000000000000000000000",
    );
    assert_renders("{{ '12345678901234567890.9' | int }} {{ payload.z | int(0) }}", long, "12345678901234567890 0");
    assert_fails(
        "{{ payload.z | int }}",
        long,
        "template \"t\", line 1, column 16: 1e99 is too large for a whole number",
    );
}

#[test]
fn a_number_of_too_many_digits_is_never_compared_by_mistake() {
    let payload = r#"{"x": 0.1000000000000000055, "y": 1e400}"#;
    let problem = "0.1000000000000000055 has more digits than can be compared or calculated with: \
                   use the filter float";
    for (source, column) in
        [("{{ payload.x < 5 }}", 1), ("{{ 5 > payload.x }}", 1), ("{{ [payload.x, 1] | sort }}", 21)]
    {
        assert_fails(source, payload, &format!("template \"t\", line 1, column {column}: {problem}"));
    }
    // Nothing is printed behind it that could say where.
    assert_fails("{% if payload.x < 5 %}{% endif %}", payload, &format!("template \"t\": {problem}"));
    assert!(with_payload("{{ payload.x + 1 }}", payload).is_err());
    assert_renders("{{ payload.x == 0.1 }}", payload, "false");
    assert_renders(
        "{{ payload.x | float < 5 }} {{ payload.x | float + 1 }} {{ payload.x is number }}",
        payload,
        "true 1.1 true",
    );
    assert_renders(
        "{{ 'x' if payload.y }}{{ payload.y is defined }}{{ payload.y | default(1) }} {{ 'n' ~ payload.y }}",
        payload,
        "xtrue1e400 n1e400",
    );
}

#[test]
fn json_keeps_the_order_of_members_and_of_the_same_name_the_last_one_counts() {
    assert_renders("{{ payload | tojson }}", r#"{"z": 1, "a": 2, "z": 3}"#, r#"{"z":3,"a":2}"#);
    assert_renders("{{ {'z': 1, 'a': 2} | tojson }}", "{}", r#"{"z":1,"a":2}"#);
    let many: Vec<_> = (0..100).map(|n| format!("\"m{n}\":{n}")).collect();
    let payload = format!("{{{},\"m3\":true}}", many.join(","));
    let expected = format!("{{{}}}", many.join(",").replace("\"m3\":3,", "\"m3\":true,"));
    assert_renders("{{ payload | tojson }}", &payload, &expected);
    assert_renders("{{ payload.m3 }} {{ payload.m99 }}", &payload, "true 99");
}

#[test]
fn strings_are_escaped_as_json_and_nothing_is_escaped_as_html() {
    let payload = r#"{"s": "a\"b\\c\n\u0001é😀<&>'\/"}"#;
    assert_renders("{{ payload.s | tojson }}", payload, r#""a\"b\\c\n\u0001é😀<&>'/""#);
    assert_renders("{{ payload.s }}", payload, "a\"b\\c\n\u{1}é😀<&>'/");
    let html = [("t.html", "{{ x }}")];
    assert_eq!(among(&html, &[("x", Typed::Text("<b>"))]).as_deref(), Ok("<b>"));
}

#[test]
fn json_can_be_indented() {
    let payload = r#"{"a": [1, {}], "b": []}"#;
    let expected = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}";
    assert_renders("{{ payload | tojson(indent=2) }}", payload, expected);
    assert_renders("{{ payload | tojson(2) }}", payload, expected);
    assert_fails("{{ payload | tojson(17) }}", payload, "template \"t\", line 1, column 14: an indent of more than 16");
}

#[test]
fn what_is_undefined_is_a_problem_that_names_it_and_its_place() {
    let undefined = "template \"t\", line 2, column 5: `payload.total` is undefined";
    assert_fails("{\n {{ payload.total }}}", "{}", undefined);
    assert_fails("é{{ nothing }}", "{}", "template \"t\", line 1, column 5: `nothing` is undefined");
    let deeper = with_payload("{{ payload.a.b }}", "{}").unwrap_err();
    assert!(
        deeper.starts_with("template \"t\", line 1, column ") && deeper.contains("`payload.a` is undefined"),
        "{deeper}"
    );
    for source in [
        "{% if payload.x %}{% endif %}",
        "{{ payload.x | tojson }}",
        "{{ payload.x ~ 'a' }}",
        "{{ payload.x == 1 }}",
        "{{ {'a': payload.x} | tojson }}",
        "{{ payload.x | iso }}",
        "{% for y in payload.x %}{% endfor %}",
    ] {
        let problem = with_payload(source, "{}").unwrap_err();
        assert!(problem.contains("`payload.x` is undefined"), "{source}: {problem}");
    }
    assert_renders("{{ payload.x | default('none') }}{{ payload.x is defined }}", "{}", "nonefalse");
}

#[test]
fn a_column_that_is_not_json_is_a_problem_only_for_those_who_read_it() {
    assert_fails(
        "a\n{{ payload.x }}",
        "{\n \"a\" 1}",
        "template \"t\", line 2, column 4: column \"payload\" is not JSON: no colon behind a member name at line 2, column 6",
    );
    for (payload, what) in [
        ("", "the end where a value belongs at line 1, column 1"),
        ("{\"a\":1} x", "something behind the end at line 1, column 9"),
        ("[1 2]", "neither a comma nor \"]\" at line 1, column 4"),
        ("[01]", "a wrong number at line 1, column 4"),
        ("[1.]", "a wrong number at line 1, column 4"),
        ("-", "a wrong number at line 1, column 2"),
        ("\"\\ud800\"", "a wrong escape in a string at line 1, column 1"),
        ("\"\\", "a string without an end at line 1, column 1"),
        ("\"a\nb\"", "a control character in a string at line 1, column 3"),
        ("nul", "no value at line 1, column 1"),
        ("{1:2}", "no member name at line 1, column 2"),
    ] {
        let problem = with_payload("{{ payload }}", payload).unwrap_err();
        assert!(problem.ends_with(&format!("column \"payload\" is not JSON: {what}")), "{payload}: {problem}");
    }
    assert_renders("{% if false %}{{ payload }}{% endif %}fine", "{", "fine");
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    assert_renders("{{ payload }}", &deep, &deep);
    assert!(with_payload("{{ payload }}", &format!("[{deep}]")).unwrap_err().contains("more than 128 levels"));
}

#[test]
fn output_is_bounded_to_the_byte() {
    let templates = Templates::from_sources([("t".to_owned(), "ab{{ x }}".to_owned())]).unwrap();
    let columns = Columns(vec![("x", Typed::Text("cd"))]);
    let mut out = Vec::new();
    templates.render("t", &columns, &mut out, 4).unwrap();
    assert_eq!(out, b"abcd");
    let problem = templates.render("t", &columns, &mut out, 3).unwrap_err();
    assert_eq!(problem.to_string(), "template \"t\", line 1, column 6: its output is larger than 3 bytes");
    let problem = templates.render("t", &columns, &mut out, 1).unwrap_err();
    assert_eq!(problem.to_string(), "template \"t\": its output is larger than 1 bytes");
    assert_eq!(out, b"abcd");
}

#[test]
fn large_output_is_stopped_before_it_is_made() {
    let loops = "{% for a in range(1000) %}{% for b in range(500) %}0123456789{% endfor %}{% endfor %}";
    assert_fails(loops, "{}", "template \"t\": its output is larger than 10000 bytes");
    let deep = format!("{}{}{}", "[".repeat(120), vec!["1"; 5000].join(","), "]".repeat(120));
    assert_fails(
        "{{ payload | tojson(16) | length }}",
        &deep,
        "template \"t\", line 1, column 14: JSON of more than 10000 bytes",
    );
}

#[test]
fn endless_work_is_stopped() {
    let loops = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
    let problem = with_payload(loops, "{}").unwrap_err();
    assert!(problem.ends_with("more than 1000000 steps: is there an endless loop?"), "{problem}");
    let recursion = with_payload("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}").unwrap_err();
    assert!(recursion.contains("recursion"), "{recursion}");
    let includes = among(&[("t", "{% include 't' %}")], &[]).unwrap_err();
    assert!(includes.contains("recursion"), "{includes}");
    let circle = "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns | tojson }}";
    assert!(with_payload(circle, "{}").unwrap_err().contains("namespace"), "nothing can hold itself");
}

#[test]
fn templates_reach_each_other_and_nothing_else() {
    let base = ("base", "<{% block body %}{% endblock %}>{{ id }}");
    let macros = ("macros", "{% macro money(x) %}{{ x }} EUR{% endmacro %}");
    let child = "{% extends 'base' %}{% import 'macros' as m %}{% block body %}{{ m.money(payload.p) }}{% include 'foot' %}{% endblock %}";
    let columns = [("payload", Typed::Json(br#"{"p": 1.10}"#)), ("id", Typed::Text("e")), ("note", Typed::Text("n"))];
    let all = [("child", child), base, macros, ("foot", "!{{ note }}")];
    assert_eq!(among(&all, &columns).as_deref(), Ok("<1.10 EUR!n>e"));
    let wrong = among(&[("t", "{% include '/etc/passwd' %}")], &columns).unwrap_err();
    assert!(wrong.starts_with("template \"t\", line 1, column ") && wrong.contains("non-existing template"), "{wrong}");
}

#[test]
fn a_problem_in_an_included_template_is_told_with_its_own_place() {
    let sources = [("t", "\n\n{% include 'part' %}"), ("part", "a\n  {{ missing }}")];
    assert_eq!(among(&sources, &[]).unwrap_err(), "template \"part\", line 2, column 6: `missing` is undefined");
    let sources =
        [("t", "{% from 'part' import m %}\n{{ m() }}"), ("part", "{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}")];
    let problem = among(&sources, &[]).unwrap_err();
    assert!(problem.starts_with("template \"part\", line 2, column 4: "), "{problem}");
}

#[test]
fn a_template_that_is_wrong_is_refused_with_its_place() {
    for (source, place) in [
        ("{{ a", "line 1, column 4"),
        ("a\n {% if %}", "line 2, column 8"),
        ("{% endfor %}", "line 1, column 4"),
        ("\n{{ a b }}", "line 2, column 6"),
        ("{{ 'a }}", "line 1, column 9"),
    ] {
        let problem = rendered(source, &[]).unwrap_err();
        assert!(problem.starts_with(&format!("template \"t\", {place}: syntax error: ")), "{source}: {problem}");
    }
}

#[test]
fn a_filter_or_test_that_is_not_there_is_refused_before_any_row() {
    for (source, what) in [
        ("{{ 1 | nosuch }}", "line 1, column 8: unknown filter: filter nosuch is unknown"),
        ("{{ [] | map('nosuch') | list }}", "unknown filter: filter nosuch is unknown"),
        ("{{ [] | select('nosuch') | list }}", "unknown test: test nosuch is unknown"),
        ("{{ [] | selectattr('a', 'nosuch') | list }}", "unknown test: test nosuch is unknown"),
        ("\n{{ now() }}", "line 2, column 4: unknown function: function now is unknown"),
        ("{% if x %}\n{{ x | upper | nosuch }}{% endif %}", "line 2, column 16: unknown filter: filter nosuch"),
        ("{% block b %}{% filter nosuch %}x{% endfilter %}{% endblock %}", "unknown filter: filter nosuch"),
        ("{% macro m() %}{{ 1 is nosuch }}{% endmacro %}", "line 1, column 24: unknown test: test nosuch is unknown"),
    ] {
        let sources = [("t".to_owned(), source.to_owned())];
        let problem = Templates::from_sources(sources).unwrap_err().to_string();
        assert!(problem.starts_with("template \"t\", line ") && problem.contains(what), "{source}: {problem}");
    }
    for source in ["{{ [3, 1] | sort | join('-') | upper }}", "{{ 1 is odd and 1 is defined and 'x' is string }}"] {
        assert!(rendered(source, &[]).is_ok(), "{source}");
    }
}

#[test]
fn a_column_is_seen_wherever_in_a_template_it_stands() {
    let columns = [("list", Typed::Json(b"[1, 2, 3]")), ("n", Typed::Integer(2)), ("word", Typed::Text("b"))];
    for (source, expected) in [
        ("{{ list[:2] }}", "[1,2]"),
        ("{{ 'abc'[n:] }}", "c"),
        ("{% filter replace(word, 'x') %}abc{% endfilter %}", "axc"),
        ("{% macro m(a=word) %}{{ a }}{% endmacro %}{{ m() }}", "b"),
        ("{% macro m() %}{{ word }}{% endmacro %}{{ m() }}", "b"),
        ("{{ nothing | default(word) }}", "b"),
        ("{% for x in list if x == n %}{{ x }}{% endfor %}", "2"),
        ("{% include word ~ 'ase' %}", "2"),
        ("{% set word = word ~ '!' %}{{ word }}", "b!"),
    ] {
        assert_eq!(among(&[("t", source), ("base", "{{ n }}")], &columns).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn what_a_row_makes_long_is_worked_on_for_so_long_and_no_longer() {
    let list = format!("[{}]", vec!["[1, 2]"; 20_000].join(","));
    let text = format!("\"{}\"", "x".repeat(1_000_000));
    for (source, payload) in [
        ("{% for a in range(1000) %}{{ payload | map('length') | sum }}{% endfor %}", &list),
        ("{% for a in range(1000) %}{{ payload | sort | length }}{% endfor %}", &list),
        ("{% for a in range(10000) %}{{ payload | length }}{% endfor %}", &text),
        ("{% for a in range(1000) %}{{ payload | sha256 }}{% endfor %}", &text),
        ("{% for a in range(3000) %}{{ payload | tojson | length }}{% endfor %}", &list),
    ] {
        let templates = Templates::from_sources([("t".to_owned(), source.to_owned())]).unwrap();
        let columns = Columns(vec![("payload", Typed::Json(payload.as_bytes()))]);
        let problem = templates.render("t", &columns, &mut Vec::new(), 100_000_000).expect_err(source).to_string();
        assert!(problem.starts_with("template \"t\", line 1, column "), "{source}: {problem}");
        assert!(problem.contains("more work than 10000000 units"), "{source}: {problem}");
    }
}

#[test]
fn a_sort_that_ends_the_work_does_not_end_the_process() {
    // Whatever is left when it begins, it compares what is there.
    let elements: Vec<_> = (0..300).map(|n| format!("{{\"k\": [{}, \"x\"]}}", (n * 7919) % 300)).collect();
    let payload = format!("[{}]", elements.join(","));
    for filter in ["sort(attribute='k')", "sort", "groupby('k')", "unique", "map(attribute='k') | sort"] {
        let templates =
            Templates::from_sources([("t".to_owned(), format!("{{{{ payload | {filter} | length }}}}"))]).unwrap();
        let Ok(template) = templates.environment.get_template("t") else { panic!("no template") };
        for work in (1..40).map(|n| n * 97) {
            let run = Arc::new(Run::new(1000, work));
            let columns = Columns(vec![("payload", Typed::Json(payload.as_bytes()))]);
            let row = Row::new(&columns, &["payload".into()].into(), run.clone());
            let rendered = template.render_captured_to(Value::from_object(row), Vec::new());
            assert!(rendered.is_err() || !run.is_over(), "{filter} {work}");
        }
    }
}

#[test]
fn a_message_is_one_short_line_whatever_it_quotes() {
    let long = format!("\"{}\\n{}\"", "x".repeat(300), "é".repeat(300));
    let problem = with_payload("{{ payload | iso }}", &long).unwrap_err();
    assert!(problem.len() < 600 && !problem.contains('\n') && problem.ends_with('…'), "{problem}");
}

#[test]
fn dates_ids_and_encodings_have_filters() {
    let payload = r#"{"at": "2026-11-16 04:06:00.5+01:30", "id": "01234567-89AB-CDEF-0123-456789ABCDEF", "doc": "{\"n\": 1.10}"}"#;
    for (source, expected) in [
        ("{{ payload.at | iso }}", "2026-11-16T02:36:00.5Z"),
        ("{{ payload.at | date('%Y-%m-%d') }}", "2026-11-16"),
        ("{{ payload.at | epoch_ms }} {{ payload.at | epoch_s }}", "1794796560500 1794796560"),
        ("{{ payload.id | uuid }}", "01234567-89ab-cdef-0123-456789abcdef"),
        ("{{ uuid_v5('dns', 'www.example.com') }}", "2ed6657d-e927-568b-95e1-2665a8aea6a2"),
        ("{{ uuid_v5(payload.id, 'x') == uuid_v5(payload.id | upper, 'x') }}", "true"),
        (
            "{{ 'hé' | b64encode }} {{ 'aMOp' | b64decode }} {{ '/w==' | b64decode | sha256 }}",
            "aMOp hé a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89",
        ),
        ("{{ 'abc' | sha256 }}", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("{{ (payload.doc | fromjson).n }}", "1.10"),
        ("{{ 'ABC' | lower }}{{ [3, 1] | sort | join('-') }}", "abc1-3"),
    ] {
        assert_renders(source, payload, expected);
    }
}

#[test]
fn what_a_filter_cannot_take_is_named() {
    for (source, what) in [
        ("{{ 'x' | iso }}", "\"x\" is not a date"),
        ("{{ 1 | iso }}", "text is needed, not number"),
        ("{{ 'x' | uuid }}", "\"x\" is not a UUID"),
        ("{{ uuid_v5('x', 'y') }}", "\"x\" is not a UUID"),
        ("{{ '%' | b64decode }}", "no base64: Invalid symbol 37, offset 0."),
        ("{{ '{' | fromjson }}", "no JSON: no member name at line 1, column 2"),
        ("{{ [1] | sha256 }}", "text or bytes is needed, not sequence"),
        ("{{ '/w==' | b64decode }}", "bytes are no JSON: use b64encode"),
        ("{{ {1: 2} | tojson }}", "number is no name of a JSON member"),
        ("{{ 1e308 * 10 }}", "inf is no JSON"),
    ] {
        let problem = with_payload(source, "{}").unwrap_err();
        assert!(
            problem.starts_with("template \"t\", line 1, column ") && problem.ends_with(what),
            "{source}: {problem}"
        );
    }
}

#[test]
fn a_template_tells_which_columns_it_may_read() {
    let text =
        "{{ id }}{% for line in payload.lines %}{{ line.n }}{% endfor %}{% if a %}{% set b = 1 %}{% endif %}{{ b }}";
    let templates = Templates::from_sources([
        ("t".to_owned(), text.to_owned()),
        ("part".to_owned(), "{{ note }}".to_owned()),
        ("all".to_owned(), "{% include 'part' %}".to_owned()),
    ])
    .unwrap();
    let columns = |name| templates.columns(name).iter().map(|name| &**name).collect::<Vec<_>>();
    assert_eq!(columns("t"), ["a", "b", "id", "payload"]);
    assert_eq!(columns("part"), ["note"]);
    assert_eq!(columns("all"), ["a", "b", "id", "note", "payload"]);
    assert_eq!(templates.names().collect::<Vec<_>>(), ["all", "part", "t"]);
    assert!(columns("nosuch").is_empty());
    let problem = templates.render("nosuch", &Columns::default(), &mut Vec::new(), 10).unwrap_err();
    assert_eq!(problem.to_string(), "template \"nosuch\": there is no such template");
}

#[test]
fn a_directory_is_loaded_whole_and_a_fault_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    put("order-v2.j2", "{% include 'foot' %}\n");
    put("foot.j2", "{{ id }}\n");
    put("README.md", "{{");
    let load = |names: &[&str]| Templates::load(directory.path(), names.iter().copied(), &BTreeMap::new());
    let mut out = Vec::new();
    load(&["order-v2"]).unwrap().render("order-v2", &Columns(vec![("id", Typed::Text("7"))]), &mut out, 10).unwrap();
    assert_eq!(out, b"7");
    let missing = load(&["order-v3"]).unwrap_err().to_string();
    assert!(
        missing.ends_with("order-v3.j2: there is no template \"order-v3\"; did you mean \"order-v2\"?"),
        "{missing}"
    );
    put("bad.j2", "\n{{ a b }}");
    let bad = load(&[]).unwrap_err().to_string();
    assert!(bad.contains("bad.j2:2:6: syntax error: "), "{bad}");
    std::fs::remove_file(directory.path().join("bad.j2")).unwrap();
    std::fs::write(directory.path().join("bytes.j2"), b"\xff").unwrap();
    assert!(load(&[]).unwrap_err().to_string().contains("bytes.j2: cannot be read: "));
    let nowhere = Templates::load(std::path::Path::new("/nowhere"), std::iter::empty(), &BTreeMap::new()).unwrap_err();
    assert!(nowhere.to_string().starts_with("/nowhere: cannot be read: "), "{nowhere}");
}

/// Any document, written without blanks and without names that occur twice.
fn document() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?";
    let string = "\\PC{0,30}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let leaf = prop_oneof![number, string, Just("true".to_owned()), Just("false".to_owned()), Just("null".to_owned())];
    leaf.prop_recursive(5, 60, 20, |inner| {
        let array = prop::collection::vec(inner.clone(), 0..20).prop_map(|list| format!("[{}]", list.join(",")));
        let object = prop::collection::vec(inner, 0..20).prop_map(|list| {
            let members: Vec<_> = list.iter().enumerate().map(|(n, value)| format!("\"{n}é\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        });
        prop_oneof![array, object]
    })
}

proptest! {
    #[test]
    fn any_document_comes_back_token_for_token(text in document()) {
        prop_assert_eq!(with_payload("{{ payload | tojson }}", &text).unwrap_or_default(), if text.len() > 10_000 { "" } else { &text });
    }

    #[test]
    fn any_number_is_printed_as_written_where_it_is_read(text in "-?(0|[1-9][0-9]{0,45})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?") {
        let payload = format!("{{\"x\":{text}}}");
        prop_assert_eq!(with_payload("{{ payload.x }} {{ payload.x | tojson }}", &payload).unwrap(), format!("{text} {text}"));
    }

    #[test]
    fn any_bytes_are_a_document_or_a_problem_as_for_others(text in "[\\[\\]{},:\"0-9a-zA-Z.eE+ \\\\-]{0,30}") {
        let ours = with_payload("{{ payload }}", &text).is_ok();
        // Others cannot say this of a number that they cannot hold.
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(ours, theirs && serde_json::from_str::<serde_json::Value>(&text).map_or_else(|error| error.to_string().contains("out of range"), |_| true));
    }

    #[test]
    fn any_text_is_a_template_or_is_refused_with_a_place(text in "(\\{\\{|\\}\\}|\\{%|%\\}|\\{#|#\\}|if|for|in|set|end|[a-z|.()\\[\\]'\" 0-9+*/-]|\\PC|\n){0,30}") {
        match Templates::from_sources([("t".to_owned(), text)]) {
            Ok(templates) => drop(templates.render("t", &Columns::default(), &mut Vec::new(), 1000)),
            Err(problem) => prop_assert!(problem.place.is_some(), "{}", problem),
        }
    }

    #[test]
    fn output_never_passes_its_bound(text in document(), most in 0u64..200) {
        let templates = Templates::from_sources([("t".to_owned(), "{{ payload }}{{ payload | tojson(2) }}".to_owned())]).unwrap();
        let mut out = Vec::new();
        let rendered = templates.render("t", &Columns(vec![("payload", Typed::Json(text.as_bytes()))]), &mut out, most);
        prop_assert!(out.len() as u64 <= most && (rendered.is_ok() || out.is_empty()));
    }
}
