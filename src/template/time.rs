//! Dates: what PostgreSQL prints for `timestamp`, `timestamptz` and `date`, and ISO 8601.
//!
//! A time without a zone is UTC. The clock is never read, so that a replay gives the same bytes.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// The moment that a text names.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("\"{text}\" is not a date");
    let trimmed = text.trim();
    let (time, before_christ) = trimmed.strip_suffix(" BC").map_or((trimmed, false), |time| (time, true));
    // Year 1 before Christ is year 0 of ISO 8601, whose years before 0 have six digits.
    let shifted =
        |(year, rest): (&str, &str)| Some(format!("-{:06}-{rest}", year.parse::<i64>().ok()?.checked_sub(1)?));
    let time = match time.split_once('-') {
        Some((year, rest)) if before_christ => shifted((year, rest)).ok_or_else(wrong)?.replace("-000000-", "0000-"),
        _ => time.to_owned(),
    };
    let clock = time.split_once(['T', 't', ' ']).map_or("", |(_, clock)| clock);
    if clock.contains(['+', '-', 'Z', 'z']) {
        return time.parse().map_err(|_| wrong());
    }
    let civil: DateTime = time.parse().map_err(|_| wrong())?;
    TimeZone::UTC.to_timestamp(civil).map_err(|_| wrong())
}

/// RFC 3339 in UTC, with the fraction of a second that it has.
pub fn iso(text: &str) -> Result<String, String> {
    Ok(parse(text)?.to_string())
}

/// Written after a pattern as of strftime, in UTC.
pub fn formatted(text: &str, pattern: &str) -> Result<String, String> {
    let moment = parse(text)?.to_zoned(TimeZone::UTC);
    strtime::format(pattern, &moment).map_err(|error| format!("\"{pattern}\" is not a date pattern: {error}"))
}

/// Milliseconds since 1970, rounded down.
pub fn epoch_ms(text: &str) -> Result<i64, String> {
    let since = parse(text)?.as_duration();
    Ok(since.as_nanos().div_euclid(1_000_000) as i64)
}

/// Seconds since 1970, rounded down.
pub fn epoch_s(text: &str) -> Result<i64, String> {
    Ok(epoch_ms(text)?.div_euclid(1000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_read_in_every_form_postgresql_writes_and_in_iso_8601() {
        for (text, iso_text, ms) in [
            ("2026-11-16 04:06:00.5+01:30", "2026-11-16T02:36:00.5Z", 1_794_796_560_500),
            ("2026-11-16 02:36:00.500000+00", "2026-11-16T02:36:00.5Z", 1_794_796_560_500),
            ("2026-11-16 02:36:00.5", "2026-11-16T02:36:00.5Z", 1_794_796_560_500),
            ("2026-11-16T02:36:00.5Z", "2026-11-16T02:36:00.5Z", 1_794_796_560_500),
            ("2026-11-16T02:36:00.5", "2026-11-16T02:36:00.5Z", 1_794_796_560_500),
            ("2026-11-16", "2026-11-16T00:00:00Z", 1_794_787_200_000),
            ("1999-12-31 20:00:00-04", "2000-01-01T00:00:00Z", 946_684_800_000),
            ("1969-12-31 23:59:59.9999+00", "1969-12-31T23:59:59.9999Z", -1),
            ("0001-12-31 00:00:00+00 BC", "0000-12-31T00:00:00Z", -62_135_683_200_000),
            ("0044-03-15 BC", "-000043-03-15T00:00:00Z", -63_517_824_000_000),
        ] {
            assert_eq!(iso(text).as_deref(), Ok(iso_text), "{text}");
            assert_eq!(epoch_ms(text), Ok(ms), "{text}");
        }
        assert_eq!(epoch_s("1969-12-31 23:59:59.9999+00"), Ok(-1));
    }

    #[test]
    fn what_is_no_date_is_refused_by_name() {
        for text in
            ["", "now", "infinity", "-infinity", "2026-13-01", "2026-02-30", "04:06:00", "2026-01-01 00:00:00+99"]
        {
            assert_eq!(iso(text), Err(format!("\"{text}\" is not a date")));
        }
    }

    #[test]
    fn a_date_is_written_after_a_pattern() {
        assert_eq!(formatted("2026-11-16 04:06:00+01", "%d.%m.%Y %H:%M").as_deref(), Ok("16.11.2026 03:06"));
        assert!(formatted("2026-11-16", "%!").unwrap_err().starts_with("\"%!\" is not a date pattern: "));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9TZ: .+BC-]{0,40}|\\PC{0,20}", pattern in "\\PC{0,12}") {
            drop(iso(&text));
            drop(epoch_s(&text));
            drop(formatted("2026-11-16", &pattern));
        }
    }
}
