//! `[postgres]`: `database.*` becomes a url, slot and publication keep their names. No password is ever written.

use super::Finding;
use super::Work;
use super::settings::Setting;

/// What stands for a value that the file does not tell.
pub const FILL_IN: &str = "FILL-IN";

const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Writes the section.
pub fn write(work: &mut Work) {
    url(work);
    password(work);
    slot(work);
    publication(work);
}

/// `topic.prefix`, or the name it had before 2.0; taken out.
pub fn topic_prefix(work: &mut Work) -> Option<Setting> {
    let old = work.settings.take("database.server.name");
    match (work.settings.take("topic.prefix"), old) {
        (Some(prefix), Some(old)) => {
            work.not_needed(old.origin, "the name of topic.prefix before 2.0, which is set as well");
            Some(prefix)
        }
        (prefix, old) => prefix.or(old),
    }
}

fn url(work: &mut Work) {
    let mut from = Vec::new();
    let user = part(work, "database.user", "user", &mut from);
    let host = part(work, "database.hostname", "host", &mut from);
    let port = port(work, &mut from);
    let database = part(work, "database.dbname", "database", &mut from);
    let parameters = parameters(work, &mut from);
    let query: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value, "/._-:"))).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    // JDBC joins them the same way, so that several hosts in database.hostname stay several.
    let host = encoded(&bracketed(&host), "._-:,[]");
    let url = format!("postgres://{}@{host}{port}/{}{query}", encoded(&user, "._-"), encoded(&database, "._-"));
    work.draft.postgres.text("url", &url, &from.join(", "));
}

/// JDBC's driver takes an IPv6 address as it is, a url only between brackets.
fn bracketed(hosts: &str) -> String {
    let is_address = |host: &str| {
        let address = host.split_once('%').map_or(host, |(address, _zone)| address);
        let is_whole = address.contains("::") || address.matches(':').count() >= 6;
        is_whole && address.chars().all(|char| char.is_ascii_hexdigit() || matches!(char, ':' | '.'))
    };
    let hosts = hosts.split(',').map(|host| match is_address(host) {
        true => format!("[{host}]"),
        false => host.to_owned(),
    });
    hosts.collect::<Vec<_>>().join(",")
}

/// A part of the url that must be there.
fn part(work: &mut Work, name: &str, what: &str, from: &mut Vec<String>) -> String {
    let Some(setting) = work.settings.take(name) else {
        let name = work.named(name);
        work.draft.postgres.comment(format!("FILL IN the {what}: {name} is not set."));
        work.fill_in(Finding::new(name, format!("not set: write the {what} into postgres.url")));
        return FILL_IN.to_owned();
    };
    from.push(setting.origin.clone());
    match setting.text() {
        Some(text) => text,
        None => {
            reference(work, &setting, &format!("the {what}"), "postgres.url");
            FILL_IN.to_owned()
        }
    }
}

fn port(work: &mut Work, from: &mut Vec<String>) -> String {
    let Some(setting) = work.settings.take("database.port") else { return String::new() };
    from.push(setting.origin.clone());
    match setting.text() {
        Some(port) => format!(":{port}"),
        None => {
            reference(work, &setting, "the port", "postgres.url");
            String::new()
        }
    }
}

/// A value that only the worker could look up.
fn reference(work: &mut Work, setting: &Setting, what: &str, field: &str) {
    let shown = setting.value.shown();
    work.draft.postgres.comment(format!("FILL IN {what}: {} is {shown}.", setting.origin));
    let message = format!("is {shown}, which outboxd does not look up: write {what} into {field}");
    work.fill_in(Finding::new(&setting.origin, message));
}

