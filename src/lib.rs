//! outboxd carries events from a transactional outbox in PostgreSQL to Kafka by reading the WAL.
//!
//! ```text
//! PostgreSQL ─► source/wire ─► source/pgoutput ─► source/outbox ─► route ─► sink ─► Kafka
//!     ▲          Frame          Message            Row              Record    │
//!     └───────── standby status ◄─ confirmed LSN ◄─ ledger ◄──────── Ticket ──┘
//! ```
//!
//! `pipeline` joins the pure rooms into one state machine that decides; `relay` is the shell that does.

pub mod admin;
pub mod calendar;
pub mod check;
pub mod cloudevents;
pub mod column;
pub mod config;
pub mod contract;
pub mod convert;
pub mod dead_letter;
pub mod demo;
pub mod error;
pub mod init;
pub mod ledger;
pub mod lsn;
pub mod metrics;
pub mod pipeline;
pub mod receipt;
pub mod record;
pub mod relay;
pub mod route;
pub mod sink;
pub mod source;
pub mod spelling;
pub mod status;
pub mod template;
pub mod trace;
pub mod workload;
