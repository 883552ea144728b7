-- name: two_open
SELECT 'S1: task ' || task_id || ' has ' || count(*) || ' open attempts'
  FROM attempts WHERE ended_at_ms IS NULL GROUP BY task_id HAVING count(*) > 1

-- name: newer_attempt
SELECT 'S2: task ' || a.task_id || ' has attempt ' || max(a.epoch) || ' and its row knows ' || t.epoch
  FROM attempts a JOIN tasks t ON t.id = a.task_id GROUP BY a.task_id, t.epoch HAVING max(a.epoch) > t.epoch

-- name: held_without_attempt
SELECT 'S3: task ' || t.id || ' is ' || t.status || ' and '
       || CASE WHEN $held THEN 'no attempt of it is open' ELSE 'an attempt of it is open' END
  FROM tasks t
 WHERE ($held)
    <> EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.epoch = t.epoch AND a.ended_at_ms IS NULL)

-- name: hole
SELECT 'S7: task ' || t.id || ' has had ' || t.event_seq || ' events, ' || count(e.seq) || ' are there, the last is number '
       || coalesce(max(e.seq), 0)
  FROM tasks t LEFT JOIN events e ON e.task_id = t.id
 GROUP BY t.id
HAVING count(e.seq) <> coalesce(max(e.seq) - min(e.seq) + 1, 0)
    OR (max(e.seq) IS NOT NULL AND max(e.seq) <> t.event_seq)
    OR (NOT ?1 AND count(e.seq) <> t.event_seq)

-- name: does_not_fold
SELECT 'S7: task ' || t.id || ' is ' || t.status || '@' || t.epoch || ', its last event says ' || e.new_status || '@' || e.epoch
  FROM tasks t JOIN events e ON e.task_id = t.id AND e.seq = t.event_seq
 WHERE (t.status, t.epoch, t.generation) IS DISTINCT FROM (e.new_status, e.epoch, e.generation)

-- name: does_not_join
SELECT 'S7: task ' || e.task_id || ', event ' || e.seq || ' starts from ' || coalesce(e.previous_status, 'nothing')
       || ', the one before left ' || b.new_status
  FROM events e JOIN events b ON b.task_id = e.task_id AND b.seq = e.seq - 1
 WHERE e.previous_status IS DISTINCT FROM b.new_status

-- name: miscounted
SELECT 'S8: task ' || t.id || ' counts ' || t.unmet || ' unmet dependencies, there are ' || $unmet
  FROM tasks t WHERE t.unmet <> $unmet

-- name: waits_for_what_is_done
SELECT 'S8: task ' || d.child_id || ' waits for task ' || p.id || ', which is done'
  FROM dependencies d JOIN tasks p ON p.id = d.parent_id WHERE d.met = 0 AND p.done = 1

-- name: dangling
SELECT 'a dependency of task ' || child_id || ' on ' || parent_id || ' names a task that is not there' FROM dependencies
 WHERE parent_id NOT IN (SELECT id FROM tasks) OR child_id NOT IN (SELECT id FROM tasks)
UNION ALL
SELECT 'attempt ' || epoch || ' is of task ' || task_id || ', which is not there' FROM attempts
 WHERE task_id NOT IN (SELECT id FROM tasks)
UNION ALL
SELECT 'task ' || id || ' stands in lane ' || lane_id || ', which is not there' FROM tasks
 WHERE lane_id NOT IN (SELECT id FROM lanes)
