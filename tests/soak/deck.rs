//! Which faults strike, in which order: a deck of cards, shuffled by one number.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use crate::faults::{Fault, Part};

/// How many turns strike two faults at once, as far as there are two that do not exclude each other.
const PAIRS_IN_PERCENT: u8 = 40;

/// Faults that strike together, and are lifted together.
#[derive(Debug, Clone)]
pub struct Turn {
    /// One, or two that take different parts of the world.
    pub faults: Vec<Fault>,
    /// How long until they are lifted.
    pub hold: Duration,
    /// Which broker, which byte: whatever else is left to chance.
    pub chance: u64,
    /// The next one need not wait until all of this one is over.
    pub waits_for_none: bool,
}

impl Turn {
    /// True when all of it is over as soon as it has struck.
    pub fn is_a_blow(&self) -> bool {
        self.faults.iter().all(|fault| fault.is_a_blow())
    }
}

/// The deck. Each shuffle has every fault as often as its weight says.
pub struct Deck {
    seed: u64,
    rng: Rng,
    cards: VecDeque<Fault>,
    endless: bool,
    /// The names of the faults that are wanted; all of them when it is empty.
    only: Vec<String>,
}

impl Deck {
    /// Shuffled again whenever it is empty; of all faults, or only of those with these names.
    pub fn endless(seed: u64, only: Vec<String>) -> Deck {
        let names: Vec<String> = Fault::all().iter().map(Fault::to_string).collect();
        let unknown: Vec<&String> = only.iter().filter(|name| !names.contains(name)).collect();
        assert!(unknown.is_empty(), "there are no faults called {unknown:?}, but these:\n{}", names.join("\n"));
        Deck { seed, rng: Rng::with_seed(seed), cards: VecDeque::new(), endless: true, only }
    }

    /// So many different faults, and no more.
    pub fn of(faults: usize, seed: u64) -> Deck {
        let mut rng = Rng::with_seed(seed);
        let mut cards = Fault::all();
        rng.shuffle(&mut cards);
        cards.truncate(faults);
        Deck { seed, rng, cards: cards.into(), endless: false, only: Vec::new() }
    }

    /// The number that all of it came from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next turn; `None` when the deck is empty.
    pub fn draw(&mut self) -> Option<Turn> {
        if self.cards.is_empty() && self.endless {
            let wanted = |fault: &Fault| self.only.is_empty() || self.only.contains(&fault.to_string());
            let wanted = Fault::all().into_iter().filter(wanted);
            let mut cards: Vec<Fault> = wanted.flat_map(|fault| vec![fault; fault.weight()]).collect();
            self.rng.shuffle(&mut cards);
            self.cards = cards.into();
        }
        let first = self.cards.pop_front()?;
        let mut faults = vec![first];
        let apart = |other: &Fault| !other.takes().iter().any(|part| first.takes().contains(part));
        if self.rng.u8(..100) < PAIRS_IN_PERCENT
            && let Some(at) = self.cards.iter().position(apart)
        {
            faults.extend(self.cards.remove(at));
        }
        // A relay that is gone would not notice the other one.
        faults.sort_by_key(|fault| fault.takes().contains(&Part::Relay));
        let (short, long) = faults.iter().map(|fault| fault.lasts()).max().expect("there is one");
        let hold = Duration::from_millis(self.rng.u64(short.as_millis() as u64..=long.as_millis() as u64));
        Some(Turn { faults, hold, chance: self.rng.u64(..), waits_for_none: self.rng.bool() })
    }
}
