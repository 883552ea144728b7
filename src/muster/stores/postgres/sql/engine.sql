-- Statements of transactions, where PostgreSQL has other words than the shared ones or does for a set of rows what
-- they do for one.  `version`: see `tasks` in the migrations.
--
-- Whatever holds something tells when it was got.  Rows are held by a query of their own, inside: what stands
-- beside a FOR UPDATE is worked out before it waits.

-- name: begun
-- What each transaction begins with, once it holds what it begins with: the time, why nothing may be written, and how
-- far its server has come.
SELECT $clock, (SELECT reason FROM halt), present_life(),
       coalesce((SELECT commits FROM marks WHERE server = ?1 AND slot = ?2), 0)

-- name: held_versions
-- Of tasks with their newest attempts, and of what waits for those that may end, all of which are held.
SELECT t.id, t.version, a.version
  FROM tasks t
  LEFT JOIN LATERAL (SELECT version FROM attempts WHERE task_id = t.id AND epoch = t.epoch LIMIT 1) a ON true
 WHERE t.id = ANY(?1::bigint[] || ARRAY(SELECT child_id FROM dependencies WHERE parent_id = ANY(?2::bigint[]) AND met = 0))
   AND @mine(t)

-- name: held_children
SELECT parent_id, child_id FROM dependencies WHERE parent_id = ANY(?1::bigint[]) AND met = 0

-- name: plans_of
SELECT $plan_columns, version FROM plans
 WHERE id IN (SELECT plan_id FROM tasks WHERE id = ANY(?1::bigint[])) AND @mine

-- name: halted
SELECT reason FROM halt

-- name: held_table
-- A table for which ordinary statements wait, and the process that they wait for.
SELECT c.relname, (pg_blocking_pids(l.pid))[1]
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE NOT l.granted AND l.locktype = 'relation' AND n.nspname = 'muster'
   AND l.mode IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
 LIMIT 1

-- name: end_frozen
SELECT end_frozen(make_interval(secs => ?1))

-- name: standing
SELECT pg_is_in_recovery(), (SELECT value FROM meta WHERE workspace_id = 0 AND name = 'store'), present_life(), (SELECT reason FROM halt),
       (SELECT coalesce(max(epoch), 0) FROM marks), $clock

-- name: marks
-- Of these servers, and of all that were heard within the last hour.
SELECT server, slot, commits, recent
  FROM (SELECT *, at_ms >= $clock - 3600000 AS recent FROM marks) m
 WHERE recent OR server = ANY(?1::text[])

-- name: mark
SELECT mark_commit(?1, ?2, ?3, ?4, ?5)

-- name: prune_marks
DELETE FROM marks
 WHERE server IN (SELECT server FROM marks GROUP BY server
                  HAVING max(at_ms) < $clock - ?1)

-- name: begin_life
INSERT INTO meta (workspace_id, name, value)
VALUES (0, 'life', greatest(present_life() + 1, $clock)::text)
    ON CONFLICT (workspace_id, name) DO UPDATE SET value = excluded.value

-- name: lift_halt
DELETE FROM halt

-- name: take_ids
SELECT take_ids(?1, ?2)

-- name: lock
SELECT pg_advisory_xact_lock(?1, ?2), $clock

-- name: lock_shared
SELECT pg_advisory_xact_lock_shared(?1, ?2), $clock

-- name: waiting_children
SELECT DISTINCT child_id FROM dependencies WHERE parent_id = ANY(?1::bigint[]) AND met = 0

-- name: tasks
SELECT held.*, $clock
  FROM (SELECT $task_columns, version FROM tasks
         WHERE id = ANY(?1::bigint[]) AND @mine ORDER BY id FOR NO KEY UPDATE) held

-- name: task_versions
SELECT held.*, $clock
  FROM (SELECT id, version FROM tasks WHERE id = ANY(?1::bigint[]) AND @mine ORDER BY id FOR NO KEY UPDATE) held

-- name: elsewhere
SELECT id FROM tasks WHERE id = ANY(?1::bigint[]) AND NOT (@mine)

-- name: workspace_of_tasks
SELECT id, workspace_id FROM tasks WHERE id = ANY(?1::bigint[])

