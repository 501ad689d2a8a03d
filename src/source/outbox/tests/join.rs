//! Events whose payloads are in a second table: what leaves, in which order, and with what.

use proptest::prelude::*;

use super::*;
use crate::config::Join;
use crate::dead_letter::{Claimed, Lane, Origin};

const EVENTS: u32 = 5;
const BODIES: u32 = 6;
const OTHER: u32 = 7;
const FOREIGN: u32 = 8;

/// What left: its number, its id, and its payload or why there is none.
type Left = (u64, String, std::result::Result<Option<String>, String>);

fn joined(on: &str, payload: &str) -> config::Outbox {
    let (event_column, payload_column) = on.split_once('=').unwrap_or((on, on));
    let join = Join {
        schema: "app".into(),
        table: "bodies".into(),
        event_column: event_column.into(),
        payload_column: payload_column.into(),
    };
    config::Outbox { join: Some(join), ..table("events", config::Columns { payload: payload.into(), ..columns() }) }
}

fn limits(join: usize, memory: u64) -> config::Limits {
    let text = "[postgres]\nurl = 'postgres://o@h/d'\n[kafka]\nbrokers = 'k'";
    let config = config::Config::from_toml(text, "test", std::iter::empty()).unwrap();
    config::Limits { join, memory, ..config.limits }
}

/// An outbox that is joined, one that is not, and one of messages, in a session.
fn room(rows: usize, bytes: u64) -> Outbox {
    let outboxes = [joined("body=key", "payload"), table("other", columns()), prefix(columns())];
    let mut room = Outbox::new(&outboxes, Layout::default()).within(&limits(rows, bytes));
    room.session_started(Encoding::Binary, Vec::new());
    room
}

/// The frames that a session starts a transaction with.
fn opening() -> Vec<Vec<u8>> {
    vec![
        [b"B", &77_u64.to_be_bytes()[..], &[0; 8], &[0; 4]].concat(),
        relation(EVENTS, "events", &[("id", TEXT), ("body", TEXT)]),
        relation(BODIES, "bodies", &[("key", TEXT), ("payload", TEXT)]),
        relation(OTHER, "other", &[("id", TEXT), ("payload", TEXT)]),
        relation(FOREIGN, "foreign", &[("a", TEXT)]),
    ]
}

fn commit() -> Vec<u8> {
    [b"C\0", &77_u64.to_be_bytes()[..], &90_u64.to_be_bytes(), &[0; 8]].concat()
}

fn event(id: &str, body: Option<&str>) -> Vec<u8> {
    insert(EVENTS, &[Binary(id.as_bytes()), body.map_or(Null, |body| Binary(body.as_bytes()))])
}

fn body(key: Option<&str>, payload: &str) -> Vec<u8> {
    insert(BODIES, &[key.map_or(Null, |key| Binary(key.as_bytes())), Binary(payload.as_bytes())])
}

fn other(id: &str) -> Vec<u8> {
    insert(OTHER, &[Binary(id.as_bytes()), Binary(b"own")])
}

fn message(id: &str) -> Vec<u8> {
    logical(true, "outbox", &format!("{{\"id\": \"{id}\", \"payload\": 0}}"))
}

fn left(step: Step<'_>) -> Left {
    match step {
        Step::Row(row) => {
            let id = row.text(Place::ID).unwrap();
            let payload = row.missing().map_or_else(|| Ok(row.text(Place::PAYLOAD)), |why| Err(why.to_owned()));
            (row.position.row, id, payload)
        }
        Step::Rejected(rejected) => {
            (rejected.position.row, rejected.event.unwrap_or_default(), Err(rejected.rejection.message))
        }
        other => panic!("a row, not {other:?}"),
    }
}

