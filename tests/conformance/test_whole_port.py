"""The suite says of every method of the port what is expected of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from muster.ports.store import Reads, Store, Transaction, Tx

HERE = Path(__file__).parent
BY_NAME = {"tx": (Tx, Transaction), "whole": (Transaction,), "read": (Reads,)}
"""Helpers of `Subject` that take a method's name, and the protocols that it is a method of."""
PATHS = [*HERE.glob("test_store_*.py"), HERE / "store_rows.py"]
VARIABLES = {Tx: ("tx",), Transaction: ("tx", "whole"), Reads: ("reads",), Store: ("store",)}
"""What tests call one."""
HELPERS = {"transact": Store, "write": Tx}
"""Helpers that call the method of their own name."""


def methods(protocol: type) -> set[str]:
    bases = [base for base in protocol.__mro__ if base not in (object, Protocol)]
    return {
        name
        for base in bases
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("_")
    }


def calls() -> Iterator[ast.Call]:
    for path in PATHS:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield node


def called(protocol: type) -> set[str]:
    """By name through a helper, or as a method of what a test calls `tx`, `reads` or `store`."""
    found = {name for name, kind in HELPERS.items() if kind is protocol}
    for call in calls():
        if not isinstance(call.func, ast.Attribute):
            continue
        helper, of = call.func.attr, call.func.value
        first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if protocol in BY_NAME.get(helper, ()) and isinstance(first, str):
            found.add(first)
        name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
        if (
            name
            in {Tx: ("tx", "part"), Transaction: ("whole",), Reads: ("reads",), Store: ("store",)}[protocol]
        ):
            found.add(helper)
    return found


@pytest.mark.parametrize("protocol", [Store, Transaction, Tx, Reads], ids=lambda protocol: protocol.__name__)
def test_the_suite_calls_every_method(protocol: type) -> None:
    assert methods(protocol) - called(protocol) == set()
