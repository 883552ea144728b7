"""Servers of one store that were given different settings say so, and go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.app.settings import load_config
from muster.config.keys import shared_settings
from muster.engine.leader import differing
from muster_command import run_muster
from patience import until
from postgres_databases import USER, at
from several_servers import QUICK, Servers, SharedServer

SLOWER = QUICK.replace('sweep = "100ms"', 'sweep = "200ms"') + "[limits]\ngpu = 2\n"


@pytest.fixture
def servers(tmp_path: Path, postgres_database: str) -> Iterator[Servers]:
    store = at(postgres_database, postgres_database.rpartition("/")[2], USER)
    made = Servers(tmp_path, store, 2)
    (made.every[1].folder / "muster.toml").write_text(SLOWER)
    try:
        made.start()
        yield made
    finally:
        made.close()


def differs(server: SharedServer) -> Any:
    return server.local("GET", "/api/v1/coordinator/status")["differs"]


def test_a_server_with_other_settings_than_the_leader_says_which(servers: Servers) -> None:
    leader = servers.leader
    assert leader is not None
    (other,) = [server for server in servers.every if server is not leader]
    here, there = ("200ms", "100ms") if other is servers.every[1] else ("100ms", "200ms")
    limits = ("2", "not set") if other is servers.every[1] else ("not set", "2")
    said = until(lambda: differs(other), "it knows the leader's")
    assert said == [
        f'health.sweep is "{here}" here and "{there}" there',
        f"limits.gpu is {limits[0]} here and {limits[1]} there",
    ]
    until(lambda: f"which leads: {said[0]}" in other.log(), "it is in the log")
    assert differs(leader) == [] and "which leads:" not in leader.log()
    found = json.loads(run_muster(other.folder, "doctor", "--json").stdout)["checks"]
    (check,) = [check for check in found if check["name"] == "settings"]
    assert check["ok"] is False and said[0] in check["found"]
    # Given the leader's settings, it says nothing any more.
    (other.folder / "muster.toml").write_text((leader.folder / "muster.toml").read_text())
    other.end()
    lines = other.log().count("which leads:")
    other.start()
    until(lambda: other.local("GET", "/api/v1/coordinator/status")["leader"], "it follows again")
    assert differs(other) == [] and other.log().count("which leads:") == lines


def test_what_belongs_to_one_host_may_differ(tmp_path: Path) -> None:
    def shared(text: str) -> dict[str, str]:
        (tmp_path / "muster.toml").write_text(text)
        return shared_settings(load_config(tmp_path))

    assert differing(shared('[serve]\nlisten = "127.0.0.1:1"\n'), shared("")) == ()
    slots = '[agents.a]\ncommand = ["true"]\nslots = 2\n'
    assert "agents.a.slots is 2 here and not set there" in differing(shared(slots), shared(""))
