use super::super::Config;
use super::super::Preset;
use super::*;

const START: &str = "postgres.url = 'postgres://u@h/d'\nkafka.brokers = 'k:9092'\n[[outbox]]\npreset = 'debezium'\n";

fn read(options: &str) -> Result<(Debezium, Columns), String> {
    let text = format!("{START}[outbox.debezium]\n{options}");
    let config = Config::from_toml(&text, "f", std::iter::empty()).map_err(|error| error.to_string())?;
    let outbox = config.outbox[0].clone();
    let Preset::Debezium(debezium) = outbox.preset else { panic!("it is Debezium's") };
    Ok((*debezium, outbox.columns))
}

#[test]
fn without_options_it_is_the_usual_table_and_text() {
    let (debezium, columns) = read("").unwrap();
    assert!(debezium.topic.regex.is_none());
    assert_eq!(debezium.topic.replacement, [Piece::Literal("outbox.event.".into()), Piece::Group(1)]);
    assert_eq!(
        (&debezium.key, &debezium.value, &debezium.header),
        (&Converter::Text, &Converter::Text, &Converter::Simple)
    );
    assert_eq!((debezium.context, debezium.trace), (None, None));
    assert_eq!((columns.id.as_str(), columns.payload.as_str()), ("id", "payload"));
    assert_eq!((columns.aggregate_type.as_deref(), columns.timestamp), (Some("aggregatetype"), None));
}

#[test]
fn options_name_columns_and_the_typed_columns_weigh_more() {
    let options = "'table.field.event.key' = 'k'\n'route.by.field' = 'r'\n'table.field.event.timestamp' = 'at'";
    let (_, columns) = read(options).unwrap();
    assert_eq!(columns.aggregate_id.as_deref(), Some("k"));
    assert_eq!(columns.aggregate_type.as_deref(), Some("r"));
    assert_eq!(columns.timestamp.as_deref(), Some("at"));
    let text = format!("{START}columns.aggregate_id = 'other'\n[outbox.debezium]\n{options}");
    let config = Config::from_toml(&text, "f", std::iter::empty()).unwrap();
    assert_eq!(config.outbox[0].columns.aggregate_id.as_deref(), Some("other"));
}

