//! A W3C trace context goes from one column to headers.
//!
//! The column's text enters: a bare `traceparent`, the text of a `java.util.Properties` (what Debezium and Quarkus write
//! into `tracingspancontext`), or a JSON object. The headers `traceparent`, `tracestate` and `baggage` leave, as they were
//! written, and no others. The relay only passes on: it makes no span, so it changes nothing.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use serde_json::value::RawValue;

use crate::record::Headers;

/// W3C Baggage asks for at least this much to be passed on.
const BAGGAGE: usize = 8192;

/// Longer than any `traceparent` of a future version should be.
const TRACEPARENT: usize = 512;

/// Adds the headers of the trace context in a column; true when there was one.
///
/// A context that is wrong never makes an event fail: it is no part of what the event says, whoever reads the event can
/// do without it, and the recommendation wants a broken `traceparent` to be ignored by every party. So an invalid
/// `traceparent` is left out with all that came with it, and an invalid `tracestate` or `baggage` alone. Without any
/// `traceparent`, `tracestate` means nothing; `baggage` stands by itself.
pub fn push_trace(column: &[u8], headers: &mut Headers) -> bool {
    let Some(context) = str::from_utf8(column).ok().and_then(Context::read) else { return false };
    let Context { traceparent, tracestate, baggage } = context;
    let before = headers.len();
    if let Some(parent) = traceparent.as_deref().map(trimmed) {
        if !is_traceparent(parent) {
            return false;
        }
        headers.push("traceparent", Some(parent.as_bytes()));
        if let Some(state) = tracestate.as_deref().map(trimmed).filter(|state| is_tracestate(state)) {
            headers.push("tracestate", Some(state.as_bytes()));
        }
    }
    if let Some(baggage) = baggage.as_deref().map(trimmed).filter(|baggage| is_baggage(baggage)) {
        headers.push("baggage", Some(baggage.as_bytes()));
    }
    headers.len() > before
}

#[derive(Debug, Default, PartialEq)]
struct Context {
    traceparent: Option<String>,
    tracestate: Option<String>,
    baggage: Option<String>,
}

impl Context {
    fn read(text: &str) -> Option<Context> {
        let text = text.trim();
        let mut context = Context::default();
        if is_traceparent(text) {
            context.traceparent = Some(text.to_owned());
        } else if text.starts_with('{') {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            for (name, value) in members {
                if let Ok(value) = serde_json::from_str(value.get()) {
                    context.set(&name, value);
                }
            }
        } else {
            read_properties(text, |name, value| context.set(name, value))?;
        }
        Some(context)
    }

    /// The recommendation wants names in any case to be expected. The last of several counts, as in `Properties`.
    fn set(&mut self, name: &str, value: String) {
        let fields = [
            ("traceparent", &mut self.traceparent),
            ("tracestate", &mut self.tracestate),
            ("baggage", &mut self.baggage),
        ];
        if let Some((_, field)) = fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)) {
            *field = Some(value);
        }
    }
}

/// Optional white space around a header's value is not part of it.
fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// Version 00 exactly; of a later version what the recommendation lets be understood.
fn is_traceparent(value: &str) -> bool {
    let bytes = value.as_bytes();
    let Some((known, further)) = bytes.split_at_checked(55) else { return false };
    let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |part: &[u8]| is_hex(part) && part.iter().any(|byte| *byte != b'0');
    let (version, trace, parent, flags) = (&known[..2], &known[3..35], &known[36..52], &known[53..]);
    let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
    let ends = match further {
        [] => true,
        [b'-', rest @ ..] => version != b"00" && bytes.len() <= TRACEPARENT && rest.iter().all(u8::is_ascii_graphic),
        [_, ..] => false,
    };
    dashes && is_hex(version) && version != b"ff" && is_id(trace) && is_id(parent) && is_hex(flags) && ends
}

