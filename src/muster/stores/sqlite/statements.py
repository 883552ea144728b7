"""The statements of this store: the shared ones and those that are SQLite's alone."""

from __future__ import annotations

from pathlib import Path

from muster.stores import sql_files

OWN = Path(__file__).with_name("sql")


def load_sql(file: str) -> dict[str, str]:
    return sql_files.load_sql(file, OWN)
