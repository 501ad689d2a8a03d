//! A TCP proxy between the relay and one server, which does to its connections what networks do.
//!
//! Bytes enter at `port()` and leave towards the server, and back. What is lost is only held: it flows after `heal`, as
//! TCP would send it again. The end of a connection is news that travels like a byte: where a way is lost, the other
//! end does not learn of it. One thing a real network does differently: the proxy's kernel acknowledges what nobody
//! takes on, so silence shows to an end that waits for an answer, not to its TCP.

use std::net::TcpListener as Listener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::free_port;

/// Whoever has not given up an abandoned connection by then is told.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(180);

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Way {
    ToServer,
    ToClient,
    Both,
}

impl Way {
    fn covers(self, one: Way) -> bool {
        self == Way::Both || self == one
    }
}

/// A running proxy. It ends with all its connections when dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    over: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a port of its own and forwards to this one, both on 127.0.0.1.
    pub fn start(upstream: u16) -> Proxy {
        let port = free_port();
        let listener = Listener::bind(("127.0.0.1", port)).expect("a free port can be bound");
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared {
            rules: watch::Sender::new(Rules::default()),
            endings: broadcast::Sender::new(1024),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            cut_at_bytes: AtomicUsize::new(0),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
        });
        let (over, ended) = oneshot::channel();
        let serving = serve(listener, upstream, shared.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            runtime.block_on(async {
                tokio::select! {
                    () = serving => {}
                    _ = ended => {}
                }
            });
        });
        Proxy { port, shared, over: Some(over), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens, with the host.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends every open connection in order: both ends read to an end.
    pub fn cut(&self) {
        self.end(Ending::Cut);
    }

    /// Ends every open connection with RST.
    pub fn reset(&self) {
        self.end(Ending::Reset);
    }

    /// Half-open: every open connection is silent for good, and neither end learns when the other one closes. New
    /// connections work.
    pub fn abandon(&self) {
        self.end(Ending::Abandon);
    }

    /// Every open connection goes on to the server only, for good. New connections work.
    pub fn deafen(&self) {
        self.end(Ending::Deafen);
    }

    /// From now on nothing travels this way, on open and new connections: silence.
    pub fn lose(&self, way: Way) {
        self.change(|rules| {
            rules.lost = Some(rules.lost.map_or(way, |lost| if lost == way { way } else { Way::Both }))
        });
    }

    /// Nothing travels either way.
    pub fn stall(&self) {
        self.lose(Way::Both);
    }

    /// New connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.change(|rules| rules.refuse = refuse);
    }

    /// On each connection and each way, so many bytes at a time pass, with this pause behind them.
    pub fn drip(&self, bytes: usize, every: Duration) {
        self.change(|rules| rules.drip = Some((bytes, every)));
    }

    /// Everything takes so long to travel.
    pub fn latency(&self, latency: Duration) {
        self.change(|rules| rules.latency = latency);
    }

    /// Cuts each connection, open or new, when it has passed so many further bytes this way.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.change(|rules| {
            rules.limit = Some((way, bytes));
            rules.limits_set += 1;
        });
    }

    /// Ends every disturbance; what was held travels on. What was abandoned stays so.
    pub fn heal(&self) {
        self.change(|rules| *rules = Rules { limits_set: rules.limits_set, ..Rules::default() });
    }

    /// How many connections are open now; an abandoned one is not.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// How many connections were accepted since the start, refused ones not counted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many connections `cut_after` has cut since the start.
    pub fn cut_at_bytes(&self) -> usize {
        self.shared.cut_at_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes were passed on this way since the start.
    pub fn passed(&self, way: Way) -> u64 {
        let passed = |one: Way| if way.covers(one) { self.shared.passed(one).load(Ordering::Relaxed) } else { 0 };
        passed(Way::ToServer) + passed(Way::ToClient)
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        self.shared.rules.send_modify(change);
    }

    fn end(&self, ending: Ending) {
        // Without a connection nobody listens, and there is nothing to end.
        self.shared.endings.send(ending).ok();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.take().expect("it is dropped once").send(()).ok();
        if self.thread.take().expect("it is dropped once").join().is_err() && !std::thread::panicking() {
            panic!("the proxy failed");
        }
    }
}

struct Shared {
    rules: watch::Sender<Rules>,
    endings: broadcast::Sender<Ending>,
    open: AtomicUsize,
    accepted: AtomicUsize,
    cut_at_bytes: AtomicUsize,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Shared {
    fn passed(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
            Way::Both => unreachable!("a byte travels one way"),
        }
    }
}

