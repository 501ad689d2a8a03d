//! `[outbox.debezium]`: the options of Debezium's outbox event router, under its own names.

use super::Columns;
use super::document::Reader;
use super::error::Fault;

/// What was set of Debezium's options.
#[derive(Debug, Clone)]
pub struct Debezium {}

/// Reads the options, and the columns that they name.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> (Debezium, Columns) {
    reader.map("debezium", |name, _| -> Result<(), Fault> {
        Err(Fault::new(format!("\"{name}\" is not an option that is known")))
    });
    let part = |name: &str| Some(name.to_owned());
    let columns = Columns {
        id: "id".to_owned(),
        aggregate_type: part("aggregatetype"),
        aggregate_id: part("aggregateid"),
        event_type: part("type"),
        payload: "payload".to_owned(),
        timestamp: None,
        headers: None,
        partition: None,
    };
    (Debezium {}, columns)
}
