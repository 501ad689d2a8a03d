//! outboxd's own rooms over the fixtures, without any server: the tables and rows of each as PostgreSQL would send them, through
//! the configuration, the outbox and the router.
//!
//! Schemas are not written into records here. So that what stands beside them is compared all the same, a case with schemas is
//! replayed once more without them, and what Debezium has put beside its schema is what is expected.

use std::collections::BTreeMap;

use outboxd::config::Config;
use outboxd::lsn::Lsn;
use outboxd::record;
use outboxd::route::Router;
use outboxd::source::Encoding;
use outboxd::source::outbox::{Layout, Outbox, Step};
use outboxd::source::pgoutput::{self, Message};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::case::JSON;
use crate::compare::{self, Found, Scope};
use crate::fixture::{Column, Data, Fixture, Partition, Record, Time};
use crate::record::PARTITIONS;

/// What only a broker or a server decides.
const NOT_HERE: [&str; 2] = ["a_time_far_ahead", "a_partition_that_is_not_there"];
/// The OID of whatever is not built in.
const FIRST_OID: u32 = 16_500;
const TABLE: u32 = 7;

#[test]
fn the_rooms_make_of_every_fixture_what_debezium_has_made() {
    let only = std::env::var("OUTBOXD_REPLAY_ONLY").unwrap_or_default();
    let fixtures: Vec<Fixture> = Fixture::all().into_iter().filter(|fixture| fixture.case.contains(&only)).collect();
    let mut found = Vec::new();
    let (mut equal, mut equal_beside, mut untold) = (0, 0, 0);
    for fixture in &fixtures {
        let here = replay(fixture);
        let beside = without_schemas(fixture).map(|bare| replay(&bare));
        match (&here, &beside) {
            (None, _) => untold += 1,
            (Some(here), _) if here.is_empty() => equal += 1,
            (_, Some(Some(beside))) if beside.is_empty() => equal_beside += 1,
            _ => {}
        }
        found.extend(here.into_iter().chain(beside.flatten()).flatten());
    }
    let all = fixtures.len();
    println!(
        "of {all} cases {equal} are equal in every part, {equal_beside} but for their schemas, {untold} need servers"
    );
    compare::count(&fixtures, &found);
    let scope = if only.is_empty() { Scope::Rows } else { Scope::Some };
    compare::judge(&fixtures, &found, scope);
}

/// What differs; `None` when rows alone do not tell.
fn replay(fixture: &Fixture) -> Option<Vec<Found>> {
    Some(match (Rooms::open(fixture), compare::is_refused(fixture)) {
        (Err(_), true) => Vec::new(),
        (Ok(_), true) => vec![Found::accepted(fixture)],
        (Err(why), false) => vec![Found::refused(fixture, why)],
        (Ok(_), false) if !is_told_by_its_rows(fixture) || NOT_HERE.contains(&fixture.case.as_str()) => return None,
        (Ok(mut rooms), false) => {
            let (records, letters) = rooms.run(fixture);
            compare::differences(fixture, &records, &letters)
        }
    })
}

/// True when what the table holds in the end is what was inserted into it, in this order.
fn is_told_by_its_rows(fixture: &Fixture) -> bool {
    let is_insert = |sql: &String| sql.starts_with("insert into") && !sql.contains(';');
    fixture.statements.iter().all(is_insert) && (fixture.rows.len() >= fixture.statements.len())
}

struct Rooms {
    outbox: Outbox,
    router: Router,
}

impl Rooms {
    /// As far as a session comes before the first row; or why it does not.
    fn open(fixture: &Fixture) -> Result<Rooms, String> {
        let config =
            Config::from_toml(&toml(fixture), "fixture", std::iter::empty()).map_err(|error| error.to_string())?;
        let mut layout = Layout::default();
        let router = Router::new(&config.rules, &config.outbox, &mut layout);
        let mut outbox = Outbox::new(&config.outbox, layout);
        outbox.session_started(Encoding::Text, Vec::new());
        let begin = Message::Begin { commit_lsn: Lsn(77), committed_at: 0, xid: 1 };
        outbox.read(begin, b"").expect("a session begins");
        for message in described(fixture) {
            outbox.read(pgoutput::decode(&message).unwrap(), &message).map_err(|error| error.to_string())?;
        }
        Ok(Rooms { outbox, router })
    }

