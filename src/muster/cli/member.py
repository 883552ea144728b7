"""`muster member`: who may reach a workspace, and as what."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.cli.access import ROLES, add_workspace_option, print_list, workspace
from muster.cli.fields import add_fields, answer
from muster.cli.output import age, clean, now_ms
from muster.client.api import path_of
from muster.model.access import Member
from muster.model.json_value import Json

_CELLS: Mapping[str, Callable[[Json], object]] = {
    "MEMBER": itemgetter("name"),
    "ROLE": itemgetter("role"),
    "SINCE": lambda row: age(now_ms() - row["createdAtMs"]),
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    given = verbs.add_parser("set", act=_set, help="add a member, or give one another role")
    given.add_argument("name", metavar="NAME")
    given.add_argument("--role", choices=ROLES, default="MEMBER", metavar="ROLE", help=", ".join(ROLES))
    listing = verbs.add_parser("list", act=_list, help="those there are")
    removed = verbs.add_parser("remove", act=_remove, help="one of them; the tokens go as well")
    removed.add_argument("name", metavar="NAME")
    for verb in (given, listing, removed):
        add_workspace_option(verb)
    add_fields(listing)


def _set(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        context.post("/api/v1/members", name=args.name, role=args.role)
    return answer(args, {"name": args.name, "role": args.role}, f"{clean(args.name)}  is {args.role}")


def _list(args: argparse.Namespace) -> int:
    return print_list(
        args,
        "/api/v1/members",
        Member,
        _CELLS,
        none="0 members; you reach everything on this machine without being one",
    )


def _remove(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        context.post(path_of("members", args.name, "remove"))
    return answer(args, {"name": args.name}, f"{clean(args.name)}  removed, with all tokens")
