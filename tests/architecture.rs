//! Holds `src` to the table of rooms: who may import whom, who alone may name a crate, and which rooms stay pure.
//!
//! A source is read as tokens, without comments, strings and test modules. Every path in it is followed to what it
//! names (`crate::`, `super::`, imported names), so a detour past the `use` lines is seen as well.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A room and the rooms it may import. A room imports only rooms above it, so there are no circles.
///
/// `source` has rooms inside and is its `mod.rs` only; any other room includes all files below it.
const ROOMS: &[(&str, &str)] = &[
    ("lib", ""),
    ("lsn", ""),
    ("calendar", ""),
    ("column", ""),
    ("error", ""),
    ("spelling", ""),
    ("heap", ""),
    ("log", ""),
    ("status", "lsn"),
    ("metrics", "lsn status"),
    ("receipt", ""),
    ("ledger", "lsn receipt"),
    ("dead_letter", "column lsn receipt"),
    ("record", "dead_letter lsn"),
    ("cloudevents", "calendar record"),
    ("trace", "record"),
    ("contract::number", ""),
    ("contract::document", "contract::number"),
    ("contract::violation", "contract::document"),
    ("contract", "contract::document contract::violation"),
    ("contract::load", "contract contract::document contract::violation"),
    ("template", ""),
    ("config", "cloudevents contract contract::load error spelling template"),
    ("source", ""),
    ("source::dial", "config error"),
    ("source::wire", "config error lsn source source::dial"),
    ("source::pgoutput", "lsn"),
    ("source::outbox", "calendar column config dead_letter error lsn record source source::pgoutput"),
    ("source::catalog", "column config dead_letter error lsn receipt source source::dial status"),
    (
        "route",
        "calendar cloudevents column config contract dead_letter error lsn record source::outbox source::pgoutput template \
         trace",
    ),
    ("sink", "config dead_letter error ledger lsn metrics record status"),
    (
        "pipeline",
        "config dead_letter error ledger lsn receipt record route sink source source::outbox source::pgoutput source::wire \
         status",
    ),
    ("admin", "config error lsn metrics status"),
    (
        "relay",
        "admin config dead_letter error lsn metrics pipeline receipt record route sink source source::catalog \
         source::dial source::outbox source::wire status",
    ),
    ("init", "config error lsn source source::catalog"),
    (
        "check",
        "config error lsn record route sink source source::catalog source::dial source::outbox source::pgoutput source::wire \
         status",
    ),
    ("convert", "config spelling"),
    ("workload", "config error lsn source::catalog"),
    ("demo", "config error init lsn metrics relay source::catalog status workload"),
    (
        "cli",
        "check config convert dead_letter demo error init log lsn pipeline record relay route source source::catalog status \
         template workload",
    ),
    ("main", "check cli config demo error heap init log relay source::catalog status"),
];

/// What only some rooms may name, and why.
const OWNERS: &[(&[&str], &[&str], &str)] = &[
    (
        &["rdkafka", "rdkafka_sys"],
        &["sink", "demo"],
        "Kafka has one door; demo embeds librdkafka's mock broker as the server behind it",
    ),
    (&["crate::sink::kafka"], &["sink", "relay", "check"], "the pipeline knows the trait, not who implements it"),
    (&["tokio_postgres"], &["source::catalog"], "SQL has one room"),
    (&["clap", "clap_complete", "clap_mangen"], &["cli", "log", "main"], "arguments are parsed at the edge"),
    (
        &["jsonschema"],
        &["contract", "contract::document", "contract::load", "contract::number", "contract::violation"],
        "schemas have one room",
    ),
    (
        &["minijinja", "jiff", "json_ld"],
        &["template"],
        "templates have one engine, one calendar, one JSON-LD processor",
    ),
    (&["prometheus"], &["metrics"], "every metric stands in one file"),
    (&["axum"], &["admin"], "HTTP has one room"),
    (&["saphyr_parser"], &["convert"], "only other people's configurations are YAML"),
    (
        &[
            "tokio::spawn",
            "tokio::task::spawn",
            "tokio::task::spawn_local",
            "tokio::task::JoinSet",
            "tokio::task::LocalSet",
        ],
        &["relay", "main", "source::catalog"],
        "tasks have one owner; catalog drives tokio-postgres' connection, which its client cannot do",
    ),
    (
        &["tokio::task::spawn_blocking"],
        &["relay", "main", "sink"],
        "tasks have one owner; sink asks for metadata, and librdkafka's call for it blocks",
    ),
    (
        &["crate::config::Config"],
        &["config", "main", "cli", "relay", "init", "check", "demo"],
        "a room takes its own slice of the configuration, only those that build rooms take all of it",
    ),
];

