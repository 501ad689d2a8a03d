//! What is inside the server's packets, as far as a walsender session needs it: a body enters, borrowed parts leave.
//!
//! Total: any bytes give a value or `Malformed`, never a panic. The formats are in PostgreSQL's manual, "Message
//! Formats" and "Streaming Replication Protocol".

use super::Frame;
use crate::lsn::Lsn;

/// Bytes that are not what the packet's tag promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub(super) struct Malformed(pub &'static str);

/// What the server wants to know before it lets us in: an `R` packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Authentication {
    Done,
    Cleartext,
    Md5([u8; 4]),
    /// The mechanisms that the server offers.
    Sasl(Vec<String>),
    SaslContinue(Vec<u8>),
    SaslFinal(Vec<u8>),
    /// A method that we do not speak, by its name.
    Unsupported(&'static str),
}

/// The fields of an `E` or `N` packet that we use; what is missing is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Report<'a> {
    pub code: &'a [u8],
    pub message: &'a [u8],
    pub detail: &'a [u8],
    pub hint: &'a [u8],
}

/// A `d` packet's body: WAL data or a keepalive.
#[inline]
pub(super) fn copy_data(body: &[u8]) -> Result<Frame<'_>, Malformed> {
    match body.split_first() {
        Some((b'w', rest)) => {
            const WHAT: Malformed = Malformed("WAL data");
            let (_start, rest) = rest.split_first_chunk::<8>().ok_or(WHAT)?;
            let (wal_end, rest) = rest.split_first_chunk().ok_or(WHAT)?;
            let (sent_at, body) = rest.split_first_chunk().ok_or(WHAT)?;
            Ok(Frame::Data { wal_end: lsn(wal_end), sent_at: i64::from_be_bytes(*sent_at), body })
        }
        Some((b'k', rest)) => {
            const WHAT: Malformed = Malformed("keepalive");
            let (wal_end, rest) = rest.split_first_chunk().ok_or(WHAT)?;
            let (sent_at, rest) = rest.split_first_chunk().ok_or(WHAT)?;
            let [reply] = rest else { return Err(WHAT) };
            let sent_at = i64::from_be_bytes(*sent_at);
            Ok(Frame::Keepalive { wal_end: lsn(wal_end), sent_at, reply_requested: *reply != 0 })
        }
        Some(_) | None => Err(Malformed("message of the replication stream")),
    }
}

/// An `E` or `N` packet's body.
pub(super) fn report(body: &[u8]) -> Result<Report<'_>, Malformed> {
    let mut report = Report::default();
    let mut rest = body;
    loop {
        match rest.split_first() {
            Some((0, [])) => return Ok(report),
            Some((kind, after)) => {
                let (value, after) = text(after).ok_or(Malformed("error report"))?;
                match kind {
                    b'C' => report.code = value,
                    b'M' => report.message = value,
                    b'D' => report.detail = value,
                    b'H' => report.hint = value,
                    _ => {} // the manual asks to ignore kinds that one does not know
                }
                rest = after;
            }
            None => return Err(Malformed("error report")),
        }
    }
}

/// An `R` packet's body.
pub(super) fn authentication(body: &[u8]) -> Result<Authentication, Malformed> {
    const WHAT: Malformed = Malformed("authentication request");
    let (kind, rest) = body.split_first_chunk().ok_or(WHAT)?;
    Ok(match i32::from_be_bytes(*kind) {
        0 => Authentication::Done,
        2 => Authentication::Unsupported("Kerberos V5"),
        3 => Authentication::Cleartext,
        5 => Authentication::Md5(rest.try_into().map_err(|_| WHAT)?),
        7 | 8 => Authentication::Unsupported("GSSAPI"),
        9 => Authentication::Unsupported("SSPI"),
        10 => Authentication::Sasl(mechanisms(rest).ok_or(WHAT)?),
        11 => Authentication::SaslContinue(rest.to_vec()),
        12 => Authentication::SaslFinal(rest.to_vec()),
        _ => Authentication::Unsupported("a method that is not known here"),
    })
}

/// A `K` packet's body: the backend's process id.
pub(super) fn backend_pid(body: &[u8]) -> Result<i32, Malformed> {
    let (pid, _secret) = body.split_first_chunk().ok_or(Malformed("backend key"))?;
    Ok(i32::from_be_bytes(*pid))
}

