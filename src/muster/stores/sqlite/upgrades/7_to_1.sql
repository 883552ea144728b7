-- What a store of schema 7 holds, as schema 1 of the first release has it.  `old` is that store; main has the tables.
-- :folder is the project's, :now_ms the time, :kept where the old file is kept.

INSERT OR REPLACE INTO main.meta (workspace_id, name, value)
SELECT iif(name IN ('incarnation', 'epoch_base', 'clock', 'term', 'store_events'), 0, 1), name, value FROM old.meta
UNION ALL
-- The name that another copy of it would be given as well.
SELECT 0, 'store', value FROM old.meta WHERE name = 'incarnation';

-- A plan's file is known by where it is in the project.
INSERT INTO main.plans (id, workspace_id, name, source, created_at_ms, ticked_event_id, failures, paused_reason,
                        event_seq, task_order)
SELECT id, workspace_id, name, iif(substr(source, 1, length(:folder) + 1) = :folder || '/',
                                   substr(source, length(:folder) + 2), source),
       created_at_ms, ticked_event_id, failures, paused_reason, event_seq, ''
  FROM old.plans;

INSERT INTO main.lanes (id, workspace_id, plan_id, agent, capabilities, profile, limit_key)
SELECT id, workspace_id, plan_id, agent, capabilities, profile, limit_key FROM old.lanes;

INSERT INTO main.tasks (
    id, workspace_id, plan_id, lane_id, status, generation, epoch, event_seq, priority, sort_key, unmet,
    next_attempt_at_ms, timeout_s, timeout_factor, max_retries, retries, losses, percent, step, error_kind, error, note,
    paused_reason, question, pinned_agent, pinned_until_ms, expires_at_ms, overdue_at_ms, fresh_after_epoch, on_failed,
    limit_key, updated_at_ms, started_at_ms, ended_at_ms, lingering_epoch, estimated_s, done_epoch, skipped, rounds,
    sent_back, touches, accepted, wish, verdicts, is_group, retry_backoff_s, key, title, description, model,
    system_prompt, agent, capabilities, profile, tags, metadata, input_context, input_sealed, parent_task_id,
    check_command, review, changes, epic, feature, created_by, created_at_ms, not_before_ms, not_after_ms, target,
    from_file, result, summary)
SELECT
    id, workspace_id, plan_id, lane_id, status, generation, epoch, event_seq, priority, sort_key, unmet,
    next_attempt_at_ms, timeout_s, timeout_factor, max_retries, retries, losses, percent, step, error_kind, error, note,
    paused_reason, question, aim, aim_until_ms, expires_at_ms, overdue_at_ms, fresh_after_epoch, on_failed,
    limit_key, updated_at_ms, started_at_ms, ended_at_ms, lingering_epoch, estimated_s, NULL,
    -- Its children went on behind it.
    status IN ('CANCELLED', 'ARCHIVED') AND error_kind IS NULL AND error LIKE 'skipped%', 0,
    '', '', NULL, '', '', 0, NULL, key, title, description, NULL,
    '', agent, capabilities, profile, tags, metadata, '{}', '', parent_task_id,
    '', '', '', epic, feature, created_by, created_at_ms, not_before_ms, not_after_ms, target,
    EXISTS (SELECT 1 FROM old.events e WHERE e.task_id = t.id AND e.seq = 1 AND e.details = '{"file":true}'), result, ''
  FROM old.tasks t;

INSERT INTO main.dependencies (parent_id, child_id, met, workspace_id)
SELECT parent_id, child_id, met, 1 FROM old.dependencies;

INSERT INTO main.attempts (
    task_id, epoch, generation, status, worker_id, agent, request_id, boot_id, lease_ms, lease_until_ms,
    assigned_at_ms, started_at_ms, ended_at_ms, session_key, token_hash, stop_action, stop_by_ms, error_kind, error,
    tree_killed, exit_code, declared_kind, declared, checkpoints, log_bytes, notice, noticed_mono_ms, checkpoint_taken,
    usage, session_usage, intent, refused, live_diff, remark, summary, holder, workspace_id)
