//! The real binary, as a person or a script uses it: output, exit codes, closed pipes.

#![allow(clippy::unwrap_used, reason = "clippy allows it in tests, not in the functions they share")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use outboxd::admin;
use outboxd::lsn::Lsn;
use outboxd::metrics::Metrics;
use outboxd::status::{Reason, Role, SlotFacts, State, Status};
use tokio::runtime::Builder;
use tokio::sync::watch;

const COMMANDS: [&str; 12] = [
    "init",
    "check",
    "run",
    "status",
    "health",
    "registry",
    "render",
    "config",
    "convert",
    "demo",
    "completions",
    "man",
];

/// The binary in an empty environment with a complete configuration.
fn outboxd(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(args).env_clear().stdin(Stdio::null());
    command.env("OUTBOXD_POSTGRES__URL", "postgres://relay@127.0.0.1:1/app?sslmode=disable");
    command.env("OUTBOXD_KAFKA__BROKERS", "127.0.0.1:1");
    command
}

fn run(args: &[&str]) -> Output {
    outboxd(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a relay answers over HTTP while it is in this state, until the tests end.
fn relay(state: State) -> SocketAddr {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(admin::bind(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    let address = listener.local_addr().unwrap();
    let reason = |message: &str| Reason { code: "test".into(), message: message.into(), hint: Some("mend it".into()) };
    let now = SystemTime::now();
    let status = Status {
        state,
        since: now,
        role: Role::Leader,
        reasons: if state == State::Streaming { vec![] } else { vec![reason("topic \"orders\" does not exist")] },
        slot: "orders".into(),
        confirmed: Lsn(1024),
        received: Lsn(2048),
        server: Lsn(4096),
        oldest_unsettled: None,
        inflight_events: 0,
        inflight_bytes: 0,
        unmarked_events: 0,
        slot_facts: Some(SlotFacts { at: now, retained_bytes: 4096, safe_bytes: None, wal_status: "reserved".into() }),
        published: 7,
        dead_letters: None,
    };
    let server = admin::serve(listener, watch::channel(status).1, Metrics::new(), std::future::pending());
    std::thread::spawn(move || runtime.block_on(server));
    address
}

/// Runs the binary against a relay in this state.
fn ask(state: State, args: &[&str]) -> Output {
    outboxd(args).env("OUTBOXD_HTTP__LISTEN", relay(state).to_string()).output().unwrap()
}

#[test]
fn help_lists_every_command_on_stdout() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for command in COMMANDS {
        assert!(stdout(&output).contains(&format!("\n  {command} ")), "{command} is missing");
        assert_eq!(run(&[command, "--help"]).status.code(), Some(0), "{command}");
    }
    let version = run(&["--version"]);
    assert_eq!(stdout(&version), concat!("outboxd ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_ends_with_2_and_says_so_on_stderr() {
    for (args, message) in [
        (vec![], "Usage: outboxd"),
        (vec!["strat"], "unrecognized subcommand 'strat'"),
        (vec!["status", "--wacth"], "--watch"),
        (vec!["config", "--log", "outboxd=loud"], "--log"),
        (vec!["config", "--log-format", "xml"], "possible values: auto, text, json"),
        (vec!["init", "--table", "t"], "--preset <PRESET>"),
        (vec!["init", "--preset", "watermil"], "a similar value exists: 'watermill'"),
        (vec!["init", "--preset", "brighter"], "--table schema.name"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_wrong_configuration_ends_with_2_and_names_the_place() {
    let output = run(&["health", "--config", "no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: ") && stderr(&output).contains("no/such/file.toml"));
    let output = outboxd(&["health"]).env("OUTBOXD_HTTP__LISTEN", "everywhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("OUTBOXD_HTTP__LISTEN"), "{}", stderr(&output));
}

#[test]
fn the_reference_configuration_goes_to_stdout() {
    let output = run(&["config"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("listen = \"127.0.0.1:9187\""));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for args in [&["config"][..], &["man"], &["completions", "bash"]] {
        let mut child = outboxd(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(COMMANDS.iter().all(|command| stdout(&output).contains(command)), "{shell}");
    }
}

#[test]
fn the_manual_is_one_page_on_stdout_or_one_per_command_in_a_directory() {
    let page = stdout(&run(&["man"]));
    assert!(page.contains(".TH outboxd 1") && page.contains("outboxd\\-init(1)"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("man1");
    let output = run(&["man", "--dir", target.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        target.join("outboxd.1").exists() && COMMANDS.iter().all(|c| target.join(format!("outboxd-{c}.1")).exists())
    );
    let output = run(&["man", "--dir", "/dev/null/man1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: cannot write manual pages to /dev/null/man1: "));
}

#[test]
fn help_never_shows_the_secret_of_an_environment_variable() {
    let output =
        outboxd(&["init", "--help"]).env("OUTBOXD_INIT_URL", "postgres://dba:hunter2@db/app").output().unwrap();
    assert!(stdout(&output).contains("OUTBOXD_INIT_URL") && !stdout(&output).contains("hunter2"));
}

#[test]
fn health_is_the_exit_code_and_the_answer() {
    let output = ask(State::Waiting, &["health"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("\"status\":\"alive\""));
    let output = ask(State::Waiting, &["health", "--ready"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("topic \\\"orders\\\" does not exist"), "{}", stdout(&output));
    assert_eq!(ask(State::Streaming, &["health", "--ready"]).status.code(), Some(0));
}

#[test]
fn health_without_a_relay_is_a_definite_failure_with_a_hint() {
    let output = outboxd(&["health"]).env("OUTBOXD_HTTP__LISTEN", "127.0.0.1:1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = "error: no relay answers at 127.0.0.1:1: connection refused\n  hint: start it with outboxd run";
    assert!(stderr(&output).starts_with(text), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn status_asks_the_running_relay() {
    let output = ask(State::Waiting, &["status"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("waiting 0.") && text.contains(" s: topic \"orders\" does not exist\n  hint: mend it\n"));
    assert!(text.contains("  slot        orders (reserved)\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&stdout(&ask(State::Streaming, &["status", "--json"]))).unwrap();
    assert_eq!((&json["source"], &json["state"]), (&"relay".into(), &"streaming".into()));
}

#[test]
fn a_watched_status_is_a_line_per_second_on_a_pipe_until_nobody_reads() {
    let mut command = outboxd(&["status", "--watch"]);
    command.env("OUTBOXD_HTTP__LISTEN", relay(State::Streaming).to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().starts_with("streaming, up to date; slot orders (reserved); "));
    }
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Runs `render` with this template and this row, in a directory of their own.
fn render(template: &str, row: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("templates")).unwrap();
    std::fs::write(dir.path().join("templates/order.j2"), template).unwrap();
    std::fs::write(dir.path().join("templates/foot.j2"), "{{ id }}").unwrap();
    std::fs::write(dir.path().join("row.json"), row).unwrap();
    let args = ["render", "--template", "order", "--row", "row.json"];
    let output = outboxd(&args).current_dir(dir.path()).output().unwrap();
    let by_file = ["render", "--template", "templates/order.j2", "--row", "row.json"];
    assert_eq!(outboxd(&by_file).current_dir(dir.path()).output().unwrap().stdout, output.stdout);
    output
}

#[test]
fn render_writes_the_bytes_that_a_template_makes_of_a_row() {
    let row = r#"{"id": "e-1", "payload": "{\"total\": 1.10}", "note": "{\"a\": 1}", "tags": [1.0], "n": 12345678901234567890,
        "gone": null, "live": true}"#;
    let template = "{{ payload.total }} {{ note }} {{ tags }} {{ n }} {{ gone }} {{ live }} {% include 'foot' %}\n";
    let output = render(template, row);
    assert_eq!(stdout(&output), "1.10 {\"a\": 1} [1.0] 12345678901234567890 null true e-1", "{}", stderr(&output));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert_eq!(stdout(&render("{{ payload }}", r#"{"payload": "no JSON"}"#)), "no JSON");
}

#[test]
fn render_takes_directory_contexts_and_limit_of_the_configuration_whatever_else_that_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir(dir.path().join("shapes")).unwrap();
    let iri = "https://example.com/person";
    // There is no url, and no broker.
    write(
        "outboxd.toml",
        &format!(
            "[templates]\ndirectory = \"shapes\"\ncontexts = {{ \"{iri}\" = \"p.jsonld\" }}\n[limits]\nevent = \"1KiB\""
        ),
    );
    write("shapes/p.jsonld", r#"{"@context": {"name": "http://schema.org/name"}}"#);
    write("shapes/person.j2", "{{ payload | jsonld_expand }}");
    write("shapes/large.j2", "{% for n in range(200) %}0123456789{% endfor %}");
    write("row.json", &format!(r#"{{"payload": "{{\"@context\": \"{iri}\", \"name\": \"Ann\"}}"}}"#));
    let render = |template: &str| {
        let args = ["render", "--template", template, "--row", "row.json"];
        outboxd(&args).current_dir(dir.path()).output().unwrap()
    };
    for template in ["person", "shapes/person.j2", "./shapes/person.j2"] {
        let output = render(template);
        let expanded = r#"[{"http://schema.org/name":[{"@value":"Ann"}]}]"#;
        assert_eq!(stdout(&output), expanded, "{template}: {}", stderr(&output));
    }
    let large = render("large");
    assert!(stderr(&large).contains("its output is larger than 1024 bytes"), "{}", stderr(&large));
    // Elsewhere there is no such context, and no template needs it.
    std::fs::create_dir(dir.path().join("drafts")).unwrap();
    write("drafts/draft.j2", "{{ payload.name }}");
    assert_eq!(stdout(&render("drafts/draft.j2")), "Ann");
    write("outboxd.toml", "[templates]\ndirectroy = \"shapes\"");
    let wrong = render("person");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("did you mean \"directory\"?"), "{}", stderr(&wrong));
}

#[test]
fn render_reads_a_payload_that_is_text_as_the_relay_does() {
    // What does not look like an object or a list is text.
    assert_eq!(stdout(&render("{{ payload | tojson }}", r#"{"payload": "7"}"#)), "\"7\"");
    assert_eq!(stdout(&render("{{ payload | tojson }}", r#"{"payload": " [7]"}"#)), "[7]");
    let broken = render("{{ payload }}", r#"{"payload": "{no JSON"}"#);
    assert!(stderr(&broken).contains("column \"payload\" is not JSON"), "{}", stderr(&broken));
}

#[test]
fn render_says_where_a_template_fails_and_what_cannot_be_read() {
    let failed = render("{\n{{ payload.total }}", r#"{"payload": {}}"#);
    assert_eq!(stderr(&failed), "error: template \"order\", line 2, column 4: `payload.total` is undefined\n");
    assert_eq!((failed.status.code(), stdout(&failed).as_str()), (Some(1), ""));
    let wrong = render("{{ a b }}", "{}");
    assert!(stderr(&wrong).starts_with("error: templates/order.j2:1:6: syntax error: "), "{}", stderr(&wrong));
    assert_eq!(wrong.status.code(), Some(1));
    for row in ["[]", "{"] {
        let unreadable = render("x", row);
        assert!(stderr(&unreadable).starts_with("error: row.json is not a JSON object: "), "{}", stderr(&unreadable));
        assert_eq!(unreadable.status.code(), Some(2));
    }
    for args in [["nosuch", "Cargo.toml"], ["nosuch.j2", "Cargo.toml"]] {
        let output = run(&["render", "--templates", "src", "--template", args[0], "--row", args[1]]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

#[test]
fn sample_events_are_held_to_the_registry_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    write("order.json", r#"{"required": ["amount"], "properties": {"amount": {"type": "number"}}}"#);
    let routes = "[registry]\nunmatched = \"reject\"\n[[route]]\nmatch = { event_type = \"order.*\" }\nkey = \"{aggregate_id}\"\n";
    write("outboxd.toml", &format!("{routes}schema = \"{}\"\n", path("order.json")));
    let event = |amount: &str| {
        format!(
            r#"{{"id": 1, "aggregate_type": "order", "aggregate_id": "42", "event_type": "order.paid", "payload": {{"amount": {amount}}}}}"#
        )
    };
    write("good.json", &event("1.10"));
    write("bad.json", &format!("[{}, {{\"id\": 2, \"event_type\": \"user.left\"}}]", event("\"1\"")));
    let check = |arguments: &[&str]| {
        let config = path("outboxd.toml");
        let output = outboxd(&[&["registry", "check", "--config", &config], arguments].concat()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told, _) = check(&[&path("good.json")]);
    assert_eq!(code, Some(0));
    assert!(
        told.contains("outbox.event.order")
            && told.contains("{\"amount\": 1.10}")
            && told.ends_with("1 ok, 0 parked\n"),
        "{told}"
    );
    let (code, told, _) = check(&[&path("good.json"), &path("bad.json")]);
    assert_eq!(code, Some(1));
    assert!(told.contains("schema: its payload at /amount: expected the type number (type)"), "{told}");
    assert!(told.contains("unmatched: no [[route]] matches event type \"user.left\""), "{told}");
    let (_, told, _) = check(&["--json", &path("good.json")]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["events"][0]["record"]["value"], "{\"amount\": 1.10}");
    let (code, _, told) = check(&[&path("nowhere.json")]);
    assert!(code == Some(2) && told.contains("nowhere.json cannot be read"), "{told}");
}

#[test]
fn a_sample_file_without_an_event_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let good = path("good.json");
    std::fs::write(&good, r#"{"id": 1, "aggregate_type": "order", "payload": {}}"#).unwrap();
    for (name, text) in [("empty.json", ""), ("blank.json", " \n\n"), ("list.json", "[ ]\n")] {
        let file = path(name);
        std::fs::write(&file, text).unwrap();
        for files in [&[file.as_str()][..], &[good.as_str(), file.as_str()], &["--json", file.as_str()]] {
            let output = run(&[&["registry", "check"], files].concat());
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{files:?}");
            let told = stderr(&output);
            let start = format!("error: {file} has no event\n  hint: a file has one, several one behind the other, ");
            assert!(told.starts_with(&start) && told.contains("a JSON object"), "{told}");
        }
    }
    assert_eq!(run(&["registry", "check", &good]).status.code(), Some(0));
}

#[test]
fn init_by_preset_says_which_lines_the_file_lacks() {
    let output = run(&["init", "--preset", "sbmt-outbox", "--table", "app.order_items", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("app") && !stdout(&output).contains("CREATE TABLE public.outbox ("));
    let lines = "the relay needs these lines in outboxd.toml:\n\n\
                 # public.outbox, read until now, needs a block of its own from here on, or is not read any more:\n\
                 # [[outbox]]\n# table = \"public.outbox\"\n\n\
                 [[outbox]]\npreset = \"sbmt-outbox\"\ntable = \"app.order_items\"\n\n\
                 [[route]]\noutbox = \"app.order_items\"\ntopic = \"…\" # where its events go\n";
    assert!(stderr(&output).ends_with(lines), "{}", stderr(&output));
    assert!(!stdout(&output).contains("preset ="), "stdout is a script");
}

#[test]
fn init_without_a_preset_does_not_take_the_administrators_url_for_the_relays() {
    let directory = tempfile::tempdir().unwrap();
    let init = |more: &[&str]| {
        let mut command = outboxd(&[&["init", "--dry-run"], more].concat());
        command.env_remove("OUTBOXD_POSTGRES__URL").env_remove("OUTBOXD_KAFKA__BROKERS");
        command.current_dir(&directory).output().unwrap()
    };
    let url = ["--url", "postgres://dba@127.0.0.1:1/app"];
    let output = init(&url);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("postgres.url is required"), "{}", stderr(&output));
    let output = init(&["--preset", "cap"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("OUTBOXD_POSTGRES__URL, or --url"), "{}", stderr(&output));
    let output = init(&[&["--preset", "cap"], &url[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = "[postgres]\nurl = \"…\" # as --url, with the user outboxd and its password\n\n\
                 [kafka]\nbrokers = \"…\" # host:port,host:port\n\n\
                 [[outbox]]\npreset = \"cap\"\ntable = \"cap.published\"\n";
    assert!(stderr(&output).ends_with(lines), "{}", stderr(&output));
}

#[test]
fn letters_can_be_asked_for_by_every_reason() {
    for reason in outboxd::dead_letter::REASONS {
        let output = run(&["dead-letters", "list", "--reason", reason]);
        // The database is not there, which is found out behind the usage.
        assert_eq!(output.status.code(), Some(1), "{reason}: {}", stderr(&output));
    }
    let output = run(&["dead-letters", "list", "--reason", "schem"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'schema'"), "{}", stderr(&output));
}

#[test]
fn an_outbox_is_named_for_a_sample_as_it_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("outboxd.toml"), "[[outbox]]\ntable = \"outbox\"\n[[outbox]]\ntable = '\"a.b\".c'\n").unwrap();
    std::fs::write(path("event.json"), r#"{"id": 1, "aggregate_type": "order", "payload": {}}"#).unwrap();
    let check = |outbox: &str| {
        run(&["registry", "check", "--config", &path("outboxd.toml"), "--outbox", outbox, &path("event.json")])
    };
    for outbox in ["outbox", "public.outbox", "\"a.b\".c"] {
        assert_eq!(check(outbox).status.code(), Some(0), "{outbox}: {}", stderr(&check(outbox)));
    }
    let refused = check("c");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("known: public.outbox, \"a.b\".c"), "{}", stderr(&refused));
}

#[test]
fn the_files_of_a_configuration_are_found_from_its_own_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("schemas")).unwrap();
    std::fs::write(path("schemas/order.json"), r#"{"required": ["amount"]}"#).unwrap();
    std::fs::write(path("outboxd.toml"), "[[route]]\nschema = \"schemas/order.json\"\n").unwrap();
    std::fs::write(path("event.json"), r#"{"id": 1, "aggregate_type": "order", "payload": {"amount": 1}}"#).unwrap();
    // From the root on, as systemd starts it.
    let args = ["registry", "check", "--config", &path("outboxd.toml"), &path("event.json")];
    let output = outboxd(&args).current_dir("/").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
}
