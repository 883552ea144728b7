-- What SQLite alone needs beside them.

-- name: tasks
SELECT $task_columns FROM tasks WHERE id = ?1

-- name: plan
SELECT $plan_columns FROM plans WHERE id = ?1

-- name: plan_id
SELECT id FROM plans WHERE workspace_id = ?1 AND name = ?2

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

-- name: index_tasks
CREATE INDEX IF NOT EXISTS tasks_workspace ON tasks (workspace_id)

-- name: index_events
CREATE INDEX IF NOT EXISTS events_workspace ON events (workspace_id)