-- name: attempts_of
-- One seek for each, whatever the statistics say: those of a month's partition lag behind in its first hours.
SELECT found.* FROM unnest(?1::bigint[], ?2::bigint[]) wanted (task_id, epoch)
 CROSS JOIN LATERAL (SELECT $attempt_columns, version FROM attempts a
                      WHERE a.task_id = wanted.task_id AND a.epoch = wanted.epoch AND @mine(a) LIMIT 1) found

-- name: plan
SELECT $plan_columns, version FROM plans WHERE id = ?1 AND @mine

-- name: plan_by_source
SELECT $plan_columns, version FROM plans WHERE @mine AND source = ?1

-- name: plan_by_name
SELECT $plan_columns, version FROM plans WHERE @mine AND name = ?1

-- name: plans_named
SELECT $plan_columns, version FROM plans WHERE @mine AND name = ANY(?1::text[])

-- name: keys_of_plans
SELECT p.id, t.key FROM plans p JOIN tasks t ON t.plan_id = p.id AND t.key = ANY(?2::text[])
 WHERE @mine(p) AND p.name = ANY(?1::text[])

-- name: workspace_of_plan
SELECT workspace_id FROM plans WHERE id = ?1

-- name: workspace_of_worker
SELECT workspace_id FROM workers WHERE id = ?1

-- name: update_plan
UPDATE plans SET failures = ?2, paused_reason = ?3, event_seq = ?4, source = ?5, task_order = ?6, version = version + 1
 WHERE id = ?1 AND @mine AND (?7::bigint IS NULL OR version = ?7)
RETURNING version

-- name: ready
-- With what `job_texts` has of a task that nobody has begun yet; long texts are asked for where they are handed out.
SELECT held.*, $clock
  FROM (SELECT $task_columns, version, s.*
          FROM tasks t
          LEFT JOIN LATERAL (
               SELECT coalesce((SELECT p.name FROM lanes l JOIN plans p ON p.id = l.plan_id WHERE l.id = ?1), ''),
                      coalesce(t.key, CAST(t.id AS TEXT)), t.title, t.description, t.model, t.system_prompt,
                      t.check_command, t.review, t.changes, t.input_context, t.input_sealed <> ''
                WHERE t.epoch = 0
                  AND octet_length(t.description) + octet_length(t.system_prompt) + octet_length(t.input_context) < 4000
               ) s ON true
         WHERE @mine(t) AND lane_id = ?1 AND ready = 1
         ORDER BY half_done DESC, priority DESC, sort_key, id
         LIMIT ?2 FOR NO KEY UPDATE OF t SKIP LOCKED) held

-- name: lanes_of
SELECT $lane_columns FROM lanes WHERE id = ANY(?1::bigint[])

-- name: lane_id
SELECT id FROM lanes WHERE workspace_id = ?1 AND plan_id = ?2 AND agent = ?3 AND capabilities = ?4 AND profile = ?5 AND limit_key = ?6

-- name: insert_lane
INSERT INTO lanes ($lane_columns) VALUES ($lane_slots) ON CONFLICT DO NOTHING

-- name: take_room
-- With numbers of tasks: see `take_ids`.
UPDATE room SET count = count - ?2 WHERE workspace_id = ?1 AND most = ?3 AND count >= ?2 RETURNING take_ids(?5, ?4)

-- name: take_known_room
SELECT take_known_room(?1, ?2, ?3)

-- name: count_room
-- Whoever counts holds the row, so that of all who take room one counts at a time.
INSERT INTO room (workspace_id, most, count) VALUES (?1, ?2, 0)
    ON CONFLICT (workspace_id, most) DO UPDATE SET count = room.count RETURNING count

-- name: set_room
UPDATE room SET count = ?3 WHERE workspace_id = ?1 AND most = ?2

-- name: job_texts
SELECT t.id, coalesce(p.name, ''), coalesce(t.key, CAST(t.id AS TEXT)), t.title, t.description,
       t.model, t.system_prompt, t.check_command, t.review, t.changes, t.input_context, t.input_sealed <> '',
       s.session_key, s.session_usage,
       (SELECT c.data FROM checkpoints c
         WHERE c.task_id = t.id AND c.epoch > t.fresh_after_epoch ORDER BY c.epoch DESC, c.number DESC LIMIT 1),
       (SELECT a.agent FROM attempts a
         WHERE a.task_id = t.id AND a.epoch = t.done_epoch AND t.done_epoch IS NOT NULL)
  FROM tasks t
  LEFT JOIN plans p ON p.id = t.plan_id
  LEFT JOIN LATERAL (
       SELECT a.session_key, a.session_usage FROM attempts a
        WHERE t.epoch > 1  -- said before anything is sought: most tasks have no earlier attempt
          AND a.task_id = t.id AND a.epoch > t.fresh_after_epoch AND a.epoch < t.epoch AND a.session_key IS NOT NULL
          AND a.epoch > ?2
          AND a.agent = (SELECT n.agent FROM attempts n WHERE n.task_id = t.id AND n.epoch = t.epoch)
        ORDER BY a.epoch DESC LIMIT 1) s ON true
 WHERE t.id = ANY(?1::bigint[]) AND @mine(t)

