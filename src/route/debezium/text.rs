//! `StringConverter`: `toString` of whatever it is. Where Java prints the address of an object, the value itself stands here.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::datum::{Datum, Part};
use super::{decimal, number, time};

pub(super) fn write(datum: &Datum<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Text(text) => plain(text, out),
        Datum::Bytes(bytes) => out.extend_from_slice(bytes),
        datum => nested(datum, out),
    }
}

fn nested(datum: &Datum<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Text(text) => plain(text, out),
        Datum::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Integer(value) => write!(out, "{value}").expect("a buffer takes it"),
        Datum::Float(value) => out.extend_from_slice(number::float(*value).as_bytes()),
        Datum::Double(value) => out.extend_from_slice(number::double(*value).as_bytes()),
        Datum::Bytes(bytes) => out.extend_from_slice(BASE64_STANDARD.encode(&**bytes).as_bytes()),
        Datum::Decimal(text) => out.extend_from_slice(decimal::java(&String::from_utf8_lossy(text)).as_bytes()),
        Datum::Written(text) => out.extend_from_slice(text),
        Datum::Bits(text) | Datum::FreeDecimal(text) | Datum::Point(text, ..) => out.extend_from_slice(text),
        Datum::Date(days) => out.extend_from_slice(time::java_date(days * 86_400_000).as_bytes()),
        Datum::Time(millis) | Datum::Timestamp(millis) => out.extend_from_slice(time::java_date(*millis).as_bytes()),
        Datum::List(items) => {
            out.push(b'[');
            separated(items.iter(), b", ", out, nested);
            out.push(b']');
        }
        Datum::Map(pairs) => {
            out.push(b'{');
            separated(pairs.iter(), b", ", out, |(name, value), out| {
                write!(out, "{name}={}", value.as_deref().unwrap_or("null")).expect("a buffer takes it");
            });
            out.push(b'}');
        }
        Datum::Struct(members) => {
            out.extend_from_slice(b"Struct{");
            let present = members.iter().filter(|(_, member)| *member != Datum::Null);
            separated(present, b",", out, |(name, member), out| {
                plain(name, out);
                out.push(b'=');
                nested(member, out);
            });
            out.push(b'}');
        }
    }
}

fn separated<T>(items: impl Iterator<Item = T>, by: &[u8], out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.extend_from_slice(by);
        }
        write(item, out);
    }
}

/// UTF-8 has no halves of surrogate pairs. What lies in the row is UTF-8, only what was made of it may have them.
fn plain(text: &Part<'_>, out: &mut Vec<u8>) {
    if let Some(text) = text.borrowed() {
        return out.extend_from_slice(text);
    }
    let mut rest: &[u8] = text;
    while let Some(at) = rest.windows(2).position(|pair| pair[0] == 0xED && pair[1] >= 0xA0) {
        out.extend_from_slice(&rest[..at]);
        out.push(b'?');
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}
