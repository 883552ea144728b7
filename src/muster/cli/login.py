"""`muster login URL`: keeps a server's address and a token for it, after the server has said whose that is."""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import closing

from muster import __version__
from muster.cli.fields import answer
from muster.cli.output import clean, note
from muster.cli.values import stdin_bytes
from muster.client.api import Api
from muster.client.http import Connection
from muster.client.remote import ServerPlaces
from muster.config.contexts import KnownServer, SavedContexts
from muster.model.errors import BadInput, MusterError, NotFound
from muster.model.json_value import Json

TOKEN_BYTES_MAX = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Asks for your token on the terminal, or reads it from stdin; asks the server whose it is, and keeps "
        "both in a file that only you can read. From then on the commands that you give outside of a project's "
        "folder go there."
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="like https://muster.example or http://HOST:7420; of servers that share a store URL,URL,...",
    )
    parser.add_argument("--name", metavar="NAME", help="what you call it (default: its host)")
    parser.add_argument(
        "--ca-file", metavar="FILE", default="", help="trust the certificates in this PEM file, and no others"
    )


def run(args: argparse.Namespace) -> int:
    servers = ServerPlaces(args.url).every
    name = args.name or _named_after(servers[0].host)
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is no name for a context; nothing was kept", "--name NAME: letters, digits, - . _"
        )
    ca = os.path.realpath(args.ca_file) if args.ca_file else ""
    SavedContexts.of(os.environ)  # before a token is typed for a file that cannot be read
    if open_ones := [f"http://{url.at}" for url in servers if not url.private]:
        note(f"{', '.join(open_ones)}: not https; whoever is on the way can read your token")
    server = KnownServer(args.url.strip(), _asked_token(args.url), ca, named=f"context {name}")
    who = whoami(server)
    with SavedContexts.change(os.environ) as saved:
        saved.servers[name] = server
        saved.current = name
    told = {"context": name, "server": server.url, **who}
    return answer(
        args,
        told,
        f"{clean(name)}  {clean(who['actor'] or 'whoever asks')}, {who['role']} in workspace "
        f"{clean(who['workspace'])}; it is in use where no folder and no other server is meant",
    )


def _named_after(host: str) -> str:
    """Also an address like ::1, which is no name as it stands."""
    return f"ipv6-{host.replace(':', '-').replace('%', '-')}" if ":" in host else host


def whoami(server: KnownServer) -> Json:
    """What the server says of the token.  Raises what it refuses it with."""
    with closing(Connection(server.url, server.token, server.ca)) as connection:
        try:
            told: Json = Api(connection).get("/api/v1/whoami")
        except NotFound:
            raise MusterError(
                f"the server at {server.url} is older than this muster, or no such server; nothing was kept",
                f"upgrade it to {__version__}",
            ) from None
    return told


def _asked_token(url: str) -> str:
    """Raises BadInput where nothing was said."""
    if sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        told = getpass(f"Token for {url}: ", stream=sys.stderr)
    else:
        told = stdin_bytes("the token", TOKEN_BYTES_MAX, "one line with it").decode("ascii", "replace")
    token = told.strip()
    if not token or not re.fullmatch(r"[!-~]+", token):
        raise BadInput("that is no token; nothing was kept", "on the server's machine: muster token create")
    return token
