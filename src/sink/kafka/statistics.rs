//! What librdkafka tells of itself once a second, as far as the relay wants to know it.
//!
//! Its JSON enters, with some paragraphs for every partition of every topic; the brokers' leave. The rest is passed over
//! without being kept: with a thousand topics it is megabytes, and taken apart several times that.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use crate::metrics::{BrokerStatistics, KafkaStatistics};

/// One report.
#[derive(Debug, Deserialize)]
pub(super) struct Statistics {
    msg_cnt: u64,
    msg_size: u64,
    brokers: HashMap<String, Broker>,
}

#[derive(Debug, Deserialize)]
struct Broker {
    nodename: String,
    /// Below zero for what is not known to be a broker of the cluster.
    nodeid: i32,
    state: String,
    /// Records in requests without an answer.
    waitresp_msg_cnt: i64,
    /// Microseconds since something was sent and received; below zero before the first time.
    txidle: i64,
    rxidle: i64,
    txerrs: u64,
    rxerrs: u64,
    req_timeouts: u64,
    txretries: u64,
    rtt: Option<Window>,
}

/// In microseconds.
#[derive(Debug, Deserialize)]
struct Window {
    p50: i64,
    p99: i64,
}

impl Statistics {
    pub(super) fn read(json: &[u8]) -> serde_json::Result<Statistics> {
        serde_json::from_slice(json)
    }

    /// How many brokers are connected.
    pub(super) fn brokers_up(&self) -> usize {
        self.known().filter(|broker| broker.state == "UP").count()
    }

    /// The broker that has records of ours and has been silent for longest. One request is under way at a time, so a
    /// broker that owes an answer was sent nothing since.
    pub(super) fn silent_broker(&self) -> Option<(String, Duration)> {
        let owing = self.brokers.values().filter(|broker| broker.waitresp_msg_cnt > 0);
        let silent = owing.map(|broker| (broker.rxidle.min(broker.txidle), broker)).max_by_key(|(idle, _)| *idle);
        let (idle, broker) = silent.filter(|(idle, _)| *idle > 0)?;
        Some((broker.nodename.clone(), Duration::from_micros(idle.unsigned_abs())))
    }

    /// What the metrics show.
    pub(super) fn summary(&self) -> KafkaStatistics {
        let micros = |value: i64| (value > 0).then(|| Duration::from_micros(value.unsigned_abs()));
        let brokers = self.known().map(|broker| BrokerStatistics {
            name: broker.nodename.clone(),
            round_trip_p50: broker.rtt.as_ref().and_then(|rtt| micros(rtt.p50)),
            round_trip_p99: broker.rtt.as_ref().and_then(|rtt| micros(rtt.p99)),
            errors: broker.txerrs + broker.rxerrs + broker.req_timeouts,
            retries: broker.txretries,
        });
        KafkaStatistics { queue_messages: self.msg_cnt, queue_bytes: self.msg_size, brokers: brokers.collect() }
    }

    fn known(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.values().filter(|broker| broker.nodeid >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_brokers_that_owe_an_answer_the_one_silent_for_longest_is_named() {
        let broker = |name: &str, id: i32, owes: i64, idle: i64| {
            format!(
                r#""{name}:9092/{id}": {{ "name": "x", "nodename": "{name}:9092", "nodeid": {id}, "state": "UP",
                   "waitresp_msg_cnt": {owes}, "txidle": {idle}, "rxidle": {idle}, "txerrs": 1, "rxerrs": 2,
                   "req_timeouts": 3, "txretries": 4, "rtt": {{ "p50": 500, "p99": 0, "hdrsize": 1 }},
                   "toppars": {{ "orders-0": {{ "topic": "orders", "partition": 0 }} }} }}"#
            )
        };
        let brokers = [broker("a", 1, 0, 9_000_000), broker("b", 2, 5, 4_000_000), broker("c", 3, 1, 1_000_000)];
        let bootstrap = broker("boot", -1, 0, -1);
        let json = format!(
            r#"{{ "name": "rdkafka#producer-1", "msg_cnt": 6, "msg_size": 600, "topics": {{ "orders": [1, 2] }},
               "brokers": {{ {}, {bootstrap} }} }}"#,
            brokers.join(", ")
        );
        let statistics = Statistics::read(json.as_bytes()).unwrap();
        assert_eq!(statistics.silent_broker(), Some(("b:9092".to_owned(), Duration::from_secs(4))));
        assert_eq!(statistics.brokers_up(), 3);
        let summary = statistics.summary();
        assert_eq!((summary.queue_messages, summary.queue_bytes, summary.brokers.len()), (6, 600, 3));
        let broker = &summary.brokers[0];
        assert_eq!((broker.errors, broker.retries, broker.round_trip_p99), (6, 4, None));
        assert_eq!(broker.round_trip_p50, Some(Duration::from_micros(500)));
    }
}
