//! Processes and scratch directories that never outlive the test process, not even when it is killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::within;

/// The signal that ends a process for good, without asking twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// SIGQUIT: PostgreSQL's immediate stop, which takes its children and shared memory along.
    Quit,
    /// SIGKILL.
    Kill,
}

/// A child process; ended when dropped.
pub struct Process {
    child: Child,
    farewell: Farewell,
}

impl Process {
    /// Starts `command` in a process group of its own, so that Ctrl-C reaches only the test process.
    pub fn spawn(command: &mut Command, farewell: Farewell) -> Process {
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let child = child.unwrap_or_else(|error| panic!("{} does not start: {error}", command.get_program().display()));
        let verb = match farewell {
            Farewell::Quit => "QUIT",
            Farewell::Kill => "KILL",
        };
        WATCHDOG.tell(verb, &child.id().to_string());
        Process { child, farewell }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's pipes, for whoever reads them.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal; a process that is gone is not an error.
    pub fn signal(&mut self, signal: Signal) {
        // Without reaping in between, the id cannot belong to somebody else.
        if self.exited().is_none() {
            send(self.child.id(), signal);
        }
    }

    /// Sends a signal to the process and all its children (PostgreSQL's are not in its process group).
    pub fn signal_family(&mut self, signal: Signal) {
        let children = children_of(self.child.id());
        self.signal(signal);
        children.into_iter().for_each(|pid| send(pid, signal));
    }

    /// How it ended, if it did.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        within(timeout, || self.exited())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.signal_family(Signal::CONT);
            self.signal(match self.farewell {
                Farewell::Quit => Signal::QUIT,
                Farewell::Kill => Signal::KILL,
            });
            if self.wait(Duration::from_secs(10)).is_none() {
                self.signal(Signal::KILL);
                self.child.wait().expect("a killed child can be waited for");
            }
        }
        WATCHDOG.tell("forget", &self.child.id().to_string());
    }
}

/// A directory under the system's temporary one that other users may enter; removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new, empty one.
    pub fn new() -> Scratch {
        let path = tempfile::Builder::new().prefix("outboxd-test-").tempdir().unwrap().keep();
        WATCHDOG.tell("remove", path.to_str().expect("temporary paths are text"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        } else {
            WATCHDOG.tell("forget", self.0.to_str().expect("temporary paths are text"));
        }
    }
}

/// A small file system of its own for one directory; unmounted when dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts a tmpfs of `megabytes` over `path`, which keeps its files; `None` where that is not allowed.
    pub fn tmpfs(path: &Path, megabytes: usize) -> Option<Mount> {
        let aside = Scratch::new();
        // With "." also the owner and the mode of the directory itself are copied, there and back.
        run(Command::new("cp").arg("-a").arg(path.join(".")).arg(aside.path())).expect("files can be copied");
        let size = format!("size={megabytes}m");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path))?;
        WATCHDOG.tell("unmount", path.to_str().expect("temporary paths are text"));
        let mount = Mount(path.to_path_buf());
        run(Command::new("cp").arg("-a").arg(aside.path().join(".")).arg(path)).expect("the files fit");
        Some(mount)
    }

    /// Gives it another size.
    pub fn resize(&self, megabytes: usize) {
        let size = format!("remount,size={megabytes}m");
        run(Command::new("mount").args(["-o", &size]).arg(&self.0)).expect("it can be resized");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a server may still have files open there.
        run(Command::new("umount").arg("-l").arg(&self.0)).expect("it can be unmounted");
        WATCHDOG.tell("forget", self.0.to_str().expect("temporary paths are text"));
    }
}

fn run(command: &mut Command) -> Option<()> {
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success()).then_some(())
}

/// A server's log: kept when the test fails, removed when it passes.
pub struct Log(PathBuf);

impl Log {
    /// Starts an empty log at `path`.
    pub fn create(path: PathBuf) -> Log {
        File::create(&path).unwrap();
        Log(path)
    }

    /// A handle that appends, for a child's stdout or stderr.
    pub fn writer(&self) -> File {
        File::options().append(true).open(&self.0).unwrap()
    }

    /// What was written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.0).unwrap()).into_owned()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log kept: {}", self.0.display());
        } else {
            fs::remove_file(&self.0).ok();
        }
    }
}

/// True while a process with this id exists (a zombie counts as gone).
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// Resident memory in bytes, while the process runs.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// The ids of a process's direct children.
pub fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, ppid)| ppid == parent)).collect()
}

/// State and parent of a process, from `/proc`.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may contain anything, but nothing after its closing parenthesis does.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("process ids are small")).expect("process ids are not zero");
    kill_process(pid, signal).ok();
}

/// A shell that reads what must end and be removed, and does it once its input ends, which is when this process does.
/// Servers in statics rely on it: Rust never drops those.
struct Watchdog(Mutex<Child>);

static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(|| {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        declare -A left
        while read -r verb name; do
            if [ "$verb" = forget ]; then unset "left[$name]"; else left[$name]=$verb; fi
        done
        for name in "${!left[@]}"; do
            case ${left[$name]} in QUIT | KILL) kill -s CONT "$name"; kill -s "${left[$name]}" "$name" ;; esac
        done
        for name in "${!left[@]}"; do
            case ${left[$name]} in remove | unmount) continue ;; esac
            for _ in {1..100}; do kill -0 "$name" || break; sleep 0.05; done
            kill -s KILL "$name"
        done
        for name in "${!left[@]}"; do
            if [ "${left[$name]}" = unmount ]; then umount -l "$name"; fi
        done
        for name in "${!left[@]}"; do
            if [ "${left[$name]}" = remove ]; then rm -rf "$name"; fi
        done"#;
    let mut shell = Command::new("bash");
    shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    Watchdog(Mutex::new(shell.spawn().expect("bash starts")))
});

impl Watchdog {
    fn tell(&self, verb: &str, name: &str) {
        let mut shell = self.0.lock().unwrap();
        writeln!(shell.stdin.as_mut().expect("stdin is piped"), "{verb} {name}").expect("the watchdog listens");
    }
}
