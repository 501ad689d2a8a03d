//! The cases: every option with every legal value, every type of column in every place, and what goes wrong.

mod payload;
mod placement;
mod routing;
mod types;

use crate::case::Case;

/// All of them.
pub fn cases() -> Vec<Case> {
    [routing::cases(), placement::cases(), payload::cases(), types::cases()].concat()
}
