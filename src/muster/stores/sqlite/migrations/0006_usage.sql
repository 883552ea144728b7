-- What an attempt has cost, and what its session had cost in all by then: JSON of model.usage.Usage.
ALTER TABLE attempts ADD COLUMN usage TEXT;
ALTER TABLE attempts ADD COLUMN session_usage TEXT;
