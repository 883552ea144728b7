"""`muster token`: what proves to a server who asks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.cli.access import ROLES, add_workspace_option, print_list, workspace
from muster.cli.fields import add_fields, answer
from muster.cli.output import age, clean, note, now_ms
from muster.cli.values import number, time_s
from muster.client.api import path_of
from muster.model.access import Right, Token
from muster.model.json_value import Json
from muster.model.kinds import moment_text
from muster.model.numbers import NUMBER_MAX

_CELLS: Mapping[str, Callable[[Json], object]] = {
    "ID": itemgetter("id"),
    "TOKEN": itemgetter("name"),
    "MEMBER": itemgetter("member"),
    "ROLE": itemgetter("role"),
    "SCOPES": lambda row: ",".join(row["scopes"]) or "all",
    "USED": lambda row: _ago(row["lastUsedAtMs"]),
    "STATE": lambda row: _state(row),  # noqa: PLW0108 - it stands further down
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    made = verbs.add_parser("create", act=_create, help="make one; it is shown this once")
    made.add_argument("name", metavar="NAME", help="what it is for")
    made.add_argument("--member", required=True, metavar="MEMBER", help="whose it is: muster member list")
    made.add_argument(
        "--role", choices=ROLES, default="MEMBER", metavar="ROLE", help="at most the member's own (MEMBER)"
    )
    rights = tuple(right.value for right in Right)
    made.add_argument(
        "--scope", action="append", choices=rights, metavar="RIGHT", help=f"only this: {', '.join(rights)}"
    )
    made.add_argument(
        "--expires",
        type=_life_s,
        metavar="TIME",
        help="it counts this long, like 30d (as long as the token you ask with; without one, for ever)",
    )
    listing = verbs.add_parser("list", act=_list, help="those there are, without their secrets")
    revoked = verbs.add_parser("revoke", act=_revoke, help="it counts for nothing from now on")
    revoked.add_argument("id", type=number(1, NUMBER_MAX), metavar="ID")
    for verb in (made, listing, revoked):
        add_workspace_option(verb)
    add_fields(listing)


def _life_s(text: str) -> int:
    life_s = math.ceil(time_s(text))
    if life_s < 1:
        told = "a token counts for 1 s at least; without --expires it counts until it is revoked"
        raise argparse.ArgumentTypeError(told)
    return life_s


def _create(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        made = context.post(
            "/api/v1/tokens",
            name=args.name,
            member=args.member,
            role=args.role,
            scopes=args.scope or [],
            expiresS=args.expires,
        )
    if made["expiresAtMs"] is not None:
        note(f"it counts until {moment_text(made['expiresAtMs'])}")
    return answer(args, made, made["token"])


def _list(args: argparse.Namespace) -> int:
    return print_list(args, "/api/v1/tokens", Token, _CELLS, none="0 tokens")


def _revoke(args: argparse.Namespace) -> int:
    with workspace(args) as context:
        context.post(path_of("tokens", str(args.id), "revoke"))
    return answer(args, {"id": args.id}, f"{clean(str(args.id))}  revoked")


def _state(row: Json) -> str:
    if row["revokedAtMs"] is not None:
        return "revoked"
    left_ms = None if row["expiresAtMs"] is None else row["expiresAtMs"] - now_ms()
    if left_ms is None:
        return "counts"
    return f"counts for {age(left_ms)}" if left_ms > 0 else "has expired"


def _ago(at_ms: int | None) -> str:
    return "never" if at_ms is None else f"{age(now_ms() - at_ms)} ago"
