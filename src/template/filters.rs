//! The filters and functions that outboxd adds to the engine's own. None reads a clock or draws a random number.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, filters, tests};
use ring::digest;
use uuid::Uuid;

use super::number::{self, Number, Whole};
use super::row::run_of;
use super::run::Run;
use super::{json, time};

/// The deepest indentation of a level: more is a slip.
const INDENT: usize = 16;

/// So many bytes that a filter goes through are a unit of work.
pub const FILTERED: u64 = 32;

/// The same of a document that is read.
const PARSED: u64 = 8;

/// Makes them known.
pub fn add_to(environment: &mut Environment<'static>) {
    environment.set_formatter(print);
    environment.add_filter("tojson", tojson);
    environment.add_filter("fromjson", fromjson);
    environment.add_filter("iso", |text: &Value| read_time(text, time::iso));
    environment
        .add_filter("date", |text: &Value, pattern: &str| read_time(text, |text| time::formatted(text, pattern)));
    environment.add_filter("epoch_ms", |text: &Value| read_time(text, time::epoch_ms));
    environment.add_filter("epoch_s", |text: &Value| read_time(text, time::epoch_s));
    environment.add_filter("uuid", |text: &Value| uuid(text).map(|uuid| uuid.to_string()));
    environment.add_function("uuid_v5", uuid_v5);
    environment.add_filter("b64encode", b64encode);
    environment.add_filter("b64decode", b64decode);
    environment.add_filter("sha256", sha256);
    environment.add_filter("string", string);
    add_sorting_to(environment);
    environment.add_filter("float", float);
    environment.add_filter("int", int);
    environment.add_test("number", |value: &Value| is_number(value) || tests::is_number(value));
}

/// The engine's filters that sort. A sort ends the process when what it compares is not there any more the second time, so
/// these see everything, whatever it costs; whoever has no work left does not begin.
fn add_sorting_to(environment: &mut Environment<'static>) {
    fn sorting<T>(state: &State<'_, '_>, sort: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let run = run_of(state)?;
        run.pay(1)?;
        run.leniently(sort)
    }
    environment.add_filter("sort", |state: &State<'_, '_>, value: Value, named: Kwargs| {
        sorting(state, || filters::sort(state, value, named))
    });
    environment.add_filter("dictsort", |state: &State<'_, '_>, value: &Value, named: Kwargs| {
        sorting(state, || filters::dictsort(value, named))
    });
    environment.add_filter("groupby", |state: &State<'_, '_>, value: Value, attribute: Option<&str>, named: Kwargs| {
        sorting(state, || filters::groupby(value, attribute, named))
    });
}

/// What `{{ }}` writes, and whether it may: an error from here has a line.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let run = run_of(state)?;
    if !run.is_over() {
        run.printing(|| emit(out, value, &run))?;
    }
    if run.is_over() { Err(Error::from(ErrorKind::WriteFailure)) } else { Ok(()) }
}

/// Text as it is, everything else as JSON.
fn emit(out: &mut Output<'_>, value: &Value, run: &Run) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text)?,
        None if value.is_undefined() => {}
        None if value.is_integer() => out.write_fmt(format_args!("{value}"))?,
        None => out.write_str(&json::write(value, None, run)?)?,
    }
    Ok(())
}

fn tojson(state: &State<'_, '_>, value: &Value, indent: Option<usize>, named: Kwargs) -> Result<String, Error> {
    let indent = indent.map_or_else(|| named.get("indent"), |indent| Ok(Some(indent)))?;
    named.assert_all_used()?;
    if indent.is_some_and(|indent| indent > INDENT) {
        return Err(failed(format!("an indent of more than {INDENT}")));
    }
    json::write(value, indent, &*run_of(state)?)
}

fn fromjson(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let (text, run) = paid_bytes(state, value, PARSED)?;
    json::parse(text, &run).map_err(|what| failed(format!("no JSON: {what}")))
}

/// As `{{ }}` writes it.
fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() { Ok(value.clone()) } else { Ok(json::write(value, None, &*run_of(state)?)?.into()) }
}

