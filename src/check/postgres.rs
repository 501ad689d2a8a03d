//! Verdicts about the server, the role and the two sessions: `pg.*`.

use std::time::Duration;

use crate::config::{Config, Connection, Host, SslMode};
use crate::source::catalog::survey::{Role, Setup, Spill, Survey};
use crate::source::catalog::{Server, Transaction, quote_literal};
use crate::source::dial::address;
use crate::source::wire::Login;

use super::Finding;
use super::facts::{Facts, Replication, Step, Stop};
use super::provider::Provider;
use super::words;

/// A transaction older than this is named.
const LONG_TRANSACTION_S: i64 = 60;

pub(super) fn judge(config: &Config, facts: &Facts) -> Vec<Finding> {
    let connection = &config.postgres.connection;
    let mut findings = Vec::new();
    findings.extend(pooler(connection, &facts.replication));
    if let Some(stop) = &facts.stopped {
        findings.push(stopped(connection, stop));
    }
    let Some(survey) = &facts.survey else { return findings };
    findings.extend(hba(connection, &facts.replication));
    let Survey { setup, role, .. } = survey;
    findings.push(reached(connection, setup.tls.as_deref(), &facts.replication));
    findings.extend(same_server(&survey.server, &facts.replication));
    findings.push(wal_level(survey.server.version, setup));
    findings.push(self::role(role, Provider::of(setup)));
    findings.push(privileges(survey));
    findings.push(capacity(survey));
    findings.push(plugin(survey.server.version, setup));
    findings.push(minor(survey.server.version));
    findings.push(sync_commit(setting(setup, "synchronous_standby_names"), &connection.application_name));
    findings.push(sender_timeout(config.postgres.sender_timeout, &facts.replication));
    findings.push(long_xact(&survey.transactions, role));
    findings.push(spill(survey.spill, role, setup));
    findings.push(rls(survey));
    findings
}

fn stopped(connection: &Connection, stop: &Stop) -> Finding {
    let hint = stop.hint.clone().unwrap_or_else(|| reach_hint(connection, stop));
    Finding::fail("pg.reach", format!("{} failed: {}", stop.step.name(), stop.message)).hint(hint)
}

fn reached(connection: &Connection, tls: Option<&str>, replication: &Replication) -> Finding {
    const ID: &str = "pg.reach";
    const HINT: &str = "add sslmode=verify-full (and sslrootcert=…) to postgres.url";
    let hosts: Vec<String> = connection.hosts.iter().map(address).collect();
    let by = match replication {
        Replication::Identified { login, .. } => format!(" by {}", login_name(*login)),
        Replication::Stopped(_) | Replication::Unasked => String::new(),
    };
    let login = format!("{}: logged in to \"{}\" as \"{}\"{by}", hosts.join(","), connection.dbname, connection.user);
    let verified = match connection.sslmode {
        SslMode::VerifyCa | SslMode::VerifyFull => true,
        SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require => false,
    };
    match tls {
        Some(version) if verified => Finding::ok(ID, format!("{login} over {version}, certificate verified")),
        Some(version) => {
            Finding::warn(ID, format!("{login} over {version}, but nothing proves that this is your server")).hint(HINT)
        }
        None if connection.hosts.iter().all(is_local) => Finding::ok(ID, login),
        None => Finding::warn(ID, format!("{login} without TLS: events cross the network in clear")).hint(HINT),
    }
}

fn login_name(login: Login) -> &'static str {
    match login {
        Login::Trust => "trust",
        Login::Cleartext => "password",
        Login::Md5 => "MD5",
        Login::Scram => "SCRAM-SHA-256",
        Login::ScramPlus => "SCRAM-SHA-256-PLUS",
    }
}

fn reach_hint(connection: &Connection, stop: &Stop) -> String {
    let (user, database) = (words::identifier(&connection.user), words::identifier(&connection.dbname));
    let hint = match (stop.step, stop.sqlstate.as_deref()) {
        (Step::Dns, _) => "check the host's name in postgres.url",
        (Step::Tcp, _) => "check host, port and firewall, listen_addresses, and whether the instance sleeps",
        (Step::Tls, _) => "look at the certificate: openssl s_client -starttls postgres -connect HOST:PORT",
        (Step::Login, Some("28P01")) => return format!("mend the password, or: ALTER ROLE {user} PASSWORD '…';"),
        (Step::Login, Some("28000")) => {
            return format!("add to pg_hba.conf: host {database} {user} ADDRESS/32 scram-sha-256");
        }
        (Step::Login, Some("3D000")) => {
            return format!("mend the database in postgres.url, or: CREATE DATABASE {database};");
        }
        (Step::Login, Some("53300")) => "raise max_connections, or end idle sessions",
        (Step::Login, Some("57P03")) => "the server starts up, shuts down or recovers: try again",
        (Step::Login, Some("42501")) => return format!("GRANT CONNECT ON DATABASE {database} TO {user};"),
        (Step::Login, Some(_) | None) | (Step::Survey, _) => "see the server's log for the same moment",
    };
    hint.to_owned()
}

