-- Parts of statements where PostgreSQL has other words for them than the shared ones.

-- name: clock
(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: kepttask_depends_on
(SELECT coalesce(json_agg(CASE WHEN o.plan_id IS NOT DISTINCT FROM t.plan_id THEN coalesce(o.key, CAST(o.id AS TEXT))
                               ELSE CAST(o.id AS TEXT) END ORDER BY o.id), '[]')::text
   FROM dependencies d JOIN tasks o ON o.id = d.parent_id WHERE d.child_id = t.id)

-- name: kepttask_dependencies
(SELECT coalesce(json_agg(json_build_array(
            o.id, CASE WHEN o.plan_id IS NOT DISTINCT FROM t.plan_id THEN coalesce(o.key, CAST(o.id AS TEXT))
                       ELSE CAST(o.id AS TEXT) END, d.met = 1) ORDER BY o.id), '[]')::text
   FROM dependencies d JOIN tasks o ON o.id = d.parent_id WHERE d.child_id = t.id)

-- name: taskoutline_after
(SELECT coalesce(json_agg(d.parent_id), '[]')::text FROM dependencies d WHERE d.child_id = t.id)

-- name: taskview_waits_for
CASE WHEN t.unmet = 0 THEN '[]' ELSE (
    SELECT coalesce(json_agg(first.name ORDER BY first.dead DESC, first.id), '[]')::text FROM (
        SELECT coalesce(parent.key, CAST(parent.id AS TEXT))
               || CASE WHEN parent.dead = 1 THEN ' (' || parent.status || ')' ELSE '' END AS name,
               parent.dead, parent.id
          FROM dependencies d JOIN tasks parent ON parent.id = d.parent_id
         WHERE d.child_id = t.id AND d.met = 0
         ORDER BY parent.dead DESC, parent.id LIMIT 3) first)
END

-- name: old_file
-- Of attempts that are over; bundles are of use for a day.
FROM files f
 WHERE f.created_at_ms < CASE f.kind WHEN 'bundle' THEN (extract(epoch FROM now()) * 1000)::bigint - 86400000 ELSE ?1 END
   AND (f.kind = 'bundle' OR NOT EXISTS (
       SELECT 1 FROM attempts a WHERE a.task_id = f.task_id AND a.epoch = f.epoch AND a.ended_at_ms IS NULL))
