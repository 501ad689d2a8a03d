//! The statements of the relay's side that are longer than a few lines.

/// A letter, as `d`, that may be claimed for its own part: nobody works on it, and its time has come.
const CLAIMABLE: &str = "((d.system_id <> $3 \
         OR (d.commit_lsn, d.row_number) < ($4::pg_lsn, $5::bigint)) \
    AND (d.state = 'pending' AND d.next_attempt <= (SELECT clock.now FROM clock) \
         OR d.state = 'retrying' AND d.lease_until < (SELECT clock.now FROM clock)))";

/// A letter, as `d`, that holds back those behind it in its lane.
const BLOCKING: &str = "d.slot = $1 AND d.state IN ('pending', 'retrying', 'failed') \
    AND (d.state <> 'failed' OR $9::boolean)";

/// The first letters of a lane, as many as `limit` says: what came from another cluster first, then as in the WAL. Not by id: a row that
/// a broker refused is parked later than one behind it which was rejected at once. Three ranges of one index, so that no more letters are
/// read than are wanted, however many there are. Answers with these expressions of each letter `d`, behind `seat`, its place.
fn first_of(lane: &str, system: &str, which: &str, expressions: &str, limit: &str) -> String {
    let range = |rank: u8, compares: &str| {
        format!(
            "(SELECT {rank} AS rank, d.system_id, d.commit_lsn, d.row_number, d.id, {expressions} FROM outboxd.dead_letter AS d \
              WHERE {which} AND d.lane = {lane} AND d.system_id {compares} {system} \
              ORDER BY d.system_id, d.commit_lsn, d.row_number, d.id LIMIT {limit})"
        )
    };
    format!(
        "(SELECT row_number() OVER (ORDER BY letter.rank, letter.system_id, letter.commit_lsn, letter.row_number, letter.id) AS seat, letter.* \
          FROM ({} UNION ALL {} UNION ALL {}) AS letter ORDER BY seat LIMIT {limit})",
        range(0, "<"),
        range(1, ">"),
        range(2, "=")
    )
}

/// The lanes that have an open letter, and the first one of each. One step of the index for each lane, however many letters it has.
pub(super) fn open_lanes() -> String {
    let open = "d.slot = $1 AND d.state IN ('pending', 'retrying', 'failed')";
    format!(
        "WITH RECURSIVE lanes AS ( \
             (SELECT d.lane FROM outboxd.dead_letter AS d WHERE {open} AND d.lane IS NOT NULL ORDER BY d.lane LIMIT 1) \
             UNION ALL SELECT (SELECT d.lane FROM outboxd.dead_letter AS d WHERE {open} AND d.lane > lanes.lane \
                               ORDER BY d.lane LIMIT 1) FROM lanes WHERE lanes.lane IS NOT NULL) \
         SELECT oldest.topic, oldest.key, CASE WHEN oldest.system_id = $2 THEN oldest.commit_lsn END, oldest.row_number \
         FROM lanes CROSS JOIN LATERAL {} AS oldest WHERE lanes.lane IS NOT NULL",
        first_of("lanes.lane", "$2", open, "d.topic, d.key", "1")
    )
}

/// The relay's own row of the position table, if it is still its own, and on the server whose slot its walsender (`pid`) has: a
/// successor waits until the statement is over. `condition` spares the lock, which is a write, when there is nothing to do.
pub(super) fn leader_if(pid: i32, condition: &str) -> String {
    format!(
        "leader AS MATERIALIZED (SELECT p.slot FROM outboxd.position AS p \
         WHERE p.slot = $1 AND p.leader = $2 \
           AND EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS s \
                       WHERE s.slot_name::text = $1::text AND s.active_pid = {pid}) {condition} FOR SHARE)"
    )
}