/// What libpq calls otherwise, or not at all.
fn parameters(work: &mut Work, from: &mut Vec<String>) -> Vec<(&'static str, String)> {
    let mut parameters = Vec::new();
    let mode = work.settings.take("database.sslmode");
    if let Some(setting) = &mode {
        let text = setting.text().unwrap_or_default().to_lowercase();
        match SSL_MODES.iter().find(|mode| **mode == text) {
            Some(mode) => {
                from.push(setting.origin.clone());
                parameters.push(("sslmode", (*mode).to_owned()));
            }
            None => work.lost(
                Finding::new(&setting.origin, "is no sslmode of libpq")
                    .hint(format!("one of {}", SSL_MODES.join(", "))),
            ),
        }
    }
    for (name, parameter) in
        [("database.sslrootcert", "sslrootcert"), ("database.sslcert", "sslcert"), ("database.sslkey", "sslkey")]
    {
        let Some(setting) = work.settings.take(name) else { continue };
        match setting.text() {
            Some(text) => {
                from.push(setting.origin);
                parameters.push((parameter, text));
            }
            None => reference(work, &setting, &format!("the parameter {parameter}"), "postgres.url"),
        }
    }
    let has = |name: &str| parameters.iter().any(|(parameter, _)| *parameter == name);
    if has("sslkey") {
        let message = "PostgreSQL's JDBC driver wants the key in PKCS-8 DER, outboxd in PEM";
        let hint = "openssl pkcs8 -inform DER -in KEY -nocrypt -out KEY.pem";
        work.differs(Finding::new(work.named("database.sslkey"), message).hint(hint));
    }
    if has("sslcert") != has("sslkey") {
        work.fill_in(Finding::new(
            work.named("database.sslcert"),
            "sslcert and sslkey belong together: name the other file, too",
        ));
        parameters.retain(|(parameter, _)| !["sslcert", "sslkey"].contains(parameter));
    }
    if mode.is_some_and(|mode| mode.text().is_some_and(|mode| mode.to_lowercase().starts_with("verify")))
        && !parameters.iter().any(|(parameter, _)| *parameter == "sslrootcert")
    {
        let message =
            "without database.sslrootcert the driver trusts ~/.postgresql/root.crt, outboxd the system's store";
        work.differs(
            Finding::new(work.named("database.sslmode"), message)
                .hint("name the file with sslrootcert in postgres.url"),
        );
    }
    parameters.extend(driver(work, from));
    parameters
}

/// Parameters of the JDBC driver, which Debezium hands on.
fn driver(work: &mut Work, from: &mut Vec<String>) -> Vec<(&'static str, String)> {
    let mut parameters = Vec::new();
    for start in ["database.", "driver."] {
        for (name, parameter) in [
            ("ApplicationName", "application_name"),
            ("connectTimeout", "connect_timeout"),
            ("targetServerType", "target_session_attrs"),
            ("channelBinding", "channel_binding"),
        ] {
            let Some(setting) = work.settings.take(&format!("{start}{name}")) else { continue };
            let text = setting.text().unwrap_or_default();
            let value = match (name, text.as_str()) {
                ("targetServerType", "primary" | "master") => "read-write",
                ("targetServerType", "any") => "any",
                ("targetServerType", _) => {
                    work.lost(Finding::new(
                        setting.origin,
                        "outboxd reads from a primary, or from whatever it reaches",
                    ));
                    continue;
                }
                ("connectTimeout", text) if text.parse::<u32>().is_err() => {
                    work.lost(Finding::new(setting.origin, "is no whole number of seconds"));
                    continue;
                }
                (_, text) => text,
            };
            from.push(setting.origin);
            parameters.push((parameter, value.to_owned()));
        }
    }
    parameters
}

fn password(work: &mut Work) {
    let Some(setting) = work.settings.take("database.password") else { return };
    let origin = &setting.origin;
    let references = setting.value.references();
    let (comment, message) = match references.is_empty() {
        true => (
            format!("FILL IN: {origin} is a secret and is not copied."),
            "a secret, not copied: give it by postgres.password_file or the variable OUTBOXD_POSTGRES__PASSWORD"
                .to_owned(),
        ),
        false => (
            format!("FILL IN: {origin} is {}.", references.join("")),
            format!(
                "is {}: give it by postgres.password_file or the variable OUTBOXD_POSTGRES__PASSWORD",
                references.join("")
            ),
        ),
    };
    work.draft.postgres.comment(format!("{comment} Name its file here, or set OUTBOXD_POSTGRES__PASSWORD."));
    work.draft.postgres.off("password_file", "\"/run/secrets/postgres\"", "");
    work.fill_in(Finding::new(setting.origin, message));
}

