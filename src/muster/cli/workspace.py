"""`muster workspace`: the tenants of this store."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.cli.context import connect
from muster.cli.fields import add_fields, answer, print_rows
from muster.cli.output import Screen, clean
from muster.model.json_value import Json

_CELLS: Mapping[str, Callable[[Json], object]] = {"WORKSPACE": itemgetter("name"), "ID": itemgetter("id")}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    made = verbs.add_parser(
        "create", act=_create, help="make one: its tasks and people are apart from others'"
    )
    made.add_argument("name", metavar="NAME", help="lower case letters, digits and dashes")
    add_fields(verbs.add_parser("list", act=_list, help="those there are"))


def _create(args: argparse.Namespace) -> int:
    with connect(args) as context:
        made = context.post("/api/v1/workspaces", name=args.name)
    name = clean(args.name)
    return answer(
        args,
        made,
        f"{name}  made; its first OWNER: muster member set NAME --role OWNER --workspace {name}",
    )


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        found = context.api.get("/api/v1/workspaces")

    def show(screen: Screen) -> None:
        screen.table(found, _CELLS, give="WORKSPACE")

    print_rows(args, found, show, names=tuple)
    return 0
