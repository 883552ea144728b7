-- name: open_attempts
SELECT $attempt_columns FROM attempts
 WHERE ended_at_ms IS NULL AND (task_id, epoch) > (?1, ?2) AND @mine
 ORDER BY task_id, epoch LIMIT ?3

-- name: lingering
SELECT $attempt_columns FROM attempts
 WHERE (task_id, epoch) IN (SELECT id, lingering_epoch FROM tasks WHERE @mine AND lingering_epoch IS NOT NULL ORDER BY id LIMIT ?1)

-- name: due
SELECT id FROM tasks
 WHERE @mine AND next_attempt_at_ms IS NOT NULL AND next_attempt_at_ms <= ?1
   AND (status IN ('PENDING', 'ABORTED') OR (status = 'PAUSED' AND paused_reason = 'hand'))
 ORDER BY next_attempt_at_ms LIMIT ?2

-- name: any_ready
$open_lane
SELECT EXISTS (SELECT 1 FROM claimable)

-- name: plans
-- Counted on an index alone: a million tasks take 50 ms.
SELECT p.id, p.name, p.source, p.paused_reason, p.failures, p.task_order, t.status, t.number
  FROM plans p
  LEFT JOIN (SELECT plan_id, status, count(*) AS number FROM tasks WHERE is_group = 0 GROUP BY plan_id, status) t ON t.plan_id = p.id
 WHERE @mine(p)
 ORDER BY p.created_at_ms, p.id, t.status

-- name: plan_view
SELECT p.id, p.name, p.source, p.paused_reason, p.failures, p.task_order, t.status, count(t.id)
  FROM plans p LEFT JOIN tasks t ON t.plan_id = p.id AND t.is_group = 0
 WHERE p.name = ?1 AND @mine(p)
 GROUP BY p.id, t.status ORDER BY t.status

-- name: paused_plans
SELECT id, name, source, paused_reason, failures, task_order, NULL, 0 FROM plans WHERE @mine AND paused_reason IS NOT NULL ORDER BY id

-- name: plan_sources
SELECT $plan_columns FROM plans WHERE @mine AND source IS NOT NULL ORDER BY id

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

-- name: sync_states
SELECT p.name, s.state FROM plan_sync s JOIN plans p ON p.id = s.plan_id WHERE @mine(p) AND p.source IS NOT NULL ORDER BY p.id

-- name: completions
-- Also what was opened anew: its box is to be cleared.
SELECT e.id, t.key, e.new_status = 'COMPLETED'
  FROM events e JOIN tasks t ON t.id = e.task_id
 WHERE @mine(e) AND e.id > ?2 AND t.plan_id = ?1 AND t.key IS NOT NULL
   AND (e.new_status = 'COMPLETED') <> (e.previous_status = 'COMPLETED') AND e.new_status <> 'ARCHIVED'
 ORDER BY e.id

-- name: completed_since
-- CROSS JOIN: along the events, however many tasks there are.
SELECT e.id, t.plan_id, t.key, e.new_status = 'COMPLETED'
  FROM events e CROSS JOIN tasks t ON t.id = e.task_id
 WHERE @mine(e) AND e.id > ?1 AND (e.new_status = 'COMPLETED') <> (e.previous_status = 'COMPLETED') AND e.new_status <> 'ARCHIVED'
   AND t.plan_id IS NOT NULL AND t.key IS NOT NULL
 ORDER BY e.id

-- name: event_counts
SELECT event,
       CASE WHEN new_status = 'FAILED' AND previous_status IS NOT 'FAILED' THEN coalesce(details ->> 'kind', '') END AS failed_as,
       count(*)
  FROM events WHERE @mine AND id > ?1 AND id <= ?2 GROUP BY event, failed_as

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
 ORDER BY t.id LIMIT ?8

