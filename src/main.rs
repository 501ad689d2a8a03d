//! The commands: each one a call into a room of the library, and an exit code.

mod cli;
mod heap;
mod log;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command, Failure, Outcome};
use outboxd::config::{self, Config, TemplateFiles};
use outboxd::error::Error;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = if matches!(cli.command, Command::Demo(_)) { log::Filter::quiet() } else { log::Filter::default() };
    log::init(cli.log.clone().unwrap_or(filter), cli.log_format);
    run(cli).unwrap_or_else(Failure::report)
}

fn run(cli: Cli) -> Outcome {
    // One thread carries everything: the walsender is fastest when its reader seldom wakes up.
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::definite("cannot start the runtime").because(error))?;
    let outcome = runtime.block_on(dispatch(cli));
    // A question to a broker that is away still occupies a thread: nobody waits for its answer any more.
    runtime.shutdown_background();
    outcome
}

async fn dispatch(cli: Cli) -> Outcome {
    let config = || Config::load(cli.config.as_deref(), config::environment());
    match cli.command {
        Command::Init(args) => cli::init(cli.config.as_deref(), args).await,
        Command::Run => cli::run::run(cli.config.as_deref()).await,
        Command::Check(args) => cli::check(&config()?, args).await,
        Command::Status(args) => cli::status::run(&config()?, args).await,
        Command::Health(args) => cli::http::health(config()?.http.listen, args).await,
        Command::DeadLetters(args) => cli::dead_letters::run(&config()?, *args).await,
        Command::Resume(args) => cli::dead_letters::resume(&config()?, &args).await,
        Command::Registry(cli::Registry::Check(args)) => cli::registry::check(&config()?, &args),
        Command::Render(args) => {
            cli::render::run(TemplateFiles::load(cli.config.as_deref(), config::environment())?, &args)
        }
        Command::Config => cli::print(&config::reference()),
        Command::Convert(args) => cli::convert::run(&args),
        Command::Demo(args) => cli::demo(args, cli::signals::shutdown()?).await,
        Command::Completions { shell } => cli::completions(shell),
        Command::Man { dir } => cli::man(dir.as_deref()),
    }
}
