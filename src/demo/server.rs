//! A real PostgreSQL with logical replication, made for one demo: found, initialised and started in its sandbox.
//!
//! On its Unix socket everybody is trusted, because only the sandbox's owner can reach the socket; on loopback a
//! password is asked for, because everybody on the machine can reach that.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Child;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::sandbox::Sandbox;
use crate::config::{Connection, Host};
use crate::error::{Error, Result};
use crate::source::catalog::{Catalog, quote_literal};

/// How long one statement of ours may take here.
pub(super) const SQL_LIMIT: Duration = Duration::from_secs(10);
/// How long the server may take to answer for the first time.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Where Debian keeps one directory per version.
const VERSIONS: &str = "/usr/lib/postgresql";
const DATABASE: &str = "shop";

/// The running server.
pub(super) struct Server {
    /// In one piece with the sandbox, which ends it.
    _postmaster: Child,
    host: Host,
    /// For a `psql` line: everything, the password included.
    pub(super) url: String,
    /// As `server_version_num` has it.
    pub(super) version: u32,
}

impl Server {
    /// Starts a server with an empty database.
    pub(super) async fn start(sandbox: &Sandbox, template: &Connection) -> Result<Server> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let binaries = find(&path, Path::new(VERSIONS)).ok_or_else(|| {
            Error::definite(format!(
                "PostgreSQL's programs initdb and postgres are neither in PATH nor under {VERSIONS}"
            ))
            .hint("sudo apt-get install postgresql")
        })?;
        initialise(sandbox, &binaries).await?;
        let port = free_port()?;
        let mut postmaster = launch(sandbox, &binaries, port)?;
        let host = Host::Unix(sandbox.directory().to_owned(), port);
        let first = Connection { dbname: "postgres".into(), ..administrator(template, &host) };
        let catalog = first_session(&first, &mut postmaster, sandbox).await?;
        let password = Uuid::now_v7().simple().to_string();
        let secret = format!("ALTER ROLE postgres PASSWORD {}", quote_literal(&password));
        catalog.execute("set a password", &secret, SQL_LIMIT).await?;
        catalog.execute("create the database", &format!("CREATE DATABASE {DATABASE}"), SQL_LIMIT).await?;
        let url = format!("postgres://postgres:{password}@127.0.0.1:{port}/{DATABASE}");
        Ok(Server { _postmaster: postmaster, host, url, version: catalog.version() })
    }

    /// The relay's way in.
    pub(super) fn relay(&self, template: &Connection) -> Connection {
        Connection { hosts: vec![self.host.clone()], dbname: DATABASE.into(), ..template.clone() }
    }

    /// The owner's way in.
    pub(super) fn administrator(&self, template: &Connection) -> Connection {
        administrator(template, &self.host)
    }
}

fn administrator(template: &Connection, host: &Host) -> Connection {
    Connection { hosts: vec![host.clone()], user: "postgres".into(), dbname: DATABASE.into(), ..template.clone() }
}

/// The directory that holds PostgreSQL's programs: the first in `path`, else the newest version installed.
fn find(path: &OsStr, versions: &Path) -> Option<PathBuf> {
    let complete = |directory: &PathBuf| ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file());
    let mut installed: Vec<(u32, PathBuf)> = fs::read_dir(versions)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    installed.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    std::env::split_paths(path).chain(installed.into_iter().map(|(_, directory)| directory)).find(complete)
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::definite("cannot find a free port on 127.0.0.1").because(error))
}

async fn initialise(sandbox: &Sandbox, binaries: &Path) -> Result<()> {
    let failed = || Error::definite(format!("{} failed", binaries.join("initdb").display()));
    let mut initdb = sandbox.command(&binaries.join("initdb"));
    initdb
        .args(["--pgdata=data", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"])
        .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
        // Without the demo there is nobody to wait for it.
        .kill_on_drop(true);
    let output = initdb.output().await.map_err(|error| failed().because(error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed().because(String::from_utf8_lossy(&output.stderr).trim()))
}

fn launch(sandbox: &Sandbox, binaries: &Path, port: u16) -> Result<Child> {
    let failed = || Error::definite("cannot start PostgreSQL");
    let log = File::create(log(sandbox)).map_err(|error| failed().because(error))?;
    let errors = log.try_clone().map_err(|error| failed().because(error))?;
    let mut postgres = sandbox.command(&binaries.join("postgres"));
    postgres.args(["-D", "data"]).stdout(Stdio::from(log)).stderr(Stdio::from(errors));
    for setting in [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={}", sandbox.directory().display()),
        "wal_level=logical".into(),
        // The files are removed in the end, whatever becomes of them before; and they stay small until then.
        "fsync=off".into(),
        "shared_buffers=32MB".into(),
        "max_wal_size=128MB".into(),
        "min_wal_size=32MB".into(),
    ] {
        postgres.args(["-c", &setting]);
    }
    postgres.spawn().map_err(|error| failed().because(error))
}

async fn first_session(connection: &Connection, postmaster: &mut Child, sandbox: &Sandbox) -> Result<Catalog> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match Catalog::connect(connection, SQL_LIMIT).await {
            Ok(catalog) => return Ok(catalog),
            Err(error) if error.is_definite() || Instant::now() > deadline => return Err(error),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
        if matches!(postmaster.try_wait(), Ok(Some(_))) {
            let said = fs::read_to_string(log(sandbox)).unwrap_or_default();
            return Err(Error::definite("PostgreSQL ended as soon as it was started")
                .because(said.trim())
                .hint("if it is about its directory, set TMPDIR to another one, such as /tmp"));
        }
    }
}

fn log(sandbox: &Sandbox) -> PathBuf {
    sandbox.directory().join("log")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        for name in ["initdb", "postgres"] {
            File::create(directory.join(name)).unwrap();
        }
    }

    #[test]
    fn programs_in_the_path_come_first_then_the_newest_version_and_never_half_an_installation() {
        let root = tempfile::tempdir().unwrap();
        let (own, versions) = (root.path().join("own"), root.path().join("versions"));
        let find = |path: &Path| super::find(path.as_os_str(), &versions);
        assert_eq!(find(&own), None);
        for version in ["9", "15"] {
            install(&versions.join(version).join("bin"));
        }
        fs::create_dir_all(versions.join("16/bin")).unwrap();
        assert_eq!(find(&own), Some(versions.join("15/bin")));
        install(&own);
        assert_eq!(find(&own), Some(own.clone()));
    }
}
