-- name: tasks
SELECT $task_columns FROM tasks WHERE id = ?1

-- name: attempt
SELECT $attempt_columns FROM attempts WHERE task_id = ?1 AND epoch = ?2

-- name: held
SELECT $attempt_columns FROM attempts WHERE worker_id = ?1 AND ended_at_ms IS NULL

-- name: held_by_hand
SELECT $attempt_columns FROM attempts WHERE agent = ?1 AND ended_at_ms IS NULL

-- name: open_lanes
$open_lane
SELECT id FROM claimable

-- name: ready
SELECT $task_columns FROM tasks
 WHERE lane_id = ?1 AND ready = 1
 ORDER BY half_done DESC, priority DESC, sort_key, id
 LIMIT ?2

-- name: touching
SELECT t.id, t.plan_id, coalesce(p.name, ''), coalesce(p.name || '/', '') || coalesce(t.key, CAST(t.id AS TEXT)),
       t.touches, a.live_diff
  FROM (SELECT id FROM tasks WHERE touches <> '' AND (status = 'ASSIGNED' OR status = 'RUNNING')
        UNION
        SELECT task_id FROM attempts WHERE live_diff <> '' AND ended_at_ms IS NULL) o
  JOIN tasks t ON t.id = o.id
  JOIN attempts a ON a.task_id = o.id AND a.ended_at_ms IS NULL
  LEFT JOIN plans p ON p.id = t.plan_id

-- name: job_texts
SELECT id, plan_id, epoch, fresh_after_epoch, coalesce(key, CAST(id AS TEXT)), title, description,
       model, system_prompt, check_command, review, changes,
       (SELECT a.agent FROM attempts a WHERE a.task_id = t.id AND a.epoch = t.done_epoch)
  FROM tasks t WHERE id = ?1

-- name: resumption
-- What earlier attempts than ?3 have left, for a task that is not to start from nothing.  Only its own agent can
-- resume a session.
SELECT s.session_key, s.session_usage,
       (SELECT data FROM checkpoints c
         WHERE c.task_id = ?1 AND c.epoch > ?2 ORDER BY c.epoch DESC, c.number DESC LIMIT 1)
  FROM (SELECT 1) LEFT JOIN attempts s ON s.task_id = ?1 AND s.epoch = (
           SELECT max(a.epoch) FROM attempts a
            WHERE a.task_id = ?1 AND a.epoch > ?2 AND a.epoch < ?3 AND a.session_key IS NOT NULL
              AND a.epoch > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'sessions_after'), 0)
              AND a.agent = (SELECT n.agent FROM attempts n WHERE n.task_id = ?1 AND n.epoch = ?3))

-- name: waited_for
SELECT parent_id FROM dependencies WHERE parent_id = ?1 AND met = 0 LIMIT 1

-- name: settle_dependencies
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND met = 0 RETURNING child_id

-- name: insert_task
INSERT INTO tasks ($task_columns, $text_columns) VALUES ($task_slots, $text_slots)

-- name: insert_dependency
INSERT INTO dependencies (parent_id, child_id, met) VALUES (?, ?, ?)

-- name: insert_attempt
INSERT INTO attempts ($attempt_columns) VALUES ($attempt_slots)

-- name: insert_event
INSERT INTO events ($event_columns) VALUES ($event_slots)

-- name: update_result
UPDATE tasks SET result = ?2 WHERE id = ?1

-- name: insert_checkpoint
INSERT INTO checkpoints ($checkpoint_columns) VALUES ($checkpoint_slots)

-- name: insert_artifact
INSERT INTO artifacts ($artifact_columns) VALUES ($artifact_slots)
ON CONFLICT (task_id, epoch, name) DO UPDATE SET location = excluded.location

-- name: insert_log
INSERT INTO logs (task_id, epoch, stream, offset, at_ms, data) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: logged
SELECT length(data) FROM logs WHERE task_id = ?1 AND epoch = ?2 AND stream = ?3 AND offset = ?4

-- name: plan_by_source
SELECT $plan_columns FROM plans WHERE workspace_id = ?1 AND source = ?2

-- name: plan_by_name
SELECT $plan_columns FROM plans WHERE workspace_id = ?1 AND name = ?2

-- name: plan
SELECT $plan_columns FROM plans WHERE id = ?1

-- name: update_plan
UPDATE plans SET failures = ?2, paused_reason = ?3, event_seq = ?4, source = ?5, task_order = ?6 WHERE id = ?1

