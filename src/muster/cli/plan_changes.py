"""What an edited plan file says otherwise: which task each of its boxes is, and what is told of the rest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping

from muster.cli.output import clean
from muster.cli.plan_sync import asked_first
from muster.client.api import Api
from muster.model.errors import BadInput
from muster.model.fields import ATTRIBUTES, FILLED
from muster.model.json_value import Json
from muster.model.states import FINAL, MAY_BEGIN, TaskStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.model.edits import Doubt, MovedBox

TOLD_MAX = 5
ALL = "all"
_NOT_BEGUN = MAY_BEGIN | {TaskStatus.PAUSED}
_WORDS = {"description": "text"} | {field.name: field.attribute for field in ATTRIBUTES.values()}


def add_saying(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--same",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the task that was called OLD in the file is called NEW now; `all`: each that is asked about",
    )
    parser.add_argument(
        "--new-task",
        action="append",
        default=[],
        metavar="NAME",
        help="what is called NAME in the file is a new task, whatever it resembles",
    )


def said_or_asked(args: argparse.Namespace, api: Api, content: Json, post: Callable[[], Json]) -> Json:
    """What `post` answers: at once, or after `find_out` where there is something to say."""
    from muster.model.errors import BoxesMoved

    take_said(args, content)
    try:
        return post()
    except (BadInput, BoxesMoved):
        find_out(args, api, content)
        return post()


def find_out(args: argparse.Namespace, api: Api, content: Json, *, ask: bool = True) -> None:
    """Puts into `content` which boxes are tasks that were called otherwise before, or other work than another
    plan's; asks at a terminal.

    Raises BadInput where the first has to be said and nobody is there to be asked, BoxesMoved for the second.
    """
    from msgspec import convert

    from muster.model.edits import PlanDiff
    from muster.model.identity import asked
    from muster.model.moved import refusal

    there = ask and not args.json and sys.stdin.isatty() and sys.stderr.isatty()
    take_said(args, content)
    while (diff := convert(api.post("/api/v1/plans/diff", content), PlanDiff)).doubts:
        doubt = diff.doubts[0]
        if ALL in args.same and len(doubt.may_be) == 1:
            content["same"][doubt.box] = doubt.may_be[0].box
        elif not there or not _ask(doubt, content):
            raise BadInput(*asked(diff.doubts))
    new = {*diff.added, *(diff.restored if getattr(args, "update", False) else ())}
    if moved := [one for one in diff.moved if one.key in new]:
        if not args.new and not (there and _is_other_work(moved)):
            raise refusal(moved, content["source"])
        content["apart"] = [one.task.id for one in moved]


def take_said(args: argparse.Namespace, content: Json) -> None:
    """Raises BadInput for what is not in the file."""
    said = [text.partition("=") for text in args.same if text != ALL]
    if wrong := [old for old, equals, new in said if not (old and equals and new)]:
        raise BadInput(f"--same {wrong[0]}: say which it was and is: OLD=NEW; nothing was changed")
    content["same"] = {new: old for old, _, new in said}
    content["newTasks"] = list(args.new_task)
    boxes = {task["key"] for task in content["tasks"]}
    for name in (*content["same"], *content["newTasks"]):
        if name not in boxes:
            raise BadInput(f"there is no task {name!r} in the file; nothing was changed")


def _ask(doubt: Doubt, content: Json) -> bool:
    """False where nobody answers."""
    _say(
        f"{doubt.box} is new in the file: {doubt.title}",
        "Is it one of these tasks, which are no longer in it?",
    )
    _say(
        *(
            f"  {n}  {task.box}: {task.title} ({task.status.lower()})"
            for n, task in enumerate(doubt.may_be, 1)
        )
    )
    numbers = {str(number): task.box for number, task in enumerate(doubt.may_be, 1)}
    words = {"yes": "1", "y": "1"} if len(numbers) == 1 else {}
    answer = _answer(f"[{'/'.join(numbers)}, n: it is new] ", numbers, {**words, "no": "n"})
    if answer in numbers:
        content["same"][doubt.box] = numbers[answer]
    elif answer:
        content["newTasks"].append(doubt.box)
    return bool(answer)


def _is_other_work(moved: list[MovedBox]) -> bool:
    _say("These boxes stood in another plan's file before:")
    _say(*(f"  {one.box}: {one.task.source}, now {one.task.status.lower()}" for one in moved))
    return _answer("Are they other work, to be done as well? [y/n] ", {"y"}, {"yes": "y", "no": "n"}) == "y"


def _say(*lines: str) -> None:
    for line in lines:
        print(clean(line), file=sys.stderr)


def _answer(question: str, known: Collection[str], words: Mapping[str, str]) -> str:
    """One of the `known` ones, or "n"; `words` are other ways to say them.  Empty where nobody answers."""
    while True:
        print(question, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        said = words.get(line.strip().lower(), line.strip().lower())
        if not line or said == "n" or said in known:
            return said


def tell(
    diff: Json, say: Callable[[str], None], *, applied: bool, standing: Callable[[], Json | None]
) -> None:
    """What was found in an edited file, for people; `applied`: all of it was taken over.  `standing` is how the
    plan and its file stand to each other; None where nobody watches a file."""
    _some("Renamed", (f"{one['was']} is {one['box']} now" for one in diff["renamed"]), say)
    changed = [one for one in diff["changed"] if not one["kept"]]
    _some("Changed", (f"{one['key']}: {fields_of(one)}" for one in changed), say)
    stays = [*(one for one in diff["changed"] if one["kept"])]
    _some(
        "Kept",
        (f"{one['key']}: {fields_of(one) or 'it is'} not changed: {one['kept']}" for one in stays),
        say,
    )
    out = [one for one in diff["removed"] if not one["kept"]]
    ended = ("archived", "cancelled") if applied else ("has ended", "still to be done")
    _some(
        "Gone",
        (f"{one['key']} is not in the file: {ended[one['status'] not in FINAL]}" for one in out),
        say,
    )
    if applied:
        _some("Back", (f"{key} starts anew" for key in diff["restored"]), say)
    elif changed or diff["restored"] or any(one["status"] not in FINAL for one in out):
        _some("Back", (f"{key} was taken out before, and stays so" for key in diff["restored"]), say)
        say("         left as they are; --update makes the plan what its file says")
        edited = [one for one in changed if not FILLED.issuperset(one["fields"])]
        keys = {one["key"] for one in [*edited, *out] if one["status"] in _NOT_BEGUN}
        if keys and (found := standing()) and (until := _held_until(keys, found)):
            say(f"         what has not begun is held until {until}")


def _held_until(keys: Collection[str], found: Json) -> str:
    """Empty where a person has said already that these stay as they are."""
    left = [(key, kind) for key, kind, *_ in found["untaken"] if key in keys]
    asked = any(one["key"] in keys for one in found["conflicts"])
    if asked or any(asked_first(found, kind) for _, kind in left):
        return "you say so"
    return "it is taken in" if left else ""


def fields_of(change: Json) -> str:
    """As a plan file calls them."""
    return ", ".join(_WORDS.get(name, name) for name in change["fields"])


def _some(word: str, told: Iterable[str], say: Callable[[str], None]) -> None:
    lines = list(told)
    for number, line in enumerate(lines[:TOLD_MAX]):
        say(f"{'' if number else word:8} {line}")
    if len(lines) > TOLD_MAX:
        say(f"         and {len(lines) - TOLD_MAX} more: muster plan diff")
