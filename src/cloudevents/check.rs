//! What may stand in an attribute: texts, URIs (RFC 3986) and media types (RFC 2046).

/// A text that is not empty.
pub(super) fn required(name: &str, value: &[u8]) -> Result<(), String> {
    if value.is_empty() { Err(format!("{name} is empty")) } else { text(name, value) }
}

/// UTF-8 without control characters and without what Unicode calls noncharacters.
pub(super) fn text(name: &str, value: &[u8]) -> Result<(), String> {
    // The common case, without a look at characters.
    if value.iter().all(|byte| (0x20..0x7F).contains(byte)) {
        return Ok(());
    }
    let value = str::from_utf8(value).map_err(|_| format!("{name} is not UTF-8"))?;
    let forbidden = |sign: &char| {
        let code = u32::from(*sign);
        sign.is_control() || (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
    };
    match value.chars().find(forbidden) {
        Some(sign) => Err(format!("{name} has the character U+{:04X}, which is not allowed", u32::from(sign))),
        None => Ok(()),
    }
}

pub(super) fn uri_reference(name: &str, value: &[u8]) -> Result<(), String> {
    match Uri::parse(value) {
        Some(_) => Ok(()),
        None => Err(format!("{name} \"{}\" is not a URI reference", shown(value))),
    }
}

pub(super) fn absolute_uri(name: &str, value: &[u8]) -> Result<(), String> {
    match Uri::parse(value) {
        Some(Uri { has_scheme: true, has_fragment: false }) => Ok(()),
        Some(_) | None => Err(format!("{name} \"{}\" is not an absolute URI", shown(value))),
    }
}

/// `type/subtype`, then parameters `; name=value`.
pub(super) fn media_type(name: &str, value: &[u8]) -> Result<(), String> {
    let wrong = || format!("{name} \"{}\" is not a media type", shown(value));
    let (media, parameters) =
        value.iter().position(|byte| *byte == b';').map_or((value, &b""[..]), |at| value.split_at(at));
    let mut halves = media.trim_ascii_end().splitn(2, |byte| *byte == b'/');
    let is_media = [halves.next(), halves.next()].into_iter().all(|half| half.is_some_and(is_token));
    if is_media && are_parameters(parameters) { Ok(()) } else { Err(wrong()) }
}

fn is_token(text: &[u8]) -> bool {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(legal)
}

fn are_parameters(mut rest: &[u8]) -> bool {
    while let Some(parameter) = rest.trim_ascii_start().strip_prefix(b";") {
        let parameter = parameter.trim_ascii_start();
        let Some(at) = parameter.iter().position(|byte| *byte == b'=') else { return false };
        let (name, value) = (&parameter[..at], &parameter[at + 1..]);
        let end = match value.strip_prefix(b"\"") {
            Some(quoted) => quoted_end(quoted).map(|end| end + 1),
            None => Some(value.iter().position(|byte| *byte == b';' || *byte == b' ').unwrap_or(value.len())),
        };
        let Some(end) = end else { return false };
        if !is_token(name) || !(value.starts_with(b"\"") || is_token(&value[..end])) {
            return false;
        }
        rest = &value[end..];
    }
    rest.trim_ascii().is_empty()
}

/// Where a quoted text ends, its closing quote included.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            0x20..0x7F | b'\t' => at += 1,
            _ => return None,
        }
    }
}

/// What a URI reference has.
struct Uri {
    has_scheme: bool,
    has_fragment: bool,
}

impl Uri {
    fn parse(text: &[u8]) -> Option<Uri> {
        let (rest, fragment) = split(text, b'#');
        let (rest, query) = split(rest, b'?');
        let fits = |part: Option<&[u8]>| part.is_none_or(|part| are_signs(part, b":@/?"));
        // A colon before the first slash ends a scheme, or is a mistake.
        let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        let (scheme, hierarchy) = match first.iter().position(|byte| *byte == b':') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let path = match hierarchy.strip_prefix(b"//") {
            Some(rest) => {
                let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
                is_authority(&rest[..end]).then_some(&rest[end..])?
            }
            None => hierarchy,
        };
        let valid = scheme.is_none_or(is_scheme) && are_signs(path, b":@/") && fits(query) && fits(fragment);
        valid.then_some(Uri { has_scheme: scheme.is_some(), has_fragment: fragment.is_some() })
    }
}

fn split(text: &[u8], sign: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == sign) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn is_scheme(text: &[u8]) -> bool {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(legal)
}

/// `user@host:port`, the host a name or an address, in brackets when it has colons.
fn is_authority(text: &[u8]) -> bool {
    let (user, place) = match text.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (&b""[..], text),
    };
    let (host_fits, port) = match place.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            (end > 0 && are_signs(&rest[..end], b":"), &rest[end + 1..])
        }
        None => {
            let end = place.iter().position(|byte| *byte == b':').unwrap_or(place.len());
            (are_signs(&place[..end], b""), &place[end..])
        }
    };
    let port_fits = port.is_empty() || (port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit));
    are_signs(user, b":") && host_fits && port_fits
}

/// Unreserved signs, sub-delimiters, percent-encoded bytes, and those named here.
fn are_signs(text: &[u8], more: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let legal = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(byte) || more.contains(byte);
        let encoded =
            || *byte == b'%' && text.get(at + 1..at + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
        at += match () {
            () if legal => 1,
            () if encoded() => 3,
            () => return false,
        };
    }
    true
}

/// A value for people, cut where it is long.
pub(super) fn shown(value: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(value);
    let cut = if text.chars().count() > MOST { "…" } else { "" };
    text.chars().take(MOST).flat_map(|sign| sign.escape_debug()).chain(cut.chars()).collect()
}
