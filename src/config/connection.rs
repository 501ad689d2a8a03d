//! libpq's connection strings, both forms: text enters, a `Connection` with libpq's defaults or a fault leaves.
//!
//! Nothing typed in the string is ever repeated in a fault, except the name of a parameter that is known: an unencoded
//! `/`, `@` or `&` in a password moves its rest to where a port, a host or a parameter is expected.
//! See "Connection Strings" in PostgreSQL's manual, and `conninfo_uri_parse` in libpq for what it leaves open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::error::Fault;
use super::{ChannelBinding, Connection, Host, Secret, SessionAttrs, SslMode};
use crate::spelling::nearest;

const DEFAULT_PORT: u16 = 5432;
const DEFAULT_SOCKET: &str = "/var/run/postgresql";
const DEFAULT_APPLICATION: &str = "outboxd";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const ENCODE: &str =
    "in a url write %2F for /, %3A for :, %40 for @, %3F for ?, %26 for &, %25 for %, also in a password";

/// What happens to a parameter that libpq knows.
enum Use {
    /// It is part of the `Connection`.
    Taken,
    /// It means nothing for the relay, whatever its value.
    Ignored,
    /// These values mean nothing for the relay; any other would change how it connects.
    Only(&'static [&'static str]),
    /// Ignoring it could be dangerous, and it is not built.
    Unsupported(&'static str),
}

static PARAMETERS: [(&str, Use); 40] = [
    ("host", Use::Taken),
    ("port", Use::Taken),
    ("user", Use::Taken),
    ("password", Use::Taken),
    ("dbname", Use::Taken),
    ("sslmode", Use::Taken),
    ("sslrootcert", Use::Taken),
    ("sslcert", Use::Taken),
    ("sslkey", Use::Taken),
    ("channel_binding", Use::Taken),
    ("target_session_attrs", Use::Taken),
    ("application_name", Use::Taken),
    ("connect_timeout", Use::Taken),
    ("fallback_application_name", Use::Ignored),
    ("keepalives", Use::Ignored),
    ("keepalives_idle", Use::Ignored),
    ("keepalives_interval", Use::Ignored),
    ("keepalives_count", Use::Ignored),
    ("tcp_user_timeout", Use::Ignored),
    ("client_encoding", Use::Only(&["UTF8", "utf8", "UTF-8", "utf-8"])),
    ("gssencmode", Use::Only(&["disable", "prefer"])),
    ("load_balance_hosts", Use::Only(&["disable"])),
    ("sslcompression", Use::Only(&["0"])),
    ("sslnegotiation", Use::Only(&["postgres"])),
    ("sslsni", Use::Only(&["1"])),
    ("hostaddr", Use::Unsupported("give the address as host")),
    ("replication", Use::Unsupported("remove it: the relay sets it where it is needed")),
    ("passfile", Use::Unsupported("use postgres.password_file")),
    ("options", Use::Unsupported("set options on the role, with alter role … set …")),
    ("service", Use::Unsupported("write the service's parameters here")),
    ("sslpassword", Use::Unsupported("give the key unencrypted, readable only by the relay")),
    ("sslcrl", Use::Unsupported("remove it")),
    ("sslcrldir", Use::Unsupported("remove it")),
    ("sslcertmode", Use::Unsupported("remove it")),
    ("ssl_min_protocol_version", Use::Unsupported("remove it: TLS 1.2 is the least anyway")),
    ("ssl_max_protocol_version", Use::Unsupported("remove it")),
    ("require_auth", Use::Unsupported("remove it; channel_binding=require demands SCRAM")),
    ("requirepeer", Use::Unsupported("remove it")),
    ("krbsrvname", Use::Unsupported("remove it: GSSAPI is not supported")),
    ("gssdelegation", Use::Unsupported("remove it: GSSAPI is not supported")),
];

/// Parses either form.
pub(super) fn parse(text: &str) -> Result<Connection, Fault> {
    let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
    let mut parameters = Parameters::default();
    match rest {
        Some(rest) => parameters.read_url(rest)?,
        None if text.contains('=') && !text.contains("://") => parameters.read_keywords(text)?,
        None => {
            return Err(Fault::new("neither a url nor keywords with values")
                .hint("postgres://user@host:5432/dbname, or host=… user=… dbname=…"));
        }
    }
    parameters.connection()
}

