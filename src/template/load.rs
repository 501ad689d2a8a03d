//! The one place that reads: the templates and contexts of a directory, before anything is rendered.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Contexts, Problem, Templates};

/// How a template's file ends.
const ENDING: &str = ".j2";

/// How a file with a context of JSON-LD ends.
const CONTEXT: &str = ".jsonld";

/// A file that is wrong, or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, or the directory.
    pub file: PathBuf,
    /// Line and column, from 1, where there is one.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
}

impl Templates {
    /// Compiles every `*.j2` of a directory, not of those below it. A template's name is its file's without the ending;
    /// those that are named must be there. Contexts are its `*.jsonld`; `mapped` says which of them stands for an IRI.
    pub fn load<'a>(
        directory: &Path,
        names: impl Iterator<Item = &'a str>,
        mapped: &BTreeMap<String, String>,
    ) -> Result<Templates, Fault> {
        let contexts = Contexts::new(read(directory, CONTEXT)?, mapped);
        let contexts =
            contexts.map_err(|(file, message)| Fault { file: directory.join(file), place: None, message })?;
        let sources = read(directory, ENDING)?.into_iter().map(|(file, text)| (stem(&file), text));
        let templates = Templates::with_contexts(sources, contexts);
        let templates = templates.map_err(|problem| Fault::of(directory, problem))?;
        for name in names {
            if !templates.names().any(|known| known == name) {
                return Err(Fault::missing(directory, name, &templates));
            }
        }
        Ok(templates)
    }
}

impl Fault {
    fn of(directory: &Path, Problem { template, place, what }: Problem) -> Fault {
        Fault { file: directory.join(template + ENDING), place, message: what }
    }

    fn missing(directory: &Path, name: &str, templates: &Templates) -> Fault {
        let near = templates.names().min_by_key(|known| strsim::damerau_levenshtein(known, name));
        let hint = near.map_or("the directory has no templates".into(), |near| format!("did you mean \"{near}\"?"));
        let message = format!("there is no template \"{name}\"; {hint}");
        Fault { file: directory.join(format!("{name}{ENDING}")), place: None, message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Fault {}

fn stem(file: &str) -> String {
    file.strip_suffix(ENDING).unwrap_or(file).to_owned()
}

/// The files with this ending, and their texts, in order.
fn read(directory: &Path, ending: &str) -> Result<Vec<(String, String)>, Fault> {
    let unreadable = |file: &Path, error: &dyn fmt::Display| Fault {
        file: file.to_owned(),
        place: None,
        message: format!("cannot be read: {error}"),
    };
    let entries = fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(|error| unreadable(directory, &error))?.path();
        if let Some(name) = file.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(ending)) {
            let text = fs::read_to_string(&file).map_err(|error| unreadable(&file, &error))?;
            files.push((name.to_owned(), text));
        }
    }
    files.sort();
    Ok(files)
}