/// Shows a frame until it is taken, as the pipeline does; `held` says whether a row cannot leave now.
fn show(room: &mut Outbox, frame: &[u8], held: &mut impl FnMut() -> bool) -> Vec<Left> {
    let mut seen = Vec::new();
    'shown: loop {
        let message = pgoutput::decode(frame).unwrap();
        if let Message::Commit { .. } = message {
            room.end_waiting();
        }
        while let Some(row) = room.next_waiting() {
            let step = left(room.give(Given::Waiting(&row)).unwrap());
            if held() {
                room.put_back(row);
                continue 'shown;
            }
            seen.push(step);
            room.released(row);
        }
        let step = room.give(Given::Message(&message, frame)).unwrap();
        if matches!(step, Step::Row(_) | Step::Rejected(_)) {
            let step = left(step);
            if held() {
                continue 'shown;
            }
            seen.push(step);
            room.take();
        }
        return seen;
    }
}

/// What leaves of a transaction with these rows.
fn leaves(room: &mut Outbox, rows: &[Vec<u8>]) -> Vec<Left> {
    let frames = opening().into_iter().chain(rows.iter().cloned()).chain([commit()]);
    frames.flat_map(|frame| show(room, &frame, &mut || false)).collect()
}

fn found(number: u64, id: &str, payload: &str) -> Left {
    (number, id.to_owned(), Ok(Some(payload.to_owned())))
}

fn missing(number: u64, id: &str, why: &str) -> Left {
    (number, id.to_owned(), Err(why.to_owned()))
}

const FORGOTTEN: &str = "its payload row (app.bodies, key = a) is not among those that were kept: more came before it than limits.join allows";
const ABSENT: &str = "its payload row (app.bodies, key = a) is not in its transaction";

#[test]
fn an_event_gets_its_payload_whichever_row_comes_first() {
    let (event, body) = (event("1", Some("a")), body(Some("a"), "x"));
    assert_eq!(leaves(&mut room(9, 9999), &[event.clone(), body.clone()]), [found(1, "1", "x")]);
    assert_eq!(leaves(&mut room(9, 9999), &[body, event]), [found(2, "1", "x")]);
}

#[test]
fn several_events_may_share_a_payload_and_each_transaction_has_its_own() {
    let mut room = room(9, 9999);
    let rows = [event("1", Some("a")), body(Some("a"), "x"), event("2", Some("a")), body(Some("b"), "y")];
    assert_eq!(leaves(&mut room, &rows), [found(1, "1", "x"), found(3, "2", "x")]);
    assert_eq!(leaves(&mut room, &[event("3", Some("a"))]), [missing(1, "3", ABSENT)]);
}

#[test]
fn rows_behind_an_event_that_waits_leave_behind_it() {
    let rows = [event("1", Some("a")), other("2"), message("3"), body(Some("a"), "x"), other("4")];
    let expected = [found(1, "1", "x"), found(2, "2", "own"), found(3, "3", "0"), found(5, "4", "own")];
    assert_eq!(leaves(&mut room(9, 9999), &rows), expected);
}

#[test]
fn an_event_without_a_payload_says_what_is_missing_and_holds_nobody_up_for_ever() {
    let rows = [event("1", Some("a")), event("2", None), event("3", Some("b")), body(Some("b"), "y"), body(None, "z")];
    let null = "its column \"body\" is NULL, so that it has no payload row";
    let expected = [missing(1, "1", ABSENT), missing(2, "2", null), found(3, "3", "y")];
    assert_eq!(leaves(&mut room(9, 9999), &rows), expected);
}

#[test]
fn what_waits_is_bounded_in_rows_and_in_bytes() {
    let rows = [event("1", Some("a")), other("2"), other("3"), body(Some("a"), "x")];
    let given_up =
        "its payload row (app.bodies, key = a) had not come when more rows waited behind it than limits.join allows";
    assert_eq!(leaves(&mut room(3, 9999), &rows)[0], found(1, "1", "x"));
    assert_eq!(leaves(&mut room(2, 9999), &rows)[0], missing(1, "1", given_up));
    let given_up = given_up.replace("limits.join", "limits.memory");
    assert_eq!(leaves(&mut room(9, 40), &rows)[0], missing(1, "1", &given_up));
    let rows = [body(Some("a"), "x"), body(Some("b"), "y"), event("1", Some("a")), event("2", Some("b"))];
    assert_eq!(leaves(&mut room(1, 9999), &rows), [missing(3, "1", FORGOTTEN), found(4, "2", "y")]);
}

