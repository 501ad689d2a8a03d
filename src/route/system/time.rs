//! Times as the systems write them: microseconds since 2000-01-01 UTC enter, text leaves.

use std::io::Write;

use crate::source::outbox::Moment;

const TAKEN: &str = "a vector takes everything";

/// `2026-11-16T04:06:00.123456+00:00`
pub(super) fn micros_with_offset(time: i64, out: &mut Vec<u8>) {
    write_seconds(time, out);
    write!(out, ".{:06}+00:00", Moment::of(time).micros).expect(TAKEN);
}

/// `2026-11-16T04:06:00.123Z`
pub(super) fn millis(time: i64, out: &mut Vec<u8>) {
    write_seconds(time, out);
    write!(out, ".{:03}Z", Moment::of(time).micros / 1000).expect(TAKEN);
}

/// `2026-11-16T04:06:00.12Z`: of the fraction only what is not zero.
pub(super) fn shortest(time: i64, out: &mut Vec<u8>) {
    write_seconds(time, out);
    let micros = Moment::of(time).micros;
    if micros != 0 {
        write!(out, ".{micros:06}").expect(TAKEN);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    out.push(b'Z');
}

/// `11/16/2026 04:06:00`, as .NET's invariant culture has it.
pub(super) fn invariant(time: i64, out: &mut Vec<u8>) {
    let Moment { year, month, day, hours, minutes, seconds, .. } = Moment::of(time);
    write!(out, "{month:02}/{day:02}/{year:04} {hours:02}:{minutes:02}:{seconds:02}").expect(TAKEN);
}

fn write_seconds(time: i64, out: &mut Vec<u8>) {
    let Moment { year, month, day, hours, minutes, seconds, .. } = Moment::of(time);
    write!(out, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}").expect(TAKEN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_that_of_its_system() {
        let written = |form: fn(i64, &mut Vec<u8>), time| {
            let mut out = Vec::new();
            form(time, &mut out);
            String::from_utf8(out).unwrap()
        };
        // 2026-11-16 04:06:00.12
        let time = 848_117_160_120_000;
        assert_eq!(written(micros_with_offset, time), "2026-11-16T04:06:00.120000+00:00");
        assert_eq!(written(millis, time), "2026-11-16T04:06:00.120Z");
        assert_eq!(written(shortest, time), "2026-11-16T04:06:00.12Z");
        assert_eq!(written(invariant, time), "11/16/2026 04:06:00");
        assert_eq!(written(shortest, 0), "2000-01-01T00:00:00Z");
        assert_eq!(written(millis, -1), "1999-12-31T23:59:59.999Z");
        assert_eq!(written(invariant, -1), "12/31/1999 23:59:59");
    }
}
