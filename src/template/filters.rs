//! The filters and functions that outboxd adds to the engine's own. None reads a clock or draws a random number.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, filters, tests};
use ring::digest;
use uuid::Uuid;

use super::number::Number;
use super::row::run_of;
use super::{json, time};

/// The deepest indentation of a level: more is a slip.
const INDENT: usize = 16;

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
    environment.add_filter("b64encode", |value: &Value| Ok::<_, Error>(STANDARD.encode(bytes(value)?)));
    environment.add_filter("b64decode", b64decode);
    environment.add_filter("sha256", sha256);
    environment.add_filter("string", string);
    environment.add_filter("float", float);
    environment.add_filter("int", int);
    environment.add_test("number", |value: &Value| is_number(value) || tests::is_number(value));
}

/// What `{{ }}` writes: text as it is, everything else as JSON.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text)?,
        None if value.is_undefined() => {}
        None if value.is_integer() => out.write_fmt(format_args!("{value}"))?,
        None => out.write_str(&json::write(value, None, &*run_of(state)?)?)?,
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
    json::parse(bytes(value)?, &run_of(state)?).map_err(|what| failed(format!("no JSON: {what}")))
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

/// The engine's filter, for a number that only its text holds, too.
fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    named: Kwargs,
) -> Result<Value, Error> {
    match value.downcast_object_ref::<Number>() {
        Some(number) => filters::int(state, &Value::from(number.text()), default, base, named),
        None => filters::int(state, value, default, base, named),
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
fn uuid_v5(namespace: &Value, name: &Value) -> Result<String, Error> {
    let namespace = match namespace.as_str() {
        Some("dns") => Uuid::NAMESPACE_DNS,
        Some("url") => Uuid::NAMESPACE_URL,
        Some("oid") => Uuid::NAMESPACE_OID,
        Some("x500") => Uuid::NAMESPACE_X500,
        _ => uuid(namespace)?,
    };
    Ok(Uuid::new_v5(&namespace, bytes(name)?).to_string())
}

fn b64decode(value: &Value) -> Result<Value, Error> {
    let decoded = STANDARD.decode(bytes(value)?).map_err(|error| failed(format!("no base64: {error}")))?;
    Ok(match String::from_utf8(decoded) {
        Ok(text) => Value::from(text),
        Err(error) => Value::from_bytes(error.into_bytes()),
    })
}

fn sha256(value: &Value) -> Result<String, Error> {
    let hash = digest::digest(&digest::SHA256, bytes(value)?);
    Ok(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn text(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| wrong_kind(value, "text"))
}

fn bytes(value: &Value) -> Result<&[u8], Error> {
    value.as_bytes().ok_or_else(|| wrong_kind(value, "text or bytes"))
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
