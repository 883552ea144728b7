"""`muster secrets`: what agents are given in their environment, and nobody else is told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.cli.access import add_workspace_option, print_list, workspace
from muster.cli.context import actor, project_of
from muster.cli.db import shares_store
from muster.cli.fields import add_fields, answer
from muster.cli.output import age, clean, now_ms
from muster.cli.values import agreed, stdin_bytes
from muster.client.api import path_of
from muster.model.errors import BadInput, Conflict
from muster.model.json_value import Json
from muster.model.secrets import VALUE_CHARS_MAX, VALUE_CHARS_MIN, Secret, check_name, refuse_blank
from muster.model.wording import counted

_CELLS: Mapping[str, Callable[[Json], object]] = {
    "SECRET": itemgetter("name"),
    "SET": lambda row: f"{age(now_ms() - row['setAtMs'])} ago",
    "BY": itemgetter("setBy"),
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    put = verbs.add_parser("set", act=_set, help="its value comes from stdin, or is asked for and not shown")
    listing = verbs.add_parser("list", act=_list, help="those there are, without their values")
    dropped = verbs.add_parser("delete", act=_delete, help="no agent is given it any more")
    rotate = verbs.add_parser("rotate", act=_rotate, help="seal all that is sealed here by a new key")
    reset = verbs.add_parser(
        "reset", act=_reset, help="the key that servers share is lost: drop what it has sealed, and go on"
    )
    reset.add_argument("-y", "--yes", action="store_true", help="do not ask, also on a terminal")
    for verb in (put, dropped):
        verb.add_argument("name", metavar="NAME", help="of the variable that agents find it in")
    put.add_argument("given", nargs="*", help=argparse.SUPPRESS)
    for verb in (put, listing, dropped):
        add_workspace_option(verb)
    rotate.set_defaults(workspace=None)
    add_fields(listing)


def _set(args: argparse.Namespace) -> int:
    name, value_given, _ = args.name.partition("=")
    check_name(name)  # before anybody types its value
    if value_given or args.given:
        # Nothing of it is told: what is printed may be kept in a log.
        raise BadInput(
            "a value in a command can be read by whoever lists processes, and stays in the shell's history; "
            "nothing was changed",
            f"muster secrets set {name} asks for it, or reads it from stdin; better a new value than this one",
        )
    value = _value_of(args.name)
    with workspace(args) as context:
        context.post("/api/v1/secrets", name=args.name, value=value)
    return answer(args, {"name": args.name}, f"{args.name}  set")


def _list(args: argparse.Namespace) -> int:
    return print_list(args, "/api/v1/secrets", Secret, _CELLS, none="0 secrets")


def _delete(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        context.post(path_of("secrets", args.name, "remove"))
    return answer(args, {"name": args.name}, f"{args.name}  deleted")


def _rotate(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        done = context.post("/api/v1/vault/rotate")
    told = f"a new key: {done['secrets']} secrets, {done['webhooks']} webhooks and {done['tasks']} tasks"
    told += " sealed anew"
    if done["lost"]:
        told += (
            f"\n{done['lost']} tasks that have ended hold secrets whose key is lost; they stay as they were"
        )
    if done["leftToDo"]:
        told += f"\nleft to do: {done['leftToDo']}"
    return answer(args, done, told)


def _reset(args: argparse.Namespace) -> int:
    """Without a server: none of them begins without the key."""
    project = project_of(args)
    if not shares_store(project):
        raise Conflict(
            "this project's store is a file of its folder, which goes on without its key; nothing was changed",
            "give anew what the key has sealed: muster secrets set NAME, muster webhook remove and add, muster "
            "task edit --input-context @FILE",
        )
    question = "Drop all secrets and webhooks of that store, whose key is lost?"
    asked = sys.stdin.isatty() and sys.stderr.isatty() and not args.yes
    if not (args.yes or (asked and agreed(question))):
        raise BadInput("nobody has agreed; nothing was changed", "muster secrets reset --yes")
    import asyncio

    from muster.app.reset_keys import reset_keys
    from muster.app.settings import load_config

    done = asyncio.run(reset_keys(project, load_config(project.root).serve, actor()))
    gone = [f"  secret   {clean(name)}: muster secrets set {clean(name)}" for name in done.secrets]
    gone += [f"  webhook  {clean(url)}: muster webhook add {clean(url)}" for url in done.webhooks]
    return answer(
        args,
        {"secrets": done.secrets, "webhooks": done.webhooks},
        f"dropped: {counted(len(done.secrets), 'secret')}, {counted(len(done.webhooks), 'webhook')}; tasks and "
        "history are as they were",
        *gone,
        f"  next     copy {clean(str(project.vault_key_file))} to its other servers, then: muster serve",
    )


def _value_of(name: str) -> str:
    """Without the line's end.  Never an argument: those stand in the process list and in the shell's history."""
    if sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        return _long_enough(getpass(f"{name} (not shown): "))
    data = stdin_bytes("the value", 4 * VALUE_CHARS_MAX, "a secret is one variable of a process")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput(
            "the value is not UTF-8; nothing was changed", "encode it: base64 FILE | ..."
        ) from None
    return _long_enough(text.removesuffix("\n").removesuffix("\r"))


def _long_enough(value: str) -> str:
    refuse_blank(value)
    if len(value) < VALUE_CHARS_MIN:
        raise BadInput(
            f"the value has {len(value)} characters; nothing was changed",
            f"with fewer than {VALUE_CHARS_MIN} it could not be told from other text where it is blacked out",
        )
    if len(value) > VALUE_CHARS_MAX:
        raise BadInput(
            f"the value has {len(value)} characters; nothing was changed",
            f"at most {VALUE_CHARS_MAX} fit: keep more in a file, and set what opens it",
        )
    return value
