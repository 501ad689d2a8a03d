//! `outboxd render`: what a template makes of a row that stands in a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use outboxd::config::TemplateFiles;
use outboxd::error::Error;
use outboxd::template::{Columns, Fault, Templates, Typed};
use serde_json::value::RawValue;

use super::{Failure, Outcome, Render, print_bytes};

/// A member of the row's object: a text, or anything else as it is written.
enum Member {
    Text(String),
    Other(Box<RawValue>),
}

/// `outboxd render`: by the configuration's templates, contexts and limit, as far as there is a configuration.
pub fn run(files: TemplateFiles, args: &Render) -> Outcome {
    let row = read(&args.row)?;
    let most = files.most;
    let (templates, name) = find(files, args).map_err(refused)?;
    let columns = Columns(row.iter().map(|(name, member)| (name.as_str(), member.typed(name))).collect());
    let mut out = Vec::new();
    templates.render(&name, &columns, &mut out, most).map_err(|problem| Error::definite(problem.to_string()))?;
    print_bytes(&out)
}

/// A file stands with its neighbours, which it may include; a name is looked up in the directory.
fn find(files: TemplateFiles, args: &Render) -> Result<(Templates, String), Fault> {
    let TemplateFiles { directory: configured, mut contexts, .. } = files;
    let path = Path::new(&args.template);
    let named = args.template.strip_suffix(".j2").and(path.file_stem()).and_then(|name| name.to_str());
    let (directory, name) = match named {
        Some(name) => (path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")), name),
        None => (args.templates.as_deref().unwrap_or(&configured), args.template.as_str()),
    };
    if directory != configured {
        // What is tried elsewhere has the contexts that were taken there with it.
        contexts.retain(|_, file| directory.join(file).is_file());
    }
    Ok((Templates::load(directory, [name].into_iter(), &contexts)?, name.to_owned()))
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
            Member::Text(text) if name == "payload" => Typed::payload(text),
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
