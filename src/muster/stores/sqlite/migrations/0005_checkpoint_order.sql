-- S16: which of two checkpoints is the newer one is told by when they were taken.
ALTER TABLE attempts ADD COLUMN checkpoint_taken TEXT NOT NULL DEFAULT '';
