-- Events that could not be published: kept until they are, or until somebody discards them.
--
-- A letter is stored before the slot passes its event, so that an event is at any time in Kafka, in this table, or still
-- in front of the slot. The relay writes only while outboxd.position names it; people write through outboxd's commands.

CREATE TABLE outboxd.dead_letter (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot          text        NOT NULL,
    system_id     bigint      NOT NULL,
    timeline      integer     NOT NULL,
    commit_lsn    pg_lsn      NOT NULL,
    row_number    bigint      NOT NULL,
    committed_at  timestamptz NOT NULL,
    origin_schema text,
    origin_name   text        NOT NULL,
    event_id      text,
    event_type    text,
    topic         text,
    key           bytea,
    -- A hash, because a key may be larger than an index entry. decode() is immutable, which convert_to() is not; it
    -- takes every byte as it is but the backslash.
    lane          bytea       GENERATED ALWAYS AS
        (sha256(decode(replace(topic, E'\\', E'\\\\'), 'escape') || decode('00', 'hex') || key)) STORED,
    column_names  text[]      NOT NULL,
    column_values bytea[]     NOT NULL,
    size          bigint      NOT NULL DEFAULT 0,
    not_kept      text[]      NOT NULL,
    reason        text        NOT NULL,
    message       text        NOT NULL,
    state         text        NOT NULL CHECK (state IN ('pending', 'retrying', 'delivered', 'failed', 'discarded')),
    attempts      integer     NOT NULL,
    attempts_left integer     NOT NULL,
    next_attempt  timestamptz NOT NULL,
    owner         text,
    lease_until   timestamptz,
    parked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at    timestamptz,
    note          text,
    noted_by      text,
    -- An event is stored once, however often its WAL is read. In this order it also finds letters by their position.
    UNIQUE (slot, commit_lsn, row_number, system_id, timeline),
    CHECK ((state = 'retrying') = (owner IS NOT NULL) AND (owner IS NULL) = (lease_until IS NULL))
);

-- The open letters of a lane, as in the WAL.
CREATE INDEX dead_letter_lane ON outboxd.dead_letter (slot, lane, system_id, commit_lsn, row_number, id)
    WHERE state IN ('pending', 'retrying', 'failed');

-- What is due, with all that is needed to find its lanes without reading the letters themselves.
CREATE INDEX dead_letter_due ON outboxd.dead_letter (slot, next_attempt) INCLUDE (lane, id)
    WHERE state IN ('pending', 'retrying');

-- How many letters there are of each state, and the oldest of them.
CREATE INDEX dead_letter_state ON outboxd.dead_letter (slot, state, parked_at);

-- What may be forgotten.
CREATE INDEX dead_letter_settled ON outboxd.dead_letter (slot, settled_at)
    WHERE state IN ('delivered', 'discarded');

CREATE TABLE outboxd.dead_letter_attempt (
    letter  bigint      NOT NULL REFERENCES outboxd.dead_letter ON DELETE CASCADE,
    number  integer     NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason  text        NOT NULL,
    message text        NOT NULL,
    PRIMARY KEY (letter, number)
);

CREATE TABLE outboxd.pause (
    slot    text        PRIMARY KEY,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    message text        NOT NULL
);

CREATE TABLE outboxd.known_topic (
    slot  text NOT NULL,
    topic text NOT NULL,
    PRIMARY KEY (slot, topic)
);

COMMENT ON TABLE outboxd.dead_letter IS 'events that could not be published, with all that is needed to publish them later';
COMMENT ON COLUMN outboxd.dead_letter.origin_schema IS 'the schema of the outbox table; NULL for a logical message';
COMMENT ON COLUMN outboxd.dead_letter.origin_name IS 'the name of the outbox table, or the prefix of a logical message';
COMMENT ON COLUMN outboxd.dead_letter.lane IS 'hash of topic and key, for which order is kept; NULL when either is unknown';
COMMENT ON COLUMN outboxd.dead_letter.column_values IS 'in the order of column_names: the bytes that PostgreSQL prints, of bytea its own';
COMMENT ON COLUMN outboxd.dead_letter.size IS 'the bytes of column_values, uncompressed';
COMMENT ON COLUMN outboxd.dead_letter.not_kept IS 'columns that only the outbox table has';
COMMENT ON COLUMN outboxd.dead_letter.reason IS 'why it was last rejected; behind: an earlier event of its lane is parked';
COMMENT ON COLUMN outboxd.dead_letter.attempts_left IS 'how often the relay will still try by itself';
COMMENT ON COLUMN outboxd.dead_letter.lease_until IS 'the relay that owns the letter may publish it until then';
COMMENT ON COLUMN outboxd.dead_letter.settled_at IS 'when it was delivered or discarded';
COMMENT ON TABLE outboxd.dead_letter_attempt IS 'what became of each attempt to publish a dead letter';
COMMENT ON TABLE outboxd.known_topic IS 'topics that have existed: with unknown_topic = "park", one that was deleted since is waited for';
COMMENT ON TABLE outboxd.pause IS 'relays that paused because too many events are rejected; outboxd resume deletes the row';
