"""Other names for fields of a task that programs may write: each is taken in like our own.

{"estimatedDurationMinutes": 30} is {"estimatedS": 1800}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, defstruct
from msgspec.structs import fields

from muster.model.errors import BadInput
from muster.model.states import TaskStatus
from muster.model.wording import each_word


class Word(NamedTuple):
    ours: str
    """As the API writes it."""
    times: int = 1
    """How many of ours one of it is."""


WORDS = {
    "taskType": Word("profile"),
    "retryBackoffSeconds": Word("retryBackoffS"),
    "estimatedDurationMinutes": Word("estimatedS", 60),
}


STATUS_WORDS: dict[str, tuple[TaskStatus, ...]] = {
    "QUEUED": (TaskStatus.PENDING,),
    "WAITING": (TaskStatus.PENDING, TaskStatus.ABORTED),
    "CLAIMED": (TaskStatus.ASSIGNED,),
    "IN_PROGRESS": (TaskStatus.ASSIGNED, TaskStatus.RUNNING),
    "STALLED": (TaskStatus.ABORTED,),
    "RETRYING": (TaskStatus.ABORTED,),
    "DONE": (TaskStatus.COMPLETED,),
    "SUCCEEDED": (TaskStatus.COMPLETED,),
    "DEAD": (TaskStatus.FAILED,),
    "DEAD-LETTER": (TaskStatus.FAILED,),
    "CANCELED": (TaskStatus.CANCELLED,),
}
"""What other programs call our statuses."""
DELAYED = "delayed"
"""No status, but what people call some tasks of two."""


def statuses_of(words: Iterable[str]) -> tuple[TaskStatus, ...]:
    """Some may stand in one word, with commas between them.  Raises BadInput."""
    found: list[TaskStatus] = []
    for word in each_word(words):
        name = word.upper()
        if name not in STATUS_WORDS and name not in set(TaskStatus):
            known = ", ".join([*TaskStatus, *STATUS_WORDS]).lower()
            raise BadInput(f"{word[:40]!r} is no status of a task", f"one of {known}")
        found += STATUS_WORDS.get(name) or (TaskStatus(name),)
    return tuple(dict.fromkeys(found))


def wanted_of(words: Iterable[str]) -> tuple[tuple[TaskStatus, ...], bool]:
    """(which statuses, whether of those that wait only the delayed ones).  Raises BadInput."""
    asked = each_word(words)
    rest = [word for word in asked if word.lower() != DELAYED]
    statuses = statuses_of(rest)
    if len(rest) == len(asked):
        return statuses, False
    both = (*statuses, TaskStatus.PENDING, TaskStatus.ABORTED)
    return tuple(dict.fromkeys(both)), TaskStatus.PENDING not in statuses


def in_our_words(body: dict[str, Any]) -> dict[str, Any]:
    """Raises BadInput where a field is said twice."""
    found = dict(body)
    for name, word in WORDS.items():
        if name not in found:
            continue
        value = found.pop(name)
        if word.ours in found:
            raise BadInput(f"{name} and {word.ours} say the same; nothing was changed", "keep one of them")
        found[word.ours] = value * word.times if isinstance(value, int) and word.times > 1 else value
    parents = found.get("dependsOn")
    if isinstance(parents, list):
        found["dependsOn"] = [str(one) if type(one) is int else one for one in parents]
    return found


def with_all_words(shape: type[Struct]) -> type[Struct]:
    """A body that may say its fields with either name, to be described."""
    types = {one.encode_name: one.type for one in fields(shape)}
    more = []
    for name, word in WORDS.items():
        says = f"{f'{word.times} of it are one of' if word.times > 1 else 'The same as'} `{word.ours}`."
        more.append((name, Annotated[types[word.ours], Meta(description=says)] | None, None))
    return defstruct(shape.__name__, more, bases=(shape,), kw_only=True, forbid_unknown_fields=True)
