//! outboxd carries events from a transactional outbox in PostgreSQL to Kafka by reading the WAL.

pub mod check;
pub mod config;
pub mod error;
pub mod init;
pub mod lsn;
pub mod sink;
pub mod source;
pub mod status;
