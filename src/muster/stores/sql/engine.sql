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

-- name: touching
SELECT t.id, t.plan_id, coalesce(p.name, ''), coalesce(t.key, CAST(t.id AS TEXT)), t.touches, a.live_diff
  FROM (SELECT id FROM tasks WHERE @mine AND touches <> '' AND (status = 'ASSIGNED' OR status = 'RUNNING')
        UNION
        SELECT task_id FROM attempts WHERE @mine AND live_diff <> '' AND ended_at_ms IS NULL) o
  JOIN tasks t ON t.id = o.id
  JOIN attempts a ON a.task_id = o.id AND a.ended_at_ms IS NULL
  LEFT JOIN plans p ON p.id = t.plan_id

-- name: insert_dependency
INSERT INTO dependencies (parent_id, child_id, met, workspace_id) VALUES (?, ?, ?, ?)

-- name: insert_checkpoint
INSERT INTO checkpoints ($checkpoint_columns, workspace_id) VALUES ($checkpoint_slots, ?)

-- name: insert_artifact
INSERT INTO artifacts ($artifact_columns, workspace_id) VALUES ($artifact_slots, ?)
ON CONFLICT (task_id, epoch, name) DO UPDATE SET location = excluded.location

-- name: insert_log
INSERT INTO logs (task_id, epoch, stream, "offset", at_ms, data, workspace_id) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: logged
SELECT length(data) FROM logs WHERE task_id = ?1 AND epoch = ?2 AND stream = ?3 AND "offset" = ?4

-- name: plan_names
SELECT name FROM plans WHERE @mine

-- name: insert_plan
INSERT INTO plans ($plan_columns) VALUES ($plan_slots)

-- name: set_ticked
UPDATE plans SET ticked_event_id = CASE WHEN ticked_event_id < ?2 THEN ?2 ELSE ticked_event_id END WHERE id = ?1

-- name: sync_state
SELECT state FROM plan_sync WHERE plan_id = ?1 AND @mine

-- name: set_sync_state
INSERT INTO plan_sync (plan_id, state, workspace_id) VALUES (?1, ?2, ?3)
    ON CONFLICT (plan_id) DO UPDATE SET state = excluded.state

-- name: kept_tasks
SELECT $kepttask_columns FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id WHERE t.plan_id = ?1 AND @mine(t) ORDER BY t.id

-- name: kept_task
SELECT $kepttask_columns FROM tasks t LEFT JOIN tasks p ON p.id = t.parent_task_id WHERE t.id = ?1 AND @mine(t)

-- name: box_names
SELECT b.key, b.task_id, t.key, b.current FROM boxes b JOIN tasks t ON t.id = b.task_id WHERE b.plan_id = ?1 AND @mine(b)
 ORDER BY b.key

-- name: other_files
SELECT EXISTS (SELECT 1 FROM plans WHERE source IS NOT NULL AND id <> ?1 AND @mine)

-- name: leave_box
UPDATE boxes SET current = 0 WHERE task_id = ?1 AND current = 1

-- name: set_box
INSERT INTO boxes (plan_id, key, task_id, current, workspace_id) VALUES (?1, ?2, ?3, 1, ?4)
    ON CONFLICT (plan_id, key) DO UPDATE SET task_id = excluded.task_id, current = 1

-- name: put_in_file
UPDATE tasks SET from_file = 1 WHERE id = ?1

-- name: drop_dependencies
DELETE FROM dependencies WHERE child_id = ?1

-- name: unfinished
-- Walks the primary key backwards from where the page before has ended.
SELECT id FROM tasks
 WHERE id < ?2 AND plan_id = ?1
   AND (status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'PAUSED', 'ABORTED') OR (?4 AND status <> 'ARCHIVED'))
 ORDER BY id DESC LIMIT ?3

-- name: more_to_end
-- A task begins with its first event.
SELECT t.id, t.key, e.seq
  FROM tasks t JOIN events e ON e.task_id = t.id
 WHERE t.plan_id = ?1 AND t.id < ?3 AND t.is_group = 0
   AND t.status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'PAUSED', 'ABORTED')
   AND e.id > ?2 AND (e.seq = 1 OR e.previous_status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'ARCHIVED'))

-- name: steered_since
SELECT EXISTS (SELECT 1 FROM events WHERE task_id = ?1 AND id > ?2 AND event IN ('plan_paused', 'plan_resumed'))

-- name: worked_since
SELECT EXISTS (
    SELECT 1 FROM attempts WHERE @mine AND assigned_at_ms >= (SELECT created_at_ms FROM tasks WHERE id = ?1))

-- name: worked_after
SELECT EXISTS (SELECT 1 FROM attempts WHERE @mine AND (ended_at_ms IS NULL OR ended_at_ms >= ?1))
    OR EXISTS (SELECT 1 FROM tasks WHERE @mine AND lingering_epoch IS NOT NULL)

