//! The connection to the walsender as the relay's loop sees it: down, opening, up, or leaving.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::session::{Closed, Opened};
use crate::config::Host;
use crate::error::Result;
use crate::source::wire::{Reading, Stream, Turn};

/// A read of at least this much means that more is on its way.
const DENSE_BYTES: usize = 32 * 1024;
/// A walsender pays for each time it wakes its reader: while traffic is dense, let the bytes gather.
const GATHER: Duration = Duration::from_millis(1);

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
    pub(super) gather_until: Option<Instant>,
}

/// How long a session may be silent.
///
/// Each one that is left for its silence doubles it, until another event is published or a session is heard for longer than
/// that: a server may decode for long before it has a word to say, and begins anew with every session. A confirmed
/// position is no sign that it got through, because keepalives move it, too.
#[derive(Debug)]
pub(super) struct Patience {
    usual: Duration,
    left: u32,
    /// What was published when a session was last left.
    published: u64,
}

impl Patience {
    pub(super) fn new(usual: Duration) -> Patience {
        Patience { usual, left: 0, published: 0 }
    }

    pub(super) fn is_over(&self, silent: Duration, published: u64) -> bool {
        let left = if published == self.published { self.left } else { 0 };
        silent >= self.after(left)
    }

    /// A session has spoken at this age: one that is older than the longest silence has got through.
    pub(super) fn heard(&mut self, age: Duration) {
        if self.left > 0 && age >= self.after(self.left) {
            self.left = 0;
        }
    }

    fn after(&self, left: u32) -> Duration {
        self.usual.saturating_mul(2u32.saturating_pow(left))
    }

    /// A session was left for its silence.
    pub(super) fn was_over(&mut self, published: u64) {
        self.left = if published == self.published { self.left.saturating_add(1) } else { 1 };
        self.published = published;
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
        if let Some(until) = self.gather_until {
            tokio::time::sleep_until(until.into()).await;
            self.gather_until = None;
        }
        let reading = if self.held { Reading::Off } else { Reading::On };
        let turn = self.stream.turn(reading).await?;
        if turn.read >= DENSE_BYTES {
            self.gather_until = Some(Instant::now() + GATHER);
        }
        Ok(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_doubles_until_something_is_published() {
        let second = Duration::from_secs(1);
        let mut patience = Patience::new(second);
        for (published, times) in [(0, 1), (0, 2), (0, 4), (7, 1), (7, 2), (8, 1)] {
            assert!(!patience.is_over(second * times - Duration::from_millis(1), published));
            assert!(patience.is_over(second * times, published));
            patience.was_over(published);
        }
    }

    #[test]
    fn patience_is_the_usual_again_when_a_session_is_heard_for_longer_than_it() {
        let second = Duration::from_secs(1);
        let mut patience = Patience::new(second);
        (0..3).for_each(|_| patience.was_over(0));
        patience.heard(second * 7);
        assert!(!patience.is_over(second * 7, 0));
        patience.heard(second * 8);
        assert!(patience.is_over(second, 0));
    }
}
