//! What the demo shows: lines, and below them one line of progress that is rewritten on a terminal.
//!
//! Elsewhere progress is a line every two seconds. A screen that is gone (a closed terminal, `outboxd demo | head`)
//! is an error for the caller, who ends the demo.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Standard output.
pub(super) struct Screen {
    kind: Kind,
    /// A line of progress stands there, waiting to be rewritten.
    unfinished: Cell<Unfinished>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Terminal,
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unfinished {
    Nothing,
    Progress,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let kind = if io::stdout().is_terminal() { Kind::Terminal } else { Kind::File };
        Screen { kind, unfinished: Cell::new(Unfinished::Nothing) }
    }

    /// How often progress is worth showing.
    pub(super) fn pace(&self) -> Duration {
        match self.kind {
            Kind::Terminal => Duration::from_millis(500),
            Kind::File => Duration::from_secs(2),
        }
    }

    /// Whole lines that stay.
    pub(super) fn say(&self, lines: &str) -> io::Result<()> {
        let start = match self.unfinished.replace(Unfinished::Nothing) {
            Unfinished::Nothing => "",
            Unfinished::Progress => CLEAR,
        };
        put(&format!("{start}{lines}\n"))
    }

    /// The line of progress, in the place of the last one where that can be done.
    pub(super) fn progress(&self, line: &str) -> io::Result<()> {
        match self.kind {
            Kind::Terminal => {
                self.unfinished.set(Unfinished::Progress);
                put(&format!("{CLEAR}{line}"))
            }
            Kind::File => put(&format!("{line}\n")),
        }
    }
}

/// To the line's beginning, and the rest of the line away.
const CLEAR: &str = "\r\x1b[K";

// Not `print!`, which panics when nobody reads.
fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A number as people read it: 1,234,567.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
