//! What a payload did against its contract, in one line that never shows a value of the payload.

use std::fmt;
use std::fmt::Write;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use super::document::Broken;

/// How many characters of a path are kept: its end, which says most.
const PATH: usize = 100;

/// How many characters tell what was expected.
const EXPECTED: usize = 140;

/// Why a payload was refused. As text one line of at most 300 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The payload is not JSON.
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// The payload is not what the schema says.
    Broken {
        /// Where in the payload, as a JSON pointer; empty for the payload as a whole.
        path: String,
        /// The keyword of the schema that does not hold.
        keyword: String,
        /// What it expects.
        expected: String,
        /// How many violations there are beside this one.
        further: usize,
    },
}

impl Violation {
    pub(super) fn not_json(payload: &[u8], Broken { at, what }: Broken) -> Violation {
        let before = &payload[..at.min(payload.len())];
        let line = before.split(|byte| *byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        Violation::NotJson { line, column: before.len() - start + 1, problem: what }
    }

    /// The first of the violations, with the number of the others.
    pub(super) fn of<'e>(mut errors: impl Iterator<Item = ValidationError<'e>>) -> Violation {
        let Some(first) = errors.next() else {
            let (path, keyword, expected) = (String::new(), "schema".to_owned(), "another payload".to_owned());
            return Violation::Broken { path, keyword, expected, further: 0 };
        };
        let path = ending(first.instance_path().as_str(), PATH);
        let keyword = keyword(&first).to_owned();
        Violation::Broken { path, keyword, expected: expectation(&first), further: errors.count() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::NotJson { line, column, problem } => {
                write!(f, "not JSON at line {line} column {column}: {problem}")
            }
            Violation::Broken { path, keyword, expected, further } => {
                let path = if path.is_empty() { "the root" } else { path };
                write!(f, "at {path}: expected {expected} ({keyword})")?;
                if *further > 0 { write!(f, ", and {further} more") } else { Ok(()) }
            }
        }
    }
}

/// What was expected, in at most `EXPECTED` characters.
pub(super) fn expectation(error: &ValidationError<'_>) -> String {
    let mut line = Line { text: String::new(), left: EXPECTED };
    // The only failure is a line that is full.
    if write_expectation(&mut line, error).is_err() {
        line.text.push('…');
    }
    line.text
}

/// The keyword as the schema has it.
fn keyword<'e>(error: &'e ValidationError<'_>) -> &'e str {
    match error.kind() {
        // `dependentRequired` and draft-07's `dependencies` report a missing member as `required` does.
        ValidationErrorKind::Required { .. } => {
            let mut segments = error.schema_path().as_str().rsplit('/');
            segments
                .find(|segment| ["required", "dependentRequired", "dependencies"].contains(segment))
                .unwrap_or("required")
        }
        // A member that `additionalProperties: false` forbids is reported as what no value fits.
        ValidationErrorKind::FalseSchema => match error.schema_path().as_str().rsplit('/').next() {
            Some(last) if last.starts_with("additional") || last.starts_with("unevaluated") => last,
            Some(_) | None => "false",
        },
        kind => kind.keyword(),
    }
}