pub(super) fn store(pid: i32) -> String {
    format!(
        "WITH {}, \
         letter AS (SELECT * FROM unnest($7::pg_lsn[], $8::bigint[], $9::bigint[], $10::text[], $11::text[], \
                 $12::text[], $13::text[], $14::text[], $15::bytea[], $16::text[], $17::text[], $18::integer[], \
                 $6::float8[]) \
             WITH ORDINALITY AS l (commit_lsn, row_number, committed, origin_schema, origin_name, \
                 event_id, event_type, topic, key, reason, message, attempts, pause, place)), \
         kept AS (SELECT c.place, array_agg(c.label ORDER BY c.number) AS labels, \
                 array_agg(c.content ORDER BY c.number) AS contents, array_agg(c.kind ORDER BY c.number) AS kinds, \
                 sum(octet_length(c.content)) AS size \
             FROM unnest($19::bigint[], $20::text[], $21::bytea[], $24::bigint[]) WITH ORDINALITY \
                 AS c (place, label, content, kind, number) \
             GROUP BY c.place), \
         missing AS (SELECT c.place, array_agg(c.label ORDER BY c.number) AS labels \
             FROM unnest($22::bigint[], $23::text[]) WITH ORDINALITY AS c (place, label, number) \
             GROUP BY c.place), \
         stored AS (INSERT INTO outboxd.dead_letter AS d (slot, system_id, timeline, commit_lsn, row_number, \
                 committed_at, origin_schema, origin_name, event_id, event_type, topic, key, column_names, \
                 column_values, column_types, size, not_kept, reason, message, state, attempts, attempts_left, next_attempt) \
             SELECT leader.slot, $3::bigint, $4::integer, l.commit_lsn, l.row_number, \
                 timestamptz '2000-01-01 00:00:00+00' + l.committed * interval '1 microsecond', \
                 l.origin_schema, l.origin_name, l.event_id, l.event_type, l.topic, l.key, \
                 coalesce(kept.labels, ARRAY[]::text[]), coalesce(kept.contents, ARRAY[]::bytea[]), \
                 coalesce(kept.kinds, ARRAY[]::bigint[]), coalesce(kept.size, 0), \
                 coalesce(missing.labels, ARRAY[]::text[]), l.reason, l.message, \
                 CASE WHEN l.attempts > 0 AND l.attempts >= $5::integer THEN 'failed' ELSE 'pending' END, \
                 l.attempts, greatest($5::integer - l.attempts, 0), \
                 clock_timestamp() + make_interval(secs => l.pause) \
             FROM leader CROSS JOIN letter AS l \
             LEFT JOIN kept ON kept.place = l.place LEFT JOIN missing ON missing.place = l.place \
             ORDER BY l.place \
             ON CONFLICT (slot, commit_lsn, row_number, system_id, timeline) DO UPDATE \
                 SET state = 'pending', settled_at = NULL, reason = EXCLUDED.reason, message = EXCLUDED.message, \
                     topic = EXCLUDED.topic, key = EXCLUDED.key, \
                     attempts = d.attempts + EXCLUDED.attempts, attempts_left = greatest(d.attempts_left, 1), \
                     next_attempt = EXCLUDED.next_attempt \
                 WHERE d.state = 'delivered' \
             RETURNING d.id, d.attempts, d.reason, d.message), \
         tried AS (INSERT INTO outboxd.dead_letter_attempt (letter, number, reason, message) \
             SELECT stored.id, stored.attempts, stored.reason, stored.message FROM stored WHERE stored.attempts > 0 \
             ON CONFLICT DO NOTHING) \
         SELECT leader.slot FROM leader",
        leader_if(pid, "")
    )
}

