BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL statement_timeout = {timeout};
SET LOCAL lock_timeout = 0; -- the wait for open transactions counts as one for a lock
DO $outboxd$
DECLARE
    wanted   CONSTANT text := {slot};
    existing pg_replication_slots;
BEGIN
    PERFORM pg_advisory_xact_lock(8028069071520394340); -- still one init at a time
    -- A slot older than its publication fails, or from PostgreSQL 18 on loses events in silence.
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = {publication}) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('publication %I does not exist, and the slot must not be older', {publication}),
            HINT = 'mend what failed above, then run the whole script again';
    END IF;

    SELECT * INTO existing FROM pg_replication_slots WHERE slot_name = wanted;
    IF existing.slot_name IS NULL THEN
        -- In a subtransaction, which the handler makes: when others change the catalog meanwhile, the server's decoder
        -- puts the wrong resource owner back, and in a plain block the statement fails over its own snapshot.
        BEGIN
            IF current_setting('server_version_num')::integer >= 170000 THEN
                -- failover: standbys that synchronise slots keep it through a promotion.
                EXECUTE 'SELECT pg_create_logical_replication_slot($1, ''pgoutput'', false, false, true)' USING wanted;
            ELSE
                PERFORM pg_create_logical_replication_slot(wanted, 'pgoutput');
            END IF;
        EXCEPTION WHEN internal_error THEN
            RAISE;
        END;
    ELSIF (existing.slot_type, existing.plugin, existing.database) IS DISTINCT FROM ('logical', 'pgoutput', current_database()) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_object',
            MESSAGE = format('replication slot "%s" exists and is not ours: %s', wanted,
                concat_ws(', ', existing.slot_type, 'plugin ' || existing.plugin, 'database ' || existing.database)),
            HINT = 'choose another name for postgres.slot';
    END IF;
END
$outboxd$;
COMMIT;
