//! The document becomes a `Config`: each section's values are read by the schema, then checked against each other.

use std::path::Path;
use std::{fs, io};

use toml::de::DeValue;

use super::document::{Block, Document, Reader};
use super::error::{Fault, Place, Problems};
use super::{
    Asked, Backoff, Columns, Config, Connection, CreateTopics, DeadLetters, Error, Http, Kafka, Limits, Order, Outbox,
    OutboxSource, Pattern, Piece, Plan, Postgres, Rules, Secret, Store, TemplateFiles, UnknownTopic, connection, init,
    join, preset, properties, rules, value, writeback,
};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "outboxd.toml";

/// PostgreSQL cuts longer names off.
const NAME_BYTES_MAX: usize = 63;

/// The process's environment, as `Config::load` wants it. `std::env::vars` would panic on what is not Unicode.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

impl Config {
    /// Reads the file, lays the environment's variables over it and checks everything.
    ///
    /// Without a path, `outboxd.toml` in the working directory is read if it is there.
    pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Config, Error> {
        Ok(Config::build(read(path)?, env, None)?.config)
    }

    /// Reads the same, and adds what `outboxd init` is asked for beside it. What only a running relay needs may be missing: where the
    /// brokers are, and to which topic events go.
    pub fn load_for_init(
        path: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        asked: &Asked,
    ) -> Result<Plan, Error> {
        Config::build(read(path)?, env, Some(asked))
    }

    /// Reads a file's text; `name` is what errors call the file.
    pub fn from_toml(text: &str, name: &str, env: impl Iterator<Item = (String, String)>) -> Result<Config, Error> {
        Ok(Config::build(Some((name.to_owned(), text.to_owned())), env, None)?.config)
    }

    fn build(
        file: Option<(String, String)>,
        env: impl Iterator<Item = (String, String)>,
        asked: Option<&Asked>,
    ) -> Result<Plan, Error> {
        let mut env: Vec<(String, String)> = env.collect();
        env.sort();
        let mut problems = Problems::default();
        let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        let mut document = Document::new(file, &env, &mut problems)?;
        let supposed = asked.map(|asked| asked.suppose(&mut document)).unwrap_or_default();
        let further = asked.and_then(Asked::further);
        let postgres = postgres(document.once("postgres", &mut problems), pgpassword(&env), further);
        let kafka = kafka(document.once("kafka", &mut problems));
        let http = http(document.once("http", &mut problems));
        let log = document.once("log", &mut problems).text("level");
        let limits = limits(document.once("limits", &mut problems));
        let Outboxes { mut outboxes, places, asked: added } =
            outboxes(&mut document, asked.and_then(Asked::block), &mut problems);
        outboxes.extend(added.clone());
        let outbox = outboxes;
        let rules = rules::rules(&mut document, &outbox, limits.event, &mut problems);
        let dead_letter = dead_letters(document.once("dead_letter", &mut problems), &rules, &outbox);
        // A block that is wrong otherwise may not have its table yet, on which this depends.
        let is_runnable = asked.is_none() && problems.is_empty();
        for (outbox, place) in outbox.iter().zip(places).filter(|_| is_runnable) {
            if let Some(fault) = preset::without_topic(outbox, &rules) {
                problems.add(place, fault.of("outbox"));
            }
        }
        problems.unless_any(())?;
        let postgres = postgres.expect("a url that was refused is a problem");
        let missing = asked.map(|asked| asked.missing(&supposed, added.as_ref(), &outbox, &rules)).unwrap_or_default();
        let mut config = Config { postgres, outbox, kafka, rules, dead_letter, http, log, limits };
        if supposed.url.is_some() {
            config.use_own_role();
        }
        Ok(Plan { config, missing })
    }
}

