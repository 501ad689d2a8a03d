//! The connection to the walsender as the relay's loop sees it: down, opening, up, or leaving.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::session::{Closed, Opened};
use crate::config::Host;
use crate::error::Result;
use crate::lsn::Lsn;
use crate::source::wire::{Pace, Reading, Stream, Turn};

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) enum Link {
    Down { until: Instant },
    Opening(Pending<std::result::Result<Opened, Closed>>),
    Up(Box<Live>),
    Leaving(Pending<Result<()>>, Duration),
}

/// A session that streams.
pub(super) struct Live {
    pub(super) stream: Stream,
    pub(super) backend_pid: i32,
    pub(super) host: Host,
    pub(super) since: Instant,
    /// The next frame is whole and waits: reading on would only grow the buffer.
    pub(super) held: bool,
    pub(super) pace: Pace,
    /// Bytes that were read, and messages that were dealt with, since the pace was told.
    pub(super) read: usize,
    pub(super) messages: usize,
    /// How long bytes should gather before the next read.
    pub(super) gather: Option<Duration>,
}

/// How long a session may be silent.
///
/// Each one that is left for its silence doubles it, until one comes further in the WAL than any of them: a server may
/// decode for long before it has a word to say, and begins anew with every session. A session that is only heard is no sign
/// that it got through: up to where it falls silent, the server answers.
#[derive(Debug)]
pub(super) struct Patience {
    usual: Duration,
    left: u32,
    /// How far those that were left had come.
    reached: Lsn,
}

impl Patience {
    pub(super) fn new(usual: Duration) -> Patience {
        Patience { usual, left: 0, reached: Lsn::ZERO }
    }

    pub(super) fn is_over(&self, silent: Duration) -> bool {
        silent >= self.usual.saturating_mul(2u32.saturating_pow(self.left))
    }

    /// The session has come this far.
    pub(super) fn heard(&mut self, received: Lsn) {
        if received > self.reached {
            self.left = 0;
        }
    }

    /// A session was left for its silence, this far in the WAL.
    pub(super) fn was_over(&mut self, received: Lsn) {
        self.left = self.left.saturating_add(1);
        self.reached = self.reached.max(received);
    }
}

/// What happened to the connection.
pub(super) enum Event {
    Due,
    Opened(Box<std::result::Result<Opened, Closed>>),
    Turned(Result<Turn>),
    /// With the pause before the next try.
    Left(Result<()>, Duration),
}

impl Link {
    /// Waits for the next event. Cancel-safe.
    pub(super) async fn event(&mut self) -> Event {
        match self {
            Link::Down { until } => {
                tokio::time::sleep_until((*until).into()).await;
                Event::Due
            }
            Link::Opening(opening) => Event::Opened(Box::new(opening.as_mut().await)),
            Link::Leaving(leaving, pause) => Event::Left(leaving.as_mut().await, *pause),
            Link::Up(live) => Event::Turned(live.turn().await),
        }
    }
}

impl Live {
    async fn turn(&mut self) -> Result<Turn> {
        let reading = if self.held { Reading::Off } else { Reading::On };
        let turn = self.stream.turn(reading).await?;
        self.read += turn.read;
        Ok(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_doubles_until_a_session_comes_further() {
        let second = Duration::from_secs(1);
        let mut patience = Patience::new(second);
        // The server answers each time up to 7, where it falls silent; the last session comes through.
        for (received, times) in [(7, 1), (6, 2), (7, 4), (8, 1), (8, 2)] {
            patience.heard(Lsn(received));
            assert!(!patience.is_over(second * times - Duration::from_millis(1)), "{received}");
            assert!(patience.is_over(second * times), "{received}");
            patience.was_over(Lsn(received));
        }
    }
}
