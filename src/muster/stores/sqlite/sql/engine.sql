-- name: tasks
SELECT $task_columns FROM tasks WHERE id = ?1

-- name: attempts
SELECT $attempt_columns FROM attempts WHERE task_id = ?1 AND epoch = ?2

-- name: held
SELECT $attempt_columns FROM attempts WHERE worker_id = ?1 AND ended_at_ms IS NULL

-- name: open_lanes
-- A skip scan of the partial index: one seek for each lane, whatever the number of tasks.
WITH RECURSIVE open_lane (id) AS (
    SELECT min(lane_id) FROM tasks WHERE ready = 1
    UNION ALL
    SELECT (SELECT min(lane_id) FROM tasks WHERE ready = 1 AND lane_id > open_lane.id)
      FROM open_lane WHERE open_lane.id IS NOT NULL
)
SELECT id FROM open_lane WHERE id IS NOT NULL

-- name: ready
SELECT id, priority, sort_key FROM tasks
 WHERE lane_id = ?1 AND ready = 1
 ORDER BY priority DESC, sort_key, id
 LIMIT ?2

-- name: job_texts
SELECT t.id, p.name, coalesce(t.key, CAST(t.id AS TEXT)), t.title, t.description,
       CASE WHEN t.epoch > 1 THEN (
           SELECT session_key FROM attempts a
            WHERE a.task_id = t.id AND a.session_key IS NOT NULL ORDER BY a.epoch DESC LIMIT 1) END,
       CASE WHEN t.epoch > 1 THEN (
           SELECT data FROM checkpoints c WHERE c.task_id = t.id ORDER BY c.epoch DESC, c.number DESC LIMIT 1) END
  FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE t.id = ?1

-- name: settle_dependencies
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND met = 0 RETURNING child_id

-- name: insert_task
INSERT INTO tasks ($task_columns, ready, key, title, description, agent, epic, feature, created_by, created_at_ms)
VALUES ($task_slots, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_dependency
INSERT INTO dependencies (parent_id, child_id, met) VALUES (?, ?, ?)

-- name: update_task
-- What never changes (plan, lane, place in line) is left out: indexed columns named here cost an index write.
UPDATE tasks
   SET status = ?5, generation = ?6, epoch = ?7, event_seq = ?8, unmet = ?11, next_attempt_at_ms = ?12,
       timeout_s = ?13, timeout_factor = ?14, max_retries = ?15, retries = ?16, losses = ?17, percent = ?18,
       step = ?19, error_kind = ?20, error = ?21, note = ?22, updated_at_ms = ?23, started_at_ms = ?24,
       ended_at_ms = ?25, ready = ?26
 WHERE id = ?1

-- name: insert_attempt
INSERT INTO attempts ($attempt_columns) VALUES ($attempt_slots)

-- name: update_attempt
UPDATE attempts
   SET status = ?4, boot_id = ?8, lease_until_ms = ?10, started_at_ms = ?12, ended_at_ms = ?13, session_key = ?14,
       token_hash = ?15, stop_action = ?16, stop_by_ms = ?17, error_kind = ?18, error = ?19, exit_code = ?20,
       declared_kind = ?21, declared = ?22, checkpoints = ?23, log_bytes = ?24
 WHERE task_id = ?1 AND epoch = ?2

-- name: insert_event
INSERT INTO events ($event_columns) VALUES ($event_slots)

-- name: update_result
UPDATE tasks SET result = ?2 WHERE id = ?1

-- name: insert_checkpoint
INSERT INTO checkpoints (task_id, epoch, number, created_at_ms, data) VALUES (?, ?, ?, ?, ?)

-- name: insert_artifact
INSERT INTO artifacts (task_id, epoch, name, location, created_at_ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task_id, epoch, name) DO UPDATE SET location = excluded.location

-- name: insert_log
INSERT INTO logs (task_id, epoch, stream, offset, at_ms, data) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: plan_by_source
SELECT $plan_columns FROM plans WHERE workspace_id = ?1 AND source = ?2

-- name: plan_by_name
SELECT $plan_columns FROM plans WHERE workspace_id = ?1 AND name = ?2

-- name: plan_names
SELECT name FROM plans WHERE workspace_id = ?1

-- name: insert_plan
INSERT INTO plans ($plan_columns) VALUES ($plan_slots)

-- name: set_ticked
UPDATE plans SET ticked_event_id = ?2 WHERE id = ?1

-- name: existing
SELECT key, id, status IN ('COMPLETED', 'ARCHIVED'), title, description, agent
  FROM tasks WHERE plan_id = ?1 AND key IS NOT NULL

-- name: lanes
SELECT id, workspace_id, plan_id, agent, capabilities FROM lanes

-- name: insert_lane
INSERT INTO lanes (id, workspace_id, plan_id, agent, capabilities) VALUES (?, ?, ?, ?, ?)

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

-- name: last_id
SELECT max(coalesce((SELECT max(id) FROM tasks), 0), coalesce((SELECT max(id) FROM plans), 0),
           coalesce((SELECT max(id) FROM lanes), 0))
