-- name: all_tasks
SELECT $task_columns FROM tasks ORDER BY id

-- name: all_attempts
SELECT $attempt_columns FROM attempts ORDER BY task_id, epoch

-- name: all_events
SELECT $event_columns FROM events ORDER BY id

-- name: all_dependencies
SELECT parent_id, child_id FROM dependencies ORDER BY parent_id, child_id
