DO $outboxd$
DECLARE
    body CONSTANT text := $migration$
{body}$migration$;
    checksum CONSTANT text := encode(sha256(convert_to(body, 'UTF8')), 'hex');
    applied  CONSTANT text := (SELECT m.checksum FROM outboxd.migration AS m WHERE m.version = {version});
BEGIN
    IF applied IS NULL THEN
        EXECUTE body;
        INSERT INTO outboxd.migration (version, name, checksum) VALUES ({version}, {name}, checksum);
    ELSIF applied <> checksum THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('migration %s was applied with other contents', {name}),
            HINT = 'an applied migration never changes: use the outboxd that applied it, or a newer release';
    END IF;
END
$outboxd$;