/// At most 32 members `key=value`, no key twice; members may be empty.
fn is_tracestate(value: &str) -> bool {
    let members: Vec<_> = value.split(',').map(trimmed).filter(|member| !member.is_empty()).collect();
    let keys: Vec<_> = members.iter().filter_map(|member| member.split_once('=')).map(|(key, _)| key).collect();
    let once = |(at, key): (usize, &&str)| !keys[..at].contains(key);
    (1..=32).contains(&members.len())
        && members.iter().all(|member| is_member(member))
        && keys.iter().enumerate().all(once)
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    // `tenant@vendor`, where the tenant may begin with a digit; level 2 of the recommendation lets every key begin so.
    let key_sign = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let key_fits = key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    let value_sign = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    key_fits
        && key.len() <= 256
        && key.bytes().all(key_sign)
        && (1..=256).contains(&value.len())
        && value.bytes().all(value_sign)
}

/// Printable ASCII with at least one `name=value`; what it says is the business of others.
fn is_baggage(value: &str) -> bool {
    value.len() <= BAGGAGE && value.contains('=') && value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

/// Which part of a line is read.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Name,
    /// Between name and value, before the separator.
    Before,
    /// The same, behind the separator.
    Behind,
    Value,
}

/// Reads text as `java.util.Properties.load` does; none where that would fail.
fn read_properties(text: &str, mut found: impl FnMut(&str, String)) -> Option<()> {
    let mut signs = text.chars().peekable();
    loop {
        while signs.next_if(|sign| is_blank(*sign) || is_end(*sign)).is_some() {}
        match signs.peek() {
            None => return Some(()),
            // A comment ends with its line, whatever stands last in it.
            Some('#' | '!') => while signs.next_if(|sign| !is_end(*sign)).is_some() {},
            Some(_) => {
                let (name, value) = read_line(&mut signs)?;
                found(&name, value);
            }
        }
    }
}

/// One line, with those that a backslash joins to it.
fn read_line(signs: &mut Peekable<Chars<'_>>) -> Option<(String, String)> {
    let (mut name, mut value, mut part) = (String::new(), String::new(), Part::Name);
    while let Some(sign) = signs.next_if(|sign| !is_end(*sign)) {
        let (sign, escaped) = match sign {
            '\\' => match unescaped(signs)? {
                Some(sign) => (sign, true),
                None => continue,
            },
            sign => (sign, false),
        };
        let separates = !escaped && matches!(sign, '=' | ':');
        part = match part {
            Part::Name if separates => Part::Behind,
            Part::Name if !escaped && is_blank(sign) => Part::Before,
            Part::Before if separates => Part::Behind,
            Part::Before | Part::Behind if !escaped && is_blank(sign) => part,
            Part::Before | Part::Behind | Part::Value => Part::Value,
            Part::Name => Part::Name,
        };
        match part {
            Part::Name => name.push(sign),
            Part::Value => value.push(sign),
            Part::Before | Part::Behind => {}
        }
    }
    Some((name, value))
}