/// Known parameters with their values, none of them empty: libpq takes an empty value for none.
#[derive(Default)]
struct Parameters(BTreeMap<&'static str, String>);

impl Parameters {
    fn set(&mut self, name: &str, value: String) -> Result<(), Fault> {
        let Some((name, usage)) = PARAMETERS.iter().find(|(known, _)| *known == name) else {
            return Err(unknown(name));
        };
        match usage {
            Use::Ignored => {}
            Use::Only(allowed) if allowed.contains(&value.as_str()) || value.is_empty() => {}
            Use::Only(allowed) => return Err(one_of(name, allowed)),
            Use::Unsupported(hint) => {
                return Err(Fault::new(format!("the parameter {name} is not supported")).hint(*hint));
            }
            Use::Taken if value.is_empty() => drop(self.0.remove(name)),
            Use::Taken => drop(self.0.insert(name, value)),
        }
        Ok(())
    }

    /// Everything behind `postgres://`.
    fn read_url(&mut self, text: &str) -> Result<(), Fault> {
        let mut rest = text;
        // libpq takes the first @ for the end of the login, unless a / comes before it.
        if let Some(end) = text.find(['@', '/']).filter(|end| text[*end..].starts_with('@')) {
            let (user, password) = text[..end].split_once(':').unwrap_or((&text[..end], ""));
            self.set("user", decode(user)?)?;
            self.set("password", decode(password)?)?;
            rest = &text[end + 1..];
        }
        let rest = self.read_hosts(rest)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let dbname = path.strip_prefix('/').unwrap_or(path);
        if dbname.contains(['@', '/']) {
            return Err(Fault::new("the database's name holds a \"/\" or \"@\"").hint(ENCODE));
        }
        self.set("dbname", decode(dbname)?)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=').filter(|(_, value)| !value.contains('=')) else {
                return Err(Fault::new("a parameter is not of the form name=value").hint(ENCODE));
            };
            match (decode(name)?.as_str(), decode(value)?) {
                // As in libpq, for those who come from JDBC.
                ("ssl", value) if value == "true" => self.set("sslmode", "require".into())?,
                (name, value) => self.set(name, value)?,
            }
        }
        Ok(())
    }

    /// `host:port,host:port`, up to the path or the query, which are returned.
    fn read_hosts<'t>(&mut self, text: &'t str) -> Result<&'t str, Fault> {
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        let mut rest = text;
        loop {
            let end = match rest.strip_prefix('[') {
                Some(inner) => {
                    let Some(end) = inner.find(']').filter(|end| *end > 0) else {
                        return Err(Fault::new("an IPv6 address is empty or lacks its \"]\""));
                    };
                    hosts.push(&inner[..end]);
                    end + 2
                }
                None => {
                    let end = rest.find([':', '/', '?', ',']).unwrap_or(rest.len());
                    hosts.push(&rest[..end]);
                    end
                }
            };
            rest = &rest[end..];
            let mut port = "";
            if let Some(after) = rest.strip_prefix(':') {
                let end = after.find(['/', '?', ',']).unwrap_or(after.len());
                (port, rest) = after.split_at(end);
            }
            ports.push(port);
            match rest.chars().next() {
                Some(',') => rest = &rest[1..],
                Some('/' | '?') | None => break,
                Some(_) => return Err(Fault::new("something stands behind the \"]\" of an IPv6 address")),
            }
        }
        let ports = if ports.iter().all(|port| port.is_empty()) { String::new() } else { ports.join(",") };
        self.set("host", decode(&hosts.join(","))?)?;
        self.set("port", decode(&ports)?)?;
        Ok(rest)
    }

    /// `name = value name = 'quoted value'`; a backslash takes the next character as it is.
    fn read_keywords(&mut self, text: &str) -> Result<(), Fault> {
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let Some((name, after)) = rest.split_once('=') else {
                return Err(Fault::new("something at the end is not of the form name=value").hint(QUOTE));
            };
            let (value, after) = keyword_value(after.trim_start())?;
            self.set(name.trim_end(), value)?;
            rest = after.trim_start();
        }
        Ok(())
    }

    fn connection(mut self) -> Result<Connection, Fault> {
        let hosts = hosts(self.0.remove("host").unwrap_or_default(), self.0.remove("port"))?;
        let user = match self.0.remove("user") {
            Some(user) => user,
            None => whoami::username()
                .map_err(|_| Fault::new("names no user, and the operating system has no name for ours"))?,
        };
        let (sslmode, sslrootcert) = self.trust()?;
        let client_cert = match (self.0.remove("sslcert"), self.0.remove("sslkey")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(Fault::new("sslcert and sslkey belong together, and only one is set"));
            }
        };
        let default_attrs = if hosts.len() > 1 { SessionAttrs::ReadWrite } else { SessionAttrs::Any };
        Ok(Connection {
            hosts,
            password: self.0.remove("password").map(Secret::new),
            dbname: self.0.remove("dbname").unwrap_or_else(|| user.clone()),
            user,
            sslmode,
            sslrootcert,
            client_cert,
            channel_binding: self.choice("channel_binding", &CHANNEL_BINDINGS)?.unwrap_or(ChannelBinding::Prefer),
            session_attrs: self.choice("target_session_attrs", &SESSION_ATTRS)?.unwrap_or(default_attrs),
            application_name: self.0.remove("application_name").unwrap_or_else(|| DEFAULT_APPLICATION.into()),
            connect_timeout: timeout(self.0.remove("connect_timeout"))?,
        })
    }

    /// `sslrootcert=system` trusts the system's store and, as in libpq, settles for nothing less than `verify-full`.
    fn trust(&mut self) -> Result<(SslMode, Option<PathBuf>), Fault> {
        let mode = self.choice("sslmode", &SSL_MODES)?;
        match (self.0.remove("sslrootcert"), mode) {
            (Some(root), Some(SslMode::VerifyFull) | None) if root == "system" => Ok((SslMode::VerifyFull, None)),
            (Some(root), Some(_)) if root == "system" => {
                Err(Fault::new("sslrootcert=system demands sslmode=verify-full").hint("set it, or leave sslmode out"))
            }
            (root, mode) => Ok((mode.unwrap_or(SslMode::Prefer), root.map(PathBuf::from))),
        }
    }

    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&'static str, T)]) -> Result<Option<T>, Fault> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        match choices.iter().find(|(choice, _)| *choice == value) {
            Some((_, chosen)) => Ok(Some(*chosen)),
            None => Err(one_of(name, &choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>())),
        }
    }
}

