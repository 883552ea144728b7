"""The statements of this store, with PostgreSQL's own marks for what is bound to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from muster.stores import sql_files
from muster.stores.sql_files import of_all, of_one

OWN = Path(__file__).with_name("sql")
_SLOT = re.compile(r"\?(\d*)")
_WRITES = re.compile(r"\b(INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+(\s+\w+)?\s+SET)\b")
SETTLED = "@settled"
"""In a statement: the last event that nobody can come before any more.  Bound last."""


class Statements(NamedTuple):
    by_name: dict[str, str]
    of_one: frozenset[str]
    """Those that take the number of a workspace, after what they are asked with."""
    settled: frozenset[str]
    """Those that take the last settled event after that."""
    writing: frozenset[str]
    """Those that change rows."""


def load(*files: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files:
        found |= sql_files.load_sql(file, OWN)
    return found


def for_one(statements: Mapping[str, str]) -> Statements:
    """For the rows of one workspace."""
    return _numbered(*of_one(statements))


def for_all(statements: Mapping[str, str]) -> Statements:
    return _numbered(of_all(statements, "TRUE"), frozenset())


def _numbered(statements: Mapping[str, str], own: frozenset[str]) -> Statements:
    settled = frozenset(name for name, sql in statements.items() if SETTLED in sql)
    writing = frozenset(name for name, sql in statements.items() if _WRITES.search(sql))
    return Statements({name: _marked(sql) for name, sql in statements.items()}, own, settled, writing)


def _marked(sql: str) -> str:
    last = max((int(number) for number in _SLOT.findall(sql) if number), default=0)
    following = count(1)
    marked = _SLOT.sub(lambda found: f"${found[1] or next(following)}", sql)
    return marked.replace(SETTLED, f"${last + 1}")
