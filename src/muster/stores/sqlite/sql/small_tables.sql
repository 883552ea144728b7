-- Every row of the tables that are read as wholes, of all workspaces.

-- name: agents
SELECT $agent_columns FROM agents

-- name: lanes
SELECT $lane_columns FROM lanes

-- name: tokens
SELECT $token_columns FROM tokens

-- name: webhooks
SELECT $webhook_columns FROM webhooks

-- name: workers
SELECT $worker_columns FROM workers
