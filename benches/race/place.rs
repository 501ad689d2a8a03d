//! Where it was measured: figures without this mean nothing.

use std::fs;
use std::process::Command;

use crate::support::postgres::Version;

/// Machine, versions and settings, in a sentence or two.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "an unknown processor".into());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let buffers = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
    let buffers = buffers.split_whitespace().last().unwrap_or("unknown").to_owned();
    let server = Version::Distro.bin().expect("it is installed").join("postgres");
    let server = said(Command::new(server).arg("--version"));
    let commit = said(Command::new("git").args(["describe", "--always", "--dirty"]));
    format!(
        "Commit {commit}; {cores} cores ({model}), Linux {}, receive buffers of up to {buffers} bytes; {server} with fsync, \
         full_page_writes and autovacuum off; Apache Kafka in one broker. Everything on one machine, over its loopback.",
        kernel.trim()
    )
}

/// What stands behind the colon in the first line that begins so.
fn line_of(file: &str, begins: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(begins))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
