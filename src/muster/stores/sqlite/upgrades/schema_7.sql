-- What the last build before the first release has made, under schema 7: all seven of its migrations.

-- Times are Unix milliseconds unless the name says otherwise; `lease_until_ms` and `stop_by_ms` are on the
-- monotonic clock of `boot_id`.  Checks on hot columns are chains of OR: for IN, SQLite builds a table at each write,
-- which took half of an update's time.  No foreign keys on hot tables: the engine writes both sides in one transaction.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE plans (
    id              INTEGER PRIMARY KEY,
    workspace_id    INTEGER NOT NULL,
    name            TEXT NOT NULL,
    source          TEXT,
    created_at_ms   INTEGER NOT NULL,
    ticked_event_id INTEGER NOT NULL DEFAULT 0,
    UNIQUE (workspace_id, name)
) STRICT;
CREATE UNIQUE INDEX plans_source ON plans (workspace_id, source) WHERE source IS NOT NULL;

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
    aim                TEXT,
    aim_until_ms       INTEGER,
    expires_at_ms      INTEGER,
    overdue_at_ms      INTEGER,
    fresh_after_epoch  INTEGER NOT NULL,
    on_failed          TEXT NOT NULL CHECK (on_failed = 'block' OR on_failed = 'skip' OR on_failed = 'run'),
    limit_key          TEXT,
    updated_at_ms      INTEGER NOT NULL,
    started_at_ms      INTEGER,
    ended_at_ms        INTEGER,
    ready              INTEGER NOT NULL CHECK (ready IN (0, 1)),
    key                TEXT,
    title              TEXT NOT NULL,
    description        TEXT NOT NULL,
    agent              TEXT,
    capabilities       TEXT NOT NULL,
    profile            TEXT,
    tags               TEXT NOT NULL,
    metadata           TEXT NOT NULL,
    parent_task_id     INTEGER,
    epic               TEXT NOT NULL,
    feature            TEXT NOT NULL,
    created_by         TEXT NOT NULL,
    created_at_ms      INTEGER NOT NULL,
    result             TEXT
) STRICT;
CREATE UNIQUE INDEX tasks_key ON tasks (plan_id, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_ready ON tasks (lane_id, priority DESC, sort_key, id) WHERE ready = 1;
CREATE INDEX tasks_due ON tasks (next_attempt_at_ms) WHERE next_attempt_at_ms IS NOT NULL;
CREATE INDEX tasks_expiry ON tasks (expires_at_ms)
    WHERE expires_at_ms IS NOT NULL AND status IN ('PENDING', 'ABORTED');
CREATE INDEX tasks_aim ON tasks (aim_until_ms) WHERE aim_until_ms IS NOT NULL;
CREATE INDEX tasks_overdue ON tasks (overdue_at_ms) WHERE overdue_at_ms IS NOT NULL AND status = 'RUNNING';
CREATE INDEX tasks_parent ON tasks (parent_task_id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX tasks_counts ON tasks (plan_id, status);

CREATE TABLE dependencies (
    parent_id INTEGER NOT NULL,
    child_id  INTEGER NOT NULL,
    met       INTEGER NOT NULL CHECK (met IN (0, 1)),
    PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_child ON dependencies (child_id);

-- S1: (task, epoch) is granted once, and a task has at most one open attempt.
CREATE TABLE attempts (
    task_id        INTEGER NOT NULL,
    epoch          INTEGER NOT NULL CHECK (epoch >= 1),
    generation     INTEGER NOT NULL,
    status         TEXT NOT NULL CHECK (
        status = 'assigned' OR status = 'running' OR status = 'stopping' OR status = 'completed' OR status = 'failed'
        OR status = 'lost' OR status = 'released' OR status = 'cancelled'),
    worker_id      TEXT NOT NULL,
    agent          TEXT NOT NULL,
    request_id     TEXT NOT NULL,
    boot_id        TEXT NOT NULL,
    lease_ms       INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    assigned_at_ms INTEGER NOT NULL,
    started_at_ms  INTEGER,
    ended_at_ms    INTEGER,
    session_key    TEXT,
    token_hash     TEXT,
    stop_action    TEXT,
    stop_by_ms     INTEGER,
    error_kind     TEXT,
    error          TEXT NOT NULL,
    tree_killed    INTEGER NOT NULL CHECK (tree_killed IN (0, 1)),
    exit_code      INTEGER,
    declared_kind  TEXT,
    declared       TEXT,
    checkpoints    INTEGER NOT NULL,
    log_bytes      INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch),
    CHECK ((ended_at_ms IS NULL) = (status = 'assigned' OR status = 'running' OR status = 'stopping'))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX attempts_open ON attempts (task_id) WHERE ended_at_ms IS NULL;
CREATE INDEX attempts_held ON attempts (worker_id) WHERE ended_at_ms IS NULL;

-- S7: events are never changed, and a task's numbers have no duplicates (the engine makes no gaps).
CREATE TABLE events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
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
    actor           TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_task ON events (task_id, seq);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN
    SELECT raise(ABORT, 'events are never changed');
END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
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
    number        INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    data          BLOB NOT NULL,
    PRIMARY KEY (task_id, epoch, number)
) STRICT;

CREATE TABLE artifacts (
    task_id       INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    name          TEXT NOT NULL,
    location      TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch, name)
) STRICT;

CREATE TABLE logs (
    task_id INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    stream  TEXT NOT NULL,
    offset  INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (task_id, epoch, stream, offset)
) STRICT;

CREATE TABLE workers (
    id               TEXT PRIMARY KEY,
    hostname         TEXT NOT NULL,
    pid              INTEGER NOT NULL,
    pid_start        INTEGER NOT NULL,
    boot_id          TEXT NOT NULL,
    slots            INTEGER NOT NULL,
    agents           TEXT NOT NULL,
    general          TEXT NOT NULL,
    offers           TEXT NOT NULL,
    unfit            TEXT NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('starting', 'idle', 'busy', 'stopping', 'dead')),
    registered_at_ms INTEGER NOT NULL,
    last_seen_at_ms  INTEGER NOT NULL,
    heard_mono_ms    INTEGER NOT NULL,
    ended_at_ms      INTEGER,
    for_good         INTEGER NOT NULL CHECK (for_good IN (0, 1)),
    reason           TEXT NOT NULL
) STRICT;
CREATE INDEX workers_living ON workers (status) WHERE ended_at_ms IS NULL;
-- What an agent is told while it works, and when.
ALTER TABLE attempts ADD COLUMN notice TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN noticed_mono_ms INTEGER;

