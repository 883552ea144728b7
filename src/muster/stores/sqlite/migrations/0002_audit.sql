-- What an agent is told while it works, and when.
ALTER TABLE attempts ADD COLUMN notice TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN noticed_mono_ms INTEGER;
