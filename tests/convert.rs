//! `outboxd convert`, the real binary, on real files: what it prints, what it says, how it ends.
//!
//! What it prints for each file of `tests/data/convert` stands beside it as `.toml`, what it says as `.txt`;
//! `OUTBOXD_BLESS=1 cargo test --test convert` writes them anew.

#![allow(clippy::unwrap_used, reason = "clippy allows it in tests, not in the functions they share")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use outboxd::config::Config;
use serde_json::Value;

/// Each file, and how its conversion ends.
const FILES: [(&str, i32); 7] = [
    ("register-postgres.json", 1),
    ("complete.json", 0),
    ("kafkaconnector.yaml", 0),
    ("application.properties", 1),
    ("misspelt.json", 1),
    ("avro.json", 1),
    ("chain.properties", 1),
];

/// The secret that every file holds.
const SECRET: &str = "hunter2";

#[test]
fn each_file_becomes_what_stands_beside_it() {
    for (file, code) in FILES {
        let output = convert(&[&path(file)]);
        assert_eq!(output.status.code(), Some(code), "{file}: {}", text(&output.stderr));
        beside(file, "toml", &text(&output.stdout));
        beside(file, "txt", &text(&output.stderr));
    }
}

#[test]
fn every_result_loads() {
    for (file, _) in FILES {
        let toml = text(&convert(&[&path(file)]).stdout);
        loads(&toml).unwrap_or_else(|error| panic!("{file}: {error}\n{toml}"));
    }
}

#[test]
fn whatever_an_installation_calls_its_own_0_says_that_outboxd_takes_the_file() {
    let whole: Value = serde_json::from_str(&fs::read_to_string(path("complete.json")).unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("connector.json");
    let mut refused = Vec::new();
    for option in
        ["database.hostname", "database.port", "database.user", "database.dbname", "slot.name", "publication.name"]
            .iter()
            .chain(&["producer.override.bootstrap.servers", "producer.override.client.id", "table.include.list"])
    {
        for value in
            ["", " ", "five", "Of-Mine", "a b", "\u{e9}\u{1F600}", "SASL_SSL://kafka:9093", "99999", "a.b,", "[::1"]
        {
            let mut changed = whole.clone();
            changed["config"][option] = value.into();
            fs::write(&file, changed.to_string()).unwrap();
            let output = convert(&[file.to_str().unwrap()]);
            let (toml, said) = (text(&output.stdout), text(&output.stderr));
            if let Err(error) = loads(&toml) {
                assert_eq!(output.status.code(), Some(1), "{option}={value:?}: {error}\n{said}");
                assert!(said.contains("  outboxd.toml:") && said.contains("outboxd refuses this line"), "{said}");
                refused.push((*option, value));
            }
        }
    }
    assert!(refused.contains(&("database.port", "five")), "{refused:?}");
}

#[test]
fn a_file_is_written_where_none_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("outboxd.toml");
    let [connector, target] = [path("complete.json"), file.to_str().unwrap().to_owned()];
    let written = convert(&["--output", &target, &connector]);
    assert_eq!((written.status.code(), text(&written.stdout).as_str()), (Some(0), ""), "{}", text(&written.stderr));
    let printed = convert(&[&connector]);
    assert_eq!((fs::read(&file).unwrap(), &written.stderr), (printed.stdout, &printed.stderr));
    fs::write(&file, "mine").unwrap();
    let refused = convert(&["--output", &target, &connector]);
    assert_eq!((refused.status.code(), fs::read_to_string(&file).unwrap().as_str()), (Some(2), "mine"));
    let said = text(&refused.stderr);
    assert!(said.contains("cannot write") && said.contains("hint: name another file"), "{said}");
    assert_eq!(convert(&["--json", "--output", &target, &connector]).status.code(), Some(2));
}

