-- Times are Unix milliseconds unless the name says otherwise; `lease_until_ms` and `stop_by_ms` are on the
-- monotonic clock of `boot_id`.  Checks on hot columns are chains of OR: for IN, SQLite builds a table at each write,
-- which took half of an update's time.  No foreign keys on hot tables: the engine writes both sides in one transaction.
-- `ready`, `done` and `dead` are the properties of the same names of model.task.Task; no statement says them again.

-- Tenants.  Every other table says which one a row belongs to; 0 stands for the store itself.  Indexes of all tasks and
-- all events by workspace come with the second one (sql/store.sql): each write would pay for them, and find nothing by them.
CREATE TABLE workspaces (
    id            INTEGER PRIMARY KEY CHECK (id >= 1),
    name          TEXT NOT NULL UNIQUE,
    created_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO workspaces (id, name, created_at_ms) VALUES (1, 'default', 0);

CREATE TABLE members (
    workspace_id  INTEGER NOT NULL,
    name          TEXT NOT NULL,
    role          TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id              INTEGER PRIMARY KEY,
    workspace_id    INTEGER NOT NULL,
    name            TEXT NOT NULL,
    member          TEXT NOT NULL,
    role            TEXT NOT NULL,
    scopes          TEXT NOT NULL,
    created_by      TEXT NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    expires_at_ms   INTEGER,
    revoked_at_ms   INTEGER,
    last_used_at_ms INTEGER,
    token_hash      TEXT NOT NULL UNIQUE
) STRICT;
CREATE INDEX tokens_workspace ON tokens (workspace_id);

-- What is told to others of what happens here: see model.webhooks.
CREATE TABLE webhooks (
    id                   INTEGER PRIMARY KEY,
    workspace_id         INTEGER NOT NULL,
    url                  TEXT NOT NULL,
    kinds                TEXT NOT NULL,
    created_by           TEXT NOT NULL,
    created_at_ms        INTEGER NOT NULL,
    failures             INTEGER NOT NULL,
    last_delivered_at_ms INTEGER,
    disabled             TEXT NOT NULL,
    channel              TEXT NOT NULL,
    matters              TEXT NOT NULL,
    sealed               TEXT NOT NULL
) STRICT;

-- What agents are given in their environment: see model.secrets.
CREATE TABLE secrets (
    workspace_id INTEGER NOT NULL,
    name         TEXT NOT NULL,
    set_by       TEXT NOT NULL,
    set_at_ms    INTEGER NOT NULL,
    sealed       TEXT NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;

-- Written with the move that a message tells of.
CREATE TABLE outbox (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id    INTEGER NOT NULL,
    webhook_id      INTEGER NOT NULL,
    message_id      TEXT NOT NULL,
    kind            TEXT NOT NULL,
    subject         TEXT NOT NULL,
    body            TEXT NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    tries           INTEGER NOT NULL,
    next_at_ms      INTEGER,
    delivered_at_ms INTEGER,
    said            TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_webhook ON outbox (webhook_id, id);
CREATE INDEX outbox_waiting ON outbox (webhook_id, subject, id) WHERE next_at_ms IS NOT NULL;
CREATE INDEX outbox_due ON outbox (webhook_id, next_at_ms) WHERE next_at_ms IS NOT NULL;
CREATE INDEX outbox_age ON outbox (created_at_ms);

CREATE TABLE meta (
    workspace_id INTEGER NOT NULL,
    name         TEXT NOT NULL,
    value        TEXT NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;
-- S2: whoever proves an epoch names the incarnation of the store that granted it.
-- `store` is its name for ever, which copies share.
INSERT INTO meta (workspace_id, name, value)
VALUES (0, 'incarnation', lower(hex(randomblob(8)))), (0, 'store', lower(hex(randomblob(8))));

CREATE TABLE plans (
    id              INTEGER PRIMARY KEY,
    workspace_id    INTEGER NOT NULL,
    name            TEXT NOT NULL,
    source          TEXT,
    created_at_ms   INTEGER NOT NULL,
    ticked_event_id INTEGER NOT NULL,
    failures        INTEGER NOT NULL,
    paused_reason   TEXT,
    event_seq       INTEGER NOT NULL,
    task_order      TEXT NOT NULL,
    UNIQUE (workspace_id, name)
) STRICT;
CREATE UNIQUE INDEX plans_source ON plans (workspace_id, source) WHERE source IS NOT NULL;
CREATE INDEX plans_paused ON plans (id) WHERE paused_reason IS NOT NULL;

-- What is kept of a plan's file: see model.plan_sync.SyncState.
CREATE TABLE plan_sync (
    plan_id INTEGER PRIMARY KEY,
    workspace_id INTEGER NOT NULL,
    state   TEXT NOT NULL
) STRICT;

CREATE TABLE lanes (
    id           INTEGER PRIMARY KEY,
    workspace_id INTEGER NOT NULL,
    plan_id      INTEGER NOT NULL,
    agent        TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    profile      TEXT NOT NULL,
    limit_key    TEXT NOT NULL,
    UNIQUE (workspace_id, plan_id, agent, capabilities, profile, limit_key)
) STRICT;

CREATE TABLE tasks (
    id                 INTEGER PRIMARY KEY,
    workspace_id       INTEGER NOT NULL,
    plan_id            INTEGER,
    lane_id            INTEGER NOT NULL,
    status             TEXT NOT NULL CHECK (
        status = 'PENDING' OR status = 'ASSIGNED' OR status = 'RUNNING' OR status = 'COMPLETED' OR status = 'PAUSED'
        OR status = 'FAILED' OR status = 'ABORTED' OR status = 'CANCELLED' OR status = 'ARCHIVED'),
    generation         INTEGER NOT NULL CHECK (generation >= 1),
    epoch              INTEGER NOT NULL CHECK (epoch >= 0),
    event_seq          INTEGER NOT NULL CHECK (event_seq >= 1),
    priority           INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 10),
    sort_key           INTEGER NOT NULL,
    unmet              INTEGER NOT NULL CHECK (unmet >= 0),
    next_attempt_at_ms INTEGER,
    timeout_s          INTEGER NOT NULL,
    timeout_factor     INTEGER NOT NULL,
    max_retries        INTEGER NOT NULL,
    retries            INTEGER NOT NULL,
    losses             INTEGER NOT NULL,
    percent            INTEGER NOT NULL CHECK (percent BETWEEN 0 AND 100),
    step               TEXT NOT NULL,
    error_kind         TEXT,
    error              TEXT NOT NULL,
    note               TEXT NOT NULL,
    paused_reason      TEXT,
    question           TEXT NOT NULL,
    pinned_agent                TEXT,
    pinned_until_ms       INTEGER,
    expires_at_ms      INTEGER,
    overdue_at_ms      INTEGER,
    fresh_after_epoch  INTEGER NOT NULL,
    on_failed          TEXT NOT NULL CHECK (on_failed = 'block' OR on_failed = 'skip' OR on_failed = 'run'),
    limit_key          TEXT,
    updated_at_ms      INTEGER NOT NULL,
    started_at_ms      INTEGER,
    ended_at_ms        INTEGER,
    lingering_epoch    INTEGER,
    estimated_s        INTEGER,
    done_epoch         INTEGER,
    skipped            INTEGER NOT NULL CHECK (skipped IN (0, 1)),
    rounds             INTEGER NOT NULL,
    sent_back          TEXT NOT NULL,
    touches            TEXT NOT NULL,
    accepted           INTEGER,
    wish               TEXT NOT NULL,
    verdicts           TEXT NOT NULL,
    is_group           INTEGER NOT NULL CHECK (is_group IN (0, 1)),
    retry_backoff_s    INTEGER,
    key                TEXT,
    title              TEXT NOT NULL,
    description        TEXT NOT NULL,
    model              TEXT,
    system_prompt      TEXT NOT NULL,
    agent              TEXT,
    capabilities       TEXT NOT NULL,
    profile            TEXT,
    tags               TEXT NOT NULL,
    metadata           TEXT NOT NULL,
    input_context      TEXT NOT NULL,
    input_sealed       TEXT NOT NULL,
    parent_task_id     INTEGER,
    check_command      TEXT NOT NULL,
    review             TEXT NOT NULL,
    changes            TEXT NOT NULL,
    epic               TEXT NOT NULL,
    feature            TEXT NOT NULL,
    created_by         TEXT NOT NULL,
    created_at_ms      INTEGER NOT NULL,
    not_before_ms      INTEGER,
    not_after_ms       INTEGER,
    target             TEXT,
    from_file          INTEGER NOT NULL CHECK (from_file IN (0, 1)),
    result             TEXT,
    summary            TEXT NOT NULL DEFAULT '',
    ready              INTEGER NOT NULL GENERATED ALWAYS AS (
        status = 'PENDING' AND unmet = 0 AND next_attempt_at_ms IS NULL AND lingering_epoch IS NULL AND is_group = 0) VIRTUAL,
    half_done          INTEGER NOT NULL GENERATED ALWAYS AS (error_kind IS 'lost' OR error_kind IS 'rework' OR done_epoch IS NOT NULL) VIRTUAL,
    done               INTEGER NOT NULL GENERATED ALWAYS AS (
        status = 'COMPLETED' OR skipped OR (status = 'ARCHIVED' AND error_kind IS NULL AND error = '')) VIRTUAL,
    dead               INTEGER NOT NULL GENERATED ALWAYS AS (
        (status = 'FAILED' OR status = 'CANCELLED' OR status = 'ARCHIVED') AND NOT done) VIRTUAL,
    calls              INTEGER NOT NULL GENERATED ALWAYS AS (
        status = 'FAILED' OR (status = 'PAUSED' AND coalesce(paused_reason, '') NOT IN ('user', 'hand', 'edit', 'file'))) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX tasks_key ON tasks (plan_id, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_ready ON tasks (workspace_id, lane_id, half_done DESC, priority DESC, sort_key, id) WHERE ready = 1;
CREATE INDEX tasks_due ON tasks (next_attempt_at_ms) WHERE next_attempt_at_ms IS NOT NULL;
CREATE INDEX tasks_expiry ON tasks (expires_at_ms)
    WHERE expires_at_ms IS NOT NULL AND status IN ('PENDING', 'ABORTED');
CREATE INDEX tasks_aim ON tasks (pinned_until_ms) WHERE pinned_until_ms IS NOT NULL;
CREATE INDEX tasks_overdue ON tasks (overdue_at_ms) WHERE overdue_at_ms IS NOT NULL AND status = 'RUNNING';
CREATE INDEX tasks_parent ON tasks (parent_task_id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX tasks_title ON tasks (title) WHERE from_file = 1 AND is_group = 0;
CREATE INDEX tasks_counts ON tasks (plan_id, status) WHERE is_group = 0;
CREATE INDEX tasks_touching ON tasks (id) WHERE touches <> '' AND (status = 'ASSIGNED' OR status = 'RUNNING');
CREATE INDEX tasks_sealed ON tasks (id) WHERE input_sealed <> '';
CREATE INDEX tasks_calling ON tasks (workspace_id, status, id) WHERE calls = 1;
CREATE INDEX tasks_dead ON tasks (workspace_id, id) WHERE dead = 1;
CREATE INDEX tasks_lingering ON tasks (id) WHERE lingering_epoch IS NOT NULL;

-- What tasks are, or were, called in their plan's file, where that is not their key.
CREATE TABLE boxes (
    plan_id INTEGER NOT NULL,
    key     TEXT NOT NULL,
    task_id INTEGER NOT NULL,
    workspace_id INTEGER NOT NULL,
    current INTEGER NOT NULL CHECK (current IN (0, 1)),
    PRIMARY KEY (plan_id, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX boxes_task ON boxes (task_id) WHERE current = 1;

CREATE TABLE dependencies (
    parent_id INTEGER NOT NULL,
    child_id  INTEGER NOT NULL,
    met       INTEGER NOT NULL CHECK (met IN (0, 1)),
    workspace_id INTEGER NOT NULL,
    PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_child ON dependencies (child_id);

-- S1: (task, epoch) is granted once, and a task has at most one open attempt.
CREATE TABLE attempts (
    task_id          INTEGER NOT NULL,
    epoch            INTEGER NOT NULL CHECK (epoch >= 1),
    generation       INTEGER NOT NULL,
    status           TEXT NOT NULL CHECK (
        status = 'assigned' OR status = 'running' OR status = 'stopping' OR status = 'completed' OR status = 'failed'
        OR status = 'lost' OR status = 'released' OR status = 'cancelled'),
    worker_id        TEXT NOT NULL,
    agent            TEXT NOT NULL,
    request_id       TEXT NOT NULL,
    boot_id          TEXT NOT NULL,
    lease_ms         INTEGER NOT NULL,
    lease_until_ms   INTEGER NOT NULL,
    assigned_at_ms   INTEGER NOT NULL,
    started_at_ms    INTEGER,
    ended_at_ms      INTEGER,
    session_key      TEXT,
    token_hash       TEXT,
    stop_action      TEXT,
    stop_by_ms       INTEGER,
    error_kind       TEXT,
    error            TEXT NOT NULL,
    tree_killed      INTEGER NOT NULL CHECK (tree_killed IN (0, 1)),
    exit_code        INTEGER,
    declared_kind    TEXT,
    declared         TEXT,
    checkpoints      INTEGER NOT NULL,
    log_bytes        INTEGER NOT NULL,
    notice           TEXT NOT NULL,
    noticed_mono_ms  INTEGER,
    checkpoint_taken TEXT NOT NULL,
    usage            TEXT,
    session_usage    TEXT,
    intent           TEXT NOT NULL,
    refused          TEXT NOT NULL,
    live_diff        TEXT NOT NULL,
    remark           TEXT NOT NULL,
    summary          TEXT NOT NULL,
    holder           TEXT NOT NULL,
    workspace_id INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch),
    CHECK ((ended_at_ms IS NULL) = (status = 'assigned' OR status = 'running' OR status = 'stopping'))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX attempts_open ON attempts (task_id) WHERE ended_at_ms IS NULL;
CREATE INDEX attempts_held ON attempts (worker_id) WHERE ended_at_ms IS NULL;
CREATE INDEX attempts_changing ON attempts (task_id) WHERE live_diff <> '' AND ended_at_ms IS NULL;
CREATE INDEX attempts_refused ON attempts (task_id) WHERE refused <> '';

-- S7: events are never changed, and a task's numbers have no duplicates (the engine makes no gaps).
CREATE TABLE events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL,
    task_id         INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    at_ms           INTEGER NOT NULL,
    level           TEXT NOT NULL,
    event           TEXT NOT NULL,
    message         TEXT NOT NULL,
    details         TEXT NOT NULL,
    previous_status TEXT,
    new_status      TEXT NOT NULL,
    generation      INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    actor           TEXT NOT NULL,
    subject         TEXT NOT NULL
) STRICT;
-- S2: how many commits there were, and the highest epoch that was granted.  They stand beside the events' own counter,
-- because nearly every commit writes that page anyway.
INSERT INTO sqlite_sequence (name, seq) VALUES ('commits', 0), ('epochs', 0);
CREATE UNIQUE INDEX events_task ON events (task_id, seq);
CREATE INDEX events_subject ON events (workspace_id) WHERE subject <> '';
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN
    SELECT raise(ABORT, 'events are never changed');
END;

-- S7: signed ranges of events.  A pruned one stays as a stub, and only its events may be deleted.
CREATE TABLE seals (
    to_id        INTEGER PRIMARY KEY,
    workspace_id INTEGER NOT NULL,
    from_id      INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    at_ms        INTEGER NOT NULL,
    key_id       TEXT NOT NULL,
    previous     TEXT NOT NULL,
    marks_digest TEXT NOT NULL,
    head         TEXT NOT NULL,
    marks        BLOB NOT NULL,
    pruned_at_ms INTEGER,
    pruned_proof TEXT NOT NULL
) STRICT;
CREATE INDEX seals_workspace ON seals (workspace_id, to_id);
CREATE INDEX seals_kept ON seals (workspace_id, to_id) WHERE pruned_at_ms IS NULL;
CREATE TRIGGER seals_no_delete BEFORE DELETE ON seals
BEGIN
    SELECT raise(ABORT, 'seals are never deleted');
END;
CREATE TRIGGER seals_no_update BEFORE UPDATE ON seals
WHEN OLD.pruned_at_ms IS NOT NULL OR NEW.pruned_at_ms IS NULL
  OR (NEW.to_id, NEW.workspace_id, NEW.from_id, NEW.count, NEW.at_ms, NEW.key_id, NEW.previous, NEW.marks_digest, NEW.head)
     IS NOT (OLD.to_id, OLD.workspace_id, OLD.from_id, OLD.count, OLD.at_ms, OLD.key_id, OLD.previous, OLD.marks_digest, OLD.head)
BEGIN
    SELECT raise(ABORT, 'seals are never changed');
END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM seals
                  WHERE to_id = (SELECT min(to_id) FROM seals WHERE workspace_id = OLD.workspace_id AND to_id >= OLD.id)
                    AND from_id <= OLD.id AND pruned_at_ms IS NOT NULL)
BEGIN
    SELECT raise(ABORT, 'events are never deleted');
END;

CREATE TABLE idempotency (
    workspace_id  INTEGER NOT NULL,
    key           TEXT NOT NULL,
    body_hash     TEXT NOT NULL,
    task_id       INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (created_at_ms);

CREATE TABLE checkpoints (
    task_id       INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    workspace_id INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    data          BLOB NOT NULL,
    PRIMARY KEY (task_id, epoch, number)
) STRICT;
CREATE INDEX checkpoints_age ON checkpoints (created_at_ms);

CREATE TABLE artifacts (
    task_id       INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    workspace_id INTEGER NOT NULL,
    name          TEXT NOT NULL,
    location      TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch, name)
) STRICT;

CREATE TABLE logs (
    task_id INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    workspace_id INTEGER NOT NULL,
    stream  TEXT NOT NULL,
    offset  INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (task_id, epoch, stream, offset)
) STRICT;

CREATE TABLE workers (
    id               TEXT PRIMARY KEY,
    workspace_id INTEGER NOT NULL,
    hostname         TEXT NOT NULL,
    pid              INTEGER NOT NULL,
    pid_start        INTEGER NOT NULL,
    boot_id          TEXT NOT NULL,
    slots            INTEGER NOT NULL,
    agents           TEXT NOT NULL,
    general          TEXT NOT NULL,
    offers           TEXT NOT NULL,
    unfit            TEXT NOT NULL,
    lacking          TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('starting', 'idle', 'busy', 'stopping', 'dead')),
    registered_at_ms INTEGER NOT NULL,
    last_seen_at_ms  INTEGER NOT NULL,
    heard_mono_ms    INTEGER NOT NULL,
    ended_at_ms      INTEGER,
    permanent         INTEGER NOT NULL CHECK (permanent IN (0, 1)),
    reason           TEXT NOT NULL,
    name             TEXT,
    capabilities     TEXT NOT NULL,
    metadata         TEXT NOT NULL,
    spoken_by        TEXT NOT NULL
) STRICT;
CREATE INDEX workers_living ON workers (status) WHERE ended_at_ms IS NULL;

-- What agents there are, or were: see model.agents.
CREATE TABLE agents (
    workspace_id        INTEGER NOT NULL,
    name                TEXT NOT NULL,
    label               TEXT NOT NULL,
    model               TEXT NOT NULL,
    capabilities        TEXT NOT NULL,
    profiles            TEXT NOT NULL,
    slots               INTEGER NOT NULL,
    heartbeat_s         INTEGER NOT NULL,
    stale_s             INTEGER NOT NULL,
    coordinator_enabled INTEGER NOT NULL CHECK (coordinator_enabled IN (0, 1)),
    metadata            TEXT NOT NULL,
    draining            TEXT NOT NULL,
    worker_id           TEXT NOT NULL,
    registered_by       TEXT NOT NULL,
    registered_at_ms    INTEGER NOT NULL,
    token_hash          TEXT UNIQUE,
    PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_heartbeats (
    id               INTEGER PRIMARY KEY,
    workspace_id     INTEGER NOT NULL,
    agent            TEXT NOT NULL,
    at_ms            INTEGER NOT NULL,
    status           TEXT NOT NULL,
    task_id          INTEGER,
    progress_percent INTEGER,
    current_step     TEXT NOT NULL,
    memory_mb        INTEGER,
    cpu_percent      INTEGER,
    metadata         TEXT NOT NULL
) STRICT;
CREATE INDEX agent_heartbeats_agent ON agent_heartbeats (workspace_id, agent, id);
CREATE INDEX agent_heartbeats_age ON agent_heartbeats (at_ms);