/// The file's name, as errors call it, and its text; nothing when none was named and the usual one is not there.
fn read(path: Option<&Path>) -> Result<Option<(String, String)>, Error> {
    let name = path.unwrap_or(Path::new(DEFAULT_FILE));
    let shown = name.display().to_string();
    match fs::read_to_string(name) {
        Ok(text) => Ok(Some((shown, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_none() => Ok(None),
        Err(error) => {
            let fault = Fault::new(format!("cannot read the configuration: {error}"));
            Err(Error::new(Place::File(&shown), fault.hint("outboxd config prints a file to start from")))
        }
    }
}

impl TemplateFiles {
    /// Reads what the configuration says of templates, whatever else it lacks: there need not be one.
    pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<TemplateFiles, Error> {
        let file = read(path)?;
        let mut env: Vec<(String, String)> = env.collect();
        env.sort();
        let mut problems = Problems::default();
        let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        let mut document = Document::new(file, &env, &mut problems)?;
        let most = limits(document.once("limits", &mut problems)).event;
        let files = rules::template_files(&mut document.once("templates", &mut problems), most);
        problems.unless_any(files)
    }
}

impl Connection {
    /// Reads a connection that was typed outside the configuration, as an administrator's; errors call it `name`.
    pub fn load(text: &str, name: &str, env: impl Iterator<Item = (String, String)>) -> Result<Connection, Error> {
        let mut connection = connection::parse(text).map_err(|fault| Error::new(Place::Variable(name), fault))?;
        connection.password = connection.password.or(pgpassword(&env.collect::<Vec<_>>()));
        Ok(connection)
    }
}

fn pgpassword(env: &[(String, String)]) -> Option<Secret> {
    env.iter().find(|(name, value)| name == "PGPASSWORD" && !value.is_empty()).map(|(_, value)| Secret::new(value))
}

/// `further` is what says the URL beside the configuration, if anything can.
fn postgres(mut reader: Reader<'_, '_>, pgpassword: Option<Secret>, further: Option<&str>) -> Option<Postgres> {
    let connection = match further {
        Some(_) if reader.place("url").is_none() => {
            reader.miss("url", further);
            None
        }
        Some(_) | None => reader.read("url", |typed| connection::parse(&value::text(typed)?)),
    };
    let password = password(&mut reader);
    let slot = reader.read("slot", |typed| slot_name(value::text(typed)?)).unwrap_or_default();
    let publication = reader.read("publication", |typed| name(value::text(typed)?)).unwrap_or_default();
    let sender_timeout = reader.duration("sender_timeout");
    let mut connection = connection?;
    let place = reader.place("url").unwrap_or(reader.start());
    let certificates = connection.client_cert.iter_mut().flat_map(|(certificate, key)| [certificate, key]);
    for path in certificates.chain(&mut connection.sslrootcert) {
        *path = place.path(&path.to_string_lossy());
    }
    connection.password = password.or(connection.password).or(pgpassword);
    Some(Postgres { connection, slot, publication, sender_timeout })
}

/// `password` or `password_file`; where both are set, a variable weighs more than the file.
fn password(reader: &mut Reader<'_, '_>) -> Option<Secret> {
    let password = reader.secret("password");
    let file = reader.path("password_file");
    let weight = |place: Option<Place<'_>>| place.map(Place::is_variable);
    if let (Some(first), Some(second)) = (weight(reader.place("password")), weight(reader.place("password_file"))) {
        if first == second {
            reader.refuse("password_file", Fault::new("password is set as well").hint("keep one of the two"));
            return None;
        }
        if first {
            return password;
        }
    }
    let Some(file) = file else { return password };
    match read_secret(&file) {
        Ok(secret) => Some(secret),
        Err(fault) => {
            reader.refuse("password_file", fault);
            None
        }
    }
}

fn kafka(mut reader: Reader<'_, '_>) -> Kafka {
    let brokers = reader.read("brokers", |typed| brokers(value::text(typed)?)).unwrap_or_default();
    let place = reader.place("properties").unwrap_or(reader.start());
    let properties = reader.map("properties", |name, typed| property(name, typed, place)).into_iter().collect();
    let create_topics = reader.table("create_topics").map(|mut table| CreateTopics {
        partitions: i32::try_from(table.integer("partitions")).expect("the schema bounds it"),
        replication: i32::try_from(table.integer("replication")).expect("the schema bounds it"),
        config: table.map("config", |_, typed| value::scalar_text(typed)).into_iter().collect(),
    });
    Kafka { brokers, create_topics, properties }
}

fn brokers(text: String) -> Result<String, Fault> {
    if text.split(',').any(|broker| broker.trim().is_empty()) {
        return Err(Fault::new("has an empty place between its commas").hint("host:port,host:port"));
    }
    Ok(text)
}

fn property(name: &str, typed: &DeValue<'_>, place: Place<'_>) -> Result<Secret, Fault> {
    let secret = match typed {
        DeValue::Table(table) => match (table.len(), table.get("file").map(|file| file.get_ref())) {
            (1, Some(DeValue::String(file))) => read_secret(&place.path(file))?,
            _ => {
                return Err(value::expected("text or { file = \"…\" }", typed)
                    .hint("a name with dots needs quotes: \"security.protocol\" = …"));
            }
        },
        scalar => Secret::new(value::scalar_text(scalar)?),
    };
    properties::check(name, secret.reveal())?;
    Ok(secret)
}

fn read_secret(path: &Path) -> Result<Secret, Fault> {
    match fs::read_to_string(path) {
        Ok(text) => match text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line))
        {
            "" => Err(Fault::new(format!("{} is empty", path.display()))),
            secret => Ok(Secret::new(secret)),
        },
        Err(error) => Err(Fault::new(format!("cannot read {}: {error}", path.display()))),
    }
}

fn http(mut reader: Reader<'_, '_>) -> Http {
    Http { listen: reader.read("listen", value::address).expect("listen has a default") }
}

fn limits(mut reader: Reader<'_, '_>) -> Limits {
    let limits = Limits {
        memory: reader.size("memory"),
        window: usize::try_from(reader.integer("window")).expect("the schema bounds it"),
        event: reader.size("event"),
        join: usize::try_from(reader.integer("join")).expect("the schema bounds it"),
        settle: reader.duration("settle"),
        shutdown: reader.duration("shutdown"),
        primary_grace: reader.duration("primary_grace"),
        backoff: reader.duration("backoff"),
        probe: reader.duration("probe"),
        sql: reader.duration("sql"),
        slot_creation: reader.duration("slot_creation"),
    };
    if limits.event > limits.memory {
        let field = if reader.place("event").is_some() { "event" } else { "memory" };
        let fault = Fault::new(format!(
            "limits.event ({} bytes) is above limits.memory ({} bytes)",
            limits.event, limits.memory
        ));
        reader
            .refuse(field, fault.hint("one event must fit into the memory: lower limits.event or raise limits.memory"));
    }
    limits
}

/// The `[[outbox]]` blocks of a document.
struct Outboxes<'d> {
    outboxes: Vec<Outbox>,
    /// Where each of them begins.
    places: Vec<Place<'d>>,
    /// What was asked for beside them, if none of them is that already.
    asked: Option<Outbox>,
}

