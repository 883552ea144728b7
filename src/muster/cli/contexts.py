"""`muster context`: the servers that `muster login` has kept."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.cli.context import server_of
from muster.cli.fields import add_fields, answer, print_one, print_rows
from muster.cli.login import whoami
from muster.cli.logout import forget
from muster.cli.output import Screen, clean
from muster.config.contexts import KnownServer, SavedContexts
from muster.model.errors import NotFound
from muster.model.json_value import Json

_NAMES = ("context", "server", "caFile", "inUse")
_CELLS: Mapping[str, Callable[[Json], object]] = {
    "CONTEXT": itemgetter("context"),
    "SERVER": itemgetter("server"),
    "IN USE": lambda row: "yes" if row["inUse"] else "",
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="all of them, without their tokens")
    showing = verbs.add_parser(
        "show", act=_show, help="which server is meant here, by what, and who you are there"
    )
    using = verbs.add_parser(
        "use", act=_use, help="the one that commands outside of a project's folder go to"
    )
    deleting = verbs.add_parser("delete", act=_delete, help="forget one: the same as `muster logout`")
    showing.add_argument("name", metavar="NAME", nargs="?", help="this one instead")
    for verb in (using, deleting):
        verb.add_argument("name", metavar="NAME")
    for verb in (listing, showing):
        add_fields(verb)


def _list(args: argparse.Namespace) -> int:
    saved = SavedContexts.of(os.environ)
    rows = [_row(name, one, saved) for name, one in sorted(saved.servers.items())]

    def show(screen: Screen) -> None:
        screen.table(rows, _CELLS, give="SERVER", look=lambda _: "", empty="0 contexts: muster login URL")

    print_rows(args, rows, show, names=lambda: _NAMES)
    return 0


def _row(name: str, server: KnownServer, saved: SavedContexts) -> Json:
    return {"context": name, "server": server.url, "caFile": server.ca, "inUse": name == saved.current}


def _show(args: argparse.Namespace) -> int:
    server = SavedContexts.of(os.environ).named(args.name) if args.name else server_of(args)
    if server is None:
        raise NotFound("no server is meant here; commands are about a project's folder", "muster login URL")
    row = {"server": server.url, "by": server.named, "caFile": server.ca, **whoami(server)}

    def show(screen: Screen) -> None:
        screen.fields(
            [
                ("Server", f"{clean(server.url)} ({clean(server.named)})"),
                (
                    "You",
                    f"{clean(row['actor'] or 'whoever asks')}, {row['role']} in {clean(row['workspace'])}",
                ),
                ("May", ", ".join(row["rights"])),
            ]
        )

    print_one(args, row, show)
    return 0


def _use(args: argparse.Namespace) -> int:
    with SavedContexts.change(os.environ) as saved:
        server = saved.named(args.name)
        saved.current = args.name
    return answer(args, _row(args.name, server, saved), f"{clean(args.name)}  in use: {clean(server.url)}")


def _delete(args: argparse.Namespace) -> int:
    return forget(args, args.name)
