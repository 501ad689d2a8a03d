//! What is carried: how many rows a transaction has, how large they are, what else is written, and the way from the database and to the broker.

use std::time::Duration;

use crate::contender::PARTITIONS;
use crate::support::postgres::Database;

/// One backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Workload {
    ThousandRows,
    OneRow,
    FourKilobytes,
    OneTransaction,
    BusyNeighbour,
    FarBroker,
    ManyPartitions,
    UnixSocket,
}

impl Workload {
    /// All of them, in the order of the table.
    pub const ALL: [Workload; 8] = [
        Workload::ThousandRows,
        Workload::OneRow,
        Workload::FourKilobytes,
        Workload::OneTransaction,
        Workload::BusyNeighbour,
        Workload::FarBroker,
        Workload::ManyPartitions,
        Workload::UnixSocket,
    ];

    /// As `--only` and the table name it.
    pub fn name(self) -> &'static str {
        match self {
            Workload::ThousandRows => "thousand-rows",
            Workload::OneRow => "one-row",
            Workload::FourKilobytes => "4-kilobytes",
            Workload::OneTransaction => "one-transaction",
            Workload::BusyNeighbour => "busy-neighbour",
            Workload::FarBroker => "far-broker",
            Workload::ManyPartitions => "many-partitions",
            Workload::UnixSocket => "unix-socket",
        }
    }

    /// What it is, in a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Workload::ThousandRows => "500-byte events in transactions of 1,000 rows",
            Workload::OneRow => "500-byte events in transactions of one row",
            Workload::FourKilobytes => "4 KB events in transactions of 1,000 rows",
            Workload::OneTransaction => "500-byte events, all in one transaction",
            Workload::BusyNeighbour => "500-byte events beside a table that writes nine tenths of the WAL",
            Workload::FarBroker => {
                "500-byte events in transactions of 1,000 rows, a round trip of about 5 ms to the broker"
            }
            Workload::ManyPartitions => "500-byte events in transactions of 1,000 rows, to a topic of 100 partitions",
            Workload::UnixSocket => "500-byte events in transactions of 1,000 rows, over the database's Unix socket",
        }
    }

    /// How many of the events that were asked for: large ones and those beside a neighbour are fewer, one transaction has more.
    pub fn events(self, asked: u64) -> u64 {
        match self {
            Workload::OneTransaction => asked * 2,
            Workload::FourKilobytes | Workload::BusyNeighbour => asked / 2,
            Workload::ThousandRows
            | Workload::OneRow
            | Workload::FarBroker
            | Workload::ManyPartitions
            | Workload::UnixSocket => asked,
        }
    }

    /// How long everything travels to the broker, and back; the proxy adds what it takes to wake up, half a millisecond.
    pub fn distance(self) -> Option<Duration> {
        (self == Workload::FarBroker).then(|| Duration::from_millis(2))
    }

    /// Of its topics.
    pub fn partitions(self) -> i32 {
        if self == Workload::ManyPartitions { 100 } else { PARTITIONS }
    }

    /// Variations in where the records go: they only concern those who send them there.
    pub fn is_about_kafka(self) -> bool {
        matches!(self, Workload::FarBroker | Workload::ManyPartitions)
    }

    /// Where the contenders find the database.
    pub fn url(self, database: &Database) -> String {
        match self {
            Workload::UnixSocket => database.server().socket_url(database.name()),
            _ => database.url(),
        }
    }

    /// Writes the backlog.
    pub fn write(self, database: &Database, events: u64) {
        // A fifth of it, or a quarter, does not compress, as in life.
        let (rows, note, noise) = match self {
            Workload::ThousandRows
            | Workload::BusyNeighbour
            | Workload::FarBroker
            | Workload::ManyPartitions
            | Workload::UnixSocket => (1000, 440, 3),
            Workload::OneRow => (1, 440, 3),
            Workload::FourKilobytes => (1000, 3940, 30),
            Workload::OneTransaction => (events, 440, 3),
        };
        let insert = format!(
            "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
             select 'order', (n % 1000)::text, 'order.paid', jsonb_build_object('order', n, 'amount', 12.5, 'note',
                 rpad((select string_agg(md5((n + i)::text), '') from generate_series(1, {noise}) i), {note},
                      'please ring twice; mind the dog; '))
             from generate_series(first, first + {rows} - 1) n;"
        );
        let neighbour = match self {
            Workload::BusyNeighbour => {
                "commit; insert into neighbour select n, repeat(md5(n::text), 16) from generate_series(1, 15000) n;"
            }
            _ => "",
        };
        database.exec("create table neighbour (n bigint, padding text)");
        database.exec(&format!(
            "do $$ declare first bigint; begin
                 for first in select generate_series(1, {events}, {rows}) loop {insert} {neighbour} commit; end loop;
             end $$"
        ));
    }
}