/// Why it claims a run from the oldest open letter of each lane, and no other letters:
///
/// - `head` keeps the lanes whose oldest blocking letter may be claimed, and `run` goes on from there until the first
///   that may not. So what is picked of a lane is the beginning of it. The limit cuts only its end off, because
///   `since` is the same for all letters of a lane.
/// - `caught` locks the letters and looks at each again. One that somebody has locked or changed since is missing
///   there, and `kept` then drops all that follow it in its lane.
/// - Between the look and the locks, nothing can begin to block: new letters have higher ids, one that is discarded never opens again, and
///   one that was delivered only when its row is repeated, which whoever claims letters does not do meanwhile. Only without `failed_block` can a person just then make a failed letter pending,
///   and those behind it were free to overtake it before.
///
/// What it costs: one scan of an index over all that is due, blocked or not (measured: 0.3 s of a million letters), then one look per
/// lane, the one that waits longest first, until there are enough. A run is cut to its lane's share, so no more letters are read than `most`.
/// Where nothing is picked, nothing is locked, and an idle database stays idle.
pub(super) fn claim(pid: i32) -> String {
    let is_free = format!("{CLAIMABLE} AS is_free");
    let share = "(SELECT greatest($8::bigint / nullif(count(*), 0), 1) FROM head)";
    format!(
        "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), \
         lanes AS MATERIALIZED (SELECT d.lane, min(d.next_attempt) AS since FROM outboxd.dead_letter AS d \
             WHERE d.slot = $1 AND d.lane IS NOT NULL AND d.state IN ('pending', 'retrying') \
               AND d.next_attempt <= (SELECT clock.now FROM clock) \
             GROUP BY d.lane ORDER BY since), \
         head AS MATERIALIZED (SELECT lanes.lane, lanes.since FROM lanes CROSS JOIN LATERAL {oldest} AS oldest \
             WHERE oldest.is_free LIMIT $8::bigint), \
         run AS MATERIALIZED (SELECT head.lane, head.since, letter.id, letter.seat FROM head CROSS JOIN LATERAL ( \
                 SELECT follower.id, follower.seat, bool_and(follower.is_free) OVER (ORDER BY follower.seat) AS is_free \
                 FROM {followers} AS follower) AS letter \
             WHERE letter.is_free), \
         single AS MATERIALIZED (SELECT d.id, d.next_attempt AS since FROM outboxd.dead_letter AS d \
             WHERE d.slot = $1 AND d.lane IS NULL AND d.state IN ('pending', 'retrying') \
               AND d.next_attempt <= (SELECT clock.now FROM clock) AND {CLAIMABLE} \
             ORDER BY d.next_attempt LIMIT $8::bigint), \
         picked AS MATERIALIZED (SELECT sized.lane, sized.id, sized.seat FROM ( \
                 SELECT either.lane, either.since, either.id, either.seat, \
                     row_number() OVER (ORDER BY either.since, either.lane, either.seat, either.id) AS place, \
                     sum(d.size) OVER (ORDER BY either.since, either.lane, either.seat, either.id) \
                         AS bytes \
                 FROM (SELECT run.lane, run.since, run.id, run.seat FROM run \
                     UNION ALL SELECT NULL::bytea, single.since, single.id, 1 FROM single) AS either \
                 JOIN outboxd.dead_letter AS d ON d.id = either.id) AS sized \
             WHERE sized.place = 1 OR sized.bytes <= $10::bigint \
             ORDER BY sized.since, sized.lane, sized.seat, sized.id LIMIT $8::bigint), \
         {leader}, \
         caught AS MATERIALIZED (SELECT d.id FROM outboxd.dead_letter AS d \
             WHERE d.id = ANY (ARRAY(SELECT picked.id FROM picked)) AND EXISTS (SELECT FROM leader) AND {CLAIMABLE} \
             FOR UPDATE SKIP LOCKED), \
         kept AS MATERIALIZED (SELECT checked.id FROM ( \
                 SELECT picked.id, bool_and(caught.id IS NOT NULL) OVER ( \
                     PARTITION BY picked.lane, CASE WHEN picked.lane IS NULL THEN picked.id END \
                     ORDER BY picked.seat) AS is_whole \
                 FROM picked LEFT JOIN caught ON caught.id = picked.id) AS checked \
             WHERE checked.is_whole) \
         UPDATE outboxd.dead_letter AS d \
         SET state = 'retrying', owner = $6::text, lease_until = clock_timestamp() + make_interval(secs => $7::float8) \
         FROM kept WHERE d.id = kept.id \
         RETURNING d.id, d.attempts, d.system_id = $3, d.origin_schema, d.origin_name, \
             d.commit_lsn, d.row_number, (extract(epoch FROM d.committed_at) * 1000000)::bigint - 946684800000000, \
             d.column_names, d.column_values, d.column_types, d.not_kept, d.topic, d.key, d.event_id",
        oldest = first_of("lanes.lane", "$3", BLOCKING, &is_free, "1"),
        followers = first_of("head.lane", "$3", BLOCKING, &is_free, share),
        leader = leader_if(pid, "AND EXISTS (SELECT FROM picked)")
    )
}

