//! What is carried: how many rows a transaction has, how large they are, and what else is written.

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
}

impl Workload {
    /// All of them, in the order of the table.
    pub const ALL: [Workload; 5] = [
        Workload::ThousandRows,
        Workload::OneRow,
        Workload::FourKilobytes,
        Workload::OneTransaction,
        Workload::BusyNeighbour,
    ];

    /// As `--only` and the table name it.
    pub fn name(self) -> &'static str {
        match self {
            Workload::ThousandRows => "thousand-rows",
            Workload::OneRow => "one-row",
            Workload::FourKilobytes => "4-kilobytes",
            Workload::OneTransaction => "one-transaction",
            Workload::BusyNeighbour => "busy-neighbour",
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
        }
    }

    /// True where also Debezium as it comes takes part. It is slow, and elsewhere it tells nothing new.
    pub fn is_raced_by_all(self) -> bool {
        matches!(self, Workload::ThousandRows | Workload::OneRow)
    }

    /// How many of the events that were asked for: large ones and those beside a neighbour are fewer, one transaction has more.
    pub fn events(self, asked: u64) -> u64 {
        match self {
            Workload::ThousandRows | Workload::OneRow => asked,
            Workload::OneTransaction => asked * 2,
            Workload::FourKilobytes | Workload::BusyNeighbour => asked / 2,
        }
    }

    /// Writes the backlog.
    pub fn write(self, database: &Database, events: u64) {
        // A fifth of it, or a quarter, does not compress, as in life.
        let (rows, note, noise) = match self {
            Workload::ThousandRows | Workload::BusyNeighbour => (1000, 440, 3),
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
                "commit; insert into neighbour select n, repeat(md5(n::text), 16) from generate_series(1, 10000) n;"
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
