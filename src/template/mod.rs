//! Templates: a row's columns enter, the bytes of a value, a key or a header leave, or a problem with its place.
//!
//! Templates are compiled once. Rendering is a function of template and row alone: it reads no file, no clock and no
//! network, draws no random number, and is bounded in output, steps and depth. Only `load` reads files.

mod filters;
mod json;
mod jsonld;
mod load;
mod names;
mod number;
mod row;
mod run;
mod time;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

pub use jsonld::Contexts;
pub use load::Fault;
use row::Row;
pub use row::{Columns, Typed};
use run::{Run, WORK};

/// The instructions that one rendering may take. An order template takes about 50; a loop over 10,000 lines with ten
/// fields each takes half of it, and all of it takes some hundredths of a second, for which other events wait.
const FUEL: u64 = 1_000_000;

/// How deep a rendering may go: an include costs 10, a call of a macro 4, a block 1. Measured on threads of 2 MiB.
const RECURSION: usize = 200;

/// The longest message of a problem: it may quote a value.
const MESSAGE: usize = 500;

/// The templates of a directory, compiled.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
    /// Per template, the columns that it may read.
    columns: BTreeMap<String, Arc<[Box<str>]>>,
}

/// Where in a template something is wrong, and what: one line, good for a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The template's name.
    pub template: String,
    /// Line and column, from 1, where the engine knows them.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub what: String,
}

impl Templates {
    /// Compiles templates given by name and text. They can include, import and extend each other, and nothing else.
    pub fn from_sources(sources: impl IntoIterator<Item = (String, String)>) -> Result<Templates, Problem> {
        Templates::with_contexts(sources, Contexts::default())
    }

    /// The same, with contexts for the filters of JSON-LD.
    pub fn with_contexts(
        sources: impl IntoIterator<Item = (String, String)>,
        contexts: Contexts,
    ) -> Result<Templates, Problem> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(RECURSION);
        environment.set_fuel(Some(FUEL));
        // Costs nothing until something is wrong; then it says which variable is undefined.
        environment.set_debug(true);
        // One that holds itself, and is written, would end the process.
        environment.remove_global("namespace");
        filters::add_to(&mut environment);
        jsonld::add_to(&mut environment, contexts);
        for (name, source) in sources {
            let added = environment.add_template_owned(name.clone(), source.clone());
            added.map_err(|error| Problem::new(&error, &name, |_| Some(source.clone())))?;
        }
        names::check(&environment)?;
        let columns = names::columns(&environment);
        Ok(Templates { environment, columns })
    }

    /// The templates' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(String::as_str)
    }

    /// The columns that a template may read, and other names that it uses: whoever renders need not give more.
    pub fn columns(&self, name: &str) -> &[Box<str>] {
        self.columns.get(name).map_or(&[], |columns| columns)
    }

    /// Appends what the template makes of the row, at most so many bytes; nothing if there is a problem.
    pub fn render(&self, name: &str, row: &Columns<'_>, out: &mut Vec<u8>, most: u64) -> Result<(), Problem> {
        let start = out.len();
        let rendered = self.append(name, row, out, most);
        if rendered.is_err() {
            out.truncate(start);
        }
        rendered
    }

    fn append(&self, name: &str, row: &Columns<'_>, out: &mut Vec<u8>, most: u64) -> Result<(), Problem> {
        let problem = |what: String| Problem { template: name.to_owned(), place: None, what };
        let (Ok(template), Some(columns)) = (self.environment.get_template(name), self.columns.get(name)) else {
            return Err(problem("there is no such template".into()));
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let run = Arc::new(Run::new(most, WORK));
        let context = Value::from_object(Row::new(row, columns, run.clone()));
        let mut bounded = Bounded { out, left: most, run: &run };
        let rendered = template.render_captured_to(context, &mut bounded);
        let place = match rendered {
            Ok(_) if !run.is_over() => return Ok(()),
            Ok(_) => None,
            Err(error) => Some(Problem::new(&error, name, |name| self.source(name))),
        };
        // What was passed first is what is wrong: what the engine made of it says less.
        let what = run.stopped().map(str::to_owned).or_else(|| {
            let number = run.compared()?;
            Some(format!("{number} has more digits than can be compared or calculated with: use the filter float"))
        });
        match (place, what) {
            (Some(found), None) => Err(found),
            (Some(found), Some(what)) => Err(Problem { what: one_line(&what), ..found }),
            (None, what) => Err(problem(one_line(&what.unwrap_or_default()))),
        }
    }

    fn source(&self, name: &str) -> Option<String> {
        self.environment.get_template(name).ok().map(|template| template.source().to_owned())
    }
}

impl Problem {
    fn new(error: &Error, template: &str, source: impl Fn(&str) -> Option<String>) -> Problem {
        let error = innermost(error);
        let name = error.name().unwrap_or(template).to_owned();
        let start = error.range().and_then(|range| Some(column(&source(&name)?, range.start))).unwrap_or(1);
        let what = match (error.kind(), error.detail()) {
            (ErrorKind::OutOfFuel, _) => format!("more than {FUEL} steps: is there an endless loop?"),
            (ErrorKind::InvalidOperation | ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
            (kind, Some(detail)) => format!("{kind}: {detail}"),
            (kind, None) => kind.to_string(),
        };
        Problem { template: name, place: error.line().map(|line| (line, start)), what: one_line(&what) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { template, place, what } = self;
        match place {
            Some((line, column)) => write!(f, "template \"{template}\", line {line}, column {column}: {what}"),
            None => write!(f, "template \"{template}\": {what}"),
        }
    }
}

impl std::error::Error for Problem {}

/// The error that caused the others: the one in the included template, not the include.
fn innermost(error: &Error) -> &Error {
    let mut cause = error;
    while let Some(next) = std::error::Error::source(cause).and_then(|source| source.downcast_ref::<Error>()) {
        if next.line().is_none() {
            break;
        }
        cause = next;
    }
    cause
}

fn one_line(text: &str) -> String {
    let cut = text.floor_char_boundary(MESSAGE);
    let end = if cut < text.len() { "…" } else { "" };
    let line: String = text[..cut].chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect();
    line + end
}

/// In which column of its line this byte stands.
fn column(source: &str, start: usize) -> usize {
    source.get(..start).map_or(1, |before| before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
}

/// Takes so many bytes and no more.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    left: usize,
    run: &'a Run,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            self.run.stop(|| format!("its output is larger than {} bytes", self.run.most));
        }
        if !self.run.is_over() {
            self.left -= bytes.len();
            self.out.extend_from_slice(bytes);
        } else if !self.run.is_printing() {
            return Err(io::Error::other("full"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
