"""Texts that are sealed by a key beside the store."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.hosts.vault import KeyVault
from muster.model.errors import StoreFull, StoreRefused


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which is for root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_it_opens_for_its_purpose_alone(tmp_path: Path) -> None:
    vault = KeyVault(tmp_path / "vault.key")
    sealed = vault.seal("a value", "one")
    assert (tmp_path / "vault.key").stat().st_mode & 0o777 == 0o600
    assert KeyVault(tmp_path / "vault.key").unseal(sealed, "one") == "a value"
    for text, purpose in ((sealed, "another"), (sealed[:-4] + "AAA=", "one"), ("", "one")):
        with pytest.raises(StoreRefused):
            vault.unseal(text, purpose)


def test_on_a_full_disk_the_keys_stay(small_disk: Path) -> None:
    vault = KeyVault(small_disk / "vault.key")
    sealed = vault.seal("a value", "one")
    fill = small_disk / "fill"
    with pytest.raises(OSError, match="No space"):
        fill.write_bytes(b"x" * (1 << 20))
    with pytest.raises(StoreFull, match="it stays as it was"):
        vault.take_new_key()
    assert sorted(path.name for path in small_disk.iterdir()) == ["fill", "vault.key"]
    fill.unlink()
    vault.take_new_key()
    assert vault.unseal(sealed, "one") == "a value"
    vault.forget_old_keys()
    with pytest.raises(StoreRefused, match="does not have the key"):
        vault.unseal(sealed, "one")


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    vault = KeyVault(tmp_path / "vault.key")
    (tmp_path / "vault.key").mkdir()
    with pytest.raises(StoreRefused, match="cannot be read: Is a directory"):
        vault.seal("a value", "one")
