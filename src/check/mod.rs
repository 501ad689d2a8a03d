//! `outboxd check`: proves the whole set-up before the first event.
//!
//! A configuration enters, a `Report` leaves, always: what cannot be reached is a finding, not an error. `gather` asks
//! PostgreSQL and Kafka and judges nothing; the other files are pure functions from facts to findings. Nothing is
//! written, published or created, so it is safe beside a running relay.
//!
//! ```text
//! config ─► gather ─► Facts ─► postgres, slot, publication, outbox, ─► Report ─► text | JSON | exit code
//!                              join, writeback, kafka, dead_letters
//! ```

mod dead_letters;
pub mod facts;
mod gather;
mod join;
mod kafka;
mod outbox;
mod postgres;
mod provider;
mod publication;
mod routing;
mod slot;
mod words;
mod writeback;

use std::fmt::Write;

use serde::Serialize;

use crate::config::Config;
use crate::sink::inspect::Reach;
use facts::Facts;

/// Every check's id, in the order of the report. `docs/checks.md` explains each.
pub const IDS: &[&str] = &[
    "pg.reach",
    "pg.pooler",
    "pg.hba",
    "pg.same_server",
    "pg.wal_level",
    "pg.role",
    "pg.privileges",
    "pg.capacity",
    "pg.plugin",
    "pg.minor",
    "pg.sync_commit",
    "pg.sender_timeout",
    "pg.long_xact",
    "pg.spill",
    "pg.rls",
    "pub.exists",
    "pub.scope",
    "pub.filter",
    "pub.partition",
    "slot.kind",
    "slot.free",
    "slot.health",
    "slot.cap",
    "slot.idle",
    "slot.failover",
    "slot.sync",
    "slot.place",
    "outbox.columns",
    "outbox.join",
    "outbox.writeback",
    "route.order",
    "kafka.reach",
    "kafka.acl",
    "kafka.topics",
    "kafka.write",
    "kafka.insync",
    "kafka.size",
    "kafka.cleanup",
    "kafka.retention",
    "kafka.timestamp",
    "letters.store",
    "letters.rights",
    "letters.open",
    "letters.pause",
    "letters.keys",
    "letters.failover",
];

/// Proves the set-up. Takes as long as the slowest of `connect_timeout` and `limits.sql` allows.
pub async fn run(config: &Config) -> Report {
    judge(config, &gather::gather(config).await)
}

/// From facts to findings: pure, and in the order of `IDS`.
pub fn judge(config: &Config, facts: &Facts) -> Report {
    let mut findings = postgres::judge(config, facts);
    findings.extend(publication::judge(config, facts));
    findings.extend(slot::judge(config, facts));
    findings.extend(outbox::judge(config, facts));
    findings.extend(join::judge(config, facts));
    findings.extend(writeback::judge(config, facts));
    findings.extend(kafka::judge(config, facts));
    findings.extend(dead_letters::judge(config, facts));
    for id in IDS.iter().filter(|id| findings_lack(&findings, id)).collect::<Vec<_>>() {
        findings.push(Finding::skipped(id, unasked(id, facts)));
    }
    findings.sort_by_key(|finding| IDS.iter().position(|id| *id == finding.id));
    Report { findings }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's stable id: one of `IDS`.
    pub id: &'static str,
    /// How it went.
    pub verdict: Verdict,
    /// What was found, naming the object.
    pub message: String,
    /// What to do, ready to be pasted where that is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Proven.
    Ok,
    /// Could not be asked: something before it failed, or a privilege hides it.
    Skipped,
    /// Worth knowing; nothing to do now.
    Notice,
    /// Works today, and will hurt one day.
    Warn,
    /// Events cannot flow, or would be lost.
    Fail,
}

/// All findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// In the order of `IDS`; a check may find several things.
    pub findings: Vec<Finding>,
}

/// Whether warnings fail too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Only failures count.
    Lenient,
    /// Warnings count as failures (`--strict`).
    Strict,
}

/// Whether the text may carry terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Colour {
    Plain,
    Ansi,
}

