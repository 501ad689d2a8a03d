//! JSON objects member by member: each value enters and leaves as the text that it is, so that no number changes.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::record::Headers;
use crate::source::outbox::Name;

/// Visits the members of an object in order; `null` has none.
pub(super) fn each<'de>(object: &'de [u8], visit: impl FnMut(&str, &'de str)) -> serde_json::Result<()> {
    struct Members<F>(F);
    impl<'de, F: FnMut(&str, &'de str)> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
            while let Some((name, raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                (self.0)(&name.0, raw.get());
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(object);
    deserializer.deserialize_any(Members(visit))?;
    deserializer.end()
}

/// What a string says, without quotes and escapes; `None` when it is none.
pub(super) fn string(raw: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Name<'_>>(raw).ok().map(|name| name.0)
}

/// What a member is as text: a string without its quotes, everything else as its JSON; `None` is null.
pub(super) fn text(raw: &str) -> Option<Cow<'_, str>> {
    match string(raw) {
        Some(text) => Some(text),
        None if raw == "null" => None,
        None => Some(Cow::Borrowed(raw)),
    }
}

/// A member as a header; null is a header without a value.
pub(super) fn push(headers: &mut Headers, name: &str, raw: &str) {
    headers.push(name, text(raw).as_deref().map(str::as_bytes));
}
