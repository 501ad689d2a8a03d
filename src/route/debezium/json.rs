//! `JsonConverter` without schemas, to the byte.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::datum::{self, Datum};
use super::{decimal, number};
use crate::config::debezium::DecimalFormat;

pub(super) fn write(datum: &Datum<'_>, decimals: DecimalFormat, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Text(text) => string(text, out),
        Datum::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Integer(value) | Datum::Date(value) | Datum::Time(value) | Datum::Timestamp(value) => {
            write!(out, "{value}").expect("a buffer takes it");
        }
        Datum::Float(value) => float(&number::float(*value), value.is_finite(), out),
        Datum::Double(value) => float(&number::double(*value), value.is_finite(), out),
        Datum::Bytes(bytes) => base64(bytes, out),
        Datum::Bits(digits) => base64(&datum::bits(digits), out),
        Datum::Decimal(text) => {
            let text = String::from_utf8_lossy(text);
            match decimals {
                DecimalFormat::Base64 => base64(&decimal::bytes(&decimal::unscaled(&text).0), out),
                DecimalFormat::Numeric => out.extend_from_slice(decimal::java(&text).as_bytes()),
            }
        }
        Datum::FreeDecimal(text) => free_decimal(text, out),
        Datum::Written(text) => out.extend_from_slice(text),
        Datum::Point(_, x, y) => point(*x, *y, out),
        Datum::List(items) => {
            list(b'[', items.iter(), out, |item, out| write(item, decimals, out));
            out.push(b']');
        }
        Datum::Map(pairs) => {
            list(b'{', pairs.iter(), out, |(name, value), out| {
                string(name.as_bytes(), out);
                out.push(b':');
                match value {
                    Some(value) => string(value.as_bytes(), out),
                    None => out.extend_from_slice(b"null"),
                }
            });
            out.push(b'}');
        }
        Datum::Struct(members) => {
            list(b'{', members.iter(), out, |(name, member), out| {
                string(name, out);
                out.push(b':');
                write(member, decimals, out);
            });
            out.push(b'}');
        }
    }
}

fn list<T>(open: u8, items: impl Iterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    out.push(open);
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}

/// `VariableScaleDecimal`.
pub(super) fn free_decimal(text: &[u8], out: &mut Vec<u8>) {
    let (digits, scale) = decimal::stripped(&String::from_utf8_lossy(text));
    let value = BASE64_STANDARD.encode(decimal::bytes(&digits));
    write!(out, "{{\"scale\":{scale},\"value\":\"{value}\"}}").expect("a buffer takes it");
}

/// `io.debezium.data.geometry.Point`: with well-known binary, without a reference system.
pub(super) fn point(x: f64, y: f64, out: &mut Vec<u8>) {
    let wkb = [&[1, 1, 0, 0, 0][..], &x.to_le_bytes(), &y.to_le_bytes()].concat();
    let (x, y, wkb) = (number::double(x), number::double(y), BASE64_STANDARD.encode(wkb));
    write!(out, "{{\"x\":{x},\"y\":{y},\"wkb\":\"{wkb}\",\"srid\":null}}").expect("a buffer takes it");
}

/// JSON has no number that is none.
fn float(text: &str, is_finite: bool, out: &mut Vec<u8>) {
    match is_finite {
        true => out.extend_from_slice(text.as_bytes()),
        false => string(text.as_bytes(), out),
    }
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}

/// A string as Jackson writes it to bytes: what UTF-16 needs two units for, as two units.
pub(super) fn string(text: &[u8], out: &mut Vec<u8>) {
    escaped(text, out, |code, _, out| {
        let code = code - 0x1_0000;
        unit(0xD800 + (code >> 10), out);
        unit(0xDC00 + (code & 0x3FF), out);
    });
}

/// A string as Jackson writes it to text, where every character is itself.
pub(super) fn string_in_text(text: &[u8], out: &mut Vec<u8>) {
    escaped(text, out, |_, char, out| out.extend_from_slice(char));
}

/// `\uD83D`
fn unit(unit: u32, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"\\u");
    out.extend((0..4).rev().map(|at| HEX[(unit >> (at * 4) & 0xF) as usize]));
}

fn escaped(text: &[u8], out: &mut Vec<u8>, wide: impl Fn(u32, &[u8], &mut Vec<u8>)) {
    out.push(b'"');
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        let (length, low) = match byte {
            ..0x80 => (1, 0),
            0x80..0xE0 => (2, 0),
            0xE0..0xF0 => (3, 0),
            0xF0.. => (4, u32::from(byte & 7)),
        };
        let char = &text[at..text.len().min(at + length)];
        let code = char.iter().skip(1).fold(low, |code, byte| code << 6 | u32::from(byte & 0x3F));
        match (byte, char) {
            (b'"' | b'\\', _) => out.extend_from_slice(&[b'\\', byte]),
            (8, _) => out.extend_from_slice(b"\\b"),
            (9, _) => out.extend_from_slice(b"\\t"),
            (10, _) => out.extend_from_slice(b"\\n"),
            (12, _) => out.extend_from_slice(b"\\f"),
            (13, _) => out.extend_from_slice(b"\\r"),
            (..0x20, _) => unit(u32::from(byte), out),
            (0xF0.., _) => wide(code, char, out),
            // Half of a surrogate pair.
            (0xED, [_, next, _]) if *next >= 0xA0 => unit(0xD000 + code, out),
            _ => out.extend_from_slice(char),
        }
        at += length;
    }
    out.push(b'"');
}
