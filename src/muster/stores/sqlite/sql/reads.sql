-- Queries that are SQLite's alone.

-- name: boxes_named
-- CROSS JOIN: along the names, as `namesakes`.
WITH named (task_id) AS (
    SELECT t.id FROM json_each(?2) w CROSS JOIN json_each(?1) p CROSS JOIN tasks t
     WHERE t.plan_id = p.value AND t.key = w.value
    UNION
    SELECT b.task_id FROM json_each(?2) w CROSS JOIN json_each(?1) p CROSS JOIN boxes b
     WHERE b.plan_id = p.value AND b.key = w.value AND b.current = 1)
SELECT t.id, p.name, p.source, t.key, $kepttask_box, t.title, t.status
  FROM named CROSS JOIN tasks t CROSS JOIN plans p
 WHERE t.id = named.task_id AND p.id = t.plan_id AND @mine(p) AND t.status <> 'ARCHIVED'

-- name: completions
-- Also what was opened anew, whose box is to be cleared, and what was done before it had a box.
SELECT e.id, t.key, e.new_status = 'COMPLETED'
  FROM events e JOIN tasks t ON t.id = e.task_id
 WHERE @mine(e) AND e.id > ?2 AND t.plan_id = ?1 AND t.from_file = 1 AND t.key IS NOT NULL
   AND $told_to_file
 ORDER BY e.id

-- name: completed_since
-- CROSS JOIN: along the events, however many tasks there are.
SELECT e.id, t.plan_id, t.key, e.new_status = 'COMPLETED'
  FROM events e CROSS JOIN tasks t ON t.id = e.task_id
 WHERE @mine(e) AND e.id > ?1 AND $told_to_file
   AND t.plan_id IS NOT NULL AND t.from_file = 1 AND t.key IS NOT NULL
 ORDER BY e.id

-- name: happened_since
SELECT EXISTS (SELECT 1 FROM events e LEFT JOIN tasks t ON t.id = e.task_id
                WHERE @mine(e) AND e.id > ?2 AND (e.task_id = ?1 OR t.plan_id = ?1))

-- name: event_counts
SELECT event,
       CASE WHEN new_status = 'FAILED' AND previous_status IS NOT 'FAILED' THEN coalesce(details ->> 'kind', '') END AS failed_as,
       count(*)
  FROM events WHERE @mine AND id > ?1 AND id <= ?2 GROUP BY event, failed_as

-- name: task_costs
SELECT a.task_id, sum(coalesce(json_extract(a.usage, '$$.costMicrousd'), 0))
  FROM json_each(?1) w CROSS JOIN attempts a
 WHERE a.task_id = w.value AND @mine(a) GROUP BY a.task_id

-- name: ready_of_lanes
SELECT t.id FROM json_each(?1) w CROSS JOIN tasks t
 WHERE @mine(t) AND t.lane_id = w.value AND t.ready = 1 LIMIT ?2

-- name: task_views
SELECT $taskview_columns
  FROM tasks t
  LEFT JOIN plans p ON p.id = t.plan_id
  LEFT JOIN attempts a ON a.task_id = t.id AND a.epoch = t.epoch
 WHERE @mine(t) AND t.id > ?1
   AND (?2 IS NULL OR p.name = ?2)
   AND (?3 IS NULL OR t.status IN (SELECT value FROM json_each(?3)))
   AND $by_id
   AND (?5 IS NULL OR NOT EXISTS (
           SELECT 1 FROM json_each(?5) wanted
            WHERE wanted.value NOT IN (SELECT value FROM json_each(t.tags))))
   AND (?6 IS NULL OR NOT EXISTS (
           SELECT 1 FROM json_each(?6) wanted
            WHERE wanted.value IS NOT (SELECT $metadata_text FROM json_each(t.metadata) held WHERE held.key = wanted.key)))
   AND (?7 IS NULL OR t.parent_task_id = ?7)
   AND (t.is_group = 0 OR ?9 OR ?4 IS NOT NULL)
   AND t.priority BETWEEN ?10 AND ?11
   AND (NOT ?12 OR t.status NOT IN ('PENDING', 'ABORTED')
        OR t.status = 'ABORTED' AND a.status IS NOT 'stopping'
        OR t.status = 'PENDING' AND t.unmet = 0 AND t.is_group = 0 AND t.next_attempt_at_ms IS NOT NULL)
   AND (?13 IS NULL OR t.title GLOB ?13 OR coalesce(t.key, t.id) GLOB ?13 OR p.name GLOB ?13
        OR instr(?13, '/') AND p.name || '/' || coalesce(t.key, t.id) GLOB ?13
        OR ?14 IS NOT NULL AND (
           t.title GLOB ?14 OR coalesce(p.name || '/', '') || coalesce(t.key, t.id) GLOB ?14))
   AND t.id <= ?15
 ORDER BY t.id LIMIT ?8

