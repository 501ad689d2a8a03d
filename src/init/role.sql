DO $outboxd$
DECLARE
    relay  CONSTANT text    := {role};
    tables CONSTANT text[]  := {tables};
    written_tables  CONSTANT text[] := {written_tables};
    written_columns CONSTANT text[] := {written_columns};
    is_rds CONSTANT boolean := EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication');
    item   text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = relay) THEN
        EXECUTE format('CREATE ROLE %I LOGIN', relay);
    END IF;

    -- Amazon RDS lends the attribute through a role.
    IF is_rds AND NOT pg_has_role(relay, 'rds_replication', 'MEMBER') THEN
        EXECUTE format('GRANT rds_replication TO %I', relay);
    ELSIF NOT is_rds AND NOT (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = relay) THEN
        BEGIN
            EXECUTE format('ALTER ROLE %I REPLICATION', relay);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION USING
                ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = format('role %I may not give role %I the attribute REPLICATION', current_user, relay),
                HINT = format('as a superuser: CREATE ROLE %1$I LOGIN REPLICATION; or, where it exists, ALTER ROLE %1$I REPLICATION; then run init again', relay);
        END;
    END IF;

    IF NOT has_database_privilege(relay, current_database(), 'CONNECT') THEN
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), relay);
    END IF;

    -- Who holds the slot and how old transactions are is hidden from other roles without this one; the relay works
    -- without it and says less.
    IF NOT pg_has_role(relay, 'pg_read_all_stats', 'MEMBER') THEN
        BEGIN
            EXECUTE format('GRANT pg_read_all_stats TO %I', relay);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING USING
                MESSAGE = format('role %I may not grant pg_read_all_stats: the relay will not see who holds the slot', current_user),
                HINT = format('as a superuser: GRANT pg_read_all_stats TO %I', relay);
        END;
    END IF;

    EXECUTE format('GRANT USAGE ON SCHEMA outboxd TO %I', relay);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE ON outboxd.position TO %I', relay);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON outboxd.dead_letter, outboxd.dead_letter_attempt, outboxd.known_topic, outboxd.pause TO %I', relay);

    -- Streaming needs no right on the tables; reading retained rows again does.
    FOREACH item IN ARRAY tables LOOP
        IF to_regclass(item) IS NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = 'undefined_table',
                MESSAGE = format('outbox table %s does not exist', item),
                HINT = concat('create it, or correct [[outbox]] table or join, or --table', (
                    SELECT ': there is ' || string_agg(format('%s.%I', relnamespace::regnamespace, relname), ', ' ORDER BY oid)
                    FROM pg_class WHERE relkind IN ('r', 'p') AND lower(relname) = lower((parse_ident(item))[2])),
                    '; init makes public.outbox only when its columns are mapped by our names');
        END IF;
        IF NOT has_table_privilege(relay, item, 'SELECT') THEN
            EXECUTE format('GRANT SELECT ON %s TO %I', item, relay);
        END IF;
        IF NOT has_schema_privilege(relay, (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(item)), 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = to_regclass(item)), relay);
        END IF;
    END LOOP;

    -- Write-back: of each table the named columns only.
    FOR place IN 1 .. cardinality(written_tables) LOOP
        IF NOT EXISTS (
            SELECT FROM pg_attribute WHERE attrelid = to_regclass(written_tables[place]) AND attname = written_columns[place]
                AND attnum > 0 AND NOT attisdropped)
        THEN
            RAISE WARNING USING
                MESSAGE = format('outbox table %s has no column %I, which [[outbox]] writeback names', written_tables[place], written_columns[place]),
                HINT = 'create it, then run init again: the relay needs the right to write it';
        ELSIF NOT has_column_privilege(relay, written_tables[place], written_columns[place], 'UPDATE') THEN
            EXECUTE format('GRANT UPDATE (%I) ON %s TO %I', written_columns[place], written_tables[place], relay);
        END IF;
    END LOOP;
END
$outboxd$;
