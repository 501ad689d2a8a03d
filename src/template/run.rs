//! What lasts for one rendering: its bounds, how numbers were written, and what has gone wrong where no error can be given.
//!
//! The engine counts its instructions, and one of them may go through a list or a text of any length. So whatever belongs
//! to a row is paid for when it is read, and so is a filter whose work grows with what it is given. No clock is read: a row
//! that is rendered again is rendered, or refused, as it was before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use minijinja::value::{Object, ObjectRepr, Value};
use minijinja::{Error, ErrorKind};

/// The units of work that one rendering may take. One is what the reading of an element costs, 50 to 100 ns: all of them
/// are about a second, for which other events wait.
pub const WORK: u64 = 10_000_000;

/// So many bytes of a text are a unit when it is read: what is done to it next goes through it as fast as memory allows.
const READ: u64 = 256;

/// One rendering.
#[derive(Debug)]
pub struct Run {
    /// The most bytes that may be written.
    pub most: usize,
    work: u64,
    /// What is left of the work. Only one thread renders: all this is atomic because the engine shares its objects.
    left: AtomicU64,
    lenient: AtomicBool,
    printing: AtomicBool,
    stopped: OnceLock<String>,
    compared: OnceLock<Box<str>>,
    spelled: Mutex<HashMap<u64, Value>>,
}

impl Run {
    pub fn new(most: usize, work: u64) -> Run {
        Run {
            most,
            work,
            left: AtomicU64::new(work),
            lenient: AtomicBool::default(),
            printing: AtomicBool::default(),
            stopped: OnceLock::new(),
            compared: OnceLock::new(),
            spelled: Mutex::default(),
        }
    }

    /// Takes so many units of work; false when that was too much.
    fn spend(&self, units: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed).saturating_sub(units);
        self.left.store(left, Ordering::Relaxed);
        if left == 0 {
            self.stop(|| {
                format!("more work than {} units: is a long list or text gone through again and again?", self.work)
            });
        }
        left > 0
    }

    /// The same, with an error.
    pub fn pay(&self, units: u64) -> Result<(), Error> {
        if self.spend(units) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOperation, self.stopped().unwrap_or_default().to_owned()))
    }

    /// The same for who cannot give an error: false when it shall be as if there were nothing.
    pub fn may(&self, units: u64) -> bool {
        self.spend(units) || self.lenient.load(Ordering::Relaxed)
    }

    /// A value that is read from a row, if there is work left for that.
    pub fn hand_out(&self, value: Value) -> Option<Value> {
        let bytes = value.as_bytes().map_or(0, <[u8]>::len) as u64;
        self.may(1 + bytes / READ).then_some(value)
    }

    /// Meanwhile nothing vanishes, whatever is spent: a sort that finds other values than before panics.
    pub fn leniently<T>(&self, work: impl FnOnce() -> T) -> T {
        meanwhile(&self.lenient, work)
    }

    /// Meanwhile who writes gives no error, which would have no line: who prints asks afterwards.
    pub fn printing<T>(&self, print: impl FnOnce() -> T) -> T {
        meanwhile(&self.printing, print)
    }

    pub fn is_printing(&self) -> bool {
        self.printing.load(Ordering::Relaxed)
    }

    /// A bound was passed: what comes now is in vain. The first one counts.
    pub fn stop(&self, what: impl FnOnce() -> String) {
        self.left.store(0, Ordering::Relaxed);
        self.stopped.get_or_init(what);
    }

    /// The bound that was passed.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// A number that cannot be compared, and is.
    pub fn compare(&self, number: &str) {
        self.compared.get_or_init(|| number.into());
    }

    /// A number that cannot be compared, and was.
    pub fn compared(&self) -> Option<&str> {
        self.compared.get().map(|text| &**text)
    }

    /// Whether the rendering fails, even if nobody has said so yet.
    pub fn is_over(&self) -> bool {
        self.stopped.get().is_some() || self.compared.get().is_some()
    }

    /// How this number was written where it was read last.
    pub fn spelling(&self, number: f64) -> Option<Value> {
        self.spelled.lock().unwrap_or_else(PoisonError::into_inner).get(&number.to_bits()).cloned()
    }

    /// How this number is written: as it was read, or with the fewest digits.
    pub fn written(&self, number: f64) -> String {
        let spelling = self.spelling(number);
        spelling.as_ref().and_then(Value::as_str).map_or_else(|| format!("{number:?}"), str::to_owned)
    }

    pub fn remember(&self, number: f64, text: &Value) {
        self.spelled.lock().unwrap_or_else(PoisonError::into_inner).insert(number.to_bits(), text.clone());
    }
}

impl Object for Run {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

fn meanwhile<T>(flag: &AtomicBool, work: impl FnOnce() -> T) -> T {
    let before = flag.swap(true, Ordering::Relaxed);
    let done = work();
    flag.store(before, Ordering::Relaxed);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_does_not_come_back_and_the_first_bound_is_the_one_that_is_told() {
        let run = Run::new(10, 5);
        assert!(run.pay(3).is_ok() && run.may(1) && !run.is_over());
        assert!(!run.may(1) && run.is_over());
        assert!(run.leniently(|| run.may(1)), "a filter at work sees everything");
        assert!(!run.may(1) && run.pay(0).is_err());
        run.stop(|| "another one".into());
        let told = run.stopped().unwrap();
        assert!(told.starts_with("more work than 5 units: "), "{told}");
    }

    #[test]
    fn a_long_text_costs_more_to_read_than_a_short_one() {
        let run = Run::new(10, 100);
        assert!(run.hand_out(Value::from("x")).is_some());
        assert!(run.hand_out(Value::from("x".repeat(100 * 256))).is_none());
    }
}