SELECT
    task_id, epoch, generation, status, worker_id, agent, request_id, boot_id, lease_ms, lease_until_ms,
    assigned_at_ms, started_at_ms, ended_at_ms, session_key, token_hash, stop_action, stop_by_ms, error_kind, error,
    tree_killed, exit_code, declared_kind, declared, checkpoints, log_bytes, notice, noticed_mono_ms, checkpoint_taken,
    usage, session_usage, '', '', '', '', '', '', 1
  FROM old.attempts;

INSERT INTO main.seals (to_id, workspace_id, from_id, count, at_ms, key_id, previous, marks_digest, head, marks,
                        pruned_at_ms, pruned_proof)
SELECT to_id, 1, from_id, count, at_ms, key_id, previous, marks_digest, head, marks, pruned_at_ms, pruned_proof
  FROM old.seals;

-- What their marks were made of stays as it is.
INSERT INTO main.events (id, workspace_id, task_id, seq, at_ms, level, event, message, details, previous_status,
                         new_status, generation, epoch, actor, subject)
SELECT id, 1, task_id, seq, at_ms, level, event, message, details, previous_status,
       new_status, generation, epoch, actor, ''
  FROM old.events;

-- What they stand for was hashed from other fields: see engine.enqueue.
INSERT INTO main.idempotency (workspace_id, key, body_hash, task_id, created_at_ms)
SELECT workspace_id, key, '', task_id, created_at_ms FROM old.idempotency;

INSERT INTO main.checkpoints (task_id, epoch, workspace_id, number, created_at_ms, data)
SELECT task_id, epoch, 1, number, created_at_ms, data FROM old.checkpoints;

INSERT INTO main.artifacts (task_id, epoch, workspace_id, name, location, created_at_ms)
SELECT task_id, epoch, 1, name, location, created_at_ms FROM old.artifacts;

-- Their order is that in which they came.
INSERT INTO main.logs (rowid, task_id, epoch, workspace_id, stream, offset, at_ms, data)
SELECT rowid, task_id, epoch, 1, stream, offset, at_ms, data FROM old.logs ORDER BY rowid;

INSERT INTO main.workers (
    id, workspace_id, hostname, pid, pid_start, boot_id, slots, agents, general, offers, unfit, lacking, status,
    registered_at_ms, last_seen_at_ms, heard_mono_ms, ended_at_ms, permanent, reason, name, capabilities, metadata,
    spoken_by)
SELECT
    id, 1, hostname, pid, pid_start, boot_id, slots, agents, general, offers, unfit, '{}', status,
    registered_at_ms, last_seen_at_ms, heard_mono_ms, ended_at_ms, for_good, reason, NULL, '[]', '{}', ''
  FROM old.workers;

-- Numbers that were ever given, also of what was pruned since.
DELETE FROM main.sqlite_sequence WHERE name = 'events';
INSERT INTO main.sqlite_sequence (name, seq) SELECT name, seq FROM old.sqlite_sequence WHERE name = 'events';
UPDATE main.sqlite_sequence SET seq = 1 WHERE name = 'commits';
UPDATE main.sqlite_sequence
   SET seq = max((SELECT coalesce(max(epoch), 0) FROM old.tasks), (SELECT coalesce(max(epoch), 0) FROM old.attempts))
 WHERE name = 'epochs';

-- The store's own next event.
INSERT INTO main.meta (workspace_id, name, value) VALUES (0, 'store_events', '1')
    ON CONFLICT (workspace_id, name) DO UPDATE SET value = CAST(value AS INTEGER) + 1;
INSERT INTO main.events (workspace_id, task_id, seq, at_ms, level, event, message, details, previous_status,
                         new_status, generation, epoch, actor, subject)
SELECT 1, 0, CAST(value AS INTEGER), :now_ms, 'WARN', 'store_upgraded',
       'the store was upgraded from schema 7, with ' || (SELECT count(*) FROM old.tasks) || ' tasks and '
       || (SELECT count(*) FROM old.events) || ' events; as it was it is kept in ' || :kept,
       json_object('schema', 7, 'tasks', (SELECT count(*) FROM old.tasks), 'events', (SELECT count(*) FROM old.events),
                   'seals', (SELECT count(*) FROM old.seals),
                   'head', (SELECT head FROM old.seals ORDER BY to_id DESC LIMIT 1)),
       iif(value = '1', NULL, 'PENDING'), 'PENDING', 1, 0, 'coordinator', ''
  FROM main.meta WHERE workspace_id = 0 AND name = 'store_events';
