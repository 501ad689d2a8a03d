//! `source/dial` and `source/wire` against a real PostgreSQL: every login, every sslmode, a whole session.
#![allow(clippy::unwrap_used)] // the helpers of a test are the test

mod server;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use outboxd::config::{ChannelBinding, Connection, Host, Secret, SessionAttrs, SslMode};
use outboxd::error::{Error, Result};
use outboxd::lsn::Lsn;
use outboxd::source::Encoding;
use outboxd::source::wire::{Frame, Login, Reading, Reply, Session, StandbyStatus, Start, Stream};
use server::{Authority, Server, eventually, free_port};

const SENDER_TIMEOUT: Duration = Duration::from_secs(30);

async fn connect(connection: &Connection) -> Result<Session> {
    Session::connect(connection, SENDER_TIMEOUT).await
}

async fn refusal(connection: &Connection) -> Error {
    connect(connection).await.expect_err("the login should fail")
}

fn assert_definite(error: &Error, message: &str, hint: &str) {
    assert!(error.is_definite(), "{}", error.chain());
    assert!(error.chain().contains(message), "{}", error.chain());
    assert!(error.hint_text().unwrap_or_default().contains(hint), "{:?}", error.hint_text());
}

fn assert_transient(error: &Error, message: &str) {
    assert!(!error.is_definite(), "{}", error.chain());
    assert!(error.chain().contains(message), "{}", error.chain());
}

// Login

#[tokio::test]
async fn every_way_to_log_in_works() {
    let server = Server::shared();
    for (user, login) in
        [("trusted", Login::Trust), ("cleartext", Login::Cleartext), ("md5", Login::Md5), ("scram", Login::Scram)]
    {
        let session = connect(&server.connection(user)).await.unwrap();
        assert_eq!(session.login(), login, "{user}");
        assert!(!session.is_encrypted());
    }
}

#[tokio::test]
async fn a_session_knows_whom_it_talks_to() {
    let server = Server::shared();
    let session = connect(&server.connection("scram")).await.unwrap();
    let system = server.sql("SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()");
    assert_eq!(format!("{}|{}", session.system().id, session.system().timeline), system);
    assert_eq!(session.server_version().to_string(), server.sql("SHOW server_version_num"));
    let pid = session.backend_pid();
    assert_eq!(
        server.sql(&format!("SELECT usename, application_name FROM pg_stat_activity WHERE pid = {pid}")),
        "scram|outboxd"
    );
    assert_eq!(session.host(), &Host::Tcp("localhost".into(), server.port));
}

#[tokio::test]
async fn a_unix_socket_is_dialed_and_never_encrypted() {
    let server = Server::shared();
    let connection = Connection {
        hosts: vec![Host::Unix(server.home.clone(), server.port)],
        sslmode: SslMode::VerifyFull,
        ..server.connection("trusted")
    };
    assert!(!connect(&connection).await.unwrap().is_encrypted());
}

#[tokio::test]
async fn a_wrong_password_is_definite_and_says_where_to_correct_it() {
    let server = Server::shared();
    for user in ["cleartext", "md5", "scram"] {
        let connection = Connection { password: Some(Secret::new("wrong")), ..server.connection(user) };
        let error = refusal(&connection).await;
        assert_definite(&error, "password authentication failed", "password_file");
        assert_eq!(error.sqlstate(), Some("28P01"));
        assert!(!format!("{error:?}").contains("wrong"), "the password is not shown");
    }
    let error = refusal(&Connection { password: None, ..server.connection("scram") }).await;
    assert_definite(&error, "asks for a password and none is configured", "password_file");
}

#[tokio::test]
async fn a_login_that_the_server_refuses_says_what_to_do() {
    let server = Server::shared();
    let error = refusal(&server.connection("plain_role")).await;
    assert_definite(&error, &format!("localhost:{}: ", server.port), "ALTER ROLE \"plain_role\" REPLICATION");
    assert_eq!(error.sqlstate(), Some("42501"));
    let error = refusal(&server.connection("unheard_of")).await;
    assert_definite(&error, "no pg_hba.conf entry", "add a line to pg_hba.conf for database \"app\"");
    let unix = vec![Host::Unix(server.home.clone(), server.port)];
    let missing = Connection { hosts: unix, dbname: "missing".into(), ..server.connection("trusted") };
    assert_definite(&refusal(&missing).await, "database \"missing\" does not exist", "postgres.url");
}