-- name: settle_dependencies
UPDATE dependencies SET met = 1 WHERE parent_id = ANY(?1::bigint[]) AND met = 0 RETURNING child_id

-- name: existing
-- The workspace comes after: an index of it would look as cheap while a store is small, and stay in the plan.
SELECT key, id, done, dead, title, description, agent
  FROM (SELECT * FROM tasks WHERE plan_id = ?1 AND key = ANY(?2::text[]) OFFSET 0) t WHERE @mine(t)

-- name: existing_ids
SELECT id, done, dead, title, description, agent FROM tasks WHERE id = ANY(?1::bigint[]) AND @mine

-- name: dependencies
SELECT parent_id, child_id FROM dependencies WHERE child_id = ANY(?1::bigint[])

-- name: namesakes
WITH wanted_names (value) AS (SELECT json_array_elements_text(?2::json)),
alike (task_id) AS (
    SELECT t.id FROM wanted_names w CROSS JOIN plans p JOIN tasks t ON t.plan_id = p.id AND t.key = w.value
     WHERE @mine(p) AND p.source IS NOT NULL
    UNION
    SELECT b.task_id FROM wanted_names w CROSS JOIN plans p JOIN boxes b ON b.plan_id = p.id AND b.key = w.value
     WHERE @mine(p) AND p.source IS NOT NULL AND b.current = 1
    UNION
    SELECT t.id FROM tasks t
     WHERE t.title IN (SELECT json_array_elements_text(?3::json)) AND t.from_file = 1 AND t.is_group = 0)
SELECT t.id, p.name, p.source, t.key, $kepttask_box, t.title, t.status
  FROM alike JOIN tasks t ON t.id = alike.task_id JOIN plans p ON p.id = t.plan_id
 WHERE @mine(p) AND p.source IS NOT NULL AND p.id <> ?1
   AND t.from_file = 1 AND t.is_group = 0 AND t.key IS NOT NULL
   AND (NOT (t.done = 1 OR t.dead = 1)
        OR (t.done = 1 AND t.skipped = 0
            AND (t.ended_at_ms >= ?4
                 OR EXISTS (SELECT 1 FROM plan_sync s WHERE s.plan_id = p.id AND jsonb_exists(s.state::jsonb -> 'owed', t.key)))))
 ORDER BY t.id

-- name: stub_seal
UPDATE seals SET pruned_at_ms = ?2, pruned_proof = ?3, marks = '' WHERE to_id = ?1 AND @mine AND pruned_at_ms IS NULL
RETURNING from_id

-- name: prune_events
-- What is of a month that is over goes with its partition: see `drop_month`.
DELETE FROM events
 WHERE id BETWEEN ?1 AND ?2 AND @mine
   AND (task_id >= first_id_of(date_trunc('month', now() AT TIME ZONE 'UTC'))
        OR tableoid IN ('events_before'::regclass, 'events_later'::regclass))
RETURNING id

-- name: task_cost
SELECT coalesce(sum((usage::json ->> 'costMicrousd')::bigint), 0)::bigint FROM attempts WHERE task_id = ?1 AND epoch <> ?2

-- name: movable
SELECT sum(CASE status WHEN 'PAUSED' THEN (paused_reason IN ('hand', 'edit'))::int
           WHEN 'PENDING' THEN (next_attempt_at_ms IS NOT NULL OR lingering_epoch IS NOT NULL)::int ELSE 1 END)::bigint,
       coalesce(json_agg(DISTINCT json_build_array(coalesce(pinned_agent, agent), capabilities::json, target)::text)
                FILTER (WHERE ready = 1), '[]')::text
  FROM tasks
 WHERE @mine AND plan_id = ?1 AND is_group = 0 AND status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ABORTED', 'PAUSED')

