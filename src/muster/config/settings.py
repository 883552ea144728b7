"""What `muster.toml` may say, with the defaults of what it does not."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import field

from muster.config.channels import ChannelConfig, NotifySettings
from muster.config.profiles import PROFILES
from muster.config.tables import KeySpec, Section, setting
from muster.config.values import (
    read_author,
    read_command,
    read_count,
    read_count_or_zero,
    read_dollars,
    read_duration,
    read_env,
    read_env_names,
    read_exit_codes,
    read_files,
    read_flag,
    read_interval,
    read_listen,
    read_namespace,
    read_one_of,
    read_pattern,
    read_prompt,
    read_remote,
    read_runtime_url,
    read_secret_names,
    read_size,
    read_store,
    read_store_file,
    read_text,
    read_texts,
    without_password,
)
from muster.model.limits import STALL_AFTER_S, Limits
from muster.model.place import USUAL_PROMPT
from muster.model.states import ORDERS, ErrorKind

LOG_FORMATS = ("text", "json")
PROMPT_CHANNELS = ("argument", "script", "file", "stdin", "none")
"""How an agent gets its prompt: as the last argument, as a file that is named or fed to it (`script`: the code of
its fenced blocks, where it has any), or not at all."""

COMMAND = "command"
"""The kind of an agent that is any command."""
USER_HOME, OWN_HOME = "user", "own"
HOMES = (USER_HOME, OWN_HOME)
"""Whose HOME an agent gets: that of the user who runs the crew, or one of its own under `.muster/homes/`."""
OWN_WORKDIR, PROJECT_WORKDIR = "own", "project"
WORKDIRS = (OWN_WORKDIR, PROJECT_WORKDIR)
"""Where an agent works in a repository."""


class TaskDefaults(Section, frozen=True, kw_only=True):
    """Limits of a task that sets none of its own.  `[task]`"""

    timeout_s: float = setting(7200.0, "timeout", read_interval, "how long one attempt may take")
    retries: int = setting(3, "retries", read_count_or_zero, "runs after the first one")
    backoff_first_s: float = setting(
        30.0, "backoff.first", read_duration, "the first wait before a retry; it doubles"
    )
    backoff_cap_s: float = setting(300.0, "backoff.max", read_duration, "the longest wait before a retry")
    losses_max: int = setting(
        5, "losses", read_count, "attempts lost to dead workers before a task is given up"
    )
    failures_max: int = setting(
        5, "failures", read_count_or_zero, "failures in a row that pause a plan; 0: never"
    )
    waiting_max: int = setting(100_000, "waiting", read_count, "tasks that may wait; more are refused")
    check: str = setting("", "check", read_text, "a shell command that work has to pass on the plan's branch")
    review: str = setting(
        "", "review", read_text, "who accepts work that has passed its check: an agent, or `person`"
    )
    rubric: str = setting("", "rubric", read_text, "what an agent that reviews is to go by")
    rounds: int = setting(
        3, "rounds", read_count_or_zero, "how often work goes back to its agent before a person is asked"
    )


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerSettings(Section, frozen=True, kw_only=True):
    """How many processes host agents on this machine.  `[workers]`"""

    count: int | None = setting(
        None, "count", read_count, "worker processes; usually one per core, at most 4"
    )
    slots: int = setting(1, "slots", read_count, "attempts that one worker runs at the same time")
    drain_s: float = setting(300.0, "drain", read_duration, "what `down` and Ctrl-C wait for running tasks")

    def number(self, cores: int) -> int:
        """Workers to start on a machine with that many cores: as configured, else one per core, at most 4."""
        return self.count if self.count is not None else max(1, min(4, cores))


class Health(Section, frozen=True, kw_only=True):
    """How soon a silent holder of a task is given up.  `[health]`"""

    heartbeat_s: float = setting(5.0, "heartbeat", read_interval, "how often a worker is heard")
    lease_s: float = setting(
        15.0,
        "lease",
        read_interval,
        "silence after which a worker's tasks go to others; 15 s or three heartbeats, whichever is longer",
    )
    sweep_s: float = setting(0.5, "sweep", read_interval, "how often the coordinator looks at all of them")
    remote_lease_s: float = setting(
        60.0, "remote_lease", read_interval, "the same for a worker on another host, where it is longer"
    )
    claim_lease_s: float = setting(1800.0, "claim_lease", read_interval, "the lease of a task taken by hand")
    orphan_grace_s: float = setting(
        600.0,
        "orphan_grace",
        read_duration,
        "how long a worker that cannot reach its owner keeps its agents",
    )
    stall_after_s: float = setting(
        STALL_AFTER_S,
        "stall_after",
        read_duration,
        "how long an attempt may show no progress; 0: for ever",
    )


LIMITS: Mapping[str, KeySpec] = {
    "memory_bytes": KeySpec("memory", read_size, "private memory of all its processes"),
    "cpu_s": KeySpec("cpu", read_interval, "processor time of all its processes"),
    "processes": KeySpec("processes", read_count, "how many they may be"),
    "files": KeySpec("files", read_files, "open files of one process"),
    "file_bytes": KeySpec("file_size", read_size, "size of a file that it writes"),
    "output_bytes": KeySpec("output", read_size, "what one attempt may print"),
}


def _codes_shown(codes: Mapping[int, ErrorKind]) -> object:
    return {str(code): kind.value for code, kind in codes.items()} or None


class AgentConfig(Section, frozen=True):
    """One executor: a command that gets a prompt, or a CLI that Muster knows.  `[agents.NAME]`"""

    name: str
    command: tuple[str, ...] = setting(
        (), "command", read_command, "the program and its arguments; a kind knows its own"
    )
    kind: str = setting(
        COMMAND,
        "kind",
        read_text,
        "`command`, or a CLI that Muster or a package knows, like `claude-code`",
    )
    prompt: str = setting(
        "argument",
        "prompt",
        read_one_of(PROMPT_CHANNELS, "no way to hand over a prompt"),
        "how it gets its task: argument, script, file, stdin, none",
    )
    env_names: tuple[str, ...] = setting(
        (), "env", read_env_names, "variables handed on from your environment"
    )
    env: Mapping[str, str] = setting(
        {}, "set", read_env, "variables with a value of their own (only names are shown)"
    )
    secrets: tuple[str, ...] = setting(
        (), "secrets", read_secret_names, "what it is given of `muster secrets`, in its environment"
    )
    exit_codes: Mapping[int, ErrorKind] = setting(
        {}, "exit_codes", read_exit_codes, "what exit codes mean", _codes_shown
    )
    """What is not in it means `crash`."""
    success_pattern: str | None = setting(
        None, "success_pattern", read_pattern, "a regular expression that the output of a success has"
    )
    failure_pattern: str | None = setting(
        None, "failure_pattern", read_pattern, "one that only the output of a failure has"
    )
    wait_pattern: str | None = setting(
        None,
        "wait_pattern",
        read_pattern,
        "one that says, after a failure, that its provider wants it to wait",
    )
    capabilities: tuple[str, ...] = setting(
        (), "capabilities", read_texts, "what tasks with `cap=` may ask of it"
    )
    profiles: tuple[str, ...] = setting((), "profiles", read_texts, "kinds of task that prefer it")
    coordinator_enabled: bool = setting(
        True, "coordinator_enabled", read_flag, "`false`: it takes only tasks that name it"
    )
    targets: tuple[str, ...] = setting((), "targets", read_texts, "what tasks with `target=` may be about")
    slots: int | None = setting(None, "slots", read_count, "its attempts at one time, over all workers")
    heartbeat_s: float | None = setting(
        None, "heartbeat", read_interval, "how often it is heard; its lease is at least three of these"
    )
    writes: bool | None = setting(
        None,
        "writes",
        read_flag,
        "`true`: its work is to change files (a kind's own default), `false`: it only reads; else it may",
    )
    """Where it is true, no other such agent may work in the same folder at the same time."""
    workdir: str = setting(
        OWN_WORKDIR,
        "workdir",
        read_one_of(WORKDIRS, "no place to work in"),
        "`own`: a working tree of each task, `project`: the project's folder itself",
    )
    check: str | None = setting(None, "check", read_text, "as `task.check`, for its work")
    review: str | None = setting(None, "review", read_text, "as `task.review`, for its work")
    home: str = setting(
        USER_HOME,
        "home",
        read_one_of(HOMES, "nobody's home"),
        "its HOME: `user` for yours, `own` for one of each worker's own below `.muster/homes/`",
    )
    stall_after_s: float | None = setting(
        None, "stall_after", read_duration, "as `health.stall_after`, for this agent"
    )
    limits: Limits = Limits()
    """`[agents.NAME.limits]`: see LIMITS."""
    provider: str | None = setting(None, "provider", read_text, "agents of one provider wait together")
    """When it is out of quota."""
    model: str | None = setting(
        None, "model", read_text, "the model; in another command `{model}` stands for it"
    )
    permission_mode: str | None = setting(
        None, "permission_mode", None, "of a kind: what it may do without asking"
    )
    """Where its kind has modes, it must be told."""
    max_budget_usd: float | None = setting(
        None,
        "max_budget_usd",
        None,
        "of a kind that keeps one: most that one run may cost, in dollars",
    )
    args: tuple[str, ...] = setting((), "args", None, "of a kind: further arguments")
    mcp: bool = setting(True, "mcp", None, "of a kind: whether its CLI is given Muster's tools for reports")
    """Where it takes any."""
    options: Mapping[str, object] = setting(
        {}, "options", None, "of a kind: settings of its own (only names are shown)"
    )
    """Its kind checks them by itself."""

    @property
    def pool(self) -> str:
        return self.provider or self.name


SHELL = AgentConfig("shell", ("sh", "-eu"), prompt="script")
"""Built in: the prompt is a shell script.  A project may redefine it."""


def built_in_agents() -> dict[str, AgentConfig]:
    return {SHELL.name: SHELL}


class RetentionSettings(Section, frozen=True, kw_only=True):
    """How long what is over is kept.  `[retention]`"""

    events_s: float = setting(90 * 86400.0, "events", read_interval, "how long the audit is kept")
    logs_s: float = setting(30 * 86400.0, "logs", read_interval, "output, and checkpoints of ended tasks")
    idempotency_s: float = setting(
        7 * 86400.0, "idempotency", read_interval, "how long idempotency keys count"
    )
    trees_s: float = setting(14 * 86400.0, "trees", read_interval, "working trees of tasks that have ended")
    """As far as they are still there; their work stays behind refs."""
    tasks_s: float = setting(
        30 * 86400.0, "tasks", read_interval, "when completed tasks of plans that are over are archived"
    )


class Budget(Section, frozen=True, kw_only=True):
    """What may be spent before a person is asked; any amount where that is not said.  `[budget]`"""

    task_usd: float | None = setting(
        None, "task", read_dollars, "dollars that a task may cost before it is paused"
    )
    plan_usd: float | None = setting(None, "plan", read_dollars, "the same of all tasks of a plan together")


class Git(Section, frozen=True, kw_only=True):
    """Where agents that write work, in a repository.  `[git]`"""

    worktrees: bool = setting(
        True, "worktrees", read_flag, "whether each task gets a working tree of its own"
    )
    """Else all work in the project's folder, those that write one at a time."""
    setup: str = setting("", "setup", read_text, "a shell command that makes a new tree ready to work in")
    merge: bool = setting(True, "merge", read_flag, "whether finished work goes on to the branch of its plan")
    keep: bool = setting(False, "keep", read_flag, "whether trees and branches of tasks that are done stay")
    author: str = setting("", "author", read_author, "`Name <mail>` of Muster's commits; else yours")
    max_file_bytes: int = setting(
        100_000_000, "max_file", read_size, "a larger file is published once a person has accepted it"
    )
    droppings: tuple[str, ...] = setting(
        (), "droppings", read_texts, "more names of ignored files and folders that nobody misses, like `dist`"
    )
    remote: str = setting(
        "", "remote", read_remote, "the repository of servers that share a store, by an address of git's"
    )
    forge: str = setting(
        "",
        "forge",
        read_text,
        "the address of the forge's API, for `muster pr`, where the remote's does not say",
    )


