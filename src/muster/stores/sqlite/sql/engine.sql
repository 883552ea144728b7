-- Statements of transactions that are SQLite's alone.

-- name: ready_lane
SELECT lane_id FROM tasks WHERE workspace_id = ?1 AND lane_id = ?2 AND ready = 1 LIMIT 1

-- name: ready
SELECT $task_columns FROM tasks
 WHERE @mine AND lane_id = ?1 AND ready = 1
 ORDER BY half_done DESC, priority DESC, sort_key, id
 LIMIT ?2

-- name: job_texts
SELECT id, plan_id, epoch, fresh_after_epoch, coalesce(key, CAST(id AS TEXT)), title, description,
       model, system_prompt, check_command, review, changes, input_context, input_sealed <> '',
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
              AND a.epoch > ?4
              AND a.agent = (SELECT n.agent FROM attempts n WHERE n.task_id = ?1 AND n.epoch = ?3))

-- name: waited_for
SELECT parent_id FROM dependencies WHERE parent_id = ?1 AND met = 0 LIMIT 1

-- name: settle_dependencies
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND met = 0 RETURNING child_id

-- name: plan_by_source
SELECT $plan_columns FROM plans WHERE @mine AND source = ?1

-- name: update_plan
UPDATE plans SET failures = ?2, paused_reason = ?3, event_seq = ?4, source = ?5, task_order = ?6 WHERE id = ?1

-- name: existing
SELECT key, id, done, dead, title, description, agent FROM tasks WHERE plan_id = ?1 AND key = ?2

-- name: taken_keys
SELECT key FROM tasks WHERE plan_id = ?1 AND key = ?2

-- name: existing_ids
SELECT id, done, dead, title, description, agent FROM tasks WHERE id = ?1 AND @mine

-- name: namesakes
-- CROSS JOIN: along the names and titles, however many tasks there are.
WITH alike (task_id) AS (
    SELECT t.id FROM json_each(?2) w CROSS JOIN plans p CROSS JOIN tasks t
     WHERE @mine(p) AND p.source IS NOT NULL AND t.plan_id = p.id AND t.key = w.value
    UNION
    SELECT b.task_id FROM json_each(?2) w CROSS JOIN plans p CROSS JOIN boxes b
     WHERE @mine(p) AND p.source IS NOT NULL AND b.plan_id = p.id AND b.key = w.value AND b.current = 1
    UNION
    SELECT t.id FROM json_each(?3) w CROSS JOIN tasks t WHERE t.title = w.value AND t.from_file = 1 AND t.is_group = 0)
SELECT t.id, p.name, p.source, t.key, $kepttask_box, t.title, t.status
  FROM alike CROSS JOIN tasks t CROSS JOIN plans p
 WHERE t.id = alike.task_id AND p.id = t.plan_id AND @mine(p) AND p.source IS NOT NULL AND p.id <> ?1
   AND t.from_file = 1 AND t.is_group = 0 AND t.key IS NOT NULL
   AND (NOT (t.done OR t.dead)
        OR (t.done AND NOT t.skipped
            AND (t.ended_at_ms >= ?4
                 OR EXISTS (SELECT 1 FROM plan_sync s, json_each(s.state, '$$.owed') o
                             WHERE s.plan_id = p.id AND o.key = t.key))))
 ORDER BY t.id

-- name: dependencies
SELECT parent_id, child_id FROM dependencies WHERE child_id = ?1

-- name: stub_seal
UPDATE seals SET pruned_at_ms = ?2, pruned_proof = ?3, marks = x'' WHERE to_id = ?1 AND @mine AND pruned_at_ms IS NULL
RETURNING from_id

-- name: task_cost
SELECT coalesce(sum(json_extract(usage, '$$.costMicrousd')), 0) FROM attempts WHERE task_id = ?1 AND epoch <> ?2

-- name: movable
SELECT sum(CASE status WHEN 'PAUSED' THEN paused_reason IN ('hand', 'edit') WHEN 'PENDING'
           THEN next_attempt_at_ms IS NOT NULL OR lingering_epoch IS NOT NULL ELSE 1 END),
       json_group_array(DISTINCT json_array(coalesce(pinned_agent, agent), json(capabilities), target) || '') FILTER (WHERE ready = 1)
  FROM tasks
 WHERE @mine AND plan_id = ?1 AND is_group = 0 AND status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ABORTED', 'PAUSED')

-- name: insert_task
INSERT INTO tasks ($task_columns, $text_columns) VALUES ($task_slots, $text_slots)

-- name: insert_attempt
INSERT INTO attempts ($attempt_columns, workspace_id) VALUES ($attempt_slots, ?)

-- name: insert_event
INSERT INTO events ($event_columns, workspace_id) VALUES ($event_slots, ?)