fn write_expectation(line: &mut Line, error: &ValidationError<'_>) -> fmt::Result {
    use ValidationErrorKind as Kind;
    let items = |limit: u64| if limit == 1 { "item" } else { "items" };
    let members = |limit: u64| if limit == 1 { "member" } else { "members" };
    let characters = |limit: u64| if limit == 1 { "character" } else { "characters" };
    match error.kind() {
        Kind::AdditionalItems { limit } => write!(line, "no more than {limit} items"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            line.write_str("no member ")?;
            list(line, unexpected.iter().map(|name| format!("{name:?}")))
        }
        Kind::AnyOf { context } => {
            write!(line, "a match with one of {} alternatives", context.len())?;
            nearest(line, error, context)
        }
        Kind::OneOfNotValid { context } => {
            write!(line, "a match with one of {} alternatives", context.len())?;
            nearest(line, error, context)
        }
        Kind::OneOfMultipleValid { .. } => line.write_str("a match with one alternative only"),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            line.write_str("a text that the pattern can be tried on")
        }
        Kind::Constant { expected_value } => write!(line, "{expected_value}"),
        Kind::Contains => line.write_str("other items to be contained"),
        Kind::ContentEncoding { content_encoding } => write!(line, "a text in {content_encoding}"),
        Kind::ContentMediaType { content_media_type } => write!(line, "a text of type {content_media_type}"),
        Kind::FromUtf8 { .. } => line.write_str("a text that holds UTF-8"),
        Kind::Custom { message, .. } => line.write_str(message),
        Kind::Enum { options } => {
            line.write_str("one of ")?;
            list(line, options.as_array().map_or(&[][..], Vec::as_slice).iter().map(Value::to_string))
        }
        Kind::ExclusiveMaximum { limit } => write!(line, "less than {limit}"),
        Kind::ExclusiveMinimum { limit } => write!(line, "more than {limit}"),
        Kind::Maximum { limit } => write!(line, "at most {limit}"),
        Kind::Minimum { limit } => write!(line, "at least {limit}"),
        Kind::FalseSchema => line.write_str("nothing here"),
        Kind::Format { format } => write!(line, "the format {format}"),
        Kind::MaxItems { limit } => write!(line, "at most {limit} {}", items(*limit)),
        Kind::MinItems { limit } => write!(line, "at least {limit} {}", items(*limit)),
        Kind::MaxLength { limit } => write!(line, "at most {limit} {}", characters(*limit)),
        Kind::MinLength { limit } => write!(line, "at least {limit} {}", characters(*limit)),
        Kind::MaxProperties { limit } => write!(line, "at most {limit} {}", members(*limit)),
        Kind::MinProperties { limit } => write!(line, "at least {limit} {}", members(*limit)),
        Kind::MultipleOf { multiple_of } => write!(line, "a multiple of {multiple_of}"),
        Kind::Not { schema } => write!(line, "no match with {schema}"),
        Kind::Pattern { pattern } => write!(line, "a text that matches {pattern:?}"),
        Kind::PropertyNames { error } => {
            line.write_str("as every member's name ")?;
            write_expectation(line, error)
        }
        Kind::Required { property } => write!(line, "the member {property}"),
        Kind::Type { kind: TypeKind::Single(expected) } => write!(line, "the type {expected}"),
        Kind::Type { kind: TypeKind::Multiple(expected) } => {
            line.write_str("the type ")?;
            list(line, expected.iter().map(|expected| expected.to_string()))
        }
        Kind::UnevaluatedItems { .. } => line.write_str("no further items"),
        Kind::UniqueItems => line.write_str("no two equal items"),
        Kind::Referencing(error) => write!(line, "{error}"),
    }
}

/// Of the alternatives that did not fit, the first violation of the one with the fewest.
fn nearest(line: &mut Line, error: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>]) -> fmt::Result {
    let tried = context.iter().filter(|errors| !errors.is_empty());
    let Some(closest) = tried.min_by_key(|errors| errors.len()).and_then(|errors| errors.first()) else {
        return Ok(());
    };
    line.write_str("; the nearest expects ")?;
    write_expectation(line, closest)?;
    let (outer, inner) = (error.instance_path().as_str(), closest.instance_path().as_str());
    match inner.strip_prefix(outer) {
        Some("") | None => Ok(()),
        Some(below) => write!(line, " at {below}"),
    }
}

fn list(line: &mut Line, items: impl Iterator<Item = String>) -> fmt::Result {
    for (index, item) in items.enumerate() {
        line.write_str(if index == 0 { "" } else { ", " })?;
        line.write_str(&item)?;
    }
    Ok(())
}

/// The last characters of a text, on one line.
fn ending(text: &str, most: usize) -> String {
    let skip = text.chars().count().saturating_sub(most);
    let mut line = Line { text: String::new(), left: most };
    if skip > 0 {
        line.text.push('…');
    }
    // Escapes can make it longer than it was; then its end is cut.
    if text.chars().skip(skip).try_for_each(|sign| line.write_char(sign)).is_err() {
        line.text.push('…');
    }
    line.text
}

/// Takes so many characters and no more, and keeps to one line.
struct Line {
    text: String,
    left: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for sign in text.chars() {
            let escapes = sign.is_control() || matches!(sign, '\u{2028}' | '\u{2029}');
            let escaped = escapes.then(|| sign.escape_default());
            let length = escaped.as_ref().map_or(1, |escaped| escaped.len());
            self.left = self.left.checked_sub(length).ok_or(fmt::Error)?;
            match escaped {
                Some(escaped) => self.text.extend(escaped),
                None => self.text.push(sign),
            }
        }
        Ok(())
    }
}
