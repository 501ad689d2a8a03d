//! Times as RFC 3339 writes them.

use std::io::Write;

use super::check::shown;
use crate::calendar::{DAYS_TO_2000, date_of};

const DAY: i64 = 86_400_000_000;

/// Microseconds since 2000-01-01 at the beginning of the year 0 and at the end of the year 9999: four digits.
const YEARS: std::ops::Range<i64> = -730_485 * DAY..2_921_940 * DAY;

/// RFC 3339 has four digits for a year; a time outside them, infinity included, cannot be written.
pub(super) fn check_micros(micros: i64) -> Result<(), String> {
    if YEARS.contains(&micros) { Ok(()) } else { Err("time is not between the years 0000 and 9999".to_owned()) }
}

/// Appends a time in microseconds since 2000-01-01 UTC (PostgreSQL's count), such as `2018-04-05T17:31:00Z`; of the
/// fraction only what is not zero. The year has four digits between 0000 and 9999.
pub fn write_time(micros: i64, out: &mut Vec<u8>) {
    let (year, month, day) = date_of(micros.div_euclid(DAY) + DAYS_TO_2000);
    let (seconds, fraction) = (micros.rem_euclid(DAY) / 1_000_000, micros.rem_euclid(1_000_000));
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let taken = "a vector takes everything";
    write!(out, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}").expect(taken);
    if fraction != 0 {
        write!(out, ".{fraction:06}").expect(taken);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    out.push(b'Z');
}

/// `2018-04-05T17:31:00.5+01:00`, with a day that the month has. The 60th second is allowed: it is a leap second.
pub(super) fn check_text(text: &[u8]) -> Result<(), String> {
    if is_time(text) { Ok(()) } else { Err(format!("time \"{}\" is not a time of RFC 3339", shown(text))) }
}

fn is_time(text: &[u8]) -> bool {
    let Some((date, rest)) = text.split_at_checked(19) else { return false };
    let pattern = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(byte, sign): (&u8, &u8)| match sign {
        b'd' => byte.is_ascii_digit(),
        sign => byte.to_ascii_uppercase() == *sign,
    };
    if !date.iter().zip(pattern).all(fits) {
        return false;
    }
    let number = |at: usize| u32::from(date[at] - b'0') * 10 + u32::from(date[at + 1] - b'0');
    let (year, month, day) = (number(0) * 100 + number(2), number(5), number(8));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => 31,
    };
    let in_range = (1..=12).contains(&month) && (1..=days).contains(&day);
    in_range && number(11) < 24 && number(14) < 60 && number(17) <= 60 && is_zone(without_fraction(rest))
}

/// What follows a fraction, or nothing that a zone could be.
fn without_fraction(rest: &[u8]) -> &[u8] {
    let Some(fraction) = rest.strip_prefix(b".") else { return rest };
    match fraction.iter().position(|byte| !byte.is_ascii_digit()) {
        Some(0) | None => b"",
        Some(digits) => &fraction[digits..],
    }
}

fn is_zone(zone: &[u8]) -> bool {
    match zone {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', a, b, b':', c, d] => {
            [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()) && [*a, *b] < *b"24" && *c < b'6'
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(micros: i64) -> String {
        let mut out = Vec::new();
        write_time(micros, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn postgresqls_count_becomes_rfc_3339() {
        for (micros, text) in [
            (0, "2000-01-01T00:00:00Z"),
            (576_264_660_000_000, "2018-04-05T17:31:00Z"),
            (576_264_660_120_000, "2018-04-05T17:31:00.12Z"),
            (-1, "1999-12-31T23:59:59.999999Z"),
            (5_097_599_999_999, "2000-02-28T23:59:59.999999Z"),
            (5_097_600_000_000, "2000-02-29T00:00:00Z"),
            (YEARS.start, "0000-01-01T00:00:00Z"),
            (YEARS.end - 1, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(written(micros), text);
            assert_eq!(check_micros(micros), Ok(()), "{text}");
        }
        for micros in [i64::MAX, i64::MIN, YEARS.start - 1, YEARS.end] {
            assert!(check_micros(micros).is_err(), "{micros}");
        }
    }

    #[test]
    fn a_text_is_a_time_of_rfc_3339_or_not() {
        // The first five are the examples of RFC 3339, section 5.8.
        for good in [
            "1985-04-12T23:20:50.52Z",
            "1996-12-19T16:39:57-08:00",
            "1990-12-31T23:59:60Z",
            "1990-12-31T15:59:60-08:00",
            "1937-01-01T12:00:27.87+00:20",
            "2018-04-05T17:31:00Z",
            "2018-04-05t17:31:00z",
            "2000-02-29T00:00:00Z",
            "2018-04-05T17:31:00.123456789+23:59",
        ] {
            assert_eq!(check_text(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            "",
            "2018-04-05",
            "2018-04-05T17:31Z",
            "2018-04-05 17:31:00Z",
            "2018-04-05T17:31:00",
            "2018-04-05T17:31:00.Z",
            "2018-04-05T17:31:00.5",
            "2018-04-05T17:31:00+0100",
            "2018-04-05T17:31:00+24:00",
            "2018-04-05T17:31:00+01:60",
            "2018-04-05T24:00:00Z",
            "2018-04-05T17:60:00Z",
            "2018-04-05T17:31:61Z",
            "2018-13-05T17:31:00Z",
            "2018-00-05T17:31:00Z",
            "2018-04-31T17:31:00Z",
            "1900-02-29T17:31:00Z",
            "2018-04-05T17:31:00Zz",
            "18-04-05T17:31:00Z",
            "infinity",
        ] {
            assert!(check_text(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_a_time(micros in YEARS) {
            prop_assert_eq!(check_text(written(micros).as_bytes()), Ok(()));
            prop_assert_eq!(written(micros) < written(micros.saturating_add(1_000_000)), micros + 1_000_000 < YEARS.end);
        }

        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(check_text(&text).is_ok() || !is_time(&text));
        }
    }
}