    /// The records of all rows, and why some have none.
    fn run(&mut self, fixture: &Fixture) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut letters) = (Vec::new(), Vec::new());
        for row in &fixture.rows {
            let body = insert(&sent(fixture).map(|(at, _)| row[at].as_deref()).collect::<Vec<_>>());
            let rejected = match self.outbox.read(pgoutput::decode(&body).unwrap(), &body).unwrap() {
                Step::Row(row) => match self.router.route(&row) {
                    Ok(record) => {
                        records.push(seen(&record));
                        None
                    }
                    Err(rejected) => Some(rejected),
                },
                Step::Rejected(rejected) => Some(rejected),
                other => panic!("{}: {other:?}", fixture.case),
            };
            letters.extend(
                rejected.map(|rejected| format!("{}: {}", rejected.rejection.reason, rejected.rejection.message)),
            );
            self.outbox.take();
        }
        (records, letters)
    }
}

fn toml(fixture: &Fixture) -> String {
    let mut options: toml::Table =
        fixture.options.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    // Of the connector's name: here it stands only in headers.
    options.insert("topic.prefix".to_string(), fixture.case.clone().into());
    let block = toml::toml! { table = "" preset = "debezium" };
    let mut block = block;
    block.insert("table".to_string(), fixture.table.clone().into());
    block.insert("debezium".to_string(), options.into());
    let mut file = toml::toml! { postgres = { url = "postgres://u@h/d" } kafka = { brokers = "k:9092" } };
    file.insert("outbox".to_string(), toml::Value::Array(vec![block.into()]));
    file.to_string()
}

fn seen(record: &record::Record<'_>) -> Record {
    let key = record.key.map(Data::of);
    Record {
        topic: record.topic.to_string(),
        partition: match (record.partition, record.key) {
            (_, None) => Partition::Said("any".to_string()),
            (Some(partition), Some(_)) => Partition::Of(partition),
            (None, Some(key)) => Partition::Of((murmur2(key) & 0x7FFF_FFFF) as i32 % PARTITIONS),
        },
        key,
        value: record.value.map(Data::of),
        headers: record.headers.iter().map(|(name, value)| (name.to_string(), value.map(Data::of))).collect(),
        timestamp: record.timestamp_ms.map_or(Time::Said("when it was read".to_string()), Time::At),
        timestamp_type: "CreateTime".to_string(),
    }
}

/// Where Kafka's Java client puts a key.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5BD1_E995;
    let mut hash = 0x9747_B28C ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let k = u32::from_le_bytes(chunk.try_into().unwrap()).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ k >> 24).wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// The columns that the WAL has, each with its place in the row: generated ones are not among them.
fn sent(fixture: &Fixture) -> impl Iterator<Item = (usize, &Column)> {
    let is_generated = |column: &Column| fixture.ddl.contains(&format!("{} {} generated", column.name, column.kind));
    fixture.columns.iter().enumerate().filter(move |(_, column)| !is_generated(column))
}

/// What the server says of a table before its first row: the types that are not built in, and its columns.
fn described(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut types = Vec::new();
    let mut columns = Vec::new();
    for (_, column) in sent(fixture) {
        let (oid, modifier) = built_in(&column.kind).unwrap_or_else(|| {
            let oid = FIRST_OID + types.len() as u32;
            let domain = fixture.ddl.split_once(&format!("create domain {} as ", column.kind));
            let base = domain.map(|(_, rest)| rest.split(['(', ';', ' ']).next().unwrap_or_default());
            let own = column.kind.strip_suffix("[]").map_or(column.kind.clone(), |of| format!("_{of}"));
            let (schema, name) = base.map_or(("public", own.as_str()), |base| ("", base));
            types.push([b"Y", &oid.to_be_bytes()[..], schema.as_bytes(), b"\0", name.as_bytes(), b"\0"].concat());
            (oid, -1)
        });
        columns.push((column.name.as_str(), oid, modifier));
    }
    let (schema, name) = fixture.table.split_once('.').unwrap();
    let mut relation = [b"R", &TABLE.to_be_bytes()[..], schema.as_bytes(), b"\0", name.as_bytes(), b"\0d"].concat();
    relation.extend((columns.len() as u16).to_be_bytes());
    for (name, oid, modifier) in columns {
        relation.extend([b"\0", name.as_bytes(), b"\0", &oid.to_be_bytes()[..], &modifier.to_be_bytes()].concat());
    }
    types.push(relation);
    types
}

