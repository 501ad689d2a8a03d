//! Which columns are needed, and where each one stands in a `Row`.
//!
//! A row has one place for each part of an event (id, payload, …) and one for each further column that a route names.

use crate::config;

/// A place in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub(super) usize);

#[allow(missing_docs)]
impl Place {
    pub const ID: Place = Place(0);
    pub const AGGREGATE_TYPE: Place = Place(1);
    pub const AGGREGATE_ID: Place = Place(2);
    pub const EVENT_TYPE: Place = Place(3);
    pub const PAYLOAD: Place = Place(4);
    pub const TIMESTAMP: Place = Place(5);
    pub const HEADERS: Place = Place(6);
    pub const PARTITION: Place = Place(7);
}

const PARTS: [&str; 8] =
    ["id", "aggregate_type", "aggregate_id", "event_type", "payload", "timestamp", "headers", "partition"];

/// The places of all rows, for one configuration.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Parts that the outbox whose routes are compiled just now maps no column to.
    open: Vec<&'static str>,
    extras: Vec<String>,
    time_shown: bool,
    /// Further columns that are read as times, and those of all that a pattern shows as text.
    times: Vec<Place>,
    shown: Vec<Place>,
}

impl Layout {
    /// From here on names are those that the routes of this outbox use: a part to which it maps no column has none.
    pub fn turn_to(&mut self, columns: &config::Columns) {
        self.open = PARTS.into_iter().filter(|part| columns.part(part).is_none()).collect();
    }

    /// The place of a part, or else of a column, by the name that a pattern uses.
    pub fn place(&mut self, name: &str) -> Place {
        let is_open = |part: &str| self.open.contains(&part);
        if let Some(part) = PARTS.iter().position(|part| *part == name && !is_open(part)) {
            self.time_shown |= Place(part) == Place::TIMESTAMP;
            return Place(part);
        }
        let place = self.column(name);
        self.shown.push(place);
        place
    }

    /// The place of a column by its own name, whatever parts are called.
    pub fn column(&mut self, name: &str) -> Place {
        let extra = self.extras.iter().position(|extra| extra == name).unwrap_or_else(|| {
            self.extras.push(name.to_owned());
            self.extras.len() - 1
        });
        Place(PARTS.len() + extra)
    }

    /// The place of a column that is read as a time, by its own name.
    pub fn time(&mut self, name: &str) -> Place {
        let place = self.column(name);
        self.times.push(place);
        place
    }

    /// The columns that are read beside the parts, by their own names.
    pub fn further(&self) -> impl Iterator<Item = &str> {
        self.extras.iter().map(String::as_str)
    }

    /// The name that a pattern uses for a place.
    pub fn name(&self, place: Place) -> &str {
        match place.0.checked_sub(PARTS.len()) {
            Some(extra) => &self.extras[extra],
            None => PARTS[place.0],
        }
    }

    /// How many places a row has.
    pub(super) fn len(&self) -> usize {
        PARTS.len() + self.extras.len()
    }

    /// True when the place must hold a time as a time; a time that a pattern shows must be text.
    pub(super) fn is_time(&self, place: Place) -> bool {
        place == Place::TIMESTAMP && !self.time_shown || self.times.contains(&place) && !self.shown.contains(&place)
    }

    /// Each place with the column that fills it, and whether the outbox promises to have that column. A payload in a second
    /// table is not among them.
    pub(super) fn columns<'a>(
        &'a self,
        outbox: &'a config::Outbox,
    ) -> impl Iterator<Item = (Place, &'a str, Presence)> {
        let columns = &outbox.columns;
        let presence = |place: usize| match outbox.preset {
            // Debezium never reads the type: a table without one works there, too.
            config::Preset::Debezium(_) if Place(place) == Place::EVENT_TYPE => Presence::Optional,
            config::Preset::Outboxd | config::Preset::Debezium(_) | config::Preset::System(_) => Presence::Required,
        };
        let parts = [
            Some(&columns.id),
            columns.aggregate_type.as_ref(),
            columns.aggregate_id.as_ref(),
            columns.event_type.as_ref(),
            outbox.join.is_none().then_some(&columns.payload),
            columns.timestamp.as_ref(),
            columns.headers.as_ref(),
            columns.partition.as_ref(),
        ];
        let parts =
            parts.into_iter().enumerate().filter_map(move |(place, name)| Some((place, name?, presence(place))));
        parts.map(|(place, name, presence)| (Place(place), name.as_str(), presence)).chain(self.optional())
    }

    /// The same for the second table of an outbox that is joined.
    pub(super) fn joined<'a>(&'a self, outbox: &'a config::Outbox) -> impl Iterator<Item = (Place, &'a str, Presence)> {
        let payload = (Place::PAYLOAD, outbox.columns.payload.as_str(), Presence::Required);
        outbox.join.iter().flat_map(move |_| std::iter::once(payload).chain(self.optional()))
    }

    /// Several tables may share routes that name a column of one of them only.
    fn optional(&self) -> impl Iterator<Item = (Place, &str, Presence)> {
        let further = self.extras.iter().enumerate();
        further.map(|(n, name)| (Place(PARTS.len() + n), name.as_str(), Presence::Optional))
    }
}

/// Whether a table must have a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Required,
    Optional,
}
