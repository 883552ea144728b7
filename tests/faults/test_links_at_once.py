"""One link to sign in by, opened at several servers of a store at once: it lets one browser in."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from muster.web.open_paths import ENTER
from page_reader import Reader, Shown
from several_servers import Servers, SharedServer, at_once

LINKS = 12


def enter(server: SharedServer, code: str) -> Shown:
    return Reader(server.port).post(ENTER, {"code": code})


@pytest.mark.usefixtures("postgres_programs")
def test_a_link_lets_one_browser_in_at_whichever_server(tmp_path: Path, postgres_store: str) -> None:
    servers = Servers(tmp_path, postgres_store, 2)
    with contextlib.closing(servers):
        servers.start()
        with contextlib.closing(servers.api(servers.every[0])) as api:
            paths = [api.post("/api/v1/sign-in-links", {})["path"] for _ in range(LINKS)]
            for path in paths:
                (code,) = parse_qs(urlsplit(path).query)["code"]
                shown = at_once([partial(enter, server, code) for server in servers.every * 2])
                assert sorted(one.status for one in shown) == [303, 401, 401, 401]
                for one in shown:
                    assert one.status == 303 or "was used already" in one.text
            names = [one["name"] for one in api.get("/api/v1/tokens")]
            assert names.count("a browser") == LINKS
