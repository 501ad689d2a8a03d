//! `SimpleHeaderConverter`: text by itself is as it is; inside of a list or a struct it has quotes.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::datum::{self, Datum};
use super::{decimal, json, number, time};

const DAY_MS: i64 = 86_400_000;

pub(super) fn write(datum: &Datum<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Text(text) => out.extend_from_slice(text),
        Datum::Bytes(bytes) => out.extend_from_slice(BASE64_STANDARD.encode(&**bytes).as_bytes()),
        Datum::Bits(digits) => out.extend_from_slice(BASE64_STANDARD.encode(datum::bits(digits)).as_bytes()),
        datum => nested(datum, out),
    }
}

fn nested(datum: &Datum<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Text(text) => quoted(text, out),
        Datum::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Integer(value) => write!(out, "{value}").expect("a buffer takes it"),
        Datum::Float(value) => out.extend_from_slice(number::float(*value).as_bytes()),
        Datum::Double(value) => out.extend_from_slice(number::double(*value).as_bytes()),
        Datum::Bytes(bytes) => quoted(BASE64_STANDARD.encode(&**bytes).as_bytes(), out),
        Datum::Bits(digits) => quoted(BASE64_STANDARD.encode(datum::bits(digits)).as_bytes(), out),
        Datum::Decimal(text) => out.extend_from_slice(decimal::java(&String::from_utf8_lossy(text)).as_bytes()),
        Datum::FreeDecimal(text) => json::free_decimal(text, out),
        Datum::Written(text) => out.extend_from_slice(text),
        Datum::Date(days) => out.extend_from_slice(time::iso_date(*days).as_bytes()),
        Datum::Time(millis) => clock(*millis, out),
        Datum::Timestamp(millis) => timestamp(*millis, out),
        Datum::Point(_, x, y) => json::point(*x, *y, out),
        Datum::List(items) => {
            out.push(b'[');
            separated(items.iter(), out, nested);
            out.push(b']');
        }
        Datum::Map(pairs) => {
            out.push(b'{');
            separated(pairs.iter(), out, |(name, value), out| {
                quoted(name.as_bytes(), out);
                out.push(b':');
                match value {
                    Some(value) => quoted(value.as_bytes(), out),
                    None => out.extend_from_slice(b"null"),
                }
            });
            out.push(b'}');
        }
        Datum::Struct(members) => {
            out.push(b'{');
            separated(members.iter(), out, |(name, member), out| {
                quoted(name, out);
                out.push(b':');
                nested(member, out);
            });
            out.push(b'}');
        }
    }
}

fn separated<T>(items: impl Iterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}

fn quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

fn clock(millis: i64, out: &mut Vec<u8>) {
    let clock = time::iso_clock(millis.rem_euclid(DAY_MS) * 1000, Some(3));
    write!(out, "{clock}Z").expect("a buffer takes it");
}

/// Midnight is a date.
fn timestamp(millis: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(time::iso_date(millis.div_euclid(DAY_MS)).as_bytes());
    if millis % DAY_MS != 0 || millis < DAY_MS {
        out.push(b'T');
        clock(millis, out);
    }
}
