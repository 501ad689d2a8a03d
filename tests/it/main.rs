//! Every test on real servers, in one crate: one link, one shared PostgreSQL, one shared Kafka.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod alter;
mod blame;
mod bulk;
mod check;
mod cluster;
mod crash;
mod failover;
mod flow;
mod idle;
mod join;
mod keepalive;
mod large;
mod letter_commands;
mod letter_life;
mod letters;
mod messages;
mod network;
mod outage;
mod presets;
mod publication;
mod reload;
mod routes;
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
mod writeback;