#[test]
fn an_event_whose_payload_was_forgotten_takes_no_later_one_and_those_behind_that_do() {
    let rows = [
        body(Some("a"), "x"),
        body(Some("b"), "y"),
        event("1", Some("a")),
        body(Some("a"), "z"),
        event("2", Some("a")),
        event("3", Some("c")),
        body(Some("c"), "w"),
    ];
    let mut room = room(1, 9999);
    let expected = [missing(3, "1", FORGOTTEN), found(5, "2", "z"), found(6, "3", "w")];
    assert_eq!(leaves(&mut room, &rows), expected);
    // The next transaction has forgotten nothing.
    assert_eq!(leaves(&mut room, &[event("4", Some("a")), body(Some("a"), "v")]), [found(1, "4", "v")]);
}

#[test]
fn a_payload_larger_than_the_memory_passes_alone() {
    let large = "x".repeat(5000);
    let rows = [body(Some("a"), &large), event("1", Some("a"))];
    assert_eq!(leaves(&mut room(9, 100), &rows), [found(2, "1", &large)]);
}

#[test]
fn a_payload_larger_than_the_memory_is_forgotten_for_an_event_that_waits() {
    let large = "x".repeat(5000);
    let rows = [body(Some("a"), &large), event("1", Some("a")), event("2", Some("b")), body(Some("b"), "y")];
    assert_eq!(leaves(&mut room(9, 4000), &rows), [found(2, "1", &large), found(3, "2", "y")]);
}

#[test]
fn rows_that_wait_count_for_more_than_their_few_bytes() {
    let rows: Vec<Vec<u8>> = [event("1", Some("a"))]
        .into_iter()
        .chain((2..9).map(|n| other(&n.to_string())))
        .chain([body(Some("a"), "x")])
        .collect();
    let bytes: usize = rows.iter().map(Vec::len).sum();
    let seen = leaves(&mut room(99, 2 * bytes as u64), &rows);
    assert!(matches!(&seen[0], (1, _, Err(why)) if why.contains("limits.memory")), "{:?}", seen[0]);
    let rows: Vec<Vec<u8>> = (0..9).map(|n| body(Some(&n.to_string()), "x")).chain([event("1", Some("0"))]).collect();
    let seen = leaves(&mut room(99, 2 * bytes as u64), &rows);
    assert!(matches!(&seen[0], (10, _, Err(why)) if why.contains("limits.memory")), "{:?}", seen[0]);
    assert_eq!(leaves(&mut room(99, 99_999), &rows)[0], found(10, "1", "x"));
}

#[test]
fn a_uuid_is_found_by_its_text_and_numbers_by_theirs() {
    let uuid = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 7];
    let text = b"01234567-89ab-cdef-0001-020304050607";
    for (types, event, body) in [((UUID, TEXT), &uuid[..], &text[..]), ((INT8, TEXT), &7_i64.to_be_bytes(), b"7")] {
        let mut room = room(9, 9999);
        begin(&mut room);
        read(&mut room, &relation(EVENTS, "events", &[("id", TEXT), ("body", types.0)]));
        read(&mut room, &relation(BODIES, "bodies", &[("payload", TEXT), ("key", types.1)]));
        let frames =
            [insert(EVENTS, &[Binary(b"1"), Binary(event)]), insert(BODIES, &[Binary(b"x"), Binary(body)]), commit()];
        let seen: Vec<Left> = frames.iter().flat_map(|frame| show(&mut room, frame, &mut || false)).collect();
        assert_eq!(seen, [found(1, "1", "x")]);
    }
}

