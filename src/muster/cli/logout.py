"""`muster logout`: forgets a server and the token for it."""

from __future__ import annotations

import argparse
import os

from muster.cli.fields import answer
from muster.cli.output import clean
from muster.config.contexts import SavedContexts
from muster.model.errors import NotFound

_REVOKE = "muster token list, then muster token revoke ID"


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = f"The token itself counts until somebody revokes it: {_REVOKE}."
    parser.add_argument("name", metavar="NAME", nargs="?", help="the context (default: the one in use)")


def run(args: argparse.Namespace) -> int:
    return forget(args, args.name)


def forget(args: argparse.Namespace, name: str | None) -> int:
    """None: the context in use.  Raises NotFound."""
    with SavedContexts.change(os.environ) as saved:
        name = name or saved.current
        if not name:
            raise NotFound("no server is in use; nothing was changed", "muster context list")
        saved.named(name)
        del saved.servers[name]
        if saved.current == name:
            saved.current = ""
    told = f"{clean(name)}  forgotten; its token counts until it is revoked: {_REVOKE}"
    return answer(args, {"context": name}, told)
