"""How things are shown to people, the same on every surface: glyphs and words, and texts made harmless.

Rows are JSON objects, as the API sends them.  Every command of the CLI imports this module: nothing here may be
slow to import.
"""

from __future__ import annotations

from muster.model.states import TaskStatus
from muster.model.wording import ACCEPTED, FOR_REVIEW, MAY_IT, SENT_BACK, counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from muster.model.json_value import Json

_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
_BIDI = frozenset(range(0x202A, 0x202F)) | frozenset(range(0x2066, 0x206A))


class Look:
    """`plain` is for terminals whose encoding has no such glyph."""

    __slots__ = ("glyph", "plain", "tone")

    def __init__(self, glyph: str, plain: str, tone: str) -> None:
        self.glyph, self.plain, self.tone = glyph, plain, tone


LOOKS: dict[str, Look] = {
    "blocked": Look("○", "o", "dim"),
    "waiting": Look("○", "o", "dim"),
    "ready": Look("◌", ".", "cyan"),
    "assigned": Look("◔", ">", "blue"),
    "running": Look("●", "*", "blue"),
    "stopping": Look("●", "*", "yellow"),
    "delayed": Look("◷", "~", "yellow"),
    "paused": Look("‖", "=", "yellow"),
    "completed": Look("✓", "+", "green"),
    "failed": Look("†", "!", "red"),
    "cancelled": Look("⊘", "x", "dim"),
    "archived": Look("·", "-", "dim"),
    "attempt failed": Look("✗", "x", "red"),
}
UNKNOWN = Look("·", "-", "")

COUNT_WORDS = {status.value: status.lower() for status in TaskStatus}
COUNT_WORDS |= {TaskStatus.PENDING: "waiting", TaskStatus.ABORTED: "delayed"}
COUNT_ORDER = (
    *(TaskStatus.COMPLETED, TaskStatus.RUNNING, TaskStatus.ASSIGNED, TaskStatus.PENDING),
    *(TaskStatus.ABORTED, TaskStatus.PAUSED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.ARCHIVED),
)

EVENT_WORDS = {
    "enqueued": ("waiting", "added"),
    "unblocked": ("ready", "ready"),
    "promoted": ("ready", "ready"),
    "retried": ("ready", "retried"),
    "released": ("ready", "released"),
    "claimed": ("assigned", "assigned"),
    "started": ("running", "running"),
    "progress": ("running", "progress"),
    "checkpoint": ("running", "checkpoint"),
    "artifact": ("running", "artifact"),
    "declared": ("running", "declared"),
    "suspected": ("stopping", "seems to hang"),
    "recovered": ("running", "goes on"),
    "stop_requested": ("stopping", "stopping"),
    "completed": ("completed", "completed"),
    "cancelled": ("cancelled", "cancelled"),
    "paused": ("paused", "paused"),
    "asked": ("paused", "asked"),
    "answered": ("ready", "answered"),
    "resumed": ("ready", "resumed"),
    "told": ("running", "told"),
    "transferred": ("ready", "transferred"),
    "aim_dropped": ("ready", "for any agent again"),
    "readopted": ("running", "is back"),
    "expired": ("failed", "expired"),
    "accepted": ("ready", ACCEPTED),
    "skipped": ("cancelled", "skipped"),
    "archived": ("archived", "archived"),
    "edited": ("waiting", "edited"),
}


def _named(code: int) -> str:
    return f"<{code:04X}>" if code >= 0x80 else "^" + chr(code ^ 0x40)


_NAMES = {code: _named(code) for code in (*range(0x20), *range(0x7F, 0xA0), *_BIDI)}
_NAMES_IN_LINES = {code: name for code, name in _NAMES.items() if chr(code) not in "\n\t"}


def clean(text: str) -> str:
    """`text` in one line, without anything that could move a terminal's cursor or turn its writing around."""
    if text.isascii() and text.isprintable():
        return text
    flat = " ".join(text.split()) if any(char in text for char in "\r\n\t\v\f") else text
    return flat.translate(_NAMES)


def inert(text: str) -> str:
    """As `clean`, but line ends and tabs stay."""
    return text if text.isprintable() else text.translate(_NAMES_IN_LINES)


def ref_of(row: Mapping[str, Any]) -> str:
    """`plan/key` of a task or an event."""
    return f"{row['plan']}/{row['key']}" if row["plan"] else str(row["key"])


def without_escapes(text: str) -> str:
    """`text` without the sequences that colour it, link it or move a terminal's cursor."""
    import re  # few commands need it

    return re.sub(_ESCAPE, "", text) if "\x1b" in text else text