/// Letters are locked in the order of their ids, as people's commands do, so that nobody waits in a circle.
pub(super) fn settle(pid: i32) -> String {
    format!(
        "WITH {}, \
         ours AS MATERIALIZED (SELECT d.id FROM outboxd.dead_letter AS d \
             WHERE d.id = ANY ($3::bigint[]) AND d.slot = $1 AND d.state = 'retrying' \
               AND EXISTS (SELECT FROM leader) \
             ORDER BY d.id FOR UPDATE), \
         written AS (UPDATE outboxd.dead_letter AS d SET \
                 state = CASE WHEN s.outcome = 'delivered' THEN 'delivered' \
                              WHEN s.outcome = 'rejected' AND d.attempts_left <= 1 THEN 'failed' ELSE 'pending' END, \
                 attempts = d.attempts + CASE WHEN s.outcome IN ('put back', 'waits') THEN 0 ELSE 1 END, \
                 attempts_left = CASE WHEN s.outcome = 'rejected' THEN greatest(d.attempts_left - 1, 0) \
                                      ELSE d.attempts_left END, \
                 reason = CASE WHEN s.outcome IN ('rejected', 'waits') THEN s.reason ELSE d.reason END, \
                 message = CASE WHEN s.outcome IN ('rejected', 'waits') THEN s.message ELSE d.message END, \
                 next_attempt = CASE WHEN s.outcome = 'delivered' THEN d.next_attempt \
                                     ELSE clock_timestamp() + make_interval(secs => s.pause) END, \
                 settled_at = CASE WHEN s.outcome = 'delivered' THEN clock_timestamp() END, \
                 owner = NULL, lease_until = NULL \
             FROM ours JOIN unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::text[]) \
                 AS s (id, outcome, reason, message, pause, owner) ON s.id = ours.id \
             WHERE d.id = ours.id AND d.owner = s.owner \
             RETURNING d.id, d.attempts, s.outcome, s.reason, s.message), \
         tried AS (INSERT INTO outboxd.dead_letter_attempt (letter, number, reason, message) \
             SELECT written.id, written.attempts, written.reason, written.message FROM written \
             WHERE written.outcome NOT IN ('put back', 'waits')) \
         SELECT leader.slot FROM leader",
        leader_if(pid, "")
    )
}

/// Letters that wait for another configuration are due at once. Locked as in `settle`; with none, nothing is.
pub(super) fn wake(pid: i32) -> String {
    format!(
        "WITH off AS MATERIALIZED (SELECT d.id FROM outboxd.dead_letter AS d \
             WHERE d.slot = $1 AND d.state = 'pending' AND d.reason = $3 \
               AND d.next_attempt > (SELECT clock_timestamp()) LIMIT $4), \
         {}, \
         ours AS MATERIALIZED (SELECT d.id FROM outboxd.dead_letter AS d \
             WHERE d.id = ANY (ARRAY(SELECT off.id FROM off)) AND d.state = 'pending' AND EXISTS (SELECT FROM leader) \
             ORDER BY d.id FOR UPDATE), \
         woken AS (UPDATE outboxd.dead_letter AS d SET next_attempt = clock_timestamp() \
             FROM ours WHERE d.id = ours.id) \
         SELECT (SELECT count(*) FROM off), EXISTS (SELECT FROM leader)",
        leader_if(pid, "AND EXISTS (SELECT FROM off)")
    )
}
