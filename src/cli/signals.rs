//! SIGTERM and SIGINT: the first one asks the relay to finish, the second one ends the process.

use std::future::Future;
use std::io::{self, Write};
use std::process::exit;
use std::thread;

use outboxd::error::{Error, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Resolves on the first SIGTERM or SIGINT.
///
/// A thread of its own listens, so that a second signal ends the process even when the relay's thread is stuck.
pub fn shutdown() -> Result<impl Future<Output = ()> + Send + 'static> {
    let (tell, told) = oneshot::channel();
    let (runtime, signals) = listen().map_err(|error| Error::definite("cannot listen for signals").because(error))?;
    thread::spawn(move || runtime.block_on(wait(signals, tell)));
    // The thread never drops its end before it has told.
    Ok(async { told.await.unwrap_or_default() })
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// The next signal's name, and the exit code by which shells know it.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", 130),
            _ = self.terminate.recv() => ("SIGTERM", 143),
        }
    }
}

fn listen() -> io::Result<(Runtime, Signals)> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let signals = Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
    drop(entered);
    Ok((runtime, signals))
}

async fn wait(mut signals: Signals, tell: oneshot::Sender<()>) {
    let (name, _) = signals.next().await;
    tracing::info!(signal = name, "finishing what is in flight; a second signal ends at once");
    // Nobody waits any more when the command ended by itself meanwhile.
    tell.send(()).unwrap_or_default();
    let (name, code) = signals.next().await;
    let text = format!("a second signal, {name}: ended at once, what was in flight may be repeated");
    writeln!(io::stderr(), "error: {text}").unwrap_or_default();
    exit(code);
}
