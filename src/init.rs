//! `outboxd init`: everything the relay needs in the database, as one SQL script that is printed and run.
//!
//! A `Config` and an administrator's connection enter. The script decides for itself what is there already and what
//! the server's version asks for, so the text that a DBA reviews (`DryRun`, no connection needed) is the text that
//! `Apply` runs. It can be repeated: it adds what is missing, changes nothing silently and removes nothing.

mod script;

use std::io::Write;
use std::time::Duration;

use crate::config::{Config, Connection};
use crate::error::{Error, Result};
use crate::source::catalog::{Catalog, Transaction};
use script::{Script, Step};

/// Print the script, or print and run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Run each statement after printing it.
    Apply,
    /// Print a script to be pasted into psql; nothing is connected.
    DryRun,
}

/// How often a waiting slot creation looks for whom it waits.
const LOOK: Duration = Duration::from_secs(1);

/// Sets the database up for the relay of `config`, as `admin`.
pub async fn run(config: &Config, admin: &Connection, mode: Mode, out: &mut impl Write) -> Result<()> {
    let script = Script::new(config)?;
    match mode {
        Mode::DryRun => {
            remark(out, &script.heading)?;
            script.setup.iter().chain([&script.slot]).try_for_each(|step| show(out, step))?;
        }
        Mode::Apply => apply(config, admin, &script, out).await?,
    }
    print(out, "\n")?;
    remark(out, &script.afterwards)
}

async fn apply(config: &Config, admin: &Connection, script: &Script, out: &mut impl Write) -> Result<()> {
    let catalog = Catalog::connect(admin, config.limits.sql).await?;
    let relay = &config.postgres.connection.user;
    let role_was_there = catalog.has_role(relay).await?;
    for step in &script.setup {
        show(out, step)?;
        catalog.execute(step.what, &step.sql, config.limits.sql).await.map_err(|error| step.explain(error))?;
    }
    show(out, &script.slot)?;
    make_slot(config, admin, &catalog, &script.slot, out).await?;
    if role_was_there { Ok(()) } else { remark(out, &format!("Role \"{relay}\" was created without a password.")) }
}

/// The slot is complete only when every transaction that was open before it has ended: says which ones, while waiting
/// and when giving up. The server drops an incomplete slot by itself when its statement fails.
async fn make_slot(
    config: &Config,
    admin: &Connection,
    catalog: &Catalog,
    step: &Step,
    out: &mut impl Write,
) -> Result<()> {
    let observer = Catalog::connect(admin, config.limits.sql).await?;
    let mut wait = Wait { observer, pid: catalog.pid(), open: Vec::new() };
    let limit = config.limits.slot_creation;
    let creation = catalog.execute(step.what, &step.sql, limit);
    tokio::pin!(creation);
    let error = loop {
        tokio::select! {
            result = &mut creation => match result {
                Ok(()) => return Ok(()),
                Err(error) => break error,
            },
            () = tokio::time::sleep(LOOK) => wait.look(out).await?,
        }
    };
    // 57014: the statement's own timeout.
    if error.sqlstate() != Some("57014") {
        return Err(step.explain(error));
    }
    wait.look(out).await?;
    let names: Vec<String> = wait.open.iter().map(Transaction::to_string).collect();
    let slot = &config.postgres.slot;
    let blame = if names.is_empty() { "transactions that have ended since".to_owned() } else { names.join("; ") };
    Err(Error::definite(format!("replication slot \"{slot}\" was not created within {limit:?}: it waited for {blame}"))
        .hint(
            "end them (SELECT pg_terminate_backend(pid) ends one) or raise limits.slot_creation, then run init again",
        ))
}

/// Looks over the shoulder of a slot's creation.
struct Wait {
    observer: Catalog,
    pid: i32,
    open: Vec<Transaction>,
}

impl Wait {
    /// Names each transaction once. That it cannot look is no reason to give the slot up.
    async fn look(&mut self, out: &mut impl Write) -> Result<()> {
        let Ok(open) = self.observer.open_transactions(self.pid).await else { return Ok(()) };
        let known = |new: &Transaction| self.open.iter().any(|old| (old.pid, &old.name) == (new.pid, &new.name));
        for transaction in open.iter().filter(|transaction| !known(transaction)) {
            remark(out, &format!("waiting for {transaction} to end"))?;
        }
        self.open = open;
        Ok(())
    }
}

fn show(out: &mut impl Write, step: &Step) -> Result<()> {
    print(out, "\n")?;
    remark(out, &step.title)?;
    print(out, &step.sql)
}

/// Text for people, as SQL comments: what is printed stays a script, whatever a name contains.
fn remark(out: &mut impl Write, text: &str) -> Result<()> {
    text.split(['\n', '\r']).try_for_each(|line| print(out, &format!("-- {line}\n")))
}

fn print(out: &mut impl Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::definite("cannot print the script").because(error))
}