-- name: refused
-- Tasks that are done although their agent was not allowed all that it wanted to do; newest first.
SELECT t.id FROM attempts a JOIN tasks t ON t.id = a.task_id AND t.epoch = a.epoch
 WHERE @mine(a) AND a.refused <> '' AND t.status = 'COMPLETED'
 ORDER BY a.task_id DESC LIMIT ?1

-- name: place
-- Of a long plan no more is read than what was added around the task.
SELECT p.name, coalesce(p.source, ''), t.epic, t.feature, coalesce(g.title, ''), b.title, b.status, a.title, a.status
  FROM tasks t JOIN plans p ON p.id = t.plan_id
  LEFT JOIN tasks g ON g.id = t.parent_task_id
  LEFT JOIN tasks b ON b.id = (
       SELECT n.id FROM tasks n
        WHERE n.id < t.id AND n.id > t.id - 1000 AND n.plan_id = t.plan_id AND n.parent_task_id IS t.parent_task_id
          AND n.epic = t.epic AND n.feature = t.feature AND n.status NOT IN ('ARCHIVED', 'CANCELLED')
        ORDER BY n.id DESC LIMIT 1)
  LEFT JOIN tasks a ON a.id = (
       SELECT n.id FROM tasks n
        WHERE n.id > t.id AND n.id < t.id + 1000 AND n.plan_id = t.plan_id AND n.parent_task_id IS t.parent_task_id
          AND n.epic = t.epic AND n.feature = t.feature AND n.status NOT IN ('ARCHIVED', 'CANCELLED')
        ORDER BY n.id LIMIT 1)
 WHERE t.id = ?1 AND @mine(t)

-- name: find_number
SELECT t.id FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(t) AND t.id = ?1 AND (?2 IS NULL OR (t.key IS NULL AND p.name = ?2))

-- name: find_key
SELECT t.id FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(t) AND t.key = ?2 AND (?1 IS NULL OR p.name = ?1) LIMIT 10

-- name: find_start
SELECT t.id FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(t) AND substr(t.key, 1, length(?2)) = ?2 AND (?1 IS NULL OR p.name = ?1) LIMIT 10

-- name: newest_task
SELECT id FROM tasks WHERE @mine ORDER BY updated_at_ms DESC, id DESC LIMIT 1

-- name: newest_failed_task
SELECT id FROM tasks WHERE @mine AND status = 'FAILED' ORDER BY updated_at_ms DESC, id DESC LIMIT 1

-- name: attempts
SELECT epoch, generation, status, worker_id, agent, assigned_at_ms, started_at_ms, ended_at_ms, error_kind, error,
       exit_code, checkpoints, log_bytes, session_key, usage, iif(refused = '', '[]', refused), remark
  FROM attempts WHERE task_id = ?1 AND @mine ORDER BY epoch

-- name: efforts
SELECT a.task_id, coalesce(a.ended_at_ms, ?2) - coalesce(a.started_at_ms, a.ended_at_ms, ?2), a.usage
  FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.plan_id = ?1 AND @mine(t)

-- name: events
$event_view
 WHERE @mine(e) AND e.id > ?1 AND (?2 IS NULL OR e.task_id = ?2)
 ORDER BY e.id LIMIT ?3

-- name: last_events
$event_view
 WHERE e.task_id = ?1 AND @mine(e)
 ORDER BY e.seq DESC LIMIT ?2

-- name: log
SELECT rowid, stream, offset, at_ms, data FROM logs
 WHERE @mine AND task_id = ?1 AND epoch = ?2 AND rowid > ?3
 ORDER BY rowid LIMIT ?4

-- name: last_worker
SELECT $worker_columns FROM workers WHERE @mine ORDER BY last_seen_at_ms DESC LIMIT 1

-- name: log_tail
SELECT rowid, stream, offset, at_ms, data FROM (
    SELECT rowid, stream, offset, at_ms, data FROM logs
     WHERE @mine AND task_id = ?1 AND epoch = ?2 ORDER BY rowid DESC LIMIT ?3)
 ORDER BY rowid

