//! `[kafka]`: brokers, how topics are created, and the producer's properties under librdkafka's names.

use super::draft::quoted;
use super::input::Form;
use super::settings::Setting;
use super::{Finding, Work};

/// What becomes of a property of Kafka's Java producer.
enum Use {
    /// librdkafka has it, under this name.
    As(&'static str),
    /// The same, and its value is never shown.
    Secret(&'static str),
    /// outboxd sets it; these values say the same, others are lost.
    Ours(&'static [&'static str], &'static str),
    /// There is nothing to set.
    NotNeeded(&'static str),
    /// It has no counterpart.
    Lost(&'static str),
    /// Read together with others.
    Special,
}

/// What `limits.event` is when nobody sets it, and what it may be at most.
const OWN_LIMIT: u64 = 16 << 20;
const EVENT_MAX: u64 = 1 << 30;

const TUNING: &str = "tuning of the Java client";
const LOGIN: &str = "this build of librdkafka has no such login; PLAIN and SCRAM are there";

static PROPERTIES: &[(&str, Use)] = &[
    ("acks", Use::Ours(&["all", "-1"], "the slot moves forward only on acks=all")),
    ("enable.idempotence", Use::Ours(&["true"], "without it a retry can repeat or reorder records")),
    ("retries", Use::Ours(&["2147483647"], "a record is tried until it is answered")),
    ("delivery.timeout.ms", Use::Ours(&["2147483647"], "a record is tried until it is answered")),
    ("max.in.flight.requests.per.connection", Use::Ours(&["1"], "records keep their order through any failure")),
    ("transactional.id", Use::Ours(&[], "outboxd alone decides about transactions")),
    (
        "partitioner.class",
        Use::Ours(
            &["org.apache.kafka.clients.producer.internals.DefaultPartitioner", "null", ""],
            "keys land where Java's default partitioner puts them",
        ),
    ),
    ("partitioner.ignore.keys", Use::Ours(&["false"], "a key decides the partition")),
    ("bootstrap.servers", Use::Special),
    ("max.request.size", Use::Special),
    ("compression.type", Use::As("compression.type")),
    ("compression.gzip.level", Use::Special),
    ("compression.lz4.level", Use::Special),
    ("compression.zstd.level", Use::Special),
    ("linger.ms", Use::As("linger.ms")),
    ("batch.size", Use::As("batch.size")),
    ("client.id", Use::As("client.id")),
    ("client.dns.lookup", Use::As("client.dns.lookup")),
    ("request.timeout.ms", Use::As("request.timeout.ms")),
    ("metadata.max.age.ms", Use::As("metadata.max.age.ms")),
    ("metadata.recovery.strategy", Use::As("metadata.recovery.strategy")),
    ("metadata.recovery.rebootstrap.trigger.ms", Use::As("metadata.recovery.rebootstrap.trigger.ms")),
    ("reconnect.backoff.ms", Use::As("reconnect.backoff.ms")),
    ("reconnect.backoff.max.ms", Use::As("reconnect.backoff.max.ms")),
    ("retry.backoff.ms", Use::As("retry.backoff.ms")),
    ("retry.backoff.max.ms", Use::As("retry.backoff.max.ms")),
    ("connections.max.idle.ms", Use::As("connections.max.idle.ms")),
    ("socket.connection.setup.timeout.ms", Use::As("socket.connection.setup.timeout.ms")),
    ("send.buffer.bytes", Use::As("socket.send.buffer.bytes")),
    ("receive.buffer.bytes", Use::As("socket.receive.buffer.bytes")),
    ("enable.metrics.push", Use::As("enable.metrics.push")),
    ("security.protocol", Use::As("security.protocol")),
    ("sasl.mechanism", Use::Special),
    ("sasl.jaas.config", Use::Special),
    ("ssl.truststore.location", Use::Special),
    ("ssl.truststore.type", Use::Special),
    ("ssl.truststore.password", Use::NotNeeded("librdkafka's PEM files of authorities have none")),
    ("ssl.truststore.certificates", Use::As("ssl.ca.pem")),
    ("ssl.keystore.location", Use::Special),
    ("ssl.keystore.type", Use::Special),
    ("ssl.keystore.password", Use::Secret("ssl.keystore.password")),
    ("ssl.key.password", Use::Secret("ssl.key.password")),
    ("ssl.keystore.key", Use::Secret("ssl.key.pem")),
    ("ssl.keystore.certificate.chain", Use::As("ssl.certificate.pem")),
    ("ssl.endpoint.identification.algorithm", Use::Special),
    (
        "ssl.cipher.suites",
        Use::Lost("OpenSSL has other names for cipher suites; librdkafka's property has the same name"),
    ),
    ("ssl.engine.factory.class", Use::Lost("a Java class has no counterpart")),
    ("ssl.enabled.protocols", Use::NotNeeded("TLS 1.2 and 1.3 are negotiated")),
    ("ssl.protocol", Use::NotNeeded("TLS 1.2 and 1.3 are negotiated")),
    ("ssl.provider", Use::NotNeeded(TUNING)),
    ("ssl.client.auth", Use::NotNeeded("of use to brokers only")),
    ("ssl.keymanager.algorithm", Use::NotNeeded(TUNING)),
    ("ssl.trustmanager.algorithm", Use::NotNeeded(TUNING)),
    ("ssl.secure.random.implementation", Use::NotNeeded(TUNING)),
    ("sasl.client.callback.handler.class", Use::Lost("a Java class has no counterpart")),
    ("sasl.login.callback.handler.class", Use::Lost("a Java class has no counterpart")),
    ("sasl.login.class", Use::Lost("a Java class has no counterpart")),
    ("sasl.kerberos.*", Use::Lost(LOGIN)),
    ("sasl.oauthbearer.*", Use::Lost(LOGIN)),
    ("sasl.login.*", Use::NotNeeded(TUNING)),
    ("key.serializer", Use::Special),
    ("value.serializer", Use::Special),
    ("interceptor.classes", Use::Lost("a Java class has no counterpart")),
    ("security.providers", Use::Lost("a Java class has no counterpart")),
    ("config.providers", Use::Lost("outboxd reads secrets from files and variables only")),
    ("buffer.memory", Use::NotNeeded("limits.memory bounds what is in flight")),
    ("max.block.ms", Use::NotNeeded("outboxd waits for brokers for as long as it takes")),
    ("transaction.timeout.ms", Use::NotNeeded("there are no transactions")),
    ("transaction.two.phase.commit.enable", Use::NotNeeded("there are no transactions")),
    ("socket.connection.setup.timeout.max.ms", Use::NotNeeded(TUNING)),
    ("partitioner.adaptive.partitioning.enable", Use::NotNeeded(TUNING)),
    ("partitioner.availability.timeout.ms", Use::NotNeeded(TUNING)),
    ("metadata.max.idle.ms", Use::NotNeeded(TUNING)),
    ("client.rack", Use::NotNeeded("of use to consumers only")),
    ("metric.reporters", Use::NotNeeded("outboxd has metrics of its own")),
    ("auto.include.jmx.reporter", Use::NotNeeded("outboxd has metrics of its own")),
    ("metrics.*", Use::NotNeeded("outboxd has metrics of its own")),
];

/// The settings of the producer that are not yet written.
type Producer = Vec<(String, Setting)>;

/// Writes the section.
pub fn write(work: &mut Work) {
    sink(work);
    let mut producer = work.settings.take_under("producer.override.");
    brokers(work, &mut producer);
    topics(work);
    compression_level(work, &mut producer);
    login(work, &mut producer);
    stores(work, &mut producer);
    for (name, setting) in producer {
        let covers = |rule: &str| match rule.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == rule,
        };
        match PROPERTIES.iter().find(|(rule, _)| covers(rule)) {
            Some((_, usage)) => property(work, &name, usage, &setting),
            None => {
                let known: Vec<&str> = known().collect();
                work.unknown(setting.origin, &name, &known);
            }
        }
    }
    for start in ["consumer.override.", "admin.override."] {
        for (_, setting) in work.settings.take_under(start) {
            work.not_needed(setting.origin, "outboxd has one client of Kafka: see producer.override");
        }
    }
}

/// The producer's properties that somebody knows.
pub fn known() -> impl Iterator<Item = &'static str> {
    PROPERTIES.iter().map(|(name, _)| *name)
}

/// Debezium Server can send elsewhere; then nothing is comparable.
fn sink(work: &mut Work) {
    if work.form != Form::Server {
        return;
    }
    match work.settings.take("server:sink.type") {
        Some(sink) if sink.is("kafka") => {}
        Some(sink) => {
            let message = format!("is {}: outboxd sends to Kafka only", sink.value.shown());
            work.lost(Finding::new(sink.origin, message));
        }
        None => work.lost(Finding::new(
            "debezium.sink.type",
            "not set: outboxd sends to Kafka, and this file does not say where",
        )),
    }
    for (name, setting) in work.settings.take_under("server:sink.") {
        match name.starts_with("kafka.") {
            true => work.not_needed(setting.origin, "outboxd waits for every acknowledgement"),
            false => work.not_needed(setting.origin, "belongs to another sink"),
        }
    }
}

fn property(work: &mut Work, name: &str, usage: &Use, setting: &Setting) {
    let origin = setting.origin.as_str();
    match usage {
        Use::As(ours) => same(work, ours, setting),
        Use::Secret(ours) => secret(work, ours, setting),
        Use::Ours(equal, why) if equal.iter().any(|value| setting.is(value)) => {
            work.not_needed(origin, format!("set by outboxd itself: {why}"));
        }
        Use::Ours(_, why) => {
            work.lost(Finding::new(origin, format!("outboxd sets it itself, and otherwise: {why}")));
        }
        Use::NotNeeded(why) => work.not_needed(origin, *why),
        Use::Lost(why) => work.lost(Finding::new(origin, *why)),
        Use::Special => special(work, name, setting),
    }
}

/// A property that librdkafka has, too.
fn same(work: &mut Work, name: &str, setting: &Setting) {
    match setting.text() {
        // The operating system's own buffer, which librdkafka uses unless told.
        Some(text) if text == "-1" && name.starts_with("socket.") => {
            work.not_needed(&setting.origin, "the operating system's own, as librdkafka's default");
        }
        Some(text) => work.draft.properties.text(name, &text, &setting.origin),
        None => {
            let shown = setting.value.shown();
            work.draft.properties.off(name, "\"\"", &format!("FILL IN: {} is {shown}", setting.origin));
            let message = format!("is {shown}, which outboxd does not look up: write it into kafka.properties");
            work.fill_in(Finding::new(&setting.origin, message));
        }
    }
}

/// A property whose value is never shown.
fn secret(work: &mut Work, name: &str, setting: &Setting) {
    let references = setting.value.references().join("");
    let what = if references.is_empty() { "a secret, not copied".to_owned() } else { format!("is {references}") };
    let file = format!("{{ file = {} }}", quoted(&format!("/run/secrets/{name}")));
    work.draft.properties.off(name, &file, &format!("FILL IN: {} {what}", setting.origin));
    let message = format!("{what}: give it by a file, \"{name}\" = {{ file = … }} in kafka.properties");
    work.fill_in(Finding::new(&setting.origin, message));
}

fn special(work: &mut Work, name: &str, setting: &Setting) {
    let text = setting.text().unwrap_or_default();
    let origin = setting.origin.as_str();
    match name {
        "max.request.size" => request_size(work, &text, origin),
        "ssl.endpoint.identification.algorithm" => {
            let ours = if text.is_empty() { "none" } else { &text };
            work.draft.properties.text(name, ours, origin);
        }
        "sasl.mechanism" => match text.as_str() {
            "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" => work.draft.properties.text(name, &text, origin),
            _ => work.lost(Finding::new(origin, LOGIN)),
        },
        "key.serializer" | "value.serializer" => match text.rsplit('.').next() {
            Some("StringSerializer" | "ByteArraySerializer") => {
                work.not_needed(origin, "the formats decide about bytes")
            }
            _ => work.lost(Finding::new(origin, "a serializer of your own has no counterpart")),
        },
        _ => work.not_needed(origin, "changes nothing without the property it belongs to"),
    }
}

/// The largest record; librdkafka's own property is refused because `limits.event` says it.
fn request_size(work: &mut Work, text: &str, origin: &str) {
    match text.parse::<u64>() {
        Ok(bytes) if bytes > OWN_LIMIT => {
            let bytes = bytes.min(EVENT_MAX);
            work.draft.limits.text("event", &format!("{bytes}B"), origin);
            work.draft.limits.text("memory", &format!("{}B", bytes * 2), "room for two of the largest");
        }
        Ok(_) => {
            work.not_needed(origin, "limits.event lets rows of 16 MiB through; the topic's max.message.bytes decides")
        }
        Err(_) => work.lost(Finding::new(origin, "is no number of bytes").hint("limits.event is the largest row")),
    }
}

fn brokers(work: &mut Work, producer: &mut Producer) {
    let Some(setting) = take(producer, "bootstrap.servers") else {
        let (option, whose) = match work.form {
            Form::Connect => ("bootstrap.servers", "the worker's own: a connector's file does not tell them"),
            Form::Server => ("debezium.sink.kafka.producer.bootstrap.servers", "not set: nothing says where Kafka is"),
        };
        work.draft.kafka.text("brokers", "FILL-IN:9092", &format!("FILL IN: {whose}"));
        return work.fill_in(Finding::new(option, format!("{whose}; write them into kafka.brokers")));
    };
    match setting.text() {
        Some(text) => work.draft.kafka.text("brokers", &text, &setting.origin),
        None => {
            let shown = setting.value.shown();
            work.draft.kafka.text("brokers", "FILL-IN:9092", &format!("FILL IN: {} is {shown}", setting.origin));
            let message = format!("is {shown}, which outboxd does not look up: write it into kafka.brokers");
            work.fill_in(Finding::new(setting.origin, message));
        }
    }
}

/// `topic.creation.default.*`; groups of topics are lost.
fn topics(work: &mut Work) {
    const DEFAULT: &str = "topic.creation.default.";
    for group in work.settings.take("topic.creation.groups").map(|groups| groups.list()).unwrap_or_default() {
        let start = format!("topic.creation.{group}.");
        if group != "default" && !work.settings.take_under(&start).is_empty() {
            let message = "outboxd creates all topics alike: those of this group would be created as the default says";
            work.lost(Finding::new(format!("{start}*"), message).hint("create them beforehand"));
        }
    }
    let mut defaults = work.settings.take_under(DEFAULT);
    if defaults.is_empty() {
        let message = "missing topics are left to the brokers to create; outboxd waits until they exist, and says so";
        let option = match work.form {
            Form::Connect => format!("{DEFAULT}*"),
            Form::Server => "topics".to_owned(),
        };
        return work.differs(Finding::new(option, message).hint("kafka.create_topics creates them"));
    }
    let mut numbers = Vec::new();
    for (name, ours) in [("partitions", "partitions"), ("replication.factor", "replication")] {
        let setting = take(&mut defaults, name);
        let number = setting
            .as_ref()
            .and_then(Setting::text)
            .and_then(|text| text.parse::<u32>().ok())
            .filter(|number| *number > 0);
        match number {
            Some(number) => numbers.push(format!("{ours} = {number}")),
            None => {
                let origin = setting.map_or(format!("{DEFAULT}{name}"), |setting| setting.origin);
                work.fill_in(Finding::new(
                    origin,
                    format!("the brokers' default: write the number into {ours} of kafka.create_topics"),
                ));
                numbers.push(format!("{ours} = 0"));
            }
        }
    }
    let mut config = Vec::new();
    for (name, setting) in defaults {
        match setting.text() {
            Some(text) => config.push(format!("{} = {}", quoted(&name), quoted(&text))),
            None => work.lost(Finding::new(setting.origin, "is a reference, which outboxd does not look up")),
        }
    }
    if !config.is_empty() {
        numbers.push(format!("config = {{ {} }}", config.join(", ")));
    }
    let value = format!("{{ {} }}", numbers.join(", "));
    if value.contains(" = 0") {
        work.draft.kafka.off("create_topics", &value, "FILL IN: topic.creation.default.* leaves it to the brokers");
    } else {
        work.draft.kafka.raw("create_topics", &value, "topic.creation.default.*");
    }
}

/// Java has a level for each kind of compression, librdkafka one for the kind that is set.
fn compression_level(work: &mut Work, producer: &mut Producer) {
    let kind = producer.iter().find(|(name, _)| name == "compression.type").and_then(|(_, setting)| setting.text());
    let Some(kind) = kind else { return };
    if let Some(setting) = take(producer, &format!("compression.{kind}.level")) {
        same(work, "compression.level", &setting);
    }
}

/// `sasl.jaas.config` holds what librdkafka takes as name and password.
fn login(work: &mut Work, producer: &mut Producer) {
    let Some(setting) = take(producer, "sasl.jaas.config") else { return };
    let text = setting.value.shown();
    let known = ["PlainLoginModule", "ScramLoginModule"].iter().any(|module| text.contains(module));
    match jaas(&text, "username").filter(|_| known) {
        Some(user) if !user.contains("${") => work.draft.properties.text("sasl.username", &user, &setting.origin),
        None if setting.value.references().is_empty() => {
            return work
                .lost(Finding::new(setting.origin, "its login module has no counterpart; PLAIN and SCRAM are there"));
        }
        Some(_) | None => {
            work.draft.properties.off("sasl.username", "\"\"", &format!("FILL IN: from {}", setting.origin));
        }
    }
    secret(work, "sasl.password", &setting);
}

/// The value of `name="…"` or `name='…'` or `name=…`.
fn jaas(text: &str, name: &str) -> Option<String> {
    let start = text.find(&format!("{name}="))? + name.len() + 1;
    let rest = &text[start..];
    match rest.chars().next()? {
        quote @ ('"' | '\'') => Some(rest[1..].split(quote).next()?.to_owned()),
        _ => Some(rest.split([' ', ';', '\n', '\t']).next()?.to_owned()),
    }
}

/// Java's key stores: librdkafka reads PEM, and PKCS#12 for the client's own key.
fn stores(work: &mut Work, producer: &mut Producer) {
    let kind = |setting: Option<Setting>, file: &str| {
        let said = setting.and_then(|setting| setting.text()).map(|kind| kind.to_uppercase());
        said.unwrap_or_else(|| if file.ends_with(".p12") { "PKCS12".to_owned() } else { "JKS".to_owned() })
    };
    if let Some(setting) = take(producer, "ssl.truststore.location") {
        let file = setting.text().unwrap_or_default();
        match kind(take(producer, "ssl.truststore.type"), &file).as_str() {
            "PEM" => same(work, "ssl.ca.location", &setting),
            _ => convert_store(work, &setting, "ssl.ca.location", "keytool -exportcert -rfc"),
        }
    }
    if let Some(setting) = take(producer, "ssl.keystore.location") {
        let file = setting.text().unwrap_or_default();
        match kind(take(producer, "ssl.keystore.type"), &file).as_str() {
            "PEM" => {
                same(work, "ssl.certificate.location", &setting);
                same(work, "ssl.key.location", &setting);
            }
            "PKCS12" => same(work, "ssl.keystore.location", &setting),
            _ => {
                convert_store(work, &setting, "ssl.keystore.location", "keytool -importkeystore -deststoretype PKCS12")
            }
        }
    }
}

fn convert_store(work: &mut Work, setting: &Setting, name: &str, tool: &str) {
    work.draft.properties.off(name, "\"\"", &format!("FILL IN: {} is a Java key store", setting.origin));
    let message =
        format!("a Java key store: convert it ({tool}) and name the new file by \"{name}\" in kafka.properties");
    work.fill_in(Finding::new(&setting.origin, message));
}

fn take(settings: &mut Producer, name: &str) -> Option<Setting> {
    let index = settings.iter().position(|(known, _)| known == name)?;
    Some(settings.remove(index).1)
}

#[cfg(test)]
mod tests {
    use super::jaas;

    #[test]
    fn a_login_is_read_from_its_jaas_text() {
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"a b\" password='p;q';";
        assert_eq!(jaas(scram, "username").as_deref(), Some("a b"));
        assert_eq!(jaas("PlainLoginModule required username=app password=x;", "username").as_deref(), Some("app"));
        assert_eq!(jaas("x required;", "username"), None);
    }
}
