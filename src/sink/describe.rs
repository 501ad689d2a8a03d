//! `DescribeTopics`, which the `rdkafka` crate does not wrap: topics enter, what the broker says about each leaves.
//!
//! The only request that shows whether this principal may *write* to a topic without writing to it (KIP-430), and one
//! that never creates a topic, unlike a producer's metadata request.
#![allow(unsafe_code)]
// Safety, once for the module: every pointer comes from librdkafka and is checked for null before use. What it gives
// away (queue, options, collection, event) is held by an `Owned`, which destroys it once and outlives all that is
// borrowed from it: topic descriptions live in the event, and are copied before it is dropped. The client outlives the
// call, because the caller holds a reference to it. Queue and event stay on this thread.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::RDKafkaRespErr;

/// What the broker says about one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) topic: String,
    /// The topic's own error: unknown, forbidden, …
    pub(super) error: Option<RDKafkaErrorCode>,
    /// Replicas and in-sync replicas of each partition.
    pub(super) partitions: Vec<Replicas>,
    /// WRITE is among the operations allowed to us; `None` when the broker does not tell.
    pub(super) may_write: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    pub(super) all: usize,
    pub(super) in_sync: usize,
}

/// Asks the cluster about the topics; blocks for up to `timeout`.
pub(super) fn describe_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<Description>, RDKafkaErrorCode> {
    let names: Vec<CString> = topics.iter().filter_map(|topic| CString::new(*topic).ok()).collect();
    let mut pointers_to_names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let rk = client.native_ptr();
    let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    unsafe {
        let queue = Owned::new(rd::rd_kafka_queue_new(rk), rd::rd_kafka_queue_destroy)?;
        let options = Owned::new(rd::rd_kafka_AdminOptions_new(rk, operation), rd::rd_kafka_AdminOptions_destroy)?;
        let collection = Owned::new(
            rd::rd_kafka_TopicCollection_of_topic_names(pointers_to_names.as_mut_ptr(), names.len()),
            rd::rd_kafka_TopicCollection_destroy,
        )?;
        let mut refusal = [0; 256];
        rd::rd_kafka_AdminOptions_set_request_timeout(options.0, timeout, refusal.as_mut_ptr(), refusal.len());
        let error = rd::rd_kafka_AdminOptions_set_include_authorized_operations(options.0, 1);
        if !error.is_null() {
            rd::rd_kafka_error_destroy(error);
        }
        rd::rd_kafka_DescribeTopics(rk, collection.0, options.0, queue.0);
        let event = Owned::new(rd::rd_kafka_queue_poll(queue.0, timeout), rd::rd_kafka_event_destroy)?;
        let error = rd::rd_kafka_event_error(event.0);
        if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(error.into());
        }
        let result = rd::rd_kafka_event_DescribeTopics_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Fail);
        }
        let mut count = 0;
        let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        Ok(pointers(topics, count).iter().map(|topic| description(*topic)).collect())
    }
}

unsafe fn description(topic: *const rd::rd_kafka_TopicDescription_t) -> Description {
    unsafe {
        let error = rd::rd_kafka_error_code(rd::rd_kafka_TopicDescription_error(topic));
        let mut count = 0;
        let partitions = rd::rd_kafka_TopicDescription_partitions(topic, &mut count);
        let partitions = pointers(partitions, count).iter().map(|partition| {
            let (mut all, mut in_sync) = (0, 0);
            rd::rd_kafka_TopicPartitionInfo_replicas(*partition, &mut all);
            rd::rd_kafka_TopicPartitionInfo_isr(*partition, &mut in_sync);
            Replicas { all, in_sync }
        });
        let mut count = 0;
        let operations = rd::rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
        let write = rd::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE;
        Description {
            topic: CStr::from_ptr(rd::rd_kafka_TopicDescription_name(topic)).to_string_lossy().into_owned(),
            error: (error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| error.into()),
            partitions: partitions.collect(),
            // A null list means that the broker did not tell; an empty one, that nothing is allowed.
            may_write: (!operations.is_null())
                .then(|| count > 0 && std::slice::from_raw_parts(operations, count).contains(&write)),
        }
    }
}

/// An array that librdkafka lends; null when empty.
unsafe fn pointers<'a, T>(array: *mut *const T, count: usize) -> &'a [*const T] {
    if array.is_null() || count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(array, count) } }
}

/// Something librdkafka gave away, destroyed when dropped.
struct Owned<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Owned<T> {
    fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Owned<T>, RDKafkaErrorCode> {
        // The poll's null is a timeout; librdkafka aborts rather than return null for want of memory.
        if ptr::eq(pointer, ptr::null()) {
            Err(RDKafkaErrorCode::OperationTimedOut)
        } else {
            Ok(Owned(pointer, destroy))
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        unsafe { (self.1)(self.0) }
    }
}
