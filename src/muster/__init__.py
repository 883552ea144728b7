"""Muster runs a crew of AI agents on a plan, and never loses a task."""

__version__ = "0.1.0"

_FOUND_IN = {
    "App": "app",
    "AppTask": "tasks",
    "AsyncClient": "client",
    "AsyncHandle": "handles",
    "AsyncTaskContext": "context",
    "Client": "client",
    "GiveUp": "errors",
    "Handle": "handles",
    "MusterKit": "kit",
    "Question": "kit",
    "QueueStatus": "task_queue",
    "QueueTask": "task_queue",
    "TaskCancelled": "errors",
    "TaskContext": "context",
    "TaskEnded": "errors",
    "TaskFailed": "errors",
    "TaskQueue": "task_queue",
    "TaskResult": "task_queue",
    "TaskStopped": "errors",
    "TaskSummary": "task_queue",
    "TaskTool": "task_queue",
    "WorkerBroken": "errors",
}
"""The names of the SDK, by module: `__init__.pyi` has their types.  Each is loaded when it is used first, for
every command of the CLI imports this module."""


def __getattr__(name: str) -> object:
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"muster.sdk.{_FOUND_IN[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_FOUND_IN]
