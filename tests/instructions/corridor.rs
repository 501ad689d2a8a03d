//! A corridor without sockets: a recorded stream, a pipeline that reads it, and a broker that takes everything.
//!
//! `stream.hex` is what PostgreSQL 15 sent, in binary, for 20 events in one transaction and ten transactions of one event
//! each, with payloads of 500 bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outboxd::config::{
    Backoff, Columns, Config, DeadLetters, Limits, Order, Outbox, OutboxSource, Route, Rules, Store, TemplateSet,
    UnknownTopic, ValueForm,
};
use outboxd::ledger::Ticket;
use outboxd::lsn::Lsn;
use outboxd::pipeline::{Action, Clock, Flow, LastHolder, Loaded, Pipeline, SessionStart, Settings};
use outboxd::record::Record;
use outboxd::sink::{Refused, Sink, Untried};
use outboxd::source::wire::Frame;
use outboxd::source::{Encoding, System};
use outboxd::template::Templates;

/// Events in the recorded stream.
pub const EVENTS: usize = 30;

/// The stream and whoever it flows through.
pub struct Corridor {
    stream: Vec<Vec<u8>>,
    pipeline: Pipeline,
    broker: Broker,
    now: Instant,
    /// A server describes a table once in a session.
    described: bool,
}

/// Takes every record, and answers for many at once, as a broker does.
#[derive(Default)]
struct Broker(Vec<(u64, u32)>);

impl Sink for Broker {
    fn offer(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), Refused> {
        // As whoever sends it: every header is looked at.
        for header in record.headers.iter() {
            std::hint::black_box(header);
        }
        std::hint::black_box(record);
        self.0.push(ticket.into_parts());
        Ok(())
    }

    fn try_again(&mut self, _: &Record<'_>, _: i64) -> Result<(), Untried> {
        Err(Untried::Later)
    }
}

impl Corridor {
    /// A session that streams.
    pub fn new(outbox: Outbox, rules: &Rules) -> Corridor {
        let second = Duration::from_secs(1);
        let limits = Limits {
            memory: 32 << 20,
            window: 100_000,
            event: 16 << 20,
            join: 10_000,
            settle: second,
            shutdown: second,
            primary_grace: second,
            backoff: second,
            probe: second,
            sql: second,
            slot_creation: second,
        };
        let dead_letter = DeadLetters {
            store: Store::Postgres,
            unknown_topic: UnknownTopic::Wait,
            max_attempts: 25,
            backoff: Backoff { first: second, factor: 2, max: second },
            order: Order::Skip,
            max_parked_keys: 10_000,
            max_rate: 20,
            retention: second,
        };
        let settings = Settings { sender_timeout: 30 * second, limits, dead_letter };
        let mut pipeline = Pipeline::new(&[outbox], rules, "outboxd", settings);
        let now = Instant::now();
        let start = SessionStart {
            system: System { id: 1, timeline: 1 },
            wal_end: Lsn(u64::MAX),
            confirmed: Lsn(1),
            encoding: Encoding::Binary,
            asked_at: now,
            clock: Clock { at: now, shown: 0 },
            others: Vec::new(),
            last_holder: LastHolder::Ours,
        };
        pipeline.session_started(start, now);
        pipeline.claimed();
        pipeline.tick(now);
        while let Some(action) = pipeline.next_action() {
            if let Action::LoadLetters { serial, .. } = action {
                let (letters, lanes) = (Vec::new(), Vec::new());
                pipeline.letters_loaded(Loaded { serial, letters, until: None, lanes, pause: None });
            }
        }
        Corridor { stream: stream(), pipeline, broker: Broker::default(), now, described: false }
    }

    /// The whole stream, a little later in the WAL than the last time.
    pub fn flow(&mut self) {
        let Corridor { stream, pipeline, broker, now, described } = self;
        let skips = std::mem::replace(described, true);
        for body in stream.iter_mut().filter(|body| !(skips && body[0] == b'R')) {
            advance(body);
            let frame = Frame::Data { wal_end: Lsn(1), sent_at: 0, body };
            assert_eq!(pipeline.frame(frame, *now, broker).ok(), Some(Flow::Taken));
        }
        for (number, generation) in broker.0.drain(..) {
            assert!(pipeline.acked(Ticket::from_parts(number, generation)).is_some());
        }
        pipeline.tick(*now);
        while pipeline.next_action().is_some() {}
        assert_eq!(pipeline.ledger().span(), 0);
    }
}

/// The messages, one by one.
pub fn stream() -> Vec<Vec<u8>> {
    let byte = |hex: &str, at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
    let message = |hex: &str| (0..hex.len()).step_by(2).map(|at| byte(hex, at)).collect();
    include_str!("stream.hex").lines().map(message).collect()
}

/// The outbox whose rows they are.
pub fn outbox() -> Outbox {
    let part = |name: &str| Some(name.to_owned());
    let columns = Columns {
        aggregate_type: part("aggregate_type"),
        aggregate_id: part("aggregate_id"),
        event_type: part("event_type"),
        timestamp: part("created_at"),
        headers: part("headers"),
        ..Columns::bare("id", "payload")
    };
    Outbox::of(OutboxSource::Table { schema: "public".into(), name: "outbox".into() }, columns)
}

/// The same rows, published as Debezium would.
pub fn debezium() -> Outbox {
    let text = "postgres.url = 'postgres://u@h/d'\nkafka.brokers = 'k:9092'\n[[outbox]]\npreset = 'debezium'\n\
                columns = { aggregate_type = 'aggregate_type', aggregate_id = 'aggregate_id', event_type = 'event_type' }";
    let config = Config::from_toml(text, "debezium", std::iter::empty()).expect("it is valid");
    config.outbox.into_iter().next().expect("it has an outbox")
}

/// A route that renders their value: all fields of the payload, and three of the row.
pub fn template() -> Rules {
    let text = r#"{"id": {{ id | tojson }}, "about": "{{ aggregate_type }}/{{ aggregate_id }}", "order": {{ payload.order | tojson }},
        "amount": {{ payload.amount | tojson }}, "note": {{ payload.note | tojson }}}"#;
    let templates = Templates::from_sources([("order".to_owned(), text.to_owned())]).expect("it is a template");
    let route = Route { value: Some(ValueForm::Template("order".into())), ..Route::default() };
    let templates = TemplateSet { templates: Arc::new(templates), most: 1 << 20 };
    Rules { routes: vec![route], templates: Some(templates), ..Rules::default() }
}

/// Moves the positions of Begin and Commit on.
fn advance(body: &mut [u8]) {
    let positions: &[usize] = match body[0] {
        b'B' => &[1],
        b'C' => &[2, 10],
        _ => &[],
    };
    for at in positions {
        let field = &mut body[*at..*at + 8];
        let later = u64::from_be_bytes(field.try_into().expect("eight bytes")) + (1 << 24);
        field.copy_from_slice(&later.to_be_bytes());
    }
}
