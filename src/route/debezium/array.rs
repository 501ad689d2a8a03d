//! Arrays and hstores, from the text that PostgreSQL prints of them.

use super::datum::Datum;
use super::json;
use crate::column::Type;
use crate::config::debezium::Modes;

/// `{1,NULL,"a b"}`, and arrays of arrays; each element as a column of its type would be read.
pub(super) fn read<'a>(text: &str, element: Type, modes: &Modes) -> Result<Datum<'a>, String> {
    let odd = || format!("\"{text}\" is not an array");
    // A lower bound other than 1 stands in front: [0:1]={1,2}
    let list = if text.starts_with('[') { text.split_once('=').ok_or_else(odd)?.1 } else { text };
    let mut rest = list.strip_prefix('{').ok_or_else(odd)?;
    let items = items(&mut rest, element, modes)?.ok_or_else(odd)?;
    if rest.is_empty() { Ok(Datum::List(items)) } else { Err(odd()) }
}

/// What stands behind an opening brace, up to its closing one; `None` when there is none.
fn items<'a>(rest: &mut &str, element: Type, modes: &Modes) -> Result<Option<Vec<Datum<'a>>>, String> {
    let mut items = Vec::new();
    if let Some(behind) = rest.strip_prefix('}') {
        *rest = behind;
        return Ok(Some(items));
    }
    loop {
        if let Some(inside) = rest.strip_prefix('{') {
            *rest = inside;
            let Some(inner) = self::items(rest, element, modes)? else { return Ok(None) };
            items.push(Datum::List(inner));
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let Some((text, behind)) = unquoted(quoted) else { return Ok(None) };
            *rest = behind;
            items.push(item(&text, element, modes)?);
        } else {
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            let (text, behind) = rest.split_at(end);
            *rest = behind;
            items.push(if text == "NULL" { Datum::Null } else { item(text, element, modes)? });
        }
        let Some(behind) = rest.strip_prefix([',', '}']) else { return Ok(None) };
        let is_end = rest.starts_with('}');
        *rest = behind;
        if is_end {
            return Ok(Some(items));
        }
    }
}

fn item<'a>(text: &str, element: Type, modes: &Modes) -> Result<Datum<'a>, String> {
    if element.oid == Type::BYTEA {
        let digits: Vec<u8> = text.bytes().skip(2).collect();
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[pair.len() - 1])).collect();
        return Datum::read(&bytes, element, modes).map(Datum::into_owned);
    }
    Datum::read(text.as_bytes(), element, modes).map(Datum::into_owned)
}

/// Up to the closing quote, without backslashes; and what stands behind it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((out, &text[at + 1..])),
            (_, '\\') => out.push(chars.next()?.1),
            (_, char) => out.push(char),
        }
    }
}

/// `"a"=>"1", "b"=>NULL`, in the order of a Java `HashMap`.
pub(super) fn hstore(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (key, behind) = unquoted(rest.strip_prefix('"')?)?;
        let behind = behind.strip_prefix("=>")?;
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => unquoted(quoted).map(|(value, behind)| (Some(value), behind))?,
            None => (None, behind.strip_prefix("NULL")?),
        };
        pairs.push((key, value));
        rest = behind.strip_prefix(", ").unwrap_or(behind);
    }
    let mut buckets = 16_u32;
    while pairs.len() > (buckets / 4 * 3) as usize {
        buckets *= 2;
    }
    pairs.sort_by_key(|(key, _)| bucket(key, buckets));
    Some(pairs)
}

/// Where a `HashMap` of so many buckets keeps a string.
fn bucket(key: &str, buckets: u32) -> u32 {
    let hash = key.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    (hash ^ hash >> 16) & (buckets - 1)
}

/// The JSON that Debezium makes of it, as a text that is then a value like any other.
pub(super) fn hstore_json(pairs: &[(String, Option<String>)]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::string_in_text(key.as_bytes(), &mut out);
        out.push(b':');
        match value {
            Some(value) => json::string_in_text(value.as_bytes(), &mut out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    out
}
