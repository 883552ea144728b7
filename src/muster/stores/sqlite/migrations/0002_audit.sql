-- What an agent is told while it works, and when.
ALTER TABLE attempts ADD COLUMN notice TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN noticed_mono_ms INTEGER;

-- The breaker: tasks of a plan that failed in a row, and why the plan gives out no work.
ALTER TABLE plans ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE plans ADD COLUMN paused_reason TEXT;
ALTER TABLE plans ADD COLUMN event_seq INTEGER NOT NULL DEFAULT 0;
CREATE INDEX plans_paused ON plans (id) WHERE paused_reason IS NOT NULL;
