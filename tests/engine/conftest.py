from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from driven_postgres import DrivenPostgres
from engine_rig import FixedChance, Rig, audited

from muster.stores.sqlite.store import SqliteStore
from shared_store import SharedStore

SHARED_TOO = {
    "test_agent_moves",
    "test_breaker",
    "test_claims",
    "test_dependencies",
    "test_drain_worker",
    "test_edited_plans",
    "test_enqueue",
    "test_enqueue_limits",
    "test_failed_dependencies",
    "test_finish_and_claim",
    "test_groups",
    "test_lingering",
    "test_manual",
    "test_matching",
    "test_needy",
    "test_notes",
    "test_overdue",
    "test_plan_update",
    "test_pools",
    "test_reconcile",
    "test_spending",
    "test_standing_permissions",
    "test_steering",
    "test_touching",
    "test_workers",
}
"""Modules whose tests are also run on a store that other servers write."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__ in SHARED_TOO and "several_servers" in metafunc.fixturenames:
        metafunc.parametrize("several_servers", ["alone", "shared", "postgres"], indirect=True)


@pytest.fixture
def several_servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """On which store a rig is opened."""
    chosen: str = getattr(request, "param", "alone")
    with ExitStack() as opened:
        if chosen == "shared":
            monkeypatch.setattr(Rig, "_open_store", lambda rig: SharedStore(SqliteStore.open(rig.path)))
        elif chosen == "postgres":
            make = request.getfixturevalue("new_postgres_store")
            urls: dict[int, str] = defaultdict(make)

            def open_store(rig: Rig) -> DrivenPostgres:
                store = DrivenPostgres(urls[id(rig)])
                opened.callback(store.close)
                return store

            monkeypatch.setattr(Rig, "_open_store", open_store)
        yield chosen


@pytest.fixture
def rig(several_servers: str) -> Iterator[Rig]:
    with audited() as made:
        yield made


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thing that is given one by chance has one of its own."""
    numbers = itertools.count()
    monkeypatch.setattr(FixedChance, "name", lambda _, length: f"{next(numbers):0{length}d}")


@pytest.fixture
def crew(several_servers: str) -> Rig:
    made = Rig()
    made.register()
    return made
