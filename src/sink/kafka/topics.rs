//! What is known of the topics that routes name: whether they exist, and what they accept.
//!
//! A record is offered to a topic only after the cluster has shown it, because librdkafka's ordering guarantee does
//! not cover a missing one; and what the topic is known to refuse is not offered at all.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use tokio::runtime::Handle;

use super::contact::Contacts;
use super::reports::TopicId;
use crate::config::CreateTopics;
use crate::record::Record;
use crate::sink::Problem;
use crate::status::Reason;

/// How long one question to the cluster may take, unless the user has set `socket.timeout.ms`.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// What the cluster has told within this time needs no second look.
const NEWS: Duration = Duration::from_secs(30);
/// Brokers remember producers for longer than this, a day by default.
const CONTACT: Duration = Duration::from_secs(3600);
/// Kafka's own framing around one record in a batch, at the most: batch header, lengths, offsets.
const FRAMING_BYTES: usize = 100;

/// The topics asked for so far.
#[derive(Debug, Default)]
pub(super) struct Topics {
    ids: HashMap<String, TopicId>,
    known: Vec<Known>,
    /// Shown for the first time, as far as anybody remembers.
    news: Vec<String>,
    /// When contacts were last held for old.
    expired_at: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    name: String,
    finding: Finding,
    /// The next record is for it, and cannot be offered.
    awaited: bool,
    /// A dead letter is for it, which waits for nobody.
    asked_after: bool,
    /// It is the letter's own topic: it is made where that is wanted.
    tried: bool,
    /// The cluster has shown it once.
    was_seen: bool,
    /// When the cluster last told of it.
    told_at: Option<Instant>,
    /// Records on their way to it.
    inflight: u64,
    /// It was asked for again because it seems to refuse the next record.
    looked_twice: bool,
    /// How often it was doubted: what was asked before the last time is no answer to it.
    doubts: u64,
    contacts: Contacts,
}

/// A topic to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    name: String,
    /// Events wait for it, or a dead letter is tried.
    needed: bool,
    doubts: u64,
}

/// What the cluster said about a topic that it was asked for.
#[derive(Debug)]
pub struct Answer {
    asked: Asked,
    finding: Finding,
}

impl Answer {
    /// Which topic it is about.
    pub(super) fn topic(&self) -> &str {
        &self.asked.name
    }

    /// The broker that leads a partition, if one does.
    pub(super) fn leader(&self, partition: i32) -> Option<i32> {
        let Finding::Exists(accepts) = &self.finding else { return None };
        accepts.leaders.get(usize::try_from(partition).ok()?).copied().filter(|leader| *leader >= 0)
    }
}

impl Known {
    /// Nobody needs to know of a topic that was deleted when its last event had long arrived.
    fn is_needed(&self) -> bool {
        self.awaited || self.inflight > 0
    }

    /// How large its messages may be, if there is one and the cluster has told.
    fn limit(&self) -> Option<usize> {
        match &self.finding {
            Finding::Exists(accepts) => accepts.max_message_bytes,
            Finding::Unasked | Finding::Missing | Finding::Forbidden(_) | Finding::Unanswered(_) => None,
        }
    }
}

/// What the cluster said about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It was not asked yet.
    Unasked,
    /// The topic exists.
    Exists(Accepts),
    /// There is none of this name.
    Missing,
    /// We may not see or write it.
    Forbidden(String),
    /// No answer.
    Unanswered(String),
}

/// What a topic accepts; `None` where the cluster did not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepts {
    /// The broker that leads each partition; below zero where nobody does.
    leaders: Vec<i32>,
    max_message_bytes: Option<usize>,
    /// How far behind and ahead of the broker's clock timestamps may be, in milliseconds.
    oldest_ms: Option<i64>,
    newest_ms: Option<i64>,
}

impl Topics {
    /// So many topics can be told apart. Names come from rows, so their number is not ours to choose.
    pub(super) const MOST: usize = 1 << 16;

    /// The topic's number and what is known of it. A new name is noted, to be asked for; `None` when it is one too many.
    pub(super) fn get(&mut self, name: &str) -> Option<(TopicId, &Finding)> {
        let id = self.id(name)?;
        let known = &mut self.known[id.index()];
        known.awaited = !matches!(known.finding, Finding::Exists(_));
        Some((id, &known.finding))
    }

