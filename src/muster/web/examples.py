"""Examples of requests, in the order in which a test sends them to an empty store."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Example(Struct, frozen=True):
    name: str
    says: str
    body: dict[str, Any]
    values: dict[str, str] = {}
    """Of the variable parts of the path, where the test does not know them better."""


_TASK = "/api/v1/agent-tasks/{taskId}"

EXAMPLES: dict[tuple[str, str], tuple[Example, ...]] = {
    ("POST", "/api/v1/agent-tasks"): (
        Example(
            "task",
            "One task, for any agent",
            {"title": "Update the changelog", "actor": "ada", "plan": "release", "priority": 8},
        ),
        Example(
            "limits",
            "A task with limits, a check and words to find it by",
            {
                "title": "Fix the strict errors",
                "description": "Make `npm run check` pass in packages/shared.",
                "actor": "ada",
                "plan": "release",
                "key": "strict",
                "capabilities": ["typescript"],
                "checkCommand": "npm run check",
                "timeoutS": 3600,
                "maxRetries": 2,
                "tags": ["typescript"],
                "metadata": {"customer": "acme"},
                "idempotencyKey": "6f1c1d5e-strict",
            },
        ),
    ),
    ("POST", "/api/v1/plans"): (
        Example(
            "plan",
            "A plan of two tasks, the second one after the first",
            {
                "plan": "billing",
                "source": None,
                "actor": "ada",
                "tasks": [
                    {"title": "Write the API", "key": "api"},
                    {"title": "Write its tests", "key": "tests", "dependsOn": ["api"]},
                ],
            },
        ),
    ),
    ("POST", "/api/v1/plans/diff"): (
        Example(
            "plan",
            "What would change if this were the plan",
            {
                "plan": "billing",
                "source": None,
                "actor": "ada",
                "tasks": [{"title": "Write the API", "key": "api"}],
            },
        ),
    ),
    ("POST", "/api/v1/plans/namesakes"): (
        Example("names", "Whether another plan has these boxes", {"names": ["api", "api/tests"]}),
    ),
    ("PUT", "/api/v1/agents/{agent}"): (
        Example(
            "agent",
            "A program that serves itself",
            {
                "name": "Dev Agent #1",
                "model": "claude-sonnet-4",
                "capabilities": ["typescript", "nestjs", "prisma"],
                "maxConcurrentTasks": 2,
                "heartbeatIntervalSeconds": 30,
                "actor": "ada",
            },
            {"agent": "dev-1"},
        ),
    ),
    ("POST", "/api/v1/agents/{agent}/heartbeat"): (
        Example(
            "load",
            "It is there, and how it is",
            {"status": "healthy", "memoryMb": 512, "cpuPercent": 35},
            {"agent": "dev-1"},
        ),
    ),
    ("POST", "/api/v1/agents/{agent}/claim"): (
        Example("claim", "What it can do now", {"slots": 1}, {"agent": "dev-1"}),
    ),
    ("PATCH", "/api/v1/agents/{agent}"): (
        Example("rest", "It takes tasks again", {"status": "idle", "actor": "ada"}, {"agent": "dev-1"}),
    ),
    ("POST", "/api/v1/agents/{agent}/terminate"): (
        Example(
            "end",
            "It finishes what it holds, and ends",
            {"reason": "Manual shutdown", "graceful": True, "actor": "ada"},
            {"agent": "dev-1"},
        ),
    ),
    ("POST", f"{_TASK}/edit"): (
        Example("priority", "It is urgent now", {"actor": "ada", "priority": 10, "tags": ["urgent"]}),
    ),
    ("POST", f"{_TASK}/tell"): (
        Example("tell", "Something that its agent should know", {"actor": "ada", "text": "Use the new API."}),
    ),
    ("POST", f"{_TASK}/pause"): (Example("pause", "By a person", {"actor": "ada"}),),
    ("POST", f"{_TASK}/resume"): (
        Example("resume", "With a word for its agent", {"actor": "ada", "note": "The key is there now."}),
    ),
    ("POST", f"{_TASK}/cancel"): (
        Example("cancel", "With the reason", {"actor": "ada", "reason": "Requirements changed"}),
    ),
    ("POST", f"{_TASK}/retry"): (
        Example("retry", "From its last checkpoint", {"actor": "ada", "note": "The network is back."}),
    ),
    ("POST", f"{_TASK}/complete"): (Example("complete", "Somebody has done it", {"actor": "ada"}),),
    ("POST", "/api/v1/plans/{plan}/pause"): (
        Example("pause", "Nothing of it is given out", {"actor": "ada"}, {"plan": "billing"}),
    ),
    ("POST", "/api/v1/plans/{plan}/resume"): (
        Example("resume", "It goes on", {"actor": "ada"}, {"plan": "billing"}),
    ),
    ("POST", "/api/v1/plans/{plan}/cancel"): (
        Example(
            "cancel", "All that is left of it", {"actor": "ada", "reason": "not wanted"}, {"plan": "billing"}
        ),
    ),
    ("POST", "/api/v1/crew"): (
        Example("stop", "No work is handed out", {"status": "STOPPED", "actor": "ada"}),
        Example("start", "It is again", {"status": "RUNNING", "actor": "ada"}),
    ),
    ("POST", "/api/v1/coordinator/runs"): (
        Example("begins", "A crew begins", {"run": "6f1c1d5e", "actor": "ada"}),
        Example("ends", "It has ended", {"run": "6f1c1d5e", "how": "drained", "actor": "ada"}),
    ),
    ("POST", "/api/v1/webhooks"): (
        Example(
            "people",
            "Whenever somebody is to look",
            {
                "url": "https://example.org/muster",
                "kinds": ["task.needs_person", "plan.paused"],
                "actor": "ada",
            },
        ),
    ),
    ("POST", "/api/v1/secrets"): (
        Example(
            "token",
            "What an agent is to open pull requests with",
            {"name": "GITHUB_TOKEN", "value": "ghp_0000000000000000", "actor": "ada"},
        ),
    ),
    ("POST", "/api/v1/budgets"): (
        Example(
            "plan", "Five dollars for a plan", {"plan": "release", "microusd": 5_000_000, "actor": "ada"}
        ),
    ),
}

ASKED = {"/api/v1/agent-tasks": {"text": "changelog"}}
"""Parameters of what is read, by its path: each finds something after all that."""
