//! Numbers as Java prints them.

/// `Double.toString`.
pub(super) fn double(value: f64) -> String {
    let shortest = format!("{value:e}");
    match shortest.contains('.') {
        true => java(&shortest, value.abs()),
        // With one digit Java takes the nearest of two.
        false => java(&format!("{value:.1e}"), value.abs()),
    }
}

/// `Float.toString`.
pub(super) fn float(value: f32) -> String {
    let shortest = format!("{value:e}");
    match shortest.contains('.') {
        true => java(&shortest, f64::from(value.abs())),
        false => java(&format!("{value:.1e}"), f64::from(value.abs())),
    }
}

/// From `-1.25e-7`.
fn java(scientific: &str, size: f64) -> String {
    if size.is_nan() {
        return "NaN".to_owned();
    }
    let (sign, scientific) = match scientific.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", scientific),
    };
    if size.is_infinite() {
        return format!("{sign}Infinity");
    }
    let (mantissa, exponent) = scientific.split_once('e').expect("it is scientific");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let digits = mantissa.replace('.', "");
    if size != 0.0 && !(1e-3..1e7).contains(&size) {
        let (first, rest) = digits.split_at(1);
        return format!("{sign}{first}.{}E{exponent}", some_digits(rest));
    }
    if exponent < 0 {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{}", some_digits(&digits));
    }
    let whole = exponent as usize + 1;
    let digits = format!("{digits:0<whole$}");
    let (whole, rest) = digits.split_at(whole);
    format!("{sign}{whole}.{}", some_digits(rest))
}

/// At least one, and no zeros behind it.
fn some_digits(digits: &str) -> &str {
    match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_as_java_prints_them() {
        for (value, text) in [
            (1.1, "1.1"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (9_999_999.0, "9999999.0"),
            (12_345_678.9, "1.23456789E7"),
            (1e7, "1.0E7"),
            (1e21, "1.0E21"),
            (-1.5e-7, "-1.5E-7"),
            (5e-324, "4.9E-324"),
            (f64::MAX, "1.7976931348623157E308"),
            (1_234_567.25, "1234567.25"),
            (0.012_345, "0.012345"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), text);
        }
        assert_eq!(float(16_777_216.0), "1.6777216E7");
        assert_eq!(float(3.4e38), "3.4E38");
        assert_eq!(float(1.1), "1.1");
    }
}
