"""The store as a file, for commands that look at it without an owner."""

from muster.stores.sqlite.copies import back_up, examine
from muster.stores.sqlite.file import damage_of, gone, halt_of
from muster.stores.sqlite.halt import restore_hint
from muster.stores.sqlite.store import sqlite_version

__all__ = ["back_up", "damage_of", "examine", "gone", "halt_of", "restore_hint", "sqlite_version"]
