//! The file and the variables become one document: blocks of values, each with the place where it was typed.
//!
//! What the schema does not know is refused here. A `Reader` then hands out one block's values, one field at a time; a
//! value that is refused is noted and replaced by its default, so that one run finds every problem. The configuration
//! built from such values is never seen, because any problem refuses the whole. Nothing here has a `Debug`: it would
//! print secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Error, Fault, Place, Problems};
use super::schema::{self, Field, Initial, Kind, SECTIONS, Section, Shape};
use super::value;
use super::{Pattern, Secret};
use crate::spelling::{nearest, without_salt};

/// So many choices are said in one line.
const FEW: usize = 5;

/// What was typed, section by section.
pub(super) struct Document<'d> {
    blocks: BTreeMap<&'static str, Vec<Block<'d>>>,
    whole: Place<'d>,
}

/// The values of one table.
pub(super) struct Block<'d> {
    place: Place<'d>,
    values: BTreeMap<&'static str, Typed<'d>>,
}

/// One value, and where it was typed.
#[derive(Clone)]
pub(super) struct Typed<'d> {
    pub place: Place<'d>,
    pub value: DeValue<'d>,
}

/// Where a field that was typed nowhere would have to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The file has the section, and must not have it twice.
    Field,
    /// The file has no such section.
    Section,
}

/// Hands out the values of one block by the schema.
pub(super) struct Reader<'d, 'p> {
    path: String,
    fields: &'static [Field],
    block: Block<'d>,
    problems: &'p mut Problems,
}

