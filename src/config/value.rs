//! Single values: what TOML holds enters, a Rust value or a fault that says what is allowed leaves.

use std::net::SocketAddr;
use std::time::Duration;

use toml::de::DeValue;

use super::error::Fault;

/// A string that is not empty and that PostgreSQL and Kafka can hold (no NUL).
pub(super) fn text(value: &DeValue<'_>) -> Result<String, Fault> {
    let text = any_text(value)?;
    if text.is_empty() {
        return Err(Fault::new("must not be empty"));
    }
    Ok(text)
}

/// A string, perhaps an empty one.
pub(super) fn any_text(value: &DeValue<'_>) -> Result<String, Fault> {
    let Some(text) = value.as_str() else { return Err(expected("a string", value)) };
    if text.contains('\0') {
        return Err(Fault::new("must not contain a NUL character"));
    }
    Ok(text.to_owned())
}

/// A string, or a number or boolean as its text: what properties of Kafka are.
pub(super) fn scalar_text(value: &DeValue<'_>) -> Result<String, Fault> {
    match value {
        DeValue::String(_) => any_text(value),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(yes) => Ok(yes.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err(expected("a string, a number or a boolean", value))
        }
    }
}

pub(super) fn boolean(value: &DeValue<'_>) -> Result<bool, Fault> {
    match value {
        DeValue::Boolean(value) => Ok(*value),
        other => Err(expected("true or false", other)),
    }
}

pub(super) fn texts(value: &DeValue<'_>) -> Result<Vec<String>, Fault> {
    match value {
        DeValue::Array(items) => items.iter().map(|item| text(item.get_ref())).collect(),
        other => Err(expected("a list of texts", other)),
    }
}

pub(super) fn integer(value: &DeValue<'_>, min: i64, max: i64) -> Result<i64, Fault> {
    let number = match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        // What a variable holds and is no number comes as a string.
        DeValue::String(text) => return Err(Fault::new(format!("\"{text}\" is not a whole number"))),
        _ => return Err(expected("a whole number", value)),
    };
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        Some(_) | None => Err(Fault::new(format!("must be from {min} to {max}"))),
    }
}

pub(super) fn duration(value: &DeValue<'_>, min: &str, max: &str) -> Result<Duration, Fault> {
    let Some(text) = value.as_str() else { return Err(expected("a duration such as \"5s\"", value)) };
    let Ok(duration) = humantime::parse_duration(text) else {
        return Err(Fault::new(format!("\"{text}\" is not a duration"))
            .hint("a number and a unit (ms, s, m, h), for example \"500ms\", \"5s\" or \"1m 30s\""));
    };
    let bound = |text| humantime::parse_duration(text).expect("the schema's bounds are durations");
    if duration < bound(min) || duration > bound(max) {
        return Err(Fault::new(format!("must be from {min} to {max}, not {text}")));
    }
    Ok(duration)
}

pub(super) fn size(value: &DeValue<'_>, min: &str, max: &str) -> Result<u64, Fault> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        _ => return Err(expected("a size such as \"32MiB\"", value)),
    };
    let Some(size) = bytes(&text) else {
        return Err(Fault::new(format!("\"{text}\" is not a size"))
            .hint("a whole number and a unit (KiB, MiB, GiB, kB, MB, GB, or none for bytes), for example \"32MiB\""));
    };
    let bound = |text| bytes(text).expect("the schema's bounds are sizes");
    if size < bound(min) || size > bound(max) {
        return Err(Fault::new(format!("must be from {min} to {max}, not {text}")));
    }
    Ok(size)
}

pub(super) fn address(value: &DeValue<'_>) -> Result<SocketAddr, Fault> {
    let text = text(value)?;
    text.parse().map_err(|_| {
        Fault::new(format!("\"{text}\" is not an address to listen on"))
            .hint("an IP address and a port, for example \"127.0.0.1:9187\", \"0.0.0.0:9187\" or \"[::]:9187\"")
    })
}

pub(super) fn expected(what: &str, got: &DeValue<'_>) -> Fault {
    let got = match got {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    Fault::new(format!("expected {what}, got {got}"))
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim_start() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1000_u64.pow(2),
        "GB" => 1000_u64.pow(3),
        "KiB" => 1024,
        "MiB" => 1024_u64.pow(2),
        "GiB" => 1024_u64.pow(3),
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_units_of_a_thousand_and_of_1024() {
        for (text, expected) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("512B", Some(512)),
            ("1kB", Some(1000)),
            ("1KiB", Some(1024)),
            ("32MiB", Some(32 << 20)),
            ("32 MiB", Some(32 << 20)),
            ("5MB", Some(5_000_000)),
            ("1GiB", Some(1 << 30)),
            ("2GB", Some(2_000_000_000)),
            ("", None),
            ("MiB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("1mib", None),
            ("1 parsec", None),
            ("99999999999999999999", None),
            ("99999999999999GiB", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_a_fault(text in "\\PC{0,12}") {
            let value = DeValue::String(text.into());
            drop((size(&value, "1B", "1GiB"), duration(&value, "1s", "1h"), address(&value), integer(&value, 0, 1)));
        }
    }
}
