"""`muster api METHOD PATH`: one raw request, with the answer as it came."""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from muster.cli.context import connect
from muster.cli.output import print_json
from muster.cli.values import stdin_bytes
from muster.model.errors import BadInput

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BODY_BYTES_MAX = 16 << 20


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Sends one request to the owner, and prints its JSON answer."
    parser.add_argument("method", metavar="METHOD", type=str.upper, choices=METHODS)
    parser.add_argument("path", metavar="PATH", help="as in /api/v1/status; ?a=b is sent along")
    parser.add_argument("--data", metavar="JSON", help="the body; - reads stdin")


def run(args: argparse.Namespace) -> int:
    if not args.path.startswith("/") or any(char <= " " for char in args.path):
        raise BadInput(f"{args.path!r} is no path", "muster api GET /api/v1/status")
    content = _content(args)
    with connect(args) as context:
        answer = context.api.call(args.method, args.path, content)
    if answer is not None:
        print_json(answer)
    return 0


def _content(args: argparse.Namespace) -> Any:
    """The body.  Raises BadInput where it is no JSON, before anything is sent."""
    if args.data is None:
        return None if args.method == "GET" else {}
    if args.method == "GET":
        raise BadInput("a GET has no body; nothing was sent", "put it into the path: /api/v1/events?after=7")
    read = partial(stdin_bytes, "the body", BODY_BYTES_MAX, "send less at once")
    try:
        return json.loads(read() if args.data == "-" else args.data)
    except ValueError as error:
        raise BadInput(
            f"the body is no JSON: {error}; nothing was sent", '--data \'{"actor": "me"}\''
        ) from None