-- name: last_event_id
SELECT coalesce(max(id), 0) FROM events WHERE @mine

-- name: holds
SELECT a.worker_id, coalesce(p.name || '/', '') || coalesce(t.key, CAST(t.id AS TEXT)) || '#' || a.epoch
  FROM attempts a JOIN tasks t ON t.id = a.task_id LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(a) AND a.ended_at_ms IS NULL ORDER BY a.task_id

-- name: checkpoint
SELECT $checkpoint_columns FROM checkpoints
 WHERE @mine AND task_id = ?1 AND epoch > (SELECT fresh_after_epoch FROM tasks WHERE id = ?1)
 ORDER BY epoch DESC, number DESC LIMIT 1

-- name: artifacts
SELECT $artifact_columns FROM artifacts WHERE @mine AND task_id = ?1 ORDER BY epoch, name

-- name: texts
SELECT result, summary, input_context, created_by FROM tasks WHERE id = ?1 AND @mine

-- name: blocks
SELECT coalesce(t.key, CAST(t.id AS TEXT)) FROM dependencies d JOIN tasks t ON t.id = d.child_id
 WHERE @mine(d) AND d.parent_id = ?1 ORDER BY t.id LIMIT 100

-- name: expired
SELECT id FROM tasks
 WHERE @mine AND expires_at_ms IS NOT NULL AND expires_at_ms <= ?1 AND status IN ('PENDING', 'ABORTED')
 ORDER BY expires_at_ms LIMIT ?2

-- name: stale_pins
SELECT id FROM tasks WHERE @mine AND pinned_until_ms IS NOT NULL AND pinned_until_ms <= ?1 ORDER BY pinned_until_ms LIMIT ?2

-- name: overdue
SELECT id FROM tasks
 WHERE @mine AND overdue_at_ms IS NOT NULL AND overdue_at_ms <= ?1 AND status = 'RUNNING' ORDER BY overdue_at_ms LIMIT ?2

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

-- name: seals
SELECT $seal_columns FROM seals WHERE @mine AND to_id > ?1 ORDER BY to_id LIMIT ?2

-- name: numbered_events
SELECT id, $event_columns FROM events WHERE @mine AND id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3

-- name: tail
-- How many there are, and how many are missing: behind the newest seal of all, that may have been anybody's.
SELECT (SELECT count(*) FROM events WHERE @mine AND id > ?1),
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) - max(?1, newest.to_id)
       - (SELECT count(*) FROM events WHERE id > max(?1, newest.to_id))
  FROM (SELECT coalesce(max(to_id), 0) AS to_id FROM seals) newest

-- name: event_spans
SELECT t.id, t.event_seq, coalesce(min(e.seq), 0), coalesce(max(e.seq), 0), count(e.seq)
  FROM (SELECT id, event_seq FROM tasks WHERE @mine AND id > ?1 ORDER BY id LIMIT ?2) t
  LEFT JOIN events e ON e.task_id = t.id
 GROUP BY t.id ORDER BY t.id

-- name: suspects
SELECT t.id,
       t.unmet <> $unmet
    OR EXISTS (SELECT 1 FROM dependencies d JOIN tasks parent ON parent.id = d.parent_id
                WHERE d.child_id = t.id AND d.met = 0 AND parent.done)
    OR ($held) <> EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.ended_at_ms IS NULL)
  FROM tasks t WHERE @mine(t) AND t.id > ?1 ORDER BY t.id LIMIT ?2

-- name: old_done
-- A plan goes out of sight as a whole: while one of its tasks may still come to something, all are counted.
SELECT t.id, t.status = 'COMPLETED' AND t.ended_at_ms < ?3 AND NOT EXISTS (
         SELECT 1 FROM tasks other
          WHERE other.plan_id = t.plan_id AND other.is_group = 0
            AND other.status IN ('PENDING', 'ASSIGNED', 'RUNNING', 'PAUSED', 'ABORTED', 'FAILED'))
  FROM tasks t WHERE @mine(t) AND t.id > ?1 ORDER BY t.id LIMIT ?2

