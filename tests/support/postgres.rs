//! A throw-away PostgreSQL server, and databases on it.
//!
//! `initdb` runs once per version into a template in the cache; each server starts from a copy of it. Run by root, the
//! server runs as `postgres` (or `nobody`), because PostgreSQL refuses root.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use outboxd::lsn::Lsn;
use postgres::{Client, NoTls, SimpleQueryMessage};
use rustix::process::Signal;

use super::process::{Farewell, Log, Process, Scratch};
use super::proxy::Proxy;
use super::{PATIENCE, cache_dir, free_port, log_path, test_name, unique_name, within};

/// The physical slot of a standby on its primary.
pub const STANDBY: &str = "standby";

/// Which server. `Version::wanted()` follows `OUTBOXD_TEST_PG`, so that a whole suite runs on one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    Distro,
    V14,
    V17,
    V18,
}

impl Version {
    /// All of them.
    pub const ALL: [Version; 4] = [Version::Distro, Version::V14, Version::V17, Version::V18];

    /// What `OUTBOXD_TEST_PG` asks for; the distribution's without it.
    pub fn wanted() -> Version {
        match std::env::var("OUTBOXD_TEST_PG").as_deref() {
            Err(_) | Ok("") => Version::Distro,
            Ok("14") => Version::V14,
            Ok("17") => Version::V17,
            Ok("18") => Version::V18,
            Ok(other) => panic!("OUTBOXD_TEST_PG is \"{other}\", and there are only 14, 17 and 18"),
        }
    }

    /// One that has failover slots, which came with 17: the one that is asked for; when none is, the distribution's, or
    /// the newest that is installed beside it.
    pub fn with_failover_slots() -> Option<Version> {
        match Version::wanted() {
            Version::Distro => {
                let has_them = |version: &Version| version.major().is_some_and(|major| major >= 17);
                [Version::Distro, Version::V18, Version::V17].into_iter().find(has_them)
            }
            Version::V14 => None,
            asked @ (Version::V17 | Version::V18) => Some(asked),
        }
    }

    /// Its major version; `None` when it is not installed.
    pub fn major(self) -> Option<u32> {
        // …/17/bin
        self.bin()?.parent()?.file_name()?.to_str()?.parse().ok()
    }

    /// The directory of its programs; `None` when it is not installed.
    pub fn bin(self) -> Option<PathBuf> {
        let cached = |major: &str| cache_dir().join("postgres").join(major).join("bin");
        let bin = match self {
            Version::Distro => newest_of_the_distribution()?,
            Version::V14 => cached("14"),
            Version::V17 => cached("17"),
            Version::V18 => cached("18"),
        };
        bin.join("postgres").exists().then_some(bin)
    }
}

/// How the server is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Waits for all sessions to end.
    Smart,
    /// Ends all sessions, writes a checkpoint, waits for the walsenders.
    Fast,
    /// Ends at once; recovers at the next start.
    Immediate,
    /// SIGKILL of the postmaster; its children notice by themselves.
    Kill,
}

/// How a private server differs from the usual one.
#[derive(Debug, Clone)]
pub struct Options {
    version: Version,
    settings: Vec<(String, String)>,
    hba: Vec<String>,
    files: Vec<(String, String)>,
}

impl Options {
    /// Another version than the wanted one.
    pub fn version(mut self, version: Version) -> Options {
        self.version = version;
        self
    }

    /// A line of `postgresql.conf`; the last one of a name wins.
    pub fn setting(mut self, name: &str, value: &str) -> Options {
        self.settings.push((name.to_string(), value.to_string()));
        self
    }

    /// Writes reach the disk: for tests that crash the server's host, which `fsync=off` does not survive.
    pub fn durable(self) -> Options {
        self.setting("fsync", "on").setting("full_page_writes", "on")
    }

    /// A line of `pg_hba.conf` for TCP, instead of trusting everybody. The Unix socket stays open for the harness.
    pub fn hba(mut self, line: &str) -> Options {
        self.hba.push(line.to_string());
        self
    }

