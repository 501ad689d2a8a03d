//! Where memory comes from, for our own code and for librdkafka's.
//!
//! Records are many, of about one size, and freed by another thread than the one that made them; topics, connections and
//! whatever else lives for long comes into being among them. glibc's malloc puts both into the same pages, of which some
//! bytes in use keep each one: through an hour of faults the lowest memory of a minute went from 27 to 38 MB, of which 5 MB
//! were in use, although it was told every five seconds to give back what it could. jemalloc keeps sizes apart.

#![allow(unsafe_code)]

#[global_allocator]
static HEAP: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Two arenas, because few threads do most of the work; pages that nobody uses any more go back after a tenth of a second, by a
/// thread of jemalloc's own, so that an idle relay gives them back, too. After a whole second, the same laps of the race came to 45
/// to 51 MB; so they came to 37 to 44, for no more processor time.
// SAFETY: jemalloc looks for this name, and for a pointer to text that ends with a zero.
#[unsafe(export_name = "malloc_conf")]
pub static SETTINGS: &[u8] = b"narenas:2,background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:0\0";