/// Where a block is asked for, nothing is read that was neither typed nor asked for.
fn outboxes<'d>(document: &mut Document<'d>, asked: Option<Block<'_>>, problems: &mut Problems) -> Outboxes<'d> {
    let mut outboxes: Vec<Outbox> = Vec::new();
    let (mut places, mut words) = (Vec::new(), Vec::new());
    let blocks = if asked.is_some() { document.take("outbox") } else { document.one_or_more("outbox") };
    for block in blocks {
        let mut reader = Reader::new("outbox", block, problems);
        let outbox = outbox(&mut reader);
        places.push(reader.start());
        words.push(preset::typed_word(&mut reader));
        if outboxes.iter().any(|earlier| earlier.source == outbox.source) {
            reader.refuse_block(Fault::new("a block above has the same table or message_prefix"));
        } else if let Some(fault) = join::clash(&outboxes, &outbox) {
            reader.refuse_block(fault);
        }
        outboxes.push(outbox);
    }
    let asked = asked.and_then(|block| {
        let mut reader = Reader::new("outbox", block, problems);
        let outbox = outbox(&mut reader);
        let word = preset::typed_word(&mut reader);
        if let Some(fault) = join::clash(&outboxes, &outbox) {
            reader.refuse_block(fault);
        }
        let Some(at) = outboxes.iter().position(|typed| typed.source == outbox.source) else { return Some(outbox) };
        if outboxes[at].preset.word() != outbox.preset.word() {
            problems.add(places[at], init::another_preset(&outbox.source, &words[at], &word).of("outbox"));
        }
        None
    });
    Outboxes { outboxes, places, asked }
}