class PlanSettings(Section, frozen=True, kw_only=True):
    """Plans and their files.  `[plan]`"""

    order: str | None = setting(
        None,
        "order",
        read_one_of(ORDERS, "no order of tasks"),
        "how the tasks of a plan follow each other that does not say it: file, phases, free",
    )
    debounce_s: float = setting(
        2.0, "debounce", read_duration, "how long a plan's file has to be left alone before it is read anew"
    )
    settle_s: float = setting(
        30.0, "settle", read_duration, "how long a new or edited box has to stand before it is taken up"
    )
    protect: bool = setting(
        True, "protect", read_flag, "whether boxes that an agent has ticked in its working tree are put back"
    )
    prompt: str | None = setting(
        None,
        "prompt",
        read_prompt,
        'what a prompt says of the task\'s place in its plan; usually a few lines, `""`: nothing',
        lambda said: said,
    )

    @property
    def place(self) -> str:
        """The template of that."""
        return self.prompt if self.prompt is not None else USUAL_PROMPT if self.protect else ""


class ServeSettings(Section, frozen=True, kw_only=True):
    """What others reach over the network.  `[serve]`"""

    listen: str = setting(
        "", "listen", read_listen, "`HOST:PORT` of the API for others; without it only you reach it"
    )
    tls_cert: str = setting("", "tls_cert", read_text, "file with its certificate and those above it, in PEM")
    tls_key: str = setting("", "tls_key", read_text, "file with the key of that")
    login: bool = setting(
        True, "login", read_flag, "`false`: whoever reaches it is you; on a loopback address only"
    )
    hosts: tuple[str, ...] = setting(
        (), "hosts", read_texts, "names that it has without login, beside localhost"
    )
    rate: int = setting(100, "rate", read_count_or_zero, "requests a second of one caller; 0: any number")
    trusted_hops: int = setting(
        0,
        "trusted_hops",
        read_count_or_zero,
        "how many proxies stand before it, each of which adds to X-Forwarded-For who asked it",
    )
    store: str = setting(
        "",
        "store",
        read_store,
        "`postgresql://USER@HOST/DATABASE`, where several servers share a store; without it the store is a file",
        show=lambda url: without_password(url) or None,
    )
    store_file: str = setting("", "store_file", read_store_file, "file with that address, and its password")
    alert: str = setting(
        "", "alert", read_text, "address that is told by a POST when that store is away, halted or back"
    )
    alert_after_s: float = setting(
        300.0, "alert_after", read_duration, "how long it may be away before anybody is told"
    )

    @property
    def shared(self) -> bool:
        """Other servers have the same store."""
        return bool(self.store or self.store_file)

    @property
    def url(self) -> str:
        """Empty where nobody is to listen."""
        return f"{'https' if self.tls_cert else 'http'}://{self.listen}" if self.listen else ""


