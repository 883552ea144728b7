"""Options of all commands that take a plan file."""

from __future__ import annotations

import argparse

from muster.cli.values import number
from muster.model.kinds import SECONDS_MAX
from muster.model.states import ORDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def add_which(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--as", dest="as_plan", metavar="NAME", help="its file was renamed: it is the plan NAME"
    )
    which.add_argument("--new", action="store_true", help="it is no renamed file, whatever it resembles")


def add_order(parser: argparse.ArgumentParser) -> None:
    said = "how its tasks follow each other (default: what it says itself, or looks like)"
    parser.add_argument("--order", choices=ORDERS, help=said)


def add_check(verbs: Any, act: Any) -> None:
    """`act` does it."""
    checking = verbs.add_parser("check", act=act, help="what a plan file holds, and what looks odd in it")
    checking.add_argument("plan", metavar="FILE", help="a markdown file with `- [ ]` tasks")
    add_order(checking)


WRITE_S = 600
"""How long an agent may take over a plan."""


def add_from(verbs: Any, act: Any) -> None:
    """`act` does it."""
    writing = verbs.add_parser("from", act=act, help="have an agent write a plan file from words")
    writing.add_argument(
        "words",
        metavar="WORDS",
        help="a text, a file with one, or issues as JSON (`gh issue view --json`); `-` is stdin",
    )
    writing.add_argument("--agent", metavar="AGENT", help="who writes it (default: the usual agent)")
    writing.add_argument(
        "--out",
        metavar="FILE",
        default="",
        help="the plan file (default: named after the plan; `-` prints it)",
    )
    writing.add_argument("--force", action="store_true", help="also over a file that is there")
    writing.add_argument("--add", action="store_true", help="add it unasked, with the commands that check it")
    writing.add_argument(
        "--timeout",
        type=number(1, SECONDS_MAX),
        default=WRITE_S,
        metavar="SECONDS",
        help=f"of each answer ({WRITE_S})",
    )
    writing.set_defaults(as_plan=None, new=False, order=None)
