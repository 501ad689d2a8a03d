//! Numbers as a document wrote them: a template calculates with them, and what it prints are the digits it was given.
//!
//! The engine knows integers of 128 bits and `f64`. An integer that fits is one. A number with a fraction or an exponent
//! is an `f64`, and `Run` remembers how it was written when it is read, so that `1.10` is printed as `1.10`. A number
//! that an `f64` cannot hold (`1e400`, 20 decimals) is a `Number`: it is printed and passed on as it is. The engine would
//! compare it by its kind, not by its value; whoever tries is stopped.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, Value};

use super::run::Run;

/// The digits of the largest integer of 128 bits.
const DIGITS: usize = 39;

/// An element of a document: a number that may have been written in several ways is kept with its text.
#[derive(Debug, Clone)]
pub enum Node {
    Value(Value),
    Decimal(f64, Value),
}

impl Node {
    /// A number, from text that is one by JSON's grammar.
    pub fn number(text: &str, run: &Arc<Run>) -> Node {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.bytes().all(|byte| byte.is_ascii_digit()) && text != "-0" {
            if let Ok(number) = text.parse::<i64>() {
                return Node::Value(Value::from(number));
            }
            if let Ok(number) = text.parse::<i128>() {
                return Node::Value(Value::from(number));
            }
        }
        match text.parse::<f64>() {
            Ok(number) if holds(number, text) => Node::Decimal(number, Value::from(text)),
            _ => Node::Value(Value::from_object(Number { text: text.into(), run: run.clone() })),
        }
    }

    /// The element as a template sees it.
    pub fn read(&self, run: &Run) -> Value {
        match self {
            Node::Value(value) => value.clone(),
            Node::Decimal(number, text) => {
                run.remember(*number, text);
                Value::from(*number)
            }
        }
    }
}

/// True when the text is how this number is written: with the fewest digits, or with the 17 that some programs write.
fn holds(number: f64, text: &str) -> bool {
    let meant = digits_of(text);
    number.is_finite() && (digits_of(&format!("{number:e}")) == meant || digits_of(&format!("{number:.16e}")) == meant)
}

/// A number that only its text holds.
pub struct Number {
    text: Box<str>,
    run: Arc<Run>,
}

impl Number {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The nearest number that can be calculated with.
    pub fn nearest(&self) -> f64 {
        self.text.parse().unwrap_or(f64::NAN)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Object for Number {
    // The engine asks this before it compares, and has no other question that we could answer with an error. What our
    // own code needs to know of a number it learns without asking.
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.run.compare(&self.text);
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A number's sign, its digits without zeros at either end, and the power of ten of the first one: equal for texts that
/// mean the same number.
fn digits_of(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let zeros = all.bytes().take_while(|byte| *byte == b'0').count();
    let digits = all[zeros..].trim_end_matches('0').to_owned();
    if digits.is_empty() {
        return Some((negative, digits, 0));
    }
    let first = exponent.checked_add(whole.len() as i64)?.checked_sub(zeros as i64)?;
    Some((negative, digits, first))
}

/// What stands before the point of a number.
#[derive(Debug, PartialEq, Eq)]
pub enum Whole {
    Is(i128),
    /// More than the engine's integers hold.
    TooLarge,
    NoNumber,
}

/// A number's text without what stands behind the point: no digit is lost, however many there are.
pub fn whole(text: &str) -> Whole {
    let mantissa = text.split_once(['e', 'E']).map_or(text, |(mantissa, _)| mantissa);
    let mantissa = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let is_number = mantissa.starts_with(|first: char| first.is_ascii_digit());
    let read = digits_of(text).filter(|(_, digits, _)| is_number && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let Some((negative, digits, first)) = read else {
        return if text.parse::<f64>().is_ok_and(f64::is_infinite) { Whole::TooLarge } else { Whole::NoNumber };
    };
    let before_the_point = usize::try_from(first).unwrap_or(0);
    if before_the_point == 0 {
        return Whole::Is(0);
    }
    if before_the_point > DIGITS {
        return Whole::TooLarge;
    }
    let sign = if negative { "-" } else { "" };
    let kept: String = digits.chars().chain(std::iter::repeat('0')).take(before_the_point).collect();
    format!("{sign}{kept}").parse::<i128>().map_or(Whole::TooLarge, Whole::Is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_to_calculate_with_when_no_digit_is_lost_by_that() {
        let run = Arc::new(Run::new(1, 1));
        for text in [
            "1.10",
            "0.1",
            "-0",
            "1e2",
            "1E+2",
            "100.00",
            "5e-324",
            "1.7976931348623157e308",
            "0.0",
            "-0.00",
            "0.10000000000000001",
        ] {
            assert!(matches!(Node::number(text, &run), Node::Decimal(..)), "{text}");
        }
        for text in
            ["0", "7", "-7", "9223372036854775808", "12345678901234567890", "-170141183460469231731687303715884105728"]
        {
            let Node::Value(value) = Node::number(text, &run) else { panic!("{text}") };
            assert!(value.is_integer() && value.to_string() == text, "{text}");
        }
        for text in [
            "1e400",
            "-1e400",
            "1e-400",
            "0.1000000000000000055",
            "1234567890123456789012345678901234567890",
            "1e99999999999999999999",
        ] {
            let Node::Value(value) = Node::number(text, &run) else { panic!("{text}") };
            assert_eq!(value.downcast_object_ref::<Number>().map(Number::text), Some(text));
        }
    }

    #[test]
    fn a_number_is_printed_as_it_was_written_where_it_was_read_last() {
        let run = Arc::new(Run::new(1, 1));
        let spelled = || run.spelling(1.1).map(|text| text.to_string());
        assert_eq!(spelled(), None);
        Node::number("1.10", &run).read(&run);
        assert_eq!(spelled().as_deref(), Some("1.10"));
        Node::number("1.1", &run).read(&run);
        assert_eq!(spelled().as_deref(), Some("1.1"));
    }

    #[test]
    fn a_number_is_cut_at_its_point_to_the_last_digit() {
        for (text, expected) in [
            ("12345678901234567890.123", 12_345_678_901_234_567_890),
            ("-0.9", 0),
            ("-1.9", -1),
            ("0.05", 0),
            ("007.50", 7),
            ("5.", 5),
            ("1e23", 100_000_000_000_000_000_000_000),
            ("1.5E+3", 1500),
            ("12345e-2", 123),
            ("1e-400", 0),
            ("0e99", 0),
            ("170141183460469231731687303715884105727.9", i128::MAX),
            ("-170141183460469231731687303715884105728", i128::MIN),
        ] {
            assert_eq!(whole(text), Whole::Is(expected), "{text}");
        }
        for text in [
            "170141183460469231731687303715884105728",
            "123456789012345678901234567890123456789012345",
            "-1e400",
            "1e99999999999999999999",
            "inf",
        ] {
            assert_eq!(whole(text), Whole::TooLarge, "{text}");
        }
        for text in ["", "-", ".5", "e5", "1.2.3", "+5", "5 ", "1e", "0x1f", "NaN", "--1"] {
            assert_eq!(whole(text), Whole::NoNumber, "{text}");
        }
    }
}
