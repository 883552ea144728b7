"""State in, lines of a terminal out.  Pure, but for the room that the window has, which it tells the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.cli.live.dialog import Dialog
from muster.cli.live.draw_task import detail_lines
from muster.cli.live.output_window import folded
from muster.cli.live.state import LIST_KEYS, OVERVIEW, State
from muster.cli.live.steady import steady
from muster.cli.output import (
    BOLD,
    DIM,
    RED,
    YELLOW,
    Screen,
    age,
    clock_time,
    colour_of,
    fit,
    plan_counts,
    ref_of,
    width,
    wrap,
)
from muster.model.forms import FormField
from muster.model.json_value import Json
from muster.model.keys import KEYS
from muster.model.wording import counted

STALE_MS = 3_000
"""Who was not heard for so long may hang."""
_LOG_SHARE = 0.4
_ROWS_MIN = 3
_REF_WIDTH_MAX = 32
_STATE_WIDTH = 11
_WHO_WIDTH = 16
_FOOT_ROWS = 3
_NARROW = 60
"""With fewer columns a row has no agent."""


def draw(state: State, size: tuple[int, int], screen: Screen, *, now_ms: int) -> list[str]:
    """`size` is (columns, rows); exactly so many lines, none longer."""
    columns, height = size
    head = [_header(state, columns, screen, now_ms), _crew(state, columns, screen)]
    foot = _foot(state, columns, screen)
    room = max(0, height - len(head) - len(foot))
    panel = _dialog(state.dialog, columns, screen)[:room] if state.dialog is not None else []
    room -= len(panel)
    if state.help is not None:
        body = _help(state.help, columns, room, screen)
    elif (review := state.review_shown) is not None:
        body = review.lines(columns, room, screen)
    elif state.open and state.chosen_row is not None:
        body = _page(state, columns, room, screen, now_ms)
    else:
        log_rows = int(room * _LOG_SHARE) if room >= 2 * _ROWS_MIN else 0
        body = _tasks(state, columns, room - log_rows, screen, now_ms)
        said = _whole_why(state, columns, body)[: max(0, log_rows - 2)]
        body += [*said, *_log(state, columns, log_rows - len(said), screen)]
    lines = [*head, *body[:room], *[""] * (room - len(body)), *panel, *foot]
    return lines[:height]


def _header(state: State, columns: int, screen: Screen, now_ms: int) -> str:
    counts: dict[str, int] = {}
    crew = ""
    if state.status is not None:
        crew = f"crew {state.status['status']['crew'].lower()}"
        counts = plan_counts(state.status["status"]["plans"], state.plan)
    plain = Screen("never")
    left = f" {steady(state.plan or 'muster')}  {plain.counts(counts)}  {crew}"
    stale = state.link == "live" and now_ms - state.heard_ms > STALE_MS
    live = state.link == "live" and not stale
    told = f"stale since {clock_time(state.heard_ms)}" if stale else steady(state.link)
    right = plain.badge("running" if live else "attempt failed", told)
    number = state.needs["number"] if state.needs else 0
    if number:
        right = f"{plain.badge('paused', f'{number} need you' if number > 1 else '1 needs you')}  {right}"
    text = fit(left, max(0, columns - width(right) - 2)) + " " + right
    colour = RED if not live else f"{BOLD};{YELLOW}" if number else BOLD
    return screen.paint(fit(text, columns).rstrip(), colour)


def _crew(state: State, columns: int, screen: Screen) -> str:
    parts = [state.view if not state.of_plan else f"plan {steady(state.of_plan)}"]
    if state.filter and state.typing is None:
        parts.append(f"/{steady(state.filter)}")
    if state.status is not None:
        parts += _agents(state, state.status["status"]["workers"])
    if state.cut:
        parts.append("(not all that wait are listed)")
    return screen.paint(fit(f" {'  '.join(parts)}", columns).rstrip(), DIM)


def _agents(state: State, workers: list[Json]) -> list[str]:
    if not workers:
        return ["no worker"]
    parts = [counted(len(workers), "worker")]
    busy = Counter(task["agent"] for task in state.tasks.values())
    for name in sorted({name for worker in workers for name in worker["agents"]}):
        hosts = [worker for worker in workers if name in worker["agents"] and name not in worker["unfit"]]
        parts.append(f"{steady(name)} {busy[name]} busy on {len(hosts)}")
    return parts


def _tasks(state: State, columns: int, room: int, screen: Screen, now_ms: int) -> list[str]:
    rows = state.window(room)
    if not rows:
        return ["", f"  {_nothing(state)}"][:room]
    cells = [_cells(row, now_ms) for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    widths[0] = min(widths[0], _REF_WIDTH_MAX, columns // 3)
    if columns < _NARROW:
        widths[1:] = [0] * len(widths[1:])
    return [
        _task(row, told, widths, columns, screen, chosen=row["id"] == state.chosen)
        for row, told in zip(rows, cells, strict=True)
    ]


def _whole_why(state: State, columns: int, drawn: Sequence[str]) -> list[str]:
    """The reason of the chosen row, where its own line was too short for it."""
    row = state.chosen_row
    if row is None:
        return []
    why = steady(row["why"])
    return (
        [] if any(why in line for line in drawn) else [f"  {line}" for line in folded(why, columns - 2)[:3]]
    )


def _nothing(state: State) -> str:
    if state.filter:
        return "no task fits the filter (Esc drops it)"
    told = {
        "inbox": "nothing waits for you",
        "plans": "no plan: muster run PLAN.md",
        "dead letter": "nothing",
    }
    return told.get(state.view, "nothing is open; a: what has ended")


def _cells(row: Json, now_ms: int) -> list[str]:
    """Its name, who has it, since when, how far: columns that no row of the window fills are left out."""
    held = row["agent"] is not None
    who = steady(row["agent"] or row["wantedAgent"] or "")
    return [
        steady(ref_of(row)),
        fit(f"{who} #{row['epoch']}", _WHO_WIDTH).strip() if row["epoch"] else who[:_WHO_WIDTH],
        age(now_ms - row["startedAtMs"]) if held and row["startedAtMs"] else "",
        f"{row['percent']}%" if held and row["percent"] else "",
    ]


def _task(
    row: Json, cells: Sequence[str], widths: Sequence[int], columns: int, screen: Screen, *, chosen: bool
) -> str:
    look = row["state"]
    held = row["agent"] is not None
    texts = [
        fit(Screen("never").badge(look, row.get("word")), _STATE_WIDTH),
        *(fit(text, room) for text, room in zip(cells, widths, strict=True) if room),
        steady(row["step"] if held and row["step"] else row["why"]),
    ]
    line = fit((">" if chosen else " ") + " " + "  ".join(texts), columns).rstrip()
    colour = colour_of(look)
    return screen.paint(line, f"{BOLD};{colour}".rstrip(";") if chosen else colour)


def _page(state: State, columns: int, room: int, screen: Screen, now_ms: int) -> list[str]:
    """All of one task above, what its agent says below."""
    row = state.chosen_row
    assert row is not None, "it is drawn for one"
    found = detail_lines(row, state.detail_shown, columns, screen, now_ms, attempt=state.attempt)
    most = max(_ROWS_MIN, int(room * (1 - _LOG_SHARE)))
    if len(found) > most:
        more = f"  ... {len(found) - most + 1} more lines: muster task show"
        found = [*found[: most - 1], screen.paint(fit(more, columns).rstrip(), DIM)]
    return [*found, *_log(state, columns, room - len(found), screen)]


def _log(state: State, columns: int, room: int, screen: Screen) -> list[str]:
    if room < 2:
        return [""] * max(0, room)
    if state.output.of is None:
        row = state.chosen_row
        told = "" if row is None or "kind" in row else "has not run yet"
        return [screen.paint(_rule(told, columns, screen), DIM), *[""] * (room - 1)]
    task = state.tasks.get(state.output.of[0])
    name = steady(ref_of(task)) if task is not None else str(state.output.of[0])
    title = f"{name} #{state.output.of[1]}  follow {'on' if state.output.follow else 'off'}"
    lines = [f"  {steady(line)}" for line in state.output.window(columns - 2, room - 1)]
    return [screen.paint(_rule(title, columns, screen), DIM), *lines, *[""] * (room - 1 - len(lines))]


def _rule(title: str, columns: int, screen: Screen) -> str:
    dash = "-" if screen.ascii_only else "─"
    return fit((f"{dash} {title} " if title else "") + dash * columns, columns, end="")


def _dialog(dialog: Dialog, columns: int, screen: Screen) -> list[str]:
    says = [
        line for text in dialog.says for part in text.splitlines() for line in wrap(steady(part), columns - 4)
    ]
    if len(says) > 8:
        says = [*says[:7], "... the whole of it: muster task show"]
    lines = [screen.paint(_rule(steady(dialog.title), columns, screen), BOLD)]
    lines += [fit(f"  {line}", columns).rstrip() for line in says]
    if dialog.wish:
        lines.append(fit("  It wants to do exactly this:", columns).rstrip())
        lines += [fit(f"    {steady(part)}", columns).rstrip() for part in dialog.wish.splitlines()[:6]]
    lines += [_field(dialog, one, columns, screen) for one in dialog.fields]
    return lines


def _field(dialog: Dialog, one: FormField, columns: int, screen: Screen) -> str:
    here = dialog.field is one
    if one.flag:
        text = f"  [{'x' if one.name in dialog.flags else ' '}] {one.label}"
    else:
        line = dialog.lines[one.name]
        label = f"  {one.label}: "
        room = max(4, columns - width(label) - 1)
        before, after = steady(line.text[: line.at]), steady(line.text[line.at :])
        while width(before) > room - 1:
            before = before[1:]
        cursor = "_" if here else ""
        text = fit(f"{label}{before}{cursor}{after}", columns, end="").rstrip()
    return screen.paint(fit(text, columns).rstrip(), BOLD if here else "")


def _help(at: int, columns: int, room: int, screen: Screen) -> list[str]:
    first = max(0, min(at - room // 2, len(LIST_KEYS) - room))
    lines = []
    for number, key in enumerate(LIST_KEYS[first : first + room], first):
        text = f"{'>' if number == at else ' '} {key.key.ljust(6)} {key.says}"
        lines.append(screen.paint(fit(text, columns).rstrip(), BOLD if number == at else ""))
    return lines


def _foot(state: State, columns: int, screen: Screen) -> list[str]:
    """One line; a message that needs more has up to three."""
    text, colour = _told(state)
    told = wrap(text, columns - 1)[:_FOOT_ROWS] if text == steady(state.message) else [text]
    return [screen.paint(fit(f" {line}", columns).rstrip(), colour) for line in told]


def _told(state: State) -> tuple[str, str]:
    if state.typing is not None:
        return f"/{steady(state.typing.text)}_", ""
    if (dialog := state.dialog) is not None:
        return dialog.message or _dialog_keys(dialog), BOLD
    if state.help is not None:
        return "Enter does it, and so does the key; Esc: back", DIM
    if state.message:
        return steady(state.message), ""
    return "  ".join(_hints(state)), DIM


def _dialog_keys(dialog: Dialog) -> str:
    at = dialog.field
    more = "  Tab: next" if len(dialog.fields) + (0 if dialog.needs else 1) > 1 else ""
    if at is not None and not at.flag:
        return f"Enter: {'go on' if dialog.sure else dialog.label.lower()}{more}  Esc: leave"
    if dialog.wish:
        return f"y: allow it  n: deny it{more}{'  Space: tick' if at else ''}  Esc: leave"
    named = f"{dialog.action} {steady(ref_of(dialog.row))}?"
    if at is not None:
        return f"{named}  y: yes  Space: tick{more}  Esc: no"
    return f"{named}  y: yes{more.replace('next', 'write first')}  any other key: no"


def _has_ended(state: State) -> bool:
    """Whether the attempt that is looked at can have left something: while it is at work nothing is kept."""
    row = state.chosen_row
    if row is None or not row["epoch"]:
        return False
    return state.attempt not in (None, row["epoch"]) or not row["atWork"]


def _hints(state: State) -> list[str]:
    """What the keys do to the row that is chosen; first of all how to find the others."""
    row, reviewing = state.chosen_row, state.review_shown is not None
    found = ["? keys", "esc back" if reviewing or state.open else "enter open"]
    found += [
        f"{key.key} {key.short if key.key in 'bwy' else action}"
        for key in KEYS
        if (action := state.possible(key, row)) and (not reviewing or key.key in "yb")
    ]
    if reviewing:
        return [*found, "enter comment", "n next file", "q leave"]
    if state.open:
        return [*found, *(["v review"] if _has_ended(state) else []), "q leave"]
    found.append("/ filter")
    if state.view == OVERVIEW and state.needs and state.needs["number"]:
        found.append("g i inbox")
    return [*found, "q leave"]
