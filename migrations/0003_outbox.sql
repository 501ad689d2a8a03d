-- The outbox table and outbox.emit(), for configurations that read public.outbox by our column names.
--
-- created_at is the clock, not now(): now() is the transaction's start, which a long transaction leaves far behind,
-- and a record's timestamp should be near its event. It also tells the events of one transaction apart.
--
-- An existing table is neither replaced nor taken for ours unseen: it must have every column that emit() writes and
-- the unique key that emit() relies on. It may have more.
DO $table$
DECLARE
    missing text;
BEGIN
    IF to_regclass('public.outbox') IS NULL THEN
        CREATE TABLE public.outbox (
            id              uuid        PRIMARY KEY DEFAULT outbox.uuidv7(),
            aggregate_type  text,
            aggregate_id    text,
            event_type      text        NOT NULL,
            payload         jsonb,
            headers         jsonb,
            created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
            idempotency_key text,
            UNIQUE (event_type, idempotency_key)
        );
        COMMENT ON TABLE public.outbox IS 'events to publish; written by outbox.emit() or by INSERT, read by outboxd';
        RETURN;
    END IF;

    SELECT string_agg(wanted.name || ' ' || wanted.type, ', ' ORDER BY wanted.place) INTO missing
    FROM (VALUES (1, 'id', 'uuid'), (2, 'aggregate_type', 'text'), (3, 'aggregate_id', 'text'),
                 (4, 'event_type', 'text'), (5, 'payload', 'jsonb'), (6, 'headers', 'jsonb'),
                 (7, 'created_at', 'timestamp with time zone'), (8, 'idempotency_key', 'text')
         ) AS wanted (place, name, type)
    WHERE NOT EXISTS (
        SELECT FROM pg_attribute AS a
        WHERE a.attrelid = to_regclass('public.outbox') AND a.attname = wanted.name
          AND format_type(a.atttypid, NULL) = wanted.type AND NOT a.attisdropped);
    IF missing IS NULL AND NOT EXISTS (
        SELECT FROM pg_index AS i
        WHERE i.indrelid = to_regclass('public.outbox') AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
          AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute AS a
               WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
              = ARRAY['event_type', 'idempotency_key'])
    THEN
        missing := 'UNIQUE (event_type, idempotency_key)';
    END IF;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_table',
            MESSAGE = 'table public.outbox exists and is not the one that outboxd makes: it lacks ' || missing,
            HINT = 'add what is missing; or let outboxd read the table as it is, by naming its columns under [[outbox]] columns; or configure another table';
    END IF;
    RAISE WARNING 'table public.outbox exists and has every column of ours: it is used as it is';
END
$table$;

-- Writes an event and returns its id. A repeated (event_type, idempotency_key) writes nothing and returns the id of
-- the event that is there.
--
-- The right to emit is the right to write the table: GRANT INSERT, SELECT ON public.outbox TO application. (SELECT,
-- because RETURNING and ON CONFLICT read.) As SECURITY DEFINER it would lend the owner's rights to everybody.
--
-- Two sessions with the same key: the second waits in INSERT until the first has ended. Committed: the SELECT, with a
-- snapshot of its own under READ COMMITTED, sees the row. Rolled back: the INSERT succeeds. Deleted between the two:
-- another round. Under REPEATABLE READ a row committed after the snapshot cannot be seen: the INSERT itself fails
-- with 40001, and the caller repeats its transaction as that isolation level always asks.
CREATE FUNCTION outbox.emit(
    aggregate_type  text,
    aggregate_id    text,
    event_type      text,
    payload         jsonb,
    headers         jsonb DEFAULT NULL,
    idempotency_key text  DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    event_id uuid;
BEGIN
    FOR round IN 1..100 LOOP
        INSERT INTO public.outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, idempotency_key)
        VALUES (outbox.uuidv7(), emit.aggregate_type, emit.aggregate_id, emit.event_type, emit.payload, emit.headers,
                emit.idempotency_key)
        ON CONFLICT (event_type, idempotency_key) DO NOTHING
        RETURNING id INTO event_id;
        IF event_id IS NOT NULL THEN
            RETURN event_id;
        END IF;
        SELECT o.id INTO event_id FROM public.outbox AS o
        WHERE o.event_type = emit.event_type AND o.idempotency_key = emit.idempotency_key;
        IF event_id IS NOT NULL THEN
            RETURN event_id;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING
        ERRCODE = 'object_not_in_prerequisite_state',
        MESSAGE = format('an event %s with idempotency key %L exists and cannot be read', emit.event_type, emit.idempotency_key),
        HINT = 'row-level security on public.outbox hides it from this role';
END
$function$;

GRANT EXECUTE ON FUNCTION outbox.emit(text, text, text, jsonb, jsonb, text) TO PUBLIC;