    /// The same for a dead letter: what is not known is asked for, and nobody waits for it. And whether it was ever seen.
    pub(super) fn look(&mut self, name: &str, purpose: Purpose) -> Option<(TopicId, &Finding, bool)> {
        let id = self.id(name)?;
        let known = &mut self.known[id.index()];
        known.asked_after = !matches!(known.finding, Finding::Exists(_));
        known.tried = known.asked_after && purpose == Purpose::Trial;
        Some((id, &known.finding, known.was_seen))
    }

    /// True when the cluster has never shown the topic: then the record that waits for it need not.
    pub(super) fn is_given_up(&mut self, id: TopicId) -> bool {
        let known = &mut self.known[id.index()];
        known.awaited = known.was_seen;
        !known.was_seen
    }

    /// These have existed, by the word of somebody who remembers.
    pub(super) fn existed(&mut self, names: Vec<String>) {
        for name in names {
            if let Some(id) = self.id(&name) {
                self.known[id.index()].was_seen = true;
            }
        }
    }

    /// The topics that were shown for the first time since this was last asked.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// All that the cluster has ever shown, as far as anybody remembers.
    pub(super) fn seen(&self) -> Vec<String> {
        self.known.iter().filter(|known| known.was_seen).map(|known| known.name.clone()).collect()
    }

    /// True while a record must wait, because the first one of its partition is on its way.
    pub(super) fn holds(&self, id: TopicId, record: &Record<'_>) -> bool {
        self.known[id.index()].contacts.holds(record.partition, record.key)
    }

    /// A record is on its way to the topic.
    pub(super) fn offered(&mut self, id: TopicId, record: &Record<'_>, number: u64) {
        let known = &mut self.known[id.index()];
        known.contacts.offered(record.partition, record.key, number);
        known.inflight += 1;
        known.looked_twice = false;
    }

    /// The topic seems to refuse the next record: puts what is known of it in doubt; false when that was done already, or the
    /// cluster has told of it lately. One in a hundred must not hold up the others; whoever was parked too early is tried again.
    pub(super) fn second_look(&mut self, id: TopicId, now: Instant) -> bool {
        let known = &mut self.known[id.index()];
        let is_news = known.told_at.is_some_and(|at| now < at + NEWS);
        let looked = std::mem::replace(&mut known.looked_twice, true) || is_news;
        if !looked {
            self.doubt(id);
        }
        !looked
    }

    /// A record has got its answer.
    pub(super) fn answered(&mut self, id: TopicId, number: u64, taken: bool) {
        let known = &mut self.known[id.index()];
        known.contacts.answered(number, taken);
        known.inflight = known.inflight.saturating_sub(1);
    }

    /// Nothing is on its way any more: the producer is another one.
    pub(super) fn renewed(&mut self) {
        for known in &mut self.known {
            known.inflight = 0;
            known.contacts.forget();
        }
    }

    /// Whoever waited is gone.
    pub(super) fn wait_for_none(&mut self) {
        self.known.iter_mut().for_each(|known| known.awaited = false);
    }

    /// What is known of the topic is in doubt.
    pub(super) fn doubt(&mut self, id: TopicId) {
        let known = &mut self.known[id.index()];
        (known.finding, known.awaited) = (Finding::Unasked, true);
        known.doubts += 1;
    }

    /// The topics to ask for: those that events wait for, and the others when `all` is asked.
    pub(super) fn doubtful(&self, scope: Scope) -> Vec<Asked> {
        let doubtful = |known: &&Known| match known.finding {
            Finding::Exists(_) => scope == Scope::All || known.asked_after,
            Finding::Unasked | Finding::Missing | Finding::Forbidden(_) | Finding::Unanswered(_) => {
                known.is_needed() || known.asked_after
            }
        };
        let asked = |known: &Known| Asked {
            name: known.name.clone(),
            needed: known.is_needed() || known.tried,
            doubts: known.doubts,
        };
        self.known.iter().filter(doubtful).map(asked).collect()
    }

