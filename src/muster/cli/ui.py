"""`muster ui`: the pages of a crew in a browser."""

from __future__ import annotations

import argparse
import os
import sys

from muster.cli.context import FarContext, connect, refuse_attempts, server_of
from muster.cli.fields import answer
from muster.cli.output import note
from muster.cli.values import number

PORT_MAX = 65535


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Opens the pages of this folder's crew on a port of this machine, until Ctrl-C, and prints a link that "
        "lets one browser in, once. Of a server elsewhere it prints such a link, and ends."
    )
    parser.add_argument("--no-open", action="store_true", help="print the link, and start no browser")
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=number(1, PORT_MAX),
        help="of this machine (default: 7421, or a free one)",
    )


def run(args: argparse.Namespace) -> int:
    if (server := server_of(args)) is not None:
        with connect(args) as context:
            assert isinstance(context, FarContext)
            link = context.api.post("/api/v1/sign-in-links", {})["path"]
        return _show(args, server.url.rstrip("/") + link, "it works once, for 10 minutes")
    with connect(args) as context:
        refuse_attempts(context.api, "ui")
        project, up = context.project, not context.direct
    if not up:
        note("no crew is up: the pages wait for one (muster up)")
    from muster.app.door import Door, bound, held, keep_open

    with held(project) as folder, bound(args.port) as listening:
        door = Door(project, folder)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def opened() -> None:
            _show(args, url + door.link(), "it works once; Ctrl-C closes the pages, and the crew goes on")

        keep_open(door, listening, opened, lambda error: note(f"{error.message}; fix: {error.hint}"))
    return 0


def _show(args: argparse.Namespace, link: str, until: str) -> int:
    done = answer(args, {"link": link}, f"Pages    {link}", f"         {until}")
    sys.stdout.flush()
    if not args.no_open and _may_open():
        import webbrowser

        webbrowser.open(link)
    return done


def _may_open() -> bool:
    """A browser in a terminal would take that from us."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
