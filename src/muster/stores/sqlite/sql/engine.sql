-- name: held
SELECT $attempt_columns FROM attempts WHERE worker_id = ?1 AND ended_at_ms IS NULL AND @mine

-- name: held_by_hand
SELECT $attempt_columns FROM attempts WHERE agent = ?1 AND ended_at_ms IS NULL AND @mine

-- name: was_given
SELECT EXISTS (SELECT 1 FROM attempts WHERE worker_id = ?1 AND request_id = ?2 AND @mine)

-- name: agents
SELECT $agent_columns FROM agents WHERE @mine ORDER BY name

-- name: open_lanes
$open_lane
SELECT id FROM claimable

-- name: ready
SELECT $task_columns FROM tasks
 WHERE @mine AND lane_id = ?1 AND ready = 1
 ORDER BY half_done DESC, priority DESC, sort_key, id
 LIMIT ?2

-- name: touching
SELECT t.id, t.plan_id, coalesce(p.name, ''), coalesce(p.name || '/', '') || coalesce(t.key, CAST(t.id AS TEXT)),
       t.touches, a.live_diff
  FROM (SELECT id FROM tasks WHERE @mine AND touches <> '' AND (status = 'ASSIGNED' OR status = 'RUNNING')
        UNION
        SELECT task_id FROM attempts WHERE @mine AND live_diff <> '' AND ended_at_ms IS NULL) o
  JOIN tasks t ON t.id = o.id
  JOIN attempts a ON a.task_id = o.id AND a.ended_at_ms IS NULL
  LEFT JOIN plans p ON p.id = t.plan_id

-- name: job_texts
SELECT id, plan_id, epoch, fresh_after_epoch, coalesce(key, CAST(id AS TEXT)), title, description,
       model, system_prompt, check_command, review, changes, input_context,
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
              AND a.epoch > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE workspace_id = 0 AND name = 'sessions_after'), 0)
              AND a.agent = (SELECT n.agent FROM attempts n WHERE n.task_id = ?1 AND n.epoch = ?3))

-- name: waited_for
SELECT parent_id FROM dependencies WHERE parent_id = ?1 AND met = 0 LIMIT 1

-- name: settle_dependencies
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND met = 0 RETURNING child_id

-- name: insert_task
INSERT INTO tasks ($task_columns, $text_columns) VALUES ($task_slots, $text_slots)

-- name: insert_dependency
INSERT INTO dependencies (parent_id, child_id, met, workspace_id) VALUES (?, ?, ?, ?)

-- name: insert_attempt
INSERT INTO attempts ($attempt_columns, workspace_id) VALUES ($attempt_slots, ?)

-- name: insert_event
INSERT INTO events ($event_columns, workspace_id) VALUES ($event_slots, ?)

-- name: update_result
UPDATE tasks SET result = coalesce(?2, result), summary = ?3 WHERE id = ?1

-- name: insert_checkpoint
INSERT INTO checkpoints ($checkpoint_columns, workspace_id) VALUES ($checkpoint_slots, ?)

-- name: insert_artifact
INSERT INTO artifacts ($artifact_columns, workspace_id) VALUES ($artifact_slots, ?)
ON CONFLICT (task_id, epoch, name) DO UPDATE SET location = excluded.location

-- name: insert_log
INSERT INTO logs (task_id, epoch, stream, offset, at_ms, data, workspace_id) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: logged
SELECT length(data) FROM logs WHERE task_id = ?1 AND epoch = ?2 AND stream = ?3 AND offset = ?4

-- name: plan_by_source
SELECT $plan_columns FROM plans WHERE @mine AND source = ?1

-- name: plan_by_name
SELECT $plan_columns FROM plans WHERE @mine AND name = ?1

-- name: update_plan
UPDATE plans SET failures = ?2, paused_reason = ?3, event_seq = ?4, source = ?5, task_order = ?6 WHERE id = ?1

-- name: plan_names
SELECT name FROM plans WHERE @mine

-- name: insert_plan
INSERT INTO plans ($plan_columns) VALUES ($plan_slots)

-- name: set_ticked
UPDATE plans SET ticked_event_id = max(ticked_event_id, ?2) WHERE id = ?1

-- name: sync_state
SELECT state FROM plan_sync WHERE plan_id = ?1 AND @mine

-- name: set_sync_state
INSERT OR REPLACE INTO plan_sync (plan_id, state, workspace_id) VALUES (?1, ?2, ?3)

