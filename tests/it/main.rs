//! Every test on real servers, in one crate: one link, one shared PostgreSQL, one shared Kafka.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod alter;
mod check;
mod crash;
mod flow;
mod large;
mod messages;
mod smoke;
mod types;