impl<'d> Document<'d> {
    /// Reads the file's text, if there is a file, and lays the variables over it.
    ///
    /// A text that is not TOML is refused at once: nothing can be said about its fields.
    pub fn new(
        file: Option<(&'d str, &'d str)>,
        env: &'d [(String, String)],
        problems: &mut Problems,
    ) -> Result<Document<'d>, Error> {
        let whole = file.map_or(Place::Nowhere, |(name, _)| Place::File(name));
        let mut document = Document { blocks: BTreeMap::new(), whole };
        if let Some((name, text)) = file {
            document.read_file(name, text, problems)?;
        }
        for (variable, text) in env {
            // Without "__" it is none of ours: OUTBOXD_LOG, or what Kubernetes sets for a service named outboxd.
            let Some((section, field)) = variable.strip_prefix("OUTBOXD_").and_then(|rest| rest.split_once("__"))
            else {
                continue;
            };
            if let Err(fault) = document.read_variable(variable, section, field, text) {
                problems.add(Place::Variable(variable), fault);
            }
        }
        Ok(document)
    }

    /// The reader of a section that stands once.
    pub fn once<'p>(&mut self, name: &'static str, problems: &'p mut Problems) -> Reader<'d, 'p> {
        let block = self.one_or_more(name).swap_remove(0);
        Reader::new(name, block, problems)
    }

    /// The blocks of a section, or an empty one when it was not typed.
    pub fn one_or_more(&mut self, name: &'static str) -> Vec<Block<'d>> {
        match self.take(name) {
            blocks if blocks.is_empty() => vec![Block { place: self.whole, values: BTreeMap::new() }],
            blocks => blocks,
        }
    }

    /// The blocks of a section, each to be opened by `Reader::new`.
    pub fn take(&mut self, name: &'static str) -> Vec<Block<'d>> {
        self.blocks.remove(name).unwrap_or_default()
    }

    /// True when a file or a variable has a block of this section.
    pub fn has(&self, section: &'static str) -> bool {
        self.blocks.get(section).is_some_and(|blocks| !blocks.is_empty())
    }

    /// True when there is a file.
    pub fn has_file(&self) -> bool {
        matches!(self.whole, Place::File(_))
    }

    /// What holds for a text that was typed nowhere; `place` is what errors call it. None when it was typed.
    pub fn suppose(
        &mut self,
        section: &'static str,
        field: &'static str,
        text: &'d str,
        place: &'d str,
    ) -> Option<Lack> {
        let blocks = self.blocks.entry(section).or_default();
        if blocks.is_empty() {
            blocks.push(Block { place: self.whole, values: BTreeMap::new() });
        }
        let block = &mut blocks[0];
        if block.values.contains_key(field) {
            return None;
        }
        block.values.insert(field, Typed { place: Place::Variable(place), value: DeValue::String(text.into()) });
        Some(if matches!(block.place, Place::Line { .. }) { Lack::Field } else { Lack::Section })
    }

    fn read_file(&mut self, name: &'d str, text: &'d str, problems: &mut Problems) -> Result<(), Error> {
        let start = Place::Line { name, text, offset: 0 };
        let root = match DeTable::parse(text) {
            Ok(root) => root.into_inner(),
            // Only the message: the error's own Display quotes the line, and a secret may stand there.
            Err(error) => return Err(Error::new(start.at(error.span().unwrap_or_default()), not_toml(&error))),
        };
        for (key, typed) in root {
            let place = start.at(key.span());
            let Some(section) = schema::section(key.get_ref()) else {
                problems.add(place, unknown_section(key.get_ref()));
                continue;
            };
            match (section.shape, typed.into_inner()) {
                (Shape::Once, DeValue::Table(table)) => {
                    let block = Block::new(place, section.name, section.fields, table, problems);
                    self.blocks.insert(section.name, vec![block]);
                }
                (Shape::Many, DeValue::Array(array)) if array.iter().all(|item| item.get_ref().is_table()) => {
                    let tables = array.into_iter().filter_map(|item| Some((item.span(), table(item)?)));
                    let blocks = tables
                        .map(|(span, table)| Block::new(start.at(span), section.name, section.fields, table, problems))
                        .collect();
                    self.blocks.insert(section.name, blocks);
                }
                (Shape::Once | Shape::Many, value) => problems.add(place, wrong_shape(section, &value)),
            }
        }
        Ok(())
    }

    fn read_variable(&mut self, variable: &'d str, section: &str, field: &str, text: &'d str) -> Result<(), Fault> {
        let Some((section, field)) = find_variable(section, field) else { return Err(unknown_variable(variable)) };
        let place = Place::Variable(variable);
        let value = match field.kind {
            Kind::Table(_) | Kind::Map(_) | Kind::List => match DeValue::parse(text) {
                Ok(value) => value.into_inner(),
                Err(error) => return Err(not_toml(&error).of(&format!("{}.{}", section.name, field.name))),
            },
            Kind::Integer(..) | Kind::Boolean => {
                DeValue::parse(text).map_or(DeValue::String(text.into()), Spanned::into_inner)
            }
            Kind::Text
            | Kind::Secret
            | Kind::File
            | Kind::Duration(..)
            | Kind::Size(..)
            | Kind::Address
            | Kind::Pattern => DeValue::String(text.into()),
        };
        let blocks = self.blocks.entry(section.name).or_default();
        if blocks.is_empty() {
            blocks.push(Block { place: self.whole, values: BTreeMap::new() });
        }
        let [block] = blocks.as_mut_slice() else {
            return Err(Fault::new(format!("there are {} [[{}]] blocks", blocks.len(), section.name))
                .hint("a variable sets a block's field where there is one block, or none"));
        };
        block.values.insert(field.name, Typed { place, value });
        Ok(())
    }
}

impl<'d> Block<'d> {
    /// A block of texts that are in no document: each is a field, its text, and what errors call it.
    pub fn of(texts: impl Iterator<Item = (&'static str, &'d str, &'d str)>) -> Block<'d> {
        let typed = |text: &'d str, place| Typed { place: Place::Variable(place), value: DeValue::String(text.into()) };
        let values: BTreeMap<_, _> = texts.map(|(field, text, place)| (field, typed(text, place))).collect();
        let first = values.values().next().map(|typed| typed.place);
        Block { place: first.unwrap_or(Place::Nowhere), values }
    }

    fn new(
        place: Place<'d>,
        path: &str,
        fields: &'static [Field],
        table: DeTable<'d>,
        problems: &mut Problems,
    ) -> Block<'d> {
        let mut values = BTreeMap::new();
        for (key, typed) in table {
            let place = place.at(key.span());
            match fields.iter().find(|field| field.name == key.get_ref()) {
                Some(field) => drop(values.insert(field.name, Typed { place, value: typed.into_inner() })),
                None => problems.add(
                    place,
                    Fault::new(format!("unknown field \"{path}.{}\"", without_salt(key.get_ref())))
                        .suggest(key.get_ref(), &schema::names(fields)),
                ),
            }
        }
        Block { place, values }
    }
}

impl<'d, 'p> Reader<'d, 'p> {
    /// Opens one block of a section.
    pub fn new(section: &'static str, block: Block<'d>, problems: &'p mut Problems) -> Reader<'d, 'p> {
        let fields = schema::section(section).expect("load reads sections of the schema").fields;
        Reader { path: section.to_owned(), fields, block, problems }
    }

    /// The value of a field that a parser of its own understands; `None` when there is neither value nor default.
    pub fn read<T>(&mut self, name: &str, parse: impl Fn(&DeValue<'_>) -> Result<T, Fault>) -> Option<T> {
        let field = self.field(name);
        match self.block.values.get(name) {
            Some(typed) => match parse(&typed.value) {
                Ok(value) => return Some(value),
                Err(fault) => self.problems.add(typed.place, fault.of(&self.path_of(name))),
            },
            None if matches!(field.default, Initial::Required(_)) => self.miss(name, None),
            None => {}
        }
        let default = DeValue::parse(field.default.value()?).expect("the schema's defaults are TOML");
        Some(parse(default.get_ref()).expect("the schema's defaults are valid"))
    }

    pub fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, value::text)
    }

    pub fn secret(&mut self, name: &str) -> Option<Secret> {
        self.read(name, value::text).map(Secret::new)
    }

    /// A path, from the directory of the file that it was typed into.
    pub fn path(&mut self, name: &str) -> Option<PathBuf> {
        let place = self.place(name).unwrap_or(self.block.place);
        self.read(name, value::text).map(|typed| place.path(&typed))
    }

    pub fn duration(&mut self, name: &str) -> Duration {
        let Kind::Duration(min, max) = self.field(name).kind else { panic!("{name} is no duration in the schema") };
        self.read(name, |typed| value::duration(typed, min, max)).unwrap_or_default()
    }

    pub fn size(&mut self, name: &str) -> u64 {
        let Kind::Size(min, max) = self.field(name).kind else { panic!("{name} is no size in the schema") };
        self.read(name, |typed| value::size(typed, min, max)).unwrap_or_default()
    }

    pub fn integer(&mut self, name: &str) -> i64 {
        let Kind::Integer(min, max) = self.field(name).kind else { panic!("{name} is no integer in the schema") };
        self.read(name, |typed| value::integer(typed, min, max)).unwrap_or_default()
    }

    /// One of some words, and what it stands for.
    pub fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> T {
        self.chosen(name, choices).expect("a choice has a default")
    }

    fn chosen<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let parse = |typed: &DeValue<'_>| {
            let text = value::text(typed)?;
            choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice).ok_or_else(|| {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                let all = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
                let fault = Fault::new(format!("\"{text}\" is not one of the choices"));
                match nearest(&text, &words) {
                    // Of a few words it is shorter to say them all.
                    Some(word) if words.len() > FEW => fault.hint(format!("did you mean \"{word}\"?")),
                    Some(_) | None => fault.hint(all),
                }
            })
        };
        self.read(name, parse)
    }

    pub fn pattern(&mut self, name: &str) -> Pattern {
        self.read(name, |typed| Pattern::parse(&value::text(typed)?)).unwrap_or(Pattern { pieces: Vec::new() })
    }

    /// A pattern that was typed; what holds else is not for the configuration to say.
    pub fn typed_pattern(&mut self, name: &str) -> Option<Pattern> {
        self.place(name)?;
        self.read(name, |typed| Pattern::parse(&value::text(typed)?))
    }

    /// A choice that was typed.
    pub fn typed_choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        self.place(name)?;
        self.chosen(name, choices)
    }

    pub fn boolean(&mut self, name: &str) -> bool {
        self.read(name, value::boolean).expect("a boolean has a default")
    }

    pub fn list(&mut self, name: &str) -> Vec<String> {
        self.read(name, value::texts).unwrap_or_default()
    }

    /// The reader of a table whose members are fields, as if it was typed empty.
    pub fn empty_table(&mut self, name: &str) -> Reader<'d, '_> {
        let Kind::Table(fields) = self.field(name).kind else { panic!("{name} is no table in the schema") };
        let block = Block { place: self.block.place, values: BTreeMap::new() };
        Reader { path: self.path_of(name), fields, block, problems: self.problems }
    }

    /// The reader of a table whose members are fields, if it was typed.
    pub fn table(&mut self, name: &str) -> Option<Reader<'d, '_>> {
        let Kind::Table(fields) = self.field(name).kind else { panic!("{name} is no table in the schema") };
        let typed = self.block.values.get(name)?.clone();
        let path = self.path_of(name);
        let DeValue::Table(table) = typed.value else {
            self.refuse(name, value::expected("a table", &typed.value));
            return None;
        };
        let block = Block::new(typed.place, &path, fields, table, self.problems);
        Some(Reader { path, fields, block, problems: self.problems })
    }

    /// The members of a table whose names the user chose, in the order typed.
    pub fn map<T>(&mut self, name: &str, parse: impl Fn(&str, &DeValue<'_>) -> Result<T, Fault>) -> Vec<(String, T)> {
        let Some(Typed { place, value }) = self.block.values.get(name).cloned() else { return Vec::new() };
        let DeValue::Table(table) = value else {
            self.refuse(name, value::expected("a table", &value));
            return Vec::new();
        };
        let mut members: Vec<_> = table.into_iter().collect();
        members.sort_by_key(|(key, _)| key.span().start);
        let mut parsed = Vec::with_capacity(members.len());
        for (key, typed) in members {
            let member = key.get_ref().as_ref();
            let path = format!("{}.{}", self.path_of(name), without_salt(member));
            match member_name(member).and_then(|()| parse(member, typed.get_ref())) {
                Ok(value) => parsed.push((member.to_owned(), value)),
                Err(fault) => self.problems.add(place.at(key.span()), fault.of(&path)),
            }
        }
        parsed
    }

    /// Where a field was typed, if it was.
    pub fn place(&self, name: &str) -> Option<Place<'d>> {
        self.block.values.get(name).map(|typed| typed.place)
    }

    /// Where the block starts.
    pub fn start(&self) -> Place<'d> {
        self.block.place
    }

    /// Notes a problem with a field, where it was typed or else where its block starts.
    pub fn refuse(&mut self, name: &str, fault: Fault) {
        let place = self.place(name).unwrap_or(self.block.place);
        self.problems.add(place, fault.of(&self.path_of(name)));
    }

    /// Notes a problem with the block as a whole.
    pub fn refuse_block(&mut self, fault: Fault) {
        self.problems.add(self.block.place, fault.of(&self.path));
    }

    /// Notes that a field which was not typed is required; `further` is another way to set it.
    pub fn miss(&mut self, name: &str, further: Option<&str>) {
        let hint = self.how_to_set(name) + &further.map(|further| format!(", or {further}")).unwrap_or_default();
        self.problems.add(self.block.place, Fault::new(format!("{} is required", self.path_of(name))).hint(hint));
    }

    fn how_to_set(&self, name: &str) -> String {
        let variable = variable_of(&self.path, name);
        if self.path.contains('.') {
            format!("set {name} in {}", self.path)
        } else {
            format!("set {name} under [{}], or the variable {variable}", self.path)
        }
    }

    fn field(&self, name: &str) -> &'static Field {
        self.fields.iter().find(|field| field.name == name).expect("load reads fields of the schema")
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }
}