#[test]
fn placements_are_read_as_debezium_reads_them() {
    let place = |column: &str, to| Placement { column: column.into(), to };
    for (typed, expected) in [
        ("type:header", vec![place("type", Destination::Header("type".into()))]),
        (
            " a : HEADER : b ,c: Envelope ",
            vec![place("a", Destination::Header("b".into())), place("c", Destination::Envelope("c".into()))],
        ),
        ("p:partition:x,", vec![place("p", Destination::Partition)]),
        ("a:header:", vec![place("a", Destination::Header("a".into()))]),
    ] {
        assert_eq!(placements(typed).unwrap(), expected, "{typed}");
    }
    for wrong in ["", "a", "a:footer", "a:header:b:c", "a:header,,b:header", ":header"] {
        assert!(placements(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    for (options, expected) in [
        ("'route.by.feild' = 'x'", "did you mean \"route.by.field\"?"),
        ("'transforms.outbox.route.by.field' = 'x'", "write \"route.by.field\""),
        ("'table.expand.json.payload' = 'yes'", "\"true\" or \"false\""),
        (
            "'value.converter' = 'org.apache.kafka.connect.json.JsonConverter'",
            "\"value.converter.schemas.enable\" = false",
        ),
        ("'value.converter' = 'io.confluent.connect.avro.AvroConverter'", "outboxd speaks to no schema registry"),
        ("'value.converter' = 'org.example.Own'", "\"org.example.Own\" has no counterpart"),
        ("'value.converter' = 'org.example.Own'", "or \"io.debezium.converters.BinaryDataConverter\""),
        ("'transforms.outbox.route.by.feild' = 'x'", "did you mean \"route.by.field\"?"),
        ("'transforms.outbox.table.field.event.payload.id' = 'k'", "write \"table.field.event.key\" if"),
        (
            "'transforms.ob.table.fields.additional.error.on.missing' = false",
            "write \"table.field.additional.missing\" if",
        ),
        ("'time.precision.mode' = ' Structured '", "refused: times are published as numbers or texts"),
        ("'time.precision.mode' = 'nonsense'", "is not one of the choices"),
        ("'table.field.event.payload.id' = 'k'", "write \"table.field.event.key\" if"),
        ("'table.fields.additional.error.on.missing' = false", "write \"table.field.additional.missing\" if"),
        ("'value.converter' = 'io.debezium.converters.ByteArrayConverter'", "leaves every bytea"),
        ("'column.mask.with.12.chars' = 'public.outboxevent.payload'", "columns are published as they are"),
        ("'column.truncate.to.20.chars' = 'public.outboxevent.payload'", "columns are published as they are"),
        ("'column.exclude.list' = 'public.outboxevent.secret'", "give the publication a list of columns"),
        ("'converters' = 'isbn'", "there is no Java here"),
        ("'money.fraction.digits' = 4", "only \"2\""),
        ("'value.converter.converter.encoding' = 'latin1'", "only \"utf-8\""),
        ("'route.topic.regex' = '(?=a).*'", "a look-ahead"),
        ("'route.topic.replacement' = '${nothing}'", "known here: routedByValue"),
        ("'table.fields.additional.placement' = 'a:envelope:payload'", "one name to two members"),
        ("'extended.headers.enabled' = true", "no topic.prefix"),
        ("'field.name.adjustment.mode' = 'avro'", "only \"none\""),
    ] {
        let said = read(options).unwrap_err();
        assert!(said.contains(expected), "{options}:\n{said}");
    }
}

#[test]
fn a_replacement_of_which_no_topic_can_come_is_refused() {
    let long = "x".repeat(250);
    for (replacement, hint) in [
        ("bad topic/${routedByValue}", "a topic's name has letters"),
        ("${routedByValue}/x", "a topic's name has letters"),
        (r"\$1", "a topic's name has letters"),
        (&format!("{long}$1"), "at most 249 characters"),
        ("", "Kafka has no topic"),
        (".", "Kafka has no topic"),
    ] {
        let said = read(&format!("'route.topic.replacement' = '{replacement}'")).unwrap_err();
        let what = format!("route.topic.replacement: \"{replacement}\" cannot be a topic's name\n  hint: ");
        assert!(said.contains(&what) && said.contains(hint), "{said}");
    }
    // What stands behind the match stays behind the replacement: "ab" becomes "b", "x" becomes ".x".
    for (regex, replacement) in [("a|ab", ""), ("(.*?)", "."), ("(.*)", "a"), ("(.*)", "$1"), ("(.*)", "-_.$1")] {
        let options = format!("'route.topic.regex' = '{regex}'\n'route.topic.replacement' = '{replacement}'");
        assert!(read(&options).is_ok(), "{options}");
    }
}

#[test]
fn no_salt_is_told_wherever_it_was_typed() {
    let mask = "\"column.mask.hash.SHA-256.with.salt.S4LT\" = 'a.b.c'";
    for (text, named) in [
        (format!("{START}[outbox.debezium]\n{mask}"), "debezium.column.mask.hash.SHA-256.with.salt.: refused"),
        (format!("{START}[outbox.debezium]\n\"transforms.x.{}", &mask[1..]), "with.salt.: is no option"),
        (format!("{START}{mask}"), "with.salt.\""),
        (format!("{mask}\n{START}"), "with.salt.\""),
    ] {
        let said = Config::from_toml(&text, "f", std::iter::empty()).unwrap_err().to_string();
        assert!(said.contains(named) && !said.contains("S4LT"), "{said}");
    }
}

#[test]
fn words_may_have_capitals_and_blanks_and_switches_may_be_booleans() {
    let options = "'table.expand.json.payload' = true\n'table.json.payload.null.behavior' = ' OPTIONAL_BYTES '
        'value.converter' = 'org.apache.kafka.connect.json.JsonConverter'\n'value.converter.schemas.enable' = 'FALSE'
        'value.converter.decimal.format' = 'NUMERIC'\n'table.op.invalid.behavior' = 'fatal'
        'table.field.event.schema.version' = 'v'\n'money.fraction.digits' = 2";
    let (debezium, _) = read(options).unwrap();
    assert_eq!(debezium.expansion, Some(Expansion { nulls: Members::Kept, empty_arrays: Members::Ignored }));
    assert_eq!(debezium.value, Converter::Json(DecimalFormat::Numeric));
}

#[test]
fn converters_are_found_as_kafka_connect_finds_them() {
    for (key, value, header) in [
        ("String", "BinaryData", "Simple"),
        ("StringConverter", "BinaryDataConverter", "SimpleHeaderConverter"),
        (STRING, "io.debezium.converters.ByteBufferConverter", SIMPLE),
        (STRING, "ByteBufferConverter", SIMPLE),
        (STRING, "ByteBuffer", SIMPLE),
    ] {
        let typed = format!(
            "'key.converter' = '{key}'\n'key.converter.converter.encoding' = 'UTF8'\n'value.converter' = '{value}'
             'value.converter.delegate.converter.type' = '{JSON}'
             'value.converter.delegate.converter.type.schemas.enable' = false\n'header.converter' = '{header}'"
        );
        let (debezium, _) = read(&typed).unwrap();
        let binary = Converter::Binary(Some(Box::new(Converter::Json(DecimalFormat::Base64))));
        assert_eq!((debezium.key, debezium.value, debezium.header), (Converter::Text, binary, Converter::Simple));
    }
}
