//! `outboxd render`: what a template makes of a row that stands in a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use outboxd::error::Error;
use outboxd::template::{Columns, Fault, Templates, Typed};
use serde_json::value::RawValue;

use super::{Failure, Outcome, Render, print_bytes};

/// The most bytes that are shown: a record of this size is far beyond what brokers take.
const MOST: u64 = 64 << 20;

/// A member of the row's object: a text, or anything else as it is written.
enum Member {
    Text(String),
    Other(Box<RawValue>),
}

/// `outboxd render`
pub fn run(args: &Render) -> Outcome {
    let row = read(&args.row)?;
    let (templates, name) = find(args).map_err(refused)?;
    let columns = Columns(row.iter().map(|(name, member)| (name.as_str(), member.typed(name))).collect());
    let mut out = Vec::new();
    templates.render(&name, &columns, &mut out, MOST).map_err(|problem| Error::definite(problem.to_string()))?;
    print_bytes(&out)
}

/// A file stands with its neighbours, which it may include; a name is looked up in the directory.
fn find(args: &Render) -> Result<(Templates, String), Fault> {
    let path = Path::new(&args.template);
    let named = args.template.strip_suffix(".j2").and(path.file_stem()).and_then(|name| name.to_str());
    let (directory, name) = match named {
        Some(name) => (path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")), name),
        None => (args.templates.as_path(), args.template.as_str()),
    };
    Ok((Templates::load(directory, [name].into_iter(), &BTreeMap::new())?, name.to_owned()))
}

/// What has a place is a template to be mended; the rest was not found or not readable.
fn refused(fault: Fault) -> Failure {
    let error = Error::definite(fault.to_string());
    if fault.place.is_some() { Failure::Error(error) } else { Failure::Usage(error) }
}

fn read(file: &Path) -> Result<BTreeMap<String, Member>, Failure> {
    let wrong = |what: &str| Error::definite(format!("{} {what}", file.display()));
    let text = fs::read(file).map_err(|error| Failure::Usage(wrong("cannot be read").because(error)))?;
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(&text).map_err(|error| Failure::Usage(wrong("is not a JSON object").because(error)))?;
    let member = |raw: Box<RawValue>| match serde_json::from_str(raw.get()) {
        Ok(text) => Member::Text(text),
        Err(_) => Member::Other(raw),
    };
    Ok(members.into_iter().map(|(name, raw)| (name, member(raw))).collect())
}

impl Member {
    fn typed(&self, name: &str) -> Typed<'_> {
        match self {
            // A text column may hold the payload: it is a document all the same.
            Member::Text(text) if name == "payload" && serde_json::from_str::<&RawValue>(text).is_ok() => {
                Typed::Json(text.as_bytes())
            }
            Member::Text(text) => Typed::Text(text),
            Member::Other(raw) => match raw.get() {
                "null" => Typed::Null,
                "true" => Typed::Boolean(true),
                "false" => Typed::Boolean(false),
                document => Typed::Json(document.as_bytes()),
            },
        }
    }
}
