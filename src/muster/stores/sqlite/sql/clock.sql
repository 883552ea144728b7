-- Jumps of the clock.

-- name: shift_retries
-- A date that a person has named stays; a pause after a failure, or for a provider, is a length of time.
UPDATE tasks SET next_attempt_at_ms = next_attempt_at_ms + ?1
 WHERE next_attempt_at_ms IS NOT NULL AND (status = 'ABORTED' OR error_kind IS NOT NULL OR paused_reason = 'hand')

-- name: shift_aims
UPDATE tasks SET pinned_until_ms = pinned_until_ms + ?1 WHERE pinned_until_ms IS NOT NULL

-- name: bound_retries
UPDATE tasks SET next_attempt_at_ms = ?1 + coalesce(retry_backoff_s * 1000 * ?3, ?2)
 WHERE next_attempt_at_ms IS NOT NULL AND next_attempt_at_ms > ?1 + coalesce(retry_backoff_s * 1000 * ?3, ?2) AND status = 'ABORTED'
