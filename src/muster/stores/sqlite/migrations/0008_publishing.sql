-- S18: the attempt that has said that the work is done, until that work is published.
ALTER TABLE tasks ADD COLUMN done_epoch INTEGER;

-- What was begun, and taken from its worker by no fault of the task's, goes before what nobody has begun.
DROP INDEX tasks_ready;
CREATE INDEX tasks_ready ON tasks
    (lane_id, (error_kind IS 'lost' OR done_epoch IS NOT NULL) DESC, priority DESC, sort_key, id) WHERE ready = 1;