-- name: plan_names
SELECT name FROM plans WHERE workspace_id = ?1

-- name: insert_plan
INSERT INTO plans ($plan_columns) VALUES ($plan_slots)

-- name: set_ticked
UPDATE plans SET ticked_event_id = max(ticked_event_id, ?2) WHERE id = ?1

-- name: sync_state
SELECT state FROM plan_sync WHERE plan_id = ?1

-- name: set_sync_state
INSERT OR REPLACE INTO plan_sync (plan_id, state) VALUES (?1, ?2)

-- name: existing
SELECT key, id, done, dead, title, description, agent FROM tasks WHERE plan_id = ?1 AND key = ?2

-- name: existing_ids
SELECT id, done, dead, title, description, agent FROM tasks WHERE id = ?1

-- name: kept_tasks
SELECT $kepttask_columns FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id WHERE t.plan_id = ?1 ORDER BY t.id

-- name: kept_task
SELECT $kepttask_columns FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id WHERE t.id = ?1

-- name: box_names
SELECT b.key, b.task_id, t.key, b.current FROM boxes b JOIN tasks t ON t.id = b.task_id WHERE b.plan_id = ?1

-- name: other_files
SELECT EXISTS (SELECT 1 FROM plans WHERE source IS NOT NULL AND id <> ?1)

-- name: namesakes
-- CROSS JOIN: along the names and titles, however many tasks there are.
WITH alike (task_id) AS (
    SELECT t.id FROM json_each(?2) w CROSS JOIN plans p CROSS JOIN tasks t
     WHERE p.source IS NOT NULL AND t.plan_id = p.id AND t.key = w.value
    UNION
    SELECT b.task_id FROM json_each(?2) w CROSS JOIN plans p CROSS JOIN boxes b
     WHERE p.source IS NOT NULL AND b.plan_id = p.id AND b.key = w.value AND b.current = 1
    UNION
    SELECT t.id FROM json_each(?3) w CROSS JOIN tasks t WHERE t.title = w.value AND t.from_file = 1 AND t.is_group = 0)
SELECT t.id, p.name, p.source, t.key, $kepttask_box, t.title, t.status
  FROM alike CROSS JOIN tasks t CROSS JOIN plans p
 WHERE t.id = alike.task_id AND p.id = t.plan_id AND p.source IS NOT NULL AND p.id <> ?1
   AND t.from_file = 1 AND t.is_group = 0 AND t.key IS NOT NULL
   AND (NOT (t.done OR t.dead)
        OR (t.done AND NOT t.skipped
            AND (t.ended_at_ms >= ?4
                 OR EXISTS (SELECT 1 FROM plan_sync s, json_each(s.state, '$$.owed') o
                             WHERE s.plan_id = p.id AND o.key = t.key))))
 ORDER BY t.id

-- name: leave_box
UPDATE boxes SET current = 0 WHERE task_id = ?1 AND current = 1

-- name: set_box
INSERT INTO boxes (plan_id, key, task_id, current) VALUES (?1, ?2, ?3, 1)
    ON CONFLICT (plan_id, key) DO UPDATE SET task_id = excluded.task_id, current = 1

-- name: dependencies
SELECT parent_id, child_id FROM dependencies WHERE child_id = ?1

-- name: drop_dependencies
DELETE FROM dependencies WHERE child_id = ?1

-- name: unfinished
-- Walks the primary key backwards from where the page before has ended.
SELECT id FROM tasks
 WHERE id < ?2 AND plan_id = ?1
   AND (status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'PAUSED', 'ABORTED') OR (?4 AND status <> 'ARCHIVED'))
 ORDER BY id DESC LIMIT ?3

-- name: worked_since
SELECT EXISTS (
    SELECT 1 FROM attempts WHERE assigned_at_ms >= (SELECT created_at_ms FROM tasks WHERE id = ?1))

-- name: worked_after
SELECT EXISTS (SELECT 1 FROM attempts WHERE ended_at_ms IS NULL OR ended_at_ms >= ?1)
    OR EXISTS (SELECT 1 FROM tasks WHERE lingering_epoch IS NOT NULL)

-- name: at_work
SELECT count(*) FROM tasks
 WHERE plan_id = ?1 AND is_group = 0 AND (status IN ('ASSIGNED', 'RUNNING') OR lingering_epoch IS NOT NULL)

-- name: update_texts
UPDATE tasks
   SET ($edited_columns, parent_task_id, not_after_ms) = ($edited_slots, ?, ?)
 WHERE id = ?

