-- What `muster doctor` asks, by the login's own rights.

-- name: who
SELECT quote_ident(session_user), quote_ident(current_database())

-- name: clock
SELECT $clock

-- name: halted
SELECT reason FROM muster.halt

-- name: owner
SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace WHERE nspname = 'muster'

-- name: read_only_by
SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only'

-- name: milliseconds
SELECT setting::bigint FROM pg_settings WHERE name = ?1

-- name: may_be
SELECT bool_and(pg_has_role(session_user, role,
                            CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END))
  FROM unnest(?1::text[]) role

-- name: may_make
-- Of version 16 on, the right to make roles is none to be a member of those that others have made.
SELECT quote_ident(session_user),
       has_database_privilege(session_user, current_database(), 'CREATE')
       AND coalesce((SELECT has_schema_privilege(session_user, oid, 'CREATE') FROM pg_namespace WHERE nspname = 'muster'), true)
       AND NOT EXISTS (
               SELECT 1 FROM unnest(?1::text[]) role LEFT JOIN pg_roles r ON r.rolname = role
                WHERE CASE WHEN me.rolsuper THEN false
                           WHEN r.oid IS NULL THEN NOT me.rolcreaterole
                           WHEN current_setting('server_version_num')::int < 160000
                           THEN NOT (me.rolcreaterole OR pg_has_role(session_user, r.oid, 'MEMBER'))
                           ELSE NOT (pg_has_role(session_user, r.oid, 'SET')
                                     OR pg_has_role(session_user, r.oid, 'MEMBER WITH ADMIN OPTION')) END)
  FROM pg_roles me WHERE me.rolname = session_user

-- name: standbys
-- Without pg_monitor it is not shown what kind they are of.
SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(*) FILTER (WHERE sync_state IS NULL)
  FROM pg_stat_replication

-- name: connections
-- The narrowest limit, how many of its connections are not Muster's, and whose it is.
WITH limits (most, others, place) AS (
    SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
           - coalesce(current_setting('reserved_connections', true), '0')::bigint,
           (SELECT count(*) FROM pg_stat_activity
             WHERE datid IS NOT NULL AND application_name NOT IN ('muster', 'muster doctor')),
           'max_connections'
    UNION ALL
    SELECT datconnlimit, (SELECT count(*) FROM pg_stat_activity a
                           WHERE a.datid = d.oid AND application_name NOT IN ('muster', 'muster doctor')),
           'the database'
      FROM pg_database d WHERE datname = current_database() AND datconnlimit >= 0
    UNION ALL
    SELECT rolconnlimit, (SELECT count(*) FROM pg_stat_activity
                           WHERE usename = session_user AND application_name NOT IN ('muster', 'muster doctor')),
           'the role'
      FROM pg_roles WHERE rolname = session_user AND rolconnlimit >= 0 AND NOT rolsuper)
SELECT most, others, place FROM limits ORDER BY most - others LIMIT 1

-- name: too_strong
SELECT rolname, CASE WHEN rolsuper THEN 'a superuser' ELSE 'BYPASSRLS' END
  FROM pg_roles WHERE rolname = ANY(?1::text[]) AND (rolsuper OR rolbypassrls) ORDER BY rolname

-- name: stronger
-- Roles whose rights one of the two has as well, and should not.
SELECT m.rolname, quote_ident(r.rolname)
  FROM pg_roles m JOIN pg_roles r ON r.oid <> m.oid AND pg_has_role(m.oid, r.oid, 'MEMBER')
 WHERE m.rolname = ANY(?1::text[])
   AND (r.rolsuper OR r.rolbypassrls OR (m.rolname = ?3 AND r.rolname = ?2)
        OR r.oid = (SELECT nspowner FROM pg_namespace WHERE nspname = 'muster'))
 ORDER BY 1, 2

-- name: owned
SELECT 'SCHEMA', 'muster', pg_get_userbyid(nspowner) FROM pg_namespace
 WHERE nspname = 'muster' AND pg_get_userbyid(nspowner) = ANY(?1::text[])
UNION ALL
SELECT 'TABLE', 'muster.' || relname, pg_get_userbyid(relowner) FROM pg_class
 WHERE relnamespace = 'muster'::regnamespace AND relkind IN ('r', 'p') AND pg_get_userbyid(relowner) = ANY(?1::text[])

-- name: without_rules
SELECT relname FROM pg_class
 WHERE relnamespace = 'muster'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
   AND relname <> 'schema_version' AND NOT (relrowsecurity AND relforcerowsecurity)
 ORDER BY relname

-- name: loose_rules
-- Whatever is not the engine's own shows rows by `muster.workspace_id`, and only shows them.
SELECT c.relname, quote_ident(p.polname)
  FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid AND c.relnamespace = 'muster'::regnamespace
 WHERE p.polpermissive
   AND p.polroles <> ARRAY[(SELECT oid FROM pg_roles WHERE rolname = ?1)]
   AND NOT (p.polroles = ARRAY[(SELECT oid FROM pg_roles WHERE rolname = ?2)] AND p.polcmd = 'r'
            AND pg_get_expr(p.polqual, p.polrelid) LIKE '%muster.workspace_id%')
 ORDER BY 1, 2

-- name: loose_rights
-- Partitions have no rules of their own: only through their table are they read.
SELECT c.relname, string_agg(wanted, ', ')
  FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) wanted
 WHERE c.relnamespace = 'muster'::regnamespace AND c.relkind IN ('r', 'p') AND (c.relispartition OR wanted <> 'SELECT')
   AND has_table_privilege(?1, c.oid, wanted)
 GROUP BY c.relname ORDER BY c.relname

-- name: partitions_missing
SELECT parent || to_char(month, '_YYYY_MM')
  FROM generate_series(date_trunc('month', now() AT TIME ZONE 'UTC'),
                       date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ?1), '1 month') month
 CROSS JOIN unnest(ARRAY['attempts', 'events']) parent
 WHERE to_regclass('muster.' || parent || to_char(month, '_YYYY_MM')) IS NULL
 ORDER BY 1

-- name: unreadable
SELECT quote_ident(relname) FROM pg_class
 WHERE relnamespace = 'muster'::regnamespace AND relkind IN ('r', 'p', 'S')
   AND NOT has_table_privilege(?1, oid, 'SELECT')
 ORDER BY 1
