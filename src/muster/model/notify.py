"""What people are told where they are: on a phone, a desktop, in a chat, by mail.

A matter is something that a person would want to know of, once.  A channel is a place where they are told;
settings name it, and the store keeps what it is still to be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.model.shown import COUNT_WORDS, clean
from muster.model.states import PauseReason, TaskStatus
from muster.model.wording import counted

TITLE_CHARS_MAX = 120
TEXT_CHARS_MAX = 600
"""Of one matter: a screen that is locked shows less."""
LINES_MAX = 20
"""Matters that one digest names."""
_DAY_MIN = 24 * 60
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


class Matter(StrEnum):
    NEEDS_YOU = "needs-you"
    """A question, a review, a plan or a provider that goes on once a person has done something."""
    DEAD = "dead"
    """A task has failed for good."""
    BUDGET = "budget"
    QUOTA = "quota"
    """A provider takes nothing until some time."""
    SETTLED = "settled"
    """Nothing of a plan is left to do without a person."""


def of_status(status: TaskStatus, paused: PauseReason | None) -> Matter:
    """The matter of a task that asks a person."""
    if status is TaskStatus.FAILED:
        return Matter.DEAD
    return Matter.BUDGET if paused is PauseReason.BUDGET else Matter.NEEDS_YOU


class Quiet(Struct, frozen=True):
    """Hours of each day in which nothing is told, in minutes after midnight; the end belongs to the day."""

    begin_min: int
    end_min: int

    def holds(self, at_ms: int, zone: tzinfo | None) -> bool:
        """By the clock on the wall there: an hour that comes twice is quiet twice."""
        local = datetime.fromtimestamp(at_ms / 1000, zone)
        since_begin = (local.hour * 60 + local.minute - self.begin_min) % _DAY_MIN
        return since_begin < (self.end_min - self.begin_min) % _DAY_MIN

    def __str__(self) -> str:
        return "-".join(f"{at // 60:02d}:{at % 60:02d}" for at in (self.begin_min, self.end_min))


class ChannelPlan(Struct, frozen=True, kw_only=True, rename="camel"):
    """A channel as settings have it, without its secret."""

    name: str
    kind: str
    to: str
    """Where it leads, as far as that may be shown."""
    tells: tuple[Matter, ...]
    digest_s: float = 0.0
    """How long matters are collected, from the first one on."""
    quiet: str = ""
    """`22:00-07:00`; empty: never."""
    time_zone: str = ""
    """Of those hours; empty: that of the machine which tells."""


class ChannelView(ChannelPlan, frozen=True, kw_only=True):
    failures: int
    """Tries that failed since one was taken."""
    last_delivered_at_ms: int | None
    disabled: str
    """Why nothing is told there any more; empty where it is."""
    waiting: int
    """Matters that are still to be told, at most as many as are looked at."""


class Notification(Struct, frozen=True, kw_only=True):
    """What one message says, in texts that are in one line each and move nothing on a screen."""

    id: str
    """The same however often it is sent."""
    title: str
    text: str
    """Lines."""
    link: str
    """To where it is seen to; empty where no address is known.  It lets nobody in."""
    matters: tuple[Matter, ...]
    """Empty: a test."""
    at_ms: int

    @property
    def urgent(self) -> bool:
        return any(matter in (Matter.NEEDS_YOU, Matter.DEAD, Matter.BUDGET) for matter in self.matters)


class MatterLine(Struct, frozen=True, kw_only=True):
    """One matter in words."""

    matter: Matter | None
    head: str
    text: str
    link: str


def line_of(told: dict[str, Any], name: str, base: str, zone: tzinfo | None) -> MatterLine:
    """`told` is what was written of it, `name` its task's or plan's, `base` the pages' address."""
    matter = Matter(told["matter"]) if told.get("matter") else None
    said = told.get("reason", "") if matter is not Matter.SETTLED else _counts(told["counts"])
    text = shortened(said, TEXT_CHARS_MAX)
    if "taskId" in told:
        what, path = name, f"/tasks/{told['taskId']}"
    elif "planId" in told:
        what, path = f"plan {name}", f"/plans/{_segment(name)}"
    elif "pool" in told:
        what, path = told["pool"], "/inbox"
    else:
        return MatterLine(matter=None, head="Muster can tell you here", text="This is a test.", link=base)
    link = base + path if base else ""
    head = shortened(_head(matter, what, told, zone), TITLE_CHARS_MAX)
    return MatterLine(matter=matter, head=head, text=text, link=link)


def _head(matter: Matter | None, what: str, told: dict[str, Any], zone: tzinfo | None) -> str:
    match matter:
        case Matter.DEAD:
            return f"{what} has failed"
        case Matter.BUDGET:
            return f"{what} has used up its budget"
        case Matter.QUOTA:
            until = datetime.fromisoformat(told["until"]).astimezone(zone)
            return f"{what} takes nothing until {until:%d %b %H:%M}"
        case Matter.SETTLED:
            return f"{what} is settled"
        case _:
            return f"{what} needs you"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {COUNT_WORDS[status]}" for status, number in sorted(counts.items()))


def nothing_new(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether of a plan that was told to be settled, and is so again, nothing has moved but what waited for a
    person, who was told of each, while some still waits."""
    if not now.get(TaskStatus.PAUSED) or sum(now.values()) != sum(before.values()):
        return False
    return all(
        now.get(status, 0) >= number for status, number in before.items() if status != TaskStatus.PAUSED
    )


_LEFT = frozenset({TaskStatus.CANCELLED, TaskStatus.ARCHIVED})


def put_away(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether a person has seen to a plan since it was to be told that it is settled: nothing of it is wanted any
    more, or what was to wait there has been ended."""
    ended = _LEFT | {TaskStatus.COMPLETED}
    return now.keys() <= _LEFT or (now.keys() <= ended and not before.keys() <= ended)


def note_of(message_id: str, lines: Sequence[MatterLine], base: str, at_ms: int) -> Notification:
    """One matter as it is; several as a digest."""
    matters = tuple(line.matter for line in lines if line.matter is not None)
    if len(lines) == 1:
        (line,) = lines
        return Notification(
            id=message_id, title=line.head, text=line.text, link=line.link, matters=matters, at_ms=at_ms
        )
    shown = [f"{line.head}: {line.text}" if line.text else line.head for line in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        shown.append(f"and {len(lines) - LINES_MAX} more: muster inbox")
    return Notification(
        id=message_id,
        title=f"{counted(len(lines), 'matter')} of your crew",
        text="\n".join(shown),
        link=f"{base}/inbox" if base else "",
        matters=matters,
        at_ms=at_ms,
    )


def shortened(text: str, most: int) -> str:
    flat = clean(text)
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _segment(name: str) -> str:
    """As it stands in the path of an address."""
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in name.encode())
