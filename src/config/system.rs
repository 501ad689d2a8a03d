//! Outbox systems whose tables are read as they are: the word for each, its usual table and columns.

use super::{Columns, Join, load};

/// A system whose table is read, and whose record its rows become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Eventuate Tram's `message`.
    Eventuate,
    /// A table of watermill's SQL publisher, whose rows are messages themselves.
    Watermill,
    /// The table of watermill's forwarder, whose rows are envelopes.
    WatermillForwarder,
    /// goharvest's `outbox`.
    Goharvest,
    /// tomorrow-one's `outbox_kafka`.
    TomorrowOne,
    /// Brighter's outbox.
    Brighter,
    /// CAP's `published`.
    Cap,
    /// pg-transactional-outbox's `outbox`.
    PgTransactionalOutbox,
    /// django-outbox-pattern's `published`.
    DjangoOutboxPattern,
    /// A table of sbmt-outbox.
    SbmtOutbox,
    /// OpenG2P's `outgoing_raw_data`, with the payloads of `outgoing_raw_data_payloads`.
    Openg2p,
    /// `outbox_events` with `payload_json`.
    OutboxEvents,
    /// Doorito's `outbox_event`.
    Doorito,
    /// Yantra's `outbox_messages`.
    Yantra,
    /// Django Automate's `OutboxItem`.
    DjangoAutomate,
}

/// Where the topic of a system's rows is known from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topic {
    /// Each row.
    Row,
    /// The table: it is the same for all of its rows.
    Table(String),
    /// A `[[route]]` alone.
    Route,
}

/// PostgreSQL cuts names off behind this length, and a topic in them as well.
const NAME_BYTES_MAX: usize = 63;

impl System {
    /// The word for each in `preset`.
    pub const WORDS: [(&str, System); 15] = [
        ("eventuate", System::Eventuate),
        ("watermill", System::Watermill),
        ("watermill-forwarder", System::WatermillForwarder),
        ("goharvest", System::Goharvest),
        ("tomorrow-one", System::TomorrowOne),
        ("brighter", System::Brighter),
        ("cap", System::Cap),
        ("pg-transactional-outbox", System::PgTransactionalOutbox),
        ("django-outbox-pattern", System::DjangoOutboxPattern),
        ("sbmt-outbox", System::SbmtOutbox),
        ("openg2p", System::Openg2p),
        ("outbox-events", System::OutboxEvents),
        ("doorito", System::Doorito),
        ("yantra", System::Yantra),
        ("django-automate", System::DjangoAutomate),
    ];

