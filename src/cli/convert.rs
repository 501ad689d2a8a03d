//! `outboxd convert`: reads the file, prints the TOML to stdout and what a person should know to stderr.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _, stderr};
use std::path::Path;
use std::process::ExitCode;

use outboxd::check::Colour;
use outboxd::config::Config;
use outboxd::convert::{self, Conversion, Finding, Findings, Given, History, Unreadable};
use outboxd::error::Error;
use serde::Serialize;

use super::{Convert, Failure, Outcome, print};
use crate::log;

/// More than any connector's configuration: a larger file is something else.
const BYTES_MAX: u64 = 4 << 20;

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'c> {
    toml: &'c str,
    #[serde(flatten)]
    findings: &'c Findings,
}

/// `outboxd convert`
pub fn run(args: &Convert) -> Outcome {
    let text = read(&args.file).map_err(Failure::Usage)?;
    let given = Given {
        key_converter: args.key_converter.clone(),
        value_converter: args.value_converter.clone(),
        header_converter: args.header_converter.clone(),
        history: if args.has_run { History::HasRun } else { History::Unknown },
    };
    let Conversion { toml, mut findings } =
        convert::convert(&text, &given).map_err(|error| refuse(&args.file, error))?;
    findings.lost.extend(refused(&toml));
    if args.json {
        let json = serde_json::to_string_pretty(&Json { toml: &toml, findings: &findings });
        print(&format!("{}\n", json.expect("findings are text")))?;
    } else {
        match &args.output {
            Some(file) => write(file, &toml)?,
            None => {
                print(&toml)?;
            }
        }
        let colour = if log::coloured(&stderr()) { Colour::Ansi } else { Colour::Plain };
        // Without a stderr there is nobody to tell; the exit code still says it.
        stderr().write_all(text_of(&findings, colour).as_bytes()).unwrap_or_default();
    }
    Ok(ExitCode::from(u8::from(findings.is_loss())))
}

/// The file's text; `-` is stdin.
fn read(file: &Path) -> Result<String, Error> {
    let name = file.display();
    let mut bytes = Vec::new();
    let read = match file.to_str() {
        Some("-") => io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes),
        _ => fs::File::open(file).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| Error::definite(format!("cannot read {name}")).because(error))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::definite(format!("{name} is larger than {} MiB", BYTES_MAX >> 20))
            .hint("name a connector's configuration"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => Err(Error::definite(format!("{name} is not UTF-8")).hint("name a connector's configuration")),
    }
}

/// What our own loader says of it: a value that the connector's file has as it pleases may be none of ours.
fn refused(toml: &str) -> Vec<Finding> {
    const NAME: &str = "outboxd.toml";
    let Err(error) = Config::from_toml(toml, NAME, std::iter::empty()) else { return Vec::new() };
    let finding = |(text, hint): (&str, Option<&str>)| {
        let (place, what) = text.split_once(": ").unwrap_or((NAME, text));
        Finding {
            option: place.to_owned(),
            message: format!("outboxd refuses this line: {what}"),
            hint: hint.map(str::to_owned),
        }
    };
    error.problems().map(finding).collect()
}

/// Never over a file that is there: somebody may have filled it in by hand.
fn write(file: &Path, toml: &str) -> Result<(), Failure> {
    let written = fs::File::create_new(file).and_then(|mut out| out.write_all(toml.as_bytes()));
    written.map_err(|error| {
        let refused = Error::definite(format!("cannot write {}", file.display()));
        Failure::Usage(match error.kind() {
            io::ErrorKind::AlreadyExists => refused.because(error).hint("name another file, or remove this one"),
            _ => refused.because(error),
        })
    })
}

fn refuse(file: &Path, error: Unreadable) -> Failure {
    Failure::Usage(Error::definite(format!("{}: {}", file.display(), error.what)).hint(error.hint))
}

/// The findings by weight; those that say the same stand in one line.
fn text_of(findings: &Findings, colour: Colour) -> String {
    let groups = [
        ("fill in", "36", "by hand, before the file can be used", &findings.fill_in),
        ("lost", "31", "would be lost, or would change what consumers get", &findings.lost),
        ("unknown", "31", "known neither to Debezium nor to Kafka", &findings.unknown),
        ("differs", "33", "behaves differently, and nothing is lost", &findings.differs),
        ("not needed", "2", "has no counterpart because none is needed", &findings.not_needed),
    ];
    let mut out = String::new();
    for (word, code, meaning, group) in groups {
        if group.is_empty() {
            continue;
        }
        let head = match colour {
            Colour::Plain => word.to_owned(),
            Colour::Ansi => format!("\x1b[{code}m{word}\x1b[0m"),
        };
        writeln!(out, "{head} ({}): {meaning}", group.len()).expect("a String takes everything");
        for (options, finding) in merged(group) {
            writeln!(out, "  {}: {}", options.join(", "), finding.message).expect("a String takes everything");
            if let Some(hint) = &finding.hint {
                writeln!(out, "    hint: {hint}").expect("a String takes everything");
            }
        }
    }
    out
}

fn merged(group: &[Finding]) -> Vec<(Vec<&str>, &Finding)> {
    let mut merged: Vec<(Vec<&str>, &Finding)> = Vec::new();
    for finding in group {
        match merged.iter_mut().find(|(_, first)| (&first.message, &first.hint) == (&finding.message, &finding.hint)) {
            Some((options, _)) => options.push(&finding.option),
            None => merged.push((vec![&finding.option], finding)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let text = |option: &str, message: &str| Finding { option: option.into(), message: message.into(), hint: None };
        let lost = Finding { hint: Some("stop it".into()), ..text("a.b", "has no counterpart") };
        Findings { lost: vec![lost], not_needed: vec![text("c", "tuning"), text("d", "tuning")], ..Findings::default() }
    }

    #[test]
    fn findings_are_told_by_weight_and_those_that_say_the_same_together() {
        let expected = "lost (1): would be lost, or would change what consumers get\n  a.b: has no counterpart\n    hint: stop it\n\
                        not needed (2): has no counterpart because none is needed\n  c, d: tuning\n";
        assert_eq!(text_of(&findings(), Colour::Plain), expected);
        assert!(text_of(&findings(), Colour::Ansi).starts_with("\x1b[31mlost\x1b[0m (1)"));
    }
}