-- The breaker: tasks of a plan that failed in a row, and why the plan gives out no work.
ALTER TABLE plans ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE plans ADD COLUMN paused_reason TEXT;
ALTER TABLE plans ADD COLUMN event_seq INTEGER NOT NULL DEFAULT 0;
CREATE INDEX plans_paused ON plans (id) WHERE paused_reason IS NOT NULL;

-- S7: signed ranges of events.  A pruned one stays as a stub, and only its events may be deleted.
CREATE TABLE seals (
    to_id        INTEGER PRIMARY KEY,
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
CREATE INDEX seals_kept ON seals (to_id) WHERE pruned_at_ms IS NULL;
CREATE TRIGGER seals_no_delete BEFORE DELETE ON seals
BEGIN
    SELECT raise(ABORT, 'seals are never deleted');
END;
CREATE TRIGGER seals_no_update BEFORE UPDATE ON seals
WHEN OLD.pruned_at_ms IS NOT NULL OR NEW.pruned_at_ms IS NULL
  OR (NEW.to_id, NEW.from_id, NEW.count, NEW.at_ms, NEW.key_id, NEW.previous, NEW.marks_digest, NEW.head)
     IS NOT (OLD.to_id, OLD.from_id, OLD.count, OLD.at_ms, OLD.key_id, OLD.previous, OLD.marks_digest, OLD.head)
BEGIN
    SELECT raise(ABORT, 'seals are never changed');
END;
DROP TRIGGER events_no_delete;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM seals
                  WHERE to_id = (SELECT min(to_id) FROM seals WHERE to_id >= OLD.id)
                    AND from_id <= OLD.id AND pruned_at_ms IS NOT NULL)
BEGIN
    SELECT raise(ABORT, 'events are never deleted');
END;
CREATE INDEX checkpoints_age ON checkpoints (created_at_ms);
-- An attempt that was ended by somebody else while its processes may still be at work.
ALTER TABLE tasks ADD COLUMN lingering_epoch INTEGER;
CREATE INDEX tasks_lingering ON tasks (id) WHERE lingering_epoch IS NOT NULL;
-- S2: whoever proves an epoch names the incarnation of the store that granted it.
INSERT INTO meta (name, value) VALUES ('incarnation', lower(hex(randomblob(8))));
-- S16: which of two checkpoints is the newer one is told by when they were taken.
ALTER TABLE attempts ADD COLUMN checkpoint_taken TEXT NOT NULL DEFAULT '';
-- What an attempt has cost, and what its session had cost in all by then: JSON of model.usage.Usage.
ALTER TABLE attempts ADD COLUMN usage TEXT;
ALTER TABLE attempts ADD COLUMN session_usage TEXT;
-- When a task was wished to begin and to end: `next_attempt_at_ms` and `expires_at_ms` move on with its life.
-- How long one attempt should take, in seconds, and what it is about.
ALTER TABLE tasks ADD COLUMN not_before_ms INTEGER;
ALTER TABLE tasks ADD COLUMN not_after_ms INTEGER;
ALTER TABLE tasks ADD COLUMN estimated_s INTEGER;
ALTER TABLE tasks ADD COLUMN target TEXT;
UPDATE tasks SET not_after_ms = expires_at_ms WHERE expires_at_ms IS NOT NULL;
UPDATE tasks SET not_before_ms = next_attempt_at_ms
 WHERE next_attempt_at_ms IS NOT NULL AND status = 'PENDING' AND epoch = 0;
