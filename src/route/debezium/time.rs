//! Dates, times and intervals, in the form that `time.precision.mode` and `interval.handling.mode` give them.

use super::datum::Datum;
use crate::calendar::date_of;
use crate::config::debezium::{IntervalMode, TimeMode};
use crate::source::outbox::{parse_time, unix_micros};

const DAY: i64 = 86_400_000_000;
/// What a timestamp of more than milliseconds has behind the point.
const MILLIS_DIGITS: i32 = 3;
/// What the driver of Debezium's connector takes for infinity: milliseconds, and days that have run over.
const INFINITE_MICROS: (i64, i64) = (-9_223_372_036_832_400_000, 9_223_372_036_825_200_000);
const INFINITE_DAYS: (i64, i64) = (-2_147_472_691, -2_147_472_692);

pub(super) fn date<'a>(text: &'a str, mode: TimeMode) -> Option<Datum<'a>> {
    let days = match text {
        "infinity" | "-infinity" => None,
        _ => {
            let (date, era) = text.split_once(' ').map_or((text, ""), |(date, _)| (date, " BC"));
            Some(unix_micros(parse_time(&format!("{date} 00:00:00{era}"))?).div_euclid(DAY))
        }
    };
    Some(match (mode, days) {
        (TimeMode::Isostring | TimeMode::Connect, None) => Datum::Text(text.into()),
        (_, None) => Datum::Integer(infinite(text, INFINITE_DAYS)),
        (TimeMode::Isostring, Some(days)) => Datum::Text(format!("{}Z", iso_date(days)).into()),
        (TimeMode::Connect, Some(days)) => Datum::Date(days),
        (_, Some(days)) => Datum::Integer(days),
    })
}

pub(super) fn time<'a>(text: &'a str, precision: i32, mode: TimeMode) -> Option<Datum<'a>> {
    let micros = clock(text)?;
    Some(match mode {
        TimeMode::Adaptive if (0..=MILLIS_DIGITS).contains(&precision) => Datum::Integer(micros / 1000),
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds => Datum::Integer(micros),
        TimeMode::Nanoseconds => Datum::Integer(micros * 1000),
        TimeMode::Connect => Datum::Time(micros / 1000),
        TimeMode::Isostring => Datum::Text(format!("{}Z", iso_clock(micros, None)).into()),
    })
}

pub(super) fn timestamp<'a>(text: &'a str, precision: i32, mode: TimeMode) -> Option<Datum<'a>> {
    let is_infinite = matches!(text, "infinity" | "-infinity");
    let is_millis = (0..=MILLIS_DIGITS).contains(&precision);
    let micros = match is_infinite {
        true => infinite(text, INFINITE_MICROS),
        false => unix_micros(parse_time(text)?),
    };
    Some(match mode {
        TimeMode::Connect | TimeMode::Isostring if is_infinite => Datum::Text(text.into()),
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds if is_millis => Datum::Integer(micros.div_euclid(1000)),
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds => Datum::Integer(micros),
        TimeMode::Nanoseconds => micros.checked_mul(1000).map_or(Datum::Null, Datum::Integer),
        TimeMode::Connect => Datum::Timestamp(micros.div_euclid(1000)),
        TimeMode::Isostring => Datum::Text(format!("{}Z", iso(micros, None)).into()),
    })
}

/// In UTC, with as many digits as the column has.
pub(super) fn zoned_timestamp<'a>(text: &'a str, precision: i32) -> Option<Datum<'a>> {
    if matches!(text, "infinity" | "-infinity") {
        return Some(Datum::Text(text.into()));
    }
    let digits = usize::try_from(precision).unwrap_or(6).min(6);
    Some(Datum::Text(format!("{}Z", iso(unix_micros(parse_time(text)?), Some(digits))).into()))
}

pub(super) fn zoned_time<'a>(text: &'a str) -> Option<Datum<'a>> {
    let zone_at = text.rfind(['+', '-'])?;
    let (time, zone) = text.split_at(zone_at);
    let offset = clock(&zone[1..])? * if zone.starts_with('-') { -1 } else { 1 };
    Some(Datum::Text(format!("{}Z", iso_clock((clock(time)? - offset).rem_euclid(DAY), None)).into()))
}

pub(super) fn interval<'a>(text: &'a str, mode: IntervalMode) -> Option<Datum<'a>> {
    let (mut months, mut days, mut micros) = (0_i64, 0_i64, 0_i64);
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if word.contains(':') {
            let unsigned = word.trim_start_matches(['+', '-']);
            micros = clock(unsigned)? * if word.starts_with('-') { -1 } else { 1 };
            continue;
        }
        let number: i64 = word.parse().ok()?;
        match words.next()?.trim_end_matches('s') {
            "year" => months += number * 12,
            "mon" => months += number,
            "day" => days += number,
            _ => return None,
        }
    }
    Some(match mode {
        // A month is the twelfth part of 365.25 days.
        IntervalMode::Numeric => Datum::Integer(months * 2_629_800_000_000 + days * DAY + micros),
        IntervalMode::String => {
            let (hours, minutes) = (micros / 3_600_000_000, micros / 60_000_000 % 60);
            let micros = micros % 60_000_000;
            let sign = if micros < 0 { "-" } else { "" };
            let (seconds, fraction) = (micros.abs() / 1_000_000, fraction(micros.abs() % 1_000_000, None));
            let (years, months) = (months / 12, months % 12);
            Datum::Text(format!("P{years}Y{months}M{days}DT{hours}H{minutes}M{sign}{seconds}{fraction}S").into())
        }
    })
}

fn infinite(text: &str, (negative, positive): (i64, i64)) -> i64 {
    if text.starts_with('-') { negative } else { positive }
}

/// `HH:MM[:SS[.ffffff]]` in microseconds; an interval may have more than two digits of hours.
fn clock(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next().map_or(Some(0), |part| part.parse().ok())?;
    let (seconds, fraction) = parts.next().map_or(("0", ""), |part| part.split_once('.').unwrap_or((part, "")));
    let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    Some((hours * 3600 + minutes * 60 + seconds.parse::<i64>().ok()?) * 1_000_000 + micros)
}

/// Microseconds since 1970 as `2024-02-29T12:34:56`, and a fraction.
fn iso(micros: i64, digits: Option<usize>) -> String {
    format!("{}T{}", iso_date(micros.div_euclid(DAY)), iso_clock(micros.rem_euclid(DAY), digits))
}

pub(super) fn iso_date(days: i64) -> String {
    let (year, month, day) = date_of(days);
    match year {
        ..0 => format!("-{:04}-{month:02}-{day:02}", -year),
        0..10_000 => format!("{year:04}-{month:02}-{day:02}"),
        10_000.. => format!("+{year}-{month:02}-{day:02}"),
    }
}

/// Microseconds of a day; with so many digits behind the point, or as many as it needs.
pub(super) fn iso_clock(micros: i64, digits: Option<usize>) -> String {
    let seconds = micros / 1_000_000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{}", fraction(micros % 1_000_000, digits))
}

fn fraction(micros: i64, digits: Option<usize>) -> String {
    let text = format!(".{micros:06}");
    match digits {
        Some(0) => String::new(),
        Some(digits) => text[..=digits].to_owned(),
        None => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// `java.util.Date.toString` in UTC.
pub(super) fn java_date(millis: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = millis.div_euclid(86_400_000);
    let (year, month, day) = date_of(days);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let clock = iso_clock(millis.rem_euclid(86_400_000) / 1000 * 1_000_000, Some(0));
    format!("{weekday} {} {day:02} {clock} UTC {year}", MONTHS[month as usize - 1])
}
