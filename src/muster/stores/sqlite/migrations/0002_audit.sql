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
