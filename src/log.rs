//! Logs go to stderr: readable lines on a terminal, JSON elsewhere. A filter and a format enter; nothing leaves.
//!
//! Librdkafka speaks through the `log` crate, which `tracing-subscriber` takes in: its warnings are shown, too.

use std::io::{IsTerminal, stderr};
use std::str::FromStr;
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One readable line per event.
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, in the language of `tracing-subscriber`'s `EnvFilter`, known to be valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(String);

impl Default for Filter {
    fn default() -> Filter {
        Filter("warn,outboxd=info".into())
    }
}

impl Filter {
    /// For commands that show by themselves what goes on.
    pub fn quiet() -> Filter {
        Filter("error".into())
    }
}

impl FromStr for Filter {
    type Err = String;

    /// What the filter does not name stays at `warn`: trouble of others is always shown unless refused by name.
    fn from_str(text: &str) -> Result<Filter, String> {
        let filter = format!("warn,{text}");
        EnvFilter::try_new(&filter).map_err(|error| format!("{error}, such as outboxd=debug"))?;
        Ok(Filter(filter))
    }
}

/// Starts logging; called once, before anything is logged.
pub fn init(filter: Filter, format: Format) {
    let terminal = stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_writer(stderr);
    let (first, filter) = (filter.clone(), EnvFilter::new(filter.0));
    let readable = match format {
        Format::Auto => terminal,
        Format::Text => true,
        Format::Json => false,
    };
    if readable {
        let lines = lines.compact().with_target(false).with_ansi(coloured(&stderr()));
        let lines = lines.with_env_filter(filter).with_filter_reloading();
        let handle = lines.reload_handle();
        remember(first, move |filter| handle.reload(filter).is_ok());
        lines.init();
    } else {
        let lines = lines.json().flatten_event(true).with_current_span(false);
        let lines = lines.with_env_filter(filter).with_filter_reloading();
        let handle = lines.reload_handle();
        remember(first, move |filter| handle.reload(filter).is_ok());
        lines.init();
    }
}

/// Another filter from now on, or that of the start.
pub fn set(filter: Option<Filter>) {
    if let Some((change, first)) = CHANGE.get() {
        let Filter(filter) = filter.as_ref().unwrap_or(first);
        assert!(change(EnvFilter::new(filter)), "the subscriber lives as long as the process");
    }
}

type Change = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// How the filter is changed, whose type depends on the format, and the first one.
static CHANGE: OnceLock<(Change, Filter)> = OnceLock::new();

fn remember(first: Filter, change: impl Fn(EnvFilter) -> bool + Send + Sync + 'static) {
    assert!(CHANGE.set((Box::new(change), first)).is_ok(), "logging is started once");
}

/// Colour is for terminals, and for those who did not refuse it (<https://no-color.org>).
pub fn coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_levels_and_rooms_or_is_refused() {
        for (typed, filter) in [("debug", "warn,debug"), ("outboxd=trace", "warn,outboxd=trace"), ("off", "warn,off")] {
            assert_eq!(typed.parse::<Filter>().unwrap(), Filter(filter.into()));
        }
        for wrong in ["outboxd=loud", "[", "a=b=c"] {
            assert!(wrong.parse::<Filter>().is_err(), "{wrong}");
        }
    }
}