fn outbox(reader: &mut Reader<'_, '_>) -> Outbox {
    let prefix = reader.read("message_prefix", |typed| message_prefix(value::text(typed)?));
    let (preset, usual) = preset::preset(reader);
    let table = preset::table(reader, &usual);
    let both = reader.place("table").is_some() && reader.place("message_prefix").is_some();
    if both {
        reader.refuse_block(
            Fault::new("has both a table and a message_prefix").hint("write one [[outbox]] block for each"),
        );
    }
    let columns = match (reader.table("columns"), usual.columns) {
        (Some(mut table), usual) => columns(&mut table, usual.as_ref()),
        (None, Some(usual)) => usual,
        (None, None) => columns(&mut reader.empty_table("columns"), None),
    };
    let source = prefix.unwrap_or(table);
    let join = join::read(reader, &preset, &source);
    let writeback = writeback::writeback(reader, &source, &preset, &columns, join.as_ref());
    Outbox { source, preset, columns, join, writeback }
}

/// What is typed, over what is usual for the preset or else in the schema.
fn columns(reader: &mut Reader<'_, '_>, usual: Option<&Columns>) -> Columns {
    let mut optional = |part, usual: Option<&Option<String>>| match usual {
        Some(usual) if reader.place(part).is_none() => usual.clone(),
        Some(_) | None => reader.read(part, value::any_text).filter(|name| !name.is_empty()),
    };
    let aggregate_type = optional("aggregate_type", usual.map(|usual| &usual.aggregate_type));
    let aggregate_id = optional("aggregate_id", usual.map(|usual| &usual.aggregate_id));
    let event_type = optional("event_type", usual.map(|usual| &usual.event_type));
    let timestamp = optional("timestamp", usual.map(|usual| &usual.timestamp));
    let headers = optional("headers", usual.map(|usual| &usual.headers));
    let partition = optional("partition", usual.map(|usual| &usual.partition));
    let mut required = |part, usual: Option<&String>| match usual {
        Some(usual) if reader.place(part).is_none() => usual.clone(),
        Some(_) | None => reader.text(part).expect("it has a default"),
    };
    let id = required("id", usual.map(|usual| &usual.id));
    let payload = required("payload", usual.map(|usual| &usual.payload));
    Columns { id, aggregate_type, aggregate_id, event_type, payload, timestamp, headers, partition }
}

