"""What is answered to anybody, and what of the paths are pages for people."""

OPEN = frozenset({"/health/live", "/health/ready", "/api/v1/openapi.json"})
ENTER = "/enter"
"""Where a browser is let in."""
STATIC = "/static/"
FOR_PROGRAMS = frozenset({"api", "attempt", "health", "healthz", "metrics", "worker"})
"""First parts of paths; below all others there are pages."""


def is_open(method: str, path: str) -> bool:
    if method == "GET" and (path in OPEN or path.startswith(STATIC)):
        return True
    return path == ENTER


def is_page(path: str) -> bool:
    return path.lstrip("/").partition("/")[0] not in FOR_PROGRAMS
