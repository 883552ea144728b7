"""Keys of the vault that stand in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.hosts.handed_on import handed_on
from muster.hosts.vault import KeyVault, given_keys
from muster.model.errors import BadConfig, Conflict, StoreRefused
from muster.model.secrets import VAULT_KEY

OLD, NEW = bytes([1]) * 32, bytes([2]) * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "vault.key"


def test_a_given_key_stands_in_no_file(file: Path) -> None:
    sealed = KeyVault(file, [OLD]).seal("a value", "one")
    assert OLD.hex() not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert KeyVault(file, [NEW, OLD]).unseal(sealed, "one") == "a value"
    kept = file.read_bytes()
    for given in ([], [NEW]):
        vault = KeyVault(file, given)
        with pytest.raises(StoreRefused, match=rf"{VAULT_KEY} .*nothing was changed"):
            vault.unseal(sealed, "one")
        with pytest.raises(StoreRefused, match=rf"{VAULT_KEY} .*nothing was changed"):
            vault.seal("a value", "one")
        with pytest.raises(BadConfig, match="nothing was changed"):
            vault.check()
    assert file.read_bytes() == kept


def test_a_file_with_another_key_is_not_passed_over(file: Path) -> None:
    sealed = KeyVault(file).seal("a value", "one")
    kept = file.read_text()
    with pytest.raises(BadConfig, match="have different keys; nothing was changed") as refused:
        KeyVault(file, [NEW]).check()
    assert kept.strip() not in refused.value.message + refused.value.hint
    assert "unset MUSTER_VAULT_KEY" in refused.value.hint and "rotate" in refused.value.hint
    both = KeyVault(file, [NEW, bytes.fromhex(kept)])
    both.check()
    assert both.unseal(sealed, "one") == "a value"
    assert file.read_text() == kept


def test_a_newer_key_is_given_before_it_takes_the_place_of_the_old_one(file: Path) -> None:
    sealed = KeyVault(file).seal("a value", "one")
    one = KeyVault(file, [bytes.fromhex(file.read_text())])
    with pytest.raises(Conflict, match="nothing was changed"):
        one.take_new_key()
    two = KeyVault(file, [NEW, bytes.fromhex(file.read_text())])
    two.take_new_key()
    anew = two.seal(two.unseal(sealed, "one"), "one")
    assert VAULT_KEY in two.forget_old_keys()
    assert len(file.read_text()) < 64, "the old key is in no file any more"
    last = KeyVault(file, [NEW])
    assert last.unseal(anew, "one") == "a value"
    with pytest.raises(StoreRefused, match=f"{VAULT_KEY} does not have the key"):
        last.unseal(sealed, "one")


@pytest.mark.parametrize("text", ["short", "g" * 64, f"{OLD.hex()} {'0' * 63}", f"{OLD.hex()},{NEW.hex()}"])
def test_what_is_no_key_is_refused_and_not_repeated(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VAULT_KEY, text)
    with pytest.raises(BadConfig) as refused:
        given_keys()
    assert text not in refused.value.message + refused.value.hint


def test_the_environment_may_have_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VAULT_KEY, f"{NEW.hex().upper()}  {OLD.hex()}\n")
    assert given_keys() == [NEW, OLD]
    assert VAULT_KEY not in handed_on() and "PATH" in handed_on()
    monkeypatch.setenv(VAULT_KEY, "")
    assert given_keys() == []