fn is_number(value: &Value) -> bool {
    value.downcast_object_ref::<Number>().is_some()
}

/// The engine's filter, for a number that only its text holds, too.
fn float(state: &State<'_, '_>, value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    match value.downcast_object_ref::<Number>() {
        Some(number) => Ok(Value::from(number.nearest())),
        None => filters::float(state, value, default, named),
    }
}

/// The engine's filter; but what a number's text says before the point is kept to the last digit, or it is an error.
fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    named: Kwargs,
) -> Result<Value, Error> {
    let has_base = base.is_some() || named.has("base");
    let text = match value.downcast_object_ref::<Number>() {
        Some(number) => Some(Cow::Borrowed(number.text())),
        None if value.is_number() && !value.is_integer() => {
            Some(Cow::Owned(run_of(state)?.written(f64::try_from(value.clone())?)))
        }
        None if value.kind() == ValueKind::String && !has_base => value.as_str().map(Cow::Borrowed),
        None => None,
    };
    match text.as_deref().map(number::whole) {
        Some(Whole::Is(whole)) => filters::int(state, &Value::from(whole), default, base, named),
        Some(Whole::TooLarge) => {
            let default = match default {
                Some(default) => Some(default),
                None => named.get::<Option<Value>>("default")?,
            };
            default.ok_or_else(|| failed(format!("{} is too large for a whole number", text.unwrap_or_default())))
        }
        Some(Whole::NoNumber) | None => filters::int(state, value, default, base, named),
    }
}

fn read_time<T>(value: &Value, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Error> {
    read(text(value)?).map_err(failed)
}

fn uuid(value: &Value) -> Result<Uuid, Error> {
    let text = text(value)?;
    Uuid::parse_str(text.trim()).map_err(|_| failed(format!("\"{text}\" is not a UUID")))
}

/// The UUID that this name always has in this namespace: a UUID, or "dns", "url", "oid", "x500".
fn uuid_v5(state: &State<'_, '_>, namespace: &Value, name: &Value) -> Result<String, Error> {
    let namespace = match namespace.as_str() {
        Some("dns") => Uuid::NAMESPACE_DNS,
        Some("url") => Uuid::NAMESPACE_URL,
        Some("oid") => Uuid::NAMESPACE_OID,
        Some("x500") => Uuid::NAMESPACE_X500,
        _ => uuid(namespace)?,
    };
    let (name, _) = paid_bytes(state, name, FILTERED)?;
    Ok(Uuid::new_v5(&namespace, name).to_string())
}

fn b64encode(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let (bytes, _) = paid_bytes(state, value, FILTERED)?;
    Ok(STANDARD.encode(bytes))
}

fn b64decode(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let (text, _) = paid_bytes(state, value, FILTERED)?;
    let decoded = STANDARD.decode(text).map_err(|error| failed(format!("no base64: {error}")))?;
    Ok(match String::from_utf8(decoded) {
        Ok(text) => Value::from(text),
        Err(error) => Value::from_bytes(error.into_bytes()),
    })
}

fn sha256(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let (bytes, _) = paid_bytes(state, value, FILTERED)?;
    let hash = digest::digest(&digest::SHA256, bytes);
    Ok(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn text(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| wrong_kind(value, "text"))
}

/// What a filter works on: so many bytes of it cost a unit.
fn paid_bytes<'v>(state: &State<'_, '_>, value: &'v Value, unit: u64) -> Result<(&'v [u8], Arc<Run>), Error> {
    let bytes = value.as_bytes().ok_or_else(|| wrong_kind(value, "text or bytes"))?;
    let run = run_of(state)?;
    run.pay(1 + bytes.len() as u64 / unit)?;
    Ok((bytes, run))
}

fn wrong_kind(value: &Value, wanted: &str) -> Error {
    if value.kind() == ValueKind::Undefined {
        return json::undefined(value);
    }
    failed(format!("{wanted} is needed, not {}", value.kind()))
}

fn failed(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}
