//! Prints the schema: as a TOML file to start from, and as the document in `docs/configuration.md`.

use std::fmt::{self, Write};

use super::document::header;
use super::schema::{Field, Initial, Kind, SECTIONS, Section, Shape};

const WIDTH: usize = 110;
const INFALLIBLE: &str = "writing to a string cannot fail";

/// The reference configuration: valid TOML with every field, its default and its meaning, all fields commented out.
pub fn reference() -> String {
    let mut out = String::new();
    write_reference(&mut out).expect(INFALLIBLE);
    out
}

/// The same for people: how to configure, with examples, then a table for each section.
pub fn reference_markdown() -> String {
    let mut out = String::from(include_str!("guide.md"));
    for section in &SECTIONS {
        write_section_markdown(&mut out, section).expect(INFALLIBLE);
    }
    out
}

fn write_reference(out: &mut String) -> fmt::Result {
    writeln!(out, "# The configuration of outboxd: every field, with what holds when it is not set.")?;
    writeln!(out, "# Take the # in front of a field away to set it. url and brokers must be set; nothing else.")?;
    for section in &SECTIONS {
        writeln!(out)?;
        write_comment(out, "", section.meaning)?;
        let comment = match section.shape {
            Shape::Once => "",
            // An empty block would mean something.
            Shape::Many => "#",
        };
        writeln!(out, "{comment}{}", header(section))?;
        for field in section.fields {
            writeln!(out)?;
            write_field(out, field)?;
        }
    }
    Ok(())
}

fn write_field(out: &mut String, field: &Field) -> fmt::Result {
    write_comment(out, "", field.meaning)?;
    write_comment(out, "", &format!("{}; {}", capital(&field.kind.name()), state(field)))?;
    match field.kind {
        Kind::Table(members) => {
            for member in members {
                write_comment(out, "  ", &format!("{} ({}): {}", member.name, state(member), member.meaning))?;
            }
            writeln!(out, "#{} = {}", field.name, inline(members))
        }
        _ => writeln!(out, "#{} = {}", field.name, field.default.shown()),
    }
}

fn write_section_markdown(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "\n### `{}`\n\n{}\n", header(section), section.meaning)?;
    writeln!(out, "| field | type | default | meaning |\n|---|---|---|---|")?;
    for field in section.fields {
        write_row(out, "", field)?;
        if let Kind::Table(members) = field.kind {
            for member in members {
                write_row(out, &format!("{}.", field.name), member)?;
            }
        }
    }
    Ok(())
}

fn write_row(out: &mut String, parent: &str, field: &Field) -> fmt::Result {
    let default = match field.default {
        Initial::Required(_) => "required".to_owned(),
        Initial::Unset(_) => "not set".to_owned(),
        Initial::Is(toml) => format!("`{toml}`"),
    };
    writeln!(out, "| `{parent}{}` | {} | {default} | {} |", field.name, field.kind.name(), field.meaning)
}

fn state(field: &Field) -> String {
    match field.default {
        Initial::Required(_) => "required".to_owned(),
        Initial::Unset(_) => "not set by default".to_owned(),
        Initial::Is(toml) => format!("default {toml}"),
    }
}

/// The members that are set, or must be; where none is, the first.
fn inline(members: &[Field]) -> String {
    let is_set = |member: &&Field| !matches!(member.default, Initial::Unset(_));
    let shown = if members.iter().any(|member| is_set(&member)) { members } else { &members[..1] };
    let shown = shown.iter().filter(|member| shown.len() == 1 || is_set(member));
    let members: Vec<String> = shown.map(|member| format!("{} = {}", member.name, member.default.shown())).collect();
    format!("{{ {} }}", members.join(", "))
}

fn write_comment(out: &mut String, indent: &str, text: &str) -> fmt::Result {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() > WIDTH {
            writeln!(out, "# {indent}{}", line.trim_end())?;
            line.clear();
        }
        line.push_str(word);
        line.push(' ');
    }
    writeln!(out, "# {indent}{}", line.trim_end())
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