fn slot(work: &mut Work) {
    let (slot, note) = named(work, "slot.name", "debezium", "the slot", "fill_in");
    work.draft.postgres.text("slot", &slot, &note);
    let plugin = work.settings.take("plugin.name");
    if plugin.as_ref().is_some_and(|plugin| plugin.is("pgoutput")) {
        return;
    }
    let (origin, message) = match plugin {
        Some(plugin) => {
            (plugin.origin, "is not pgoutput: outboxd cannot read the slot that was made for it".to_owned())
        }
        None => (
            work.named("plugin.name"),
            "not set, so Debezium made the slot for decoderbufs, its default, which outboxd cannot read".to_owned(),
        ),
    };
    let hint = "let Debezium publish everything and stop it, drop the slot, and create it anew with outboxd init, while nothing is written";
    work.lost(Finding::new(origin, message).hint(hint));
}

fn publication(work: &mut Work) {
    let (publication, note) = named(work, "publication.name", "dbz_publication", "the publication", "fill_in");
    work.draft.postgres.text("publication", &publication, &note);
    match work.settings.take("publication.autocreate.mode") {
        Some(mode) if mode.is("disabled") => {
            work.not_needed(mode.origin, "outboxd changes no publication while it runs")
        }
        Some(mode) if !mode.is("all_tables") => {
            let message = "outboxd makes and changes no publication while it runs";
            work.differs(Finding::new(mode.origin, message).hint("outboxd init makes one for the outbox tables"));
        }
        mode => {
            let message =
                "Debezium makes a publication of all tables; all their changes would be read, and thrown away";
            let origin = mode.map_or(work.named("publication.autocreate.mode"), |mode| mode.origin);
            let hint = "a publication of the outbox tables alone costs less; outboxd init makes one";
            work.differs(Finding::new(origin, message).hint(hint));
        }
    }
}

/// A name that Debezium has a default for; which is written, because ours is another.
fn named(work: &mut Work, option: &str, default: &str, what: &str, unknown: &str) -> (String, String) {
    match work.settings.take(option) {
        None => (default.to_owned(), format!("Debezium's default: {} is not set", work.named(option))),
        Some(setting) => match setting.text() {
            Some(text) => (text, setting.origin),
            None => {
                let field = format!("postgres.{}", option.trim_end_matches(".name"));
                reference(work, &setting, &format!("{what}'s name"), &field);
                (unknown.to_owned(), setting.origin)
            }
        },
    }
}

/// Percent-encodes all but letters, digits and these.
fn encoded(text: &str, plain: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.bytes().any(|plain| plain == byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{bracketed, encoded};

    #[test]
    fn what_a_url_cannot_hold_is_encoded() {
        for (text, expected) in [("dbz", "dbz"), ("a@b/c", "a%40b%2Fc"), ("é", "%C3%A9"), ("a b%", "a%20b%25")] {
            assert_eq!(encoded(text, "._-"), expected);
        }
        assert_eq!(encoded("db1:5432,[::1]", "._-:,[]"), "db1:5432,[::1]");
    }

    #[test]
    fn an_ipv6_address_stands_between_brackets() {
        for (typed, expected) in [
            ("::1", "[::1]"),
            ("2001:db8:0:0:0:0:0:1", "[2001:db8:0:0:0:0:0:1]"),
            ("0:0:0:0:0:ffff:10.0.0.1", "[0:0:0:0:0:ffff:10.0.0.1]"),
            ("fe80::1%eth0", "[fe80::1%eth0]"),
            ("db1,::1,db2", "db1,[::1],db2"),
            ("[::1]:5432,db", "[::1]:5432,db"),
            ("db1:5432,db2", "db1:5432,db2"),
            ("10.0.0.1", "10.0.0.1"),
            ("cafe", "cafe"),
            ("[::1", "[::1"),
            ("", ""),
        ] {
            assert_eq!(bracketed(typed), expected);
        }
    }
}
