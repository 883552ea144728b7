-- What concerns no workspace alone, or is looked up by a number and then judged by its row.

-- name: tasks
SELECT $task_columns FROM tasks WHERE id = ?1

-- name: attempt
SELECT $attempt_columns FROM attempts WHERE task_id = ?1 AND epoch = ?2

-- name: plan
SELECT $plan_columns FROM plans WHERE id = ?1

-- name: worker
SELECT $worker_columns FROM workers WHERE id = ?1

-- name: meta
SELECT value FROM meta WHERE workspace_id = ?1 AND name = ?2

-- name: set_meta
INSERT INTO meta (workspace_id, name, value) VALUES (?1, ?2, ?3) ON CONFLICT (workspace_id, name) DO UPDATE SET value = excluded.value

-- name: lanes
SELECT $lane_columns FROM lanes

-- name: insert_lane
INSERT INTO lanes ($lane_columns) VALUES ($lane_slots)

-- name: made
SELECT (SELECT value FROM meta WHERE workspace_id = 0 AND name = 'store'),
       (SELECT seq FROM sqlite_sequence WHERE name = 'commits'), (SELECT seq FROM sqlite_sequence WHERE name = 'epochs')

-- name: count_commit
UPDATE sqlite_sequence SET seq = iif(name = 'commits', ?1, ?2) WHERE name IN ('commits', 'epochs')

-- name: last_id
SELECT coalesce(max(id), 0) FROM (SELECT max(id) AS id FROM tasks UNION ALL SELECT max(id) FROM plans
                                  UNION ALL SELECT max(id) FROM lanes UNION ALL SELECT max(id) FROM tokens
                                  UNION ALL SELECT max(id) FROM workspaces UNION ALL SELECT max(id) FROM webhooks)

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

-- name: prune_messages
DELETE FROM outbox
 WHERE id IN (SELECT id FROM outbox WHERE created_at_ms < ?1 ORDER BY created_at_ms LIMIT ?2)
RETURNING id

-- name: prune_beats
DELETE FROM agent_heartbeats
 WHERE id IN (SELECT id FROM agent_heartbeats WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)
RETURNING id

-- name: workspace_ids
SELECT id FROM workspaces ORDER BY id

-- name: insert_workspace
INSERT INTO workspaces (id, name, created_at_ms) VALUES (?, ?, ?)

-- name: workspace_named
SELECT id FROM workspaces WHERE name = ?1
