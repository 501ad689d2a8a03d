//! Whose failure is it: one table from librdkafka's error codes.

use rdkafka::error::RDKafkaErrorCode as Code;

use crate::sink::Whose;

/// Whose failure a failed delivery is.
pub(super) fn whose(code: Code) -> Whose {
    match code {
        // Too large for the topic's `max.message.bytes`, or for a segment of its log; or not what the topic takes; or for a topic
        // that no client may write.
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::InvalidMessage => Whose::Event,
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::PolicyViolation
        | Code::Authentication
        | Code::SaslAuthenticationFailed => Whose::SetUp,
        // Outages, fencing, purges, and whatever a later library reports: trying again with a new producer is safe.
        // So is an unknown partition: the cluster had shown it before the offer, and a broker that has not heard of it yet
        // will. One that does not exist is found before the next offer.
        _ => Whose::World,
    }
}

/// True when less of it might be taken.
pub(super) fn is_for_size(code: Code) -> bool {
    matches!(code, Code::MessageSizeTooLarge | Code::MessageBatchTooLarge)
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaRespErr;

    use super::*;

    /// The numbers are Kafka's protocol (below zero: librdkafka's), and what the documents name.
    const EVENT: [i32; 7] = [2, 4, 10, 17, 18, 32, 87];
    const SET_UP: [i32; 7] = [-188, -169, 3, 29, 31, 44, 58];

    #[test]
    fn each_listed_number_is_the_events_or_the_set_ups_and_every_other_one_is_the_worlds() {
        let code = |number: i32| Some((number, Code::from(RDKafkaRespErr::try_from(number).ok()?)));
        let known: Vec<(i32, Code)> = (-200..=200).filter_map(code).collect();
        for (number, code) in &known {
            let expected = match number {
                number if EVENT.contains(number) => Whose::Event,
                number if SET_UP.contains(number) => Whose::SetUp,
                _ => Whose::World,
            };
            assert_eq!(whose(*code), expected, "{number} ({code:?})");
        }
        let unknown = |number: &&i32| !known.iter().any(|(found, _)| found == *number);
        assert_eq!(EVENT.iter().chain(&SET_UP).find(unknown), None, "the library has no such code");
    }
}
