"""What people are asked and told of the order in which a plan's tasks follow each other."""

from __future__ import annotations

import sys

from muster.app.plan_tasks import ORDER_WORDS, Chosen
from muster.cli.output import clean, note, shell_word
from muster.model.edits import PlanDocument
from muster.model.json_value import Json
from muster.model.states import FILE_ORDER, FREE, ORDERS, PHASES

WAVES_SHOWN = 20
DOUBTS_SHOWN = 5
WAVE_KEYS_SHOWN = 8


def kept_order(plans: list[Json], source: str | None, name: str) -> str:
    """How the plan of this file, or without one of this name, goes on so far."""
    for plan in plans:
        if plan["source"] == source and (source is not None or plan["name"] == name):
            order: str = plan["order"]
            return order
    return ""


def asked(document: PlanDocument) -> str:
    """What a person at the terminal says; empty where nobody is there, or answers."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    headings = {task.section for task in document.tasks}
    offered = [order for order in ORDERS if order != PHASES or len(headings) > 1]
    tasks = sum(not task.is_group for task in document.tasks)
    print(f"{clean(document.name)}: nothing says how its {tasks} tasks follow each other", file=sys.stderr)
    for order in offered:
        print(f"  {order:<7} {ORDER_WORDS[order]}", file=sys.stderr)
    while True:
        print(f"Which one? [{'/'.join(offered)}] ({FILE_ORDER}) ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return ""
        said = line.strip().lower() or FILE_ORDER
        meant = [order for order in offered if order.startswith(said)]
        if said in offered:
            return said
        if len(meant) == 1:
            return meant[0]


def unasked(document: PlanDocument, chosen: Chosen) -> str:
    """What is told of an order that nobody has said; empty where somebody has."""
    if not chosen.why or not (chosen.guessed or chosen.order == document.dialect_order):
        return ""
    off = f"; `order: {FREE}` at its top, or --order {FREE}, switches this off"
    return chosen.words + (off if chosen.order != FREE else "")


def tell_doubts(document: PlanDocument, file: str) -> None:
    """The first of what looks odd in a plan."""
    for line in document.doubts[:DOUBTS_SHOWN]:
        note(clean(line))
    if len(document.doubts) > DOUBTS_SHOWN:
        note(f"more looks odd in it: muster plan check {shell_word(file)}")


def recognised(document: PlanDocument) -> Json:
    return {"dialect": document.dialect, "dialectWhy": document.dialect_why} if document.dialect else {}


def told(document: PlanDocument, chosen: Chosen) -> list[str]:
    """What the plan was taken for, and what follows."""
    lines = []
    if document.dialect:
        why = f"{document.dialect_why}; `dialect: none` in its front matter switches this off"
        lines.append(f"Dialect  {document.dialect}: {why}")
    if chosen.why:
        lines.append(f"Order    {unasked(document, chosen) or chosen.words}")
    return lines


def drawn(found: list[list[str]]) -> list[str]:
    """Which tasks may run at once, wave after wave."""
    if sum(map(len, found)) < 2:
        return []
    if len(found) > 1 and all(len(wave) == 1 for wave in found):
        return [f"Waves    {len(found)}, of one task each"]
    lines = []
    for number, wave in enumerate(found[:WAVES_SHOWN], 1):
        more = f" and {len(wave) - WAVE_KEYS_SHOWN} more" if len(wave) > WAVE_KEYS_SHOWN else ""
        lines.append(f"Wave {number:<3} {', '.join(wave[:WAVE_KEYS_SHOWN])}{more}")
    if len(found) > WAVES_SHOWN:
        lines.append(f"and {len(found) - WAVES_SHOWN} more waves")
    return lines