    /// Speaks TLS with this certificate and key (PEM); with `client_ca`, verifies clients that show one.
    pub fn tls(mut self, certificate: &str, key: &str, client_ca: Option<&str>) -> Options {
        for (name, text) in [("server.crt", Some(certificate)), ("server.key", Some(key)), ("root.crt", client_ca)] {
            self.files.extend(text.map(|text| (name.to_string(), text.to_string())));
        }
        if client_ca.is_some() {
            self = self.setting("ssl_ca_file", "'root.crt'");
        }
        self.setting("ssl", "on")
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Arc<Postgres> {
        Arc::new(Postgres::start_new(self, Use::Private, log_path(&test_name(), "postgres")))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Shared,
    Private,
}

/// A running (or stopped) server with its own directory, port and socket. It ends when dropped.
pub struct Postgres {
    process: Mutex<Option<Process>>,
    bin: PathBuf,
    port: u16,
    used: Use,
    log: Log,
    scratch: Scratch,
}

impl Postgres {
    /// The server that cheap tests of this process share.
    pub fn shared() -> Arc<Postgres> {
        static SHARED: OnceLock<Arc<Postgres>> = OnceLock::new();
        let start = || Arc::new(Postgres::start_new(Postgres::options(), Use::Shared, log_path("shared", "postgres")));
        SHARED.get_or_init(start).clone()
    }

    /// A server for one test, which may stop, crash or reconfigure it.
    pub fn private() -> Arc<Postgres> {
        Postgres::options().start()
    }

    /// The usual settings, to be changed before `start`.
    pub fn options() -> Options {
        let settings = [
            ("wal_level", "logical"),
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("max_replication_slots", "100"),
            ("max_wal_senders", "100"),
            ("max_connections", "200"),
            ("shared_buffers", "32MB"),
            ("log_replication_commands", "on"),
            ("log_line_prefix", "'%m [%p] %a '"),
        ];
        let settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
        Options { version: Version::wanted(), settings, hba: Vec::new(), files: Vec::new() }
    }

    /// A new, empty database.
    pub fn database(self: &Arc<Self>) -> Database {
        let name = unique_name();
        self.exec("postgres", &format!("create database {name}"));
        Database { server: self.clone(), name }
    }

    /// A database that is there already, such as one that a standby has from its primary.
    pub fn database_named(self: &Arc<Self>, name: &str) -> Database {
        Database { server: self.clone(), name: name.to_string() }
    }

    /// Starts a standby of this server, of the same version, which reaches it at `port`: its own, or a proxy's. It has
    /// the slot `STANDBY` there.
    ///
    /// The server must be new: the standby begins as another copy of the template that it began as, and takes all that
    /// was written since from its WAL. That needs no `pg_basebackup`, which the packages of the matrix do not have.
    pub fn standby(&self, port: u16, options: Options) -> Arc<Postgres> {
        self.exec("postgres", &format!("select pg_create_physical_replication_slot('{STANDBY}', true)"));
        let mut options = options
            .setting("primary_conninfo", &format!("'host=127.0.0.1 port={port} user=postgres dbname=postgres'"))
            .setting("primary_slot_name", &format!("'{STANDBY}'"))
            .setting("hot_standby_feedback", "on")
            .setting("wal_retrieve_retry_interval", "100ms");
        options.files.push(("standby.signal".to_string(), String::new()));
        Arc::new(Postgres::start_new(options, Use::Private, log_path(&test_name(), "standby")))
    }

    /// Makes a standby a primary, and waits until it is one.
    #[track_caller]
    pub fn promote(&self) {
        self.exec("postgres", "select pg_promote()");
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The superuser's URL over TCP.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The superuser's URL over the Unix socket.
    pub fn socket_url(&self, database: &str) -> String {
        let directory = self.scratch.path().display();
        format!("postgres:///{database}?host={directory}&port={}&user=postgres", self.port)
    }

    /// Opens a session as superuser, over the Unix socket.
    pub fn try_connect(&self, database: &str) -> Result<Client, postgres::Error> {
        let mut config = postgres::Config::new();
        config.host_path(self.scratch.path()).port(self.port).user("postgres").dbname(database);
        config.application_name("harness").connect(NoTls)
    }

    /// Opens a session as superuser, over the Unix socket.
    #[track_caller]
    pub fn connect(&self, database: &str) -> Client {
        self.try_connect(database).unwrap_or_else(|error| panic!("cannot connect to {database}: {error}"))
    }

    /// Runs statements in a session of their own.
    #[track_caller]
    pub fn exec(&self, database: &str, sql: &str) {
        self.connect(database).batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Ends the server and waits for it.
    pub fn stop(&self, how: Stop) {
        self.begin_stop(how);
        let mut process = self.process.lock().unwrap();
        let status = process.as_mut().expect("the server runs").wait(PATIENCE);
        assert!(status.is_some(), "PostgreSQL did not stop: {how:?}");
        *process = None;
    }

    /// Tells the server to end, without waiting: a fast stop waits for walsenders itself.
    pub fn begin_stop(&self, how: Stop) {
        let mut process = self.process.lock().unwrap();
        process.as_mut().expect("the server runs").signal(match how {
            Stop::Smart => Signal::TERM,
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
            Stop::Kill => Signal::KILL,
        });
    }

    /// True once the server's process has ended.
    pub fn has_stopped(&self) -> bool {
        self.process.lock().unwrap().as_mut().is_none_or(|process| process.exited().is_some())
    }

    /// Starts the stopped server again: same directory, same port.
    pub fn start(&self) {
        let started = within(PATIENCE, || self.try_start().then_some(()));
        assert!(started.is_some(), "PostgreSQL does not start again: {}", self.log());
    }

    /// Stops and starts.
    pub fn restart(&self, how: Stop) {
        self.stop(how);
        self.start();
    }

    /// Freezes the server and all its sessions.
    pub fn pause(&self) {
        self.signal_family(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        self.signal_family(Signal::CONT);
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().as_ref().expect("the server runs").id()
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// The server's own directory: `data`, the socket.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn signal_family(&self, signal: Signal) {
        self.process.lock().unwrap().as_mut().expect("the server runs").signal_family(signal);
    }

    fn start_new(options: Options, used: Use, log: PathBuf) -> Postgres {
        let version = options.version;
        let bin =
            version.bin().unwrap_or_else(|| panic!("PostgreSQL {version:?} is missing: run scripts/setup matrix"));
        let scratch = Scratch::new();
        let data = scratch.path().join("data");
        run(Command::new("cp").arg("-a").arg(template(&bin)).arg(&data));
        let account = Account::for_server();
        account.own(scratch.path());
        let port = free_port();
        let server = Postgres { process: Mutex::new(None), bin, port, used, log: Log::create(log), scratch };
        options.write(&data, &server, &account);
        server.start();
        server
    }

    /// False when it ended at once: after a kill the last children may still hold its shared memory.
    fn try_start(&self) -> bool {
        let mut command = Command::new(self.bin.join("postgres"));
        command.arg("-D").arg(self.scratch.path().join("data"));
        command.stdout(self.log.writer()).stderr(self.log.writer());
        Account::for_server().run_as(&mut command);
        let mut process = Process::spawn(&mut command, Farewell::Quit);
        // The socket lies in a directory of ours, so whoever answers there is this server.
        let answered = within(PATIENCE, || match process.exited() {
            Some(_) => Some(false),
            None => self.try_connect("postgres").is_ok().then_some(true),
        });
        *self.process.lock().unwrap() = Some(process);
        answered.unwrap_or(false)
    }
}

impl Options {
    fn write(&self, data: &Path, server: &Postgres, account: &Account) {
        let mut conf = File::options().append(true).open(data.join("postgresql.conf")).unwrap();
        let directory = server.scratch.path().display();
        writeln!(conf, "listen_addresses = '127.0.0.1'\nport = {}", server.port).unwrap();
        writeln!(conf, "unix_socket_directories = '{directory}'").unwrap();
        for (name, value) in &self.settings {
            writeln!(conf, "{name} = {value}").unwrap();
        }
        let tcp = match self.hba.is_empty() {
            true => "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust".to_string(),
            false => self.hba.join("\n"),
        };
        let hba = format!("local all all trust\nlocal replication all trust\n{tcp}\n");
        fs::write(data.join("pg_hba.conf"), hba).unwrap();
        for (name, text) in &self.files {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            run(Command::new("chmod").arg("600").arg(&path));
            account.own(&path);
        }
    }
}

/// A database of one test. On a shared server it is dropped at the end, with its slots.
pub struct Database {
    server: Arc<Postgres>,
    name: String,
}

impl Database {
    /// Its name, fit to name a slot as well: slots belong to the whole server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server it is on.
    pub fn server(&self) -> &Arc<Postgres> {
        &self.server
    }

    /// The superuser's URL over TCP.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// The superuser's URL, by way of a proxy before the server.
    pub fn url_through(&self, proxy: &Proxy) -> String {
        format!("postgres://postgres@{}/{}", proxy.address(), self.name)
    }

    /// The end of what was written so far: once this is confirmed, all of it is.
    #[track_caller]
    pub fn written(&self) -> Lsn {
        let end = self.ask("select pg_current_wal_flush_lsn()").expect("the server has a WAL");
        end.parse().expect("PostgreSQL prints an LSN")
    }

    /// Opens a session as superuser.
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.server.connect(&self.name)
    }

    /// Runs statements in a session of their own.
    #[track_caller]
    pub fn exec(&self, sql: &str) {
        self.server.exec(&self.name, sql);
    }

    /// The first column of the first row as text; `None` for NULL or no row.
    #[track_caller]
    pub fn ask(&self, sql: &str) -> Option<String> {
        let answer = self.connect().simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
            _ => None,
        })
    }

    /// The slot's `confirmed_flush_lsn`, as the server sees it.
    #[track_caller]
    pub fn confirmed(&self, slot: &str) -> Option<Lsn> {
        let sql = format!("select confirmed_flush_lsn from pg_replication_slots where slot_name = '{slot}'");
        self.ask(&sql).map(|text| text.parse().expect("PostgreSQL prints an LSN"))
    }

    /// The pid of whoever streams from the slot.
    #[track_caller]
    pub fn walsender(&self, slot: &str) -> Option<String> {
        self.ask(&format!("select active_pid from pg_replication_slots where slot_name = '{slot}'"))
    }

    /// Somebody else who reads from a slot; `-f` is still to be said.
    pub fn recvlogical(&self, slot: &str, publication: &str) -> Command {
        Database::recvlogical_at(&self.url(), slot, publication)
    }

    /// The same, by a way of one's own to the database.
    pub fn recvlogical_at(url: &str, slot: &str, publication: &str) -> Command {
        let mut command = Command::new(Version::Distro.bin().expect("it is installed").join("pg_recvlogical"));
        command.args(["-d", url, "--slot", slot, "--start", "-o", "proto_version=1"]);
        command.args(["-o", &format!("publication_names={publication}")]).stderr(Stdio::null());
        command
    }

    /// Ends the walsender that streams from the slot; false when there was none.
    pub fn cut_replication(&self, slot: &str) -> bool {
        let sql = format!(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{slot}' and active"
        );
        self.ask(&sql).is_some()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.server.used == Use::Private {
            return;
        }
        let Ok(mut session) = self.server.try_connect("postgres") else { return };
        let slots = format!("pg_replication_slots where database = '{}'", self.name);
        // A relay that the test left running may take the slot again between the two statements.
        within(Duration::from_secs(10), || {
            session.batch_execute(&format!("select pg_terminate_backend(active_pid) from {slots} and active")).ok()?;
            session.batch_execute(&format!("select pg_drop_replication_slot(slot_name) from {slots}")).ok()?;
            session.batch_execute(&format!("drop database if exists {} with (force)", self.name)).ok()
        });
    }
}

/// The user that the server runs as: us, unless we are root.
struct Account(Option<(u32, u32)>);

impl Account {
    fn for_server() -> Account {
        if !rustix::process::geteuid().is_root() {
            return Account(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let find = |name: &str| {
            let fields: Vec<&str> = users.lines().map(|l| l.split(':').collect()).find(|f: &Vec<_>| f[0] == name)?;
            Some((fields[2].parse().ok()?, fields[3].parse().ok()?))
        };
        Account(Some(find("postgres").or_else(|| find("nobody")).expect("there is a user other than root")))
    }

    fn own(&self, path: &Path) {
        if let Some((uid, gid)) = self.0 {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }

    fn run_as(&self, command: &mut Command) {
        // initdb and postgres look at the working directory, which root may have closed to others.
        command.current_dir("/");
        if let Some((uid, gid)) = self.0 {
            command.uid(uid).gid(gid);
        }
    }
}

/// The initialised data directory that every server of this version starts from.
fn template(bin: &Path) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let version = Command::new(bin.join("postgres")).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let version = version.split_whitespace().nth(2).expect("postgres (PostgreSQL) <version>");
    let account = Account::for_server();
    let owner = account.0.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
    let template = cache_dir().join(format!("template/{version}-{owner}"));
    if !template.exists() {
        let scratch = Scratch::new();
        account.own(scratch.path());
        let data = scratch.path().join("data");
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"]);
        initdb.arg(&data);
        account.run_as(&mut initdb);
        run(&mut initdb);
        // The finished template appears in one move; another process may have been faster, and its work is as good.
        let staged = template.with_extension(std::process::id().to_string());
        fs::create_dir_all(template.parent().expect("it has one")).unwrap();
        run(Command::new("cp").arg("-a").arg(&data).arg(&staged));
        if fs::rename(&staged, &template).is_err() {
            fs::remove_dir_all(&staged).unwrap();
        }
    }
    template
}

fn newest_of_the_distribution() -> Option<PathBuf> {
    let majors = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let newest = majors.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max()?;
    Some(PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin")))
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