fn pooler(connection: &Connection, replication: &Replication) -> Option<Finding> {
    const ID: &str = "pg.pooler";
    const HINT: &str = "use the server's direct address: Supavisor and Neon's pooled host never pass replication on, \
                        PgBouncer only from 1.23";
    let suspect = connection.hosts.iter().find(|host| match host {
        Host::Tcp(name, port) => name.contains("-pooler") || name.contains(".pooler.") || *port == 6543,
        Host::Unix(_, _) => false,
    });
    let refused = |stop: &Stop| stop.sqlstate.as_deref() == Some("08P01") && stop.message.contains("replication");
    match (replication, suspect) {
        (Replication::Stopped(stop), _) if refused(stop) => {
            Some(Finding::fail(ID, format!("a pooler refuses replication: {}", stop.message)).hint(HINT))
        }
        (Replication::Identified { .. }, None) => Some(Finding::ok(ID, "replication is passed on to a real walsender")),
        (Replication::Identified { .. }, Some(host)) => {
            Some(Finding::warn(ID, format!("{} looks like a pooler", address(host))).hint(HINT))
        }
        (Replication::Stopped(_) | Replication::Unasked, Some(host)) => Some(
            Finding::fail(ID, format!("{} looks like a pooler, and there is no replication session", address(host)))
                .hint(HINT),
        ),
        (Replication::Stopped(_) | Replication::Unasked, None) => None,
    }
}

fn hba(connection: &Connection, replication: &Replication) -> Option<Finding> {
    const ID: &str = "pg.hba";
    let stop = match replication {
        Replication::Identified { .. } => return Some(Finding::ok(ID, "a replication session is let in")),
        Replication::Unasked => return None,
        Replication::Stopped(stop) => stop,
    };
    let database = words::identifier(&connection.dbname);
    let user = words::identifier(&connection.user);
    Some(match stop.sqlstate.as_deref() {
        Some("28000") if stop.message.contains("pg_hba.conf") => Finding::fail(ID, stop.message.clone()).hint(format!(
            "add to pg_hba.conf: hostssl {database} {user} ADDRESS/32 scram-sha-256  (the word \"replication\" there \
             matches physical connections only)"
        )),
        // The role's missing attribute is pg.role's to explain.
        Some("42501") => Finding::ok(ID, "the connection was let in; the role may not replicate"),
        Some(_) | None => Finding::fail(ID, format!("no replication session: {}", stop.message))
            .hint(stop.hint.clone().unwrap_or_else(|| "see the server's log for the same moment".to_owned())),
    })
}

fn same_server(server: &Server, replication: &Replication) -> Option<Finding> {
    const ID: &str = "pg.same_server";
    const HINT: &str =
        "use the primary's direct address in postgres.url, or all hosts and target_session_attrs=read-write";
    if server.in_recovery {
        return Some(Finding::fail(ID, "the server is a standby (in recovery)").hint(HINT));
    }
    let Replication::Identified { system, .. } = replication else { return None };
    Some(match server.system {
        Some(sql) if sql.id != system.id => {
            let message = format!("SQL reaches system {}, replication reaches system {}", sql.id, system.id);
            Finding::fail(ID, message).hint(HINT)
        }
        Some(_) => Finding::ok(ID, format!("both sessions reach the same primary: {system}")),
        None => Finding::skipped(ID, "a primary, but which one pg_control_system() does not tell this role"),
    })
}