#[test]
fn no_secret_is_printed() {
    for (file, _) in FILES {
        assert!(fs::read_to_string(path(file)).unwrap().contains(SECRET), "{file} has no secret to hide");
        for args in [vec![], vec!["--json"]] {
            let output = convert(&[&args[..], &[&path(file)]].concat());
            assert!(!format!("{}{}", text(&output.stdout), text(&output.stderr)).contains(SECRET), "{file}");
        }
    }
}

#[test]
fn json_has_the_toml_and_every_group() {
    for (file, code) in FILES {
        let output = convert(&["--json", &path(file)]);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(code), ""), "{file}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["toml"].as_str().unwrap(), text(&convert(&[&path(file)]).stdout), "{file}");
        for group in ["fill_in", "lost", "unknown", "differs", "not_needed"] {
            let findings = json[group].as_array().unwrap();
            assert!(findings.iter().all(|finding| finding["option"].is_string() && finding["message"].is_string()));
        }
        let losses = ["lost", "unknown"].map(|group| json[group].as_array().unwrap().len());
        assert_eq!(losses.iter().sum::<usize>() > 0, code == 1, "{file}");
    }
}

#[test]
fn the_worker_s_converters_and_the_slot_s_history_make_an_example_whole_but_for_its_plugin() {
    let output = convert(&[
        "--json",
        "--has-run",
        "--key-converter=StringConverter",
        "--value-converter=JsonConverter,schemas.enable=false",
        "--header-converter=SimpleHeaderConverter",
        &path("register-postgres.json"),
    ]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost: Vec<&str> =
        json["lost"].as_array().unwrap().iter().map(|lost| lost["option"].as_str().unwrap()).collect();
    assert_eq!(lost, ["plugin.name"]);
}

#[test]
fn what_is_no_configuration_ends_with_2_and_says_what_was_expected() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes, message) in [
        ("empty", &b""[..], "this is no connector's configuration"),
        ("broken.json", b"{\"config\": {", "not valid JSON at line 1"),
        ("mysql.json", br#"{"connector.class": "io.debezium.connector.mysql.MySqlConnector"}"#, "MySqlConnector"),
        ("latin.properties", b"connector.class=\xe9", "is not UTF-8"),
        ("other.yaml", b"apiVersion: v1\nkind: Secret\n", "no document of this YAML is a KafkaConnector"),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, bytes).unwrap();
        let output = convert(&[file.to_str().unwrap()]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{name}");
        let said = text(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains(message) && said.contains("\n  hint: "), "{name}: {said}");
    }
    let output = convert(&[directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: cannot read "), "{}", text(&output.stderr));
    let output = convert(&["no/such/file.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: cannot read no/such/file.json"), "{}", text(&output.stderr));
}

#[test]
fn a_dash_reads_stdin() {
    let mut child = command(&["-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(path("complete.json")).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, convert(&[&path("complete.json")]).stdout);
}

#[test]
fn the_document_shows_real_output() {
    let file = "register-postgres.json";
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/convert.md")).unwrap();
    let output = convert(&[&path(file)]);
    for shown in [fs::read_to_string(path(file)).unwrap(), text(&output.stdout), text(&output.stderr)] {
        assert!(document.contains(&shown), "docs/convert.md does not show:\n{shown}");
    }
}

/// Whether the project's own configuration takes the TOML.
fn loads(toml: &str) -> Result<(), String> {
    Config::from_toml(toml, "outboxd.toml", std::iter::empty()).map(drop).map_err(|error| error.to_string())
}

/// Compares with the file beside it, or writes it.
fn beside(file: &str, ending: &str, found: &str) {
    let expected = PathBuf::from(format!("{}.{ending}", path(file)));
    if std::env::var_os("OUTBOXD_BLESS").is_some() {
        fs::write(&expected, found).unwrap();
    }
    let text = fs::read_to_string(&expected).unwrap_or_default();
    assert!(text == found, "{} is stale:\n{found}", expected.display());
}

fn path(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/convert").join(file).to_str().unwrap().to_owned()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.arg("convert").args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn convert(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
