from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_rig import Rig, audited

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
    if metafunc.module.__name__ in SHARED_TOO and "rig" in metafunc.fixturenames:
        metafunc.fixturenames.insert(0, "several_servers")  # before any rig is made
        metafunc.parametrize("several_servers", [False, True], indirect=True, ids=["alone", "shared"])


@pytest.fixture
def several_servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(Rig, "_open_store", lambda rig: SharedStore(SqliteStore.open(rig.path)))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with audited() as made:
        yield made