/// What happens to the bytes of every connection.
#[derive(Debug, Clone, Default)]
struct Rules {
    lost: Option<Way>,
    latency: Duration,
    drip: Option<(usize, Duration)>,
    refuse: bool,
    limit: Option<(Way, u64)>,
    /// Tells a limit from the one before: each counts from its own beginning.
    limits_set: u64,
}

/// How a connection ends, or one way of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Cut,
    Reset,
    Abandon,
    Deafen,
}

/// Counts a connection as open.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: Arc<Shared>) -> Open {
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        shared.open.fetch_add(1, Ordering::Relaxed);
        Open(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(listener: Listener, upstream: u16, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("the listener is one");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted.expect("connections can be accepted");
                if !shared.rules.borrow().refuse {
                    let endings = shared.endings.subscribe();
                    connections.spawn(connect(client, upstream, endings, Open::new(shared.clone())));
                }
            }
            Some(ended) = connections.join_next() => ended.expect("a connection does not panic"),
        }
    }
}

async fn connect(client: TcpStream, upstream: u16, endings: broadcast::Receiver<Ending>, open: Open) {
    match TcpStream::connect(("127.0.0.1", upstream)).await {
        Ok(server) => carry(client, server, endings, open).await,
        // Nobody listens there: RST is as near to a refusal as an accepted connection comes.
        Err(_) => client.set_zero_linger().expect("a connection can be reset"),
    }
}