#[test]
fn a_column_of_either_table_may_be_named_and_that_of_the_event_weighs_more() {
    let mut layout = Layout::default();
    let [tenant, both, nowhere] = ["tenant", "both", "nowhere"].map(|name| layout.place(name));
    let mut room = Outbox::new(&[joined("key", "payload")], layout);
    begin(&mut room);
    read(&mut room, &relation(EVENTS, "events", &[("id", TEXT), ("key", TEXT), ("both", TEXT)]));
    read(
        &mut room,
        &relation(BODIES, "bodies", &[("both", TEXT), ("payload", JSONB), ("tenant", INT8), ("key", TEXT)]),
    );
    read(&mut room, &insert(EVENTS, &[Binary(b"1"), Binary(b"a"), Binary(b"event's")]));
    let tenant_id = 9_i64.to_be_bytes();
    read(&mut room, &insert(BODIES, &[Binary(b"body's"), Binary(b"\x01{}"), Binary(&tenant_id), Binary(b"a")]));
    let waiting = room.next_waiting().unwrap();
    let Step::Row(row) = room.give(Given::Waiting(&waiting)).unwrap() else { panic!("a row") };
    let texts = [Place::PAYLOAD, tenant, both].map(|place| row.text(place).unwrap());
    assert_eq!(texts, ["{}", "9", "event's"]);
    assert!(row.is_absent(nowhere));
    assert_eq!((row.type_of(Place::PAYLOAD).oid, row.type_of(tenant).oid, row.type_of(both).oid), (JSONB, INT8, TEXT));
}

#[test]
fn a_table_that_is_altered_behind_a_row_that_waits_leaves_it_readable() {
    let mut room = room(9, 9999);
    let mut frames = opening();
    frames.extend([event("1", Some("a")), other("2")]);
    // The tables are altered in the transaction itself.
    frames.push(relation(EVENTS, "events", &[("body", TEXT), ("new", NUMERIC), ("id", TEXT)]));
    frames.push(relation(OTHER, "other", &[("payload", TEXT), ("id", TEXT)]));
    frames.push(insert(EVENTS, &[Binary(b"a"), Null, Binary(b"3")]));
    frames.push(body(Some("a"), "x"));
    frames.push(relation(BODIES, "bodies", &[("payload", TEXT), ("key", TEXT)]));
    frames.push(commit());
    let seen: Vec<Left> = frames.iter().flat_map(|frame| show(&mut room, frame, &mut || false)).collect();
    assert_eq!(seen, [found(1, "1", "x"), found(2, "2", "own"), found(3, "3", "x")]);
}

#[test]
fn other_places_while_rows_wait_are_filled_when_they_leave() {
    let mut room = room(9, 9999);
    opening().iter().for_each(|frame| drop(show(&mut room, frame, &mut || false)));
    read(&mut room, &event("1", Some("a")));
    let mut layout = Layout::default();
    let key = layout.place("key");
    assert_eq!(room.lay_out(layout), None);
    read(&mut room, &body(Some("a"), "x"));
    let waiting = room.next_waiting().unwrap();
    let Step::Row(row) = room.give(Given::Waiting(&waiting)).unwrap() else { panic!("a row") };
    assert_eq!((row.text(key), row.text(Place::PAYLOAD)), (Some("a".into()), Some("x".into())));
}

#[test]
fn a_second_table_must_have_its_columns_and_its_name() {
    let told = |frame: &[u8]| {
        let mut room = room(9, 9999);
        begin(&mut room);
        try_read(&mut room, frame).map(drop).unwrap_err()
    };
    let error = told(&relation(BODIES, "bodies", &[("key", TEXT)]));
    assert_eq!(error.to_string(), "table \"app.bodies\" has no column \"payload\", which is mapped as the payload");
    let error = told(&relation(BODIES, "bodies", &[("payload", TEXT)]));
    assert_eq!(error.to_string(), "table \"app.bodies\" has no column \"key\", which is what join is on");
    assert!(error.hint_text().unwrap().contains("[[outbox]] join.on"));
    let error = told(&relation(EVENTS, "events", &[("id", TEXT)]));
    assert_eq!(error.to_string(), "table \"app.events\" has no column \"body\", which is what join is on");
    let mut room = room(9, 9999);
    begin(&mut room);
    let shape = [("key", TEXT), ("payload", TEXT)];
    read(&mut room, &relation(BODIES, "bodies", &shape));
    let error = try_read(&mut room, &relation(BODIES, "bodies_old", &shape)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "joined table \"app.bodies\" is now called \"app.bodies_old\", which is not configured"
    );
}

