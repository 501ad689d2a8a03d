//! A JSON number as it was written: exact where a double is not.
//!
//! Whole numbers are compared digit by digit up to 38 digits, whatever their spelling (`1e2`, `100.0`). Others are doubles
//! where the schema's own number is one; a number too large for a double is larger than any bound, one too small for it
//! is still not zero.

use std::borrow::Cow;

use jsonschema::json::JsonNumber;
use serde_json::Number;

/// A number's text, which follows JSON's grammar.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a>(pub &'a str);

/// The same number always has the same parts: no zeros at either end of the digits, and zero has none.
struct Parts<'a> {
    negative: bool,
    /// Before and behind the point, in this order.
    digits: [&'a str; 2],
    /// The power of ten that the last digit counts.
    exponent: i64,
}

impl<'a> Written<'a> {
    fn parts(self) -> Parts<'a> {
        let (negative, text) = self.0.strip_prefix('-').map_or((false, self.0), |text| (true, text));
        let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let fraction = fraction.trim_end_matches('0');
        let trimmed = if fraction.is_empty() { whole.trim_end_matches('0') } else { whole };
        let dropped = whole.len() - trimmed.len();
        let whole = trimmed.trim_start_matches('0');
        let fraction_digits = if whole.is_empty() { fraction.trim_start_matches('0') } else { fraction };
        if whole.is_empty() && fraction_digits.is_empty() {
            return Parts { negative: false, digits: ["", ""], exponent: 0 };
        }
        let shift = i64::try_from(dropped).unwrap_or(i64::MAX) - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        Parts { negative, digits: [whole, fraction_digits], exponent: power_of(power).saturating_add(shift) }
    }

    /// The number, when it is whole and has no more than 38 digits.
    fn whole(self) -> Option<i128> {
        let Parts { negative, digits, exponent } = self.parts();
        let zeros = u32::try_from(exponent).ok()?;
        let digits = digits.iter().flat_map(|digits| digits.bytes());
        let append = |number: i128, digit: u8| number.checked_mul(10)?.checked_add(i128::from(digit - b'0'));
        let number = digits.into_iter().try_fold(0, append)?;
        let number = if number == 0 { 0 } else { number.checked_mul(10_i128.checked_pow(zeros)?)? };
        Some(if negative { -number } else { number })
    }

    /// Equality with a number of the schema. What the schema's reader rounded to a double is compared as one, so that a
    /// long number equals itself.
    pub fn equals(self, expected: &Number) -> bool {
        match expected.as_i128() {
            Some(expected) => self.whole() == Some(expected),
            None => expected.as_f64().is_some_and(|expected| self.as_f64() == Some(expected)),
        }
    }

    /// Appends text that is the same for equal numbers, and only for them.
    pub fn write_canonical(self, out: &mut Vec<u8>) {
        let Parts { negative, digits, exponent } = self.parts();
        out.extend_from_slice(if negative { b"-" } else { b"" });
        digits.iter().for_each(|digits| out.extend_from_slice(digits.as_bytes()));
        out.extend_from_slice(b"e");
        out.extend_from_slice(&exponent.to_be_bytes());
    }
}

/// An exponent's number; one that no `i64` holds is as good as the largest.
fn power_of(text: &str) -> i64 {
    let limit = if text.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    text.parse().map_or(limit, |power: i64| power.clamp(i64::MIN / 2, i64::MAX / 2))
}

impl JsonNumber for Written<'_> {
    fn as_u64(&self) -> Option<u64> {
        // Plain digits are the common case.
        self.0.parse().ok().or_else(|| self.whole().and_then(|whole| whole.try_into().ok()))
    }

    fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok().or_else(|| self.whole().and_then(|whole| whole.try_into().ok()))
    }

    fn as_f64(&self) -> Option<f64> {
        let number: f64 = self.0.parse().ok()?;
        if number == 0.0 && self.parts().digits != ["", ""] {
            return Some(f64::from_bits(1).copysign(number));
        }
        number.is_finite().then_some(number)
    }

    fn as_str(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn to_number(&self) -> Cow<'_, Number> {
        let limit = if self.0.starts_with('-') { f64::MIN } else { f64::MAX };
        let double = || Number::from_f64(self.as_f64().unwrap_or(limit));
        Cow::Owned(self.as_i64().map(Number::from).or_else(double).unwrap_or_else(|| Number::from(0)))
    }

    fn is_integer(&self) -> bool {
        self.parts().exponent >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Written(text).write_canonical(&mut out);
        out
    }

    #[test]
    fn one_number_has_one_form_however_it_is_spelled() {
        for same in [
            &["0", "-0", "0.0", "0e5", "-0.000E-7", "0e99999999999999999999"][..],
            &["1", "1.0", "1e0", "10e-1", "0.1e1", "100E-2", "1.000"],
            &["100", "1e2", "1E+2", "100.00", "0.001e5"],
            &["-12.5", "-125e-1", "-0.125e2", "-12.500"],
            &["1e400", "10e399", "0.1e401"],
            &["123456789012345678901234567890", "12345678901234567890123456789e1", "1.2345678901234567890123456789e29"],
        ] {
            for text in same {
                assert_eq!(canonical(text), canonical(same[0]), "{text} and {}", same[0]);
                assert_eq!(Written(text).is_integer(), Written(same[0]).is_integer(), "{text}");
                assert_eq!(Written(text).as_i64(), Written(same[0]).as_i64(), "{text}");
                assert_eq!(Written(text).as_u64(), Written(same[0]).as_u64(), "{text}");
            }
        }
        let different = [
            "0",
            "1",
            "-1",
            "10",
            "1.1",
            "1e-400",
            "1e400",
            "1e401",
            "12345678901234567890123456789",
            "12345678901234567890123456788",
            "0.1",
            "0.01",
            "101",
            "1001",
            "-12.5",
        ];
        for (index, one) in different.iter().enumerate() {
            for other in &different[index + 1..] {
                assert_ne!(canonical(one), canonical(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn numbers_that_no_double_holds_are_whole_or_not_and_never_zero() {
        for (text, whole, double) in [
            ("1e400", true, None),
            ("-1e400", true, None),
            ("1.5e400", true, None),
            ("1e-400", false, Some(f64::from_bits(1))),
            ("-1e-400", false, Some(-f64::from_bits(1))),
            ("0e400", true, Some(0.0)),
            ("123456789012345678901234567890", true, Some(123_456_789_012_345_678_901_234_567_890.0)),
            ("1.0000000000000000000000000001", false, Some(1.0)),
            ("1e99999999999999999999", true, None),
            ("1e-99999999999999999999", false, Some(f64::from_bits(1))),
            ("12.5", false, Some(12.5)),
            ("12.50e1", true, Some(125.0)),
        ] {
            assert_eq!((Written(text).is_integer(), Written(text).as_f64()), (whole, double), "{text}");
        }
        assert_eq!(Written("18446744073709551615").as_u64(), Some(u64::MAX));
        assert_eq!(Written("18446744073709551616").as_u64(), None);
        assert_eq!(Written("-9223372036854775808").as_i64(), Some(i64::MIN));
        assert_eq!(Written("9007199254740993.0").as_u64(), Some(9_007_199_254_740_993));
        assert_eq!(Written("-1").as_u64(), None);
    }
}
