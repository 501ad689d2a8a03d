//! A directory that outlives nobody: whatever ends this process, the server in it is stopped and the files are removed.
//!
//! A small shell makes the directory and waits for the end of a pipe that only this process holds. The kernel closes
//! the pipe on every exit, SIGKILL included; then the shell cleans up. It runs as whoever PostgreSQL runs as, which is
//! never root: PostgreSQL refuses that.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::error::{Error, Result};

/// A postmaster that has just started hears no signal yet, so it is told until its pid file is gone. After three
/// seconds it is stopped the hard way: whoever is still connected must not hold it back.
const CLEAN_UP: &str = r#"
trap '' HUP INT TERM
directory=$(mktemp -d "${TMPDIR:-/tmp}/outboxd-demo.XXXXXX") || exit 1
echo "$directory"
cat >/dev/null
signal=INT tries=0
while postmaster=$(head -n 1 "$directory/data/postmaster.pid" 2>/dev/null) && kill -s $signal "$postmaster" 2>/dev/null
do sleep 0.1; tries=$((tries + 1)); [ $tries -lt 30 ] || signal=QUIT; done
until rm -rf "$directory" 2>/dev/null; do sleep 0.1; done
"#;

/// How long cleaning up may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The directory and its caretaker.
pub(super) struct Sandbox {
    directory: PathBuf,
    account: Option<Account>,
    caretaker: Child,
    /// Closed by `remove`, or by the end of this process.
    lifeline: ChildStdin,
}

/// Whom commands run as when we are root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Sandbox {
    pub(super) async fn open() -> Result<Sandbox> {
        let failed = || Error::definite("cannot make a directory for the demo");
        let account = account()?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", CLEAN_UP, "outboxd-demo"]).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut caretaker = detached(shell, account).spawn().map_err(|error| failed().because(error))?;
        let lifeline = caretaker.stdin.take().expect("stdin is piped");
        let mut answer = BufReader::new(caretaker.stdout.take().expect("stdout is piped")).lines();
        match answer.next_line().await.map_err(|error| failed().because(error))? {
            Some(directory) => Ok(Sandbox { directory: directory.into(), account, caretaker, lifeline }),
            None => Err(failed().hint("set TMPDIR to a directory that everybody may write, such as /tmp")),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A command to be run inside, out of reach of the terminal's Ctrl-C: the demo decides when the server ends.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).stdin(Stdio::null());
        detached(command, self.account)
    }

    /// Stops what runs inside and removes everything.
    pub(super) async fn remove(self) -> Result<()> {
        let Sandbox { directory, mut caretaker, lifeline, .. } = self;
        drop(lifeline);
        let ended = timeout(PATIENCE, caretaker.wait()).await;
        if matches!(ended, Ok(Ok(status)) if status.success()) && !directory.exists() {
            return Ok(());
        }
        let left = directory.display();
        Err(Error::definite(format!("the demo could not be cleaned up: {left} is left"))
            .hint(format!("stop the server with kill $(head -n 1 {left}/data/postmaster.pid), then remove {left}")))
    }
}

fn detached(mut command: Command, account: Option<Account>) -> Command {
    command.process_group(0);
    if let Some(Account { uid, gid }) = account {
        command.uid(uid).gid(gid);
    }
    command
}

fn account() -> Result<Option<Account>> {
    let failed = |path: &str, error| Error::definite(format!("cannot read {path}")).because(error);
    let uid = fs::metadata("/proc/self").map_err(|error| failed("/proc/self", error))?.uid();
    if uid != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| failed("/etc/passwd", error))?;
    match ["postgres", "nobody"].into_iter().find_map(|name| find(&users, name)) {
        Some(account) => Ok(Some(account)),
        None => Err(Error::definite("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
            .hint("run the demo as an ordinary user")),
    }
}

/// A user's line in the form of `/etc/passwd`: name, password, uid, gid, …
fn find(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
        Some(Account { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgresql:x:7:7::/:\npostgres:x:105:113:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(find(users, "postgres"), Some(Account { uid: 105, gid: 113 }));
        assert_eq!(find(users, "nobody"), None);
    }

    #[tokio::test]
    async fn a_removed_sandbox_leaves_no_directory_behind() {
        let sandbox = Sandbox::open().await.unwrap();
        let directory = sandbox.directory().to_owned();
        let made = sandbox.command(Path::new("touch")).arg("data").status().await.unwrap();
        assert!(made.success() && directory.join("data").exists());
        sandbox.remove().await.unwrap();
        assert!(!directory.exists());
    }

    #[tokio::test]
    async fn a_sandbox_whose_owner_vanished_removes_itself() {
        let Sandbox { directory, mut caretaker, lifeline, .. } = Sandbox::open().await.unwrap();
        drop(lifeline);
        caretaker.wait().await.unwrap();
        assert!(!directory.exists());
    }
}