/// Rooms in which the same input always gives the same output; the simulator and the fuzzer run most of them.
const PURE: &[&str] = &[
    "cloudevents",
    "convert",
    "contract",
    "contract::document",
    "contract::number",
    "contract::violation",
    "source::pgoutput",
    "source::outbox",
    "template",
    "route",
    "trace",
    "ledger",
    "pipeline",
];

/// The one file of a pure room that reads files: before the relay runs, never while it does.
const READER: &str = "template/load.rs";

/// Paths that have no place in a pure room: I/O, clock, tasks, logging.
const IMPURE_PATHS: &[&str] = &[
    "tokio",
    "futures",
    "tracing",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
];

/// Words that have no place in a pure room.
const IMPURE_WORDS: &[&str] = &["async", "await", "println", "eprintln", "dbg"];

#[test]
fn every_room_keeps_to_its_row() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for path in sources(&src) {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap();
        found.extend(violations(file, &fs::read_to_string(&path).unwrap()));
    }
    assert!(found.is_empty(), "{} stray:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_table_has_no_circles_and_names_only_its_own_rows() {
    let names: Vec<_> = ROOMS.iter().map(|(name, _)| *name).collect();
    for (row, (name, imports)) in ROOMS.iter().enumerate() {
        for import in imports.split_whitespace() {
            assert!(names[..row].contains(&import), "{name} imports {import}, which has no row above it");
        }
        assert!(imports.split_whitespace().is_sorted(), "the imports of {name} are not sorted");
    }
    let owners = OWNERS.iter().flat_map(|(_, rooms, _)| *rooms);
    for room in owners.chain(PURE) {
        assert!(names.contains(room), "{room} has no row");
    }
}

/// All Rust files below a directory, in order.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let files = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.into_iter().flat_map(files).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// What is wrong with one file, each with its place and the rule it breaks.
fn violations(file: &str, source: &str) -> Vec<String> {
    let segments: Vec<_> = file.trim_end_matches(".rs").split('/').filter(|segment| *segment != "mod").collect();
    if segments.iter().any(|segment| *segment == "tests" || segment.ends_with("_tests")) {
        return Vec::new();
    }
    let name = segments.join("::");
    let Some(room) = room_of_file(&name) else {
        return vec![format!(
            "src/{file}:1: in no room\n  rule: every file belongs to a row of ROOMS in tests/architecture.rs"
        )];
    };
    let module = if ["lib", "main"].contains(&room) { Vec::new() } else { segments };
    let tokens = without_tests(tokens(source));
    let mut broken: Vec<(usize, String, String)> = Vec::new();
    for (line, path) in resolved(&module, paths(&tokens)) {
        broken.extend(judge(room, &path).into_iter().map(|(what, rule)| (line, what, rule)));
    }
    broken.retain(|(_, what, _)| file != READER || what != "std::fs");
    for (line, token) in tokens.iter().filter(|_| PURE.contains(&room)) {
        if IMPURE_WORDS.contains(&token.as_str()) {
            broken.push((*line, token.clone(), pure_rule(room)));
        }
    }
    broken.sort();
    // A stray import is one mistake, however often the imported name is used.
    let mut said = Vec::new();
    broken.retain(|(_, what, _)| {
        !said.contains(what) && {
            said.push(what.clone());
            true
        }
    });
    broken.into_iter().map(|(line, what, rule)| format!("src/{file}:{line}: {what}\n  rule: {rule}")).collect()
}

/// What is wrong with one path in a room: what it names, and the rule against it.
fn judge(room: &str, path: &[String]) -> Vec<(String, String)> {
    let full = path.join("::");
    let starts = |prefix: &&str| full == **prefix || full.starts_with(&format!("{prefix}::"));
    let mut broken = Vec::new();
    if path[0] == "crate" {
        let imports = ROOMS.iter().find(|(name, _)| *name == room).expect("the room has a row").1;
        match room_of_path(&path[1..]) {
            Some(target) if target == room || imports.split_whitespace().any(|import| import == target) => {}
            Some(target) => broken.push((target.to_owned(), format!("{room} may import only: {imports}"))),
            None => broken.push((full.clone(), "a path from the root names a room of ROOMS".to_owned())),
        }
    }
    for (owned, rooms, why) in OWNERS {
        if let Some(what) = owned.iter().find(|owned| starts(owned)).filter(|_| !rooms.contains(&room)) {
            broken.push(((*what).to_owned(), format!("only in {}: {why}", rooms.join(", "))));
        }
    }
    if let Some(what) = IMPURE_PATHS.iter().find(|prefix| PURE.contains(&room) && starts(prefix)) {
        broken.push(((*what).to_owned(), pure_rule(room)));
    }
    broken
}