#[test]
fn a_new_table_with_the_columns_of_a_payload_row_stops_nobody() {
    let mut room = room(9, 9999);
    let mut frames = opening();
    frames.push(relation(9, "invoices", &[("key", TEXT), ("payload", TEXT), ("total", TEXT)]));
    frames.push(insert(9, &[Binary(b"a"), Binary(b"y"), Null]));
    frames.extend([event("1", Some("a")), body(Some("a"), "x"), commit()]);
    let seen: Vec<Left> = frames.iter().flat_map(|frame| show(&mut room, frame, &mut || false)).collect();
    assert_eq!(seen, [found(2, "1", "x")]);
    // Under the columns of an event, it may be one.
    begin(&mut room);
    read(&mut room, &relation(10, "events_2026", &[("id", TEXT), ("body", TEXT)]));
    assert!(try_read(&mut room, &insert(10, &[Binary(b"1"), Binary(b"a")])).is_err());
}

#[test]
fn a_second_table_may_ask_for_text() {
    let mut room = room(9, 9999);
    begin(&mut room);
    let told = |name: &str| Seen::TextNeeded(format!("column \"{name}\" of table \"app.bodies\""));
    assert_eq!(read(&mut room, &relation(BODIES, "bodies", &[("key", NUMERIC), ("payload", TEXT)])), told("key"));
    assert_eq!(read(&mut room, &relation(BODIES, "bodies", &[("key", TIMESTAMPTZ), ("payload", TEXT)])), told("key"));
    assert_eq!(read(&mut room, &relation(BODIES, "bodies", &[("key", TEXT), ("payload", NUMERIC)])), told("payload"));
}

/// The letter of a row that waited.
fn letter(room: &Outbox, waiting: &Waiting, most: u64) -> Claimed {
    let kept = room.keep(Given::Waiting(waiting), most);
    Claimed {
        id: 1,
        owner: String::new(),
        attempts: 1,
        is_current: true,
        lane: Lane::default(),
        origin: kept.origin,
        event: None,
        position: waiting.position,
        committed_at: waiting.committed_at,
        columns: kept.columns,
        not_kept: kept.not_kept,
    }
}

#[test]
fn a_letter_keeps_both_rows_and_becomes_the_same_record() {
    let mut layout = Layout::default();
    let tenant = layout.place("tenant");
    let mut room = Outbox::new(&[joined("key", "payload")], layout);
    begin(&mut room);
    read(&mut room, &relation(EVENTS, "events", &[("id", TEXT), ("key", TEXT)]));
    read(
        &mut room,
        &relation(BODIES, "bodies", &[("key", TEXT), ("payload", TEXT), ("tenant", TEXT), ("unread", NUMERIC)]),
    );
    read(&mut room, &insert(EVENTS, &[Binary(b"1"), Binary(b"a")]));
    read(&mut room, &insert(BODIES, &[Binary(b"a"), Binary(&[b'x'; 5000]), Binary(b"acme"), Binary(b"?")]));
    let waiting = room.next_waiting().unwrap();
    let whole = letter(&room, &waiting, 1 << 20);
    let names: Vec<&str> = whole.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "key", "app.bodies.key", "app.bodies.payload", "app.bodies.tenant"]);
    assert_eq!(whole.not_kept, ["app.bodies.unread"]);
    assert_eq!(whole.origin, Origin::Table("app".into(), "events".into()));
    assert!(room.lacks(&whole).is_empty(), "nobody reads what is not kept");
    let row = room.restore(&whole).unwrap();
    assert_eq!((row.bytes(Place::PAYLOAD), row.text(tenant)), (Some(&[b'x'; 5000][..]), Some("acme".into())));
    let mut small = letter(&room, &waiting, 1000);
    assert_eq!(room.lacks(&small), ["app.bodies.payload"]);
    assert_eq!(room.restore(&small).unwrap_err().reason, "payload_missing");
    small.columns.extend(whole.columns.iter().filter(|column| column.name == "app.bodies.payload").cloned());
    small.not_kept.clear();
    assert_eq!(room.restore(&small).unwrap().bytes(Place::PAYLOAD), Some(&[b'x'; 5000][..]));
}