fn insert(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = [b"I", &TABLE.to_be_bytes()[..], b"N", &(values.len() as u16).to_be_bytes()].concat();
    for value in values {
        match value {
            Some(text) => body.extend([b"t", &(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()),
            None => body.push(b'n'),
        }
    }
    body
}

/// OID and modifier of a type as `format_type` names it.
fn built_in(kind: &str) -> Option<(u32, i32)> {
    let (kind, is_array) = kind.strip_suffix("[]").map_or((kind, false), |kind| (kind, true));
    let (start, rest) = kind.split_once('(').unwrap_or((kind, ""));
    let (inside, end) = rest.split_once(')').unwrap_or(("", ""));
    let numbers: Vec<i32> = inside.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    let first = numbers.first().copied();
    let name = format!("{start}{end}");
    let (oid, array, modifier) = match name.as_str() {
        "boolean" => (16, 1000, None),
        "bytea" => (17, 1001, None),
        "name" => (19, 1003, None),
        "bigint" => (20, 1016, None),
        "smallint" => (21, 1005, None),
        "integer" => (23, 1007, None),
        "text" => (25, 1009, None),
        "oid" => (26, 1028, None),
        "json" => (114, 199, None),
        "xml" => (142, 143, None),
        "point" => (600, 1017, None),
        "cidr" => (650, 651, None),
        "real" => (700, 1021, None),
        "double precision" => (701, 1022, None),
        "money" => (790, 791, None),
        "macaddr" => (829, 1040, None),
        "inet" => (869, 1041, None),
        "character" => (1042, 1014, first.map(|length| length + 4)),
        "character varying" => (1043, 1015, first.map(|length| length + 4)),
        "date" => (1082, 1182, None),
        "time without time zone" => (1083, 1183, first),
        "timestamp without time zone" => (1114, 1115, first),
        "timestamp with time zone" => (1184, 1185, first),
        "interval" => (1186, 1187, None),
        "time with time zone" => (1266, 1270, first),
        "bit" => (1560, 1561, first),
        "bit varying" => (1562, 1563, first),
        "numeric" => {
            let scale = numbers.get(1).copied().unwrap_or(0) & 0x7FF;
            (1700, 1231, first.map(|precision| (precision << 16 | scale) + 4))
        }
        "uuid" => (2950, 2951, None),
        "jsonb" => (3802, 3807, None),
        "tsvector" => (3614, 3643, None),
        "int4range" => (3904, 3905, None),
        "tstzrange" => (3910, 3911, None),
        "int4multirange" => (4451, 6150, None),
        _ => return None,
    };
    Some((if is_array { array } else { oid }, modifier.unwrap_or(-1)))
}

/// The same without schemas, and what is then expected; `None` when it has none.
fn without_schemas(fixture: &Fixture) -> Option<Fixture> {
    let mut bare = fixture.clone();
    let has = |part: &str| {
        let (schemas, delegate) =
            (format!("{part}.converter.schemas.enable"), format!("{part}.converter.delegate.converter.type"));
        let delegates = format!("{delegate}.schemas.enable");
        let is = |name: &str, value: &str| fixture.options.get(name).is_some_and(|set| set == value);
        match is(&delegate, JSON) && !is(&delegates, "false") {
            true => Some(delegates),
            false => is(&schemas, "true").then_some(schemas),
        }
    };
    let parts: BTreeMap<&str, String> =
        ["key", "value", "header"].into_iter().filter_map(|part| Some((part, has(part)?))).collect();
    for option in parts.values() {
        bare.options.insert(option.clone(), "false".to_string());
    }
    for record in &mut bare.records {
        if parts.contains_key("key") {
            record.key = record.key.take().map(beside_schema);
            let is_by_key =
                fixture.options.get("table.fields.additional.placement").is_none_or(|p| !p.contains("partition"));
            if let (Some(Data::Text(key)), true) = (&record.key, is_by_key) {
                record.partition = Partition::Of((murmur2(key.as_bytes()) & 0x7FFF_FFFF) as i32 % PARTITIONS);
            }
        }
        if parts.contains_key("value") {
            record.value = record.value.take().map(beside_schema);
        }
        if parts.contains_key("header") {
            for (_, value) in &mut record.headers {
                *value = value.take().map(beside_schema);
            }
        }
    }
    (!parts.is_empty()).then_some(bare)
}

fn beside_schema(data: Data) -> Data {
    #[derive(Deserialize)]
    struct Schemed<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    match &data {
        Data::Text(text) => match serde_json::from_str::<Schemed<'_>>(text) {
            Ok(schemed) => Data::Text(schemed.payload.get().to_string()),
            // In a header that has none.
            Err(_) => data,
        },
        Data::Hex { .. } => data,
    }
}
