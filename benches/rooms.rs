//! What 30 events cost in each pure room: time and allocations, on this machine, now. For a change to be judged by; a
//! regression is found by `tests/instructions`, which a noisy machine does not disturb.
//!
//! ```sh
//! cargo bench --bench rooms
//! ```

#![allow(clippy::unwrap_used, reason = "a panic is how a benchmark fails")]

#[path = "../tests/instructions/corridor.rs"]
mod corridor;

use corridor::{Corridor, EVENTS, outbox, stream};
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use outboxd::config::Rules;
use outboxd::ledger::{Entry, Ledger, Ticket};
use outboxd::lsn::{Lsn, Position};
use outboxd::route::Router;
use outboxd::source::outbox::{Layout, Outbox, Row, Step};
use outboxd::source::{Encoding, pgoutput};
use outboxd::template::{Columns, Templates, Typed};

#[global_allocator]
static COUNTED: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench]
fn decode(bencher: Bencher) {
    let stream = stream();
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        for body in &stream {
            black_box(pgoutput::decode(body).unwrap());
        }
    });
}

#[divan::bench]
fn decode_and_map(bencher: Bencher) {
    let stream = stream();
    let mut outbox = Outbox::new(&[outbox()], Layout::default());
    let stream = described(stream, &mut outbox);
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| walk(&stream, &mut outbox, |_| {}));
}

#[divan::bench]
fn decode_map_and_route(bencher: Bencher) {
    route(bencher, corridor::outbox(), &Rules::default());
}

#[divan::bench]
fn decode_map_and_route_as_debezium(bencher: Bencher) {
    route(bencher, corridor::debezium(), &Rules::default());
}

#[divan::bench]
fn decode_map_and_render(bencher: Bencher) {
    route(bencher, corridor::outbox(), &corridor::template());
}

fn route(bencher: Bencher, outbox: outboxd::config::Outbox, rules: &Rules) {
    let stream = stream();
    let mut layout = Layout::default();
    let mut router = Router::new(rules, std::slice::from_ref(&outbox), &mut layout);
    let mut outbox = Outbox::new(&[outbox], layout);
    let stream = described(stream, &mut outbox);
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        walk(&stream, &mut outbox, |row| {
            black_box(router.route(row).unwrap());
        });
    });
}

#[divan::bench]
fn ledger(bencher: Bencher) {
    let mut ledger = Ledger::new(Lsn(0));
    let mut commit = 0;
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        commit += 10;
        let tickets: [Ticket; EVENTS] = std::array::from_fn(|row| {
            let position = Position { commit: Lsn(commit), row: row as u64 + 1 };
            ledger.issue(Entry { position, committed_at: 0, bytes: 700, weight: 3000 }, None)
        });
        ledger.mark(Lsn(commit + 5));
        for ticket in tickets {
            ledger.settle(ticket);
        }
        ledger.told(ledger.confirmed());
    });
}

#[divan::bench]
fn pipeline(bencher: Bencher) {
    let mut corridor = Corridor::new(outbox(), &Rules::default());
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| corridor.flow());
}

/// An order of 500 bytes, of which a template takes five fields.
#[divan::bench]
fn render(bencher: Bencher) {
    let template = r#"{"id": {{ id | tojson }}, "order": {{ payload.order | tojson }}, "total": {{ payload.total | tojson }},
        "currency": {{ payload.currency | tojson }}, "at": "{{ payload.at | iso }}", "items": {{ payload.lines | length }}}"#;
    let line = r#"{"sku": "A-4711-XL", "name": "a thing of some length", "quantity": 2, "price": 12.50}"#;
    let mut payload = format!(
        r#"{{"order": "o-1000123", "customer": "c-42", "total": 75.00, "currency": "EUR", "at": "2026-11-16 04:06:00.5+01", "lines": [{line}, {line}, {line}]"#
    );
    payload.push_str(&format!(r#", "note": "{}"}}"#, "n".repeat(500 - 13 - payload.len())));
    assert_eq!(payload.len(), 500);
    let templates = Templates::from_sources([("order".to_owned(), template.to_owned())]).unwrap();
    let mut out = Vec::new();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        out.clear();
        let columns = Columns(vec![("id", Typed::Text("e-1")), ("payload", Typed::Json(payload.as_bytes()))]);
        templates.render("order", &columns, &mut out, 1 << 20).unwrap();
        black_box(&out);
    });
}

/// Begins a session with this stream, and answers with what follows in it: a server describes a table once.
fn described(mut stream: Vec<Vec<u8>>, outbox: &mut Outbox) -> Vec<Vec<u8>> {
    outbox.session_started(Encoding::Binary, Vec::new());
    walk(&stream, outbox, |_| {});
    stream.retain(|body| body[0] != b'R');
    stream
}

/// Reads the stream, and shows each row.
fn walk(stream: &[Vec<u8>], outbox: &mut Outbox, mut show: impl FnMut(&Row<'_>)) {
    for body in stream {
        if let Step::Row(row) = outbox.read(pgoutput::decode(body).unwrap(), body).unwrap() {
            show(black_box(&row));
            outbox.take();
        }
    }
}
