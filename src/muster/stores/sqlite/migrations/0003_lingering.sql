-- An attempt that was ended by somebody else while its processes may still be at work.
ALTER TABLE tasks ADD COLUMN lingering_epoch INTEGER;
CREATE INDEX tasks_lingering ON tasks (id) WHERE lingering_epoch IS NOT NULL;
