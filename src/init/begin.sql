BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL client_min_messages = warning;

DO $outboxd$
BEGIN
    PERFORM pg_advisory_xact_lock(8028069071520394340); -- any number, the same in every release
    IF current_database() <> {database} THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('this is database "%s", and the relay reads %I', current_database(), {database}),
            HINT = 'connect to the database that postgres.url names';
    END IF;
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('PostgreSQL %s is too old', current_setting('server_version')),
            HINT = 'outboxd needs PostgreSQL 14 or newer';
    END IF;
END
$outboxd$;

CREATE SCHEMA IF NOT EXISTS outboxd;
CREATE TABLE IF NOT EXISTS outboxd.migration (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

DO $outboxd$
DECLARE
    newest CONSTANT integer := (SELECT max(version) FROM outboxd.migration);
BEGIN
    IF newest > {newest} THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('the database was migrated to version %s by a newer outboxd; this one knows version {newest}', newest),
            HINT = 'use that newer outboxd';
    END IF;
END
$outboxd$;
