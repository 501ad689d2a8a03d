//! The decoder of pgoutput's messages, protocol version 1: bytes enter, a borrowed `Message` leaves.
//!
//! Pure, and total: any bytes give a message or a `Malformed`, never a panic. Nothing is copied.
//! The format is described in PostgreSQL's manual, "Logical Replication Message Formats".

use crate::lsn::Lsn;

/// Decodes one message, all of it: bytes left over are as wrong as bytes that are missing.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let message = match reader.byte("a message's tag")? {
        b'I' => Message::Insert { relation: reader.u32("a table's OID")?, row: reader.new_row()? },
        b'B' => Message::Begin {
            commit_lsn: reader.lsn("the commit's LSN")?,
            committed_at: reader.i64("the commit's time")?,
            xid: reader.u32("the transaction's id")?,
        },
        b'C' => {
            reader.tag(b"\0", "flags 0")?;
            Message::Commit {
                commit_lsn: reader.lsn("the commit's LSN")?,
                end_lsn: reader.lsn("the commit's end")?,
                committed_at: reader.i64("the commit's time")?,
            }
        }
        b'O' => Message::Origin {
            commit_lsn: reader.lsn("the commit's LSN at its origin")?,
            name: reader.string("the origin's name")?,
        },
        b'R' => Message::Relation(reader.relation()?),
        b'Y' => Message::Type {
            oid: reader.u32("a type's OID")?,
            schema: reader.schema()?,
            name: reader.string("a type's name")?,
        },
        b'U' => {
            let relation = reader.u32("a table's OID")?;
            if !matches!(reader.rest.first(), Some(b'N')) {
                reader.old_row()?;
            }
            reader.new_row()?;
            Message::Update { relation }
        }
        b'D' => {
            let relation = reader.u32("a table's OID")?;
            reader.old_row()?;
            Message::Delete { relation }
        }
        b'T' => {
            let tables = reader.u32("how many tables")? as usize;
            reader.byte("the truncation's options")?;
            reader.bytes(tables.saturating_mul(4), "the tables' OIDs")?;
            Message::Truncate
        }
        b'M' => Message::Logical {
            transactional: reader.tag(&[0, 1], "flags 0 or 1")? == 1,
            lsn: reader.lsn("the message's LSN")?,
            prefix: reader.string("the message's prefix")?,
            content: reader.counted("the message's content")?,
        },
        b'A' => {
            reader.bytes(8, "the aborted transaction's ids")?;
            // A parallel stream (protocol 4) also sends the abort's LSN and time.
            if !reader.rest.is_empty() {
                reader.bytes(16, "the abort's LSN and time")?;
            }
            Message::StreamAbort
        }
        _ => return Err(reader.refused("a message of protocol version 1")),
    };
    if reader.rest.is_empty() { Ok(message) } else { Err(reader.missing("the message's end")) }
}

/// One decoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// `B`: a transaction starts; it is sent after its commit, so the commit's LSN is known.
    Begin {
        /// The LSN of the commit record.
        commit_lsn: Lsn,
        /// Microseconds since 2000-01-01 UTC.
        committed_at: i64,
        /// The transaction's id.
        xid: u32,
    },
    /// `C`: the transaction is complete.
    Commit {
        /// The LSN of the commit record.
        commit_lsn: Lsn,
        /// The position just after the commit record: what may be confirmed.
        end_lsn: Lsn,
        /// Microseconds since 2000-01-01 UTC.
        committed_at: i64,
    },
    /// `O`: the transaction came from another node.
    Origin {
        /// The commit's LSN on that node.
        commit_lsn: Lsn,
        /// The origin's name.
        name: &'a str,
    },
    /// `R`: a table's shape, sent before its first row in a session and after each change.
    Relation(Relation<'a>),
    /// `Y`: a type that is not built in.
    Type {
        /// The type's OID.
        oid: u32,
        /// Its schema; an empty one on the wire is `pg_catalog`.
        schema: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// `I`: a row was inserted.
    Insert {
        /// The table's OID, as in `Relation`.
        relation: u32,
        /// The new row.
        row: Tuple<'a>,
    },
    /// `U`: a row was updated; its contents are checked and dropped.
    Update {
        /// The table's OID.
        relation: u32,
    },
    /// `D`: a row was deleted; its contents are checked and dropped.
    Delete {
        /// The table's OID.
        relation: u32,
    },
    /// `T`: tables were truncated.
    Truncate,
    /// `M`: `pg_logical_emit_message`.
    Logical {
        /// True when it belongs to the transaction around it.
        transactional: bool,
        /// The message's own LSN.
        lsn: Lsn,
        /// Who it is for.
        prefix: &'a str,
        /// What it says.
        content: &'a [u8],
    },
    /// `A` outside a stream: PostgreSQL 18 before August 2026 may send it although streaming is off (bug #19616).
    StreamAbort,
}

/// A table's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation<'a> {
    /// The table's OID.
    pub id: u32,
    /// Its schema; an empty one on the wire is `pg_catalog`.
    pub schema: &'a str,
    /// Its name.
    pub name: &'a str,
    /// How many columns `columns` yields.
    pub column_count: u16,
    columns: &'a [u8],
}

