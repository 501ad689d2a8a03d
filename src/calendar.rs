//! Days and dates: a count of days since 1970-01-01 enters, a date leaves, and the reverse. Proleptic Gregorian, with a year 0
//! before the year 1, for every day that a time of PostgreSQL's can lie in (Howard Hinnant's algorithms).

/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
pub const DAYS_TO_2000: i64 = 10_957;

/// Years begin in March here, so that a leap day is their last: days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;
/// Of 400 years, after which the calendar repeats.
const DAYS_OF_AN_ERA: i64 = 146_097;

/// Year, month and day of a count of days since 1970-01-01.
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let era = days.div_euclid(DAYS_OF_AN_ERA);
    let day_of_era = days - era * DAYS_OF_AN_ERA;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// The reverse of `date_of`. A day that its month has not is counted on into the next one.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_OF_AN_ERA + day_of_era - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn days_have_the_dates_that_the_calendar_gives_them() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (DAYS_TO_2000, (2000, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (-25_509, (1900, 2, 28)),
            (-25_508, (1900, 3, 1)),
            (20_773, (2026, 11, 16)),
            (-719_162, (1, 1, 1)),
            (-719_163, (0, 12, 31)),
            (-719_528, (0, 1, 1)),
            (-719_529, (-1, 12, 31)),
            // PostgreSQL's first day, 4714-11-24 BC, and its last one of a timestamp.
            (-2_440_588, (-4713, 11, 24)),
            (106_762_939, (294_276, 12, 31)),
        ] {
            let (year, month, day) = date;
            assert_eq!((date_of(days), days_of(year, month, day)), (date, days), "{date:?}");
        }
        assert_eq!(days_of(2001, 2, 29), days_of(2001, 3, 1));
    }

    proptest! {
        #[test]
        fn every_day_is_found_again_by_its_date_and_follows_the_one_before(days in -3_000_000..200_000_000_i64) {
            let (year, month, day) = date_of(days);
            prop_assert_eq!(days_of(year, month, day), days);
            let next = date_of(days + 1);
            let is_next = match next {
                (_, 1, 1) => (next.0, 12, 31) == (year + 1, month, day),
                (_, _, 1) => (next.0, next.1) == (year, month + 1) && (28..=31).contains(&day),
                _ => next == (year, month, day + 1),
            };
            prop_assert!(is_next, "{:?} follows {:?}", next, (year, month, day));
        }
    }
}
