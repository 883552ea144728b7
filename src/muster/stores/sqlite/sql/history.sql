-- name: all_tasks
SELECT $task_columns FROM tasks ORDER BY id

-- name: all_attempts
SELECT $attempt_columns FROM attempts ORDER BY task_id, epoch

-- name: all_events
SELECT $event_columns FROM events ORDER BY id

-- name: all_dependencies
SELECT parent_id, child_id FROM dependencies ORDER BY parent_id, child_id

-- name: events_after
SELECT id, $event_columns FROM events WHERE id > ?1 ORDER BY id

-- name: look
SELECT ready, $unmet, $task_columns FROM tasks t WHERE id = ?1

-- name: attempts_of
SELECT $attempt_columns FROM attempts WHERE task_id = ?1 ORDER BY epoch

-- name: open_attempts_by_place
SELECT a.worker_id, a.agent, t.limit_key, count(*) FROM attempts a JOIN tasks t ON t.id = a.task_id
 WHERE a.ended_at_ms IS NULL GROUP BY 1, 2, 3
