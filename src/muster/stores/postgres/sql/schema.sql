-- What stands in a database before the schema of Muster is made there.

-- name: is_ours
SELECT count(*) = 2
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'muster' AND c.relname = 'schema_version' AND a.attname IN ('number', 'made_at')

-- name: made_of
-- Of what each migration was made; NULL where the build that made it kept no such column.
SELECT number, to_jsonb(v) ->> 'made_of' FROM muster.schema_version v ORDER BY number

-- name: others
-- Of a schema of that name which is not Muster's.
SELECT DISTINCT name
  FROM (SELECT relname::text, relnamespace FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
        UNION ALL
        SELECT proname::text, pronamespace FROM pg_proc
        UNION ALL
        SELECT typname::text, typnamespace FROM pg_type WHERE typtype IN ('d', 'e', 'r')) found (name, place)
 WHERE place = (SELECT oid FROM pg_namespace WHERE nspname = 'muster')
   AND NOT EXISTS (SELECT 1 FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                    WHERE c.relnamespace = place AND c.relname = 'schema_version'
                      AND a.attname IN ('number', 'made_at') HAVING count(*) = 2)
 ORDER BY name

-- name: missing
-- Of what this login needs to make it: roles that are not there, those it may not act as, and the right to make schemas.
SELECT quote_ident(session_user), quote_ident(current_database()),
       ARRAY(SELECT role FROM unnest(?1::text[]) role WHERE role NOT IN (SELECT rolname FROM pg_roles)),
       ARRAY(SELECT role FROM unnest(?1::text[]) role
              WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role AND pg_has_role(session_user, oid, ?2))),
       has_database_privilege(session_user, current_database(), 'CREATE')
