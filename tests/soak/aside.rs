//! Faults of a single topic or a single transaction, beside the load: what they hold back arrives when they are lifted.

use std::collections::HashSet;
use std::time::Duration;

use postgres::Client;

use crate::faults::Fault;
use crate::stage::{LIVENESS, Stage, topics};
use crate::support::reader::Reader;
use crate::support::scene::PARTITIONS;
use crate::support::{PATIENCE, within};

/// The aggregate type of the events that meet these faults.
pub const ASIDE: &str = "aside";
/// More than a topic with a lowered limit takes, and it does not shrink in a compressed batch.
const LARGE_BYTES: usize = 64_000;
const LOWERED_BYTES: &str = "20000";

/// Events that cannot go on until their fault is lifted.
pub struct Stranded {
    ids: Vec<String>,
    /// The transaction that holds them back, if one does.
    open: Option<Client>,
}

impl Stage {
    /// The topic of an event to come is gone: the line waits for it.
    pub fn delete_topic(&mut self) {
        self.kafka.delete_topic(&topics(ASIDE)[0]);
        let id = write(&mut self.database.connect(), 32);
        self.stranded = Some(Stranded { ids: vec![id], open: None });
    }

    /// An event is larger than its topic takes from now on: the relay parks it and goes on.
    pub fn lower_limit(&mut self) {
        self.kafka.alter_topic(&topics(ASIDE)[0], &[("max.message.bytes", LOWERED_BYTES)]);
        let mut session = self.database.connect();
        // Brokers learn of the limit in their own time: the first one may still fit.
        let mut ids = Vec::new();
        let sql = "select reason from outboxd.dead_letter where slot = $1 and event_id = any ($2)";
        let parked = within(PATIENCE, || {
            ids.push(write(&mut session, LARGE_BYTES));
            within(Duration::from_secs(5), || {
                let letters = session.query(sql, &[&self.config.slot(), &ids]).expect("the letters can be read");
                letters.first().map(|letter| letter.get::<_, String>(0))
            })
        });
        assert_eq!(parked.as_deref(), Some("refused"), "an event that is refused\n{}", self.relay.log());
        self.stranded = Some(Stranded { ids, open: None });
    }

    /// A transaction is older than everything that is committed from now on, and holds the slot's restart position back.
    pub fn hold_transaction(&mut self) {
        let mut open = self.database.connect();
        open.batch_execute("begin").expect("a transaction begins");
        let id = write(&mut open, 32);
        self.database.exec("checkpoint");
        self.stranded = Some(Stranded { ids: vec![id], open: Some(open) });
    }

    /// Takes the obstacle away.
    pub fn free(&mut self, fault: Fault) {
        let topic = &topics(ASIDE)[0];
        match fault {
            Fault::TopicRemade => self.kafka.create_topic(topic, PARTITIONS),
            // The relay tries what it has parked again, by itself.
            Fault::LimitLowered => self.kafka.alter_topic(topic, &[]),
            _ => {}
        }
        if let Some(open) = self.stranded.as_mut().and_then(|stranded| stranded.open.as_mut()) {
            open.batch_execute("commit").expect("the transaction is committed");
        }
    }

    /// Fails the soak unless what was held back has arrived.
    pub fn assert_nobody_is_stranded(&mut self) {
        let Some(Stranded { ids, .. }) = self.stranded.take() else { return };
        let expected: HashSet<&str> = ids.iter().map(String::as_str).collect();
        for (topic, relay) in topics(ASIDE).iter().zip([&self.relay, &self.survivor]) {
            let reader = Reader::start(&self.kafka, &[topic]);
            assert!(reader.wait_all(&expected, LIVENESS), "not all of {ids:?} are in {topic}\n{}", relay.log());
        }
    }
}

/// Writes one event with about so many bytes, and returns its id.
fn write(session: &mut Client, bytes: usize) -> String {
    let sql = format!(
        "insert into public.outbox (aggregate_type, aggregate_id, event_type, payload)
         select '{ASIDE}', '{ASIDE}', '{ASIDE}', jsonb_build_object('padding', string_agg(md5(random()::text), ''))
         from generate_series(1, {}) returning id::text",
        bytes / 32
    );
    session.query_one(&sql, &[]).expect("the server takes events").get(0)
}
