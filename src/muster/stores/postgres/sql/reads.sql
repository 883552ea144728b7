-- Queries where PostgreSQL has other words, or another way, than the shared ones.

-- name: boxes_named
WITH named (task_id) AS (
    SELECT t.id FROM tasks t
     WHERE t.plan_id IN (SELECT json_array_elements_text(?1::json)::bigint) AND t.key IN (SELECT json_array_elements_text(?2::json))
    UNION
    SELECT b.task_id FROM boxes b
     WHERE b.plan_id IN (SELECT json_array_elements_text(?1::json)::bigint) AND b.current = 1
       AND b.key IN (SELECT json_array_elements_text(?2::json)))
SELECT t.id, p.name, p.source, t.key, $kepttask_box, t.title, t.status
  FROM named JOIN tasks t ON t.id = named.task_id JOIN plans p ON p.id = t.plan_id
 WHERE @mine(p) AND t.status <> 'ARCHIVED'

-- name: completions
-- Also what was opened anew, whose box is to be cleared, and what was done before it had a box.
SELECT e.id, t.key, e.new_status = 'COMPLETED'
  FROM events e JOIN tasks t ON t.id = e.task_id
 WHERE @mine(e) AND e.id > ?2 AND e.id <= @settled AND t.plan_id = ?1 AND t.from_file = 1 AND t.key IS NOT NULL
   AND $told_to_file
 ORDER BY e.id

-- name: completed_since
SELECT e.id, t.plan_id, t.key, e.new_status = 'COMPLETED'
  FROM events e JOIN tasks t ON t.id = e.task_id
 WHERE @mine(e) AND e.id > ?1 AND e.id <= @settled
   AND $told_to_file
   AND t.plan_id IS NOT NULL AND t.from_file = 1 AND t.key IS NOT NULL
 ORDER BY e.id

-- name: happened_since
SELECT EXISTS (SELECT 1 FROM events e LEFT JOIN tasks t ON t.id = e.task_id
                WHERE @mine(e) AND e.id > ?2 AND e.id <= @settled AND (e.task_id = ?1 OR t.plan_id = ?1))

-- name: event_counts
SELECT event,
       CASE WHEN new_status = 'FAILED' AND previous_status IS DISTINCT FROM 'FAILED' THEN coalesce(details::json ->> 'kind', '') END
           AS failed_as,
       count(*)
  FROM events WHERE @mine AND id > ?1 AND id <= ?2 GROUP BY event, failed_as

-- name: task_costs
SELECT a.task_id, coalesce(sum((a.usage::json ->> 'costMicrousd')::bigint), 0)::bigint
  FROM json_array_elements_text(?1::json) w (task) JOIN attempts a ON a.task_id = w.task::bigint
 WHERE @mine(a) GROUP BY a.task_id

-- name: ready_of_lanes
SELECT t.id
  FROM json_array_elements_text(?1::json) w (lane)
 CROSS JOIN LATERAL (SELECT id FROM tasks WHERE @mine AND lane_id = w.lane::bigint AND ready = 1 LIMIT ?2) t
 LIMIT ?2

-- name: task_views
SELECT $taskview_columns
  FROM tasks t
  LEFT JOIN plans p ON p.id = t.plan_id
  LEFT JOIN attempts a ON a.task_id = t.id AND a.epoch = t.epoch
 WHERE @mine(t) AND t.id > ?1
   AND (?2::text IS NULL OR p.name = ?2)
   AND (?3::text IS NULL OR t.status IN (SELECT json_array_elements_text(?3::json)))
   AND $by_id
   AND (?5::text IS NULL OR t.tags::jsonb @> ?5::jsonb)
   AND (?6::text IS NULL OR NOT EXISTS (
           SELECT 1 FROM json_each_text(?6::json) wanted
            WHERE wanted.value IS DISTINCT FROM (
                SELECT coalesce(held.value, 'null') FROM json_each_text(t.metadata::json) held WHERE held.key = wanted.key)))
   AND (?7::bigint IS NULL OR t.parent_task_id = ?7)
   AND (t.is_group = 0 OR ?9::boolean OR ?4::text IS NOT NULL)
   AND t.priority BETWEEN ?10 AND ?11
   AND (NOT ?12::boolean OR t.status NOT IN ('PENDING', 'ABORTED')
        OR t.status = 'ABORTED' AND a.status IS DISTINCT FROM 'stopping'
        OR t.status = 'PENDING' AND t.unmet = 0 AND t.is_group = 0 AND t.next_attempt_at_ms IS NOT NULL)
   AND (?13::text IS NULL OR t.title ~ ?13 OR t.title ~ ?14::text
        OR coalesce(p.name || '/', '') || coalesce(t.key, t.id::text) ~ ?13
        OR coalesce(p.name || '/', '') || coalesce(t.key, t.id::text) ~ ?14)
   AND t.id <= ?15
 ORDER BY t.id LIMIT ?8

