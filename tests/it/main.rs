//! Every test on real servers, in one crate: one link, one shared PostgreSQL, one shared Kafka.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod alter;
mod bulk;
mod check;
mod cluster;
mod crash;
mod flow;
mod idle;
mod keepalive;
mod large;
mod messages;
mod network;
mod outage;
mod publication;
mod security;
mod setup;
mod shutdown;
mod slot;
mod smoke;
mod standby;
mod steady;
mod stray;
mod topic;
mod types;
mod wal;
