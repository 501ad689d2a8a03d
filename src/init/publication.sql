DO $outboxd$
DECLARE
    wanted   CONSTANT text   := {publication};
    tables   CONSTANT text[] := {tables};
    existing pg_publication;
    item     text;
BEGIN
    SELECT * INTO existing FROM pg_publication WHERE pubname = wanted;
    IF existing.oid IS NULL THEN
        -- Without tables it still carries logical messages.
        EXECUTE format('CREATE PUBLICATION %I%s WITH (publish = %L, publish_via_partition_root = true)',
            wanted, ' FOR TABLE ' || nullif(array_to_string(tables, ', '), ''), 'insert');
        RETURN;
    END IF;

    FOREACH item IN ARRAY tables LOOP
        IF NOT existing.puballtables AND NOT EXISTS (
            SELECT FROM pg_publication_rel WHERE prpubid = existing.oid AND prrelid = to_regclass(item))
        THEN
            EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', wanted, item);
        END IF;
    END LOOP;

    IF (existing.pubinsert, existing.pubupdate, existing.pubdelete, existing.pubtruncate, existing.pubviaroot)
        IS DISTINCT FROM (true, false, false, false, true)
    THEN
        RAISE WARNING USING
            MESSAGE = format('publication %I has other options than outboxd gives: they stay as they are', wanted),
            HINT = format('ALTER PUBLICATION %I SET (publish = %L, publish_via_partition_root = true)', wanted, 'insert');
    END IF;
END
$outboxd$;
