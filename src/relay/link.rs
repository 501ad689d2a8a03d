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
