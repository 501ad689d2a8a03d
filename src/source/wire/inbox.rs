//! The receive buffer: bytes enter at the back, whole packets of PostgreSQL's protocol are seen at the front.
//!
//! Packets are borrowed, never copied. The buffer keeps its size, grows for a packet that is larger, and shrinks back
//! once that is consumed.

/// The room offered to each read at the least: for all that one turn takes.
const READ: usize = 256 * 1024;
/// What the buffer shrinks back to: a part of a packet, and room for one turn behind it.
const USUAL: usize = 2 * READ;
/// PostgreSQL itself cannot build a larger message.
const PACKET_MAX: usize = 1 << 30;
/// Tag and length.
const HEADER: usize = 5;

/// Bytes received and not yet consumed.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
}

/// One whole message of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub tag: u8,
    pub body: &'a [u8],
}

/// A length that no message has: the two sides no longer agree where messages begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message of type {tag:?} with a length of {length}", tag = char::from(*tag))]
pub(super) struct Nonsense {
    tag: u8,
    length: u32,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { bytes: Vec::with_capacity(USUAL), start: 0 }
    }

    /// The packet at the front, once all of it is there.
    #[inline]
    pub fn peek(&self) -> Result<Option<Packet<'_>>, Nonsense> {
        let unread = &self.bytes[self.start..];
        match packet_len(unread)? {
            Some(len) if len <= unread.len() => Ok(Some(Packet { tag: unread[0], body: &unread[HEADER..len] })),
            Some(_) | None => Ok(None),
        }
    }

    /// Drops the packet that `peek` shows.
    #[inline]
    pub fn consume(&mut self) {
        let unread = &self.bytes[self.start..];
        if let Ok(Some(len)) = packet_len(unread)
            && len <= unread.len()
        {
            self.start += len;
        }
    }

    /// How many bytes are there, whole packets or not.
    pub fn buffered(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The buffer with room for the next read; to be appended to, nothing else.
    pub fn room(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.start = 0;
        if self.bytes.len() <= READ {
            self.bytes.shrink_to(USUAL);
        }
        if self.bytes.capacity() - self.bytes.len() < READ {
            // Doubling, so that a huge packet is copied few times, and a lying length is not believed at once.
            self.bytes.reserve(READ);
        }
        &mut self.bytes
    }
}

/// The whole length of the packet at the front, when enough is there to tell.
#[inline]
fn packet_len(bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
    let [tag, a, b, c, d, ..] = *bytes else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]);
    // The length counts itself, not the tag.
    match length as usize {
        4..=PACKET_MAX => Ok(Some(1 + length as usize)),
        _ => Err(Nonsense { tag, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    #[test]
    fn packets_are_the_same_however_the_bytes_are_split() {
        let bytes = [packet(b'd', b"first"), packet(b'S', b""), packet(b'd', b"third one")].concat();
        for split in 0..=bytes.len() {
            let mut inbox = Inbox::new();
            let mut seen = Vec::new();
            for part in [&bytes[..split], &bytes[split..]] {
                inbox.room().extend_from_slice(part);
                while let Some(packet) = inbox.peek().unwrap() {
                    seen.push((packet.tag, packet.body.to_vec()));
                    inbox.consume();
                }
            }
            assert_eq!(seen, [(b'd', b"first".to_vec()), (b'S', vec![]), (b'd', b"third one".to_vec())], "{split}");
            assert_eq!(inbox.buffered(), 0);
        }
    }

    #[test]
    fn a_packet_cut_anywhere_is_not_there_yet() {
        let bytes = packet(b'd', b"some body");
        for length in 0..bytes.len() {
            let mut inbox = Inbox::new();
            inbox.room().extend_from_slice(&bytes[..length]);
            assert_eq!(inbox.peek(), Ok(None));
            inbox.consume();
            assert_eq!(inbox.buffered(), length, "nothing whole is there to consume");
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error() {
        for length in [0, 3, (1 << 30) + 1, u32::MAX] {
            let mut inbox = Inbox::new();
            inbox.room().extend_from_slice(&[&b"d"[..], &length.to_be_bytes()].concat());
            assert_eq!(inbox.peek(), Err(Nonsense { tag: b'd', length }));
        }
    }

    #[test]
    fn the_buffer_grows_for_a_large_packet_and_shrinks_back() {
        let body = vec![7; 10 * USUAL];
        let bytes = packet(b'd', &body);
        let mut inbox = Inbox::new();
        for part in bytes.chunks(READ) {
            assert_eq!(inbox.peek(), Ok(None));
            inbox.room().extend_from_slice(part);
        }
        assert_eq!(inbox.peek().unwrap().unwrap().body, body);
        inbox.consume();
        assert_eq!(inbox.room().capacity(), USUAL);
    }

    #[test]
    fn a_steady_flow_never_grows_the_buffer() {
        let bytes = packet(b'd', &[1; 1000]).repeat(2000);
        let mut inbox = Inbox::new();
        for part in bytes.chunks(READ) {
            inbox.room().extend_from_slice(part);
            while inbox.peek().unwrap().is_some() {
                inbox.consume();
            }
        }
        assert_eq!(inbox.room().capacity(), USUAL);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut inbox = Inbox::new();
            for part in parts {
                inbox.room().extend_from_slice(&part);
                while let Ok(Some(_)) = inbox.peek() {
                    inbox.consume();
                }
            }
        }
    }
}