class RuntimeSettings(Section, frozen=True, kw_only=True):
    """What servers tell each other to be quicker.  `[runtime]`"""

    url: str = setting(
        "",
        "url",
        read_runtime_url,
        "a Valkey, by the extra `musterd[valkey]`; it may be away at any time (its password is not shown)",
        lambda url: without_password(url) or None,
    )
    namespace: str = setting(
        "", "namespace", read_namespace, "goes before all keys, where several stores share a Valkey"
    )


class LogSettings(Section, frozen=True, kw_only=True):
    """What owner, workers and supervisor write into `.muster/muster.log`.  `[log]`"""

    format: str = setting(
        "text",
        "format",
        read_one_of(LOG_FORMATS, "no form of a log"),
        "`text`, or `json`: an object each line",
    )
    bytes_max: int = setting(16 << 20, "max_size", read_size, "a longer log becomes an old one")
    keep: int = setting(4, "keep", read_count, "how many old ones stay")


class TraceSettings(Section, frozen=True, kw_only=True):
    """What is told to OpenTelemetry.  `[trace]`"""

    spans: bool = setting(
        False, "spans", read_flag, "spans of requests, attempts and moves, by the extra `musterd[otel]`"
    )


class WebhookSettings(Section, frozen=True, kw_only=True):
    """What is told to others by HTTP.  `[webhooks]`"""

    private: bool = setting(
        False,
        "private",
        read_flag,
        "`true`: to addresses of this machine and of private networks as well, and without TLS",
    )


