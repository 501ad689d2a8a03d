//! `outboxd run`: the relay, until a signal ends it; SIGHUP reads the configuration again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use outboxd::config::{self, Config};
use outboxd::error::Error;
use outboxd::pipeline::Reload;
use outboxd::relay;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::{Outcome, signals};
use crate::log;

/// Runs the relay by the configuration in this file.
pub async fn run(path: Option<&Path>) -> Outcome {
    let config = Config::load(path, config::environment())?;
    set_log(config.log.as_deref()).map_err(|problem| Error::definite(format!("log.level: {problem}")))?;
    let hangups = signal(SignalKind::hangup());
    let hangups = hangups.map_err(|error| Error::definite("cannot listen for signals").because(error))?;
    let (tell, told) = mpsc::channel(1);
    let reloading = reload_on(hangups, path.map(Path::to_owned), config.clone(), tell);
    tokio::select! {
        ended = relay::run(config, signals::shutdown()?, told) => Ok(ended.map(|()| ExitCode::SUCCESS)?),
        never = reloading => match never {},
    }
}

/// Reads the configuration again with every signal. What cannot be is refused, and the old one goes on.
async fn reload_on(
    mut hangups: Signal,
    path: Option<PathBuf>,
    mut current: Config,
    tell: mpsc::Sender<Reload>,
) -> std::convert::Infallible {
    loop {
        hangups.recv().await;
        match reload(path.as_deref(), &current) {
            Ok(new) => {
                let Config { rules, dead_letter, .. } = new.clone();
                current = new;
                // The relay that does not listen any more has ended, and so does this.
                tell.send(Reload { rules, dead_letter }).await.unwrap_or_default();
            }
            Err(problem) => {
                tracing::error!("the configuration was not reloaded, the old one goes on: {problem}");
            }
        }
    }
}

fn reload(path: Option<&Path>, current: &Config) -> Result<Config, String> {
    let new = Config::load(path, config::environment()).map_err(|error| error.to_string())?;
    let fixed = current.needs_restart(&new);
    if !fixed.is_empty() {
        return Err(format!("{} needs a restart", fixed.join(", ")));
    }
    set_log(new.log.as_deref()).map_err(|problem| format!("log.level: {problem}"))?;
    Ok(new)
}

fn set_log(level: Option<&str>) -> Result<(), String> {
    level.map(str::parse).transpose().map(log::set)
}
