"""When a tree is frozen and when it goes on, on a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from muster.worker.lease_guard import LeaseGuard, margin_s

LEASE_S = 60.0


class Tree:
    pid = 7

    def __init__(self) -> None:
        self.done: list[str] = []

    def freeze(self) -> int:
        self.done.append("freeze")
        return 1

    def thaw(self) -> int:
        self.done.append("thaw")
        return 1


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tree() -> Any:
    return Tree()


@pytest.mark.promise("L5")
@pytest.mark.parametrize("lease_s", [2.0, 15.0, 60.0, 1800.0])
def test_it_is_frozen_before_the_lease_ends_counted_from_the_request(clock, tree, lease_s):
    lease_guard = LeaseGuard(lease_s, clock)
    sent_s = clock.now_s
    clock.now_s += 0.1 * lease_s  # the answer takes its time, which is no part of the lease
    lease_guard.heard(sent_s)
    with lease_guard.guarding(tree):
        clock.now_s = sent_s + lease_s - margin_s(lease_s) - 0.001
        lease_guard.look()
        assert tree.done == []
        clock.now_s += 0.002
        lease_guard.look()
        lease_guard.look()
        assert tree.done == ["freeze"] and clock.now_s < sent_s + lease_s


@pytest.mark.promise("L5")
def test_who_wakes_after_its_lease_is_frozen_at_the_first_look(clock, tree):
    lease_guard = LeaseGuard(LEASE_S, clock)
    lease_guard.heard(clock.now_s)
    with lease_guard.guarding(tree):
        clock.now_s += 8 * 3600
        lease_guard.look()
        assert tree.done == ["freeze"]


def test_an_answer_to_a_request_from_before_the_sleep_thaws_nothing(clock, tree):
    lease_guard = LeaseGuard(LEASE_S, clock)
    lease_guard.heard(clock.now_s)
    with lease_guard.guarding(tree):
        sent_s = clock.now_s
        clock.now_s += LEASE_S
        lease_guard.look()
        lease_guard.heard(sent_s)
        assert tree.done == ["freeze"]
        lease_guard.heard(clock.now_s)
        assert tree.done == ["freeze", "thaw"]


@pytest.mark.promise("L5")
def test_a_lease_that_was_never_renewed_is_not_trusted(clock, tree):
    """Its grant may have been long on its way."""
    lease_guard = LeaseGuard(LEASE_S, clock)
    with lease_guard.guarding(tree):
        assert tree.done == ["freeze"]
        lease_guard.heard(clock.now_s)
        assert tree.done == ["freeze", "thaw"]


def test_what_is_started_on_a_lease_that_is_over_never_moves(clock, tree):
    lease_guard = LeaseGuard(LEASE_S, clock)
    lease_guard.heard(clock.now_s)
    clock.now_s += LEASE_S
    with lease_guard.guarding(tree):
        assert tree.done == ["freeze"]


def test_where_the_store_is_on_this_host_nobody_is_frozen(clock, tree):
    lease_guard = LeaseGuard(None, clock)
    with lease_guard.guarding(tree):
        clock.now_s += 8 * 3600
        lease_guard.look()
        lease_guard.heard(clock.now_s)
        assert tree.done == []
