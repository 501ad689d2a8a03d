-- The relay's own place: who publishes from which slot, and how far it got.
--
-- It mirrors the slot for people, for the hand-over between two relays and for recovery after a lost slot; the slot
-- itself stays the authority. (system_id, timeline, confirmed) are always written together: an LSN means nothing
-- without the history it belongs to.

CREATE TABLE outboxd.position (
    slot              text        PRIMARY KEY,
    system_id         bigint      NOT NULL,
    timeline          integer     NOT NULL,
    confirmed         pg_lsn      NOT NULL,
    leader            text        NOT NULL,
    sender_timeout_ms bigint      NOT NULL,
    left_cleanly      boolean     NOT NULL,
    claimed_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
);

COMMENT ON TABLE outboxd.position IS 'how far each relay got, mirrored from its replication slot';
COMMENT ON COLUMN outboxd.position.confirmed IS 'everything before this is settled; 0/0 before the first save';
COMMENT ON COLUMN outboxd.position.sender_timeout_ms IS 'how long the leader may publish after it was last seen: a successor waits so long';
COMMENT ON COLUMN outboxd.position.left_cleanly IS 'the leader said goodbye, so a successor need not wait for it to be dead';
