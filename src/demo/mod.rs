//! `outboxd demo`: the whole path at work on one machine, with nothing prepared.
//!
//! ```text
//! workload ─► PostgreSQL (throw-away, in `sandbox`) ─► relay ─► broker (embedded) ─► the first events, shown
//! ```
//!
//! Only the two ends are made for the show: database set-up and relay are those of `outboxd init` and `outboxd run`.
//! However the demo ends, SIGKILL included, no process, directory or port is left behind.

mod broker;
mod sandbox;
mod screen;
mod server;
mod shop;

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::broker::Broker;
use self::sandbox::Sandbox;
use self::screen::Screen;
use self::server::{SQL_LIMIT, Server};
use self::shop::Shop;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::source::catalog::Catalog;
use crate::{init, relay, workload};

/// How many events are shown in full.
const SHOWN: usize = 3;
/// How long the last events may take to arrive.
const DRAIN: Duration = Duration::from_secs(5);
/// Where the relay's metrics usually are.
const HTTP_PORT: u16 = 9187;

/// What can be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Events per second.
    pub rate: NonZeroU32,
    /// When to end, counted from the first transaction; `None`: when told to.
    pub duration: Option<Duration>,
}

/// Shows the demo until `shutdown` resolves, the terminal is closed or its time is over.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> Result<()> {
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.map_err(|error| Error::definite("cannot listen for signals").because(error))?;
    let end = async {
        tokio::select! {
            () = shutdown => {}
            _ = hangup.recv() => {}
        }
    };
    let screen = Screen::new();
    let sandbox = Sandbox::open().await?;
    let shown = show(&options, &screen, &sandbox, pin!(end)).await;
    let removed = sandbox.remove().await;
    let summary = shown?;
    removed?;
    // Nobody may be there any more to read it.
    screen.say(&format!("{summary}\nnothing is left behind")).unwrap_or_default();
    Ok(())
}

/// From the first line to the last event; gives the last line.
async fn show<E: Future<Output = ()>>(
    options: &Options,
    screen: &Screen,
    sandbox: &Sandbox,
    mut end: Pin<&mut E>,
) -> Result<String> {
    screen.say("a throw-away PostgreSQL is being made …").unwrap_or_default();
    let (door, listen) = http_door()?;
    let stage = tokio::select! {
        stage = Stage::set(sandbox, listen) => stage?,
        () = &mut end => return Ok("ended before the first event".into()),
    };
    screen.say(&stage.programme()).unwrap_or_default();
    // Kept shut for others until the relay opens it.
    drop(door);
    stage.play(options, screen, end).await
}

/// Everything in its place, nothing moving yet.
struct Stage {
    broker: Broker,
    server: Server,
    config: Config,
    catalog: Catalog,
}

impl Stage {
    async fn set(sandbox: &Sandbox, listen: SocketAddr) -> Result<Stage> {
        let broker = Broker::start(&format!("outbox.event.{}", workload::AGGREGATE_TYPE))?;
        let mut config = configuration(&broker.address(), listen);
        let template = config.postgres.connection.clone();
        let server = Server::start(sandbox, &template).await?;
        config.postgres.connection = server.relay(&template);
        let administrator = server.administrator(&template);
        init::run(&config, &administrator, init::Mode::Apply, &mut io::sink()).await?;
        let catalog = Catalog::connect(&administrator, SQL_LIMIT).await?;
        catalog.execute("create the shop's table", workload::SCHEMA, SQL_LIMIT).await?;
        Ok(Stage { broker, server, config, catalog })
    }