// TLS

fn verified(server: &Server, user: &str, sslmode: SslMode, root: &str, host: &str) -> Connection {
    Connection {
        hosts: vec![Host::Tcp(host.into(), server.port)],
        sslmode,
        sslrootcert: Some(server.home.join(root)),
        ..server.connection(user)
    }
}

#[tokio::test]
async fn modes_that_only_encrypt_take_any_certificate_and_bind_the_login_to_it() {
    let server = Server::shared();
    for sslmode in [SslMode::Prefer, SslMode::Require] {
        let session = connect(&Connection { sslmode, ..server.connection("scram") }).await.unwrap();
        assert!(session.is_encrypted());
        assert_eq!(session.login(), Login::ScramPlus);
    }
}

#[tokio::test]
async fn verifying_modes_accept_the_right_certificate() {
    let server = Server::shared();
    for (sslmode, host) in [
        (SslMode::Require, "127.0.0.1"),
        (SslMode::VerifyCa, "127.0.0.1"),
        (SslMode::VerifyCa, "localhost"),
        (SslMode::VerifyFull, "localhost"),
    ] {
        let session = connect(&verified(&server, "scram", sslmode, "ca.pem", host)).await.unwrap();
        assert!(session.is_encrypted(), "{sslmode:?} {host}");
        assert_eq!(session.login(), Login::ScramPlus);
    }
}

#[tokio::test]
async fn a_certificate_from_another_authority_is_refused() {
    let server = Server::shared();
    for sslmode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        let error = refusal(&verified(&server, "scram", sslmode, "other-ca.pem", "localhost")).await;
        assert_definite(&error, "an issuer that is not trusted", "sslrootcert");
        assert!(error.to_string().starts_with(&format!("localhost:{}", server.port)), "{error}");
    }
    let system = Connection {
        sslrootcert: Some("system".into()),
        ..verified(&server, "scram", SslMode::VerifyCa, "", "localhost")
    };
    assert_definite(&refusal(&system).await, "", "sslrootcert");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = Server::shared();
    let error = refusal(&verified(&server, "scram", SslMode::VerifyFull, "ca.pem", "127.0.0.1")).await;
    assert_definite(&error, "for another name", "sslmode=verify-ca");
}

#[tokio::test]
async fn a_root_certificate_that_cannot_be_read_is_definite() {
    let server = Server::shared();
    let error = refusal(&verified(&server, "scram", SslMode::Prefer, "missing.pem", "localhost")).await;
    assert_definite(&error, "cannot use sslrootcert", "PEM file");
    let error = refusal(&verified(&server, "scram", SslMode::Prefer, "server.key", "localhost")).await;
    assert_definite(&error, "cannot use sslrootcert", "PEM file");
}

#[tokio::test]
async fn prefer_and_allow_try_the_other_way_when_pg_hba_refuses_the_first() {
    let server = Server::shared();
    let encrypted = async |user, sslmode| {
        connect(&Connection { sslmode, ..server.connection(user) }).await.map(|session| session.is_encrypted())
    };
    assert!(!encrypted("only_plain", SslMode::Prefer).await.unwrap());
    assert!(encrypted("only_tls", SslMode::Allow).await.unwrap());
    assert!(!encrypted("scram", SslMode::Allow).await.unwrap());
    assert!(!encrypted("only_plain", SslMode::Allow).await.unwrap());
    assert_definite(&encrypted("only_plain", SslMode::Require).await.unwrap_err(), "no pg_hba.conf entry", "pg_hba");
    assert_definite(&encrypted("only_tls", SslMode::Disable).await.unwrap_err(), "no pg_hba.conf entry", "pg_hba");
}