#[test]
fn a_letter_without_its_payload_row_asks_for_all_that_it_may_have() {
    let mut layout = Layout::default();
    let [tenant, _] = ["tenant", "own"].map(|name| layout.place(name));
    let mut room = Outbox::new(&[joined("key", "payload")], layout);
    begin(&mut room);
    read(&mut room, &relation(EVENTS, "events", &[("id", TEXT), ("key", TEXT), ("own", TEXT)]));
    read(&mut room, &insert(EVENTS, &[Binary(b"1"), Binary(b"a"), Binary(b"o")]));
    room.end_waiting();
    let waiting = room.next_waiting().unwrap();
    let mut letter = letter(&room, &waiting, 1000);
    assert_eq!(letter.not_kept, ["app.bodies.payload"]);
    assert_eq!(room.lacks(&letter), ["app.bodies.payload", "app.bodies.tenant"], "the event has its own column itself");
    let told = room.restore(&letter).unwrap_err();
    assert_eq!(told.reason, "payload_missing");
    assert!(told.message.contains("column \"app.bodies.payload\" was not kept"), "{}", told.message);
    let column = |name: &str| crate::dead_letter::Column {
        name: format!("app.bodies.{name}"),
        kind: Type::of(TEXT),
        value: Some(name.into()),
    };
    letter.not_kept.clear();
    letter.columns.push(column("payload"));
    assert!(room.restore(&letter).unwrap().is_absent(tenant), "the second table has no such column");
    letter.columns.push(column("tenant"));
    assert_eq!(room.restore(&letter).unwrap().text(tenant), Some("tenant".into()));
}

/// A row of a transaction.
#[derive(Debug, Clone, Copy)]
enum Item {
    /// With what its payload is found by.
    Event(Option<u8>),
    Body(Option<u8>),
    Other,
    Message,
    Foreign,
}

impl Item {
    fn frame(self, at: usize) -> Vec<u8> {
        let (id, payload) = (at.to_string(), format!("p{at}"));
        let key = |key: Option<u8>| key.map(|key| key.to_string());
        match self {
            Item::Event(body) => event(&id, key(body).as_deref()),
            Item::Body(of) => body(key(of).as_deref(), &payload),
            Item::Other => other(&id),
            Item::Message => message(&id),
            Item::Foreign => insert(FOREIGN, &[Null]),
        }
    }

    fn leaves(self) -> bool {
        matches!(self, Item::Event(_) | Item::Other | Item::Message)
    }
}

/// What must leave, said in another way: by looking at the whole transaction.
fn expected(items: &[Item], rows: usize) -> Vec<(u64, std::result::Result<Option<String>, &'static str>)> {
    let bodies = |range: std::ops::Range<usize>| range.filter(|at| matches!(items[*at], Item::Body(Some(_))));
    let of = |key: u8| move |at: &usize| matches!(items[*at], Item::Body(Some(of)) if of == key);
    let waits = |from: usize, to: usize| items[from..to].iter().filter(|item| item.leaves()).count();
    let payload = |at: usize| match items[at] {
        Item::Other => Ok(Some("own".to_owned())),
        Item::Message => Ok(Some("0".to_owned())),
        Item::Event(None) => Err("is NULL"),
        Item::Event(Some(key)) => {
            if let Some(before) = bodies(0..at).rfind(of(key)) {
                let is_kept = bodies(before..at).count() <= rows;
                return if is_kept { Ok(Some(format!("p{before}"))) } else { Err("before it than limits.join allows") };
            }
            match bodies(at..items.len()).find(of(key)).filter(|body| waits(at, *body) <= rows) {
                Some(body) => Ok(Some(format!("p{body}"))),
                None if waits(at, items.len() - 1) > rows => Err("behind it than limits.join allows"),
                None => Err("is not in its transaction"),
            }
        }
        Item::Body(_) | Item::Foreign => unreachable!("it does not leave"),
    };
    let leaving = items.iter().enumerate().filter(|(_, item)| item.leaves());
    leaving.map(|(at, _)| (at as u64 + 1, payload(at))).collect()
}

