"""State in, lines of a terminal out.  Pure, but for the room that the window has, which it tells the state."""

from __future__ import annotations

from muster.cli.live.state import HELP, State
from muster.cli.output import (
    BOLD,
    DIM,
    RED,
    Screen,
    age,
    clean,
    colour_of,
    fit,
    plan_counts,
    ref_of,
    width,
)
from muster.model.json_value import Json
from muster.model.wording import counted

_LOG_SHARE = 0.4
_ROWS_MIN = 3
_REF_WIDTH_MAX = 32
_STATE_WIDTH = 11
_WHO_WIDTH = 16


def draw(state: State, size: tuple[int, int], screen: Screen, *, now_ms: int) -> list[str]:
    """`size` is (columns, rows); exactly so many lines, none longer."""
    columns, height = size
    head = [_header(state, columns, screen), _agents(state, columns, screen)]
    foot = [_foot(state, columns, screen)]
    room = max(0, height - len(head) - len(foot))
    if state.help:
        body = _help(columns, room, screen)
    else:
        log_rows = int(room * _LOG_SHARE) if room >= 2 * _ROWS_MIN else 0
        body = _tasks(state, columns, room - log_rows, screen, now_ms)
        body += _log(state, columns, log_rows, screen)
    lines = [*head, *body[:room], *[""] * (room - len(body)), *foot]
    return lines[:height]


def _header(state: State, columns: int, screen: Screen) -> str:
    counts: dict[str, int] = {}
    crew = ""
    if state.status is not None:
        crew = f"crew {state.status['status']['crew'].lower()}"
        counts = plan_counts(state.status["status"]["plans"], state.plan)
    plain = Screen("never")
    left = f" {clean(state.plan or 'muster')}  {plain.counts(counts)}  {crew}"
    live = state.link == "live"
    right = plain.badge("running" if live else "attempt failed", clean(state.link))
    text = fit(left, max(0, columns - width(right) - 2)) + " " + right
    return screen.paint(fit(text, columns).rstrip(), BOLD if live else RED)


def _agents(state: State, columns: int, screen: Screen) -> str:
    if state.status is None:
        return ""
    parts = []
    workers = state.status["status"]["workers"]
    for name in sorted({name for worker in workers for name in worker["agents"]}):
        hosts = [worker for worker in workers if name in worker["agents"] and name not in worker["unfit"]]
        busy = sum(task["agent"] == name for task in state.tasks.values())
        parts.append(f"{clean(name)} {busy} busy on {len(hosts)}")
    text = f" {counted(len(workers), 'worker')}  " + "  ".join(parts) if workers else " no worker"
    if state.cut:
        text += "  (not all that wait are listed)"
    return screen.paint(fit(text, columns).rstrip(), DIM)


def _tasks(state: State, columns: int, room: int, screen: Screen, now_ms: int) -> list[str]:
    rows = state.window(room)
    if not rows:
        told = "no task fits the filter" if state.filter else "nothing is open; a: what has ended"
        return ["", f"  {told}"][:room]
    refs = min(_REF_WIDTH_MAX, max(width(clean(ref_of(row))) for row in rows))
    return [_task(row, columns, refs, screen, now_ms, chosen=row["id"] == state.chosen) for row in rows]


def _task(row: Json, columns: int, refs: int, screen: Screen, now_ms: int, *, chosen: bool) -> str:
    word = row["state"]
    plain = Screen("never")
    held = row["agent"] is not None
    since = age(now_ms - row["startedAtMs"]) if held and row["startedAtMs"] else ""
    who = f"{clean(row['agent'] or row['wantedAgent'] or '-')} #{row['epoch']}" if row["epoch"] else "-"
    percent = f"{row['percent']:3d}%" if held and row["percent"] else "    "
    text = "  ".join(
        [
            fit(plain.badge(word), _STATE_WIDTH),
            fit(clean(ref_of(row)), refs),
            fit(who, _WHO_WIDTH),
            fit(since, 4),
            percent,
            clean(row["step"] if held and row["step"] else row["why"]),
        ]
    )
    line = fit((">" if chosen else " ") + " " + text, columns).rstrip()
    colour = colour_of(word)
    return screen.paint(line, f"{BOLD};{colour}".rstrip(";") if chosen else colour)


def _log(state: State, columns: int, room: int, screen: Screen) -> list[str]:
    if room < 2:
        return [""] * room
    if state.log_of is None:
        return [screen.paint(_rule("has not run yet", columns, screen), DIM), *[""] * (room - 1)]
    task = state.tasks.get(state.log_of[0])
    name = clean(ref_of(task)) if task is not None else str(state.log_of[0])
    title = f"{name} #{state.log_of[1]}  follow {'on' if state.follow else 'off'}"
    lines = [f"  {fit(clean(line), columns - 2).rstrip()}" for line in state.log_window(room - 1)]
    return [screen.paint(_rule(title, columns, screen), DIM), *lines, *[""] * (room - 1 - len(lines))]


def _rule(title: str, columns: int, screen: Screen) -> str:
    dash = "-" if screen.ascii_only else "─"
    return fit(f"{dash} {title} " + dash * columns, columns, end="")


def _help(columns: int, room: int, screen: Screen) -> list[str]:
    lines = ["", *(f"  {screen.paint(keys.ljust(3), BOLD)}  {text}" for keys, _, text in HELP)]
    return [line if width(line) <= columns + 8 else fit(line, columns) for line in lines][:room]


def _foot(state: State, columns: int, screen: Screen) -> str:
    if state.typing:
        return fit(f" /{clean(state.filter)}_", columns).rstrip()
    if state.confirm is not None:
        asked = state.confirm
        text = f" {asked.action} {clean(asked.ref)}?  y: yes, any other key: no"
        return screen.paint(fit(text, columns).rstrip(), BOLD)
    if state.message:
        return fit(f" {clean(state.message)}", columns).rstrip()
    keys = [f"{key} {word}" for key, word, _ in HELP if word]
    shown = f" {'  '.join(keys)}" + (f"   /{clean(state.filter)}" if state.filter else "")
    return screen.paint(fit(shown, columns).rstrip(), DIM)