#[tokio::test]
async fn a_client_certificate_logs_in_and_a_stranger_s_does_not() {
    let server = Server::shared();
    let with = |name: Option<&str>| Connection {
        client_cert: name.map(|name| {
            let file = |end| server.home.join(format!("{name}.{end}"));
            (file("pem"), file("key"))
        }),
        ..verified(&server, "certified", SslMode::VerifyFull, "ca.pem", "localhost")
    };
    // The test reads the key files as whoever runs it: root, or the owner.
    assert_eq!(connect(&with(Some("certified"))).await.unwrap().login(), Login::Trust);
    assert_definite(&refusal(&with(Some("stranger"))).await, "does not accept our TLS client certificate", "sslcert");
    let without = refusal(&with(None)).await;
    assert!(without.is_definite(), "{}", without.chain());
}

#[tokio::test]
async fn required_channel_binding_accepts_nothing_weaker() {
    let server = Server::shared();
    let required =
        |user, sslmode| Connection { sslmode, channel_binding: ChannelBinding::Require, ..server.connection(user) };
    assert_eq!(connect(&required("scram", SslMode::Require)).await.unwrap().login(), Login::ScramPlus);
    for user in ["scram", "cleartext", "md5", "trusted"] {
        let error = refusal(&required(user, SslMode::Disable)).await;
        assert_definite(&error, "channel_binding=require, but the connection is not encrypted", "sslmode=require");
    }
    for user in ["cleartext", "md5", "trusted"] {
        let error = refusal(&required(user, SslMode::Require)).await;
        assert_definite(&error, "channel_binding=require, but the server did not ask", "scram-sha-256");
    }
    let off = Connection { channel_binding: ChannelBinding::Disable, ..required("scram", SslMode::Require) };
    assert_eq!(connect(&off).await.unwrap().login(), Login::Scram);
}

// Servers that are not as they should be

/// A server that answers each connection's first bytes with these, and then hangs up.
fn answering(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 8];
            stream.read_exact(&mut request).ok();
            stream.write_all(answer).ok();
        }
    });
    port
}

fn at(port: u16, sslmode: SslMode, sslrootcert: Option<PathBuf>) -> Connection {
    Connection {
        hosts: vec![Host::Tcp("localhost".into(), port)],
        user: "scram".into(),
        password: None,
        dbname: "app".into(),
        sslmode,
        sslrootcert,
        client_cert: None,
        channel_binding: ChannelBinding::Prefer,
        session_attrs: SessionAttrs::ReadWrite,
        application_name: "outboxd".into(),
        connect_timeout: Duration::from_secs(2),
    }
}