fn wal_level(version: u32, setup: &Setup) -> Finding {
    const ID: &str = "pg.wal_level";
    let level = setting(setup, "wal_level").unwrap_or("unknown");
    // From 19 on, the first logical slot raises the level of a server that is set to replica.
    if version >= 190_000 {
        let effective = setting(setup, "effective_wal_level").unwrap_or(level);
        return match level {
            "logical" | "replica" => Finding::ok(ID, format!("wal_level = {level}, effective {effective}")),
            other => Finding::fail(ID, format!("wal_level = {other}"))
                .hint("ALTER SYSTEM SET wal_level = replica;  -- then restart the server"),
        };
    }
    match level {
        "logical" => Finding::ok(ID, "wal_level = logical"),
        other => Finding::fail(
            ID,
            format!("wal_level = {other}, and logical decoding needs \"logical\"; the change needs a restart"),
        )
        .hint(Provider::of(setup).wal_level()),
    }
}

fn role(role: &Role, provider: Provider) -> Finding {
    const ID: &str = "pg.role";
    let name = words::identifier(&role.name);
    if role.superuser {
        Finding::warn(ID, format!("role \"{}\" is a superuser: far more than a relay needs", role.name))
            .hint("outboxd init --dry-run prints the statements for a role with the least privileges")
    } else if role.replication || role.rds_replication {
        Finding::ok(ID, format!("role \"{}\" may replicate", role.name))
    } else {
        Finding::fail(ID, format!("role \"{}\" may not replicate", role.name)).hint(provider.replication_role(&name))
    }
}

fn privileges(survey: &Survey) -> Finding {
    const ID: &str = "pg.privileges";
    let Some(table) = survey.position_table else {
        return Finding::fail(ID, "table outboxd.position does not exist").hint("outboxd init");
    };
    let rights = [("SELECT", table.select), ("INSERT", table.insert), ("UPDATE", table.update)];
    let missing: Vec<&str> = rights.iter().filter(|(_, has)| !has).map(|(right, _)| *right).collect();
    let name = words::identifier(&survey.role.name);
    if !table.usage {
        Finding::fail(ID, "role may not use schema outboxd").hint(format!("GRANT USAGE ON SCHEMA outboxd TO {name};"))
    } else if !missing.is_empty() {
        let missing = missing.join(", ");
        Finding::fail(ID, format!("role lacks {missing} on outboxd.position"))
            .hint(format!("GRANT {missing} ON outboxd.position TO {name};"))
    } else {
        Finding::ok(ID, "outboxd.position is there and writable")
    }
}

fn capacity(survey: &Survey) -> Finding {
    const ID: &str = "pg.capacity";
    let limit = |name: &str| setting(&survey.setup, name).and_then(|value| value.parse::<i64>().ok());
    let raise = |name: &str, free: i64| {
        let more = limit(name).unwrap_or(10) - free + 5;
        format!("ALTER SYSTEM SET {name} = {more};  -- then restart the server; or drop a slot that nobody reads")
    };
    // A slot that exists already has its place; so has the walsender of a relay that runs.
    let slots = match (&survey.slot, limit("max_replication_slots")) {
        (None, Some(limit)) => Some(limit - i64::try_from(survey.slots.len()).unwrap_or(i64::MAX)),
        (Some(_), _) | (None, None) => None,
    };
    let running = survey.slot.as_ref().is_some_and(|slot| slot.holder.is_some());
    let senders = match (running, limit("max_wal_senders")) {
        (false, Some(limit)) => Some(limit - survey.senders.all),
        (true, _) | (false, None) => None,
    };
    let free = [("max_replication_slots", slots), ("max_wal_senders", senders)];
    match free.iter().filter_map(|(name, free)| free.map(|free| (free, *name))).min() {
        Some((free, name)) if free <= 0 => Finding::fail(ID, format!("{name}: none is free")).hint(raise(name, free)),
        Some((1, name)) => {
            Finding::warn(ID, format!("{name}: only one is free, so a hand-over may fail")).hint(raise(name, 1))
        }
        Some((free, name)) => Finding::ok(ID, format!("{free} of {name} are free")),
        None => Finding::ok(ID, "slot and walsender have their places"),
    }
}

fn plugin(number: u32, setup: &Setup) -> Finding {
    const ID: &str = "pg.plugin";
    match setting(setup, "output_plugin_libraries") {
        Some(list) if names(list).iter().any(|name| name == "pgoutput") => Finding::ok(ID, "pgoutput may be loaded"),
        Some(list) => Finding::fail(ID, format!("output_plugin_libraries = '{list}' lacks pgoutput"))
            .hint("ALTER SYSTEM SET output_plugin_libraries = 'pgoutput'; SELECT pg_reload_conf();"),
        None if has_august_2026(number) => Finding::skipped(ID, "output_plugin_libraries is hidden from this role"),
        None => Finding::warn(
            ID,
            format!("PostgreSQL {} lets any REPLICATION role load any library (CVE-2026-6471)", version(number)),
        )
        .hint("take the minor release of August 2026 or a later one"),
    }
}

