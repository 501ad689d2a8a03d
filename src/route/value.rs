//! A record's value: the payload as it is, an envelope around it, a CloudEvent, what a template renders, or what the preset makes.

use super::cloudevents::{CloudEvents, Scratch};
use super::json;
use super::preset::Maker;
use super::template::Template;
use crate::config;
use crate::config::{TemplateSet, Tombstone, ValueForm};
use crate::record::Headers;
use crate::source::outbox::{Layout, Place, Row};

#[derive(Debug)]
pub(super) struct ValueRules {
    form: Form,
    /// `None`: a row without a payload has a value where the form makes one without it.
    tombstone: Option<Tombstone>,
}

#[derive(Debug)]
enum Form {
    Payload,
    /// What the outbox's preset makes of it: the route only says which payload is none.
    Preset,
    /// Members beside the payload, each with its name as it is written.
    Envelope(Vec<(String, Place)>),
    CloudEvent(Box<CloudEvents>),
    Template(Template),
}

/// What values are written into.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub value: Vec<u8>,
    attributes: Scratch,
}

/// What a record's value is.
pub(super) enum Value<'a> {
    None,
    /// These bytes of the row.
    Payload(&'a [u8]),
    /// What was written into the buffer.
    Written,
}

impl ValueRules {
    /// `None` when the route does not say what the value is.
    pub(super) fn new(
        route: &config::Route,
        templates: Option<&TemplateSet>,
        time: Option<Place>,
        layout: &mut Layout,
    ) -> Option<ValueRules> {
        let form = match (&route.value, route.tombstone) {
            (None, None) => return None,
            (None, Some(_)) => Form::Preset,
            (Some(ValueForm::Payload), _) => Form::Payload,
            (Some(ValueForm::Envelope(members)), _) => {
                Form::Envelope(members.iter().map(|(name, column)| (json::text(name), layout.place(column))).collect())
            }
            (Some(ValueForm::CloudEvents(mode, attributes)), _) => {
                let event = CloudEvents::new(*mode, attributes, &route.rewrites, time, layout);
                Form::CloudEvent(Box::new(event))
            }
            (Some(ValueForm::Template(name)), _) => Form::Template(Template::new(templates, name, layout)),
        };
        Some(ValueRules { form, tombstone: route.tombstone })
    }

    /// Whether the row's payload counts as none although it is not NULL.
    pub(super) fn takes_for_none(&self, maker: &Maker, row: &Row<'_>) -> bool {
        row.bytes(Place::PAYLOAD).is_some_and(|payload| self.is_none(payload))
            || matches!(self.form, Form::Preset) && maker.takes_for_none(row)
    }

    fn is_none(&self, payload: &[u8]) -> bool {
        self.tombstone == Some(Tombstone::Empty) && payload.iter().all(u8::is_ascii_whitespace)
    }

    /// Writes into the buffer what is not the payload itself. A CloudEvent has headers, too.
    pub(super) fn write<'a>(
        &self,
        maker: &Maker,
        row: &Row<'a>,
        headers: &mut Headers,
        buffers: &mut Buffers,
    ) -> Result<Value<'a>, String> {
        let Buffers { value: out, attributes } = buffers;
        let payload = row.bytes(Place::PAYLOAD).filter(|payload| !self.is_none(payload));
        // The attributes of a binary event are headers, which a tombstone has, too.
        let has_headers = matches!(&self.form, Form::CloudEvent(event) if event.is_binary());
        if payload.is_none() && self.tombstone.is_some() && !has_headers {
            return Ok(Value::None);
        }
        match &self.form {
            Form::Payload => Ok(payload.map_or(Value::None, Value::Payload)),
            Form::Preset => maker.value(row, out),
            Form::CloudEvent(event) => event.write(row, payload, headers, attributes, out),
            Form::Template(template) => {
                out.clear();
                template.write(row, out).map(|()| Value::Written)
            }
            Form::Envelope(members) => {
                out.clear();
                out.extend_from_slice(b"{\"payload\":");
                json::write(row, Place::PAYLOAD, out);
                for (name, place) in members {
                    out.push(b',');
                    out.extend_from_slice(name.as_bytes());
                    out.push(b':');
                    json::write(row, *place, out);
                }
                out.push(b'}');
                Ok(Value::Written)
            }
        }
    }
}
