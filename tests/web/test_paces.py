"""Whose requests are counted together, over the network."""

from __future__ import annotations

import asyncio

from over_network import People
from web_site import Site

from muster.model.access import Role
from muster.web.app import build
from muster.web.gate import Exposure, NetworkGate
from muster.web.http import Request
from patience import PATIENCE_S


def test_a_known_token_has_a_pace_of_its_own_and_others_that_of_their_address(site: Site) -> None:
    token = People(site).token(Role.OWNER)
    exposure = Exposure(rate=5, trusted_hops=1)
    gate = NetworkGate(build(site.backend), site.backend, exposure, lambda: 0.0)

    def ask(secret: str, address: str) -> int:
        headers = [(b"authorization", f"Bearer {secret}".encode()), (b"x-forwarded-for", address.encode())]
        asked = gate.answer(Request("GET", "/api/v1/status", headers))
        return asyncio.run_coroutine_threadsafe(asked, site._loop).result(PATIENCE_S).status

    assert ask(token, "10.0.0.1") == 200
    tried = [ask(f"mst_{number:040d}", "10.0.0.2") for number in range(12)]
    assert tried == [401] * 10 + [429] * 2, "a token of its own for each request is no way around it"
    assert [ask(token, "10.0.0.2"), ask(token, "10.0.0.3")] == [200, 200]
    assert len(gate._pace) == 3, "what nobody is known by takes no room"