-- name: metas
SELECT name, value FROM meta WHERE workspace_id = ?1 AND name = ANY(?2::text[])

-- name: meta_to_set
SELECT value FROM meta WHERE workspace_id = ?1 AND name = ?2 FOR NO KEY UPDATE

-- name: prune_logs
DELETE FROM logs WHERE place IN (SELECT place FROM logs ORDER BY place LIMIT ?2) AND at_ms < ?1 RETURNING place

-- name: prune_files
WITH gone AS (DELETE FROM files WHERE id IN (SELECT f.id $old_file ORDER BY f.created_at_ms LIMIT ?2) RETURNING id),
     parts AS (DELETE FROM file_parts WHERE file_id IN (SELECT id FROM gone))
SELECT id FROM gone

-- name: file
SELECT id, received, whole FROM files WHERE task_id = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4 AND sha256 = ?5

-- name: whole_file_to_take
SELECT id FROM files WHERE task_id = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4 AND whole = 1

-- name: add_file
INSERT INTO files (workspace_id, task_id, epoch, kind, name, sha256, size, received, whole, created_at_ms)
SELECT workspace_id, id, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7 FROM tasks WHERE id = ?1
RETURNING id, received, whole

-- name: bytes_of_files
SELECT coalesce(sum(size), 0)::bigint FROM files WHERE task_id = ?1 AND epoch = ?2 AND kind = ?3 AND name <> ?4

-- name: add_file_part
INSERT INTO file_parts (file_id, workspace_id, "offset", data) SELECT id, workspace_id, ?2, ?3 FROM files WHERE id = ?1

-- name: receive_file
UPDATE files SET received = ?2, whole = ?3 WHERE id = ?1

-- name: drop_file_parts
DELETE FROM file_parts WHERE file_id = ?1

-- name: drop_files
-- All of this name, but for the one of this number.
WITH gone AS (DELETE FROM files
               WHERE task_id = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4 AND id <> ?5 RETURNING id)
DELETE FROM file_parts WHERE file_id IN (SELECT id FROM gone)

-- name: file_parts
SELECT "offset", data FROM file_parts WHERE file_id = ?1 AND "offset" >= ?2 ORDER BY "offset" LIMIT ?3

-- name: prune_checkpoints
DELETE FROM checkpoints
 WHERE (task_id, epoch, number) IN (SELECT c.task_id, c.epoch, c.number $old_checkpoint ORDER BY c.created_at_ms LIMIT ?2)
RETURNING number

-- name: shift_retries
-- A date that a person has named stays; a pause after a failure, or for a provider, is a length of time.
UPDATE tasks SET next_attempt_at_ms = next_attempt_at_ms + ?1, version = version + 1
 WHERE next_attempt_at_ms IS NOT NULL AND (status = 'ABORTED' OR error_kind IS NOT NULL OR paused_reason = 'hand')

-- name: shift_aims
UPDATE tasks SET pinned_until_ms = pinned_until_ms + ?1, version = version + 1 WHERE pinned_until_ms IS NOT NULL

-- name: bound_retries
UPDATE tasks SET next_attempt_at_ms = ?1 + coalesce(retry_backoff_s * 1000 * ?3, ?2), version = version + 1
 WHERE next_attempt_at_ms IS NOT NULL AND next_attempt_at_ms > ?1 + coalesce(retry_backoff_s * 1000 * ?3, ?2) AND status = 'ABORTED'

-- name: make_partitions
SELECT make_partitions(?1)

-- name: past_months
SELECT month, all_pruned(month) FROM past_months() month

-- name: drop_month
SELECT drop_month(?1)

-- name: prune_mixed_month
SELECT prune_mixed_month(?1, ?2)

-- name: halt
-- Not where it was restored since that was found.
INSERT INTO halt (number, reason) SELECT 1, ?1 WHERE present_life() = ?2 ON CONFLICT DO NOTHING

-- name: halt_for_more
-- What is missing, by whoever has seen more of it than the one who has halted.
UPDATE halt SET reason = ?1 WHERE reason = ?2 AND present_life() = ?3

-- name: any_pruned
SELECT EXISTS (SELECT 1 FROM seals WHERE pruned_at_ms IS NOT NULL)

-- name: count_tasks
SELECT count(*) FROM tasks
