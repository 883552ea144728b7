"""The coordinator's place among several servers: one has it, under a lease and a term."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, Rig, cancel, reap
from msgspec.structs import replace

from muster.engine.server_keys import HEARD_MS
from muster.model import commands as c
from muster.model.answers import Led
from muster.model.errors import StoreRefused, TermOver

A, B = "server-a", "server-b"
PLACE_S = 15.0


def asked(rig: Rig, server: str, **more: Any) -> Led:
    answer: Led = rig.do(c.Lead(server=server, named=server, lease_ms=int(PLACE_S * 1000), **more))
    return answer


def ask(rig: Rig, server: str, **more: Any) -> Led:
    """What the answer says of the place."""
    answer = asked(rig, server, **more)
    assert answer.at_ms == rig.clock.present.mono_ms
    return replace(answer, at_ms=0, others_are_up=False)


@pytest.mark.promise("S10")
def test_one_leads_until_its_lease_is_over(rig: Rig) -> None:
    assert ask(rig, A) == Led(term=1, leader=A, took=True)
    assert ask(rig, B) == Led(leader=A)
    rig.clock.advance(PLACE_S - 1)
    assert ask(rig, A) == Led(term=1, leader=A)
    rig.clock.advance(PLACE_S - 1)
    assert ask(rig, B) == Led(leader=A), "the lease was renewed"
    rig.clock.advance(1)
    assert ask(rig, B) == Led(term=2, leader=B, took=True)
    assert ask(rig, A) == Led(leader=B)


@pytest.mark.promise("S10")
def test_a_leader_that_wakes_late_writes_nothing_under_its_old_term(rig: Rig) -> None:
    old = ask(rig, A).term
    rig.enqueue({"a": ()})
    rig.register()
    (job,) = rig.started()
    rig.clock.advance(PLACE_S)
    new = ask(rig, B).term
    before = len(rig.events())
    for late in (
        reap(job, old),
        c.FreshLeases(term=old),
        c.MarkWorkerDead(worker_id=W1, term=old, reason=""),
    ):
        with pytest.raises(TermOver):
            rig.do(late)
    assert len(rig.events()) == before
    rig.do(reap(job, new))


@pytest.mark.promise("S10")
def test_a_term_is_taken_before_what_else_is_in_its_transaction_is_looked_at(rig: Rig) -> None:
    old = ask(rig, A).term
    rig.register()
    rig.enqueue({"a": [], "b": []})
    other, job = rig.started()
    assert rig.batch(cancel(other.task_id), c.NewBoot(), reap(job, old))[1:] == ["TookOver", "term_over"]


def test_a_leader_that_slept_past_its_lease_has_another_term_though_nobody_else_led(rig: Rig) -> None:
    ask(rig, A)
    rig.clock.advance(PLACE_S)
    assert ask(rig, A) == Led(term=2, leader=A, took=True)


def test_who_gives_up_the_place_is_followed_at_once(rig: Rig) -> None:
    ask(rig, A)
    assert ask(rig, B, give_up=True) == Led(leader=A), "only who has it can give it up"
    assert ask(rig, A, give_up=True) == Led(last_term=1)
    assert ask(rig, B) == Led(term=2, leader=B, took=True)


def test_a_server_knows_whether_others_are_up(rig: Rig) -> None:
    assert not asked(rig, A).others_are_up
    assert asked(rig, B).others_are_up and asked(rig, A).others_are_up
    assert asked(rig, A, give_up=True).others_are_up
    assert not asked(rig, B).others_are_up
    asked(rig, A)
    rig.clock.advance(HEARD_MS / 1000 + 1)
    assert not asked(rig, B, give_up=True).others_are_up, "it was not heard for long"


@pytest.mark.promise("S15")
@pytest.mark.parametrize(
    ("late_s", "unheard", "fresh"), [(1, False, False), (1, True, True), (30, False, True)]
)
def test_leases_begin_anew_only_where_nobody_could_be_heard(
    rig: Rig, late_s: int, unheard: bool, fresh: bool
) -> None:
    ask(rig, A)
    rig.enqueue({"a": ()})
    rig.register()
    (job,) = rig.started()
    until_ms = rig.attempt(job).lease_until_ms
    rig.clock.advance(PLACE_S + late_s)
    ask(rig, B, unheard=unheard)
    anew_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert rig.attempt(job).lease_until_ms == (anew_ms if fresh else until_ms)


@pytest.mark.promise("S15")
def test_a_clock_of_the_store_that_is_set_back_leaves_the_place_empty_for_no_longer(rig: Rig) -> None:
    ask(rig, A)
    rig.enqueue({"a": ()})
    rig.register()
    (job,) = rig.started()
    rig.clock.advance(-3600)
    assert ask(rig, B) == Led(leader=A)
    rig.clock.advance(PLACE_S + 3)
    assert ask(rig, B) == Led(term=2, leader=B, took=True)
    anew_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert rig.attempt(job).lease_until_ms == anew_ms, "it would be held for an hour by the clock of before"


@pytest.mark.promise("S15")
@pytest.mark.parametrize("heard", [False, True])
def test_after_the_stores_clock_was_set_only_who_is_not_heard_since_is_silent(rig: Rig, heard: bool) -> None:
    """It was set forwards by 10 s: too little to show by itself, and most of a lease."""
    ask(rig, A)
    rig.enqueue({"a": ()})
    rig.register()
    (job,) = rig.started()
    until_ms = rig.attempt(job).lease_until_ms
    expects_ms = rig.clock.present.mono_ms + 1000
    rig.clock.advance(1 + 10)
    assert ask(rig, B, expects_ms=expects_ms) == Led(leader=A)
    if heard:
        assert ask(rig, A, expects_ms=expects_ms).term == 1, "its loops have seen it too"
        rig.clock.advance(PLACE_S)
    rig.clock.advance(4)
    ask(rig, B, expects_ms=rig.clock.present.mono_ms)
    anew_ms = rig.clock.present.mono_ms + int(LEASE_S * 1000)
    assert rig.attempt(job).lease_until_ms == (until_ms if heard else anew_ms)


def test_an_owner_that_takes_over_ends_the_place_of_a_server(rig: Rig) -> None:
    ask(rig, A)
    assert rig.new_boot().term == 2
    assert ask(rig, A) == Led(term=3, leader=A, took=True)


def test_whose_clock_is_wrong_is_told_to_all_until_it_is_set_or_has_ended(rig: Rig) -> None:
    assert ask(rig, A, wrong_ms=600_000).clocks == {A: 600_000}
    assert ask(rig, B, wrong_ms=-7_000).clocks == {A: 600_000, B: -7_000}
    rig.clock.advance(10)
    ask(rig, A)
    assert ask(rig, B, wrong_ms=-7_000).clocks == {B: -7_000}
    ask(rig, B, give_up=True)
    assert ask(rig, A).clocks == {}


def test_servers_of_one_store_have_the_same_keys(rig: Rig) -> None:
    assert rig.do(c.Join(seal_key="s1", vault_keys=("v1",))).first
    for keys in (("v1", "v2"), ("v2", "v1")):
        joined = rig.do(c.Join(seal_key="s1", vault_keys=keys))
        assert (joined.first, joined.vault_key) == (False, "v1"), "a newer key seals once all servers have it"
    for seal_key, vault_keys, given, named in (
        ("s2", ("v1",), False, ".muster/key of"),
        ("s2", ("v2",), False, ".muster/key and .muster/vault.key of"),
        ("s1", ("v2",), False, ".muster/vault.key of"),
        ("s1", ("v2",), True, "MUSTER_VAULT_KEY:"),
    ):
        with pytest.raises(StoreRefused, match="nothing was started") as refused:
            rig.do(c.Join(seal_key=seal_key, vault_keys=vault_keys, keys_given=given))
        assert refused.value.message.startswith(named)