#[tokio::test]
async fn the_answer_to_the_tls_request_must_stand_alone() {
    for answer in [&b"Sx"[..], b"NE", b"E", b"?", b""] {
        let error = refusal(&at(answering(answer), SslMode::Require, None)).await;
        assert_transient(&error, "no proper answer to the TLS request");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_definite_where_tls_is_demanded() {
    let error = refusal(&at(answering(b"N"), SslMode::Require, None)).await;
    assert_definite(&error, "does not support TLS", "ssl = on");
}

#[tokio::test]
async fn an_expired_certificate_is_refused_and_named_so() {
    let authority = Authority::new("test authority");
    let directory = tempfile::tempdir().unwrap();
    authority.write(&directory.path().join("ca.pem"));
    let expired = authority.issue_with(&["localhost"], "server", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let key = rustls::pki_types::PrivateKeyDer::try_from(expired.key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![expired.certificate.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
            stream.write_all(b"S").unwrap();
            rustls::ServerConnection::new(config.clone()).unwrap().complete_io(&mut stream).ok();
        }
    });
    let error = refusal(&at(port, SslMode::VerifyCa, Some(directory.path().join("ca.pem")))).await;
    assert_definite(&error, "has expired", "renew");
}

#[tokio::test]
async fn an_unreachable_host_is_transient_and_named() {
    let port = free_port();
    assert_transient(&refusal(&at(port, SslMode::Prefer, None)).await, &format!("localhost:{port}: cannot connect to"));
    let unknown =
        Connection { hosts: vec![Host::Tcp("no-such-host.invalid".into(), 5432)], ..at(0, SslMode::Prefer, None) };
    assert_transient(&refusal(&unknown).await, "no-such-host.invalid:5432: the host name does not resolve");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = refusal(&at(silent.local_addr().unwrap().port(), SslMode::Disable, None)).await;
    assert_transient(&error, "no login within 2s (connect_timeout)");
}

// Several hosts

#[tokio::test]
async fn a_dead_host_is_passed_over() {
    let server = Server::shared();
    let mut connection = server.connection("scram");
    connection.hosts.insert(0, Host::Tcp("localhost".into(), free_port()));
    let session = connect(&connection).await.unwrap();
    assert_eq!(session.host(), &connection.hosts[1]);
}

#[tokio::test]
async fn a_standby_is_passed_over_when_the_session_must_write() {
    let primary = Server::shared();
    let Some(standby) = primary.standby() else { return };
    let mut connection = primary.connection("trusted");
    connection.hosts.insert(0, Host::Tcp("localhost".into(), standby.port));
    assert_eq!(connect(&connection).await.unwrap().host(), &connection.hosts[1]);
    connection.hosts.pop();
    assert_transient(&refusal(&connection).await, "the server is a standby");
    // The standby's certificate is of version 1, as the manual's recipe makes it.
    let any = Connection { session_attrs: SessionAttrs::Any, sslmode: SslMode::Require, ..connection };
    assert!(connect(&any).await.unwrap().is_encrypted());
    let scram = Connection { user: "scram".into(), ..any.clone() };
    assert_eq!(connect(&scram).await.unwrap().login(), Login::ScramPlus);
    let error = connect(&any).await.unwrap().start(start("any")).await.unwrap_err();
    assert_definite(&error, "wal_level", "ALTER SYSTEM SET wal_level = logical");
    let verified = Connection { sslmode: SslMode::VerifyCa, sslrootcert: Some(primary.home.join("ca.pem")), ..any };
    assert_definite(&refusal(&verified).await, "certificate is not acceptable", "version 3");
}

// The stream

/// A table, a publication and a slot, all of this name.
fn prepare(server: &Server, name: &str, columns: &str) {
    server.sql(&format!("CREATE TABLE {name} ({columns})"));
    server.sql(&format!("CREATE PUBLICATION {name} FOR TABLE {name}"));
    server.sql(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
}

fn start(name: &str) -> Start<'_> {
    Start { slot: name, publication: name, encoding: Encoding::Text }
}

/// Reads to the end of a transaction with such a message; gives all its messages and the end of WAL at its commit.
///
/// Others are passed over: the tests share a database, and so hear of each other's. So is a table's description that says
/// again what it said before: the server repeats it after anybody's DDL, even inside a transaction.
async fn transaction(stream: &mut Stream, wanted: char) -> (Vec<Vec<u8>>, Lsn) {
    let mut messages = Vec::new();
    loop {
        while let Some(frame) = stream.frame().unwrap() {
            if let Frame::Data { body, wal_end, .. } = frame {
                let body = body.to_vec();
                if body[0] != b'R' || !messages.contains(&body) {
                    messages.push(body);
                }
                let tags = tags(&messages);
                if tags.ends_with('C') && tags.contains(wanted) {
                    stream.consume();
                    return (messages, wal_end);
                } else if tags.ends_with('C') {
                    messages.clear();
                }
            }
            stream.consume();
        }
        assert!(stream.turn(Reading::On).await.unwrap().read > 0);
    }
}

fn status(lsn: Lsn, reply: Reply) -> StandbyStatus {
    StandbyStatus { write: lsn, flush: lsn, sent_at: SystemTime::now(), reply }
}

fn tags(messages: &[Vec<u8>]) -> String {
    messages.iter().map(|message| char::from(message[0])).collect()
}

async fn a_whole_session(server: &Server, connection: &Connection, name: &str) {
    prepare(server, name, "id int, value text");
    let mut stream = connect(connection).await.unwrap().start(start(name)).await.unwrap();
    server.sql(&format!("INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (3, repeat('x', 3000000))"));
    let (messages, end) = transaction(&mut stream, 'I').await;
    assert_eq!(tags(&messages), "BRIIIC");
    assert!(messages[2].windows(3).any(|bytes| bytes == b"one"));
    assert!(messages[4].len() > 3_000_000);

    // A status is written although nothing is read, and moves the slot.
    stream.status(status(end, Reply::NotWanted));
    stream.turn(Reading::Off).await.unwrap();
    let confirmed =
        || server.sql(&format!("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{name}'"));
    eventually("the slot to move", || confirmed() == end.to_string());

    // A question is answered by a keepalive.
    stream.status(status(end, Reply::Wanted));
    'answered: loop {
        while let Some(frame) = stream.frame().unwrap() {
            let answered = matches!(frame, Frame::Keepalive { wal_end, .. } if wal_end >= end);
            stream.consume();
            if answered {
                break 'answered;
            }
        }
        stream.turn(Reading::On).await.unwrap();
    }

    // What is queued when we leave still reaches the server, and the slot is free at once.
    server.sql(&format!("INSERT INTO {name} VALUES (4, 'four')"));
    let (messages, end) = transaction(&mut stream, 'I').await;
    // The server may describe the table once more, when anything in its caches was invalidated.
    assert_eq!(tags(&messages).replace('R', ""), "BIC");
    stream.status(status(end, Reply::NotWanted));
    stream.leave(Duration::from_secs(10)).await.unwrap();
    assert_eq!(confirmed(), end.to_string());
    assert_eq!(server.sql(&format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'")), "f");
    server.sql(&format!("SELECT pg_drop_replication_slot('{name}')"));
}

#[tokio::test]
async fn a_session_streams_confirms_and_leaves() {
    let server = Server::shared();
    a_whole_session(&server, &server.connection("scram"), "session").await;
}

#[tokio::test]
async fn a_session_streams_confirms_and_leaves_under_tls() {
    let server = Server::shared();
    let connection = verified(&server, "scram", SslMode::VerifyFull, "ca.pem", "localhost");
    a_whole_session(&server, &connection, "session_tls").await;
}

#[tokio::test]
async fn values_do_not_depend_on_how_the_role_is_set_up() {
    let server = Server::shared();
    for setting in [
        "timezone = 'Asia/Tokyo'",
        "datestyle = 'German'",
        "bytea_output = 'escape'",
        "extra_float_digits = -3",
        "client_min_messages = 'error'",
    ] {
        server.sql(&format!("ALTER ROLE md5 SET {setting}"));
    }
    prepare(&server, "settings", "at timestamptz, raw bytea, number float8");
    let mut stream = connect(&server.connection("md5")).await.unwrap().start(start("settings")).await.unwrap();
    server.sql(r"INSERT INTO settings VALUES ('2026-01-02 03:04:05+00', '\x00ff', 0.1::float8 + 0.2::float8)");
    let (messages, _) = transaction(&mut stream, 'I').await;
    let row = String::from_utf8_lossy(&messages[2]).into_owned();
    for value in ["2026-01-02 03:04:05+00", r"\x00ff", "0.30000000000000004"] {
        assert!(row.contains(value), "{value} in {row}");
    }
    stream.leave(Duration::from_secs(10)).await.unwrap();
    server.sql("SELECT pg_drop_replication_slot('settings')");
}

#[tokio::test]
async fn logical_messages_are_part_of_the_stream() {
    let server = Server::shared();
    prepare(&server, "logical", "id int");
    let binary = Start { encoding: Encoding::Binary, ..start("logical") };
    let mut stream = connect(&server.connection("scram")).await.unwrap().start(binary).await.unwrap();
    server.sql("SELECT pg_logical_emit_message(true, 'wire-test', 'hello')");
    let (messages, _) = transaction(&mut stream, 'M').await;
    assert_eq!(tags(&messages), "BMC");
    stream.leave(Duration::from_secs(10)).await.unwrap();
    server.sql("SELECT pg_drop_replication_slot('logical')");
}

#[tokio::test]
async fn the_sender_timeout_is_ours() {
    let server = Server::shared();
    prepare(&server, "silence", "id int");
    let session = Session::connect(&server.connection("scram"), Duration::from_secs(1)).await.unwrap();
    let mut stream = session.start(start("silence")).await.unwrap();
    let ended = async {
        loop {
            if let Err(error) = stream.turn(Reading::On).await {
                return error;
            }
            while stream.frame().unwrap().is_some() {
                stream.consume();
            }
        }
    };
    let error =
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the server gives up on a silent client");
    assert_transient(&error, &format!("localhost:{}", server.port));
    eventually("the slot to be free", || {
        server.sql("SELECT active FROM pg_replication_slots WHERE slot_name = 'silence'") == "f"
    });
    server.sql("SELECT pg_drop_replication_slot('silence')");
}

#[tokio::test]
async fn a_turn_with_nothing_to_do_waits() {
    let server = Server::shared();
    prepare(&server, "idle", "id int");
    let mut stream = connect(&server.connection("scram")).await.unwrap().start(start("idle")).await.unwrap();
    let turn = tokio::time::timeout(Duration::from_millis(200), stream.turn(Reading::Off)).await;
    assert!(turn.is_err(), "{turn:?}");
    stream.leave(Duration::from_secs(10)).await.unwrap();
    server.sql("SELECT pg_drop_replication_slot('idle')");
}

#[tokio::test]
async fn a_missing_slot_is_definite_and_a_busy_one_is_not() {
    let server = Server::shared();
    let connection = server.connection("scram");
    let session = connect(&connection).await.unwrap();
    let error = session.start(start("no_such_slot")).await.unwrap_err();
    assert_definite(&error, "replication slot \"no_such_slot\" does not exist", "outboxd init");
    assert_eq!(error.sqlstate(), Some("42704"));

    prepare(&server, "busy", "id int");
    let holder = connect(&connection).await.unwrap().start(start("busy")).await.unwrap();
    let error = connect(&connection).await.unwrap().start(start("busy")).await.unwrap_err();
    assert_transient(&error, "replication slot \"busy\" is active");
    assert_eq!(error.sqlstate(), Some("55006"));
    holder.leave(Duration::from_secs(10)).await.unwrap();
    let successor = connect(&connection).await.unwrap().start(start("busy")).await.unwrap();
    successor.leave(Duration::from_secs(10)).await.unwrap();
    server.sql("SELECT pg_drop_replication_slot('busy')");
}

#[tokio::test]
async fn a_missing_publication_is_definite_or_since_18_a_notice() {
    let server = Server::shared();
    prepare(&server, "unpublished", "id int");
    let missing = Start { publication: "no_such_publication", ..start("unpublished") };
    let mut stream = connect(&server.connection("scram")).await.unwrap().start(missing).await.unwrap();
    server.sql("INSERT INTO unpublished VALUES (1)");
    let noticed = loop {
        match stream.frame() {
            Ok(Some(Frame::Notice { code, message })) => break Ok((code.to_owned(), message.to_owned())),
            Ok(Some(_)) => stream.consume(),
            Ok(None) => drop(stream.turn(Reading::On).await.unwrap()),
            Err(error) => break Err(error),
        }
    };
    match noticed {
        Err(error) => assert_definite(&error, "publication \"no_such_publication\" does not exist", "outboxd init"),
        Ok((code, message)) => {
            assert!(server.sql("SHOW server_version_num").parse::<u32>().unwrap() >= 180_000, "{message}");
            assert_eq!(code, "55000");
            assert!(message.contains("no_such_publication"), "{message}");
        }
    }
    drop(stream);
    eventually("the slot to be free", || {
        server.sql("SELECT active FROM pg_replication_slots WHERE slot_name = 'unpublished'") == "f"
    });
    server.sql("SELECT pg_drop_replication_slot('unpublished')");
}

#[tokio::test]
async fn a_session_ended_by_the_server_says_why() {
    let server = Server::shared();
    prepare(&server, "ended", "id int");
    let session = connect(&server.connection("scram")).await.unwrap();
    let pid = session.backend_pid();
    let mut stream = session.start(start("ended")).await.unwrap();
    server.sql(&format!("SELECT pg_terminate_backend({pid})"));
    let error = loop {
        match stream.frame() {
            Ok(Some(_)) => stream.consume(),
            Ok(None) => drop(stream.turn(Reading::On).await.unwrap()),
            Err(error) => break error,
        }
    };
    assert_transient(&error, "terminating connection due to administrator command");
    assert_eq!(error.sqlstate(), Some("57P01"));
    server.sql("SELECT pg_drop_replication_slot('ended')");
}
