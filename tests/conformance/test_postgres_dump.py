"""What a backup by pg_dump says where it fails, and whose program is meant."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from muster.model.errors import StoreFault
from muster.stores.postgres.backup import dump

ADDRESS = "postgresql://ada@127.0.0.1:1/d"


def refused(target: Path) -> StoreFault:
    with pytest.raises(StoreFault) as caught:
        asyncio.run(dump(ADDRESS, target, force=False))
    assert "no backup was made" in caught.value.message
    return caught.value


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("", "first on the PATH of the Muster server"),
        (
            "aborting because of server version mismatch",
            "first on the PATH of the Muster server, which runs it, and start that server anew",
        ),
        ("permission denied for table attempts_before", "muster doctor"),
    ],
)
def test_the_program_is_only_blamed_for_what_is_its_fault(
    programs: Path, tmp_path: Path, said: str, hint: str
) -> None:
    if said:
        program = programs / "pg_dump"
        program.write_text(f'#!/bin/sh\n[ "$LC_ALL" = C ] && echo "pg_dump: error: {said}" >&2\nexit 1\n')
        program.chmod(0o755)
    fault = refused(tmp_path / "made.dump")
    assert said in fault.message and hint in fault.hint
    assert ("PATH" in fault.hint) != (said.startswith("permission"))


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("postgresql://a:1,b:2/x", ("a,b", "1,2", "x", "read-write")),
        ("postgresql://ada:p@a,[::1],c:3/x?target_session_attrs=any", ("a,::1,c", ",,3", "x", "any")),
        ("postgresql://ada@[::1]:5/x", ("::1", "5", "x", "")),
        ("postgresql://%2Frun%2Fpg/x", ("/run/pg", "", "x", "")),
        ("postgresql:///?host=/a,/b&port=1&dbname=y", ("/a,/b", "1", "y", "read-write")),
    ],
)
def test_it_connects_where_the_store_does(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, given: tuple[str, ...]
) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGTARGETSESSIONATTRS"):
        monkeypatch.delenv(name, raising=False)
    program = programs / "pg_dump"
    said = "$PGHOST|$PGPORT|$PGDATABASE|$PGTARGETSESSIONATTRS"
    program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    program.chmod(0o755)
    with pytest.raises(StoreFault) as caught:
        asyncio.run(dump(url, tmp_path / "made.dump", force=False))
    assert f"failed: {'|'.join(given)};" in caught.value.message
