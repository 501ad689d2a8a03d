//! Decimals as Java has them: a number without its point, and how many digits stood behind it.

/// `BigDecimal.toString` of a number as PostgreSQL prints it.
pub(super) fn java(text: &str) -> String {
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let exponent = digits.len() as i64 - 1 - fraction.len() as i64;
    if exponent >= -6 {
        return text.to_owned();
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}E{exponent}")
}

/// The number without its point, and its scale.
pub(super) fn unscaled(text: &str) -> (String, usize) {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    (format!("{whole}{fraction}"), fraction.len())
}

/// The same without zeros at the end of the fraction.
pub(super) fn stripped(text: &str) -> (String, usize) {
    match text.contains('.') {
        true => unscaled(text.trim_end_matches('0').trim_end_matches('.')),
        false => unscaled(text),
    }
}

/// `BigInteger.toByteArray`: two's complement, the highest byte first, as few as possible.
pub(super) fn bytes(digits: &str) -> Vec<u8> {
    let (negative, digits) = digits.strip_prefix('-').map_or((false, digits), |rest| (true, rest));
    // The lowest first.
    let mut bytes: Vec<u8> = vec![0];
    for digit in digits.bytes().filter(u8::is_ascii_digit) {
        let mut carry = u32::from(digit - b'0');
        for byte in &mut bytes {
            let sum = u32::from(*byte) * 10 + carry;
            *byte = sum as u8;
            carry = sum >> 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    let is_spare = |high: u8, next: u8| (high == 0 && next < 0x80) || (high == 0xFF && next >= 0x80);
    while let [.., next, high] = bytes.as_slice() {
        if !is_spare(*high, *next) {
            break;
        }
        bytes.pop();
    }
    bytes.reverse();
    bytes
}

/// `money` as a decimal of two digits, whatever the server's locale puts around it.
pub(super) fn money(text: &str) -> String {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let sign = if text.contains(['-', '(']) { "-" } else { "" };
    let end = text.trim_end_matches(|char: char| !char.is_ascii_digit()).as_bytes();
    let has_cents = end.len() > 2 && matches!(end[end.len() - 3], b'.' | b',');
    let digits = if has_cents { digits } else { digits + "00" };
    let (whole, cents) = digits.split_at(digits.len().saturating_sub(2));
    format!("{sign}{whole}.{cents}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_integers_have_as_few_bytes_as_possible() {
        for (digits, expected) in [
            ("0", &[0][..]),
            ("1", &[1]),
            ("-1", &[0xFF]),
            ("127", &[0x7F]),
            ("128", &[0, 0x80]),
            ("-128", &[0x80]),
            ("-129", &[0xFF, 0x7F]),
            ("255", &[0, 0xFF]),
            ("256", &[1, 0]),
            ("-50", &[0xCE]),
            ("-12800", &[0xCE, 0]),
        ] {
            assert_eq!(bytes(digits), expected, "{digits}");
        }
    }

    #[test]
    fn decimals_are_printed_as_java_prints_them() {
        for (text, expected) in [
            ("1.10", "1.10"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1E-7"),
            ("-0.00000012", "-1.2E-7"),
            ("0.0000000000", "0E-10"),
            ("0.00", "0.00"),
            ("100", "100"),
        ] {
            assert_eq!(java(text), expected);
        }
        assert_eq!(stripped("1.10"), ("11".to_owned(), 1));
        assert_eq!(stripped("100"), ("100".to_owned(), 0));
        assert_eq!(stripped("2.00"), ("2".to_owned(), 0));
    }

    #[test]
    fn money_is_read_from_any_locale() {
        for (text, expected) in [
            ("$12.34", "12.34"),
            ("-$1.00", "-1.00"),
            ("($1,234.50)", "-1234.50"),
            ("12,34 €", "12.34"),
            ("1.234,56 €", "1234.56"),
            ("¥120", "120.00"),
        ] {
            assert_eq!(money(text), expected);
        }
    }
}