/// Carries bytes until both ends have closed, or something ends the connection.
async fn carry(mut client: TcpStream, mut server: TcpStream, mut endings: broadcast::Receiver<Ending>, open: Open) {
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let ending = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let forth = pump(Way::ToServer, from_client, to_server, &open.0);
        let back = pump(Way::ToClient, from_server, to_client, &open.0);
        tokio::select! {
            ended = async { tokio::try_join!(forth, back) } => ended.err(),
            ending = endings.recv() => Some(ending.expect("nobody sends faster than a connection listens")),
        }
    };
    drop(open);
    match ending {
        None => {}
        Some(Ending::Cut) => end_in_order(client, server).await,
        Some(Ending::Reset) => {
            // A socket that is gone already needs no reset.
            client.set_zero_linger().ok();
            server.set_zero_linger().ok();
        }
        Some(Ending::Abandon) => {
            // The sockets stay open: closing one would tell its end. Not for ever, or a long test runs out of them.
            sleep(FORGOTTEN_AFTER).await;
            drop((client, server));
        }
        Some(Ending::Deafen) => {
            let ((mut from_client, _to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
            let mut nowhere = tokio::io::sink();
            let forth = async {
                tokio::io::copy(&mut from_client, &mut to_server).await.ok();
                to_server.shutdown().await.ok();
            };
            let both = async { tokio::join!(forth, tokio::io::copy(&mut from_server, &mut nowhere)) };
            timeout(FORGOTTEN_AFTER, both).await.ok();
        }
    }
}

/// A socket that is closed with unread bytes sends RST, so both are read until their ends have closed, too.
async fn end_in_order(mut client: TcpStream, mut server: TcpStream) {
    const POLITE: Duration = Duration::from_secs(10);
    client.shutdown().await.ok();
    server.shutdown().await.ok();
    let mut nowhere = (tokio::io::sink(), tokio::io::sink());
    let drained = async {
        tokio::join!(tokio::io::copy(&mut client, &mut nowhere.0), tokio::io::copy(&mut server, &mut nowhere.1))
    };
    timeout(POLITE, drained).await.ok();
}

/// What travels: bytes, or the news that their sender has ended.
enum Item {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// So many items travel at a time: enough that a latency of seconds does not hold up a sender of many small ones.
const ON_THE_WAY: usize = 256;

/// Carries one way: `Ok` when its end was passed on, otherwise how the whole connection has to end.
async fn pump(way: Way, from: ReadHalf<'_>, to: WriteHalf<'_>, shared: &Shared) -> Result<(), Ending> {
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    let mut road = Road { way, rules: shared.rules.subscribe(), shared, passed: 0, limit: (0, 0) };
    tokio::select! {
        ended = road.give(receiver, to) => ended,
        // What was taken last is still to be given.
        () = async { take(from, sender).await; std::future::pending().await } => unreachable!("it is pending"),
    }
}

/// Reads what comes and dates it; ends when its end has come or nobody wants more.
async fn take(mut from: ReadHalf<'_>, items: mpsc::Sender<(Instant, Item)>) {
    loop {
        let mut bytes = vec![0; 16 * 1024];
        let item = match from.read(&mut bytes).await {
            Ok(0) => Item::End,
            Ok(read) => {
                bytes.truncate(read);
                Item::Bytes(bytes)
            }
            Err(_) => Item::Reset,
        };
        let last = !matches!(item, Item::Bytes(_));
        if items.send((Instant::now(), item)).await.is_err() || last {
            return;
        }
    }
}

/// One way of one connection.
struct Road<'a> {
    way: Way,
    rules: watch::Receiver<Rules>,
    shared: &'a Shared,
    passed: u64,
    /// Which limit was seen last, and how much had passed by then.
    limit: (u64, u64),
}

impl Road<'_> {
    async fn give(&mut self, mut items: mpsc::Receiver<(Instant, Item)>, mut to: WriteHalf<'_>) -> Result<(), Ending> {
        while let Some((taken, item)) = items.recv().await {
            match item {
                Item::Bytes(bytes) => self.give_bytes(taken, &bytes, &mut to).await?,
                Item::End => {
                    self.travel(self.way, taken).await;
                    to.shutdown().await.ok();
                    return Ok(());
                }
                Item::Reset => {
                    self.travel(self.way, taken).await;
                    return Err(Ending::Reset);
                }
            }
        }
        Ok(())
    }

    async fn give_bytes(&mut self, taken: Instant, bytes: &[u8], to: &mut WriteHalf<'_>) -> Result<(), Ending> {
        let mut left = bytes;
        while !left.is_empty() {
            self.travel(self.way, taken).await;
            let allowed = self.allowed();
            if allowed == 0 {
                return Err(self.at_its_limit());
            }
            let drip = self.rules.borrow().drip;
            let piece = left.len().min(usize::try_from(allowed).unwrap_or(usize::MAX));
            let piece = piece.min(drip.map_or(usize::MAX, |(bytes, _)| bytes));
            let written = tokio::select! {
                // An end that does not read must not keep a new rule from being seen.
                changed = self.rules.changed() => { changed.expect("the proxy outlives its connections"); continue }
                written = to.write(&left[..piece]) => written,
            };
            let Ok(written) = written else {
                // The receiver is gone: that is news for the sender, and travels towards it.
                let back = if self.way == Way::ToServer { Way::ToClient } else { Way::ToServer };
                self.travel(back, Instant::now()).await;
                return Err(Ending::Reset);
            };
            left = &left[written..];
            self.passed += written as u64;
            self.shared.passed(self.way).fetch_add(written as u64, Ordering::Relaxed);
            if allowed == written as u64 {
                return Err(self.at_its_limit());
            }
            if let Some((_, every)) = drip {
                self.pause_until(Instant::now() + every).await;
            }
        }
        Ok(())
    }

    /// Waits until what was taken at this time has arrived.
    async fn travel(&mut self, way: Way, taken: Instant) {
        loop {
            let (lost, latency) = {
                let rules = self.rules.borrow_and_update();
                (rules.lost.is_some_and(|lost| lost.covers(way)), rules.latency)
            };
            match lost {
                true => self.rules.changed().await.expect("the proxy outlives its connections"),
                false if taken + latency <= Instant::now() => return,
                false => self.pause_until(taken + latency).await,
            }
        }
    }

    /// Waits until then, or until the rules change.
    async fn pause_until(&mut self, then: Instant) {
        tokio::select! {
            () = sleep_until(then) => {}
            changed = self.rules.changed() => changed.expect("the proxy outlives its connections"),
        }
    }

    fn at_its_limit(&self) -> Ending {
        self.shared.cut_at_bytes.fetch_add(1, Ordering::Relaxed);
        Ending::Cut
    }

    /// How many bytes may pass until this connection is cut.
    fn allowed(&mut self) -> u64 {
        let rules = self.rules.borrow();
        if self.limit.0 != rules.limits_set {
            self.limit = (rules.limits_set, self.passed);
        }
        match rules.limit {
            Some((way, bytes)) if way.covers(self.way) => bytes.saturating_sub(self.passed - self.limit.1),
            Some(_) | None => u64::MAX,
        }
    }
}
