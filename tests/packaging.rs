//! The packaging names files, metrics, commands and versions that live elsewhere: here they are held together.
//!
//! Syntax is checked by `scripts/validate-packaging`, with the tools that own it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const CONFIG: &str = "--config";

#[test]
fn every_metric_on_the_dashboard_is_exported() {
    let exported = words(&read("src/metrics.rs"), "outboxd_");
    for shown in words(&read("grafana/dashboards/outboxd.json"), "outboxd_") {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| shown.strip_suffix(part)).unwrap_or(&shown);
        assert!(exported.contains(family), "the dashboard asks for {shown}, which src/metrics.rs does not export");
    }
}

#[test]
fn no_two_panels_of_the_dashboard_share_an_id_or_a_place() {
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboards/outboxd.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());

    let mut taken = BTreeMap::new();
    for panel in panels {
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(side("x") + side("w") <= 24, "{} leaves the grid", panel["title"]);
        for cell in (0..side("w")).flat_map(|x| (0..side("h")).map(move |y| (x, y))) {
            let cell = (side("x") + cell.0, side("y") + cell.1);
            assert_eq!(taken.insert(cell, &panel["title"]), None, "{} covers another panel", panel["title"]);
        }
    }
}

#[test]
fn every_file_that_the_compose_file_names_exists() {
    let named: Vec<String> = compose_paths(&read("docker-compose.yml"));
    assert!(named.len() >= 8, "only {named:?} were found");
    for path in named {
        assert!(root().join(&path).exists(), "docker-compose.yml names {path}");
    }
}

#[test]
fn grafana_finds_the_dashboard_where_the_compose_file_mounts_it() {
    let mount = read("docker-compose.yml")
        .lines()
        .find_map(|line| line.trim().strip_prefix("- ./grafana/dashboards:")?.strip_suffix(":ro").map(str::to_owned))
        .expect("the dashboards are mounted");
    let provider = read("grafana/provisioning/dashboards/outboxd.yml");
    assert!(provider.contains(&format!("path: {mount}\n")), "the provider does not look into {mount}");
}

#[test]
fn the_unit_runs_the_binary_with_a_command_and_a_flag_that_exist() {
    let unit = read("packaging/systemd/outboxd.service");
    let start = setting(&unit, "ExecStart");
    let words: Vec<&str> = start.split_whitespace().collect();
    assert_eq!(words, ["/usr/bin/outboxd", "run", CONFIG, "/etc/outboxd/outboxd.toml"]);
    assert_command_takes_a_config("run");
}