const QUOTE: &str = "put a value with spaces into single quotes, and a backslash before ' and \\";

const SSL_MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const CHANNEL_BINDINGS: [(&str, ChannelBinding); 3] =
    [("disable", ChannelBinding::Disable), ("prefer", ChannelBinding::Prefer), ("require", ChannelBinding::Require)];

/// The others of libpq mean standbys, from which the relay cannot read.
const SESSION_ATTRS: [(&str, SessionAttrs); 3] =
    [("any", SessionAttrs::Any), ("read-write", SessionAttrs::ReadWrite), ("primary", SessionAttrs::ReadWrite)];

fn hosts(hosts: String, ports: Option<String>) -> Result<Vec<Host>, Fault> {
    let hosts: Vec<&str> = hosts.split(',').collect();
    let ports = ports.unwrap_or_default();
    let ports: Vec<&str> = ports.split(',').collect();
    if ports.len() != 1 && ports.len() != hosts.len() {
        return Err(Fault::new(format!("has {} ports for {} hosts", ports.len(), hosts.len()))
            .hint("one port for all hosts, or one for each"));
    }
    hosts.iter().zip(ports.iter().cycle()).map(|(name, port)| host(name, port)).collect()
}

fn host(name: &str, port: &str) -> Result<Host, Fault> {
    let port = match port {
        "" => DEFAULT_PORT,
        text => text
            .trim()
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| Fault::new("a port is not a number from 1 to 65535").hint(ENCODE))?,
    };
    if name.is_empty() {
        return Ok(Host::Unix(DEFAULT_SOCKET.into(), port));
    }
    if name.starts_with('/') {
        return Ok(Host::Unix(name.into(), port));
    }
    if name.contains(|char: char| char == '@' || char.is_whitespace() || char.is_control()) {
        return Err(Fault::new("a host's name holds \"@\" or a space").hint(ENCODE));
    }
    Ok(Host::Tcp(name.into(), port))
}

fn timeout(seconds: Option<String>) -> Result<Duration, Fault> {
    let Some(seconds) = seconds else { return Ok(DEFAULT_TIMEOUT) };
    match seconds.trim().parse::<u32>() {
        Ok(0) => Ok(DEFAULT_TIMEOUT),
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => Err(Fault::new("connect_timeout is not a whole number of seconds")),
    }
}

/// The value in front, and what stands behind it.
fn keyword_value(text: &str) -> Result<(String, &str), Fault> {
    let mut value = String::new();
    let quoted = text.starts_with('\'');
    let mut chars = text.chars();
    if quoted {
        chars.next();
    }
    loop {
        let rest = chars.as_str();
        match chars.next() {
            Some('\\') => value.extend(chars.next()),
            Some('\'') if quoted => return Ok((value, chars.as_str())),
            Some(char) if !quoted && char.is_whitespace() => return Ok((value, rest)),
            Some(char) => value.push(char),
            None if quoted => return Err(Fault::new("a quoted value lacks its closing quote").hint(QUOTE)),
            None => return Ok((value, "")),
        }
    }
}

fn decode(text: &str) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |index: usize| rest.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(Fault::new("a \"%\" is not followed by two hexadecimal digits").hint(ENCODE));
        };
        bytes.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits make a byte"));
        rest = &rest[2..];
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) | Err(_) => Err(Fault::new("percent-encoding gives something that is not text")),
    }
}

fn one_of(name: &str, allowed: &[&str]) -> Fault {
    Fault::new(format!("{name} has a value that is not allowed")).hint(format!("allowed: {}", allowed.join(", ")))
}

fn unknown(name: &str) -> Fault {
    let taken: Vec<&str> =
        PARAMETERS.iter().filter(|(_, usage)| matches!(usage, Use::Taken)).map(|(known, _)| *known).collect();
    match nearest(name, &taken) {
        Some(known) => Fault::new(format!("unknown parameter \"{name}\"")).hint(format!("did you mean \"{known}\"?")),
        // Far from every name it may as well be a piece of a password.
        None => Fault::new("unknown parameter").hint(format!("known: {}; {ENCODE}", taken.join(", "))),
    }
}

#[cfg(test)]
mod tests;