fn dead_letters(mut reader: Reader<'_, '_>, rules: &Rules, outboxes: &[Outbox]) -> DeadLetters {
    let topic = reader.read("topic", |typed| literal_topic(value::text(typed)?)).unwrap_or_default();
    let in_kafka = reader.choice("store", &[("postgres", false), ("kafka", true)]);
    let order = reader.choice("order", &[("skip", Order::Skip), ("park-key", Order::ParkKey)]);
    let backoff = match reader.table("backoff") {
        Some(mut table) => backoff(&mut table),
        None => backoff(&mut reader.empty_table("backoff")),
    };
    if in_kafka {
        // What a topic cannot give must not be promised.
        for field in ["max_attempts", "backoff", "retention"] {
            if reader.place(field).is_some() {
                reader
                    .refuse(field, Fault::new("needs store = \"postgres\": letters in a topic are never tried again"));
            }
        }
        if order == Order::ParkKey {
            reader.refuse(
                "order",
                Fault::new("\"park-key\" needs store = \"postgres\": a topic does not tell which keys are parked"),
            );
        }
    } else if reader.place("topic").is_some() {
        reader.refuse("topic", Fault::new("is set, and letters are stored in PostgreSQL").hint("store = \"kafka\""));
    }
    if order == Order::ParkKey
        && let Some(fault) = rules::keyed_by_id(rules, outboxes).or_else(|| join::unknown_lane(rules, outboxes))
    {
        reader.refuse("order", fault);
    }
    DeadLetters {
        store: if in_kafka { Store::Kafka(topic) } else { Store::Postgres },
        unknown_topic: reader.choice("unknown_topic", &[("wait", UnknownTopic::Wait), ("park", UnknownTopic::Park)]),
        max_attempts: u32::try_from(reader.integer("max_attempts")).expect("the schema bounds it"),
        backoff,
        order,
        max_parked_keys: usize::try_from(reader.integer("max_parked_keys")).expect("the schema bounds it"),
        max_rate: u64::try_from(reader.integer("max_rate")).expect("the schema bounds it"),
        retention: reader.duration("retention"),
    }
}

fn backoff(reader: &mut Reader<'_, '_>) -> Backoff {
    let (first, max) = (reader.duration("first"), reader.duration("max"));
    let factor = u32::try_from(reader.integer("factor")).expect("the schema bounds it");
    Backoff { first, factor, max }
}

/// A topic's name without places for columns.
pub(super) fn literal_topic(text: String) -> Result<String, Fault> {
    rules::topic_name(&Pattern { pieces: vec![Piece::Literal(text.clone())] })?;
    Ok(text)
}

fn slot_name(text: String) -> Result<String, Fault> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !text.bytes().all(valid) || text.len() > NAME_BYTES_MAX {
        return Err(Fault::new(format!("\"{text}\" is not a slot's name"))
            .hint("lower-case letters, digits and _, at most 63 of them"));
    }
    Ok(text)
}

fn name(text: String) -> Result<String, Fault> {
    if text.len() > NAME_BYTES_MAX {
        return Err(Fault::new(format!("\"{text}\" is longer than {NAME_BYTES_MAX} bytes")));
    }
    Ok(text)
}

fn message_prefix(text: String) -> Result<OutboxSource, Fault> {
    if text == "outboxd" {
        return Err(Fault::new("the prefix \"outboxd\" is reserved for the relay's own heartbeats"));
    }
    Ok(OutboxSource::MessagePrefix(text))
}

/// `name`, `schema.name`, `"a name"."with a dot."`; unlike in SQL, a name without quotes keeps its case.
pub(super) fn table_name(text: &str) -> Result<OutboxSource, Fault> {
    let refuse = || {
        Fault::new(format!("\"{text}\" is not a table's name"))
            .hint("schema.name, or name alone for the schema public; a name with a dot in double quotes")
    };
    let (first, rest) = identifier(text).ok_or_else(refuse)?;
    let (schema, table) = match rest.strip_prefix('.') {
        Some(rest) => match identifier(rest) {
            Some((second, "")) => (first, second),
            Some(_) | None => return Err(refuse()),
        },
        None if rest.is_empty() => ("public".to_owned(), first),
        None => return Err(refuse()),
    };
    Ok(OutboxSource::Table { schema: name(schema)?, name: name(table)? })
}

/// One identifier in front, and what stands behind it.
fn identifier(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find(['.', '"']).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return (!name.is_empty()).then_some((name, rest)),
        }
    }
}

#[cfg(test)]
mod tests;
