"""`muster task add | run | edit`: what a task is, by the options that say it: all of `model.fields`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from muster.cli.context import Context, after_change, connect, project_of
from muster.cli.fields import add_fields, print_one, refuse_unknown, task_names
from muster.cli.output import Screen, clean, listed, ref_of, refused
from muster.cli.task_actions import one, refuse_unknown_agent
from muster.cli.task_run import existing, run_alone, run_now
from muster.cli.values import of_kind, stdin_bytes
from muster.cli.waiting import ENDED, FOREVER_S, Waiting, add_waiting
from muster.client.api import task_path
from muster.model import kinds
from muster.model.errors import BadInput, IllegalMove, NotFound
from muster.model.fields import OPTIONS, Field, camel
from muster.model.json_value import Json
from muster.model.states import PauseReason

PROMPT_BYTES_MAX = INPUT_BYTES_MAX = 4 << 20


def add(verbs: Any) -> None:
    adding = verbs.add_parser("add", act=_add, help="add one task")
    running = verbs.add_parser("run", act=_add, help="run one task now, a new one or one that there is")
    running.description = (
        "Adds a task and waits until it has ended. With the reference of a task that there is (plan/key, its "
        "number or @last) runs that one before all others: in the crew that is up, else in one of its own that "
        "does nothing else."
    )
    for parser in (adding, running):
        add_waiting(parser, ENDED, timeout=False)
        _add_options(parser)
    editing = verbs.add_parser("edit", act=_edit, help="change a task's fields; the others stay")
    editing.description = "An empty value takes away what was there: --agent '' lets any agent do it."
    editing.description += " A list replaces the old one."
    editing.add_argument("ref", metavar="REF")
    add_task_options(editing, editing=True)
    add_fields(editing)


def _add_options(parser: argparse.ArgumentParser) -> None:
    name = partial(of_kind, kinds.NAME)
    parser.add_argument("title", metavar="TITLE")
    parser.add_argument("--plan", metavar="PLAN", type=name, help="the plan that it belongs to (tasks)")
    parser.add_argument("--key", metavar="KEY", type=name, help="its name within the plan")
    add_task_options(parser)
    parser.add_argument("--parent", metavar="REF", help="the task that this one came from")
    parser.add_argument(
        "--idempotency-key", metavar="K", type=name, help="repeating the command adds nothing"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only say which agent would get it, and why; change nothing"
    )
    add_fields(parser)


def _add(args: argparse.Namespace) -> int:
    if not args.title.strip():
        raise BadInput("the title is empty; nothing was added", "muster task add TITLE")
    refuse_unknown(args, lambda: [*task_names(), "added"])
    mute = args.json or args.fields is not None
    if args.dry_run:
        return _dry_run(args)
    with connect(args) as context:
        if args.verb == "run" and (there := existing(context, args.title)) is not None:
            return _run_existing(args, context, there)
        if args.verb == "run" and args.wait is None:
            args.wait = FOREVER_S
        waiting = Waiting(args, context, mute=mute)
        added = context.post("/api/v1/agent-tasks", **_body(args, context))
        task = after_change(context, added["taskIds"][0], "added" if added["added"] else "there already")
        if not mute:
            _tell(args, task, "added" if added["added"] else "was there already; nothing was added")
        ended = waiting.tasks([task["id"]])
    print_one(args, {**listed(*(ended or [task])), "added": bool(added["added"])}, lambda _: None)
    return waiting.code(ended)


def _run_existing(args: argparse.Namespace, context: Context, task: Json) -> int:
    if _body(args, context).keys() - {"title"}:
        raise BadInput(
            f"{ref_of(task)} is there, and options say what a new task is; nothing was started",
            "muster task edit changes it",
        )
    code = run_now(args, context, task)
    return run_alone(args, context, task) if context.direct else code


def _tell(args: argparse.Namespace, task: Json, what: str) -> None:
    screen = Screen(args.color)
    screen.line(f"{screen.badge('ready', '')} {clean(ref_of(task))}  {what}  ({clean(task['why'])})")
    screen.stream.flush()


def _dry_run(args: argparse.Namespace) -> int:
    """As `muster plan add --dry-run` says it for a whole file.  Raises NotFound for an unknown agent."""
    from muster.app.plan_tasks import unknown_agents
    from muster.app.settings import load_config
    from muster.cli.plan_file import Given, others_in
    from muster.cli.plan_takers import show_takers
    from muster.model.edits import PlanDocument, PlanTask

    if args.fields is not None or args.wait is not None:
        raise BadInput("--dry-run adds nothing that could be waited for or have fields", "leave these out")
    project = project_of(args)
    config = load_config(project.root)
    task = PlanTask(key=args.key or "-", title=args.title, **stated(args))
    document = PlanDocument(name=args.plan or "tasks", title="", tasks=(task,))
    if unknown_agents(document, config, others_in(project, Given(document, None))):
        raise NotFound(
            f"there is no agent {task.agent}; nothing was changed",
            f"add [agents.{task.agent}] to muster.toml, or use one of: {', '.join(sorted(config.agents))}",
        )
    return show_takers(args, document, config)


def _body(args: argparse.Namespace, context: Context) -> Json:
    body: Json = {
        "title": args.title,
        "plan": args.plan,
        "key": args.key,
        "idempotencyKey": args.idempotency_key,
        "parentTaskId": None if args.parent is None else one(context, args.parent)["id"],
    }
    return {name: value for name, value in body.items() if value is not None} | given_fields(args, context)


def _edit(args: argparse.Namespace) -> int:
    refuse_unknown(args, task_names)
    with connect(args) as context:
        task = one(context, args.ref)
        task_fields = given_fields(args, context)
        if "title" in task_fields and not (task_fields["title"] or "").strip():
            raise BadInput("the title is empty; nothing was changed", "muster task edit REF --title TEXT")
        if not task_fields:
            raise BadInput("nothing was asked to be otherwise", "muster task edit --help")
        try:
            context.post(task_path(task["id"], "edit"), **task_fields)
        except IllegalMove as error:
            raise refused(error, ref_of(task), task["id"]) from None
        after = after_change(context, task["id"], "edited")
    print_one(args, listed(after), lambda _: _tell(args, after, _edited(task, after)))
    return 0


def _edited(task: Json, after: Json) -> str:
    if after == task:
        return "is like that already"
    over = task["pausedReason"] == PauseReason.REVIEW and after["pausedReason"] != PauseReason.REVIEW
    return "edited; its review is over, and it is done anew" if over else "edited"


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
        if field.kind is kinds.OBJECT:
            return field.read(_from_file(text))
        if field.kind is kinds.PAIRS:  # one each, since a value may hold a comma
            return {field.name: dict([kinds.pair(text)])}
        return field.read(text)
    except ValueError:
        # What may hold secrets is not repeated.
        shown = "this" if field.kind is kinds.OBJECT else repr(text[:50])
        raise argparse.ArgumentTypeError(f"{shown} is not {field.expected}") from None


def _from_file(text: str) -> str:
    """What the file of `@FILE` holds, or stdin for `-`: an argument is shown in the process list."""
    if text == "-":
        data: bytes = stdin_bytes("the input", INPUT_BYTES_MAX, "less of it")
        return data.decode()
    if not text.startswith("@"):
        return text
    from pathlib import Path

    try:
        return Path(text[1:]).read_text("utf-8")
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {error.strerror}") from None


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
    try:
        return stdin_bytes("the prompt", PROMPT_BYTES_MAX, "name a file in it").decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the prompt is not UTF-8: {error}; nothing was changed", "save it as UTF-8") from None
