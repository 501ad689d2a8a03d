//! `outboxd status`: asks the running relay, or the database when none answers, and shows what came back.

use std::io::{IsTerminal, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use outboxd::config::Config;
use outboxd::error::{Error, Result};
use outboxd::lsn::Lsn;
use outboxd::source::catalog::{self, Catalog};
use outboxd::status::{Report, SlotFacts};

use super::view::{Database, Last, Slot, View};
use super::{Failure, Outcome, Status, http, print};

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// How one look is printed.
enum Look {
    /// A few lines.
    Text,
    /// The terminal's screen, drawn again.
    Screen,
    /// One line.
    Line,
    /// One JSON object.
    Json,
}

/// `outboxd status`
pub async fn run(config: &Config, args: Status) -> Outcome {
    let look = match (args.json, args.watch, stdout().is_terminal()) {
        (true, _, _) => Look::Json,
        (false, true, true) => Look::Screen,
        (false, true, false) => Look::Line,
        (false, false, _) => Look::Text,
    };
    loop {
        match ask(config).await {
            Ok(view) => print(&look.draw(&view))?,
            // A watcher stays through a restart of what it watches.
            Err(error) if args.watch => Failure::from(error).report(),
            Err(error) => return Err(error.into()),
        };
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn ask(config: &Config) -> Result<View> {
    match ask_relay(config.http.listen).await {
        Ok(report) => Ok(View::Relay(Box::new(report))),
        Err(silence) => match ask_database(config, &silence).await {
            Ok(database) => Ok(View::Database(database)),
            Err(error) => Err(neither(&silence, error)),
        },
    }
}

async fn ask_relay(listen: SocketAddr) -> std::result::Result<Report, String> {
    let silent = |why: String| format!("no relay answers at {listen} ({why})");
    let answer = http::get(listen, "/api/v1/status").await.map_err(|error| silent(error.to_string()))?;
    serde_json::from_str(&answer.body).map_err(|_| silent("what answers there is not outboxd".into()))
}

async fn ask_database(config: &Config, silence: &str) -> Result<Database> {
    let catalog = Catalog::connect(&config.postgres.connection, config.limits.sql).await?;
    let name = &config.postgres.slot;
    let found = catalog.slot(name).await?;
    // A slot that was made by hand may have no position table beside it: what the slot says is worth showing alone.
    let last = catalog.position(name).await.ok().flatten();
    let server = catalog.server().await?.wal_lsn;
    Ok(Database {
        silence: silence.into(),
        slot: name.clone(),
        found: found.map(|slot| shown(slot, server)),
        last: last.map(|place| Last { leader: place.leader, left_cleanly: place.left_cleanly }),
    })
}

fn shown(slot: catalog::Slot, server: Lsn) -> Slot {
    Slot {
        holder: slot.holder.map(|holder| holder.to_string()),
        confirmed: slot.confirmed.unwrap_or_default(),
        server,
        facts: SlotFacts {
            at: SystemTime::now(),
            retained_bytes: slot.retained_bytes,
            safe_bytes: slot.safe_wal_size,
            wal_status: slot.wal_status.unwrap_or("unknown".into()),
        },
    }
}

fn neither(silence: &str, error: Error) -> Error {
    let hint =
        error.hint_text().unwrap_or("start the relay with outboxd run, or mend the way to the database").to_owned();
    Error::definite(format!("{silence}, and the database cannot be asked")).because(error).hint(hint)
}

impl Look {
    fn draw(&self, view: &View) -> String {
        match self {
            Look::Text => view.text(),
            // Home, each line cleared to its end, then everything below: no flicker, nothing left over.
            Look::Screen => format!("\x1b[H{}\x1b[J", view.text().replace('\n', "\x1b[K\n")),
            Look::Line => view.line(),
            Look::Json => view.json(),
        }
    }
}
