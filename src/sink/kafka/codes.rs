//! Whose failure is it: one table from librdkafka's error codes.

use rdkafka::error::RDKafkaErrorCode as Code;

use crate::sink::Whose;

/// Whose failure a failed delivery is.
pub(super) fn whose(code: Code) -> Whose {
    match code {
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidMessage => Whose::Event,
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::InvalidTopic
        | Code::PolicyViolation
        | Code::Authentication
        | Code::SaslAuthenticationFailed => Whose::SetUp,
        // Outages, fencing, purges, and whatever a later library reports: trying again with a new producer is safe.
        // So is an unknown partition: the cluster had shown it before the offer, and a broker that has not heard of it yet
        // will. One that does not exist is found before the next offer.
        _ => Whose::World,
    }
}
