-- Parts of statements in SQLite's own words.

-- name: kepttask_depends_on
(SELECT json_group_array(name) FROM (
     SELECT CASE WHEN o.plan_id IS NOT DISTINCT FROM t.plan_id THEN coalesce(o.key, CAST(o.id AS TEXT)) ELSE CAST(o.id AS TEXT) END AS name
       FROM dependencies d JOIN tasks o ON o.id = d.parent_id WHERE d.child_id = t.id ORDER BY o.id))

-- name: kepttask_dependencies
(SELECT json_group_array(json_array(id, name, json(iif(met, 'true', 'false')))) FROM (
     SELECT o.id, d.met, CASE WHEN o.plan_id IS NOT DISTINCT FROM t.plan_id THEN coalesce(o.key, CAST(o.id AS TEXT))
                              ELSE CAST(o.id AS TEXT) END AS name
       FROM dependencies d JOIN tasks o ON o.id = d.parent_id WHERE d.child_id = t.id ORDER BY o.id))

-- name: taskoutline_after
(SELECT json_group_array(d.parent_id) FROM dependencies d WHERE d.child_id = t.id)

-- name: taskview_waits_for
CASE WHEN t.unmet = 0 THEN '[]' ELSE (
    SELECT json_group_array(name) FROM (
        SELECT coalesce(parent.key, CAST(parent.id AS TEXT)) || iif(parent.dead, ' (' || parent.status || ')', '')
               AS name
          FROM dependencies d JOIN tasks parent ON parent.id = d.parent_id
         WHERE d.child_id = t.id AND d.met = 0
         ORDER BY parent.dead DESC, parent.id LIMIT 3))
END

-- name: metadata_text
-- As it is written in a query.
iif(held.type IN ('true', 'false', 'null'), held.type, CAST(held.value AS TEXT))
