-- When a task was wished to begin and to end: `next_attempt_at_ms` and `expires_at_ms` move on with its life.
-- How long one attempt should take, in seconds, and what it is about.
ALTER TABLE tasks ADD COLUMN not_before_ms INTEGER;
ALTER TABLE tasks ADD COLUMN not_after_ms INTEGER;
ALTER TABLE tasks ADD COLUMN estimated_s INTEGER;
ALTER TABLE tasks ADD COLUMN target TEXT;
UPDATE tasks SET not_after_ms = expires_at_ms WHERE expires_at_ms IS NOT NULL;
UPDATE tasks SET not_before_ms = next_attempt_at_ms
 WHERE next_attempt_at_ms IS NOT NULL AND status = 'PENDING' AND epoch = 0;