    /// True when the cluster has told of the topic since then; otherwise it is asked.
    pub(super) fn is_fresh(&mut self, id: TopicId, since: Instant) -> bool {
        let known = &mut self.known[id.index()];
        let fresh = known.told_at.is_some_and(|at| at >= since);
        known.asked_after |= !fresh;
        fresh
    }

    pub(super) fn learn(&mut self, answers: Vec<Answer>, now: Instant) {
        if self.expired_at.get_or_insert(now).elapsed() >= CONTACT {
            self.expired_at = Some(now);
            self.known.iter_mut().for_each(|known| known.contacts.expire());
        }
        for Answer { asked, finding } in answers {
            let Some(id) = self.ids.get(&asked.name) else { continue };
            let known = &mut self.known[id.index()];
            if known.doubts != asked.doubts {
                // It was asked before the doubt arose: the next question is under way, or will be.
                continue;
            }
            let exists = matches!(finding, Finding::Exists(_));
            known.awaited &= !exists;
            if exists && !std::mem::replace(&mut known.was_seen, true) {
                self.news.push(known.name.clone());
            }
            known.asked_after = false;
            if !matches!(finding, Finding::Unanswered(_)) {
                known.told_at = Some(now);
            }
            known.finding = match (std::mem::replace(&mut known.finding, Finding::Unasked), finding) {
                // No answer is no news.
                (known @ Finding::Exists(_), Finding::Unanswered(_)) => known,
                (Finding::Exists(before), Finding::Exists(now)) => Finding::Exists(now.or_as_before(before)),
                (_, finding) => finding,
            };
            match &known.finding {
                Finding::Exists(accepts) => known.contacts.resize(accepts.leaders.len()),
                // Whatever comes in its place knows nobody.
                Finding::Missing => known.contacts.expire(),
                Finding::Unasked | Finding::Forbidden(_) | Finding::Unanswered(_) => {}
            }
        }
    }

    /// A topic that the next record is for, and that nobody has told of yet.
    pub(super) fn unanswered(&self) -> Option<&str> {
        let waits = |known: &&Known| known.awaited && known.finding == Finding::Unasked;
        self.known.iter().find(waits).map(|known| known.name.as_str())
    }

    /// The smallest message that some topic refuses.
    pub(super) fn smallest_limit(&self) -> Option<usize> {
        self.known.iter().filter_map(Known::limit).min()
    }

    /// True when the cluster has told how large the topic's messages may be.
    pub(super) fn tells_limit(&self, id: TopicId) -> bool {
        self.known[id.index()].limit().is_some()
    }

    /// True when that is so of every topic there is.
    pub(super) fn all_tell_limits(&self) -> bool {
        let hides = |known: &Known| matches!(known.finding, Finding::Exists(_)) && known.limit().is_none();
        !self.known.iter().any(hides)
    }

    pub(super) fn name(&self, id: TopicId) -> &str {
        &self.known[id.index()].name
    }

    /// Why events wait, for each topic that they wait for.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let reason = |code: &str, message: String, hint: String| {
            Some(Reason { code: code.to_owned(), message, hint: Some(hint) })
        };
        let needed = self.known.iter().filter(|known| known.is_needed());
        needed
            .filter_map(|Known { name, finding, .. }| match finding {
                Finding::Exists(_) | Finding::Unasked => None,
                Finding::Missing => reason(
                    "topic_missing",
                    format!("topic \"{name}\" does not exist"),
                    "create it, or let outboxd do it with kafka.create_topics".into(),
                ),
                Finding::Forbidden(words) => reason(
                    "topic_forbidden",
                    format!("topic \"{name}\" may not be written: {words}"),
                    "grant DESCRIBE and WRITE on the topic to the relay's user".into(),
                ),
                Finding::Unanswered(words) => reason(
                    "kafka_unreachable",
                    format!("the cluster does not answer what topic \"{name}\" is: {words}"),
                    "see whether kafka.brokers names running brokers: outboxd check".into(),
                ),
            })
            .collect()
    }

    fn id(&mut self, name: &str) -> Option<TopicId> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        let id = TopicId(u16::try_from(self.known.len()).ok()?);
        self.ids.insert(name.to_owned(), id);
        self.known.push(Known {
            name: name.to_owned(),
            finding: Finding::Unasked,
            awaited: false,
            asked_after: false,
            tried: false,
            was_seen: false,
            told_at: None,
            inflight: 0,
            looked_twice: false,
            doubts: 0,
            contacts: Contacts::default(),
        });
        Some(id)
    }
}

