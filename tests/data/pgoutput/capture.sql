-- What text.hex and binary.hex record: every kind of message that protocol version 1 has, from PostgreSQL 15.
-- Both were taken from this one history with psql -At, on a database in UTF8 with wal_level = logical:
--   SELECT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes('capture', NULL, NULL,
--     'proto_version', '1', 'publication_names', 'capture', 'messages', 'true'[, 'binary', 'true']);

CREATE TYPE mood AS ENUM ('calm', 'cross');
CREATE DOMAIN label AS text;
CREATE TABLE outbox (
    id uuid PRIMARY KEY,
    aggregate_id bigint,
    payload json,
    headers jsonb,
    mood mood,
    label label,
    created_at timestamptz
);
CREATE TABLE "Größe" (a int PRIMARY KEY, b numeric(10, 2));
ALTER TABLE "Größe" REPLICA IDENTITY FULL;
CREATE PUBLICATION capture FOR ALL TABLES;
SELECT pg_create_logical_replication_slot('capture', 'pgoutput');
SELECT pg_replication_origin_create('elsewhere');

-- Transaction 1: Insert, with the Relation and Type messages before it; duplicate keys and 4-byte UTF-8 stay as typed.
INSERT INTO outbox VALUES
    ('018f3b5c-0000-7000-8000-000000000001', 42, '{"a": 1e400, "a": "😀"}', '{"b": null}', 'cross', '', '2026-01-02 03:04:05.000006+00'),
    ('018f3b5c-0000-7000-8000-000000000002', NULL, NULL, NULL, NULL, NULL, NULL);

-- Transaction 2: Update without an old row, with an old key, with an old row; Delete by key and by row; Truncate of two.
BEGIN;
INSERT INTO "Größe" VALUES (1, 2.50);
UPDATE outbox SET aggregate_id = 43 WHERE aggregate_id = 42;
UPDATE outbox SET id = '018f3b5c-0000-7000-8000-000000000003' WHERE aggregate_id = 43;
UPDATE "Größe" SET b = 3;
DELETE FROM outbox WHERE aggregate_id = 43;
DELETE FROM "Größe";
TRUNCATE outbox, "Größe" RESTART IDENTITY CASCADE;
COMMIT;

-- Transaction 3, with a message outside of it that is sent at once.
BEGIN;
SELECT pg_logical_emit_message(true, 'outbox', 'inside');
SELECT pg_logical_emit_message(false, 'outboxd', 'outside');
COMMIT;

-- Transaction 4, replayed from another node.
SELECT pg_replication_origin_session_setup('elsewhere');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/ABCDEF', '2026-01-02 03:04:05+00');
INSERT INTO "Größe" VALUES (2, NULL);
COMMIT;
SELECT pg_replication_origin_session_reset();
