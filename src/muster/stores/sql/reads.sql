-- name: open_attempts
SELECT $attempt_columns FROM attempts
 WHERE ended_at_ms IS NULL AND (task_id, epoch) > (?1, ?2) AND @mine
 ORDER BY task_id, epoch LIMIT ?3

-- name: lingering
SELECT $attempt_columns FROM attempts
 WHERE (task_id, epoch) IN (SELECT id, lingering_epoch FROM tasks WHERE @mine AND lingering_epoch IS NOT NULL ORDER BY id LIMIT ?1)
 ORDER BY task_id, epoch

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
SELECT p.id, p.name, p.source, p.paused_reason, p.failures, p.task_order, t.status, t.number
  FROM plans p
  LEFT JOIN (SELECT plan_id, status, count(*) AS number FROM tasks
              WHERE is_group = 0 AND plan_id = (SELECT id FROM plans WHERE name = ?1 AND @mine)
              GROUP BY plan_id, status) t ON t.plan_id = p.id
 WHERE p.name = ?1 AND @mine(p)
 ORDER BY t.status

-- name: paused_plans
SELECT id, name, source, paused_reason, failures, task_order, NULL, 0 FROM plans WHERE @mine AND paused_reason IS NOT NULL ORDER BY id

-- name: outlines
-- Two indexes find all of a plan: groups have keys.
SELECT $taskoutline_columns FROM tasks t
 WHERE t.id > ?2 AND @mine(t)
   AND t.id IN (SELECT id FROM tasks WHERE plan_id = ?1 AND is_group = 0
                UNION SELECT id FROM tasks WHERE plan_id = ?1 AND key IS NOT NULL)
 ORDER BY t.id LIMIT ?3

-- name: plan_sources
SELECT $plan_columns FROM plans WHERE @mine AND source IS NOT NULL ORDER BY id

-- name: sync_states
SELECT p.name, s.state FROM plan_sync s JOIN plans p ON p.id = s.plan_id WHERE @mine(p) AND p.source IS NOT NULL ORDER BY p.id

-- name: refused
-- Tasks that are done although their agent was not allowed all that it wanted to do; newest first.
SELECT t.id FROM attempts a JOIN tasks t ON t.id = a.task_id AND t.epoch = a.epoch
 WHERE @mine(a) AND a.refused <> '' AND t.status = 'COMPLETED'
 ORDER BY a.task_id DESC LIMIT ?1

-- name: calling
-- `calls` is `asks_a_person` of the row.
SELECT id FROM tasks
 WHERE @mine AND calls = 1 AND status = ?1 AND is_group = 0 AND (CAST(?2 AS bigint) IS NULL OR plan_id = ?2)
 ORDER BY id LIMIT ?3

-- name: stranded
-- Along those that have ended badly, however many tasks wait for others.
SELECT DISTINCT t.id
  FROM tasks p JOIN dependencies d ON d.parent_id = p.id AND d.met = 0 JOIN tasks t ON t.id = d.child_id
 WHERE @mine(p) AND p.dead = 1 AND t.status IN ('PENDING', 'ABORTED') AND t.is_group = 0
   AND (CAST(?1 AS bigint) IS NULL OR t.plan_id = ?1)
 LIMIT ?2

-- name: lane_tops
$open_lane
SELECT c.id, (SELECT t.id FROM tasks t WHERE @mine(t) AND t.lane_id = c.id AND t.ready = 1 LIMIT 1)
  FROM claimable c JOIN lanes l ON l.id = c.id
 WHERE CAST(?1 AS bigint) IS NULL OR l.plan_id = ?1
 LIMIT ?2

-- name: place
-- Of a long plan no more is read than what was added around the task.
SELECT p.name, coalesce(p.source, ''), t.epic, t.feature, coalesce(g.title, ''), b.title, b.status, a.title, a.status
  FROM tasks t JOIN plans p ON p.id = t.plan_id
  LEFT JOIN tasks g ON g.id = t.parent_task_id
  LEFT JOIN tasks b ON b.id = (
       SELECT n.id FROM tasks n
        WHERE n.id < t.id AND n.id > t.id - 1000 AND n.plan_id = t.plan_id AND n.parent_task_id IS NOT DISTINCT FROM t.parent_task_id
          AND n.epic = t.epic AND n.feature = t.feature AND n.status NOT IN ('ARCHIVED', 'CANCELLED')
        ORDER BY n.id DESC LIMIT 1)
  LEFT JOIN tasks a ON a.id = (
       SELECT n.id FROM tasks n
        WHERE n.id > t.id AND n.id < t.id + 1000 AND n.plan_id = t.plan_id AND n.parent_task_id IS NOT DISTINCT FROM t.parent_task_id
          AND n.epic = t.epic AND n.feature = t.feature AND n.status NOT IN ('ARCHIVED', 'CANCELLED')
        ORDER BY n.id LIMIT 1)
 WHERE t.id = ?1 AND @mine(t)