/// A `D` packet's body: the row's columns as text, NULL as `None`.
pub(super) fn data_row(body: &[u8]) -> Result<Vec<Option<String>>, Malformed> {
    const WHAT: Malformed = Malformed("row");
    let (count, mut rest) = body.split_first_chunk().ok_or(WHAT)?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk().ok_or(WHAT)?;
        let (value, after) = match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = after.split_at_checked(length).ok_or(WHAT)?;
                (Some(String::from_utf8_lossy(value).into_owned()), after)
            }
            Err(_) => (None, after),
        };
        columns.push(value);
        rest = after;
    }
    if rest.is_empty() { Ok(columns) } else { Err(WHAT) }
}

fn mechanisms(mut rest: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while rest != [0] {
        let (name, after) = text(rest)?;
        names.push(String::from_utf8_lossy(name).into_owned());
        rest = after;
    }
    Some(names)
}

/// Takes a zero-terminated string off the front.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[inline]
fn lsn(bytes: &[u8; 8]) -> Lsn {
    Lsn(u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data() -> Vec<u8> {
        [&b"w"[..], &0x16_B374_D848u64.to_be_bytes(), &0x16_B374_D900u64.to_be_bytes(), &9i64.to_be_bytes(), b"Begin"]
            .concat()
    }

    fn keepalive(reply: u8) -> Vec<u8> {
        [&b"k"[..], &7u64.to_be_bytes(), &(-5i64).to_be_bytes(), &[reply]].concat()
    }

    #[test]
    fn wal_data_and_keepalives_are_frames() {
        assert_eq!(copy_data(&data()), Ok(Frame::Data { wal_end: Lsn(0x16_B374_D900), sent_at: 9, body: b"Begin" }));
        assert_eq!(
            copy_data(&keepalive(0)),
            Ok(Frame::Keepalive { wal_end: Lsn(7), sent_at: -5, reply_requested: false })
        );
        assert_eq!(
            copy_data(&keepalive(1)),
            Ok(Frame::Keepalive { wal_end: Lsn(7), sent_at: -5, reply_requested: true })
        );
    }

    #[test]
    fn a_frame_cut_in_its_header_is_malformed() {
        for length in 0..25 {
            assert!(copy_data(&data()[..length]).is_err(), "{length}");
        }
        for length in 0..keepalive(1).len() {
            assert!(copy_data(&keepalive(1)[..length]).is_err(), "{length}");
        }
        assert!(copy_data(&[keepalive(1), vec![0]].concat()).is_err(), "a byte too many");
        assert!(copy_data(b"x").is_err());
    }

    #[test]
    fn a_report_gives_its_fields_and_ignores_unknown_ones() {
        let body = b"SERROR\0C55006\0Mslot is active\0Dby another\0Hwait\0qwhatever\0\0";
        let expected = Report { code: b"55006", message: b"slot is active", detail: b"by another", hint: b"wait" };
        assert_eq!(report(body), Ok(expected));
        for length in 0..body.len() {
            assert!(report(&body[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn authentication_requests_are_told_apart() {
        let request = |kind: i32, rest: &[u8]| authentication(&[&kind.to_be_bytes()[..], rest].concat());
        assert_eq!(request(0, b""), Ok(Authentication::Done));
        assert_eq!(request(3, b""), Ok(Authentication::Cleartext));
        assert_eq!(request(5, b"salt"), Ok(Authentication::Md5(*b"salt")));
        assert!(request(5, b"sal").is_err());
        assert_eq!(
            request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"),
            Ok(Authentication::Sasl(vec!["SCRAM-SHA-256-PLUS".into(), "SCRAM-SHA-256".into()]))
        );
        assert!(request(10, b"SCRAM-SHA-256\0").is_err(), "the list must end");
        assert_eq!(request(7, b""), Ok(Authentication::Unsupported("GSSAPI")));
        assert!(authentication(b"\0\0").is_err());
    }

    #[test]
    fn a_row_gives_its_columns() {
        let body = [&[0, 2][..], &3i32.to_be_bytes(), b"abc", &(-1i32).to_be_bytes()].concat();
        assert_eq!(data_row(&body), Ok(vec![Some("abc".to_owned()), None]));
        for length in 0..body.len() {
            assert!(data_row(&body[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            copy_data(&bytes).ok();
            report(&bytes).ok();
            authentication(&bytes).ok();
            backend_pid(&bytes).ok();
            data_row(&bytes).ok();
        }
    }
}
