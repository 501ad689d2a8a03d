//! What a template makes of a row: its columns enter by name and type, bytes leave.

use std::sync::Arc;

use crate::column::Form;
use crate::config::TemplateSet;
use crate::source::outbox::{Layout, Place, Row};
use crate::template::{Columns, Templates, Typed};

#[derive(Debug)]
pub(super) struct Template {
    templates: Arc<Templates>,
    name: String,
    most: u64,
    columns: Vec<(String, Place)>,
}

impl Template {
    pub(super) fn new(set: Option<&TemplateSet>, name: &str, layout: &mut Layout) -> Template {
        let TemplateSet { templates, most } = set.expect("templates are loaded where a route names one");
        let columns = templates.columns(name).iter().map(|name| (name.to_string(), layout.place(name))).collect();
        Template { templates: templates.clone(), name: name.to_owned(), most: *most, columns }
    }

    /// Appends what it renders, or says where in the template what is wrong.
    pub(super) fn write(&self, row: &Row<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let columns = self.columns.iter().map(|(name, place)| Ok((name.as_str(), typed(row, *place)?)));
        let columns: Result<Vec<_>, String> = columns.collect();
        let rendered = self.templates.render(&self.name, &Columns(columns?), out, self.most);
        rendered.map_err(|problem| problem.to_string())
    }
}

fn typed<'a>(row: &Row<'a>, place: Place) -> Result<Typed<'a>, String> {
    let Some(bytes) = row.bytes(place) else {
        return Ok(if row.is_absent(place) { Typed::Absent } else { Typed::Null });
    };
    Ok(match row.type_of(place).form() {
        Form::Json => Typed::Json(bytes),
        Form::Bytes => Typed::Bytes(bytes),
        Form::Boolean => Typed::Boolean(bytes.first() == Some(&b't')),
        // NaN and Infinity are text.
        Form::Number if bytes.last().is_some_and(u8::is_ascii_digit) => Typed::Json(bytes),
        Form::Number | Form::Text => {
            let text = std::str::from_utf8(bytes).map_err(|_| "a column is not UTF-8".to_owned())?;
            if place == Place::PAYLOAD { Typed::payload(text) } else { Typed::Text(text) }
        }
    })
}