class Config(Section, frozen=True, kw_only=True):
    plan: PlanSettings = PlanSettings()
    budget: Budget = Budget()
    retention: RetentionSettings = RetentionSettings()
    git: Git = Git()
    task: TaskDefaults = TaskDefaults()
    workers: WorkerSettings = WorkerSettings()
    health: Health = Health()
    serve: ServeSettings = ServeSettings()
    webhooks: WebhookSettings = WebhookSettings()
    notify: NotifySettings = NotifySettings()
    runtime: RuntimeSettings = RuntimeSettings()
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()
    agents: Mapping[str, AgentConfig] = field(default_factory=built_in_agents)
    channels: tuple[ChannelConfig, ...] = ()
    """`[channels.NAME]`"""
    limits: Mapping[str, int] = {}
    """Most tasks of one limit key that run at one time, over the whole crew.  `[limits]`"""
    profiles: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PROFILES)
    """Words that ask for a kind of agent.  `[profiles]`"""
    default_agent: str | None = setting(None, "agent", read_text, "the agent of tasks that name none")

    def lease_of(self, agent: AgentConfig) -> float:
        return max(self.health.lease_s, 3 * (agent.heartbeat_s or 0.0))

    @property
    def writers(self) -> frozenset[str]:
        return frozenset(name for name, agent in self.agents.items() if agent.writes)

    @property
    def general(self) -> tuple[str, ...]:
        """Agents for tasks that name none.  Never a shell unless that was said: it runs prose as a script."""
        if self.default_agent is not None:
            return (self.default_agent,)
        return tuple(sorted(self.agents.keys() - {SHELL.name}))


SECTIONS: Mapping[str, type[Section]] = {
    "task": TaskDefaults,
    "workers": WorkerSettings,
    "health": Health,
    "budget": Budget,
    "git": Git,
    "retention": RetentionSettings,
    "plan": PlanSettings,
    "serve": ServeSettings,
    "webhooks": WebhookSettings,
    "notify": NotifySettings,
    "runtime": RuntimeSettings,
    "log": LogSettings,
    "trace": TraceSettings,
}
"""The tables that are of one class each."""
