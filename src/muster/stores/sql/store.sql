-- What concerns no workspace alone, or is looked up by a number and then judged by its row.

-- name: attempt
SELECT $attempt_columns FROM attempts WHERE task_id = ?1 AND epoch = ?2

-- name: worker
SELECT $worker_columns FROM workers WHERE id = ?1

-- name: meta
SELECT value FROM meta WHERE workspace_id = ?1 AND name = ?2

-- name: set_meta
INSERT INTO meta (workspace_id, name, value) VALUES (?1, ?2, ?3) ON CONFLICT (workspace_id, name) DO UPDATE SET value = excluded.value

-- name: lanes
SELECT $lane_columns FROM lanes

-- name: prune_idempotency
DELETE FROM idempotency
 WHERE (workspace_id, key) IN (SELECT workspace_id, key FROM idempotency
                                WHERE created_at_ms < ?1 ORDER BY created_at_ms LIMIT ?2)
RETURNING key

-- name: prune_messages
DELETE FROM outbox
 WHERE id IN (SELECT id FROM outbox WHERE created_at_ms < ?1 ORDER BY created_at_ms LIMIT ?2)
RETURNING id

-- name: shift_messages
UPDATE outbox SET next_at_ms = next_at_ms + ?1 WHERE next_at_ms IS NOT NULL

-- name: bound_messages
UPDATE outbox SET next_at_ms = ?1 WHERE next_at_ms > ?1

-- name: prune_sessions
DELETE FROM tokens
 WHERE id IN (SELECT id $old_session ORDER BY id LIMIT ?2)
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
