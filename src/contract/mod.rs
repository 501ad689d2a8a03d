//! Payload contracts: a JSON Schema, compiled once, judges payloads as they are, byte for byte.
//!
//! A schema file enters at start (`load`), payload bytes enter with every event; what leaves is nothing, or one
//! `Violation`: where in the payload, which keyword, what was expected. Judging needs no file, no network and no clock,
//! and survives any bytes. A payload's numbers keep the digits they were written with.

mod document;
pub mod load;
mod number;
mod violation;

use std::fmt;

use jsonschema::Validator;

use document::Payload;
pub use violation::Violation;

/// A compiled schema.
pub struct Contract {
    validator: Validator<Payload>,
}

impl Contract {
    /// Judges a payload.
    pub fn check(&self, payload: &[u8]) -> Result<(), Violation> {
        let document = document::parse(payload).map_err(|broken| Violation::not_json(payload, broken))?;
        // Most payloads are good, and asking only that is many times cheaper than asking why not.
        if self.validator.is_valid(&document) {
            return Ok(());
        }
        Err(Violation::of(self.validator.iter_errors(&document)))
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