fn pure_rule(room: &str) -> String {
    format!("{room} is pure: no async, no clock, no logging, no I/O")
}

/// The room that a file belongs to.
fn room_of_file(module: &str) -> Option<&'static str> {
    let holds = |room: &str| module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let room = ROOMS.iter().map(|(name, _)| *name).filter(|room| holds(room)).max_by_key(|room| room.len())?;
    let has_rooms = ROOMS.iter().any(|(name, _)| name.starts_with(&format!("{room}::")));
    (room == module || !has_rooms).then_some(room)
}

/// The room that a path from the crate's root leads into.
fn room_of_path(path: &[String]) -> Option<&'static str> {
    let is_room = |length: &usize| ROOMS.iter().map(|(name, _)| *name).find(|name| *name == path[..*length].join("::"));
    (1..=path.len()).rev().find_map(|length| is_room(&length))
}

/// A path as written.
#[derive(Debug)]
struct Written {
    line: usize,
    /// The modules around it inside the file.
    inline: Vec<String>,
    segments: Vec<String>,
    /// The name that a `use` gives it in this file.
    name: Option<String>,
}

/// Follows every path to what it names: `crate::…` for our own, the crate's name first for others.
fn resolved(module: &[&str], written: Vec<Written>) -> Vec<(usize, Vec<String>)> {
    let crate_path = |inside: &[&str]| -> Vec<String> {
        ["crate"].iter().chain(inside).map(|segment| (*segment).to_owned()).collect()
    };
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    let mut paths = Vec::new();
    for Written { line, inline, segments, name } in written {
        let module: Vec<&str> = module.iter().copied().chain(inline.iter().map(String::as_str)).collect();
        let supers = segments.iter().take_while(|segment| *segment == "super").count();
        let child = [&module[..], &[segments[0].as_str()]].concat();
        let (head, skip) = match segments[0].as_str() {
            "crate" | "outboxd" => (crate_path(&[]), 1),
            "super" => (crate_path(&module[..module.len().saturating_sub(supers)]), supers),
            "self" => (crate_path(&module), 1),
            first if names.contains_key(first) => (names[first].clone(), 1),
            _ if ROOMS.iter().any(|(room, _)| *room == child.join("::")) => (crate_path(&child), 1),
            _ => (Vec::new(), 0),
        };
        let path = [head, segments[skip..].to_vec()].concat();
        if let Some(name) = name {
            names.insert(name, path.clone());
        }
        // `super::*` in a room of one file names the crate's root, and so does `crate` alone: nothing of a room.
        if path.len() > 1 || path[0] != "crate" {
            paths.push((line, path));
        }
    }
    paths
}

