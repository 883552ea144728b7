"""`--fields`: the parts of an answer that were asked for, the same way for every command that shows something.

A list is one line for each row, a single thing one line: on a terminal a table, for a program one TAB between.
With `--json` the same fields are JSON.
"""

from __future__ import annotations

import json
from functools import partial

from muster.cli.output import Screen, clean, listed, print_json
from muster.model.errors import BadInput
from muster.model.wording import near

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Json = Mapping[str, Any]


def add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fields",
        metavar="NAME,...",
        help="only these fields, in this order; separated by TABs for programs",
    )


def names_of(view: str, *more: str) -> tuple[str, ...]:
    """`more`, then the fields of that class of `muster.model.views`: for a list that may be empty."""
    from muster.model import views

    names: tuple[str, ...] = getattr(views, view).__struct_encode_fields__
    return (*more, *(name for name in names if name not in more))


def task_names() -> tuple[str, ...]:
    """The fields of a task as it is listed."""
    return names_of("TaskView", "ref", "state")


def refuse_unknown(args: argparse.Namespace, known: Callable[[], Sequence[str]]) -> None:
    """For commands that change something: before they do.  Raises BadInput."""
    if args.fields is not None:
        _chosen(args.fields, known())


def print_rows(
    args: argparse.Namespace,
    rows: Sequence[Json],
    show: Callable[[Screen], None],
    *,
    names: Callable[[], Sequence[str]],
    whole: Any = None,
) -> None:
    """`rows` as JSON, as the fields that were asked for, or as `show` does it.  Raises BadInput.

    `names` are those that a row may have, for a list that is empty; `whole` is the JSON answer where that is not
    `rows`.
    """
    if args.fields is None:
        _print_whole(args, rows if whole is None else whole, show)
        return
    chosen = _chosen(args.fields, dict.fromkeys([*(name for row in rows for name in row), *names()]))
    screen = Screen(args.color)
    if args.json:
        print_json([{name: row.get(name) for name in chosen} for row in rows])
    elif screen.tty:
        cells = {name.upper(): partial(_cell, name) for name in chosen}
        screen.table(rows, cells, give=chosen[-1].upper())
    else:
        for row in rows:
            screen.line("\t".join(_cell(name, row) for name in chosen))


def _print_whole(args: argparse.Namespace, value: Any, show: Callable[[Screen], None]) -> None:
    if args.json:
        print_json(value)
    else:
        show(Screen(args.color))


def print_tasks(args: argparse.Namespace, tasks: Iterable[Json], show: Callable[[Screen], None]) -> None:
    print_rows(args, [listed(task) for task in tasks], show, names=task_names)


def answer(args: argparse.Namespace, thing: Json, *lines: str) -> int:
    """`thing` for programs, the lines for people; the exit code of what went well."""
    if args.json:
        print_json(thing)
    else:
        print("\n".join(lines), flush=True)
    return 0


def print_one(
    args: argparse.Namespace, thing: Json, show: Callable[[Screen], None], *, whole: Any = None
) -> None:
    """As `print_rows` for a single thing; `whole` is the JSON answer where that is not `thing`."""
    if args.fields is None:
        _print_whole(args, thing if whole is None else whole, show)
        return
    chosen = _chosen(args.fields, list(thing))
    screen = Screen(args.color)
    if args.json:
        print_json({name: thing[name] for name in chosen})
    elif screen.tty:
        screen.fields([(name, _cell(name, thing)) for name in chosen])
    else:
        screen.line("\t".join(_cell(name, thing) for name in chosen))


def _chosen(text: str, known: Iterable[str]) -> list[str]:
    """Raises BadInput for a field that there is not."""
    known = list(known)
    chosen = [name.strip() for name in text.split(",")]
    unknown = next((name for name in chosen if name not in known), None)
    if unknown is not None:
        lower = {name.lower(): name for name in known}
        raise BadInput(
            f"there is no field {unknown!r}{near(unknown.lower(), lower, lower)}",
            f"fields: {', '.join(known)}",
        )
    return chosen


def _cell(name: str, row: Json) -> str:
    value = row.get(name)
    if value is None:
        return ""
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