-- name: lanes
SELECT $lane_columns FROM lanes

-- name: insert_lane
INSERT INTO lanes ($lane_columns) VALUES ($lane_slots)

-- name: open_by_agent
SELECT agent, count(*) FROM attempts WHERE ended_at_ms IS NULL GROUP BY agent

-- name: open_by_limit
SELECT t.limit_key, count(*) FROM attempts a JOIN tasks t ON t.id = a.task_id
 WHERE a.ended_at_ms IS NULL AND t.limit_key IS NOT NULL GROUP BY t.limit_key

-- name: waiting
SELECT count(*) FROM tasks WHERE plan_id IN (SELECT id FROM plans) AND status = 'PENDING' AND is_group = 0

-- name: idempotent
SELECT body_hash, task_id FROM idempotency WHERE workspace_id = ?1 AND key = ?2

-- name: insert_idempotent
INSERT INTO idempotency (workspace_id, key, body_hash, task_id, created_at_ms) VALUES (?, ?, ?, ?, ?)

-- name: yielding_children
SELECT d.child_id FROM dependencies d JOIN tasks t ON t.id = d.child_id
 WHERE d.parent_id = ?1 AND d.met = 0 AND t.on_failed <> 'block' ORDER BY d.child_id

-- name: wishing
SELECT id FROM tasks WHERE plan_id IS ?1 AND status = 'PAUSED' AND wish = ?2 ORDER BY id

-- name: settle_dependency
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND child_id = ?2 AND met = 0 RETURNING child_id

-- name: worker
SELECT $worker_columns FROM workers WHERE id = ?1

-- name: living_workers
SELECT $worker_columns FROM workers WHERE ended_at_ms IS NULL ORDER BY registered_at_ms, id

-- name: put_worker
INSERT OR REPLACE INTO workers ($worker_columns) VALUES ($worker_slots)

-- name: meta
SELECT value FROM meta WHERE name = ?1

-- name: set_meta
INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: made
SELECT (SELECT value FROM meta WHERE name = 'store'),
       (SELECT seq FROM sqlite_sequence WHERE name = 'commits'), (SELECT seq FROM sqlite_sequence WHERE name = 'epochs')

-- name: count_commit
UPDATE sqlite_sequence SET seq = iif(name = 'commits', ?1, ?2) WHERE name IN ('commits', 'epochs')

-- name: last_id
SELECT coalesce(max(id), 0) FROM (SELECT max(id) AS id FROM tasks UNION ALL SELECT max(id) FROM plans
                                  UNION ALL SELECT max(id) FROM lanes)

-- name: last_seal
SELECT $seal_columns FROM seals ORDER BY to_id DESC LIMIT 1

-- name: add_seal
INSERT INTO seals ($seal_columns) VALUES ($seal_slots)

-- name: settle_done_parents
UPDATE dependencies SET met = 1
 WHERE child_id = ?1 AND met = 0
   AND (SELECT parent.done FROM tasks parent WHERE parent.id = parent_id)
RETURNING parent_id

-- name: unmet
SELECT $unmet FROM tasks t WHERE t.id = ?1

-- name: prune_logs
-- By rowid, which is the order in which they came: no index of their age is needed.
DELETE FROM logs
 WHERE rowid IN (SELECT rowid FROM logs ORDER BY rowid LIMIT ?2) AND at_ms < ?1
RETURNING rowid

-- name: prune_checkpoints
DELETE FROM checkpoints
 WHERE rowid IN (SELECT c.rowid $old_checkpoint ORDER BY c.created_at_ms LIMIT ?2)
RETURNING rowid

-- name: prune_idempotency
DELETE FROM idempotency
 WHERE (workspace_id, key) IN (SELECT workspace_id, key FROM idempotency
                                WHERE created_at_ms < ?1 ORDER BY created_at_ms LIMIT ?2)
RETURNING key

-- name: stub_seal
UPDATE seals SET pruned_at_ms = ?2, pruned_proof = ?3, marks = x'' WHERE to_id = ?1 AND pruned_at_ms IS NULL
RETURNING from_id

-- name: prune_events
DELETE FROM events WHERE id BETWEEN ?1 AND ?2 RETURNING id

-- name: task_cost
SELECT coalesce(sum(json_extract(usage, '$$.costMicrousd')), 0) FROM attempts WHERE task_id = ?1 AND epoch <> ?2