-- name: task_further_on
-- Numbers have gaps of any width, so that tasks are counted.
SELECT id FROM tasks WHERE @mine AND id > ?1 ORDER BY id LIMIT 1 OFFSET ?2

-- name: events
$event_view
 WHERE @mine(e) AND e.id > ?1 AND (?2 IS NULL OR e.task_id = ?2)
 ORDER BY e.id LIMIT ?3

-- name: log
-- Which chunks is found out first: a sort reads what it carries, and all that was printed is much.
SELECT rowid, stream, offset, at_ms, data FROM logs
 WHERE rowid IN (
    SELECT rowid FROM logs
     WHERE @mine AND task_id = ?1 AND epoch = ?2 AND rowid > ?3 ORDER BY rowid LIMIT ?4)
 ORDER BY rowid

-- name: log_tail
SELECT rowid, stream, offset, at_ms, data FROM logs
 WHERE rowid IN (
    SELECT rowid FROM logs
     WHERE @mine AND task_id = ?1 AND epoch = ?2 ORDER BY rowid DESC LIMIT ?3)
 ORDER BY rowid

-- name: log_part
SELECT rowid, stream, offset, at_ms, data FROM logs
 WHERE @mine AND task_id = ?1 AND epoch = ?2 AND stream = ?3 AND offset >= ?4 AND offset < ?5
 ORDER BY offset

-- name: log_end
SELECT coalesce(max(rowid), 0) FROM logs WHERE @mine AND task_id = ?1 AND epoch = ?2

-- name: last_event_id
SELECT coalesce(max(id), 0) FROM events WHERE @mine

-- name: audit_events
$event_view
 WHERE @mine(e) AND (?1 IS NULL OR e.level IN (SELECT value FROM json_each(?1))) AND e.at_ms >= ?2
 ORDER BY e.id DESC LIMIT ?3

-- name: audit_events_about
$event_view
 WHERE @mine(e) AND e.subject <> '' AND (?1 IS NULL OR e.level IN (SELECT value FROM json_each(?1))) AND e.at_ms >= ?2
   AND EXISTS (SELECT 1 FROM json_each(?4) w
                WHERE e.subject = w.value OR substr(e.subject, 1, length(w.value) + 1) = w.value || ' ')
 ORDER BY e.id DESC LIMIT ?3

-- name: audit_events_of_task
$event_view
 WHERE @mine(e) AND e.task_id = ?1 AND (?2 IS NULL OR e.level IN (SELECT value FROM json_each(?2))) AND e.at_ms >= ?3
 ORDER BY e.seq DESC LIMIT ?4

-- name: numbered_events
SELECT id, $event_columns FROM events WHERE @mine AND id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3

-- name: tail
-- How many there are, and how many are missing: behind the newest seal of all, that may have been anybody's.
SELECT (SELECT count(*) FROM events WHERE @mine AND id > ?1),
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) - max(?1, newest.to_id)
       - (SELECT count(*) FROM events WHERE id > max(?1, newest.to_id))
  FROM (SELECT coalesce(max(to_id), 0) AS to_id FROM seals) newest

-- name: anything_old
SELECT coalesce((SELECT at_ms < ?1 FROM logs ORDER BY rowid LIMIT 1), 0)
    OR EXISTS (SELECT 1 FROM idempotency WHERE created_at_ms < ?2)
    OR EXISTS (SELECT 1 FROM outbox WHERE created_at_ms < ?2)
    OR EXISTS (SELECT 1 FROM agent_heartbeats WHERE at_ms < ?3)
    OR EXISTS (SELECT 1 $old_session)
    OR EXISTS (SELECT 1 $old_checkpoint)

-- name: next_ready
-- The tops of all open lanes, so that a million tasks of a paused plan cost nothing.
$open_lane
SELECT t.id
  FROM claimable
  JOIN tasks t ON t.id IN (SELECT id FROM tasks WHERE lane_id = claimable.id AND ready = 1
                            ORDER BY half_done DESC, priority DESC, sort_key, id LIMIT ?1)
 ORDER BY t.half_done DESC, t.priority DESC, t.sort_key, t.id LIMIT ?1
