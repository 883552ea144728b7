"""`muster notify`: where people are told what waits for them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, answer, print_rows
from muster.cli.output import Screen, clean
from muster.cli.webhook import MESSAGE_CELLS, ago, use_of
from muster.client.api import path_of
from muster.model.json_value import Json
from muster.model.notify import ChannelView
from muster.model.webhooks import TEST_TRIED_S, HookKind, HookMessage, untaken

LOOK_S = 0.2
_CELLS: Mapping[str, Callable[[Json], object]] = {
    "CHANNEL": itemgetter("name"),
    "KIND": itemgetter("kind"),
    "TO": itemgetter("to"),
    "TELLS": lambda row: ",".join(row["tells"]),
    "WHEN": lambda row: _when(row),  # noqa: PLW0108 - it stands further down
    "WAITING": itemgetter("waiting"),
    "TOLD": lambda row: ago(row["lastDeliveredAtMs"]),
    "STATE": use_of,
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="the channels of muster.toml, without their secrets")
    told = verbs.add_parser("messages", act=_messages, help="what one was told, and is still to be told")
    tested = verbs.add_parser("test", act=_test, help="send a test now, and tell what has become of it")
    again = verbs.add_parser("resend", act=_resend, help="tell again what was not told, or one message")
    again.add_argument("--message", metavar="MESSAGE", help="only this one, also where it was taken")
    for verb in (told, tested, again):
        verb.add_argument("name", metavar="NAME")
    add_fields(listing)
    add_fields(told)


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        found = context.api.get("/api/v1/channels")

    def show(screen: Screen) -> None:
        if found:
            screen.table(found, _CELLS, give="TO")
        else:
            screen.line("0 channels: muster.toml names none")

    print_rows(args, found, show, names=lambda: ChannelView.__struct_encode_fields__)
    return 0


def _messages(args: argparse.Namespace) -> int:
    with connect(args) as context:
        found = context.api.get(path_of("channels", args.name, "messages"))

    def show(screen: Screen) -> None:
        if found:
            screen.table(found, MESSAGE_CELLS, give="SAID")
        else:
            screen.line("0 messages")

    print_rows(args, found, show, names=lambda: HookMessage.__struct_encode_fields__)
    return 0


def _test(args: argparse.Namespace) -> int:
    """Raises Unavailable where it was not taken."""
    path = path_of("channels", args.name, "messages")
    with connect(args) as context:
        known = context.api.get(path, {"limit": 1})
        queued = context.post(path_of("channels", args.name, "test"))
        if context.direct:
            return answer(args, queued, f"{args.name}  a test is sent once a crew is up: muster up")
        tried = _tried(context, path, known[0]["id"] if known else 0)
    if tried is None or tried["deliveredAtMs"] is None:
        raise untaken(
            args.name, None if tried is None else tried["said"], f"muster notify messages {args.name}"
        )
    return answer(args, tried, f"{args.name}  has taken a test: {clean(tried['said'])}")


def _tried(context: Context, path: str, after: int) -> dict[str, Any] | None:
    """The test that was asked for after that message, once it was tried."""
    deadline_s = time.monotonic() + TEST_TRIED_S
    while time.monotonic() < deadline_s:
        found: list[Json] = context.api.get(path, {"limit": 50})
        tests = [one for one in found if one["kind"] == HookKind.TEST and one["id"] > after]
        if tests and tests[-1]["tries"]:
            return tests[-1]
        time.sleep(LOOK_S)
    return None


def _resend(args: argparse.Namespace) -> int:
    with connect(args) as context:
        queued = context.post(path_of("channels", args.name, "resend"), messageId=args.message)
    return answer(args, queued, f"{args.name}  {queued['messages']} to be told")


def _when(row: Json) -> str:
    words = ["at once" if not row["digestS"] else f"every {row['digestS']:g} s"]
    if row["quiet"]:
        words.append(f"not {row['quiet']}" + (f" {row['timeZone']}" if row["timeZone"] else ""))
    return ", ".join(words)
