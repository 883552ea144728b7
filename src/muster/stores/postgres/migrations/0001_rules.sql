-- What goes with the tables: what servers share, numbers, the order of events, partitions, and who sees which rows.

-- How many more tasks may wait before the waiting ones are counted again, by how many may wait at most.
CREATE TABLE room (
    workspace_id bigint NOT NULL,
    most         bigint NOT NULL,
    count        bigint NOT NULL,
    PRIMARY KEY (workspace_id, most)
) WITH (fillfactor = 50);

-- For who has been told that there is as much.
CREATE FUNCTION take_known_room(workspace bigint, wanted bigint, at_most bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE room SET count = count - wanted WHERE workspace_id = workspace AND most = at_most AND count >= wanted;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the room was taken meanwhile' USING ERRCODE = 'MU001';
    END IF;
END $$;

-- Why nothing is written any more, where it is so.
CREATE TABLE halt (
    number smallint PRIMARY KEY CHECK (number = 1),
    reason text NOT NULL
);

-- How far each server has come: what it has acknowledged it remembers, so that a database which is behind that is
-- noticed (S2).  A server has a new name with each start, and a row for each of its connections, as rows that
-- several transactions write at one time would make them wait for each other.
CREATE TABLE marks (
    server  text NOT NULL,
    slot    smallint NOT NULL,
    commits bigint NOT NULL,
    epoch   bigint NOT NULL,
    at_ms   bigint NOT NULL,
    PRIMARY KEY (server, slot)
) WITH (fillfactor = 30);

-- Which life of the store this is: `muster db restored` begins another one, and what was marked before counts no more.
CREATE FUNCTION present_life() RETURNS bigint LANGUAGE sql STABLE AS
    $$ SELECT coalesce((SELECT value::bigint FROM meta WHERE workspace_id = 0 AND name = 'life'), 0) $$;

-- The last words of each transaction that has written: nothing is committed once the store was halted, or by what
-- was decided on in an earlier life.
CREATE FUNCTION mark_commit(of_server text, of_slot integer, number bigint, granted bigint, in_life bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO marks AS m (server, slot, commits, epoch, at_ms)
    VALUES (of_server, of_slot, number, granted, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        ON CONFLICT (server, slot) DO UPDATE
       SET commits = greatest(m.commits, excluded.commits), epoch = greatest(m.epoch, excluded.epoch), at_ms = excluded.at_ms;
    IF EXISTS (SELECT FROM halt) OR present_life() <> in_life THEN
        RAISE EXCEPTION 'the store was halted, or restored, meanwhile' USING ERRCODE = 'MU001';
    END IF;
END $$;

-- So many numbers that nobody is ever given again, growing, the first one not below `lowest`; they are taken
-- whatever becomes of the transaction, which nobody waits for.
CREATE FUNCTION take_ids(wanted bigint, lowest bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE first bigint;
BEGIN
    BEGIN
        PERFORM pg_advisory_lock(1296388948, 1);
        SELECT greatest(last_value + 1, lowest) INTO first FROM ids;
        PERFORM setval('ids', first + wanted - 1);
        PERFORM pg_advisory_unlock(1296388948, 1);
    EXCEPTION WHEN OTHERS OR QUERY_CANCELED THEN  -- OTHERS leaves that out; the session would keep the lock
        PERFORM pg_advisory_unlock(1296388948, 1);
        RAISE;
    END;
    RETURN first;
END $$;

-- Holds tasks, and what waits for those of them that may end, in the order of their numbers.
CREATE FUNCTION hold_tasks(wanted bigint[], ending bigint[], workspace bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    waiting bigint[];
    later bigint[];
BEGIN
    IF cardinality(ending) > 0 THEN
        SELECT array_agg(child_id) INTO waiting FROM dependencies WHERE parent_id = ANY(ending) AND met = 0;
    END IF;
    PERFORM FROM tasks WHERE id = ANY(wanted || waiting) AND workspace_id = workspace ORDER BY id FOR NO KEY UPDATE;
    -- Whoever held a parent until now may have been given one more child.
    IF cardinality(ending) > 0 THEN
        SELECT array_agg(child_id) INTO later FROM dependencies
         WHERE parent_id = ANY(ending) AND met = 0 AND child_id <> ALL(coalesce(waiting, '{}'));
    END IF;
    IF later IS NOT NULL THEN
        PERFORM FROM tasks WHERE id = ANY(later) AND workspace_id = workspace ORDER BY id FOR NO KEY UPDATE;
    END IF;
END $$;

-- Ids of events are given before their transaction commits, so a higher one may be seen before a lower one, and who
-- reads on after it would miss that.  Each writer therefore holds a lock that names the last id before its own
-- (`mark_events`), and readers stop at the lowest one that is held (`settled_event_id`): they look first at the
-- last id, then at the locks, and only then, by a statement of its own, at the events.
CREATE FUNCTION mark_events(added bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE last bigint;
BEGIN
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END INTO last FROM event_ids;
    PERFORM pg_advisory_xact_lock_shared((1297437524::bigint << 32) | (last & 4294967295));
    UPDATE event_tally SET count = count + added WHERE part = pg_backend_pid() % 64;
END $$;
CREATE FUNCTION settled_event_id() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE last bigint; marked bigint;
BEGIN
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END INTO last FROM event_ids;
    -- A lock shows the lower half of an id only; those that are held are not far from the last one.
    SELECT min(last - (((last & 4294967295) - objid::bigint) & 4294967295)) INTO marked FROM pg_locks
     WHERE locktype = 'advisory' AND classid = 1297437524 AND objsubid = 1
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(last, coalesce(marked, last));
END $$;

-- Events and attempts stand in a partition for each month of their task's number, which tells when it was added
-- (model.numbers.Ids); older ones, and those of no task, in the first.  They are made months ahead; what comes
-- without one, as from a clock that was far ahead, stands in the last, until its month is made.  `since`: the month
-- that the first ends before, where there is none yet.
CREATE TABLE attempts_later PARTITION OF attempts DEFAULT WITH (fillfactor = 70);
CREATE TABLE events_later PARTITION OF events DEFAULT;
CREATE FUNCTION move_strays(parent text, name text, settings text, lower_id bigint, upper_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = muster, pg_temp AS $$
DECLARE later text := parent || '_later';
BEGIN
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', later);
    EXECUTE format('ALTER TABLE %I DISABLE TRIGGER USER', later);  -- nothing is deleted: each row is moved
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)%s', name, parent, settings);
    EXECUTE format('WITH strays AS (DELETE FROM %I WHERE task_id >= %s AND task_id < %s RETURNING *) '
                   'INSERT INTO %I SELECT * FROM strays', later, lower_id, upper_id, name);
    EXECUTE format('ALTER TABLE %I ENABLE TRIGGER USER', later);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                   parent, name, lower_id, upper_id);
END $$;
CREATE FUNCTION first_id_of(moment timestamp) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT ((extract(epoch FROM moment) * 1000)::bigint - 1735689600000) << 12 $$;
CREATE FUNCTION make_partitions(ahead integer, since timestamp DEFAULT now() AT TIME ZONE 'UTC') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = muster, pg_temp AS $$
DECLARE
    present timestamp := date_trunc('month', now() AT TIME ZONE 'UTC');
    month timestamp := least(date_trunc('month', since), present);
    made integer := 0;
    parent text;
    settings text;
    lower_id bigint;
    upper_id bigint;
    name text;
    strays boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(1296388948, 2);
    WHILE month <= present + make_interval(months => ahead) LOOP
        lower_id := first_id_of(month);
        upper_id := first_id_of(month + interval '1 month');
        FOREACH parent IN ARRAY ARRAY['attempts', 'events'] LOOP
            settings := CASE parent WHEN 'attempts' THEN ' WITH (fillfactor = 70)' ELSE '' END;
            IF to_regclass(parent || '_before') IS NULL THEN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (MINVALUE) TO (%s)%s',
                               parent || '_before', parent, lower_id, settings);
                EXECUTE format('GRANT SELECT ON %I TO muster_engine', parent || '_before');
            END IF;
            name := parent || to_char(month, '_YYYY_MM');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE task_id >= %s AND task_id < %s)',
                           parent || '_later', lower_id, upper_id) INTO strays;
            IF strays THEN
                PERFORM move_strays(parent, name, settings, lower_id, upper_id);
            ELSE
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s)%s',
                               name, parent, lower_id, upper_id, settings);
            END IF;
            EXECUTE format('GRANT SELECT ON %I TO muster_engine', name);
            made := made + 1;
        END LOOP;
        month := month + interval '1 month';
    END LOOP;
    RETURN made;
