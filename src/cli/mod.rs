//! What can be typed: commands, options, and how a failure ends the process.
//!
//! Arguments enter; calls into the library leave (`main` is their table). Machine output goes to stdout, everything else to stderr.

pub mod convert;
pub mod dead_letters;
pub mod http;
pub mod letters_json;
pub mod letters_view;
pub mod registry;
pub mod render;
pub mod run;
pub mod signals;
pub mod status;
pub mod view;

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, CommandFactory, Parser, Subcommand, value_parser};
use clap_complete::Shell;
use outboxd::check::{self, Colour, Strictness};
use outboxd::config::{self, Asked, Config, Connection, Plan};
use outboxd::dead_letter::REASONS;
use outboxd::error::Error;
use outboxd::{demo, init};

use crate::log::{self, Filter, Format};

/// Under which options that every command takes are listed.
const GLOBAL: &str = "Global options";

/// Under which options that choose dead letters are listed.
const FILTERS: &str = "Filters";

/// The states of a dead letter.
const STATES: [&str; 5] = ["pending", "retrying", "delivered", "failed", "discarded"];

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
    /// See, retry, discard or export events that could not be published
    #[command(subcommand)]
    DeadLetters(Box<DeadLetters>),
    /// Go on after a pause that the relay made because too many events were rejected
    Resume(Resume),
    /// Look at the routes as a registry of events
    #[command(subcommand)]
    Registry(Registry),
    /// Show what a template makes of a row, without database and broker
    Render(Render),
    /// Print the reference configuration: every field with default and meaning
    Config,
    /// Turn a Debezium connector's configuration into an outboxd.toml, and say what it does not carry over
    Convert(Convert),
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
    /// Prepare the table of this system as it is, whether or not the file has an [[outbox]] block for it; the lines that the
    /// file lacks are printed on stderr
    #[arg(long, value_name = "PRESET", value_parser = PossibleValuesParser::new(config::preset_words()))]
    pub preset: Option<String>,
    /// The table that the preset is for, as schema.name [default: the one that this system makes]
    #[arg(long, value_name = "TABLE", requires = "preset")]
    pub table: Option<String>,
    /// Print the SQL for a DBA and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// URL of a role that may create tables, roles and publications [default: postgres.url]. With --preset,
    /// where postgres.url is not set, this also says where the database is, and the relay's role is called outboxd
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

