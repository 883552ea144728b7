"""What the processes of an attempt carry in their environment, to be found by, whoever started them."""

from __future__ import annotations

PROJECT = "MUSTER_PROJECT"
"""Beside each of the others: a copy of a store names the workers and attempts of its original (S19)."""
WORKER = "MUSTER_WORKER"
ATTEMPT = "MUSTER_ATTEMPT"
TRAITS = "MUSTER_WORKER_TRAITS"
"""What whoever has started workers for a server says of them, as JSON."""


def worker_mark(worker_id: str) -> str:
    return f"{WORKER}={worker_id}"


def attempt_mark(worker_id: str, task_id: int, epoch: int) -> str:
    """Names the worker too: task numbers of two stores on one host may be equal."""
    return f"{ATTEMPT}={worker_id}:{task_id}:{epoch}"