    /// The table that the system makes, where it chooses the name itself.
    pub(super) fn table(self) -> Option<&'static str> {
        match self {
            System::Eventuate => Some("eventuate.message"),
            System::WatermillForwarder => Some("watermill_forwarder_topic"),
            System::Goharvest | System::PgTransactionalOutbox => Some("outbox"),
            System::TomorrowOne => Some("outbox_kafka"),
            System::Cap => Some("cap.published"),
            System::DjangoOutboxPattern => Some("published"),
            System::Openg2p => Some("outgoing_raw_data"),
            System::OutboxEvents => Some("outbox_events"),
            System::Doorito => Some("outbox_event"),
            System::Yantra => Some("outbox_messages"),
            // Django's own name: app, underscore, model.
            System::DjangoAutomate => Some("automate_core_outboxitem"),
            System::Watermill | System::Brighter | System::SbmtOutbox => None,
        }
    }

    /// Where the topic of the rows of this table is known from.
    pub fn topic(self, table: &str) -> Topic {
        match self {
            System::Watermill => {
                let topic = table.strip_prefix("watermill_").filter(|_| table.len() < NAME_BYTES_MAX);
                topic.and_then(|topic| load::literal_topic(topic.to_owned()).ok()).map_or(Topic::Route, Topic::Table)
            }
            // It has no topics, so this is ours, like those of other tables.
            System::DjangoAutomate => match load::literal_topic(format!("outbox.event.{table}")) {
                Ok(topic) => Topic::Table(topic),
                Err(_) => Topic::Route,
            },
            System::SbmtOutbox => Topic::Route,
            System::Eventuate
            | System::WatermillForwarder
            | System::Goharvest
            | System::TomorrowOne
            | System::Brighter
            | System::Cap
            | System::PgTransactionalOutbox
            | System::DjangoOutboxPattern
            | System::Openg2p
            | System::OutboxEvents
            | System::Doorito
            | System::Yantra => Topic::Row,
        }
    }

    /// The columns that all versions of its table have; what else a record needs is read by its own name.
    pub(super) fn columns(self) -> Columns {
        let some = |name: &str| Some(name.to_owned());
        let aggregate = |columns: Columns| Columns {
            aggregate_type: some("aggregate_type"),
            aggregate_id: some("aggregate_id"),
            event_type: some("event_type"),
            timestamp: some("created_at"),
            ..columns
        };
        match self {
            System::Eventuate => Columns::bare("id", "payload"),
            System::Watermill | System::WatermillForwarder => {
                Columns { timestamp: some("created_at"), ..Columns::bare("uuid", "payload") }
            }
            System::Goharvest => Columns {
                aggregate_id: some("kafka_key"),
                timestamp: some("create_time"),
                ..Columns::bare("id", "kafka_value")
            },
            System::TomorrowOne => {
                Columns { aggregate_id: some("key"), timestamp: some("created"), ..Columns::bare("id", "value") }
            }
            System::Brighter => Columns { timestamp: some("timestamp"), ..Columns::bare("messageid", "body") },
            // "Added" is in the zone of whoever wrote it.
            System::Cap => Columns { event_type: some("Name"), ..Columns::bare("Id", "Content") },
            System::PgTransactionalOutbox => {
                Columns { event_type: some("message_type"), ..aggregate(Columns::bare("id", "payload")) }
            }
            System::DjangoOutboxPattern => Columns { timestamp: some("added"), ..Columns::bare("id", "body") },
            System::SbmtOutbox => Columns {
                aggregate_id: some("event_key"),
                timestamp: some("created_at"),
                ..Columns::bare("id", "payload")
            },
            System::Openg2p => Columns {
                aggregate_type: some("register_id"),
                aggregate_id: some("internal_record_id"),
                event_type: some("data_model_id"),
                timestamp: some("changed_at"),
                ..Columns::bare("outgest_id", "raw_data_json")
            },
            System::OutboxEvents => aggregate(Columns::bare("id", "payload_json")),
            System::Doorito | System::Yantra => aggregate(Columns::bare("id", "payload")),
            System::DjangoAutomate => Columns { timestamp: some("created_at"), ..Columns::bare("id", "payload") },
        }
    }

    /// The second table that the system makes in this schema, where payloads are not in the table of events.
    pub(super) fn join(self, schema: &str) -> Option<Join> {
        match self {
            System::Openg2p => Some(Join {
                schema: schema.to_owned(),
                table: "outgoing_raw_data_payloads".to_owned(),
                event_column: "change_request_id".to_owned(),
                payload_column: "change_request_id".to_owned(),
            }),
            System::Eventuate
            | System::Watermill
            | System::WatermillForwarder
            | System::Goharvest
            | System::TomorrowOne
            | System::Brighter
            | System::Cap
            | System::PgTransactionalOutbox
            | System::DjangoOutboxPattern
            | System::SbmtOutbox
            | System::OutboxEvents
            | System::Doorito
            | System::Yantra
            | System::DjangoAutomate => None,
        }
    }

    /// True when the events of one thing share a key, so that they keep their order.
    pub(super) fn keeps_order(self) -> bool {
        match self {
            System::Eventuate
            | System::Goharvest
            | System::TomorrowOne
            | System::Brighter
            | System::PgTransactionalOutbox
            | System::SbmtOutbox
            | System::Openg2p
            | System::OutboxEvents
            | System::Doorito
            | System::Yantra => true,
            System::Watermill
            | System::WatermillForwarder
            | System::Cap
            | System::DjangoOutboxPattern
            | System::DjangoAutomate => false,
        }
    }

    /// True when topic or key stand inside the payload.
    pub(super) fn is_led_by_payload(self) -> bool {
        match self {
            System::WatermillForwarder | System::Cap => true,
            System::Eventuate
            | System::Watermill
            | System::Goharvest
            | System::TomorrowOne
            | System::Brighter
            | System::PgTransactionalOutbox
            | System::DjangoOutboxPattern
            | System::SbmtOutbox
            | System::Openg2p
            | System::OutboxEvents
            | System::Doorito
            | System::Yantra
            | System::DjangoAutomate => false,
        }
    }
}