impl Report {
    /// 0: all is well; 1: something is not.
    pub fn exit_code(&self, strictness: Strictness) -> u8 {
        let worst_allowed = match strictness {
            Strictness::Lenient => Verdict::Warn,
            Strictness::Strict => Verdict::Notice,
        };
        u8::from(self.worst() > worst_allowed)
    }

    /// One line per finding, its hint on a line of its own, a summary at the end.
    pub fn text(&self, colour: Colour) -> String {
        let width = self.findings.iter().map(|finding| finding.id.len()).max().unwrap_or(0);
        let mut text = String::new();
        for finding in &self.findings {
            let word = painted(finding.verdict, colour);
            writeln!(text, "{word}  {:width$}  {}", finding.id, finding.message).expect("a String takes all text");
            if let Some(hint) = &finding.hint {
                writeln!(text, "{:6}  {:width$}  hint: {hint}", "", "").expect("a String takes all text");
            }
        }
        let counts = [Verdict::Ok, Verdict::Notice, Verdict::Warn, Verdict::Fail, Verdict::Skipped]
            .map(|verdict| format!("{} {}", self.count(verdict), verdict.word()));
        text.push_str(&counts.join(", "));
        text.push('\n');
        text
    }

    /// `{"verdict": …, "counts": {…}, "findings": [{id, verdict, message, hint?}]}`: members are only ever added.
    pub fn json(&self) -> String {
        let counts = [Verdict::Ok, Verdict::Notice, Verdict::Warn, Verdict::Fail, Verdict::Skipped]
            .map(|verdict| (verdict.name(), self.count(verdict).into()));
        let report = serde_json::json!({
            "verdict": self.worst(),
            "counts": serde_json::Map::from_iter(counts.map(|(name, count)| (name.to_owned(), count))),
            "findings": self.findings,
        });
        serde_json::to_string_pretty(&report).expect("findings are plain text")
    }

    /// The worst verdict; `Ok` without any.
    pub fn worst(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

impl Verdict {
    /// The verdict in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Notice => "notice",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::Skipped => "skipped",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Skipped => "skip",
            Verdict::Ok | Verdict::Notice | Verdict::Warn | Verdict::Fail => self.name(),
        }
    }
}

impl Finding {
    fn new(id: &'static str, verdict: Verdict, message: impl Into<String>) -> Finding {
        debug_assert!(IDS.contains(&id), "{id} is not in IDS");
        Finding { id, verdict, message: message.into(), hint: None }
    }

    fn ok(id: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(id, Verdict::Ok, message)
    }

    fn notice(id: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(id, Verdict::Notice, message)
    }

    fn warn(id: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(id, Verdict::Warn, message)
    }

    fn fail(id: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(id, Verdict::Fail, message)
    }

    fn skipped(id: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(id, Verdict::Skipped, message)
    }

    fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }
}

fn findings_lack(findings: &[Finding], id: &str) -> bool {
    findings.iter().all(|finding| finding.id != id)
}

/// Why a check has nothing to say.
fn unasked(id: &str, facts: &Facts) -> String {
    let word = if id.starts_with("kafka.") {
        if facts.kafka.reach == Reach::Reached { "no topic to look at" } else { "Kafka was not reached" }
    } else if facts.survey.is_none() {
        "PostgreSQL was not reached"
    } else if id.starts_with("slot.") {
        "there is no slot"
    } else if id.starts_with("pub.") {
        "there is no publication"
    } else {
        "no replication session was opened"
    };
    word.to_owned()
}

fn painted(verdict: Verdict, colour: Colour) -> String {
    let word = format!("{:6}", verdict.word());
    let code = match verdict {
        Verdict::Ok => "32",
        Verdict::Notice => "36",
        Verdict::Warn => "33",
        Verdict::Fail => "31",
        Verdict::Skipped => "2",
    };
    match colour {
        Colour::Plain => word,
        Colour::Ansi => format!("\x1b[{code}m{word}\x1b[0m"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
