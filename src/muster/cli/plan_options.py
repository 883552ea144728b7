"""Options of all commands that take a plan file."""

from __future__ import annotations

import argparse

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