-- name: events
$event_view
 WHERE @mine(e) AND e.id > ?1 AND e.id <= @settled AND (?2::bigint IS NULL OR e.task_id = ?2)
 ORDER BY e.id LIMIT ?3

-- name: log
SELECT place, stream, "offset", at_ms, data FROM logs
 WHERE @mine AND task_id = ?1 AND epoch = ?2 AND place > ?3
 ORDER BY place LIMIT ?4

-- name: log_tail
SELECT place, stream, "offset", at_ms, data FROM (
    SELECT place, stream, "offset", at_ms, data FROM logs
     WHERE @mine AND task_id = ?1 AND epoch = ?2 ORDER BY place DESC LIMIT ?3) newest
 ORDER BY place

-- name: log_part
SELECT place, stream, "offset", at_ms, data FROM logs
 WHERE @mine AND task_id = ?1 AND epoch = ?2 AND stream = ?3 AND "offset" >= ?4 AND "offset" < ?5
 ORDER BY "offset"

-- name: log_end
SELECT coalesce(max(place), 0) FROM logs WHERE @mine AND task_id = ?1 AND epoch = ?2

-- name: last_event_id
SELECT coalesce(max(id), 0) FROM events WHERE @mine AND id <= @settled

-- name: audit_events
$event_view
 WHERE @mine(e) AND (?1::text IS NULL OR e.level IN (SELECT json_array_elements_text(?1::json))) AND e.at_ms >= ?2
 ORDER BY e.id DESC LIMIT ?3

-- name: audit_events_about
$event_view
 WHERE @mine(e) AND e.subject <> '' AND (?1::text IS NULL OR e.level IN (SELECT json_array_elements_text(?1::json)))
   AND e.at_ms >= ?2
   AND EXISTS (SELECT 1 FROM json_array_elements_text(?4::json) w (value)
                WHERE e.subject = w.value OR starts_with(e.subject, w.value || ' '))
 ORDER BY e.id DESC LIMIT ?3

-- name: audit_events_of_task
$event_view
 WHERE @mine(e) AND e.task_id = ?1 AND (?2::text IS NULL OR e.level IN (SELECT json_array_elements_text(?2::json)))
   AND e.at_ms >= ?3
 ORDER BY e.seq DESC LIMIT ?4

-- name: numbered_events
SELECT id, $event_columns FROM events WHERE @mine AND id > ?1 AND id <= ?2 AND id <= @settled ORDER BY id LIMIT ?3

-- name: tail
-- How many there are, and how many are missing of those that nobody has sealed yet: that may have been anybody's.
SELECT (SELECT count(*) FROM events WHERE @mine AND id > ?1),
       ((SELECT sum(count) FROM event_tally) - (SELECT coalesce(sum(count), 0) FROM seals)
        - (SELECT coalesce(sum((SELECT count(*) FROM events e WHERE e.workspace_id = w.id AND e.id > coalesce(
                      (SELECT max(to_id) FROM seals s WHERE s.workspace_id = w.id), 0))), 0)
             FROM (SELECT id FROM workspaces UNION SELECT 0) w))::bigint

-- name: anything_old
SELECT coalesce((SELECT at_ms < ?1 FROM logs ORDER BY place LIMIT 1), false)
    OR EXISTS (SELECT 1 FROM idempotency WHERE created_at_ms < ?2)
    OR EXISTS (SELECT 1 FROM outbox WHERE created_at_ms < ?2)
    OR EXISTS (SELECT 1 FROM agent_heartbeats WHERE at_ms < ?3)
    OR EXISTS (SELECT 1 $old_session)
    OR EXISTS (SELECT 1 $old_checkpoint)
    OR EXISTS (SELECT 1 $old_file)

-- name: next_ready
-- The tops of all open lanes, so that a million tasks of a paused plan cost nothing.
$open_lane
SELECT t.id
  FROM claimable
 CROSS JOIN LATERAL (SELECT id, half_done, priority, sort_key FROM tasks
                      WHERE @mine AND lane_id = claimable.id AND ready = 1
                      ORDER BY half_done DESC, priority DESC, sort_key, id LIMIT ?1) t
 ORDER BY t.half_done DESC, t.priority DESC, t.sort_key, t.id LIMIT ?1

-- name: settled
SELECT settled_event_id()

-- name: clock
SELECT $clock

-- name: whole_file
SELECT id, size, sha256 FROM files WHERE task_id = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4 AND whole = 1

-- name: file_part_at
SELECT p."offset", p.data FROM files f JOIN file_parts p ON p.file_id = f.id
 WHERE f.task_id = ?1 AND f.epoch = ?2 AND f.kind = ?3 AND f.name = ?4 AND f.sha256 = ?5 AND f.whole = 1 AND p."offset" <= ?6
 ORDER BY p."offset" DESC LIMIT 1
