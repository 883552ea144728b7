"""What opens a backup, and what is lost without it."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

VALUE = b"s3cret-value-0123456789"


def test_a_backup_names_the_keys_that_it_needs(cli: Any, empty: Any) -> None:
    assert "vault key" not in cli("db", "backup", "before.db").out, "nothing is sealed yet"
    assert cli("secrets", "set", "TOKEN", stdin=VALUE).code == 0
    folder = empty.root / ".muster"
    (named,) = [line for line in cli("db", "backup", "a.db").out.splitlines() if line.startswith("vault key")]
    assert str(folder / "vault.key") in named and "opens secrets" in named
    made = json.loads(cli("db", "backup", "b.db", "--json").out)
    assert made["keys"] == [str(folder / "key"), str(folder / "vault.key")]


def test_a_backup_names_the_variable(cli: Any, empty: Any) -> None:
    (empty.root / ".muster" / "vault.key").write_text(f"MUSTER_VAULT_KEY {'0' * 16}\n")
    assert "vault key  MUSTER_VAULT_KEY  opens secrets" in cli("db", "backup", "a.db").out
    assert json.loads(cli("db", "backup", "b.db", "--json").out)["keys"][1:] == ["MUSTER_VAULT_KEY"]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (None, "vault.key is not there"),
        (f"{'0' * 64}\n", "vault.key does not have their key"),
        (f"MUSTER_VAULT_KEY {'0' * 16}\n", "MUSTER_VAULT_KEY is not set"),
    ],
)
def test_what_a_restored_backup_cannot_open_is_told(cli: Any, empty: Any, left: str | None, why: str) -> None:
    assert cli("secrets", "set", "TOKEN", stdin=VALUE).code == 0
    assert cli("webhook", "add", "https://example.org/x").code == 0
    assert cli("task", "add", "t", "--input-context", "-", stdin=b'{"apiKey": "abcdefgh"}').code == 0
    assert cli("db", "backup", "copy.db").code == 0
    empty.close()
    folder = empty.root / ".muster"
    key_file = folder / "vault.key"
    key = key_file.read_text()
    for text, told in ((left, why), (key, "")):
        shutil.copy(empty.root / "copy.db", folder / "state.db")
        if text is None:
            key_file.unlink()
        else:
            key_file.write_text(text)
        done = cli("db", "restored")
        assert done.code == 0, done.err
        closed = [line for line in done.out.splitlines() if line.startswith("closed")]
        assert len(closed) == bool(told)
        for line in closed:
            assert "1 secret, the keys of 1 webhook and the input contexts of 1 task cannot be opened" in line
            assert told in line and "put their key back" in line