-- name: find_number
SELECT t.id FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(t) AND t.id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR (t.key IS NULL AND p.name = ?2))

-- name: find_key
SELECT t.id FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(t) AND t.key = ?2 AND (CAST(?1 AS TEXT) IS NULL OR p.name = ?1) LIMIT 10

-- name: find_start
SELECT t.id FROM tasks t LEFT JOIN plans p ON p.id = t.plan_id
 WHERE @mine(t) AND substr(t.key, 1, length(?2)) = ?2 AND (CAST(?1 AS TEXT) IS NULL OR p.name = ?1) LIMIT 10

-- name: newest_task
SELECT id FROM tasks WHERE @mine ORDER BY updated_at_ms DESC, id DESC LIMIT 1

-- name: newest_failed_task
SELECT id FROM tasks WHERE @mine AND status = 'FAILED' ORDER BY updated_at_ms DESC, id DESC LIMIT 1

-- name: attempts
SELECT epoch, generation, status, worker_id, agent, assigned_at_ms, started_at_ms, ended_at_ms, error_kind, error,
       exit_code, checkpoints, log_bytes, session_key, usage, CASE refused WHEN '' THEN '[]' ELSE refused END, remark,
       coalesce((SELECT w.hostname FROM workers w WHERE w.id = attempts.worker_id
                    AND w.workspace_id = attempts.workspace_id), ''),
       coalesce((SELECT w.offers FROM workers w WHERE w.id = attempts.worker_id
                    AND w.workspace_id = attempts.workspace_id), '{}')
  FROM attempts WHERE task_id = ?1 AND @mine ORDER BY epoch

-- name: efforts
SELECT a.task_id, coalesce(a.ended_at_ms, ?2) - coalesce(a.started_at_ms, a.ended_at_ms, ?2), a.usage
  FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.plan_id = ?1 AND @mine(t)

-- name: last_events
$event_view
 WHERE e.task_id = ?1 AND @mine(e)
 ORDER BY e.seq DESC LIMIT ?2

-- name: last_worker
SELECT $worker_columns FROM workers WHERE @mine ORDER BY last_seen_at_ms DESC LIMIT 1

-- name: last_to_offer
-- `agents` is a list in JSON.  LIKE would take other letters for the same, and `_` for any.
SELECT $worker_columns FROM workers
 WHERE @mine AND replace(agents, ?1, '') <> agents ORDER BY last_seen_at_ms DESC LIMIT 1

-- name: holds
SELECT a.worker_id, coalesce(p.name, ''), coalesce(t.key, CAST(t.id AS TEXT)), a.epoch
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

-- name: seals
SELECT $seal_columns FROM seals WHERE @mine AND to_id > ?1 ORDER BY to_id LIMIT ?2

-- name: event_spans
SELECT t.id, t.event_seq, coalesce(min(e.seq), 0), coalesce(max(e.seq), 0), count(e.seq)
  FROM (SELECT id, event_seq FROM tasks WHERE @mine AND id > ?1 ORDER BY id LIMIT ?2) t
  LEFT JOIN events e ON e.task_id = t.id
 GROUP BY t.id, t.event_seq ORDER BY t.id

-- name: suspects
SELECT t.id,
       t.unmet <> $unmet
    OR EXISTS (SELECT 1 FROM dependencies d JOIN tasks parent ON parent.id = d.parent_id
                WHERE d.child_id = t.id AND d.met = 0 AND parent.done = 1)
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

-- name: waiting_messages
SELECT $hookmessage_columns FROM outbox
 WHERE webhook_id = ?1 AND next_at_ms IS NOT NULL AND @mine ORDER BY id LIMIT ?2

-- name: messages
SELECT $hookmessage_columns FROM outbox WHERE webhook_id = ?1 AND @mine ORDER BY id DESC LIMIT ?2

-- name: agent_of_token
SELECT workspace_id, name FROM agents WHERE token_hash = ?1

-- name: tasks_of_agent
-- Of the newest attempts: an index by agent would cost each claim.
SELECT task_id FROM (SELECT t.id AS task_id, a.agent FROM tasks t JOIN attempts a ON a.task_id = t.id AND a.epoch = t.epoch
                      WHERE @mine(t) ORDER BY t.id DESC LIMIT 20000) newest
 WHERE agent = ?1 LIMIT ?2

-- name: beats
SELECT $agentbeat_columns FROM agent_heartbeats WHERE agent = ?1 AND @mine ORDER BY id DESC LIMIT ?2