/// The minors with the setting: those of August 2026.
fn has_august_2026(number: u32) -> bool {
    match number / 10_000 {
        14 => number >= 140_024,
        15 => number >= 150_019,
        16 => number >= 160_015,
        17 => number >= 170_011,
        18 => number >= 180_005,
        major => major >= 19,
    }
}

fn minor(number: u32) -> Finding {
    const ID: &str = "pg.minor";
    let shutdown = match number / 10_000 {
        14 => number < 140_023,
        15 => number < 150_018,
        16 => number < 160_014,
        17 => number < 170_010,
        18 => number < 180_004,
        _ => false,
    };
    let name = version(number);
    if number < 140_000 {
        Finding::fail(ID, format!("PostgreSQL {name} is too old")).hint("outboxd works with PostgreSQL 14 and later")
    } else if shutdown {
        Finding::notice(
            ID,
            format!("PostgreSQL {name}: a walsender can spin while the server shuts down (mended in May 2026)"),
        )
        .hint("take the newest minor release")
    } else if (180_000..180_006).contains(&number) {
        Finding::notice(
            ID,
            format!("PostgreSQL {name}: sends stray Stream Abort messages (bug #19616), which outboxd ignores"),
        )
        .hint("take 18.6 or later")
    } else {
        Finding::ok(ID, format!("PostgreSQL {name}"))
    }
}

fn version(number: u32) -> String {
    format!("{}.{}", number / 10_000, number % 10_000)
}

fn sync_commit(standby_names: Option<&str>, application_name: &str) -> Finding {
    const ID: &str = "pg.sync_commit";
    let Some(standby_names) = standby_names else {
        return Finding::skipped(ID, "synchronous_standby_names is hidden from this role");
    };
    let listed = synchronous_names(standby_names);
    let us = listed.iter().find(|name| *name == "*" || name.eq_ignore_ascii_case(application_name));
    match us.map(String::as_str) {
        None => Finding::ok(ID, "no commit waits for the relay"),
        Some("*") => Finding::fail(
            ID,
            format!(
                "synchronous_standby_names = '{standby_names}' counts the relay as a standby: a Kafka outage \
                 would block every commit"
            ),
        )
        .hint(
            "name your standbys instead of *: ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby1, \
             standby2)'; SELECT pg_reload_conf();",
        ),
        Some(_) => Finding::fail(
            ID,
            format!(
                "synchronous_standby_names = '{standby_names}' lists \"{application_name}\", our \
                 application_name: a Kafka outage would block every commit"
            ),
        )
        .hint("take it out of the list, or set another application_name in postgres.url"),
    }
}

/// The names in `a, b`, `2 (a, b)`, `FIRST 2 (a, b)` and `ANY 2 (a, b)`.
fn synchronous_names(text: &str) -> Vec<String> {
    let inside = match (text.find('('), text.rfind(')')) {
        (Some(open), Some(close)) if open < close && !text[..open].contains('"') => &text[open + 1..close],
        _ => text,
    };
    names(inside)
}

/// A comma-separated list of names, each of which may be quoted.
pub(super) fn names(list: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut quoted = false;
    for character in list.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => names.push(String::new()),
            other => names.last_mut().expect("there is always one").push(other),
        }
    }
    names.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn sender_timeout(wanted: Duration, replication: &Replication) -> Finding {
    const ID: &str = "pg.sender_timeout";
    const HINT: &str = "set postgres.sender_timeout = \"30s\"";
    let real = match replication {
        Replication::Identified { sender_timeout, .. } => sender_timeout.unwrap_or(wanted),
        Replication::Stopped(_) | Replication::Unasked => wanted,
    };
    if real.is_zero() {
        return Finding::warn(
            ID,
            "wal_sender_timeout is 0 in our session: a peer that died silently holds the slot for ever",
        )
        .hint(HINT);
    }
    let seconds = words::duration(real.as_secs_f64());
    if real != wanted {
        let wanted = words::duration(wanted.as_secs_f64());
        Finding::warn(
            ID,
            format!(
                "wal_sender_timeout is {seconds} in our session, not {wanted} as asked: something \
                 between drops the option"
            ),
        )
        .hint("use the server's direct address in postgres.url")
    } else {
        Finding::ok(ID, format!("a dead relay frees the slot within {seconds}"))
    }
}

