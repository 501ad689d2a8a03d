//! The end of a relay that was told to stop, or that cannot go on: the last position, the clean mark, the end of the session.

use std::time::{Duration, Instant};

use super::Relay;
use super::link::Link;
use crate::error::Result;
use crate::pipeline::Ask;
use crate::sink::Purge;
use crate::source::catalog::Catalog;
use crate::source::wire::{Reading, Turn};

/// How often a server that has not read the last status yet is asked what it knows.
const ASK_SLOT_EVERY: Duration = Duration::from_millis(10);

impl Relay {
    /// The last status, the mark that lets a successor start at once, the end of the stream.
    ///
    /// A stop begins with this when four fifths of `limits.shutdown` have passed, at the latest: the rest must do.
    pub(super) async fn goodbye(mut self) -> Result<()> {
        let within = (self.wanted.limits.shutdown / 10).max(Duration::from_millis(200));
        if self.pipeline.ledger().inflight() > 0 {
            // Nobody waits for these any more, and a successor may publish before our process has ended.
            self.sink.purge(Purge::Everything);
        }
        self.send_status(Ask::Nothing);
        self.settle_before_leaving(within / 2).await;
        // Rows may have been marked meanwhile.
        self.send_status(Ask::Nothing);
        let now = Instant::now();
        // Where nothing would be repeated, nobody needs to wait for a server that is slow to read.
        let until = match self.pipeline.tells_until().filter(|_| self.pipeline.repeats() > 0) {
            Some(until) => until.max(now) + within / 2,
            None => now + within,
        };
        match tokio::time::timeout_at(until.into(), self.tell(within, until)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = error.chain(), "the last position may not have arrived"),
            Err(_) => tracing::warn!("the last position may not have arrived"),
        }
        let link = std::mem::replace(&mut self.link, Link::Down { until: Instant::now() });
        let left = match link {
            Link::Up(live) => {
                live.stream.leave(within / 2).await.map(|()| self.pipeline.heard(self.pipeline.confirmed()))
            }
            Link::Leaving(leaving, _) => tokio::time::timeout(within / 2, leaving).await.unwrap_or(Ok(())),
            Link::Down { .. } | Link::Opening(_) => Ok(()),
        };
        if let Err(error) = left {
            tracing::info!(error = error.chain(), "the session did not end in good order");
        }
        let repeats = self.pipeline.repeats();
        if repeats > 0 && !self.is_followed() {
            tracing::warn!(repeats, "the next start will publish these rows again");
        }
        tracing::info!(confirmed = %self.pipeline.confirmed(), published = self.board.status.published, "stopped");
        // Taking a producer apart blocks, and longer than we may when a name server is silent.
        let (sink, failure) = (self.sink, self.failure);
        let gone = tokio::task::spawn_blocking(move || drop(sink));
        tokio::time::timeout(within / 2, gone).await.ok();
        failure.map_or(Ok(()), Err)
    }

    /// Leaves the clean mark before the slot is free, and waits until the server has read the last status, if rows would
    /// be repeated otherwise. Nothing is read meanwhile: a walsender that cannot write on turns to what we wrote.
    async fn tell(&mut self, within: Duration, until: Instant) -> Result<()> {
        if let Link::Up(live) = &mut self.link {
            let turn = tokio::time::timeout(within, live.stream.turn(Reading::Off)).await;
            if let Err(error) = turn.unwrap_or(Ok(Turn { read: 0 })) {
                // No reason to leave no mark: a successor would wait for us.
                tracing::info!(error = error.chain(), "the last status was not sent");
                self.link = Link::Down { until: Instant::now() };
            }
        }
        let (postgres, confirmed) = (&self.wanted.postgres, self.pipeline.confirmed());
        let Some(system) = self.system else { return Ok(()) };
        let catalog = Catalog::connect(&postgres.connection, self.wanted.limits.sql).await?;
        if self.pipeline.may_hand_over(Instant::now()) {
            catalog.leave(&postgres.slot, &self.wanted.leader, system, confirmed).await?;
        }
        loop {
            let Some(slot) = catalog.slot(&postgres.slot).await? else { return Ok(()) };
            self.pipeline.heard(slot.confirmed.unwrap_or_default());
            // A walsender that is gone reads nothing more.
            let reads = matches!(self.link, Link::Up(_)) && slot.holder.map(|it| it.pid) == self.last_backend_pid;
            if !reads || self.pipeline.repeats() == 0 || Instant::now() + 2 * ASK_SLOT_EVERY >= until {
                return Ok(());
            }
            tokio::time::sleep(ASK_SLOT_EVERY).await;
        }
    }
}
