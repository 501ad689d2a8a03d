//! The librdkafka properties that a user may not set, because a promise rests on them, each with the reason.

use super::error::Fault;

/// What is to be done with the names it covers.
enum Rule {
    /// Never to be set; the text says why, and what to use instead.
    Refused { why: &'static str, instead: Option<&'static str> },
    /// Only this value, the one the relay sets itself.
    Only { value: &'static str, why: &'static str },
    /// A number up to this one.
    UpTo { most: u32, why: &'static str },
}

const ACKS: &str = "the slot moves forward only on acks=all, which the relay sets";
const RETRIES: &str = "a record is tried until it is answered; giving up would lose it or its order";
const IN_FLIGHT: &str =
    "a partition takes any first sequence number, so the second of two first batches can hide the loss of the first";

/// A name that ends in `*` covers all that start so. Both of librdkafka's names are listed where it has two.
static RULES: [(&str, Rule); 22] = [
    ("bootstrap.servers", refused("it has a field of its own", Some("kafka.brokers"))),
    ("metadata.broker.list", refused("it has a field of its own", Some("kafka.brokers"))),
    ("compression.codec", refused("it is another name of the same setting", Some("compression.type"))),
    ("acks", refused(ACKS, None)),
    ("request.required.acks", refused(ACKS, None)),
    ("enable.idempotence", refused("without it a retry can repeat or reorder records; the relay sets it", None)),
    (
        "enable.gapless.guarantee",
        refused("without it records behind a refused one overtake it; the relay sets it", None),
    ),
    ("retries", refused(RETRIES, None)),
    ("message.send.max.retries", refused(RETRIES, None)),
    ("message.timeout.ms", refused(RETRIES, None)),
    ("delivery.timeout.ms", refused(RETRIES, None)),
    ("max.in.flight", Rule::UpTo { most: 1, why: IN_FLIGHT }),
    ("max.in.flight.requests.per.connection", Rule::UpTo { most: 1, why: IN_FLIGHT }),
    ("transactional.id", refused("the relay alone decides about transactions", None)),
    ("partitioner", Rule::Only { value: "murmur2_random", why: "keys must land where Java producers put them" }),
    ("queue.buffering.max.ms", refused("it has a better known name", Some("the property \"linger.ms\""))),
    ("queue.buffering.max.messages", refused("the relay bounds its own queue", Some("limits.window"))),
    ("queue.buffering.max.kbytes", refused("the relay bounds its own queue", Some("limits.memory"))),
    ("queue.buffering.*", refused("the relay bounds its own queue", Some("limits.memory and limits.window"))),
    ("message.max.bytes", refused("it has a field of its own", Some("limits.event"))),
    ("queuing.strategy", refused("anything but fifo changes the order of records", None)),
    ("delivery.report.only.error", refused("the slot moves forward by the reports of success", None)),
];

const fn refused(why: &'static str, instead: Option<&'static str>) -> Rule {
    Rule::Refused { why, instead }
}

/// Refuses a property that would break a promise. The value is never repeated: any of them may be a secret.
pub(super) fn check(name: &str, value: &str) -> Result<(), Fault> {
    let covers = |rule: &str| match rule.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == rule,
    };
    let Some((_, rule)) = RULES.iter().find(|(rule, _)| covers(rule)) else { return Ok(()) };
    match rule {
        Rule::Refused { why, instead } => {
            let fault = Fault::new(format!("refused: {why}"));
            Err(match instead {
                Some(instead) => fault.hint(format!("use {instead}")),
                None => fault.hint("remove it"),
            })
        }
        Rule::Only { value: only, .. } if value == *only => Ok(()),
        Rule::Only { value: only, why } => {
            Err(Fault::new(format!("refused: {why}")).hint(format!("only {only} is allowed")))
        }
        Rule::UpTo { most, .. } if value.parse::<u32>().is_ok_and(|number| (1..=*most).contains(&number)) => Ok(()),
        Rule::UpTo { most, why } => Err(Fault::new(format!("refused: {why}")).hint(format!("from 1 to {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_would_break_a_promise_is_refused() {
        for name in [
            "acks",
            "request.required.acks",
            "enable.idempotence",
            "enable.gapless.guarantee",
            "retries",
            "message.send.max.retries",
            "message.timeout.ms",
            "delivery.timeout.ms",
            "transactional.id",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
            "queue.buffering.max.ms",
            "queue.buffering.backpressure.threshold",
            "bootstrap.servers",
            "metadata.broker.list",
            "compression.codec",
            "message.max.bytes",
            "queuing.strategy",
            "delivery.report.only.error",
        ] {
            assert!(check(name, "all").is_err(), "{name}");
        }
    }

    #[test]
    fn what_equals_our_own_value_is_allowed() {
        for (name, value, allowed) in [
            ("partitioner", "murmur2_random", true),
            ("partitioner", "consistent", false),
            ("max.in.flight", "1", true),
            ("max.in.flight", "2", false),
            ("max.in.flight.requests.per.connection", "1", true),
            ("max.in.flight.requests.per.connection", "1000000", false),
            ("max.in.flight", "many", false),
            ("compression.type", "zstd", true),
            ("linger.ms", "20", true),
            ("sasl.password", "s3cret", true),
        ] {
            assert_eq!(check(name, value).is_ok(), allowed, "{name}={value}");
        }
    }
}
