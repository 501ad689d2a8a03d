//! First contact: a producer's first record in a partition travels alone.
//!
//! A broker holds a producer to its sequence only once it has taken something from it: when it has refused the first batch, it takes
//! the second, and what stood behind the refused record overtakes it. librdkafka sends a second one, because the next request may be
//! made and waiting when the answer comes, even with one under way at a time. (Seen with Kafka 4. A batch that is refused later takes
//! those behind it down.) So nothing follows the first record of a partition before it is acknowledged.

/// What a producer has had to do with the partitions of a topic.
#[derive(Debug, Default)]
pub(super) struct Contacts {
    partitions: Vec<Contact>,
    /// How many of them have taken nothing yet, and how many have the first record under way.
    strangers: usize,
    under_way: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contact {
    None,
    /// The record of this number is on its way.
    UnderWay(u64),
    Made,
}

impl Contacts {
    /// The topic has so many partitions; they never become fewer, unless it is another one.
    pub(super) fn resize(&mut self, partitions: usize) {
        if partitions < self.partitions.len() {
            self.expire();
        }
        self.partitions.resize(partitions, Contact::None);
        self.count();
    }

    /// Brokers forget whoever sends nothing for long, and a topic may be another one of the same name: the next record travels alone
    /// again. What is under way is still to be answered.
    pub(super) fn expire(&mut self) {
        let made = self.partitions.iter_mut().filter(|contact| **contact == Contact::Made);
        made.for_each(|contact| *contact = Contact::None);
        self.count();
    }

    fn count(&mut self) {
        let count = |is: fn(&Contact) -> bool| self.partitions.iter().filter(|contact| is(contact)).count();
        self.strangers = count(|contact| *contact != Contact::Made);
        self.under_way = count(|contact| matches!(contact, Contact::UnderWay(_)));
    }

    /// Another producer: nobody knows it.
    pub(super) fn forget(&mut self) {
        self.partitions.fill(Contact::None);
        self.count();
    }

    /// True when a record with this key, or for this partition, must wait.
    pub(super) fn holds(&self, partition: Option<i32>, key: Option<&[u8]>) -> bool {
        self.under_way > 0 && matches!(self.contact(partition, key), Some((_, Contact::UnderWay(_))))
    }

    /// The record of this number is on its way.
    pub(super) fn offered(&mut self, partition: Option<i32>, key: Option<&[u8]>, number: u64) {
        if self.strangers > 0
            && let Some((at, Contact::None)) = self.contact(partition, key)
        {
            self.partitions[at] = Contact::UnderWay(number);
            self.under_way += 1;
        }
    }

    /// The record of this number was taken, or not.
    pub(super) fn answered(&mut self, number: u64, taken: bool) {
        if self.under_way == 0 {
            return;
        }
        if let Some(contact) = self.partitions.iter_mut().find(|contact| **contact == Contact::UnderWay(number)) {
            *contact = if taken { Contact::Made } else { Contact::None };
            self.strangers -= usize::from(taken);
            self.under_way -= 1;
        }
    }

    fn contact(&self, partition: Option<i32>, key: Option<&[u8]>) -> Option<(usize, Contact)> {
        let at = match partition {
            Some(partition) => usize::try_from(partition).ok()?,
            // Without a key there is no order to keep.
            None => partition_of(key?, self.partitions.len())?,
        };
        self.partitions.get(at).map(|contact| (at, *contact))
    }
}

/// Where the producer will put a record with this key.
fn partition_of(key: &[u8], partitions: usize) -> Option<usize> {
    ((murmur2(key) & 0x7FFF_FFFF) as usize).checked_rem(partitions)
}

/// As Java producers compute it, and librdkafka after them.
fn murmur2(key: &[u8]) -> u32 {
    const MIX: u32 = 0x5BD1_E995;
    let (words, rest) = key.as_chunks::<4>();
    let mut hash = 0x9747_B28C ^ key.len() as u32;
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(MIX);
        hash = hash.wrapping_mul(MIX) ^ (word ^ word >> 24).wrapping_mul(MIX);
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(MIX);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(MIX);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_as_kafkas_own_tests_expect() {
        let expected = [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536)];
        for (key, hash) in expected {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert_eq!(murmur2(b"abc").cast_signed(), 479_470_107);
    }

    #[test]
    fn nothing_follows_the_first_record_of_a_partition_before_it_is_taken() {
        let mut contacts = Contacts::default();
        contacts.resize(2);
        let [zero, one] = [Some(0), Some(1)];
        assert!(!contacts.holds(zero, Some(b"")));
        contacts.offered(zero, Some(b""), 7);
        assert_eq!([contacts.holds(zero, Some(b"")), contacts.holds(one, Some(b""))], [true, false]);
        contacts.offered(one, Some(b""), 8);
        contacts.answered(8, true);
        contacts.answered(7, false);
        assert_eq!([contacts.holds(zero, Some(b"")), contacts.holds(one, Some(b""))], [false, false]);
        contacts.offered(zero, Some(b""), 9);
        contacts.offered(one, Some(b""), 10);
        assert_eq!([contacts.holds(zero, Some(b"")), contacts.holds(one, Some(b""))], [true, false]);
        contacts.answered(9, true);
        assert!(!contacts.holds(zero, Some(b"")));
        contacts.forget();
        contacts.offered(one, Some(b""), 11);
        assert!(contacts.holds(one, Some(b"")));
        contacts.answered(11, true);
        contacts.expire();
        contacts.offered(one, Some(b""), 12);
        contacts.expire();
        assert!(contacts.holds(one, Some(b"")), "it is still under way");
    }

    #[test]
    fn a_partition_that_was_added_is_a_stranger() {
        let mut contacts = Contacts::default();
        contacts.resize(1);
        contacts.offered(None, Some(b"key"), 1);
        contacts.answered(1, true);
        contacts.resize(2);
        contacts.offered(Some(1), Some(b""), 2);
        assert!(contacts.holds(Some(1), Some(b"")) && !contacts.holds(Some(0), Some(b"")));
    }
}