/// All paths of a source, groups taken apart.
fn paths(tokens: &[(usize, String)]) -> Vec<Written> {
    let at = |index: usize| tokens.get(index).map_or("", |(_, token)| token.as_str());
    let mut found: Vec<Written> = Vec::new();
    let (mut index, mut depth, mut inline) = (0, 0, Vec::new());
    while index < tokens.len() {
        match at(index) {
            "{" => depth += 1,
            "}" => depth -= 1,
            "mod" if at(index + 2) == "{" => inline.push((depth, at(index + 1).to_owned())),
            _ => {}
        }
        inline.retain(|(outside, _)| at(index) != "}" || *outside < depth);
        let before = found.len();
        let imported = at(index) == "use";
        let starts = is_word(at(index)) && at(index + 1) == "::" && (index == 0 || at(index - 1) != "::");
        index = match (imported, starts) {
            (true, _) => tree(tokens, index + 1, Vec::new(), Form::Import, &mut found),
            (false, true) => tree(tokens, index, Vec::new(), Form::Expression, &mut found),
            (false, false) => index + 1,
        };
        for path in &mut found[before..] {
            path.inline = inline.iter().map(|(_, name)| name.clone()).collect();
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Import,
    Expression,
}

/// Reads one path, or a group of them behind a common beginning; gives the index behind it.
fn tree(
    tokens: &[(usize, String)],
    mut index: usize,
    mut segments: Vec<String>,
    form: Form,
    found: &mut Vec<Written>,
) -> usize {
    let at = |index: usize| tokens.get(index).map_or("", |(_, token)| token.as_str());
    let line = tokens.get(index).map_or(0, |(line, _)| *line);
    loop {
        match at(index) {
            "::" => index += 1,
            "{" if form == Form::Import => {
                index += 1;
                while !["}", ""].contains(&at(index)) {
                    index = tree(tokens, index, segments.clone(), form, found);
                    index += usize::from(at(index) == ",");
                }
                return index + 1;
            }
            word if is_word(word) || word == "*" => {
                segments.push(word.to_owned());
                index += 1;
                if at(index) != "::" {
                    break;
                }
            }
            _ => break,
        }
    }
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let mut name = segments.last().cloned().filter(|name| name != "*");
    if form == Form::Import && at(index) == "as" {
        name = Some(at(index + 1).to_owned());
        index += 2;
    }
    if segments.is_empty() {
        return index + 1;
    }
    found.push(Written { line, inline: Vec::new(), segments, name: name.filter(|_| form == Form::Import) });
    index
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Drops what stands behind `#[cfg(test)]`: tests may use any room.
fn without_tests(tokens: Vec<(usize, String)>) -> Vec<(usize, String)> {
    let is_mark = |index: usize| {
        let mark = ["#", "[", "cfg", "(", "test", ")", "]"];
        tokens[index..].iter().zip(mark).filter(|((_, token), mark)| token == mark).count() == mark.len()
    };
    let mut kept = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        if !is_mark(index) {
            kept.push(tokens[index].clone());
            index += 1;
            continue;
        }
        let mut depth = 0;
        for (_, token) in &tokens[index..] {
            index += 1;
            depth += i32::from(token == "{") - i32::from(token == "}");
            if depth == 0 && (token == "}" || token == ";") {
                break;
            }
        }
    }
    kept
}

/// The words and signs of a source with their lines; comments, strings, characters and lifetimes left out.
fn tokens(source: &str) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len());
        let (length, is_token) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => (rest.find("*/").map_or(rest.len(), |end| end + 2), false),
            '"' => (quoted(rest, 1, "\""), false),
            '\'' => (character(rest), false),
            _ if ["r\"", "r#", "br\"", "br#"].iter().any(|start| rest.starts_with(start)) => raw(rest),
            ':' if rest.starts_with("::") => (2, true),
            _ if first.is_whitespace() => (first.len_utf8(), false),
            _ if word > 0 => (word, true),
            _ => (first.len_utf8(), true),
        };
        let (token, after) = rest.split_at(length);
        if is_token {
            tokens.push((line, token.to_owned()));
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length of a literal up to its unescaped closing quote.
fn quoted(text: &str, from: usize, quote: &str) -> usize {
    let mut at = from;
    while at < text.len() && !text[at..].starts_with(quote) {
        at += if text[at..].starts_with('\\') { 1 } else { 0 };
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    (at + quote.len()).min(text.len())
}

/// The length of a character literal, or of the quote that starts a lifetime.
fn character(text: &str) -> usize {
    let mut following = text.chars().skip(1);
    let is_literal = matches!((following.next(), following.next()), (Some('\\'), _) | (Some(_), Some('\'')));
    if is_literal { quoted(text, 1, "'") } else { 1 }
}

/// The length of a raw string, or of the `r#` that lets a keyword be a name.
fn raw(text: &str) -> (usize, bool) {
    let start = text.find('r').expect("a raw string starts with r") + 1;
    let hashes = text[start..].chars().take_while(|sign| *sign == '#').count();
    if !text[start + hashes..].starts_with('"') {
        return (start + hashes, false);
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = start + hashes + 1;
    (text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()), false)
}

/// The same checker on made-up sources.
mod the_checker {
    use super::violations;

    fn assert_says(file: &str, source: &str, expected: &[&str]) {
        let found = violations(file, source);
        assert_eq!(found.len(), expected.len(), "{file}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\nshould start with {expected}");
        }
    }

    #[test]
    fn names_the_file_the_line_and_the_rule() {
        let source = "//! Routes.\n\nuse crate::lsn::Lsn;\nuse crate::source::wire::Frame;\n";
        let expected = "src/route/mod.rs:4: source::wire\n  rule: route may import only: calendar cloudevents column config contract dead_letter error lsn record source::outbox source::pgoutput template trace";
        assert_eq!(violations("route/mod.rs", source), [expected]);
    }

    #[test]
    fn sees_through_groups_detours_and_other_names() {
        for source in [
            "use crate::{lsn::Lsn, source::{wire::{self, Frame}, outbox}};",
            "fn f(frame: crate::source::wire::Frame) {}",
            "use crate::source::wire as other;",
            "use super::wire::Frame;",
            "use super::{outbox, wire};",
            "use super as parent; type F = parent::wire::Frame;",
            "fn f() { super::wire::open() }",
            "use super::wire; fn f() { wire::open(); wire::close() }",
        ] {
            let expected = "src/source/pgoutput.rs:1: source::wire\n  rule: source::pgoutput may import only: lsn";
            let found = violations("source/pgoutput.rs", source);
            assert!(found.contains(&expected.to_owned()), "{source}: {found:#?}");
        }
        let inline = "mod a { use super::super::pgoutput; mod b {} use super::f; }\nuse super::wire;";
        assert_says(
            "source/dial.rs",
            inline,
            &["src/source/dial.rs:1: source::pgoutput\n", "src/source/dial.rs:2: source::wire\n"],
        );
        assert_says("source/mod.rs", "pub mod wire;\npub use wire::Frame;", &["src/source/mod.rs:2: source::wire\n"]);
        assert_says("main.rs", "use outboxd::source::wire;", &["src/main.rs:1: source::wire\n"]);
    }

    #[test]
    fn lets_a_room_have_its_own_files_and_what_its_row_allows() {
        let source = "use super::{Frame, tls};\nuse crate::source::dial::dial;\nuse crate::source::System;\n\
                      use crate::{config::{self, Postgres}, error::Result};\nuse std::fs;";
        assert_says("source/wire/session.rs", source, &[]);
        assert_says("sink/kafka/topics.rs", "use crate::sink::Sink; use rdkafka::ClientConfig;", &[]);
    }

    #[test]
    fn knows_the_owner_of_a_crate() {
        assert_says("admin.rs", "use rdkafka::Message;", &["src/admin.rs:1: rdkafka\n  rule: only in sink, demo"]);
        assert_says("config/mod.rs", "#[derive(clap::Parser)]\nstruct Args;", &["src/config/mod.rs:1: clap\n"]);
        assert_says(
            "admin.rs",
            "use tokio::task;\nfn f() {\n task::spawn(g()) }",
            &["src/admin.rs:3: tokio::task::spawn\n"],
        );
        assert_says("admin.rs", "use crate::config::{Config, Http};", &["src/admin.rs:1: crate::config::Config\n"]);
        assert_says("relay/mod.rs", "use tokio::task::JoinSet;\nuse crate::config::Config;", &[]);
        let blocking = "use tokio::task::spawn_blocking;";
        assert_says("sink/inspect.rs", blocking, &[]);
        assert_says("admin.rs", blocking, &["src/admin.rs:1: tokio::task::spawn_blocking\n"]);
    }

    #[test]
    fn keeps_pure_rooms_pure() {
        let source = "use std::time::{Duration, Instant};\n\nasync fn f(now: Instant) -> Instant {\n    \
                      tracing::info!(\"x\");\n    Instant::now()\n}";
        let expected = [
            "src/ledger.rs:3: async\n  rule: ledger is pure: no async, no clock, no logging, no I/O",
            "src/ledger.rs:4: tracing\n",
            "src/ledger.rs:5: std::time::Instant::now\n",
        ];
        assert_says("ledger.rs", source, &expected);
        assert_says("metrics.rs", source, &[]);
        let reading = "use std::fs;\nuse std::env;";
        assert_says("template/load.rs", reading, &["src/template/load.rs:2: std::env\n"]);
        assert_says(
            "template/json.rs",
            reading,
            &["src/template/json.rs:1: std::fs\n", "src/template/json.rs:2: std::env\n"],
        );
    }

    #[test]
    fn passes_over_comments_strings_and_tests() {
        let source = r###"
            // use crate::source::wire;
            /* async crate::route::f() */
            const A: &str = "crate::route \" async"; const B: &str = r#"crate::route " async"#;
            const C: (char, char) = ('"', '\''); fn f<'async_free>(x: &'async_free str) {}
            #[cfg(test)]
            mod tests { use crate::route::Route; mod inner { async fn f() {} } }
            #[cfg(test)]
            mod more;
            fn r#g() { std::fs::read("x") }
        "###;
        assert_says("source/pgoutput.rs", source, &["src/source/pgoutput.rs:10: std::fs\n"]);
        assert_says("source/wire/tests.rs", "use crate::route::Route;", &[]);
    }

    #[test]
    fn wants_every_file_in_a_room() {
        assert_says("helpers.rs", "", &["src/helpers.rs:1: in no room\n"]);
        assert_says("source/mystery.rs", "", &["src/source/mystery.rs:1: in no room\n"]);
        assert_says("routes.rs", "", &["src/routes.rs:1: in no room\n"]);
        assert_says("bin/other.rs", "", &["src/bin/other.rs:1: in no room\n"]);
    }
}