    /// Who is who, and where to look.
    fn programme(&self) -> String {
        let (listen, broker, topic) = (self.config.http.listen, self.broker.address(), self.broker.topic());
        let taken = if listen.port() == HTTP_PORT { "" } else { "   (port 9187 is taken)" };
        format!(
            "
  PostgreSQL {version}   psql '{url}'
  broker          {broker}
  metrics         http://{listen}/metrics{taken}

orders are written, each with its events in the same transaction; the relay reads the events from the WAL.
to see them arrive, in another terminal:

  kcat -C -q -b {broker} -t {topic} -f 'key %k  headers %h\\n%s\\n\\n'

the first of them:
",
            version = self.server.version / 10_000,
            url = self.server.url,
        )
    }

    /// Lets events flow until `end`, waits for the last of them and ends the relay.
    async fn play<E: Future<Output = ()>>(
        &self,
        options: &Options,
        screen: &Screen,
        end: Pin<&mut E>,
    ) -> Result<String> {
        let (curtain, fallen) = oneshot::channel::<()>();
        let (_, no_reloads) = tokio::sync::mpsc::channel(1);
        let relay = relay::run(self.config.clone(), async { fallen.await.unwrap_or_default() }, no_reloads);
        let mut relay = pin!(relay);
        let shop = Shop::new(&self.catalog, self.config.http.listen);
        let end = async {
            match options.duration {
                Some(duration) => timeout(duration, end).await.unwrap_or_default(),
                None => end.await,
            }
        };
        tokio::select! {
            ended = &mut relay => return Err(too_early(ended)),
            written = shop.write(options.rate, end) => written?,
            // A screen that is gone ends the demo as Ctrl-C does.
            _gone = shop.show_progress(screen) => {}
            failed = self.show_first(screen) => return Err(failed),
        }
        tokio::select! {
            ended = &mut relay => return Err(too_early(ended)),
            // Whether it was in time, the shop knows.
            _in_time = timeout(DRAIN, shop.drained()) => {}
        }
        drop(curtain);
        relay.await?;
        match shop.unpublished() {
            0 => Ok(shop.summary()),
            missing => Err(Error::definite(format!("{missing} events were not published within {DRAIN:?}"))
                .hint("outboxd demo --log debug shows what the relay did")),
        }
    }

    /// Shows the first events as a consumer gets them; returns only when that fails.
    async fn show_first(&self, screen: &Screen) -> Error {
        let shown = async {
            let reader = self.broker.reader()?;
            for _ in 0..SHOWN {
                // Whether the screen is still there, the progress finds out.
                screen.say(&format!("{}\n", reader.next().await?)).unwrap_or_default();
            }
            Ok(())
        };
        match shown.await {
            Ok(()) => pending().await,
            Err(error) => error,
        }
    }
}

fn too_early(ended: Result<()>) -> Error {
    ended.err().unwrap_or_else(|| Error::definite("the relay ended by itself"))
}

fn configuration(brokers: &str, listen: SocketAddr) -> Config {
    let text = format!(
        r#"
        [postgres]
        url = "postgres://outboxd@localhost/shop"
        [kafka]
        brokers = "{brokers}"
        # The embedded broker leaves questions about a topic's configuration unanswered.
        properties = {{ "socket.timeout.ms" = "1000" }}
        [[route]]
        key = "{{aggregate_id}}"
        [http]
        listen = "{listen}"
        "#
    );
    Config::from_toml(&text, "the demo's configuration", std::iter::empty()).expect("it is valid for any address")
}

/// The usual address of the metrics, or a free one where that is taken.
fn http_door() -> Result<(TcpListener, SocketAddr)> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, HTTP_PORT))
        .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .and_then(|door| door.local_addr().map(|address| (door, address)))
        .map_err(|error| Error::definite("cannot listen on 127.0.0.1").because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_keys_events_by_their_order_and_listens_where_it_is_told() {
        let config = configuration("127.0.0.1:1,127.0.0.1:2", "127.0.0.1:3".parse().unwrap());
        assert_eq!(config.kafka.brokers, "127.0.0.1:1,127.0.0.1:2");
        assert_eq!(config.http.listen.port(), 3);
        assert_eq!(config.rules.routes.len(), 1);
    }
}
