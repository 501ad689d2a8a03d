//! What can be typed: commands, options, and how a failure ends the process.
//!
//! Arguments enter; calls into the library leave (`main` is their table). Machine output goes to stdout, everything else to stderr.

pub mod http;
pub mod signals;
pub mod status;
pub mod view;

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use outboxd::config::{self, Config, Connection};
use outboxd::error::Error;
use outboxd::{demo, init};

use crate::log::{Filter, Format};

/// Under which options that every command takes are listed.
const GLOBAL: &str = "Global options";

/// Carries events from a transactional outbox in PostgreSQL to Kafka by reading the WAL.
#[derive(Debug, Parser)]
#[command(name = "outboxd", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "Exit codes: 0 done; 1 a definite failure, with a hint; 2 wrong usage or configuration.")]
pub struct Cli {
    /// Configuration file [default: outboxd.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE", env = "OUTBOXD_CONFIG", help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
    /// What to log, such as "debug" or "outboxd=debug,librdkafka=info"
    #[arg(long, global = true, value_name = "FILTER", env = "OUTBOXD_LOG", help_heading = GLOBAL)]
    pub log: Option<Filter>,
    /// How to log: text, json, or auto, which is text on a terminal and JSON elsewhere
    #[arg(long, global = true, value_name = "FORMAT", env = "OUTBOXD_LOG_FORMAT", help_heading = GLOBAL)]
    #[arg(value_enum, default_value_t = Format::Auto, hide_possible_values = true)]
    pub log_format: Format,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order in which a newcomer needs them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prepare the database: tables, functions, publication, slot, role; safe to repeat
    Init(Init),
    /// Prove the whole set-up, one line per check, with a hint per failure
    Check(Check),
    /// Run the relay
    Run,
    /// Show state, lag and slot: from the running relay, or from the database when none runs
    Status(Status),
    /// Ask the running relay whether it is well; for container health checks
    Health(Health),
    /// Print the reference configuration: every field with default and meaning
    Config,
    /// Show the whole thing at work with a throw-away PostgreSQL and an embedded broker
    Demo(Demo),
    /// Print a shell's completion script
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man {
        /// Write one page per command into this directory instead
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// `outboxd init`
#[derive(Debug, Args)]
pub struct Init {
    /// Print the SQL for a DBA and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// URL of a role that may create tables, roles and publications [default: postgres.url]
    #[arg(long, value_name = "ADMIN_URL", env = "OUTBOXD_INIT_URL", hide_env_values = true)]
    pub url: Option<String>,
}

/// `outboxd check`
#[derive(Debug, Args)]
pub struct Check {
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Count warnings as failures
    #[arg(long)]
    pub strict: bool,
}

/// `outboxd status`
#[derive(Debug, Args)]
pub struct Status {
    /// Show it again every second, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `outboxd health`
#[derive(Debug, Args)]
pub struct Health {
    /// Ask whether events can flow, not only whether the process works
    #[arg(long)]
    pub ready: bool,
}

/// `outboxd demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Events written per second
    #[arg(long, value_name = "EVENTS", default_value = "200")]
    pub rate: NonZeroU32,
    /// End after this long, such as 10s; without it, Ctrl-C ends the demo
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub duration: Option<Duration>,
}

/// Why a command did not do what was asked.
pub enum Failure {
    /// What was typed into the configuration is wrong.
    Config(config::Error),
    /// Something a person must mend, or try again later.
    Error(Error),
    /// Stdout did not take what was printed.
    Output(io::Error),
}

/// What a command ends with: an exit code, or a failure that has one.
pub type Outcome = Result<ExitCode, Failure>;

impl Failure {
    /// Says it on stderr and gives the exit code.
    pub fn report(self) -> ExitCode {
        let (code, text) = match self {
            Failure::Config(error) => (2, error.to_string()),
            Failure::Error(error) => (1, with_hint(&error)),
            // Whoever read our output has seen enough, as in `outboxd config | head`.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Failure::Output(error) => (1, format!("cannot write to stdout: {error}")),
        };
        // Without a stderr there is nobody to tell; the exit code still says it.
        writeln!(io::stderr(), "error: {text}").unwrap_or_default();
        ExitCode::from(code)
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Failure {
        Failure::Config(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// Prints to stdout.
pub fn print(text: &str) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// `outboxd init`
pub async fn init(config: &Config, args: Init) -> Outcome {
    let admin = match &args.url {
        Some(url) => Connection::load(url, "--url", config::environment())?,
        None => config.postgres.connection.clone(),
    };
    if args.dry_run {
        let mut script = Vec::new();
        init::run(config, &admin, init::Mode::DryRun, &mut script).await?;
        return print(&String::from_utf8_lossy(&script));
    }
    init::run(config, &admin, init::Mode::Apply, &mut io::stdout()).await?;
    Ok(ExitCode::SUCCESS)
}

/// `outboxd demo`
pub async fn demo(args: Demo, shutdown: impl Future<Output = ()>) -> Outcome {
    demo::run(demo::Options { rate: args.rate, duration: args.duration }, shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

/// `outboxd completions`
pub fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "outboxd", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// `outboxd man`
pub fn man(dir: Option<&Path>) -> Outcome {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::Output)?;
        return print(&String::from_utf8_lossy(&page));
    };
    let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written
        .map_err(|error| Error::definite(format!("cannot write manual pages to {}", dir.display())).because(error))?;
    Ok(ExitCode::SUCCESS)
}

fn with_hint(error: &Error) -> String {
    match error.hint_text() {
        Some(hint) => format!("{}\n  hint: {hint}", error.chain()),
        None => error.chain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_typed_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_failure_is_told_with_its_causes_and_its_hint() {
        let error = Error::definite("slot \"orders\" was invalidated").because(io::Error::other("wal_status = lost"));
        assert_eq!(with_hint(&error), "slot \"orders\" was invalidated: wal_status = lost");
        let text = "slot \"orders\" was invalidated: wal_status = lost\n  hint: create it again";
        assert_eq!(with_hint(&error.hint("create it again")), text);
    }
}