#[test]
fn a_reload_of_the_unit_sends_the_signal_that_reads_the_file_again() {
    let unit = read("packaging/systemd/outboxd.service");
    assert_eq!(setting(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID");
    // Type=exec: the main process is the binary itself, and no shell in front of it takes the signal.
    assert_eq!(setting(&unit, "Type"), "exec");
    assert!(read("src/cli/run.rs").contains("SignalKind::hangup()"), "SIGHUP is what a relay listens to");
    assert_eq!(setting(&unit, "WorkingDirectory"), "/etc/outboxd", "beside the file that ExecStart names");
}

#[test]
fn the_image_runs_commands_and_flags_that_exist() {
    let (dockerfile, compose) = (read("Dockerfile"), read("docker-compose.yml"));
    assert!(dockerfile.contains(r#"CMD ["run", "--config", "/etc/outboxd/outboxd.toml"]"#));
    assert!(dockerfile.contains(r#"outboxd", "health", "--config", "/etc/outboxd/outboxd.toml"]"#));
    assert!(compose.contains("command: [init, --config, /etc/outboxd/outboxd.toml]"));
    for command in ["run", "health", "init"] {
        assert_command_takes_a_config(command);
    }
    assert!(compose.contains("OUTBOXD_INIT_URL: "));
    assert!(help("init").contains("OUTBOXD_INIT_URL"));
}

#[test]
fn the_configuration_of_the_compose_file_is_valid() {
    let output = Command::new(env!("CARGO_BIN_EXE_outboxd"))
        .args(["health", CONFIG, "config/docker/outboxd.toml"])
        .current_dir(root())
        .env("OUTBOXD_POSTGRES__PASSWORD_FILE", root().join("config/docker/secrets/outboxd_password"))
        .env("OUTBOXD_HTTP__LISTEN", "127.0.0.1:1")
        .output()
        .unwrap();
    // 2 is a wrong configuration; 1 says that it was read and nobody answers at that port.
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_stop_lasts_longer_than_a_clean_leave_may() {
    // limits.shutdown, as the configuration defaults it.
    const SHUTDOWN_SECONDS: u64 = 25;
    let unit = read("packaging/systemd/outboxd.service");
    let compose = read("docker-compose.yml");
    let relay = compose.split("\n  outboxd:\n").nth(1).expect("the relay is a service");
    let grace = relay.lines().find_map(|line| line.trim().strip_prefix("stop_grace_period: ")).expect("it has a grace");
    for text in [setting(&unit, "TimeoutStopSec"), grace] {
        let seconds: u64 = text.strip_suffix('s').and_then(|number| number.parse().ok()).expect("seconds");
        assert!(seconds > SHUTDOWN_SECONDS, "{text} is not above {SHUTDOWN_SECONDS}s");
    }
}

#[test]
fn the_image_is_built_with_the_pinned_toolchain() {
    let toolchain: toml::Table = read("rust-toolchain.toml").parse().unwrap();
    let version = toolchain["toolchain"]["channel"].as_str().unwrap();
    let (minor, _patch) = version.rsplit_once('.').unwrap();
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(&format!("FROM rust:{minor}-slim-")), "the builder is not Rust {minor}");
    assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={version} ")), "the toolchain is not {version}");
}

#[test]
fn the_build_context_holds_every_file_that_the_source_includes() {
    let ignored = read(".dockerignore");
    let ignored: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('/')).collect();
    let is_test = |file: &Path| file.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
    for (file, included) in included_files().into_iter().filter(|(file, _)| !is_test(file)) {
        let inside = included.strip_prefix(root()).expect("inside the project").to_str().unwrap();
        let hidden = ignored.iter().any(|path| inside == *path || inside.starts_with(&format!("{path}/")));
        assert!(!hidden, "{} includes {inside}, which .dockerignore leaves out", file.display());
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every word of `text` that starts with `prefix`.
fn words(text: &str, prefix: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(prefix) && word.len() > prefix.len())
        .map(str::to_owned)
        .collect()
}

/// The paths of the project that volumes and secrets name: `./path` up to a colon, a quote, a brace or a space.
fn compose_paths(compose: &str) -> Vec<String> {
    let lines = compose.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .filter_map(|line| line.split_once("./"))
        .map(|(_, rest)| rest.split([':', '"', '}', ' ']).next().expect("split gives at least one part").to_owned())
        .collect()
}

fn setting<'t>(unit: &'t str, name: &str) -> &'t str {
    unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).expect("the unit sets it")
}

fn help(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_outboxd")).args([command, "--help"]).output();
    let output = output.expect("the binary starts");
    assert!(output.status.success(), "outboxd has no command {command}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn assert_command_takes_a_config(command: &str) {
    assert!(help(command).contains(CONFIG), "outboxd {command} does not take {CONFIG}");
}

/// Each `include_str!` or `include_bytes!` in `src`: the file that has it, and the file it names.
fn included_files() -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    let mut open = vec![root().join("src")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).expect("src can be listed");
            open.extend(entries.map(|entry| entry.expect("src can be listed").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("src is text");
        for call in ["include_str!(\"", "include_bytes!(\""] {
            for rest in text.split(call).skip(1) {
                let name = rest.split('"').next().expect("split gives at least one part");
                let included = path.parent().expect("a file has a directory").join(name);
                found.push((path.clone(), included.canonicalize().expect("the included file exists")));
            }
        }
    }
    found
}
