//! The shop at work: writes transactions at a steady rate, and asks the relay over HTTP how far it got.
//!
//! Rows are deleted after a minute, so that a demo left alone does not fill the disk: the relay has read them from
//! the WAL and does not miss them.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::screen::{Screen, grouped};
use super::server::SQL_LIMIT;
use crate::error::Result;
use crate::source::catalog::Catalog;
use crate::status::Report;
use crate::workload::{Ending, Shape, Workload};

const SHAPE: Shape = Shape { seed: 1, orders: 100, events: 1..=4, payload_bytes: 100..=250, rollback_percent: 5 };

/// A writer that cannot keep up forgets what it owes beyond this, instead of racing to catch up.
const DEBT: Duration = Duration::from_secs(1);
/// Old rows are deleted once per so many transactions.
const TIDY_EVERY: u64 = 5000;
const TIDY: &str = "DELETE FROM public.outbox WHERE created_at < clock_timestamp() - interval '1 minute'";
/// How long the relay may take to say how far it got.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The writer's side of the demo.
pub(super) struct Shop<'a> {
    catalog: &'a Catalog,
    relay: SocketAddr,
    tally: Cell<Tally>,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    transactions: u64,
    rolled_back: u64,
    /// Events committed.
    written: u64,
    /// Events acknowledged, as the relay last said.
    published: u64,
}

impl<'a> Shop<'a> {
    pub(super) fn new(catalog: &'a Catalog, relay: SocketAddr) -> Shop<'a> {
        Shop { catalog, relay, tally: Cell::default() }
    }

    /// Writes `rate` events a second until `end`; the transaction that is open then is finished.
    pub(super) async fn write(&self, rate: NonZeroU32, end: impl Future<Output = ()>) -> Result<()> {
        let mut end = pin!(end);
        let mut workload = Workload::new(SHAPE);
        let mut due = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = &mut end => return Ok(()),
                () = sleep_until(due) => {}
            }
            let transaction = workload.transaction();
            self.catalog.execute("write an order", &transaction.sql(), SQL_LIMIT).await?;
            let events = u32::try_from(transaction.events.len()).expect("the shape says how many");
            due = (due + Duration::from_secs(1) * events / rate.get()).max(Instant::now() - DEBT);
            let mut tally = self.tally.get();
            tally.transactions += 1;
            match transaction.ending {
                Ending::Commit => tally.written += u64::from(events),
                Ending::Rollback => tally.rolled_back += 1,
            }
            self.tally.set(tally);
            if tally.transactions.is_multiple_of(TIDY_EVERY) {
                self.catalog.execute("delete old events", TIDY, SQL_LIMIT).await?;
            }
        }
    }

    /// Shows how far writer and relay got; returns only when the screen is gone.
    pub(super) async fn show_progress(&self, screen: &Screen) -> io::Error {
        let mut pace = interval(screen.pace());
        let mut last = (Instant::now(), 0);
        pace.tick().await;
        loop {
            pace.tick().await;
            let Some(report) = self.ask().await else { continue };
            let (then, before) = std::mem::replace(&mut last, (Instant::now(), report.status.published));
            let seconds = then.elapsed().as_secs_f64().max(0.001);
            let rate = last.1.saturating_sub(before) as f64 / seconds;
            if let Err(gone) = screen.progress(&line(self.tally.get(), rate, &report)) {
                return gone;
            }
        }
    }

    /// Returns when every committed event has been acknowledged.
    pub(super) async fn drained(&self) {
        while self.ask().await.is_none() || self.unpublished() > 0 {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many committed events the relay has not published.
    pub(super) fn unpublished(&self) -> u64 {
        let tally = self.tally.get();
        tally.written.saturating_sub(tally.published)
    }

    /// What it all came to.
    pub(super) fn summary(&self) -> String {
        let Tally { transactions, rolled_back, written, published } = self.tally.get();
        format!(
            "{} events written in {} transactions, {} published; {} transactions rolled back, never to be seen",
            grouped(written),
            grouped(transactions - rolled_back),
            grouped(published),
            grouped(rolled_back),
        )
    }

    /// Asks the relay; a relay that is still starting gives no answer.
    async fn ask(&self) -> Option<Report> {
        let answer = timeout(ANSWER_WITHIN, get(self.relay, "/api/v1/status")).await.ok()?.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let report: Report = serde_json::from_str(body).ok()?;
        self.tally.set(Tally { published: report.status.published, ..self.tally.get() });
        Some(report)
    }
}

async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn line(tally: Tally, rate: f64, report: &Report) -> String {
    let line = format!(
        "written {}   published {}   {rate:.0}/s   lag {:.2} s   confirmed {}",
        grouped(tally.written),
        grouped(report.status.published),
        report.lag_seconds,
        report.status.confirmed,
    );
    match report.status.reasons.first() {
        Some(reason) => format!("{line}   {}: {}", report.status.state.name(), reason.message),
        None => line,
    }
}