/// What a topic is looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A dead letter is tried again, which is for this topic.
    Trial,
    /// Dead letters are kept in it.
    Keep,
}

/// Which topics to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those that events wait for.
    Waiting,
    /// All, because configurations change.
    All,
}

impl Accepts {
    /// What was known of its configuration still counts where the cluster did not tell this time.
    fn or_as_before(self, before: Accepts) -> Accepts {
        match self.max_message_bytes {
            Some(_) => self,
            None => Accepts { leaders: self.leaders, ..before },
        }
    }

    fn partitions(&self) -> i32 {
        i32::try_from(self.leaders.len()).unwrap_or(i32::MAX)
    }

    /// What the topic is known to refuse about this record.
    pub(super) fn problem(&self, record: &Record<'_>, compressed: bool, now_ms: i64) -> Option<Problem> {
        if let Some(partition) = record.partition.filter(|partition| *partition >= self.partitions()) {
            let message =
                format!("topic \"{}\" has {} partitions, none is {partition}", record.topic, self.partitions());
            return Some(Problem { reason: "partition", message });
        }
        // A batch is measured compressed, so that only the broker can tell how large a compressed event is.
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let bytes = FRAMING_BYTES + length(record.key) + length(record.value);
        if let Some(limit) = self.max_message_bytes.filter(|limit| bytes > *limit && !compressed) {
            let topic = record.topic;
            let message = format!("it takes {bytes} bytes, and max.message.bytes of topic \"{topic}\" is {limit}");
            return Some(Problem { reason: "too_large", message });
        }
        let timestamp_ms = record.timestamp_ms.unwrap_or(now_ms);
        let age = now_ms.saturating_sub(timestamp_ms);
        let too_old = self.oldest_ms.is_some_and(|limit| age > limit);
        let too_new = self.newest_ms.is_some_and(|limit| age.saturating_neg() > limit);
        if timestamp_ms < 0 || too_old || too_new {
            let message = format!("its timestamp ({timestamp_ms} ms) is outside what the topic accepts");
            return Some(Problem { reason: "timestamp", message });
        }
        None
    }
}

/// Asks the cluster about topics, and creates the missing ones that are needed where that is wanted. Blocks its thread.
pub(super) fn look_up(
    admin: &AdminClient<DefaultClientContext>,
    topics: Vec<Asked>,
    create: Option<&CreateTopics>,
) -> Vec<Answer> {
    // A cluster that does not answer about one topic would take as long for each of the others.
    let (mut silent, mut tells) = (None, true);
    let mut look = |name: &str| {
        let found = silent.clone().map_or_else(|| exists(admin, name), Err);
        found.unwrap_or_else(|error| {
            let words = error.to_string();
            silent = Some(error);
            Finding::Unanswered(words)
        })
    };
    let ask = |asked: Asked| {
        let name = &asked.name;
        let mut finding = look(name);
        if let (Finding::Missing, true, Some(create)) = (&finding, asked.needed, create) {
            finding = match create_topic(admin, name, create) {
                Ok(()) => look(name),
                Err(problem) => Finding::Forbidden(format!("it cannot be created: {problem}")),
            };
        }
        if let Finding::Exists(accepts) = &mut finding
            && tells
        {
            tells = describe(admin, name, accepts);
        }
        Answer { asked, finding }
    };
    topics.into_iter().map(ask).collect()
}

fn exists(admin: &AdminClient<DefaultClientContext>, name: &str) -> Result<Finding, KafkaError> {
    let metadata = admin.inner().fetch_metadata(Some(name), ANSWER_WITHIN)?;
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else { return Ok(Finding::Missing) };
    Ok(match topic.error().map(RDKafkaErrorCode::from) {
        None if topic.partitions().is_empty() => Finding::Missing,
        None => Finding::Exists(Accepts { leaders: leaders(topic), ..Accepts::default() }),
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Finding::Missing,
        Some(code @ (RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::InvalidTopic)) => {
            Finding::Forbidden(code.to_string())
        }
        Some(code) => Finding::Unanswered(code.to_string()),
    })
}

