//! Everything wrong with a configuration, told at once: where, which field, what is wrong, what is allowed.
//!
//! Faults come from the pure parsers and know nothing of files; a `Place` is put before them here. What a fault says is
//! printed, so a parser never puts a secret into one.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::spelling::nearest;

/// Why a configuration was refused: one or more problems, in the order of the file.
///
/// Printed without the leading `error: ` of the first problem, which the caller prints; each further one has its own.
#[derive(Debug)]
pub struct Error {
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Problem {
    order: (u8, usize),
    text: String,
    hint: Option<String>,
}

/// Where a value was typed. No `Debug`: the file's text holds secrets.
#[derive(Clone, Copy)]
pub(super) enum Place<'d> {
    /// Nowhere: there is no file, and no variable either.
    Nowhere,
    /// In a file as a whole.
    File(&'d str),
    /// In a file, at a byte of its text.
    Line { name: &'d str, text: &'d str, offset: usize },
    /// In an environment variable.
    Variable(&'d str),
}

/// What is wrong with a value, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub what: String,
    pub hint: Option<String>,
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl<'d> Place<'d> {
    /// The place of a piece of what stands here; a variable has no finer places.
    pub fn at(self, span: Range<usize>) -> Place<'d> {
        match self {
            Place::Line { name, text, .. } => Place::Line { name, text, offset: span.start },
            Place::Nowhere | Place::File(_) | Place::Variable(_) => self,
        }
    }

    /// True when the environment said so, which weighs more than the file.
    pub fn is_variable(self) -> bool {
        matches!(self, Place::Variable(_))
    }

    /// A path that was typed here: a relative one leads from the file's directory, and from the working directory in a variable.
    pub fn path(self, typed: &str) -> PathBuf {
        let file = match self {
            Place::File(name) | Place::Line { name, .. } => Path::new(name),
            Place::Nowhere | Place::Variable(_) => Path::new(""),
        };
        file.parent().unwrap_or(Path::new("")).join(typed)
    }

    fn line(self) -> usize {
        match self {
            Place::Line { text, offset, .. } => text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1,
            Place::Nowhere | Place::File(_) | Place::Variable(_) => 0,
        }
    }

    fn order(self) -> (u8, usize) {
        match self {
            Place::Line { .. } => (0, self.line()),
            Place::File(_) | Place::Nowhere => (1, 0),
            Place::Variable(_) => (2, 0),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Nowhere => Ok(()),
            Place::File(name) => write!(f, "{name}: "),
            Place::Line { name, .. } => write!(f, "{name}:{}: ", self.line()),
            Place::Variable(name) => write!(f, "{name}: "),
        }
    }
}

impl Fault {
    pub fn new(what: impl Into<String>) -> Fault {
        Fault { what: what.into(), hint: None }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    /// Says which field is meant.
    #[must_use]
    pub fn of(mut self, path: &str) -> Fault {
        self.what = format!("{path}: {}", self.what);
        self
    }

    /// Suggests the nearest of the names known, or lists them all when none is near.
    #[must_use]
    pub fn suggest(self, typed: &str, known: &[&str]) -> Fault {
        match nearest(typed, known) {
            Some(name) => self.hint(format!("did you mean \"{name}\"?")),
            None => self.hint(format!("known here: {}", known.join(", "))),
        }
    }
}

impl Error {
    /// What is wrong, problem by problem: where and what, and what would be right.
    pub fn problems(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.problems.iter().map(|problem| (problem.text.as_str(), problem.hint.as_deref()))
    }

    pub(super) fn new(place: Place<'_>, fault: Fault) -> Error {
        Error { problems: vec![Problem::new(place, fault)] }
    }
}

impl Problem {
    fn new(place: Place<'_>, fault: Fault) -> Problem {
        Problem { order: place.order(), text: format!("{place}{}", fault.what), hint: fault.hint }
    }
}

impl Problems {
    pub fn add(&mut self, place: Place<'_>, fault: Fault) {
        self.0.push(Problem::new(place, fault));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value, if nothing is wrong.
    pub fn unless_any<T>(mut self, value: T) -> Result<T, Error> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|problem| problem.order);
        Err(Error { problems: self.0 })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let lead = if index == 0 { "" } else { "\nerror: " };
            write!(f, "{lead}{}", problem.text)?;
            if let Some(hint) = &problem.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_in_the_order_of_the_file_then_the_variables() {
        let text = "a\nb\nc\n";
        let line = |offset| Place::Line { name: "f.toml", text, offset };
        let mut problems = Problems::default();
        problems.add(Place::Variable("OUTBOXD_A__B"), Fault::new("four"));
        problems.add(Place::File("f.toml"), Fault::new("three"));
        problems.add(line(4), Fault::new("two").hint("do this"));
        problems.add(line(0), Fault::new("one"));
        assert_eq!(
            problems.unless_any(()).unwrap_err().to_string(),
            "f.toml:1: one\nerror: f.toml:3: two\n  hint: do this\nerror: f.toml: three\nerror: OUTBOXD_A__B: four"
        );
    }
}