/// What stands behind a backslash; nothing where it joins the next line or ends the text.
fn unescaped(signs: &mut Peekable<Chars<'_>>) -> Option<Option<char>> {
    let Some(sign) = signs.next() else { return Some(None) };
    Some(match sign {
        't' => Some('\t'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        'f' => Some('\x0C'),
        'u' => {
            let digit = |code: u32, _| Some(code * 16 + signs.next()?.to_digit(16)?);
            // Half of a pair is no character; no header of ours may hold one.
            Some(char::from_u32((0..4).try_fold(0, digit)?).unwrap_or(char::REPLACEMENT_CHARACTER))
        }
        end if is_end(end) => {
            if end == '\r' {
                signs.next_if_eq(&'\n');
            }
            while signs.next_if(|sign| is_blank(*sign)).is_some() {}
            None
        }
        other => Some(other),
    })
}

fn is_blank(sign: char) -> bool {
    matches!(sign, ' ' | '\t' | '\x0C')
}

fn is_end(sign: char) -> bool {
    matches!(sign, '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// The headers of a column, one a line; none when it was not used.
    fn carried(column: &str) -> Option<String> {
        let mut headers = Headers::default();
        let used = push_trace(column.as_bytes(), &mut headers);
        let line =
            |(name, value): (&str, Option<&[u8]>)| format!("{name}: {}", str::from_utf8(value.unwrap()).unwrap());
        let lines: Vec<_> = headers.iter().map(line).collect();
        assert_eq!(used, !lines.is_empty());
        used.then(|| lines.join("\n"))
    }

    #[test]
    fn a_traceparent_is_valid_as_the_recommendation_says() {
        // The recommendation's own examples, and what its test suite sends.
        for good in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "00-12345678901234567890123456789012-1234567890123456-01",
            "00-12345678901234567890123456789012-1234567890123456-ff",
            "cc-12345678901234567890123456789012-1234567890123456-01",
            "cc-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like",
            "00-00000000000000000000000000000001-0000000000000001-00",
        ] {
            assert_eq!(carried(good), Some(format!("traceparent: {good}")));
            assert_eq!(carried(&format!(" {good}\n")), Some(format!("traceparent: {good}")));
            assert_eq!(carried(&format!("traceparent=\t{good} ")), Some(format!("traceparent: {good}")));
        }
        for bad in [
            "",
            "00-12345678901234567890123456789012-1234567890123456-01.",
            "00-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like",
            "cc-12345678901234567890123456789012-1234567890123456-01.what-the-future-will-be-like",
            "ff-12345678901234567890123456789012-1234567890123456-01",
            ".0-12345678901234567890123456789012-1234567890123456-01",
            "0.-12345678901234567890123456789012-1234567890123456-01",
            "000-12345678901234567890123456789012-1234567890123456-01",
            "0000-12345678901234567890123456789012-1234567890123456-01",
            "0-12345678901234567890123456789012-1234567890123456-01",
            "00-00000000000000000000000000000000-1234567890123456-01",
            "00-.2345678901234567890123456789012-1234567890123456-01",
            "00-1234567890123456789012345678901.-1234567890123456-01",
            "00-123456789012345678901234567890123-1234567890123456-01",
            "00-1234567890123456789012345678901-1234567890123456-01",
            "00-12345678901234567890123456789012-0000000000000000-01",
            "00-12345678901234567890123456789012-.234567890123456-01",
            "00-12345678901234567890123456789012-12345678901234567-01",
            "00-12345678901234567890123456789012-123456789012345-01",
            "00-12345678901234567890123456789012-1234567890123456-.0",
            "00-12345678901234567890123456789012-1234567890123456-001",
            "00-12345678901234567890123456789012-1234567890123456-1",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0ü",
        ] {
            assert_eq!(carried(bad), None, "{bad}");
            assert_eq!(carried(&format!("traceparent={bad}\ntracestate=a=b\nbaggage=c=d")), None, "{bad}");
            assert_eq!(carried(&format!(r#"{{"traceparent": "{bad}", "baggage": "c=d"}}"#)), None, "{bad}");
        }
        assert_eq!(carried(&format!("cc{}-{}", &PARENT[2..], "x".repeat(500))), None, "prohibitively long");
    }

    #[test]
    fn a_tracestate_is_valid_as_the_recommendation_says() {
        let many = |count: usize| (0..count).map(|at| format!("k{at}=1")).collect::<Vec<_>>().join(",");
        let (longest, too_long) = (format!("{}=1", "k".repeat(256)), format!("{}=1", "k".repeat(257)));
        for (state, valid) in [
            ("congo=t61rcWkgMzE", true),
            ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", true),
            ("vendorname1=opaqueValue1 , vendorname2=opaqueValue2", true),
            ("fw529a3039@dt=FfG;x", true),
            ("foo=1,,bar=2,", true),
            ("a=  1", true),
            (&many(32), true),
            (&many(33), false),
            (&longest, true),
            (&too_long, false),
            (&format!("a={}", "v".repeat(256)), true),
            (&format!("a={}", "v".repeat(257)), false),
            ("congo=congosFirstPosition,rojo=rojosFirstPosition,congo=congosSecondPosition", false),
            ("", false),
            (" , ", false),
            ("foo", false),
            ("=1", false),
            ("foo=", false),
            ("FOO=1", false),
            ("foo =1", false),
            ("foo=1=2", false),
            ("foo=ü", false),
            ("foo.bar=1", false),
        ] {
            let column = serde_json::json!({"traceparent": PARENT, "tracestate": state}).to_string();
            let expected = if valid { format!("\ntracestate: {state}") } else { String::new() };
            assert_eq!(carried(&column), Some(format!("traceparent: {PARENT}{expected}")), "{state}");
        }
    }

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let context = |text: &str| {
            let mut found = Vec::new();
            read_properties(text, |name, value| found.push(format!("{name}→{value}"))).map(|()| found.join("|"))
        };
        for (text, expected) in [
            ("a=b", "a→b"),
            ("a:b", "a→b"),
            ("a b", "a→b"),
            ("a", "a→"),
            ("  a  =  b  ", "a→b  "),
            ("a = = b", "a→= b"),
            ("a \t:\x0C b", "a→b"),
            ("a==b", "a→=b"),
            ("=b", "→b"),
            ("a\\=\\:\\ b=c\\=d", "a=: b→c=d"),
            ("a=\\ b", "a→ b"),
            ("# c\n! d\n\n   # e\\\na=b", "a→b"),
            ("a=b\nc=d\r\ne=f\rg=h", "a→b|c→d|e→f|g→h"),
            ("a=b\\\n   c\\\r\n  d", "a→bcd"),
            ("a\\\n  b=c", "ab→c"),
            ("a=b\\\\\nc=d", "a→b\\|c→d"),
            ("a=\\t\\n\\r\\f\\q\\u0041\\u00e4", "a→\t\n\r\x0CqAä"),
            ("a=b\\", "a→b"),
            ("a=#b", "a→#b"),
            ("", ""),
        ] {
            assert_eq!(context(text).as_deref(), Some(expected), "{text:?}");
        }
        assert_eq!(context("a=\\u12"), None);
        assert_eq!(context("a=\\u12g4"), None);
    }

    #[test]
    fn each_form_of_the_column_gives_the_same_headers() {
        let expected = format!(
            "traceparent: {PARENT}\ntracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE\nbaggage: userId=alice,isProduction=false"
        );
        for column in [
            // As `java.util.Properties.store` writes it.
            format!(
                "#Wed Nov 18 08:00:00 UTC 2026\nbaggage=userId\\=alice,isProduction\\=false\ntraceparent={PARENT}\ntracestate=rojo\\=00f067aa0ba902b7,congo\\=t61rcWkgMzE\n"
            ),
            format!(
                "traceparent: {PARENT}\ntracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE\nbaggage: userId=alice,isProduction=false\nb3=0"
            ),
            format!(
                r#" {{"tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "Traceparent": "{PARENT}", "x": [1e400], "baggage": "userId=alice,isProduction=false"}} "#
            ),
        ] {
            assert_eq!(carried(&column).as_deref(), Some(&*expected), "{column}");
        }
    }

    #[test]
    fn what_is_no_context_is_left_out_in_silence() {
        for column in [
            "",
            " ",
            "null",
            "{}",
            "{",
            "[]",
            "x",
            "tracestate=a=b",
            r#"{"traceparent": 7}"#,
            r#"{"traceparent": null}"#,
            "traceparent=\\u00",
        ] {
            assert_eq!(carried(column), None, "{column}");
        }
        assert!(!push_trace(b"\xff", &mut Headers::default()));
        assert_eq!(carried("baggage=a=b").as_deref(), Some("baggage: a=b"));
        assert_eq!(
            carried(&format!("traceparent={PARENT}\nbaggage=a=\\u0007")),
            Some(format!("traceparent: {PARENT}"))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            push_trace(&bytes, &mut Headers::default());
        }

        #[test]
        fn any_properties_are_survived(text in "(traceparent|a|=|:|\\\\|\\n|\\r| |u00|#|00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01){0,12}") {
            if let Some(lines) = carried(&text) {
                prop_assert!(lines.starts_with("traceparent: "), "{lines}");
            }
        }
    }
}