/// In the order of the partitions' numbers, which is not the metadata's.
fn leaders(topic: &MetadataTopic) -> Vec<i32> {
    let mut leaders = vec![-1; topic.partitions().len()];
    for partition in topic.partitions() {
        let known = usize::try_from(partition.id()).ok().and_then(|id| leaders.get_mut(id));
        if let Some(leader) = known {
            *leader = partition.leader();
        }
    }
    leaders
}

fn create_topic(admin: &AdminClient<DefaultClientContext>, name: &str, create: &CreateTopics) -> Result<(), String> {
    let mut topic = NewTopic::new(name, create.partitions, TopicReplication::Fixed(create.replication));
    for (key, value) in &create.config {
        topic = topic.set(key, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(ANSWER_WITHIN));
    let answers = Handle::current().block_on(admin.create_topics([&topic], &options));
    match answers.map(|answers| answers.into_iter().next()) {
        Ok(Some(Err((_, code)))) if code != RDKafkaErrorCode::TopicAlreadyExists => Err(code.to_string()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Fills in what the topic's configuration says; what we may not read stays unknown. False when nobody answers.
fn describe(admin: &AdminClient<DefaultClientContext>, name: &str, accepts: &mut Accepts) -> bool {
    let options = AdminOptions::new();
    let topic = ResourceSpecifier::Topic(name);
    let asked = admin.describe_configs([&topic], &options);
    let answer = Handle::current().block_on(asked).map(|answers| answers.into_iter().next());
    let config = match answer {
        Ok(Some(Ok(config))) => config,
        Ok(Some(Err(code))) => return unknown(name, &KafkaError::AdminOp(code)),
        Err(error) => return unknown(name, &error),
        Ok(None) => return true,
    };
    let value = |key: &str| config.get(key).and_then(|entry| entry.value.as_deref());
    accepts.max_message_bytes = value("max.message.bytes").and_then(|text| text.parse().ok());
    if value("message.timestamp.type") != Some("LogAppendTime") {
        let bound = |key: &str| {
            let both = "message.timestamp.difference.max.ms";
            value(key).or_else(|| value(both)).and_then(|text| text.parse().ok()).filter(|ms| *ms != i64::MAX)
        };
        accepts.oldest_ms = bound("message.timestamp.before.max.ms");
        accepts.newest_ms = bound("message.timestamp.after.max.ms");
    }
    true
}

fn unknown(topic: &str, error: &KafkaError) -> bool {
    tracing::debug!(topic, %error, "the topic's configuration cannot be read");
    !matches!(error, KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Headers;

    /// The names of the topics to ask for, those that are needed with a star.
    fn asked(topics: &Topics, scope: Scope) -> Vec<String> {
        let star = |asked: &Asked| if asked.needed { "*" } else { "" };
        topics.doubtful(scope).iter().map(|asked| asked.name.clone() + star(asked)).collect()
    }

    /// The cluster says this of each of these topics, asked just now.
    fn learn(topics: &mut Topics, names: &[&str], finding: &Finding) {
        let doubts = |name: &str| topics.known[topics.ids[name].index()].doubts;
        let answer = |name: &&str| Answer {
            asked: Asked { name: (*name).to_owned(), needed: true, doubts: doubts(name) },
            finding: finding.clone(),
        };
        let answers = names.iter().map(answer).collect();
        topics.learn(answers, Instant::now());
    }

    fn exists() -> Finding {
        Finding::Exists(Accepts::default())
    }

    #[test]
    fn a_topic_that_is_deleted_when_nobody_needs_it_any_more_is_no_reason_to_wait_and_not_made_again() {
        let mut topics = Topics::default();
        for name in ["old", "busy", "next"] {
            let id = topics.get(name).unwrap().0;
            assert_eq!(asked(&topics, Scope::Waiting), [format!("{name}*")]);
            learn(&mut topics, &[name], &exists());
            assert_eq!(topics.get(name), Some((id, &exists())));
            let headers = Headers::default();
            let record = Record {
                topic: name,
                partition: None,
                key: Some(b""),
                value: None,
                headers: &headers,
                timestamp_ms: Some(0),
            };
            topics.offered(id, &record, 0);
        }
        let [old, next] = ["old", "next"].map(|name| topics.ids[name]);
        topics.answered(old, 0, true);
        topics.answered(next, 0, true);
        assert_eq!(asked(&topics, Scope::All), ["old", "busy*", "next"]);
        learn(&mut topics, &["old", "busy", "next"], &Finding::Missing);
        let missing =
            |topics: &Topics| topics.reasons().iter().map(|reason| reason.message.clone()).collect::<Vec<_>>();
        assert_eq!(missing(&topics), ["topic \"busy\" does not exist"]);
        assert_eq!(asked(&topics, Scope::All), ["busy*"]);
        // An event comes for it after all.
        topics.get("next");
        assert_eq!(missing(&topics).len(), 2);
        topics.renewed();
        assert_eq!(missing(&topics), ["topic \"next\" does not exist"]);
    }

    #[test]
    fn a_topic_that_somebody_remembers_is_waited_for_and_no_news() {
        let mut topics = Topics::default();
        topics.existed(vec!["old".into()]);
        for name in ["old", "new", "never"] {
            topics.get(name).unwrap();
        }
        learn(&mut topics, &["old", "new"], &exists());
        assert_eq!((topics.take_news(), topics.take_news()), (vec!["new".to_owned()], vec![]));
        assert_eq!(topics.seen(), ["old", "new"]);
        learn(&mut topics, &["old", "new", "never"], &Finding::Missing);
        let given_up = ["old", "new", "never"].map(|name| topics.ids[name]).map(|id| topics.is_given_up(id));
        assert_eq!(given_up, [false, false, true]);
    }

    #[test]
    fn nobody_waits_for_a_topic_that_was_made_or_whose_row_is_another_relays() {
        let mut topics = Topics::default();
        for name in ["made", "left"] {
            topics.get(name).unwrap();
            learn(&mut topics, &[name], &Finding::Missing);
        }
        assert_eq!(asked(&topics, Scope::All), ["made*", "left*"]);
        learn(&mut topics, &["made"], &exists());
        assert_eq!(asked(&topics, Scope::Waiting), ["left*"]);
        topics.wait_for_none();
        assert_eq!((asked(&topics, Scope::Waiting), topics.reasons().len()), (vec![], 0));
    }

    #[test]
    fn limits_that_the_cluster_once_told_count_until_it_tells_others() {
        let mut topics = Topics::default();
        let id = topics.get("small").unwrap().0;
        let tells = |limit| Finding::Exists(Accepts { max_message_bytes: limit, ..Accepts::default() });
        for (told, limit) in [(None, None), (Some(9), Some(9)), (None, Some(9)), (Some(7), Some(7)), (None, Some(7))] {
            learn(&mut topics, &["small"], &tells(told));
            assert_eq!((topics.smallest_limit(), topics.tells_limit(id)), (limit, limit.is_some()));
        }
        assert!(topics.all_tell_limits());
        topics.get("hidden").unwrap();
        learn(&mut topics, &["hidden"], &tells(None));
        assert!(!topics.all_tell_limits());
        learn(&mut topics, &["hidden"], &Finding::Missing);
        assert!(topics.all_tell_limits());
    }

    #[test]
    fn an_answer_to_a_question_from_before_the_doubt_settles_no_doubt() {
        let mut topics = Topics::default();
        let id = topics.get("grown").unwrap().0;
        learn(&mut topics, &["grown"], &exists());
        // Everything is asked for regularly; the topic grows, and a record for its new partition comes.
        let question = topics.doubtful(Scope::All);
        assert!(topics.second_look(id, Instant::now() + NEWS));
        let answers = question.into_iter().map(|asked| Answer { asked, finding: exists() }).collect();
        topics.learn(answers, Instant::now());
        assert_eq!(
            topics.get("grown"),
            Some((id, &Finding::Unasked)),
            "it would be called wrong for what was so before"
        );
        learn(&mut topics, &["grown"], &exists());
        assert_eq!(topics.get("grown"), Some((id, &exists())));
        assert!(!topics.second_look(id, Instant::now() + NEWS), "the cluster has said it twice");
    }
}
