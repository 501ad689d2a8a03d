//! From a schema file to a `Contract`: the only place where contracts touch files.
//!
//! A schema may refer to itself and to files below its own directory; all are read now, and nothing later. The dialect is
//! what `$schema` says: draft 2020-12 (also without one) or draft-07. `format` and `content…` describe and do not judge, in
//! both dialects. Patterns are matched in linear time, so look-around and back-references are refused.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ReferencingError, Retrieve, Uri, ValidationError};
use serde_json::Value;

use super::Contract;
use super::document::Payload;
use super::violation::expectation;

/// No schema file is larger.
const SIZE: u64 = 4 << 20;

/// What a schema without an absolute `$id` is called. Two levels, so that `..` does not come back to the same place.
const NAME: &str = "json-schema:///directory-of-the-schema/schema";

/// Why a schema was refused, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, and in which file.
    pub what: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Contract {
    /// Reads and compiles a schema.
    pub fn load(path: &Path) -> Result<Contract, Fault> {
        let fault = |problem: String| Fault::new(format!("schema {}: {problem}", path.display()));
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            Some(_) | None => Path::new("."),
        };
        let directory = directory.canonicalize().map_err(|error| fault(unreadable(error)))?;
        let schema = read(path).map_err(fault)?;
        let draft = draft(&schema).map_err(|problem| fault(problem).hint(DRAFTS))?.unwrap_or(Draft::Draft202012);

        let name = absolute_id(&schema).unwrap_or(NAME);
        let refused = Arc::default();
        let files = Files { directory, base: base_of(name), draft, refused: Arc::clone(&refused) };
        let validator = jsonschema::options_for::<Payload>()
            .with_draft(draft)
            .with_base_uri(name)
            .with_retriever(files)
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(false)
            .without_content_encoding_support("base64")
            .without_content_media_type_support("application/json")
            .build(&schema)
            .map_err(|error| match error.kind() {
                ValidationErrorKind::Referencing(error) => reference(error, &refused).of(path),
                _ => fault(invalid(&error)),
            })?;
        Ok(Contract { validator })
    }
}

const DRAFTS: &str = "known are https://json-schema.org/draft/2020-12/schema (also without \"$schema\") and \
                      http://json-schema.org/draft-07/schema#";

const REFERENCES: &str = "a schema may refer to itself and to files below its own directory, nothing is fetched";

impl Fault {
    fn new(what: String) -> Fault {
        Fault { what, hint: None }
    }

    fn hint(mut self, hint: &str) -> Fault {
        self.hint = Some(hint.to_owned());
        self
    }

    fn of(mut self, path: &Path) -> Fault {
        self.what = format!("schema {}: {}", path.display(), self.what);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Fault {}

/// The files that a schema may refer to.
struct Files {
    /// The schema's own directory, without symbolic links.
    directory: PathBuf,
    /// What stands before the path of a file in its URI; a schema whose name has no path can refer to none.
    base: Option<String>,
    /// The dialect of a file that names none.
    draft: Draft,
    /// Why the last reference was refused: the validator does not always pass it on.
    refused: Arc<Mutex<Option<String>>>,
}

impl Retrieve for Files {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        self.file(uri.as_str()).map_err(|problem| {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.clone());
            problem.into()
        })
    }
}

impl Files {
    fn file(&self, uri: &str) -> Result<Value, String> {
        let outside = || "it is not below the directory of the schema".to_owned();
        let base = self.base.as_deref().ok_or_else(outside)?;
        let relative = uri.strip_prefix(base).and_then(decoded).ok_or_else(outside)?;
        let path = self.directory.join(relative).canonicalize().map_err(unreadable)?;
        // What counts is where it really is: neither a link nor an encoded `..` leads out.
        if !path.starts_with(&self.directory) {
            return Err(outside());
        }
        let schema = read(&path)?;
        let checked = match draft(&schema)?.unwrap_or(self.draft) {
            Draft::Draft7 => jsonschema::draft7::meta::validate(&schema),
            _ => jsonschema::draft202012::meta::validate(&schema),
        };
        checked.map_err(|error| invalid(&error))?;
        Ok(schema)
    }
}

fn read(path: &Path) -> Result<Value, String> {
    // Nothing is opened before it is known to be a file: to open a pipe would wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(SIZE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > SIZE {
        return Err(format!("it is larger than {} MiB", SIZE >> 20));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("it is not JSON: {error}"))
}

fn unreadable(error: std::io::Error) -> String {
    format!("it cannot be read: {error}")
}

/// The dialect that a schema names, after a look at those of its parts.
fn draft(schema: &Value) -> Result<Option<Draft>, String> {
    let mut named = None;
    if let Value::Object(members) = schema {
        for (name, member) in members {
            match (name.as_str(), member) {
                ("$schema", Value::String(dialect)) => named = Some(known(dialect)?),
                // These hold values, not schemas.
                ("const" | "enum" | "default" | "examples", _) => {}
                (_, member) => {
                    draft(member)?;
                }
            }
        }
    }
    if let Value::Array(items) = schema {
        items.iter().try_for_each(|item| draft(item).map(|_| ()))?;
    }
    Ok(named)
}

fn known(dialect: &str) -> Result<Draft, String> {
    match dialect.trim_end_matches('#') {
        "https://json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "http://json-schema.org/draft-07/schema" | "https://json-schema.org/draft-07/schema" => Ok(Draft::Draft7),
        _ => Err(format!("its $schema {dialect:?} is not supported")),
    }
}

/// The schema's `$id`, when it can be the base of references.
fn absolute_id(schema: &Value) -> Option<&str> {
    let id = schema.get("$id")?.as_str()?.trim_end_matches('#');
    let (scheme, rest) = id.split_once(':')?;
    let legal = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '+' | '-' | '.');
    let is_scheme = scheme.starts_with(|sign: char| sign.is_ascii_alphabetic()) && scheme.chars().all(legal);
    (is_scheme && !rest.is_empty() && !id.contains('#')).then_some(id)
}

/// What the directory of the schema is called in URIs: `https://a/b/c.json` is in `https://a/b/`.
fn base_of(name: &str) -> Option<String> {
    let (scheme, rest) = name.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let directory = rest.rsplit_once('/').map_or(rest, |(directory, _)| directory);
    Some(format!("{scheme}://{directory}/"))
}

/// A path without its percent signs; none where they are wrong.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut parts = path.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))
}

fn reference(error: &ReferencingError, refused: &Mutex<Option<String>>) -> Fault {
    match error {
        ReferencingError::Unretrievable { uri, source } => {
            let refused = refused.lock().unwrap_or_else(PoisonError::into_inner).take();
            let why = refused.unwrap_or_else(|| source.to_string());
            Fault::new(format!("its reference \"{uri}\" cannot be followed: {why}")).hint(REFERENCES)
        }
        ReferencingError::PointerToNowhere { pointer } => {
            Fault::new(format!("its reference to \"{pointer}\" leads nowhere"))
        }
        ReferencingError::NoSuchAnchor { anchor } => Fault::new(format!("its reference to \"{anchor}\" leads nowhere")),
        _ => Fault::new(format!("one of its references is wrong: {error}")),
    }
}

/// What is wrong with a schema, and at which place in it.
fn invalid(error: &ValidationError<'_>) -> String {
    let place = match error.instance_path().as_str() {
        "" => "its root",
        path => path,
    };
    match error.kind() {
        ValidationErrorKind::Format { format } => format!("it is not valid at {place}: no {format} is written so"),
        _ => format!("it is not valid at {place}: expected {}", expectation(error)),
    }
}
