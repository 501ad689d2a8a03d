//! Asks PostgreSQL and Kafka, in that order: which topics matter shows only in the rows.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::config::{Config, Connection, Host, SslMode, Store};
use crate::error::Error;
use crate::sink::inspect::inspect;
use crate::source::catalog::Catalog;
use crate::source::catalog::survey::{Ask, Survey};
use crate::source::wire::Session;

use super::facts::{Facts, Replication, Step, Stop};
use super::routing;

pub(super) async fn gather(config: &Config) -> Facts {
    let (survey, replication) = tokio::join!(survey(config), replication(config));
    let (survey, stopped) = match survey {
        Ok(survey) => (Some(survey), None),
        Err(stop) => (None, Some(stop)),
    };
    let topics = routing::topics(config, survey.as_ref().map_or(&[], |survey| &survey.tables));
    let of_letters = match &config.dead_letter.store {
        Store::Kafka(topic) => Some(topic),
        Store::Postgres => None,
    };
    let names: BTreeSet<String> = topics.keys().chain(of_letters).cloned().collect();
    let mut kafka = inspect(&config.kafka, &names, config.limits.sql).await;
    let letter_topic = kafka.topics.iter().find(|topic| Some(&topic.name) == of_letters).cloned();
    // What is said about topics is about those of events.
    kafka.topics.retain(|topic| topics.contains_key(&topic.name));
    Facts { stopped, survey, replication, topics, kafka, letter_topic }
}

async fn survey(config: &Config) -> std::result::Result<Survey, Stop> {
    let connection = &config.postgres.connection;
    let catalog = match Catalog::connect(connection, config.limits.sql).await {
        Ok(catalog) => catalog,
        Err(error) => return Err(stop(step(connection, &error).await, &error)),
    };
    let route_columns = config.outbox.iter().flat_map(|outbox| routing::columns_sampled(config, outbox)).collect();
    let ask = Ask {
        slot: &config.postgres.slot,
        publication: &config.postgres.publication,
        outboxes: &config.outbox,
        route_columns: &route_columns,
    };
    catalog.survey(&ask).await.map_err(|error| stop(Step::Survey, &error))
}

async fn replication(config: &Config) -> Replication {
    let connection = &config.postgres.connection;
    let mut session = match Session::connect(connection, config.postgres.sender_timeout).await {
        Ok(session) => session,
        Err(error) => return Replication::Stopped(stop(step(connection, &error).await, &error)),
    };
    // Losing the session over this question says no more than not having asked it.
    let shown = session.show("wal_sender_timeout").await.ok().flatten();
    let sender_timeout = shown.as_deref().and_then(duration);
    Replication::Identified { system: session.system(), login: session.login(), sender_timeout }
}

/// `30s`, `1min`, `0`: as `SHOW` prints a duration that is kept in milliseconds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.parse::<u64>().ok()? * milliseconds))
}

fn stop(step: Step, error: &Error) -> Stop {
    Stop {
        step,
        message: error.chain(),
        sqlstate: error.sqlstate().map(str::to_owned),
        hint: error.hint_text().map(str::to_owned),
    }
}

/// Goes the way again, step by step, to see how far it leads.
async fn step(connection: &Connection, error: &Error) -> Step {
    // The server asked for a password that is not there: then the driver says so, not the server.
    if error.sqlstate().is_some() || error.chain().contains("password") {
        return Step::Login;
    }
    let mut furthest = Step::Dns;
    for host in &connection.hosts {
        let Host::Tcp(name, port) = host else { return Step::Tcp };
        let Ok(Ok(addresses)) = timeout(connection.connect_timeout, lookup_host((name.as_str(), *port))).await else {
            continue;
        };
        let addresses: Vec<_> = addresses.collect();
        match timeout(connection.connect_timeout, TcpStream::connect(addresses.as_slice())).await {
            Ok(Ok(_)) if connection.sslmode == SslMode::Disable => return Step::Login,
            Ok(Ok(_)) => return Step::Tls,
            Ok(Err(_)) | Err(_) => furthest = Step::Tcp,
        }
    }
    furthest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_the_server_prints_it() {
        for (text, seconds) in
            [("0", Some(0)), ("30s", Some(30)), ("1min", Some(60)), ("2h", Some(7200)), ("1d", Some(86_400))]
        {
            assert_eq!(duration(text), seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(duration("1500ms"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("soon"), None);
    }
}
