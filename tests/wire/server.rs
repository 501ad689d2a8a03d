//! A throw-away PostgreSQL for the tests of this directory: TLS on, one role per way to log in.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use outboxd::config::{ChannelBinding, Connection, Host, Secret, SessionAttrs, SslMode};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Every role's password.
pub const PASSWORD: &str = "correct horse";

const HBA: &str = "
local all all trust
local replication postgres trust
host app trusted localhost trust
host app cleartext localhost password
host app md5 localhost md5
host app scram localhost scram-sha-256
host app plain_role localhost scram-sha-256
hostssl app only_tls localhost trust
hostnossl app only_plain localhost trust
hostssl app certified localhost cert
";

const ROLES: &str = "
CREATE ROLE trusted LOGIN REPLICATION;
CREATE ROLE cleartext LOGIN REPLICATION PASSWORD 'correct horse';
CREATE ROLE scram LOGIN REPLICATION PASSWORD 'correct horse';
CREATE ROLE plain_role LOGIN PASSWORD 'correct horse';
CREATE ROLE only_tls LOGIN REPLICATION;
CREATE ROLE only_plain LOGIN REPLICATION;
CREATE ROLE certified LOGIN REPLICATION;
SET password_encryption = md5;
CREATE ROLE md5 LOGIN REPLICATION PASSWORD 'correct horse';
";

/// A running server; dropped, it is stopped and its directory removed.
pub struct Server {
    pub port: u16,
    pub home: PathBuf,
    process: Child,
    _directory: TempDir,
}

impl Server {
    /// The server that the tests of one run share.
    pub fn shared() -> Arc<Server> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Server::new());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    fn new() -> Server {
        let (directory, home) = home();
        run(tool("initdb").args([
            "-D",
            &text(&home.join("data")),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
        ]));
        fs::write(home.join("data/pg_hba.conf"), HBA).unwrap();
        let authority = Authority::new("test authority");
        authority.write(&home.join("ca.pem"));
        Authority::new("another authority").write(&home.join("other-ca.pem"));
        authority.issue(&["localhost"], "server").write(&home, "server");
        authority.issue(&["certified"], "certified").write(&home, "certified");
        Authority::new("nobody").issue(&["certified"], "certified").write(&home, "stranger");
        let server = Server::launch(directory, home, "wal_level=logical");
        server.sql_in("postgres", "CREATE DATABASE app");
        server.sql(ROLES);
        server
    }

    /// A standby of this server, `wal_level=replica`, with a certificate made as PostgreSQL's manual shows: X.509
    /// version 1, no SAN.
    ///
    /// None where the server came without `pg_basebackup`.
    pub fn standby(&self) -> Option<Server> {
        if !bin().join("pg_basebackup").exists() {
            return None;
        }
        let (directory, home) = home();
        let data = text(&home.join("data"));
        let primary = self.port.to_string();
        run(tool("pg_basebackup")
            .args(["-D", &data, "-h", &text(&self.home), "-p", &primary, "-U", "postgres"])
            .args(["-R", "-c", "fast"]));
        fs::copy(self.home.join("ca.pem"), home.join("ca.pem")).unwrap();
        let request = text(&home.join("request.pem"));
        let (key, certificate) = (text(&home.join("server.key")), text(&home.join("server.pem")));
        let mut openssl = Command::new("openssl");
        run(openssl.args([
            "req",
            "-new",
            "-nodes",
            "-newkey",
            "rsa:2048",
            "-subj",
            "/CN=localhost",
            "-keyout",
            &key,
            "-out",
            &request,
        ]));
        run(Command::new("openssl").args([
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            &request,
            "-signkey",
            &key,
            "-out",
            &certificate,
        ]));
        Some(Server::launch(directory, home, "wal_level=replica"))
    }

    fn launch(directory: TempDir, home: PathBuf, wal_level: &str) -> Server {
        fs::set_permissions(home.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres:postgres", &text(&home)]));
        }
        let port = free_port();
        let mut postgres = tool("postgres");
        postgres.args(["-D", &text(&home.join("data")), "-k", &text(&home), "-p", &port.to_string()]);
        for setting in ["listen_addresses=localhost", wal_level, "fsync=off", "ssl=on", "shared_buffers=16MB"] {
            postgres.args(["-c", setting]);
        }
        for (setting, file) in
            [("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key"), ("ssl_ca_file", "ca.pem")]
        {
            postgres.args(["-c", &format!("{setting}={}", text(&home.join(file)))]);
        }
        let log = fs::File::create(home.join("log")).unwrap();
        let process = postgres.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let server = Server { port, home, process, _directory: directory };
        eventually("the server to start", || server.psql("postgres", "SELECT 1").status.success());
        server
    }

    /// Runs SQL as superuser in database `app`; gives what psql prints.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_in("app", sql)
    }

    fn sql_in(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        let port = self.port.to_string();
        let mut psql = Command::new("psql");
        psql.args([
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &text(&self.home),
            "-p",
            &port,
            "-U",
            "postgres",
            "-d",
            database,
        ]);
        psql.args(["-c", sql]).output().unwrap()
    }

    /// How `user` connects over TCP, without TLS unless changed.
    pub fn connection(&self, user: &str) -> Connection {
        Connection {
            hosts: vec![Host::Tcp("localhost".into(), self.port)],
            user: user.into(),
            password: Some(Secret::new(PASSWORD)),
            dbname: "app".into(),
            sslmode: SslMode::Disable,
            sslrootcert: None,
            client_cert: None,
            channel_binding: ChannelBinding::Prefer,
            session_attrs: SessionAttrs::ReadWrite,
            application_name: "outboxd".into(),
            connect_timeout: Duration::from_secs(20),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        run(Command::new("kill").args(["-QUIT", &self.process.id().to_string()]));
        self.process.wait().unwrap();
    }
}

/// Waits for a condition, at most 30 s.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A certificate authority.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Identity {
    pub certificate: rcgen::Certificate,
    pub key: KeyPair,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    pub fn write(&self, file: &Path) {
        fs::write(file, &self.pem).unwrap();
    }

    pub fn issue(&self, names: &[&str], common_name: &str) -> Identity {
        self.issue_with(names, common_name, |_| {})
    }

    pub fn issue_with(
        &self,
        names: &[&str],
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let mut params = CertificateParams::new(names.iter().map(|name| name.to_string()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }
}

impl Identity {
    fn write(&self, directory: &Path, name: &str) {
        fs::write(directory.join(format!("{name}.pem")), self.certificate.pem()).unwrap();
        fs::write(directory.join(format!("{name}.key")), self.key.serialize_pem()).unwrap();
    }
}

fn home() -> (TempDir, PathBuf) {
    let directory = tempfile::Builder::new().prefix("outboxd-wire-").tempdir().unwrap();
    let home = directory.path().to_owned();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        run(Command::new("chown").args(["postgres:postgres", &text(&home)]));
    }
    (directory, home)
}

/// A tool of PostgreSQL; run as `postgres` by root, which PostgreSQL refuses.
fn tool(name: &str) -> Command {
    let path = bin().join(name);
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(path);
    command
}

/// `OUTBOXD_TEST_PG_BIN`, or the distribution's newest.
fn bin() -> PathBuf {
    if let Some(bin) = std::env::var_os("OUTBOXD_TEST_PG_BIN") {
        return bin.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.max_by_key(|entry| entry.file_name().to_string_lossy().parse::<u32>().unwrap_or(0));
    newest.expect("PostgreSQL is installed").path().join("bin")
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t"))
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
