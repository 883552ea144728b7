-- Parts of statements.  A column of a struct is that of the same name, unless one stands here as `struct_column`.

-- name: open_lane
-- A skip scan of the partial index: one seek for each lane that holds a ready task, however many tasks wait.
WITH RECURSIVE open_lane (id) AS (
    SELECT min(lane_id) FROM tasks WHERE @mine AND ready = 1
    UNION ALL
    SELECT (SELECT min(lane_id) FROM tasks WHERE @mine AND ready = 1 AND lane_id > open_lane.id)
      FROM open_lane WHERE open_lane.id IS NOT NULL
), claimable (id) AS (
    SELECT id FROM open_lane
     WHERE id IS NOT NULL
       AND id NOT IN (SELECT l.id FROM plans p JOIN lanes l ON l.workspace_id = p.workspace_id AND l.plan_id = p.id
                       WHERE p.paused_reason IS NOT NULL))

-- name: event_view
-- The columns of an EventView.
SELECT e.id, e.task_id, coalesce(p.name, ''),
       coalesce(t.key, nullif('(' || e.subject || ')', '()'),
                CASE e.task_id WHEN p.id THEN '(plan)' WHEN 0 THEN '(store)'
                           ELSE CAST(e.task_id AS TEXT) END), e.seq, e.at_ms, e.level,
       e.event, e.message, e.previous_status, e.new_status, e.generation, e.epoch, e.actor,
       e.subject, e.details, a.session_key
  FROM events e
  LEFT JOIN tasks t ON t.id = e.task_id
  LEFT JOIN attempts a ON a.task_id = e.task_id AND a.epoch = e.epoch
  LEFT JOIN plans p ON p.id = coalesce(t.plan_id, e.task_id)

-- name: told_to_file
(((e.new_status = 'COMPLETED') <> (e.previous_status = 'COMPLETED') AND e.new_status <> 'ARCHIVED')
 OR (e.event = 'joined' AND e.new_status = 'COMPLETED'))

-- name: kepttask_key
coalesce(t.key, CAST(t.id AS TEXT))

-- name: kepttask_box
coalesce((SELECT b.key FROM boxes b WHERE b.task_id = t.id AND b.current = 1), t.key, CAST(t.id AS TEXT))

-- name: kepttask_expires_at_ms
t.not_after_ms

-- name: kepttask_parent
CASE WHEN p.plan_id IS NOT DISTINCT FROM t.plan_id THEN coalesce(p.key, CAST(p.id AS TEXT)) ELSE CAST(p.id AS TEXT) END

-- name: taskview_plan
coalesce(p.name, '')

-- name: taskview_key
coalesce(t.key, CAST(t.id AS TEXT))

-- name: taskview_seq
t.event_seq

-- name: taskview_wanted_agent
t.agent

-- name: taskview_worker
CASE WHEN a.ended_at_ms IS NULL THEN a.worker_id END

-- name: taskview_agent
CASE WHEN a.ended_at_ms IS NULL THEN a.agent END

-- name: taskview_attempt_status
a.status

-- name: taskview_attempt_count
CASE WHEN t.epoch > 1 THEN (SELECT count(*) FROM attempts n WHERE n.task_id = t.id) ELSE t.epoch END

-- name: taskview_last_agent
a.agent

-- name: taskview_suspicion
CASE WHEN t.status = 'RUNNING' THEN (
    SELECT message FROM events e WHERE e.task_id = t.id AND e.seq = t.event_seq AND e.event = 'suspected')
END

-- name: taskview_refused
coalesce(nullif(a.refused, ''), '[]')

-- name: taskview_remark
coalesce(a.remark, '')

-- name: taskview_stop_action
CASE WHEN a.ended_at_ms IS NULL THEN a.stop_action END

-- name: taskview_needs_person
0

-- name: taskview_fix
''

-- name: taskview_budgets_used_up
'[]'

-- name: taskview_actions
'[]'

-- name: taskview_why
''

-- name: taskview_state
''

-- name: taskview_at_work
0

-- name: taskoutline_key
coalesce(t.key, CAST(t.id AS TEXT))

-- name: taskoutline_attempt_status
CASE WHEN t.status IN ('ASSIGNED', 'RUNNING') THEN (
    SELECT a.status FROM attempts a WHERE a.task_id = t.id AND a.epoch = t.epoch)
END

-- name: taskoutline_error
CASE WHEN t.status = 'CANCELLED' THEN t.error ELSE '' END

-- name: taskoutline_stranded
(t.unmet > 0 AND t.status IN ('PENDING', 'ABORTED') AND EXISTS (
    SELECT 1 FROM dependencies d JOIN tasks p ON p.id = d.parent_id WHERE d.child_id = t.id AND d.met = 0 AND p.dead = 1))

-- name: unmet
(SELECT count(*) FROM dependencies d WHERE d.child_id = t.id AND d.met = 0)

-- name: held
t.status IN ('ASSIGNED', 'RUNNING')

-- name: old_checkpoint
FROM checkpoints c JOIN tasks t ON t.id = c.task_id
 WHERE c.created_at_ms < ?1 AND t.ended_at_ms < ?1 AND (t.done = 1 OR t.dead = 1)
