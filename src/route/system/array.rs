//! A `text[]` as PostgreSQL prints it: its elements leave one by one, `None` for NULL.

use std::borrow::Cow;

/// The elements of an array with one dimension.
#[derive(Debug)]
pub(super) struct Elements<'a> {
    /// What is left, its closing brace included; empty behind the end.
    rest: &'a str,
}

impl<'a> Elements<'a> {
    pub(super) fn new(array: &'a [u8]) -> Result<Elements<'a>, String> {
        let text = std::str::from_utf8(array).map_err(|error| format!("is not UTF-8: {error}"))?;
        // An array that does not begin at 1 says so in front: `[0:1]={a,b}`.
        let braced = match text.split_once("]={") {
            Some((bounds, _)) if bounds.starts_with('[') => &text[bounds.len() + 2..],
            _ => text,
        };
        match braced.strip_prefix('{') {
            Some("}") => Ok(Elements { rest: "" }),
            Some(rest) if rest.ends_with('}') => Ok(Elements { rest }),
            Some(_) | None => Err(format!("\"{text}\" is not an array")),
        }
    }

    /// The next element, and what stands behind it.
    fn split(&self) -> Option<(Option<Cow<'a, str>>, &'a str)> {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '}', '{', '"'])?;
            let (element, rest) = self.rest.split_at(end);
            let is_null = element.eq_ignore_ascii_case("null");
            return (end > 0).then(|| ((!is_null).then_some(Cow::Borrowed(element)), rest));
        };
        let end = quoted.find(['"', '\\'])?;
        if quoted.as_bytes()[end] == b'"' {
            return Some((Some(Cow::Borrowed(&quoted[..end])), &quoted[end + 1..]));
        }
        let mut element = String::new();
        let mut chars = quoted.char_indices();
        loop {
            match chars.next()? {
                (at, '"') => return Some((Some(Cow::Owned(element)), &quoted[at + 1..])),
                (_, '\\') => element.push(chars.next()?.1),
                (_, char) => element.push(char),
            }
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Option<Cow<'a, str>>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = self.split().and_then(|(element, rest)| match rest {
            "}" => Some((element, "")),
            _ => Some((element, rest.strip_prefix(',').filter(|rest| !rest.is_empty())?)),
        });
        let Some((element, rest)) = split else {
            let problem = format!("is not an array of texts, from \"{}\" on", self.rest);
            self.rest = "";
            return Some(Err(problem));
        };
        self.rest = rest;
        Some(Ok(element))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<Option<String>>, String> {
        Elements::new(text.as_bytes())?.map(|element| Ok(element?.map(Cow::into_owned))).collect()
    }

    #[test]
    fn arrays_read_as_postgresql_prints_them() {
        let some = |text: &str| Some(text.to_owned());
        for (text, elements) in [
            ("{}", vec![]),
            ("{a}", vec![some("a")]),
            ("{a,b c,é}", vec![some("a"), some("b c"), some("é")]),
            ("{\"\",\"a,b\",\"{}\"}", vec![some(""), some("a,b"), some("{}")]),
            (r#"{"q\"\\",NULL,"NULL",null}"#, vec![some("q\"\\"), None, some("NULL"), None]),
            (r#"{"\\}",x}"#, vec![some("\\}"), some("x")]),
            ("[0:1]={a,\"]={\"}", vec![some("a"), some("]={")]),
        ] {
            assert_eq!(read(text), Ok(elements), "{text}");
        }
    }

    #[test]
    fn what_is_no_array_of_texts_is_told() {
        for text in
            ["", "{", "}", "a", "{a", "{a,}", "{,}", "{\"a}", "{\"a\"b}", "{{a},{b}}", "{a}}", "{a\"b}", "{\"\\}"]
        {
            let problem = read(text).unwrap_err();
            assert!(problem.contains("is not an array"), "{text}: {problem}");
        }
        assert!(Elements::new(&[b'{', 0xFF, b'}']).unwrap_err().starts_with("is not UTF-8"));
    }

    proptest! {
        #[test]
        fn any_texts_come_back(texts in proptest::collection::vec(proptest::option::of(".{0,6}"), 0..5)) {
            let quoted = |text: &Option<String>| match text {
                Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
                None => "NULL".to_owned(),
            };
            let array = format!("{{{}}}", texts.iter().map(quoted).collect::<Vec<_>>().join(","));
            prop_assert_eq!(read(&array), Ok(texts));
        }

        #[test]
        fn nothing_that_is_read_panics(text in "[\\[{}\\]=,\"\\\\a]{0,12}") {
            drop(read(&text));
        }
    }
}