-- name: existing
SELECT key, id, done, dead, title, description, agent FROM tasks WHERE plan_id = ?1 AND key = ?2

-- name: existing_ids
SELECT id, done, dead, title, description, agent FROM tasks WHERE id = ?1 AND @mine

-- name: kept_tasks
SELECT $kepttask_columns FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id WHERE t.plan_id = ?1 AND @mine(t) ORDER BY t.id

-- name: kept_task
SELECT $kepttask_columns FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id WHERE t.id = ?1 AND @mine(t)

-- name: box_names
SELECT b.key, b.task_id, t.key, b.current FROM boxes b JOIN tasks t ON t.id = b.task_id WHERE b.plan_id = ?1 AND @mine(b)

-- name: other_files
SELECT EXISTS (SELECT 1 FROM plans WHERE source IS NOT NULL AND id <> ?1 AND @mine)

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

-- name: leave_box
UPDATE boxes SET current = 0 WHERE task_id = ?1 AND current = 1

-- name: set_box
INSERT INTO boxes (plan_id, key, task_id, current, workspace_id) VALUES (?1, ?2, ?3, 1, ?4)
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
    SELECT 1 FROM attempts WHERE @mine AND assigned_at_ms >= (SELECT created_at_ms FROM tasks WHERE id = ?1))

-- name: worked_after
SELECT EXISTS (SELECT 1 FROM attempts WHERE @mine AND (ended_at_ms IS NULL OR ended_at_ms >= ?1))
    OR EXISTS (SELECT 1 FROM tasks WHERE @mine AND lingering_epoch IS NOT NULL)

-- name: at_work
SELECT count(*) FROM tasks
 WHERE plan_id = ?1 AND is_group = 0 AND (status IN ('ASSIGNED', 'RUNNING') OR lingering_epoch IS NOT NULL)

-- name: update_texts
UPDATE tasks
   SET ($edited_columns, parent_task_id, not_after_ms) = ($edited_slots, ?, ?)
 WHERE id = ?

-- name: open_by_agent
SELECT agent, count(*) FROM attempts WHERE ended_at_ms IS NULL AND @mine GROUP BY agent

-- name: open_by_limit
SELECT t.limit_key, count(*) FROM attempts a JOIN tasks t ON t.id = a.task_id
 WHERE a.ended_at_ms IS NULL AND @mine(a) AND t.limit_key IS NOT NULL GROUP BY t.limit_key

-- name: waiting
SELECT count(*) FROM tasks WHERE plan_id IN (SELECT id FROM plans WHERE @mine) AND status = 'PENDING' AND is_group = 0

-- name: idempotent
SELECT body_hash, task_id FROM idempotency WHERE @mine AND key = ?1

-- name: insert_idempotent
INSERT INTO idempotency (workspace_id, key, body_hash, task_id, created_at_ms) VALUES (?, ?, ?, ?, ?)

-- name: yielding_children
SELECT d.child_id FROM dependencies d JOIN tasks t ON t.id = d.child_id
 WHERE d.parent_id = ?1 AND d.met = 0 AND t.on_failed <> 'block' ORDER BY d.child_id

-- name: wishing
SELECT id FROM tasks WHERE @mine AND plan_id IS ?1 AND status = 'PAUSED' AND wish = ?2 ORDER BY id

-- name: settle_dependency
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND child_id = ?2 AND met = 0 RETURNING child_id

-- name: living_workers
SELECT $worker_columns FROM workers WHERE ended_at_ms IS NULL AND @mine ORDER BY registered_at_ms, id

-- name: put_worker
INSERT OR REPLACE INTO workers ($worker_columns) VALUES ($worker_slots)

-- name: last_seal
SELECT $seal_columns FROM seals WHERE @mine ORDER BY to_id DESC LIMIT 1

-- name: add_seal
INSERT INTO seals ($seal_columns, workspace_id) VALUES ($seal_slots, ?)

-- name: settle_done_parents
UPDATE dependencies SET met = 1
 WHERE child_id = ?1 AND met = 0
   AND (SELECT parent.done FROM tasks parent WHERE parent.id = parent_id)
RETURNING parent_id

-- name: unmet
SELECT $unmet FROM tasks t WHERE t.id = ?1

-- name: stub_seal
UPDATE seals SET pruned_at_ms = ?2, pruned_proof = ?3, marks = x'' WHERE to_id = ?1 AND @mine AND pruned_at_ms IS NULL
RETURNING from_id

