//! outboxd carries events from a transactional outbox in PostgreSQL to Kafka by reading the WAL.

pub mod admin;
pub mod config;
pub mod error;
pub mod ledger;
pub mod lsn;
pub mod metrics;
pub mod pipeline;
pub mod record;
pub mod relay;
pub mod route;
pub mod sink;
pub mod source;
pub mod status;
