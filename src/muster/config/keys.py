"""Every key of `muster.toml` and its value in a Config, for `muster config show` and the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from muster.config.settings import AgentConfig, Config
from muster.model.durations import duration_text


class Key(NamedTuple):
    path: str
    value: Callable[[Config], object]
    """As it would be written in TOML; None where nothing is set."""
    says: str
    is_text: bool = False


def _seconds(read: Callable[[Config], float]) -> Callable[[Config], object]:
    return lambda config: duration_text(read(config))


KEYS: tuple[Key, ...] = (
    Key("agent", lambda c: c.default_agent, "the agent of tasks that name none", is_text=True),
    Key("task.timeout", _seconds(lambda c: c.task.timeout_s), "how long one attempt may take"),
    Key("task.retries", lambda c: c.task.retries, "runs after the first one"),
    Key(
        "task.backoff.first",
        _seconds(lambda c: c.task.backoff_first_s),
        "the first wait before a retry; it doubles",
    ),
    Key("task.backoff.max", _seconds(lambda c: c.task.backoff_cap_s), "the longest wait before a retry"),
    Key(
        "task.losses", lambda c: c.task.losses_max, "attempts lost to dead workers before a task is given up"
    ),
    Key("task.failures", lambda c: c.task.failures_max, "failures in a row that pause a plan; 0: never"),
    Key("task.waiting", lambda c: c.task.waiting_max, "tasks that may wait; more are refused"),
    Key("workers.count", lambda c: c.workers.count, "worker processes; usually one per core, at most 4"),
    Key("workers.slots", lambda c: c.workers.slots, "attempts that one worker runs at the same time"),
    Key(
        "workers.drain",
        _seconds(lambda c: c.workers.drain_s),
        "what `down` and Ctrl-C wait for running tasks",
    ),
    Key("health.heartbeat", _seconds(lambda c: c.health.heartbeat_s), "how often a worker is heard"),
    Key(
        "health.lease",
        _seconds(lambda c: c.health.lease_s),
        "silence after which a worker's tasks go to others; 15 s or three heartbeats, whichever is longer",
    ),
    Key(
        "health.sweep", _seconds(lambda c: c.health.sweep_s), "how often the coordinator looks at all of them"
    ),
    Key(
        "health.claim_lease", _seconds(lambda c: c.health.claim_lease_s), "the lease of a task taken by hand"
    ),
    Key(
        "health.orphan_grace",
        _seconds(lambda c: c.health.orphan_grace_s),
        "how long a worker that cannot reach its owner keeps its agents",
    ),
    Key(
        "health.stall_after",
        _seconds(lambda c: c.health.stall_after_s),
        "how long an attempt may show no progress; 0: for ever",
    ),
    Key("git.worktrees", lambda c: c.git.worktrees, "whether each task that writes gets a tree and a branch"),
    Key(
        "git.setup",
        lambda c: c.git.setup or None,
        "a shell command that makes a new tree ready to work in",
        is_text=True,
    ),
    Key("git.merge", lambda c: c.git.merge, "whether finished work goes on to the branch of its plan"),
    Key("git.keep", lambda c: c.git.keep, "whether trees and branches of tasks that are done stay"),
    Key("retention.events", _seconds(lambda c: c.retention.events_s), "how long the audit is kept"),
    Key("retention.logs", _seconds(lambda c: c.retention.logs_s), "output, and checkpoints of ended tasks"),
    Key(
        "retention.idempotency",
        _seconds(lambda c: c.retention.idempotency_s),
        "how long idempotency keys count",
    ),
    Key("retention.trees", _seconds(lambda c: c.retention.trees_s), "working trees of tasks that have ended"),
)
AGENT_KEYS: tuple[tuple[str, Callable[[AgentConfig], object], str], ...] = (
    ("kind", lambda a: a.kind, "`command`, or a CLI that Muster or a package knows, like `claude-code`"),
    ("command", lambda a: list(a.command) or None, "the program and its arguments; a kind knows its own"),
    ("prompt", lambda a: a.prompt, "how it gets its task: argument, script, file, stdin, none"),
    ("env", lambda a: list(a.env_names) or None, "variables handed on from your environment"),
    ("set", lambda a: sorted(a.env) or None, "variables with a value of their own (only names are shown)"),
    (
        "exit_codes",
        lambda a: {str(code): kind.value for code, kind in a.exit_codes.items()} or None,
        "what exit codes mean",
    ),
    ("capabilities", lambda a: list(a.capabilities) or None, "what tasks with `cap=` may ask of it"),
    ("profiles", lambda a: list(a.profiles) or None, "kinds of task that prefer it"),
    ("targets", lambda a: list(a.targets) or None, "what tasks with `target=` may be about"),
    ("slots", lambda a: a.slots, "its attempts at one time, over all workers"),
    (
        "heartbeat",
        lambda a: None if a.heartbeat_s is None else duration_text(a.heartbeat_s),
        "how often it is heard; its lease is at least three of these",
    ),
    ("writes", lambda a: a.writes, "whether it changes files; a kind's own default is yes"),
    (
        "home",
        lambda a: a.home,
        "its HOME: `user` for yours, `own` for one of each worker's own below `.muster/homes/`",
    ),
    (
        "stall_after",
        lambda a: None if a.stall_after_s is None else duration_text(a.stall_after_s),
        "as `health.stall_after`, for this agent",
    ),
    ("limits.memory", lambda a: a.limits.memory_bytes, "private memory of all its processes"),
    (
        "limits.cpu",
        lambda a: None if a.limits.cpu_s is None else duration_text(a.limits.cpu_s),
        "processor time of all its processes",
    ),
    ("limits.processes", lambda a: a.limits.processes, "how many they may be"),
    ("limits.files", lambda a: a.limits.files, "open files of one process"),
    ("limits.file_size", lambda a: a.limits.file_bytes, "size of a file that it writes"),
    ("limits.output", lambda a: a.limits.output_bytes, "what one attempt may print"),
    ("provider", lambda a: a.provider, "agents of one provider wait together"),
    ("model", lambda a: a.model, "of a kind: the model"),
    ("permission_mode", lambda a: a.permission_mode, "of a kind: what it may do without asking"),
    (
        "max_budget_usd",
        lambda a: a.max_budget_usd,
        "of a kind that keeps one: most that one run may cost, in dollars",
    ),
    ("args", lambda a: list(a.args) or None, "of a kind: further arguments"),
    ("options", lambda a: sorted(a.options) or None, "of a kind: settings of its own (only names are shown)"),
)
"""Of `[agents.NAME]`."""


def settings(config: Config) -> Iterator[tuple[str, object]]:
    """(key, value) of everything that is set or has a default, in the order of the documentation."""
    for key in KEYS:
        yield key.path, key.value(config)
    for name, most in sorted(config.limits.items()):
        yield f"limits.{name}", most
    for name, agent in sorted(config.agents.items()):
        for key_name, value, _ in AGENT_KEYS:
            if (found := value(agent)) is not None:
                yield f"agents.{name}.{key_name}", found
