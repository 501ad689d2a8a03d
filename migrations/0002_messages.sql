-- Events without a table: outbox.emit_message() writes a transactional logical message.
--
-- Functions are SECURITY INVOKER and may be executed by everybody: they lend nobody a right. pg_logical_emit_message()
-- is PUBLIC in PostgreSQL itself, so whoever may connect may write messages; revoke it there where that is too much.
-- Each function sets its search_path, so that no caller's schema can stand in for pg_catalog.

CREATE SCHEMA IF NOT EXISTS outbox;
GRANT USAGE ON SCHEMA outbox TO PUBLIC;

-- PostgreSQL 18 brings its own uuidv7(). Before, the same layout (RFC 9562): 48 bits of milliseconds, then the
-- fraction of the millisecond in 12 bits, so that ids sort by the microsecond; the rest is random.
DO $version$
BEGIN
    IF current_setting('server_version_num')::integer >= 180000 THEN
        CREATE FUNCTION outbox.uuidv7() RETURNS uuid
        LANGUAGE sql VOLATILE PARALLEL SAFE
        AS 'SELECT pg_catalog.uuidv7()';
    ELSE
        CREATE FUNCTION outbox.uuidv7() RETURNS uuid
        LANGUAGE plpgsql VOLATILE PARALLEL SAFE
        SET search_path = pg_catalog, pg_temp
        AS $function$
        DECLARE
            micros   CONSTANT bigint  := floor(extract(epoch FROM clock_timestamp()) * 1000000);
            fraction CONSTANT integer := (micros % 1000) * 4096 / 1000;
            bytes    bytea            := uuid_send(gen_random_uuid()); -- brings the variant bits
        BEGIN
            bytes := overlay(bytes PLACING substring(int8send(micros / 1000) FROM 3) FROM 1 FOR 6);
            bytes := set_byte(bytes, 6, 112 | (fraction >> 8)); -- 0111: version 7
            bytes := set_byte(bytes, 7, fraction & 255);
            RETURN encode(bytes, 'hex')::uuid;
        END
        $function$;
    END IF;
END
$version$;

-- The payload is jsonb as in outbox.emit(), so that changing from one to the other changes no caller and no byte of
-- the event: json_build_object() writes a jsonb value as jsonb prints it, and the relay publishes exactly that text.
--
-- There is no table to remember an idempotency key. A repeated key therefore writes a second message, with the same
-- id (made from event type and key, a version 8 UUID), by which consumers recognise it.
CREATE FUNCTION outbox.emit_message(
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
DECLARE
    bytes    bytea;
    event_id uuid;
BEGIN
    IF event_type IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'not_null_violation', MESSAGE = 'an event needs an event_type';
    END IF;
    IF idempotency_key IS NULL THEN
        event_id := outbox.uuidv7();
    ELSE
        bytes := sha256(convert_to(json_build_array(event_type, idempotency_key)::text, 'UTF8'));
        bytes := set_byte(bytes, 6, 128 | (get_byte(bytes, 6) & 15));
        bytes := set_byte(bytes, 8, 128 | (get_byte(bytes, 8) & 63));
        event_id := encode(substring(bytes FROM 1 FOR 16), 'hex')::uuid;
    END IF;
    PERFORM pg_logical_emit_message(true, 'outbox', json_build_object(
        'id', event_id,
        'aggregate_type', aggregate_type,
        'aggregate_id', aggregate_id,
        'event_type', event_type,
        'payload', payload,
        'headers', headers,
        'created_at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text);
    RETURN event_id;
END
$function$;

GRANT EXECUTE ON FUNCTION outbox.uuidv7() TO PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.emit_message(text, text, text, jsonb, jsonb, text) TO PUBLIC;
