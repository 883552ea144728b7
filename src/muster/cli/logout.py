"""`muster logout`: forgets a server and the token for it."""

from __future__ import annotations

import argparse
import os

from muster.cli.fields import answer
from muster.cli.output import clean
from muster.config.contexts import SavedContexts
from muster.model.errors import NotFound


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "The token itself counts until somebody revokes it: muster token revoke."
    parser.add_argument("name", metavar="NAME", nargs="?", help="the context (default: the one in use)")


def run(args: argparse.Namespace) -> int:
    saved = SavedContexts.of(os.environ)
    name = args.name or saved.current
    if not name:
        raise NotFound("no server is in use; nothing was changed", "muster context list")
    return forget(args, saved, name)


def forget(args: argparse.Namespace, saved: SavedContexts, name: str) -> int:
    """Raises NotFound."""
    saved.named(name)
    del saved.servers[name]
    if saved.current == name:
        saved.current = ""
    saved.save()
    told = f"{clean(name)}  forgotten; its token counts until it is revoked: muster token revoke"
    return answer(args, {"context": name}, told)
