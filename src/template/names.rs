//! What the templates use by name: the columns that they may read; filters, tests and functions, which must be there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use minijinja::machinery::{CompiledTemplate, Instruction, get_compiled_template};
use minijinja::{Environment, ErrorKind};

use super::Problem;

/// Per template, the names that it may look up, as the engine compiled it: the columns, and what else it has under a name
/// (a macro's argument, say; no variable of a loop). One that leads to other templates may look up what any of them does.
pub(super) fn columns(environment: &Environment<'static>) -> BTreeMap<String, Arc<[Box<str>]>> {
    let mut own = BTreeMap::new();
    for (name, template) in environment.templates() {
        let (mut names, mut leads) = (BTreeSet::new(), false);
        let bound = only_bound(get_compiled_template(&template), &template.undeclared_variables(false));
        for (instruction, ..) in every(get_compiled_template(&template)) {
            match instruction {
                Instruction::Lookup(name) | Instruction::Enclose(name) | Instruction::CallFunction(name, _)
                    if !bound.contains(name) =>
                {
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

/// The names that are nothing but variables of loops there.
fn only_bound<'a>(compiled: &'a CompiledTemplate<'a>, undeclared: &HashSet<String>) -> BTreeSet<&'a str> {
    let (mut loops, mut others, mut before) = (BTreeSet::new(), BTreeSet::new(), None::<&Instruction<'_>>);
    for (instruction, ..) in every(compiled) {
        match (instruction, before) {
            (Instruction::StoreLocal(name), Some(Instruction::Iterate(_))) => drop(loops.insert(*name)),
            (Instruction::StoreLocal(name), _) => drop(others.insert(*name)),
            _ => {}
        }
        before = Some(instruction);
    }
    loops.retain(|name| !others.contains(name) && !undeclared.contains(*name));
    loops
}

/// What is used by its name.
enum Used<'a> {
    Filter(&'a str),
    Test(&'a str),
    Function(&'a str),
}

impl<'a> Used<'a> {
    /// What an instruction uses by itself, and what the engine's filters use that are told a name; `before` stands before it.
    fn of(instruction: &'a Instruction<'a>, before: Option<&'a Instruction<'a>>) -> Vec<Used<'a>> {
        let told = match before {
            Some(Instruction::LoadConst(value)) => value.as_str(),
            _ => None,
        };
        match (instruction, told) {
            (Instruction::ApplyFilter("map", Some(2), _), Some(name)) => vec![Used::Filter(name)],
            (Instruction::ApplyFilter("select" | "reject", Some(2), _), Some(name)) => vec![Used::Test(name)],
            (Instruction::ApplyFilter("selectattr" | "rejectattr", Some(3), _), Some(name)) => vec![Used::Test(name)],
            (Instruction::ApplyFilter(name, ..), _) => vec![Used::Filter(name)],
            (Instruction::PerformTest(name, ..), _) => vec![Used::Test(name)],
            (Instruction::CallFunction(name, _), _) => vec![Used::Function(name)],
            _ => Vec::new(),
        }
    }
}

/// Refuses a filter, a test or a function that is not there, also where no row would have shown it yet.
pub(super) fn check(environment: &Environment<'static>) -> Result<(), Problem> {
    let mut state = environment.empty_state();
    let globals = environment.globals().map(|(name, _)| name.to_owned());
    // Macros, and what is imported; what another template has may be seen from an included one.
    let mut functions: BTreeSet<String> = globals.chain(["super", "loop", "caller"].map(str::to_owned)).collect();
    for (_, template) in environment.templates() {
        let stored = every(get_compiled_template(&template)).filter_map(|(instruction, ..)| match instruction {
            Instruction::StoreLocal(name) => Some((*name).to_owned()),
            _ => None,
        });
        functions.extend(stored);
    }
    for (name, template) in environment.templates() {
        let mut before = None;
        for (instruction, line, start) in every(get_compiled_template(&template)) {
            for used in Used::of(instruction, before) {
                let (kind, used, is_missing) = match used {
                    Used::Filter(filter) => {
                        let tried = state.apply_filter(filter, &[]);
                        ("filter", filter, tried.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter))
                    }
                    Used::Test(test) => {
                        let tried = state.perform_test(test, &[]);
                        ("test", test, tried.is_err_and(|error| error.kind() == ErrorKind::UnknownTest))
                    }
                    Used::Function(function) => ("function", function, !functions.contains(function)),
                };
                if is_missing {
                    let place = line.map(|line| (line, super::column(template.source(), start)));
                    let what = format!("unknown {kind}: {kind} {used} is unknown");
                    return Err(Problem { template: name.to_owned(), place, what });
                }
            }
            before = Some(instruction);
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