fn member_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() || name.contains('\0') {
        return Err(Fault::new("a name must not be empty, nor contain a NUL character"));
    }
    Ok(())
}

/// The variable that overrides a field.
fn variable_of(section: &str, field: &str) -> String {
    format!("OUTBOXD_{}__{}", section.to_uppercase(), field.to_uppercase())
}

fn find_variable(section: &str, field: &str) -> Option<(&'static Section, &'static Field)> {
    let section = SECTIONS.iter().find(|known| known.name.to_uppercase() == section)?;
    let field = section.fields.iter().find(|known| known.name.to_uppercase() == field)?;
    Some((section, field))
}

fn unknown_variable(typed: &str) -> Fault {
    let fields = SECTIONS.iter().flat_map(|section| section.fields.iter().map(|field| (section.name, field.name)));
    let known: Vec<String> = fields.map(|(section, field)| variable_of(section, field)).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let fault = Fault::new("no such field");
    match nearest(typed, &known) {
        Some(name) => fault.hint(format!("did you mean {name}?")),
        None => fault.hint("a variable is OUTBOXD_<SECTION>__<FIELD>, for example OUTBOXD_KAFKA__BROKERS"),
    }
}

fn unknown_section(typed: &str) -> Fault {
    let home = SECTIONS.iter().find(|section| section.fields.iter().any(|field| field.name == typed));
    let fault = Fault::new(format!("unknown field \"{}\"", without_salt(typed)));
    let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
    match home {
        Some(section) => fault.hint(format!("{typed} belongs under {}", header(section))),
        None => fault.suggest(typed, &known),
    }
}

fn wrong_shape(section: &Section, got: &DeValue<'_>) -> Fault {
    let what = match section.shape {
        Shape::Once => "a table",
        Shape::Many => "an array of tables",
    };
    value::expected(what, got).of(section.name).hint(format!("write {}", header(section)))
}

fn not_toml(error: &toml::de::Error) -> Fault {
    Fault::new(format!("not valid TOML: {}", error.message()))
}

fn table<'d>(item: Spanned<DeValue<'d>>) -> Option<DeTable<'d>> {
    match item.into_inner() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// How a section is opened in the file.
pub(super) fn header(section: &Section) -> String {
    match section.shape {
        Shape::Once => format!("[{}]", section.name),
        Shape::Many => format!("[[{}]]", section.name),
    }
}
