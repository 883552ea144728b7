"""What may be said of a task besides its work, and the fields of the engine that it becomes.

Times are seconds, or texts like `30s`, `10m`, `2h`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from muster.model.durations import parse_duration
from muster.model.errors import BadInput
from muster.model.wording import near
from muster.sdk.handles import AsyncHandle, Handle

Time = float | str
Earlier = Handle[Any] | AsyncHandle[Any] | int | str
"""A task that must be done first: its handle, its number, or `plan/key`."""


class TaskOptions(TypedDict, total=False):
    """Of every task."""

    priority: int
    """1 to 10, high first; 5."""
    retries: int
    """Tries after the first one; else as in the settings, like the timeout."""
    timeout: Time
    """How long one attempt may take.  A function that returns later has failed, and is interrupted 5 s later."""
    delay: Time
    """No attempt begins before it is over."""
    not_before: datetime
    """No attempt begins before this time."""
    expires: Time
    """No attempt begins after it is over."""
    after: Sequence[Earlier] | Earlier
    """Tasks that must be done first: handles, numbers, or texts like `plan/key`."""
    idempotency_key: str
    """Adding another task with the same key gives the first one."""
    limit_key: str
    """Tasks of one key share a limit of `[limits]`."""
    tags: Sequence[str]
    """Words to find it by."""
    metadata: Mapping[str, str]
    """Kept with the task, for other programs."""


class CallOptions(TaskOptions, total=False):
    """Of a call of a function."""

    title: str
    """What people see."""


class FunctionOptions(CallOptions, total=False):
    """Of a function."""

    cron: str
    """When it is added by itself while a worker is up, like `30 6 * * mon-fri`."""
    timezone: str
    """Of `cron`, like `Europe/Vienna`; UTC."""
    catch_up: Time
    """How late a time of `cron` is still made up for, after nobody was up; a minute."""


class AgentOptions(TaskOptions, total=False):
    """Of work for agents."""

    plan: str
    """Where it stands; `tasks`."""
    key: str
    """What it is called there."""
    agent: str
    """The one agent that may take it."""
    profile: str
    """The kind of agent that is preferred."""
    capabilities: Sequence[str]
    """What its agent must be able to do."""
    target: str
    """What it is about: only agents that serve this target may take it."""
    model: str
    """Instead of the one that the agent's settings say."""
    system_prompt: str
    """Added to the agent's own instructions; an agent that cannot be told refuses the task."""
    check: str
    """A shell command that its work has to pass."""
    review: str
    """Who has to accept its work: an agent, or `person`."""


def _as_is(value: Any) -> Any:
    return value


def _whole(time: Time) -> int:
    return max(1, round(parse_duration(time)))


def _lasting(name: str, ends: str) -> Callable[[Time], int]:
    def seconds(time: Time) -> int:
        if parse_duration(time) <= 0:
            raise BadInput(f"{name} is {time!r}: it would {ends} before it begins", f"{name}=60, or '5m'")
        return _whole(time)

    return seconds


def _delay(time: Time) -> int | None:
    return _whole(time) if parse_duration(time) > 0 else None


def _moment(at: datetime) -> int:
    try:
        return int(at.timestamp() * 1000)
    except (AttributeError, OverflowError, ValueError):
        raise BadInput(
            f"not_before is {at!r}, which is no time that can come",
            "a datetime, like datetime.now(UTC) + timedelta(hours=2)",
        ) from None


def _names(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        raise BadInput(f"{value!r} is one text, and a list of them is wanted", f"[{value!r}]")
    return tuple(value)


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "title": ("title", _as_is),
    "priority": ("priority", _as_is),
    "retries": ("max_retries", _as_is),
    "timeout": ("timeout_s", _lasting("timeout", "end")),
    "delay": ("delay_s", _delay),
    "not_before": ("not_before_ms", _moment),
    "expires": ("expires_s", _lasting("expires", "expire")),
    "idempotency_key": ("idempotency_key", _as_is),
    "limit_key": ("limit_key", _as_is),
    "tags": ("tags", _names),
    "metadata": ("metadata", dict),
    "key": ("key", _as_is),
    "agent": ("agent", _as_is),
    "profile": ("profile", _as_is),
    "capabilities": ("capabilities", _names),
    "target": ("target", _as_is),
    "model": ("model", _as_is),
    "system_prompt": ("system_prompt", _as_is),
    "check": ("check_command", _as_is),
    "review": ("review", _as_is),
}


def fields_of(options: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """What `options` say as fields of `commands.Spec`, but for `after`.  Raises BadInput for unknown ones."""
    known = kind.__annotations__.keys() | TaskOptions.__annotations__.keys()
    for name in options:
        if name not in known:
            raise BadInput(
                f"a task has no option {name!r}{near(name, known)}", f"one of {', '.join(sorted(known))}"
            )
    return {
        _FIELDS[name][0]: _FIELDS[name][1](value)
        for name, value in options.items()
        if name in _FIELDS and value is not None
    }


def earlier_of(options: Mapping[str, Any]) -> list[int | str]:
    """The tasks of `after`: numbers, and references that are to be resolved."""
    after = options.get("after", ())
    given = [after] if isinstance(after, str | int | Handle | AsyncHandle) else after
    return [one.id if isinstance(one, Handle | AsyncHandle) else one for one in given]