-- name: oldest_kept_seal
SELECT $seal_columns FROM seals WHERE @mine AND pruned_at_ms IS NULL ORDER BY to_id LIMIT 1

-- name: anything_old
SELECT coalesce((SELECT at_ms < ?1 FROM logs ORDER BY rowid LIMIT 1), 0)
    OR EXISTS (SELECT 1 FROM idempotency WHERE created_at_ms < ?2)
    OR EXISTS (SELECT 1 FROM outbox WHERE created_at_ms < ?2)
    OR EXISTS (SELECT 1 FROM agent_heartbeats WHERE at_ms < ?3)
    OR EXISTS (SELECT 1 $old_checkpoint)

-- name: next_ready
-- The tops of all open lanes, so that a million tasks of a paused plan cost nothing.
$open_lane
SELECT t.id
  FROM claimable
  JOIN tasks t ON t.id IN (SELECT id FROM tasks WHERE lane_id = claimable.id AND ready = 1
                            ORDER BY half_done DESC, priority DESC, sort_key, id LIMIT ?1)
 ORDER BY t.half_done DESC, t.priority DESC, t.sort_key, t.id LIMIT ?1


-- name: attempt
SELECT $attempt_columns FROM attempts WHERE task_id = ?1 AND epoch = ?2 AND @mine

-- name: worker
SELECT $worker_columns FROM workers WHERE id = ?1 AND @mine

-- name: every_meta
SELECT workspace_id, value FROM meta WHERE workspace_id > 0 AND name = ?1 ORDER BY workspace_id

-- name: workspaces
SELECT id, name, created_at_ms FROM workspaces ORDER BY id

-- name: meta
SELECT value FROM meta WHERE workspace_id = ?1 AND name = ?2

-- name: token_of_hash
SELECT $token_columns FROM tokens WHERE token_hash = ?1

-- name: workspace_of_task
SELECT workspace_id FROM tasks WHERE id = ?1

-- name: member_of
SELECT $member_columns FROM members WHERE workspace_id = ?1 AND name = ?2

-- name: due_messages
-- Of one subject the oldest comes first: what came after it waits until that was taken, or given up.
SELECT $hookmessage_columns FROM outbox o
 WHERE webhook_id = ?1 AND next_at_ms IS NOT NULL AND next_at_ms <= ?2 AND @mine
   AND EXISTS (SELECT 1 FROM webhooks w WHERE w.id = ?1 AND w.disabled = '')
   AND NOT EXISTS (SELECT 1 FROM outbox before WHERE before.webhook_id = o.webhook_id AND before.subject = o.subject
                      AND before.id < o.id AND before.next_at_ms IS NOT NULL)
 ORDER BY next_at_ms, id LIMIT ?3

-- name: messages
SELECT $hookmessage_columns FROM outbox WHERE webhook_id = ?1 AND @mine ORDER BY id DESC LIMIT ?2

-- name: agent_of_token
SELECT workspace_id, name FROM agents WHERE token_hash = ?1

-- name: tasks_of_agent
-- Of the newest attempts: an index by agent would cost each claim.
SELECT task_id FROM (SELECT t.id AS task_id, a.agent FROM tasks t JOIN attempts a ON a.task_id = t.id AND a.epoch = t.epoch
                      WHERE @mine(t) ORDER BY t.id DESC LIMIT 20000)
 WHERE agent = ?1 LIMIT ?2

-- name: beats
SELECT $agentbeat_columns FROM agent_heartbeats WHERE agent = ?1 AND @mine ORDER BY id DESC LIMIT ?2

-- name: webhook_secret
SELECT sealed FROM webhooks WHERE id = ?1 AND @mine
