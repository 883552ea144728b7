"""What is answered to anybody."""

OPEN = frozenset({"/health/live", "/health/ready", "/api/v1/openapi.json"})