-- name: prune_events
DELETE FROM events WHERE id BETWEEN ?1 AND ?2 AND @mine RETURNING id

-- name: task_cost
SELECT coalesce(sum(json_extract(usage, '$$.costMicrousd')), 0) FROM attempts WHERE task_id = ?1 AND epoch <> ?2

-- name: members
SELECT $member_columns FROM members WHERE @mine ORDER BY name

-- name: put_member
INSERT OR REPLACE INTO members ($member_columns, workspace_id) VALUES ($member_slots, ?)

-- name: drop_member
DELETE FROM members WHERE name = ?1 AND @mine

-- name: tokens
SELECT $token_columns FROM tokens WHERE @mine ORDER BY id

-- name: token_of_id
SELECT $token_columns FROM tokens WHERE id = ?1 AND @mine

-- name: add_token
INSERT INTO tokens ($token_columns, token_hash) VALUES ($token_slots, ?)

-- name: update_token
UPDATE tokens SET revoked_at_ms = ?2, last_used_at_ms = ?3 WHERE id = ?1 AND @mine

-- name: movable
SELECT sum(CASE status WHEN 'PAUSED' THEN paused_reason = 'hand' WHEN 'PENDING'
           THEN next_attempt_at_ms IS NOT NULL OR lingering_epoch IS NOT NULL ELSE 1 END),
       json_group_array(DISTINCT json_array(coalesce(pinned_agent, agent), json(capabilities), target) || '') FILTER (WHERE ready = 1)
  FROM tasks
 WHERE @mine AND plan_id = ?1 AND is_group = 0 AND status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ABORTED', 'PAUSED')

-- name: plan_counts
SELECT status, count(*) FROM tasks WHERE @mine AND plan_id = ?1 AND is_group = 0 GROUP BY status

-- name: put_agent
INSERT INTO agents ($agent_columns) VALUES ($agent_slots)
    ON CONFLICT (workspace_id, name) DO UPDATE SET ($agent_columns) = ($agent_excluded)

-- name: set_agent_token
UPDATE agents SET token_hash = ?2 WHERE name = ?1 AND @mine

-- name: drop_agent
DELETE FROM agents WHERE name = ?1 AND @mine

-- name: drop_beats
DELETE FROM agent_heartbeats WHERE agent = ?1 AND @mine

-- name: add_beat
INSERT INTO agent_heartbeats (workspace_id, agent, $agentbeat_columns) VALUES (?, ?, $agentbeat_slots)

-- name: webhooks
SELECT $webhook_columns FROM webhooks WHERE @mine ORDER BY id

-- name: add_webhook
INSERT INTO webhooks ($webhook_columns, sealed) VALUES ($webhook_slots, ?)

-- name: update_webhook
UPDATE webhooks SET failures = ?2, last_delivered_at_ms = ?3, disabled = ?4 WHERE id = ?1 AND @mine

-- name: drop_webhook
DELETE FROM webhooks WHERE id = ?1 AND @mine

-- name: drop_messages
DELETE FROM outbox WHERE webhook_id = ?1 AND @mine

-- name: add_message
INSERT INTO outbox ($newmessage_columns, tries, said, workspace_id) VALUES ($newmessage_slots, 0, '', ?)

-- name: message
SELECT $hookmessage_columns FROM outbox WHERE id = ?1 AND @mine

-- name: update_message
UPDATE outbox SET tries = ?2, next_at_ms = ?3, delivered_at_ms = ?4, said = ?5 WHERE id = ?1 AND @mine

-- name: requeue_messages
UPDATE outbox SET tries = 0, next_at_ms = ?2, delivered_at_ms = NULL
 WHERE webhook_id = ?1 AND (message_id = ?3 OR (?3 IS NULL AND delivered_at_ms IS NULL)) AND @mine
RETURNING id

-- name: secrets
SELECT $secret_columns FROM secrets WHERE @mine ORDER BY name

-- name: sealed_secrets
SELECT name, sealed FROM secrets WHERE @mine

-- name: put_secret
INSERT OR REPLACE INTO secrets ($secret_columns, sealed, workspace_id) VALUES ($secret_slots, ?, ?)

-- name: drop_secret
DELETE FROM secrets WHERE name = ?1 AND @mine

-- name: reseal_secret
UPDATE secrets SET sealed = ?2 WHERE name = ?1 AND @mine

-- name: reseal_webhook
UPDATE webhooks SET sealed = ?2 WHERE id = ?1 AND @mine
