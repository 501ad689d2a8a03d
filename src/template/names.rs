//! What the templates use by name: the columns that they may read; filters and tests, which must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minijinja::machinery::{CompiledTemplate, Instruction, get_compiled_template};
use minijinja::{Environment, ErrorKind};

use super::Problem;

/// Per template, the names that it may look up, as the engine compiled it: the columns, and what else it has under a name
/// (a loop's variable, say). One that leads to other templates may look up what any of them does.
pub(super) fn columns(environment: &Environment<'static>) -> BTreeMap<String, Arc<[Box<str>]>> {
    let mut own = BTreeMap::new();
    for (name, template) in environment.templates() {
        let (mut names, mut leads) = (BTreeSet::new(), false);
        for (instruction, ..) in every(get_compiled_template(&template)) {
            match instruction {
                Instruction::Lookup(name) | Instruction::Enclose(name) | Instruction::CallFunction(name, _) => {
                    names.insert((*name).to_owned());
                }
                Instruction::Include(_) | Instruction::LoadBlocks => leads = true,
                _ => {}
            }
        }
        own.insert(name.to_owned(), (names, leads));
    }
    let all: BTreeSet<String> = own.values().flat_map(|(names, _)| names.iter().cloned()).collect();
    let boxed = |names: &BTreeSet<String>| names.iter().map(|name| name.as_str().into()).collect();
    own.iter().map(|(name, (names, leads))| (name.clone(), boxed(if *leads { &all } else { names }))).collect()
}

/// Refuses a filter or a test that is not there, also where no row would have shown it yet.
pub(super) fn check(environment: &Environment<'static>) -> Result<(), Problem> {
    let mut state = environment.empty_state();
    for (name, template) in environment.templates() {
        for (instruction, line, start) in every(get_compiled_template(&template)) {
            let (what, missing) = match instruction {
                Instruction::ApplyFilter(filter, ..) => {
                    let tried = state.apply_filter(filter, &[]);
                    (
                        format!("unknown filter: filter {filter}"),
                        tried.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter),
                    )
                }
                Instruction::PerformTest(test, ..) => {
                    let tried = state.perform_test(test, &[]);
                    (
                        format!("unknown test: test {test}"),
                        tried.is_err_and(|error| error.kind() == ErrorKind::UnknownTest),
                    )
                }
                _ => continue,
            };
            if missing {
                let place = line.map(|line| (line, super::column(template.source(), start)));
                return Err(Problem { template: name.to_owned(), place, what: format!("{what} is unknown") });
            }
        }
    }
    Ok(())
}

/// Every instruction of a template and its blocks, with its line and the byte at which its source begins.
fn every<'a>(compiled: &'a CompiledTemplate<'a>) -> impl Iterator<Item = (&'a Instruction<'a>, Option<usize>, usize)> {
    std::iter::once(&compiled.instructions).chain(compiled.blocks.values()).flat_map(|instructions| {
        (0..).map_while(|at| Some((instructions.get(at)?, at))).map(|(instruction, at)| {
            let start = instructions.get_span(at).map_or(0, |span| span.start_offset as usize);
            (instruction, instructions.get_line(at), start)
        })
    })
}
