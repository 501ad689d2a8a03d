//! Looks for bytes that the decoder of pgoutput's messages cannot bear.

#![no_main]

#[path = "../promises.rs"]
mod promises;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| promises::pgoutput(bytes));
