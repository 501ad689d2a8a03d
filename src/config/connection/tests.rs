use proptest::prelude::*;

use super::*;

fn tcp(name: &str, port: u16) -> Host {
    Host::Tcp(name.into(), port)
}

fn unix(directory: &str, port: u16) -> Host {
    Host::Unix(directory.into(), port)
}

#[test]
fn both_forms_name_hosts_user_and_database() {
    for (text, hosts, user, password, dbname) in [
        ("postgres://u@h/d", vec![tcp("h", 5432)], "u", None, "d"),
        ("postgresql://u:p@h:6543/d", vec![tcp("h", 6543)], "u", Some("p"), "d"),
        ("postgres://u@h", vec![tcp("h", 5432)], "u", None, "u"),
        ("postgres://u@h/", vec![tcp("h", 5432)], "u", None, "u"),
        ("postgres://u@h?dbname=d", vec![tcp("h", 5432)], "u", None, "d"),
        ("postgres://h/d?user=u&password=p%26q", vec![tcp("h", 5432)], "u", Some("p&q"), "d"),
        ("postgres://u@db1,db2:5433/d", vec![tcp("db1", 5432), tcp("db2", 5433)], "u", None, "d"),
        ("postgres://u@a,b/d?port=7", vec![tcp("a", 7), tcp("b", 7)], "u", None, "d"),
        ("postgres://u%40x:p%3A%2F@h/d%20e", vec![tcp("h", 5432)], "u@x", Some("p:/"), "d e"),
        ("postgres://u:p:q@h/d", vec![tcp("h", 5432)], "u", Some("p:q"), "d"),
        ("postgres://u@[::1]:6543/d", vec![tcp("::1", 6543)], "u", None, "d"),
        ("postgres://u@[2001:db8::1],[::1]/d", vec![tcp("2001:db8::1", 5432), tcp("::1", 5432)], "u", None, "d"),
        ("postgres://u@/d", vec![unix("/var/run/postgresql", 5432)], "u", None, "d"),
        ("postgres:///d?user=u&host=/tmp&port=5433", vec![unix("/tmp", 5433)], "u", None, "d"),
        ("postgres://u@%2Ftmp%2Fpg:5433/d", vec![unix("/tmp/pg", 5433)], "u", None, "d"),
        ("host=h user=u dbname=d", vec![tcp("h", 5432)], "u", None, "d"),
        ("host=a,b port=1,2 user=u", vec![tcp("a", 1), tcp("b", 2)], "u", None, "u"),
        ("host=a,b port=,2 user=u", vec![tcp("a", 5432), tcp("b", 2)], "u", None, "u"),
        ("host = h  user = 'u v' password='it\\'s \\\\'", vec![tcp("h", 5432)], "u v", Some("it's \\"), "u v"),
        ("host=::1 user=u password=a\\ b", vec![tcp("::1", 5432)], "u", Some("a b"), "u"),
        ("host=/tmp user=u port=5433", vec![unix("/tmp", 5433)], "u", None, "u"),
        ("user=u dbname=''", vec![unix("/var/run/postgresql", 5432)], "u", None, "u"),
        ("user=a user=u host=x host=h", vec![tcp("h", 5432)], "u", None, "u"),
    ] {
        let connection = parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        assert_eq!(connection.hosts, hosts, "{text}");
        assert_eq!(connection.user, user, "{text}");
        assert_eq!(connection.password.as_ref().map(Secret::reveal), password, "{text}");
        assert_eq!(connection.dbname, dbname, "{text}");
    }
}

#[test]
fn the_user_defaults_to_that_of_the_operating_system() {
    let connection = parse("postgres://h").unwrap();
    assert_eq!(connection.user, whoami::username().unwrap());
    assert_eq!(connection.dbname, connection.user);
}

#[test]
fn parameters_have_the_defaults_of_libpq() {
    let connection = parse("postgres://u@h/d").unwrap();
    assert_eq!(connection.sslmode, SslMode::Prefer);
    assert_eq!(connection.sslrootcert, None);
    assert_eq!(connection.client_cert, None);
    assert_eq!(connection.channel_binding, ChannelBinding::Prefer);
    assert_eq!(connection.session_attrs, SessionAttrs::Any);
    assert_eq!(connection.application_name, "outboxd");
    assert_eq!(connection.connect_timeout, Duration::from_secs(10));
}

#[test]
fn several_hosts_ask_for_the_one_that_takes_writes() {
    assert_eq!(parse("postgres://u@a,b/d").unwrap().session_attrs, SessionAttrs::ReadWrite);
    assert_eq!(parse("postgres://u@a,b/d?target_session_attrs=any").unwrap().session_attrs, SessionAttrs::Any);
    assert_eq!(parse("postgres://u@a/d?target_session_attrs=primary").unwrap().session_attrs, SessionAttrs::ReadWrite);
}