impl<'a> Relation<'a> {
    /// The columns in the order in which rows have them.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = RelationColumn<'a>> + use<'a> {
        let mut reader = Reader::new(self.columns);
        (0..self.column_count).map(move |_| reader.relation_column().expect("decode has read these columns"))
    }
}

/// One column of a `Relation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationColumn<'a> {
    /// Part of the replica identity.
    pub key: bool,
    /// The column's name.
    pub name: &'a str,
    /// Its type's OID.
    pub type_oid: u32,
    /// Its type modifier, -1 when there is none.
    pub type_modifier: i32,
}

/// A row's columns, in the order of its `Relation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    /// How many columns `columns` yields.
    pub column_count: u16,
    columns: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// The values in the order of the relation's columns.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = Value<'a>> + use<'a> {
        let mut reader = Reader::new(self.columns);
        (0..self.column_count).map(move |_| reader.value().expect("decode has read these values"))
    }
}

/// One column of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// `n`
    Null,
    /// `u`: a TOASTed value that did not change; never in an `Insert` of a healthy server.
    Unchanged,
    /// `t`: the type's text output; not checked to be UTF-8.
    Text(&'a [u8]),
    /// `b`: the type's binary output.
    Binary(&'a [u8]),
}

/// Bytes that are not a pgoutput message: what was expected, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed pgoutput message: expected {expected} at byte {offset}")]
pub struct Malformed {
    /// What should have stood there.
    pub expected: &'static str,
    /// How many bytes into the message.
    pub offset: usize,
}

/// The bytes not read yet. Every method takes what it names off the front, or says what is not there.
struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, length: bytes.len() }
    }

    fn relation(&mut self) -> Result<Relation<'a>, Malformed> {
        let id = self.u32("a table's OID")?;
        let schema = self.schema()?;
        let name = self.string("a table's name")?;
        self.byte("the replica identity")?;
        let column_count = self.u16("how many columns")?;
        let columns = self.span(|reader| (0..column_count).try_for_each(|_| reader.relation_column().map(drop)))?;
        Ok(Relation { id, schema, name, column_count, columns })
    }

    fn relation_column(&mut self) -> Result<RelationColumn<'a>, Malformed> {
        Ok(RelationColumn {
            key: self.byte("a column's flags")? & 1 == 1,
            name: self.string("a column's name")?,
            type_oid: self.u32("a column's type")?,
            type_modifier: self.array("a column's type modifier").map(i32::from_be_bytes)?,
        })
    }

    fn new_row(&mut self) -> Result<Tuple<'a>, Malformed> {
        self.tag(b"N", "a new row")?;
        self.tuple()
    }

    fn old_row(&mut self) -> Result<Tuple<'a>, Malformed> {
        self.tag(b"KO", "an old key or an old row")?;
        self.tuple()
    }

    fn tuple(&mut self) -> Result<Tuple<'a>, Malformed> {
        let column_count = self.u16("how many columns")?;
        let columns = self.span(|reader| (0..column_count).try_for_each(|_| reader.skip_value()))?;
        Ok(Tuple { column_count, columns })
    }

    fn value(&mut self) -> Result<Value<'a>, Malformed> {
        match self.byte("a column")? {
            b't' => self.counted("a text value").map(Value::Text),
            b'b' => self.counted("a binary value").map(Value::Binary),
            b'n' => Ok(Value::Null),
            b'u' => Ok(Value::Unchanged),
            _ => Err(self.refused("a column: n, u, t or b")),
        }
    }

    /// Past a value. Every row goes this way once more than its columns are read.
    #[inline]
    fn skip_value(&mut self) -> Result<(), Malformed> {
        let end = match *self.rest {
            [b'n' | b'u', ..] => Some(1),
            [b't' | b'b', a, b, c, d, ..] => (u32::from_be_bytes([a, b, c, d]) as usize).checked_add(5),
            _ => None,
        };
        match end.and_then(|end| self.rest.get(end..)) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            // It says what is wrong.
            None => self.value().map(drop),
        }
    }

    /// What `read` reads, as bytes.
    fn span(&mut self, read: impl FnOnce(&mut Self) -> Result<(), Malformed>) -> Result<&'a [u8], Malformed> {
        let before = self.rest;
        read(self)?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    /// The server saves the bytes of its commonest schema's name.
    fn schema(&mut self) -> Result<&'a str, Malformed> {
        let name = self.string("a schema's name")?;
        Ok(if name.is_empty() { "pg_catalog" } else { name })
    }

    fn string(&mut self, expected: &'static str) -> Result<&'a str, Malformed> {
        let mut halves = self.rest.splitn(2, |byte| *byte == 0);
        let (Some(text), Some(rest)) = (halves.next(), halves.next()) else { return Err(self.missing(expected)) };
        let text = str::from_utf8(text).map_err(|_| self.missing(expected))?;
        self.rest = rest;
        Ok(text)
    }

    fn counted(&mut self, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.u32(expected)?;
        self.bytes(length as usize, expected)
    }

    fn bytes(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.missing(expected))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn lsn(&mut self, expected: &'static str) -> Result<Lsn, Malformed> {
        self.array(expected).map(|bytes| Lsn(u64::from_be_bytes(bytes)))
    }

    fn i64(&mut self, expected: &'static str) -> Result<i64, Malformed> {
        self.array(expected).map(i64::from_be_bytes)
    }

    fn u32(&mut self, expected: &'static str) -> Result<u32, Malformed> {
        self.array(expected).map(u32::from_be_bytes)
    }

    fn u16(&mut self, expected: &'static str) -> Result<u16, Malformed> {
        self.array(expected).map(u16::from_be_bytes)
    }

    fn tag(&mut self, allowed: &[u8], expected: &'static str) -> Result<u8, Malformed> {
        let byte = self.byte(expected)?;
        if allowed.contains(&byte) { Ok(byte) } else { Err(self.refused(expected)) }
    }

    fn byte(&mut self, expected: &'static str) -> Result<u8, Malformed> {
        self.array(expected).map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.missing(expected))?;
        self.rest = rest;
        Ok(*array)
    }

    /// What comes next is not what should.
    fn missing(&self, expected: &'static str) -> Malformed {
        Malformed { expected, offset: self.length - self.rest.len() }
    }

    /// The byte just read is not what it should be.
    fn refused(&self, expected: &'static str) -> Malformed {
        Malformed { expected, offset: self.length - self.rest.len() - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every tag at least once, written out by hand from the manual.
    const SAMPLES: &[(&[u8], Message<'static>)] = &[
        (
            b"B\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\0\0\0\0\x05\0\0\x02\xDB",
            Message::Begin { commit_lsn: Lsn(0x16_B374_D848), committed_at: 5, xid: 0x2DB },
        ),
        (
            b"C\0\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\x16\xB3\x74\xD8\x78\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFB",
            Message::Commit { commit_lsn: Lsn(0x16_B374_D848), end_lsn: Lsn(0x16_B374_D878), committed_at: -5 },
        ),
        (b"O\0\0\0\0\0\0\0\x09far\0", Message::Origin { commit_lsn: Lsn(9), name: "far" }),
        (
            b"R\0\0\0\x07app\0outbox\0d\0\x02\x01id\0\0\0\x0B\x86\xFF\xFF\xFF\xFF\0n\0\0\0\x06\xA4\0\x0A\0\x06",
            Message::Relation(Relation {
                id: 7,
                schema: "app",
                name: "outbox",
                column_count: 2,
                columns: b"\x01id\0\0\0\x0B\x86\xFF\xFF\xFF\xFF\0n\0\0\0\x06\xA4\0\x0A\0\x06",
            }),
        ),
        (
            b"R\0\0\0\x08\0none\0n\0\0",
            Message::Relation(Relation { id: 8, schema: "pg_catalog", name: "none", column_count: 0, columns: b"" }),
        ),
        (b"Y\0\0\x40\x01app\0mood\0", Message::Type { oid: 0x4001, schema: "app", name: "mood" }),
        (b"Y\0\0\x40\x02\0text\0", Message::Type { oid: 0x4002, schema: "pg_catalog", name: "text" }),
        (
            b"I\0\0\0\x07N\0\x05nut\0\0\0\x02hib\0\0\0\x03\xFF\0\xFEt\0\0\0\0",
            Message::Insert {
                relation: 7,
                row: Tuple { column_count: 5, columns: b"nut\0\0\0\x02hib\0\0\0\x03\xFF\0\xFEt\0\0\0\0" },
            },
        ),
        (b"I\0\0\0\x07N\0\0", Message::Insert { relation: 7, row: Tuple { column_count: 0, columns: b"" } }),
        (b"U\0\0\0\x07N\0\x01t\0\0\0\x011", Message::Update { relation: 7 }),
        (b"U\0\0\0\x07K\0\x01t\0\0\0\x011N\0\x01u", Message::Update { relation: 7 }),
        (b"U\0\0\0\x07O\0\x02nnN\0\x02nn", Message::Update { relation: 7 }),
        (b"D\0\0\0\x07K\0\x01t\0\0\0\x011", Message::Delete { relation: 7 }),
        (b"D\0\0\0\x07O\0\x01b\0\0\0\x04\0\0\0\x01", Message::Delete { relation: 7 }),
        (b"T\0\0\0\x02\x03\0\0\0\x07\0\0\0\x08", Message::Truncate),
        (
            b"M\x01\0\0\0\0\0\0\0\x0Aoutbox\0\0\0\0\x03{\xFF}",
            Message::Logical { transactional: true, lsn: Lsn(10), prefix: "outbox", content: b"{\xFF}" },
        ),
        (
            b"M\0\0\0\0\0\0\0\0\x0A\0\0\0\0\0",
            Message::Logical { transactional: false, lsn: Lsn(10), prefix: "", content: b"" },
        ),
        (b"A\0\0\x02\xDB\0\0\x02\xDC", Message::StreamAbort),
        (b"A\0\0\x02\xDB\0\0\x02\xDC\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02", Message::StreamAbort),
    ];

    /// What a whole stream of one of the recordings in `tests/data/pgoutput` decodes to.
    struct Recording(Vec<Vec<u8>>);

    impl Recording {
        fn read(hex: &str) -> Recording {
            let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
            Recording(hex.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect())
        }

        fn messages(&self) -> Vec<Message<'_>> {
            self.0.iter().map(|bytes| decode(bytes).unwrap()).collect()
        }

        fn rows(&self) -> Vec<(u32, Vec<Value<'_>>)> {
            let row = |message| match message {
                Message::Insert { relation, row } => Some((relation, row.columns().collect())),
                _ => None,
            };
            self.messages().into_iter().filter_map(row).collect()
        }
    }

    fn text_recording() -> Recording {
        Recording::read(include_str!("../../tests/data/pgoutput/text.hex"))
    }

    fn binary_recording() -> Recording {
        Recording::read(include_str!("../../tests/data/pgoutput/binary.hex"))
    }

    #[test]
    fn every_message_of_the_protocol_is_decoded() {
        for (bytes, message) in SAMPLES {
            assert_eq!(decode(bytes).as_ref(), Ok(message), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_relation_yields_its_columns() {
        let Message::Relation(relation) = SAMPLES[3].1 else { panic!("sample 3 is a relation") };
        let id = RelationColumn { key: true, name: "id", type_oid: 2950, type_modifier: -1 };
        let n = RelationColumn { key: false, name: "n", type_oid: 1700, type_modifier: 0xA_0006 };
        assert_eq!(relation.columns().collect::<Vec<_>>(), [id, n]);
    }

    #[test]
    fn a_row_yields_its_values_as_they_are_utf8_or_not() {
        let Message::Insert { row, .. } = SAMPLES[7].1 else { panic!("sample 7 is an insert") };
        let values =
            [Value::Null, Value::Unchanged, Value::Text(b"hi"), Value::Binary(b"\xFF\0\xFE"), Value::Text(b"")];
        assert_eq!(row.columns().collect::<Vec<_>>(), values);
        assert_eq!(row.columns().len(), 5);
    }

    #[test]
    fn a_message_cut_at_any_byte_is_malformed() {
        for (bytes, _) in SAMPLES {
            for cut in 0..bytes.len() {
                // The short form of a stream abort is the beginning of the long one.
                let short_abort = bytes[0] == b'A' && cut == 9;
                assert_eq!(decode(&bytes[..cut]).is_ok(), short_abort, "{}", bytes[..cut].escape_ascii());
            }
        }
    }

    #[test]
    fn a_message_with_bytes_behind_it_is_malformed() {
        for (bytes, _) in SAMPLES {
            let longer = [bytes, &b"\0"[..]].concat();
            let Malformed { offset, .. } = decode(&longer).unwrap_err();
            assert!(offset >= bytes.len().min(9), "{}", longer.escape_ascii());
        }
    }

    #[test]
    fn a_malformed_message_says_what_was_expected_and_where() {
        for (bytes, text) in [
            (&b""[..], "a message's tag at byte 0"),
            (b"S\0\0\0\x01\x01", "a message of protocol version 1 at byte 0"),
            (b"C\x01", "flags 0 at byte 1"),
            (b"M\x02", "flags 0 or 1 at byte 1"),
            (b"O\0\0\0\0\0\0\0\x09f\xFFr\0", "the origin's name at byte 9"),
            (b"R\0\0\0\x07app\0out\xC3\0d\0\0", "a table's name at byte 9"),
            (b"M\0\0\0\0\0\0\0\0\x0A\xFF\0\0\0\0\0", "the message's prefix at byte 10"),
            (b"I\0\0\0\x07K\0\0", "a new row at byte 5"),
            (b"I\0\0\0\x07N\0\x01x", "a column: n, u, t or b at byte 8"),
            (b"I\0\0\0\x07N\0\x01t\xFF\xFF\xFF\xFF", "a text value at byte 13"),
            (b"U\0\0\0\x07X\0\0", "an old key or an old row at byte 5"),
            (b"U\0\0\0\x07K\0\0K\0\0", "a new row at byte 8"),
            (b"D\0\0\0\x07N\0\0", "an old key or an old row at byte 5"),
            (b"T\xFF\xFF\xFF\xFF\0\0\0\0\x07", "the tables' OIDs at byte 6"),
            (b"A\0\0\0\x01\0\0\0\x02\0", "the abort's LSN and time at byte 9"),
            (b"O\0\0\0\0\0\0\0\x09far\0!", "the message's end at byte 13"),
        ] {
            let error = decode(bytes).unwrap_err();
            assert_eq!(error.to_string(), format!("malformed pgoutput message: expected {text}"));
        }
    }

    #[test]
    fn a_recorded_stream_of_postgresql_15_is_decoded_whole() {
        let (outbox, sized) = (16391, 16398);
        for recording in [text_recording(), binary_recording()] {
            let messages = recording.messages();
            let tags: Vec<u8> = recording.0.iter().map(|bytes| bytes[0]).collect();
            assert_eq!(tags.escape_ascii().to_string(), "BYYRIICBRIUUUDDYYRRTCMBMCBORIC");
            assert_eq!(messages[1], Message::Type { oid: 16385, schema: "public", name: "mood" });
            assert_eq!(messages[2], Message::Type { oid: 16390, schema: "pg_catalog", name: "text" });
            assert_eq!(messages[10], Message::Update { relation: outbox });
            assert_eq!(messages[12], Message::Update { relation: sized });
            assert_eq!(messages[14], Message::Delete { relation: sized });
            let logical = |transactional, lsn, prefix, content| Message::Logical {
                transactional,
                lsn: Lsn(lsn),
                prefix,
                content,
            };
            assert_eq!(messages[21], logical(false, 0x152_F830, "outboxd", b"outside"));
            assert_eq!(messages[23], logical(true, 0x152_F7E8, "outbox", b"inside"));
            assert_eq!(messages[26], Message::Origin { commit_lsn: Lsn(0xAB_CDEF), name: "elsewhere" });
        }
    }

    #[test]
    fn a_recorded_commit_repeats_its_begin_and_ends_behind_it() {
        let recording = text_recording();
        let mut open = None;
        for message in recording.messages() {
            match message {
                Message::Begin { commit_lsn, committed_at, .. } => open = Some((commit_lsn, committed_at)),
                Message::Commit { commit_lsn, end_lsn, committed_at } => {
                    assert_eq!(open.take(), Some((commit_lsn, committed_at)));
                    assert!(end_lsn > commit_lsn);
                }
                _ => {}
            }
        }
        assert_eq!(open, None);
    }

    #[test]
    fn a_recorded_relation_names_its_columns_and_its_key() {
        let recording = binary_recording();
        let Message::Relation(outbox) = recording.messages()[3] else { panic!("message 3 is a relation") };
        assert_eq!((outbox.schema, outbox.name), ("public", "outbox"));
        let columns: Vec<_> = outbox.columns().map(|column| (column.name, column.type_oid, column.key)).collect();
        let expected = [
            ("id", 2950, true),
            ("aggregate_id", 20, false),
            ("payload", 114, false),
            ("headers", 3802, false),
            ("mood", 16385, false),
            ("label", 16390, false),
            ("created_at", 1184, false),
        ];
        assert_eq!(columns, expected);
        let Message::Relation(sized) = recording.messages()[8] else { panic!("message 8 is a relation") };
        assert_eq!(sized.name, "Größe");
        // REPLICA IDENTITY FULL makes every column part of the key; numeric(10, 2) has a modifier.
        let columns: Vec<_> = sized.columns().map(|column| (column.key, column.type_modifier)).collect();
        assert_eq!(columns, [(true, -1), (true, 10 << 16 | (2 + 4))]);
    }

    #[test]
    fn a_recorded_row_has_its_values_in_text() {
        use Value::{Null, Text};
        let recording = text_recording();
        let rows = recording.rows();
        let full = [
            Text(b"018f3b5c-0000-7000-8000-000000000001"),
            Text(b"42"),
            Text("{\"a\": 1e400, \"a\": \"😀\"}".as_bytes()),
            Text(b"{\"b\": null}"),
            Text(b"cross"),
            Text(b""),
            Text(b"2026-01-02 03:04:05.000006+00"),
        ];
        assert_eq!(rows[0], (16391, full.to_vec()));
        let id = Text(b"018f3b5c-0000-7000-8000-000000000002");
        assert_eq!(rows[1], (16391, vec![id, Null, Null, Null, Null, Null, Null]));
        assert_eq!(rows[2], (16398, vec![Text(b"1"), Text(b"2.50")]));
        assert_eq!(rows[3], (16398, vec![Text(b"2"), Null]));
    }

    #[test]
    fn a_recorded_row_has_its_values_in_binary() {
        use Value::{Binary, Null};
        let recording = binary_recording();
        let rows = recording.rows();
        let full = [
            Binary(b"\x01\x8F\x3B\x5C\0\0\x70\0\x80\0\0\0\0\0\0\x01"),
            Binary(&[0, 0, 0, 0, 0, 0, 0, 42]),
            Binary("{\"a\": 1e400, \"a\": \"😀\"}".as_bytes()),
            Binary(b"\x01{\"b\": null}"),
            Binary(b"cross"),
            Binary(b""),
            Binary(&820_638_245_000_006_i64.to_be_bytes()),
        ];
        assert_eq!(rows[0], (16391, full.to_vec()));
        assert_eq!(rows[3], (16398, vec![Binary(&[0, 0, 0, 2]), Null]));
    }

    /// Writes messages as the server does.
    #[derive(Default)]
    struct Encoder(Vec<u8>);

    impl Encoder {
        fn put(mut self, bytes: impl AsRef<[u8]>) -> Encoder {
            self.0.extend_from_slice(bytes.as_ref());
            self
        }

        fn string(self, text: &str) -> Encoder {
            self.put(text).put([0])
        }

        fn counted(self, bytes: &[u8]) -> Encoder {
            self.put((bytes.len() as u32).to_be_bytes()).put(bytes)
        }

        fn tuple(self, values: &[Value<'_>]) -> Encoder {
            let encoder = self.put((values.len() as u16).to_be_bytes());
            values.iter().fold(encoder, |encoder, value| match value {
                Value::Null => encoder.put("n"),
                Value::Unchanged => encoder.put("u"),
                Value::Text(bytes) => encoder.put("t").counted(bytes),
                Value::Binary(bytes) => encoder.put("b").counted(bytes),
            })
        }

        fn relation_column(self, column: &RelationColumn<'_>) -> Encoder {
            let modifier = column.type_modifier.to_be_bytes();
            self.put([u8::from(column.key)]).string(column.name).put(column.type_oid.to_be_bytes()).put(modifier)
        }
    }

    /// A row's values, each as its kind and bytes.
    fn values() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), 0..40)), 0..20)
    }

    fn borrow(values: &[(u8, Vec<u8>)]) -> Vec<Value<'_>> {
        let kinds = [|_| Value::Null, |_| Value::Unchanged, Value::Text, Value::Binary];
        values.iter().map(|(kind, bytes)| kinds[usize::from(*kind)](bytes)).collect()
    }

    const NAME: &str = "[^\0]{1,20}";

    proptest! {
        #[test]
        fn any_row_survives_the_wire(relation: u32, values in values(), old in values()) {
            let (new, old, oid) = (borrow(&values), borrow(&old), relation.to_be_bytes());
            let insert = Encoder::default().put("I").put(oid).put("N").tuple(&new).0;
            let Ok(Message::Insert { relation: decoded, row }) = decode(&insert) else { panic!("an insert") };
            prop_assert_eq!((decoded, row.columns().collect::<Vec<_>>()), (relation, new.clone()));
            let update = Encoder::default().put("U").put(oid).put("O").tuple(&old).put("N").tuple(&new).0;
            prop_assert_eq!(decode(&update), Ok(Message::Update { relation }));
            let delete = Encoder::default().put("D").put(oid).put("K").tuple(&old).0;
            prop_assert_eq!(decode(&delete), Ok(Message::Delete { relation }));
        }

        #[test]
        fn any_relation_survives_the_wire(
            id: u32, schema in NAME, name in NAME,
            columns in prop::collection::vec((any::<bool>(), NAME, any::<u32>(), any::<i32>()), 0..20),
        ) {
            let columns: Vec<_> = columns.iter().map(|(key, name, type_oid, type_modifier)| {
                RelationColumn { key: *key, name, type_oid: *type_oid, type_modifier: *type_modifier }
            }).collect();
            let head = Encoder::default().put("R").put(id.to_be_bytes()).string(&schema).string(&name).put("d");
            let head = head.put((columns.len() as u16).to_be_bytes());
            let bytes = columns.iter().fold(head, Encoder::relation_column).0;
            let Ok(Message::Relation(relation)) = decode(&bytes) else { panic!("a relation") };
            prop_assert_eq!((relation.id, relation.schema, relation.name), (id, &schema[..], &name[..]));
            prop_assert_eq!(relation.columns().collect::<Vec<_>>(), columns);
        }

        #[test]
        fn any_logical_message_survives_the_wire(
            transactional: bool, lsn: u64, prefix in "[^\0]{0,20}", content: Vec<u8>,
        ) {
            let head = Encoder::default().put("M").put([u8::from(transactional)]).put(lsn.to_be_bytes());
            let bytes = head.string(&prefix).counted(&content).0;
            let expected = Message::Logical { transactional, lsn: Lsn(lsn), prefix: &prefix, content: &content };
            prop_assert_eq!(decode(&bytes), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(tag in prop::sample::select(&b"BCORYIUDTMAx"[..]), rest: Vec<u8>) {
            let bytes = Encoder::default().put([tag]).put(rest).0;
            match decode(&bytes) {
                Ok(Message::Insert { row, .. }) => prop_assert_eq!(row.columns().count(), usize::from(row.column_count)),
                Ok(Message::Relation(table)) => {
                    prop_assert_eq!(table.columns().count(), usize::from(table.column_count));
                }
                Ok(_) => {}
                Err(malformed) => prop_assert!(malformed.offset <= bytes.len()),
            }
        }

        #[test]
        fn no_change_of_a_byte_makes_it_panic(sample in 0..SAMPLES.len(), at: prop::sample::Index, byte: u8) {
            let mut bytes = SAMPLES[sample].0.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(Message::Insert { row, .. }) = decode(&bytes) {
                prop_assert_eq!(row.columns().count(), usize::from(row.column_count));
            }
        }
    }
}