/// `outboxd resume`
#[derive(Debug, Args)]
pub struct Resume {
    /// Print the outcome as JSON
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

/// `outboxd render`
#[derive(Debug, Args)]
pub struct Render {
    /// The template: its name in the directory, or its file
    #[arg(long, value_name = "TEMPLATE")]
    pub template: String,
    /// A JSON object whose members are the row's columns
    #[arg(long, value_name = "FILE")]
    pub row: PathBuf,
    /// The directory of the templates [default: the configuration's templates.directory]
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
}

/// `outboxd registry`
#[derive(Debug, Subcommand)]
pub enum Registry {
    /// Say what sample events would become by the routes, without a server
    Check(RegistryCheck),
}

/// `outboxd registry check`
#[derive(Debug, Args)]
pub struct RegistryCheck {
    /// Files with JSON objects, each a row's columns
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Whose rows they are, where there are several outboxes
    #[arg(long, value_name = "TABLE")]
    pub outbox: Option<String>,
    /// Print the records as JSON
    #[arg(long)]
    pub json: bool,
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

/// `outboxd convert`
#[derive(Debug, Args)]
pub struct Convert {
    /// Kafka Connect's JSON, a connector's .properties, Debezium Server's application.properties, or Strimzi's
    /// KafkaConnector; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the TOML to this file instead of stdout; it must not be there yet
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Print the TOML and the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// The worker's key.converter, where the file names none, such as JsonConverter,schemas.enable=false
    #[arg(long, value_name = "CLASS")]
    pub key_converter: Option<String>,
    /// The worker's value.converter, likewise
    #[arg(long, value_name = "CLASS")]
    pub value_converter: Option<String>,
    /// The worker's header.converter, likewise
    #[arg(long, value_name = "CLASS")]
    pub header_converter: Option<String>,
    /// Debezium has run with this file: its first snapshot is done, and its slot is taken over
    #[arg(long)]
    pub has_run: bool,
}

/// `outboxd dead-letters`
#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// Count letters by state, reason, topic and type, then list them, newest last
    List(List),
    /// Show all of one letter, and the record as it would be sent now
    Show(Show),
    /// Have the relay publish letters again, with today's configuration
    Retry(Retry),
    /// Mark letters as never to be published, with a note that says why
    Discard(Discard),
    /// Write letters with all their columns, one JSON object per line
    Export(Export),
}

/// Which letters, by what is known of them.
#[derive(Debug, Args)]
pub struct Filters {
    /// Rejected for this reason
    #[arg(long, value_name = "REASON", value_parser = REASONS, help_heading = FILTERS)]
    pub reason: Option<String>,
    /// In this state; repeat it for more
    #[arg(long = "state", value_name = "STATE", value_parser = STATES, help_heading = FILTERS)]
    pub states: Vec<String>,
    /// For this topic
    #[arg(long, value_name = "TOPIC", help_heading = FILTERS)]
    pub topic: Option<String>,
    /// Of this type
    #[arg(long, value_name = "TYPE", help_heading = FILTERS)]
    pub event_type: Option<String>,
    /// The event with this id
    #[arg(long, visible_alias = "id", value_name = "EVENT_ID", help_heading = FILTERS)]
    pub event: Option<String>,
    /// With this key
    #[arg(long, value_name = "TEXT", help_heading = FILTERS)]
    pub key: Option<String>,
    /// Parked longer ago than this, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, help_heading = FILTERS)]
    pub older_than: Option<Duration>,
    /// Parked within this time, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, help_heading = FILTERS)]
    pub newer_than: Option<Duration>,
}

/// `outboxd dead-letters list`
#[derive(Debug, Args)]
pub struct List {
    /// List at most so many letters
    #[arg(long, value_name = "LETTERS", default_value_t = 50, value_parser = value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// List only letters behind this one
    #[arg(long, value_name = "ID", default_value_t = 0, hide_default_value = true)]
    pub after: i64,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub filters: Filters,
}

/// `outboxd dead-letters show`
#[derive(Debug, Args)]
pub struct Show {
    /// The letter's number, as list shows it
    #[arg(value_name = "ID", value_parser = value_parser!(i64).range(1..))]
    pub id: i64,
    /// Write the payload's exact bytes, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub payload: bool,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Letters by number, or all that the filters let through: one of both.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// The letters' numbers, as list shows them
    #[arg(value_name = "ID", value_parser = value_parser!(i64).range(1..), conflicts_with = "Filters")]
    pub ids: Vec<i64>,
    /// Every letter that the filters let through; without filters, every letter
    #[arg(long)]
    pub all_matching: bool,
}

/// Which letters are changed, and how carefully.
#[derive(Debug, Args)]
pub struct Scope {
    #[command(flatten)]
    pub which: Which,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Change what --all-matching finds without asking
    #[arg(long)]
    pub yes: bool,
    /// Change at most so many letters a second
    #[arg(long, value_name = "LETTERS")]
    pub rate: Option<NonZeroU32>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub filters: Filters,
}

/// `outboxd dead-letters retry`
#[derive(Debug, Args)]
pub struct Retry {
    #[command(flatten)]
    pub scope: Scope,
    /// Wait until the relay has delivered them or given up; exit with 1 if any failed
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
}

/// `outboxd dead-letters discard`
#[derive(Debug, Args)]
pub struct Discard {
    #[command(flatten)]
    pub scope: Scope,
    /// Why: it stays with the letters, with your name
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub note: String,
}

/// `outboxd dead-letters export`
#[derive(Debug, Args)]
pub struct Export {
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON alone, without progress
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub filters: Filters,
}

/// Why a command did not do what was asked.
pub enum Failure {
    /// What was typed into the configuration is wrong.
    Config(config::Error),
    /// What was typed does not suffice.
    Usage(Error),
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
            Failure::Usage(error) => (2, with_hint(&error)),
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
    print_bytes(text.as_bytes())
}

/// Prints exactly these bytes to stdout.
pub fn print_bytes(bytes: &[u8]) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// `outboxd init`
pub async fn init(file: Option<&Path>, args: Init) -> Outcome {
    let asked = Asked { preset: args.preset, table: args.table, url: args.url };
    let Plan { config, missing } = Config::load_for_init(file, config::environment(), &asked)?;
    let admin = match &asked.url {
        Some(url) => Connection::load(url, "--url", config::environment())?,
        None => config.postgres.connection.clone(),
    };
    if args.dry_run {
        let mut script = Vec::new();
        init::run(&config, &admin, init::Mode::DryRun, &mut script).await?;
        print(&String::from_utf8_lossy(&script))?;
    } else {
        init::run(&config, &admin, init::Mode::Apply, &mut io::stdout()).await?;
    }
    if !missing.is_empty() {
        let file = file.unwrap_or(Path::new(config::DEFAULT_FILE)).display();
        // Without a stderr there is nobody to tell.
        write!(io::stderr(), "\nthe relay needs these lines in {file}:\n\n{missing}").unwrap_or_default();
    }
    Ok(ExitCode::SUCCESS)
}

/// `outboxd demo`
pub async fn demo(args: Demo, shutdown: impl Future<Output = ()>) -> Outcome {
    demo::run(demo::Options { rate: args.rate, duration: args.duration }, shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

/// `outboxd check`
pub async fn check(config: &Config, args: Check) -> Outcome {
    let report = check::run(config).await;
    let colour = if log::coloured(&io::stdout()) { Colour::Ansi } else { Colour::Plain };
    print(&if args.json { report.json() } else { report.text(colour) })?;
    let strictness = if args.strict { Strictness::Strict } else { Strictness::Lenient };
    Ok(ExitCode::from(report.exit_code(strictness)))
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
