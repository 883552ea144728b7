"""Requests that are held while their token is revoked: nothing is done for them any more."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from over_network import Line, People, listening
from web_site import W1, Site

from muster.model.access import Role, Vouched
from muster.model.rows import DEFAULT_WORKSPACE
from muster.web.gate import Exposure
from muster.web.identity import hash_of
from muster.web.worker_tokens import worker_token
from patience import PATIENCE_S, until

FOLDER = "a key of the worker's folder"
KEY = {"Muster-Worker": FOLDER}


class Held:
    """A request of the worker, in a thread of its own."""

    def __init__(self, port: int, token: str, target: str, body: Any) -> None:
        self._asked = port, token, target, body
        self.answer: tuple[int, dict[str, str], Any] | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        port, token, target, body = self._asked
        with Line(port) as line:
            told = json.dumps(body).encode()
            self.answer = line.ask("POST", target, told, Authorization=f"Bearer {token}", **KEY)

    def told(self) -> tuple[int, dict[str, str], Any]:
        self._thread.join(PATIENCE_S)
        assert self.answer is not None
        return self.answer


class Revoked:
    def __init__(self, site: Site, port: int, people: People) -> None:
        self.site, self.port, self.people = site, port, people
        self.token = people.token(Role.ADMIN, member="ada")

    def of_worker(self) -> str:
        """The token of W1 behind which hers stands, which she has not used yet."""
        vouched = Vouched(W1, f"key {hash_of(FOLDER)}", frozenset({"claude"}))
        return worker_token(
            self.site.owner.vault,
            DEFAULT_WORKSPACE,
            hash_of(self.token),
            vouched,
            self.site.backend.clock.wall_ms(),
        )

    def held(self, target: str, body: Any) -> Held:
        """Returns once it was let in."""
        token = self.of_worker() if target.startswith("/worker/") else self.token
        asked = Held(self.port, token, target, body)
        until(lambda: self._row()["lastUsedAtMs"] is not None, "it was let in")
        return asked

    def _row(self) -> Any:
        return next(one for one in self.site.get("/api/v1/tokens") if one["member"] == "ada")

    def revoke(self) -> None:
        self.people.post(f"/api/v1/tokens/{self._row()['id']}/revoke")


@pytest.fixture
def ada(site: Site) -> Iterator[Revoked]:
    people = People(site)
    root = people.token(Role.OWNER, member="root")
    with listening(site, Exposure(rate=0)) as port:
        assert Held(port, root, "/worker/v1/register", site.registration()).told()[0] == 200
        yield Revoked(site, port, people)


def test_a_claim_that_is_held_then_gets_no_task(site: Site, ada: Revoked) -> None:
    asked = ada.held("/worker/v1/claim?wait=50", site.claim_body())
    ada.revoke()
    site.enqueue("a")
    status, headers, told = asked.told()
    assert (status, told["code"], headers["www-authenticate"]) == (401, "not_allowed", "Bearer")
    assert "was revoked" in told["detail"]
    (task,) = site.get("/api/v1/agent-tasks")
    assert (task["status"], task["epoch"]) == ("PENDING", 0), "nothing was claimed"


def test_a_program_that_waits_then_gets_no_task(site: Site, ada: Revoked) -> None:
    put = site.send("PUT", "/api/v1/agents/dev-1", json.dumps({"actor": "ann"}).encode())
    assert put[0] == 201
    asked = ada.held("/api/v1/agents/dev-1/claim", {"waitS": 50})
    ada.revoke()
    site.enqueue("a")
    assert asked.told()[0] == 401
    assert site.get("/api/v1/agent-tasks")[0]["epoch"] == 0


def test_a_heartbeat_that_is_held_then_renews_nothing(site: Site, ada: Revoked) -> None:
    asked = ada.held("/worker/v1/heartbeat?wait=50", {"workerId": W1, "attempts": []})
    ada.revoke()
    before = site.get(f"/api/v1/workers/{W1}")["lastSeenAtMs"]
    site.stop()  # orders for every worker, which wake it
    assert asked.told()[0] == 401
    assert site.get(f"/api/v1/workers/{W1}")["lastSeenAtMs"] == before
