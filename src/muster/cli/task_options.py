"""The options that say what a task is, for `muster task add`, `run` and `edit`: all of `model.fields`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from muster.cli.context import Context
from muster.cli.task_actions import one, refuse_unknown_agent
from muster.model import kinds
from muster.model.errors import BadInput
from muster.model.fields import OPTIONS, Field, camel

PROMPT_BYTES_MAX = 4 << 20


def add_task_options(parser: argparse.ArgumentParser, *, editing: bool = False) -> None:
    """`editing`: an empty value takes away what was there."""
    for field in OPTIONS:
        if field.name == "title" and not editing:
            continue
        usual = "" if editing or field.usual in (None, "", (), {}) else f" ({field.usual})"
        action = parser.add_argument(
            f"--{field.option}",
            dest=field.name,
            metavar=field.metavar,
            type=partial(_value, field, editing),
            action="append",
            help=field.says.replace("`", "") + usual,
        )
        if field.kind.choices:
            action.known = field.kind.choices  # type: ignore[attr-defined]  # for completion


def _value(field: Field, editing: bool, text: str) -> dict[str, Any]:
    """By field, what the option says."""
    if editing and not text:
        return {field.name: field.usual}
    try:
        if field.kind is kinds.PAIRS:  # one each, since a value may hold a comma
            return {field.name: dict([kinds.pair(text)])}
        return field.read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not {field.expected}") from None


def given_fields(args: argparse.Namespace, context: Context) -> dict[str, Any]:
    """What the options say, as the body of a request.  Raises BadInput and NotFound."""
    given = stated(args)
    if given.get("agent"):
        refuse_unknown_agent(context, given["agent"])
    if "depends_on" in given:
        given["depends_on"] = [str(one(context, reference)["id"]) for reference in given["depends_on"]]
    return {camel(name): value for name, value in given.items()}


def stated(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say, by field of a task.  Raises BadInput."""
    found: dict[str, Any] = {}
    for field in OPTIONS:
        parts = getattr(args, field.name, None)
        for part in parts if isinstance(parts, list) else ():  # the title may be an argument
            for name, value in part.items():
                found[name] = _joined(field, found[name], value) if name in found else value
    if "description" in found:
        found["description"] = prompt_of(found["description"])
    return found


def _joined(field: Field, before: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return (*before, *(one for one in value if one not in before))
    if isinstance(value, dict):
        twice = next(iter(before.keys() & value.keys()), None)
        if twice is not None:
            raise BadInput(
                f"--{field.option} {twice} is given twice; nothing was changed", "give each key once"
            )
        return before | value
    return value


def prompt_of(text: str) -> str:
    if text != "-":
        return text
    data = sys.stdin.buffer.read(PROMPT_BYTES_MAX + 1)
    if len(data) > PROMPT_BYTES_MAX:
        raise BadInput(
            f"the prompt has more than {PROMPT_BYTES_MAX} bytes; nothing was changed", "name a file in it"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the prompt is not UTF-8: {error}; nothing was changed", "save it as UTF-8") from None
