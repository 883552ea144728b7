"""The page of one task, as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from muster.cli.live.steady import steady
from muster.cli.output import (
    BOLD,
    DIM,
    Screen,
    age,
    clock_time,
    colour_of,
    fit,
    ref_of,
    usage_words,
    width,
    wrap,
)
from muster.model import shown
from muster.model.json_value import Json

ATTEMPTS_SHOWN = MADE_SHOWN = 5
_NAMES = 9


def detail_lines(
    row: Json, detail: Json | None, columns: int, screen: Screen, now_ms: int, *, attempt: int | None
) -> list[str]:
    """`detail` is None until it has come."""
    task = detail["task"] if detail is not None else row
    plain = Screen("never")
    head = f" {plain.badge(task['state'])}  {steady(ref_of(task))}  {steady(task['title'])}"
    lines = [screen.paint(fit(head, columns).rstrip(), f"{BOLD};{colour_of(task['state'])}".rstrip(";"))]
    for name, text in _said(task, detail):
        lines += _field(name, text, columns, screen)
    for one in reversed(detail["attempts"][-ATTEMPTS_SHOWN:]) if detail is not None else ():
        lines.append(_attempt(one, columns, screen, now_ms, chosen=one["epoch"] == attempt))
    if detail is not None and (left := len(detail["attempts"]) - ATTEMPTS_SHOWN) > 0:
        lines.append(
            screen.paint(fit(f"  and {left} before: [ and ] go through them", columns).rstrip(), DIM)
        )
    return lines


def _said(task: Json, detail: Json | None) -> Iterator[tuple[str, str]]:
    yield "Why", task["why"]
    if task["fix"]:
        yield "Next", task["fix"]
    if task["question"] and "answer" in task["actions"]:
        yield "Asks", task["question"]
    if task["wish"]:
        yield "Wants", task["wish"]
    if task["remark"]:
        yield "Remark", task["remark"]
    if task["error"] and task["error"] not in task["why"]:
        yield "Error", shown.without_escapes(task["error"])
    if detail is None:
        return
    if detail["blocks"]:
        yield "Blocks", ", ".join(detail["blocks"])
    if detail["summary"]:
        yield "Said", detail["summary"]
    if detail["artifacts"]:
        made = [f"{name}  {location}" for name, location in detail["artifacts"]]
        yield (
            "Made",
            "\n".join([*made[:MADE_SHOWN], f"muster artifact get {shown.shell_word(ref_of(task))} NAME"]),
        )
    if detail["usage"]:
        yield "Cost", usage_words(detail["usage"])


def _field(name: str, text: str, columns: int, screen: Screen) -> Iterator[str]:
    room = max(10, columns - _NAMES)
    rows = [row for part in text.splitlines() for row in wrap(steady(part), room)]
    for at, row in enumerate(rows[:6]):
        label = screen.paint(f" {name.ljust(_NAMES - 1)}", DIM) if at == 0 else " " * _NAMES
        yield label + (row if width(row) <= room else fit(row, room).rstrip())


def _attempt(one: Json, columns: int, screen: Screen, now_ms: int, *, chosen: bool) -> str:
    plain = Screen("never")
    begun = one["startedAtMs"] or one["assignedAtMs"]
    took = age((one["endedAtMs"] or now_ms) - begun)
    told = [
        f"{'>' if chosen else ' '}#{one['epoch']}",
        clock_time(begun),
        took.rjust(4),
        plain.badge(shown.attempt_look(one), shown.attempt_word(one)),
        steady(one["agent"]),
        usage_words(one["usage"]) if one["usage"] else "",
        steady(shown.without_escapes(one["error"])),
    ]
    text = fit("  ".join(filter(None, told)), columns).rstrip()
    return screen.paint(text, colour_of(shown.attempt_look(one)))
