"""Secrets of input contexts as the engine writes them: for one task, whole or not at all, and without a hint."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_rig import FixedChance, Rig

from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.hosts.vault import KeyVault
from muster.model import commands as c
from muster.model.errors import StoreRefused
from muster.model.input_secrets import input_purpose
from muster.model.seals import Signer

KEY = "sk-canary-0001"


class Sealing(Rig):
    def __init__(self, folder: Path) -> None:
        self.key_file = folder / "vault.key"
        self.vault = KeyVault(self.key_file)
        super().__init__()
        grants = Signer(b"k" * 32).grants()
        self.engine = Engine(self.store, FixedChance(), self.policy, grants, self.vault)

    def add(self, *keys: str, whole: bool = False, **more: Any) -> Any:
        tasks = tuple(
            c.Spec(title=key, key=key, input_context={"apiKey": more.pop("value", KEY)}, **more)
            for key in keys
        )
        return self.do(c.Enqueue(plan="p", source=None, tasks=tasks, actor="ann", whole=whole))

    def sealed(self, task_id: int) -> str:
        return drive(self.reads.sealed_input(task_id))


@pytest.fixture
def sealing(tmp_path: Path) -> Sealing:
    return Sealing(tmp_path)


def test_a_copied_row_opens_nowhere_else(sealing: Sealing) -> None:
    one, other = sealing.add("one", "other").task_ids
    assert KEY in sealing.vault.unseal(sealing.sealed(one), input_purpose(1, one))
    for purpose in (input_purpose(1, other), input_purpose(2, one)):
        with pytest.raises(StoreRefused):
            sealing.vault.unseal(sealing.sealed(one), purpose)


def test_numbers_stay_in_the_order_of_the_tasks(sealing: Sealing) -> None:
    tasks = [
        c.Spec(title=str(n), key=str(n), input_context={"apiKey": KEY} if n % 2 else {}) for n in range(4)
    ]
    ids = sealing.do(c.Enqueue(plan="p", source=None, tasks=tuple(tasks), actor="ann")).task_ids
    assert list(ids) == sorted(ids)
    assert [bool(sealing.sealed(one)) for one in ids] == [False, True, False, True]


def test_what_cannot_be_sealed_adds_nothing_and_harms_no_neighbour(sealing: Sealing) -> None:
    sealing.key_file.write_text("no key")
    context = {"apiKey": KEY}
    bad = c.Enqueue(
        plan="bad",
        source=None,
        tasks=(c.Spec(title="a", key="a"), c.Spec(title="b", key="b", input_context=context)),
        actor="ann",
    )
    good = c.Enqueue(plan="good", source=None, tasks=(c.Spec(title="c", key="c"),), actor="ann")
    assert sealing.batch(bad, good) == ["store_refused", "Enqueued"]
    assert [plan.name for plan in drive(sealing.reads.plans())] == ["good"]


def test_who_adds_a_plan_again_is_not_told_whether_a_guess_is_right(sealing: Sealing) -> None:
    sealing.add("a", whole=True)
    for guess in (KEY, "sk-wrong-0001"):
        assert sealing.add("a", whole=True, value=guess).changed == ("a",)


def test_an_idempotency_key_keeps_nothing_to_guess_from(sealing: Sealing) -> None:
    sealing.add("a", idempotency_key="k1")
    spec = c.Spec(title="a", key="a", input_context={"apiKey": KEY}, idempotency_key="k1")

    async def kept(tx: Any) -> Any:
        return await tx.of(1).idempotent("k1")

    body_hash, _ = drive(sealing.store.transact(kept))
    assert body_hash != hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()