def told(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """(look, word, the rest) of an event."""
    name, message = event["event"], event["message"]
    if name in ("failed", "lost"):
        if event["newStatus"] == TaskStatus.FAILED:
            return "failed", name, message
        return "attempt failed", name, f"{message}; will be retried"
    look, word = EVENT_WORDS.get(name, (COUNT_WORDS.get(event["newStatus"], ""), name))
    if name == "sent_back":
        again = event["newStatus"] == TaskStatus.ABORTED
        look, word = ("delayed", SENT_BACK) if again else ("paused", FOR_REVIEW)
    elif name == "started" and message.endswith(", by hand"):
        message = (
            f"{event['actor']}, by hand  attempt {event['epoch']}; its plan waits until it is given back"
        )
    elif name in ("started", "claimed"):
        agent = message.rpartition(" with agent ")[2] if " with agent " in message else ""
        message = f"{event['actor']} {agent}".rstrip() + f"  attempt {event['epoch']}"
    elif name == "asked":
        how = "--allow|--deny" if f"asks: {MAY_IT}" in message else "TEXT"
        message += f"  (muster answer {ref_of(event)} {how})"
    elif name == "enqueued" and message == "added":
        message = ""
    elif name == "artifact":
        message = message.removeprefix("artifact ")
    return look, word, message


def plan_counts(plans: Iterable[Mapping[str, Any]], name: str | None = None) -> dict[str, int]:
    """Tasks by status, of all plans or of the one that is named."""
    counts: dict[str, int] = {}
    for plan in plans:
        if name in (None, plan["name"]):
            for status, number in plan["counts"].items():
                counts[status] = counts.get(status, 0) + number
    return counts


_UNITS = ((1, "s", 100), (60, "m", 100 * 60), (3600, "h", 48 * 3600))


def age(ms: int) -> str:
    """`44s`, `5m`, `3h`, `2d`."""
    seconds = max(0, ms // 1000)
    for size, unit, until in _UNITS:
        if seconds < until:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def span(early_ms: int, middle_ms: int, late_ms: int) -> tuple[str, str, str]:
    """A time and the range around it in one unit, so that none contradicts another; never nothing."""
    early, middle, late = (max(1, -(-ms // 1000)) for ms in (early_ms, middle_ms, late_ms))
    size, unit = next(((size, unit) for size, unit, until in _UNITS if middle < until), (86400, "d"))
    for smaller, its_unit, _ in reversed(_UNITS):
        if early < size and smaller < size:
            size, unit = smaller, its_unit  # else it would be none of them
            break
    first, about, last = early // size, (2 * middle + size) // (2 * size), -(-late // size)
    return f"{max(1, first)}{unit}", f"{about}{unit}", f"{last}{unit}"


def shell_word(text: str) -> str:
    """`text` as it is typed into a shell; a key may hold blanks and `$`."""
    if all(char.isalnum() or char in "/._-@" for char in text) and text.isascii():
        return text
    from shlex import quote

    return quote(text)


def usage_words(usage: Mapping[str, Any]) -> str:
    """`12,300 tokens in, 450 out, $0.0381`."""
    if usage["estimated"] and not usage["inputTokens"] and not usage["outputTokens"]:
        return "cost not known"
    told = f"{usage['inputTokens']:,} tokens in, {usage['outputTokens']:,} out"
    if usage["costMicrousd"] is not None:
        about = "about " if usage["priced"] and not usage["estimated"] else ""
        told += f", {about}${usage['costMicrousd'] / 1e6:.4f}"
    return f"about {told}" if usage["estimated"] else told


def used_up(plan: Json) -> bool:
    """It is paused for its budget, and goes on once that is raised."""
    told: bool = plan.get("budgetUsedUp", True)  # a server that is older does not tell
    return plan["paused"] == "budget" and told


def paused_line(plan: Json) -> str:
    """Why a plan is paused, and what goes on with it."""
    name = plan["name"]
    if used_up(plan):
        return f"plan {name}: its budget is used up; `{paused_next(plan)}` raises it"
    if plan["paused"] == "budget":
        return f"plan {name}: its budget was used up, and is higher now; `{paused_next(plan)}` goes on"
    failed = f"{counted(plan['failures'], 'task')} failed in a row"
    reason = failed if plan["paused"] == "breaker" else "by a person"
    return f"plan {name}: {reason}; `{paused_next(plan)}` goes on"


def paused_next(plan: Json) -> str:
    """The command that goes on with a paused plan."""
    name = shell_word(plan["name"])
    return f"muster budget {name} USD" if used_up(plan) else f"muster plan resume {name}"


_ENDS = {"completed": "completed", "failed": "attempt failed", "lost": "attempt failed", "running": "running"}
_ENDS |= {"assigned": "assigned", "stopping": "stopping", "cancelled": "cancelled", "released": "waiting"}
_ENDS |= {FOR_REVIEW: "paused", SENT_BACK: "delayed", ACCEPTED: "completed"}


def attempt_word(attempt: Mapping[str, Any]) -> str:
    return str(attempt.get("state") or attempt["status"])  # a server that is older tells no state


def attempt_look(attempt: Mapping[str, Any]) -> str:
    """What an attempt is shown as: a key of LOOKS."""
    return _ENDS.get(attempt_word(attempt), "waiting")


def attempt_kind(attempt: Mapping[str, Any]) -> str:
    """The kind of its failure; empty where it has none, or its word says that already."""
    return str(attempt["errorKind"] or "") if attempt_word(attempt) == attempt["status"] else ""
