"""`muster webhook`: who is told by HTTP what happens here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.cli.access import add_workspace_option, print_list, workspace
from muster.cli.fields import add_fields, answer
from muster.cli.output import age, clean, note, now_ms
from muster.cli.values import number
from muster.client.api import path_of
from muster.model.json_value import Json
from muster.model.numbers import NUMBER_MAX
from muster.model.webhooks import HookKind, HookMessage, Webhook
from muster.model.wording import counted

KINDS = tuple(kind.value for kind in HookKind if kind is not HookKind.TEST)
_CELLS: Mapping[str, Callable[[Json], object]] = {
    "ID": itemgetter("id"),
    "URL": itemgetter("url"),
    "KINDS": lambda row: ",".join(row["kinds"]) or "all",
    "DELIVERED": lambda row: ago(row["lastDeliveredAtMs"]),
    "STATE": lambda row: use_of(row),  # noqa: PLW0108 - it stands further down
}
MESSAGE_CELLS: Mapping[str, Callable[[Json], object]] = {
    "MESSAGE": itemgetter("messageId"),
    "KIND": itemgetter("kind"),
    "OF": itemgetter("subject"),
    "TRIES": itemgetter("tries"),
    "STATE": lambda row: _fate(row),  # noqa: PLW0108
    "SAID": itemgetter("said"),
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    made = verbs.add_parser("add", act=_add, help="make one; its secret is shown this once")
    made.add_argument("url", metavar="URL", help="where messages are sent")
    made.add_argument(
        "--kind", action="append", choices=KINDS, metavar="KIND", help=f"only this: {', '.join(KINDS)}"
    )
    listing = verbs.add_parser("list", act=_list, help="those there are, without their secrets")
    told = verbs.add_parser("messages", act=_messages, help="what one was told, and is still to be told")
    tested = verbs.add_parser("test", act=_test, help="send a message that says nothing else")
    again = verbs.add_parser("resend", act=_resend, help="send again what was not taken, or one message")
    again.add_argument("--message", metavar="MESSAGE", help="only this one, also where it was taken")
    removed = verbs.add_parser("remove", act=_remove, help="with what was still to be sent there")
    for verb in (told, tested, again, removed):
        verb.add_argument("id", type=number(1, NUMBER_MAX), metavar="ID")
    for verb in (made, listing, told, tested, again, removed):
        add_workspace_option(verb)
    add_fields(listing)
    add_fields(told)


def _add(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        made = context.post("/api/v1/webhooks", url=args.url, kinds=args.kind or [])
    if made.get("warning"):  # a server that is older tells none
        note(clean(made["warning"]))
    return answer(args, made, f"webhook {made['id']}  {made['secret']}")


def _list(args: argparse.Namespace) -> int:
    return print_list(args, "/api/v1/webhooks", Webhook, _CELLS, none="0 webhooks", give="URL")


def _messages(args: argparse.Namespace) -> int:
    path = path_of("webhooks", str(args.id), "messages")
    return print_list(args, path, HookMessage, MESSAGE_CELLS, none="0 messages", give="SAID")


def _test(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        queued = context.post(path_of("webhooks", str(args.id), "test"))
    return answer(args, queued, f"{args.id}  a test is on its way: muster webhook messages {args.id}")


def _resend(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        queued = context.post(path_of("webhooks", str(args.id), "resend"), messageId=args.message)
    return answer(args, queued, f"{args.id}  {queued['messages']} to be sent")


def _remove(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        context.post(path_of("webhooks", str(args.id), "remove"))
    return answer(args, {"id": args.id}, f"{args.id}  removed")


def use_of(row: Json) -> str:
    """Of a webhook, or a channel."""
    if row["disabled"]:
        return f"disabled: {clean(row['disabled'])}"
    failed = row["failures"]
    return f"in use, failed {counted(failed, 'time')} in a row" if failed else "in use"


def _fate(row: Json) -> str:
    if row["deliveredAtMs"] is not None:
        return "taken"
    if row["nextAtMs"] is None:
        return "given up"
    left_ms = row["nextAtMs"] - now_ms()
    return f"tried in {age(left_ms)}" if left_ms > 0 else "due"


def ago(at_ms: int | None) -> str:
    return "never" if at_ms is None else f"{age(now_ms() - at_ms)} ago"
