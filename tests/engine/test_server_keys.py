"""The key that servers of one store seal by: the store names it, and another one takes over once all have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_rig import FixedChance, Rig

from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.hosts.vault import KeyVault
from muster.model import commands as c
from muster.model.answers import Led
from muster.model.errors import Conflict, StoreRefused
from muster.model.input_secrets import input_purpose
from muster.model.secrets import secret_purpose

VALUE = "s3cret-value-0123456789"
PURPOSE = secret_purpose(1, "TOKEN")


class Keyed(Rig):
    """A server that has begun with the store, with two keys from then on: the newer one seals nothing yet."""

    def __init__(self, folder: Path) -> None:
        self.vault = KeyVault(folder / "vault.key")
        super().__init__()
        self.engine = Engine(self.store, FixedChance(), self.policy, vault=self.vault)
        (self.old,) = self.vault.key_names()
        self.do(c.Join(seal_key="s", vault_keys=(self.old,)))
        self.vault.take_new_key()
        self.new, _ = self.vault.key_names()

    def lead(self, server: str, *keys: str, **more: Any) -> Led:
        asked = c.Lead(server=server, named=f"{server}[1]", lease_ms=15_000, keys=keys, **more)
        led: Led = self.do(asked)
        return led

    def take(self) -> Any:
        return self.do(c.TakeKey(server="here", keys=(self.new, self.old)))

    def put(self) -> str:
        """By whichever key the server has taken; the key that the store has it by."""
        sealed = self.vault.seal(VALUE, PURPOSE)
        self.do(c.PutSecret(name="TOKEN", sealed=sealed, actor="ann"))
        kept = drive(self.reads.sealed_secrets())["TOKEN"]
        assert self.vault.unseal(kept, PURPOSE) == VALUE
        return kept.partition(".")[0]

    def add(self, key: str) -> str:
        spec = c.Spec(title=key, key=key, input_context={"apiKey": VALUE})
        (number,) = self.do(c.Enqueue(plan="p", source=None, tasks=(spec,), actor="ann")).task_ids
        kept = drive(self.reads.sealed_input(number))
        assert VALUE in self.vault.unseal(kept, input_purpose(1, number))
        return kept.partition(".")[0]


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_whatever_is_sealed_is_sealed_by_the_key_that_the_store_names(keyed: Keyed) -> None:
    assert keyed.put() == keyed.add("a") == keyed.old, "though the server has a newer one"
    assert keyed.take().key == keyed.new
    assert keyed.put() == keyed.add("b") == keyed.new
    sealed_before = keyed.vault.seal(VALUE, PURPOSE, keyed.old)
    keyed.do(c.PutSecret(name="TOKEN", sealed=sealed_before, actor="ann"))
    assert drive(keyed.reads.sealed_secrets())["TOKEN"].startswith(f"{keyed.new}."), "it came late"


def test_a_server_without_the_key_writes_nothing_that_others_could_not_open(keyed: Keyed) -> None:
    keyed.put()
    keyed.take()
    keyed.vault.forget_old_keys()
    keyed.do(c.TakeKey(server="here", keys=("elsewhere",)))
    with pytest.raises(StoreRefused, match="does not have the key"):
        keyed.add("c")


def test_it_waits_for_every_server_that_is_up(keyed: Keyed) -> None:
    keyed.lead("here", keyed.old)
    keyed.lead("there", keyed.old)
    assert (keyed.take().lacking, keyed.take().key) == (("there[1]",), keyed.old)
    keyed.lead("there", keyed.old, keyed.new)
    assert keyed.take().key == keyed.new
    assert keyed.lead("there", keyed.old).vault_key == keyed.new
    keyed.do(c.GiveUpKeys(keys=(keyed.old, keyed.new)))
    assert keyed.lead("there", keyed.old).given_up == (keyed.old,), "never the one that seals"


@pytest.mark.parametrize("how", ["ended", "silent", "replaced"])
def test_one_that_is_gone_is_not_waited_for(keyed: Keyed, how: str) -> None:
    keyed.lead("there", keyed.old, place="far:/srv")
    if how == "ended":
        keyed.lead("there", keyed.old, place="far:/srv", give_up=True)
    elif how == "silent":
        keyed.clock.advance(20)
    else:
        keyed.lead("again", keyed.old, keyed.new, place="far:/srv")
    assert keyed.take().lacking == ()


def test_a_lost_key_is_given_up_only_while_nobody_has_it(keyed: Keyed) -> None:
    keyed.put()
    reset = c.ResetKey(seal_key="s", keys=("other",), actor="ann")
    keyed.lead("there", keyed.old)
    with pytest.raises(Conflict, match="is up"):
        keyed.do(reset)
    keyed.lead("there", keyed.old, give_up=True)
    with pytest.raises(StoreRefused, match="muster/key"):
        keyed.do(c.ResetKey(seal_key="wrong", keys=("other",), actor="ann"))
    with pytest.raises(Conflict, match="has the key"):
        keyed.do(c.ResetKey(seal_key="s", keys=("x", keyed.old), actor="ann"))
    assert keyed.do(reset).secrets == ("TOKEN",)
    assert drive(keyed.reads.sealed_secrets()) == {}
