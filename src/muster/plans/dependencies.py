"""What `after=` and `parent=` name, and the cycles that they must not make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .problems import Problems, quoted

CYCLES_TOLD_MAX = 20
CYCLE_SHOWN_MAX = 12
_VERBS = {"wait": ("waits for", "wait for"), "belong": ("belongs to", "belong to")}


def resolve(
    names: Iterable[str],
    line: int,
    keys: Mapping[str, int],
    aliases: Mapping[str, list[str]],
    problems: Problems,
    *,
    attribute: str = "after",
) -> tuple[str, ...]:
    """The keys of the tasks that are named, each by its key or an alias; unknown names go to `problems`."""
    found: dict[str, None] = {}
    for name in names:
        meant = [name] if name in keys else aliases.get(name, [])
        if len(meant) == 1:
            found[meant[0]] = None
        elif meant:
            lines = " and ".join(str(keys[key]) for key in meant)
            problems.add(line, f"{attribute}={name} may be any of lines {lines}: name one by its {{#id}}")
        else:
            problems.add(line, f"{attribute}={name}: no such task in this plan", name, keys.keys())
    return tuple(found)


def find_cycles(
    after: Mapping[str, Sequence[str]], lines: Mapping[str, int], problems: Problems, verb: str = "wait"
) -> None:
    """Notes the cycles among tasks: every one that a walk in the file's order runs into, up to a limit."""
    done: set[str] = set()
    told = 0
    for root in after:
        trail: dict[str, None] = {}
        todo: list[tuple[str, bool]] = [(root, False)]
        while todo and told < CYCLES_TOLD_MAX:
            key, leaving = todo.pop()
            if leaving:
                del trail[key]
                done.add(key)
            elif key in trail:
                names = list(trail)
                _tell([*names[names.index(key) :], key], lines, problems, _VERBS[verb])
                told += 1
            elif key not in done:
                trail[key] = None
                todo.append((key, True))
                todo.extend((other, False) for other in reversed(after.get(key, ())))


def _tell(cycle: list[str], lines: Mapping[str, int], problems: Problems, verbs: tuple[str, str]) -> None:
    if len(cycle) == 2:
        problems.add(lines[cycle[0]], f"the task {verbs[0]} itself: {' -> '.join(cycle)}")
        return
    first = cycle.index(min(cycle, key=lambda key: lines[key]))
    cycle = [*cycle[first:-1], *cycle[:first], cycle[first]]
    shown = cycle
    if len(cycle) > CYCLE_SHOWN_MAX:
        shown = [*cycle[: CYCLE_SHOWN_MAX - 2], f"({len(cycle) - CYCLE_SHOWN_MAX} more)", *cycle[-2:]]
    problems.add(lines[cycle[0]], f"these tasks {verbs[1]} each other: {' -> '.join(shown)}")


def duplicate(key: str, line: int, first: int, problems: Problems, *, explicit: bool) -> None:
    """Notes that the task on `line` has the key of the one on line `first`."""
    if explicit:
        problems.add(line, f"{quoted(key)} is also the id of line {first}: rename one of them")
    else:
        problems.add(
            line, f"same task as line {first} ({quoted(key)}): tell them apart with an {{#id}} on this line"
        )