fn long_xact(transactions: &[Transaction], role: &Role) -> Finding {
    const ID: &str = "pg.long_xact";
    let oldest = transactions.iter().max_by_key(|transaction| transaction.age_seconds);
    let hidden = transactions.iter().filter(|transaction| transaction.age_seconds.is_none()).count();
    match oldest {
        Some(oldest) if oldest.age_seconds.is_some_and(|age| age >= LONG_TRANSACTION_S) => {
            let hint = match oldest.pid {
                Some(pid) => format!("SELECT pg_terminate_backend({pid});  -- if nobody needs it"),
                None => {
                    let name = oldest.name.as_deref().unwrap_or_default();
                    format!("ROLLBACK PREPARED {};  -- or COMMIT PREPARED", quote_literal(name))
                }
            };
            Finding::warn(ID, format!("{oldest}: restart_lsn, vacuum and the creation of a slot wait for it"))
                .hint(hint)
        }
        _ if hidden > 0 => {
            Finding::notice(ID, format!("{hidden} transactions have written and are open; their age is hidden from us"))
                .hint(format!("GRANT pg_read_all_stats TO {};", words::identifier(&role.name)))
        }
        Some(_) | None => Finding::ok(ID, "no transaction that has written is older than a minute"),
    }
}

fn spill(spill: Option<Spill>, role: &Role, setup: &Setup) -> Finding {
    const ID: &str = "pg.spill";
    let Some(Spill { spill_bytes, total_bytes }) = spill.filter(|spill| spill.total_bytes > 0) else {
        return Finding::ok(ID, "nothing decoded through this slot yet");
    };
    let share = spill_bytes as f64 / total_bytes as f64;
    if share <= 0.1 {
        return Finding::ok(ID, format!("{:.0} % of the decoded bytes went to disk", share * 100.0));
    }
    let memory = bytes(setup, "logical_decoding_work_mem").unwrap_or(64.0 * 1024.0 * 1024.0);
    Finding::warn(
        ID,
        format!(
            "{:.0} % of the decoded bytes were spilled to disk with logical_decoding_work_mem = {}",
            share * 100.0,
            words::bytes(memory)
        ),
    )
    .hint(format!(
        "ALTER ROLE {} SET logical_decoding_work_mem = '{:.0}MB';",
        words::identifier(&role.name),
        memory / 1024.0 / 1024.0 * 4.0
    ))
}

fn rls(survey: &Survey) -> Finding {
    const ID: &str = "pg.rls";
    let filtered: Vec<String> = survey
        .tables
        .iter()
        .filter(|table| table.row_security)
        .map(|table| format!("{}.{}", table.schema, table.name))
        .collect();
    let role = &survey.role;
    if filtered.is_empty() || role.bypass_rls || role.superuser {
        return Finding::ok(ID, "row security hides no row from us");
    }
    Finding::warn(
        ID,
        format!(
            "row security applies to us on {}: reading the table after a lost slot would miss rows \
             (the stream does not)",
            words::list(&filtered)
        ),
    )
    .hint(format!("ALTER ROLE {} BYPASSRLS;", words::identifier(&role.name)))
}

/// A setting's text.
pub(super) fn setting<'a>(setup: &'a Setup, name: &str) -> Option<&'a str> {
    setup.settings.get(name).map(|setting| setting.setting.as_str())
}

/// A size setting in bytes; negative stays negative.
pub(super) fn bytes(setup: &Setup, name: &str) -> Option<f64> {
    let setting = setup.settings.get(name)?;
    let unit = match setting.unit.as_deref() {
        Some("kB") => 1024.0,
        Some("MB") => 1024.0 * 1024.0,
        Some("8kB") => 8192.0,
        Some(_) | None => 1.0,
    };
    Some(setting.setting.parse::<f64>().ok()? * unit)
}

/// A duration setting in seconds.
pub(super) fn seconds(setup: &Setup, name: &str) -> Option<f64> {
    let setting = setup.settings.get(name)?;
    let unit = match setting.unit.as_deref() {
        Some("ms") => 0.001,
        Some("min") => 60.0,
        Some(_) | None => 1.0,
    };
    Some(setting.setting.parse::<f64>().ok()? * unit)
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name, _) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        Host::Unix(_, _) => true,
    }
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
