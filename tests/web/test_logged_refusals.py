"""What is refused over the network leaves a line in the log, without its token."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from over_network import People, ask, listening
from test_network import Anybody
from web_site import Site

from muster.model.access import Role
from muster.web.backend import Backend
from muster.web.gate import Exposure, NetworkGate
from muster.web.http import Request


def test_refusals_are_logged_and_nobody_fills_the_log_with_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    gate = NetworkGate(Anybody(), cast("Backend", None), Exposure(rate=0), lambda: now_s)

    def ask(address: str) -> int:
        request = Request("POST", "/api/v1/plans%0Aroot:?token=mst_secret", (), address=address)
        return asyncio.run(gate.answer(request)).status

    with caplog.at_level("INFO", "muster.web.gate"):
        assert [ask("10.0.0.1") for _ in range(50)] + [ask("10.0.0.2")] == [401] * 51
        now_s += 61
        assert ask("10.0.0.1") == 401
    lines = [record.getMessage() for record in caplog.records]
    said = "was refused: this needs a token; nothing was changed"
    assert [line.partition(" by ")[2] for line in lines] == [
        f"10.0.0.1 {said}",
        f"10.0.0.2 {said}",
        f"10.0.0.1 {said} (49 more since the last line about it)",
    ]
    assert "mst_secret" not in caplog.text and not any("\n" in line for line in lines)


def test_who_may_not_is_logged_by_name_and_a_wrong_token_by_its_address(
    site: Site, people: People, caplog: pytest.LogCaptureFixture
) -> None:
    token = people.token(Role.VIEWER, member="ada")
    with caplog.at_level("INFO", "muster.web.gate"), listening(site, Exposure(rate=0)) as port:
        assert ask(port, "GET", "/api/v1/plans", token)[0] == 200
        for given, status in ((token, 403), (token, 403), ("mst_wrong", 401), ("mst_other", 401)):
            assert ask(port, "POST", "/api/v1/crew/stop", given, {"actor": "eve"})[0] == status
    lines = [one.getMessage() for one in caplog.records if one.name == "muster.web.gate"]
    assert [line.partition(":")[0] for line in lines] == [
        "POST /api/v1/crew/stop by user",
        "POST /api/v1/crew/stop by 127.0.0.1 was refused",
    ]
    assert "user:ada was refused: this needs the right to crew" in lines[0]
    assert "mst_" not in "".join(lines) and token not in "".join(lines)
