//! Runs the pipeline over a recorded stream, as many times as told: whoever counts the instructions of two runs learns what
//! an event costs.

mod corridor;

fn main() {
    let rounds: u64 = std::env::args().nth(1).expect("how often").parse().expect("a number");
    let mut corridor = corridor::Corridor::new();
    (0..rounds).for_each(|_| corridor.flow());
}