#[test]
fn parameters_that_mean_something_are_taken() {
    let connection = parse(
        "postgres://u@h/d?sslmode=verify-ca&sslrootcert=/ca&sslcert=/c&sslkey=/k&channel_binding=require\
         &target_session_attrs=read-write&application_name=orders&connect_timeout=3&keepalives=1&gssencmode=disable\
         &client_encoding=UTF8&keepalives_idle=5",
    )
    .unwrap();
    assert_eq!(connection.sslmode, SslMode::VerifyCa);
    assert_eq!(connection.sslrootcert, Some("/ca".into()));
    assert_eq!(connection.client_cert, Some(("/c".into(), "/k".into())));
    assert_eq!(connection.channel_binding, ChannelBinding::Require);
    assert_eq!(connection.session_attrs, SessionAttrs::ReadWrite);
    assert_eq!(connection.application_name, "orders");
    assert_eq!(connection.connect_timeout, Duration::from_secs(3));
    assert_eq!(parse("postgres://u@h?ssl=true").unwrap().sslmode, SslMode::Require);
    assert_eq!(parse("postgres://u@h?connect_timeout=0").unwrap().connect_timeout, DEFAULT_TIMEOUT);
}

#[test]
fn the_systems_trust_store_demands_full_verification() {
    for text in ["postgres://u@h?sslrootcert=system", "postgres://u@h?sslrootcert=system&sslmode=verify-full"] {
        let connection = parse(text).unwrap();
        assert_eq!((connection.sslmode, connection.sslrootcert), (SslMode::VerifyFull, None));
    }
    let fault = parse("postgres://u@h?sslrootcert=system&sslmode=require").unwrap_err();
    assert_eq!(fault.what, "sslrootcert=system demands sslmode=verify-full");
}

#[test]
fn what_is_wrong_is_said_exactly() {
    for (text, what) in [
        ("mysql://u@h/d", "neither a url nor keywords with values"),
        ("jdbc:postgresql://h/d?user=u", "neither a url nor keywords with values"),
        ("app", "neither a url nor keywords with values"),
        ("postgres://u@h:http/d", "a port is not a number from 1 to 65535"),
        ("postgres://u@h:0/d", "a port is not a number from 1 to 65535"),
        ("postgres://u@h:65536/d", "a port is not a number from 1 to 65535"),
        ("postgres://u@[::1/d", "an IPv6 address is empty or lacks its \"]\""),
        ("postgres://u@[]/d", "an IPv6 address is empty or lacks its \"]\""),
        ("postgres://u@[::1]x/d", "something stands behind the \"]\" of an IPv6 address"),
        ("postgres://u:p%4@h/d", "a \"%\" is not followed by two hexadecimal digits"),
        ("postgres://u:p%@h/d", "a \"%\" is not followed by two hexadecimal digits"),
        ("postgres://u:p%00@h/d", "percent-encoding gives something that is not text"),
        ("postgres://u:p%ff@h/d", "percent-encoding gives something that is not text"),
        ("postgres://u@h/d?sslmode", "a parameter is not of the form name=value"),
        ("postgres://u@h/d?sslmode=a=b", "a parameter is not of the form name=value"),
        ("postgres://u@h/d?sslmod=require", "unknown parameter \"sslmod\""),
        ("postgres://u@h/d?zzz=1", "unknown parameter"),
        ("postgres://u@h/d?sslmode=on", "sslmode has a value that is not allowed"),
        ("postgres://u@h/d?gssencmode=require", "gssencmode has a value that is not allowed"),
        ("postgres://u@h/d?client_encoding=LATIN1", "client_encoding has a value that is not allowed"),
        ("postgres://u@h/d?target_session_attrs=standby", "target_session_attrs has a value that is not allowed"),
        ("postgres://u@h/d?hostaddr=10.0.0.1", "the parameter hostaddr is not supported"),
        ("postgres://u@h/d?options=-cx", "the parameter options is not supported"),
        ("postgres://u@h/d?sslcert=/c", "sslcert and sslkey belong together, and only one is set"),
        ("postgres://u@h/d?connect_timeout=soon", "connect_timeout is not a whole number of seconds"),
        ("postgres://u@h/a@b", "the database's name holds a \"/\" or \"@\""),
        ("host=a,b,c port=1,2 user=u", "has 2 ports for 3 hosts"),
        ("host='a b' user=u", "a host's name holds \"@\" or a space"),
        ("host=h user", "something at the end is not of the form name=value"),
        ("host=h user='u", "a quoted value lacks its closing quote"),
    ] {
        assert_eq!(parse(text).map(|_| ()).unwrap_err().what, what, "{text}");
    }
}

#[test]
fn a_password_is_never_repeated_however_it_is_mistyped() {
    for password in [
        "hunter2",
        "12hunter2",
        "a/hunter2",
        "a@hunter2",
        "a?hunter2",
        "a&hunter2=x",
        "a%hunter2",
        "a[hunter2",
        "a hunter2",
    ] {
        for text in [
            format!("postgres://u:{password}@h/d"),
            format!("postgres://u:{password}@h/d?sslmode=on"),
            format!("postgres://u:{password}@h:port/d"),
            format!("postgres://h/d?user=u&password={password}"),
            format!("postgres://h/d?password={password}&sslmod=x"),
            format!("host=h user=u password={password} sslmode=on"),
            format!("host=h user=u password='{password}"),
            format!("password={password} nothing"),
            format!("mysql://u:{password}@h"),
        ] {
            match parse(&text) {
                Ok(connection) => assert!(!format!("{connection:?}").contains("hunter2"), "{text}: {connection:?}"),
                Err(fault) => assert!(!format!("{fault:?}").contains("hunter2"), "{text}: {fault:?}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_a_connection_or_a_fault(text in "(postgres://)?[a-z0-9@:/?&=%,\\[\\]' \\\\é]{0,40}") {
        drop(parse(&text));
    }
}