-- name: at_work
SELECT count(*) FROM tasks
 WHERE plan_id = ?1 AND is_group = 0 AND (status IN ('ASSIGNED', 'RUNNING') OR lingering_epoch IS NOT NULL)

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
SELECT id FROM tasks WHERE @mine AND plan_id IS NOT DISTINCT FROM ?1 AND status = 'PAUSED' AND wish = ?2 ORDER BY id

-- name: settle_dependency
UPDATE dependencies SET met = 1 WHERE parent_id = ?1 AND child_id = ?2 AND met = 0 RETURNING child_id

-- name: living_workers
SELECT $worker_columns FROM workers WHERE ended_at_ms IS NULL AND @mine ORDER BY registered_at_ms, id

-- name: put_worker
INSERT INTO workers ($worker_columns) VALUES ($worker_slots)
    ON CONFLICT (id) DO UPDATE SET ($worker_columns) = ($worker_excluded)

-- name: last_seal
SELECT $seal_columns FROM seals WHERE @mine ORDER BY to_id DESC LIMIT 1

-- name: add_seal
INSERT INTO seals ($seal_columns, workspace_id) VALUES ($seal_slots, ?)

-- name: settle_done_parents
UPDATE dependencies SET met = 1
 WHERE child_id = ?1 AND met = 0
   AND (SELECT parent.done FROM tasks parent WHERE parent.id = parent_id) = 1
RETURNING parent_id

-- name: unmet
SELECT $unmet FROM tasks t WHERE t.id = ?1

-- name: prune_events
DELETE FROM events WHERE id BETWEEN ?1 AND ?2 AND @mine RETURNING id

-- name: members
SELECT $member_columns FROM members WHERE @mine ORDER BY name

-- name: put_member
INSERT INTO members ($member_columns, workspace_id) VALUES ($member_slots, ?)
    ON CONFLICT (workspace_id, name) DO UPDATE SET ($member_columns) = ($member_excluded)

-- name: drop_member
DELETE FROM members WHERE name = ?1 AND @mine

-- name: tokens
SELECT $token_columns FROM tokens WHERE @mine ORDER BY id

-- name: token_of_id
SELECT $token_columns FROM tokens WHERE id = ?1 AND @mine

-- name: add_token
INSERT INTO tokens ($token_columns, token_hash) VALUES ($token_slots, ?)
ON CONFLICT (token_hash) DO NOTHING RETURNING id

-- name: update_token
UPDATE tokens SET revoked_at_ms = ?2, last_used_at_ms = ?3 WHERE id = ?1 AND @mine

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
UPDATE webhooks SET failures = ?2, last_delivered_at_ms = ?3, disabled = ?4, matters = ?5 WHERE id = ?1 AND @mine

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

-- name: gather_message
UPDATE outbox SET message_id = ?2 WHERE id = ?1 AND @mine

-- name: requeue_messages
UPDATE outbox SET tries = 0, next_at_ms = ?2, delivered_at_ms = NULL, said = coalesce(?4, said)
 WHERE webhook_id = ?1 AND (message_id = ?3 OR (?3 IS NULL AND delivered_at_ms IS NULL)) AND @mine
RETURNING id

-- name: secrets
SELECT $secret_columns FROM secrets WHERE @mine ORDER BY name

-- name: sealed_secrets
SELECT name, sealed FROM secrets WHERE @mine

-- name: webhook_secret
SELECT sealed FROM webhooks WHERE id = ?1 AND @mine

-- name: sealed_input
SELECT input_sealed FROM tasks WHERE id = ?1 AND @mine

-- name: sealed_inputs
SELECT id, input_sealed, status FROM tasks WHERE id > ?1 AND input_sealed <> '' AND @mine ORDER BY id LIMIT ?2

-- name: sealed_of_agent
SELECT t.id FROM attempts a JOIN tasks t ON t.id = a.task_id
 WHERE @mine(a) AND a.ended_at_ms IS NULL AND a.agent = ?1 AND t.input_sealed <> ''

-- name: reseal_input
UPDATE tasks SET input_sealed = ?2 WHERE id = ?1 AND (?3 = '' OR input_sealed = ?3) AND @mine

-- name: put_secret
INSERT INTO secrets ($secret_columns, sealed, workspace_id) VALUES ($secret_slots, ?, ?)
    ON CONFLICT (workspace_id, name) DO UPDATE SET ($secret_columns, sealed) = ($secret_excluded, excluded.sealed)

-- name: drop_secret
DELETE FROM secrets WHERE name = ?1 AND @mine

-- name: reseal_secret
UPDATE secrets SET sealed = ?2 WHERE name = ?1 AND (?3 = '' OR sealed = ?3) AND @mine

-- name: reseal_webhook
UPDATE webhooks SET sealed = ?2 WHERE id = ?1 AND (?3 = '' OR sealed = ?3) AND @mine

-- name: update_result
UPDATE tasks SET result = coalesce(?2, result), summary = ?3 WHERE id = ?1

-- name: update_texts
UPDATE tasks
   SET ($edited_columns, parent_task_id, not_after_ms, input_sealed)
       = ($edited_slots, ?, ?, coalesce(?, input_sealed))
 WHERE id = ?