END $$;
SELECT make_partitions(3);

-- Events of months that are over stay after their range was pruned until all of their month was, and go with its
-- partition.  Where some of a month are kept for long, as those of a task that lives on, the others go row by row.
CREATE FUNCTION past_months() RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{4}_[0-9]{2}$'
       AND to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month' <= now() AT TIME ZONE 'UTC'
     ORDER BY 1
$$;
-- The last event of the workspace's that is in a pruned range; seals are pruned the oldest first.
CREATE FUNCTION pruned_to(workspace bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT max(to_id) FROM seals
     WHERE workspace_id = workspace AND pruned_at_ms IS NOT NULL
       AND to_id < coalesce((SELECT min(to_id) FROM seals WHERE workspace_id = workspace AND pruned_at_ms IS NULL),
                            9223372036854775807)
$$;
CREATE FUNCTION next_workspace(month text, after bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    EXECUTE format('SELECT min(workspace_id) FROM %I WHERE workspace_id > $1', month) INTO found USING after;
    RETURN found;
END $$;
CREATE FUNCTION all_pruned(month text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE workspace bigint := next_workspace(month, -1); last bigint;
BEGIN
    WHILE workspace IS NOT NULL LOOP
        EXECUTE format('SELECT max(id) FROM %I WHERE workspace_id = $1', month) INTO last USING workspace;
        IF last > coalesce(pruned_to(workspace), 0) THEN
            RETURN false;
        END IF;
        workspace := next_workspace(month, workspace);
    END LOOP;
    RETURN true;
END $$;
-- Whoever writes waits while this waits for its locks, so it gives up soon: call it again.
CREATE FUNCTION drop_month(month text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = muster, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    ALTER TABLE seals NO FORCE ROW LEVEL SECURITY;  -- for the owner, and until the end of this transaction
    LOCK TABLE ONLY events IN ACCESS EXCLUSIVE MODE;
    IF month NOT IN (SELECT past_months()) OR NOT all_pruned(month) THEN
        ALTER TABLE seals FORCE ROW LEVEL SECURITY;
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I', month);
    ALTER TABLE seals FORCE ROW LEVEL SECURITY;
    RETURN true;
END $$;
CREATE FUNCTION prune_mixed_month(month text, most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    workspace bigint := next_workspace(month, -1);
    waited_to timestamp := to_date(right(month, 7), 'YYYY_MM') + interval '2 months';
    gone bigint := 0;
    page bigint;
BEGIN
    WHILE workspace IS NOT NULL LOOP
        IF (SELECT at_ms FROM seals WHERE to_id = pruned_to(workspace)) >= extract(epoch FROM waited_to) * 1000 THEN
            EXECUTE format('WITH old AS (SELECT task_id, seq FROM %I WHERE workspace_id = $1 AND id <= $2 LIMIT $3) '
                           'DELETE FROM events e USING old WHERE e.task_id = old.task_id AND e.seq = old.seq', month)
              USING workspace, pruned_to(workspace), most;
            GET DIAGNOSTICS page = ROW_COUNT;
            gone := gone + page;
        END IF;
        workspace := next_workspace(month, workspace);
    END LOOP;
    RETURN gone;
END $$;

-- Frozen between two messages of one statement a server counts as active: idle_in_transaction_session_timeout does
-- not end it.  Where servers log in as several roles, those of the owner's are ended.
CREATE FUNCTION end_frozen(still interval) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'muster' AND state = 'active'
       AND wait_event = 'ClientRead' AND xact_start IS NOT NULL AND state_change < clock_timestamp() - still
       AND pg_has_role(usesysid, 'USAGE')
$$;

-- S13: `muster_query` sees the rows of the workspace that its transaction has named, and none where it has named
-- none; `muster_engine` sees all, as it carries out what any workspace asks.  Neither owns anything, and the rules
-- hold for the owner as well.
GRANT USAGE ON SCHEMA muster TO muster_engine, muster_query;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA muster TO muster_engine;
GRANT SELECT ON ALL TABLES IN SCHEMA muster TO muster_query;
REVOKE ALL ON marks FROM muster_query;
GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA muster TO muster_engine;
GRANT SELECT ON SEQUENCE event_ids TO muster_query;
REVOKE UPDATE ON events FROM muster_engine;
REVOKE DELETE ON seals FROM muster_engine;
REVOKE INSERT, UPDATE, DELETE ON schema_version FROM muster_engine;
REVOKE ALL ON event_tally, room, halt, idempotency, schema_version FROM muster_query;
REVOKE ALL ON FUNCTION make_partitions, move_strays, past_months, pruned_to, next_workspace, all_pruned, drop_month,
    prune_mixed_month, end_frozen FROM PUBLIC;
GRANT EXECUTE ON FUNCTION make_partitions, past_months, pruned_to, next_workspace, all_pruned, drop_month,
    prune_mixed_month, end_frozen TO muster_engine;
DO $$
DECLARE own record;
BEGIN
    FOR own IN SELECT c.relname, c.relispartition,
                      CASE c.relname WHEN 'workspaces' THEN 'id' ELSE a.attname END AS whose
                 FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace_id'
                WHERE c.relnamespace = 'muster'::regnamespace AND c.relkind IN ('r', 'p')
                  AND c.relname <> 'schema_version' LOOP
        IF own.relispartition THEN  -- it is reached by its table, whose rules hold then; a backup reads it alone
            EXECUTE format('REVOKE ALL ON %I FROM muster_engine, muster_query', own.relname);
            EXECUTE format('GRANT SELECT ON %I TO muster_engine', own.relname);
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', own.relname);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', own.relname);
        EXECUTE format('CREATE POLICY engine ON %I TO muster_engine USING (true) WITH CHECK (true)', own.relname);
        IF own.whose IS NOT NULL THEN
            EXECUTE format('CREATE POLICY query ON %I FOR SELECT TO muster_query USING '
                           '(%I = (SELECT nullif(current_setting(%L, true), %L)::bigint))',
                           own.relname, own.whose, 'muster.workspace_id', '');
        END IF;
    END LOOP;
END $$;