fn item() -> impl Strategy<Value = Item> {
    let key = proptest::option::weighted(0.95, 0..4_u8);
    prop_oneof![
        5 => key.clone().prop_map(Item::Event),
        5 => key.prop_map(Item::Body),
        2 => Just(Item::Other),
        1 => Just(Item::Message),
        1 => Just(Item::Foreign),
    ]
}

/// Shows a transaction, whole or cut off behind some frames. Rows are held by a rhythm.
fn shown(room: &mut Outbox, items: &[Item], frames: usize, rhythm: u32) -> Vec<Left> {
    let rows = items.iter().enumerate().map(|(at, item)| item.frame(at));
    let all = opening().into_iter().chain(rows).chain([commit()]);
    let mut time = rhythm;
    let mut held = || {
        time = time.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        time >> 16 & 3 == 0
    };
    let mut seen = Vec::new();
    for frame in all.take(frames) {
        seen.extend(show(room, &frame, &mut held));
        room.joins.as_ref().unwrap().audit();
    }
    seen
}

proptest! {
    #[test]
    fn what_leaves_is_in_order_and_whole_whatever_is_held_or_cut(
        transactions in proptest::collection::vec(proptest::collection::vec(item(), 0..40), 1..4),
        rows in prop_oneof![1..8_usize, Just(1000_usize)],
        cuts in proptest::collection::vec(0..50_usize, 0..3),
        rhythm in any::<u32>(),
    ) {
        let mut room = room(rows, u64::MAX);
        for items in transactions {
            let expected = expected(&items, rows);
            let mut cut_off = Vec::new();
            for cut in &cuts {
                cut_off.push(shown(&mut room, &items, *cut.min(&(items.len() + 5)), rhythm));
                room.session_started(Encoding::Binary, Vec::new());
            }
            let seen = shown(&mut room, &items, usize::MAX, rhythm.rotate_left(7));
            for before in cut_off {
                prop_assert_eq!(&before[..], &seen[..before.len()], "the same again");
            }
            prop_assert_eq!(seen.len(), expected.len());
            for ((number, id, payload), (expected_number, expected)) in seen.iter().zip(&expected) {
                prop_assert_eq!((number, id), (expected_number, &(number - 1).to_string()));
                match (payload, expected) {
                    (Ok(payload), Ok(expected)) => prop_assert_eq!(payload, expected),
                    (Err(why), Err(expected)) => prop_assert!(why.contains(expected), "{} lacks {}", why, expected),
                    (payload, expected) => prop_assert!(false, "row {}: {:?}, not {:?}", number, payload, expected),
                }
            }
        }
    }

    #[test]
    fn with_little_memory_each_event_leaves_once_in_order_with_its_own_payload_or_a_reason(
        items in proptest::collection::vec(item(), 0..60), bytes in 400..12_000_u64, rhythm in any::<u32>(),
    ) {
        let mut room = room(1000, bytes);
        let seen = shown(&mut room, &items, usize::MAX, rhythm);
        let leaving = items.iter().enumerate().filter(|(_, item)| item.leaves()).map(|(at, _)| at as u64 + 1);
        prop_assert_eq!(seen.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), leaving.collect::<Vec<_>>());
        for (number, _, payload) in &seen {
            let Item::Event(key) = items[*number as usize - 1] else { continue };
            let is_its_own = |at: &usize| matches!(items[*at], Item::Body(of) if key.is_some() && of == key);
            let at = *number as usize - 1;
            let own = (0..at).rfind(is_its_own).or_else(|| (at..items.len()).find(is_its_own));
            match payload {
                Ok(payload) => prop_assert_eq!(payload.clone(), own.map(|own| format!("p{own}")), "row {}", number),
                Err(why) => prop_assert!(own.is_none() || why.contains("limits.memory"), "row {}: {}", number, why),
            }
        }
    }
}
